"""What the studies of optimized motions share: disturbed runs, the same optimum by descent, pictures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

import vioc
from studies.harness import Claim, Report, at_least, at_most
from vioc.control import Cost, Regulator, Result, optimize
from vioc.errors import StepError

STARTS = 20  # disturbed, of a full form


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


def claims(name: str, text: str, **more: Claim) -> dict[str, Claim]:
    """What is claimed of every optimized motion, keyed NAME_..., and `more` likewise."""
    every = {
        "iterations": Claim(f"{text}: iterations of IPOPT"),
        "seconds": Claim(f"{text}: time in the solver", unit="s"),
        "limit": Claim(f"{text}: largest input over its limit", at_most(1.0)),
        "gap": Claim(f"{text}: rollout against the solution", at_most(1e-5), unit="rad, m, ..."),
        "caught": Claim(
            f"{text}: of {STARTS} disturbed starts, at the goal at T with feedback",
            at_least(0.9 * STARTS),
            full_only=True,
        ),
        "open": Claim(f"{text}: likewise without feedback", full_only=True),
        "same": Claim(f"{text}: DMOC against projection descent, cost without bounds", at_most(1e-6)),
    }
    return {f"{name}_{key}": claim for key, claim in (every | more).items()}


def measure(
    report: Report, name: str, best: Result, limit: float, found: Disturbed, caught: float, **more: Any
) -> None:
    """Of one motion: what `claims` names, `more` likewise; starts within `caught` at T are at the goal."""
    figures = {
        "iterations": best.iterations,
        "seconds": best.seconds,
        "limit": np.abs(best.trajectory.u).max() / limit,
        "gap": best.rollout().gap,
    }
    if not report.quick:
        figures |= {"caught": (found.ends < caught).sum(), "open": (found.drifts < caught).sum()}
    report.measure(**{f"{name}_{key}": figure for key, figure in (figures | more).items()})


def descent_gap(best: Result, cost: Cost, seed: int = 0) -> float:
    """|cost - cost by projection descent|, started from inputs of the optimum that are 1 % off.

    Both find local optima; that start makes them look for the same one.
    """
    run = best.trajectory
    size = np.abs(run.u).max(axis=0)
    U = run.u + 0.01 * size * np.random.default_rng(seed).uniform(-1, 1, run.u.shape)
    return abs(best.cost - optimize(run.map, cost, (run.x, U), tolerance=1e-10).cost)


def plot_disturbed(axes: Any, found: Disturbed, reference: vioc.Trajectory, name: str) -> None:
    """A quantity along the reference and along the disturbed runs."""
    for run in found.runs:
        axes.plot(run.t, run[name], color="tab:blue", lw=0.6, alpha=0.6)
    axes.plot(reference.t, reference[name], color="k", lw=1.6, label="optimum")
    axes.set(xlabel="t (s)", ylabel=f"{name} ({reference.map.unit(name)})")  # type: ignore[attr-defined]
    axes.grid(alpha=0.3)


def plot_inputs(axes: Any, run: vioc.Trajectory, limit: float) -> None:
    """The inputs, and their limits."""
    for name in run.map.input_names:
        axes.stairs(run[f"u.{name}"], run.t, baseline=None, lw=1.3, label=name)
    for side in (-limit, limit):
        axes.axhline(side, color="0.5", ls=":", lw=1)
    axes.set(xlabel="t (s)", ylabel="input (N or N m)")
    axes.legend(fontsize="small", ncols=4 if run.map.nu > 3 else 1)
    axes.grid(alpha=0.3)
