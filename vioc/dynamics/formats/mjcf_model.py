"""Compiled MuJoCo model, with names that vioc accepts and a list of the parts that vioc cannot represent."""

from __future__ import annotations

import math
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from vioc.dynamics.description.frame import Pose
from vioc.dynamics.formats.robot import cleaned
from vioc.dynamics.formats.urdf_geometry import IDENTITY, ROUNDING

FREE, BALL = 0, 1
PARTS = {FREE: ("x", "y", "z", "yaw", "pitch", "roll"), BALL: ("yaw", "pitch", "roll")}
X, Y = (1.0, 0.0, 0.0), (0.0, 1.0, 0.0)


class MjcfModel:
    """Compiled MuJoCo model, with unique names for its bodies, joints, variables and sites.
    The names contain only characters that vioc accepts.

    It also collects the parts of the model that are not supported.

    Parameters
    ----------
    mujoco : module
    compiled : mujoco.MjModel
    folder : path
        Folder of the meshes.
    name : str
    references : dict of str to (3 numbers, quaternion)
        ``refpos`` and ``refquat`` of meshes, which the compiled model no longer has.
    """

    def __init__(self, mujoco: Any, compiled: Any, folder: Path, name: str, references: dict[str, Any]):
        self.mujoco, self.compiled, self.folder, self.name = mujoco, compiled, folder, name
        self.references = references
        self.unsupported: list[tuple[str, str]] = []
        self.renamed: dict[str, str] = {}
        self._frames: set[str] = {"world"}
        self._quantities: set[str] = set()
        m = compiled
        self.bodies = ["world"] + [
            self._unused(m.body(i).name or f"body{i}", self._frames) for i in range(1, m.nbody)
        ]
        self.joints = [self._joint_name(j) for j in range(m.njnt)]
        self.variables = [self._variables(j) for j in range(m.njnt)]
        self.sites = []
        for i in range(m.nsite):
            name = m.site(i).name or f"site{i}"
            self.sites.append(self._unused(name, self._frames, "_site"))
            if self.sites[i] != name:
                self.renamed[f"site {name}"] = self.sites[i]

    def leave(self, what: str, where: str) -> None:
        self.unsupported.append((what, where))

    # -- names ------------------------------------------------------------------------------------

    def _variable(self, name: str) -> str:
        result = self._unused(cleaned(name), self._quantities)
        if result != name:
            self.renamed[name] = result
        return result

    @staticmethod
    def _unused(name: str, names: set[str], ending: str = "_") -> str:
        while name in names:
            name += ending
        names.add(name)
        return name

    def _joint_name(self, j: int) -> str:
        m = self.compiled
        body = int(m.jnt_bodyid[j])
        return m.joint(j).name or f"{self.bodies[body]}_joint{j - int(m.body_jntadr[body]) + 1}"

    def _variables(self, j: int) -> tuple[str, ...]:
        """Return the names of the configuration variables of joint number j.

        A ball has three angles, about the moving z, y, x; a free body has a position and these angles.
        """
        parts = PARTS.get(int(self.compiled.jnt_type[j]))
        names = [self.joints[j]] if parts is None else [f"{self.joints[j]}_{part}" for part in parts]
        return tuple(self._variable(name) for name in names)

    def single(self, j: int) -> str | None:
        """Return the name of the variable of joint number j if it is a hinge or a slide, else None."""
        return self.variables[j][0] if len(self.variables[j]) == 1 else None

    # -- poses ------------------------------------------------------------------------------------

    def pose(self, position: Any, quaternion: Any = (1.0, 0.0, 0.0, 0.0)) -> Pose:
        matrix = np.zeros(9)
        unit = np.array(quaternion, float)
        self.mujoco.mju_quat2Mat(matrix, unit / np.linalg.norm(unit))
        return self._pose(matrix, np.array(position, float))

    @staticmethod
    def _pose(matrix: np.ndarray, position: np.ndarray) -> Pose:
        rotation = np.array(matrix, float).ravel()
        rotation[np.abs(rotation) < ROUNDING] = 0.0
        return Pose(tuple((position + 0.0).tolist()), tuple(rotation.tolist()))

    def times(self, a: Pose, b: Pose) -> Pose:
        if b == IDENTITY:
            return a
        R, S = (np.reshape(p.rotation, (3, 3)) for p in (a, b))
        return self._pose(R @ S, np.array(a.position, float) + R @ np.array(b.position, float))

    def site(self, i: int) -> tuple[int, Pose]:
        m = self.compiled
        return int(m.site_bodyid[i]), self.pose(m.site_pos[i], m.site_quat[i])

    def points(self) -> Iterable[tuple[str, int, Pose]]:
        """Yield the additional frames that MuJoCo's equality constraints need, as (name, body, pose)."""
        for frames in self._closures.values():
            yield from frames

    @cached_property
    def closures(self) -> dict[int, tuple[str, str]]:
        """Names of the two frames of each ``connect`` or ``weld`` constraint, by the constraint's index."""
        return {e: (frames[0][0], frames[1][0]) for e, frames in self._closures.items()}

    @cached_property
    def _closures(self) -> dict[int, list[tuple[str, int, Pose]]]:
        """Frames of each ``connect`` or ``weld`` constraint, by the index of the constraint.
        A frame is a tuple of its name, its body and its pose in the body.

        The first two are the joined frames. A weld also has points 1 m along their x and y axes.
        """
        m, E = self.compiled, self.mujoco.mjtEq
        closures = {}
        for e in range(m.neq):
            kind, data = int(m.eq_type[e]), np.array(m.eq_data[e])
            if kind not in (E.mjEQ_CONNECT, E.mjEQ_WELD):
                continue
            ids = int(m.eq_obj1id[e]), int(m.eq_obj2id[e])
            if int(m.eq_objtype[e]) == int(self.mujoco.mjtObj.mjOBJ_SITE):
                places = [self.site(i) for i in ids]
            elif kind == E.mjEQ_CONNECT:
                places = [(ids[0], self.pose(data[:3])), (ids[1], self.pose(data[3:6]))]
            else:
                places = [(ids[0], self.pose(data[3:6], data[6:10])), (ids[1], self.pose(data[:3]))]
            names = [f"{self.equality(e)}-{i}" for i in (1, 2)]
            frames = [(name, b, p) for name, (b, p) in zip(names, places, strict=True)]
            if kind == E.mjEQ_WELD and self.turns_with(e):
                frames += [
                    (f"{name}{axis}", body, self.times(place, Pose(arm, IDENTITY.rotation)))
                    for name, body, place in frames
                    for axis, arm in (("x", X), ("y", Y))
                ]
            closures[e] = [(self._unused(name, self._frames), b, p) for name, b, p in frames]
        return closures

    def turns_with(self, e: int) -> bool:
        """Return whether weld constraint number e also fixes the orientation (its torque scale is not 0)."""
        return bool(self.compiled.eq_data[e, 10])

    def equality(self, e: int) -> str:
        return cleaned(self.compiled.equality(e).name or f"equality{e + 1}")

    # -- values -----------------------------------------------------------------------------------

    def disabled(self, flag: str) -> bool:
        bits = self.mujoco.mjtDisableBit
        if flag in ("SPRING", "DAMPER") and not hasattr(bits, f"mjDSBL_{flag}"):
            flag = "PASSIVE"  # older versions have one flag for both
        if flag in ("EQUALITY", "LIMIT", "FRICTIONLOSS") and self.disabled("CONSTRAINT"):
            return True
        return bool(self.compiled.opt.disableflags & int(getattr(bits, f"mjDSBL_{flag}")))

    def given(self, field: str, at: Any) -> bool:
        """Return whether a field of the compiled model exists and is nonzero at the index `at`.

        Older versions of MuJoCo lack some fields.
        """
        values = getattr(self.compiled, field, None)
        return values is not None and bool(np.any(values[at]))

    @property
    def gravity(self) -> Any:
        return None if self.disabled("GRAVITY") else self.compiled.opt.gravity.tolist()

    # -- actuators --------------------------------------------------------------------------------

    @property
    def actuators(self) -> range:
        """Range of the indices of all actuators.

        ``nu`` counts controls; an actuator can have none or several.
        """
        return range(int(getattr(self.compiled, "nactuator", self.compiled.nu)))

    def acts(self, a: int) -> bool:
        """Return whether actuator number a is enabled.

        An actuator is on if no flag and no group disables it; groups from 31 on cannot be disabled.
        """
        m, group = self.compiled, int(self.compiled.actuator_group[a])
        switched_off = 0 <= group <= 30 and int(m.opt.disableactuator) >> group & 1
        return not switched_off and not self.disabled("ACTUATION")

    def static(self, a: int) -> bool:
        """Return whether actuator number a has a constant gain and no internal state."""
        return self._proportional(a, "NONE")

    def _proportional(self, a: int, *dynamics: str) -> bool:
        """Return whether an actuator has a constant gain and one of the given activation dynamics."""
        m, D = self.compiled, self.mujoco.mjtDyn
        kinds = [int(getattr(D, f"mjDYN_{kind}")) for kind in dynamics]
        plugged = int(m.actuator_plugin[a]) >= 0
        return not plugged and int(m.actuator_gaintype[a]) == 0 and int(m.actuator_dyntype[a]) in kinds

    def effort(self, j: int) -> float:
        """Return the largest total force of the actuators of joint number j, N or N m; inf if unbounded."""
        m = self.compiled
        bound = float(np.abs(m.jnt_actfrcrange[j]).max()) if m.jnt_actfrclimited[j] else math.inf
        forces = [self._force(a) for a in self.actuators if self.acts(a) and self.driven_joint(a) == j]
        return min(bound, sum(forces)) if forces else bound

    def _force(self, a: int) -> float:
        """Return the largest force that actuator number a can exert at its joint, N or N m.
        The result is infinite if the force is unbounded.
        """
        m = self.compiled
        bounds = [math.inf]
        if m.actuator_forcelimited[a]:
            bounds.append(float(np.abs(m.actuator_forcerange[a]).max()))
        bounds += [
            float(np.abs(m.tendon_actfrcrange[t]).max())
            for t, pulling in self._pulling.items()
            if a in (other for other, _ in pulling)
        ]
        bounded = self._proportional(
            a, "NONE", "FILTER", "FILTEREXACT"
        )  # filters keep the range of the control
        if bounded and not int(m.actuator_biastype[a]):
            gain, control = abs(float(m.actuator_gainprm[a, 0])), max(map(abs, self.control_range(a)))
            bounds.append(gain * control if gain else 0.0)
        gear = abs(self.gear(a))
        return gear * min(bounds) if gear else 0.0

    def driven_joint(self, a: int) -> int | None:
        """Return the index of the joint that an actuator drives, None if there is no such joint.
        The actuator acts on the joint directly, or by a fixed tendon that depends on this joint only.
        """
        m, T = self.compiled, self.mujoco.mjtTrn
        kind, target = int(m.actuator_trntype[a]), int(m.actuator_trnid[a, 0])
        if (only := self._only(a)) is not None:
            return int(m.wrap_objid[only])
        return target if kind in (T.mjTRN_JOINT, T.mjTRN_JOINTINPARENT) else None

    def gear(self, a: int) -> float:
        """Return the gear ratio between an actuator and its joint.
        If a tendon connects them, the ratio contains the tendon's coefficient for this joint.
        """
        only = self._only(a)
        return self.gears(a)[0] * (1.0 if only is None else float(self.compiled.wrap_prm[only]))

    def gears(self, a: int) -> list[float]:
        """Return the six numbers of the MJCF attribute ``gear`` of an actuator.

        If an actuator has several outputs, they are those of the first output.
        """
        return list(map(float, np.ravel(self.compiled.actuator(a).gear)[:6]))

    def _only(self, a: int) -> int | None:
        """Return the position in MuJoCo's arrays ``wrap_*`` of the one joint of an actuator's tendon.
        Return None if the actuator has no tendon, or if the tendon does not consist of exactly one joint.
        """
        m, mj, tendon = self.compiled, self.mujoco, int(self.compiled.actuator_trnid[a, 0])
        if int(m.actuator_trntype[a]) != mj.mjtTrn.mjTRN_TENDON or int(m.tendon_num[tendon]) != 1:
            return None
        index = int(m.tendon_adr[tendon])
        return index if int(m.wrap_type[index]) == mj.mjtWrap.mjWRAP_JOINT else None

    def tendon(self, a: int) -> tuple[list[str], list[float]] | None:
        """Return the variables and coefficients of the fixed tendon that an actuator drives.
        Return None unless the actuator drives a fixed tendon of several different hinges or slides.
        """
        m, mj, tendon = self.compiled, self.mujoco, int(self.compiled.actuator_trnid[a, 0])
        if int(m.actuator_trntype[a]) != mj.mjtTrn.mjTRN_TENDON or int(m.tendon_num[tendon]) < 2:
            return None
        indices = range(int(m.tendon_adr[tendon]), int(m.tendon_adr[tendon]) + int(m.tendon_num[tendon]))
        if any(int(m.wrap_type[i]) != mj.mjtWrap.mjWRAP_JOINT for i in indices):
            return None
        names = [self.single(int(m.wrap_objid[i])) for i in indices]
        if None in names or len(set(names)) < len(names):
            return None
        return [str(n) for n in names], [float(m.wrap_prm[i]) for i in indices]

    @cached_property
    def _pushing(self) -> dict[int, list[tuple[int, float | None]]]:
        """Actuators of each joint whose total actuator force is limited, in a dict by the joint's index.
        An actuator is a tuple (index, ratio), with the ratio of its force at the joint to its control. The
        ratio is None if the force is not proportional to the control.
        """
        m, T = self.compiled, self.mujoco.mjtTrn
        pushing: dict[int, list[tuple[int, float | None]]] = {}
        for j in np.flatnonzero(m.jnt_actfrclimited).tolist():
            pushing[j] = []
            for a in filter(self.acts, self.actuators):
                arm: float | None = None
                if (names := self.tendon(a)) is not None:
                    if self.single(j) not in names[0]:
                        continue
                    arm = self.gears(a)[0] * names[1][names[0].index(str(self.single(j)))]
                elif (joint := self.driven_joint(a)) is not None:
                    if joint != j:
                        continue
                    arm = self.gear(a)
                elif int(m.actuator_trntype[a]) == T.mjTRN_SITE and int(m.jnt_bodyid[j]) not in self._above(
                    int(m.site_bodyid[m.actuator_trnid[a, 0]])
                ):
                    continue
                if arm is not None:
                    linear = self.static(a) and not int(m.actuator_biastype[a])
                    arm = arm * float(m.actuator_gainprm[a, 0]) if linear else None
                pushing[j].append((a, arm))
        return pushing

    def _above(self, body: int) -> set[int]:
        """Return the indices of a body and of all its ancestors."""
        bodies = {body}
        while body:
            body = int(self.compiled.body_parentid[body])
            bodies.add(body)
        return bodies

    @cached_property
    def _pulling(self) -> dict[int, list[tuple[int, float | None]]]:
        """Actuators of each tendon whose total actuator force is limited, in a dict by the tendon's index.
        An actuator is a tuple (index, ratio), with the ratio of its force to its control. The ratio is None
        if the force is not proportional to the control.

        The force is the one before the gear.
        """
        m = self.compiled
        pulling: dict[int, list[tuple[int, float | None]]] = {}
        for t in np.flatnonzero(m.tendon_actfrclimited).tolist():
            pulling[t] = []
            for a in filter(self.acts, self.actuators):
                if (
                    int(m.actuator_trntype[a]) == self.mujoco.mjtTrn.mjTRN_TENDON
                    and t == m.actuator_trnid[a, 0]
                ):
                    linear = self.static(a) and not int(m.actuator_biastype[a])
                    pulling[t].append((a, float(m.actuator_gainprm[a, 0]) if linear else None))
        return pulling

    def clamped(self) -> Iterable[int]:
        """Yield the joints whose total actuator force can exceed their limit ``actuatorfrcrange``."""
        for j, pushing in self._pushing.items():
            if self._limits(self.compiled.jnt_actfrcrange[j], pushing):
                yield j

    def clamped_tendons(self) -> Iterable[int]:
        """Yield the tendons whose total actuator force can exceed their limit ``actuatorfrcrange``."""
        for t, pulling in self._pulling.items():
            if self._limits(self.compiled.tendon_actfrcrange[t], pulling):
                yield t

    def _limits(self, forces: np.ndarray, pushing: list[tuple[int, float | None]]) -> bool:
        """Return whether the total force of several actuators can exceed its limits.
        The result is False for a single actuator whose force is proportional to its control. For such an
        actuator, `control_range` reduces the range of the control.
        """
        alone = len(pushing) == 1 and pushing[0][1] is not None
        return bool(pushing) and not alone and not self._within(forces, pushing)

    def _within(self, forces: np.ndarray, pushing: list[tuple[int, float | None]]) -> bool:
        """Return whether the total force of actuators satisfies a limit for all controls in their ranges."""
        least, most = 0.0, 0.0
        for a, arm in pushing:
            if arm is None:
                return False
            if arm:
                ends = sorted(arm * end for end in self.control_range(a))
                least, most = least + ends[0], most + ends[1]
        low, high = forces
        return bool(low <= least and most <= high)

    def control_range(self, a: int) -> tuple[float, float]:
        """Return the range of the control of actuator number a, tightened by limits of its force.

        Only limits of a force that is proportional to the control count.
        """
        m, actuator = self.compiled, self.compiled.actuator(a)
        clamped = actuator.ctrllimited[0] and not self.disabled("CLAMPCTRL")
        low, high = map(float, actuator.ctrlrange if clamped else (-math.inf, math.inf))
        gain = float(m.actuator_gainprm[a, 0])
        limits = []
        if m.actuator_forcelimited[a] and not int(m.actuator_biastype[a]):
            limits.append((gain, m.actuator_forcerange[a]))
        for groups, ranges in (
            (self._pushing, m.jnt_actfrcrange),
            (self._pulling, m.tendon_actfrcrange),
        ):
            for i, pushing in groups.items():
                if len(pushing) == 1 and pushing[0][0] == a and pushing[0][1] is not None:
                    limits.append((pushing[0][1], ranges[i]))
        for factor, forces in limits:
            if factor:
                least, most = sorted(float(force) / factor for force in forces)
                low, high = max(low, least), min(high, most)
        return low, high
