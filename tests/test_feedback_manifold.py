"""Bases of the constraint manifold: exact invariance, symplecticity, and the numerical range of A."""

from dataclasses import replace

import casadi as ca
import numpy as np
import pytest
from control_maps import cart_pole
from mechanisms import everything, hold, state_near

from vioc import models
from vioc.control.feedback import regulator, restrict, tangent_bases, tangent_basis
from vioc.control.lqr import dlqr
from vioc.control.riccati import riccati
from vioc.dynamics.consistency import consistent_configuration, project_velocity
from vioc.dynamics.integrators.casadi_map import CasadiMap
from vioc.dynamics.integrators.midpoint import MidpointVI
from vioc.dynamics.integrators.runge_kutta import RungeKutta
from vioc.dynamics.terms.forces import JointForce


def moving(f, steps=12):
    """A run of the closed chain away from its equilibrium."""
    q = consistent_configuration(f.system, {n: 0.3 for n in f.system.variables}).q
    v = project_velocity(f.system, q, np.ones(f.nq))
    return f.rollout(f.initial_state(q, v), steps=steps)


@pytest.fixture(scope="module")
def chain():
    f = MidpointVI(models.load("closed_chain"), 0.01)
    return f, moving(f)


@pytest.fixture(scope="module")
def driven():
    """The closed chain with a motor."""
    system = models.load("closed_chain").with_components(JointForce("J", "motor"))
    f = MidpointVI(system, 0.01)
    return f, moving(f, 60)


def test_bases_span_what_the_map_can_do(chain):
    f, run = chain
    T = tangent_bases(f, run)
    A, _ = f.linearize_trajectory(run)
    r = 2 * (f.nd - f.nm)
    assert T.shape == (len(run) + 1, f.nx, r)
    np.testing.assert_allclose(np.swapaxes(T, 1, 2) @ T, np.tile(np.eye(r), (len(T), 1, 1)), atol=1e-14)
    for k in range(len(run)):
        # range of A: consistent configurations; kernel of A: what the basis leaves out of them
        Dh = f.lagrangian.constraint_jacobian(run.x[k + 1, : f.nq])
        assert np.abs(Dh @ A[k][: f.nq]).max() < 1e-12
        impulse = np.concatenate(
            [np.zeros((f.nq, f.nm)), f.lagrangian.constraint_jacobian(run.x[k, : f.nq]).T]
        )
        assert np.abs(A[k] @ impulse).max() < 1e-10
        assert np.abs(T[k].T @ impulse).max() < 1e-13
    # two steps and more have the rank of the basis, by singular values alone
    size = np.linalg.svd(A[5] @ A[4] @ A[3] @ A[2], compute_uv=False)
    assert size[r - 1] > 1e-2 and size[r] < 1e-10


def test_restriction_is_exact_and_symplectic(chain):
    f, run = chain
    T = tangent_bases(f, run)
    A, B = f.linearize_trajectory(run)
    Ar, Br = restrict(A, B, T)
    whole, part = np.linalg.multi_dot(A[5:1:-1]), np.linalg.multi_dot(Ar[5:1:-1])
    np.testing.assert_allclose(T[6].T @ whole @ T[2], part, atol=1e-12)
    J = np.kron([[0, 1], [-1, 0]], np.eye(f.nd))
    for k in range(len(run)):
        before, after = (t.T @ J @ t for t in (T[k], T[k + 1]))
        assert np.abs(Ar[k].T @ after @ Ar[k] - before).max() < 1e-12
    assert Br.shape == (len(run), T.shape[2], 0)


def test_nonlinear_motions_stay_in_the_space(chain):
    f, run = chain
    T = tangent_bases(f, run)
    z = np.random.default_rng(0).standard_normal(T.shape[2])
    A, B = f.linearize_trajectory(run)
    Ar, _ = restrict(A, B, T)
    expected = z
    for matrix in Ar:
        expected = matrix @ expected
    e = 1e-4

    def ends(x):
        return f.rollout(x, steps=len(run)).x[-1]

    x0 = run.x[0]
    difference = (ends(x0 + e * T[0] @ z) - ends(x0 - e * T[0] @ z)) / (2 * e)
    np.testing.assert_allclose(T[-1].T @ difference, expected, rtol=1e-5, atol=1e-5)


def test_kinematic_rates_are_idle():
    f = MidpointVI(everything(), 0.01)
    x = state_near(f, 3)
    T = tangent_basis(f, x)
    assert T.shape == (f.nx, 2 * (f.nd - f.nm) + f.nk)
    rates = [i for i, n in enumerate(f.state_names) if n in ("v.trolley", "v.string")]
    assert not T[rates].any()
    # unconstrained blocks stay themselves, and configurations do not mix with momenta
    assert not (T[: f.nq].any(axis=0) & T[f.nq :].any(axis=0)).any()
    A, _ = f.linearize(x, hold(f, x))
    assert not A[:, rates].any()


def test_velocity_maps_keep_the_rate_of_the_constraint():
    f = RungeKutta(models.load("closed_chain"), 0.001)
    q = consistent_configuration(f.system, {n: 0.3 for n in f.system.variables}).q
    x = np.concatenate([q, project_velocity(f.system, q, np.ones(f.nq))])
    T = tangent_basis(f, x)
    assert T.shape == (14, 6)

    def rate(x):
        return f.lagrangian.constraint_jacobian(x[:7]) @ x[7:]

    for t in T.T:
        assert np.abs(rate(x + 1e-5 * t) - rate(x - 1e-5 * t)).max() / 2e-5 < 1e-8


def test_without_constraints_the_basis_is_the_identity():
    np.testing.assert_array_equal(tangent_basis(cart_pole(), np.zeros(4)), np.eye(4))
    run = cart_pole().rollout(np.zeros(4), steps=3)
    assert tangent_bases(cart_pole(), run).shape == (4, 4, 4)


def test_reduced_regulator_is_the_full_one_with_the_weights_of_the_next_sample(driven):
    """Second route: the full gain ends in A, so on the manifold it solves a problem with other weights."""
    f, run = driven
    T = tangent_bases(f, run)
    A, B = f.linearize_trajectory(run)
    Q, R = np.diag(np.linspace(1, 5, f.nx)), 0.1 * np.eye(1)
    full = dlqr(f, run, Q, R, Q)
    Ar, Br = restrict(A, B, T)
    # sample k pays for the state after it: Q[k+1] falls on (z, v), and nothing is left at the end
    AT = A @ T[:-1]
    Qr, S = np.swapaxes(AT, 1, 2) @ Q @ AT, np.swapaxes(AT, 1, 2) @ Q @ B
    Rr = R + np.swapaxes(B, 1, 2) @ Q @ B
    K, P = riccati(Ar, Br, Qr, Rr, np.zeros((T.shape[2],) * 2), S)
    np.testing.assert_allclose(full.K @ T[:-1], K, rtol=1e-7, atol=1e-9 * np.abs(K).max())
    np.testing.assert_allclose(full.K, K @ np.swapaxes(T[:-1], 1, 2) + _off(full.K, T), atol=1e-12)
    z = T[0].T @ full.P[0] @ T[0] - T[0].T @ Q @ T[0]
    np.testing.assert_allclose(P[0], z, rtol=1e-7, atol=1e-9 * np.abs(z).max())


def _off(K, T):
    """What of a gain acts on errors off the manifold."""
    return K - K @ T[:-1] @ np.swapaxes(T[:-1], 1, 2)


def test_reduced_regulator_stabilizes_and_ignores_the_constraint_impulse(driven):
    f, run = driven
    loop = regulator(f, run, 10.0, 0.01, on_manifold=True)
    impulse = np.concatenate([np.zeros((f.nq, f.nm)), f.lagrangian.constraint_jacobian(run.x[7, : f.nq]).T])
    assert np.abs(loop.K[7] @ impulse).max() < 1e-10 * np.abs(loop.K[7]).max()
    T = tangent_basis(f, run.x[0])
    start = run.x[0] + T @ (1e-3 * np.ones(T.shape[1]))
    u, errors = loop.rollout(start).u, []
    for U in (u, run.u):
        errors.append(np.linalg.norm(tangent_basis(f, run.x[-1]).T @ (f.rollout(start, U).x[-1] - run.x[-1])))
    assert errors[0] < errors[1]
    assert loop.K.shape == (60, 1, 14) and np.isfinite(loop.K).all()


def test_errors_say_what_is_wrong(chain):
    f, run = chain
    with pytest.raises(ValueError, match=r"expected shape \(14,\)"):
        tangent_basis(f, np.zeros(3))
    A, B = f.linearize_trajectory(run)
    with pytest.raises(ValueError, match=r"bases \(N\+1, n, r\), got"):
        restrict(A, B, np.zeros((3, 14, 6)))
    broken = run.x.copy()
    broken[4, : f.nq] = 0.0  # a singular configuration
    with pytest.raises(ValueError, match="sample 4: .* constraints become dependent"):
        tangent_bases(f, replace(run, x=broken))


def test_a_multiplier_without_a_constraint_is_no_condition():
    x, u = ca.SX.sym("x", 2), ca.SX.sym("u")
    f = CasadiMap(ca.Function("f", [x, u], [x + u]), dt=0.1)
    f.multiplier_names = ("tension",)
    np.testing.assert_array_equal(tangent_basis(f, np.zeros(2)), np.eye(2))
