"""Plot of the measured times of a real-time loop."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vioc.viz.plots.style import legend

if TYPE_CHECKING:
    from vioc.target.rate import LoopTimes


def plot_loop_times(times: LoopTimes, ax: Any = None) -> Any:
    """Plot histograms of a real-time loop's delays and computing times.

    Both axes are logarithmic.

    Parameters
    ----------
    times : LoopTimes
    ax : matplotlib Axes, optional

    Returns
    -------
    Axes
    """
    import matplotlib.pyplot as plt

    if ax is None:
        _, ax = plt.subplots(layout="constrained")
    rows = {n: 1e6 * np.maximum(getattr(times, n), 1e-8) for n in ("late", "output", "advance")}
    low, high = (f(np.concatenate(list(rows.values()))) for f in (np.min, np.max))
    bins = np.geomspace(low, max(high, 1.01 * low), 60)
    for i, (name, values) in enumerate(rows.items()):
        median, rare, worst = times.table[name]
        label = f"{name}: {median:.3g}, 99.9 % {rare:.3g}, worst {worst:.3g} us"
        ax.hist(values, bins, histtype="step", color=f"C{i}", label=label)
    ax.set(xscale="log", yscale="log", xlabel="time (us)", ylabel="samples")
    ax.set_title(f"{len(times.late)} samples every {1e3 * times.period:g} ms, {times.overruns} overruns")
    legend(ax)
    return ax
