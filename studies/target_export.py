"""Four robots and thirty random mechanisms as C: exported, built, replayed, timed, beside CasADi's own C.

A Furuta pendulum from its data sheet with encoders and the steady filter, a cart-pole with an extended one, a
five-bar with its multipliers under table gains from encoders, an arm of seven joints with an extended filter
and gains along a trajectory. Each folder is built with warnings as errors, replays what Python recorded, and
is timed; the step's C is timed beside the C that CasADi writes of the same equations for its Newton solver.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import vioc
from studies.harness import Claim, Report, Study, at_least, at_most
from vioc import consistent_configuration
from vioc.compile import Backend
from vioc.control import Problem, dlqr, feedback, quadratic
from vioc.interop import step_functions
from vioc.models import mechanisms
from vioc.target import Target, write_target

STRICT = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic"]
MECHANISMS, QUICK_MECHANISMS = 30, 1
ROBOTS = {
    "furuta": "Furuta pendulum, encoders, steady filter",
    "cart": "cart-pole, extended filter",
    "five_bar": "five-bar, two multipliers, momenta from encoders, tables",
    "arm": "7-DOF arm, extended filter, tables",
}
PLANS = {  # text, microseconds that the feedback phase may take
    "cart_plan": ("cart-pole, NMPC of 40 steps, 80 N", 50.0),
    "arm_plan": ("7-DOF arm, NMPC of 30 steps, 40 N m", 1000.0),
}
QUICK = ("furuta", "five_bar")
FAST = ("-O3", "-march=native")  # of what receding horizons are built with, beside the flags of all
ROUGH = 2e-3  # of single precision, as the test programs have it


def claims(name: str, text: str) -> dict[str, Claim]:
    """Of one robot."""
    full, short = name not in QUICK, text.partition(",")[0]
    return {
        f"{name}_double": Claim(f"{text}: worst difference from Python", at_most(1e-10), full_only=full),
        f"{name}_single": Claim(f"{short}: the same in single precision", at_most(ROUGH), full_only=full),
        f"{name}_sample": Claim(
            f"{short}: output and advance, a sample in C, median", unit="us", full_only=full
        ),
        f"{name}_step": Claim(f"{short}: the step in C, median", unit="us", full_only=full),
        f"{name}_peer": Claim(
            f"{short}: the step by CasADi's Newton solver in CasADi's C", unit="us", full_only=True
        ),
        f"{name}_size": Claim(f"{short}: code and tables of the controller", unit="kB", full_only=full),
        f"{name}_operations": Claim(f"{short}: operations of a sample, at worst", full_only=full),
    }


def plan_claims(name: str, text: str, most: float) -> dict[str, Claim]:
    """Of a receding horizon."""
    return {
        f"{name}_double": Claim(f"{text}: worst difference from Python", at_most(1e-10), full_only=True),
        f"{name}_single": Claim(f"{text}: the same in single precision", full_only=True),
        f"{name}_output": Claim(f"{text}: feedback phase in C, median", at_most(most), "us", full_only=True),
        f"{name}_advance": Claim(f"{text}: preparation in C, median", unit="us", full_only=True),
        f"{name}_size": Claim(f"{text}: code and tables", unit="kB", full_only=True),
    }


STUDY = Study(
    __file__,
    "robots and random mechanisms as C: built without a warning, replayed, timed beside CasADi's C",
    random=Claim(
        f"of {MECHANISMS} random mechanisms, exported, built, and equal to 1e-10 over 50 steps",
        at_least(27),
        full_only=True,
    ),
    random_tried=Claim(f"of {QUICK_MECHANISMS} of them", at_least(QUICK_MECHANISMS)),
    random_worst=Claim("worst difference of those", at_most(1e-10)),
    **{key: c for name, text in ROBOTS.items() for key, c in claims(name, text).items()},
    **{key: c for name, told in PLANS.items() for key, c in plan_claims(name, *told).items()},
)


class Case(NamedTuple):
    """A closed loop and where it starts."""

    loop: feedback.ClosedLoop
    start: np.ndarray
    estimate: np.ndarray


def furuta() -> vioc.System:
    """Quanser's QUBE-Servo 2 by its data sheet; the pole stands up at 0."""
    resistance, constant = 8.4, 0.042
    (reach, arm), (length, pole) = (0.085, 0.095), (0.129, 0.024)
    rotor = 4e-6 + 0.5 * 0.0106 * 0.0111**2
    swing = vioc.rx("pole")[
        vioc.tz(length / 2, mass=vioc.Mass.rod(pole, length)), vioc.tz(length, name="tip")
    ]
    rod = vioc.Mass(arm, (1e-7, arm * reach**2 / 12, arm * reach**2 / 12))
    base = vioc.rz("arm", mass=vioc.Mass(1e-3, (rotor,) * 3))[
        vioc.tx(reach / 2, mass=rod), vioc.tx(reach)[swing]
    ]
    motor = vioc.UserForce(
        lambda k: {"arm": constant / resistance * (k.u("voltage") - constant * k.v("arm"))}, ("voltage",)
    )
    return vioc.System(base, vioc.Gravity(0, 0, -9.81), motor, name="furuta")


def five_bar() -> vioc.System:
    """Two driven cranks of 0.3 m, 0.3 m apart, and two couplers of 0.4 m that meet."""

    def side(name: str, tip: str) -> Any:
        bar = vioc.ry(f"{name}_coupler")[vioc.tz(0.2, mass=0.3), vioc.tz(0.4, name=tip)]
        return vioc.ry(f"{name}_crank")[vioc.tz(0.15, mass=0.4), vioc.tz(0.3)[bar]]

    motors = [vioc.JointForce(f"{s}_crank", f"torque_{s}") for s in ("left", "right")]
    meet = vioc.coincident("end", "tip", "xz", name="pin")
    sides = vioc.tx(-0.15)[side("left", "end")], vioc.tx(0.15)[side("right", "tip")]
    return vioc.System(*sides, vioc.Gravity(0, 0, -9.81), *motors, *meet, name="five_bar")


def cases(names: tuple[str, ...]) -> Iterator[tuple[str, Case]]:
    """The robots, one after another."""
    for name in names:
        yield name, {"furuta": held, "cart": balanced, "five_bar": closed, "arm": reaching}[name]()


def held() -> Case:
    """Upright at 500 Hz on encoders of 2048 counts, 10 V."""
    f = vioc.MidpointVI(furuta(), 0.002, wrap=("pole",))
    upright = feedback.equilibrium(f, arm=0.0, pole=0.0)
    law = dlqr(f, upright, {"arm": 5.0, "pole": 20.0, "v.arm": 0.05, "v.pole": 0.1}, 0.05)
    count = 2 * np.pi / 2048
    sensors = feedback.Measurement(f, {"arm": count**2 / 12, "pole": count**2 / 12})
    observer = feedback.kalman(f, upright, sensors, 1e-14, W_u=0.1)
    loop = feedback.ClosedLoop(f, law, observer, {"voltage": 10.0}, W_u=0.01)
    return Case(loop, f.state({"arm": 0.3, "pole": 0.1}), f.state({"arm": 0.3}))


def balanced() -> Case:
    """A cart-pole at 100 Hz, tilted more than the filter knows."""
    f = vioc.MidpointVI(vioc.models.load("cart_pole"), 0.01, wrap=("theta",))
    law = dlqr(f, feedback.equilibrium(f, theta=0.0), {"x": 20.0, "theta": 20.0}, 0.1)
    sensors = feedback.Measurement(f, {"x": (5e-4) ** 2, "theta": (2e-3) ** 2})
    observer = feedback.ExtendedKalmanFilter(f, sensors, 1e-10, W_u=0.04, P0=1e-2)
    loop = feedback.ClosedLoop(f, law, observer, {"force": 12.0}, W=1e-10, W_u=0.04)
    return Case(loop, f.state({"x": 0.2, "theta": 0.2}), f.state())


def closed() -> Case:
    """The five-bar along a swing under its torques, the momenta from two readings of all joints."""
    f = vioc.MidpointVI(five_bar(), 0.005)
    guess = {"left_crank": -0.8, "left_coupler": 1.2, "right_crank": 0.8, "right_coupler": -1.2}
    start = f.initial_state(consistent_configuration(f.system, guess))
    t = np.arange(100) * f.dt
    run = f.rollout(start, np.stack([0.3 * np.sin(9 * t), 0.2 * np.cos(7 * t)], axis=1))
    law = dlqr(f, run, {n: 1.0 if n.startswith("p.") else 50.0 for n in f.state_names}, 0.05, manifold=True)
    loop = feedback.ClosedLoop(
        f, law, feedback.ConfigurationObserver(f, 1e-10), dict.fromkeys(f.input_names, 5.0)
    )
    off = consistent_configuration(f.system, {k: v + 0.03 for k, v in guess.items()})
    return Case(loop, f.initial_state(off), f.initial_state(off))


def reaching() -> Case:
    """The arm along a motion, at 200 Hz, from angles alone."""
    f = vioc.MidpointVI(vioc.models.seven_joint_arm(), 0.005)
    start = f.initial_state({"q2": 0.3, "q4": 1.2, "q6": 0.6})
    t = np.arange(200) * f.dt
    hold = f.rest_input(start)
    run = f.rollout(start, hold + 2.0 * np.sin(3 * t)[:, None] * np.linspace(1.0, 0.1, 7))
    law = dlqr(f, run, {n: 1.0 if n.startswith("p.") else 300.0 for n in f.state_names}, 0.01)
    sensors = feedback.Measurement(f, {n: 1e-8 for n in f.system.variables})
    observer = feedback.ExtendedKalmanFilter(f, sensors, 1e-9, W_u=1e-3, P0=1e-4)
    loop = feedback.ClosedLoop(f, law, observer, {f"u.{n}": 60.0 for n in f.input_names}, W_u=1e-3)
    return Case(loop, start + 0.01 * np.eye(14)[1], start)


def planned(name: str) -> Case:
    """Real-time iteration: acados' cart-pole, and the arm to a pose."""
    if name == "cart_plan":
        f = vioc.MidpointVI(vioc.models.load("cart_pole"), 0.025)
        weights = {"x": 2e3, "theta": 2e3, "p.x": 0.02, "p.theta": 0.02}
        cost, steps, start = quadratic(f, Q=weights, R=0.02, Qf=weights), 40, f.state(theta=np.pi)
        bounds = {"u.force": 80.0}
    else:
        f = vioc.MidpointVI(vioc.models.seven_joint_arm(), 0.02)
        start = f.initial_state({"q2": 0.3, "q4": 1.2, "q6": 0.6})
        weights = {n: 1.0 if n.startswith("p.") else 100.0 for n in f.state_names}
        goal = dict.fromkeys(f.system.variables, 0.0) | {"q1": 0.5, "q2": 0.6, "q4": 1.0, "q6": 0.6}
        cost, steps = quadratic(f, Q=weights, R=1e-3, Qf=weights, goal=goal), 30
        bounds = {f"u.{n}": 40.0 for n in f.input_names}
    law = feedback.NonlinearMPC(Problem(f, cost, steps, bounds=bounds), native=True)
    return Case(feedback.ClosedLoop(f, law), start, start)


# -- building and replaying ----------------------------------------------------------------------------


class Measured(NamedTuple):
    """What a folder did."""

    passed: bool
    largest: float  # difference from Python, over the scale of each quantity
    times: dict[str, float]  # us, medians
    kilobytes: float

    @property
    def worst(self) -> float:
        """The largest difference; not a number where the test program did not pass."""
        return self.largest if self.passed else float("nan")


def built(written: Target, timed: bool, *level: str, calls: int = 100_000) -> Measured:
    """Build a folder, replay it, and time `calls` of its functions."""
    name, folder = written.name, written.folder
    object_file = folder / f"{name}.o"
    compiler, level = compiler_here(), level or ("-O2",)
    run = dict(capture_output=True, text=True, check=True)
    command = [compiler, *STRICT, *level, "-c", str(folder / f"{name}.c"), "-o", str(object_file)]
    subprocess.run(command, **run)
    texts = []
    for part in ("test", "time")[: 1 + timed]:
        program = folder / part
        source = [str(folder / f"{name}_{part}.c"), str(object_file)]
        flags = [*STRICT, *level, f"-DCALLS={calls}"]
        subprocess.run([compiler, *flags, *source, "-o", str(program), "-lm"], **run)
        texts.append(subprocess.run([str(program)], capture_output=True, text=True).stdout)
    worst = [float(w) for w in re.findall(r"worst difference (\S+)", texts[0])]
    passed = "FAILED" not in texts[0] and bool(worst)
    times = dict(re.findall(r"^(\w+) +median (\S+) us", texts[-1], re.M)) if timed else {}
    return Measured(
        passed,
        max(worst, default=float("nan")),
        {n: float(v) for n, v in times.items()},
        object_file.stat().st_size / 1e3,
    )


def compiler_here() -> str:
    """The compiler's command."""
    found = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if found is None:
        raise RuntimeError("this study needs a C compiler: cc, gcc or clang")
    return found


def by_casadi(written: Target) -> float:
    """Time of a step in CasADi's C, compiled for this machine, us: the same states, 20 times over."""
    f, steps = written.map, written.records.steps
    program = Backend("compiled").program(lambda: step_functions(f)["step"], "step")
    rows = [np.tile(a, (20, 1)) for a in (steps.x0, steps.u, steps.t[:, None])]
    arguments = [*rows, np.array([f.dt]), f.theta]
    count, took = len(rows[0]), []
    for _ in range(5):
        before = time.perf_counter()
        x_next, _, error = program.map(arguments, count)
        took.append(time.perf_counter() - before)
    assert np.abs(x_next.reshape(count, -1) - np.tile(steps.x1, (20, 1))).max() < 1e-8
    assert error.max() < 1e-8
    return 1e6 * min(took) / count


@STUDY.body
def run(report: Report) -> None:
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, case in cases(QUICK if report.quick else tuple(ROBOTS)):
            rows.append(robot(report, Path(folder), name, case))
        if not report.quick:
            for name in PLANS:
                plan(report, Path(folder), name)
        random(report, Path(folder))
    draw(report, rows)


def robot(report: Report, folder: Path, name: str, case: Case) -> tuple[str, dict[str, float], int, float]:
    """Both precisions of one robot."""
    options = dict(estimate=case.estimate, step=True, noise=1)
    written = write_target(folder / name, case.loop, case.start, **options)
    double = built(written, timed=True)
    small = write_target(folder / f"{name}_single", case.loop, case.start, precision="single", **options)
    single = built(small, timed=False)
    operations = written.operations["output"].total + written.operations["advance"].total
    report.measure(
        **{
            f"{name}_double": double.worst,
            f"{name}_single": single.worst,
            f"{name}_sample": double.times["output"] + double.times["advance"],
            f"{name}_step": double.times["step"],
            f"{name}_size": double.kilobytes,
            f"{name}_operations": operations,
        }
    )
    if not report.quick:
        report.measure(**{f"{name}_peer": by_casadi(written)})
    return name, double.times, operations, double.kilobytes


def plan(report: Report, folder: Path, name: str) -> None:
    """A receding horizon in both precisions."""
    case = planned(name)
    double = built(write_target(folder / name, case.loop, case.start, steps=60), True, *FAST, calls=5000)
    small = write_target(folder / f"{name}_single", case.loop, case.start, steps=60, precision="single")
    report.measure(
        **{
            f"{name}_double": double.worst,
            f"{name}_single": built(small, False).largest,
            f"{name}_output": double.times["output"],
            f"{name}_advance": double.times["advance"],
            f"{name}_size": double.kilobytes,
        }
    )


def random(report: Report, folder: Path) -> None:
    """Maps of the random family: which can be exported, built, and are equal."""
    count = QUICK_MECHANISMS if report.quick else MECHANISMS
    worst, failed = [], []
    for m in mechanisms(count):
        f = vioc.MidpointVI(m.system, 0.005)
        name = m.name.replace(" ", "_")
        try:
            written = write_target(folder / name, f, f.initial_state(m.q, m.v), steps=50)
            found = built(written, False, "-O1").worst
        except (vioc.errors.StepError, subprocess.CalledProcessError) as error:
            failed.append(f"{m.name}: {error}")
            continue
        if found <= 1e-10:
            worst.append(found)
        else:
            failed.append(f"{m.name}: replay differs, {found:.1e}")
    for line in failed:
        print(line)
    report.measure(**{"random_tried" if report.quick else "random": len(worst)}, random_worst=max(worst))
    if not report.quick:
        report.measure(random_tried=min(len(worst), QUICK_MECHANISMS))


def draw(report: Report, rows: list[tuple[str, dict[str, float], int, float]]) -> None:
    """Time and size of the controllers over what they compute."""
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    names = [r[0].replace("_", "-") for r in rows]
    bottom = np.zeros(len(rows))
    for part in ("output", "advance"):
        values = np.array([r[1][part] for r in rows])
        left.bar(names, values, bottom=bottom, label=part, width=0.6)
        bottom += values
    left.set(yscale="log", ylabel="time in C (us)", title="A sample, median", ylim=(0.01, None))
    left.legend()
    right.loglog([r[2] for r in rows], [r[3] for r in rows], "o")
    for name, _, operations, size in rows:
        right.annotate(name.replace("_", "-"), (operations, size), xytext=(5, 5), textcoords="offset points")
    right.set(xlabel="operations of a sample, at worst", ylabel="object file (kB)", title="Size")
    for axes in (left, right):
        axes.grid(alpha=0.3)
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
