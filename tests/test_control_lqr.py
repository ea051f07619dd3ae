"""Regulators: closed forms, scipy's Riccati equation, the value of the cost, and what they refuse."""

import warnings

import casadi as ca
import numpy as np
import pytest
from scipy.linalg import solve_discrete_are
from support.control_maps import cart_pole, double_integrator, midpoint_pendulum

import vioc
from vioc import CasadiMap, Gravity, JointForce, Mass, System, coincident, ry, tx

# inside: the affine Riccati recursion and the rounding of what is printed, by themselves
from vioc.checks import without_noise
from vioc.control import (
    controllability,
    controllability_matrix,
    controllability_rank,
    dlqr,
    equilibrium,
    feedback,
    observability,
    riccati,
    unstabilizable_modes,
)
from vioc.control.stages.linear_quadratic import LinearQuadratic, joined
from vioc.control.stages.recursion import Recursion
from vioc.errors import OptimizationError

RNG = np.random.default_rng(2)


def random_problem(N=6, n=4, m=2):
    A, B = RNG.standard_normal((N, n, n)), RNG.standard_normal((N, n, m))
    L = RNG.standard_normal((N, n + m, n + m))
    H = L @ np.swapaxes(L, 1, 2) + 0.1 * np.eye(n + m)
    return A, B, H[:, :n, :n], H[:, n:, n:], H[:, :n, n:]


def test_scalar_by_hand():
    # one step: K = a b qf / (r + b^2 qf), P = q + a^2 qf - a b qf K
    a, b, q, r, qf = 1.3, 0.7, 2.0, 0.5, 3.0
    K, P = riccati([[[a]]], [[[b]]], [[q]], [[r]], [[qf]])
    gain = a * b * qf / (r + b * b * qf)
    assert K[0, 0, 0] == pytest.approx(gain, rel=1e-14)
    assert P[0, 0, 0] == pytest.approx(q + a * a * qf - a * b * qf * gain, rel=1e-14)


def test_steady_double_integrator_in_closed_form():
    # symmetric root locus of 1/2 (z + 1) / (z - 1)^2: r (z-1)^2 (1/z-1)^2 + q b(z) b(1/z) = 0 at the poles
    f = double_integrator(dt=1.0)
    loop = dlqr(f, ([0, 0], [0]), {"x": 1.0}, 2.0)
    z = loop.poles
    residual = 2.0 * (z - 1) ** 2 * (1 / z - 1) ** 2 + 0.25 * (z + 1) * (1 / z + 1)
    assert np.abs(residual).max() < 1e-10


@pytest.mark.parametrize("make", [double_integrator, cart_pole])
def test_long_horizon_tends_to_the_algebraic_equation(make):
    f = make()
    A, B = f.linearize(np.zeros(f.nx))
    Q, R, N = np.eye(f.nx), 0.3 * np.eye(f.nu), 3000
    K, P = riccati(np.tile(A, (N, 1, 1)), np.tile(B, (N, 1, 1)), Q, R, Q)
    expected = solve_discrete_are(A, B, Q, R)
    np.testing.assert_allclose(P[0], expected, rtol=1e-7, atol=1e-9 * np.abs(expected).max())
    np.testing.assert_array_equal(P, np.swapaxes(P, 1, 2))
    np.testing.assert_allclose(K[0], dlqr(f, (np.zeros(f.nx), None), Q, R).K, rtol=1e-6)


def test_cost_to_go_is_the_cost():
    A, B, Q, R, S = random_problem()
    Qf = np.eye(4)
    K, P = riccati(A, B, Q, R, Qf, S)
    x0 = RNG.standard_normal(4)

    def cost(K):
        x, total = x0, 0.0
        for k in range(len(A)):
            u = -K[k] @ x
            total += x @ Q[k] @ x + u @ R[k] @ u + 2 * x @ S[k] @ u
            x = A[k] @ x + B[k] @ u
        return total + x @ Qf @ x

    least = cost(K)
    assert least == pytest.approx(x0 @ P[0] @ x0, rel=1e-11)
    for _ in range(20):
        assert cost(K + 1e-3 * RNG.standard_normal(K.shape)) > least


@pytest.mark.parametrize("m", [1, 3])
def test_affine_problem_against_its_linear_system(m):
    n, N = 4, 5
    A, B, Q, R, S = random_problem(N, n, m)
    q, r, qf, Qf = (RNG.standard_normal(s) for s in ((N, n), (N, m), (n,), (n, n)))
    Qf = Qf @ Qf.T
    linear, start = np.concatenate([q, r], axis=1), np.zeros((N, n))
    stages = LinearQuadratic(np.concatenate([A, B], axis=2), joined(Q, S, R), Qf, linear, qf, start)
    recursion = Recursion(N, n, m)
    assert recursion.factor(stages)
    (p, d), K, P = recursion.linear(stages), recursion.gains, recursion.costs
    x0 = RNG.standard_normal(n)
    x, us, xs = x0, [], [x0]
    for k in range(N):
        us.append(-K[k] @ x - d[k])
        x = A[k] @ x + B[k] @ us[-1]
        xs.append(x)
    # condensed: x as a linear function of all inputs, then one symmetric solve
    maps, offsets = [np.zeros((n, N * m))], [x0]
    for k in range(N):
        step = A[k] @ maps[-1]
        step[:, k * m : (k + 1) * m] += B[k]
        maps.append(step)
        offsets.append(A[k] @ offsets[-1])
    H, g = maps[N].T @ Qf @ maps[N], maps[N].T @ (Qf @ offsets[N] + qf)
    for k in range(N):
        pick = np.zeros((m, N * m))
        pick[:, k * m : (k + 1) * m] = np.eye(m)
        H += maps[k].T @ Q[k] @ maps[k] + pick.T @ R[k] @ pick
        H += maps[k].T @ S[k] @ pick + pick.T @ S[k].T @ maps[k]
        g += maps[k].T @ (Q[k] @ offsets[k] + q[k]) + pick.T @ (S[k].T @ offsets[k] + r[k])
    np.testing.assert_allclose(np.concatenate(us), np.linalg.solve(H, -g), rtol=1e-7, atol=1e-8)
    # P, p are the derivative of the cost to go by x0
    assert P.shape == (N + 1, n, n)
    costate = Q[0] @ xs[0] + S[0] @ us[0] + q[0]
    chain = Qf @ xs[N] + qf
    for k in range(N - 1, 0, -1):
        chain = Q[k] @ xs[k] + S[k] @ us[k] + q[k] + A[k].T @ chain
    np.testing.assert_allclose(P[0] @ x0 + p[0], costate + A[0].T @ chain, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize("m", [1, 2])
def test_indefinite_weight_says_where(m):
    A, B = np.tile(np.eye(2), (4, 1, 1)), np.ones((4, 2, m))
    R = np.tile(np.eye(m), (4, 1, 1))
    R[2] = -10 * np.eye(m)
    with pytest.raises(OptimizationError, match="not positive definite at k = 2 "):
        riccati(A, B, 0 * np.eye(2), R, 0 * np.eye(2))


@pytest.mark.parametrize("m", [1, 2])
def test_a_cost_to_go_that_overflows_is_refused(m):
    A, B = np.tile(1e160 * np.eye(2), (4, 1, 1)), np.ones((4, 2, m))
    with pytest.raises(OptimizationError, match="not positive definite at k = "), np.errstate(all="ignore"):
        riccati(A, B, np.eye(2), np.eye(m), np.eye(2))


def test_tracking_the_pendulum():
    f = midpoint_pendulum()
    run = f.rollout([0.0, 0.0], 2 * np.sin(np.arange(100) / 5)[:, None])
    loop = dlqr(f, run, {"theta": 10, "p.theta": 1}, {"torque": 0.5})
    closed = loop.rollout([1.0, 1.0])
    opened = f.rollout([1.0, 1.0], run.u)
    assert np.abs(closed.x[-1] - run.x[-1]).max() < 1e-3 * np.abs(opened.x[-1] - run.x[-1]).max()
    e = closed.x[:-1] - run.x[:-1]
    np.testing.assert_allclose(closed.u, run.u - np.einsum("kux,kx->ku", loop.K, e), atol=1e-9)
    assert len(loop.rollout([1.0, 1.0], steps=7)) == 7
    assert "100 gains 1 x 2" in repr(loop)


def test_value_of_small_deviations():
    f = cart_pole()
    run = f.rollout([0, 0.1, 0, 0], 0.3 * RNG.standard_normal((60, 1)))
    loop = dlqr(f, run, 1.0, 0.1, Qf=5.0)
    dx = 1e-5 * RNG.standard_normal(4)
    closed = loop.rollout(run.x[0] + dx)
    z, v = closed.x - run.x, closed.u - run.u
    value = (z[:-1] ** 2).sum() + 0.1 * (v**2).sum() + 5 * (z[-1] ** 2).sum()
    assert value == pytest.approx(dx @ loop.P[0] @ dx, rel=1e-4)


def test_holding_the_end():
    f = midpoint_pendulum()
    still = f.rollout([np.pi, 0], steps=10)
    loop = dlqr(f, still, 1.0, 1.0)
    long = loop.rollout([np.pi + 0.1, 0], steps=200)
    assert np.abs(long.x[-1] - [np.pi, 0]).max() < 1e-8
    assert loop.end is None and loop.hold().end is not None
    moving = dlqr(f, f.rollout([1.0, 0], steps=10), 1.0, 1.0)
    with pytest.raises(ValueError, match=r"cannot hold the end .* regulator.hold\(x, u\)"):
        moving.rollout([1.0, 0.0], steps=20)
    held = moving.hold([np.pi, 0]).rollout([1.0, 0.0], steps=400)
    assert np.abs(held.x[-1] - [np.pi, 0]).max() < 1e-8
    # an input can hold a tilted pendulum; it is found. At rest p lacks half the input's impulse.
    torque = 9.8 * np.sin(0.5)
    tilted = dlqr(f, f.rollout([0.5, -0.05 * torque], np.full((5, 1), torque)), 1.0, 1.0)
    assert tilted.hold().end.u[0] == pytest.approx(torque, rel=1e-10)
    assert tilted.hold([0.5, -0.05 * torque]).end.u[0] == pytest.approx(torque, rel=1e-10)


def test_the_end_is_held_with_the_cross_weight():
    x, u = ca.SX.sym("x", 2), ca.SX.sym("u")
    A, B = np.array([[1.0, 0.1], [0.05, 1.0]]), np.array([[0.0], [0.1]])
    f = CasadiMap(ca.Function("f", [x, u], [ca.DM(A) @ x + ca.DM(B) @ u]), dt=0.1)
    Q, R, S = np.diag([2.0, 1.0]), np.eye(1), np.array([[0.9], [0.3]])
    loop = dlqr(f, f.rollout(np.zeros(2), steps=5), Q, R, S=S)
    P = solve_discrete_are(A, B, Q, R, s=S)
    K = np.linalg.solve(R + B.T @ P @ B, B.T @ P @ A + S.T)
    held = loop.hold()
    np.testing.assert_allclose(held.end.K, K, rtol=1e-10)
    np.testing.assert_array_equal([held.S, held.end.S], [S, S])
    z = np.array([0.3, -0.2])
    run = loop.rollout(z, 9)  # past the end, which it holds by itself
    for k in range(9):
        z = A @ z - B @ (loop.K[k] if k < 5 else K) @ z
    np.testing.assert_allclose(run.x[-1], z, rtol=1e-10)


def test_an_input_that_holds_is_found_from_one_that_does_not():
    """Newton's corrections go against the motion they see; the reference's last input is off by far."""
    f = midpoint_pendulum()
    torque = 9.8 * np.sin(0.5)
    loop = dlqr(f, f.rollout([0.0, 0.0], np.full((5, 1), -3.0)), 1.0, 1.0)
    assert loop.hold([0.5, -0.05 * torque]).end.u[0] == pytest.approx(torque, rel=1e-10)


def test_feedback_runs_at_the_times_of_its_reference():
    """Of a map that depends on time, from its own start, a reference is followed with its own inputs.

    About a state it has no one gain.
    """
    x, u, t = ca.SX.sym("x"), ca.SX.sym("u"), ca.SX.sym("t")
    f = CasadiMap(ca.Function("f", [x, u, t], [x + 0.1 * (u + ca.sin(3 * t))]), dt=0.1)
    run = f.rollout([1.0], np.ones((10, 1)), k0=7)
    closed = dlqr(f, run, 1.0, 1.0).rollout(run.x[0])
    np.testing.assert_array_equal(closed.x, run.x)
    np.testing.assert_array_equal(closed.t, run.t)
    with pytest.raises(ValueError, match="about a state: steps of .* depend on time; use a trajectory"):
        dlqr(f, ([0.0], [0.0]), 1.0, 1.0)


def test_a_reference_of_another_step_length():
    f = vioc.MidpointVI(vioc.models.load("cart_pole"), 0.02)
    run = f.rollout(f.state(), 0.1 * np.ones((40, f.nu)), dt=f.dt / 2)
    regulator = dlqr(f, run, 1.0, 1.0)
    assert regulator.map.dt == f.dt / 2
    np.testing.assert_allclose(regulator.rollout(run.x[0]).x, run.x, rtol=0, atol=1e-9)


def test_equilibrium():
    f = cart_pole()
    loop = dlqr(f, (np.zeros(4), None), {"theta": 100, "x": 1}, {"force": 1})
    assert np.abs(loop.poles).max() < 1
    run = loop.rollout([0, 0.2, 0, 0], steps=2000)
    assert np.abs(run.x[-1]).max() < 1e-3
    assert "SteadyRegulator(about x = 0" in repr(loop)


def test_prints_of_equilibria_have_no_rounding():
    x, tip = np.array([0.0, np.pi, 8e-15, -1e-38]), 1e-13
    np.testing.assert_array_equal(without_noise(x), [0, np.pi, 0, 0])
    np.testing.assert_array_equal(without_noise([1e-13, np.nan]), [tip, np.nan])
    np.testing.assert_array_equal(without_noise([1e3, tip]), [1e3, 0])
    arm = vioc.ry("a")[vioc.tz(0.5, mass=0.3)[vioc.ry("b")[vioc.tz(0.4, mass=0.2)]]]
    system = vioc.System(
        vioc.tx("x", mass=1.0)[arm], vioc.Gravity(0, 0, -9.81), vioc.JointForce("x", "force")
    )
    f = vioc.MidpointVI(system, 0.01)
    hanging = vioc.control.equilibrium(f, x=0.0, a=np.pi)
    assert np.any((hanging.x != 0) & (np.abs(hanging.x) < 1e-13))  # rounding there is
    for text in (repr(hanging), repr(dlqr(f, hanging, 1.0, 1.0))):
        assert "e-" not in text.partition(";")[0]


@pytest.mark.parametrize("kind", [vioc.MidpointVI, vioc.LinearTimeVI])
@pytest.mark.parametrize("Q", [1.0, "joints"])
def test_modes_that_no_input_moves_are_named(kind, Q):
    """Momenta of a pair on a rail, with a motor between, and of a floating arm; Q is not to blame."""
    motor = vioc.JointForce("d", "F")
    rail = vioc.System(vioc.tx("x", mass=3.0)[vioc.tx("d", mass=1.1)], motor)
    limb = vioc.Mass(1.0, (0.02, 0.02, 0.01), (0, 0, 0.1))
    arm = vioc.ry("q1", mass=limb)[vioc.tz(0.3)[vioc.ry("q2", mass=limb)]]
    trunk = vioc.ry("a", mass=vioc.Mass(3.0, (0.1, 0.1, 0.1)))[vioc.tz(0.2)[arm]]
    motors = vioc.JointForce("q1", "m1"), vioc.JointForce("q2", "m2")
    floating = vioc.System(vioc.tx("x")[vioc.tz("z")[trunk]], *motors)
    for system, at, stuck in ((rail, {}, ["p.x"]), (floating, {"q1": 0.3, "q2": 0.2}, ["p.x", "p.z", "p.a"])):
        f = kind(system, 0.01)
        joints = {"d": 1} if system is rail else {"q1": 1, "q2": 1}
        still = vioc.control.equilibrium(f, {n: at.get(n, 0.0) for n in system.variables})
        with pytest.raises(OptimizationError) as error:
            dlqr(f, still, joints if Q == "joints" else Q, 1.0)
        told = str(error.value)
        assert "the inputs cannot move" in told and "Q" not in told
        for name in stuck:
            assert f"(of {name})" in told


def test_equilibrium_refuses():
    f = cart_pole()
    with pytest.raises(ValueError, match=r"not an equilibrium: one step moves v.theta by 0\.1"):
        dlqr(f, ([0, 0.5, 0, 0], None), 1, 1)
    with pytest.raises(ValueError, match="not an equilibrium"):  # 1e-6 m/s a step is a metre in 200 s
        dlqr(f, ([0, 5e-6, 0, 0], None), 1, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # the error says it all: numbers that overflow on the way do not
        for g in (f, vioc.MidpointVI(vioc.models.load("cart_pole"), 0.02)):
            with pytest.raises(OptimizationError, match="penalize in Q"):
                dlqr(g, ([0, 0, 0, 0], None), {"theta": 1}, 1)
    with pytest.raises(ValueError, match="Qf"):
        dlqr(f, ([0, 0, 0, 0], None), 1, 1, Qf=1)
    x, u = ca.SX.sym("x", 2), ca.SX.sym("u")
    lost = type(f)(ca.Function("f", [x, u], [ca.vertcat(1.5 * x[0], 0.5 * x[1] + u)]), dt=0.1)
    with pytest.raises(OptimizationError, match=r"cannot move the eigenvalues 1\.5"):
        dlqr(lost, ([0, 0], None), 1, 1)
    mute = type(f)(ca.Function("f", [x, ca.SX.sym("u", 0)], [x]), dt=0.1)
    with pytest.raises(ValueError, match="at least one input"):
        dlqr(mute, ([0, 0], None), 1, 1)


@pytest.mark.parametrize(
    ("Q", "R", "message"),
    [
        (np.eye(3), 1, r"Q: expected shape \(4, 4\) in the order x, theta"),
        ({"phi": 1}, 1, "Q: unknown name 'phi'"),
        (-1, 1, "Q: expected a positive semi-definite weight"),
        (1, 0, "R: expected a positive definite weight, got eigenvalue 0 along 'force'"),
        (1, {"torque": 1}, "R: unknown name 'torque'"),
        (np.nan, 1, "Q: expected finite numbers"),
    ],
)
def test_weights_refused(Q, R, message):
    f = cart_pole()
    with pytest.raises(ValueError, match=message):
        dlqr(f, f.rollout(np.zeros(4), steps=3), Q, R)


def test_shapes_refused():
    A, B = np.zeros((3, 2, 2)), np.zeros((3, 2, 1))
    with pytest.raises(ValueError, match=r"expected A \(N, n, n\)"):
        riccati(A[0], B[0], np.eye(2), np.eye(1), np.eye(2))
    with pytest.raises(ValueError, match=r"Q: expected shape \(2, 2\) or \(3, 2, 2\), got \(3, 3\)"):
        riccati(A, B, np.eye(3), np.eye(1), np.eye(2))
    with pytest.raises(ValueError, match="not those of the map"):
        dlqr(cart_pole(), midpoint_pendulum().rollout([0, 0], steps=2), 1, 1)
    with pytest.raises(ValueError, match="steps"):
        dlqr(cart_pole(), (np.zeros(4), None), 1, 1).rollout(np.zeros(4), steps=0)
    moving = dlqr(midpoint_pendulum(), midpoint_pendulum().rollout([0.1, 0], steps=4), 1, 1)
    with pytest.raises(ValueError, match=r"steps: expected a whole number >= 1, got 2\.5"):
        moving.rollout([0.1, 0], steps=2.5)


def test_controllability():
    f = double_integrator()
    A, B = f.linearize([0, 0])
    np.testing.assert_allclose(controllability_matrix(A, B), np.hstack([B, A @ B]))
    assert controllability_rank(A, B) == 2
    assert controllability_rank(np.eye(2), B) == 1
    assert len(unstabilizable_modes(A, B)) == 0
    np.testing.assert_allclose(unstabilizable_modes(np.diag([2.0, 0.5]), [[0.0], [1.0]]), [2.0])
    with pytest.raises(ValueError, match="expected A"):
        controllability_rank(np.ones((2, 3)), B)


@pytest.mark.parametrize("free, held", [("w", "a"), ("a", "w")])
def test_what_is_disregarded_is_what_ends_anywhere(free, held):
    """A body and its reaction wheel keep a sum of their angles: one of them can be held, as named."""
    wheel = vioc.rz("w", mass=vioc.Mass(0.1, (0.1, 0.1, 0.1)))
    body = vioc.rz("a", mass=vioc.Mass(1.0, (1.0, 1.0, 1.0)))
    f = vioc.MidpointVI(vioc.System(body[wheel], vioc.JointForce("w", "t")), 0.05)
    law = dlqr(f, (f.initial_state(), None), {held: 100.0}, 1.0, disregard=[free, "p.a"])
    run = law.rollout(f.initial_state({held: 0.5}), 600)
    assert abs(run[held][-1]) < 1e-6 < 1e-2 < abs(run[free][-1])
    with pytest.raises(vioc.OptimizationError, match="names 1 of 2 modes; the others move"):
        dlqr(f, (f.initial_state(), None), {held: 100.0}, 1.0, disregard=["p.a"])


def test_a_state_that_is_hardly_weighed_has_its_own_cost_to_go():
    """It settles after 1e5 steps, the other in one; by the closed form of one state and one input each."""
    x, u, q, slow = ca.SX.sym("x", 2), ca.SX.sym("u", 2), np.array([1.0, 1e-18]), 1 - 1e-5
    f = CasadiMap(ca.Function("f", [x, u], [ca.vertcat(0.1, slow) * x + u]), 0.1)
    P = dlqr(f, (np.zeros(2), np.zeros(2)), q, 1.0).P
    b = q - 1 + np.array([0.1, slow]) ** 2  # of P^2 - b P - q = 0
    assert P[1, 1] == pytest.approx(q[1] / (1 - slow**2), rel=1e-6, abs=0)  # too little to be worth an input
    assert P[0, 0] == pytest.approx((b[0] + np.sqrt(b[0] ** 2 + 4 * q[0])) / 2, rel=1e-12)


def test_the_trajectory_of_another_map_is_refused_by_name():
    """Of other parameters or another rule; what differs in its step alone is taken with that."""
    rods = vioc.ry("a")[vioc.tz(-1.0, mass=vioc.P("m", 1.0))]
    f = vioc.MidpointVI(vioc.System(rods, vioc.Gravity(0, 0, -9.81), vioc.JointForce("a", "t")), 0.05)
    measurement = feedback.Measurement(f, {"a": 1e-4})
    other, step = (
        g.rollout(g.initial_state(a=0.1), None, 8) for g in (f.with_parameters(m=4.0), f.with_dt(0.1))
    )
    linear = vioc.LinearTimeVI(f.system, f.dt)
    for design in (
        lambda g, run: dlqr(g, run, 1.0, 1.0),
        lambda g, run: feedback.kalman(g, run, measurement, 1e-6),
        lambda g, run: controllability(g, run),
        lambda g, run: observability(g, run, ["a"]),
    ):
        with pytest.raises(ValueError, match=r"of another map: parameter m is 1 here, 4 there; take its own"):
            design(f, other)
        with pytest.raises(ValueError, match=r"map is LinearTimeVI here, MidpointVI there"):
            design(linear, other)
    assert dlqr(f, step, 1.0, 1.0).map.dt == 0.1


def test_sensors_and_filters_of_other_parameters_are_refused():
    rods = vioc.ry("a")[vioc.tz(-1.0, mass=vioc.P("m", 1.0))]
    f = vioc.MidpointVI(vioc.System(rods, vioc.Gravity(0, 0, -9.81), vioc.JointForce("a", "t")), 0.05)
    g = f.with_parameters(m=4.0)
    measurement = feedback.Measurement(f, {"a": 1e-4})
    message = "measurement: parameter m of its map is 1, of the filter's 4; measurement.on"
    for design in (
        lambda: feedback.kalman(g, (g.initial_state(), None), measurement, 1e-6),
        lambda: feedback.ExtendedKalmanFilter(g, measurement, 1e-6),
        lambda: feedback.MovingHorizon(g, measurement, 5, 1e-6, P0=1e-3),
    ):
        with pytest.raises(ValueError, match=message):
            design()
    run = f.rollout(f.initial_state(), None, 5)
    observer = feedback.kalman(g, (g.initial_state(), None), measurement.on(g), 1e-6)
    law = dlqr(f, run, 1.0, 1.0)
    with pytest.raises(ValueError, match="observer: its model is not the trajectory's map: parameter m is 1"):
        feedback.covariance(run, 1e-6, 1e-9, law=law, observer=observer)


@pytest.mark.parametrize("R", [10.0, 1.0, 0.1, 0.01])
@pytest.mark.parametrize("dt", [0.01, 0.001])
def test_a_slider_crank_has_a_regulator_at_every_step_length(dt, R):
    """Four eigenvalues of the linearization are near 0 and far from normal; SciPy may find no solution."""
    crank = ry("crank")[
        tx(0.4, mass=Mass(0.3, (0.003,) * 3))[ry("rod")[tx(1.0, name="end", mass=Mass(0.5, (0.005,) * 3))]]
    ]
    slider = tx("s", name="slider", mass=0.2)
    closing = coincident("end", "slider", axes="xz"), JointForce("crank", "torque")
    system = System(crank, slider, Gravity(0, 0, -9.81), *closing)
    f = vioc.MidpointVI(system, dt)
    closed = vioc.consistent_configuration(system, {"crank": 1.0, "rod": -1.4, "s": 1.0})
    held = equilibrium(f, guess=dict(zip(closed.names, closed.q, strict=True)))
    law = dlqr(f, held, 1.0, R)
    A, B = f.linearize(held.x, held.u)
    K, P = law.K, law.P
    np.testing.assert_allclose(K, np.linalg.solve(R + B.T @ P @ B, B.T @ P @ A), atol=1e-9 * np.abs(K).max())
    left = np.eye(6) + A.T @ P @ (A - B @ K) - P  # of the Riccati equation
    assert np.abs(left).max() <= 1e-9 * np.abs(P).max() and np.abs(law.poles).max() < 1
