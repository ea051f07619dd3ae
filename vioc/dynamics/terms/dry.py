"""Coulomb friction with a given largest force, in joints and at points that slide on a plane.

`ContactVI` and `MaximalVI` solve it by the cones of contacts: docs/maths/contact.md, "Friction of a given
load".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import casadi as ca

from vioc.dynamics.algebra import vectors as vec
from vioc.dynamics.description.component import (
    Inequality,
    Meeting,
    direction,
    frame,
    number,
    variable,
    vector,
)
from vioc.dynamics.description.numbers import Number
from vioc.dynamics.terms.contact_shapes import ORIGIN, UP, Vector3
from vioc.errors import ModelError


class Dry(Inequality):
    """Base class of components of Coulomb friction whose largest force is given."""

    limit: Number

    def __post_init__(self) -> None:
        super().__post_init__()
        if not float(self.limit) > 0:
            raise ModelError(
                f"{self.label()}: limit: expected the largest friction, > 0, got {float(self.limit):g}"
            )


@dataclass(frozen=True, repr=False)
class DryFriction(Dry):
    """Coulomb friction of a joint, whose largest friction force is `limit`.

    While the joint slides, a force `limit` opposes its motion.

    Parameters
    ----------
    variable : str
    limit : number
        N or N m, > 0: the torque of a gearbox, or mu times its load.

    Notes
    -----
    The force is not smooth: the joint sticks under smaller loads. It then creeps at most at the speed
    smoothing x mass / (limit dt), with the step length dt. Static and sliding friction are the same.
    """

    keyword: ClassVar[str] = "DRY-FRICTION"

    variable: str = variable()
    limit: Number = number()

    def meetings(self, k: Any) -> dict[str, Meeting]:
        return {"": Meeting(None, slip=k.v(self.variable), bound=k.number(self.limit))}


@dataclass(frozen=True, repr=False)
class FloorFriction(Dry):
    """Coulomb friction of a point that slides on a plane under a given load.

    Parameters
    ----------
    frame : str
        Frame that carries the point.
    limit : number
        N, > 0: mu times the load, such as mu m g/4 for each corner of a block.
    at : 3 numbers
        Point in the frame, m.
    normal : 3 numbers
        Normal of the plane, in the world; not normalized.

    Notes
    -----
    This term does not keep the point in the plane; joints must do so.
    """

    keyword: ClassVar[str] = "FLOOR-FRICTION"

    frame: str = frame()
    limit: Number = number()
    at: Vector3 = vector(ORIGIN)
    normal: Vector3 = direction(UP)

    def meetings(self, k: Any) -> dict[str, Meeting]:
        R, origin = k.node_pose(k.system.frame_index(self.frame))
        point = vec.add(origin, vec.apply(R, tuple(map(k.number, self.at))))
        n = tuple(map(k.number, self.normal))
        n = vec.scale(1 / ca.sqrt(vec.dot(n, n)), n)
        return {"": Meeting(None, n, point, "world", self.frame, bound=k.number(self.limit))}
