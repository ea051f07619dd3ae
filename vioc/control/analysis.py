"""Controllability of a linearization."""

from __future__ import annotations

import numpy as np


def controllability_matrix(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """[B, A B, ..., A^(n-1) B].

    Parameters
    ----------
    A : (n, n)
    B : (n, m)

    Returns
    -------
    (n, n m)

    Raises
    ------
    ValueError
        If the shapes do not fit.
    """
    A, B = _pair(A, B)
    blocks = [B]
    for _ in range(len(A) - 1):
        blocks.append(A @ blocks[-1])
    return np.concatenate(blocks, axis=1)


def controllability_rank(A: np.ndarray, B: np.ndarray, tolerance: float | None = None) -> int:
    """Rank of the controllability matrix, by singular values.

    Parameters
    ----------
    A : (n, n)
    B : (n, m)
    tolerance : float, optional
        Singular values below it count as zero; default n m eps times the largest.

    Notes
    -----
    Powers of A lose digits: for many states `unstabilizable_modes` decides more reliably.
    """
    singular = np.linalg.svd(controllability_matrix(A, B), compute_uv=False)
    if tolerance is None:
        A, B = _pair(A, B)
        tolerance = B.size * np.finfo(float).eps * float(singular.max(initial=0.0))
    return int((singular > tolerance).sum())


def unstabilizable_modes(A: np.ndarray, B: np.ndarray, tolerance: float = 1e-9) -> np.ndarray:
    """Eigenvalues |s| >= 1 of A that no feedback moves (Popov, Belevitch, Hautus).

    Parameters
    ----------
    A : (n, n)
    B : (n, m)
    tolerance : float
        [s I - A, B] has lost rank if its smallest singular value is below this times its largest.

    Returns
    -------
    (number of modes,), complex
    """
    A, B = _pair(A, B)
    stuck = []
    for s in np.linalg.eigvals(A):
        if abs(s) < 1 - tolerance:
            continue
        singular = np.linalg.svd(np.hstack([s * np.eye(len(A)) - A, B]), compute_uv=False)
        if singular[-1] <= tolerance * singular[0]:
            stuck.append(s)
    return np.array(stuck, complex)


def _pair(A: np.ndarray, B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    A, B = np.asarray(A, float), np.asarray(B, float)
    if A.ndim != 2 or A.shape[0] != A.shape[1] or B.ndim != 2 or len(B) != len(A):
        raise ValueError(f"expected A (n, n) and B (n, m), got {A.shape} and {B.shape}")
    return A, B
