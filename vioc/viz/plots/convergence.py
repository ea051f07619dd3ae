"""Plots of an optimizer's convergence, and of an integrator's order of accuracy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from vioc.viz.plots.style import legend, panels
from vioc.viz.plots.units import label

MARKS = {"newton": "o", "blend": "D", "gauss-newton": "s", "steepest": "^"}
PROMISE = r"$|Dg\cdot\zeta|$"


def plot_convergence(
    result: Any, descent: Sequence[float] | np.ndarray | None = None, *, ax: Any = None
) -> Any:
    """Plot an optimization's convergence over its iterations, on a logarithmic axis.

    Parameters
    ----------
    result : Result, History, or (n,)
        For a descent: cost and |Dg . zeta|, the decrease that the linear model predicts, which converges
        quadratically for Newton steps, with a mark for the method of each step, and in multiple shooting the
        defect. For a result of DMOC (IPOPT, FATROP):
        objective and infeasibilities. For an array: the cost of each iterate.
    descent : (n,) or (n-1,), optional
        |Dg . zeta| for an array of costs; NaN if unknown.
    ax : matplotlib Axes, optional

    Returns
    -------
    Axes

    Raises
    ------
    ValueError
        If there is nothing to plot.

    Notes
    -----
    Costs that are not positive are drawn as differences from the smallest one.
    """
    curves, methods = _curves(result, descent)
    curves = {name: np.asarray(values, float) for name, values in curves.items()}
    if not any(len(values) for values in curves.values()):
        raise ValueError("there are no iterations to plot")
    (axes,) = panels(1, ax, labels=[[*curves, *dict.fromkeys(methods)]])
    axes.set_yscale("log")
    labels = np.array([m.rpartition(" ")[2] for m in methods])  # "ms newton": a step of multiple shooting
    for i, (name, values) in enumerate(curves.items()):
        values = np.abs(values) if i else values
        if not i and np.nanmin(values) <= 0:
            name, values = f"{name} - least", values - np.nanmin(values)
        values = np.where(values > 0, values, np.nan)
        k = np.arange(len(values))
        axes.plot(k, values, "-" if len(labels) else ".-", color=f"C{i}", lw=1.2, label=name)
        for method in dict.fromkeys(labels):
            here = np.flatnonzero(labels == method)
            axes.plot(here, values[here], MARKS.get(method, "."), color=f"C{i}", ms=4)
    for method in dict.fromkeys(labels):
        axes.plot([], [], MARKS.get(method, "."), color="0.4", ms=4, label=method)
    axes.set(xlabel="iteration", ylabel=" and ".join(curves) if len(curves) < 3 else "")
    axes.xaxis.get_major_locator().set_params(integer=True)
    legend(axes)
    return axes


def _curves(result: Any, descent: Any) -> tuple[dict[str, Any], Sequence[str]]:
    """Return the curves of an optimization by name, and the method of each iteration.
    The method is the kind of descent, such as ``"newton"``, if it is recorded.

    The first curve is a cost.
    """
    if log := getattr(result, "stats", {}).get(
        "iterations"
    ):  # the log of DMOC's solver has more than the history
        names = {"obj": "cost", "inf_pr": "primal infeasibility", "inf_du": "dual infeasibility"}
        return {text: log[key] for key, text in names.items() if key in log}, ()
    history = getattr(result, "history", result)
    if hasattr(history, "descent"):
        curves = {"cost": history.cost, PROMISE: history.descent}
        if np.any(history.gap > 0):
            curves["gap"] = history.gap
        return curves, list(history.method)
    return {"cost": result, **({} if descent is None else {PROMISE: descent})}, ()


def plot_orders(
    steps: Sequence[float] | np.ndarray,
    errors: Mapping[str, Sequence[float]] | Sequence[float],
    *,
    xlabel: str = "step length (s)",
    unit: str = "",
    ax: Any = None,
) -> Any:
    """Plot errors over step lengths on logarithmic axes, with orders of convergence.

    Parameters
    ----------
    steps : (n,)
        Positive; in any order.
    errors : dict of str to (n,), or (n,)
        Values that are not positive and finite are omitted.
    xlabel : str
        Label of the axis, for refinements other than of the step length.
    unit : str
        Unit of the errors.
    ax : matplotlib Axes, optional

    Returns
    -------
    Axes
        The legend has the least-squares slopes, the orders p of the model error = c h^p; dashed lines below
        have the nearest integer orders. Omit points that are dominated by rounding.

    Raises
    ------
    ValueError
        For wrong shapes; a curve with fewer than two points.
    """
    h = np.asarray(steps, float)
    curves = errors if isinstance(errors, Mapping) else {"error": errors}
    fits = {name: _order(h, np.asarray(e, float), name) for name, e in curves.items()}
    (axes,) = panels(1, ax, labels=[[f"{name}: order 2.00" for name in curves]])
    axes.set(xscale="log", yscale="log")
    for i, (name, (lengths, e, order)) in enumerate(fits.items()):
        axes.plot(lengths, e, "o-", ms=4, lw=1.5, color=f"C{i}", label=f"{name}: order {order:.2f}")
        if round(order):
            middle = np.exp(np.log(e).mean() - round(order) * np.log(lengths).mean())
            axes.plot(lengths, 0.6 * middle * lengths ** round(order), "--", color="0.5", lw=0.8, zorder=1)
    axes.set(xlabel=xlabel, ylabel=label("error", unit))
    legend(axes, least=1)  # the legend shows the order of convergence
    return axes


def _order(h: np.ndarray, e: np.ndarray, name: str) -> tuple[np.ndarray, np.ndarray, float]:
    """Return step lengths in ascending order, their errors, and the fitted order.
    Only positive finite errors count. The order is the slope of log(error) over log(step length).
    """
    if h.ndim != 1 or e.shape != h.shape:
        raise ValueError(f"errors of {name!r}: expected shape {h.shape}, one per step length, got {e.shape}")
    keep = np.isfinite(e) & (e > 0) & (h > 0)
    if len(np.unique(h[keep])) < 2:
        raise ValueError(f"errors of {name!r}: expected at least two that are positive, got {e}")
    order = np.argsort(h[keep])
    lengths, e = h[keep][order], e[keep][order]
    return lengths, e, float(np.polyfit(np.log(lengths), np.log(e), 1)[0])
