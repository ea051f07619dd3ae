"""`ContactVI`, `ModeVI`: contact, friction, impacts in generalized coordinates.

The contact laws and solvers are those of `vioc.dynamics.contact`; `touching` has gaps and slips in these
coordinates. `ContactVI` (`contact_vi`) takes steps without restitution by `resting`, with restitution by
`bounces` and `impacts`. `contact_step` has the equations of a step, `branch` their certificate,
`contact_derivatives`, `relaxed_contact` and `flat` the same equations for derivatives, for optimization and
for the compiled core. `ModeVI` (`mode_vi`) treats closed contacts as constraints.
"""
