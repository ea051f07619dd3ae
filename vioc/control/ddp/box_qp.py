"""Small quadratic programs with bounds by an active-set method (Nocedal, Wright 2006, algorithm 16.3).

Projected Newton, which [TMT] use, stalls where H is ill-conditioned: 5 of 2000 random problems with up to 5
entries, condition numbers from 1e4.
"""

from __future__ import annotations

from typing import Any

import numpy as np

ROUNDING = 1e-13  # of the terms of a gradient: a bound's multiplier below this is zero


def box_qp(
    H: np.ndarray, g: np.ndarray, lower: Any, upper: Any, G: np.ndarray
) -> tuple[np.ndarray, np.ndarray] | None:
    """k = argmin of 1/2 k'Hk + g'k within bounds, and the feedback of its free entries.

    Parameters
    ----------
    H, g : (m, m), (m,)
    lower, upper : (m,) or float
        With 0 between them.
    G : (m, n)
        Derivative of g by the state.

    Returns
    -------
    k, K : (m,), (m, n), or None
        K = H_ff^-1 G_f for the free entries, 0 for those at a bound. None where H_ff is not positive
        definite or a number is not finite.
    """
    m = len(g)
    if not (np.isfinite(g).all() and np.isfinite(H).all()):
        return None
    lower, upper = np.broadcast_to(lower, m), np.broadcast_to(upper, m)
    k = np.zeros(m)
    free = ~(((k <= lower) & (g > 0)) | ((k >= upper) & (g < 0)))
    for _ in range(10 * m + 10):
        try:
            L = np.linalg.cholesky(H[np.ix_(free, free)])
        except np.linalg.LinAlgError:
            return None
        target = k.copy()
        target[free] = -_solve(L, g[free] + H[np.ix_(free, ~free)] @ k[~free])
        outside = free & ((target < lower) | (target > upper))
        if outside.any():  # as far as the first bound
            limit = np.where(target < lower, lower, upper)
            room = np.full(m, np.inf)
            room[outside] = (limit - k)[outside] / (target - k)[outside]
            first = int(np.argmin(room))
            k[free] += room[first] * (target - k)[free]
            k[first], free[first] = limit[first], False
            continue
        k = target
        slope = g + H @ k
        pull = np.where(k <= lower, -slope, slope)  # > 0 where an entry at its bound would rather leave it
        pull = np.where(free | (lower == upper), 0.0, pull)
        worst = int(np.argmax(pull))
        if pull[worst] <= ROUNDING * (np.abs(g).max() + (np.abs(H) @ np.abs(k)).max()):
            K = np.zeros((m, G.shape[1]))
            K[free] = _solve(L, G[free])
            return k, K
        free[worst] = True
    return None


def _solve(L: np.ndarray, b: np.ndarray) -> np.ndarray:
    return np.linalg.solve(L.T, np.linalg.solve(L, b))
