"""Variational integrators on SO(3)^n x R^m, without charts; see docs/maths/groups.md.

`twin` is the Lagrangian and its kinematics on the group, `space` states and their errors, `map` the
integrator. Of the midpoint rule `step` is the equations of a step and their solution, `derivatives` its first
and second order; of several stages these are `galerkin` and `stages`, on the attitudes of `curves`.
"""

from vioc.dynamics.integrators.groups.map import GroupVI

__all__ = ["GroupVI"]
