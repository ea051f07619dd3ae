"""A primal-dual interior point of an augmented Lagrangian, on stages.

Unknowns are the states and inputs of all stages (of the first state what is free), and a slack s for every
inequality:

    minimize  g(X, U)  subject to  x_k+1 = f(x_k, u_k),  h_E = a_E,  h_I - s = 0,  a <= s <= b.

An iteration takes the Hessian that has a minimum, Newton's step on the conditions of a level (`newton_step`),
and along it the next iterate (`search`); where a level is solved the next one begins (`level`). See
docs/maths/shooting.md, whose equations have numbers (IP).
"""

from __future__ import annotations

import numpy as np

from vioc.control.problem.result import Iteration, Log
from vioc.control.problem.status import Status
from vioc.control.shooting.compiled import newton_of
from vioc.control.shooting.level import Iterate, Level
from vioc.control.shooting.search import LineSearch
from vioc.control.shooting.stages import StageBlocks
from vioc.errors import OptimizationError, StepError

SOLVED = 10.0  # error over the level's weight at which it is solved
SOFTNESS = 1e-4, 1e-2, 1e-6  # first regularizations of rows and gaps: the usual one, and what else to try
SHIFT = 1e-4, 8.0, 1e12  # of Gauss-Newton's Hessian, of the cost's unit, for a minimum: first, growth, most
CURVED = 1e-4, 4.0, 1e6  # shift of the exact Hessian, in units of the scaled cost: least, factor, most
SLOW = 3, 0.5, 1e-10  # whole shifted steps in a row behind which a least shift is less; their error; lowest
FALLING = 0.25  # share of the merit by which steps lower it while Gauss-Newton's are the better ones
SHORT = 5  # trials behind which inputs are damped more, as where a trial had no steps; less after one or two
CRAWLS = 8  # short steps in a row behind which a search ends, as it hardly moves
DAMPING = 1.0, 10.0, 1e8  # of inputs, over their mean weight: first, factor, most
RELAPSES, GENTLE = 3, 0.05  # needs of damping right behind its end, from which on it ends below this
FLOOR, ROUNDED = 10.0, 1e-5  # roundings of the merit that cannot be told from none; the error then taken
HOPELESS = 3  # last levels that leave more, and close nothing


class Interior:
    """The search from a curve; at any moment `now` is where it stands.

    Parameters
    ----------
    level : Level
        The first one. A search that ends nowhere may end well with another delta: `SOFTNESS`.
    X, U : (N+1, nx), (N, nu)
        The guess; X[0] stays but along the free directions of the start.
    duals : (rows,), optional
        Estimates of the rows' multipliers, from a search with the level's scale.
    rolled : bool
        Whether a guess whose gaps are rounding is a trajectory.

    Raises
    ------
    OptimizationError
        Where the guess has no steps or no finite cost.
    """

    def __init__(
        self,
        level: Level,
        X: np.ndarray,
        U: np.ndarray,
        duals: np.ndarray | None = None,
        rolled: bool = False,
    ):
        self.level, self.stages, self.warm = level, level.stages, duals is not None
        point = self.stages.at(X, U)
        if point is None:
            raise OptimizationError(f"the guess has no steps: {self.stages.trouble}")
        point = point.closed() if rolled else point
        self.newton = newton_of(level)
        self.search = LineSearch(level, self.newton)
        s = level.inside(point.rows)
        y = np.zeros(len(point.rows)) if duals is None else duals.copy()
        self.now = Iterate(point, np.zeros_like(level.costates), y, s, *level.multipliers(s))
        self.damping, self.shift, self.promise = 0.0, 0.0, np.nan
        self.eased, self.relapses = False, 0  # whether damping has just ended; how often it was needed then
        self.least, self.slow, self.before = CURVED[0], 0, np.inf
        self.pause, self.wait = int(not self.warm), 1
        self.falling = self.exact = False
        self.unseen = 0  # full steps in a row whose promise is below rounding
        self.crawled = 0  # short steps in a row
        self.status: Status | None = None
        self.note, self.error = "", np.inf
        self.gains = np.zeros_like(self.newton.gains)
        self._free = self.stages.start.any(axis=1).astype(float)  # 1 for states free at the start

    def iterate(self, max_iterations: int, log: Log) -> None:
        """Steps until the conditions of optimality hold, or nothing leads on; see `status`."""
        try:
            for i in range(max_iterations + 1):
                it = self.now
                self.lin = self.stages.map.derivatives.linearize(it.point.steps)
                near = self.pause <= 0 and not self.falling
                b = self.stages.blocks(it.point, self.lin, near, it.foreseen)
                if i == 0:
                    self.level.begin_scale(it, b)
                    if self.warm:
                        it = self.now = self.level.begin_near(it, b)
                self.error, of_level = self.level.errors(it, b)
                if self.error <= self.level.tolerance and (small := self.level.scaled_up(it, b)):
                    it = self.now = small
                    self.search.forget()  # its prices are of the other scale
                    self.error, of_level = self.level.errors(it, b)
                if self.error <= self.level.tolerance:
                    self.status = Status.CONVERGED
                elif not self._weigh(b, of_level):
                    self.status = Status.INFEASIBLE
                elif i == max_iterations:
                    self.status = Status.MAX_ITERATIONS
                else:
                    self.status = self._advance(b, near, log)
                if self.status:
                    return
        except StepError as error:
            self.status, self.stages.trouble = Status.NO_DESCENT, error

    def _weigh(self, b: StageBlocks, error: float) -> bool:
        """The next levels, as far as this one, with its `error`, is solved; False where last levels close
        nothing.
        """
        level = self.level
        while error <= SOLVED * level.mu:
            self.search.forget()
            if not level.next(self.now):
                return level.stuck < HOPELESS
            self.unseen, error = 0, level.errors(self.now, b)[1]
        return True

    def _advance(self, b: StageBlocks, near: bool, log: Log) -> Status | None:
        """One iteration, its step taken or not; a status where it was the last."""
        it, level, model = self.now, self.level, self._modelled(b, near)
        if model is None:
            return Status.NO_DESCENT
        worth = level.worth(it.point, it.s)
        d = self.newton.solve(it, model, it.point.gaps, level.remains(it.point, it.s))
        if level.relents(d):
            worth = level.worth(it.point, it.s)
            d = self.newton.solve(it, model, it.point.gaps, level.remains(it.point, it.s))
        moved, length, trials = self.search.take(it, model, d, worth, self.lin if self.exact else None)
        kind, shift = ("newton", self.shift) if self.exact else ("gauss-newton", self.damping)
        cost, descent, left = it.point.cost, d.slope / level.scale, worth.left
        log(Iteration(len(log.records), kind, shift, cost, descent, length, trials, left))
        first, factor, most = DAMPING
        if moved is None:
            if self._below_rounding(d.slope, worth.merit):
                return Status.ACCEPTABLE
            if self.exact:  # Gauss-Newton's step, next
                self.pause = self.wait
                return None
            self.damping = max(first, factor**2 * self.damping)
            return Status.LINE_SEARCH if self.damping > most else None
        self.gains = self.newton.gains.copy()
        moved.foreseen = self.stages.foreseen(b, self.lin, d.dx, d.du, it.foreseen, length)
        bent = any(y is not None for y in moved.foreseen)
        fast = bent and worth.merit - level.worth(moved.point, moved.s).merit > FALLING * abs(worth.merit)
        self.falling = fast and (moved.point.cost < it.point.cost or not len(it.y))
        self.now, self.promise = moved, -descent
        if length == 1 and self._below_rounding(d.slope, worth.merit):
            return Status.ACCEPTABLE
        self._less_shift(length == 1 and trials == 1)
        if self.search.cut:  # it counts as a short step: what the map has no steps for lies ahead
            trials = max(trials, SHORT + 1)
        self.crawled = self.crawled + 1 if trials > SHORT else 0
        if self.crawled >= CRAWLS:
            self.note = "it crawls: longer steps of the search do not lower its merit"
            if self.search.cut:
                lost = "longer steps of the search reach states from which the map has no step"
                self.note = f"it crawls: {lost}: {self.stages.trouble}"
            return Status.NO_PROGRESS
        self._damp(trials)
        return None

    def _damp(self, trials: int) -> None:
        """More damping of inputs behind a step of many trials, less behind one of few."""
        first, factor, most = DAMPING
        if trials > SHORT:
            self.relapses += self.eased
            self.damping, self.eased = min(max(first, factor * self.damping), most), False
        elif trials <= 2:
            last = GENTLE if self.relapses >= RELAPSES else first
            self.eased = 0 < self.damping <= last
            self.damping = self.damping / factor if self.damping > last else 0.0

    def _less_shift(self, whole: bool) -> None:
        """Let the least shift fall where whole steps are shifted by it and the error hardly falls."""
        (several, share, lowest), factor = SLOW, CURVED[1]
        slow = whole and self.exact and self.shift > 0 and self.error > share * self.before
        self.slow, self.before = self.slow + 1 if slow else 0, self.error
        if self.slow >= several:
            self.least = max(self.least / factor, lowest)

    def _below_rounding(self, slope: float, merit: float) -> bool:
        """Whether steps have long promised nothing that the merit's digits would show: then that is said."""
        seen = -slope > FLOOR * np.finfo(float).eps * abs(merit)
        self.unseen = 0 if seen else self.unseen + 1
        if self.unseen < HOPELESS or self.error > ROUNDED:
            return False
        self.note = f"to rounding: a slope of {slope / self.level.scale:.2g} cannot be seen in the cost"
        return True

    def _modelled(self, b: StageBlocks, near: bool) -> StageBlocks | None:
        """The blocks to step with, factored; `exact` says whether exact curvature is in them.

        `near`: that of the cost is in b, and that of map and rows is to be. It is where a shift leaves a
        minimum; not in the first iteration, in a pause, and where Gauss-Newton's steps lower the merit
        fast. None where no shift of Gauss-Newton's Hessian leaves a minimum either.
        """
        n, it, scale = b.F.shape[1], self.now, self.level.scale
        unit = float(np.einsum("kii->", b.H[:, n:, n:])) / max(1, b.g[:, n:].size)
        of_states, of_inputs = 1 / scale, unit if unit > 0 else self._price_of_limits(b)
        # what is free at the start is as an input before the first
        of_start = self.damping * of_inputs * self._free
        self.pause -= 1
        if near:
            exact = self.stages.curved(it.point, self.lin, b, it.p / scale, it.y / scale)
            shift, (_, grow, most) = 0.0, CURVED
            while shift <= most:
                if self.newton.factor(
                    it, exact, shift * of_states, (shift + self.damping) * of_inputs, of_start
                ):
                    self.wait, self.shift, self.exact = 1, shift, True
                    return exact
                shift = max(grow * shift, self.shift / grow**2, self.least)
            self.pause = self.wait = min(2 * self.wait, 8)
            b = self.stages.blocks(it.point, self.lin, False)
        self.exact = False
        shift, (first, grow, most) = 0.0, SHIFT
        while shift <= most:
            add = shift * self.level.unit
            if self.newton.factor(it, b, add, add + self.damping * of_inputs, of_start):
                return b
            shift = max(first, grow * shift)
        return None

    def _price_of_limits(self, b: StageBlocks) -> float:
        """What limits weigh inputs by (the median) where the cost does not, its unit where there are none."""
        (N, m, _), n = b.J.shape, b.F.shape[1]
        weight = self.level.weights(self.now)[: N * m].reshape(N, m)
        each = np.einsum("km,kmu->ku", weight, b.J[:, :, n:] ** 2)
        felt = each[each > 0]
        return float(np.median(felt)) / self.level.scale if len(felt) else self.level.unit
