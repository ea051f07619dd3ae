"""Filters, covariances, feedback from configurations, closed loops: peers, Monte Carlo, exact identities."""

import pickle

import casadi as ca
import numpy as np
import pytest
from scipy.linalg import solve_discrete_are, solve_discrete_lyapunov
from support.control_maps import cart_pole, double_integrator, midpoint_pendulum
from support.mechanisms import everything, hold, state_near

from vioc import JointDamping, MidpointVI, RungeKutta, UserForce, models
from vioc.control import ClosedLoop, Measurement, dlqr, equilibrium, kalman
from vioc.control.feedback import (
    ConfigurationObserver,
    DelayedMap,
    ExtendedKalmanFilter,
    as_law,
    covariance,
    tangent_bases,
)
from vioc.errors import ModelError, OptimizationError

POLE_Q = {"x": 10.0, "theta": 10.0, "p.x": 1.0, "p.theta": 1.0}


@pytest.fixture(scope="module")
def pole():
    """The cart-pole, upright, with its regulator."""
    f = MidpointVI(models.load("cart_pole"), 0.02)
    eq = equilibrium(f, theta=0.0)
    return f, eq, dlqr(f, eq, POLE_Q, 0.1)


def sensors(f):
    return Measurement(f, {"x": 1e-4, "theta": 4e-4})


# -- measurements ---------------------------------------------------------------------------------


def test_measurements_by_name_and_their_derivatives():
    f = MidpointVI(everything(), 0.01)
    x = state_near(f, 3)
    y = Measurement(f, ("a", "tip:z", "v.b"))
    C, e = y.jacobian(x), 1e-6
    for i, d in enumerate(np.eye(f.nx)):
        np.testing.assert_allclose(C[:, i], (y(x + e * d) - y(x - e * d)) / (2 * e), atol=1e-7)
    assert y(np.stack([x, x])).shape == (2, 3)
    with pytest.raises(ValueError, match=r"u.torque: a measurement is of the state alone"):
        Measurement(f, ("a", "u.torque"))
    with pytest.raises(ModelError, match="measurement: unknown name 'thta'"):
        Measurement(f, "thta")
    with pytest.raises(ValueError, match="positive semi-definite weight, got eigenvalue -1 along 'a'"):
        Measurement(f, {"a": -1.0})
    with pytest.raises(ValueError, match="positive definite"):
        Measurement(f, ("a", "tip:z"), [[1.0, 1.0], [1.0, 1.0]])


def test_measured_angles_wrap():
    f = midpoint_pendulum(wrap=("theta",))
    y = Measurement(f, "theta")
    assert y.innovation(np.array([3.1, 0]), [-3.1]) == pytest.approx([2 * np.pi - 6.2])
    assert Measurement(midpoint_pendulum(), "theta").innovation(np.array([3.1, 0]), [-3.1]) == [-6.2]
    assert Measurement(midpoint_pendulum(), "theta", wrap="theta").innovation(
        np.array([3.1, 0]), [-3.1]
    ) == pytest.approx([2 * np.pi - 6.2])


# -- Kalman filters -------------------------------------------------------------------------------


@pytest.mark.peer
def test_steady_filter_equals_python_controls(pole):
    control = pytest.importorskip("control")
    f, eq, _ = pole
    y, W = sensors(f), np.diag([1e-6, 1e-6, 1e-4, 2e-5])
    A, _ = f.linearize(eq.x, eq.u)
    L, P, poles = control.dlqe(A, np.eye(4), y.jacobian(eq.x), W, y.V)
    ours = kalman(f, eq, y, W)
    assert np.abs(A @ ours.L[0] - L).max() <= 1e-10 * np.abs(L).max()
    assert np.abs(ours.before[0] - P).max() <= 1e-10 * np.abs(P).max()
    np.testing.assert_allclose(np.sort_complex(ours.poles), np.sort_complex(poles), rtol=1e-8)


def test_filter_along_a_rest_tends_to_the_steady_one(pole):
    f, eq, _ = pole
    y, W = sensors(f), 1e-5
    steady = kalman(f, eq, y, W, W_u=0.01)
    run = f.rollout(eq.x, eq.u, steps=1500)
    varying = kalman(f, run, y, W, W_u=0.01, P0=1e-2)
    np.testing.assert_allclose(varying.L[-1], steady.L[0], rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(varying.after[-1], steady.after[0], rtol=1e-8, atol=1e-14)
    A, B = f.linearize(eq.x, eq.u)
    total = W * np.eye(4) + 0.01 * B @ B.T
    expected = solve_discrete_are(A.T, y.jacobian(eq.x).T, total, y.V)
    np.testing.assert_allclose(steady.before[0], expected, rtol=1e-9)


def test_filter_is_least_squares():
    """Second route: all states at once from all measurements, of a double integrator."""
    f, N = double_integrator(), 6
    y = Measurement(f, {"x": 0.2})
    W, P0 = np.diag([0.01, 0.05]), np.diag([1.0, 2.0])
    rng = np.random.default_rng(0)
    U, Y, x0 = rng.standard_normal((N, 1)), rng.standard_normal((N + 1, 1)), np.array([0.3, -0.2])
    gains = kalman(f, f.rollout(x0, U), y, W, P0=P0)
    belief = gains.start(x0)
    for k in range(N + 1):
        belief = gains.correct(k, belief, Y[k])
        if k < N:
            belief = gains.predict(k, belief, U[k])
    A, B = f.linearize(x0)
    rows, right = [], []

    def add(block, value, covariance):
        root = np.linalg.inv(np.linalg.cholesky(covariance))
        rows.append(root @ block)
        right.append(root @ value)

    I = np.eye(2 * (N + 1)).reshape(N + 1, 2, -1)
    add(I[0], x0, P0)
    for k in range(N + 1):
        add(I[k][:1], Y[k], y.V)
        if k < N:
            add(I[k + 1] - A @ I[k], B @ U[k], W)
    M = np.vstack(rows)
    states = np.linalg.lstsq(M, np.concatenate(right), rcond=None)[0].reshape(N + 1, 2)
    np.testing.assert_allclose(belief.x, states[-1], rtol=1e-10)
    np.testing.assert_allclose(gains.after[-1], np.linalg.inv(M.T @ M)[-2:, -2:], rtol=1e-9)
    # of a linear map the extended filter is the same filter
    extended = ExtendedKalmanFilter(f, y, W, P0=P0)
    other = extended.start(x0)
    for k in range(N + 1):
        other = extended.correct(k, other, Y[k])
        if k < N:
            other = extended.predict(k, other, U[k])
    np.testing.assert_allclose(other.x, belief.x, rtol=1e-12)
    np.testing.assert_allclose(other.P, gains.after[-1], rtol=1e-10)


def test_what_cannot_be_seen_is_said(pole):
    f, eq, _ = pole
    with pytest.raises(
        OptimizationError, match=r"do not see the eigenvalues 1 \(of x\), 1 \(of p\.x.*\); .*disregard"
    ):
        kalman(f, eq, Measurement(f, {"theta": 1e-4}), 1e-5)
    with pytest.raises(OptimizationError, match="no process noise excites .* give process noise W"):
        kalman(f, eq, sensors(f), 0.0)
    with pytest.raises(ValueError, match="give P0 with a trajectory"):
        kalman(f, eq, sensors(f), 1.0, P0=1.0)


def test_filter_on_the_manifold_corrects_within_it():
    f = MidpointVI(models.load("closed_chain"), 0.01)
    eq = equilibrium(f, guess={n: 0.3 for n in f.system.variables})
    run = f.rollout(eq.x + 0.0, steps=40)
    y = Measurement(f, {"J": 1e-4, "E": 1e-4})
    gains = kalman(f, run, y, 1e-6, P0=1e-3, manifold=True)
    T = tangent_bases(f, run)
    for L, P, t in zip(gains.L, gains.after, T, strict=True):
        np.testing.assert_allclose(t @ (t.T @ L), L, atol=1e-12)
        assert np.linalg.matrix_rank(P, tol=1e-14) <= t.shape[1]
    loose = ExtendedKalmanFilter(f, y, 1e-6, P0=1e-3, manifold=True)
    belief = loose.correct(0, loose.start(eq.x), y(eq.x) + [0.02, -0.01])
    belief = loose.predict(0, belief, np.zeros(0))
    assert np.abs(f.lagrangian.constraints(belief.x[: f.nq])).max() < 1e-10
    assert np.abs(f.lagrangian.constraint_jacobian(belief.x[: f.nq]) @ belief.P[: f.nq]).max() < 1e-12


def test_extended_filter_finds_a_swinging_pendulum():
    f = MidpointVI(models.load("cart_pole"), 0.02)
    ekf = ExtendedKalmanFilter(f, sensors(f), W=1e-8, P0={"theta": 0.1, "p.theta": 0.1})
    law = as_law(dlqr(f, f.rollout(np.zeros(4), steps=150), 0.0, 1.0))  # no feedback
    truth, guess = f.state({"theta": 2.0, "p.theta": 0.1}), f.state(theta=2.3)
    run = ClosedLoop(f, law, ekf).simulate(truth, 150, estimate=guess, noise=3)
    assert np.abs(run.errors[0]).max() > 0.05 and np.abs(run.errors[-30:]).max() < 0.02
    sigmas = np.sqrt(np.einsum("kii->ki", run.covariances[-30:]))
    assert (np.abs(run.errors[-30:]) < 5 * sigmas).all()


# -- covariance -----------------------------------------------------------------------------------


def test_covariance_settles_at_the_lyapunov_solution(pole):
    f, eq, loop = pole
    run = f.rollout(eq.x, eq.u, steps=1200)
    W = 1e-5 * np.eye(4)
    A, B = f.linearize(eq.x, eq.u)
    expected = solve_discrete_lyapunov(A - B @ loop.K, W)
    found = covariance(run, 0.0, W, law=loop)
    np.testing.assert_allclose(found.P[-1], expected, rtol=1e-9)
    np.testing.assert_allclose(found.std("theta")[-1] ** 2, expected[1, 1], rtol=1e-9)
    np.testing.assert_allclose(found.input[-1], loop.K @ expected @ loop.K.T, rtol=1e-9)
    np.testing.assert_allclose(covariance(run, 0.0, W).P[1], W, atol=1e-14 * np.abs(W).max())
    with pytest.raises(ValueError, match="give the law as well"):
        covariance(run, 0.0, W, observer=kalman(f, eq, sensors(f), W))


@pytest.mark.parametrize("filtered", [False, True])
def test_covariance_against_monte_carlo(filtered):
    """Seeded closed loops of a nonlinear map along a swing; sample covariances within their own error."""
    f, N, count = cart_pole(dt=0.05), 10, 200
    run = f.rollout([0, np.pi, 0, 0], 3 * np.sin(np.arange(N))[:, None])
    loop = dlqr(f, run, 1.0, 0.1)
    W, W_u, P0 = 1e-8, 1e-4, 1e-6
    y = Measurement(f, {"x": 1e-6, "theta": 1e-6})
    observer = kalman(f, run, y, W, W_u=W_u, P0=P0) if filtered else None
    expected = covariance(run, P0, W, W_u=W_u, law=loop, observer=observer)
    rng = np.random.default_rng(5)
    closed = ClosedLoop(f, loop, observer, W=W, W_u=W_u)
    ends, errors = [], []
    for _ in range(count):
        x0 = run.x[0] + np.sqrt(P0) * rng.standard_normal(4)
        simulated = closed.simulate(x0, N, estimate=run.x[0] if filtered else None, noise=rng)
        ends.append(simulated.trajectory.x[-1] - run.x[-1])
        errors.append(simulated.errors[-1])
    root = np.linalg.inv(np.linalg.cholesky(expected.P[-1]))
    sample = root @ np.cov(np.array(ends).T) @ root.T
    # entries of a normal sample covariance scatter by sqrt(2 / count) and sqrt(1 / count)
    assert np.abs(sample - np.eye(4)).max() < 4 * np.sqrt(2 / count)
    if filtered:
        root = np.linalg.inv(np.linalg.cholesky(expected.estimate[N - 1]))
        sample = root @ np.cov(np.array(errors).T) @ root.T
        assert np.abs(sample - np.eye(4)).max() < 4 * np.sqrt(2 / count)
        np.testing.assert_allclose(expected.estimate[N - 1], observer.after[N - 1], rtol=1e-8)


# -- feedback from configurations -----------------------------------------------------------------


def damped_pole(**options):
    system = models.load("cart_pole").with_components(JointDamping("theta", 0.05), JointDamping("x", 0.3))
    return MidpointVI(system, 0.02, **options)


@pytest.mark.parametrize("options", [{}, {"forcing": "left"}, {"alpha": 0.3}, {"wrap": ("theta",)}])
def test_configurations_give_the_state_law(options):
    """[S] II: equal to the law that knows the momentum, to 1e-12, while the pole swings and is driven."""
    f = damped_pole(**options)
    run = f.rollout(f.state(theta=np.pi), np.sin(np.arange(60))[:, None])
    loop = dlqr(f, run, POLE_Q, 0.1)
    law, x0 = as_law(loop), f.state({"theta": np.pi + 0.2, "p.x": 0.1})
    truth = ClosedLoop(f, law).simulate(x0, 60)
    seen = ClosedLoop(f, law, ConfigurationObserver(f)).simulate(x0, 60)
    assert np.abs(truth.commands).max() > 1
    assert np.abs(seen.errors).max() <= 1e-12
    size = np.abs(law.K).sum(axis=(1, 2)).max()  # what a law makes of errors of its arguments
    assert np.abs(seen.commands - truth.commands).max() <= 1e-12 * size
    # and to the bit from the same state
    x = seen.estimates[20]
    np.testing.assert_array_equal(seen.commands[20], law(20, x))


def test_configurations_of_a_constrained_system_with_prescribed_ones():
    f = MidpointVI(everything(), 0.01)
    x = state_near(f, 3)
    u = hold(f, x)
    u[f.input_names.index("rho.trolley")] += 0.01
    observer = ConfigurationObserver(f)
    X = f.rollout(x, u, steps=3).x
    seen = observer.state(X[1, : f.nq], X[2, : f.nq], u, 2)
    np.testing.assert_allclose(seen, X[2], atol=1e-12)
    turned = MidpointVI(everything(), 0.01, wrap=("a",))
    q = X[1, : f.nq] + 2 * np.pi * (np.array(f.state_names[: f.nq]) == "a")
    np.testing.assert_allclose(
        ConfigurationObserver(turned).state(q, X[2, : f.nq], u, 2)[f.nq :], X[2, f.nq :], atol=1e-11
    )
    with pytest.raises(TypeError, match="no state_from_configurations"):
        ConfigurationObserver(RungeKutta(models.load("cart_pole"), 0.01))


def test_configurations_under_a_force_that_depends_on_time():
    """F+ of step k - 1 is sampled in that step: one step later it is another force, and another momentum."""
    f = timed(0.02)
    run = f.rollout(f.initial_state({"theta": 0.3}), 0.1 * np.ones((8, f.nu)), k0=3)
    observer = ConfigurationObserver(f)
    for i in range(1, 9):  # sample i is that at the end of step 3 + i - 1
        seen = observer.state(run.x[i - 1, : f.nq], run.x[i, : f.nq], run.u[i - 1], 3 + i)
        np.testing.assert_allclose(seen, run.x[i], atol=1e-12)
    away = observer.state(run.x[7, : f.nq], run.x[8, : f.nq], run.u[7], 12)
    assert np.abs(away - run.x[8]).max() > 1e-4  # what a step's difference makes
    x0 = run.x[0]
    seen = ClosedLoop(f, dlqr(f, run, 1.0, 1.0), observer).simulate(x0, 8, k0=3)
    assert np.abs(seen.errors).max() <= 1e-12


def test_a_regulator_follows_its_motion_from_its_own_first_step():
    """`k0` of the reference is that of the rollout: a force that depends on time is met at its times."""
    f = timed(0.02)
    run = f.rollout(f.initial_state({"theta": 0.3}), 0.1 * np.ones((20, f.nu)), k0=40)
    law = dlqr(f, run, 1.0, 1.0)
    again = law.rollout(run.x[0])
    assert again.k0 == 40
    np.testing.assert_array_equal(again.t, run.t)
    # the same steps to their tolerance of 1e-11; those from k = 0 on meet another force and are 1e-2 off
    np.testing.assert_allclose(again.x, run.x, atol=1e-9)
    np.testing.assert_allclose(again.u, run.u, atol=1e-9)


def timed(dt):
    """A pendulum under a force that depends on time."""
    push = UserForce(lambda k: {"theta": 2 * ca.sin(9 * k.t)})
    return MidpointVI(models.load("pendulum").with_components(push), dt)


# -- closed loops ---------------------------------------------------------------------------------


def test_without_noise_a_loop_is_the_tracked_rollout(pole):
    f, eq, loop = pole
    x0 = eq.x + [0.1, 0.1, 0, 0]
    run = ClosedLoop(f, loop).simulate(x0, 100)
    np.testing.assert_allclose(run.trajectory.x, loop.rollout(x0, 100).x, atol=1e-10)
    assert run.covariances is None and run.measurements.shape == (100, 0) and not run.saturated.any()
    assert len(run["energy"]) == 101 and "0 % of commands clipped" in repr(run)


def test_a_seed_gives_the_same_run_to_the_bit(pole):
    f, eq, loop = pole
    observer = kalman(f, eq, sensors(f), 1e-6, W_u=0.01)
    closed = ClosedLoop(f, loop, observer, {"force": 5.0}, W=1e-8, W_u=0.01)
    one, two, other = (closed.simulate(eq.x, 40, noise=s) for s in (7, 7, 8))
    np.testing.assert_array_equal(one.trajectory.x, two.trajectory.x)
    np.testing.assert_array_equal(one.measurements, two.measurements)
    assert np.abs(one.trajectory.x - other.trajectory.x).max() > 1e-4
    copied = pickle.loads(pickle.dumps(closed)).simulate(eq.x, 40, noise=7)
    np.testing.assert_array_equal(one.trajectory.x, copied.trajectory.x)


def test_lqg_balances_from_angles_alone_and_bounds_are_kept(pole):
    f, eq, loop = pole
    observer = kalman(f, eq, sensors(f), 1e-6, W_u=0.1)
    closed = ClosedLoop(f, loop, observer, bounds={"force": (-6.0, 6.0)}, W=1e-8)
    run = closed.simulate(eq.x + [0, 0.15, 0, 0], 400, estimate=eq.x, noise=1)
    assert run.saturated.any() and np.abs(run.trajectory.u).max() <= 6.0
    assert np.abs(run.commands).max() > 6.0
    assert np.abs(run["theta"][-100:]).max() < 0.1
    with pytest.raises(ValueError, match="bounds on u.force: lower limit 1 > upper limit -1"):
        ClosedLoop(f, loop, bounds={"force": (1.0, -1.0)}).simulate(eq.x, 1)
    with pytest.raises(ValueError, match="unknown name 'forc'; did you mean 'u.force'"):
        ClosedLoop(f, loop, bounds={"forc": (1.0, None)}).simulate(eq.x, 1)


# -- delay ----------------------------------------------------------------------------------------


def test_delayed_map_keeps_the_protocol():
    f = midpoint_pendulum()
    d = DelayedMap(f)
    x, u, z = np.array([0.3, 0.2, 0.5]), np.array([-0.7]), np.array([0.4, -1.1, 0.6])
    np.testing.assert_array_equal(d.step(x, u), [*f.step(x[:2], x[2:]), -0.7])
    A, B = d.linearize(x, u)
    Hxx, Hxu, Huu = d.second_order(x, u, z)
    e = 1e-5
    for i, s in enumerate(e * np.eye(3)):
        np.testing.assert_allclose(A[:, i], (d.step(x + s, u) - d.step(x - s, u)) / (2 * e), atol=1e-8)
        slope = z @ (d.linearize(x + s, u).A - d.linearize(x - s, u).A) / (2 * e)
        np.testing.assert_allclose(Hxx[i], slope, atol=1e-8)
    np.testing.assert_array_equal(B, [[0], [0], [1]])
    assert not Hxu.any() and not Huu.any()
    U = np.random.default_rng(0).standard_normal((6, 1))
    run = d.rollout(x, U)
    np.testing.assert_array_equal(run.x[1:, 2], U[:, 0])
    np.testing.assert_array_equal(d.inner_trajectory(run).u[1:], U[:-1])
    np.testing.assert_array_equal(run["pending.torque"], [0.5, *U[:, 0]])  # what acts, and will
    np.testing.assert_array_equal(run["u.torque"], U[:, 0])
    lin = d.linearize_trajectory(run)
    np.testing.assert_allclose(lin.A[3], d.linearize(run.x[3], U[3]).A, atol=1e-12)
    np.testing.assert_allclose(d.derivatives.linearize(d.steps_at(run.x[:-1], U)).A, lin.A, atol=1e-12)
    K = np.random.default_rng(1).standard_normal((6, 1, 3))
    tracked = d.track(x, run.x + 0.1, U, K)
    np.testing.assert_allclose(d.rollout(x, tracked.u).x, tracked.x, atol=1e-12)
    np.testing.assert_allclose(tracked.u[2], U[2] - K[2] @ (tracked.x[2] - run.x[2] - 0.1), atol=1e-12)


def test_a_delay_of_n_steps_is_n_delays_of_one():
    f = MidpointVI(models.load("cart_pole"), 0.05)
    d, nested = DelayedMap(f, 3), DelayedMap(DelayedMap(DelayedMap(f)))
    assert d.state_names == nested.state_names
    assert d.state_names[4:] == ("pending.force", "pending.pending.force", "pending.pending.pending.force")
    x = d.state({"theta": 0.2, "pending.force": 1.0, "pending.pending.pending.force": -2.0})
    np.testing.assert_array_equal(x, [0, 0.2, 0, 0, 1, 0, -2])
    np.testing.assert_array_equal(d.join(x[:4], [[1.0], [0.0], [-2.0]]), x)
    np.testing.assert_array_equal(d.join(x[:4], [3.0])[4:], [3, 3, 3])
    with pytest.raises(ValueError, match=r"pending: expected shape \(3, 1\), got \(2, 1\)"):
        d.join(x[:4], [[1.0], [0.0]])
    with pytest.raises(ValueError, match="n: expected a whole number >= 1, got 0"):
        DelayedMap(f, 0)
    U = np.random.default_rng(0).standard_normal((6, 1))
    run, same = d.rollout(x, U), nested.rollout(x, U)
    np.testing.assert_array_equal(run.x, same.x)
    np.testing.assert_array_equal(d.inner_trajectory(run).u[:, 0], [1, 0, -2, *U[:3, 0]])
    np.testing.assert_array_equal(d.inner_trajectory(run).x, run.x[:, :4])
    assert d.rollout(x, U[:2]).x[-1] == pytest.approx(run.x[2], abs=0)  # ends before its first command acts
    for one, other in zip(d.linearize_trajectory(run), nested.linearize_trajectory(same), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-14)
    Z = np.random.default_rng(1).standard_normal((6, 7))
    for one, other in zip(
        d.second_order_trajectory(run, Z), nested.second_order_trajectory(same, Z), strict=True
    ):
        np.testing.assert_allclose(one, other, atol=1e-12)
    assert d.unit("pending.pending.force") == "N" and repr(d).endswith(", 3)")
    eq = equilibrium(d, theta=0.0)
    loop = dlqr(d, eq, {"x": 10.0, "theta": 10.0}, 0.1)
    held = ClosedLoop(d, loop, bounds={"force": 20.0}).simulate(d.join(f.state(theta=0.05)), 200)
    assert np.abs(held["theta"][-1]) < 1e-3


def test_a_regulator_that_knows_of_the_delay_holds_what_the_other_loses():
    f = MidpointVI(models.load("cart_pole"), 0.1)  # a long step: the delay matters
    d = DelayedMap(f)
    eq = equilibrium(d, theta=0.0)
    assert eq.x.shape == (5,) and d.state_names[-1] == "pending.force"
    knows, naive = (
        dlqr(d, eq, {**POLE_Q, "pending.force": 0.0}, 1e-3),
        dlqr(f, (eq.x[:4], eq.u), POLE_Q, 1e-3),
    )
    start = d.join(f.state(theta=0.05))
    held = ClosedLoop(d, knows).simulate(start, 100)
    assert np.abs(held.trajectory.x[-1]).max() < 1e-3
    A, B = d.linearize(eq.x, eq.u)
    padded = np.hstack([naive.K, [[0.0]]])
    assert np.abs(np.linalg.eigvals(A - B @ padded)).max() > 1
    lost = ClosedLoop(d, naive).simulate(start, 10)  # until a step does not exist at its length
    assert np.abs(lost["theta"]).max() > 0.5
    # output feedback with the delay in the filter
    y = Measurement(d, {"x": 1e-6, "theta": 1e-6})
    observer = kalman(d, eq, y, {"x": 1e-8, "theta": 1e-8, "p.x": 1e-6, "p.theta": 1e-6})
    seen = ClosedLoop(d, knows, observer).simulate(start, 150, estimate=eq.x, noise=0)
    assert np.abs(seen["theta"][-50:]).max() < 0.05
