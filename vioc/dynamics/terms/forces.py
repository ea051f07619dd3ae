"""Generalized forces without a potential ([T] IV-E)."""

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
