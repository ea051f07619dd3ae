"""Ellipses of Gramians and Lyapunov functions in the plane of two state errors.
A state error is the deviation of a state from a reference.
"""

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
    """Plot projection and section of a Gramian's ellipsoid in the plane of two errors.
    The errors are the deviations of the states `first` and `second` from a reference.

    The projection is solid: the errors of the other states are arbitrary. The section is dashed: the errors
    of the other states are zero. For a controllability report the curves bound the last states that inputs
    with an energy of at most `level` reach. For an observability report they bound the first states whose
    output energy is at most `level` (1 is one standard deviation of the noise).

    Parameters
    ----------
    structure : Structure
        Result of `controllability` or `observability`.
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
        If the ellipse is unbounded: a combination of the two is not observable.

    Notes
    -----
    The Gramian W = L L' of a controllability report has the reachable errors z = L w with |w|^2 <= level. For
    the states i and j the rows L_ij of L have the singular value decomposition U S V', and the boundary of
    the projection is, with the angle a,

        z_ij = level^(1/2) U S (cos a, sin a).

    For the section L_ij N replaces L_ij, where N is an orthonormal basis of the null space of the other rows
    of L. For the Gramian W_o of an observability report, the factor M with M M' = W_o^-1 on the observable
    subspace replaces L. At level 1 the projection then shows the standard deviation of the best estimate of
    the initial state, and the section shows it if all other states are known.
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
    """Plot the boundary of a level set {V <= c} of a Lyapunov function V.
    The axes are two components of the state error; its other components are zero.

    Parameters
    ----------
    level : LyapunovLevel
    first, second : str
        Errors.
    ax : matplotlib Axes, optional

    Returns
    -------
    Axes
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
