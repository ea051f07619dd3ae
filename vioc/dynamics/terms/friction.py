"""Smooth model of joint friction, with Coulomb, Stribeck and viscous parts.

Maths: docs/components.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import casadi as ca

from vioc.dynamics.description.component import Force, number, variable
from vioc.dynamics.description.numbers import Number


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
