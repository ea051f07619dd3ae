"""State space of rigid bodies, and the layout of their poses and twists in arrays.

A pose is a column of twelve entries, x and R by rows; a twist is (v, w). In a state, a pose is x and a unit
quaternion, and twists follow the poses of all bodies. An error is (dx, phi) of every body, then (dv, dw) of
every body; phi is a rotation vector in the body's axes, q_1 = q_0 * exp(phi). See
docs/maths/maximal.md, "Bodies and states".
"""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np

from vioc.dynamics.algebra import rotations as rot
from vioc.dynamics.algebra import vectors as vec
from vioc.dynamics.algebra.vectors import Matrix, Vector
from vioc.maps.space import StateSpace

POSE, TWIST = 12, 6
STATE = 7  # values of a body's pose in the state: position and quaternion
POSE_NAMES = ("x", "y", "z", "qw", "qx", "qy", "qz")
TWIST_NAMES = ("vx", "vy", "vz", "wx", "wy", "wz")
Pose = tuple[Vector, Matrix]


def unpack_pose(z: Any, i: int = 0) -> Pose:
    """Return the position and the rotation matrix of body i from the column z of all poses."""
    e = [z[POSE * i + k] for k in range(POSE)]
    return tuple(e[:3]), (tuple(e[3:6]), tuple(e[6:9]), tuple(e[9:12]))


def unpack_twist(V: Any, i: int = 0) -> tuple[Vector, Vector]:
    """Return the linear and the angular velocity of body i from the column V of all twists."""
    e = [V[TWIST * i + k] for k in range(TWIST)]
    return tuple(e[:3]), tuple(e[3:])


def pose_rates(Z: Any, V: Any, i: int = 0) -> list[Any]:
    """Return the time derivative (v, R w^) of the pose (12,) of body i.
    The velocity v and the angular velocity w are in V; w^ is the matrix of the cross product with w.
    """
    (v, w), (_, R) = unpack_twist(V, i), unpack_pose(Z, i)
    return [*v, *(e for row in vec.matmul(R, vec.skew(w)) for e in row)]


def split(n: int, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Split states of n bodies into positions, quaternions and velocities.
    For states x (..., 13 n) the results have the shapes (..., n, 3), (..., n, 4) and (..., 6 n).
    """
    x = np.asarray(x, float)
    poses = x[..., : STATE * n].reshape(*x.shape[:-1], n, STATE)
    return poses[..., :3], poses[..., 3:], x[..., STATE * n :]


class BodySpace(StateSpace):
    """State space of rigid bodies: positions, unit quaternions and velocities."""

    def __init__(self, bodies: tuple[str, ...]):
        self._n, self._bodies = len(bodies), bodies
        self.quaternions = tuple(STATE * i + 3 for i in range(self._n))
        poses, twists = ("dx", "dy", "dz", "phix", "phiy", "phiz"), tuple("d" + c for c in TWIST_NAMES)
        self.error_names = tuple(f"{c}.{b}" for part in (poses, twists) for b in bodies for c in part)

    def check(self, x: np.ndarray, what: str) -> None:
        rot.check_units(split(self._n, x)[1], what, [f"for the body {b!r}" for b in self._bodies])

    def difference(self, x0: np.ndarray, x1: np.ndarray) -> np.ndarray:
        """Return the displacement (..., 12 n) from state x0 to state x1.
        Its rotation vectors have lengths of at most pi.
        """
        (p0, q0, V0), (p1, q1, V1) = split(self._n, x0), split(self._n, x1)
        phi = rot.logarithm(rot.product(q0 * [1, -1, -1, -1], q1))
        poses = np.concatenate([p1 - p0, phi], axis=-1)
        return np.concatenate([poses.reshape(*poses.shape[:-2], TWIST * self._n), V1 - V0], axis=-1)

    def retract(self, x: np.ndarray, dx: np.ndarray) -> np.ndarray:
        """Return the state that results from the state x by a displacement dx."""
        p, q, V = split(self._n, x)
        dx = np.asarray(dx, float)
        e = dx[..., : TWIST * self._n].reshape(*dx.shape[:-1], self._n, TWIST)
        rotations = rot.product(q, rot.exponential(e[..., 3:]))
        poses = np.concatenate([p + e[..., :3], rotations], axis=-1)
        return np.concatenate([poses.reshape(*poses.shape[:-2], -1), V + dx[..., TWIST * self._n :]], axis=-1)

    def retract_expression(self, x: ca.SX, dx: ca.SX) -> ca.SX:
        """Return the state that results from the state x by a small displacement dx.
        The result is an expression, exact to second order in dx.
        """
        parts = []
        for i in range(self._n):
            phi = dx[TWIST * i + 3 : TWIST * i + 6]
            small = (1 - ca.dot(phi, phi) / 8, *ca.vertsplit(phi / 2))
            q = rot.multiply(tuple(ca.vertsplit(x[STATE * i + 3 : STATE * i + STATE])), small)
            parts += [x[STATE * i : STATE * i + 3] + dx[TWIST * i : TWIST * i + 3], *q]
        return ca.vertcat(*parts, x[STATE * self._n :] + dx[TWIST * self._n :])

    def difference_expression(self, x0: ca.MX, x1: ca.MX) -> ca.MX:
        """Return the displacement from state x0 to state x1 as an expression."""
        rows = []
        for i in range(self._n):
            a, b = x0[STATE * i : STATE * i + STATE], x1[STATE * i : STATE * i + STATE]
            rows += [b[:3] - a[:3], rot.apart(a[3:], b[3:])]
        return ca.vertcat(*rows, x1[STATE * self._n :] - x0[STATE * self._n :])


def between(n: int, x0: np.ndarray, x1: np.ndarray, dt: float | np.ndarray) -> np.ndarray:
    """Return the constant twists (6 n,) that move n bodies from state x0 to state x1 in time dt."""
    return BodySpace(("",) * n).difference(x0, x1)[..., : TWIST * n] / dt
