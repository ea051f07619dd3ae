"""What a user writes and reads by name: constraints, names of bounds, results."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import casadi as ca
import numpy as np

from vioc.checks import near_misses
from vioc.control.problem.limits import Constraint
from vioc.errors import ModelError
from vioc.maps.protocol import OneStepMap
from vioc.names import by_quantity, meaning


def as_constraints(value: Any) -> tuple[Constraint, ...]:
    """One constraint, several or None as a tuple; TypeError says what to write instead."""
    if value is None:
        return ()
    several = not isinstance(value, (Constraint, ca.SX, ca.MX, ca.DM, str, Mapping)) and np.iterable(value)
    items = tuple(value) if several else (value,)
    for i, item in enumerate(items):
        if not isinstance(item, Constraint):
            place = f" in entry {i}" if several else ""
            raise TypeError(
                f"constraints: expected a Constraint or several of them, got {type(item).__name__} "
                f'{item!s:.60}{place}; write Constraint("name", expression, lower=..., upper=...)'
            )
    return items


def full_names(f: OneStepMap, bounds: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Bounds with the full names of quantities.

    Raises
    ------
    ModelError
        Unknown names, or two that mean the same quantity.
    """
    if bounds is None:
        return None
    if not isinstance(bounds, Mapping):
        raise TypeError(f'bounds: expected a dict of limits by name, {{"u.NAME": 2.0}}, got {bounds!r}')
    return by_quantity(f, bounds, "bounds")


class NoMultiplier(ModelError, KeyError):
    """There is no multiplier of this name."""

    __str__ = Exception.__str__  # that of KeyError quotes the message


class Duals(dict):
    """Multipliers by name: a dict whose `NoMultiplier` says what there is."""

    def __missing__(self, name: str) -> Any:
        with contextlib.suppress(ModelError):
            return self[meaning(name, tuple(self))]
        raise NoMultiplier(
            f"no multiplier {name!r}: equations and what has a limit have one; {near_misses(str(name), self)}"
        )
