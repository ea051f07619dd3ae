"""How far a balanced cart-pole may be pushed: Lyapunov levels and Monte Carlo over weights, in parallel.

The cart-pole of the swing-up study held upright by a discrete LQR. For each weight R on the force: the
level of V = z'Pz that is verified by sampling, and the part of a box of starts that is caught. All by
`sweep`, through processes, with results kept as they come; the same again here, and resumed, to the bit.
"""

from __future__ import annotations

import contextlib
import functools
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import vioc
from studies.harness import Claim, Report, Study, at_least, at_most, near
from vioc.compile import find_compiler
from vioc.control import dlqr, lyapunov_level, region_of_attraction
from vioc.control.analysis import LyapunovLevel
from vioc.sweeps import SweepProgress, grid, sweep
from vioc.sweeps.store import dumps

DT = 0.02  # s
Q = {"x": 1.0, "theta": 10.0, "p.x": 0.1, "p.theta": 1.0}
WEIGHTS = (0.01, 0.1, 1.0, 10.0)
BOX = {"x": 0.0, "theta": 1.5, "p.x": 0.0, "p.theta": 1.5}  # +- m, rad, SI
STEPS = 1000
GOAL = 1e-2

STUDY = Study(
    __file__,
    "region of attraction of a balanced cart-pole: Lyapunov levels and Monte Carlo over the weight R",
    starts=Claim("starts of the Monte Carlo, all weights"),
    caught=Claim("caught, R = 1", unit="%"),
    low=Claim("lower end of its 95 % interval", unit="%"),
    high=Claim("upper end", unit="%"),
    inside=Claim("of starts uniform in {V <= c}, the part that is caught, all weights", near(1.0, 0.0)),
    tight=Claim("verified level over the least violation found, least of all weights", at_least(0.9)),
    violation=Claim("V after a step over V before at those violations, least", at_least(1.0 - 1e-6)),
    unseen=Claim("bound on the part of {V <= c} where V grows, 95 % confidence", at_most(5e-3)),
    conservative=Claim("part of the box's caught starts that the level knew of, R = 1", unit="%"),
    same=Claim("results that differ between processes and this one, bits", at_most(0)),
    resumed=Claim("results that differ after an interruption, bits", at_most(0)),
    again=Claim("tasks run again after the interruption, of those that were done", at_most(0)),
    mostly=Claim("caught of starts within 0.3 of the box, compiled", full_only=True),
    hardly=Claim("caught of starts within twice the box", full_only=True),
    lost=Claim("processor time of the latter over that of the former", at_most(1.5), full_only=True),
    seconds_here=Claim("time here", unit="s"),
    seconds_processes=Claim("time by 2 processes, with their start", unit="s"),
)


@STUDY.body
def run(report: Report) -> None:
    count, samples, directions = (20, 600, 12) if report.quick else (1000, 10_000, 50)
    weights = (0.1, 1.0) if report.quick else WEIGHTS
    f = balanced()
    task = functools.partial(weigh, f, count=count, samples=samples, directions=directions)
    points = grid(R=weights)
    before = time.perf_counter()
    here = sweep(task, points, seed=1, workers=0)
    between = time.perf_counter()
    processes = sweep(task, points, seed=1, workers=2)
    report.measure(seconds_here=between - before, seconds_processes=time.perf_counter() - between)
    with TemporaryDirectory() as folder:
        stopped, ran = interrupted(task, points, Path(folder) / "sweep.jsonl")
    values = [o.value for o in here]
    found = {R: v for R, v in zip(weights, values, strict=True)}
    one = found[1.0]
    report.measure(
        starts=count * len(weights),
        caught=100 * one["caught"].mean(),
        low=100 * one["interval"][0],
        high=100 * one["interval"][1],
        inside=np.mean([v["inside"] for v in values]),
        tight=min(v["level"] / v["upper"] for v in values),
        violation=min(v["growth"] for v in values),
        unseen=max(v["violating_volume"] for v in values),
        conservative=100 * (one["V"] <= one["level"])[one["caught"]].mean(),
        same=sum(dumps(a.value) != dumps(b.value) for a, b in zip(here, processes, strict=True)),
        resumed=sum(dumps(a.value) != dumps(b.value) for a, b in zip(here, stopped, strict=True)),
        again=ran - (len(points) - 1),
    )
    if not report.quick and find_compiler():
        report.measure(**cost_of_lost())
    draw(report, found)
    starts = one["starts"][one["caught"]]
    farthest = starts[np.abs(starts[:, 1]).argmax()]
    caught = dlqr(f, (f.initial_state(), None), Q, 1.0).rollout(farthest, round(4 / DT))
    report.frame(caught, (0.0, 0.2, 0.4, 0.8, 1.6, 4.0), title="The start of most tilt that is caught, R = 1")


def balanced() -> vioc.MidpointVI:
    return vioc.MidpointVI(vioc.models.load("cart_pole"), DT)


def cost_of_lost() -> dict[str, float]:
    """The part that is caught of a small box and of a large one, and their times, the least of three."""
    f = vioc.MidpointVI(vioc.models.load("cart_pole"), DT, backend="compiled")
    loop = dlqr(f, (f.initial_state(), None), Q, 1.0)
    parts, seconds = [], []
    for size in (0.3, 2.0):
        box, times = {name: size * half for name, half in BOX.items()}, []
        for _ in range(3):
            before = time.process_time()
            region = region_of_attraction(loop, box, samples=400, steps=STEPS, goal=GOAL, seed=1)
            times.append(time.process_time() - before)
        parts.append(region.fraction)
        seconds.append(min(times))
    return dict(mostly=parts[0], hardly=parts[1], lost=seconds[1] / seconds[0])


def weigh(
    f: vioc.MidpointVI, R: float, *, count: int, samples: int, directions: int, rng: np.random.Generator
) -> dict[str, Any]:
    """One weight: the level, and starts with V and what became of them. Plain data, for the store."""
    loop = dlqr(f, (f.initial_state(), None), Q, R)
    seeds = [int(s) for s in rng.integers(2**31, size=2)]
    level = lyapunov_level(loop, samples=samples, directions=directions, seed=seeds[0])
    caught = region_of_attraction(loop, BOX, samples=count, steps=STEPS, goal=GOAL, seed=seeds[1])
    within = region_of_attraction(
        loop,
        lambda rng: f.retract(loop.x, level.draw_error(rng)),
        samples=count // 2,
        steps=STEPS,
        goal=GOAL,
        seed=seeds[1],
    )
    z = f.difference(loop.x, caught.starts)
    return {
        "level": level.level,
        "upper": level.upper,
        "growth": growth(loop, level),
        "violating_volume": level.violating_volume,
        "P": level.P,
        "starts": caught.starts,
        "caught": caught.caught,
        "interval": list(caught.interval),
        "inside": within.fraction,
        "V": np.einsum("ka,ab,kb->k", z, level.P, z),
    }


def growth(loop: Any, level: LyapunovLevel) -> float:
    """V after a step over V before at the violation; inf where none was found."""
    if level.violation is None:
        return np.inf
    f, z = loop.map, level.violation
    after = f.difference(loop.x, loop.rollout(f.retract(loop.x, z), 1).x[1])
    return float(after @ level.P @ after / (z @ level.P @ z))


def interrupted(task: Any, points: list[dict], path: Path) -> tuple[Any, int]:
    """The sweep, stopped after one task and called again; how many tasks the second call ran."""

    def stop(progress: SweepProgress) -> None:
        if progress.done == 1:
            raise KeyboardInterrupt

    with contextlib.suppress(KeyboardInterrupt):
        sweep(task, points, seed=1, workers=0, store=path, progress=stop)
    ran: list[SweepProgress] = []
    done = sweep(task, points, seed=1, workers=0, store=path, progress=ran.append)
    return done, len(ran)


def draw(report: Report, found: dict[float, dict[str, Any]]) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(
        1, len(found), figsize=(3.6 * len(found), 4.4), sharey=True, layout="constrained"
    )
    for ax, (R, value) in zip(axes, found.items(), strict=True):
        theta, p = value["starts"][:, 1], value["starts"][:, 3]
        for held, color, mark in ((True, "tab:blue", "."), (False, "tab:red", "x")):
            pick = value["caught"] == held
            ax.scatter(
                theta[pick],
                p[pick],
                s=14,
                color=color,
                marker=mark,
                lw=0.7,
                label="caught" if held else "lost",
            )
        plane = value["P"][np.ix_([1, 3], [1, 3])]
        angle = np.linspace(0, 2 * np.pi, 300)
        circle = np.sqrt(value["level"]) * np.stack([np.cos(angle), np.sin(angle)])
        ax.plot(*np.linalg.solve(np.linalg.cholesky(plane).T, circle), "k", label="z'Pz = c")
        low, high = value["interval"]
        share = f"{100 * value['caught'].mean():.0f} % ({100 * low:.0f} .. {100 * high:.0f})"
        ax.set_title(f"R = {R:g}: c = {value['level']:.3g}, {share}", fontsize="medium")
        ax.set_xlabel("theta(0) (rad)")
        ax.set(xlim=(-1.6, 1.6), ylim=(-1.6, 1.6))
        ax.grid(alpha=0.3)
    axes[0].set_ylabel("p.theta(0) (kg m$^2$/s)")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
