"""The quadratic program of stages: C and condensed against each other and scipy, infeasible ones, bare C."""

import re
import subprocess

import numpy as np
import pytest
from scipy.optimize import minimize

from vioc.compile.compiler import find_compiler
from vioc.control.problem.status import Status
from vioc.control.receding.stage_qp import Layout, StageQP, adjoint, remains, row_values

LAYOUTS = [  # bounds on inputs; soft and general rows; rows at the end, some of them equations
    Layout(30, 4, 1, (4,)),
    Layout(30, 3, 2, (0, 2, 3, 4), 2, 1, True),
    Layout(30, 5, 3, (5, 6, 7), 0, 2),
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
    layout = Layout(30, 3, 2, (0, 2, 3, 4), 2, 1, True)
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
    assert remains(qp.data, good) < 1e-10
    for change in ({"x": good.x + 1e-3}, {"u": good.u + 1e-3}, {"y": good.y + 0.1 * np.abs(good.p).max()}):
        assert remains(qp.data, good._replace(**change)) > 1e-5


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
