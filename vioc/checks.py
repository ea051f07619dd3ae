"""Checks of arrays at the boundary: what was got, what was expected, where."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np


def check_array(value: Any, shape: tuple[int, ...], what: str, names: Sequence[str] = ()) -> np.ndarray:
    """`value` as a finite C-ordered float64 array of `shape`, or a ValueError that says where."""
    try:
        array = np.ascontiguousarray(value, dtype=float)
    except (TypeError, ValueError):
        raise ValueError(f"{what}: expected numbers of shape {shape}, got {value!r}") from None
    if array.shape != shape:
        order = f" in the order {', '.join(names)}" if names else ""
        raise ValueError(f"{what}: expected shape {shape}{order}, got {array.shape}")
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        at = tuple(int(i) for i in bad[0])
        label = f" ({names[at[-1]]})" if names else ""
        row = f" at step {at[0]}" if len(at) > 1 else ""
        raise ValueError(f"{what}: expected finite numbers, got {array[at]} in entry {at[-1]}{label}{row}")
    return array
