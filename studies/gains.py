"""Regulators against a Riccati recursion written a second time, and convergence that is quadratic."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import vioc


def gains(A: np.ndarray, B: np.ndarray, Q: np.ndarray, R: np.ndarray, Qf: np.ndarray) -> np.ndarray:
    """K (N, m, n) along A (N, n, n), B (N, n, m), in Joseph's form and without the package's own sweep."""
    P, K = Qf, np.empty((len(A), B.shape[-1], B.shape[-2]))
    for k in reversed(range(len(A))):
        K[k] = np.linalg.solve(R + B[k].T @ P @ B[k], B[k].T @ P @ A[k])
        closed = A[k] - B[k] @ K[k]
        P = Q + K[k].T @ R @ K[k] + closed.T @ P @ closed
    return K


def feedback_gap(closed: vioc.Trajectory, reference: vioc.Trajectory, Q: Any, R: Any) -> float:
    """Inputs of a closed loop about a trajectory against those of `gains`, relative to their largest change.

    Q, R : diagonals or matrices; the weight of the end is Q, as in `dlqr`.
    """
    Q, R = (np.diag(w) if np.ndim(w) == 1 else np.asarray(w, float) for w in (Q, R))
    lin = reference.map.linearize_trajectory(reference)  # type: ignore[attr-defined]
    K, n = gains(lin.A, lin.B, Q, R, Q), len(reference)
    off = closed.map.difference(reference.x[:n], closed.x[:n])  # type: ignore[attr-defined]
    expected = -np.einsum("kij,kj->ki", K, off)
    return float(np.abs(closed.u[:n] - reference.u - expected).max() / np.abs(expected).max())


def steady_gap(
    f: Any, x: np.ndarray, u: np.ndarray, Q: Any, R: Any, K: np.ndarray, steps: int = 20_000
) -> float:
    """A steady gain against the limit of `gains` far from the end, relative."""
    Q, R = (np.diag(w) if np.ndim(w) == 1 else np.asarray(w, float) for w in (Q, R))
    A, B = f.linearize(x, u)
    limit = gains(*(np.broadcast_to(M, (steps, *M.shape)) for M in (A, B)), Q, R, Q)[0]
    return float(np.abs(K - limit).max() / np.abs(limit).max())


def newton_order(optimize: Callable[[Any], vioc.control.Result], best: vioc.Trajectory, size: float) -> float:
    """Exponent p of one iteration of Newton's method, e_1 = C e_0^p, from two errors about an optimum.

    The inputs are disturbed by `size` and half of it under feedback, and |Dg.zeta| goes with e^2.

    optimize : of a guess, two iterations of the search.
    """
    f: Any = best.map
    K = vioc.control.dlqr(f, best, 1.0, 1.0).K  # type: ignore[union-attr]
    wave = np.sin(np.linspace(0.0, 7.0, len(best)))[:, None] * np.ones(f.nu)
    descents = []
    for scale in (size, size / 2):
        run = f.track(best.x[0], best.x, best.u + scale * wave, K)
        descents.append(np.log(np.abs(optimize((run.x, run.u)).history.descent[:2])))
    first, second = descents[0] - descents[1]
    return float(second / first)
