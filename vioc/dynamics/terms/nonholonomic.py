"""Velocity constraints A(q) dq = 0 of skates, wheels and users' functions.

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
    """Return the linear and the angular velocity of a frame in world axes, each (3,)."""
    R, twist = k.pose(frame)[:3, :3], k.body_velocity(frame)
    return ca.mtimes(R, twist[:3]), ca.mtimes(R, twist[3:])


@dataclass(frozen=True, repr=False)
class Skate(VelocityConstraint):
    """Constraint of a skate: the origin of its frame has no velocity along a sideways direction n.

    It models a knife edge, the wheel of a castor, or an oar.

    Parameters
    ----------
    frame : str
    across : 3 numbers
        n, not normalized, so that the multiplier is per unit of n.
    direction_in : str
        Frame that carries n, which is given in its axes: the skate's own, or by default the world.
    """

    keyword: ClassVar[str] = "SKATE"

    frame: str = frame()
    across: Vector3 = direction()
    direction_in: str = axes()

    def rate(self, k: Any) -> ca.SX:
        return ca.dot(in_world(k, self.across, self.direction_in), _velocity(k, self.frame)[0])


@dataclass(frozen=True, repr=False)
class Rolling(VelocityConstraint):
    """Constraint that a thin disc rolls without slip along one direction of the ground.

    t . (dp + w x r) = 0. r is the vector from the disc's centre to the point of its rim that is lowest along
    the ground's normal n: r = -R u / |u| with u = n - a (a . n), a the unit axle. It has no direction where
    the disc lies flat. A wheel that slips in no direction has two of these, along two directions of the
    ground (`wheel`). They do not keep it on the ground.

    Parameters
    ----------
    frame : str
        Frame at the disc's centre, which turns with the disc.
    radius : number
        R > 0, m.
    axle : 3 numbers
        a, in the disc's frame.
    along : 3 numbers
        t, not normalized, so that the multiplier is per unit of t.
    direction_in : str
        Frame that carries t, which is given in its axes; by default the world.
    normal : 3 numbers
        n of the ground, in the world.
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
        axis_in_world = in_world(k, self.along, self.direction_in)
        return ca.dot(axis_in_world, velocity + ca.cross(spin, down))


def wheel(
    frame: str, radius: Number, axle: Vector3, *, direction_in: str = "world", name: str | None = None
) -> tuple[Rolling, Rolling]:
    """Return the constraints of a wheel that rolls without slip on level ground.

    They act along x and y of `direction_in`.

    Parameters
    ----------
    frame : str
        Frame at its centre, which turns with it.
    radius : number
        m.
    axle : 3 numbers
        Axle in its frame.
    direction_in : str
        Frame whose axes are x and y: the world, or a frame that stays upright.
    name : str, optional
        Prefix of the names ``NAME-x`` and ``NAME-y`` of the constraints.
    """
    return tuple(  # type: ignore[return-value]
        Rolling(frame, radius, axle, unit, direction_in, name=f"{name}-{axis}" if name else None)
        for axis, unit in (("x", (1.0, 0.0, 0.0)), ("y", (0.0, 1.0, 0.0)))
    )


@dataclass(frozen=True, repr=False)
class NonholonomicConstraint(VelocityConstraint):
    """Velocity constraint defined by a user's function.

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
