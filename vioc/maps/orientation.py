"""Orientations of frames as rotation vectors, and errors between orientations.

``FRAME:rx`` (ry, rz) of a map with `rotation(FRAME)` is log(R) in the world's axes. The error against R_d is
log(R_d' R), the rotation from R_d to R in the axes of R_d. It is smooth at zero, with exact derivatives of
any order. Its size is the angle up to half a turn, where it changes its sign.
"""

from __future__ import annotations

from typing import Any

import casadi as ca

AXES = ("rx", "ry", "rz")
ATAN = [(-1.0) ** n / (2 * n + 1) for n in range(22)]  # atan(sqrt(s))/sqrt(s) for s < 0.172


def component(name: str) -> tuple[str, int] | None:
    """Return the frame and the axis in a name such as ``FRAME:rx``, or None for other names."""
    frame, _, axis = name.rpartition(":")
    return (frame, AXES.index(axis)) if frame and axis in AXES else None


def log_over_vector(s: Any, size: Any) -> Any:
    """Return the factor c for which c v is the rotation vector of a unit quaternion.
    The quaternion has the scalar part s and the vector part v; `size` is |v|^2.

    The factor is smooth at zero, for s >= 0.
    """
    half = 1 / (1 + s)  # tan(angle/4) = half |v|
    m = half / (1 + ca.sqrt(1 + half * half * size))  # tan(angle/8) = m |v| < 0.42
    t, total = m * m * size, ATAN[-1]
    for c in reversed(ATAN[:-1]):
        total = total * t + c
    return 8 * m * total


def rotation_vector(R: ca.SX) -> ca.SX:
    """Return the logarithm of a rotation matrix (3, 3) as rotation vector (3,), rad.

    At half a turn it has either sign.
    """
    d, sums = [R[i, i] for i in range(3)], [R[1, 2] + R[2, 1], R[0, 2] + R[2, 0], R[0, 1] + R[1, 0]]
    x, y, z = R[2, 1] - R[1, 2], R[0, 2] - R[2, 0], R[1, 0] - R[0, 1]
    # 4 q q', linear in R: a column whose diagonal entry is not small is a multiple of q
    columns = (
        ca.vertcat(1 + d[0] + d[1] + d[2], x, y, z),
        ca.vertcat(x, 1 + d[0] - d[1] - d[2], sums[2], sums[1]),
        ca.vertcat(y, sums[2], 1 - d[0] + d[1] - d[2], sums[0]),
        ca.vertcat(z, sums[1], sums[0], 1 - d[0] - d[1] + d[2]),
    )
    about_y_or_z = ca.if_else(d[1] > d[2], columns[2], columns[3])
    column = ca.if_else(ca.logic_and(d[0] > d[1], d[0] > d[2]), columns[1], about_y_or_z)
    c = ca.if_else(d[0] + d[1] + d[2] > -0.5, columns[0], column)
    q = c * (ca.if_else(c[0] < 0, -1, 1) / ca.norm_2(c))
    return log_over_vector(q[0], ca.sumsqr(q[1:])) * q[1:]
