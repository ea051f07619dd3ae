"""Components of a `System` beyond the everyday ones, which `vioc` itself has."""

from vioc.dynamics.terms.dry import DryFriction, FloorFriction
from vioc.dynamics.terms.pairs import cam, screw
from vioc.dynamics.terms.potentials import PolynomialSpring
from vioc.dynamics.terms.rotors import RotorInertia

__all__ = ["DryFriction", "FloorFriction", "PolynomialSpring", "RotorInertia", "cam", "screw"]
