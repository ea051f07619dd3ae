"""Differential dynamic programming and iterative LQR, with bounds on the inputs.

Each backward pass gives a feedback, which is rolled out through the map itself. For comparison with
`optimize`; see docs/maths/constrained_descent.md, "DDP and iLQR".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from vioc.control.costs.cost import Cost
from vioc.control.ddp.backward import Box, Model, Pass
from vioc.control.descent.projection import project, projection_gains
from vioc.control.problem.limits import bound_arrays, full_names
from vioc.control.problem.result import HEADER, History, Log, Record, Result, finished, open_loop
from vioc.control.problem.status import Status, advice_on, verdict
from vioc.errors import OptimizationError, StepError, trying
from vioc.maps.given import trajectory_of
from vioc.maps.protocol import OneStepMap, Rescue
from vioc.maps.steps import check_steps
from vioc.maps.trajectory import Trajectory
from vioc.names import INPUTS

METHODS = ("ddp", "ilqr")
LEAST, FACTOR, MOST = 1e-6, 2.0, 1e10  # of the regularization: least, first factor, most
TRIALS = 11
SUFFICIENT = 1e-4  # share of the promised decrease that a step must reach
ROUNDING = 1e-12  # of the cost: a promise below this cannot be seen in it


def optimize_ddp(
    f: OneStepMap,
    cost: Cost,
    guess: Any = None,
    *,
    method: str = "ddp",
    bounds: Mapping[str, Any] | None = None,
    x0: Any = None,
    steps: int | None = None,
    tolerance: float = 1e-6,
    max_iterations: int = 500,
    monitor: bool | Callable[[Record], Any] | None = None,
    raise_on_failure: bool = True,
) -> Result:
    """The trajectory from x_0 that (locally) minimizes a cost, by DDP or iLQR.

    Parameters
    ----------
    f : OneStepMap
    cost : Cost
    guess, x0, steps
        As in `vioc.control.optimize`; a curve (X, U) is projected first.
    method : {"ddp", "ilqr"}
        With the curvature of the map, or without.
    bounds : dict, optional
        Of inputs, by name (``u.force``): a pair (lower, upper) of numbers, arrays (N,) or None; b means
        [-b, b]. The guess is clipped to them. For other limits see `optimize_constrained`.
    tolerance : float
        Stop where the sum of -k'Q_u, what a step without regularization promises, is below, in units of the
        cost.
    max_iterations : int
    monitor, raise_on_failure
        As in `optimize`.

    Returns
    -------
    Result
        ``history.shift`` is the regularization of V', ``history.descent`` the promise, negative, and
        ``history.method`` "gauss-newton" where only a pass with the cost's convex part alone gave a step;
        ``gains`` are those of the last backward pass, rows of inputs at their bounds 0.

    Raises
    ------
    ValueError
        Shapes, options, bounds.
    OptimizationError
        Not converged (``result`` holds the best iterate), or a guess that leads to no trajectory.
    KeyboardInterrupt
        Ctrl-C, with the best iterate as its ``result``; returned instead if not `raise_on_failure`.
    """
    if not isinstance(cost, Cost):
        raise TypeError(f"cost: expected a Cost (see vioc.control.quadratic), got {cost!r}")
    cost.check_map(f)
    if method not in METHODS:
        raise ValueError(f"method: expected one of {', '.join(map(repr, METHODS))}, got {method!r}")
    if not tolerance > 0 or max_iterations < 1:
        raise ValueError(
            f"expected tolerance > 0 and max_iterations >= 1, got {tolerance} and {max_iterations}"
        )
    run = _start(f, guess, x0, steps)
    box = _box(f, bounds, len(run))
    if box is not None and ((run.u < box[0]) | (run.u > box[1])).any():
        run = _rollout(f, run.x[0], np.clip(run.u, *box), run.k0)
    log = Log("optimize_ddp", HEADER, monitor)
    search = _Search(f, cost, method, box, tolerance, run, cost.value(run), log)
    interrupt = None
    quiet = np.errstate(over="ignore", invalid="ignore")  # trials are judged by their value
    with quiet, search.log.shown():
        try:
            search.iterate(max_iterations)
        except KeyboardInterrupt as stop:
            interrupt, search.status, search.note = stop, Status.INTERRUPTED, ""
    result = search.result()
    return finished(result, interrupt, monitor, raise_on_failure)


def _start(f: OneStepMap, guess: Any, x0: Any, steps: int | None) -> Trajectory:
    guess = trajectory_of(guess)
    x0 = None if x0 is None else f.check_state(x0, "x0")
    if isinstance(guess, Trajectory):
        check_steps(guess.step_lengths, f.dt, "guess")
        x0 = guess.x[0] if x0 is None else x0
        return _rollout(f, x0, guess.u, guess.k0)
    if not isinstance(guess, tuple):
        if x0 is None:
            raise ValueError("x0: a guess of inputs needs the initial state")
        return _rollout(f, x0, f.check_inputs(guess, steps, x0), 0)
    X, U = guess
    U = f.check_inputs(U, len(X) - 1, X[0])
    try:
        return project(f, X, U, projection_gains(f, X, U), x0)
    except StepError as error:
        raise OptimizationError(f"the guess leads to no trajectory: {error}") from error


def _rollout(f: OneStepMap, x0: Any, U: np.ndarray, k0: int) -> Trajectory:
    try:
        return f.rollout(x0, U, k0=k0, warn=False)
    except StepError as error:
        raise OptimizationError(f"the guess leads to no trajectory: {error}; try other inputs") from error


def _box(f: OneStepMap, bounds: Mapping[str, Any] | None, n: int) -> Box | None:
    """Lower and upper limits (N, nu) of the inputs."""
    if not bounds:
        return None
    inputs, bounds = [INPUTS + name for name in f.input_names], full_names(f, bounds)
    for name in bounds or {}:
        if name not in inputs:
            raise ValueError(
                f"bounds: DDP takes those of inputs ({', '.join(inputs)}), got {name!r}; use "
                "optimize_constrained"
            )
    return bound_arrays(bounds, inputs, n)


@dataclass
class _Search:
    """The state of a search: at any moment `run` is the best iterate."""

    map: OneStepMap
    cost: Cost
    method: str
    box: Box | None
    tolerance: float
    run: Trajectory
    value: float
    log: Log
    gains: np.ndarray | None = None
    r: float = 0.0
    factor: float = 1.0
    status: Status | None = None
    note: str = ""
    slope: float = np.nan  # of the first pass without regularization
    unsolved: Exception | None = None  # why the last trial that was no trajectory was none

    def _harder(self) -> None:
        self.factor = max(FACTOR, FACTOR * self.factor)
        self.r = max(LEAST, self.factor * self.r)

    def _easier(self) -> None:
        self.factor = min(1 / FACTOR, self.factor / FACTOR)
        self.r = self.factor * self.r if self.factor * self.r > LEAST else 0.0

    def iterate(self, max_iterations: int) -> None:
        for i in range(max_iterations + 1):
            try:
                model = Model(self.map, self.cost, self.run, self.method == "ddp")
            except (StepError, OptimizationError) as error:
                self.status, self.note = Status.NO_DESCENT, str(error)
                return
            self._advance(model, last=i == max_iterations)
            if self.status:
                return

    def _short(self, found: Pass) -> bool:
        """Whether nothing is left to gain by it, or nothing that the cost's digits would show."""
        return -found.linear < max(self.tolerance, ROUNDING * abs(self.value))

    def _passes(self, model: Model) -> Iterator[Pass]:
        """Passes to try, the next one where the one before gave no step; the last one is convex by itself.

        Regularization makes any step short, so short ones with it say nothing and are left out.
        """
        again = self.r > 0
        while self.r <= MOST:
            found = model.backward(self.r, self.box)
            if found is not None and self.r > 0 and self._short(found):
                if not again:  # those of more regularization are shorter still
                    break
                self.r, self.factor, again = 0.0, 1.0, False  # there may be one with less
                continue
            if found is not None:
                yield found
            self._harder()
        self.r, self.factor = 0.0, 1.0
        found = model.backward(0.0, self.box, convex=True)
        if found is not None:
            yield found

    def _advance(self, model: Model, last: bool) -> None:
        """One step by the first pass that gives one, or a status.

        What is stationary is told by the first pass without regularization.
        """
        self.status, self.slope, self.unsolved = Status.NO_DESCENT, np.nan, None
        for found in self._passes(model):
            self.gains = found.K
            judge = self.r == 0 and np.isnan(self.slope)
            if judge:
                self.slope = found.linear
            if -found.linear < self.tolerance:
                if not judge:
                    continue
                self.status = Status.CONVERGED
                if found.convex:
                    self.note = "stationary, but perhaps no minimum: Q_uu is not positive definite there"
                self._record(found, 0.0, 0)
                return
            if last:
                self.status = Status.MAX_ITERATIONS
                self._record(found, 0.0, 0)
                return
            if self._search(found):
                self.status, self.slope = None, np.nan
                return
            if judge and self._short(found):
                self.status = Status.CONVERGED
                self.note = f"to rounding: a promise of {-found.linear:.2g} cannot be seen in the cost"
                return
            self.status = Status.LINE_SEARCH

    def _search(self, found: Pass) -> bool:
        """Backtracking: whether a step was taken."""
        for trial in range(TRIALS):
            alpha = 0.5**trial
            try:
                with trying():
                    moved = self._forward(found, alpha)
                value = self.cost.value(moved)
            except (StepError, OptimizationError) as error:
                self.unsolved = error  # too long a step for the map or the cost
                continue
            if value <= self.value - SUFFICIENT * found.promise(alpha) and value < self.value:
                self._record(found, alpha, trial + 1)
                self.run, self.value = moved, value
                self._easier()
                return True
        self._record(found, 0.0, TRIALS)
        return False

    def _forward(self, found: Pass, alpha: float) -> Trajectory:
        """The closed loop about the run with the feedforward scaled, inputs clipped."""
        f, run = self.map, self.run
        U = run.u + alpha * found.k
        if self.box is None:
            rescue: Rescue = "split" if run.splits else True  # the map whose derivatives the pass has
            return f.track(run.x[0], run.x, U, found.K, k0=run.k0, rescue=rescue)
        low, high = self.box
        x, applied = run.x[0], np.empty_like(U)
        for k in range(len(U)):
            u = U[k] - found.K[k] @ f.difference(run.x[k], x)
            applied[k] = np.clip(u, low[k], high[k])
            x = f.step(x, applied[k], run.k0 + k)
        return f.rollout(run.x[0], applied, k0=run.k0, warn=False)

    def _record(self, found: Pass, alpha: float, trials: int) -> None:
        method = "gauss-newton" if found.convex else self.method
        self.log(Record(self.log.steps, method, self.r, self.value, found.linear, alpha, trials))

    def result(self) -> Result:
        assert self.status is not None
        run, gap = open_loop(self.run)
        gains = np.zeros((len(run), self.map.nu, self.map.ndx)) if self.gains is None else self.gains
        promise = "" if np.isnan(self.slope) else f", promise {-self.slope:.3g}"
        advice, steps = advice_on(self.status, self.unsolved), self.log.steps
        message = verdict(self.status, f"{steps} iterations", self.value, self.note, advice, promise=promise)
        history = History.of(self.log.records)
        return Result(run, self.value, self.status, message, steps, history, gains, gap, self.slope)
