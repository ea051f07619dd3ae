"""The marionette of [S] VIII-B raises its right elbow: trajectory optimization through its strings.

From rest, for 0.5 s in 50 steps, `relbow_rx` is to follow 0.3 sin(pi t) about where it hangs, the other
joints stay; what moves is paid for, the 18 strings' lengths and places and their rates. Newton's method
begins at the marionette at rest, where the Hessian is not convex: it needs shifts, but tiny ones.

Quadratic convergence is measured by single steps from the optimum's inputs, disturbed by eps sin(k) m: the
squared decrement after a step of a method of order q is eps^(2 q), 4 for Newton's method.
"""

from __future__ import annotations

import numpy as np

import vioc
from studies.harness import Claim, Report, Study, at_most, near
from studies.marionette_dlqr import start
from vioc.control import Cost, Result, optimize, project
from vioc.control.descent.local_model import LocalModel

DT, STEPS = 0.01, 50
JOINT, SWING = "relbow_rx", 0.3  # rad
OTHERS, STRINGS, RATES = 0.1, 1.0, 1.0  # weights, in units of that of the joint
TOLERANCE, DIGITS = 1e-6, 1e-13
SIZES = np.array([1e-4, 2e-4, 4e-4])  # m

STUDY = Study(
    __file__,
    "the marionette of [S] raises an elbow: Newton's method through 18 prescribed inputs",
    iterations=Claim("Newton steps from rest", at_most(15)),
    trials=Claim("trajectories tried, per step", at_most(2)),
    slope=Claim("|Dg.zeta| without a shift where it ended", at_most(TOLERANCE)),
    cost=Claim("cost of the optimum over that of the marionette at rest", at_most(0.1)),
    order=Claim("order of the squared decrement in the distance from the optimum", near(4, 0.3)),
    error=Claim("rms distance of the joint from what it is to follow, second half", unit="rad"),
)


@STUDY.body
def run(report: Report) -> None:
    f, cost, still = problem()
    best = optimize(f, cost, still, tolerance=TOLERANCE, method="projection")
    model = LocalModel(f, cost, best.trajectory, None)
    direction = model.direction("newton") or model.direction("gauss-newton")
    assert direction is not None
    wanted = swing(still)
    late = np.arange(STEPS + 1) > STEPS // 2
    report.measure(
        iterations=best.iterations,
        trials=best.history.trials.sum() / best.iterations,
        slope=-direction.slope,
        cost=best.cost / cost.value(still),
        order=order(f, cost, optimize(f, cost, best.trajectory, tolerance=DIGITS, method="projection")),
        error=np.sqrt(np.mean((best.trajectory[JOINT] - wanted)[late] ** 2)),
    )
    draw(report, best, wanted)


def problem() -> tuple[vioc.MidpointVI, Cost, vioc.Trajectory]:
    """The map, the cost, and the marionette with its strings at rest."""
    f = vioc.MidpointVI(vioc.models.load("marionette"), DT, forcing="left")
    x0 = start(f)
    U = np.tile(f.rest_input(x0), (STEPS, 1))
    still = f.rollout(x0, U, warn=False)
    reference = {name: still[name] for name in f.system.dynamic} | {JOINT: swing(still)}
    joints = dict.fromkeys(f.system.dynamic, OTHERS) | {JOINT: 1.0}
    rates = {f"v.{name}": RATES for name in f.system.kinematic}
    cost = vioc.control.quadratic(
        f, Q=joints | rates, R=STRINGS, Qf=joints, reference=reference, u_reference=U
    )
    return f, cost, still


def swing(still: vioc.Trajectory) -> np.ndarray:
    return still[JOINT] + SWING * np.sin(np.pi * still.t)


def order(f: vioc.MidpointVI, cost: Cost, best: Result) -> float:
    """Of the squared decrement after one Newton step from a distance, in that distance."""
    x, u = best.trajectory.x, best.trajectory.u
    after = []
    for size in SIZES:
        wave = size * np.sin(np.arange(STEPS))[:, None]
        near_by = project(f, x, u + wave, best.gains)
        step = optimize(
            f, cost, near_by, tolerance=1e-20, max_iterations=1, raise_on_failure=False, method="projection"
        )
        after.append(-step.slope)
    return float(np.polyfit(np.log(SIZES), np.log(after), 1)[0])


def draw(report: Report, best: Result, wanted: np.ndarray) -> None:
    import matplotlib.pyplot as plt

    figure, (joint, descent) = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
    joint.plot(best.trajectory.t, wanted, "k--", lw=1, label="wanted")
    joint.plot(best.trajectory.t, best.trajectory[JOINT], label="optimum")
    joint.set(xlabel="t (s)", ylabel=f"{JOINT} (rad)")
    joint.legend()
    descent.semilogy(-best.history.descent, ".-")
    descent.axhline(TOLERANCE, color="k", lw=0.5)
    descent.set(xlabel="iteration", ylabel=r"$-Dg \cdot \zeta$")
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
