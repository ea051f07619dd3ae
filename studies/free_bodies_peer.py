"""The free bodies of `free_bodies` in MuJoCo: a free or a ball joint, hinges for rotors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from studies.peer_mujoco import package

SAMPLES = 1000


def tumble(
    body: str, dt: float, steps: int, qvel: Sequence[float], *, rule: str, turn: float = 0.0, g: float = 0.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Times, angular momentum (N, 3) about the world's origin and energy (N,) of a run by `mj_step`.

    Parameters
    ----------
    body : str
        MJCF of the one body in the world, its joint first.
    qvel : sequence of float
        Rates at the start in MuJoCo's order; of a free joint's linear ones all momentum is taken off.
    rule : "Euler", "RK4", ...
    turn : float
        Of the body about y at the start, rad, where its joint is a ball.
    g : float
        Weight, m/s^2, down.
    """
    mujoco = package()
    text = (
        f'<mujoco><option timestep="{dt!r}" gravity="0 0 {-g!r}" integrator="{rule}">'
        f'<flag energy="enable" contact="disable"/></option><worldbody>{body}</worldbody></mujoco>'
    )
    model = mujoco.MjModel.from_xml_string(text)
    data = mujoco.MjData(model)
    if turn:
        data.qpos[:4] = [np.cos(turn / 2), 0.0, np.sin(turn / 2), 0.0]
    data.qvel[:] = qvel

    def measured() -> tuple[np.ndarray, float]:
        mujoco.mj_forward(model, data)
        mujoco.mj_subtreeVel(model, data)
        moved = model.body_subtreemass[0] * data.subtree_linvel[0]
        return data.subtree_angmom[0] + np.cross(data.subtree_com[0], moved), float(data.energy.sum())

    measured()
    if model.jnt_type[0] == mujoco.mjtJoint.mjJNT_FREE:
        data.qvel[:3] -= data.subtree_linvel[0]
    each = max(1, steps // SAMPLES)
    rows: list[tuple[Any, float]] = [measured()]
    for _ in range(steps // each):
        mujoco.mj_step(model, data, each)
        rows.append(measured())
    t = dt * each * np.arange(len(rows))
    return t, np.array([row[0] for row in rows]), np.array([row[1] for row in rows])


def inertial(mass: float, inertia: Sequence[float], place: Sequence[float] = (0, 0, 0)) -> str:
    def row(values: Sequence[float]) -> str:
        return " ".join(repr(float(v)) for v in values)

    return f'<inertial pos="{row(place)}" mass="{mass!r}" diaginertia="{row(inertia)}"/>'
