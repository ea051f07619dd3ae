"""Programs in CasADi's virtual machine: they start at once and need no compiler."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import cached_property
from threading import Lock

import casadi as ca
import numpy as np

from vioc.dynamics.compile.programs import CHUNK, Program, dense

KEPT = 24  # functions mapped or strung to a certain length


def run_buffered(
    function: ca.Function, args: Sequence[np.ndarray], sizes: Sequence[int] | None = None
) -> list[np.ndarray]:
    """Call `function` on C-contiguous float64 arrays; outputs come back flat, column-major.

    `Function.buffer()` reads and writes numpy memory directly; a call that goes through CasADi's DM
    costs ten times more. `sizes` are those of the outputs, for callers that know them.
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


class VirtualProgram(Program):
    """A CasADi function as a program; it is built when it is first needed."""

    def __init__(self, build: Callable[[], ca.Function]):
        self._build = build
        self._function: ca.Function | None = None
        self._lock = Lock()
        self._long: OrderedDict[tuple[str, int, tuple[int, ...]], ca.Function] = OrderedDict()

    @property
    def function(self) -> ca.Function:
        if self._function is None:
            self._function = dense(self._build())
        return self._function

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
        return run_buffered(self.function, args, self.sizes_out)

    def map(self, args: Sequence[np.ndarray], count: int) -> list[np.ndarray]:
        shared = tuple(i for i, a in enumerate(args) if a.ndim < 2 or count == 1)
        args = [a if a.ndim == 2 and len(a) == count else a.reshape(-1) for a in args]
        sizes = [count * size for size in self.sizes_out]
        return run_buffered(self._strung("map", count, shared), args, sizes)

    def accumulate(self, carry, rows, count, keep, tolerance, first=CHUNK):
        sizes = self.sizes_out
        kept = [np.empty((count, keep if i == 0 else size)) for i, size in enumerate(sizes)]
        done, size = 0, min(first, count)
        while done < count:
            m = min(size, count - done)
            piece = [_tiled(a[done : done + m] if a.ndim == 2 else a, m) for a in rows]
            outputs = run_buffered(self._strung("mapaccum", m), [carry, *piece], [m * size for size in sizes])
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
        return kept, done, 0.0

    def _strung(self, how: str, n: int, shared: tuple[int, ...] = ()) -> ca.Function:
        """The function mapped, with `shared` arguments the same for all, or accumulated n times."""
        key, f = (how, n, shared), self.function
        with self._lock:  # rollouts of a batch share this
            if key in self._long:
                self._long.move_to_end(key)
                return self._long[key]
            if how == "map":
                self._long[key] = f.map(f"{f.name()}_{n}", "serial", n, list(shared), []) if n > 1 else f
            else:
                self._long[key] = f.mapaccum(f"{f.name()}_{n}", n)
            if len(self._long) > KEPT:
                self._long.popitem(last=False)
            return self._long[key]


def _tiled(a: np.ndarray, count: int) -> np.ndarray:
    if a.ndim < 2:
        a = np.broadcast_to(a.reshape(-1), (count, a.size))
    return np.ascontiguousarray(a)
