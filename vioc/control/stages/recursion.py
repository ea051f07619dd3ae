"""Riccati recursion for linear-quadratic optimal control problems.

One factorization serves many linear terms. The dynamics may be regularized, x_k+1 = F_k z_k + c_k - delta
p_k+1 with the costates p, except for the last (rigid) states. x_0 is given, or free along some directions.
`factor` does the part that depends on F, H and delta, `solve` the rest; see docs/maths/shooting.md, "The
linear-quadratic kernel". C code (`riccati.c`, `chain.c`) is used on request for small blocks, else NumPy.
"""

from __future__ import annotations

import ctypes
import math
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy.linalg.blas import dgemm
from scipy.linalg.lapack import dposv, dpotrf, dpotrs

from vioc.compile.background import ready
from vioc.compile.compiler import find_compiler
from vioc.compile.libraries import addresses, load_library
from vioc.control.stages.linear_quadratic import LinearQuadratic

SMALL = 48  # largest number of states and inputs of a stage for which C loops are faster than BLAS calls

INCLUDED = '#include "riccati.c"\n'  # replaced in chain.c by the text of that file

Long = ctypes.c_longlong


class NoMinimum(Exception):
    """Error raised if a linear-quadratic problem has no minimum.
    This means that the Hessian of a stage with respect to its inputs is not positive definite.

    `k` is the stage. `hessian` (m, m) includes the cost to go of the later stages.
    """

    def __init__(self, k: int, hessian: np.ndarray):
        super().__init__(k)
        self.k, self.hessian = k, hessian

    @property
    def least(self) -> float:
        """Smallest eigenvalue of the Hessian with respect to the inputs of the stage.
        The value is nan if the Hessian is not finite.
        """
        return float(np.linalg.eigvalsh(self.hessian)[0]) if np.isfinite(self.hessian).all() else np.nan


class Recursion:
    """Riccati recursion for N stages of n states and m inputs.

    Parameters
    ----------
    N, n, m : int
    free : (n, f), optional
        Directions along which x_0 is free; default none.
    native : bool
        Use C if blocks are small and there is a compiler.
    rigid : int
        Number of trailing states without regularized dynamics.

    Attributes
    ----------
    gains : (N, m, n)
        K of u = -K x - d, of the last factorization.
    lower : (N, m, m)
        Cholesky factors of the Hessians of the cost to go with respect to u. In C, the entries of their
        diagonals are replaced by the reciprocals.
    """

    def __init__(
        self, N: int, n: int, m: int, free: np.ndarray | None = None, native: bool = False, rigid: int = 0
    ):
        self.N, self.n, self.m, self.free = N, n, m, np.zeros((n, 0)) if free is None else free
        self._elastic = n - rigid
        self._T, self._P, self.gains = np.zeros((N, n, n)), np.zeros((n, n)), np.zeros((N, m, n))
        self.lower = np.zeros((N, m, m))
        self._F, self._soft = np.zeros((N, n, n + m)), 0.0
        self._at_start = np.zeros((self.free.shape[1],) * 2)
        self._native = native and n + m <= SMALL and find_compiler() is not None
        self._factors = addresses([self._T, self._P, self.gains, self.lower])
        self._between = np.empty((N, n)), np.empty(n), np.empty((N, m))  # s, that of the start, d
        self._places = addresses(self._between)

    @property
    def places(self) -> list[int]:
        """Memory addresses of the recursion's arrays, in the order that the C code needs."""
        of_s, _, of_d = self._places
        return [*self._factors, of_s, of_d]

    @property
    def costs(self) -> np.ndarray:
        """Matrices P (N+1, n, n) of the cost to go at all samples.

        The cost to go is 1/2 x'P x + p'x + const, for delta = 0.
        """
        return np.concatenate([self._P[None], self._T])

    def factor(self, q: LinearQuadratic, soft: float = 0.0) -> bool:
        """Factor a linear-quadratic problem; return True if it has a unique minimum.
        `soft` is the regularization delta of the dynamics x+ = F z + c - delta p+, with z = (x, u) and the
        costates p+ of the next state.
        """
        if self._native:
            self._begin(q.F, soft)
            given = addresses([self._F, np.ascontiguousarray(q.H), np.ascontiguousarray(q.H_end)])
            good = _library().vioc_chain_factor(*self._sizes, soft, *given, *self._factors) < 0
        else:
            try:
                self.backward(q, soft)
                good = True
            except NoMinimum:
                good = False
        if good and self.free.shape[1]:
            self._at_start = self.free.T @ self._P @ self.free
            try:
                np.linalg.cholesky(self._at_start)
            except np.linalg.LinAlgError:
                return False
        return good

    def _begin(self, F: np.ndarray, soft: float) -> None:
        self._F, self._soft = np.ascontiguousarray(F), soft
        self.__dict__.pop("_closed", None)

    @property
    def _sizes(self) -> tuple[int, int, int, int]:
        return self.N, self.n, self.n + self.m, self._elastic

    def backward(self, q: LinearQuadratic, soft: float = 0.0) -> None:
        """Factor a linear-quadratic problem in NumPy.
        Raise `NoMinimum` if the Hessian of a stage with respect to its inputs is not positive definite.

        The initial state is given. BLAS and LAPACK are called directly, since NumPy's wrappers take three
        times as long for a stage, and through SciPy alone, since the thread pool of NumPy's own BLAS would
        compete with SciPy's. A single input needs no LAPACK, and NumPy alone takes two thirds of the time.
        """
        self._begin(q.F, soft)
        n, m, P, F, H = self.n, self.m, q.H_end, self._F, q.H
        T_all, lower, gains = self._T, self.lower, self.gains
        one = np.eye(self._elastic, order="F") if soft and self._elastic else None
        single = m == 1 and one is None
        for k in range(self.N - 1, -1, -1):
            Fk = F[k]
            Ft = Fk.T
            T_all[k] = T = P if one is None else self._softened(k, P, one)
            G = Ft.dot(T.dot(Fk)) if single else dgemm(1.0, Ft, dgemm(1.0, Ft, T), trans_b=True)
            G += H[k]  # the Hessian of the cost to go by (x, u)
            Gxx = G[:n, :n]
            if single:
                g, Gux = float(G[n, n]), G[n:, :n]
                if not 0 < g < math.inf:  # also refuses NaN
                    raise NoMinimum(k, G[n:, n:])
                lower[k], gains[k] = math.sqrt(g), (K := Gux / g)
                Gxx = Gxx - Gux.T.dot(K)
            elif m:
                L, failed = dpotrf(G[n:, n:], lower=True)
                if failed or not L[-1, -1] < np.inf:
                    raise NoMinimum(k, G[n:, n:])
                K = dpotrs(L, G[n:, :n], lower=True)[0]
                lower[k], gains[k] = L, K
                Gxx = dgemm(-1.0, G[n:, :n], K, 1.0, Gxx, trans_a=True)
            P = 0.5 * (Gxx + Gxx.T)  # rounding would grow over long horizons
        self._P[:] = P
        if not np.isfinite(P).all():
            raise NoMinimum(0, np.full((m, m), np.nan))

    def _softened(self, k: int, P: np.ndarray, one: np.ndarray) -> np.ndarray:
        """Return the cost-to-go matrix T = P (I + D P)^-1 under regularized dynamics.
        P is the cost-to-go matrix without regularization. The diagonal matrix D has the entries delta for
        regularized states and 0 for all others. `one` is an identity matrix.
        """
        e, soft = len(one), self._soft
        S = one + soft * P[:e, :e]
        _, T, failed = dposv(S, P[:e], lower=True)
        if failed:
            raise NoMinimum(k, S)
        if e < self.n:  # Schur complement for the rigid states
            T = np.vstack([T, P[e:]])
            T[e:, :e] = T[:e, e:].T
            T[e:, e:] -= soft * P[e:, :e].dot(T[:e, e:])
        return T

    def linear(self, q: LinearQuadratic) -> tuple[np.ndarray, np.ndarray]:
        """Return the linear terms of the cost to go and of the feedback law.

        They are p (N+1, n) in the cost to go 1/2 x'P x + p'x, and d (N, m) in the feedback law u = -K x - d.
        P and K are those of the last factorization, which must have delta = 0.
        """
        s0, s, d = self._linear(q)
        return np.concatenate([s0[None], s]), d

    def solve(self, q: LinearQuadratic, x0: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the optimal states, inputs and costates for new linear terms.
        These terms are the gradients g and g_end of the costs and the constants c of the dynamics, from q.
        Hessians and dynamics matrices are those of the last factorization.

        Parameters
        ----------
        x0 : (n,)
            The initial state; its free directions are optimized.

        Returns
        -------
        x, u, p : (N+1, n), (N, m), (N+1, n)
            States, inputs, and costates of the start and of the dynamics.
        """
        N, n, m, soft = self.N, self.n, self.m, self._soft
        x, u, p = np.empty((N + 1, n)), np.empty((N, m)), np.empty((N + 1, n))
        if self._native:
            s, s0, d = self._between
            (T, _, K, L), (of_s, of_s0, of_d) = self._factors, self._places
            g, g_end, gaps = (np.ascontiguousarray(a) for a in (q.g, q.g_end, q.c))
            F, of_g, of_end, c, of_x, of_u, of_p = addresses([self._F, g, g_end, gaps, x, u, p[1:]])
            _library().vioc_chain_backward(*self._sizes, soft, F, T, K, L, of_g, of_end, c, of_s, of_s0, of_d)
        else:
            s0, s, d = self._linear(q)
        x[0] = x0
        if self.free.shape[1]:
            slope = self.free.T @ (s0 + self._P @ x0)
            try:
                x[0] -= self.free @ np.linalg.solve(self._at_start, slope)
            except np.linalg.LinAlgError:  # its Cholesky factor passed the test, a pivot is rounded to 0
                x[0] -= self.free @ np.linalg.lstsq(self._at_start, slope, rcond=None)[0]
        p[0] = self._P @ x[0] + s0
        if self._native:
            _library().vioc_chain_forward(*self._sizes, soft, F, T, K, of_s, of_d, c, of_x, of_u, of_p)
        else:
            self._forward(s, d, q.c, x, u, p)
        return x, u, p

    @cached_property
    def _closed(self) -> tuple[np.ndarray, np.ndarray]:
        """Closed-loop matrices A - B K (N, n, n), without and with regularized dynamics.

        A and B are the dynamics matrices, and K the gains. With regularized dynamics, the matrices are (I - D
        T) (A - B K), with the cost-to-go matrix T, and delta on the diagonal of D for regularized states.
        """
        n, e = self.n, self._elastic
        free = self._F[:, :, :n] - self._F[:, :, n:] @ self.gains
        if not self._soft:
            return free, free
        along = free.copy()
        along[:, :e] -= self._soft * (self._T[:, :e] @ free)
        return free, along

    def _linear(self, q: LinearQuadratic) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the linear terms of the cost to go and of the feedback law of all stages.

        The first two results are vectors s in the cost to go 1/2 x'P x + s'x: (n,) of the first state, and
        (N, n) of the states after all steps, for regularized dynamics (s~ in docs/maths/shooting.md, IP 9).
        The third is d (N, m) in u = -K x - d.
        """
        n, e, (free, along), pushed = self.n, self._elastic, self._closed, _times(self._T, q.c)
        given = q.g[:, :n] - _times(self.gains, q.g[:, n:], True) + _times(free, pushed, True)
        S = np.empty((self.N + 1, n))
        S[-1] = q.g_end
        for k in range(self.N - 1, -1, -1):
            S[k] = S[k + 1].dot(along[k]) + given[k]
        s = S[1:] - self._soft * _times(self._T[:, :, :e], S[1:, :e])
        h, L = q.g[:, n:] + _times(self._F[:, :, n:], pushed + s, True), self.lower
        d = np.linalg.solve(L.swapaxes(1, 2), np.linalg.solve(L, h[:, :, None]))[..., 0]
        return S[0], s, d

    def _forward(self, s, d, gaps, x, u, p) -> None:
        """Write the optimal states, inputs and costates into x, u and p, forward in time.
        The arguments s and d are the results of `_linear`, and gaps are the constants c of the dynamics. The
        first state x[0] is given.
        """
        n, e, (free, along) = self.n, self._elastic, self._closed
        moved = gaps - _times(self._F[:, :, n:], d)
        given = moved.copy()
        given[:, :e] -= self._soft * (_times(self._T, moved) + s)[:, :e]
        for k in range(self.N):
            x[k + 1] = along[k].dot(x[k]) + given[k]
        u[:] = -_times(self.gains, x[:-1]) - d
        p[1:] = s + _times(self._T, moved + _times(free, x[:-1]))


def _times(M: np.ndarray, v: np.ndarray, transposed: bool = False) -> np.ndarray:
    """Multiply the matrix of each stage, or its transpose, by the vector of the stage."""
    return (v[:, None] @ M)[:, 0] if transposed else (M @ v[:, :, None])[..., 0]


def chain_source() -> str:
    """Return the C code of the Riccati recursion over all stages (chain.c)."""
    return Path(__file__).with_name("chain.c").read_text("utf-8").replace(INCLUDED, stage_source())


def stage_source() -> str:
    """Return the C code of the Riccati recursion's step for one stage (riccati.c).
    It is included in C programs that contain the loop over the stages.
    """
    return Path(__file__).with_name("riccati.c").read_text("utf-8")


def in_c(backend: str) -> bool:
    """Return True if Riccati recursions run in C for maps with the given backend.

    ``backend`` is the backend's name. For ``"auto"`` the result is True as soon as the library is compiled,
    which happens in the background.
    """
    if backend == "virtual" or find_compiler() is None:
        return False
    return backend == "compiled" or ready(_library, [chain_source()])


@lru_cache(maxsize=1)
def _library() -> Any:
    library = load_library([chain_source()], "Riccati recursion")
    given, pointer = [Long, Long, Long, Long, ctypes.c_double], ctypes.c_void_p
    for name, count in (("factor", 7), ("backward", 10), ("forward", 9)):
        getattr(library, f"vioc_chain_{name}").argtypes = [*given, *[pointer] * count]
    library.vioc_chain_factor.restype = Long
    return library
