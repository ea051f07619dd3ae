"""A Furuta pendulum, from its data sheet to a swing-up on what its encoders count.

A 12 V motor with back-EMF turns the arm through a gear; the gear rubs (Coulomb's law, smoothed over 0.1
rad/s, and a viscous part), the pole's bearing a little. Arm and pole have encoders of 4096 counts a turn,
read at 500 Hz; nothing else is measured. The plant is not the model: its pole and its friction are off by up
to 10 %, its supply by up to 5 %, each start draws its own. An extended filter, or a moving horizon, estimates
the state and what the voltage lacks. The law damps the pole where it hangs, follows an optimal swing-up,
holds it upright, and begins again where it has lost it. The box of starts: arm and pole within 1 rad of
hanging, their rates within 1 and 3 rad/s.
"""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

import vioc
from studies.harness import Claim, Report, Study, at_least, at_most
from vioc.control import dlqr, feedback, quadratic

DT = 0.002  # s
SUPPLY = 12.0  # V
RESISTANCE, CONSTANT, GEAR = 2.2, 0.0105, 10.0  # Ohm, N m/A = V s/rad, turns of the motor per turn of the arm
ROTOR = 4e-6  # kg m^2
COULOMB, VISCOUS, BEARING, SMOOTH = 0.015, 1e-3, 5e-5, 0.1  # N m, N m s, N m s, rad/s
ARM, POLE = (0.15, 0.12), (0.24, 0.08)  # m, kg
COUNTS = 4096
BOX = {"arm": 1.0, "pole": 1.0, "v.arm": 1.0, "v.pole": 3.0}  # rad, rad/s, about hanging at rest
OFF = {"mass": 0.1, "coulomb": 0.1, "viscous": 0.1, "gain": 0.05}  # of the plant's parameters, relative
STARTS, DURATION = 100, 5.0  # s
FEW, BRIEF = 1, 3.6  # starts of the quick form, s
WATCHED, SHORT = 3, 4.2  # starts with the moving horizon, s
SAMPLES, ITERATIONS = 6, 2  # of the moving horizon
HELD = 0.05  # rad, of the pole over the last second
PLANNED = 9.0  # V, of the swing-up; what is left of 12 V is the feedback's

STUDY = Study(
    __file__,
    "a Furuta pendulum with a 12 V motor, gear, friction and encoders swings up at 500 Hz",
    held=Claim(
        f"of {STARTS} seeded starts in the box, upright within {HELD:g} rad over the last second",
        at_least(STARTS),
        full_only=True,
    ),
    tried=Claim("the same of the first start", at_least(1)),
    again=Claim("swing-ups that were begun again, of all starts"),
    last=Claim("the latest time at which a pole was upright and held", at_most(DURATION - 1), unit="s"),
    worst=Claim("worst pole angle over the last second", at_most(HELD), unit="rad"),
    drift=Claim("worst arm angle over the last second", at_most(0.2), unit="rad"),
    rates=Claim("error of the estimated rates, rms of arm and pole", at_most(0.5), unit="rad/s"),
    horizon=Claim(f"with the moving horizon: of {WATCHED} starts held", at_least(WATCHED), full_only=True),
    failures=Claim("samples of it that fell back on the extended filter", at_most(0), full_only=True),
    against=Claim("error of the rates, moving horizon over extended filter", at_most(1.2), full_only=True),
    filter_ms=Claim("a step of loop, plant and extended filter, mean", unit="ms"),
    horizon_ms=Claim("the same with the moving horizon", unit="ms", full_only=True),
)


def furuta() -> vioc.System:
    """Arm and pole; pole = 0 is upright. The input is the motor's voltage."""
    (reach, arm), (length, pole) = ARM, POLE
    mass = vioc.P("mass", pole)
    swing = vioc.rx("pole")[
        vioc.tz(length / 2, mass=vioc.Mass.rod(mass, length)), vioc.tz(length, name="tip")
    ]
    rotor = GEAR**2 * ROTOR
    body = vioc.Mass(arm, (1e-6, arm * reach**2 / 12, arm * reach**2 / 12), (0, 0, 0))
    turn = vioc.rz("arm", mass=vioc.Mass(1e-3, (rotor,) * 3))
    base = turn[vioc.tx(reach / 2, mass=body), vioc.tx(reach)[swing]]
    numbers = vioc.P("coulomb", COULOMB), vioc.P("viscous", VISCOUS), vioc.P("gain", 1.0)
    drive = vioc.UserForce(motor, ("voltage",), numbers)
    return vioc.System(base, vioc.Gravity(0, 0, -9.81), drive, name="furuta")


def motor(k: Any, coulomb: Any, viscous: Any, gain: Any) -> dict[str, Any]:
    """Torques: of the voltage less the back-EMF, through the gear, less friction; `gain` is of the supply."""
    v, turns = k.v("arm"), GEAR * CONSTANT
    drive = turns / RESISTANCE * (gain * k.u("voltage") - turns * v)
    return {"arm": drive - coulomb * ca.tanh(v / SMOOTH) - viscous * v, "pole": -BEARING * k.v("pole")}


class Task(NamedTuple):
    """Where the law is."""

    mode: str  # "settle", "swing" or "hold"
    since: int  # sample at which that began
    tried: int  # swing-ups so far


class SwingUp(feedback.Law):
    """Hangs the pole still, follows a swing-up, holds it upright; begins again where it is lost."""

    STILL = np.array([0.1, 0.05, 0.5, 0.5])  # rad, rad/s: arm, pole and their rates, to swing up from
    LOST = 0.7  # rad, of the pole from where it is to be
    PATIENCE = 4.0  # s of hanging it still, at most

    def __init__(self, laws: dict[str, Any], map: feedback.ExtendedMap):
        self.laws = {mode: feedback.OffsetFree(law, map) for mode, law in laws.items()}
        self.map = map
        f, names = map.inner, ("arm", "pole", "v.arm", "v.pole")
        g = ca.vertcat(*(f.quantity(n) for n in names))
        self.seen = ca.Function("seen", [f.symbols.x, f.symbols.parameters], [g])

    def start(self) -> Task:
        return Task("settle", 0, 0)

    def apply(self, k: int, x: np.ndarray, task: Task) -> tuple[np.ndarray, Task]:
        n, swing = self.map.inner.nx, self.laws["swing"].law
        if task.mode == "settle":
            now = np.abs(self.seen(x[:n], self.map.inner.theta).full()[:, 0] - [0, np.pi, 0, 0])
            if (now < self.STILL).all() or (k - task.since) * DT > self.PATIENCE:
                task = Task("swing", k, task.tried + 1)
        elif task.mode == "swing" and k - task.since >= len(swing.U):
            task = Task("hold", k, task.tried)
        law = self.laws[task.mode]
        i = k - task.since if task.mode == "swing" else 0
        away = self.map.inner.difference(law.law.X[i], x[:n])
        if task.mode != "settle" and abs(away[1]) > self.LOST:
            task, law, i = Task("settle", k, task.tried), self.laws["settle"], 0
        return law(i, x), task


class Design(NamedTuple):
    """The model, what is designed on it, and where it hangs."""

    f: vioc.MidpointVI
    law: SwingUp
    sensors: feedback.Measurement
    hanging: np.ndarray


WEIGHTS = {"arm": 5.0, "pole": 20.0, "v.arm": 0.1, "v.pole": 0.2}
W = {"arm": 1e-10, "pole": 1e-10, "p.arm": 1e-11, "p.pole": 1e-11, "disturbance.voltage": 1e-2}
P0 = {"arm": 1e-6, "pole": 1e-6, "p.arm": 1e-5, "p.pole": 1e-5, "disturbance.voltage": 1.0}


def design() -> Design:
    f = vioc.MidpointVI(furuta(), DT, wrap=("pole",))
    coarse = vioc.MidpointVI(furuta(), 5 * DT)
    upright, hanging = f.state(), f.state(pole=np.pi)
    cost = quadratic(coarse, Q={"arm": 0.5, "pole": 0.02}, R=0.02)
    steps = round(1.0 / coarse.dt)
    guess = vioc.control.straight_line(hanging, upright, steps), np.zeros((steps, 1))
    limits = {"u.voltage": PLANNED}
    best = vioc.control.optimize(coarse, cost, guess, bounds=limits, final=upright)
    run = f.rollout(hanging, np.repeat(best.u, 5, axis=0))
    laws = {
        "settle": dlqr(f, (hanging, [0.0]), WEIGHTS, 0.05),
        "swing": dlqr(f, run, WEIGHTS, 0.05),
        "hold": dlqr(f, (upright, [0.0]), WEIGHTS, 0.05),
    }
    g = feedback.ExtendedMap(f, disturbances=["voltage"])
    sensors = feedback.Measurement(g, ("arm", "pole"), counts={"arm": COUNTS, "pole": COUNTS})
    return Design(f, SwingUp(laws, g), sensors, hanging)


def loops(d: Design, seed: int) -> tuple[Any, np.ndarray]:
    """The plant and the start of a seed."""
    rng = np.random.default_rng([17, seed])
    off = {n: d.f.parameters[n] * (1 + rng.uniform(-by, by)) for n, by in OFF.items()}
    plant = d.f.with_parameters(**off)
    at = {n: rng.uniform(-size, size) for n, size in BOX.items()}
    q = {"arm": at["arm"], "pole": np.pi + at["pole"]}
    return plant, plant.initial_state(q, {n: at[f"v.{n}"] for n in q})


def simulate(d: Design, observer: Any, seed: int, duration: float = DURATION) -> feedback.LoopRun:
    """One start: the observer knows the angles to a count, and takes all to be at rest."""
    plant, x0 = loops(d, seed)
    told = d.f.state({"arm": x0[0], "pole": x0[1]})
    loop = feedback.ClosedLoop(plant, d.law, observer, {"voltage": SUPPLY}, W_u=0.1**2)
    return loop.simulate(x0, round(duration / DT), estimate=told, noise=seed)


class Outcome(NamedTuple):
    """What came of a start."""

    run: feedback.LoopRun
    held: bool
    pole: float  # rad, the worst of the last second
    arm: float
    rates: float  # rad/s, rms of the estimate's errors
    ms: float  # of a step


def outcome(d: Design, observer: Any, seed: int, duration: float) -> Outcome:
    before = time.process_time()
    run = simulate(d, observer, seed, duration)
    ms = 1e3 * (time.process_time() - before) / len(run)
    last = slice(-round(1 / DT), None)
    pole = np.abs(d.f.difference(d.f.state()[None], run.trajectory.x)[last, 1]).max()
    none = np.zeros((len(run) - 1, 0))
    guessed = vioc.Trajectory(d.f, run.t[:-1], run.estimates[:, : d.f.nx], run.u[:-1], none)
    apart = [guessed[f"v.{n}"] - run[f"v.{n}"][:-1] for n in ("arm", "pole")]
    rates = float(np.sqrt(np.mean(np.square(apart))))
    held = run.memory.mode == "hold" and bool(pole <= HELD)
    return Outcome(run, held, float(pole), float(np.abs(run["arm"][last]).max()), rates, ms)


@STUDY.body
def run(report: Report) -> None:
    d = design()
    noise = dict(W=W, W_u=0.1**2, P0=P0)
    ekf = feedback.ExtendedKalmanFilter(d.law.map, d.sensors, **noise)
    count, duration = (FEW, BRIEF) if report.quick else (STARTS, DURATION)
    found = [outcome(d, ekf, seed, duration) for seed in range(count)]
    report.measure(
        tried=found[0].held,
        again=sum(o.run.memory.tried - 1 for o in found),
        last=max(DT * o.run.memory.since for o in found),
        worst=max(o.pole for o in found),
        drift=max(o.arm for o in found),
        rates=np.sqrt(np.mean([o.rates**2 for o in found])),
        filter_ms=np.median([o.ms for o in found]),
    )
    if not report.quick:
        options = dict(horizon=SAMPLES, max_iterations=ITERATIONS)
        mhe = feedback.MovingHorizon(d.law.map, d.sensors, **noise, **options)
        horizon = [outcome(d, mhe, seed, SHORT) for seed in range(WATCHED)]
        same = [outcome(d, ekf, seed, SHORT) for seed in range(WATCHED)]
        report.measure(
            held=sum(o.held for o in found),
            horizon=sum(o.held for o in horizon),
            failures=sum(o.run.belief.failures for o in horizon),
            against=np.linalg.norm([o.rates for o in horizon]) / np.linalg.norm([o.rates for o in same]),
            horizon_ms=np.median([o.ms for o in horizon]),
        )
    draw(report, found)


def draw(report: Report, found: list[Outcome]) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(12, 4), layout="constrained")
    for o in found[:20]:
        t = o.run.t
        axes[0].plot(t, np.unwrap(o.run["pole"]), lw=0.6)
        axes[1].plot(t[:-1], o.run.u[:, 0], lw=0.4)
    o = found[0]
    axes[2].plot(o.run.t[:-1], o.run.estimates[:, -1], lw=0.8)
    axes[0].set(xlabel="t (s)", ylabel="pole (rad)", title=f"{min(20, len(found))} starts")
    axes[1].set(xlabel="t (s)", ylabel="voltage (V)", title="What the motor is given")
    axes[2].set(xlabel="t (s)", ylabel="disturbance (V)", title="What the voltage is found to lack")
    for ax in axes:
        ax.grid(alpha=0.3)
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
