"""Mechanics of potentials, forces, constraints and contacts of a mechanism."""
