"""Interface of one-step maps, and base classes of maps whose steps are CasADi functions.

`protocol` defines all that `vioc.control` uses of a mechanism (`named` its symbols, `space` its state space),
and `suite` checks that a map conforms to it. `kernel` is the base of maps whose step is a CasADi function,
and `driver` makes their rollouts. With `twins`, maps that differ only in parameters or step length share
their functions. `explicit` adds derivatives for explicit steps, and `casadi_map` takes a function of the
user. `made` has maps that are built from other maps.
"""

from vioc.maps.derivatives import MapDerivatives
from vioc.maps.explicit import ExplicitMap
from vioc.maps.kernel import KernelMap, KernelPrograms, StepSolver
from vioc.maps.made.switched import SwitchedMap
from vioc.maps.space import StateSpace
from vioc.maps.suite import check_map
from vioc.maps.twins import own, shared

__all__ = [
    "ExplicitMap",
    "KernelMap",
    "KernelPrograms",
    "MapDerivatives",
    "StateSpace",
    "StepSolver",
    "SwitchedMap",
    "check_map",
    "own",
    "shared",
]
