"""Class `Robot`: the content of a robot file, with system, joints, limits, shapes and unsupported parts."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from vioc.checks import near_misses, similar
from vioc.dynamics.description.inertia import Mass
from vioc.dynamics.description.system import System
from vioc.dynamics.formats.meshes import mesh_corners, mesh_file, mesh_folders
from vioc.dynamics.terms import contact_shapes as contact
from vioc.dynamics.terms.contacts import Contact, PairContact
from vioc.dynamics.terms.forces import JointForce
from vioc.errors import ModelError, RobotWarning

KINDS = "position", "velocity", "effort"
_FORBIDDEN = re.compile(r"[\s.:\"()\\\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def cleaned(name: str) -> str:
    """Return a name in which underscores replace the characters that names in vioc cannot contain."""
    return _FORBIDDEN.sub("_", name)


class Unsupported(NamedTuple):
    """Part of a robot file that the system does not represent.

    Attributes
    ----------
    what : str
        The element (``"<gazebo>"``), attribute or property (``"friction"``).
    where : str
        The link or joint that contains it, or ``"robot"``.
    line : int
        Line in the file, from 1; 0 if it is unknown.
    """

    what: str
    where: str
    line: int


class Limit(NamedTuple):
    """Limits of a joint's position, velocity and force, infinite where the file has no limit.

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


class RobotJoint(NamedTuple):
    """Joint of a robot file, with its kind, variables and limits.

    Attributes
    ----------
    type : str
        ``fixed``, ``revolute``, ``continuous``, ``prismatic``, ``planar``, ``ball`` or ``floating``.
    parent, child : str
        Names of links.
    variables : tuple of str
        Configuration variables of the joint.
    limit : Limit
    damping, friction : float
        Viscous (N m s/rad, N s/m) and Coulomb (N m, N); the system does not contain the latter.
    mimic : (str, float, float) or None
        Joint that it follows, multiplier and offset.
    """

    type: str
    parent: str
    child: str
    variables: tuple[str, ...]
    limit: Limit = Limit()
    damping: float = 0.0
    friction: float = 0.0
    mimic: tuple[str, float, float] | None = None


class RobotGeometry(NamedTuple):
    """Visual or collision geometry of a link.

    Attributes
    ----------
    frame : str
        Frame that carries it.
    kind : str
        ``box``, ``cylinder``, ``sphere``, ``capsule`` or ``mesh``.
    size : tuple of float
        Edges (x, y, z); (radius, length along z), for a capsule between the balls; (radius,); scale of a
        mesh. Metres.
    position, rotation : (3,) and (9,) tuples
        Pose in the frame, the rotation by rows.
    file : str or None
        File of a mesh, as written (``package://...``).
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
    """Mass of a link with a physically impossible inertia, which is kept as the robot file has it."""

    def _check(self) -> None:
        if float(self.mass) < 0:
            raise ModelError(f"mass: expected a number >= 0 (kg), got {float(self.mass)}")

    def __repr__(self) -> str:
        return "Given" + super().__repr__()


@dataclass(frozen=True)
class Robot:
    """Robot read from a URDF or MJCF file: its system, joints, limits and shapes.

    Attributes
    ----------
    system : System
    joints : dict of str to RobotJoint
        Every joint by its name in the file.
    limits : dict of str to Limit
        Limits of joints by variable.
    visuals, collisions : tuples of RobotGeometry
    unsupported : tuple of Unsupported
        Parts of the file that the system does not represent, with place and line.
    renamed : dict of str to str
        New names by the names that vioc does not allow (``joint_1.0``).
    controls : dict of str to (lower, upper)
        Ranges of the inputs that are a file's actuators; empty for URDF, where efforts are limits of joints.
    """

    system: System
    joints: dict[str, RobotJoint]
    limits: dict[str, Limit]
    visuals: tuple[RobotGeometry, ...]
    collisions: tuple[RobotGeometry, ...]
    unsupported: tuple[Unsupported, ...]
    renamed: dict[str, str]
    controls: dict[str, tuple[float, float]] = field(default_factory=dict)

    def shapes(
        self, *, corners: int = 20, cylinders: str = "hull", meshes: Any = None
    ) -> dict[str, tuple[contact.Shape, ...]]:
        """Return the collision shapes of each link as contact shapes, by the name of the link's frame.

        Parameters
        ----------
        corners : int
            Largest number of corners of the hulls of meshes and cylinders.
        cylinders : "hull" or "capsule"
            Both lie within the cylinder.
        meshes : path or paths, optional
            Folders in which meshes are looked up, before those of ``ROS_PACKAGE_PATH``.

        Returns
        -------
        dict of str to tuple of Sphere, Capsule, Box or Hull

        Raises
        ------
        FileNotFoundError, ImportError
            If a mesh is in none of these folders, or trimesh is not installed.
        """
        if cylinders not in ("hull", "capsule"):
            raise ModelError(f"cylinders: expected 'hull' or 'capsule', got {cylinders!r}")
        shapes: dict[str, tuple[contact.Shape, ...]] = {}
        for item in self.collisions:
            R, center = np.reshape(item.rotation, (3, 3)), tuple(map(float, item.position))
            if item.kind == "sphere":
                shape: contact.Shape = contact.Sphere(item.size[0], center)  # type: ignore[arg-type]
            elif item.kind == "box":
                shape = contact.Box(item.size, center, item.rotation)  # type: ignore[arg-type]
            elif item.kind == "capsule" or (
                item.kind == "cylinder" and cylinders == "capsule" and item.size[1] > 2 * item.size[0]
            ):
                radius, length = item.size
                length += 2 * radius * (item.kind == "capsule")
                axis = tuple(map(float, R[:, 2]))
                shape = contact.Capsule(radius, length - 2 * radius, axis, center)  # type: ignore[arg-type]
            else:
                if item.kind == "cylinder":
                    radius, length = item.size
                    angle = 2 * np.pi * np.arange(max(corners // 2, 3)) / max(corners // 2, 3)
                    rim = np.column_stack([radius * np.cos(angle), radius * np.sin(angle), 0 * angle])
                    points = np.vstack([rim - [0, 0, length / 2], rim + [0, 0, length / 2]])
                else:
                    assert item.file is not None
                    points = mesh_corners(mesh_file(item.file, mesh_folders(meshes)), item.size, corners)
                shape = contact.Hull(points @ R.T + center)
            shapes[item.frame] = (*shapes.get(item.frame, ()), shape)
        return shapes

    def contacts(
        self,
        frames: Any = None,
        *,
        corners: int = 20,
        cylinders: str = "hull",
        meshes: Any = None,
        **options: Any,
    ) -> tuple[Contact | PairContact, ...]:
        """Return contacts between links and the ground, made from the collision shapes of the links.

        Add them by `System.with_components`.

        Parameters
        ----------
        frames : sequence of str, optional
            Frames of the links, for example the feet; by default all with a collision geometry.
        corners, cylinders, meshes
            As for `shapes`.
        **options
            ``ground``, ``friction``, ``directions``, ``cone``, as for `Contact.point`.

        Returns
        -------
        tuple of contacts
            A link with one sphere has the contact ``FRAME``; others have ``FRAME-1``, ``FRAME-2``, ..., one
            for each corner of their shapes.
        """
        names = [s.frame for s in self.collisions] if frames is None else list(frames)
        bare = sorted(set(names) - {s.frame for s in self.collisions})
        if bare:
            raise ModelError(f"contacts: {bare[0]!r} has no collision geometry")
        selection = replace(self, collisions=tuple(s for s in self.collisions if s.frame in names))
        result: list[Contact | PairContact] = []
        for frame, shapes in selection.shapes(corners=corners, cylinders=cylinders, meshes=meshes).items():
            balls = [ball for shape in shapes for ball in shape.corners()]
            for i, ball in enumerate(balls):
                name = frame if len(balls) == 1 else f"{frame}-{i + 1}"
                result.append(Contact.sphere(frame, ball.radius, ball.center, name=name, **options))
        return tuple(result)

    # -- modified robots --------------------------------------------------------------------------

    def locked(self, values: Mapping[str, float] | None = None, **named: float) -> Robot:
        """Return the robot with some joints fixed at constant values, rad or m.

        Joints are given by name or variable. Joints that mimic a fixed joint are fixed as well.
        ``panda.locked(panda_finger_joint1=0.04)``; see `System.locked`.
        """
        fixed: dict[str, float] = {}
        for name, value in {**(values or {}), **named}.items():
            fixed[self._variable(name)] = value
        progress = True
        while progress:
            progress = False
            for joint in self.joints.values():
                if joint.mimic is None or not joint.variables or joint.variables[0] in fixed:
                    continue
                leader, ratio, offset = joint.mimic
                if self.joints[leader].variables[0] in fixed:
                    fixed[joint.variables[0]] = ratio * fixed[self.joints[leader].variables[0]] + offset
                    progress = True
        return self._of(self.system.locked(fixed))

    def without(self, *joints: str) -> Robot:
        """Return the robot without some joints and without all links that they carry.

        See `System.without`.
        """
        frames = []
        for name in joints:
            if name not in self.joints:
                raise ModelError(f"without: {name!r} is no joint; {near_misses(name, self.joints)}")
            child = self.joints[name].child
            frames.append(self.renamed.get(child, child))
        return self._of(self.system.without(*frames))

    def attached(self, frame: str, *frames: Any) -> Robot:
        """Return the robot with more frames attached to a link, such as a tool.

        Example of a tool: ``se3((0, 0, 0.1), name="tool", mass=0.5)``.
        """
        return self._of(self.system.attached(frame, *frames))

    def with_components(self, *components: Any) -> Robot:
        """Return the robot with more components added to its system."""
        return self._of(self.system.with_components(*components))

    def _variable(self, name: str) -> str:
        variables = self.joints[name].variables if name in self.joints else (name,)
        if len(variables) != 1 or variables[0] not in self.system.variables:
            names = [n for n, j in self.joints.items() if len(j.variables) == 1]
            raise ModelError(f"{name!r} is no joint of one variable; {near_misses(name, names)}")
        return variables[0]

    def _of(self, system: System) -> Robot:
        """Return the robot with another system, and with the joints and shapes that this system contains.

        Joints of removed variables and links are removed.
        """
        variables, frames = set(system.variables), {*system.frame_names, "world"}
        joints = {
            name: j if set(j.variables) <= variables else j._replace(type="fixed", variables=(), mimic=None)
            for name, j in self.joints.items()
            if self.renamed.get(j.child, j.child) in frames
        }
        return replace(
            self,
            system=system,
            joints=joints,
            limits={v: limit for v, limit in self.limits.items() if v in variables},
            visuals=tuple(s for s in self.visuals if s.frame in frames),
            collisions=tuple(s for s in self.collisions if s.frame in frames),
            controls={n: c for n, c in self.controls.items() if n in system.inputs},
        )

    def bounds(self, *kinds: str, share: float = 1.0) -> dict[str, tuple[float, float]]:
        """Return the limits of joints and inputs as (lower, upper), in a dict by name.
        Limits of velocities and forces are multiplied by `share`; `kinds` selects positions, velocities or
        efforts.

        Use them as the argument ``bounds=robot.bounds()`` of the function `optimize`.

        Parameters
        ----------
        *kinds : "position", "velocity", "effort"
            Kinds of limits; all by default.
        share : float
            Factor of limits of velocities and efforts.

        Returns
        -------
        dict of str to (lower, upper)
            Finite limits of ``VARIABLE``, ``v.VARIABLE`` and ``u.INPUT``: rad, m, rad/s, m/s, N m, N; for
            actuators of an MJCF file the ranges of their controls.
        """
        selection = kinds or KINDS
        if alien := next((kind for kind in selection if kind not in KINDS), None):
            raise ModelError(f"bounds: expected any of {', '.join(map(repr, KINDS))}, got {alien!r}")
        bounds: dict[str, tuple[float, float]] = {}
        for variable, limit in self.limits.items():
            if "position" in selection:
                bounds[variable] = limit.lower, limit.upper
            if "velocity" in selection:
                bounds[f"v.{variable}"] = -share * limit.velocity, share * limit.velocity
        for force in self.system.forces if "effort" in selection else ():
            for name in force.input_names():
                if name in self.controls:
                    low, high = self.controls[name]
                elif isinstance(force, JointForce) and force.variable in self.limits:
                    high = self.limits[force.variable].effort / abs(float(force.gain))
                    low = -high
                else:
                    continue
                bounds[f"u.{name}"] = share * low, share * high
        return {name: pair for name, pair in bounds.items() if np.isfinite(pair).any()}

    def __repr__(self) -> str:
        s = self.system
        return (
            f"Robot({s.name}: {len(self.joints)} joints, {len(s.variables)} variables, "
            f"{len(s.inputs)} inputs, {len(s.constraints)} constraints, {len(self.unsupported)} unsupported)"
        )


def driven(joints: Mapping[str, RobotJoint], inputs: Any, words: str = "'all'") -> list[str]:
    """Return the variables of those joints that get an input, which is a force or a torque.
    The argument `inputs` selects the joints.

    `inputs` is "all", which excludes joints that mimic others, names of joints, or None; `words` names its
    other allowed values in messages.
    """
    single = {name: j.variables[0] for name, j in joints.items() if len(j.variables) == 1}
    if inputs is None:
        return []
    if isinstance(inputs, str):
        if inputs != "all":
            raise ModelError(f"inputs: expected {words}, names of joints or None, got {inputs!r}")
        return [v for n, v in single.items() if joints[n].mimic is None]
    names = list(inputs)
    for name in names:
        if name not in single:
            matches = similar(str(name), single) or list(single)[:12]
            text = ", ".join(map(repr, matches))
            raise ModelError(f"inputs: {name!r} is no joint that can be driven; there are {text}")
    return [single[name] for name in names]


def warn_unsupported(source: str, unsupported: Sequence[Unsupported]) -> None:
    """Issue a warning that lists the unsupported parts of a robot file."""
    if unsupported:
        lines: dict[str, list[int]] = {}
        for part in unsupported:
            lines.setdefault(part.what, []).append(part.line)
        listed = ", ".join(what + _where(places) for what, places in lines.items())
        message = f"{source}: not or not fully supported: {listed}; `unsupported` says where"
        warnings.warn(message, RobotWarning, stacklevel=4)


def _where(lines: Sequence[int]) -> str:
    """Return the lines of parts of a file as text, such as " (3 x, lines 4, 7, ...)"."""
    known = [str(line) for line in lines[:3] if line]
    where = f"line{'s' * (len(known) > 1)} {', '.join(known)}{', ...' * (len(lines) > 3)}" if known else ""
    count = f"{len(lines)} x" if len(lines) > 1 else ""
    text = ", ".join(filter(None, (count, where)))
    return f" ({text})" if text else ""
