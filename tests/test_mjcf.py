"""MJCF files against MuJoCo, which reads the same files."""

from pathlib import Path

import numpy as np
import pytest

import vioc
from vioc import ModelError
from vioc.errors import ReadError, RobotWarning

mujoco = pytest.importorskip("mujoco")

from mujoco_peer import Twin, package_file  # noqa: E402

from vioc.dynamics.formats.mjcf import read_mjcf  # noqa: E402

EVERYTHING = Path(__file__).parent / "data" / "everything.xml"

ROBOTS = [  # package, file, variables
    ("robosuite", "robots/panda/robot.xml", 7),
    ("robosuite", "robots/iiwa/robot.xml", 7),
    ("robosuite", "robots/ur5e/robot.xml", 6),
    ("robosuite", "robots/baxter/robot.xml", 14),  # armature
    ("robosuite", "robots/spot/robot.xml", 18),  # floating
    ("robosuite", "robots/gr1/robot.xml", 38),  # a humanoid
    ("gymnasium", "assets/ant.xml", 14),  # inertias of geoms
    ("gymnasium", "assets/humanoid.xml", 23),  # several joints a body, with anchors
    ("dm-control", "suite/cheetah.xml", 9),
    ("dm-control", "suite/dog.xml", 85),
]


@pytest.fixture(scope="module")
def twin():
    return Twin(EVERYTHING)


@pytest.mark.peer
@pytest.mark.parametrize(("package", "file", "variables"), ROBOTS, ids=[file for _, file, _ in ROBOTS])
def test_real_robots(package, file, variables):
    """Sums of some hundred products of numbers of the size of the largest entry, and of metres."""
    twin = Twin(package_file(package, file))
    assert len(twin.system.variables) == variables
    assert (twin.errors() < 1e-13).all()


def names_of(twin, *names):
    return [twin.system.variables.index(name) for name in names]


def test_every_feature_moves_alike(twin):
    assert (twin.errors() < 1e-13).all()


def test_springs_dampers_actuators_push_alike(twin):
    m, rng = twin.model, np.random.default_rng(1)
    m.opt.density = 0  # reported
    m.tendon_stiffness[1] = 0
    for _ in range(3):
        q, v = rng.uniform(-1, 1, 14), rng.normal(size=14)
        u = rng.uniform(0, 0.6, 5)
        controls = dict(zip(twin.system.inputs, u, strict=True))
        theirs = twin.at(q, v, controls)[2]
        ours = np.array(twin.numbers(q, v, u, 0, [])[2])[:, 0]
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12 * np.abs(theirs).max())


def test_constraints_are_equalities(twin):
    """h of pin and gear is MuJoCo's residual; where it is zero for the weld, so is MuJoCo's."""
    rng, names = np.random.default_rng(2), twin.system.constraint_names
    q, v = rng.uniform(-1, 1, 14), np.zeros(14)
    h = dict(zip(names, np.array(twin.numbers(q, v, np.zeros(5), 0, [])[3])[:, 0], strict=True))
    twin.at(q, v)
    residual = twin.data.efc_pos[:10]  # pin, glue and gear
    np.testing.assert_allclose([h[f"pin-{axis}"] for axis in "xyz"], residual[:3], atol=1e-14)
    assert h["gear"] == pytest.approx(residual[9], abs=1e-14)
    home = np.zeros(14)
    home[[0, 1]], home[names_of(twin, "root_x", "root_z")] = (0.3, np.radians(20)), (2, 1)
    h = np.array(twin.numbers(home, v, np.zeros(5), 0, [])[3])[:9, 0]  # MuJoCo closes them as they are drawn
    np.testing.assert_allclose(h, 0, atol=1e-14)


def test_what_is_not_supported_is_listed():
    with pytest.warns(RobotWarning, match=r"everything: not or not fully supported: frictionloss"):
        robot = read_mjcf(EVERYTHING)
    listed = {(u.what, u.where) for u in robot.unsupported}
    assert ("frictionloss", "joint 'slide'") in listed and ("<key>", "keyframe 'home'") in listed
    assert ("density of the medium", "option") in listed and ("<sensor>", "sensor 'angle'") in listed
    assert (
        "an actuator that is not a gain on a joint, a site or a fixed tendon",
        "actuator 'slow'",
    ) in listed
    assert len(listed) == len(robot.unsupported) == 10
    assert robot.bounds()["u.thrust"] == (0, 9) and robot.bounds()["u.torque"] == (-2, 2)
    assert robot.limits["slide"].upper == 2 and robot.limits["roll"].effort == 7
    kinds = {s.kind for s in robot.collisions}
    assert kinds == {"box", "capsule", "cylinder", "sphere"}
    assert robot.renamed == {"flap.1": "flap_1", "site arm": "arm_site"}


def test_tendons_that_drive_and_couple_are_listed(tmp_path):
    """Not one of them is passed over: the robot would be another one."""
    path = tmp_path / "rope.xml"
    path.write_text("""<mujoco><worldbody><site name="a" pos="0 0 1"/><body><joint name="q" type="slide"/>
    <geom size=".1"/><site name="b"/><body pos=".3 0 0"><joint name="r"/><geom size=".1"/></body></body>
    </worldbody>
    <tendon><spatial name="rope"><site site="a"/><site site="b"/></spatial>
    <fixed name="sum" limited="true" range="-1 1" stiffness="3"><joint joint="q" coef="1"/></fixed>
    <fixed name="other"><joint joint="r" coef="1"/></fixed></tendon>
    <actuator><motor name="pull" tendon="rope"/><position name="servo" tendon="sum"/>
    <motor name="crank" cranksite="b" slidersite="a" cranklength="0.1"/></actuator>
    <equality><tendon name="same" tendon1="sum" tendon2="other"/><joint name="held" joint1="q"/></equality>
    </mujoco>""")
    with pytest.warns(RobotWarning):
        robot = read_mjcf(path)
    where = {u.where for u in robot.unsupported}
    assert where >= {f"actuator {n!r}" for n in ("pull", "crank")}
    assert where >= {"equality 'same'", "equality 'held'", "tendon 'sum'"}
    assert robot.system.inputs == ("servo",) and not robot.system.constraints


def test_actuators_on_a_tendon_of_one_joint_push_alike(tmp_path):
    path = tmp_path / "winch.xml"
    path.write_text("""<mujoco><option gravity="0 0 0"/><worldbody><body><joint name="q" axis="0 1 0"/>
    <geom size=".1" pos=".1 0 0"/><body pos=".3 0 0"><joint name="r" axis="0 1 0"/>
    <geom size=".1" pos=".2 0 0"/></body></body></worldbody>
    <tendon><fixed name="a"><joint joint="q" coef="-0.4"/></fixed>
    <fixed name="b"><joint joint="r" coef="2.5"/></fixed></tendon><actuator>
    <motor name="winch" tendon="a" gear="3" ctrlrange="-2 1" ctrllimited="true"/>
    <position name="servo" tendon="b" kp="7" kv="0.6" gear="0.5"/></actuator></mujoco>""")
    robot, mujoco = read_mjcf(path), pytest.importorskip("mujoco")
    assert not robot.unsupported and robot.system.variables == ("q", "r")
    assert robot.limits["q"].effort == pytest.approx(0.4 * 3 * 2, rel=1e-15)
    model = mujoco.MjModel.from_xml_path(str(path))
    data, ours = mujoco.MjData(model), vioc.Continuous(robot.system)
    for q, v, u in (([0.3, -0.5], [0.2, 0.9], [0.7, 0.4]), ([-1.0, 0.2], [0.0, -2.0], [-1.5, -0.6])):
        data.qpos[:], data.qvel[:], data.ctrl[:] = q, v, u
        mujoco.mj_forward(model, data)
        np.testing.assert_allclose(ours.forward(q, v, u).accelerations, data.qacc_smooth, rtol=1e-12)


def test_a_tendon_over_several_joints_pulls_alike(tmp_path):
    path = tmp_path / "finger.xml"
    path.write_text("""<mujoco><option gravity="0 0 -9.81"/><worldbody><body><joint name="q" axis="0 1 0"/>
    <geom size=".1" pos=".1 0 0"/><body pos=".3 0 0"><joint name="r" axis="0 1 0"/>
    <geom size=".1" pos=".2 0 0"/><body pos=".3 0 0"><joint name="s" type="slide" axis="1 0 0"/>
    <geom size=".05" pos=".1 0 0"/></body></body></body></worldbody>
    <tendon><fixed name="flexor"><joint joint="q" coef="0.02"/><joint joint="r" coef="-0.015"/>
    <joint joint="s" coef="0.4"/></fixed></tendon><actuator>
    <motor name="pull" tendon="flexor" gear="3" ctrlrange="-2 1" ctrllimited="true"/>
    <general name="again" tendon="flexor" gainprm="5"/></actuator></mujoco>""")
    mujoco = pytest.importorskip("mujoco")
    robot = read_mjcf(path)
    assert not robot.unsupported and robot.system.inputs == ("pull", "again")
    model = mujoco.MjModel.from_xml_path(str(path))
    data, ours = mujoco.MjData(model), vioc.Continuous(robot.system)
    q, v = np.array([0.3, -0.5, 0.1]), np.array([0.2, 0.9, -0.4])
    for u in ([0.7, 0.4], [-1.5, -0.6]):
        data.qpos[:], data.qvel[:], data.ctrl[:] = q, v, u
        mujoco.mj_forward(model, data)
        free = ours.forward(q, v, np.zeros(2)).accelerations
        push = ours.inverse(q, v, ours.forward(q, v, u).accelerations) - ours.inverse(q, v, free)
        np.testing.assert_allclose(push, data.qfrc_actuator, rtol=0, atol=1e-12)
        np.testing.assert_allclose(ours.forward(q, v, u).accelerations, data.qacc_smooth, rtol=1e-11)


@pytest.mark.filterwarnings("ignore::vioc.errors.RobotWarning")
def test_one_entry_reads_every_format(tmp_path):
    system = vioc.read(EVERYTHING, inputs=["slide"], gravity=None)
    assert system.inputs == ("slide",) and "Gravity(" not in repr(system)
    other = tmp_path / "note.txt"
    other.write_text("<?xml version='1.0'?><!-- a note --><note/>")
    with pytest.raises(ReadError, match=r"expected <robot> \(URDF\) or <mujoco> \(MJCF\), got <note>"):
        vioc.read(other)
    other.write_text("<sdf version='1.9'><model name='m'/></sdf>")
    with pytest.raises(ReadError, match=r"got <sdf>; docs/urdf.md says how to convert SDF"):
        vioc.read(other)
    other = tmp_path / "broken.xml"
    other.write_text("<mujoco><worldbody><body><joint axis='0 0'/></body></worldbody></mujoco>")
    with pytest.raises(ReadError, match="axis"):
        vioc.read(other)
    with pytest.raises(ModelError, match="'push' is no joint that can be driven"):
        vioc.read(EVERYTHING, inputs=["push"])


def test_a_file_is_simulated(tmp_path):
    """A pendulum with armature, from MJCF and in MuJoCo by small steps."""
    path = tmp_path / "pendulum.xml"
    path.write_text(
        "<mujoco><option timestep='1e-4' integrator='RK4'/><worldbody><body name='arm'>"
        "<joint name='q' axis='0 1 0' armature='0.05'/>"
        "<geom type='capsule' fromto='0 0 0 0.1 0 -0.5' size='0.02'/>"
        "</body></worldbody></mujoco>"
    )
    f = vioc.MidpointVI(vioc.read(path), 1e-3)
    run = f.rollout(f.initial_state(q=1.0), steps=1000)
    model = mujoco.MjModel.from_xml_path(str(path))
    data = mujoco.MjData(model)
    data.qpos[0] = 1.0
    mujoco.mj_step(model, data, 10000)
    assert run["q"][-1] == pytest.approx(data.qpos[0], abs=2e-6)  # the rule's h^2 w^3 t/24, w = 5/s
