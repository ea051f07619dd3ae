"""The barrier method of Hauser and Saccon: minimizers of g + eps beta_delta along eps -> 0.

docs/maths/constrained_descent.md, "Barrier".
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from vioc.control.constrained.levels import Level
from vioc.control.constrained.minimizations import Search, settled
from vioc.control.constrained.penalties import barrier_multiplier
from vioc.control.costs.cost import Cost
from vioc.control.descent.projection import project
from vioc.control.problem.result import Result
from vioc.control.problem.status import Status
from vioc.errors import OptimizationError, StepError, trying
from vioc.maps.trajectory import Trajectory

SHARE = 0.1  # of 1 + |g| that the barrier's first weight is worth
CENTRAL = 1e-6  # |Dg.zeta| at the end of a level, in units of eps w
TIGHTER = 0.1, 6  # factor of delta, and how often, while a level's minimizer is not interior
DELTA = 0.1  # at the first level, in units of the rows' scales


class Barrier(NamedTuple):
    """The barrier method.

    Attributes
    ----------
    accuracy : float
        The path ends where the barrier is worth `accuracy` (1 + |cost|): a bound of what the cost is above
        the optimum for convex problems, its order of magnitude for others.
    reduction : float
        Of eps from level to level.
    start : float, optional
        First eps; default a tenth of what the start costs.
    levels : int
    """

    accuracy: float = 1e-6
    reduction: float = 0.1
    start: float | None = None
    levels: int = 40

    def check(self) -> None:
        if not (self.accuracy > 0 and 0 < self.reduction < 1 and self.levels >= 1):
            raise ValueError(f"barrier: expected accuracy > 0, 0 < reduction < 1 and levels >= 1, got {self}")
        if self.start is not None and not self.start > 0:
            raise ValueError(f"barrier: expected start > 0, got {self.start}")


def follow(search: Search, method: Barrier, guess: Any, scale: float) -> None:
    """The path from a guess; `scale` is 1 + |g| there. Leaves `status` and the best iterate in `search`."""
    total = search.omega.sum()
    eps = method.start or SHARE * scale / total
    delta, before = DELTA, None  # the level before: (eps, Result)
    for level in range(method.levels):
        found, delta = _level(search, level, eps, delta, guess)
        inside = _excess(search, found) < 0
        if inside or level == 0:  # what was strictly feasible is better than what is not
            search.best, search.mu = found, _multipliers(search, found, eps, delta)
        if not settled(found, eps * total):  # what is left to gain is not beyond the level's own gap
            search.status = found.status
            return
        if not inside:
            search.status = Status.NOT_INTERIOR
            return
        cost = search.cost.value(found.trajectory)
        if eps * total <= method.accuracy * (1 + abs(cost)):
            search.status = Status.CONVERGED
            return
        # not beyond what was asked for: the last level is at the accuracy
        following = max(method.reduction * eps, 0.999 * method.accuracy * (1 + abs(cost)) / total)
        delta = min(delta, following / (2 * max(search.mu.max(), 1e-300)))
        cost_there = search.penalized.at(*_weights(search, following, delta))
        guess = _predicted(search, cost_there, before, (eps, found), following)
        before, eps = (eps, found), following
    search.status = Status.MAX_LEVELS


def _level(search: Search, level: int, eps: float, delta: float, guess: Any) -> tuple[Result, float]:
    """The minimizer at eps, with delta small enough for it to be interior if that helps."""
    factor, times = TIGHTER
    w = search.omega[search.omega > 0].min()
    for attempt in range(times + 1):
        found = search.minimize(*_weights(search, eps, delta), guess, CENTRAL * eps * w)
        run = found.trajectory
        excess, gap = _excess(search, found), eps * search.omega.sum()
        search.record(
            Level(
                level,
                "barrier",
                weight=eps,
                shift=delta,
                iterations=found.iterations,
                cost=search.cost.value(run),
                violation=excess,
                gap=gap,
                status=found.status,
            )
        )
        if -excess > delta or attempt == times or not settled(found, gap):
            break
        delta, guess = factor * min(delta, abs(excess) or delta), run
    return found, delta


def _weights(search: Search, eps: float, delta: float) -> tuple[np.ndarray, np.ndarray]:
    shape = search.omega.shape
    return np.full(shape, eps), np.full(shape, delta)


def _excess(search: Search, found: Result) -> float:
    return search.rows.excess(search.rows.residuals(found.trajectory))


def _multipliers(search: Search, found: Result, eps: float, delta: float) -> np.ndarray:
    h = search.rows.residuals(found.trajectory)
    return np.where(search.rows.present, barrier_multiplier(h, *_weights(search, eps, delta)), 0.0)


def _predicted(
    search: Search, cost: Cost, before: tuple[float, Result] | None, now: tuple[float, Result], eps: float
) -> Trajectory:
    """The path at eps, on the line through its last two points; the last one where that is no better."""
    run, gains = now[1].trajectory, now[1].gains
    if before is None:
        return run
    ratio = (eps - now[0]) / (now[0] - before[0])
    f, other = search.map, before[1].trajectory
    X = f.retract(run.x, -ratio * f.difference(run.x, other.x))
    U = run.u + ratio * (run.u - other.u)
    try:
        with trying():
            ahead = project(f, X, U, gains, run.x[0], k0=run.k0)
        return ahead if cost.value(ahead) < cost.value(run) else run
    except (StepError, OptimizationError):
        return run
