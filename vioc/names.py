"""Resolution of full and short names of quantities (docs/conventions.md#names).

A full name (``theta``, ``v.theta``, ``u.force``) is that quantity. The part after the prefix (``force``) is a
short form if exactly one of the possible quantities has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from vioc.checks import as_value, few, near_misses
from vioc.errors import ModelError

if TYPE_CHECKING:
    from vioc.maps.protocol import OneStepMap

INPUTS = "u."  # prefix of inputs among a map's quantities


def meaning(name: str, known: Sequence[str], what: str = "", *, prefix: str = "") -> str:
    """Return the full name of a quantity, given its full or short name.

    Parameters
    ----------
    name : str
    known : sequence of str
        Full names of all possible quantities, without `prefix`.
    what : str
        Beginning of the messages, such as ``"bounds"``.
    prefix : str
        Common prefix of all names of `known`, omitted there.

    Returns
    -------
    str
        One of `known`.

    Raises
    ------
    ModelError
        If the name is unknown, or short for several names, which the message lists.
    """
    begin = f"{what}: unknown name" if what else "unknown quantity"
    if not isinstance(name, str):
        raise ModelError(f"{begin} {name!r}; expected a text")
    if prefix and name.startswith(prefix) and name[len(prefix) :] in known:
        return name[len(prefix) :]
    if name in known:
        return name
    meant = [] if prefix else _long(name, known)
    if len(meant) == 1:
        return meant[0]
    if meant:
        start = f"{what}: " if what else ""
        raise ModelError(f"{start}{name!r} is short for {few(map(repr, meant))}; write the one that is meant")
    raise ModelError(f"{begin} {name!r}; {near_misses(name.removeprefix(prefix), known)}")


def by_name(
    values: Mapping[str, Any], known: Sequence[str], what: str, *, prefix: str = ""
) -> dict[str, Any]:
    """Return a copy of a dict, with full names of quantities as its keys.
    The given keys may be short or full names of the quantities `known`.

    Raises ModelError if two keys mean the same quantity, or if `values` is not a dict.
    """
    return _by_full_name(values, what, lambda name: meaning(name, known, what, prefix=prefix))


def in_order(value: Any, names: Sequence[str], what: str, other: float = 0.0, *, prefix: str = "") -> Any:
    """Return the values of a dict in the order of `names`.
    A missing name has the value `other`.

    Keys may be short (see `meaning`). A value that is not a dict is returned unchanged.
    """
    if not isinstance(value, Mapping):
        return value
    given = by_name(value, names, what, prefix=prefix)
    for name, v in given.items():
        if not (callable(v) or np.ndim(v)):
            as_value(v, f"{what} {name!r}")
    return [given.get(name, other) for name in names]


def quantity_name(f: OneStepMap, name: str, what: str = "", more: Iterable[str] = ()) -> str:
    """Return the full name of a quantity of a map, given its full or short name.
    The names in `more` are accepted too.
    """
    known = tuple(dict.fromkeys((*more, *f.quantities.names())))
    try:
        return meaning(name, known, what)
    except ModelError:
        if not isinstance(name, str) or _long(name, known) or not _has_quantity(f, name):
            raise
        return name  # a user's map may have quantities that it does not list


def by_quantity(
    f: OneStepMap, values: Mapping[str, Any], what: str, more: Iterable[str] = ()
) -> dict[str, Any]:
    """Return a copy of a dict, with full names of quantities as its keys.
    The given keys may be short or full names of quantities of the map f.
    """
    more = tuple(more)
    return _by_full_name(values, what, lambda name: quantity_name(f, name, what, more))


def _long(name: str, known: Iterable[str]) -> list[str]:
    """Return those of the known full names that a short name can denote."""
    return [k for k in known if k.partition(".")[2] == name]


def _has_quantity(f: OneStepMap, name: str) -> bool:
    try:
        f.quantity(name)
    except ValueError:
        return False
    return True


def _by_full_name(values: Mapping[str, Any], what: str, full: Any) -> dict[str, Any]:
    if not isinstance(values, Mapping):
        raise ModelError(f"{what}: expected a dict by name, got {values!r}")
    quantities: dict[str, Any] = {}
    first: dict[str, str] = {}
    for key, value in values.items():
        name = full(key)
        if name in quantities:
            raise ModelError(f"{what}: {first[name]!r} and {key!r} are the same quantity; give one")
        quantities[name], first[name] = value, key
    return quantities
