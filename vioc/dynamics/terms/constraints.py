"""Holonomic constraints h(q) = 0 ([T] IV-D)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import casadi as ca

from vioc.dynamics.description.component import Constraint, direction, frame, length
from vioc.dynamics.description.numbers import Number, Variable


@dataclass(frozen=True, repr=False)
class PointConstraint(Constraint):
    """Two points do not part along a direction: h = n . (p1 - p2) ([T] IV-D4).

    Parameters
    ----------
    frame1, frame2 : str
    direction : 3 numbers
        n in the world's axes; not normalized, so the multiplier is per unit of n.
    """

    keyword: ClassVar[str] = "POINT-CONSTRAINT"

    frame1: str = frame()
    frame2: str = frame()
    direction: tuple[Number, Number, Number] = direction()

    def value(self, k: Any) -> ca.SX:
        n = ca.vertcat(*(k.number(v) for v in self.direction))
        return ca.dot(n, k.position(self.frame1) - k.position(self.frame2))


@dataclass(frozen=True, repr=False)
class DistanceConstraint(Constraint):
    """Two points stay a distance apart: h = |p1 - p2|^2 - L^2 ([T] (37)).

    Parameters
    ----------
    frame1, frame2 : str
    length : number or `Variable`
        L > 0, m; a kinematic variable makes a string that is pulled.
    """

    keyword: ClassVar[str] = "DISTANCE-CONSTRAINT"

    frame1: str = frame()
    frame2: str = frame()
    length: Number | Variable = length()

    def value(self, k: Any) -> ca.SX:
        d = k.position(self.frame1) - k.position(self.frame2)
        prescribed = isinstance(self.length, Variable)
        size = k.q(self.length.name) if prescribed else k.number(self.length)  # type: ignore[union-attr]
        return ca.dot(d, d) - size**2


def coincident(frame1: str, frame2: str, axes: str = "xyz", *, name: str | None = None) -> tuple:
    """Point constraints that pin two points together along the world's `axes`.

    In a planar mechanism name the two axes of its plane; the third would be redundant.
    """
    unit = {"x": (1.0, 0.0, 0.0), "y": (0.0, 1.0, 0.0), "z": (0.0, 0.0, 1.0)}
    return tuple(
        PointConstraint(frame1, frame2, unit[axis], name=f"{name}-{axis}" if name else None) for axis in axes
    )
