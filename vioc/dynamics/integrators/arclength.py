"""Continuation of the branch of roots of a step by its arclength.

The branch of roots of a step (docs/maths/midpoint.md, "Which root is the step") folds where the length of the
step, as a function along the branch, has its first maximum. By its arclength the branch can be followed up to
the fold and beyond, so that the fold is seen. The method is a predictor along the tangent and a corrector by
Newton's method in the plane across it (Allgower and Georg, *Introduction to Numerical Continuation Methods*).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from vioc.dynamics.integrators.branch_equations import (
    CONTRACTION,
    CORRECTIONS,
    BranchEquations,
    BranchRoot,
    newton,
)

# Shares at which the branch is entered, the first of which is taken that is on a straight line with length 0
FIRST = tuple(2.0**-i for i in (7, 10, 13, 16, 19, 22, 27, 32))
STRIDE, SMALLEST = 0.02, 2.0**-32  # of arclength, in which the step's length and its typical rates are 1
STRIDES = 5000  # largest number of strides along one branch
BEND = 0.02  # largest angle between directions of the branch at the ends of a stride, rad
# A stride may change the share's component of the tangent by half of this component. Below `SLOW`, any change
# is allowed, so that the component can become negative, behind a fold.
SLOW = 1e-6
TURN = 0.45  # part of the share's growth along the branch by which a stride towards a fold may lower it
# Newton's method ends with a correction below `ROUNDING`. Corrections that no longer contract are rounding
# errors, too, below `RELATIVE_ROUNDING` of the unknowns' length and `ROUNDING_OF_STRIDE` of the stride's.
ROUNDING, RELATIVE_ROUNDING, ROUNDING_OF_STRIDE = 1e-9, 1e-6, 1e-3
ENDLESS = 1e8  # rates relative to typical ones, beyond which a branch runs to infinity
STILL = 1e-6  # displacement in a step, relative to the mechanism's size, that counts as rest
AHEAD = 1e-3  # relative increase of the share within which a singular matrix ends a branch that is stuck
ACCELERATED = 0.01  # weight, in the typical rates, of those that accelerations add within the step


class BranchPoint(NamedTuple):
    """Root on a branch.
    The vector y has the rates, the multipliers and the share of the step's length. `tangent` is the direction
    of the branch, of length 1, and `sign` the sign of the determinant of the Newton matrix.
    """

    y: np.ndarray
    tangent: np.ndarray
    sign: float


class Arc:
    """Branch of roots of a step, parametrized by its arclength.
    Lengths are measured by the rates, relative to typical ones, and by the share of the step's length.

    Parameters
    ----------
    equations : BranchEquations
    tolerance : float
        Error up to which the root at the step's length is solved.
    """

    def __init__(self, equations: BranchEquations, tolerance: float):
        self.equations, self.tolerance = equations, tolerance
        self.n, self.finite = len(equations.start), True
        self.metric = np.zeros(0)

    def follow(self, start: BranchRoot | None = None) -> BranchRoot:
        """Return the root at the step's length.
        If the branch folds before, or cannot be followed, return the last root with a growing share. The
        branch is followed from length 0, or from its root `start`.

        A stride is halved if Newton's corrections do not contract, if the directions of the branch at both
        ends or the way between them differ, or if the sign of the determinant does not belong to a growing
        share. Such a stride may lead to another branch.
        """
        last = self._at(start) if start is not None and start.share > 0 else None
        last = self._entry() if last is None else last
        if last is None:
            return self._ended(BranchRoot(self.equations.start, np.zeros(0), np.inf, 0.0, given_up=True))
        orientation, stride = last.sign, STRIDE
        for _ in range(STRIDES):
            to_end = (1.0 - last.y[-1]) / last.tangent[-1]
            length, trial = stride, None if stride >= to_end else self._stride(last, stride)
            arrives = stride >= to_end or (trial is not None and trial.y[-1] > 1.0)
            if arrives:
                length, trial = to_end, self._stride(last, to_end, True)
            angle = np.inf if trial is None else self._angle(last, trial, length, orientation)
            if trial is None or not angle <= BEND:
                stride = length / 2
                if stride >= SMALLEST:
                    continue
                if self._sign(last, AHEAD) * orientation < 0:  # other branches cross this one, as at rest
                    return self._ended(self._root(last)._replace(folds=True))
                # at the step's very end the matrix may be singular, as at a pole of spherical coordinates
                ends = 1.0 - last.y[-1] <= 4 * SMALLEST
                if ends:
                    return self._ended(self._solved(last))
                # where equations are not finite, as for half a turn in a step, their branch ends
                return self._ended(self._root(last)._replace(given_up=self.finite, folds=not self.finite))
            if trial.tangent[-1] <= 0:
                return self._ended(self._root(last)._replace(folds=True))
            if arrives:
                return self._ended(self._solved(trial))
            self.finite = True  # what was not finite farther ahead does not end the branch
            stride = length * (2.0 if angle < BEND / 4 else 1.0)
            slowing = (last.tangent[-1] - trial.tangent[-1]) / length
            if slowing * stride > TURN * trial.tangent[-1] > TURN * SLOW:  # a fold lies ahead
                stride = TURN * trial.tangent[-1] / slowing
            last = trial
            if self._length(last.y) > ENDLESS:
                return self._ended(self._root(last)._replace(folds=True))
        return self._ended(self._root(last)._replace(given_up=True))

    def _sign(self, at: BranchPoint, ahead: float) -> float:
        """Return the sign of the determinant at the rates of a point and a larger share.
        The share is larger by the fraction `ahead`, and at most 1.
        """
        matrix = self.equations(at.y[: self.n], min(1.0, (1 + ahead) * float(at.y[-1]))).matrix
        return float(np.linalg.slogdet(matrix)[0])

    def _length(self, a: np.ndarray) -> float:
        return math.sqrt(a @ (self.metric * a))

    def _root(self, at: BranchPoint) -> BranchRoot:
        return BranchRoot(at.y[: self.n], at.y[self.n : -1], np.inf, float(at.y[-1]))

    def _solved(self, near: BranchPoint) -> BranchRoot:
        """Return the root at the step's length, next to a point of the branch."""
        root, _, _ = newton(self.equations, near.y[: self.n], 1.0, self.tolerance)
        return root if root.error <= self.tolerance else self._root(near)._replace(given_up=True)

    def _ended(self, root: BranchRoot) -> BranchRoot:
        """Return the root with the error NaN if equations were not finite and the root is not solved."""
        return root if self.finite or math.isfinite(root.error) else root._replace(error=np.nan)

    def _angle(self, last: BranchPoint, trial: BranchPoint, length: float, orientation: float) -> float:
        """Return the largest angle, rad, between directions of the branch at the ends of a stride.
        It is infinite if the share's growth changes too much to exclude a fold between, or if the sign of
        the determinant is not that of a branch with this `orientation`.
        """
        way = (trial.y - last.y) / self._length(trial.y - last.y)
        growth = last.tangent[-1]
        if abs(trial.tangent[-1] - growth) > max(growth / 2, SLOW):
            return np.inf
        if trial.sign * np.sign(trial.tangent[-1]) != orientation:
            return np.inf
        off = max(self._length(way - last.tangent), self._length(trial.tangent - way))
        return max(self._length(trial.tangent - last.tangent), 2 * (off - 2 * ROUNDING / length))

    def _entry(self) -> BranchPoint | None:
        """Return a first root, up to which the branch is straight from length 0, and set the metric.
        The result is None if there is none.
        """
        equations, n = self.equations, self.n
        for share in FIRST:
            now = equations(equations.start, share)
            first = self._solution(now.matrix, -now.residual)
            if first is None:
                continue
            multipliers = np.zeros(len(first) - n)
            self._measure(first[:n] / share, len(multipliers))
            begin = np.concatenate([equations.start, multipliers, [0.0]])
            slope = np.append(first / share, 1.0)
            size = self._length(slope)
            found = self._corrected(begin + share * slope, slope / size, share * size, True)
            if found is not None:
                lines = found.tangent / found.tangent[-1], (found.y - begin) / share
                if max(self._length(line - slope) for line in lines) <= BEND * size:
                    return found
        return None

    def _at(self, root: BranchRoot) -> BranchPoint | None:
        """Return a root as a point of the branch, and set the metric; None if Newton's method rejects it."""
        solved, _, _ = newton(self.equations, root.w, root.share, self.tolerance)
        if not solved.error <= self.tolerance:
            return None
        self._measure((solved.w - self.equations.start) / solved.share, len(solved.multipliers))
        y = np.concatenate([solved.w, solved.multipliers, [solved.share]])
        return self._corrected(y, np.append(np.zeros(len(y) - 1), 1.0), STRIDE, True)

    def _measure(self, added: np.ndarray, multipliers: int) -> None:
        """Set the metric, by the rates at the start and those `added` by accelerations over the step."""
        weights = self.equations.weights
        speed, more = (float(np.linalg.norm(weights * w)) for w in (self.equations.start, added))
        least = float(np.linalg.norm(weights / self.equations.size))  # a displacement of the mechanism's size
        typical = max(speed + ACCELERATED * more, STILL * least)
        self.metric = np.concatenate([weights / typical, np.zeros(multipliers), [1.0]]) ** 2

    def _stride(self, last: BranchPoint, length: float, fixed_share: bool = False) -> BranchPoint | None:
        return self._corrected(last.y + length * last.tangent, last.tangent, length, fixed_share)

    def _corrected(
        self, y: np.ndarray, along: np.ndarray, length: float, fixed_share: bool
    ) -> BranchPoint | None:
        """Return the root near a prediction y, or None if corrections do not contract.
        The prediction is at the end of a stride of some length with the direction `along`. Corrections are
        across this direction, or with `fixed_share` they leave the share as it is.
        """
        equations, n, before = self.equations, self.n, np.inf
        by_share = np.append(np.zeros(len(y) - 1), 1.0)
        across = by_share if fixed_share else self.metric * along
        for _ in range(CORRECTIONS):
            w, multipliers, share = y[:n], y[n:-1], float(y[-1])
            if not share > 0:
                return None
            now = equations(w, share)
            residual = now.residual + now.matrix[:, n:] @ multipliers
            rate = equations.rate_by_share(w, multipliers, share)
            matrix = np.vstack([np.column_stack([now.matrix, rate]), across])
            step = self._solution(matrix, np.column_stack([np.append(-residual, 0.0), by_share]))
            if step is None:
                return None
            y, size = y + step[:, 0], self._length(step[:, 0])
            slow = not size <= CONTRACTION * before
            rounding = min(ROUNDING_OF_STRIDE * length, RELATIVE_ROUNDING * self._length(y))
            if size <= ROUNDING or (slow and size <= rounding):
                tangent = step[:, 1] / self._length(step[:, 1])
                sign = float(np.linalg.slogdet(now.matrix)[0])
                return BranchPoint(y, tangent * np.sign(tangent @ (self.metric * along)), sign)
            if slow:
                return None
            before = size
        return None

    def _solution(self, matrix: np.ndarray, right: np.ndarray) -> np.ndarray | None:
        """Return the solution of a linear system, or None if there is none; note if it is not finite."""
        if not (np.isfinite(matrix).all() and np.isfinite(right).all()):
            self.finite = False
            return None
        try:
            return np.linalg.solve(matrix, right)
        except np.linalg.LinAlgError:
            return None
