"""The linear-quadratic kernel of the core: against the whole system of equations, dense, by numpy."""

from __future__ import annotations

from dataclasses import dataclass

import casadi as ca
import numpy as np
import pytest

from vioc.compile import find_compiler

# inside: the linear-quadratic kernel against a dense solve, without a problem
from vioc.control.stages.linear_quadratic import LinearQuadratic, costates
from vioc.control.stages.recursion import SMALL, Recursion
from vioc.control.stages.symbols import riccati_step

EPS = np.finfo(float).eps
KERNELS = [
    False,
    pytest.param(True, marks=pytest.mark.skipif(find_compiler() is None, reason="no C compiler")),
]
SIZES = [(1, 1, 1), (4, 3, 2), (6, 5, 1), (3, 2, 4), (5, 9, 3), (2, 4, 0)]
NONE = np.empty(0, int)


def along(n, free):
    """Directions of entries of x_0."""
    return np.eye(n)[:, free]


@dataclass(frozen=True)
class Data(LinearQuadratic):
    """A problem with its first state."""

    x0: np.ndarray


def symmetric(rng, *shape):
    A = rng.standard_normal(shape)
    return 0.5 * (A + np.swapaxes(A, -1, -2))


def problem(seed, N, n, m, *, convex=True):
    """Random; convex by M = 1 + A'A, else with M of either sign."""
    rng, q = np.random.default_rng(seed), n + m
    A, B = rng.standard_normal((N, q, q)), rng.standard_normal((n, n))
    M = np.eye(q) + np.swapaxes(A, 1, 2) @ A / q if convex else np.eye(q) + 0.7 * symmetric(rng, N, q, q)
    last = B.T @ B if convex else 0.5 * np.eye(n) + 0.7 * symmetric(rng, n, n)
    F = rng.standard_normal((N, n, q)) / np.sqrt(q)
    g, end = rng.standard_normal((N, q)), rng.standard_normal(n)
    return Data(F, M, last, g, end, rng.standard_normal((N, n)), rng.standard_normal(n))


def dense(d, free, soft, rigid=0):
    """Minimum x, u, costates p of the equations in one matrix, and a bound of how far rounding moves them."""
    N, n, q = d.F.shape
    m = q - n
    at_x, at_u = np.arange((N + 1) * n).reshape(N + 1, n), (N + 1) * n + np.arange(N * m).reshape(N, m)
    at_p = (N + 1) * n + N * m + np.arange((N + 1) * n).reshape(N + 1, n)
    size = at_p[-1, -1] + 1
    K, rhs = np.zeros((size, size)), np.zeros(size)
    for k in range(N):
        z = np.concatenate([at_x[k], at_u[k]])
        K[np.ix_(z, z)] += d.H[k]
        K[np.ix_(z, at_p[k + 1])] += d.F[k].T
        K[np.ix_(at_p[k + 1], z)] += d.F[k]
        K[at_p[k + 1], at_x[k + 1]] -= 1
        elastic = at_p[k + 1, : n - rigid]
        K[elastic, elastic] -= soft
        K[at_x[k], at_p[k]] -= 1  # p_0 is what the Lagrangian gains with x_0
        rhs[z] -= d.g[k]
        rhs[at_p[k + 1]] -= d.c[k]
    K[np.ix_(at_x[N], at_x[N])] += d.H_end
    K[at_x[N], at_p[N]] -= 1
    rhs[at_x[N]] -= d.g_end
    for i in range(n):
        row = at_p[0, i]
        K[row, row if i in free else at_x[0, i]] = 1.0
        rhs[row] = 0.0 if i in free else d.x0[i]
    found = np.linalg.solve(K, rhs)
    bound = 10 * EPS * np.linalg.cond(K, np.inf) * np.abs(found).max()
    return found[at_x], found[at_u], found[at_p], bound


def solved(d, free, native, soft, rigid=0):
    N, n, q = d.F.shape
    lq = Recursion(N, n, q - n, along(n, free), native, rigid)
    assert lq.factor(d, soft)
    return lq, lq.solve(d, d.x0)


def reduced(d, free, soft):
    """Hessian by what is free to move: inputs and entries of x_0 where dynamics are stiff, all else."""
    N, n, q = d.F.shape
    m = q - n
    if soft:
        at_x, at_u = np.arange((N + 1) * n).reshape(N + 1, n), (N + 1) * n + np.arange(N * m).reshape(N, m)
        H = np.zeros(((N + 1) * n + N * m,) * 2)
        for k in range(N):
            z = np.concatenate([at_x[k], at_u[k]])
            H[np.ix_(z, z)] += d.H[k]
            zx, E = np.concatenate([z, at_x[k + 1]]), np.hstack([d.F[k], -np.eye(n)])
            H[np.ix_(zx, zx)] += E.T @ E / soft
        H[np.ix_(at_x[N], at_x[N])] += d.H_end
        moving = np.concatenate([free, np.arange(n, len(H))]).astype(int)
        return H[np.ix_(moving, moving)]
    X = np.zeros((n, len(free) + N * m))  # of x_k by what moves
    X[free, np.arange(len(free))] = 1.0
    H = np.zeros((X.shape[1],) * 2)
    for k in range(N):
        U = np.zeros((m, X.shape[1]))
        U[:, len(free) + k * m : len(free) + (k + 1) * m] = np.eye(m)
        Z = np.vstack([X, U])
        H += Z.T @ d.H[k] @ Z
        X = d.F[k] @ Z
    return H + X.T @ d.H_end @ X


@pytest.mark.parametrize("native", KERNELS)
@pytest.mark.parametrize("soft", [0.0, 1e-3, 0.7])
@pytest.mark.parametrize("N, n, m", SIZES)
def test_the_minimum_and_its_costates(N, n, m, soft, native):
    for free in (NONE, np.array([0]), np.arange(n)):
        d = problem(N + n + m, N, n, m)
        _, found = solved(d, free, native, soft)
        *expected, bound = dense(d, free, soft)
        assert bound < 1e-8  # or it says nothing
        for mine, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=0, atol=bound)
        np.testing.assert_array_equal(np.delete(found[0][0], free), np.delete(d.x0, free))


@pytest.mark.parametrize("native", KERNELS)
@pytest.mark.parametrize("rigid", [1, 3])
def test_states_that_are_rigid(rigid, native):
    """Elastic dynamics for the first states only."""
    for N, n, m, free in ((4, 5, 2, NONE), (3, 3, 1, np.array([2])), (6, 4, 3, np.arange(4))):
        d = problem(N + n + m, N, n, m)
        _, found = solved(d, free, native, 0.3, rigid)
        *expected, bound = dense(d, free, 0.3, rigid)
        assert bound < 1e-8
        for mine, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=0, atol=bound)
        z = np.concatenate([found[0][:-1], found[1]], axis=1)
        ends = np.einsum("kij,kj->ki", d.F, z) + d.c
        hard = slice(n - rigid, n)
        np.testing.assert_allclose(found[0][1:, hard], ends[:, hard], rtol=0, atol=50 * EPS * np.abs(z).max())


def test_costates_of_an_unstable_motion_need_the_feedback():
    """They are those of the Riccati recursion. Without feedback, their rounding errors grow by 1.5^200."""
    N, F = 200, np.array([[1.5, 0.3, 0.1], [0.0, 0.7, 1.0]])
    g = np.random.default_rng(0).standard_normal((N, 3))
    H, end = np.tile(np.diag([1.0, 1.0, 0.1]), (N, 1, 1)), np.eye(2)
    d = LinearQuadratic(np.tile(F, (N, 1, 1)), H, end, g, np.zeros(2), np.zeros((N, 2)))
    lq = Recursion(N, 2, 1)
    assert lq.factor(d)
    x, u, p = lq.solve(d, np.array([1.0, 2.0]))
    slope = g + (H @ np.concatenate([x[:-1], u], axis=1)[:, :, None])[..., 0]
    bound = 1e3 * EPS * np.abs(p).max()
    np.testing.assert_allclose(costates(d.F, slope, end @ x[-1], lq.gains)[0], p, rtol=0, atol=bound)
    assert np.abs(costates(d.F, slope, end @ x[-1])[0] - p).max() > 1e6 * np.abs(p).max()


@pytest.mark.parametrize("native", KERNELS)
def test_a_start_along_directions(native):
    """Two entries that move as one: as if they were one state's start."""
    d, (N, n, m) = problem(4, 5, 4, 2), (5, 4, 2)
    E = np.array([[1.0, 0], [1, 0], [0, 2], [0, 0]])
    lq = Recursion(N, n, m, E, native)
    assert lq.factor(d)
    x, _, p = lq.solve(d, d.x0)
    moved = np.linalg.lstsq(E, x[0] - d.x0, rcond=None)[0]
    np.testing.assert_allclose(d.x0 + E @ moved, x[0], rtol=0, atol=100 * EPS * np.abs(x[0]).max())
    assert np.abs(moved).min() > 1e-3
    size = np.abs(E.T).sum(axis=1).max() * np.abs(p[0]).max()
    np.testing.assert_allclose(E.T @ p[0], 0, rtol=0, atol=1e4 * EPS * size)


@pytest.mark.parametrize("native", KERNELS)
def test_states_move_by_the_dynamics_and_inputs_by_the_gains(native):
    soft, d = 0.3, problem(1, 6, 4, 2)
    lq, (x, u, p) = solved(d, NONE, native, soft)
    z = np.concatenate([x[:-1], u], axis=1)
    ends = np.einsum("kij,kj->ki", d.F, z) + d.c - soft * p[1:]
    np.testing.assert_allclose(x[1:], ends, rtol=0, atol=50 * EPS * np.abs(z).max())
    there = lq.solve(d, d.x0 + 1.0)
    change = -np.einsum("kij,kj->ki", lq.gains, there[0][:-1] - x[:-1])
    np.testing.assert_allclose(there[1] - u, change, rtol=0, atol=1e3 * EPS * np.abs(there[1]).max())


@pytest.mark.parametrize("native", KERNELS)
def test_one_factorization_serves_many_right_hand_sides(native):
    d, free = problem(2, 5, 3, 2), np.array([1])
    lq, _ = solved(d, free, native, 1e-2)
    for seed in (3, 4):
        other = problem(seed, 5, 3, 2)
        again = Data(d.F, d.H, d.H_end, other.g, other.g_end, other.c, other.x0)
        *expected, bound = dense(again, free, 1e-2)
        for mine, theirs in zip(lq.solve(again, again.x0), expected, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=0, atol=bound)


def test_soft_dynamics_become_stiff():
    """x of delta differs from that of 0 by a multiple of delta."""
    d = problem(5, 6, 4, 2)
    stiff = solved(d, NONE, False, 0.0)[1][0]
    far = [np.abs(solved(d, NONE, False, soft)[1][0] - stiff).max() for soft in (1e-5, 1e-6, 1e-7)]
    np.testing.assert_allclose(np.divide(far[:-1], far[1:]), 10, rtol=1e-2)


@pytest.mark.parametrize("native", KERNELS)
@pytest.mark.parametrize("soft", [0.0, 0.2])
@pytest.mark.parametrize("free", [NONE, np.array([0, 2])], ids=["given", "free"])
def test_it_finds_that_there_is_no_minimum(free, soft, native):
    verdicts = []
    for seed in range(60):
        d = problem(seed, 4, 3, 2, convex=False)
        least = np.linalg.eigvalsh(reduced(d, free, soft))[0]
        assert abs(least) > 1e-6  # no toss-ups among them
        found = Recursion(4, 3, 2, along(3, free), native).factor(d, soft)
        assert found == (least > 0)
        verdicts.append(found)
    assert 5 < sum(verdicts) < 55


@pytest.mark.parametrize("native", KERNELS)
def test_where_there_is_one_it_is_found_though_stages_are_not_convex(native):
    found = 0
    for seed in range(60):
        d = problem(seed, 4, 3, 2, convex=False)
        lq = Recursion(4, 3, 2, along(3, NONE), native)
        if lq.factor(d) and np.linalg.eigvalsh(d.H).min() < 0:
            found += 1
            *expected, bound = dense(d, NONE, 0.0)
            for mine, theirs in zip(lq.solve(d, d.x0), expected, strict=True):
                np.testing.assert_allclose(mine, theirs, rtol=0, atol=bound)
    assert found > 3


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
@pytest.mark.parametrize("soft", [0.0, 1e-3])
def test_both_kernels_are_one(soft):
    for N, n, m in SIZES:
        d, free = problem(7, N, n, m), np.array([0])
        (one, a), (other, b) = (solved(d, free, native, soft) for native in (False, True))
        bound = dense(d, free, soft)[-1]
        for mine, theirs in zip(a, b, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=0, atol=bound)
        np.testing.assert_allclose(one.gains, other.gains, rtol=0, atol=1e4 * EPS)


@pytest.mark.parametrize("N, n, m", [size for size in SIZES if size[2]])
def test_symbols_are_the_same_recursion(N, n, m):
    d, lq = problem(7, N, n, m), Recursion(N, n, m)
    assert lq.factor(d)
    p, offsets = lq.linear(d)
    after = d.H_end, d.g_end
    for k in range(N - 1, -1, -1):
        P, s = after
        given = (ca.SX(ca.DM(a)) for a in (d.F[k], d.H[k], d.g[k], P, P @ d.c[k] + s))
        found = riccati_step(*given)
        assert float(found.bad) == 0
        after = ca.DM(found.P).full(), ca.DM(found.p).full().ravel()
        size = 1e4 * EPS * (1 + np.abs(p).max())
        for mine, theirs in zip(
            (*after, ca.DM(found.K), ca.DM(found.d).full().ravel()),
            (lq.costs[k], p[k], lq.gains[k], offsets[k]),
            strict=True,
        ):
            np.testing.assert_allclose(mine, theirs, rtol=0, atol=size)
    H = d.H[0].copy()
    H[n:, n:] = -1e3 * np.eye(m)
    assert float(riccati_step(*(ca.SX(ca.DM(a)) for a in (d.F[0], H, d.g[0], *after))).bad) == 1


@pytest.mark.parametrize("native", KERNELS)
def test_singular_problems_have_no_one_minimum(native):
    def factored(change, free=NONE, soft=0.0):
        d = problem(8, 4, 3, 2)
        change(d)
        with np.errstate(invalid="ignore"):
            return Recursion(4, 3, 2, along(3, free), native).factor(d, soft)

    def idle(d):  # an input that does nothing and costs nothing
        d.F[2, :, 4] = 0
        d.H[2, 4], d.H[2, :, 4] = 0, 0

    def lost(d):  # a start that is worth nothing
        d.F[0, :, 1] = 0
        d.H[0, 1], d.H[0, :, 1] = 0, 0

    def not_a_number(d):
        d.H[1, 4, 4] = np.nan

    def infinite(d):
        d.F[3, 0, 0] = np.inf

    assert factored(lambda d: None)
    for change in (idle, not_a_number, infinite):
        assert not factored(change), change.__name__
        assert not factored(change, soft=0.1), change.__name__
    assert factored(lost) and factored(lost, np.array([0, 2])) and not factored(lost, np.array([1]))


@pytest.mark.parametrize("native", KERNELS)
def test_elastic_dynamics_need_no_curvature_of_the_end_but_not_too_negative_a_one(native):
    """I + delta P must be positive definite: the last state is held by 1 / delta."""
    d, soft = problem(9, 3, 2, 1), 0.5
    for lowest, good in ((-0.9 / soft, True), (-1.1 / soft, False)):
        d.H_end[:] = np.diag([lowest, 1.0])
        d.H[:] = 1e3 * np.eye(3)
        d.F[:] *= 1e-3
        assert Recursion(3, 2, 1, along(2, NONE), native).factor(d, soft) == good


def test_large_blocks():
    d = problem(10, 3, SMALL, 4)
    _, found = solved(d, NONE, True, 1e-2)
    *expected, bound = dense(d, NONE, 1e-2)
    for mine, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=bound)
