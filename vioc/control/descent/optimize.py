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
from typing import Any, NamedTuple

import numpy as np

from vioc.control.costs.cost import Cost
from vioc.control.descent.begin import begin, far_away, guess_curve, guess_lengths, guess_trajectory
from vioc.control.descent.local_model import Direction, LocalModel
from vioc.control.descent.shooting import Shooting
from vioc.control.descent.symbolic.programs import StagePrograms
from vioc.control.descent.symbolic.symbolic_model import LocalModels
from vioc.control.linear.weights import input_weight, state_weight
from vioc.control.problem.result import HEADER, History, Log, Record, Result, finished, open_loop
from vioc.control.problem.status import Status, advice_on, verdict
from vioc.errors import OptimizationError, StepError
from vioc.maps.given import trajectory_of
from vioc.maps.protocol import OneStepMap
from vioc.maps.trajectory import Trajectory

SHOOTING = "multiple-shooting"
FALLBACKS = {
    "newton": ("newton", "gauss-newton", "steepest"),
    "gauss-newton": ("gauss-newton", "steepest"),
    "steepest": ("steepest",),
}
# of the Newton Hessian, in units of the inputs' weight: least, factor, most. Where a tiny one is enough (the
# marionette: 1e-6) a step with 1e-3 creeps along valleys that are nearly flat.
SHIFT = 1e-3 / 4**5, 4.0, 1e6
ROUNDING = 1e-12  # of the cost: a descent below this cannot be seen in it
OPEN_LOOP = 1e-6  # relative to 1 + |x|: how far the rollout of the inputs may be from the iterate


class Armijo(NamedTuple):
    """Backtracking: the first gamma = beta^j, j < trials, with g(gamma) <= g + alpha gamma Dg.zeta."""

    alpha: float = 1e-5
    beta: float = 0.7
    trials: int = 30


ARMIJO = Armijo()


def optimize(
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
    """The trajectory from x_0 that (locally) minimizes a cost.

    Parameters
    ----------
    f : OneStepMap
    cost : Cost
    guess : Trajectory, (X, U), U or None
        A trajectory; a curve of states (N+1, nx) and inputs (N, nu) that need not be a trajectory (U may
        be None), which is projected first; inputs (N, nu) alone, or None for zero inputs over `steps`
        steps, which are rolled out from `x0`.
    x0 : (nx,), optional
        Start; default that of the guess.
    steps : int, optional
        N, where the guess does not tell.
    method : {"auto", "multiple-shooting", "newton", "gauss-newton", "steepest"}
        ``"multiple-shooting"`` moves states, inputs and multipliers at once from a curve of states that
        is no trajectory, until its gaps are closed; what it arrives at is projected and handed to Newton.
        It needs a map with implicit equations (`OneStepMap.residual`) of moderate size. The other methods
        step from trajectory to trajectory and never raise the cost: Newton shifts its Hessian where the
        subproblem has no minimum, or its step finds no lower cost, and falls back to Gauss-Newton (the
        quasi-Newton method of this problem) and to steepest descent where no shift helps. ``"auto"`` is
        multiple shooting where the guess is a curve of states and the map allows it, else Newton.
    tolerance : float
        Stop at -Dg(xi).zeta < tolerance, in units of the cost.
    max_iterations : int
    warmup : int
        First iterations of Newton that use the Gauss-Newton direction.
    projection : (Q, R), optional
        Weights of the regulator about each iterate that projects, as in `dlqr`; default: the convex
        part of the cost, so that stiff terminal weights are in the gains too.
    dt : float or (N,), optional
        Step lengths, s, as in `OneStepMap.rollout`: they need not be equal. Default: those of a guess that
        is a trajectory, which are the map's own unless they are unequal; else the map's.
    armijo : Armijo
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
        Shapes and options.
    OptimizationError
        Not converged (``result`` holds the best iterate); a guess that cannot be projected; also if not
        `raise_on_failure`: no trajectory to begin with at all, or a cost that is not finite on it.
    KeyboardInterrupt
        Ctrl-C, with the best iterate as its ``result``; returned instead if not `raise_on_failure`.
    """
    if not isinstance(cost, Cost):
        raise TypeError(f"cost: expected a Cost (see vioc.control.quadratic), got {cost!r}")
    cost.check_map(f)
    methods = ("auto", SHOOTING, *FALLBACKS)
    if method not in methods:
        raise ValueError(f"method: expected one of {', '.join(map(repr, methods))}, got {method!r}")
    if not tolerance > 0 or max_iterations < 1 or warmup < 0:
        raise ValueError(
            "expected tolerance > 0, max_iterations >= 1 and warmup >= 0, got "
            f"{tolerance}, {max_iterations}, {warmup}"
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
                search = _Search(f, tolerance, armijo, run, models.value(run), log)
                search.iterate(models, method if method in FALLBACKS else "newton", max_iterations, warmup)
        except KeyboardInterrupt as stop:
            interrupt = stop
            if search is None:  # stopped between curves: what they lead to
                run = None if shooting is None else shooting.trajectory(f)
                if run is None:
                    run, begun = begin(f, guess, x0, steps, weights, dt, strict=raise_on_failure)
                search = _Search(f, tolerance, armijo, run, cost.value(run), log)
            search.status, search.note = Status.INTERRUPTED, ""
    if search.status in (Status.LINE_SEARCH, Status.NO_DESCENT, Status.MAX_ITERATIONS):
        search.far = far_away(f, guess, search.run)
    result = search.result(begun)
    return finished(result, interrupt, monitor, raise_on_failure)


def _shooting(
    f: OneStepMap, cost: Cost, guess: Any, x0: Any, steps: int | None, method: str, dt: Any
) -> Shooting | None:
    """The guess as the first curve of multiple shooting, where that is the method."""
    if method in FALLBACKS or (method == "auto" and not isinstance(guess, tuple)):
        return None
    programs = StagePrograms.of(f, cost)
    if programs is None:
        if method == "auto":
            return None
        raise ValueError(
            f"method: {SHOOTING!r} needs a map with implicit equations (`residual`) of moderate size, and "
            f'{f!r} is none; use "newton"'
        )
    if not isinstance(guess, tuple):
        run = guess_trajectory(f, guess, x0, steps, None, dt)
        guess = run.x, run.u
    X, U = guess_curve(f, guess)
    if x0 is not None:
        X = X.copy()
        X[0] = f.check_state(x0, "x0")
    return Shooting(f, cost, programs, X, U, dt)


@dataclass
class _Search:
    """The state of an optimization: at any moment `run` is the best iterate."""

    map: OneStepMap
    tolerance: float
    armijo: Armijo
    run: Trajectory
    value: float
    log: Log
    gains: np.ndarray | None = None
    status: Status | None = None
    note: str = ""
    far: str = ""
    shift: float = 0.0
    slope: float = np.nan  # along the first direction without a shift
    unsolved: Exception | None = None  # why the last trial that was no trajectory was none

    def iterate(self, models: LocalModels, method: str, max_iterations: int, warmup: int) -> None:
        for i in range(min(self.log.steps, max_iterations), max_iterations + 1):
            try:
                model = models.about(self.run, self.shift)
            except (StepError, OptimizationError) as error:  # no derivatives here; keep the iterate
                self.status, self.note = Status.NO_DESCENT, str(error)
                return
            self.gains = model.gains
            chain = FALLBACKS["gauss-newton" if method == "newton" and i < warmup else method]
            self._advance(model, chain, last=i == max_iterations)
            if self.status:
                return

    def _short(self, direction: Direction) -> bool:
        """Whether nothing is left to gain along it, or nothing that the cost's digits would show."""
        return -direction.slope < max(self.tolerance, ROUNDING * abs(self.value))

    def _directions(self, model: LocalModel, methods: tuple[str, ...]) -> Iterator[Direction]:
        """Directions to try, the next one where a step along the one before found nothing.

        A shift makes any direction short, so short ones with a shift say nothing and are left out.
        """
        least, factor, most = SHIFT
        for name in methods:
            if name != "newton":
                direction = model.direction(name)
                if direction is not None:
                    yield direction
                continue
            again = self.shift > 0
            while self.shift <= most:
                direction = model.direction(name, self.shift)
                if direction is not None and self.shift > 0 and self._short(direction):
                    if not again:  # those of larger shifts are shorter still
                        break
                    self.shift, again = 0.0, False  # that was not the least shift, perhaps
                    continue
                if direction is not None:
                    yield direction
                self.shift = max(factor * self.shift, least)
            self.shift = 1.0

    def _advance(self, model: LocalModel, methods: tuple[str, ...], last: bool) -> None:
        """One step along the first direction that gives one, or a status.

        What is stationary is told by the first direction without a shift: Newton's, or Gauss-Newton's where
        Newton's Hessian has no minimum.
        """
        self.status, self.slope, self.unsolved = Status.NO_DESCENT, np.nan, None
        for direction in self._directions(model, methods):
            judge = not direction.shift and np.isnan(self.slope)
            if judge:
                self.slope = direction.slope
            if -direction.slope < self.tolerance:
                if not judge:
                    continue
                self.status = Status.CONVERGED
                if methods[0] == "newton" and direction.method != "newton":
                    self.note = "stationary, but perhaps no minimum: the Newton Hessian is indefinite there"
                self._record(direction, self.value, 0.0, 0)
                return
            if last:
                self.status = Status.MAX_ITERATIONS
                self._record(direction, self.value, 0.0, 0)
                break
            before = self.value
            found, gamma, trials = self._search(model, direction)
            if found is not None:
                self.run, self.value = found
            self._record(direction, before, gamma, trials)
            if judge and self._short(direction) and not self.value < before:
                self.status = Status.CONVERGED
                self.note = f"to rounding: |Dg.zeta| = {-direction.slope:.2g} cannot be seen in the cost"
                return
            if found is not None:
                self.status, self.slope = None, np.nan
                if direction.method == "newton" and gamma == 1.0:
                    self.shift = self.shift / SHIFT[1] if self.shift > SHIFT[0] / 4 else 0.0
                return
            self.status = Status.LINE_SEARCH
        if np.isnan(self.slope):
            plain = (model.direction(name) for name in methods)
            self.slope = next((d.slope for d in plain if d is not None), np.nan)

    def _search(
        self, model: LocalModel, direction: Direction
    ) -> tuple[tuple[Trajectory, float] | None, float, int]:
        """Armijo backtracking: (trajectory, cost) or None, step length, number of trials."""
        gamma, alpha = 1.0, self.armijo.alpha
        for trial in range(1, self.armijo.trials + 1):
            found = model.trial(direction, gamma, self.value + alpha * gamma * direction.slope)
            if found is not None:
                return found, gamma, trial
            self.unsolved = model.trouble or self.unsolved
            gamma *= self.armijo.beta
        return None, 0.0, self.armijo.trials

    def _record(self, direction: Direction, cost: float, gamma: float, trials: int) -> None:
        method, shift, slope = direction.method, direction.shift, direction.slope
        self.log(Record(self.log.steps, method, shift, cost, slope, gamma, trials))

    def result(self, begun: str = "") -> Result:
        run = self.run
        if self.gains is None:
            self.gains = np.zeros((len(run), self.map.nu, self.map.ndx))
        assert self.status is not None
        run, gap = open_loop(run)
        descent = "" if np.isnan(self.slope) else f", Dg.zeta = {self.slope:.3g}"
        what = self.far or advice_on(self.status, self.unsolved)
        message = verdict(
            self.status,
            f"{self.log.steps} iterations",
            self.value,
            begun,
            self.note,
            what,
            promise=descent,
        )
        history = History.of(self.log.records)
        steps = self.log.steps
        return Result(run, self.value, self.status, message, steps, history, self.gains, gap, self.slope)
