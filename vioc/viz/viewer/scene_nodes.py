"""Objects of a viser server that draw a scene, and their motion."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from vioc.viz.lines import Line
from vioc.viz.looks import COLORS, STANDS, rgb
from vioc.viz.poses import aligned, quaternions
from vioc.viz.scene import Scene
from vioc.viz.solids import Solid

COLLADA = (
    "{path}: a COLLADA mesh needs pycollada, which is not installed: pip install pycollada, or "
    'pip install "vioc[viewer]"'
)
RADII = {"link": 0.008, "cable": 0.008, "ground": 0.004, "rail": 0.006, "rod": 0.003, "string": 0.002}
THIN = 0.003  # radius of other lines, relative to the scene's extent
LARGEST = 0.03  # radius of the heaviest point mass, relative to the scene's extent
DEMANDED = ("frames", "names", "inertia", "skeleton")  # shown on demand


class Drawing:
    """Drawing of one run's scene in the browser, as objects of a viser server.

    Parameters
    ----------
    server : viser.ViserServer
    scene : Scene
    path : str
        Parent node of the drawing.
    size : float
        Extent of the picture, m.
    color : str or None
        Colour of all objects; None for colours by kind.
    opacity : float or None
        None for opaque.
    heaviest : float
        Mass of the largest ball, kg.

    Attributes
    ----------
    root : viser.FrameHandle
        Its ``visible`` shows or hides the run.
    demanded : dict of str to list of handles
        Objects that are hidden by default: ``frames``, ``names``, ``inertia``, and the ``skeleton`` of links
        below the shapes of a robot.
    """

    def __init__(
        self,
        server: Any,
        scene: Scene,
        path: str,
        size: float,
        color: str | None = None,
        opacity: float | None = None,
        heaviest: float = 1.0,
    ):
        self.scene, self._nodes, self._path, self._size = scene, server.scene, path, size
        self._color, self._opacity, self._heaviest = color, opacity, heaviest
        self.demanded: dict[str, list[Any]] = {name: [] for name in DEMANDED}
        self._groups: dict[int, Any] = {}
        self._moves: list[Callable[[Scene, int], None]] = []
        self.root = self._nodes.add_frame(path, show_axes=False)
        self._draw_lines()
        self._draw_bodies()
        for i, solid in enumerate(scene.solids):
            self._draw_solid(f"shape-{i}", solid, "shape")
        self._draw_names()
        self.show(0)

    def show(self, i: int, scene: Scene | None = None) -> None:
        """Move all objects to sample i of a scene of the same mechanism."""
        scene = self.scene if scene is None else scene
        for group, handle in self._groups.items():
            if group >= 0:
                p, R = scene.positions[i, group], scene.rotations[i, group]
                _place(handle, p, quaternions(R))
        for move in self._moves:
            move(scene, i)

    # -- groups of frames, and poses in them -----------------------------------------------------------

    def _group(self, group: int) -> str:
        """Return the path of the viser node to which a rigid group of frames is attached."""
        if group not in self._groups:
            path = (
                f"{self._path}/{_clean(self._label(group))}-{group}" if group >= 0 else f"{self._path}/fixed"
            )
            self._groups[group] = self._nodes.add_frame(path, show_axes=False)
        return self._groups[group].name

    def _label(self, group: int) -> str:
        """Return the name of the first frame with a name in a rigid group of frames."""
        nodes = self.scene.system.nodes
        names = (nodes[i].frame.name for i in np.flatnonzero(self.scene.groups == group))
        return next(filter(None, names), "frame")

    def _local_points(self, group: int, points: np.ndarray) -> np.ndarray:
        """Transform points (k, 3), in the world at sample 0, to a rigid group's axes."""
        return (points - self.scene.position(group)[0]) @ self.scene.rotation(group)[0]

    def _local_pose(self, node: int, position: np.ndarray, rotation: np.ndarray) -> dict[str, Any]:
        """Transform a pose from a frame's axes to the axes of the frame's rigid group."""
        group = self.scene.group(node)
        where = self._local_points(group, self.scene.place(node, position[None])[0])[0]
        local_rotation = self.scene.rotation(group)[0].T @ self.scene.rotation(node)[0] @ rotation
        return {"position": where, "wxyz": quaternions(local_rotation)}

    def _node_path(self, node: int, name: str) -> str:
        return f"{self._group(self.scene.group(node))}/{_clean(name)}"

    def _shade(self, kind: str) -> dict[str, Any]:
        color = self._color if self._color and kind not in STANDS else COLORS[kind]
        return {"color": rgb(color), "opacity": self._opacity}

    # -- lines ----------------------------------------------------------------------------------------

    def _draw_lines(self) -> None:
        for index, line in enumerate(self.scene.lines):
            name = f"{line.kind}-{index}"
            straight = line.points.shape[1] == 2 and line.kind != "spring"
            if line.kind in ("pin", "contact"):
                self._pin(name, index)
            elif straight and line.group is not None:
                self._fixed_stick(name, line)
            elif straight:
                self._moving_stick(name, index)
            else:
                self._polyline(name, index)

    def _radius(self, kind: str) -> float:
        return RADII.get(kind, THIN) * self._size

    def _fixed_stick(self, name: str, line: Line) -> None:
        assert line.group is not None
        ends = self._local_points(line.group, line.points[0])
        along = ends[1] - ends[0]
        length = float(np.linalg.norm(along))
        stick = self._nodes.add_cylinder(
            f"{self._group(line.group)}/{name}",
            self._radius(line.kind),
            length,
            radial_segments=16,
            position=ends.mean(axis=0),
            wxyz=quaternions(aligned(along)),
            **self._shade(line.kind),
        )
        if self.scene.dressed and line.kind in ("link", "ground"):
            stick.visible = False
            self.demanded["skeleton"].append(stick)

    def _moving_stick(self, name: str, index: int) -> None:
        kind = self.scene.lines[index].kind
        path = f"{self._path}/{name}"
        stick = self._nodes.add_cylinder(
            path, self._radius(kind), 1.0, radial_segments=12, **self._shade(kind)
        )

        def move(scene: Scene, i: int) -> None:
            ends = scene.lines[index].points[i]
            along = ends[1] - ends[0]
            length = float(np.linalg.norm(along))
            stick.scale = (1.0, 1.0, max(length, 1e-9))
            _place(stick, ends.mean(axis=0), quaternions(aligned(along)) if length > 0 else None)

        self._moves.append(move)

    def _polyline(self, name: str, index: int) -> None:
        line = self.scene.lines[index]
        shape = _coil if line.kind == "spring" else lambda points, _: points
        width = 0.012 * self._size
        fixed = line.group is not None
        first = self._local_points(line.group, line.points[0]) if line.group is not None else line.points[0]
        handle = self._nodes.add_line_segments(
            f"{self._group(line.group)}/{name}" if line.group is not None else f"{self._path}/{name}",
            _segments(shape(first, width)),
            self._shade(line.kind)["color"],
            thickness=2 * self._radius(line.kind),
        )
        if not fixed:

            def move(scene: Scene, i: int) -> None:
                handle.points = _segments(shape(scene.lines[index].points[i], width))

            self._moves.append(move)

    def _pin(self, name: str, index: int) -> None:
        ball = self._nodes.add_icosphere(
            f"{self._path}/{name}", 0.011 * self._size, subdivisions=2, **self._shade("pin")
        )
        self._moves.append(lambda scene, i: _place(ball, scene.lines[index].points[i, 0]))

    # -- bodies and shapes ----------------------------------------------------------------------------

    def _draw_bodies(self) -> None:
        groups = {self.scene.group(s.node) for s in self.scene.solids if s.kind != "ground"}
        for i, body in enumerate(self.scene.bodies):
            if body.edges.any():
                edges = np.maximum(body.edges, 1e-3 * self._size)
                solid = Solid(body.node, "box", tuple(edges), body.center, body.axes)
                handle = self._draw_solid(f"inertia-{i}", solid, "inertia", opacity=0.35)
                handle.visible = False
                self.demanded["inertia"].append(handle)
            is_hidden = not body.mass and body.kind == "body"
            if self.scene.group(body.node) in groups or body.kind == "cable" or is_hidden:
                continue
            radius = LARGEST * self._size * (np.cbrt(body.mass / self._heaviest) if body.mass else 0.5)
            solid = Solid(body.node, "sphere", (radius,), body.center, np.eye(3))
            if body.kind == "carriage":
                solid = Solid(body.node, "box", (1.8 * radius,) * 3, body.center, np.eye(3))
            self._draw_solid(f"mass-{i}", solid, "mass" if body.mass else "ground")

    def _draw_solid(self, name: str, solid: Solid, kind: str, opacity: float | None = None) -> Any:
        path = self._node_path(solid.node, name)
        look = self._shade(kind)
        if solid.color is not None and self._color is None:
            look["color"] = tuple(round(255 * c) for c in solid.color[:3])
            if solid.color[3] < 1:
                look["opacity"] = solid.color[3]
        if opacity is not None:
            look["opacity"] = opacity
        pose = self._local_pose(solid.node, solid.position, solid.rotation)
        add, size = self._nodes, solid.size
        if solid.kind == "sphere":
            return add.add_icosphere(path, max(size[0], 0.004 * self._size), **look, **pose)
        if solid.kind == "box":
            return add.add_box(path, dimensions=size, **look, **pose)
        if solid.kind == "cylinder":
            return add.add_cylinder(path, *size, **look, **pose)
        if solid.kind == "mesh":
            return self._mesh(path, solid, look, pose)
        if solid.faces is not None:
            count = len(solid.faces)
            faces, points = np.arange(3 * count).reshape(count, 3), solid.faces.reshape(-1, 3)
            return add.add_mesh_simple(path, points, faces, flat_shading=True, **look, **pose)
        if solid.kind == "ground":
            thin = 0.002 * self._size
            look = {"color": rgb(COLORS["plane"]), "opacity": 0.45}
            below = solid.position - thin / 2 * solid.rotation[:, 2]
            pose = self._local_pose(solid.node, below, solid.rotation)
            return add.add_box(path, dimensions=(4 * self._size, 4 * self._size, thin), **look, **pose)
        radius, length = size
        holder = add.add_frame(path, show_axes=False, **pose)
        add.add_cylinder(f"{path}/side", radius, length, **look)
        for end, z in (("top", length / 2), ("bottom", -length / 2)):
            add.add_icosphere(f"{path}/{end}", radius, position=(0.0, 0.0, z), **look)
        return holder

    def _mesh(self, path: str, solid: Solid, look: dict[str, Any], pose: dict[str, Any]) -> Any:
        assert solid.file is not None
        if is_empty(solid.file):
            warnings.warn(f"{solid.file}: no triangles in this mesh; it is not drawn", stacklevel=2)
            return self._nodes.add_frame(path, show_axes=False)
        if self._color is None and self._opacity is None and has_materials(solid.file):
            return self._nodes.add_glb(path, glb(solid.file), scale=tuple(solid.size), **pose)
        vertices, faces = triangles(solid.file)
        scaled = vertices * np.array(solid.size)
        return self._nodes.add_mesh_simple(path, scaled, faces, flat_shading=True, **look, **pose)

    # -- objects shown on demand ----------------------------------------------------------------------

    def _draw_names(self) -> None:
        in_cable = {b.node for b in self.scene.bodies if b.kind == "cable"}
        length = 0.06 * self._size
        for i, node in enumerate(self.scene.system.nodes):
            name = node.frame.name
            if name is None or i in in_cable:
                continue
            pose = self._local_pose(i, np.zeros(3), np.eye(3))
            axes = self._nodes.add_frame(
                self._node_path(i, f"axes-{i}"),
                axes_length=length,
                axes_radius=0.06 * length,
                visible=False,
                **pose,
            )
            label = self._nodes.add_label(
                self._node_path(i, f"name-{i}"),
                name,
                position=pose["position"],
                font_screen_scale=0.75,
                visible=False,
            )
            self.demanded["frames"].append(axes)
            self.demanded["names"].append(label)


def _place(handle: Any, position: np.ndarray, wxyz: np.ndarray | None = None) -> None:
    """Send the changed pose of a viser object to the browser.
    Nothing is sent for a pose that has not changed.
    """
    if not np.array_equal(handle.position, position):
        handle.position = position
    if wxyz is not None and not np.array_equal(handle.wxyz, wxyz):
        handle.wxyz = wxyz


def _segments(points: np.ndarray) -> np.ndarray:
    """Return the segments (k - 1, 2, 3) of a polyline (k, 3)."""
    return np.stack([points[:-1], points[1:]], axis=1)


def _coil(ends: np.ndarray, width: float, turns: int = 8) -> np.ndarray:
    """Return the points of a helix between two points (2, 3), which draws a spring."""
    d = ends[1] - ends[0]
    if not np.any(d):
        return ends
    a = np.linspace(0, 1, 12 * turns + 1)
    helix = np.column_stack(
        [width * np.cos(2 * np.pi * turns * a), width * np.sin(2 * np.pi * turns * a), 0 * a]
    )
    body = helix @ aligned(d).T + ends[0] + (0.1 + 0.8 * a)[:, None] * d
    return np.concatenate([ends[:1], ends[:1] + 0.1 * d, body, ends[1:] - 0.1 * d, ends[1:]])


def _clean(name: str) -> str:
    """Return a name without slashes, so that it can be part of a viser path."""
    return name.replace("/", "_")


@functools.lru_cache(maxsize=256)
def glb(path: Path) -> bytes:
    """Convert a mesh file with its materials to binary glTF."""
    return _load(path).export(file_type="glb")


@functools.lru_cache(maxsize=256)
def triangles(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return the vertices and the triangles of a mesh file.
    The vertices (n, 3) are positions in the file's length unit. Each row of the triangles (k, 3) contains
    the indices of three vertices.
    """
    vertices, faces, count = [], [], 0
    scene = _load(path)
    for name in scene.graph.nodes_geometry:
        transform, geometry = scene.graph[name]
        mesh = scene.geometry[geometry]
        if not len(getattr(mesh, "faces", ())):  # points and lines
            continue
        vertices.append(np.asarray(mesh.vertices) @ transform[:3, :3].T + transform[:3, 3])
        faces.append(np.asarray(mesh.faces) + count)
        count += len(mesh.vertices)
    return np.concatenate(vertices), np.concatenate(faces)


@functools.lru_cache(maxsize=256)
def is_empty(path: Path) -> bool:
    """Return whether a mesh file contains no visible triangles."""
    scene = _load(path)
    shown = (scene.geometry[scene.graph[name][1]] for name in scene.graph.nodes_geometry)
    return not any(len(getattr(mesh, "faces", ())) for mesh in shown)


def has_materials(path: Path) -> bool:
    """Return whether a mesh file can have colours, which STL files cannot."""
    return path.suffix.lower() not in (".stl", ".off")


def _load(path: Path) -> Any:
    import trimesh

    if path.suffix.lower() == ".dae":
        try:
            import collada  # noqa: F401
        except ImportError:
            raise ImportError(COLLADA.format(path=path)) from None
    try:
        scene = trimesh.load(str(path), force="scene")
    except (ValueError, KeyError, IndexError, TypeError, OSError) as error:
        raise ValueError(f"{path}: not a mesh that can be read: {error}") from error
    return scene
