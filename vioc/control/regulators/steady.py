"""Gains of steady linear-quadratic regulators and filters at an equilibrium.
If no such gain exists, the error message names the modes that prevent it.

Modes may be disregarded by name. Maths: docs/maths/feedback.md#what-is-disregarded.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import null_space

from vioc.checks import as_names
from vioc.control.linear.circle import natural_units, sides
from vioc.control.linear.rank import (
    UNSETTLED,
    eliminated,
    grows,
    hautus_margins,
    staircase,
    stuck_modes,
    unreached_modes,
)
from vioc.control.linear.weights import named_jacobians
from vioc.control.regulators.riccati import steady_riccati
from vioc.errors import OptimizationError
from vioc.maps.protocol import OneStepMap

GRIP = "grip."  # prefix of quantities for the remaining friction
SETTLES = 1 - 1e-7  # poles closer to the unit circle count as not settling
# The inputs alone are to blame for a mode that hardly settles if the weakest direction in which they move the
# system (`staircase`) is below the first number, the weights alone are if each mode's controllability
# (`hautus_margins`) is above the second one. Otherwise either may be: the unit of a state is arbitrary.
HARDLY, CLEARLY = 1e-6, 1e-3
ALIKE = 1e-6  # difference of eigenvalues that are as slow as the slowest
NEARLY = 1e-14  # increase of a singular weight R, of the cost of one step of the inputs
SEEN = 1e-6  # smallest motion of a named quantity with a mode, relative to the sizes of both
SHARED = 1e-10  # relative singular value below which disregarded and other modes share an eigenvalue
NOTHING = 1e-12  # eigenvalues of a weight with unit diagonal that count as rounding
COUPLED = 1e-9  # largest coupling of a disregarded mode to the others, relative to the linearization


class Words(NamedTuple):
    """Phrases of the error message if a steady regulator or filter does not exist."""

    none: str
    cannot: str
    act: str
    ignored: str
    weigh: str
    hardly_act: str
    hardly_weighed: str
    raised: str
    exact: str


REGULATOR = Words(
    "no stabilizing regulator at this equilibrium",
    "the inputs cannot move",
    "add an input that acts on them",
    "Q does not penalize",
    "penalize in Q what moves with them",
    "the inputs hardly move",
    "Q, beside R, hardly penalizes",
    "raise Q there, or lower R",
    "",
)
FILTER = Words(
    "no steady filter",
    "the measurements do not see",
    "measure what moves in them",
    "no process noise excites",
    "give process noise W to what they are made of",
    "the measurements hardly see",
    "process noise, beside that of the measurements, hardly excites",
    "raise W there, or lower the variances of the measurements",
    "or exact measurements move poles to zeros of the system on the unit circle: give them a variance R > 0",
)


class SteadyGain(NamedTuple):
    """Gain of a steady regulator, with its cost-to-go, weights and poles.

    K is (nu, n), P and the weight Q are (n, n), and the cross weight S is (n, nu).
    """

    K: np.ndarray
    P: np.ndarray
    Q: np.ndarray
    S: np.ndarray
    poles: np.ndarray
    disregarded: tuple[str, ...] = ()


def stabilized(
    A: np.ndarray,
    B: np.ndarray,
    Q: np.ndarray,
    R: np.ndarray,
    S: np.ndarray,
    names: Sequence[str],
    T: np.ndarray,
    words: Words = REGULATOR,
    *,
    counted: slice = slice(None),
    named: bool = False,
    grip_names: Callable[[], Sequence[str]] = tuple,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return gain, cost-to-go and poles of a steady regulator or filter.
    The regulator minimizes the infinite sum of z'Qz + v'Rv + 2 z'Sv for the system z+ = A z + B v.

    For a filter, pass the transposed matrices. A pole close to the unit circle is accepted only if inputs
    move and weights penalize every mode, and if rounding errors of the matrices cannot move the pole out of
    the circle.

    Parameters
    ----------
    A, B, Q, R, S, T, counted
        As in `steady_gain`.
    names : ndx names
    words : Words
    named : bool
        True if modes have already been disregarded.
    grip_names : function
        Function that returns the names of contacts and joints that stick by friction.

    Raises
    ------
    OptimizationError
        If the closed loop is not stable. The message names the modes that inputs do not move or weights do
        not penalize, or hardly so.
    """
    loop, poles, largest = A, np.linalg.eigvals(A), np.inf
    try:
        K, P = steady_riccati(A, B, Q, R, S)
        loop = (A - B @ K)[counted, counted]
        poles = np.linalg.eigvals(loop)
        largest = np.abs(poles).max(initial=0.0)
        if largest < SETTLES:
            return K, P, poles
        error = f"a pole is {f'1 - {1 - largest:.1e}' if largest < 1 else f'{largest:.6g}'}"
    except (np.linalg.LinAlgError, ValueError):  # ValueError from SciPy if LAPACK cannot reorder
        error = "no stabilizing solution of the Riccati equation is found"
    size = np.sqrt(np.abs(np.diag(R))) + (np.diag(R) == 0)
    free = bool(words.exact) and np.linalg.matrix_rank(R / np.outer(size, size)) < len(R)
    if free and (near := _nearly_free(A, B, Q, R, S, counted)) is not None:
        return near
    if stuck := stuck_modes(A, B, names, T):
        advice = f"{words.cannot} the eigenvalues {stuck}; {words.act}"
        stays = not named and not grows(unreached_modes(A, B)[0])
        advice += ", or let that go by disregard=[...], its names" * stays
    elif (root := _root(A, B, Q, R, S)) is None:
        advice = "the weights [Q S; S' R] must not be indefinite"
    elif ignored := stuck_modes(root[0].T, root[1].T, names, T, circle=True):
        advice = f"{words.ignored} the eigenvalues {ignored} (on the unit circle); {words.weigh}"
    else:
        grips = grip_names()
        if largest < 1 and not grips and (sides(loop, poles) < 0).all():
            return K, P, poles
        values, vectors = np.linalg.eig(loop)
        slow = np.flatnonzero(np.abs(values) >= np.abs(values).max() - ALIKE)
        moved = np.abs(T[:, counted] @ (vectors[:, slow] / natural_units(loop)[:, None]))
        moves = (moved > 0.1 * moved.max(axis=0)).any(axis=1)
        what = ", ".join(names[int(i)] for i in np.flatnonzero(moves))
        eigenvalues, margins = hautus_margins(A, B)
        margin = float(margins[np.abs(eigenvalues) >= 1 - UNSETTLED].min(initial=np.inf))
        weighed = margin >= CLEARLY or staircase(A, B).accepted > HARDLY
        causes = [(words.hardly_act, words.act)] * (margin < CLEARLY)
        causes += [(words.hardly_weighed, words.raised)] * weighed
        said, cures = (", or ".join(texts) for texts in zip(*causes, strict=True))
        advice = f"{said} a mode of {what}; {cures}"
        advice += f"; {words.exact}" * bool(free)
        if grips:
            advice = (
                f"the inputs hardly move {what}, for dry friction holds there ({', '.join(grips)}); a "
                "linearization where friction holds is no basis for a gain: take one of a motion, or of a "
                "model without that friction"
            )
    raise OptimizationError(f"{words.none} ({error}): {advice}") from None


def _nearly_free(
    A: np.ndarray, B: np.ndarray, Q: np.ndarray, R: np.ndarray, S: np.ndarray, counted: slice
) -> tuple[np.ndarray, np.ndarray, np.ndarray] | None:
    """Return gain, cost-to-go and poles for a singular weight R of the inputs.
    They are the limit for regular weights: R is increased by a small share of what the inputs cost in one
    step by Q. The result is None if poles then are not inside the unit circle, or only by what this share
    moves them.
    """
    try:
        K, P = steady_riccati(A, B, Q, R + NEARLY * np.diag(np.diag(B.T @ Q @ B)), S)
    except (np.linalg.LinAlgError, ValueError):
        return None
    poles = np.linalg.eigvals((A - B @ K)[counted, counted])
    return (K, P, poles) if np.abs(poles).max(initial=0.0) < 1 - 100 * np.sqrt(NEARLY) else None


def _root(
    A: np.ndarray, B: np.ndarray, Q: np.ndarray, R: np.ndarray, S: np.ndarray
) -> tuple[np.ndarray, np.ndarray] | None:
    """Eliminate the cross weight S from a linear-quadratic problem.
    Return the matrix A - B R^-1 S' of the equivalent system, and a root C of its state weight: C'C = Q - S
    R^-1 S'. Return None if this weight is indefinite.
    """
    if S.any():
        feed = np.linalg.solve(R, S.T)
        A, Q = A - B @ feed, Q - S @ feed
    size = np.sqrt(np.abs(np.diag(Q)))
    size[size == 0] = 1.0
    values, vectors = np.linalg.eigh(Q / np.outer(size, size))
    if values.min(initial=0.0) < -NOTHING * len(Q):
        return None
    mask = values > NOTHING * len(Q)
    return A, (vectors[:, mask] * np.sqrt(values[mask]) * size[:, None]).T


def steady_gain(
    f: OneStepMap,
    x: np.ndarray,
    u: np.ndarray,
    A: np.ndarray,
    B: np.ndarray,
    Q: np.ndarray,
    R: np.ndarray,
    S: np.ndarray,
    *,
    T: np.ndarray | None = None,
    disregard: Any = (),
    counted: slice = slice(None),
) -> SteadyGain:
    """Return the gain of a steady linear-quadratic regulator.
    It minimizes the infinite sum of z'Qz + v'Rv + 2 z'Sv for the system z+ = A z + B v.

    Parameters
    ----------
    f : OneStepMap
    x, u : (nx,), (nu,)
        Point of the linearization.
    A, B, Q, R, S : (n, n), (n, nu), (n, n), (nu, nu), (n, nu)
    T : (ndx, n), optional
        Orthonormal basis with z = T' dx, where dx is the error of the state. By default the identity.
    disregard : names
        Errors or quantities of the state that may end anywhere. They name modes that inputs cannot move and
        that do not settle by themselves, see `vioc.control.dlqr`.
    counted : slice
        The coordinates whose poles count, if nothing is disregarded.

    Raises
    ------
    ModelError, ValueError
        Names that are unknown, or not part of such a mode.
    OptimizationError
        If there is no gain with poles inside the unit circle; see `stabilized`.
    """
    names, disregard = f.space.error_names, as_names(disregard, "disregard")
    T = np.eye(f.ndx) if T is None else T
    E = Y = None
    if disregard:
        C = named_jacobians(f, disregard, x[None], "disregard", "name errors or quantities of the state")[0]
        E, Y = _left_out(A, B, Q, C @ T, disregard, names, T)
        A, B, Q, S, counted = Y @ A @ E, Y @ B, E.T @ Q @ E, E.T @ S, slice(None)
        T = T @ E
    K, P, poles = stabilized(
        A, B, Q, R, S, names, T, counted=counted, named=bool(disregard), grip_names=lambda: gripping(f, x, u)
    )
    if Y is not None:
        K, P, Q, S = K @ Y, Y.T @ P @ Y, Y.T @ Q @ Y, Y.T @ S
    return SteadyGain(K, P, Q, S, poles, disregard)


def _left_out(
    A: np.ndarray,
    B: np.ndarray,
    Q: np.ndarray,
    C: np.ndarray,
    disregard: Sequence[str],
    names: Sequence[str],
    T: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Return matrices E and Y that relate a system's coordinates z to reduced ones y.
    The reduced coordinates y = Y z omit the disregarded modes, which inputs cannot move and which do not
    decay. Without motion in these modes, z = E y.

    In general z = E y + X a, where a are the amplitudes of the m disregarded modes; E is (n, n - m) and Y (n
    - m, n). X spans an invariant subspace, A X = X F, which contains the motion of the mechanism in these
    modes. A feedback of y does not measure this motion, since Y X = 0.
    """
    F, W = unreached_modes(A, B)
    n, m = W.shape
    what = stuck_modes(A, B, names, T)
    if not m:
        raise ValueError("disregard: inputs can move every mode that does not settle; nothing to leave out")
    if grows(F):
        raise OptimizationError(f"disregard: what is left out grows; the inputs cannot move {what}")
    E = np.linalg.qr(W, mode="complete")[0][:, m:]
    A1, A2 = E.T @ A @ E, E.T @ A @ W
    # A1 Z - Z F = -A2 does not determine Z if A1 and F share eigenvalues; unnamed quantities then move least
    rows = np.kron(np.eye(m), A1) - np.kron(F.T, np.eye(n - m))
    U, sizes, V = np.linalg.svd(rows)
    regular = sizes > SHARED * sizes.max(initial=0.0)
    z = V[: len(sizes)][regular].T @ (U[:, regular].T @ -A2.ravel(order="F") / sizes[regular])
    unnamed, free = np.eye(n) - np.linalg.pinv(C, rcond=SEEN) @ C, V[~regular].T
    weight, axes = np.linalg.eigh(Q)
    root = np.sqrt(np.maximum(weight, 0.0))[:, None] * axes.T
    for G in (root @ unnamed, unnamed):  # minimize the penalized motion, then the rest
        if not free.shape[1]:
            break
        lhs, rhs = np.kron(np.eye(m), G @ E) @ free, np.kron(np.eye(m), G @ E) @ z + (G @ W).ravel(order="F")
        z = z - free @ np.linalg.lstsq(lhs, rhs, rcond=SEEN)[0]
        free = free @ null_space(lhs, rcond=SEEN)
    Z = z.reshape(n - m, m, order="F")
    if np.linalg.norm(A1 @ Z - Z @ F + A2) > COUPLED * np.linalg.norm(A):
        raise OptimizationError(
            f"disregard: what is left out pushes on what inputs hold; they cannot move {what}"
        )
    X = E @ Z + W
    check_named(C, X, disregard, names, T, REGULATOR, what)
    return E, E.T - Z @ W.T


def unseen_left_out(
    A: np.ndarray,
    C: np.ndarray,
    named: np.ndarray,
    disregard: Sequence[str],
    names: Sequence[str],
    T: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Return bases E and X of two complementary subspaces of a system's states z.
    X spans the modes that do not decay and have no effect on the outputs C z. E spans the orthogonal
    complement of X.

    The modes X (n, m) obey A X = X F and C X = 0 with C (p, n). Both bases are orthonormal. The quantities
    with Jacobian `named` must move with X.
    """
    F, X = unreached_modes(A.T, C.T)
    what = stuck_modes(A.T, C.T, names, T)
    if not X.shape[1]:
        raise ValueError("disregard: measurements see every mode that does not settle; nothing to leave out")
    if grows(F):
        raise OptimizationError(f"disregard: what is left out grows; {FILTER.cannot} {what}")
    check_named(named, X, disregard, names, T, FILTER, what)
    return np.linalg.qr(X, mode="complete")[0][:, X.shape[1] :], X


def check_named(
    C: np.ndarray,
    X: np.ndarray,
    disregard: Sequence[str],
    names: Sequence[str],
    T: np.ndarray,
    words: Words,
    what: str,
) -> None:
    """Raise an error unless named quantities determine the amplitudes of given modes.
    Each quantity must change in at least one of the modes, and all quantities together must determine the
    amplitudes of all modes. C (p, n) is the Jacobian of the quantities; the columns of X span the modes.
    """
    shown = C @ X / np.linalg.norm(X, axis=0)
    shown /= np.maximum(np.linalg.norm(C, axis=1, keepdims=True), np.finfo(float).tiny)
    for name, row in zip(disregard, shown, strict=True):
        if np.linalg.norm(row) <= SEEN:
            raise ValueError(f"disregard: {name!r} does not move with what {words.cannot}, {what}")
    rank = int((np.linalg.svd(shown, compute_uv=False) > SEEN).sum())
    if rank < X.shape[1]:
        free = eliminated((T @ X @ np.linalg.svd(shown)[2][rank:].T).T)
        states = {name for row in free for name, e in zip(names, row, strict=True) if abs(e) > SEEN}
        raise OptimizationError(
            f"disregard: {', '.join(disregard)} names {rank} of {X.shape[1]} modes; the others move "
            f"{', '.join(n for n in names if n in states)}; {words.cannot} the eigenvalues {what}"
        )


def gripping(f: OneStepMap, x: np.ndarray, u: np.ndarray) -> tuple[str, ...]:
    """Return the names of contacts and joints that stick by friction in a step from x."""
    grips = [n for n in f.quantities.names() if n.startswith(GRIP)]
    run = f.rollout(x, u[None]) if grips else None
    return tuple(n.removeprefix(GRIP) for n in grips if run is not None and np.min(run[n]) > 0)
