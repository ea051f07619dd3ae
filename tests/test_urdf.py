"""URDF files against a reading of their XML that shares no code."""

import builtins
import math
import pickle
import re
import warnings
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import expm
from support.urdf_joints import STEP, free, hat, quietly, turn

import vioc
from vioc import (
    Kinematics,
    Lagrangian,
    cli,
    consistent_configuration,
    read,
    read_text,
    read_urdf,
    read_urdf_text,
    write_text,
)
from vioc.components import GearConstraint

# inside: the entries that a read `Robot` has of joints and of what was left out
from vioc.dynamics.formats.robot import Limit, RobotJoint, Unsupported
from vioc.dynamics.formats.urdf import FLOATING
from vioc.errors import ModelError, ReadError, RobotWarning

DATA = Path(__file__).parent / "data"
pytest.importorskip("urdf_parser_py", reason="the extra vioc[urdf] is not installed")


def robot(body, **options):
    """A model of a text; `body` goes between the tags of the robot."""
    return read_urdf_text(f'<robot name="r">{body}</robot>', **options)


def link(name, inertial=""):
    return f'<link name="{name}">{inertial}</link>'


def joint(name, kind, parent, child, inside=""):
    return (
        f'<joint name="{name}" type="{kind}"><parent link="{parent}"/><child link="{child}"/>{inside}</joint>'
    )


def inertial(mass=1.0, moments=(1.0, 1.0, 1.0), products=(0.0, 0.0, 0.0), origin=""):
    tensor = dict(zip(("ixx", "iyy", "izz", "ixy", "ixz", "iyz"), (*moments, *products), strict=True))
    attributes = " ".join(f'{k}="{v!r}"' for k, v in tensor.items())
    return f'<inertial>{origin}<mass value="{mass!r}"/><inertia {attributes}/></inertial>'


def origin(xyz=(0, 0, 0), rpy=(0, 0, 0)):
    return f'<origin xyz="{" ".join(map(repr, xyz))}" rpy="{" ".join(map(repr, rpy))}"/>'


# -- a reading of the XML that shares no code ------------------------------------------------------


def vector(element, name, default):
    return np.array((element.get(name) if element is not None else None) or default, str).item().split()


def origin_matrix(element):
    found = element.find("origin")
    xyz = np.array(vector(found, "xyz", "0 0 0"), float)
    roll, pitch, yaw = np.array(vector(found, "rpy", "0 0 0"), float)
    g = turn(2, yaw) @ turn(1, pitch) @ turn(0, roll)
    g[:3, 3] = xyz
    return g


def joint_matrix(element, variables, q):
    values = [q[name] for name in variables]
    axis = np.array(vector(element.find("axis"), "xyz", "1 0 0"), float)
    axis /= np.linalg.norm(axis)
    kind = element.get("type")
    if kind == "fixed":
        return np.eye(4)
    if kind == "floating":
        return free(values)
    if kind == "planar":
        i = (int(np.argmax(abs(axis))) + 1) % 3
        a = np.eye(3)[i] - axis[i] * axis
        a /= np.linalg.norm(a)
        slide = hat(values[0] * a + values[1] * np.cross(axis, a), np.zeros(3))
        return expm(slide) @ expm(values[2] * hat(np.zeros(3), axis))
    parts = (axis, np.zeros(3)) if kind == "prismatic" else (np.zeros(3), axis)
    return expm(values[0] * hat(*parts))


def poses(root, model, q, base):
    joints = {j.find("child").get("link"): j for j in root.findall("joint")}

    def pose(name):
        if name not in joints:
            return free([q[f"{name}_{part}"] for part in FLOATING]) if base == "floating" else np.eye(4)
        j = joints[name]
        variables = model.joints[j.get("name")].variables
        return pose(j.find("parent").get("link")) @ origin_matrix(j) @ joint_matrix(j, variables, q)

    return {e.get("name"): pose(e.get("name")) for e in root.findall("link")}


def energies(root, model, q, dq, base, g=9.81):
    """Kinetic and potential energy, the velocities by a complex step."""
    moving = {name: q[name] + 1j * STEP * dq[name] for name in q}
    kinetic = potential = 0.0
    for name, pose in poses(root, model, moving, base).items():
        body = root.find(f"link[@name='{name}']/inertial")
        if body is None:
            continue
        pose = pose @ origin_matrix(body)
        m = float(body.find("mass").get("value"))
        I = np.array(
            [[float(body.find("inertia").get(f"i{min(a, b)}{max(a, b)}")) for b in "xyz"] for a in "xyz"]
        )
        velocity = pose[:3, 3].imag / STEP
        spin = pose[:3, :3].real.T @ pose[:3, :3].imag / STEP
        w = np.array([spin[2, 1], spin[0, 2], spin[1, 0]])
        kinetic += 0.5 * m * velocity @ velocity + 0.5 * w @ I @ w
        potential += m * g * pose[2, 3].real
    return kinetic, potential


def check_against_xml(root, model, base, seed=0):
    names = model.system.variables
    rng = np.random.default_rng(seed)
    q, dq = (dict(zip(names, rng.uniform(-1.2, 1.2, len(names)), strict=True)) for _ in "qv")
    kin, lag = Kinematics(model.system), Lagrangian(model.system)
    for name, expected in poses(root, model, q, base).items():
        frame = model.renamed.get(name, name)
        np.testing.assert_allclose(kin.pose(frame, q), expected, rtol=0, atol=1e-13)
    kinetic, potential = energies(root, model, q, dq, base)
    assert lag.kinetic_energy(q, dq) == pytest.approx(kinetic, rel=1e-12, abs=1e-14)
    assert lag.potential_energy(q) == pytest.approx(potential, rel=1e-12, abs=1e-13)


@pytest.mark.parametrize("base", ["fixed", "floating"])
@pytest.mark.parametrize("name", ["every_joint", "four_bar"])
def test_files_against_their_xml(name, base):
    path = DATA / f"{name}.urdf"
    model = quietly(path, base=base)
    for seed in range(3):
        check_against_xml(ET.parse(path).getroot(), model, base, seed)


angles = st.floats(-3, 3).map(lambda x: round(x, 3))
triples = st.tuples(angles, angles, angles)
kinds = st.sampled_from(["fixed", "revolute", "continuous", "prismatic", "planar", "floating"])


@st.composite
def urdf_texts(draw):
    """A random tree of random joints, links and joints in random order."""
    n = draw(st.integers(1, 5))
    parts = [link("link-0")]
    for i in range(1, n + 1):
        d = draw(st.tuples(*[st.floats(0.1, 2)] * 3))
        moments = (d[1] + d[2], d[0] + d[2], d[0] + d[1])  # of a body
        body = inertial(draw(st.floats(0.1, 5)), moments, origin=origin(draw(triples), draw(triples)))
        parts.append(link(f"link-{i}", body))
        axis = draw(triples.filter(lambda a: max(map(abs, a)) > 0.1))
        inside = origin(draw(triples), draw(triples)) + f'<axis xyz="{" ".join(map(str, axis))}"/>'
        parent = draw(st.integers(0, i - 1))
        parts.append(joint(f"joint-{i}", draw(kinds), f"link-{parent}", f"link-{i}", inside))
    return f'<robot name="r">{"".join(draw(st.permutations(parts)))}</robot>'


@settings(max_examples=15)
@given(urdf_texts(), st.sampled_from(["fixed", "floating"]))
def test_random_trees_against_their_xml(text, base):
    check_against_xml(ET.fromstring(text), read_urdf_text(text, base=base), base)


# -- what is read ----------------------------------------------------------------------------------


def test_joints_limits_shapes_and_names():
    model = quietly(DATA / "every_joint.urdf", inputs="all")
    system = model.system
    assert system.name == "every_joint"
    links = {e.get("name") for e in ET.parse(DATA / "every_joint.urdf").getroot().findall("link")}
    assert set(system.frame_names) == links
    assert model.renamed == {"finger_1.0": "finger_1_0", "finger_2.0": "finger_2_0"}
    assert model.joints["elbow"].limit == Limit(-1.5, 2.0, 4.0, 30.0)
    assert model.joints["yaw"].limit == Limit(-math.inf, math.inf, 2.0, 50.0)
    assert model.joints["rail"] == RobotJoint(
        "prismatic", "arm", "slider", ("rail",), Limit(-0.5, 0.5, 1.0, 40.0), 1.5, 0.2
    )
    assert model.joints["flight"].variables == tuple(f"flight_{part}" for part in FLOATING)
    assert model.joints["table"].variables == ("table_u", "table_v", "table_angle")
    assert model.joints["mount"].variables == ()
    assert set(model.limits) == {"yaw", "elbow", "rail", "finger_1_0", "finger_2_0"}
    assert system.inputs == ("yaw", "elbow", "rail", "finger_1_0")
    damping = {f.variable: f.coefficient for f in system.forces if isinstance(f, vioc.JointDamping)}
    assert damping == {"yaw": 0.7, "rail": 1.5}
    cylinder, mesh = model.visuals
    assert (cylinder.frame, cylinder.kind, cylinder.size) == ("arm", "cylinder", (0.03, 0.5))
    assert cylinder.position == (0, 0, 0.25) and cylinder.color == (0.5, 0.5, 0.6, 1.0)
    assert cylinder.rotation == (0, -1, 0, 1, 0, 0, 0, 0, 1)
    assert mesh[1:3] + mesh[5:] == ("mesh", (1e-3, 1e-3, 1e-3), "package://robot/arm.stl", (1, 0, 0, 1))
    assert [(s.frame, s.kind, s.size) for s in model.collisions] == [
        ("arm", "box", (0.1, 0.2, 0.5)),
        ("base", "sphere", (0.3,)),
    ]


def test_what_is_not_supported_is_listed_and_warned_of_once():
    with pytest.warns(RobotWarning) as caught:
        model = read_urdf(DATA / "every_joint.urdf")
    assert {(u.what, u.where) for u in model.unsupported} == {
        ("damping of a planar joint", "joint 'table'"),
        ("friction", "joint 'rail'"),
        ("<sensor>", "link 'slider'"),
        ("a physically impossible inertia (kept as given)", "link 'plate'"),
        ("<safety_controller>", "joint 'elbow'"),
        ("<capsule>", "link 'arm'"),
        ("<gazebo>", "robot"),
        ("<transmission>", "robot"),
    }
    lines = (DATA / "every_joint.urdf").read_text().splitlines()
    friction = next(u for u in model.unsupported if u.what == "friction")
    assert 'name="rail"' in lines[friction.line - 1]
    assert len(caught) == 1 and re.search(r"<gazebo> \(2 x, lines \d+, \d+\)", str(caught[0].message))
    assert caught[0].filename == __file__


def test_unknown_attributes_are_listed():
    with pytest.warns(RobotWarning, match='attribute "color"'):
        model = robot('<link name="a" color="red"/>')
    assert model.unsupported == (Unsupported('attribute "color"', "link 'a'", 1),)


def test_the_order_of_the_file_does_not_matter():
    parts = [
        link("a", inertial()),
        link("b", inertial()),
        link("c", inertial()),
        joint("j", "revolute", "a", "b"),
        joint("k", "prismatic", "b", "c"),
    ]
    assert robot("".join(parts)).system == robot("".join(reversed(parts))).system


def test_primitives_for_coordinate_axes_and_twists_for_others():
    axes = {"0 0 1": "RZ", "0 2 0": "RY", "0 0 -1": "TWIST", "0.6 0.8 0": "TWIST", "": "RX"}
    for axis, kind in axes.items():
        inside = f'<axis xyz="{axis}"/>' if axis else ""
        model = robot(link("a") + link("b", inertial()) + joint("j", "continuous", "a", "b", inside))
        assert [n.frame.transform.kind for n in model.system.nodes] == ["SE3", kind]


def test_numbers_are_kept_to_the_last_bit():
    body = inertial(0.1, (0.3, 0.2, 0.4), (0.01, 0.02, 0.03), origin((0.7, 0.1, 1 / 3)))
    system = robot(
        link("a") + link("b", body) + joint("j", "fixed", "a", "b", origin((0.1, 0.2, 2 / 3)))
    ).system
    frame = system.nodes[1].frame
    assert frame.transform.value.position == (0.1, 0.2, 2 / 3)
    assert frame.mass == vioc.Mass(0.1, (0.3, 0.2, 0.4, 0.01, 0.02, 0.03), (0.7, 0.1, 1 / 3))
    quarter = joint("j", "fixed", "a", "b", origin(rpy=(math.pi / 2, 0, -math.pi / 2)))
    rotation = robot(link("a") + link("b") + quarter).system.nodes[1].frame.transform.value.rotation
    assert rotation == (0, 0, -1, -1, 0, 0, 0, 1, 0)  # Rz(-90) Rx(90), without the 6e-17 of cos(pi/2)


def test_a_root_called_world_is_the_world():
    body = link("world") + link("a", inertial()) + joint("j", "revolute", "world", "a")
    model = robot(body)
    assert [n.parent for n in model.system.nodes] == [-1] and model.renamed == {}
    model = robot(body, base="floating")
    assert model.renamed == {"world": "world_link"} and "world_x" in model.system.variables
    body = link("b") + link("world", inertial()) + joint("j", "revolute", "b", "world")
    assert robot(body).renamed == {"world": "world_link"}


def test_names_that_fall_together_are_kept_apart():
    joints = [joint(n, "revolute", "a", f"b{i}") for i, n in enumerate(["j.1", "j_1", "j 1"])]
    model = robot(link("a") + "".join(link(f"b{i}", inertial()) for i in range(3)) + "".join(joints))
    variables = {name: j.variables[0] for name, j in model.joints.items()}
    assert variables["j_1"] == "j_1" and len(set(variables.values())) == 3
    assert model.renamed == {n: v for n, v in variables.items() if n != v}


def test_mimic_is_a_gear():
    model = quietly(DATA / "every_joint.urdf")
    gear = GearConstraint("finger_2_0", "finger_1_0", -0.5, 0.1, name="mimic-finger_2_0")
    assert model.system.constraints == (gear,)
    assert model.joints["finger_2.0"].mimic == ("finger_1.0", -0.5, 0.1)
    value = Lagrangian(model.system).constraints({"finger_1_0": 0.4, "finger_2_0": -0.1})
    np.testing.assert_allclose(value, 0, atol=1e-16)


def test_inputs_by_the_joints_names():
    path = DATA / "every_joint.urdf"
    assert quietly(path, inputs=["elbow", "finger_2.0"]).system.inputs == ("elbow", "finger_2_0")
    assert quietly(path).system.inputs == ()
    with pytest.raises(ModelError, match="inputs: 'elbw' is no joint that can be driven; there are 'elbow'"):
        quietly(path, inputs=["elbw"])
    with pytest.raises(ModelError, match="inputs: 'mount' is no joint"):
        quietly(path, inputs=["mount"])
    with pytest.raises(ModelError, match="inputs: expected 'all', names of joints or None, got 'elbow'"):
        quietly(path, inputs="elbow")


def test_gravity():
    body = link("a") + link("b", inertial(2.0)) + joint("j", "prismatic", "a", "b")
    assert Lagrangian(robot(body, gravity=None).system).potential_energy({"j": 1.0}) == 0
    assert Lagrangian(robot(body, gravity=(-3, 0, 0)).system).potential_energy({"j": 1.0}) == 6
    with pytest.raises(ModelError, match="gravity: expected 3 numbers, got 2"):
        robot(body, gravity=(0, 0))


def test_it_is_a_value():
    model = quietly(DATA / "every_joint.urdf")
    assert pickle.loads(pickle.dumps(model)) == model
    assert repr(model).startswith("Robot(every_joint: 9 joints, 17 variables")
    assert "GivenMass(0.25" in repr(model.system)
    four_bar = read_urdf(DATA / "four_bar.urdf").system
    assert read_text(write_text(four_bar)) == four_bar


def test_a_loop_is_closed_in_one_line():
    system = read_urdf(DATA / "four_bar.urdf").system
    closed = system.with_components(vioc.coincident("coupler_end", "rocker_end", "xz"))
    f = vioc.MidpointVI(closed, dt=0.01)
    q = consistent_configuration(f.lagrangian, {"a": 0.6, "b": -0.6, "d": 0.6}, fixed=["a"]).q
    run = f.rollout(f.initial_state(q), steps=200)
    np.testing.assert_allclose(run["d"], run["a"], rtol=0, atol=1e-10)  # a parallelogram
    np.testing.assert_allclose(run["b"], -run["a"], rtol=0, atol=1e-10)
    # On the motion (1, -1, 1) it is one pendulum: two rods about their ends, the coupler in translation
    M, along = f.lagrangian.mass_matrix(run.x[-1][:3]), np.array([1.0, -1.0, 1.0])
    assert along @ M @ along == pytest.approx(2 * 0.5**2 / 3 + 2 * 0.5**2, rel=1e-9)
    potential = f.lagrangian.potential_energy
    drop = potential({"a": 0.6, "b": -0.6, "d": 0.6}) - potential(None)
    assert drop == pytest.approx(9.81 * (2 * 0.25 + 2 * 0.5) * (1 - math.cos(0.6)), rel=1e-12)


# -- files and the command line --------------------------------------------------------------------


def test_read_goes_by_the_content(tmp_path):
    system = read_urdf(DATA / "four_bar.urdf", inputs=["a"]).system
    assert read(DATA / "four_bar.urdf", inputs=["a"]) == system
    vioc.write(system, tmp_path / "four_bar.sexp")
    assert read(tmp_path / "four_bar.sexp") == system
    with pytest.raises(TypeError, match=r"options are for URDF and MJCF files, got inputs"):
        read(tmp_path / "four_bar.sexp", inputs="all")
    with pytest.raises(OSError):
        read(tmp_path / "missing.urdf")


def test_command_line(capsys):
    assert cli.main(["linearize", str(DATA / "four_bar.urdf"), "--set", "u.a=1"]) == 0
    assert "MidpointVI(four_bar: nx = 6, nu = 3" in capsys.readouterr().out
    assert cli.main(["info", str(DATA / "every_joint.urdf"), "--set", "elbow=0.3"]) == 0
    printed = capsys.readouterr()
    assert "17 dynamic" in printed.out
    assert printed.err.startswith("vioc: warning: ") and printed.err.count("\n") == 1


def test_without_the_parser(monkeypatch, capsys):
    genuine = builtins.__import__

    def absent(name, *args, **kwargs):
        if name.startswith("urdf_parser_py"):
            raise ImportError(name)
        return genuine(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", absent)
    with pytest.raises(ImportError, match=r'urdfdom-py: pip install "vioc\[urdf\]"'):
        read_urdf(DATA / "four_bar.urdf")
    assert cli.main(["info", str(DATA / "four_bar.urdf")]) == 2
    assert capsys.readouterr().err.startswith("vioc: error: reading URDF needs")


# -- what is refused -------------------------------------------------------------------------------

A, B, C = link("a"), link("b"), link("c")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("", "robot 'r': expected one link without a parent, got no links"),
        (A + B, "link 'b': expected one link without a parent, got 'a', 'b'"),
        (A + B + joint("j", "fixed", "a", "b") + joint("k", "fixed", "b", "a"), "the joints form a cycle"),
        (
            A + B + C + joint("j", "fixed", "b", "c") + joint("k", "fixed", "c", "b"),
            "link 'b': .* form a cycle",
        ),
        (A + A, "two links are named 'a', the other one in line 2"),
        (A + B + 2 * joint("j", "fixed", "a", "b"), "two joints are named 'j'"),
        (
            A + B + C + joint("j", "fixed", "a", "c") + joint("k", "fixed", "b", "c"),
            "'c' already has a parent by",
        ),
        (A + B + joint("j", "fixed", "a", "bb"), "joint 'j': unknown link 'bb'; did you mean 'b'"),
        (A + B + joint("j", "ball", "a", "b"), "joint 'j': .*ball"),
        (A + "<link/>", "<link> has no name"),
        (A + B + '<joint name="j" type="fixed"><parent link="a"/></joint>', "joint 'j': .*child"),
        (A + B + joint("j", "revolute", "a", "b", '<axis xyz="0 0 0"/>'), "axis: expected a unit vector"),
        (
            A + B + joint("j", "revolute", "a", "b", '<axis xyz="0 0"/>'),
            "<axis> xyz='0 0': expected 3 numbers",
        ),
        (A + B + joint("j", "revolute", "a", "b", '<axis xyz=""/>'), "<axis> xyz='': expected 3 numbers"),
        (
            A + B + joint("j", "revolute", "a", "b", "<axis/>"),
            "joint 'j': <axis> has no xyz: expected <axis xyz=",
        ),
        (
            A + B + '<joint name="j" type="fixed"><parent/><child link="b"/></joint>',
            "<parent> has no link: exp",
        ),
        (A + B + joint("j", "revolute", "a", "b", '<axis xyz="nan 0 1"/>'), "axis: expected a unit vector"),
        (A + B + joint("j", "fixed", "a", "b", '<origin xyz="0 0 inf"/>'), "joint 'j': origin: position"),
        (A + B + joint("j", "fixed", "a", "b", '<origin rpy="0 0 nan"/>'), "joint 'j': origin: rpy"),
        (
            A + B + joint("j", "fixed", "a", "b", '<origin xyz="0 0 x"/>'),
            "joint 'j': <origin> xyz='0 0 x': expected 3 numbers",
        ),
        (
            link("a", "<inertial><mass value='two'/></inertial>"),
            "link 'a': <mass> value='two': expected a number",
        ),
        (link("a", "<inertial><mass value='1 2'/></inertial>"), "<mass> value='1 2': expected a number"),
        (
            link("a", "<inertial><mass>2</mass></inertial>"),
            "link 'a': <mass> has no value: expected <mass val",
        ),
        (
            link("a", "<inertial><mass value='2'/><inertia ixx='1' iyy='1'/></inertial>"),
            "<inertia> has no izz",
        ),
        (
            A + B + joint("j", "fixed", "a", "b", '<origin rpy="0 0 0" quat_xyzw="0 0 0 1"/>'),
            "joint 'j': <origin> has both rpy and quat_xyzw",
        ),
        (
            A + B + joint("j", "fixed", "a", "b", '<origin quat_xyzw="0 0 0 0"/>'),
            "joint 'j': origin: quat_xyzw: expected 4 finite numbers, not all zero",
        ),
        (
            A
            + B
            + C
            + joint("i", "revolute", "a", "b")
            + joint("j", "revolute", "b", "c", '<mimic joint="i" multiplier="0"/>'),
            "joint 'j': gear-constraint 'mimic-j': ratio: expected a number other than 0",
        ),
        (
            A
            + B
            + joint("j", "revolute", "a", "b", '<limit lower="nan" upper="0" effort="1" velocity="1"/>'),
            "joint 'j': <limit>: expected numbers, got nan",
        ),
        (A + B + joint("j", "revolute", "a", "b", '<limit lower="0" upper="1"/>'), "joint 'j': .*effort"),
        (
            A + B + joint("j", "revolute", "a", "b", '<dynamics damping="-1"/>'),
            "joint 'j': .*at least 0, got -1",
        ),
        (A + B + joint("j", "revolute", "a", "b", '<mimic joint="k"/>'), "mimics 'k', which does not exist"),
        (A + B + joint("j", "revolute", "a", "b", '<mimic joint="j"/>'), "mimics itself: j -> j"),
        (
            A
            + B
            + C
            + joint("j", "fixed", "a", "b")
            + joint("k", "prismatic", "b", "c", '<mimic joint="j"/>'),
            "joint 'k': mimics 'j', which is fixed",
        ),
        (A + B + joint("j", "", "a", "b"), "joint 'j': type='': expected one of revolute, continuous"),
        (link("a", inertial(-1.0)), "link 'a': inertial: mass: expected a number >= 0"),
        (link("a", inertial(math.nan)), "link 'a': inertial: mass: expected a finite number"),
        (link("a", "<inertial><mass/></inertial>"), "link 'a': "),
        ("<link name='a'>", "not well-formed XML"),
        ('<link name="${prefix}a"/>', "this is a xacro macro, not URDF"),
    ],
)
def test_broken_files(body, message):
    with pytest.raises(ReadError, match=message) as caught:
        robot("\n" + body)
    assert caught.value.source == "<text>"
    assert caught.value.line in (1, 2)


@pytest.mark.parametrize("version", ["2.0", "1.3", "", "one"])
def test_an_unknown_version_is_refused(version):
    with pytest.raises(ReadError, match=f"version='{version}' of URDF: expected one of 1.0, 1.1, 1.2"):
        read_urdf_text(f'<robot name="r" version="{version}">{A}</robot>')


LIMITED = '<limit lower="{}" upper="{}" effort="{}" velocity="{}"/>'


def seen(shape, around="visual"):
    return link("b", inertial() + f"<{around}>{shape}</{around}>")


@pytest.mark.parametrize(
    ("text", "listed"),
    [
        (
            seen('<geometry><mesh filename="x.stl" scale="0.5"/></geometry>'),
            "a scale of one number (taken for",
        ),
        (
            seen('<geometry><sphere radius="1"/></geometry><material><color rgba="1 0 0 1"/></material>'),
            "a mater",
        ),
        (seen("<geometry><box size='1 1 nan'/></geometry>"), "a <visual> that cannot be read (box: size: "),
        (
            seen("<geometry><box size='1 1'/></geometry>", "collision"),
            "a <collision> that cannot be read (<box> s",
        ),
        (
            seen('<geometry><sphere radius="-1"/></geometry>'),
            "a <visual> that cannot be read (<sphere> radius='-1': expected no negative length",
        ),
        (seen("<geometry><sphere/></geometry>"), "a <visual> that cannot be read (<sphere> has no radius"),
        (seen("<geometry/>"), "a <visual> without a shape"),
        (seen("<origin/>", "collision"), "a <collision> that cannot be read (<collision> has no <geometry>)"),
        (
            link("b", inertial()) + "<material name='red'><color rgba='x'/></material>",
            "a material that cannot be",
        ),
        (
            link("b", inertial().replace(' ixy="0.0"', "").replace(' iyz="0.0"', "")),
            "products of inertia that are not given (ixy, iyz = 0)",
        ),
    ],
)
def test_what_is_only_drawn_or_absent_does_not_stop_the_reading(text, listed):
    body = '\n<link name="a"/>' + text + joint("j", "revolute", "a", "b")
    with pytest.warns(RobotWarning, match=re.escape(listed) + r".*\(line 2\)"):
        model = robot(body)
    (found,) = model.unsupported
    assert found.what.startswith(listed) and found.line == 2
    plain = robot('<link name="a"/>' + link("b", inertial()) + joint("j", "revolute", "a", "b"))
    assert model.system == plain.system


def test_a_mass_without_inertia_is_a_point_mass_and_is_listed():
    def read(text):
        return robot('<link name="a"/>' + text + joint("j", "revolute", "a", "b"))

    zero = link("b", inertial(mass=2.0, moments=(0.0, 0.0, 0.0)))
    with pytest.warns(RobotWarning):
        model = read(re.sub("<inertia .*?/>", "", zero))
    assert [u.what for u in model.unsupported] == ["an <inertial> without <inertia> (a point mass)"]
    assert model.system == read(zero).system


def test_a_material_without_a_name_and_a_scale_of_one_number_are_seen():
    shape = '<geometry><mesh filename="x.stl" scale="0.5"/></geometry>'
    with pytest.warns(RobotWarning):
        (visual,) = robot(seen(shape + '<material><color rgba="1 0 0 1"/></material>')).visuals
    assert visual.size == (0.5, 0.5, 0.5) and visual.color == (1, 0, 0, 1)


@pytest.mark.parametrize(
    ("limit", "bounds", "listed"),
    [
        ((1, -1, 3, 2), {"v.j": (-2, 2), "u.j": (-3, 3)}, "a <limit> with lower = 1 > upper = -1"),
        ((-1, 1, -3, 2), {"j": (-1, 1), "v.j": (-2, 2)}, "a negative limit (velocity = 2, effort = -3)"),
        ((-1, 1, 3, -2), {"j": (-1, 1), "u.j": (-3, 3)}, "a negative limit (velocity = -2, effort = 3)"),
    ],
)
def test_limits_that_nothing_meets_are_none(limit, bounds, listed):
    with pytest.warns(RobotWarning):
        model = robot(
            A + link("b", inertial()) + joint("j", "revolute", "a", "b", LIMITED.format(*limit)), inputs="all"
        )
    assert model.bounds() == bounds and [u.what for u in model.unsupported] == [listed]


@pytest.mark.parametrize(
    ("around", "listed"),
    [
        ("\n\n<?xml version='1.0'?><robot name='r'>{}</robot>", "blank lines before the XML declaration"),
        ("<?xml version='0.0'?>\n\n<robot name='r'>{}</robot>", "XML version '0.0' (read as 1.0)"),
        ("\n\n<drake:robot name='r' xmlns:drake='http://d'>{}</drake:robot>", "<drake:robot> for <robot>"),
        ("\n\n<drake:robot name='r'>{}</drake:robot>", "<drake:robot> for <robot>"),
        ("\n\n<robot name='r' xmlns:drake='http://d'>{}<drake:joint/></robot>", "<drake:joint>"),
        ("\n\n<robot name='r'>{}<drake:joint/></robot>", "<drake:joint>"),
        ("\n\n<robot name='r' xmlns='http://ros'>{}</robot>", None),
    ],
)
def test_what_stands_around_the_links_does_not_stop_the_reading(tmp_path, around, listed):
    path = tmp_path / "r.urdf"
    path.write_text(around.format(link("a") + link("b", inertial()) + joint("j", "prismatic", "a", "b")))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = read_urdf(path)
        assert read(path) == model.system
    assert [u.what for u in model.unsupported] == [listed] * (listed is not None) and model.system.name == "r"
    assert len(caught) == 2 * (listed is not None)
    path.write_text(around.format(link("a") + joint("j", "prismatic", "a", "b")))
    with pytest.raises(ReadError, match=r"r.urdf:3:1: joint 'j': unknown link 'b'"):
        read_urdf(path)


@pytest.mark.parametrize("version", ["1.1", "1.2", "1.0"])
def test_quaternions_turn(version):
    """A turn by 2 atan(3/4) about y has the quaternion (0, 0.6, 0, 0.8), here of length 2."""
    turn = '<origin xyz="1 2 3" quat_xyzw="0 1.2 0 1.6"/>'
    ball = turn + '<geometry><sphere radius="1"/></geometry>'
    body = A + link("b", inertial(moments=(1.0, 2.0, 2.5)).replace("<mass", turn + "<mass"))
    body += link("c", f"<visual>{ball}</visual><visual>{ball.replace(turn, '')}</visual>")
    body += joint("j", "fixed", "a", "b", turn) + joint("k", "fixed", "b", "c")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = read_urdf_text(f'<robot name="r" version="{version}">{body}</robot>')
    listed = [f"quat_xyzw in a file of version {version} (read as in 1.2)"] * 3
    assert [u.what for u in model.unsupported] == (listed if version == "1.0" else []) and len(caught) < 2
    R = np.array([[0.28, 0, 0.96], [0, 1, 0], [-0.96, 0, 0.28]])
    b, c = (node.frame for node in model.system.nodes[1:])
    for place in (b.transform.value, model.visuals[0]):
        assert place.position == (1, 2, 3)
        np.testing.assert_allclose(np.reshape(place.rotation, (3, 3)), R, rtol=0, atol=1e-15)
    assert model.visuals[1].position == (0, 0, 0) and c.mass is None and b.mass.com == (1, 2, 3)
    tensor = R @ np.diag([1, 2, 2.5]) @ R.T
    np.testing.assert_allclose(b.mass.inertia[:3], np.diag(tensor), rtol=1e-15)


def test_errors_point_at_the_line():
    with pytest.raises(ReadError, match="^arm.urdf:3:1: joint 'j': unknown link 'b'"):
        read_urdf_text(
            '<robot name="r">\n<link name="a"/>\n' + joint("j", "fixed", "a", "b") + "</robot>", "arm.urdf"
        )
    with pytest.raises(ModelError, match="got the text of one; use read_urdf_text"):
        read_urdf('\n<robot name="r"/>')
    with pytest.raises(ReadError, match="expected <robot>, got <sdf>"):
        read_urdf_text("<sdf/>")
    with pytest.raises(ModelError, match="base: expected one of fixed, floating, got 'free'"):
        read_urdf(DATA / "four_bar.urdf", base="free")
