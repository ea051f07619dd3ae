"""Programs that run in CasADi's virtual machine, without a compiler."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cached_property
from threading import Lock

import casadi as ca
import numpy as np

from vioc.compile.grouped import GroupedFunction
from vioc.compile.programs import CHUNK, Bound, Program, dense, without_repetition
from vioc.progress import Progress

FEW = 8  # points up to which only the virtual machine is considered
REGROUPED = 1200  # points at which a function has taken as much time as grouping its operations takes
SMALL = 4096  # numbers of arguments and results up to which they are copied to memory that CasADi knows
REDUCED = 10_000  # evaluations in which repeated operations have taken as much time as finding them takes
KEPT = 24  # number of kept functions that are mapped or accumulated to some length
UNROLLED = (
    16,
    2500,
)  # evaluations unrolled into one function: most evaluations, and most operations (more run slower)


def run_buffered(
    function: ca.Function, args: Sequence[np.ndarray], sizes: Sequence[int] | None = None
) -> list[np.ndarray]:
    """Call a CasADi function on C-contiguous float64 arrays without copying them.

    Outputs are flat, column-major. `Function.buffer()` reads and writes numpy memory directly; a call with
    CasADi's DM takes ten times as long. `sizes` are those of the outputs, for callers that know them.
    """
    buffer, evaluate = function.buffer()
    if sizes is None:
        sizes = [function.numel_out(i) for i in range(function.n_out())]
    outputs = [np.empty(size) for size in sizes]
    for i, a in enumerate(args):
        if a.size:
            buffer.set_arg(i, a.reshape(-1).data)
    for i, o in enumerate(outputs):
        if o.size:
            buffer.set_res(i, o.data)
    evaluate()
    return outputs


class BoundMemory:
    """Memory of one CasADi function for its arguments and results.

    Telling CasADi where an array lies takes 2 us, and copying a small one 0.3 us. So a call copies arguments
    to memory that CasADi was told of once.
    """

    def __init__(self, function: ca.Function):
        inputs = [function.nnz_in(i) for i in range(function.n_in())]
        outputs = [function.nnz_out(i) for i in range(function.n_out())]
        self._sizes, self._function = inputs, function
        self.small = sum(inputs) + sum(outputs) <= SMALL
        if self.small:
            self._arguments = np.empty(sum(inputs))
            self._results = [np.empty(size) for size in outputs]
            self._buffer, self._evaluate = function.buffer()
            parts = np.split(self._arguments, np.cumsum(inputs)[:-1])
            for tell, arrays in ((self._buffer.set_arg, parts), (self._buffer.set_res, self._results)):
                for i, a in enumerate(arrays):
                    if a.size:
                        tell(i, a.data)

    def __call__(self, args: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Evaluate the function as `run_buffered` does."""
        if not self.small or [a.size for a in args] != self._sizes:  # the latter raises an error
            return run_buffered(self._function, args)
        if self._sizes:
            np.concatenate([a.reshape(-1) for a in args], out=self._arguments)
        self._evaluate()
        return [o.copy() for o in self._results]


class VirtualProgram(Program):
    """Program that evaluates a CasADi function in CasADi's virtual machine.
    The function is built on first use.
    """

    def __init__(self, build: Callable[[], ca.Function]):
        self._build = build
        self._function: ca.Function | None = None
        self._lock = Lock()
        self._idle: list[BoundMemory] = []  # as many as there were calls at the same time
        self._long: OrderedDict[tuple[str, int, tuple[int, ...]], ca.Function] = OrderedDict()
        self._points = self._evaluations = 0
        self._grouped: GroupedFunction | None = None

    @property
    def function(self) -> ca.Function:
        if self._function is None:
            with Progress("building functions"):
                self._function = dense(self._build())
        return self._function

    @cached_property
    def operations(self) -> int:
        """Number of operations of the function and of all functions in it.
        Functions that are called several times count once, as in generated C.
        """
        parts = [self.function, *self.function.find_functions()]
        return sum(f.n_instructions() for f in parts if f.is_a("SXFunction") or f.is_a("MXFunction"))

    @cached_property
    def sizes_out(self) -> list[int]:
        return [r * c for r, c in self.shapes_out]

    @cached_property
    def shapes_in(self):  # type: ignore[override]
        return tuple(self.function.size_in(i) for i in range(self.function.n_in()))

    @cached_property
    def shapes_out(self):  # type: ignore[override]
        return tuple(self.function.size_out(i) for i in range(self.function.n_out()))

    def __call__(self, args: Sequence[np.ndarray]) -> list[np.ndarray]:
        self._reduce(1)
        try:
            memory = self._idle.pop()
        except IndexError:
            memory = BoundMemory(self.function)
        outputs = memory(args)
        self._idle.append(memory)
        return outputs

    def _reduce(self, count: int) -> None:
        """Count the evaluations of this program's function.
        After many evaluations, remove common subexpressions from the function.

        Functions are built without that search, which takes ten times as long as the rest of building them,
        unless it finds much or they become parts of many others. Results are the same bits.
        """
        self._evaluations += count
        if self._evaluations - count <= REDUCED < self._evaluations:
            with self._lock:
                self._function = dense(without_repetition(self.function))
                self._long.clear()
                self._idle.clear()
                self._grouped, self._points = None, 0

    def map(self, args: Sequence[np.ndarray], count: int) -> list[np.ndarray]:
        shared = tuple(i for i, a in enumerate(args) if a.ndim < 2 or count == 1)
        args = [a if a.ndim == 2 and len(a) == count else a.reshape(-1) for a in args]
        self._reduce(count)
        grouped = self._by_groups(count)
        if grouped is not None:
            outputs = [np.empty((count, size)) for size in self.sizes_out]
            grouped(args, outputs)
            return [o.reshape(-1) for o in outputs]
        sizes = [count * size for size in self.sizes_out]
        return run_buffered(self._strung("map", count, shared), args, sizes)

    def _by_groups(self, count: int) -> GroupedFunction | None:
        """Return the function in the form that numpy evaluates at many points at once.
        Return None if this form does not exist, or if it would be slower for `count` points.
        """
        if count < FEW:
            return None
        grouped = self._grouped
        if grouped is None and self._points >= 0:
            with self._lock:
                self._points += count
                if self._points > REGROUPED:
                    if GroupedFunction.possible(self.function):
                        grouped = self._grouped = GroupedFunction(self.function)
                    self._points = -1
        return grouped if grouped is not None and count >= grouped.least else None

    def accumulate(self, carry, rows, count, keep, tolerance, first=CHUNK):
        sizes = self.sizes_out
        kept = [np.empty((count, keep if i == 0 else size)) for i, size in enumerate(sizes)]
        done, size = 0, min(first, count)
        with Progress("rollout", count) if count > CHUNK else nullcontext() as progress:
            while done < count:
                m = min(size, count - done)
                piece = [_tiled(a[done : done + m] if a.ndim == 2 else a, m) for a in rows]
                outputs = run_buffered(
                    self._strung("mapaccum", m), [carry, *piece], [m * size for size in sizes]
                )
                carries = outputs[0].reshape(m, -1)
                good = (outputs[2] <= tolerance) & np.isfinite(carries[:, :keep]).all(axis=1)
                n = m if good.all() else int(np.argmin(good))
                kept[0][done : done + n] = carries[:n, :keep]
                for whole, part, width in zip(kept[1:], outputs[1:], sizes[1:], strict=True):
                    whole[done : done + n] = part.reshape(m, width)[:n]
                done += n
                if n < m:
                    return [k[:done] for k in kept], done, float(outputs[2][n])
                carry = np.ascontiguousarray(carries[-1])
                size = min(2 * size, CHUNK)
                if progress is not None:
                    progress.to(done)
        return kept, done, 0.0

    def bind_map(self, args: Sequence[np.ndarray], count: int) -> Bound:
        shared = tuple(i for i, a in enumerate(args) if a.ndim < 2 or count == 1)
        outputs = [np.empty((count, size)) for size in self.sizes_out]
        evaluate = _bound(self._strung("map", count, shared), _inputs(args), outputs)

        def call() -> int:
            evaluate()
            return count

        return Bound(call, outputs)

    def bind_accumulate(self, carry, rows, count, keep, tolerance):
        if count > CHUNK:  # in pieces
            return super().bind_accumulate(carry, rows, count, keep, tolerance)
        outputs = [np.empty((count, size)) for size in self.sizes_out]
        evaluate = _bound(self._strung("mapaccum", count), _inputs([carry[None], *rows], count), outputs)
        carries, errors = outputs[0][:, :keep], outputs[2][:, 0]

        def call() -> int:
            evaluate()
            # comparisons with NaN are false
            if errors.max() <= tolerance and (not keep or np.isfinite(carries).all()):
                return count
            good = (errors <= tolerance) & np.isfinite(carries).all(axis=1)
            return count if good.all() else int(np.argmin(good))

        return Bound(call, [carries, *outputs[1:]])

    def _strung(self, how: str, n: int, shared: tuple[int, ...] = ()) -> ca.Function:
        """Return a CasADi function that maps this program's function, or iterates it.
        It evaluates the function for n rows or n times in succession, and is stored for later calls.
        Arguments with indices `shared` are the same for all rows.
        """
        key, f = (how, n, shared), self.function
        with self._lock:  # shared by the rollouts of a batch
            if key in self._long:
                self._long.move_to_end(key)
                return self._long[key]
            if how == "map":
                self._long[key] = f.map(f"{f.name()}_{n}", "serial", n, list(shared), []) if n > 1 else f
            else:
                self._long[key] = _accumulated(f, n)
            if len(self._long) > KEPT:
                self._long.popitem(last=False)
            return self._long[key]


def _accumulated(f: ca.Function, n: int) -> ca.Function:
    """Return a CasADi function that iterates f n times.
    The first output of each evaluation is the first argument of the next.

    A small f is evaluated several times within one function. A call costs as much as about 100 operations.
    """
    most, operations = UNROLLED
    m = min(most, operations // max(f.n_instructions(), 1), n)
    name = f"{f.name()}_{n}"
    if m < 2 or not f.is_a("SXFunction"):
        return f.mapaccum(name, n)
    start = now = ca.MX.sym("start", f.numel_in(0))
    rows = [ca.MX.sym("rows", f.numel_in(i), n) for i in range(1, f.n_in())]
    whole, pieces = n - n % m, []
    for first, last, count in ((0, whole, m), (whole, n, n - whole)):
        if count:
            strung = _written_out(f, count).mapaccum("strung", (last - first) // count)
            now, *outputs = strung(now, *(a[:, first:last] for a in rows))
            now = now[:, -1]
            pieces.append(outputs)
    return ca.Function(name, [start, *rows], [ca.horzcat(*parts) for parts in zip(*pieces, strict=True)])


def _written_out(f: ca.Function, m: int) -> ca.Function:
    """Return a CasADi function that contains m consecutive evaluations of f.
    The first output of each evaluation, the carry, is the first argument of the next. The function is (carry,
    rows) -> (last carry, all carries, other outputs), where rows and outputs have a column for each
    evaluation.
    """
    start = now = ca.SX.sym("start", f.numel_in(0))
    rows = [ca.SX.sym("rows", f.numel_in(i), m) for i in range(1, f.n_in())]
    found = []
    for k in range(m):
        args = [now, *(a[:, k] for a in rows)]
        outputs = f.call([ca.reshape(a, f.size_in(i)) for i, a in enumerate(args)])
        now = ca.vec(outputs[0])
        found.append([ca.vec(o) for o in outputs])
    return ca.Function(
        "some", [start, *rows], [now, *(ca.horzcat(*parts) for parts in zip(*found, strict=True))]
    )


def _tiled(a: np.ndarray, count: int) -> np.ndarray:
    if a.ndim < 2:
        a = np.broadcast_to(a.reshape(-1), (count, a.size))
    return np.ascontiguousarray(a)


def _inputs(args: Sequence[np.ndarray], count: int = 0) -> list[tuple[np.ndarray, np.ndarray | None]]:
    """Return, for each argument, a contiguous array and the array to copy from.
    The second array is None if the first is the argument itself, so that nothing is copied. With a `count`, a
    one-dimensional argument is repeated `count` times.
    """
    found: list[tuple[np.ndarray, np.ndarray | None]] = []
    for a in args:
        repeated = count if a.ndim == 1 else 0
        if a.flags.c_contiguous and not repeated:
            found.append((a, None))
        else:
            found.append((np.empty((repeated, *a.shape) if repeated else a.shape), a))
    return found


def _bound(
    function: ca.Function,
    args: Sequence[tuple[np.ndarray, np.ndarray | None]],
    outputs: Sequence[np.ndarray],
) -> Callable[[], None]:
    """Return a callable that evaluates a CasADi function on fixed arrays.
    Each pair in `args` has the array that the function reads, and the array to copy to it before each call,
    or None.
    """
    buffer, evaluate = function.buffer()
    copies = [(own, source) for own, source in args if source is not None and own.size]
    for i, (a, _) in enumerate(args):
        if a.size:
            buffer.set_arg(i, a.reshape(-1).data)
    for i, o in enumerate(outputs):
        if o.size:
            buffer.set_res(i, o.reshape(-1).data)

    def call(_held=(buffer, args, outputs)) -> None:  # keeps references, as `evaluate` has none
        for own, source in copies:
            own[...] = source
        evaluate()

    return call
