"""Minimization of a cost over trajectories by line searches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from vioc.control.descent.local_model import DescentDirection, LocalModel
from vioc.control.descent.symbolic.symbolic_model import LocalModels
from vioc.control.problem.result import History, Iteration, Log, PhaseResult, Result, judged, open_loop
from vioc.control.problem.sizes import as_unit
from vioc.control.problem.status import Status, advice_on, verdict
from vioc.errors import OptimizationError, StepError
from vioc.maps.protocol import OneStepMap
from vioc.runs.trajectory import Trajectory

DIRECTIONS = {
    "newton": ("newton", "gauss-newton", "steepest"),
    "gauss-newton": ("gauss-newton", "steepest"),
    "steepest": ("steepest",),
}
# Shift of the Newton Hessian, in units of the inputs' weight: smallest, factor, largest. If a tiny shift is
# enough (the marionette: 1e-6), steps with 1e-3 are too short where the cost hardly changes.
SHIFT = 1e-3 / 4**5, 4.0, 1e6
ROUNDING = 1e-12  # predicted reduction over the cost, below which it is rounding
FLOOR = 1e-4  # least cost assumed by the convergence test, over the cost at the guess
NOISE = 1e-20  # smallest significant cost, over that of states and inputs by their full magnitude


class Armijo(NamedTuple):
    """Armijo's backtracking rule for the step length of a line search.

    The length is the first gamma = beta^j, j < trials, with g(gamma) <= g + alpha gamma Dg.zeta.
    """

    alpha: float = 1e-5
    beta: float = 0.7
    trials: int = 30


ARMIJO = Armijo()


@dataclass
class Descent:
    """Newton's method on trajectories, with fallback directions and Armijo's rule.

    `run` is the best iterate.
    """

    map: OneStepMap
    tolerance: float
    run: Trajectory
    value: float
    log: Log
    armijo: Armijo = ARMIJO
    models: LocalModels | None = None
    method: str = "newton"
    warmup: int = 0
    stated: Callable[[], Any] | None = None
    chain: tuple[str, ...] = ()
    gains: np.ndarray | None = None
    status: Status | None = None
    note: str = ""
    far: str = ""
    shift: float = 0.0
    slope: float = np.nan  # slope along the first direction without a shift
    unsolved: Exception | None = None  # error of the last trial that was not a trajectory
    start_scale: float = 0.0  # the larger of cost and predicted reduction at the guess
    noise: float = 0.0

    def iterate(self, max_iterations: int) -> None:
        for i in range(min(self.log.steps, max_iterations), max_iterations + 1):
            try:
                model = self._model(i)
            except (StepError, OptimizationError) as error:  # no derivatives at the iterate; keep it
                self.status, self.note = Status.NO_DESCENT, str(error)
                return
            self._advance(model, last=i == max_iterations)
            if self.status:
                return

    def _model(self, i: int) -> LocalModel:
        """Return the second-order model of the cost at the iterate of iteration i."""
        assert self.models is not None
        model = self.models.about(self.run, self.shift)
        self.gains = model.gains
        self.chain = DIRECTIONS[
            "gauss-newton" if self.method == "newton" and i < self.warmup else self.method
        ]
        return model

    def _directions(self, model: LocalModel) -> Iterator[DescentDirection]:
        """Yield search directions in the order in which they are tried.
        The next one is used if no step along the previous ones was accepted.
        """
        for name in self.chain:
            if name == "newton":
                yield from self._shifted(model)
                self.shift = 1.0
            elif (direction := model.direction(name)) is not None:
                yield direction

    def _shifted(self, model: LocalModel) -> Iterator[DescentDirection]:
        """Yield Newton directions with increasing shifts of the Hessian's diagonal.

        A shift shortens any direction, so a small predicted reduction of the cost with a shift does not mean
        convergence; directions with such small reductions are left out.
        """
        retry = self.shift > 0
        while self.shift <= SHIFT[2]:
            aim = model.direction("newton", self.shift)
            if aim is not None and self.shift > 0 and self._short(aim):
                if not retry:  # larger shifts give shorter directions
                    return
                self.shift = 0.0
                retry = False  # the shift may have been larger than needed
                continue
            if aim is not None:
                yield aim
            self.shift = max(SHIFT[1] * self.shift, SHIFT[0])

    def _attempt(self, model: LocalModel, aim: DescentDirection):
        """Search for a trajectory of lower cost along a descent direction.
        Step lengths are reduced until Armijo's rule accepts one.

        Return the pair (trajectory, cost), the step length gamma and the number of trials. The pair is None
        if no trial was accepted.
        """
        gamma, alpha = 1.0, self.armijo.alpha
        for trial in range(1, self.armijo.trials + 1):
            trial_run = model.trial(aim, gamma, self.value + alpha * gamma * aim.slope)
            if trial_run is not None:
                return trial_run, gamma, trial
            self.unsolved = model.trouble or self.unsolved
            gamma *= self.armijo.beta
        return None, 0.0, self.armijo.trials

    def _doubt(self, model: LocalModel, aim: DescentDirection) -> str:
        """Return a warning if the final trajectory may not be a minimum, else ""."""
        if self.chain[0] == "newton" and aim.method != "newton" and not model.has_minimum():
            return "stationary, but possibly not a minimum: the Newton Hessian is indefinite"
        return ""

    @property
    def _least(self) -> float:
        """Largest predicted reduction of the cost at which an iterate is stationary.

        It is the tolerance in units of the cost, but at least the smallest significant cost (`noise`). The
        unit is a thousandth of the cost.
        """
        size = max(abs(self.value), FLOOR * self.start_scale)
        return max(self.tolerance * as_unit(size / 1000), self.noise)

    def _measure(self, model: LocalModel, slope: float) -> None:
        """Store the scale and the rounding error of the cost, for tests of convergence.
        Both are computed from the model at the first iterate.
        """
        e, run = model.expansion, self.run
        x, u = np.abs(run.x).max(axis=0), np.abs(run.u).max(axis=0, initial=0.0)
        x = x if len(x) == self.map.ndx else np.full(self.map.ndx, x.max(initial=0.0))
        of_x, of_u = np.abs(np.einsum("kii->ki", e.lxx)), np.abs(np.einsum("kii->ki", e.luu))
        self.noise = NOISE * float((of_x @ x**2).sum() + (of_u @ u**2).sum())
        self.start_scale = max(abs(self.value), -slope)

    def _short(self, aim: DescentDirection) -> bool:
        """Return True if a direction promises only a negligible reduction of the cost.
        The predicted reduction is then below the tolerance or below the rounding error of the cost.
        """
        return -aim.slope <= max(self._least, ROUNDING * abs(self.value))

    def _advance(self, model: LocalModel, last: bool) -> None:
        """Take one step of the search along the first direction that lowers the cost.
        If no step is taken, for example because the iterate is stationary, set `status`.

        The first direction without a shift decides if the iterate is stationary. With `last`, no step is
        tried.
        """
        self.status, self.slope, self.unsolved = Status.NO_DESCENT, np.nan, None
        for aim in self._directions(model):
            if not self.start_scale:
                self._measure(model, aim.slope)
            judge = not aim.shift and np.isnan(self.slope)
            if judge:
                self.slope = aim.slope
            if -aim.slope <= self._least:
                if not judge:
                    continue
                self.status, self.note = Status.CONVERGED, self._doubt(model, aim)
                self._record(aim, self.value, 0.0, 0)
                return
            if last:
                self.status = Status.MAX_ITERATIONS
                self._record(aim, self.value, 0.0, 0)
                break
            before = self.value
            iterate, gamma, trials = self._attempt(model, aim)
            if iterate is not None:
                self.run, self.value = iterate
            self._record(aim, before, gamma, trials)
            if judge and self._short(aim) and not self.value < before:
                self.status = Status.CONVERGED
                self.note = f"to rounding: the slope {aim.slope:.2g} is below the cost's precision"
                return
            if iterate is not None:
                self.status, self.slope = None, np.nan
                if aim.method == "newton" and gamma == 1.0:
                    self.shift = self.shift / SHIFT[1] if self.shift > SHIFT[0] / 4 else 0.0
                return
            self.status = Status.LINE_SEARCH
        if np.isnan(self.slope):  # no direction without a shift was tried
            plain = (model.direction(name) for name in self.chain)
            self.slope = next((d.slope for d in plain if d is not None), np.nan)

    def _record(self, aim: DescentDirection, cost: float, gamma: float, trials: int) -> None:
        self.log(Iteration(self.log.steps, aim.method, aim.shift, cost, aim.slope, gamma, trials))

    def result(self, start_note: str = "") -> Result:
        assert self.status is not None
        run, gap, departure = open_loop(self.run)
        status, leaves = judged(self.status, run, gap, departure)
        gains = np.zeros((len(run), self.map.nu, self.map.ndx)) if self.gains is None else self.gains
        promise = "" if np.isnan(self.slope) else f", Dg.zeta = {self.slope:.3g}"
        what = self.far or advice_on(status, self.unsolved)
        steps, notes = self.log.steps, (start_note, self.note, leaves, what)
        message = verdict(status, f"{steps} iterations", self.value, *notes, promise=promise)
        history, phases = History.of(self.log.records), (PhaseResult(run),)
        extra: dict[str, Any] = dict(own_gains=gains, own_gap=gap, slope=self.slope)
        outcome = status, message, steps, history, self.log.seconds
        return Result(phases, self.value, *outcome, self.stated, **extra)
