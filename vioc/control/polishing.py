"""From the solution of another method to a stationary rollout of the map."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vioc.control.costs.cost import Cost
from vioc.control.optimizing import optimize
from vioc.control.problem.limits import Constraint
from vioc.control.problem.result import PhaseResult, Result
from vioc.maps.protocol import OneStepMap


def polish(
    f: OneStepMap,
    cost: Cost,
    solution: Any,
    *,
    bounds: Mapping[str, Any] | None = None,
    constraints: Sequence[Constraint] | Constraint | None = None,
    final: Any = None,
    tolerance: float = 1e-10,
    **options: Any,
) -> Result:
    """A near-trajectory as a rollout of the map that is stationary for the cost.

    It is `optimize` by shooting from there, with the limits and the multipliers of a solution of DMOC.

    Parameters
    ----------
    f, cost
        The map, or another one with the same states, inputs and time step, and a cost of it. (A DMOC problem
        with another quadrature than "left" has another optimum.)
    solution : Result, PhaseResult, Trajectory or (X, U)
        With a result of DMOC come its multipliers and, where no limits are given here, its limits (bounds,
        constraints and final state of its phase).
    bounds, constraints, final, tolerance, **options
        As in `optimize`.

    Raises
    ------
    ValueError, OptimizationError
        As `optimize`; ValueError for limits of rates and for periodic states.

    Examples
    --------
    >>> best = polish(f, cost, dmoc.solve(f, cost, steps=200, initial=x0, bounds={"u.force": 10.0}))
    """
    known: Mapping[str, Any] | None = None
    part = solution.only() if isinstance(solution, Result) else solution
    if isinstance(part, PhaseResult):
        known, phase = part.multipliers, part.phase
        if not bounds and not constraints and final is None and phase is not None:
            if phase.rates or phase.periodic:
                raise ValueError("polish: limits of rates and periodic states are only for DMOC")
            bounds, final = phase.bounds, phase.final
            constraints = tuple(c for c in phase.constraints if c.where != "start")
    given = {"multipliers": known, "tolerance": tolerance, "method": "shooting", **options}
    return optimize(f, cost, solution, bounds=bounds, constraints=constraints, final=final, **given)
