"""Plots of named quantities of a trajectory over time."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from vioc.errors import ModelError
from vioc.runs.given import trajectory_of
from vioc.viz.plots.bounds import Marked
from vioc.viz.plots.style import curve, full_names, legend, panels
from vioc.viz.plots.units import KINDS, label, quantity_unit

if TYPE_CHECKING:
    from vioc.runs.trajectory import Trajectory

T = TypeVar("T")
ROUNDING = 1e-9  # of the run's largest state: smallest range of an axis of states


def plot_trajectory(
    trajectory: Trajectory, *names: str, ax: Any = None, bounds: Any = None, targets: Any = None
) -> Any:
    """Plot named quantities over time, by default all states.

    Parameters
    ----------
    trajectory : Trajectory, or a result that has one
    *names : str
        Any name that ``trajectory[name]`` accepts. Quantities that are constant over a step (inputs,
        multipliers) are drawn as stairs.
    ax : matplotlib Axes, or one per unit, optional
        Axes to draw on; a single one gets all quantities. By default there is one panel per unit.
    bounds : dict, optional
        As for optimizers, by the name of a quantity; drawn as dotted lines if the quantity is drawn.
    targets : dict of str to float, optional
        Values at the end, likewise; drawn as crosses.

    Returns
    -------
    Array of Axes, one per unit.

    Raises
    ------
    ModelError
        If a name is unknown.
    """
    run = trajectory_of(trajectory)
    marked = Marked(run, bounds, targets)
    return _draw(run, {n: run[n] for n in full_names(run.map, names)}, ax, marked)


def plot_inputs(trajectory: Trajectory, *, ax: Any = None) -> Any:
    """Plot all inputs of a trajectory over time as stairs, constant in each step.

    Arguments and result are as in `plot_trajectory`.
    """
    run = trajectory_of(trajectory)
    if not run.map.input_names:
        raise ValueError("the map of this trajectory has no inputs to plot")
    return plot_trajectory(run, *(f"u.{n}" for n in run.map.input_names), ax=ax)


def plot_multipliers(trajectory: Trajectory, *names: str, impulses: bool = False, ax: Any = None) -> Any:
    """Plot the forces of constraints and contacts over time as stairs.

    Strings and rods have ``tension.NAME``, N, the others ``force.NAME``; contacts with friction also have
    ``friction.NAME``, its magnitude. The result is as in `plot_trajectory`.

    Parameters
    ----------
    trajectory : Trajectory, or a result that has one
    *names : str
        Names of constraints, contacts and limits; default all.
    impulses : bool
        The multipliers themselves, ``lambda.NAME``, instead of forces.
    ax : matplotlib Axes, or one per unit, optional

    Raises
    ------
    ValueError
        If the map has no constraints.
    """
    run = trajectory_of(trajectory)
    if not run.map.multiplier_names:
        raise ValueError("the map of this trajectory has no constraints, so no multipliers to plot")
    if impulses:
        return plot_trajectory(run, *(f"lambda.{n}" for n in names or run.map.multiplier_names), ax=ax)
    constraints = names or constraint_names(run.map)
    return plot_trajectory(run, *(quantity for n in constraints for quantity in _forces(run, n)), ax=ax)


def constraint_names(f: Any) -> list[str]:
    """Return the names of a map's constraints, contacts and joint limits.
    The friction multipliers of contacts are omitted.
    """
    multipliers = set(f.multiplier_names)
    return [n for n in f.multiplier_names if n.rpartition(".")[0] not in multipliers]


def _forces(run: Any, name: str) -> list[str]:
    with contextlib.suppress(ModelError):
        run.map.quantity(f"tension.{name}")
        return [f"tension.{name}"]
    with contextlib.suppress(ModelError):
        run.map.quantity(f"friction.{name}")
        return [f"force.{name}", f"friction.{name}"]
    return [f"force.{name}"]


def _draw(run: Any, values: dict[str, np.ndarray], ax: Any, marked: Marked) -> Any:
    units = {n: quantity_unit(run.map, n) for n in values}
    if ax is not None and np.ndim(np.asarray(ax, object)) == 0:
        groups = [list(values)]
    else:
        groups = [[n for n in values if units[n] == u] for u in unique(units.values())]
    labels = [[n for name in group for n in _columns(name, values[name])] for group in groups]
    axes = panels(len(groups), ax, names=[", ".join(g) for g in groups], labels=labels)
    for panel, group in zip(axes, groups, strict=True):
        mixed, colors = len(unique(units[n] for n in group)) > 1, {}
        for name in group:
            curve(panel, run.t, values[name], label(name, units[name]) if mixed else name)
            colors[name] = panel.lines[-1].get_color()
        for name, color in colors.items():
            marked.draw(panel, name, color)
        name_axis(panel, group, "" if mixed else units[group[0]])
        if all(n in run.map.state_names for n in group):  # the last digits of an error matter
            _widen(panel, values, group, float(np.abs(run.x).max(initial=0.0)))
        legend(panel)
    axes[-1].set_xlabel("t (s)")
    return np.array(axes)


def _widen(panel: Any, values: dict[str, np.ndarray], group: list[str], size: float) -> None:
    """Widen the vertical limits of a plot whose curves vary only by rounding errors.
    The curves then look constant.
    """
    low = min(float(values[n].min()) for n in group)
    high = max(float(values[n].max()) for n in group)
    if high - low < ROUNDING * size:
        middle = (low + high) / 2
        panel.set_ylim(middle - size / 2, middle + size / 2)


def _columns(name: str, values: np.ndarray) -> list[str]:
    return [name] if values.ndim == 1 else [f"{name}[{i}]" for i in range(values.shape[1])]


def name_axis(axes: Any, names: Sequence[str], unit: str) -> None:
    """Label an axis with the unit and the name, or the common part of several names."""
    lines = axes.get_legend_handles_labels()[1]
    kinds = unique(n.partition(".")[0] for n in names if "." in n)
    several = ", ".join(names) if len(names) <= 3 else kinds[0] if len(kinds) == 1 else ""
    what = lines[0] if len(lines) == 1 else KINDS.get(unit) or several
    text = label(what, unit) if what or not unit else label("", unit).strip()
    axes.set_ylabel(
        text if len(text) <= 23 else text.replace(" (", "\n(")
    )  # longer than the height of a panel


def unique(items: Iterable[T]) -> list[T]:
    return list(dict.fromkeys(items))
