"""`optimize_constrained`, the former name of `optimize` with limits; it goes with the next release."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vioc.control.costs.cost import Cost
from vioc.control.optimizing import optimize
from vioc.control.problem.limits import Constraint
from vioc.control.problem.result import Record, Result
from vioc.maps.protocol import OneStepMap


def optimize_constrained(
    f: OneStepMap,
    cost: Cost,
    guess: Any = None,
    *,
    bounds: Mapping[str, Any] | None = None,
    constraints: Sequence[Constraint] | Constraint | None = None,
    final: Any = None,
    x0: Any = None,
    steps: int | None = None,
    multipliers: Mapping[str, Any] | None = None,
    max_iterations: int = 300,
    monitor: bool | Callable[[Record], Any] | None = None,
    raise_on_failure: bool = True,
) -> Result:
    """Deprecated: ``optimize(..., method="shooting")``, whose arguments these are."""
    warnings.warn(
        'optimize_constrained is optimize(..., method="shooting") now', DeprecationWarning, stacklevel=2
    )
    return optimize(
        f,
        cost,
        guess,
        x0=x0,
        steps=steps,
        bounds=bounds,
        constraints=constraints,
        final=final,
        method="shooting",
        max_iterations=max_iterations,
        multipliers=multipliers,
        monitor=monitor,
        raise_on_failure=raise_on_failure,
    )
