"""Protocol of one-step maps, and bases for maps whose steps are CasADi functions.

`protocol` is all that `vioc.control` knows of a mechanism (its symbols are in `named`, the space of its
states in `space`), and `suite` checks that a map keeps it. `kernel` is the base of maps whose step is a
CasADi function, `driver` makes their rollouts, `twins` lets maps that differ by parameters or step share
what is built; `explicit` has derivatives too where the step is a formula, `casadi_map` takes a user's own.
`made` has maps that are made of others.
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
