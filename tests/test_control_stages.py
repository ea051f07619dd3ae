"""Stages in symbols: elimination, and the same local model as numpy's."""

import casadi as ca
import numpy as np
import pytest
from mechanisms import everything, hold, pendulum, state_near

import vioc
from vioc.control import Cost, optimize, quadratic
from vioc.control.local_model import LocalModel
from vioc.control.stages.elimination import SymbolicLU, pivot_order, symmetric_solve
from vioc.control.stages.model import StageModel, local_model
from vioc.control.stages.sweeps import Sweeps
from vioc.errors import StepError

RNG = np.random.default_rng(7)


# -- elimination ----------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 5, 9])
def test_symbolic_lu(n):
    a = np.where(RNG.random((n, n)) < 0.4, RNG.standard_normal((n, n)), 0.0)
    a[np.arange(n), RNG.permutation(n)] += 3.0  # regular, with zeros on the diagonal
    pattern = ca.sparsify(ca.DM(a)).sparsity()
    symbols, b = ca.SX.sym("a", pattern), ca.SX.sym("b", n, 2)
    lu = SymbolicLU(symbols, pivot_order(a))
    f = ca.Function("f", [symbols, b], [ca.densify(lu.solve(b)), ca.densify(lu.solve_transposed(b))])
    other = a * RNG.uniform(0.8, 1.25, a.shape)  # other numbers, the same order
    rhs = RNG.standard_normal((n, 2))
    x, y = f(ca.sparsify(ca.DM(other)), rhs)
    np.testing.assert_allclose(x.full(), np.linalg.solve(other, rhs), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(y.full(), np.linalg.solve(other.T, rhs), rtol=1e-10, atol=1e-10)


def test_pivots_of_a_saddle_point_and_of_a_singular_matrix():
    saddle = np.array([[2.0, 0.5, 1.0], [0.5, 3.0, -1.0], [1.0, -1.0, 0.0]])
    rows, columns = zip(*pivot_order(saddle), strict=True)
    assert sorted(rows) == sorted(columns) == [0, 1, 2]
    with pytest.raises(np.linalg.LinAlgError):
        pivot_order(np.ones((2, 2)))


def test_symmetric_solve():
    a = RNG.standard_normal((3, 3))
    for G, definite in ((a @ a.T + np.eye(3), True), (np.diag([1.0, -2.0, 3.0]), False)):
        b = RNG.standard_normal((3, 2))
        x, pivots = symmetric_solve(ca.SX(ca.DM(G)), ca.SX(ca.DM(b)))
        np.testing.assert_allclose(G @ ca.DM(x).full(), b, atol=1e-12)
        assert (ca.DM(pivots).full() > 0).all() == definite


# -- the local model ------------------------------------------------------------------------------


def swinging_pendulum():
    f = vioc.MidpointVI(pendulum(), 0.1, forcing="left")
    run = f.rollout([0.4, 1.0], RNG.standard_normal((30, 1)))
    rows = np.column_stack([np.linspace(0, 3, 31), np.zeros(31)])
    return run, quadratic(f, Q=[1000, 1], R=50, Qf=[1000, 1], reference=rows, per_time=False)


def cart_pole():
    f = vioc.MidpointVI(vioc.models.load("cart_pole"), 0.01)
    run = f.rollout([0.1, 3.0, 0.2, 0.3], RNG.standard_normal((60, 1)))
    return run, quadratic(f, Q={"x": 1, "v.theta": 2}, R=0.1, Qf={"theta": 10, "v.x": 5})


def with_multipliers():
    """Kinematic variables, a constraint whose multiplier costs, parameters, springs, damping."""
    f = vioc.MidpointVI(everything(), 0.01)
    x = state_near(f, 3)
    run = f.rollout(x, np.tile(hold(f, x), (12, 1)))
    return run, quadratic(f, Q={"a": 1, "v.c": 0.1, "lambda.string": 0.1}, R=0.1, Qf={"a": 10, "v.b": 3})


def not_convex():
    f = vioc.MidpointVI(pendulum(), 0.1)
    run = f.rollout([0.4, 1.0], RNG.standard_normal((20, 1)), k0=3)
    theta = f.quantity("theta")
    return run, Cost(f, ca.cos(3 * theta) + f.symbols.u**2, ca.sin(theta) ** 2)


def close(a, b, tolerance=1e-9):
    np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * max(1.0, np.abs(b).max()))


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("make", [swinging_pendulum, cart_pole, with_multipliers, not_convex])
def test_the_model_of_the_stages_is_numpys(make, weights):
    run, cost = make()
    f = run.map
    weights = (np.eye(f.nx), 2 * np.eye(f.nu)) if weights else None
    shift = 0.3
    sweeps = Sweeps.of(f, cost)
    model, plain = StageModel(f, cost, run, weights, sweeps, shift), LocalModel(f, cost, run, weights)
    assert model.sound
    close(model.lin.A, plain.lin.A)
    close(model.lin.B, plain.lin.B)
    close(model.gains, plain.gains)
    for name in ("lx", "lu", "lxx", "lxu", "luu", "weights"):
        close(getattr(model.expansion, name), getattr(plain.expansion, name))
    found = 0
    for method in ("newton", "gauss-newton", "steepest"):
        for mine, theirs in zip(model.hessian(method), plain.hessian(method), strict=True):
            close(mine, theirs)
        for shift in (0.0, 0.3, 1e3):
            mine, theirs = model.direction(method, shift), plain.direction(method, shift)
            assert (mine is None) == (theirs is None)
            if mine is not None:
                found += 1
                close(mine.dx, theirs.dx, 1e-7)
                close(mine.du, theirs.du, 1e-7)
                assert mine.slope == pytest.approx(theirs.slope, rel=1e-7)
    assert found >= 7


def test_large_maps_and_maps_without_equations_are_left_to_numpy():
    chain = vioc.MidpointVI(vioc.models.load("marionette"), 0.01)
    assert Sweeps.of(chain, quadratic(chain, R=1.0)) is None
    f = vioc.MidpointVI(everything(), 0.01)
    x, cost = state_near(f, 3), quadratic(f, R=1.0)
    run = f.rollout(x, np.tile(hold(f, x), (2, 1)))
    assert type(local_model(f, cost, run, None, 0.0)) is LocalModel and Sweeps.of(f, cost) is not None
    f = vioc.MidpointVI(pendulum(), 0.1)
    assert type(local_model(f, quadratic(f, R=1.0), f.rollout([0, 0], steps=2), None, 0.0)) is StageModel

    class NoEquations(vioc.MidpointVI):
        residual = None

    g = NoEquations(pendulum(), 0.1)
    cost, other = quadratic(f, R=1.0), quadratic(g, R=1.0)
    assert Sweeps.of(g, other) is None
    with pytest.raises(ValueError, match=r"multiple-shooting.* needs a map with implicit equations"):
        optimize(g, other, x0=[0, 0], steps=3, method="multiple-shooting")
    assert Sweeps.of(f, cost) is Sweeps.of(f, cost)


def test_other_parameters_use_the_same_functions():
    f = vioc.MidpointVI(everything(), 0.01)
    cost = quadratic(f, Q={"a": 1}, R=0.1, Qf={"a": 10})
    x = state_near(f, 3)
    sweeps = Sweeps.of(f, cost)
    for g in (f, f.with_parameters(m=3.0)):
        run = g.rollout(x, np.tile(hold(f, x), (6, 1)))
        assert Sweeps.of(g, cost) is sweeps
        model = StageModel(g, cost, run, None, sweeps, 0.0)
        close(model.lin.A, g.linearize_trajectory(run).A)


def test_a_step_that_is_singular_is_named_by_the_map():
    f = vioc.MidpointVI(
        pendulum(), 2.0
    )  # M_k+1 = -(1/dt + dt g/4 cos q_m) vanishes at cos q_m = -1/(dt^2 g/4)
    q = np.arccos(-1 / (9.8 * f.dt**2 / 4))
    p = f.dt / 2 * 9.8 * np.sin(q)  # stays at q
    run = f.rollout([q, p], steps=1)
    if abs(run.x[1, 0] - q) > 1e-9:
        pytest.skip("the step took another branch")
    with pytest.raises(StepError, match="singular"):
        local_model(f, quadratic(f, Q=1.0, R=1.0), run, None, 0.0)
