"""SE(3): identities on random elements, the series and branches where they change over."""

import casadi as ca
import numpy as np
import pytest
from scipy.special import bernoulli
from support.numpy_se3 import Ad, ad, dexp, exp
from support.numpy_tree import hat, vee

# inside: formulas of SE(3) on tuples of numbers and symbols, which no public function returns
from vioc.dynamics.algebra import se3

# Some 250 roundings: expm squares products of four terms three times, of numbers to four
ROUNDING = 256 * np.finfo(float).eps
TURNS = [0.0, 1e-12, 1e-6, 1e-3, 0.1, 0.7, 1.5, 2.9, 3.0, 3.1, np.pi - 1e-6, np.pi - 1e-10]


def twist(random, turn):
    w = random.normal(size=3)
    return np.concatenate([random.normal(size=3), turn * w / np.linalg.norm(w)])


def tuples(T):
    return tuple(map(tuple, T[:3, :3].tolist())), tuple(T[:3, 3].tolist())


def dlog(V, sign=1.0):
    """(6, 6) of sign V, by its blocks."""
    A, Q = (np.array(m, float) for m in se3.dlog_blocks(twist_of(V), sign))
    return np.block([[A, Q], [np.zeros((3, 3)), A]])


def twist_of(V):
    return tuple(V[:3].tolist()), tuple(V[3:].tolist())


@pytest.mark.parametrize("turn", [t for t in TURNS if t <= 3.1])
def test_logarithm_of_graphs(turn):
    random = np.random.default_rng(3)
    for _ in range(10):
        V = twist(random, turn)
        v, w = se3.logarithm(*tuples(exp(V)))
        assert np.abs(np.concatenate([v, w]) - V).max() < ROUNDING * (1 + 1 / (np.pi - turn) ** 2)


def test_logarithm_is_smooth_at_the_identity():
    """AD through the graph: first and third derivatives of log(exp(t V)) are those of t V."""
    t, V = ca.SX.sym("t"), [0.3, -0.5, 0.2, 0.4, 0.1, -0.7]
    w = np.array(V[3:])
    size = np.linalg.norm(w)
    K = ca.DM(hat(np.concatenate([np.zeros(3), w / size]))[:3, :3])
    R = ca.SX.eye(3) + ca.sin(size * t) * K + (1 - ca.cos(size * t)) * (K @ K)
    v, W = se3.logarithm(tuple(tuple(R[i, j] for j in range(3)) for i in range(3)), (t, 2 * t, -t))
    x = ca.vertcat(*v, *W)
    first = ca.jacobian(x, t)
    third = ca.jacobian(ca.jacobian(first, t), t)
    f = ca.Function("f", [t], [first, third])
    for at in (0.0, 1e-9, 1e-5, 1e-3):
        d1, d3 = (np.array(o)[:, 0] for o in f(at))
        assert np.abs(d1[3:] - w).max() < ROUNDING
        assert np.abs(d3[3:]).max() < 1e-8
        assert np.isfinite(d3).all()


@pytest.mark.parametrize("turn", [t for t in TURNS if t <= 3.1])
def test_inverse_of_the_tangent(turn):
    """dlog is the inverse of dexp; right-trivialized: Ad_exp(V) = dexp_V dlog_-V."""
    V = twist(np.random.default_rng(4), turn)
    tolerance = 1e-13 * (1 + turn**4)
    assert np.abs(dlog(V) @ dexp(V) - np.eye(6)).max() < tolerance
    assert np.abs(dexp(V) @ dlog(V, -1.0) - Ad(exp(V))).max() < 10 * tolerance


def test_dlog_is_the_bernoulli_series():
    V = twist(np.random.default_rng(5), 0.8)
    total, power = np.zeros((6, 6)), np.eye(6)
    for j, b in enumerate(bernoulli(40)):
        total += b * power
        power = power @ ad(V) / (j + 1)
    assert np.abs(dlog(V) - total).max() < ROUNDING


def test_tangent_by_finite_differences():
    random = np.random.default_rng(6)
    V, W, e = twist(random, 1.1), twist(random, 0.9), 1e-6
    rate = (exp(V + e * W) - exp(V - e * W)) / (2 * e) @ np.linalg.inv(exp(V))
    assert np.abs(dlog(V) @ vee(rate) - W).max() < 1e-8


@pytest.mark.parametrize("turn", [0.0, 1e-8, 1e-3, 0.4, 2.0, 3.1])
def test_transposes_move_wrenches(turn):
    random = np.random.default_rng(7)
    V, P = twist(random, turn), random.normal(size=6)
    for sign in (1.0, -1.0):
        got = np.concatenate(se3.dlog_transposed(twist_of(V), twist_of(P), sign))
        assert np.abs(got - dlog(V, sign).T @ P).max() < ROUNDING
    moved = Ad(exp(V)).T @ dlog(V).T @ P
    assert np.abs(got - moved).max() < ROUNDING


@pytest.mark.parametrize("turn", [0.0, 1e-8, 1e-3, 0.4, 2.0, 3.1])
def test_slope_of_the_momentum(turn):
    """Against CasADi's AD of `dlog_transposed`."""
    random = np.random.default_rng(8)
    V, P = twist(random, turn), random.normal(size=6)
    x = ca.SX.sym("x", 6)
    s = ca.vertsplit(x)
    force, moment = se3.dlog_transposed((tuple(s[:3]), tuple(s[3:])), (tuple(P[:3]), tuple(P[3:])))
    expected = np.array(ca.Function("f", [x], [ca.jacobian(ca.vertcat(*force, *moment), x)])(V))
    k, K = (np.array(m, float) for m in se3.momentum_slope((tuple(V[:3]), tuple(V[3:])), (P[:3], P[3:])))
    assert np.abs(np.block([[np.zeros((3, 3)), k], [k, K]]) - expected).max() < 1e-13
