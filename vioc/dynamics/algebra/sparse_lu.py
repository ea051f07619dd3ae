"""LU and Schur-complement factorizations of small matrices with known sparsity, for CasADi graphs.

LU without pivoting on SX scalars, by position in the sparsity pattern, for matrices that a mass matrix
dominates. The elimination runs from the last row to the first: q lists parents before children, and this
order makes no fill-in on a tree. A zero pivot gives inf or NaN in the result, for which callers test.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import casadi as ca

from vioc.dynamics.algebra import vectors as vec


class SparseLU:
    """LU factorization of an n x n matrix of scalars, given as nested lists.

    Parameters
    ----------
    rows : list of lists of SX or float

    Attributes
    ----------
    over, left : lists of n SX
        Each column above its pivot, divided by the pivot; each row up to the diagonal.
    diagonal : (n,)
        Diagonal of the matrix itself.
    """

    def __init__(self, rows: list[list[Any]]):
        n = self.n = len(rows)
        over: list[ca.SX] = []
        lower: list[ca.SX] = []
        a = assembled(rows)
        self.diagonal = ca.diag(a)
        for k in reversed(range(n)):  # a row at once: an operation takes 20 us from Python, 0.1 us in CasADi
            column, row = ca.sparsify(a[:k, k] / a[k, k]), a[k, : k + 1]
            over.append(column)
            lower.append(row)
            a = ca.sparsify(a[:k, :k] - ca.mtimes(column, row[:k]))
        self.over, self.left = over[::-1], lower[::-1]

    @property
    def pivots(self) -> ca.SX:
        return vec.column(row[k] for k, row in enumerate(self.left))

    def solve(self, b: list[Any]) -> list[Any]:
        """Solve A x = b with the factorized matrix A."""
        columns, rows = self._nonzeros
        x: list[Any] = list(b)
        for k in reversed(range(1, self.n)):
            for i, entry in columns[k]:
                x[i] = vec.minus(x[i], vec.times(entry, x[k]))
        for k, row in enumerate(rows):
            pivot = 0.0  # where it is no structural nonzero
            for j, entry in row:
                if j == k:
                    pivot = entry
                else:
                    x[k] = vec.minus(x[k], vec.times(entry, x[j]))
            x[k] = 0.0 if vec.is_zero(x[k]) else ca.SX.binary(ca.OP_DIV, x[k], pivot)
        return x

    @cached_property
    def _nonzeros(self) -> tuple[list[list[tuple[int, ca.SX]]], list[list[tuple[int, ca.SX]]]]:
        """Structural nonzeros with their indices, of each column above the pivot and of each row to it."""

        def of(part: ca.SX, axis: int) -> list[tuple[int, ca.SX]]:
            return list(zip(part.sparsity().get_triplet()[axis], part.nonzeros(), strict=True))

        return [of(column, 0) for column in self.over], [of(row, 1) for row in self.left]

    # The factors pass between CasADi functions as one vector.

    def entries(self) -> list[Any]:
        """List the structural nonzeros of the factors L and U."""
        return [e for part in (*self.over, *self.left) for e in part.nonzeros()]

    def with_entries(self, values: list[Any]) -> SparseLU:
        """Return a factorization of the same structure, with its nonzeros replaced by `values`."""
        result = object.__new__(SparseLU)
        supply = iter(values)

        def filled(part: ca.SX) -> ca.SX:
            return ca.SX(part.sparsity(), vec.column(next(supply) for _ in range(part.nnz())))

        result.n = self.n
        result.over, result.left = [*map(filled, self.over)], [*map(filled, self.left)]
        return result


def assembled(rows: list[list[Any]]) -> ca.SX:
    """Convert nested lists of scalars to a sparse CasADi matrix.
    Scalars that are exactly 0 become structural zeros.
    """
    shape = len(rows), len(rows[0]) if rows else 0
    places = [(i, j) for j in range(shape[1]) for i in range(shape[0]) if not vec.is_zero(rows[i][j])]
    sparsity = ca.Sparsity.triplet(*shape, [i for i, _ in places], [j for _, j in places])
    return ca.SX(sparsity, vec.column(rows[i][j] for i, j in places))


def scalars(matrix: ca.SX) -> list[list[Any]]:
    """Convert a CasADi matrix to nested lists of scalars, with structural zeros as the float 0."""
    rows, columns = matrix.shape
    sparse = ca.sparsify(matrix)
    result: list[list[Any]] = [[0.0] * columns for _ in range(rows)]
    for i, j, value in zip(*sparse.sparsity().get_triplet(), sparse.nonzeros(), strict=True):
        result[i][j] = value
    return result


def product(rows: list[list[Any]], x: list[Any]) -> list[Any]:
    """Multiply a matrix, given as nested lists, by a vector."""
    result: list[Any] = []
    for row in rows:
        total: Any = 0.0
        for a, b in zip(row, x, strict=True):
            total = vec.plus(total, vec.times(a, b))
        result.append(total)
    return result


class Saddle:
    """Solver of a saddle-point system D x - Jl' y = a, J x = b by its Schur complement J D^-1 Jl'.
    For a mechanism, D is the mass matrix. J is the Jacobian of the constraint equations, and Jl' maps the
    multipliers y to constraint forces. J and Jl can belong to different configurations.

    Parameters
    ----------
    D : solver of D x = a
        A `SparseLU`, or another object with `solve`, `entries`, `with_entries`.
    J, Jl : m x n nested lists
        Jacobians of the constraints where they must hold and where their forces act: Dh(q_k+1) and
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
        right = [vec.minus(t, c) for t, c in zip(b, product(self.J, x), strict=True)]
        y = self.S.solve(right)
        for weight, column in zip(y, self.Y, strict=True):
            x = [vec.plus(xi, vec.times(weight, ci)) for xi, ci in zip(x, column, strict=True)]
        return x, y

    def entries(self) -> list[Any]:
        """List the structural nonzeros of the matrices that this solver stores."""
        result = list(self.D.entries())
        for rows in (self.J, self.Y):
            result += [e for row in rows for e in row if not vec.is_zero(e)]
        return result + (self.S.entries() if self.S else [])

    def with_entries(self, values: list[Any]) -> Saddle:
        """Return a solver of the same structure, with the nonzeros of its factors replaced by `values`."""
        result = object.__new__(Saddle)
        supply = iter(values)

        def filled(rows: list[list[Any]]) -> list[list[Any]]:
            return [[0.0 if vec.is_zero(e) else next(supply) for e in row] for row in rows]

        result.D = self.D.with_entries([next(supply) for _ in self.D.entries()])
        result.J, result.Y = filled(self.J), filled(self.Y)
        result.S = self.S.with_entries(list(supply)) if self.S else None
        return result
