"""Factorizing small structured matrices inside CasADi graphs.

LU without pivoting on SX scalars, by position in the sparsity pattern. It is made for matrices that a
mass matrix dominates; the elimination runs from the last row to the first, because q lists parents
before children and leaves-to-root order on a tree makes no fill-in. A zero pivot shows as inf or NaN
in the result, which callers test for.
"""

from __future__ import annotations

from typing import Any

import casadi as ca

from vioc.dynamics import vectors as vec


class SparseLU:
    """Factors of an n x n matrix given as nested lists of scalars.

    Parameters
    ----------
    rows : list of lists of SX or float
    """

    def __init__(self, rows: list[list[Any]]):
        n = len(rows)
        self.n = n
        self._a = [list(row) for row in rows]
        a = self._a
        for k in reversed(range(n)):
            for i in range(k):
                if vec.is_zero(a[i][k]):
                    continue
                a[i][k] = a[i][k] / a[k][k]
                for j in range(k):
                    a[i][j] = vec.minus(a[i][j], vec.times(a[i][k], a[k][j]))

    @property
    def pivots(self) -> list[Any]:
        return [self._a[i][i] for i in range(self.n)]

    def solve(self, b: list[Any]) -> list[Any]:
        """x with A x = b."""
        a, n = self._a, self.n
        x = list(b)
        for k in reversed(range(n)):
            for i in range(k):
                x[i] = vec.minus(x[i], vec.times(a[i][k], x[k]))
        for k in range(n):
            for j in range(k):
                x[k] = vec.minus(x[k], vec.times(a[k][j], x[j]))
            x[k] = 0.0 if vec.is_zero(x[k]) else x[k] / a[k][k]
        return x

    # The factors travel between CasADi functions as one vector.

    def entries(self) -> list[Any]:
        """The factors that are not zero by structure, row by row."""
        return [e for row in self._a for e in row if not vec.is_zero(e)]

    def with_entries(self, values: list[Any]) -> SparseLU:
        """The same structure with other numbers, in the order of `entries`."""
        result = object.__new__(SparseLU)
        result.n = self.n
        supply = iter(values)
        result._a = [[0.0 if vec.is_zero(e) else next(supply) for e in row] for row in self._a]
        return result


def scalars(matrix: ca.SX) -> list[list[Any]]:
    """A matrix as nested lists, exact zeros as floats."""
    rows, columns = matrix.shape
    sparse = ca.sparsify(matrix)
    has = {(r, c) for r, c in zip(*sparse.sparsity().get_triplet(), strict=True)}
    return [[sparse[i, j] if (i, j) in has else 0.0 for j in range(columns)] for i in range(rows)]


def product(rows: list[list[Any]], x: list[Any]) -> list[Any]:
    """Matrix times vector on nested lists."""
    result: list[Any] = []
    for row in rows:
        total: Any = 0.0
        for a, b in zip(row, x, strict=True):
            total = vec.plus(total, vec.times(a, b))
        result.append(total)
    return result


class Saddle:
    """Solver of  D x - Jl' y = a,  J x = b  by the Schur complement S = J D^-1 Jl'.

    Parameters
    ----------
    D : solver of D x = a
        A `SparseLU`, or whatever has its `solve`, `entries`, `with_entries`.
    J, Jl : m x n nested lists
        Constraint Jacobians where the solution must lie and where the forces act: Dh(q_k+1) and
        Dh(q_k) in a step.
    """

    def __init__(self, D: Any, J: list[list[Any]], Jl: list[list[Any]]):
        self.D = D
        self.J = J
        self.Y = [D.solve(row) for row in Jl]  # columns of D^-1 Jl'
        self.S = SparseLU([[product([row], y)[0] for y in self.Y] for row in J]) if J else None

    def solve(self, a: list[Any], b: list[Any]) -> tuple[list[Any], list[Any]]:
        x = self.D.solve(a)
        if self.S is None:
            return x, []
        rest = [vec.minus(t, c) for t, c in zip(b, product(self.J, x), strict=True)]
        y = self.S.solve(rest)
        for weight, column in zip(y, self.Y, strict=True):
            x = [vec.plus(xi, vec.times(weight, ci)) for xi, ci in zip(x, column, strict=True)]
        return x, y

    def entries(self) -> list[Any]:
        """Everything that is not zero by structure, as one list of scalars."""
        result = list(self.D.entries())
        for rows in (self.J, self.Y):
            result += [e for row in rows for e in row if not vec.is_zero(e)]
        return result + (self.S.entries() if self.S else [])

    def with_entries(self, values: list[Any]) -> Saddle:
        """The same structure with other numbers, in the order of `entries`."""
        result = object.__new__(Saddle)
        supply = iter(values)
        result.D = self.D.with_entries([next(supply) for _ in self.D.entries()])
        for name in ("J", "Y"):
            rows = getattr(self, name)
            copied = [[0.0 if vec.is_zero(e) else next(supply) for e in row] for row in rows]
            setattr(result, name, copied)
        result.S = self.S.with_entries(list(supply)) if self.S else None
        return result
