"""Trajectories that are read from files for drawing.
The integrators that computed them are not needed.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vioc.dynamics.description.system import System
from vioc.errors import FileFormatError, ModelError
from vioc.runs.files import read_file


@dataclass(frozen=True)
class RecordedMap:
    """Substitute for the integrator of a saved trajectory, with the data for plots.

    Attributes
    ----------
    inner : OneStepMap or None
        Map that computes poses from its states, if these are not variables of the system.
    """

    system: System
    state_names: tuple[str, ...]
    parameters: Mapping[str, float]
    inner: Any = None

    def trying(self, **values: float) -> RecordedMap:
        return replace(self, parameters={**self.parameters, **values})


@dataclass(frozen=True)
class Recorded:
    """Trajectory of a system read from a file, with the attributes of `Trajectory`."""

    map: Any
    t: np.ndarray
    x: np.ndarray
    u: np.ndarray
    multipliers: np.ndarray


def read_recorded(path: str | os.PathLike, system: System) -> Recorded:
    """Read the motion of a system from a file.
    The file was written by `Trajectory.save`.

    Parameters
    ----------
    path : path
    system : System
        Matched by the names of its variables, so that shapes or forces may have changed since.

    Raises
    ------
    FileFormatError
        If the file is not a trajectory, is damaged, or lacks a variable of the system.

    Warns
    -----
    UserWarning
        If the model differs from the one that was saved.
    """
    arrays, header = read_file(path)
    identity, names = _innermost(header["identity"]), tuple(str(n) for n in arrays["state_names"])
    known = {n: float(v) for n, v in header["parameters"].items() if n in system.parameters}
    inner = _with_own_states(identity, system, path)
    inner = inner and inner.trying(**known)
    f = RecordedMap(system, names, {**system.parameters, **known}, inner)
    missing = sorted(set(inner.state_names if inner else system.variables) - set(names))
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
    return Recorded(f, arrays["t"], arrays["x"], arrays["u"], arrays["multipliers"])


def _innermost(identity: dict[str, Any]) -> dict[str, Any]:
    """Return the description of a mechanism's map, found in that of a saved map.
    The saved map may add, for example, a delay to the mechanism's map.

    If the saved map contains several maps, the first one counts.
    """
    while "inner" in identity or "maps" in identity:
        identity = identity["inner"] if "inner" in identity else identity["maps"][0]
    return identity


def _with_own_states(identity: dict[str, Any], system: System, path: Any) -> Any:
    """Return an integrator that computes poses from saved states with quaternions.
    The states of the integrators `GroupVI` and `MaximalVI` contain quaternions. For other states the result
    is None.
    """
    from vioc.dynamics.integrators.groups import GroupVI
    from vioc.dynamics.integrators.maximal import MaximalVI

    kinds: dict[str, Any] = {"GroupVI": GroupVI, "MaximalVI": MaximalVI}
    kind = kinds.get(identity.get("map", ""))
    try:
        return kind and kind(system, identity["dt"])
    except ModelError as error:
        raise FileFormatError(f"{path}: not a trajectory of {system.name}: {error}") from None
