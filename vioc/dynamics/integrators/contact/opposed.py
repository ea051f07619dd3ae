"""Detection of contacts that keep each other closed, such as both sides of a slot."""

from __future__ import annotations

import numpy as np

from vioc.dynamics.consistency import RANK_TOLERANCE

CLOSED = 1e-7  # m or rad, largest gap of a closed contact
LARGEST = 1e6  # largest velocity that counts as opening a contact at speed 1


def openable(M: np.ndarray, N: np.ndarray, Dh: np.ndarray, closed: np.ndarray) -> np.ndarray:
    """Return a mask of the closed contacts that a feasible velocity can open.
    A velocity v is feasible if it satisfies the constraints, Dh v = 0, and does not decrease the gap of any
    closed contact, N v >= 0. It opens contact i if N_i v > 0. N has the gradients of the gaps of all n
    contacts as rows, Dh is the constraint Jacobian, and `closed` is the mask of the closed contacts.
    Velocities are measured in the norm of the mass matrix M, in which gradients are scaled to length one.
    """
    root = np.linalg.cholesky(M)
    rows, gradients = (np.linalg.solve(root, J.T).T for J in (N[closed], Dh))
    rows, gradients = (
        J / np.maximum(np.linalg.norm(J, axis=1, keepdims=True), np.finfo(float).tiny)
        for J in (rows, gradients)
    )
    mask = closed.copy()
    sizes = np.linalg.svd(np.vstack([rows, gradients]), compute_uv=False)
    if len(sizes) == len(rows) + len(gradients) and sizes[-1] > RANK_TOLERANCE * sizes[0]:
        return mask  # independent gradients: each contact opens separately
    from scipy.optimize import linprog  # late: a map without restitution needs no scipy

    n, m = len(rows), len(M)
    best = linprog(
        np.concatenate([np.zeros(m), -np.ones(n)]),  # one velocity opens all contacts that can open
        A_ub=np.hstack([-rows, np.eye(n)]),
        b_ub=np.zeros(n),
        A_eq=np.hstack([gradients, np.zeros((len(gradients), n))]),
        b_eq=np.zeros(len(gradients)),
        bounds=[(-LARGEST, LARGEST)] * m + [(0, 1)] * n,
    )
    if best.status == 0:
        mask[closed] = best.x[m:] > 0.5
    return mask
