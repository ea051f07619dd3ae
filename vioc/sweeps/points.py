"""Points of a parameter sweep.
A point is a dict of the arguments with which the sweep calls a function.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import product
from typing import Any


def grid(**axes: Iterable[Any]) -> list[dict[str, Any]]:
    """Return a function's arguments for every combination of given argument values.
    Each keyword is the name of an argument, and gives the values of this argument. The result is a list of
    dicts, one for each combination.

    The last argument varies fastest.

    Examples
    --------
    >>> grid(mass=[1.0, 2.0], length=[0.5])
    [{'mass': 1.0, 'length': 0.5}, {'mass': 2.0, 'length': 0.5}]
    """
    for name, values in axes.items():
        if not isinstance(values, Iterable):
            raise ValueError(
                f"grid: expected several values of {name}, got {values!r}; for one, [{values!r}]"
            )
    return [dict(zip(axes, values, strict=True)) for values in product(*axes.values())]


def zipped(**axes: Iterable[Any]) -> list[dict[str, Any]]:
    """Return dicts of arguments; dict i has the i-th value of every argument.
    Each keyword is the name of a function's argument, and gives the values of this argument. ValueError is
    raised if two arguments have different numbers of values.
    """
    columns = {name: list(values) for name, values in axes.items()}
    if len({len(column) for column in columns.values()}) > 1:
        sizes = ", ".join(f"{len(column)} of {name}" for name, column in columns.items())
        raise ValueError(f"zipped: expected equally many values of every argument, got {sizes}")
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
