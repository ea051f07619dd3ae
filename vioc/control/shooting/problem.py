"""A problem of optimal control, stated once and solved often."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from vioc.control.costs.cost import Cost
from vioc.control.descent.begin import guess_curve
from vioc.control.problem.limits import Constraint
from vioc.control.problem.result import HEADER, History, Log, Record, Result, finished, open_loop
from vioc.control.problem.status import Status, verdict
from vioc.control.shooting.interior import SOFTNESS, Interior
from vioc.control.shooting.rows import Rows, collected
from vioc.control.shooting.stages import Stages
from vioc.errors import OptimizationError, StepError, trying
from vioc.maps.given import trajectory_of
from vioc.maps.protocol import OneStepMap
from vioc.maps.steps import check_steps
from vioc.maps.trajectory import Trajectory

VIOLATED = 1e-6  # of the scale of a limit: from here on a sample is said to be outside
FEW = 60  # iterations that are not divided among several searches
FOLLOWED = 1e-5  # relative to 1 + |x|: how far a trajectory may be from the iterate that it follows


class Problem:
    """A cost, a map and limits over N steps.

    Parameters
    ----------
    f : OneStepMap
    cost : Cost
    steps : int
        N.
    bounds : dict, optional
        Limits by name of any quantity, states, inputs (``u.force``) and multipliers (``lambda.string``)
        included: a pair (lower, upper) of numbers, arrays over time or None, or b for [-b, b].
    constraints : Constraint or sequence of Constraint, optional
        lower <= expression <= upper along the path or at the end; equal limits make an equation.
    final : (nx,) or dict, optional
        Of the last state: a value or (lower, upper) by name.
    dt : float or (N,), optional
        Step lengths, s; default the map's.
    k0 : int
        Of the first step, for maps that depend on time.

    Raises
    ------
    ValueError, ModelError
        Shapes, unknown names, limits without a limit, conditions on the start.

    Examples
    --------
    >>> problem = Problem(f, cost, 100, bounds={"u.force": 10}, final=upright)
    >>> best = problem.solve(hanging)
    >>> again = problem.solve(nearby, best)
    """

    def __init__(
        self,
        f: OneStepMap,
        cost: Cost,
        steps: int,
        *,
        bounds: Mapping[str, Any] | None = None,
        constraints: Sequence[Constraint] | Constraint | None = None,
        final: Any = None,
        dt: Any = None,
        k0: int = 0,
    ):
        if not isinstance(cost, Cost):
            raise TypeError(f"cost: expected a Cost (see vioc.control.quadratic), got {cost!r}")
        cost.check_map(f)
        self.map, self.cost, self.steps = f, cost, int(steps)
        self.rows = Rows(f, self.steps, collected(f, self.steps, bounds, constraints, final))
        self.lengths = f.lengths(dt, self.steps)
        self.k0 = k0

    def with_cost(self, cost: Cost) -> Problem:
        """The same limits with another cost of this map, such as one with other references."""
        cost.check_map(self.map)
        again = object.__new__(type(self))
        again.__dict__.update(self.__dict__, cost=cost)
        return again

    def solve(
        self,
        x0: Any = None,
        guess: Any = None,
        *,
        multipliers: Mapping[str, Any] | None = None,
        tolerance: float = 1e-9,
        max_iterations: int = 300,
        monitor: bool | Callable[[Record], Any] | None = None,
        raise_on_failure: bool = True,
    ) -> Result:
        """The trajectory from x_0 that (locally) minimizes the cost within the limits.

        Parameters
        ----------
        x0 : (nx,), optional
            Start; default that of the guess.
        guess : Trajectory, result, (X, U), (N, nu) or None
            A curve of states and inputs that need not be a trajectory; U may be None. Inputs alone are rolled
            out. None holds the first state, without inputs.
        multipliers : dict, optional
            Estimates by name, from `Result.multipliers`; default those of a guess that is a converged result.
        tolerance : float
            Of the conditions of optimality, of a cost whose gradient is scaled to 100 at most; equations and
            limits in units of their scale.
        max_iterations : int
            Of all searches: one that ends nowhere is begun again with other regularizations of gaps and rows.
        monitor, raise_on_failure
            As in `vioc.control.optimize`.

        Returns
        -------
        Result

        Raises
        ------
        ValueError
            Shapes and options; a start outside of a limit.
        OptimizationError
            Not converged (``result`` holds the last iterate), or a guess that has no steps.
        KeyboardInterrupt
            Ctrl-C, with the iterate as its ``result``; returned instead if not `raise_on_failure`.
        """
        if not tolerance > 0 or max_iterations < 1:
            raise ValueError(
                f"expected tolerance > 0 and max_iterations >= 1, got {tolerance}, {max_iterations}"
            )
        if multipliers is None:
            multipliers = guess.multipliers if isinstance(guess, Result) and guess.converged else None
        X, U = self._curve(x0, getattr(guess, "curve", None) or guess)
        stages = Stages(self.map, self.cost, self.rows, self.k0, self.lengths)
        duals = self.rows.from_multipliers(multipliers) if multipliers else None
        log = Log("optimize", HEADER, monitor)
        interrupt = None
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"), log.shown():
            tried: list[Interior] = []
            for soft, budget in zip(SOFTNESS, _budgets(max_iterations), strict=False):
                search, begun = self._begun(stages, X, U, tolerance, duals, soft)
                self.rows.check_start(search.now.point.curve)
                tried.append(search)
                try:
                    search.iterate(budget, log)
                except KeyboardInterrupt as stop:
                    interrupt, search.status = stop, Status.INTERRUPTED
                if search.status in (Status.CONVERGED, Status.INTERRUPTED):
                    break
            else:
                search = min(tried, key=lambda s: s.error if np.isfinite(s.error) else np.inf)
            result = self._result(search, log, begun)
        return finished(result, interrupt, monitor, raise_on_failure)

    def _curve(self, x0: Any, guess: Any) -> tuple[np.ndarray, np.ndarray]:
        """The guess as states (N+1, nx) and inputs (N, nu)."""
        f, n = self.map, self.steps
        guess = trajectory_of(guess)
        x0 = None if x0 is None else f.check_state(x0, "x0")
        if isinstance(guess, Trajectory):
            check_steps(guess.step_lengths, self.lengths, "guess", "the problem")
            guess = (guess.x, guess.u)
        if not isinstance(guess, tuple):
            if x0 is None:
                raise ValueError("no initial state: give x0, or a guess with states")
            U = f.check_inputs(guess, n, x0)
            X = np.tile(x0, (n + 1, 1))
            if guess is not None:
                try:
                    with trying():
                        X = f.rollout(x0, U, k0=self.k0, dt=self.lengths).x
                except StepError:
                    pass  # held; the steps' gaps close on the way
        else:
            X, U = guess_curve(f, guess)
        if len(U) != n:
            raise ValueError(f"guess: expected {n} steps, got {len(U)}")
        X = np.array(X, float)
        X[0] = X[0] if x0 is None else x0
        return X, np.array(U, float)

    def _begun(self, stages: Stages, X, U, tolerance, duals, soft) -> tuple[Interior, str]:
        """The search, from the start held where the guess has no steps."""
        try:
            return Interior(stages, X, U, tolerance, duals, soft), ""
        except OptimizationError as error:
            held = np.tile(X[0], (len(X), 1))
            if np.array_equal(held, X) and not U.any():
                raise
            search = Interior(stages, held, np.zeros_like(U), tolerance, duals, soft)
            return search, f"{error}; the search began with the start held"

    def _result(self, search: Interior, log: Log, begun: str) -> Result:
        f, it = self.map, search.now
        curve, status = it.point.curve, search.status
        assert status is not None
        note = ""
        if np.any(it.point.gaps):
            followed = search.stages.followed(curve.x, curve.u, search.gains, hard=True)
            far = np.inf
            if followed is not None:
                far = np.abs(f.difference(curve.x, followed.curve.x)).max() / (1 + np.abs(curve.x).max())
            if far > FOLLOWED and status is Status.CONVERGED:
                status, note = Status.ACCEPTABLE, "the trajectory of its inputs leaves the curve found"
            if far > FOLLOWED:  # of an end on the way, what its inputs alone do may be nearer to it
                rolled = search.stages.followed(curve.x, curve.u, np.zeros_like(search.gains), hard=True)
                followed = min((p for p in (followed, rolled) if p), key=lambda p: p.cost, default=None)
            if followed is not None:
                curve = followed.curve
        run, gap = open_loop(curve.on_its_step())
        cost = self.cost.value(run)
        multipliers = self.rows.multipliers(it.y / search.scale)
        found = self.rows.violations(run, VIOLATED) if len(self.rows) else []
        if found and status is Status.CONVERGED:  # of an unstable motion: its rollout leaves the curve
            status, note = Status.ACCEPTABLE, "the rollout of its inputs does not keep all limits"
        advice = (begun, note, search.note, status.advice)
        text = verdict(
            status,
            f"{log.steps} iterations",
            cost,
            *advice,
            promise=f", error {search.error:.1e}",
            found=found,
        )
        return Result(
            run,
            cost,
            status,
            text,
            log.steps,
            History.of(log.records),
            search.gains,
            gap,
            -search.promise,
            multipliers=multipliers,
            curve=None if status is Status.CONVERGED else (it.point.curve.x, it.point.curve.u),
            violations=found,
            margin=self.rows.margin(run),
            error=search.error,
        )


def _budgets(iterations: int) -> tuple[int, ...]:
    """How many each search may take: a half, a quarter and a quarter; all for one where they are few."""
    if iterations < FEW:
        return (iterations,)
    half, quarter = iterations - iterations // 2, iterations // 4
    return half, quarter, iterations - half - quarter
