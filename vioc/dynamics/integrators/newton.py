"""Numerical solution of one step by continuation in the step length.

The equations of a step have a branch of roots that begins, at length 0, with the velocities of the state. The
solution of the step is the root on that branch (docs/maths/midpoint.md, "Which root is the step"). In nearly
all steps a kernel, a CasADi function, certifies its root by the contraction of its iteration. The other steps
are solved here with dense matrices, for any equations that return a residual and its Jacobian.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np

from vioc.dynamics.consistency import RANK_TOLERANCE, rank_of_rows
from vioc.errors import StepError

# Largest ratio of Newton corrections with which a root is certified to be the only one near the guess, so
# that it lies on the branch of the guess. The theorem of Newton and Kantorovich asks for a quarter; the ratio
# is smaller since the Lipschitz constant is estimated from two corrections. Near singular positions `bends`
# tests the direction, too.
CONTRACTION = 0.125
CORRECTIONS = 12  # for one root at most: from a guess within the ball above, six reach rounding
SHORTEST = 2.0**-16  # least relative growth of the share, below which the branch counts as ended
SINGULAR = 1e9  # condition number above which the matrix at length 0 counts as singular
EVALUATIONS = 2000  # largest number of evaluations of the equations of one step
NEXT = 2.0**-10  # first stride beyond `start`, relative to its share
# Relative distance from dependence, below which constraints at the last root of a branch count as dependent:
# a branch ends within twice `SHORTEST` of a singular position, plus a margin
NEAR = 1e-4
CHANGE = 0.5  # largest relative change of the matrix from one root to the next
STEADY = CONTRACTION**3  # relative error of w allowed in extrapolation without acceleration
ONE = 1e-6  # relative displacement below which two roots are one: above tolerances, below distances of roots
# Distances beyond the last root where a fold is sought, in units of the smallest share that failed
FOLD_REACH = (2.0, 4.0, 8.0, 16.0)
DIFFERENCE = 1e-6  # step of difference quotients, relative to a share
TURN = 0.5  # largest angle of one share: along it the matrix changes by half at most


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
        Whether the search ended before the branch did, after too many evaluations or near a pole of Euler
        angles.
    """

    w: np.ndarray
    multipliers: np.ndarray
    error: float
    share: float
    given_up: bool = False


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
    charted : bool
        Whether three of the angles are Euler angles of a free rotation, which have poles.
    contact : bool
        Whether the forces include impulses of contact. If so, the determinant of the whole step is compared
        only with those of shortened steps, and not with that at length 0, where no contact acts.
    """

    dt: float
    start: np.ndarray
    weights: np.ndarray
    size: np.ndarray
    turns: np.ndarray
    charted: bool = False
    contact: bool = False

    @abstractmethod
    def __call__(self, w: np.ndarray, share: float) -> Linearized:
        """Return residual and Jacobian of the equations of a shortened step.
        They are evaluated at the rates w; `share` in (0, 1] is the fraction of the step length.
        """

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


def solve_step(
    equations: BranchEquations, k: int, t: float, tolerance: float, start: BranchRoot | None = None
) -> BranchRoot:
    """Solve step k by continuation in its length, and return the root.
    The continuation follows the branch of roots that starts at length 0 at the present state, or at the root
    `start`.

    Raises
    ------
    StepError
        With the cause that the equations find, else with the cause ``"fold"`` and the largest length for
        which the step exists.
    """
    dt = equations.dt
    with np.errstate(all="ignore"):  # overflow and NaN are tested for
        root = follow(equations, tolerance, start)
    if root.share == 1.0 and root.error <= tolerance:
        return root
    where = f"step {k} (t = {t:.6g} s, dt = {dt:g} s) does not exist"
    with np.errstate(all="ignore"):
        failure = equations.failure(root, k, where)
    if failure is not None:
        raise failure
    if root.given_up:
        raise StepError(
            f"step {k} (t = {t:.6g} s, dt = {dt:g} s) was not solved: its root could be followed only up to "
            f"{root.share * dt:.3g} s. The motion turns too far for one step, or comes to a singular "
            "attitude of its coordinates; use a smaller dt (f.with_dt, f.substeps(n)), or other coordinates "
            "(vioc.dynamics.charts.rollout_charts)",
            k,
            float(root.error),
            "no convergence",
        )
    if root.share > 0:
        length, why = root.share * dt, equations.reason(root)
        raise StepError(
            f"{where}: from this state the equations have a motion for steps up to {length:.3g} s, where its "
            f"branch of solutions folds back{why}. Use a smaller dt (f.with_dt, f.substeps(n)); "
            "rollout(..., adaptive=True) cuts such steps, to look at the motion",
            k,
            float(root.error),
            "fold",
            length=length,
        )
    raise StepError(
        f"step {k} (t = {t:.6g} s, dt = {dt:g} s) was not solved: its root could not be followed from the "
        "velocities of this state, by no share of the step; check the state, and whether its coordinates (an "
        "attitude beside the pole of its chart) or constraints are singular; steps of another length may be "
        "solved (f.with_dt, f.substeps(n), rollout(..., adaptive=True))",
        k,
        float(root.error),
        "no convergence",
    )


def follow(equations: BranchEquations, tolerance: float, start: BranchRoot | None = None) -> BranchRoot:
    """Follow the branch of roots of a step with growing length.
    The branch starts at length 0, or at the root `start`. The step is solved for increasing fractions of its
    length. The guess of each root is extrapolated from the last two roots. The result is the last root found.

    A root is accepted only if Newton's corrections contract so fast that no other root is near, and if the
    Newton matrix has changed so little since the last root that it is regular in between. There is one
    exception: the branch may pass straight through a position where constraints are dependent and the matrix
    is singular. Then the determinant of the momentum balance alone must keep the sign of the mass matrix's,
    and the branch must be straight. It is straight if w changes by less than an eighth of w, and if the
    errors of the extrapolation and of the derivative of the root are less than an eighth of this change or
    less than 8^-3 of w. At a fold, in contrast, the branch turns aside.
    """
    last, before = BranchRoot(equations.start, np.zeros(0), np.inf, 0.0), None
    stride, spent, infinite, near_pole = 1.0, 0, False, False
    failed, good = np.inf, 0  # the last share without a root, and the number of roots found since
    n = len(equations.start)
    there = equations(equations.start, SHORTEST).matrix
    of_masses, sign = (orientation(a, equations.weights) for a in (there[:n, :n], there))
    if equations.contact:
        sign = 0.0
    if start is not None:
        last, stride = start, NEXT * start.share
        there = equations(last.w, last.share).matrix
        sign = np.linalg.slogdet(there)[0]
    while spent < EVALUATIONS:
        turn = float(np.abs(equations.turns * last.w).max(initial=0.0))
        share = min(1.0, last.share + min(stride, TURN / max(turn, TURN)))
        guess = last.w
        if before is not None:
            guess = guess + (last.w - before.w) * (share - last.share) / (last.share - before.share)
        trial, matrix, count = newton(equations, guess, share, tolerance)
        spent, infinite = spent + count, infinite or bool(np.isnan(trial.error))
        off, change, size = (
            np.linalg.norm(equations.weights * a) for a in (trial.w - guess, trial.w - last.w, trial.w)
        )
        straight = change <= CONTRACTION * size and off <= max(CONTRACTION * change, STEADY * size)
        same = taken = False
        if straight:
            straight, spent = not bends(equations, trial, last, matrix), spent + 2
        if matrix is not None:
            balance, now = (float(np.linalg.slogdet(A)[0]) for A in (matrix[:n, :n], matrix))
            balanced, same = balance * of_masses >= 0, now * sign >= 0
            if equations.contact or not sign:
                taken = balanced and (straight or same)
            else:
                taken = (straight and balanced) or (same and regular_between(there, matrix))
            taken = taken and clear_of_poles(equations, matrix, trial, last)
        if matrix is not None and taken:
            if share == 1.0:
                return trial
            before, last, sign, there = last, trial, now, matrix
            failed, good = (failed if share < failed else np.inf), good + 1
            # first half of the way to the share that failed; after two roots, this share again
            stride = 2 * stride if np.isinf(failed) else (failed - share) / (2 if good < 2 else 1)
        else:
            near_pole = near_pole or (equations.charted and same)
            # A share that fails twice may lie near a singular position of the constraints. The shares between
            # it and the last root come ever closer to that position, so one share beyond it is tried first.
            if good >= 2 and share >= failed * (1 - SHORTEST) and len(there) > n:
                failed, good, stride = share, 0, 2 * (share - last.share)
                continue
            failed, good = min(share, failed), 0
            stride = (failed - last.share) / 2
            if stride < SHORTEST * max(last.share, SHORTEST):
                given_up = near_pole and not turns_back(equations, last, 2 * stride, tolerance)
                last = last._replace(given_up=given_up)
                break
    else:
        last = last._replace(given_up=True)
    return last._replace(error=np.nan if infinite else np.inf)


def bends(equations: BranchEquations, at: BranchRoot, last: BranchRoot, matrix: np.ndarray | None) -> bool:
    """Return whether the branch of roots turns away from a straight line.
    The line goes through the last two roots, `last` and `at`. Another branch that crosses near a singular
    position also has roots near this line, but another direction. The direction of the branch is the
    derivative of the root with respect to the fraction of the step length; it is computed with the Newton
    `matrix` at the root `at`. If this matrix is None, the result is True.
    """
    if matrix is None:
        return True
    n, rate = len(at.w), rate_by_share(equations, at.w, at.multipliers, at.share)
    try:
        along = np.linalg.solve(matrix, -rate)[:n]
    except np.linalg.LinAlgError:
        return True
    way = at.w - last.w
    off, change, size = (
        np.linalg.norm(equations.weights * a) for a in (along * (at.share - last.share) - way, way, at.w)
    )
    return not off <= max(CONTRACTION * change, STEADY * size)  # true for NaN


def rate_by_share(
    equations: BranchEquations, w: np.ndarray, multipliers: np.ndarray, share: float
) -> np.ndarray:
    """Return the derivative of a residual with respect to the step fraction.
    The residual is that of a step that is shortened to the fraction `share` of its length. The unknowns, the
    rates w and the multipliers, are constant in this derivative.
    """
    n, by = len(w), DIFFERENCE * share
    now, less = equations(w, share), equations(w, share - by)
    difference = now.residual - less.residual + (now.matrix - less.matrix)[:, n:] @ multipliers
    return difference / by


def turns_back(equations: BranchEquations, last: BranchRoot, stride: float, tolerance: float) -> bool:
    """Return whether the branch of roots of a step has a fold just beyond a root.
    The root is `last`, and the step length is the parameter of the branch. The continuation has failed to
    find a root for a slightly longer step. The argument `stride` is the smallest increase that it tried, as a
    fraction of the step length.

    Beyond a fold, roots further along the branch belong to shorter steps, and the determinant has the other
    sign. The function seeks the next root in a plane across the branch. The fraction of the step length is an
    additional unknown, with which the Newton matrix is regular at a fold.
    """
    if not last.share > 0:
        return False  # at length 0 there are velocities, but no root yet
    n = len(last.w)
    weights = np.concatenate([equations.weights, np.zeros(len(last.multipliers)), [0.0]])
    there = equations(last.w, last.share).matrix
    sign = np.linalg.slogdet(there)[0]
    try:
        along = np.linalg.solve(there, -rate_by_share(equations, last.w, last.multipliers, last.share))
    except np.linalg.LinAlgError:
        return False
    first = np.concatenate([last.w, last.multipliers, [last.share]])
    tangent = np.append(along, 1.0)
    for reach in FOLD_REACH:
        z, before = first + reach * stride * tangent, np.inf
        for _ in range(CORRECTIONS):
            w, lam, share = z[:n], z[n:-1], float(z[-1])
            if not 0 < share <= 1:
                break
            now = equations(w, share)
            residual = np.append(now.residual + now.matrix[:, n:] @ lam, 0.0)
            bordered = np.vstack(
                [np.column_stack([now.matrix, rate_by_share(equations, w, lam, share)]), weights**2 * tangent]
            )
            if not (np.isfinite(residual).all() and np.isfinite(bordered).all()):
                break
            try:
                step = np.linalg.solve(bordered, -residual)
            except np.linalg.LinAlgError:
                break
            z, size = z + step, float(np.linalg.norm(weights * step))
            if share * np.linalg.norm(equations.size * step[:n]) <= tolerance:
                if z[-1] < last.share and np.linalg.slogdet(now.matrix)[0] * sign < 0:
                    return True
                break
            if not size <= max(before / 2, np.linalg.norm(weights * (z - first)) * DIFFERENCE):
                break
            before = size
    return False


def regular_between(before: np.ndarray, after: np.ndarray) -> bool:
    """Return whether all matrices on the line from one matrix to another are regular.

    The test uses the spectral radius of the relative change from `before` to `after`, which does not depend
    on units. If the radius is below 1, all matrices on the straight line are regular. If there is a fold
    between the two matrices, or two folds, the radius is not below 1.
    """
    values = np.linalg.eigvals(np.linalg.solve(before, after))
    return bool((np.abs(values - 1) <= CHANGE).all())


def clear_of_poles(equations: BranchEquations, matrix: np.ndarray, at: BranchRoot, last: BranchRoot) -> bool:
    """Return whether Euler angles are far from singular between two roots.
    The roots `last` and `at` are neighbours on the branch of roots of a step; `matrix` is the Newton matrix
    at `at`.

    Matrices on both sides of a singular position (pole) are alike (`chord.near_pole`). With constraints there
    is no test and the result is True, because the momentum balance alone shows no pole of a body that
    constraints hold.
    """
    n = len(at.w)
    if not equations.charted or len(matrix) > n:
        return True
    reach = np.abs(equations.turns * (at.share * at.w - last.share * last.w)).max()
    scaled = matrix / np.outer(equations.weights, equations.weights)
    return bool(np.linalg.svd(scaled, compute_uv=False)[-1] > reach**2)


def orientation(matrix: np.ndarray, weights: np.ndarray) -> float:
    """Return the sign of the determinant of a step's Newton matrix, or 0 if the matrix is singular.
    The `weights` scale rows and columns of the matrix in the test of singularity.

    The sign of a singular matrix would be noise.
    """
    m = len(matrix) - len(weights)
    scaled = matrix / np.outer(*2 * [np.concatenate([weights, np.ones(m)])])
    for i in range(len(weights), len(matrix)):  # rows of constraints are scaled to length one
        scaled[i] /= np.linalg.norm(scaled[i])
        scaled[:, i] /= np.linalg.norm(scaled[:, i])
    if not (np.isfinite(scaled).all() and np.linalg.cond(scaled) < SINGULAR):
        return 0.0
    return float(np.linalg.slogdet(matrix)[0])


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
        except np.linalg.LinAlgError:
            step = np.full(len(now.residual), np.nan)
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


def singular_ahead(
    J: np.ndarray, names: tuple[str, ...], root: BranchRoot, dt: float, k: int, where: str, advice: str
) -> StepError | None:
    """Return an error if a branch of roots ends at dependent constraints, or None.
    The matrix J (m, n) is the constraint Jacobian at the last root of the branch, `root`. The constraints
    count as dependent if the gradient of one is a linear combination of the other gradients up to the
    tolerance `NEAR`.
    """
    if not root.share > 0 or not np.isfinite(J).all():
        return None
    rank, beyond = rank_of_rows(J, names, NEAR)
    if not beyond:
        return None
    verb = "follows" if len(beyond) == 1 else "follow"
    return StepError(
        f"{where}: it would end in, or pass, a singular position of the constraints, which the motion comes "
        f"to after {root.share * dt:.6g} s: there {', '.join(beyond)} {verb} from the others (rank {rank} "
        f"of {len(names)}). {advice}",
        k,
        float(root.error),
        "singular constraints",
        length=root.share * dt,
    )


PASSING = (
    "If the motion only passes there, choose dt so that no step ends there (f.with_dt, f.substeps(n)); "
    "otherwise remove what is redundant"
)


def dependent_constraints(
    J: np.ndarray,
    names: tuple[str, ...],
    where: str,
    k: int,
    error: float,
    tolerance: float = RANK_TOLERANCE,
) -> StepError | None:
    """Return an error that names dependent constraints, or None.
    The constraints are dependent if their Jacobian J loses rank.
    """
    infinite = [name for name, row in zip(names, J, strict=True) if not np.isfinite(row).all()]
    if infinite:
        return StepError(
            f"{where}: the gradient of {', '.join(infinite)} is not finite; the constraint is not "
            "differentiable there",
            k,
            error,
            "not finite",
        )
    rank, redundant = rank_of_rows(J, names, tolerance)
    if not redundant:
        return None
    least = 1e-12 * np.abs(J).max(initial=0.0)
    flat = [name for name, row in zip(names, J, strict=True) if not np.abs(row).max(initial=0.0) > least]
    if flat:
        return StepError(
            f"{where}: the gradient of {', '.join(flat)} vanishes: its points coincide, its length is 0, or "
            "no dynamic variable moves them",
            k,
            error,
            "singular constraints",
        )
    verb = "follows" if len(redundant) == 1 else "follow"
    return StepError(
        f"{where} has rank {rank} of {len(names)}: {', '.join(redundant)} {verb} from the other "
        "constraints there. Remove redundant constraints (MidpointVI leaves them out by itself), or change "
        "the motion if it only passes a singular position",
        k,
        error,
        "singular constraints",
    )
