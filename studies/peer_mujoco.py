"""MuJoCo, where its Python package can be imported: `run_mujoco`."""

from __future__ import annotations

import importlib
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from studies.peer_links import Loop, PeerRun, gravity, inertia_of_a_body, links_of
from vioc import System
from vioc.dynamics.kinematics import as_configuration

MUJOCO, INSTALL = "MuJoCo", "pip install mujoco"


def package() -> Any:
    try:
        return importlib.import_module("mujoco")
    except ImportError:
        return None


def run_mujoco(
    system: System,
    q: Any,
    dt: float,
    steps: int,
    *,
    forces: Mapping[str, float] | None = None,
    every: int = 1,
) -> PeerRun:
    """The system at rest at q, released, by `mj_step`; parameters as of `run_ode`."""
    mujoco = package()
    if mujoco is None:
        raise RuntimeError(f"{MUJOCO}: the package mujoco cannot be imported")
    q = as_configuration(system, q, "configuration")
    model = mujoco.MjModel.from_xml_string(mjcf(system, q, dt))
    data = mujoco.MjData(model)
    names = [model.joint(i).name for i in range(model.njnt)]
    order = [names.index(name) for name in system.variables]
    data.qpos[order] = q
    for name, size in (forces or {}).items():
        data.qfrc_applied[names.index(name)] = size
    mujoco.mj_forward(model, data)
    samples, seconds = [(data.qpos[order], data.energy.sum())], 0.0
    for k in range(0, steps, every):
        before = time.perf_counter()
        mujoco.mj_step(model, data, min(every, steps - k))
        seconds += time.perf_counter() - before
        # positions are the step's, energies of the forward pass before it: compute them anew
        mujoco.mj_energyPos(model, data)
        mujoco.mj_energyVel(model, data)
        samples.append((data.qpos[order], data.energy.sum()))
    t = dt * np.minimum(np.arange(len(samples)) * every, steps)
    return PeerRun(system, t, np.array([s[0] for s in samples]), np.array([s[1] for s in samples]), seconds)


def mjcf(system: System, q: np.ndarray, dt: float) -> str:
    """The system as MuJoCo's XML: bodies placed at q, loops as `connect` constraints of the tree."""
    links, loops = links_of(system, q)
    children: dict[int, list[int]] = {}
    for i, link in enumerate(links):
        children.setdefault(link.parent, []).append(i)

    def row(values: Any) -> str:
        return " ".join(repr(float(v)) for v in np.ravel(values))

    def body(i: int) -> str:
        link = links[i]
        base = links[link.parent].pose if link.parent >= 0 else np.eye(4)
        local = np.linalg.solve(base, link.pose)
        I = inertia_of_a_body(link)
        inertia = row((I[0, 0], I[1, 1], I[2, 2], I[0, 1], I[0, 2], I[1, 2]))
        kind = "hinge" if link.rotational else "slide"
        at = q[system.variable_index(link.variable)]
        return (
            f'<body name="b{i}" pos="{row(local[:3, 3])}" xyaxes="{row(local[:3, :2].T)}">'
            f'<joint name="{link.variable}" type="{kind}" axis="{row(link.axis)}" ref="{row(at)}"/>'
            f'<inertial pos="{row(link.com)}" mass="{link.mass!r}" fullinertia="{inertia}"/>'
            f"{''.join(body(c) for c in children.get(i, ()))}</body>"
        )

    def connect(loop: Loop) -> str:
        one, two = sorted(zip(loop.links, loop.points, strict=True), key=lambda end: -end[0])
        anchor = np.linalg.solve(links[one[0]].pose, [*one[1], 1.0])[:3]
        other = f'body2="b{two[0]}" ' if two[0] >= 0 else ""
        return f'<connect body1="b{one[0]}" {other}anchor="{row(anchor)}"/>'

    return (
        f'<mujoco><compiler angle="radian"/><option timestep="{dt!r}" gravity="{row(gravity(system))}">'
        '<flag energy="enable" contact="disable"/></option>'
        f"<worldbody>{''.join(body(c) for c in children.get(-1, ()))}</worldbody>"
        f"<equality>{''.join(connect(loop) for loop in loops)}</equality></mujoco>"
    )
