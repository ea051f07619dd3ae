"""Numbers, parameters and configuration variables of a description."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from vioc.checks import LONGEST_NAME, is_complex
from vioc.errors import ModelError

_NAME = re.compile(r"[^\s.:\"()\\\x00-\x1f\x7f-\x9f\ud800-\udfff]+")


def check_name(name: object, what: str) -> str:
    """Return `name`, or raise `ModelError` if it is not a valid name.

    Names of variables, inputs and parameters must not contain ``.`` or ``:``, because ``p.theta`` and
    ``pole:x`` name derived quantities; white space, double quotes, round brackets and backslashes, which are
    syntax of model text; control characters or halves of surrogate pairs, which files and terminals do not
    preserve.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ModelError(
            f"{what}: a name is a non-empty string without white space, double quotes, round brackets, "
            f"'.', ':', backslash or control characters; got {_short(name)}"
        )
    return check_length(name, what)


def check_length(name: str, what: str) -> str:
    """Return `name`, or raise `ModelError` if it is too long for messages and tables."""
    if len(name) > LONGEST_NAME:
        raise ModelError(f"{what}: expected a name of at most {LONGEST_NAME} characters, got {_short(name)}")
    return name


def _short(name: object) -> str:
    text = repr(name)
    return text if len(text) <= LONGEST_NAME else f"{text[:40]}... ({len(text)} characters)"


@dataclass(frozen=True)
class Parameter:
    """Named number of a description; its value can be changed without recompiling the one-step map.

    Maps give derivatives by it (co-design, identification).
    ``P("EI", 0.1) * 4`` stands for four times the value of the parameter EI.

    Parameters
    ----------
    name : str
    value : float
        Default, used if no other value is given.
    factor : float
        Factor of the parameter's value.
    """

    name: str
    value: float
    factor: float = 1.0

    __array_ufunc__ = None  # products with numbers of numpy then call __rmul__

    def __post_init__(self) -> None:
        check_name(self.name, "parameter")
        object.__setattr__(self, "value", _finite(self.value, f"parameter {self.name!r}"))
        object.__setattr__(self, "factor", _finite(self.factor, f"parameter {self.name!r}: factor"))

    def of(self, value: Any) -> Any:
        """Return the parameter's value times the field `factor`.
        The argument `value`, a number or a symbol, is the value without the factor.
        """
        return value if self.factor == 1.0 else self.factor * value

    def __mul__(self, factor: Any) -> Parameter:
        if not isinstance(factor, (int, float, np.number)):
            return NotImplemented
        return Parameter(self.name, self.value, self.factor * float(factor))

    __rmul__ = __mul__

    def __truediv__(self, divisor: Any) -> Parameter:
        if not isinstance(divisor, (int, float, np.number)):
            return NotImplemented
        return Parameter(self.name, self.value, self.factor / float(divisor))

    def __float__(self) -> float:
        return self.value * self.factor

    def __repr__(self) -> str:
        return f"P({self.name!r}, {self.value!r})" + f" * {self.factor!r}" * (self.factor != 1.0)


Number = float | Parameter


@dataclass(frozen=True)
class Variable:
    """Configuration variable: dynamic (obeys the equations of motion) or kinematic (prescribed)."""

    name: str
    kinematic: bool = False

    def __post_init__(self) -> None:
        check_name(self.name, "configuration variable")

    def __repr__(self) -> str:
        return f"K({self.name!r})" if self.kinematic else repr(self.name)


def P(name: str, value: float) -> Parameter:
    """Declare a parameter with a name and a default value: ``tz(P("length", 0.5))``."""
    return Parameter(name, value)


def K(name: str) -> Variable:
    """Declare a kinematic variable, which an input prescribes: ``tx(K("trolley"))``."""
    return Variable(name, kinematic=True)


def D(name: str) -> Variable:
    """Declare a dynamic variable, which obeys the equations of motion.
    A plain string in the place of a variable also declares a dynamic variable.
    """
    return Variable(name)


def _finite(value: object, what: str) -> float:
    if isinstance(value, (bool, np.bool_, str)) or is_complex(value):
        raise ModelError(f"{what}: expected a number, got {value!r}")
    try:
        result = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise ModelError(f"{what}: expected a number, got {value!r}") from None
    if not math.isfinite(result):
        raise ModelError(f"{what}: expected a finite number, got {result}")
    return result + 0.0  # -0.0 and 0.0 compare equal but would print differently


def as_number(value: object, what: str) -> Number:
    """Return a value as a finite float, or unchanged if it is a `Parameter`.

    Raises `ModelError` for other values.
    """
    return value if isinstance(value, Parameter) else _finite(value, what)


def as_numbers(values: object, count: int, what: str) -> tuple[Number, ...]:
    """Return `count` numbers or parameters as a tuple, or raise `ModelError`."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise ModelError(f"{what}: expected {count} numbers, got {values!r}")
    items = tuple(values)
    if len(items) != count:
        raise ModelError(f"{what}: expected {count} numbers, got {len(items)}: {items!r}")
    return tuple(as_number(v, what) for v in items)
