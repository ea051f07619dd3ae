"""One step by every means, dense: damped Newton, then continuation in the step's length ([S] VII).

A compiled rollout takes chord steps from an extrapolated seed. What it cannot solve comes here, with its
equations: whoever has a residual and its matrix can be solved.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from vioc.dynamics.consistency import rank_of_rows
from vioc.errors import StepError

MAX_ITERATIONS = 60


class Iterate(NamedTuple):
    """Equations r(z) + G lambda = 0, h(z) = 0 at one z (n,); multipliers enter linearly.

    Attributes
    ----------
    residual : (n + m,)
        r, without multipliers, then h.
    matrix : (n + m, n + m)
        Of derivatives by z and lambda: [[D, G], [J, 0]].
    scale : (n + m,)
        Residual per unit of the error that a tolerance bounds, by row.
    """

    residual: np.ndarray
    matrix: np.ndarray
    scale: np.ndarray

    def under(self, multipliers: np.ndarray) -> np.ndarray:
        """The residual with the multipliers' share."""
        n = len(self.residual) - len(multipliers)
        return self.residual + self.matrix[:, n:] @ multipliers


class Solution(NamedTuple):
    """What Newton's method ended with: unknowns (n,), multipliers (m,), 2-norm of the scaled residual."""

    z: np.ndarray
    multipliers: np.ndarray
    error: float


class Equations(ABC):
    """The equations of one step, for every length that it might have.

    Attributes
    ----------
    start : (n,)
        What z is where a step has no length.
    """

    start: np.ndarray

    @abstractmethod
    def __call__(self, z: np.ndarray, dt: float) -> Iterate:
        """The equations at z of a step of length `dt`, s."""

    @abstractmethod
    def failure(self, found: Solution, k: int, dt: float, where: str) -> StepError | None:
        """The error that says why step k ended in `found`, its text after `where`; None if not known."""


def solve_step(equations: Equations, k: int, t: float, dt: float, tolerance: float) -> Solution:
    """Step k, at time t.

    Raises
    ------
    StepError
        As the equations explain it, else with the cause ``"no convergence"``.
    """

    def solve(z: np.ndarray, length: float) -> Solution:
        return newton(lambda y: equations(y, length), z, tolerance)

    with np.errstate(all="ignore"):  # what overflows or is not a number is tested for
        found = solve(equations.start, dt)
        if not found.error <= tolerance:
            found = _continue(solve, equations.start, dt, tolerance)
        if found.error <= tolerance:
            return found
        error = float(found.error)
        where = f"step {k} (t = {t:.6g} s, dt = {dt:g} s) was not solved: scaled residual {error:.2g}"
        known = equations.failure(found, k, dt, where)
        if known is not None:
            raise known
        half = solve(equations.start, dt / 2).error <= tolerance
    advice = f"dt = {dt / 2:g} has a solution" if half else "try a much smaller dt, or check the state"
    raise StepError(
        f"{where}. Newton and continuation in dt did not converge; the step is too large for this "
        f"state: {advice}",
        k,
        error,
        "no convergence",
    )


def newton(equations: Callable[[np.ndarray], Iterate], z: np.ndarray, tolerance: float) -> Solution:
    """Damped Newton from z. Stops where no step decreases the residual."""
    n, now = len(z), equations(z)
    lam = np.zeros(len(now.residual) - n)
    error = np.inf
    extra = 1  # one step beyond the tolerance: quadratic convergence makes it exact
    for _ in range(MAX_ITERATIONS):
        residual = now.under(lam) / now.scale
        error = float(np.linalg.norm(residual))
        if not np.isfinite(error):
            break
        if error <= tolerance:
            extra -= 1
            if extra < 0:
                break
        matrix = now.matrix / now.scale[:, None]
        if not np.isfinite(matrix).all():
            error = np.nan
            break
        try:
            step = np.linalg.solve(matrix, -residual)
        except np.linalg.LinAlgError:
            step = np.linalg.lstsq(matrix, -residual, rcond=None)[0]
        factor = 1.0
        while factor > 1e-4:
            multipliers, trial = lam + factor * step[n:], equations(z + factor * step[:n])
            value = np.linalg.norm(trial.under(multipliers) / now.scale)
            if value < (1 - 1e-4 * factor) * error or value <= tolerance:
                break
            factor /= 2
        else:
            break
        z, lam, now = z + factor * step[:n], multipliers, trial
    return Solution(z, lam, error)


def _continue(solve: Callable[[np.ndarray, float], Solution], z: np.ndarray, dt: float, tolerance: float):
    """Lengthen the step from nothing to dt, each solution the seed of the next."""
    done, width = 0.0, 0.25
    found, before, last = Solution(z, np.zeros(0), np.inf), z, 0.0
    while done < 1:
        goal = min(1.0, done + width)
        seed = found.z
        if done > 0:
            seed = seed + (found.z - before) * (goal - done) / (done - last)
        trial = solve(seed, goal * dt)
        if trial.error <= tolerance:
            last, before = done, found.z
            done, found = goal, trial
            width = min(2 * width, 0.5)
        else:
            width /= 2
            if width < 1e-3:
                return trial
    return found


def dependent_constraints(
    J: np.ndarray, names: tuple[str, ...], where: str, k: int, error: float
) -> StepError | None:
    """The error for constraints whose Jacobian has dependent rows, or None where they are sound."""
    infinite = [name for name, row in zip(names, J, strict=True) if not np.isfinite(row).all()]
    if infinite:
        return StepError(
            f"{where}: the gradient of {', '.join(infinite)} is not finite; the constraint is not "
            "differentiable there",
            k,
            error,
            "not finite",
        )
    rank, redundant = rank_of_rows(J, names)
    if not redundant:
        return None
    flat = [name for name, row in zip(names, J, strict=True) if not np.abs(row).max(initial=0.0) > 1e-12]
    if flat:
        return StepError(
            f"{where}: the gradient of {', '.join(flat)} vanishes: its points coincide, its length is 0, or "
            "no dynamic variable moves them",
            k,
            error,
            "singular constraints",
        )
    return StepError(
        f"{where} has rank {rank} of {len(names)}: {', '.join(redundant)} follows from the other "
        "constraints there. Remove redundant constraints, or change the motion if it only passes a "
        "singular position",
        k,
        error,
        "singular constraints",
    )
