"""Swing-ups by DMOC with bounded inputs, from a straight line of states, and followed by feedback.

Cart-pole, acrobot, and double pendulum on a cart: from hanging at rest to upright at rest with least effort
and a bounded input. The time-varying DLQR about each optimum is run from starts that are off; the same
inputs without it fall over. Without bounds and with a penalty on the end instead of a condition, DMOC and
projection descent find the same optimum.
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
from vioc import Gravity, JointForce, System, ry, tx, tz
from vioc.control import Cost, Result, dmoc

DT = 0.02  # s
CAUGHT = 0.1  # rad, m, ...: largest error of a success at the end


class Case(NamedTuple):
    """A mechanism that hangs at `hanging` = pi, and its swing-up."""

    system: System
    hanging: str
    duration: float  # s
    limit: float  # N or N m
    bounds: dict[str, float]
    offset: float  # rad, m: of the disturbed starts


def cases() -> dict[str, Case]:
    legs = ry("q1")[tz(0.5, name="middle", mass=0.3)[ry("q2")[tz(0.5, name="tip", mass=0.2)]]]
    double = System(
        Gravity(0, 0, -9.81),
        tx("x", name="cart", mass=1.0)[legs],
        JointForce("x", "force"),
        name="double_pendulum_on_cart",
    )
    return {
        "cartpole": Case(vioc.models.load("cart_pole"), "theta", 2.0, 10.0, {"x": 1.5}, 0.1),
        "acrobot": Case(vioc.models.load("acrobot"), "q1", 4.0, 12.0, {}, 0.02),
        "double": Case(double, "q1", 3.0, 20.0, {"x": 1.5}, 0.05),
    }


def swing_up_claims(name: str, text: str) -> dict[str, Claim]:
    return claims(
        name,
        text,
        states=Claim(f"{text}: iterations with the momenta as unknowns"),
        forms=Claim(f"{text}: the optimum in that form, relative difference of the costs", at_most(1e-8)),
        cost=Claim(f"{text}: effort"),
    )


STUDY = Study(
    __file__,
    "swinging up within bounds by DMOC, stabilized by the time-varying DLQR",
    **swing_up_claims("cartpole", "cart-pole"),
    **swing_up_claims("acrobot", "acrobot"),
    **swing_up_claims("double", "double pendulum on a cart"),
)


@STUDY.body
def run(report: Report) -> None:
    drawn = []
    for name, case in cases().items():
        f = vioc.MidpointVI(case.system, DT)
        best = swing_up(f, case)
        regulator = best.stabilize(100.0, 1.0)
        rng = np.random.default_rng(0)
        count = 3 if report.quick else STARTS
        nq = len(case.system.variables)
        offsets = np.zeros((count, f.nx))
        offsets[:, :nq] = rng.uniform(-case.offset, case.offset, (count, nq))
        found = disturb(regulator, best.trajectory.x[0] + offsets)
        form = {"form": "states", "raise_on_failure": False}
        cold, warm = best.problem.solve(**form), best.problem.solve(best, tolerance=1e-10, **form)
        measure(
            report,
            name,
            best,
            case.limit,
            found,
            CAUGHT,
            states=cold.iterations,
            forms=abs(warm.cost / best.cost - 1),
            cost=best.cost,
            same=same_optimum(f, case, best),
        )
        drawn.append((name, case, best, found))
    draw(report, drawn)


def swing_up(f: vioc.MidpointVI, case: Case) -> Result:
    """Least effort from hanging to upright, from the straight line between the two."""
    return dmoc.solve(
        f,
        Cost(f, 0.5 * ca.sumsqr(f.symbols.u)),
        steps=round(case.duration / DT),
        initial=f.initial_state({case.hanging: np.pi}),
        final=f.initial_state(),
        bounds={f"u.{f.input_names[0]}": case.limit, **case.bounds},
        tolerance=1e-9,
    )


def same_optimum(f: vioc.MidpointVI, case: Case, best: Result) -> float:
    """Without bounds, the end weighed: DMOC and projection descent, difference of the costs."""
    cost = Cost(f, 0.5 * ca.sumsqr(f.symbols.u), 500 * ca.sumsqr(f.symbols.x))
    free = dmoc.solve(f, cost, best, steps=len(best.trajectory), initial=best.trajectory.x[0], tolerance=1e-9)
    return descent_gap(free, cost)


def draw(report: Report, drawn: list[tuple[str, Case, Result, Disturbed]]) -> None:
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(len(drawn), 3, figsize=(12, 3.4 * len(drawn)), layout="constrained")
    for row, (_, case, best, found) in zip(panels, drawn, strict=True):
        poses(best.trajectory, np.linspace(0.0, case.duration, 9), ax=row[0])
        row[0].set_title(case.system.name.replace("_", " "))
        plot_inputs(row[1], best.trajectory, case.limit)
        plot_disturbed(row[2], found, best.trajectory, case.hanging)
        row[2].set_title(f"{len(found.runs)} starts off by {case.offset:g}, fed back")
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
