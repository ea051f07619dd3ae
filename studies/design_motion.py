"""Exciting motions of arms, found within limits by the slope of the information, beside Fourier motions.

Payload and frictions of the arm with seven joints of `arm_reaching`, which hangs here (open loops of one that
stands are unstable), from encoders that err by 0.1 mrad: motions of random harmonics, as large as the limits
of positions and velocities let them be, and the one that `design` makes of the middle one of them. Limits of
torques are the largest of any of the harmonic motions, so that no motion has more than the others. The
family: hanging arms of three joints with random axes, places and bodies, whose base parameters (all inertias
but those that nothing tells, and frictions) are to be known.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import vioc
from studies.arm_reaching import START
from studies.harness import Claim, Report, Study, at_most
from vioc import P
from vioc.errors import OptimizationError, StepError
from vioc.identification import Record, design, identify

DT, DURATION = 0.05, 3.0  # s
ENCODER = 1e-4  # rad
POSITION, VELOCITY = 1.5, 2.5  # rad about the start, rad/s
HARMONICS, MOTIONS = 3, 9
ARMS, ROUNDS, BRIEF, RECORDS = 12, 10, 2, 8
BODY = ("mass", "x", "y", "z", "Ixx", "Iyy", "Izz", "Ixy", "Ixz", "Iyz")

STUDY = Study(
    __file__,
    "exciting motions of arms within limits, designed, beside random Fourier motions",
    middle=Claim(
        "7 joints, payload and frictions: mean deviation, designed over the middle motion", at_most(0.9)
    ),
    best=Claim(f"the same over the best of {MOTIONS} harmonic motions"),
    limits=Claim("largest share of limits in the designed motion", at_most(1 + 1e-6)),
    seconds=Claim("processor time of the design", unit="s"),
    believed=Claim(
        f"errors of {RECORDS} identifications over the deviations promised, root mean square",
        at_most(1.3),
        full_only=True,
    ),
    family=Claim("random arms, base parameters: mean deviation over the best motion's, median"),
    family_middle=Claim("the same over the middle motion's", at_most(1.0)),
    family_worse=Claim("arms whose design tells less than the middle motion", at_most(0)),
    family_failed=Claim("arms without a design: no motion within the limits was found"),
    family_count=Claim("arms"),
)


@STUDY.body
def run(report: Report) -> None:
    f = vioc.MidpointVI(carrying(), DT)
    names, noise = list(f.parameters), {q: ENCODER**2 for q in f.system.variables}
    runs, limits = harmonics(f, START, 7)
    tell, middle = telling(f, names, runs, noise)
    began = time.process_time()
    plan = design(
        f, names, runs[middle], noise, bounds=limits, max_iterations=BRIEF if report.quick else ROUNDS
    )
    report.measure(
        seconds=time.process_time() - began,
        middle=shrunk(plan, tell[middle]),
        best=shrunk(plan, tell.max()),
        limits=share(plan.trajectory, limits),
    )
    print(plan)
    if not report.quick:
        report.measure(believed=believed(f, plan, names, noise))
    family(report)
    draw(report, plan, runs[middle])


def carrying() -> vioc.System:
    """The arm with a payload and friction whose numbers are asked for."""
    moments = tuple(P(n, v) for n, v in (("Ixx", 4e-3), ("Iyy", 5e-3), ("Izz", 3e-3)))
    centre = tuple(P(n, v) for n, v in (("x", 0.02), ("y", -0.01), ("z", 0.03)))
    payload = vioc.tz(0.05, name="payload", mass=vioc.Mass(P("mass", 0.8), moments, centre))
    rubs = [vioc.JointDamping(f"q{i}", P(f"rub{i}", 0.4)) for i in range(1, 8)]
    arm = vioc.models.seven_joint_arm()
    whole = vioc.System(*arm.frames, vioc.Gravity(0, 0, 9.81), *arm.forces)
    return whole.attached("tool", payload).with_components(*rubs)


def harmonics(f: Any, start: dict[str, float], seed: int) -> tuple[list[Any], dict[str, Any]]:
    """Motions from rest at a start, each as large as its limits let it be, and limits that hold for all."""
    rng, t = np.random.default_rng(seed), DT * np.arange(round(DURATION / DT) + 1)
    q0 = np.array([start.get(n, 0.0) for n in f.system.variables])
    w = 2 * np.pi * np.arange(1, HARMONICS + 1) / DURATION
    runs = []
    for _ in range(MOTIONS):
        A = rng.standard_normal((len(q0), HARMONICS)) / np.arange(1, HARMONICS + 1)
        q, v = (1 - np.cos(np.outer(t, w))) @ A.T, (np.sin(np.outer(t, w)) * w) @ A.T
        size = 0.95 / np.maximum(np.abs(q).max(axis=0) / POSITION, np.abs(v).max(axis=0) / VELOCITY)
        x0 = f.initial_state(q0)
        runs.append(f.rollout(x0, f.inverse_dynamics(q0 + q * size, x0)[1]))
    limits: dict[str, Any] = {f"v.{n}": VELOCITY for n in f.system.variables}
    limits |= {n: (c - POSITION, c + POSITION) for n, c in zip(f.system.variables, q0, strict=True)}
    most = np.max([np.abs(r.u).max(axis=0) for r in runs], axis=0)
    limits |= {f"u.{n}": float(u) for n, u in zip(f.input_names, most, strict=True)}
    return runs, limits


def telling(f: Any, names: list[str], runs: list[Any], noise: dict[str, float]) -> tuple[np.ndarray, int]:
    """What each motion tells, and which is in the middle."""
    tell = np.array([volume(design(f, names, r, noise, max_iterations=0)) for r in runs])
    return tell, int(np.argsort(tell)[len(tell) // 2])


def volume(plan: Any) -> float:
    """Mean logarithm of relative information's eigenvalues."""
    S = plan.scale
    return float(np.linalg.slogdet(plan.information * np.outer(S, S))[1] / len(S))


def shrunk(plan: Any, before: float) -> float:
    """Geometric mean of deviations along principal directions, over another motion's."""
    return float(np.exp(-0.5 * (volume(plan) - before)))


def share(run: Any, limits: dict[str, Any]) -> float:
    found = []
    for name, limit in limits.items():
        low, high = limit if isinstance(limit, tuple) else (-limit, limit)
        found.append(np.abs(run[name] - 0.5 * (low + high)).max() / (0.5 * (high - low)))
    return float(max(found))


def believed(f: Any, plan: Any, names: list[str], noise: dict[str, float]) -> float:
    """Errors of estimates from noisy records of the designed motion, in the deviations that it promises."""
    run, off = plan.trajectory, []
    for seed in range(RECORDS):
        rng = np.random.default_rng([5, seed])
        y = {q: run[q] + ENCODER * rng.standard_normal(len(run.t)) for q in noise}
        one = Record(run.t, y, {n: run.u[:, i] for i, n in enumerate(f.input_names)})
        begin = {n: v * (1 + rng.uniform(-0.2, 0.2)) for n, v in f.parameters.items()}
        found = identify(f, one, names, values=begin, noise=noise)
        off += [(found[n] - v) / plan.std[n] for n, v in f.parameters.items()]
    return float(np.sqrt(np.mean(np.square(off))))


# -- the family -----------------------------------------------------------------------------------------


def random_arm(rng: np.random.Generator) -> vioc.System:
    """Three joints about random axes; every body has all ten numbers, every joint rubs."""
    below: tuple[Any, ...] = (vioc.tz(0.1, name="tool"),)
    motors, axes = [], rng.permutation(["x", "y", "z"])
    for i in (2, 1, 0):
        size = rng.uniform(0.05, 0.15, 3)
        mass, com, second = rng.uniform(0.5, 3.0), rng.uniform(-0.05, 0.05, 3) + [0, 0, 0.12], size**2
        I = mass * (second.sum() - second)
        products = 0.1 * I.min() * rng.uniform(-1, 1, 3)
        values = dict(zip(BODY, (mass, *com, *I, *products), strict=True))
        m, x, y, z, *J = (P(f"{n}{i + 1}", float(v)) for n, v in values.items())
        turn = {"x": vioc.rx, "y": vioc.ry, "z": vioc.rz}[str(axes[i])]
        below = (vioc.tz(0.25)[turn(f"q{i + 1}", mass=vioc.Mass(m, tuple(J), (x, y, z)))[below]],)
        motors += [
            vioc.JointForce(f"q{i + 1}", f"u{i + 1}"),
            vioc.JointDamping(f"q{i + 1}", P(f"rub{i + 1}", 0.3)),
        ]
    return vioc.System(below, vioc.Gravity(0, 0, 9.81), motors)


def family(report: Report) -> None:
    best, middle, failed = [], [], 0
    for i in range(2 if report.quick else ARMS):
        rng = np.random.default_rng([31, i])
        f = vioc.MidpointVI(random_arm(rng), DT)
        noise = {q: ENCODER**2 for q in f.system.variables}
        start = dict(zip(f.system.variables, rng.uniform(-1, 1, 3), strict=True))
        try:
            runs, limits = harmonics(f, start, i)
            names = independent(f, runs[0], noise)
            tell, at = telling(f, names, runs, noise)
            rounds = BRIEF if report.quick else ROUNDS
            plan = design(f, names, runs[at], noise, bounds=limits, max_iterations=rounds)
        except (StepError, OptimizationError, ValueError) as error:
            print(f"arm {i}: {type(error).__name__}: {error}")
            failed += 1
            continue
        best.append(shrunk(plan, tell.max()))
        middle.append(shrunk(plan, tell[at]))
        print(f"arm {i}: {len(names)} parameters, {middle[-1]:.3f} of the middle, {best[-1]:.3f} of the best")
    report.measure(
        family=np.median(best),
        family_middle=np.median(middle),
        family_worse=sum(r > 1 for r in middle),
        family_failed=failed,
        family_count=len(middle) + failed,
    )


def independent(f: Any, run: Any, noise: dict[str, float]) -> list[str]:
    """Parameters that are told where the others are known: as many as there are base parameters."""
    lost, known = design(f, list(f.parameters), run, noise, max_iterations=0).unidentifiable, set()
    for i, direction in enumerate(lost):
        others = {n for j, d in enumerate(lost) if j != i for n in d.parts}
        known.add(next(n for n in direction.parts if n not in others))
    return [n for n in f.parameters if n not in known]


def draw(report: Report, plan: Any, before: Any) -> None:
    import matplotlib.pyplot as plt

    fig, axes = plt.subplots(1, 3, figsize=(12, 3), layout="constrained")
    for ax, motion, title in (
        (axes[0], before, "middle harmonic motion"),
        (axes[1], plan.trajectory, "designed"),
    ):
        ax.plot(motion.t, motion.x[:, :7])
        ax.set(xlabel="t (s)", ylabel="joints (rad)", title=title)
    at = np.arange(len(plan.std))
    for offset, std, label in ((-0.2, plan.std_before, "middle"), (0.2, plan.std, "designed")):
        axes[2].bar(at + offset, list(std.values()), 0.4, label=label)
    axes[2].set_xticks(at, list(plan.std), rotation=90)
    axes[2].set(yscale="log", ylabel="deviation")
    axes[2].legend()
    report.save(fig)


if __name__ == "__main__":
    STUDY.main()
