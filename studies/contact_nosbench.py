"""Problems of nosbench and of optimization_dynamics as `contact_library.Task`s.

nosbench integrates with two or three finite elements of Radau's method a stage and finds switches; here steps
are of the midpoint rule, as many as there elements.
"""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np

import vioc
from studies.contact_library import G, Rub, Task, at, line
from vioc import (
    Contact,
    ContactVI,
    Gravity,
    JointDamping,
    JointForce,
    JointLimits,
    Mass,
    PairContact,
    System,
    UserForce,
)
from vioc.components import DryFriction, RotorInertia
from vioc.shapes import Sphere


def cart_pole(force: float = 2.0) -> Task:
    """nosbench: a cart with Coulomb friction, F = 2 or 5 N, swings its pole up in 4 s."""
    steps = 60
    pole = vioc.ry("a")[vioc.tz(-1.0, mass=Mass(0.1))]
    rubs = DryFriction("x", force, name="rail")
    f = ContactVI(
        System(
            vioc.tx("x", mass=Mass(1.0))[pole],
            Gravity(0, 0, -G),
            rubs,
            JointForce("x", "u"),
            name="cart-pole",
        ),
        4.0 / steps,
    )
    goal, w, last = ca.DM([0, np.pi, 0, 0]), ca.DM([1, 100, 1, 1]), ca.DM([100, 100, 10, 10])

    def kinetic(q: Any, v: Any) -> Any:
        c = ca.cos(q[1])  # at -1 m turned by a about y: (-sin a, -cos a)
        speed = (v[0] - c * v[1]) ** 2 + (ca.sin(q[1]) * v[1]) ** 2
        return 0.5 * v[0] ** 2 + 0.05 * speed + 0.1 * G * c

    return Task(
        f,
        steps,
        kinetic,
        lambda q, v, u: ca.vertcat(u, 0),
        lambda q: ca.SX(0, 1),
        lambda q, v, u, impulses, ref: ca.dot(w, (ca.vertcat(q, v) - goal) ** 2) + u**2,
        lambda q, v, ref: ca.dot(last, (ca.vertcat(q, v) - goal) ** 2),
        {
            "x": (lambda q, v, u: q[0], 0.0, 5.0),
            "a": (lambda q, v, u: q[1], -4 * np.pi / 3, 4 * np.pi / 3),
            "v.x": (lambda q, v, u: v[0], -20.0, 20.0),
            "v.a": (lambda q, v, u: v[1], -20.0, 20.0),
            "u.u": (lambda q, v, u: u[0], -30.0, 30.0),
        },
        (np.array([1.0, 0.0]), np.zeros(2)),
        (line([1, 0], [0, np.pi], steps), None),
        rubs=(Rub(lambda q: ca.SX([[1, 0]]), force),),
        per_time=True,
    )


def swing_up(mu: float = 0.35) -> Task:
    """optimization_dynamics: a cart-pole whose rail and joint rub, up in 2.5 s."""
    steps, h = 50, 0.05
    pole = vioc.ry("a")[vioc.tz(-0.5, mass=Mass(0.2))]
    rail, pin = mu * 1.2 * G, mu * 0.2 * G * 0.5
    f = ContactVI(
        System(
            vioc.tx("x", mass=Mass(1.0))[pole],
            Gravity(0, 0, -G),
            DryFriction("x", rail, name="rail"),
            DryFriction("a", pin, name="pin"),
            JointForce("x", "u"),
            name="cart-pole that rubs",
        ),
        h,
    )

    def kinetic(q: Any, v: Any) -> Any:
        c = ca.cos(q[1])
        speed = (v[0] - 0.5 * c * v[1]) ** 2 + (0.5 * ca.sin(q[1]) * v[1]) ** 2
        return 0.5 * v[0] ** 2 + 0.1 * speed + 0.1 * G * c

    end = {"x": 0.0, "a": np.pi}
    return Task(
        f,
        steps,
        kinetic,
        lambda q, v, u: ca.vertcat(u, 0),
        lambda q: ca.SX(0, 1),
        lambda q, v, u, impulses, ref: (h * u) ** 2,
        lambda q, v, ref: ca.sumsqr(v) + q[0] ** 2 + (q[1] - np.pi) ** 2,
        {
            **{
                n: (lambda q, v, u, i=i: q[i], *at(steps, k50=(x - 0.005, x + 0.005)))
                for i, (n, x) in enumerate(end.items())
            },
            **{
                f"v.{n}": (lambda q, v, u, i=i: v[i], *at(steps, k50=(-0.005, 0.005)))
                for i, n in enumerate("xa")
            },
        },
        (np.zeros(2), np.zeros(2)),
        (line([0, 0], [0, np.pi], steps), None),
        rubs=(Rub(lambda q: ca.SX([[1, 0]]), rail), Rub(lambda q: ca.SX([[0, 1]]), pin)),
    )


def acrobot() -> Task:
    """optimization_dynamics: an acrobot whose elbow stops at a quarter turn, up in 10 s.

    The source has 5 s, in which no torque brings it up (`contact_reach`). There D1 L is minus all Coriolis
    terms, which lacks the rate of the mass matrix.
    """
    steps, h = 200, 0.05
    s = np.linspace(0, 1, steps + 1)
    swings = np.pi * s * np.cos(2 * np.pi * 3 * (1 - s))
    rod = Mass.rod(1.0, 1.0, com=(0, 0, -0.5))
    f = ContactVI(
        System(
            vioc.ry("a", mass=rod)[vioc.tz(-1.0)[vioc.ry("b", mass=rod)]],
            Gravity(0, 0, -G),
            JointLimits("b", -np.pi / 2, np.pi / 2, name="elbow"),
            JointDamping("a", 0.5),
            JointDamping("b", 0.5),
            JointForce("b", "u"),
            name="acrobot",
        ),
        h,
    )

    def kinetic(q: Any, v: Any) -> Any:
        c, w = ca.cos(q[1]), v[0] + v[1]
        turning = 0.5 * (1 / 3 + 1) * v[0] ** 2 + 0.5 / 3 * w**2 + 0.5 * c * v[0] * w
        return turning + G * (1.5 * ca.cos(q[0]) + 0.5 * ca.cos(q[0] + q[1]))

    return Task(
        f,
        steps,
        kinetic,
        lambda q, v, u: ca.vertcat(-0.5 * v[0], u - 0.5 * v[1]),
        lambda q: ca.vertcat(q[1] + np.pi / 2, np.pi / 2 - q[1]),
        lambda q, v, u, impulses, ref: 0.05 * ca.sumsqr(v) + 0.5 * (h * u) ** 2,
        lambda q, v, ref: 0.05 * ca.sumsqr(v),
        {
            "a": (lambda q, v, u: q[0], *at(steps, k200=np.pi)),
            "b": (lambda q, v, u: q[1], *at(steps, k200=0.0)),
            "v.a": (lambda q, v, u: v[0], *at(steps, k200=(-1e-3, 1e-3))),
            "v.b": (lambda q, v, u: v[1], *at(steps, k200=(-1e-3, 1e-3))),
        },
        (np.zeros(2), np.zeros(2)),
        (np.column_stack([swings, 0 * s]), None),
    )


def _thrust(k: Any) -> dict[str, Any]:
    leg, t = k.u("leg"), k.q("t")
    return {"x": -leg * ca.sin(t), "z": leg * ca.cos(t), "r": leg}


def hopper() -> Task:
    """nosbench: a hopper of constant masses goes 0.6 m in 1 s. Friction instead of a no-slip input."""
    steps = 60
    foot = vioc.twist("t", (0, 0, 0), (0, -1, 0))[vioc.ry(np.pi)[vioc.tz("r", name="foot")]]
    f = ContactVI(
        System(
            vioc.tx("x")[vioc.tz("z", name="body", mass=Mass(1.1))[foot]],
            Gravity(0, 0, -G),
            RotorInertia("t", 0.275),
            RotorInertia("r", 0.1),
            Contact.point("foot", friction=0.45, name="foot"),
            UserForce(_thrust, inputs=("leg",)),
            JointForce("t", "torque"),
            name="hopper of constant masses",
        ),
        1.0 / steps,
    )
    masses = ca.DM([1.1, 1.1, 0.275, 0.1])
    knots = np.array([[0.1, 0.5, 0, 0.5], [0.4, 0.8, 0, 0.1], [0.7, 0.5, 0, 0.5]])
    s = np.linspace(0, 1, steps + 1)[:, None]
    way = 2 * (s - 0.5) * (s - 1) * knots[0] - 4 * s * (s - 1) * knots[1] + 2 * s * (s - 0.5) * knots[2]
    Q, end = ca.DM([50, 50, 20, 50]), ca.DM([300] * 4)

    def track(weights: Any) -> Any:
        return lambda q, v, ref: ca.dot(weights, (q - ref) ** 2) + 0.1 * ca.sumsqr(v)

    first, last = track(Q), track(end)
    return Task(
        f,
        steps,
        lambda q, v: 0.5 * ca.dot(masses, v**2) - 1.1 * G * q[1],
        lambda q, v, u: ca.vertcat(-u[0] * ca.sin(q[2]), u[0] * ca.cos(q[2]), u[1], u[0]),
        lambda q: q[1] - q[3] * ca.cos(q[2]),
        lambda q, v, u, impulses, ref: first(q, v, ref) + 0.01 * ca.sumsqr(u),
        last,
        {
            "x": (lambda q, v, u: q[0], -np.inf, 0.8),
            "z": (lambda q, v, u: q[1], -np.inf, 1.5),
            "r": (lambda q, v, u: q[3], 0.1, 0.5),
            "u.leg": (lambda q, v, u: u[0], -50.0, 50.0),
            "u.torque": (lambda q, v, u: u[1], -50.0, 50.0),
            **{
                f"v.{n}": (lambda q, v, u, i=i: v[i], -b, b)
                for i, (n, b) in enumerate(zip("xztr", (10.0, 10.0, 5.0, 5.0), strict=True))
            },
        },
        (knots[0], np.zeros(4)),
        (way, None),
        rubs=(Rub(lambda q: ca.horzcat(1, 0, q[3] * ca.cos(q[2]), ca.sin(q[2])), 0.45, gap=0),),
        references=way,
        per_time=True,
        smoothing=0.3,
    )


def three_carts(mass: float = 1.0) -> Task:
    """nosbench: the middle one of three carts brings all to their goals by bumping."""
    steps, names = 60, ("a", "b", "c")
    carts = [vioc.tx(n, name=n, mass=Mass(m)) for n, m in zip(names, (mass, 1.0, mass), strict=True)]
    bumps = [PairContact(i, Sphere(1.0), j, Sphere(1.0), name=f"{i}{j}") for i, j in (("a", "b"), ("b", "c"))]
    f = ContactVI(
        System(carts, bumps, [JointDamping(n, 2.0) for n in names], JointForce("b", "u"), name="carts"),
        4.0 / steps,
    )
    masses, goal = ca.DM([mass, 1, mass]), ca.DM([-5, 0, 5])
    s = np.linspace(0, 1, steps + 1)
    middle = np.interp(s, [0, 0.4, 0.9, 1], [0, -3, 3, 0])  # one after the other: both at once is a saddle
    first, last = np.interp(s, [0, 0.4, 1], [-3, -5, -5]), np.interp(s, [0, 0.5, 0.9, 1], [3, 3, 5, 5])
    Q = ca.DM([10, 1, 10])

    def miss(q: Any, v: Any) -> Any:
        return ca.dot(Q, (q - goal) ** 2) + 0.1 * ca.sumsqr(v)

    return Task(
        f,
        steps,
        lambda q, v: 0.5 * ca.dot(masses, v**2),
        lambda q, v, u: ca.vertcat(0, u, 0) - 2 * v,
        lambda q: ca.vertcat(q[1] - q[0] - 2, q[2] - q[1] - 2),
        lambda q, v, u, impulses, ref: miss(q, v) + 0.1 * u**2,
        lambda q, v, ref: 100 * miss(q, v),
        {"u.u": (lambda q, v, u: u[0], -20.0, 20.0)},
        (np.array([-3.0, 0, 3]), np.zeros(3)),
        (np.column_stack([first, middle, last]), None),
        per_time=True,
        smoothing=0.3,  # wider, nobody moves: pushes from both sides cancel
    )


DISCS = ("ax", "ay", "bx", "by")


def _drag(k: Any) -> dict[str, Any]:
    return dict(zip(DISCS, ca.vertsplit(_dragged(ca.vertcat(*(k.v(n) for n in DISCS)))), strict=True))


def _dragged(v: Any) -> Any:
    return ca.vertcat(*(-2 * w / (ca.sqrt(ca.sumsqr(w) + 1e-12) + 0.1) for w in (v[:2], v[2:])))


def two_discs() -> Task:
    """nosbench: one disc pushes the other out of its way, they swap their places. Drag 2 v/(|v| + 0.1)."""
    steps = 60
    discs = [vioc.tx(f"{n}x")[vioc.ty(f"{n}y", name=n, mass=Mass(m))] for n, m in (("a", 2.0), ("b", 1.0))]
    meet = PairContact("a", Sphere(0.3), "b", Sphere(0.2), name="ab")
    pushes = [JointForce("ax", "fx"), JointForce("ay", "fy")]
    f = ContactVI(System(discs, meet, UserForce(_drag), pushes, name="discs"), 3.0 / steps)
    masses, goal, Q = ca.DM([2, 2, 1, 1]), ca.DM([1, 0, -1, 0]), ca.DM([5, 5, 10, 10])

    def miss(q: Any) -> Any:
        return ca.dot(Q, (q - goal) ** 2)

    first, end = np.array([-1.0, 0, 1, 0]), np.array([1.0, 0, -1, 0])
    way = line(first, end, steps)
    s = np.linspace(0, np.pi, steps + 1)
    way[:, 1], way[:, 3] = -0.5 * np.sin(s), 0.3 * np.sin(s)
    return Task(
        f,
        steps,
        lambda q, v: 0.5 * ca.dot(masses, v**2),
        lambda q, v, u: ca.vertcat(u, 0, 0) + _dragged(v),
        lambda q: ca.norm_2(q[2:] - q[:2]) - 0.5,
        lambda q, v, u, impulses, ref: miss(q) + 0.1 * ca.sumsqr(u),
        lambda q, v, ref: 100 * miss(q),
        {f"u.f{n}": (lambda q, v, u, i=i: u[i], -20.0, 20.0) for i, n in enumerate("xy")},
        (first, np.zeros(4)),
        (way, None),
        per_time=True,
    )
