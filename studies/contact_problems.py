"""Problems with contact: mechanisms, and what `dmoc.Phase` takes of each.

A mechanism is a map; a problem of it is a dict of arguments of `dmoc.solve`, or a list of phases.
Sources: thowell/optimization_dynamics, RoboDojo.jl (hopper, planar push), Dojo.jl (box).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np

import vioc
from vioc import (
    Contact,
    ContactVI,
    Gravity,
    JointDamping,
    JointForce,
    JointLimits,
    Mass,
    MaximalVI,
    System,
    UserForce,
)
from vioc.control import Cost, dmoc
from vioc.dynamics.description.component import Inequality, Meeting
from vioc.shapes import HalfSpace

G = 9.81

# -- Raibert's hopper: a body, a foot, a leg between them -----------------------------------

HOP = 0.05  # s, of a step
ROOM = 1e-4  # m, tolerance of heights of what stands
STAND = {"x": 0.0, "z": 0.55, "a": 0.0, "r": 0.5}


def thrust(k: Any) -> dict[str, Any]:
    """Leg force as the source has it: along the leg on the body, and on its length."""
    force, a = k.u("leg"), k.q("a")
    return {"x": force * ca.sin(a), "z": force * ca.cos(a), "r": force}


def hopper(dt: float = HOP, smoothing: float = 1e-8) -> ContactVI:
    """Body 1 kg, 0.1 kg m^2, radius 0.1; foot 0.1 kg, radius 0.05; leg 0.25 to 1 m, damped; friction 0.5.

    Inputs are the torque of the hip (N m) and the force of the leg (N); the body's pitch a is about y, minus
    the source's t.
    """
    leg = vioc.ry(np.pi)[vioc.tz("r", name="foot", mass=Mass(0.1))]
    inertia = (0.1, 0.1, 0.1)
    body = vioc.tx("x")[vioc.tz("z")[vioc.ry("a", name="body", mass=Mass(1.0, inertia=inertia))[leg]]]
    return ContactVI(
        System(
            body,
            Gravity(0, 0, -G),
            Contact.sphere("body", 0.1, friction=0.5, name="hull"),
            Contact.point("foot", friction=0.5, ground=HalfSpace(point=(0, 0, 0.05)), name="foot"),
            JointLimits("r", 0.25, 1.0, name="leg"),
            JointDamping("r", 0.1 / HOP),  # an impulse of 0.1 N s/m in each step of the source
            JointForce("a", "hip"),
            UserForce(thrust, inputs=("leg",)),
            name="hopper",
        ),
        dt,
        smoothing=smoothing,
    )


def raibert(f: ContactVI) -> list[dmoc.Phase]:
    """A hop of 0.5 m, the direct form of optimization_dynamics (r = 0.1 on everything, q = 1).

    Samples 0 ... 21 are its configurations. The first step is its first pair of them: no input, and a free
    momentum. The first configuration is given, the foot of the second stays, the last two are the first two,
    0.5 m on (there: at least 0.5 m).
    """
    s, h = f.symbols, f.dt
    q, u = s.x[: f.nq], s.u * h  # impulses
    weigh, twice = ca.SX.sym("w", 4), ca.DM([1, 10, 1, 10])
    goal = ca.DM([0.5, 0.8, 0.0, 0.25])
    rows = np.repeat(2.0 * twice.full().T, 21, axis=0)
    rows[-2] = twice.full().ravel() + 1
    rows[-1] = 1.0
    miss = 0.5 * ca.dot(weigh, (q - goal) ** 2)
    small = 1e-6
    each = [ca.sumsqr(u)]
    v = ca.vertcat(*(f.quantity(f"v.{n}") for n in STAND))
    slips = {"hull": v[0] - 0.1 * v[2], "foot": ca.jacobian(f.quantity("foot:x"), q) @ v}
    for name, slip in slips.items():
        gamma, t = (s.multipliers[f.multiplier_names.index(n)] for n in (name, f"{name}.t1"))
        size = ca.sqrt(t**2 + small)
        gap = f.quantity(f"gap.{name}")
        each += [gamma**2, t**2, 5 * slip**2, gap**2, (0.5 * gamma - size) ** 2]
    for name in ("leg-lower", "leg-upper"):
        each += [s.multipliers[f.multiplier_names.index(name)] ** 2, f.quantity(f"gap.{name}") ** 2]
    cost = Cost(f, miss + 0.05 * sum(each), miss, references=[(weigh, rows)], per_time=False)
    start = 0.5 * ca.dot(twice, (q - goal) ** 2)
    fixed = {n: (v, v) for n, v in STAND.items()}
    back = {
        n: (np.r_[np.full(19, -np.inf), v - room, -np.inf], np.r_[np.full(19, np.inf), v + room, np.inf])
        for n, v, room in ((n, v, ROOM * (n == "z")) for n, v in STAND.items())
    }
    back["x"] = (np.r_[np.full(19, -np.inf), 0.5, -np.inf], None)
    strength = {"u.hip": 10 / h, "u.leg": 10 / h}
    return [
        dmoc.Phase(f, 1, Cost(f, start, per_time=False), initial=fixed, bounds={"u.hip": 0.0, "u.leg": 0.0}),
        dmoc.Phase(
            f,
            20,
            cost,
            initial={"foot:x": 0.0, "foot:z": (0.05 - ROOM, 0.05 + ROOM)},
            periodic={"x": 0.5, "z": 0.0, "a": 0.0, "r": 0.0},
            bounds={**strength, **back},
        ),
    ]


def hop(f: ContactVI, steps: int = 50, seconds: float = 1.0, far: float = 0.5) -> dict[str, Any]:
    """A periodic hop with bounded torque and force, of least effort."""
    s = f.symbols
    effort = ca.sumsqr(s.u / ca.DM([10.0, 50.0])) + 0.1 * (f.quantity("z") - 0.6) ** 2
    return dict(
        cost=Cost(f, effort),
        steps=steps,
        duration=seconds,
        initial={"x": 0.0},
        periodic={n: far * (n == "x") for n in f.state_names},
        bounds={"u.hip": 10.0, "u.leg": 50.0, "a": 0.6},
    )


def standing(f: ContactVI, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """A guess: the hopper on its foot, its weight on the leg."""
    x = f.state(STAND)
    return np.repeat(x[None], steps + 1, axis=0), np.repeat([[0.0, 0.5 * G]], steps, axis=0)


# -- a finger pushes a block over the floor -----------------------------------------------------

SIDE = 0.2  # m, of the block
PUSH = 0.1  # s, of a step
GOALS = {"translate": (1.0, 0.0, 0.0), "rotate": (0.5, 0.5, np.pi / 2)}


@dataclass(frozen=True, repr=False)
class Fingertip(Inequality):
    """The finger's distance from the block, a superellipse of order 10: (dx^10 + dy^10)^(1/10) - side/2."""

    friction: float = 0.5
    cone: str = "second-order"

    def meetings(self, k: Any) -> dict[str, Meeting]:
        pose, place = k.pose("block"), k.position("finger")
        away = (pose[:3, :3].T @ (place - pose[:3, 3]))[:2]
        size = (away[0] ** 10 + away[1] ** 10) ** 0.1
        slope = ca.vertcat((away / size) ** 9, 0)
        n = ca.vertsplit(pose[:3, :3] @ (slope / ca.sqrt(ca.sumsqr(slope))))
        return {"": Meeting(size - SIDE / 2, tuple(n), tuple(ca.vertsplit(place)), "block", "finger")}


def planar_push(smoothing: float = 1e-8) -> ContactVI:
    """A block of 1 kg on its four corners, friction 0.5; a finger of 10 kg with a planar force."""
    block = Mass(1.0, inertia=(SIDE**2 / 6,) * 3)
    corners = [(i * SIDE / 2, j * SIDE / 2, 0) for i in (1, -1) for j in (1, -1)]
    return ContactVI(
        System(
            vioc.tx("x")[vioc.ty("y")[vioc.tz("z")[vioc.rz("a", name="block", mass=block)]]],
            vioc.tx("fx")[vioc.ty("fy", name="finger", mass=Mass(10.0))],
            Gravity(0, 0, -G),
            *(Contact.point("block", at, friction=0.5, name=f"corner{i}") for i, at in enumerate(corners, 1)),
            Fingertip(name="tip"),
            JointForce("fx", "px"),
            JointForce("fy", "py"),
            name="planar push",
        ),
        PUSH,
        smoothing=smoothing,
    )


def push(f: ContactVI, way: str = "translate", steps: int = 25) -> dict[str, Any]:
    """optimization_dynamics' planar push, "translate" or "rotate"; of a state twice what it has of q_k."""
    x, y, a = GOALS[way]
    r = {"translate": 0.1, "rotate": 0.01}[way]
    names, weights = ("x", "y", "a", "fx", "fy"), ca.DM([1, 1, 1, 0.1, 0.1])
    q, v = (ca.vertcat(*(f.quantity(p + n) for n in names)) for p in ("", "v."))
    miss = q - ca.DM([x, y, a, x - SIDE / 2, y - SIDE / 2])
    state = 0.5 * ca.dot(weights, v**2) + ca.dot(weights, miss**2)
    start = {"x": 0.0, "y": 0.0, "z": 0.0, "a": 0.0, "fx": -SIDE / 2 - 1e-8, "fy": -0.01 * (way == "rotate")}
    rest = {f"p.{n}": 0.0 for n in (*names, "z")} | {"p.z": -0.5 * f.dt * G}
    return dict(
        cost=Cost(f, state + 0.5 * r * ca.sumsqr(f.symbols.u * f.dt), state, per_time=False),
        steps=steps,
        initial=start | rest,
        final={"x": x, "y": y, "a": a},
        bounds={"u.px": 5 / f.dt, "u.py": 5 / f.dt},
    )


def pushed(f: ContactVI, way: str, steps: int = 25) -> np.ndarray:
    """The source's guess: inputs."""
    u = np.zeros((steps, 2))
    u[:5, 0] = 1.0
    if way == "rotate":
        u[5:10, 0] = 0.5
    return u / f.dt


def alongside(f: ContactVI, way: str, side: float = 0.0, steps: int = 25) -> np.ndarray:
    """A guess of states (steps + 1, nx): the block on the line to its goal, the finger on its left side.

    `side` turns the finger about the block, rad.
    """
    q = {n: np.linspace(0, v, steps + 1) for n, v in zip("xya", GOALS[way], strict=True)}
    place = {"fx": q["x"] - np.cos(q["a"] + side) * SIDE / 2, "fy": q["y"] - np.sin(q["a"] + side) * SIDE / 2}
    X = np.zeros((steps + 1, f.nx))
    for name, values in (q | place).items():
        X[:, f.state_names.index(name)] = values
    return X


# -- a box on the ground, pushed at its centre --------------------------------------------------


def box(cone: str = "second-order", smoothing: float = 1e-8) -> MaximalVI:
    """Dojo's: edge 0.5 m, friction 0.5, here 1 kg; forces on its centre. In maximal coordinates."""
    size = (0.5, 0.5, 0.5)
    body = vioc.free("b", frame="box", mass=Mass.box(1.0, size))
    corners = Contact.box("box", size, friction=0.5, cone=cone, name="corner")
    forces = [JointForce(f"b-{axis}", f"f{axis}") for axis in "xyz"]
    return MaximalVI(System(body, Gravity(0, 0, -G), corners, *forces), 0.1, smoothing=smoothing)


def carry(f: MaximalVI, goal: tuple[float, float, float] = (1.0, 0.0, 0.25)) -> dict[str, Any]:
    """Dojo's box push: |x - goal|^2 + 0.01 |u|^2 over ten steps, and the place at the end, 5 cm up free."""
    there = ca.DM(f.initial_state({f"b-{axis}": v for axis, v in zip("xyz", goal, strict=True)}))
    miss = ca.sumsqr(f.symbols.x - there)
    height = (goal[2], goal[2] + 0.05) if goal[2] == 0.25 else goal[2]
    return dict(
        cost=Cost(f, miss + 0.01 * ca.sumsqr(f.symbols.u), miss, per_time=False),
        steps=10,
        initial=f.initial_state({"b-z": 0.25}),
        final={"x.box": goal[0], "y.box": goal[1], "z.box": height},
    )
