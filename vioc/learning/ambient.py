"""Steps on a manifold as functions of all entries of the state.

Frameworks differentiate by these entries. A unit quaternion q of the state may be any q != 0 here: the step
is that from q/|q|. Around a state x with quaternions q and the step's x1, errors are those of the map, q/|q|
= qb * exp(phi), and to second order

    phi = 2 v / s  with (s, v) = qb^-1 * q,            q1 = q1b * (1 - phi1.phi1 / 8, phi1 / 2).          (2)
"""

from __future__ import annotations

import numpy as np

from vioc.maps.protocol import OneStepMap


def normalized(f: OneStepMap, x: np.ndarray) -> np.ndarray:
    """Return states (N, nx) with unit quaternions; ValueError for a zero quaternion."""
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
    """Return the indices of the rotation errors phi of the quaternions."""
    return [i - n for n, i in enumerate(f.space.quaternions)]


def inward(f: OneStepMap, x: np.ndarray) -> np.ndarray:
    """Return the derivative (N, ndx, nx) of the error by the state, at x (N, nx)."""
    D = np.zeros((len(x), f.ndx, f.nx))
    _copy(f, D)
    for i, e in zip(f.space.quaternions, errors(f), strict=True):
        D[:, e : e + 3, i : i + 4] = 2 * _left(x[:, i : i + 4], -1)[:, 1:] / _square(x[:, i : i + 4])
    return D


def inward_curvature(f: OneStepMap, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Return the second derivative (N, nx, nx) of y . error by the state.

    The weights are y (N, ndx).
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
    """Derivative (N, nx, ndx) of the state by the error, at unit quaternions."""
    R = np.zeros((len(x1), f.nx, f.ndx))
    _copy(f, R.transpose(0, 2, 1))
    for i, e in zip(f.space.quaternions, errors(f), strict=True):
        R[:, i : i + 4, e : e + 3] = _left(x1[:, i : i + 4], 1)[:, :, 1:] / 2
    return R


def outward_curvature(f: OneStepMap, x1: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Return the second derivative (N, ndx, ndx) of w . state by the error.

    The weights are w (N, nx).
    """
    H = np.zeros((len(x1), f.ndx, f.ndx))
    for i, e in zip(f.space.quaternions, errors(f), strict=True):
        along = np.einsum("ni,ni->n", w[:, i : i + 4], x1[:, i : i + 4])
        H[:, e : e + 3, e : e + 3] = -along[:, None, None] / 4 * np.eye(3)
    return H


def _copy(f: OneStepMap, D: np.ndarray) -> None:
    """Set ones where entries of the error are entries of the state."""
    turned = {i + j for i in f.space.quaternions for j in range(4)}
    rows = {e + j for e in errors(f) for j in range(3)}
    D[:, [e for e in range(f.ndx) if e not in rows], [i for i in range(f.nx) if i not in turned]] = 1.0


def _square(q: np.ndarray) -> np.ndarray:
    squares: np.ndarray = np.einsum("ni,ni->n", q, q)
    return squares[:, None, None]


def _left(q: np.ndarray, sign: int) -> np.ndarray:
    """Return matrices (N, 4, 4) of p -> q * p, with sign -1 of p -> conjugate(q) * p."""
    s, (a, b, c) = q[:, 0], sign * q[:, 1:].T
    rows = [[s, -a, -b, -c], [a, s, -c, b], [b, c, s, -a], [c, -b, a, s]]
    return np.stack([np.stack(row, axis=1) for row in rows], axis=1)
