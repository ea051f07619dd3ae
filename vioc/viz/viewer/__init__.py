"""Mechanisms in three dimensions in the browser, by viser: ``pip install "vioc[viewer]"``."""

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

MOST = 2000  # samples of a run that are kept


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
    """Show runs of a mechanism, or a mechanism that is posed by hand, in the browser.

    Parameters
    ----------
    runs : Trajectory or what has one, sequence of them, batch, dict by label, System, or Robot
        Several trajectories are drawn over each other, each in a colour of its own; a label
        ``"reference"`` is grey and half transparent. A system stands still, with a slider for each variable.
    q : array (nq,) or dict by name, optional
        Where a system stands first.
    visuals : path of a URDF file, Robot or sequence of Shape, optional
        Shapes that links are drawn with.
    meshes : path or paths, optional
        Folders in which the files of meshes are looked up, before those above the URDF file.
    html : path, optional
        Write a self-contained page with a time bar instead, to send to somebody.
    fps : float
        Samples per second of that page.
    speed : float
        Seconds of the mechanism per second.
    follow : str, optional
        A frame, or ``"center of mass"``, that stays in the middle.
    show : sequence of str
        What to show from the start of ``frames``, ``names``, ``inertia``, ``skeleton``.
    host : str
        Where to listen. The default lets nobody in from other machines, ``"0.0.0.0"`` does.
    port : int
        The first of the ports that are tried.
    play : bool
        Whether to start the clock.
    marks : what `obstacle` returns, dict of points (3,) by label, or a sequence of these
        Obstacles and targets beside runs, as `vioc.viz.animate` takes them.

    Returns
    -------
    Viewer, or Path
        The viewer, whose ``url`` is to be opened, and which a notebook shows by itself; it runs until
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
            raise ValueError("q: a trajectory says where the mechanism is; q is for a system")
        found = labelled(runs)
        scenes = {label: _sampled(run, visuals, meshes) for label, run in found.items()}
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
    """A scene of all samples, or of so many that a browser takes them."""
    times = None
    if len(run.t) > MOST:
        times = np.linspace(run.t[0], run.t[-1], MOST)
    return scene_of(run, times, visuals=visuals, meshes=meshes)
