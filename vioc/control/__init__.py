"""Optimal control of any one-step map x_k+1 = f(x_k, u_k).
The package has costs, regulators and trajectory optimization. Its subpackage `dmoc` transcribes problems to
nonlinear programs, `feedback` has equilibria, observers, closed loops and predictive controllers, and
`analysis` has controllability, observability, modes and regions of attraction.
"""

from typing import TYPE_CHECKING

from vioc.lazy import importer

if TYPE_CHECKING:
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
    from vioc.control.optimality import Kkt, kkt
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

HOMES = {  # module of each public name; it is imported when the name is first used
    "vioc.control.analysis": (
        "accessibility controllability controllability_gramian controllability_matrix "
        "controllability_rank floquet frequency_response lyapunov_level modes observability "
        "observability_gramian observability_matrix observability_rank region_of_attraction steer "
        "unstabilizable_modes verified_level verified_tube"
    ),
    "vioc.control.check": "DerivativeCheck check_derivatives",
    "vioc.control.control_problem": "Problem",
    "vioc.control.costs.cost": "Cost",
    "vioc.control.costs.quadratic": "quadratic",
    "vioc.control.descent.line_search": "Armijo",
    "vioc.control.descent.projection": "project projection_gains straight_line",
    "vioc.control.feedback": "ClosedLoop LinearMPC Measurement NonlinearMPC equilibrium kalman",
    "vioc.control.optimality": "Kkt kkt",
    "vioc.control.optimizing": "optimize",
    "vioc.control.problem.pose": "pose pose_error",
    "vioc.control.problem.result": "Result",
    "vioc.control.problem.status": "Status",
    "vioc.control.regulators.lqr": "Regulator SteadyRegulator dlqr",
    "vioc.control.regulators.riccati": "riccati",
    "vioc.control.regulators.sampled": "RobustRegulator draw_parameters robust_dlqr",
    "vioc.maps.made.joining": "join",
}


def __dir__() -> list[str]:
    return [*__all__, *(name for name in globals() if name.startswith("__"))]


__getattr__ = importer("vioc.control", HOMES, ("analysis", "dmoc", "feedback"))
