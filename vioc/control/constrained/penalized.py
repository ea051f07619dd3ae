"""A cost plus penalties of rows, whose weights are data."""

from __future__ import annotations

from collections.abc import Callable

import casadi as ca
import numpy as np

from vioc.control.constrained.penalties import equation
from vioc.control.constrained.rows import Rows
from vioc.control.costs.cost import Cost
from vioc.control.costs.squares import Squares

Penalty = Callable[[ca.SX, ca.SX, ca.SX], ca.SX]


class Penalized:
    """One cost for all weights: limits, weights and shifts of the rows are references.

    Parameters
    ----------
    cost : Cost
    rows : Rows
    penalty : callable
        phi of `penalties` for the inequalities; equations have their own.
    """

    def __init__(self, cost: Cost, rows: Rows, penalty: Penalty):
        self.cost, self.rows, f, n = cost, rows, rows.map, rows.steps
        x, u, lam, theta, dt = f.symbols
        own = ca.SX.sym("reference", cost.reference_size)
        limit, weight, shift = (ca.SX.sym(name, len(rows)) for name in ("limit", "weight", "shift"))
        self._fixed = np.concatenate(
            [cost.reference_rows(n), *rows.data, np.column_stack([r.limit for r in rows.rows])], axis=1
        )
        h, phi, s = ca.SX.sym("h"), ca.SX.sym("weight"), ca.SX.sym("shift")
        functions = []
        for kind in (penalty, equation):
            value = kind(h, phi, s)
            functions.append(ca.Function("phi", [h, phi, s], [value, ca.hessian(value, h)[0]]))
        args = [x, u, lam, theta, dt, own]
        running, terminal = cost.running_squares(*args), cost.terminal_squares(*args)
        end_weight = f.dt if cost.per_time else 1.0
        for i, row in enumerate(rows.rows):
            c = rows.constraints[row.group]
            residual = row.sign * (c.expression[row.entry] - limit[i]) / row.scale
            value, curvature = functions[row.side == 0](residual, weight[i], shift[i])
            if c.where != "end":
                running += Squares.convex(value, residual, curvature)
            if row.present[n]:
                w = 1.0 if c.where == "end" else end_weight
                terminal += Squares.convex(w * value, residual, w * curvature)
        symbols = ca.vertcat(own, *rows.symbols, limit, weight, shift)
        first = np.ones((n + 1, symbols.numel()))
        self._latest = Cost(
            f,
            running,
            terminal,
            references=[(symbols, first)],
            per_time=cost.per_time,
        )

    def at(self, weight: np.ndarray, shift: np.ndarray) -> Cost:
        """The cost with weights and shifts (N+1, rows); absent samples of a row are left out."""
        weight = np.where(self.rows.present, weight, 0.0)
        self._latest = self._latest.with_references(np.concatenate([self._fixed, weight, shift], axis=1))
        return self._latest
