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

from vioc.dynamics.algebra import vectors as vec
from vioc.dynamics.integrators.contact.cones import Cone, cone_of
from vioc.dynamics.integrators.contact.laws import law_of
from vioc.dynamics.integrators.maximal.space import POSE, TWIST, Pose, pose_rates, unpack_pose, unpack_twist
from vioc.dynamics.integrators.maximal.terms import BodyGraph
from vioc.dynamics.lagrangian import OPTIONS
from vioc.dynamics.terms.contacts import Contact, SphereContact
from vioc.dynamics.terms.limits import JointLimits
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
    """

    name: str
    bodies: tuple[int, ...]
    geometry: Geometry
    data: tuple

    @property
    def cone(self) -> Cone:
        return self.geometry.cone

    @property
    def multipliers(self) -> tuple[str, ...]:
        """Names of its impulses: normal; two of friction, and the slip's speed."""
        more = (f"{self.name}.t1", f"{self.name}.t2", f"{self.name}.slip") * self.cone.friction
        return (self.name, *more)


def find_touches(terms: BodyGraph, once: Callable, smoothing: float) -> list[Touch]:
    """The touches of a system's contacts and limits, in their order."""
    found: list[Touch] = []
    for name, item in zip(terms.system.inequality_names, terms.system.inequalities, strict=True):
        if isinstance(item, Contact):
            found.append(_plane(terms, name, item, once, smoothing))
        elif isinstance(item, SphereContact):
            found.append(_spheres(terms, name, item, once, smoothing))
        else:
            if isinstance(item, JointLimits):
                _check_angles(terms, item)
            for suffix, phi in item.gaps(terms).items():
                found.append(_limit(terms, name + suffix, phi, once, smoothing))
    return found


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


def _plane(terms: BodyGraph, name: str, item: Contact, once: Callable, smoothing: float) -> Touch:
    system = terms.system
    place = terms.place(system.frame_index(item.frame)) if item.frame != "world" else None
    if place is None or place.body == -1:
        raise ModelError(f"{system.name}: {item.label()}: the frame {item.frame!r} does not move")
    ground = system.frame_index(item.plane)
    if ground >= 0 and terms.place(ground).body != -1:
        raise ModelError(
            f"{system.name}: {item.label()}: the plane's frame {item.plane!r} moves; half-spaces are fixed "
            "in the world"
        )
    R, o = terms.node_pose(ground)
    n = vec.apply(R, tuple(terms.number(c) for c in item.normal))
    size = ca.sqrt(vec.dot(n, n))
    n = tuple(c / size for c in n)
    center = vec.add(place.position, vec.apply(place.rotation, tuple(terms.number(c) for c in item.center)))
    level = vec.dot(n, o) + terms.number(item.offset)
    cone, mu = cone_of(item, terms.number(item.friction))
    data = (*center, *n, level, terms.number(item.radius), *mu)
    geometry = once(("plane", cone), lambda: Geometry(1, _plane_gap, 8, cone, smoothing))
    return Touch(name, (place.body,), geometry, data)


def _plane_gap(poses: list[Pose], twists: list, data: list) -> tuple[Any, tuple]:
    (x, R), (v, w) = poses[0], twists[0]
    center, n, level, radius = tuple(data[:3]), tuple(data[3:6]), data[6], data[7]
    arm = vec.apply(R, center)
    phi = vec.dot(n, vec.add(x, arm)) - level - radius
    velocity = vec.add(v, vec.cross(vec.apply(R, w), vec.sub(arm, vec.scale(radius, n))))
    return phi, tuple(vec.dot(t, velocity) for t in vec.tangents(n))


def _spheres(terms: BodyGraph, name: str, item: SphereContact, once: Callable, smoothing: float) -> Touch:
    system, model = terms.system, terms.model
    where, bodies, places = f"{system.name}: {item.label()}", [], []
    for frame in (item.frame1, item.frame2):
        index = system.frame_index(frame)
        place = terms.place(index) if index >= 0 else None
        bodies.append(-1 if place is None else place.body)
        places.append(vec.ZERO if place is None else place.position)
    a, b = bodies
    if a == b:
        raise ModelError(f"{where}: the frames {item.frame1!r} and {item.frame2!r} belong to one body")
    child, parent = max(a, b), min(a, b)
    if model.bodies[child].parent == parent and model.bodies[child].joint.rows:
        raise ModelError(
            f"{where}: a {model.bodies[child].joint.kind} joint connects their bodies; spheres touch only "
            "where no joint does"
        )
    radii = terms.number(item.radius1), terms.number(item.radius2)
    if b < a:
        places, radii = places[::-1], radii[::-1]
    cone, mu = cone_of(item, terms.number(item.friction))
    data = (*places[0], *places[1], *radii, *mu)
    free = parent < 0

    def build() -> Geometry:
        def gap(poses: list[Pose], twists: list, data: list) -> tuple[Any, tuple]:
            rest = [(vec.ZERO, vec.IDENTITY)] * free
            still = [(vec.ZERO, vec.ZERO)] * free
            return _sphere_gap([*rest, *poses], [*still, *twists], data)

        return Geometry(2 - free, gap, 8, cone, smoothing)

    pair = (child,) if free else (parent, child)
    return Touch(name, pair, once(("spheres", free, cone), build), data)


def _sphere_gap(poses: list[Pose], twists: list, data: list) -> tuple[Any, tuple]:
    places, (r1, r2) = (tuple(data[:3]), tuple(data[3:6])), data[6:8]
    arms = [vec.apply(R, p) for (_, R), p in zip(poses, places, strict=True)]
    centers = [vec.add(x, arm) for (x, _), arm in zip(poses, arms, strict=True)]
    d = vec.sub(centers[1], centers[0])
    apart = ca.sqrt(vec.dot(d, d))
    n = tuple(c / apart for c in d)
    # friction acts at one point, half way between the spheres, which keeps angular momentum
    near, far = (apart + r1 - r2) / 2, (apart - r1 + r2) / 2
    levers = vec.add(arms[0], vec.scale(near, n)), vec.sub(arms[1], vec.scale(far, n))
    first, second = (
        vec.add(v, vec.cross(vec.apply(R, w), lever))
        for (_, R), (v, w), lever in zip(poses, twists, levers, strict=True)
    )
    slip = vec.sub(second, first)
    return apart - r1 - r2, tuple(vec.dot(t, slip) for t in vec.tangents(n))


def _limit(terms: BodyGraph, name: str, phi: Any, once: Callable, smoothing: float) -> Touch:
    """A gap given as an expression; it has no data, and functions of its own."""
    if ca.depends_on(phi, terms.parameters):
        raise ModelError(f"{terms.system.name}: {name}: limits take numbers, not parameters")
    bodies = terms.bodies_of(phi)
    own = ca.vertcat(*terms.own_poses(bodies))
    expression = ca.Function("phi", [own], [phi])

    def gap(poses: list[Pose], twists: list, data: list) -> tuple[Any, tuple]:
        flat = [*(c for x, R in poses for c in (*x, *(e for row in R for e in row)))]
        return expression(ca.vertcat(*flat)), ()

    cone, _ = cone_of(None, None)
    geometry = once(("limit", name), lambda: Geometry(len(bodies), gap, 0, cone, smoothing))
    return Touch(name, bodies, geometry, ())


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
