"""Homotopy over nonlinear programs with decreasing smoothing of contact.
It begins with a large smoothing and ends with the smoothing of the map.

Each program starts from the previous solution. See docs/maths/contact_implicit.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from vioc.control.dmoc.solvers import SolverOutcome
from vioc.control.problem.status import Status

FALL, STEEPEST, FLATTEST = 0.3, 1e-3, 0.9  # factor of the smoothing per solve: first, smallest, largest
EASY = 10  # iterations up to which a solve makes the factor smaller
FIRST, NARROWER, PATIENCE = 4, 0.1, 200  # first solves: most trials, factor between them, iterations of each
BUDGET = 300  # iterations of later solves
LOOSE = 1e-6  # tolerance of all solves but the last


class Stage(NamedTuple):
    """Record of one solve of the homotopy, at one smoothing of contact.

    Attributes
    ----------
    smoothing : float
        m^2/s^2
    status : Status
    iterations : int
    cost : float
    """

    smoothing: float
    status: Status
    iterations: int
    cost: float


Solve = Callable[[float, "tuple[SolverOutcome, float] | None", bool], tuple[SolverOutcome, float]]


def follow(
    solve: Solve, target: float, wide: float, max_iterations: int
) -> tuple[SolverOutcome, float, list[Stage]]:
    """Solve programs with decreasing smoothing of contact; return the last solution.
    The smoothing falls from `wide` to `target`, which is the smoothing of the map. The smoothing of the last
    solution and the records of all solves are returned, too.

    Parameters
    ----------
    solve : callable
        (smoothing, previous solution and its smoothing or None, True for the last solve) -> outcome, cost.
    target, wide : float
        Last and first smoothing.

    Notes
    -----
    If no solution is found at the first smoothing, smaller ones are tried, at which fewer contacts have
    forces at a distance. Each later solve multiplies the smoothing by a factor < 1. If a solve fails, the
    square root of its factor is tried from the last solution. If no factor up to `FLATTEST` succeeds, the
    last solution is returned with the status of the failed solve.
    """
    stages: list[Stage] = []
    level, fall, seconds = max(wide, target), FALL, 0.0
    best: SolverOutcome | None = None

    def attempt(level: float) -> SolverOutcome:
        nonlocal seconds
        outcome, cost = solve(level, None if best is None else (best, reached(stages)), level <= target)
        seconds += outcome.seconds
        stages.append(Stage(level, outcome.status, outcome.iterations, cost))
        return outcome

    outcome = attempt(level)
    while True:
        count = sum(s.iterations for s in stages)
        total = replace(outcome, iterations=count, seconds=seconds)
        if outcome.status is Status.CONVERGED:
            best = total
            if level <= target:
                return best, level, stages
            if outcome.iterations <= EASY:
                fall = max(fall**1.5, STEEPEST)
        else:
            fall = float(np.sqrt(fall))
        stopped = outcome.status in (Status.INTERRUPTED, Status.NOT_FINITE) or count >= max_iterations
        if best is None:
            if stopped or level <= target or len(stages) == FIRST:
                return total, level, stages
            level, fall = max(target, NARROWER * level), FALL
            outcome = attempt(level)
            continue
        least = reached(stages)
        if stopped or fall > FLATTEST:
            # the last solve may have converged, at a smoothing above the map's own
            status = Status.MAX_ITERATIONS if outcome.status is Status.CONVERGED else outcome.status
            return replace(best, status=status, iterations=count, seconds=seconds), least, stages
        level = max(target, least * fall)
        outcome = attempt(level)


def reached(stages: list[Stage]) -> float:
    """Return the smallest smoothing of contact at which a program was solved.
    Return inf if no nonlinear program of the homotopy was solved.
    """
    return min((s.smoothing for s in stages if s.status is Status.CONVERGED), default=float("inf"))
