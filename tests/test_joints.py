"""Joints: their frames against products of matrix exponentials, their freedoms, names and errors."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
import scipy.linalg
from support.numpy_tree import hat

from vioc import (
    Frame,
    K,
    Kinematics,
    Mass,
    MidpointVI,
    P,
    System,
    consistent_configuration,
    cylindrical,
    free,
    helical,
    planar,
    prismatic,
    read_text,
    revolute,
    rx,
    se3,
    spherical,
    tx,
    tz,
    universal,
    write_text,
)
from vioc.components import ScrewConstraint, screw
from vioc.errors import ModelError

BODY = Mass(1.0, (0.2, 0.3, 0.4))
SLANTED = (1.0, -2.0, 2.0)
S = np.array(SLANTED) / 3
E = np.eye(3)
Z = np.zeros(3)
END = {"frame": "end", "mass": BODY}


def turn(axis):
    return np.concatenate([Z, axis])


def slide(axis):
    return np.concatenate([axis, Z])


# joint, its variables, and the twist of each
JOINTS = [
    (revolute("q", **END), ["q"], [turn(E[2])]),
    (revolute("q", "x", **END), ["q"], [turn(E[0])]),
    (revolute("q", SLANTED, **END), ["q"], [turn(S)]),
    (prismatic("q", "y", **END), ["q"], [slide(E[1])]),
    (prismatic("q", SLANTED, **END), ["q"], [slide(S)]),
    (helical("q", 0.3, "x", **END), ["q"], [np.concatenate([0.3 * E[0], E[0]])]),
    (helical("q", -0.3, SLANTED, **END), ["q"], [np.concatenate([-0.3 * S, S])]),
    (cylindrical("q", "y", **END), ["q-angle", "q-travel"], [turn(E[1]), slide(E[1])]),
    (cylindrical("q", SLANTED, **END), ["q-angle", "q-travel"], [turn(S), slide(S)]),
    (spherical("q", **END), ["q-rz", "q-ry", "q-rx"], [turn(E[2]), turn(E[1]), turn(E[0])]),
    (spherical("q", "xzy", **END), ["q-rx", "q-rz", "q-ry"], [turn(E[0]), turn(E[2]), turn(E[1])]),
    (universal("q", **END), ["q-1", "q-2"], [turn(E[0]), turn(E[1])]),
    (universal("q", ("z", SLANTED), **END), ["q-1", "q-2"], [turn(E[2]), turn(S)]),
    (planar("q", **END), ["q-x", "q-y", "q-rz"], [slide(E[0]), slide(E[1]), turn(E[2])]),
    (planar("q", "x", **END), ["q-y", "q-z", "q-rx"], [slide(E[1]), slide(E[2]), turn(E[0])]),
    (planar("q", "y", **END), ["q-z", "q-x", "q-ry"], [slide(E[2]), slide(E[0]), turn(E[1])]),
    (
        free("q", **END),
        ["q-x", "q-y", "q-z", "q-rz", "q-ry", "q-rx"],
        [*map(slide, E), turn(E[2]), turn(E[1]), turn(E[0])],
    ),
]


@pytest.mark.parametrize(("joint", "variables", "twists"), JOINTS)
def test_poses(joint, variables, twists):
    system = System(se3((0.1, 0.2, 0.3))[joint])
    assert list(system.variables) == variables
    assert read_text(write_text(system)) == system
    q = np.random.default_rng(0).uniform(-1, 1, len(variables))
    expected = np.eye(4)
    expected[:3, 3] = 0.1, 0.2, 0.3
    for xi, value in zip(twists, q, strict=True):
        expected = expected @ scipy.linalg.expm(hat(xi) * value)
    np.testing.assert_allclose(Kinematics(system).pose("end", q), expected, atol=1e-14)


def test_a_plane_pair_with_a_slanted_normal():
    joint = planar("q", SLANTED, **END)
    system = System(joint)
    assert system.variables == ("q-1", "q-2", "q-angle")
    kinematics = Kinematics(system)
    one, two = (kinematics.position("end", {n: 1.0}) for n in ("q-1", "q-2"))
    np.testing.assert_allclose(
        [one @ S, two @ S, one @ two, one @ one, two @ two], [0, 0, 0, 1, 1], atol=1e-14
    )
    np.testing.assert_allclose(np.cross(one, two), S, atol=1e-14)  # right-handed about the normal
    np.testing.assert_allclose(
        kinematics.pose("end", {"q-angle": 0.7})[:3, :3], scipy.linalg.expm(0.7 * hat(turn(S))[:3, :3])
    )


def test_a_screw_has_one_freedom():
    joint = screw("s", 0.2, "y", **END)
    system = System(joint)
    assert system.constraints == (ScrewConstraint("s-angle", "s-travel", 0.2, name="s"),)
    report = consistent_configuration(system, {"s-angle": 0.4})
    assert report.degrees_of_freedom == 1
    pose = Kinematics(system).pose("end", report.q)
    xi = np.concatenate([0.2 * E[1], E[1]])
    np.testing.assert_allclose(pose, scipy.linalg.expm(hat(xi) * report["s-angle"]), atol=1e-12)


def test_a_screw_may_be_driven():
    joint = screw(K("s"), P("pitch", 0.05), frame="nut", mass=BODY)
    system = System(joint)
    assert system.kinematic == ("s-angle",) and system.dynamic == ("s-travel",)
    f = MidpointVI(system, 0.01)
    run = f.rollout(f.initial_state(), np.linspace(0, 1, 11)[1:, None])
    np.testing.assert_allclose(run["nut:z"], 0.05 * run["s-angle"], atol=1e-12)


# -- the notation ----------------------------------------------------------------------------------


def test_children_go_to_the_last_frame():
    joint = spherical("q")
    arm = joint[tx(1.0, name="left"), tz(1.0, name="right")]
    assert isinstance(arm, Frame)
    last = arm.children[0].children[0]
    assert [child.name for child in last.children] == ["left", "right"]
    system = System(arm)
    assert "`- RX 'q-rx'\n         |- TX 1.0  'left'" in str(system)
    assert [node.parent for node in system.nodes] == [-1, 0, 1, 2, 2]


def test_a_joint_stands_where_a_frame_does():
    joint = universal("q", **END)
    assert System(joint) == System(joint.frame) == System([joint])
    assert rx("a")[joint] == rx("a")[joint.frame]
    assert joint.constraints == () and len(joint) == 1
    assert System(rx("a")[joint[tx(1.0)]]) == System(rx("a")[universal("q", **END)[tx(1.0)]])


def test_a_joint_with_a_constraint_unpacks():
    joint = screw("s", 0.1)
    frame, thread = joint[tz(0.1, name="nut", mass=BODY)]
    assert (thread,) == joint.constraints
    inside = System(rx("tilt", mass=BODY)[frame], thread)
    assert inside.constraint_names == ("s",) and inside.frame_names == ("nut",)
    assert System(joint[tz(0.1, name="nut", mass=BODY)]).constraints == (thread,)
    with pytest.raises(ModelError, match="the children of a frame are frames, got ScrewConstraint"):
        rx("tilt")[joint]  # or its constraint would be lost


def test_joints_pickle_and_print():
    joint = screw("s", 0.1, frame="nut")
    again = pickle.loads(pickle.dumps(joint))
    assert again == joint and again[tx(1.0)] == joint[tx(1.0)]
    assert repr(joint).startswith("Joint(rz('s-angle')[") and "ScrewConstraint" in repr(joint)


def test_kinematic_joints():
    system = System(free(K("base"))[planar("q", **END)])
    assert system.kinematic == tuple(f"base-{n}" for n in ("x", "y", "z", "rz", "ry", "rx"))
    assert system.dynamic == ("q-x", "q-y", "q-rz")
    assert System(revolute(K("a"))).kinematic == ("a",)


def test_a_frame_of_a_joint_has_a_name_and_a_mass():
    system = System(free("b", frame="body", mass=2.0))
    assert system.frame_names == ("body",) and system.variables[0] == "b-x"
    assert free(name="b") == free("b")


def test_an_inertia_may_be_a_matrix():
    matrix = np.array([[0.3, 0.01, -0.02], [0.01, 0.4, 0.03], [-0.02, 0.03, 0.5]])
    mass = Mass(1.0, matrix)
    assert mass == Mass(1.0, (0.3, 0.4, 0.5, 0.01, -0.02, 0.03)) == Mass(1.0, matrix.tolist())
    np.testing.assert_array_equal(mass.matrix(), matrix)
    assert Mass(1, np.eye(3)) == Mass(1, (1, 1, 1))
    named = Mass(1.0, [[P("I", 1.0), 0, 0], [0, 1, 0], [0, 0, 1]])
    assert named.inertia[0] == P("I", 1.0)
    with pytest.raises(ModelError, match="expected a symmetric matrix"):
        Mass(1.0, matrix + np.triu(0.1 * matrix, 1))
    with pytest.raises(ModelError, match="inertia: row: expected 3 numbers, got 2"):
        Mass(1.0, np.ones((3, 2)))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: revolute("q", "w"), "'x', 'y', 'z' or three numbers, got 'w'"),
        (lambda: revolute("q", (0, 0, 0)), "joint 'q': axis: expected a direction, got zeros"),
        (lambda: prismatic("q", (1, 2)), "expected 3 numbers, got 2"),
        (lambda: prismatic("q", (1, 2, np.nan)), "finite"),
        (lambda: revolute("q", (P("a", 1.0), 0, 0)), "no parameters"),
        (lambda: revolute(3), "expected a name, got 3"),
        (lambda: revolute("a b"), "without white space"),
        (lambda: helical("q", P("pitch", 0.1)), "goes with screw"),
        (lambda: helical("q", float("inf")), "expected a finite number"),
        (lambda: spherical("q", "zyz"), "x, y and z in some order, got 'zyz'"),
        (lambda: free("q", "xy"), "in some order, got 'xy'"),
        (lambda: universal("q", "xx"), "parallel"),
        (lambda: universal("q", ("x", (-2, 0, 0))), "parallel"),
        (lambda: universal("q", "xyz"), "expected two axes"),
        (lambda: screw("q", "0.1"), "pitch: expected a number"),
        (lambda: free("b", name="body"), "free 'b': name: .*last frame is named by frame='body'"),
        (lambda: screw("s", 0.1, name="nut"), "screw 's': name: .*frame='nut'"),
    ],
)
def test_wrong_joints_are_refused(make, message):
    with pytest.raises(ModelError, match=message):
        make()
