"""Nonlinear springs: springs with backlash, and springs with tabulated forces (docs/components.md)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import casadi as ca
import numpy as np

from vioc.dynamics.description.component import Potential, frame, number, numbers, variable
from vioc.dynamics.description.numbers import Number, Parameter
from vioc.errors import ModelError


@dataclass(frozen=True, repr=False)
class Backlash(Potential):
    """Spring with backlash between two joint variables, such as those of a gear or a coupling.

    The spring is slack within the backlash.

    With x = q1 - r q2 and the corners rounded over s the force on q1 is

        F = -k (x + (sqrt((x - b)^2 + s^2) - sqrt((x + b)^2 + s^2)) / 2),

    which is -k (x - b) far above b, -k (x + b) far below -b, and nearly 0 between.

    Parameters
    ----------
    variable1, variable2 : str
    ratio : number
        r = dq1/dq2 without backlash.
    gap : number
        b >= 0, half the backlash, rad or m at q1.
    stiffness : number
        k >= 0, N m/rad or N/m at q1.
    rounding : number
        s > 0, rad or m.
    """

    keyword: ClassVar[str] = "BACKLASH"

    variable1: str = variable()
    variable2: str = variable()
    ratio: Number = number()
    gap: Number = number(minimum=0.0)
    stiffness: Number = number(minimum=0.0)
    rounding: Number = number(1e-3, positive="number")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.variable1 == self.variable2:
            raise ModelError(
                f"{self.label()}: expected two different variables, got {self.variable1!r} twice"
            )

    def energy(self, k: Any) -> ca.SX:
        x = k.q(self.variable1) - k.number(self.ratio) * k.q(self.variable2)
        b, s = k.number(self.gap), k.number(self.rounding)

        def rounded(y: Any) -> Any:  # the integral of sqrt(y^2 + s^2)
            return (y * ca.sqrt(y**2 + s**2) + s**2 * ca.asinh(y / s)) / 2

        return k.number(self.stiffness) / 2 * (x**2 + rounded(x - b) - rounded(x + b) + 2 * rounded(b))


class _Table(Potential):
    """Base class of springs whose force is a cubic spline through tabulated values.

    The natural cubic spline is linear beyond its ends.
    """

    at: tuple[Number, ...]
    forces: tuple[Number, ...]

    def __post_init__(self) -> None:
        super().__post_init__()
        if any(isinstance(v, Parameter) for v in (*self.at, *self.forces)):
            raise ModelError(f"{self.label()}: a table contains numbers, not parameters")
        if len(self.at) != len(self.forces) or len(self.at) < 2:
            raise ModelError(
                f"{self.label()}: expected as many forces as places, two or more, got {len(self.forces)} "
                f"forces at {len(self.at)} places"
            )
        if not (np.diff(np.array(self.at, float)) > 0).all():
            raise ModelError(f"{self.label()}: at: expected increasing places, got {self.at}")

    def work(self, x: ca.SX) -> ca.SX:
        """Return the integral of the spline of the tabulated force, from the table's first position to x.

        f = f_0 + s (x - x_0) + sum_i j_i/6 max(x - x_i, 0)^3, where j_i are the jumps of the third
        derivative.
        """
        places, forces = np.array(self.at, float), np.array(self.forces, float)
        width, rise = np.diff(places), np.diff(forces) / np.diff(places)
        bends = np.zeros(len(places))  # second derivatives: 0 at the ends
        if len(places) > 2:
            inner = np.diag(2 * (width[:-1] + width[1:])) + np.diag(width[1:-1], 1) + np.diag(width[1:-1], -1)
            bends[1:-1] = np.linalg.solve(inner, 6 * np.diff(rise))
        third = np.concatenate([[0.0], np.diff(bends) / width, [0.0]])
        y = x - places[0]
        total = forces[0] * y + (rise[0] - width[0] * bends[1] / 6) / 2 * y**2
        for place, step in zip(places, np.diff(third), strict=True):
            total = total + step / 24 * ca.fmax(x - place, 0) ** 4
        return total


@dataclass(frozen=True, repr=False)
class TableSpring(_Table):
    """Spring on one joint variable q with the force -f(q), where f interpolates a table.

    f is the natural cubic spline of the table.

    Parameters
    ----------
    variable : str
    at : numbers
        Increasing values of q, rad or m.
    forces : numbers
        f at these, N m or N; positive pulls towards smaller q.
    """

    keyword: ClassVar[str] = "TABLE-SPRING"

    variable: str = variable()
    at: tuple[Number, ...] = numbers(least=2)
    forces: tuple[Number, ...] = numbers(least=2)

    def energy(self, k: Any) -> ca.SX:
        return self.work(k.q(self.variable))


@dataclass(frozen=True, repr=False)
class TableStrut(_Table):
    """Spring between the origins of two frames, whose tension is tabulated over their distance.

    Parameters
    ----------
    frame1, frame2 : str
        Their origins must not coincide.
    at : numbers
        Increasing lengths, m.
    forces : numbers
        Pull at these, N; negative pushes.
    """

    keyword: ClassVar[str] = "TABLE-STRUT"

    frame1: str = frame()
    frame2: str = frame()
    at: tuple[Number, ...] = numbers(least=2)
    forces: tuple[Number, ...] = numbers(least=2)

    def energy(self, k: Any) -> ca.SX:
        return self.work(ca.sqrt(ca.sumsqr(k.position(self.frame1) - k.position(self.frame2))))
