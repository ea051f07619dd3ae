"""Block LDU on CasADi expressions: the graph's elimination with one function per kind of node."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import casadi as ca

from vioc.dynamics.algebra.graph_structure import Structure
from vioc.dynamics.algebra.sparse_lu import SparseLU, scalars
from vioc.dynamics.lagrangian import OPTIONS

Blocks = dict[tuple[int, int], Any]
Call = Callable[[ca.Function, list[Any]], list[Any]]

WHOLE = 2  # neighbours of a node up to which it is one function; its length grows with their square


class Elimination:
    """Solves F x = b for blocks given as SX or MX expressions, pivots without exchange of rows.

    Parameters
    ----------
    structure : Structure

    Notes
    -----
    What is done at a node is a Function of its blocks, shared by all nodes with the same sparsities; where a
    node has many neighbours, as bodies that may all touch each other, one of a pair of blocks. Graphs stay
    small and generated code short, however many nodes and edges there are.
    """

    def __init__(self, structure: Structure):
        self.structure = structure
        self._functions: dict[tuple, ca.Function] = {}

    def solve(self, blocks: Blocks, b: list[Any]) -> list[Any]:
        """x by nodes; `blocks` without an entry are zero, columns b by nodes."""
        s, F, b = self.structure, dict(blocks), list(b)
        kept: dict[int, tuple[list[int], list[Any], Any]] = {}
        for k in s.order:
            up = [j for j in s.later[k] if (k, j) in F]
            low = [i for i in s.later[k] if (i, k) in F]
            args = [F[k, k], *(F[k, j] for j in up), *(F[i, k] for i in low), b[k]]
            outputs = self.at_node(len(up), args, ca.Function.call, lambda a: a.sparsity())
            columns, own = [outputs.pop(0) for _ in up], outputs.pop(0)
            kept[k] = up, columns, own
            for i in low:
                for j in up:
                    _subtract(F, (i, j), outputs.pop(0))
                b[i] = b[i] - outputs.pop(0)
        x: list[Any] = [None] * len(s.order)
        for k in reversed(s.order):
            up, columns, own = kept[k]
            x[k] = own
            if up:
                known = [x[j] for j in up]
                x[k] = self.returned(own, columns, known, ca.Function.call, lambda a: a.sparsity())
        return x

    def at_node(
        self, up: int, args: list[Any], call: Call, pattern: Callable[[Any], ca.Sparsity]
    ) -> list[Any]:
        """The outputs of `node` of its arguments, by functions that `call` calls."""
        patterns = [pattern(a) for a in args]
        low = len(args) - 2 - up
        if up + low <= 2 * WHOLE:
            return list(call(self.node(up, low, patterns), args))
        D, lower = args[0], args[1 + up : -1]
        columns = [
            call(self.node(0, 0, [patterns[0], pattern(c)]), [D, c])[0] for c in (*args[1 : 1 + up], args[-1])
        ]
        folded = [call(self.folded(pattern(F), pattern(c)), [F, c])[0] for F in lower for c in columns]
        return [*columns, *folded]

    def returned(
        self, own: Any, columns: list[Any], x: list[Any], call: Call, pattern: Callable[[Any], ca.Sparsity]
    ) -> Any:
        """y - sum of U_kj x_j, by functions that `call` calls."""
        for i in range(0, len(columns), WHOLE):
            some, known = columns[i : i + WHOLE], x[i : i + WHOLE]
            args = [own, *some, *known]
            own = call(self.back(len(some), [pattern(a) for a in args]), args)[0]
        return own

    def folded(self, *patterns: ca.Sparsity) -> ca.Function:
        """(F_ik, U_kj) -> F_ik U_kj."""
        key = ("folded", *(tuple(p.compress()) for p in patterns))
        if key not in self._functions:
            F, U = (ca.SX.sym("a", p) for p in patterns)
            self._functions[key] = ca.Function("folded", [F, U], [ca.sparsify(F @ U)], OPTIONS)
        return self._functions[key]

    def back(self, count: int, patterns: list[ca.Sparsity]) -> ca.Function:
        """(y, `count` columns U_kj, as many x_j) -> y - sum of U_kj x_j."""
        key = ("back", *(tuple(p.compress()) for p in patterns))
        if key not in self._functions:
            own, *rest = symbols = [ca.SX.sym("a", p) for p in patterns]
            for column, x in zip(rest[:count], rest[count:], strict=True):
                own = own - column @ x
            self._functions[key] = ca.Function("back", symbols, [ca.densify(own)], OPTIONS)
        return self._functions[key]

    def node(self, up: int, low: int, patterns: list[ca.Sparsity]) -> ca.Function:
        """(D, U_kj.., F_ik.., b_k) -> D^-1 [U_kj.., b_k], and for each i F_ik D^-1 [U_kj.., b_k]."""
        key = (up, low, *(tuple(p.compress()) for p in patterns))
        if key not in self._functions:
            symbols = [ca.SX.sym("a", p) for p in patterns]
            pivot = SparseLU(scalars(symbols[0]))
            columns = [_divide(pivot, m) for m in (*symbols[1 : 1 + up], symbols[-1])]
            outputs = list(columns)
            for lower in symbols[1 + up : -1]:
                outputs += [ca.sparsify(ca.mtimes(lower, c)) for c in columns]
            self._functions[key] = ca.Function("node", symbols, outputs, OPTIONS)
        return self._functions[key]


def _divide(pivot: SparseLU, columns: ca.SX) -> ca.SX:
    solved = [
        ca.vertcat(*pivot.solve([row[0] for row in scalars(columns[:, j])])) for j in range(columns.shape[1])
    ]
    return ca.sparsify(ca.horzcat(*solved))


def _subtract(F: Blocks, at: tuple[int, int], block: Any) -> None:
    if block.nnz():
        F[at] = F[at] - block if at in F else -block
