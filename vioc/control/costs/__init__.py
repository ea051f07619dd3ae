"""Costs of trajectories: running and terminal, in the symbols of a map."""
