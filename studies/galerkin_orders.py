"""Galerkin integrators: orders on a tree of seven joints, fifty random trees, time of a step over links.

The reference is DOP853 on the accelerations, which are not those of the integrator.
"""

from __future__ import annotations

import time
import warnings

import numpy as np

import vioc
from studies.harness import Claim, Report, Study, at_least, at_most
from studies.random_family import mechanisms

RULES = (("gauss", 2), ("gauss", 3), ("gauss", 4), ("lobatto", 3), ("lobatto", 4))
LINKS = (10, 20, 40)

STUDY = Study(
    __file__,
    "Galerkin integrators of order 4 to 8: slopes, random trees, time over links",
    slopes=Claim(
        "five rules, a driven damped tree of seven joints: slope less the order, largest", at_most(0.2)
    ),
    ends=Claim("random trees, 1 s at 10 ms: share of runs that end", at_least(0.98)),
    near=Claim("likewise, order 6: distance from DOP853 after 1 s, median", at_most(1e-6)),
    of_midpoint=Claim("likewise, the midpoint rule's: median", at_least(1e-5)),
    slope_error=Claim("likewise: A against differences of steps, largest, relative", at_most(1e-6)),
    linear=Claim(
        "compiled step of order 4, 40 links over four times 10",
        at_most(1.5),
        full_only=True,
    ),
    over_midpoint=Claim("likewise, 40 links: over the midpoint rule's step", at_most(6.0), full_only=True),
)


def tree() -> vioc.System:
    """Two arms of three joints on a turning column, with springs, dampers and inputs."""
    body = vioc.Mass(1.0, (0.02, 0.03, 0.01), (0.02, 0.0, -0.15))

    def arm(name: str) -> vioc.Frame:
        last = vioc.ry(f"{name}2", mass=body)
        return vioc.ry(f"{name}0", mass=body)[
            vioc.tz(-0.3)[vioc.rx(f"{name}1", mass=body)[vioc.tz(-0.3)[last]]]
        ]

    names = ["turn", *(f"{side}{i}" for side in ("left", "right") for i in range(3))]
    return vioc.System(
        vioc.rz("turn", mass=vioc.Mass(5.0, (0.1, 0.1, 0.2)))[
            vioc.tx(0.3)[arm("left")], vioc.tx(-0.3)[arm("right")]
        ],
        vioc.Gravity(0, 0, -9.81),
        *(vioc.JointDamping(name, 0.05) for name in names),
        *(vioc.JointForce(name, f"u-{name}") for name in names),
        name="two arms on a column",
    )


def slopes() -> tuple[float, dict[str, tuple[np.ndarray, np.ndarray]]]:
    """The largest |slope - order|, and (steps, errors) by rule."""
    system, duration = tree(), 0.5
    rng = np.random.default_rng(3)
    q0, u = rng.uniform(-1, 1, 7), rng.uniform(-1, 1, (2, 7))
    truth = vioc.reference_solution(system, q0, None, np.linspace(0, duration, 3), u, rtol=1e-13, atol=1e-13)
    worst, curves = 0.0, {}
    for points, s in RULES:
        f = vioc.GalerkinVI(system, 0.05, stages=s, points=points)
        counts = np.array({4: [40, 60, 80], 6: [20, 30, 40], 8: [12, 16, 20]}[f.order])
        errors = []
        for n in counts:
            run = f.rollout(f.initial_state(q0), np.repeat(u, n // 2, axis=0), dt=duration / n)
            errors.append(np.abs(run.x[-1, :7] - truth.q[-1]).max())
        slope = -np.polyfit(np.log(counts), np.log(errors), 1)[0]
        worst = max(worst, abs(slope - f.order))
        curves[f"{points} {s}, order {f.order}"] = counts, np.array(errors)
    return float(worst), curves


def family(count: int) -> dict[str, float]:
    ended, near, midpoint, slopes, tried = 0, [], [], [], 0
    for name, system, q0, v0 in mechanisms(2 * count):
        if not name.startswith("tree") or tried == count:
            continue
        tried += 1
        f, plain = vioc.GalerkinVI(system, 0.01), vioc.MidpointVI(system, 0.01)
        try:
            run = f.rollout(f.initial_state(q0, v0), steps=100, warn=False)
            truth = vioc.reference_solution(system, q0, v0, [0.0, 1.0]).q[-1]
            near.append(np.abs(run.x[-1, : f.nq] - truth).max())
            other = plain.rollout(plain.initial_state(q0, v0), steps=100, warn=False)
            midpoint.append(np.abs(other.x[-1, : f.nq] - truth).max())
        except (vioc.StepError, ValueError):
            continue
        ended += 1
        x, e = run.x[50], 1e-6
        A, u = f.linearize(x, np.zeros(f.nu)).A, np.zeros(f.nu)
        by = [(f.step(x + e * d, u) - f.step(x - e * d, u)) / (2 * e) for d in np.eye(f.nx)]
        slopes.append(np.abs(A - np.stack(by, axis=1)).max() / np.abs(A).max())
    return dict(
        ends=ended / tried,
        near=float(np.median(near)),
        of_midpoint=float(np.median(midpoint)),
        slope_error=float(max(slopes)),
    )


def microseconds(f: vioc.OneStepMap) -> float:
    x = f.initial_state({f.system.variables[0]: 0.5})  # type: ignore[attr-defined]
    f.rollout(x, steps=10, warn=False)
    best = np.inf
    for _ in range(5):
        begun = time.process_time()
        f.rollout(x, steps=200, warn=False)
        best = min(best, (time.process_time() - begun) / 200)
    return 1e6 * best


@STUDY.body
def run(report: Report) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        worst, curves = slopes()
        report.measure(slopes=worst, **family(8 if report.quick else 50))
        if not report.quick:
            times = {}
            for n in LINKS:
                plain = vioc.MidpointVI(vioc.models.load("n_link_pendulum", n), 0.01, backend="compiled")
                times[n] = microseconds(vioc.GalerkinVI(plain.system, plain.dt, stages=2, backend="compiled"))
                if n == 40:
                    beside = microseconds(plain)
            print(
                {n: round(t, 1) for n, t in times.items()}, "us a step; midpoint, 40 links:", round(beside, 1)
            )
            report.measure(linear=times[40] / times[10] / 4, over_midpoint=times[40] / beside)
    draw(report, curves)


def draw(report: Report, curves: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4.5), layout="constrained")
    for name, (counts, errors) in curves.items():
        axes.loglog(0.5 / counts, errors, "o-", label=name)
    axes.set(
        xlabel="step (s)", ylabel="error of q after 0.5 s (rad)", title="Two driven arms on a column, damped"
    )
    axes.grid(alpha=0.3, which="both")
    axes.legend()
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
