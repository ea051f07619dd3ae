"""Base classes of potentials, forces, constraints and contacts.

A component is a frozen dataclass whose fields declare their kinds (`frame`, `variable`, `number`, ... below).
The system validates components, and model text is read and written, by these kinds alone. The mechanics of a
component are written for the symbolic kinematics, in `vioc.dynamics.terms`.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from vioc.checks import near_misses
from vioc.dynamics.description.numbers import (
    Number,
    Parameter,
    Variable,
    as_number,
    as_numbers,
    check_name,
)
from vioc.errors import ModelError


def frame() -> Any:
    """Declare a dataclass field that holds the name of a frame; ``"world"`` is the root."""
    return field(metadata={"kind": "frame"})


def variable() -> Any:
    """Declare a dataclass field that holds the name of a configuration variable."""
    return field(metadata={"kind": "variable"})


def variables() -> Any:
    """Declare a dataclass field that holds a tuple of distinct variable names."""
    return field(metadata={"kind": "variables"})


def number(
    default: Any = dataclasses.MISSING, *, minimum: float | None = None, positive: str | None = None
) -> Any:
    """Declare a dataclass field that holds a finite number or a declared `Parameter`.

    The number is at least `minimum`. If `positive` is given, it must be > 0; messages call it by the text of
    `positive`.
    """
    minimum = 0.0 if positive else minimum
    return field(default=default, metadata={"kind": "number", "minimum": minimum, "positive": positive})


def length() -> Any:
    """Declare a dataclass field that holds a length: a positive number or a `Variable`.

    A kinematic variable prescribes the length; a dynamic one is that of a frame.
    """
    return field(metadata={"kind": "length"})


def direction(default: Any = dataclasses.MISSING) -> Any:
    """Declare a dataclass field that holds a direction: a vector of any norm > 0."""
    return field(default=default, metadata={"kind": "direction"})


def input_name() -> Any:
    """Declare a dataclass field that holds the name of an input of the mechanism."""
    return field(metadata={"kind": "input"})


def axes() -> Any:
    """Declare a dataclass field that holds the name of the frame in whose axes a direction is given.

    It may be the frame of another field.
    """
    return field(default="world", metadata={"kind": "axes"})


def vector(default: Any = dataclasses.MISSING, *, minimum: float = -np.inf) -> Any:
    """Declare a dataclass field that holds three numbers >= `minimum`, which may all be zero."""
    return field(default=default, metadata={"kind": "vector", "minimum": minimum})


def numbers(default: Any = dataclasses.MISSING, *, least: int = 1) -> Any:
    """Declare a dataclass field that holds a tuple of at least `least` numbers."""
    return field(default=default, metadata={"kind": "numbers", "least": least})


def choice(*options: str) -> Any:
    """Declare a dataclass field that holds one of several words, by default the first."""
    return field(default=options[0], metadata={"kind": "choice", "options": options})


def shape() -> Any:
    """Declare a dataclass field that holds a contact shape, which a frame carries.

    See `vioc.dynamics.terms.contact_shapes`.
    """
    return field(metadata={"kind": "shape"})


def function() -> Any:
    """Declare a dataclass field that holds a Python function.

    A component with such a field has no text form, and can be pickled only if the function is named.
    """
    return field(metadata={"kind": "function"})


def handed_on() -> Any:
    """Declare a dataclass field that holds additional arguments for a user's function.

    They are numbers, parameters and names, and follow the kinematics.
    """
    return field(default=(), metadata={"kind": "handed_on"})


def input_names() -> Any:
    """Declare a dataclass field that holds a tuple of input names, by default empty."""
    return field(default=(), metadata={"kind": "inputs"})


_COMPONENTS: dict[str, type[Component]] = {}
_MEANT = {"torque": "moment"}  # wrong argument names with the words that are meant


def component_types() -> dict[str, type[Component]]:
    """Return the component classes that a model text can contain, by keyword.

    Keys are their keywords in upper case.
    """
    return dict(_COMPONENTS)


@dataclass(frozen=True, repr=False)
class Component:
    """Base class of potentials, forces, constraints and contacts.

    `name` is optional and unique in a system.
    """

    keyword: ClassVar[str] = ""

    name: str | None = field(default=None, kw_only=True, metadata={"kind": "name"})

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if (
            "keyword" not in cls.__dict__ or not cls.keyword
        ):  # an inherited keyword belongs to the class that defines it
            return
        keyword = cls.keyword.upper()
        other = _COMPONENTS.get(keyword)
        if other is not None and (other.__module__, other.__qualname__) != (cls.__module__, cls.__qualname__):
            raise ModelError(f"{cls.__name__}: the keyword {keyword} belongs to {other.__name__}")
        _COMPONENTS[keyword] = cls

    def __new__(cls, *args: Any, **named: Any) -> Any:
        parameters = inspect.signature(cls.__init__).parameters if named else {}
        for name in named:
            if name not in parameters and not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
                likely = near_misses(_MEANT.get(name, name), [*parameters][1:])
                raise TypeError(f"{cls.__name__}: unknown argument {name!r}; {likely}")
        return super().__new__(cls)

    @classmethod
    def keyword_of(cls) -> str:
        """Return the keyword that denotes this component class in model text, such as ``gravity``.

        Messages use it as well.
        """
        return (cls.keyword or re.sub(r"(?<!^)(?=[A-Z])", "-", cls.__name__)).lower()

    @classmethod
    def arguments(cls) -> tuple[dataclasses.Field, ...]:
        """Return the component's fields except its name, in the order in which a model text lists them."""
        return tuple(f for f in dataclasses.fields(cls) if f.name != "name")

    def given(self) -> list[dataclasses.Field]:
        """Return those fields of the component that its model text must contain.

        Trailing numbers that have their defaults are not among them.
        """
        fields = list(self.arguments())
        while fields and fields[-1].metadata.get("kind") == "number" and self._default(fields[-1]):
            fields.pop()
        return fields

    def _default(self, f: dataclasses.Field) -> bool:
        return bool(getattr(self, f.name) == f.default)

    def __post_init__(self) -> None:
        where = self.label()
        if self.name is not None:
            check_name(self.name, self.keyword_of())
        for f in self.arguments():
            what = f"{where}: {f.name}"
            value = getattr(self, f.name)
            object.__setattr__(self, f.name, _checked(value, f.metadata.get("kind"), f.metadata, what))

    def fault_of(self, values: Mapping[str, float]) -> str:
        """Return why a component does not accept these parameter values, or "" if it accepts them.

        Parameters without a value have their defaults.
        """
        twin = object.__new__(type(self))
        for f in dataclasses.fields(self):
            object.__setattr__(twin, f.name, _valued(getattr(self, f.name), values))
        try:
            twin.__post_init__()
        except ModelError as error:
            return str(error)
        return ""

    def label(self) -> str:
        """Return the name by which messages call this component."""
        return f"{self.keyword_of()} {self.name!r}" if self.name else self.keyword_of()

    def __repr__(self) -> str:
        parts = [shown(getattr(self, f.name)) for f in self.given()]
        parts += [f"name={self.name!r}"] if self.name is not None else []
        return f"{type(self).__name__}({', '.join(parts)})"

    def __str__(self) -> str:
        """Return the constructor call of this component, without default values."""
        fields = [(f, getattr(self, f.name)) for f in dataclasses.fields(self)]
        fields.sort(key=lambda pair: pair[0].name == "name")
        parts = [f"{f.name}={shown(value)}" for f, value in fields if value != f.default]
        return f"{type(self).__name__}({', '.join(parts)})"

    def check(self, system: Any) -> None:
        """Raise `ModelError` if the component does not fit `system`.

        All frames and variables that it names exist.
        """

    def _of_kind(self, *kinds: str) -> Iterator[Any]:
        for f in self.arguments():
            if f.metadata.get("kind") in kinds:
                yield getattr(self, f.name)

    def frame_names(self) -> tuple[str, ...]:
        """Return the names of the frames that the component refers to.

        Those of `frame` fields come first, and must differ.
        """
        frames = tuple(self._of_kind("frame"))
        return frames + tuple(f for f in self._of_kind("axes") if f not in frames)

    def variable_names(self) -> tuple[str, ...]:
        return (*self._of_kind("variable"), *(name for names in self._of_kind("variables") for name in names))

    def own_variables(self) -> tuple[Variable, ...]:
        """Return the variables that only this component declares, such as a prescribed length."""
        return tuple(v for v in self._of_kind("length") if isinstance(v, Variable))

    def input_names(self) -> tuple[str, ...]:
        return (*self._of_kind("input"), *(name for names in self._of_kind("inputs") for name in names))

    def numbers(self) -> tuple[Number, ...]:
        result: list[Any] = []
        for value in self._of_kind("number", "length", "direction", "vector", "numbers", "handed_on"):
            result += value if isinstance(value, tuple) else [value]
        return tuple(v for v in result if not isinstance(v, (Variable, str)))


def _checked(value: Any, kind: str | None, metadata: Any, what: str) -> Any:
    """Validate the value of a field, and return it in the form that the field stores."""
    check = _KINDS.get(kind) if kind is not None else None
    return value if check is None else check(value, metadata, what)


def _checked_number(value: Any, metadata: Any, what: str) -> Number:
    value = as_number(value, what)
    minimum = metadata["minimum"]
    if minimum is not None and float(value) < minimum:
        raise ModelError(f"{what}: expected at least {minimum:g}, got {float(value):g}")
    if metadata["positive"] and float(value) == 0:
        thing, _, unit = metadata["positive"].partition(" ")
        raise ModelError(f"{what}: expected a {thing} > 0{unit and ' ' + unit}, got 0")
    return value


def _checked_direction(value: Any, metadata: Any, what: str) -> tuple:
    value = as_numbers(value, 3, what)
    if not any(isinstance(v, Parameter) or v != 0 for v in value):
        raise ModelError(f"{what}: expected a direction, got the zero vector")
    return value


def _checked_length(value: Any, metadata: Any, what: str) -> Number | Variable:
    if isinstance(value, str):
        return Variable(check_name(value, what))
    if isinstance(value, Variable):
        return value
    value = as_number(value, what)
    if float(value) <= 0:
        raise ModelError(
            f"{what}: expected a length > 0, got {float(value):g} "
            "(to make two points coincide use point constraints: |d|^2 = 0 is singular)"
        )
    return value


def _checked_vector(value: Any, metadata: Any, what: str) -> tuple:
    value = as_numbers(value, 3, what)
    if min(map(float, value)) < (minimum := metadata["minimum"]):
        raise ModelError(f"{what}: expected numbers >= {minimum:g}, got {value}")
    return value


def _checked_numbers(value: Any, metadata: Any, what: str) -> tuple:
    value = _tuple(value, what, "numbers")
    return as_numbers(value, max(len(value), metadata["least"]), what)


def _checked_handed_on(value: Any, metadata: Any, what: str) -> tuple:
    items = _tuple(value, what, "numbers, parameters and names")
    return tuple(v if isinstance(v, str) else as_number(v, what) for v in items)


def _checked_variables(value: Any, metadata: Any, what: str) -> tuple[str, ...]:
    names = _tuple(value, what, "names of variables")
    value = tuple(_checked_name(v, metadata, what) for v in names)
    if not value or len(set(value)) < len(value):
        raise ModelError(f"{what}: expected names of variables, each once, got {value!r}")
    return value


def _checked_inputs(value: Any, metadata: Any, what: str) -> tuple[str, ...]:
    names = _tuple(value, what, "names")
    if not all(isinstance(name, str) for name in names):
        raise ModelError(
            f"{what}: expected a tuple of names, got {value!r}; write () for no inputs, "
            "and other arguments of the function as `args`, the next argument"
        )
    return tuple(check_name(name, what) for name in names)


def _checked_choice(value: Any, metadata: Any, what: str) -> Any:
    if value not in metadata["options"]:
        raise ModelError(f"{what}: expected one of {', '.join(metadata['options'])}, got {value!r}")
    return value


def _checked_function(value: Any, metadata: Any, what: str) -> Any:
    if not callable(value):
        raise ModelError(f"{what}: expected a function, got {value!r}")
    return value


def _checked_name(value: Any, metadata: Any, what: str) -> str:
    return check_name(value.name if isinstance(value, Variable) else value, what)


def _checked_frame(value: Any, metadata: Any, what: str) -> str:
    if not isinstance(value, str) or not value:
        raise ModelError(f"{what}: expected the name of a frame, got {value!r}")
    return value


_KINDS: dict[str, Callable[[Any, Any, str], Any]] = {
    "number": _checked_number,
    "direction": _checked_direction,
    "length": _checked_length,
    "vector": _checked_vector,
    "numbers": _checked_numbers,
    "handed_on": _checked_handed_on,
    "variables": _checked_variables,
    "inputs": _checked_inputs,
    "choice": _checked_choice,
    "function": _checked_function,
    "variable": _checked_name,
    "input": _checked_name,
    "frame": _checked_frame,
    "axes": _checked_frame,
}


def _valued(value: Any, values: Mapping[str, float]) -> Any:
    """Return a field's value with its parameters set to given values."""
    if isinstance(value, Parameter):
        return dataclasses.replace(value, value=values.get(value.name, value.value))
    return tuple(_valued(v, values) for v in value) if isinstance(value, tuple) else value


def _tuple(value: Any, what: str, expected: str) -> tuple:
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise ModelError(f"{what}: expected a tuple of {expected}, got {value!r}")
    return tuple(value)


def shown(value: Any) -> str:
    """Return a value as text: the name of a function, else the `repr` of the value."""
    return getattr(value, "__qualname__", repr(value)) if callable(value) else repr(value)


class Potential(Component):
    """Potential energy V(q), J, of a mechanism."""

    def energy(self, k: Any) -> Any:
        """Return the potential energy, J, as a scalar expression.
        The argument `k` is the symbolic kinematics of the mechanism.
        """
        raise TypeError(f"{type(self).__name__} must define energy(k)")


class Force(Component):
    """Generalized force F(q, dq, u, t) that has no potential."""

    def generalized(self, k: Any) -> dict[str, Any]:
        """Return the generalized force, N or N m, on each variable, as a dict by name.
        It has only variables on which this force acts. The argument `k` is the symbolic kinematics of the
        mechanism.
        """
        raise TypeError(f"{type(self).__name__} must define generalized(k)")

    def input_unit(self, rotational: Collection[str]) -> str:
        """Return the SI unit of the force's inputs, "" if unknown.

        `rotational` names the variables that are angles.
        """
        driven = self.variable_names()
        return ("N m" if driven[-1] in rotational else "N") if driven else ""


class Kinetic(Component):
    """Kinetic energy 1/2 a (dq/dt)^2 of one variable q, in addition to the kinetic energy of the bodies.
    An example is the energy of a motor's rotor with the inertia a.

    Subclasses have the fields `variable` and `inertia` (a).
    """

    variable: str
    inertia: Number

    def fault(self, parameters: Mapping[str, Any]) -> tuple[int, str] | None:
        """Return the index of the first negative value of the component's inertia, and a message.
        The result is None if no value is negative. The dict `parameters` has a number or an array for each
        parameter; the index is that of the value in the array.

        See `Mass.fault`.
        """
        a = self.inertia
        value = a.of(np.asarray(parameters.get(a.name, a.value))) if isinstance(a, Parameter) else float(a)
        wrong = np.atleast_1d(value) < 0
        i = int(np.argmax(wrong))
        return (i, f"inertia: expected at least 0, got {np.atleast_1d(value)[i]:g}") if wrong.any() else None


class Constraint(Component):
    """Holonomic constraint h(q) = 0."""

    def value(self, k: Any) -> Any:
        """Return the constraint value h(q) as a scalar CasADi expression.
        The argument `k` is the symbolic kinematics of the mechanism.
        """
        raise TypeError(f"{type(self).__name__} must define value(k)")


class VelocityConstraint(Constraint):
    """Nonholonomic constraint A(q) dq = 0, linear in the rates dq, such as rolling without slip."""

    def value(self, k: Any) -> Any:
        raise ModelError(f"{self.label()} is a constraint on velocities: it has no h(q)")

    def rate(self, k: Any) -> Any:
        """Return the constrained rate A(q) dq as a scalar CasADi expression.
        The argument `k` is the symbolic kinematics of the mechanism.
        """
        raise TypeError(f"{type(self).__name__} must define rate(k)")


@dataclass(frozen=True)
class Meeting:
    """Geometry of a contact or dry friction between two bodies: gap, normal and slip as expressions.

    Attributes
    ----------
    gap : SX or None
        phi, m; rad for an angle. None for friction under a given load.
    normal, point : 3 scalars, or None where nothing slips
        Unit vector from the first body to the second, and their contact point, in the world.
    first, second : str
        Frames that carry the two bodies; the first may be ``"world"``.
    slip : SX or None
        Rate of a joint with friction, m/s or rad/s.
    bound : SX or None
        Largest friction of a contact without gap, N or N m.
    """

    gap: Any
    normal: tuple[Any, Any, Any] | None = None
    point: tuple[Any, Any, Any] | None = None
    first: str = "world"
    second: str = "world"
    slip: Any = None
    bound: Any = None


class Inequality(Component):
    """One-sided constraint phi(q) >= 0 with a contact force, or dry friction under a given load.

    One-sided constraints are contacts and limits of joints.
    """

    @property
    def restitution(self) -> Number:
        """Coefficient of restitution: speed of separation after an impact, over speed of approach before it.

        It is 0 unless a subclass has a field for it.
        """
        return 0.0

    def meetings(self, k: Any) -> dict[str, Meeting]:
        """Return the geometry of each contact of this component, in a dict.
        A contact's name is the component's name followed by the contact's key in this dict.

        The geometry is written in the kinematics `k`.
        """
        raise TypeError(f"{type(self).__name__} must define meetings(k)")

    def gaps(self, k: Any) -> dict[str, Any]:
        """Return the gap, m or rad, of each contact of this component, in a dict.
        A contact's name is the component's name followed by the contact's key in this dict.
        """
        return {suffix: m.gap for suffix, m in self.meetings(k).items() if m.gap is not None}
