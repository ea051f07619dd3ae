"""Bounds by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from vioc.maps.protocol import OneStepMap
from vioc.names import INPUTS, by_name


def input_bounds(
    f: OneStepMap, lower: Any, upper: Any, what: str = "inputs"
) -> tuple[np.ndarray, np.ndarray]:
    """`named_bounds` of a map's inputs; their names are ``NAME`` or ``u.NAME``."""
    return named_bounds(f.input_names, lower, upper, what, prefix=INPUTS)


def named_bounds(
    names: tuple[str, ...], lower: Any, upper: Any, what: str, *, prefix: str = ""
) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper bounds (n,), infinite where none is given.

    Parameters
    ----------
    names : n names
    lower, upper : float, (n,), dict of str to float, or None
    what : str
        What messages call them: ``"inputs"``.
    prefix : str
        May stand before a name in a dict.

    Raises
    ------
    ModelError
        Unknown name.
    ValueError
        Wrong size, or a lower bound above the upper one.
    """
    both = []
    for side, value, default in (("lower", lower, -np.inf), ("upper", upper, np.inf)):
        if isinstance(value, Mapping):
            given = by_name(value, names, f"{side} bounds of {what}", prefix=prefix)
            value = [given.get(n, default) for n in names]
        try:
            array = np.asarray(default if value is None else value, float)
        except (TypeError, ValueError):
            array = np.array(np.nan)
        if array.ndim == 0 and not np.isnan(array):
            array = np.full(len(names), array)
        if array.shape != (len(names),) or np.isnan(array).any():
            raise ValueError(f"{side} bounds of {what}: expected {len(names)} numbers, got {value!r}")
        both.append(array)
    low, high = both
    for name, a, b in zip(names, low, high, strict=True):
        if a > b:
            raise ValueError(f"bounds of {name}: lower {a:g} is above upper {b:g}")
    return low, high
