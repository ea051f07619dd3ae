"""`ContactVI` and `ModeVI`: contact, friction and impacts in generalized coordinates.

They stand on the room `vioc.dynamics.contact`; gaps and slips by these coordinates are in `touching`. Of
`ContactVI` (`contact_vi`), `resting` says how steps are taken where nothing bounces, `bounces` with `impacts`
where something does; `contact_step` has the equations of a step, `branch` their certificate,
`contact_derivatives` and `relaxed_contact` the same equations for derivatives and for programs, `flat` for
the compiled core. `ModeVI` (`mode_vi`) has the contacts that are closed as constraints.
"""
