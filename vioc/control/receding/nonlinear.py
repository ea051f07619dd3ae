"""Nonlinear model predictive control (MPC) by real-time iteration.

At sample k the last plan is shifted and linearized (`prepare`); then the quadratic program for deviations
from the plan is solved for the measured state (`feedback`). Maths: docs/maths/receding.md.
"""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from vioc.checks import as_count, as_value
from vioc.control.control_problem import Problem
from vioc.control.problem.limits import PathConstraint
from vioc.control.problem.status import Status
from vioc.control.receding.program import Plan, Prepared, RecedingProgram
from vioc.control.receding.stage_qp import ITERATIONS, TOLERANCE
from vioc.control.regulators.law import Law, as_law
from vioc.control.regulators.lqr import SteadyRegulator
from vioc.errors import OptimizationError, StartOutside, StepError, trying
from vioc.runs.given import inputs_of
from vioc.runs.steps import check_steps

GOOD = Status.CONVERGED, Status.ACCEPTABLE


class Verdict(NamedTuple):
    """Outcome of one sample of nonlinear MPC.
    It contains solver status, iterations, time, and the largest defect of the plan.

    Attributes
    ----------
    k : int
    status : Status
        Status of the sample's program: "converged"; "acceptable"; "late"; "infeasible" and others, whose
        solution is not used.
    fallback : bool
        True if the input came from the fallback law or, without one, from the last plan.
    iterations : int
        Iterations of the interior-point method.
    seconds : float
        Duration of the feedback phase, by the law's clock.
    gap : float
        Largest defect of the plan's dynamics before the program is solved; the solution removes it to first
        order.
    note : str
    """

    k: int
    status: Status
    fallback: bool
    iterations: int
    seconds: float
    gap: float
    note: str = ""


@dataclass(frozen=True)
class Memory:
    """Memory of nonlinear MPC between samples.
    It contains the plan, computed inputs that act later because of a delay, and the outcomes of past samples.

    Attributes
    ----------
    plan : Plan
        Plan from the next sample on.
    coming : Plan or None
        Plan, from the next sample on, of an earlier program whose solution was late.
    pending : tuple of (nu,)
        Inputs that were computed and do not act yet, with a delay.
    busy : float
        Sample at which `coming` is available.
    verdicts : tuple of Verdict
    """

    plan: Plan | None = None
    coming: Plan | None = None
    pending: tuple[np.ndarray, ...] = ()
    busy: float = -np.inf
    verdicts: tuple[Verdict, ...] = ()

    @property
    def counts(self) -> dict[str, int]:
        """Number of samples that ended with each solver status."""
        return dict(Counter(v.status.value for v in self.verdicts))


class NonlinearMPC(Law):
    """Nonlinear model predictive controller with one or a few Newton steps per sample.

    The applied input is the first input of the plan.

    Parameters
    ----------
    problem : Problem
        Problem over the horizon: cost, bounds, constraints and end conditions. The cost's references are
        indexed by samples of the run, and the last one is repeated: they may be longer than the horizon.
    guess : as `Problem.solve`, optional
        Guess for the first plan, which solves the problem from the first state and sample; default the
        constant state.
    soft : dict, optional
        Limits by name that may be exceeded, with their weights (linear, square): a violation e costs
        linear e + 1/2 square e^2 per sample; one number is both. Other limits are hard.
    horizon : callable or "shrink", optional
        ``horizon(k)`` is the number of steps of the plan at sample k, at most those of the problem; end
        conditions hold at the end of the plan. "shrink" drops past steps: the end of the problem is fixed in
        time, and the law ends there.
    delay : int
        Samples until an input acts: plans begin at the state predicted with the pending inputs.
    newton : int
        Newton steps per sample.
    hessian : {"gauss-newton", "exact"}
    fallback : law, optional
        Law that gives the input if the program has no solution or is late; default: the last plan continues.
    deadline : float, optional
        Time limit of the feedback phase, s. A solution that takes longer is late; it is used from the sample
        at which it is available.
    clock : callable
        Function that returns a time, s, to measure the feedback phase.
    max_iterations, tolerance
        Limits of the interior-point method, as in `StageQP.solve`. With a tolerance of 0 every sample takes
        exactly `max_iterations` iterations, and the same time.
    first : int
        Largest number of iterations for the first plan.
    native : bool, optional
        Solve the programs in C; default if the map's backend compiles.

    Attributes
    ----------
    program : RecedingProgram
    layout : Layout
        Sizes of the quadratic programs.

    Raises
    ------
    ValueError, TypeError
        Inconsistent arguments: unknown limits in `soft`, a problem with a free duration.

    Examples
    --------
    >>> problem = Problem(f, quadratic(f, Q=Q, R=R, Qf=loop.P), 40, bounds={"u.force": 80})
    >>> run = ClosedLoop(f, NonlinearMPC(problem)).simulate(hanging, 200)
    >>> run.memory.counts
    """

    def __init__(
        self,
        problem: Problem,
        guess: Any = None,
        *,
        soft: Mapping[str, Any] | None = None,
        horizon: Callable[[int], int] | str | None = None,
        delay: int = 0,
        newton: int = 1,
        hessian: str = "gauss-newton",
        fallback: Any = None,
        deadline: float | None = None,
        clock: Callable[[], float] = time.perf_counter,
        max_iterations: int = ITERATIONS,
        tolerance: float = TOLERANCE,
        first: int = 300,
        native: bool | None = None,
    ):
        if not isinstance(problem, Problem):
            raise TypeError(f"problem: expected a vioc.control.Problem, got {type(problem).__name__}")
        if hessian not in ("gauss-newton", "exact"):
            raise ValueError(f"hessian: expected 'gauss-newton' or 'exact', got {hessian!r}")
        if horizon is not None and horizon != "shrink" and not callable(horizon):
            raise ValueError(f"horizon: expected a function of the sample or 'shrink', got {horizon!r}")
        if delay != int(delay) or delay < 0 or newton != int(newton) or newton < 1:
            raise ValueError(f"expected delay >= 0 and newton >= 1 whole numbers, got {delay!r}, {newton!r}")
        if deadline is not None and not 0 < deadline <= problem.map.dt:
            raise ValueError(
                f"deadline: expected a part of the sample, 0 < s <= {problem.map.dt:g} s, got {deadline!r}"
            )
        self.map, self.problem, self.guess = problem.map, problem, guess
        if not problem.unknowns.span:
            check_steps(problem.lengths, self.map.dt, "problem")
        native = self.map.backend.name != "virtual" if native is None else native
        self.program = RecedingProgram(problem, soft, hessian == "exact", native=native)
        self.horizon, self.delay, self.newton = horizon, int(delay), int(newton)
        self.fallback = None if fallback is None else as_law(fallback)
        check_steps(getattr(self.fallback, "map", self.map).dt, self.map.dt, "fallback", "the problem")
        self.deadline, self.clock, self.first = deadline, clock, first
        self.max_iterations = as_count(max_iterations, "max_iterations")
        self.tolerance = as_value(tolerance, "tolerance")
        if not self.tolerance >= 0:
            raise ValueError(f"tolerance: expected a number >= 0, got {tolerance!r}")

    # -- feedback law ---------------------------------------------------------------------------

    def start(self) -> Memory:
        return Memory()

    def apply(self, k: int, x: np.ndarray, memory: Memory) -> tuple[np.ndarray, Memory]:
        """Return the input of sample k, and the memory for the next sample."""
        pending = memory.pending or (self.map.rest_input(x),) * self.delay
        sample, note = k + self.delay, ""
        if pending:  # predict the state at which the input will act
            with trying():
                x = self.map.rollout(x, np.array(pending), k0=k).x[-1]
        if self.horizon == "shrink" and self.fallback is not None and sample >= self._end:
            u = np.asarray(self.fallback(sample, x), float)
            pending = (*pending, u)[1:] if self.delay else ()
            return u, replace(memory, plan=None, coming=None, pending=pending)
        plan, coming, busy = memory.plan, memory.coming, memory.busy
        if coming is not None and k >= busy:
            plan, coming = coming, None
        if plan is None:
            plan, note = self.begin(sample, x)
        plan = self._fitted(plan, sample, x)
        status, solution, seconds, count, gap = Status.LATE, None, 0.0, 0, 0.0
        if k >= busy:
            try:
                prepared = self.prepare(sample, plan)
                gap = float(np.abs(prepared.blocks.c).max(initial=0))
                before = self.clock()
                solution, answer = self.feedback(prepared, x)
                for _ in range(1, self.newton):
                    if answer.status in GOOD:
                        solution, answer = self.feedback(self.prepare(sample, solution), x)
                seconds, status, count = self.clock() - before, answer.status, answer.iterations
                if not (np.isfinite(solution.x).all() and np.isfinite(solution.u).all()):
                    status = Status.NOT_FINITE
            except (OptimizationError, StepError) as error:
                status, note = Status.FAILED, str(error)
            if status not in GOOD:
                solution = None
            elif self.deadline is not None and seconds > self.deadline:
                status, coming, busy, solution = Status.LATE, solution, k + seconds / self.map.dt, None
        if solution is not None:
            plan, u = solution, solution.u[0]
        else:
            u = plan.u[0] if self.fallback is None else np.asarray(self.fallback(sample, x), float)
        u = self.program.clipped(u, self.steps(sample)[0])
        verdict = Verdict(k, status, solution is None, count, seconds, gap, note)
        pending = (*pending, u)[1:] if self.delay else ()
        plan, coming = self._shifted(plan), None if coming is None else self._shifted(coming)
        return u, Memory(plan, coming, pending, busy, (*memory.verdicts, verdict))

    def shifted(self, k: int, plan: Plan) -> Plan:
        """Return the initial guess of the plan at sample k, from the previous plan.
        The first step of the previous plan is removed, and its end is extended or shortened to the horizon.
        """
        rest = self._shifted(plan)
        return self._fitted(rest, k, rest.x[0])

    def _shifted(self, plan: Plan) -> Plan:
        """Return the plan without its first step."""
        return Plan(plan.x[1:], plan.u[1:], plan.p[1:], plan.y[self.problem.rows.m :])

    def _fitted(self, plan: Plan, k: int, x: np.ndarray) -> Plan:
        """Return the plan, shortened or extended to the horizon of sample k.
        Additional steps repeat the last input.
        """
        n, m = self.steps(k)[1], self.problem.rows.m
        X, U, p, y = plan.x[: n + 1], plan.u[:n], plan.p[: n + 1], plan.y
        path, end = y[: len(plan.u) * m].reshape(len(plan.u), m)[:n], y[len(plan.u) * m :]
        if not len(U):
            X, U = np.vstack([x, x]), self.map.rest_input(x)[None]
            p, path = np.zeros((2, self.map.ndx)), np.zeros((1, m))
        if extra := n - len(U):
            try:
                with trying():
                    ahead = self.map.rollout(X[-1], np.tile(U[-1], (extra, 1)), k0=k + len(U)).x[1:]
            except StepError:
                ahead = np.tile(X[-1], (extra, 1))
            X, U, p, path = (
                np.vstack([X, ahead]),
                *(np.vstack([a, np.tile(a[-1], (extra, 1))]) for a in (U, p, path)),
            )
        return Plan(X, U, p, np.concatenate([path.ravel(), end]))

    # -- phases of a sample ---------------------------------------------------------------------

    @property
    def _end(self) -> int:
        """Sample at which the optimal control problem ends, for a shrinking horizon."""
        return self.problem.k0 + self.problem.steps

    def steps(self, k: int) -> tuple[int, int]:
        """Return the first step and the number of steps of the plan at sample k.

        The first step is counted from the beginning of the problem.
        """
        N = self.problem.steps
        if self.horizon == "shrink":
            first = k - self.problem.k0
            if not 0 <= first < N:
                raise ValueError(
                    f"horizon='shrink': the problem has samples {self.problem.k0} .. {self._end - 1}, "
                    f"asked at {k}; simulate to its end, or give a fallback law that takes over there"
                )
            return first, N - first
        n = int(self.horizon(k)) if callable(self.horizon) else N
        if not 1 <= n <= N:
            raise ValueError(f"horizon: {n} steps at sample {k}; the problem has {N}")
        return 0, n

    def begin(self, k: int, x: np.ndarray) -> tuple[Plan, str]:
        """Return the first plan, from state x at sample k, and a message.
        The message says why the optimal control problem was not solved; it is empty if it was solved.

        The plan is the problem's solution or best iterate, or a constant state if the problem is infeasible
        or x violates a limit.
        """
        first, n = self.steps(k)
        if first:
            raise ValueError(f"a horizon that shrinks begins at sample {self.problem.k0}, asked at {k} first")
        problem = self.problem.begun_at(k)
        X, U = np.tile(x, (self.problem.steps + 1, 1)), inputs_of(self.map, None, self.problem.steps, x)
        y, note = np.zeros(len(problem.rows)), ""
        try:
            result = problem.solve(x, self.guess, max_iterations=self.first, raise_on_failure=False)
            note = "" if result.converged else result.message
            if result.status is not Status.INFEASIBLE:
                X, U = result.curve or (result.x, result.u)
                y = problem.rows.from_multipliers(result.multipliers)
            elif self.fallback is None:
                message = f"sample {k}: there is no first plan, and there is no fallback law: {note}"
                warnings.warn(message, RuntimeWarning, stacklevel=4)
        except StartOutside as error:
            note = str(error)
        y = np.concatenate([y[: n * problem.rows.m], y[self.problem.steps * problem.rows.m :]])
        return Plan(X[: n + 1], U[:n], np.zeros((n + 1, self.map.ndx)), y), note

    def prepare(self, k: int, plan: Plan) -> Prepared:
        """Prepare the quadratic program of sample k, without the measured state."""
        return self.program.prepare(self.problem.stages(*self.steps(k), k), plan)

    def feedback(self, prepared: Prepared, x: np.ndarray) -> tuple[Plan, Any]:
        """Return the plan that begins at the measured state x.
        The solution of the quadratic program is returned, too.
        """
        return self.program.solve(prepared, x, max_iterations=self.max_iterations, tolerance=self.tolerance)

    def __repr__(self) -> str:
        return f"NonlinearMPC({self.problem.steps} steps ahead of {self.map!r})"


def terminal_set(regulator: SteadyRegulator, level: float) -> PathConstraint:
    """Return the terminal constraint e'Pe <= level about a regulator's equilibrium.
    The vector e is the deviation of the state from the equilibrium, and P is the regulator's cost-to-go.

    If the regulator satisfies all limits from every state of this set, it can continue every plan. Use P as
    the final weight `Qf` of the cost (`quadratic` halves both the running and the final cost).
    """
    if not isinstance(regulator, SteadyRegulator):
        raise TypeError(
            f"expected a regulator about an equilibrium, made by dlqr, got {type(regulator).__name__}"
        )
    if not level > 0:
        raise ValueError(f"level: expected a number > 0, got {level!r}")
    f = regulator.map
    e = f.space.difference_expression(ca.DM(regulator.x), f.symbols.x)
    return PathConstraint("terminal set", ca.bilin(ca.DM(regulator.P), e, e), upper=level, where="end")
