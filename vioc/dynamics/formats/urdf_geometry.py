"""Poses, joint axes and shapes of a URDF file, made from the objects of its parser."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from vioc.dynamics.description.frame import Pose, Transform, Twist
from vioc.dynamics.description.numbers import Variable, as_numbers
from vioc.dynamics.formats.robot import RobotGeometry
from vioc.dynamics.formats.urdf_xml import Contents
from vioc.errors import ModelError

ROUNDING = 4 * np.finfo(float).eps  # rounding error of a product of sines and cosines
IDENTITY = Pose((0.0,) * 3, (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0))


def pose(origin: Any) -> Pose:
    """Return the pose of an <origin> element, whose orientation is roll, pitch, yaw or a quaternion.

    R = Rz(yaw) Ry(pitch) Rx(roll).
    """
    if origin is None:
        return IDENTITY
    quaternion = getattr(origin, "quat_xyzw", None)
    if quaternion is not None:
        return Pose(tuple(origin.xyz), _turned(quaternion))
    roll, pitch, yaw = origin.rpy
    if roll == pitch == yaw == 0:
        return Pose(tuple(origin.xyz), IDENTITY.rotation)
    if not all(map(math.isfinite, origin.rpy)):
        raise ModelError(f"rpy: expected finite angles, got {origin.rpy}")
    (sr, sp, sy), (cr, cp, cy) = np.sin(origin.rpy), np.cos(origin.rpy)
    R = np.array(
        [
            [cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr],
            [sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr],
            [-sp, cp * sr, cp * cr],
        ]
    )
    R[np.abs(R) < ROUNDING] = 0.0  # cos(pi/2) = 6e-17 would only enlarge the expressions
    return Pose(tuple(origin.xyz), tuple(R.ravel().tolist()))


def _turned(quaternion: tuple[float, ...]) -> tuple[float, ...]:
    """Return the rotation matrix, as 9 numbers row by row, of a quaternion (x, y, z, w) of any norm > 0."""
    size = math.hypot(*quaternion)
    if not 0 < size < math.inf:
        raise ModelError(f"quat_xyzw: expected 4 finite numbers, not all zero, got {quaternion}")
    x, y, z, w = np.array(quaternion) / size
    R = np.array(
        [
            [w * w + x * x - y * y - z * z, 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), w * w - x * x + y * y - z * z, 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), w * w - x * x - y * y + z * z],
        ]
    )
    R[np.abs(R) < ROUNDING] = 0.0
    return tuple(R.ravel().tolist())


def move(kind: str, axis: np.ndarray, variable: str) -> Transform:
    """Return the transform of a joint: a translation along `axis` ("T") or a rotation about it ("R").
    Its distance or angle is the given variable, and `axis` is a unit vector.

    It is a primitive transform for a coordinate axis, else a twist.
    """
    if sorted(axis) == [0.0, 0.0, 1.0]:
        return Transform(kind + "XYZ"[int(np.argmax(axis))], Variable(variable))
    vector, zero = tuple(axis.tolist()), (0.0,) * 3
    parts = (vector, zero) if kind == "T" else (zero, vector)
    return Transform("TWIST", Twist(Variable(variable), *parts))


def plane(normal: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return three right-handed unit axes (a, b, normal), of which a and b span the plane.

    They are cyclic for a coordinate axis: z has x and y.
    """
    first = np.eye(3)[(int(np.argmax(np.abs(normal))) + 1) % 3]
    a = first - (first @ normal) * normal
    a /= np.linalg.norm(a)
    return a, np.cross(normal, a), normal


_SIZES = {"box": ("size",), "cylinder": ("radius", "length"), "sphere": ("radius",), "mesh": ("scale",)}


def shapes(contents: Contents, frames: dict[str, str], which: str) -> Iterable[RobotGeometry]:
    """Yield the visual or collision geometries of every link.

    `frames` has the frame of each link.
    """
    for link, content in contents.links.items():
        for item in getattr(content, which):
            kind = type(item.geometry).__name__.lower()
            values = [getattr(item.geometry, name) for name in _SIZES[kind]]
            size = np.hstack([1.0 if v is None else v for v in values])  # a mesh can have no scale
            if kind in ("box", "mesh"):
                size = np.broadcast_to(size, 3)
            try:
                place = pose(item.origin)
                numbers = as_numbers(size.tolist(), len(size), "size")
            except ModelError as error:
                contents.leave_out(f"a <{which[:-1]}> that cannot be read ({kind}: {error})", "link", link)
                continue
            material = getattr(item, "material", None)  # collisions have none
            rgba = material.color.rgba if material and material.color else None
            color = tuple(rgba) if rgba else contents.colors.get(material.name) if material else None
            file = getattr(item.geometry, "filename", None)
            yield RobotGeometry(frames[link], kind, numbers, place.position, place.rotation, file, color)  # type: ignore[arg-type]
