"""Controllability and observability Gramians as square-root factors.

Horizons are finite or infinite; systems may vary along a trajectory. Maths: docs/maths/analysis.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from vioc.checks import as_count, as_floats, as_share, check_array
from vioc.control.linear.rank import compressed, input_pair, output_pair
from vioc.errors import OptimizationError

Matrices = Sequence[np.ndarray] | np.ndarray
REACHABLE = 1e-9  # relative component of a target outside of the range that counts as zero


def controllability_gramian(A: Any, B: Any, steps: int | None = None) -> np.ndarray:
    """Return the controllability Gramian of a constant or time-varying linear system.

        W = sum over k < N of Phi_{N,k+1} B_k B_k' Phi_{N,k+1}'

    Parameters
    ----------
    A, B : (n, n), (n, m); or (N, n, n), (N, n, m) along a trajectory
    steps : int, optional
        Horizon N of a constant pair; None means an infinite horizon, which needs a stable A.

    Returns
    -------
    (n, n)

    Raises
    ------
    ValueError
        Wrong shapes.
    OptimizationError
        On an infinite horizon, if A has an eigenvalue on or outside the unit circle.
    """
    A, B = as_floats(A, "A"), as_floats(B, "B")
    if A.ndim == 3:
        L = gramian_factor(*_sequences(A, B))
    else:
        A, B = input_pair(A, B)
        if steps is None:
            return _smith(A, B)
        count = as_count(steps, "steps")
        L = gramian_factor([A] * count, [B] * count)
    return L @ L.T


def observability_gramian(A: Any, C: Any, steps: int | None = None) -> np.ndarray:
    """Return the observability Gramian of a constant or time-varying linear system.

        W = sum over k of Phi_{k,0}' C_k' C_k Phi_{k,0}

    Parameters
    ----------
    A, C : (n, n), (p, n); or (N, n, n) with (N+1, p, n) along a trajectory of N steps
    steps : int, optional
        Number of samples, k < steps, of a constant pair; None means an infinite horizon, which needs a stable
        A.

    Returns
    -------
    (n, n)

    Raises
    ------
    ValueError, OptimizationError
        As `controllability_gramian`.
    """
    A, C = as_floats(A, "A"), as_floats(C, "C")
    if A.ndim != 3:
        A, C = output_pair(A, C)
        return controllability_gramian(A.T, C.T, steps)
    if C.ndim != 3 or len(C) != len(A) + 1:
        raise ValueError(f"expected A (N, n, n) and C (N+1, p, n), got {A.shape} and {C.shape}")
    L = gramian_factor(*reversed_pair(A, C))
    return L @ L.T


def gramian_factor(A: Matrices, B: Matrices) -> np.ndarray:
    """Return a square-root factor L of the controllability Gramian W = L L'.

    It is computed by QR decompositions along the N steps, without the matrix W.

    Parameters
    ----------
    A, B : sequences of N matrices (n_{k+1}, n_k), (n_{k+1}, m)

    Returns
    -------
    (n_N, r), r <= n_N
        Singular values of L are square roots of eigenvalues of W, to rounding relative to the largest.
    """
    L = np.zeros((A[0].shape[1], 0))
    for Ak, Bk in zip(A, B, strict=True):
        L = compressed(np.hstack([Ak @ L, Bk]))
    return L


def reversed_pair(A: Matrices, C: Matrices) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Return the dual system in reversed time of a system (A, C).
    The controllability Gramian of the result is the observability Gramian of (A, C).

    N matrices A and N + 1 matrices C yield a dual system of N + 1 steps; the matrix A of its first step is 0.
    """
    first = np.zeros((C[-1].shape[1], C[-1].shape[1]))
    return [first, *(a.T for a in reversed(list(A)))], [c.T for c in reversed(list(C))]


class Steering(NamedTuple):
    """Inputs of least energy that steer a linear system to a target.

    `u` (N, m) are the inputs, `energy` is the sum of u'Ru, and `missed` (n,) is the unreachable component of
    the target.
    """

    energy: float
    u: np.ndarray
    missed: np.ndarray

    def __repr__(self) -> str:
        steps, inputs = np.shape(self.u)
        miss = f"misses the target by {np.linalg.norm(self.missed):.3g}"
        reach = miss if np.isinf(self.energy) else "reaches the target"
        u = f"{steps} steps of {inputs} inputs up to {np.abs(self.u).max(initial=0.0):.3g}"
        return f"Steering(energy {self.energy:.6g}, {u}, {reach})"


def steer(A: Matrices, B: Matrices, target: Any, tolerance: float = REACHABLE) -> Steering:
    """Return the inputs of least energy that steer a linear system from 0 to a target.

    The inputs minimize the sum of u_k'u_k for z_{k+1} = A_k z_k + B_k u_k with z_0 = 0 and z_N = target.

    Parameters
    ----------
    A, B : sequences of N matrices
    target : (n,)
    tolerance : float
        Largest relative singular value of the factor that counts as zero, and largest relative distance from
        the target.

    Returns
    -------
    Steering
        If the target is unreachable, `energy` is inf and `u` leads to the nearest state.
    """
    tolerance, L = as_share(tolerance, "tolerance"), gramian_factor(A, B)
    target = check_array(target, (len(L),), "target")
    U, singular, _ = np.linalg.svd(L, full_matrices=False)
    keep = singular > tolerance * singular.max(initial=0.0)
    U, singular = U[:, keep], singular[keep]
    coordinates = U.T @ target
    residual = target - U @ coordinates
    adjoint = U @ (coordinates / singular**2)
    u = []
    for Ak, Bk in zip(reversed(list(A)), reversed(list(B)), strict=True):
        u.append(Bk.T @ adjoint)
        adjoint = Ak.T @ adjoint
    lost = np.linalg.norm(residual) > tolerance * np.linalg.norm(target)
    energy = np.inf if lost else float(((coordinates / singular) ** 2).sum())
    return Steering(energy, np.array(u[::-1]), residual)


def _smith(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Solve the Lyapunov equation W = A W A' + B B' for W by a doubling method."""
    radius = np.abs(np.linalg.eigvals(A)).max(initial=0.0)
    if not radius < 1:
        raise OptimizationError(
            f"A has an eigenvalue of size {radius:.9g}: the Gramian without end does not exist; "
            "give `steps`, or stabilize first"
        )
    W, F = B @ B.T, A
    for _ in range(64):
        term = F @ W @ F.T
        W = W + term
        if np.abs(term).max(initial=0.0) <= np.finfo(float).eps * np.abs(W).max(initial=0.0):
            return 0.5 * (W + W.T)
        F = F @ F
    raise OptimizationError(f"the Gramian does not converge: an eigenvalue of A has size {radius:.17g}")


def _sequences(A: np.ndarray, B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    if A.ndim != 3 or B.ndim != 3 or A.shape[1] != A.shape[2] or A.shape[:2] != B.shape[:2] or len(A) == 0:
        raise ValueError(f"expected A (N, n, n) and B (N, n, m), got {A.shape} and {B.shape}")
    return A, B
