"""Constraints on velocities, A(q) dq = 0: skates, wheels, and conditions of the user's own.

Maths: docs/maths/nonholonomic.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import casadi as ca

from vioc.dynamics.description.component import (
    VelocityConstraint,
    axes,
    direction,
    frame,
    function,
    handed_on,
    number,
    vector,
)
from vioc.dynamics.description.numbers import Number
from vioc.dynamics.terms.constraints import in_world
from vioc.dynamics.terms.user import called

Vector3 = tuple[Number, Number, Number]
_UP: Any = (0.0, 0.0, 1.0)


def _velocity(k: Any, frame: str) -> tuple[ca.SX, ca.SX]:
    """Of a frame's origin, and its angular velocity, in the world's axes (3,) each."""
    R, twist = k.pose(frame)[:3, :3], k.body_velocity(frame)
    return ca.mtimes(R, twist[:3]), ca.mtimes(R, twist[3:])


@dataclass(frozen=True, repr=False)
class Skate(VelocityConstraint):
    """A frame's origin does not move across a skate: n . dp = 0. A knife edge, a castor's wheel, an oar.

    Parameters
    ----------
    frame : str
    across : 3 numbers
        n, not normalized, so the multiplier is per unit of n.
    direction_in : str
        The frame in whose axes n is given, and with which it turns: the skate's own, or by default the world.
    """

    keyword: ClassVar[str] = "SKATE"

    frame: str = frame()
    across: Vector3 = direction()
    direction_in: str = axes()

    def rate(self, k: Any) -> ca.SX:
        return ca.dot(in_world(k, self.across, self.direction_in), _velocity(k, self.frame)[0])


@dataclass(frozen=True, repr=False)
class Rolling(VelocityConstraint):
    """The lowest point of a thin disc does not slip along a direction: t . (dp + w x r) = 0.

    r leads from the disc's centre to the point of its rim that is lowest against the ground's normal n:
    r = -R u / |u| with u = n - a (a . n), a the unit axle. It has no direction where the disc lies flat. A
    wheel that neither slips nor skids has two of these, along two directions of the ground (`wheel`);
    that it stays on the ground is not their business.

    Parameters
    ----------
    frame : str
        At the disc's centre, turning with it.
    radius : number
        R > 0, m.
    axle : 3 numbers
        a, in the disc's frame.
    along : 3 numbers
        t, not normalized, so the multiplier is per unit of t.
    direction_in : str
        The frame in whose axes t is given, and with which it turns; by default the world.
    normal : 3 numbers
        n, of the ground, in the world.
    """

    keyword: ClassVar[str] = "ROLLING"

    frame: str = frame()
    radius: Number = number(minimum=0.0)
    axle: Vector3 = direction()
    along: Vector3 = direction()
    direction_in: str = axes()
    normal: Vector3 = vector(_UP)

    def rate(self, k: Any) -> ca.SX:
        n, a = ca.vertcat(*map(k.number, self.normal)), in_world(k, self.axle, self.frame)
        n, a = n / ca.sqrt(ca.sumsqr(n)), a / ca.sqrt(ca.sumsqr(a))
        up = n - a * ca.dot(a, n)
        down = -k.number(self.radius) * up / ca.sqrt(ca.sumsqr(up))
        velocity, spin = _velocity(k, self.frame)
        along = in_world(k, self.along, self.direction_in)
        return ca.dot(along, velocity + ca.cross(spin, down))


def wheel(
    frame: str, radius: Number, axle: Vector3, *, direction_in: str = "world", name: str | None = None
) -> tuple[Rolling, Rolling]:
    """A wheel that rolls on level ground without slip, neither along x nor along y of `direction_in`.

    Parameters
    ----------
    frame : str
        At its centre, turning with it.
    radius : number
        m.
    axle : 3 numbers
        In its frame.
    direction_in : str
        In whose axes x and y are meant: the world, or a frame that stays upright.
    name : str, optional
        Of the constraints ``NAME-x`` and ``NAME-y``.
    """
    return tuple(  # type: ignore[return-value]
        Rolling(frame, radius, axle, unit, direction_in, name=f"{name}-{axis}" if name else None)
        for axis, unit in (("x", (1.0, 0.0, 0.0)), ("y", (0.0, 1.0, 0.0)))
    )


@dataclass(frozen=True, repr=False)
class NonholonomicConstraint(VelocityConstraint):
    """A constraint on velocities by a function of the user's own.

    Parameters
    ----------
    function : callable
        ``function(k, *args)`` -> A(q) dq, one number, linear in the rates ``k.v("name")``.
    args : numbers, parameters and names
    """

    function: Callable[..., Any] = function()
    args: tuple[Number | str, ...] = handed_on()

    def rate(self, k: Any) -> ca.SX:
        return called(self, k)
