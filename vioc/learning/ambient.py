"""Derivatives with respect to the components of a state with unit quaternions.
They are computed from a map's derivatives with respect to the state error. In the state, a rotation is a
quaternion with four components; in the state error, it has three components.

Machine-learning frameworks differentiate by these components. A quaternion q of the state may have any norm
except 0 here: the step begins at q/|q|. Errors about a state x with quaternions qb, and about the next state
x1, are those of the map, q/|q| = qb * exp(phi), and to second order

    phi = 2 v / s  with (s, v) = qb^-1 * q,            q1 = q1b * (1 - phi1.phi1 / 8, phi1 / 2).          (2)
"""

from __future__ import annotations

import numpy as np

from vioc.maps.protocol import OneStepMap


def normalized(f: OneStepMap, x: np.ndarray) -> np.ndarray:
    """Return states (N, nx) with normalized quaternions; ValueError for zero ones."""
    if not f.space.quaternions:
        return x
    x = x.copy()
    for i in f.space.quaternions:
        size = np.linalg.norm(x[:, i : i + 4], axis=1)
        if len(bad := np.flatnonzero(size < 1e-9)):
            raise ValueError(f"state: expected quaternions with a direction, got zeros in row {bad[0]}")
        x[:, i : i + 4] /= size[:, None]
    return x


def errors(f: OneStepMap) -> list[int]:
    """Return the index of each quaternion's rotation error in the state's error.
    The three components of the rotation error begin at this index.
    """
    return [i - n for n, i in enumerate(f.space.quaternions)]


def inward(f: OneStepMap, x: np.ndarray) -> np.ndarray:
    """Return the Jacobian of state errors with respect to state components.
    The shape is (N, ndx, nx). Errors are relative to the states x (N, nx). In a state, a rotation is a
    quaternion with four components; in an error, it has three components.
    """
    D = np.zeros((len(x), f.ndx, f.nx))
    _copy(f, D)
    for i, e in zip(f.space.quaternions, errors(f), strict=True):
        D[:, e : e + 3, i : i + 4] = 2 * _left(x[:, i : i + 4], -1)[:, 1:] / _square(x[:, i : i + 4])
    return D


def inward_curvature(f: OneStepMap, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the Hessian (N, nx, nx) of a weighted sum of a state's error components.
    The error is relative to the state x (N, nx), and its weights are y (N, ndx). The derivatives are with
    respect to the nx components of the state, which contain quaternions.
    """
    H = np.zeros((len(x), f.nx, f.nx))
    for i, e in zip(f.space.quaternions, errors(f), strict=True):
        q = x[:, i : i + 4]
        L = _left(q, -1)
        v = np.einsum("nj,njk->nk", y[:, e : e + 3], L[:, 1:])
        both = np.einsum("nj,nk->njk", v, L[:, 0])
        H[:, i : i + 4, i : i + 4] = -2 * (both + both.transpose(0, 2, 1)) / _square(q) ** 2
    return H


def outward(f: OneStepMap, x1: np.ndarray) -> np.ndarray:
    """Return the Jacobian (N, nx, ndx) of the next state with respect to its error.
    The error (ndx components) is a small displacement from the state x1, in which a rotation has three
    components. The nx components of the state contain unit quaternions.
    """
    R = np.zeros((len(x1), f.nx, f.ndx))
    _copy(f, R.transpose(0, 2, 1))
    for i, e in zip(f.space.quaternions, errors(f), strict=True):
        R[:, i : i + 4, e : e + 3] = _left(x1[:, i : i + 4], 1)[:, :, 1:] / 2
    return R


def outward_curvature(f: OneStepMap, x1: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Return the Hessian (N, ndx, ndx) of a weighted sum of next-state components.
    The weights of the nx components are w (N, nx). The derivatives are with respect to the error, a small
    displacement from the state x1 with ndx components.
    """
    H = np.zeros((len(x1), f.ndx, f.ndx))
    for i, e in zip(f.space.quaternions, errors(f), strict=True):
        along = np.einsum("ni,ni->n", w[:, i : i + 4], x1[:, i : i + 4])
        H[:, e : e + 3, e : e + 3] = -along[:, None, None] / 4 * np.eye(3)
    return H


def _copy(f: OneStepMap, D: np.ndarray) -> None:
    """Set entries of a Jacobian D to 1 for errors that are differences of components.
    D (N, ndx, nx) is the Jacobian of state errors with respect to state components. Its rows of rotation
    errors are left unchanged.
    """
    components = {i + j for i in f.space.quaternions for j in range(4)}
    rows = {e + j for e in errors(f) for j in range(3)}
    D[:, [e for e in range(f.ndx) if e not in rows], [i for i in range(f.nx) if i not in components]] = 1.0


def _square(q: np.ndarray) -> np.ndarray:
    squares: np.ndarray = np.einsum("ni,ni->n", q, q)
    return squares[:, None, None]


def _left(q: np.ndarray, sign: int) -> np.ndarray:
    """Return the matrices (N, 4, 4) that multiply quaternions from the left by q.
    With the `sign` -1, the multiplication is by the conjugates of q (N, 4).

    They are p -> q * p, and with sign -1 p -> conjugate(q) * p.
    """
    s, (a, b, c) = q[:, 0], sign * q[:, 1:].T
    rows = [[s, -a, -b, -c], [a, s, -c, b], [b, c, s, -a], [c, -b, a, s]]
    return np.stack([np.stack(row, axis=1) for row in rows], axis=1)
