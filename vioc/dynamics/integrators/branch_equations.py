"""Equations of the branch of roots of a step: what a solver needs that follows the branch.

The equations of a step have a branch of roots that begins, at length 0, with the velocities of the state. The
solution of the step is the root on that branch (docs/maths/midpoint.md, "Which root is the step").
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np

from vioc.errors import StepError

# Largest ratio of Newton corrections with which a root is certified to be the only one near the guess, so
# that it lies on the branch of the guess. The theorem of Newton and Kantorovich asks for a quarter; the ratio
# is smaller since the Lipschitz constant is estimated from two corrections.
CONTRACTION = 0.125
CORRECTIONS = 12  # for one root at most; six reach rounding if they contract so fast
DIFFERENCE = 1e-5  # step of difference quotients, relative to a share


class Linearized(NamedTuple):
    """Residual and Jacobian of the equations of a step at one Newton iterate.
    The equations are r(w) + G lambda = 0, g(w) = 0. The unknowns are the rates w (n,) and the multipliers
    lambda, which enter linearly, with the matrix G.

    Attributes
    ----------
    residual : (n + m,)
        r without multipliers, then g.
    matrix : (n + m, n + m)
        Jacobian by w and lambda: [[D, G], [J, 0]].
    """

    residual: np.ndarray
    matrix: np.ndarray


class BranchRoot(NamedTuple):
    """Root of the equations of a step that is shortened to a fraction of its length.
    After a failed search for the root, it is the last iterate.

    Attributes
    ----------
    w, multipliers : (n,), (m,)
    error : float
        Last correction, as a displacement relative to the size of the configuration. It is infinite if the
        corrections do not contract as a certified root needs, nan if equations were not finite.
    share : float
        Share of the step's length to which the root belongs.
    given_up : bool
        Whether the search ended before the branch did.
    folds : bool
        Whether the branch ends just beyond this root: at a fold, where branches cross, or where the equations
        are not finite.
    """

    w: np.ndarray
    multipliers: np.ndarray
    error: float
    share: float
    given_up: bool = False
    folds: bool = False


class BranchEquations(ABC):
    """Equations of one step that can be shortened to any fraction of its length.
    Continuation follows their roots. The unknowns are rates w, such as velocities, and multipliers.

    Attributes
    ----------
    dt : float
        Length of the step, s.
    start : (n,)
        Value of w at length 0.
    weights : (n,)
        Factors with which corrections of w are compared: square roots of masses.
    size : (n,)
        Displacement over the whole step per unit of w, relative to the size of the configuration.
    turns : (n,)
        Angle over the whole step per unit of w; 0 for components of w that turn nothing.
    by_arclength : bool
        Whether `rate_by_share` is exact, so that the branch can be followed by its arclength.
    contact : bool
        Whether the forces include impulses of contact. If so, the determinant of the whole step is compared
        only with those of shortened steps, and not with that at length 0, where no contact acts.
    """

    dt: float
    start: np.ndarray
    weights: np.ndarray
    size: np.ndarray
    turns: np.ndarray
    by_arclength: bool = False
    contact: bool = False

    @abstractmethod
    def __call__(self, w: np.ndarray, share: float) -> Linearized:
        """Return residual and Jacobian of the equations of a shortened step.
        They are evaluated at the rates w; `share` > 0 is the fraction of the step length, about 1 at most.
        """

    def rate_by_share(self, w: np.ndarray, multipliers: np.ndarray, share: float) -> np.ndarray:
        """Return the derivative (n + m,) of the residual with respect to the share, at fixed unknowns.
        The unknowns are the rates w (n,) and the multipliers (m,). By default it is a difference quotient.
        """
        n, by = len(w), DIFFERENCE * share
        more, less = self(w, share + by), self(w, share - by)
        difference = more.residual - less.residual + (more.matrix - less.matrix)[:, n:] @ multipliers
        return difference / (2 * by)

    def reason(self, root: BranchRoot) -> str:
        """Return a text that explains why the branch of roots has a fold.
        The text is empty if the reason is unknown.
        """
        return ""

    @abstractmethod
    def failure(self, root: BranchRoot, k: int, where: str) -> StepError | None:
        """Return the error that explains why step k has no solution, or None.
        The result is None if the cause is unknown. The search for the solution ended at `root`;
        `where` is the beginning of the error's text.
        """


def singular_solution(now: Linearized) -> np.ndarray:
    """Return the shortest correction that solves linearized equations with a singular matrix, NaN if none."""
    if not (np.isfinite(now.matrix).all() and np.isfinite(now.residual).all()):
        return np.full(len(now.residual), np.nan)
    shortest = np.linalg.lstsq(now.matrix, -now.residual, rcond=None)[0]
    rest, size = now.matrix @ shortest + now.residual, np.linalg.norm(now.residual)
    return shortest if np.linalg.norm(rest) <= CONTRACTION * size else np.full(len(shortest), np.nan)


def newton(
    equations: BranchEquations, w: np.ndarray, share: float, tolerance: float
) -> tuple[BranchRoot, np.ndarray | None, int]:
    """Solve the equations of a step by Newton's method.
    The iteration starts from the rates w, for the fraction `share` of the step, and ends if its corrections
    do not contract. The results are the root, the Newton matrix there, and the number of evaluations.

    If no root was found, the matrix is None, and the error of the root is infinite, or NaN if the equations
    were not finite.
    """
    n, lam, last = len(w), np.zeros(0), np.inf
    for count in range(1, CORRECTIONS + 1):
        now = equations(w, share)
        try:
            step = np.linalg.solve(now.matrix, -now.residual)
        except np.linalg.LinAlgError:  # at the pole of spherical coordinates any azimuth may solve the step
            step = singular_solution(now)
        by, after = step[:n], step[n:]
        weighted, relative = equations.weights * by, equations.size * by
        size, error = math.sqrt(weighted @ weighted), abs(share) * math.sqrt(relative @ relative)
        if not math.isfinite(size):
            finite = np.isfinite(now.residual).all() and np.isfinite(now.matrix).all()
            return BranchRoot(w, lam, np.inf if finite else np.nan, share), None, count
        w, lam, slow = w + by, after, not size <= CONTRACTION * last
        if error <= (tolerance if slow else tolerance / 10):  # slow and within the tolerance: rounding
            return BranchRoot(w, lam, error, share), now.matrix, count
        if slow:
            break
        last = size
    return BranchRoot(w, lam, np.inf, share), None, count
