"""Plots of energy and of constraint violations, which show errors of integrators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vioc.errors import ModelError
from vioc.runs.given import trajectory_of
from vioc.viz.plots.style import curve, legend, panels
from vioc.viz.plots.trajectories import constraint_names, unique
from vioc.viz.plots.units import label, quantity_unit

if TYPE_CHECKING:
    from vioc.runs.trajectory import Trajectory

MANY = 12  # most constraints with a colour each


def plot_energy(trajectory: Trajectory, *, parts: bool = False, change: bool = False, ax: Any = None) -> Any:
    """Plot the total energy, J, of a trajectory over time.

    Without forces a variational integrator keeps it in a band that shrinks as the square of the step.

    Parameters
    ----------
    trajectory : Trajectory, or a result that has one
    parts : bool
        Whether kinetic and potential energy are drawn, too.
    change : bool
        Whether changes since the start are drawn.
    ax : matplotlib Axes, optional

    Returns
    -------
    Axes

    Raises
    ------
    ModelError
        If the map has no energy.
    """
    run = trajectory_of(trajectory)
    names = ("energy", "kinetic", "potential") if parts else ("energy",)
    values = {n: run[n] for n in names}  # evaluated before a figure is made, because the map may have none
    (axes,) = panels(1, ax, labels=[names])
    for name, style in zip(names, ({"color": "0.2"}, {}, {}), strict=False):
        start = values[name][0] if change else 0.0
        curve(axes, run.t, values[name] - start, "total" if parts and name == "energy" else name, **style)
    axes.set(xlabel="t (s)", ylabel=label("change of energy" if change else "energy", "J"))
    legend(axes)
    return axes


def plot_constraints(trajectory: Trajectory, *names: str, ax: Any = None) -> Any:
    """Plot the violations |h| of constraints over time, on a logarithmic axis.

    Exact zeros are not drawn. Contacts and limits have gaps instead, which need not be zero: the smoothing
    of the map keeps the gap of a resting body open.

    Parameters
    ----------
    trajectory : Trajectory, or a result that has one
    *names : str
        Names of constraints, contacts and limits; default all. More than twelve in a panel are drawn in grey,
        with the largest.
    ax : matplotlib Axes, or one per panel, optional

    Returns
    -------
    Array of Axes, one per unit of violations and of gaps.

    Raises
    ------
    ValueError
        If the map has no constraints.
    ModelError
        If a name is unknown.
    """
    run = trajectory_of(trajectory)
    if not run.map.multiplier_names:
        raise ValueError("the map of this trajectory has no constraints")
    full = [_value(run, n) for n in names or constraint_names(run.map)]
    values = {n: _positive(run[n]) for n in full}
    units = {n: quantity_unit(run.map, n) for n in full}
    kinds = {n: (n.partition(".")[0], units[n]) for n in full}
    groups = [[n for n in full if kinds[n] == kind] for kind in unique(kinds.values())]
    axes = panels(len(groups), ax, labels=[g if len(g) <= MANY else ["largest of ..."] * 2 for g in groups])
    for panel, group in zip(axes, groups, strict=True):
        panel.set_yscale("log")
        dots = {"ls": "", "marker": ".", "ms": 4 if len(run) < 100 else 2}  # lines would hide each other
        if len(group) > MANY:
            for n in group:
                panel.plot(run.t, values[n], color="0.75", label="all" if n == group[0] else "_", **dots)
            largest = np.fmax.reduce([values[n] for n in group])
            panel.plot(run.t, largest, color="C3", lw=1.0, label=f"largest of {len(group)}")
        else:
            for n in group:
                curve(panel, run.t, values[n], n.partition(".")[2], **dots)
        legend(panel, markerscale=3)
        value = f"|{group[0].partition('.')[0]}|" if len(group) > 1 else f"|{group[0]}|"
        panel.set_ylabel(label(value, units[group[0]]))
    axes[-1].set_xlabel("t (s)")
    return np.array(axes)


def _positive(values: np.ndarray) -> np.ndarray:
    return np.where(values == 0, np.nan, np.abs(values))


def _value(run: Any, name: str) -> str:
    """Return the full name of a constraint's value h, or of a contact's gap.
    The full name is ``h.NAME`` for a constraint, and ``gap.NAME`` for a contact.
    """
    for quantity in (f"h.{name}", f"gap.{name}"):
        try:
            run.map.quantity(quantity)
        except ModelError as error:
            unknown = error
        else:
            return quantity
    raise unknown
