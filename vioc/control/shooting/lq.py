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
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from vioc.compile.compiler import find_compiler
from vioc.compile.libraries import address, load_library

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

    def factor(self, F: np.ndarray, M: np.ndarray, last: np.ndarray, soft: float = 0.0) -> bool:
        """Whether the problem has one minimum; F (N, n, n + m), M (N, n + m, n + m), last (n, n), soft =
        delta.
        """
        self._F, self._soft = np.ascontiguousarray(F), soft
        if self._native:
            M, last = np.ascontiguousarray(M), np.ascontiguousarray(last)
            arrays = self._F, M, last, self._T, self._P, self.gains, self._L
            stage = _library().vioc_lq_factor(*self._sizes, soft, *at(*arrays))
            if stage == -2:
                raise MemoryError("no memory for a Riccati recursion")
            good = stage == -1
        else:
            try:
                self._factor(M, last)
                good = bool(np.isfinite(self._P).all())
            except np.linalg.LinAlgError:
                good = False
        if good and self.free.shape[1]:
            self._at_start = self.free.T @ self._P @ self.free
            try:
                np.linalg.cholesky(self._at_start)
            except np.linalg.LinAlgError:
                return False
        return good

    @property
    def _sizes(self) -> tuple[int, int, int, int]:
        return self.N, self.n, self.n + self.m, self._elastic

    def _factor(self, M: np.ndarray, last: np.ndarray) -> None:
        n, e, F, P, one = self.n, self._elastic, self._F, last, np.eye(self._elastic)
        for k in range(self.N - 1, -1, -1):
            T = P
            if self._soft:
                L = np.linalg.cholesky(one + self._soft * P[:e, :e])
                half = np.linalg.solve(L, np.hstack([P[:e], one]))
                T = np.vstack([half[:, n:].T.dot(half[:, :n]), P[e:]])
                if e < n:  # what is rigid: P less what the elastic states give way
                    T[e:, :e] = T[:e, e:].T
                    T[e:, e:] -= self._soft * P[e:, :e].dot(T[:e, e:])
            H = F[k].T.dot(T.dot(F[k]))
            H += M[k]
            L = np.linalg.cholesky(H[n:, n:])
            half = np.linalg.solve(L, H[n:, :n])
            P = H[:n, :n] - half.T.dot(half)
            P = 0.5 * (P + P.T)
            self._T[k], self._L[k], self.gains[k] = T, L, np.linalg.solve(L.T, half)
        self._P = P

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
        N, n, m, e, soft = self.N, self.n, self.m, self._elastic, self._soft
        s, s0, d = np.empty((N, n)), np.empty(n), np.empty((N, m))
        x, u, p = np.empty((N + 1, n)), np.empty((N, m)), np.empty((N + 1, n))
        g, end, gaps = (np.ascontiguousarray(a) for a in (g, end, gaps))
        factors = self._F, self._T, self.gains
        if self._native:
            arrays = *factors, self._L, g, end, gaps, s, s0, d
            _library().vioc_lq_backward(*self._sizes, soft, *at(*arrays))
        else:
            s0 = self._backward(g, end, gaps, s, d)
        x[0] = x0
        if self.free.shape[1]:
            x[0] -= self.free @ np.linalg.solve(self._at_start, self.free.T @ (s0 + self._P @ x0))
        p[0] = self._P @ x[0] + s0
        if self._native:
            _library().vioc_lq_forward(*self._sizes, soft, *at(*factors, s, d, gaps, x, u, p[1:]))
        else:
            for k in range(N):
                u[k] = -self.gains[k].dot(x[k]) - d[k]
                moved = self._F[k, :, :n].dot(x[k]) + self._F[k, :, n:].dot(u[k]) + gaps[k]
                p[k + 1] = self._T[k].dot(moved) + s[k]
                x[k + 1] = moved
                x[k + 1, :e] -= soft * p[k + 1, :e]
        return x, u, p

    def _backward(self, g, end, gaps, s, d) -> np.ndarray:
        n, e, pushed, s0 = self.n, self._elastic, (self._T @ gaps[:, :, None])[..., 0], end
        for k in range(self.N - 1, -1, -1):
            s[k] = s0 - self._soft * self._T[k, :, :e].dot(s0[:e])
            h = g[k] + self._F[k].T.dot(pushed[k] + s[k])
            s0, d[k] = h[:n] - self.gains[k].T.dot(h[n:]), h[n:]
        L = self._L
        d[:] = np.linalg.solve(L.swapaxes(1, 2), np.linalg.solve(L, d[:, :, None]))[..., 0]
        return s0


def at(*arrays: np.ndarray) -> list[int]:
    return [address(a) for a in arrays]


@lru_cache(maxsize=1)
def _library() -> Any:
    library = load_library([Path(__file__).with_name("lq.c")], "Riccati recursion")
    given, pointer = [Long, Long, Long, Long, ctypes.c_double], ctypes.c_void_p
    for name, count in (("factor", 7), ("backward", 10), ("forward", 9)):
        getattr(library, f"vioc_lq_{name}").argtypes = [*given, *[pointer] * count]
    library.vioc_lq_factor.restype = Long
    return library
