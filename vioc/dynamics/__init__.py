"""Dynamics of mechanisms, from the description of a mechanism to its one-step map."""
