"""Optimal control of mechanisms on variational integrators.

Describe a mechanism (`System`, or `read` a model text), make a one-step map of it (`MidpointVI`), and
simulate, stabilize or optimize with that same map (`vioc.control`). `vioc.models` has mechanisms to
start from, `vioc.viz` pictures.
"""

import importlib
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from casadi import GlobalOptions

from vioc import cables, components, drawing, errors, shapes
from vioc.dynamics.charts import change_chart, charts, rollout_charts
from vioc.dynamics.consistency import consistent_configuration, project_velocity
from vioc.dynamics.continuous import Continuous
from vioc.dynamics.description.frame import Frame, chain, rx, ry, rz, se3, twist, tx, ty, tz
from vioc.dynamics.description.inertia import Mass
from vioc.dynamics.description.joints import (
    Joint,
    cylindrical,
    free,
    helical,
    planar,
    prismatic,
    revolute,
    spherical,
    universal,
)
from vioc.dynamics.description.numbers import D, K, P
from vioc.dynamics.description.system import System
from vioc.dynamics.formats.mjcf import read_mjcf
from vioc.dynamics.formats.reading import read
from vioc.dynamics.formats.robot import Robot
from vioc.dynamics.formats.sexpr import read_text, write, write_text
from vioc.dynamics.formats.urdf import read_urdf, read_urdf_text
from vioc.dynamics.integrators.composition import Composition
from vioc.dynamics.integrators.contact.contact_vi import ContactVI
from vioc.dynamics.integrators.contact.mode_vi import ModeVI
from vioc.dynamics.integrators.discrete import DiscreteLagrangianVI
from vioc.dynamics.integrators.galerkin import GalerkinVI
from vioc.dynamics.integrators.groups import GroupVI
from vioc.dynamics.integrators.linear_time.linear_time_vi import LinearTimeVI
from vioc.dynamics.integrators.maximal import MaximalVI
from vioc.dynamics.integrators.mechanical import MechanicalMap
from vioc.dynamics.integrators.midpoint import MidpointVI
from vioc.dynamics.integrators.runge_kutta import RungeKutta
from vioc.dynamics.integrators.tableau import Tableau
from vioc.dynamics.kinematics import Kinematics
from vioc.dynamics.lagrangian import Lagrangian
from vioc.dynamics.reference import reference_solution
from vioc.dynamics.terms.constraints import (
    DistanceConstraint,
    PointConstraint,
    PointOnPlane,
    StringConstraint,
    coincident,
)
from vioc.dynamics.terms.contacts import Contact, PairContact
from vioc.dynamics.terms.forces import JointDamping, JointForce, LinearDamper
from vioc.dynamics.terms.joint_limits import JointLimits
from vioc.dynamics.terms.potentials import (
    Gravitation,
    Gravity,
    LinearSpring,
    MassGravity,
    TorsionalSpring,
)
from vioc.dynamics.terms.user import UserConstraint, UserForce, UserPotential
from vioc.dynamics.terms.wrenches import Wrench, WrenchInput, wrench_inputs
from vioc.errors import ModelError, OptimizationError, StepError
from vioc.maps.casadi_map import CasadiMap
from vioc.maps.made.substeps import Substeps
from vioc.maps.protocol import OneStepMap
from vioc.runs.signals import inputs
from vioc.runs.trajectory import Trajectory

if TYPE_CHECKING:
    from vioc import control, identification, interop, models, sweeps, target, viz

__version__ = "0.1.0"

__all__ = [
    "CasadiMap",
    "Composition",
    "Contact",
    "ContactVI",
    "Continuous",
    "D",
    "DiscreteLagrangianVI",
    "DistanceConstraint",
    "Frame",
    "GalerkinVI",
    "Gravitation",
    "Gravity",
    "GroupVI",
    "Joint",
    "JointDamping",
    "JointForce",
    "JointLimits",
    "K",
    "Kinematics",
    "Lagrangian",
    "LinearDamper",
    "LinearSpring",
    "LinearTimeVI",
    "Mass",
    "MassGravity",
    "MaximalVI",
    "MechanicalMap",
    "MidpointVI",
    "ModeVI",
    "ModelError",
    "OneStepMap",
    "OptimizationError",
    "P",
    "PairContact",
    "PointConstraint",
    "PointOnPlane",
    "Robot",
    "RungeKutta",
    "StepError",
    "StringConstraint",
    "Substeps",
    "System",
    "Tableau",
    "TorsionalSpring",
    "Trajectory",
    "UserConstraint",
    "UserForce",
    "UserPotential",
    "Wrench",
    "WrenchInput",
    "cables",
    "chain",
    "change_chart",
    "charts",
    "coincident",
    "components",
    "consistent_configuration",
    "control",
    "cylindrical",
    "errors",
    "free",
    "helical",
    "identification",
    "inputs",
    "interop",
    "models",
    "planar",
    "prismatic",
    "project_velocity",
    "read",
    "read_mjcf",
    "read_text",
    "read_urdf",
    "read_urdf_text",
    "reference_solution",
    "revolute",
    "rollout_charts",
    "rx",
    "ry",
    "rz",
    "se3",
    "shapes",
    "spherical",
    "sweeps",
    "target",
    "twist",
    "tx",
    "ty",
    "tz",
    "universal",
    "viz",
    "wrench_inputs",
    "write",
    "write_text",
]


LAZY = ("control", "identification", "interop", "models", "sweeps", "target", "viz")

with suppress(AttributeError):  # older versions of CasADi lack this option
    if GlobalOptions.getNumpyMode() == 0:  # not set: suppress the long warning of np.sin(x)
        GlobalOptions.setNumpyMode(-1)


def _pictures() -> Any:
    import vioc.viz

    return vioc.viz


drawing.pictures_are_at(_pictures)


def __dir__() -> list[str]:
    return [*__all__, *(name for name in globals() if name.startswith("__"))]


def __getattr__(name: str) -> Any:
    if name in LAZY:  # imported on first use, as scipy is slow to import
        return importlib.import_module(f"vioc.{name}")
    for room in (cables, components, errors, shapes):
        if name in getattr(room, "__all__", dir(room)) and not name.startswith("_"):
            raise AttributeError(f"module 'vioc' has no attribute {name!r}; it is {room.__name__}.{name}")
    raise AttributeError(f"module 'vioc' has no attribute {name!r}")
