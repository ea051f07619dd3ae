"""A cart-pole swung up and balanced from noisy encoders: filters, configurations, a delay, bounds.

Encoders of cart and pole are read at 100 Hz; the momenta are not measured. The motor's force is disturbed,
bounded, and may act one sample late (at 20 Hz; at 100 Hz that is hardly felt).
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import vioc
from studies.gains import steady_gap
from studies.harness import Claim, Report, Study, at_most, near
from vioc.control import feedback

DT = 0.01  # s
BALANCE = 6.0  # s
SLOW, LATE = 0.05, 2.0  # s, sampling and duration of the loop with a delay
ENCODERS = {"x": (5e-4) ** 2, "theta": (2e-3) ** 2}  # m^2, rad^2
FORCE_NOISE = 0.2**2  # N^2
W = 1e-10
Q = {"x": 20.0, "theta": 20.0, "p.x": 1.0, "p.theta": 1.0}
R = 0.1
BOUND = 12.0  # N
RUNS, SAMPLED = 300, 150  # simulations, and the sample at which they are compared

STUDY = Study(
    __file__,
    "a cart-pole balanced from noisy encoders: filters, delay, bounds, and a swing-up with a filter",
    exact=Claim(
        "feedback from two configurations against the state law, without noise: command over gain",
        at_most(1e-12),
        published="equal",
        source="[S] II",
    ),
    gains=Claim("steady gains against the limit of a second Riccati recursion, relative", at_most(1e-6)),
    fed=Claim("inputs of the closed loop against those gains, relative to the largest", at_most(1e-6)),
    predicted=Claim("predicted standard deviation of theta 1.5 s after standing still, LQG", unit="rad"),
    sampled=Claim(f"the same from {RUNS} simulations, over the predicted", near(1.0, 0.1), full_only=True),
    filter_rms=Claim("balance with the steady filter: rms of theta", at_most(0.02), unit="rad"),
    raw_rms=Claim("balance from two raw configurations: rms of theta", unit="rad"),
    filter_effort=Claim("with the filter: rms of the force", unit="N"),
    raw_effort=Claim("from raw configurations: rms of the force", unit="N"),
    delay_known=Claim("50 ms late, filter and law know it: rms of theta", at_most(0.03), unit="rad"),
    delay_unknown=Claim("50 ms late, law designed without: rms of theta", unit="rad"),
    end_filtered=Claim(
        "swing-up from encoders: largest error over the last second", at_most(0.1), unit="m, rad"
    ),
    clipped=Claim("swing-up: share of commands beyond the bound"),
    wall_regulator=Claim("regulator, clipped: farthest behind the wall", unit="m"),
    wall_horizon=Claim("receding horizon: farthest behind the wall", at_most(1e-3), unit="m"),
    horizon_ms=Claim("time of a sample of the receding horizon, 40 steps, median", unit="ms"),
)


@STUDY.body
def run(report: Report) -> None:
    f = vioc.MidpointVI(vioc.models.load("cart_pole"), DT, wrap=("theta",))
    upright = feedback.equilibrium(f, theta=0.0)
    loop = vioc.control.dlqr(f, upright, Q, R)
    sensors = feedback.Measurement(f, ENCODERS)
    exact(report, f, upright, loop)
    balanced = balance(report, f, upright, loop, sensors)
    swung = swing_up(report, f, upright, sensors)
    walls = wall(report, f, upright, loop)
    draw(report, balanced, swung, walls)


def rms(values: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(values))))


def exact(report: Report, f: Any, upright: Any, loop: Any) -> None:
    """Without noise, two configurations and the last force give the state."""
    start = upright.x + f.state({"x": 0.3, "theta": 0.2, "p.theta": 0.05})
    truth = feedback.ClosedLoop(f, loop).simulate(start, 200)
    seen = feedback.ClosedLoop(f, loop, feedback.ConfigurationObserver(f)).simulate(start, 200)
    weights = np.array([Q[name] for name in f.state_names])
    u = -f.difference(upright.x, truth.trajectory.x[:-1]) @ loop.K.T
    report.measure(
        gains=steady_gap(f, upright.x, upright.u, weights, [R], loop.K),
        fed=np.abs(truth.trajectory.u - upright.u - u).max() / np.abs(u).max(),
    )
    report.measure(exact=np.abs(truth.commands - seen.commands).max() / np.abs(loop.K).sum())


def balance(report: Report, f: Any, upright: Any, loop: Any, sensors: Any) -> dict[str, Any]:
    """Standing still under noise: what was predicted, what is found, and what a delay does."""
    steps = round((2.0 if report.quick else BALANCE) / DT)
    still = f.rollout(upright.x, upright.u, steps=steps)
    steady = feedback.kalman(f, upright, sensors, W, W_u=FORCE_NOISE)
    expected = feedback.covariance(still, 0.0, W, W_u=FORCE_NOISE, law=loop, observer=steady)
    report.measure(predicted=expected.std("theta")[SAMPLED])

    def closed(plant: Any, law: Any, observer: Any) -> feedback.ClosedLoop:
        noise = dict(W={n: W for n in f.state_names}, W_u=FORCE_NOISE)
        return feedback.ClosedLoop(plant, law, observer, bounds={"force": BOUND}, **noise)

    raw = feedback.ConfigurationObserver(f, ENCODERS)
    lqg = closed(f, loop, steady)
    runs = {
        "filter": lqg.simulate(upright.x, steps, noise=1),
        "raw": closed(f, loop, raw).simulate(upright.x, steps, noise=1),
    }
    for name, found in runs.items():
        report.measure(**{f"{name}_rms": rms(found["theta"]), f"{name}_effort": rms(found.commands)})

    slow = vioc.MidpointVI(f.system, SLOW, wrap=("theta",))
    late = feedback.DelayedMap(slow)
    rest = feedback.equilibrium(late, theta=0.0)
    stiff = R / 100
    knows = vioc.control.dlqr(late, rest, Q, stiff)
    naive = vioc.control.dlqr(slow, (rest.x[: slow.nx], rest.u), Q, stiff)
    its = feedback.Measurement(late, ENCODERS)
    few = round(LATE / SLOW)
    disturbances = {n: W for n in f.state_names} | {"pending.force": FORCE_NOISE}
    late_filter = feedback.kalman(late, rest, its, disturbances)
    runs["delay, known"] = closed(late, knows, late_filter).simulate(rest.x, few, noise=1)
    runs["delay, unknown"] = closed(late, naive, late_filter).simulate(rest.x, few, noise=1)
    report.measure(
        delay_known=rms(runs["delay, known"]["theta"]), delay_unknown=rms(runs["delay, unknown"]["theta"])
    )
    if not report.quick:
        rng = np.random.default_rng(0)
        ends = [lqg.simulate(upright.x, SAMPLED, noise=rng)["theta"][-1] for _ in range(RUNS)]
        report.measure(sampled=rms(np.array(ends)) / report.measured["predicted"])
    return runs


def swing_up(report: Report, f: Any, upright: Any, sensors: Any) -> tuple[Any, Any]:
    """Along an optimal swing-up with an extended filter, from a start that the filter does not know."""
    hanging = f.state(theta=np.pi)
    steps = round(2.0 / DT)
    weights = dict(
        Q={"x": 0.1, "theta": 0.1, "v.x": 0.01, "v.theta": 0.01},
        Qf={"x": 1e3, "theta": 1e3, "v.x": 1e2, "v.theta": 1e2},
    )
    plain = vioc.MidpointVI(f.system, DT)
    cost = vioc.control.quadratic(plain, R=0.01, **weights)
    guess = (vioc.control.straight_line(hanging, upright.x, steps), np.zeros((steps, 1)))
    best = vioc.control.optimize(plain, cost, guess).trajectory
    reference = f.rollout(hanging, best.u)
    regulator = vioc.control.dlqr(f, reference, {"x": 100.0, "theta": 100.0, "p.x": 1.0, "p.theta": 1.0}, 1.0)
    law = feedback.as_law(regulator.hold(upright.x))
    start = hanging + f.state({"x": 0.02, "theta": 0.1})
    ekf = feedback.ExtendedKalmanFilter(f, sensors, W, W_u=FORCE_NOISE, P0=1e-2)
    closed = feedback.ClosedLoop(f, law, ekf, bounds={"force": BOUND}, W=W, W_u=FORCE_NOISE)
    run = closed.simulate(start, steps + round(5.0 / DT), estimate=hanging, noise=2)
    last = run.trajectory.x[-round(1.0 / DT) :]
    report.measure(
        end_filtered=np.abs(f.difference(upright.x, last))[:, :2].max(), clipped=run.saturated.mean()
    )
    return run, reference


def wall(report: Report, f: Any, upright: Any, loop: Any) -> tuple[dict[str, Any], float]:
    """The cart goes back first, to tilt the pole: a wall stands 5 mm behind it."""
    start = upright.x + f.state({"x": -0.4})
    behind = -0.405
    steps = round((1.0 if report.quick else 3.0) / DT)
    horizon = feedback.LinearMPC(
        loop, 40, bounds={"force": BOUND, "x": (behind, None)}, soft={"x": (1e5, 2e5)}
    )
    times = []

    class Timed(feedback.Law):
        def __call__(self, k: int, x: np.ndarray) -> np.ndarray:
            before = time.perf_counter()
            u = horizon(k, x)
            times.append(time.perf_counter() - before)
            return u

    runs = {
        "regulator": feedback.ClosedLoop(f, loop, bounds={"force": BOUND}).simulate(start, steps),
        "horizon": feedback.ClosedLoop(f, Timed(), bounds={"force": BOUND}).simulate(start, steps),
    }
    report.measure(
        **{f"wall_{name}": max(behind - r["x"].min(), 0.0) for name, r in runs.items()},
        horizon_ms=1e3 * float(np.median(times)),
    )
    return runs, behind


def draw(report: Report, balanced: dict[str, Any], swung: tuple[Any, Any], walls: tuple[dict, float]) -> None:
    """Balance under noise, the swing-up with its estimate, and the wall."""
    import matplotlib.pyplot as plt

    figure, ((angle, force), (swing, error), (cart, push)) = plt.subplots(
        3, 2, figsize=(11, 10), layout="constrained"
    )
    for name, found in balanced.items():
        angle.plot(found.trajectory.t, found["theta"], lw=0.8, label=name)
        force.plot(found.trajectory.t[:-1], found.commands, lw=0.6, label=name)
    angle.set(xlabel="t (s)", ylabel="theta (rad)", title="Balance from encoders", ylim=(-0.04, 0.06))
    force.set(xlabel="t (s)", ylabel="force asked for (N)", title="What it takes", ylim=(-15, 22))
    run, reference = swung
    t = run.trajectory.t
    swing.plot(t, run["theta"], label="plant")
    swing.plot(t[:-1], run.estimates[:, 1], ls="--", label="extended filter")
    swing.plot(reference.t, reference["theta"], color="k", lw=1, ls=":", label="optimum")
    swing.set(xlabel="t (s)", ylabel="theta (rad)", title="Swing-up from an unknown start")
    sigma = np.sqrt(np.einsum("kii->ki", run.covariances))
    for i, color in ((0, "tab:blue"), (1, "tab:orange")):
        error.semilogy(t[:-1], np.abs(run.errors[:, i]), color=color, lw=0.5)
        error.semilogy(
            t[:-1], sigma[:, i], color=color, label=f"{run.trajectory.map.state_names[i]}, 1 sigma"
        )
    error.set(xlabel="t (s)", ylabel="error of the estimate (m, rad)", title="The filter's errors and belief")
    runs, behind = walls
    for name, found in runs.items():
        cart.plot(found.trajectory.t, found["x"], label=name)
        push.plot(found.trajectory.t[:-1], found.trajectory.u, label=name)
    cart.axhline(behind, color="k", lw=1, ls="--", label="wall")
    cart.set(xlabel="t (s)", ylabel="x (m)", title="A wall behind the cart", xlim=(0, 1), ylim=(-0.44, -0.2))
    push.set(xlabel="t (s)", ylabel="force (N)", title="Receding horizon against regulator", xlim=(0, 1))
    for axes in figure.axes:
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small", ncols=2 if axes in (angle, force) else 1)
    report.save(figure)
    report.frame(run.trajectory, np.linspace(0.0, 2.0, 9), title="Swing-up with the extended filter")


if __name__ == "__main__":
    STUDY.main()
