"""A disc that rolls without slip: closed forms, momentum equation, energy over 1e5 steps; a robot on wheels.

The disc has five coordinates and rolls on a plane (docs/maths/nonholonomic.md); beside it Euler's equations
of the disc in scipy. A base on two wheels with an arm of seven joints and random chains with blades show the
rest: feedback, optimal control, and how often steps and derivatives hold.
"""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from scipy.integrate import solve_ivp

import vioc
from studies.harness import Claim, Report, Study, at_least, at_most, near
from vioc import Gravity, JointForce, RungeKutta, System, rx, ry, rz, tx, ty, tz
from vioc.components import Rolling, Skate, wheel

M, R, G = 1.0, 0.3, 9.81
ACROSS, AXIAL = M * R**2 / 4, M * R**2 / 2
LEAN, TURN = 0.4, -2.0  # rad, rad/s, of the steady motion
STEPS = (0.02, 0.01, 0.005)  # s
ARM = tuple(f"q{i}" for i in range(1, 8))
FAMILY = 100

STUDY = Study(
    __file__,
    "a rolling disc against its closed form, and what rolls: an arm on two wheels, random chains with blades",
    steady=Claim("leaning disc in its circle: order of convergence", near(2.0, 0.1)),
    upright=Claim("disc that cannot lean, in its circle: order of convergence", near(2.0, 0.1)),
    falling=Claim(
        "wobbling disc against Euler's equations by DOP853: order of lean and rates", near(2.0, 0.15)
    ),
    rolls=Claim("momentum equation of rolling on, over the momentum", at_most(1e-10)),
    turns=Claim("momentum equation of turning about the point of contact, over the momentum", at_most(1e-10)),
    band=Claim(
        "energy of the wobbling disc over 1e5 steps of 0.01 s: band, over the kinetic energy", at_most(1e-4)
    ),
    drift=Claim(
        "its mean over the last tenth less over the first, over the band", at_most(1e-3), full_only=True
    ),
    parked=Claim(
        "arm on wheels, 0.3 m sideways: error at the end", at_most(1e-3), unit="m, rad", full_only=True
    ),
    held=Claim(
        "arm on wheels, pushed off and stabilized: error at the end over the push",
        at_most(1.0),
        full_only=True,
    ),
    rate=Claim(
        f"random chains with blades, of {FAMILY}: keep A(q_m) dq to 1e-12, and derivatives to 1e-6",
        at_least(0.97),
    ),
    family=Claim(
        "their largest order defect against RK4 at a tenth of the step, |2 - order|, nine in ten",
        at_most(0.5),
    ),
)


@STUDY.body
def run(report: Report) -> None:
    closed_forms(report)
    run_, exact = wobbling(report)
    long_run(report)
    family(report, 2 if report.quick else FAMILY)
    draw(report, run_, exact, None if report.quick else parking(report))


def disc(leans: bool = True) -> System:
    """x, y of the point of contact, yaw, lean, spin."""
    body = ry("spin", name="disc", mass=(M, ACROSS, AXIAL, ACROSS))
    tree = tx("x")[ty("y")[rz("yaw")[rx("lean" if leans else 0.0)[tz(R)[body]]]]]
    return System(tree, Gravity(0, 0, -G), wheel("disc", R, (0, 1, 0)), name="disc")


def rolled(h: float, lean: float, rates: dict[str, float], seconds: float) -> vioc.Trajectory:
    """From rest of the lean; a lean of 0 is that of a disc which has none."""
    f = vioc.MidpointVI(disc(lean != 0), h)
    q = {"lean": lean} if lean else {}
    v = vioc.project_velocity(f.system, q, rates)
    return f.rollout(f.initial_state(q, v), steps=round(seconds / h))


def order(errors: list[float]) -> float:
    """The slope, over halved steps, that is farthest from 2."""
    slopes = np.log2(np.array(errors[:-1]) / errors[1:])
    return float(slopes[np.argmax(np.abs(slopes - 2))])


def closed_forms(report: Report) -> None:
    """Steady: A W^2 s c - (C + M R^2) W w_axial c = M G R s, s and c of the lean; the contact in a circle."""
    s, c = np.sin(LEAN), np.cos(LEAN)
    axial = (ACROSS * TURN**2 * s * c - M * G * R * s) / ((AXIAL + M * R**2) * TURN * c)
    for key, lean, spin in (("steady", LEAN, axial - TURN * s), ("upright", 0.0, 5.0)):
        errors = []
        for h in STEPS:
            run_ = rolled(h, lean, {"x": R * spin, "yaw": TURN, "spin": spin}, 2.0)
            radius, t = R * spin / TURN, run_.t
            exact = {
                "x": radius * np.sin(TURN * t),
                "y": radius * (1 - np.cos(TURN * t)),
                **({"lean": lean + 0 * t} if lean else {}),
            }
            errors.append(max(np.abs(run_[n] - v).max() for n, v in exact.items()))
        report.measure(**{key: order(errors)})


def euler(lean: float, rates: dict[str, float], seconds: float) -> np.ndarray:
    """lean, its rate, yaw rate and spin rate at the end, from the balance of moments about the contact.

    With l the lean, W the yaw rate and n = spin + W sin l the axial rate.
    """
    A, C = ACROSS, AXIAL

    def flow(t: float, s: np.ndarray) -> list[float]:
        lean, dl, W, n = s
        sin, cos = np.sin(lean), np.cos(lean)
        ddl = (M * G * R * sin - A * W**2 * sin * cos + (C + M * R**2) * W * n * cos) / (A + M * R**2)
        dn = -M * R**2 * W * dl * cos / (C + M * R**2)
        dW = (2 * A * W * dl * sin - C * n * dl) / (A * cos)
        return [dl, ddl, dW, dn]

    W = rates["yaw"]
    start = [lean, 0.0, W, rates["spin"] + W * np.sin(lean)]
    end, dl, W, n = solve_ivp(flow, (0, seconds), start, "DOP853", rtol=1e-12, atol=1e-13).y[:, -1]
    return np.array([end, dl, W, n - W * np.sin(end)])


WOBBLE = {"x": 3.0, "yaw": 2.0, "spin": 10.0}


def wobbling(report: Report) -> tuple[vioc.Trajectory, Any]:
    exact = euler(0.3, WOBBLE, 2.0)
    runs = [rolled(h, 0.3, WOBBLE, 2.0) for h in STEPS]
    names = ("lean", "v.lean", "v.yaw", "v.spin")
    report.measure(
        falling=order([max(abs(r[n][-1] - e) for n, e in zip(names, exact, strict=True)) for r in runs])
    )
    r = runs[1]
    yaw, px, py = r["yaw"], r["p.x"], r["p.y"]
    rolling = R * (np.cos(yaw) * px + np.sin(yaw) * py) + r["p.spin"]
    carried = R * (np.diff(np.cos(yaw)) * px[1:] + np.diff(np.sin(yaw)) * py[1:])
    turning = r["p.yaw"][1:] - np.diff(r["y"]) * px[1:] + np.diff(r["x"]) * py[1:]
    report.measure(
        rolls=np.abs(np.diff(rolling) - carried).max() / np.abs(rolling).max(),
        turns=np.abs(turning - r["p.yaw"][:-1]).max() / np.abs(r["p.yaw"]).max(),
    )
    return r, exact


def long_run(report: Report) -> None:
    r = rolled(0.01, 0.3, WOBBLE, 50.0 if report.quick else 1000.0)
    energy, tenth = r.energy, len(r) // 10
    band = np.ptp(energy)
    report.measure(band=band / r["kinetic"][0])
    if not report.quick:
        report.measure(drift=abs(energy[-tenth:].mean() - energy[:tenth].mean()) / band)


def robot() -> System:
    """A base on two wheels that roll, with an arm of seven joints; every wheel and joint has its motor."""
    links = tz(0.08, name="tool")
    weights, lengths = (3, 3, 2.5, 2, 1.5, 1, 0.5), (0.15, 0.2, 0.2, 0.2, 0.15, 0.1, 0.08)
    for name, axis, mass, length in reversed(list(zip(ARM, "zyzyzyz", weights, lengths, strict=True))):
        links = {"z": rz, "y": ry}[axis](name, mass=(mass, 0.02, 0.02, 0.01))[tz(length)[links]]
    wheels = [
        ty(side * 0.25)[ry(name, name=name, mass=(1, 0.0025, 0.005, 0.0025))]
        for name, side in (("left", 1), ("right", -1))
    ]
    base = tx("x")[ty("y")[rz("yaw", name="base", mass=(20, 1, 1, 1))[(*wheels, tz(0.3)[links])]]]
    rows = (
        Skate("base", (0, 1, 0), "base"),
        *(Rolling(n, 0.1, (0, 1, 0), (1, 0, 0), "base", name=f"roll-{n}") for n in ("left", "right")),
    )
    drives = [JointForce(n, f"u-{n}") for n in ("left", "right", *ARM)]
    return System(tz(0.1)[base], Gravity(0, 0, -G), rows, drives, name="arm on wheels")


def parking(report: Report) -> vioc.Trajectory:
    """Sideways, as a car parks; then feedback along the motion, from a state that is off it."""
    f = vioc.MidpointVI(robot(), 0.02)
    pose = dict(q1=0.3, q2=0.5, q3=0.2, q4=-1.0, q5=0.1, q6=0.7, q7=0.0)
    still = vioc.control.feedback.equilibrium(f, x=0, y=0, yaw=0, left=0, right=0, **pose)
    places = f.state_names[: f.nq]
    goal = dict(zip(places, still.x, strict=False)) | {"y": 0.3}
    last = {n: 1e3 for n in ("x", "y", "yaw", *ARM)} | {f"v.{n}": 1e2 for n in places}
    cost = vioc.control.quadratic(f, Q={n: 1e-3 for n in places}, R=1e-4, Qf=last, goal=goal)
    U = np.tile(still.u, (100, 1))
    U[:, :2] += 0.1 * np.outer(np.sin(np.linspace(0, 6, 100)), [1, -1])
    best = vioc.control.optimize(f, cost, f.rollout(still.x, U)).trajectory
    ends = [best[n][-1] - goal[n] for n in ("x", "y", "yaw", *ARM)]
    law = vioc.control.dlqr(f, best, {n: 10.0 for n in f.state_names}, 1e-3)
    push = np.zeros(f.nx)
    push[[places.index(n) for n in ("x", "yaw", "q1")]] = 0.02, 0.05, 0.05
    run_ = law.rollout(best.x[0] + push)
    kept = [places.index(n) for n in ("x", "y", "yaw", *ARM)]
    report.measure(
        parked=np.abs(ends).max(),
        held=np.abs(run_.x[-1, kept] - best.x[-1, kept]).max() / np.abs(push).max(),
    )
    return best


def random_chain(rng: np.random.Generator) -> System:
    """Three prismatic and up to seven revolute joints, two blades, half of them with a rod too."""
    n = int(rng.integers(6, 11))
    tree: Any = None
    for i in reversed(range(n)):
        kind = (tx, ty, tz)[i] if i < 3 else (rx, ry, rz)[rng.integers(3)]
        tree = kind(f"q{i}", name=f"link{i}", mass=(1.0, 0.2, 0.3, 0.4))[[tx(0.4)[tree]] if tree else []]
    blades = [
        Skate(f"link{i}", tuple(rng.normal(size=3)), f"link{i}") for i in rng.choice(n, 2, replace=False)
    ]
    rods = [vioc.DistanceConstraint(f"link{n - 1}", "world", 1.0)] if rng.random() < 0.5 else []
    return System(tree, blades, rods, Gravity(0, 0, -G), name="chain")


def family(report: Report, count: int) -> None:
    good, orders = 0, []
    for seed in range(count):
        rng = np.random.default_rng(seed)
        system = random_chain(rng)
        f = vioc.MidpointVI(system, 0.01, redundant=())
        try:
            q = f.consistent_configuration(rng.uniform(-0.6, 0.6, f.nq)).q
            v = vioc.project_velocity(system, q, rng.normal(size=f.nq))
            run_ = f.rollout(f.initial_state(q, v), steps=20)
            fine, peer = f.with_dt(0.005), RungeKutta(system, 0.001)
            near_, exact = (
                fine.rollout(f.initial_state(q, v), steps=40),
                peer.rollout(peer.initial_state(q, v), steps=200),
            )
        except (vioc.StepError, vioc.errors.ConstraintError):
            continue
        rows = f.lagrangian.constraint_jacobian
        a, b = run_.x[:-1, : f.nq], run_.x[1:, : f.nq]
        slips = [rows((p + q) / 2)[:2] @ (q - p) for p, q in zip(a, b, strict=True)]
        x, d = run_.x[5], rng.normal(size=f.nx)
        slope = (f.step(x + 1e-5 * d) - f.step(x - 1e-5 * d)) / 2e-5
        exactly = f.linearize(x).A @ d
        off = np.abs(slope - exactly).max() / (1 + np.abs(slope).max())
        good += max(np.abs(s).max() for s in slips) < 1e-12 and off < 1e-6
        far, close = (np.abs(r.x[-1, : f.nq] - exact.x[-1, : f.nq]).max() for r in (run_, near_))
        orders.append(abs(np.log2(far / close) - 2))
    report.measure(rate=good / count, family=float(np.quantile(orders, 0.9)))


def draw(report: Report, disc_run: Any, exact: Any, best: Any) -> None:
    figure, (path, lean, park) = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    path.plot(disc_run["x"], disc_run["y"])
    path.set(xlabel="x (m)", ylabel="y (m)", title="Point of contact of the wobbling disc")
    lean.plot(disc_run.t, disc_run["lean"])
    lean.plot(disc_run.t[-1], exact[0], "ko", label="Euler, DOP853")
    lean.set(xlabel="t (s)", ylabel="lean (rad)", title="Lean")
    lean.legend()
    if best is not None:
        park.plot(best["x"], best["y"])
        report.frame(best, np.linspace(0.0, 2.0, 5), title="An arm on wheels")
    park.set(xlabel="x (m)", ylabel="y (m)", title="An arm on wheels goes sideways")
    for ax in (path, lean, park):
        ax.grid(alpha=0.3)
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
