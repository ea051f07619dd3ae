"""Viewer of mechanisms in three dimensions in the browser, based on viser.

Install it by ``pip install "vioc[viewer]"``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from vioc.dynamics.description.system import System
from vioc.dynamics.formats.robot import Robot
from vioc.viz.marks import Marks
from vioc.viz.scene import Runs, Scene, labelled, marked, scene_of
from vioc.viz.solids import Visuals
from vioc.viz.viewer.page import check, write_page
from vioc.viz.viewer.player import Viewer, load_viser
from vioc.viz.viewer.poser import Poser

__all__ = ["Poser", "Viewer", "view", "write_page"]

MOST = 2000  # most samples of a run that are kept


def view(
    runs: Runs | System | Robot,
    q: Any = None,
    *,
    visuals: Visuals | None = None,
    meshes: str | os.PathLike | Sequence[str | os.PathLike] | None = None,
    html: str | os.PathLike | None = None,
    fps: float = 30,
    speed: float = 1.0,
    follow: str | None = None,
    show: Sequence[str] = (),
    host: str = "127.0.0.1",
    port: int = 8080,
    play: bool = True,
    marks: Marks = (),
) -> Any:
    """Show runs in the browser, or a mechanism whose variables have sliders.

    Parameters
    ----------
    runs : Trajectory or result with one, sequence of them, batch, dict by label, System, or Robot
        Several trajectories are drawn over each other, each in its own colour; a label
        ``"reference"`` is grey and half transparent. A system does not move, and has a slider for each
        variable.
    q : array (nq,) or dict by name, optional
        Initial configuration of a system.
    visuals : path of a URDF file, Robot or sequence of Shape, optional
        Shapes that represent the links.
    meshes : path or paths, optional
        Folders in which the files of meshes are looked up, before those above the URDF file.
    html : path, optional
        Write a self-contained page with a time bar to this file instead.
    fps : float
        Samples per second of this page.
    speed : float
        Seconds of the mechanism per second.
    follow : str, optional
        A frame, or ``"center of mass"``, that stays in the middle.
    show : sequence of str
        Objects to show from the start: ``frames``, ``names``, ``inertia``, ``skeleton``.
    host : str
        Address to listen on. The default excludes other machines; ``"0.0.0.0"`` admits them.
    port : int
        First port that is tried.
    play : bool
        Whether to start the clock.
    marks : result of `obstacle`, dict of points (3,) by label, or a sequence of these
        Obstacles and targets of runs, as in `vioc.viz.animate`.

    Returns
    -------
    Viewer, or Path
        The viewer, to be opened at its ``url``, which a notebook shows automatically; it runs until
        ``close()``. With `html` the file.

    Raises
    ------
    ImportError
        If viser is not installed.
    TypeError, ValueError, ModelError
        If an argument is wrong.
    FileNotFoundError
        If a mesh, or the folder of `html`, is not found.
    """
    if html is not None:
        check(html, fps, speed)
    load_viser()
    bounds = None
    if isinstance(runs, Robot):
        visuals = runs if visuals is None else visuals
        bounds = {name: limit[:2] for name, limit in runs.limits.items()}
        runs = runs.system
    options: dict[str, Any] = dict(host=host, port=port, follow=follow)
    if isinstance(runs, System):
        viewer: Viewer = Poser(runs, q, bounds=bounds, visuals=visuals, meshes=meshes, **options)
    else:
        if q is not None:
            raise ValueError("q: expected None for a trajectory, which has configurations; q is for a system")
        trajectories = labelled(runs)
        scenes = {label: _sampled(run, visuals, meshes) for label, run in trajectories.items()}
        viewer = Viewer(marked(scenes, runs, marks), **options)
    try:
        viewer.speed = speed
        viewer.show(**{name: True for name in show})
        if html is not None:
            return write_page(viewer, html, fps=fps, speed=speed)
        if play:
            viewer.play()
    except BaseException:
        viewer.close()
        raise
    finally:
        if html is not None:
            viewer.close()
    return viewer


def _sampled(run: Any, visuals: Any, meshes: Any) -> Scene:
    """Return the scene of a run at its sample times.
    If the run has more than 2000 samples, the scene has 2000 evenly spaced times instead.
    """
    times = None
    if len(run.t) > MOST:
        times = np.linspace(run.t[0], run.t[-1], MOST)
    return scene_of(run, times, visuals=visuals, meshes=meshes)
