"""Constraints between two joint variables: screws, gears and cams ([T] III-A, IV-D5)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import casadi as ca
import numpy as np

from vioc.checks import check_array
from vioc.dynamics.description.component import Constraint, number, numbers, shown, variable
from vioc.dynamics.description.joints import Axis, Joint, Massive, cylindrical, names_its_joint
from vioc.dynamics.description.numbers import Number, Variable
from vioc.dynamics.terms.user import UserConstraint
from vioc.errors import ModelError


class _Pair(Constraint):
    """Base class of constraints between two different joint variables."""

    def __post_init__(self) -> None:
        super().__post_init__()
        first, second = self.variable_names()
        if first == second:
            raise ModelError(f"{self.label()}: expected two different variables, got {first!r} twice")


@dataclass(frozen=True, repr=False)
class ScrewConstraint(_Pair):
    """Screw constraint, which couples a translation to a rotation by a pitch ([T] (39)).

    h = p q_angle - q_travel.

    Parameters
    ----------
    angle, travel : str
    pitch : number
        p, m/rad.
    """

    keyword: ClassVar[str] = "SCREW-CONSTRAINT"

    angle: str = variable()
    travel: str = variable()
    pitch: Number = number()

    def value(self, k: Any) -> ca.SX:
        return k.number(self.pitch) * k.q(self.angle) - k.q(self.travel)


@dataclass(frozen=True, repr=False)
class GearConstraint(_Pair):
    """Gear constraint, which couples two joint variables by a constant ratio ([T] III-A).

    h = q1 - r q2 - c. Two external gear wheels have r < 0; a rack and its pinion have r in m/rad.

    Parameters
    ----------
    variable1, variable2 : str
    ratio : number
        r = dq1/dq2, not 0.
    offset : number
        c, the value of q1 at q2 = 0; rad or m.
    """

    keyword: ClassVar[str] = "GEAR-CONSTRAINT"

    variable1: str = variable()
    variable2: str = variable()
    ratio: Number = number()
    offset: Number = number(0.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.ratio == 0:
            raise ModelError(
                f"{self.label()}: ratio: expected a number other than 0, got 0, which fixes "
                f"{self.variable1!r}; use a constant instead of the variable"
            )

    def value(self, k: Any) -> ca.SX:
        return k.q(self.variable1) - k.number(self.ratio) * k.q(self.variable2) - k.number(self.offset)


@dataclass(frozen=True, repr=False)
class CamConstraint(_Pair):
    """Cam constraint: the follower's position is a function of the cam's angle ([T] III-A).

    h = q_follower - lift(q_angle). lift(a) = sum_n c_n cos(n a) + sum_n s_n sin(n a) has the period of a turn
    and is smooth; `cam` fits it to samples, and accepts any function.

    Parameters
    ----------
    angle, follower : str
    cosines : numbers
        c_0 (the mean), c_1, c_2, ...: m, or rad for a follower that turns.
    sines : numbers
        s_1, s_2, ...
    """

    keyword: ClassVar[str] = "CAM-CONSTRAINT"

    angle: str = variable()
    follower: str = variable()
    cosines: tuple[Number, ...] = numbers()
    sines: tuple[Number, ...] = numbers((), least=0)

    def value(self, k: Any) -> ca.SX:
        a, lift = k.q(self.angle), k.number(self.cosines[0])
        for n, c in enumerate(self.cosines[1:], 1):
            lift = lift + k.number(c) * ca.cos(n * a)
        for n, s in enumerate(self.sines, 1):
            lift = lift + k.number(s) * ca.sin(n * a)
        return k.q(self.follower) - lift


@names_its_joint
def screw(
    name: str | Variable,
    pitch: Number,
    axis: Axis = "z",
    *,
    frame: str | None = None,
    mass: Massive = None,
) -> Joint:
    """Make a screw joint that consists of a cylindrical joint and a `ScrewConstraint`.

    Its variables are ``NAME-angle`` and ``NAME-travel``, its constraint is ``NAME``. `helical` has one
    transform and one variable.

    Parameters
    ----------
    name : str, or `K`
        Kinematic: ``NAME-angle`` is prescribed, and the travel follows.
    pitch : number
        m/rad.
    axis, frame, mass
        As for `cylindrical`.
    """
    kinematic = isinstance(name, Variable) and name.kinematic
    name = name.name if isinstance(name, Variable) else name
    angle = Variable(f"{name}-angle", kinematic)
    joint = cylindrical(name, axis, angle=angle, frame=frame, mass=mass)
    thread = ScrewConstraint(angle.name, f"{name}-travel", pitch, name=name)
    return Joint((*joint, thread), joint.length)


def cam(
    angle: str,
    follower: str,
    profile: Callable[[Any], Any] | Sequence[float] | np.ndarray,
    *,
    name: str | None = None,
) -> Constraint:
    """Make a cam constraint q_follower = lift(q_angle), with a given lift function or table.

    Parameters
    ----------
    angle, follower : str
        Variables.
    profile : (n,) array, or function
        Lifts (m, or rad) at the angles 2 pi i / n of one turn, interpolated by the trigonometric polynomial
        of lowest degree; or the lift as a function of the angle in CasADi operations.

    Returns
    -------
    CamConstraint, or UserConstraint for a function

    Raises
    ------
    ModelError
        If there are no samples, or they are not finite numbers.
    """
    if callable(profile):
        return UserConstraint(_CamProfile(angle, follower, profile), name=name)
    try:
        samples = check_array(profile, (np.size(profile),), f"cam {angle!r}: profile")
    except ValueError as error:
        raise ModelError(str(error)) from None
    if not len(samples):
        raise ModelError(f"cam {angle!r}: profile: expected samples of the lift over one turn, got none")
    n = len(samples)
    spectrum = np.fft.rfft(samples) / n
    weights = np.full(len(spectrum), 2.0)
    weights[0] = 1.0
    if n % 2 == 0:
        weights[-1] = 1.0  # the highest frequency of an even number of samples appears once
    cosines, sines = weights * spectrum.real, -weights * spectrum.imag
    last = len(sines) - (n % 2 == 0)
    return CamConstraint(angle, follower, tuple(cosines), tuple(sines[1:last]), name=name)


@dataclass(frozen=True)
class _CamProfile:
    """Constraint function of a cam whose lift is defined by a user's function.

    It is a class so that it pickles and compares.
    """

    angle: str
    follower: str
    profile: Callable[[Any], Any]

    def __repr__(self) -> str:
        return f"cam({self.angle!r}, {self.follower!r}, {shown(self.profile)})"

    def __call__(self, k: Any) -> Any:
        return k.q(self.follower) - self.profile(k.q(self.angle))
