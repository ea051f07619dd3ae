"""Projection-operator Newton method on trajectories, and multiple shooting."""
