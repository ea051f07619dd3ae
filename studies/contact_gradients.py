"""Derivatives of steps with contact, against complex steps in 80 bits, and of a ball that lands.

Maths and what is true at a switch: docs/maths/contact_gradients.md.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import casadi as ca
import matplotlib.pyplot as plt
import numpy as np

import vioc
from studies import quadruped_robot
from studies.harness import Claim, Report, Study, at_least, at_most, near
from studies.precise import STEP, Long, Precise, solved
from vioc import (
    Contact,
    ContactVI,
    Gravity,
    JointForce,
    JointLimits,
    Mass,
    MaximalVI,
    P,
    PairContact,
    System,
)
from vioc.compile import find_compiler
from vioc.dynamics.algebra.vectors import part
from vioc.dynamics.integrators.contact.contact_derivatives import equations
from vioc.dynamics.integrators.maximal.maximal_derivatives import MaximalDerivatives
from vioc.errors import ChartWarning, StepError
from vioc.maps.derivatives import Steps
from vioc.shapes import Sphere

DT, G = 0.01, 9.81
DOWN = Gravity(0, 0, -G)
SMOOTHINGS = (1e-3, 1e-4, 1e-5, 1e-8)  # m^2/s^2, of the landing ball
CLEAR = 30.0  # ratio of an impulse to where it equals its gap's speed times the mass: clearly open or closed
QUICK = 20, 100  # states
FULL = 150, 12_500

STUDY = Study(
    __file__,
    "derivatives of steps with contact against complex steps in 80 bits; a landing ball's by its height",
    states=Claim(
        "random states with contact, of both maps, 2 to 24 velocities", at_least(1000), full_only=True
    ),
    away=Claim("largest error of derivatives of states, relative, away from switches", at_most(1e-8)),
    all=Claim("the same, at switches too", at_most(1e-6)),
    median=Claim("its median"),
    impulses=Claim("of impulses, where none are redundant, relative", at_most(1e-6)),
    shared=Claim("of impulses of boxes, whose corners share them", full_only=True),
    near=Claim("share of those states that are at a switch"),
    drawn=Claim(
        "states drawn at random, gaps from 1e-9 m to 1 m, for what is not finite",
        at_least(100_000),
        full_only=True,
    ),
    unsolved=Claim("of these, steps without a solution (StepError), no derivatives"),
    nans=Claim("solved steps with derivatives that are not finite", at_most(0)),
    ball=Claim(
        "landing ball: slope of its height against the closed form of the smoothed step", at_most(1e-9)
    ),
    free=Claim("slope where it lands too late to feel the ground, smoothing 1e-8", near(1.0, 1e-6)),
    held=Claim("slope where it has landed", near(0.0, 1e-6)),
    width=Claim(
        "width of the switch at smoothing 1e-3 over that at 1e-8", near(316.0, 130.0), full_only=True
    ),
    us=Claim("derivatives along a tumbling box, compiled, a step", unit="us", full_only=True),
    us_again=Claim(
        "its steps solved again by numpy, as derivatives did before, a step", unit="us", full_only=True
    ),
)


# -- mechanisms, with parameters wherever a contact takes them -------------------------------------------


def box() -> System:
    edge = P("edge", 0.4)
    mass = Mass.box(P("mass", 1.3), (0.4, 0.5, 0.3))
    corners = Contact.box("box", (edge, 0.5, 0.3), friction=P("mu", 0.6), name="corner")
    body = vioc.free("b", frame="box", mass=mass)
    return System(body, DOWN, corners, name="box")


def balls() -> System:
    """Two spheres that meet above the ground, and each other, on a plane that parameters tilt."""
    bodies = [vioc.free(f"b{i}", frame=f"ball{i}", mass=Mass.sphere(1.0 + i, 0.2)) for i in (0, 1)]
    normal, radius = (P("tilt", 0.1), 0.0, 1.0), P("radius", 0.2)
    feet = [
        Contact(f"ball{i}", normal, P("level", 0.02), radius=radius, friction=0.4, cone=cone, name=f"foot{i}")
        for i, cone in enumerate(("second-order", "linear"))
    ]
    meet = PairContact("ball0", Sphere(radius), "ball1", Sphere(0.2), friction=P("rub", 0.3), name="meet")
    return System(bodies, DOWN, feet, meet, name="balls")


def chain(count: int = 4) -> System:
    below: tuple = ()
    for i in reversed(range(count)):
        link = vioc.tx(0.25 if i else 0.0, name=f"ball{i}", mass=Mass.sphere(P("mass", 1.0), 0.2))
        link = link[vioc.tx(0.25)[below]] if below else link
        below = (vioc.spherical(f"q{i}") if i else vioc.free("b"))[link]
    feet = [Contact.sphere(f"ball{i}", 0.2, friction=P("mu", 0.5), name=f"foot{i}") for i in range(count)]
    return System(below, DOWN, feet, name="chain")


def leg() -> System:
    """Planar, with motors, a sphere for a foot and stops at its knee."""
    shank = vioc.tz(-0.4)[
        vioc.ry("knee", mass=Mass.rod(0.5, 0.4, com=(0, 0, -0.2)))[vioc.tz(-0.4, name="foot")]
    ]
    thigh = vioc.ry("hip", mass=Mass.rod(P("thigh", 0.5), 0.4, com=(0, 0, -0.2)))[shank]
    trunk = vioc.tx("x", name="cart", mass=Mass(0.1))[vioc.tz("z", name="trunk", mass=Mass(2.0))[thigh]]
    sole = Contact.sphere("foot", P("radius", 0.05), friction=P("mu", 0.8), name="sole")
    stop = JointLimits("knee", P("least", 0.1), 2.5, name="stop")
    return System(trunk, DOWN, sole, stop, JointForce("hip", "hip"), JointForce("knee", "knee"), name="leg")


# -- the reference -------------------------------------------------------------------------------------


class Reference:
    """A step's equations and what it ends in, on complex numbers of 80 bits.

    Unknowns are found one vector after the other, each by its residual; slopes are in double precision, so
    what is compared with has the derivatives of vioc nowhere.
    """

    def __init__(self, f: Any):
        self.f = f
        x, u, theta = f.symbols.x, f.symbols.u, f.symbols.parameters
        if isinstance(f, MaximalVI):
            args, e, R, S, X, _ = MaximalDerivatives(f).equations
            _, goal, _, w, m, t, dt, _, _ = args
            self.unknowns, residuals, ends = [w, m], [R, S], X
            adds = f.additive
            lam, mu = w[-len(adds) :], m[-len(adds) :]
            impulses = ca.vertcat(*(lam[i] + mu[i] if both else mu[i] for i, both in enumerate(adds)))
            own = [args[0], goal, args[2], t, dt, args[7], e]
        else:
            e, goal, t, dt = ca.SX.sym("e", f.ndx), ca.SX.sym("goal", f.nx), ca.SX.sym("t"), f.symbols.dt
            z = ca.SX.sym("z", f.nd + len(f.multiplier_names))
            R, X = equations(f, x + e, u, part(z, 0, f.nd), part(z, f.nd), t, dt, theta, f.barrier)
            self.unknowns, residuals, ends, impulses = [z], [R], X - goal, part(z, f.nd)
            own = [x, goal, u, t, dt, theta, e]
        known = list(own)
        self.parts = []
        for unknown, r in zip(self.unknowns, residuals, strict=True):
            known.append(unknown)
            at_zero = ca.substitute(ca.jacobian(r, unknown), e, ca.SX.zeros(e.numel()))
            self.parts.append((Precise(known, [r]), ca.Function("slopes", known, [ca.densify(at_zero)])))
        self.ends = Precise(known, [ends, impulses])

    def along(self, steps: Steps, guesses: list[np.ndarray], ds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Derivatives (N, ndx), (N, nm) of next states and multipliers along ds (N, ns)."""
        f, n = self.f, len(steps)
        cut = [f.ndx, f.ndx + f.nu]
        dx, du, dp = (1j * STEP * d.T for d in np.split(ds, cut, axis=1))
        theta = np.tile(f.theta[:, None], n).astype(Long)
        given = [a.T.astype(Long) for a in (steps.x0, steps.x1, steps.u, steps.t[:, None], steps.h[:, None])]
        given[2] = given[2] + du
        known = [*given, theta + dp, dx + np.zeros((f.ndx, n), Long)]
        for (residual, slopes), guess in zip(self.parts, guesses, strict=True):
            rows = [np.array(a.real, float) for a in known]
            J = np.stack([slopes(*(a[:, i] for a in rows), guess[i]).full() for i in range(n)])
            before = tuple(known)
            known.append(solved(lambda y, r=residual, b=before: r(*b, y)[0], J, guess.T))
        found = self.ends(*known)
        return tuple(np.array(a.imag / STEP, float).T for a in found)  # type: ignore[return-value]


class Errors(NamedTuple):
    states: np.ndarray
    impulses: np.ndarray
    away: np.ndarray


def compared(f: Any, steps: Steps, rng: np.random.Generator) -> Errors:
    lin = f.derivatives.linearize(steps)
    N, ns = len(steps), f.ndx + f.nu + lin.P.shape[2]
    ds = rng.standard_normal((N, ns))
    whole = np.concatenate(
        [np.concatenate([lin.A, lin.B, lin.P], 2), np.concatenate([lin.C, lin.D, lin.E], 2)], 1
    )
    ours = np.einsum("nij,nj->ni", whole, ds)
    unknowns = unknowns_of(f, steps)
    theirs = Reference(f).along(steps, unknowns, ds)
    off = [np.abs(a - b) for a, b in zip(np.split(ours, [f.ndx], axis=1), theirs, strict=True)]
    sizes = [np.abs(b).max(axis=1) for b in theirs]
    errors = [o.max(axis=1) / (1 + s) for o, s in zip(off, sizes, strict=True)]
    return Errors(errors[0], errors[1], away(f, steps))


def unknowns_of(f: Any, steps: Steps) -> list[np.ndarray]:
    """Solved by the interior point: what `linearize` does without."""
    found = [
        f.interior.solve(x, u, float(t), float(h), f.theta)
        for x, u, t, h in zip(steps.x0, steps.u, steps.t, steps.h, strict=True)
    ]
    return [np.stack([s.ends[i].unknowns for s in found]) for i in range(len(found[0].ends))]


def away(f: Any, steps: Steps) -> np.ndarray:
    """Whether each contact of a step is clearly open or closed, by its impulse over the mass, and what is
    closed clearly sticks or slips, by its slip: both are speeds, over the root of the smoothing.
    """
    touches = f.graph.touches if isinstance(f, MaximalVI) else f.touches.all
    names, unit = list(f.multiplier_names), np.sqrt(f.smoothing)
    found = np.ones(len(steps), bool)
    for touch in touches:
        gamma = np.abs(steps.multipliers[:, names.index(touch.name)]) / (f.mass * unit)
        clear = gamma > CLEAR
        if touch.cone.friction:
            slip = steps.multipliers[:, names.index(f"{touch.name}.slip")] / unit
            clear &= (slip > CLEAR) | (slip < 1 / CLEAR)
        found &= clear | (gamma < 1 / CLEAR)
    return found


# -- states -----------------------------------------------------------------------------------------------

START: dict[str, tuple[dict, dict]] = {
    "box": ({"b-z": 0.7}, {"b-x": 1.0}),
    "balls": ({"b0-z": 0.5, "b1-z": 1.0, "b1-x": 0.1}, {"b0-x": 1.0}),
    "chain": ({"b-z": 1.1}, {"b-x": 1.0}),
    "leg": ({"z": 1.0, "hip": -0.4, "knee": 0.8}, {}),
}


def tumbling(f: Any, rng: np.random.Generator, count: int) -> Steps:
    """Steps with contact, or near it, of runs from random starts."""
    q, v = START[f.system.name]
    found: list[Steps] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ChartWarning)
        while sum(map(len, found)) < count:
            turned = {n: rng.uniform(-0.4, 0.4) for n in f.system.variables if n.endswith(("-rx", "-ry"))}
            spun = {n: 3.0 * rng.standard_normal() for n in f.system.variables if n.endswith(("-rx", "-rz"))}
            U = rng.standard_normal((90, f.nu))
            start = f.initial_state({**q, **turned}, {**v, **spun})
            try:
                run = f.rollout(start, U, steps=90)
            except StepError as error:
                run = error.trajectory
            steps = Steps.along(run)
            low = f.gaps(run.x[1:]).min(axis=1)
            rows = rng.permutation(np.flatnonzero(low < 1e-3))[: count // 5 + 1]
            found += [steps.piece(slice(i, i + 1)) for i in rows]
    return Steps.joined(found).piece(slice(0, count))


def drawn(f: Any, rng: np.random.Generator, count: int) -> np.ndarray:
    """Random states: a fifth of them level, the lowest gap from 1e-9 m to 1 m."""
    q, _ = START[f.system.name]
    lifted = [n for n in q if n.endswith("z")]
    names, X = f.system.dynamic, []
    while len(X) < count:
        level = rng.random() < 0.2
        at = dict(q)
        for n in names:
            if n.endswith(("-rx", "-ry", "-rz")) and not level:
                at[n] = rng.uniform(-1.2, 1.2)
        if "knee" in at:
            at |= {"hip": rng.uniform(-1, 1), "knee": 0.1 + 10 ** rng.uniform(-9, 0.3)}
        v = {n: rng.choice([0.0, 0.3, 3.0]) * rng.standard_normal() for n in names}
        low = f.gaps(f.initial_state(at)[None])[0][: 3 if f.system.name == "balls" else None]
        shift = low[: len(lifted)].min() if "knee" not in at else low[0]
        for n in lifted:
            at[n] += 10 ** rng.uniform(-9, 0) - shift
        x = f.initial_state(at, v)
        if f.gaps(x[None]).min() >= 0:
            X.append(x)
    return np.array(X)


def finite(f: Any, X: np.ndarray, rng: np.random.Generator) -> tuple[int, int]:
    """Of states X: steps without a solution, and solved ones with derivatives that are not finite."""
    batch = f.rollouts(X, rng.standard_normal((len(X), 1, f.nu)), 1, raise_on_failure=False)
    good = np.array([i for i in range(len(X)) if i not in batch.errors], int)
    n, bad = len(good), 0
    steps = Steps(
        X[good],
        batch.x[good, 1],
        batch.u[good, 0],
        batch.multipliers[good, 0],
        np.zeros(n),
        np.full(n, DT),
        good,
    )
    for i in range(0, n, 500):
        piece = steps.piece(slice(i, min(i + 500, n)))
        try:
            lin = f.derivatives.first(piece)
            whole = np.concatenate([a.reshape(len(piece), -1) for a in lin.blocks.values()], axis=1)
            bad += int((~np.isfinite(whole).all(axis=1)).sum())
        except StepError:
            bad += 1
    return len(batch.errors), bad


# -- the study ----------------------------------------------------------------------------------------------


@STUDY.body
def run(report: Report) -> None:
    rng = np.random.default_rng(7)
    count, many = QUICK if report.quick else FULL
    makes = (leg,) if report.quick else (box, balls, chain, leg)
    maps = [Map(make(), DT) for make in makes for Map in (MaximalVI, ContactVI)]
    if not report.quick and (path := quadruped_robot.description()) is not None:
        maps.append(ContactVI(quadruped_robot.Quadruped(path, DT).system, DT))
    found = {
        f: compared(f, walking(f, rng, count) if f.nu > 2 else tumbling(f, rng, count), rng) for f in maps
    }
    for f, e in found.items():
        name = f"{type(f).__name__} {f.system.name}"
        print(
            f"{name}: {len(e.states)} states, errors {e.states.max():.1e}, of impulses {e.impulses.max():.1e}"
        )
    states, clear = (np.concatenate([e[i] for e in found.values()]) for i in (0, 2))
    if boxes := [e for f, e in found.items() if f.system.name == "box"]:
        report.measure(shared=max(e.impulses.max() for e in boxes))
    others = [e for f, e in found.items() if f.system.name != "box"]
    report.measure(
        away=states[clear].max(),
        all=states.max(),
        median=np.median(states),
        impulses=max(e.impulses.max() for e in others),
        near=1 - clear.mean(),
    )
    draws = [f for f in maps if f.nu <= 2]
    counts = [finite(f, drawn(f, rng, many), rng) for f in draws]
    report.measure(unsolved=sum(c[0] for c in counts), nans=sum(c[1] for c in counts))
    landing(report)
    if not report.quick:
        report.measure(states=len(states), drawn=many * len(draws))
        speed(report, maps[0])


def walking(f: Any, rng: np.random.Generator, count: int) -> Steps:
    """A quadruped with servos that falls on its feet."""
    legs = np.array([0.0, 0.8, -1.6] * 4)
    found = []
    while sum(map(len, found)) < count:
        at = dict(zip(quadruped_robot.JOINTS, legs + 0.1 * rng.standard_normal(12), strict=True))
        U = quadruped_robot.GAIN * np.tile(legs, (60, 1)) + 3.0 * rng.standard_normal((60, 12))
        x = f.initial_state({**at, "base_z": 0.35})
        try:
            steps = Steps.along(f.rollout(x, U))
        except StepError:
            continue
        found.append(steps.piece(slice(20, 60)))
    return Steps.joined(found).piece(slice(0, count))


def ball() -> System:
    body = vioc.tz("z", name="ball", mass=Mass(2.0))
    return System(body, DOWN, Contact.sphere("ball", 0.1, name="foot"), name="ball")


def landing(report: Report) -> None:
    """Slope of a falling ball's height after some steps by the height that it starts at."""
    steps, width, off = 20, {}, 0.0
    fallen = 0.5 * G * (steps * DT) ** 2
    f0 = MaximalVI(ball(), DT)
    figure, axes = plt.subplots(1, 2, figsize=(10, 4))

    def slopes(f: MaximalVI, h: float) -> tuple[float, float, float]:
        """Of all steps and of the last one, and that one's closed form."""
        run = f.rollout(f.state({"z": 0.1 + h}), steps=steps)
        A = f.linearize_trajectory(run).A
        free = (run.x[-2, 2] - 0.1) / DT + run.x[-2, 9] - 0.5 * DT * G  # where it would end, over dt
        exact = 0.5 * (1 + free / np.sqrt(free**2 + 2 * f.smoothing))
        return np.linalg.multi_dot(A[::-1])[2, 2], A[-1][2, 2], exact

    for smoothing in SMOOTHINGS[:: 3 if report.quick else 1]:
        f, reach = f0.smoothed(smoothing), 30 * np.sqrt(smoothing) * DT
        starts = reach * np.linspace(-1, 1, 7 if report.quick else 41)
        all_steps, last, exact = np.array([slopes(f, fallen + h) for h in starts]).T
        off = max(off, np.abs(last - exact).max())
        axes[0].plot(1e3 * starts, all_steps, label=f"smoothing {smoothing:g}")
        axes[1].plot(starts / reach * 30, all_steps)
        width[smoothing] = np.ptp(np.interp([0.25, 0.75], all_steps, starts))
    free, held = (slopes(f, fallen + h)[0] for h in (5e-3, -5e-3))
    report.measure(ball=off, free=free, held=held)
    if not report.quick:
        report.measure(width=width[1e-3] / width[1e-8])
    axes[0].plot([-3, 0, 0, 3], [0, 0, 1, 1], "k:", label="without, one-sided")
    axes[0].set_xlim(-3, 3)
    axes[0].set(xlabel="start above the height that just lands (mm)", ylabel="d end height / d start height")
    axes[1].set(xlabel="the same over dt sqrt(smoothing)")
    axes[0].legend()
    figure.tight_layout()
    report.save(figure)


def speed(report: Report, f: MaximalVI) -> None:
    fast = MaximalVI(f.system, DT, backend="virtual" if find_compiler() is None else "compiled")
    steps = tumbling(fast, np.random.default_rng(3), 100)
    fast.derivatives.first(steps)
    report.measure(
        us=timed(lambda: fast.derivatives.first(steps)) / len(steps),
        us_again=timed(lambda: unknowns_of(f, steps)) / len(steps),
    )


def timed(work: Callable) -> float:
    """us, the least of three."""
    taken = []
    for _ in range(3):
        begin = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begin)
    return 1e6 * min(taken)


if __name__ == "__main__":
    STUDY.main()
