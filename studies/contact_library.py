"""Problems with contact of others, from their definitions: mechanisms of vioc, plain formulas beside.

Sources: CALIPSO.jl (ball in cup, bunny hop, drift; the quadruped's gait is in `contact_gait`), nosbench and
optimization_dynamics (`contact_nosbench`). A task's formulas know nothing of its map:
`contact_direct` makes a program of them by hand.

What differs from the sources: impulses act by J(q_k) and gaps are those of q_k+1 (the map's rule), velocities
are momenta over masses, a start is a configuration at rest where the source has two of them, forces are
in N where the source has impulses. Each task says what else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import casadi as ca
import numpy as np

import vioc
from vioc import Contact, ContactVI, Gravity, JointForce, Mass, MassGravity, System, UserForce
from vioc.components import FloorFriction
from vioc.control import Cost, Result, dmoc
from vioc.dynamics.description.component import Inequality, Meeting

G = 9.81


@dataclass(frozen=True)
class Rub:
    """Friction: slips (rows, n) of q; of a gap by its index with a coefficient, or with a bound in N."""

    slopes: Callable[[Any], Any]
    limit: float
    gap: int | None = None


@dataclass(frozen=True)
class Task:
    """A problem as a map, and as formulas of (q, v, u).

    Attributes
    ----------
    map : ContactVI
    steps : int
    kinetic : (q, v) -> L, J
    push : (q, v, u) -> generalized forces that have no potential
    gaps, joints : q -> columns, >= 0 and = 0
    rubs : of friction
    stage, last : (q, v, u, impulses of gaps, reference), (q, v, reference) -> cost of a sample, of the end
    held : by quantity of the map, of q or v or u: (formula of (q, v, u), lower, upper), numbers or by sample
    start : configuration (n,), velocity (n,) or None where it is free
    guess : configurations (steps + 1, n), inputs (steps, nu) or None
    references : (steps + 1, r)
    """

    map: ContactVI
    steps: int
    kinetic: Callable
    push: Callable
    gaps: Callable
    stage: Callable
    last: Callable
    held: Mapping[str, tuple[Callable, Any, Any]]
    start: tuple[np.ndarray, np.ndarray | None]
    guess: tuple[np.ndarray, np.ndarray | None]
    rubs: tuple[Rub, ...] = ()
    joints: Callable = lambda q: ca.SX(0, 1)
    references: np.ndarray | None = None
    per_time: bool = False
    smoothing: float | None = None  # where `dmoc` begins
    more: dict[str, Any] = field(default_factory=dict)

    def arguments(self) -> dict[str, Any]:
        """Of `dmoc.solve`."""
        f = self.map
        names = f.state_names[: f.nq]
        q, v, u = f.symbols.x[: f.nq], ca.vertcat(*(f.quantity(f"v.{n}") for n in names)), f.symbols.u
        given = [t.name for t in f.touches.all if t.cone.gap]
        impulses = ca.vertcat(*(f.symbols.multipliers[f.multiplier_names.index(n)] for n in given))
        ref = ca.SX.sym("ref", 0 if self.references is None else self.references.shape[1])
        known = [] if self.references is None else [(ref, self.references)]
        stage, last = self.stage(q, v, u, impulses, ref), self.last(q, v, ref)
        cost = Cost(f, stage, last, references=known, per_time=self.per_time)
        first = dict(zip(names, self.start[0], strict=True))
        if self.start[1] is not None:
            first |= {f"p.{n}": p for n, p in zip(names, self.momenta(self.start[1]), strict=True)}
        bounds, constraints, own = (
            {},
            [],
            {*f.quantities.names(), *f.state_names, *(f"u.{n}" for n in f.input_names)},
        )
        for n, (formula, low, high) in self.held.items():
            if n in own:
                bounds[n] = (low, high)
            else:
                constraints.append(dmoc.PathConstraint(n, formula(q, v, u), lower=low, upper=high))
        rest = {"constraints": constraints, **self.more}
        return dict(cost=cost, steps=self.steps, initial=first, bounds=bounds, **rest)

    def momenta(self, v: np.ndarray) -> np.ndarray:
        n = len(v)
        q, s = ca.SX.sym("q", n), ca.SX.sym("v", n)
        p = ca.Function("p", [q, s], [ca.gradient(self.kinetic(q, s), s)])
        return np.array(p(self.start[0], v))[:, 0]

    def solve(self, **how: Any) -> Result:
        X = np.zeros((self.steps + 1, self.map.nx))
        X[:, : self.map.nq] = self.guess[0]
        how = {"smoothing": self.smoothing, "raise_on_failure": False, **how}
        return dmoc.solve(self.map, guess=(X, self.guess[1]), **self.arguments(), **how)


def unbalanced(task: Task, run: Any) -> float:
    """Energy of a run's steps less the work of all impulses, relative: of constant masses, from the formulas.

    M (V_k - V_k-1) is the impulse at sample k of contacts, friction, joints, potentials and inputs; by
    (V_k + V_k-1)/2 it is the change of V'MV/2.
    """
    f, h, n = run.map, run.map.dt, len(task.start[0])
    q, v, u = ca.SX.sym("q", n), ca.SX.sym("v", n), ca.SX.sym("u", f.nu)
    M = np.array(ca.DM(ca.hessian(task.kinetic(q, v), v)[0]))
    half = ca.Function("F", [q, v, u], [ca.gradient(task.kinetic(q, v), q) + task.push(q, v, u)])
    Q = run.x[:, :n]
    V, middle = np.diff(Q, axis=0) / h, (Q[1:] + Q[:-1]) / 2
    smooth = np.array([0.5 * h * np.array(half(*row))[:, 0] for row in zip(middle, V, run.u, strict=True)])
    Dh = ca.Function("Dh", [q], [ca.jacobian(ca.vertcat(ca.SX(0, 1), task.joints(q)), q)])
    work = np.zeros(len(V) - 1)
    for k in range(1, len(V)):
        given, at = run.multipliers[k], f.nm
        push = smooth[k - 1] + smooth[k] - np.array(Dh(Q[k]).T @ given[:at]).ravel()
        for touch, J in zip(f.touches.all, f.touches.rows(f.touches.held(Q[k], f.theta, [])), strict=True):
            push += np.array(J.T @ given[at : at + J.shape[0]]).ravel()
            at += len(touch.multipliers)
        work[k - 1] = push @ (V[k] + V[k - 1]) / 2
    energy = 0.5 * np.einsum("ki,ij,kj->k", V, M, V)
    return float(np.abs(np.diff(energy) - work).max() / energy.max())


def at(steps: int, inputs: bool = False, **values: float) -> tuple[np.ndarray, np.ndarray]:
    """Bounds by sample from values at some: k3=0.5, or k3=(0.5, 0.6); free else."""
    low, high = np.full(steps + 1 - inputs, -np.inf), np.full(steps + 1 - inputs, np.inf)
    for name, value in values.items():
        low[int(name[1:])], high[int(name[1:])] = np.broadcast_to(value, 2)
    return low, high


def line(a: Any, b: Any, steps: int) -> np.ndarray:
    return np.linspace(a, b, steps + 1)


# -- CALIPSO ----------------------------------------------------------------------------------------


@dataclass(frozen=True, repr=False)
class Cord(Inequality):
    """A string: 1 - |d|^2 >= 0."""

    def meetings(self, k: Any) -> dict[str, Meeting]:
        d = [k.q(b) - k.q(a) for a, b in (("cx", "bx"), ("cz", "bz"))]
        return {"": Meeting(1 - sum(c * c for c in d))}


def ball_in_cup() -> Task:
    """A ball on a string of 1 m is thrown into a cup; it passes two places on its way."""
    h, steps, g = 0.075, 20, 10.0
    cup, ball = vioc.tz("cz", name="cup", mass=Mass(1.0)), vioc.tz("bz", name="ball", mass=Mass(0.01))
    f = ContactVI(
        System(
            vioc.tx("cx")[cup],
            vioc.tx("bx")[ball],
            MassGravity("ball", 0, 0, -g),
            Cord(name="string"),
            JointForce("cx", "fx"),
            JointForce("cz", "fz"),
            name="ball in cup",
        ),
        h,
    )
    masses = ca.DM([1.0, 1.0, 0.01, 0.01])

    def stage(q: Any, v: Any, u: Any, impulses: Any, ref: Any) -> Any:
        return 0.05 * (ca.sumsqr(v) + ca.sumsqr(u) + ca.sumsqr(impulses)) + 0.5 * ca.sumsqr(q[:2])

    def last(q: Any, v: Any, ref: Any) -> Any:
        return 0.05 * ca.sumsqr(v) + 0.5 * ca.sumsqr(q[:2]) + 0.5 * ca.sumsqr(q[:2] - q[2:])

    s = np.sqrt(0.5)
    held = {
        "cx": (lambda q, v, u: q[0], *at(steps, k19=0.0, k20=0.0)),
        "cz": (lambda q, v, u: q[1], *at(steps, k19=0.0, k20=0.0)),
        "bx": (lambda q, v, u: q[2], *at(steps, k10=(1 - 1e-3, 1 + 1e-3), k15=(s - 1e-3, s + 1e-3), k20=0.0)),
        "bz": (lambda q, v, u: q[3], *at(steps, k10=0.0, k15=(s - 1e-3, s + 1e-3), k20=0.125)),
    }
    turn = np.interp(np.arange(21), [0, 10, 15, 20], [-np.pi / 2, 0, np.pi / 4, np.pi / 2])
    far = np.interp(np.arange(21), [0, 1, 15, 20], [0.99, 1, 1, 0.125])
    way, rise = far * np.cos(turn), far * np.sin(turn)
    return Task(
        f,
        steps,
        lambda q, v: 0.5 * ca.dot(masses, v**2) - 0.01 * g * q[3],
        lambda q, v, u: ca.vertcat(u, 0, 0),
        lambda q: 1 - ca.sumsqr(q[:2] - q[2:]),
        stage,
        last,
        held,
        (np.array([0, 0, 0, -0.99]), np.zeros(4)),
        (np.column_stack([0 * way, 0 * way, way, rise]), None),
        smoothing=0.1,  # wider, the string pulls through the cup within a step
    )


def legs(k: Any) -> dict[str, Any]:
    """Forces between the rider and each wheel, along their lines."""
    q = [k.q(n) for n in ("ax", "az", "bx", "bz", "rx", "rz")]
    return dict(zip(("ax", "az", "bx", "bz", "rx", "rz"), _legs(q, k.u("back"), k.u("front")), strict=True))


def _legs(q: Any, back: Any, front: Any) -> list[Any]:
    own, rider = [], [0.0, 0.0]
    for i, u in ((0, back), (2, front)):
        d = [q[4] - q[i], q[5] - q[i + 1]]
        size = ca.sqrt(d[0] ** 2 + d[1] ** 2)
        own += [u * d[0] / size, u * d[1] / size]
        rider = [rider[0] - u * d[0] / size, rider[1] - u * d[1] / size]
    return [*own, *rider]


def bunny_hop() -> Task:
    """A bicycle jumps: wheels at 1.1 and 1.15 m in one sample. Without the source's second differences."""
    h, steps, g, names = 0.2, 10, 9.8, ("ax", "az", "bx", "bz", "rx", "rz")
    points = [
        vioc.tx(f"{p}x")[vioc.tz(f"{p}z", name=p, mass=Mass(m))] for p, m in (("a", 1), ("b", 1), ("r", 10))
    ]
    f = ContactVI(
        System(
            *points,
            Gravity(0, 0, -g),
            vioc.DistanceConstraint("a", "b", 2.0, name="frame"),
            Contact.point("a", name="rear"),
            Contact.point("b", name="front"),
            Contact.point("r", ground=vioc.shapes.HalfSpace(point=(0, 0, 0.3)), name="rider"),
            UserForce(legs, inputs=("back", "front")),
            name="bicycle",
        ),
        h,
        smoothing=3e-9,  # 12 kg: gap x impulse is smoothing x mass x step
    )
    masses = ca.DM([1, 1, 1, 1, 10, 10])
    first = np.array([-1, 0, 1, 0, 0, np.sqrt(1.25)])
    way = line(first, first + 2.2 * steps * np.array([1, 0, 1, 0, 1, 0]), steps)
    weights = np.array([[0, 0.5, 0, 0.5, 0, 0.05 if k < 6 else 5e3] for k in range(steps + 1)])
    hold = -0.95 * np.sqrt(2) * 0.5 * 10 * g

    def miss(q: Any, v: Any, ref: Any) -> Any:
        middle = 10 * (q[4] - (q[0] + q[2]) / 2) ** 2
        return ca.dot(ref[6:], (q - ref[:6]) ** 2) + middle + 0.005 * h * h * ca.sumsqr(v)

    heights = {
        "az": (lambda q, v, u: q[1], *at(steps, k4=1.1)),
        "bz": (lambda q, v, u: q[3], *at(steps, k4=1.15)),
    }
    fast = np.array([11.0, 0, 11, 0, 11, 0])
    assert f.state_names[:6] == names
    return Task(
        f,
        steps,
        lambda q, v: 0.5 * ca.dot(masses, v**2) - g * (q[1] + q[3] + 10 * q[5]),
        lambda q, v, u: ca.vertcat(*_legs(ca.vertsplit(q), u[0], u[1])),
        lambda q: ca.vertcat(q[1], q[3], q[5] - 0.3),
        lambda q, v, u, impulses, ref: miss(q, v, ref) + 0.005 * ca.sumsqr(u - hold),
        lambda q, v, ref: miss(q, v, ref),
        heights,
        (first, fast),
        (way, np.full((steps, 2), hold)),
        joints=lambda q: ca.sumsqr(q[:2] - q[2:4]) - 4.0,
        references=np.hstack([way, weights]),
    )


def thrust(k: Any) -> dict[str, Any]:
    a, u = k.q("a"), k.u("forward")
    return {"x": u * ca.cos(a), "y": u * ca.sin(a)}


def drift() -> Task:
    """A car parks between two posts sideways: friction 0.5 in front, 0.25 behind, loads given."""
    h, steps = 0.1, 14
    rubs = [
        FloorFriction("car", mu * G, (s, 0, 0), name=n)
        for mu, s, n in ((0.5, 0.1, "front"), (0.25, -0.1, "rear"))
    ]
    body = vioc.tx("x")[vioc.ty("y")[vioc.rz("a", name="car", mass=Mass(1.0, inertia=(0.1,) * 3))]]
    push = UserForce(thrust, inputs=("forward",))
    f = ContactVI(System(body, rubs, push, JointForce("a", "turn"), name="car"), h)
    goal = ca.DM([3, 0, np.pi / 2])
    posts = {
        f"post {n}": (lambda q, v, u, y=y: (q[0] - 3) ** 2 + (q[1] - y) ** 2, 0.01, np.inf)
        for n, y in (("left", 0.65), ("right", -0.65))
    }

    def slips(s: float) -> Callable[[Any], Any]:
        return lambda q: ca.horzcat(ca.SX.eye(2), s * ca.vertcat(-ca.sin(q[2]), ca.cos(q[2])))

    first, end = np.array([0, 1.5, -np.pi / 2]), np.array([3, 0, np.pi / 2])
    return Task(
        f,
        steps,
        lambda q, v: 0.5 * (v[0] ** 2 + v[1] ** 2 + 0.1 * v[2] ** 2),
        lambda q, v, u: ca.vertcat(u[0] * ca.cos(q[2]), u[0] * ca.sin(q[2]), u[1]),
        lambda q: ca.SX(0, 1),
        lambda q, v, u, impulses, ref: 5e-4 * (ca.sumsqr(v) + ca.sumsqr(q - goal) + ca.sumsqr(h * u)),
        lambda q, v, ref: 2.5 * ca.sumsqr(v) + 5e-4 * ca.sumsqr(q - goal),
        {
            "u.forward": (lambda q, v, u: u[0], 0.0, 25 / h),
            "u.turn": (lambda q, v, u: u[1], -0.5 / h, 0.5 / h),
            **{n: (lambda q, v, u, i=i: q[i], *at(steps, k14=end[i])) for i, n in enumerate("xya")},
            **posts,
        },
        (first, np.zeros(3)),
        (line(first, end, steps), None),
        rubs=(Rub(slips(0.1), 0.5 * G), Rub(slips(-0.1), 0.25 * G)),
    )
