"""Bounds by name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from vioc.checks import near_misses


def named_bounds(names: tuple[str, ...], lower: Any, upper: Any, what: str) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper bounds (n,), infinite where none is given.

    Parameters
    ----------
    names : n names
    lower, upper : float, (n,), dict of str to float, or None
    what : str
        What messages call them: ``"inputs"``.

    Raises
    ------
    ValueError
        Unknown name, wrong size, or a lower bound above the upper one.
    """
    both = []
    for side, value, default in (("lower", lower, -np.inf), ("upper", upper, np.inf)):
        if isinstance(value, Mapping):
            for name in value:
                if name not in names:
                    raise ValueError(f"{side} bound of {what}: unknown {name!r}; {near_misses(name, names)}")
            value = [value.get(n, default) for n in names]
        array = np.asarray(default if value is None else value, float)
        if array.ndim == 0:
            array = np.full(len(names), array)
        if array.shape != (len(names),) or np.isnan(array).any():
            raise ValueError(f"{side} bounds of {what}: expected {len(names)} numbers, got {value!r}")
        both.append(array)
    low, high = both
    for name, a, b in zip(names, low, high, strict=True):
        if a > b:
            raise ValueError(f"bounds of {name}: lower {a:g} is above upper {b:g}")
    return low, high
