"""What a level minimizes, and how far from its minimum an iterate is.

A level is the barrier's weight mu, which holds limits, the regularization delta of rows and gaps, and
estimates of their multipliers; where the states are a trajectory, delta of the dynamics is 0. It judges by a
merit (IP 7) and by what an iterate leaves of the conditions of optimality (IP 4), and eliminates rows from
Newton's step on them (IP 6); see docs/maths/shooting.md. `compiled.py` runs the same arithmetic in C.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from vioc.control.costs.cost import Foreseen
from vioc.control.problem.sizes import power
from vioc.control.shooting.stages import Point, StageBlocks, Stages
from vioc.control.stages.linear_quadratic import costates

LARGEST = 100.0  # entry of the cost's gradient at the guess after scaling
CHEAP = 30.0  # times what inputs cost: the cost of whole motions
LEAST = 1e-6  # share of its unit that a cost is taken to be at least
SMALL = 1e-2  # gradient and Hessian of a cost at the end that is scaled up, to 1
FLAT = 1e-6  # gradient over Hessian from which on down that is what is scaled: of a cost at its minimum
LEVEL = 0.1  # first weight of the barrier
NEXT = 0.1, 1.7  # of the next level: least factor, power
EARLY = 0.3  # share of a step at which a slack or a multiplier of a limit has no room left, too early
RELENT = 0.3  # the share of what it was before it fell to which mu grows then
STIFFER = 10.0, 1e-8  # factor by which the regularization of rows and gaps falls, and the least
CLOSING, FAST = 0.25, 0.05  # shares of what a level left of rows and gaps: closing at all, and fast
AHEAD = 0.01  # the least weight over what is left: nothing is gained by levels far ahead of the rows
INTERIOR = 5e-2  # of a range, or of a limit: how far inside slacks begin
FEASIBLE = 1e-6  # what may be left of equations where a point is called feasible
BOUNDARY = 0.995  # share of the way to a limit that a step may take
SIGMA = 1e10  # how far multipliers of limits may be from the barrier's
OF_DUALS = 100.0  # mean multiplier from which on errors are counted in units of it
NONE, EQUATION, INEQUALITY = 0, 1, 2  # kinds of rows


@dataclass
class Iterate:
    """Where the search stands: a point, slacks s of rows, multipliers.

    Attributes
    ----------
    p : (N+1, ndx)
        Costates of the dynamics.
    y : (rows,)
        Multipliers of the rows.
    s, low, high : (rows,)
        Slacks, of an equation its target, and multipliers >= 0 of their lower and upper limits; 0 where there
        is none.
    foreseen : pair of arrays
        What the cost's residuals were foreseen to be, `Cost.foreseen`.
    """

    point: Point
    p: np.ndarray
    y: np.ndarray
    s: np.ndarray
    low: np.ndarray
    high: np.ndarray
    foreseen: Foreseen = (None, None)


class NewtonDirection(NamedTuple):
    """A step: of states, inputs, slacks, multipliers of limits; p and y are those that it leads to. `slope`
    is the merit's along it, `lengths` those at which slacks, and multipliers of limits, still are inside.
    """

    dx: np.ndarray
    du: np.ndarray
    p: np.ndarray
    y: np.ndarray
    s: np.ndarray
    low: np.ndarray
    high: np.ndarray
    slope: float
    lengths: tuple[float, float]


class Worth(NamedTuple):
    """Of a point with slacks: the merit (IP 7), cost and barrier without what it has of rows and gaps, and
    the most that rows and gaps leave.
    """

    merit: float
    price: float
    left: float


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
    kind : (rows,)
        `NONE` where there is no limit, `EQUATION` or `INEQUALITY`.
    lower, upper, has : (rows,), and a pair of these
        Limits of slacks, and which of them are finite; of inequalities.
    stuck : int
        Levels at the bottom in a row that have closed nothing.
    """

    def __init__(self, stages: Stages, tolerance: float, soft: float, scale: float | None = None):
        self.stages, self.tolerance, self.soft, self.mu = stages, tolerance, soft, LEVEL
        self.scale, self._scaled, self.share = scale or 1.0, scale is not None, 1.0
        self.unit = 1.0
        rows, n = stages.rows, stages.map.ndx
        finite = np.isfinite(rows.lower), np.isfinite(rows.upper)
        equal = finite[0] & (rows.lower == rows.upper)
        unequal = (finite[0] | finite[1]) & ~equal
        self.kind = np.where(equal, EQUATION, np.where(unequal, INEQUALITY, NONE)).astype(np.int8)
        self._equal, self._unequal, self._count = equal, unequal, int(unequal.sum())
        self._target = np.where(equal, rows.lower, 0.0)
        self.has = finite[0] & unequal, finite[1] & unequal
        self.lower, self.upper = (
            np.where(self.has[0], rows.lower, -np.inf),
            np.where(self.has[1], rows.upper, np.inf),
        )
        self.gives = np.arange(n) < n - stages.rigid  # whose gaps are elastic
        self.estimate, self.costates = np.zeros(len(rows)), np.zeros((len(stages.lengths) + 1, n))
        self.left, self.stuck, self._fell_from = np.inf, 0, 0.0

    # -- slacks ---------------------------------------------------------------------------------

    def inside(self, h: np.ndarray) -> np.ndarray:
        """The nearest slacks that are well inside of their limits."""
        low, high = self.lower, self.upper
        with np.errstate(invalid="ignore"):
            room = np.where(self.has[0] & self.has[1], INTERIOR * (high - low), np.inf)
            least = low + np.minimum(INTERIOR * np.maximum(1, np.abs(low)), room)
            most = high - np.minimum(INTERIOR * np.maximum(1, np.abs(high)), room)
        s = np.clip(h, np.where(self.has[0], least, -np.inf), np.where(self.has[1], most, np.inf))
        return np.where(self._unequal, s, self._target)

    def multipliers(self, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Of the lower and upper limits of slacks, by the barrier; 0 where there is none."""
        return self.mu / (s - self.lower), self.mu / (self.upper - s)

    def remains(self, point: Point, s: np.ndarray) -> np.ndarray:
        """r: what rows leave (rows,), 0 where there is no limit."""
        return np.where(self.kind, point.rows - s, 0.0)

    @property
    def keep(self) -> float:
        """Share of the distance to a limit that a step leaves at least."""
        return 1 - max(BOUNDARY, 1 - self.mu)

    # -- merit ----------------------------------------------------------------------------------

    def worth(self, point: Point, s: np.ndarray) -> Worth:
        """What a level makes of a point and slacks."""
        r, gaps, half = self.remains(point, s), point.gaps, 0.5 / self.soft
        price = self.scale * point.cost
        for has, distance in zip(self.has, (s - self.lower, self.upper - s), strict=True):
            price -= self.mu * float(np.log(distance[has]).sum())
        merit = price + float(self.estimate @ r + half * r @ r)
        merit += float(np.vdot(self.costates[1:] + half * gaps, gaps))
        return Worth(merit, price, _largest(gaps, r))

    def judged(self, it: Iterate, point: Point, s: np.ndarray) -> tuple[np.ndarray, Worth]:
        """Slacks of a trial, and what it is worth; row by row they are as stepped, `s`, or as the rows are
        there, whichever the merit prefers.
        """
        if self._count:
            keep, h = self.keep, point.rows
            low, high = self.lower, self.upper
            low = np.where(self.has[0], low, 0.0) + np.where(self.has[0], keep * (it.s - low), -np.inf)
            high = np.where(self.has[1], high, 0.0) - np.where(self.has[1], keep * (high - it.s), -np.inf)
            there = np.clip(h, low, high)
            better = self._unequal & (self._of_slacks(h, there) < self._of_slacks(h, s))
            s = np.where(better, there, s)
        return s, self.worth(point, s)

    def _of_slacks(self, h: np.ndarray, s: np.ndarray) -> np.ndarray:
        """What s has in the merit, row by row, where the inequalities' values are h."""
        r = h - s
        total = self.estimate * r + 0.5 / self.soft * r**2
        for has, distance in zip(self.has, (s - self.lower, self.upper - s), strict=True):
            total -= self.mu * np.log(np.where(has, distance, 1.0))
        return total

    # -- Newton's step --------------------------------------------------------------------------

    def elastic(self, it: Iterate) -> float:
        """delta of the dynamics: none where the states are a trajectory, which steps then follow."""
        return self.soft if it.point.open else 0.0

    @property
    def softness(self) -> np.ndarray:
        """delta of each row: none of limits of constants of the motion, which slacks keep exactly."""
        return np.where(self.stages.rows.hard, 0.0, self.soft)

    def given_way(self, it: Iterate, p: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """By how much gaps, and rows, give way to multipliers; constants of the motion do not."""
        return self.elastic(it) * self.gives * (p - self.costates)[1:], self.softness * (y - self.estimate)

    def weights(self, it: Iterate) -> np.ndarray:
        """omega (rows,) of (IP 6), 0 where there is no limit."""
        sigma = it.low / (it.s - self.lower) + it.high / (self.upper - it.s)
        return np.where(self._equal, 1 / self.soft, sigma / (1 + self.softness * sigma))

    def weighed(
        self, it: Iterate, b: StageBlocks, of_states: float, of_inputs: float, of_start: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """M (N, q, q) and that of the end: the scaled Hessian, shifted on its diagonal, of the first state by
        `of_start` (n,) more, and what rows add to it (IP 6).
        """
        (N, m, q), n, weight = b.J.shape, b.F.shape[1], self.weights(it)
        M, last = self.scale * b.H, self.scale * b.H_end
        if of_states or of_inputs:
            M[:, range(q), range(q)] += self.scale * np.repeat([of_states, of_inputs], [n, q - n])
            last[range(n), range(n)] += self.scale * of_states
        M[0, range(n), range(n)] += self.scale * of_start
        if m:
            M += np.swapaxes(b.J, 1, 2) @ (weight[: N * m].reshape(N, m, 1) * b.J)
        if len(b.J_end):
            last += b.J_end.T @ (weight[N * m :, None] * b.J_end)
        return M, last

    def linear(
        self, it: Iterate, b: StageBlocks, gaps: np.ndarray, r: np.ndarray, bent: tuple | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """v of (IP 6), and the linear terms (N, q) and (ndx,) and gaps of the linear-quadratic problem."""
        sigma = it.low / (it.s - self.lower) + it.high / (self.upper - it.s)
        push, soft = self._push(it), self.softness
        v = (push + sigma * (r + soft * self.estimate)) / (1 + soft * sigma)
        v = np.where(self._equal, self.estimate + r / self.soft, v)
        g, end = (b.g, b.g_end) if bent is None else (b.g + bent[0], b.g_end + bent[1])
        by_rows, by_end = b.pulled(v)
        c = gaps + self.elastic(it) * self.gives * self.costates[1:]
        return v, self.scale * g + by_rows, self.scale * end + by_end, c

    def _push(self, it: Iterate) -> np.ndarray:
        return self.mu / (self.upper - it.s) - self.mu / (it.s - self.lower)

    def direction(
        self,
        it: Iterate,
        b: StageBlocks,
        r: np.ndarray,
        v: np.ndarray,
        solved: tuple[np.ndarray, np.ndarray, np.ndarray],
    ) -> NewtonDirection:
        """The whole step from what the linear-quadratic problem gives: dx, du and costates."""
        dx, du, p = solved
        dz = np.concatenate([dx[:-1], du], axis=1)
        dh = np.concatenate([(b.J @ dz[:, :, None]).ravel(), b.J_end @ dx[-1]])
        y, (to_low, to_high), (has_low, has_high) = (
            v + self.weights(it) * dh,
            (it.s - self.lower, self.upper - it.s),
            self.has,
        )
        sigma = it.low / to_low + it.high / to_high
        # of active limits ds is a small difference of large terms; by the balance of multipliers it is not
        stiff = self.softness * sigma > 1
        ds = np.where(
            stiff,
            (y - self._push(it)) / np.where(stiff, sigma, 1.0),
            r + dh - self.softness * (y - self.estimate),
        )
        ds = np.where(self._unequal, ds, 0.0)
        low = np.where(has_low, self.mu / to_low - it.low - it.low / to_low * ds, 0.0)
        high = np.where(has_high, self.mu / to_high - it.high + it.high / to_high * ds, 0.0)
        # of the nearer limit by the balance of the slack: the other way its digits are lost in s - l
        up = has_high & ((y >= 0) | ~has_low)
        high = np.where(up, y + it.low + low - it.high, high)
        low = np.where(has_low & ~up, it.high + high - y - it.low, low)
        slope = self._slope(it, b, dx, dz, np.where(self.kind, dh - ds, 0.0), ds)
        inside = min(self._most(to_low, ds), self._most(to_high, -ds))
        lengths = inside, min(self._most(it.low, low), self._most(it.high, high))
        return NewtonDirection(dx, du, p, y, ds, low, high, slope, lengths)

    def _slope(
        self, it: Iterate, b: StageBlocks, dx: np.ndarray, dz: np.ndarray, moved: np.ndarray, ds: np.ndarray
    ) -> float:
        cost = np.vdot(b.g, dz) + b.g_end @ dx[-1]
        rows = (self.estimate + self.remains(it.point, it.s) / self.soft) @ moved
        change = (b.F @ dz[:, :, None])[..., 0] - dx[1:]
        rows += np.vdot(self.costates[1:] + it.point.gaps / self.soft, change)
        return float(self.scale * cost + rows + self._push(it) @ ds)

    def moved(
        self,
        it: Iterate,
        d: NewtonDirection,
        point: Point,
        s: np.ndarray,
        length: float,
        of_multipliers: float,
    ) -> Iterate:
        """The iterate at a point with slacks s, a part `length` of a step on, of the multipliers of limits
        `of_multipliers`.
        """
        p, y = it.p + length * (d.p - it.p), it.y + length * (d.y - it.y)
        of_low, of_high = self.multipliers(s)
        low = np.clip(it.low + of_multipliers * d.low, of_low / SIGMA, of_low * SIGMA)
        high = np.clip(it.high + of_multipliers * d.high, of_high / SIGMA, of_high * SIGMA)
        return Iterate(point, p, y, s, low, high)

    def _most(self, value: np.ndarray, step: np.ndarray) -> float:
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(step < 0, -(1 - self.keep) * value / step, np.inf)
        return min(1.0, float(share.min(initial=1.0)))

    # -- conditions of optimality ---------------------------------------------------------------

    def errors(self, it: Iterate, b: StageBlocks) -> tuple[float, float]:
        """Of the conditions of optimality, and of those of this level; (IP 4)."""
        stationarity = self._stationarity(it, b)
        self.weigh(it)
        return self._error(it, stationarity, 0.0), self._error(it, stationarity, self.mu)

    def weigh(self, it: Iterate) -> None:
        """Take what limits may cost in the end as a share of the cost of an iterate, or of its unit."""
        cost = abs(it.point.cost) / self.unit
        self.share = min(1.0, self.scale * self.unit) * min(1.0, max(LEAST, cost))

    def _error(self, it: Iterate, stationarity: float, mu: float) -> float:
        limits = float(it.low.sum() + it.high.sum())
        duals = limits + float(np.abs(it.p[1:]).sum() + np.abs(it.y).sum())
        count = it.p[1:].size + it.y.size + 2 * self._count
        of_duals = max(1.0, duals / max(count, 1) / OF_DUALS)
        of_limits = max(1.0, limits / max(2 * self._count, 1) / OF_DUALS)
        gaps, r = it.point.gaps, self.remains(it.point, it.s)
        if mu:
            of_gaps, of_rows = self.given_way(it, it.p, it.y)
            gaps, r = gaps - of_gaps, r - of_rows
        balance = np.where(self._unequal, it.y - it.high + it.low, 0.0)
        parts = [stationarity / of_duals, _largest(balance) / of_duals, _largest(gaps, r)]
        distances = it.s - self.lower, self.upper - it.s
        for has, distance, z in zip(self.has, distances, (it.low, it.high), strict=True):
            of_cost = 1.0 if mu else self.share  # in the end what limits cost, as a share of the cost
            parts.append(_largest(z[has] * distance[has] - mu) / of_limits / of_cost)
        return max(parts)

    def _stationarity(self, it: Iterate, b: StageBlocks) -> float:
        """Largest entry of the Lagrangian's gradient; of the first state along what is free."""
        n, (by_rows, by_end) = b.F.shape[1], b.pulled(it.y)
        r = self.scale * b.g + np.einsum("kij,ki->kj", b.F, it.p[1:]) + by_rows
        start = self.stages.start.T @ r[0, :n]
        r[:, :n] -= it.p[:-1]
        r[0, :n] = 0.0
        end = self.scale * b.g_end + by_end - it.p[-1]
        return _largest(r, start, end)

    # -- from level to level --------------------------------------------------------------------

    def begin_scale(self, it: Iterate, b: StageBlocks) -> None:
        """The unit of the cost, by what inputs of typical size cost and the guess up to its end, and the
        cost's scale, unless it is given: a search from an optimum cannot tell it.
        """
        n = b.F.shape[1]
        of_inputs = 0.5 * float(np.abs(np.einsum("kii->ki", b.H[:, n:, n:])).sum())
        slope, bend = _largest(b.g, b.g_end), _largest(b.H, b.H_end)
        curve, cost = it.point.curve, self.stages.cost
        last = cost.end(curve.x[-1], curve.map.theta, cost.reference_rows(len(curve))[-1])[0]
        self.unit = power(max(CHEAP * of_inputs, abs(it.point.cost - last)) or max(slope, bend))
        if self._scaled:
            self.unit = min(self.unit, 1 / self.scale)  # as that of the search whose scale it is, at most
            return
        largest = slope if slope > FLAT * bend else bend
        self.scale = min(1 / self.unit, LARGEST / largest) if largest > 0 else 1 / self.unit

    def scaled_up(self, it: Iterate, b: StageBlocks) -> Iterate | None:
        """Where a search goes on from its end where the cost is small: any feasible curve is such an end."""
        size = max(_largest(b.g, b.g_end), _largest(b.H, b.H_end))
        if not 0 < self.scale * size < SMALL:
            return None
        it, self.scale = replace(it, y=it.y / self.scale), 1 / size
        return self.begin_near(it, b)

    def begin_near(self, it: Iterate, b: StageBlocks) -> Iterate:
        """Where a search begins whose multipliers of rows are known, on the level that fits them, with
        costates by the adjoint recursion: no more barrier than what they leave of the conditions. Slacks
        are where the rows are, inside of a limit by mu over its multiplier at least.
        """
        y = it.y * self.scale
        by_rows, by_end = b.pulled(y)
        p = costates(b.F, self.scale * b.g + by_rows, self.scale * b.g_end + by_end)[0]
        self.estimate[:], self.costates[:], h = y, p, it.point.rows
        of_low, of_high = np.where(self.has[0], -y, 0.0).clip(0), np.where(self.has[1], y, 0.0).clip(0)
        at = np.where(self._unequal, np.clip(h, self.lower, self.upper), self._target)
        there = replace(it, p=p, y=y, s=at, low=of_low, high=of_high)
        self.mu = float(np.clip(self.errors(there, b)[0], self._last_mu, LEVEL))
        inside = self.inside(h)
        with np.errstate(divide="ignore", invalid="ignore"):
            low, high = self.lower + self.mu / of_low, self.upper - self.mu / of_high
        low, high = np.where(self.has[0], low, -np.inf), np.where(self.has[1], high, np.inf)
        # a range with both multipliers, or none where a limit is met: as without any knowledge
        s = np.clip(h, np.minimum(low, inside), np.maximum(high, inside))
        s = np.where(self._unequal, s, self._target)
        of_low, of_high = self.multipliers(s)
        return replace(there, s=s, low=of_low, high=of_high)

    def relents(self, d: NewtonDirection) -> bool:
        """Whether mu takes back a part of its fall, as the first step of a level, d, meets limits early."""
        most, self._fell_from = RELENT * self._fell_from, 0.0
        relents = self.mu < most and min(d.lengths) < EARLY
        self.mu = most if relents else self.mu
        return relents

    @property
    def _last_mu(self) -> float:
        return self.tolerance * self.share / 10

    def next(self, it: Iterate) -> bool:
        """Other estimates, less barrier, and stiffer rows and gaps where these do not close by the estimates
        alone; False where the barrier is held up, by the tolerance or by what is left.
        """
        (least, power), (stiffer, softest), before, mu = NEXT, STIFFER, self.left, self.mu
        self.estimate[:], self.costates[:] = it.y, it.p
        self.left = self.worth(it.point, it.s).left
        self.mu = max(self._last_mu, min(least * mu, mu**power), min(mu, AHEAD * self.left))
        self._fell_from = mu
        closing, fast = (self.left <= max(self.tolerance, share * before) for share in (CLOSING, FAST))
        if not fast and self.soft > softest:
            self.soft = max(self.soft / stiffer, softest)
        elif self.mu > least * mu:
            self.stuck = 0 if closing or self.left <= FEASIBLE else self.stuck + 1
            return False
        return True


def _largest(*arrays: np.ndarray) -> float:
    return max(float(np.abs(a).max(initial=0)) for a in arrays)
