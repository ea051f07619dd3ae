"""Orientations of frames by name, and their errors in costs, against scipy's Rotation."""

from functools import cache

import casadi as ca
import numpy as np
import pytest
from scipy.spatial.transform import Rotation
from support.reaching import START

import vioc
from vioc import Mass, MaximalVI, MidpointVI, ModelError, System
from vioc.control import check_derivatives, optimize, pose, pose_error, quadratic
from vioc.control.feedback import DelayedMap

# inside: the error vector of a turn against scipy, and conditions at an end by name
from vioc.control.problem.limits import end_condition
from vioc.maps.orientation import AXES, rotation_vector

RNG = np.random.default_rng(5)
NAMES = [f"tool:{axis}" for axis in AXES]


@cache
def seven_joints():
    """The map of the arm, built once for all tests."""
    return MidpointVI(vioc.models.seven_joint_arm(), 0.01)


@cache
def arm_of(kind):
    """The arm by a map of some kind."""
    system = vioc.models.seven_joint_arm()
    return {
        "midpoint": seven_joints,
        "runge-kutta": lambda: vioc.RungeKutta(system, 0.01),
        "maximal": lambda: MaximalVI(system, 0.01),
        "delayed": lambda: DelayedMap(seven_joints()),
        "composed": lambda: vioc.Composition(seven_joints(), 4),
    }[kind]()


def arm_rotation(q):
    """World orientation of the arm's tool: axes z y z y z y z."""
    return (
        Rotation.from_euler("ZYZ", q[:3])
        * Rotation.from_euler("YZY", q[3:6])
        * Rotation.from_euler("Z", q[6])
    )


def test_rotation_vectors_are_scipys():
    """Every branch of the quaternion that they come from, up to half a turn itself."""
    R = ca.SX.sym("R", 3, 3)
    log = ca.Function("log", [R], [rotation_vector(R)])
    axes = [*np.eye(3), *RNG.standard_normal((20, 3))]
    for angle in (0, 1e-9, 1e-4, 0.1, 1.0, 1.8, 2.0, 3.0, 3.14159, np.pi):
        for axis in axes:
            w = angle * axis / np.linalg.norm(axis)
            matrix = Rotation.from_rotvec(w).as_matrix()
            got = log(matrix).full()[:, 0]
            if angle == np.pi:
                got *= np.sign(got @ w)
            np.testing.assert_allclose(got, w, rtol=0, atol=1e-14)


@pytest.mark.parametrize("kind", ["midpoint", "runge-kutta", "maximal", "delayed", "composed"])
def test_quantities_of_an_arm(kind):
    f = arm_of(kind)
    q = RNG.uniform(-0.4, 0.4, 7)
    x = f.initial_state(dict(zip(f.system.variables, q, strict=True)))
    s = f.symbols
    got = ca.Function("r", [s.x, s.parameters], [ca.vertcat(*map(f.quantity, NAMES))])(x, f.theta).full()[
        :, 0
    ]
    np.testing.assert_allclose(got, arm_rotation(q).as_rotvec(), atol=1e-13)
    assert {f.unit(name) for name in NAMES} == {"rad"} and set(NAMES) <= set(f.quantities.names())
    assert f.quantities.rotation("nobody") is None


@pytest.mark.parametrize("kind", ["midpoint", "runge-kutta", "maximal"])
def test_velocities_of_frames(kind):
    """Against complex-step rates of the place and the orientation along a straight line in the joints."""
    f = arm_of(kind)
    q, v = RNG.uniform(-0.4, 0.4, 7), RNG.standard_normal(7)
    names = f.system.variables
    x = f.initial_state(dict(zip(names, q, strict=True)), dict(zip(names, v, strict=True)))
    wanted = [f"{kind}.tool:{axis}" for kind in ("v", "w", "vb", "wb") for axis in "xyz"]
    s = f.symbols
    got = ca.Function("v", [s.x, s.parameters], [ca.vertcat(*map(f.quantity, wanted))])(x, f.theta).full()[
        :, 0
    ]
    kinematics, R = vioc.Kinematics(f.system), arm_rotation(q).as_matrix()
    body = kinematics.jacobian("tool", q) @ v
    rate = np.tensordot(kinematics.position("tool", q, order=1), v, 1)
    turned = np.tensordot(kinematics.pose("tool", q, order=1)[:3, :3], v, 1) @ R.T
    world = np.array([turned[2, 1], turned[0, 2], turned[1, 0]])
    expected = np.concatenate([rate, world, body])
    np.testing.assert_allclose(got, expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(R @ body[3:], world, rtol=0, atol=1e-13)
    assert f.unit("v.tool:x") == "m/s" and f.unit("wb.tool:z") == "rad/s"
    assert set(wanted) <= set(f.quantities.names())


POINTING_DOWN = Rotation.from_euler("xyz", [np.pi, 0, 0.4])  # half a turn, where rotation vectors jump


def test_a_pose_is_an_end():
    f = seven_joints().with_dt(0.05)
    still = {f"v.{n}": 0.0 for n in f.system.variables}
    goal = pose("tool", [0.3, -0.2, 0.4], POINTING_DOWN)
    assert np.linalg.norm([goal[n] for n in NAMES]) == pytest.approx(np.pi, abs=1e-12)
    cost = quadratic(f, R=1e-4, Q={n: 1.0 for n in still})
    run = optimize(f, cost, x0=f.initial_state(START), steps=12, final=goal | still)
    T = vioc.Kinematics(f.system).pose("tool", run.x[-1][:7])
    np.testing.assert_allclose(T[:3, 3], [0.3, -0.2, 0.4], rtol=0, atol=1e-8)
    turn = POINTING_DOWN.inv() * Rotation.from_matrix(T[:3, :3])
    assert turn.magnitude() < 1e-8
    # nearly there, a constraint along the path asks for the same by the same error
    error = pose_error(f, "tool", rotation=POINTING_DOWN)
    at = ca.Function("e", [f.symbols.x, f.symbols.parameters], [error])(run.x[-1], f.theta)
    assert np.abs(at.full()).max() < 1e-8


def test_ends_half_a_turn_off_are_near_from_both_sides():
    """1e-3 rad before and past half a turn: rotation vectors are far apart, the condition's rows are not."""
    f = seven_joints().with_dt(0.05)
    goal = pose("tool", rotation=Rotation.from_euler("x", np.pi))
    conditions = [end_condition(f, name, value, "end", goal) for name, value in goal.items()]
    error = ca.Function(
        "e", [f.symbols.x, f.symbols.parameters], [ca.vertcat(*(c.expression for c in conditions))]
    )
    T = np.eye(4)
    for beyond in (1e-3, -1e-3):
        T[:3, :3] = Rotation.from_euler("x", np.pi + beyond).as_matrix()
        T[:3, 3] = 0.3, -0.2, 0.4
        found = vioc.Kinematics(f.system).inverse({"tool": T})
        at = error(f.initial_state(found.q), f.theta).full()[:, 0]
        np.testing.assert_allclose(at, [beyond, 0, 0], rtol=0, atol=1e-9)
    assert all(c.lower == c.upper == 0 for c in conditions)


def test_poses_that_are_none():
    with pytest.raises(ModelError, match="expected a position, a rotation, or both"):
        pose("tool")
    with pytest.raises(ModelError, match="rotation: expected a matrix"):
        pose("tool", rotation=2 * np.eye(3))
    with pytest.raises(ModelError, match=r"position: expected 3 numbers \(m\), got \[1.0, 2.0\]"):
        pose("tool", [1, 2])
    T = np.eye(4)
    T[:3, 3] = 1, 2, 3
    assert pose("tool", T) == {
        "tool:x": 1,
        "tool:y": 2,
        "tool:z": 3,
        "tool:rx": 0,
        "tool:ry": 0,
        "tool:rz": 0,
    }


def test_errors_are_turns_from_the_goal():
    """Also from a goal that is half a turn from the world's axes, where its own log is no number."""
    f = seven_joints()
    run = f.rollout(f.initial_state(START), 0.1 * RNG.standard_normal((4, 7)))
    R = [arm_rotation(x[:7]) for x in run.x]
    weights = dict(zip(NAMES, (1.0, 2.0, 3.0), strict=True))
    w = np.array([1.0, 2.0, 3.0])

    def value(errors):
        errors = np.array(errors)
        return 0.01 * 0.5 * (w * errors[:-1] ** 2).sum() + 0.5 * (w * errors[-1] ** 2).sum()

    for goal in ([0.3, -0.2, 0.9], [np.pi, 0.0, 0.0]):
        cost = quadratic(f, Q=weights, Qf=weights, goal=dict(zip(NAMES, goal, strict=True)))
        expected = value([(Rotation.from_rotvec(goal).inv() * r).as_rotvec() for r in R])
        assert cost.value(run) == pytest.approx(expected, rel=1e-12)
    goals = 0.5 * RNG.standard_normal((5, 3))
    moving = quadratic(f, Q=weights, Qf=weights, reference=dict(zip(NAMES, goals.T, strict=True)))
    expected = value([(Rotation.from_rotvec(g).inv() * r).as_rotvec() for g, r in zip(goals, R, strict=True)])
    assert moving.value(run) == pytest.approx(expected, rel=1e-12)
    other = f.rollout(f.initial_state({**START, "q1": 0.3}), 0.1 * RNG.standard_normal((4, 7)))
    states = quadratic(f, Q=weights, Qf=weights, reference=other)
    turns = [(arm_rotation(y[:7]).inv() * r).as_rotvec() for y, r in zip(other.x, R, strict=True)]
    assert states.value(run) == pytest.approx(value(turns), rel=1e-12)
    alone = quadratic(f, Qf={"tool:ry": 2.0}, goal=dict(zip(NAMES, goals[0], strict=True)))
    assert alone.value(run) == pytest.approx(
        (Rotation.from_rotvec(goals[0]).inv() * R[-1]).as_rotvec()[1] ** 2, rel=1e-12
    )


def test_derivatives_are_exact_at_zero_error_and_off_it():
    f = seven_joints()
    run = f.rollout(f.initial_state(START), 0.1 * RNG.standard_normal((2, 7)))
    lin = f.linearize_trajectory(run)
    weights = dict.fromkeys(NAMES, 2.0)
    there = quadratic(f, Qf=weights, reference=run)
    exact, model = (there.expand(run, lin, sizes) for sizes in (None, np.ones(f.ndx + f.nu)))
    assert there.value(run) < 1e-28 and np.abs(exact.lx).max() < 1e-13
    np.testing.assert_allclose(exact.lxx[-1], model.lxx[-1], atol=1e-12)  # no residual, no curvature of it
    # the body's Jacobian of the tool, by differences of scipy's rotations
    q, h = run.x[-1, :7], 1e-4
    here, J = arm_rotation(q).inv(), np.zeros((3, 7))
    for i, e in enumerate(h * np.eye(7)):
        turns = [(here * arm_rotation(q + s * e)).as_rotvec() for s in (-2, -1, 1, 2)]
        J[:, i] = (turns[0] - 8 * turns[1] + 8 * turns[2] - turns[3]) / (12 * h)
    np.testing.assert_allclose(exact.lxx[-1][:7, :7], 2 * J.T @ J, atol=1e-10)
    for goal in ([0.3, -0.2, 0.9], [3.0, 0.0, 0.0]):
        off = quadratic(f, Q=weights, Qf=weights, goal=dict(zip(NAMES, goal, strict=True)))
        for check in check_derivatives(off, run):
            assert check.error < 1e-7, str(check)


def test_a_free_body_turns_to_a_pose():
    """In maximal coordinates: the Hessian of the angle's square at the goal is the identity in error axes."""
    body = vioc.free("j", "xyz", frame="tool", mass=Mass(1.5, (1.0, 2.0, 3.0)))
    f = MaximalVI(System(body), 0.05)
    x = f.retract(f.initial_state(), [0, 0, 0, 0.4, -0.7, 0.9, *np.zeros(6)])
    run = f.rollout(x, steps=1)
    cost = quadratic(f, Qf=dict.fromkeys(NAMES, 3.0), reference=run.x[-1])
    lxx = cost.expand(run, f.linearize_trajectory(run)).lxx[-1]
    expected = np.zeros((12, 12))
    expected[3:6, 3:6] = 3 * np.eye(3)
    np.testing.assert_allclose(lxx, expected, atol=1e-12)


def test_half_a_turn_off_is_finite():
    """A planar arm whose tool shall point the other way is exactly that."""
    f = seven_joints()
    run = f.rollout(f.initial_state(START), steps=2)
    cost = quadratic(f, Qf=dict.fromkeys(NAMES, 1.0), goal={"tool:rx": np.pi})
    assert cost.value(f.rollout(f.initial_state(), steps=1)) == pytest.approx(np.pi**2 / 2)
    for sizes in (None, np.ones(f.ndx + f.nu)):
        assert np.isfinite(cost.expand(run, f.linearize_trajectory(run), sizes).lxx).all()


def test_goals_without_weights_are_refused():
    f = seven_joints()
    with pytest.raises(ValueError, match="'tool:rx' has a goal or a reference, but no weight"):
        quadratic(f, Q=1.0, goal={"tool:rx": 0.3})
