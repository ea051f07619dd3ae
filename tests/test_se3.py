"""SE(3): identities on random elements, the series and branches where they change over."""

import casadi as ca
import numpy as np
import pytest
from scipy.linalg import expm
from scipy.special import bernoulli

from vioc.dynamics.algebra import se3

# Some 250 roundings: expm squares products of four terms three times, of numbers to four
ROUNDING = 256 * np.finfo(float).eps
TURNS = [0.0, 1e-12, 1e-6, 1e-3, 0.1, 0.7, 1.5, 2.9, 3.0, 3.1, np.pi - 1e-6, np.pi - 1e-10]


def twist(random, turn):
    w = random.normal(size=3)
    return np.concatenate([random.normal(size=3), turn * w / np.linalg.norm(w)])


def tuples(T):
    return tuple(map(tuple, T[:3, :3].tolist())), tuple(T[:3, 3].tolist())


@pytest.mark.parametrize("turn", TURNS)
def test_log_inverts_exp(turn):
    random = np.random.default_rng(int(turn * 1e6) % 1000)
    for _ in range(20):
        V = twist(random, turn)
        T = se3.exp(V)
        assert np.abs(T - expm(se3.hat(V))).max() < ROUNDING
        assert np.abs(se3.log(T) - V).max() < ROUNDING * (1 + 1 / (np.pi - turn))
        assert np.abs(se3.exp(se3.log(T)) - T).max() < ROUNDING


@pytest.mark.parametrize("axis", [*np.eye(3), *-np.eye(3), [0.6, -0.8, 0], [0.48, 0.6, 0.64]])
def test_log_at_a_turn_of_pi(axis):
    """Where vee(R - R') vanishes the axis comes from the symmetric part; its sign is free."""
    V = np.concatenate([[0.3, -0.2, 0.5], np.pi * np.array(axis)])
    T = se3.exp(V)
    L = se3.log(T)
    assert abs(np.linalg.norm(L[3:]) - np.pi) < ROUNDING
    assert np.abs(expm(se3.hat(L)) - T).max() < ROUNDING


@pytest.mark.parametrize("turn", [t for t in TURNS if t <= 3.1])
def test_logarithm_of_graphs(turn):
    random = np.random.default_rng(3)
    for _ in range(10):
        V = twist(random, turn)
        v, w = se3.logarithm(*tuples(expm(se3.hat(V))))
        assert np.abs(np.concatenate([v, w]) - V).max() < ROUNDING * (1 + 1 / (np.pi - turn) ** 2)


def test_logarithm_is_smooth_at_the_identity():
    """AD through the graph: first and third derivatives of log(exp(t V)) are those of t V."""
    t, V = ca.SX.sym("t"), [0.3, -0.5, 0.2, 0.4, 0.1, -0.7]
    w = np.array(V[3:])
    size = np.linalg.norm(w)
    K = ca.DM(se3.hat(w / size))
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


def test_adjoints():
    random = np.random.default_rng(0)
    for _ in range(20):
        T, S = (se3.exp(twist(random, random.uniform(0, 3))) for _ in range(2))
        V, W = twist(random, 1.3), twist(random, 2.0)
        assert np.abs(se3.hat(se3.Ad(T) @ V) - T @ se3.hat(V) @ se3.inverse(T)).max() < 1e-13
        assert np.abs(se3.Ad(T @ S) - se3.Ad(T) @ se3.Ad(S)).max() < 1e-13
        bracket = se3.hat(V) @ se3.hat(W) - se3.hat(W) @ se3.hat(V)
        assert np.abs(se3.hat(se3.ad(V) @ W) - bracket).max() < ROUNDING
        assert np.abs(se3.Ad(se3.exp(V)) - expm(se3.ad(V))).max() < 1e-13
        assert np.abs(se3.exp(se3.Ad(T) @ V) - T @ se3.exp(V) @ se3.inverse(T)).max() < 1e-13


@pytest.mark.parametrize("turn", [*TURNS, 3.7, 5.5])
def test_tangent_and_its_inverse(turn):
    """dexp = sum ad^j/(j+1)!, dlog its inverse; right-trivialized: Ad_exp(V) = dexp_V dlog_-V."""
    random = np.random.default_rng(4)
    V = twist(random, turn)
    A = se3.ad(V)
    term = series = np.eye(6)
    for j in range(1, 60):
        term = term @ A / (j + 1)
        series = series + term
    tolerance = 1e-13 * (1 + turn**4)
    assert np.abs(se3.dexp(V) - series).max() < tolerance
    assert np.abs(se3.dlog(V) @ se3.dexp(V) - np.eye(6)).max() < tolerance
    assert np.abs(se3.dexp(V) @ se3.dlog(-V) - se3.Ad(se3.exp(V))).max() < 10 * tolerance


def test_dlog_is_the_bernoulli_series():
    V = twist(np.random.default_rng(5), 0.8)
    total, power = np.zeros((6, 6)), np.eye(6)
    for j, b in enumerate(bernoulli(40)):
        total += b * power
        power = power @ se3.ad(V) / (j + 1)
    assert np.abs(se3.dlog(V) - total).max() < ROUNDING


def test_tangent_by_finite_differences():
    random = np.random.default_rng(6)
    V, W, e = twist(random, 1.1), twist(random, 0.9), 1e-6
    rate = (se3.exp(V + e * W) - se3.exp(V - e * W)) / (2 * e) @ se3.inverse(se3.exp(V))
    assert np.abs(rate - se3.hat(se3.dexp(V) @ W)).max() < 1e-9


@pytest.mark.parametrize("turn", [0.0, 1e-8, 1e-3, 0.4, 2.0, 3.1])
def test_on_scalars_as_on_arrays(turn):
    random = np.random.default_rng(7)
    V, P = twist(random, turn), random.normal(size=6)
    X, F = ((tuple(a[:3].tolist()), tuple(a[3:].tolist())) for a in (V, P))
    for sign in (1.0, -1.0):
        got = np.concatenate(se3.dlog_transposed(X, F, sign))
        assert np.abs(got - se3.dlog(sign * V).T @ P).max() < ROUNDING
        A, Q = map(np.array, se3.dlog_blocks(X, sign))
        assert np.abs(np.block([[A, Q], [np.zeros((3, 3)), A]]) - se3.dlog(sign * V)).max() < ROUNDING
    moved = se3.Ad(se3.exp(V)).T @ se3.dlog(V).T @ P
    assert np.abs(np.concatenate(se3.dlog_transposed(X, F, -1.0)) - moved).max() < ROUNDING


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
