"""The loop of a descent from trajectory to trajectory: directions, a line search, a verdict."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np

from vioc.control.problem.result import History, Log, Record, Result, judged, open_loop
from vioc.control.problem.sizes import power
from vioc.control.problem.status import Status, advice_on, verdict
from vioc.errors import OptimizationError, StepError
from vioc.maps.protocol import OneStepMap
from vioc.maps.trajectory import Trajectory

ROUNDING = 1e-12  # of the cost: a promise below this cannot be seen in it
FLOOR = 1e-4  # of the cost at the guess, which a cost counts as at least where promises are short of it
NOISE = 1e-20  # of what states and inputs cost by their whole size: a cost below is one of rounding


class Aim(Protocol):
    """What a line search follows: by which method, with which shift, and the cost's slope along it."""

    @property
    def method(self) -> str: ...
    @property
    def shift(self) -> float: ...
    @property
    def slope(self) -> float: ...


A = TypeVar("A", bound=Aim)


@dataclass
class Search(ABC):
    """The state of an optimization: at any moment `run` is the best iterate."""

    map: OneStepMap
    tolerance: float
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
    begun: float = 0.0  # the largest cost, and promise at the guess
    noise: float = 0.0

    told = ", Dg.zeta = {0:.3g}"  # of the slope and of what it promises

    # -- what methods differ in ---------------------------------------------------------------------

    @abstractmethod
    def model(self, i: int) -> Any:
        """Cost and map about the iterate, for iteration i."""

    @abstractmethod
    def directions(self, model: Any) -> Iterator[Any]:
        """Directions to try, the next one where a step along the one before found nothing."""

    @abstractmethod
    def attempt(self, model: Any, aim: Any) -> tuple[tuple[Trajectory, float] | None, float, int]:
        """A line search: (trajectory, lower cost) or None, step length, number of trials."""

    @abstractmethod
    def harder(self) -> None:
        """Shift more: the last direction gave no step."""

    @abstractmethod
    def easier(self, aim: Any, gamma: float) -> None:
        """Shift less, after a step along a direction."""

    @abstractmethod
    def doubt(self, model: Any, aim: Any) -> str:
        """What to say of a stationary point that is perhaps no minimum."""

    def restart(self) -> None:
        """Without a shift again."""
        self.shift = 0.0

    def unshifted(self, model: Any) -> float:
        """The slope by which a point is judged, where no direction without a shift was tried."""
        return np.nan

    # -- the loop -----------------------------------------------------------------------------------

    def iterate(self, max_iterations: int) -> None:
        for i in range(min(self.log.steps, max_iterations), max_iterations + 1):
            try:
                model = self.model(i)
            except (StepError, OptimizationError) as error:  # no derivatives here; keep the iterate
                self.status, self.note = Status.NO_DESCENT, str(error)
                return
            self._advance(model, last=i == max_iterations)
            if self.status:
                return

    @property
    def _least(self) -> float:
        """The promise below which a point is stationary: the tolerance in the cost's own unit.

        The unit is the power of 1000 that leaves 30 to 30000 of the cost.
        """
        size = max(abs(self.value), FLOOR * self.begun)
        return max(self.tolerance * power(size / 1000), self.noise)

    def _measure(self, model: Any, slope: float) -> None:
        """What the problem's costs are like, by the first model and what its first direction promises."""
        e, run = model.expansion, self.run
        x, u = np.abs(run.x).max(axis=0), np.abs(run.u).max(axis=0, initial=0.0)
        x = x if len(x) == self.map.ndx else np.full(self.map.ndx, x.max(initial=0.0))
        of_x, of_u = np.abs(np.einsum("kii->ki", e.lxx)), np.abs(np.einsum("kii->ki", e.luu))
        self.noise = NOISE * float((of_x @ x**2).sum() + (of_u @ u**2).sum())
        self.begun = max(abs(self.value), -slope)

    def _short(self, aim: Aim) -> bool:
        """Whether nothing is left to gain along it, or nothing that the cost's digits would show."""
        return -aim.slope <= max(self._least, ROUNDING * abs(self.value))

    def shifted(self, direction: Callable[[float], A | None], most: float) -> Iterator[A]:
        """A method's directions with more and more shift.

        A shift makes any direction short, so short ones with a shift say nothing and are left out.
        """
        again = self.shift > 0
        while self.shift <= most:
            aim = direction(self.shift)
            if aim is not None and self.shift > 0 and self._short(aim):
                if not again:  # those of larger shifts are shorter still
                    return
                self.restart()
                again = False  # that was not the least shift, perhaps
                continue
            if aim is not None:
                yield aim
            self.harder()

    def _advance(self, model: Any, last: bool) -> None:
        """One step along the first direction that gives one, or a status.

        What is stationary is told by the first direction without a shift.
        """
        self.status, self.slope, self.unsolved = Status.NO_DESCENT, np.nan, None
        for aim in self.directions(model):
            if not self.begun:
                self._measure(model, aim.slope)
            judge = not aim.shift and np.isnan(self.slope)
            if judge:
                self.slope = aim.slope
            if -aim.slope <= self._least:
                if not judge:
                    continue
                self.status, self.note = Status.CONVERGED, self.doubt(model, aim)
                self._record(aim, self.value, 0.0, 0)
                return
            if last:
                self.status = Status.MAX_ITERATIONS
                self._record(aim, self.value, 0.0, 0)
                break
            before = self.value
            found, gamma, trials = self.attempt(model, aim)
            if found is not None:
                self.run, self.value = found
            self._record(aim, before, gamma, trials)
            if judge and self._short(aim) and not self.value < before:
                self.status = Status.CONVERGED
                self.note = f"to rounding: a slope of {aim.slope:.2g} cannot be seen in the cost"
                return
            if found is not None:
                self.status, self.slope = None, np.nan
                self.easier(aim, gamma)
                return
            self.status = Status.LINE_SEARCH
        if np.isnan(self.slope):
            self.slope = self.unshifted(model)

    def _record(self, aim: Aim, cost: float, gamma: float, trials: int) -> None:
        self.log(Record(self.log.steps, aim.method, aim.shift, cost, aim.slope, gamma, trials))

    def result(self, begun: str = "") -> Result:
        assert self.status is not None
        run, gap, away = open_loop(self.run)
        status, leaves = judged(self.status, run, gap, away)
        gains = np.zeros((len(run), self.map.nu, self.map.ndx)) if self.gains is None else self.gains
        promise = "" if np.isnan(self.slope) else self.told.format(self.slope, -self.slope)
        what = self.far or advice_on(status, self.unsolved)
        steps, said = self.log.steps, (begun, self.note, leaves, what)
        message = verdict(status, f"{steps} iterations", self.value, *said, promise=promise)
        history = History.of(self.log.records)
        return Result(run, self.value, status, message, steps, history, gains, gap, self.slope)
