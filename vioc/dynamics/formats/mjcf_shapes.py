"""What a compiled MuJoCo model shows and collides with, and what of it no component stands for."""

from __future__ import annotations

from typing import Any

import numpy as np

from vioc.dynamics.description.frame import Pose
from vioc.dynamics.formats.mjcf_model import Model
from vioc.dynamics.formats.robot import Shape
from vioc.dynamics.formats.urdf_geometry import IDENTITY


def left_out(model: Model, actuators: bool) -> None:
    """Things of the file that no component stands for, by name."""
    m, opt = model.compiled, model.compiled.opt
    for what, count in (
        ("sensor", m.nsensor),
        ("keyframe", m.nkey),
        ("plugin", m.nplugin),
        ("flex", m.nflex),
    ):
        read = {"keyframe": "key"}.get(what, what)
        for i in range(count):
            model.leave(f"<{read}>", f"{what} {getattr(m, read)(i).name or i + 1!r}")
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
    if m.nu and not actuators:
        model.leave("<actuator>", f"{m.nu} actuators (other inputs were asked for)")
    G = model.mujoco.mjtGeom
    for g in range(m.ngeom):
        collides = bool(m.geom_contype[g] or m.geom_conaffinity[g])
        if collides and (int(m.geom_type[g]) not in _kinds(model) or not m.geom_bodyid[g]):
            model.leave(f"contact with a {G(int(m.geom_type[g])).name[7:].lower()}", f"geom {_geom(m, g)!r}")


def _geom(m: Any, g: int) -> str:
    return m.geom(g).name or f"geom{g}"


def _kinds(model: Model) -> dict[int, str]:
    G = model.mujoco.mjtGeom
    names = "sphere", "capsule", "cylinder", "box", "mesh"
    return {int(getattr(G, f"mjGEOM_{name.upper()}")): name for name in names}


def shapes(model: Model) -> tuple[tuple[Shape, ...], tuple[Shape, ...]]:
    """Geoms as what is seen, and those of bodies that collide."""
    m, kinds = model.compiled, _kinds(model)
    seen, solid = [], []
    for g in range(m.ngeom):
        kind, body = kinds.get(int(m.geom_type[g])), int(m.geom_bodyid[g])
        if kind is None:
            continue
        place = model.pose(m.geom_pos[g], m.geom_quat[g])
        file: str | None = None
        a, b, c = map(float, m.geom_size[g])
        if kind == "mesh":
            i = int(m.geom_dataid[g])
            place = model.times(place, _inverse(model, model.pose(m.mesh_pos[i], m.mesh_quat[i])))
            scale = m.mesh_scale[i]
            size: tuple[float, ...] = tuple(map(float, scale))
            file = _mesh_file(model, i)
        else:
            sizes = {"sphere": (a,), "box": (2 * a, 2 * b, 2 * c)}
            size = sizes.get(kind, (a, 2 * b))
        material = int(m.geom_matid[g])
        color = tuple(map(float, m.mat_rgba[material] if material >= 0 else m.geom_rgba[g]))
        shape = Shape(model.bodies[body], kind, size, place.position, place.rotation, file, color)  # type: ignore[arg-type]
        seen.append(shape)
        if body and (m.geom_contype[g] or m.geom_conaffinity[g]):
            solid.append(shape)
    return tuple(seen), tuple(solid)


def _inverse(model: Model, place: Pose) -> Pose:
    R = np.reshape(place.rotation, (3, 3)).T
    turned = Pose((0.0, 0.0, 0.0), tuple(R.ravel().tolist()))
    return model.times(turned, Pose(tuple((-np.array(place.position)).tolist()), IDENTITY.rotation))


def _mesh_file(model: Model, i: int) -> str | None:
    """Where a mesh lies; None of one that the file makes of its own vertices."""
    at = int(model.compiled.mesh_pathadr[i])
    if at < 0:
        return None
    name = model.compiled.paths[at:].split(b"\x00")[0].decode()
    return str(model.folder / name)
