"""Optimal control of mechanisms that are discretized by variational integrators.

Describe a mechanism (`System`, or `read` a model text), make a one-step map of it (`MidpointVI`), and
simulate, stabilize or optimize with that same map (`vioc.control`). `vioc.models` has mechanisms to
start from, `vioc.viz` pictures.
"""

import importlib
from contextlib import suppress
from typing import TYPE_CHECKING

from casadi import GlobalOptions

from vioc import drawing
from vioc.lazy import importer

if TYPE_CHECKING:
    from vioc import (
        cables,
        components,
        control,
        errors,
        identification,
        interop,
        models,
        shapes,
        sweeps,
        target,
        viz,
    )
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


HOMES = {  # module of each public name; it is imported when the name is first used
    "vioc.dynamics.charts": "change_chart charts rollout_charts",
    "vioc.dynamics.consistency": "consistent_configuration project_velocity",
    "vioc.dynamics.continuous": "Continuous",
    "vioc.dynamics.description.frame": "Frame chain rx ry rz se3 twist tx ty tz",
    "vioc.dynamics.description.inertia": "Mass",
    "vioc.dynamics.description.joints": (
        "Joint cylindrical free helical planar prismatic revolute spherical universal"
    ),
    "vioc.dynamics.description.numbers": "D K P",
    "vioc.dynamics.description.system": "System",
    "vioc.dynamics.formats.mjcf": "read_mjcf",
    "vioc.dynamics.formats.reading": "read",
    "vioc.dynamics.formats.robot": "Robot",
    "vioc.dynamics.formats.sexpr": "read_text write write_text",
    "vioc.dynamics.formats.urdf": "read_urdf read_urdf_text",
    "vioc.dynamics.integrators.composition": "Composition",
    "vioc.dynamics.integrators.contact.contact_vi": "ContactVI",
    "vioc.dynamics.integrators.contact.mode_vi": "ModeVI",
    "vioc.dynamics.integrators.discrete": "DiscreteLagrangianVI",
    "vioc.dynamics.integrators.galerkin": "GalerkinVI",
    "vioc.dynamics.integrators.groups": "GroupVI",
    "vioc.dynamics.integrators.linear_time.linear_time_vi": "LinearTimeVI",
    "vioc.dynamics.integrators.maximal": "MaximalVI",
    "vioc.dynamics.integrators.mechanical": "MechanicalMap",
    "vioc.dynamics.integrators.midpoint": "MidpointVI",
    "vioc.dynamics.integrators.runge_kutta": "RungeKutta",
    "vioc.dynamics.integrators.tableau": "Tableau",
    "vioc.dynamics.kinematics": "Kinematics",
    "vioc.dynamics.lagrangian": "Lagrangian",
    "vioc.dynamics.reference": "reference_solution",
    "vioc.dynamics.terms.constraints": (
        "DistanceConstraint PointConstraint PointOnPlane StringConstraint coincident"
    ),
    "vioc.dynamics.terms.contacts": "Contact PairContact",
    "vioc.dynamics.terms.forces": "JointDamping JointForce LinearDamper",
    "vioc.dynamics.terms.joint_limits": "JointLimits",
    "vioc.dynamics.terms.potentials": "Gravitation Gravity LinearSpring MassGravity TorsionalSpring",
    "vioc.dynamics.terms.user": "UserConstraint UserForce UserPotential",
    "vioc.dynamics.terms.wrenches": "Wrench WrenchInput wrench_inputs",
    "vioc.errors": "ModelError OptimizationError StepError",
    "vioc.maps.casadi_map": "CasadiMap",
    "vioc.maps.made.substeps": "Substeps",
    "vioc.maps.protocol": "OneStepMap",
    "vioc.runs.signals": "inputs",
    "vioc.runs.trajectory": "Trajectory",
}
ROOMS = (
    *("cables", "components", "control", "errors", "identification", "interop", "models", "shapes"),
    *("sweeps", "target", "viz"),
)

with suppress(AttributeError):  # older versions of CasADi lack this option
    if GlobalOptions.getNumpyMode() == 0:  # not set: suppress the long warning of np.sin(x)
        GlobalOptions.setNumpyMode(-1)

drawing.pictures_are_at(lambda: importlib.import_module("vioc.viz"))


def __dir__() -> list[str]:
    return [*__all__, *(name for name in globals() if name.startswith("__"))]


def _hint(name: str) -> str:
    for room in ("cables", "components", "errors", "shapes"):
        module = importlib.import_module(f"vioc.{room}")
        if name in getattr(module, "__all__", dir(module)) and not name.startswith("_"):
            return f"; it is vioc.{room}.{name}"
    return ""


__getattr__ = importer("vioc", HOMES, ROOMS, _hint)
