"""Mechanics of components: potentials, forces, constraints and contacts."""
