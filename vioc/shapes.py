"""Shapes of bodies and grounds, between which contacts act."""

from vioc.dynamics.terms.contact_shapes import Box, Capsule, HalfSpace, Hull, Sphere
from vioc.dynamics.terms.terrain import Terrain

__all__ = ["Box", "Capsule", "HalfSpace", "Hull", "Sphere", "Terrain"]
