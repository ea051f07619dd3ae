"""Linearization of maps about points and trajectories, with weights and bases."""
