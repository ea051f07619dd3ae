"""One front for trajectory optimization: the methods, and which of them a problem is for.

See docs/trajectories.md, "Which optimizer".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vioc.control.costs.cost import Cost
from vioc.control.descent.begin import guess_lengths
from vioc.control.descent.descend import ARMIJO, DIRECTIONS, MULTIPLE, Armijo, descend
from vioc.control.descent.symbolic.programs import StagePrograms
from vioc.control.descent.symbolic.stage import SMALL
from vioc.control.problem.limits import Constraint
from vioc.control.problem.result import Record, Result
from vioc.control.shooting.problem import Problem
from vioc.errors import OptimizationError
from vioc.maps.given import trajectory_of
from vioc.maps.protocol import OneStepMap
from vioc.maps.trajectory import Trajectory

METHODS = ("auto", "shooting", MULTIPLE, *DIRECTIONS)


def optimize(
    f: OneStepMap,
    cost: Cost,
    guess: Any = None,
    *,
    x0: Any = None,
    steps: int | None = None,
    bounds: Mapping[str, Any] | None = None,
    constraints: Sequence[Constraint] | Constraint | None = None,
    final: Any = None,
    method: str = "auto",
    tolerance: float | None = None,
    max_iterations: int = 300,
    multipliers: Mapping[str, Any] | None = None,
    warmup: int = 0,
    projection: tuple[Any, Any] | None = None,
    dt: Any = None,
    armijo: Armijo = ARMIJO,
    monitor: bool | Callable[[Record], Any] | None = None,
    raise_on_failure: bool = True,
) -> Result:
    """The trajectory from x_0 that (locally) minimizes a cost, within limits.

    Parameters
    ----------
    f : OneStepMap
    cost : Cost
    guess : Trajectory, result, (X, U), U or None
        A trajectory; a curve of states (N+1, nx) and inputs (N, nu) that need not be a trajectory (U may
        be None); inputs (N, nu) alone, which are rolled out from `x0`; or None. Shooting then holds the first
        state over `steps` steps, the methods that project roll it out without inputs.
    x0 : (nx,), optional
        Start; default that of the guess.
    steps : int, optional
        N, where the guess does not tell.
    bounds : dict, optional
        Limits by name of any quantity, states, inputs (``u.force``) and multipliers (``lambda.string``)
        included: a pair (lower, upper) of numbers, arrays over time or None, or b for [-b, b].
    constraints : Constraint or sequence of Constraint, optional
        lower <= expression <= upper along the path, or at the end; equal limits make an equation.
    final : (nx,) or dict, optional
        Of the last state: a value or (lower, upper) by name.
    method : {"auto", "shooting", "newton", "gauss-newton", "steepest", "multiple-shooting"}
        ``"shooting"`` moves the states and inputs of all steps at once, limits by an interior point, by exact
        curvature as far as it leaves a minimum: of any size, from any guess. The next three project: they
        step from trajectory to trajectory, know no limits and never raise the cost. Newton shifts its
        Hessian where the subproblem has no minimum, or its step finds no lower cost, and falls back to
        Gauss-Newton (the quasi-Newton method of this problem) and to steepest descent where no shift helps.
        ``"multiple-shooting"`` is the first of these done in symbols, for small maps with implicit equations
        (`OneStepMap.residual`); what it arrives at is projected and handed to Newton. ``"auto"`` is shooting
        where there are limits, the map is large or has no implicit equations; of small ones without limits
        multiple shooting from a curve of states and Newton else, with shooting where these end without an
        optimum.
    tolerance : float, optional
        Of shooting: what the conditions of optimality may leave, scaled; default 1e-9. Of the others: stop at
        -Dg(xi).zeta < tolerance, in units of the cost; default 1e-6.
    max_iterations : int
    multipliers : dict, optional
        Estimates of the limits' by name, from `Result.multipliers`; default those of a guess that is a
        result.
    warmup : int
        First iterations of Newton that use the Gauss-Newton direction.
    projection : (Q, R), optional
        Weights of the regulator about each iterate that projects, as in `dlqr`; default: the convex
        part of the cost, so that stiff terminal weights are in the gains too.
    dt : float or (N,), optional
        Step lengths, s, as in `OneStepMap.rollout`: they need not be equal. Default: those of a guess that
        is a trajectory, which are the map's own unless they are unequal; else the map's.
    armijo : Armijo
        Of the methods that project.
    monitor : bool or callable, optional
        True prints one line per iteration and a verdict; a callable gets each `Record`.
    raise_on_failure : bool
        False returns the best iterate with its status instead of raising; a guess that leads to no
        trajectory is then replaced by the rollout of its inputs, or else of none, from its start, which the
        result's `message` says.

    Returns
    -------
    Result

    Raises
    ------
    ValueError
        Shapes and options; limits for a method that has none; a start outside of a limit.
    OptimizationError
        Not converged (``result`` holds the best iterate); a guess that cannot be projected; also if not
        `raise_on_failure`: no trajectory to begin with at all, or a cost that is not finite on it.
    KeyboardInterrupt
        Ctrl-C, with the best iterate as its ``result``; returned instead if not `raise_on_failure`.

    Examples
    --------
    >>> best = optimize(f, cost, x0=hanging, steps=200, bounds={"u.force": 10}, final=upright)
    >>> best["theta"], best.multipliers["u.force"]
    """
    if not isinstance(cost, Cost):
        raise TypeError(f"cost: expected a Cost (see vioc.control.quadratic), got {cost!r}")
    cost.check_map(f)
    if method not in METHODS:
        raise ValueError(f"method: expected one of {', '.join(map(repr, METHODS))}, got {method!r}")
    limited = bool(bounds) or final is not None or bool(constraints)
    if limited and method not in ("auto", "shooting"):
        raise ValueError(f'method: {method!r} knows no bounds, constraints or final; use "shooting"')
    own = {"armijo": armijo is not ARMIJO, "warmup": warmup != 0, "projection": projection is not None}
    projects = [name for name, given in own.items() if given]
    if projects and (limited or method == "shooting"):
        raise ValueError(f"{projects[0]}: it is an option of the methods that project, not of shooting")

    def shoot(raises: bool) -> Result:
        run = trajectory_of(guess)
        lengths = guess_lengths(f, run, dt)
        n = steps if steps is not None else _steps(run)
        if n is None:
            raise ValueError("steps: give their number with x0, or a guess")
        k0 = run.k0 if isinstance(run, Trajectory) else 0
        problem = Problem(f, cost, n, bounds=bounds, constraints=constraints, final=final, dt=lengths, k0=k0)
        return problem.solve(
            x0,
            guess,
            multipliers=multipliers,
            tolerance=1e-9 if tolerance is None else tolerance,
            max_iterations=max_iterations,
            monitor=monitor,
            raise_on_failure=raises,
        )

    if method == "shooting" or limited:
        return shoot(raise_on_failure)
    small = method != "auto" or bool(projects) or StagePrograms.of(f, cost, SMALL) is not None
    if not small:
        return shoot(raise_on_failure)
    again = method == "auto" and not projects
    options: dict[str, Any] = dict(
        x0=x0, steps=steps, method=method, max_iterations=max_iterations, warmup=warmup
    )
    options |= dict(projection=projection, dt=dt, armijo=armijo, monitor=monitor)
    try:
        return descend(
            f, cost, guess, tolerance=1e-6 if tolerance is None else tolerance, **options,
            raise_on_failure=raise_on_failure or again,
        )  # fmt: skip
    except KeyboardInterrupt as stop:
        if raise_on_failure or not hasattr(stop, "result"):
            raise
        return stop.result
    except OptimizationError as error:
        if not again:
            raise
        try:
            return shoot(True)
        except OptimizationError:
            if raise_on_failure or error.result is None:
                raise error from None
            best: Any = error.result
            return best


def _steps(guess: Any) -> int | None:
    """How many steps a guess has, if it tells."""
    if guess is None:
        return None
    if isinstance(guess, tuple):
        return len(guess[0]) - 1
    return len(guess)
