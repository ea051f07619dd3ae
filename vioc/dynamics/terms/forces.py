"""Generalized forces without a potential ([T] IV-E).

Maths of friction: docs/components.md.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, ClassVar

import casadi as ca

from vioc.dynamics.description.component import Force, frame, input_name, number, variable
from vioc.dynamics.description.numbers import Number


class RateForce(Force):
    """Base class of forces that one method computes for all variables.
    The method `by_rates` returns the generalized forces f on all configuration variables as one column. Their
    power is f . v_vector, with the column `v_vector` of the rates of these variables.
    """

    def by_rates(self, k: Any) -> ca.SX:
        """Return the generalized forces on all configuration variables, as a column.
        The order is that of the variables in q.
        """
        raise TypeError(f"{type(self).__name__} must define by_rates(k)")

    def generalized(self, k: Any) -> dict[str, Any]:
        forces = zip(k.system.variables, ca.vertsplit(self.by_rates(k)), strict=True)
        return {name: force for name, force in forces if not force.is_zero()}


@dataclass(frozen=True, repr=False)
class JointDamping(Force):
    """Viscous damping of one joint variable: F = -c dq.

    Parameters
    ----------
    variable : str
    coefficient : number
        c >= 0, N m s/rad or N s/m.
    """

    keyword: ClassVar[str] = "JOINT-DAMPING"

    variable: str = variable()
    coefficient: Number = number(minimum=0.0)

    def generalized(self, k: Any) -> dict[str, Any]:
        return {self.variable: -k.number(self.coefficient) * k.v(self.variable)}


@dataclass(frozen=True, repr=False)
class LinearDamper(RateForce):
    """Viscous damper between the origins of two frames.

    The force is -c dx/dt along their line. With x = |p1 - p2| the generalized force is F = -c (dx/dt) dx/dq.
    It has no direction where the points meet.

    Parameters
    ----------
    frame1, frame2 : str
    coefficient : number
        c >= 0, N s/m.
    """

    keyword: ClassVar[str] = "LINEAR-DAMPER"

    frame1: str = frame()
    frame2: str = frame()
    coefficient: Number = number(minimum=0.0)

    def by_rates(self, k: Any) -> ca.SX:
        slope = k.slope(ca.sqrt(ca.sumsqr(k.position(self.frame1) - k.position(self.frame2))))
        return -k.number(self.coefficient) * ca.dot(slope, k.v_vector) * slope


@dataclass(frozen=True, repr=False)
class JointForce(Force):
    """Input u that acts on one joint variable as a force or torque F = g u, with a constant gain g.

    Parameters
    ----------
    variable : str
    input : str
        Name of the input.
    gain : number
        g of a gear, or of a drive whose input is not a force. By default 1, and u is in N or N m.
    """

    keyword: ClassVar[str] = "JOINT-FORCE"

    variable: str = variable()
    input: str = input_name()
    gain: Number = number(1.0)

    def generalized(self, k: Any) -> dict[str, Any]:
        return {self.variable: k.number(self.gain) * k.u(self.input)}

    def input_unit(self, rotational: Collection[str]) -> str:
        return super().input_unit(rotational) if self.gain == 1.0 else ""


@dataclass(frozen=True, repr=False)
class JointFriction(Force):
    """Smooth friction force on one joint variable, with Coulomb, Stribeck and viscous parts.

    F = -(F_c + (F_s - F_c) exp(-(v/v_s)^2)) tanh(v/v_0) - c v, with the rate v of the variable. It never
    sticks: under a force F below F_s a joint creeps at the rate v_0 artanh(F/F_s). A small v_0 costs
    iterations of the implicit step, but no stability. `DryFriction` on `ContactVI` sticks.

    Parameters
    ----------
    variable : str
    coulomb : number
        F_c >= 0, N or N m.
    viscous : number
        c >= 0, N s/m or N m s/rad.
    breakaway : number
        F_s, N or N m; 0 for F_c, without the Stribeck effect.
    stribeck : number
        v_s > 0, m/s or rad/s, at which the Stribeck effect has fallen to 1/e.
    smoothing : number
        v_0 > 0, m/s or rad/s, at which tanh is 0.76.
    """

    keyword: ClassVar[str] = "JOINT-FRICTION"

    variable: str = variable()
    coulomb: Number = number(minimum=0.0)
    viscous: Number = number(0.0, minimum=0.0)
    breakaway: Number = number(0.0, minimum=0.0)
    stribeck: Number = number(0.1, positive="speed")
    smoothing: Number = number(0.01, positive="speed")

    def generalized(self, k: Any) -> dict[str, Any]:
        v, level = k.v(self.variable), k.number(self.coulomb)
        if self.breakaway != 0.0:
            hump = ca.exp(-((v / k.number(self.stribeck)) ** 2))
            level = level + (k.number(self.breakaway) - level) * hump
        return {self.variable: -level * ca.tanh(v / k.number(self.smoothing)) - k.number(self.viscous) * v}
