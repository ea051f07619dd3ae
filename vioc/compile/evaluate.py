"""Evaluation of CasADi functions on rows of numpy arrays."""

from __future__ import annotations

from collections.abc import Callable

import casadi as ca
import numpy as np

from vioc.compile.programs import Bound, Program
from vioc.compile.virtual import VirtualProgram, run_buffered

__all__ = ["Bound", "Evaluator", "run_buffered"]


class Evaluator:
    """Evaluator of a CasADi function or program on rows of numpy arrays.

    Parameters
    ----------
    function : casadi.Function, callable that makes one, or Program
        Inputs are column vectors; outputs any matrices.

    Notes
    -----
    ``evaluator(a, b)`` with ``a`` of shape ``(N, size_a)`` evaluates N times at once; an argument of shape
    ``(size,)`` is the same for all rows. If no argument is two-dimensional, outputs have no leading axis.
    Output i has shape ``(N, rows, columns)``, even if it is a column.
    """

    def __init__(self, function: ca.Function | Callable[[], ca.Function] | Program):
        if isinstance(function, Program):
            self.program = function
        else:
            build = (lambda: function) if isinstance(function, ca.Function) else function
            self.program = VirtualProgram(build)

    def __call__(self, *args: np.ndarray) -> list[np.ndarray]:
        shapes = self.program.shapes_out
        if len(args) != len(self.program.shapes_in):
            raise TypeError(f"expected {len(self.program.shapes_in)} arguments, got {len(args)}")
        arrays = [np.ascontiguousarray(a, dtype=float) for a in args]
        count = None
        for a in arrays:
            if a.ndim == 2:
                count = len(a)
                break
        if count is None:
            outputs = self.program(arrays)
        elif count == 0:
            outputs = [np.empty(0) for _ in shapes]
        else:
            outputs = self.program.map(arrays, count)
        lead = () if count is None else (count,)
        return [_shaped(o, shape, lead) for o, shape in zip(outputs, shapes, strict=True)]


def _shaped(flat: np.ndarray, shape: tuple[int, int], lead: tuple[int, ...]) -> np.ndarray:
    rows, columns = shape
    if rows == 1 or columns == 1:
        return flat.reshape(*lead, rows, columns)
    return np.ascontiguousarray(flat.reshape(*lead, columns, rows).swapaxes(-1, -2))
