"""Nonlinear MPC of a planar quadrotor that carries a slung load past a ball: a soft path constraint.

1 kg with two thrusts of at most 12 N at 0.2 m, 0.3 kg on a rod of 0.6 m; from rest to rest 3 m away, at 50 Hz
over 40 steps. The load's path is blocked by a ball. The limit is soft: a gust that pushes the load into it
leaves programs with an answer, and the load comes out again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import vioc
from studies.harness import Claim, Report, Study, at_least, at_most
from vioc.control import ClosedLoop, NonlinearMPC, Problem, dlqr, equilibrium, quadratic
from vioc.control.problem.limits import obstacle

DT, HORIZON, STEPS = 0.02, 40, 250
THRUST = 12.0  # N
LIMITS = {"u.left": (0.0, THRUST), "u.right": (0.0, THRUST)}
FAR = 3.0  # m
BALL, RADIUS = (1.5, -0.55), 0.4  # m, in the load's straight way
SOFT = 1e4, 1e6  # of m^2 within the ball
GUST = 3e-4  # variance of what disturbs every momentum at every sample
SEEDS = 10
AT_GOAL = 0.1  # m

STUDY = Study(
    __file__,
    "a quadrotor with a slung load flies around a ball by nonlinear MPC with a soft path constraint",
    ignored=Claim("without the constraint: how deep the load goes into the ball", at_least(0.1), "m"),
    depth=Claim("with it: how deep", at_most(5e-3), "m"),
    thrust=Claim("thrusts beyond their limits", at_most(1e-9), "N"),
    end=Claim("distance from the goal at the end", at_most(AT_GOAL), "m"),
    counted=Claim("samples without an answer", at_most(0)),
    gusts=Claim(f"of {SEEDS} flights in gusts, at the goal", at_least(SEEDS), full_only=True),
    deepest=Claim("their deepest load", unit="m", full_only=True),
    soft=Claim("their samples without an answer", at_most(0), full_only=True),
    hard=Claim("likewise with a hard limit", full_only=True),
    feedback_us=Claim("feedback phase from Python, median", unit="us"),
)


def quadrotor() -> vioc.System:
    load = vioc.tz(-0.6, name="load", mass=0.3)
    rod = vioc.revolute("swing", "y")[load]
    body = vioc.revolute("tilt", "y", frame="body", mass=vioc.Mass(1.0, (0.02,) * 3))
    sides = [
        vioc.WrenchInput("body", n, (0.0, 0.0, 1.0), (0.0, m, 0.0))
        for n, m in (("left", 0.2), ("right", -0.2))
    ]
    tree = vioc.tx("x")[vioc.tz("z")[body, rod]]
    return vioc.System(tree, vioc.Gravity(0, 0, -9.81), *sides, name="quadrotor with a load")


def law(f: Any, goal: Any, clear: bool, soft: bool = True) -> NonlinearMPC:
    Q = {"x": 4.0, "z": 4.0, "tilt": 1.0, "swing": 1.0, "v.x": 1.0, "v.z": 1.0, "v.tilt": 0.1, "v.swing": 0.1}
    weights = {name: f.dt * w for name, w in Q.items()}
    behind = dlqr(f, goal, weights, 0.02 * f.dt)
    cost = quadratic(f, Q=Q, R=0.02, Qf=behind.P, reference=goal.x, u_reference=goal.u)
    ball = [obstacle(f, "load", BALL, RADIUS, axes="xz", name="clearance")] if clear else None
    stated = Problem(f, cost, HORIZON, bounds=LIMITS, constraints=ball)
    return NonlinearMPC(stated, soft={"clearance": SOFT} if clear and soft else None, native=True)


def depth(run: Any) -> float:
    """Of the load within the ball."""
    away = np.hypot(run["load:x"] - BALL[0], run["load:z"] - BALL[1])
    return float(max(0.0, RADIUS - away.min()))


@STUDY.body
def run(report: Report) -> None:
    f = vioc.MidpointVI(quadrotor(), DT)
    goal = equilibrium(f, x=FAR, z=0.0, tilt=0.0, swing=0.0)
    start, steps = f.initial_state(), 120 if report.quick else STEPS
    free = ClosedLoop(f, law(f, goal, False)).simulate(start, 60 if report.quick else steps)
    around = law(f, goal, True)
    found = ClosedLoop(f, around, bounds=LIMITS).simulate(start, steps)
    verdicts = found.memory.verdicts
    report.measure(
        ignored=depth(free),
        depth=depth(found),
        thrust=max(0.0, -found.commands.min(), found.commands.max() - THRUST),
        end=np.hypot(found["x"][-1] - FAR, found["z"][-1]),
        counted=sum(v.fallback for v in verdicts),
        feedback_us=1e6 * float(np.median([v.seconds for v in verdicts])),
    )
    flights = []
    if not report.quick:
        noise = {n: GUST if n.startswith("p.") else 0.0 for n in f.state_names}
        none = []
        for kind in (around, law(f, goal, True, soft=False)):
            loop = ClosedLoop(f, kind, bounds=LIMITS, W=noise)
            runs = [loop.simulate(start, STEPS, noise=seed) for seed in range(SEEDS)]
            none.append(sum(v.fallback for r in runs for v in r.memory.verdicts))
            flights = flights or runs
        report.measure(
            gusts=sum(np.hypot(r["x"][-1] - FAR, r["z"][-1]) < 2 * AT_GOAL for r in flights),
            deepest=max(map(depth, flights)),
            soft=none[0],
            hard=none[1],
        )
    draw(report, free, found, flights)


def draw(report: Report, free: Any, found: Any, flights: list[Any]) -> None:
    import matplotlib.pyplot as plt

    figure, (path, force) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    path.add_patch(plt.Circle(BALL, RADIUS, color="0.8"))
    for r in flights:
        path.plot(r["load:x"], r["load:z"], lw=0.5, color="tab:green")
    path.plot(free["load:x"], free["load:z"], "--", label="load, without the constraint")
    path.plot(found["load:x"], found["load:z"], label="load")
    path.plot(found["x"], found["z"], label="quadrotor")
    path.set(xlabel="x (m)", ylabel="z (m)", title="Around a ball", aspect="equal")
    force.step(found.trajectory.t[:-1], found.trajectory.u, where="post")
    force.set(xlabel="t (s)", ylabel="thrusts (N)", title="Within their limits")
    path.legend(fontsize="small")
    for axes in (path, force):
        axes.grid(alpha=0.3)
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
