"""Detection of active constraints whose gradients are linearly dependent."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import splu

from vioc.control.dmoc.by_name import Raw

ACTIVE = 1e-6  # distance to a limit, over 1 + |limit| in units of sizes, below which it is active
# norm of a combination of gradients, each of norm 1 in units of sizes, below which it counts as 0
DEPENDENT = 1e-6
SHARE = 0.1  # coefficients of the combination that are named, over its largest one
SHIFT, ITERATIONS = 1e-14, 6  # shift and number of iterations of the inverse iteration


def dependent(raw: Raw, g: np.ndarray) -> list[str]:
    """Return the names of active limits whose gradients are linearly dependent.

    Each name includes the sample of the limit. Inverse iteration on J J' finds the combination of gradients
    with the smallest norm; the limit with the largest coefficient in it is first. J holds the gradients of
    the active constraints with respect to the unknowns that are not at a limit. The list is empty if the
    gradients are independent.
    """
    t, (of_w, of_g, _) = raw.transcription, raw.scales
    J = (t.program.jac_g(raw.w, raw.p)[1].sparse() @ sp.diags(of_w)).tocsr()
    fixed, active = (
        _met(*(side / size for side in sides))
        for size, sides in ((of_w, (raw.w, raw.lower, raw.upper)), (of_g, (g, t.row_lower, t.row_upper)))
    )
    rows, free = np.flatnonzero(active), np.flatnonzero(~fixed)
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
    shares |= {names[0][i]: abs(c) for i, c in enumerate(scaled.T @ y) if fixed[i]}
    least = SHARE * max(shares.values())
    return [name for name, c in sorted(shares.items(), key=lambda item: -item[1]) if c >= least]


def _met(value: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return a mask of the values that are at one of their limits."""
    sides = [(value - low, low), (high - value, high)]
    return np.logical_or(
        *(np.isfinite(s) & (gap <= ACTIVE * (1 + np.abs(np.where(np.isfinite(s), s, 0)))) for gap, s in sides)
    )
