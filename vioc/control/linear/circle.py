"""Test whether eigenvalues are inside the unit circle, robust to rounding.

Maths: docs/maths/analysis.md#stability.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import matrix_balance

FAR = 0.3  # distance from the circle that rounding cannot bridge, even for multiplicity 20
RADII = 0.4, 0.8  # radii of discs about an eigenvalue, over its distance from the circle
POINTS = 16  # points on half of such a disc's boundary
SWEEPS, WEAK = 3, 1e-10  # passes for natural units; smaller relative couplings are not used
KNOWN = 1e-10  # relative error of A: tolerance of steps and equilibria, cancellation of terms of size M/dt


def sides(A: np.ndarray, values: np.ndarray, known: float = KNOWN) -> np.ndarray:
    """Return on which side of the unit circle each eigenvalue of a matrix A lies.

    Parameters
    ----------
    A : (n, n)
    values : (n,), complex
        Computed eigenvalues of A.
    known : float
        Uncertainty of A, relative to its norm after balancing.

    Returns
    -------
    (n,) of int
        1 for an eigenvalue outside the circle, -1 for one inside, if this holds for every matrix within the
        uncertainty. 0 if this is not certain: the eigenvalue is on the circle, or it is a multiple one, which
        rounding spreads about the circle.

    Notes
    -----
    Consider a disc about an eigenvalue that does not touch the circle. If sigma_min(z I - A) exceeds the
    error on the boundary of the disc, the disc contains as many eigenvalues of every A + E with |E| below the
    error.
    """
    n = len(A)
    if not n:
        return np.zeros(0, int)
    balanced = matrix_balance(A, permute=False)[0]
    doubt = known * np.linalg.norm(balanced, 2)
    gap = np.abs(values) - 1
    side = np.where(np.abs(gap) > FAR, np.sign(gap), 0).astype(int)
    turns = np.exp(1j * np.pi * (np.arange(POINTS) + 0.5) / POINTS)
    for i in np.flatnonzero((side == 0) & (np.abs(gap) > doubt)):
        real = abs(values[i].imag) <= np.finfo(float).eps  # the other half is its mirror image
        points = turns if real else np.concatenate([turns, turns.conj()])
        for radius in RADII:
            z = values[i] + radius * abs(gap[i]) * points
            if all(np.linalg.svd(s * np.eye(n) - balanced, compute_uv=False)[-1] > doubt for s in z):
                side[i] = int(np.sign(gap[i]))
                break
    return side


def natural_units(A: np.ndarray) -> np.ndarray:
    """Return units of the states in which the entries of A are as near 1 as possible.
    A is the matrix of a linear system; entries that are 0 are ignored.

    The scaled matrix does not depend on the units of A. The units d (n,) minimize the sum of squares of
    log(|A_ij| d_j / d_i) over all nonzero couplings A_ij; this is repeated without the couplings that are
    then small. Unlike balancing, the method also scales states that only drive others, such as a free body's
    momentum, and states that are only driven, such as its position.
    """
    size = np.abs(A) * (1.0 - np.eye(len(A)))
    d, mask = np.ones(len(A)), size > 0
    for _ in range(SWEEPS):
        log = np.log(np.where(mask, size, 1.0))
        degrees = np.diag(mask.sum(axis=0) + mask.sum(axis=1))
        laplacian = degrees - mask.astype(float) - mask.T
        d = np.exp(np.linalg.lstsq(laplacian, log.sum(axis=1) - log.sum(axis=0), rcond=None)[0])
        scaled = size * d / d[:, None]
        mask = scaled > WEAK * scaled.max(initial=0.0)
    return d


def verdict(side: np.ndarray) -> str:
    """Return the stability of a system as a word, from the sides of its eigenvalues.
    `side` is positive for an eigenvalue outside the unit circle, negative inside and 0 if uncertain.
    """
    if (side > 0).any():
        return "unstable"
    return "asymptotically stable" if (side < 0).all() else "marginal"
