"""Joints of a mechanism, such as revolute and spherical ones, as chains of frames ([T] III-A).

A joint of one variable is one frame. The others are chains of frames, a `Joint`; square brackets attach
children to the last frame::

    spherical("shoulder")[tz(-0.3, name="elbow", mass=1.0)]

Pairs that need a constraint (screw, gear, cam) are in `vioc.dynamics.terms.pairs`. An axis is "x", "y",
"z", or three numbers of any norm. The names of a joint's variables begin with the joint's name; they are
kinematic if the name is given as ``K(name)``. `frame` and `mass` are the name and the mass of its last
frame::

    free("b", frame="body", mass=2.0)  # variables b-x, b-y, ...; the frame is called "body"
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, ParamSpec, TypeVar

import numpy as np

from vioc.dynamics.description.frame import Frame, Transform, Twist, chain
from vioc.dynamics.description.inertia import Mass, as_mass
from vioc.dynamics.description.numbers import Number, Variable, as_numbers
from vioc.errors import ModelError

Axis = str | Sequence[float]
Massive = Mass | Number | None
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def names_its_joint(make: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Decorate a function that makes a joint, so that the invalid argument ``name=`` raises a clear error.

    A call with ``name=`` raises a `ModelError` that points to ``frame=``.
    """

    @functools.wraps(make)
    def checked(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
        if args and "name" in kwargs:
            raise ModelError(
                f"{make.__name__} {args[0]!r}: name: the first argument is the joint's name; its last frame "
                f"is named by frame={kwargs['name']!r}"
            )
        return make(*args, **kwargs)

    return checked


class Joint(tuple):
    """Joint that consists of several frames in a chain, with constraints between their variables.

    As a tuple it is (frame, *constraints). A `System` and the square brackets of a frame accept it directly.
    With children it becomes a `Frame`, or, if it has constraints, a tuple of the frame and the constraints::

        nut, thread = screw("nut", 0.01)[tz(0.1, mass=1.0)]
        System(rx("tilt")[nut], thread)

    Attributes
    ----------
    frame : Frame
        First frame of the chain.
    constraints : tuple of Constraint
    length : int
        Number of frames in the chain.
    """

    length: int

    def __new__(cls, parts: tuple, length: int) -> Joint:
        self = super().__new__(cls, parts)
        self.length = length
        return self

    def __getnewargs__(self) -> tuple:
        return tuple(self), self.length

    @property
    def frame(self) -> Frame:
        return next(iter(self))

    @property
    def constraints(self) -> tuple:
        return tuple(self)[1:]

    def __getitem__(self, children: Any) -> Any:
        """Return the joint with child frames added to its last frame: ``joint[child, ...]``."""
        links, frame = [], self.frame
        for _ in range(self.length - 1):
            links.append(Frame(frame.transform, frame.name, frame.mass))
            (frame,) = frame.children
        result = chain(*links, frame[children])
        return (result, *self.constraints) if self.constraints else result

    def __call__(self, *children: object) -> Frame:
        return self.frame(*children)  # raises the error which says that children are given in square brackets

    def __repr__(self) -> str:
        return f"Joint({', '.join(map(repr, self))})"


def _variable(name: str | Variable, suffix: str = "") -> Variable:
    if isinstance(name, Variable):
        return Variable(name.name + suffix, name.kinematic)
    if not isinstance(name, str):
        raise ModelError(f"joint: expected a name, got {name!r}")
    return Variable(name + suffix)


def _label(name: str | Variable) -> str:
    return repr(name.name if isinstance(name, Variable) else name)


def _unit(axis: Axis, what: str) -> np.ndarray:
    """Return the unit vector of an axis, given as a letter x, y, z or as three numbers."""
    if isinstance(axis, str):
        if axis not in ("x", "y", "z"):
            raise ModelError(f"{what}: axis: expected 'x', 'y', 'z' or three numbers, got {axis!r}")
        return np.eye(3)["xyz".index(axis)]
    values = as_numbers(axis, 3, f"{what}: axis")
    if not all(isinstance(v, float) for v in values):
        raise ModelError(f"{what}: axis: a joint's axis takes no parameters")
    size = float(np.linalg.norm(np.array(values, float)))
    if size == 0:
        raise ModelError(f"{what}: axis: expected a direction, got zeros")
    return np.array(values, float) / size


def _turn_or_slide(
    kind: str, variable: Variable, axis: Axis, frame: str | None = None, mass: Any = None
) -> Frame:
    """Make a frame that rotates about an axis ("R") or translates along it ("T").

    Letters as axes give primitive transforms, three numbers give twists.
    """
    what = f"joint {variable.name!r}"
    unit = _unit(axis, what)
    if isinstance(axis, str):
        transform = Transform(kind + axis.upper(), variable)
    else:
        zero, direction = (0.0, 0.0, 0.0), tuple(unit.tolist())
        parts = (zero, direction) if kind == "R" else (direction, zero)
        transform = Transform("TWIST", Twist(variable, *parts))
    return Frame(transform, frame, as_mass(mass))


def _joint(frames: list[Frame]) -> Joint:
    return Joint((chain(*frames),), len(frames))


@names_its_joint
def revolute(
    name: str | Variable, axis: Axis = "z", *, frame: str | None = None, mass: Massive = None
) -> Frame:
    """Make a revolute joint, which rotates about an axis by the variable `name`, rad."""
    return _turn_or_slide("R", _variable(name), axis, frame, mass)


@names_its_joint
def prismatic(
    name: str | Variable, axis: Axis = "z", *, frame: str | None = None, mass: Massive = None
) -> Frame:
    """Make a prismatic joint, which translates along an axis by the variable `name`, m."""
    return _turn_or_slide("T", _variable(name), axis, frame, mass)


@names_its_joint
def helical(
    name: str | Variable,
    pitch: float,
    axis: Axis = "z",
    *,
    frame: str | None = None,
    mass: Massive = None,
) -> Frame:
    """Make a screw joint, which rotates by the variable `name`, rad, and advances by `pitch`, m/rad.

    Its twist is (pitch axis, axis), with the number `pitch`, m/rad. `vioc.dynamics.terms.pairs.screw` is the
    same joint as frames and a constraint, whose multiplier is the force in the thread.
    """
    unit = _unit(axis, f"joint {_label(name)}")
    if isinstance(pitch, bool) or not isinstance(pitch, (int, float)) or not np.isfinite(pitch):
        raise ModelError(
            f"joint {_label(name)}: pitch: expected a finite number (m/rad), got {pitch!r}; "
            "a pitch that is a parameter goes with screw"
        )
    twist = Twist(_variable(name), tuple((pitch * unit).tolist()), tuple(unit.tolist()))
    return Frame(Transform("TWIST", twist), frame, as_mass(mass))


@names_its_joint
def cylindrical(
    name: str | Variable,
    axis: Axis = "z",
    *,
    angle: Variable | None = None,
    frame: str | None = None,
    mass: Massive = None,
) -> Joint:
    """Make a cylindrical joint: rotation about and translation along one axis.

    Variables are NAME-angle, NAME-travel. `angle` replaces the first variable, for instance by a
    kinematic one.
    """
    turn = _turn_or_slide("R", angle or _variable(name, "-angle"), axis)
    return _joint([turn, _turn_or_slide("T", _variable(name, "-travel"), axis, frame, mass)])


@names_its_joint
def spherical(
    name: str | Variable,
    order: str = "zyx",
    *,
    frame: str | None = None,
    mass: Massive = None,
) -> Joint:
    """Make a spherical joint of three rotations (Euler angles) about the axes in `order`.

    Variables for the order "zyx": NAME-rz, NAME-ry, NAME-rx, rad. The chart is singular if the second angle
    is +-90 degrees.
    """
    return _joint(_rotations(name, order, frame, mass))


@names_its_joint
def universal(
    name: str | Variable,
    axes: Sequence[Axis] = "xy",
    *,
    frame: str | None = None,
    mass: Massive = None,
) -> Joint:
    """Make a universal joint of two rotations, where the first rotation turns the axis of the second.

    Variables are NAME-1, NAME-2, rad.
    """
    what = f"universal {_label(name)}"
    if len(axes) != 2:
        raise ModelError(f"{what}: axes: expected two axes, got {axes!r}")
    first, second = (_unit(axis, what) for axis in axes)
    if np.linalg.norm(np.cross(first, second)) < 1e-9:
        raise ModelError(f"{what}: axes: the two axes are parallel, which is one rotation; got {axes!r}")
    return _joint(
        [
            _turn_or_slide("R", _variable(name, "-1"), axes[0]),
            _turn_or_slide("R", _variable(name, "-2"), axes[1], frame, mass),
        ]
    )


@names_its_joint
def planar(
    name: str | Variable, normal: Axis = "z", *, frame: str | None = None, mass: Massive = None
) -> Joint:
    """Make a planar joint: two translations in a plane and a rotation about its normal.

    Variables for the normal "z": NAME-x, NAME-y, NAME-rz; "x": NAME-y, NAME-z, NAME-rx; "y": NAME-z, NAME-x,
    NAME-ry, so that the three are right-handed in this order. For a normal of three numbers: NAME-1, NAME-2,
    NAME-angle. Direction 1 lies along normal x e, where e is the coordinate axis with the largest angle to
    the normal, and direction 2 along normal x direction 1.
    """
    unit = _unit(normal, f"planar {_label(name)}")
    if isinstance(normal, str):
        i = "xyz".index(normal)
        one, two = "xyz"[(i + 1) % 3], "xyz"[(i + 2) % 3]
        directions: list[Axis] = [one, two]
        suffixes = [f"-{one}", f"-{two}", f"-r{normal}"]
    else:
        across = np.cross(unit, np.eye(3)[np.argmin(np.abs(unit))])
        directions = [across.tolist(), np.cross(unit, across).tolist()]
        suffixes = ["-1", "-2", "-angle"]
    slides = [
        _turn_or_slide("T", _variable(name, suffix), direction)
        for direction, suffix in zip(directions, suffixes[:2], strict=True)
    ]
    return _joint([*slides, _turn_or_slide("R", _variable(name, suffixes[2]), normal, frame, mass)])


@names_its_joint
def free(
    name: str | Variable,
    order: str = "zyx",
    *,
    frame: str | None = None,
    mass: Massive = None,
) -> Joint:
    """Make a joint with six degrees of freedom: three translations, then three rotations.

    The translations are NAME-x, NAME-y, NAME-z; the rotations are those of `spherical`.
    """
    slides = [_turn_or_slide("T", _variable(name, f"-{axis}"), axis) for axis in "xyz"]
    return _joint([*slides, *_rotations(name, order, frame, mass)])


def _rotations(name: str | Variable, order: str, frame: str | None, mass: Any) -> list[Frame]:
    if not isinstance(order, str) or sorted(order) != ["x", "y", "z"]:
        raise ModelError(f"joint {_label(name)}: order: expected x, y and z in some order, got {order!r}")
    first, second, third = (_variable(name, f"-r{axis}") for axis in order)
    return [
        _turn_or_slide("R", first, order[0]),
        _turn_or_slide("R", second, order[1]),
        _turn_or_slide("R", third, order[2], frame, mass),
    ]
