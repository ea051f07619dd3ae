"""Barrier subproblem of the interior-point method, its merit and KKT residual.

A barrier subproblem has a barrier parameter mu for inequalities, a regularization delta of constraints and
defects, and multiplier estimates for both. If the states are a trajectory, delta of the dynamics is 0. The
class evaluates the merit (IP 7) and the KKT residual (IP 4), and eliminates constraints from Newton's step
(IP 6); see docs/maths/shooting.md. `compiled.py` does the same arithmetic in C.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from vioc.control.costs.cost import Predicted
from vioc.control.problem.sizes import as_unit
from vioc.control.shooting.stages import Point, StageBlocks, Stages
from vioc.control.stages.linear_quadratic import costates

LARGEST = 100.0  # largest entry of the cost's gradient at the guess after scaling
CHEAP = 0.1  # cost of a motion, over the cost of inputs of typical size during all of it
LEAST = 1e-6  # smallest cost that is assumed, in units of the cost
SMALL = 1e-2  # gradient and Hessian below which the cost at the end is scaled up to 1
FIRST_MU = 0.1  # first barrier parameter
NEXT = 0.1, 1.7  # next barrier parameter: smallest factor, power
EARLY = 0.3  # step length below which a slack or bound multiplier meets its bound early
RAISE = 0.3  # fraction of its previous value to which mu is raised in that case
STIFFER = 10.0, 1e-8  # factor by which the regularization of constraints and defects falls; smallest one
CLOSING, FAST = 0.25, 0.05  # ratio of infeasibilities of two subproblems: some progress, fast progress
AHEAD = 0.01  # smallest mu over infeasibility: smaller ones gain nothing while constraints are violated
INTERIOR = 5e-2  # first distance of slacks from their bounds, over the range or the bound's magnitude
FEASIBLE = 1e-6  # largest residual of equations at a point that is called feasible
BOUNDARY = 0.995  # largest fraction of the distance to a bound that a step may take
SIGMA = 1e10  # largest ratio of a bound multiplier to the barrier's estimate of it
OF_DUALS = 100.0  # mean multiplier above which KKT residuals are scaled by it
NONE, EQUATION, INEQUALITY = 0, 1, 2  # kinds of constraints


@dataclass
class Iterate:
    """Iterate of the interior-point search: states, inputs, slacks and multipliers.

    Attributes
    ----------
    p : (N+1, ndx)
        Costates of the dynamics.
    y : (rows,)
        Multipliers of the constraints.
    s, low, high : (rows,)
        Slacks (for an equation, its right side), and the multipliers >= 0 of the slacks' lower and upper
        bounds, 0 for a missing bound.
    predicted : pair of arrays
        Predicted residuals rho of the running and the terminal cost, see `Cost.predicted`. A residual r with
        a large weight W acts like an equation r = 0, but its multiplier W r is inaccurate far from the
        solution. The exact Hessian therefore contains W rho, which the last Newton steps predict (IP 15).
    """

    point: Point
    p: np.ndarray
    y: np.ndarray
    s: np.ndarray
    low: np.ndarray
    high: np.ndarray
    predicted: Predicted = (None, None)


class NewtonDirection(NamedTuple):
    """Newton direction of states, inputs, slacks and multipliers.

    `p` and `y` are the new multipliers; the other arrays are changes. `slope` is the directional derivative
    of the merit. `lengths` are two step lengths, at most 1: the largest ones with which the slacks and the
    bound multipliers, respectively, stay within their bounds.
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


class Merit(NamedTuple):
    """Merit of a point, with its barrier cost and its constraint violation.

    `value` is M of (IP 7). `barrier_cost` is the scaled cost plus the logarithmic barriers, without the terms
    of constraints and defects. `violation` is the largest magnitude of all constraint residuals and defects.
    """

    value: float
    barrier_cost: float
    violation: float


class Subproblem:
    """Barrier subproblem of the interior-point method.

    The first one has the largest barrier parameter mu; `next` turns it into the next one.

    Parameters
    ----------
    stages : Stages
    tolerance : float
        Largest accepted KKT residual.
    soft : float
        delta, the regularization, of the first subproblem.
    scale : float, optional
        Factor c of the cost in the merit; by default from the cost and its gradient at the guess.

    Attributes
    ----------
    mu : float
        Barrier parameter.
    estimate, costates : (rows,), (N+1, ndx)
        Multiplier estimates of constraints and dynamics.
    share : float
        Divisor of the complementarity residuals of inequalities, at most 1; see `set_share`.
    violation : float
        Violation (`Merit.violation`) at the last update of the multiplier estimates.
    kind : (rows,)
        `NONE` without a limit, `EQUATION` or `INEQUALITY`.
    lower, upper, has : (rows,), and a pair of these
        Lower and upper bounds of the slacks of inequalities, and masks that mark the finite bounds.
    stuck : int
        Consecutive subproblems whose mu and delta could not fall, and whose violation stayed above `FEASIBLE`
        and above the fraction `CLOSING` of its previous value.
    native : bool
        Whether the arithmetic is done in C.
    """

    native = False

    def __init__(self, stages: Stages, tolerance: float, soft: float, scale: float | None = None):
        self.stages, self.tolerance, self.soft, self.mu = stages, tolerance, soft, FIRST_MU
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
        self.gives = np.arange(n) < n - stages.rigid  # states whose defects are regularized
        self.estimate, self.costates = np.zeros(len(rows)), np.zeros((len(stages.lengths) + 1, n))
        self.violation, self.stuck, self._fell_from = np.inf, 0, 0.0

    # -- slacks ---------------------------------------------------------------------------------

    def inside(self, h: np.ndarray) -> np.ndarray:
        """Return first slacks: the constraint values h, moved inside of their bounds."""
        low, high = self.lower, self.upper
        with np.errstate(invalid="ignore"):
            room = np.where(self.has[0] & self.has[1], INTERIOR * (high - low), np.inf)
            least = low + np.minimum(INTERIOR * np.maximum(1, np.abs(low)), room)
            most = high - np.minimum(INTERIOR * np.maximum(1, np.abs(high)), room)
        s = np.clip(h, np.where(self.has[0], least, -np.inf), np.where(self.has[1], most, np.inf))
        return np.where(self._unequal, s, self._target)

    def multipliers(self, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return estimates of the bound multipliers of given slacks.
        They are the barrier parameter mu over the distance of the slack from its bound, 0 without a bound.
        """
        return self.mu / (s - self.lower), self.mu / (self.upper - s)

    def residuals(self, point: Point, s: np.ndarray) -> np.ndarray:
        """Return the residuals of the constraints for slacks s.
        A residual is the constraint's value at a point minus its slack, or 0 if the constraint has no limit.
        """
        return np.where(self.kind, point.rows - s, 0.0)

    @property
    def keep(self) -> float:
        """Smallest fraction of its distance from a bound that a slack keeps in one step."""
        return 1 - max(BOUNDARY, 1 - self.mu)

    # -- merit ----------------------------------------------------------------------------------

    def merit(self, point: Point, s: np.ndarray) -> Merit:
        """Return the merit of a point with slacks s.
        The result also has the barrier cost and the constraint violation.
        """
        r, gaps = self.residuals(point, s), point.gaps
        barrier_cost = self.scale * point.cost
        for has, distance in zip(self.has, (s - self.lower, self.upper - s), strict=True):
            barrier_cost -= self.mu * float(np.log(distance[has]).sum())
        return Merit(barrier_cost + self._of_residuals(gaps, r), barrier_cost, _largest(gaps, r))

    def trial_merit(self, it: Iterate, point: Point, s: np.ndarray) -> tuple[np.ndarray, Merit]:
        """Return slacks of a trial point, chosen for a low merit, and the merit with them.

        The slack of an inequality is either `s`, its value after the step, or the value of the constraint at
        the trial point, moved inside of the bounds: the one of these two values with the lower merit.
        """
        if self._count:
            keep, h = self.keep, point.rows
            low, high = self.lower, self.upper
            low = np.where(self.has[0], low, 0.0) + np.where(self.has[0], keep * (it.s - low), -np.inf)
            high = np.where(self.has[1], high, 0.0) - np.where(self.has[1], keep * (high - it.s), -np.inf)
            there = np.clip(h, low, high)
            better = self._unequal & (self._of_slacks(h, there) < self._of_slacks(h, s))
            s = np.where(better, there, s)
        return s, self.merit(point, s)

    def _of_slacks(self, h: np.ndarray, s: np.ndarray) -> np.ndarray:
        """Return the terms of the merit that depend on slacks, one for each constraint.
        The values of the constraints are h, and their slacks are s.
        """
        r = h - s
        total = self.estimate * r + 0.5 / self.soft * r**2
        for has, distance in zip(self.has, (s - self.lower, self.upper - s), strict=True):
            total -= self.mu * np.log(np.where(has, distance, 1.0))
        return total

    # -- Newton's step --------------------------------------------------------------------------

    def elastic(self, it: Iterate) -> float:
        """Return the regularization parameter delta of the linearized dynamics.

        If delta is positive, a Newton step may leave defects in the linearized dynamics. If the iterate has
        no defects, delta is 0, so that the linearized step has none either.
        """
        return self.soft if it.point.open else 0.0

    @property
    def softness(self) -> np.ndarray:
        """Regularization parameter delta of each constraint.
        A positive delta permits a residual of the linearized constraint in a Newton step. It is 0 for limits
        of free constants, such as the duration.
        """
        return np.where(self.stages.rows.hard, 0.0, self.soft)

    def elastic_residuals(self, it: Iterate, p: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the defects and constraint residuals that the regularization permits.

        They are delta times p and y minus the estimates of these multipliers. They are 0 for free constants
        of the motion, such as the duration, which are not regularized.
        """
        return self.elastic(it) * self.gives * (p - self.costates)[1:], self.softness * (y - self.estimate)

    def corrected(
        self, it: Iterate, d: NewtonDirection, point: Point, s: np.ndarray, length: float, merit: float
    ) -> float:
        """Return the predicted merit of a trial point after a second-order correction.

        The prediction assumes that the correction reduces the defects and constraint residuals of the trial
        to those of the linear model after a step of the given length. The cost then changes by these
        reductions times the new multipliers. `merit` is the merit before the correction.
        """
        r, gaps = self.residuals(point, s), point.gaps
        of_gaps, of_rows = self.elastic_residuals(it, d.p, d.y)
        modelled = (1 - length) * it.point.gaps + length * of_gaps
        left = (1 - length) * self.residuals(it.point, it.s) + length * of_rows
        change = self._of_residuals(modelled, left) - self._of_residuals(gaps, r)
        return merit + change + float(np.vdot(d.p[1:], gaps - modelled) + d.y @ (r - left))

    def _of_residuals(self, gaps: np.ndarray, r: np.ndarray) -> float:
        """Return the terms of the merit that depend on defects and constraint residuals."""
        half = 0.5 / self.soft
        return float(self.estimate @ r + half * r @ r) + float(np.vdot(self.costates[1:] + half * gaps, gaps))

    def weights(self, it: Iterate) -> np.ndarray:
        """Return the weights omega (rows,) of the constraints in Newton's Hessian.

        They are defined in docs/maths/shooting.md, (IP 6), and 0 for constraints without a limit.
        """
        sigma = it.low / (it.s - self.lower) + it.high / (self.upper - it.s)
        return np.where(self._equal, 1 / self.soft, sigma / (1 + self.softness * sigma))

    def hessian(
        self, it: Iterate, b: StageBlocks, of_states: float, of_inputs: float, of_start: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the Hessians of a Newton step's linear-quadratic subproblem.

        They are M (N, q, q) of (IP 6) for all steps, and one (n, n) for the last state. Each is the scaled
        Hessian of the model `b` plus the terms of the eliminated constraints. The shifts `of_states` and
        `of_inputs` are added to the diagonals before scaling, and `of_start` (n,) to that of the first state.
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
        """Return the linear terms of a Newton step's linear-quadratic subproblem.

        They are v (rows,) of (IP 6), the gradients (N, q) of the steps and (ndx,) of the last state, and the
        constants (N, ndx) of the dynamics: the defects plus delta times the costate estimates. `gaps` are the
        defects, r the constraint residuals; `bent`, if given, is added to the cost's gradient.
        """
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
        """Return the Newton direction, given its changes dx and du of states and inputs.

        `solved` holds dx, du and the costates, the solution of the linear-quadratic subproblem. Changes of
        slacks, and multipliers, follow from these, the constraint residuals r, and the term v of (IP 6).
        """
        dx, du, p = solved
        dz = np.concatenate([dx[:-1], du], axis=1)
        dh = np.concatenate([(b.J @ dz[:, :, None]).ravel(), b.J_end @ dx[-1]])
        y, (to_low, to_high), (has_low, has_high) = (
            v + self.weights(it) * dh,
            (it.s - self.lower, self.upper - it.s),
            self.has,
        )
        sigma = it.low / to_low + it.high / to_high
        # for active limits this ds is a small difference of large terms; the balance of multipliers avoids it
        stiff = self.softness * sigma > 1
        ds = np.where(
            stiff,
            (y - self._push(it)) / np.where(stiff, sigma, 1.0),
            r + dh - self.softness * (y - self.estimate),
        )
        ds = np.where(self._unequal, ds, 0.0)
        low = np.where(has_low, self.mu / to_low - it.low - it.low / to_low * ds, 0.0)
        high = np.where(has_high, self.mu / to_high - it.high + it.high / to_high * ds, 0.0)
        # the nearer bound's multiplier follows from the balance of the slack: s - l would lose its digits
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
        rows = (self.estimate + self.residuals(it.point, it.s) / self.soft) @ moved
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
        """Return the iterate after a step of a given length along a Newton direction.

        `point` and s are the curve and its slacks after the step. The multipliers of the slacks' bounds take
        a step of another length, `of_multipliers`.
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

    # -- KKT residual ---------------------------------------------------------------------------

    def errors(self, it: Iterate, b: StageBlocks) -> tuple[float, float]:
        """Return the KKT residuals of the problem and of this barrier subproblem.
        They are defined in docs/maths/shooting.md, (IP 4).
        """
        stationarity = self._stationarity(it, b)
        self.set_share(it)
        return self._error(it, stationarity, 0.0), self._error(it, stationarity, self.mu)

    def with_adjoint(self, it: Iterate, b: StageBlocks, gains: np.ndarray) -> Iterate:
        """Return the iterate with its costates replaced by those of an adjoint recursion.

        With those of the motion itself, and the iterate's multipliers of constraints, the Lagrangian is
        stationary with respect to all states after the first. Along an unstable motion their rounding errors
        may be huge; then those of the motion with feedback `gains` (N, nu, ndx) are nearer to stationary, and
        are taken. The costates of Newton's step contain rounding errors of the Riccati recursion, which may
        exceed the tolerance.
        """
        by_rows, by_end = b.pulled(it.y)
        given = b.F, self.scale * b.g + by_rows, self.scale * b.g_end + by_end
        alone, closed = (replace(it, p=costates(*given, K)[0]) for K in (None, gains))
        return min(closed, alone, key=lambda it: float(np.nan_to_num(self._stationarity(it, b), nan=np.inf)))

    def set_share(self, it: Iterate) -> None:
        """Set `share`, the divisor of the complementarity residuals, from the cost.

        `share` is the product of two factors: the cost of the iterate over the unit of the cost, clipped to
        [LEAST, 1], and the scaled unit of the cost, if it is below 1. The complementarity residuals in the
        KKT residual of the problem are divided by `share`, and the smallest mu is proportional to it.
        """
        cost = abs(it.point.cost) / self.unit
        self.share = min(1.0, self.scale * self.unit) * min(1.0, max(LEAST, cost))

    def _error(self, it: Iterate, stationarity: float, mu: float) -> float:
        limits = float(it.low.sum() + it.high.sum())
        duals = limits + float(np.abs(it.p[1:]).sum() + np.abs(it.y).sum())
        count = it.p[1:].size + it.y.size + 2 * self._count
        of_duals = max(1.0, duals / max(count, 1) / OF_DUALS)
        of_limits = max(1.0, limits / max(2 * self._count, 1) / OF_DUALS)
        gaps, r = it.point.gaps, self.residuals(it.point, it.s)
        if mu:
            of_gaps, of_rows = self.elastic_residuals(it, it.p, it.y)
            gaps, r = gaps - of_gaps, r - of_rows
        balance = np.where(self._unequal, it.y - it.high + it.low, 0.0)
        parts = [stationarity / of_duals, _largest(balance) / of_duals, _largest(gaps, r)]
        distances = it.s - self.lower, self.upper - it.s
        for has, distance, z in zip(self.has, distances, (it.low, it.high), strict=True):
            of_cost = 1.0 if mu else self.share  # the residual of the problem itself is relative to the cost
            parts.append(_largest(z[has] * distance[has] - mu) / of_limits / of_cost)
        return max(parts)

    def _stationarity(self, it: Iterate, b: StageBlocks) -> float:
        """Return the largest magnitude of the entries of the Lagrangian's gradient.
        For the first state, only derivatives along its free directions are considered.
        """
        n, (by_rows, by_end) = b.F.shape[1], b.pulled(it.y)
        r = self.scale * b.g + np.einsum("kij,ki->kj", b.F, it.p[1:]) + by_rows
        start = self.stages.start.T @ r[0, :n]
        r[:, :n] -= it.p[:-1]
        r[0, :n] = 0.0
        end = self.scale * b.g_end + by_end - it.p[-1]
        return _largest(r, start, end)

    # -- updates of the subproblem --------------------------------------------------------------

    def begin_scale(self, it: Iterate, b: StageBlocks) -> None:
        """Set the unit of the cost and its scale factor from the initial guess.

        The unit is a typical magnitude of the cost, from the cost of inputs of typical size and the cost of
        the guess without its terminal cost. The scale factor multiplies the cost in the merit. A given scale
        factor is kept: it cannot be determined at an optimum, where the gradient vanishes.
        """
        n = b.F.shape[1]
        of_inputs = 0.5 * float(np.abs(np.einsum("kii->ki", b.H[:, n:, n:])).sum())
        slope, bend = _largest(b.g, b.g_end), _largest(b.H, b.H_end)
        curve, cost, sizes = it.point.curve, self.stages.cost, self.stages.of_states
        last = cost.end(curve.x[-1], curve.map.theta, cost.reference_rows(len(curve))[-1], sizes)[0]
        self.unit = as_unit(max(CHEAP * of_inputs, abs(it.point.cost - last)) or max(slope, bend))
        if self._scaled:
            self.unit = min(self.unit, 1 / self.scale)  # at most the unit of the search that set the scale
            return
        self.scale = min(1 / self.unit, LARGEST / slope) if slope > 0 else 1 / self.unit

    def scaled_up(self, it: Iterate, b: StageBlocks, gains: np.ndarray) -> Iterate | None:
        """Increase the scale factor of the cost if the scaled derivatives are too small.
        Return the iterate with new multipliers, or None if the scale factor stays.

        With a far smaller scaled cost, the search would accept any feasible curve as an optimum. `gains` are
        those of the last Newton step.
        """
        size = max(_largest(b.g, b.g_end), _largest(b.H, b.H_end))
        if not 0 < self.scale * size < SMALL:
            return None
        it, self.scale = replace(it, y=it.y / self.scale), 1 / size
        return self.begin_near(it, b, gains)

    def begin_near(self, it: Iterate, b: StageBlocks, gains: np.ndarray) -> Iterate:
        """Return the first iterate of a warm start, from given constraint multipliers.

        The costates come from the adjoint recursion (`with_adjoint`). mu becomes the KKT residual of these
        multipliers, within its limits. Each slack is the value of its constraint, kept away from each bound:
        by at least mu over the bound's multiplier, or the distance of a start without multipliers if that is
        smaller. `gains` are those of a Newton step.
        """
        it = self.with_adjoint(replace(it, y=it.y * self.scale), b, gains)
        p, y, h = it.p, it.y, it.point.rows
        self.estimate[:], self.costates[:] = y, p
        of_low, of_high = np.where(self.has[0], -y, 0.0).clip(0), np.where(self.has[1], y, 0.0).clip(0)
        at = np.where(self._unequal, np.clip(h, self.lower, self.upper), self._target)
        there = replace(it, s=at, low=of_low, high=of_high)
        self.mu = float(np.clip(self.errors(there, b)[0], self._last_mu, FIRST_MU))
        inside = self.inside(h)
        with np.errstate(divide="ignore", invalid="ignore"):
            low, high = self.lower + self.mu / of_low, self.upper - self.mu / of_high
        low, high = np.where(self.has[0], low, -np.inf), np.where(self.has[1], high, np.inf)
        # a range with both multipliers, or a bound met without one, has the slack of a cold start
        s = np.clip(h, np.minimum(low, inside), np.maximum(high, inside))
        s = np.where(self._unequal, s, self._target)
        of_low, of_high = self.multipliers(s)
        return replace(there, s=s, low=of_low, high=of_high)

    def raise_mu(self, d: NewtonDirection) -> bool:
        """Raise mu in part if bounds shorten the first step of a subproblem too much.
        Return True if the barrier parameter mu was raised.

        Only the first step of a subproblem is tested.
        """
        most, self._fell_from = RAISE * self._fell_from, 0.0
        raised = self.mu < most and min(d.lengths) < EARLY
        self.mu = most if raised else self.mu
        return raised

    @property
    def _last_mu(self) -> float:
        return self.tolerance * self.share / 10

    def renew(self, it: Iterate) -> bool:
        """Update the multiplier estimates and delta; return True if delta fell.

        The multipliers of the iterate become the estimates. The regularization delta falls only if the
        violation fell slowly since the last update.
        """
        stiffer, smallest = STIFFER
        before, self.violation = self.violation, self.merit(it.point, it.s).violation
        self.estimate[:], self.costates[:] = it.y, it.p
        if self.violation <= max(self.tolerance, FAST * before) or self.soft <= smallest:
            return False
        self.soft = max(self.soft / stiffer, smallest)
        return True

    def next(self, it: Iterate) -> bool:
        """Update multiplier estimates, barrier parameter mu and regularization delta.
        Return True if the next barrier subproblem begins, and False if the present one is repeated with new
        estimates.

        It is repeated if delta does not fall and mu falls by less than a factor of 10, since the tolerance or
        the remaining violation limits mu from below. `stuck` counts the repetitions without progress.
        """
        (least, power), before, mu = NEXT, self.violation, self.mu
        stiffer = self.renew(it)
        self.mu = max(self._last_mu, min(least * mu, mu**power), min(mu, AHEAD * self.violation))
        self._fell_from = mu
        if not stiffer and self.mu > least * mu:
            closing = self.violation <= max(self.tolerance, CLOSING * before)
            self.stuck = 0 if closing or self.violation <= FEASIBLE else self.stuck + 1
            return False
        return True


def _largest(*arrays: np.ndarray) -> float:
    return max(float(np.abs(a).max(initial=0)) for a in arrays)
