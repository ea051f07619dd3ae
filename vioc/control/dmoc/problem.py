"""Optimal control problems of one or several phases, as nonlinear programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import casadi as ca
import numpy as np

from vioc.checks import as_count, near_misses
from vioc.control.costs.cost import Cost
from vioc.control.dmoc.by_name import Raw
from vioc.control.dmoc.curve import curve, first_step, quantities, unknowns
from vioc.control.dmoc.homotopy import BUDGET, LOOSE, PATIENCE, Stage, follow
from vioc.control.dmoc.phase import Phase
from vioc.control.dmoc.scaling import ContactUnits, Scales, scales
from vioc.control.dmoc.sensitivity import Sensitivity, sensitivity
from vioc.control.dmoc.separable import FunctionBlock
from vioc.control.dmoc.solution import solution
from vioc.control.dmoc.solvers import SOLVERS, Solver, SolverOutcome
from vioc.control.dmoc.transcription import Transcription
from vioc.control.problem.limits import PathConstraint
from vioc.control.problem.result import HEADER, History, Iteration, Log, Result, check_ending, finished
from vioc.control.problem.status import Status
from vioc.errors import ModelError, OptimizationError
from vioc.maps.protocol import OneStepMap
from vioc.names import by_name

FORMS = "auto", "positions", "states", "staged"
OF_PHASE = tuple(field.name for field in fields(Phase) if field.name not in ("map", "steps", "cost"))
OF_SOLVER = (
    "solver",
    "form",
    "tolerance",
    "max_iterations",
    "options",
    "monitor",
    "raise_on_failure",
    "smoothing",
)
WARM = {
    "ipopt.warm_start_init_point": "yes",
    "ipopt.warm_start_bound_push": 1e-9,
    "ipopt.warm_start_bound_frac": 1e-9,
    "ipopt.warm_start_slack_bound_push": 1e-9,
    "ipopt.warm_start_slack_bound_frac": 1e-9,
    "ipopt.warm_start_mult_bound_push": 1e-9,
    "ipopt.mu_init": 1e-6,
}
NEAR = {"ipopt.mu_init": 1e-3, "ipopt.bound_push": 1e-8, "ipopt.bound_frac": 1e-8}  # contact keeps the cones
BETWEEN = {"ipopt.mu_init": 1e-4}
OF_FATROP = ("mu_init", "bound_push", "bound_frac")
ENDED = Status.CONVERGED, Status.ACCEPTABLE
CENTERED = 1e-4  # largest residual of contact equations over the smoothing


class Problem:
    """Optimal control problem of one or several phases, solved as a nonlinear program.

    See docs/maths/dmoc.md.

    Parameters
    ----------
    phases : Phase or sequence of Phase
        In the order of time.
    jumps : sequence of (dict or None), optional
        One for each pair of successive phases, None if no state jumps. A dict maps names of states that jump
        to their first values in the later phase. Such a value is an expression in the symbols of the earlier
        map's state at its end, or None if it is free. One more jump, from the last phase to the first, makes
        the motion periodic.

    Notes
    -----
    A map's `limits` hold at every sample, except for gaps at an end shared with a phase in which that contact
    is closed: touch-down and lift-off need no further constraints (docs/phases.md).

    Examples
    --------
    >>> problem = Problem(Phase(f, 200, cost, initial=x0, bounds={"u.force": 20.0}))
    >>> best = problem.solve()
    """

    def __init__(
        self, phases: Phase | Sequence[Phase], jumps: Sequence[Mapping[str, Any] | None] | None = None
    ):
        self.phases = (phases,) if isinstance(phases, Phase) else tuple(phases)
        if not self.phases or not all(isinstance(p, Phase) for p in self.phases):
            raise TypeError(f"expected a Phase or several, got {phases!r}")
        if isinstance(jumps, Phase):
            raise TypeError("several phases are one argument: Problem([first, second])")
        joints = len(self.phases) - 1
        jumps = [None] * joints if jumps is None else list(jumps)
        self.jumps: list[Mapping[str, Any] | None] = jumps
        if len(jumps) not in (joints, joints + 1):
            raise ValueError(
                f"jumps: expected {joints}, one for each joint, or {joints + 1} of a periodic motion, got "
                f"{len(jumps)}"
            )
        self.maps = tuple(p.map for p in self.phases)
        for i, jump in enumerate(jumps):
            into = (i + 1) % len(self.phases)
            if jump is not None:
                names = self.maps[into].state_names
                self.jumps[i] = by_name(jump, names, f"jump into phase {into}")
        self._transcriptions: dict[str, Transcription] = {}
        self._solvers: dict[Any, Solver] = {}

    def transcription(self, form: str = "auto") -> Transcription:
        """Return the nonlinear program of this problem in a given form.
        The form decides whether momenta are eliminated (see `solve`). The form "staged" is for the solver
        FATROP.
        """
        if form not in FORMS:
            raise ValueError(f"form: expected one of {', '.join(FORMS)}, got {form!r}")
        if form not in self._transcriptions:
            phases = [self._limited(i, p) for i, p in enumerate(self.phases)]
            self._transcriptions[form] = Transcription(phases, self.jumps, form)
        return self._transcriptions[form]

    def solve(
        self,
        guess: Any = None,
        *,
        initial: Any = None,
        solver: str = "ipopt",
        form: str = "auto",
        tolerance: float = 1e-8,
        max_iterations: int = 1000,
        options: Mapping[str, Any] | None = None,
        monitor: bool | Callable[[Iteration], Any] | None = None,
        raise_on_failure: bool = True,
        smoothing: float | None = None,
    ) -> Result:
        """Find a local minimum of the cost with a nonlinear programming solver.

        Parameters
        ----------
        guess : optional
            Guess of a phase; it does not change the phase's steps and times. It is a Trajectory of any steps,
            which is sampled in time and stretched to the given duration; (X, U) of shapes (N+1, nx), (N, nu),
            U None for no force; inputs U (N, nu), which are rolled out; or None for the straight line between
            the ends. A list has one guess for each phase. A Result of the same problem also supplies its
            multipliers; a Result with other steps supplies only its trajectories.
        initial : (nx,) array or dict by name, optional
            Values that replace the given initial state of the first phase. The program is not built again, so
            that the problem can be solved on a receding horizon.
        solver : {"ipopt", "fatrop", "sqp"}
        form : {"auto", "positions", "states"}
            "positions" eliminates the momenta (all states that a step's equations give explicitly), so that
            an equation involves three configurations; "states" keeps them as unknowns. "auto" eliminates them
            in phases whose cost depends neither on them nor on velocities; FATROP requires states.
        tolerance : float
            Tolerance of the optimality conditions, as the solver scales them.
        options : dict, optional
            Options of CasADi's `nlpsol` with that solver, e.g. ``{"ipopt.linear_solver": "mumps"}``.
        max_iterations, monitor, raise_on_failure
            As in `vioc.control.optimize`; FATROP does not report its iterates.
        smoothing : float, optional
            First smoothing of the homotopy for maps with contact, m^2/s^2; the last is the maps' own.
            The default is g L/10 with the acceleration g of gravity and the extent L of the mechanism in the
            first state, or a tenth of the problem's typical length l if this is longer; without gravity, g is
            10 l/T^2 with the duration T. If the guess is a solution of the same program, it is the maps' own.

        Returns
        -------
        Result

        Raises
        ------
        ValueError, OptimizationError, KeyboardInterrupt
            As `vioc.control.optimize`; OptimizationError also if the program is not finite at the guess.
            FATROP ends with its last iterate, and with none at Ctrl-C.
        """
        if solver not in SOLVERS:
            raise ValueError(f"solver: unknown {solver!r}; {near_misses(solver, SOLVERS)}")
        check_ending(tolerance, max_iterations)
        t = self.transcription(self._form(solver, form))
        limits = self._limits(t, initial)
        target, known = t.own_smoothing, self._duals(guess, t)
        units = ContactUnits() if target is None else self._contact_units(guess, t, target)
        wide = 0.0 if target is None else smoothing or (units.smoothing if known is None else target)
        w, p = np.clip(self._start(guess, t, wide), *limits), t.given_values(wide, units.pull)
        self._check_finite(t, w, p)
        sizes = scales(t, w, p)
        log = Log("dmoc", HEADER, monitor)

        def one(
            p: np.ndarray,
            w: np.ndarray,
            duals: Any,
            tolerance: float,
            count: int,
            more: Any,
            sizes: Scales = sizes,
        ) -> SolverOutcome:
            warm = WARM if solver == "ipopt" and duals is not None else {}
            settings = {**warm, **translated(more, solver), **(options or {})}
            key = (solver, t.form, tolerance, count, str(sorted(settings.items())))
            if key not in self._solvers:
                self._solvers[key] = Solver(t, solver, tolerance, count, settings)
            mu, nu = (None, None) if duals is None else duals
            return self._solvers[key](w, p, limits, mu, nu, log, sizes.priced(t, w, p))

        def search(guess: Any, w: np.ndarray, known: Any) -> tuple[SolverOutcome, float, list[Stage]]:
            """Solve programs with decreasing smoothing of contact, from a given guess.
            w are the variables at this guess, and `known` are its multipliers or None.
            """

            def stage(
                level: float, before: tuple[SolverOutcome, float] | None, last: bool
            ) -> tuple[SolverOutcome, float]:
                q, start, count = t.given_values(level, units.pull), (w, known), min(max_iterations, PATIENCE)
                if before is None and level != wide:
                    start = np.clip(self._start(guess, t, level), *limits), known
                more = {"ipopt.constr_viol_tol": CENTERED * (target or 0.0) / units.unit} if last else {}
                if before is not None:
                    more |= BETWEEN
                    outcome, last_level = before
                    duals = (
                        outcome.mu,
                        self._bounds_duals(t, outcome, t.given_values(last_level, units.pull)),
                    )
                    start, count = (outcome.w, duals), BUDGET
                elif known is None:
                    more |= NEAR
                outcome = one(q, *start, tolerance if last else max(LOOSE, tolerance), count, more)
                return outcome, float(t.program.values(outcome.w, q)[0])

            return follow(stage, target or 0.0, wide, max_iterations)

        stages: list[Stage] = []
        if target is None:
            outcome, reached = one(p, w, known, tolerance, max_iterations, {}), wide
            budget, larger = max_iterations - outcome.iterations, sizes.grown(t, outcome.w)
            if outcome.status in ENDED and larger and budget > 0:
                duals = outcome.mu, self._bounds_duals(t, outcome, p)
                outcome = one(p, outcome.w, duals, tolerance, budget, {}, larger).behind(outcome)
        else:
            outcome, reached, stages = search(guess, w, known)
            for again in (True, False):  # from the end of the last search, then from the trivial guess
                if outcome.status in (Status.CONVERGED, Status.INTERRUPTED):
                    break
                other = None
                if again:
                    raw = Raw(t, outcome.w, outcome.mu, np.zeros_like(outcome.w), p, *limits, sizes)
                    previous = solution(self, raw, outcome, History.of(log.records), stages, units.pull)
                    other = [part.trajectory for part in previous.phases]
                retry = search(other, np.clip(self._start(other, t, wide), *limits), None)
                stages += retry[2]
                if retry[0].status is Status.CONVERGED or retry[1] < reached:
                    outcome, reached = retry[:2]
            outcome = replace(outcome, iterations=sum(s.iterations for s in stages))
            p = t.given_values(reached, units.pull)
        raw = Raw(t, outcome.w, outcome.mu, self._bounds_duals(t, outcome, p), p, *limits, sizes)
        result = solution(self, raw, outcome, History.of(log.records), stages, units.pull)
        return finished(result, None, monitor, raise_on_failure)

    @staticmethod
    def _bounds_duals(t: Transcription, outcome: SolverOutcome, p: np.ndarray) -> np.ndarray:
        """Return the bound multipliers for which the Lagrangian is stationary."""
        gradient = np.asarray(t.program.grad_f(outcome.w, p)[1]).ravel()
        return -(gradient + t.program.jac_g(outcome.w, p)[1].sparse().T @ outcome.mu)

    def refined(self, factor: int) -> Problem:
        """Return this problem with `factor` times as many steps over the same duration."""
        factor = as_count(factor, "factor")
        return Problem([phase.refined(factor) for phase in self.phases], self.jumps)

    @property
    def costs(self) -> list[Cost | None]:
        """Cost of each phase; None for a phase without a cost."""
        return [phase.cost for phase in self.phases]

    def refine(self, result: Result, factor: int, **options: Any) -> Result:
        """Solve the problem with `factor` times as many steps, starting from a result."""
        return self.refined(factor).solve(result, **options)

    def sensitivity(self, result: Result) -> Sensitivity:
        """Return the derivatives of an optimal solution with respect to parameters."""
        r = result.raw
        return sensitivity(r.transcription, r.w, r.mu, r.nu, r.p, (r.lower, r.upper), r.scales)

    def with_parameters(self, **values: float) -> Problem:
        """Return this problem with other values of declared parameters of its maps."""
        known = {n for phase in self.phases for n in phase.map.parameters}
        for name in values:
            if name not in known:
                raise ModelError(f"unknown parameter {name!r}; {near_misses(name, known)}")
        phases = []
        for phase in self.phases:
            phase_values = {n: v for n, v in values.items() if n in phase.map.parameters}
            phases.append(replace(phase, map=phase.map.with_parameters(**phase_values)))
        return Problem(phases, self.jumps)

    def _limited(self, i: int, phase: Phase) -> Phase:
        """Return a phase with the limits of its mechanism as additional constraints.
        Such a limit is, for example, that the gap of a contact must not be negative.
        """
        periodic = len(self.jumps) == len(self.phases)
        before, after = (
            self.maps[j % len(self.maps)].multiplier_names if 0 <= j < len(self.maps) or periodic else ()
            for j in (i - 1, i + 1)
        )
        rows = []
        for name, expression in phase.map.mechanism.limits().items():
            row = PathConstraint(f"{name} >= 0" if name in (phase.bounds or {}) else name, expression, 0.0)
            constraint = name.partition(".")[2]
            if not row.by_step(phase.map):
                lower = np.zeros(phase.steps + 1)
                lower[[0] * (constraint in before) + [-1] * (constraint in after)] = -np.inf
                row = replace(row, lower=lower)
            rows.append(row)
        return replace(phase, constraints=(*phase.constraints, *rows)) if rows else phase

    # -- starts ---------------------------------------------------------------------------------

    def _duals(self, guess: Any, t: Transcription) -> tuple[np.ndarray, np.ndarray] | None:
        """Return the multipliers of a guess that is a result of the same program.
        Return None for any other guess.
        """
        raw = guess.raw if isinstance(guess, Result) else None
        if raw is None or len(guess.phases) != len(self.phases):
            return None
        sizes = ((s.program.size, s.program.rows, s.form) for s in (t, raw.transcription))
        return (raw.mu.copy(), raw.nu.copy()) if len({*sizes}) == 1 else None

    def _start(self, guess: Any, t: Transcription, smoothing: float = 0.0) -> np.ndarray:
        """Return the solver's starting point: all variables, from the user's guess."""
        if isinstance(guess, Result):
            if self._duals(guess, t) is not None:
                return guess.raw.w.copy()
            guess = [part.trajectory for part in guess.phases]
        guesses = guess if isinstance(guess, list) else [guess]
        if len(guesses) == 1 and len(self.phases) > 1 and guesses[0] is None:
            guesses = [None] * len(self.phases)
        if len(guesses) != len(self.phases):
            raise ValueError(
                f"guess: got {len(guesses)} for {len(self.phases)} phases; give a list with one for each"
            )
        w = np.zeros(t.program.size)
        for item, phase, layout in zip(guesses, self.phases, t.layouts, strict=True):
            c = curve(item, phase)
            w[layout.X[layout.unknown]] = c.x[layout.unknown]
            w[layout.U], w[layout.L] = c.u, unknowns(phase, c, smoothing)
            w[layout.V[layout.V >= 0]] = quantities(phase, c.x)[layout.V >= 0]
            if layout.staged:
                w[layout.W] = c.x[1:]
            if layout.H is not None:
                w[layout.H] = c.length
        return w

    def _contact_units(self, guess: Any, t: Transcription, smoothing: float) -> ContactUnits:
        return ContactUnits.of(t, self._start(guess, t, smoothing), t.given_values(smoothing))

    def _limits(self, t: Transcription, initial: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return lower and upper bounds of all variables of the nonlinear program.
        If `initial` is given, its values replace those of the fixed components of the first state.
        """
        low, high = t.lower.copy(), t.upper.copy()
        if initial is not None:
            phase, layout = self.phases[0], t.layouts[0]
            names = phase.map.state_names
            if not isinstance(initial, Mapping):
                x = phase.map.check_state(initial, "initial state")
                initial = {n: v for n, v, fixed in zip(names, x, phase.fixed_start, strict=True) if fixed}
            for name, value in by_name(initial, names, "initial").items():
                if not phase.fixed_start[names.index(name)]:
                    raise ValueError(
                        f"initial: {name!r} is free at the start of the first phase; give it there"
                    )
                low[layout.X[0, names.index(name)]] = high[layout.X[0, names.index(name)]] = float(value)
        return low, high

    def _form(self, solver: str, form: str) -> str:
        if solver == "fatrop":
            self._check_staged()
            if form == "positions":
                raise ValueError("form: FATROP's stages are states; use form='states', or 'ipopt'")
            return "staged"
        f = next((p.map for p in self.phases if not p.equations.eliminated), None)
        if form == "positions" and f is not None:
            raise ValueError(
                f"form: no row of the residual of {type(f).__name__} gives a part of the next state by "
                "the rest of both states, so nothing can be eliminated; use form='states'"
            )
        return form

    def _check_staged(self) -> None:
        reasons = [
            (len(self.phases) > 1, "several phases"),
            (any(p.shifts for p in self.phases) or bool(self.jumps), "periodic states"),
            (any(p.rate_limits for p in self.phases), "rate limits"),
        ]
        for bad, what in reasons:
            if bad:
                raise ValueError(f"solver: FATROP takes one chain of steps, no {what}; use 'ipopt'")

    def _check_finite(self, t: Transcription, w: np.ndarray, p: np.ndarray) -> None:
        """Raise OptimizationError if cost or constraints are not finite at the guess."""
        values = np.concatenate([np.asarray(v).ravel() for v in t.program.values(w, p)])
        if np.isfinite(values).all():
            return
        for block in t.program.blocks:
            place = _first_bad(block, w, p)
            if place is not None:
                what, k = place
                raise OptimizationError(
                    f"{what} is not finite at the guess, at k = {k} of phase {block.phase}, unknowns "
                    f"{w[block.index[list(block.samples).index(k)]]}; give a guess inside its domain"
                )


def _first_bad(block: FunctionBlock, w: np.ndarray, p: np.ndarray) -> tuple[str, int] | None:
    cost, rows = block.values(w, p)
    bad = np.flatnonzero(~np.isfinite(cost))
    if len(bad):
        return "the cost", int(block.samples[bad[0]])
    wrong = np.argwhere(~np.isfinite(rows))
    if len(wrong):
        return block.names[wrong[0][1]], int(block.samples[wrong[0][0]])
    return None


def translated(settings: Mapping[str, Any], solver: str) -> dict[str, Any]:
    """Convert options of IPOPT to options of another solver.
    Options that the other solver does not have are dropped.
    """
    names = [n for n in settings if solver == "ipopt" or n.partition(".")[2] in OF_FATROP]
    return {f"{solver}.{n.partition('.')[2]}": settings[n] for n in names} if solver != "sqp" else {}


def solve(f: OneStepMap, cost: Cost | None, guess: Any = None, *, steps: int, **options: Any) -> Result:
    """Solve an optimal control problem of one phase as a nonlinear program.

    Parameters
    ----------
    f : OneStepMap
    cost : Cost or None
        None asks for any motion within the limits.
    steps, initial, final, bounds, constraints, rate, periodic, duration, quadrature, k0, name
        The problem, see `Phase`; k0 defaults to the first step of a guess that is a motion, by its time.
    guess, solver, form, tolerance, max_iterations, options, monitor, raise_on_failure, smoothing
        See `Problem.solve`.

    Raises
    ------
    TypeError
        Unknown options.
    ValueError, OptimizationError, KeyboardInterrupt
        As `Phase` and `Problem.solve`.

    Examples
    --------
    >>> best = solve(f, cost, steps=200, initial=hanging, final=upright, bounds={"u.force": 20.0})
    """
    unknown = [n for n in options if n not in (*OF_PHASE, *OF_SOLVER)]
    if unknown:
        raise TypeError(
            f"dmoc.solve: unknown option {unknown[0]!r}; {near_misses(unknown[0], (*OF_PHASE, *OF_SOLVER))}"
        )
    how = {n: options.pop(n) for n in OF_SOLVER if n in options}
    phase = Phase(f, steps, cost, **options)
    if "k0" not in options and (k0 := first_step(guess, phase)):
        phase = replace(phase, k0=k0)
    return Problem(phase).solve(guess, **how)


def minimum_time(f: OneStepMap, weight: float = 1.0) -> Cost:
    """Return a cost for minimum time: a weight times the duration in s.

    The phase needs ``duration=(low, high)``.

    Examples
    --------
    >>> best = solve(f, minimum_time(f), steps=50, initial=x0, final=x1, duration=(0.5, 5), bounds=limits)
    """
    return Cost(f, ca.SX(weight), per_time=True)
