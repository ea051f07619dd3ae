"""HTML file that plays the runs of a viewer, with a time bar, without a server."""

from __future__ import annotations

import os
import re
from html import escape
from pathlib import Path

import numpy as np

from vioc.progress import Progress
from vioc.viz.viewer.player import Viewer


def write_page(viewer: Viewer, path: str | os.PathLike, *, fps: float = 30, speed: float = 1.0) -> Path:
    """Write a viewer's runs to one HTML file, which plays them without a server.

    Parameters
    ----------
    viewer : Viewer
    path : path
        ``.html``.
    fps : float
        Samples per second of the recording.
    speed : float
        Seconds of the mechanism per second of the recording.

    Returns
    -------
    Path

    Raises
    ------
    ValueError
        If an argument is wrong.
    FileNotFoundError
        If the path's folder does not exist.
    """
    target = check(path, fps, speed)
    before = viewer.time
    viewer.pause()
    count = max(1, round((viewer.end - viewer.start) * fps / speed))
    viewer.go(viewer.start)
    recording = viewer.server.get_scene_serializer()
    with Progress(target.name, total=count) as progress:
        for t in np.linspace(viewer.start, viewer.end, count + 1)[1:]:
            recording.insert_sleep(1 / fps)
            viewer.go(float(t))
            progress.advance()
    page = recording.as_html()
    title = escape(next(iter(viewer.drawings.values())).scene.system.name)
    legend = (
        f'<div style="position: fixed; top: 8px; left: 8px; z-index: 9; font-family: sans-serif; '
        f'background: #ffffffcc; border-radius: 4px">{viewer.legend()}</div>'
    )
    page = re.sub("<title>.*?</title>", lambda _: f"<title>{title}</title>", page, count=1)
    end = page.rindex("</body>")
    target.write_text(page[:end] + (legend if viewer.legend() else "") + page[end:], encoding="utf-8")
    viewer.go(before)
    return target


def check(path: str | os.PathLike, fps: float = 30, speed: float = 1.0) -> Path:
    """Return the path of an HTML page, or raise an error if it cannot be written.

    The errors are those of `write_page`.
    """
    target = Path(path)
    if target.suffix.lower() not in (".html", ".htm"):
        raise ValueError(f"{path}: expected a file .html")
    if not target.parent.is_dir():
        raise FileNotFoundError(f"{path}: no such folder {target.parent}; make it first")
    if not (fps > 0 and speed > 0):
        raise ValueError(f"expected fps > 0 and speed > 0, got {fps} and {speed}")
    return target
