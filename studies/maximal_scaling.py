"""Step time of n-link pendulums in maximal coordinates ([M] Fig. 8 a, without contact).

Links of 1 m and 1 kg on revolute or spherical joints, released from the horizontal, dt 0.01 s, compiled.
Times are of the processor, the best of some rollouts of 100 steps. The unit of [M]'s argument is one link and
one Newton iteration: a body's equations, its joint's, their elimination and back-substitution.
"""

from __future__ import annotations

import time

import numpy as np

import vioc
from studies.harness import Claim, Report, Study, at_most
from vioc import Gravity, Mass, System, rx, tz
from vioc.dynamics.integrators.linear_time.map import LinearTimeVI
from vioc.dynamics.integrators.maximal import MaximalVI

DT, STEPS = 0.01, 100
COUNTS = (10, 20, 50, 100, 200)
QUICK = (10, 20)
BODY = Mass(1.0, (1 / 12, 1 / 12, 1 / 100))
FIG = "[M] Fig. 8 a"

STUDY = Study(
    __file__,
    "step time of pendulums in maximal coordinates",
    residual=Claim("largest scaled residual of any step", at_most(1e-11)),
    revolute=Claim(
        "revolute: time of a step, 200 links over 20", at_most(12), "", "linear", FIG, full_only=True
    ),
    spherical=Claim(
        "spherical: time of a step, 200 links over 20", at_most(12), "", "linear", FIG, full_only=True
    ),
    revolute_unit=Claim("revolute, 20 links: time per link and Newton iteration", at_most(1.0), "us"),
    revolute_unit_200=Claim("the same, 200 links", at_most(1.0), "us", full_only=True),
    spherical_unit=Claim("spherical, 20 links: time per link and Newton iteration", at_most(1.0), "us"),
    spherical_unit_200=Claim("the same, 200 links", at_most(1.0), "us", full_only=True),
    iterations=Claim("revolute, 20 links: iterations a step", None),
    iterations_200=Claim("the same, 200 links", None, full_only=True),
    minimal=Claim(
        "revolute, 50 links: MaximalVI's step over that of LinearTimeVI (exact chord)", None, full_only=True
    ),
)


def pendulum(n: int, spherical: bool) -> System:
    below: tuple = ()
    for i in reversed(range(n)):
        joint = vioc.spherical(f"q{i}") if spherical else rx(f"q{i}")
        rest = (tz(-1.0)[below],) if below else ()
        below = (joint[(tz(-0.5, mass=BODY), *rest)],)
    return System(below, Gravity(0, 0, -9.81), name=f"pendulum_{n}")


def best(call, repeats: int = 7) -> float:
    times = []
    for _ in range(repeats):
        before = time.process_time()
        call()
        times.append(time.process_time() - before)
    return min(times)


def measure(n: int, spherical: bool) -> tuple[float, float, float]:
    """Time of a step, s; Newton iterations a step; largest residual."""
    f = MaximalVI(pendulum(n, spherical), DT, backend="compiled")
    x = f.initial_state({"q0-rx" if spherical else "q0": np.pi / 2}, start="given")
    carry = f._carry(x, np.empty((0, f.nx)), DT)
    args = (np.empty(0), carry, np.zeros((STEPS, 0)), DT * np.arange(STEPS), np.full(STEPS, DT), f._tolerance)
    _, _, _, errors, iterations = f.core.rollout(*args)
    return best(lambda: f.core.rollout(*args)) / STEPS, float(iterations.mean()), float(errors.max())


def minimal(n: int) -> float:
    """Time of a step of the linear-time integrator on the same pendulum, s."""
    f = LinearTimeVI(pendulum(n, False), DT, backend="compiled")
    x = f.initial_state({"q0": np.pi / 2})
    f.rollout(x, steps=2, warn=False)
    return best(lambda: f.rollout(x, steps=STEPS, warn=False)) / STEPS


@STUDY.body
def run(report: Report) -> None:
    counts = QUICK if report.quick else COUNTS
    results = {
        kind: {n: measure(n, kind == "spherical") for n in counts} for kind in ("revolute", "spherical")
    }
    report.measure(residual=max(r[2] for by in results.values() for r in by.values()))
    for kind, by in results.items():
        for n in counts:
            if n in (20, 200):
                step, iterations, _ = by[n]
                suffix = "_200" * (n == 200)
                report.measure(**{f"{kind}_unit{suffix}": 1e6 * step / n / iterations})
                if kind == "revolute":
                    report.measure(**{f"iterations{suffix}": iterations})
        if 200 in by:
            report.measure(**{kind: by[200][0] / by[20][0]})
    others = {} if report.quick else {n: minimal(n) for n in counts if n <= 50}
    if others:
        report.measure(minimal=results["revolute"][50][0] / others[50])
    draw(report, results, others)


def draw(report: Report, results: dict, others: dict) -> None:
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(6, 4.2), layout="constrained")
    for kind, style in (("revolute", "C0o-"), ("spherical", "C0o--")):
        ns = sorted(results[kind])
        ax.plot(ns, [1e6 * results[kind][n][0] for n in ns], style, ms=4, label=f"MaximalVI, {kind}")
    if others:
        ax.plot(
            sorted(others),
            [1e6 * others[n] for n in sorted(others)],
            "C3s-",
            ms=4,
            label="LinearTimeVI, revolute",
        )
    ax.set(xlabel="links", ylabel="time of a step, us", title="n-link pendulums, compiled")
    ax.grid(True, alpha=0.3)
    ax.legend(frameon=False)
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
