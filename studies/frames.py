"""Stills of a motion: the mechanism at some times in one picture, drawn from its description.

They are frames of the toolkit's animation (`vioc.viz.animate`), laid over each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

import vioc
from vioc.viz.animation import common_plane, fit, stage
from vioc.viz.scene import scene_of

FAINT, STRONG = 0.12, 0.45  # opacity of the first pose, and of the last but one
TRACED = 300  # samples of a traced path


def poses(
    run: vioc.Trajectory,
    at: float | Sequence[float] | np.ndarray | None = None,
    *,
    ax: Any = None,
    view: str | None = None,
    trace: Sequence[str] = (),
) -> Any:
    """Draw a mechanism at one or more times, the earlier the fainter.

    Parameters
    ----------
    run : Trajectory
        Of a map with a ``system``.
    at : float or sequence of float, optional
        Times in s; each shows the sample nearest to it. By default five, from the start to the end.
    ax : matplotlib Axes, optional
        Where to draw; its projection must fit the view.
    view : one of ``xz yz xy 3d``, optional
        By default the plane that the mechanism moves in, else three dimensions.
    trace : sequence of str
        Frames whose path over the whole run is drawn (`Scene.track`).

    Returns
    -------
    matplotlib Axes
    """
    times = np.atleast_1d(np.linspace(run.t[0], run.t[-1], 5) if at is None else np.asarray(at, float))
    path = np.linspace(run.t[0], run.t[-1], TRACED if trace else 0)
    scene = scene_of(run, np.concatenate([times, path]))  # its limits hold the paths too
    view = view or common_plane([scene])
    fades = [*np.linspace(FAINT, STRONG, len(times) - 1), 1.0]
    for i, fade in enumerate(fades):
        drawn = set(ax.lines) if ax is not None else set()
        ax, update = stage({"run": scene}, view, ax, to_screen=True)
        update(i)
        for line in set(ax.lines) - drawn:
            line.set_alpha(fade)
    shown = list({"xz": (0, 2), "yz": (1, 2), "xy": (0, 1)}.get(view, (0, 1, 2)))
    for name in trace:
        ax.plot(*scene.track(name)[len(times) :, shown].T, color="0.3", lw=0.8, ls=":", zorder=6)
    if view == "3d":
        for text in [*ax.figure.texts]:  # the animation's own, of one time
            text.remove()
        ax.set_position((0.05, -0.04, 0.9, 0.86))  # what moves up takes the title along
        fit(ax, lines=2)
    else:
        ax.set_aspect("equal")
        ax.figure.set_layout_engine("constrained")  # the animation's is off
    ax.grid(alpha=0.2)
    ax.set_title("", loc="left")  # the animation's own, of one time
    ax.set_title(_moments(times), fontsize="medium")
    return ax


def _moments(times: np.ndarray) -> str:
    if len(times) == 1:
        return f"t = {times[0]:.3g} s"
    if len(times) > 3:
        return f"t = {times[0]:.3g} to {times[-1]:.3g} s, the later the darker"
    return "t = " + ", ".join(f"{t:.3g}" for t in times) + " s, the last in full colour"
