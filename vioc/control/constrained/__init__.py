"""Projection-operator descent under inequalities and conditions at the end.

`rows` names the limits, `penalties` and `penalized` put them into one cost, `barrier` and `augmented` drive
the penalties' weights, `optimize` is the front end, `polishing` takes the solution of another method. See
docs/maths/constrained_descent.md.
"""

from vioc.control.constrained.augmented import Augmented
from vioc.control.constrained.barrier import Barrier
from vioc.control.constrained.levels import ConstrainedResult, Level
from vioc.control.constrained.optimize_constrained import optimize_constrained
from vioc.control.constrained.polishing import polish

__all__ = ["Augmented", "Barrier", "ConstrainedResult", "Level", "optimize_constrained", "polish"]
