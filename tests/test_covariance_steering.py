"""Covariance steering: against a semidefinite program and a local search, verdicts, filters, Monte Carlo."""

import casadi as ca
import numpy as np
import pytest
from scipy.optimize import minimize
from support.control_maps import cart_pole, double_integrator, two_inputs

import vioc
from vioc import CasadiMap, GroupVI
from vioc.control import dlqr, feedback
from vioc.control.feedback import covariance, steer_covariance
from vioc.errors import ModelError, OptimizationError

W = 1e-4


def swaying(steps=8):
    f = two_inputs()
    t = f.dt * np.arange(steps)
    return f.rollout([0.4, 0.8, -0.3], np.stack([0.4 * np.cos(t), 0.3 + 0 * t], axis=1))


def standing(steps=6):
    f = double_integrator()
    return f.rollout([0.0, 0.0], [0.0], steps=steps)


def semidefinite(A, B, W, P0, Q, R, Qf, final, stds):
    """The convex problem in the covariances themselves (Liu, Rapakoulias, Tsiotras 2024), by Clarabel."""
    cp = pytest.importorskip("cvxpy")
    N, n, m = B.shape
    P = [P0] + [cp.Variable((n, n), symmetric=True) for _ in range(N)]
    cost, rules = 0.0, []
    for k in range(N):
        U, Y = cp.Variable((m, n)), cp.Variable((m, m), symmetric=True)
        rules.append(cp.bmat([[Y, U], [U.T, P[k]]]) >> 0)
        cross = A[k] @ U.T @ B[k].T
        rules.append(P[k + 1] == A[k] @ P[k] @ A[k].T + cross + cross.T + B[k] @ Y @ B[k].T + W)
        rules += [Y[i, i] <= stds[i] ** 2 for i in range(m)]
        cost += cp.trace(Q @ P[k]) + cp.trace(R @ Y)
    rules.append(final - P[N] >> 0)
    problem = cp.Problem(cp.Minimize(cost + cp.trace(Qf @ P[N])), rules)
    problem.solve(solver="CLARABEL")
    return problem.value


@pytest.mark.peer
@pytest.mark.parametrize("bounded", [False, True])
def test_the_cost_is_that_of_the_semidefinite_program(bounded):
    run, P0, R = swaying(), 0.04 * np.eye(3), np.diag([1.0, 0.5])
    final = np.array([[4e-3, 1e-3, 0], [1e-3, 6e-3, 0], [0, 0, 1e-2]])
    wide = np.array([1.0, 1.2]) if bounded else np.array([np.inf, np.inf])
    bounds = {f"u.u{i}": (run.u[:, i] - 3 * s, run.u[:, i] + 3 * s) for i, s in enumerate(wide) if bounded}
    found = steer_covariance(run, P0, W, final=final, bounds=bounds, Q=0.1, R=R)
    A, B = run.map.linearize_trajectory(run)
    least = semidefinite(
        A, B, W * np.eye(3), P0, 0.1 * np.eye(3), R, 0.1 * np.eye(3), final, np.minimum(wide, 9)
    )
    assert abs(found.cost - least) <= 1e-5 * least
    assert found.gap <= 1e-6 * found.cost


def test_a_local_search_over_gains_finds_nothing_better():
    run, P0 = standing(3), np.diag([0.04, 0.01])
    found = steer_covariance(run, P0, W, final={"x": 0.12, "v": 0.4}, bounds={"u.force": 4.4}, sigmas=2.0)
    A, B = run.map.linearize_trajectory(run)

    def spread(gains):
        P, inputs = P0, []
        for a, b, K in zip(A, B, gains.reshape(3, 1, 2), strict=True):
            inputs.append((K @ P @ K.T)[0, 0])
            P = (a - b @ K) @ P @ (a - b @ K).T + W * np.eye(2)
        return P, np.array(inputs)

    def room(gains):
        P, inputs = spread(gains)
        return np.concatenate([1 - np.diag(P) / [0.12**2, 0.4**2], 1 - inputs / 2.2**2])

    options = dict(maxiter=500, ftol=1e-14)
    starts = np.random.default_rng(0).normal(size=(6, 6)) + found.regulator.K.ravel()
    best = [
        minimize(lambda K: spread(K)[1].sum(), K, constraints={"type": "ineq", "fun": room}, options=options)
        for K in starts
    ]
    costs = [b.fun for b in best if b.success and room(b.x).min() > -1e-9]
    assert costs and found.cost - found.gap <= min(costs) + 1e-9
    assert abs(found.cost - min(costs)) <= 1e-5 * found.cost
    assert room(found.regulator.K.ravel()).min() >= 0


def test_limits_are_kept_by_the_covariance_that_is_propagated_by_itself():
    run = swaying(20)
    found = steer_covariance(
        run,
        0.01,
        W,
        W_u=1e-3,
        final={"x0": 0.05, "x2": 0.06},
        bounds={"x1": (-2.0, 1.2)},
        R=0.1,
        Q={"x1": 0.3},
    )
    spread = covariance(run, 0.01, W, W_u=1e-3, law=found)
    assert spread.std("x0")[-1] <= 0.05 and spread.std("x2")[-1] <= 0.06
    assert (run["x1"] + 3 * spread.std("x1") <= 1.2 + 1e-12)[1:].all()
    cost = 0.3 * spread.P[:, 1, 1].sum() + 0.1 * np.trace(spread.input, axis1=1, axis2=2).sum()
    assert found.cost == pytest.approx(cost, rel=1e-10)
    # what binds has a price, and it is the slope of the least cost
    assert "x0 at the end" in found.prices
    more = steer_covariance(
        run, 0.01, W, W_u=1e-3, final={"x0": 0.05 * np.sqrt(1.001), "x2": 0.06}, R=0.1, Q={"x1": 0.3}
    )
    slope = (found.cost - more.cost) / 1e-3
    assert slope == pytest.approx(found.prices["x0 at the end"], rel=1e-2, abs=2e-3 * found.cost)


def test_without_limits_that_bind_it_is_the_regulator():
    run = swaying()
    free = dlqr(run.map, run, 0.1, 1.0)
    found = steer_covariance(run, 0.04, W, final={"x0": 10.0}, Q=0.1)
    np.testing.assert_allclose(found.regulator.K, free.K, rtol=1e-12)
    assert found.gap == 0 and found.prices == {}


def test_the_verdict_is_sharp():
    """The last input can bring x to zero, but for the noise of the last step, 0.01 m."""
    run, noise = standing(), {"x": 1e-4, "v": 1e-4}
    assert run.map.linearize(run.x[0], run.u[0]).B[0, 0] > 0
    steer_covariance(run, 0.01, noise, final={"x": 0.01001})
    with pytest.raises(OptimizationError, match=r"x at the end \(at most 0.00999, alone at least 0.01\)"):
        steer_covariance(run, 0.01, noise, final={"x": 0.00999})
    # each alone can be had, both together cannot
    steer_covariance(run, 0.01, noise, final={"x": 0.03}, bounds={"u.force": 3.0})
    with pytest.raises(OptimizationError, match=r"x at the end.*u.force at k"):
        steer_covariance(run, 0.01, noise, final={"x": 0.03}, bounds={"u.force": 0.3})


def test_what_inputs_do_not_move_is_proven_to_stay():
    names = dict(dt=0.1, state_names=("alone", "driven"), input_names=("u",))
    x, u = ca.SX.sym("x", 2), ca.SX.sym("u")
    f = CasadiMap(ca.Function("f", [x, u], [ca.vertcat(0.9 * x[0], x[1] + x[0] + 0.1 * u)]), **names)
    run = f.rollout([0.0, 0.0], [0.0], steps=5)
    least = 0.9**5 * 0.1
    steer_covariance(run, 0.01, final={"alone": 1.001 * least, "driven": 0.05})
    with pytest.raises(
        OptimizationError, match=rf"alone at the end .*alone at least {least:.4g}.* lower bound"
    ):
        steer_covariance(run, 0.01, final={"alone": 0.99 * least, "driven": 0.05})
    with pytest.raises(OptimizationError, match=r"u.u at k.*final \(a matrix\)"):
        steer_covariance(run, 0.01, final=np.diag([0.01, 1e-4]), bounds={"u.u": 0.5})


def test_through_a_filter():
    f = cart_pole(0.02)
    run = f.rollout([0.0, 0.1, 0.0, 0.0], [0.0], steps=40)
    see = feedback.Measurement(f, {"x": 1e-6, "theta": 1e-6})
    noise = dict(W=1e-7, W_u=0.01)
    found = steer_covariance(run, 1e-4, **noise, final={"theta": 6e-3, "x": 8e-3}, R=0.1, measurement=see)
    spread = covariance(run, 1e-4, noise["W"], W_u=0.01, law=found, observer=found.observer)
    assert spread.std("theta")[-1] <= 6e-3 * (1 + 1e-9) and spread.std("x")[-1] <= 8e-3 * (1 + 1e-9)
    assert found.cost == pytest.approx(0.1 * spread.input.sum(), rel=1e-8)
    seen = steer_covariance(run, 1e-4, **noise, final={"theta": 6e-3, "x": 8e-3}, R=0.1)
    assert seen.cost < found.cost
    left = covariance(run, 1e-4, 1e-7, W_u=0.01, law=found, observer=found.observer).estimate[-1]
    with pytest.raises(OptimizationError, match="the filter's error alone has a standard deviation"):
        small = 0.9 * np.sqrt(left[1, 1])
        steer_covariance(run, 1e-4, **noise, final={"theta": small}, measurement=see)


def test_what_is_refused():
    run = standing()
    with pytest.raises(ValueError, match="give final standard deviations or bounds"):
        steer_covariance(run, 0.01)
    with pytest.raises(TypeError, match=r"trajectory: expected one, such as f\.rollout"):
        steer_covariance(run.x[0], 0.01, final={"x": 0.1})
    with pytest.raises(ModelError, match="final"):
        steer_covariance(run, 0.01, final={"y": 0.1})
    with pytest.raises(ValueError, match="deviation > 0 of 'x', got -1"):
        steer_covariance(run, 0.01, final={"x": -1})
    with pytest.raises(ValueError, match="positive definite matrix"):
        steer_covariance(run, 0.01, final=np.zeros((2, 2)))
    with pytest.raises(ValueError, match=r"trajectory itself is at 0 at k = 0.*deviations need room"):
        steer_covariance(run, 0.01, bounds={"x": (0.0, 1.0)})
    with pytest.raises(OptimizationError, match="x starts with a standard deviation of 0.1"):
        steer_covariance(run, 0.01, bounds={"x": 0.2})
    with pytest.raises(ValueError, match="sigmas"):
        steer_covariance(run, 0.01, final={"x": 0.1}, sigmas=0)


@pytest.mark.slow
def test_monte_carlo_on_the_nonlinear_map():
    f = vioc.MidpointVI(vioc.models.load("cart_pole"), 0.02, wrap=("theta",))
    run = f.rollout(f.state(theta=0.05), 0.2 * np.sin(np.arange(50.0))[:, None])
    P0, limit = np.diag([1e-4, 4e-4, 1e-4, 1e-4]), {"theta": 0.01, "x": 0.02}
    found = steer_covariance(run, P0, W_u=0.01, final=limit, R=0.1)
    rng, count = np.random.default_rng(3), 2000
    starts = run.x[0] + rng.multivariate_normal(np.zeros(4), P0, size=count)
    noise = 0.1 * rng.standard_normal((count, len(run), 1))
    ends = [f.track(x, run.x, run.u + w, found.regulator.K).x[-1] for x, w in zip(starts, noise, strict=True)]
    z = f.difference(run.x[-1], np.array(ends))
    for name, most in limit.items():
        # four standard deviations of a sampled variance, and 2 % for what the linearization leaves out
        sampled = z[:, f.state_names.index(name)].std()
        assert abs(sampled / most - 1) <= 0.02 + 4 / np.sqrt(2 * count)


def test_deviations_of_errors_that_are_no_states():
    """Of free rotations: what P0 and final may name has its standard deviation, too."""
    wheels = [
        turn(f"w{i}", mass=vioc.Mass(0.5, (0.01,) * 3)) for i, turn in enumerate((vioc.rx, vioc.ry, vioc.rz))
    ]
    bus = vioc.spherical("body", frame="bus", mass=vioc.Mass(20.0, (0.9, 0.7, 0.5)))[tuple(wheels)]
    f = GroupVI(vioc.System(bus, *(vioc.JointForce(f"w{i}", f"m{i}") for i in range(3))), 0.2)
    run = f.rollout(f.initial_state({"body-rz": 0.5}), steps=12)
    start, final = {"body-phix": 1e-4, "p.body-wx": 1e-5}, {"body-phix": 0.012}
    steered = steer_covariance(run, start, 1e-8, final=final)
    expected = np.sqrt(
        steered.spread.P[:, f.space.error_names.index("body-phix"), f.space.error_names.index("body-phix")]
    )
    np.testing.assert_allclose(steered.std("body-phix"), expected, rtol=1e-14)
    assert steered.std("body-phix")[0] == 0.01 and steered.std("body-phix")[-1] <= 0.012 * (1 + 1e-9)
    with pytest.raises(ValueError, match="std: 'u.m0' belongs to a step"):
        steered.std("u.m0")
