"""Holonomic constraints h(q) = 0 between frames ([T] IV-D)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import casadi as ca

from vioc.dynamics.description.component import Constraint, axes, direction, frame, length, number
from vioc.dynamics.description.numbers import Number, Variable
from vioc.errors import ModelError


def in_world(k: Any, vector: tuple[Number, ...], frame: str) -> ca.SX:
    """Transform a vector (3,), given in a frame's axes, to world axes."""
    column = ca.vertcat(*map(k.number, vector))
    return column if frame == "world" else ca.mtimes(k.pose(frame)[:3, :3], column)


@dataclass(frozen=True, repr=False)
class PointConstraint(Constraint):
    """Constraint that the origins of two frames coincide along one direction ([T] IV-D4).

    h = n . (p1 - p2).

    Parameters
    ----------
    frame1, frame2 : str
    direction : 3 numbers
        n; not normalized, so that the multiplier is per unit of n.
    direction_in : str
        Frame that carries n, which is given in its axes; by default the world.
    """

    keyword: ClassVar[str] = "POINT-CONSTRAINT"

    frame1: str = frame()
    frame2: str = frame()
    direction: tuple[Number, Number, Number] = direction()
    direction_in: str = axes()

    def value(self, k: Any) -> ca.SX:
        n = in_world(k, self.direction, self.direction_in)
        return ca.dot(n, k.position(self.frame1) - k.position(self.frame2))


@dataclass(frozen=True, repr=False)
class PointOnPlane(Constraint):
    """Constraint that the origin of a frame stays on a plane that another frame carries.

    h = n . (p - o) - c.

    Parameters
    ----------
    point : str
        Frame whose origin is p.
    plane : str
        Frame that carries the plane; o is its origin.
    normal : 3 numbers
        n in the plane frame's axes; not normalized.
    offset : number
        c; the plane's distance from o is c / |n|, m.
    """

    keyword: ClassVar[str] = "POINT-ON-PLANE"

    point: str = frame()
    plane: str = frame()
    normal: tuple[Number, Number, Number] = direction()
    offset: Number = number(0.0)

    def value(self, k: Any) -> ca.SX:
        n = in_world(k, self.normal, self.plane)
        return ca.dot(n, k.position(self.point) - k.position(self.plane)) - k.number(self.offset)


@dataclass(frozen=True, repr=False)
class DistanceConstraint(Constraint):
    """Constraint that the distance of two points is constant or prescribed ([T] (37)).

    h = |p1 - p2|^2 - L^2. Its ``tension.NAME`` in a trajectory is the force in the rod, N, negative under
    compression.

    Parameters
    ----------
    frame1, frame2 : str
    length : number, `Variable` or str
        L > 0, m; a kinematic variable, ``K("name")``, prescribes it. The name of a frame's variable makes
        the length that variable.
    """

    keyword: ClassVar[str] = "DISTANCE-CONSTRAINT"

    frame1: str = frame()
    frame2: str = frame()
    length: Number | Variable = length()

    def check(self, system: Any) -> None:
        if not isinstance(self.length, Variable) or self.length.kinematic:
            return
        if self.length not in (node.frame.transform.variable for node in system.nodes):
            name = self.length.name
            raise ModelError(
                f'a length is a number, or (K "{name}") / K("{name}") for a prescribed length, or the name '
                f"of a variable that a frame has; no frame has {name!r}"
            )

    def value(self, k: Any) -> ca.SX:
        prescribed = isinstance(self.length, Variable)
        size = k.q(self.length.name) if prescribed else k.number(self.length)  # type: ignore[union-attr]
        return ca.sumsqr(k.position(self.frame1) - k.position(self.frame2)) - size**2

    def tension(self, k: Any, impulse: Any, dt: Any) -> ca.SX:
        """Return the tension, N, with which the constraint pulls its points together.
        It is computed from the impulse of this constraint in a step of length `dt`.

        It is 2 |p1 - p2| lambda / dt, with the impulse lambda of [S] (28a) at the step's start. The force on
        the first point is -Dh' lambda / dt = -(2 lambda / dt) (p1 - p2): towards the second one where lambda
        > 0.
        """
        distance = ca.sqrt(ca.sumsqr(k.position(self.frame1) - k.position(self.frame2)))
        return 2 * distance * impulse / dt


@dataclass(frozen=True, repr=False)
class StringConstraint(DistanceConstraint):
    """Taut string between two points: a distance constraint whose force can only pull.

    It acts like a rod. A rollout in which it would have to push (``tension.NAME`` < 0) warns
    (`SlackWarning`), because a real string would go slack there. A kinematic variable as length pulls the
    string in.

    Parameters
    ----------
    frame1, frame2 : str
    length : number, `Variable` or str
        L > 0, m; as for `DistanceConstraint`.
    """

    keyword: ClassVar[str] = "STRING-CONSTRAINT"


def coincident(
    frame1: str,
    frame2: str,
    axes: str = "xyz",
    *,
    direction_in: str = "world",
    name: str | None = None,
) -> tuple[PointConstraint, ...]:
    """Return constraints that make the origins of two frames coincide along the given axes.

    `axes` are the world's, or those of the frame `direction_in`. In a planar mechanism name the two axes of
    its plane; the third would be redundant. Pin a planar loop that turns in space in the axes of one of its
    bodies; then the same constraint is redundant everywhere.
    """
    unit = {"x": (1.0, 0.0, 0.0), "y": (0.0, 1.0, 0.0), "z": (0.0, 0.0, 1.0)}
    if not axes or set(axes) - set(unit) or len(set(axes)) < len(axes):
        raise ModelError(f"coincident: axes: expected different letters of x, y, z, got {axes!r}")
    return tuple(
        PointConstraint(frame1, frame2, unit[axis], direction_in, name=f"{name}-{axis}" if name else None)
        for axis in axes
    )
