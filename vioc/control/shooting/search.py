"""The next iterate along a direction: trials follow the curve as trajectories, or keep its gaps; merit and
filter judge them. See docs/maths/shooting.md, "Merit and steps".
"""

from __future__ import annotations

from functools import partial

import numpy as np

from vioc.control.shooting.level import Direction, Iterate, Level, Worth
from vioc.control.shooting.newton import Newton
from vioc.control.shooting.stages import Blocks, Point
from vioc.maps.derivatives import Linearization

TRIALS = 25
HARD = 3  # trials without any steps behind which these are worth all means at first: so near there are some
MARGIN = 1e-5  # share of what is left by which a trial that leaves more must cost less
WIDEST = 0.1  # as much as such a trial may leave, in units of states, and of the rows' scales
FAITHFUL = 2.0  # of a step: how far a trajectory may be from the curve that it follows
AGAIN = 4  # iterations after which a trajectory is tried again where it did not do
SUFFICIENT = 1e-4  # share of the promised decrease that a step must reach
CORRECTIONS, CLOSER = 4, 0.5  # of a trial: how many, and what each may leave of the merit's excess for a next
SHORTER = 3  # trials that are corrected where residuals are curved
LOST = Worth(np.nan, np.nan, np.nan)  # of a trial that has no steps: neither falls nor passes


class LineSearch:
    """By Armijo's rule on a level's merit, and by a filter beside it."""

    def __init__(self, level: Level, newton: Newton):
        self.stages, self.level, self.newton = level.stages, level, newton
        self._filter: list[tuple[float, float]] = []
        self._strayed = 0  # iterations in a row whose step was no trajectory
        self._hard = HARD  # trials without steps behind which these are worth all means

    def forget(self) -> None:
        """What the filter has of another level."""
        self._filter.clear()

    def take(
        self, it: Iterate, b: Blocks, d: Direction, worth: Worth, lin: Linearization | None
    ) -> tuple[Iterate | None, float, int]:
        """The next iterate or None, its step's length, and trials. `worth` is the iterate's; `lin` is given
        where the Hessian of b is exact, for what the cost's residuals are off.
        """
        rounding = 10 * np.finfo(float).eps * abs(worth.merit)
        length, of_multipliers = d.lengths
        size = float(np.abs(d.dx).max())
        follow = self._strayed < AGAIN or not self._strayed % AGAIN
        lost, hard, gaps = not self._hard, False, it.point.open
        curved = lin is not None and any(y is not None for y in it.foreseen)
        correctable = SHORTER if curved else int(bool(len(it.y) or gaps or lin is not None))
        for trial in range(TRIALS):
            X, U = self.stages.moved(it.point, d.dx, d.du, length)
            stepped = it.s + length * d.s
            enough = worth.merit + SUFFICIENT * length * d.slope + rounding
            near = FAITHFUL * length * size if gaps else np.inf
            point = self.stages.followed(X, U, self.newton.gains, near) if follow else None
            s, of_trial = self._judged(it, point, stepped)
            followed = of_trial.merit <= enough
            if not followed and (trial or correctable or point is None):  # else halved at once
                hard = lost and trial >= self._hard
                point = self.stages.at(X, U, hard)
                lost = point is None
                s, of_trial = self._judged(it, point, stepped)
            falls = of_trial.merit <= enough
            if point is not None and (falls or self._passes(worth, of_trial)):
                if not falls:
                    self._filter.append(_corner(worth))
                self._strayed = 0 if followed else self._strayed + 1
                self._hard = max(trial - 1, 0) if hard and not followed else HARD
                return self.level.moved(it, d, point, s, length, of_multipliers), length, trial + 1
            if trial < correctable and point is not None:
                better = self._corrected(it, b, d, length, point, s, of_trial.merit, enough, lin)
                if better is not None:
                    return better, length, trial + 2
            length /= 2
        return None, 0.0, TRIALS

    def _judged(self, it: Iterate, point: Point | None, s: np.ndarray) -> tuple[np.ndarray, Worth]:
        """Slacks of a trial, and what it is worth: nothing where there is none."""
        return (s, LOST) if point is None else self.level.judged(it, point, s)

    def _passes(self, here: Worth, there: Worth) -> bool:
        """Whether a trial costs less than all iterates of this level that left no more: full steps
        along curved equations raise any merit.
        """
        if not there.price <= _corner(here)[0] or there.left > WIDEST:
            return False
        return not any(there.price >= a and there.left >= b for a, b in self._filter)

    def _corrected(self, it, b, d, length, point, s, merit, enough, lin) -> Iterate | None:
        """The step again, for what a trial's curve leaves beyond what its model said, and again for what that
        one leaves while the merit comes closer; None where it refuses the last one too.
        """
        gaps, r = it.point.gaps, self.level.remains(it.point, it.s)
        told, step = (gaps, r), length
        follow = None if len(it.y) else partial(self.stages.followed, gains=self.newton.gains)
        for _ in range(CORRECTIONS):
            of_gaps, of_rows = self.level.given_way(it, d.p, d.y)
            beyond = point.gaps - gaps + step * (told[0] - of_gaps)
            more = self.level.remains(point, s) - r + step * (told[1] - of_rows)
            bent = None
            if lin is not None:
                bent = self.stages.cost.beyond(b.slopes, lin, point.curve, step * d.dx, step * d.du)
            told = length * gaps + beyond, length * r + more
            d = self.newton.solve(it, b, *told, bent)
            step, of_multipliers = d.lengths
            X, U = self.stages.moved(it.point, d.dx, d.du, step)
            before, merit = merit, np.inf
            for trial in (follow, self.stages.at):
                found = trial(X, U) if trial else None
                s, of_trial = self._judged(it, found, it.s + step * d.s)
                if found is not None and of_trial.merit <= enough:
                    return self.level.moved(it, d, found, s, step, of_multipliers)
                merit = merit if found is None else min(merit, of_trial.merit)
            if found is None or not merit - enough <= CLOSER * (before - enough):
                return None
            point = found
        return None


def _corner(worth: Worth) -> tuple[float, float]:
    """What a trial that leaves more than an iterate must cost, and what that leaves."""
    return worth.price - MARGIN * worth.left, worth.left
