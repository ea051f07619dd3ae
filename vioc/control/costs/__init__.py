"""Running and terminal costs of trajectories, as CasADi expressions."""
