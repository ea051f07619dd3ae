"""Construction of a `System` from parsed model text.

The brackets are already parsed. Nothing here recurses over the tree, so that a long chain needs no deep
stack.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from vioc.checks import similar
from vioc.dynamics.description.component import Component, component_types
from vioc.dynamics.description.frame import PRIMITIVES, Frame, Pose, Transform, Twist
from vioc.dynamics.description.inertia import Mass
from vioc.dynamics.description.numbers import Number, Parameter, Variable
from vioc.dynamics.description.system import System
from vioc.dynamics.formats.sexpr_syntax import Atom, Form, Item, Source, is_symbol, shown
from vioc.dynamics.terms.contact_shapes import SHAPES, Shape
from vioc.errors import ModelError

MAX_DEPTH = 500  # most frames from the world to a leaf; more suggest an error of a generator
_MAX_BRACKETS = MAX_DEPTH + 4  # (SYSTEM, and below the last frame (MASS 1 (COM 0 0 (P "z" 1)))

_TRANSFORMS = (*PRIMITIVES, "SE3", "TWIST")
_MASS_FORM = "(MASS m [Ixx Iyy Izz [Ixy Ixz Iyz]] [(COM x y z)])"
_TWIST_FORM = '(TWIST ("q" (vx vy vz) (wx wy wz)) ...)'
_SE3_FORM = "(SE3 ((x y z) [(r11 r12 r13 r21 r22 r23 r31 r32 r33)]) ...)"
_PARAMETER_FORM = 'a number, "variable", (D "variable"), (K "variable") or (P "name" value)'
_FIELD_FORMS = {
    "frame": '"{}"',
    "variable": '"{}"',
    "input": '"{}"',
    "number": "{}",
    "length": "{}",
    "direction": "(x y z)",
    "vector": "({0}_x {0}_y {0}_z)",
    "numbers": "({} ...)",
    "variables": '("variable" ...)',
    "axes": '"{}"',
    "choice": '"{}"',
    "shape": "(SPHERE ...)",
}
_OTHER_WORDS = {
    "HELICAL": ("TWIST",),
    "REVOLUTE": ("RX", "RY", "RZ"),
    "CONTINUOUS": ("RX", "RY", "RZ"),
    "PRISMATIC": ("TX", "TY", "TZ"),
    "ROPE": ("STRING-CONSTRAINT",),
    "CABLE": ("STRING-CONSTRAINT",),
    "ROD": ("DISTANCE-CONSTRAINT",),
}
# Each character can be matched in one way only, which avoids exponential backtracking.
_NUMBER = re.compile(r"[+-]?(?:(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:e[+-]?[0-9]+)?|nan|inf|infinity)", re.I)


def component_form(cls: type[Component]) -> str:
    """Return the syntax of a type of component in s-expressions.

    An example is ``(JOINT-FORCE "variable" "input" [(NAME "name")])``.

    Raises
    ------
    ModelError
        If a field's kind has no text form.
    """
    parts = [cls.keyword.upper()]
    for f in cls.arguments():
        text = _FIELD_FORMS[field_kind(cls, f)].format(f.name)
        parts.append(text if _required(f) else f"[{text}]")
    return f'({" ".join(parts)} [(NAME "name")])'


def field_kind(cls: type[Component], f: dataclasses.Field) -> str:
    """Return the kind of a component's field in s-expressions, such as "number".
    Raise `ModelError` if s-expressions cannot represent the field.
    """
    kind = f.metadata.get("kind")
    if kind not in _FIELD_FORMS:
        raise ModelError(f"{cls.__name__}: the field {f.name!r} (kind {kind!r}) has no text form")
    return kind


def _required(f: dataclasses.Field) -> bool:
    return f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING


@dataclass(frozen=True)
class _Placed:
    """Frame read from model text, with the index of its parent, its depth and its position in the text."""

    frame: Frame
    parent: int
    depth: int
    at: int


def _trees(placed: Sequence[_Placed]) -> list[Frame]:
    """Return the root frames with their descendants attached, from a flat list of frames.

    `placed` may be any beginning of the list.
    """
    children: list[list[Frame]] = [
        [] for _ in range(len(placed) + 1)
    ]  # the last list has the children of the world
    for i in reversed(range(len(placed))):
        children[placed[i].parent].append(placed[i].frame[tuple(reversed(children[i]))])
    return children[-1][::-1]


class Reader:
    """Parser of a model in s-expressions, which makes a `System`."""

    def __init__(self, text: str, source: str):
        self._source = Source(text, source)
        self._fail = self._source.fail
        self._components = {keyword.upper(): cls for keyword, cls in component_types().items()}

    def read(self) -> System:
        form = self._source.form(_MAX_BRACKETS)
        if form.head not in ("SYSTEM", "MECHANICAL-SYSTEM"):
            self._unknown(form, ("SYSTEM", "MECHANICAL-SYSTEM"))
        name: str | None = None
        placed: list[_Placed] = []
        components: list[tuple[Component, int]] = []
        for item in form.items[1:]:
            keyword = item.head
            if keyword == "NAME":
                name = self._once(name, item, self._name(item))
            elif keyword in _TRANSFORMS:
                self._frames(item, placed)
            elif keyword in self._components:
                components.append((self._component(item), item.at))
            else:
                self._unknown(item, (*_TRANSFORMS, "NAME", *self._components))
        return self._system(form.at, placed, components, "system" if name is None else name)

    def _system(
        self, position: int, placed: list[_Placed], components: list[tuple[Component, int]], name: str
    ) -> System:
        try:
            return System(*_trees(placed), *(c for c, _ in components), name=name)
        except ModelError as error:
            failure = error
        # Each part is valid, but not all together (a name used twice, an unknown reference). The error is
        # reported at the last part of the shortest beginning that fails; variables precede the components
        # that refer to them.
        ordered = sorted(components, key=lambda item: not item[0].own_variables())
        ends = [p.at for p in placed] + [at for _, at in ordered]
        good, bad = 0, len(ends) if placed else 0
        while bad - good > 1:
            middle = (good + bad) // 2
            beginning = [c for c, _ in ordered[: max(0, middle - len(placed))]]
            try:
                System(*_trees(placed[:middle]), *beginning, name=name)
                good = middle
            except ModelError as error:
                bad, failure = middle, error
        self._fail(ends[bad - 1] if bad else position, str(failure))

    def _unknown(self, item: Item, keywords: Sequence[str]) -> NoReturn:
        keyword = item.head
        if not keyword:
            self._fail(item.at, f"expected a form that begins with a keyword, got {shown(item)}")
        matches = [k for k in keywords if k in _OTHER_WORDS.get(keyword, ()) or keyword in k.split("-")][:3]
        matches = matches or similar(keyword, keywords)
        hint = f"did you mean {' or '.join(matches)}?" if matches else f"known are {', '.join(keywords)}"
        self._fail(item.items[0].at, f"unknown keyword {shown(item.items[0])}; {hint}")

    def _once(self, old: object, item: Item, new: Any) -> Any:
        """Return `new`, the value of an attribute such as NAME, if the text gives this attribute only once.
        The argument `old` is the value that was read before, None if there was none. An error is raised if it
        is not None.
        """
        if old is not None:
            self._fail(item.at, f"a second {shown(item)}; one is allowed")
        return new

    # -- frames -------------------------------------------------------------------------------------

    def _frames(self, form: Item, placed: list[_Placed]) -> None:
        """Append a frame and all its descendants to the list `placed`, depth first."""
        waiting = [(form, -1)]
        while waiting:
            form, parent = waiting.pop()
            transforms = self._transforms(form)
            name: str | None = None
            mass: Mass | None = None
            children: list[Item] = []
            for item in form.items[2 * len(transforms) :]:
                keyword = item.head
                if keyword == "NAME":
                    name = self._once(name, item, self._name(item))
                    with self._source.building(item.at):
                        Frame(transforms[-1][0], name)  # a wrong name is reported at its own place
                elif keyword == "MASS":
                    mass = self._once(mass, item, self._mass(item))
                elif keyword in _TRANSFORMS:
                    children.append(item)
                elif keyword in self._components:
                    self._fail(item.at, f"{keyword} belongs directly in SYSTEM, not in a frame")
                else:
                    self._unknown(item, (*_TRANSFORMS, "NAME", "MASS"))
            for i, (transform, position) in enumerate(transforms, 1):
                depth = placed[parent].depth + 1 if parent >= 0 else 1
                if depth > MAX_DEPTH:
                    self._fail(position, f"this chain has more than {MAX_DEPTH} frames")
                last = i == len(transforms)
                frame = Frame(transform, name, mass) if last else Frame(transform)
                placed.append(_Placed(frame, parent, depth, position))
                parent = len(placed) - 1
            waiting += [(child, parent) for child in reversed(children)]

    def _transforms(self, form: Item) -> list[tuple[Transform, int]]:
        """Return the transforms at the beginning of a frame's text, each with its position in the text."""
        result: list[tuple[Transform, int]] = []
        for i in range(0, len(form.items), 2):
            item = form.items[i]
            if not is_symbol(item):
                break
            kind = item.text.upper()
            if kind not in _TRANSFORMS:
                expected = f"a transform ({', '.join(_TRANSFORMS)}), an option or a child frame"
                self._fail(item.at, f"expected {expected}, got {shown(item)}")
            if i + 1 == len(form.items):
                self._fail(item.at, f"{kind}: expected a parameter, got nothing")
            parameter = form.items[i + 1]
            special: Any = {"SE3": self._pose, "TWIST": self._twist}.get(kind)
            value = special(parameter) if special else self._parameter(parameter, kind)
            result.append((Transform(kind, value), item.at if i else form.at))
        return result

    def _pose(self, item: Item) -> Pose:
        parts = item.items
        if len(parts) not in (1, 2) or not all(isinstance(part, Form) for part in parts):
            self._fail(item.at, f"SE3: expected a pose, got {shown(item)}; the form is {_SE3_FORM}")
        position = self._numbers(parts[0], 3, "SE3: position")
        rotation: tuple[float, ...] = (1, 0, 0, 0, 1, 0, 0, 0, 1)
        if len(parts) == 2:
            count = len(parts[1].items)
            if count != 9:
                self._fail(parts[1].at, f"SE3: rotation: expected 9 numbers by rows, got {count}")
            rotation = tuple(self._real(entry, "SE3: rotation") for entry in parts[1].items)
        with self._source.building(item.at):
            return Pose(position, rotation)

    def _twist(self, item: Item) -> Twist:
        if len(item.items) != 3:
            self._fail(item.at, f"TWIST: expected a twist, got {shown(item)}; the form is {_TWIST_FORM}")
        variable = self._parameter(item.items[0], "TWIST")
        if not isinstance(variable, Variable):
            self._fail(item.items[0].at, f"TWIST: expected a variable, got {shown(item.items[0])}")
        vectors = [self._numbers(part, 3, "TWIST") for part in item.items[1:]]
        with self._source.building(item.at):
            return Twist(variable, *vectors)  # type: ignore[arg-type]

    def _mass(self, form: Item) -> Mass:
        com: tuple[Number, ...] | None = None
        values: list[Number] = []
        for item in form.items[1:]:
            if item.head == "COM":
                com = self._once(com, item, self._numbers(Form(item.items[1:], item.at), 3, "COM"))
            else:
                values.append(self._number(item, "MASS"))
        if len(values) not in (1, 4, 7):
            message = f"expected 1, 4 or 7 numbers, got {len(values)}"
            self._fail(form.at, f"MASS: {message}; the form is {_MASS_FORM}")
        with self._source.building(form.at):
            return Mass(values[0], tuple(values[1:]) or (0.0,) * 6, com or (0.0,) * 3)

    def _name(self, form: Item) -> str:
        self._count(form, 1, '(NAME "name")')
        return self._string(form.items[1], "NAME")

    # -- components ---------------------------------------------------------------------------------

    def _component(self, form: Item) -> Component:
        cls = self._components[form.head]
        with self._source.building(form.at):
            shape = component_form(cls)
        name: str | None = None
        items: list[Item] = []
        for item in form.items[1:]:
            if item.head == "NAME":
                name = self._once(name, item, self._name(item))
            else:
                items.append(item)
        fields, remaining, values = cls.arguments(), list(items), {}
        for f in fields:
            if remaining:
                values[f.name] = self._argument(field_kind(cls, f), remaining, f"{form.head}: {f.name}")
            elif _required(f):
                needed = sum(map(_required, fields))
                least = "" if needed == len(fields) else "at least "
                message = f"expected {least}{needed} arguments, got {len(items)}"
                self._fail(form.at, f"{form.head}: {message}; the form is {shape}")
        if remaining:
            message = f"expected at most {len(fields)} arguments, got {len(fields) + len(remaining)}"
            self._fail(remaining[0].at, f"{form.head}: {message}; the form is {shape}")
        with self._source.building(form.at):
            return cls(**values, name=name)

    def _argument(self, kind: str, items: list[Item], what: str) -> object:
        """Remove the items of one field from the front of the list `items`, and return the field's value."""
        if kind == "direction" and (isinstance(items[0], Atom) or items[0].head == "P"):
            three = Form(items[:3], items[0].at)  # given as three arguments instead of a list
            del items[:3]
            return self._numbers(three, 3, what)
        item = items.pop(0)
        if kind in ("direction", "vector"):
            return self._numbers(item, 3, what)
        if kind == "numbers":
            return self._numbers(item, len(item.items) if isinstance(item, Form) else 1, what)
        if kind == "variables":
            return tuple(self._string(v, what) for v in (item.items if isinstance(item, Form) else [item]))
        if kind == "number":
            return self._number(item, what)
        if kind == "shape":
            return self._shape(item, what)
        return self._parameter(item, what) if kind == "length" else self._string(item, what)

    def _shape(self, item: Item, what: str) -> Shape:
        if item.head not in SHAPES:
            self._fail(item.at, f"{what}: expected one of ({' ...), ('.join(SHAPES)} ...), got {shown(item)}")
        numbers = [self._number(entry, what) for entry in item.items[1:]]
        with self._source.building(item.at):
            return SHAPES[item.head].of(numbers)

    # -- values -------------------------------------------------------------------------------------

    def _count(self, form: Item, count: int, shape: str) -> None:
        number = len(form.items) - 1
        if number != count:
            self._fail(form.at, f"{form.head}: expected {count} arguments, got {number}; the form is {shape}")

    def _string(self, item: Item, what: str) -> str:
        if not isinstance(item, Atom) or not item.quoted:
            self._fail(item.at, f"{what}: expected a string in double quotes, got {shown(item)}")
        return item.text

    def _real(self, item: Item, what: str, expected: str = "a number") -> float:
        if not is_symbol(item) or not _NUMBER.fullmatch(item.text):
            self._fail(item.at, f"{what}: expected {expected}, got {shown(item)}")
        value = float(item.text)
        if not math.isfinite(value):
            self._fail(item.at, f"{what}: expected a finite number, got {shown(item)}")
        return value

    def _number(self, item: Item, what: str, expected: str = "a number") -> Number:
        if item.head != "P":
            return self._real(item, what, expected)
        if len(item.items) != 4:
            self._count(item, 2, '(P "name" value) or (P "name" value factor)')
        name = self._string(item.items[1], "P: name")
        numbers = [
            self._real(entry, f"P: {what}")
            for entry, what in zip(item.items[2:], ("value", "factor"), strict=False)
        ]
        with self._source.building(item.at):
            return Parameter(name, *numbers)

    def _numbers(self, item: Item, count: int, what: str) -> tuple[Number, ...]:
        if not isinstance(item, Form) or len(item.items) != count:
            actual = len(item.items) if isinstance(item, Form) else shown(item)
            self._fail(item.at, f"{what}: expected {count} numbers, got {actual}")
        return tuple(self._number(entry, what) for entry in item.items)

    def _parameter(self, item: Item, what: str) -> Number | Variable:
        """Return the number or configuration variable that an item of the text denotes."""
        keyword = item.head
        if keyword in ("D", "K"):
            self._count(item, 1, f'({keyword} "variable")')
            name = self._string(item.items[1], keyword)
        elif isinstance(item, Atom) and item.quoted:
            name = item.text
        else:
            return self._number(item, what, _PARAMETER_FORM)
        with self._source.building(item.at):
            return Variable(name, kinematic=keyword == "K")
