"""Functions that load a mechanism from a file or by the name of a built-in model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vioc.cli.printing import remarks
from vioc.errors import ModelError

if TYPE_CHECKING:
    from vioc import System


def load(name: str) -> System:
    """Return the model in a file, or the built-in model of this name.

    A name may have an argument (``scissor_lift:5``). A robot from a URDF file has a fixed base and an input
    at every joint.
    """
    from vioc import models
    from vioc.dynamics.formats.reading import read

    file = Path(name)
    path_like = file.suffix or os.sep in name or file.is_file()
    if not path_like and (name in models.names() or not file.is_dir()):
        return models.load(name)
    if file.is_dir():
        files = sorted(p.name for p in file.iterdir() if p.suffix.lower() in (".sexp", ".urdf", ".xml"))
        raise ModelError(f"{name!r} is a folder; model files in it: {', '.join(files) or 'none'}")
    if not file.exists():
        raise ModelError(f"no such model file: {name!r}; built-in models are {', '.join(models.names())}")
    options: dict[str, Any] = {"inputs": "all"} if Path(name).suffix.lower() == ".urdf" else {}
    with remarks():
        return read(name, **options)


def without_contacts(system: System) -> System:
    """Return the system without contacts and joint limits.
    The result suits integrators that support neither of them.
    """
    from vioc import System

    if not system.inequalities:
        return system
    components = [c for c in system.components if c not in system.inequalities]
    return System(system.frames, components, name=system.name)
