"""Nonlinear MPC of a 7-DOF arm: it reaches a point within torques and joint limits, with wrong masses.

The arm of `arm_reaching`, at 50 Hz over 30 steps; the distance of the tool is weighed all the way. The law's
model has the masses of a data sheet, the plant others.
"""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np

import vioc
from studies import arm_reaching
from studies.harness import Claim, Report, Study, at_least, at_most
from vioc.control import ClosedLoop, Cost, NonlinearMPC, Problem
from vioc.models.arm import MASSES

DT, HORIZON, STEPS = 0.02, 30, 100
TORQUE = 40.0  # N m
JOINT = 2.0  # rad, every joint
PLACE, SPEED = 100.0, 1.0  # weights of the tool's distance (1/m^2) and of joint rates
OFF = 0.1  # of the plant's masses
PLANTS = 6
NEAR = 0.02  # m

STUDY = Study(
    __file__,
    "a 7-DOF arm reaches a point by nonlinear MPC within torques and joint limits, with wrong masses",
    miss=Claim("with the right masses: distance of the tool from the goal at the end", at_most(NEAR), "m"),
    torque=Claim("largest torque over its limit", at_most(1.0)),
    joint=Claim("largest joint angle over its limit", at_most(1.0 + 1e-6)),
    used=Claim("samples with a torque at its limit", at_least(1)),
    counted=Claim("samples without an answer", at_most(0)),
    gap=Claim("largest gap that a plan's dynamics left, second half of the run", at_most(0.05)),
    near=Claim(
        f"of {PLANTS} plants with masses up to {100 * OFF:.0f} % off, within {100 * NEAR:.0f} cm at the end",
        at_least(PLANTS),
        full_only=True,
    ),
    worst=Claim("their largest distance (no integral action)", unit="m", full_only=True),
    iterations=Claim("iterations of the interior point, mean of a sample"),
    feedback_us=Claim("feedback phase from Python, median", unit="us"),
)


def law(f: Any, steps: int = HORIZON, native: bool = True) -> NonlinearMPC:
    bounds: dict[str, Any] = {f"u.{n}": TORQUE for n in f.input_names}
    bounds |= {f"q{i}": JOINT for i in range(1, 8)}
    return NonlinearMPC(Problem(f, cost(f), steps, bounds=bounds), native=native)


def cost(f: Any) -> Cost:
    v = ca.vertcat(*(f.quantity(f"v.q{i}") for i in range(1, 8)))
    away = ca.vertcat(*(f.quantity(f"tool:{axis}") for axis in "xyz")) - ca.DM(arm_reaching.GOAL)
    running = 0.5 * PLACE * ca.sumsqr(away) + 0.5 * SPEED * ca.sumsqr(v) + 0.5e-3 * ca.sumsqr(f.symbols.u)
    return Cost(f, running, 0.5 * PLACE * ca.sumsqr(away) + 0.5 * ca.sumsqr(v))


def miss(run: Any) -> float:
    return float(
        np.linalg.norm([run[f"tool:{a}"][-1] - g for a, g in zip("xyz", arm_reaching.GOAL, strict=True)])
    )


@STUDY.body
def run(report: Report) -> None:
    f = vioc.MidpointVI(vioc.models.seven_joint_arm(), DT)
    feedback, start = law(f, 20 if report.quick else HORIZON), f.initial_state(arm_reaching.START)
    steps = 50 if report.quick else STEPS
    found = ClosedLoop(f, feedback).simulate(start, steps)
    verdicts = found.memory.verdicts
    angles = np.array([found[f"q{i}"] for i in range(1, 8)])
    report.measure(
        miss=miss(found),
        torque=np.abs(found.trajectory.u).max() / TORQUE,
        joint=np.abs(angles).max() / JOINT,
        used=int((np.abs(found.trajectory.u) > 0.999 * TORQUE).any(axis=1).sum()),
        counted=sum(v.fallback for v in verdicts),
        gap=max(v.gap for v in verdicts[steps // 2 :]),
        iterations=np.mean([v.iterations for v in verdicts]),
        feedback_us=1e6 * float(np.median([v.seconds for v in verdicts])),
    )
    others = []
    if not report.quick:
        rng = np.random.default_rng(0)
        for _ in range(PLANTS):
            masses = np.array(MASSES) * rng.uniform(1 - OFF, 1 + OFF, 7)
            other = vioc.MidpointVI(vioc.models.seven_joint_arm(masses.tolist()), DT)
            others.append(ClosedLoop(other, feedback).simulate(start, STEPS))
        report.measure(near=sum(miss(r) < NEAR for r in others), worst=max(map(miss, others)))
    draw(report, found, others)


def draw(report: Report, found: Any, others: list[Any]) -> None:
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    t = found.trajectory.t
    for r, style in ((found, "-"), *((r, ":") for r in others)):
        away = [r[f"tool:{a}"] - g for a, g in zip("xyz", arm_reaching.GOAL, strict=True)]
        left.semilogy(t, np.linalg.norm(away, axis=0), style)
    left.set(xlabel="t (s)", ylabel="tool to goal (m)", title="Right masses, and others (dotted)")
    right.step(t[:-1], found.trajectory.u, where="post", lw=1)
    right.set(xlabel="t (s)", ylabel="torques (N m)", title="Within their bounds")
    for axes in (left, right):
        axes.grid(alpha=0.3)
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
