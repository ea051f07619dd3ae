"""Damped Gauss-Newton method for the identification problem in multiple shooting.

See (ID-5).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.sparse.linalg import splu

from vioc.errors import ConstraintError, StepError
from vioc.identification.segments import Prediction, Segments, Trial
from vioc.progress import Progress

FIRST, LEAST, MOST = 1e-3, 1e-12, 1e8  # first, smallest and largest damping
TINY = 1e-14  # smallest diagonal element over the largest one
SHARES = 1.0, 0.5, 0.25, 0.1  # step lengths tried, since damping does not shorten steps that close defects
REFUSED = 8  # consecutive rejected steps after which the search ends
REACH = 2.0  # largest step: e-folds of a positive number, or multiples of another's size
SETTLED = 1e-9  # damping of the last step, which limits changes in directions that are not identifiable
NEAR = 1e-2  # predicted reduction, over the merit or its noise, below which loose defects are closed
TIGHTER, LEVELS = 100.0, 6  # divisor of the defects' variances if closing at once fails; most divisions
NOTHING, STILL = 1e-6, 4  # relative reduction that may be amplified rounding; consecutive steps below it
ROUNDED = "converged to the limit of rounding"
ROUNDING = 1e-11  # relative reduction of the cost that is rounding


@dataclass
class Fit:
    """Result of the Gauss-Newton search for the unknowns of an identification.
    The unknowns are parameters, unknown inputs, and the initial states of segments of the records.

    Attributes
    ----------
    trial, prediction
        The best values of all unknowns, and their prediction with derivatives.
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


def fit(segments: Segments, trial: Trial, max_iterations: int, tolerance: float) -> Fit:
    """Minimize half the sum of squared residuals, subject to zero defects.

    At first defects are treated as measurement errors of their initial size (ID-5a), so that parameters fit
    all segments before these are joined. The search has converged if the predicted reductions of the cost and
    of the defects' penalty are at most `tolerance`, in units of one observation's variance.

    Raises
    ------
    StepError
        If the first trial has no motion.
    """
    trial = segments.seamless(trial, segments.predict(trial, derivatives=False))
    now = segments.predict(trial)
    loose, level, fallback = segments.spread(now), 0, None
    damping, costs, stalls, white = FIRST, [now.cost], 0, len(now.residuals) / 2
    with Progress("identify", max_iterations, 1) as progress:
        for k in range(max_iterations):
            progress.advance()
            failures = 0
            while True:
                way = _Way(segments, trial, now, damping, loose)
                if loose is not None and way.most < 1.0 and damping < MOST:  # shorten long directions
                    damping = max(10.0 * damping, 1e-6)
                    continue
                if loose is not None and (
                    failures == REFUSED or way.promised <= NEAR * max(way.merit(now), white)
                ):
                    fallback = trial, now, loose / TIGHTER
                    loose, damping, failures = None, min(damping, FIRST), 0
                    continue
                if loose is None:
                    reduction = max(abs(way.gain), way.gap_reduction)
                    if reduction <= tolerance + ROUNDING * now.cost and damping <= FIRST:
                        return Fit(trial, now, k, costs, True, "converged")
                    stalls = stalls + 1 if reduction <= NOTHING * now.cost else 0
                    if stalls > STILL:
                        return Fit(trial, now, k, costs, True, ROUNDED)
                share, decrease, next_trial = _accepted_step(segments, trial, now, way)
                if share:
                    break
                failures += 1
                damping = min(max(10.0 * damping, 1e-6), MOST)
                if failures == REFUSED and loose is None:
                    small = way.promised <= NOTHING * max(now.cost, 1.0)
                    if fallback is not None and not small and level < LEVELS:
                        trial, now, loose = fallback
                        level, failures, damping = level + 1, 0, FIRST
                        continue
                    why = ROUNDED if small else "no descent: no trial step lowers the cost"
                    return Fit(trial, now, k, costs, small, why)
            if share == way.most:
                damping = max(damping / (10.0 if decrease > 0.75 * share * way.promised else 2.0), LEAST)
            elif loose is not None:
                damping = min(damping / share, MOST)
            trial = next_trial
            now = segments.predict(trial)
            costs.append(now.cost)
    return Fit(
        trial,
        now,
        max_iterations,
        costs,
        False,
        f"not finished in {max_iterations} iterations; raise max_iterations=",
    )


class _Way:
    """Damped Gauss-Newton step of an identification.
    The step starts from the values `trial` of all unknowns; `now` has the predicted measurements for these
    values.

    Without `loose`, zero defects are constraints (ID-5). Otherwise defects are treated as measurement errors
    with the variances `loose` (ID-5a).

    Attributes
    ----------
    step : (n,)
    gain, apart, promised : float
        Predicted reductions of the cost, of the defects' terms in the merit function, and of both together.
    most : float
        Largest step length that moves no parameter farther than `REACH`.
    """

    def __init__(
        self,
        segments: Segments,
        trial: Trial,
        now: Prediction,
        damping: float,
        loose: np.ndarray | None = None,
    ):
        assert now.J is not None and now.E is not None
        self.loose, self._gaps = loose, now.gaps
        H, gradient = (now.J.T @ now.J).tocsc(), now.J.T @ now.residuals
        nz, size, diagonal = segments.nz, segments.unknowns.size(trial.z), H.diagonal()
        diagonal[:nz] = np.maximum(diagonal[:nz], size**-2.0)
        least, self._gap_scales = segments.sizes(now.bases, diagonal)
        diagonal = np.maximum(diagonal, np.maximum(TINY * least, 1e-300))
        # factors that make the system unit-free
        self._unit = np.concatenate([1 / np.sqrt(diagonal), 1 / self._gap_scales])
        n = len(diagonal)
        C, R = sparse.diags(self._unit[:n]), sparse.diags(self._unit[n:])
        scaled = C @ H @ C + (damping + TINY) * sparse.identity(n)
        self._K = saddle(
            scaled.tocsc(), R @ now.E @ C, None if loose is None else loose / self._gap_scales**2
        )
        solution = self._solution(-np.concatenate([gradient, now.gaps]))
        self.step = solution[:n]
        self.gain = -float(gradient @ self.step + 0.5 * self.step @ (H @ self.step))
        if loose is None:
            self._weight = 1.5 * float(np.abs(solution[n:] * self._gap_scales).max(initial=0.0))
            self.gap_reduction = self._of_gaps(now.gaps)
        else:
            self.gap_reduction = self._of_gaps(now.gaps) - self._of_gaps(now.gaps + now.E @ self.step)
        self.promised = self.gain + self.gap_reduction
        self.most = min(1.0, REACH / max(float(np.abs(self.step[:nz] / size).max(initial=0.0)), 1e-300))

    def merit(self, prediction: Prediction) -> float:
        return prediction.cost + self._of_gaps(prediction.gaps)

    def corrected(self, prediction: Prediction) -> np.ndarray:
        """Return the Gauss-Newton step with a second-order correction.
        The correction reduces the defects that remain after the step without correction; the argument
        `prediction` contains these defects.
        """
        n = len(self.step)
        return self.step + self._solution(np.concatenate([np.zeros(n), -prediction.gaps]))[:n]

    def _solution(self, right: np.ndarray) -> np.ndarray:
        return self._unit * self._K.solve(self._unit * right)

    def _of_gaps(self, gaps: np.ndarray) -> float:
        if self.loose is None:
            return self._weight * float(np.abs(gaps / self._gap_scales).sum())
        return 0.5 * float(np.sum(gaps**2 / self.loose))


def _accepted_step(
    segments: Segments, trial: Trial, now: Prediction, way: _Way
) -> tuple[float, float, Trial]:
    """Find a length of the Gauss-Newton step that reduces the merit function.
    Return the length, the reduction of the merit, and the new values of all unknowns.

    The length is 0 if no step is accepted.
    """
    before = way.merit(now)

    def attempt(step: np.ndarray) -> tuple[float, Trial, Prediction | None]:
        next_trial = trial
        try:
            next_trial = segments.moved(trial, step, now.bases)
            prediction = segments.predict(next_trial, derivatives=False)
        except (StepError, ConstraintError):
            return -np.inf, next_trial, None
        return before - way.merit(prediction), next_trial, prediction

    for share in (way.most * s for s in SHARES):
        decrease, next_trial, prediction = attempt(share * way.step)
        if (
            share == 1.0
            and way.loose is None
            and prediction is not None
            and not decrease > 1e-4 * way.promised
        ):
            second = attempt(way.corrected(prediction))
            decrease, next_trial, prediction = (
                second if second[0] > decrease else (decrease, next_trial, prediction)
            )
        if prediction is not None and decrease > 1e-4 * share * way.promised and np.isfinite(decrease):
            return share, decrease, segments.seamless(next_trial, prediction)
    return 0.0, 0.0, trial


def half_step(segments: Segments, trial: Trial) -> np.ndarray:
    """Return the first-order change of parameter estimates if time steps are halved.

    The time steps are those of the simulation that predicts the measurements; `segments` has them already at
    half the length. The change (n,) is one Gauss-Newton step from the estimates `trial`.
    """
    segments.plainly = True
    prediction = segments.predict(trial)
    return _Way(segments, trial, prediction, SETTLED).step[: segments.nz]


def saddle(H: sparse.spmatrix, E: sparse.spmatrix, loose: np.ndarray | None = None):
    """Factorize the saddle-point matrix [[H, E'], [E, -diag(loose)]].
    H is the Hessian of the cost, and E is the Jacobian of the defects. The variables are all unknowns of the
    identification. Without `loose`, the last block is 0.
    """
    if not E.shape[0]:
        return splu(sparse.csc_matrix(H))
    return splu(sparse.bmat([[H, E.T], [E, None if loose is None else -sparse.diags(loose)]], format="csc"))


def information(segments: Segments, trial: Trial) -> tuple[np.ndarray, np.ndarray]:
    """Return the Fisher information on all parameters jointly, and on each alone.

    The first result (n, n) is the information if initial states and unknown inputs are also estimated, with
    zero defects. The second (n,) is the information on each parameter if all other unknowns were known. Other
    unknowns that are not identifiable are limited only by rounding. See (ID-10).
    """
    segments.plainly = True
    now, count = segments.predict(trial), segments.nz
    assert now.J is not None and now.E is not None
    n, m = now.J.shape[1], now.E.shape[0]
    H = (now.J.T @ now.J).tocsc()
    if n == count:
        return H.toarray(), H.diagonal()
    least, gap_scales = segments.sizes(now.bases, H.diagonal())
    diagonal = np.maximum(H.diagonal(), np.maximum(TINY * least, 1e-300))
    rest = H[count:, count:] + sparse.diags(1e-12 * diagonal[count:])
    E = sparse.diags(1 / gap_scales) @ now.E.tocsc() if m else now.E.tocsc()
    right = np.concatenate([H[count:, :count].toarray(), E[:, :count].toarray()])
    solution = saddle(rest, E[:, count:]).solve(right) if n - count + m else right
    joint = H[:count, :count].toarray() - right.T @ solution
    alone = H.diagonal()[:count] + np.abs(right * solution).sum(axis=0)  # magnitudes of subtracted terms
    return (joint + joint.T) / 2, alone
