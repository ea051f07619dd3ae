"""Elastic rope over a drum, with a free span on each side and capstan friction on the drum.

Maths: docs/components.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import casadi as ca

from vioc.dynamics.description.component import Force, Potential, frame, number, variable, vector
from vioc.dynamics.description.numbers import Number
from vioc.dynamics.terms.cables import Way, way_over

_Y = (0.0, 1.0, 0.0)


class _Rope:
    """Base class of potentials and forces of an elastic rope over a drum.
    The class computes the tensions of the rope's two free spans.

    Subclasses have the fields frame1, frame2, sheave, radius, axis, slip, length and stiffness.
    """

    def tensions(self, k: Any) -> tuple[ca.SX, ca.SX, Way]:
        """Return the tensions of the two free spans of the rope, N, and the path of the rope.

        They are k (l_1 - L/2 - s) and k (l_2 - L/2 + s). Half of the arc belongs to each span.
        """
        way = way_over(k, self.sheave, self.radius, self.axis, self.frame1, self.frame2)  # type: ignore[attr-defined]
        half, s = k.number(self.length) / 2, k.q(self.slip)  # type: ignore[attr-defined]
        arc, stiffness = k.number(self.radius) * way.wrap / 2, k.number(self.stiffness)  # type: ignore[attr-defined]
        return stiffness * (way.first + arc - half - s), stiffness * (way.last + arc - half + s), way


@dataclass(frozen=True, repr=False)
class DrumRope(_Rope, Potential):
    """Elastic rope that runs from one point over a drum to another point.
    The length of rope that slips over the drum is a configuration variable.

    V = (T_1^2 + T_2^2)/(2 k) with the tensions T_1 and T_2 of its two spans. The slip s is a variable: the
    length of rope that has moved to the first span. Without `CapstanFriction` both tensions are equal up to
    the inertia that moves with s. The rope runs counter-clockwise about the axis from frame1 to frame2, as a
    `SheaveString`, and must be taut.

    Parameters
    ----------
    frame1, frame2 : str
    sheave : str
        Frame at the drum's centre.
    slip : str
        The variable s, m, of a frame with the rope's mass (`tx("slip", mass=...)`).
    length : number
        Unloaded length L > 0, m.
    stiffness : number
        k of each span, N/m.
    radius : number
        m, > 0.
    axis : 3 numbers
        Axis in the drum's frame.
    """

    keyword: ClassVar[str] = "DRUM-ROPE"

    frame1: str = frame()
    frame2: str = frame()
    sheave: str = frame()
    slip: str = variable()
    length: Number = number(minimum=0.0)
    stiffness: Number = number(minimum=0.0)
    radius: Number = number(minimum=0.0)
    axis: tuple[Number, Number, Number] = vector(_Y)

    def energy(self, k: Any) -> ca.SX:
        first, last, _ = self.tensions(k)
        return (first**2 + last**2) / (2 * k.number(self.stiffness))


@dataclass(frozen=True, repr=False)
class CapstanFriction(_Rope, Force):
    """Friction of a rope on its drum by the capstan equation (Euler, Eytelwein), for a `DrumRope`.

    Sliding begins at T_1/T_2 = exp(mu phi). The difference of tensions is then (T_1 + T_2) tanh(mu phi/2),
    and the force on s is

        F = -(T_1 + T_2) tanh(mu phi/2) tanh(ds/v_0),

    with the arc phi of the rope on the drum, 0 if the rope does not touch it. Below that ratio the rope
    creeps, with a speed of about v_0 times the fraction of the friction that is needed.

    Parameters
    ----------
    frame1, frame2, sheave, slip, length, stiffness, radius, axis
        As in the rope.
    friction : number
        mu >= 0.
    smoothing : number
        v_0 > 0, m/s.
    """

    keyword: ClassVar[str] = "CAPSTAN-FRICTION"

    frame1: str = frame()
    frame2: str = frame()
    sheave: str = frame()
    slip: str = variable()
    length: Number = number(minimum=0.0)
    stiffness: Number = number(minimum=0.0)
    radius: Number = number(minimum=0.0)
    friction: Number = number(minimum=0.0)
    axis: tuple[Number, Number, Number] = vector(_Y)
    smoothing: Number = number(1e-3, positive="speed")

    def generalized(self, k: Any) -> dict[str, Any]:
        first, last, way = self.tensions(k)
        pull = ca.fmax(first + last, 0.0)  # a slack rope has no friction
        most = pull * ca.tanh(k.number(self.friction) * way.wrap / 2)
        return {self.slip: -most * ca.tanh(k.v(self.slip) / k.number(self.smoothing))}


def capstan_rope(
    frame1: str,
    frame2: str,
    sheave: str,
    slip: str,
    *,
    length: Number,
    stiffness: Number,
    radius: Number,
    friction: Number,
    axis: tuple[Number, Number, Number] = _Y,
    smoothing: Number = 1e-3,
) -> tuple[DrumRope, CapstanFriction]:
    """Return an elastic rope over a drum (`DrumRope`) and its friction (`CapstanFriction`)."""
    rope = frame1, frame2, sheave, slip, length, stiffness, radius
    return DrumRope(*rope, axis), CapstanFriction(*rope, friction, axis, smoothing)
