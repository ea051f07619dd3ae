"""What both methods share: one penalized minimization after another, and what became of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vioc.control.constrained.levels import ConstrainedResult
from vioc.control.constrained.penalized import Penalized
from vioc.control.constrained.rows import Rows
from vioc.control.costs.cost import Cost
from vioc.control.descent.descend import descend
from vioc.control.problem.result import History, Log, Result
from vioc.control.problem.status import Status, verdict
from vioc.maps.protocol import OneStepMap
from vioc.maps.trajectory import Trajectory


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
    record: Log
    best: Result | None = None
    mu: np.ndarray = field(default_factory=lambda: np.empty(0))
    histories: list[History] = field(default_factory=list)
    status: Status | None = None

    def minimize(self, weight: np.ndarray, shift: np.ndarray, guess: Any, tolerance: float) -> Result:
        """The penalized problem from a guess: a trajectory, or what `optimize` takes."""
        found = descend(
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

    def result(self, method: str, tolerance: float, start: Trajectory | None) -> ConstrainedResult | None:
        """All that is known, named; None where there is no trajectory yet."""
        assert self.status is not None
        rows, best = self.rows, self.best
        run = start if best is None else best.trajectory
        if run is None:
            return None
        found = rows.violations(run, tolerance)
        h = rows.residuals(run)
        inequalities = h[rows.present & ~rows.equation]
        levels = self.record.records
        iterations = sum(level.iterations for level in levels)
        work = f"{iterations} iterations on {len(levels)} levels"
        cost = self.cost.value(run)
        mu = self.mu if self.mu.size else np.zeros_like(h)
        histories = self.histories or [History.of([])]
        N, f = len(run), self.map
        return ConstrainedResult(
            trajectory=run,
            cost=cost,
            status=self.status,
            message=verdict(self.status, work, cost, self.status.advice, found=found),
            iterations=iterations,
            history=History(*(np.concatenate(column) for column in zip(*histories, strict=True))),
            gains=np.zeros((N, f.nu, f.ndx)) if best is None else best.gains,
            open_loop_gap=0.0 if best is None else best.open_loop_gap,
            slope=np.nan if best is None else best.slope,
            multipliers=rows.by_name(mu, self.omega),
            margin=float(-inequalities.max()) if inequalities.size else np.inf,
            violations=found,
            method=method,
            path=tuple(levels),
        )


def settled(found: Result, least: float) -> bool:
    """Whether a minimization came to its end: converged, or nothing above `least` was left to gain."""
    return found.converged or (found.status == Status.LINE_SEARCH and -found.slope <= least)
