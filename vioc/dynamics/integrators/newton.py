"""Numerical solution of one step by continuation of its branch of roots.

The equations of a step have a branch of roots that begins, at length 0, with the velocities of the state. The
solution of the step is the root on that branch (docs/maths/midpoint.md, "Which root is the step"). In nearly
all steps a kernel, a CasADi function, certifies its root by the contraction of its iteration. The other steps
are solved here with dense matrices, for any equations that return a residual and its Jacobian.
"""

from __future__ import annotations

import numpy as np

from vioc.dynamics.consistency import RANK_TOLERANCE, rank_of_rows
from vioc.dynamics.integrators.arclength import Arc
from vioc.dynamics.integrators.branch_equations import CONTRACTION, BranchEquations, BranchRoot, newton
from vioc.errors import StepError

SHORTEST = 2.0**-16  # least relative growth of the share, below which the branch counts as ended
SINGULAR = 1e9  # condition number above which the matrix at length 0 counts as singular
EVALUATIONS = 2000  # largest number of evaluations of the equations of one step
# Relative distance from dependence, below which constraints at the last root of a branch count as dependent:
# a branch ends within twice `SHORTEST` of a singular position, plus a margin
NEAR = 1e-4
CHANGE = 0.5  # largest relative change of the matrix from one root to the next
STEADY = CONTRACTION**3  # relative error of w allowed in extrapolation without acceleration
ONE = 1e-6  # relative displacement below which two roots are one: above tolerances, below distances of roots
TURN = 0.5  # largest angle of one share: along it the matrix changes by half at most


def solve_step(
    equations: BranchEquations, k: int, t: float, tolerance: float, start: BranchRoot | None = None
) -> BranchRoot:
    """Solve step k by continuation of its branch of roots, and return the root.
    The branch starts at length 0 at the present state; `start` is a root on it, if one is known.

    Raises
    ------
    StepError
        With the cause that the equations find, else with the cause ``"fold"`` and the largest length for
        which the step exists, or with ``"no convergence"`` if the end of the branch was not found.
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
    if root.given_up and root.share > 0:
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
    """Follow the branch of roots of a step from length 0, or from its root `start`.
    Return the last root found.

    Where the derivative of the equations by the length is known, a branch without constraints is followed by
    its arclength. A branch that constraints or contact shape may pass straight through a position where the
    Newton matrix is singular, and is followed in growing lengths. So is a branch whose first part arclength
    does not resolve, beside a singular mass matrix.
    """
    if not equations.by_arclength:
        return follow_by_length(equations, tolerance)
    free = len(equations(equations.start, SHORTEST).matrix) == len(equations.start)
    if free:
        root = Arc(equations, tolerance).follow(start)
        if root.share > 0 or not root.given_up:
            return root
    root = follow_by_length(equations, tolerance)
    if free or not 0 < root.share < 1:
        return root
    end = Arc(equations, tolerance).follow(root)
    return root._replace(folds=end.folds, given_up=root.given_up or end.share == 1.0)


def follow_by_length(equations: BranchEquations, tolerance: float) -> BranchRoot:
    """Follow the branch of roots of a step with growing length; return the last root found.
    The step is solved for increasing fractions of its length. The guess of each root is extrapolated from the
    last two roots.

    A root is accepted only if Newton's corrections contract so fast that no other root is near, and if the
    Newton matrix has changed so little since the last root that it is regular in between. There is one
    exception: the branch may pass straight through a position where constraints are dependent and the matrix
    is singular. Then the determinant of the momentum balance alone must keep the sign of the mass matrix's,
    and the branch must be straight. It is straight if w changes by less than an eighth of w, and if the
    errors of the extrapolation and of the derivative of the root are less than an eighth of this change or
    less than 8^-3 of w. At a fold, in contrast, the branch turns aside.
    """
    last, before = BranchRoot(equations.start, np.zeros(0), np.inf, 0.0), None
    stride, spent, infinite = 1.0, 0, False
    failed, good = np.inf, 0  # the last share without a root, and the number of roots found since
    n = len(equations.start)
    there = equations(equations.start, SHORTEST).matrix
    of_masses, sign = (orientation(a, equations.weights) for a in (there[:n, :n], there))
    if equations.contact:
        sign = 0.0
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
        taken = False
        if straight:
            straight, spent = not bends(equations, trial, last, matrix), spent + 2
        if matrix is not None:
            balance, now = (float(np.linalg.slogdet(A)[0]) for A in (matrix[:n, :n], matrix))
            balanced, same = balance * of_masses >= 0, now * sign >= 0
            if equations.contact or not sign:
                taken = balanced and (straight or same)
            else:
                taken = (straight and balanced) or (same and regular_between(there, matrix))
        if matrix is not None and taken:
            if share == 1.0:
                return trial
            before, last, sign, there = last, trial, now, matrix
            failed, good = (failed if share < failed else np.inf), good + 1
            # first half of the way to the share that failed; after two roots, this share again
            stride = 2 * stride if np.isinf(failed) else (failed - share) / (2 if good < 2 else 1)
        else:
            # A share that fails twice may lie near a singular position of the constraints. The shares between
            # it and the last root come ever closer to that position, so one share beyond it is tried first.
            if good >= 2 and share >= failed * (1 - SHORTEST) and len(there) > n:
                failed, good, stride = share, 0, 2 * (share - last.share)
                continue
            failed, good = min(share, failed), 0
            stride = (failed - last.share) / 2
            if stride < SHORTEST * max(last.share, SHORTEST):
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
    n, rate = len(at.w), equations.rate_by_share(at.w, at.multipliers, at.share)
    try:
        along = np.linalg.solve(matrix, -rate)[:n]
    except np.linalg.LinAlgError:
        return True
    way = at.w - last.w
    off, change, size = (
        np.linalg.norm(equations.weights * a) for a in (along * (at.share - last.share) - way, way, at.w)
    )
    return not off <= max(CONTRACTION * change, STEADY * size)  # true for NaN


def regular_between(before: np.ndarray, after: np.ndarray) -> bool:
    """Return whether all matrices on the line from one matrix to another are regular.

    The test uses the spectral radius of the relative change from `before` to `after`, which does not depend
    on units. If the radius is below 1, all matrices on the straight line are regular. If there is a fold
    between the two matrices, or two folds, the radius is not below 1.
    """
    values = np.linalg.eigvals(np.linalg.solve(before, after))
    return bool((np.abs(values - 1) <= CHANGE).all())


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
