"""Tables of instructions that evaluate the equations of a step, with all values in one array of doubles.

Compiled functions read from the array and write to it, in place. The size of the code is therefore
independent of the mechanism, and the time of a step grows linearly with the mechanism. `tape.c` runs the
tables.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cache
from itertools import accumulate
from typing import Any

import casadi as ca
import numpy as np

from vioc.dynamics.algebra.block_elimination import PLUS, Terms

CALL, ADD, COPY, ZERO = range(4)
TAPES = ("start", "matrix", "begin", "leave", "solve", "rest", "work", "after")


def in_units(length: int, sizes: np.ndarray) -> ca.Function:
    """Return a CasADi function that divides entries of a column vector by natural units.
    The argument of the function is a column with `length` entries. The result has the first len(sizes)
    entries, each divided by its unit in `sizes`.
    """
    column = ca.SX.sym("column", length)
    return ca.Function("in_units", [column], [column[: len(sizes)] / ca.DM(sizes)])


class TapeBlock:
    """Matrix that is stored in a shared array of doubles, or as a part of another `TapeBlock`."""

    def __init__(self, pattern: ca.Sparsity):
        self._pattern, self._nnz = pattern, pattern.nnz()
        self.within: TapeBlock | None = None
        self.offset = 0

    def sparsity(self) -> ca.Sparsity:
        return self._pattern

    def nnz(self) -> int:
        return self._nnz

    def put(self, within: TapeBlock, offset: int) -> TapeBlock:
        self.within, self.offset = within, offset
        return self

    @property
    def place(self) -> int:
        return self.offset if self.within is None else self.within.place + self.offset


@cache
def _dense(size: int) -> ca.Sparsity:
    return ca.Sparsity.dense(size, 1)


class Tape(ABC):
    """Base class of instruction tables that evaluate the momentum balance at the start or end of a step.
    The class also defines the layout of the array of doubles on which the instructions work.

    Subclasses write the tables in `_write`. The class implements `Values`, the interface by which step
    equations are built.

    Parameters
    ----------
    functions : list of casadi.Function, optional
        Functions of another tape, which this tape shares.

    Attributes
    ----------
    functions : list of casadi.Function
        Functions that the instructions call.
    places : dict of str to TapeBlock
        Inputs and outputs of the driver.
    size : int
        Length of the array.
    """

    places: dict[str, TapeBlock]

    def __init__(self, functions: list[ca.Function] | None = None):
        self.functions: list[ca.Function] = [] if functions is None else functions
        self._kernels = {id(f): i for i, f in enumerate(self.functions)}
        self._blocks: list[TapeBlock] = []
        self._constants: dict[tuple[float, ...], TapeBlock] = {}
        self._tapes: dict[str, list[Any]] = {name: [] for name in TAPES}
        self.index: list[int] = []
        self._scatters: dict[tuple, int] = {}
        self._code = self._tapes["start"]
        self._write()
        self.size = 0
        for block in self._blocks:
            if block.within is None:
                block.offset, self.size = self.size, self.size + block.nnz()
        self.codes = {
            name: [c.place if isinstance(c, TapeBlock) else c for c in code]
            for name, code in self._tapes.items()
        }
        self.constants = [(block.place, np.array(values)) for values, block in self._constants.items()]

    @abstractmethod
    def _write(self) -> None:
        """Generate all instruction tables, and the dict of their inputs and outputs.
        The dict `places` has, by name, the blocks of memory of the inputs and outputs. A call ``begin(name)``
        begins the table of this name.
        """

    def begin(self, name: str) -> None:
        """Begin the instruction table of this name, to which the next instructions are added."""
        self._code = self._tapes[name]

    # -- Values -----------------------------------------------------------------------------------------

    def _new(self, pattern: ca.Sparsity) -> TapeBlock:
        self._blocks.append(block := TapeBlock(pattern))
        return block

    def column(self, size: int) -> TapeBlock:
        return self._new(_dense(size))

    def call(self, function: ca.Function, args: Sequence[TapeBlock]) -> list[TapeBlock]:
        if id(function) not in self._kernels:
            self._kernels[id(function)] = len(self.functions)
            self.functions.append(function)
        assert all(a.nnz() == function.nnz_in(i) for i, a in enumerate(args)), function
        blocks = [self._new(function.sparsity_out(i)) for i in range(function.n_out())]
        self._code += [CALL, self._kernels[id(function)], len(args), len(blocks)]
        self._code += [b if b.nnz() else -1 for b in (*args, *blocks)]
        return blocks

    def sum(self, terms: Terms) -> TapeBlock:
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
        """Return the position of an index map between two sparsity patterns.
        It is the position in the list `index`, where the map is stored. For each nonzero of `source`, the map
        gives the position of the same entry among the nonzeros of `target`. The result is -1 if the two
        patterns are equal.
        """
        if source == target:
            return -1
        key = tuple(source.compress()), tuple(target.compress())
        if key not in self._scatters:
            self._scatters[key], rows = len(self.index), target.size1()
            positions = {c * rows + r: k for k, (r, c) in enumerate(zip(*target.get_triplet(), strict=True))}
            self.index += [positions[c * rows + r] for r, c in zip(*source.get_triplet(), strict=True)]
        return self._scatters[key]

    def stack(self, columns: Sequence[TapeBlock]) -> TapeBlock:
        """Stack columns into one block of the array of doubles on which the instructions work.
        A column that is an input or output, or already belongs to another block, is copied into the block.
        """
        whole, offset = self.column(sum(c.nnz() for c in columns)), 0
        for column in columns:
            assert column.sparsity().is_dense()
            if column.within is None and column not in self.places.values():
                column.put(whole, offset)
            else:
                self._code += [
                    COPY,
                    column.nnz(),
                    TapeBlock(column.sparsity()).put(whole, offset),
                    column,
                    PLUS,
                ]
            offset += column.nnz()
        return whole

    def split(self, column: TapeBlock, sizes: Sequence[int]) -> list[TapeBlock]:
        starts = accumulate(sizes, initial=0)
        return [TapeBlock(_dense(s)).put(column, a) for a, s in zip(starts, sizes, strict=False)]

    def constant(self, numbers: Any) -> TapeBlock:
        values = tuple(np.array(numbers, float).ravel().tolist())
        if values not in self._constants:
            self._constants[values] = self.column(len(values))
        return self._constants[values]

    def nothing(self, rows: int) -> TapeBlock:
        return TapeBlock(ca.Sparsity(rows, rows))
