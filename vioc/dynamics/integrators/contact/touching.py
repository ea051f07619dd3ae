"""Gaps and slip velocities of contacts and joint limits in generalized coordinates."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import casadi as ca
import numpy as np

from vioc.compile.evaluate import Evaluator
from vioc.dynamics.algebra import vectors as vec
from vioc.dynamics.algebra.vectors import Vector
from vioc.dynamics.contact.cones import Cone, DryCone, cone_of
from vioc.dynamics.contact.features import Features, MeetingPlaces
from vioc.dynamics.contact.natural_units import NaturalUnits, units_of_touches
from vioc.dynamics.contact.polytopes import NUMBERS, OFF, PLACES, Pair, Polytope, check_numbers, placed
from vioc.dynamics.contact.touch import AnyTouch
from vioc.dynamics.description.component import Meeting
from vioc.dynamics.kinematics import FrameGraph
from vioc.dynamics.lagrangian import Lagrangian
from vioc.dynamics.masses import natural_length
from vioc.dynamics.terms.contacts import PairContact
from vioc.errors import ModelError

NOWHERE = ca.SX(0, 1)  # contact point data of systems without pairs of polytopes
POSE, TWIST = 12, 6  # numbers of values of a frame's pose and twist


@dataclass(frozen=True)
class Touching(AnyTouch):
    """Contact, joint limit or dry friction, whose gap and slip are expressions of the coordinates.

    Attributes
    ----------
    gap : SX or None
    axes : (3, 3) SX
        Columns: normal and two tangents; empty for a limit or the friction of a joint.
    slip : (2,) or (1,) SX
        Velocity of the second body's point relative to the first's along the tangents; the rate of a joint
        with dry friction; empty without friction.
    friction : SX
        Coulomb's coefficient, 1 without friction. Of dry friction without a gap: the largest force, N or N m.
    """

    gap: Any
    axes: Any
    slip: Any
    friction: Any
    placed: bool = False

    @property
    def rows(self) -> int:
        return self.lead + self.slip.numel()


class Polytopes:
    """Pairs of boxes or convex hulls that may touch, with a search for contact points.

    Parameters
    ----------
    g : FrameGraph

    Attributes
    ----------
    features : Features
    nowhere : array
        Data of all contact points if no polytopes meet.
    """

    def __init__(self, g: FrameGraph):
        system, pairs, frames = g.system, [], ["world"]
        for item in system.inequalities:
            if not (isinstance(item, PairContact) and item.by_features):
                continue
            polytopes = []
            for frame, shape in ((item.frame1, item.shape1), (item.frame2, item.shape2)):
                check_numbers(system.name, item, shape)
                if frame not in frames:
                    frames.append(frame)
                polytopes.append((frames.index(frame) - 1, Polytope(shape, np.eye(3), np.zeros(3))))
            (a, first), (b, second) = polytopes
            pairs.append(Pair((a, b), first, second))
        self.features = Features(pairs)
        self.nowhere = np.tile(OFF, PLACES * len(pairs))
        self.numbers = NUMBERS * PLACES * len(pairs)
        indices = [system.frame_index(n) for n in frames[1:]]
        places = [g.node_pose(i) for i in indices]
        moves = [c for i in indices for part in g.node_velocity(i) for c in part]
        poses = [c for R, p in places for c in (*p, *(e for row in R for e in row))]
        args = [g.q_vector, g.v_vector, g.parameters]
        outputs = [ca.vertcat(ca.SX(0, 1), *map(ca.SX, own)) for own in (poses, moves)]
        self._frames = Evaluator(ca.Function("frames", args, list(map(ca.densify, outputs))))

    def at(self, q: np.ndarray, v: np.ndarray, theta: np.ndarray, dt: float) -> MeetingPlaces:
        """Return the contact points of boxes and convex hulls at a configuration q.
        The rates of q are v (nq,). The result includes points where these bodies may touch within a step of
        length dt.
        """
        poses, twists = self._frames(q, v, theta)
        pose_rows = poses.reshape(-1, POSE)
        return self.features.at(
            pose_rows[:, :3], pose_rows[:, 3:].reshape(-1, 3, 3), twists.reshape(-1, TWIST), dt
        )


class Touches:
    """Contacts, joint limits and dry friction of a system, with the Jacobians of gaps and slips.

    Attributes
    ----------
    all : list of Touching
    polytopes : Polytopes
        Pairs of polytopes in contact.
    places : SX
        Data of the contact points of polytopes, fixed over a step.
    gaps : casadi.Function
        (q, parameters, places) -> phi (n,), D phi (n, nq); phi is infinite for dry friction without a gap.
    held : casadi.Function
        (q, parameters, places) -> J (rows, nq): for each contact D phi, then the derivatives of its slip by
        the rates.
    friction : casadi.Function
        parameters -> Coulomb's coefficients, or largest friction forces in N or N m (n,).
    """

    def __init__(self, lagrangian: Lagrangian):
        system, g = lagrangian.system, lagrangian.graph
        self._length, self._sizes = natural_length(system), lagrangian.natural_sizes[: len(system.dynamic)]
        self.all: list[Touching] = []
        self.polytopes = Polytopes(g)
        self.places = ca.SX.sym("places", self.polytopes.numbers)
        data = iter(ca.vertsplit(self.places, NUMBERS) if self.polytopes.features.pairs else ())
        for name, item in zip(system.inequality_names, system.inequalities, strict=True):
            if isinstance(item, PairContact) and item.by_features:
                self.all += (_placed(g, f"{name}-{i + 1}", item, next(data)) for i in range(PLACES))
            else:
                self.all += (_touching(g, name + suffix, item, m) for suffix, m in item.meetings(g).items())
        q, v, theta, places = g.q_vector, g.v_vector, g.parameters, self.places
        phi = ca.vertcat(*(t.gap if t.cone.gap else ca.SX(np.inf) for t in self.all))
        slope = ca.jacobian(phi, q)
        rows = []
        for i, t in enumerate(self.all):
            rows += [slope[i : i + t.lead, :], ca.jacobian(t.slip, v)]
        self.gaps = ca.Function("gaps", [q, theta, places], [ca.densify(phi), slope], {"cse": True})
        self.held = ca.Function("held", [q, theta, places], [ca.vertcat(*rows)], {"cse": True})
        self.friction = ca.Function("friction", [theta], [ca.vertcat(*(ca.SX(t.friction) for t in self.all))])
        self.names = tuple(n for t in self.all for n in t.multipliers)
        self._units = units_of_touches(system, self.all, self._length)

    def natural(self, constraints: int) -> NaturalUnits:
        """Return the units that make the residuals of a step dimensionless.
        The unit of coordinates, and of gaps and slips of contacts, is 1 rad or the characteristic length of
        the mechanism. The argument `constraints` is the number of constraints. Constraint values have the
        unit 1, because `Pieces.leave` has divided them by the lengths of their gradients.
        """
        return NaturalUnits(self._length, self._sizes, np.concatenate([np.ones(constraints), self._units]))

    def loads(self, theta: Any, dt: Any) -> list[ca.SX]:
        """Return friction coefficients of contacts and friction impulses of dry friction.
        There is one number for each contact, joint limit or dry friction. For a contact with friction it is
        the friction coefficient; for a joint limit or a contact without friction it is 1, which limits no
        impulse. For dry friction it is the largest friction impulse in a step of length dt.
        """
        each = zip(self.all, ca.vertsplit(self.friction(theta)), strict=True)
        return [value if t.cone.gap else dt * value for t, value in each]

    def rows(self, J: ca.SX) -> list[ca.SX]:
        """Split the Jacobian J of all gaps and slips into one matrix for each contact."""
        sizes = [t.rows for t in self.all]
        return ca.vertsplit(J, [0, *(sum(sizes[: i + 1]) for i in range(len(sizes)))])


def _touching(g: FrameGraph, name: str, item: Any, meeting: Meeting) -> Touching:
    if meeting.slip is not None:
        slip = ca.vertcat(meeting.slip)
        return Touching(name, DryCone(count=1), None, ca.SX(3, 0), slip, ca.SX(meeting.bound))
    dry = meeting.gap is None
    if not dry and not ca.depends_on(ca.SX(meeting.gap), g.q_vector):
        raise ModelError(f"{g.system.name}: {item.label()}: nothing moves the gap of {name}")
    if meeting.normal is None or meeting.point is None:
        return Touching(name, Cone(), meeting.gap, ca.SX(3, 0), ca.SX(0, 1), ca.SX(1))
    cone, mu = (DryCone(), (meeting.bound,)) if dry else cone_of(item, g.number(item.friction))
    directions = vec.tangents(meeting.normal)
    axes = ca.horzcat(*(vec.column(a) for a in (meeting.normal, *directions)))
    slip = ca.SX(0, 1)
    if cone.friction:
        first, second = (_velocity(g, frame, meeting.point) for frame in (meeting.first, meeting.second))
        relative = vec.sub(second, first)
        slip = ca.vertcat(*(vec.dot(t, relative) for t in directions))
    return Touching(name, cone, meeting.gap, axes, slip, *(ca.SX(m) for m in (mu or (1.0,))))


def _placed(g: FrameGraph, name: str, item: PairContact, data: Any) -> Touching:
    """Return a possible contact point of two polytopes as an object `Touching`.
    The array `data` contains the point on each polytope and the normal, in the axes of the bodies.
    """
    poses = [g.node_pose(g.system.frame_index(n))[::-1] for n in (item.frame1, item.frame2)]
    gap, normal, point, present = placed(poses, ca.vertsplit(data))
    touch = _touching(g, name, item, Meeting(gap, normal, point, item.frame1, item.frame2))
    return replace(touch, axes=ca.SX(3, 0), slip=present * touch.slip, placed=True)


def _velocity(g: FrameGraph, frame: str, point: Vector) -> Vector:
    """Return the velocity, in world axes, of a point that is fixed in a frame."""
    index = g.system.frame_index(frame)
    R, origin = g.node_pose(index)
    v, w = g.node_velocity(index)
    return vec.add(vec.apply(R, v), vec.cross(vec.apply(R, w), vec.sub(point, origin)))
