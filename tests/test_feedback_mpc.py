"""Receding horizons: equal to the regulator without bounds, optimal by another solver with them."""

import pickle

import casadi as ca
import numpy as np
import pytest
from scipy.optimize import minimize
from support.control_maps import double_integrator, midpoint_pendulum, rk4

from vioc import MidpointVI, models
from vioc.control import ClosedLoop, LinearMPC, dlqr, equilibrium
from vioc.control.feedback import as_law
from vioc.errors import OptimizationError

POLE_Q = {"x": 10.0, "theta": 10.0, "p.x": 1.0, "p.theta": 1.0}


@pytest.fixture(scope="module")
def pole():
    f = MidpointVI(models.load("cart_pole"), 0.02)
    eq = equilibrium(f, theta=0.0)
    return f, eq, dlqr(f, eq, POLE_Q, 0.1)


# -- linear ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["osqp", "daqp"])
def test_without_active_bounds_it_is_the_regulator(pole, solver):
    f, eq, loop = pole
    mpc = LinearMPC(loop, 15, bounds={"force": 100}, solver=solver)
    x = eq.x + [0.1, 0.05, 0.02, -0.01]
    np.testing.assert_allclose(mpc(3, x), as_law(loop)(0, x), rtol=1e-9)
    plan = mpc.plan(0, x)
    assert plan.cost == pytest.approx((x - eq.x) @ loop.P @ (x - eq.x), rel=1e-8)
    A, B = f.linearize(eq.x, eq.u)
    np.testing.assert_allclose(plan.x[1:], plan.x[:-1] @ A.T + plan.u @ B.T, atol=1e-7)
    assert f"15 steps ahead by {solver}" in repr(mpc)


@pytest.mark.parametrize("first", [0, 7])
def test_without_active_bounds_along_a_trajectory(first):
    f = midpoint_pendulum(wrap=("theta",))
    run = f.rollout([1.0, 0.0], 0.3 * np.ones((20, 1)), k0=first)
    S = np.array([[0.05], [-0.02]])
    loop = dlqr(f, run, 2.0, 0.1, S=S)
    mpc, law = LinearMPC(loop, 8), as_law(loop)
    for k in (0, 5, 15, 19):  # the horizon shrinks at the end
        x = run.x[k] + [0.05, -0.1]
        np.testing.assert_allclose(mpc(first + k, x), law(first + k, x), rtol=1e-9, atol=1e-12)
        assert len(mpc.plan(first + k, x).u) == min(8, 20 - k)
    with pytest.raises(ValueError, match=f"samples {first} .. {first + 19}, asked at {first + 20}"):
        mpc(first + 20, run.x[-1])


@pytest.mark.parametrize("solver", [None, "daqp", "osqp"])
@pytest.mark.parametrize("weight", [0.0, 0.3, 50.0])
def test_without_active_bounds_across_a_held_end(solver, weight):
    """Inputs, states and cost are those of the regulator, whatever its end weighs and wherever it is held."""
    f, S = double_integrator(), np.array([[0.1], [0.05]])
    run = f.rollout([1.0, -0.2], np.full((6, 1), 0.1))
    loop = dlqr(f, run, 2.0, 0.5, weight, S=S).hold([0.95, 0.0])
    mpc = LinearMPC(loop, 4, bounds={"force": 100, "x": (None, 100)}, rate=1e3 / f.dt, solver=solver)
    for k in (1, 2, 3, 5, 6, 8):
        x = np.array([0.9, 0.1])
        plan, z = mpc.plan(k, x), x - (run.x[k] if k < 6 else loop.end.x)
        closed = f.track(
            x, *(np.stack([rows[min(j, 6)] for j in range(k, k + 4)]) for rows in held_rows(loop))
        )
        np.testing.assert_allclose(plan.u, closed.u, rtol=1e-7, atol=1e-8)
        np.testing.assert_allclose(plan.x, closed.x, rtol=1e-7, atol=1e-8)
        P = loop.P[k] if k < 6 else loop.end.P
        assert plan.cost == pytest.approx(z @ P @ z, rel=1e-7)


def held_rows(loop):
    """States, inputs and gains of a regulator, then of what it holds."""
    run, end = loop.reference, loop.end
    pairs = (run.x[:-1], end.x), (run.u, end.u), (loop.K, end.K)
    return [np.concatenate([rows, last[None]]) for rows, last in pairs]


@pytest.mark.parametrize("solver", [None, "daqp"])
def test_bounds_across_a_held_end_against_scipy(solver):
    """What bounds add to the held regulator's cost counts, beside the weight of the end."""
    f, n = double_integrator(), 6
    run = f.rollout([1.0, -0.2], np.full((6, 1), 0.1))
    loop = dlqr(f, run, 2.0, 0.5, 0.3).hold([0.95, 0.0])
    x0, P = np.array([1.6, 0.3]), loop.end.P

    def cost(u):
        x = f.rollout(x0, u[:, None]).x
        follows, holds = x[:3] - run.x[3:6], x[3:] - loop.end.x
        end = x[3] - run.x[6]
        total = 2 * (follows**2).sum() + 0.5 * ((u[:3] - 0.1) ** 2).sum() + end @ loop.Qf @ end
        total += 2 * (holds[:-1] ** 2).sum() + 0.5 * (u[3:] ** 2).sum() + holds[-1] @ P @ holds[-1]
        return total - holds[0] @ P @ holds[0]

    plan = LinearMPC(loop, n, bounds={"force": (-0.4, 1.0)}, solver=solver).plan(3, x0)
    found = minimize(cost, np.zeros(n), bounds=[(-0.4, 1.0)] * n, method="L-BFGS-B", options=dict(ftol=1e-15))
    assert (plan.u[3:] < -0.399).any()
    np.testing.assert_allclose(plan.u[:, 0], found.x, atol=1e-4)
    assert plan.cost == pytest.approx(found.fun, rel=1e-8)


@pytest.mark.parametrize("solver", ["osqp", "daqp"])
@pytest.mark.parametrize("soft", [30.0, 1.0])
def test_bounds_rates_and_soft_states_against_scipy(solver, soft):
    f, n = double_integrator(), 8
    eq = equilibrium(f, x=0.0)
    loop = dlqr(f, eq, {"x": 5.0, "v": 0.1}, 0.1)
    bounds = {"force": (-1.5, 1.0), "v": (-0.25, None)}
    options = dict(bounds=bounds, rate=0.9 / f.dt, soft={"v": (soft, 2 * soft)}, solver=solver)
    mpc = LinearMPC(loop, n, **options)
    x0, last = np.array([1.0, 0.0]), np.array([0.0])

    def cost(w):
        u, s = w[:n], w[n:]
        z = f.rollout(x0, u[:, None]).x
        total = sum(z[k] @ loop.Q @ z[k] + 0.1 * u[k] ** 2 for k in range(n)) + z[n] @ loop.P @ z[n]
        return total + soft * (s + s**2).sum()

    def inequalities(w):
        u, s = w[:n], w[n:]
        change = np.diff(np.concatenate([last, u]))
        return np.concatenate([f.rollout(x0, u[:, None]).x[1:, 1] + s + 0.25, 0.9 - change, 0.9 + change])

    bounds = [(-1.5, 1.0)] * n + [(0, None)] * n
    found = minimize(
        cost,
        np.concatenate([np.zeros(n), np.ones(n)]),
        method="SLSQP",
        bounds=bounds,
        constraints={"type": "ineq", "fun": inequalities},
        options={"ftol": 1e-13, "maxiter": 500},
    )
    plan = mpc.plan(0, x0, last)
    assert plan.cost == pytest.approx(found.fun, rel=1e-6)
    np.testing.assert_allclose(plan.u[:, 0], found.x[:n], atol=2e-4)
    np.testing.assert_allclose(plan.slack[:, 0], found.x[n:], atol=2e-4)
    assert (plan.slack.max() > 0.1) == (soft == 1.0)
    assert plan.u[0] == pytest.approx(-0.9, abs=1e-6)  # the rate is active
    with pytest.raises(NotImplementedError, match="has a memory"):
        mpc(0, x0)
    # the first sample of a loop is after the reference's input, 0 here, or what is given
    for before, first in ((None, -0.9), ({"force": -0.4}, -1.3), ([0.7], -0.2)):
        limited = LinearMPC(loop, n, before=before, **options)
        run = ClosedLoop(f, limited).simulate(x0, 5).trajectory
        assert run.u[0, 0] == pytest.approx(first, abs=1e-6)
        assert limited.plan(0, x0).u[0] == pytest.approx(first, abs=1e-6)
        assert np.abs(np.diff(run.u[:, 0])).max() <= 0.9 + 1e-6
    with pytest.raises(ValueError, match="before: .*rate"):
        LinearMPC(loop, n, before=[0.7])
    with pytest.raises(ValueError, match="before: force = 9 is more than one step's change, 0.9, outside of"):
        LinearMPC(loop, n, before=[9.0], **options)


def test_rates_are_of_inputs_not_of_what_is_added_to_the_reference():
    """Along a motion whose own inputs change, from an input that was applied before, against scipy."""
    f, n, rate = double_integrator(), 6, 0.25
    run = f.rollout([0.5, 0.1], 0.6 + 0.3 * np.sin(2.0 * np.arange(10))[:, None])
    loop = dlqr(f, run, {"x": 5.0, "v": 0.1}, 0.1)
    x0, last, k = run.x[2] + [0.2, -0.1], 0.4, 2

    def cost(u):
        z = f.rollout(x0, u[:, None]).x - run.x[k : k + n + 1]
        du = u - run.u[k : k + n, 0]
        return sum(z[i] @ loop.Q @ z[i] + 0.1 * du[i] ** 2 for i in range(n)) + z[n] @ loop.P[k + n] @ z[n]

    def inequalities(u):
        change = np.diff(u, prepend=last)
        return np.concatenate([rate - change, rate + change])

    options = {"ftol": 1e-14, "maxiter": 500}
    constraints = {"type": "ineq", "fun": inequalities}
    found = minimize(cost, np.full(n, last), method="SLSQP", constraints=constraints, options=options)
    plan = LinearMPC(loop, n, rate=rate / f.dt).plan(k, x0, np.array([last]))
    assert plan.cost == pytest.approx(found.fun, rel=1e-6)
    np.testing.assert_allclose(plan.u[:, 0], found.x, atol=2e-4)
    change = np.abs(np.diff(plan.u[:, 0], prepend=last))
    assert change[0] == pytest.approx(rate, abs=1e-6) and change.max() <= rate + 1e-6


def test_hard_bounds_that_cannot_be_kept_are_named(pole):
    _, eq, loop = pole
    x = eq.x + [0.1, 0.0, 0.0, 0.0]
    mpc = LinearMPC(loop, 20, bounds={"force": 3, "x": (None, 0.05)})
    with pytest.raises(OptimizationError, match=r"sample 4: .* x by 0\.0\d+ at sample 5; give soft="):
        mpc(4, x)
    soft = LinearMPC(loop, 20, bounds={"force": 3, "x": (None, 0.05)}, soft={"x": 1e4})
    plan = soft.plan(0, x)
    assert plan.slack[0, 0] > 0.04 and np.abs(plan.u).max() <= 3
    # an exact penalty: no slack where none is needed
    assert soft.plan(0, eq.x + [0.02, 0, 0, 0]).slack.max() < 1e-6


@pytest.mark.parametrize("solver", [None, "daqp"])
def test_bounds_that_are_not_named_in_soft_stay_hard(pole, solver):
    _, eq, loop = pole
    x = eq.x + [0.1, 0.0, 0.0, 0.0]
    bounds = {"force": 3, "x": (None, 0.05), "theta": 0.02}
    plan = LinearMPC(loop, 20, bounds=bounds, soft={"x": (1e4, 2e4)}, solver=solver).plan(0, x)
    assert plan.slack[0, 0] > 0.04 and plan.slack[:, 1].max() < 1e-6
    assert np.abs(plan.x[1:, 1]).max() < 0.02 + 1e-6
    hard = LinearMPC(loop, 20, bounds=bounds, soft={"theta": 1e4}, solver=solver)
    with pytest.raises(OptimizationError, match=r"bounds exceeded: x by 0\.0\d+ at sample 1; give soft="):
        hard.plan(0, x)
    with pytest.raises(OptimizationError, match="bounds exceeded: x by"):
        LinearMPC(loop, 20, bounds=bounds, solver=solver).plan(0, x)


def test_clipping_loses_what_the_horizon_sees(pole):
    """The cart goes back first, to tilt the pole: a wall behind it stops the program, not the regulator."""
    f, eq, loop = pole
    x0 = eq.x + f.state({"x": -0.4})
    wall = -0.405
    run = ClosedLoop(f, loop).simulate(x0, 150)
    assert run["x"].min() < wall - 0.005
    mpc = LinearMPC(loop, 25, bounds={"force": 8, "x": (wall, None)}, soft={"x": 1e4})
    safe = ClosedLoop(f, mpc, bounds={"force": 8}).simulate(x0, 150)
    assert safe["x"].min() > wall - 1e-4
    assert np.abs(safe.trajectory.x[-1]).max() < 0.5 * np.abs(x0).max()
    again = pickle.loads(pickle.dumps(mpc))
    np.testing.assert_array_equal(again(0, x0), mpc(0, x0))


def test_options_are_checked(pole):
    _, _, loop = pole
    with pytest.raises(ValueError, match="horizon: expected a whole number"):
        LinearMPC(loop, 0)
    with pytest.raises(ValueError, match="no quadratic solver 'mystery'"):
        LinearMPC(loop, 5, solver="mystery")
    with pytest.raises(ValueError, match="unknown name 'tehta'; did you mean 'theta'"):
        LinearMPC(loop, 5, bounds={"tehta": (None, 1.0)})
    bounds = {"force": 3, "x": 1.0}
    with pytest.raises(ValueError, match="soft: x: expected weights linear >= 0 and square > 0, got -1.0"):
        LinearMPC(loop, 5, bounds=bounds, soft={"x": -1.0})
    with pytest.raises(ValueError, match="soft: unknown name 'force'; known are 'x'"):
        LinearMPC(loop, 5, bounds=bounds, soft={"force": 1.0})
    with pytest.raises(TypeError, match="soft: expected weights by name, .* got 1.0"):
        LinearMPC(loop, 5, bounds=bounds, soft=1.0)
    with pytest.raises(TypeError, match="made by dlqr"):
        LinearMPC(None, 5)


@pytest.mark.parametrize("solver", ["daqp", "osqp"])
def test_rates_of_two_inputs_are_those_of_each_alone(solver):
    """Two carts that know nothing of each other, as one map of two inputs and by themselves."""
    names = dict(state_names=("a", "b", "v.a", "v.b"), input_names=("left", "right"))
    f = rk4(lambda x, u: ca.vertcat(x[2:], u), 4, 2, 0.1, **names)
    Q, R = np.array([3.0, 1.0, 0.2, 0.1]), np.array([0.1, 0.2])
    loop = dlqr(f, equilibrium(f, a=0.0, b=0.0), np.diag(Q), np.diag(R))
    rates, x0, last = np.array([0.7, 0.4]), np.array([1.0, -0.8, 0.0, 0.3]), np.array([0.2, -0.1])
    bounds = {"left": 2.0, "right": 2.0}
    plan = LinearMPC(loop, 8, bounds=bounds, rate=rates / f.dt, solver=solver).plan(0, x0, last)
    g = double_integrator()
    for i in (0, 1):
        alone = dlqr(g, equilibrium(g, x=0.0), np.diag(Q[i::2]), R[i])
        own = LinearMPC(alone, 8, bounds={"force": 2.0}, rate=rates[i] / g.dt, solver=solver)
        own = own.plan(0, x0[i::2], last[i : i + 1])
        np.testing.assert_allclose(plan.u[:, i], own.u[:, 0], atol=1e-4)
        assert abs(own.u[0, 0] - last[i]) == pytest.approx(rates[i], abs=1e-4)  # the rate is active
