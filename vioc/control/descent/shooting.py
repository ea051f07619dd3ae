"""Multiple shooting by Newton's method on states, inputs and multipliers at once.

The iterate is a curve with defects. Each iteration linearizes the implicit equations of all steps at the
iterate, without solving any of them, and one Riccati recursion solves the subproblem exactly. See
docs/maths/optimal_control.md, "Multiple shooting".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vioc.control.costs.cost import Cost
from vioc.control.descent.projection import project
from vioc.control.descent.symbolic.stage_programs import StageArguments, StagePrograms
from vioc.control.problem.result import Iteration
from vioc.control.problem.sizes import Sizes, as_unit
from vioc.control.problem.status import Status
from vioc.errors import OptimizationError, StepError, trying
from vioc.maps.protocol import OneStepMap
from vioc.runs.trajectory import Trajectory

CLOSE = 1e-4  # `Sizes.apart` of a full step of the states below which shooting ends
KEEP = 0.5, 2.0, 0.1  # fraction of exact curvature: factor down, factor up per iteration, least before 0
SHIFT = 1e-3, 4.0, 1e8  # shift of a convex part without minimum, in units of cost: smallest, factor, largest
SUFFICIENT = 1e-4  # fraction of the predicted reduction of the merit that a step must reach
PROMISE = 0.7  # fraction of the decrease of the residual norm that may be offset by a higher cost
MEMORY = 8  # past iterates, without the guess, whose largest merit a trial is compared with
SHORTEST = 1e-6  # shortest step
FAILURES = 3  # line searches that may fail


@dataclass
class Shooting:
    """Search by multiple shooting over states, inputs and multipliers of all steps.

    Parameters
    ----------
    f : OneStepMap
    cost : Cost
    programs : StagePrograms
    X, U : (N+1, nx), (N, nu)
        The guess; X[0] is fixed.
    dt : float, (N,) or None
        Step lengths, s; None for the map's own.

    Attributes
    ----------
    gains : (N, nu, nx) or None
        Feedback of the last subproblem.
    status : str
        ``"close"``, ``"line_search"``, ``"no_descent"``, ``"max_iterations"``; empty while it runs.
    """

    f: OneStepMap
    cost: Cost
    programs: StagePrograms
    X: np.ndarray
    U: np.ndarray
    dt: Any = None
    gains: np.ndarray | None = None
    status: Status | None = None
    penalty: float = 0.0
    failures: int = 0
    keep: float = 1.0
    history: list[tuple[float, float]] = field(default_factory=list)

    def __post_init__(self):
        N = len(self.U)
        e = self.programs.equations
        self.grid = StageArguments.of(self.f, self.cost, N, dt=self.dt)
        self._reversed = self.grid.backward()
        self._last_reference = self.cost.reference_rows(N)[N]
        self.multipliers, self.duals = np.zeros((N, e.nm)), np.zeros((N, e.nz))
        self._sizes = Sizes(self.f, self.X, self.U, float(self.grid.dt.sum()), {})
        self.value, self.gap, self._end = self._evaluate(self.X, self.U, self.multipliers)
        if not np.isfinite([self.value, self.gap]).all():
            self.status = Status.NO_DESCENT
        of_x, of_u = self._sizes.states, self._sizes.inputs
        bend, of_z = float(np.abs(self._end[3] * np.outer(of_x, of_x)).max()), np.concatenate([of_x, of_u])
        self._shifts = as_unit((abs(self.value) or bend) / 30) / of_z**2  # in units of the cost

    def iterate(self, max_iterations: int, record: Callable[[Iteration], None]) -> None:
        """Iterate until a step is small, or until no step lowers the merit function.
        The search also ends after `max_iterations`. The attribute `status` tells why it ended.
        """
        for i in range(max_iterations):
            if self.status:
                return
            self._advance(i, record)
        self.status = self.status or Status.MAX_ITERATIONS

    def trajectory(self, f: OneStepMap) -> Trajectory | None:
        """Return the trajectory that follows the present iterate under feedback.
        The iterate is a curve of states and inputs. Return None if there is no such trajectory.
        """
        if self.gains is None:
            return None
        try:
            with trying():
                run = project(f, self.X, self.U, self.gains, dt=self.dt)
            self.cost.value(run)
        except (StepError, OptimizationError):
            return None
        return run

    def _evaluate(self, X: np.ndarray, U: np.ndarray, lam: np.ndarray):
        """Return the cost of states X and inputs U, and the norm of equation residuals.
        The residuals are those of the step equations with the multipliers lam. The expansion of the terminal
        cost at the last state is returned, too.
        """
        running, gap = self.programs.value(X, U, lam, self.grid)
        sizes = self._sizes.states
        end = self.cost.end(X[-1], self.grid.parameters, self._last_reference, sizes)
        return running + end[0], gap**0.5, end

    def _advance(self, i: int, record: Callable[[Iteration], None]) -> None:
        direction = self._direction()
        if direction is None:
            self.status = Status.NO_DESCENT
            return
        (dX, dU, dlam, duals), self.gains, slope, shift = direction
        slope += float(self._end[1] @ dX[-1])
        short = self._sizes.apart(self.X, self.X + dX) <= CLOSE
        if slope > 0 and self.gap > 0:  # the smallest penalty with which the step descends
            self.penalty = max(self.penalty, slope / (PROMISE * self.gap))
        promise = slope - self.penalty * self.gap
        merit = self.value + self.penalty * self.gap
        bound = merit
        if self.penalty > 0:  # a strict penalty would reject full steps along curved constraints
            bound = max([merit, *(v + self.penalty * g for v, g in self.history[-MEMORY:])])
        before, step, trials, gap, scale = self.value, 1.0, 0, self.gap, abs(self.value)
        while step > SHORTEST:
            trials += 1
            X, U, lam = self.X + step * dX, self.U + step * dU, self.multipliers + step * dlam
            value, new_gap, end = self._evaluate(X, U, lam)
            if trials == 1 and np.isfinite(value):  # magnitude that the cost of a trajectory may have
                scale = max(scale, abs(value))
            lower = value + self.penalty * new_gap <= bound + SUFFICIENT * step * min(promise, 0.0)
            if (short or lower) and np.isfinite([value, new_gap]).all():
                break
            step /= 2
        else:  # at this penalty cost and residual do not fall together: raise the penalty
            step, self.failures = 0.0, self.failures + 1
            if self.failures > FAILURES or not self.gap > 0:
                self.status = Status.LINE_SEARCH
            else:
                self.penalty = max(4 * self.penalty, scale / self.gap)
        if step:
            self.X, self.U, self.multipliers = X, U, lam
            self.duals = self.duals + step * (duals - self.duals)
            self.value, self.gap, self._end = value, new_gap, end
            self.history.append((value, new_gap))
            if short:
                self.status = Status.CLOSE
        method = "newton" if self.keep == 1 else "gauss-newton" if self.keep == 0 else "blend"
        record(Iteration(i, f"ms {method}", shift, before, promise, step, trials, gap))
        self.keep = max(self.keep, KEEP[2])

    def _direction(self):
        """Return Newton's direction, or None if there is none.

        The Hessian is a weighted mean of the exact and the Gauss-Newton Hessian. The weight of the exact one
        is reduced until the quadratic subproblem has a minimum. Return steps, gains, the running cost's
        derivative along the steps, and the shift.
        """
        point = [self.X, self.U, self.multipliers, self.duals]
        _, gradient, hessian, convex = self._end
        down, up, least = KEEP
        self.keep, shift = min(1.0, up * self.keep), 0.0
        while shift <= SHIFT[2]:
            add = shift * self._shifts
            end = convex + self.keep * (hessian - convex) + np.diag(add[: len(gradient)])
            knobs = np.array([self.keep, *add])
            direction = self.programs.newton(point, self._reversed, [end, gradient], knobs)
            if direction is not None:
                return *direction, shift
            if self.keep > 0:
                self.keep = down * self.keep if self.keep >= 2 * least else 0.0
            else:
                shift = max(SHIFT[1] * shift, SHIFT[0])
        return None
