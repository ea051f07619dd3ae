"""Plots of the spread of motions: batches of rollouts, and predicted covariances."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vioc.viz.plots.comparison import TOLD_APART
from vioc.viz.plots.style import curve, full_names, legend, over_time, stair_values

if TYPE_CHECKING:
    from vioc.control.feedback.covariance import Covariance
    from vioc.runs.batch import Batch

QUANTILES = (0.05, 0.95)
BAND = "2 standard deviations"
THIN = 100  # most curves behind the median


def plot_batch(batch: Batch, *names: str, ax: Any = None) -> Any:
    """Plot quantities of many rollouts over time, with one panel for each quantity.

    Up to eight rollouts have a colour each; more are thin lines (at most a hundred) behind their median and
    the band between the quantiles 5 % and 95 %. Failed rollouts are omitted, and counted in the legend.

    Parameters
    ----------
    batch : Batch
    *names : str
        Default: all states.
    ax : one matplotlib Axes per quantity, optional

    Returns
    -------
    Array of Axes, one per quantity.

    Raises
    ------
    ModelError
        If a name is unknown.
    ValueError
        If every rollout failed.
    """
    indices = [i for i in range(len(batch)) if i not in batch.errors]
    if not indices:
        raise ValueError(f"all {len(batch)} rollouts failed, none is left to plot; see batch.errors")
    names = full_names(batch.map, names)
    values = {n: batch[n][indices] for n in names}
    few = len(indices) <= TOLD_APART
    labels = [f"run {i}" for i in indices] if few else ["median of 0000"] * 3
    axes = over_time(batch.map, names, ax, labels)
    for panel, name in zip(axes, names, strict=True):
        if few:
            for i, row in zip(indices, values[name], strict=True):
                curve(panel, batch.t, row, f"run {i}")
        else:
            _summary(panel, batch.t, values[name], len(indices))
        if batch.errors:
            panel.plot([], [], " ", label=f"{len(batch.errors)} failed")
    legend(axes[0])
    return np.array(axes)


def plot_covariance(spread: Covariance, *names: str, ax: Any = None) -> Any:
    """Plot quantities over time, with bands of two predicted standard deviations.

    Parameters
    ----------
    spread : Covariance
    *names : str
        Quantities of the state; default: all states.
    ax : one matplotlib Axes per quantity, optional

    Returns
    -------
    Array of Axes, one per quantity.

    Raises
    ------
    ValueError
        If a quantity depends on more than the state.
    """
    run = spread.trajectory
    names = full_names(run.map, names)
    values = {n: (run[n], 2 * spread.std(n)) for n in names}
    axes = over_time(run.map, names, ax, [BAND, "trajectory"])
    for panel, name in zip(axes, names, strict=True):
        middle, width = values[name]
        band = {"color": "C0", "alpha": 0.25, "lw": 0, "label": BAND}
        panel.fill_between(run.t, middle - width, middle + width, **band)
        panel.plot(run.t, middle, color="C0", lw=1.5, label="trajectory")
    legend(axes[0])
    return np.array(axes)


def _summary(axes: Any, t: np.ndarray, values: np.ndarray, count: int) -> None:
    """Draw many rollouts as thin lines, with their median and a band of quantiles.

    Quantities of steps are stairs.
    """
    low, high = np.quantile(values, QUANTILES, axis=0)
    curves = values[:: -(-count // THIN)]
    stepped = values.shape[1] < len(t)

    over = stair_values if stepped else np.asarray

    step = {"step": "post"} if stepped else {}
    style = {"drawstyle": "steps-post"} if stepped else {}
    for row in curves:
        axes.plot(t, over(row), color="0.7", lw=0.5, zorder=1, **style)
    band = {"color": "C0", "alpha": 0.3, "lw": 0, "zorder": 2, "label": "5 % to 95 %"}
    axes.fill_between(t, over(low), over(high), **band, **step)
    median = over(np.median(values, axis=0))
    axes.plot(t, median, color="C0", lw=1.8, zorder=3, label=f"median of {count}", **style)
