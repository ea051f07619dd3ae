"""Holding torques, inverse dynamics on the discrete map, operational-space inertia, manipulability."""

import numpy as np
import pytest
from support.gripper_arm import TEXT

import vioc
from vioc import Gravity, JointForce, Lagrangian, Mass, MidpointVI, ModelError, System, read_urdf_text, ry, tz

Q = np.array([0.1, 0.4, -0.3, 1.0, 0.2, 0.5, 0.1])
RATES = np.linspace(0.2, 0.5, 7)


@pytest.fixture(scope="module")
def seven():
    return MidpointVI(vioc.models.seven_joint_arm(), 0.01)


def test_held_arms_stay(seven):
    u = seven.lagrangian.holding(Q)
    run = seven.rollout(seven.initial_state(Q), np.tile(u, (50, 1)))
    np.testing.assert_allclose(run.x[:, :7], np.tile(Q, (51, 1)), rtol=0, atol=1e-12)
    theirs = vioc.control.equilibrium(seven, dict(zip(seven.system.variables, Q, strict=True)))
    np.testing.assert_allclose(u, theirs.u, rtol=0, atol=1e-8)


def path(t):
    return Q + np.sin(2 * t) * RATES + 0.1 * t**2


def test_the_map_follows_a_path_exactly(seven):
    """To rounding, by inputs that are smooth, and near those of the continuous motion by h^2."""
    t = 0.01 * np.arange(81)[:, None]
    x0, U = seven.inverse_dynamics(path(t))
    np.testing.assert_allclose(seven.rollout(x0, U).x[:, :7], path(t), rtol=0, atol=1e-12)
    middle = t[:-1] + 0.005
    v, a = 2 * np.cos(2 * middle) * RATES + 0.2 * middle, -4 * np.sin(2 * middle) * RATES + 0.2
    exact = np.array([seven.lagrangian.holding(*row) for row in zip(path(middle), v, a, strict=True)])
    error = np.abs(U - exact).max()
    assert error < 3e-3
    fine = MidpointVI(vioc.models.seven_joint_arm(), 0.005)
    x0, U = fine.inverse_dynamics(path(0.005 * np.arange(161)[:, None]))
    U = 0.5 * (U[::2] + U[1::2])
    assert np.abs(U - exact).max() < 0.3 * error + 1e-9


def test_a_given_start_is_kept(seven):
    t = 0.01 * np.arange(41)[:, None]
    start = seven.initial_state(Q, 2 * RATES)
    x0, U = seven.inverse_dynamics(path(t), start)
    np.testing.assert_array_equal(x0, start)
    np.testing.assert_allclose(seven.rollout(x0, U).x[:, :7], path(t), rtol=0, atol=1e-12)


def test_fingers_that_mimic_are_followed():
    hand = read_urdf_text(TEXT, inputs="all")
    f = MidpointVI(hand.system, 0.01)
    t = 0.01 * np.arange(31)[:, None]
    q = np.hstack([0.3 + 0.2 * np.sin(3 * t), -0.4 * np.cos(2 * t), 0.1 * t, 0.02 * t, 0.1 - 0.04 * t])
    x0, U = f.inverse_dynamics(q)
    np.testing.assert_allclose(f.rollout(x0, U).x[:, :5], q, rtol=0, atol=1e-11)
    u = f.lagrangian.holding(q[0])
    run = f.rollout(f.initial_state(q[0]), np.tile(u, (20, 1)))
    np.testing.assert_allclose(run.x[-1, :5], q[0], rtol=0, atol=1e-11)


def test_what_cannot_be_held_or_followed_is_named():
    cart = System(
        vioc.tx("x", mass=1.0)[ry("theta")[tz(0.5, mass=0.3)]], Gravity(0, 0, -9.81), JointForce("x", "u")
    )
    with pytest.raises(
        ModelError, match=r"no input balances this configuration: 'theta' lacks -0\.1\d* N m;"
    ):
        Lagrangian(cart).holding({"theta": 0.1})
    f = MidpointVI(cart, 0.01)
    with pytest.raises(ModelError, match="no input follows this motion: at sample 1 'theta' lacks .* N m;"):
        f.inverse_dynamics(np.column_stack([0.1 * np.arange(5), 0.3 + 0 * np.arange(5)]))


def test_task_inertia_is_what_a_wrench_feels(seven):
    """The acceleration of a frame at rest under a wrench is J M^-1 J' times it."""
    lag, J = seven.lagrangian, vioc.Kinematics(seven.system).jacobian("tool", Q)
    wrench = np.array([1.0, -2, 3, 0.1, 0.2, -0.3])
    qdd = np.linalg.solve(lag.mass_matrix(Q), J.T @ wrench)
    np.testing.assert_allclose(lag.task_inertia("tool", Q) @ (J @ qdd), wrench, rtol=0, atol=1e-11)
    np.testing.assert_allclose(lag.mobility("tool", Q) @ wrench, J @ qdd, rtol=0, atol=1e-11)
    assert lag.manipulability("tool", Q, "xyzabc") == pytest.approx(np.sqrt(np.linalg.det(J @ J.T)), rel=1e-9)


def test_two_links_lose_a_direction_when_straight():
    """sqrt(det J J') = a b |sin q2| of a planar arm; a point mass at the end of both feels its mass alone."""
    links = ry("p", mass=Mass(0.0, (1e-9, 1e-9, 1e-9)))[tz(1.0)[ry("q")[tz(0.7, name="tip", mass=2.0)]]]
    lag = Lagrangian(System(links))
    assert lag.manipulability("tip", [0.3, 0.8], "xz") == pytest.approx(0.7 * np.sin(0.8), rel=1e-12)
    assert lag.manipulability("tip", [0.3, 0.0], "xz") == pytest.approx(0, abs=1e-15)
    felt = np.linalg.inv(lag.mobility("tip", [0.3, 0.8])[np.ix_([0, 2], [0, 2])])
    np.testing.assert_allclose(felt, 2 * np.eye(2), atol=1e-7)  # and 1e-9 of the first link
    with pytest.raises(ModelError, match="rows: expected letters of xyzabc"):
        lag.manipulability("tip", None, "xw")
