"""One convention of time: the same code is of second order with every integrator.

Random trees of bodies with springs, dampers and inputs that vary in time start from (q, v), some with the
input given to `initial_state` and some without, and run to the same time by unequal steps, half as long from
one run to the next. `MidpointVI`, `LinearTimeVI` and `MaximalVI` get their inputs from one call,
`f.inputs(steps, signals, dt=lengths)`, with functions of time, and are rolled out by one other. All have the
same limit, and reach it with the square of the step: positions, velocities and energy.

The order is the slope of the errors of all trees together, a mean of their logarithms. Errors are set against
the Richardson limit of `MidpointVI` at the two smallest steps and one more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import Any

import numpy as np

import vioc
from studies.harness import Claim, Report, Study, at_most, near
from vioc.models import mechanism
from vioc.models.family import LOOPS, SEED

KEYS = {"MidpointVI": "midpoint", "LinearTimeVI": "linear", "MaximalVI": "maximal"}
KINDS = {"MidpointVI": vioc.MidpointVI, "LinearTimeVI": vioc.LinearTimeVI, "MaximalVI": vioc.MaximalVI}
TREES, JOINTS, END = 50, 8, 0.2  # how many, with how many variables at most, s
STEPS = (20, 40, 80)  # equal ones would be 10, 5 and 2.5 ms
UNEVEN = (0.5, 1.4, 1.1)  # of the mean, in turn

STUDY = Study(
    __file__,
    "the same code is of second order with every integrator",
    **{
        f"{key}_{form}": Claim(f"{kind}: order of {what}, {given}", near(2, 0.1))
        for kind, key in KEYS.items()
        for form, what, given in (
            ("q", "positions", "start without u"),
            ("v", "velocities", "start without u"),
            ("q_given", "positions", "start with u"),
            ("v_given", "velocities", "start with u"),
        )
    },
    start=Claim("largest change of a state by u in initial_state", at_most(0.0)),
    apart=Claim("distance of the limits, over the error at the smallest step, median", at_most(0.2)),
)


def trees(count: int) -> Iterator[tuple[vioc.System, np.ndarray, np.ndarray]]:
    """Trees of the family that all three integrators take, with an input and a damper at least."""
    indices = (i for i in range(10**6) if np.random.default_rng([SEED, i]).random() >= LOOPS)  # no loops
    found = 0
    while found < count:
        _, system, q, v = mechanism(next(indices))
        kinds = {type(f) for f in system.forces}
        helical = any(node.frame.transform.kind == "TWIST" for node in system.nodes)
        if len(q) <= JOINTS and not helical and {vioc.JointForce, vioc.JointDamping} <= kinds:
            found += 1
            yield system, q, v


def signals(system: vioc.System, seed: int) -> dict[str, Callable[[float], float]]:
    """A torque or force for each input."""
    rng = np.random.default_rng(seed)

    def one(size: float, rate: float, phase: float) -> Callable[[float], float]:
        return lambda t: size * np.sin(rate * t + phase)

    return {n: one(rng.uniform(0.2, 1), rng.uniform(5, 20), rng.uniform(0, 6)) for n in system.inputs}


def lengths(steps: int) -> np.ndarray:
    """Steps that add up to END; those of twice as many are halves."""
    pattern = np.resize(UNEVEN, STEPS[0])
    return np.repeat(pattern / pattern.sum() * END, steps // STEPS[0]) * STEPS[0] / steps


def ends(f: Any, q: np.ndarray, v: np.ndarray, seed: int, steps: int, given: bool) -> np.ndarray:
    """Positions and velocities at the end (2, nq)."""
    dt, names = lengths(steps), f.system.variables
    U = f.inputs(steps, signals(f.system, seed), dt=dt)
    run = f.rollout(f.initial_state(q, v, u=U[0] if given else None), U, dt=dt, warn=False)
    there = np.array([[run[n][-1], run["v." + n][-1]] for n in names]).T
    turns = np.array([n in f.wrap for n in names])  # known modulo a turn
    there[0] = np.where(turns, _near(there[0], q), there[0])
    return there


def _near(q: np.ndarray, goal: np.ndarray) -> np.ndarray:
    return q + 2 * np.pi * np.round((goal - q) / (2 * np.pi))


def limit(runs: dict[int, np.ndarray], finest: np.ndarray) -> np.ndarray:
    """Of errors c2 h^2 + c4 h^4, from the two smallest steps of a study and half of the last."""
    coarse, fine = ((4 * b - a) / 3 for a, b in ((runs[STEPS[1]], runs[STEPS[2]]), (runs[STEPS[2]], finest)))
    return (16 * fine - coarse) / 15


@STUDY.body
def run(report: Report) -> None:
    count = 4 if report.quick else TREES
    errors: dict[tuple[str, bool], list[np.ndarray]] = {(k, g): [] for k in KINDS for g in (False, True)}
    changed, apart = 0.0, []
    for seed, (system, q, v) in enumerate(trees(count)):
        found = {}
        maps = {kind: make(system, END / STEPS[0]) for kind, make in KINDS.items()}
        for (kind, f), given in product(maps.items(), (False, True)):
            found[kind, given] = {n: ends(f, q, v, seed, n, given) for n in STEPS}
            u = f.inputs(1, signals(system, seed))[0]
            changed = max(changed, np.abs(f.initial_state(q, v, u=u) - f.initial_state(q, v)).max())
        finest = ends(maps["MidpointVI"], q, v, seed, 2 * STEPS[-1], False)
        exact = limit(found["MidpointVI", False], finest)
        for key, runs in found.items():
            errors[key].append([np.linalg.norm(runs[n] - exact, axis=1) for n in STEPS])
        # that of each from its own runs, against the one that errors are set against
        for kind in ("LinearTimeVI", "MaximalVI"):
            runs = found[kind, False]
            own = (4 * runs[STEPS[2]] - runs[STEPS[1]]) / 3
            apart.append(np.linalg.norm(own - exact) / np.linalg.norm(runs[STEPS[2]] - exact))
    sizes = {key: np.exp(np.mean(np.log(rows), axis=0)) for key, rows in errors.items()}  # (steps, 2)
    for (kind, given), size in sizes.items():
        for i, what in enumerate("qv"):
            order = np.polyfit(np.log(STEPS), np.log(size[:, i]), 1)[0]
            report.measure(**{f"{KEYS[kind]}_{what}{'_given' * given}": -order})
    report.measure(start=changed, apart=np.median(apart))
    draw(report, sizes)


def draw(report: Report, sizes: dict[tuple[str, bool], np.ndarray]) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    h = 1e3 * END / np.array(STEPS)
    for i, (ax, what) in enumerate(zip(axes, ("positions", "velocities"), strict=True)):
        for color, kind in zip(("C0", "C1", "C3"), KINDS, strict=True):
            ax.loglog(h, sizes[kind, False][:, i], color + "o-", label=kind)
            ax.loglog(h, sizes[kind, True][:, i], color + "x--", label=f"{kind}, u given at the start")
        ax.loglog(h, sizes["MidpointVI", False][0, i] * (h / h[0]) ** 2 / 3, "k:", label="square of the step")
        ax.set(title=f"Errors of {what}", xlabel="mean step (ms)", ylabel="geometric mean over the trees")
        ax.grid(True, which="both", alpha=0.3)
    axes[0].legend(fontsize=8)
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
