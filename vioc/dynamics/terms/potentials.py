"""Potential energies ([T] IV-C)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import casadi as ca

from vioc.dynamics.description.component import Potential, frame, number, variable
from vioc.dynamics.description.numbers import Number


@dataclass(frozen=True, repr=False)
class Gravity(Potential):
    """Uniform gravity on every mass: V = -sum_k m_k g . p_k ([T] (30)), p_k the centre of mass.

    Parameters
    ----------
    x, y, z : number
        The acceleration g, m/s^2, in the world's axes.
    """

    keyword: ClassVar[str] = "GRAVITY"

    x: Number = number()
    y: Number = number()
    z: Number = number()

    def energy(self, k: Any) -> ca.SX:
        g = ca.vertcat(k.number(self.x), k.number(self.y), k.number(self.z))
        return -sum((mass * ca.dot(g, position) for mass, position in k.masses()), ca.SX(0))


@dataclass(frozen=True, repr=False)
class LinearSpring(Potential):
    """A spring between the origins of two frames: V = 1/2 k (|p1 - p2| - x0)^2 ([T] IV-C2).

    Parameters
    ----------
    frame1, frame2 : str
    stiffness : number
        N/m, >= 0.
    rest_length : number
        m, >= 0. At zero rest length V = 1/2 k |p1 - p2|^2, smooth also where the points meet.
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
    """A spring on one configuration variable: V = 1/2 k (q - q0)^2.

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
