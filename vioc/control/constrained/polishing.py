"""From the solution of another method to a stationary rollout of the map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vioc.control.constrained.augmented import Augmented
from vioc.control.constrained.levels import ConstrainedResult
from vioc.control.constrained.optimize_constrained import optimize_constrained
from vioc.control.costs.cost import Cost
from vioc.control.descent.begin import near_trajectory
from vioc.control.descent.descend import descend
from vioc.control.dmoc.solution import PhaseSolution, Solution
from vioc.control.problem.limits import Constraint
from vioc.control.problem.result import Result
from vioc.maps.given import trajectory_of
from vioc.maps.protocol import OneStepMap
from vioc.maps.trajectory import Trajectory


def polish(
    f: OneStepMap,
    cost: Cost,
    solution: Any,
    *,
    bounds: Mapping[str, Any] | None = None,
    constraints: Sequence[Constraint] = (),
    final: Any = None,
    method: Augmented | None = None,
    tolerance: float = 1e-10,
    raise_on_failure: bool = True,
    **options: Any,
) -> Result:
    """A near-trajectory as a rollout of the map that is stationary for the cost.

    It is projected, and Newton's method goes on from there; with limits on their multipliers too.

    Parameters
    ----------
    f : OneStepMap
        The map, or another one with the same states and inputs and that time step.
    cost : Cost
        Of `f`. (A DMOC problem with another quadrature than "left" has another optimum.)
    solution : dmoc.Solution, PhaseSolution, Result, Trajectory or (X, U)
        With a DMOC solution come its multipliers and, where no limits are given here, its limits (bounds,
        constraints and final state of its phase).
    bounds, constraints, final
        As in `optimize_constrained`.
    method : Augmented, optional
        Default ``Augmented(tolerance=tolerance)``.
    tolerance : float
        -Dg(xi).zeta at the end, in units of the cost.
    **options
        Of `optimize_constrained`, or of `optimize` where there are no limits.

    Returns
    -------
    Result, with limits ConstrainedResult

    Raises
    ------
    ValueError, OptimizationError
        As the two.

    Examples
    --------
    >>> best = polish(f, cost, dmoc.solve(f, cost, steps=200, initial=x0, bounds={"u.force": 10.0}))
    """
    known: Mapping[str, Any] = solution.multipliers if isinstance(solution, ConstrainedResult) else {}
    if isinstance(solution, Solution):
        solution = solution.only()
    if isinstance(solution, PhaseSolution):
        known, phase = solution.duals, solution.phase
        if bounds is None and not constraints and final is None:
            if phase.rates or phase.periodic:
                raise ValueError("polish: limits of rates and periodic states are not for descent; use DMOC")
            bounds, final = phase.bounds, phase.final
            constraints = tuple(c for c in phase.constraints if c.where != "start")
    solution = trajectory_of(solution)
    if isinstance(solution, Trajectory):
        solution = near_trajectory(f, solution)
    if bounds is None and not constraints and final is None:
        options = {"method": "newton", **options}
        return descend(f, cost, solution, tolerance=tolerance, raise_on_failure=raise_on_failure, **options)
    return optimize_constrained(
        f,
        cost,
        solution,
        bounds=bounds,
        constraints=constraints,
        final=final,
        method=method or Augmented(tolerance=tolerance),
        multipliers=known,
        raise_on_failure=raise_on_failure,
        **options,
    )
