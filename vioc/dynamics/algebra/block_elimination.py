"""Block LDU factorization of sparse matrices, whose block structure is a graph.

Each kind of node has one function. The blocks are values of any kind that knows its sparsity: CasADi's
expressions (`Expressions`), or places in the array of a compiled core. Derivation: docs/maths/graph_ldu.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any, Protocol

import casadi as ca

from vioc.dynamics.algebra.sparse_lu import SparseLU, scalars

Terms = list[tuple[Any, int]]  # values, each with its sign 1 or -1 in a sum
Blocks = dict[tuple[int, int], Terms]

PLUS, MINUS = 1, -1
WHOLE = 2  # most neighbours of a node with one function, whose length grows with their square


class Values(Protocol):
    """Interface of the operations on matrix blocks that a block elimination needs.
    Implementations compute with CasADi expressions, or write instructions for a compiled solver.

    Values have `sparsity()` and `nnz()`.
    """

    def call(self, function: ca.Function, args: Sequence[Any]) -> list[Any]:
        """Return the outputs of a CasADi function at these arguments."""

    def sum(self, terms: Terms) -> Any:
        """Return the sum of several values of equal shape, each added with its given sign."""

    def stack(self, columns: Sequence[Any]) -> Any:
        """Stack column vectors vertically; an empty list gives a column without rows."""

    def split(self, column: Any, sizes: Sequence[int]) -> list[Any]:
        """Split a column vector into consecutive parts with the given numbers of rows."""

    def constant(self, numbers: Any) -> Any:
        """Return a column vector of constant numbers."""

    def nothing(self, rows: int) -> Any:
        """Return a square matrix, `rows` x `rows`, without structural nonzeros."""


class Expressions:
    """Arithmetic on matrix blocks that are CasADi expressions, SX or MX."""

    def call(self, function, args):
        return function.call(list(args))

    def sum(self, terms):
        total = None
        for value, sign in terms:
            if total is None:
                total = value if sign == PLUS else -value
            elif value.nnz():
                total = total + value if sign == PLUS else total - value
        return total

    def stack(self, columns):
        return ca.vertcat(*columns) if columns else ca.DM(0, 1)

    def split(self, column, sizes):
        return ca.vertsplit(column, [0, *accumulate(sizes)]) if sizes else []

    def constant(self, numbers):
        return ca.DM(numbers)

    def nothing(self, rows):
        return ca.DM(rows, rows)


def later(neighbours: Sequence[Iterable[int]], order: Sequence[int]) -> tuple[tuple[int, ...], ...]:
    """Return the neighbours of each node that come later in the order of elimination.
    The neighbours include those that fill-in adds.

    A parent inherits the neighbours of its children: N(k) of docs/maths/graph_ldu.md.
    """
    place = {node: i for i, node in enumerate(order)}
    remaining: list[set[int]] = [{j for j in n if place[j] > place[i]} for i, n in enumerate(neighbours)]
    for k in order:
        if remaining[k]:
            parent = min(remaining[k], key=place.__getitem__)
            remaining[parent] |= remaining[k] - {parent}
    return tuple(tuple(sorted(s, key=place.__getitem__)) for s in remaining)


def sparse_order(count: int, edges: Iterable[tuple[int, int]]) -> list[int]:
    """Return a minimum-degree order of elimination for the nodes of a graph."""
    neighbours: list[set[int]] = [set() for _ in range(count)]
    for i, j in edges:
        neighbours[i].add(j)
        neighbours[j].add(i)
    remaining, order = set(range(count)), []
    while remaining:
        k = min(remaining, key=lambda i: (len(neighbours[i]), i))
        remaining.remove(k)
        order.append(k)
        for i in neighbours[k]:
            neighbours[i] |= neighbours[k]
            neighbours[i] -= {i, k}
    return order


class Elimination:
    """Solver of linear systems F x = b by block elimination without pivoting.
    The sparsity of the matrix F is given by a graph: block F_ij can be nonzero if i = j or if the nodes i and
    j have an edge.

    Parameters
    ----------
    count : int
        Number of nodes.
    edges : iterable of (int, int)
        Pairs of nodes whose blocks F_ij, F_ji can be nonzero.
    order : sequence of int
        Order of elimination of the nodes.
    functions : Elimination, optional
        Elimination of another graph, whose functions this one shares.

    Notes
    -----
    The operations at a node are a Function of its blocks, shared by all nodes with the same sparsities. A
    node with many neighbours, such as one of many bodies that can touch each other, has a function for
    each pair of blocks. Graphs and generated code therefore stay small, however many nodes and edges there
    are.
    """

    def __init__(
        self,
        count: int,
        edges: Iterable[tuple[int, int]],
        order: Sequence[int],
        functions: Elimination | None = None,
    ):
        neighbours: list[set[int]] = [set() for _ in range(count)]
        for i, j in edges:
            neighbours[i].add(j)
            neighbours[j].add(i)
        self.order, self.later = list(order), later(neighbours, order)
        self.functions: dict[tuple, ca.Function] = {} if functions is None else functions.functions

    def solve(self, on: Values, blocks: Blocks, b: Sequence[Terms]) -> list[Any]:
        """Solve F x = b, where x and b have one block of rows for each node of the graph.
        The argument `on` provides the operations on blocks; each block is a sum of signed terms.

        Blocks without an entry are zero.
        """
        F, right = {at: list(terms) for at, terms in blocks.items()}, [list(terms) for terms in b]
        eliminated: dict[int, tuple[list[int], list[Any], Any]] = {}
        for k in self.order:
            up = [j for j in self.later[k] if (k, j) in F]
            low = [i for i in self.later[k] if (i, k) in F]
            args = [on.sum(F[k, k]), *(on.sum(F[k, j]) for j in up), *(on.sum(F[i, k]) for i in low)]
            columns, solved, updates = self._at_node(on, len(up), [*args, on.sum(right[k])])
            eliminated[k] = up, columns, solved
            rest = iter(updates)
            for i in low:
                for j in up:
                    update = next(rest)
                    if update.nnz():
                        F.setdefault((i, j), []).append((update, MINUS))
                right[i].append((next(rest), MINUS))
        x: list[Any] = [None] * len(self.order)
        for k in reversed(self.order):
            up, columns, x[k] = eliminated[k]
            solutions = [x[j] for j in up]
            for i in range(0, len(up), WHOLE):
                some = [x[k], *columns[i : i + WHOLE], *solutions[i : i + WHOLE]]
                (x[k],) = on.call(self._back(len(some) // 2, [a.sparsity() for a in some]), some)
        return x

    def _at_node(self, on: Values, up: int, args: list[Any]) -> tuple[list[Any], Any, list[Any]]:
        """Eliminate node k: divide block row k of a matrix F by its pivot block F_kk.
        The arguments `args` are F_kk, `up` blocks U_kj of row k, the blocks F_ik of column k, and block b of
        the right-hand side.

        Return the blocks F_kk^-1 U_kj; F_kk^-1 b; and for each i the products of F_ik with all of these,
        which are to be subtracted from block row i.
        """
        patterns = [a.sparsity() for a in args]
        low = len(args) - 2 - up
        if up + low <= 2 * WHOLE:
            outputs = on.call(self._node(up, low, patterns), args)
            return outputs[:up], outputs[up], outputs[up + 1 :]
        D, lower = args[0], args[1 + up : -1]
        columns = [
            on.call(self._node(0, 0, [patterns[0], c.sparsity()]), [D, c])[0]
            for c in (*args[1 : 1 + up], args[-1])
        ]
        folded = [
            on.call(self._folded(F.sparsity(), c.sparsity()), [F, c])[0] for F in lower for c in columns
        ]
        return columns[:-1], columns[-1], folded

    def _once(self, name: str, count: int, patterns: Sequence[ca.Sparsity], build: Any) -> ca.Function:
        key = (name, count, *(tuple(p.compress()) for p in patterns))
        if key not in self.functions:
            symbols = [ca.SX.sym("a", p) for p in patterns]
            self.functions[key] = ca.Function(name, symbols, build(symbols))
        return self.functions[key]

    def _folded(self, *patterns: ca.Sparsity) -> ca.Function:
        """CasADi function of the product F_ik U_kj of two matrix blocks.
        The elimination of node k subtracts this product from the block F_ij.
        """
        return self._once("folded", 1, patterns, lambda a: [ca.sparsify(a[0] @ a[1])])

    def _back(self, count: int, patterns: list[ca.Sparsity]) -> ca.Function:
        """Make the CasADi function of the back substitution at node k.
        It is x_k = y - sum_j U_kj x_j, with blocks U_kj of the upper factor, and y from the forward
        elimination. Its arguments are y, `count` blocks U_kj and as many x_j, with the sparsities `patterns`.
        """

        def build(a: list[ca.SX]) -> list[ca.SX]:
            total = a[0]
            for column, x in zip(a[1 : 1 + count], a[1 + count :], strict=True):
                total = total - column @ x
            return [ca.densify(total)]

        return self._once("back", count, patterns, build)

    def _node(self, up: int, low: int, patterns: list[ca.Sparsity]) -> ca.Function:
        """Make the CasADi function that eliminates a node k with few neighbours.
        It is (D, U_kj.., F_ik.., b_k) -> D^-1 [U_kj.., b_k], and F_ik times these. D is the pivot block, U_kj
        are `up` other blocks in row k and F_ik `low` blocks in column k of the matrix, and b_k is a block of
        the right-hand side. The last outputs are to be subtracted from the other rows.
        """

        def build(a: list[ca.SX]) -> list[ca.SX]:
            pivot = SparseLU(scalars(a[0]))
            columns = [_divide(pivot, m) for m in (*a[1 : 1 + up], a[-1])]
            return [*columns, *(ca.sparsify(ca.mtimes(F, c)) for F in a[1 + up : -1] for c in columns)]

        return self._once("node", up, patterns, build)


def _divide(pivot: SparseLU, columns: ca.SX) -> ca.SX:
    solved = [
        ca.vertcat(*pivot.solve([row[0] for row in scalars(columns[:, j])])) for j in range(columns.shape[1])
    ]
    return ca.sparsify(ca.horzcat(*solved))
