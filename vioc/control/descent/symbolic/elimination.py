"""Elimination of small systems inside CasADi graphs, in an order that is fixed when the graph is built.

Rows and columns are paired by a factorization with full pivoting at generic numbers; the graph then
repeats that order on symbols and skips what is zero by structure. A pivot that vanishes at other numbers
shows as inf or nan in the result, which callers test for.
"""

from __future__ import annotations

import casadi as ca
import numpy as np

Rows = list[dict[int, ca.SX]]  # one dict {column: entry} per row, nothing stored where it is zero


def pivot_order(matrix: np.ndarray) -> list[tuple[int, int]]:
    """(row, column) of each pivot: the largest entry left, cheap ones (few entries in row and column) first.

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
        left = np.abs(a[np.ix_(rows, columns)])
        filled = left > 1e-12
        fill = np.outer(filled.sum(axis=1) - 1, filled.sum(axis=0) - 1)
        good = left >= 0.1 * left.max(axis=1, keepdims=True)  # within a row: threshold pivoting
        candidates = np.where(good & filled, fill - 1e-3 * left, np.inf)
        at = int(np.argmin(candidates))
        if not np.isfinite(candidates.flat[at]):
            raise np.linalg.LinAlgError("singular matrix")
        i, j = rows[at // len(columns)], columns[at % len(columns)]
        order.append((i, j))
        rows.remove(i)
        columns.remove(j)
        for k in rows:
            a[k] -= a[k, j] / a[i, j] * a[i]
    return order


class SymbolicLU:
    """Factors of a square SX matrix, eliminated in a given order.

    Parameters
    ----------
    matrix : (n, n) SX
    order : list of (row, column)
        Of `pivot_order` at a generic point.
    """

    def __init__(self, matrix: ca.SX, order: list[tuple[int, int]]):
        self.order = order
        self._rows = _sparse_rows(matrix)
        rows = self._rows
        for step, (i, j) in enumerate(order):
            for k, _ in order[step + 1 :]:
                if j not in rows[k]:
                    continue
                factor = rows[k][j] = rows[k][j] / rows[i][j]
                for _, c in order[step + 1 :]:
                    if c in rows[i]:
                        rows[k][c] = rows[k].get(c, 0) - factor * rows[i][c]

    def solve(self, b: ca.SX) -> ca.SX:
        """X with matrix X = b; b of n rows."""
        columns = [_sparse_column(b, c) for c in range(b.shape[1])]
        return _from_columns([self._solve(c) for c in columns], len(self.order))

    def solve_transposed(self, b: ca.SX) -> ca.SX:
        """X with matrix' X = b."""
        columns = [_sparse_column(b, c) for c in range(b.shape[1])]
        return _from_columns([self._solve_transposed(c) for c in columns], len(self.order))

    def _solve(self, b: dict[int, ca.SX]) -> dict[int, ca.SX]:
        rows, order = self._rows, self.order
        for step, (i, j) in enumerate(order):
            if i in b:
                for k, _ in order[step + 1 :]:
                    if j in rows[k]:
                        b[k] = b.get(k, 0) - rows[k][j] * b[i]
        x: dict[int, ca.SX] = {}
        for step in reversed(range(len(order))):
            i, j = order[step]
            value = b.get(i)
            for _, c in order[step + 1 :]:
                if c in rows[i] and c in x:
                    value = (0 if value is None else value) - rows[i][c] * x[c]
            if value is not None:
                x[j] = value / rows[i][j]
        return x

    def _solve_transposed(self, b: dict[int, ca.SX]) -> dict[int, ca.SX]:
        rows, order = self._rows, self.order
        y: dict[int, ca.SX] = {}
        for step, (i, j) in enumerate(order):  # U' y = b
            value = b.get(j)
            for k, _ in order[:step]:
                if j in rows[k] and k in y:
                    value = (0 if value is None else value) - rows[k][j] * y[k]
            if value is not None:
                y[i] = value / rows[i][j]
        for step in reversed(range(len(order))):  # L' x = y
            i, j = order[step]
            for k, _ in order[step + 1 :]:
                if j in rows[k] and k in y:
                    y[i] = y.get(i, 0) - rows[k][j] * y[k]
        return y


def symmetric_solve(G: ca.SX, b: ca.SX) -> tuple[ca.SX, ca.SX]:
    """G^-1 b and the pivots of G = L D L', G symmetric; it is positive definite if all pivots are > 0."""
    n = G.shape[0]
    L, D = ca.SX.eye(n), list[ca.SX]()
    for j in range(n):
        D.append(G[j, j] - sum((L[j, k] ** 2 * D[k] for k in range(j)), ca.SX(0)))
        for i in range(j + 1, n):
            L[i, j] = (G[i, j] - sum((L[i, k] * L[j, k] * D[k] for k in range(j)), ca.SX(0))) / D[j]
    rows = [b[i, :] for i in range(n)]
    for i in range(n):
        for k in range(i):
            rows[i] -= L[i, k] * rows[k]
    rows = [row / d for row, d in zip(rows, D, strict=True)]
    for i in reversed(range(n)):
        for k in range(i + 1, n):
            rows[i] -= L[k, i] * rows[k]
    return ca.vertcat(*rows), ca.vertcat(*D)


def _sparse_rows(matrix: ca.SX) -> Rows:
    matrix = ca.sparsify(matrix)
    rows: Rows = [{} for _ in range(matrix.shape[0])]
    for i, j in zip(*matrix.sparsity().get_triplet(), strict=True):
        rows[i][j] = matrix[i, j]
    return rows


def _sparse_column(matrix: ca.SX, c: int) -> dict[int, ca.SX]:
    column = ca.sparsify(matrix[:, c])
    return {i: column[i] for i in column.sparsity().get_triplet()[0]}


def _from_columns(columns: list[dict[int, ca.SX]], n: int) -> ca.SX:
    result = ca.SX(n, len(columns))
    for c, column in enumerate(columns):
        for i, value in column.items():
            result[i, c] = value
    return result
