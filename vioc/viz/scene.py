"""Scene of a moving mechanism: lines, bodies and solids that a picture shows.

Plain numpy in the world's axes: poses of frames, lines between them, bodies, and solids. The animation and
the browser viewer draw the same scene.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from vioc.dynamics.description.system import System
from vioc.runs.batch import Batch
from vioc.runs.given import trajectory_of
from vioc.viz.lines import Line, carriages, component_lines, tree_lines
from vioc.viz.marks import Marks, ball_lines, mark_lines
from vioc.viz.poses import Places, frame_poses, number, numbers, trajectory_poses
from vioc.viz.solids import Solid, Visuals, contact_solids, outline, visual_solids
from vioc.viz.wrapped import SteadyParameters


@dataclass(frozen=True)
class SceneBody:
    """Drawn body: a mass, or a massless carriage that slides on a rail.

    Attributes
    ----------
    node : int
        Index of the frame that carries it.
    name : str
    mass : float
        kg, >= 0.
    center : (3,)
        In the frame, m.
    edges : (3,)
        Edges of the homogeneous box of the same mass and inertia, m; zero for a point mass.
    axes : (3, 3)
        Axes of that box in the frame: the columns are the principal axes.
    kind : {"body", "carriage", "cable"}
        A carriage slides on a rail; a cable's part has the kind "cable".
    """

    node: int
    name: str
    mass: float
    center: np.ndarray
    edges: np.ndarray
    axes: np.ndarray
    kind: str


@dataclass(frozen=True)
class Scene(Places):
    """Scene of a moving mechanism: its lines, bodies and solids at all times.

    Attributes
    ----------
    system, positions, rotations
        See `Places`.
    t : (T,)
        s.
    lines : tuple of Line
    bodies : tuple of SceneBody
    solids : tuple of Solid
    dressed : bool
        Whether solids represent the links.
    """

    t: np.ndarray
    lines: tuple[Line, ...]
    bodies: tuple[SceneBody, ...]
    solids: tuple[Solid, ...]
    dressed: bool = False

    def kind(self, *kinds: str) -> list[Line]:
        """Return the lines of the scene that are of the given kinds."""
        return [line for line in self.lines if line.kind in kinds]

    def center_of_mass(self) -> np.ndarray:
        """Return the path of the centre of mass (T, 3), m.

        Without masses it is the mean of the frames' origins.
        """
        total = sum(b.mass for b in self.bodies)
        if not total > 0:
            return self.positions.mean(axis=1)
        moved = [b.mass / total * self.place(b.node, b.center[None])[:, 0] for b in self.bodies]
        return np.sum(moved, axis=0)

    def track(self, name: str) -> np.ndarray:
        """Return the path (T, 3), m, of a frame or of the ``"center of mass"``.

        Raises `ModelError` for an unknown frame.
        """
        if name == CENTER:
            return self.center_of_mass()
        return self.position(name)

    @cached_property
    def limits(self) -> tuple[np.ndarray, np.ndarray]:
        """Lowest and highest corner (3,) of a box around all objects at all times, m.

        Grounds are infinite and excluded.
        """
        clouds = [self.positions.reshape(-1, 3), *(line.points.reshape(-1, 3) for line in self.lines)]
        clouds += [self.place(b.node, b.center[None]).reshape(-1, 3) for b in self.bodies]
        for solid in self.solids:
            if solid.kind not in ("ground", "mesh", "terrain"):
                clouds += [self.place(solid.node, line).reshape(-1, 3) for line in outline(solid)]
        if self.kind("ground"):
            clouds.append(np.zeros((1, 3)))
        points = np.concatenate(clouds)
        return points.min(axis=0), points.max(axis=0)

    def with_marks(self, marks: Marks, run: Any, skip: Container[str] = ()) -> Scene:
        """Return the scene with obstacles and targets drawn in addition.

        `mark_lines` makes the lines.

        Obstacles of the optimization that made the run are included, except for the names to `skip`.
        """
        rows = nearest(np.asarray(run.t, float), self.t)
        lines = mark_lines(marks, rows, self.extent)
        names = {line.name for line in lines}
        for name, (centre, radius, axes) in getattr(run, "obstacles", {}).items():
            if name not in names and name not in skip:
                lines += ball_lines(name, centre, radius, axes, rows)
        return replace(self, lines=(*self.lines, *lines))

    @property
    def extent(self) -> float:
        """Longest edge, m, of the box around the scene; 1 if the box is a point."""
        low, high = self.limits
        return float((high - low).max()) or 1.0

    def __repr__(self) -> str:
        counts = {kind: len(self.kind(kind)) for kind in dict.fromkeys(line.kind for line in self.lines)}
        text = "".join(f", {count} {kind}" for kind, count in counts.items())
        return (
            f"Scene({self.system.name}: {len(self.t)} times, {len(self.bodies)} bodies{text}, "
            f"{len(self.solids)} solids)"
        )


def scene_of(
    run: Any,
    times: np.ndarray | None = None,
    *,
    visuals: Visuals | None = None,
    meshes: Any = None,
) -> Scene:
    """Return the scene of a trajectory's motion, at its samples or at given times.

    Parameters
    ----------
    run : Trajectory
        Run of any map of a `System`, or of a map around it: `DelayedMap`, `ExtendedMap`.
    times : (T,), optional
        s; each takes the sample nearest to it. By default all samples.
    visuals : path of a URDF file, Robot or sequence of Shape, optional
        Shapes that represent the links.
    meshes : path or paths, optional
        Folders in which their meshes are looked up.

    Returns
    -------
    Scene

    Raises
    ------
    TypeError
        If the trajectory is not one of a mechanism.
    ValueError
        If masses or shapes depend on a parameter that changes along the run (`ExtendedMap`).
    FileNotFoundError
        If a mesh is not found.
    """
    t = np.asarray(run.t, float)
    if times is None:
        rows, times = np.arange(len(t)), t
    else:
        rows = nearest(t, times)
    positions, rotations = trajectory_poses(run, rows)
    return _assemble(run.map.system, times, positions, rotations, SteadyParameters(run), visuals, meshes)


def nearest(t: np.ndarray, times: Any) -> Any:
    """Return the indices of the samples whose times in t (T,) are nearest to `times`.
    `times` is an array or one number, and the result has its shape.

    Interpolation between samples would shrink links.
    """
    return np.searchsorted((t[1:] + t[:-1]) / 2, times)


def scene_at(system: System, Q: Any, *, visuals: Visuals | None = None, meshes: Any = None) -> Scene:
    """Return the scene of a mechanism at configurations Q (T, nq), at times 0, 1, ...

    The other arguments are those of `scene_of`.
    """
    Q, parameters = np.atleast_2d(np.asarray(Q, float)), system.parameters
    t, poses = np.arange(len(Q), dtype=float), frame_poses(system, Q, parameters)
    return _assemble(system, t, *poses, parameters, visuals, meshes)


def _assemble(
    system: System, t: Any, positions: Any, rotations: Any, parameters: Any, visuals: Any, meshes: Any
) -> Scene:
    places = Places(system, positions, rotations)
    lines, in_cable = tree_lines(places)
    solids = contact_solids(system, parameters)
    solids += visual_solids(system, visuals, meshes) if visuals is not None else []
    bodies = _bodies(system, parameters, in_cable)
    lines += component_lines(places, parameters)
    return Scene(
        system, positions, rotations, t, tuple(lines), tuple(bodies), tuple(solids), visuals is not None
    )


def _bodies(system: System, parameters: Mapping[str, float], in_cable: set[int]) -> list[SceneBody]:
    rails, bodies = set(carriages(system)), []
    for i, node in enumerate(system.nodes):
        mass = node.frame.mass
        if mass is None:
            if i in rails and i not in in_cable:  # a driven trolley
                still = np.zeros(3), np.zeros(3), np.eye(3)
                bodies.append(SceneBody(i, node.frame.name or "", 0.0, *still, "carriage"))
            continue
        m = number(mass.mass, parameters)
        xx, yy, zz, xy, xz, yz = numbers(mass.inertia, parameters)
        moments, axes = np.linalg.eigh(np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]))
        axes = axes * np.sign(np.linalg.det(axes))
        squares = 6 * (moments.sum() - 2 * moments) / m if m > 0 else np.zeros(3)
        edges = np.sqrt(np.maximum(squares, 0.0))
        kind = "cable" if i in in_cable else "carriage" if i in rails else "body"
        center = numbers(mass.com, parameters)
        bodies.append(SceneBody(i, node.frame.name or "", m, center, edges, axes, kind))
    return bodies


# -- several runs -----------------------------------------------------------------------------------

CENTER = "center of mass"
Runs = Any  # a trajectory or result with one, a sequence of them, a batch, or a dict by label


def _by_label(runs: Runs) -> dict[str, Any]:
    if isinstance(runs, Mapping):
        return {str(label): run for label, run in runs.items()}
    if isinstance(runs, Batch):
        return {f"run {i + 1}": runs[i] for i in range(len(runs)) if i not in runs.errors}
    if isinstance(runs, Sequence):
        return {f"run {i + 1}": run for i, run in enumerate(runs)}
    return {"run": runs}


def labelled(runs: Runs) -> dict[str, Any]:
    """Return a dict of trajectories by label, given one run, several, or a dict."""
    trajectories = {label: trajectory_of(run) for label, run in _by_label(runs).items()}
    if not trajectories:
        raise ValueError("expected a trajectory, or several, got none")
    for label, run in trajectories.items():
        if not all(hasattr(run, name) for name in ("map", "t", "x")):
            raise TypeError(f"{label}: expected a trajectory, got {type(run).__name__}")
    return trajectories


def marked(scenes: Mapping[str, Scene], runs: Runs, marks: Marks) -> dict[str, Scene]:
    """Return several runs' scenes with obstacles and targets drawn in addition.

    The first scene gets the marks; each obstacle is drawn once.
    """
    result: dict[str, Scene] = {}
    names: set[str] = set()
    for label, run in _by_label(runs).items():
        if label in scenes:
            result[label] = scenes[label].with_marks(() if result else marks, run, names)
            names |= {line.name for line in result[label].kind("obstacle")}
    return result
