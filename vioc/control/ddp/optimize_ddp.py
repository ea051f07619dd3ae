"""Differential dynamic programming and iterative LQR, with bounds on the inputs.

Each backward pass gives a feedback, which is rolled out through the map itself. For comparison with
`optimize`; see docs/maths/ddp.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from vioc.control.costs.cost import Cost, checked
from vioc.control.ddp.backward import Box, Model, Pass
from vioc.control.descent.begin import guess_trajectory, leads_nowhere
from vioc.control.descent.projection import adjoint
from vioc.control.descent.search import Search
from vioc.control.problem.limits import bound_arrays, full_names, limit_scale
from vioc.control.problem.result import HEADER, Log, Record, Result, check_ending, finished
from vioc.control.problem.sizes import Sizes
from vioc.control.problem.status import Status
from vioc.errors import OptimizationError, StepError, trying
from vioc.maps.given import trajectory_of
from vioc.maps.protocol import OneStepMap
from vioc.maps.steps import check_steps
from vioc.maps.trajectory import Trajectory
from vioc.names import INPUTS

METHODS = ("ddp", "ilqr")
LEAST, FACTOR, MOST = 1e-6, 2.0, 1e10  # of the regularization: least, first factor, most
TRIALS = 11
SUFFICIENT = 1e-4  # share of the promised decrease that a step must reach


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
    """``optimize(..., method="ddp")``: the trajectory from x_0 that (locally) minimizes a cost.

    Parameters
    ----------
    method : {"ddp", "ilqr"}
        With the curvature of the map, or without.
    bounds : dict, optional
        Of inputs; the guess is clipped to them.
    f, cost, guess, x0, steps, tolerance, max_iterations, monitor, raise_on_failure
        As in `vioc.control.optimize`; a curve (X, U) is projected first. `tolerance` bounds the sum of
        -k'Q_u, what a step without regularization promises.

    Returns
    -------
    Result
        ``history.shift`` is the regularization of V', ``history.descent`` the promise, negative, and
        ``history.method`` "gauss-newton" where only a pass with the cost's convex part alone gave a step;
        ``gains`` are those of the last backward pass, rows of inputs at their bounds 0; ``multipliers``
        of the bounds are what Q_u leaves there.

    Raises
    ------
    ValueError, OptimizationError, KeyboardInterrupt
        As in `optimize`.
    """
    checked(f, cost)
    if method not in METHODS:
        raise ValueError(f"method: expected one of {', '.join(map(repr, METHODS))}, got {method!r}")
    check_ending(tolerance, max_iterations)
    run = _start(f, guess, x0, steps)
    box = _box(f, bounds, len(run))
    if box is not None and ((run.u < box[0]) | (run.u > box[1])).any():
        run = _rollout(f, run.x[0], np.clip(run.u, *box), run.k0)
    log = Log("optimize_ddp", HEADER, monitor)
    search = _DDP(f, tolerance, run, cost.value(run), log, cost=cost, box=box, name=method)
    interrupt = None
    quiet = np.errstate(over="ignore", invalid="ignore")  # trials are judged by their value
    with quiet, search.log.shown():
        try:
            search.iterate(max_iterations)
        except KeyboardInterrupt as stop:
            interrupt, search.status, search.note = stop, Status.INTERRUPTED, ""
    result = search.result()
    if box is not None:
        result = _at_bounds(cost, result, box)
    return finished(result, interrupt, monitor, raise_on_failure)


def _start(f: OneStepMap, guess: Any, x0: Any, steps: int | None) -> Trajectory:
    guess = trajectory_of(guess)
    x0 = None if x0 is None else f.check_state(x0, "x0")
    if isinstance(guess, Trajectory):
        check_steps(guess.step_lengths, f.dt, "guess")
        x0 = guess.x[0] if x0 is None else x0
        return _rollout(f, x0, guess.u, guess.k0)
    return guess_trajectory(f, guess, x0, steps, None)


def _rollout(f: OneStepMap, x0: Any, U: np.ndarray, k0: int) -> Trajectory:
    with leads_nowhere():
        return f.rollout(x0, U, k0=k0, warn=False)


def _box(f: OneStepMap, bounds: Mapping[str, Any] | None, n: int) -> Box | None:
    """Lower and upper limits (N, nu) of the inputs."""
    if not bounds:
        return None
    inputs, bounds = [INPUTS + name for name in f.input_names], full_names(f, bounds)
    for name in bounds or {}:
        if name not in inputs:
            raise ValueError(
                f"bounds: DDP takes those of inputs ({', '.join(inputs)}), got {name!r}; use optimize"
            )
    return bound_arrays(bounds, inputs, n)


def _at_bounds(cost: Cost, result: Result, box: Box) -> Result:
    """With the margin, and multipliers of bounds: minus the derivative of the cost by inputs at them."""
    run, (low, high) = result.trajectory, box
    f, bounded = run.map, np.flatnonzero((np.isfinite(low) | np.isfinite(high)).any(axis=0)).tolist()
    room, sizes = [np.inf], Sizes.along(run).inputs
    for i in bounded:
        distance = np.minimum(run.u - low, high - run.u)[low[:, i] < high[:, i], i]
        room += (distance / limit_scale(low[:, i], high[:, i], float(sizes[i]))).tolist()
    result = replace(result, margin=min(room))
    try:
        lin = f.linearize_trajectory(run)
        e = cost.expand(run, lin)
    except (StepError, OptimizationError):  # no derivatives there, as the status says
        return result
    v = adjoint(lin, result.gains, e.lx, e.lu)
    push = -e.lu - np.einsum("kxu,kx->ku", lin.B, v[1:])
    y = np.where(run.u >= high, np.maximum(push, 0.0), 0.0) + np.where(
        run.u <= low, np.minimum(push, 0.0), 0.0
    )
    return replace(result, multipliers={INPUTS + f.input_names[i]: y[:, i] for i in bounded})


@dataclass
class _DDP(Search):
    """Backward passes with more and more regularization, the last one convex by itself."""

    cost: Cost | None = None
    box: Box | None = None
    name: str = "ddp"
    factor: float = 1.0

    told = ", promise {1:.3g}"

    def model(self, i: int) -> Model:
        assert self.cost is not None
        return Model(self.map, self.cost, self.run, self.name)

    def directions(self, model: Model) -> Iterator[Pass]:
        for found in self._passes(model):
            self.gains = found.K
            yield found

    def _passes(self, model: Model) -> Iterator[Pass]:
        yield from self.shifted(lambda r: model.backward(r, self.box), MOST)
        self.restart()
        found = model.backward(0.0, self.box, convex=True)
        if found is not None:
            yield found

    def restart(self) -> None:
        self.shift, self.factor = 0.0, 1.0

    def harder(self) -> None:
        self.factor = max(FACTOR, FACTOR * self.factor)
        self.shift = max(LEAST, self.factor * self.shift)

    def easier(self, aim: Pass, gamma: float) -> None:
        self.factor = min(1 / FACTOR, self.factor / FACTOR)
        self.shift = self.factor * self.shift if self.factor * self.shift > LEAST else 0.0

    def doubt(self, model: Model, aim: Pass) -> str:
        if aim.convex:
            return "stationary, but perhaps no minimum: Q_uu is not positive definite there"
        return ""

    def attempt(self, model: Model, aim: Pass):
        for trial in range(TRIALS):
            alpha = 0.5**trial
            try:
                with trying():
                    moved = self._forward(aim, alpha)
                value = model.cost.value(moved)
            except (StepError, OptimizationError) as error:
                self.unsolved = error  # too long a step for the map or the cost
                continue
            if value <= self.value - SUFFICIENT * aim.promise(alpha) and value < self.value:
                return (moved, value), alpha, trial + 1
        return None, 0.0, TRIALS

    def _forward(self, found: Pass, alpha: float) -> Trajectory:
        """The closed loop about the run with the feedforward scaled, inputs clipped."""
        f, run = self.map, self.run
        U = run.u + alpha * found.k
        if self.box is None:
            return f.track(run.x[0], run.x, U, found.K, k0=run.k0)
        low, high = self.box
        x, applied = run.x[0], np.empty_like(U)
        for k in range(len(U)):
            u = U[k] - found.K[k] @ f.difference(run.x[k], x)
            applied[k] = np.clip(u, low[k], high[k])
            x = f.step(x, applied[k], run.k0 + k)
        return f.rollout(run.x[0], applied, k0=run.k0, warn=False)
