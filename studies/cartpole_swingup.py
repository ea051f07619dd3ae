"""Swing-up of the cart-pole by multiple shooting from two guesses, and how large a disturbance it bears.

A cart of 1 kg on a rail, a point mass of 0.3 kg on a pole of 0.5 m, theta = 0 upright, from hanging at
rest to upright in 2 s: minimize the sum of dt (1/2 x'Qx + 1/2 R u^2) plus 1/2 x_N' Qf x_N with x = (x,
theta, dx, dtheta). Its published cost is of the implicit midpoint rule with dt = 0.01 s.

The sum weighs the start, which is fixed, with a whole step: it is an integral to first order only. By the
trapezoidal rule the same trajectory's cost is second order; that is what is extrapolated to dt = 0.
"""

from __future__ import annotations

import time
from dataclasses import replace
from itertools import pairwise

import numpy as np

import vioc
from studies.gains import feedback_gap, newton_order
from studies.harness import Claim, Report, Study, at_least, at_most, near
from vioc.control import Regulator, Result

DURATION = 2.0  # s
DT = 0.01  # s
STEPS = (0.02, 0.01, 0.005, 0.0025)  # s
Q = {"x": 0.1, "theta": 0.1, "v.x": 0.01, "v.theta": 0.01}
QF = {"x": 1e3, "theta": 1e3, "v.x": 1e2, "v.theta": 1e2}
R = {"force": 0.01}
PUBLISHED = 0.98133

FEEDBACK_Q = {"x": 100.0, "theta": 100.0, "p.x": 1.0, "p.theta": 1.0}
FEEDBACK_R = 1.0
BALANCE = 5.0  # s, after the swing-up
STARTS = 100
REPEATS = 5
BOX = np.array([0.5, 0.5])  # m, rad: starts at rest, uniform in x = +-0.5, theta = pi +- 0.5
WIDE = np.array([1.0, 1.0])  # m, rad: and in a box that reaches past what the feedback bears
GOAL = 1e-2  # m, rad, kg m/s, kg m^2/s: largest error of a success

PEER = "IPOPT, implicit midpoint"

STUDY = Study(
    __file__,
    "cart-pole swing-up from two guesses, its limit for dt -> 0, and its region of attraction",
    linear=Claim(
        "cost from the straight line of states",
        near(PUBLISHED, 0.01 * PUBLISHED),
        published=PUBLISHED,
        source=PEER,
    ),
    constant=Claim(
        "cost from staying at the start", near(PUBLISHED, 0.01 * PUBLISHED), published=PUBLISHED, source=PEER
    ),
    linear_iterations=Claim("iterations from the straight line", at_most(12), published="6", source="IPOPT"),
    constant_iterations=Claim(
        "iterations from staying at the start", at_most(30), published="27", source="IPOPT"
    ),
    linear_ms=Claim("time from the straight line", unit="ms", published="12 (IPOPT), 49 (FDDP)"),
    constant_ms=Claim("time from staying at the start", unit="ms", published="31 (IPOPT), 98 (FDDP)"),
    quadratic=Claim("exponent of an iteration of Newton's method near the optimum", near(2, 0.2)),
    gains=Claim(
        "inputs of the closed loop against those of a second Riccati recursion, relative", at_most(1e-8)
    ),
    stationary=Claim("largest |Dg.zeta| where the searches ended", at_most(1e-6)),
    same=Claim("difference of the two costs", at_most(1e-5)),
    end=Claim("largest error at T", at_most(GOAL), unit="m, rad, ..."),
    order=Claim("order of the optimum's cost in dt, trapezoidal rule", near(2, 0.2)),
    order_sum=Claim("order of the optimum's cost in dt, as summed"),
    limit=Claim("cost for dt -> 0 by Richardson extrapolation"),
    limit_spread=Claim("change of that limit by the last refinement", at_most(1e-5)),
    caught=Claim(
        f"of {STARTS} starts within 0.5 m and 0.5 rad, upright 5 s after T", at_least(95), full_only=True
    ),
    caught_open=Claim("likewise, feedback after T only", full_only=True),
    caught_wide=Claim(f"of {STARTS} starts within 1 m and 1 rad, upright 5 s after T", full_only=True),
)


@STUDY.body
def run(report: Report) -> None:
    f = vioc.MidpointVI(vioc.models.load("cart_pole"), DT)
    hanging, upright = ends(f)
    steps = round(DURATION / DT)
    guesses = {
        "linear": vioc.control.straight_line(hanging, upright, steps),
        "constant": np.tile(hanging, (steps + 1, 1)),
    }
    found: dict[str, Result] = {}
    cost = swing_up(f)
    for name, X in guesses.items():
        guess, seconds = (X, np.zeros((steps, f.nu))), []
        found[name] = optimize(f, cost, guess)  # builds the functions
        for _ in range(REPEATS):
            before = time.perf_counter()
            optimize(f, cost, guess)
            seconds.append(time.perf_counter() - before)
        report.measure(
            **{
                name: found[name].cost,
                f"{name}_iterations": found[name].iterations,
                f"{name}_ms": 1e3 * min(seconds),
            }
        )
    best = found["linear"]
    report.measure(
        quadratic=newton_order(lambda guess: iterate(f, cost, guess), best.trajectory, 0.002),
        same=abs(best.cost - found["constant"].cost),
        end=np.abs(best.trajectory.x[-1] - upright).max(),
    )
    found_at = [*found.values(), *refine(report, best)]
    report.measure(stationary=max(-result.history.descent[-1] for result in found_at))
    attraction(report, found, 10 if report.quick else STARTS)


def ends(f: vioc.MidpointVI) -> tuple[np.ndarray, np.ndarray]:
    return f.initial_state({"theta": np.pi}), f.initial_state()


def swing_up(f: vioc.MidpointVI) -> vioc.control.Cost:
    return vioc.control.quadratic(f, Q=Q, R=R, Qf=QF)


def optimize(f: vioc.MidpointVI, cost: vioc.control.Cost, guess: tuple[np.ndarray, np.ndarray]) -> Result:
    """Whether it converged is a claim."""
    return vioc.control.optimize(f, cost, guess, raise_on_failure=False)


def iterate(f: vioc.MidpointVI, cost: vioc.control.Cost, guess: tuple[np.ndarray, np.ndarray]) -> Result:
    """Two iterations of Newton's method from a guess."""
    return vioc.control.optimize(
        f,
        cost,
        guess,
        method="projection",
        warmup=0,
        tolerance=1e-15,
        max_iterations=2,
        raise_on_failure=False,
    )


def refine(report: Report, best: Result) -> list[Result]:
    """The optimum at other steps, each found from the one at DT."""
    results, costs = [], []
    for dt in STEPS:
        f = vioc.MidpointVI(vioc.models.load("cart_pole"), dt)
        t = dt * np.arange(round(DURATION / dt) + 1)
        run = best.trajectory
        X = np.column_stack([np.interp(t, run.t, column) for column in run.x.T])
        U = run.u[np.minimum((t[:-1] / DT + 1e-9).astype(int), len(run) - 1)]
        result = optimize(f, swing_up(f), (X, U))
        ends_weigh = [0.5 * sum(w * result.trajectory[n][k] ** 2 for n, w in Q.items()) for k in (0, -1)]
        results.append(result)
        costs.append(result.cost - dt / 2 * (ends_weigh[0] - ends_weigh[1]))

    def order(values: list[float]) -> float:
        steps = np.diff(values)
        return float(np.log2(steps[:-1] / steps[1:])[-1])

    limits = [(4 * b - a) / 3 for a, b in pairwise(costs)]
    report.measure(
        order=order(costs),
        order_sum=order([r.cost for r in results]),
        limit=limits[-1],
        limit_spread=abs(limits[-1] - limits[-2]),
    )
    return results


def attraction(report: Report, found: dict[str, Result], count: int) -> None:
    """Closed loop from disturbed starts: about the optimum until T, about upright afterwards."""
    best = found["linear"].trajectory
    f = vioc.MidpointVI(vioc.models.load("cart_pole"), DT, wrap=("theta",))
    hanging, upright = ends(f)
    regulator = vioc.control.dlqr(f, best, FEEDBACK_Q, FEEDBACK_R)
    assert isinstance(regulator, Regulator)
    regulator = regulator.hold(upright)
    late = replace(regulator, K=np.zeros_like(regulator.K))
    steps = len(best) + round(BALANCE / DT)
    disturbed = regulator.rollout(hanging + f.state({"x": 0.01}), len(best))
    Q = np.array([FEEDBACK_Q[name] for name in f.state_names])
    report.measure(gains=feedback_gap(disturbed, best, Q, [FEEDBACK_R]))
    rng = np.random.default_rng(0)
    boxes = [hanging[:2] + rng.uniform(-box, box, (STARTS, 2))[:count] for box in (BOX, WIDE)]

    def outcome(loop: Regulator, start: np.ndarray) -> tuple[vioc.Trajectory, bool]:
        run = loop.rollout(np.concatenate([start, hanging[2:]]), steps)
        return run, bool(np.abs(f.difference(upright, run.x[-1])).max() < GOAL)

    outcomes = [[outcome(regulator, start) for start in starts] for starts in boxes]
    if count == STARTS:
        report.measure(
            caught=sum(held for _, held in outcomes[0]),
            caught_open=sum(outcome(late, start)[1] for start in boxes[0]),
            caught_wide=sum(held for _, held in outcomes[1]),
        )
    draw(report, found, outcomes[0] + outcomes[1])


def draw(report: Report, found: dict[str, Result], outcomes: list[tuple[vioc.Trajectory, bool]]) -> None:
    """Convergence, the swing-up with its disturbed runs, and which starts are caught."""
    import matplotlib.pyplot as plt

    figure, ((convergence, force), (angle, region)) = plt.subplots(
        2, 2, figsize=(10, 7), layout="constrained"
    )
    for name, result in found.items():
        convergence.semilogy(result.history.iteration, result.history.cost, label=f"{name} guess")
    convergence.axhline(PUBLISHED, color="0.5", ls=":", lw=1, label=PEER)
    convergence.set(xlabel="iteration", ylabel="cost", title="Convergence")
    convergence.legend()

    best = found["linear"].trajectory
    force.stairs(best["u.force"], best.t, baseline=None, color="k", lw=1.5, label="force")
    force.set(xlabel="t (s)", ylabel="force (N)", title=f"Optimum, dt = {DT:g} s")

    colors = {True: "tab:blue", False: "tab:red"}
    for run, held in outcomes:
        angle.plot(run.t, run["theta"], color=colors[held], lw=0.5, alpha=0.5)
    angle.plot(best.t, best["theta"], color="k", lw=2, label="optimum")
    angle.axvline(DURATION, color="0.5", ls=":", lw=1)
    angle.set(xlabel="t (s)", ylabel="theta (rad)", title=f"Feedback from {len(outcomes)} disturbed starts")
    angle.set_ylim(-2.5 * np.pi, 2.5 * np.pi)
    angle.legend(loc="lower right")

    for held, mark in ((True, "o"), (False, "x")):
        starts = np.array([run.x[0, :2] for run, h in outcomes if h == held]).reshape(-1, 2)
        label = f"{'' if held else 'not '}upright 5 s after T ({len(starts)})"
        region.scatter(*starts.T, color=colors[held], marker=mark, s=18, label=label)
    region.plot(0, np.pi, "k+", ms=12, label="start of the optimum")
    low, size = (-BOX[0], np.pi - BOX[1]), 2 * BOX
    region.add_patch(plt.Rectangle(low, *size, fill=False, ls="--", color="0.4", label="box of the claim"))
    region.set(xlabel="x(0) (m)", ylabel="theta(0) (rad)", title="Which starts are caught")
    region.set_ylim(np.pi - 1.1 * WIDE[1], np.pi + 1.55 * WIDE[1])
    region.legend(loc="upper center", ncols=2, fontsize="small")
    for axes in (convergence, force, angle, region):
        axes.grid(alpha=0.3)
    report.save(figure)
    report.frame(best, np.linspace(0.0, DURATION, 10), title="The optimum")


if __name__ == "__main__":
    STUDY.main()
