"""Inertia of a rotor that drives a joint through a gear (MuJoCo: armature)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from vioc.dynamics.description.component import Kinetic, number, variable
from vioc.dynamics.description.numbers import Number
from vioc.errors import ModelError


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
