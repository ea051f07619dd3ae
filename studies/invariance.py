"""Optimizers in other units: the same verdicts and the same optima, in whatever units a problem is posed.

A hundred tasks: six mechanisms, every method with what it takes (limits of inputs and along the path, ends,
free starts, times and parameters), each in eight other systems of units and with its cost times six numbers.
A status that differs from that in SI is a difference, and so is an optimum that differs by more than `SAME`.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

import vioc
from studies.harness import Claim, Report, Study, near
from vioc import (
    DistanceConstraint,
    Gravity,
    JointDamping,
    JointForce,
    Mass,
    P,
    PointConstraint,
    System,
    TorsionalSpring,
    ry,
    tx,
    tz,
)
from vioc.control import optimize, quadratic

SAME = 1e-8  # relative difference of optima
SMALLEST = 1e-9  # of the cost of the start held: optima below are 0
TIGHT = 1e-11  # tolerance of DMOC, whose barrier otherwise leaves more than SAME of the cost
N, STEP = 20, 0.05
TWO_UNITS, TWO_COSTS = 2, 2  # in quick form
COSTS = 1e-9, 1e-6, 1e-3, 1e3, 1e6, 1e9


class Units(NamedTuple):
    """How many of a unit a kg, a m and a s are."""

    name: str
    kg: float = 1.0
    m: float = 1.0
    s: float = 1.0

    @property
    def speed(self) -> float:
        return self.m / self.s

    @property
    def N(self) -> float:
        return self.kg * self.m / self.s**2

    @property
    def J(self) -> float:
        return self.N * self.m


SI = Units("kg, m, s")
UNITS = (
    Units("g, m, s", kg=1e3),
    Units("t, m, s", kg=1e-3),
    Units("kg, mm, s", m=1e3),
    Units("kg, m, ms", s=1e3),
    Units("kg, m, 10 s", s=0.1),
    Units("g, mm, ms", 1e3, 1e3, 1e3),
    Units("t, mm, s", 1e-3, 1e3),
    Units("g, dm, 10 s", 1e3, 10.0, 0.1),
)


class Posed(NamedTuple):
    """A mechanism in some units.

    Attributes
    ----------
    map : OneStepMap
    start, rest : dict
        Configurations and velocities of the start, and where it is to come.
    weights : tuple of dict
        Q, R, Qf of `quadratic`; terminal ones about `rest`.
    force : dict
        Bounds of inputs that are felt.
    path : dict
        Bounds of what else is felt along the way.
    open : dict
        Of the start, what is free.
    parameters : dict
        Limits of what may be chosen of the mechanism.
    """

    map: Any
    start: tuple[dict[str, float], dict[str, float]]
    rest: dict[str, float]
    weights: tuple[dict[str, float], dict[str, float], dict[str, float]]
    force: dict[str, Any]
    path: dict[str, Any]
    open: dict[str, Any]
    parameters: dict[str, Any]


def midpoint(of: Units, *parts: Any) -> vioc.MidpointVI:
    return vioc.MidpointVI(System(*parts), STEP * of.s, backend="virtual")


def oscillator(of: Units) -> Posed:
    """A mass on a spring."""
    k = P("k", 2.0 * of.N / of.m)
    f = midpoint(of, tx("x", mass=of.kg), TorsionalSpring("x", k, 0.0), JointForce("x", "u"))
    Q, R = {"x": of.J / of.m**2 / of.s}, {"u": 0.01 * of.J / of.N**2 / of.s}
    return Posed(
        f,
        ({"x": of.m}, {"x": 0.5 * of.speed}),
        {"x": 0.0, "v.x": 0.0},
        (Q, R, {"x": 50 * of.J / of.m**2, "v.x": 5 * of.J / of.speed**2}),
        {"u.u": 3 * of.N},
        {"v.x": (-1.2 * of.speed, None)},
        {"x": of.m, "v.x": (0.1 * of.speed, None)},
        {"k": (1.0 * of.N / of.m, 8.0 * of.N / of.m)},
    )


def cart_pole(of: Units) -> Posed:
    """A cart with a hanging pole."""
    pole = ry("a")[tz(-0.5 * of.m, mass=P("load", 0.2 * of.kg))]
    f = midpoint(of, tx("x", mass=of.kg)[pole], Gravity(0, 0, -9.81 * of.m / of.s**2), JointForce("x", "u"))
    R = {"u": 0.1 * of.J / of.N**2 / of.s}
    return Posed(
        f,
        ({"x": 0.3 * of.m, "a": 0.4}, {}),
        {"x": 0.0, "a": 0.0},
        ({}, R, {"x": 20 * of.J / of.m**2, "a": 20 * of.J}),
        {"u.u": 0.6 * of.N},
        {"v.x": 0.4 * of.speed},
        {"x": 0.3 * of.m, "a": 0.4, "v.a": (0.1 / of.s, None), "v.x": 0.0},
        {"load": (0.05 * of.kg, None)},
    )


def arm(of: Units) -> Posed:
    """Two links with torques, under gravity."""
    rod = Mass(of.kg, (0.02 * of.kg * of.m**2,) * 3, (0, 0, -0.25 * of.m))
    fore = Mass(P("fore", 0.5 * of.kg), (0.01 * of.kg * of.m**2,) * 3, (0, 0, -0.2 * of.m))
    links = ry("a", mass=rod)[tz(-0.5 * of.m)[ry("b", mass=fore)[tz(-0.4 * of.m, name="tip")]]]
    drives = JointForce("a", "ua"), JointForce("b", "ub")
    f = midpoint(of, links, Gravity(0, 0, -9.81 * of.m / of.s**2), *drives)
    R = dict.fromkeys(("ua", "ub"), 0.01 / of.J / of.s)
    return Posed(
        f,
        ({"a": 0.3, "b": 0.5}, {}),
        {"a": -0.5, "b": 0.2, "v.a": 0.0, "v.b": 0.0},
        ({"a": of.J / of.s}, R, {"a": 20 * of.J, "b": 20 * of.J, "v.a": of.J * of.s**2, "v.b": of.J * of.s**2}),
        {"ua": 3.0 * of.J, "ub": 0.8 * of.J},
        {"v.b": 1.0 / of.s, "tip:x": (None, 0.1 * of.m)},
        {"a": 0.3, "b": (0.4, 0.6), "v.a": 0.0, "v.b": 0.0},
        {"fore": (0.2 * of.kg, 2.0 * of.kg)},
    )


def wheel(of: Units) -> Posed:
    """A pendulum with a wheel that its motor turns: angles alone."""
    spun = Mass(0.3 * of.kg, (2e-3 * of.kg * of.m**2,) * 3)
    body = Mass(P("body", 0.5 * of.kg), (5e-3 * of.kg * of.m**2,) * 3, (0, 0, -0.2 * of.m))
    f = midpoint(
        of,
        ry("a", mass=body)[tz(-0.3 * of.m)[ry("w", mass=spun)]],
        Gravity(0, 0, -9.81 * of.m / of.s**2),
        JointForce("w", "u"),
        JointDamping("a", 0.02 * of.J * of.s),
    )
    return Posed(
        f,
        ({"a": 0.3}, {}),
        {"a": 0.0, "v.a": 0.0},
        ({"a": 5 * of.J / of.s}, {"u": 0.5 / of.J / of.s}, {"a": 10 * of.J, "v.a": 0.2 * of.J * of.s**2}),
        {"u": 0.15 * of.J},
        {"v.w": 25.0 / of.s},
        {"a": (0.2, 0.4), "w": 0.0, "v.a": 0.0, "v.w": 0.0},
        {"body": (0.2 * of.kg, 1.0 * of.kg)},
    )


def four_bar(of: Units) -> Posed:
    """A loop of three links: constraints, of which a crank is driven."""
    rod = [Mass(m * of.kg, (m * 0.01 * of.kg * of.m**2,) * 3, (0, 0, L / 2 * of.m)) for m, L in BARS]
    far = [L * of.m for _, L in BARS]
    crank = ry("a", mass=rod[0])[tz(far[0])[ry("b", mass=rod[1])[tz(far[1], name="end")]]]
    rocker = tx(BASE * of.m)[ry("c", mass=rod[2])[tz(far[2], name="tip")]]
    c = P("c", 2.0 * of.J)
    f = midpoint(
        of,
        crank,
        rocker,
        *(PointConstraint("end", "tip", d) for d in ((1, 0, 0), (0, 0, 1))),
        TorsionalSpring("c", c, 0.0),
        JointForce("a", "u"),
    )
    found = vioc.consistent_configuration(f.system, {"a": 0.2, "b": 1.0, "c": 0.05}, fixed="a")
    q = dict(zip("abc", map(float, found.q), strict=True))
    return Posed(
        f,
        (q, {}),
        {"a": 0.7, "v.a": 0.0},
        ({}, {"u": 0.1 / of.J / of.s}, {"a": 20 * of.J, "v.a": of.J * of.s**2}),
        {"u": 1.5 * of.J},
        {"v.a": 0.7 / of.s},
        {"a": q["a"], "b": q["b"], "c": q["c"], "v.a": (0.05 / of.s, None)},
        {"c": (0.5 * of.J, 5.0 * of.J)},
    )


def crane(of: Units) -> Posed:
    """A trolley and a load on a rod, which is a constraint."""
    rod = DistanceConstraint("trolley", "load", 0.8 * of.m)
    f = midpoint(
        of,
        tx("x", name="trolley", mass=of.kg),
        tx("y")[tz("z", name="load", mass=P("load", 0.5 * of.kg))],
        Gravity(0, 0, -9.81 * of.m / of.s**2),
        rod,
        JointForce("x", "u"),
    )
    R = {"u": 0.1 * of.J / of.N**2 / of.s}
    return Posed(
        f,
        ({"x": 0.0, "y": 0.0, "z": -0.8 * of.m}, {}),
        {"x": 0.5 * of.m, "y": 0.5 * of.m, "v.x": 0.0, "v.y": 0.0},
        ({}, R, {"x": 50 * of.J / of.m**2, "y": 50 * of.J / of.m**2, "v.y": 10 * of.J / of.speed**2}),
        {"u.u": 2.5 * of.N},
        {"v.x": 0.7 * of.speed},
        {"x": 0.0, "y": 0.0, "z": -0.8 * of.m, "v.x": (0.05 * of.speed, None)},
        {"load": (0.1 * of.kg, 2.0 * of.kg)},
    )


BARS, BASE = ((1.0, 0.3), (1.5, 0.6), (1.2, 0.5)), 0.6  # kg, m
MECHANISMS = oscillator, cart_pole, arm, wheel, four_bar, crane


class Task(NamedTuple):
    """A mechanism, a method, and what limits or leaves open its problem, a key of `KINDS`."""

    mechanism: Callable[[Units], Posed]
    method: str
    kind: str

    def __str__(self) -> str:
        return f"{self.mechanism.__name__}, {self.method}, {self.kind}"


SPAN = N * STEP  # s
KINDS: dict[str, Callable[[Posed, Units], dict[str, Any]]] = {
    "without limits": lambda p, of: {},
    "inputs": lambda p, of: {"bounds": p.force},
    "path": lambda p, of: {"bounds": p.path},
    "end": lambda p, of: {"final": p.rest},
    "time": lambda p, of: {"final": p.rest, "duration": (0.5 * SPAN * of.s, 2.0 * SPAN * of.s)},
    "start": lambda p, of: {"initial": p.open},
    "parameters": lambda p, of: {"parameters": p.parameters},
}
METHODS = {
    "auto": ("without limits", "inputs", "time", "parameters"),
    "projection": ("without limits",),
    "shooting": tuple(KINDS),
    "dmoc": tuple(KINDS),
}
PER_TIME = 0.5  # W, what time costs where it is free


def tasks() -> list[Task]:
    """All of them."""
    each = [(method, kind) for method, kinds in METHODS.items() for kind in kinds]
    return [Task(m, *how) for how in each for m in MECHANISMS]


def solved(task: Task, of: Units, price: float = 1.0) -> tuple[str, float]:
    """The status of a task posed in some units with its cost times a number, and its optimum in J."""
    p = task.mechanism(of)
    f, (Q, R, Qf) = p.map, p.weights
    goal = {n: v for n, v in p.rest.items() if n in Q or n in Qf}
    cost = quadratic(f, Q=Q, R=R, Qf=Qf, goal=goal)
    rate = PER_TIME * of.J / of.s if task.kind == "time" else 0.0
    arguments = *f.symbols, np.zeros((0, 1))
    priced = vioc.control.Cost(
        f, price * (cost.running_at(*arguments) + rate), price * cost.terminal_at(*arguments)
    )
    how = {"tolerance": TIGHT} if task.method == "dmoc" else {}
    best = optimize(
        f,
        priced,
        x0=f.initial_state(*p.start),
        steps=N,
        method=task.method,
        raise_on_failure=False,
        **KINDS[task.kind](p, of),
        **how,
    )
    return str(best.status), best.cost / of.J / price
