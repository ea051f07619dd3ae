"""Reader of model files, which recognizes the format of a file by its content."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from vioc.dynamics.description.system import System
from vioc.dynamics.formats import sexpr
from vioc.dynamics.formats.mjcf import read_mjcf
from vioc.dynamics.formats.urdf import read_urdf
from vioc.errors import ReadError

_BEFORE_ROOT = re.compile(rb"\s*(<\?.*?\?>|<!--.*?-->|<!DOCTYPE[^>]*>)", re.DOTALL)
_ELEMENT = re.compile(rb"\s*<([^\s<>/]*)")
ROBOTS: dict[str, Any] = {"robot": read_urdf, "mujoco": read_mjcf}


def read(path: str | os.PathLike, **options: Any) -> System:
    """Read a system from a model file in URDF, MJCF or s-expressions.

    The first characters of the file determine the format.

    Parameters
    ----------
    path : path
    **options
        Options of `read_urdf` (``base``, ``inputs``, ``gravity``) or of
        `vioc.dynamics.formats.mjcf.read_mjcf` (``inputs``, ``gravity``, ``folder``), which also return
        limits and visuals; model text has no options.

    Raises
    ------
    ReadError
        If the file is not a model, with the line of the error.
    OSError
        If there is no such file, or it is a folder.
    """
    if Path(path).is_dir():
        raise IsADirectoryError(f"{str(path)!r} is a folder; expected a model file (.sexp, .urdf or .xml)")
    root = _root(Path(path).read_bytes())
    if root is None:
        if options:
            raise TypeError(f"{path}: options are for URDF and MJCF files, got {', '.join(options)}")
        return sexpr.read(path)
    root = "robot" if root.endswith(":robot") else root  # <drake:robot>
    if root not in ROBOTS:
        hint = "; docs/urdf.md says how to convert SDF" if root == "sdf" else ""
        raise ReadError(f"expected <robot> (URDF) or <mujoco> (MJCF), got <{root}>{hint}", 1, 1, str(path))
    return ROBOTS[root](path, **options).system


def _root(data: bytes) -> str | None:
    """Return the name of the root element of an XML document; None if the data is not XML."""
    data = data.removeprefix(b"\xef\xbb\xbf")
    while match := _BEFORE_ROOT.match(data):
        data = data[match.end() :]
    element = _ELEMENT.match(data)
    return element[1].decode(errors="replace") if element else None
