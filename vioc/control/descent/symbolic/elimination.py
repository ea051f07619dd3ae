"""Symbolic LU factorization of small matrices, with a fixed order of the pivots.

Rows and columns are paired by a factorization with full pivoting at generic values. The graph repeats that
order on symbols and skips structural zeros. A pivot that vanishes at other values shows as inf or nan in the
result, which callers test for.
"""

from __future__ import annotations

import casadi as ca
import numpy as np


def pivot_order(matrix: np.ndarray) -> list[tuple[int, int]]:
    """Return the pivots, as (row, column), for an LU factorization of a matrix.

    They are large entries in sparse rows and columns.

    Raises
    ------
    np.linalg.LinAlgError
        If the matrix is singular to rounding.
    """
    a = np.array(matrix, float)
    a /= np.maximum(np.abs(a).max(axis=1, keepdims=True, initial=0.0), np.finfo(float).tiny)
    n, order = len(a), []
    rows, columns = list(range(n)), list(range(n))
    for _ in range(n):
        rest = np.abs(a[np.ix_(rows, columns)])
        filled = rest > 1e-12
        fill = np.outer(filled.sum(axis=1) - 1, filled.sum(axis=0) - 1)
        good = rest >= 0.1 * rest.max(axis=1, keepdims=True)  # threshold pivoting within a row
        candidates = np.where(good & filled, fill - 1e-3 * rest, np.inf)
        index = int(np.argmin(candidates))
        if not np.isfinite(candidates.flat[index]):
            raise np.linalg.LinAlgError("singular matrix")
        i, j = rows[index // len(columns)], columns[index % len(columns)]
        order.append((i, j))
        rows.remove(i)
        columns.remove(j)
        for k in rows:
            a[k] -= a[k, j] / a[i, j] * a[i]
    return order


class SymbolicLU:
    """LU factors of a square symbolic matrix, with a given order of pivots.

    Parameters
    ----------
    matrix : (n, n) SX
    order : list of (row, column)
        From `pivot_order` at a generic point.
    """

    def __init__(self, matrix: ca.SX, order: list[tuple[int, int]]):
        self._rows, self._columns = (list(places) for places in zip(*order, strict=True))
        self._lower: list[ca.SX] = []  # columns below the pivots, divided by them
        self._upper: list[ca.SX] = []  # rows right of the pivots
        self._pivots: list[ca.SX] = []
        a = ca.sparsify(ca.SX(matrix)[self._rows, self._columns])
        for _ in order:
            column, row = ca.sparsify(a[1:, 0] / a[0, 0]), a[0, 1:]
            self._pivots.append(a[0, 0])
            self._lower.append(column)
            self._upper.append(row)
            a = ca.sparsify(a[1:, 1:] - ca.mtimes(column, row))

    def solve(self, b: ca.SX) -> ca.SX:
        """Solve the linear system with this matrix for a symbolic right-hand side b."""
        done, rest = [], ca.sparsify(ca.SX(b)[self._rows, :])
        for column in self._lower:
            done.append(rest[0, :])
            rest = ca.sparsify(rest[1:, :] - ca.mtimes(column, rest[0, :]))
        x = ca.SX(0, b.shape[1])
        for pivot, row, value in zip(*map(reversed, (self._pivots, self._upper, done)), strict=True):
            x = ca.vertcat(ca.sparsify(value - ca.mtimes(row, x)) / pivot, x)
        return x[_inverse(self._columns), :]

    def solve_transposed(self, b: ca.SX) -> ca.SX:
        """Solve the linear system with the transposed matrix for a symbolic right side b."""
        done, rest = [], ca.sparsify(ca.SX(b)[self._columns, :])
        for pivot, row in zip(self._pivots, self._upper, strict=True):
            done.append(rest[0, :] / pivot)
            rest = ca.sparsify(rest[1:, :] - ca.mtimes(row.T, done[-1]))
        x = ca.SX(0, b.shape[1])
        for column, value in zip(reversed(self._lower), reversed(done), strict=True):
            x = ca.vertcat(ca.sparsify(value - ca.mtimes(column.T, x)), x)
        return x[_inverse(self._rows), :]


def _inverse(order: list[int]) -> list[int]:
    return [int(i) for i in np.argsort(order)]
