"""The augmented Lagrangian: multiplier estimates per row and sample, penalties that grow where they must.

docs/maths/constrained_descent.md, "Augmented Lagrangian".
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from vioc.control.constrained.levels import Level
from vioc.control.constrained.minimizations import Search, settled
from vioc.control.constrained.penalties import updated_multiplier
from vioc.control.problem.status import Status

PENALTY = 10.0  # rho after the first minimization, in units of (1 + |g|) / Omega of the row
FALL = 0.25  # by which a violation must fall for rho to stay
WARM = 100.0  # times that, where multipliers are known: it need not find them
GROWTH = 10.0  # of rho where it does not
MOST = 1e10  # rho over its start, beyond which the constraints contradict each other
LOOSE = 1e-2  # tolerance of the first minimization, in units of the cost
SHARP = 1e-2  # share of the penalties' worth of a violation that a tolerance must be below to see it
STUCK = 1e-9  # |Dg.zeta| in units of 1 + |g|, below which a line search that fails is at its digits' end
FLOOR = 1e-18  # least tolerance, in units of 1 + |g|


class Augmented(NamedTuple):
    """The augmented Lagrangian method.

    Attributes
    ----------
    feasibility : float
        Largest violation and error of complementarity at the end, in units of the limits' scales.
    tolerance : float
        The last minimization stops at -Dg(xi).zeta < tolerance, in units of the cost.
    penalty : float, optional
        rho of all rows at first, in units of the cost; default by what the first minimization costs.
    levels : int
    """

    feasibility: float = 1e-8
    tolerance: float = 1e-6
    penalty: float | None = None
    levels: int = 40

    def check(self) -> None:
        if not (self.feasibility > 0 and self.tolerance > 0 and self.levels >= 1):
            raise ValueError(
                f"augmented: expected feasibility > 0, tolerance > 0 and levels >= 1, got {self}"
            )
        if self.penalty is not None and not self.penalty > 0:
            raise ValueError(f"augmented: expected penalty > 0, got {self.penalty}")


def multiply(search: Search, method: Augmented, guess: Any, scale: float, mu: np.ndarray, warm: bool) -> None:
    """Multiplier iterations from a guess; `warm` says that guess and `mu` are near the solution.

    `scale` is 1 + |g| at the guess.
    """
    rows, omega, present = search.rows, search.omega, search.rows.present
    unit = PENALTY / omega.sum(axis=0)
    rho = np.full(len(rows), method.penalty) if method.penalty else unit * (WARM * scale if warm else 1)
    previous = np.full(len(rows), np.inf)
    tolerance = method.tolerance if warm else max(method.tolerance, LOOSE)
    most = np.full(len(rows), np.inf)
    for level in range(method.levels):
        weight = np.where(present, rho, 0.0)
        found = search.minimize(weight, mu, guess, tolerance)
        guess = found.trajectory
        h = rows.residuals(guess)
        # an inequality is met if its violation and its product with the multiplier vanish
        amount = np.where(present, np.abs(np.where(rows.equation, h, np.maximum(h, -mu / rho))), 0.0)
        worst = amount.max(axis=0)
        mu = np.where(present, updated_multiplier(h, weight, mu, rows.equation), 0.0)
        search.best, search.mu = found, mu
        value = search.cost.value(guess)
        search.record(
            Level(
                level,
                "augmented",
                weight=float(rho.max()),
                shift=float(np.abs(mu).max()),
                iterations=found.iterations,
                cost=value,
                violation=rows.excess(h),
                gap=float(worst.max()),
                status=found.status,
            )
        )
        if not settled(found, STUCK * (1 + abs(value))):
            search.status = found.status
            return
        if worst.max() <= method.feasibility and tolerance <= method.tolerance:
            search.status = Status.CONVERGED
            return
        if level == 0:
            if not (method.penalty or warm):
                rho = unit * (1 + abs(value))
            most = MOST * rho
        slow = worst > np.maximum(FALL * previous, method.feasibility)
        visible = SHARP * float((rho * omega * amount**2)[:, slow].sum())
        floor = FLOOR * (1 + abs(value))
        if slow.any() and tolerance > max(visible, floor):  # it is not the penalty that is too small
            tolerance = max(floor, min(0.1 * tolerance, visible))
        else:
            rho = np.where(slow, GROWTH * rho, rho)
            tolerance = min(tolerance, max(method.tolerance, 0.1 * tolerance))
        if (rho > most).any():
            search.status = Status.INFEASIBLE
            return
        previous = worst
    search.status = Status.MAX_LEVELS
