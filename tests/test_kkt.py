"""The checker of optimality conditions: right answers found by other means pass, broken ones do not."""

from __future__ import annotations

from dataclasses import replace

import casadi as ca
import numpy as np
import pytest
import scipy.linalg
from support.quadratic_programs import active_set

import vioc
from vioc.control import Cost, kkt, quadratic
from vioc.control.dmoc import PathConstraint

DT, N = 0.1, 20
ROUNDING = 1e-12  # a few hundred sums of numbers of order 1


def double_integrator() -> vioc.CasadiMap:
    x, u = ca.SX.sym("x", 2), ca.SX.sym("u")
    after = ca.vertcat(x[0] + DT * x[1] + DT**2 / 2 * u, x[1] + DT * u)
    return vioc.CasadiMap(
        ca.Function("f", [x, u], [after]), DT, state_names=["s", "v"], input_names=["force"]
    )


def unit_responses(f: vioc.CasadiMap, x0: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """x_k = c_k + M_k u: c (N+1, 2), M (N+1, 2, N), by the exponential of the continuous system."""
    A = scipy.linalg.expm(DT * np.array([[0, 1, 0], [0, 0, 1], [0, 0, 0.0]]))
    c, M = np.zeros((N + 1, 2)), np.zeros((N + 1, 2, N))
    c[0] = x0
    for k in range(N):
        c[k + 1] = A[:2, :2] @ c[k]
        M[k + 1] = A[:2, :2] @ M[k]
        M[k + 1, :, k] = A[:2, 2]
    return c, M


@pytest.fixture(scope="module")
def bounded():
    """Least effort from rest to 1 m in 2 s, |force| <= 1.4, v <= 0.68: both limits are met."""
    f, x0, end = double_integrator(), np.zeros(2), np.array([1.0, 0.0])
    cost = Cost(f, 0.5 * f.symbols.u**2, per_time=True)
    c, M = unit_responses(f, x0)
    rows = np.vstack([np.eye(N), M[:, 1], M[N]])
    low = np.concatenate([np.full(N, -1.4), np.full(N + 1, -np.inf), end - c[N]])
    high = np.concatenate([np.full(N, 1.4), np.full(N + 1, 0.68), end - c[N]])
    U, nu = active_set(DT * np.eye(N), np.zeros(N), rows, low, high)
    run = f.rollout(x0, U[:, None])
    multipliers = {
        "u.force": nu[:N],
        "v": nu[N : 2 * N + 1],
        "final s": nu[-2:-1],
        "final v": nu[-1:],
    }
    assert (multipliers["u.force"] != 0).sum() > 2 and (multipliers["v"] > 0).sum() > 2
    problem = dict(bounds={"u.force": 1.4, "v": (None, 0.68)}, final={"s": 1.0, "v": 0.0})
    return f, cost, run, multipliers, problem


def test_lqr_of_scipy():
    f = double_integrator()
    A, B = f.linearize(np.zeros(2))
    Q, R = np.diag([2.0, 0.5]), np.array([[0.1]])
    P = scipy.linalg.solve_discrete_are(A, B, DT * Q, DT * R)
    K = np.linalg.solve(DT * R + B.T @ P @ B, B.T @ P @ A)
    cost = quadratic(f, Q=Q, R=R, Qf=P)
    x = [np.array([1.0, -0.4])]
    for _ in range(N):
        x.append((A - B @ K) @ x[-1])
    run = f.rollout(x[0], -np.array(x[:-1]) @ K.T)
    found = kkt(f, cost, run)
    assert found.residual <= ROUNDING and found.relative <= ROUNDING and found.gradient < 1e-8
    off = f.rollout(x[0], run.u + 1e-6)
    assert 1e-9 < kkt(f, cost, off).stationarity < 1e-5 and kkt(f, cost, off).relative > 1e-7


def test_a_bounded_optimum_of_an_active_set(bounded):
    f, cost, run, multipliers, problem = bounded
    found = kkt(f, cost, run, multipliers, **problem)
    assert found.residual <= ROUNDING and found.relative <= 1e-11
    assert found.complementarity <= ROUNDING and found.sign == 0.0


def test_dmoc_and_the_active_set_have_the_same_multipliers(bounded):
    f, cost, run, multipliers, problem = bounded
    best = vioc.control.dmoc.solve(f, cost, steps=N, initial=np.zeros(2), **problem)
    np.testing.assert_allclose(best.trajectory.u, run.u, atol=1e-6)
    found = kkt(f, cost, best.trajectory, best.multipliers, **problem)
    assert found.residual <= 1e-7  # IPOPT's 1e-8, as it scales it
    np.testing.assert_allclose(best.multipliers["u.force"], multipliers["u.force"], atol=1e-5)


def broken(what, run, multipliers):
    x, u = run.x.copy(), run.u.copy()
    mu = {name: values.copy() for name, values in multipliers.items()}
    if what == "gap":
        x[7, 0] += 1e-6
    elif what == "stationarity":
        mu["final s"] = mu["final s"] * (1 + 1e-4)
    elif what == "feasibility":
        again = run.map.rollout(run.x[0], u * 1.001)
        return again, mu
    elif what == "complementarity":
        free = int(np.argmin(np.abs(run.x[:, 1] - 0.3)))
        mu["v"][free] = 1e-3
    elif what == "sign":
        mu["v"][5] = -1e-3
    elif what == "nan":
        mu["v"][5] = np.nan
    return replace(run, x=x, u=u), mu


@pytest.mark.parametrize("what", ["gap", "stationarity", "feasibility", "complementarity", "sign"])
def test_a_broken_answer_is_rejected(bounded, what):
    f, cost, run, multipliers, problem = bounded
    found = kkt(f, cost, *broken(what, run, multipliers), **problem)
    assert getattr(found, what) > 1e-7 and found.residual >= getattr(found, what)
    assert what in str(found)
    named = {"gap": "s at k = 7", "sign": "v at k = 5"}
    assert named.get(what, found.where[what]) == found.where[what]


def test_what_is_not_a_number_is_not_small(bounded):
    f, cost, run, multipliers, problem = bounded
    found = kkt(f, cost, *broken("nan", run, multipliers), **problem)
    assert not found.residual <= 1e-8


def test_missing_multipliers_are_zero(bounded):
    f, cost, run, multipliers, problem = bounded
    some = {name: mu for name, mu in multipliers.items() if name != "u.force"}
    assert kkt(f, cost, run, some, **problem).stationarity > 1e-3


def test_an_unstable_motion_needs_no_costates_to_16_digits():
    """Their recursion multiplies rounding by 2^60; costates that leave little do exist."""
    x, u = ca.SX.sym("x"), ca.SX.sym("u")
    f = vioc.CasadiMap(ca.Function("f", [x, u], [2 * x + u]), 1.0)
    n = 60
    cost = quadratic(f, Q=1.0, R=1.0)
    # x_n = 1 from x_0 = 0: the band of conditions as one system
    K, r = np.zeros((3 * n + 1, 3 * n + 1)), np.zeros(3 * n + 1)  # u, x_1.., p_1.., nu
    U, X, P, NU = range(n), range(n, 2 * n), range(2 * n, 3 * n), 3 * n
    for k in range(n):
        K[U[k], [U[k], P[k]]] = 1.0, 1.0
        K[X[k], P[k]] = -1.0
        if k + 1 < n:
            K[X[k], [X[k], P[k + 1]]] = 1.0, 2.0
        else:
            K[X[k], NU] = 1.0
        K[P[k], [X[k], U[k]]] = -1.0, 1.0
        if k:
            K[P[k], X[k - 1]] = 2.0
    K[NU, X[n - 1]], r[NU] = 1.0, 1.0
    z = np.linalg.solve(K, r)
    X = np.concatenate([[0.0], z[n : 2 * n]])
    run = vioc.Trajectory(f, np.arange(n + 1.0), X[:, None], z[:n, None], np.empty((n, 0)))
    off = z[-1] * (1 + 1e-9)
    found = kkt(f, cost, run, {"final x0": [off]}, final=[1.0])
    assert found.residual < 1e-8
    assert kkt(f, cost, run, {"final x0": [z[-1] * 1.01]}, final=[1.0]).residual > 1e-4


def test_a_limit_of_an_impulse():
    """At IPOPT's answer, which knows the impulses as unknowns; here they follow state and input."""
    system = vioc.System(
        vioc.tx("x", mass=1.0)[vioc.tz("z", name="bob", mass=0.2)],
        vioc.Gravity(0, 0, -9.81),
        vioc.JointForce("x", "fx"),
        vioc.JointForce("z", "fz"),
        vioc.DistanceConstraint("bob", "world", 1.0, name="rod"),
    )
    f = vioc.MidpointVI(system, 0.02)
    x0 = f.initial_state({"x": 0.0, "z": -1.0})
    cost = quadratic(f, Q={"x": 1.0}, R=0.1, Qf={"x": 10.0}, goal={"x": 0.4})
    limit = PathConstraint("impulse", f.quantity("lambda.rod"), upper=0.0198)
    best = vioc.control.dmoc.solve(f, cost, steps=15, initial=x0, constraints=[limit], form="states")
    found = kkt(f, cost, best.trajectory, best.multipliers, constraints=[limit])
    assert found.residual < 1e-7 and np.abs(best.multipliers["impulse"]).max() > 1e-4
    without = {name: mu for name, mu in best.multipliers.items() if name != "impulse"}
    assert kkt(f, cost, best.trajectory, without, constraints=[limit]).stationarity > 1e-6


def test_states_on_a_manifold():
    """A body with a quaternion in maximal coordinates: slopes are by its 12 errors."""
    body = vioc.spherical("b", "zyx", frame="body", mass=vioc.Mass(1.0, (0.1, 0.2, 0.3), (0, 0, -0.3)))
    torques = [
        vioc.WrenchInput("body", f"m{a}", (0, 0, 0), m) for a, m in (("x", (1, 0, 0)), ("y", (0, 1, 0)))
    ]
    f = vioc.MaximalVI(vioc.System(body, vioc.Gravity(0, 0, -9.81), *torques), 0.02)
    goal = f.initial_state({"b-rz": 0.5})
    cost = quadratic(f, Q=1.0, R=0.01, Qf=10.0, reference=goal)
    best = vioc.control.optimize(f, cost, x0=f.initial_state({"b-rx": 0.3}), steps=10, tolerance=1e-10)
    found = kkt(f, cost, best.trajectory)
    assert found.residual < 1e-9 and found.gradient < 1e-8
    off = f.rollout(best.trajectory.x[0], best.trajectory.u + 1e-5)
    assert kkt(f, cost, off).stationarity > 1e-6
