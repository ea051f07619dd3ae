"""Collision and visual shapes of a compiled MuJoCo model, and the report of its unsupported parts."""

from __future__ import annotations

from typing import Any

import numpy as np

from vioc.dynamics.description.frame import Pose
from vioc.dynamics.formats.mjcf_model import MjcfModel
from vioc.dynamics.formats.robot import RobotGeometry
from vioc.dynamics.formats.urdf_geometry import IDENTITY


def left_out(model: MjcfModel, actuators: bool) -> None:
    """Report the parts of a MuJoCo model that no component of vioc represents, by name."""
    m, opt, kinds = model.compiled, model.compiled.opt, model.mujoco.mjtObj
    for element, what, kind, count in (
        ("sensor", "sensor", kinds.mjOBJ_SENSOR, m.nsensor),
        ("key", "keyframe", kinds.mjOBJ_KEY, m.nkey),
        ("plugin", "plugin", kinds.mjOBJ_PLUGIN, m.nplugin),
        ("flex", "flex", kinds.mjOBJ_FLEX, m.nflex),
    ):
        for i in range(count):
            model.leave(f"<{element}>", f"{what} {model.mujoco.mj_id2name(m, kind, i) or i + 1!r}")
    for b in range(1, m.nbody):
        if m.body_mocapid[b] >= 0:
            model.leave("a mocap body (fixed)", f"body {model.bodies[b]!r}")
    for what in ("density", "viscosity"):
        if getattr(opt, what):
            model.leave(f"{what} of the medium", "option")
    if np.any(opt.wind):
        model.leave("wind", "option")
    for i in range(m.npair):
        model.leave("<pair>", f"contact {m.pair(i).name or i + 1!r}")
    if model.actuators and not actuators:
        model.leave("<actuator>", f"{len(model.actuators)} actuators (other inputs were asked for)")


def _geom(m: Any, g: int) -> str:
    return m.geom(g).name or f"geom{g}"


def _kinds(model: MjcfModel) -> dict[int, str]:
    G = model.mujoco.mjtGeom
    names = "sphere", "capsule", "cylinder", "box", "mesh"
    return {int(getattr(G, f"mjGEOM_{name.upper()}")): name for name in names}


def shapes(model: MjcfModel) -> tuple[tuple[RobotGeometry, ...], tuple[RobotGeometry, ...]]:
    """Return the geoms of a MuJoCo model in two groups: those that are drawn, and those that collide.

    Geoms that collide and are not supported are reported.
    """
    m, G = model.compiled, model.mujoco.mjtGeom
    visible, solid = [], []
    for g in range(m.ngeom):
        shape, where = _shape(model, g), f"geom {_geom(m, g)!r}"
        if shape is not None:
            visible.append(shape)
        if not m.geom_contype[g] and not m.geom_conaffinity[g]:
            continue
        if shape is None or not m.geom_bodyid[g] or (shape.kind == "mesh" and shape.file is None):
            model.leave(f"contact with a {G(int(m.geom_type[g])).name[7:].lower()}", where)
            continue
        solid.append(shape)
        for what in ("adhesion", "surfacevel"):
            if model.given(f"geom_{what}", g):
                model.leave(what, where)
    return tuple(visible), tuple(solid)


def _shape(model: MjcfModel, g: int) -> RobotGeometry | None:
    m, kind = model.compiled, _kinds(model).get(int(model.compiled.geom_type[g]))
    if kind is None:
        return None
    place = model.pose(m.geom_pos[g], m.geom_quat[g])
    file: str | None = None
    a, b, c = map(float, m.geom_size[g])
    sizes: dict[str, tuple[float, ...]] = {"sphere": (a,), "box": (2 * a, 2 * b, 2 * c)}
    size = sizes.get(kind, (a, 2 * b))
    if kind == "mesh":
        i = int(m.geom_dataid[g])
        pose_and_scale = _drawn(model, i)
        if pose_and_scale is None:
            model.leave("refquat of a mesh with unequal scales", f"geom {_geom(m, g)!r}")
            return None
        place = model.times(place, _inverse(model, model.pose(m.mesh_pos[i], m.mesh_quat[i])))
        place, size, file = model.times(place, pose_and_scale[0]), pose_and_scale[1], _mesh_file(model, i)
    material = int(m.geom_matid[g])
    color = tuple(map(float, m.mat_rgba[material] if material >= 0 else m.geom_rgba[g]))
    body, position, turn = model.bodies[int(m.geom_bodyid[g])], place.position, place.rotation
    return RobotGeometry(body, kind, size, position, turn, file, color)  # type: ignore[arg-type]


def _drawn(model: MjcfModel, i: int) -> tuple[Pose, tuple[float, ...]] | None:
    """Return the pose and scale with which mesh number i must be drawn.
    They apply to the mesh as it is in its file. Return None if no pose and scale draw the mesh correctly,
    because MuJoCo shears it.

    MuJoCo centres the mesh, after it has mapped v to S R'(v - p) with the scale S, and p and R of ``refpos``
    and ``refquat``. The map is R'T(v - p) with T = R S R'. If T is diagonal it is a scale; else it is a
    shear.
    """
    m = model.compiled
    reference = model.pose(*model.references[m.mesh(i).name])
    R, p = np.reshape(reference.rotation, (3, 3)), np.array(reference.position)
    T = R @ np.diag(m.mesh_scale[i]) @ R.T
    scale = T.diagonal()
    if np.abs(T - np.diag(scale)).max() > 1e-12 * np.abs(scale).max():
        return None
    rotation = Pose((0.0, 0.0, 0.0), tuple(R.T.ravel().tolist()))
    shift = Pose(tuple((-scale * p).tolist()), IDENTITY.rotation)
    return model.times(rotation, shift), tuple(scale.tolist())


def _inverse(model: MjcfModel, place: Pose) -> Pose:
    R = np.reshape(place.rotation, (3, 3)).T
    rotation = Pose((0.0, 0.0, 0.0), tuple(R.ravel().tolist()))
    return model.times(rotation, Pose(tuple((-np.array(place.position)).tolist()), IDENTITY.rotation))


def _mesh_file(model: MjcfModel, i: int) -> str | None:
    """Return the path of the file of mesh number i; None if the MJCF file itself defines the vertices."""
    offset = int(model.compiled.mesh_pathadr[i])
    if offset < 0:
        return None
    name = model.compiled.paths[offset:].split(b"\x00")[0].decode()
    return str(model.folder / name)
