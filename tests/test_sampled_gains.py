"""One gain for many mechanisms: gradients, one sample is the regulator, verdicts, outputs by name."""

import numpy as np
import pytest
from scipy.linalg import solve_discrete_lyapunov
from support.control_maps import cart_pole, double_integrator

import vioc
from vioc.control import dlqr, draw_parameters, robust_dlqr

# inside: Lyapunov's equation for many matrices, by itself
from vioc.control.regulators.sampled import lyapunov
from vioc.errors import ModelError, OptimizationError

POLE = """
(SYSTEM (NAME "cart_pole") (GRAVITY 0 0 -9.81)
  (TX "x" (NAME "cart") (MASS (P "cart" 1))
    (RY "theta" (TZ (P "length" 0.5) (NAME "pole") (MASS (P "bob" 0.3)))))
  (JOINT-FORCE "x" "force"))
"""
SEEN = ("x", "theta", "v.x", "v.theta")
Q, R = {"x": 1.0, "theta": 10.0, "v.x": 0.1, "v.theta": 0.1}, 0.01
SPREAD = {"cart": (0.5, 2.0), "bob": (0.1, 0.9), "length": (0.2, 1.0)}
STARTS = {"x": 0.01, "theta": 0.01}


@pytest.fixture(scope="module")
def pole():
    return vioc.MidpointVI(vioc.read_text(POLE), 0.02)


def test_lyapunov_by_doubling():
    F = np.random.default_rng(0).normal(size=(3, 4, 4))
    F *= 0.99 / np.abs(np.linalg.eigvals(F)).max(axis=1)[:, None, None]
    W = np.broadcast_to(np.diag([1.0, 2, 3, 4]), F.shape)
    for X, a, w in zip(lyapunov(F, W), F, W, strict=True):
        np.testing.assert_allclose(X, solve_discrete_lyapunov(a, w), rtol=1e-9)


def test_of_one_sample_it_is_the_regulator():
    f = cart_pole(0.02)
    plain = dlqr(f, (np.zeros(4), None), 1.0, 0.1)
    found = robust_dlqr(f, (np.zeros(4), None), 1.0, 0.1, [f])
    np.testing.assert_allclose(found.K, plain.K, rtol=1e-12)
    assert found.found.costs[0] == pytest.approx(np.trace(plain.P), rel=1e-9)
    assert found.iterations == 0


def test_it_is_least_and_the_gradient_is_that_of_the_costs(pole):
    samples = draw_parameters(SPREAD, 8, seed=1)
    found = robust_dlqr(
        pole, (pole.initial_state(), None), Q, R, samples, outputs=SEEN, P0=STARTS, tolerance=1e-10
    )
    assert found.found.stable.all()
    assert found.found.costs.mean() < found.nominal.costs.mean()
    mean = found.found.costs.mean()
    for direction in np.eye(4):  # central differences vanish, and the mean rises either way
        step = 1e-3 * np.abs(found.K).max() * direction[None]
        there, back = (found.assess(samples, found.K + s).costs.mean() for s in (step, -step))
        assert there > mean and back > mean
        assert abs(there - back) <= 0.3 * (there + back - 2 * mean)


def test_the_worst_is_better_and_the_mean_worse(pole):
    samples = draw_parameters(SPREAD, 8, seed=1)
    args = (pole, (pole.initial_state(), None), Q, R, samples)
    mean, worst = (robust_dlqr(*args, outputs=SEEN, P0=STARTS, worst=w).found.costs for w in (False, True))
    assert worst.max() < mean.max() and worst.mean() > mean.mean()


def test_fresh_samples_and_the_law_on_another_map(pole):
    found = robust_dlqr(
        pole, (pole.initial_state(), None), Q, R, draw_parameters(SPREAD, 8, seed=1), outputs=SEEN, P0=STARTS
    )
    fresh = draw_parameters(SPREAD, 40, seed=2)
    nominal = dlqr(pole, (pole.initial_state(), None), Q, R)
    seen = found.assess(fresh)
    other = pole.with_parameters(**fresh[0])
    run = found.rollout(other.state(theta=0.05), 400, other)
    assert seen.stable[0] and np.abs(run.x[-1]).max() < 1e-2
    # the same law: u = -K (x, theta, v.x, v.theta)
    y = np.stack([run[name][:-1] for name in SEEN], axis=1)
    np.testing.assert_allclose(run.u[50:, 0], -(y @ found.K.T)[50:, 0], atol=2e-3 * np.abs(run.u).max())
    assert seen.stable.sum() >= found.assess(fresh, _of_outputs(pole, nominal)).stable.sum()


def _of_outputs(f, loop):
    A = f.rollouts([0.001 * e for e in np.eye(4)], steps=1)
    C = np.array([[run[name][0] / 0.001 for run in A] for name in SEEN])
    return loop.K @ np.linalg.inv(C)


def test_discounts_find_a_gain_where_the_nominal_one_fails(pole):
    samples = [{"length": 0.5}, {"length": 0.12}, {"cart": 6.0}]
    found = robust_dlqr(pole, (pole.initial_state(), None), Q, R, samples, outputs=SEEN, P0=STARTS)
    assert not found.nominal.stable.all() and found.found.stable.all()


def test_verdicts():
    f = double_integrator()
    x = np.zeros(2)
    import casadi as ca

    from vioc import CasadiMap

    s, u = ca.SX.sym("x", 2), ca.SX.sym("u")
    names = dict(dt=f.dt, state_names=f.state_names, input_names=f.input_names)
    pushed = CasadiMap(ca.Function("f", [s, u], [ca.vertcat(s[0] + 0.1 * s[1], s[1] - 0.1 * u)]), **names)
    with pytest.raises(OptimizationError, match="each has a gain of its own. The search is local"):
        robust_dlqr(f, (x, None), 1.0, 1.0, [f, pushed])  # one pulls where the other pushes
    loose = CasadiMap(ca.Function("f", [s, u], [ca.vertcat(1.1 * s[0], 0.5 * s[1] + u)]), **names)
    with pytest.raises(OptimizationError, match="sample 1 .* has no stabilizing gain of its own"):
        robust_dlqr(f, (x, None), 1.0, 1.0, [f, loose])


def test_what_is_refused(pole):
    at = (pole.initial_state(), None)
    with pytest.raises(ModelError, match="sample 0"):
        robust_dlqr(pole, at, Q, R, [{"mass": 1.0}])
    with pytest.raises(ValueError, match="at least one"):
        robust_dlqr(pole, at, Q, R, [])
    with pytest.raises(ValueError, match="expected the nominal map's states"):
        robust_dlqr(pole, at, Q, R, [double_integrator()])
    with pytest.raises(ValueError, match="sample 0"):
        robust_dlqr(pole, at, Q, R, [pole.with_dt(0.01)])
    with pytest.raises(ValueError, match="lower limit 2 > upper limit 1"):
        draw_parameters({"cart": (2, 1)}, 3)
    with pytest.raises(ValueError, match="its function returned inf"):
        draw_parameters({"cart": lambda rng: np.inf}, 3)
    assert draw_parameters({"cart": (1, 2)}, 2, seed=3) == draw_parameters({"cart": (1, 2)}, 3, seed=3)[:2]
