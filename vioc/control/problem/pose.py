"""Poses of frames in costs, end conditions and constraints.

The error of an orientation is log(R_d' R) (docs/maths/arms.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import casadi as ca
import numpy as np

from vioc.errors import ModelError
from vioc.maps.orientation import AXES, component, rotation_vector
from vioc.maps.protocol import OneStepMap


def pose(frame: str, position: Any = None, rotation: Any = None) -> dict[str, float]:
    """Return the pose of a frame as a dict of values by name.
    The dict can be used in goals, end conditions and weights.

    Parameters
    ----------
    frame : str
    position : (3,) or (4, 4), optional
        Position in the world, m; a (4, 4) pose holds position and rotation.
    rotation : (3, 3), (3,) or an object with ``as_matrix()``, optional
        A matrix, a rotation vector (rad), or scipy's `Rotation`.

    Returns
    -------
    dict
        ``{"FRAME:x": ..., "FRAME:rx": ...}`` of the given parts.

    Examples
    --------
    >>> final = pose("hand", [0.5, 0, 0.4], Rotation.from_euler("x", 180, degrees=True)) | at_rest
    """
    position, R = _given(frame, position, rotation)
    found = (
        {} if position is None else {f"{frame}:{a}": float(c) for a, c in zip("xyz", position, strict=True)}
    )
    if R is not None:
        from scipy.spatial.transform import Rotation  # imported here because it is slow to import

        vector = Rotation.from_matrix(R).as_rotvec()
        found |= {f"{frame}:{a}": float(c) for a, c in zip(AXES, vector, strict=True)}
    return found


def pose_error(f: OneStepMap, frame: str, position: Any = None, rotation: Any = None) -> ca.SX:
    """Return the error between the pose of a frame and a target pose.

    It is an expression in a map's symbols, for use in costs and constraints: p - p_d (m, in the world),
    followed by log(R_d' R) (rad, in the axes of R_d). Arguments are those of `pose`; a part that is not given
    has no rows. Example: ``PathConstraint("upright", pose_error(f, "cup", rotation=R)[:2], -0.1, 0.1)``.
    """
    position, R = _given(frame, position, rotation)
    rows = []
    if position is not None:
        there = ca.vertcat(*(f.quantity(f"{frame}:{axis}") for axis in "xyz"))
        rows.append(there - ca.DM(position))
    if R is not None:
        now = f.quantities.rotation(frame)
        if now is None:
            raise ModelError(f"{type(f).__name__} has no orientation of {frame!r}")
        rows.append(rotation_vector(ca.DM(R).T @ now))
    return ca.vertcat(*rows)


def turn(f: OneStepMap, name: str, among: Mapping[str, Any]) -> ca.SX | None:
    """Return the error of a component of a frame's orientation, such as ``hand:rx``.
    Return None for other names, and if the dict `among` of target values lacks a number for one of the
    orientation's three components: then the component itself is compared with its target.

    The error is an entry of J_r(r_d)^-1 log(R_d' R), with the target R_d and its rotation vector r_d. To
    first order it is r - r_d, so that multipliers are derivatives with respect to the target values. It is
    smooth where the rotation vector r jumps.
    """
    owner = component(name)
    R = None if owner is None else f.quantities.rotation(owner[0])
    if owner is None or R is None:
        return None
    values = [among.get(f"{owner[0]}:{axis}") for axis in AXES]
    if any(v is None or np.ndim(v) for v in values):
        return None
    from scipy.spatial.transform import Rotation

    wanted = Rotation.from_rotvec(np.array(values, float))
    away = rotation_vector(ca.DM(wanted.as_matrix()).T @ R)
    return (ca.DM(_inverse_right_jacobian(wanted.as_rotvec())) @ away)[owner[1]]


def _inverse_right_jacobian(r: np.ndarray) -> np.ndarray:
    """Return the inverse right Jacobian of the exponential map of rotations.

    It is J (3, 3) of log(exp(r) exp(e)) = r + J e + O(e^2), for |r| <= pi.
    """
    x, y, z = r
    K, half = np.array([[0, -z, y], [z, 0, -x], [-y, x, 0]]), 0.5 * float(np.linalg.norm(r))
    share = 1 / 12 if half < 1e-4 else (1 - half / np.tan(half)) / (4 * half**2)
    return np.asarray(np.eye(3) + 0.5 * K + share * K @ K)


def _given(frame: str, position: Any, rotation: Any) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Check a pose; return position (3,) and rotation matrix (3, 3), None if missing."""
    if np.shape(position) == (4, 4):
        if rotation is not None:
            raise ModelError(f"pose of {frame!r}: a (4, 4) pose has its rotation, got one beside it")
        whole = np.asarray(position, float)
        position, rotation = whole[:3, 3], whole[:3, :3]
    if position is None and rotation is None:
        raise ModelError(f"pose of {frame!r}: expected a position, a rotation, or both")
    if position is not None:
        position = np.asarray(position, float)
        if position.shape != (3,) or not np.isfinite(position).all():
            raise ModelError(f"pose of {frame!r}: position: expected 3 numbers (m), got {position.tolist()}")
    if rotation is None:
        return position, None
    R = np.asarray(rotation.as_matrix() if hasattr(rotation, "as_matrix") else rotation, float)
    if R.shape == (3,) and np.isfinite(R).all():
        from scipy.spatial.transform import Rotation

        R = Rotation.from_rotvec(R).as_matrix()
    if R.shape != (3, 3) or not np.abs(R @ R.T - np.eye(3)).max() < 1e-9 or np.linalg.det(R) < 0:
        raise ModelError(
            f"pose of {frame!r}: rotation: expected a matrix, a rotation vector or scipy's Rotation, got "
            f"{R.tolist()}"
        )
    return position, R
