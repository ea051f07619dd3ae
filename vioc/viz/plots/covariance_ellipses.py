"""Ellipses: what inputs reach and outputs tell, in the plane of two errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vioc.viz.plots.style import legend, panels
from vioc.viz.plots.units import label

if TYPE_CHECKING:
    from vioc.control.analysis.lyapunov import LyapunovLevel
    from vioc.control.analysis.structure import Structure

PLANE = (5.2, 4.4)  # in


def plot_gramian(structure: Structure, first: str, second: str, *, level: float = 1.0, ax: Any = None) -> Any:
    """The ellipsoid of a Gramian in the plane of two errors: its projection, and dashed its section.

    Of a controllability report: the last states that inputs of energy up to `level` reach, whatever the
    other errors are, and with the others at zero. Of an observability report: the first states that show
    with an output energy up to `level` (1 is one standard deviation of the noise), where the other errors
    are unknown, and where they are known.

    Parameters
    ----------
    structure : Structure
        Of `controllability` or `observability`.
    first, second : str
        States.
    level : float
        Energy.
    ax : matplotlib Axes, optional

    Returns
    -------
    Axes

    Raises
    ------
    ModelError
        If a name is unknown.
    ValueError
        If the ellipse is not bounded: a combination of the two never shows.
    """
    outer = structure.ellipse(first, second, level=level)
    inner = structure.ellipse(first, second, level=level, section=True)
    what = (
        ("reached", "others at 0") if structure.what == "controllable" else ("others unknown", "others known")
    )
    axes = _plane(first, second, structure.units, ax, what)
    axes.fill(*outer.T, color="C0", alpha=0.2, lw=0)
    axes.plot(*outer.T, color="C0", lw=1.5, label=what[0])
    axes.plot(*inner.T, color="C3", lw=1.2, ls="--", label=what[1])
    unit = "energy" if structure.what == "controllable" else "output energy"
    legend(axes, title=f"{unit} {level:g},\n{structure.steps} steps", title_fontsize="small")
    return axes


def plot_level(level: LyapunovLevel, first: str, second: str, *, ax: Any = None) -> Any:
    """The set {V <= c} in the plane of two errors, others at zero; returns the axes.

    Parameters
    ----------
    level : LyapunovLevel
    first, second : str
        Errors.
    ax : matplotlib Axes, optional
    """
    boundary = level.ellipse(first, second)
    axes = _plane(first, second, level.units, ax)
    axes.plot(*boundary.T, color="0.1", lw=1.5)
    axes.set_title(f"V = {level.level:.3g}", fontsize="medium")
    return axes


def _plane(first: str, second: str, units: dict[str, str], ax: Any, labels: Sequence[str] = ()) -> Any:
    (axes,) = panels(1, ax, labels=[labels], size=PLANE)
    axes.set(xlabel=label(first, units.get(first, "")), ylabel=label(second, units.get(second, "")))
    axes.axhline(0, color="0.8", lw=0.8, zorder=0)
    axes.axvline(0, color="0.8", lw=0.8, zorder=0)
    return axes
