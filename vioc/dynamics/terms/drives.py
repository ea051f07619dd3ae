"""Motors with gears, inertias of rotors, tendon forces and propellers.

Maths: docs/components.md.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, ClassVar

import casadi as ca

from vioc.dynamics.description.component import (
    Force,
    Kinetic,
    direction,
    frame,
    input_name,
    number,
    numbers,
    variable,
    variables,
)
from vioc.dynamics.description.numbers import Number
from vioc.dynamics.terms.forces import RateForce
from vioc.errors import ModelError

Vector3 = tuple[Number, Number, Number]


@dataclass(frozen=True, repr=False)
class Motor(Force):
    """Direct-current motor with a gear, whose input is the voltage; its inductance is neglected.

    i = (u - k n dq) / R, and n k i acts on the joint. With a limit i_max > 0 the current is
    i_max tanh(i / i_max): smooth, and never above it; at a third of i_max it is 4 % below i. Without a limit
    a free joint of inertia I reaches the speed u/(k n) with the time constant (I + n^2 J) R / (k n)^2, where
    J is the inertia of the rotor.

    Parameters
    ----------
    variable : str
        Variable of the joint: an angle, or a displacement with n in 1/m.
    input : str
        Name of the voltage u, V.
    constant : number
        k, N m/A and V s/rad: torque per current and back-EMF per speed are one number in SI units.
    resistance : number
        R > 0, Ohm.
    gear : number
        n, turns of the rotor per turn of the joint; 1 without a gear.
    current_limit : number
        i_max, A; 0 for none.
    """

    keyword: ClassVar[str] = "MOTOR"

    variable: str = variable()
    input: str = input_name()
    constant: Number = number(minimum=0.0)
    resistance: Number = number(positive="number (Ohm)")
    gear: Number = number(1.0)
    current_limit: Number = number(0.0, minimum=0.0)

    def current(self, k: Any) -> ca.SX:
        """Return the current of the motor, A, as a symbolic expression."""
        constant, n = k.number(self.constant), k.number(self.gear)
        free = (k.u(self.input) - constant * n * k.v(self.variable)) / k.number(self.resistance)
        if self.current_limit == 0.0:
            return free
        most = k.number(self.current_limit)
        return most * ca.tanh(free / most)

    def generalized(self, k: Any) -> dict[str, Any]:
        return {self.variable: k.number(self.gear) * k.number(self.constant) * self.current(k)}

    def input_unit(self, rotational: Collection[str]) -> str:
        return "V"


@dataclass(frozen=True, repr=False)
class TendonForce(Force):
    """Input force u that acts on several variables with the coefficients c_i: F_i = c_i u.
    An example is a tendon over pulleys.

    The tendon's length is the sum of c_i q_i, and u its tension if lengths are in m.

    Parameters
    ----------
    variables : tuple of str
    coefficients : tuple of numbers
        c_i, one for each variable: the radius of a pulley, m, with the sign of the rotation by the tendon.
    input : str
        Name of the input u.
    """

    keyword: ClassVar[str] = "TENDON-FORCE"

    variables: tuple[str, ...] = variables()
    coefficients: tuple[Number, ...] = numbers()
    input: str = input_name()

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.coefficients) != len(self.variables):
            raise ModelError(
                f"{self.label()}: expected {len(self.variables)} coefficients, one for each variable, got "
                f"{len(self.coefficients)}"
            )

    def generalized(self, k: Any) -> dict[str, Any]:
        pairs = zip(self.variables, self.coefficients, strict=True)
        return {name: k.number(c) * k.u(self.input) for name, c in pairs}

    def input_unit(self, rotational: Collection[str]) -> str:
        return ""


def motor(
    variable: str,
    input: str,
    constant: Number,
    resistance: Number,
    *,
    rotor: Number,
    gear: float = 1.0,
    current_limit: Number = 0.0,
    name: str | None = None,
) -> tuple[Motor, RotorInertia]:
    """Return a direct-current motor, and the inertia of its rotor at the joint.
    The inertia at the joint is the rotor's moment of inertia, kg m^2, times the squared gear ratio.

    At the joint the inertia is n^2 J, and the kinetic energy is T = 1/2 n^2 J dq^2.
    """
    drive = Motor(variable, input, constant, resistance, gear, current_limit, name=name)
    return drive, RotorInertia(variable, rotor * gear**2)


@dataclass(frozen=True, repr=False)
class Propeller(RateForce):
    """Propeller whose input is its speed, with a thrust along its axis and a drag moment about it.

    The thrust is c u sqrt(u^2 + w^2). For |u| far above w it is c u |u|; its slope and curvature at u = 0 are
    finite. If the input is the thrust itself, use `WrenchInput`.

    Parameters
    ----------
    frame : str
        Frame at its hub.
    input : str
        Name of the speed u, rad/s.
    axis : 3 numbers
        Direction of thrust in the frame's axes, normalized by the propeller.
    thrust : number
        c, N s^2/rad^2.
    torque : number
        Moment about the axis divided by u sqrt(u^2 + w^2), N m s^2/rad^2; its sign is the sense of rotation.
    rounding : number
        w > 0, rad/s.
    """

    keyword: ClassVar[str] = "PROPELLER"

    frame: str = frame()
    input: str = input_name()
    axis: Vector3 = direction()
    thrust: Number = number(minimum=0.0)
    torque: Number = number(0.0)
    rounding: Number = number(1.0, minimum=0.0)

    def by_rates(self, k: Any) -> ca.SX:
        u, axis = k.u(self.input), ca.vertcat(*map(k.number, self.axis))
        size = u * ca.sqrt(u**2 + k.number(self.rounding) ** 2) / ca.sqrt(ca.sumsqr(axis))
        wrench = ca.vertcat(k.number(self.thrust) * axis, k.number(self.torque) * axis) * size
        return ca.jtimes(k.body_velocity(self.frame), k.v_vector, wrench, True)

    def input_unit(self, rotational: Collection[str]) -> str:
        return "rad/s"


@dataclass(frozen=True, repr=False)
class RotorInertia(Kinetic):
    """Kinetic energy T = 1/2 a (dq/dt)^2 of a rotor behind a gear, with a = n^2 J.
    q is the joint variable, n the gear ratio and J the rotor's moment of inertia.

    The rotor turns n times as fast as its joint. Its mass belongs to the link that carries it. Its rotation
    together with the links before its joint is neglected; the neglected terms of its inertia are of order n
    and lower. In MJCF this is ``armature``.

    Parameters
    ----------
    variable : str
        Variable of a frame.
    inertia : number
        a >= 0 at the joint, kg m^2 or kg.
    """

    keyword: ClassVar[str] = "ROTOR-INERTIA"

    variable: str = variable()
    inertia: Number = number(minimum=0.0)

    def check(self, system: Any) -> None:
        driven = [n.frame.transform.variable for n in system.nodes]
        if self.variable not in [v.name for v in driven if v is not None]:
            raise ModelError(f"expected a variable that moves a frame, got {self.variable!r}")


def refuse_rotors(system: Any, integrator: str) -> None:
    """Raise `ModelError` if the system has rotors that an integrator cannot model.

    Such integrators sum the energies of bodies only.
    """
    if system.kinetic:
        raise ModelError(
            f"{system.name}: {integrator} has no {system.kinetic[0].label()}; use MidpointVI, or give "
            "the rotor a frame of its own with a GearConstraint"
        )
