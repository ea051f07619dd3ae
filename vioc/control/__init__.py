"""Optimal control of any one-step map.

Costs, regulators and trajectory optimization are here; `dmoc` transcribes whole problems with constraints,
`feedback` has equilibria, observers, closed loops and receding horizons, `analysis` what can be controlled
and seen, `sweep` many runs at once, `interop` other packages.
"""

from vioc.control import analysis, dmoc, feedback, interop, sweep, target
from vioc.control.analysis import (
    accessibility,
    controllability,
    controllability_gramian,
    controllability_matrix,
    controllability_rank,
    floquet,
    frequency_response,
    lyapunov_level,
    modes,
    observability,
    observability_gramian,
    observability_matrix,
    observability_rank,
    region_of_attraction,
    steer,
    unstabilizable_modes,
)
from vioc.control.check import DerivativeCheck, check_derivatives
from vioc.control.costs.cost import Cost
from vioc.control.costs.quadratic import quadratic
from vioc.control.descent.projection import project, projection_gains, straight_line
from vioc.control.descent.search import Armijo
from vioc.control.feedback import (
    ClosedLoop,
    LinearMPC,
    Measurement,
    NonlinearMPC,
    equilibrium,
    kalman,
)
from vioc.control.identification.design import design
from vioc.control.identification.identify import identify
from vioc.control.identification.records import Record
from vioc.control.identification.regression import base_parameters
from vioc.control.optimizing import optimize
from vioc.control.problem.pose import pose, pose_error
from vioc.control.problem.result import Result
from vioc.control.problem.status import Status
from vioc.control.regulators.lqr import Regulator, SteadyRegulator, dlqr
from vioc.control.regulators.riccati import riccati
from vioc.control.regulators.sampled import RobustRegulator, draw_parameters, robust_dlqr
from vioc.control.stated import Problem
from vioc.maps.joining import join

__all__ = [
    "Armijo",
    "ClosedLoop",
    "Cost",
    "DerivativeCheck",
    "LinearMPC",
    "Measurement",
    "NonlinearMPC",
    "Problem",
    "Record",
    "Regulator",
    "Result",
    "RobustRegulator",
    "Status",
    "SteadyRegulator",
    "accessibility",
    "analysis",
    "base_parameters",
    "check_derivatives",
    "controllability",
    "controllability_gramian",
    "controllability_matrix",
    "controllability_rank",
    "design",
    "dlqr",
    "dmoc",
    "draw_parameters",
    "equilibrium",
    "feedback",
    "floquet",
    "frequency_response",
    "identify",
    "interop",
    "join",
    "kalman",
    "lyapunov_level",
    "modes",
    "observability",
    "observability_gramian",
    "observability_matrix",
    "observability_rank",
    "optimize",
    "pose",
    "pose_error",
    "project",
    "projection_gains",
    "quadratic",
    "region_of_attraction",
    "riccati",
    "robust_dlqr",
    "steer",
    "straight_line",
    "sweep",
    "target",
    "unstabilizable_modes",
]
