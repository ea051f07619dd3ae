"""What a constrained optimization returns."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from vioc.control.problem.limits import Violation
from vioc.control.problem.result import Result
from vioc.control.problem.status import Status

LEVEL_HEADER = (
    f"{'level':>5}  {'method':<9}  {'weight':>9}  {'iter':>4}  {'cost':>14}  {'violation':>10}  "
    f"{'gap':>9}  status"
)


class Level(NamedTuple):
    """One minimization on the way.

    Attributes
    ----------
    level : int
    method : str
        ``"barrier"`` or ``"augmented"``.
    weight : float
        eps of the barrier, or the largest rho.
    shift : float
        delta of the barrier, or the largest |mu|.
    iterations : int
        Steps that it took.
    cost : float
        Without penalties.
    violation : float
        The largest one in units of the rows' scales; negative is the least distance from a limit.
    gap : float
        eps Omega, the barrier's price of the limits; or the largest violation of a row or of its
        complementarity.
    status : Status
        Of the minimization, as in `Result`.
    """

    level: int
    method: str
    weight: float
    shift: float
    iterations: int
    cost: float
    violation: float
    gap: float
    status: Status

    def __str__(self) -> str:
        return (
            f"{self.level:>5}  {self.method:<9}  {self.weight:>9.2e}  {self.iterations:>4}  "
            f"{self.cost:>14.8g}  {self.violation:>10.2e}  {self.gap:>9.2e}  {self.status}"
        )

    @property
    def note(self) -> str:
        """What progress tells of it."""
        return f"cost {self.cost:.6g}, violation {self.violation:.1e}"


@dataclass(frozen=True)
class ConstrainedResult(Result):
    """An optimized trajectory under constraints.

    Beside the fields of `Result` (``cost`` is without penalties; ``slope`` is with those of the last level;
    ``history`` is that of all levels in a row, its costs with the penalties of their level):

    Attributes
    ----------
    status : Status
        ``"converged"``, ``"infeasible"``, ``"not_interior"``, ``"max_levels"``, or one of `Result`.
    multipliers : dict of str to array
        By the name of a constraint over its samples: >= 0 at an upper limit, <= 0 at a lower one; minus the
        derivative of the optimal cost by the limit, as `vioc.control.dmoc` reports it.
    margin : float
        Least distance from a limit in units of the limits' scales (half a range, or the limit where it is
        one-sided), over inequalities and samples; > 0 where the trajectory is strictly feasible.
    violations : list of Violation
        Samples outside of their limits: name, k, t, value, limits; the worst first.
    method : str
        ``"barrier"`` or ``"augmented"``.
    path : tuple of Level
    """

    multipliers: dict[str, np.ndarray] = field(repr=False)
    margin: float
    violations: list[Violation] = field(repr=False)
    method: str
    path: tuple[Level, ...] = field(repr=False)

    def __repr__(self) -> str:
        return f"ConstrainedResult({self.message}; {len(self.trajectory)} steps)"
