"""No steady error with 10 % wrong masses: estimated disturbances, in a five-bar, an arm, random mechanisms.

The plants are 10 % heavier than the models that law and observer are designed on; encoders of 4096 counts on
the motors alone, noise on the torques. Plain feedback from an extended filter stands off by what gravity does
to the missing mass; with a disturbance of every motor's torque as a state, taken off the command, it does
not. The second part counts from how many wrong starts filters find the motion of random mechanisms.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import vioc
from studies import arm_reaching
from studies.harness import Claim, Report, Study, at_least, at_most, near
from vioc.control import dlqr, feedback
from vioc.models import mechanism
from vioc.models.arm import MASSES

HEAVIER = 1.1
COUNTS = 4096
NOISE = 1e-2  # N m, rms of every torque
BAR_DT, ARM_DT = 0.01, 0.02  # s
DURATION, LAST = 3.0, 1.0  # s, of a run, and of what is called steady
FAMILY, BY_HORIZON = 40, 8  # random mechanisms, and how many of them the moving horizon is tried on
FAMILY_DT, SECONDS, READ = 0.01, 1.0, 1e-3  # s, s, rad or m: noise of every coordinate
WRONG = 0.1, 1.0  # rad or m, per second: standard deviations of what a filter is told wrongly
FOUND = 5.0  # standard deviations, by the filter's own covariance, within which the end is found

STUDY = Study(
    __file__,
    "no steady error with 10 % wrong masses: five-bar and 7-DOF arm; filters on random mechanisms",
    bar_plain=Claim("five-bar, plain feedback: steady error of the point", near(7.0, 2.0), unit="mm"),
    bar_free=Claim("five-bar, disturbances estimated: steady error", at_most(0.5), unit="mm"),
    bar_worst=Claim("the worst sample of its last second", at_most(0.5), unit="mm"),
    bar_horizon=Claim(
        "by a moving horizon with bounds: steady error", at_most(0.5), unit="mm", full_only=True
    ),
    arm_plain=Claim("7-DOF arm, plain feedback: steady error of the tool", unit="mm"),
    arm_free=Claim("7-DOF arm, disturbances estimated: steady error", at_most(0.5), unit="mm"),
    arm_mass=Claim("the same with one mass in error, estimated as a parameter", at_most(0.5), unit="mm"),
    arm_found=Claim("that mass, estimated over true", near(1.0, 0.02)),
    family=Claim(f"of {FAMILY} random mechanisms, share found by the extended filter", full_only=True),
    family_horizon=Claim(f"of the first {BY_HORIZON}, share found by the moving horizon", full_only=True),
    family_same=Claim("of those, share found by the extended filter", full_only=True),
    few=Claim("of the first 3, found by the extended filter", at_least(2)),
    errors=Claim("of all runs, ended by an error"),
)


class Case(NamedTuple):
    """A model, its plant, the point to hold, and where motors and encoders are."""

    model: vioc.MidpointVI
    plant: vioc.MidpointVI
    rest: Any
    law: Any
    tool: tuple[str, ...]
    motors: tuple[str, ...]  # joints
    manifold: bool


def five_bar(heavier: float) -> vioc.MidpointVI:
    """Two legs of 0.3 and 0.5 m, pinned at their tips; motors at the base, which bear 1 kg each."""

    def leg(side: str, x: float) -> Any:
        lower = vioc.Mass(0.4 * heavier, (2e-3 * heavier,) * 3, (0, 0, 0.25))
        upper = vioc.Mass(0.6 * heavier, (4e-3 * heavier,) * 3, (0, 0, 0.15))
        knee = vioc.revolute(f"{side}2", "y", mass=lower)[vioc.tz(0.5, name=f"tip{side}")]
        return vioc.se3((x, 0, 0))[vioc.revolute(f"{side}1", "y", mass=upper)[vioc.tz(0.3)[knee]]]

    motors = vioc.JointForce("l1", "ul"), vioc.JointForce("r1", "ur")
    pin = vioc.coincident("tipl", "tipr", axes="xz", name="pin")
    system = vioc.System(leg("l", -0.1), leg("r", 0.1), vioc.Gravity(0, 0, -9.81), *pin, *motors, name="bar")
    return vioc.MidpointVI(system, BAR_DT)


def bar_case() -> Case:
    f, plant = five_bar(1.0), five_bar(HEAVIER)
    guess = {"l1": -0.1, "l2": 0.6, "r1": 1.0, "r2": -0.9}
    closed = vioc.consistent_configuration(f.system, guess)
    rest = feedback.equilibrium(f, l1=closed.q[0], r1=closed.q[2], guess=f.initial_state(closed))
    law = dlqr(f, rest, {"l1": 250.0, "r1": 250.0, "v.l1": 0.1, "v.r1": 0.1}, 1.0, manifold=True)
    return Case(f, plant, rest, law, ("tipl:x", "tipl:z"), ("l1", "r1"), True)


def arm(masses: tuple[float, ...]) -> vioc.System:
    """`vioc.models.seven_joint_arm` with other masses; that of the elbow as a parameter."""
    return vioc.models.seven_joint_arm([*masses[:3], vioc.P("elbow", masses[3]), *masses[4:]])


def arm_case() -> Case:
    f = vioc.MidpointVI(arm(MASSES), ARM_DT)
    plant = vioc.MidpointVI(arm(tuple(HEAVIER * m for m in MASSES)), ARM_DT)
    joints = f.state_names[:7]
    rest = feedback.equilibrium(f, **dict.fromkeys(joints, 0.0) | arm_reaching.START)
    law = dlqr(f, rest, arm_reaching.weights(f), 1e-3)
    return Case(f, plant, rest, law, ("tool:x", "tool:y", "tool:z"), joints, False)


class Estimator(NamedTuple):
    """Sensors and covariances of a map that may know more than the model."""

    sensors: feedback.Measurement
    W: dict[str, float]
    P0: dict[str, float]


def estimator(c: Case, g: Any, walk: dict[str, float]) -> Estimator:
    """Of the case's encoders; what `walk` names does so, and is not known at first."""
    own = c.model.state_names
    sensors = feedback.Measurement(g, c.motors, counts=dict.fromkeys(c.motors, COUNTS))
    momenta = {n: 1e-6 for n in own if n.startswith("p.")}  # what a torque of 0.2 N m does in 5 ms
    known = dict.fromkeys(own, 1e-6) | dict.fromkeys(walk, 1.0)
    return Estimator(sensors, dict.fromkeys(own, 1e-10) | momenta | walk, known)


def held(c: Case, law: Any, observer: Any, plant: Any = None) -> tuple[feedback.LoopRun, np.ndarray]:
    """A run from the point to hold, and the tool's error over the last second (n, d), m."""
    plant = c.plant if plant is None else plant
    steps = round(DURATION / plant.dt)
    loop = feedback.ClosedLoop(plant, law, observer, W_u=NOISE**2)
    run = loop.simulate(c.rest.x, steps, noise=1)
    still = c.model.rollout(c.rest.x, c.rest.u, steps=1)
    apart = np.stack([run[n] - still[n][0] for n in c.tool], axis=1)
    return run, apart[-round(LAST / plant.dt) :]


def steady(apart: np.ndarray) -> float:
    """The mean error's length, mm."""
    return 1e3 * float(np.linalg.norm(apart.mean(axis=0)))


@STUDY.body
def run(report: Report) -> None:
    drawn = {}
    for name, c in {"bar": bar_case(), "arm": arm_case()}.items():
        e = estimator(c, c.model, {})
        plain = feedback.ExtendedKalmanFilter(c.model, *e[:2], P0=e.P0, manifold=c.manifold)
        g = feedback.ExtendedMap(c.model, disturbances=c.model.input_names)
        e = estimator(c, g, dict.fromkeys(g.constants, 1e-2))
        ekf = feedback.ExtendedKalmanFilter(g, *e[:2], P0=e.P0, manifold=c.manifold)
        law = feedback.OffsetFree(c.law, g)
        runs = {"plain": held(c, c.law, plain), "free": held(c, law, ekf)}
        drawn[name] = c, {key: found for key, (found, _) in runs.items()}
        report.measure(**{f"{name}_{key}": steady(apart) for key, (_, apart) in runs.items()})
        if name == "bar":
            report.measure(bar_worst=1e3 * np.linalg.norm(runs["free"][1], axis=1).max())
            if not report.quick:
                bounds = {n: 5.0 for n in g.constants}
                options = dict(P0=e.P0, bounds=bounds, manifold=True)
                horizon = feedback.MovingHorizon(g, e.sensors, 6, e.W, **options)
                report.measure(bar_horizon=steady(held(c, law, horizon)[1]))
        else:
            wrong_mass(report, c)
    family(report)
    draw(report, drawn)


def wrong_mass(report: Report, c: Case) -> None:
    """The elbow alone is heavier by half: its mass is a state, and the target is solved for."""
    g = feedback.ExtendedMap(c.model, parameters=["elbow"])
    e = estimator(c, g, {"param.elbow": 1e-8})
    plant = c.model.with_parameters(elbow=1.5 * c.model.parameters["elbow"])
    ekf = feedback.ExtendedKalmanFilter(g, *e[:2], P0=e.P0)
    found, apart = held(c, feedback.OffsetFree(c.law, g, hold=c.motors), ekf, plant)
    report.measure(arm_mass=steady(apart), arm_found=found.belief.x[-1] / plant.parameters["elbow"])


def family(report: Report) -> None:
    """Filters told a wrong start: how many end within 5 of their own standard deviations, and near."""
    count = 3 if report.quick else FAMILY
    by_filter = [finds(i, False) for i in range(count)]
    report.measure(few=by_filter[:3].count(1))
    ended = by_filter.count(-1)
    if not report.quick:
        by_horizon = [finds(i, True) for i in range(BY_HORIZON)]
        ended += by_horizon.count(-1)
        report.measure(
            family=by_filter.count(1) / count,
            family_same=by_filter[:BY_HORIZON].count(1) / BY_HORIZON,
            family_horizon=by_horizon.count(1) / BY_HORIZON,
        )
    report.measure(errors=ended)


def finds(index: int, horizon: bool) -> int:
    """1 where the motion of a mechanism is found from its coordinates, 0 where not, -1 for an error."""
    _, system, q, v = mechanism(index, joints=(2, 6))
    f = vioc.MidpointVI(system, FAMILY_DT)
    rng = np.random.default_rng([3, index])
    truth = f.initial_state(q, v)
    sensors = feedback.Measurement(f, f.mechanism.coordinates, READ**2)
    loops = bool(f.multiplier_names)
    told = np.array(q) + WRONG[0] * rng.standard_normal(len(q))
    try:
        told = f.initial_state(vioc.consistent_configuration(system, told).q if loops else told)
        spread = dict.fromkeys(f.state_names[: len(q)], WRONG[0] ** 2)
        P0 = spread | dict.fromkeys(f.state_names[len(q) :], WRONG[1] ** 2)
        options = dict(W=1e-9, P0=P0, manifold=loops)
        kind = feedback.MovingHorizon if horizon else feedback.ExtendedKalmanFilter
        observer = kind(f, sensors, **(dict(horizon=6) if horizon else {}), **options)
        belief = observer.start(told)
        run = f.rollout(truth, steps=round(SECONDS / FAMILY_DT), warn=False)
        for k in range(len(run)):
            belief = observer.correct(k, belief, sensors.sample(run.x[k], rng, k))
            if k < len(run) - 1:
                belief = observer.predict(k, belief, run.u[k])
    except (vioc.StepError, vioc.errors.OptimizationError):
        return -1
    error = f.difference(run.x[-2], belief.x)
    sigma = np.sqrt(np.maximum(np.diag(belief.P), 0.0))
    near_enough = np.abs(error[: len(q)]).max() < 10 * READ
    return int(near_enough and bool((np.abs(error) <= FOUND * sigma + 1e-6).all()))


def draw(report: Report, drawn: dict[str, Any]) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    for ax, (name, (c, runs)) in zip(axes, drawn.items(), strict=True):
        still = c.model.rollout(c.rest.x, c.rest.u, steps=1)
        for key, label in (("plain", "plain feedback"), ("free", "disturbances estimated")):
            r = runs[key]
            apart = np.linalg.norm([r[n] - still[n][0] for n in c.tool], axis=0)
            ax.semilogy(r.trajectory.t, 1e3 * apart + 1e-3, lw=0.8, label=label)
        ax.axhline(0.5, color="k", lw=1, ls="--", label="0.5 mm")
        ax.set(xlabel="t (s)", ylabel="error (mm)", title={"bar": "Five-bar", "arm": "7-DOF arm"}[name])
        ax.grid(alpha=0.3)
        ax.legend(fontsize="small")
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
