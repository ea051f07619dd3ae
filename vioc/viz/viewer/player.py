"""Browser viewer of runs, which consists of a viser server, scenes and a clock."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from vioc.dynamics.description.system import System
from vioc.dynamics.terms.potentials import Gravity
from vioc.viz.looks import RUNS, rgb, run_colors
from vioc.viz.poses import aligned, numbers, quaternions
from vioc.viz.scene import CENTER, Scene, nearest
from vioc.viz.viewer.scene_nodes import DEMANDED, Drawing

INSTALL = 'the browser viewer needs viser, which is not installed: pip install "vioc[viewer]"'
SPEEDS = ("1/20", "1/10", "1/5", "1/2", "1", "2", "5", "10")
NOTHING = "nothing"
LAST_PORT = 65535
PICTURES = 30.0  # a second, while playing


def load_viser() -> Any:
    """Import and return the package viser; ImportError with advice if it is missing."""
    try:
        import viser
    except ImportError as error:
        raise ImportError(INSTALL) from error
    return viser


class Viewer:
    """Viewer of runs in the browser, which `vioc.viz.view` returns.

    Parameters
    ----------
    scenes : dict of str to Scene
        Scenes by label.
    host : str
        Address to listen on; ``"0.0.0.0"`` admits other machines.
    port : int
        First port that is tried.
    follow : str, optional
        A frame, or ``"center of mass"``, that stays in the middle.

    Attributes
    ----------
    drawings : dict of str to Drawing
    server : viser.ViserServer
    start, end : float
        First and last time of the runs, s.

    Notes
    -----
    A context manager: the server stops at the end of the context, or with `close`.
    """

    def __init__(
        self,
        scenes: Mapping[str, Scene],
        *,
        host: str = "127.0.0.1",
        port: int = 8080,
        follow: str | None = None,
    ):
        if isinstance(port, bool) or port != int(port) or not 0 < port <= LAST_PORT:
            raise ValueError(f"port: expected a whole number from 1 to {LAST_PORT}, got {port!r}")
        first = next(iter(scenes.values()))
        if follow is not None:
            first.track(follow)  # raises an error for an unknown frame before a server is started
        viser = load_viser()
        self._lock = threading.RLock()
        self.start = float(min(s.t[0] for s in scenes.values()))
        self.end = float(max(s.t[-1] for s in scenes.values()))
        self.time, self.follow = self.start, follow
        self._playing, self._closed = threading.Event(), threading.Event()
        self._clock: threading.Thread | None = None
        self._speed, self._loop = 1.0, True
        self._slider: Any = None
        self._speeds: Any = None
        self._boxes: dict[str, Any] = {}
        with _quiet():
            self.server = viser.ViserServer(host=host, port=port, label=first.system.name, verbose=False)
        try:
            self._furnish(scenes)
        except BaseException:  # for example a mesh that cannot be read
            self.close()
            raise

    def _furnish(self, scenes: Mapping[str, Scene]) -> None:
        first = next(iter(scenes.values()))
        self._up = _up(first.system)
        self.server.scene.set_up_direction(tuple(self._up))
        low, high = (f([s.limits[i] for s in scenes.values()], axis=0) for i, f in ((0, np.min), (1, np.max)))
        self.size = float((high - low).max()) or 1.0
        self._world = self.server.scene.add_frame("/world", show_axes=False)
        self._floor(low, high, any(x.kind == "ground" for s in scenes.values() for x in s.solids))
        self._camera(first, (low + high) / 2)
        self.drawings = self._draw(scenes)
        if self.end > self.start:
            self._time_controls()
        self._show_controls()
        self.go(self.time)

    # -- scene ----------------------------------------------------------------------------------------

    def _draw(self, scenes: Mapping[str, Scene]) -> dict[str, Drawing]:
        heaviest = max((b.mass for s in scenes.values() for b in s.bodies), default=1.0) or 1.0
        drawings = {}
        for i, (label, color) in enumerate(zip(scenes, run_colors(list(scenes)), strict=True)):
            opacity = 0.5 if color is not None and color not in RUNS else None  # a reference
            path = f"/world/{i}-{label.replace('/', '_')}"
            drawings[label] = Drawing(self.server, scenes[label], path, self.size, color, opacity, heaviest)
        return drawings

    def _floor(self, low: np.ndarray, high: np.ndarray, has_ground: bool) -> None:
        cell = 10.0 ** np.floor(np.log10(self.size)) / 2
        height = min(low @ self._up, high @ self._up) - 0.02 * self.size
        center = (low + high) / 2
        place = center + (height - center @ self._up) * self._up
        place = np.round(place / (2 * cell)) * 2 * cell * (1 - np.abs(self._up)) + height * self._up
        self.server.scene.add_grid(
            "/world/floor",
            width=20 * cell,
            height=20 * cell,
            cell_size=cell,
            section_size=2 * cell,
            wxyz=quaternions(aligned(self._up)),
            position=place,
            visible=not has_ground,
        )

    def _camera(self, scene: Scene, center: np.ndarray) -> None:
        """Place the camera in front of the plane of motion, slightly above and to a side."""
        from vioc.viz.animation import PLANES, common_plane

        plane = common_plane([scene])
        side = np.array([0.5, -1.0, 0.35])
        if plane in PLANES:
            right, up = (np.eye(3)[i] for i in PLANES[plane])
            side = np.cross(right, up) + 0.3 * right + 0.25 * up
        camera = self.server.initial_camera
        camera.position = tuple(center + 1.05 * self.size * side / np.linalg.norm(side))
        camera.look_at = tuple(center)

    # -- time -----------------------------------------------------------------------------------------

    def go(self, t: float) -> None:
        """Show all runs at the time t, s.

        A run does not move before its start and after its end.
        """
        with self._lock, self.server.atomic():
            self.time = float(np.clip(t, self.start, self.end))
            for drawing in self.drawings.values():
                drawing.show(int(nearest(drawing.scene.t, self.time)))
            self._world.position = -self._followed()
        if self._slider is not None and abs(self._slider.value - self.time) > 1e-9:
            self._slider.value = self.time

    def _followed(self) -> np.ndarray:
        """Return the displacement (3,), m, of the followed frame since the run's start."""
        if self.follow is None:
            return np.zeros(3)
        scene = next(iter(self.drawings.values())).scene
        path = scene.track(self.follow)
        return path[nearest(scene.t, self.time)] - path[0]

    @property
    def playing(self) -> bool:
        return self._playing.is_set()

    def play(self) -> None:
        """Start to play the runs, from the start again if they are at the end."""
        if self._slider is None:
            return
        if self.time >= self.end:
            self.go(self.start)
        self._playing.set()
        self._button.label = "Pause"
        if self._clock is None:
            self._clock = threading.Thread(target=self._tick, name="vioc-viewer", daemon=True)
            self._clock.start()

    def pause(self) -> None:
        """Stop playing the runs."""
        self._playing.clear()
        if self._slider is not None:
            self._button.label = "Play"

    def _tick(self) -> None:
        last = time.monotonic()
        while not self._closed.wait(1 / PICTURES):
            now = time.monotonic()
            passed, last = now - last, now
            if not self.playing:
                self._playing.wait(0.5)
                last = time.monotonic()
                continue
            t = self.time + passed * self._speed
            if t > self.end and not self._loop:
                self.go(self.end)
                self.pause()
            else:
                self.go(t if t <= self.end else self.start)

    @property
    def speed(self) -> float:
        """Speed of playing, in seconds of the motion per second."""
        return self._speed

    @speed.setter
    def speed(self, value: float) -> None:
        if not value > 0:
            raise ValueError(f"speed: expected a number > 0, got {value}")
        self._speed = float(value)
        if self._speeds is not None:
            text = next((s for s in SPEEDS if abs(_ratio(s) - value) < 1e-9 * value), f"{value:g}")
            if text not in SPEEDS:
                self._speeds.options = (*SPEEDS, text)
            self._speeds.value = text

    # -- controls -------------------------------------------------------------------------------------

    def _time_controls(self) -> None:
        gui = self.server.gui
        self._button = gui.add_button("Play")
        self._button.on_click(lambda _: self.pause() if self.playing else self.play())
        step = 10.0 ** np.floor(np.log10((self.end - self.start) / 200))
        self._slider = gui.add_slider(
            "time (s)", float(self.start), float(self.end), float(step), float(self.start)
        )

        @self._slider.on_update
        def _(event: Any) -> None:
            if event.client is not None:  # else the clock moved the slider
                self.go(self._slider.value)

        self._speeds = gui.add_dropdown("speed", SPEEDS, initial_value="1")

        @self._speeds.on_update
        def _(event: Any) -> None:
            if event.client is not None:
                self._speed = _ratio(self._speeds.value)

        loop = gui.add_checkbox("loop", True)

        @loop.on_update
        def _(_: Any) -> None:
            self._loop = loop.value

    def _show_controls(self) -> None:
        gui = self.server.gui
        first = next(iter(self.drawings.values())).scene
        if self._slider is not None:
            names = [NOTHING, CENTER, *first.system.frame_names]
            follow = gui.add_dropdown("follow", names, initial_value=self.follow or NOTHING)

            @follow.on_update
            def _(_: Any) -> None:
                self.follow = None if follow.value == NOTHING else follow.value
                self.go(self.time)

        for what in DEMANDED:
            if any(d.demanded[what] for d in self.drawings.values()):
                self._checkbox(what)
        if len(self.drawings) > 1:
            gui.add_html(self.legend())
            for label, drawing in self.drawings.items():
                self._run_checkbox(label, drawing)

    def _checkbox(self, what: str) -> None:
        box = self._boxes[what] = self.server.gui.add_checkbox(what, False)

        @box.on_update
        def _(event: Any) -> None:
            if event.client is not None:
                self.show(**{what: box.value})

    def _run_checkbox(self, label: str, drawing: Drawing) -> None:
        box = self.server.gui.add_checkbox(label, True)

        @box.on_update
        def _(_: Any) -> None:
            drawing.root.visible = box.value

    def show(self, **what: bool) -> None:
        """Show or hide kinds of objects, such as frames, by name.

        Parameters
        ----------
        **what : bool
            ``frames`` (axes of named frames), ``names``, ``inertia`` (homogeneous boxes of the same
            inertia), ``skeleton`` (links below the shapes of a robot).
        """
        unknown = sorted(set(what) - set(DEMANDED))
        if unknown:
            raise ValueError(f"show: expected {', '.join(DEMANDED)}, got {unknown[0]!r}")
        with self.server.atomic():
            for name, shown in what.items():
                for drawing in self.drawings.values():
                    for handle in drawing.demanded[name]:
                        handle.visible = shown
                if name in self._boxes:
                    self._boxes[name].value = shown

    def legend(self) -> str:
        """Return the labels of runs in their colours as HTML; "" for a single run."""
        from html import escape

        colors = run_colors(list(self.drawings))
        rows = [
            f'<div><span style="color: rgb{rgb(color)}">&#9632;</span> {escape(label)}</div>'
            for label, color in zip(self.drawings, colors, strict=True)
            if color is not None
        ]
        return f'<div style="padding: 4px 12px; font-size: 12px">{"".join(rows)}</div>' if rows else ""

    # -- server ---------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        host = self.server.get_host()
        return f"http://{'localhost' if host in ('0.0.0.0', '127.0.0.1') else host}:{self.server.get_port()}"

    def wait(self) -> None:
        """Wait until the user interrupts (Ctrl-C) or the viewer is closed."""
        try:
            while not self._closed.wait(0.5):
                pass
        except KeyboardInterrupt:
            self.close()

    def close(self) -> None:
        """Stop playing, and stop the server."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._playing.set()  # wakes the clock
        if self._clock is not None:
            self._clock.join(timeout=2)
        self._playing.clear()
        with _quiet():
            self.server.stop()

    def __enter__(self) -> Viewer:
        return self

    def __exit__(self, *_: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"Viewer({', '.join(self.drawings)}; t = {self.start:g} .. {self.end:g} s; {self.url})"

    def _repr_html_(self) -> str:
        return f'<iframe src="{self.url}" width="100%" height="480" style="border: 0"></iframe>'


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the messages that viser prints when it starts and stops."""
    import rich

    console = rich.get_console()
    before, console.quiet = console.quiet, True
    try:
        yield
    finally:
        console.quiet = before


def _ratio(text: str) -> float:
    """Convert a ratio such as ``"1/5"`` or ``"2"`` to a float."""
    over, _, under = text.partition("/")
    return float(over) / float(under or 1)


def _up(system: System) -> np.ndarray:
    """Return the upward unit vector, which is opposite to gravity.
    It is the z axis if gravity is zero or is not along a coordinate axis.
    """
    for item in system.potentials:
        if isinstance(item, Gravity):
            g = numbers((item.x, item.y, item.z), system.parameters)
            if np.count_nonzero(g) == 1:
                return -np.sign(g) + 0.0
    return np.array([0.0, 0.0, 1.0])
