"""Robustness of the integrator in maximal coordinates to tolerances and small steps ([M] Fig. 10, 11).

Fig. 10: n-link pendulums on revolute joints, links of 1 m and 1 kg, 1000 steps of 0.01 s, with tolerances
1e-6, 1e-8, 1e-10, by the integrators of vioc. The start is ours, since [M] has none: straight, at rest, at 45
degrees. From the horizontal the chain's end whips around, and at this step every integrator gives up at much
the same time, tolerance or not; half the step is enough. vioc's solvers iterate until the correction is
rounding: a tolerance decides what is accepted and not where to stop.

The times of MaximalVI and LinearTimeVI are of compiled code, those of the others of CasADi's virtual machine.

Fig. 11: a uniform rod of scale s, mass s, length s^2, swings from pi/2 to -pi/2, steps scaled by s. The time
is the exact half period, 1.18034 times that of small angles, which [M] prints. At its end, where the rod
turns back, errors of phase enter squared; at its middle, where the rod hangs, they show. This part needs the
compiled core, which counts its iterations.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
from scipy.special import ellipk

from studies.harness import Claim, Report, Study, at_least, at_most, count_ticks, near
from studies.maximal_scaling import pendulum
from vioc import Composition, Gravity, LinearTimeVI, Mass, MaximalVI, MidpointVI, System, ry
from vioc.compile import find_compiler
from vioc.errors import StepError

G, DT, STEPS = 9.81, 0.01, 1000
TOLERANCES = (1e-6, 1e-8, 1e-10)
LINKS = {
    "MaximalVI": (5, 10, 20, 50, 100),
    "LinearTimeVI": (5, 10, 20, 50, 100),
    "MidpointVI": (5, 10, 20),
    "Composition, order 4": (5, 10, 20),
}
SCALES = (1.0, 0.5, 0.1)
FIG10, FIG11 = "[M] Fig. 10", "[M] Fig. 11"

STUDY = Study(
    __file__,
    "tolerances and small steps in maximal coordinates",
    completed=Claim(
        "MaximalVI: share of n and tolerances that complete 1000 steps", at_least(1), "", 1, FIG10
    ),
    tight=Claim("the same with a tolerance of 1e-12", at_least(1)),
    others=Claim("the other integrators: the same share", None, "", "less than 1", FIG10),
    growth=Claim("MaximalVI: time of a step, 100 links over 10", None, "", "linear", FIG10, full_only=True),
    beside=Claim("MaximalVI's time over that of LinearTimeVI, 10 links", None, "", "comparable", FIG10),
    whip=Claim("from the horizontal, 20 links: steps before MaximalVI gives up", None, full_only=True),
    whip_others=Claim("the same of LinearTimeVI and MidpointVI, the later one", None, full_only=True),
    whip_half=Claim(
        "from the horizontal, dt 0.005 s: share of 10 s that MaximalVI completes", at_least(1), full_only=True
    ),
    period=Claim("true period over that of small angles", near(1.18034, 1e-5)),
    reached=Claim(
        "smallest step over the half period at which all scales swing",
        at_most(2e-6),
        source=FIG11,
        full_only=True,
    ),
    order=Claim("order of the angle's error at the lowest point", near(2, 0.1)),
    order_given=Claim("the same with [M]'s start, V_-1 = V", near(1, 0.1), source="[M] 3.1"),
    order_end=Claim("order of the final angle's error", near(4, 0.2), source=FIG11),
    least=Claim("least error of the final angle, any scale", at_most(1e-7), "rad", "about 1e-4", FIG11),
    alike=Claim(
        "errors of the scales at equal scaled steps: largest ratio while above 1e-7 rad", at_most(1.05)
    ),
    iterations=Claim("mean iterations a step, largest", at_most(4), "", "2 to 5", FIG11),
    finer=Claim(
        "mean iterations at the smallest step over those at the largest", at_most(1.5), "", "grows", FIG11
    ),
)


@dataclass(frozen=True)
class Outcome:
    """Of a run: steps completed, and the processor time of one, s."""

    steps: int
    step_time: float


def build(name: str, n: int, dt: float, tolerance: float):
    system = pendulum(n, False)
    if name in ("MaximalVI", "LinearTimeVI"):
        kind = MaximalVI if name == "MaximalVI" else LinearTimeVI
        backend = "virtual" if find_compiler() is None else "compiled"
        return kind(system, dt, tolerance=tolerance, backend=backend)
    f = MidpointVI(system, dt, tolerance=tolerance)
    return f if name == "MidpointVI" else Composition(f, 4)


def swing(name: str, n: int, tolerance: float, angle: float = np.pi / 4, dt: float = DT) -> Outcome:
    """10 s from rest at `angle` from the vertical."""
    f = build(name, n, dt, tolerance)
    x, steps = f.initial_state({"q0": angle}), round(STEPS * DT / dt)
    f.rollout(x, steps=4, warn=False)  # builds what it needs
    before = time.process_time()
    try:
        f.rollout(x, steps=steps, warn=False)
    except StepError as error:
        return Outcome(error.k, np.nan)
    return Outcome(steps, (time.process_time() - before) / steps)


def tolerances(report: Report) -> dict:
    counts = {name: (ns[len(ns) // 2 - 1],) if report.quick else ns for name, ns in LINKS.items()}
    found = {
        (name, n, tol): swing(name, n, tol) for name, ns in counts.items() for n in ns for tol in TOLERANCES
    }

    def share(outcomes: list[Outcome]) -> float:
        return float(np.mean([o.steps == STEPS for o in outcomes]))

    def fastest(name: str, n: int) -> float:
        return min(found[name, n, tol].step_time for tol in TOLERANCES)

    own = [o for (name, _, _), o in found.items() if name == "MaximalVI"]
    report.measure(
        completed=share(own),
        tight=share([swing("MaximalVI", n, 1e-12) for n in counts["MaximalVI"]]),
        others=share([o for (name, _, _), o in found.items() if name != "MaximalVI"]),
        beside=fastest("MaximalVI", 10) / fastest("LinearTimeVI", 10),
    )
    if not report.quick:
        whips = [swing(name, 20, 1e-10, np.pi / 2).steps for name in list(LINKS)[:3]]
        half = swing("MaximalVI", 20, 1e-10, np.pi / 2, DT / 2)
        report.measure(
            growth=fastest("MaximalVI", 100) / fastest("MaximalVI", 10),
            whip=whips[0],
            whip_others=max(whips[1:]),
            whip_half=half.steps * DT / 2 / (STEPS * DT),
        )
    return found


def rod(s: float) -> MaximalVI:
    """A uniform rod of mass s and length s^2 on a hinge at its end; a is the angle from hanging."""
    J = s * s**4 / 12
    body = Mass(s, (J, J, 0.0), (0, 0, -(s**2) / 2))
    f = MaximalVI(System(ry("a", mass=body), Gravity(0, 0, -G)), DT, backend="compiled")
    f.step(f.initial_state())  # built once for all steps
    return f


def half_period(s: float) -> float:
    """From pi/2 to -pi/2: 2 K(1/2) sqrt(2 l / 3 g)."""
    return float(2 * ellipk(0.5) * np.sqrt(2 * s**2 / (3 * G)))


def half_swing(rod: MaximalVI, end: float, steps: int, start: str = "legendre") -> tuple[float, float, float]:
    """Errors of the angle at the lowest point and at the end, rad, and mean iterations a step."""
    dt = end / steps
    f = rod.with_dt(dt)
    x = f.initial_state({"a": np.pi / 2}, start=start)
    args = np.empty(0), x, np.zeros((steps, 0)), dt * np.arange(steps), np.full(steps, dt), f.tolerance
    states, _, _, _, counts = f.core.rollout(*args)
    if len(states) < steps:
        return np.nan, np.nan, np.nan
    lowest, end = (f.minimal(states[k])[0][0] for k in (steps // 2 - 1, steps - 1))
    return abs(lowest), abs(end + np.pi / 2), float(counts.mean())


def small_steps(report: Report) -> dict:
    numbers = 2 ** np.arange(3, 15 if report.quick else 20)
    rods = {s: rod(s) for s in SCALES}
    found = {s: np.array([half_swing(f, half_period(s), int(n)) for n in numbers]) for s, f in rods.items()}
    given = np.array([half_swing(rods[1.0], half_period(1.0), int(n), "given") for n in numbers])
    lowest, ends, iterations = np.moveaxis(np.stack(list(found.values())), 2, 0)
    some, visible = (numbers >= 64) & (numbers <= 1024), (ends > 1e-7).all(axis=0)

    def order(errors: np.ndarray) -> float:
        return -np.polyfit(np.log(numbers[some]), np.log(errors[some]), 1)[0]

    report.measure(
        period=half_period(1.0) / (np.pi * np.sqrt(2 / (3 * G))),
        order=order(lowest[0]),
        order_given=order(given[:, 0]),
        order_end=order(ends[0]),
        least=ends.min(axis=1).max(),
        alike=(ends.max(axis=0) / ends.min(axis=0))[visible].max(),
        iterations=iterations.max(),
        finer=(iterations[:, -1] / iterations[:, 0]).max(),
    )
    if not report.quick:
        report.measure(reached=1 / numbers[-1] if np.isfinite(ends).all() else np.nan)
    return {"numbers": numbers, "found": found, "given": given}


@STUDY.body
def run(report: Report) -> None:
    draw(report, tolerances(report), small_steps(report))


def draw(report: Report, runs: dict, swings: dict) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 3, figsize=(13, 7.5), layout="constrained")
    colors = dict(zip(LINKS, ("C0", "C3", "C1", "C2"), strict=True))
    for ax, tol in zip(axes[0], TOLERANCES, strict=True):
        for name, color in colors.items():
            points = [
                (n, 1e3 * STEPS * o.step_time) for (m, n, t), o in runs.items() if (m, t) == (name, tol)
            ]
            ax.loglog(*zip(*sorted(points), strict=True), "o-", color=color, ms=4, label=name)
        ax.set(title=f"1000 steps, tolerance {tol:g}", xlabel="links")
        count_ticks(ax, {n for _, n, _ in runs})
        ax.grid(True, alpha=0.3)
    axes[0, 0].set_ylabel("processor time (ms)")
    axes[0, 0].legend(fontsize=8)
    for ax, column, title in zip(
        axes[1],
        (2, 1, 0),
        (
            "iterations a step",
            "error of the angle after half a swing",
            "error of the angle at the lowest point",
        ),
        strict=True,
    ):
        for (s, r), style in zip(swings["found"].items(), ("C4-", "C1--", "C2:"), strict=True):
            scaled = half_period(s) / swings["numbers"] / s
            ax.loglog(scaled, np.maximum(r[:, column], 1e-16), style, lw=1.5, label=f"s = {s:g}")
        if column < 2:
            first = np.maximum(swings["given"][:, column], 1e-16)
            ax.loglog(half_period(1.0) / swings["numbers"], first, "k-.", lw=1, label="s = 1, V_-1 = V")
            ax.set_ylabel("error (rad)")
        ax.set(title=title, xlabel="dt / s (s)")
        ax.grid(True, alpha=0.3)
    axes[1, 0].set(yscale="linear", ylim=(0, None))
    axes[1, 1].legend(fontsize=8)
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
