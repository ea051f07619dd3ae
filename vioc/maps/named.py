"""CasADi symbols of a map's named quantities, and arrays from dicts of values by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import casadi as ca
import numpy as np

from vioc.checks import as_value, check_array
from vioc.names import by_name


class Symbols(NamedTuple):
    """CasADi symbols (SX columns) in which the named quantities of a map are expressed.

    Attributes
    ----------
    x : (nx,)
    u : (nu,)
    multipliers : (number of constraints,)
        Multipliers of the step that starts at (x, u).
    parameters : (number of parameters,)
    dt : (1,)
        Length of that step, s.
    """

    x: ca.SX
    u: ca.SX
    multipliers: ca.SX
    parameters: ca.SX
    dt: ca.SX

    @staticmethod
    def sized(nx: int, nu: int, multipliers: int = 0, parameters: int = 0) -> Symbols:
        """Return new symbols for a map with given numbers of states, inputs, multipliers and parameters."""
        names = ("x", nx), ("u", nu), ("multipliers", multipliers), ("theta", parameters), ("dt", 1)
        return Symbols(*(ca.SX.sym(*name) for name in names))


def vector(values: Mapping[str, float], names: tuple[str, ...], what: str, prefix: str = "") -> np.ndarray:
    """Convert a dict of values by name to an array in the order of `names`; missing values are 0."""
    result = np.zeros(len(names))
    for name, value in by_name(values, names, what, prefix=prefix).items():
        result[names.index(name)] = as_value(value, f"{what} {name!r}")
    return check_array(result, (len(names),), what, names)
