"""MuJoCo's own numbers of a model that vioc has read, in vioc's coordinates.

A ball joint's and a free body's velocity is angular in the body's axes; G(q) takes our velocities to
MuJoCo's, v' = G v, so M = G' M' G, the bias forces are G' (b' + M' dG/dt v), and forces G' f'.
"""

import importlib.metadata
import warnings
from pathlib import Path

import mujoco
import numpy as np
import pytest

from vioc import Lagrangian, read_mjcf

STEP = 1e-30  # of complex differences


def package_file(package, ending):
    """A file of an installed package, by how its path ends."""
    try:
        found = importlib.metadata.distribution(package)
    except importlib.metadata.PackageNotFoundError:
        pytest.skip(f"{package} is not installed")
    return next(Path(found.locate_file(f)) for f in found.files if str(f).endswith(ending))


def turn(yaw, pitch, roll):
    def about(axis, angle):
        i, j = (axis + 1) % 3, (axis + 2) % 3
        R = np.eye(3, dtype=np.result_type(angle))
        R[i, i] = R[j, j] = np.cos(angle)
        R[j, i] = np.sin(angle)
        R[i, j] = -R[j, i]
        return R

    return about(2, yaw), about(1, pitch), about(0, roll)


class GroupLagrangian:
    """vioc's reading and MuJoCo's own of one file."""

    def __init__(self, path, **options):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.robot = read_mjcf(path, **options)
        self.system = self.robot.system
        self.lagrangian = lag = Lagrangian(self.system)
        self.model = mujoco.MjModel.from_xml_path(str(path))
        self.data = mujoco.MjData(self.model)
        graph = lag.graph
        _, vq, _ = lag.second
        bias = vq @ graph.v_vector - lag.L_q - lag.potential_gradient
        push = lag.F - lag.potential_gradient
        poses = [graph.pose(frame)[:3, :] for frame in self.system.frame_names]
        self.numbers = lag.function("ours", [lag.M, bias, push, lag.h, *poses])

    def joints(self):
        variables = self.system.variables
        for j, joint in enumerate(self.robot.joints.values()):
            yield j, [variables.index(v) for v in joint.variables]

    def rates(self, q):
        G = np.zeros((self.model.nv, len(self.system.variables)), q.dtype)
        for j, own in self.joints():
            at = self.model.jnt_dofadr[j]
            if len(own) == 1:
                G[at, own[0]] = 1
                continue
            if len(own) == 6:
                G[at : at + 3, own[:3]] = np.eye(3)
            at += len(own) - 3
            _, pitch, roll = turn(*q[own[-3:]])
            G[at : at + 3, own[-3]], G[at : at + 3, own[-2]], G[at, own[-1]] = (pitch @ roll)[2], roll[1], 1
        return G

    def at(self, q, v, controls=None):
        """(M, bias, push) of MuJoCo in our coordinates, with its data set to this state."""
        m, d = self.model, self.data
        mujoco.mj_resetData(m, d)
        for j, own in self.joints():
            at = m.jnt_qposadr[j]
            if len(own) == 1:
                d.qpos[at] = q[own[0]]
                continue
            if len(own) == 6:
                d.qpos[at : at + 3] = q[own[:3]]
            yaw, pitch, roll = turn(*q[own[-3:]])
            mujoco.mju_mat2Quat(d.qpos[at + len(own) - 3 :][:4], (yaw @ pitch @ roll).ravel())
        G, dG = self.rates(q), self.rates(q + 1j * STEP * v).imag / STEP
        d.qvel[:] = G @ v
        for name, value in (controls or {}).items():
            d.actuator(name).ctrl = value
        mujoco.mj_forward(m, d)
        M = np.zeros((m.nv, m.nv))
        try:
            mujoco.mj_fullM(m, d, M)
        except TypeError:  # before 3.4 it takes the packed matrix
            mujoco.mj_fullM(m, M, d.qM)
        push = d.qfrc_passive + d.qfrc_actuator
        return G.T @ M @ G, G.T @ (d.qfrc_bias + M @ dG @ v), G.T @ push

    def pose(self, frame):
        """MuJoCo's (3, 4) of a body or site."""
        sites = {v: k.removeprefix("site ") for k, v in self.robot.renamed.items() if k.startswith("site ")}
        bodies = [self.model.body(i).name or f"body{i}" for i in range(self.model.nbody)]
        if frame in bodies:
            there = self.data.body(bodies.index(frame))
        else:
            there = self.data.site(sites.get(frame, frame))
        return np.column_stack([there.xmat.reshape(3, 3), there.xpos])

    def errors(self, count=4, seed=0):
        """Largest differences of mass matrix, bias forces (of the largest entry) and poses (m, 1)."""
        worst, rng, n = np.zeros(3), np.random.default_rng(seed), len(self.system.variables)
        for _ in range(count):
            q, v = rng.uniform(-1.2, 1.2, n), rng.normal(size=n)
            u = np.zeros(len(self.system.inputs))
            M, bias, _, _, *poses = (np.array(o) for o in self.numbers(q, v, u, 0, []))
            theirs = self.at(q, v)
            for i, ours in enumerate((M, bias[:, 0])):
                worst[i] = max(worst[i], np.abs(ours - theirs[i]).max() / np.abs(theirs[i]).max())
            for frame, pose in zip(self.system.frame_names, poses, strict=True):
                try:
                    worst[2] = max(worst[2], np.abs(pose - self.pose(frame)).max())
                except KeyError:  # a frame of a constraint's, or a site without a name
                    continue
        return worst
