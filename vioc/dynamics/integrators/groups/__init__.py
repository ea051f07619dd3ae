"""Variational integrators on SO(3)^n x R^m, without charts; see docs/maths/groups.md.

`twin` is the Lagrangian and its kinematics on the group, `group_space` states and their errors, `group_vi`
the integrator. Of the midpoint rule `group_step` is the equations of a step and their solution,
`group_derivatives` its first and second order; of several stages these are `group_galerkin` and
`group_stages`, on the attitudes of `curves`.
"""

from vioc.dynamics.integrators.groups.group_vi import GroupVI

__all__ = ["GroupVI"]
