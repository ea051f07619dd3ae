"""Mechanisms that come with vioc: model files, and builders of families of models.

Load them by name::

    system = vioc.models.load("cart_pole")
    lift = vioc.models.load("scissor_lift:5")        # a family: number of segments
"""

from __future__ import annotations

import math
from collections.abc import Callable
from numbers import Integral
from pathlib import Path

from vioc.checks import similar
from vioc.dynamics.description.frame import Frame, rx, ry, tx, tz
from vioc.dynamics.description.inertia import Mass
from vioc.dynamics.description.system import System
from vioc.dynamics.formats import sexpr
from vioc.dynamics.kinematics import Kinematics
from vioc.dynamics.terms.constraints import DistanceConstraint, coincident
from vioc.dynamics.terms.potentials import Gravity
from vioc.errors import ModelError
from vioc.models.arm import seven_joint_arm
from vioc.models.family import RandomMechanism, mechanism, mechanisms

__all__ = [
    "RandomMechanism",
    "load",
    "marionette_configuration",
    "mechanism",
    "mechanisms",
    "n_link_pendulum",
    "names",
    "path",
    "scissor_lift",
    "scissor_lift_configuration",
    "seven_joint_arm",
]

_FOLDER = Path(__file__).parent


def names() -> tuple[str, ...]:
    """Return the names of the model files that come with vioc, sorted."""
    return tuple(sorted(file.stem for file in _FOLDER.glob("*.sexp")))


def path(name: str) -> Path:
    """Return the path of a model file; raise `ModelError` for an unknown name."""
    if name not in names():
        raise _unknown(name, names())
    return _FOLDER / f"{name}.sexp"


def load(name: str, n: int | None = None) -> System:
    """Return a mechanism that comes with vioc, by its name.
    If the name is that of a family, such as ``scissor_lift``, `n` is the number of links or segments.

    Parameters
    ----------
    name : str
        One of `names`, or a family: ``n_link_pendulum``, ``scissor_lift``.
    n : int, optional
        Number of links or segments of a family; ``load("scissor_lift:5")`` is equivalent.

    Raises
    ------
    ModelError
        If there is no such model, or `n` is missing, not a positive integer, or does not apply.
    """
    name = str(name)
    family, colon, number = name.partition(":")
    if colon:
        if n is not None or not number.isdecimal():
            raise ModelError(f"model {name!r}: expected one number of parts, as in 'scissor_lift:5'")
        n = int(number)
    if family in _FAMILIES:
        if n is None:
            raise ModelError(f"model {family!r} is a family: say of how many parts, as in '{family}:5'")
        return _FAMILIES[family](n)
    if family not in names():
        raise _unknown(family, (*names(), *_FAMILIES))
    if n is not None:
        raise ModelError(f"model {family!r} is not a family: it takes no number of parts, got {n}")
    return sexpr.read(path(family))


def n_link_pendulum(n: int) -> System:
    """Return a pendulum of `n` massless rods with point masses at their ends.
    It is the example of Johnson and Murphey (2009), section VI-A.

    Rods are 1 m long, with a mass of 1 kg at each end; g = 9.8 m/s^2. In the paper the masses also have
    rotational inertia. The paper does not give the inertia, the masses and the lengths; here the inertia
    is 0.

    The variable ``link-i`` (i = 0 ... n-1) is the angle of rod i about x relative to the one above; all zero
    hangs straight down. Rod i ends in the frame ``tip-i``.
    """
    _check_count(n)
    below: tuple[Frame, ...] = ()
    for i in reversed(range(n)):
        tip = tz(-1.0, name=f"tip-{i}", mass=1.0)[below]
        below = (rx(f"link-{i}", name=f"link-{i}")[tip],)
    return System(below, Gravity(0.0, 0.0, -9.8), name=f"n_link_pendulum_{n}")


def scissor_lift(
    n: int,
    *,
    length: float = 1.0,
    link_mass: float = 1.0,
    slider_mass: float = 1.0,
    inertia: float = 1e-3,
    g: float = 9.81,
) -> System:
    """Return a hanging scissor lift of `n` segments in the x-z plane.
    It is the example of Johnson and Murphey (2009), section VI-C.

    A segment is two links of equal length that cross at their centres. The first segment's left link hangs on
    a pin at the origin, its right link on a slider along x. The links of each further segment hang on the
    lower ends of the segment above, where the sides are swapped.

    Parameters
    ----------
    n : int
        Number of segments.
    length : float
        Length L of each link, m.
    link_mass : float
        Mass m_L at the centre of each link, kg.
    slider_mass : float
        Mass m_S of the slider, kg.
    inertia : float
        Inertia I of each link about its centre, across its axis, kg m^2; links are thin rods.
    g : float
        Acceleration of gravity along -z, m/s^2.

    Returns
    -------
    System
        A system of 2 n + 1 variables (``slider``; ``left-i`` and ``right-i``, i = 1 ... n, each angle
        relative to the link above) with 2 n point constraints ``pin-i-x``, ``pin-i-z`` that join the centres.
        It has one degree of freedom, the angle theta of the links from the horizontal.

    Notes
    -----
    On the constraints its Lagrangian is that of [T] VI-C, with misprints corrected::

        L = sum_{i=1}^n {m_L L^2 [(i - 1/2)^2 cos^2 th + 1/4 sin^2 th] + I} dth^2
            + 1/2 m_S L^2 sin^2 th dth^2 + 2 m_L g L sin th sum_{i=1}^n (i - 1/2)

    At th = pi/2 all links are collinear and the constraints singular.
    """
    _check_count(n)
    mass = Mass(link_mass, (0.0, inertia, inertia))
    left_below: tuple[Frame, ...] = ()
    right_below: tuple[Frame, ...] = ()
    for i in reversed(range(1, n + 1)):
        # The left link ends on the right side, so the next right link hangs on it, and vice versa.
        left_below, right_below = (
            (_link(f"left-{i}", length, mass, right_below),),
            (_link(f"right-{i}", -length, mass, left_below),),
        )
    pins = [
        coincident(f"left-{i}-centre", f"right-{i}-centre", "xz", name=f"pin-{i}") for i in range(1, n + 1)
    ]
    slider = tx("slider", name="slider", mass=slider_mass)[right_below]
    return System(left_below, slider, Gravity(0.0, 0.0, -g), pins, name=f"scissor_lift_{n}")


def _link(name: str, reach: float, mass: Mass, below: tuple[Frame, ...]) -> Frame:
    """Return the frame of a link that extends along the frame's x axis.
    The link has the length `reach`, with its mass at its centre. The frames `below` are attached to the
    link's end.
    """
    centre = tx(0.5 * reach, name=f"{name}-centre", mass=mass)
    return ry(name, name=name)[centre, tx(reach, name=f"{name}-end")[below]]


def scissor_lift_configuration(n: int, theta: float, *, length: float = 1.0) -> dict[str, float]:
    """Return the configuration of a scissor lift, given the angle of its links.
    The angle `theta` is measured from the horizontal, rad.
    """
    _check_count(n)
    q = {"slider": length * math.cos(theta)}
    for i in range(1, n + 1):
        turn = theta if i == 1 else 2 * theta  # the link above has the opposite slope
        q[f"left-{i}"], q[f"right-{i}"] = turn, -turn
    return q


def marionette_configuration() -> dict[str, float]:
    """Return the initial configuration of the model ``marionette``.
    The model is that of Johnson, Schultz and Murphey (2015), section VIII-B.

    It sits in the air with raised forearms. Each string is taut and vertical: its control is above its hook.
    Joints not named are at zero.
    """
    system = load("marionette")
    q = {"torso_rx": -0.05}
    for side in "lr":
        bend = math.pi / 2 - 0.6
        q |= {f"{side}hip_rx": bend, f"{side}knee_rx": -bend, f"{side}elbow_rx": 1.57}
    kinematics = Kinematics(system)
    height = float(kinematics.position("string_plane", q)[2])
    for string in system.constraints:
        assert isinstance(string, DistanceConstraint)
        x, y, z = map(float, kinematics.position(string.frame1, q))
        q |= {f"{string.name}-x": x, f"{string.name}-y": y, f"{string.name}-length": height - z}
    return q


def _check_count(n: object) -> None:
    if isinstance(n, bool) or not isinstance(n, Integral) or n < 1:
        raise ModelError(f"the number of parts is a positive integer, got {n!r}")


def _unknown(name: str, known: tuple[str, ...]) -> ModelError:
    near = similar(name, known)
    hint = f"did you mean {' or '.join(map(repr, near))}?" if near else f"known are {', '.join(known)}"
    return ModelError(f"unknown model {name!r}; {hint}")


_FAMILIES: dict[str, Callable[[int], System]] = {
    "n_link_pendulum": n_link_pendulum,
    "scissor_lift": scissor_lift,
}
