"""Optimizers on random mechanisms: how often each arrives from which guess, and whether its verdict is true.

Of the seeded family (`studies.random_family`) the mechanisms with inputs, from rest, are to move every joint
by a random amount in a second: quadratic costs of configurations and inputs. What says "converged" is judged
by what it did not compute itself: the slope along Newton's direction without shift where it ended, or along
Gauss-Newton's where Newton's Hessian has no minimum there. An arrival is such a verdict that is true.

The problems are hard on purpose: joints that no input acts on, gravity, loops. A guess that leads to no
trajectory counts against the optimizer that was given it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

import numpy as np

import vioc
from studies.harness import Claim, Report, Study, near
from studies.random_family import RandomMechanism, mechanisms
from vioc.control import Cost, Result
from vioc.control.descent.local_model import LocalModel
from vioc.errors import OptimizationError

DT, STEPS = 0.02, 50
COUNT, QUICK = 60, 2  # mechanisms
SMALL, SMALL_FROM = 4, 20  # in quick form: variables at most, and from which on they are looked for
MOVE = 0.3  # rad or m: standard deviation of what a joint is to move by
TOLERANCE, ITERATIONS, FEW = 1e-6, 150, 25  # the last in quick form

Start = tuple[np.ndarray, np.ndarray]  # x_0, a state that is near the goal
Optimizer = Callable[[vioc.MidpointVI, Cost, Start, int], Result]


def _from_zero(search: Callable[..., Result], **options: Any) -> Optimizer:
    return lambda f, cost, ends, limit: search(
        f, cost, x0=ends[0], steps=STEPS, max_iterations=limit, raise_on_failure=False, **options
    )


def _from_line(search: Callable[..., Result], **options: Any) -> Optimizer:
    def solve(f: vioc.MidpointVI, cost: Cost, ends: Start, limit: int) -> Result:
        line = vioc.control.straight_line(*ends, STEPS), None
        return search(f, cost, line, max_iterations=limit, raise_on_failure=False, **options)

    return solve


OPTIMIZERS: dict[str, tuple[str, Optimizer]] = {
    "newton": ("Newton from zero inputs", _from_zero(vioc.control.optimize)),
    "gauss": ("Gauss-Newton from zero inputs", _from_zero(vioc.control.optimize, method="gauss-newton")),
    "ddp": ("DDP from zero inputs", _from_zero(vioc.control.optimize_ddp)),
    "ilqr": ("iLQR from zero inputs", _from_zero(vioc.control.optimize_ddp, method="ilqr")),
    "line": (
        "multiple shooting, or Newton for large maps, from the straight line",
        _from_line(vioc.control.optimize),
    ),
    "projected": ("Newton from the straight line", _from_line(vioc.control.optimize, method="newton")),
}

STUDY = Study(
    __file__,
    "how often optimizers arrive on random mechanisms, and that no verdict is untrue",
    problems=Claim("random mechanisms with inputs"),
    untrue=Claim('"converged" with an unshifted slope above the tolerance', near(0, 0)),
    **{name: Claim(f"share that arrives: {words}") for name, (words, _) in OPTIMIZERS.items()},
)


@STUDY.body
def run(report: Report) -> None:
    arrived: Counter[str] = Counter()
    untrue = count = 0
    for f, cost, ends in problems(report.quick):
        count += 1
        for name, (_, optimizer) in OPTIMIZERS.items():
            verdict, true = judged(f, cost, ends, optimizer, FEW if report.quick else ITERATIONS)
            arrived[name] += verdict == "converged" and true
            untrue += not true
    report.measure(problems=count, untrue=untrue, **{name: arrived[name] / count for name in OPTIMIZERS})
    draw(report, arrived, count)


def problems(quick: bool) -> Iterator[tuple[vioc.MidpointVI, Cost, Start]]:
    """Maps, costs and ends: a random move of each mechanism of the family that has inputs."""
    first = SMALL_FROM if quick else 0
    found = (m for m in mechanisms(first=first) if m.system.inputs and (not quick or len(m.q) <= SMALL))
    return map(problem, islice(found, QUICK if quick else COUNT))


def problem(m: RandomMechanism) -> tuple[vioc.MidpointVI, Cost, Start]:
    f = vioc.MidpointVI(m.system, DT)
    rng = np.random.default_rng(len(m.q))
    names = m.system.variables
    goal = dict(zip(names, m.q + MOVE * rng.standard_normal(len(m.q)), strict=True))
    cost = vioc.control.quadratic(
        f, Q=dict.fromkeys(names, 0.1), R=0.1, Qf=dict.fromkeys(names, 10.0), goal=goal
    )
    return f, cost, (f.initial_state(m.q), f.state(goal))


def judged(f: vioc.MidpointVI, cost: Cost, ends: Start, optimizer: Optimizer, limit: int) -> tuple[str, bool]:
    """The verdict, and whether it is true: of "converged", that the slope is not above the tolerance."""
    try:
        best = optimizer(f, cost, ends, limit)
    except OptimizationError:  # no trajectory to begin with
        return "no trajectory", True
    if not best.converged or "to rounding" in best.message:
        return best.status, True
    model = LocalModel(f, cost, best.trajectory, None)
    direction = model.direction("newton") or model.direction("gauss-newton")
    # the iterate and its rollout differ by what the solver of a step leaves: the slope has some digits only
    return best.status, direction is not None and -direction.slope <= 1.1 * TOLERANCE


def draw(report: Report, arrived: Counter[str], count: int) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
    axes.barh(list(OPTIMIZERS), [arrived[name] / count for name in OPTIMIZERS])
    axes.invert_yaxis()
    axes.set(xlim=(0, 1), xlabel=f"share that arrives, of {count}", title="Random mechanisms")
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
