"""Components for cables: hinge springs and dampers, strings over sheaves, and drag (docs/maths/cables.md)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import casadi as ca

from vioc.dynamics.algebra import vectors as vec
from vioc.dynamics.description.component import Component, Potential, frame, number, variables, vector
from vioc.dynamics.description.inertia import Mass
from vioc.dynamics.description.numbers import Number
from vioc.dynamics.terms.constraints import StringConstraint, in_world
from vioc.dynamics.terms.forces import RateForce
from vioc.errors import ModelError


@dataclass(frozen=True, repr=False)
class BendingSpring(Potential):
    """Spring between two frames, with an energy that depends on their relative rotation vector phi.
    The energy is 1/2 sum_i k_i phi_i^2 with the three stiffnesses k_i.

    phi lies along the axis of the relative rotation R = R1' R2 and has the length 2 tan(angle/2), so that V
    is smooth up to half a turn. At a far end of a cable the spring is a clamp (`Cable.attach`).

    Parameters
    ----------
    frame1, frame2 : str
    stiffness : 3 numbers
        About the axes of frame1, N m/rad, each >= 0.
    """

    keyword: ClassVar[str] = "BENDING-SPRING"

    frame1: str = frame()
    frame2: str = frame()
    stiffness: tuple[Number, Number, Number] = vector(minimum=0.0)

    def energy(self, k: Any) -> ca.SX:
        R = ca.mtimes(k.pose(self.frame1)[:3, :3].T, k.pose(self.frame2)[:3, :3])
        twice = ca.vertcat(R[2, 1] - R[1, 2], R[0, 2] - R[2, 0], R[1, 0] - R[0, 1])
        phi = 2 * twice / (1 + ca.trace(R))
        return 0.5 * ca.dot(ca.vertcat(*map(k.number, self.stiffness)), phi**2)


class _Hinge(Component):
    """Base class of springs and dampers for hinges with three rotations.

    The rotations are about x, y and z in any order. Each frame is the child of the previous one.
    """

    variables: tuple[str, ...]

    def check(self, system: Any) -> None:
        order = "".join(self._axes(system))
        if sorted(order) != ["x", "y", "z"]:
            raise ModelError(
                "variables: expected those of three rotations, about x, y and z in any order, each frame the "
                f"child of the one before, got {', '.join(self.variables)}"
            )

    def _axes(self, system: Any) -> Iterator[str]:
        """Yield the axes ("x", "y" or "z") of the hinge's three rotations, from parent frame to child frame.

        They end at the first frame that is not the child of the previous one.
        """
        parent = None
        drivers = {node.frame.transform.variable: i for i, node in enumerate(system.nodes)}
        for name in self.variables:
            i = next((i for variable, i in drivers.items() if variable and variable.name == name), -1)
            kind = system.nodes[i].frame.transform.kind if i >= 0 else ""
            if kind not in ("RX", "RY", "RZ") or parent not in (None, system.nodes[i].parent):
                return
            parent = i
            yield kind[1].lower()

    def strain(self, k: Any) -> list[Any]:
        """Return an approximation of the hinge's rotation vector (3,).
        Its error is of third order in the three rotation angles of the hinge.
        """
        order, (a, b, c) = "".join(self._axes(k.system)), map(k.q, self.variables)
        half = 0.5 if order in "xyzxy" else -0.5
        components = a + half * b * c, b - half * a * c, c + half * a * b
        return [components[order.index(axis)] for axis in "xyz"]


@dataclass(frozen=True, repr=False)
class HingeSpring(_Hinge, Potential):
    """Spring of a hinge with three rotation angles.
    Its energy is 1/2 sum_i k_i phi_i^2, with three stiffnesses k_i and the hinge's rotation vector phi.

    phi is the rotation vector up to terms of third order: with angles a, b and c of frames that rotate about
    x, then y, then z

        phi = (a + b c / 2, b - a c / 2, c + a b / 2),

    and similarly in other orders. Springs on a, b and c alone differ from it at second order.

    Parameters
    ----------
    variables : 3 str
        Variables of three rotations, about x, y and z in any order, each frame the child of the previous one.
    stiffness : 3 numbers
        About x, y and z, N m/rad, each >= 0.
    """

    keyword: ClassVar[str] = "HINGE-SPRING"

    variables: tuple[str, ...] = variables()
    stiffness: tuple[Number, Number, Number] = vector(minimum=0.0)

    def energy(self, k: Any) -> ca.SX:
        return 0.5 * sum(k.number(s) * phi**2 for s, phi in zip(self.stiffness, self.strain(k), strict=True))


@dataclass(frozen=True, repr=False)
class HingeDamping(_Hinge, RateForce):
    """Viscous damping of a hinge with three angles.

    F = -(dphi/dq)' diag(c) dphi/dt, with phi as in `HingeSpring`.

    Parameters
    ----------
    variables : 3 str
        As in `HingeSpring`.
    coefficient : 3 numbers
        About x, y and z, N m s/rad, each >= 0.
    """

    keyword: ClassVar[str] = "HINGE-DAMPING"

    variables: tuple[str, ...] = variables()
    coefficient: tuple[Number, Number, Number] = vector(minimum=0.0)

    def by_rates(self, k: Any) -> ca.SX:
        pairs = zip(self.coefficient, map(k.slope, self.strain(k)), strict=True)
        return -sum(k.number(c) * ca.dot(slope, k.v_vector) * slope for c, slope in pairs)


class Way(NamedTuple):
    """Path of a string over a sheave: the lengths of its two straight parts, m, and its arc angle, rad."""

    first: ca.SX
    last: ca.SX
    wrap: ca.SX


def way_over(k: Any, sheave: str, radius: Number, axis: Any, frame1: str, frame2: str) -> Way:
    """Return the path of a string over a sheave, from the origin of frame1 to the origin of frame2.
    The frame `sheave` is at the sheave's centre; `axis` is the axis about which the sheave turns, in this
    frame.

    The path runs counter-clockwise about the sheave's axis. It is straight if the line between the two
    origins does not meet the sheave.
    """
    a = in_world(k, axis, sheave)
    a = a / ca.sqrt(ca.sumsqr(a))
    center, r = k.position(sheave), k.number(radius)
    first, last = (d - a * ca.dot(a, d) for d in (k.position(f) - center for f in (frame1, frame2)))
    distances = [ca.sqrt(ca.sumsqr(d)) for d in (first, last)]
    # pi + atan2(-s, -c) is the angle in (0, 2 pi): its cut lies where the string leaves the sheave
    angle = ca.pi + ca.atan2(-ca.dot(a, ca.cross(first, last)), -ca.dot(first, last))
    wrap = angle - ca.acos(r / distances[0]) - ca.acos(r / distances[1])
    over, line = wrap > 0, last - first
    size = ca.sqrt(
        ca.sumsqr(line)
    )  # both parts of the straight line end at the foot of the perpendicular from the centre
    straight = -ca.dot(first, line) / size, ca.dot(last, line) / size
    one, two = (
        ca.if_else(over, ca.sqrt(d**2 - r**2), part) for d, part in zip(distances, straight, strict=True)
    )
    return Way(one, two, ca.if_else(over, wrap, 0.0))


@dataclass(frozen=True, repr=False)
class SheaveString(StringConstraint):
    """Taut string of constant or variable length, from one point over a sheave to another point.

    h = s(q) - L. The string runs counter-clockwise about the sheave's axis from frame1 to frame2, or straight
    if that line does not meet the sheave; both points lie in the sheave's plane and outside it. It can only
    pull, as every `StringConstraint`, and its ``tension.NAME`` is its multiplier divided by the step length.
    A length given by a kinematic variable is a winch.

    Parameters
    ----------
    frame1, frame2 : str
    length : number, `Variable` or str
        Length along the string between the points, m.
    sheave : str
        Frame at the centre of the sheave.
    radius : number
        m; 0 is an eye.
    axis : 3 numbers
        Axis in the sheave's frame.
    """

    keyword: ClassVar[str] = "SHEAVE-STRING"

    sheave: str = frame()
    radius: Number = number(0.0, minimum=0.0)
    axis: tuple[Number, Number, Number] = vector((0.0, 1.0, 0.0))

    def value(self, k: Any) -> ca.SX:
        size = k.q(self.length.name) if self.own_variables() else k.number(self.length)  # type: ignore[union-attr]
        return self.path(k) - size

    def path(self, k: Any) -> ca.SX:
        """Return the length, m, of the path from one end point over the sheave to the other."""
        if self.radius == 0.0:
            center = k.position(self.sheave)
            return sum(ca.sqrt(ca.sumsqr(k.position(f) - center)) for f in (self.frame1, self.frame2))
        way = way_over(k, self.sheave, self.radius, self.axis, self.frame1, self.frame2)
        return way.first + way.last + k.number(self.radius) * way.wrap

    def tension(self, k: Any, impulse: Any, dt: Any) -> ca.SX:
        return impulse / dt


class _Along(RateForce):
    """Base class of drag forces on all masses of a chain of frames.

    A subclass defines the dissipation.
    """

    first: str
    last: str

    def check(self, system: Any) -> None:
        if not list(self._bodies(system)):
            raise ModelError(
                f"no mass lies between {self.first!r} and {self.last!r}; expected a frame, and one that "
                "descends from it"
            )

    def _bodies(self, system: Any) -> Iterator[tuple[int, Mass]]:
        """Yield the index and mass of each frame with mass, from the frame `last` up to its ancestor `first`.

        There are none if `first` is not an ancestor of `last`.
        """
        indices, i, top = [], system.frame_index(self.last), system.frame_index(self.first)
        while i >= 0 and i != top:
            indices.append(i)
            i = system.nodes[i].parent
        if i != top:
            return
        for j in (*indices, *([top] if top >= 0 else [])):
            mass = system.nodes[j].frame.mass
            if mass is not None:
                yield j, mass

    def dissipation(self, k: Any, i: int, mass: Mass) -> Any:
        """Return Rayleigh's dissipation function of one body, which is quadratic in the body's velocities."""
        raise TypeError(f"{type(self).__name__} must define dissipation")

    def by_rates(self, k: Any) -> ca.SX:
        total = sum((self.dissipation(k, i, mass) for i, mass in self._bodies(k.system)), ca.SX(0))
        return -ca.gradient(total, k.v_vector)


@dataclass(frozen=True, repr=False)
class MassDamping(_Along):
    """Drag on the masses of a chain of frames, in proportion to their momenta.

    F = -a dT/dv. This is the mass part of Rayleigh damping.

    Parameters
    ----------
    first, last : str
        Ends of the chain: `last` descends from `first`.
    coefficient : number
        a >= 0, 1/s.
    """

    keyword: ClassVar[str] = "MASS-DAMPING"

    first: str = frame()
    last: str = frame()
    coefficient: Number = number(minimum=0.0)

    def dissipation(self, k: Any, i: int, mass: Mass) -> Any:
        v, w = k.node_velocity(i)
        m, xx, yy, zz, xy, xz, yz, *com = (k.number(c) for c in mass.numbers())
        center = vec.add(v, vec.cross(w, tuple(com)))
        spin = vec.apply(((xx, xy, xz), (xy, yy, yz), (xz, yz, zz)), w)
        return k.number(self.coefficient) / 2 * (m * vec.dot(center, center) + vec.dot(w, spin))


@dataclass(frozen=True, repr=False)
class LineDrag(_Along):
    """Linear drag on the rods of a cable, with different coefficients along and across a rod.

    Per length it is -c_t v along and -c_n v across. Every frame with mass from `first` to `last` carries a
    rod along `direction` about its centre of mass.

    Parameters
    ----------
    first, last : str
        Ends of the chain: `last` descends from `first`.
    length : number
        Length of each rod, m.
    direction : 3 numbers
        Direction of the rods in their frames.
    along, across : number
        c_t, c_n >= 0, N s/m^2.
    """

    keyword: ClassVar[str] = "LINE-DRAG"

    first: str = frame()
    last: str = frame()
    length: Number = number(minimum=0.0)
    direction: tuple[Number, Number, Number] = vector()
    along: Number = number(0.0, minimum=0.0)
    across: Number = number(0.0, minimum=0.0)

    def dissipation(self, k: Any, i: int, mass: Mass) -> Any:
        v, w = k.node_velocity(i)
        length, c_t, c_n = (k.number(c) for c in (self.length, self.along, self.across))
        center = vec.add(v, vec.cross(w, tuple(k.number(c) for c in mass.com)))
        t = tuple(k.number(c) for c in self.direction)
        t = vec.scale(1 / ca.sqrt(vec.dot(t, t)), t)
        slide, roll = vec.dot(t, center), vec.dot(t, w)
        across = vec.dot(center, center) - slide**2
        turning = length**2 / 12 * (vec.dot(w, w) - roll**2)
        return length / 2 * (c_t * slide**2 + c_n * (across + turning))
