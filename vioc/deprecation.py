"""How a public name goes away: CONTRIBUTING.md, "What changes, and when"."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


class Deprecation(NamedTuple):
    """One public name that goes, and in which version it must be gone."""

    name: str
    since: str
    until: str
    instead: str


DEPRECATED: dict[str, Deprecation] = {}  # by qualified name; tests/test_habits.py reads it


def release(version: str) -> tuple[int, int]:
    """Major and minor number of a version such as ``"0.2"`` or ``"0.2.1"``; ValueError for anything else."""
    major, _, rest = version.partition(".")
    minor = rest.partition(".")[0]
    if not (major.isdecimal() and minor.isdecimal()):
        raise ValueError(f"version: expected MAJOR.MINOR, got {version!r}")
    return int(major), int(minor)


def deprecated(*, since: str, until: str, instead: str) -> Callable[[F], F]:
    """Mark a function or method: it does what it did, and warns where it is called.

    Parameters
    ----------
    since : str
        First version that warns, ``"0.2"``.
    until : str
        First version without it: two minor releases on, or a later major one.
    instead : str
        What to write: ``'optimize(..., method="shooting")'``.

    Raises
    ------
    ValueError
        `until` is too soon after `since`.
    TypeError
        What is marked is no function.
    """
    first, last = release(since), release(until)
    if not (last[0] > first[0] or (last[0] == first[0] and last[1] >= first[1] + 2)):
        raise ValueError(f"until: expected two minor releases after {since} or more, got {until}")

    def mark(function: F) -> F:
        if not inspect.isfunction(function):
            raise TypeError(f"deprecated: expected a function or method, got {function!r}")
        name = f"{function.__module__}.{function.__qualname__}"
        DEPRECATED[name] = Deprecation(function.__name__, since, until, instead)
        message = f"{function.__name__} is {instead} now, and goes in vioc {until}"

        @functools.wraps(function)
        def warned(*args: Any, **kwargs: Any) -> Any:
            warnings.warn(message, DeprecationWarning, stacklevel=2)
            return function(*args, **kwargs)

        return warned  # type: ignore[return-value]

    return mark
