"""Unit quaternions (scalar first, Hamilton) on scalars, for CasADi graphs, and on arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from vioc.dynamics import vectors as vec
from vioc.dynamics.vectors import Matrix, Vector

Quaternion = tuple[Any, Any, Any, Any]


def multiply(a: Quaternion, b: Quaternion) -> Quaternion:
    """a * b: turning by b, then by a (in fixed axes)."""
    (s, *v), (t, *w) = a, b
    scalar = vec.minus(vec.times(s, t), vec.dot(v, w))  # type: ignore[arg-type]
    vector = vec.add(vec.add(vec.scale(s, w), vec.scale(t, v)), vec.cross(v, w))  # type: ignore[arg-type]
    return (scalar, *vector)


def conjugate(a: Quaternion) -> Quaternion:
    return a[0], -a[1], -a[2], -a[3]


def matrix(q: Quaternion) -> Matrix:
    """R(q) = 1 + 2 s v^ + 2 v^ v^, from body axes to the world's."""
    s, x, y, z = q
    return (
        (1 - 2 * (y * y + z * z), 2 * (x * y - s * z), 2 * (x * z + s * y)),
        (2 * (x * y + s * z), 1 - 2 * (x * x + z * z), 2 * (y * z - s * x)),
        (2 * (x * z - s * y), 2 * (y * z + s * x), 1 - 2 * (x * x + y * y)),
    )


def turn(w: Vector, dt: Any, root: Any) -> tuple[Quaternion, Any]:
    """The turn of a step at the angular velocity w, and its scalar part ([M] (13)); `root` is a sqrt."""
    half = vec.scale(0.5 * dt, w)
    c = root(1 - vec.dot(half, half))
    return (c, *half), c


def from_matrix(R: np.ndarray) -> np.ndarray:
    """The quaternion (..., 4) of rotation matrices (..., 3, 3), s >= 0."""
    R = np.asarray(R, float)
    K = np.empty((*R.shape[:-2], 4, 4))  # 4 q q'
    trace = np.trace(R, axis1=-2, axis2=-1)
    K[..., 0, 0] = 1 + trace
    for i in range(3):
        j, k = (i + 1) % 3, (i + 2) % 3
        K[..., 0, i + 1] = K[..., i + 1, 0] = R[..., k, j] - R[..., j, k]
        K[..., i + 1, i + 1] = 1 + 2 * R[..., i, i] - trace
        K[..., i + 1, j + 1] = K[..., j + 1, i + 1] = R[..., i, j] + R[..., j, i]
    best = np.argmax(np.diagonal(K, axis1=-2, axis2=-1), axis=-1)
    q = np.take_along_axis(K, best[..., None, None], axis=-2)[..., 0, :]
    q = q / np.linalg.norm(q, axis=-1, keepdims=True)
    return np.where(q[..., :1] < 0, -q, q)


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a * b on arrays (..., 4)."""
    s, v, t, w = a[..., :1], a[..., 1:], b[..., :1], b[..., 1:]
    scalar = s * t - np.sum(v * w, axis=-1, keepdims=True)
    return np.concatenate([scalar, s * w + t * v + np.cross(v, w)], axis=-1)


def exponential(phi: np.ndarray) -> np.ndarray:
    """The quaternion (..., 4) of a rotation vector (..., 3)."""
    half = 0.5 * np.linalg.norm(phi, axis=-1, keepdims=True)
    return np.concatenate([np.cos(half), 0.5 * np.sinc(half / np.pi) * phi], axis=-1)


def logarithm(q: np.ndarray) -> np.ndarray:
    """The rotation vector (..., 3) of quaternions (..., 4), |phi| <= pi; q and -q are the same."""
    q = np.where(q[..., :1] < 0, -q, q)
    size = np.linalg.norm(q[..., 1:], axis=-1, keepdims=True)
    angle = 2 * np.arctan2(size, q[..., :1])
    small = size < 1e-8
    return q[..., 1:] * np.where(small, 2.0, angle / np.where(small, 1.0, size))
