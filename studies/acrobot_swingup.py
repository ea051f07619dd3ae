"""Swing-up of the acrobot by multiple shooting: from the straight line of states and from bent lines.

Two uniform rods of 1 m and 1 kg, q1 = 0 upright, q2 relative, a torque at the elbow only; from hanging at
rest to upright in 3 s: minimize the sum of dt (1/2 x'Qx + 1/2 R u^2) plus 1/2 x_N' Qf x_N with x = (q1, q2,
dq1, dq2). The published costs are of the implicit midpoint rule with dt = 0.01 s; the problem has several
optima, and which one is found depends on the guess. The sum weighs the start, which is fixed, with a whole
step; by the trapezoidal rule the same trajectory's cost is of second order in dt, and so is that of the other
rule.
"""

from __future__ import annotations

import time

import numpy as np

import vioc
from studies.frames import poses
from studies.harness import Claim, Report, Study, at_least, at_most, near
from vioc.control import Result
from vioc.errors import OptimizationError

DURATION = 3.0  # s
DT = 0.01  # s
Q = {"q1": 0.1, "q2": 0.1, "v.q1": 0.01, "v.q2": 0.01}
QF = {"q1": 1e3, "q2": 1e3, "v.q1": 1e2, "v.q2": 1e2}
R = {"torque": 0.01}
BEST = 2.68118
FROM_THE_LINE = 3.39340
GUESSES = 20
BEND = 0.3  # rad, kg m^2/s: standard deviation of the three sine waves that bend a line
REPEATS = 5

STUDY = Study(
    __file__,
    "acrobot swing-up from the straight line of states, and from lines that are bent",
    cost=Claim(
        "cost from the straight line, the lower of the published optima",
        near(BEST, 1e-3 * BEST),
        published=BEST,
        source="best found (IPOPT from the line: 3.39340)",
    ),
    iterations=Claim("iterations from the straight line", at_most(30), published="19", source="IPOPT"),
    ms=Claim("time from the straight line", unit="ms", published="44 (IPOPT), 47 (FATROP)"),
    stationary=Claim("|Dg.zeta| where the search ended", at_most(1e-6)),
    end=Claim("largest error at T", at_most(2e-2), unit="rad, kg m^2/s"),
    order=Claim("order of the optimum's cost in dt, trapezoidal rule", near(2, 0.2)),
    arrived=Claim(f"of {GUESSES} bent lines, stationary within 300 iterations", at_least(18), full_only=True),
    good=Claim(f"of {GUESSES} bent lines, at a cost up to 1.01 x {FROM_THE_LINE}", full_only=True),
    median=Claim("iterations from a bent line, median", full_only=True),
)


@STUDY.body
def run(report: Report) -> None:
    f, cost, start, goal = problem(DT)
    steps = round(DURATION / DT)
    line = vioc.control.straight_line(start, goal, steps)
    best = optimize(f, cost, line)
    assert best is not None
    seconds = []
    for _ in range(REPEATS):
        before = time.perf_counter()
        optimize(f, cost, line)
        seconds.append(time.perf_counter() - before)
    report.measure(
        cost=best.cost,
        iterations=best.iterations,
        ms=1e3 * min(seconds),
        stationary=-best.history.descent[-1],
        end=np.abs(best.trajectory.x[-1] - goal).max(),
    )
    refine(report, best)
    others: list[Result] = []  # those that led to a trajectory
    if not report.quick:
        others = [r for guess in bent(line, GUESSES) if (r := optimize(f, cost, guess)) is not None]
        report.measure(
            arrived=sum(r.converged for r in others),
            good=sum(r.converged and r.cost <= 1.01 * FROM_THE_LINE for r in others),
            median=np.median([r.iterations for r in others]),
        )
    draw(report, f, line, best, others)


def problem(dt: float) -> tuple[vioc.MidpointVI, vioc.control.Cost, np.ndarray, np.ndarray]:
    f = vioc.MidpointVI(vioc.models.load("acrobot"), dt)
    cost = vioc.control.quadratic(f, Q=Q, R=R, Qf=QF)
    return f, cost, f.initial_state({"q1": np.pi}), f.initial_state()


def optimize(f: vioc.MidpointVI, cost: vioc.control.Cost, X: np.ndarray) -> Result | None:
    """None where a curve leads to no trajectory at all."""
    try:
        return vioc.control.optimize(f, cost, (X, np.zeros((len(X) - 1, f.nu))), raise_on_failure=False)
    except OptimizationError:
        return None


def bent(line: np.ndarray, count: int) -> list[np.ndarray]:
    """The line plus three sine waves in every state, the ends kept."""
    rng = np.random.default_rng(0)
    s = np.linspace(0, 1, len(line))[:, None]
    waves = np.hstack([np.sin(np.pi * j * s) for j in (1, 2, 3)])
    return [line + waves @ (BEND * rng.standard_normal((3, line.shape[1]))) for _ in range(count)]


def refine(report: Report, best: Result) -> None:
    """The same optimum at smaller steps, each found from the one at DT."""
    results, run = [best], best.trajectory
    for divisor in (2, 4):
        f, cost, _, _ = problem(DT / divisor)
        t = f.dt * np.arange(divisor * len(run) + 1)
        X = np.column_stack([np.interp(t, run.t, column) for column in run.x.T])
        guess = X, np.repeat(run.u, divisor, axis=0)
        results.append(vioc.control.optimize(f, cost, guess, raise_on_failure=False))
    costs = []
    for result in results:
        at_ends = [0.5 * sum(w * result.trajectory[n][k] ** 2 for n, w in Q.items()) for k in (0, -1)]
        costs.append(result.cost - result.trajectory.map.dt / 2 * (at_ends[0] - at_ends[1]))
    changes = np.diff(costs)
    report.measure(order=np.log2(changes[0] / changes[1]))


def draw(report: Report, f: vioc.MidpointVI, line: np.ndarray, best: Result, others: list[Result]) -> None:
    """Convergence of cost and gap, the motion, and where other guesses end."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(10, 7), layout="constrained")
    (convergence, torque), (angles, motion) = axes
    history = best.history
    convergence.semilogy(history.iteration, history.cost, "k.-", label="cost")
    shooting = history.gap > 0
    convergence.semilogy(history.iteration[shooting], history.gap[shooting], ".-", label="|r|, kg m$^2$/s")
    for other in others:
        convergence.semilogy(other.history.iteration, other.history.cost, color="0.7", lw=0.7, zorder=0)
    convergence.axhline(BEST, color="0.5", ls=":", lw=1, label="best known (implicit midpoint)")
    convergence.set(xlabel="iteration", title="Convergence" + " (grey: bent lines)" * bool(others))
    convergence.legend(fontsize="small")

    run = best.trajectory
    torque.stairs(run["u.torque"], run.t, baseline=None, color="k", lw=1.5)
    torque.set(xlabel="t (s)", ylabel="elbow torque (N m)", title=f"Optimum, dt = {DT:g} s")

    for name, color in (("q1", "tab:blue"), ("q2", "tab:orange")):
        angles.plot(run.t, run[name], color=color, label=name)
        angles.plot(run.t, line[:, f.state_names.index(name)], color=color, ls="--", lw=1)
    angles.set(xlabel="t (s)", ylabel="angle (rad)", title="Optimum, and the guess (dashed)")
    angles.legend(fontsize="small")

    poses(run, np.linspace(0.0, run.t[-1], 10), ax=motion)
    for ax in axes.flat:
        ax.grid(alpha=0.3)
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
