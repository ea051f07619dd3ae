"""Points of a sweep: dicts of arguments."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any


def grid(**axes: Iterable[Any]) -> list[dict[str, Any]]:
    """Return every combination of the arguments' values; the last varies fastest.

    Examples
    --------
    >>> grid(mass=[1.0, 2.0], length=[0.5])
    [{'mass': 1.0, 'length': 0.5}, {'mass': 2.0, 'length': 0.5}]
    """
    return [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]


def zipped(**axes: Iterable[Any]) -> list[dict[str, Any]]:
    """Return the arguments' values side by side; ValueError for unequal numbers."""
    columns = {name: list(values) for name, values in axes.items()}
    if len({len(column) for column in columns.values()}) > 1:
        sizes = ", ".join(f"{len(column)} of {name}" for name, column in columns.items())
        raise ValueError(f"zipped: expected equally many values of every argument, got {sizes}")
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
