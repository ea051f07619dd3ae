"""Components of a `System` beyond the everyday ones, which `vioc` itself has."""

from vioc.dynamics.terms.pairs import cam, screw
from vioc.dynamics.terms.potentials import PolynomialSpring

__all__ = ["PolynomialSpring", "cam", "screw"]
