"""Ranks, Gramians and energies: against scipy, closed forms, and pairs whose structure is known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.linalg import solve_discrete_lyapunov, subspace_angles

from vioc.control import (
    controllability_gramian,
    controllability_matrix,
    controllability_rank,
    observability_gramian,
    observability_matrix,
    observability_rank,
    steer,
    unstabilizable_modes,
)
from vioc.control.analysis import gramian_factor, hautus_margins, staircase, undetectable_modes

# inside: what is reached along given matrices; the public functions take a map's trajectory
from vioc.control.linear.rank import reached
from vioc.errors import OptimizationError


def known_pair(seed, n, r, m, rho=0.9):
    """A, B whose reachable subspace is the first r columns of the orthogonal matrix returned."""
    rng = np.random.default_rng(seed)
    Q = np.linalg.qr(rng.standard_normal((n, n)))[0]
    A = rng.standard_normal((n, n))
    A[r:, :r] = 0
    A *= rho / np.abs(np.linalg.eigvals(A)).max()
    B = np.zeros((n, m))
    B[:r] = rng.standard_normal((r, m))
    return Q @ A @ Q.T, Q @ B, Q


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(1, 12), st.data())
def test_staircase_finds_the_subspace_that_was_built_in(seed, n, data):
    r, m = data.draw(st.integers(1, n)), data.draw(st.integers(1, 3))
    A, B, Q = known_pair(seed, n, r, m)
    units = 10.0 ** np.random.default_rng(seed).uniform(-5, 5, n)
    space = staircase(A, B)
    assert space.rank == r
    assert np.sin(subspace_angles(space.basis, Q[:, :r])).max() < 1e-6
    assert np.abs(space.basis.T @ space.complement).max(initial=0) < 1e-12
    assert (
        controllability_rank(A * units / units[:, None], B / units[:, None] * 1e5) == r
    )  # units do not matter
    assert observability_rank(A.T, B.T) == r


def test_where_the_matrix_of_kalman_fails():
    # a chain of 20 integrators with a short step is controllable, and its Kalman matrix singular in floats
    n, h = 20, 1e-2
    A, B = np.eye(n) + h * np.eye(n, k=1), np.zeros((n, 1))
    B[-1] = h

    assert np.linalg.matrix_rank(controllability_matrix(A, B)) < 12
    space = staircase(A, B)
    assert space.rank == n
    assert space.accepted > 1e-3


def test_hautus():
    A, B, Q = known_pair(3, 6, 4, 2)
    lost = np.linalg.eigvals((Q.T @ A @ Q)[4:, 4:])
    eigenvalues, margins = hautus_margins(A, B)
    stuck = eigenvalues[margins < 1e-10]
    assert len(stuck) == 2
    np.testing.assert_allclose(np.sort_complex(stuck), np.sort_complex(lost), atol=1e-10)
    np.testing.assert_allclose(unstabilizable_modes(np.diag([2.0, 0.5]), [[0.0], [1.0]]), [2.0])
    np.testing.assert_allclose(undetectable_modes(np.diag([2.0, 0.5]), [[0.0, 1.0]]), [2.0])
    assert observability_matrix(np.diag([2.0, 3.0]), [[1.0, 1.0]]).tolist() == [[1, 1], [2, 3]]


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.integers(1, 8), st.sampled_from([0.3, 0.9, 0.999]))
def test_gramian_without_end_is_scipys(seed, n, rho):
    A, B, _ = known_pair(seed, n, n, 2, rho)
    for ours, theirs in (
        (controllability_gramian(A, B), solve_discrete_lyapunov(A, B @ B.T)),
        (observability_gramian(A, B.T), solve_discrete_lyapunov(A.T, B @ B.T)),
    ):
        # the equation itself, then scipy, whose own residual is of this order
        scale = np.abs(theirs).max()
        assert np.abs(ours - theirs).max() <= 1e-10 * scale


def test_finite_gramians_are_the_sums():
    rng = np.random.default_rng(5)
    N, n, m = 7, 4, 2
    A, B, C = (
        rng.standard_normal((N, n, n)),
        rng.standard_normal((N, n, m)),
        rng.standard_normal((N + 1, 3, n)),
    )
    Wc, Wo, forward = np.zeros((n, n)), C[0].T @ C[0], np.eye(n)
    for k in range(N):
        after = (
            np.linalg.multi_dot([np.eye(n), *A[:k:-1]]) if k < N - 2 else (A[-1] if k == N - 2 else np.eye(n))
        )
        Wc += after @ B[k] @ B[k].T @ after.T
        forward = A[k] @ forward
        Wo += forward.T @ C[k + 1].T @ C[k + 1] @ forward
    np.testing.assert_allclose(controllability_gramian(A, B), Wc, rtol=1e-11, atol=1e-11 * np.abs(Wc).max())
    np.testing.assert_allclose(observability_gramian(A, C), Wo, rtol=1e-11, atol=1e-11 * np.abs(Wo).max())
    A0, B0 = 0.1 * A[0], B[0]
    np.testing.assert_allclose(
        controllability_gramian(A0, B0, 3),
        B0 @ B0.T + A0 @ (B0 @ B0.T + A0 @ B0 @ B0.T @ A0.T) @ A0.T,
        rtol=1e-12,
    )


def test_the_factor_sees_what_the_gramian_cannot():
    # energies that differ by 1e20: the small eigenvalue of W is lost in rounding, that of L is not
    B = np.diag([1.0, 1e-10])
    turn = np.linalg.qr(np.random.default_rng(0).standard_normal((2, 2)))[0]
    A, B = np.zeros((3, 2, 2)), np.tile(turn @ B, (3, 1, 1))
    assert np.linalg.svd(gramian_factor(A, B), compute_uv=False)[1] == pytest.approx(1e-10, rel=1e-5)


def test_least_energy_of_the_double_integrator():
    # continuous: a unit move at rest in T costs 12/T^3, int u^2 dt = h sum u^2
    h, N = 1e-3, 1000
    A = np.tile([[1, h], [0, 1]], (N, 1, 1))
    B = np.tile([[h * h / 2], [h]], (N, 1, 1))
    found = steer(A, B, [1.0, 0.0])
    assert h * found.energy == pytest.approx(12.0, rel=1e-5)
    z = np.zeros(2)
    for k in range(N):
        z = A[k] @ z + B[k] @ found.u[k]
    np.testing.assert_allclose(z, [1, 0], atol=1e-9)
    assert (found.u**2).sum() == pytest.approx(found.energy, rel=1e-9)
    t = (np.arange(N) + 0.5) * h
    np.testing.assert_allclose(found.u[:, 0], 6 - 12 * t, atol=0.01)  # the known optimum


def test_out_of_reach_is_infinite():
    A, B = np.tile(np.eye(2), (4, 1, 1)), np.tile([[1.0], [0.0]], (4, 1, 1))
    found = steer(A, B, [1.0, 1.0])
    assert found.energy == np.inf
    assert repr(found).endswith("4 steps of 1 inputs up to 0.25, misses the target by 1)")
    np.testing.assert_allclose(found.missed, [0, 1], atol=1e-14)


def test_along_a_trajectory_reach_may_grow_where_no_instant_shows_it():
    # two frozen pairs with rank 1 each reach the plane one after the other
    A = np.tile(np.eye(2), (2, 1, 1))
    B = np.array([[[1.0], [0.0]], [[0.0], [1.0]]])
    assert staircase(A[0], B[0]).rank == 1
    assert reached(A, B).rank == 2
    A[1] = np.diag([0.0, 1.0])  # and be forgotten
    assert reached(A, B).rank == 1


def test_reach_is_carried_through_the_steps_in_their_order():
    """Inputs at the start and the end, and growth between them that hides the last in a single product."""
    rng = np.random.default_rng(1)
    A, B = 100 * rng.standard_normal((6, 3, 3)), np.zeros((6, 3, 1))
    B[0], B[-1] = rng.standard_normal((2, 3, 1))
    first = np.linalg.multi_dot([*A[:0:-1], B[0]])
    expected, _ = np.linalg.qr(np.hstack([first / np.linalg.norm(first), B[-1]]))
    found = reached(A, B).basis
    assert found.shape == (3, 2)
    np.testing.assert_allclose(found @ found.T, expected @ expected.T, atol=1e-12)


def test_refusals():
    with pytest.raises(ValueError, match=r"A: expected finite numbers, got nan in row 0, column 1"):
        staircase([[1.0, np.nan], [0, 1]], np.ones((2, 1)))
    with pytest.raises(ValueError, match=r"expected A \(n, n\) and C \(p, n\)"):
        observability_rank(np.eye(2), np.ones((2, 1)))
    with pytest.raises(OptimizationError, match=r"size 1: the Gramian without end does not exist"):
        controllability_gramian(np.eye(2), np.ones((2, 1)))
    with pytest.raises(ValueError, match="steps: expected a whole number"):
        controllability_gramian(np.eye(2), np.ones((2, 1)), 0)
    with pytest.raises(ValueError, match=r"C \(N\+1, p, n\)"):
        observability_gramian(np.ones((3, 2, 2)), np.ones((3, 1, 2)))


@pytest.mark.parametrize("weak", [1e-10, 1e-11])
def test_what_is_not_reached_does_not_hide_what_is(weak):
    """A chain of two, a state that it hardly moves, and one that moves that state and is out of reach."""
    A = np.array([[1.0, 0.1, 0, 0], [0, 1, 0, 0], [weak, 0, 0.5, 1], [0, 0, 0, 0.9]])
    B = np.array([[0.0], [1.0], [0.0], [0.0]])
    for order in ([0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]):
        found = staircase(A[np.ix_(order, order)], B[order])
        assert found.rank == 3
        np.testing.assert_array_equal(found.basis[order.index(3)], 0.0)


def test_what_is_conserved_along_a_motion_is_out_of_reach_in_any_order():
    """The first of eight states in units far apart is conserved, whatever others round to."""
    n, N = 8, 30
    for seed in range(60):
        rng = np.random.default_rng(seed)
        order, units = rng.permutation(n), 10.0 ** rng.uniform(-8, 0, n)
        A, B = [], []
        for _ in range(N):
            step = np.eye(n) + 0.3 * rng.normal(size=(n, n)) * (rng.random((n, n)) < 0.4)
            push = rng.normal(size=(n, 2))
            step[0], push[0] = np.eye(n)[0], 0.0
            A.append((step * units[:, None] / units)[np.ix_(order, order)])
            B.append((push * units[:, None])[order])
        assert reached(A, B).rank == n - 1
