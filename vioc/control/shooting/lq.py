"""The linear-quadratic problem of a chain of stages: one Riccati recursion, many right-hand sides.

    minimize  sum over k < N of g_k'z_k + 1/2 z_k'M_k z_k  +  g_N'x_N + 1/2 x_N' M_N x_N,  z_k = (x_k, u_k)
    subject to  x_k+1 = F_k z_k + c_k - delta p_k+1,

p the costates: where delta > 0 the dynamics are elastic, but for the last states, which may be rigid. x_0 is
given, or free along some directions. `factor` does what depends on F, M and delta, `solve` the rest; see
docs/maths/shooting.md, "The linear-quadratic kernel".
In C where the map's backend compiles and blocks are small; in numpy else.
"""

from __future__ import annotations

import ctypes
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg.lapack import dposv, dpotrf, dtrtrs

from vioc.compile.compiler import find_compiler
from vioc.compile.libraries import addresses, load_library

SMALL = 48  # states and inputs of a stage up to which loops in C are quicker than BLAS call by call

Long = ctypes.c_longlong


class StageQuadratic:
    """The problem for N stages of n states and m inputs.

    Parameters
    ----------
    N, n, m : int
    free : (n, f)
        Directions along which x_0 is not given.
    native : bool
        Use the C kernel where blocks are small and a compiler is there.
    rigid : int
        How many of the last states have no elastic dynamics.

    Attributes
    ----------
    gains : (N, m, n)
        u = -K x - d, of the last factorization.
    """

    def __init__(self, N: int, n: int, m: int, free: np.ndarray, native: bool, rigid: int = 0):
        self.N, self.n, self.m, self.free = N, n, m, free
        self._elastic = n - rigid
        self._T, self._P, self.gains = np.zeros((N, n, n)), np.zeros((n, n)), np.zeros((N, m, n))
        self._L = np.zeros((N, m, m))
        self._F, self._soft = np.zeros((N, n, n + m)), 0.0
        self._at_start = np.zeros((free.shape[1],) * 2)
        self._native = native and n + m <= SMALL and find_compiler() is not None
        self._factors = addresses([self._T, self._P, self.gains, self._L])
        self._between = np.empty((N, n)), np.empty(n), np.empty((N, m))  # s, that of the start, d
        self._places = addresses(self._between)

    @property
    def places(self) -> list[int]:
        """Where T, P, K, L, s and d of the kernel in C lie."""
        of_s, _, of_d = self._places
        return [*self._factors, of_s, of_d]

    def factor(self, F: np.ndarray, M: np.ndarray, last: np.ndarray, soft: float = 0.0) -> bool:
        """Whether the problem has one minimum; F (N, n, n + m), M (N, n + m, n + m), last (n, n), soft =
        delta.
        """
        self._F, self._soft = np.ascontiguousarray(F), soft
        self.__dict__.pop("_closed", None)
        if self._native:
            arrays = self._F, np.ascontiguousarray(M), np.ascontiguousarray(last)
            given = addresses(arrays)
            stage = _library().vioc_lq_factor(*self._sizes, soft, *given, *self._factors)
            good = self.factored(stage)
        else:
            good = self._factor(M, last)
        if good and self.free.shape[1]:
            self._at_start = self.free.T @ self._P @ self.free
            try:
                np.linalg.cholesky(self._at_start)
            except np.linalg.LinAlgError:
                return False
        return good

    def factored(self, stage: int) -> bool:
        """Whether `vioc_lq_factor` went through all stages."""
        if stage == -2:
            raise MemoryError("no memory for a Riccati recursion")
        return stage == -1

    @property
    def _sizes(self) -> tuple[int, int, int, int]:
        return self.N, self.n, self.n + self.m, self._elastic

    def _factor(self, M: np.ndarray, last: np.ndarray) -> bool:
        """By LAPACK's own names: numpy's calls for a stage take three times what is in them."""
        n, m, e, F, P, one = self.n, self.m, self._elastic, self._F, last, np.eye(self._elastic)
        for k in range(self.N - 1, -1, -1):
            T = P
            if self._soft and e:
                _, T, failed = dposv(one + self._soft * P[:e, :e], P[:e], lower=True)
                if failed:
                    return False
                if e < n:  # what is rigid: P less what the elastic states give way
                    T = np.vstack([T, P[e:]])
                    T[e:, :e] = T[:e, e:].T
                    T[e:, e:] -= self._soft * P[e:, :e].dot(T[:e, e:])
            H = F[k].T.dot(T.dot(F[k]))
            H += M[k]
            if m:
                L, failed = dpotrf(H[n:, n:], lower=True)
                if failed:
                    return False
                half, _ = dtrtrs(L, H[n:, :n], lower=True)
                H[:n, :n] -= half.T.dot(half)
                self._L[k], self.gains[k] = L, dtrtrs(L, half, lower=True, trans=True)[0]
            P = 0.5 * (H[:n, :n] + H[:n, :n].T)
            self._T[k] = T
        self._P = P
        return bool(np.isfinite(P).all())

    def solve(
        self, g: np.ndarray, end: np.ndarray, gaps: np.ndarray, x0: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The minimum (x (N+1, n), u (N, m)) and the costates (N+1, n) of the dynamics, the first of the
        start.

        Parameters
        ----------
        g, end : (N, n + m), (n,)
            Linear terms.
        gaps : (N, n)
            c.
        x0 : (n,)
            What is added to it along its free directions is chosen here.
        """
        N, n, m, soft = self.N, self.n, self.m, self._soft
        x, u, p = np.empty((N + 1, n)), np.empty((N, m)), np.empty((N + 1, n))
        g, end, gaps = (np.ascontiguousarray(a) for a in (g, end, gaps))
        if self._native:
            s, s0, d = self._between
            (T, _, K, L), (of_s, of_s0, of_d) = self._factors, self._places
            F, of_g, of_end, c, of_x, of_u, of_p = addresses([self._F, g, end, gaps, x, u, p[1:]])
            _library().vioc_lq_backward(*self._sizes, soft, F, T, K, L, of_g, of_end, c, of_s, of_s0, of_d)
        else:
            s0, s, d = self._backward(g, end, gaps)
        x[0] = x0
        if self.free.shape[1]:
            x[0] -= self.free @ np.linalg.solve(self._at_start, self.free.T @ (s0 + self._P @ x0))
        p[0] = self._P @ x[0] + s0
        if self._native:
            _library().vioc_lq_forward(*self._sizes, soft, F, T, K, of_s, of_d, c, of_x, of_u, of_p)
        else:
            self._forward(s, d, gaps, x, u, p)
        return x, u, p

    @cached_property
    def _closed(self) -> tuple[np.ndarray, np.ndarray]:
        """A - B K (N, n, n), and the same where gaps give way, (I - D T) (A - B K)."""
        n, e = self.n, self._elastic
        free = self._F[:, :, :n] - self._F[:, :, n:] @ self.gains
        if not self._soft:
            return free, free
        along = free.copy()
        along[:, :e] -= self._soft * (self._T[:, :e] @ free)
        return free, along

    def _backward(self, g, end, gaps) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """s of the first stage (n,), those of all after softening (N, n), and d (N, m)."""
        n, e, (free, along), pushed = self.n, self._elastic, self._closed, _times(self._T, gaps)
        given = g[:, :n] - _times(self.gains, g[:, n:], True) + _times(free, pushed, True)
        S = np.empty((self.N + 1, n))
        S[-1] = end
        for k in range(self.N - 1, -1, -1):
            S[k] = S[k + 1].dot(along[k]) + given[k]
        s = S[1:] - self._soft * _times(self._T[:, :, :e], S[1:, :e])
        h, L = g[:, n:] + _times(self._F[:, :, n:], pushed + s, True), self._L
        d = np.linalg.solve(L.swapaxes(1, 2), np.linalg.solve(L, h[:, :, None]))[..., 0]
        return S[0], s, d

    def _forward(self, s, d, gaps, x, u, p) -> None:
        """Write the states behind the first, inputs, and costates of the steps."""
        n, e, (free, along) = self.n, self._elastic, self._closed
        moved = gaps - _times(self._F[:, :, n:], d)
        given = moved.copy()
        given[:, :e] -= self._soft * (_times(self._T, moved) + s)[:, :e]
        for k in range(self.N):
            x[k + 1] = along[k].dot(x[k]) + given[k]
        u[:] = -_times(self.gains, x[:-1]) - d
        p[1:] = s + _times(self._T, moved + _times(free, x[:-1]))


def _times(M: np.ndarray, v: np.ndarray, transposed: bool = False) -> np.ndarray:
    """Products M v, or M'v, stage by stage."""
    return (v[:, None] @ M)[:, 0] if transposed else (M @ v[:, :, None])[..., 0]


@lru_cache(maxsize=1)
def _library() -> Any:
    library = load_library([Path(__file__).with_name("lq.c")], "Riccati recursion")
    given, pointer = [Long, Long, Long, Long, ctypes.c_double], ctypes.c_void_p
    for name, count in (("factor", 7), ("backward", 10), ("forward", 9)):
        getattr(library, f"vioc_lq_{name}").argtypes = [*given, *[pointer] * count]
    library.vioc_lq_factor.restype = Long
    return library
