"""Less common components of mechanism descriptions (`System`), and base classes of users' components.

`vioc` has the common ones.
"""

from vioc.dynamics.description.component import Constraint, Force, Potential, number, variable
from vioc.dynamics.formats.sexpr import component_form
from vioc.dynamics.terms.capstan import CapstanFriction, DrumRope, capstan_rope
from vioc.dynamics.terms.drives import Motor, Propeller, RotorInertia, TendonForce, motor
from vioc.dynamics.terms.dry import DryFriction, FloorFriction
from vioc.dynamics.terms.forces import JointFriction
from vioc.dynamics.terms.nonholonomic import NonholonomicConstraint, Rolling, Skate, wheel
from vioc.dynamics.terms.pairs import CamConstraint, GearConstraint, ScrewConstraint, cam, screw
from vioc.dynamics.terms.potentials import PolynomialSpring
from vioc.dynamics.terms.springs import Backlash, TableSpring, TableStrut

__all__ = [
    "Backlash",
    "CamConstraint",
    "CapstanFriction",
    "Constraint",
    "DrumRope",
    "DryFriction",
    "FloorFriction",
    "Force",
    "GearConstraint",
    "JointFriction",
    "Motor",
    "NonholonomicConstraint",
    "PolynomialSpring",
    "Potential",
    "Propeller",
    "Rolling",
    "RotorInertia",
    "ScrewConstraint",
    "Skate",
    "TableSpring",
    "TableStrut",
    "TendonForce",
    "cam",
    "capstan_rope",
    "component_form",
    "motor",
    "number",
    "screw",
    "variable",
    "wheel",
]
