"""Trajectory optimization by the projection-operator Newton method (Hauser 2002; Hauser, Saccon 2006).

Minimize g(P(xi)) over curves xi, P the projection operator: each iteration descends along a tangent
trajectory zeta = argmin Dg(xi).zeta + 1/2 <zeta, H zeta>, an LQ problem, and projects the step back.
A guess that is no trajectory goes through multiple shooting first (`shooting`).
See docs/maths/optimal_control.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from vioc.control.costs.cost import Cost
from vioc.control.descent.begin import begin, far_away, guess_curve, guess_lengths, guess_trajectory
from vioc.control.descent.local_model import Direction, LocalModel
from vioc.control.descent.search import Search
from vioc.control.descent.shooting import Shooting
from vioc.control.descent.symbolic.programs import StagePrograms
from vioc.control.descent.symbolic.symbolic_model import LocalModels
from vioc.control.linear.weights import input_weight, state_weight
from vioc.control.problem.result import HEADER, Log, Record, Result, check_ending, finished
from vioc.control.problem.status import Status
from vioc.maps.given import trajectory_of
from vioc.maps.protocol import OneStepMap

MULTIPLE = "multiple-shooting"
DIRECTIONS = {
    "newton": ("newton", "gauss-newton", "steepest"),
    "gauss-newton": ("gauss-newton", "steepest"),
    "steepest": ("steepest",),
}
# of the Newton Hessian, in units of the inputs' weight: least, factor, most. Where a tiny one is enough (the
# marionette: 1e-6) a step with 1e-3 creeps along valleys that are nearly flat.
SHIFT = 1e-3 / 4**5, 4.0, 1e6


class Armijo(NamedTuple):
    """Backtracking: the first gamma = beta^j, j < trials, with g(gamma) <= g + alpha gamma Dg.zeta."""

    alpha: float = 1e-5
    beta: float = 0.7
    trials: int = 30


ARMIJO = Armijo()


def descend(
    f: OneStepMap,
    cost: Cost,
    guess: Any = None,
    *,
    x0: Any = None,
    steps: int | None = None,
    method: str = "auto",
    tolerance: float = 1e-6,
    max_iterations: int = 300,
    warmup: int = 0,
    projection: tuple[Any, Any] | None = None,
    dt: Any = None,
    armijo: Armijo = ARMIJO,
    monitor: bool | Callable[[Record], Any] | None = None,
    raise_on_failure: bool = True,
) -> Result:
    """`vioc.control.optimize` by the methods without limits; ``"auto"`` is multiple shooting where the guess
    is a curve of states and the map allows it, else Newton.
    """
    check_ending(tolerance, max_iterations)
    if warmup < 0:
        raise ValueError(f"warmup: expected a number >= 0, got {warmup}")
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
    dt = guess_lengths(f, guess, dt)
    shooting = _shooting(f, cost, guess, x0, steps, method, dt)
    search = interrupt = None
    begun = ""
    quiet = np.errstate(over="ignore", invalid="ignore", divide="ignore")  # trials are judged by their value
    with quiet, log.shown():
        try:
            run = None
            if shooting is not None:
                shooting.iterate(max_iterations, log)
                run = shooting.trajectory(f)
            if run is None:
                run, begun = begin(f, guess, x0, steps, weights, dt, strict=raise_on_failure)
            with closing(LocalModels(f, cost, run, weights)) as models:
                search = _Descent(f, tolerance, run, models.value(run), log, armijo=armijo, models=models)
                search.method, search.warmup = method if method in DIRECTIONS else "newton", warmup
                search.iterate(max_iterations)
        except KeyboardInterrupt as stop:
            interrupt = stop
            if search is None:  # stopped between curves: what they lead to
                run = None if shooting is None else shooting.trajectory(f)
                if run is None:
                    run, begun = begin(f, guess, x0, steps, weights, dt, strict=raise_on_failure)
                search = _Descent(f, tolerance, run, cost.value(run), log)
            search.status, search.note = Status.INTERRUPTED, ""
    try:
        if search.status in (Status.LINE_SEARCH, Status.NO_DESCENT, Status.MAX_ITERATIONS):
            search.far = far_away(f, guess, search.run)
        result = search.result(begun)
    except KeyboardInterrupt as stop:  # what was found is kept
        interrupt, search.status, search.note = stop, Status.INTERRUPTED, ""
        result = search.result(begun)
    return finished(result, interrupt, monitor, raise_on_failure)


def _shooting(
    f: OneStepMap, cost: Cost, guess: Any, x0: Any, steps: int | None, method: str, dt: Any
) -> Shooting | None:
    """The guess as the first curve of multiple shooting, where that is the method."""
    if method in DIRECTIONS or (method == "auto" and not isinstance(guess, tuple)):
        return None
    k0 = 0
    if not isinstance(guess, tuple):
        run = guess_trajectory(f, guess, x0, steps, None, dt)
        guess, dt, k0 = (run.x, run.u), run.step_lengths, run.k0
    programs = StagePrograms.of(f, cost, dt=dt)
    if programs is None:
        if method == "auto":
            return None
        raise ValueError(
            f"method: {MULTIPLE!r} needs a map with implicit equations (`residual`) of moderate size, and "
            f'equal steps where the cost holds forces; {f!r} with these steps is none; use "shooting"'
        )
    X, U = guess_curve(f, guess)
    if x0 is not None:
        X = X.copy()
        X[0] = f.check_state(x0, "x0")
    return Shooting(f, cost, programs, X, U, dt, k0)


@dataclass
class _Descent(Search):
    """Newton's method with its fallbacks, by Armijo's rule."""

    armijo: Armijo = ARMIJO
    models: LocalModels | None = None
    method: str = "newton"
    warmup: int = 0
    chain: tuple[str, ...] = ()

    def model(self, i: int) -> LocalModel:
        assert self.models is not None
        model = self.models.about(self.run, self.shift)
        self.gains = model.gains
        self.chain = DIRECTIONS[
            "gauss-newton" if self.method == "newton" and i < self.warmup else self.method
        ]
        return model

    def directions(self, model: LocalModel) -> Iterator[Direction]:
        for name in self.chain:
            if name == "newton":
                yield from self.shifted(partial(model.direction, name), SHIFT[2])
                self.shift = 1.0
            elif (direction := model.direction(name)) is not None:
                yield direction

    def harder(self) -> None:
        self.shift = max(SHIFT[1] * self.shift, SHIFT[0])

    def easier(self, aim: Direction, gamma: float) -> None:
        if aim.method == "newton" and gamma == 1.0:
            self.shift = self.shift / SHIFT[1] if self.shift > SHIFT[0] / 4 else 0.0

    def doubt(self, model: LocalModel, aim: Direction) -> str:
        if self.chain[0] == "newton" and aim.method != "newton" and not model.has_minimum():
            return "stationary, but perhaps no minimum: the Newton Hessian is indefinite there"
        return ""

    def unshifted(self, model: LocalModel) -> float:
        plain = (model.direction(name) for name in self.chain)
        return next((d.slope for d in plain if d is not None), np.nan)

    def attempt(self, model: LocalModel, aim: Direction):
        gamma, alpha = 1.0, self.armijo.alpha
        for trial in range(1, self.armijo.trials + 1):
            found = model.trial(aim, gamma, self.value + alpha * gamma * aim.slope)
            if found is not None:
                return found, gamma, trial
            self.unsolved = model.trouble or self.unsolved
            gamma *= self.armijo.beta
        return None, 0.0, self.armijo.trials
