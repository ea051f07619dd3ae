"""Optimal control problem for multiple shooting, with its guesses and results."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np

from vioc.checks import as_count
from vioc.control.costs.cost import Cost, checked
from vioc.control.descent.guess import guess_curve
from vioc.control.problem.consistent import check_last_values
from vioc.control.problem.limits import (
    PathConstraint,
    Violation,
    as_constraints,
    end_values,
    obstacles_among,
)
from vioc.control.problem.result import (
    HEADER,
    History,
    Iteration,
    Log,
    Multipliers,
    PhaseResult,
    Result,
    check_ending,
    finished,
    judged,
    open_loop,
)
from vioc.control.problem.sizes import Sizes
from vioc.control.problem.status import Status, verdict
from vioc.control.shooting.barrier import Interior
from vioc.control.shooting.compiled import subproblem_of
from vioc.control.shooting.rows import ConstraintRows, collected
from vioc.control.shooting.stages import Stages
from vioc.control.shooting.subproblem import Subproblem
from vioc.control.shooting.unknowns import Unknowns
from vioc.errors import OptimizationError, StepError, trying
from vioc.maps.protocol import OneStepMap
from vioc.runs.given import inputs_of, trajectory_of
from vioc.runs.steps import check_steps, same_steps
from vioc.runs.trajectory import Trajectory

VIOLATED = 1e-6  # violation over the scale of a constraint above which a sample is reported
FOLLOWED = 1e-5  # largest `Sizes.apart` of a converged iterate and the trajectory of its inputs

Own = TypeVar("Own", bound="ShootingProblem")


class SearchStart(NamedTuple):
    """Initial guess and settings of one interior-point search.

    Attributes
    ----------
    soft : float
        delta, the regularization, of its first barrier subproblem.
    X, U : (N+1, nx), (N, nu)
    duals : (rows,) or None
        Multipliers of the constraints, if known.
    said : str
        Text that describes this start in the result's message; empty for the user's guess.
    whole : bool
        True if the search may use all remaining iterations. Otherwise it may use half of them, and the others
        only if it is then near an optimum.
    """

    soft: float
    X: np.ndarray
    U: np.ndarray
    duals: np.ndarray | None
    said: str
    whole: bool


class ShootingProblem(ABC):
    """Base class of multiple-shooting problems with cost, map and limits over N steps.

    Parameters and errors are those of `vioc.control.Problem`.
    """

    @abstractmethod
    def _order(
        self, stages: Stages, X: np.ndarray, U: np.ndarray, duals: Any, iterations: int
    ) -> Iterator[SearchStart]:
        """Yield starting points for successive searches, until one search converges."""

    def __init__(
        self,
        f: OneStepMap,
        cost: Cost,
        steps: int,
        *,
        bounds: Mapping[str, Any] | None = None,
        constraints: Sequence[PathConstraint] | PathConstraint | None = None,
        final: Any = None,
        initial: Any = None,
        duration: Any = None,
        parameters: Mapping[str, Any] | None = None,
        periodic: Any = None,
        dt: Any = None,
        k0: int = 0,
    ):
        self.map, self.steps = f, as_count(steps, "steps")
        self.cost = checked(f, cost)
        self.unknowns = u = Unknowns(f, self.steps, initial, duration, parameters, periodic, dt)
        self.lengths = u.lengths
        unequal = not same_steps(u.lengths, float(u.lengths[0]))
        if u.span and k0 and unequal and f.depends_on_time is not False:
            raise ValueError(
                f"k0: where {k0} unequal steps of a free duration end is not known, and steps of "
                f"{f!r} depend on time; take k0 = 0, equal steps, or a given duration"
            )
        self.final = end_values(f, final, "final")
        check_last_values(f, self.final, tuple(u.parameters))
        self._limits = dict(bounds=bounds, constraints=constraints, final=final)
        self._open = dict(initial=initial, duration=duration, parameters=parameters, periodic=periodic, dt=dt)
        found = collected(f, self.steps, bounds, constraints, final, u.free_start)
        self.rows = ConstraintRows(u.map, self.steps, u.rows(found), u.open, u.rigid)
        self._stage_cost = u.cost(cost)
        self.k0 = k0

    def with_cost(self: Own, cost: Cost) -> Own:
        """Return this problem with another cost, for example with other references."""
        cost.check_map(self.map)
        again = object.__new__(type(self))
        if cost.family is self.cost.family and self._stage_cost is not self.cost:
            rows = [cost.reference_rows(self.steps)] if cost.reference_size else []
            stage = self._stage_cost.with_references(*rows)
        else:
            stage = self.unknowns.cost(cost)
        again.__dict__.update(self.__dict__, cost=cost, _stage_cost=stage)
        return again

    def begun_at(self: Own, k0: int) -> Own:
        """Return this problem with its first step at sample k0 of a longer run.

        References of the cost are indexed by the samples of the run, and the last reference is repeated at
        its end. Limits over time are indexed by the problem's own samples.
        """
        again = object.__new__(type(self))
        cost, stage = (_from(c, k0, self.steps) for c in (self.cost, self._stage_cost))
        again.__dict__.update(self.__dict__, cost=cost, _stage_cost=stage, k0=k0)
        return again

    def __repr__(self) -> str:
        rows = ", ".join(p.constraint.name for p in self.rows.places) or "no limits"
        return f"Problem({self.map!r}, {self.steps} steps, {rows})"

    def _searched(
        self,
        x0: Any,
        guess: Any,
        order: Callable[..., Iterable[SearchStart]],
        hint: Callable[[Collection[str], Status], str],
        *,
        multipliers: Mapping[str, Any] | None,
        tolerance: float,
        max_iterations: int,
        monitor: bool | Callable[[Iteration], Any] | None,
        raise_on_failure: bool,
    ) -> Result:
        """Run successive searches; return the result of the first one that converges.

        If none converges, return the result of the search with the smallest KKT residual. ``order(stages, X,
        U, duals)`` yields the starts of the searches. ``hint(begun, status)`` returns advice after a failure;
        `begun` are texts that describe these starts. The other arguments are those of `Problem.solve`
        (`vioc.control.control_problem`).
        """
        check_ending(tolerance, max_iterations)
        if self.cost.only_time and not self.unknowns.span:
            raise ValueError(
                f"cost: it is the duration, which is given, {self.lengths.sum():g} s; make it free by "
                "duration=(low, high)"
            )
        scale = None
        if multipliers is None and isinstance(guess, Result) and guess.converged and len(guess.phases) == 1:
            multipliers, scale = guess.multipliers, guess.scale
        elif multipliers:
            self.rows.check_names(multipliers)
        u, (X, U, constants) = self.unknowns, self._begin(x0, guess)
        sizes = self._sizes(X, U, constants)
        X = u.joined(X, constants)
        rows = self.rows.sized(X, U, sizes)
        stages = Stages(u.map, self._stage_cost, rows, self.k0, u.lengths, u.start, u.rigid, sizes)
        duals = rows.from_multipliers(multipliers) if multipliers else None
        log = Log("optimize", HEADER, monitor)
        interrupt = None
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"), log.shown():
            tried: list[tuple[Interior, str]] = []
            subproblem_class = subproblem_of(stages.map)
            try:
                for start in order(stages, X, U, duals):
                    left = max_iterations - log.steps
                    if tried and left <= 0:
                        break
                    subproblem = subproblem_class(stages, tolerance, start.soft, scale)
                    search, held = self._begun(subproblem, start)
                    rows.check_start(search.now.point.curve)
                    tried.append((search, held or start.said))
                    search.iterate(left if start.whole else (left + 1) // 2, log)
                    if search.status is Status.MAX_ITERATIONS and search.near and not start.whole:
                        search.iterate(max_iterations - log.steps, log)
                    if search.status is Status.CONVERGED:
                        break
            except KeyboardInterrupt as stop:
                if not tried:
                    raise
                interrupt, tried[-1][0].status = stop, Status.INTERRUPTED
            search = tried[-1][0]
            ended = search.status in (Status.CONVERGED, Status.INTERRUPTED)
            search, begun = tried[-1] if ended else min(tried, key=_residual)
            advice = partial(hint, [text for _, text in tried])
            try:
                result = self._outcome(search, log, begun, advice, sizes)
            except KeyboardInterrupt as stop:  # keep the result found so far
                interrupt, search.status = stop, Status.INTERRUPTED
                result = self._outcome(search, log, begun, advice, sizes)
        return finished(result, interrupt, monitor, raise_on_failure)

    @property
    def costs(self) -> list[Cost]:
        """Cost of the problem, as a list with one entry for the problem's single phase."""
        return [self.cost]

    def stages(self, first: int, steps: int, k0: int) -> Stages:
        """Return cost, map and constraints over a window of the problem's steps.

        The window has `steps` steps, from step `first` of the problem on. It begins at sample k0 of a run.
        The references are indexed by the samples of this run, and the last reference is repeated at its end.
        """
        whole = steps == self.steps and not first
        cost = _from(self._stage_cost, k0, steps)
        rows = self.rows if whole else self.rows.window(first, steps)
        return Stages(self.unknowns.map, cost, rows, k0, self.lengths[first : first + steps])

    def _sizes(self, X: np.ndarray, U: np.ndarray, constants: np.ndarray) -> Sizes:
        """Return typical magnitudes of the problem's states and inputs.
        They follow from the guess X, U, and from the end states and limits of the problem.
        """
        u, told = self.unknowns, dict[str, Any]()
        for p in self.rows.places:
            name = p.constraint.name.removeprefix("final ").removeprefix("initial ")
            told[name] = np.concatenate([np.atleast_1d(told.get(name, 0.0)), *p.limits])
        duration = float(np.sum(u.seconds(constants)[1]))
        return Sizes(u.map, u.joined(X, constants), U, duration, told)

    def curve(self, x0: Any, guess: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the guess as states (N+1, nx) and inputs (N, nu)."""
        return self._begin(x0, guess)[:2]

    def _begin(self, x0: Any, guess: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return states, inputs and free constants (duration, parameters) of the guess."""
        f, n, u = self.map, self.steps, self.unknowns
        left, guess = getattr(guess, "curve", None), trajectory_of(guess)
        x0 = None if x0 is None else f.check_state(x0, "x0")
        run = guess if isinstance(guess, Trajectory) else None
        if run is not None:
            if len(run) != n:
                raise ValueError(
                    f"guess: a trajectory of {len(run)} steps, the problem has {n}; state it with "
                    f"steps={len(run)}, or give states and inputs at its own samples, (X, U)"
                )
            if not u.span:
                check_steps(run.step_lengths, self.lengths, "guess", "the problem")
            guess = left or (run.x, run.u)
        curve = guess_curve(f, guess) if isinstance(guess, tuple) else None
        first = u.first(curve[0][0] if x0 is None and curve is not None else x0, self.final)
        if first is None:
            raise ValueError("no initial state: give x0, or a guess with states")
        constants = u.constants(run, first)
        if curve is not None:
            X, U = curve
        else:
            U = inputs_of(f, guess, n, first)
            X = np.tile(first, (n + 1, 1))
            if guess is not None:
                owner, lengths = u.seconds(constants)
                try:
                    with trying():
                        X = owner.rollout(first, U, k0=self.k0, dt=lengths).x
                except StepError:
                    pass  # the start is repeated; the search closes the defects
        if len(U) != n:
            raise ValueError(f"guess: expected {n} steps, got {len(U)}")
        X = np.array(X, float)
        X[0] = first
        return X, np.array(U, float), constants

    def _begun(self, subproblem: Subproblem, start: SearchStart) -> tuple[Interior, str]:
        """Return a search and a message about its start, which is usually empty.

        The search starts from the guess. If a step of the guess cannot be computed, all states of the start
        are equal to the initial state instead, and the message says so.
        """
        _, X, U, duals, said, _ = start
        try:
            return Interior(subproblem, subproblem.stages.consistent(X), U, duals, rolled=not said), ""
        except OptimizationError as error:
            held = np.tile(X[0], (len(X), 1))
            if np.array_equal(held, X) and not U.any():
                raise
            search = Interior(subproblem, held, np.zeros_like(U), duals)
            return search, f"{error}; the search began with the initial state at all samples"

    def _outcome(
        self, search: Interior, log: Log, begun: str, hint: Callable[[Status], str], sizes: Sizes
    ) -> Result:
        it = search.now
        curve, far = it.point.curve, 0.0
        if it.point.open:
            followed, far = search.stages.followed(curve.x, curve.u, search.gains), np.inf
            if followed is not None:
                far = sizes.apart(curve.x, followed.curve.x)
            if far > FOLLOWED:  # the open-loop rollout of the inputs may be nearer
                rolled = search.stages.followed(curve.x, curve.u, np.zeros_like(search.gains))
                followed = min((p for p in (followed, rolled) if p), key=lambda p: p.cost, default=None)
            if followed is not None:
                curve = followed.curve
        assert search.status is not None
        return self.result(
            search.status,
            History.of(log.records),
            (it.point.curve, curve, far, search.stages.gains_of(search.gains)),
            {**search.stages.rows.multipliers(it.y / search.subproblem.scale), **self._of_start(search)},
            iterations=log.steps,
            seconds=log.seconds,
            said=(begun, search.note, hint(search.status)),
            explained=search.status in (Status.NO_PROGRESS, Status.NO_DESCENT) and bool(search.note),
            slope=-search.promise,
            error=search.error,
            scale=search.subproblem.scale,
            rows=search.stages.rows,
            sizes=sizes,
        )

    def _of_start(self, search: Interior) -> dict[str, np.ndarray]:
        """Return the multipliers of the given initial values of states, by name.

        They are minus the derivatives of the Lagrangian with respect to these states.
        """
        if not self.unknowns.told:
            return {}
        it, stages = search.now, search.stages
        try:
            b = stages.blocks(it.point, stages.map.derivatives.linearize(it.point.steps))
        except StepError:  # the search ended because of this error
            return {}
        pulled = b.F[0].T @ it.p[1] + b.pulled(it.y)[0][0]
        slope = (b.g[0] + pulled / search.subproblem.scale) / stages.of_both
        return {f"initial {n}": np.array([-slope[at].sum()]) for n, at in self.unknowns.told.items()}

    def result(
        self,
        status: Status,
        history: History,
        end: tuple[Trajectory, Trajectory, float, np.ndarray],
        multipliers: dict[str, np.ndarray],
        *,
        said: tuple[str, ...] = (),
        explained: bool = False,
        iterations: int,
        seconds: float,
        cost: float | None = None,
        violations: Sequence[Violation] = (),
        slope: float = np.nan,
        error: float = np.nan,
        scale: float | None = None,
        rows: ConstraintRows | None = None,
        sizes: Sizes | None = None,
    ) -> Result:
        """Return the `Result` of a search of this problem.

        `end` holds the last curve of states and inputs, a trajectory that follows it under feedback, the
        distance between both (`Sizes.apart`), and the feedback gains. If a motion is unstable, the trajectory
        may depart from a curve that has converged. `explained` is True if the notes in `said` already tell
        why the search ended.
        """
        curve, run, far, gains = end
        rows = rows or self.rows
        run, gap, away = open_loop(run.on_its_step(), sizes)
        motion = self.unknowns.run(run)
        found = list(violations) or (rows.violations(run, VIOLATED) if len(rows) else [])
        found = [v._replace(t=float(motion.t[v.k])) for v in found]
        note = "the trajectory of its inputs leaves the solution" if far > FOLLOWED else ""
        note = "the rollout of its inputs does not keep all limits" if found else note
        if note and status is Status.CONVERGED:
            status, said = Status.ACCEPTABLE, (note, *said)
        elif not note:
            status, leaves = judged(status, run, gap, away)
            said = leaves, *said
        cost = self.cost.value(motion) if cost is None else cost
        promise = "" if np.isnan(error) else f", error {error:.1e}"
        if not explained:
            said = *said, status.advice
        text = verdict(status, f"{iterations} iterations", cost, *said, promise=promise, found=found)
        balls = obstacles_among(as_constraints(self._limits["constraints"]))
        return Result(
            (PhaseResult(motion, Multipliers(multipliers), obstacles=balls),),
            cost,
            status,
            text,
            iterations,
            history,
            seconds,
            lambda: self,
            own_gains=np.ascontiguousarray(gains[:, :, : self.map.ndx]),
            own_gap=gap,
            slope=slope,
            curve=None if status is Status.CONVERGED else (curve.x[:, : self.map.nx].copy(), curve.u),
            violations=found,
            margin=rows.margin(run),
            error=error,
            scale=scale,
        )


def _residual(tried: tuple[Interior, str]) -> float:
    """Return the KKT residual at the end of a search, or infinity if it is not finite."""
    error = tried[0].error
    return error if np.isfinite(error) else np.inf


def _from(cost: Cost, k0: int, steps: int) -> Cost:
    """Return a cost whose references at sample k are those of `cost` at k0 + k."""
    at = k0 + np.arange(steps + 1)
    rows = [r[np.minimum(at, len(r) - 1)] for r in cost.references]
    return cost.with_references(*rows) if rows else cost
