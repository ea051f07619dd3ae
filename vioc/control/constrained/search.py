"""What both methods share: one penalized minimization after another, and what became of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vioc.control.constrained.levels import LEVEL_HEADER, ConstrainedResult, Level, verdict
from vioc.control.constrained.penalized import Penalized
from vioc.control.constrained.rows import Rows
from vioc.control.costs.cost import Cost
from vioc.control.descent.optimize import optimize
from vioc.control.problem.result import History, Result
from vioc.maps.protocol import OneStepMap
from vioc.maps.trajectory import Trajectory
from vioc.progress import Progress


@dataclass
class Search:
    """The state of a constrained search: `best` is what would be returned now.

    Attributes
    ----------
    omega : (N+1, rows)
    best : Result or None
        Of a minimization; its `cost` is penalized.
    mu : (N+1, rows)
        Multipliers at `best`.
    """

    map: OneStepMap
    cost: Cost
    rows: Rows
    penalized: Penalized
    omega: np.ndarray
    max_iterations: int
    options: dict[str, Any]
    monitor: bool | Callable[[Level], Any] | None
    best: Result | None = None
    mu: np.ndarray = field(default_factory=lambda: np.empty(0))
    levels: list[Level] = field(default_factory=list)
    histories: list[History] = field(default_factory=list)
    status: str = ""
    progress: Progress = field(default_factory=lambda: Progress("optimize_constrained"))

    def minimize(self, weight: np.ndarray, shift: np.ndarray, guess: Any, tolerance: float) -> Result:
        """The penalized problem from a guess: a trajectory, or what `optimize` takes."""
        found = optimize(
            self.map,
            self.penalized.at(weight, shift),
            guess,
            tolerance=tolerance,
            max_iterations=self.max_iterations,
            raise_on_failure=False,
            **self.options,
        )
        self.histories.append(found.history)
        return found

    def record(self, level: Level) -> None:
        if self.monitor is True and not self.levels:
            print(LEVEL_HEADER)
        self.levels.append(level)
        self.progress.to(len(self.levels))
        if self.monitor is True:
            print(level)
        elif self.monitor:
            self.monitor(level)

    def result(self, method: str, tolerance: float, start: Trajectory | None) -> ConstrainedResult | None:
        """All that is known, named; None where there is no trajectory yet."""
        rows, best = self.rows, self.best
        run = start if best is None else best.trajectory
        if run is None:
            return None
        found = rows.violations(run, tolerance)
        h = rows.residuals(run)
        inequalities = h[rows.present & ~rows.equation]
        iterations = sum(level.iterations for level in self.levels)
        cost = self.cost.value(run)
        mu = self.mu if self.mu.size else np.zeros_like(h)
        histories = self.histories or [History.of([])]
        N, f = len(run), self.map
        return ConstrainedResult(
            trajectory=run,
            cost=cost,
            status=self.status,
            message=verdict(self.status, len(self.levels), iterations, cost, found),
            iterations=iterations,
            history=History(*(np.concatenate(column) for column in zip(*histories, strict=True))),
            gains=np.zeros((N, f.nu, f.ndx)) if best is None else best.gains,
            open_loop_gap=0.0 if best is None else best.open_loop_gap,
            slope=np.nan if best is None else best.slope,
            multipliers=rows.by_name(mu, self.omega),
            margin=float(-inequalities.max()) if inequalities.size else np.inf,
            violations=found,
            method=method,
            path=tuple(self.levels),
        )


def settled(found: Result, least: float) -> bool:
    """Whether a minimization came to its end: converged, or nothing above `least` was left to gain."""
    return found.converged or (found.status == "line_search" and -found.slope <= least)
