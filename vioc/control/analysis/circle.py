"""On which side of the unit circle eigenvalues lie, as far as a matrix that is known to rounding tells.

Maths: docs/maths/analysis.md#stability.
"""

from __future__ import annotations

import numpy as np
from scipy.linalg import matrix_balance

FAR = 0.3  # from the circle: rounding spreads no eigenvalue so far, be it of multiplicity 20
RADII = 0.4, 0.8  # of discs about an eigenvalue, relative to its distance from the circle
POINTS = 16  # on half of such a disc's edge
SWEEPS, WEAK = 3, 1e-10  # of natural units; relative to the largest, couplings that tell nothing of them
KNOWN = 1e-10  # relative: what steps and equilibria are solved to, and what terms of size M/dt leave of A


def sides(A: np.ndarray, values: np.ndarray, known: float = KNOWN) -> np.ndarray:
    """Which side of the unit circle each eigenvalue lies on.

    Parameters
    ----------
    A : (n, n)
    values : (n,), complex
        Its eigenvalues, as computed.
    known : float
        What A is uncertain by, relative to its norm in units in which it is balanced.

    Returns
    -------
    (n,) of int
        1 outside, -1 inside, of every matrix that A may be; 0 where that is not certain: on the circle, or
        spread about it by rounding, as a multiple eigenvalue is.

    Notes
    -----
    A disc about an eigenvalue that does not touch the circle, on whose edge sigma_min(z I - A) exceeds the
    error, holds as many eigenvalues of every A + E with |E| below it.
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
        real = abs(values[i].imag) <= np.finfo(float).eps  # the other half mirrors it
        around = turns if real else np.concatenate([turns, turns.conj()])
        for radius in RADII:
            z = values[i] + radius * abs(gap[i]) * around
            if all(np.linalg.svd(s * np.eye(n) - balanced, compute_uv=False)[-1] > doubt for s in z):
                side[i] = int(np.sign(gap[i]))
                break
    return side


def natural_units(A: np.ndarray) -> np.ndarray:
    """Sizes d (n,) of states in which what couples them is as near to 1 as can be, whatever units A comes in.

    The least squares of log(|A_ij| d_j / d_i) over couplings that are not 0, and again over those that are
    not small then. Other than of balanced rows and columns, it is also told of states that only drive
    others, or are only driven, as a free body's momentum and place.
    """
    size = np.abs(A) * (1.0 - np.eye(len(A)))
    d, there = np.ones(len(A)), size > 0
    for _ in range(SWEEPS):
        log = np.log(np.where(there, size, 1.0))
        degrees = np.diag(there.sum(axis=0) + there.sum(axis=1))
        laplacian = degrees - there.astype(float) - there.T
        d = np.exp(np.linalg.lstsq(laplacian, log.sum(axis=1) - log.sum(axis=0), rcond=None)[0])
        scaled = size * d / d[:, None]
        there = scaled > WEAK * scaled.max(initial=0.0)
    return d


def verdict(side: np.ndarray) -> str:
    """Of a fixed point, by the `sides` of its linearization's eigenvalues."""
    if (side > 0).any():
        return "unstable"
    return "asymptotically stable" if (side < 0).all() else "marginal"
