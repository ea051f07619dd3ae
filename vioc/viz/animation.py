"""Animation of any mechanism, with nothing but its description and a trajectory."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from vioc.dynamics.trajectory import Trajectory

# View: the axes that it shows, right and up. The first whose normal nothing moves along is taken.
PLANES = {"xz": (0, 2), "yz": (1, 2), "xy": (0, 1)}
VIEWS = (*PLANES, "3d")


@dataclass(frozen=True)
class _Scene:
    """What there is to draw: positions over frames of the animation, and pairs of points.

    ``points`` has shape (frames, nodes + 1, 3); the world's origin comes last, so that the parent
    index -1 is right as it is. Pairs have shape (m, 2).
    """

    t: np.ndarray
    points: np.ndarray
    links: np.ndarray
    ground: np.ndarray
    rods: np.ndarray
    springs: np.ndarray
    masses: np.ndarray


def animate(
    trajectory: Trajectory,
    path: str | os.PathLike | None = None,
    *,
    fps: float = 30,
    speed: float = 1.0,
    view: str | None = None,
) -> Any:
    """Animate a mechanism; write it to a file if a path is given.

    Parameters
    ----------
    trajectory : Trajectory
        Of a map with a ``system`` and ``frame_positions``.
    path : path, optional
        ``.gif``, or ``.html`` with a player.
    fps : float
        Pictures per second.
    speed : float
        Seconds of the mechanism per second of the animation.
    view : one of ``xz yz xy 3d``, optional
        By default the plane that the mechanism moves in, else three dimensions.

    Returns
    -------
    matplotlib.animation.FuncAnimation
        ``.to_jshtml()`` shows it in a notebook.

    Notes
    -----
    Frames are joined to their parents by lines, masses are dots of an area that grows with the mass,
    springs are zigzags (dashed in three dimensions), distance constraints are thin lines.
    """
    if not (fps > 0 and speed > 0):
        raise ValueError(f"expected fps > 0 and speed > 0, got {fps} and {speed}")
    if view is not None and view not in VIEWS:
        raise ValueError(f"view: expected one of {', '.join(VIEWS)}, got {view!r}")
    suffix = Path(path).suffix.lower() if path is not None else None
    if suffix not in (None, ".gif", ".html"):
        raise ValueError(f"{path}: an animation is written as .gif or .html")
    if suffix == ".gif":
        # GIF counts the time of a picture in 1/100 s, and the writer rounds it down
        fps = 100 / (round(100 / min(fps, 50)) + 1e-6)

    from matplotlib.animation import FuncAnimation

    scene = _scene(trajectory, fps, speed)
    view = view or _plane(scene)
    figure, update = _stage(scene, view, to_screen=path is None)
    animation = FuncAnimation(figure, update, frames=len(scene.t), interval=1000 / fps, blit=False)
    if path is not None:
        _write(animation, Path(path), fps)
    return animation


def _scene(trajectory: Trajectory, fps: float, speed: float) -> _Scene:
    owner: Any = trajectory.map
    if not hasattr(owner, "frame_positions"):
        raise TypeError(f"{type(owner).__name__} has no frames to draw; animate a map of a mechanism")
    system = owner.system
    duration = trajectory.t[-1] - trajectory.t[0]
    times = trajectory.t[0] + np.arange(int(duration * fps / speed + 1.5)) * speed / fps
    middles = (trajectory.t[1:] + trajectory.t[:-1]) / 2
    rows = np.searchsorted(middles, times)  # the nearest sample; between samples links would shrink
    origins = np.asarray(owner.frame_positions(trajectory.x[rows]))
    parents = np.array([node.parent for node in system.nodes])
    links = np.column_stack([parents, np.arange(len(parents))])

    def pairs(components: Any, kind: str) -> np.ndarray:
        ends = [
            (system.frame_index(c.frame1), system.frame_index(c.frame2))
            for c in components
            if type(c).__name__ == kind
        ]
        return np.array(ends, int).reshape(-1, 2)

    return _Scene(
        t=times,
        points=np.concatenate([origins, np.zeros((len(rows), 1, 3))], axis=1),
        links=links[parents >= 0],
        ground=links[parents < 0],
        rods=pairs(system.constraints, "DistanceConstraint"),
        springs=pairs(system.potentials, "LinearSpring"),
        masses=np.array([_mass(node.frame.mass, owner) for node in system.nodes]),
    )


def _mass(mass: Any, owner: Any) -> float:
    if mass is None:
        return 0.0
    value = mass.mass
    name = getattr(value, "name", None)  # a declared parameter: the map may hold another value
    return float(value) if name is None else owner.parameters[name]


def _plane(scene: _Scene) -> str:
    travel = np.ptp(scene.points, axis=0).max(axis=0)
    still = travel <= 1e-6 * max(travel.max(), 1e-9)
    return next((view for view, (right, up) in PLANES.items() if still[3 - right - up]), "3d")


# -- drawing ------------------------------------------------------------------------------------


def _stage(scene: _Scene, view: str, *, to_screen: bool) -> tuple[Any, Any]:
    """The figure, and the function that draws picture i into it."""
    axes_shown = PLANES.get(view, (0, 1, 2))
    points = scene.points[:, :, list(axes_shown)]
    low, high = _limits(points if len(scene.ground) else points[:, :-1])
    size = high - low
    figure = _figure(
        6.4, np.clip(6.4 * size[1] / size[0] + 0.7, 3.0, 7.2) if view != "3d" else 6.0, to_screen
    )
    axes = figure.add_subplot(projection="3d" if view == "3d" else None)
    for name, a, b, i in zip("xyz", low, high, axes_shown, strict=False):
        getattr(axes, f"set_{name}lim")(a, b)
        getattr(axes, f"set_{name}label")(f"{'xyz'[i]} [m]")
    if view == "3d":
        axes.set_box_aspect(size, zoom=0.85)  # room for the labels, which the layout does not see
        axes.locator_params(nbins=4)
    else:
        axes.set_aspect("equal")
        axes.grid(alpha=0.2)
    title = axes.set_title(" ", loc="left", fontsize="medium", family="monospace")
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # laid out once, not for every picture

    def lines(pairs: np.ndarray, shape: Any = _joined, **style: Any) -> Any:
        (line,) = axes.plot(*np.empty((len(axes_shown), 0)), **style)
        return lambda now: _put(line, shape(now[pairs]))

    zigzag = view != "3d"
    width = 0.03 * float(size.max())
    drawn = [
        lines(scene.ground, color="0.75", lw=1.5, zorder=1),
        lines(scene.rods, color="tab:red", lw=1.0, zorder=2),
        lines(
            scene.springs,
            (lambda ends: _zigzag(ends, width)) if zigzag else _joined,
            color="tab:green",
            ls="-" if zigzag else "--",
            lw=1.2,
            zorder=2,
        ),
        lines(scene.links, color="tab:blue", lw=2.5, solid_capstyle="round", zorder=3),
    ]
    for mass in np.unique(scene.masses[scene.masses > 0]):
        here = np.flatnonzero(scene.masses == mass)
        diameter = 4 + 9 * np.sqrt(mass / scene.masses.max())
        (dots,) = axes.plot(
            *np.empty((len(axes_shown), 0)), "o", ms=diameter, color="tab:orange", mec="0.2", zorder=4
        )
        drawn.append(lambda now, dots=dots, here=here: _put(dots, now[here]))

    def update(i: int) -> list[Any]:
        title.set_text(f"t = {scene.t[i]:5.2f} s")
        return [draw(points[i]) for draw in drawn]

    return figure, update


def _limits(points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bounds of everything, with a margin; no axis much thinner than the others."""
    low, high = points.min(axis=(0, 1)), points.max(axis=(0, 1))
    half = (high - low) / 2
    half = np.maximum(half, max(0.25 * half.max(), 1e-3)) + 0.08 * half.max()
    middle = (low + high) / 2
    return middle - half, middle + half


def _figure(width: float, height: float, to_screen: bool) -> Any:
    if to_screen:
        import matplotlib.pyplot as plt

        return plt.figure(figsize=(width, height), layout="constrained")
    # Outside of pyplot: a figure for a file needs no display, and is gone with its last reference.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained", dpi=90)
    FigureCanvasAgg(figure)
    return figure


def _put(line: Any, points: np.ndarray) -> Any:
    (line.set_data if points.shape[1] == 2 else line.set_data_3d)(*points.T)
    return line


def _zigzag(ends: np.ndarray, width: float, turns: int = 10) -> np.ndarray:
    """Springs (m, 2, 2) in the plane as one polyline with gaps."""
    along = np.concatenate([[0.0, 0.1], np.linspace(0.1, 0.9, 2 * turns + 1)[1:-1], [0.9, 1.0]])
    across = np.zeros(len(along))
    across[2:-2] = width * np.where(np.arange(len(along) - 4) % 2, -1.0, 1.0)
    d = ends[:, 1] - ends[:, 0]
    length = np.maximum(np.linalg.norm(d, axis=1, keepdims=True), 1e-12)
    normal = np.stack([-d[:, 1], d[:, 0]], axis=1) / length
    return _joined(ends[:, :1] + along[:, None] * d[:, None] + across[:, None] * normal[:, None])


def _joined(lines: np.ndarray) -> np.ndarray:
    """Lines (m, points, d) as one polyline with gaps (NaN)."""
    gap = np.full((len(lines), 1, lines.shape[2]), np.nan)
    return np.concatenate([lines, gap], axis=1).reshape(-1, lines.shape[2])


# -- files --------------------------------------------------------------------------------------


def _write(animation: Any, path: Path, fps: float) -> None:
    from matplotlib.animation import HTMLWriter, PillowWriter

    def progress(i: int, count: int) -> None:
        if sys.stderr.isatty():
            done = i + 1 == count
            print(
                f"\r{path}: {100 * (i + 1) // count}%", end="\n" if done else "", file=sys.stderr, flush=True
            )

    gif = path.suffix.lower() == ".gif"
    writer = PillowWriter(fps=fps) if gif else HTMLWriter(fps=fps, embed_frames=True, embed_limit=200)
    animation.save(path, writer=writer, progress_callback=progress)
