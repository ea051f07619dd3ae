"""Primal-dual interior-point search for trajectories, by multiple shooting.

Unknowns are the states and inputs of all stages (the first state only along its free directions) and a slack
s for every inequality:

    minimize  g(X, U)  subject to  x_k+1 = f(x_k, u_k),  h_E = a_E,  h_I - s = 0,  a <= s <= b.

The merit function is an augmented Lagrangian. An iteration regularizes the Hessian until the subproblem has
a minimum, computes Newton's step on the conditions of optimality of a barrier subproblem (`newton_step`) and
searches along it for the next iterate (`search`). When a barrier subproblem is solved, the next one begins
(`subproblem`). See docs/maths/shooting.md, whose equations are numbered (IP).
"""

from __future__ import annotations

import numpy as np

from vioc.control.problem.result import Iteration, Log
from vioc.control.problem.status import Status
from vioc.control.shooting.compiled import newton_of
from vioc.control.shooting.search import LineSearch, seen
from vioc.control.shooting.stages import StageBlocks
from vioc.control.shooting.subproblem import Iterate, Subproblem
from vioc.errors import OptimizationError, StepError

SOLVED = 10.0  # KKT residual over the barrier parameter at which a barrier subproblem counts as solved
SOFTNESS = 1e-4, 1e-2, 1e-6  # first regularizations of constraints and defects: the usual one, alternatives
SHIFT = 1e-4, 8.0, 1e12  # Gauss-Newton shift, in units of the cost: first, growth factor, largest
CURVED = 1e-4, 4.0, 1e6  # exact-Hessian shift, in units of the scaled cost: smallest, growth factor, largest
SLOW = 3, 0.5, 1e-10  # smallest shift falls: full shifted steps in a row, ratio of KKT residuals, lower bound
FALLING = 0.25  # relative decrease of the merit above which Gauss-Newton steps are preferred
SHORT = 4  # trials above which input damping grows, also after a trial without a step; it falls after 1 or 2
CRAWLS = 8  # consecutive short steps after which the search ends
DAMPING = 1.0, 10.0, 1e8  # damping of inputs, over their mean weight: first, factor, largest
# After RELAPSES renewals of damping just after its end, damping is reduced below GENTLE before it ends. This
# avoids a cycle of full steps with damping and short steps without it.
RELAPSES, GENTLE = 3, 0.05
ROUNDED = 1e-5  # KKT residual that is acceptable where changes of the merit are rounding
AT_ROUNDING = 8  # full or refused steps in a row that predict a reduction below rounding and end a search
# A subproblem with the smallest mu and delta is repeated with new multiplier estimates. The search ends
# after HOPELESS repetitions in a row without progress in feasibility.
HOPELESS = 3
# Multiplier estimates are renewed if a curve keeps its violation, up to this ratio, for so many accepted
# steps, and the last step has at least this length
STALLED = 0.9, 15, 0.5
# A search is near an optimum if a step from a trajectory predicts a smaller reduction than this fraction of
# the cost and of the reduction so far, and constraints are violated by less than this fraction of their
# scales
NEARLY = 0.05


class Interior:
    """Interior-point search for an optimal trajectory; `now` is the current iterate.

    `iterate` repeats: linearize the map at the current iterate, compute the KKT residual, begin the next
    barrier subproblem if this one is solved (`_next_subproblem`), and do one search step (`_advance`).

    Parameters
    ----------
    subproblem : Subproblem
        The first barrier subproblem. A search that fails may succeed with another delta of `SOFTNESS`.
    X, U : (N+1, nx), (N, nu)
        The guess; X[0] changes only along the free directions of the start.
    duals : (rows,), optional
        Multiplier estimates of the constraints, from a search with the cost scale of `subproblem`.
    rolled : bool
        Treat a guess whose defects are rounding errors as a trajectory.

    Attributes
    ----------
    pause, wait : int
        Remaining iterations without the exact Hessian; length of the last such pause. The length doubles, up
        to 8, each time that no shift makes the exact Hessian positive definite. It is 1 after an exact step.
    falling : bool
        The last step reduced the merit fast, so a Gauss-Newton step follows.
    exact : bool
        The last step used the exact Hessian.
    shift, least : float
        Shift of the last exact Hessian's diagonal, and the smallest positive shift that is tried.
    slow : int
        Consecutive full steps with a shift that reduced the KKT residual slowly; `least` falls after `SLOW`.
    before : float
        KKT residual before the last accepted step.
    damping : float
        Term on the Hessian's diagonal for the inputs, in units of their mean weight.
    eased, relapses : bool, int
        The last step ended the damping; number of times that damping began again just after its end.
    begun : bool
        The scale of the cost is known. A search that continues keeps it.
    at_rounding : int
        Consecutive full, longer or refused steps that predicted a reduction of the merit below its rounding
        error. Shorter steps are not counted; the next subproblem sets the count to 0.
    unseen : bool
        True if the last step predicted a reduction of the merit below its rounding error.
    crawled : int
        Consecutive short steps.
    stalled, violation : int, float
        Number of accepted steps in which the violation of a curve hardly changed, and its value before them.
    promise : float
        Predicted reduction of the last accepted step, in units of the cost.

    Raises
    ------
    OptimizationError
        If a step of the guess does not exist or its cost is not finite.
    """

    def __init__(
        self,
        subproblem: Subproblem,
        X: np.ndarray,
        U: np.ndarray,
        duals: np.ndarray | None = None,
        rolled: bool = False,
    ):
        self.subproblem, self.stages, self.warm = subproblem, subproblem.stages, duals is not None
        point = self.stages.at(X, U)
        if point is None:
            raise OptimizationError(f"the guess has no steps: {self.stages.trouble}")
        point = point.closed() if rolled else point
        self.newton = newton_of(subproblem)
        self.search = LineSearch(subproblem, self.newton)
        s = subproblem.inside(point.rows)
        y = np.zeros(len(point.rows)) if duals is None else duals.copy()
        self.now = Iterate(point, np.zeros_like(subproblem.costates), y, s, *subproblem.multipliers(s))
        self.damping, self.shift, self.promise = 0.0, 0.0, np.nan
        self.eased, self.relapses = False, 0
        self.least, self.slow, self.before = CURVED[0], 0, np.inf
        self.pause, self.wait = int(not self.warm), 1
        self.falling = self.exact = False
        self.at_rounding = self.crawled = self.stalled = 0
        self.violation = np.inf
        self.begun = self.unseen = False
        self._highest = -np.inf  # largest cost of a trajectory of this search
        self.status: Status | None = None
        self.note, self.error = "", np.inf
        self.gains = np.zeros_like(self.newton.gains)
        self._free = self.stages.start.any(axis=1).astype(float)  # 1 for states that are free at the start

    def iterate(self, max_iterations: int, log: Log) -> None:
        """Iterate until the problem is solved or the search fails; set `status`.

        A search that ended at its largest number of iterations continues where it was.
        """
        self.status = None
        try:
            for i in range(max_iterations + 1):
                it = self.now
                self._highest = max(self._highest, -np.inf if it.point.open else it.point.cost)
                self.lin = self.stages.map.derivatives.linearize(it.point.steps)
                try_exact = self.pause <= 0 and not self.falling
                b = self.stages.blocks(it.point, self.lin, try_exact, it.predicted)
                if not self.begun:
                    self.begun = True
                    self.subproblem.begin_scale(it, b)
                    if self.warm:
                        it = self.now = self.subproblem.begin_near(it, b, self._first_gains())
                self.error, of_subproblem = self.subproblem.errors(it, b)
                if self.unseen and self.error > self.subproblem.tolerance:
                    it = self._with_adjoint(b)
                    self.error, of_subproblem = self.subproblem.errors(it, b)
                if self.error <= self.subproblem.tolerance and (
                    small := self.subproblem.scaled_up(it, b, self.newton.gains)
                ):
                    it = self.now = small
                    self.search.forget()  # the filter's entries have the former cost scale
                    self.error, of_subproblem = self.subproblem.errors(it, b)
                if self.error <= self.subproblem.tolerance:
                    self.status = Status.CONVERGED
                elif not self._next_subproblem(b, of_subproblem):
                    self.status = Status.INFEASIBLE
                elif i == max_iterations:
                    self.status = Status.MAX_ITERATIONS
                else:
                    self.status = self._advance(b, try_exact, log)
                if self.status:
                    return
        except StepError as error:
            self.status, self.note = Status.NO_DESCENT, f"the iterate has no derivatives: {error}"

    def _first_gains(self) -> np.ndarray:
        """Return stabilizing gains (N, nu, ndx) for the guess of a warm start.
        They are those of a Gauss-Newton step.
        """
        b = self.stages.blocks(self.now.point, self.lin, False)
        self.newton.factor(self.now, b, 0.0, 0.0, np.zeros_like(self._free))
        return self.newton.gains

    @property
    def near(self) -> bool:
        """True if the iterate seems to be near an optimum.
        It is then a trajectory that nearly satisfies the constraints, and the last step predicted that the
        cost falls by a small fraction.
        """
        it = self.now
        small = NEARLY * min(abs(it.point.cost), self._highest - it.point.cost)
        return bool(
            not it.point.open
            and self.subproblem.merit(it.point, it.s).violation <= NEARLY
            and self.promise <= small
        )

    def _with_adjoint(self, b: StageBlocks) -> Iterate:
        """Replace the costates by those of the adjoint recursion if this helps.
        It does if the iterate then is an optimum, or if the KKT residual falls from above `ROUNDED` to below.
        Return the iterate, changed or not.

        The method is called after a step whose predicted reduction of the merit is below rounding: the KKT
        residual may then consist of rounding errors of the Riccati recursion, or of costates that only full
        steps would bring to their values. If neither is so, the costates of Newton's step stay, since the
        exact Hessian of the next step uses them.
        """
        adjoint = self.subproblem.with_adjoint(self.now, b, self.newton.gains)
        error, _ = self.subproblem.errors(adjoint, b)
        if error <= self.subproblem.tolerance or error <= ROUNDED < self.error:
            self.now = adjoint
        return self.now

    def _next_subproblem(self, b: StageBlocks, error: float) -> bool:
        """Begin the next barrier subproblem if the present one is solved.
        Return False if the search should end: after `HOPELESS` subproblems in a row that did not reduce the
        constraint violation enough.

        `error` is the KKT residual of the present subproblem. If the next one counts as solved at once, the
        one after it begins. If mu and delta cannot fall, only the multiplier estimates change.
        """
        subproblem = self.subproblem
        while error <= SOLVED * subproblem.mu:
            self.search.forget()
            if not subproblem.next(self.now):
                return subproblem.stuck < HOPELESS
            self.at_rounding = self.stalled = 0
            error = subproblem.errors(self.now, b)[1]
        return True

    def _advance(self, b: StageBlocks, try_exact: bool, log: Log) -> Status | None:
        """Do one iteration of the search; return its status if it ends, else None.

        1. `_modelled` factors the Hessian of the subproblem: exact if `try_exact` and some shift makes it
           positive definite, else Gauss-Newton's.
        2. `Newton.solve` eliminates slacks and constraints and solves the linear-quadratic subproblem. If
           bounds cut the step short just after mu has fallen, mu is raised in part and the step solved again
           (`Subproblem.raise_mu`).
        3. `LineSearch.take` reduces the step length until the merit or the filter accepts a trial. A trial is
           a rollout with the gains of the subproblem, else a curve with its defects. If the first trial is
           refused, a second-order correction is tried, except for a Gauss-Newton step without constraints.
        4. A refused exact step makes Gauss-Newton steps follow, for `pause` iterations. A refused
           Gauss-Newton step raises the damping of the inputs; beyond the largest damping the search ends.
        5. An accepted step updates the multipliers, the predicted residuals of the cost, the smallest shift,
           the damping and, if the violation has stalled, the multiplier estimates. It ends the search at
           rounding, or after `CRAWLS` short steps in a row.

        The iterate stays where it is if no step is accepted.
        """
        it, subproblem, model = self.now, self.subproblem, self._modelled(b, try_exact)
        if model is None:
            return Status.NO_DESCENT
        merit = subproblem.merit(it.point, it.s)
        d = self.newton.solve(it, model, it.point.gaps, subproblem.residuals(it.point, it.s))
        if subproblem.raise_mu(d):
            merit = subproblem.merit(it.point, it.s)
            d = self.newton.solve(it, model, it.point.gaps, subproblem.residuals(it.point, it.s))
        self.unseen = not seen(d.slope, merit.value)
        small = self.unseen and self.error <= ROUNDED
        moved, length, trials = self.search.take(it, model, d, merit, self.lin if self.exact else None, small)
        # the record's field `shift` is the damping for Gauss-Newton steps
        kind, shift = ("newton", self.shift) if self.exact else ("gauss-newton", self.damping)
        cost, descent, violation = it.point.cost, d.slope / subproblem.scale, merit.violation
        log(Iteration(len(log.records), kind, shift, cost, descent, length, trials, violation))
        first, factor, most = DAMPING
        if moved is None:
            if self._below_rounding(d.slope, merit.value):
                return Status.ACCEPTABLE
            if self.exact:  # continue with a Gauss-Newton step
                self.pause = self.wait
                return None
            self.damping = max(first, factor**2 * self.damping)
            return Status.LINE_SEARCH if self.damping > most else None
        self.gains = self.newton.gains.copy()
        moved.predicted = self.stages.predicted(b, self.lin, d.dx, d.du, it.predicted, min(length, 1.0))
        bent = any(y is not None for y in moved.predicted)
        fast = bent and merit.value - subproblem.merit(moved.point, moved.s).value > FALLING * abs(
            merit.value
        )
        self.falling = fast and (moved.point.cost < it.point.cost or not len(it.y))
        self.now, self.promise = moved, -descent
        if length >= 1 and self._below_rounding(d.slope, merit.value):
            return Status.ACCEPTABLE
        self._less_shift(length >= 1 and trials == 1)
        if self.search.cut:  # the step counts as short, since the map has no step beyond it
            trials = max(trials, SHORT + 1)
        self.crawled = self.crawled + 1 if trials > SHORT else 0
        if self.crawled >= CRAWLS:
            self.note = "the search makes only short steps: longer ones do not lower the merit"
            if self.search.cut:
                lost = "longer ones reach states from which the map has no step"
                self.note = f"the search makes only short steps: {lost}: {self.stages.trouble}"
            return Status.NO_PROGRESS
        self._damp(trials)
        self._renew_estimates(length)
        return None

    def _renew_estimates(self, length: float) -> None:
        """Renew the multiplier estimates if the violation of a curve has stalled.

        A curve has defects. At the minimum of the subproblem they are delta (p - p^e), where p - p^e is the
        error of the costate estimates. Steps with such defects improve the curve, but its violation falls
        only with new estimates. `length` is the length of the last step.
        """
        ratio, steps, full = STALLED
        left = self.subproblem.merit(self.now.point, self.now.s).violation
        stays = ratio * left <= self.violation <= left / ratio
        kept = self.now.point.open and left > self.subproblem.tolerance and stays
        self.stalled = self.stalled + 1 if kept else 0
        self.violation = self.violation if kept else left
        if self.stalled >= steps and length >= full:
            self.search.forget()
            self.subproblem.renew(self.now)
            self.at_rounding = self.stalled = 0

    def _damp(self, trials: int) -> None:
        """Adapt the damping of inputs to the number of trials of a line search.
        Damping is a positive term on the diagonal of the Hessian with respect to the inputs. It increases
        after many trials, and decreases after few trials.
        """
        first, factor, most = DAMPING
        if trials > SHORT:
            self.relapses += self.eased
            self.damping, self.eased = min(max(first, factor * self.damping), most), False
        elif trials <= 2:
            last = GENTLE if self.relapses >= RELAPSES else first
            self.eased = 0 < self.damping <= last
            self.damping = self.damping / factor if self.damping > last else 0.0

    def _less_shift(self, whole: bool) -> None:
        """Reduce the smallest shift of the exact Hessian if steps converge slowly.
        A shift is a positive term that is added to the diagonal of the Hessian. Only full steps with a shift
        are considered; `whole` is True if the last step was full.
        """
        (several, share, lowest), factor = SLOW, CURVED[1]
        slow = whole and self.exact and self.shift > 0 and self.error > share * self.before
        self.slow, self.before = self.slow + 1 if slow else 0, self.error
        if self.slow >= several:
            self.least = max(self.least / factor, lowest)

    def _below_rounding(self, slope: float, merit: float) -> bool:
        """Return True if the search has reached the rounding error of the merit.
        This is so if `AT_ROUNDING` consecutive steps predict reductions of the merit below its rounding
        error, and the KKT residual is at most `ROUNDED`.

        The method must be called only after full steps and after steps that the line search refused; other
        steps do not count. If it returns True, it sets `note`.
        """
        self.at_rounding = 0 if seen(slope, merit) else self.at_rounding + 1
        if self.at_rounding < AT_ROUNDING or self.error > ROUNDED:
            return False
        self.note = (
            f"to rounding: the slope {slope / self.subproblem.scale:.2g} is below the cost's precision"
        )
        return True

    def _modelled(self, b: StageBlocks, try_exact: bool) -> StageBlocks | None:
        """Return the quadratic model of the next step, after factoring its Hessian.
        Return None if no shift makes the Hessian positive definite.

        With `try_exact`, `b` holds the exact Hessian of the cost, and the second derivatives of map and
        constraints are added. Growing shifts of the diagonal are tried until the Hessian of the subproblem is
        positive definite. If none suffices, this step and those of a pause use the Gauss-Newton Hessian.
        `try_exact` is false in the first iteration except after a warm start, during a pause, and after a
        step that reduced the merit fast. The attribute `exact` tells which Hessian was used.
        """
        n, it, scale = b.F.shape[1], self.now, self.subproblem.scale
        unit = float(np.einsum("kii->", b.H[:, n:, n:])) / max(1, b.g[:, n:].size)
        of_states, of_inputs = 1 / scale, unit if unit > 0 else self._unit_from_limits(b)
        # a free initial state is damped like an input before the first step
        of_start = self.damping * of_inputs * self._free
        self.pause -= 1
        if try_exact:
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
            add = shift * self.subproblem.unit
            if self.newton.factor(it, b, add, add + self.damping * of_inputs, of_start):
                return b
            shift = max(first, grow * shift)
        return None

    def _unit_from_limits(self, b: StageBlocks) -> float:
        """Return the unit of the inputs' damping if the cost does not penalize inputs.
        Damping adds a multiple of this unit to the diagonal of the Hessian with respect to the inputs.

        It is the median weight of the inputs in the barrier terms, or the unit of the cost if no inequality
        contains inputs.
        """
        (N, m, _), n = b.J.shape, b.F.shape[1]
        weight = self.subproblem.weights(self.now)[: N * m].reshape(N, m)
        each = np.einsum("km,kmu->ku", weight, b.J[:, :, n:] ** 2)
        felt = each[each > 0]
        return float(np.median(felt)) / self.subproblem.scale if len(felt) else self.subproblem.unit
