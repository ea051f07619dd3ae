"""Costs: values by hand, derivatives against differences, and what they refuse."""

import pickle

import casadi as ca
import numpy as np
import pytest
from support.control_maps import RailedMap, cart_pole, midpoint_pendulum, two_inputs

from vioc.control import Cost, check_derivatives, quadratic
from vioc.errors import ModelError, OptimizationError

RNG = np.random.default_rng(1)
BEGIN = RNG.bit_generator.state


@pytest.fixture(autouse=True)
def draws_of_a_test_do_not_depend_on_those_before_it():
    """Tests run in other orders in other processes; some draws leave nothing but rounding of a difference."""
    RNG.bit_generator.state = BEGIN


def rollout(f, steps=12):
    return f.rollout(0.3 * RNG.standard_normal(f.nx), 0.5 * RNG.standard_normal((steps, f.nu)))


def assert_derivatives(cost, run, tolerance=2e-6):
    for check in check_derivatives(cost, run):
        assert check.error < tolerance, str(check)
        assert np.isnan(check.slope) or abs(check.slope - 2) < 0.3, str(check)


def test_value_by_hand():
    f = midpoint_pendulum()
    run = rollout(f)
    theta, p, u = run.x[:, 0], run.x[:, 1], run.u[:, 0]
    goal = 0.4
    cost = quadratic(
        f, Q={"theta": 3, "p.theta": 0.5}, R={"torque": 2}, Qf={"theta": 7}, goal={"theta": goal}
    )
    running = 0.5 * (3 * (theta - goal)[:-1] ** 2 + 0.5 * p[:-1] ** 2 + 2 * u**2)
    terminal = 0.5 * 7 * (theta[-1] - goal) ** 2
    assert cost.value(run) == pytest.approx(0.1 * running.sum() + terminal, rel=1e-13)
    plain = quadratic(
        f, Q={"theta": 3, "p.theta": 0.5}, R=2, Qf={"theta": 7}, goal={"theta": goal}, per_time=False
    )
    assert plain.value(run) == pytest.approx(running.sum() + terminal, rel=1e-13)


def test_arrays_and_names_agree():
    f = cart_pole()
    run = rollout(f, 20)
    X, U = RNG.standard_normal((21, 4)), RNG.standard_normal((20, 1))
    Q = np.diag([1.0, 2.0, 3.0, 4.0])
    by_array = quadratic(f, Q=Q, R=[0.1], Qf=[1, 2, 3, 4], reference=X, u_reference=U)
    names = dict(zip(f.state_names, [1, 2, 3, 4], strict=True))
    columns = dict(zip(f.state_names, X.T, strict=True))
    by_name = quadratic(
        f, Q=names, R={"force": 0.1}, Qf=names, reference=columns, u_reference={"force": U[:, 0]}
    )
    e, v = run.x - X, run.u - U
    expected = (
        0.01 * 0.5 * (np.einsum("ka,ab,kb", e[:-1], Q, e[:-1]) + 0.1 * (v**2).sum()) + 0.5 * e[-1] @ Q @ e[-1]
    )
    assert by_array.value(run) == pytest.approx(expected, rel=1e-12)
    assert by_name.value(run) == pytest.approx(expected, rel=1e-12)


def test_full_matrix_weights():
    f = two_inputs()
    run = rollout(f)
    L, M = RNG.standard_normal((3, 3)), RNG.standard_normal((2, 2))
    cost = quadratic(f, Q=L @ L.T, R=M @ M.T + np.eye(2), Qf=L @ L.T)
    e = cost.expand(run, f.linearize_trajectory(run))
    lxx, lxu, luu = e.lxx, e.lxu, e.luu
    np.testing.assert_allclose(lxx[0], 0.1 * L @ L.T, atol=1e-14)
    np.testing.assert_allclose(lxx[-1], L @ L.T, atol=1e-14)
    np.testing.assert_allclose(luu[3], 0.1 * (M @ M.T + np.eye(2)), atol=1e-14)
    assert not lxu.any()
    assert_derivatives(cost, run)


def test_derivatives_of_any_expression():
    f = two_inputs()
    x, u = f.symbols.x, f.symbols.u
    ref = ca.SX.sym("ref", 2)
    running = ca.exp(x[0] * u[1]) + ca.sin(x[1] - ref[0]) ** 2 + 0.1 * u[0] ** 4 + x[2] * u[0] * ref[1]
    terminal = ca.log(1 + x[0] ** 2) + x[1] * (x[2] - ref[0])
    cost = Cost(f, running, terminal, references=[(ref, RNG.standard_normal((13, 2)))])
    assert_derivatives(cost, rollout(f))


def test_multipliers_by_the_chain_rule():
    f = RailedMap()
    run = rollout(f)
    assert all(c.error < 2e-6 for c in check_derivatives(f, run.x[0], run.u[0]))
    cost = quadratic(f, Q={"theta": 1, "lambda.rail": 2}, R=1, Qf=1, goal={"lambda.rail": 0.2})
    assert_derivatives(cost, run)
    lin = f.linearize_trajectory(run)
    np.testing.assert_allclose(cost.expand(run, lin).zeta, 0.1 * 2 * (run.multipliers - 0.2))
    assert quadratic(f, Q=1, R=1).expand(run, lin).zeta is None


def test_wrapped_angles_take_the_short_way():
    f = midpoint_pendulum(wrap=("theta",))
    cost = quadratic(f, Qf={"theta": 1}, R=1, goal={"theta": np.pi})
    run = f.rollout([-np.pi + 0.1, 0.0], steps=1)
    again = f.rollout([np.pi + 0.1, 0.0], steps=1)
    assert cost.value(run) == pytest.approx(cost.value(again), abs=1e-12)
    assert cost.value(run) < 0.1


def test_parameters_follow_the_trajectory():
    f = midpoint_pendulum()
    x, u, m = ca.SX.sym("x", 2), ca.SX.sym("u"), ca.SX.sym("m")
    step = ca.Function("f", [x, u, ca.SX.sym("t"), ca.SX.sym("dt"), m], [x + 0.1 * ca.vertcat(x[1], u / m)])
    f = type(f)(step, 0.1, parameters={"mass": 2.0})
    cost = Cost(f, f.quantity("param.mass") * f.symbols.u**2, per_time=False)
    assert cost.value(f.rollout([0, 0], [[1.0]])) == 2.0
    assert cost.value(f.with_parameters(mass=3.0).rollout([0, 0], [[1.0]])) == 3.0


def test_pickles_and_prints():
    f = midpoint_pendulum()
    cost = quadratic(f, Q=1, R=1, Qf=2, reference={"theta": np.linspace(0, 1, 13)})
    again = pickle.loads(pickle.dumps(cost))
    run = rollout(f)
    assert again.value(again.map.rollout(run.x[0], run.u)) == cost.value(run)
    assert repr(cost).startswith("Cost(running: ")


def test_a_cost_that_is_not_a_number_says_where():
    f = midpoint_pendulum()
    run = f.rollout([0.0, 3.0], steps=10)
    k = int(np.flatnonzero(run.x[:, 0] > 0.5)[0])
    cost = Cost(f, ca.sqrt(0.5 - f.quantity("theta")))
    with pytest.raises(OptimizationError, match=rf"running cost is nan at k = {k} \(t = "):
        cost.value(run)
    with pytest.raises(OptimizationError, match=f"not finite at k = {k},"):
        cost.expand(run, f.linearize_trajectory(run))
    with pytest.raises(OptimizationError, match="terminal cost is nan at k = 10"):
        Cost(f, 0, ca.log(-1 - f.quantity("theta") ** 2)).value(run)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(Q={"thta": 1}), "did you mean 'theta'"),
        (dict(Q={"theta": -1}), "Q: .* along 'theta'"),
        (dict(Q={"theta": np.nan}), "Q: expected finite numbers, got nan in entry 0"),
        (dict(Q=np.ones(3)), r"Q: expected shape \(2,\) in the order theta, p.theta, got \(3,\)"),
        (dict(Q=[[1, 2], [0, 1]]), "symmetric"),
        (dict(Q="heavy"), "Q: expected numbers"),
        (dict(Qf={"u.torque": 1}), "Qf: 'u.torque' belongs to a step"),
        (dict(R=0), "R: expected a positive definite weight, got eigenvalue 0 along 'torque'"),
        (dict(R={}), "R: input 'torque' has no weight"),
        (dict(R={"force": 1, "torque": 1}), "R: unknown name 'force'"),
        (dict(Q={"theta": 1}, goal={"p.theta": 1}), "'p.theta' has a goal or a reference, but no weight"),
        (dict(Q=1, goal={"theta": [1, 2]}), "expected a number for 'theta'"),
        (dict(Q=1, goal={"theta": np.inf}), "goal of 'theta': expected finite"),
        (dict(Q=1, reference=np.zeros((5, 3))), r"expected shape \(steps, 2\)"),
        (dict(Q=1, reference={"theta": np.zeros((5, 3))}), "one value per sample"),
        (dict(Q=1, goal={"theta": 1}, reference=np.zeros((5, 2))), "'theta' has a goal and a reference"),
    ],
)
def test_quadratic_refuses(options, message):
    with pytest.raises(ValueError, match=message):
        quadratic(midpoint_pendulum(), **options)


def test_cost_refuses():
    f, other = midpoint_pendulum(), midpoint_pendulum()
    with pytest.raises(ValueError, match="running cost: 'x_0' is neither"):
        Cost(f, ca.sumsqr(other.symbols.x))
    with pytest.raises(ValueError, match="expected a scalar"):
        Cost(f, f.symbols.x)
    with pytest.raises(ValueError, match="terminal cost: depends on an input"):
        Cost(f, 0, f.symbols.u)
    with pytest.raises(ModelError, match="Q: unknown name"):
        quadratic(f, Q={"nothing": 1})
    ref = ca.SX.sym("ref")
    with pytest.raises(ValueError, match="expected rows of 1"):
        Cost(f, ref, references=[(ref, 1.0)])
    cost = quadratic(f, Q=1, R=1, Qf=1, reference={"theta": np.zeros(11)})
    with pytest.raises(ValueError, match="got 11 rows for a trajectory of 11 steps, expected 12"):
        cost.value(rollout(f, 11))
    with pytest.raises(ValueError, match="4 states"):
        cost.value(rollout(cart_pole()))


def test_checks_find_a_wrong_derivative():
    f = midpoint_pendulum()

    class Wrong(type(f)):
        def linearize(self, x, u=None, k=0, dt=None):
            lin = super().linearize(x, u, k, dt)
            lin.A[0, 0] += 1e-3
            return lin

    wrong = Wrong(f.function, f.dt)
    first, second = check_derivatives(wrong, [0.3, 0.2], [0.1])
    assert first.error > 1e-5
    assert abs(first.slope) < 1.5
    assert second.error < 1e-6
    assert "slope" in str(first)
    with pytest.raises(TypeError, match="along a Trajectory"):
        check_derivatives(quadratic(f, Q=1), [0.3, 0.2])
