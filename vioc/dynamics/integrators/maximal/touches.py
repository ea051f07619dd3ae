"""Contacts and limits as nodes of a step: gaps, slips and their slopes, one function for each kind.

A *touch* is one gap phi(Z) >= 0 between bodies, with friction or without. What a step needs of it is written
once for each kind of geometry and takes the numbers of one touch (places, radii, friction) as data, so that
alike touches share their functions. Maths: docs/maths/contact.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import casadi as ca
import numpy as np

from vioc.dynamics.algebra import vectors as vec
from vioc.dynamics.algebra.vectors import Vector
from vioc.dynamics.description.component import Inequality
from vioc.dynamics.description.numbers import Parameter
from vioc.dynamics.integrators.contact.cones import Cone, cone_of
from vioc.dynamics.integrators.contact.laws import law_of
from vioc.dynamics.integrators.maximal.features import NUMBERS, PLACES, Pair, Polytope
from vioc.dynamics.integrators.maximal.space import POSE, TWIST, Pose, pose_rates, unpack_pose, unpack_twist
from vioc.dynamics.integrators.maximal.terms import BodyGraph
from vioc.dynamics.lagrangian import OPTIONS
from vioc.dynamics.terms.contacts import FrictionContact, PairContact, Part
from vioc.dynamics.terms.distances import meet
from vioc.dynamics.terms.dry import Dry
from vioc.dynamics.terms.limits import JointLimits
from vioc.dynamics.terms.shapes import Ground, Hull, Shape, Sphere
from vioc.dynamics.terms.terrain import Terrain
from vioc.errors import ModelError

OPEN = 1e3  # m/s or rad/s, which nothing closes with
SLIP = 2  # tangential directions of a touch with friction


class Geometry:
    """The functions of a kind of touch.

    Parameters
    ----------
    count : int
        Bodies.
    gap : callable
        (poses as (x, R).., twists as (v, w).., data) -> phi, slip velocity (two scalars, or none).
    size : int
        Numbers of its data; Coulomb's coefficient follows them where there is friction.
    smoothing : float
        m^2/s^2, of `MaximalVI`.
    """

    def __init__(self, count: int, gap: Callable, size: int, cone: Cone, smoothing: float):
        self.count, self.cone, self.law = count, cone, law_of(cone)
        Z = [ca.SX.sym("Z", POSE) for _ in range(count)]
        V = [ca.SX.sym("V", TWIST) for _ in range(count)]
        data = ca.SX.sym("data", size + cone.friction)
        phi, slip = gap([*map(unpack_pose, Z)], [*map(unpack_twist, V)], ca.vertsplit(data))
        slip = ca.vertcat(*slip) if cone.friction else ca.SX(0, 1)
        rates = [ca.vertcat(*pose_rates(z, v)) for z, v in zip(Z, V, strict=True)]
        varied = [ca.jacobian(phi, z) @ ca.jacobian(r, v) for z, r, v in zip(Z, rates, V, strict=True)]
        turned = [ca.jacobian(slip, v) for v in V]
        self.gap = ca.Function("gap", [*Z, data], [ca.SX(phi)], OPTIONS)
        held = [ca.densify(ca.vertcat(n, t)) for n, t in zip(varied, turned, strict=True)]
        self.held = ca.Function("held", [*Z, data], held, OPTIONS)
        T, dt = [ca.SX.sym("T", 3, 3) for _ in range(count)], ca.SX.sym("dt")
        H = [ca.densify(ca.horzcat(n[:3], n[3:] @ t / dt)) for n, t in zip(varied, T, strict=True)]
        self.landed = ca.Function("landed", [*Z, *T, dt, data], [phi / dt, *H], OPTIONS)
        level = opened(phi / dt, smoothing)
        self.level = ca.Function("level", [*Z, dt, data], [level, *map(ca.densify, varied)], OPTIONS)
        N = [ca.SX.sym("N", 1, TWIST) for _ in range(count)]
        a = ca.SX.sym("level")
        speed = sum((n @ v for n, v in zip(N, V, strict=True)), a)
        self.closing = ca.Function("closing", [a, *N, *V], [speed], OPTIONS)

    def lawful(self, J: list, a: Any, V: list, p: Any, kappa: Any, data: Any) -> tuple[list, Any]:
        """Impulses on the bodies and the equations of the multipliers p: for derivatives."""
        law = self.cone.law(p, self._speeds(J, a, V), kappa, self._mu(data))
        return [j.T @ p[: j.shape[0]] for j in J], law

    def relaxed(
        self, J: list, a: Any, V: list, y: Any, kappa: Any, data: Any, share: Any
    ) -> tuple[list, Any]:
        """The same of all variables of `laws`; a is that share of the gap's velocity."""
        push = self.law.impulse(y, self._mu(data))
        law = self.law.equations(y, self._speeds(J, a, V), kappa, self._mu(data), share)
        return [j.T @ push for j in J], law

    def multipliers(self, y: Any, data: Any) -> Any:
        """Those of the touch, of variables of `laws`."""
        return self.law.multipliers(y, self._mu(data))

    def started(self, J: list, a: Any, V: list, speed: Any, kappa: Any, data: Any, share: Any) -> Any:
        """Variables of `laws` within their bounds."""
        return self.law.start(self._speeds(J, a, V), speed, kappa, self._mu(data), share)

    def held_by(self, J: list, a: Any, V: list, kappa: Any, data: Any) -> Any:
        """The multipliers that the laws have at these speeds."""
        return self.cone.lawful(self._speeds(J, a, V), kappa, self._mu(data))

    # -- what the interior point needs, condensed onto the bodies ----------------------------------

    def _arguments(self) -> tuple[list, list, Any, list, Any, Any, Any]:
        rows = 1 + SLIP * self.cone.friction
        J, H = ([ca.SX.sym(n, r, TWIST) for _ in range(self.count)] for n, r in (("J", rows), ("H", 1)))
        V = [ca.SX.sym("V", TWIST) for _ in range(self.count)]
        data = ca.SX.sym("data", self.held.size1_in(self.count))
        return J, H, ca.SX.sym("a"), V, ca.SX.sym("y", self.cone.size), ca.SX.sym("goal", 2), data

    def _speeds(self, J: list, a: Any, V: list) -> Any:
        """The gap's and the slip's velocity (rows,)."""
        slip = sum((j[1:, :] @ v for j, v in zip(J, V, strict=True)), ca.SX(J[0].shape[0] - 1, 1))
        return ca.vertcat(a, slip)

    def _mu(self, data: Any) -> Any:
        return data[-1] if self.cone.friction else None

    def _law(self) -> tuple[list, list, list, Any, Any]:
        """Arguments; J; K; dy for a change dw of the speeds; dw."""
        J, H, a, V, y, goal, data = self._arguments()
        dw, K = ca.SX.sym("dw", J[0].shape[0]), [ca.vertcat(h, j[1:, :]) for j, h in zip(J, H, strict=True)]
        dy = self.cone.direction(y, self._speeds(J, a, V), dw, goal[0], self._mu(data), goal[1])
        return [*J, *H, a, *V, y, goal, data], J, K, dy, dw

    @cached_property
    def condensed(self) -> ca.Function:
        """(J.., H.., a, V.., y, goal, data) -> by body: J' c; J_i' S K_j for each i, each j."""
        args, J, K, dy, dw = self._law()
        y = args[-3]
        change = ca.jacobian(self.cone.impulse(y), y) @ dy  # c - S dw
        constant, S = ca.substitute(change, dw, ca.SX.zeros(dw.numel())), -ca.jacobian(change, dw)
        outputs = [j.T @ constant for j in J]
        outputs += [ca.densify(j.T @ S @ k) for j in J for k in K]
        return ca.Function("condensed", args, outputs, OPTIONS)

    @cached_property
    def expanded(self) -> ca.Function:
        """(J.., H.., a, V.., y, goal, data, dV..) -> dy."""
        args, _, K, dy, dw = self._law()
        dV = [ca.SX.sym("dV", TWIST) for _ in range(self.count)]
        change = sum((k @ d for k, d in zip(K, dV, strict=True)), ca.SX(dw.numel(), 1))
        dy = ca.densify(ca.substitute(dy, dw, change))
        return ca.Function("expanded", [*args, *dV], [dy], OPTIONS)

    @cached_property
    def pushed(self) -> ca.Function:
        """(J.., a, V.., y, goal, data) -> impulses by body.., residuals (speeds), products, multipliers."""
        J, _, a, V, y, goal, data = self._arguments()
        p = self.cone.impulse(y)
        outputs = [
            *(j.T @ p for j in J),
            self.cone.mismatch(y, self._speeds(J, a, V), self._mu(data), goal[1]),
            self.cone.products(y),
            self.cone.multipliers(y),
        ]
        return ca.Function("pushed", [*J, a, *V, y, goal, data], [ca.densify(o) for o in outputs], OPTIONS)

    @cached_property
    def begun(self) -> ca.Function:
        """(J.., a, V.., speed, goal, data) -> y inside the cones, near the central path."""
        J, _, a, V, _, goal, data = self._arguments()
        speed = ca.SX.sym("speed")
        y = self.cone.begin(self._speeds(J, a, V), speed, goal[0], self._mu(data))
        return ca.Function("begun", [*J, a, *V, speed, goal, data], [ca.densify(y)], OPTIONS)


@dataclass(frozen=True)
class Touch:
    """One gap of the mechanism.

    Attributes
    ----------
    name : str
    bodies : tuple of int
    geometry : Geometry
    data : tuple
        Numbers, or SX of the parameters.
    place : int or None
        Of two polytopes, which of the graph's places it is: its data are those of the place, then `data`.
    reach : number or None
        Of a sphere over a half-space, how far from its body's centre it may touch, m.
    """

    name: str
    bodies: tuple[int, ...]
    geometry: Geometry
    data: tuple
    place: int | None = None
    reach: Any = None

    @property
    def cone(self) -> Cone:
        return self.geometry.cone

    @property
    def multipliers(self) -> tuple[str, ...]:
        """Names of its impulses: normal; two of friction, and the slip's speed."""
        more = (f"{self.name}.t1", f"{self.name}.t2", f"{self.name}.slip") * self.cone.friction
        return (self.name, *more)


def find_touches(terms: BodyGraph, once: Callable, smoothing: float) -> tuple[list[Touch], list[Pair]]:
    """The touches of a system's contacts and limits, in their order, and the pairs of polytopes."""
    found: list[Touch] = []
    pairs: list[Pair] = []
    for name, item in zip(terms.system.inequality_names, terms.system.inequalities, strict=True):
        if float(getattr(item, "restitution", 0.0)):
            raise ModelError(
                f"{terms.system.name}: {item.label()}: MaximalVI has no restitution, what meets stays; use "
                "ContactVI, or restitution=0"
            )
        if isinstance(item, Dry):
            raise ModelError(
                f"{terms.system.name}: {item.label()}: MaximalVI has no dry friction; use ContactVI"
            )
        if isinstance(item, PairContact) and item.by_features:
            found += _polytopes(terms, name, item, once, smoothing, len(pairs) * PLACES)
            pairs.append(_pair(terms, item))
        elif isinstance(item, FrictionContact):
            for suffix, part in item.parts().items():
                found.append(_contact(terms, name + suffix, item, part, once, smoothing))
        else:
            if isinstance(item, JointLimits):
                _check_angles(terms, item)
            for suffix, phi in item.gaps(terms).items():
                found.append(_limit(terms, name + suffix, phi, once, smoothing))
    return found, pairs


def _check_angles(terms: BodyGraph, item: JointLimits) -> None:
    """Angles jump at half a turn: a limit beyond it would never be met, or never be left."""
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
    terms: BodyGraph, name: str, item: FrictionContact, part: Part, once: Callable, smoothing: float
) -> Touch:
    """Two shapes that meet in one point."""
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
    geometry = once((kinds, free, cone), lambda: Geometry(len(pair), gap, len(data), cone, smoothing))
    own = second[1]
    reach = ca.norm_2(ca.vertcat(*own[:3])) + own[3] if kinds == (Ground, Sphere) else None
    return Touch(name, pair, geometry, (*data, *mu), None, reach)


def _polytopes(
    terms: BodyGraph, name: str, item: PairContact, once: Callable, smoothing: float, place: int
) -> list[Touch]:
    """The places in which two polytopes may meet, of which `features.Features` tells in every step."""
    pair, _ = joined(terms, item, item.frame1, item.frame2)
    cone, mu = cone_of(item, terms.number(item.friction))
    free = len(pair) == 1

    def gap(poses: list[Pose], twists: list, data: list) -> tuple[Any, tuple]:
        poses, twists = [(vec.ZERO, vec.IDENTITY)] * free + poses, [(vec.ZERO, vec.ZERO)] * free + twists
        local, n, side, off = (tuple(data[:3]), tuple(data[3:6])), tuple(data[6:9]), data[9], data[10]
        points = [vec.add(x, vec.apply(R, p)) for (x, R), p in zip(poses, local, strict=True)]
        shares = ca.fmax(side, 0.0), ca.fmax(-side, 0.0)  # the normal is carried by one of the two
        n = vec.add(*(vec.scale(s, vec.apply(R, n)) for s, (_, R) in zip(shares, poses, strict=True)))
        apart = vec.dot(n, vec.sub(points[1], points[0]))
        near = vec.add(points[0], vec.scale(apart / 2, n)), vec.sub(points[1], vec.scale(apart / 2, n))
        # below or above the point of the body that does not carry the normal
        middle = vec.add(vec.scale(shares[1], near[0]), vec.scale(shares[0], near[1]))
        there = side * side
        return apart + off, tuple(there * w for w in slip(n, middle, poses, twists))

    geometry = once(("polytopes", free, cone), lambda: Geometry(len(pair), gap, NUMBERS, cone, smoothing))
    return [Touch(f"{name}-{i + 1}", pair, geometry, mu, place + i) for i in range(PLACES)]


def _pair(terms: BodyGraph, item: PairContact) -> Pair:
    """Two polytopes in the axes of their bodies, in the order of `joined`."""
    system, found = terms.system, []
    for frame, shape in ((item.frame1, item.shape1), (item.frame2, item.shape2)):
        if any(isinstance(n, Parameter) for n in shape.numbers()):
            raise ModelError(
                f"{system.name}: {item.label()}: boxes and hulls that meet each other take numbers, not "
                f"parameters, got {shape}"
            )
        index = system.frame_index(frame)
        place = terms.place(index) if index >= 0 else None
        R, p = (vec.IDENTITY, vec.ZERO) if place is None else (place.rotation, place.position)
        value = terms.model.value
        polytope = Polytope(
            shape, np.array([[value(c) for c in r] for r in R]), np.array([value(c) for c in p])
        )
        found.append((-1 if place is None else place.body, polytope))
    (a, first), (b, second) = found if found[0][0] < found[1][0] else found[::-1]
    return Pair((a, b), first, second)


def carried(terms: BodyGraph, item: Inequality, frame: str, shape: Shape) -> tuple[Shape, tuple]:
    """A shape and its numbers in the axes of the body that carries its frame, or of the world."""
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
    """The bodies that carry two frames, parent first, without the world; whether that swaps the two."""
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
    """Velocity of the second body at a point less that of the first, across n."""
    first, second = (
        vec.add(v, vec.cross(vec.apply(R, w), vec.sub(point, x)))
        for (x, R), (v, w) in zip(poses, twists, strict=True)
    )
    relative = vec.sub(second, first)
    return tuple(vec.dot(t, relative) for t in vec.tangents(n))


def _limit(terms: BodyGraph, name: str, phi: Any, once: Callable, smoothing: float) -> Touch:
    """A gap given as an expression; its data are the parameters, its functions its own."""
    bodies = terms.bodies_of(phi)
    own = ca.vertcat(*terms.own_poses(bodies))
    used = ca.which_depends(phi, terms.parameters, 1, False) if terms.parameters.numel() else []
    numbers = [terms.parameters[i] for i, needed in enumerate(used) if needed]
    expression = ca.Function("phi", [own, ca.vertcat(ca.SX(0, 1), *numbers)], [phi])

    def gap(poses: list[Pose], twists: list, data: list) -> tuple[Any, tuple]:
        flat = [*(c for x, R in poses for c in (*x, *(e for row in R for e in row)))]
        return expression(ca.vertcat(*flat), ca.vertcat(ca.SX(0, 1), *data)), ()

    cone, _ = cone_of(None, None)
    geometry = once(("limit", name), lambda: Geometry(len(bodies), gap, len(numbers), cone, smoothing))
    return Touch(name, bodies, geometry, tuple(numbers))


def opened(s: Any, smoothing: Any) -> Any:
    """The speed at which an arrival may close a gap that is s = phi/dt wide.

    At rest the first term alone balances what holds; the second opens gaps that nothing holds.
    """
    wide = s * (s * s / smoothing) ** 2
    return s + wide / (1 + wide / OPEN)


def opened_share(s: Any, closing: Any, smoothing: Any) -> tuple[Any, Any]:
    """A share c of `opened` plus the speed of closing, and c, that stay of the size of s and 1."""
    wide = s * (s * s / smoothing) ** 2
    near = 1 / (1 + wide)
    share = near + (1 - near) / OPEN
    return share * (s + closing) + (1 - near), share
