"""Gauss-Newton with damping on residuals and gaps: (ID-5)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import splu

from vioc.control.identification.segments import Prediction, Segments, Trial
from vioc.errors import StepError
from vioc.progress import Progress

FIRST, LEAST, MOST = 1e-3, 1e-12, 1e8  # damping
TINY = 1e-14  # of the largest diagonal entry: what none falls below
SHARES = 1.0, 0.5, 0.25, 0.1  # of a step, that are tried: no damping shortens what closes gaps
REFUSED = 8  # steps in a row after which there is no descent
SETTLED = 1e-9  # damping of a last step: what nothing is told of does not run away
NOTHING, STILL = 1e-6, 4  # of the cost: what chaos makes of rounding; steps in a row that gain no more
ROUNDED = "converged to what rounding lets be told"
ROUNDING = 1e-11  # of the cost: what no step can be told to gain


@dataclass
class Fit:
    """How a search ended.

    Attributes
    ----------
    trial, prediction
        The best one, with derivatives there.
    iterations : int
    costs : list of float
    converged : bool
    verdict : str
    """

    trial: Trial
    prediction: Prediction
    iterations: int
    costs: list[float]
    converged: bool
    verdict: str


def fit(segments: Segments, trial: Trial, iterations: int, tolerance: float) -> Fit:
    """Minimize half the sum of squares subject to closed gaps.

    A search has converged where the model promises to gain less than `tolerance`, in units of one
    observation's variance, and gaps are closed to the square root of it in theirs.

    Raises
    ------
    StepError
        Where the first trial has no motion.
    """
    now = segments.predict(trial)
    damping, costs, still = FIRST, [now.cost], 0
    with Progress("identify", iterations, 1) as progress:
        for k in range(iterations):
            progress.advance()
            refused = 0
            while True:
                step, multipliers, gain = _step(now, damping)
                weight = 1.5 * float(np.abs(multipliers).max(initial=0.0))
                apart = weight * float(np.abs(now.gaps).sum())
                promised = gain + apart
                if max(abs(gain), apart) <= tolerance + ROUNDING * now.cost and damping <= FIRST:
                    return Fit(trial, now, k, costs, True, "converged")
                still = still + 1 if max(abs(gain), apart) <= NOTHING * now.cost else 0
                if still > STILL:
                    return Fit(trial, now, k, costs, True, ROUNDED)
                for share in SHARES:
                    there = segments.moved(trial, share * step, now.bases)
                    try:
                        new = segments.predict(there, derivatives=False)
                        lower = _merit(now, weight) - _merit(new, weight)
                    except StepError:
                        lower = -np.inf
                    if lower > 1e-4 * share * promised and np.isfinite(lower):
                        break
                else:
                    share = 0.0
                if share:
                    break
                refused += 1
                damping = min(max(10.0 * damping, 1e-6), MOST)
                if refused == REFUSED:
                    small = promised <= NOTHING * max(now.cost, 1.0)
                    why = ROUNDED if small else "no descent: no trial step lowers the cost"
                    return Fit(trial, now, k, costs, small, why)
            if share == 1.0:
                damping = max(damping / (10.0 if lower > 0.75 * promised else 2.0), LEAST)
            trial = there
            now = segments.predict(trial)
            costs.append(now.cost)
    return Fit(
        trial, now, iterations, costs, False, f"not finished in {iterations} iterations; raise iterations="
    )


def half_step(segments: Segments, trial: Trial) -> np.ndarray:
    """Where one more step leads of the same records in half the steps: z (nz,), to first order."""
    found = segments.predict(trial)
    return trial.z + _step(found, SETTLED)[0][: segments.nz]


def _merit(found: Prediction, weight: float) -> float:
    return found.cost + weight * float(np.abs(found.gaps).sum())


def _step(now: Prediction, damping: float) -> tuple[np.ndarray, np.ndarray, float]:
    """The damped step, multipliers of the gaps, and what the model gains of the cost."""
    assert now.J is not None and now.E is not None
    J, E, g = now.J, now.E, now.gaps
    H, gradient = (J.T @ J).tocsc(), J.T @ now.residuals
    diagonal = np.maximum(H.diagonal(), TINY * max(H.diagonal().max(), 1e-300))
    K = saddle(H + sparse.diags(damping * diagonal + TINY * diagonal.max()), E)
    solution = K.solve(-np.concatenate([gradient, g]))
    step, multipliers = solution[: len(diagonal)], solution[len(diagonal) :]
    gain = -float(gradient @ step + 0.5 * step @ (H @ step))
    return step, multipliers, gain


def saddle(H: sparse.spmatrix, E: sparse.spmatrix):
    """Factors of [[H, E'], [E, 0]]."""
    m = E.shape[0]
    return splu(sparse.bmat([[H, E.T], [E, None]], format="csc") if m else sparse.csc_matrix(H))


def information(now: Prediction, count: int) -> np.ndarray:
    """That of the first `count` unknowns with all others free, (count, count): (ID-10).

    Gaps stay closed. What the data do not tell of the others is held by rounding alone.
    """
    assert now.J is not None and now.E is not None
    n, m = now.J.shape[1], now.E.shape[0]
    H = (now.J.T @ now.J).tocsc()
    if n == count:
        return H.toarray()
    diagonal = np.maximum(H.diagonal(), TINY * max(H.diagonal().max(), 1e-300))
    rest = H[count:, count:] + sparse.diags(1e-12 * diagonal[count:])
    E = now.E.tocsc()
    right = np.concatenate([H[count:, :count].toarray(), E[:, :count].toarray()])
    solved = saddle(rest, E[:, count:]).solve(right) if n - count + m else right
    found = H[:count, :count].toarray() - right.T @ solved
    return (found + found.T) / 2
