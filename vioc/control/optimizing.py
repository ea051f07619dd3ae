"""Common interface of the trajectory optimizers, and the choice among them.

See docs/choosing.md, "Which optimizer".
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

import numpy as np

from vioc.checks import as_count, near_misses
from vioc.control.control_problem import Problem
from vioc.control.costs.cost import Cost, checked
from vioc.control.descent.descend import descend
from vioc.control.descent.guess import guess_lengths, on_steps
from vioc.control.descent.line_search import DIRECTIONS
from vioc.control.descent.symbolic.stage import SMALL
from vioc.control.descent.symbolic.stage_programs import StagePrograms
from vioc.control.problem.limits import PathConstraint, as_constraints
from vioc.control.problem.result import Iteration, Result, finished, off_branch
from vioc.control.problem.sizes import Sizes
from vioc.control.problem.status import Status
from vioc.control.regulators.lqr import dlqr
from vioc.control.shooting.unknowns import Unknowns
from vioc.errors import OptimizationError, StepError, trying
from vioc.maps.made.extended import PARAMETER, ExtendedMap
from vioc.maps.protocol import OneStepMap
from vioc.runs.given import trajectory_of
from vioc.runs.steps import check_clock
from vioc.runs.trajectory import Trajectory

LIMITS = {"bounds", "constraints", "final"}
NUMBERS = {"duration", "final", "dt", "rate"}  # arguments that say something even if they are 0
FREE = {"initial", "duration", "periodic"}  # with `parameters`, the possible unknowns besides the motion
TAKES = {  # arguments of each method besides map, cost, guess, x0, steps and termination
    "shooting": {*LIMITS, *FREE, "parameters", "dt", "multipliers"},
    "projection": {"dt", "direction", "warmup", "projection", "armijo"},
    "dmoc": {
        *LIMITS,
        *FREE,
        *("parameters", "dt", "rate", "quadrature", "solver", "form", "options", "smoothing"),
    },
}
OPTIONS = {"direction", "warmup", "projection", "armijo"} | TAKES["dmoc"] - LIMITS - FREE - {
    "parameters",
    "dt",
}


def optimize(
    f: OneStepMap,
    cost: Cost,
    guess: Any = None,
    *,
    x0: Any = None,
    steps: int | None = None,
    bounds: Mapping[str, Any] | None = None,
    constraints: Sequence[PathConstraint] | PathConstraint | None = None,
    final: Any = None,
    initial: Any = None,
    duration: Any = None,
    parameters: Mapping[str, Any] | None = None,
    periodic: Any = None,
    method: str = "auto",
    tolerance: float | None = None,
    max_iterations: int = 300,
    multipliers: Mapping[str, Any] | None = None,
    dt: Any = None,
    monitor: bool | Callable[[Iteration], Any] | None = None,
    raise_on_failure: bool = True,
    **options: Any,
) -> Result:
    """Find a trajectory that minimizes a cost locally, subject to limits.

    Parameters
    ----------
    f : OneStepMap
    cost : Cost
    guess : Trajectory, result, (X, U), U or None
        A trajectory (with other step lengths it is stretched and interpolated to those of the problem); a
        curve of states (N+1, nx) and inputs (N, nu) that need not be a trajectory (U may be None); inputs
        (N, nu) alone, which are rolled out from `x0`; or None. Without a guess, shooting and DMOC repeat
        the first state over `steps` steps; projection rolls it out without inputs.
    x0 : (nx,), optional
        Start; default that of the guess. With `initial` by name, the first state of the guess.
    steps : int, optional
        N, if the guess does not determine it. A guess with another N raises ValueError, unless it is a
        trajectory with other step lengths.
    bounds : dict, optional
        Limits by name of any quantity, including states, inputs (``u.force``, or ``force`` if the name is
        unique) and multipliers (``lambda.string``): a pair (lower, upper) of numbers, arrays over time or
        None, or b for [-b, b].
    constraints : PathConstraint or sequence of PathConstraint, optional
        lower <= expression <= upper along the path, or at the end; equal limits make an equation.
    final : (nx,) or dict, optional
        The last state: a value or (lower, upper) by name.
    initial : (nx,) or dict, optional
        The first state, if `x0` does not give all of it: a value or (lower, upper) by name of any
        quantity of the state; states not named are free.
    duration : float or (lower, upper), optional
        Duration of all steps, s; a pair makes it free, and steps keep their proportions. A cost may be the
        duration: `dmoc.minimum_time`, or a constant per second. The first value is that of a guess that is a
        trajectory, else the sum of `dt` if given, else the middle of its limits.
    parameters : dict of str to (lower, upper), optional
        Declared parameters of the map that are free, within limits or None for none; `Result.map` has the
        optimized values. The first values are those of the guess's map, else of the map.
    periodic : bool, names, or dict of name to shift, optional
        States whose last value is the first plus the shift (0 by default); True means all.
    method : {"auto", "shooting", "projection", "dmoc"}
        Arguments that a method does not support raise ValueError. ``"shooting"``: multiple shooting on states
        and inputs of all steps, with an interior point for limits and the exact Hessian, regularized where it
        is indefinite. For problems of any size and any guess. ``"projection"``: descent over trajectories
        that never increases the cost; no limits. ``"dmoc"``: solves the map's own equations by IPOPT, FATROP
        or an SQP method (`dmoc.solve`). ``"auto"``: the first of shooting, projection and dmoc that supports
        the arguments. For small maps with implicit equations (`OneStepMap.residual`) without limits it is
        projection, followed by shooting if projection finds no optimum; projection then starts from a curve
        of states by symbolic multiple shooting, unless a `direction` is given.
    tolerance : float, optional
        For shooting and DMOC: largest scaled KKT residual; default 1e-9 and 1e-8. For projection: stop at
        -Dg(xi).zeta <= tolerance, in units of a thousandth of the cost;
        default 1e-6.
    max_iterations : int
    multipliers : dict, optional
        For shooting: multiplier estimates of the limits by name, from `Result.multipliers`; default those of
        a guess that is a result.
    dt : float or (N,), optional
        Step lengths, s, as in `OneStepMap.rollout`: they need not be equal, except for DMOC. Default: those
        of a guess that is a trajectory of unequal steps; else the map's.
    monitor : bool or callable, optional
        True prints one line per iteration and a verdict; a callable gets each `Iteration`.
    raise_on_failure : bool
        False returns the best iterate with its status instead of raising. A guess that leads to no
        trajectory is then replaced by the rollout of its inputs from its start, or of zero inputs, as the
        result's `message` says.
    **options
        Options of projection: ``direction``, ``"newton"`` (default), ``"gauss-newton"`` (quasi-Newton for
        this problem) or ``"steepest"``. Newton shifts its Hessian if the subproblem has no minimum or its
        step does not reduce the cost, and falls back to Gauss-Newton and steepest descent if no shift helps.
        ``warmup``, number of first iterations of Newton that use the Gauss-Newton direction; ``projection``,
        weights (Q, R) of the projecting regulator about each iterate, as in `dlqr`, default the convex part
        of the cost, so that the gains include stiff terminal weights; ``armijo``, an `Armijo`. Options of
        DMOC: ``rate``, ``quadrature`` as in `dmoc.Phase`; ``solver``, ``form``, ``options`` and, for maps
        with contact, ``smoothing`` as in `dmoc.Problem.solve`.

    Returns
    -------
    Result

    Raises
    ------
    TypeError
        Unknown options.
    ValueError
        Wrong shapes or options; limits, options and maps that the method does not support; a start outside a
        limit.
    NotImplementedError
        A free duration of a map without equations of its steps (`MapDerivatives.timed`).
    OptimizationError
        Not converged (``result`` holds the best iterate); a guess that cannot be projected. Without
        `raise_on_failure`: no trajectory to begin with at all, or a cost that is not finite on it.
    KeyboardInterrupt
        Ctrl-C, with the best iterate as its ``result``; returned instead if not `raise_on_failure`.

    Examples
    --------
    >>> best = optimize(f, cost, x0=hanging, steps=200, bounds={"u.force": 10}, final=upright)
    >>> best["theta"], best.multipliers["u.force"]
    """
    checked(f, cost)
    steps = None if steps is None else as_count(steps, "steps")
    if unknown := next((name for name in options if name not in OPTIONS), None):
        raise TypeError(f"optimize: unknown option {unknown!r}; {near_misses(unknown, sorted(OPTIONS))}")
    asked = dict(bounds=bounds, constraints=constraints, final=final, multipliers=multipliers, dt=dt)
    asked |= dict(duration=duration, parameters=parameters, periodic=periodic)
    given = {name: value for name, value in (asked | options).items() if _says(name, value)}
    given |= {} if initial is None else {"initial": initial}  # an empty dict frees the whole state
    chosen = _chosen(f, cost, method, given)
    guess = guess if "duration" in given else on_steps(f, guess, steps, dt)
    how: dict[str, Any] = dict(max_iterations=max_iterations, monitor=monitor)
    how |= {} if tolerance is None else {"tolerance": tolerance}

    def problem(own: Set[str] = TAKES["shooting"] - {"dt", "multipliers"}) -> Problem:
        run = trajectory_of(guess)
        n = steps if steps is not None else _steps(run)
        if n is None:
            raise ValueError("steps: give their number with x0, or a guess")
        k0 = 0
        if isinstance(run, Trajectory):
            check_clock(run, "guess")
            k0 = run.k0
        stated = {name: given[name] for name in own & given.keys()}
        lengths = dt if "duration" in given else guess_lengths(run, dt)
        return Problem(f, cost, n, **stated, dt=lengths, k0=k0)

    def shoot(raises: bool) -> Result:
        return problem().solve(x0, guess, multipliers=multipliers, raise_on_failure=raises, **how)

    if chosen == "shooting":
        return shoot(raise_on_failure)
    if chosen == "dmoc":
        found = _by_dmoc(problem({*LIMITS, "initial"}), x0, guess, given | how)
        if "parameters" in given:  # DMOC solved the problem of a map with constants as states
            found = replace(found, stated=problem if "rate" not in given else _not_shooting)
        return finished(found, None, None, raise_on_failure)
    if method == "projection":
        given.setdefault("direction", "newton")
    if steps is not None and (n := _steps(trajectory_of(guess))) not in (None, steps):
        raise ValueError(f"steps: got {steps}, but the guess has {n} steps; give steps={n}, or leave it out")
    start: dict[str, Any] = dict(x0=x0, steps=steps, stated=problem, **given, **how)
    again = method == "auto" and given.keys() <= {"dt"}

    def project(raises: bool) -> Result:
        return descend(f, cost, guess, raise_on_failure=raises, **start)

    return _projected(project, shoot if again else None, raise_on_failure)


def _projected(
    project: Callable[[bool], Result], shoot: Callable[[bool], Result] | None, raise_on_failure: bool
) -> Result:
    """Optimize by the projection method, then by shooting if no optimum is found.
    The arguments `project` and `shoot` are functions that run these methods; their argument is
    `raise_on_failure`.
    """
    try:
        return project(raise_on_failure or shoot is not None)
    except KeyboardInterrupt as stop:
        if raise_on_failure or not hasattr(stop, "result"):
            raise
        return stop.result
    except OptimizationError as error:
        if shoot is None:
            raise
        try:
            return shoot(True)
        except OptimizationError:
            if raise_on_failure or error.result is None:
                raise error from None
            best: Any = error.result
            return best


def _by_dmoc(stated: Problem, x0: Any, guess: Any, options: dict[str, Any]) -> Result:
    """Solve a problem by DMOC, then roll out the solution's inputs under feedback."""
    # here, since the sparse matrices of SciPy that DMOC needs are slow to import
    from vioc.control.dmoc.problem import solve
    from vioc.control.dmoc.solution import SAME

    h, run = stated.lengths, trajectory_of(guess)
    timed = "duration" in options and isinstance(run, Trajectory)  # the guess gives the duration
    samples = run if timed else stated.curve(x0, guess)
    first = x0 if x0 is not None else run.x[0] if timed else samples[0][0]
    if (h != h[0]).any():
        raise ValueError("dt: the steps of DMOC are equal")
    options = {"duration": len(h) * h[0], **options} if h[0] != stated.map.dt else options
    start: dict[str, Any] = dict(steps=len(h), k0=stated.k0)
    options = {"initial": first, **options}
    options.pop("dt", None)
    f, priced, extended = stated.map, stated.cost, None
    if "parameters" in options:
        extended, priced, samples, options = _with_parameters(stated, first, samples, options)
        f = extended
    found = solve(f, priced, samples, **start, **options, raise_on_failure=False)
    curve, far = found.trajectory, np.inf
    curve = extended.inner_trajectory(curve) if extended else curve
    run, gains = curve, np.zeros((len(h), stated.map.nu, stated.map.ndx))
    with contextlib.suppress(StepError, OptimizationError), trying():
        sizes = Sizes.along(curve)
        weights = np.diag(1 / sizes.states**2), np.diag(1 / sizes.inputs**2)
        gains = dlqr(curve.map, curve, *weights).K if curve.map.nu else gains
        run = curve.map.track(curve.x[0], curve.x, curve.u, gains, k0=curve.k0)
        far = sizes.apart(curve.x, run.x)
    duals = stated.rows.multipliers(stated.rows.from_multipliers(found.multipliers))
    told = tuple(f"initial {n}" for n in stated.unknowns.told)
    own = "rate.", "periodic.", "duration"
    duals |= {n: v for n, v in found.multipliers.items() if n.startswith(own) or n in told}
    free = f"initial {PARAMETER}"
    duals |= {n.removeprefix("initial "): v for n, v in found.multipliers.items() if n.startswith(free)}
    cost = found.cost if "quadrature" in options else None
    end = curve, run, far, gains
    wrong = off_branch(curve, SAME) if found.status is Status.ACCEPTABLE else ""
    more: dict[str, Any] = dict(iterations=found.iterations, seconds=found.seconds, cost=cost)
    more["violations"] = found.violations
    result = stated.result(found.status, found.history, end, duals, said=(wrong,), **more)
    (part,), plan = result.phases, found.only()
    part = replace(part, phase=None if extended else plan.phase, defect=plan.defect)
    kept = ("stats", "stages") if extended else ("stated", "raw", "stats", "stages")  # of the user's map
    return replace(result, phases=(part,), **{name: getattr(found, name) for name in kept})


def _not_shooting() -> Problem:
    raise ValueError("problem: shooting has no limits on rates; call `optimize` again instead")


def _with_parameters(
    stated: Problem, first: np.ndarray, samples: Any, options: dict[str, Any]
) -> tuple[ExtendedMap, Cost, Any, dict[str, Any]]:
    """Restate a problem for DMOC so that its free parameters are constant states."""
    f, n, options = stated.map, stated.steps, dict(options)
    u = Unknowns(f, n, None, None, options.pop("parameters"), None, None)
    assert isinstance(u.map, ExtendedMap)
    run = samples if isinstance(samples, Trajectory) else None
    constants = u.constants(run, first)
    if run is not None:
        samples = u.map.outer_trajectory(run, constants, run.t)
    else:
        samples = u.joined(samples[0], constants), samples[1]
    known = options["initial"]
    known = known if isinstance(known, Mapping) else dict(zip(f.state_names, known, strict=True))
    limits = {PARAMETER + name: (low[0], high[0]) for name, (low, high) in u.parameters.items()}
    options["initial"] = {**known, **limits}
    if options.get("periodic") is True:
        options["periodic"] = f.state_names
    if "constraints" in options:
        each = as_constraints(options["constraints"])
        options["constraints"] = [replace(c, expression=u.map.expression(c.expression)) for c in each]
    return u.map, u.cost(stated.cost), samples, options


def _chosen(f: OneStepMap, cost: Cost, method: str, given: dict[str, Any]) -> str:
    """Return the optimization method to use.
    Raise ValueError if the method does not support one of the given arguments.
    """
    chosen = method
    if method == "auto":
        chosen = next((m for m, takes in TAKES.items() if given.keys() <= takes), "shooting")
        if given.keys() <= {"dt"} and StagePrograms.of(f, cost, SMALL) is not None:
            chosen = "projection"
    if str(chosen) not in TAKES:
        known = ", ".join(map(repr, ("auto", *TAKES)))
        hint = (
            f'; it is a direction of "projection": direction={method!r}' if str(method) in DIRECTIONS else ""
        )
        raise ValueError(f"method: expected one of {known}, got {method!r}{hint}")
    if alien := next((name for name in given if name not in TAKES[chosen]), None):
        others = ", ".join(repr(m) for m, takes in TAKES.items() if alien in takes)
        raise ValueError(f"{alien}: method {chosen!r} takes none; those that do are {others}")
    direction = given.get("direction", "newton")
    if direction not in DIRECTIONS:
        raise ValueError(f"direction: expected one of {', '.join(map(repr, DIRECTIONS))}, got {direction!r}")
    return chosen


def _says(name: str, value: Any) -> bool:
    """Return True if the user gave an argument.
    None, False and empty containers count as not given.
    """
    if name in NUMBERS:
        return value is not None and (name == "duration" or not isinstance(value, Mapping) or bool(value))
    empty = isinstance(value, (Collection, np.ndarray)) and not len(value)
    return value is not None and value is not False and not empty


def _steps(guess: Any) -> int | None:
    """Return the number of steps of a guess, or None if there is no guess."""
    if guess is None:
        return None
    if isinstance(guess, tuple) and guess[0] is not None:
        return len(guess[0]) - 1
    if isinstance(guess, tuple):
        return None
    if not hasattr(guess, "__len__"):
        raise ValueError(
            f"guess: expected a trajectory, (X, U), inputs (N, nu) or None, got {guess!r}; for no inputs "
            "leave it out and give steps=N"
        )
    return len(guess)
