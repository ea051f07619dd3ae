"""Rigid contact with Coulomb friction: points, spheres, capsules and boxes on half-spaces, and spheres.

Contacts are inelastic: what meets does not bounce. `MaximalVI` solves them, docs/maths/contact.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, ClassVar

import casadi as ca
import numpy as np

from vioc.dynamics.description.component import (
    Inequality,
    Meeting,
    axes,
    choice,
    direction,
    frame,
    number,
    vector,
)
from vioc.dynamics.description.numbers import Number, as_number, as_numbers
from vioc.dynamics.terms.constraints import in_world
from vioc.errors import ModelError

Vector3 = tuple[Number, Number, Number]
CONES = ("second-order", "linear")
ORIGIN, UP = (0.0, 0.0, 0.0), (0.0, 0.0, 1.0)


@dataclass(frozen=True)
class HalfSpace:
    """Where bodies may be: the side of a plane that its normal points to.

    Parameters
    ----------
    point : 3 numbers
        A point of the plane, m.
    normal : 3 numbers
        Out of the ground; not normalized.
    frame : str
        The frame, fixed in the world, that both are given in.
    """

    point: Sequence[float] = ORIGIN
    normal: Sequence[float] = UP
    frame: str = "world"

    def __post_init__(self) -> None:
        for name in ("point", "normal"):
            values = as_numbers(getattr(self, name), 3, f"half-space: {name}")
            object.__setattr__(self, name, tuple(map(float, values)))
        if not any(self.normal):
            raise ModelError("half-space: normal: expected a direction, got the zero vector")

    @property
    def offset(self) -> float:
        """Distance of the plane from its frame's origin along the normal, m."""
        n = np.array(self.normal)
        return float(n @ np.array(self.point) / np.linalg.norm(n))


GROUND = HalfSpace()


class _Touching(Inequality):
    """What contacts share; subclasses have friction, directions and cone."""

    friction: Number
    directions: int
    cone: str

    def __post_init__(self) -> None:
        super().__post_init__()
        count: Any = self.directions
        if not isinstance(count, (int, float)) or count != int(count) or count < 4 or count % 2:
            raise ModelError(
                f"{self.label()}: directions: expected an even number of directions of the friction cone, "
                f"at least 4, got {count!r}"
            )
        object.__setattr__(self, "directions", int(count))


@dataclass(frozen=True, repr=False)
class Contact(_Touching):
    """A sphere, or a point, that a body carries does not enter a half-space.

    Parameters
    ----------
    frame : str
        Carries the sphere.
    normal : 3 numbers
        n of the half-space, out of the ground, in the axes of `plane`; not normalized.
    offset : number
        Distance of the ground's plane from the origin of `plane` along the normal, m.
    center : 3 numbers
        Of the sphere, in the frame, m.
    radius : number
        m, >= 0; 0 is a point.
    friction : number
        Coulomb's coefficient mu >= 0; by default there is no friction.
    directions : int
        Of the linear cone, even, at least 4; the round one has none.
    cone : "second-order" or "linear"
        Coulomb's own, round cone; or the polygon inside it of [M] (4a), whose friction depends on the
        direction: with 4 directions there is up to 29 % too little of it between them, and paths veer.
    plane : str
        A frame fixed in the world.
    """

    keyword: ClassVar[str] = "CONTACT"

    frame: str = frame()
    normal: Vector3 = direction(UP)
    offset: Number = number(0.0)
    center: Vector3 = vector(ORIGIN)
    radius: Number = number(0.0, minimum=0.0)
    friction: Number = number(0.0, minimum=0.0)
    directions: int = number(4)
    cone: str = choice(*CONES)
    plane: str = axes()

    def meetings(self, k: Any) -> dict[str, Meeting]:
        n = in_world(k, self.normal, self.plane)
        n = n / ca.norm_2(n)
        p = k.position(self.frame) + in_world(k, self.center, self.frame)
        radius = k.number(self.radius)
        gap = ca.dot(n, p - k.position(self.plane)) - k.number(self.offset) - radius
        return {"": Meeting(gap, _vector(n), _vector(p - radius * n), self.plane, self.frame)}

    # -- shapes, each as contacts ------------------------------------------------------------------

    @classmethod
    def point(cls, frame: str, at: Any = ORIGIN, *, ground: HalfSpace = GROUND, **options: Any) -> Contact:
        """A point of a body.

        Parameters
        ----------
        frame : str
        at : 3 numbers
            In the frame, m.
        ground : HalfSpace
        **options
            ``friction``, ``directions``, ``cone``, ``name``, as for `Contact`.
        """
        return cls.sphere(frame, 0.0, at, ground=ground, **options)

    @classmethod
    def sphere(
        cls, frame: str, radius: Number, center: Any = ORIGIN, *, ground: HalfSpace = GROUND, **options: Any
    ) -> Contact:
        """A sphere of a body; as for `point`."""
        return cls(
            frame,
            ground.normal,  # type: ignore[arg-type]
            ground.offset,
            center,
            radius,
            plane=ground.frame,
            **options,
        )

    @classmethod
    def capsule(
        cls,
        frame: str,
        radius: Number,
        length: float,
        axis: Any = UP,
        center: Any = ORIGIN,
        *,
        name: str | None = None,
        **options: Any,
    ) -> tuple[Contact, ...]:
        """A capsule of a body, which is the spheres at its ends: contacts ``NAME-1``, ``NAME-2``.

        Parameters
        ----------
        frame : str
        radius : number
        length : float
            Between the centres of the spheres, m, > 0.
        axis, center : 3 numbers
            Direction and middle of the capsule, in the frame; the axis need not be normalized.
        """
        size = float(as_number(length, "capsule: length"))
        if size <= 0:
            raise ModelError(f"capsule: length: expected a number > 0, got {size:g}")
        a = np.array(as_numbers(axis, 3, "capsule: axis"), float)
        if not a.any():
            raise ModelError("capsule: axis: expected a direction, got the zero vector")
        middle = np.array(as_numbers(center, 3, "capsule: center"), float)
        ends = [middle + sign * 0.5 * size * a / np.linalg.norm(a) for sign in (-1, 1)]
        return tuple(
            cls.sphere(frame, radius, tuple(map(float, end)), name=_numbered(name, i), **options)
            for i, end in enumerate(ends)
        )

    @classmethod
    def box(
        cls, frame: str, size: Any, center: Any = ORIGIN, *, name: str | None = None, **options: Any
    ) -> tuple[Contact, ...]:
        """A box along the axes of a frame, which is its eight corners: contacts ``NAME-1`` ... ``NAME-8``.

        Parameters
        ----------
        frame : str
        size : 3 numbers
            Whole edges, m, > 0.
        center : 3 numbers
            In the frame, m.
        """
        edges = np.array(as_numbers(size, 3, "box: size"), float)
        if edges.min() <= 0:
            raise ModelError(f"box: size: expected three numbers > 0, got {edges.tolist()}")
        middle = np.array(as_numbers(center, 3, "box: center"), float)
        corners = [middle + 0.5 * edges * signs for signs in product((-1, 1), repeat=3)]
        return tuple(
            cls.point(frame, tuple(map(float, corner)), name=_numbered(name, i), **options)
            for i, corner in enumerate(corners)
        )


@dataclass(frozen=True, repr=False)
class SphereContact(_Touching):
    """Two spheres at the origins of frames do not enter each other.

    Parameters
    ----------
    frame1, frame2 : str
        Of bodies that no joint connects; one may be fixed in the world.
    radius1, radius2 : number
        m, >= 0, one of them > 0.
    friction, directions, cone
        As for `Contact`.
    """

    keyword: ClassVar[str] = "SPHERE-CONTACT"

    frame1: str = frame()
    frame2: str = frame()
    radius1: Number = number(minimum=0.0)
    radius2: Number = number(minimum=0.0)
    friction: Number = number(0.0, minimum=0.0)
    directions: int = number(4)
    cone: str = choice(*CONES)

    def __post_init__(self) -> None:
        super().__post_init__()
        if float(self.radius1) + float(self.radius2) <= 0:
            raise ModelError(f"{self.label()}: one of the two radii must be > 0")

    def meetings(self, k: Any) -> dict[str, Meeting]:
        first, second = k.position(self.frame1), k.position(self.frame2)
        d = second - first
        apart = ca.norm_2(d)
        n, r1, r2 = d / apart, k.number(self.radius1), k.number(self.radius2)
        point = first + (apart + r1 - r2) / 2 * n  # half way between the spheres: angular momentum is kept
        return {"": Meeting(apart - r1 - r2, _vector(n), _vector(point), self.frame1, self.frame2)}


def _vector(column: Any) -> tuple[Any, Any, Any]:
    return tuple(ca.vertsplit(ca.SX(column)))


def _numbered(name: str | None, i: int) -> str | None:
    return None if name is None else f"{name}-{i + 1}"
