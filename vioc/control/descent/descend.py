"""Trajectory optimization by the projection-operator Newton method.

Method of Hauser (2002) and of Hauser and Saccon (2006): minimize g(P(xi)) over curves xi, with the projection
operator P. Each iteration descends along a tangent trajectory zeta = argmin Dg(xi).zeta + 1/2 <zeta, H zeta>,
the solution of a linear-quadratic problem, and projects the step. A guess that is not a trajectory is first
improved by multiple shooting (`shooting`). See docs/maths/optimal_control.md.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import Any

import numpy as np

from vioc.control.costs.cost import Cost
from vioc.control.descent.guess import begin, far_away, guess_curve, guess_lengths
from vioc.control.descent.line_search import ARMIJO, Armijo, Descent
from vioc.control.descent.shooting import Shooting
from vioc.control.descent.symbolic.stage_programs import StagePrograms
from vioc.control.descent.symbolic.symbolic_model import LocalModels
from vioc.control.linear.weights import input_weight, state_weight
from vioc.control.problem.result import HEADER, Iteration, Log, Result, check_ending, finished
from vioc.control.problem.status import Status
from vioc.maps.protocol import OneStepMap
from vioc.runs.given import trajectory_of


def descend(
    f: OneStepMap,
    cost: Cost,
    guess: Any = None,
    *,
    x0: Any = None,
    steps: int | None = None,
    direction: str | None = None,
    tolerance: float = 1e-6,
    max_iterations: int = 300,
    warmup: int = 0,
    projection: tuple[Any, Any] | None = None,
    dt: Any = None,
    armijo: Armijo = ARMIJO,
    monitor: bool | Callable[[Iteration], Any] | None = None,
    raise_on_failure: bool = True,
    stated: Callable[[], Any] | None = None,
) -> Result:
    """Minimize a cost over trajectories by the projection-operator Newton method.
    States and inputs have no limits.

    Arguments are those of `vioc.control.optimize`. `direction` is one of `DIRECTIONS`. None stands for
    Newton's direction, with multiple shooting before it if the guess consists of states and inputs and the
    map allows that. `stated` is the function that returns `Result.problem`.
    """
    check_ending(tolerance, max_iterations)
    if warmup < 0:
        raise ValueError(f"warmup: expected a number >= 0, got {warmup}")
    if type(armijo) is not Armijo:  # only the three values of a rule are used, so a subclass would be ignored
        raise ValueError(
            f"armijo: expected a vioc.control.Armijo(alpha, beta, trials), got {type(armijo).__name__}; "
            "custom rules are not supported"
        )
    if not (0 < armijo.alpha < 0.5 and 0 < armijo.beta < 1 and armijo.trials >= 1):
        raise ValueError(f"armijo: expected 0 < alpha < 1/2, 0 < beta < 1 and trials >= 1, got {armijo}")
    weights = None
    if projection is not None:
        weights = (
            state_weight(f, projection[0], "projection Q"),
            input_weight(f, projection[1], "projection R", definite=True),
        )
    guess, x0 = trajectory_of(guess), None if x0 is None else f.check_state(x0, "x0")
    log = Log("optimize", HEADER, monitor)
    dt = guess_lengths(guess, dt)
    shooting = _shooting(f, cost, guess, x0, dt) if direction is None else None
    options: dict[str, Any] = dict(armijo=armijo, method=direction or "newton", warmup=warmup, stated=stated)
    search = interrupt = None
    start_note = ""
    quiet = np.errstate(over="ignore", invalid="ignore", divide="ignore")  # trials are checked by their cost
    with quiet, log.shown():
        try:
            run = None
            if shooting is not None:
                shooting.iterate(max_iterations, log)
                run = shooting.trajectory(f)
            if run is None:
                run, start_note = begin(f, guess, x0, steps, weights, dt, strict=raise_on_failure)
            with closing(LocalModels(f, cost, run, weights)) as models:
                search = Descent(f, tolerance, run, models.value(run), log, models=models, **options)
                search.iterate(max_iterations)
        except KeyboardInterrupt as stop:
            interrupt = stop
            if search is None:  # interrupted during multiple shooting: use its trajectory
                run = None if shooting is None else shooting.trajectory(f)
                if run is None:
                    run, start_note = begin(f, guess, x0, steps, weights, dt, strict=raise_on_failure)
                search = Descent(f, tolerance, run, cost.value(run), log, **options)
            search.status, search.note = Status.INTERRUPTED, ""
    try:
        if search.status in (Status.LINE_SEARCH, Status.NO_DESCENT, Status.MAX_ITERATIONS):
            search.far = far_away(f, guess, search.run)
        result = search.result(start_note)
    except KeyboardInterrupt as stop:  # keep the result found so far
        interrupt, search.status, search.note = stop, Status.INTERRUPTED, ""
        result = search.result(start_note)
    return finished(result, interrupt, monitor, raise_on_failure)


def _shooting(f: OneStepMap, cost: Cost, guess: Any, x0: Any, dt: Any) -> Shooting | None:
    """Return a multiple-shooting search that starts from the guess.
    Return None if the guess is not a pair of states and inputs, or if multiple shooting does not support the
    map or the cost.
    """
    programs = StagePrograms.of(f, cost, dt=dt) if isinstance(guess, tuple) else None
    if programs is None:
        return None
    X, U = guess_curve(f, guess)
    if x0 is not None:
        X = X.copy()
        X[0] = x0
    return Shooting(f, cost, programs, X, U, dt)
