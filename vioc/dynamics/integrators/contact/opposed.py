"""Closed contacts that hold each other shut: the two sides of a slot, the faces of a wedge."""

from __future__ import annotations

import numpy as np

from vioc.dynamics.consistency import RANK_TOLERANCE

CLOSED = 1e-7  # m or rad
LARGEST = 1e6  # speed that opens a contact by a speed of 1, at most: what needs more does not open


def openable(M: np.ndarray, N: np.ndarray, Dh: np.ndarray, closed: np.ndarray) -> np.ndarray:
    """Which closed contacts some velocity opens (n,): N_i v > 0, N v >= 0 of all that are closed, Dh v = 0.

    Speeds are those of the mass matrix's norm, in which gradients have length one.
    """
    root = np.linalg.cholesky(M)
    rows, held = (np.linalg.solve(root, J.T).T for J in (N[closed], Dh))
    rows, held = (
        J / np.maximum(np.linalg.norm(J, axis=1, keepdims=True), np.finfo(float).tiny) for J in (rows, held)
    )
    found = closed.copy()
    sizes = np.linalg.svd(np.vstack([rows, held]), compute_uv=False)
    if len(sizes) == len(rows) + len(held) and sizes[-1] > RANK_TOLERANCE * sizes[0]:
        return found  # independent: each opens by itself
    from scipy.optimize import linprog  # late: a map without restitution needs no scipy

    n, m = len(rows), len(M)
    best = linprog(
        np.concatenate([np.zeros(m), -np.ones(n)]),  # sums of velocities open what each of them opens
        A_ub=np.hstack([-rows, np.eye(n)]),
        b_ub=np.zeros(n),
        A_eq=np.hstack([held, np.zeros((len(held), n))]),
        b_eq=np.zeros(len(held)),
        bounds=[(-LARGEST, LARGEST)] * m + [(0, 1)] * n,
    )
    if best.status == 0:
        found[closed] = best.x[m:] > 0.5
    return found
