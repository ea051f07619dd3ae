"""Model files of every kind, by their suffix."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from vioc.dynamics.description.system import System
from vioc.dynamics.formats import sexpr
from vioc.dynamics.formats.urdf import read_urdf


def read(path: str | os.PathLike, **options: Any) -> System:
    """The system in a model file: ``.urdf``, or the model text in any other.

    Parameters
    ----------
    path : path
    **options
        Those of `read_urdf` (``base``, ``inputs``, ``gravity``), which also returns limits and visuals;
        a model text takes none.

    Raises
    ------
    ReadError
        If the file is not a model; with the line of the offending place.
    OSError
        If there is no such file, or it is a folder.
    """
    if Path(path).is_dir():
        raise IsADirectoryError(f"{str(path)!r} is a folder; expected a model file (.sexp or .urdf)")
    if Path(path).suffix.lower() == ".urdf":
        return read_urdf(path, **options).system
    if options:
        raise TypeError(f"{path}: options are for URDF files, got {', '.join(options)}")
    return sexpr.read(path)
