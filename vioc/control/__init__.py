"""Optimal control of any one-step map.

This package has costs, regulators and trajectory optimization. `dmoc` transcribes problems with constraints,
`feedback` has equilibria, observers, closed loops and receding horizons, `analysis` has controllability,
observability, modes and regions of attraction.
"""

from vioc.control import analysis, dmoc, feedback
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
    verified_level,
    verified_tube,
)
from vioc.control.check import DerivativeCheck, check_derivatives
from vioc.control.control_problem import Problem
from vioc.control.costs.cost import Cost
from vioc.control.costs.quadratic import quadratic
from vioc.control.descent.line_search import Armijo
from vioc.control.descent.projection import project, projection_gains, straight_line
from vioc.control.feedback import (
    ClosedLoop,
    LinearMPC,
    Measurement,
    NonlinearMPC,
    equilibrium,
    kalman,
)
from vioc.control.kkt import Kkt, kkt
from vioc.control.optimizing import optimize
from vioc.control.problem.pose import pose, pose_error
from vioc.control.problem.result import Result
from vioc.control.problem.status import Status
from vioc.control.regulators.lqr import Regulator, SteadyRegulator, dlqr
from vioc.control.regulators.riccati import riccati
from vioc.control.regulators.sampled import RobustRegulator, draw_parameters, robust_dlqr
from vioc.maps.made.joining import join

__all__ = [
    "Armijo",
    "ClosedLoop",
    "Cost",
    "DerivativeCheck",
    "Kkt",
    "LinearMPC",
    "Measurement",
    "NonlinearMPC",
    "Problem",
    "Regulator",
    "Result",
    "RobustRegulator",
    "Status",
    "SteadyRegulator",
    "accessibility",
    "analysis",
    "check_derivatives",
    "controllability",
    "controllability_gramian",
    "controllability_matrix",
    "controllability_rank",
    "dlqr",
    "dmoc",
    "draw_parameters",
    "equilibrium",
    "feedback",
    "floquet",
    "frequency_response",
    "join",
    "kalman",
    "kkt",
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
    "unstabilizable_modes",
    "verified_level",
    "verified_tube",
]
