"""The Unitree A1 in generalized coordinates, in modes of contact, and laws of its 12 motors in MuJoCo.

18 variables; the motors' torques are the inputs, and feet are spheres that roll where they hold.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from studies import quadruped_mujoco as peer
from studies.peer_mujoco import package
from studies.quadruped_robot import CONE, FRICTION, JOINTS, LEGS
from vioc import Contact, ContactVI, ModeVI, System, read_urdf
from vioc.compile import find_compiler

BASE = ("base_x", "base_y", "base_z", "base_yaw", "base_pitch", "base_roll")
PLACES = tuple(f"{leg}_foot:{axis}" for leg in LEGS for axis in "xy")
POSE = {
    f"{leg}_{j}_joint": a
    for leg in LEGS
    for j, a in zip(("hip", "thigh", "calf"), (0.0, 0.8, -1.6), strict=True)
}
BETWEEN = 10  # steps of MuJoCo in one of the maps

Law = Callable[[int, np.ndarray], np.ndarray]


class Legged:
    """The robot, its modes, and the same robot in MuJoCo.

    Parameters
    ----------
    path : Path
        Of its description.
    dt : float
        Of its maps, s.
    """

    def __init__(self, path: Path, dt: float):
        self.path, self.dt = path, dt
        robot = read_urdf(path, base="floating", inputs=JOINTS)
        radii = {s.frame: s.size[0] for s in robot.collisions if s.kind == "sphere"}
        feet = [
            Contact.sphere(f"{leg}_foot", radii[f"{leg}_foot"], friction=FRICTION, cone=CONE, name=leg)
            for leg in LEGS
        ]
        self.system: System = robot.system.with_components(*feet)
        self.limits = {j: robot.limits[j] for j in JOINTS}
        self.strongest = np.array([self.limits[j].effort for j in JOINTS])
        self.efforts = robot.bounds("effort")
        self.flight = ModeVI(self.system, dt)
        self.names = self.system.variables

    def holding(self, *legs: str) -> ModeVI:
        return self.flight.holding(*legs)

    @cached_property
    def plant(self) -> ContactVI:
        """With contact that finds out by itself."""
        return ContactVI(self.system, self.dt, backend="compiled" if find_compiler() else "virtual")

    def state(self, q: np.ndarray, v: np.ndarray) -> np.ndarray:
        """Of configurations and velocities (18,), momenta M v."""
        return self.flight.initial_state(q, v)

    # -- MuJoCo -----------------------------------------------------------------------------------------

    @cached_property
    def peer(self) -> Any:
        """MuJoCo's model, or None; its contact parameters are the defaults but for friction."""
        spec = peer.described(self.path, self.dt / BETWEEN)
        return None if spec is None else spec.compile()

    @cached_property
    def _addresses(self) -> tuple[np.ndarray, np.ndarray]:
        """Of our variables behind the base in theirs: positions and velocities."""
        joints = [self.peer.joint(j) for j in self.names[6:]]
        return np.array([j.qposadr[0] for j in joints]), np.array([j.dofadr[0] for j in joints])

    def to_peer(self, data: Any, q: np.ndarray, v: np.ndarray) -> None:
        yaw, pitch, roll = q[3:6]
        positions, speeds = self._addresses
        quaternion = np.zeros(4)
        package().mju_mat2Quat(quaternion, rotation(yaw, pitch, roll).ravel())
        data.qpos[:3], data.qpos[3:7], data.qpos[positions] = q[:3], quaternion, q[6:]
        data.qvel[:3], data.qvel[3:6], data.qvel[speeds] = v[:3], rates(pitch, roll) @ v[3:6], v[6:]

    def from_peer(self, data: Any) -> tuple[np.ndarray, np.ndarray]:
        positions, speeds = self._addresses
        R = np.zeros(9)
        package().mju_quat2Mat(R, data.qpos[3:7])
        R = R.reshape(3, 3)
        yaw, pitch, roll = np.arctan2(R[1, 0], R[0, 0]), -np.arcsin(R[2, 0]), np.arctan2(R[2, 1], R[2, 2])
        turning = np.linalg.solve(rates(pitch, roll), data.qvel[3:6])
        q = np.concatenate([data.qpos[:3], [yaw, pitch, roll], data.qpos[positions]])
        return q, np.concatenate([data.qvel[:3], turning, data.qvel[speeds]])

    def play(self, law: Law, q: np.ndarray, v: np.ndarray, steps: int) -> tuple[np.ndarray, np.ndarray]:
        """MuJoCo from (q, v) under torques law(k, x), clipped, held over each step of the map.

        Returns
        -------
        Q : (steps + 1, 18)
        U : (steps, 12)
            What was applied.
        """
        mujoco = package()
        data = mujoco.MjData(self.peer)
        self.to_peer(data, q, v)
        speeds = self._addresses[1]
        rows, applied = [q], []
        for k in range(steps):
            at, moving = self.from_peer(data)
            u = np.clip(law(k, self.state(at, moving)), -self.strongest, self.strongest)
            data.qfrc_applied[speeds] = u
            for _ in range(BETWEEN):
                mujoco.mj_step(self.peer, data)
            rows.append(self.from_peer(data)[0])
            applied.append(u)
        return np.array(rows), np.array(applied)


def rotation(yaw: float, pitch: float, roll: float) -> np.ndarray:
    """Rz Ry Rx."""
    (a, b, c), (s, t, w) = (fun((yaw, pitch, roll)) for fun in (np.cos, np.sin))
    z = np.array([[a, -s, 0], [s, a, 0], [0, 0, 1]])
    y = np.array([[b, 0, t], [0, 1, 0], [-t, 0, b]])
    return z @ y @ np.array([[1, 0, 0], [0, c, -w], [0, w, c]])


def rates(pitch: float, roll: float) -> np.ndarray:
    """Angular velocity in the body's axes by the rates of yaw, pitch, roll (3, 3)."""
    b, t, c, w = np.cos(pitch), np.sin(pitch), np.cos(roll), np.sin(roll)
    return np.array([[-t, 0, 1], [b * w, c, 0], [b * c, -w, 0]])


def pushes(count: int, seed: int, size: float) -> Sequence[np.ndarray]:
    """Velocities (6,) of the trunk, m/s and rad/s, of random directions and sizes up to `size` m/s."""
    random = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        v = random.standard_normal(3) * [1, 1, 0.3]
        w = random.standard_normal(3)
        whole = np.concatenate([v / np.linalg.norm(v), 2 * w / np.linalg.norm(w)])
        found.append(size * random.uniform(0.2, 1) * whole)
    return found
