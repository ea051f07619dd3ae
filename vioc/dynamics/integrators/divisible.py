"""`DivisibleMap`: steps that are taken in parts where they cannot be taken whole.

A step too long for the state it starts from has no solution, or only such as are no motion. Halved,
quartered, ..., it has: a rollout then takes it in parts and says so (`Trajectory.splits`), and derivatives
are those of the composed step, of exactly the parts that were taken. Maths: docs/maths/midpoint.md, "Steps in
parts".
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from dataclasses import replace
from itertools import pairwise

import numpy as np

from vioc.compile.evaluate import Evaluator
from vioc.dynamics.lagrangian import Lagrangian
from vioc.errors import StepError, StepWarning, is_tried, trying
from vioc.maps.derivatives import Linearization, SecondOrder, Steps
from vioc.maps.kernel import KernelMap
from vioc.maps.parts import Parts
from vioc.maps.rolling import Solved, Step
from vioc.maps.trajectory import Split

SMALLEST = 2.0**-6  # of a step: its shortest part; a hopeless step costs as many solves as it may have parts
JUMP = 0.15  # rad or m by which a step may end elsewhere than its velocity leads without being looked at
TURNED = JUMP / 2  # by which it ends elsewhere than the step before would lead, if it is to be looked at
TOO_LONG = (
    f"a step is far too long for its motion: taken in parts, down to dt/{round(1 / SMALLEST)}, it ends "
    "elsewhere the shorter they are; use a smaller dt (run.splits tells which steps have many parts)"
)
AGREED = 0.03  # of the way of two halves, or twice the longest part: how far apart ends may be that agree


class DivisibleMap(KernelMap):
    """A `KernelMap` whose steps may be taken in parts; see the module's text.

    Subclasses define `_linearize_steps` and `_contract_steps`, of steps that were taken whole; without
    generalized coordinates `_doubts` and `_moved`.
    """

    lagrangian: Lagrangian
    nd: int
    _velocity: Evaluator

    @abstractmethod
    def _linearize_steps(self, steps: Steps) -> Linearization:
        """First derivatives of steps."""

    @abstractmethod
    def _contract_steps(self, steps: Steps, Z: np.ndarray, zeta: np.ndarray) -> SecondOrder:
        """Second derivatives of steps, contracted with Z (N, ndx) and zeta (N, nm)."""

    def _shares(self, split: Split) -> np.ndarray:
        """Weights (m, nm) with which the parts' multipliers add up to the step's: impulses do."""
        return np.ones(split.multipliers.shape)

    # -- taking a step in parts ---------------------------------------------------------------------

    def _moved(self, x0: np.ndarray, x1: np.ndarray) -> float:
        """How far apart two states are as configurations, in the metric of a mean mass matrix."""
        return float(np.linalg.norm((x1 - x0)[: self.nd] * np.sqrt(self.lagrangian.mass_scale)))

    def _doubts(
        self, carry: np.ndarray, X: np.ndarray, lengths: np.ndarray, multipliers: np.ndarray
    ) -> np.ndarray:
        before = carry[..., None, self.nx : self.nx + self.nd]  # q_k-1, or where the velocity comes from
        q = np.concatenate([before, X[..., : self.nd]], axis=-2)
        rates = np.diff(q, axis=-2) / lengths[..., None]
        turned = (np.abs(np.diff(rates, axis=-2)) * lengths[..., 1:, None]).max(axis=-1, initial=0.0)
        doubtful = turned > TURNED  # some of these: what decides is a function of the state
        if doubtful.any():
            theta = self.theta
            if theta.ndim > 1:
                theta = np.broadcast_to(theta[:, None], (*doubtful.shape, theta.shape[1]))[doubtful]
            v = self._velocity(X[..., :-1, :][doubtful], theta)[0][..., 0]
            off = np.abs(rates[..., 1:, :][doubtful] - v).max(axis=-1) * lengths[..., 1:][doubtful]
            doubtful[doubtful] = off > JUMP
        return doubtful

    def _settled(self, step: Step, found: Solved | None, error: StepError | None):
        settled = True
        with trying():
            parts = self._parts(step, 0.0, 1.0, step[0], found or error)
            if len(parts) > 1:
                parts, settled = self._refined(step, parts)
        if not (settled or is_tried()):
            warnings.warn(TOO_LONG, StepWarning, stacklevel=5)
        self._review_parts(step, parts)
        if len(parts) == 1:
            return *parts[0][1], None
        ends, solved = zip(*parts, strict=True)
        states, impulses = (np.stack(a) for a in zip(*solved, strict=True))
        split = Split(step[4] * np.diff(ends, prepend=0.0), states, impulses)
        return states[-1], (self._shares(split) * impulses).sum(axis=0), split

    def _review_parts(self, step: Step, parts: list[tuple[float, Solved]]) -> None:
        """Warn of what a user should know about the parts that a step was taken in, perhaps one."""

    def _parts(
        self, step: Step, start: float, size: float, x: np.ndarray, found: Solved | StepError | None = None
    ) -> list[tuple[float, Solved]]:
        """The part of a step from the fraction `start` on, of the fraction `size`: [(end, solution), ...].

        Whole if its solution is where that of its halves is; else they are taken, and so on. `found` is the
        solution in doubt, or why there is none; None to look for it.
        """
        if found is None:
            try:
                found, doubtful = self._solved_part(step, start, size, x)
                if not doubtful:
                    return [(start + size, found)]
            except StepError as error:
                found = error
        if size / 2 < SMALLEST:
            if isinstance(found, StepError):
                k, t, dt = step[2:]
                raise StepError(
                    f"step {k} (t = {t:.6g} s, dt = {dt:g} s) was solved neither whole nor in parts. Of its "
                    f"part of dt/{round(1 / size)}: {found}",
                    k,
                    found.residual,
                    found.cause,
                ) from None
            return [(start + size, found)]
        try:
            halves = self._parts(step, start, size / 2, x)
            middle = halves[-1][1][0]
            halves += self._parts(step, start + size / 2, size / 2, middle)
        except StepError:
            if isinstance(found, StepError):
                raise
            return [(start + size, found)]  # as over a singular position, where a part would end
        if not isinstance(found, StepError):
            end = halves[-1][1][0]
            way = self._moved(x, middle) + self._moved(middle, end)
            if self._moved(found[0], end) <= AGREED * way:
                return [(start + size, found)]
        return halves

    def _refined(
        self, step: Step, parts: list[tuple[float, Solved]]
    ) -> tuple[list[tuple[float, Solved]], bool]:
        """Parts of a step that end where shorter ones do; if these do not, they, and so on. False with the
        shortest where none do.
        """
        ends = [0.0, *(end for end, _ in parts)]
        size = max(end - start for start, end in pairwise(ends))
        while (size := size / 2) >= SMALLEST:
            shorter: list[tuple[float, Solved]] = []
            x = step[0]
            try:
                for i in range(round(1 / size)):
                    shorter += self._parts(step, i * size, size, x)
                    x = shorter[-1][1][0]
            except StepError:
                continue
            states = [step[0], *(after for _, (after, _) in shorter)]
            longest = max(self._moved(*pair) for pair in pairwise(states))
            if self._moved(parts[-1][1][0], x) <= AGREED * 2 * longest:
                return parts, True
            parts = shorter
        return parts, False

    def _solved_part(self, step: Step, start: float, size: float, x: np.ndarray) -> tuple[Solved, bool]:
        """The solution of a part of a step, and whether it is in doubt."""
        whole, u, k, t, dt = step
        by_x, by_u = (m[0] for m in self.inputs_at(np.array([start + size])))
        u, t, h = by_x @ whole + by_u @ u, t + start * dt, size * dt
        lengths = np.full(1, h)
        try:
            X, impulses, *_ = self._steps(x, u[None], k, lengths, rescue=False, t=np.full(1, t))
        except StepError:
            if size / 2 >= SMALLEST:
                raise  # its halves cost less than all means do, and most often have solutions
            return self.rescued(x, u, k, t, h), False
        doubts = self._doubts(self.carry(x, x[None][:0], h), X, lengths.repeat(2), impulses)
        return (X[1], impulses[0]), bool(doubts.any())

    # -- derivatives --------------------------------------------------------------------------------

    def first(self, steps: Steps) -> Linearization:
        if not steps.splits:
            return self._linearize_steps(steps)
        parts = self._parts_of(steps)
        return parts.first(self._linearize_parts(parts, steps))

    def second(self, steps: Steps, Z: np.ndarray, zeta: np.ndarray) -> SecondOrder:
        if not steps.splits:
            return self._contract_steps(steps, Z, zeta)
        parts = self._parts_of(steps)
        lin = self._linearize_parts(parts, steps)
        return parts.second(lin, self._contract_steps(parts.steps, *parts.weights(lin, Z, zeta)))

    def first_with_times(self, steps: Steps) -> Linearization:
        if not steps.splits:
            return super().first_with_times(steps)
        parts = replace(self._parts_of(steps), timed=True)
        return parts.first(self._times.first(parts.steps, self.theta, self._linearize_parts(parts, steps)))

    def second_with_times(self, steps: Steps, Z: np.ndarray, zeta: np.ndarray) -> SecondOrder:
        if not steps.splits:
            return super().second_with_times(steps, Z, zeta)
        parts = replace(self._parts_of(steps), timed=True)
        lin = self._linearize_parts(parts, steps)
        weights = parts.weights(lin, Z, zeta)
        H = self._contract_steps(parts.steps, *weights)
        timed = self._times.second(parts.steps, self.theta, lin, H, *weights)
        return parts.second(self._times.first(parts.steps, self.theta, lin), timed)

    def _parts_of(self, steps: Steps) -> Parts:
        """Every part as a step; steps that were taken whole have one."""
        counts = np.ones(len(steps), int)
        for k, split in steps.splits.items():
            counts[k] = len(split)
        begins, of = np.concatenate([[0], np.cumsum(counts)]), np.repeat(np.arange(len(steps)), counts)
        x0, x1, u, multipliers, t, h = (
            a[of] for a in (steps.x0, steps.x1, steps.u, steps.multipliers, steps.t, steps.h)
        )
        by_x, by_u = self.inputs_at(np.ones(len(of)))
        shares, starts = np.ones(multipliers.shape), np.zeros(len(of))
        for k, split in steps.splits.items():
            r = slice(begins[k], begins[k + 1])
            x0[r.start + 1 : r.stop], x1[r] = split.x[:-1], split.x
            by_x[r], by_u[r] = self.inputs_at(split.ends)
            u[r] = by_x[r] @ steps.x0[k] + by_u[r] @ steps.u[k]
            multipliers[r], h[r], shares[r] = split.multipliers, split.lengths, self._shares(split)
            starts[r] = np.concatenate([[0.0], np.cumsum(split.lengths)[:-1]])
        flat = Steps(x0, x1, u, multipliers, t + starts, h, np.arange(len(of)))
        whole = steps.h[of]
        return Parts(flat, begins, by_x, by_u, shares, starts / whole, h / whole)

    def _linearize_parts(self, parts: Parts, steps: Steps) -> Linearization:
        try:
            return self._linearize_steps(parts.steps)
        except StepError as error:
            k = int(steps.k[np.searchsorted(parts.begins, error.k, "right") - 1])
            text = f"step {k} was taken in parts. Of these, {error}"
            raise StepError(text, k, error.residual, error.cause) from None
