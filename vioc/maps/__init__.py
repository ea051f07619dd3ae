"""What a one-step map is: the protocol, and its bases for steps that are CasADi functions.

`protocol`, with the names in `named`, is all that `vioc.control` knows of a mechanism, and `suite` checks
that a map keeps it. `kernel` makes rollouts of any step that is a CasADi function, `explicit` its derivatives
too where it is a formula, `casadi_map` takes a user's own. `made` has maps that are made of others.
"""

from vioc.maps.explicit import ExplicitMap
from vioc.maps.kernel import KernelMap, shared
from vioc.maps.made.switched import SwitchedMap
from vioc.maps.suite import check_map

__all__ = ["ExplicitMap", "KernelMap", "SwitchedMap", "check_map", "shared"]
