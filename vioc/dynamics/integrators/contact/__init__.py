"""Integrators of mechanisms with contact, friction and impacts, in generalized coordinates.

The contact laws and solvers are those of `vioc.dynamics.contact`; `touching` has gaps and slip velocities in
these coordinates. `ContactVI` (`contact_vi`) computes steps without restitution by `resting`, with
restitution by `bounces` and `impacts`. `contact_step` has the equations of a step, `branch` the certificate
of their roots. `contact_derivatives`, `relaxed_contact` and `flat` have the same equations for derivatives,
for optimization and for the compiled solver. `ModeVI` (`mode_vi`) treats closed contacts as constraints.
"""
