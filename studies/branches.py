"""Many branches of step roots at once, followed in the step's length: for a million steps of random states.

The route is that of `studies.branch` where the length of the step grows along the branch: in increments whose
prediction is near the root, whose corrections contract and whose determinants have one sign. Increments are
halved where one of these fails. A branch for which this needs too small increments is left to
`studies.branch.Branch`.
"""

from __future__ import annotations

import casadi as ca
import numpy as np

from studies.branch import Branch
from vioc.compile.evaluate import Evaluator
from vioc.dynamics.integrators.mechanical import MechanicalMap

FIRST, SMALLEST = 1e-3, 1e-3  # share of the length at which a branch is entered, and the smallest increment
NEAR = 0.02  # largest first correction of a prediction, relative to typical rates
CONTRACTION, ROUNDING = 0.1, 1e-9  # of corrections; below the latter they are rounding errors
CORRECTIONS = 8


class Branches:
    """The branches of the steps of `f`, without inputs and prescribed variables, from many states."""

    def __init__(self, f: MechanicalMap):
        one = Branch(f)
        equations = one.equations
        x, u, dt, off, y = (
            ca.SX.sym(n, equations.numel_in(i)) for i, n in enumerate(("x", "u", "dt", "off", "y"))
        )
        left, slope = equations(x, u, dt, off, y)
        function = ca.Function("branches", [x, u, dt, off, y], [ca.densify(left), ca.densify(slope)])
        self._equations = Evaluator(f.backend.prepare(function))
        self._lacking = Evaluator(one.lacking)
        self._f, self._weights = f, one.weights

    def ends(self, X: np.ndarray) -> np.ndarray:
        """Return the next configurations (M, nd), NaN where a branch could not be followed to its end."""
        f = self._f
        M, nd, nm = len(X), f.nd, f.nm
        u, dt = np.zeros(0), np.array([f.dt])
        off = self._lacking(X, u, dt, np.zeros(nd + nm + 1))[0][:, :, 0]
        v = np.array([f.velocities(x) for x in X])
        typical = np.linalg.norm(self._weights * v, axis=1) + np.linalg.norm(self._weights)
        found, size = np.full((M, nd), np.nan), nd + nm

        def corrected(i: np.ndarray, y: np.ndarray, s: np.ndarray, near: float):
            """Return roots at shares s from predictions y, slopes, signs, soundness, first corrections."""
            sound, last, first = np.ones(len(i), bool), np.full(len(i), np.inf), np.zeros(len(i))
            done, slopes, signs = np.zeros(len(i), bool), np.zeros_like(y), np.zeros(len(i))
            for _ in range(CORRECTIONS):
                at = np.flatnonzero(sound & ~done)
                if not len(at):
                    break
                left, J = self._equations(X[i[at]], u, dt, off[i[at]], np.column_stack([y[at], s[at]]))
                regular = np.isfinite(left).all(axis=(1, 2)) & np.isfinite(J).all(axis=(1, 2))
                J[~regular] = 0.0
                signs[at] = np.linalg.slogdet(J[:, :, :size])[0]
                regular &= signs[at] != 0
                J[~regular], left[~regular] = np.eye(size, size + 1), 0.0
                moves = np.linalg.solve(J[:, :, :size], np.stack([-left[:, :, 0], -J[:, :, size]], axis=2))
                y[at] += moves[:, :, 0]
                slopes[at] = moves[:, :, 1]
                change = np.linalg.norm(self._weights * moves[:, :nd, 0], axis=1) / typical[i[at]]
                first[at] = np.where(np.isinf(last[at]), change, first[at])
                contracts = change <= np.maximum(CONTRACTION * last[at], 10 * ROUNDING)
                sound[at] = regular & (first[at] <= near) & contracts
                done[at] = change <= ROUNDING
                last[at] = change
            return y, slopes, signs, sound & done, first

        i = np.arange(M)
        y, s = np.hstack([v, np.zeros((M, nm))]), np.full(M, FIRST)
        y, slopes, sign, sound, _ = corrected(i, y, s, np.inf)
        i, y, s, slopes, sign = i[sound], y[sound], s[sound], slopes[sound], sign[sound]
        stride = np.full(len(i), 1 / 8)
        while len(i):
            ahead = np.minimum(s + stride, 1.0)
            trial = y + (ahead - s)[:, None] * slopes
            trial, after, signs, sound, first = corrected(i, trial, ahead, NEAR)
            sound &= signs == sign
            y[sound], slopes[sound], s[sound] = trial[sound], after[sound], ahead[sound]
            stride = np.where(sound, np.where(first < NEAR / 4, 2 * stride, stride), stride / 2)
            ended = s >= 1.0
            found[i[ended]] = X[i[ended], :nd] + f.dt * y[ended, :nd]
            kept = ~ended & (stride >= SMALLEST)
            i, y, s, slopes, stride, sign = (a[kept] for a in (i, y, s, slopes, stride, sign))
        return found
