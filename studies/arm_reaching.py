"""A 7-DOF arm reaches a point: DMOC from the start held, mesh refinement, bounded torques, feedback.

Axes z y z y z y z, from a bent rest to the tool at (.45, .35, .75) m in 1 s; minimize the sum of dt (1/2
1e-3 |u|^2 + 1/2 1e-2 |v|^2) plus 1/2 1e4 |p - p*|^2 + 1/2 10 |v|^2 at the end. The published cost is of the
implicit midpoint rule and one local optimum among several: a lower one is another motion. The start held
is the guess on a mesh of 0.02 s; that optimum is the guess on the mesh of 0.01 s.
"""

from __future__ import annotations

import casadi as ca
import numpy as np

import vioc
from studies.frames import poses
from studies.harness import Claim, Report, Study, at_least, at_most
from studies.motions import Disturbed, descent_gap, disturb, plot_disturbed, plot_inputs
from vioc import OneStepMap
from vioc.control import Cost, Result, dmoc

DURATION = 1.0  # s
COARSE, DT = 0.02, 0.01  # s
START = {"q2": 0.5, "q4": -1.2, "q6": 0.8}  # rad
GOAL = (0.45, 0.35, 0.75)  # m
PUBLISHED = 0.17820
LIMIT = 20.0  # N m, every joint
STARTS = 20
OFFSET = 0.1  # rad
REACHED = 0.01  # m

STUDY = Study(
    __file__,
    "a 7-DOF arm reaches a point: cost, time, bounded torques, feedback",
    cost=Claim(
        "cost from the start held by way of the coarse mesh, no bounds",
        at_most(PUBLISHED),
        published=PUBLISHED,
        source="IPOPT, implicit midpoint",
    ),
    iterations=Claim("iterations on the coarse mesh"),
    refined=Claim("iterations on the fine mesh from there", published="41", source="IPOPT"),
    seconds=Claim("time in the solver, both", unit="s", published="1.487 (IPOPT), 0.605 (FATROP)"),
    direct=Claim("cost on the fine mesh from the start held", published=PUBLISHED, full_only=True),
    fatrop=Claim("likewise with FATROP", published=PUBLISHED, full_only=True),
    same=Claim("DMOC against projection descent, difference of the costs", at_most(1e-6)),
    miss=Claim("distance of the tool from the goal at T", at_most(REACHED), unit="m"),
    limit=Claim(f"bounded to {LIMIT:g} N m: largest torque over its limit", at_most(1.0)),
    bounded=Claim("cost with that bound"),
    gap=Claim("its rollout against the solution", at_most(1e-5), unit="rad, kg m^2/s"),
    caught=Claim(
        f"of {STARTS} disturbed starts, within 1 cm at T with feedback",
        at_least(0.9 * STARTS),
        full_only=True,
    ),
    alone=Claim("likewise without feedback", full_only=True),
)


@STUDY.body
def run(report: Report) -> None:
    f, problem = reach(COARSE)
    coarse = problem.solve()
    f, problem = reach(DT)
    free = problem.solve(coarse.trajectory)
    report.measure(iterations=coarse.iterations, refined=free.iterations)
    seconds = coarse.seconds + free.seconds
    if not report.quick:
        report.measure(direct=problem.solve().cost, fatrop=problem.solve(solver="fatrop").cost)
    (phase,) = problem.phases
    steps, goal, x0 = phase.steps, phase.cost, phase.initial
    assert goal is not None
    bounds = {f"u.{n}": LIMIT for n in f.input_names}
    bounded = dmoc.solve(f, goal, free, steps=steps, initial=x0, bounds=bounds)
    best = bounded.trajectory

    def miss(run: vioc.Trajectory) -> float:
        return float(np.linalg.norm([run[f"tool:{a}"][-1] - g for a, g in zip("xyz", GOAL, strict=True)]))

    regulator = bounded.stabilize(weights(f), 0.01)
    rng = np.random.default_rng(0)
    count = 3 if report.quick else STARTS
    offsets = np.concatenate([rng.uniform(-OFFSET, OFFSET, (count, 7)), np.zeros((count, 7))], axis=1)
    found = disturb(regulator, x0 + offsets)
    report.measure(
        cost=free.cost,
        seconds=seconds,
        same=descent_gap(free, goal),
        miss=miss(best),
        limit=np.abs(best.u).max() / LIMIT,
        bounded=bounded.cost,
        gap=bounded.rollout().gap,
    )
    if not report.quick:
        alone = [f.rollout(x, best.u) for x in x0 + offsets]
        report.measure(
            caught=sum(miss(r) < REACHED for r in found.runs), alone=sum(miss(r) < REACHED for r in alone)
        )
    draw(report, bounded, found)


def reach(dt: float) -> tuple[vioc.MidpointVI, dmoc.Problem]:
    """The map and the problem without bounds."""
    f = vioc.MidpointVI(vioc.models.seven_joint_arm(), dt)
    phase = dmoc.Phase(f, round(DURATION / dt), cost(f), initial=f.initial_state(START))
    return f, dmoc.Problem(phase)


def cost(f: OneStepMap) -> Cost:
    """Of any map of the arm."""
    v = ca.vertcat(*(f.quantity(f"v.q{i}") for i in range(1, 8)))
    tool = ca.vertcat(*(f.quantity(f"tool:{axis}") for axis in "xyz"))
    return Cost(
        f,
        0.5e-3 * ca.sumsqr(f.symbols.u) + 0.5e-2 * ca.sumsqr(v),
        0.5e4 * ca.sumsqr(tool - ca.DM(GOAL)) + 5 * ca.sumsqr(v),
    )


def weights(f: vioc.MidpointVI) -> dict[str, float]:
    return {n: 1.0 if n.startswith("p.") else 1000.0 for n in f.state_names}


def draw(report: Report, best: Result, found: Disturbed) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(11, 8), layout="constrained")
    for panel, plane in zip(axes[0], ("xz", "xy"), strict=True):
        poses(best.trajectory, np.linspace(0.0, DURATION, 5), ax=panel, view=plane)
        panel.plot(
            GOAL["xyz".index(plane[0])], GOAL["xyz".index(plane[1])], "r*", ms=12, label="goal", zorder=20
        )
        panel.legend()
    plot_inputs(axes[1, 0], best.trajectory, LIMIT)
    plot_disturbed(axes[1, 1], found, best.trajectory, "tool:x")
    axes[1, 1].set_title(f"{len(found.runs)} starts off by {OFFSET:g} rad, fed back")
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
