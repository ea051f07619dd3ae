"""Potential energies: gravity, gravitation and springs ([T] IV-C)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import casadi as ca

from vioc.dynamics.algebra import vectors as vec
from vioc.dynamics.description.component import Potential, frame, number, numbers, variable
from vioc.dynamics.description.numbers import Number
from vioc.errors import ModelError


@dataclass(frozen=True, repr=False)
class Gravity(Potential):
    """Potential of uniform gravity on all masses ([T] (30)).

    V = -sum_k m_k g . p_k, where p_k is the centre of mass.

    Parameters
    ----------
    x, y, z : number
        Acceleration g, m/s^2, in the world's axes.
    """

    keyword: ClassVar[str] = "GRAVITY"

    x: Number = number()
    y: Number = number()
    z: Number = number()

    def __init__(
        self, x: Number, y: Number | None = None, z: Number | None = None, *, name: str | None = None
    ):
        if y is None or z is None:
            raise ModelError(
                f"gravity: expected three numbers x, y, z (m/s^2), got {x!r} without the others; downwards "
                "along z is Gravity(0, 0, -9.81)"
            )
        for key, value in (("x", x), ("y", y), ("z", z), ("name", name)):
            object.__setattr__(self, key, value)
        self.__post_init__()

    def energy(self, k: Any) -> ca.SX:
        g = ca.vertcat(k.number(self.x), k.number(self.y), k.number(self.z))
        return -sum((mass * ca.dot(g, position) for mass, position in k.masses()), ca.SX(0))


def check_mass(system: Any, frame: str) -> None:
    """Raise `ModelError` unless the frame with a given name has a mass."""
    i = system.frame_index(frame)
    if i < 0 or system.nodes[i].frame.mass is None:
        raise ModelError(f"the frame {frame!r} carries no mass; give it one")


def mass_center(k: Any, frame: str) -> tuple[Any, ca.SX]:
    """Return the mass of a frame and the world position of its centre of mass."""
    i = k.system.frame_index(frame)
    mass = k.system.nodes[i].frame.mass
    R, p = k.node_pose(i)
    com = tuple(k.number(c) for c in mass.com)
    return k.number(mass.mass), vec.column(vec.add(p, vec.apply(R, com)))


@dataclass(frozen=True, repr=False)
class MassGravity(Potential):
    """Potential of uniform gravity on one mass ([T] (30)).
    If the system has `Gravity` components, which act on all masses, they also act on this one.

    V = -m g . p.

    Parameters
    ----------
    frame : str
        Frame with a mass; p is its centre.
    x, y, z : number
        Acceleration g, m/s^2, in the world's axes.
    """

    keyword: ClassVar[str] = "MASS-GRAVITY"

    frame: str = frame()
    x: Number = number()
    y: Number = number()
    z: Number = number()

    def check(self, system: Any) -> None:
        check_mass(system, self.frame)

    def energy(self, k: Any) -> ca.SX:
        self.check(k.system)
        mass, position = mass_center(k, self.frame)
        return -mass * ca.dot(ca.vertcat(*map(k.number, (self.x, self.y, self.z))), position)


@dataclass(frozen=True, repr=False)
class Gravitation(Potential):
    """Newton's gravitation between two point masses ([T] IV-C1).

    V = -G m1 m2 / |p1 - p2|.

    Parameters
    ----------
    frame1, frame2 : str
        Frames with masses; p1, p2 are their centres, which must not coincide.
    constant : number
        G >= 0, m^3/(kg s^2).
    """

    keyword: ClassVar[str] = "GRAVITATION"

    frame1: str = frame()
    frame2: str = frame()
    constant: Number = number(6.6743e-11, minimum=0.0)

    def check(self, system: Any) -> None:
        check_mass(system, self.frame1)
        check_mass(system, self.frame2)

    def energy(self, k: Any) -> ca.SX:
        self.check(k.system)
        (m1, p1), (m2, p2) = mass_center(k, self.frame1), mass_center(k, self.frame2)
        return -k.number(self.constant) * m1 * m2 / ca.sqrt(ca.sumsqr(p1 - p2))


@dataclass(frozen=True, repr=False)
class LinearSpring(Potential):
    """Linear spring between the origins of two frames ([T] IV-C2).

    V = 1/2 k (|p1 - p2| - x0)^2.

    Parameters
    ----------
    frame1, frame2 : str
    stiffness : number
        N/m, >= 0.
    rest_length : number
        m, >= 0. At zero rest length V = 1/2 k |p1 - p2|^2 is smooth also where the points meet; at any other
        rest length V has a kink there, the force has no direction and is set to zero.
    """

    keyword: ClassVar[str] = "LINEAR-SPRING"

    frame1: str = frame()
    frame2: str = frame()
    stiffness: Number = number(minimum=0.0)
    rest_length: Number = number(0.0, minimum=0.0)

    def energy(self, k: Any) -> ca.SX:
        d = k.position(self.frame1) - k.position(self.frame2)
        stiffness = k.number(self.stiffness)
        if self.rest_length == 0.0:
            return 0.5 * stiffness * ca.dot(d, d)
        return 0.5 * stiffness * (ca.sqrt(ca.dot(d, d)) - k.number(self.rest_length)) ** 2


@dataclass(frozen=True, repr=False)
class TorsionalSpring(Potential):
    """Linear spring on one joint variable q, with V = 1/2 k (q - q0)^2.

    Parameters
    ----------
    variable : str
        An angle (k in N m/rad) or a translation (k in N/m).
    stiffness : number
        >= 0.
    rest : number
        q0, rad or m.
    """

    keyword: ClassVar[str] = "TORSIONAL-SPRING"

    variable: str = variable()
    stiffness: Number = number(minimum=0.0)
    rest: Number = number(0.0)

    def energy(self, k: Any) -> ca.SX:
        return 0.5 * k.number(self.stiffness) * (k.q(self.variable) - k.number(self.rest)) ** 2


@dataclass(frozen=True, repr=False)
class PolynomialSpring(Potential):
    """Nonlinear spring on one joint variable q: F = -sum_n k_n (q - q0)^n ([T] IV-C2).

    n = 1, 2, ..., and V = sum_n k_n (q - q0)^(n + 1) / (n + 1). ``PolynomialSpring("q", (1.0, 0.0,
    0.3))`` is Duffing's.

    Parameters
    ----------
    variable : str
        An angle or a translation.
    coefficients : numbers
        k_1, k_2, ...: N m/rad^n or N/m^n.
    rest : number
        q0, rad or m.
    """

    keyword: ClassVar[str] = "POLYNOMIAL-SPRING"

    variable: str = variable()
    coefficients: tuple[Number, ...] = numbers()
    rest: Number = number(0.0)

    def energy(self, k: Any) -> ca.SX:
        x = k.q(self.variable) - k.number(self.rest)
        inner: Any = 0.0
        for n, c in reversed(list(enumerate(self.coefficients, 1))):  # Horner's scheme
            inner = k.number(c) / (n + 1) + x * inner
        return inner * x**2
