"""MJCF files against MuJoCo, which reads the same files."""

import re
import warnings
from pathlib import Path

import numpy as np
import pytest

import vioc
from vioc import Lagrangian, ModelError, read_mjcf
from vioc.errors import ReadError, RobotWarning

mujoco = pytest.importorskip("mujoco")

from support.mujoco_peer import GroupLagrangian, package_file  # noqa: E402

EVERYTHING = Path(__file__).parent / "data" / "everything.xml"
PLUGINS = list((Path(mujoco.__file__).parent / "plugin").glob("*actuator.*"))

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
    return GroupLagrangian(EVERYTHING)


@pytest.mark.peer
@pytest.mark.parametrize(("package", "file", "variables"), ROBOTS, ids=[file for _, file, _ in ROBOTS])
def test_real_robots(package, file, variables):
    """Sums of some hundred products of numbers of the size of the largest entry, and of metres."""
    twin = GroupLagrangian(package_file(package, file))
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
    """h of pin, in the first body's axes, and gear is MuJoCo's residual; the weld's is 0 where its is."""
    rng, names = np.random.default_rng(2), twin.system.constraint_names
    q, v = rng.uniform(-1, 1, 14), np.zeros(14)
    h = dict(zip(names, np.array(twin.numbers(q, v, np.zeros(5), 0, [])[3])[:, 0], strict=True))
    twin.at(q, v)
    residual = twin.data.efc_pos[:10]  # pin, glue and gear
    pin = twin.system.constraints[names.index("pin-x")]
    R = vioc.Kinematics(twin.system).pose(pin.frame1, q)[:3, :3]
    np.testing.assert_allclose(R @ [h[f"pin-{axis}"] for axis in "xyz"], residual[:3], atol=1e-14)
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
    assert robot.limits["slide"].upper == 2 and robot.limits["roll"].effort == 6
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


ARM = """<mujoco><compiler autolimits="true"/><option {option}><flag {flag}/></option><asset>{asset}</asset>
<worldbody><site name="hook" pos="0 0 1"/><body name="arm"><joint name="q" axis="0 1 0" {q}/>
<geom size=".1" pos=".1 0 .05"/><site name="tip" pos=".1 .1 0"/><body name="hand" pos=".3 0 0" {hand}>
<joint name="r" axis="0 0 1"/><geom name="palm" size=".1" pos=".2 0 0" {palm}/></body></body>{world}
</worldbody><tendon>{tendon}</tendon><equality>{equality}</equality><actuator>{actuator}</actuator></mujoco>"""
PLACES = "option", "flag", "asset", "q", "hand", "palm", "world", "tendon", "equality", "actuator"
ROPE = '<spatial name="t" {}><site site="tip"/><site site="hook"/></spatial>'
SUM = '<fixed name="t" {}><joint joint="q" coef="2"/></fixed>'
MOTOR, BRAKE = (
    '<motor name="m" joint="r" gear="30"/>',
    '<dcmotor name="brake" joint="q" motorconst="1" resistance="1" input="none"/>',
)
OTHER = "an actuator that is not a gain on a joint, a site or a fixed tendon"
RELIEF = "actuatorgravcomp that is limited or has no actuators"
four = pytest.mark.skipif(not hasattr(mujoco.MjModel, "nactuator"), reason="came with MuJoCo 4")


@pytest.fixture
def read_arm(tmp_path):
    def read(**parts):
        path = tmp_path / "arm.xml"
        path.write_text(ARM.format_map({**dict.fromkeys(PLACES, ""), **parts}))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RobotWarning)
            return read_mjcf(path), mujoco.MjModel.from_xml_path(str(path))

    return read


def accelerations(robot, model):
    """Ours and MuJoCo's, without constraints."""
    data, q, v = mujoco.MjData(model), [0.4, -0.7], [0.9, -0.5]
    data.qpos[:2], data.qvel[:2] = q, v
    for name in robot.system.inputs:
        data.actuator(name).ctrl = 1
    mujoco.mj_forward(model, data)
    ones = np.ones(len(robot.system.inputs))
    return vioc.Continuous(robot.system).forward(q, v, ones).accelerations, data.qacc_smooth[:2]


@pytest.mark.parametrize(
    "parts",
    [
        {"tendon": ROPE.format('stiffness="500" damping="20" springlength="0.3"')},
        {"tendon": ROPE.format('stiffness="500" springlength="0.3"'), "flag": 'spring="disable"'},
        {"tendon": ROPE.format('damping="20"'), "flag": 'damper="disable"'},
        {"tendon": SUM.format('stiffness="5" damping="2"'), "flag": 'spring="disable" damper="disable"'},
        {"tendon": ROPE.format('range="0 0.4" frictionloss="1"'), "flag": 'constraint="disable"'},
        {"equality": '<connect body1="hand" anchor="0 0 0" active="true"/>', "flag": 'constraint="disable"'},
        {"q": 'frictionloss="1"', "flag": 'frictionloss="disable"'},
        {"actuator": '<motor joint="q" group="2" gear="9"/>' + MOTOR, "option": 'actuatorgroupdisable="2"'},
        {"actuator": '<position joint="q" group="2" kp="300"/>', "option": 'actuatorgroupdisable="0 2"'},
        {
            "actuator": '<motor name="m" joint="q" group="31" gear="9"/>',
            "option": 'actuatorgroupdisable="0 30"',
        },
        {"hand": 'gravcomp="0.7"', "flag": 'spring="disable"'},
        {"hand": 'gravcomp="0.7"', "flag": 'damper="disable"'},
        {"hand": 'gravcomp="0.7"', "flag": 'spring="disable" damper="disable"'},
        {"hand": 'gravcomp="-0.5"'},
        {"hand": 'gravcomp="-0.5"', "world": '<body gravcomp="0.1" pos="9 0 0"><geom size=".1"/></body>'},
        {"hand": 'gravcomp="0.7"', "q": 'actuatorgravcomp="true"', "actuator": MOTOR},
    ],
    ids=repr,
)
def test_what_is_disabled_or_passed_over_pushes_alike(read_arm, parts):
    if re.search("spring=|damper=", parts.get("flag", "")) and not hasattr(
        mujoco.mjtDisableBit, "mjDSBL_SPRING"
    ):
        pytest.skip("this MuJoCo has one flag for both")
    robot, model = read_arm(**parts)
    assert {u.what for u in robot.unsupported} <= {"an inactive connect"}
    assert not robot.system.constraints
    ours, theirs = accelerations(robot, model)
    np.testing.assert_allclose(ours, theirs, rtol=1e-11)


@pytest.mark.parametrize(
    ("parts", "listed"),
    [
        pytest.param(
            {"tendon": ROPE.format('stiffness="500 900" damping="20 90"')},
            [("polynomial stiffness", "tendon 't'"), ("polynomial damping", "tendon 't'")],
            marks=four,
        ),
        pytest.param(
            {"tendon": SUM.format('stiffness="0 9" damping="0 9"')},
            [("polynomial stiffness", "tendon 't'"), ("polynomial damping", "tendon 't'")],
            marks=four,
        ),
        pytest.param(
            {"tendon": ROPE.format('stiffness="500" springyield="0.1"')},
            [("springyield", "tendon 't'")],
            marks=four,
        ),
        pytest.param({"q": 'stiffness="5" springyield="0.1"'}, [("springyield", "joint 'q'")], marks=four),
        pytest.param(
            {"actuator": '<motor name="m" joint="q" damping="0 20"/>'},
            [("polynomial damping", "actuator 'm'")],
            marks=four,
        ),
        pytest.param(  # these act without the actuator
            {
                "actuator": '<motor name="m" joint="q" damping="2" armature="1"/>',
                "flag": 'actuation="disable"',
            },
            [("armature", "actuator 'm'"), ("damping", "actuator 'm'")],
            marks=four,
        ),
        pytest.param(
            {"actuator": '<motor name="m" joint="q" gear="30" delay="0.1" nsample="10"/>'},
            [("delay", "actuator 'm'")],
            marks=four,
        ),
        ({"hand": 'gravcomp="0.7"', "q": 'actuatorgravcomp="true"'}, [(RELIEF, "joint 'q'")]),
        (
            {
                "hand": 'gravcomp="0.7"',
                "q": 'actuatorgravcomp="true" actuatorfrcrange="-1 1"',
                "actuator": MOTOR,
            },
            [(RELIEF, "joint 'q'")],
        ),
        (
            {"actuator": '<motor name="m" joint="q" ctrlrange="-1 1" forcerange="5 9"/>'},
            [("an actuator whose ranges of control and force do not overlap", "actuator 'm'")],
        ),
        pytest.param({"actuator": BRAKE + MOTOR}, [(OTHER, "actuator 'brake'")], marks=four),
        pytest.param({"actuator": MOTOR + BRAKE}, [(OTHER, "actuator 'brake'")], marks=four),
        pytest.param(
            {"actuator": '<pid name="p" joint="q" kp="9" kv="2" input="pos vel"/>' + MOTOR},
            [(OTHER, "actuator 'p'")],
            marks=four,
        ),
        pytest.param(
            {"actuator": '<orientation name="o" site="tip" refsite="hook" kp="9"/>' + MOTOR},
            [(OTHER, "actuator 'o'")],
            marks=four,
        ),
    ],
    ids=repr,
)
def test_what_pushes_otherwise_is_named(read_arm, parts, listed):
    robot, model = read_arm(**parts)
    assert [tuple(u[:2]) for u in robot.unsupported] == listed
    assert robot.system.inputs == (("m",) if MOTOR in parts.get("actuator", "") else robot.system.inputs)
    ours, theirs = accelerations(robot, model)
    if "springyield" not in str(parts):  # there so only after it has yielded
        assert np.abs(ours - theirs).max() > 1e-3


@four
def test_a_motor_behind_actuators_of_no_control_or_several_is_the_files(read_arm):
    several = '<pid joint="q" kp="9" kv="2" input="pos vel"/><orientation site="tip" refsite="hook" kp="9"/>'
    motor = '<motor name="m" joint="r" gear="30" ctrlrange="-3 2"/>'
    alone, model = read_arm(actuator=motor)
    for others in (several, BRAKE):
        robot, _ = read_arm(actuator=others + motor)
        assert robot.bounds() == alone.bounds() and robot.limits == alone.limits
        ours, theirs = accelerations(robot, model)
        np.testing.assert_allclose(ours, theirs, rtol=1e-11)


@pytest.mark.skipif(not PLUGINS, reason="this MuJoCo brings no plugin of actuators")
def test_an_actuator_of_a_plugin_is_no_motor(tmp_path):
    mujoco.mj_loadPluginLibrary(str(PLUGINS[0]))
    path = tmp_path / "plugin.xml"
    path.write_text("""<mujoco><extension><plugin plugin="mujoco.pid"><instance name="k">
    <config key="kp" value="40"/></instance></plugin></extension><worldbody><body><joint name="q"/>
    <geom size=".1"/></body></worldbody><actuator>
    <plugin name="p" joint="q" plugin="mujoco.pid" instance="k"/></actuator></mujoco>""")
    with pytest.warns(RobotWarning):
        robot = read_mjcf(path)
    listed = [(OTHER, "actuator 'p'"), ("<plugin>", "plugin 'k'")]
    assert [tuple(u[:2]) for u in robot.unsupported] == listed and not robot.system.inputs


def test_a_weld_whose_torque_is_scaled_by_zero_holds_a_point(read_arm):
    weld = '<weld name="w" body1="hand" anchor="0.1 0.2 0" relpose="0.5 0.1 0 1 0 0 0" torquescale="{}"/>'
    for scale, count in ((0, 3), (0.5, 6)):
        robot, model = read_arm(equality=weld.format(scale))
        data = mujoco.MjData(model)
        data.qpos[:] = 0.4, -0.7
        mujoco.mj_forward(model, data)
        h, lag = robot.system.constraint_names, Lagrangian(robot.system)
        assert h == tuple(f"w-{end}" for end in ("x", "y", "z", "yaw", "pitch", "roll")[:count])
        rows = np.array(lag.function("h", [lag.h])(data.qpos, [0, 0], [], 0, [])).ravel()
        np.testing.assert_allclose(np.linalg.norm(rows[:3]), np.linalg.norm(data.efc_pos[:3]), rtol=1e-12)
        assert (np.abs(data.efc_pos[3:]).max() > 0.01) == (scale > 0)


@pytest.mark.parametrize(
    "actuators",
    [
        '<motor joint="q" gear="2" ctrlrange="-1 1" forcerange="-100 100"/>',
        '<motor joint="q" gear="2" ctrlrange="-9 9" forcerange="-3 1"/>',
        '<motor joint="q" gear="2" ctrlrange="-9 9"/><motor joint="q" gear="-5" ctrlrange="-1 0"/>',
        '<position joint="q" gear="2" kp="1e3" forcerange="-3 3"/>',
        '<motor joint="q" gear="-2" ctrlrange="-1 0"/><motor joint="q" gear="50" group="3"/>',
        '<motor joint="q" gear="0"/>',
        '<general joint="q" gainprm="0"/>',
        '<general joint="q" gainprm="3" dyntype="filter" dynprm="0.1" ctrlrange="-1 1"/>',
    ],
)
@pytest.mark.parametrize("limit", ["", 'actuatorfrcrange="-8 8"'])
def test_efforts_are_the_largest_that_mujoco_gives(read_arm, actuators, limit):
    robot, model = read_arm(actuator=actuators, q=limit, option='actuatorgroupdisable="3"')
    data, most = mujoco.MjData(model), 0.0
    for control in (-1e6, 1e6):
        data.ctrl[:] = control * np.sign(model.actuator_gear[:, 0])
        data.act[:] = np.sign(control)  # where the filter's control takes it
        mujoco.mj_forward(model, data)
        most = max(most, abs(data.qfrc_actuator[0]))
    assert robot.limits["q"].effort == pytest.approx(most, rel=1e-15)


CLAMPED = "actuatorfrcrange that no bound of one input expresses"


@pytest.mark.parametrize(
    "actuator",
    [
        '<motor name="m" joint="q" ctrlrange="-88 88" ctrllimited="true"/>',
        '<motor name="m" joint="q" gear="-2"/>',
        '<general name="m" joint="q" gainprm="5" gear="2" forcerange="-7 90"/>',
        '<motor name="m" tendon="t"/>',
    ],
)
def test_bounds_of_a_control_are_the_least_of_all_limits(read_arm, actuator):
    """At and between its bounds a control pushes as in MuJoCo, beyond them MuJoCo gives no more."""
    robot, model = read_arm(actuator=actuator, q='actuatorfrcrange="-60 40"', tendon=SUM.format(""))
    assert not robot.unsupported
    data, ours = mujoco.MjData(model), vioc.Continuous(robot.system)
    low, high = robot.bounds()["u.m"]
    for u in (low, 0.3 * low, 0.7 * high, high, 1.001 * low, 1.001 * high):
        data.qpos[:], data.qvel[:], data.ctrl[:] = (0.4, -0.7), (0.9, -0.5), u
        mujoco.mj_forward(model, data)
        rest = ours.forward(data.qpos, data.qvel, [0]).accelerations
        push = ours.inverse(data.qpos, data.qvel, ours.forward(data.qpos, data.qvel, [u]).accelerations)
        push -= ours.inverse(data.qpos, data.qvel, rest)
        beyond = not low <= u <= high
        scale = np.abs(push).max()
        assert (np.abs(push - data.qfrc_actuator).max() > 1e-12 * scale) == beyond


@pytest.mark.parametrize(
    ("actuator", "listed"),
    [
        ('<position name="m" joint="q" kp="100"/>', True),
        ('<motor name="m" joint="q" ctrlrange="-5 5"/><motor name="n" joint="q" ctrlrange="-5 5"/>', True),
        ('<motor name="m" joint="q" ctrlrange="-5 5"/><motor name="n" joint="q" ctrlrange="-3 3"/>', False),
        ('<motor name="m" joint="q" ctrlrange="-5 5"/><motor name="n" site="tip" gear="0 0 9 0 0 0"/>', True),
        ('<motor name="m" joint="r" gear="30"/>', False),
    ],
)
def test_a_limit_of_the_force_of_several_actuators_or_of_a_servo_is_listed(read_arm, actuator, listed):
    robot, _ = read_arm(actuator=actuator, q='actuatorfrcrange="-8 8"')
    assert [tuple(u[:2]) for u in robot.unsupported] == [(CLAMPED, "joint 'q'")] * listed


@pytest.mark.parametrize(
    "parts",
    [
        {"asset": '<mesh name="m" file="FILE"/>', "palm": 'type="mesh" mesh="m"'},
        {"world": '<body><flexcomp name="f" type="mesh" file="FILE" dim="2" radius=".1"/></body>'},
        {"asset": '<hfield name="h" file="FILE"/>'},
        {"asset": '<texture name="t" type="2d" file="FILE"/>'},
    ],
    ids=lambda parts: next(iter(parts)),
)
def test_files_that_a_model_names_lie_below_its_folder(read_arm, tmp_path, parts):
    (tmp_path.parent / "outside.stl").write_text("secret")
    with pytest.raises(
        ReadError, match=r"arm.xml:\d:1: names '../outside.stl', which is not below .* folder="
    ):
        read_arm(**{k: text.replace("FILE", "../outside.stl") for k, text in parts.items()})


BODY = '<mujoco><worldbody><body><joint name="q"/><geom size=".1"/></body></worldbody></mujoco>'


def test_included_files_lie_below_the_folder_of_the_model_unless_told(tmp_path):
    home = tmp_path / "robots" / "one"
    (home / "parts").mkdir(parents=True)
    (tmp_path / "robots" / "arm.xml").write_text(BODY)
    (home / "parts" / "arm.xml").write_text(BODY)
    (home / "parts" / "more.xml").write_text('<mujoco><include file="arm.xml"/></mujoco>')
    (home / "parts" / "out.xml").write_text('<mujoco>\n<include file="../arm.xml"/></mujoco>')
    (home / "link.xml").symlink_to(tmp_path / "robots" / "arm.xml")
    path = home / "robot.xml"

    def load(name, **options):
        path.write_text(f"<mujoco>\n<include file = '{name}'/></mujoco>")
        return read_mjcf(path, **options).system.variables

    for name in ("parts/arm.xml", "parts/more.xml", "parts\\arm.xml", f"{home}/parts/arm.xml"):
        assert load(name) == ("q",)
    outside = [
        "../arm.xml",
        "..\\arm.xml",
        "..&quot;/../../arm.xml",
        "none/../../arm.xml",
        "link.xml",
        "parts//../../arm.xml",
    ]
    for name in [*outside, f"{tmp_path}/robots/arm.xml", "parts/out.xml", "/dev/null"]:
        with pytest.raises(
            ReadError, match=r"\.xml:2:1: names '.*', which is not below the folder '.*robots/one'"
        ):
            load(name)
    for name in (*outside[:2], "link.xml", f"{tmp_path}/robots/arm.xml", "parts/out.xml"):
        assert load(name, folder=tmp_path) == ("q",)
    for number in ("&#46;", "&#x2e;", "&#x0000000002e;", "&#4294967342;"):  # a dot, in some parsers
        with pytest.raises(ReadError, match="write a character itself"):
            load(f"{number}./arm.xml")


@pytest.mark.parametrize(
    "text",
    [
        "<mujoco><!-- file=\" --><include file='../arm.xml'/><!-- \" --></mujoco>",
        '<mujoco model="file="><include file=\'../arm.xml\'/><option gravity="0 0 -9"/></mujoco>',
        "<mujoco><!-- dir='--><include file=\"../arm.xml\"/><!--'--></mujoco>",
    ],
)
def test_no_text_before_the_name_of_a_file_hides_it(tmp_path, text):
    (tmp_path / "one").mkdir()
    (tmp_path / "arm.xml").write_text(BODY)
    (tmp_path / "one" / "robot.xml").write_text(text)
    with pytest.raises(ReadError, match=r"names '../arm.xml', which is not below the folder"):
        read_mjcf(tmp_path / "one" / "robot.xml")
    (tmp_path / "one" / "robot.xml").write_text(BODY.replace("<world", f"<!-- file='{9000 * 'x'}' --><world"))
    assert read_mjcf(tmp_path / "one" / "robot.xml").system.variables == ("q",)


def test_a_file_without_a_body_is_named(tmp_path):
    path = tmp_path / "ball.xml"
    path.write_text('<mujoco><worldbody><geom size=".1"/></worldbody></mujoco>')
    with pytest.raises(ReadError, match=r"ball.xml:1:1: a mechanism needs at least one <body>"):
        vioc.read(path)


@pytest.mark.parametrize(
    "mesh",
    [
        "",
        'scale="1 2 -3" refpos="1 0.2 0.3"',
        'scale="2 2 2" refpos="1 0.2 0.3" refquat="0.4 0.1 -0.2 0.7"',
        'scale="1 2 3" refpos="1 0.2 0.3" refquat="1 0 0 1"',
    ],
)
def test_meshes_collide_and_are_seen_where_mujoco_has_them(read_arm, tmp_path, mesh):
    trimesh = pytest.importorskip("trimesh")
    box = trimesh.creation.box((0.3, 0.2, 0.5))
    box.apply_translation((0.4, -0.2, 0.1))
    box.export(tmp_path / "m.stl")
    robot, model = read_arm(asset=f'<mesh name="m" file="m.stl" {mesh}/>', palm='type="mesh" mesh="m"')
    assert not robot.unsupported and robot.visuals == robot.collisions
    turn = np.zeros(9)
    mujoco.mju_quat2Mat(turn, model.geom("palm").quat)
    theirs = model.mesh_vert @ turn.reshape(3, 3).T + model.geom("palm").pos
    (hull,) = robot.shapes(corners=50)["hand"]
    ours = np.array([ball.center for ball in hull.corners()])
    apart = np.linalg.norm(ours[:, None] - theirs, axis=2)
    assert max(apart.min(0).max(), apart.min(1).max()) < 1e-6  # MuJoCo has them in single precision


def test_shapes_that_no_pose_brings_about_and_surfaces_that_move_are_named(read_arm, tmp_path):
    inline = 'vertex="0 0 0 1 0 0 0 1 0 0 0 1" name="m"'
    sheared = f'<mesh {inline} scale="1 1 2" refquat="1 1 0.2 0"/>'
    robot, _ = read_arm(asset=sheared, palm='type="mesh" mesh="m"')
    listed = [
        ("refquat of a mesh with unequal scales", "geom 'palm'"),
        ("contact with a mesh", "geom 'palm'"),
    ]
    assert [tuple(u[:2]) for u in robot.unsupported] == listed and len(robot.collisions) == 1
    robot, _ = read_arm(asset=f"<mesh {inline}/>", palm='type="mesh" mesh="m"')  # of no file
    assert [tuple(u[:2]) for u in robot.unsupported] == listed[1:] and list(robot.shapes()) == ["arm"]
    if hasattr(mujoco.MjModel, "geom_adhesion"):
        robot, _ = read_arm(palm='adhesion="3" surfacevel="1 0 0 0 0 0"')
        listed = [("adhesion", "geom 'palm'"), ("surfacevel", "geom 'palm'")]
        assert [tuple(u[:2]) for u in robot.unsupported] == listed


def test_ranges_of_balls_and_flexes_are_named(read_arm):
    ball = '<body><joint name="b" type="ball" range="0 0.1"/><geom size=".1"/></body>'
    flex = '<flexcomp name="net" type="grid" count="3 3 1" spacing=".1 .1 .1" radius=".01" rigid="true"/>'
    robot, _ = read_arm(world=ball + flex)
    listed = [("range of a ball or free joint", "joint 'b'"), ("<flex>", "flex 'net'")]
    assert [tuple(u[:2]) for u in robot.unsupported] == listed


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


def test_a_tendons_force_limit_bounds_its_motor_as_in_mujoco(tmp_path):
    """The limit is on the force before the gear; for two motors on the tendon it is listed instead."""
    text = """<mujoco><worldbody><body><joint name="h" axis="0 1 0"/><geom size=".1" mass="1"/></body>
    </worldbody><tendon><fixed name="t" actuatorfrclimited="true" actuatorfrcrange="-3 2">
    <joint joint="h" coef="2"/></fixed></tendon><actuator>
    <general name="motor" tendon="t" gear="5" gainprm="4" ctrlrange="-9 9" ctrllimited="true"/>
    {}</actuator></mujoco>"""
    (tmp_path / "one.xml").write_text(text.format(""))
    robot = read_mjcf(tmp_path / "one.xml")
    assert not robot.unsupported
    assert robot.bounds()["u.motor"] == (-0.75, 0.5)
    assert robot.limits["h"].effort == 3 * 5 * 2
    model = mujoco.MjModel.from_xml_path(str(tmp_path / "one.xml"))
    data, ours = mujoco.MjData(model), vioc.Continuous(robot.system)
    for u, within in ((0.4, 0.4), (0.8, 0.5), (-1.0, -0.75)):
        data.ctrl[:] = u
        mujoco.mj_forward(model, data)
        still = ours.forward([0.0], [0.0], [0.0]).accelerations
        force = (ours.forward([0.0], [0.0], [within]).accelerations - still) * model.body_inertia[1, 1]
        np.testing.assert_allclose(data.qfrc_actuator, force, rtol=1e-12)
    (tmp_path / "two.xml").write_text(text.format('<motor name="other" tendon="t" ctrlrange="-9 9"/>'))
    with pytest.warns(RobotWarning):
        robot = read_mjcf(tmp_path / "two.xml")
    assert [(u.where, u.what[:16]) for u in robot.unsupported] == [("tendon 't'", "actuatorfrcrange")]
