"""Solids of a drawn scene: contact shapes and visual shapes of robots."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vioc.dynamics.description.system import System
from vioc.dynamics.formats.meshes import mesh_file, mesh_folders
from vioc.dynamics.formats.robot import Robot
from vioc.dynamics.formats.robot import RobotGeometry as Drawn
from vioc.dynamics.terms.contact_shapes import Box, Capsule, Hull, Shape, Sphere, triangles
from vioc.dynamics.terms.contacts import Contact, PairContact
from vioc.dynamics.terms.terrain import Terrain
from vioc.viz.poses import aligned, number, numbers

CIRCLE = 33  # points
PATCHES = 24  # patches of a terrain in each direction


@dataclass(frozen=True)
class Solid:
    """Solid shape that is drawn at a fixed pose in a frame.

    Attributes
    ----------
    node : int
        Index of the frame; -1 the world.
    kind : {"box", "cylinder", "sphere", "capsule", "ground", "mesh", "hull", "terrain"}
    size : tuple of float
        Edges; (radius, length along z); (radius,); (radius, length between centres along z); empty for a
        ground, a hull and a terrain; scale of a mesh. Metres.
    position : (3,) array
    rotation : (3, 3) array
        Pose in the frame. The ground is the plane z = 0, below the bodies.
    color : tuple of float or None
        Red, green, blue, opacity, 0 to 1.
    file : Path or None
        File of a mesh.
    faces : array (m, 3, 3) or None
        Triangles of a hull or a terrain, m, whose edges are drawn.
    """

    node: int
    kind: str
    size: tuple[float, ...]
    position: np.ndarray
    rotation: np.ndarray
    color: tuple[float, ...] | None = None
    file: Path | None = None
    faces: np.ndarray | None = None


# -- contacts ---------------------------------------------------------------------------------------


def contact_solids(system: System, parameters: Mapping[str, float]) -> list[Solid]:
    """Return solids for the grounds of contacts, and for all contact shapes of bodies.

    Contacts of one frame with one ground are drawn as one shape: eight corners as a box, two spheres of one
    radius as a capsule.
    """
    solids: list[Solid] = []
    grounds: dict[tuple, Solid] = {}
    carried: dict[tuple, list[tuple[np.ndarray, float]]] = {}
    pairs: dict[tuple[str, Shape], None] = {}
    for item in system.inequalities:
        if isinstance(item, PairContact):
            pairs |= {(item.frame1, item.shape1): None, (item.frame2, item.shape2): None}
        if not isinstance(item, Contact):
            continue
        plane = system.frame_index(item.plane)
        n = numbers(item.normal, parameters)
        offset = number(item.offset, parameters)
        key = (plane, *np.round(n / np.linalg.norm(n), 12), offset)
        R = aligned(n)
        grounds.setdefault(key, Solid(plane, "ground", (), offset * R[:, 2], R))
        ball = numbers(item.center, parameters), number(item.radius, parameters)
        whose = (item.name or "").rpartition("-")[0]  # capsules and boxes number their contacts
        carried.setdefault((*key, item.frame, whose), []).append(ball)
    seen: set[tuple] = set()
    for (*_, frame, _), balls in carried.items():
        mark = (
            frame,
            *(tuple(np.round(c, 12)) + (r,) for c, r in balls),
        )  # one key for contacts with several grounds
        if mark not in seen:
            seen.add(mark)
            solids += _carried(system.frame_index(frame), balls)
    keys = {(s.node, s.kind, *np.round(s.position, 12), *np.round(s.size, 12)) for s in solids}
    for frame, shape in pairs:
        solid = _solid(system.frame_index(frame), shape, parameters)
        if (solid.node, solid.kind, *np.round(solid.position, 12), *np.round(solid.size, 12)) not in keys:
            solids.append(solid)
    return [*grounds.values(), *solids]


def _solid(node: int, shape: Shape, parameters: Mapping[str, float]) -> Solid:
    """Convert a contact shape, carried by frame number `node`, to a solid."""
    if isinstance(shape, Sphere):
        size = (number(shape.radius, parameters),)
        return Solid(node, "sphere", size, numbers(shape.center, parameters), np.eye(3))
    if isinstance(shape, Capsule):
        long = (number(shape.radius, parameters), number(shape.length, parameters))
        axes = aligned(numbers(shape.axis, parameters))
        return Solid(node, "capsule", long, numbers(shape.center, parameters), axes)
    if isinstance(shape, Box):
        R, edges = np.reshape(shape.rotation, (3, 3)), numbers(shape.size, parameters)
        return Solid(node, "box", tuple(edges), numbers(shape.center, parameters), R)
    if isinstance(shape, Hull):
        points = np.array(shape.points)
        return Solid(node, "hull", (), np.zeros(3), np.eye(3), faces=points[triangles(points)])
    assert isinstance(shape, Terrain)
    (x0, x1), (y0, y1) = shape.extent
    x, y = np.meshgrid(np.linspace(x0, x1, PATCHES + 1), np.linspace(y0, y1, PATCHES + 1), indexing="ij")
    P = np.stack([x, y, shape.heights(x, y)], axis=-1)
    a, b, c, d = P[:-1, :-1], P[1:, :-1], P[1:, 1:], P[:-1, 1:]
    faces = np.stack([np.stack([a, b, c], axis=2), np.stack([a, c, d], axis=2)]).reshape(-1, 3, 3)
    return Solid(node, "terrain", (), np.zeros(3), np.eye(3), faces=faces)


def _carried(node: int, balls: list[tuple[np.ndarray, float]]) -> list[Solid]:
    """Convert spheres (centre, radius) that a frame carries to solids.
    Eight spheres of radius 0 at the corners of a box become this box. Two equal spheres become a capsule.
    Other spheres become one solid each.
    """
    centers, radii = np.array([c for c, _ in balls]), [r for _, r in balls]
    low, high = centers.min(axis=0), centers.max(axis=0)
    if len(balls) == 8 and not any(radii):
        corners = {tuple(c) for c in np.round((centers - low) / np.where(high > low, high - low, 1), 9)}
        if len(corners) == 8 and all(set(c) <= {0.0, 1.0} for c in corners):
            return [Solid(node, "box", tuple(high - low), (low + high) / 2, np.eye(3))]
    if len(balls) == 2 and radii[0] == radii[1] > 0:
        along = centers[1] - centers[0]
        size = (radii[0], float(np.linalg.norm(along)))
        if size[1] > 0:
            return [Solid(node, "capsule", size, centers.mean(axis=0), aligned(along))]
    return [Solid(node, "sphere", (r,), c, np.eye(3)) for c, r in balls]


# -- visuals of robots ------------------------------------------------------------------------------

Visuals = str | os.PathLike | Robot | Sequence[Drawn]


def visual_solids(system: System, visuals: Visuals, meshes: Any = None) -> list[Solid]:
    """Return solids for the visual shapes of a robot's links.

    Parameters
    ----------
    system : System
    visuals : path of a URDF file, Robot, or sequence of Shape
    meshes : path or paths, optional
        Folders in which ``package://`` and relative paths of meshes are looked up, before those above the
        URDF file and those of ``ROS_PACKAGE_PATH``.

    Raises
    ------
    FileNotFoundError
        If a mesh is in none of these folders.
    """
    above: Sequence[Path] = ()
    if isinstance(visuals, (str, os.PathLike)):
        path = Path(visuals).resolve()
        visuals = _read_quietly(path)
        above = path.parents
    folders = mesh_folders(meshes, above)
    shapes: Sequence[Drawn] = visuals.visuals if isinstance(visuals, Robot) else visuals
    return [
        Solid(
            system.frame_index(s.frame),
            s.kind,
            s.size,
            np.array(s.position, float),
            np.reshape(s.rotation, (3, 3)),
            s.color,
            mesh_file(s.file, folders) if s.file else None,
        )
        for s in shapes
    ]


def _read_quietly(path: Path) -> Robot:
    import warnings

    from vioc.dynamics.formats.urdf import read_urdf
    from vioc.errors import RobotWarning

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RobotWarning)  # the warning was issued when the model was read
        return read_urdf(path)


# -- outlines ---------------------------------------------------------------------------------------


def outline(solid: Solid, extent: float = 1.0) -> list[np.ndarray]:
    """Return polylines (k, 3) that draw a solid in its frame; none for a mesh.

    `extent` is half a ground's edge.
    """
    if solid.faces is not None:
        lines = [*np.concatenate([solid.faces, solid.faces[:, :1]], axis=1)]
    else:
        lines = _OUTLINES[solid.kind](*solid.size) if solid.kind != "ground" else [_square(extent)]
    return [line @ solid.rotation.T + solid.position for line in lines]


def _circle(radius: float, axis: int = 2, height: float = 0.0) -> np.ndarray:
    """Return points of a circle about a coordinate axis, at a height along the axis."""
    a = np.linspace(0, 2 * np.pi, CIRCLE)
    points = np.full((CIRCLE, 3), height)
    points[:, (axis + 1) % 3], points[:, (axis + 2) % 3] = radius * np.cos(a), radius * np.sin(a)
    return points


def _sphere(radius: float) -> list[np.ndarray]:
    return [_circle(radius, axis) for axis in range(3)]


def _sides(radius: float, length: float) -> list[np.ndarray]:
    ends = np.array([[0, 0, -length / 2], [0, 0, length / 2]])
    around = radius * np.array([[1, 0, 0], [0, 1, 0], [-1, 0, 0], [0, -1, 0]])
    return [ends + side for side in around]


def _cylinder(radius: float, length: float) -> list[np.ndarray]:
    rims = [_circle(radius, 2, sign * length / 2) for sign in (-1, 1)]
    return rims + _sides(radius, length)


def _capsule(radius: float, length: float) -> list[np.ndarray]:
    a = np.linspace(0, np.pi, CIRCLE // 2 + 1)
    along, up, none = radius * np.cos(a), radius * np.sin(a), 0 * a
    caps = [
        np.column_stack([*across, sign * (length / 2 + up)])
        for sign in (-1, 1)
        for across in ((along, none), (none, along))
    ]
    return _cylinder(radius, length) + caps


def _box(x: float, y: float, z: float) -> list[np.ndarray]:
    square = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1], [-1, -1]]) * [x / 2, y / 2]
    lids = [np.column_stack([square, np.full(5, sign * z / 2)]) for sign in (-1, 1)]
    return lids + [np.stack([lids[0][i], lids[1][i]]) for i in range(4)]


def _square(half: float) -> np.ndarray:
    return half * np.array([[-1.0, -1, 0], [1, -1, 0], [1, 1, 0], [-1, 1, 0], [-1, -1, 0]])


def _mesh(*_: float) -> list[np.ndarray]:
    return []


_OUTLINES: dict[str, Any] = {
    "box": _box,
    "cylinder": _cylinder,
    "sphere": _sphere,
    "capsule": _capsule,
    "mesh": _mesh,
}
