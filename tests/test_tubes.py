"""Interval arithmetic encloses, tubes hold every sample, and what cannot be proven is not claimed."""

import casadi as ca
import numpy as np
import pytest
from support.control_maps import cart_pole, double_integrator

import vioc

# inside: interval arithmetic on expressions, by itself
from vioc.compile.evaluate import Evaluator
from vioc.control import dlqr, verified_level, verified_tube
from vioc.control.analysis.intervals import Interval, enclose
from vioc.errors import OptimizationError


def expressions():
    x = ca.SX.sym("x", 3)
    rows = [
        x[0] * x[1] - x[2] / (3 + x[1] ** 2),
        ca.sin(3 * x[0]) * ca.cos(x[1] - x[2]),
        ca.sqrt(2 + x[0]) + ca.fabs(x[1]) - 1 / (4 + x[2]),
        ca.cos(7 * x[2]) ** 2 + 2 * x[0],
    ]
    return ca.Function("f", [x], [ca.vertcat(*rows), ca.jacobian(ca.vertcat(*rows[:2]), x)])


def test_values_lie_within_and_the_enclosure_tightens():
    f, rng = expressions(), np.random.default_rng(0)
    middle, half = rng.uniform(-1, 1, (40, 3)), rng.uniform(0, 0.5, (40, 1))
    f = ca.Function("f", f.sx_in(), [ca.densify(o) for o in f(*f.sx_in())])
    found = enclose(f, Interval(middle - half, middle + half))
    for _ in range(200):
        values = Evaluator(f)(middle + half * rng.uniform(-1, 1, middle.shape))
        for box, value in zip(found, values, strict=True):
            assert (box.low <= value).all() and (value <= box.high).all()
    points = enclose(f, Interval(middle, middle))
    for box, value in zip(points, Evaluator(f)(middle), strict=True):
        assert (box.low <= value).all() and (value <= box.high).all()
        assert (box.high - box.low <= 1e-13).all()


def test_waves_know_their_peaks():
    x = ca.SX.sym("x")
    f = ca.Function("f", [x], [ca.vertcat(ca.sin(x), ca.cos(x))])
    low, high = np.array([[1.5], [3.0], [-0.1], [0.2]]), np.array([[1.6], [3.2], [0.1], [9.0]])
    (box,) = enclose(f, Interval(low, high))
    assert box.high[0, 0] == 1 and box.low[1, 1] == -1 and box.high[2, 1] == 1
    assert box.low[3].tolist() == [[-1], [-1]] and box.high[3].tolist() == [[1], [1]]
    assert box.low[2, 0] == pytest.approx(np.sin(-0.1), abs=1e-14)


def test_a_division_through_zero_has_no_enclosure():
    x = ca.SX.sym("x")
    (box,) = enclose(ca.Function("f", [x], [1 / x]), Interval(np.array([[-1.0]]), np.array([[1.0]])))
    assert box.low[0, 0, 0] == -np.inf and box.high[0, 0, 0] == np.inf
    with pytest.raises(NotImplementedError, match="OP_EXP"):
        enclose(ca.Function("f", [x], [ca.exp(x)]), Interval(np.zeros((1, 1)), np.ones((1, 1))))


def steps_of(f):
    x, u = f.symbols.x, f.symbols.u
    step = ca.Function("step", [x, u], [f.explicit(x, u, 0, f.dt, f.theta)[0]])
    return lambda X, U: Evaluator(step)(X, U)[0][..., 0]


def test_no_sample_leaves_the_tube():
    f, rng = cart_pole(0.02), np.random.default_rng(1)
    run = f.rollout([0.0, 0.4, 0.0, 0.0], 0.5 * np.sin(0.3 * np.arange(30.0))[:, None])
    regulator = dlqr(f, run, [1.0, 10.0, 0.1, 1.0], 1.0)
    shaken = np.array([0.0, 0.0, 1e-4, 1e-4])
    tube = verified_tube(regulator, 0.01, disturbance=shaken)
    X, step = tube.draw(20_000, rng), steps_of(f)
    outermost = [tube.value(0, X).max()]
    for k in range(len(run)):
        X = step(X, run.u[k] - f.difference(run.x[k], X) @ regulator.K[k].T)
        X += shaken * rng.choice([-1.0, 1.0], X.shape)
        outermost.append(tube.value(k + 1, X).max())
    assert max(outermost) <= 1 + 1e-12
    # the first ellipsoid is full, and the proof is not vacuous
    assert outermost[0] > 1 - 1e-9 and outermost[-1] > 0.05
    # without the second derivatives it would be too small: the linear part alone is left by samples
    assert tube.level[-1] > verified_tube(regulator, 1e-10).level[-1] / 1e-10 * 0.01


def test_a_level_is_kept_and_attracts():
    f, rng = cart_pole(0.02), np.random.default_rng(2)
    loop = dlqr(f, (np.zeros(4), None), [1.0, 10.0, 0.1, 1.0], 1.0)
    tube, step = verified_level(loop), steps_of(f)
    assert tube.reach("theta")[0] > 0.01
    X = tube.draw(20_000, rng)
    before = tube.value(0, X)
    for _ in range(20):
        X = step(X, loop.u - f.difference(loop.x, X) @ loop.K.T)
        after = tube.value(0, X)
        assert (after < before).all()
        before = after
    # a linear map is contracted everywhere
    linear = double_integrator()
    everywhere = verified_level(dlqr(linear, (np.zeros(2), None), 1.0, 1.0))
    assert everywhere.level[0] > 1e10
    with pytest.raises(OptimizationError, match="no level is proven"):
        verified_level(loop, disturbance=1.0)


def test_what_is_not_proven_is_refused():
    f = cart_pole(0.02)
    run = f.rollout([0.0, 0.4, 0.0, 0.0], [0.0], steps=30)
    regulator = dlqr(f, run, 1.0, 1.0)
    with pytest.raises(OptimizationError, match=r"no tube from level 1e\+06.*k = \d+"):
        verified_tube(regulator, 1e6)
    with pytest.raises(ValueError, match="level: expected a number > 0"):
        verified_tube(regulator, 0.0)
    with pytest.raises(ValueError, match="cells"):
        verified_tube(regulator, 0.01, cells=0)
    with pytest.raises(ValueError, match="disturbance"):
        verified_tube(regulator, 0.01, disturbance=-1.0)
    implicit = vioc.MidpointVI(vioc.models.load("cart_pole"), 0.02)
    still = implicit.rollout(implicit.initial_state(), [0.0], steps=5)
    with pytest.raises(ValueError, match="expected an explicit map"):
        verified_tube(dlqr(implicit, still, 1.0, 1.0), 0.01)
