"""Animation of a mechanism in motion with matplotlib."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from vioc.viz import film
from vioc.viz.lines import Line
from vioc.viz.looks import COLORS, STANDS, run_colors
from vioc.viz.marks import Marks
from vioc.viz.scene import Runs, Scene, SceneBody, labelled, marked, scene_of
from vioc.viz.solids import Solid, outline

# View: the axes that it shows, right and up. The first view without motion along its normal is taken.
PLANES = {"xz": (0, 2), "yz": (1, 2), "xy": (0, 1)}
VIEWS = (*PLANES, "3d")
TURNS = 10  # number of turns of a drawn spring
ZOOMS, MARGIN = (
    (0.2, 1.2),
    0.01,
)  # range of zooms of three-dimensional axes; fraction of a figure that stays free at a side
STYLES: dict[str, dict[str, Any]] = {
    "rail": {"lw": 3.0, "zorder": 0.5},
    "plane": {"lw": 1.0, "ls": "-.", "zorder": 0.5},
    "ground": {"lw": 1.5, "zorder": 1},
    "shape": {"lw": 1.0, "zorder": 1.5},
    "sheave": {"lw": 1.5, "zorder": 1.5},
    "inertia": {"lw": 0.8, "zorder": 1.5},
    "obstacle": {"lw": 1.5, "zorder": 1.5},
    "rod": {"lw": 1.2, "zorder": 2},
    "string": {"lw": 1.0, "zorder": 2},
    "spring": {"lw": 1.2, "zorder": 2},
    "damper": {"lw": 1.2, "zorder": 2},
    "link": {"lw": 2.5, "zorder": 3},
    "cable": {"lw": 2.5, "zorder": 3},
    "contact": {"ls": "", "marker": "o", "ms": 3.5, "zorder": 4.5},
    "target": {"lw": 2.0, "zorder": 6},
    "pin": {"lw": 0.8, "ls": ":", "marker": "o", "mfc": "none", "ms": 5, "zorder": 5},
}


def animate(
    runs: Runs,
    path: str | os.PathLike | None = None,
    *,
    fps: float = 30,
    speed: float = 1.0,
    view: str | None = None,
    ax: Any = None,
    inertia: bool = False,
    marks: Marks = (),
) -> Any:
    """Animate one run of a mechanism or several runs in one picture.
    With a path, the animation is written to a file.

    Parameters
    ----------
    runs : Trajectory or result with one, sequence of them, batch, or dict by label
        Runs of maps with a ``system``. Several are drawn over each other, each in its own colour, with a
        legend; a label ``"reference"`` is grey. A run that has ended stays at its end.
    path : path, optional
        ``.gif``, ``.html`` with a player, or ``.mp4`` if ffmpeg is found.
    fps : float
        Frames per second of the animation.
    speed : float
        Seconds of the mechanism per second of the animation.
    view : one of ``xz yz xy 3d``, optional
        By default the plane of the motion, else three dimensions.
    ax : matplotlib Axes, optional
        Axes to draw on; the projection must fit the view. No title is set.
    inertia : bool
        Whether masses with inertia are also drawn as homogeneous boxes of the same inertia.
    marks : result of `obstacle`, dict of points (3,) by label, or a sequence of these
        Obstacles, drawn as circles, and targets in the world, drawn as crosses. Obstacles among the
        constraints of an optimization are drawn with its result automatically.

    Returns
    -------
    Path, or matplotlib.animation.FuncAnimation
        The written file; without a path an animation that plays in a window, and appears with a
        player as the last line of a notebook's cell. ``.axes`` are its axes.

    Raises
    ------
    ValueError, TypeError
        If an argument is wrong, or there is nothing to draw.
    FileNotFoundError
        If the path's folder does not exist, or ffmpeg for an MP4.

    Notes
    -----
    Frames are joined to their parents by lines, masses are dots whose area grows with the mass,
    springs are zigzags (dashed in three dimensions), strings and rods thin lines, pinned points rings,
    and contacts the outlines of their shapes. A frame that slides is not joined to its parent: it has a
    light rail over the range of its motion, and its mass is a square. Consecutive translations
    without a mass between them are free motion without rails.
    """
    if not (fps > 0 and speed > 0):
        raise ValueError(f"expected fps > 0 and speed > 0, got {fps} and {speed}")
    if view is not None and view not in VIEWS:
        raise ValueError(f"view: expected one of {', '.join(VIEWS)}, got {view!r}")
    target = None if path is None else Path(path)
    if target is not None:
        film.check(target)
        fps = film.pace(target, fps)

    trajectories = labelled(runs)
    first, last = min(r.t[0] for r in trajectories.values()), max(r.t[-1] for r in trajectories.values())
    times = first + np.arange(int((last - first) * fps / speed + 1.5)) * speed / fps
    scenes = {label: scene_of(run, times) for label, run in trajectories.items()}
    scenes = marked(scenes, runs, marks)
    spatial = ax is not None and ax.name == "3d"
    view = view or ("3d" if spatial else common_plane(list(scenes.values())))
    if ax is not None and (view == "3d") != (ax.name == "3d"):
        raise ValueError(
            f'ax: expected axes of projection "3d" for the view "3d" only, got {view!r} on {ax.name!r}'
        )
    axes, update = stage(scenes, view, ax, to_screen=target is None, inertia=inertia)
    if target is not None:
        film.write(target, axes.figure, update, len(times), fps)
        return target
    return _playable(axes, update, len(times), fps)


def common_plane(scenes: list[Scene]) -> str:
    """Return the coordinate plane in which all frames of scenes move, else ``"3d"``."""
    travel = np.max([np.ptp(s.positions, axis=0).max(axis=0) for s in scenes], axis=0)
    still = travel <= 1e-6 * max(travel.max(), 1e-9)
    return next((view for view, (right, up) in PLANES.items() if still[3 - right - up]), "3d")


def _playable(axes: Any, update: Callable[[int], list[Any]], count: int, fps: float) -> Any:
    from matplotlib.animation import FuncAnimation

    class Animation(FuncAnimation):
        """Animation that appears with a player in a notebook."""

        def __init__(self) -> None:
            super().__init__(axes.figure, update, frames=count, interval=1000 / fps, blit=False)
            self.axes = axes
            update(0)  # otherwise a figure saved as a still shows empty axes

        def _repr_html_(self) -> str:
            import matplotlib.pyplot as plt

            plt.close(axes.figure)  # otherwise the notebook also shows it as a still
            return self.to_jshtml()

    return Animation()


# -- drawing ------------------------------------------------------------------------------------


def stage(
    scenes: dict[str, Scene], view: str, ax: Any = None, *, to_screen: bool, inertia: bool = False
) -> tuple[Any, Callable[[int], list[Any]]]:
    """Return axes for an animation, and a function that draws its image number i.

    The function returns the artists that moved.
    """
    shown = list(PLANES.get(view, (0, 1, 2)))
    corners = [scene.limits for scene in scenes.values()]
    if inertia:
        boxes = [line.points.reshape(-1, 3) for s in scenes.values() for line in _inertia_boxes(s)]
        corners += [(box.min(axis=0), box.max(axis=0)) for box in boxes]
    low, high = (f([c[i] for c in corners], axis=0) for i, f in ((0, np.min), (1, np.max)))
    low, high = widened(low, high, shown)
    axes = ax if ax is not None else _axes(low, high, view, to_screen)
    for name, a, b, i in zip("xyz", low, high, shown, strict=False):
        getattr(axes, f"set_{name}lim")(a, b)
        getattr(axes, f"set_{name}label")(f"{'xyz'[i]} (m)")
    title = _title(axes) if ax is None else None
    first = next(iter(scenes.values()))
    heaviest = max((b.mass for s in scenes.values() for b in s.bodies), default=0.0)
    drawn: list[Any] = []
    for (label, scene), color in zip(scenes.items(), run_colors(list(scenes)), strict=True):
        drawn += _Pen(axes, shown, (low, high), color).draw(scene, heaviest, inertia)
        if color is not None:
            axes.plot([], [], color=color, lw=2.5, label=label)
    if len(scenes) > 1:
        axes.legend(loc="upper right", fontsize="small")
    if ax is None:
        axes.figure.draw_without_rendering()
        axes.figure.set_layout_engine("none")  # laid out once, not for every picture
        if view == "3d":
            fit(axes)

    def update(i: int) -> list[Any]:
        if title is not None:
            title.set_text(f"t = {first.t[i]:5.2f} s")
        return [*([title] if title is not None else []), *(draw(i) for draw in drawn)]

    return axes, update


class _Pen:
    """Drawing of one scene on matplotlib axes.

    Parameters
    ----------
    axes : Axes
    shown : list of int
        Axes of the world that are shown.
    bounds : (low, high)
        Bounds of the axes shown, m.
    color : str or None
        Colour of all objects; None for colours by kind.
    """

    def __init__(self, axes: Any, shown: list[int], bounds: tuple[np.ndarray, np.ndarray], color: str | None):
        self.axes, self.shown, self.bounds, self.color = axes, shown, bounds, color
        self.size = float(bounds[1].max() - bounds[0].min())

    def draw(self, scene: Scene, heaviest: float, inertia: bool) -> list[Callable[[int], Any]]:
        """Return functions, each of which draws a group of objects in image number i."""
        flat = len(self.shown) == 2
        functions = []
        for kind in STYLES:
            lines = scene.kind(kind)
            if kind == "shape":
                lines = self._outlines(scene)
            elif kind == "inertia" and inertia:
                lines = _inertia_boxes(scene)
            if lines:
                zigzag = kind == "spring" and flat
                functions.append(self._lines(kind, [line.points for line in lines], zigzag))
        looks = {(b.mass, b.kind) for b in scene.bodies if b.kind != "cable" and (b.mass or b.kind != "body")}
        for mass, kind in sorted(looks):
            alike = [b for b in scene.bodies if (b.mass, b.kind) == (mass, kind)]
            functions.append(self._dots(scene, alike, 4 + 9 * np.sqrt(mass / heaviest) if mass else 7.0))
        return functions

    def _lines(self, kind: str, points: list[np.ndarray], zigzag: bool) -> Callable[[int], Any]:
        single_color = self.color is not None and kind not in STANDS
        style = {
            "solid_capstyle": "round",
            **STYLES[kind],
            "color": self.color if single_color else COLORS[kind],
        }
        if kind == "spring" and not zigzag:
            style["ls"] = "--"
        if single_color:
            style["alpha"] = 0.8
        (line,) = self.axes.plot(*np.empty((len(self.shown), 0)), **style)
        gap = np.full((1, len(self.shown)), np.nan)
        tracks = [p[:, :, self.shown] for p in points]
        width = 0.02 * self.size

        def draw(i: int) -> Any:
            pieces = []
            for track in tracks:
                now = track[min(i, len(track) - 1)]
                pieces += [zigzags(now, width) if zigzag else now, gap]
            return _put(line, np.concatenate(pieces))

        return draw

    def _dots(self, scene: Scene, bodies: list[SceneBody], size: float) -> Callable[[int], Any]:
        style = {"marker": "s" if bodies[0].kind == "carriage" else "o", "mec": "0.2", "ls": "", "zorder": 4}
        color = self.color or COLORS["mass" if bodies[0].mass else "ground"]
        (line,) = self.axes.plot(*np.empty((len(self.shown), 0)), ms=size, color=color, **style)
        tracks = np.stack([scene.place(b.node, b.center[None])[:, 0] for b in bodies], axis=1)
        return lambda i: _put(line, tracks[i][:, self.shown])

    def _outlines(self, scene: Scene) -> list[Line]:
        lines = []
        for solid in scene.solids:
            for points in outline(solid, 2 * self.size):
                placed = scene.place(solid.node, points)
                if solid.kind == "ground" and len(self.shown) == 3:  # three-dimensional axes do not clip
                    placed = clipped(placed[0], *self.bounds)[None]
                lines.append(Line("shape", "", placed))
        return lines


def _inertia_boxes(scene: Scene) -> list[Line]:
    boxes = [Solid(b.node, "box", tuple(b.edges), b.center, b.axes) for b in scene.bodies if b.edges.any()]
    return [Line("inertia", "", scene.place(box.node, points)) for box in boxes for points in outline(box)]


def _title(axes: Any) -> Any:
    """Make an empty text for the time above the axes, on the left.

    For three-dimensional axes it is a text of the figure.
    """
    look = {"fontsize": "medium", "family": "monospace"}
    if axes.name == "3d":
        return axes.figure.text(0.03, 0.98, " ", va="top", **look)
    return axes.set_title(" ", loc="left", **look)


def widened(low: np.ndarray, high: np.ndarray, shown: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Return axis limits that contain the box from `low` to `high`, with a margin.
    Only the coordinates with the indices `shown` are returned.
    """
    low, high = low[shown], high[shown]
    half = (high - low) / 2
    half = np.maximum(half, max(0.25 * half.max(), 1e-3)) + 0.08 * half.max()
    middle = (low + high) / 2
    return middle - half, middle + half


def clipped(polygon: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Return the part of a closed convex polygon (k, 3) that is inside a box."""
    points = polygon[:-1]
    for axis, sign, bound in ((a, s, b[a]) for a in range(3) for s, b in ((1, low), (-1, high))):
        inside = sign * (points[:, axis] - bound)
        parts = []
        for i, (p, d) in enumerate(zip(points, inside, strict=True)):
            q, e = points[i - 1], inside[i - 1]
            if (d < 0) != (e < 0):
                parts.append(q + e / (e - d) * (p - q))
            if d >= 0:
                parts.append(p)
        points = np.array(parts).reshape(-1, 3)
    return np.concatenate([points, points[:1]])


def _axes(low: np.ndarray, high: np.ndarray, view: str, to_screen: bool) -> Any:
    from matplotlib.ticker import MaxNLocator

    size = high - low
    height = np.clip(6.4 * size[1] / size[0] + 0.7, 3.0, 7.2) if view != "3d" else 6.0
    figure = _figure(6.4, height, to_screen)
    axes = figure.add_subplot(projection="3d" if view == "3d" else None)
    if view == "3d":
        axes.set_box_aspect(size)
        for i, axis in enumerate((axes.xaxis, axes.yaxis, axes.zaxis)):
            axis.set_major_locator(MaxNLocator(4 if size[i] > 0.5 * size.max() else 2))
            # numbers and labels are shifted along the other two axes, by a fraction of their length
            far = size.max() / np.delete(size, i).mean()
            axis.set_tick_params(pad=15.0 * far - 8.0)
            axis.labelpad = 39.0 * far - 21.0
    else:
        axes.set_aspect("equal")
        axes.grid(alpha=0.2)
    return axes


def fit(axes: Any, lines: int = 1) -> None:
    """Zoom three-dimensional axes until all their labels just fit in the figure.
    Space for a title of `lines` lines stays free.

    Layout engines do not see labels in three dimensions.
    """
    from matplotlib.transforms import Bbox
    from mpl_toolkits.mplot3d.proj3d import proj_transform

    figure, place = axes.figure, axes.get_position()
    renderer = getattr(figure.canvas, "get_renderer", lambda: None)()
    if renderer is None:  # a canvas that is not a raster image
        return
    bounds = np.array([axes.get_xlim(), axes.get_ylim(), axes.get_zlim()])
    size = bounds[:, 1] - bounds[:, 0]
    corners = np.array(list(itertools.product(*bounds))).T
    line = 2.0 * lines * axes.title.get_size() / 72 * figure.dpi / figure.bbox.height
    low, high = np.full(2, MARGIN), np.array([1 - MARGIN, 1 - MARGIN - line])
    (smallest, largest), shift = ZOOMS, np.zeros(2)
    for _ in range(6):
        zoom = 0.5 * (smallest + largest)
        axes.set_box_aspect(size, zoom=zoom)
        figure.draw_without_rendering()  # places labels in three dimensions
        walls = axes.transData.transform(np.stack(proj_transform(*corners, axes.get_proj())[:2], axis=1))
        parts = [axis.get_tightbbox(renderer) for axis in (axes.xaxis, axes.yaxis, axes.zaxis)]
        box = Bbox.union([*parts, Bbox([walls.min(axis=0), walls.max(axis=0)])])
        first, last = np.divide(box.min, figure.bbox.size), np.divide(box.max, figure.bbox.size)
        if (last - first <= high - low).all():
            smallest, shift = zoom, np.clip(0.0, low - first, high - last)
        else:
            largest = zoom
    axes.set_box_aspect(size, zoom=smallest)
    axes.set_position((place.x0 + shift[0], place.y0 + shift[1], place.width, place.height))


def _figure(width: float, height: float, to_screen: bool) -> Any:
    if to_screen:
        import matplotlib.pyplot as plt

        return plt.figure(figsize=(width, height), layout="constrained")
    # Without pyplot: a figure for a file needs no display, and is deleted with its last reference.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained", dpi=80)
    FigureCanvasAgg(figure)
    return figure


def _put(line: Any, points: np.ndarray) -> Any:
    (line.set_data if points.shape[1] == 2 else line.set_data_3d)(*points.T)
    return line


def zigzags(ends: np.ndarray, width: float) -> np.ndarray:
    """Return the points of a zigzag line between two points (2, 2), to draw a spring."""
    along = np.concatenate([[0.0, 0.1], np.linspace(0.1, 0.9, 2 * TURNS + 1)[1:-1], [0.9, 1.0]])
    across = np.zeros(len(along))
    across[2:-2] = width * np.where(np.arange(len(along) - 4) % 2, -1.0, 1.0)
    d = ends[1] - ends[0]
    normal = np.array([-d[1], d[0]]) / max(float(np.linalg.norm(d)), 1e-12)
    return ends[0] + along[:, None] * d + across[:, None] * normal
