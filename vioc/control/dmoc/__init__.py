"""Discrete mechanics and optimal control (DMOC).
Trajectories are optimized with the implicit equations of a map's steps as constraints of one nonlinear
program.

    best = dmoc.solve(f, cost, steps=200, initial=x0, final={"theta": 0.0}, bounds={"u.force": 20.0})
"""

from vioc.control.dmoc.phase import Phase
from vioc.control.dmoc.problem import Problem, minimum_time, solve
from vioc.control.dmoc.sensitivity import Sensitivity
from vioc.control.problem.limits import PathConstraint, Violation, obstacle
from vioc.control.problem.result import PhaseResult, Rollout

__all__ = [
    "PathConstraint",
    "Phase",
    "PhaseResult",
    "Problem",
    "Rollout",
    "Sensitivity",
    "Violation",
    "minimum_time",
    "obstacle",
    "solve",
]
