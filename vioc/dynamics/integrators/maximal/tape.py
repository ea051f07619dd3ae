"""The compiled core: a generated C function for each kind of body, constraint and pivot, and tables.

What `equations.Assembly` calls becomes a table of instructions on one array of doubles, where functions read
and write in place, so that code does not grow with the mechanism and a step's time grows linearly.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from typing import Any

import casadi as ca
import numpy as np

from vioc.dynamics.algebra.block_elimination import PLUS, Terms
from vioc.dynamics.integrators.maximal.equations import Assembly
from vioc.dynamics.integrators.maximal.graph import StepGraph
from vioc.dynamics.integrators.maximal.kernel import PAST
from vioc.dynamics.integrators.maximal.space import STATE, TWIST

CALL, ADD, COPY, ZERO = range(4)
TAPES = ("start", "begin", "leave", "solve", "rest", "after")


class Block:
    """A matrix in the array; it has a place once the tape is laid out, perhaps within another."""

    def __init__(self, pattern: ca.Sparsity):
        self._pattern, self._nnz = pattern, pattern.nnz()
        self.within: Block | None = None
        self.offset = 0

    def sparsity(self) -> ca.Sparsity:
        return self._pattern

    def nnz(self) -> int:
        return self._nnz

    def put(self, within: Block, offset: int) -> Block:
        self.within, self.offset = within, offset
        return self

    @property
    def place(self) -> int:
        return self.offset if self.within is None else self.within.place + self.offset


@cache
def _dense(size: int) -> ca.Sparsity:
    return ca.Sparsity.dense(size, 1)


class Tape:
    """The tables of one end of a step, and the array that they work on: `Values` of an `Assembly`.

    Parameters
    ----------
    graph : StepGraph
    nu : int
    departure : Tape, optional
        Makes this the tape of the arrival of what that one has left; they share their functions.

    Attributes
    ----------
    places : dict of str to Block
        What the driver reads and writes.
    size : int
        Of the array.

    Notes
    -----
    The carry of a departure is that of `kernel.build_kernel`; of an arrival, the positions, quaternions and
    momenta with which the step ends, as the departure's `after` has them.
    """

    def __init__(self, graph: StepGraph, nu: int, departure: Tape | None = None):
        self.functions: list[ca.Function] = [] if departure is None else departure.functions
        self._kernels = {id(f): i for i, f in enumerate(self.functions)}
        self._blocks: list[Block] = []
        self._constants: dict[tuple[float, ...], Block] = {}
        self._tapes: dict[str, list[Any]] = {name: [] for name in TAPES}
        self.index: list[int] = []
        self._scatters: dict[tuple, int] = {}
        self._write(graph, nu, arrival=departure is not None)
        self.size = 0
        for block in self._blocks:
            if block.within is None:
                block.offset, self.size = self.size, self.size + block.nnz()
        self.codes = {
            name: [c.place if isinstance(c, Block) else c for c in code] for name, code in self._tapes.items()
        }
        self.constants = [(block.place, np.array(values)) for values, block in self._constants.items()]

    def _write(self, graph: StepGraph, nu: int, arrival: bool) -> None:
        n, touches = graph.n, graph.touches
        sizes = [t.cone.size for t in touches]
        of_carry = [*[STATE] * n, TWIST * n, *([] if arrival else [PAST * TWIST * n])]
        lengths = dict(carry=sum(of_carry), u=nu, t=1, dt=1, theta=graph.terms.parameters.numel())
        lengths |= dict(V=TWIST * n, multipliers=len(graph.names), y=sum(sizes), kappa=2, speed=1)
        self.places = {name: self._column(length) for name, length in lengths.items()}
        carry, u, t, dt, theta, V, multipliers, y, kappa, speed = self.places.values()
        z, momenta = (parts := self.split(carry, of_carry))[:n], parts[n]
        E, ys = Assembly(graph, u, t, dt, theta, self), self.split(y, sizes)
        put = self.places.__setitem__

        self._code = self._tapes["start"]
        held = E.held(E.poses(z), arrival)
        put("poses", held.Z)
        base = momenta if arrival else E.kicked(E.momenta(momenta), held.Z)

        self._code = self._tapes["leave"]
        at = E.at(V, base, held)
        put("values", self.stack(at.values))
        put("gaps", self.stack(at.gaps))

        self._code = self._tapes["begin"]
        put("fresh", E.begun(at, held, speed, kappa))

        self._code = self._tapes["rest"]
        pushes, pushed = E.pushed(at, held, ys, kappa)
        left = E.left(at, held, E.by_group(multipliers), pushes)
        put("left", self.stack(left))
        for name, block in zip(("mismatch", "products", "impulses"), pushed, strict=True):
            put(name, block)

        self._code = self._tapes["solve"]
        dV, found = E.solved(*E.system(at, held, left if touches else at.rest, ys, kappa))
        put("dV", self.stack(dV))
        put("found", self.stack(found))
        put("dy", E.expanded(at, held, ys, kappa, dV))

        self._code = self._tapes["after"]
        if arrival:
            put("after", self._column(0))
            return
        moved = E.moved(z, V)
        put("after", self.stack([*moved, E.landed(V, self.stack(E.poses(moved)))]))

    # -- Values -----------------------------------------------------------------------------------------

    def _new(self, pattern: ca.Sparsity) -> Block:
        self._blocks.append(block := Block(pattern))
        return block

    def _column(self, size: int) -> Block:
        return self._new(_dense(size))

    def call(self, function: ca.Function, args: Sequence[Block]) -> list[Block]:
        if id(function) not in self._kernels:
            self._kernels[id(function)] = len(self.functions)
            self.functions.append(function)
        assert all(a.nnz() == function.nnz_in(i) for i, a in enumerate(args)), function
        made = [self._new(function.sparsity_out(i)) for i in range(function.n_out())]
        self._code += [CALL, self._kernels[id(function)], len(args), len(made)]
        self._code += [b if b.nnz() else -1 for b in (*args, *made)]
        return made

    def sum(self, terms: Terms) -> Block:
        terms = [(b, sign) for b, sign in terms if b.nnz()] or terms[:1]
        if len(terms) == 1 and terms[0][1] == PLUS:
            return terms[0][0]
        pattern = terms[0][0].sparsity()
        for block, _ in terms[1:]:
            pattern = pattern.unite(block.sparsity())
        total = self._new(pattern)
        if terms[0][0].sparsity() == pattern:
            (first, sign), *terms = terms
            self._code += [COPY, pattern.nnz(), total, first, sign]
        else:
            self._code += [ZERO, pattern.nnz(), total]
        for block, sign in terms:
            self._code += [ADD, block.nnz(), total, block, self._scattered(block.sparsity(), pattern), sign]
        return total

    def _scattered(self, source: ca.Sparsity, target: ca.Sparsity) -> int:
        """Where in `index` a pattern's entries are told to lie in a larger one; -1 where they agree."""
        if source == target:
            return -1
        key = tuple(source.compress()), tuple(target.compress())
        if key not in self._scatters:
            self._scatters[key], rows = len(self.index), target.size1()
            where = {c * rows + r: k for k, (r, c) in enumerate(zip(*target.get_triplet(), strict=True))}
            self.index += [where[c * rows + r] for r, c in zip(*source.get_triplet(), strict=True)]
        return self._scatters[key]

    def stack(self, columns: Sequence[Block]) -> Block:
        """Columns are written there by what makes them; those that lie in another already are copied."""
        whole, offset = self._column(sum(c.nnz() for c in columns)), 0
        for column in columns:
            assert column.sparsity().is_dense()
            if column.within is None and column not in self.places.values():
                column.put(whole, offset)
            else:
                self._code += [COPY, column.nnz(), Block(column.sparsity()).put(whole, offset), column, PLUS]
            offset += column.nnz()
        return whole

    def split(self, column: Block, sizes: Sequence[int]) -> list[Block]:
        starts = accumulate(sizes, initial=0)
        return [Block(_dense(s)).put(column, a) for a, s in zip(starts, sizes, strict=False)]

    def constant(self, numbers: Any) -> Block:
        values = tuple(np.array(numbers, float).ravel().tolist())
        if values not in self._constants:
            self._constants[values] = self._column(len(values))
        return self._constants[values]

    def nothing(self, rows: int) -> Block:
        return Block(ca.Sparsity(rows, rows))
