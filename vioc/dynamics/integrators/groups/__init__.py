"""Variational integrators on SO(3)^n x R^m, whose states have rotations as unit quaternions.

Maths: docs/maths/groups.md. `group_lagrangian` has the Lagrangian and kinematics on the group, `group_space`
states and their errors, `group_vi` the integrator. For the midpoint rule, `group_step` has the equations of a
step and their solution, `group_derivatives` its derivatives; for several stages, `group_galerkin` and
`group_stages` have these, with the attitudes of `curves`.
"""

from vioc.dynamics.integrators.groups.group_vi import GroupVI

__all__ = ["GroupVI"]
