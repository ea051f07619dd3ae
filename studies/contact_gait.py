"""CALIPSO's gait of a planar quadruped as a `contact_library.Task`: half a stride, feet given, forces found.

Legs 1, 2 are in front, 3, 4 behind; feet 1 and 3 stand throughout, 2 and 4 for five steps and then follow
half ellipses by cost. The source ties the end's velocities to the start's too; here the pose is mirrored.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import casadi as ca
import numpy as np

import vioc
from studies.contact_library import G, Rub, Task, at, line
from vioc import Contact, ContactVI, Gravity, JointDamping, JointForce, Mass, System

STEPS, H, HALF, LINK = 30, 1 / 64, 0.183, 0.2
LIFT, FROM = 0.05, 5
NEAR = 1e-3  # m, of feet that stand: friction holds what creeps, and nothing that is pinned
# m, of their heights: with less than 0.3 s^2/m of the smoothing four feet would have to bear more than the
# weight, docs/maths/contact_implicit.md (7)
ROOM = 1e-4
TRUNK = (4.713 + 4 * 0.696, 0.01683 + 4 * 0.696 * HALF**2)  # mass, inertia
PARTS = ((1.013, 0.00552, 0.1 - 0.00323), (0.166, 0.00299, 0.1 - 0.006435))  # mass, inertia, to the centre
LEGS = range(1, 5)
NAMES = ("x", "z", "a", *(f"{joint}{i}" for i in LEGS for joint in ("hip", "knee")))


def quadruped() -> ContactVI:
    links = []
    for i in LEGS:
        thigh, calf = (Mass(m, inertia=(J,) * 3, com=(0, 0, -c)) for m, J, c in PARTS)
        shank = vioc.ry(f"knee{i}", mass=calf)[vioc.tz(-LINK, name=f"foot{i}")]
        leg = vioc.ry(f"hip{i}", mass=thigh)[vioc.tz(-LINK)[shank]]
        links.append(vioc.tx(HALF if i < 3 else -HALF)[leg])
    trunk = vioc.ry("a", name="trunk", mass=Mass(TRUNK[0], inertia=(TRUNK[1],) * 3))
    joints = [f"{joint}{i}" for i in LEGS for joint in ("hip", "knee")]
    return ContactVI(
        System(
            vioc.tx("x")[vioc.tz("z")[trunk[links]]],
            Gravity(0, 0, -G),
            [Contact.point(f"foot{i}", friction=0.2, name=f"foot{i}") for i in LEGS],
            [JointDamping(n, 0.1) for n in joints],
            [JointForce(n, f"t.{n}".replace(".", "-")) for n in joints],
            name="planar quadruped",
        ),
        H,
        smoothing=3e-9,
    )


def _place(q: Any, i: int, part: int, along: float) -> tuple[Any, Any]:
    """A point of leg i: `along` of thigh (0) or calf (1), (x, z)."""
    s = HALF if i < 3 else -HALF
    x, z = q[0] + s * ca.cos(q[2]), q[1] - s * ca.sin(q[2])
    hip = q[2] + q[1 + 2 * i]
    if part == 0:
        return x - along * ca.sin(hip), z - along * ca.cos(hip)
    knee = hip + q[2 + 2 * i]
    return x - LINK * ca.sin(hip) - along * ca.sin(knee), z - LINK * ca.cos(hip) - along * ca.cos(knee)


def foot(q: Any, i: int) -> Any:
    return ca.vertcat(*_place(q, i, 1, LINK))


@cache
def _lagrangian() -> ca.Function:
    q, v = ca.SX.sym("q", 11), ca.SX.sym("v", 11)
    total = 0.5 * TRUNK[0] * (v[0] ** 2 + v[1] ** 2) + 0.5 * TRUNK[1] * v[2] ** 2 - TRUNK[0] * G * q[1]
    for i in LEGS:
        turn = v[2]
        for part, (m, J, c) in enumerate(PARTS):
            turn = turn + v[2 + 2 * i - 1 + part]
            place = ca.vertcat(*_place(q, i, part, c))
            total += 0.5 * m * ca.sumsqr(ca.jtimes(place, q, v)) + 0.5 * J * turn**2 - m * G * place[1]
    return ca.Function("L", [q, v], [total])


def gait() -> Task:
    f = quadruped()
    assert f.state_names[: f.nq] == NAMES
    # absolute angles of thigh and calf; the second pair's by an equal height of its feet
    thigh, other = np.pi / 4, np.pi / 3
    calf = np.arccos(2 * np.cos(thigh) - np.cos(other))
    pose = [(thigh, -thigh - thigh), (other, -calf - other)]
    height = 2 * LINK * np.cos(thigh)
    first = np.array([0, height, 0, *pose[0], *pose[1], *pose[0], *pose[1]])
    feet = np.array(ca.DM(ca.horzcat(*(foot(ca.DM(first), i) for i in LEGS)))).T
    travel = abs(feet[1, 0] - feet[0, 0])
    end = np.array([travel, height, 0, *pose[1], *pose[0], *pose[1], *pose[0]])
    phase = np.clip((np.arange(STEPS + 1) - FROM) / (STEPS - FROM), 0, 1)
    swing = np.column_stack([travel * (1 - np.cos(np.pi * phase)), LIFT * np.sin(np.pi * phase)])
    references = np.hstack([feet[1] + swing, feet[3] + swing])
    angles = np.zeros((11, 11))  # absolute, as the source's configurations
    for k in range(3):
        angles[k, k] = 1
    for i in LEGS:
        angles[1 + 2 * i, [2, 1 + 2 * i]] = 1
        angles[2 + 2 * i, [2, 1 + 2 * i, 2 + 2 * i]] = 1

    def miss(q: Any, v: Any, ref: Any) -> Any:
        hips = [q[1] - s * ca.sin(q[2]) - height for s in (HALF, -HALF)]
        far = ca.sumsqr(foot(q, 2) - ref[:2]) + ca.sumsqr(foot(q, 4) - ref[2:])
        still = ca.DM(angles)
        return (
            1e-3 * (ca.sumsqr(still @ (q - end)) + ca.sumsqr(still @ v)) + hips[0] ** 2 + hips[1] ** 2 + far
        )

    held: dict[str, Any] = {}
    for i in LEGS:
        stands = STEPS if i in (1, 3) else FROM
        there = feet[i - 1, 0]
        marks = {f"k{k}": (there - NEAR, there + NEAR) for k in range(1, stands + 1)}
        held[f"foot{i}:x"] = (lambda q, v, u, i=i: foot(q, i)[0], *at(STEPS, **marks))
        marks = {f"k{k}": (-ROOM, ROOM) for k in range(1, stands + 1)}
        held[f"foot{i}:z"] = (lambda q, v, u, i=i: foot(q, i)[1], *at(STEPS, **marks))
    # feet 1 and 3 hold the end's legs already: what they leave free
    for n in ("x", "z", "a", "hip2", "knee2", "hip4", "knee4"):
        j = NAMES.index(n)
        room = ROOM if n in ("z", "knee2", "knee4") else 0.0
        held[n] = (lambda q, v, u, j=j: q[j], *at(STEPS, **{f"k{STEPS}": (end[j] - room, end[j] + room)}))

    def slope(i: int) -> Any:
        q = ca.SX.sym("q", 11)
        return ca.Function("T", [q], [ca.jacobian(foot(q, i)[0], q)])

    return Task(
        f,
        STEPS,
        lambda q, v: _lagrangian()(q, v),
        lambda q, v, u: ca.vertcat(0, 0, 0, u - 0.1 * v[3:]),
        lambda q: ca.vertcat(*(foot(q, i)[1] for i in LEGS)),
        lambda q, v, u, impulses, ref: miss(q, v, ref) + 1e-2 * ca.sumsqr(u),
        miss,
        held,
        (first, None),
        (line(first, end, STEPS), None),
        rubs=tuple(Rub(slope(i), 0.2, gap=i - 1) for i in LEGS),
        references=references,
        smoothing=1e-4,  # wider, feet that stand creep and hover farther than that
    )
