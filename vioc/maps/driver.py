"""Rollouts of a map by its step solver: a single rollout, or many in parallel.

The kernel, a CasADi function, takes one step after another until it fails to solve a step. Such a step is
tried by the robust kernel, if there is one, then by `StepSolver.rescued`; after it the kernel continues.
Which of them solves a step depends on that step alone.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from vioc.compile.cores import WORTH, over_cores, shares, workers
from vioc.compile.many import LANES, ManyProgram
from vioc.compile.programs import CHUNK, Program
from vioc.errors import ChartWarning, StepError
from vioc.maps.derivatives import Steps
from vioc.maps.twins import twin
from vioc.progress import Progress
from vioc.runs.batch import Runs
from vioc.runs.trajectory import Trajectory

if TYPE_CHECKING:
    from vioc.maps.kernel import KernelMap, Solved

AFTER_HARD = 16  # steps in the first call of the kernel after a step that it did not solve
BLOCK = 4 * LANES  # least number of rollouts in a block of a batch
PIECE = 1 << 14  # steps of a block, which has more rollouts if they are short
LONG = 1 << 18  # steps in one call of a batch, a fraction of a second


@dataclass
class Course:
    """Data of a rollout in progress: its inputs and times, and the states computed so far.

    Attributes
    ----------
    U, k0, lengths
        Inputs, index of the first step, and step lengths, as in `OneStepMap.run`.
    X, multipliers : (N+1, nx), (N, nm)
        Results; the first row of X is the start.
    t : (N,)
        Start of each step, s.
    feedback : (N, nx) and (N, nu, ndx), or None
        Reference and gains.
    applied : (N, nu)
        Applied inputs: U, or with feedback a result.
    rows : list of arrays
        Arguments of the kernel between state and parameters, one row per step.
    """

    U: np.ndarray
    k0: int
    lengths: np.ndarray
    X: np.ndarray
    multipliers: np.ndarray
    t: np.ndarray
    feedback: tuple[np.ndarray, np.ndarray] | None = None
    applied: np.ndarray = field(init=False)
    rows: list[np.ndarray] = field(init=False)

    def __post_init__(self):
        self.applied, rows = self.U, [self.U]
        if self.feedback is not None:
            reference, gains = self.feedback
            self.applied = np.empty_like(self.U)
            rows += [reference, np.swapaxes(gains, 1, 2).reshape(len(gains), -1)]
        rows = [np.ascontiguousarray(a) for a in (*rows, self.t, self.lengths)]
        self.rows = [a if a.ndim == 2 else a[:, None] for a in rows]


class Driver:
    """Rollout program that solves every step with a fast solver.
    If the fast solver fails in a step, slower and more robust solvers solve this step.

    Parameters
    ----------
    f : KernelMap
    """

    def __init__(self, f: KernelMap):
        self._f, self._solver = f, f.step_solver

    # -- states -----------------------------------------------------------------------------------

    def check_starts(self, X: np.ndarray, k: int) -> None:
        """Raise `StepError` if a step cannot start in one of the states X (N, nx).
        The states X are the initial states of the steps from k on. For example, constraints whose gradients
        are linearly dependent make a state invalid.
        """
        if (fault_of := self._solver.fault_of) is not None:
            for i, x in enumerate(X):
                if fault := fault_of(x, False):
                    raise _of_fault(fault, k + i)
        self._solver.check(X, k)

    def begin(self, c: Course) -> None:
        """Raise `StepError` if the initial state of the rollout is not a valid initial state of a step."""
        try:
            self.check_starts(c.X[:1], c.k0)
        except StepError as error:
            raise self._failed(c, error, 0) from None

    def check_passed(self, c: Course, n: int) -> None:
        """Raise `StepError` if a step cannot start in the state in which one of the first n steps ended.
        For example, no step can start where the gradients of constraints are linearly dependent.
        """
        if (fault_of := self._solver.fault_of) is not None:
            for k in range(1, n + 1):
                if fault := fault_of(c.X[k], False):
                    raise self._failed(c, _of_fault(fault, c.k0 + k), k)

    def _explained(self, error: StepError, x: np.ndarray) -> StepError:
        """Return the exception of a failed step, or a clearer exception if the initial state is the cause."""
        fault = "" if self._solver.fault_of is None else self._solver.fault_of(x, True)
        return _of_fault(fault, error.k) if fault else error

    # -- one ------------------------------------------------------------------------------------

    def course(
        self,
        x0: np.ndarray,
        U: np.ndarray,
        k0: int,
        lengths: np.ndarray,
        reference: np.ndarray | None = None,
        gains: np.ndarray | None = None,
        t: np.ndarray | None = None,
    ) -> Course:
        """Compute a rollout with given inputs or with feedback, and return its data.

        The arguments are those of `OneStepMap.run`.
        """
        f, n = self._f, len(U)
        X, multipliers = np.empty((n + 1, f.nx)), np.empty((n, len(f.multiplier_names)))
        X[0] = x0
        t = f.times(lengths, k0)[:-1] if t is None else t
        feedback = None if gains is None or reference is None else (reference, gains)
        c = Course(U, k0, lengths, X, multipliers, t, feedback)
        self.begin(c)
        k, first = 0, CHUNK
        while k < n:
            k, failure = self._advance(c, self._solver.program, k, n, first)
            if failure is not None:
                self._overcome(c, k)
                k, first = k + 1, AFTER_HARD
        self.check_passed(c, n)
        return c

    def run(
        self, x0: np.ndarray, U: np.ndarray, k0: int, lengths: np.ndarray, X: Any, K: Any, t: Any
    ) -> Trajectory:
        """Compute a rollout with the inputs U, or with feedback, and return it as a trajectory.
        The feedback adds -K[k] difference(X[k], x[k]) to the input U[k].

        It is `OneStepMap.run` of the map.
        """
        c = self.course(x0, U, k0, lengths, X, K, t)
        return self._trajectory((c.X, c.applied, c.multipliers), k0, lengths, t)

    def one(self, x: np.ndarray, u: np.ndarray, k: int, t: float, dt: float) -> Solved:
        """Take step k from the state x under the input u at time t; a rollout gives bitwise the same result.

        Returns (x_next, multipliers).
        """
        c = self.course(x, u[None], k, np.array([dt]), t=np.array([t]))
        return c.X[1], c.multipliers[0]

    def take(self, c: Course, k: int) -> None:
        """Take one step of a rollout, and store its result in the data of the rollout."""
        if self._advance(c, self._solver.program, k, k + 1, 1)[1] is not None:
            self._overcome(c, k)

    def attempt(self, x: np.ndarray, u: np.ndarray, t: float, dt: float) -> tuple[np.ndarray, float]:
        """Return the next state that the step solver computes, and an error measure of this solution.
        The measure is the relative size of the last Newton correction. It is at least 1 if the solver cannot
        prove that the solution is the physical one; no exception is raised in this case.

        The robust kernel is used if there is one.
        """
        args = [x, u, np.array([t]), np.array([dt]), self._f.theta]
        program = self._solver.robust(False) or self._solver.program(False)
        x_next, _, error = program.map(args, 1)
        return np.ravel(x_next), float(np.ravel(error)[0])

    def _advance(self, c: Course, solve: Any, k: int, last: int, first: int) -> tuple[int, float | None]:
        """Take steps of a rollout with the solver `solve`, from step k until it fails or reaches step `last`.
        Return the index of the step that was reached, and the error measure of a failed step.

        The measure is None if the step `last` was reached. Without a program no step is taken.
        """
        program: Program | None = solve(c.feedback is not None)
        if program is None:
            return k, np.inf
        f, args = self._f, [*(a[k:last] for a in c.rows), self._f.theta]
        outputs, done, error = program.accumulate(c.X[k], args, last - k, f.nx, f.tolerance, first)
        c.X[k + 1 : k + 1 + done] = outputs[0]
        c.multipliers[k : k + done] = outputs[1]
        if c.feedback is not None:
            c.applied[k : k + done] = outputs[3]
        return k + done, error if k + done < last else None

    def _overcome(self, c: Course, k: int) -> None:
        """Take step k of a rollout with slower solvers, after the fast solver failed."""
        if self._advance(c, self._solver.robust, k, k + 1, 1)[1] is None:
            return
        if c.feedback is not None:
            reference, gains = c.feedback
            c.applied[k] = c.U[k] - gains[k] @ self._f.difference(reference[k], c.X[k])
        try:
            step = c.X[k], c.applied[k], c.k0 + k, float(c.t[k]), float(c.lengths[k])
            c.X[k + 1], c.multipliers[k] = self._solver.rescued(*step)
        except StepError as error:
            self.check_passed(c, k)
            raise self._failed(c, self._explained(error, c.X[k]), k) from None

    def _failed(self, c: Course, error: StepError, k: int) -> StepError:
        arrays = c.X[: k + 1].copy(), c.applied[:k].copy(), c.multipliers[:k].copy()
        error.trajectory = self._trajectory(arrays, c.k0, c.lengths[:k], c.t[:k])
        return error

    def _trajectory(
        self, arrays: tuple, k0: int, lengths: np.ndarray, starts: np.ndarray | None
    ) -> Trajectory:
        """Return the trajectory with the states, inputs and multipliers in `arrays`."""
        t = self._f.times(lengths, k0, starts)
        return Trajectory.stepped(self._f, lengths, *arrays, k0=k0, t=t).on_its_step()

    # -- independent steps ------------------------------------------------------------------------

    def steps_at(self, X: np.ndarray, U: np.ndarray, k0: int, h: np.ndarray, t: np.ndarray) -> Steps:
        """Take one step from each of N states X under the inputs U.

        It is `OneStepMap.steps_at` of the map.
        """
        f, n = self._f, len(U)
        self.check_starts(X, k0)
        after, multipliers = np.empty_like(X), np.empty((n, len(f.multiplier_names)))
        unsolved = np.empty(n, bool)

        def solve(rows: Any, program: Program) -> None:
            x = X[rows]
            args = [x, U[rows], t[rows, None], h[rows, None], f.theta]
            states, impulses, error, *_ = program.map(args, len(x))
            ends = states.reshape(x.shape)
            after[rows], multipliers[rows] = ends, impulses.reshape(len(x), -1)
            good = (error.ravel() <= f.tolerance) & np.isfinite(ends).all(axis=1)  # false for NaN
            unsolved[rows] = ~good

        def timed(rows: slice) -> None:
            before = time.perf_counter()
            solve(rows, self._solver.program(False))
            each = (time.perf_counter() - before) / (rows.stop - rows.start)
            f.built["seconds a step"] = min(f.built.get("seconds a step", np.inf), each)

        known = f.built.get("seconds a step", np.inf)  # first one thread builds what all threads share
        pieces = shares(n, int(WORTH / known) + 1) if known < np.inf else [slice(0, n)]
        if n:
            for _ in over_cores(timed, pieces):
                pass
        if unsolved.any() and (robust := self._solver.robust(False)) is not None:
            solve(np.flatnonzero(unsolved), robust)
        if unsolved.any():
            with warnings.catch_warnings():  # about singular steps, for which derivatives raise
                warnings.simplefilter("ignore", ChartWarning)
                for i in map(int, np.flatnonzero(unsolved)):
                    step = X[i], U[i], k0 + i, float(t[i]), float(h[i])
                    try:
                        after[i], multipliers[i] = self._solver.rescued(*step)
                    except StepError as error:
                        raise self._explained(error, X[i]) from None
        return Steps(X, after, U, multipliers, t, h, k0 + np.arange(n))

    # -- many -----------------------------------------------------------------------------------

    def run_many(self, runs: Runs, threads: int | None) -> bool:
        """Compute many rollouts in parallel; return False if the map has no compiled program for this."""
        f, many, n = self._f, self._solver.many(), len(runs.lengths)
        if many is None or not n:
            return False
        count = len(runs.X)
        share = -(-count // ((threads or workers()) * LANES)) * LANES
        known = f.built.get("seconds a step of many", np.inf)
        least = int(WORTH / (known * n) / LANES + 1) * LANES if known < np.inf else LANES
        size = max(least, min(share, max(BLOCK, PIECE // n // LANES * LANES)))
        blocks = [np.arange(i, min(i + size, count)) for i in range(0, count, size)]

        def work(rows: np.ndarray) -> int:
            before = time.perf_counter()
            self._roll(many, runs, rows)
            each = (time.perf_counter() - before) / (len(rows) * n)
            f.built["seconds a step of many"] = min(each, f.built.get("seconds a step of many", np.inf))
            return len(rows)

        with Progress("rollouts", count, 1) as progress:
            for done in over_cores(work, blocks, threads):
                progress.advance(done)
        return True

    def _roll(self, many: ManyProgram, runs: Runs, rows: np.ndarray) -> None:
        """Compute the rollouts `rows` in parallel, with slower solvers for single steps that need them."""
        X, n, h = runs.X, len(runs.lengths), runs.lengths
        t, looked_at = self._f.times(h, runs.k0)[:-1], self._solver.fault_of is not None
        known: dict[int, tuple[Driver, Course]] = {}

        def single(i: int) -> tuple[Driver, Course]:
            if i not in known:
                f = self._f.trying(**runs.parameters_of(i)) if runs.parameters else self._f
                known[i] = f.driver, Course(runs.U[i], runs.k0, h, X[i], runs.multipliers[i], t)
            return known[i]

        def begins(i: int) -> bool:
            driver, course = single(i)
            try:
                driver.begin(course)
            except StepError as error:
                runs.errors[i] = error
            return i not in runs.errors

        if looked_at:  # each with its parameters
            rows = rows[[begins(int(i)) for i in rows]]
        else:
            try:
                _with_rows(self._f, runs.parameters, rows).driver.check_starts(X[rows, 0], runs.k0)
            except StepError:
                rows = rows[[begins(int(i)) for i in rows]]
        all_rows, next_steps = rows, np.zeros(len(rows), np.int64)
        while len(rows):
            f = _with_rows(self._f, runs.parameters, rows)
            given = runs.U, t, h, np.broadcast_to(f.theta, (len(rows), len(f.parameters)))
            _advanced(many, rows, given, next_steps, f.tolerance, X, runs.multipliers)
            pending: list[tuple[int, int]] = []
            for j in map(int, np.flatnonzero(next_steps < n)):
                i, k = int(rows[j]), int(next_steps[j])
                driver, course = single(i)
                try:
                    driver.take(course, k)
                    pending += [(i, k + 1)] * (k + 1 < n)
                except StepError as error:
                    runs.errors[i] = error
            rows, next_steps = (np.array([p[m] for p in pending], np.int64) for m in (0, 1))
        for i in (i for i in map(int, all_rows) if looked_at and i not in runs.errors):
            driver, course = single(i)
            try:
                driver.check_passed(course, n)
            except StepError as error:
                runs.errors[i] = error


def _of_fault(fault: str, k: int) -> StepError:
    return StepError(f"step {k}: {fault}", k, float("nan"), "indefinite M")


def _with_rows(f: KernelMap, parameters: Mapping[str, np.ndarray], rows: np.ndarray) -> KernelMap:
    """Return a copy of a map whose parameter values are arrays, with one value for each rollout.
    The rollouts are those with the indices `rows`.
    """
    if not parameters:
        return f
    result = twin(f)
    for_all = {name: np.full(len(rows), value) for name, value in f.parameters.items()}
    result.parameters = {**for_all, **{name: values[rows] for name, values in parameters.items()}}  # type: ignore[dict-item]
    return result


def _advanced(many: ManyProgram, rows, given, next_steps, tolerance, X, multipliers):
    """Continue many rollouts by the compiled program `many`.
    A rollout ends with its last step, or before a step that cannot be solved. The program is called for a
    few steps at a time, so that Ctrl-C can interrupt the work between two calls.

    Calls `ManyProgram.accumulate`.
    """
    n, going = multipliers.shape[1], np.arange(len(rows))
    (*given, theta), piece = given, max(1, LONG // len(rows))
    for end in [*range(piece, n, piece), n]:
        positions = next_steps[going]
        many.accumulate(rows[going], (*given, theta[going]), positions, end, tolerance, X, multipliers)
        next_steps[going] = positions
        going = going[positions >= end]
