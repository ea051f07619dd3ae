"""The arithmetic of a level in C (level.c), where the map's backend compiles and stages are small.

numpy's calls are half of the time of an iteration there: of the cart-pole of the benchmarks 22 of 48 ms.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from vioc.compile.compiler import find_compiler
from vioc.compile.libraries import address, addresses, load_library
from vioc.control.shooting.level import OF_DUALS, Direction, Iterate, Level, Worth
from vioc.control.shooting.lq import SMALL
from vioc.control.shooting.stages import Blocks, Point, Stages

Long, Pointer, Number = ctypes.c_longlong, ctypes.c_void_p, ctypes.c_double


class _Level(ctypes.Structure):
    """`level` of level.c."""

    _fields_ = (
        *((name, Long) for name in ("N", "n", "q", "e", "m", "rows", "free", "limits")),
        *((name, Pointer) for name in ("lower", "upper", "kind", "hard", "start", "estimate", "costates")),
        *((name, Number) for name in ("mu", "soft", "scale")),
    )


class _Blocks(ctypes.Structure):
    _fields_ = (
        *((name, Pointer) for name in ("F", "g", "g_end", "J", "J_end", "H", "H_end")),
        ("of_J", Long),
    )


class _Iterate(ctypes.Structure):
    _fields_ = (
        *((name, Pointer) for name in ("gaps", "h", "p", "y", "s", "low", "high")),
        *((name, Number) for name in ("cost", "elastic")),
    )


def first_level(stages: Stages, tolerance: float, soft: float, scale: float | None = None) -> Level:
    """The first `Level`, in C where that pays."""
    f = stages.map
    native = f.backend.name != "virtual" and f.ndx + f.nu <= SMALL and find_compiler() is not None
    return (NativeLevel if native else Level)(stages, tolerance, soft, scale)


class NativeLevel(Level):
    """As `Level`, whose docstrings hold."""

    def __init__(self, stages: Stages, tolerance: float, soft: float, scale: float | None = None):
        super().__init__(stages, tolerance, soft, scale)
        rows, f = stages.rows, stages.map
        self._hard, start = (
            np.ascontiguousarray(rows.hard, np.int8),
            np.ascontiguousarray(stages.start, float),
        )
        self._held = self.lower, self.upper, self.kind, self._hard, start, self.estimate, self.costates
        sizes = len(stages.lengths), f.ndx, f.ndx + f.nu, f.ndx - stages.rigid, rows.m, len(rows)
        self._level = _Level(*sizes, start.shape[1], self._count, *addresses(self._held))
        self._blocks: tuple[Any, ...] = (None,)  # the last ones, what they are in C, and arrays to be kept
        self._iterate: tuple[Any, ...] = (None,)
        self._found = np.empty(3)
        self._at_found = address(self._found)

    def _now(self) -> Any:
        """This level as it is in C."""
        v = self._level
        v.mu, v.soft, v.scale = self.mu, self.soft, self.scale
        return ctypes.byref(v)

    def _of(self, it: Iterate) -> Any:
        if self._iterate[0] is not it:
            point = it.point
            arrays = [
                np.ascontiguousarray(a) for a in (point.gaps, point.rows, it.p, it.y, it.s, it.low, it.high)
            ]
            self._iterate = it, _Iterate(*addresses(arrays), point.cost), arrays, self.elastic(it) > 0
        self._iterate[1].elastic = self.soft if self._iterate[3] else 0.0
        return ctypes.byref(self._iterate[1])

    def _as(self, b: Blocks) -> Any:
        if self._blocks[0] is not b:
            m, q = b.J.shape[1:]
            one = b.J.strides[0] == 0  # rows whose derivatives are the same at all steps
            arrays = b.F, b.g, b.g_end, b.J[0].copy() if one else b.J, b.J_end, b.H, b.H_end
            kept = [np.ascontiguousarray(a) for a in arrays]
            self._blocks = b, _Blocks(*addresses(kept), 0 if one else m * q), kept
        return ctypes.byref(self._blocks[1])

    def worth(self, point: Point, s: np.ndarray) -> Worth:
        gaps, h, of_s = addresses([np.ascontiguousarray(point.gaps), point.rows, s])
        _library().vioc_level_worth(self._now(), gaps, h, point.cost, of_s, self._at_found)
        return Worth(*self._found.tolist())

    def judged(self, it: Iterate, point: Point, s: np.ndarray) -> tuple[np.ndarray, Worth]:
        s = s.copy()
        gaps, h, of_s = addresses([np.ascontiguousarray(point.gaps), point.rows, s])
        given = self._now(), self._of(it), self.keep, gaps, h, point.cost
        _library().vioc_level_judged(*given, of_s, self._at_found)
        return s, Worth(*self._found.tolist())

    def weighed(self, it, b, of_states, of_inputs, of_start):
        M, last = np.empty(b.H.shape), np.empty(b.H_end.shape)
        given = self._now(), self._as(b), self._of(it), of_states, of_inputs
        _library().vioc_level_weighed(*given, *addresses([np.ascontiguousarray(of_start, float), M, last]))
        return M, last

    def linear(self, it, b, gaps, r, bent):
        v, g, end, c = np.empty(len(it.y)), np.empty(b.g.shape), np.empty(b.g_end.shape), np.empty(gaps.shape)
        more = None if bent is None else np.concatenate([bent[0].ravel(), bent[1]])
        left, rows, *out = addresses([np.ascontiguousarray(gaps), r, v, g, end, c])
        given = self._now(), self._as(b), self._of(it), left, rows
        _library().vioc_level_linear(*given, None if more is None else address(more), *out)
        return v, g, end, c

    def direction(self, it, b, r, v, solved):
        out = np.empty((4, len(it.y)))
        given = self._now(), self._as(b), self._of(it), 1 - self.keep
        _library().vioc_level_direction(*given, *addresses([r, v, *solved[:2], out]), self._at_found)
        slope, of_slacks, of_multipliers = self._found.tolist()
        (dx, du, p), (y, ds, low, high) = solved, out
        return Direction(dx, du, p, y, ds, low, high, slope, (of_slacks, of_multipliers))

    def error(self, it: Iterate, b: Blocks, mu: float) -> float:
        return _library().vioc_level_error(self._now(), self._as(b), self._of(it), mu, OF_DUALS)


@lru_cache(maxsize=1)
def _library() -> Any:
    library = load_library([Path(__file__).with_name("level.c")], "levels of an interior point")
    P, R = Pointer, Number
    for name, arguments in (
        ("error", [P, P, P, R, R]),
        ("weighed", [P, P, P, R, R, P, P, P]),
        ("linear", [P] * 10),
        ("direction", [P, P, P, R, *[P] * 6]),
        ("worth", [P, P, P, R, P, P]),
        ("judged", [P, P, R, P, P, R, P, P]),
    ):
        function = getattr(library, f"vioc_level_{name}")
        function.argtypes, function.restype = arguments, R if name == "error" else None
    return library
