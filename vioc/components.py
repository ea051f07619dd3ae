"""Components of a `System` beyond the everyday ones, which `vioc` itself has."""

from vioc.dynamics.terms.capstan import CapstanFriction, DrumRope, capstan_rope
from vioc.dynamics.terms.drives import Motor, Propeller, TendonForce, motor
from vioc.dynamics.terms.dry import DryFriction, FloorFriction
from vioc.dynamics.terms.friction import JointFriction
from vioc.dynamics.terms.nonholonomic import NonholonomicConstraint, Rolling, Skate, wheel
from vioc.dynamics.terms.pairs import GearConstraint, cam, screw
from vioc.dynamics.terms.potentials import PolynomialSpring
from vioc.dynamics.terms.rotors import RotorInertia
from vioc.dynamics.terms.springs import Backlash, TableSpring, TableStrut

__all__ = [
    "Backlash",
    "CapstanFriction",
    "DrumRope",
    "DryFriction",
    "FloorFriction",
    "GearConstraint",
    "JointFriction",
    "Motor",
    "NonholonomicConstraint",
    "PolynomialSpring",
    "Propeller",
    "Rolling",
    "RotorInertia",
    "Skate",
    "TableSpring",
    "TableStrut",
    "TendonForce",
    "cam",
    "capstan_rope",
    "motor",
    "screw",
    "wheel",
]
