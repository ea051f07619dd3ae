"""Running and terminal costs of trajectories, in the symbols of a map."""
