"""Generalized forces without a potential ([T] IV-E)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from vioc.dynamics.description.component import Force, input_name, number, variable
from vioc.dynamics.description.numbers import Number


@dataclass(frozen=True, repr=False)
class JointDamping(Force):
    """Viscous damping of one variable: F = -c dq.

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
class JointForce(Force):
    """An input that acts on one variable: F = u (N or N m).

    Parameters
    ----------
    variable : str
    input : str
        Name of the input.
    """

    keyword: ClassVar[str] = "JOINT-FORCE"

    variable: str = variable()
    input: str = input_name()

    def generalized(self, k: Any) -> dict[str, Any]:
        return {self.variable: k.u(self.input)}
