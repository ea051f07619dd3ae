"""Unit quaternions (scalar part first, Hamilton's product), for symbolic scalars and numpy arrays."""

from __future__ import annotations

from collections.abc import Sequence
from math import factorial
from typing import Any

import casadi as ca
import numpy as np

from vioc.dynamics.algebra import vectors as vec
from vioc.dynamics.algebra.vectors import Matrix, Vector
from vioc.maps.orientation import log_over_vector

Quaternion = tuple[Any, Any, Any, Any]

UNIT = 1e-6  # largest distance from 1 of the norm of a state's quaternion


def multiply(a: Quaternion, b: Quaternion) -> Quaternion:
    """Return the quaternion product a * b, which rotates by b and then by a, about fixed axes."""
    (s, *v), (t, *w) = a, b
    scalar = vec.minus(vec.times(s, t), vec.dot(v, w))  # type: ignore[arg-type]
    vector = vec.add(vec.add(vec.scale(s, w), vec.scale(t, v)), vec.cross(v, w))  # type: ignore[arg-type]
    return (scalar, *vector)


def conjugate(a: Quaternion) -> Quaternion:
    return a[0], -a[1], -a[2], -a[3]


def matrix(q: Quaternion) -> Matrix:
    """Return the rotation matrix of a unit quaternion, from coordinates in body axes to those in world axes.

    R(q) = 1 + 2 s v^ + 2 v^ v^.
    """
    s, x, y, z = q
    return (
        (1 - 2 * (y * y + z * z), 2 * (x * y - s * z), 2 * (x * z + s * y)),
        (2 * (x * y + s * z), 1 - 2 * (x * x + z * z), 2 * (y * z - s * x)),
        (2 * (x * z - s * y), 2 * (y * z + s * x), 1 - 2 * (x * x + y * y)),
    )


def series(coefficients: Sequence[float], s: Any) -> Any:
    """Return the value at s of a polynomial, whose coefficients are in the order of ascending powers."""
    total = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        total = total * s + c
    return total


# in s = |h w|^2 up to pi^2, accurate to rounding; without branches, so that derivatives are exact at zero
# as well
COS = [(-0.25) ** n / factorial(2 * n) for n in range(13)]  # cos(sqrt(s)/2)
SIN = [0.5 * (-0.25) ** n / factorial(2 * n + 1) for n in range(13)]  # sin(sqrt(s)/2)/sqrt(s)
BEND = [2 * n * 0.25**n * (-1.0) ** (n + 1) / factorial(2 * n + 1) for n in range(1, 14)]  # (2 SIN - COS)/s
TWIRL = [(-1.0) ** n / factorial(2 * n + 3) for n in range(15)]  # (sqrt(s) - sin(sqrt(s)))/s^1.5


def turn(w: Vector, dt: Any) -> Quaternion:
    """Return the quaternion of a rotation with the constant angular velocity w for the time dt.
    The result is NaN if the angle |dt w| is at least pi.
    """
    s = dt * dt * vec.dot(w, w)
    g = dt * series(SIN, s)
    c = ca.if_else(s < np.pi**2, series(COS, s), np.nan)
    return (c, *vec.scale(g, w))


def halfway(q: Quaternion) -> Quaternion:
    """Return the quaternion of half the rotation q, about the same axis."""
    size = ca.sqrt(2 * (1 + q[0]))
    return ((1 + q[0]) / size, *(e / size for e in q[1:]))


def advanced(a: Quaternion, b: Quaternion) -> Quaternion:
    """Return the product a * b of unit quaternions, with a small rounding error if b is a small rotation.

    The norm is 1 to second order. The rounding error of a product of many small rotations remains small.
    """
    c, *v = b
    deficit = (1 - sum(e * e for e in a)) / 2
    added = multiply(a, (deficit - vec.dot(v, v) / (1 + c), *v))  # type: ignore[arg-type]
    return tuple(vec.plus(e, d) for e, d in zip(a, added, strict=True))


def turned(q: Quaternion, a: Vector) -> Vector:
    """Return the vector `a` rotated by the unit quaternion q.

    A vector along the axis is unchanged.
    """
    s, *v = q
    across = vec.cross(v, a)  # type: ignore[arg-type]
    return vec.add(a, vec.scale(2, vec.add(vec.scale(s, across), vec.cross(v, across))))  # type: ignore[arg-type]


def slope(w: Vector, dt: Any) -> Matrix:
    """Return the derivative of an orientation with respect to angular velocity w.
    The orientation is that of a body after it has rotated with the constant angular velocity w for the time
    dt. The matrix is T = dt J_r(dt w), with the right Jacobian J_r of SO(3). A change dw of the angular
    velocity turns the body at the end by the rotation vector phi = T dw, in the axes of the body at the end.
    """
    s = dt * dt * vec.dot(w, w)
    first, second = 2 * dt * dt * series(SIN, s) ** 2, dt**3 * series(TWIRL, s)
    skew = vec.skew(w)
    square = vec.matmul(skew, skew)
    return tuple(  # type: ignore[return-value]
        tuple((dt if i == j else 0.0) - first * skew[i][j] + second * square[i][j] for j in range(3))
        for i in range(3)
    )


def momentum(J: Matrix, w: Vector, dt: Any, sign: float) -> Vector:
    """Return the discrete angular momentum of a body at the start or end of a step.
    For `sign` 1 it is that at the start, called pi-, and for -1 that at the end, called pi+. The momentum is
    in the axes of the body at that time. J is the inertia matrix, and w the angular velocity, which is
    constant over the step of length dt.
    """
    return straightened(vec.apply(J, w), w, dt, sign)


def straightened(vector: Vector, w: Vector, dt: Any, sign: float) -> Vector:
    """Multiply a vector by the inverse right or left Jacobian of SO(3).
    The Jacobian is that at the rotation vector dt w: the right one for sign 1, the left one for sign -1.
    """
    s = dt * dt * vec.dot(w, w)
    across = vec.cross(w, vector)
    bend = dt * dt * series(BEND, s) / (2 * series(SIN, s))
    return vec.add(vec.add(vector, vec.scale(0.5 * sign * dt, across)), vec.scale(bend, vec.cross(w, across)))


def spin(a: Quaternion, b: Quaternion) -> Vector:
    """Return the rotation vector, rad, from orientation a to b, for an angle below pi.
    The orientations are unit quaternions; the vector is in the axes of a.
    """
    s, *v = multiply(conjugate(a), b)
    return vec.scale(log_over_vector(s, vec.dot(v, v)), v)  # type: ignore[arg-type]


def apart(a: Any, b: Any) -> Any:
    """Return the rotation vector (3,), rad, from orientation a to b, at most pi long.
    The orientations are unit quaternions, given as CasADi columns (4,); the vector is in the axes of a. The
    result is the `logarithm` of the rotation, as an expression.
    """
    s, v = ca.dot(a, b), a[0] * b[1:] - b[0] * a[1:] - ca.cross(a[1:], b[1:])
    size, sign = ca.sqrt(ca.dot(v, v) + 1e-300), ca.if_else(s < 0, -1.0, 1.0)
    return 2 * ca.atan2(size, sign * s) / size * sign * v


def check_units(s: np.ndarray, what: str, where: Sequence[str]) -> None:
    """Raise `ValueError` unless quaternions (..., n, 4) have the norm 1.

    `where` (n,) has descriptions of the n quaternions for the message.
    """
    norms = np.linalg.norm(s, axis=-1)
    bad = np.abs(norms - 1) > UNIT
    if bad.any():
        first = tuple(np.argwhere(bad)[0])
        raise ValueError(
            f"{what}: expected unit quaternions, got one of norm {norms[first]:.6g} {where[first[-1]]}; make "
            "states by initial_state or retract"
        )


def from_matrix(R: np.ndarray) -> np.ndarray:
    """Convert rotation matrices (n, 3, 3) to unit quaternions (n, 4) with a scalar part >= 0."""
    from scipy.spatial.transform import Rotation  # imported here because it is slow

    q = np.roll(Rotation.from_matrix(R).as_quat(), 1, axis=-1)
    return np.where(q[..., :1] < 0, -q, q)


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the quaternion product a * b of arrays (..., 4)."""
    s, v, t, w = a[..., :1], a[..., 1:], b[..., :1], b[..., 1:]
    scalar = s * t - np.sum(v * w, axis=-1, keepdims=True)
    return np.concatenate([scalar, s * w + t * v + np.cross(v, w)], axis=-1)


def exponential(phi: np.ndarray) -> np.ndarray:
    """Return the unit quaternions (..., 4) of rotation vectors (..., 3)."""
    half = 0.5 * np.linalg.norm(phi, axis=-1, keepdims=True)
    return np.concatenate([np.cos(half), 0.5 * np.sinc(half / np.pi) * phi], axis=-1)


def logarithm(q: np.ndarray) -> np.ndarray:
    """Return the rotation vectors phi (..., 3) of unit quaternions (..., 4), with |phi| <= pi.

    q and -q give the same vector.
    """
    q = np.where(q[..., :1] < 0, -q, q)
    size = np.linalg.norm(q[..., 1:], axis=-1, keepdims=True)
    angle = 2 * np.arctan2(size, q[..., :1])
    small = size < 1e-8
    return q[..., 1:] * np.where(small, 2.0, angle / np.where(small, 1.0, size))
