"""The quadratic program of stages: C and condensed against each other and scipy, infeasible ones, bare C."""

import re
import subprocess

import numpy as np
import pytest
from scipy.optimize import minimize
from support.reaching import START, following

import vioc
from vioc.compile import find_compiler
from vioc.control import Status

# inside: the quadratic program of stages in C, which a law only uses
from vioc.control.receding.stage_qp import (
    NEAR,
    TOLERANCE,
    StageQP,
    StageSizes,
    adjoint,
    remains,
    row_values,
    terms,
)

LAYOUTS = [  # bounds on inputs; soft and general rows; rows at the end, some of them equations
    StageSizes(30, 4, 1, (4,)),
    StageSizes(30, 3, 2, (0, 2, 3, 4), 2, 1, True),
    StageSizes(30, 5, 3, (5, 6, 7), 0, 2),
]
needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="no C compiler")


def program(layout, rng, native=True, unreachable=False):
    """A random program that some motion keeps strictly, or one whose end cannot be reached."""
    qp, N = StageQP(layout, native), int(rng.integers(6, layout.steps + 1))
    d, n, m, q = qp.data, layout.nx, layout.nu, layout.nx + layout.nu
    d.steps, scale = N, 10 ** rng.uniform(-2, 3)
    for k in range(N):
        A = rng.standard_normal((n, n))
        A *= rng.uniform(0.5, 1.1) / np.abs(np.linalg.eigvals(A)).max()
        d.F[k], d.c[k] = np.hstack([A, rng.standard_normal((n, m))]), 0.1 * rng.standard_normal(n)
        G = rng.standard_normal((int(rng.integers(1, q + 1)), q))
        d.H[k], d.g[k] = scale * G.T @ G / q, scale * rng.standard_normal(q)
        d.H[k, n:, n:] += 0.1 * scale * np.eye(m)
    G = rng.standard_normal((n, n))
    d.H_end[...], d.g_end[...] = scale * G.T @ G, scale * rng.standard_normal(n)
    d.J[...], d.J_end[...] = rng.standard_normal(d.J.shape) / np.sqrt(q), rng.standard_normal(d.J_end.shape)
    u, x = 0.5 * rng.standard_normal((N, m)), np.zeros((N + 1, n))
    x[0] = rng.standard_normal(n)
    for k in range(N):
        x[k + 1] = d.F[k] @ np.concatenate([x[k], u[k]]) + d.c[k]
    h = row_values(d, x, u)
    at, end = h[: N * layout.rows].reshape(N, -1), h[N * layout.rows :]
    for side, sign in ((d.lower, -1), (d.upper, 1)):
        far = np.where(rng.uniform(size=at.shape) < 0.3, np.inf, 0.02 + rng.exponential(1.0, at.shape))
        side[:N] = at + sign * (np.inf if unreachable and layout.rows > 3 else 1) * far
    states = [i for i, a in enumerate(layout.at) if a < n]
    d.lower[0, states], d.upper[0, states] = -np.inf, np.inf
    d.lower_end[...], d.upper_end[...] = end, end + (rng.uniform(size=end.shape) < 0.5)
    if layout.soft:
        price = scale * 10 ** rng.uniform(-1, 4, layout.rows)
        d.linear[...], d.square[...] = (
            np.where(rng.uniform(size=layout.rows) < 0.5, -1.0, price),
            price * 10 ** rng.uniform(-1, 2),
        )
    if unreachable:  # inputs are bounded, motions are not long enough for that
        d.lower[:N, [i for i, a in enumerate(layout.at) if a >= n]] = -1.0
        d.upper[:N, [i for i, a in enumerate(layout.at) if a >= n]] = 1.0
        d.lower_end[...] = d.upper_end[...] = 1e3 * (1 + np.abs(end)) * 1.2**N
    return qp, x[0]


def proved(d, a):
    """The duality gap of an answer, from (RH 2) to (RH 4) in plain loops, and the cost's unit (RH 9).

    Asserts what makes a gap a bound of the cost: dynamics, rows and stationarity are kept.
    """
    N, n = d.steps, d.nx
    z, J = [np.concatenate(pair) for pair in zip(a.x[:-1], a.u, strict=True)], d.rows()
    lower, upper, linear, square = d.limits()
    h = np.concatenate([*(J[k] @ z[k] for k in range(N)), d.J_end @ a.x[N]])
    y = np.concatenate([a.y.ravel(), a.y_end])
    e, soft = np.maximum(0, np.maximum(lower - h, h - upper)), linear >= 0
    assert (e[~soft] <= 1e-9 * (1 + np.abs(h[~soft]))).all()
    p = d.H_end @ a.x[N] + d.g_end + d.J_end.T @ a.y_end
    for k in range(N - 1, -1, -1):
        ahead = d.F[k] @ z[k] + d.c[k]
        np.testing.assert_allclose(a.x[k + 1], ahead, atol=1e-11 * (1 + np.abs(ahead).max()))
        parts = [d.H[k] @ z[k], d.g[k], J[k].T @ a.y[k], d.F[k].T @ p]
        p = sum(parts)
        assert (np.abs(p[n:]) <= NEAR * np.max(np.abs(parts), axis=0)[n:].max()).all()
        p = p[:n]
    # max over y of the dual: limits cost y times how far the row is from them, penalties their conjugates
    pulls = np.flatnonzero(y)
    gap = np.zeros_like(y)
    gap[pulls] = y[pulls] * (np.where(y > 0, upper, lower) - h)[pulls]
    price = np.maximum(0, np.abs(y) - linear) ** 2 / (2 * square)
    gap = float((gap + np.where(soft, linear * e + square * e * e / 2 + price, 0.0)).sum())
    return gap, unit(d, a, e * soft)


def unit(d, a, e):
    """(RH 9), the minimum without inequalities by dense matrices."""
    N, n, m = d.steps, d.nx, d.nu
    motion, x = [], np.hstack([np.zeros((n, N * m)), a.x[0][:, None]])
    for k in range(N):
        u = np.zeros((m, N * m + 1))
        u[:, k * m : (k + 1) * m] = np.eye(m)
        motion.append(np.vstack([x, u]))
        x = d.F[k] @ motion[k]
        x[:, -1] += d.c[k]
    motion.append(x)
    H, g = [*d.H[:N], d.H_end], [*d.g[:N], d.g_end]
    total = sum(M.T @ h @ M for M, h in zip(motion, H, strict=True))
    pull = total[:-1, -1] + sum(M[:, :-1].T @ v for M, v in zip(motion, g, strict=True))
    lower, upper, linear, square = d.limits()
    rows = np.vstack([*(J @ M for J, M in zip(d.rows(), motion[:N], strict=True)), d.J_end @ x])
    rows = np.hstack([rows[:, :-1], (rows[:, -1] - lower)[:, None]])[lower == upper]
    KKT = np.block([[total[:-1, :-1], rows[:, :-1].T], [rows[:, :-1], np.zeros((len(rows),) * 2)]])
    free = np.linalg.solve(KKT, -np.concatenate([pull, rows[:, -1]]))[: N * m]
    found = 0.0
    for U in (free, a.u.ravel()):
        for M, h, v in zip(motion, H, g, strict=True):
            z = M[:, :-1] @ U + M[:, -1]
            found += np.abs(z) @ (np.abs(h @ z) / 2 + np.abs(v))
    ranges = np.ones((N, m))
    for i, entry in enumerate(d.layout.at):
        half = (d.upper[:N, i] - d.lower[:N, i]) / 2
        if entry >= n:
            ranges[:, entry - n] = np.where(np.isinf(half), 1.0, half)
    cheapest = min(d.H[k, n + i, n + i] / 2 * ranges[k, i] ** 2 for k in range(N) for i in range(m))
    return float(found + cheapest + (linear * e + square * e * e / 2).sum())


@needs_compiler
@pytest.mark.parametrize(
    "layout, stiff", list(zip(LAYOUTS, (6, 2, 2), strict=True)), ids=["bounds", "soft", "ends"]
)
def test_the_gap_of_what_is_called_converged_is_small_where_the_end_is_stiff(layout, stiff):
    """The weights of an end say nothing of the units of inputs. With rows at the end, whose weights rise with
    its costs, stiffer ones leave the factors no digits: then it is said that there is no answer.
    """
    rng, iterated = np.random.default_rng(6), 0
    for _ in range(40):
        qp, x0 = program(layout, rng)
        qp.data.H_end[...] *= 10 ** rng.uniform(0, stiff)
        found = qp.solve(x0)
        assert found.status is Status.CONVERGED
        gap, size = proved(qp.data, found)
        iterated += found.iterations > 0
        # of a soft row the multiplier is its price to rounding of the largest price, not of the gap
        assert gap <= 2 * TOLERANCE * size
    assert iterated > 30


@needs_compiler
def test_an_arm_s_inputs_are_right_where_its_end_is_stiff():
    """H_end is 1e10 times what a torque costs. By strong convexity r/2 |du|^2 <= gap, r what inputs cost."""
    f = vioc.MidpointVI(vioc.models.seven_joint_arm(), 0.02)
    law = following(f)
    law.prepare(0, law.begin(0, f.initial_state(START))[0])
    qp = law.program.qp
    d, n = qp.data, qp.data.nx
    other = StageQP(qp.layout, native=False)
    other.data.memory[...] = d.memory
    other.prepare()
    whole = d.H[: d.steps]
    r = min(
        np.linalg.eigvalsh(H[n:, n:] - H[n:, :n] @ np.linalg.pinv(H[:n, :n]) @ H[:n, n:])[0] for H in whole
    )
    assert r > 0 and d.H_end.max() > 1e9 * r
    for x0 in (np.zeros(n), 1e-3 * np.random.default_rng(7).standard_normal(n)):
        exact = other.solve(x0)
        assert exact.status is Status.CONVERGED and exact.error < 1e-9
        size = unit(d, exact, np.zeros(1))
        for options, tolerance in [
            ({}, TOLERANCE),
            *(({"max_iterations": i, "tolerance": 0.0}, NEAR) for i in range(2, 12)),
        ]:
            found = qp.solve(x0, **options)
            off = np.linalg.norm(found.u - exact.u)
            if options and found.status is not Status.CONVERGED:
                continue  # of few iterations it is said that they are too few
            assert found.status is Status.CONVERGED
            assert off <= np.sqrt(2 * 2 * tolerance * size / r)


@needs_compiler
def test_at_rest_iterations_of_a_fixed_number_are_enough():
    """Next to an equilibrium the cost has no size; what inputs cost at their limits has."""
    qp, x0 = program(LAYOUTS[0], np.random.default_rng(8))
    d = qp.data
    d.g[...], d.c[...], d.g_end[...] = 0.0, 0.0, 0.0
    d.lower[:, :], d.upper[:, :] = -1.0, 1.0
    for size in (1e-6, 1e-12, 0.0):
        found = qp.solve(size * x0, 10, 0.0)
        assert found.status is Status.CONVERGED and found.iterations == 10
        assert np.abs(found.u - qp.solve(size * x0).u).max() < 1e-9


@needs_compiler
@pytest.mark.parametrize("layout", LAYOUTS, ids=["bounds", "soft", "ends"])
def test_random_programs_against_an_active_set_method(layout):
    rng = np.random.default_rng(1)
    for _ in range(60):
        qp, x0 = program(layout, rng)
        found = qp.solve(x0)
        other = StageQP(layout, native=False)
        other.data.memory[...] = qp.data.memory
        other.prepare()
        exact = other.solve(x0)
        assert found.status is exact.status is Status.CONVERGED
        assert exact.error < 1e-9 and found.error < 1e-6
        # where a limit is just met, complementarity mu leaves a distance of its root
        assert np.abs(found.u - exact.u).max() < 2e-5 * (1 + np.abs(exact.u).max())
        p, left = adjoint(qp.data, found.x, found.u, found.y, found.y_end)
        np.testing.assert_allclose(found.p, p, atol=1e-9 * (1 + np.abs(p).max()))
        assert np.abs(left).max() < 1e-6 * (1 + np.abs(p).max())


@pytest.mark.parametrize("native", [pytest.param(True, marks=needs_compiler), False])
def test_one_that_cannot_be_kept_is_proved_to_be_so(native):
    rng = np.random.default_rng(2)
    for _ in range(10):
        qp, x0 = program(LAYOUTS[2], rng, native, unreachable=True)
        qp.prepare()
        assert qp.solve(x0).status is Status.INFEASIBLE


@pytest.mark.parametrize("native", [pytest.param(True, marks=needs_compiler), False])
def test_penalties_against_scipy(native):
    """Soft limits cost linear e + 1/2 square e^2, by which the multiplier is the price of e."""
    layout = StageSizes(30, 3, 2, (0, 2, 3, 4), 2, 1, True)
    qp = StageQP(layout, native)
    d, N = qp.data, 6
    d.steps = N
    rng = np.random.default_rng(3)
    d.F[:N] = 0.5 * rng.standard_normal(d.F[:N].shape)
    d.H[:N] = np.diag([1.0, 2.0, 0.5, 1.0, 0.3])
    d.J[:N] = rng.standard_normal(d.J[:N].shape)
    d.upper[1:N, 4] = -0.4
    d.lower[:N, 2:4], d.upper[:N, 2:4] = -0.6, 0.6
    d.linear[4], d.square[4] = 0.1, 0.3
    x0 = np.array([1.0, -0.5, 0.3])

    def cost(w):
        x, total = x0, 0.0
        for k in range(N):
            z = np.concatenate([x, w[2 * k : 2 * k + 2]])
            e = max(0.0, d.J[k, 0] @ z + 0.4) if k else 0.0
            total += 0.5 * z @ d.H[k] @ z + 0.1 * e + 0.15 * e * e
            x = d.F[k] @ z
        return total

    qp.prepare()
    found = qp.solve(x0)
    best = minimize(cost, found.u.ravel() + 0.01, bounds=[(-0.6, 0.6)] * 2 * N, method="Powell",
                    options={"xtol": 1e-10, "ftol": 1e-14, "maxfev": 40000})  # fmt: skip
    assert found.status is Status.CONVERGED and found.error < 1e-6
    assert cost(found.u.ravel()) <= best.fun + 1e-7 * abs(best.fun)
    beyond = row_values(d, found.x, found.u)[: N * 6].reshape(N, 6)[1:, 4] + 0.4
    assert (beyond > 1e-3).any() and (found.y[1:, 4] >= 0).all()
    price = np.where(beyond > 1e-6, 0.1 + 0.3 * beyond, found.y[1:, 4])
    np.testing.assert_allclose(found.y[1:, 4], price, atol=1e-5)


def test_what_is_left_is_seen():
    """An answer that is moved by 1e-3 anywhere is no answer."""
    rng = np.random.default_rng(4)
    qp, x0 = program(LAYOUTS[0], rng, native=False)
    qp.prepare()
    good = qp.solve(x0)
    size = terms(qp.data, good.x, good.u)
    assert remains(qp.data, good, size) < 1e-10
    for change in ({"x": good.x + 1e-3}, {"u": good.u + 1e-3}, {"y": good.y + 0.1 * np.abs(good.p).max()}):
        assert remains(qp.data, good._replace(**change), size) > 1e-5


@needs_compiler
@pytest.mark.parametrize("options", [dict(single=False), dict(single=True)], ids=["double", "single"])
def test_bare_c_is_clean(options, tmp_path):
    """Strict C99 without a warning, nothing allocated; fixed iterations end at the answer."""
    layout = LAYOUTS[1]
    text = layout.source("mine", **options)
    assert not re.search(r"\b(malloc|calloc|realloc|alloca|free)\b", text)
    path = tmp_path / "mine.c"
    path.write_text(text)
    strict = ["-std=c99", "-Wall", "-Wextra", "-Werror", "-pedantic", "-O1", "-c", "-o"]
    done = subprocess.run(
        [find_compiler().command[0], *strict, str(tmp_path / "mine.o"), str(path)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    if not options["single"]:
        qp, x0 = program(layout, np.random.default_rng(5))
        again = [qp.solve(x0, 20, 0.0) for _ in range(2)]
        np.testing.assert_array_equal(*(a.u for a in again))  # no memory of the one before
        assert again[0].iterations == 20 and again[0].error < 1e-6
