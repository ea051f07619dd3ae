"""`RollingMap`: rollouts by a kernel, and over steps that are hard to solve; one, or many side by side."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeVar

import casadi as ca
import numpy as np

from vioc.compile.cores import WORTH, over_cores, workers
from vioc.compile.many import LANES, ManyProgram
from vioc.compile.programs import CHUNK, Program
from vioc.errors import StepError, trying
from vioc.maps.batch import Runs
from vioc.maps.protocol import OneStepMap, Rescue
from vioc.maps.trajectory import Split, Trajectory
from vioc.progress import Progress

AFTER_RESCUE = 16  # steps tried at once behind one that was hard to solve
HISTORY = 3  # states before the first one that a carry may be made of
BLOCK = 4 * LANES  # of many rollouts these are made and looked at together, or more of few steps:
PIECE = 1 << 14  # so many steps
LONG = 1 << 18  # steps in one call, a fraction of a second

Step = tuple[np.ndarray, np.ndarray, int, float, float]  # x, u, k, t, dt
Solved = tuple[np.ndarray, np.ndarray]  # x_next, multipliers
Map = TypeVar("Map", bound="RollingMap")


@dataclass
class Course:
    """A rollout under way.

    Attributes
    ----------
    U, k0, lengths, rescue
        As of `OneStepMap.run`; of `rescue` what the map can do.
    X, multipliers : (N+1, nx), (N, nm)
        Written; the first row of X is the start.
    t : (N,)
        Where steps begin, s.
    feedback : (N, nx) and (N, nu, ndx), or None
        Reference and gains.
    splits : dict of int to Split
        Steps in parts, by row.
    applied : (N, nu)
        Inputs: U, or written where there is feedback.
    rows : list of arrays
        Arguments of the kernel between carry and parameters, a row for each step.
    """

    U: np.ndarray
    k0: int
    lengths: np.ndarray
    rescue: Rescue
    X: np.ndarray
    multipliers: np.ndarray
    t: np.ndarray
    feedback: tuple[np.ndarray, np.ndarray] | None = None
    splits: dict[int, Split] = field(default_factory=dict)
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

    def before(self, k: int) -> tuple[np.ndarray, np.ndarray, float]:
        """What the carry of row k is made of."""
        return self.X[k], self.X[max(k - HISTORY, 0) : k], float(self.lengths[k])

    def step(self, k: int) -> Step:
        """That of row k."""
        return self.X[k], self.applied[k], self.k0 + k, float(self.t[k]), float(self.lengths[k])


class RollingMap(OneStepMap):
    """What `KernelMap` does to roll out; its text tells the attributes."""

    tolerance: float
    _robust_kernel: ca.Function | None = None

    @property
    @abstractmethod
    def built(self) -> dict[str, Any]:
        """What all twins share."""

    @abstractmethod
    def carry(self, x: np.ndarray, before: np.ndarray, dt: float | np.ndarray) -> np.ndarray:
        """The carry that starts at state x, whose predecessors are the rows `before`, perhaps none.

        Shapes (nx,), (m, nx), and a number; or, of N starts at once, (N, nx), (m, N, nx), (N,).
        """

    def check_beginnings(self, X: np.ndarray, k: int) -> None:
        """Raise `StepError` where no rollout may start, of states X (N, nx) at the steps from k on."""

    @abstractmethod
    def rescued(self, x: np.ndarray, u: np.ndarray, k: int, t: float, dt: float):
        """Solve step k, at time t, by every means: (x_next, multipliers), or raise `StepError`."""

    def _doubts(
        self, carry: np.ndarray, X: np.ndarray, lengths: np.ndarray, multipliers: np.ndarray
    ) -> np.ndarray:
        """Which solved steps (..., N) have solutions that are to be settled: those through X (..., N+1, nx)
        from `carry` (..., nc) with `multipliers` (..., N, nm); `lengths` (..., N+1) begins with that of the
        step before.
        """
        return np.zeros((*X.shape[:-2], X.shape[-2] - 1), bool)

    def _settled(self, step: Step, found: Solved | None, error: StepError | None):
        """(x_next, multipliers, `Split` or None) of a step that was hard to solve, or that `_doubts` named.

        Raises `error` where nothing was found, if the map knows no better.
        """
        if found is None:
            assert error is not None
            raise error
        return *found, None

    @property
    def _divisible(self) -> bool:
        """Whether parts lead where the step does: states must not depend on the steps beside them."""
        return True

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

    def _means(self, rescue: Rescue) -> Rescue:
        """What is done about hard steps, of what this map can do."""
        if not (rescue == "split" or isinstance(rescue, bool)):
            raise ValueError(f'rescue: expected "split", True or False, got {rescue!r}')
        return True if rescue == "split" and not self._divisible else rescue

    # -- one ------------------------------------------------------------------------------------

    def _steps(
        self,
        x0,
        U,
        k0: int,
        lengths: np.ndarray,
        reference=None,
        gains=None,
        *,
        rescue: Rescue,
        t: np.ndarray | None = None,
    ):
        """States (N+1, nx), multipliers (N, nm), applied inputs (N, nu), and steps in parts by row.

        The kernel goes as far as its errors are small; a step where they are not is tried by the robust
        kernel, if there is one, then handed to `rescued` and `_settled`. Steps begin at `t` (N,) if given.
        """
        n = len(U)
        X, multipliers = np.empty((n + 1, self.nx)), np.empty((n, len(self.multiplier_names)))
        X[0] = x0
        t = self.times(lengths, k0)[:-1] if t is None else t
        feedback = None if gains is None else (reference, gains)
        c = Course(U, k0, lengths, self._means(rescue), X, multipliers, t, feedback)
        self.begin(c)
        k, first = 0, CHUNK
        while k < n:
            ahead = n if first == CHUNK else min(n, k + first)
            stopped, left = self._advance(c, False, k, ahead, first)
            first = min(2 * first, CHUNK) if stopped == ahead else AFTER_RESCUE
            k = stopped if left is None else self._overcome(c, stopped, left)
        return X, multipliers, c.applied, c.splits

    def begin(self, c: Course) -> None:
        """Raise `StepError` where it may not start."""
        try:
            self.check_beginnings(c.X[:1], c.k0)
        except StepError as error:
            raise self._failed(c, error, 0) from None

    def _advance(self, c: Course, robust: bool, k: int, last: int, first: int) -> tuple[int, float | None]:
        """Steps from k by a program: where to go on, and the error where it stopped before `last`."""
        carry = self.carry(*c.before(k))
        args = [*(a[k:last] for a in c.rows), self.theta]
        program = self._program(c.feedback is not None, robust)
        outputs, done, error = program.accumulate(carry, args, last - k, self.nx, self.tolerance, first)
        c.X[k + 1 : k + 1 + done] = outputs[0]
        c.multipliers[k : k + done] = outputs[1]
        if c.feedback is not None:
            c.applied[k : k + done] = outputs[3]
        again = self._reviewed(c, k, k + done, carry)
        if again is not None:
            return again, None
        return k + done, error if k + done < last else None

    def resumed(self, c: Course, k: int, came: int, carry: np.ndarray, left: float) -> int:
        """Where a rollout is to go on that a kernel took from step k with `carry` to step `came`, where the
        error `left` stopped it.
        """
        again = self._reviewed(c, k, came, carry)
        if again is None:
            again = self._overcome(c, came, left) if came < len(c.U) else came
        return again

    def _reviewed(self, c: Course, k: int, came: int, carry: np.ndarray) -> int | None:
        """Settle what is in doubt of steps k ... `came` - 1; where to go on if one of them ends elsewhere."""
        if c.rescue != "split":
            return None
        h = np.concatenate([c.lengths[max(k - 1, 0) :][:1], c.lengths[k:came]])
        doubts = self._doubts(carry, c.X[k : came + 1], h, c.multipliers[k:came])
        for i in map(int, k + np.flatnonzero(doubts)):
            if self._settle(c, i, (c.X[i + 1].copy(), c.multipliers[i].copy()), None):
                return i + 1
        return None

    def _overcome(self, c: Course, k: int, left: float) -> int:
        """Take step k, which the kernel left with the error `left`, and perhaps some more; where to go on."""
        if self._robust_kernel is not None:
            stopped, still = self._advance(c, True, k, min(k + AFTER_RESCUE, len(c.U)), AFTER_RESCUE)
            if still is None or stopped > k:
                return stopped
            left = still
        if c.feedback is not None:
            reference, gains = c.feedback
            c.applied[k] = c.U[k] - gains[k] @ self.difference(reference[k], c.X[k])
        found, why, number = None, None, c.k0 + k
        try:
            if not c.rescue:
                text = f"step {number} did not converge: scaled residual {left:.2g}"
                raise StepError(text, number, left, "no convergence")
            with trying() if c.rescue == "split" else nullcontext():  # it may not be what is taken
                found = self.rescued(*c.step(k))
        except StepError as whole:
            if c.rescue != "split":
                raise self._failed(c, whole, k) from None
            why = whole
        if c.rescue == "split":
            self._settle(c, k, found, why)
        elif found is not None:
            c.X[k + 1], c.multipliers[k] = found
        return k + 1

    def _settle(self, c: Course, k: int, found: Solved | None, error: StepError | None) -> bool:
        """Whether step k ends elsewhere than where it was found to end."""
        try:
            c.X[k + 1], c.multipliers[k], split = self._settled(c.step(k), found, error)
        except StepError as none:
            raise self._failed(c, none, k) from None
        if split is not None:
            c.splits[k] = split
        return split is not None

    def _failed(self, c: Course, error: StepError, k: int) -> StepError:
        until = c.X[: k + 1].copy(), c.multipliers[:k].copy(), c.applied[:k].copy(), c.splits
        error.trajectory = self._trajectory(until, c.k0, c.lengths[:k], c.t[:k])
        return error

    def _trajectory(
        self, solved: tuple, k0: int, lengths: np.ndarray, begins: np.ndarray | None
    ) -> Trajectory:
        """Of what `_steps` returns."""
        X, multipliers, U, splits = solved
        t = self.times(lengths, k0, begins)
        run = Trajectory.stepped(self, lengths, X, U, multipliers, k0=k0, t=t, splits=splits)
        return run.on_its_step()

    # -- many -----------------------------------------------------------------------------------

    def run_many(self, runs: Runs, rescue: Rescue, threads: int | None) -> bool:
        many, n = self._many, len(runs.lengths)
        if many is None or not n:
            return False
        rescue, count = self._means(rescue), len(runs.X)
        share = -(-count // ((threads or workers()) * LANES)) * LANES
        known = self.built.get("seconds a step of many", np.inf)
        least = int(WORTH / (known * n) / LANES + 1) * LANES if known < np.inf else LANES
        size = max(least, min(share, max(BLOCK, PIECE // n // LANES * LANES)))
        blocks = [np.arange(i, min(i + size, count)) for i in range(0, count, size)]

        def work(rows: np.ndarray) -> int:
            before = time.perf_counter()
            with trying():
                self._roll(many, runs, rows, rescue)
            each = (time.perf_counter() - before) / (len(rows) * n)
            self.built["seconds a step of many"] = min(each, self.built.get("seconds a step of many", np.inf))
            return len(rows)

        with Progress("rollouts", count, 1) as progress:
            for done in over_cores(work, blocks, threads):
                progress.advance(done)
        return True

    def _roll(self, many: ManyProgram, runs: Runs, rows: np.ndarray, rescue: Rescue) -> None:
        """Some of many, side by side until each comes to a step that is hard, which is taken by itself."""
        X, n, h = runs.X, len(runs.lengths), runs.lengths
        t = self.times(h, runs.k0)[:-1]
        known: dict[int, tuple[RollingMap, Course]] = {}

        def alone(i: int) -> tuple[RollingMap, Course]:
            if i not in known:
                f = self.with_parameters(**runs.parameters_of(i)) if runs.parameters else self
                splits = runs.splits.setdefault(i, {})
                course = Course(runs.U[i], runs.k0, h, rescue, X[i], runs.multipliers[i], t, splits=splits)
                known[i] = f, course  # type: ignore[assignment]
            return known[i]

        def begins(i: int) -> bool:
            f, course = alone(i)
            try:
                f.begin(course)
            except StepError as error:
                runs.errors[i] = error
            return i not in runs.errors

        try:
            self._with_rows(runs.parameters, rows).check_beginnings(X[rows, 0], runs.k0)
        except StepError:
            rows = rows[[begins(int(i)) for i in rows]]
        at = np.zeros(len(rows), np.int64)
        while len(rows):
            f, start = self._with_rows(runs.parameters, rows), at.copy()
            if at.any():
                pairs = zip(rows, at, strict=True)
                carry = np.stack([alone(int(i))[0].carry(*alone(int(i))[1].before(int(k))) for i, k in pairs])
            else:
                carry = f.carry(X[rows, 0], np.empty((0, len(rows), self.nx)), np.full(len(rows), h[0]))
            given = runs.U, t, h, np.broadcast_to(f.theta, (len(rows), len(f.parameters)))
            arrays = X, runs.multipliers
            errors, doubts = _advanced(many, rows, carry.copy(), given, at, self.tolerance, *arrays)
            left: list[tuple[int, int]] = []
            for j in map(int, np.flatnonzero((at < n) | doubts)):
                i = int(rows[j])
                g, course = alone(i)
                try:
                    k = g.resumed(course, int(start[j]), int(at[j]), carry[j], float(errors[j]))
                    left += [(i, k)] * (k < n)
                except StepError as error:
                    runs.errors[i] = error
            rows, at = (np.array([p[m] for p in left], np.int64) for m in (0, 1))

    def _with_rows(self: Map, parameters: Mapping[str, np.ndarray], rows: np.ndarray) -> Map:
        """This map with a row of `theta` for each of some samples."""
        if not parameters:
            return self
        result = self._twin()
        for_all = {name: np.full(len(rows), value) for name, value in self.parameters.items()}
        result.parameters = {**for_all, **{name: values[rows] for name, values in parameters.items()}}  # type: ignore[dict-item]
        return result


def _advanced(many: ManyProgram, rows, carry, given, at, tolerance, X, multipliers):
    """`ManyProgram.accumulate` to the end, in calls that Ctrl-C comes between."""
    n, errors, going = multipliers.shape[1], np.zeros(len(rows)), np.arange(len(rows))
    doubts = np.zeros(len(rows), bool)
    (*given, theta), piece = given, max(1, LONG // len(rows))
    for end in [*range(piece, n, piece), n]:
        some, came = carry[going], at[going]
        errors[going], seen = many.accumulate(
            some, rows[going], (*given, theta[going]), came, end, tolerance, X, multipliers
        )
        carry[going], at[going] = some, came
        doubts[going] |= seen
        going = going[came >= end]
    return errors, doubts
