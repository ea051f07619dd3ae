"""Animation of any mechanism, with nothing but its description and a trajectory."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from vioc.viz import film

if TYPE_CHECKING:
    from vioc.dynamics.trajectory import Trajectory

# View: the axes that it shows, right and up. The first whose normal nothing moves along is taken.
PLANES = {"xz": (0, 2), "yz": (1, 2), "xy": (0, 1)}
VIEWS = (*PLANES, "3d")


@dataclass(frozen=True)
class _Scene:
    """What there is to draw: positions over pictures of the animation, and pairs of points.

    ``points`` has shape (pictures, nodes + rail ends + 1, 3); the world's origin comes last, so that the
    parent index -1 is right as it is. Pairs have shape (m, 2); ``masses`` and ``carts`` (nodes,).
    """

    t: np.ndarray
    points: np.ndarray
    links: np.ndarray
    ground: np.ndarray
    rails: np.ndarray
    rods: np.ndarray
    springs: np.ndarray
    masses: np.ndarray
    carts: np.ndarray


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
    Path, or matplotlib.animation.FuncAnimation
        What was written; without a path an animation that plays in a window, and in a notebook by
        ``.to_jshtml()``.

    Notes
    -----
    Frames are joined to their parents by lines, masses are dots of an area that grows with the mass,
    springs are zigzags (dashed in three dimensions), distance constraints are thin lines. A frame that
    slides is not joined to its parent: it has a light rail over the range of its motion, and its mass is
    a square. Translations one after the other, with no mass between them, are free motion without rails.
    """
    if not (fps > 0 and speed > 0):
        raise ValueError(f"expected fps > 0 and speed > 0, got {fps} and {speed}")
    if view is not None and view not in VIEWS:
        raise ValueError(f"view: expected one of {', '.join(VIEWS)}, got {view!r}")
    target = None if path is None else Path(path)
    if target is not None:
        if target.suffix.lower() not in film.SUFFIXES:
            raise ValueError(f"{path}: an animation is written as {' or '.join(film.SUFFIXES)}")
        fps = film.pace(target, fps)

    scene = _scene(trajectory, fps, speed)
    figure, update = _stage(scene, view or _plane(scene), to_screen=target is None)
    if target is not None:
        film.write(target, figure, update, len(scene.t), fps)
        return target
    from matplotlib.animation import FuncAnimation

    return FuncAnimation(figure, update, frames=len(scene.t), interval=1000 / fps, blit=False)


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
    slides = np.array([_slides(node.frame.transform) for node in system.nodes])
    links = np.column_stack([parents, np.arange(len(parents))])[~slides]
    on_rails = _on_rails(system, slides)
    ends = _rail_ends(trajectory, rows, on_rails, margin=0.03 * float(np.ptp(origins, axis=(0, 1)).max()))

    def pairs(components: Any, kind: str) -> np.ndarray:
        ends = [
            (system.frame_index(c.frame1), system.frame_index(c.frame2))
            for c in components
            if type(c).__name__ == kind
        ]
        return np.array(ends, int).reshape(-1, 2)

    return _Scene(
        t=times,
        points=np.concatenate([origins, *ends, np.zeros((len(rows), 1, 3))], axis=1),
        links=links[links[:, 0] >= 0],
        ground=links[links[:, 0] < 0],
        rails=len(parents) + np.arange(2 * len(ends)).reshape(-1, 2),
        rods=pairs(system.constraints, "DistanceConstraint"),
        springs=pairs(system.potentials, "LinearSpring"),
        masses=np.array([_mass(node.frame.mass, owner) for node in system.nodes]),
        carts=np.isin(np.arange(len(parents)), on_rails),
    )


def _slides(transform: Any) -> bool:
    return transform.variable is not None and not transform.rotational


def _on_rails(system: Any, slides: np.ndarray) -> list[int]:
    """Nodes that slide by one variable alone; without a mass between them, several are free motion."""
    free = set()
    for i, node in enumerate(system.nodes):
        above = node.parent
        if slides[i] and above >= 0 and slides[above] and system.nodes[above].frame.mass is None:
            free |= {i, above}
    return [i for i, slides_here in enumerate(slides) if slides_here and i not in free]


def _rail_ends(trajectory: Trajectory, rows: np.ndarray, nodes: list[int], margin: float) -> list[np.ndarray]:
    """For each node that slides, the two ends (pictures, 2, 3) of its rail: where it is at its extremes."""
    owner: Any = trajectory.map
    ends = []
    for i in nodes:
        variable = owner.system.nodes[i].frame.transform.variable.name
        column = owner.state_names.index(variable)
        moved = trajectory.x[rows].copy()
        rail = []
        for extreme in (trajectory.x[:, column].min() - margin, trajectory.x[:, column].max() + margin):
            moved[:, column] = extreme
            rail.append(np.asarray(owner.frame_positions(moved))[:, i])
        ends.append(np.stack(rail, axis=1))
    return ends


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
        lines(scene.rails, color="0.85", lw=3.0, solid_capstyle="round", zorder=0),
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
    for mass, cart in sorted({*zip(scene.masses.tolist(), scene.carts.tolist(), strict=True)}):
        here = np.flatnonzero((scene.masses == mass) & (scene.carts == cart))
        if mass > 0:
            size = 4 + 9 * np.sqrt(mass / scene.masses.max())
            style = {"marker": "s" if cart else "o", "color": "tab:orange", "mec": "0.2", "ls": ""}
            drawn.append(lines(here, lambda dots: dots, ms=size, zorder=4, **style))

    def update(i: int) -> list[Any]:
        title.set_text(f"t = {scene.t[i]:5.2f} s")
        return [title, *(draw(points[i]) for draw in drawn)]

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

    figure = Figure(figsize=(width, height), layout="constrained", dpi=80)
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
