"""Optimal control of mechanisms on variational integrators.

Describe a mechanism (`System`, or `read` a model text), make a one-step map of it (`MidpointVI`), and
simulate, stabilize or optimize with that same map (`vioc.control`). `vioc.models` has mechanisms to
start from, `vioc.viz` pictures.
"""

import importlib
from typing import TYPE_CHECKING, Any

from vioc.dynamics.charts import change_chart, charts, rollout_charts
from vioc.dynamics.consistency import consistent_configuration, project_velocity
from vioc.dynamics.description.frame import Frame, chain, rx, ry, rz, se3, twist, tx, ty, tz
from vioc.dynamics.description.inertia import Mass
from vioc.dynamics.description.numbers import D, K, P
from vioc.dynamics.description.sexpr import read, read_text, write, write_text
from vioc.dynamics.description.system import System
from vioc.dynamics.integrators.base import OneStepMap
from vioc.dynamics.integrators.casadi_map import CasadiMap
from vioc.dynamics.integrators.midpoint import MidpointVI
from vioc.dynamics.kinematics import Kinematics
from vioc.dynamics.lagrangian import Lagrangian
from vioc.dynamics.terms.constraints import DistanceConstraint, PointConstraint, coincident
from vioc.dynamics.terms.forces import JointDamping, JointForce
from vioc.dynamics.terms.potentials import Gravity, LinearSpring, TorsionalSpring
from vioc.dynamics.trajectory import Trajectory
from vioc.errors import (
    ConstraintError,
    FileFormatError,
    ModelError,
    OptimizationError,
    ReadError,
    StepError,
)

if TYPE_CHECKING:
    from vioc import control, models, viz

__version__ = "0.1.0"

__all__ = [
    "CasadiMap",
    "ConstraintError",
    "D",
    "DistanceConstraint",
    "FileFormatError",
    "Frame",
    "Gravity",
    "JointDamping",
    "JointForce",
    "K",
    "Kinematics",
    "Lagrangian",
    "LinearSpring",
    "Mass",
    "MidpointVI",
    "ModelError",
    "OneStepMap",
    "OptimizationError",
    "P",
    "PointConstraint",
    "ReadError",
    "StepError",
    "System",
    "TorsionalSpring",
    "Trajectory",
    "chain",
    "change_chart",
    "charts",
    "coincident",
    "consistent_configuration",
    "control",
    "models",
    "project_velocity",
    "read",
    "read_text",
    "rollout_charts",
    "rx",
    "ry",
    "rz",
    "se3",
    "twist",
    "tx",
    "ty",
    "tz",
    "viz",
    "write",
    "write_text",
]


def __getattr__(name: str) -> Any:
    if name in ("control", "models", "viz"):  # imported when asked for: control brings scipy
        return importlib.import_module(f"vioc.{name}")
    raise AttributeError(f"module 'vioc' has no attribute {name!r}")
