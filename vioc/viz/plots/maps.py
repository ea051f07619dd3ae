"""Plots of results of parameter sweeps, and of regions of attraction."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from vioc.names import meaning
from vioc.viz.plots.style import ALONE, WIDTH, legend, panels
from vioc.viz.plots.units import label

if TYPE_CHECKING:
    from vioc.control.analysis.attraction import Attraction
    from vioc.control.analysis.lyapunov import LyapunovLevel
    from vioc.sweeps.run import Sweep

PLANE = (6.0, 4.4)  # in
TICKS = 10  # labels along an axis


def plot_sweep(
    sweep: Sweep,
    first: str,
    second: str | None = None,
    *,
    value: str,
    units: Mapping[str, str] | None = None,
    reduce: Callable[[np.ndarray], float] | None = None,
    log: bool = False,
    ax: Any = None,
) -> Any:
    """Plot a result of a parameter sweep over one argument or two arguments.
    The plot is a curve for one argument, and a heat map for two.

    Parameters
    ----------
    sweep : Sweep
    first, second : str
        Arguments of the points (or entries of the results); the second is vertical.
    value : str
        Entry of the results, which are dicts.
    units : dict of str to str, optional
        Units of arguments and value.
    reduce : callable, optional
        Function from the results (n,) of one cell to a number: `numpy.median`.
    log : bool
        Logarithmic values.
    ax : matplotlib Axes, optional

    Returns
    -------
    Axes
        A cell of a failed task or a missing combination is hatched, and the curve broken.

    Raises
    ------
    KeyError
        If points and results have no such entry.
    ValueError
        If several results share a cell and there is no `reduce`.
    """
    known = units or {}
    names = (first,) if second is None else (first, second)
    keys = [sweep.column(n) for n in names]
    results = np.asarray(sweep.column(value), float)
    ticks = [_sorted(k) for k in keys]
    cells = np.full([len(t) for t in ticks], np.nan)
    places = [
        np.array([t.index(k) for k in column]) for t, column in zip(ticks, map(list, keys), strict=True)
    ]
    for cell in set(zip(*(p.tolist() for p in places), strict=True)):
        cell_results = results[np.all([p == i for p, i in zip(places, cell, strict=True)], axis=0)]
        cell_results = cell_results[np.isfinite(cell_results)]
        if len(cell_results) > 1 and reduce is None:
            place = ", ".join(f"{n} = {t[i]}" for n, t, i in zip(names, ticks, cell, strict=True))
            raise ValueError(f"{len(cell_results)} results at {place}: give `reduce`, such as numpy.median")
        if len(cell_results):
            cells[cell] = cell_results[0] if len(cell_results) == 1 else reduce(cell_results)  # type: ignore[misc]
    (axes,) = panels(1, ax, size=(WIDTH, ALONE) if second is None else PLANE, grid=second is None)
    axes.set_xlabel(label(first, known.get(first, "")))
    text = label(value, known.get(value, ""))
    if second is None:
        axes.plot(ticks[0], cells, ".-", lw=1.5)
        axes.set(ylabel=text, yscale="log" if log else "linear")
        return axes
    axes.set_ylabel(label(second, known.get(second, "")))
    across, up = (np.arange(len(t) + 1) - 0.5 for t in ticks)
    _heat(axes, across, up, cells.T, text, norm="log" if log else None)
    _ticks(axes.xaxis, ticks[0])
    _ticks(axes.yaxis, ticks[1])
    return axes


def plot_attraction(
    region: Attraction,
    first: str | None = None,
    second: str | None = None,
    *,
    level: LyapunovLevel | None = None,
    cells: int | None = None,
    ax: Any = None,
) -> Any:
    """Plot from which initial states a closed loop converges.
    The axes are two of the states. Initial states are dots if the closed loop converges from them, and
    crosses otherwise. With `cells`, the colour of each cell of a grid shows the fraction of its initial
    states from which the closed loop converges.

    Parameters
    ----------
    region : Attraction
    first, second : str, optional
        States; default the first two in which starts differ.
    level : LyapunovLevel, optional
        Level whose ellipse is drawn about the equilibrium.
    cells : int, optional
        Number of cells a side, in which the fraction of converging starts is drawn instead of dots.
    ax : matplotlib Axes, optional

    Returns
    -------
    Axes

    Raises
    ------
    ModelError
        If a name is unknown.
    ValueError
        If no two states differ between the starts.
    """
    first, second = _two(region, first, second)
    x, y = region[first], region[second]
    caught = region.caught
    (axes,) = panels(
        1, ax, labels=[["100 caught"] * 2 if cells is None else []], size=PLANE, grid=cells is None
    )
    if cells is None:
        size = float(np.clip(300 / np.sqrt(len(x)), 4, 30))
        axes.scatter(x[~caught], y[~caught], size, "C3", marker="x", lw=1, label=f"{(~caught).sum()} lost")
        axes.scatter(x[caught], y[caught], size, "C0", marker="o", lw=0, label=f"{caught.sum()} caught")
    else:
        total, across, up = np.histogram2d(x, y, cells)
        inside = np.histogram2d(x[caught], y[caught], (across, up))[0]
        share = np.divide(inside, total, out=np.full_like(total, np.nan), where=total > 0)
        _heat(axes, across, up, share.T, "share of starts caught", vmin=0, vmax=1)
    if level is not None:
        ring = level.ellipse(first, second)
        if region.center is not None:
            ring = ring + region.center[[region.names.index(n) for n in (first, second)]]
        axes.plot(*ring.T, color="0.1", lw=1.5, label=f"V = {level.level:.3g}")
    units = region.units
    axes.set(xlabel=label(first, units.get(first, "")), ylabel=label(second, units.get(second, "")))
    if cells is None:
        legend(axes)
    return axes


def _two(region: Attraction, first: str | None, second: str | None) -> tuple[str, str]:
    first, second = (n if n is None else meaning(n, region.names, "starts") for n in (first, second))
    if first == second and first is not None:
        raise ValueError(f"expected two different states, got {first!r} twice")
    spread = np.ptp(region.starts, axis=0) > 0
    free = [n for n, wide in zip(region.names, spread, strict=True) if wide and n not in (first, second)]
    names = [n if n is not None else free.pop(0) if free else None for n in (first, second)]
    if None in names:
        raise ValueError(f"the starts differ in {int(spread.sum())} states, a map needs two; name them")
    return names[0], names[1]  # type: ignore[return-value]


def _heat(axes: Any, across: np.ndarray, up: np.ndarray, cells: np.ndarray, name: str, **colors: Any) -> None:
    """Draw a heat map of rectangular cells, in which cells with NaN are hatched.

    Rows of cells go up, columns across.
    """
    axes.patch.set(hatch="////", edgecolor="0.7", facecolor="0.95")
    mesh = axes.pcolormesh(across, up, np.ma.masked_invalid(cells), cmap="viridis", **colors)
    axes.figure.colorbar(mesh, ax=axes, label=name)


def _ticks(axis: Any, values: list[Any]) -> None:
    """Label the cells along an axis of a plot with their values.
    Labels for which there is no space are left out.
    """
    every = -(-len(values) // TICKS)
    places = np.arange(0, len(values), every)
    axis.set_ticks(places, [v if isinstance(v, str) else f"{v:.4g}" for v in values[::every]])


def _sorted(column: np.ndarray) -> list[Any]:
    values = list(dict.fromkeys(column.tolist()))
    return values if any(isinstance(v, str) for v in values) else sorted(values)
