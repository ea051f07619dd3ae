"""Common style of all plots: axes, legends and curves.

Settings of matplotlib are not changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from vioc.names import quantity_name
from vioc.runs.batch import Batch
from vioc.runs.given import trajectory_of
from vioc.viz.plots.units import label, quantity_unit

WIDTH, HEIGHT = 6.4, 1.8  # in, of a figure and of one of several panels
ALONE = 3.2  # in, height of a single panel
ROW, LETTER = 0.165, 0.075  # in, height of a legend's row and approximate width of its letters
TALL = 24  # rows for which a panel is made higher
LINES = ("-", "--", ":", "-.")  # used when colours repeat
REFERENCE = {"color": "0.2", "ls": "--", "lw": 1.2, "zorder": 3}
POINTS = 20_000  # most points for which matplotlib searches the best place of a legend


def panels(
    count: int,
    ax: Any = None,
    *,
    names: Sequence[str] = (),
    labels: Sequence[Sequence[str]] = (),
    size: tuple[float, float] = (WIDTH, ALONE),
    grid: bool = True,
) -> list[Any]:
    """Return a list of `count` axes for plots.
    They are the axes `ax`. If `ax` is None, they are axes one above another in a new figure.

    All get a grid if `grid` is true. `labels` of the curves in each reserve space for legends; `names` of
    the panels are used in messages; `size` (in) is that of a single panel.

    Raises
    ------
    ValueError
        If there are not as many axes as panels.
    TypeError
        If `ax` is something else, such as a figure.
    """
    axes = _new(count, labels, size) if ax is None else list(np.ravel(np.asarray(ax, object)))
    if alien := [panel for panel in axes if not hasattr(panel, "transAxes")]:
        raise TypeError(
            f"ax: expected matplotlib Axes, or a sequence of them, got {type(alien[0]).__name__}; "
            "figure.subplots() makes some"
        )
    if len(axes) != count:
        which = f" ({', '.join(names)})" if names else ""
        raise ValueError(f"ax: expected {count} axes, one per panel{which}, got {len(axes)}")
    for panel in axes if grid else ():
        panel.grid(alpha=0.3)
    return axes


def over_time(f: Any, names: Sequence[str], ax: Any, labels: Sequence[str]) -> list[Any]:
    """Return labelled axes for plots over time, one plot for each quantity."""
    axes = panels(len(names), ax, names=names, labels=[labels])
    for panel, name in zip(axes, names, strict=True):
        panel.set_ylabel(label(name, quantity_unit(f, name)))
    axes[-1].set_xlabel("t (s)")
    return axes


def _new(count: int, labels: Sequence[Sequence[str]], size: tuple[float, float]) -> list[Any]:
    """Make a figure with `count` axes one above another, and with space for legends."""
    import matplotlib.pyplot as plt

    rows = [*labels, *[()] * (count - len(labels))]
    heights = [max(size[1] if count == 1 else HEIGHT, ROW * min(len(r), TALL)) for r in rows]
    wide = max(_width(r, h) for r, h in zip(rows, heights, strict=True))
    figure, axes = plt.subplots(
        count,
        1,
        sharex=True,
        squeeze=False,
        figsize=(size[0] + wide, sum(heights) + (0.0 if count == 1 else 0.6)),
        height_ratios=heights,
        layout="constrained",
    )
    figure.align_ylabels(axes[:, 0])
    return list(axes[:, 0])


def curve(axes: Any, t: np.ndarray, values: np.ndarray, name: str, **style: Any) -> None:
    """Draw a quantity over time, as a line through samples or as stairs over steps.

    A vector has one curve for each column.
    """
    columns = values[:, None] if values.ndim == 1 else values
    for i, column in enumerate(columns.T):
        text = name if values.ndim == 1 else f"{name}[{i}]"
        count = len(axes.lines)
        look = {"color": f"C{count % 10}", "ls": LINES[count // 10 % len(LINES)], "lw": 1.5, **style}
        if len(column) == len(t):
            axes.plot(t, column, label=text, **look)
        else:
            axes.plot(t, stair_values(column), label=text, drawstyle="steps-post", **look)


def stair_values(values: np.ndarray) -> np.ndarray:
    """Append the last value to the values (N,) of a quantity in N steps.
    A curve of stairs through the result ends at sample N.
    """
    return np.append(values, values[-1:])


def legend(axes: Any, *, least: int = 2, **options: Any) -> None:
    """Draw a legend to the right of axes that have at least `least` curves.

    It is inside the axes if the figure has no layout that reserves space for it.
    """
    handles, labels = axes.get_legend_handles_labels()
    if len(labels) < least:
        return
    options = {"fontsize": "small", **options}
    if axes.figure.get_layout_engine() is None:
        few_points = sum(len(line.get_xdata()) for line in axes.lines) <= POINTS
        place = "best" if few_points else "upper right"
        axes.legend(handles, labels, loc=place, ncols=1 + len(labels) // 9, **options)
        return
    height = axes.bbox.height / axes.figure.dpi
    columns = _columns(len(labels), height)
    axes.legend(handles, labels, loc="upper left", bbox_to_anchor=(1.0, 1.02), ncols=columns, **options)


def _width(labels: Sequence[str], height: float) -> float:
    """Return the width, in inches, of a legend beside axes of a given height."""
    if len(labels) < 2:
        return 0.0
    return _columns(len(labels), height) * (0.5 + LETTER * max(map(len, labels)))


def _columns(count: int, height: float) -> int:
    """Return the number of columns of a legend with `count` entries.
    `height` is the height of the axes, in inches.
    """
    return -(-count // max(1, int(height / ROW) - 1))


def full_names(f: Any, names: Sequence[str]) -> tuple[str, ...]:
    """Return the full names of a map's quantities, given their full or short names.
    Without names, return the names of all states.
    """
    return tuple(quantity_name(f, n) for n in names) or tuple(f.state_names)


def named_runs(runs: Any) -> dict[str, Any]:
    """Return runs as a dict by name, with numbers as names of unnamed runs."""
    if isinstance(runs, dict):
        return {name: trajectory_of(run) for name, run in runs.items()}
    if isinstance(runs, Batch):  # without failed rollouts
        return {str(i): runs[i] for i in range(len(runs)) if i not in runs.errors}
    if hasattr(trajectory_of(runs), "map"):
        return {"": trajectory_of(runs)}
    return {str(i): trajectory_of(run) for i, run in enumerate(runs)}
