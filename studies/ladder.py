"""The ladder of carts with n poles: each swing-up is planned from the one before, then flown in closed loop.

A cart of 1 kg pushes n rods (0.5 m, 0.1 kg) from hanging to upright in 10 s, `nonuple-cartpole`'s problem:
minimize the sum per 4 ms of 1e-4 u^2 and 6e-4 |v|^2, v the rates of cart and absolute angles, |u| <= 100 N,
|x| <= 10 m, upright and at rest at the end, where the cart stands is free. There the plan with nine poles
took IPOPT 6571 s. Here it begins with the straight line and one pole; its plan with one more pole, along the
last one, is the guess of the next. Gaps are hard from the first iteration (softness 1e-8), since elastic ones
grow along motions that fall. Each plan, found with steps of 20 ms, is refined by the Runge-Kutta rule of
order 4 with steps of 4 ms, and followed by the time-varying regulator in a simulation with steps of 1 ms.

Closed loop: normal perturbations of 0.02 of every state while it hangs, seeded; a regulator brings it to rest
(at most 9 s), the swing-up is followed, and for 10 s it is held. Success: in the last 5 s all angles are
within 5 degrees, rates within 0.5, the cart within 2 m and 0.5 m/s. The motor gives at most 150 N.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

import vioc
from studies.frames import poses
from studies.harness import Claim, Report, Study, at_least, at_most
from vioc.compile import find_compiler
from vioc.compile.evaluate import Evaluator
from vioc.control import ClosedLoop, Cost, Problem, Result, dlqr, riccati, straight_line
from vioc.errors import OptimizationError, StepError

DURATION, COARSE, FINE, PLANT = 10.0, 0.02, 0.004, 0.001  # s; steps of plan, refined plan, simulation
HARD, ENOUGH = 1e-8, 1e-4  # softness; error at which a plan is one
TRIES = 25, 40  # iterations of a plan on the way, and of the last one
TRIALS, SEED, SPREAD = 24, 12345, 0.02
SETTLED, SETTLING, HOLD, JUDGED = 1.5e-3, 9.0, 10.0, 5.0  # of the closed loop; s
PUSH = 150.0  # N

STUDY = Study(
    __file__,
    "ladder of carts with n poles: each swing-up planned from the one before, and flown in closed loop",
    reached=Claim("poles of the last cart with a plan", at_least(9), published="9", full_only=True),
    five=Claim("processor time of the plans with one to five poles", at_most(5.0), "s", full_only=True),
    nine=Claim(
        "of those with one to nine, steps of 20 ms",
        at_most(60.0),
        "s",
        published="6571 (steps of 4 ms)",
        source="nonuple-cartpole, IPOPT",
        full_only=True,
    ),
    refined=Claim("of refining the last plan to steps of 4 ms", unit="s", full_only=True),
    cost=Claim("its cost", at_most(47.484676), published="47.484676", full_only=True),
    left=Claim("largest gap of a refined plan", at_most(ENOUGH), published="1.13e-5"),
    flown=Claim(
        f"largest n from which on down {TRIALS} of {TRIALS} seeded starts end upright",
        at_least(9),
        published="9",
        source="plans anew for each start at n = 7 and 8",
        full_only=True,
    ),
    two=Claim("two poles: share of starts that end upright", at_least(1.0)),
    push=Claim("largest force there", at_most(PUSH), "N"),
)


class Rung(NamedTuple):
    """A plan with steps of 20 ms, its error, and its time; what it is when refined, and its largest gap."""

    plan: Result
    seconds: float
    fine: Result | None
    refining: float
    left: float = np.nan


@STUDY.body
def run(report: Report) -> None:
    top = 2 if report.quick else 9
    rungs: list[Rung] = []
    flown, push, shares, shown = top - 1 if report.quick else 0, 0.0, [], None  # in quick form the last alone
    print(HEAD)
    for n in range(1, top + 1):
        found = climb(n, rungs[-1].plan if rungs else None, TRIES[n == top])
        rungs.append(found)
        share, most, run_of_it = 0.0, np.nan, None
        if found.fine and n > flown:
            share, most, run_of_it = fly(n, found.fine, 2 if report.quick else TRIALS)
        shares.append(share)
        print(row(n, found, share), flush=True)
        if share == 1 and flown == n - 1:
            flown, push, shown = n, max(push, most), run_of_it
    times = np.cumsum([r.seconds for r in rungs])
    good = [n for n, r in enumerate(rungs, 1) if r.fine is not None]
    left = max(r.left for r in rungs if r.fine is not None)
    report.measure(left=left, two=shares[1], push=push)
    if not report.quick:
        last = rungs[-1].fine
        report.measure(
            reached=max(good),
            flown=flown,
            five=times[4],
            nine=times[8],
            refined=rungs[-1].refining,
            cost=curve_cost(last) if last else np.nan,
        )
    draw(report, rungs, shown)


# -- plans ----------------------------------------------------------------------------------------------


def cart(n: int) -> vioc.System:
    below: tuple[Any, ...] = ()
    for i in reversed(range(n)):
        rod = vioc.Mass(0.1, (0.1 * 0.5**2 / 12, 0.1 * 0.5**2 / 12, 1e-6), (0.0, 0.0, 0.25))
        turn = vioc.revolute(f"q{i}", "y", mass=rod)
        below = (turn[vioc.tz(0.5)[below]] if below else turn,)
    return vioc.System(
        vioc.tx("x", mass=1.0)[below],
        vioc.Gravity(0, 0, -9.81),
        vioc.JointForce("x", "force"),
        name=f"cart with {n} poles",
    )


def problem(f: vioc.OneStepMap, n: int) -> Problem:
    """Weights per 4 ms are weights of an integral."""
    v = [f.quantity(f"v.{name}") for name in f.system.variables]
    rates = ca.vertcat(v[0], ca.cumsum(ca.vertcat(*v[1:])))  # joints are relative
    cost = Cost(f, (1e-4 * ca.sumsqr(f.symbols.u) + 6e-4 * ca.sumsqr(rates)) / 4e-3)
    final = {name: 0.0 for name in f.state_names if name != "x"}
    steps = round(DURATION / f.dt)
    return Problem(f, cost, steps, bounds={"u.force": 100.0, "x": 10.0}, final=final)


def hanging(f: vioc.OneStepMap) -> np.ndarray:
    return f.initial_state({"q0": np.pi})


def states(f: vioc.OneStepMap, Q: np.ndarray, dt: float) -> np.ndarray:
    """Of a map, at rest at both ends, with the rates of a curve of configurations."""
    V = np.gradient(Q, dt, axis=0)
    V[[0, -1]] = 0.0
    names = f.system.variables
    pairs = zip(Q, V, strict=True)
    return np.array(
        [
            f.initial_state(dict(zip(names, q, strict=True)), dict(zip(names, v, strict=True)))
            for q, v in pairs
        ]
    )


def climb(n: int, below: Result | None, tries: int) -> Rung:
    """The plan with n poles from that with n - 1, and what it is with shorter steps."""
    f = vioc.MidpointVI(cart(n), COARSE, backend="compiled" if find_compiler() else "virtual")
    p = problem(f, n)
    if below is None:
        guess = straight_line(hanging(f), f.initial_state(), p.steps), np.zeros((p.steps, 1))
    else:
        X, U = curve(below)
        guess = states(f, np.hstack([X[:, :n], np.zeros((len(X), 1))]), COARSE), U
    before = time.process_time()
    options = dict(tolerance=ENOUGH, softness=HARD, raise_on_failure=False)
    plan = p.solve(hanging(f), guess, max_iterations=tries, **options)
    seconds = time.process_time() - before
    X, U = curve(plan)
    fine = vioc.RungeKutta(cart(n), FINE, "rk4")
    again = problem(fine, n)
    t, nodes = FINE * np.arange(again.steps + 1), COARSE * np.arange(len(X))
    Q = np.column_stack([np.interp(t, nodes, column) for column in X[:, : n + 1].T])
    guess = states(fine, Q, FINE), np.repeat(U, round(COARSE / FINE), axis=0)
    before = time.process_time()
    try:
        refined = again.solve(hanging(fine), guess, max_iterations=40, **options)
    except (OptimizationError, StepError):
        return Rung(plan, seconds, None, time.process_time() - before)
    refining = time.process_time() - before
    if not refined.error <= ENOUGH:
        return Rung(plan, seconds, None, refining)
    return Rung(plan, seconds, refined, refining, gap(refined))


def gap(result: Result) -> float:
    """The largest that the curve of a search leaves between steps."""
    f, (X, U) = result.trajectory.map, curve(result)
    return float(np.abs(step_of(f)(X[:-1], U)[0][..., 0] - X[1:]).max())


def step_of(f: Any) -> Evaluator:
    """The explicit step of a map, of many states and inputs at once."""
    x, u = f.symbols.x, f.symbols.u
    return Evaluator(ca.Function("step", [x, u], [f.explicit(x, u, 0, f.dt, f.theta)[0]]))


def curve(result: Result) -> tuple[np.ndarray, np.ndarray]:
    """What the search came to: of a motion that falls, its rollout is another."""
    return result.curve or (result.trajectory.x, result.trajectory.u)


# -- closed loop ----------------------------------------------------------------------------------------


def fly(n: int, plan: Result, trials: int) -> tuple[float, float, Any]:
    """Share of starts from which it ends upright, the largest force of these, and one of their motions."""
    plant = vioc.RungeKutta(cart(n), PLANT, "rk4")
    Q, R = weights(n, 1.0, 80.0, 1.0, 5.0), 0.02
    X, U = curve(plan)
    top = dlqr(plant, (plant.initial_state(), np.zeros(1)), PLANT * Q, PLANT * R)
    # the plan by steps of 1 ms: a curve with seams as small as the rule's error over one of its steps
    each = round(FINE / PLANT)
    dense_U = np.repeat(U, each, axis=0)
    step, pieces = step_of(plant), [X[:-1]]
    for _ in range(each - 1):
        pieces.append(step(pieces[-1], U)[0][..., 0])
    dense = np.stack(pieces, axis=1).reshape(-1, plant.nx)
    along = plant.derivatives.linearize(plant.steps_at(dense, dense_U))
    swing, _ = riccati(along.A, along.B, PLANT * Q, [[PLANT * R]], top.P)
    low = dlqr(plant, (hanging(plant), np.zeros(1)), PLANT * weights(n, 200.0, 80.0, 50.0, 80.0), PLANT * R)
    good, most, shown = 0, 0.0, None
    for trial in range(trials):
        rng = np.random.default_rng((SEED, trial))
        try:
            x, pushed = settled(
                plant, low, hanging(plant) + relative(n) @ (SPREAD * rng.standard_normal(2 * n + 2))
            )
            up = plant.track(x, dense, dense_U, swing)
            steps = round(HOLD / PLANT)
            held = plant.track(
                up.x[-1],
                np.zeros((steps, plant.nx)),
                np.zeros((steps, 1)),
                np.tile(top.K, (steps, 1, 1)),
            )
        except StepError:
            continue
        pushed = max(pushed, np.abs(up.u).max(), np.abs(held.u).max())
        if pushed <= PUSH and upright(n, held.x[-round(JUDGED / PLANT) - 1 :]):
            good, most, shown = good + 1, max(most, float(pushed)), up
    return good / trials, most, shown


def weights(n: int, x: float, angle: float, v: float, rate: float) -> np.ndarray:
    """Of cart, absolute angles and their rates, for the plant's relative ones."""
    T = np.linalg.inv(relative(n))
    return T.T @ np.diag([x, *[angle] * n, v, *[rate] * n]) @ T


def relative(n: int) -> np.ndarray:
    """What makes joints' angles and rates of absolute ones, (x, angles, v, rates)."""
    one = np.eye(n + 1)
    one[range(2, n + 1), range(1, n)] = -1.0
    return np.kron(np.eye(2), one)


def settled(plant: vioc.RungeKutta, low: Any, x: np.ndarray) -> tuple[np.ndarray, float]:
    """Where the regulator brings it that hangs, by half seconds, and with what force, cut at the motor's."""
    steps, most, there = round(0.5 / PLANT), 0.0, hanging(plant)
    for _ in range(round(SETTLING / 0.5)):
        run = plant.track(x, np.tile(there, (steps, 1)), np.zeros((steps, 1)), np.tile(low.K, (steps, 1, 1)))
        if np.abs(run.u).max() > PUSH:
            run = ClosedLoop(plant, low, bounds={"force": PUSH}).simulate(x, steps).trajectory
        x, most = run.x[-1], max(most, float(np.abs(run.u).max()))
        if np.abs(x - there)[1:].max() < SETTLED:
            break
    return x, most


def upright(n: int, x: np.ndarray) -> bool:
    z = x @ np.linalg.inv(relative(n)).T
    most = np.array([2.0, *[np.radians(5.0)] * n, 0.5, *[0.5] * n])
    return bool((np.abs(z) <= most).all())


# -- what is shown --------------------------------------------------------------------------------------


HEAD = "poles  iterations  cost      error     s      refined s  cost      gap      upright"


def row(n: int, r: Rung, share: float) -> str:
    fine = f"{curve_cost(r.fine):<9.5g} {r.left:.1e}" if r.fine else "none             "
    return (
        f"{n:5d}  {r.plan.iterations:10d}  {curve_cost(r.plan):<8.5g}  {r.plan.error:.1e}  "
        f"{r.seconds:5.1f}  {r.refining:9.1f}  {fine}  {share:.0%}"
    )


def curve_cost(result: Result) -> float:
    """Of the curve, which a rollout of its inputs leaves."""
    return float(result.history.cost[-1])


def draw(report: Report, rungs: list[Rung], shown: Any) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 2, figsize=(10, 7), layout="constrained")
    (angles, force), (seconds, motion) = axes
    last = rungs[-1]
    X, U = curve(last.fine or last.plan)
    dt = DURATION / len(U)
    t = dt * np.arange(len(X))
    for i, q in enumerate(np.cumsum(X[:, 1 : len(rungs) + 1], axis=1).T):
        angles.plot(t, q, lw=1, color=plt.cm.viridis(i / len(rungs)))
    angles.set(xlabel="t (s)", ylabel="absolute angles (rad)", title=f"Plan with {len(rungs)} poles")
    force.stairs(U[:, 0], t, baseline=None, color="k", lw=1)
    force.set(
        xlabel="t (s)", ylabel="force (N)", title=f"Its force; cost {curve_cost(last.fine or last.plan):.5g}"
    )
    n = np.arange(1, len(rungs) + 1)
    seconds.bar(n - 0.2, [r.seconds for r in rungs], 0.4, label="plan, steps of 20 ms")
    seconds.bar(n + 0.2, [r.refining for r in rungs], 0.4, label="refined, 4 ms")
    seconds.set(xlabel="poles", ylabel="processor time (s)", title="Searches")
    seconds.legend(fontsize="small")
    if shown is not None:
        poses(shown, np.linspace(0.0, shown.t[-1], 12), ax=motion)
        motion.set_title("In closed loop, from a perturbed start")
    for ax in (angles, force, seconds):
        ax.grid(alpha=0.3)
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
