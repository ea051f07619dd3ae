"""What the studies of optimized motions share: disturbed runs, the same optimum by descent, pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import vioc
from vioc.control import Cost, Regulator, dmoc, optimize
from vioc.errors import StepError


class Disturbed(NamedTuple):
    """Closed-loop runs from disturbed starts.

    Attributes
    ----------
    runs : list of Trajectory
    ends : (n,)
        Largest error of each at the end of the reference (infinite where a run broke off).
    drifts : (n,)
        Likewise open loop.
    """

    runs: list[vioc.Trajectory]
    ends: np.ndarray
    drifts: np.ndarray


def disturb(regulator: Regulator, starts: Sequence[np.ndarray]) -> Disturbed:
    """Run the regulator, and the inputs alone, from each start."""
    f, reference = regulator.map, regulator.reference

    def error(run: vioc.Trajectory) -> float:
        return float(np.abs(f.difference(reference.x[-1], run.x[-1])).max())

    runs, ends, drifts = [], [], []
    for x0 in starts:
        try:
            runs.append(regulator.rollout(x0))
            ends.append(error(runs[-1]))
        except StepError:
            ends.append(np.inf)
        try:
            drifts.append(error(f.rollout(x0, reference.u, warn=False)))
        except StepError:
            drifts.append(np.inf)
    return Disturbed(runs, np.array(ends), np.array(drifts))


def descent_gap(best: dmoc.Solution, cost: Cost, seed: int = 0) -> float:
    """|cost - cost by projection descent|, started from inputs of the optimum that are 1 % off.

    Both find local optima; that start makes them look for the same one.
    """
    run = best.trajectory
    size = np.abs(run.u).max(axis=0)
    U = run.u + 0.01 * size * np.random.default_rng(seed).uniform(-1, 1, run.u.shape)
    return abs(best.cost - optimize(run.map, cost, (run.x, U), tolerance=1e-10).cost)


def strobe(axes: Any, run: vioc.Trajectory, count: int = 12, plane: str = "xz") -> None:
    """The mechanism at equal times, from light to dark."""
    owner: Any = run.map
    right, up = ("xyz".index(c) for c in plane)
    rows = np.linspace(0, len(run), count).round().astype(int)
    places = owner.frame_positions(run.x[rows])
    nodes = owner.system.nodes
    for i, points in enumerate(places):
        shade = str(0.85 * (1 - i / (count - 1)))
        for k, node in enumerate(nodes):
            start = points[node.parent] if node.parent >= 0 else None
            if start is not None:
                axes.plot(
                    [start[right], points[k][right]],
                    [start[up], points[k][up]],
                    color=shade,
                    lw=1.2,
                    zorder=i,
                )
            if node.frame.mass is not None:
                axes.plot(points[k][right], points[k][up], "o", color=shade, ms=4, zorder=i)
    axes.set_aspect("equal")
    axes.set(xlabel=f"{plane[0]} [m]", ylabel=f"{plane[1]} [m]")
    axes.grid(alpha=0.2)


def plot_disturbed(axes: Any, found: Disturbed, reference: vioc.Trajectory, name: str) -> None:
    """A quantity along the reference and along the disturbed runs."""
    for run in found.runs:
        axes.plot(run.t, run[name], color="tab:blue", lw=0.6, alpha=0.6)
    axes.plot(reference.t, reference[name], color="k", lw=1.6, label="optimum")
    axes.set(xlabel="t [s]", ylabel=f"{name} [{reference.map.unit(name)}]")  # type: ignore[attr-defined]
    axes.grid(alpha=0.3)


def plot_inputs(axes: Any, run: vioc.Trajectory, limit: float) -> None:
    """The inputs, and their limits."""
    for name in run.map.input_names:
        axes.stairs(run[f"u.{name}"], run.t, baseline=None, lw=1.3, label=name)
    for side in (-limit, limit):
        axes.axhline(side, color="0.5", ls=":", lw=1)
    axes.set(xlabel="t [s]", ylabel="input [N or N m]")
    axes.legend(fontsize="small")
    axes.grid(alpha=0.3)
