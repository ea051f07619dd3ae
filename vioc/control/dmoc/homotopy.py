"""Contact from afar to the map's own: a program solved at falling smoothings, each from the one before.

docs/maths/contact_implicit.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from vioc.control.dmoc.solvers import SolverOutcome
from vioc.control.problem.status import Status

WIDE = 1.0  # m^2/s^2, where a search begins: a body of weight m g hovers by WIDE/g
FALL, STEEPEST, FLATTEST = 0.3, 1e-3, 0.9  # of the smoothing from one solve to the next
EASY = 10  # iterations of a solve after which the next may fall further
FIRST, NARROWER, PATIENCE = 4, 0.1, 200  # first solves at most, from one to the next, iterations of each
BUDGET = 150  # of a solve behind them
LOOSE = 1e-6  # tolerance of solves that are not the last


class Stage(NamedTuple):
    """One solve.

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
    solve: Solve, own: float, wide: float, max_iterations: int
) -> tuple[SolverOutcome, float, list[Stage]]:
    """The last solution, its smoothing, and the solves on the way.

    Parameters
    ----------
    solve : callable
        (smoothing, the solution before and its smoothing or None, whether it is the last) -> what was
        found, its cost.
    own, wide : float
        Smoothing to end and to begin at.

    Notes
    -----
    Where the widest has no solution, narrower ones are tried: what is near is then not felt from all sides.
    A fall that does not succeed is tried again from the last solution with the root of its factor. Where no
    fall of `FLATTEST` does, the last solution is returned with the status of the one that failed.
    """
    stages: list[Stage] = []
    level, fall, seconds = max(wide, own), FALL, 0.0
    best: SolverOutcome | None = None

    def attempt(level: float) -> SolverOutcome:
        nonlocal seconds
        found, cost = solve(level, None if best is None else (best, reached(stages)), level <= own)
        seconds += found.seconds
        stages.append(Stage(level, found.status, found.iterations, cost))
        return found

    found = attempt(level)
    while True:
        count = sum(s.iterations for s in stages)
        done = replace(found, iterations=count, seconds=seconds)
        if found.status is Status.CONVERGED:
            best = done
            if level <= own:
                return best, level, stages
            if found.iterations <= EASY:
                fall = max(fall**1.5, STEEPEST)
        else:
            fall = float(np.sqrt(fall))
        stopped = found.status in (Status.INTERRUPTED, Status.NOT_FINITE) or count >= max_iterations
        if best is None:
            if stopped or level <= own or len(stages) == FIRST:
                return done, level, stages
            level, fall = max(own, NARROWER * level), FALL
            found = attempt(level)
            continue
        least = reached(stages)
        if stopped or fall > FLATTEST:
            # the last may have succeeded, short of the map's own
            status = Status.MAX_ITERATIONS if found.status is Status.CONVERGED else found.status
            return replace(best, status=status, iterations=count, seconds=seconds), least, stages
        level = max(own, least * fall)
        found = attempt(level)


def reached(stages: list[Stage]) -> float:
    """The least smoothing with a solution; infinite where there is none."""
    return min((s.smoothing for s in stages if s.status is Status.CONVERGED), default=float("inf"))
