"""Properties that a map shares with some of its copies, called twins.

Twins are copies that have other parameter values or step lengths. They share everything that is built, such
as compiled functions, before or after copying. A property of a map is `shared` by all twins, `shared_by_step`
by those with the same step length, or its `own`. Plain attributes and `functools.cached_property` are copied
to a twin.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import cache
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")
Map = TypeVar("Map")
Self = TypeVar("Self")


class _Made(ABC, Generic[T]):
    """Base class of property decorators that compute a value once and store it."""

    def __init__(self, make: Callable[[Any], T]):
        self._make, self.__doc__ = make, make.__doc__

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self: Self, map: None, owner: type) -> Self: ...

    @overload
    def __get__(self, map: Any, owner: type) -> T: ...

    def __get__(self, map: Any, owner: type) -> Any:
        return self if map is None else self._value(map)

    @abstractmethod
    def _value(self, map: Any) -> T: ...

    def _built(self, map: Any, key: Any) -> T:
        if key not in map.built:
            map.built[key] = self._make(map)
        return map.built[key]


class shared(_Made[T]):
    """Property computed once for a map and its copies with other parameters or steps.

    The copies are those of `with_parameters` and `with_dt`, which have other parameter values or step
    lengths. The property must depend neither on the values of parameters nor on the step length.
    """

    def _value(self, map: Any) -> T:
        # from now on an attribute of the instance, which Python finds before this descriptor
        value = map.__dict__[self._name] = self._built(map, self._name)
        return value


class shared_by_step(_Made[T]):
    """Property computed once for all copies of a map that have the same step length.

    It may depend on that length.
    """

    def _value(self, map: Any) -> T:
        return self._built(map, (self._name, map.dt))


class own(_Made[T]):
    """Property computed separately for each copy of a map."""

    def _value(self, map: Any) -> T:
        value = map.__dict__[self._name] = self._make(map)
        return value


@cache
def _own_names(kind: type) -> tuple[str, ...]:
    return tuple(name for base in kind.__mro__ for name, p in vars(base).items() if isinstance(p, own))


def twin(f: Map) -> Map:
    """Return a copy of a map that shares all compiled functions with it.

    A copy made by copy.copy would build these functions again.
    """
    whole: Any = f
    kind: Any = type(f)
    _ = whole.built
    result = object.__new__(kind)
    result.__dict__.update(whole.__dict__)
    if (
        method := whole.__dict__.get("_as_mechanism")
    ) is not None:  # a method of the map's, then of the twin's
        result.__dict__["_as_mechanism"] = method.__func__.__get__(result)
    for name in _own_names(kind):
        result.__dict__.pop(name, None)
    return result
