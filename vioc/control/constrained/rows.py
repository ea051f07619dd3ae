"""Limits as rows h <= 0 or h = 0 over the samples of a trajectory, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np

from vioc.checks import check_array
from vioc.compile.evaluate import Evaluator
from vioc.control.problem.limits import (
    Constraint,
    Violation,
    as_constraints,
    bound,
    check_distinct,
    end_condition,
    end_values,
    full_names,
)
from vioc.maps.protocol import OneStepMap
from vioc.maps.trajectory import Trajectory


@dataclass(frozen=True)
class Row:
    """One side of one scalar of a constraint: h = side (c - limit) / scale <= 0, or = 0 where side is 0.

    Attributes
    ----------
    name : str
        Of the scalar.
    group, entry : int
        Which constraint, and which entry of its expression.
    side : {1, -1, 0}
        Upper limit, lower limit, equation.
    limit, present : (N+1,)
        Finite everywhere, and at which samples it counts.
    scale : float
    """

    name: str
    group: int
    entry: int
    side: int
    limit: np.ndarray
    present: np.ndarray
    scale: float

    @property
    def sign(self) -> int:
        return self.side or 1


class Rows:
    """All rows of a problem over N steps.

    Parameters
    ----------
    f : OneStepMap
    steps : int
        N.
    bounds : dict, optional
        By the name of any quantity: (lower, upper) of numbers, arrays over time or None; b means [-b, b].
    constraints : sequence of Constraint
    final : (nx,) or dict, optional
        Of the last state: a value or (lower, upper) by name.

    Raises
    ------
    ValueError
        Unknown names, wrong shapes, lower > upper, no limit at all, conditions on the start.
    """

    def __init__(
        self,
        f: OneStepMap,
        steps: int,
        bounds: Mapping[str, Any] | None,
        constraints: Sequence[Constraint],
        final: Any,
    ):
        self.map, self.steps = f, steps
        self.constraints = _collected(f, steps, bounds, constraints, final)
        self.by_step = [c.by_step(f) for c in self.constraints]
        self.rows: list[Row] = []
        for i, c in enumerate(self.constraints):
            self._add(i, c)
        if not self.rows:
            raise ValueError("the limits are all on the initial state, which is given")
        self.symbols = [c.symbols() for c in self.constraints]
        self.data = [c.data(steps) for c in self.constraints]
        self._values = [
            Evaluator(ca.Function("c", [*f.symbols, s], [c.expression]))
            for c, s in zip(self.constraints, self.symbols, strict=True)
        ]
        self.present = np.column_stack([r.present for r in self.rows])
        self.equation = np.array([r.side == 0 for r in self.rows])

    def _add(self, group: int, c: Constraint) -> None:
        n, end, by_step = self.steps, c.where == "end", self.by_step[group]
        low, high = c.limits(self.map, n)
        samples = np.array([n]) if end else np.arange(len(low))
        counts = samples > 0 if not by_step else samples >= 0  # x_0 is given
        equal = low == high
        both = np.isfinite(low) & np.isfinite(high) & ~equal
        sizes = np.abs(np.where(np.isfinite(high), high, low))
        half = float(np.mean((high - low)[both])) / 2 if both.any() else 0.0
        scale = half or max(1.0, float(np.mean(sizes)))
        sides = (
            (1, high, np.isfinite(high) & ~equal),
            (-1, low, np.isfinite(low) & ~equal),
            (0, low, equal),
        )
        for side, limit, here in sides:
            if not (here & counts).any():
                continue
            whole, present = np.zeros(n + 1), np.zeros(n + 1, bool)
            whole[samples] = np.where(here, limit, 0.0)
            present[samples] = here & counts
            for entry, name in enumerate(c.row_names):
                self.rows.append(Row(name, group, entry, side, whole, present, scale))

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def equations(self) -> bool:
        return bool(self.equation.any())

    def weights(self, step_weights: np.ndarray) -> np.ndarray:
        """omega of every sample (N+1, rows), 0 where a row is absent."""
        path = np.append(step_weights, step_weights.mean())
        ends = np.array([self.constraints[r.group].where == "end" for r in self.rows])
        return np.where(ends, 1.0, path[:, None]) * self.present

    def values(self, run: Trajectory) -> list[np.ndarray]:
        """Each constraint's expression (N+1, m), NaN at k = N where it belongs to steps."""
        f, n = self.map, self.steps
        theta = run.map.theta
        zeros = np.zeros(f.nu), np.zeros(len(f.multiplier_names))
        found = []
        for function, by_step, data in zip(self._values, self.by_step, self.data, strict=True):
            dt = run.step_lengths[:, None]
            steps = function(run.x[:n], run.u, run.multipliers, theta, dt, data[:n])[0][..., 0]
            if by_step:
                last = np.full((1, steps.shape[1]), np.nan)
            else:
                last = function(run.x[n], *zeros, theta, np.zeros(1), data[n])[0].T
            found.append(np.concatenate([steps, last]))
        return found

    def residuals(self, run: Trajectory) -> np.ndarray:
        """h (N+1, rows); 0 where a row is absent."""
        values = self.values(run)
        h = np.column_stack([r.sign * (values[r.group][:, r.entry] - r.limit) / r.scale for r in self.rows])
        return np.where(self.present, h, 0.0)

    def excess(self, h: np.ndarray) -> float:
        """The largest violation, in units of the rows' scales; negative is the margin."""
        shown = np.where(self.equation, np.abs(h), h)[self.present]
        return float(shown.max()) if np.isfinite(shown).all() else np.inf

    def violations(self, run: Trajectory, tolerance: float) -> list[Violation]:
        """Samples with more than `tolerance` of the scale, the worst (by scale) first."""
        h, values = self.residuals(run), self.values(run)
        shown = np.where(self.present, np.where(self.equation, np.abs(h), h), 0.0)
        found = []
        for k, i in np.argwhere(~(shown <= tolerance)):
            r = self.rows[i]
            low = r.limit[k] if r.side < 1 else -np.inf
            high = r.limit[k] if r.side > -1 else np.inf
            value = values[r.group][k, r.entry]
            v = Violation(r.name, 0, int(k), float(run.t[k]), float(value), float(low), float(high))
            found.append((-shown[k, i] if np.isfinite(shown[k, i]) else -np.inf, v))
        return [v for _, v in sorted(found, key=lambda pair: pair[0])]

    def check_start(self, x0: np.ndarray, run: Trajectory, tolerance: float = 1e-9) -> None:
        """ValueError where the given initial state is outside of a path limit: no input can help."""
        values = self.values(run)
        for c, value, by_step in zip(self.constraints, values, self.by_step, strict=True):
            if by_step or c.where == "end":
                continue
            low, high = c.limits(self.map, self.steps)
            for name, v in zip(c.row_names, value[0], strict=True):
                if not low[0] - tolerance * (1 + abs(v)) <= v <= high[0] + tolerance * (1 + abs(v)):
                    raise ValueError(
                        f"x0: {name} = {v:.6g} is outside of its limits [{low[0]:.6g}, {high[0]:.6g}] at the "
                        f"start, where no input can change it; x0 = {x0}"
                    )

    # -- multipliers by name --------------------------------------------------------------------

    def by_name(self, mu: np.ndarray, omega: np.ndarray) -> dict[str, np.ndarray]:
        """omega mu / scale by name over a constraint's samples, >= 0 at an upper, <= 0 at a lower limit."""
        found: dict[str, np.ndarray] = {}
        for i, r in enumerate(self.rows):
            c, by_step = self.constraints[r.group], self.by_step[r.group]
            samples = [self.steps] if c.where == "end" else slice(0, self.steps + (not by_step))
            part = (r.sign * omega[:, i] * mu[:, i] / r.scale)[samples]
            found[r.name] = found.get(r.name, 0.0) + part
        return found

    def from_names(self, given: Mapping[str, Any], omega: np.ndarray) -> np.ndarray:
        """mu (N+1, rows) from `by_name`'s form; 0 for names that are not given."""
        mu = np.zeros((self.steps + 1, len(self)))
        for i, r in enumerate(self.rows):
            end = self.constraints[r.group].where == "end"
            known = given.get(r.name)
            if known is None and end:  # DMOC keeps an end's condition on a state with the state's bounds
                known = given.get(r.name.removeprefix("final "))
                known = None if known is None else np.atleast_1d(known)[-1:]
            if known is None:
                continue
            samples = [self.steps] if end else np.arange(self.steps + (not self.by_step[r.group]))
            nu = check_array(known, (len(samples),), f"multipliers of {r.name}")
            nu = np.clip(r.sign * nu, 0 if r.side else -np.inf, np.inf)
            with np.errstate(divide="ignore", invalid="ignore"):
                mu[samples, i] = np.where(r.present[samples], nu * r.scale / omega[samples, i], 0.0)
        return mu


def _collected(
    f: OneStepMap,
    steps: int,
    bounds: Mapping[str, Any] | None,
    constraints: Sequence[Constraint],
    final: Any,
) -> list[Constraint]:
    """Bounds, constraints and final conditions as constraints."""
    found = [bound(f, name, value, steps) for name, value in (full_names(f, bounds) or {}).items()]
    for c in as_constraints(constraints):
        if c.where == "start":
            raise ValueError(f"constraint {c.name}: the initial state is given; no condition at the start")
        c.check(f)
        found.append(c)
    found += [end_condition(f, n, v, "end") for n, v in end_values(f, final, "final").items()]
    check_distinct(found)
    if not found:
        raise ValueError("no constraint: give bounds, constraints or final, or use `optimize`")
    return found
