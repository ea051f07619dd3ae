"""Constraints that depend on each other where a solver has stopped, by name."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import splu

from vioc.control.dmoc.by_name import Raw

ACTIVE = 1e-6  # of 1 + |limit| in units of sizes: how near to its limit what counts as met is
DEPENDENT = (
    1e-6  # length of a combination of gradients by such units, each of length 1, below which it counts as 0
)
SHARE = 0.1  # of the largest coefficient of the combination that is named
SHIFT, ITERATIONS = 1e-14, 6  # of the inverse iteration


def dependent(raw: Raw, g: np.ndarray) -> list[str]:
    """Names and samples of limits that are met and whose gradients have a combination that vanishes.

    The one whose sum of squares is least is looked at, by inverse iteration on J J', J the gradients of the
    rows that are met by the unknowns that are not at a limit. Largest coefficient first; empty where they
    are independent.
    """
    t, (of_w, of_g, _) = raw.transcription, raw.scales
    J = (t.program.jac_g(raw.w, raw.p)[1].sparse() @ sp.diags(of_w)).tocsr()
    held, met = (
        _met(*(side / size for side in sides))
        for size, sides in ((of_w, (raw.w, raw.lower, raw.upper)), (of_g, (g, t.row_lower, t.row_upper)))
    )
    rows, free = np.flatnonzero(met), np.flatnonzero(~held)
    if not len(rows) or not np.isfinite(J.data).all():
        return []
    lengths = np.sqrt(np.asarray(J[rows].multiply(J[rows]).sum(axis=1)).ravel())
    scaled = sp.diags(1 / np.maximum(lengths, 1e-300)) @ J[rows]
    A = scaled[:, free]
    n, m = len(free), len(rows)
    both = sp.bmat([[sp.eye(n), A.T], [A, -SHIFT * sp.eye(m)]], format="csc")
    y = np.random.default_rng(0).standard_normal(m)
    try:
        factors = splu(both)
    except RuntimeError:
        return []
    for _ in range(ITERATIONS):
        y = factors.solve(np.concatenate([np.zeros(n), y]))[n:]
        size = np.linalg.norm(y)
        if not 0 < size < np.inf:
            return []
        y /= size
    if np.linalg.norm(A.T @ y) > DEPENDENT:
        return []
    names = t.names()
    shares = {names[1][row]: abs(c) for row, c in zip(rows, y, strict=True)}
    shares |= {names[0][i]: abs(c) for i, c in enumerate(scaled.T @ y) if held[i]}
    least = SHARE * max(shares.values())
    return [name for name, c in sorted(shares.items(), key=lambda item: -item[1]) if c >= least]


def _met(value: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Whether each is at one of its limits."""
    sides = [(value - low, low), (high - value, high)]
    return np.logical_or(
        *(np.isfinite(s) & (gap <= ACTIVE * (1 + np.abs(np.where(np.isfinite(s), s, 0)))) for gap, s in sides)
    )
