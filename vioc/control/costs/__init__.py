"""Running and terminal costs of trajectories, as expressions in a map's symbols."""
