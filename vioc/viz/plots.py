"""Plots over time and over iterations. Each takes `ax` and returns the axes it drew on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from vioc.dynamics.trajectory import Trajectory


KINDS = {
    "m": "position",
    "rad": "angle",
    "m/s": "velocity",
    "rad/s": "angular velocity",
    "kg m/s": "momentum",
    "kg m^2/s": "angular momentum",
    "N": "force",
    "N m": "torque",
    "J": "energy",
}


def plot_trajectory(trajectory: Trajectory, *names: str, ax: Any = None) -> Any:
    """Named quantities over time; all states without names.

    Parameters
    ----------
    trajectory : Trajectory
    *names : str
        Anything that ``trajectory[name]`` knows. What is constant over a step (inputs, multipliers)
        is drawn as steps.
    ax : matplotlib Axes, optional
        Where to draw everything. Without it there is one panel per unit.

    Returns
    -------
    Axes, or an array of Axes, one per unit.

    Raises
    ------
    ModelError
        If a name is unknown.
    """
    names = names or trajectory.map.state_names
    values = {n: trajectory[n] for n in names}  # before a figure is made: a name may be unknown
    units = {n: _unit(trajectory, n) for n in names}
    if ax is not None:
        groups, axes = [list(names)], [ax]
    else:
        groups = [[n for n in names if units[n] == u] for u in _unique(units.values())]
        axes = _panels(len(groups))
    for panel, group in zip(axes, groups, strict=True):
        for name in group:
            _draw(panel, trajectory.t, values[name], name)
        _label(panel, group, units)
    axes[-1].set_xlabel("t [s]")
    axes[0].figure.align_ylabels(axes)
    return axes[0] if len(axes) == 1 else np.array(axes)


def plot_inputs(trajectory: Trajectory, *, ax: Any = None) -> Any:
    """All inputs over time, as the steps they are held for; returns the axes."""
    if not trajectory.map.input_names:
        raise ValueError("the map of this trajectory has no inputs to plot")
    return plot_trajectory(trajectory, *(f"u.{n}" for n in trajectory.map.input_names), ax=ax)


def plot_energy(trajectory: Trajectory, *, ax: Any = None) -> Any:
    """Total energy over time, J; returns the axes.

    Without forces a variational integrator keeps it in a band that shrinks as the square of the step.
    """
    energy = trajectory.energy  # before a figure is made: the map may have none
    axes = ax if ax is not None else _panels(1)[0]
    axes.plot(trajectory.t, energy)
    axes.set(xlabel="t [s]", ylabel="energy [J]")
    axes.grid(alpha=0.3)
    return axes


def plot_convergence(
    cost: Sequence[float] | np.ndarray, descent: Sequence[float] | np.ndarray, *, ax: Any = None
) -> Any:
    """How an optimization converged, over its iterations; returns the axes.

    Parameters
    ----------
    cost : (n,)
        Cost of each iterate.
    descent : (n,) or (n-1,)
        |Dg . zeta|, the decrease that the linear model promised; NaN where there is none.
    """
    axes = ax if ax is not None else _panels(1)[0]
    axes.semilogy(np.arange(len(cost)), cost, ".-", label="cost")
    axes.semilogy(np.arange(len(descent)), np.abs(descent), ".-", label=r"$|Dg\cdot\zeta|$")
    axes.set(xlabel="iteration", ylabel="cost and its promised decrease")
    axes.xaxis.get_major_locator().set_params(integer=True)
    axes.grid(alpha=0.3)
    axes.legend()
    return axes


def _draw(axes: Any, t: np.ndarray, values: np.ndarray, name: str) -> None:
    columns = values[:, None] if values.ndim == 1 else values
    for i, column in enumerate(columns.T):
        label = name if values.ndim == 1 else f"{name}[{i}]"
        if len(column) == len(t):
            axes.plot(t, column, label=label)
        else:
            axes.stairs(column, t, baseline=None, lw=1.5, label=label)


def _label(axes: Any, names: Sequence[str], units: dict[str, str]) -> None:
    """A name and unit on the axis; of several curves what they have in common, and a legend."""
    lines = axes.get_legend_handles_labels()[1]
    shared = _unique(units[n] for n in names)
    unit = shared[0] if len(shared) == 1 else ""
    several = KINDS.get(unit) or (", ".join(names) if len(names) <= 3 else "")
    what = lines[0] if len(lines) == 1 else several
    gap = "\n" if len(what + unit) > 20 else " "  # longer than a panel is high
    axes.set_ylabel(f"{what}{gap}[{unit}]" if unit else what)
    if len(lines) > 1:
        axes.legend(ncols=1 + len(lines) // 5, fontsize="small")
    axes.grid(alpha=0.3)


def _unit(trajectory: Trajectory, name: str) -> str:
    """Unit of a named quantity, "" where the map does not say."""
    unit = getattr(trajectory.map, "unit", None)
    return unit(name) if unit is not None else ""


def _unique(items: Any) -> list[str]:
    return list(dict.fromkeys(items))


def _panels(count: int) -> list[Any]:
    import matplotlib.pyplot as plt

    size = (6.4, 3.2 if count == 1 else 1.0 + 1.8 * count)
    _, axes = plt.subplots(count, 1, sharex=True, squeeze=False, figsize=size, layout="constrained")
    return list(axes[:, 0])
