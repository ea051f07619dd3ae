"""Plots that compare several runs, over time or in the plane of two quantities."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from vioc.viz.plots.bounds import Marked
from vioc.viz.plots.style import REFERENCE, curve, full_names, legend, named_runs, over_time, panels
from vioc.viz.plots.units import label, quantity_unit

if TYPE_CHECKING:
    from vioc.runs.trajectory import Trajectory

TOLD_APART = 8  # most runs with a colour each


def plot_comparison(
    runs: Mapping[str, Trajectory], *names: str, ax: Any = None, bounds: Any = None, targets: Any = None
) -> Any:
    """Plot quantities of several runs over time, with one panel for each quantity.

    The first run is dashed.

    Parameters
    ----------
    runs : dict of str to Trajectory, or to a result that has one
        In the order of the legend, a reference first. Times, steps and maps may differ.
    *names : str
        Quantities that all runs have; default the states of the first.
    ax : one matplotlib Axes per quantity, optional
    bounds, targets : dict, optional
        As in `plot_trajectory`, for the first run's times.

    Returns
    -------
    Array of Axes, one per quantity.

    Raises
    ------
    ModelError
        If a run does not have a quantity.
    ValueError
        If there is no run.
    """
    trajectories = named_runs(runs)
    if not trajectories:
        raise ValueError("runs: expected at least one trajectory, got none")
    first = next(iter(trajectories.values()))
    names = full_names(first.map, names)
    values = {n: {r: run[n] for r, run in trajectories.items()} for n in names}
    axes, marked = over_time(first.map, names, ax, list(trajectories)), Marked(first, bounds, targets)
    for panel, name in zip(axes, names, strict=True):
        for i, (r, run) in enumerate(trajectories.items()):
            look = {"color": f"C{(i - 1) % 10}"} if i else REFERENCE
            curve(panel, run.t, values[name][r], r, **look)
        marked.draw(panel, name, "0.3")
    legend(axes[0], least=1)
    return np.array(axes)


def plot_phase(runs: Any, horizontal: str, vertical: str, *, ax: Any = None) -> Any:
    """Plot one quantity of runs against another, from start (dot) to end (cross).

    Parameters
    ----------
    runs : Trajectory, Batch, dict of str to Trajectory, or sequence of Trajectory
        A dict has a legend; more than eight runs of a batch or a sequence have one colour. Failed rollouts
        are omitted.
    horizontal, vertical : str
        Names of quantities. If one belongs to steps (inputs, multipliers), the other is taken at the
        steps' starts.
    ax : matplotlib Axes, optional

    Returns
    -------
    Axes

    Raises
    ------
    ModelError
        If a run does not have a quantity.
    ValueError
        If there is no run, or a quantity is a vector.
    """
    trajectories = named_runs(runs)
    if not trajectories:
        raise ValueError("runs: expected at least one trajectory, got none")
    f = next(iter(trajectories.values())).map
    horizontal, vertical = full_names(f, (horizontal, vertical))
    lines = {r: (run[horizontal], run[vertical]) for r, run in trajectories.items()}
    for a, b in lines.values():
        if a.ndim > 1 or b.ndim > 1:
            raise ValueError(f"expected scalar quantities, got shapes {a.shape[1:]} and {b.shape[1:]}")
    (axes,) = panels(1, ax, labels=[list(trajectories) if isinstance(runs, dict) else []])
    apart = isinstance(runs, dict) or len(trajectories) <= TOLD_APART
    for i, (r, (a, b)) in enumerate(lines.items()):
        n = min(len(a), len(b))
        color = f"C{i % 10}" if apart else "C0"
        thin = {"lw": 1.5} if apart else {"lw": 0.6, "alpha": 0.5}
        axes.plot(a[:n], b[:n], color=color, label=r if isinstance(runs, dict) else "_", **thin)
        axes.plot(a[:1], b[:1], "o", color=color, ms=4 if apart else 2)
        axes.plot(a[n - 1 : n], b[n - 1 : n], "x", color=color, ms=6 if apart else 3)
    axes.set_xlabel(label(horizontal, quantity_unit(f, horizontal)))
    axes.set_ylabel(label(vertical, quantity_unit(f, vertical)))
    legend(axes)
    return axes
