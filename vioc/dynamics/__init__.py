"""From a description to a one-step map: description, terms, kinematics, Lagrangian, contact, integrators."""
