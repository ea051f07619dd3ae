"""Mesh files for the browser viewer, read with the package trimesh."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np

COLLADA = (
    "{path}: a COLLADA mesh needs pycollada, which is not installed: pip install pycollada, or "
    'pip install "vioc[viewer]"'
)


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
