"""Barrier subproblems and Newton steps of multiple shooting in C (subproblem.c).

C is used if the map's backend compiles and stages are small. There, NumPy calls take about half the time of
an iteration: 22 of 48 ms for the cart-pole of the benchmarks.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from vioc.compile.background import ready
from vioc.compile.compiler import find_compiler
from vioc.compile.libraries import address, addresses, load_library
from vioc.control.shooting.newton_step import Newton
from vioc.control.shooting.stages import Point, StageBlocks, Stages
from vioc.control.shooting.subproblem import OF_DUALS, SIGMA, Iterate, Merit, NewtonDirection, Subproblem
from vioc.control.stages.recursion import SMALL, chain_source
from vioc.maps.protocol import OneStepMap

Long, Pointer, Number = ctypes.c_longlong, ctypes.c_void_p, ctypes.c_double


class _Subproblem(ctypes.Structure):
    """Layout of the C struct `subproblem`, a barrier subproblem (subproblem.c)."""

    _fields_ = (
        *((name, Long) for name in ("N", "n", "q", "e", "m", "rows", "free", "limits")),
        *((name, Pointer) for name in ("lower", "upper", "kind", "hard", "start", "estimate", "costates")),
        *((name, Number) for name in ("mu", "soft", "scale", "share")),
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


def subproblem_of(f: OneStepMap) -> type[Subproblem]:
    """Return the class of barrier subproblems, in C or in NumPy.
    The former is `NativeSubproblem`, the latter `Subproblem`.
    C is used if the map has few states and inputs and its backend compiles.

    With the backend ``"auto"``, searches that begin before the library is compiled use NumPy. A search keeps
    its class; its functions of derivatives may become compiled ones meanwhile (`AutoProgram`).
    """
    native = f.backend.name != "virtual" and f.ndx + f.nu <= SMALL and find_compiler() is not None
    if native and f.backend.name == "auto":
        native = ready(_library, [_source()])
    return NativeSubproblem if native else Subproblem


class NativeSubproblem(Subproblem):
    """Barrier subproblem of the interior-point method whose arithmetic is done in C."""

    native = True

    def __init__(self, stages: Stages, tolerance: float, soft: float, scale: float | None = None):
        super().__init__(stages, tolerance, soft, scale)
        rows, f = stages.rows, stages.map
        self._hard, start = (
            np.ascontiguousarray(rows.hard, np.int8),
            np.ascontiguousarray(stages.start, float),
        )
        self._held = self.lower, self.upper, self.kind, self._hard, start, self.estimate, self.costates
        sizes = len(stages.lengths), f.ndx, f.ndx + f.nu, f.ndx - stages.rigid, rows.m, len(rows)
        self._subproblem = _Subproblem(*sizes, start.shape[1], self._count, *addresses(self._held))
        self._blocks: tuple[Any, ...] = (None,)  # the last blocks, their C struct, and the arrays in it
        self._iterate: tuple[Any, ...] = (None,)
        self._found = np.empty(3)
        self._at_found = address(self._found)

    def now(self) -> Any:
        """Return a pointer to this barrier subproblem as a C struct."""
        v = self._subproblem
        v.mu, v.soft, v.scale, v.share = self.mu, self.soft, self.scale, self.share
        return ctypes.byref(v)

    def of(self, it: Iterate) -> Any:
        """Return a pointer to an iterate as a C struct."""
        if self._iterate[0] is not it:
            point = it.point
            arrays = [
                np.ascontiguousarray(a) for a in (point.gaps, point.rows, it.p, it.y, it.s, it.low, it.high)
            ]
            self._iterate = it, _Iterate(*addresses(arrays), point.cost), arrays
        self._iterate[1].elastic = self.elastic(it)
        return ctypes.byref(self._iterate[1])

    def blocks(self, b: StageBlocks) -> Any:
        """Return a pointer to the quadratic model of all stages as a C struct."""
        if self._blocks[0] is not b:
            m, q = b.J.shape[1:]
            one = b.J.strides[0] == 0  # derivatives of the constraints are the same at all steps
            arrays = b.F, b.g, b.g_end, b.J[0].copy() if one else b.J, b.J_end, b.H, b.H_end
            kept = [np.ascontiguousarray(a) for a in arrays]
            self._blocks = b, _Blocks(*addresses(kept), 0 if one else m * q), kept
        return ctypes.byref(self._blocks[1])

    def merit(self, point: Point, s: np.ndarray) -> Merit:
        arrays = np.ascontiguousarray(point.gaps), point.rows, s  # kept alive during the call
        gaps, h, of_s = addresses(arrays)
        _library().vioc_subproblem_merit(self.now(), gaps, h, point.cost, of_s, self._at_found)
        return Merit(*self._found.tolist())

    def trial_merit(self, it: Iterate, point: Point, s: np.ndarray) -> tuple[np.ndarray, Merit]:
        s = s.copy()
        arrays = np.ascontiguousarray(point.gaps), point.rows, s
        gaps, h, of_s = addresses(arrays)
        given = self.now(), self.of(it), self.keep, gaps, h, point.cost
        _library().vioc_subproblem_trial_merit(*given, of_s, self._at_found)
        return s, Merit(*self._found.tolist())

    def hessian(self, it, b, of_states, of_inputs, of_start):
        M, last = np.empty(b.H.shape), np.empty(b.H_end.shape)
        given = self.now(), self.blocks(b), self.of(it), of_states, of_inputs
        arrays = np.ascontiguousarray(of_start, float), M, last
        _library().vioc_subproblem_hessian(*given, *addresses(arrays))
        return M, last

    def linear(self, it, b, gaps, r, bent):
        v, g, end, c = np.empty(len(it.y)), np.empty(b.g.shape), np.empty(b.g_end.shape), np.empty(gaps.shape)
        more = None if bent is None else np.concatenate([bent[0].ravel(), bent[1]])
        arrays = np.ascontiguousarray(gaps), r, v, g, end, c
        left, rows, *out = addresses(arrays)
        given = self.now(), self.blocks(b), self.of(it), left, rows
        _library().vioc_subproblem_linear(*given, None if more is None else address(more), *out)
        return v, g, end, c

    def direction(self, it, b, r, v, solved):
        out = np.empty((4, len(it.y)))
        given = self.now(), self.blocks(b), self.of(it), 1 - self.keep
        _library().vioc_subproblem_direction(*given, *addresses([r, v, *solved[:2], out]), self._at_found)
        return directed(solved, out, self._found)

    def moved(self, it, d, point, s, length, of_multipliers):
        p, (y, low, high) = np.empty(it.p.shape), np.empty((3, len(s)))
        places = addresses([d.p, d.y, d.low, d.high, s, p, y, low, high])
        _library().vioc_subproblem_moved(self.now(), self.of(it), length, of_multipliers, SIGMA, *places)
        return Iterate(point, p, y, s, low, high)

    def errors(self, it, b):
        self.set_share(it)
        _library().vioc_subproblem_errors(
            self.now(), self.blocks(b), self.of(it), self.mu, OF_DUALS, self._at_found
        )
        return self._found[0].item(), self._found[1].item()


class _Kept(ctypes.Structure):
    """Layout of the C struct `kept`, which has the arrays of a factored Newton step."""

    _fields_ = tuple(
        (name, Pointer) for name in ("M", "last", "v", "g", "end", "c", "T", "P", "K", "L", "s", "d")
    )


def newton_of(subproblem: Subproblem) -> Newton:
    """Return the Newton solver of a barrier subproblem, in C or in NumPy.
    The solver is in C if the subproblem is a `NativeSubproblem` and the initial state is given.
    """
    given = not subproblem.stages.start.shape[1]
    return (
        NativeNewton(subproblem) if isinstance(subproblem, NativeSubproblem) and given else Newton(subproblem)
    )


class NativeNewton(Newton):
    """Newton solver in C for problems with a given initial state."""

    subproblem: NativeSubproblem

    def __init__(self, subproblem: NativeSubproblem):
        super().__init__(subproblem)
        N, n, m, rows = self.lq.N, self.lq.n, self.lq.m, len(subproblem.stages.rows)
        q = n + m
        shapes = (N, q, q), (n, n), (rows,), (N, q), (n,), (N, n)
        self._arrays = [np.empty(shape) for shape in shapes]
        self._kept = _Kept(*addresses(self._arrays), *self.lq.places)
        self._soft, self._found = 0.0, np.empty(3)

    def factor(self, it, b, of_states, of_inputs, of_start):
        subproblem, start = self.subproblem, np.ascontiguousarray(of_start, float)
        self._soft = subproblem.elastic(it)
        given = subproblem.now(), subproblem.blocks(b), subproblem.of(it), ctypes.byref(self._kept)
        return _library().vioc_newton_factor(*given, of_states, of_inputs, address(start)) < 0

    def solve(self, it, b, gaps, r, bent=None):
        subproblem, (N, n, m) = self.subproblem, (self.lq.N, self.lq.n, self.lq.m)
        x, u, p, out = np.empty((N + 1, n)), np.empty((N, m)), np.empty((N + 1, n)), np.empty((4, len(it.y)))
        more = None if bent is None else np.concatenate([bent[0].ravel(), bent[1]])
        given = subproblem.now(), subproblem.blocks(b), subproblem.of(it), ctypes.byref(self._kept)
        arrays = np.ascontiguousarray(gaps), r, x, u, p, out, self._found
        left, rows, *to = addresses(arrays)
        of_more = None if more is None else address(more)
        _library().vioc_newton_solve(*given, self._soft, 1 - subproblem.keep, left, rows, of_more, *to)
        return directed((x, u, p), out, self._found)


def directed(
    solved: tuple[np.ndarray, np.ndarray, np.ndarray], out: np.ndarray, found: np.ndarray
) -> NewtonDirection:
    """Return the Newton direction from arrays that the C code has filled."""
    slope, of_slacks, of_multipliers = found.tolist()
    (dx, du, p), (y, ds, low, high) = solved, out
    return NewtonDirection(dx, du, p, y, ds, low, high, slope, (of_slacks, of_multipliers))


@lru_cache(maxsize=1)
def _source() -> str:
    return chain_source() + Path(__file__).with_name("subproblem.c").read_text("utf-8")


@lru_cache(maxsize=1)
def _library() -> Any:
    library = load_library([_source()], "subproblems of an interior point")
    P, R = Pointer, Number
    for name, arguments in (
        ("errors", [P, P, P, R, R, P]),
        ("hessian", [P, P, P, R, R, P, P, P]),
        ("linear", [P] * 10),
        ("direction", [P, P, P, R, *[P] * 6]),
        ("merit", [P, P, P, R, P, P]),
        ("trial_merit", [P, P, R, P, P, R, P, P]),
        ("moved", [P, P, R, R, R, *[P] * 9]),
    ):
        function = getattr(library, f"vioc_subproblem_{name}")
        function.argtypes, function.restype = arguments, None
    library.vioc_newton_factor.argtypes = [P, P, P, P, R, R, P]
    library.vioc_newton_factor.restype = Long
    library.vioc_newton_solve.argtypes = [P, P, P, P, R, R, *[P] * 8]
    return library
