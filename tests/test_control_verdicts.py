"""What the optimizers of `vioc.control` say of results: trials that are solved, slopes without shifts."""

import json
import pickle
import warnings
from dataclasses import replace

import casadi as ca
import numpy as np
import pytest
from support.mechanisms import pendulum

import vioc
from vioc import DistanceConstraint, Gravity, K, System, rx, ry, rz, tx, ty, tz
from vioc.control import Cost, Status, optimize, quadratic

# inside: slopes without shifts are those of the local model; only searches mark trials
from vioc.control.descent.local_model import LocalModel
from vioc.errors import trying

TOLERANCE = 1e-6


def slope(cost, best):
    """Dg.zeta of Newton's step, or of Gauss-Newton's where its Hessian has no minimum: nothing shifted."""
    model = LocalModel(best.trajectory.map, cost, best.trajectory, None)
    return (model.direction("newton") or model.direction("gauss-newton")).slope


# -- a trial solves its steps ---------------------------------------------------------------------


def long_steps():
    """A pendulum swings up at ten steps a period, where chord iterations of the step contract slowly."""
    f = vioc.MidpointVI(pendulum(), 0.5)
    cost = quadratic(f, Q=1, R=0.1, Qf=100, goal={"theta": 3.0})
    return f, cost, [0.0, 0.0], np.zeros((20, 1))


def spherical_pendulum(steps=25):
    """A load on a string of prescribed length, and a body that swings from it; the load is to be lifted."""
    below = rx("a")[ry("b")[tz(-0.5, name="tip", mass=0.5)]]
    load = tx("x")[ty("y")[tz("z", name="load", mass=1.0)[below]]]
    string = DistanceConstraint("world", "load", K("L"), name="string")
    f = vioc.MidpointVI(System(Gravity(0, 0, -9.81), load, string), 0.04)
    stay = np.ones((steps, 1))
    weights = dict.fromkeys("xyzab", 10.0)
    cost = quadratic(f, R=1.0, Qf=weights, goal={"z": -0.8}, u_reference=stay)
    return f, cost, f.initial_state({"L": 1.0, "x": 0.3, "z": -np.sqrt(0.91), "b": 0.2}), stay


@pytest.mark.parametrize("make", [long_steps, pytest.param(spherical_pendulum, marks=pytest.mark.slow)])
def test_trials_solve_their_steps(make):
    """Taken for no trajectories, such trials end the search at 12.08 and 0.106, far from any optimum."""
    f, cost, x0, U = make()
    best = optimize(f, cost, U, x0=x0, tolerance=TOLERANCE)
    assert best.cost < (11.7 if make is long_steps else 0.05)
    assert best.history.trials.mean() < 8  # steps that do not exist shorten trials
    assert -slope(cost, best) < TOLERANCE


def half_open():
    """x+ = x + log(1 + 20 u): no next state where u <= -0.05; a cost whose gradient has the wrong sign."""
    x, u = ca.SX.sym("x"), ca.SX.sym("u")
    f = vioc.CasadiMap(ca.Function("half_open", [x, u], [x + ca.log(1 + 20 * u)]), dt=1.0)

    class Wrong(Cost):
        def expand(self, *args, **options):
            e = super().expand(*args, **options)
            return replace(e, first=-e.first, end=-e.end)

    return f, Wrong(f, 0.01 * f.symbols.u**2, (f.symbols.x[0] - 3.0) ** 2)


def test_the_step_that_a_trial_has_not_is_named():
    f, cost = half_open()
    best = optimize(f, cost, x0=[0.0], steps=1, method="projection", raise_on_failure=False)
    assert best.status == "line_search"
    assert "no trajectory: step" in best.message and "not finite" in best.message


def test_what_trials_pass_through_is_not_warned_of():
    """Singular steps are for whoever sees the motion; a search throws most of its trials away."""
    f = vioc.MidpointVI(System(rz("phi")[ry("theta")[tz(1.0, name="bob", mass=1.0)]]), 0.1)
    x0 = f.initial_state({"theta": 0.1}, {"theta": -2.0})  # to -0.1: its midpoint is the pole of the chart
    with pytest.warns(vioc.errors.ChartWarning, match="does not determine phi"):
        after = f.step(x0)
    with trying(), warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (f.step(x0) == after).all()


# -- stationary without a shift -------------------------------------------------------------------


def wavy(push):
    """1/100 of x+ = x + 100 push u + 10 cos(100 u): at u = 0 its curvature is -1000, its slope `push`."""
    x, u = ca.SX.sym("x"), ca.SX.sym("u")
    f = vioc.CasadiMap(ca.Function("wavy", [x, u], [x + 100 * push * u + 10 * ca.cos(100 * u)]), dt=1.0)
    return f, Cost(f, 0.5 * f.symbols.u**2, 0.01 * f.symbols.x[0])


def test_a_shifted_decrement_is_not_believed():
    """A Hessian shifted by over 1000 promises less than the tolerance; Gauss-Newton's is 25 times it."""
    f, cost = wavy(5e-3)
    best = optimize(f, cost, x0=[0.0], steps=1, tolerance=TOLERANCE)
    assert best.cost < -0.09  # not at the crest, where it began
    assert best.slope == pytest.approx(slope(cost, best), rel=1e-6, abs=1e-15)
    assert -slope(cost, best) < TOLERANCE
    assert "minimum" not in best.message


def test_where_nothing_descends_to_first_order_it_is_said_to_be_perhaps_no_minimum():
    f, cost = wavy(0.0)
    best = optimize(f, cost, x0=[0.0], steps=1)
    assert best.converged and best.iterations == 0
    assert "possibly not a minimum" in best.message


@pytest.mark.parametrize("method", ["projection", "auto", "multiple shooting"])
def test_the_optimum_of_a_convex_problem_is_a_minimum(method):
    """Solved in numpy and given as the guess, where slopes are rounding of either sign."""
    for seed in range(20):
        rng = np.random.default_rng(seed)
        n, N = int(rng.integers(2, 5)), int(rng.choice([3, 8, 20]))
        A, B = np.eye(n) + 0.1 * rng.normal(size=(n, n)), 0.1 * rng.normal(size=(n, 1))
        x, u = ca.SX.sym("x", n), ca.SX.sym("u")
        f = vioc.CasadiMap(ca.Function("f", [x, u], [ca.DM(A) @ x + ca.DM(B) @ u]), dt=0.1)
        root = rng.normal(size=(n, n))
        Q, x0 = root @ root.T, rng.normal(size=n)
        G, g = np.zeros((N + 1, n, N)), [x0]
        for k in range(N):
            G[k + 1] = A @ G[k]
            G[k + 1, :, k] += B[:, 0]
            g.append(A @ g[k])
        weighted = np.append(np.full(N, 0.1), 1.0)[:, None, None] * (Q @ G)
        H = np.einsum("kai,kaj->ij", G, weighted) + 0.1 * np.eye(N)
        U = -np.linalg.solve(H, np.einsum("kai,ka->i", weighted, g))
        cost, guess = quadratic(f, Q=Q, R=1.0, Qf=Q), f.rollout(x0, U[:, None])
        if method == "multiple shooting":  # which is how "auto" begins from a curve
            found = optimize(f, cost, (guess.x, guess.u))
            assert found.history.method[0].startswith("ms ")
        else:
            found = optimize(f, cost, guess, method=method)
        assert np.linalg.eigvalsh(H)[0] > 0.09 and found.converged and "minimum" not in found.message, seed
        np.testing.assert_allclose(found.u[:, 0], U, rtol=0, atol=1e-9)


def test_a_status_is_a_string_with_advice():
    assert Status("no_descent") is Status.NO_DESCENT == "no_descent"
    assert f"{Status.NO_DESCENT} {Status.NO_DESCENT!s:>12}" == "no_descent   no_descent"
    assert (
        json.dumps(Status.CONVERGED) == '"converged"'
        and pickle.loads(pickle.dumps(Status.FAILED)) == "failed"
    )
    assert all(s.advice or s in ("converged", "close") for s in Status)
