"""Optimal control of any one-step map: costs, regulators, trajectory optimization, analysis."""

from vioc.control.analysis import controllability_matrix, controllability_rank, unstabilizable_modes
from vioc.control.check import DerivativeCheck, check_derivatives
from vioc.control.costs import Cost
from vioc.control.descent import Armijo, optimize
from vioc.control.lqr import Regulator, SteadyRegulator, dlqr, dlqr_steady, riccati
from vioc.control.projection import project, projection_gains, straight_line
from vioc.control.quadratic import quadratic
from vioc.control.result import Result

__all__ = [
    "Armijo",
    "Cost",
    "DerivativeCheck",
    "Regulator",
    "Result",
    "SteadyRegulator",
    "check_derivatives",
    "controllability_matrix",
    "controllability_rank",
    "dlqr",
    "dlqr_steady",
    "optimize",
    "project",
    "projection_gains",
    "quadratic",
    "riccati",
    "straight_line",
    "unstabilizable_modes",
]
