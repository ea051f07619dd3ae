"""Newton step of a barrier subproblem, solved as a linear-quadratic problem.

Slacks and constraint multipliers are eliminated one by one; the equations are regularized, so redundant
constraints are allowed. See docs/maths/shooting.md, (IP 5) and (IP 6).
"""

from __future__ import annotations

import numpy as np

from vioc.control.shooting.stages import StageBlocks
from vioc.control.shooting.subproblem import Iterate, NewtonDirection, Subproblem
from vioc.control.stages.linear_quadratic import LinearQuadratic
from vioc.control.stages.recursion import Recursion


class Newton:
    """Newton solver of a barrier subproblem; call `factor`, then `solve`."""

    def __init__(self, subproblem: Subproblem):
        self.subproblem, stages, f = subproblem, subproblem.stages, subproblem.stages.map
        self.lq = Recursion(len(stages.lengths), f.ndx, f.nu, stages.start, subproblem.native, stages.rigid)
        self._from = np.zeros(f.ndx)
        self.gains = self.lq.gains  # (N, nu, ndx) of the last factorization

    def factor(
        self, it: Iterate, b: StageBlocks, of_states: float, of_inputs: float, of_start: np.ndarray
    ) -> bool:
        """Factor the Hessian of a Newton step after shifts are added to its diagonal.
        Return True if the linear-quadratic subproblem has a unique minimum.

        `Subproblem.hessian` documents the shifts.
        """
        M, last = self.subproblem.hessian(it, b, of_states, of_inputs, of_start)
        return self.lq.factor(LinearQuadratic(b.F, M, last, b.g, b.g_end, b.c), self.subproblem.elastic(it))

    def solve(
        self, it: Iterate, b: StageBlocks, gaps: np.ndarray, r: np.ndarray, bent: tuple | None = None
    ) -> NewtonDirection:
        """Return the Newton direction for given defects and constraint residuals.

        The last factors are used. `gaps` are the defects, and r the constraint residuals. `bent`, if given,
        is a pair of arrays, (N, q) and (ndx,), that are added to the cost's gradient.
        """
        v, g, end, c = self.subproblem.linear(it, b, gaps, r, bent)
        return self.subproblem.direction(
            it, b, r, v, self.lq.solve(LinearQuadratic(b.F, b.H, b.H_end, g, end, c), self._from)
        )
