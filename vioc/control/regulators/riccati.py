"""Discrete Riccati equations for gains and costs-to-go of regulators.

See [S] (36), (37).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import solve_discrete_are

from vioc.checks import as_floats, check_array
from vioc.control.stages.linear_quadratic import LinearQuadratic, joined
from vioc.control.stages.recursion import NoMinimum, Recursion
from vioc.errors import OptimizationError

# Kleinman's iteration: most steps, and the relative change of the gain that is rounding
KLEINMAN, STAYS = 10, 1e-13
CONTRACTS = 0.1  # largest change of the gain over the first one at which the iteration converges


def riccati(A: Any, B: Any, Q: Any, R: Any, Qf: Any, S: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """Return gains and cost-to-go of a time-varying linear-quadratic problem.

        minimize  sum over k < N of x'Qx + u'Ru + 2 x'Su  +  x_N' Qf x_N,   x+ = A x + B u.

    Parameters
    ----------
    A, B : (N, n, n), (N, n, m)
    Q, R : (N, n, n) or (n, n); (N, m, m) or (m, m)
    Qf : (n, n)
    S : (N, n, m) or (n, m), optional
        Cross weight; default 0.

    Returns
    -------
    K : (N, m, n)
        u_k = -K_k x_k, with K = (R + B'PB)^-1 (B'PA + S'); P belongs to the next sample.
    P : (N+1, n, n)
        x_k' P_k x_k is the least cost from sample k; P_k = Q + A'PA - (A'PB + S) K, P_N = Qf.

    Raises
    ------
    ValueError
        If shapes do not fit.
    OptimizationError
        If R + B'PB is not positive definite; names k.
    """
    A, B = as_floats(A, "A"), as_floats(B, "B")
    if A.ndim != 3 or B.ndim != 3 or A.shape[1] != A.shape[2] or A.shape[:2] != B.shape[:2]:
        raise ValueError(f"expected A (N, n, n) and B (N, n, m), got {A.shape} and {B.shape}")
    N, n, m = B.shape
    if m == 0:
        raise ValueError("a regulator needs at least one input, the map has none")
    blocks = [("Q", Q, (n, n)), ("R", R, (m, m)), ("S", np.zeros((n, m)) if S is None else S, (n, m))]
    full = []
    for what, value, shape in blocks:
        value = np.asarray(value, float)
        if value.shape not in (shape, (N, *shape)):
            raise ValueError(f"{what}: expected shape {shape} or {(N, *shape)}, got {value.shape}")
        full.append(np.broadcast_to(value, (N, *shape)))
    Qf = check_array(Qf, (n, n), "Qf")
    Q, R, S = full
    F, H = np.concatenate([A, B], axis=2), joined(Q, S, R)
    recursion = Recursion(N, n, m)
    try:
        recursion.backward(LinearQuadratic(F, H, Qf, np.zeros((N, n + m)), np.zeros(n), np.zeros((N, n))))
    except NoMinimum as none:
        raise OptimizationError(
            f"R + B'PB is not positive definite at k = {none.k} (smallest eigenvalue {none.least:g}): "
            "the problem is not convex there; raise R, or use positive semi-definite weights"
        ) from None
    return recursion.gains, recursion.costs


def steady_riccati(A: Any, B: Any, Q: Any, R: Any, S: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """Return gain and cost-to-go of a linear-quadratic problem on an infinite horizon.

    The solution of the algebraic equation comes from an ordered pencil (SciPy), or from doubling if the
    pencil cannot be ordered. The pencil is inaccurate if A is singular or far from normal, as for closed
    loops and in maximal coordinates. The solution is refined by Kleinman's iteration: P is the
    cost of the gain, the sum of (A - BK)'^j (Q + K'RK - SK - K'S') (A - BK)^j, until the gain is constant.
    The refinement is left out if it does not converge: if inputs hardly move an unstable mode, rounding
    errors of this sum are larger than those of the pencil.

    Raises
    ------
    numpy.linalg.LinAlgError, ValueError
        If no solution is found. The caller must check that the loop is stable.
    """
    S = np.zeros(B.shape) if S is None else S
    x, u = _sizes(A, B, R)
    A, B, Q, R, S = (
        A * x / x[:, None],
        B * u / x[:, None],
        Q * np.outer(x, x),
        R * np.outer(u, u),
        S * np.outer(x, u),
    )
    try:
        with np.errstate(invalid="ignore"):  # scipy casts scales of its balancing to integers
            P = solve_discrete_are(A, B, Q, R, s=S if S.any() else None)
        K = _gain(A, B, P, R, S)
    except (np.linalg.LinAlgError, ValueError):  # the latter if LAPACK cannot order the eigenvalues
        with np.errstate(over="ignore", invalid="ignore"):  # where doubling diverges
            P = periodic_riccati(*(M[None] for M in (A, B, Q, R, S)))
            K = _gain(A, B, P, R, S)
        if not (np.isfinite(K).all() and np.abs(np.linalg.eigvals(A - B @ K)).max() < 1):
            raise
    refined, changes = (K, P), [np.inf]
    for _ in range(KLEINMAN):
        before = refined[0]
        cost = _cost_of(A - B @ before, Q + before.T @ R @ before - S @ before - before.T @ S.T)
        if cost is None:
            break
        refined = _gain(A, B, cost, R, S), cost
        changes.append(
            np.abs(refined[0] - before).max() / np.abs(refined[0]).max(initial=np.finfo(float).tiny)
        )
        if changes[-1] <= max(STAYS, CONTRACTS * changes[1] * (len(changes) > 2)):
            K, P = refined
        if changes[-1] <= STAYS or (len(changes) > 2 and changes[-1] >= changes[-2]):
            break
    return K * u[:, None] / x, P / np.outer(x, x)


def _sizes(A: np.ndarray, B: np.ndarray, R: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return typical magnitudes of states and inputs that scale the Riccati equation.

    They are powers of two, so that scaling causes no rounding errors. Magnitudes of inputs (m,) follow from
    their weights. Magnitudes of states (n,) are those that such inputs reach in n steps. Without scaling, the
    eigenvalues of the Riccati equation's matrix pencil cannot be ordered for a large machine in SI units.
    """
    weight = np.abs(R.diagonal())
    u = 1 / np.sqrt(np.where(weight > 0, weight, 1.0))
    push = reached = B * u
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(len(A) - 1):
            push = A @ push
            reached = np.hypot(reached, push)
    x = np.linalg.norm(reached, axis=1)
    x = np.where((x > 0) & np.isfinite(x), x, 1.0)
    return np.exp2(np.round(np.log2(x))), np.exp2(np.round(np.log2(u)))


def _gain(A: np.ndarray, B: np.ndarray, P: np.ndarray, R: np.ndarray, S: np.ndarray) -> np.ndarray:
    return np.linalg.solve(R + B.T @ P @ B, B.T @ P @ A + S.T)


def _cost_of(F: np.ndarray, M: np.ndarray) -> np.ndarray | None:
    """Return the infinite-horizon cost matrix of a stable system with matrix F.
    It is the sum of F'^j M F^j over j >= 0, where M is the cost matrix of one step; None if the sum diverges.

    The sum is computed by doubling.
    """
    P = 0.5 * (M + M.T)
    with np.errstate(over="ignore", invalid="ignore"):  # a divergent sum
        for _ in range(60):
            added = F.T @ P @ F
            P = P + 0.5 * (added + added.T)
            if not np.isfinite(P).all():
                return None
            # componentwise, since a state with a small weight may settle long after the others
            if (np.abs(added.diagonal()) <= np.finfo(float).eps * np.abs(P.diagonal())).all():
                return P
            F = F @ F
    return None


def periodic_riccati(A: Any, B: Any, Q: Any, R: Any, S: Any) -> np.ndarray:
    """Return the cost-to-go of a periodic linear-quadratic problem.

    Parameters
    ----------
    A, B, Q, R, S
        Matrices of the N steps of a period, as in `riccati`; the last step ends in the first sample's
        coordinates.

    Returns
    -------
    (n, n)
        P_0 = P_N if the motion can be stabilized; else the result after 60 doublings.

    Notes
    -----
    The cost over an interval, min z'Hz + |G^(+1/2) p|^2 of z+ = F z + G p, has the form of the cost of one
    step, F = A - B R^-1 S', G = B R^-1 B', H = Q - S R^-1 S'. Two intervals in sequence are one,

        F = F2 W F1,  G = G2 + F2 W G1 F2',  H = H1 + F1' H2 W F1,  W = (I + G1 H2)^-1,

    so the steps are combined to the period, which is doubled until H, which tends to P_0, is constant
    (Anderson's doubling algorithm for the algebraic Riccati equation).
    """
    N, n, m = B.shape
    Q, R, S = (np.broadcast_to(a, (N, *s)) for a, s in ((Q, (n, n)), (R, (m, m)), (S, (n, m))))
    feed = np.linalg.solve(R, np.swapaxes(S, 1, 2))
    F, G, H = A - B @ feed, B @ np.linalg.solve(R, np.swapaxes(B, 1, 2)), Q - S @ feed
    product = F[0], G[0], H[0]
    for step in zip(F[1:], G[1:], H[1:], strict=True):
        product = _in_sequence(product, step)
    for _ in range(60):
        before, product = product[2], _in_sequence(product, product)
        if not np.isfinite(product[2]).all():
            return before
        if np.abs(product[2] - before).max() <= 1e-15 * np.abs(before).max():
            break
    return product[2]


def _in_sequence(first: tuple, second: tuple) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    (F1, G1, H1), (F2, G2, H2) = first, second
    n = len(F1)
    W = np.linalg.solve(np.eye(n) + G1 @ H2, np.concatenate([F1, G1], axis=1))
    G, H = G2 + F2 @ W[:, n:] @ F2.T, H1 + F1.T @ H2 @ W[:, :n]
    return F2 @ W[:, :n], 0.5 * (G + G.T), 0.5 * (H + H.T)
