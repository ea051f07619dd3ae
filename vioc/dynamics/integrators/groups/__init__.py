"""The midpoint variational integrator on SO(3)^n x R^m, without charts; see docs/maths/groups.md.

`twin` is the Lagrangian and its kinematics on the group, `space` states and their errors, `step` the
equations of a step and their solution, `derivatives` its first and second order, `map` the integrator.
"""

from vioc.dynamics.integrators.groups.map import GroupVI

__all__ = ["GroupVI"]
