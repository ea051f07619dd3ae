"""The same robot, controller and references in MuJoCo, which reads the same URDF file."""

from __future__ import annotations

import importlib
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np

from studies.peer_mujoco import package
from studies.quadruped_robot import FRICTION, GAIN, JOINTS, RATE_GAIN

ROOT = "trunk"


def text(path: Path) -> str:
    """The file with the trunk as its root, and no shapes but the feet."""
    robot = ET.parse(path).getroot()
    for link in robot.findall("link"):
        for shape in (*link.findall("visual"), *link.findall("collision")):
            if shape.tag == "visual" or shape.find("geometry/sphere") is None:
                link.remove(shape)
    joints = [j for j in robot.findall("joint") if j.find(f"child[@link='{ROOT}']") is not None]
    above = [p.get("link") for j in joints for p in j.findall("parent")]
    for part in (*joints, *(li for li in robot.findall("link") if li.get("name") in above)):
        robot.remove(part)
    return ET.tostring(robot, encoding="unicode")


def described(path: Path, dt: float) -> Any:
    """MuJoCo's description with a free trunk on a plane, contact parameters the defaults but for friction.

    None where MuJoCo cannot be imported.
    """
    mujoco = package()
    if mujoco is None:
        return None
    spec = mujoco.MjSpec.from_string(text(path))
    spec.body(ROOT).add_freejoint()
    spec.worldbody.add_geom(type=mujoco.mjtGeom.mjGEOM_PLANE, size=[0, 0, 1])
    for geom in spec.geoms:
        geom.friction[0] = FRICTION
    spec.option.timestep = dt
    return spec


class Servoed:
    """The robot with its PD control as actuators, run by MuJoCo's rollout in C++ from a level start at rest.

    Parameters
    ----------
    path : Path
    dt, height : float
        s, m.
    angles, rates : (N, 12)
        References of the joints.
    """

    def __init__(self, path: Path, dt: float, height: float, angles: np.ndarray, rates: np.ndarray):
        mujoco = package()
        spec = described(path, dt)
        for name in JOINTS:
            servo = spec.add_actuator(target=name, trntype=mujoco.mjtTrn.mjTRN_JOINT)
            servo.set_to_position(kp=GAIN, kv=RATE_GAIN)
        self.model = spec.compile()
        self.data = mujoco.MjData(self.model)
        self.data.qpos[:7] = 0, 0, height, 1, 0, 0, 0
        self.data.qpos[[self.model.joint(j).qposadr[0] for j in JOINTS]] = angles[0]
        mujoco.mj_forward(self.model, self.data)
        kind = mujoco.mjtState.mjSTATE_FULLPHYSICS
        self._start = np.zeros((1, mujoco.mj_stateSize(self.model, kind)))
        mujoco.mj_getState(self.model, self.data, self._start[0], kind)
        self._control = (angles + RATE_GAIN / GAIN * rates)[None]
        self._rollout = importlib.import_module("mujoco.rollout").rollout

    def __call__(self) -> np.ndarray:
        """Full states (N, size)."""
        return self._rollout(self.model, self.data, self._start, self._control)[0][0]


def walk(path: Path, dt: float, height: float, angles: np.ndarray, rates: np.ndarray) -> np.ndarray | None:
    """Positions of the trunk's origin (N + 1, 3) under references (N, 12), from a level start at rest, m.

    None where MuJoCo cannot be imported.
    """
    spec = described(path, dt)
    if spec is None:
        return None
    robot, mujoco = spec.compile(), package()
    data = mujoco.MjData(robot)
    positions = [robot.joint(j).qposadr[0] for j in JOINTS]
    speeds = [robot.joint(j).dofadr[0] for j in JOINTS]
    data.qpos[:7] = 0, 0, height, 1, 0, 0, 0
    data.qpos[positions] = angles[0]
    trunk = [data.qpos[:3].copy()]
    for angle, rate in zip(angles, rates, strict=True):
        torque = GAIN * (angle - data.qpos[positions]) + RATE_GAIN * (rate - data.qvel[speeds])
        data.qfrc_applied[speeds] = torque
        mujoco.mj_step(robot, data)
        trunk.append(data.qpos[:3].copy())
    return np.array(trunk)
