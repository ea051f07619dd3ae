"""The Riccati equation of an equilibrium, with what inputs cannot move left out by name.

Maths: docs/maths/feedback.md#what-is-disregarded.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import null_space

from vioc.checks import as_names
from vioc.control.analysis.rank import UNSETTLED, eliminated, stuck_modes, unreached_modes
from vioc.control.linear.weights import named_jacobians
from vioc.control.regulators.riccati import steady_riccati
from vioc.errors import OptimizationError
from vioc.maps.protocol import OneStepMap

SETTLES = 1 - 1e-7  # poles nearer to the circle are rounding of what does not settle at all
SEEN = 1e-6  # of a named quantity that moves with a mode, relative to the sizes of both
SHARED = 1e-10  # singular value of what says how modes move the rest, relative, below which they share it
COUPLED = 1e-9  # what a mode pushes on the rest with, relative to the linearization


class Steady(NamedTuple):
    """Gain (nu, n), cost-to-go and weights (n, n), (n, nu), the loop's poles, and what is disregarded."""

    K: np.ndarray
    P: np.ndarray
    Q: np.ndarray
    S: np.ndarray
    poles: np.ndarray
    disregarded: tuple[str, ...] = ()


def steady_gain(
    f: OneStepMap,
    x: np.ndarray,
    A: np.ndarray,
    B: np.ndarray,
    Q: np.ndarray,
    R: np.ndarray,
    S: np.ndarray,
    *,
    T: np.ndarray | None = None,
    disregard: Any = (),
    counted: slice = slice(None),
) -> Steady:
    """The gain that minimizes the sum of z'Qz + v'Rv + 2 z'Sv of z+ = A z + B v without end.

    Parameters
    ----------
    f : OneStepMap
    x : (nx,)
        Where A and B are taken.
    A, B, Q, R, S : (n, n), (n, nu), (n, n), (nu, nu), (n, nu)
    T : (ndx, n), optional
        Orthonormal: z = T' dx. By default the identity.
    disregard : names
        Errors or quantities of the state that may end anywhere: modes that inputs cannot move and that do
        not settle by themselves, see `vioc.control.dlqr`.
    counted : slice
        The coordinates whose poles count, where nothing is disregarded.

    Raises
    ------
    ModelError, ValueError
        Names that are unknown, or no part of such a mode.
    OptimizationError
        If there is no gain with poles inside the unit circle; names the modes that cannot be moved.
    """
    names, disregard = f.error_names, as_names(disregard)
    T = np.eye(f.ndx) if T is None else T
    E = Y = None
    if disregard:
        C = named_jacobians(f, disregard, x[None], "disregard", "name errors or quantities of the state")[0]
        E, Y = _left_out(A, B, Q, C @ T, disregard, names, T)
        A, B, Q, S, counted = Y @ A @ E, Y @ B, E.T @ Q @ E, E.T @ S, slice(None)
        T = T @ E
    try:
        K, P = steady_riccati(A, B, Q, R, S)
        poles = np.linalg.eigvals((A - B @ K)[counted, counted])
        if not np.abs(poles).max(initial=0.0) < SETTLES:
            raise np.linalg.LinAlgError(f"a closed-loop pole is {np.abs(poles).max():.6g}")
    except (
        np.linalg.LinAlgError,
        ValueError,
    ) as error:  # scipy raises the latter where LAPACK cannot reorder
        stuck = stuck_modes(A, B, names, T)
        if stuck:
            advice = f"the inputs cannot move the eigenvalues {stuck}; add an input that acts on them"
            advice += ", or let that go by disregard=[...], its names" * (not disregard)
        else:
            advice = "weigh in Q every mode on the unit circle (a drifting coordinate, an undamped swing)"
            advice += "; [Q S; S' R] must not be indefinite" * bool(S.any())
        raise OptimizationError(f"no stabilizing regulator at this equilibrium ({error}): {advice}") from None
    if Y is not None:
        K, P, Q, S = K @ Y, Y.T @ P @ Y, Y.T @ Q @ Y, Y.T @ S
    return Steady(K, P, Q, S, poles, disregard)


def _left_out(
    A: np.ndarray,
    B: np.ndarray,
    Q: np.ndarray,
    C: np.ndarray,
    disregard: Sequence[str],
    names: Sequence[str],
    T: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """E (n, n - m) and Y (n - m, n): z = E y + X a with y = Y z, a the amplitudes of m modes that stay.

    X spans an invariant subspace, A X = X F: the motion of the whole with these modes, which feedback on y
    does not see.
    """
    F, W = unreached_modes(A, B)
    n, m = W.shape
    what = stuck_modes(A, B, names, T)
    if not m:
        raise ValueError("disregard: inputs can move every mode that does not settle; nothing to leave out")
    if np.abs(np.linalg.eigvals(F)).max() > 1 + UNSETTLED:
        raise OptimizationError(f"disregard: what is left out grows; the inputs cannot move {what}")
    E = np.linalg.qr(W, mode="complete")[0][:, m:]
    A1, A2 = E.T @ A @ E, E.T @ A @ W
    # A1 Z - Z F = -A2. Modes that A1 shares with F leave some of Z open: what is named carries the motion
    rows = np.kron(np.eye(m), A1) - np.kron(F.T, np.eye(n - m))
    U, sizes, V = np.linalg.svd(rows)
    told = sizes > SHARED * sizes.max(initial=0.0)
    z = V[: len(sizes)][told].T @ (U[:, told].T @ -A2.ravel(order="F") / sizes[told])
    unnamed, free = np.eye(n) - np.linalg.pinv(C, rcond=SEEN) @ C, V[~told].T
    weight, axes = np.linalg.eigh(Q)
    root = np.sqrt(np.maximum(weight, 0.0))[:, None] * axes.T
    for G in (root @ unnamed, unnamed):  # as little as can be of what is weighed, then of the rest
        if not free.shape[1]:
            break
        by, at = np.kron(np.eye(m), G @ E) @ free, np.kron(np.eye(m), G @ E) @ z + (G @ W).ravel(order="F")
        z = z - free @ np.linalg.lstsq(by, at, rcond=SEEN)[0]
        free = free @ null_space(by, rcond=SEEN)
    Z = z.reshape(n - m, m, order="F")
    if np.linalg.norm(A1 @ Z - Z @ F + A2) > COUPLED * np.linalg.norm(A):
        raise OptimizationError(
            f"disregard: what is left out pushes on what inputs hold; they cannot move {what}"
        )
    X = E @ Z + W
    shown = C @ X / np.linalg.norm(X, axis=0)
    shown /= np.maximum(np.linalg.norm(C, axis=1, keepdims=True), np.finfo(float).tiny)
    for name, row in zip(disregard, shown, strict=True):
        if np.linalg.norm(row) <= SEEN:
            raise ValueError(f"disregard: {name!r} does not move with what the inputs cannot move, {what}")
    rank = int((np.linalg.svd(shown, compute_uv=False) > SEEN).sum())
    if rank < m:
        free = eliminated((T @ X @ np.linalg.svd(shown)[2][rank:].T).T)
        states = {name for row in free for name, e in zip(names, row, strict=True) if abs(e) > SEEN}
        raise OptimizationError(
            f"disregard: {', '.join(disregard)} names {rank} of {m} modes; the others move "
            f"{', '.join(n for n in names if n in states)}; the inputs cannot move the eigenvalues {what}"
        )
    return E, E.T - Z @ W.T
