"""Real robots from URDF files against pinocchio, which reads the same files."""

import importlib.metadata
import math
import xml.etree.ElementTree as ET
from pathlib import Path

import casadi as ca
import numpy as np
import pytest
from scipy.linalg import null_space
from support.urdf_joints import STEP, free, quietly, turn

import vioc
from vioc import Lagrangian, consistent_configuration
from vioc.errors import ReadError

pin = pytest.importorskip("pinocchio")
pytestmark = pytest.mark.peer


def real_robot(name):
    """The path of a URDF file of the package example-robot-data."""
    try:
        package = importlib.metadata.distribution("example-robot-data")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("example-robot-data is not installed")
    return next(Path(package.locate_file(f)) for f in package.files if Path(f).name == name)


class Peer:
    """pinocchio's model of the same file, with its state as a function of ours.

    Its free flyer has a position, a quaternion and a velocity in the base's axes; a continuous joint is
    a point on the circle. G(q) takes our velocities to its: v' = G v, so M = G' M' G and the bias forces
    are G' (b' + M' dG/dt v).
    """

    def __init__(self, path, model, base):
        self.ours = model
        args = [pin.JointModelFreeFlyer()] if base == "floating" else []
        self.model = pin.buildModelFromUrdf(str(path), *args)
        self.data = self.model.createData()
        self.names = model.system.variables
        self.base = list(self.names[:6]) if base == "floating" else []

    def joints(self):
        for name, j in self.ours.joints.items():
            for variable in j.variables:
                yield self.model.joints[self.model.getJointId(name)], self.names.index(variable)

    def rates(self, q):
        G = np.zeros((self.model.nv, len(self.names)), q.dtype)
        if self.base:
            yaw, pitch, roll = q[3:6]
            G[:3, :3] = (turn(2, yaw) @ turn(1, pitch) @ turn(0, roll))[:3, :3].T
            G[3:6, 3] = (turn(1, pitch) @ turn(0, roll))[2, :3]
            G[3:6, 4] = turn(0, roll)[1, :3]
            G[3, 5] = 1
        for j, i in self.joints():
            G[j.idx_v, i] = 1
        return G

    def configuration(self, q):
        result = pin.neutral(self.model)
        if self.base:
            result[:3] = q[:3]
            result[3:7] = pin.Quaternion(free(q[:6])[:3, :3]).coeffs()
        for j, i in self.joints():
            result[j.idx_q : j.idx_q + j.nq] = [q[i]] if j.nq == 1 else [math.cos(q[i]), math.sin(q[i])]
        return result


ROBOTS = [
    ("ur5_robot.urdf", "fixed"),
    ("panda.urdf", "fixed"),  # prismatic fingers, mimic
    ("kinova.urdf", "fixed"),  # continuous joints
    ("solo12.urdf", "floating"),
    ("hyq_no_sensors.urdf", "floating"),  # inertias that no body has
    ("romeo.urdf", "floating"),  # 61 variables, 22 mimics
    ("icub.urdf", "floating"),  # axes in all directions
    ("talos_full_v2.urdf", "floating"),  # 50 variables, 12 mimics
]


@pytest.mark.parametrize(("name", "base"), ROBOTS, ids=[name for name, _ in ROBOTS])
def test_real_robots_against_pinocchio(name, base):
    path = real_robot(name)
    model = quietly(path, base=base)
    peer = Peer(path, model, base)
    data = peer.data
    system, lag = model.system, Lagrangian(model.system)
    _, vq, _ = lag.second
    bias = vq @ lag.graph.v_vector - lag.L_q  # of M a + bias = 0
    ours = lag.function("ours", [lag.M, bias, lag.T, lag.V])
    place = ca.Function("place", [lag.graph.q_vector], [lag.graph.pose(f) for f in system.frame_names])
    n = len(system.variables)
    rng = np.random.default_rng(0)
    ground = None  # pinocchio leaves out the potential energy of what does not move
    for _ in range(4):
        q, v = rng.uniform(-1.2, 1.2, n), rng.normal(size=n)
        M, b, T, V = (np.array(o) for o in ours(q, v, [], 0, []))
        G, dG = peer.rates(q), peer.rates(q + 1j * STEP * v).imag / STEP
        qp, vp = peer.configuration(q), G @ v
        Mp = pin.crba(peer.model, data, qp)
        Mp = np.triu(Mp) + np.triu(Mp, 1).T
        scale = np.abs(Mp).max()
        np.testing.assert_allclose(M, G.T @ Mp @ G, rtol=1e-12, atol=1e-13 * scale)
        expected = G.T @ (pin.nle(peer.model, data, qp, vp) + Mp @ dG @ v)
        np.testing.assert_allclose(b[:, 0], expected, rtol=1e-12, atol=1e-13 * np.abs(expected).max())
        assert T[0, 0] == pytest.approx(pin.computeKineticEnergy(peer.model, data, qp, vp), rel=1e-12)
        still = V[0, 0] - pin.computePotentialEnergy(peer.model, data, qp)
        ground = still if ground is None else ground
        assert still == pytest.approx(ground, abs=1e-12 * max(1.0, abs(V[0, 0])))
        assert base == "fixed" or abs(ground) < 1e-10
        pin.framesForwardKinematics(peer.model, data, qp)
        for frame, pose in zip(system.frame_names, place(q), strict=True):
            theirs = data.oMf[peer.model.getFrameId(frame, pin.FrameType.BODY)]
            np.testing.assert_allclose(np.array(pose), theirs.homogeneous, rtol=0, atol=1e-13)


@pytest.mark.parametrize("name", ["panda.urdf", "baxter.urdf", "tiago_pro.urdf"])
def test_mimic_joints_against_pinocchio(name):
    """On the gears' tangent space the mass matrix is that of pinocchio's own mimic joints."""
    path = real_robot(name)
    model = quietly(path)
    theirs = pin.buildModelFromUrdf(str(path), mimic=True)
    data, lag = theirs.createData(), Lagrangian(model.system)
    leaders = {n: j.variables[0] for n, j in model.joints.items() if j.variables and j.mimic is None}
    rng = np.random.default_rng(1)
    q = dict(zip(leaders.values(), rng.uniform(-1, 1, len(leaders)), strict=True))
    q = consistent_configuration(lag, q, fixed=q).q
    tangent = null_space(lag.constraint_jacobian(q))
    columns = [theirs.joints[theirs.getJointId(n)].idx_v for n in leaders]
    rows = [model.system.variable_index(v) for v in leaders.values()]
    G = tangent @ np.linalg.inv(tangent[rows])  # our velocities from the leaders'
    qp = pin.neutral(theirs)
    for n, v in leaders.items():
        j, angle = theirs.joints[theirs.getJointId(n)], q[model.system.variable_index(v)]
        qp[j.idx_q : j.idx_q + j.nq] = [angle] if j.nq == 1 else [math.cos(angle), math.sin(angle)]
    Mp = pin.crba(theirs, data, qp)
    Mp = (np.triu(Mp) + np.triu(Mp, 1).T)[np.ix_(columns, columns)]
    assert len(columns) == theirs.nv
    np.testing.assert_allclose(G.T @ lag.mass_matrix(q) @ G, Mp, rtol=0, atol=1e-12 * np.abs(Mp).max())


def test_every_real_robot_can_be_read():
    real_robot("ur5_robot.urdf")
    package = importlib.metadata.distribution("example-robot-data")
    paths = sorted({Path(package.locate_file(f)) for f in package.files if Path(f).suffix == ".urdf"})
    refused = {}
    for path in paths:
        try:
            model = quietly(path, base="floating", inputs="all")
        except ReadError as error:
            refused[path.name] = error.reason
            continue
        root = ET.parse(path).getroot()
        links = {e.get("name") for e in root.findall("link")}
        assert {model.renamed.get(name, name) for name in links} == set(model.system.frame_names)
        assert set(model.joints) == {e.get("name") for e in root.findall("joint")}
    assert len(paths) > 50
    broken = {  # in one version of the package or another
        "falcon.urdf": "joint 'top_propeller_joint': unknown link 'Z_propeller'; did you mean "
        "'FR_propeller'?",
        "ur3.urdf": "robot 'robot': expected one link without a parent, got no links",
        "alex_psyonic_hands.urdf": "joint 'Left_index_q2': mimics 'index_q1', which does not exist",
    }
    assert refused.items() <= broken.items()


def test_a_humanoid_takes_a_step():
    """talos in free fall: 50 variables, 12 gears; the midpoint rule gives a constant acceleration exactly."""
    model = quietly(real_robot("talos_full_v2.urdf"), base="floating", inputs="all")
    f = vioc.MidpointVI(model.system, dt=0.01)
    x = f.initial_state(consistent_configuration(f.lagrangian, None, fixed=["base_link_z"]).q)
    damping = [c for c in model.system.components if isinstance(c, vioc.JointDamping)]
    run = f.rollout(x, steps=10)
    assert damping and f.nm == 12
    np.testing.assert_allclose(run["base_link_z"], -0.5 * 9.81 * run.t**2, rtol=0, atol=1e-9)
