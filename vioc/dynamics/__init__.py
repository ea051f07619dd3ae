"""Dynamics, from a description to a one-step map."""
