"""`vioc.control.ddp`: the optima of `optimize` and of QP solvers, rates, bounds, verdicts."""

import casadi as ca
import numpy as np
import pytest
from control_maps import RailedMap, cart_pole, double_integrator, midpoint_pendulum, two_inputs
from scipy.optimize import lsq_linear

import vioc
from vioc.control import Cost, optimize, project, quadratic, riccati, straight_line
from vioc.control.ddp import backward, optimize_ddp
from vioc.control.ddp.box_qp import box_qp
from vioc.errors import OptimizationError

RNG = np.random.default_rng(5)
FAR = 50.0  # N, more than is asked for


@pytest.mark.parametrize("method", ["ddp", "ilqr"])
def test_a_linear_quadratic_problem_takes_one_step(method):
    f = double_integrator()
    N, x0 = 50, np.array([1.0, -0.5])
    cost = quadratic(f, Q=[1, 0.1], R=0.2, Qf=10, per_time=False)
    A, B = f.linearize(x0)
    _, P = riccati(np.tile(A, (N, 1, 1)), np.tile(B, (N, 1, 1)), np.diag([1, 0.1]), [[0.2]], 10 * np.eye(2))
    best = optimize_ddp(f, cost, x0=x0, steps=N, method=method)
    assert best.iterations == 1
    assert best.cost == pytest.approx(0.5 * x0 @ P[0] @ x0, rel=1e-12)


@pytest.mark.parametrize("method", ["ddp", "ilqr"])
def test_the_pendulum_s_optimum_is_that_of_newton(method):
    f = midpoint_pendulum()
    cost = quadratic(f, Q=1, R=1, Qf=20, goal={"theta": 1.0})
    best = optimize(f, cost, x0=[0, 0], steps=30, tolerance=1e-14)
    other = optimize_ddp(f, cost, x0=[0, 0], steps=30, method=method, tolerance=1e-14)
    assert other.converged and other.cost == pytest.approx(best.cost, rel=1e-12)
    np.testing.assert_allclose(other.trajectory.u, best.trajectory.u, atol=1e-6)
    np.testing.assert_array_equal(other.trajectory.x, f.rollout([0, 0], other.trajectory.u).x)
    assert other.history.method[0] == method
    loop = other.stabilize(1, 1)
    assert np.abs(loop.rollout([0.1, 0]).x[-1] - other.trajectory.x[-1]).max() < 0.05


@pytest.mark.parametrize("make", ["variational", "runge-kutta"])
def test_the_cart_pole_s_optimum_is_that_of_newton(make):
    f = vioc.MidpointVI(vioc.models.load("cart_pole"), 0.05) if make == "variational" else cart_pole(0.05)
    weights = {"x": 0.1, "theta": 0.1, "v.x": 0.01, "v.theta": 0.01}
    end = {"x": 1e3, "theta": 1e3, "v.x": 1e2, "v.theta": 1e2}
    cost = quadratic(f, Q=weights, R=0.01, Qf=end)
    x0 = f.state(theta=np.pi)
    best = optimize(f, cost, (straight_line(x0, np.zeros(4), 40), None), tolerance=1e-13)
    near = project(f, best.trajectory.x, best.trajectory.u + 0.1 * RNG.standard_normal((40, 1)), best.gains)
    assert cost.value(near) > best.cost * (1 + 1e-4)
    for method in ("ddp", "ilqr"):
        other = optimize_ddp(f, cost, near, method=method, tolerance=1e-12)
        assert other.cost == pytest.approx(best.cost, rel=1e-8)
    if make == "variational":
        far = optimize_ddp(f, cost, x0=x0, steps=40, tolerance=1e-9)  # from hanging, without a push
        assert far.cost == pytest.approx(best.cost, rel=1e-8)


def test_ddp_converges_quadratically_and_ilqr_linearly():
    f = midpoint_pendulum()
    cost = quadratic(f, Q=1, R=1, Qf=20, goal={"theta": 1.0})
    best = optimize(f, cost, x0=[0, 0], steps=30, tolerance=1e-14)
    X, U = best.trajectory.x, best.trajectory.u
    sizes = np.array([0.1, 0.3, 1.0])
    for method, order in (("ddp", 4), ("ilqr", 2)):
        # what is left to gain one step from a distance eps: eps^4, or eps^2 where convergence is linear
        after = []
        for eps in sizes:
            guess = project(f, X, U + eps * np.sin(np.arange(30))[:, None], best.gains)
            run = optimize_ddp(
                f, cost, guess, method=method, tolerance=1e-20, max_iterations=1, raise_on_failure=False
            )
            after.append(-run.history.descent[1])
        slope = np.polyfit(np.log(sizes), np.log(after), 1)[0]
        assert slope == pytest.approx(order, abs=0.25)


def test_curvature_is_that_of_the_map_however_it_is_cut(monkeypatch):
    f = two_inputs()
    run = f.rollout([0.1, 0.2, -0.1], 0.3 * RNG.standard_normal((7, 2)))
    cost = quadratic(f, Q=1, R=1)
    v = RNG.standard_normal(3)
    model = backward.Model(f, cost, run, "ddp")
    whole = [model.curvature(k) for k in range(6, -1, -1)]
    for k, tensor in zip(range(6, -1, -1), whole, strict=True):
        H = f.second_order(run.x[k], run.u[k], v, k)
        contracted = np.tensordot(v, tensor, 1)
        np.testing.assert_allclose(contracted[:3, :3], H.xx, atol=1e-12)
        np.testing.assert_allclose(contracted[:3, 3:], H.xu, atol=1e-12)
        np.testing.assert_allclose(contracted[3:, 3:], H.uu, atol=1e-12)
    monkeypatch.setattr(backward, "CHUNK", 160)  # two steps
    model = backward.Model(f, cost, run, "ddp")
    apart = [model.curvature(k) for k in range(6, -1, -1)]  # BLAS may choose its loops by the size
    np.testing.assert_allclose(apart, whole, rtol=0, atol=1e-13 * np.abs(whole).max())


@pytest.mark.parametrize("r", [0.0, 0.3, 20.0])
def test_the_promise_is_what_a_full_step_gains_where_the_model_is_exact(r):
    """Whatever the regularization: it shapes the step, the value function is that of the step as it is."""
    f = double_integrator()
    cost = quadratic(f, Q=[1, 0.1], R=0.2, Qf=10, goal={"x": 0.5})
    run = f.rollout([1.0, -0.5], RNG.standard_normal((12, 1)))
    found = backward.Model(f, cost, run, "ddp").backward(r, None)
    moved = f.track(run.x[0], run.x, run.u + found.k, found.K)
    assert found.promise(1.0) == pytest.approx(cost.value(run) - cost.value(moved), rel=1e-10)


def test_a_cost_on_multipliers():
    f = RailedMap()
    cost = quadratic(f, Q={"lambda.rail": 1}, R=1, Qf=20, goal={"theta": 1.0})
    best = optimize(f, cost, x0=[0, 0], steps=20, tolerance=1e-13)
    other = optimize_ddp(f, cost, x0=[0, 0], steps=20, tolerance=1e-13)
    assert other.cost == pytest.approx(best.cost, rel=1e-10)
    assert other.iterations < 20 and -other.history.descent[-1] < 1e-13


# -- bounds -----------------------------------------------------------------------------------------


def test_box_qp_is_that_of_bounded_least_squares():
    for _ in range(200):
        m = RNG.integers(1, 6)
        L = RNG.standard_normal((m, m)) + 2 * np.eye(m)  # H is ill-conditioned at times
        b, G = RNG.standard_normal(m), RNG.standard_normal((m, 3))
        low, high = -RNG.random(m), RNG.random(m)
        expected = lsq_linear(L, b, (low, high), method="bvls", tol=1e-14).x
        H, g = L.T @ L, -L.T @ b
        k, K = box_qp(H, g, low, high, G)
        np.testing.assert_allclose(k, expected, atol=1e-9)
        free = (k > low) & (k < high)
        np.testing.assert_array_equal(K[~free], 0)
        np.testing.assert_allclose(H[np.ix_(free, free)] @ K[free], G[free], atol=1e-9)
    assert box_qp(-np.eye(1), np.ones(1), -1.0, 1.0, np.ones((1, 1))) is None
    assert box_qp(np.eye(1), np.array([np.nan]), -1.0, 1.0, np.ones((1, 1))) is None


@pytest.mark.parametrize("method", ["ddp", "ilqr"])
def test_a_linear_quadratic_problem_with_bounds_is_the_qp(method):
    f = double_integrator()
    N, x0, bounds = 30, np.array([1.0, 0.0]), (-0.8, np.linspace(1.0, 0.2, 30))
    cost = quadratic(f, Q=[1, 0.1], R=0.05, Qf=10, per_time=False)
    A, B = f.linearize(x0)
    S = np.zeros((2 * N + 2, N))  # states by inputs
    for k in range(N):
        S[2 * k + 2 : 2 * k + 4] = A @ S[2 * k : 2 * k + 2]
        S[2 * k + 2 : 2 * k + 4, k] += B[:, 0]
    start = np.concatenate([np.linalg.matrix_power(A, k) @ x0 for k in range(N + 1)])
    root = np.sqrt(np.concatenate([np.tile([1, 0.1], N), [10, 10]]))
    matrix = np.vstack([root[:, None] * S, np.sqrt(0.05) * np.eye(N)])
    target = -np.concatenate([root * start, np.zeros(N)])
    qp = lsq_linear(matrix, target, bounds, method="bvls", tol=1e-14)
    best = optimize_ddp(f, cost, x0=x0, steps=N, method=method, bounds={"u.force": bounds}, tolerance=1e-14)
    assert best.cost == pytest.approx(qp.cost, rel=1e-10)
    np.testing.assert_allclose(best.trajectory.u[:, 0], qp.x, atol=1e-6)
    push = matrix.T @ (target - matrix @ qp.x)
    np.testing.assert_allclose(best.multipliers["u.force"], push, atol=1e-6)
    assert best.margin == 0 and best.feasible
    held = np.isclose(qp.x, -0.8) | np.isclose(qp.x, bounds[1])
    assert 5 < held.sum() < 25 and (best.gains[held] == 0).all()


@pytest.mark.parametrize(
    "angle, limit", [(0.4, 0.5), (0.4, (None, 0.4)), (-0.4, (np.linspace(-0.9, -0.2, 10), 0.3)), (0.4, FAR)]
)
def test_multipliers_and_margin_are_those_of_other_methods(angle, limit):
    f = vioc.MidpointVI(vioc.models.load("cart_pole"), 0.04)
    cost = quadratic(f, R=0.1, Q={"theta": 1.0}, Qf={"theta": 10})
    start = dict(x0=f.initial_state({"theta": angle}), steps=10, bounds={"force": limit})
    shot, nlp, ddp = (optimize(f, cost, method=m, **start) for m in ("shooting", "dmoc", "ddp"))
    assert shot.multipliers.keys() == ddp.multipliers.keys() == {"u.force"}
    for other in (shot, nlp):
        np.testing.assert_allclose(ddp.multipliers["u.force"], other.multipliers["u.force"], atol=1e-5)
        assert ddp.margin == pytest.approx(other.margin, abs=1e-5)
    assert (np.abs(ddp.multipliers["u.force"]).max() > 0.1) == (ddp.margin == 0) == (limit is not FAR)
    again = optimize(f, cost, ddp, method="shooting", bounds={"force": limit})  # its multipliers are taken up
    assert again.converged and again.cost == pytest.approx(ddp.cost, rel=1e-8)


def test_a_bounded_swing_up_is_that_of_shooting():
    f = cart_pole(0.05)
    cost = quadratic(f, Q=[0.1, 0.1, 0.01, 0.01], R=0.01, Qf=[1e3, 1e3, 1e2, 1e2])
    line = straight_line([0, np.pi, 0, 0], np.zeros(4), 40), None
    free = optimize(f, cost, line)
    limit = {"u.force": 0.7 * np.abs(free.trajectory.u).max()}
    best = optimize(f, cost, free, bounds=limit, tolerance=1e-9)
    other = optimize_ddp(f, cost, free.trajectory, bounds=limit, tolerance=1e-11)
    assert other.cost == pytest.approx(best.cost, rel=1e-8)
    assert np.abs(other.trajectory.u).max() == limit["u.force"]


# -- guesses and verdicts ---------------------------------------------------------------------------


def test_guesses():
    f, twin = midpoint_pendulum(), midpoint_pendulum()
    cost = quadratic(f, Q=1, R=1, Qf=20, goal={"theta": 1.0})
    X, U = straight_line([0, 0], [1, 0], 30), np.zeros((30, 1))
    best = optimize_ddp(f, cost, x0=[0, 0], steps=30, tolerance=1e-10)
    for guess, options in (
        (twin.rollout([0, 0], U), {}),
        ((X, U), {}),
        ((X, None), {}),
        (U, {"x0": [0, 0]}),
        (f.rollout([0.3, 0], U), {"x0": [0, 0]}),
    ):
        again = optimize_ddp(f, cost, guess, tolerance=1e-10, **options)
        assert again.cost == pytest.approx(best.cost, rel=1e-9)
    assert optimize_ddp(f, cost, best.trajectory).iterations == 0
    kept = optimize_ddp(f, cost, f.rollout([0, 0], steps=20, k0=7))
    assert kept.trajectory.k0 == 7


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(method="newton"), "expected one of 'ddp', 'ilqr'"),
        (dict(tolerance=0), "tolerance > 0"),
        (dict(x0=None), "no initial state: give x0"),
        (dict(bounds={"theta": 1.0}), r"DDP takes those of inputs \(u.torque\), got 'theta'"),
        (dict(bounds={"u.torque": (1.0, -1.0)}), "lower limit 1 > upper limit -1"),
        (dict(guess=np.zeros((3, 1))), "3 rows for steps=10"),
    ],
)
def test_bad_options(options, message):
    f = midpoint_pendulum()
    with pytest.raises(ValueError, match=message):
        optimize_ddp(f, quadratic(f, Q=1, R=1), **{"x0": [0, 0], "steps": 10, **options})


def test_verdicts(capsys):
    f = midpoint_pendulum()
    cost = quadratic(f, Q=1, R=1, Qf=20, goal={"theta": 1.0})
    with pytest.raises(OptimizationError, match="max iterations after 2") as error:
        optimize_ddp(f, cost, x0=[0, 0], steps=30, max_iterations=2, monitor=True, tolerance=1e-12)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[0] == "iter" and lines[-1] == error.value.result.message and len(lines) == 5
    assert error.value.result.cost < cost.value(f.rollout([0, 0], steps=30))
    bad = Cost(f, ca.sumsqr(f.symbols.u) + ca.log(1e-3 - f.symbols.x[0] ** 2), 0)
    with pytest.raises(OptimizationError, match="cost"):
        optimize_ddp(f, bad, x0=[1, 0], steps=5)
    kink = Cost(f, ca.sumsqr(f.symbols.u) + ca.sqrt(f.symbols.x[0]), 0)
    stuck = optimize_ddp(f, kink, x0=[0, 0], steps=5, raise_on_failure=False)
    assert stuck.status == "no_descent" and "not finite at k = 0" in stuck.message


def test_an_interrupt_keeps_the_best_iterate():
    f = midpoint_pendulum()
    cost = quadratic(f, Q=1, R=1, Qf=20, goal={"theta": 1.0})

    def stop(record):
        if record.iteration == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as error:
        optimize_ddp(f, cost, x0=[0, 0], steps=30, monitor=stop)
    assert error.value.result.status == "interrupted"
    kept = optimize_ddp(f, cost, x0=[0, 0], steps=30, monitor=stop, raise_on_failure=False)
    assert kept.iterations >= 2 and kept.cost < cost.value(f.rollout([0, 0], steps=30))
