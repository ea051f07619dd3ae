"""Tests of controllability and observability of linear systems.
The methods are the ranks of Kalman's matrices, the staircase algorithm and Hautus' test.

Maths: docs/maths/analysis.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from scipy.linalg import qr, schur

from vioc.checks import as_floats, as_share
from vioc.control.linear.circle import natural_units, sides

TOLERANCE = 1e-9  # relative singular values below it count as zero
LONGEST = 10  # doublings of the step in the staircase: up to 1024 steps
ROUNDING = 1e-13  # relative size below which rows of a factor are rounding
UNSETTLED = 1e-6  # modes closer to the unit circle than this do not settle by themselves
GROWTH = 1e6  # |A^p|/|A| above which longer steps hide modes that do not grow


def controllability_matrix(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Return Kalman's controllability matrix [B, A B, ..., A^(n-1) B].

    Parameters
    ----------
    A : (n, n)
    B : (n, m)

    Returns
    -------
    (n, n m)

    Raises
    ------
    ValueError
        If the shapes do not fit.
    """
    A, B = input_pair(A, B)
    blocks = [B]
    for _ in range(len(A) - 1):
        blocks.append(A @ blocks[-1])
    return np.concatenate(blocks, axis=1)


def observability_matrix(A: np.ndarray, C: np.ndarray) -> np.ndarray:
    """Return Kalman's observability matrix [C; C A; ...; C A^(n-1)].
    Its shape is (n p, n) for n states and p outputs.
    """
    A, C = output_pair(A, C)
    return controllability_matrix(A.T, C.T).T


def controllability_rank(A: np.ndarray, B: np.ndarray, tolerance: float = TOLERANCE) -> int:
    """Return the dimension of the controllable subspace by the staircase algorithm.

    Parameters
    ----------
    A : (n, n)
    B : (n, m)
    tolerance : float
        See `staircase`, which also returns the subspace and the clarity of the decision.
    """
    return staircase(A, B, tolerance).rank


def observability_rank(A: np.ndarray, C: np.ndarray, tolerance: float = TOLERANCE) -> int:
    """Return the dimension of the observable subspace of the pair (A, C).
    C (p, n) is the matrix of the outputs. The method is the staircase algorithm.

    See `controllability_rank`.
    """
    A, C = output_pair(A, C)
    return staircase(A.T, C.T, tolerance).rank


@dataclass(frozen=True)
class Subspace:
    """Subspace whose dimension was decided numerically, from singular values.

    Attributes
    ----------
    basis : (n, rank)
        Orthonormal basis.
    complement : (n, n - rank)
        Orthonormal basis of the orthogonal complement.
    accepted, rejected : float
        Smallest relative singular value that counted, and the largest that did not; inf and 0 if there was
        none. The wider the interval between them, the more credible the rank.
    """

    basis: np.ndarray
    complement: np.ndarray
    accepted: float
    rejected: float

    @property
    def rank(self) -> int:
        return self.basis.shape[1]

    def eigenvalues_left(self, A: np.ndarray) -> np.ndarray:
        """Return the eigenvalues of A whose modes are not in this A-invariant subspace.
        The eigenvalue with the largest magnitude is first.
        """
        N = self.complement
        values = np.linalg.eigvals(N.T @ A @ N).astype(complex)
        return values[np.argsort(-np.abs(values), kind="stable")]

    def __repr__(self) -> str:
        n, r = self.basis.shape
        return f"Subspace(rank {r} of {n}; accepted >= {self.accepted:.1e}, rejected <= {self.rejected:.1e})"


def staircase(A: np.ndarray, B: np.ndarray, tolerance: float = TOLERANCE) -> Subspace:
    """Return the controllable subspace of the pair (A, B).
    It is the smallest A-invariant subspace that contains the columns of B.

    Parameters
    ----------
    A : (n, n)
    B : (n, m)
    tolerance : float
        A direction counts if its relative singular value is above this.

    Returns
    -------
    Subspace
        Subspace for the number p of combined steps (1, 2, 4, ...) with the clearest decisions.

    Notes
    -----
    This is Paige's staircase algorithm, by orthogonal transformations, for (A^p, [B, A B, ..., A^(p-1) B]).
    Its subspace is the same for every p, but the accuracy is not: in short steps a slow mechanism moves so
    little that couplings are lost in rounding, and long steps hide the length of a chain of integrators. Each
    state is scaled by its motion under the inputs, so that units do not matter. If the motions of two states
    differ by a factor of 1e13, however, the smaller one counts as rounding.
    """
    tolerance, (A, B) = as_share(tolerance, "tolerance"), input_pair(A, B)
    if len(A) == 0:
        return Subspace(np.zeros((0, 0)), np.zeros((0, 0)), np.inf, 0.0)
    powers, factors = [A], [_unit_columns(B)]
    for _ in range(LONGEST):
        power, factor = (
            powers[-1] @ powers[-1],
            compressed(np.hstack([powers[-1] @ factors[-1], factors[-1]])),
        )
        if not np.linalg.norm(power) <= GROWTH * np.linalg.norm(A):
            break
        powers.append(power)
        factors.append(factor)
    scale, mask = row_sizes(factors[-1])  # scaling by the inputs' effect on each state cancels units
    balanced = (
        (M * (scale * mask) / scale[:, None], L / scale[:, None])
        for M, L in zip(powers, factors, strict=True)
    )
    best = max((_stairs(M, L, tolerance) for M, L in balanced), key=_clarity)
    return _completed((scale * mask)[:, None] * best.basis, best)


def _stairs(A: np.ndarray, B: np.ndarray, tolerance: float) -> Subspace:
    """Return the controllable subspace of (A, B) by the staircase algorithm.
    A basis of the subspace is returned without a basis of its complement.
    """
    size, spread = np.linalg.norm(A, 2) or 1.0, np.linalg.norm(B, 2) or 1.0
    last, accepted, rejected = _range(B / spread, tolerance)
    basis = last
    while last.shape[1] and basis.shape[1] < len(A):
        block = A @ last / size
        for _ in range(2):  # twice, for orthogonality to rounding
            block = block - basis @ (basis.T @ block)
        last, kept, dropped = _range(block, tolerance)
        basis = np.hstack([basis, last])
        accepted, rejected = min(accepted, kept), max(rejected, dropped)
    return Subspace(basis, basis[:, :0], accepted, rejected)


def reached(
    A: Sequence[np.ndarray] | np.ndarray, B: Sequence[np.ndarray] | np.ndarray, tolerance: float = TOLERANCE
) -> Subspace:
    """Return the subspace of final states that inputs can reach from the state 0.
    The linear system is time-varying, for example a linearization along a trajectory.

    It is the subspace R_N in the recursion R_{k+1} = A_k R_k + im B_k with R_0 = 0.

    Parameters
    ----------
    A, B : sequences of N matrices (n, n), (n, m)
    tolerance : float
        As in `staircase`.

    Returns
    -------
    Subspace
        Subspace of the last state. The N steps are divided into 1, 2, 4 or 8 sections; the result is that of
        the number with the clearest decisions. A section is treated as one step, with the product of its A_k
        and a Gramian factor. For a very unstable motion, a single section hides directions that do not grow.
    """
    N, tolerance = len(A), as_share(tolerance, "tolerance")
    if N == 0 or len(B) != N:
        raise ValueError(f"expected N >= 1 matrices A and as many B, got {N} and {len(B)}")
    subspaces = []
    for count in (1, 2, 4, 8):
        if count <= N:
            cuts = np.linspace(0, N, count + 1).round().astype(int)
            subspaces.append(_stretches(A, B, cuts, tolerance))
    best = max(subspaces, key=_clarity)
    return _completed(best.basis, best)


def _stretches(A: Any, B: Any, cuts: np.ndarray, tolerance: float) -> Subspace:
    """Return the subspace of final states that inputs can reach from the state 0.
    `cuts` are indices of steps. The steps between two successive indices are composed to one step before the
    ranks are decided.
    """
    n = len(A[0])
    basis, accepted, rejected = np.zeros((n, 0)), np.inf, 0.0
    for start, stop in pairwise(cuts):
        power, factor = np.eye(n), np.zeros((n, 0))
        for k in range(start, stop):
            power = A[k] @ power
            factor = compressed(np.hstack([A[k] @ factor, B[k]]))
        image = power @ basis
        scale, mask = row_sizes(np.hstack([factor, image]))
        parts = [M * (mask / scale)[:, None] for M in (image, factor)]
        parts = [M / (np.linalg.norm(M, 2) or 1.0) for M in parts if M.size]
        basis, kept, rejected = _range(np.hstack(parts) if parts else basis, tolerance)
        basis, accepted = _orthonormal((scale * mask)[:, None] * basis), min(accepted, kept)
    return Subspace(basis, basis[:, :0], accepted, rejected)


def compressed(L: np.ndarray) -> np.ndarray:
    """Return a square-root factor of L L' with at most as many columns as rows."""
    return np.asarray(np.linalg.qr(L.T, mode="r")).T if L.shape[1] > L.shape[0] else L


def row_sizes(M: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the norms of a matrix's rows, and a mask of norms above rounding errors.

    A norm that is a rounding error is replaced by 1. The mask serves to remove such rows: divided by their
    norms, rounding errors would be as large as other motions.
    """
    rows = np.linalg.norm(M, axis=1)
    mask = rows > ROUNDING * rows.max(initial=0.0)
    return np.where(mask, rows, 1.0), mask


def _clarity(space: Subspace) -> float:
    """Return how certain the numerically decided dimension of a subspace is.
    The result is the ratio of the smallest accepted to the largest rejected singular value.

    The rejected value counts as at least eps/s, with the smallest accepted value s: a direction with singular
    value s has an error of eps/s, and so have all directions that follow from it.
    """
    least = min(space.accepted, 1.0)
    return least / max(space.rejected, np.finfo(float).eps / least)


def _completed(basis: np.ndarray, space: Subspace) -> Subspace:
    n, rank = basis.shape
    Q = np.linalg.qr(np.hstack([_orthonormal(basis), np.eye(n)]))[0]
    return Subspace(Q[:, :rank], Q[:, rank:], space.accepted, space.rejected)


def _orthonormal(basis: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(basis, axis=0)
    return np.linalg.qr(basis / np.where(norms > 0, norms, 1.0))[0]


def hautus_margins(A: np.ndarray, B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return each eigenvalue of A and a measure of its controllability.
    This is the test of Popov, Belevitch and Hautus: the measure is 0 for an uncontrollable mode.

    Returns
    -------
    eigenvalues : (n,), complex
    margins : (n,)
        Smallest over largest singular value of [s I - A, B], with columns of B of norm one; 0 if no input
        moves the mode. It is the larger of the values in the given units and in `natural_units`, since
        momenta of a machine of 100 t or of 1 mg make it small in kg and m.
    """
    A, B = input_pair(A, B)
    eigenvalues = np.linalg.eigvals(A).astype(complex)
    margins = np.zeros(len(A))
    for units in (np.ones(len(A)), natural_units(A)):
        scaled, pushes = A * units / units[:, None], _unit_columns(B / units[:, None])
        for i, s in enumerate(eigenvalues):
            singular = np.linalg.svd(np.hstack([s * np.eye(len(A)) - scaled, pushes]), compute_uv=False)
            if singular[0] > 0:
                margins[i] = max(margins[i], singular[-1] / singular[0])
    return eigenvalues, margins


def unstabilizable_modes(A: np.ndarray, B: np.ndarray, tolerance: float = TOLERANCE) -> np.ndarray:
    """Return the eigenvalues s of A with |s| >= 1 whose modes no input affects.
    No feedback can move these eigenvalues.

    Parameters
    ----------
    A : (n, n)
    B : (n, m)
    tolerance : float
        A mode is uncontrollable if its margin (`hautus_margins`) is at most this.

    Returns
    -------
    (number of modes,), complex
    """
    tolerance = as_share(tolerance, "tolerance")
    eigenvalues, margins = hautus_margins(A, B)
    return eigenvalues[(np.abs(eigenvalues) >= 1 - tolerance) & (margins <= tolerance)]


def unreached_modes(A: np.ndarray, B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return matrices F and W of the uncontrollable modes that do not decay.
    They obey W'A = F W' and W'B = 0. For the system z+ = A z + B v, the amplitudes a = W'z of these modes
    have the dynamics a+ = F a.

    Returns
    -------
    F : (m, m)
        Matrix with all eigenvalues |s| >= 1 - 1e-6 of the uncontrollable part of A (`staircase`).
    W : (n, m)
        Orthonormal basis.
    """
    N = staircase(A, B).complement
    if not N.shape[1]:
        return np.zeros((0, 0)), N
    # eigenvalues outside of the circle of radius 1 - UNSETTLED come first
    upper, Z, m = schur((N.T @ A @ N).T / (1 - UNSETTLED), sort="ouc")
    return (1 - UNSETTLED) * upper[:m, :m].T, N @ Z[:, :m]


def grows(F: np.ndarray) -> bool:
    """Return whether a linear system z+ = F z certainly has a growing mode.
    Modes that drift, and modes that grow by less than the uncertainty of F (`sides`), do not count.
    """
    return bool((sides(F, np.linalg.eigvals(F)) > 0).any())


def stuck_modes(
    A: np.ndarray, B: np.ndarray, names: Sequence[str], T: np.ndarray | None = None, *, circle: bool = False
) -> str:
    """Return a text with the eigenvalues that no feedback can move.
    For each eigenvalue the text also names the states that move in its uncontrollable modes.

    Parameters
    ----------
    A, B : (n, n), (n, nu)
    names : ndx names
    T : (ndx, n), optional
        Basis with z = T' dx; by default the identity.
    circle : bool
        Include only eigenvalues on the unit circle, not all with |s| >= 1.

    Returns
    -------
    str
        Eigenvalues with their uncontrollable combinations w'z of the state, such as ``1 (of x - r)``; w is a
        left eigenvector of A. Several w with one eigenvalue are separated by elimination.
    """
    F, W = unreached_modes(A, B)
    W = W if T is None else T @ W
    values = np.linalg.eigvals(F)
    texts: list[str] = []
    eigenvalues: list[complex] = []
    for s in values[values.imag >= 0]:
        if (circle and abs(s) > 1 + UNSETTLED) or any(abs(s - other) <= UNSETTLED for other in eigenvalues):
            continue
        eigenvalues.append(s)
        count = int((np.abs(values - s) <= UNSETTLED).sum())  # with what drifts by what stays, as p.x and x
        U = np.linalg.svd(np.linalg.matrix_power(F - s * np.eye(len(F)), count))[0]
        for row in eliminated((W @ U[:, -count:].conj()).T):
            value = s if abs(s.imag) > UNSETTLED else s.real
            texts.append(f"{value:.6g} (of {_combination(row, names)})")
    return ", ".join(texts)


def _combination(row: np.ndarray, names: Sequence[str]) -> str:
    """Return a linear combination of named states as text, without its small terms.
    The first coefficient is 1. If coefficients are complex, only the names are listed.
    """
    large = [int(i) for i in np.flatnonzero(np.abs(row) > 0.1 * np.abs(row).max())]
    factors = row[large] / row[large[0]]
    if np.abs(factors.imag).max() > UNSETTLED * np.abs(factors).max():
        return ", ".join(names[i] for i in large)
    terms = [f"{factor:+.3g} {names[i]}" for i, factor in zip(large, factors.real, strict=True)]
    text = " ".join(f"{term[0]} {term[1:].removeprefix('1 ')}" for term in terms)
    return text.removeprefix("+ ")


def eliminated(rows: np.ndarray) -> np.ndarray:
    """Return a basis of a matrix's row space with few nonzero elements in every row.

    It results from Gaussian elimination with pivoting: each row has a leading 1. The shape is (m, n).
    """
    upper, order = qr(rows, mode="r", pivoting=True)
    m = len(rows)
    return np.asarray(np.linalg.solve(upper[:m, :m], upper[:m])[:, np.argsort(order)])


def undetectable_modes(A: np.ndarray, C: np.ndarray, tolerance: float = TOLERANCE) -> np.ndarray:
    """Return the eigenvalues s of A with |s| >= 1 whose modes no output shows.
    No estimator reduces the errors of these modes.

    C is (p, n). See `unstabilizable_modes`.
    """
    A, C = output_pair(A, C)
    return unstabilizable_modes(A.T, C.T, tolerance)


def _range(M: np.ndarray, tolerance: float) -> tuple[np.ndarray, float, float]:
    """Return an orthonormal basis of a matrix's column space.
    Two singular values are returned, too: the smallest above the tolerance and the largest below it.
    """
    if not M.size:
        return np.zeros((len(M), 0)), np.inf, 0.0
    U, singular, _ = np.linalg.svd(M, full_matrices=False)
    keep = singular > tolerance
    return U[:, keep], float(singular[keep].min(initial=np.inf)), float(singular[~keep].max(initial=0.0))


def _unit_columns(B: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(B, axis=0)
    return B / np.where(norms > 0, norms, 1.0)


def input_pair(A: np.ndarray, B: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Check the system matrices A (n, n) and B (n, m), and return them as arrays."""
    A, B = as_floats(A, "A"), as_floats(B, "B")
    if A.ndim != 2 or A.shape[0] != A.shape[1] or B.ndim != 2 or len(B) != len(A):
        raise ValueError(f"expected A (n, n) and B (n, m), got {A.shape} and {B.shape}")
    for what, M in (("A", A), ("B", B)):
        if not np.isfinite(M).all():
            i, j = np.argwhere(~np.isfinite(M))[0]
            raise ValueError(f"{what}: expected finite numbers, got {M[i, j]} in row {i}, column {j}")
    return A, B


def output_pair(A: np.ndarray, C: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Check the system matrices A (n, n) and C (p, n), and return them as arrays."""
    A, C = as_floats(A, "A"), as_floats(C, "C")
    if A.ndim != 2 or A.shape[0] != A.shape[1] or C.ndim != 2 or C.shape[1] != len(A):
        raise ValueError(f"expected A (n, n) and C (p, n), got {A.shape} and {C.shape}")
    return A, C
