"""Integrators, which turn the description of a mechanism into a one-step map."""
