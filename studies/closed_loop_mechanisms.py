"""Closed loops by DMOC: the closed-chain device of [T] and a four-bar linkage, driven, bounded, fed back.

Nothing is eliminated: the loops stay constraints, their impulses are unknowns beside the configurations, and
the guess is trivial (a straight line of the driven joints, the others closed after it). The device goes from
its hanging equilibrium to another configuration at rest; the four-bar's crank makes a full turn, from rest
to rest. Starts that are off stay on the constraints. Without bounds DMOC and projection descent agree.
"""

from __future__ import annotations

from typing import NamedTuple

import casadi as ca
import numpy as np

import vioc
from studies.frames import poses
from studies.harness import Claim, Report, Study, at_most
from studies.motions import (
    STARTS,
    Disturbed,
    claims,
    descent_gap,
    disturb,
    measure,
    plot_disturbed,
    plot_inputs,
)
from vioc import Gravity, JointDamping, JointForce, System, coincident, consistent_configuration, ry, tx
from vioc.control import Cost, Result, dmoc

DT = 0.01  # s
OFFSET = 0.05  # rad, of the driven joints
CAUGHT = 0.02  # rad, kg m^2/s: largest error of a success at the end


class Case(NamedTuple):
    """A mechanism, its start, and where its driven joints go."""

    system: System
    start: np.ndarray  # configuration (nq,)
    goal: dict[str, float]
    duration: float  # s
    limit: float  # N m


def device() -> Case:
    """Torques on the device's three joints at the ceiling; their angles are its three degrees of freedom."""
    bare = vioc.models.load("closed_chain")
    system = bare.with_components(*(JointForce(joint, f"torque-{joint}") for joint in "JKA"))
    damped = vioc.MidpointVI(bare.with_components(*(JointDamping(n, 3.0) for n in bare.variables)), 0.02)
    guess = {"J": 0.2, "H": 0.3, "K": 0.1, "M": 0.3, "A": -0.1, "C": 0.2, "E": 0.3}
    hanging = damped.rollout(damped.initial_state(consistent_configuration(bare, guess)), steps=3000)
    q = consistent_configuration(bare, hanging.x[-1, : len(bare.variables)]).q
    start = dict(zip(bare.variables, q, strict=True))
    goal = {"J": start["J"] - 0.3, "K": start["K"] + 0.3, "A": start["A"] + 0.3}
    return Case(system, q, goal, 1.5, 4.5)


def four_bar() -> Case:
    """Crank 0.4 m, coupler 1 m, rocker 0.8 m, ground 1 m: the crank can turn over."""
    crank = ry("crank")[tx(0.2, mass=0.2), tx(0.4)[ry("coupler")[tx(0.5, mass=0.5), tx(1.0, name="end")]]]
    rocker = tx(1.0)[ry("rocker")[tx(0.4, mass=0.3), tx(0.8, name="tip")]]
    pins = coincident("end", "tip", "xz", name="pin")
    system = System(crank, rocker, Gravity(0, 0, -9.81), JointForce("crank", "torque"), pins, name="four_bar")
    q = consistent_configuration(system, {"crank": -0.5, "coupler": -0.5, "rocker": -2.0}).q
    return Case(system, q, {"crank": q[0] - 2 * np.pi}, 1.2, 2.0)


def loop_claims(name: str, text: str) -> dict[str, Claim]:
    return claims(name, text, loops=Claim(f"{text}: largest |h| along the solution", at_most(1e-8), unit="m"))


STUDY = Study(
    __file__,
    "closed-loop mechanisms by DMOC, stabilized by the time-varying DLQR",
    **loop_claims("device", "closed-chain device"),
    **loop_claims("four_bar", "four-bar linkage"),
)


@STUDY.body
def run(report: Report) -> None:
    drawn = []
    for name, case in {"device": device(), "four_bar": four_bar()}.items():
        f = vioc.MidpointVI(case.system, DT)
        x0 = f.initial_state(case.start)
        best = dmoc.solve(
            f,
            Cost(f, 0.5 * ca.sumsqr(f.symbols.u)),
            steps=round(case.duration / DT),
            initial=x0,
            final={**case.goal, **{f"v.{n}": 0.0 for n in case.goal}},
            bounds={f"u.{n}": case.limit for n in f.input_names},
            tolerance=1e-9,  # of loops in units of the mechanism's extent
        )
        regulator = best.stabilize(weights(f, case), 1.0)
        found = disturb(regulator, starts(f, case, 3 if report.quick else STARTS))
        h = np.stack([best.trajectory[f"h.{n}"] for n in f.multiplier_names])
        same = same_optimum(f, case, best)
        measure(report, name, best, case.limit, found, CAUGHT, loops=np.abs(h).max(), same=same)
        drawn.append((case, best, found))
    draw(report, drawn)


def weights(f: vioc.MidpointVI, case: Case) -> dict[str, float]:
    """On the driven joints and the momenta; the loops give the rest."""
    return {**dict.fromkeys(case.goal, 1000.0), **{f"p.{n}": 10.0 for n in case.goal}}


def starts(f: vioc.MidpointVI, case: Case, count: int) -> list[np.ndarray]:
    """States at rest with the driven joints off, loops closed."""
    rng = np.random.default_rng(0)
    base = dict(zip(case.system.variables, case.start, strict=True))
    result = []
    for _ in range(count):
        moved = {n: base[n] + rng.uniform(-OFFSET, OFFSET) for n in case.goal}
        report = consistent_configuration(case.system, {**base, **moved})
        result.append(f.initial_state(report))
    return result


def same_optimum(f: vioc.MidpointVI, case: Case, best: Result) -> float:
    """Without bounds, the end weighed: DMOC and projection descent, difference of the costs."""
    end = sum(
        500 * (f.quantity(n) - value) ** 2 + 5 * f.quantity(f"v.{n}") ** 2 for n, value in case.goal.items()
    )
    cost = Cost(f, 0.5 * ca.sumsqr(f.symbols.u), end)
    steps, x0 = len(best.trajectory), best.trajectory.x[0]
    return descent_gap(dmoc.solve(f, cost, best, steps=steps, initial=x0, tolerance=1e-9), cost)


def draw(report: Report, drawn: list[tuple[Case, Result, Disturbed]]) -> None:
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(len(drawn), 3, figsize=(12, 7), layout="constrained")
    for row, (case, best, found) in zip(panels, drawn, strict=True):
        poses(best.trajectory, np.linspace(0.0, case.duration, 5), ax=row[0])
        row[0].set_title(case.system.name.replace("_", " "))
        plot_inputs(row[1], best.trajectory, case.limit)
        plot_disturbed(row[2], found, best.trajectory, next(iter(case.goal)))
        row[2].set_title(f"{len(found.runs)} starts off by {OFFSET:g} rad, fed back")
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
