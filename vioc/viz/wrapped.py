"""Functions that find the one-step map of a mechanism inside wrapping maps.
Drawings need the mechanism's map, for example if another map adds a delay.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np

from vioc.maps.made.extended import PARAMETER


def innermost(f: Any) -> Any:
    """Return the mechanism's map inside a map that adds, for example, a delay."""
    while getattr(f, "inner", None) is not None:
        f = f.inner
    return f


def freed_parameters(run: Any) -> dict[str, np.ndarray]:
    """Return the values (T,) of a run's parameters that are components of its state.
    The result is a dict by name."""
    names, x = list(run.map.state_names), np.asarray(run.x)
    return {n: x[:, names.index(PARAMETER + n)] for n in run.map.system.parameters if PARAMETER + n in names}


def pieces(run: Any, rows: np.ndarray) -> Iterator[tuple[slice, Any]]:
    """Yield slices of the samples `rows` in which parameters keep their values.
    Each slice comes with the mechanism's map for the parameter values in this slice.
    """
    freed, f = freed_parameters(run), innermost(run.map)
    if not freed:
        yield slice(0, len(rows)), f
        return
    values = np.column_stack(list(freed.values()))[rows]
    cuts = np.flatnonzero((values[1:] != values[:-1]).any(axis=1)) + 1
    for a, b in pairwise([0, *cuts.tolist(), len(rows)]):
        yield slice(a, b), f.trying(**dict(zip(freed, values[a].tolist(), strict=True)))


class SteadyParameters(dict):
    """Dict of the values of a run's parameters that are constant along the run.

    A parameter that changes along the run raises `ValueError` if its value is needed.
    """

    def __init__(self, run: Any):
        freed = freed_parameters(run)
        steady = {n: float(v[0]) for n, v in freed.items() if (v == v[0]).all()}
        self.changing = set(freed) - set(steady)
        super().__init__({n: v for n, v in run.map.parameters.items() if n not in self.changing} | steady)

    def __missing__(self, name: str) -> float:
        if name not in self.changing:
            raise KeyError(name)
        raise ValueError(
            f"the parameter {name!r} changes along the run: frames are drawn with each sample's, but masses "
            "and shapes have one value; draw a part of the run, run[a:b], or a run of the map with a value"
        )
