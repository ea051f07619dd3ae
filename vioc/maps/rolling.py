"""`RollingMap`: rollouts of a map by its kernel, one by one or many side by side."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import casadi as ca
import numpy as np

from vioc.compile.cores import WORTH, over_cores, workers
from vioc.compile.many import LANES, ManyProgram
from vioc.compile.programs import CHUNK, Program
from vioc.errors import StepError
from vioc.maps.batch import Runs
from vioc.maps.protocol import OneStepMap
from vioc.maps.trajectory import Trajectory
from vioc.progress import Progress

AFTER_HARD = 16  # steps in the first call of the kernel after a step that it did not solve
BLOCK = 4 * LANES  # rollouts of one block of a batch, or more where they are short:
PIECE = 1 << 14  # so many steps
LONG = 1 << 18  # steps in one call of a batch, a fraction of a second

Solved = tuple[np.ndarray, np.ndarray]  # x_next, multipliers
Map = TypeVar("Map", bound="RollingMap")


@dataclass
class Course:
    """A rollout under way.

    Attributes
    ----------
    U, k0, lengths
        Inputs, number of the first step, and step lengths, as in `OneStepMap.run`.
    X, multipliers : (N+1, nx), (N, nm)
        Written; the first row of X is the start.
    t : (N,)
        Start of each step, s.
    feedback : (N, nx) and (N, nu, ndx), or None
        Reference and gains.
    applied : (N, nu)
        Inputs: U, or written where there is feedback.
    rows : list of arrays
        Arguments of the kernel between state and parameters, a row for each step.
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


class RollingMap(OneStepMap):
    """Rollout logic of `KernelMap`, where its attributes are documented."""

    tolerance: float
    suspect: bool = False  # whether states are looked at, for they may be none of a mechanism
    _robust_kernel: ca.Function | None = None

    @property
    @abstractmethod
    def built(self) -> dict[str, Any]:
        """What all twins share."""

    def check_beginnings(self, X: np.ndarray, k: int) -> None:
        """Raise `StepError` where no rollout may start, of states X (N, nx) at the steps from k on."""
        for i, x in enumerate(X if self.suspect else ()):
            if fault := self.fault_of(x):
                raise self._of_fault(fault, k + i)

    def fault_of(self, x: np.ndarray, nearly: bool = False) -> str:
        """Why x (nx,) is no state of a mechanism, or with `nearly` hardly one; "" where it is sound."""
        return ""

    def explained(self, error: StepError, x: np.ndarray) -> StepError:
        """The error of a step from x (nx,), or one that names a fault of that state."""
        fault = self.fault_of(x, nearly=True) if self.suspect else ""
        return self._of_fault(fault, error.k) if fault else error

    def _of_fault(self, fault: str, k: int) -> StepError:
        return StepError(f"step {k}: {fault}", k, float("nan"), "indefinite M")

    @abstractmethod
    def rescued(self, x: np.ndarray, u: np.ndarray, k: int, t: float, dt: float) -> Solved:
        """Solve step k, at time t, by every means: (x_next, multipliers).

        Called for the steps that the kernel leaves: those that it did not solve, or whose root it could not
        certify. Raises `StepError` where the step does not exist.
        """

    @abstractmethod
    def _program(self, feedback: bool, robust: bool = False) -> Program:
        """The kernel, or the robust one, with or without feedback, on this map's backend."""

    @property
    def _many(self) -> ManyProgram | None:
        """The kernel for many samples side by side, if there is such a program."""
        return None

    @abstractmethod
    def _twin(self: Map) -> Map:
        """Another map that shares everything that was or will be built; copy.copy would build it again."""

    # -- one ------------------------------------------------------------------------------------

    def _steps(
        self,
        x0: np.ndarray,
        U: np.ndarray,
        k0: int,
        lengths: np.ndarray,
        reference: np.ndarray | None = None,
        gains: np.ndarray | None = None,
        t: np.ndarray | None = None,
    ) -> Course:
        """A whole rollout.

        The kernel goes as far as it solves its steps; the step that it leaves is tried by the robust kernel,
        if there is one, then handed to `rescued`. Which of them solves a step depends on the step alone.
        """
        n = len(U)
        X, multipliers = np.empty((n + 1, self.nx)), np.empty((n, len(self.multiplier_names)))
        X[0] = x0
        t = self.times(lengths, k0)[:-1] if t is None else t
        feedback = None if gains is None or reference is None else (reference, gains)
        c = Course(U, k0, lengths, X, multipliers, t, feedback)
        self.begin(c)
        k, first = 0, CHUNK
        while k < n:
            k, left = self._advance(c, False, k, n, first)
            if left is not None:
                self.overcome(c, k)
                k, first = k + 1, AFTER_HARD
        self.check_passed(c, n)
        return c

    def one(self, x: np.ndarray, u: np.ndarray, k: int, t: float, dt: float) -> Solved:
        """Step k from x under u at the time t: (x_next, multipliers), as every rollout takes it."""
        c = self._steps(x, u[None], k, np.array([dt]), t=np.array([t]))
        return c.X[1], c.multipliers[0]

    def begin(self, c: Course) -> None:
        """Raise `StepError` where it may not start."""
        try:
            self.check_beginnings(c.X[:1], c.k0)
        except StepError as error:
            raise self._failed(c, error, 0) from None

    def check_passed(self, c: Course, n: int) -> None:
        """Raise `StepError` where one of the first n steps ended in what is no state of a mechanism."""
        for k in range(1, n + 1) if self.suspect else ():
            if fault := self.fault_of(c.X[k]):
                raise self._failed(c, self._of_fault(fault, c.k0 + k), k)

    def _advance(self, c: Course, robust: bool, k: int, last: int, first: int) -> tuple[int, float | None]:
        """Steps from k by a program: the step that it came to, and its error where that is before `last`."""
        args = [*(a[k:last] for a in c.rows), self.theta]
        program = self._program(c.feedback is not None, robust)
        outputs, done, error = program.accumulate(c.X[k], args, last - k, self.nx, self.tolerance, first)
        c.X[k + 1 : k + 1 + done] = outputs[0]
        c.multipliers[k : k + done] = outputs[1]
        if c.feedback is not None:
            c.applied[k : k + done] = outputs[3]
        return k + done, error if k + done < last else None

    def take(self, c: Course, k: int) -> None:
        """Take step k of a course by itself."""
        if self._advance(c, False, k, k + 1, 1)[1] is not None:
            self.overcome(c, k)

    def attempt(self, x: np.ndarray, u: np.ndarray, t: float, dt: float) -> tuple[np.ndarray, float]:
        """End of a step by the kernel, or the robust one if there is one, and its error, certified or not."""
        args = [x, u, np.array([t]), np.array([dt]), self.theta]
        x_next, _, error = self._program(False, self._robust_kernel is not None).map(args, 1)
        return np.ravel(x_next), float(np.ravel(error)[0])

    def overcome(self, c: Course, k: int) -> None:
        """Take step k, which the kernel left."""
        if self._robust_kernel is not None and self._advance(c, True, k, k + 1, 1)[1] is None:
            return
        if c.feedback is not None:
            reference, gains = c.feedback
            c.applied[k] = c.U[k] - gains[k] @ self.difference(reference[k], c.X[k])
        try:
            step = c.X[k], c.applied[k], c.k0 + k, float(c.t[k]), float(c.lengths[k])
            c.X[k + 1], c.multipliers[k] = self.rescued(*step)
        except StepError as error:
            self.check_passed(c, k)
            raise self._failed(c, self.explained(error, c.X[k]), k) from None

    def _failed(self, c: Course, error: StepError, k: int) -> StepError:
        arrays = c.X[: k + 1].copy(), c.applied[:k].copy(), c.multipliers[:k].copy()
        error.trajectory = self._trajectory(arrays, c.k0, c.lengths[:k], c.t[:k])
        return error

    def _trajectory(
        self, arrays: tuple, k0: int, lengths: np.ndarray, begins: np.ndarray | None
    ) -> Trajectory:
        """A trajectory of states, inputs and multipliers."""
        t = self.times(lengths, k0, begins)
        return Trajectory.stepped(self, lengths, *arrays, k0=k0, t=t).on_its_step()

    # -- many -----------------------------------------------------------------------------------

    def run_many(self, runs: Runs, threads: int | None) -> bool:
        many, n = self._many, len(runs.lengths)
        if many is None or not n:
            return False
        count = len(runs.X)
        share = -(-count // ((threads or workers()) * LANES)) * LANES
        known = self.built.get("seconds a step of many", np.inf)
        least = int(WORTH / (known * n) / LANES + 1) * LANES if known < np.inf else LANES
        size = max(least, min(share, max(BLOCK, PIECE // n // LANES * LANES)))
        blocks = [np.arange(i, min(i + size, count)) for i in range(0, count, size)]

        def work(rows: np.ndarray) -> int:
            before = time.perf_counter()
            self._roll(many, runs, rows)
            each = (time.perf_counter() - before) / (len(rows) * n)
            self.built["seconds a step of many"] = min(each, self.built.get("seconds a step of many", np.inf))
            return len(rows)

        with Progress("rollouts", count, 1) as progress:
            for done in over_cores(work, blocks, threads):
                progress.advance(done)
        return True

    def _roll(self, many: ManyProgram, runs: Runs, rows: np.ndarray) -> None:
        """Some of many, side by side until each comes to a step that the kernel leaves."""
        X, n, h = runs.X, len(runs.lengths), runs.lengths
        t = self.times(h, runs.k0)[:-1]
        known: dict[int, tuple[RollingMap, Course]] = {}

        def alone(i: int) -> tuple[RollingMap, Course]:
            if i not in known:
                f = self.trying(**runs.parameters_of(i)) if runs.parameters else self
                course = Course(runs.U[i], runs.k0, h, X[i], runs.multipliers[i], t)
                known[i] = f, course  # type: ignore[assignment]
            return known[i]

        def begins(i: int) -> bool:
            f, course = alone(i)
            try:
                f.begin(course)
            except StepError as error:
                runs.errors[i] = error
            return i not in runs.errors

        if self.suspect:  # each is looked at, with its own parameters
            rows = rows[[begins(int(i)) for i in rows]]
        else:
            try:
                self._with_rows(runs.parameters, rows).check_beginnings(X[rows, 0], runs.k0)
            except StepError:
                rows = rows[[begins(int(i)) for i in rows]]
        tried, at = rows, np.zeros(len(rows), np.int64)
        while len(rows):
            f = self._with_rows(runs.parameters, rows)
            given = runs.U, t, h, np.broadcast_to(f.theta, (len(rows), len(f.parameters)))
            _advanced(many, rows, given, at, self.tolerance, X, runs.multipliers)
            left: list[tuple[int, int]] = []
            for j in map(int, np.flatnonzero(at < n)):
                i, k = int(rows[j]), int(at[j])
                g, course = alone(i)
                try:
                    g.take(course, k)
                    left += [(i, k + 1)] * (k + 1 < n)
                except StepError as error:
                    runs.errors[i] = error
            rows, at = (np.array([p[m] for p in left], np.int64) for m in (0, 1))
        for i in (i for i in map(int, tried) if self.suspect and i not in runs.errors):
            f, course = alone(i)
            try:
                f.check_passed(course, n)
            except StepError as error:
                runs.errors[i] = error

    def _with_rows(self: Map, parameters: Mapping[str, np.ndarray], rows: np.ndarray) -> Map:
        """This map with a row of `theta` for each of some samples."""
        if not parameters:
            return self
        result = self._twin()
        for_all = {name: np.full(len(rows), value) for name, value in self.parameters.items()}
        result.parameters = {**for_all, **{name: values[rows] for name, values in parameters.items()}}  # type: ignore[dict-item]
        return result


def _advanced(many: ManyProgram, rows, given, at, tolerance, X, multipliers):
    """`ManyProgram.accumulate` to the end, in calls that Ctrl-C comes between."""
    n, going = multipliers.shape[1], np.arange(len(rows))
    (*given, theta), piece = given, max(1, LONG // len(rows))
    for end in [*range(piece, n, piece), n]:
        came = at[going]
        many.accumulate(rows[going], (*given, theta[going]), came, end, tolerance, X, multipliers)
        at[going] = came
        going = going[came >= end]
