"""Contacts and limits of a mechanism in generalized coordinates: gaps, slips and their slopes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import casadi as ca

from vioc.dynamics.algebra import vectors as vec
from vioc.dynamics.algebra.vectors import Vector
from vioc.dynamics.description.component import Inequality, Meeting
from vioc.dynamics.integrators.contact.cones import Cone, cone_of
from vioc.dynamics.kinematics import FrameGraph
from vioc.dynamics.lagrangian import OPTIONS, Lagrangian
from vioc.errors import ModelError


@dataclass(frozen=True)
class Touching:
    """One gap of the mechanism, as expressions of its graph's symbols.

    Attributes
    ----------
    name : str
    cone : Cone
    gap : SX
    axes : (3, 3) SX
        Normal and the two tangents, by columns; nothing of a limit.
    slip : (2,) SX
        Velocity of the second body's point less that of the first's along the tangents; nothing without
        friction.
    friction : SX
        Coulomb's coefficient; 1 where there is none.
    """

    name: str
    cone: Cone
    gap: Any
    axes: Any
    slip: Any
    friction: Any

    @property
    def multipliers(self) -> tuple[str, ...]:
        """Names of its impulses: normal; two of friction, and the slip's speed."""
        more = (f"{self.name}.t1", f"{self.name}.t2", f"{self.name}.slip") * self.cone.friction
        return (self.name, *more)


class Touches:
    """The contacts and limits of a system, in their order.

    Attributes
    ----------
    all : list of Touching
    gaps : casadi.Function
        (q, parameters) -> phi (n,), D phi (n, nq).
    held : casadi.Function
        (q, parameters) -> J (rows, nq): of each touch D phi, then the slopes of its slip by the rates.
    friction : casadi.Function
        parameters -> Coulomb's coefficients (n,).
    """

    def __init__(self, lagrangian: Lagrangian):
        system, g = lagrangian.system, lagrangian.graph
        self.all = [
            _touching(g, name + suffix, item, meeting)
            for name, item in zip(system.inequality_names, system.inequalities, strict=True)
            for suffix, meeting in item.meetings(g).items()
        ]
        q, v, theta = g.q_vector, g.v_vector, g.parameters
        phi = ca.vertcat(*(t.gap for t in self.all))
        slope = ca.jacobian(phi, q)
        rows = []
        for i, t in enumerate(self.all):
            rows += [slope[i, :], ca.jacobian(t.slip, v)]
        self.gaps = ca.Function("gaps", [q, theta], [ca.densify(phi), slope], OPTIONS)
        self.held = ca.Function("held", [q, theta], [ca.vertcat(*rows)], OPTIONS)
        self.friction = ca.Function("friction", [theta], [ca.vertcat(*(ca.SX(t.friction) for t in self.all))])
        self.names = tuple(n for t in self.all for n in t.multipliers)

    def rows(self, J: ca.SX) -> list[ca.SX]:
        """The parts of each touch."""
        sizes = [1 + t.slip.numel() for t in self.all]
        return ca.vertsplit(J, [0, *(sum(sizes[: i + 1]) for i in range(len(sizes)))])


def _touching(g: FrameGraph, name: str, item: Inequality, meeting: Meeting) -> Touching:
    if not ca.depends_on(ca.SX(meeting.gap), g.q_vector):
        raise ModelError(f"{g.system.name}: {item.label()}: nothing moves the gap of {name}")
    if meeting.normal is None or meeting.point is None:
        return Touching(name, Cone(), meeting.gap, ca.SX(3, 0), ca.SX(0, 1), ca.SX(1))
    cone, mu = cone_of(item, g.number(getattr(item, "friction", 0.0)))
    directions = vec.tangents(meeting.normal)
    axes = ca.horzcat(*(vec.column(a) for a in (meeting.normal, *directions)))
    slip = ca.SX(0, 1)
    if cone.friction:
        first, second = (_velocity(g, frame, meeting.point) for frame in (meeting.first, meeting.second))
        relative = vec.sub(second, first)
        slip = ca.vertcat(*(vec.dot(t, relative) for t in directions))
    return Touching(name, cone, meeting.gap, axes, slip, *(ca.SX(m) for m in (mu or (1.0,))))


def _velocity(g: FrameGraph, frame: str, point: Vector) -> Vector:
    """That of a point in the world, carried by a frame."""
    index = g.system.frame_index(frame)
    R, origin = g.node_pose(index)
    v, w = g.node_velocity(index)
    return vec.add(vec.apply(R, v), vec.cross(vec.apply(R, w), vec.sub(point, origin)))
