"""`ContactVI` and `ModeVI`: contact, friction and impacts in generalized coordinates.

They stand on the room `vioc.dynamics.contact`; gaps and slips by these coordinates are in `touching`. Of
`ContactVI`, `step` has the equations of a step, `branch` their certificate, `derivatives` and `relaxed` the
same equations for derivatives and for programs, `flat` for the compiled core; restitution is in `bounces` and
`impacts`. `ModeVI` (`modes`) has the contacts that are closed as constraints.
"""
