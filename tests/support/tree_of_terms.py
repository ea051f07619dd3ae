"""A tree on which tests try terms, and functions of users' terms: of a module, so that they pickle."""

from __future__ import annotations

import casadi as ca

from vioc import Mass, rx, ry, rz, se3, twist, tx, ty, tz

ARM = Mass(1.2, (0.3, 0.25, 0.2, 0.01, 0.02, -0.01), (0.1, 0.05, -0.3))
HAND = Mass(0.7, (0.1, 0.12, 0.15), (-0.1, 0.2, 0.1))
FAR = Mass(2.0, (0.2, 0.3, 0.25), (0.05, -0.02, 0.03))
TREE = (
    tx("x")[
        ry("a", name="arm", mass=ARM)[
            tz(-0.8)[rx("b", name="hand", mass=HAND)[ty(0.5, name="tip"), rz("c", name="wrist", mass=FAR)]]
        ]
    ],
    se3((1.5, -0.7, 0.4), rotation=((0, -1, 0), (1, 0, 0), (0, 0, 1)))[
        twist("s", (0.1, 0.2, -0.3), (0.5, -0.4, 0.8), name="far", mass=FAR)
    ],
)


def charge(k, frame, strength):
    """An energy in the distance of a frame from the origin, scaled by a joint's angle."""
    p = k.position(frame)
    return strength * ca.exp(-ca.dot(p, p)) * (1 + k.q("a"))


def height(k, frame, level):
    """Zero where the cube of a frame's height is the level."""
    return k.position(frame)[2] ** 3 - level


def drag(k, coefficient):
    """Forces by name that depend on rates, on an input and on time."""
    speed = k.body_velocity("tip")[0]
    return {"a": -coefficient * speed * k.v("b") + k.u("push") * ca.sin(k.t), "x": k.q("b") ** 2}
