"""What a level minimizes, and how far from its minimum an iterate is.

A level is the barrier's weight mu, which holds limits, the regularization delta of rows and gaps, and
estimates of their multipliers; where the states are a trajectory, delta of the dynamics is 0. It judges by a
merit (IP 7) and by what an iterate leaves of the conditions of optimality (IP 4); see docs/maths/shooting.md.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from vioc.control.costs.cost import Foreseen
from vioc.control.shooting.stages import Blocks, Point, Stages

LARGEST = 100.0  # entry of the cost's gradient at the guess after scaling
FLAT = 1e-6  # gradient over Hessian from which on down that is what is scaled: of a cost at its minimum
LEVEL = 0.1  # first weight of the barrier
NEXT = 0.2, 1.5  # of the next level: least factor, power
STIFFER = 10.0, 1e-8  # factor by which the regularization of rows and gaps falls, and the least
CLOSING = 0.25  # share of what a level left of rows and gaps that the next one may leave
AHEAD = 0.01  # the least weight over what is left: nothing is gained by levels far ahead of the rows
INTERIOR = 1e-2  # of a range, or of a limit: how far inside slacks begin
FEASIBLE = 1e-6  # what may be left of equations where a point is called feasible


@dataclass
class Iterate:
    """Where the search stands: a point, slacks s of inequalities, multipliers.

    Attributes
    ----------
    p : (N+1, ndx)
        Costates of the dynamics.
    y : (rows,)
        Multipliers of the rows.
    s, low, high : (inequalities,)
        Slacks, and multipliers >= 0 of their lower and upper limits; 0 where there is none.
    foreseen : pair of arrays
        Multipliers of the cost's residuals, `Cost.foreseen`.
    """

    point: Point
    p: np.ndarray
    y: np.ndarray
    s: np.ndarray
    low: np.ndarray
    high: np.ndarray
    foreseen: Foreseen = (None, None)


@dataclass(frozen=True)
class Direction:
    """A step: of states, inputs, rows, slacks, multipliers of limits; p and y are those that it leads to."""

    dx: np.ndarray
    du: np.ndarray
    p: np.ndarray
    y: np.ndarray
    dh: np.ndarray
    s: np.ndarray
    low: np.ndarray
    high: np.ndarray


class Level:
    """The first level; `next` goes on.

    Parameters
    ----------
    stages : Stages
    tolerance : float
        Of the scaled conditions of optimality.
    soft : float
        delta of the first level.
    scale : float, optional
        c, of the cost; default from the gradient at the guess.

    Attributes
    ----------
    mu : float
        Weight of the barrier.
    estimate, costates : (rows,), (N+1, ndx)
        Estimates of the multipliers of rows and dynamics.
    equal, unequal : integers
        Which rows are equations, and which inequalities.
    lower, upper, has : (inequalities,), and a pair of these
        Limits of slacks, and which of them are finite.
    stuck : int
        Levels at the bottom in a row that have closed nothing.
    """

    def __init__(self, stages: Stages, tolerance: float, soft: float, scale: float | None = None):
        self.stages, self.tolerance, self.soft, self.mu = stages, tolerance, soft, LEVEL
        self.scale, self._scaled = scale or 1.0, scale is not None
        rows, n = stages.rows, stages.map.ndx
        finite = np.isfinite(rows.lower), np.isfinite(rows.upper)
        equal = finite[0] & (rows.lower == rows.upper)
        self.equal, self.unequal = np.flatnonzero(equal), np.flatnonzero((finite[0] | finite[1]) & ~equal)
        self.target = rows.lower[self.equal]
        self.lower, self.upper = rows.lower[self.unequal], rows.upper[self.unequal]
        self.has = finite[0][self.unequal], finite[1][self.unequal]
        self.gives = np.arange(n) < n - stages.rigid  # whose gaps are elastic
        self.estimate, self.costates = np.zeros(len(rows)), np.zeros((len(stages.lengths) + 1, n))
        self.left, self.stuck = np.inf, 0

    def inside(self, h: np.ndarray) -> np.ndarray:
        """The nearest slacks that are well inside of their limits."""
        low, high = self.lower, self.upper
        room = np.where(self.has[0] & self.has[1], INTERIOR * (high - low), np.inf)
        least = np.where(self.has[0], low + np.minimum(INTERIOR * np.maximum(1, np.abs(low)), room), -np.inf)
        most = np.where(self.has[1], high - np.minimum(INTERIOR * np.maximum(1, np.abs(high)), room), np.inf)
        return np.clip(h, least, most)

    def distances(self, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return s - self.lower, self.upper - s

    def multipliers(self, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of the lower and upper limits of slacks, by the barrier."""
        to_low, to_high = self.distances(s)
        return np.where(self.has[0], self.mu / to_low, 0.0), np.where(self.has[1], self.mu / to_high, 0.0)

    def remains(self, point: Point, s: np.ndarray) -> np.ndarray:
        """r: what rows leave (rows,), 0 where there is no limit."""
        r = np.zeros(len(point.rows))
        r[self.equal] = point.rows[self.equal] - self.target
        r[self.unequal] = point.rows[self.unequal] - s
        return r

    def open(self, point: Point, s: np.ndarray) -> float:
        """The most that gaps and rows leave."""
        return _largest(point.gaps, self.remains(point, s))

    def price(self, point: Point, s: np.ndarray) -> float:
        """Cost and barrier, without what (IP 7) has of rows and gaps."""
        total = self.scale * point.cost
        for has, distance in zip(self.has, self.distances(s), strict=True):
            total -= self.mu * float(np.log(distance[has]).sum())
        return total

    def merit(self, point: Point, s: np.ndarray) -> float:
        """(IP 7): cost, barrier, and the augmented Lagrangian of rows and gaps."""
        r = self.remains(point, s)
        total = self.price(point, s) + float(self.estimate @ r + 0.5 / self.soft * r @ r)
        return total + float(np.vdot(self.costates[1:] + 0.5 / self.soft * point.gaps, point.gaps))

    def merit_of_slacks(self, h: np.ndarray, s: np.ndarray) -> np.ndarray:
        """What s has in the merit, row by row, where the inequalities' values are h."""
        r = h - s
        total = self.estimate[self.unequal] * r + 0.5 / self.soft * r**2
        for has, distance in zip(self.has, self.distances(s), strict=True):
            total -= self.mu * np.where(has, np.log(np.where(has, distance, 1.0)), 0.0)
        return total

    def slope(self, it: Iterate, b: Blocks, d: Direction) -> float:
        """Derivative of the merit along a direction."""
        n, (to_low, to_high) = b.F.shape[1], self.distances(it.s)
        cost = np.vdot(b.g[:, :n], d.dx[:-1]) + np.vdot(b.g[:, n:], d.du) + b.g_end @ d.dx[-1]
        moved = d.dh.copy()
        moved[self.unequal] -= d.s
        rows = (self.estimate + self.remains(it.point, it.s) / self.soft) @ moved
        change = np.einsum("kij,kj->ki", b.F, np.concatenate([d.dx[:-1], d.du], axis=1)) - d.dx[1:]
        rows += np.vdot(self.costates[1:] + it.point.gaps / self.soft, change)
        return float(self.scale * cost + rows + self.mu * (d.s / to_high - d.s / to_low).sum())

    def elastic(self, it: Iterate) -> float:
        """delta of the dynamics: none where the states are a trajectory, which steps then follow."""
        return self.soft if it.point.gaps.any() else 0.0

    @property
    def softness(self) -> np.ndarray:
        """delta of each row: none of limits of constants of the motion, which slacks keep exactly."""
        return np.where(self.stages.rows.hard, 0.0, self.soft)

    def given_way(self, it: Iterate, p: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """By how much gaps, and rows, give way to multipliers; constants of the motion do not."""
        return self.elastic(it) * self.gives * (p - self.costates)[1:], self.softness * (y - self.estimate)

    def error(self, it: Iterate, b: Blocks, mu: float) -> float:
        """Of the conditions of optimality, or of those of a level where mu > 0; (IP 4)."""
        duals = [np.abs(d) for d in (it.p[1:], it.y, it.low, it.high)]
        limits = np.concatenate([it.low, it.high])
        of_duals = max(100.0, sum(d.sum() for d in duals) / max(sum(d.size for d in duals), 1)) / 100
        of_limits = max(100.0, limits.sum() / max(limits.size, 1)) / 100
        gaps, r = it.point.gaps, self.remains(it.point, it.s)
        if mu:
            of_gaps, of_rows = self.given_way(it, it.p, it.y)
            gaps, r = gaps - of_gaps, r - of_rows
        balance = it.y[self.unequal] - it.high + it.low
        parts = [self._stationarity(it, b) / of_duals, _largest(balance) / of_duals, _largest(gaps, r)]
        for has, distance, z in zip(self.has, self.distances(it.s), (it.low, it.high), strict=True):
            of_cost = 1.0 if mu else self.scale  # in the end the price of limits in the cost's own units
            parts.append(_largest(z[has] * distance[has] - mu) / of_limits / of_cost)
        return max(parts)

    def _stationarity(self, it: Iterate, b: Blocks) -> float:
        """Largest entry of the Lagrangian's gradient; of the first state along what is free."""
        n, (by_rows, by_end) = b.F.shape[1], b.pulled(it.y)
        r = self.scale * b.g + np.einsum("kij,ki->kj", b.F, it.p[1:]) + by_rows
        start = self.stages.start.T @ r[0, :n]
        r[:, :n] -= it.p[:-1]
        r[0, :n] = 0.0
        end = self.scale * b.g_end + by_end - it.p[-1]
        return _largest(r, start, end)

    def begin_scale(self, b: Blocks) -> None:
        """The cost's scale, unless it is given: a search from an optimum cannot tell it."""
        if self._scaled:
            return
        slope, bend = _largest(b.g, b.g_end), _largest(b.H, b.H_end)
        largest = slope if slope > FLAT * bend else bend
        self.scale = min(1.0, LARGEST / largest) if largest > 0 else 1.0

    def begin_near(self, it: Iterate, b: Blocks) -> None:
        """The level that fits multipliers of rows, with costates by the adjoint recursion: no more barrier
        than what they leave of the conditions. Slacks are where the rows are, inside of a limit by mu over
        its multiplier at least.
        """
        it.y *= self.scale
        (by_rows, by_end), n = b.pulled(it.y), b.F.shape[1]
        g, it.p[-1] = self.scale * b.g + by_rows, self.scale * b.g_end + by_end
        for k in range(len(g) - 1, -1, -1):
            it.p[k] = g[k, :n] + b.F[k, :, :n].T @ it.p[k + 1]
        self.estimate, self.costates = it.y.copy(), it.p.copy()
        y, h = it.y[self.unequal], it.point.rows[self.unequal]
        of_low, of_high = np.where(self.has[0], -y, 0.0).clip(0), np.where(self.has[1], y, 0.0).clip(0)
        there = replace(it, s=np.clip(h, self.lower, self.upper), low=of_low, high=of_high)
        self.mu = float(np.clip(self.error(there, b, 0.0), self._last_mu, LEVEL))
        inside = self.inside(h)
        with np.errstate(divide="ignore"):
            low = np.where(self.has[0], self.lower + self.mu / of_low, -np.inf)
            high = np.where(self.has[1], self.upper - self.mu / of_high, np.inf)
        # a range with both multipliers, or none where a limit is met: as without any knowledge
        it.s[:] = np.clip(h, np.minimum(low, inside), np.maximum(high, inside))
        it.low[:], it.high[:] = self.multipliers(it.s)

    @property
    def _last_mu(self) -> float:
        return self.tolerance * self.scale / 10

    def next(self, it: Iterate) -> bool:
        """Other estimates, less barrier, and stiffer rows and gaps where these do not close by the estimates
        alone; False where the barrier is held up, by the tolerance or by what is left.
        """
        (least, power), (stiffer, softest), before, mu = NEXT, STIFFER, self.left, self.mu
        self.estimate, self.costates = it.y.copy(), it.p.copy()
        self.left = self.open(it.point, it.s)
        self.mu = max(self._last_mu, min(least * mu, mu**power), min(mu, AHEAD * self.left))
        closing = self.left <= max(self.tolerance, CLOSING * before)
        if not closing and self.soft > softest:
            self.soft = max(self.soft / stiffer, softest)
        elif self.mu > least * mu:
            self.stuck = 0 if closing or self.left <= FEASIBLE else self.stuck + 1
            return False
        return True


def _largest(*arrays: np.ndarray) -> float:
    return max(float(np.abs(a).max(initial=0)) for a in arrays)
