"""Reader of URDF files, which turns links into frames, and joints into transforms.

The conversion follows paper [T], section III-A. A link is a frame with its name. A joint is the constant
pose of its origin followed by its motion: one primitive transform about a coordinate axis, a twist about any
other axis. docs/urdf.md describes the mapping.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vioc.checks import similar
from vioc.dynamics.description.frame import Frame, Transform, nest
from vioc.dynamics.description.inertia import Mass
from vioc.dynamics.description.numbers import Variable, as_numbers
from vioc.dynamics.description.system import WORLD, System
from vioc.dynamics.formats.robot import (
    GivenMass,
    Limit,
    Robot,
    RobotJoint,
    cleaned,
    driven,
    warn_unsupported,
)
from vioc.dynamics.formats.urdf_geometry import IDENTITY, move, plane, pose, shapes
from vioc.dynamics.formats.urdf_xml import Contents, parse
from vioc.dynamics.terms.forces import JointDamping, JointForce
from vioc.dynamics.terms.pairs import GearConstraint
from vioc.dynamics.terms.potentials import Gravity
from vioc.errors import ModelError

BASES = ("fixed", "floating")
SINGLE = ("revolute", "continuous", "prismatic")
PLANAR = ("u", "v", "angle")
FLOATING = ("x", "y", "z", "yaw", "pitch", "roll")
FLOATING_KINDS = ("TX", "TY", "TZ", "RZ", "RY", "RX")


def read_urdf(
    path: str | os.PathLike,
    *,
    base: str = "fixed",
    inputs: str | Iterable[str] | None = None,
    gravity: Sequence[float] | None = (0.0, 0.0, -9.81),
) -> Robot:
    """Read a robot from a URDF file; needs ``pip install "vioc[urdf]"``.

    Maps take its ``.system``.

    Parameters
    ----------
    path : path
    base : "fixed" or "floating"
        The root link is fixed at the world's origin, or moves freely with the variables ``ROOT_x``,
        ``ROOT_y``, ``ROOT_z``, ``ROOT_yaw``, ``ROOT_pitch``, ``ROOT_roll`` (translations, then rotations
        about the moving z, y, x), singular at a pitch of 90 deg.
    inputs : "all", names of joints, or None
        Revolute, continuous and prismatic joints that get an input, named as the joint's variable;
        "all" excludes joints that mimic another.
    gravity : 3 numbers or None
        m/s^2, in the world's axes.

    Raises
    ------
    ReadError
        If the file is not a tree of links and joints with valid numbers.
    ModelError
        If an option is wrong.
    ImportError
        If the parser is not installed.
    OSError
        If there is no such file.

    Warns
    -----
    RobotWarning
        Once, with a summary of ``unsupported``.
    """
    if isinstance(path, str) and path.lstrip().startswith("<"):
        raise ModelError("read_urdf: expected the path of a file, got the text of one; use read_urdf_text")
    return _build(parse(Path(path).read_bytes(), str(path)), base, inputs, gravity)


def read_urdf_text(
    text: str,
    source: str = "<text>",
    *,
    base: str = "fixed",
    inputs: str | Iterable[str] | None = None,
    gravity: Sequence[float] | None = (0.0, 0.0, -9.81),
) -> Robot:
    """Read a robot from the text of a URDF file.

    Options are those of `read_urdf`. `source` is the name of the text in messages.
    """
    data = re.sub(r"^\s*<\?xml.*?\?>", "", text, count=1, flags=re.DOTALL)  # str has no encoding
    # unpaired surrogates are refused together with the other characters that XML forbids
    return _build(parse(data.encode(errors="surrogatepass"), source), base, inputs, gravity)


def _build(contents: Contents, base: str, inputs: Any, gravity: Any) -> Robot:
    if base not in BASES:
        raise ModelError(f"base: expected one of {', '.join(BASES)}, got {base!r}")
    tree = _UrdfTree(contents)
    tree.grow(base)
    components: list[Any] = [] if gravity is None else [Gravity(*as_numbers(gravity, 3, "gravity"))]
    components += tree.forces + tree.gears()
    components += [JointForce(v, v) for v in driven(tree.joints, inputs)]
    try:
        system = System(*nest(tree.nodes), *components, name=contents.name)
    except ModelError as error:
        raise contents.fail("robot", contents.name, str(error)) from None
    visuals, collisions = (tuple(shapes(contents, tree.frames, k)) for k in ("visuals", "collisions"))
    unsupported = tuple(sorted(contents.unsupported, key=lambda u: u.line))
    warn_unsupported(contents.source, unsupported)
    limits = {v: j.limit for j in tree.joints.values() if j.limit != Limit() for v in j.variables}
    return Robot(system, tree.joints, limits, visuals, collisions, unsupported, tree.renamed)


class _UrdfTree:
    """Builder of the tree of frames and joints from the objects of a URDF parser."""

    def __init__(self, contents: Contents):
        self.contents = contents
        self.nodes: list[tuple[Frame, int]] = []
        self.frames: dict[str, str] = {}  # frame of each link
        self.joints: dict[str, RobotJoint] = {}
        self.forces: list[JointDamping] = []
        self.renamed: dict[str, str] = {}
        self._used: set[str] = set()
        self._taken: set[str] = set()  # the values of `frames`

    # -- frames -----------------------------------------------------------------------------------

    def grow(self, base: str) -> None:
        """Build the frames of all links and joints, from the root link to the leaves."""
        links, joints = self.contents.links, self.contents.joints
        children: dict[str, list[str]] = {name: [] for name in links}
        parents: dict[str, str] = {}
        for name, joint in joints.items():
            for link in (joint.parent, joint.child):
                if link not in links:
                    matches = similar(link, links, 1)
                    hint = f"; did you mean {matches[0]!r}?" if matches else ""
                    raise self.contents.fail("joint", name, f"unknown link {link!r}{hint}")
            if joint.child in parents:
                message = (
                    f"the link {joint.child!r} already has a parent by the joint {parents[joint.child]!r}; a "
                    "URDF file is a tree: close loops with constraints on the system (vioc.coincident)"
                )
                raise self.contents.fail("joint", name, message)
            parents[joint.child] = name
            children[joint.parent].append(name)
        roots = [name for name in links if name not in parents]
        if len(roots) != 1:
            which = ", ".join(map(repr, roots)) or ("none: the joints form a cycle" if links else "no links")
            where = ("link", roots[1]) if roots else ("robot", self.contents.name)
            raise self.contents.fail(*where, f"expected one link without a parent, got {which}")
        root = self._root(roots[0], base)
        waiting = [(child, root) for child in reversed(children[roots[0]])]
        while waiting:
            name, parent = waiting.pop()
            node = self._joint(name, joints[name], parent)
            waiting += [(child, node) for child in reversed(children[joints[name].child])]
        unreachable = sorted(set(links) - set(self.frames))
        if unreachable:
            message = f"joints form a cycle here: not connected to the root {roots[0]!r}"
            raise self.contents.fail("link", unreachable[0], message)

    def _root(self, link: str, base: str) -> int:
        if base == "floating":
            names = [self._variable(f"{link}_{part}") for part in FLOATING]
            moves = [Transform(k, Variable(n)) for k, n in zip(FLOATING_KINDS, names, strict=True)]
            return self._chain(link, moves, -1)
        if link != WORLD:
            return self._chain(link, [], -1)
        self.frames[link] = WORLD
        self._taken.add(WORLD)
        if self.contents.links[link].inertial is not None:
            self.contents.leave_out("<inertial> of the fixed world", "link", link)
        return -1

    def _joint(self, name: str, joint: Any, parent: int) -> int:
        """Add the frames of a joint and of its child link, and return the index of the link's frame."""
        moves: list[Transform] = []
        variables: tuple[str, ...] = ()
        if joint.type in SINGLE:
            variables = (self._variable(name),)
            moves = [move("T" if joint.type == "prismatic" else "R", self._axis(name, joint), variables[0])]
        elif joint.type == "floating":
            variables = tuple(self._variable(f"{name}_{part}") for part in FLOATING)
            moves = [Transform(k, Variable(n)) for k, n in zip(FLOATING_KINDS, variables, strict=True)]
        elif joint.type == "planar":
            variables = tuple(self._variable(f"{name}_{part}") for part in PLANAR)
            a, b, normal = plane(self._axis(name, joint))
            moves = [move(*m) for m in zip("TTR", (a, b, normal), variables, strict=True)]
        elif joint.type != "fixed":
            raise self.contents.fail("joint", name, f"unknown type {joint.type!r}")
        try:
            origin = [Transform("SE3", pose(joint.origin))]
        except ModelError as error:
            raise self.contents.fail("joint", name, f"origin: {error}") from None
        if origin[0].value == IDENTITY:
            origin = []
        self.joints[name] = self._properties(name, joint, variables)
        return self._chain(joint.child, origin + moves, parent)

    def _chain(self, link: str, transforms: list[Transform], parent: int) -> int:
        """Add a chain of frames with the given transforms, the last of which is the frame of the link."""
        frame = "world_link" if link == WORLD else link
        while frame in self._taken or (frame != link and frame in self.contents.links):
            frame += "_"
        if frame != link:
            self.renamed[link] = frame
        self.frames[link] = frame
        self._taken.add(frame)
        *before, last = transforms or [Transform("SE3", IDENTITY)]
        for transform in before:
            self.nodes.append((Frame(transform), parent))
            parent = len(self.nodes) - 1
        self.nodes.append((Frame(last, frame, self._mass(link)), parent))
        return len(self.nodes) - 1

    def _mass(self, link: str) -> Mass | None:
        """Return the mass of a link, with its inertia matrix rotated to the axes of the link."""
        inertial = self.contents.links[link].inertial
        if inertial is None:
            return None
        tensor = np.array(inertial.inertia.to_matrix() if inertial.inertia else np.zeros((3, 3)))
        try:
            place = pose(inertial.origin)
            if place.rotation != IDENTITY.rotation:
                R = np.reshape(place.rotation, (3, 3))
                tensor = R @ tensor @ R.T
            moments = (*np.diag(tensor).tolist(), tensor[0, 1], tensor[0, 2], tensor[1, 2])
            args = (inertial.mass, tuple(map(float, moments)), place.position)
            mass = GivenMass(*args)
        except ModelError as error:
            raise self.contents.fail("link", link, f"inertial: {error}") from None
        try:
            return Mass(*args)
        except ModelError:
            self.contents.leave_out("a physically impossible inertia (kept as given)", "link", link)
            return mass

    def _axis(self, name: str, joint: Any) -> np.ndarray:
        axis = np.array(joint.axis if joint.axis is not None else (1.0, 0.0, 0.0), float)
        size = float(np.linalg.norm(axis))
        if not 1e-6 < size < math.inf:
            raise self.contents.fail("joint", name, f"axis: expected a unit vector, got {axis.tolist()}")
        return axis / size

    # -- joints -----------------------------------------------------------------------------------

    def _variable(self, name: str) -> str:
        """Return a valid and unused variable name that is similar to `name`."""
        result = cleaned(name)
        while result in self._used or (result != name and result in self.contents.joints):
            result += "_"
        if result != name:
            self.renamed[name] = result
        self._used.add(result)
        return result

    def _properties(self, name: str, joint: Any, variables: tuple[str, ...]) -> RobotJoint:
        damping = (joint.dynamics.damping or 0.0) if joint.dynamics else 0.0
        friction = (joint.dynamics.friction or 0.0) if joint.dynamics else 0.0
        mimic = joint.mimic
        if mimic is not None:
            multiplier = 1.0 if mimic.multiplier is None else mimic.multiplier
            mimic = (mimic.joint, multiplier, mimic.offset or 0.0)
        if friction:
            self.contents.leave_out("friction", "joint", name)
        if len(variables) == 1 and damping:
            try:
                self.forces.append(JointDamping(variables[0], damping))
            except ModelError as error:
                raise self.contents.fail("joint", name, str(error)) from None
        for what, value in (("damping", damping), ("<mimic>", mimic), ("<limit>", joint.limit)):
            if value and len(variables) != 1:
                self.contents.leave_out(f"{what} of a {joint.type} joint", "joint", name)
        limit = self._limit(name, joint) if len(variables) == 1 else Limit()
        return RobotJoint(joint.type, joint.parent, joint.child, variables, limit, damping, friction, mimic)

    def _limit(self, name: str, joint: Any) -> Limit:
        limit = joint.limit
        if limit is None:
            return Limit()
        endless = joint.type == "continuous"
        lower, upper = (-math.inf, math.inf) if endless else (float(limit.lower), float(limit.upper))
        velocity, effort = float(limit.velocity), float(limit.effort)
        if any(map(math.isnan, (lower, upper, velocity, effort))):
            message = f"<limit>: expected numbers, got {lower}, {upper}, {velocity}, {effort}"
            raise self.contents.fail("joint", name, message)
        if lower > upper:  # it is not known which of the two is right
            self.contents.leave_out(f"a <limit> with lower = {lower:g} > upper = {upper:g}", "joint", name)
            lower, upper = -math.inf, math.inf
        if min(velocity, effort) < 0:
            what = f"a negative limit (velocity = {velocity:g}, effort = {effort:g})"
            self.contents.leave_out(what, "joint", name)
            velocity, effort = (v if v >= 0 else math.inf for v in (velocity, effort))
        return Limit(lower, upper, velocity, effort)

    def gears(self) -> list[Any]:
        """Return the gear constraints of joints that the element <mimic> couples to another joint."""
        result = []
        for name, joint in self.joints.items():
            if joint.mimic is None or len(joint.variables) != 1:
                continue
            leader, multiplier, offset = joint.mimic
            chain = [name]
            while leader in self.joints and self.joints[leader].mimic is not None and leader not in chain:
                chain.append(leader)
                leader = self.joints[leader].mimic[0]  # type: ignore[index]
            if leader in chain:
                raise self.contents.fail("joint", name, f"mimics itself: {' -> '.join([*chain, leader])}")
            target = self.joints.get(joint.mimic[0])
            if target is None or len(target.variables) != 1:
                state = "which does not exist" if target is None else f"which is {target.type}"
                raise self.contents.fail("joint", name, f"mimics {joint.mimic[0]!r}, {state}")
            pair = joint.variables[0], target.variables[0]
            try:
                result.append(GearConstraint(*pair, multiplier, offset, name=f"mimic-{pair[0]}"))
            except ModelError as error:
                raise self.contents.fail("joint", name, str(error)) from None
        return result
