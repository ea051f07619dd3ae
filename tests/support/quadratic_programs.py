"""A quadratic program solved by trial of active sets: shares no code with the solvers of vioc."""

from __future__ import annotations

import numpy as np


def active_set(H, g, rows, low, high):
    """min 1/2 z'Hz + g'z, low <= rows z <= high: z and multipliers, by trial of active sets."""
    at = np.where(low == high, 1, 0)  # 1 at the upper, -1 at the lower limit
    for _ in range(200):
        on = np.flatnonzero(at)
        J, limit = rows[on], np.where(at[on] > 0, high[on], low[on])
        K = np.block([[H, J.T], [J, np.zeros((len(on), len(on)))]])
        found = np.linalg.solve(K, np.concatenate([-g, limit]))
        z, nu = found[: len(g)], np.zeros(len(rows))
        nu[on] = found[len(g) :]
        out = np.maximum(rows @ z - high, low - rows @ z)
        wrong = np.where((low != high) & (at * nu < -1e-12), -at * nu, 0.0)
        if out.max() <= 1e-12 and wrong.max() == 0:
            return z, nu
        if wrong.max() > 0:
            at[np.argmax(wrong)] = 0
        else:
            i = int(np.argmax(out))
            at[i] = 1 if (rows @ z)[i] > high[i] else -1
    raise AssertionError("the active set cycles")
