"""Poses of a system's frames by matrix exponentials in numpy: shares no code with vioc's kinematics.

Works on complex configurations, so that derivatives come by complex steps, exact to rounding.
"""

from __future__ import annotations

import numpy as np
import scipy.linalg

STEP = 1e-30
BASIS = {"TX": 0, "TY": 1, "TZ": 2, "RX": 3, "RY": 4, "RZ": 5}


def hat(xi):
    """4 x 4 matrix of a twist (linear, angular)."""
    v, w = xi[:3], xi[3:]
    top = np.array([[0, -w[2], w[1], v[0]], [w[2], 0, -w[0], v[1]], [-w[1], w[0], 0, v[2]]])
    return np.vstack([top, np.zeros(4)])


def vee(m):
    """Twist (linear, angular) of a 4 x 4 matrix in se(3)."""
    return np.array([*m[:3, 3], m[2, 1], m[0, 2], m[1, 0]])


def poses(system, q):
    """{name: (4, 4)} of named frames at q (nq,), in the order of ``system.variables``."""
    found, named = [], {"world": np.eye(4)}
    for node in system.nodes:
        transform = node.frame.transform
        if transform.kind == "SE3":
            local = np.eye(4)
            local[:3, :3] = np.reshape(transform.value.rotation, (3, 3))
            local[:3, 3] = [float(v) for v in transform.value.position]
        else:
            variable = transform.variable
            size = q[system.variables.index(variable.name)] if variable else float(transform.value)
            if transform.kind == "TWIST":
                xi = np.array([*transform.value.linear, *transform.value.angular])
            else:
                xi = np.eye(6)[BASIS[transform.kind]]
            local = scipy.linalg.expm(hat(xi) * size)
        found.append((found[node.parent] if node.parent >= 0 else np.eye(4)) @ local)
        if node.frame.name:
            named[node.frame.name] = found[-1]
    return named


def slopes(function, q):
    """Derivatives of an array function by q, one more axis behind its own."""
    columns = []
    for i in range(len(q)):
        moved = q.astype(complex)
        moved[i] += 1j * STEP
        columns.append(np.asarray(function(moved)).imag / STEP)
    return np.stack(columns, axis=-1)


def body_twist(system, frame, q, v):
    """Twist of a frame in its own axes at rates v: g^-1 dg."""
    rate = slopes(lambda z: poses(system, z)[frame], q) @ v
    return vee(np.linalg.solve(poses(system, q)[frame].real, rate))
