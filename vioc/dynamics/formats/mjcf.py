"""Reader of MJCF files, which turns bodies into frames, and joints into transforms.

The conversion follows paper [T], section III-A.

MuJoCo's compiler reads the file (`mujoco.MjSpec`), so that defaults, includes, angles, orientations and
inertias of geoms are exactly those of MuJoCo. This module maps the compiled model. docs/mjcf.md describes
the mapping.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vioc.dynamics.description.frame import Frame, Pose, Transform, nest
from vioc.dynamics.description.inertia import ENTRIES, Mass
from vioc.dynamics.description.numbers import Variable, as_numbers
from vioc.dynamics.description.system import WORLD, System
from vioc.dynamics.formats.mjcf_model import MjcfModel
from vioc.dynamics.formats.mjcf_shapes import left_out, shapes
from vioc.dynamics.formats.mjcf_terms import terms
from vioc.dynamics.formats.robot import (
    GivenMass,
    Limit,
    Robot,
    RobotJoint,
    Unsupported,
    driven,
    warn_unsupported,
)
from vioc.dynamics.formats.sexpr_syntax import visible
from vioc.dynamics.formats.urdf_geometry import IDENTITY, move
from vioc.dynamics.terms.forces import JointForce
from vioc.errors import ModelError, ReadError

FILE = "file"
FREE, BALL, SLIDE, HINGE = range(4)  # mjtJoint
ANGLES, KINDS = ("yaw", "pitch", "roll"), ("RZ", "RY", "RX")
# Attributes that name files and folders, searched for without a parser of XML. Matches may overlap, since a
# comment or another attribute may hold a text that looks like one.
_NAMED = re.compile(rb"""(?=(file\w{0,32}|dir)\s*=\s*(?:"([^"]*)"|'([^']*)'))""")
_ENTITIES = {"&lt;": "<", "&gt;": ">", "&quot;": '"', "&apos;": "'", "&amp;": "&"}


def read_mjcf(
    path: str | os.PathLike,
    *,
    inputs: str | Iterable[str] | None = FILE,
    gravity: Sequence[float] | str | None = FILE,
    folder: str | os.PathLike | None = None,
) -> Robot:
    """Read a robot from an MJCF file; needs ``pip install "vioc[mjcf]"``.

    Maps take its ``.system``.

    Parameters
    ----------
    path : path
    inputs : "file", "all", names of joints, or None
        The file's actuators, with their gears and gains, so that inputs are MuJoCo's controls; or a force
        (N, N m) at every hinge and slide, or at those named.
    gravity : "file", 3 numbers or None
        m/s^2, in the world's axes.
    folder : path, optional
        Other files that this one includes or names (meshes, textures) are opened only below this folder, by
        default the folder of the file.

    Raises
    ------
    ReadError
        If MuJoCo cannot compile the file, with the place from its message; if the file has no body, or names
        files outside of the folder.
    ModelError
        If an option is wrong, or the file contains something that a mechanism cannot have.
    ImportError
        If mujoco is not installed.
    OSError
        If there is no such file.

    Warns
    -----
    RobotWarning
        Once, with a summary of ``unsupported``.
    """
    try:
        import mujoco
    except ImportError as error:
        raise ImportError('reading MJCF needs the package mujoco: pip install "vioc[mjcf]"') from error
    if not Path(path).is_file():
        raise FileNotFoundError(f"{str(path)!r}: no such file")
    _stay_below(Path(path), folder)
    try:
        spec = mujoco.MjSpec.from_file(str(path))
        compiled = spec.compile()
    except ValueError as error:
        raise ReadError(" ".join(str(error).split()), 1, 1, str(path)) from None
    if compiled.nbody < 2:
        message = "a mechanism needs at least one <body>; this file has none below its <worldbody>"
        raise ReadError(message, 1, 1, str(path))
    meshes = Path(spec.modelfiledir or Path(path).parent) / (spec.meshdir or "")
    name = spec.modelname or Path(path).stem
    references = {mesh.name: (mesh.refpos, mesh.refquat) for mesh in spec.meshes}
    return _build(MjcfModel(mujoco, compiled, meshes, name, references), inputs, gravity, str(path))


def _stay_below(path: Path, folder: Any) -> None:
    """Raise `ReadError` if an MJCF file refers to files outside of a folder.

    Files that it names are searched as well. The texts are searched, not parsed, and each name is looked up
    in every folder in which MuJoCo might look. A file that is opened has therefore been checked, however
    MuJoCo parses the XML.
    """
    folder_of_file = path.parent
    allowed = [folder_of_file, path.resolve().parent] if folder is None else [Path(folder)]
    roots = [f.resolve() for f in allowed]
    names: dict[str, tuple[Path, int]] = {}
    bases, waiting, visited = {folder_of_file}, [path], {path.resolve()}
    while waiting:
        for file in waiting:
            text = file.read_bytes()
            bases.add(file.parent)
            for match in _NAMED.finditer(text):
                kind, a, b = match.groups()
                name, line = _unescaped(a or b or b""), 1 + text.count(b"\n", 0, match.start())
                if "&#" in name:  # parsers differ in which numbers they read
                    raise ReadError(
                        f"names {visible(name)!r}: write a character itself, not by its number",
                        *(line, 1, str(file)),
                    )
                names.setdefault(name, (file, line))
                bases |= {base / name for base in (folder_of_file, file.parent) if kind == b"dir"}
        waiting = []
        for name, (file, line) in names.items():
            for other in {os.path.normpath(base / name) for base in bases}:
                real = _resolved(other)
                reachable = real is not None and real not in visited and not real.is_dir()
                inside = real is not None and real.is_file() and any(map(real.is_relative_to, roots))
                # MuJoCo and the operating system reduce a//../b differently
                if ("//" in name and ".." in name) or (reachable and not inside):
                    raise ReadError(
                        f"names {visible(name)!r}, which is not below the folder {str(roots[0])!r}: if you "
                        "trust the file, give folder=, below which it may open others",
                        *(line, 1, str(file)),
                    )
                if real is not None and reachable:
                    visited.add(real)
                    waiting.append(Path(other))


def _resolved(path: str) -> Path | None:
    """Return a path without links, or None if nothing exists there.
    The result is also None for names that no file can have, such as very long ones, and for loops of links.
    """
    try:
        real = Path(path).resolve()
        return real if real.exists() else None
    except (OSError, RuntimeError, ValueError):
        return None


def _unescaped(value: bytes) -> str:
    """Return the value of an XML attribute as a path, with XML entities replaced by their characters."""
    return re.sub("&[a-z]+;", lambda m: _ENTITIES.get(m[0], m[0]), os.fsdecode(value)).replace("\\", "/")


def _build(model: MjcfModel, inputs: Any, gravity: Any, source: str) -> Robot:
    tree = _MjcfTree(model)
    if isinstance(gravity, str):
        if gravity != FILE:
            raise ModelError(f"gravity: expected 'file', 3 numbers or None, got {gravity!r}")
        gravity = model.gravity
    acceleration = None if gravity is None else as_numbers(gravity, 3, "gravity")
    from_file = isinstance(inputs, str) and inputs == FILE
    components, controls = terms(model, acceleration, from_file)
    if not from_file:
        components += [JointForce(v, v) for v in driven(tree.joints, inputs, "'file', 'all'")]
    try:
        system = System(*nest(tree.nodes), *components, name=model.name)
    except ModelError as error:
        raise ReadError(str(error), 1, 1, source) from None
    left_out(model, from_file)
    visuals, collisions = shapes(model)
    unsupported = tuple(Unsupported(what, where, 0) for what, where in model.unsupported)
    warn_unsupported(model.name, unsupported)
    limits = {v: j.limit for j in tree.joints.values() if j.limit != Limit() for v in j.variables}
    return Robot(
        system, tree.joints, limits, visuals, collisions, unsupported, dict(model.renamed), dict(controls)
    )


class _MjcfTree:
    """Builder of the tree of frames and joints from a compiled MuJoCo model."""

    def __init__(self, model: MjcfModel):
        self.model, self.m = model, model.compiled
        self.nodes: list[tuple[Frame, int]] = []
        self.joints: dict[str, RobotJoint] = {}
        self.ends = {0: -1}  # node of each body's frame
        for body in range(1, self.m.nbody):
            self._body(body)
        for site in range(self.m.nsite):
            self._fixed(model.sites[site], *model.site(site))
        for name, body, place in model.points():
            self._fixed(name, body, place)

    def _fixed(self, name: str, body: int, place: Pose) -> None:
        self.nodes.append((Frame(Transform("SE3", place), name), self.ends[body]))

    def _body(self, body: int) -> None:
        m, model = self.m, self.model
        parent = self.ends[int(m.body_parentid[body])]
        place = model.pose(m.body_pos[body], m.body_quat[body])
        moves: list[Transform] = []
        for j in range(m.body_jntadr[body], m.body_jntadr[body] + m.body_jntnum[body]):
            place = self._joint(j, body, place, moves)
        if place != IDENTITY or not moves:
            moves.append(Transform("SE3", place))
        *before, last = moves
        for transform in before:
            self.nodes.append((Frame(transform), parent))
            parent = len(self.nodes) - 1
        self.nodes.append((Frame(last, model.bodies[body], self._mass(body)), parent))
        self.ends[body] = len(self.nodes) - 1

    def _joint(self, j: int, body: int, place: Pose, moves: list[Transform]) -> Pose:
        """Append the transforms of joint number j to `moves`; return the constant pose after the joint.
        The argument `place` is the constant pose before the joint.
        """
        m, model = self.m, self.model
        kind, names = int(m.jnt_type[j]), model.variables[j]
        if kind == FREE:
            translations = zip(("TX", "TY", "TZ"), names[:3], strict=True)
            moves += [Transform(k, Variable(n)) for k, n in translations]
            moves += [Transform(k, Variable(n)) for k, n in zip(KINDS, names[3:], strict=True)]
            return self._done(j, body, "floating", IDENTITY)
        anchor = IDENTITY if kind == SLIDE else model.pose(m.jnt_pos[j])
        axis, zero = np.array(m.jnt_axis[j]), float(m.qpos0[m.jnt_qposadr[j]])
        axis = axis / np.linalg.norm(axis)
        place = model.times(place, anchor)
        if kind == BALL:
            if place != IDENTITY:
                moves.append(Transform("SE3", place))
            moves += [Transform(k, Variable(n)) for k, n in zip(KINDS, names, strict=True)]
        else:
            if zero:  # the variable is MuJoCo's qpos, whose value in the drawn configuration is not 0
                half = -zero / 2
                turn = (math.cos(half), *(math.sin(half) * axis))
                shift = model.pose(-zero * axis) if kind == SLIDE else model.pose(np.zeros(3), turn)
                place = model.times(place, shift)
            if place != IDENTITY:
                moves.append(Transform("SE3", place))
            moves.append(move("T" if kind == SLIDE else "R", axis, names[0]))
        inverse = IDENTITY if anchor == IDENTITY else model.pose(-np.array(m.jnt_pos[j]))
        endless = kind == HINGE and not m.jnt_limited[j]
        return self._done(
            j, body, ("", "ball", "prismatic", "continuous" if endless else "revolute")[kind], inverse
        )

    def _done(self, j: int, body: int, kind: str, pose: Pose) -> Pose:
        m, model = self.m, self.model
        dof, parent_id = int(m.jnt_dofadr[j]), int(m.body_parentid[body])
        limit = Limit()
        if len(model.variables[j]) == 1:
            low, high = m.jnt_range[j] if m.jnt_limited[j] else (-math.inf, math.inf)
            limit = Limit(float(low), float(high), math.inf, model.effort(j))
        parent = model.bodies[parent_id] if parent_id else WORLD
        name, variables = model.joints[j], model.variables[j]
        damping, friction = float(m.dof_damping[dof]), float(m.dof_frictionloss[dof])
        self.joints[name] = RobotJoint(kind, parent, model.bodies[body], variables, limit, damping, friction)
        return pose

    def _mass(self, body: int) -> Mass | None:
        m = self.m
        mass = float(m.body_mass[body])
        place = self.model.pose(m.body_ipos[body], m.body_iquat[body])
        R = np.reshape(place.rotation, (3, 3))
        tensor = R @ np.diag(m.body_inertia[body]) @ R.T
        if mass == 0 and not tensor.any():
            return None
        args = mass, tuple(float(tensor[i, j]) for i, j in ENTRIES), place.position
        try:
            return Mass(*args)
        except ModelError:
            self.model.leave(
                "a physically impossible inertia (kept as given)", f"body {self.model.bodies[body]!r}"
            )
            return GivenMass(*args)
