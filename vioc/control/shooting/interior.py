"""A primal-dual interior point of an augmented Lagrangian, on stages.

Unknowns are the states and inputs of all stages (of the first state what is free), and a slack s for every
inequality:

    minimize  g(X, U)  subject to  x_k+1 = f(x_k, u_k),  h_E = a_E,  h_I - s = 0,  a <= s <= b.

A level is the barrier's weight mu, which holds limits, the regularization delta of rows and gaps, and
estimates of their multipliers; where the states are a trajectory, delta of the dynamics is 0. Every Newton
step on the level's conditions of optimality is one linear-quadratic problem of the stages (`lq`): slacks and
multipliers of rows are eliminated row by row, and since the equations of rows are regularized, redundant ones
may stand. Trials follow the curve as trajectories, or keep its gaps; merit and filter judge them. See
docs/maths/shooting.md, whose equations have numbers (IP).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from vioc.control.costs.cost import Foreseen
from vioc.control.problem.result import Log, Record
from vioc.control.problem.status import Status
from vioc.control.shooting.lq import StageQuadratic
from vioc.control.shooting.stages import Blocks, Point, Stages
from vioc.errors import OptimizationError, StepError

LARGEST = 100.0  # entry of the cost's gradient at the guess after scaling
FLAT = 1e-6  # gradient over Hessian from which on down that is what is scaled: of a cost at its minimum
LEVEL = 0.1  # first weight of the barrier
NEXT = 0.2, 1.5  # of the next level: least factor, power
SOLVED = 10.0  # error over the level's weight at which it is solved
SOFTNESS = 1e-4, 1e-2, 1e-6  # first regularizations of rows and gaps: the usual one, and what else to try
STIFFER = 10.0, 1e-8  # factor by which it falls, and the least
CLOSING = 0.25  # share of what a level left of rows and gaps that the next one may leave
AHEAD = 0.01  # the least weight over what is left: nothing is gained by levels far ahead of the rows
BOUNDARY = 0.99  # share of the way to a limit that a step may take
INTERIOR = 1e-2  # of a range, or of a limit: how far inside slacks begin
SIGMA = 1e10  # how far multipliers of limits may be from the barrier's
SHIFT = 1e-4, 8.0, 1e12  # of Gauss-Newton's Hessian where it has no minimum: first, growth, most
CURVED = 1e-4, 4.0, 1e6  # shift of the exact Hessian, in units of the scaled cost: least, factor, most
FALLING = 0.25  # share of the merit by which Gauss-Newton's steps lower it while they are the better ones
SHORT = 5  # trials behind which inputs are damped more; less after one or two
DAMPING = 1.0, 10.0, 1e8  # of inputs, over their mean weight: first, factor, most
TRIALS = 25
HARD = 3  # trials without any steps behind which these are worth all means: so near there are some
MARGIN = 1e-5  # share of what is left by which a trial that leaves more must cost less
WIDEST = 0.1  # as much as such a trial may leave, in units of states, and of the rows' scales
FAITHFUL = 2.0  # of a step: how far a trajectory may be from the curve that it follows
AGAIN = 4  # iterations after which a trajectory is tried again where it did not do
FEASIBLE = 1e-6  # what may be left of equations where a point is called feasible
FLOOR, ROUNDED = 10.0, 1e-5  # roundings of the merit that cannot be told from none; the error then taken
HOPELESS = 3  # last levels that leave more, and close nothing
SUFFICIENT = 1e-4  # share of the promised decrease that a step must reach


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


class Interior:
    """The search from a curve; at any moment `now` is where it stands.

    Parameters
    ----------
    stages : Stages
    X, U : (N+1, nx), (N, nu)
        The guess; X[0] stays but along the free directions of the start.
    tolerance : float
        Of the scaled conditions of optimality.
    duals : (rows,), optional
        Estimates of the rows' multipliers.
    soft : float
        delta of the first level. A search that ends nowhere may end well with another one: `SOFTNESS`.
    scale : float, optional
        The cost's scale, of the search that `duals` are from; default from the gradient at the guess.

    Raises
    ------
    OptimizationError
        Where the guess has no steps or no finite cost.
    """

    def __init__(
        self,
        stages: Stages,
        X: np.ndarray,
        U: np.ndarray,
        tolerance: float,
        duals: np.ndarray | None = None,
        soft: float = SOFTNESS[0],
        scale: float | None = None,
    ):
        self.stages, self.tolerance = stages, tolerance
        rows, f = stages.rows, stages.map
        equal = np.isfinite(rows.lower) & (rows.lower == rows.upper)
        self.equal = np.flatnonzero(equal)
        self.unequal = np.flatnonzero((np.isfinite(rows.lower) | np.isfinite(rows.upper)) & ~equal)
        self.target = rows.lower[self.equal]
        self.lower, self.upper = rows.lower[self.unequal], rows.upper[self.unequal]
        self.has = np.isfinite(self.lower), np.isfinite(self.upper)
        native = f.backend.name != "virtual"
        self.lq = StageQuadratic(len(U), f.ndx, f.nu, stages.start, native, stages.rigid)
        self.gives = np.arange(f.ndx) < f.ndx - stages.rigid  # whose gaps are elastic
        point = stages.at(X, U, hard=True)
        if point is None:
            raise OptimizationError(f"the guess has no steps: {stages.trouble}")
        self.mu, self.scale, self.soft = LEVEL, scale or 1.0, soft
        self.scaled = scale is not None
        s = self._inside(point.rows[self.unequal])
        low, high = (
            np.where(has, self.mu / distance, 0.0)
            for has, distance in zip(self.has, self._distances(s), strict=True)
        )
        self.warm = duals is not None
        y = np.zeros(len(rows)) if duals is None else duals.copy()
        self.now = Iterate(point, np.zeros((len(U) + 1, f.ndx)), y, s, low, high)
        self.estimate = y.copy()
        self.costates = self.now.p.copy()
        self.damping, self.promise = 0.0, np.nan
        self.pause = self.wait = 1
        self.falling = self.exact = False
        self.filter: list[tuple[float, float]] = []
        self.shift = 0.0
        self.unseen = 0  # full steps in a row whose promise is below rounding
        self.strayed = 0  # iterations in a row whose step was no trajectory
        self.status: Status | None = None
        self.note = ""
        self.stuck = 0  # levels at the bottom that have closed nothing
        self.left = np.inf
        self.error = np.inf
        self.gains = np.zeros((len(U), f.nu, f.ndx))

    # -- rows -----------------------------------------------------------------------------------

    def _inside(self, h: np.ndarray) -> np.ndarray:
        """The nearest slacks that are well inside of their limits."""
        low, high = self.lower, self.upper
        room = np.where(self.has[0] & self.has[1], INTERIOR * (high - low), np.inf)
        least = np.where(self.has[0], low + np.minimum(INTERIOR * np.maximum(1, np.abs(low)), room), -np.inf)
        most = np.where(self.has[1], high - np.minimum(INTERIOR * np.maximum(1, np.abs(high)), room), np.inf)
        return np.clip(h, least, most)

    def _distances(self, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return s - self.lower, self.upper - s

    def _left(self, point: Point, s: np.ndarray) -> np.ndarray:
        """r: what rows leave (rows,), 0 where there is no limit."""
        r = np.zeros(len(point.rows))
        r[self.equal] = point.rows[self.equal] - self.target
        r[self.unequal] = point.rows[self.unequal] - s
        return r

    def _price(self, point: Point, s: np.ndarray) -> float:
        """Cost and barrier, without what (IP 7) has of rows and gaps."""
        total = self.scale * point.cost
        for has, distance in zip(self.has, self._distances(s), strict=True):
            total -= self.mu * float(np.log(distance[has]).sum())
        return total

    def _open(self, point: Point, s: np.ndarray) -> float:
        """The most that gaps and rows leave."""
        parts = point.gaps, self._left(point, s)
        return max(float(np.abs(c).max(initial=0)) for c in parts)

    def _merit(self, point: Point, s: np.ndarray) -> float:
        """(IP 7): cost, barrier, and the augmented Lagrangian of rows and gaps."""
        r = self._left(point, s)
        total = self._price(point, s) + float(self.estimate @ r + 0.5 / self.soft * r @ r)
        return total + float(np.vdot(self.costates[1:] + 0.5 / self.soft * point.gaps, point.gaps))

    # -- errors ---------------------------------------------------------------------------------

    def _stationarity(self, it: Iterate, b: Blocks) -> float:
        """Largest entry of the Lagrangian's gradient; of the first state along what is free."""
        N, n = len(b.F), b.F.shape[1]
        at_steps, at_end = it.y[: N * b.J.shape[1]].reshape(N, -1), it.y[N * b.J.shape[1] :]
        r = self.scale * b.g + np.einsum("kij,ki->kj", b.F, it.p[1:])
        if b.J.shape[1]:
            r += np.einsum("kmq,km->kq", b.J, at_steps)
        start = self.stages.start.T @ r[0, :n]
        r[:, :n] -= it.p[:-1]
        r[0, :n] = 0.0
        end = self.scale * b.g_end + b.J_end.T @ at_end - it.p[-1]
        return max(float(np.abs(part).max(initial=0)) for part in (r, start, end))

    def _error(self, it: Iterate, b: Blocks, mu: float) -> float:
        """Of the conditions of optimality, or of those of a level where mu > 0; (IP 4)."""
        duals = [np.abs(d) for d in (it.p[1:], it.y, it.low, it.high)]
        limits = np.concatenate([it.low, it.high])
        count = sum(d.size for d in duals)
        of_duals = max(100.0, sum(d.sum() for d in duals) / max(count, 1)) / 100
        of_limits = max(100.0, limits.sum() / max(limits.size, 1)) / 100
        gaps, r = it.point.gaps, self._left(it.point, it.s)
        if mu:
            gaps = gaps - self._given_way(it, it.p)
            r = r - self._softness * (it.y - self.estimate)
        balance = it.y[self.unequal] - it.high + it.low
        parts = [self._stationarity(it, b) / of_duals, float(np.abs(balance).max(initial=0)) / of_duals]
        parts += [float(np.abs(c).max(initial=0)) for c in (gaps, r)]
        for has, distance, z in zip(self.has, self._distances(it.s), (it.low, it.high), strict=True):
            of_cost = 1.0 if mu else self.scale  # in the end the price of limits in the cost's own units
            parts.append(float(np.abs(z[has] * distance[has] - mu).max(initial=0)) / of_limits / of_cost)
        return max(parts)

    # -- the loop -------------------------------------------------------------------------------

    def iterate(self, max_iterations: int, log: Log) -> None:
        """Steps until the conditions of optimality hold, or nothing leads on; see `status`."""
        try:
            for i in range(max_iterations + 1):
                it = self.now
                self.lin = self.stages.map.linearize_steps(it.point.steps)
                b = self.stages.blocks(it.point, self.lin)
                if i == 0:
                    self._begin_scale(b)
                    if self.warm:
                        it.y[:], self.estimate = self.scale * it.y, self.scale * self.estimate
                        self._begin_costates(it, b)
                        self._begin_near(it, b)
                        self.pause = 0
                self.error = self._error(it, b, 0.0)
                if self.error <= self.tolerance:
                    self.status = Status.CONVERGED
                    return
                self._weigh(b)
                if self.status:
                    return
                if i == max_iterations:
                    self.status = Status.MAX_ITERATIONS
                    return
                if not self._advance(b, log):
                    return
        except StepError as error:
            self.status, self.stages.trouble = Status.NO_DESCENT, error

    def _begin_scale(self, b: Blocks) -> None:
        """The cost's scale, unless it is given: a search from an optimum cannot tell it."""
        if self.scaled:
            return
        slope, bend = (
            max(float(np.abs(part).max(initial=0)) for part in parts)
            for parts in ((b.g, b.g_end), (b.H, b.H_end))
        )
        largest = slope if slope > FLAT * bend else bend
        self.scale = min(1.0, LARGEST / largest) if largest > 0 else 1.0

    def _begin_costates(self, it: Iterate, b: Blocks) -> None:
        """Costates that go with given multipliers of rows, the adjoint recursion; its estimates too."""
        (N, m, _), n = b.J.shape, b.F.shape[1]
        at_steps, at_end = it.y[: N * m].reshape(N, m), it.y[N * m :]
        g = self.scale * b.g + np.einsum("kmq,km->kq", b.J, at_steps)
        it.p[N] = self.scale * b.g_end + b.J_end.T @ at_end
        for k in range(N - 1, -1, -1):
            it.p[k] = g[k, :n] + b.F[k, :, :n].T @ it.p[k + 1]
        self.costates = it.p.copy()

    def _begin_near(self, it: Iterate, b: Blocks) -> None:
        """The level that fits given multipliers: no more barrier than what they leave of the conditions.

        Slacks are where the rows are, inside of a limit by mu over its multiplier at least.
        """
        y, h = it.y[self.unequal], it.point.rows[self.unequal]
        of_low, of_high = np.where(self.has[0], -y, 0.0).clip(0), np.where(self.has[1], y, 0.0).clip(0)
        there = replace(it, s=np.clip(h, self.lower, self.upper), low=of_low, high=of_high)
        self.mu = float(np.clip(self._error(there, b, 0.0), self._last_mu, LEVEL))
        inside = self._inside(h)
        with np.errstate(divide="ignore"):
            low = np.where(self.has[0], self.lower + self.mu / of_low, -np.inf)
            high = np.where(self.has[1], self.upper - self.mu / of_high, np.inf)
        # a range with both multipliers, or none where a limit is met: as without any knowledge
        nearest = np.clip(h, np.minimum(low, inside), np.maximum(high, inside))
        it.s[:] = nearest
        for has, z, distance in zip(self.has, (it.low, it.high), self._distances(it.s), strict=True):
            z[:] = np.where(has, self.mu / distance, 0.0)

    @property
    def _last_mu(self) -> float:
        return self.tolerance * self.scale / 10

    def _curved(self, b: Blocks) -> Blocks:
        it = self.now
        p, y = it.p / self.scale, it.y / self.scale
        return self.stages.curved(it.point, self.lin, b, p, y, it.foreseen)

    def _weigh(self, b: Blocks) -> None:
        """The next levels, as far as this one is solved, (IP 4): other estimates, less barrier, and stiffer
        rows and gaps where these do not close by the estimates alone. A status where last levels close
        nothing.
        """
        (least, power), (stiffer, softest) = NEXT, STIFFER
        while self._error(self.now, b, self.mu) <= SOLVED * self.mu:
            it, before, mu = self.now, self.left, self.mu
            self.filter.clear()
            self.estimate, self.costates = it.y.copy(), it.p.copy()
            self.left = self._open(it.point, it.s)
            self.mu = max(self._last_mu, min(least * mu, mu**power), min(mu, AHEAD * self.left))
            closing = self.left <= max(self.tolerance, CLOSING * before)
            if not closing and self.soft > softest:
                self.soft = max(self.soft / stiffer, softest)
            elif self.mu > least * mu:  # held up by the tolerance, or by what is left
                self.stuck = 0 if closing or self.left <= FEASIBLE else self.stuck + 1
                if self.stuck >= HOPELESS:
                    self.status = Status.INFEASIBLE
                return

    def _advance(self, b: Blocks, log: Log) -> bool:
        """One iteration, its step taken or not; False where it was the last, with a status."""
        it = self.now
        model = self._modelled(b)
        if model is None:
            self.status = Status.NO_DESCENT
            return False
        d = self._solve(model, it, it.point.gaps, self._left(it.point, it.s))
        moved, length, trials, slope = self._search(model, it, d)
        left = self._open(it.point, it.s)
        log(
            Record(
                len(log.records),
                "newton" if self.exact else "gauss-newton",
                self.shift if self.exact else self.damping,
                it.point.cost,
                slope / self.scale,
                length,
                trials,
                left,
            )
        )
        if moved is None:
            if self._below_rounding(slope):
                return False
            if self.exact:  # Gauss-Newton's step, next
                self.pause = self.wait
                return True
            self.damping = max(DAMPING[0], DAMPING[1] ** 2 * self.damping)
            if self.damping > DAMPING[2]:
                self.status = Status.LINE_SEARCH
                return False
            return True
        self.gains = self.lq.gains.copy()
        moved.foreseen = self._foreseen(it, d, min(length, 1.0))
        fall = self._merit(it.point, it.s) - self._merit(moved.point, moved.s)
        bent = any(y is not None for y in moved.foreseen)
        self.falling = bent and fall > FALLING * abs(self._merit(it.point, it.s))
        self.now = moved
        self.promise = -slope / self.scale
        if length == 1 and self._below_rounding(slope):
            return False
        first, factor, most = DAMPING
        if trials > SHORT:
            self.damping = min(max(first, factor * self.damping), most)
        elif trials <= 2:
            self.damping = self.damping / factor if self.damping > first else 0.0
        return self.status is None

    def _foreseen(self, it: Iterate, d: Direction, length: float) -> Foreseen:
        """Multipliers of residuals a part of a step on; at first those that the whole step foresees."""
        new = self.stages.cost.foreseen(it.point.curve, self.lin, d.dx, d.du)
        first, second = (
            b if a is None or b is None else a + length * (b - a)
            for a, b in zip(it.foreseen, new, strict=True)
        )
        return first, second

    def _below_rounding(self, slope: float) -> bool:
        """Whether steps have long promised nothing that the merit's digits would show: then that is said."""
        seen = -slope > FLOOR * np.finfo(float).eps * abs(self._merit(self.now.point, self.now.s))
        self.unseen = 0 if seen else self.unseen + 1
        if self.unseen < HOPELESS or self.error > ROUNDED:
            return False
        self.status = Status.ACCEPTABLE
        self.note = f"to rounding: a slope of {slope / self.scale:.2g} cannot be seen in the cost"
        return True

    def _modelled(self, b: Blocks) -> Blocks | None:
        """The blocks to step with, factored; `exact` says whether exact curvature is in them.

        It is where a shift leaves a minimum; not in the first iteration, in a pause, and where Gauss-Newton's
        steps lower the merit fast. None where no shift of Gauss-Newton's Hessian leaves a minimum either.
        """
        n = b.F.shape[1]
        unit = float(np.trace(b.H[:, n:, n:].mean(axis=0))) / max(1, b.F.shape[2] - n)
        of_states, of_inputs = 1 / self.scale, unit if unit > 0 else self._price_of_limits(b)
        # what is free at the start is as an input before the first
        of_start = of_inputs * self.stages.start.any(axis=1)
        near = self.pause <= 0 and not self.falling
        self.pause -= 1
        if near:
            exact, shift, (least, grow, most) = self._curved(b), 0.0, CURVED
            while shift <= most:
                inputs = (shift + self.damping) * of_inputs
                model = _shifted(exact, shift * of_states, inputs, self.damping * of_start)
                if self._factor(model):
                    self.wait, self.shift, self.exact = 1, shift, True
                    return model
                shift = max(grow * shift, self.shift / grow**2, least)
            self.pause = self.wait = min(2 * self.wait, 8)
        self.exact = False
        shift, (first, grow, most) = 0.0, SHIFT
        while shift <= most:
            model = _shifted(b, shift, shift + self.damping * of_inputs, self.damping * of_start)
            if self._factor(model):
                return model
            shift = max(first, grow * shift)
        return None

    def _price_of_limits(self, b: Blocks) -> float:
        """What limits weigh inputs by (the median) where the cost does not, 1 where there are none."""
        (N, m, _), n = b.J.shape, b.F.shape[1]
        weight, _ = self._eliminated(self.now, self._left(self.now.point, self.now.s))
        each = np.einsum("km,kmu->ku", weight[: N * m].reshape(N, m), b.J[:, :, n:] ** 2)
        felt = each[each > 0]
        return float(np.median(felt)) / self.scale if len(felt) else 1.0

    # -- a step ---------------------------------------------------------------------------------

    def _elastic(self, it: Iterate) -> float:
        """delta of the dynamics: none where the states are a trajectory, which steps then follow."""
        return self.soft if it.point.gaps.any() else 0.0

    @property
    def _softness(self) -> np.ndarray:
        """delta of each row: none of limits of constants of the motion, which slacks keep exactly."""
        return np.where(self.stages.rows.hard, 0.0, self.soft)

    def _given_way(self, it: Iterate, p: np.ndarray) -> np.ndarray:
        """By how much gaps give way to costates p (N+1, ndx); constants of the motion do not."""
        return self._elastic(it) * self.gives * (p - self.costates)[1:]

    def _eliminated(self, it: Iterate, r: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Weights of the rows in the step's problem, and linear terms v: y+ = v + weight dh, (IP 6)."""
        weight = np.zeros(len(it.y))
        v = np.zeros(len(it.y))
        weight[self.equal] = 1 / self.soft
        v[self.equal] = self.estimate[self.equal] + r[self.equal] / self.soft
        soft = self._softness[self.unequal]
        to_low, to_high = self._distances(it.s)
        sigma = it.low / to_low + it.high / to_high
        weight[self.unequal] = sigma / (1 + soft * sigma)
        push = self.mu / to_high - self.mu / to_low
        given = r[self.unequal] + soft * self.estimate[self.unequal]
        v[self.unequal] = (push + sigma * given) / (1 + soft * sigma)
        return weight, v

    def _factor(self, b: Blocks) -> bool:
        """Whether the step's problem has one minimum."""
        N, m = b.J.shape[:2]
        M, last = self.scale * b.H, self.scale * b.H_end
        weight, _ = self._eliminated(self.now, self._left(self.now.point, self.now.s))
        if m:
            at_steps = weight[: N * m].reshape(N, m)
            M = M + np.swapaxes(b.J, 1, 2) @ (at_steps[:, :, None] * b.J)
        if len(b.J_end):
            last = last + b.J_end.T @ (weight[N * m :, None] * b.J_end)
        return self.lq.factor(b.F, M, last, self._elastic(self.now))

    def _solve(
        self,
        b: Blocks,
        it: Iterate,
        gaps: np.ndarray,
        r: np.ndarray,
        bent: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> Direction:
        """Newton's direction, (IP 5), for what gaps and rows leave, by the factors of `_factor`; `bent` is
        added to the cost's gradient.
        """
        N, m = b.J.shape[:2]
        weight, v = self._eliminated(it, r)
        g, end = self.scale * b.g, self.scale * b.g_end
        if bent is not None:
            g, end = g + self.scale * bent[0], end + self.scale * bent[1]
        if m:
            g = g + np.einsum("kmq,km->kq", b.J, v[: N * m].reshape(N, m))
        if len(b.J_end):
            end = end + b.J_end.T @ v[N * m :]
        c = gaps + self._elastic(it) * self.gives * self.costates[1:]
        dx, du, p = self.lq.solve(g, end, c, np.zeros(b.F.shape[1]))
        dz = np.concatenate([dx[:-1], du], axis=1)
        dh = np.concatenate([np.einsum("kmq,kq->km", b.J, dz).ravel(), b.J_end @ dx[-1]])
        y = v + weight * dh
        left = r + dh - self._softness * (y - self.estimate)
        to_low, to_high = self._distances(it.s)
        # of active limits ds is a small difference of large terms; by the balance of multipliers it is not
        sigma, push = it.low / to_low + it.high / to_high, self.mu / to_high - self.mu / to_low
        stiff = self._softness[self.unequal] * sigma > 1
        ds = np.where(stiff, (y[self.unequal] - push) / np.where(stiff, sigma, 1.0), left[self.unequal])
        low = np.where(self.has[0], self.mu / to_low - it.low - it.low / to_low * ds, 0.0)
        high = np.where(self.has[1], self.mu / to_high - it.high + it.high / to_high * ds, 0.0)
        # of the nearer limit by the balance of the slack: the other way its digits are lost in s - l
        of_unequal = y[self.unequal]
        up = self.has[1] & ((of_unequal >= 0) | ~self.has[0])
        high = np.where(up, of_unequal + it.low + low - it.high, high)
        low = np.where(~up, it.high + high - of_unequal - it.low, low)
        return Direction(dx, du, p, y, dh, ds, low, high)

    def _longest(self, it: Iterate, d: Direction) -> tuple[float, float]:
        """Lengths at which slacks, and multipliers, still are inside."""
        tau = max(BOUNDARY, 1 - self.mu)

        def most(value: np.ndarray, step: np.ndarray) -> float:
            with np.errstate(divide="ignore", invalid="ignore"):
                share = np.where(step < 0, -tau * value / step, np.inf)
            return min(1.0, float(share.min(initial=1.0)))

        to_low, to_high = self._distances(it.s)
        of_slacks = min(most(to_low, d.s), most(to_high, -d.s))
        return of_slacks, min(most(it.low, d.low), most(it.high, d.high))

    def _search(self, b: Blocks, it: Iterate, d: Direction) -> tuple[Iterate | None, float, int, float]:
        """Armijo's rule on the merit, and the filter: the next iterate or None, its step, trials, slope."""
        slope = self._slope(b, it, d)
        before = self._merit(it.point, it.s)
        rounding = 10 * np.finfo(float).eps * abs(before)
        length, of_multipliers = self._longest(it, d)
        size = float(np.abs(d.dx).max())
        follow = self.strayed < AGAIN or not self.strayed % AGAIN
        lost = False
        for trial in range(TRIALS):
            X, U = self.stages.moved(it.point, d.dx, d.du, length)
            stepped = it.s + length * d.s
            enough = before + SUFFICIENT * length * slope + rounding
            near = FAITHFUL * length * size if it.point.gaps.any() else np.inf
            point = self.stages.followed(X, U, self.lq.gains, near) if follow else None
            s = stepped if point is None else self._reset(point, it.s, stepped)
            followed = point is not None and self._merit(point, s) <= enough
            if not followed:
                point = self.stages.at(X, U, lost and trial >= HARD)
                lost = point is None
                s = stepped if point is None else self._reset(point, it.s, stepped)
            if point is not None and (self._merit(point, s) <= enough or self._passes(it, point, s)):
                self.strayed = 0 if followed else self.strayed + 1
                return self._moved(it, d, point, s, length, of_multipliers), length, trial + 1, slope
            if trial == 0 and point is not None and (len(it.y) or it.point.gaps.any() or self.exact):
                better = self._corrected(b, it, d, length, point, s, enough)
                if better is not None:
                    return better, length, 2, slope
            length /= 2
        return None, 0.0, TRIALS, slope

    def _reset(self, point: Point, old: np.ndarray, s: np.ndarray) -> np.ndarray:
        """Slacks of a trial: row by row as stepped, or as the rows are there, whichever the merit prefers."""
        if not len(s):
            return s
        keep, h = 1 - max(BOUNDARY, 1 - self.mu), point.rows[self.unequal]
        to_low, to_high = self._distances(old)
        there = np.clip(h, self.lower + keep * to_low, self.upper - keep * to_high)
        y = self.estimate[self.unequal]

        def price(s: np.ndarray) -> np.ndarray:
            r = h - s
            total = y * r + 0.5 / self.soft * r**2
            for has, distance in zip(self.has, self._distances(s), strict=True):
                total -= self.mu * np.where(has, np.log(np.where(has, distance, 1.0)), 0.0)
            return total

        return np.where(price(there) < price(s), there, s)

    def _passes(self, it: Iterate, point: Point, s: np.ndarray) -> bool:
        """Whether a trial costs less than all iterates of this level that left no more: full steps
        along curved equations raise any merit.
        """
        price, left = self._price(it.point, it.s), self._open(it.point, it.s)
        price1, left1 = self._price(point, s), self._open(point, s)
        if not price1 <= price - MARGIN * left or left1 > WIDEST:
            return False
        if any(price1 >= a and left1 >= b for a, b in self.filter):
            return False
        self.filter.append((price - MARGIN * left, left))
        return True

    def _corrected(
        self,
        b: Blocks,
        it: Iterate,
        d: Direction,
        length: float,
        point: Point,
        s: np.ndarray,
        enough: float,
    ) -> Iterate | None:
        """The step again, for what the first trial's curve leaves beyond what its model said; None where the
        merit refuses it too.
        """
        gaps, r, rest = it.point.gaps, self._left(it.point, it.s), 1 - length
        beyond = point.gaps - rest * gaps - length * self._given_way(it, d.p)
        more = self._left(point, s) - rest * r - length * self._softness * (d.y - self.estimate)
        bent = None
        if self.exact:
            steps = length * d.dx, length * d.du
            bent = self.stages.cost.beyond(it.point.curve, self.lin, point.curve, *steps)
        again = self._solve(b, it, length * gaps + beyond, length * r + more, bent)
        step, of_multipliers = self._longest(it, again)
        X, U = self.stages.moved(it.point, again.dx, again.du, step)
        stepped = it.s + step * again.s
        follow = None if len(it.y) else partial(self.stages.followed, gains=self.lq.gains)
        for trial in (follow, self.stages.at):
            found = trial(X, U) if trial else None
            if found is not None:
                s = self._reset(found, it.s, stepped)
                if self._merit(found, s) <= enough:
                    return self._moved(it, again, found, s, step, of_multipliers)
        return None

    def _slope(self, b: Blocks, it: Iterate, d: Direction) -> float:
        """Derivative of the merit (IP 7) along a direction."""
        n = b.F.shape[1]
        to_low, to_high = self._distances(it.s)
        cost = np.vdot(b.g[:, :n], d.dx[:-1]) + np.vdot(b.g[:, n:], d.du) + b.g_end @ d.dx[-1]
        moved = d.dh.copy()
        moved[self.unequal] -= d.s
        rows = (self.estimate + self._left(it.point, it.s) / self.soft) @ moved
        change = np.einsum("kij,kj->ki", b.F, np.concatenate([d.dx[:-1], d.du], axis=1)) - d.dx[1:]
        rows += np.vdot(self.costates[1:] + it.point.gaps / self.soft, change)
        return float(self.scale * cost + rows + self.mu * (d.s / to_high - d.s / to_low).sum())

    def _moved(
        self, it: Iterate, d: Direction, point: Point, s: np.ndarray, length: float, of_multipliers: float
    ) -> Iterate:
        p, y = it.p + length * (d.p - it.p), it.y + length * (d.y - it.y)
        low, high = it.low + of_multipliers * d.low, it.high + of_multipliers * d.high
        to_low, to_high = self._distances(s)
        low = np.where(self.has[0], np.clip(low, self.mu / to_low / SIGMA, self.mu / to_low * SIGMA), 0.0)
        high = np.where(self.has[1], np.clip(high, self.mu / to_high / SIGMA, self.mu / to_high * SIGMA), 0.0)
        return Iterate(point, p, y, s, low, high)


def _shifted(b: Blocks, of_states: float, of_inputs: float, of_start: np.ndarray | float = 0.0) -> Blocks:
    """Blocks with more on the diagonals of the Hessian, of the first state (n,) too."""
    if not (of_states or of_inputs):
        return b
    n, q = b.F.shape[1:]
    one = np.repeat([of_states, of_inputs], [n, q - n])
    H = b.H + np.diag(one)
    H[0, range(n), range(n)] += of_start
    return replace(b, H=H, H_end=b.H_end + of_states * np.eye(n))
