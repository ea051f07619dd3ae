"""The front end: limits by name, a method, a verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from vioc.control.constrained.augmented import Augmented, multiply
from vioc.control.constrained.barrier import Barrier, follow
from vioc.control.constrained.levels import LEVEL_HEADER, ConstrainedResult, Level
from vioc.control.constrained.minimizations import Search
from vioc.control.constrained.penalized import Penalized
from vioc.control.constrained.penalties import augmented, barrier
from vioc.control.constrained.rows import Rows
from vioc.control.costs.cost import Cost
from vioc.control.descent.begin import guess_curve, guess_trajectory, near_trajectory
from vioc.control.problem.limits import Constraint
from vioc.control.problem.result import Log, finished
from vioc.control.problem.status import Status
from vioc.errors import OptimizationError
from vioc.maps.given import trajectory_of
from vioc.maps.protocol import OneStepMap
from vioc.maps.trajectory import Trajectory

METHODS: dict[str, Barrier | Augmented] = {"barrier": Barrier(), "augmented": Augmented()}


def optimize_constrained(
    f: OneStepMap,
    cost: Cost,
    guess: Any = None,
    *,
    bounds: Mapping[str, Any] | None = None,
    constraints: Sequence[Constraint] = (),
    final: Any = None,
    method: str | Barrier | Augmented = "auto",
    x0: Any = None,
    steps: int | None = None,
    multipliers: Mapping[str, Any] | None = None,
    max_iterations: int = 300,
    projection: tuple[Any, Any] | None = None,
    monitor: bool | Callable[[Level], Any] | None = None,
    raise_on_failure: bool = True,
) -> ConstrainedResult:
    """The trajectory from x_0 that (locally) minimizes a cost under inequalities and conditions at the end.

    Parameters
    ----------
    f : OneStepMap
    cost : Cost
    guess, x0, steps, projection
        As in `vioc.control.optimize`.
    bounds : dict, optional
        Limits by name of any quantity, states, inputs (``u.force``) and multipliers (``lambda.string``)
        included: a pair (lower, upper) of numbers, arrays over time or None, or b for [-b, b].
    constraints : sequence of vioc.control.dmoc.Constraint
        lower <= expression <= upper, the expression in ``f.symbols`` / ``f.quantity(name)``; for
        c(x, u) <= 0 ``Constraint(name, c, upper=0)``. Along the path, or at the end.
    final : (nx,) array or dict, optional
        The last state, or quantities of it by name: a value, or a pair (lower, upper).
    method : {"auto", "barrier", "augmented"}, Barrier or Augmented
        ``"barrier"`` follows interior points (equations have none), ``"augmented"`` multiplier estimates
        from any start. ``"auto"`` is the barrier where there are no equations and the guess leads to a
        trajectory strictly within the limits, else the augmented Lagrangian.
    multipliers : dict, optional
        Estimates by name, from `ConstrainedResult.multipliers` or the duals of DMOC; chooses
        ``"augmented"`` if the method is left open.
    max_iterations : int
        Of each minimization on the way.
    monitor : bool or callable, optional
        True prints one line per minimization and a verdict; a callable gets each `Level`.
    raise_on_failure : bool
        False returns the best iterate with its status instead of raising.

    Returns
    -------
    ConstrainedResult

    Raises
    ------
    ValueError
        Shapes, options, limits and names; an initial state outside of a limit.
    OptimizationError
        Not converged (``result`` holds the best iterate); violations by name, time, value and limit.
    KeyboardInterrupt
        Ctrl-C, with the best iterate as its ``result``; returned instead if not `raise_on_failure`.

    Examples
    --------
    >>> best = optimize_constrained(f, cost, x0=hanging, steps=200, bounds={"u.force": 10, "x": 0.5})
    >>> best.multipliers["u.force"]
    """
    if not isinstance(cost, Cost):
        raise TypeError(f"cost: expected a Cost (see vioc.control.quadratic), got {cost!r}")
    cost.check_map(f)
    if isinstance(method, str) and method not in ("auto", *METHODS):
        raise ValueError(f"method: expected 'auto', {', '.join(map(repr, METHODS))}, got {method!r}")
    start, n, start_run = _start(f, cost, guess, x0, steps)
    rows = Rows(f, n, bounds, constraints, final)
    if start_run is not None:
        rows.check_start(start_run.x[0], start_run)
    chosen = METHODS.get(method, method) if isinstance(method, str) else method
    if chosen == "auto":
        inside = start_run is not None and rows.excess(rows.residuals(start_run)) < 0
        chosen = METHODS["barrier" if inside and not rows.equations and not multipliers else "augmented"]
    assert isinstance(chosen, (Barrier, Augmented))
    chosen.check()
    if isinstance(chosen, Barrier) and rows.equations:
        name = next(r.name for r in rows.rows if r.side == 0)
        raise ValueError(f'method: {name!r} is an equation, which has no interior; use "augmented"')
    if isinstance(chosen, Barrier) and multipliers:
        raise ValueError('multipliers: the barrier method has no use for them; use "augmented"')
    step_weights = np.full(n, f.dt) if cost.per_time else np.ones(n)
    omega = rows.weights(step_weights)
    penalty = barrier if isinstance(chosen, Barrier) else augmented
    options = {} if projection is None else {"projection": projection}
    log = Log("optimize_constrained", LEVEL_HEADER, monitor)
    search = Search(f, cost, rows, Penalized(cost, rows, penalty), omega, max_iterations, options, log)
    scale = 1 + abs(cost.value(start_run)) if start_run is not None else 1.0
    interrupt = None
    try:
        with log.shown():
            if isinstance(chosen, Barrier):
                follow(search, chosen, start, scale)
            else:
                mu = rows.from_names(multipliers or {}, omega)
                multiply(search, chosen, start, scale, mu, bool(multipliers))
    except KeyboardInterrupt as stop:
        interrupt, search.status = stop, Status.INTERRUPTED
    name = "barrier" if isinstance(chosen, Barrier) else "augmented"
    result = search.result(name, getattr(chosen, "feasibility", 0.0), start_run)
    if result is None:
        raise interrupt or OptimizationError("no trajectory was found")
    return finished(result, interrupt, monitor, raise_on_failure)


def _start(
    f: OneStepMap, cost: Cost, guess: Any, x0: Any, steps: int | None
) -> tuple[Any, int, Trajectory | None]:
    """What the first minimization starts from, its number of steps, and a trajectory near it, if any.

    A trajectory of another method is one up to that method's tolerance, so it is projected too.
    """
    guess = trajectory_of(guess)
    x0 = None if x0 is None else f.check_state(x0, "x0")
    if isinstance(guess, tuple):
        _, U = guess = guess_curve(f, guess)
        try:
            run = guess_trajectory(f, guess, x0, None, None)
            cost.value(run)
        except OptimizationError:
            return guess, len(U), None
        return guess, len(U), run
    if isinstance(guess, Trajectory):
        run = near_trajectory(f, guess, x0)
    else:
        run = guess_trajectory(f, guess, x0, steps, None)
    return run, len(run), run
