"""Integrators, which make a one-step map from the description of a mechanism."""
