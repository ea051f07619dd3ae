"""Variational integrators on SO(3)^n x R^m, whose states have rotations as unit quaternions.

Maths: docs/maths/groups.md. The module `group_lagrangian` has the Lagrangian and kinematics on the group,
`group_space` has states and their errors, and `group_vi` has the integrator. For the midpoint rule,
`group_step` has the equations of a step and their solution, and `group_derivatives` their derivatives. For
rules with several stages, `group_galerkin` has the equations, `group_stages` their solution and derivatives,
and `curves` the interpolation of attitudes within a step.
"""

from vioc.dynamics.integrators.groups.group_vi import GroupVI

__all__ = ["GroupVI"]
