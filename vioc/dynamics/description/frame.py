"""Frames, the nodes of a mechanism's tree ([T] III), and functions to make them.

One transform places each frame in its parent: TX, TY, TZ, RX, RY or RZ by a number or a configuration
variable, a twist by a variable, or a constant pose in SE(3).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, overload

import numpy as np

from vioc.dynamics.description.inertia import Mass, as_mass
from vioc.dynamics.description.numbers import (
    Number,
    Parameter,
    Variable,
    as_number,
    as_numbers,
    check_length,
)
from vioc.errors import ModelError

PRIMITIVES = ("TX", "TY", "TZ", "RX", "RY", "RZ")


@dataclass(frozen=True)
class Pose:
    """Constant pose: `position` (3,) in m, and rotation matrix `rotation` as 9 numbers, row by row."""

    position: tuple[Number, ...]
    rotation: tuple[float, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "position", as_numbers(self.position, 3, "position"))
        if any(isinstance(v, Parameter) for v in np.asarray(self.rotation, object).ravel()):
            raise ModelError("rotation: a constant rotation takes no parameters; use RX, RY, RZ frames")
        rotation = np.array(as_numbers(np.asarray(self.rotation).ravel(), 9, "rotation"), float)
        matrix = rotation.reshape(3, 3)
        error = np.abs(matrix @ matrix.T - np.eye(3)).max()
        if error > 1e-9 or np.linalg.det(matrix) < 0:
            raise ModelError(
                "rotation: expected a rotation matrix (orthogonal to 1e-9, determinant +1), got "
                f"{matrix.tolist()} with |R R' - 1| = {error:.2g}, det = {np.linalg.det(matrix):.3g}"
            )
        object.__setattr__(self, "rotation", tuple(float(v) + 0.0 for v in rotation))


@dataclass(frozen=True)
class Twist:
    """Constant twist of a joint, xi = (v, w), with its joint variable q ([T] III-A).

    The joint's pose is exp(hat(xi) q).

    Parameters
    ----------
    variable : Variable
    linear, angular : 3 numbers
        v (m per unit of q) and w (rad per unit of q) in the parent's axes, not both zero. A screw of
        pitch h (m/rad) about the unit axis w through the point c is v = c x w + h w.
    """

    variable: Variable
    linear: tuple[float, ...]
    angular: tuple[float, ...]

    def __post_init__(self) -> None:
        for name in ("linear", "angular"):
            values = as_numbers(getattr(self, name), 3, f"twist: {name}")
            if any(isinstance(v, Parameter) for v in values):
                raise ModelError(f"twist: {name}: a joint's axis takes no parameters")
            object.__setattr__(self, name, values)
        if not any((*self.linear, *self.angular)):
            raise ModelError("twist: expected a linear or an angular part, got zeros")


@dataclass(frozen=True)
class Transform:
    """Transform from a frame to its parent: constant, or a function of one configuration variable.

    Parameters
    ----------
    kind : one of ``TX TY TZ RX RY RZ SE3 TWIST``
    value : number, `Variable`, `Pose` or `Twist`
        Metres or radians. A `Pose` is for ``SE3`` only, a `Twist` for ``TWIST``.
    """

    kind: str
    value: Number | Variable | Pose | Twist

    def __post_init__(self) -> None:
        if self.kind == "SE3":
            if not isinstance(self.value, Pose):
                raise ModelError(f"SE3 takes a constant pose, got {self.value!r}")
        elif self.kind == "TWIST":
            if not isinstance(self.value, Twist):
                raise ModelError(f"TWIST takes a twist with its variable, got {self.value!r}")
        elif self.kind not in PRIMITIVES:
            names = ", ".join(PRIMITIVES)
            raise ModelError(f"unknown transform {self.kind!r}; known are {names}, SE3, TWIST")
        elif not isinstance(self.value, Variable):
            object.__setattr__(self, "value", as_number(self.value, self.kind))

    @property
    def variable(self) -> Variable | None:
        """Configuration variable that drives the transform; None for a constant transform."""
        if isinstance(self.value, Twist):
            return self.value.variable
        return self.value if isinstance(self.value, Variable) else None

    @property
    def twist(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return the twist (linear, angular) of a transform with a variable ([T] III-D)."""
        if isinstance(self.value, Twist):
            return self.value.linear, self.value.angular
        unit = tuple(float(i == self.axis) for i in range(3))
        return ((0.0,) * 3, unit) if self.rotational else (unit, (0.0,) * 3)

    @property
    def axis(self) -> int:
        """Index (0, 1 or 2) of the axis x, y or z along or about which the transform moves.

        Twists and poses have none.
        """
        return "XYZ".index(self.kind[1])

    @property
    def rotational(self) -> bool:
        """Return whether the transform's variable is an angle, or its twist has an angular part."""
        if isinstance(self.value, Twist):
            return any(self.value.angular)
        return self.kind[0] == "R"

    def numbers(self) -> tuple[Number, ...]:
        if isinstance(self.value, Pose):
            return (*self.value.position, *self.value.rotation)
        return () if isinstance(self.value, (Variable, Twist)) else (self.value,)


@dataclass(frozen=True, repr=False)
class Frame:
    """Node of a mechanism's tree: a transform, with an optional name, a mass and child frames.

    Write frames with `tx`, `ty`, `tz`, `rx`, `ry`, `rz`, `se3`, and children in square brackets::

        rx("theta", name="arm")[
            tz(-1.0, name="tip", mass=1.0),
        ]
    """

    transform: Transform
    name: str | None = None
    mass: Mass | None = None
    children: tuple[Frame, ...] = ()

    def __post_init__(self) -> None:
        if not isinstance(self.transform, Transform):
            raise ModelError(f"a frame's transform is a Transform, got {self.transform!r}")
        if self.name is not None and (not isinstance(self.name, str) or not self.name):
            raise ModelError(f"a frame's name is a non-empty string, got {self.name!r}")
        if self.name is not None:
            check_length(self.name, "frame")
        if self.name == "world":
            raise ModelError("'world' is the root of every tree; choose another frame name")
        object.__setattr__(self, "mass", as_mass(self.mass))
        object.__setattr__(self, "children", _frames(self.children))

    def __getitem__(self, children: object) -> Frame:
        """Return a copy of the frame with `children` added: ``frame[child, ...]``."""
        items = children if isinstance(children, tuple) else (children,)
        return replace(self, children=self.children + _frames(items))

    def __call__(self, *children: object) -> Frame:
        call = f"{self.transform.kind.lower()}(...)"
        raise ModelError(
            f"{self.label()}: a frame takes its children in square brackets, {call}[child], not in round ones"
        )

    def __iter__(self):
        raise TypeError("a frame is not iterable; its children are frame.children")

    def label(self) -> str:
        """Return the text by which messages call this frame: its name, or else its transform."""
        value = self.transform.value
        value_text = "..." if isinstance(value, (Pose, Twist)) else repr(value)
        return (
            repr(self.name)
            if self.name is not None
            else f"unnamed frame ({self.transform.kind} {value_text})"
        )

    def __repr__(self) -> str:
        text: list[str] = []
        waiting: list[tuple[Frame | None, int]] = [(self, 0)]  # None closes the bracket of a frame
        while waiting:
            frame, depth = waiting.pop()
            body = "]" if frame is None else _call(frame) + ("[" if frame.children else "")
            text.append("    " * depth + body)
            if frame is not None and frame.children:
                text.append("\n")
                waiting += [(None, depth), *((child, depth + 1) for child in reversed(frame.children))]
            elif depth:
                text.append(",\n")
        return "".join(text)


def nest(flat: Sequence[tuple[Frame, int]]) -> list[Frame]:
    """Build nested frames from a flat list of frames with their parents' indices.

    Parents come first, depth first; the index of the world is -1.
    """
    children_of: list[list[Frame]] = [
        [] for _ in range(len(flat) + 1)
    ]  # the last list has the children of the world
    for (frame, parent), children in zip(reversed(flat), reversed(children_of[:-1]), strict=True):
        children_of[parent].append(frame[tuple(reversed(children))])
    return children_of[-1][::-1]


def _call(frame: Frame) -> str:
    """Return the text of the Python call that makes a frame, without its children."""
    kind, value = frame.transform.kind.lower(), frame.transform.value
    if isinstance(value, Pose):
        args = [repr(value.position)]
        if value.rotation != _IDENTITY:
            args.append(f"rotation={value.rotation!r}")
    elif isinstance(value, Twist):
        args = [repr(value.variable), repr(value.linear), repr(value.angular)]
    else:
        args = [repr(value)]
    if frame.name is not None:
        args.append(f"name={frame.name!r}")
    if frame.mass is not None:
        simple = frame.mass == Mass(frame.mass.mass)
        args.append(f"mass={frame.mass.mass if simple else frame.mass!r}")
    return f"{kind}({', '.join(args)})"


_IDENTITY = (1.0, 0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 1.0)


def _frames(items: object) -> tuple[Frame, ...]:
    """Flatten nested tuples or lists of frames and joints into one tuple of frames."""
    if not isinstance(items, (tuple, list)):
        raise ModelError(f"the children of a frame are a tuple of frames, got {items!r}")
    result: list[Frame] = []
    for item in list.__iter__(items) if isinstance(items, list) else tuple.__iter__(items):
        if isinstance(item, Frame):
            result.append(item)
        elif isinstance(item, (tuple, list)):
            result += _frames(item)
        else:
            raise ModelError(f"the children of a frame are frames, got {item!r}")
    return tuple(result)


def _make(kind: str, value: object, name: str | None, mass: object) -> Frame:
    if isinstance(value, str):
        value = Variable(value)
    elif not isinstance(value, (Parameter, Variable)):
        value = as_number(value, f"{kind} {name or ''}".strip())
    try:
        return Frame(Transform(kind, value), name, as_mass(mass))
    except ModelError as error:
        where = f"frame {name!r}" if name else f"frame {kind} {value!r}"
        raise ModelError(f"{where}: {error}") from None


def tx(value: object, *, name: str | None = None, mass: object = None) -> Frame:
    """Make a frame translated along the parent's x axis by a number (m) or a variable."""
    return _make("TX", value, name, mass)


def ty(value: object, *, name: str | None = None, mass: object = None) -> Frame:
    """Make a frame translated along the parent's y axis by a number (m) or a variable.

    The arguments are those of `tx`.
    """
    return _make("TY", value, name, mass)


def tz(value: object, *, name: str | None = None, mass: object = None) -> Frame:
    """Make a frame translated along the parent's z axis by a number (m) or a variable.

    The arguments are those of `tx`.
    """
    return _make("TZ", value, name, mass)


def rx(value: object, *, name: str | None = None, mass: object = None) -> Frame:
    """Make a frame rotated about the parent's x axis by a number (rad) or a variable."""
    return _make("RX", value, name, mass)


def ry(value: object, *, name: str | None = None, mass: object = None) -> Frame:
    """Make a frame rotated about the parent's y axis by a number (rad) or a variable.

    The arguments are those of `rx`.
    """
    return _make("RY", value, name, mass)


def rz(value: object, *, name: str | None = None, mass: object = None) -> Frame:
    """Make a frame rotated about the parent's z axis by a number (rad) or a variable.

    The arguments are those of `rx`.
    """
    return _make("RZ", value, name, mass)


def se3(
    position: object = (0.0, 0.0, 0.0),
    *,
    rotation: object = _IDENTITY,
    name: str | None = None,
    mass: object = None,
) -> Frame:
    """Make a frame with a constant pose in its parent, such as ``se3((0, 0, 1))``.

    `position` has 3 numbers (m), `rotation` is 3 x 3 or 9 numbers by rows.
    """
    try:
        return Frame(Transform("SE3", Pose(position, rotation)), name, as_mass(mass))  # type: ignore[arg-type]
    except ModelError as error:
        raise ModelError(f"frame {name!r}: {error}" if name else f"se3: {error}") from None


def twist(
    variable: object,
    linear: object = (0.0, 0.0, 0.0),
    angular: object = (0.0, 0.0, 0.0),
    *,
    name: str | None = None,
    mass: object = None,
) -> Frame:
    """Make a frame that moves in its parent along a constant twist xi.
    Its pose in its parent is exp(hat(xi) q), where q is the joint variable `variable`.

    `linear` and `angular` have 3 numbers each, see `Twist`.
    """
    driver = Variable(variable) if isinstance(variable, str) else variable
    try:
        if not isinstance(driver, Variable):
            raise ModelError(f"expected the name of a variable, got {variable!r}")
        return Frame(Transform("TWIST", Twist(driver, linear, angular)), name, as_mass(mass))  # type: ignore[arg-type]
    except ModelError as error:
        raise ModelError(f"frame {name!r}: {error}" if name else f"twist: {error}") from None


@overload
def chain(*links: Frame) -> Frame: ...


@overload
def chain(*links: Any) -> Any: ...


def chain(*links: Any) -> Any:
    """Nest frames and joints so that each is the child of the previous one.

    Only the last may have children.

    ``chain(tx(1), tz("z"), ry("a", mass=1))`` is ``tx(1)[tz("z")[ry("a", mass=1)]]``, and
    ``chain(universal("u"), tz(1.0))`` is ``universal("u")[tz(1.0)]``.

    Returns
    -------
    Frame, or (Frame, *constraints) if joints have constraints; a `System` accepts both
    """
    if not links:
        raise ModelError("chain needs at least one frame")
    result: Any = ()
    constraints: list[object] = []
    for i, link in reversed([*enumerate(links, 1)]):
        parts = [link] if isinstance(link, Frame) else [*tuple.__iter__(link)] if _is_joint(link) else []
        if not parts:
            raise ModelError(f"chain: expected frames and joints, got {link!r}")
        if i < len(links) and isinstance(link, Frame) and link.children:
            raise ModelError(f"chain: only the last frame may have children; {link.label()} has some")
        linked = link[result] if result else tuple(parts)
        first, *more = tuple.__iter__(linked) if isinstance(linked, tuple) else (linked,)
        result, constraints = first, more + constraints
    return (result, *constraints) if constraints else result


def _is_joint(link: object) -> bool:
    """Return whether an object is a `Joint`, without an import of this class.
    The import would be circular, because the module of `Joint` imports this module.
    """
    return isinstance(link, tuple) and hasattr(link, "length")
