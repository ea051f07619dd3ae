"""Newton's step on a level's conditions of optimality: one linear-quadratic problem of the stages (`lq`).

Slacks and multipliers of rows are eliminated row by row, and since the equations of rows are regularized,
redundant ones may stand. See docs/maths/shooting.md, (IP 5) and (IP 6).
"""

from __future__ import annotations

import numpy as np

from vioc.control.shooting.level import Direction, Iterate, Level
from vioc.control.shooting.lq import StageQuadratic
from vioc.control.shooting.stages import Blocks


class Newton:
    """Of a level's conditions; `factor` does what depends on the Hessian, `solve` the rest."""

    def __init__(self, level: Level):
        self.level, stages, f = level, level.stages, level.stages.map
        native, steps = f.backend.name != "virtual", len(stages.lengths)
        self._lq = StageQuadratic(steps, f.ndx, f.nu, stages.start, native, stages.rigid)
        self.gains = self._lq.gains  # (N, nu, ndx), always those of the last factorization

    def weights(self, it: Iterate) -> np.ndarray:
        """omega (rows,) of (IP 6), 0 where there is no limit."""
        level, weight, (sigma, _) = self.level, np.zeros(len(it.y)), self._slacks(it)
        weight[level.equal] = 1 / level.soft
        weight[level.unequal] = sigma / (1 + level.softness[level.unequal] * sigma)
        return weight

    def _slacks(self, it: Iterate) -> tuple[np.ndarray, np.ndarray]:
        """What limits make of slacks: stiffness sigma, and the barrier's push."""
        to_low, to_high = self.level.distances(it.s)
        return it.low / to_low + it.high / to_high, self.level.mu / to_high - self.level.mu / to_low

    def factor(self, it: Iterate, b: Blocks) -> bool:
        """Whether the step's problem has one minimum."""
        N, m = b.J.shape[:2]
        M, last, weight = self.level.scale * b.H, self.level.scale * b.H_end, self.weights(it)
        if m:
            M = M + np.swapaxes(b.J, 1, 2) @ (weight[: N * m].reshape(N, m, 1) * b.J)
        if len(b.J_end):
            last = last + b.J_end.T @ (weight[N * m :, None] * b.J_end)
        return self._lq.factor(b.F, M, last, self.level.elastic(it))

    def solve(
        self, it: Iterate, b: Blocks, gaps: np.ndarray, r: np.ndarray, bent: tuple | None = None
    ) -> Direction:
        """The direction for what gaps and rows leave, by the last factors; `bent`, (N, q) and (ndx,), is
        added to the cost's gradient.
        """
        level, (sigma, push) = self.level, self._slacks(it)
        equal, unequal, (has_low, has_high) = level.equal, level.unequal, level.has
        soft, v = level.softness[unequal], np.zeros(len(it.y))
        v[equal] = level.estimate[equal] + r[equal] / level.soft
        given = r[unequal] + soft * level.estimate[unequal]
        v[unequal] = (push + sigma * given) / (1 + soft * sigma)
        g, end = level.scale * b.g, level.scale * b.g_end
        if bent is not None:
            g, end = g + level.scale * bent[0], end + level.scale * bent[1]
        by_rows, by_end = b.pulled(v)
        c = gaps + level.elastic(it) * level.gives * level.costates[1:]
        dx, du, p = self._lq.solve(g + by_rows, end + by_end, c, np.zeros(b.F.shape[1]))
        dz = np.concatenate([dx[:-1], du], axis=1)
        dh = np.concatenate([np.einsum("kmq,kq->km", b.J, dz).ravel(), b.J_end @ dx[-1]])
        y = v + self.weights(it) * dh
        left = r + dh - level.given_way(it, p, y)[1]
        to_low, to_high = level.distances(it.s)
        # of active limits ds is a small difference of large terms; by the balance of multipliers it is not
        of_unequal, stiff = y[unequal], soft * sigma > 1
        ds = np.where(stiff, (of_unequal - push) / np.where(stiff, sigma, 1.0), left[unequal])
        low = np.where(has_low, level.mu / to_low - it.low - it.low / to_low * ds, 0.0)
        high = np.where(has_high, level.mu / to_high - it.high + it.high / to_high * ds, 0.0)
        # of the nearer limit by the balance of the slack: the other way its digits are lost in s - l
        up = has_high & ((of_unequal >= 0) | ~has_low)
        high = np.where(up, of_unequal + it.low + low - it.high, high)
        low = np.where(~up, it.high + high - of_unequal - it.low, low)
        return Direction(dx, du, p, y, dh, ds, low, high)
