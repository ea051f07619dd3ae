"""Functions that find the mesh files of a robot model, and compute corners of convex hulls of meshes."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from vioc.errors import ModelError

AXES = np.vstack([np.eye(3), -np.eye(3)])


def mesh_folders(meshes: Any, above: Iterable[Path] = ()) -> list[Path]:
    """Return the folders in which to look for mesh files, in the order of the search.
    They are the user's folders `meshes`, the folders `above` that contain the model file, and those in the
    environment variable ``ROS_PACKAGE_PATH``.
    """
    own_folders = [meshes] if isinstance(meshes, (str, os.PathLike)) else meshes or []
    ros_folders = os.environ.get("ROS_PACKAGE_PATH", "").split(os.pathsep)
    return [*(Path(m) for m in own_folders), *above, *(Path(p) for p in ros_folders if p)]


def mesh_file(name: str, folders: Iterable[Path]) -> Path:
    """Return the path of a mesh file, searched for in the given folders.

    ``package://NAME/PATH`` is PATH in a folder NAME, which is one of the given folders or in one of them.
    """
    if name.startswith("file://"):
        name = name[len("file://") :]
    package, _, rest = name.removeprefix("package://").partition("/")
    relative = name.startswith("package://")
    for folder in folders if relative or not os.path.isabs(name) else [Path()]:
        candidates = [folder / package / rest] if relative else [folder / name]
        if relative and folder.name == package:
            candidates.append(folder / rest)
        for file in candidates:
            if file.is_file():
                return file
    where = ", ".join(dict.fromkeys(str(f) for f in list(folders)[:3])) or "no folder"
    raise FileNotFoundError(
        f"mesh {name!r}: found in none of {where}, ...; give its folder as meshes=, or set ROS_PACKAGE_PATH"
    )


def mesh_corners(file: Path, scale: Any, count: int) -> np.ndarray:
    """Return at most `count` corners (n, 3), m, of the convex hull of a mesh in a file.

    Corners are chosen one after the other; each is the farthest outside the hull of the previous ones.

    Raises
    ------
    ImportError
        Without trimesh, which reads the file.
    ModelError
        If the mesh has no volume.
    """
    from scipy.spatial import ConvexHull, QhullError

    try:
        import trimesh
    except ImportError:
        raise ImportError(f"{file}: reading a mesh needs trimesh: pip install trimesh") from None
    mesh = trimesh.load(file, force="mesh")
    points = np.asarray(mesh.vertices, float) * np.array(scale, float)
    try:
        points = points[ConvexHull(points).vertices]
        corners = list(dict.fromkeys((points @ AXES.T).argmax(axis=0).tolist()))
        while len(corners) < min(max(count, 4), len(points)):
            try:
                planes = ConvexHull(points[corners]).equations
                outside = (points @ planes[:, :3].T + planes[:, 3]).max(axis=1)
            except QhullError:  # the corners chosen so far lie in a plane
                center = points[corners].mean(axis=0)
                _, _, axes = np.linalg.svd(points[corners] - center)
                outside = np.abs((points - center) @ axes[-1])
            outside[corners] = -np.inf
            corners.append(int(outside.argmax()))
    except (QhullError, ValueError) as error:
        raise ModelError(f"{file}: a mesh without volume: {str(error).splitlines()[0]}") from None
    return points[corners]
