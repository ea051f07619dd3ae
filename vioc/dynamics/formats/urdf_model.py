"""What a URDF file holds besides the system: joints, limits, shapes, and what is not supported."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from vioc.dynamics.description.inertia import Mass
from vioc.dynamics.description.system import System
from vioc.errors import ModelError


class Unsupported(NamedTuple):
    """Something in a URDF file that the system does not have.

    Attributes
    ----------
    what : str
        The element (``"<gazebo>"``), attribute or property (``"friction"``).
    where : str
        The link or joint that holds it, or ``"robot"``.
    line : int
        In the file, from 1.
    """

    what: str
    where: str
    line: int


class Limit(NamedTuple):
    """Limits of a joint; infinite where the file gives none.

    Attributes
    ----------
    lower, upper : float
        rad or m.
    velocity, effort : float
        rad/s or m/s, N m or N.
    """

    lower: float = -math.inf
    upper: float = math.inf
    velocity: float = math.inf
    effort: float = math.inf


class UrdfJoint(NamedTuple):
    """A joint as the file has it.

    Attributes
    ----------
    type : str
        ``fixed``, ``revolute``, ``continuous``, ``prismatic``, ``planar`` or ``floating``.
    parent, child : str
        Names of links.
    variables : tuple of str
        The configuration variables that drive it.
    limit : Limit
    damping, friction : float
        Viscous (N m s/rad, N s/m) and Coulomb (N m, N); the latter is not in the system.
    mimic : (str, float, float) or None
        The joint that it follows, multiplier and offset.
    """

    type: str
    parent: str
    child: str
    variables: tuple[str, ...]
    limit: Limit = Limit()
    damping: float = 0.0
    friction: float = 0.0
    mimic: tuple[str, float, float] | None = None


class Shape(NamedTuple):
    """A visual or collision geometry.

    Attributes
    ----------
    frame : str
        The frame it is attached to.
    kind : str
        ``box``, ``cylinder``, ``sphere`` or ``mesh``.
    size : tuple of float
        Edges (x, y, z); (radius, length along z); (radius,); scale of a mesh. Metres.
    position, rotation : (3,) and (9,) tuples
        Pose in the frame, the rotation by rows.
    file : str or None
        Of a mesh, as written (``package://...``).
    color : (4,) tuple or None
        Red, green, blue, opacity, 0 to 1.
    """

    frame: str
    kind: str
    size: tuple[float, ...]
    position: tuple[float, ...]
    rotation: tuple[float, ...]
    file: str | None = None
    color: tuple[float, ...] | None = None


@dataclass(frozen=True)
class GivenMass(Mass):
    """A mass with an inertia that no body has, kept as the file gives it."""

    def _check(self) -> None:
        if float(self.mass) < 0:
            raise ModelError(f"mass: expected a number >= 0 (kg), got {float(self.mass)}")

    def __repr__(self) -> str:
        return "Given" + super().__repr__()


@dataclass(frozen=True)
class UrdfModel:
    """What a URDF file holds.

    Attributes
    ----------
    system : System
    joints : dict of str to UrdfJoint
        Every joint by its name in the file.
    limits : dict of str to Limit
        Of every variable that a joint with limits drives.
    visuals, collisions : tuples of Shape
    unsupported : tuple of Unsupported
        What the file says and the system does not have, with where and line.
    renamed : dict of str to str
        Names that vioc does not allow (``joint_1.0``), with what they became.
    """

    system: System
    joints: dict[str, UrdfJoint]
    limits: dict[str, Limit]
    visuals: tuple[Shape, ...]
    collisions: tuple[Shape, ...]
    unsupported: tuple[Unsupported, ...]
    renamed: dict[str, str]

    def __repr__(self) -> str:
        s = self.system
        return (
            f"UrdfModel({s.name}: {len(self.joints)} joints, {len(s.variables)} variables, "
            f"{len(s.inputs)} inputs, {len(s.constraints)} constraints, {len(self.unsupported)} unsupported)"
        )
