"""Evaluation of CasADi functions at many points, by numpy.
One numpy call computes a group of equal operations at all points.

CasADi's virtual machine executes operations one by one. It spends most of its time on mispredicted branches
between them: 2 ns per operation if all are sums, 5 ns if kinds alternate. Here the values of each operation
at all points are a row of an array, and independent operations of one kind are one numpy call. Results are
those of the virtual machine to the bit: sums, products, quotients and roots are rounded identically
everywhere, and all other operations are CasADi's own, on arrays. Maths and figures: docs/maths/speed.md,
"Without a compiler".
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from threading import Lock
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

CACHE = 1 << 19  # largest number of entries in a workspace, unless that leaves fewer points at once than
NARROW = 32
WORKSPACES = 4  # number of workspaces that are kept
CALL, GAIN = 1.2e-6, 4e-9  # approximate time of a group in numpy, and saved per operation and point, s

ROUNDED = {
    ca.OP_ADD: np.add,
    ca.OP_SUB: np.subtract,
    ca.OP_MUL: np.multiply,
    ca.OP_DIV: np.divide,
    ca.OP_NEG: np.negative,
    ca.OP_SQ: np.square,
    ca.OP_SQRT: np.sqrt,
    ca.OP_INV: np.reciprocal,
}
NOT_OF_SCALARS = {ca.OP_PARAMETER, ca.OP_CALL, ca.OP_ASSIGN}

Rows = slice | np.ndarray  # indices of rows of a workspace


class OperationValues(NamedTuple):
    """Operations of a CasADi function, in the order of their evaluation.
    Each operation computes one value. The list `op` contains operation codes, and `of` contains the indices
    of operands. The dict `given` maps the index of an operation that reads an input to the pair (argument,
    entry), and the index of a constant to its value.
    """

    op: list[int]
    of: list[tuple[int, ...]]
    given: dict[int, Any]


class OperationGroup(NamedTuple):
    """Group of operations of one kind, which one numpy call computes.
    The operands are in the rows `of` of a workspace array. The results are written to its rows `rows`.
    """

    op: int
    rows: slice
    of: list[Rows]


class Workspace(NamedTuple):
    """Array of a function's values at several points, and numpy calls that fill it."""

    rows: np.ndarray
    calls: list[Callable[[], Any]]


class GroupedFunction:
    """CasADi function of scalar operations, evaluated by numpy at many points at once.

    Parameters
    ----------
    function : casadi.Function
        Function of SX with dense outputs; see `possible`.

    Attributes
    ----------
    least : int
        Approximate number of points from which it is faster than the virtual machine.
    """

    def __init__(self, function: ca.Function):
        values, outputs = _read(function)
        at = self._lay_out(values, _in_groups(values), {j for of in outputs for j in of})
        self._outputs = [np.array([at[j] for j in of], int) for of in outputs]
        self.least = int(CALL * len(self._groups) / (GAIN * len(at))) + 1
        self._workspaces: OrderedDict[int, Workspace] = OrderedDict()
        self._lock = Lock()

    @staticmethod
    def possible(function: ca.Function) -> bool:
        """Return whether a CasADi function can be evaluated by numpy.
        This requires type SX, at least one operation, and only operations on scalars.
        """
        if not (function.is_a("SXFunction") and function.n_instructions()):
            return False
        return all(function.instruction_id(k) not in NOT_OF_SCALARS for k in range(function.n_instructions()))

    def __call__(self, args: Sequence[np.ndarray], outputs: Sequence[np.ndarray]) -> None:
        """Evaluate the function at every row of its arguments.
        The results are written to `outputs`, which are (count, size). Two-dimensional arguments have a row
        for each point; one-dimensional arguments are the same for all points.
        """
        count = len(outputs[0])
        pieces = -(-count // max(CACHE // self._height, NARROW))
        points = -(-count // pieces)
        work = self._taken(points)
        with np.errstate(all="ignore"):
            for first in range(0, count, points):
                here = slice(first, min(first + points, count))
                self._at_points(work, args, outputs, here)
        self._given_back(points, work)

    def _at_points(
        self, work: Workspace, args: Sequence[np.ndarray], outputs: Sequence[np.ndarray], here: slice
    ) -> None:
        m = here.stop - here.start  # later columns hold old values
        for i, rows, entries in self._inputs:
            a = args[i]
            work.rows[rows, :m] = a[here].T[entries] if a.ndim == 2 else a[entries, None]
        for call in work.calls:
            call()
        for out, rows in zip(outputs, self._outputs, strict=True):
            out[here] = work.rows[rows, :m].T

    # -- rows ---------------------------------------------------------------------------------------

    def _lay_out(self, values: OperationValues, order: list[list[int]], kept: set[int]) -> list[int]:
        """Assign a row of the workspace array to each operation; return these rows.
        A row is used again when no later operation needs its value. The list `order` has the groups of
        operations; rows of the operations `kept` are not used again.
        """
        last = [0] * len(values.op)
        for g, members in enumerate(order):
            for j in members:
                for i in values.of[j]:
                    last[i] = g
        dies: list[list[int]] = [[] for _ in order]
        for j, g in enumerate(last):
            if j not in kept and values.op[j] != ca.OP_CONST:
                dies[g].append(j)
        at, free = [-1] * len(last), _Free()
        self._groups, self._inputs, self._constants = [], [], []
        for g, members in enumerate(order):
            op, first = values.op[members[0]], free.take(len(members))
            if op == ca.OP_INPUT:
                members.sort(key=values.given.__getitem__)
            elif op != ca.OP_CONST:
                members.sort(key=lambda j: (last[j], at[values.of[j][0]]))
            for row, j in enumerate(members, first):
                at[j] = row
            if op == ca.OP_CONST:
                self._constants = [(at[j], values.given[j]) for j in members]
            elif op == ca.OP_INPUT:
                places = [(at[j], *values.given[j]) for j in members]
                for arg in dict.fromkeys(arg for _, arg, _ in places):
                    rows, entries = zip(*((row, e) for row, a, e in places if a == arg), strict=True)
                    self._inputs.append((arg, _together(rows), _together(entries)))
            else:
                operands = zip(*(values.of[j] for j in members), strict=True)
                of = [_together([at[i] for i in operand]) for operand in operands]
                self._groups.append(OperationGroup(op, slice(first, first + len(members)), of))
            free.give(at[j] for j in dies[g])
        self._height = free.height
        return at

    # -- workspaces ---------------------------------------------------------------------------------

    def _taken(self, points: int) -> Workspace:
        with self._lock:  # each thread uses its own workspace
            work = self._workspaces.pop(points, None)
        return self._workspace(points) if work is None else work

    def _given_back(self, points: int, work: Workspace) -> None:
        with self._lock:
            self._workspaces[points] = work
            if len(self._workspaces) > WORKSPACES:
                self._workspaces.popitem(last=False)

    def _workspace(self, points: int) -> Workspace:
        work = np.zeros((self._height, points))
        for row, value in self._constants:
            work[row] = value
        widest = max((g.rows.stop - g.rows.start for g in self._groups), default=0)
        gathered = np.empty((2 * widest, points))
        calls: list[Callable[[], Any]] = []
        for op, rows, of in self._groups:
            apart = [some for some in of if not isinstance(some, slice)]
            if apart:  # gathered by one call
                found = gathered[: sum(map(len, apart))]
                calls.append(partial(work.take, np.concatenate(apart), 0, found, "clip"))
                parts = iter(np.split(found, len(apart)))
            operands = [work[some] if isinstance(some, slice) else next(parts) for some in of]
            calls.append(_operation(op, operands, work[rows]))
        return Workspace(work, calls)


class _Free:
    """Unused rows of a workspace array, as sorted ranges."""

    def __init__(self) -> None:
        self.height = 0
        self._ranges: list[tuple[int, int]] = []

    def take(self, count: int) -> int:
        """Reserve `count` adjacent unused rows, and return the index of the first row."""
        for i, (first, end) in enumerate(self._ranges):
            if end - first >= count:
                self._ranges[i : i + 1] = [(first + count, end)] if end - first > count else []
                return first
        at_the_end = self._ranges and self._ranges[-1][1] == self.height
        first = self._ranges.pop()[0] if at_the_end else self.height
        self.height = first + count
        return first

    def give(self, rows: Iterable[int]) -> None:
        merged: list[tuple[int, int]] = []
        for first, end in sorted([*self._ranges, *((row, row + 1) for row in rows)]):
            if merged and merged[-1][1] == first:
                merged[-1] = merged[-1][0], end
            else:
                merged.append((first, end))
        self._ranges = merged


def _read(f: ca.Function) -> tuple[OperationValues, list[list[int]]]:
    """Return a CasADi function's operations, and the indices of its output values.
    There is a list of indices for each output.
    """
    holds: dict[int, int] = {}
    values = OperationValues([], [], {})
    outputs = [[0] * f.nnz_out(i) for i in range(f.n_out())]
    for k in range(f.n_instructions()):
        op, of, to = f.instruction_id(k), f.instruction_input(k), f.instruction_output(k)
        if op == ca.OP_OUTPUT:
            outputs[to[0]][to[1]] = holds[of[0]]
            continue
        j = len(values.op)
        if op == ca.OP_INPUT or op == ca.OP_CONST:
            values.given[j] = (of[0], of[1]) if op == ca.OP_INPUT else f.instruction_constant(k)
            of = ()
        values.op.append(op)
        values.of.append(tuple([holds[i] for i in of]))
        holds[to[0]] = j  # may overwrite an operand
    return values, outputs


def _in_groups(values: OperationValues) -> list[list[int]]:
    """Return groups of independent operations of one kind, in an order of evaluation.

    The next group is the kind with the longest chain of values that depend on it, as the longest chain limits
    the number of groups. Other orders, for example by the number of values that are ready, make two to four
    times as many groups.
    """
    op, of = values.op, values.of
    waits, users = [len(set(operands)) for operands in of], [[] for _ in of]  # type: ignore[var-annotated]
    for j, operands in enumerate(of):
        for i in set(operands):
            users[i].append(j)
    behind = [0] * len(of)  # length of the longest chain of values that depend on each
    for j in range(len(of) - 1, -1, -1):
        further = behind[j] + 1
        for i in of[j]:
            if behind[i] < further:
                behind[i] = further
    ready: dict[int, list[int]] = {}
    for j, count in enumerate(waits):
        if not count:
            ready.setdefault(op[j], []).append(j)
    order = [ready.pop(kind) for kind in (ca.OP_CONST, ca.OP_INPUT) if kind in ready]
    done = [j for group in order for j in group]
    while True:
        for j in done:
            for u in users[j]:
                waits[u] -= 1
                if not waits[u]:
                    ready.setdefault(op[u], []).append(u)
        if not ready:
            return order
        done = ready.pop(max(ready, key=lambda kind: max(map(behind.__getitem__, ready[kind]))))
        order.append(done)


def _together(rows: Sequence[int]) -> Rows:
    """Convert row numbers to a slice if they are equally spaced, else to an array."""
    first, step = rows[0], rows[1] - rows[0] if len(rows) > 1 else 1
    end = first + step * len(rows)
    if step and list(rows) == list(range(first, end, step)):
        return slice(first, end if end >= 0 else None, step)
    return np.array(rows)


def _operation(op: int, operands: list[np.ndarray], out: np.ndarray) -> Callable[[], Any]:
    if op in ROUNDED:
        return partial(ROUNDED[op], *operands, out=out)
    if op == ca.OP_TWICE:
        return partial(np.add, operands[0], operands[0], out=out)
    operands, given = [np.empty_like(out) for _ in operands], operands
    args = [ca.MX.sym("a", a.size) for a in operands]
    does = ca.MX.unary(op, *args) if len(args) == 1 else ca.MX.binary(op, *args)
    function = ca.Function("operation", args, [does])
    buffer, evaluate = function.buffer()
    for i, a in enumerate(operands):
        buffer.set_arg(i, a.reshape(-1).data)
    buffer.set_res(0, out.reshape(-1).data)

    def call(_held=(buffer, out)) -> None:  # keeps references, as `evaluate` has none
        for own, a in zip(operands, given, strict=True):
            own[...] = a
        evaluate()

    return call
