"""Components of a `System` beyond the everyday ones, which `vioc` itself has."""

from vioc.dynamics.terms.dry import DryFriction, FloorFriction
from vioc.dynamics.terms.nonholonomic import NonholonomicConstraint, Rolling, Skate, wheel
from vioc.dynamics.terms.pairs import cam, screw
from vioc.dynamics.terms.potentials import PolynomialSpring
from vioc.dynamics.terms.rotors import RotorInertia

__all__ = [
    "DryFriction",
    "FloorFriction",
    "NonholonomicConstraint",
    "PolynomialSpring",
    "Rolling",
    "RotorInertia",
    "Skate",
    "cam",
    "screw",
    "wheel",
]
