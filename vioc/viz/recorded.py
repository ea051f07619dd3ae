"""Saved trajectories as something to draw, whatever map they were saved from."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from vioc.dynamics.description.system import System
from vioc.errors import FileFormatError
from vioc.maps.files import read_file


@dataclass(frozen=True)
class RecordedMap:
    """What drawing needs of a map."""

    system: System
    state_names: tuple[str, ...]
    parameters: Mapping[str, float]


@dataclass(frozen=True)
class Recorded:
    """A saved trajectory of a system, with ``map``, ``t``, ``x`` as a `Trajectory` has them."""

    map: Any
    t: np.ndarray
    x: np.ndarray
    u: np.ndarray
    multipliers: np.ndarray


def read_recorded(path: str | os.PathLike, system: System) -> Recorded:
    """The motion of a system in a file of `Trajectory.save`.

    Parameters
    ----------
    path : path
    system : System
        It is matched by the names of its variables, so that shapes or forces may have changed since.

    Raises
    ------
    FileFormatError
        If the file is not a trajectory, is damaged, or lacks a variable of the system.

    Warns
    -----
    UserWarning
        If the model is not quite the one that was saved.
    """
    arrays, header = read_file(path)
    identity, names = header["identity"], tuple(str(n) for n in arrays["state_names"])
    known = {n: float(v) for n, v in header["parameters"].items() if n in system.parameters}
    f: Any = RecordedMap(system, names, {**system.parameters, **known})
    if identity.get("map") == "MaximalVI":
        from vioc.dynamics.integrators.maximal import MaximalVI

        f = MaximalVI(system, identity["dt"]).with_parameters(**known)
        missing = sorted(set(f.state_names) - set(names))
    else:
        missing = sorted(set(system.variables) - set(names))
    if missing:
        raise FileFormatError(
            f"{path}: not a trajectory of {system.name}: it has no {missing[0]!r}; its states are "
            f"{', '.join(names[:6])}{', ...' if len(names) > 6 else ''}"
        )
    if identity.get("model") not in (None, repr(system)):
        warnings.warn(
            f"{path}: saved from a model that differs from {system.name}; its frames are drawn as they are "
            "now",
            stacklevel=2,
        )
    x = arrays["x"][:, [names.index(n) for n in f.state_names]]
    return Recorded(f, arrays["t"], x, arrays["u"], arrays["multipliers"])
