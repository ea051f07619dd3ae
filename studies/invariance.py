"""Optimizers in other units: the same verdicts and the same optima in eight systems of units.

More than a hundred tasks: six mechanisms, every method with what it takes (limits of inputs and along the
path, ends, free starts, times and parameters), each in eight other systems of units and with its cost times
six numbers.
A status that differs from that in SI is a difference, and so is an optimum that differs by more than `SAME`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import vioc
from studies.harness import Claim, Report, Study, at_most, near
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
from vioc.progress import Progress, paused

SAME = 1e-8  # relative difference of optima
TIGHT = 1e-11  # tolerance of DMOC, whose barrier leaves more of a cost by default
N, STEP = 20, 0.05
COSTS = 1e-9, 1e-6, 1e-3, 1e3, 1e6, 1e9
QUICK = 25  # of the tasks every so-manieth is taken in quick form, in two systems of units and with two costs


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
    Units("kg, m, min", s=1 / 60),
    Units("lb, ft, s", kg=1 / 0.45359237, m=1 / 0.3048),
    Units("g, mm, ms", 1e3, 1e3, 1e3),
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
        (
            {"a": of.J / of.s},
            R,
            {"a": 20 * of.J, "b": 20 * of.J, "v.a": of.J * of.s**2, "v.b": of.J * of.s**2},
        ),
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
        {"u": 0.12 * of.J},
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
        {"x": 0.0, "y": 0.0, "z": -0.8 * of.m, "v.x": (0.05 * of.speed, None), "v.y": 0.0},
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


class Difference(NamedTuple):
    """A task posed otherwise: what differs, its status, and by how much the optimum does, relative."""

    task: Task
    posed: str
    status: bool
    optimum: float

    @property
    def counts(self) -> bool:
        return self.status or not self.optimum <= SAME

    def __str__(self) -> str:
        return (
            f"{self.task} in {self.posed}: optimum off by {self.optimum:.1e}" + ", other status" * self.status
        )


def differences(task: Task, quick: bool = False) -> tuple[str, list[Difference]]:
    """The status of a task in SI, and how it differs as it is posed otherwise."""
    status, cost = solved(task, SI)
    every = [(of.name, of, 1.0) for of in UNITS] + [(f"costs times {price:g}", SI, price) for price in COSTS]
    found = []
    for name, of, price in (every[6], every[7], every[8], every[13]) if quick else every:
        other, value = solved(task, of, price)
        off = abs(value / cost - 1) if status == other == "converged" else 0.0
        found.append(Difference(task, name, status != other, off))
    return status, found


STUDY = Study(
    __file__,
    "the same verdicts and optima in other units of mass, length, time and cost",
    tasks=Claim("tasks"),
    converged=Claim("tasks that converge in SI"),
    posed=Claim("tasks posed otherwise"),
    different=Claim(f"of these: another status, or an optimum more than {SAME:g} off", near(0, 0)),
    **{
        method: Claim(f"largest relative difference of optima, {method}", at_most(SAME)) for method in METHODS
    },
)


@STUDY.body
def run(report: Report) -> None:
    chosen = tasks()[:: QUICK if report.quick else 1]
    ended, found = list[str](), list[Difference]()
    with Progress("tasks", len(chosen)) as progress:
        for task in chosen:
            status, each = differences(task, report.quick)
            ended.append(status)
            found += each
            progress.advance()
            with paused():
                for d in filter(lambda d: d.counts, each):
                    print(d)
    worst = {m: max((d.optimum for d in found if d.task.method == m), default=0.0) for m in METHODS}
    report.measure(
        tasks=len(chosen),
        converged=ended.count("converged"),
        posed=len(found),
        different=sum(d.counts for d in found),
        **worst,
    )
    draw(report, found)


def draw(report: Report, found: list[Difference]) -> None:
    """The largest difference of optima by method, beside how tasks are posed."""
    import matplotlib.pyplot as plt

    posed = list(dict.fromkeys(d.posed for d in found))
    values = [
        [max((d.optimum for d in found if (d.task.method, d.posed) == (m, p)), default=0.0) for p in posed]
        for m in METHODS
    ]
    figure, ax = plt.subplots(figsize=(9, 3.2), layout="constrained")
    image = ax.imshow(np.log10(np.maximum(values, 1e-17)), vmin=-16, vmax=-8, aspect="auto")
    ax.set_xticks(range(len(posed)), posed, rotation=40, ha="right")
    ax.set_yticks(range(len(METHODS)), tuple(METHODS))
    figure.colorbar(image, ax=ax, label="log10 of the largest relative difference of optima")
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
