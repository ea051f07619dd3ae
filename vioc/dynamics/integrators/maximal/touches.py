"""Contacts, limits and dry friction of a system in maximal coordinates."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np

from vioc.dynamics.algebra import vectors as vec
from vioc.dynamics.algebra.vectors import Vector
from vioc.dynamics.contact.cones import DryCone, cone_of
from vioc.dynamics.contact.polytopes import NUMBERS, PLACES, Pair, Polytope, check_numbers, placed
from vioc.dynamics.contact.touch import AnyTouch, unit_of
from vioc.dynamics.description.component import Inequality
from vioc.dynamics.integrators.maximal.body_space import TWIST, Pose, unpack_twist
from vioc.dynamics.integrators.maximal.geometry import Geometry
from vioc.dynamics.integrators.maximal.terms import BodyGraph
from vioc.dynamics.masses import natural_length
from vioc.dynamics.terms.contact_shapes import Ground, Hull, Shape, Sphere
from vioc.dynamics.terms.contacts import FrictionContact, PairContact, Part
from vioc.dynamics.terms.distances import meet
from vioc.dynamics.terms.dry import Dry
from vioc.dynamics.terms.joint_limits import JointLimits
from vioc.dynamics.terms.terrain import Terrain
from vioc.errors import ModelError


@dataclass(frozen=True)
class Touch(AnyTouch):
    """Contact, joint limit or dry friction between bodies.

    Attributes
    ----------
    bodies : tuple of int
    geometry : Geometry
    data : tuple
        Numbers, or expressions of the parameters.
    place : int or None
        Index among the graph's contact points of polytopes. The data are then those of the contact point
        followed by `data`.
    reach : number or None
        Largest distance of the contact point from the body's centre of mass, for a sphere over a half-space,
        m.
    """

    bodies: tuple[int, ...]
    geometry: Geometry
    data: tuple
    place: int | None = None
    reach: Any = None

    @property
    def placed(self) -> bool:
        return self.place is not None

    @property
    def rows(self) -> int:
        return self.geometry.rows

    @property
    def kinds(self) -> tuple[str, ...]:
        return super().kinds + ("slip",) * self.cone.friction


def find_touches(terms: BodyGraph, once: Callable, smoothing: float) -> tuple[list[Touch], list[Pair]]:
    """Return all contacts, joint limits and dry friction of a system.
    The second result has the pairs of polytopes that may touch.
    """
    touches: list[Touch] = []
    pairs: list[Pair] = []
    system, length = terms.system, natural_length(terms.system)
    for name, item in zip(system.inequality_names, system.inequalities, strict=True):
        unit = 1.0 if unit_of(system, "gap", name, system.angles) == "rad" else length
        if float(item.restitution):
            raise ModelError(
                f"{terms.system.name}: {item.label()}: MaximalVI has no restitution, impacts are inelastic; "
                "use ContactVI, or restitution=0"
            )
        if isinstance(item, PairContact) and item.by_features:
            touches += _polytopes(terms, name, item, once, smoothing, unit, len(pairs) * PLACES)
            pairs.append(_pair(terms, item))
        elif isinstance(item, FrictionContact):
            for suffix, part in item.parts().items():
                touches.append(_contact(terms, name + suffix, item, part, once, smoothing, unit))
        elif isinstance(item, Dry):
            touches.append(_rubbing(terms, name, item, once, smoothing, unit))
        else:
            if isinstance(item, JointLimits):
                _check_angles(terms, item)
            for suffix, phi in item.gaps(terms).items():
                touches.append(_limit(terms, name + suffix, phi, once, smoothing, unit))
    return touches, pairs


def _check_angles(terms: BodyGraph, item: JointLimits) -> None:
    """Raise `ModelError` if a joint limit of an angle is beyond half a turn.
    The angle jumps at half a turn, so that such a limit would be active always or never.
    """
    half = next((p / 2 for b in terms.model.bodies if (p := b.periods.get(item.variable))), None)
    if half is None:
        return
    turn = "pi" if abs(half - math.pi) < 1e-12 else f"{half:g}"
    for which, value in (("lower", float(item.lower)), ("upper", float(item.upper))):
        if not -half < value <= half:
            raise ModelError(
                f"{terms.system.name}: {item.label()}: {which}: {value:g} rad is outside (-{turn}, {turn}], "
                f"where maximal coordinates have the angle {item.variable!r}; are the limits in radians?"
            )


def _contact(
    terms: BodyGraph,
    name: str,
    item: FrictionContact,
    part: Part,
    once: Callable,
    smoothing: float,
    unit: float,
) -> Touch:
    """Return a contact of two shapes that touch in one point, from its description `item`."""
    sides = [carried(terms, item, *part[:2]), carried(terms, item, *part[2:])]
    pair, swapped = joined(terms, item, part[0], part[2])
    first, second = sides[::-1] if swapped else sides
    cone, mu = cone_of(item, terms.number(item.friction))
    shapes, cut, free = (first[0], second[0]), len(first[1]), len(pair) == 1

    def gap(poses: list[Pose], twists: list, data: list) -> tuple[Any, tuple]:
        poses, twists = [(vec.ZERO, vec.IDENTITY)] * free + poses, [(vec.ZERO, vec.ZERO)] * free + twists
        rows = data[:cut], data[cut:]
        placed = [s.at(tuple(row), R, x) for s, row, (x, R) in zip(shapes, rows, poses, strict=True)]
        phi, n, point = meet(*placed)
        return phi, slip(n, point, poses, twists)

    kinds = tuple(s if isinstance(s, Hull | Terrain) else type(s) for s in shapes)  # by value
    data = (*first[1], *second[1])
    geometry = once((kinds, free, cone), lambda: Geometry(len(pair), gap, len(data), cone, smoothing, unit))
    numbers = second[1]
    reach = ca.norm_2(ca.vertcat(*numbers[:3])) + numbers[3] if kinds == (Ground, Sphere) else None
    return Touch(name, cone, pair, geometry, (*data, *mu), None, reach)


def _polytopes(
    terms: BodyGraph, name: str, item: PairContact, once: Callable, smoothing: float, unit: float, place: int
) -> list[Touch]:
    """Return the possible contact points of two polytopes, each as a `Touch`.
    The data of these contact points are determined by a search in every step.
    """
    pair, _ = joined(terms, item, item.frame1, item.frame2)
    cone, mu = cone_of(item, terms.number(item.friction))
    free = len(pair) == 1

    def gap(poses: list[Pose], twists: list, data: list) -> tuple[Any, tuple]:
        poses, twists = [(vec.ZERO, vec.IDENTITY)] * free + poses, [(vec.ZERO, vec.ZERO)] * free + twists
        phi, n, point, present = placed(poses, data)
        return phi, tuple(present * w for w in slip(n, point, poses, twists))

    geometry = once(
        ("polytopes", free, cone), lambda: Geometry(len(pair), gap, NUMBERS, cone, smoothing, unit)
    )
    return [Touch(f"{name}-{i + 1}", cone, pair, geometry, mu, place + i) for i in range(PLACES)]


def _pair(terms: BodyGraph, item: PairContact) -> Pair:
    """Return the two polytopes of a contact in the axes of their bodies, with the parent body first."""
    system, polytopes = terms.system, []
    for frame, shape in ((item.frame1, item.shape1), (item.frame2, item.shape2)):
        check_numbers(system.name, item, shape)
        index = system.frame_index(frame)
        place = terms.place(index) if index >= 0 else None
        R, p = (vec.IDENTITY, vec.ZERO) if place is None else (place.rotation, place.position)
        value = terms.model.value
        polytope = Polytope(
            shape, np.array([[value(c) for c in r] for r in R]), np.array([value(c) for c in p])
        )
        polytopes.append((-1 if place is None else place.body, polytope))
    (a, first), (b, second) = polytopes if polytopes[0][0] < polytopes[1][0] else polytopes[::-1]
    return Pair((a, b), first, second)


def carried(terms: BodyGraph, item: Inequality, frame: str, shape: Shape) -> tuple[Shape, tuple]:
    """Return a shape and its dimensions in the axes of its body.
    If the shape does not belong to a body, the axes are those of the world.
    """
    index = terms.system.frame_index(frame)
    if index < 0:
        return shape, shape.placed(terms.number, vec.IDENTITY, vec.ZERO)
    place = terms.place(index)
    if place.body != -1 and isinstance(shape, Ground):
        raise ModelError(
            f"{terms.system.name}: {item.label()}: the plane's frame {frame!r} moves; half-spaces are fixed "
            "in the world"
        )
    return shape, shape.placed(terms.number, place.rotation, place.position)


def joined(terms: BodyGraph, item: Inequality, frame1: str, frame2: str) -> tuple[tuple[int, ...], bool]:
    """Return the bodies to which two frames belong, and whether they are swapped.
    The body with the smaller index comes first; the world is omitted. The bodies are swapped if the second
    frame belongs to the first body in this order.
    """
    system, model = terms.system, terms.model
    where, bodies = f"{system.name}: {item.label()}", []
    for frame in (frame1, frame2):
        index = system.frame_index(frame)
        bodies.append(-1 if index < 0 else terms.place(index).body)
    a, b = bodies
    child, parent = max(a, b), min(a, b)
    if child == -1:
        raise ModelError(f"{where}: the frame {frame2!r} does not move")
    if a == b:
        raise ModelError(f"{where}: the frames {frame1!r} and {frame2!r} belong to one body")
    if parent >= 0 and model.bodies[child].parent == parent and model.bodies[child].joint.rows:
        raise ModelError(
            f"{where}: a {model.bodies[child].joint.kind} joint connects their bodies; shapes touch only "
            "where no joint does"
        )
    return ((child,) if parent < 0 else (parent, child)), b < a


def slip(n: Vector, point: Vector, poses: list[Pose], twists: list) -> tuple:
    """Return the tangential velocity of the second body relative to the first at a contact point.
    n is the contact normal.
    """
    first, second = (
        vec.add(v, vec.cross(vec.apply(R, w), vec.sub(point, x)))
        for (x, R), (v, w) in zip(poses, twists, strict=True)
    )
    relative = vec.sub(second, first)
    return tuple(vec.dot(t, relative) for t in vec.tangents(n))


def _limit(terms: BodyGraph, name: str, phi: Any, once: Callable, smoothing: float, unit: float) -> Touch:
    """Return a joint limit as a contact whose gap is the expression phi.
    The numerical data of this contact are the parameters on which phi depends.
    """
    bodies = terms.bodies_of(phi)
    pose_vector = ca.vertcat(*terms.own_poses(bodies))
    dependent = ca.which_depends(phi, terms.parameters, 1, False) if terms.parameters.numel() else []
    numbers = [terms.parameters[i] for i, needed in enumerate(dependent) if needed]
    expression = ca.Function("phi", [pose_vector, ca.vertcat(ca.SX(0, 1), *numbers)], [phi])

    def gap(poses: list[Pose], twists: list, data: list) -> tuple[Any, tuple]:
        flat = [*(c for x, R in poses for c in (*x, *(e for row in R for e in row)))]
        return expression(ca.vertcat(*flat), ca.vertcat(ca.SX(0, 1), *data)), ()

    cone, _ = cone_of(None, None)
    geometry = once(("limit", name), lambda: Geometry(len(bodies), gap, len(numbers), cone, smoothing, unit))
    return Touch(name, cone, bodies, geometry, tuple(numbers))


def _rubbing(terms: BodyGraph, name: str, item: Dry, once: Callable, smoothing: float, unit: float) -> Touch:
    """Return the dry friction of a joint or of a point on a plane, as a `Touch`.
    The result is a contact without gap; the point on a plane belongs to a body. The numerical data of this
    contact are the parameters of the system, then the largest friction force.
    """
    (meeting,) = item.meetings(terms).values()
    if meeting.slip is not None:
        rates: Any = (meeting.slip,)
    else:
        body = terms.place(terms.system.frame_index(meeting.second)).body
        if body == -1:
            raise ModelError(
                f"{terms.system.name}: {item.label()}: the frame {meeting.second!r} does not move"
            )
        assert meeting.normal is not None and meeting.point is not None
        twists = [(vec.ZERO, vec.ZERO), unpack_twist(terms.twists, body)]
        rates = slip(meeting.normal, meeting.point, [terms.body_pose(-1), terms.body_pose(body)], twists)
    bound, rates = ca.SX(meeting.bound), ca.vertcat(*rates)
    moves = ca.which_depends(rates, terms.twists, 1, False)
    bodies = tuple(sorted({*terms.bodies_of(rates), *(i // TWIST for i, used in enumerate(moves) if used)}))
    pose_vector = ca.vertcat(*terms.own_poses(bodies))
    twists_of = ca.vertcat(*(terms.twists[TWIST * i : TWIST * i + TWIST] for i in bodies))
    theta = terms.parameters
    expression = ca.Function("slip", [pose_vector, twists_of, theta], [rates])

    def gap(poses: list[Pose], twists: list, data: list) -> tuple[Any, tuple]:
        flat = [c for x, R in poses for c in (*x, *(e for row in R for e in row))]
        moved = [c for v, w in twists for c in (*v, *w)]
        values = expression(ca.vertcat(*flat), ca.vertcat(*moved), ca.vertcat(ca.SX(0, 1), *data[:-1]))
        return ca.SX(np.inf), tuple(ca.vertsplit(values))

    cone = DryCone(count=rates.numel())
    count = theta.numel()
    geometry = once(("rubbing", name), lambda: Geometry(len(bodies), gap, count, cone, smoothing, unit))
    return Touch(name, cone, bodies, geometry, (*ca.vertsplit(theta), bound) if count else (bound,))
