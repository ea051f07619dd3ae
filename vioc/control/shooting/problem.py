"""A problem of optimal control, stated once and solved often."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from vioc.checks import as_count, as_value
from vioc.control.costs.cost import Cost, checked
from vioc.control.descent.begin import guess_curve
from vioc.control.descent.projection import straight_line
from vioc.control.dmoc import problem as equations
from vioc.control.dmoc.sensitivity import Sensitivity
from vioc.control.problem.limits import (
    PathConstraint,
    Violation,
    as_constraints,
    end_values,
    finer,
    finer_bounds,
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
from vioc.control.shooting.interior import SOFTNESS, Interior
from vioc.control.shooting.level import Level
from vioc.control.shooting.native import first_level
from vioc.control.shooting.rows import ConstraintRows, collected
from vioc.control.shooting.stages import Stages
from vioc.control.shooting.unknowns import Unknowns
from vioc.errors import ModelError, OptimizationError, StepError, trying
from vioc.maps.given import inputs_of, trajectory_of
from vioc.maps.protocol import OneStepMap
from vioc.maps.steps import check_steps, same_steps
from vioc.maps.trajectory import Trajectory

VIOLATED = 1e-6  # of the scale of a limit: from here on a sample is said to be outside
FEW = 60  # iterations that are not divided among several searches
FOLLOWED = 1e-5  # `Sizes.apart`: how far a trajectory may be from the iterate that it follows


class Problem:
    """A cost, a map and limits over N steps.

    Parameters
    ----------
    f : OneStepMap
    cost : Cost
    steps : int
        N.
    bounds, constraints, final, initial, duration, parameters, periodic, dt
        As in `vioc.control.optimize`.
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
        constraints: Sequence[PathConstraint] | PathConstraint | None = None,
        final: Any = None,
        initial: Any = None,
        duration: Any = None,
        parameters: Mapping[str, Any] | None = None,
        periodic: Any = None,
        dt: Any = None,
        k0: int = 0,
    ):
        self.map, self.steps = f, int(steps)
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
        self._limits = dict(bounds=bounds, constraints=constraints, final=final)
        self._open = dict(initial=initial, duration=duration, parameters=parameters, periodic=periodic, dt=dt)
        found = collected(f, self.steps, bounds, constraints, final, u.free_start)
        self.rows = ConstraintRows(u.map, self.steps, u.rows(found), u.open, u.rigid)
        self._stage_cost = u.cost(cost)
        self.k0 = k0

    def with_cost(self, cost: Cost) -> Problem:
        """The same limits with another cost of this map, such as one with other references."""
        cost.check_map(self.map)
        again = object.__new__(type(self))
        if cost.family is self.cost.family and self._stage_cost is not self.cost:
            rows = [cost.reference_rows(self.steps)] if cost.reference_size else []
            stage = self._stage_cost.with_references(*rows)
        else:
            stage = self.unknowns.cost(cost)
        again.__dict__.update(self.__dict__, cost=cost, _stage_cost=stage)
        return again

    def begun_at(self, k0: int) -> Problem:
        """The same problem from sample k0 of a run on, to whose samples rows of the cost's references belong;
        the last ones are held. Limits over time are of its own samples.
        """
        again = object.__new__(type(self))
        cost, stage = (_from(c, k0, self.steps) for c in (self.cost, self._stage_cost))
        again.__dict__.update(self.__dict__, cost=cost, _stage_cost=stage, k0=k0)
        return again

    def __repr__(self) -> str:
        rows = ", ".join(p.constraint.name for p in self.rows.places) or "no limits"
        return f"Problem({self.map!r}, {self.steps} steps, {rows})"

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
        """The trajectory from x_0 that (locally) minimizes the cost within the limits.

        Parameters
        ----------
        x0, guess, multipliers, monitor, raise_on_failure
            As in `vioc.control.optimize`.
        tolerance : float
            Of the conditions of optimality, of a cost whose gradient is scaled to 100 at most; equations and
            limits in units of their scale.
        max_iterations : int
            Of all searches. One that ends nowhere is begun again, with half of what is left: from the rollout
            of the guess's inputs; without a guess, of a line between the ends, where the last state is
            given; where IPOPT ends on the map's own equations (`dmoc.solve`), if start, duration and
            parameters are given and steps are equal, of maps with contact first; with other
            regularizations of gaps and rows. Of fewer than 60 iterations there is but one search.
        softness : float, optional
            delta of (IP 3): how far gaps and rows give way at first, of a search that is then the only one.
            Motions that fall far, such as poles swung up over seconds, want 1e-8 and a guess near them, or
            1e-2 and more iterations.

        Returns
        -------
        Result

        Raises
        ------
        ValueError, OptimizationError, KeyboardInterrupt
            As `vioc.control.optimize`; a softness that is not above 0.
        """
        check_ending(tolerance, max_iterations)
        if softness is not None and not 0 < (softness := as_value(softness, "softness")) < np.inf:
            raise ValueError(f"softness: expected a finite number > 0, got {softness}")
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
        of_both = sizes.states, sizes.inputs
        rows = self.rows.sized(X, U, sizes)
        stages = Stages(u.map, self._stage_cost, rows, self.k0, u.lengths, u.start, u.rigid, of_both)
        duals = rows.from_multipliers(multipliers) if multipliers else None
        log = Log("optimize", HEADER, monitor)
        interrupt = None
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"), log.shown():
            tried: list[tuple[Interior, str]] = []
            only = softness is not None
            one = [(softness, (X, U, duals), "")]
            try:
                for soft, start, said in one if only else self._starts(stages, X, U, duals, max_iterations):
                    left = max_iterations - log.steps
                    if tried and left <= 0:
                        break
                    level = first_level(stages, tolerance, soft, scale)
                    search, held = self._begun(level, start, rolled=not said)
                    rows.check_start(search.now.point.curve)
                    tried.append((search, held or said))
                    last = only or max_iterations < FEW or soft == SOFTNESS[-1]
                    search.iterate(left if last else (left + 1) // 2, log)
                    if search.status is Status.CONVERGED:
                        break
            except KeyboardInterrupt as stop:
                if not tried:
                    raise
                interrupt, tried[-1][0].status = stop, Status.INTERRUPTED
            search = tried[-1][0]
            ended = search.status in (Status.CONVERGED, Status.INTERRUPTED)
            best = min(tried, key=lambda t: t[0].error if np.isfinite(t[0].error) else np.inf)
            search, begun = tried[-1] if ended else best
            try:
                result = self._outcome(search, log, begun, sizes)
            except KeyboardInterrupt as stop:  # what was found is kept
                interrupt, search.status = stop, Status.INTERRUPTED
                result = self._outcome(search, log, begun, sizes)
        return finished(result, interrupt, monitor, raise_on_failure)

    def _starts(self, stages: Stages, X, U, duals, iterations: int) -> Iterator[tuple]:
        """Where searches begin, one after the other, each for half of the iterations that are left: delta,
        (states, inputs, multipliers of rows or None), and what is to be said of it.
        """
        contact = (
            self.map.relaxed is not None and duals is None
        )  # from afar first: open contacts are not felt
        if contact:
            yield from self._from_equations(stages, X, U, iterations)
        yield SOFTNESS[0], (X, U, duals), ""
        if iterations < FEW:
            return
        rolled = X
        with contextlib.suppress(StepError), trying():
            rolled = stages.map.rollout(X[0], U, k0=self.k0, dt=stages.lengths, warn=False).x
        if not np.array_equal(rolled, X):  # outside of the block: the search is no trial of this one
            yield SOFTNESS[0], (rolled, U, None), "begun from the rollout of its inputs"
        if self._held(X, U) and (end := self._end()) is not None:
            line = self.unknowns.joined(
                straight_line(X[0, : self.map.nx], end, self.steps, self.map), X[0, self.map.nx :]
            )
            yield SOFTNESS[0], (line, U, None), "begun from a line between the ends"
        if not contact:
            yield from self._from_equations(stages, X, U, iterations)
        for soft in SOFTNESS[1:]:
            yield soft, (X, U, duals), ""

    def _held(self, X: np.ndarray, U: np.ndarray) -> bool:
        """Whether the guess is the start, held without inputs."""
        return bool((X[0] == X).all()) and not U.any()

    def _end(self) -> np.ndarray | None:
        """The last state, where all of it is given."""
        f, final = self.map, self._limits["final"]
        if final is None:
            return None
        if not isinstance(final, Mapping):
            return f.check_state(final, "final state")
        if f.ndx != f.nx or not all(np.ndim(self.final.get(n, ())) == 0 for n in f.state_names):
            return None
        return np.array([float(self.final[n]) for n in f.state_names])

    def _hint(self, status: Status) -> str:
        """What else may lead to an optimum, where a search has ended without one."""
        if status in (Status.CONVERGED, Status.ACCEPTABLE, Status.INTERRUPTED):
            return ""
        hints = []
        if self._end() is not None:
            hints.append("a guess such as (straight_line(x0, end, steps), None)")
        if self.unknowns.map is self.map and not self.unknowns.free_start:
            hints.append('method="dmoc"')
        if self.final and not self.unknowns.span:
            hints.append("a free time, duration=(low, high)")
        return f"worth a try: {', or '.join(hints)}" if hints else ""

    def _from_equations(
        self, stages: Stages, X: np.ndarray, U: np.ndarray, iterations: int
    ) -> Iterator[tuple]:
        """The start where IPOPT ends, if it does."""
        if found := self._relaxed(X[:, : self.map.nx], U, iterations):
            run, theirs = found.trajectory, stages.rows.from_multipliers(found.multipliers)
            said = f"begun from IPOPT's optimum ({found.iterations} iterations)"
            yield SOFTNESS[0], (run.x, run.u, theirs if len(theirs) else None), said

    def _relaxed(self, X: np.ndarray, U: np.ndarray, iterations: int) -> Result | None:
        """What IPOPT makes of the map's equations, which hold at its end alone: no step need be solved on the
        way, so nothing is in its way where a map has no steps. None where it ends nowhere.
        """
        u = self.unknowns
        if u.map is not self.map or u.free_start or (self.lengths != self.map.dt).any():
            return None
        own: dict[str, Any] = dict(steps=self.steps, k0=self.k0, initial=X[0], **self._limits)
        try:
            found = equations.solve(
                self.map, self.cost, (X, U), max_iterations=iterations, raise_on_failure=False, **own
            )
        except (ValueError, ModelError, OptimizationError, StepError):
            return None  # a map that tells none, or what they cannot state
        return found if found.status in (Status.CONVERGED, Status.ACCEPTABLE) else None

    @property
    def costs(self) -> list[Cost]:
        """Of its one phase."""
        return [self.cost]

    def refine(self, result: Result, factor: int, **options: Any) -> Result:
        """`Result.refine`: with `factor` times as many steps in the same time, from a result of this problem.

        Data over time are interpolated.
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
        """`Result.sensitivity` of a result of this problem, by DMOC's solution of it from there."""
        own = {name: value for name, value in self._open.items() if value is not None}
        lengths, run = self.lengths, result.trajectory
        if own.pop("parameters", None):
            raise ValueError("sensitivity: it is not known where parameters are free; give them values")
        if not same_steps(lengths, float(lengths[0])):
            raise ValueError("sensitivity: it is DMOC's, whose steps are equal; give one dt")
        if own.pop("dt", None) is not None and "duration" not in own:
            own["duration"] = float(lengths.sum())
        if not self.unknowns.free_start:
            own["initial"] = run.x[0]
        own |= dict(steps=self.steps, k0=self.k0, **self._limits)
        exact = equations.solve(self.map, self.cost, run, **own)
        if Sizes.along(run).apart(run.x, exact.trajectory.x) > FOLLOWED:
            raise OptimizationError("sensitivity: DMOC leads from this result to another optimum", exact)
        return exact.sensitivity()

    def stages(self, first: int, steps: int, k0: int) -> Stages:
        """Its steps from `first` on with its conditions on the end, begun at sample k0 of a run, to whose
        samples rows of the cost's references belong; the last ones are held.
        """
        whole = steps == self.steps and not first
        cost = _from(self._stage_cost, k0, steps)
        rows = self.rows if whole else self.rows.window(first, steps)
        return Stages(self.unknowns.map, cost, rows, k0, self.lengths[first : first + steps])

    def _sizes(self, X: np.ndarray, U: np.ndarray, constants: np.ndarray) -> Sizes:
        """Typical sizes of what the problem moves, by the guess, its ends and its limits."""
        u, told = self.unknowns, dict[str, Any]()
        for p in self.rows.places:
            name = p.constraint.name.removeprefix("final ").removeprefix("initial ")
            told[name] = np.concatenate([np.atleast_1d(told.get(name, 0.0)), *p.limits])
        duration = float(np.sum(u.seconds(constants)[1]))
        return Sizes(u.map, u.joined(X, constants), U, duration, told)

    def curve(self, x0: Any, guess: Any) -> tuple[np.ndarray, np.ndarray]:
        """The guess as states (N+1, nx) and inputs (N, nu)."""
        return self._begin(x0, guess)[:2]

    def _begin(self, x0: Any, guess: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The same, with constants of the motion that are free."""
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
                    pass  # held; the steps' gaps close on the way
        if len(U) != n:
            raise ValueError(f"guess: expected {n} steps, got {len(U)}")
        X = np.array(X, float)
        X[0] = first
        return X, np.array(U, float), constants

    def _begun(self, level: Level, start: tuple, rolled: bool) -> tuple[Interior, str]:
        """The search, from the start held where the guess has no steps."""
        X, U, duals = start
        try:
            return Interior(level, X, U, duals, rolled), ""
        except OptimizationError as error:
            held = np.tile(X[0], (len(X), 1))
            if np.array_equal(held, X) and not U.any():
                raise
            search = Interior(level, held, np.zeros_like(U), duals)
            return search, f"{error}; the search began with the start held"

    def _outcome(self, search: Interior, log: Log, begun: str, sizes: Sizes) -> Result:
        it = search.now
        curve, far = it.point.curve, 0.0
        if it.point.open:
            followed, far = search.stages.followed(curve.x, curve.u, search.gains), np.inf
            if followed is not None:
                far = sizes.apart(curve.x, followed.curve.x)
            if far > FOLLOWED:  # of an end on the way, what its inputs alone do may be nearer to it
                rolled = search.stages.followed(curve.x, curve.u, np.zeros_like(search.gains))
                followed = min((p for p in (followed, rolled) if p), key=lambda p: p.cost, default=None)
            if followed is not None:
                curve = followed.curve
        assert search.status is not None
        return self.result(
            search.status,
            History.of(log.records),
            (it.point.curve, curve, far, search.stages.gains_of(search.gains)),
            {**search.stages.rows.multipliers(it.y / search.level.scale), **self._of_start(search)},
            iterations=log.steps,
            seconds=log.seconds,
            said=(begun, search.note, self._hint(search.status)),
            slope=-search.promise,
            error=search.error,
            scale=search.level.scale,
            rows=search.stages.rows,
            sizes=sizes,
        )

    def _of_start(self, search: Interior) -> dict[str, np.ndarray]:
        """Multipliers of the values that `initial` gives to states: minus the Lagrangian's gradient there."""
        if not self.unknowns.told:
            return {}
        it, stages = search.now, search.stages
        try:
            b = stages.blocks(it.point, stages.map.linearize_steps(it.point.steps))
        except StepError:  # of a search that ended for that
            return {}
        pulled = b.F[0].T @ it.p[1] + b.pulled(it.y)[0][0]
        slope = (b.g[0] + pulled / search.level.scale) / stages.of_both
        return {f"initial {n}": np.array([-slope[at].sum()]) for n, at in self.unknowns.told.items()}

    def result(
        self,
        status: Status,
        history: History,
        end: tuple[Trajectory, Trajectory, float, np.ndarray],
        multipliers: dict[str, np.ndarray],
        *,
        said: tuple[str, ...] = (),
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
        """What a search of this problem came to.

        `end` is the curve that it ended with, a trajectory that follows it, how far they are apart
        (`Sizes.apart`), and gains.
        What is converged of an unstable motion may not be so of its rollout.
        """
        curve, run, far, gains = end
        rows = rows or self.rows
        run, gap, away = open_loop(run.on_its_step(), sizes)
        motion = self.unknowns.run(run)
        found = list(violations) or (rows.violations(run, VIOLATED) if len(rows) else [])
        found = [v._replace(t=float(motion.t[v.k])) for v in found]
        note = "the trajectory of its inputs leaves the curve found" if far > FOLLOWED else ""
        note = "the rollout of its inputs does not keep all limits" if found else note
        if note and status is Status.CONVERGED:
            status, said = Status.ACCEPTABLE, (note, *said)
        elif not note:
            status, leaves = judged(status, run, gap, away)
            said = leaves, *said
        cost = self.cost.value(motion) if cost is None else cost
        promise = "" if np.isnan(error) else f", error {error:.1e}"
        if status is not Status.NO_PROGRESS:  # a search that ends so has said why, and what to try
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


def _from(cost: Cost, k0: int, steps: int) -> Cost:
    """A cost with its references from row k0 on."""
    at = k0 + np.arange(steps + 1)
    rows = [r[np.minimum(at, len(r) - 1)] for r in cost.references]
    return cost.with_references(*rows) if rows else cost
