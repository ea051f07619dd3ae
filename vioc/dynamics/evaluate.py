"""Calling CasADi functions on numpy arrays without conversion overhead.

`Function.buffer()` reads and writes numpy memory directly; a call that goes through CasADi's DM
costs ten times more.
"""

from __future__ import annotations

from collections.abc import Callable

import casadi as ca
import numpy as np


def dense(function: ca.Function) -> ca.Function:
    """The same function with dense outputs (a buffer of a sparse output holds its nonzeros only)."""
    if all(function.sparsity_out(i).is_dense() for i in range(function.n_out())):
        return function
    args = function.mx_in()
    outputs = [ca.densify(o) for o in function.call(args)]
    return ca.Function(function.name(), args, outputs)


def run_buffered(function: ca.Function, args: list[np.ndarray]) -> list[np.ndarray]:
    """Call `function` on C-contiguous float64 arrays; outputs come back flat, column-major."""
    buffer, evaluate = function.buffer()
    outputs = [np.empty(function.numel_out(i)) for i in range(function.n_out())]
    for i, a in enumerate(args):
        if a.size:
            buffer.set_arg(i, a.reshape(-1).data)
    for i, o in enumerate(outputs):
        if o.size:
            buffer.set_res(i, o.data)
    evaluate()
    return outputs


class Evaluator:
    """A CasADi function evaluated on rows of numpy arrays.

    Parameters
    ----------
    function : casadi.Function
        Inputs are column vectors; outputs any matrices.

    Notes
    -----
    ``evaluator(a, b)`` with ``a`` of shape ``(N, size_a)`` evaluates N times at once; an argument of
    shape ``(size,)`` is the same for all rows. Without any two-dimensional argument the outputs have
    no leading axis. Output i has shape ``(N, rows, columns)``, also where it is a column.
    """

    def __init__(self, function: ca.Function | Callable[[], ca.Function]):
        self._function: ca.Function | None = None
        self._build: Callable[[], ca.Function] = (
            (lambda: function) if isinstance(function, ca.Function) else function
        )
        self._mapped: dict[int, ca.Function] = {}

    @property
    def function(self) -> ca.Function:
        if self._function is None:
            self._function = dense(self._build())
        return self._function

    def __call__(self, *args: np.ndarray) -> list[np.ndarray]:
        f = self.function
        if len(args) != f.n_in():
            raise TypeError(f"{f.name()} takes {f.n_in()} arguments, got {len(args)}")
        arrays = [np.ascontiguousarray(a, dtype=float) for a in args]
        count = next((a.shape[0] for a in arrays if a.ndim == 2), None)
        if count is None:
            return [_shaped(o, f, i, None) for i, o in enumerate(run_buffered(f, arrays))]
        if count == 0:
            return [_shaped(np.empty(0), f, i, 0) for i in range(f.n_out())]
        if count not in self._mapped:
            if len(self._mapped) >= 8:
                self._mapped.pop(next(iter(self._mapped)))
            self._mapped[count] = f.map(count) if count > 1 else f
        tiled = [
            a if a.ndim == 2 else np.ascontiguousarray(np.broadcast_to(a, (count, a.size))) for a in arrays
        ]
        outputs = run_buffered(self._mapped[count], tiled)
        return [_shaped(o, f, i, count) for i, o in enumerate(outputs)]


def _shaped(flat: np.ndarray, f: ca.Function, i: int, count: int | None) -> np.ndarray:
    rows, columns = f.size_out(i)
    lead = () if count is None else (count,)
    return np.ascontiguousarray(np.swapaxes(flat.reshape(*lead, columns, rows), -1, -2))
