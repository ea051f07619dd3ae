"""Line search for the next iterate along a Newton direction.

A trial is either a trajectory that follows the states and inputs after the step under feedback, or these
states and inputs themselves, with defects. A merit function and a filter judge the trials. See
docs/maths/shooting.md, "Merit and steps".
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from vioc.control.costs.cost import Predicted
from vioc.control.shooting.newton_step import Newton
from vioc.control.shooting.stages import Point, StageBlocks
from vioc.control.shooting.subproblem import Iterate, Merit, NewtonDirection, Subproblem
from vioc.maps.derivatives import Linearization

TRIALS = 25
MARGIN = 1e-5  # decrease of cost that the filter asks for, over the infeasibility
WIDEST = 0.1  # largest infeasibility of a trial of the filter, in units of states and scales of constraints
PRICED = 0.03  # infeasibility of mispredicted residuals, over the root of twice their cost
FAITHFUL = 2.0  # largest distance between a curve and the trajectory that follows it, over the step
AGAIN = 4  # iterations after which trajectories are tried again after repeated rejection
# If a full step without constraints lowers the merit by this fraction of what its slope predicts, the step
# is doubled, up to the length LONGEST. The fraction is half if the quadratic model is exact. It is larger
# where the cost curves downward, or where the Hessian is shifted or damped.
STRAIGHT, LONGEST = 0.75, 64.0
SUFFICIENT = 1e-4  # fraction of the predicted decrease that a step must reach
CORRECTIONS, CLOSER = 4, 0.5  # corrections of the first trial: number, largest ratio of successive excesses
HARMLESS = 1e-10  # relative increase of the merit that rounding causes along sensitive motions
FLOOR = 10.0  # changes of the merit up to FLOOR eps times its value are rounding
LOST = Merit(np.nan, np.nan, np.nan)  # merit of a trial without steps, which merit and filter reject


class LineSearch:
    """Line search by Armijo's rule on the merit, with a filter as alternative."""

    def __init__(self, subproblem: Subproblem, newton: Newton):
        self.stages, self.subproblem, self.newton = subproblem.stages, subproblem, newton
        self._filter: list[tuple[float, float]] = []
        self._strayed = 0  # consecutive iterations whose step was not a trajectory
        self.cut = False  # True if a trial of the last step had no steps

    def forget(self) -> None:
        """Clear the filter, since its entries belong to another barrier subproblem."""
        self._filter.clear()

    def take(
        self,
        it: Iterate,
        b: StageBlocks,
        d: NewtonDirection,
        merit: Merit,
        lin: Linearization | None,
        unseen: bool,
    ) -> tuple[Iterate | None, float, int]:
        """Search along a Newton direction for the next iterate.

        Return three items: the next iterate, or None if no trial is accepted; the step length; and the number
        of trials. `merit` is the merit of the present iterate. `lin` is given if the Hessian of b is exact;
        second-order corrections then include the prediction errors of the cost's residuals. `unseen` is True
        if the predicted reduction of the merit is below its rounding error; a trial is then refused only if
        it raises the merit by more than the fraction `HARMLESS`.
        """
        rounding = (HARMLESS if unseen else 10 * np.finfo(float).eps) * abs(merit.value)
        length, of_multipliers = d.lengths
        size = float(np.abs(d.dx).max())
        gaps = it.point.open
        self.cut = False
        free = not (gaps or len(it.y))  # a trajectory without constraints: accept any rollout
        follow = self.stages.follows and (free or self._strayed < AGAIN or not self._strayed % AGAIN)
        for trial in range(TRIALS):
            X, U = self.stages.moved(it.point, d.dx, d.du, length)
            stepped = it.s + length * d.s
            enough = merit.value + SUFFICIENT * length * d.slope + rounding
            near = FAITHFUL * length * size if gaps else np.inf
            point = self.stages.followed(X, U, self.newton.gains, near) if follow else None
            s, of_trial = self._trial_merit(it, point, stepped)
            followed = point is not None and (free or of_trial.value <= enough)
            if not followed:
                follow = follow and not (gaps and point is None)  # shorter steps keep more of the defects
                point = self.stages.at(X, U)
                s, of_trial = self._trial_merit(it, point, stepped)
            if point is not None and followed and free and not trial and seen(d.slope, merit.value):
                point, of_trial, length = self._longer(it, d, point, merit, of_trial)
            if point is not None:
                if of_trial.value <= enough or self._passes(it, b, d, length, point, merit, of_trial, lin):
                    self._strayed = 0 if followed else self._strayed + 1
                    share = min(length, 1.0)  # of the way to the new multipliers
                    return self.subproblem.moved(it, d, point, s, share, of_multipliers), length, trial + 1
                if not trial and (lin is not None or len(it.y)):
                    better = self._corrected(it, b, d, length, point, s, of_trial.value, enough, lin)
                    if better is not None:
                        return better, length, trial + 2
            self.cut |= point is None
            length /= 4 if point is None else 2  # if a step does not exist, half of it seldom does
        return None, 0.0, TRIALS

    def _longer(
        self, it: Iterate, d: NewtonDirection, point: Point, here: Merit, there: Merit
    ) -> tuple[Point, Merit, float]:
        """Double the length of a full step while the merit falls almost linearly.
        Return the best trial, its merit and its step length, which is at most `LONGEST`.

        `here` is the merit of the iterate. `point` is the trial of the full step, and `there` is its merit.
        """
        length = 1.0
        while length < LONGEST and here.value - there.value >= -STRAIGHT * length * d.slope:
            X, U = self.stages.moved(it.point, d.dx, d.du, 2 * length)
            longer = self.stages.followed(X, U, self.newton.gains)
            _, of_longer = self._trial_merit(it, longer, it.s)
            if longer is None or not of_longer.value < there.value:
                break
            point, there, length = longer, of_longer, 2 * length
        return point, there, length

    def _trial_merit(self, it: Iterate, point: Point | None, s: np.ndarray) -> tuple[np.ndarray, Merit]:
        """Return slacks and merit of a trial step along the search direction.
        The merit is NaN if a step of the map cannot be computed.
        """
        return (s, LOST) if point is None else self.subproblem.trial_merit(it, point, s)

    def _passes(self, it, b, d, length, point, here: Merit, there: Merit, lin) -> bool:
        """Return True if the filter accepts a trial.

        The filter compares costs with barriers (`Merit.barrier_cost`) and violations (`Merit.violation`). The
        cost of the trial must be below that of the current iterate by at least `MARGIN` times the violation
        of this iterate. The violation of the trial must be at most `WIDEST`. The trial must have a lower cost
        or a lower violation than each entry of the filter. The entries are the iterates of this subproblem
        from which the filter accepted a step. The filter is needed since full steps along curved equations
        increase any merit. With an exact Hessian the cost's residuals are such equations, and their
        prediction errors count as violation (`_elastic`).
        """
        if lin is not None and any(rho is not None for rho in it.predicted):
            there_predicted = self.stages.predicted(b, lin, d.dx, d.du, it.predicted, length)
            here = self._elastic(b, it.predicted, it.point, here)
            there = self._elastic(b, there_predicted, point, there)
        corner = here.barrier_cost - MARGIN * here.violation, here.violation
        if not there.barrier_cost <= corner[0] or there.violation > WIDEST:
            return False
        if any(
            there.barrier_cost >= cost and there.violation >= violation for cost, violation in self._filter
        ):
            return False
        self._filter.append(corner)
        return True

    def _elastic(self, b: StageBlocks, predicted: Predicted, point: Point, merit: Merit) -> Merit:
        """Return merit, barrier cost and violation of a point, for use by the filter.
        The cost of the errors of the predicted nonlinear residuals `predicted` is subtracted from the barrier
        cost, and the magnitude of these errors counts as a violation.
        """
        cost = self.subproblem.scale * self.stages.cost.misprediction_cost(b.slopes, predicted, point.curve)
        return Merit(merit.value, merit.barrier_cost - cost, max(merit.violation, PRICED * (2 * cost) ** 0.5))

    def _promises(self, it, b, d, length, point, s, merit, enough, lin) -> bool:
        """Return True if a second-order correction is predicted to help enough.
        The correction must at least halve the difference between the merit of the trial and the largest
        acceptable merit `enough`.
        """
        after = self.subproblem.corrected(it, d, point, s, length, merit)
        if lin is not None and any(rho is not None for rho in it.predicted):
            predicted = self.stages.predicted(b, lin, d.dx, d.du, it.predicted, length)
            after -= self.subproblem.scale * self.stages.cost.misprediction_cost(
                b.slopes, predicted, point.curve
            )
        return after - enough <= CLOSER * (merit - enough)

    def _corrected(self, it, b, d, length, point, s, merit, enough, lin) -> Iterate | None:
        """Return the iterate after a second-order correction of a trial step.
        Return None if the merit rejects the corrected step.

        The Newton step is solved again with other defects and constraint residuals, so that the deviation of
        the trial from its linear model cancels. This is repeated while the merit approaches acceptance.

        The variable `given` holds the defects and residuals of the last Newton step. After a step of length
        a, the linear model predicts the defects d - a (given - delta (p+ - p^e)), where d are the defects
        before the step, and likewise the residuals; `of_gaps` and `of_rows` are the terms with delta.
        `excess_gaps` and `excess_rows` are the values at the trial minus these predictions. The next `given`
        is the step length times the first defects and residuals, plus the excess.
        """
        gaps, r = it.point.gaps, self.subproblem.residuals(it.point, it.s)
        given, step = (gaps, r), length
        near = FAITHFUL * length * float(np.abs(d.dx).max()) if it.point.open else np.inf
        follow = partial(self.stages.followed, gains=self.newton.gains, near=near)
        trials: list[Callable[..., Point | None]] = [] if len(it.y) else [follow]
        if it.point.open or len(it.y):
            trials.append(self.stages.at)
        if not trials or not self._promises(it, b, d, length, point, s, merit, enough, lin):
            return None
        dx = length * d.dx
        for _ in range(CORRECTIONS):
            of_gaps, of_rows = self.subproblem.elastic_residuals(it, d.p, d.y)
            excess_gaps = point.gaps - gaps + step * (given[0] - of_gaps)
            excess_rows = self.subproblem.residuals(point, s) - r + step * (given[1] - of_rows)
            bent = None
            if lin is not None:
                bent = self.stages.beyond(b, lin, point.curve, step * d.dx, step * d.du)
            given = length * gaps + excess_gaps, length * r + excess_rows
            d = self.newton.solve(it, b, *given, bent)
            step, of_multipliers = d.lengths
            if not np.abs(step * d.dx - dx).max() <= np.abs(dx).max():
                return None  # a correction as large as the step is beyond what the model describes
            X, U = self.stages.moved(it.point, d.dx, d.du, step)
            before, merit = merit, np.inf
            for trial in trials:
                found = trial(X, U)
                s, of_trial = self._trial_merit(it, found, it.s + step * d.s)
                if found is not None and of_trial.value <= enough:
                    return self.subproblem.moved(it, d, found, s, step, of_multipliers)
                merit = merit if found is None else min(merit, of_trial.value)
            if found is None or not merit - enough <= CLOSER * (before - enough):
                return None
            point = found
        return None


def seen(slope: float, merit: float) -> bool:
    """Return True if a predicted reduction of the merit exceeds the rounding error."""
    return bool(-slope > FLOOR * np.finfo(float).eps * abs(merit))
