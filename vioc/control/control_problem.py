"""Class of an optimal control problem, which is solved by successive searches.

See docs/maths/shooting.md for the search, and docs/maths/optimal_control.md for the map's own equations.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from vioc.checks import as_count, as_value, finite
from vioc.control.costs.cost import Cost
from vioc.control.descent.projection import straight_line
from vioc.control.problem.limits import as_constraints, finer, finer_bounds
from vioc.control.problem.result import Iteration, Result
from vioc.control.problem.sizes import Sizes
from vioc.control.problem.status import Status
from vioc.control.shooting.barrier import SOFTNESS
from vioc.control.shooting.problem import FOLLOWED, SearchStart, ShootingProblem
from vioc.control.shooting.stages import Stages
from vioc.errors import ModelError, OptimizationError, StepError, trying
from vioc.maps.protocol import OneStepMap
from vioc.runs.steps import same_steps

if TYPE_CHECKING:
    from vioc.control.dmoc.sensitivity import Sensitivity

LINE = "begun from a line between the ends"
APPROACHES = 10  # Gauss-Newton steps towards a last state with the least terminal cost
FLAT = 1e-9  # singular values of the terminal cost's Hessian below this fraction of the largest count as 0
FEW = 60  # fewer iterations are not divided among several searches


class Problem(ShootingProblem):
    """Optimal control problem with a cost, a map and limits over N steps.

    Parameters
    ----------
    f : OneStepMap
    cost : Cost
    steps : int
        N.
    bounds, constraints, final, initial, duration, parameters, periodic, dt
        As in `vioc.control.optimize`.
    k0 : int
        Index of the first step, for maps that depend on time.

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

    def solve(
        self,
        x0: Any = None,
        guess: Any = None,
        *,
        multipliers: Mapping[str, Any] | None = None,
        tolerance: float = 1e-9,
        max_iterations: int = 300,
        softness: float | None = None,
        monitor: bool | Callable[[Iteration], Any] | None = None,
        raise_on_failure: bool = True,
    ) -> Result:
        """Find a trajectory from x_0 that minimizes the cost locally within the limits.

        Parameters
        ----------
        x0, guess, multipliers, monitor, raise_on_failure
            As in `vioc.control.optimize`.
        tolerance : float
            Largest KKT residual, for a cost scaled so that its gradient is at most 100; equations and
            limits in units of their scale.
        max_iterations : int
            Iteration limit of all searches together. A search that fails is followed by others, each with
            half of the remaining iterations, or all if it is then near an optimum: from the rollout of the
            guess's inputs; without a guess, from a line to the last state or to one with the least terminal
            cost; from IPOPT's solution of the map's own equations (`dmoc.solve`), if start, duration and
            parameters are given and steps are equal, for maps with contact first; with other regularizations
            of constraints and defects. With fewer than 60 iterations there is only one search.
        softness : float, optional
            delta of (IP 3), the first regularization of constraints and defects, of a search that is then the
            only one. Strongly unstable motions, such as poles swung up over seconds, may need 1e-8 and a good
            guess, or 1e-2 and more iterations.

        Returns
        -------
        Result

        Raises
        ------
        ValueError, OptimizationError, KeyboardInterrupt
            As `vioc.control.optimize`; ValueError also for a softness <= 0.
        """
        if softness is not None and not 0 < (softness := as_value(softness, "softness")) < np.inf:
            raise ValueError(f"softness: expected a finite number > 0, got {softness}")

        def order(
            stages: Stages, X: np.ndarray, U: np.ndarray, duals: np.ndarray | None
        ) -> Iterable[SearchStart]:
            if softness is not None:
                return [SearchStart(softness, X, U, duals, "", True)]
            return self._order(stages, X, U, duals, max_iterations)

        how: dict[str, Any] = dict(multipliers=multipliers, tolerance=tolerance, monitor=monitor)
        how |= dict(max_iterations=max_iterations, raise_on_failure=raise_on_failure)
        return self._searched(x0, guess, order, self._hint, **how)

    def _order(self, stages: Stages, X, U, duals, iterations: int) -> Iterator[SearchStart]:
        """Yield starting points for successive searches, until one search converges.
        Examples are the guess, the rollout of its inputs, and a straight line to the last state.
        """
        last = SOFTNESS[-1]
        few = iterations < FEW
        contact = self.map.mechanism.relaxed() is not None and duals is None
        usual = SOFTNESS[0]
        if contact:  # this search is the first, since open contacts have no gradient in the others
            yield from self._from_equations(stages, X, U, iterations, few)
        yield SearchStart(usual, X, U, duals, "", few)
        if few:
            return
        rolled = X
        with contextlib.suppress(StepError), trying():
            rolled = stages.map.rollout(X[0], U, k0=self.k0, dt=stages.lengths, warn=False).x
        if not np.array_equal(rolled, X):  # outside of `trying`, so that the search may warn
            yield SearchStart(usual, rolled, U, None, "begun from the rollout of its inputs", False)
        if self._held(X, U) and (end := self._likely_end(stages, X[0])) is not None:
            line = self.unknowns.joined(
                straight_line(X[0, : self.map.nx], end, self.steps, self.map), X[0, self.map.nx :]
            )
            yield SearchStart(usual, line, U, None, LINE, False)
        if not contact:  # with half of the iterations, as every search
            yield from self._from_equations(stages, X, U, (iterations + 1) // 2, few)
        for soft in SOFTNESS[1:]:
            yield SearchStart(soft, X, U, duals, "", soft == last)

    def _held(self, X: np.ndarray, U: np.ndarray) -> bool:
        """Return True if all states of a guess equal its first and all inputs are zero."""
        return bool((X[0] == X).all()) and not U.any()

    def _end(self) -> np.ndarray | None:
        """Return the prescribed last state, or None if some component has no fixed value."""
        f, final = self.map, self._limits["final"]
        if final is None:
            return None
        if not isinstance(final, Mapping):
            return f.check_state(final, "final state")
        if f.ndx != f.nx or not all(np.ndim(self.final.get(n, ())) == 0 for n in f.state_names):
            return None
        return np.array([float(self.final[n]) for n in f.state_names])

    def _likely_end(self, stages: Stages, first: np.ndarray) -> np.ndarray | None:
        """Return the last state of a line that serves as a guess, or None.
        It is the prescribed last state. If nothing of the last state is prescribed, Gauss-Newton steps from
        the first state lead to a state with a lower terminal cost. The result is None if they do not lower
        it, or if derivatives are not finite.
        """
        end = self._end()
        if end is not None or self.final:
            return end
        f, size, reference = self.map, stages.of_states[: self.map.ndx], self.cost.reference_rows(self.steps)
        x = first[: f.nx]
        least, g, _, H = self.cost.end(x, f.theta, reference[-1], size)
        for _ in range(APPROACHES):
            if not finite(g, H):  # such as those of a distance at its goal, where no search could begin
                return None
            step = -size * (np.linalg.pinv(H * np.outer(size, size), FLAT, hermitian=True) @ (size * g))
            trial = f.retract(x, step)
            value, g, _, H = self.cost.end(trial, f.theta, reference[-1], size)
            if not value < least:
                break
            x, least, end = trial, value, trial
        return end

    def _hint(self, begun: Collection[str], status: Status) -> str:
        """Return advice for the user after searches that found no optimum.
        The texts `begun` say from where these searches began.
        """
        if status in (Status.CONVERGED, Status.ACCEPTABLE, Status.INTERRUPTED):
            return ""
        hints = []
        if self._end() is not None and LINE not in begun:
            hints.append("a guess such as (straight_line(x0, end, steps), None)")
        if self.unknowns.map is self.map and not self.unknowns.free_start:
            hints.append('method="dmoc"')
        if self.final and not self.unknowns.span and status is not Status.INFEASIBLE:
            hints.append("a free time, duration=(low, high)")
        return f"worth a try: {', or '.join(hints)}" if hints else ""

    def _from_equations(
        self, stages: Stages, X: np.ndarray, U: np.ndarray, iterations: int, whole: bool
    ) -> Iterator[SearchStart]:
        """Yield the solution of DMOC with IPOPT, as the initial guess of another search.
        Yield nothing if IPOPT fails or DMOC does not support the problem. DMOC requires that the initial
        state, the duration and the parameters are given, and that all steps have the map's step length.
        """
        u = self.unknowns
        if u.map is not self.map or u.free_start or (self.lengths != self.map.dt).any():
            return
        own: dict[str, Any] = dict(steps=self.steps, k0=self.k0, initial=X[0], **self._limits)
        guess = X[:, : self.map.nx], U
        found = by_equations(self.map, self.cost, guess, max_iterations=iterations, **own)
        if found is not None:
            run, theirs = found.trajectory, stages.rows.from_multipliers(found.multipliers)
            said = f"begun from IPOPT's optimum ({found.iterations} iterations)"
            yield SearchStart(SOFTNESS[0], run.x, run.u, theirs if len(theirs) else None, said, whole)

    def refine(self, result: Result, factor: int, **options: Any) -> Result:
        """Solve the problem again with `factor` times as many steps.
        The trajectory of `result` is the initial guess.

        This is `Result.refine`. The duration is the same; data over time are interpolated. `result` is of
        this problem.
        """
        factor, n = as_count(factor, "factor"), self.steps
        limits, cost, run = self._limits, self.cost, result.trajectory
        own = {**self._open, "final": limits["final"]}
        if own["dt"] is not None or own["duration"] is None:
            lengths = np.broadcast_to(self.map.dt if own["dt"] is None else own["dt"], n)
            own["dt"] = np.repeat(lengths, factor) / factor
        again = Problem(
            self.map,
            cost.with_references(*(finer(r, n, factor) for r in cost.references)),
            factor * n,
            bounds=finer_bounds(limits["bounds"], n, factor),
            constraints=[c.refined(n, factor) for c in as_constraints(limits["constraints"])],
            k0=factor * self.k0,
            **own,
        )
        guess = run.resample(np.repeat(run.step_lengths, factor) / factor, by="line")
        return again.solve(None, guess, **options)

    def sensitivity(self, result: Result) -> Sensitivity:
        """Return the derivatives of an optimal solution with respect to parameters.

        This is `Result.sensitivity`. DMOC continues from the result and computes them.
        """
        from vioc.control.dmoc.problem import solve  # here, as in `by_equations`

        own = {name: value for name, value in self._open.items() if value is not None}
        lengths, run = self.lengths, result.trajectory
        if own.pop("parameters", None):
            raise ValueError("sensitivity: not available with free parameters; give them values")
        if not same_steps(lengths, float(lengths[0])):
            raise ValueError("sensitivity: DMOC computes it, whose steps are equal; give one dt")
        if own.pop("dt", None) is not None and "duration" not in own:
            own["duration"] = float(lengths.sum())
        if not self.unknowns.free_start:
            own["initial"] = run.x[0]
        own |= dict(steps=self.steps, k0=self.k0, **self._limits)
        exact = solve(self.map, self.cost, run, **own)
        if Sizes.along(run).apart(run.x, exact.trajectory.x) > FOLLOWED:
            raise OptimizationError("sensitivity: DMOC leads from this result to another optimum", exact)
        return exact.sensitivity()


def by_equations(f: OneStepMap, cost: Cost, guess: Any, **stated: Any) -> Result | None:
    """Solve an optimal control problem by DMOC with IPOPT; return None if that fails.
    The unknowns are states and inputs of all steps, and the map's equations are constraints.

    `dmoc.solve` does this. The equations hold only at the end of that search, so states without a step do
    not stop it.
    """
    # here, since the sparse matrices of SciPy that DMOC needs are slow to import
    from vioc.control.dmoc.problem import solve

    try:
        found = solve(f, cost, guess, raise_on_failure=False, **stated)
    except (ValueError, ModelError, OptimizationError, StepError):
        return None  # the map has no equations, or they cannot state the problem
    return found if found.status in (Status.CONVERGED, Status.ACCEPTABLE) else None
