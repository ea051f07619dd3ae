"""How well a step determines what follows it: condition numbers of M_k+1 and Dh M^-1 Dh' ([S] VII).

Where both are regular the step's solution is the only one near by, and its derivatives exist.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from vioc.compile.evaluate import Evaluator

if TYPE_CHECKING:
    from vioc.dynamics.integrators.midpoint import MidpointVI
    from vioc.dynamics.integrators.structured import Steps


@dataclass(frozen=True)
class StepConditions:
    """Condition numbers of N steps; infinite where a matrix is singular.

    Attributes
    ----------
    t : (N,)
        Start of each step, s.
    mass : (N,)
        Of M_k+1 = D2 D1 L_d + D2 F- ([S] (8)), each variable measured in the units of a typical diagonal of
        the mass matrix.
    constraints : (N,)
        The inverse of the least singular value of Dh(q_k+1) M_k+1^-1 Dh(q_k)' with gradients of length one
        (in M^-1): 1 / cos of the angle that one gradient turns by within the step. 1 without constraints.
    """

    t: np.ndarray = field(repr=False)
    mass: np.ndarray
    constraints: np.ndarray

    def __repr__(self) -> str:
        worst = (f"{what} {c.max():.3g} at t = {self.t[int(np.argmax(c))]:g} s" for what, c in self._items())
        return f"StepConditions(worst of {len(self.t)} steps: {'; '.join(worst)})"

    def _items(self) -> tuple[tuple[str, np.ndarray], ...]:
        return ("M", self.mass), ("Dh M^-1 Dh'", self.constraints)


def conditions(f: MidpointVI, steps: Steps, theta: np.ndarray) -> StepConditions:
    """Of solved steps of `f`."""
    nq, nd, a, h = f.nq, f.nd, f.alpha, steps.h
    q0, q1 = steps.x0[:, :nq], steps.x1[:, :nq]
    forces = steps.u[:, : len(f.system.inputs)]
    t = (steps.t + a * h)[:, None]
    args = (1 - a) * q0 + a * q1, (q1 - q0) / h[:, None], forces, t, theta, h[:, None]
    (D,) = Evaluator(f._newton_matrix)(*args)
    root = np.sqrt(f.lagrangian.mass_scale)
    M = D / np.outer(root, root)
    mass = inverse_of_least(M)
    constraints = np.ones(len(steps))
    if f.nm:
        J0, J1 = (f._constraint_numbers(q, theta)[1][:, :, :nd] / root for q in (q0, q1))
        for k in np.flatnonzero(np.isfinite(mass)):
            J = [_unit_rows(J[k], M[k]) for J in (J0, J1)]
            constraints[k] = inverse_of_least(J[1] @ np.linalg.solve(M[k], J[0].T), 1.0)
        constraints[~np.isfinite(mass)] = np.inf
    return StepConditions(steps.t, mass, constraints)


def _unit_rows(J: np.ndarray, M: np.ndarray) -> np.ndarray:
    """Rows of length one: J M^-1 J' has the diagonal +-1."""
    return J / np.sqrt(np.abs((J * np.linalg.solve(M, J.T).T).sum(axis=1)))[:, None]


def inverse_of_least(M: np.ndarray, unit: np.ndarray | float | None = None) -> np.ndarray:
    """A unit, else the largest, over the least singular value of (..., n, n); inf where that is rounding."""
    size = np.linalg.svd(M, compute_uv=False)
    largest = size[..., 0] if unit is None else np.maximum(size[..., 0], unit)
    with np.errstate(divide="ignore", invalid="ignore"):
        least = size[..., -1]
        return np.where(
            least > np.finfo(float).eps * largest, (largest if unit is None else unit) / least, np.inf
        )
