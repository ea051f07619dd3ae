"""`DivisibleMap`: steps that are taken in parts where they cannot be taken whole.

A step too long for the state it starts from has no solution, or only such as are no motion. Halved,
quartered, ..., it has: a rollout then takes it in parts and says so (`Trajectory.splits`), and derivatives
are those of the composed step, of exactly the parts that were taken. Maths: docs/maths/midpoint.md, "Steps in
parts".
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from vioc.compile.evaluate import Evaluator
from vioc.dynamics.lagrangian import Lagrangian
from vioc.errors import ChartWarning, StepError, trying
from vioc.maps.given import trajectory_of
from vioc.maps.kernel import KernelMap, Solved, Step
from vioc.maps.protocol import FIELDS, Linearization, SecondOrder
from vioc.maps.trajectory import Split, Trajectory

SMALLEST = 2.0**-6  # of a step: its shortest part; a hopeless step costs as many solves as it may have parts
JUMP = 0.15  # rad or m by which a step may end elsewhere than its velocity leads without being looked at
AGREED = 0.03  # of the way of a step: how far from the end of its halves its solution may end
Splits = Mapping[int, Split]


@dataclass(frozen=True)
class Steps:
    """N solved steps, rows of a trajectory or of a piece of it.

    Attributes
    ----------
    x0, x1 : (N, nx)
    u, multipliers : (N, nu), (N, nm)
    t, h : (N,)
        Start and length, s.
    k : int
        Index of the first one.
    """

    x0: np.ndarray
    x1: np.ndarray
    u: np.ndarray
    multipliers: np.ndarray
    t: np.ndarray
    h: np.ndarray
    k: int

    def __len__(self) -> int:
        return len(self.u)

    def piece(self, rows: slice) -> Steps:
        x0, x1, u, multipliers = (a[rows] for a in (self.x0, self.x1, self.u, self.multipliers))
        return Steps(x0, x1, u, multipliers, self.t[rows], self.h[rows], self.k + rows.start)

    @staticmethod
    def along(run: Trajectory) -> Steps:
        return Steps(run.x[:-1], run.x[1:], run.u, run.multipliers, run.t[:-1], run.step_lengths, run.k0)


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

    def _doubts(self, carry: np.ndarray, X: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        before = carry[None, self.nx : self.nx + self.nd]  # q_k-1, or where the velocity comes from
        q = np.concatenate([before, X[:, : self.nd]])
        rates = np.diff(q, axis=0) / lengths[:, None]
        turned = (np.abs(np.diff(rates, axis=0)) * lengths[1:, None]).max(axis=1, initial=0.0)
        rows = np.flatnonzero(turned > JUMP / 2)  # some of these: what decides is a function of the state
        if len(rows):
            v = self._velocity(np.ascontiguousarray(X[rows]), self._theta)[0][..., 0]
            off = np.abs(rates[rows + 1] - v).max(axis=1) * lengths[rows + 1]
            rows = rows[off > JUMP]
        return rows

    def _settled(self, step: Step, found: Solved | None, error: StepError | None):
        with trying():
            parts = self._parts(step, 0.0, 1.0, step[0], found or error)
            if len(parts) > 1:
                parts = self._refined(step, parts)
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

    def _refined(self, step: Step, parts: list[tuple[float, Solved]]) -> list[tuple[float, Solved]]:
        """Parts of a step that end where their halves do; if these do not, theirs, and so on."""
        while True:
            starts = [0.0, *(end for end, _ in parts[:-1])]
            sizes = [end - start for start, (end, _) in zip(starts, parts, strict=True)]
            if max(sizes) / 2 < SMALLEST:
                return parts
            halves: list[tuple[float, Solved]] = []
            x = step[0]
            way = 0.0
            try:
                for start, size in zip(starts, sizes, strict=True):
                    count = 1 if size / 2 < SMALLEST else 2
                    for i in range(count):
                        some = self._parts(step, start + i * size / count, size / count, x)
                        for _, (after, _) in some:
                            way += self._moved(x, after)
                            x = after
                        halves += some
            except StepError:
                return parts
            if self._moved(parts[-1][1][0], x) <= AGREED * way:
                return parts
            parts = halves

    def _solved_part(self, step: Step, start: float, size: float, x: np.ndarray) -> tuple[Solved, bool]:
        """The solution of a part of a step, and whether it is in doubt."""
        whole, u, k, t, dt = step
        by_x, by_u = (m[0] for m in self._inputs_at(np.array([start + size])))
        u, t, h = by_x @ whole + by_u @ u, t + start * dt, size * dt
        lengths = np.full(1, h)
        try:
            X, impulses, *_ = self._steps(x, u[None], k, lengths, rescue=False, t=np.full(1, t))
        except StepError:
            return self._rescue(x, u, k, t, h), False
        doubts = self._doubts(self._carry(x, x[None][:0], h), X, lengths.repeat(2))
        return (X[1], impulses[0]), len(doubts) > 0

    # -- derivatives --------------------------------------------------------------------------------

    def linearize(self, x: Any, u: Any = None, k: int = 0, dt: float | None = None) -> Linearization:
        lin = self._first(*self._one_step(x, u, k, dt))
        return Linearization(*(getattr(lin, name)[0] for name in "ABPCDE"))

    def linearize_points(self, X: Any, U: Any, *, k0: int = 0, dt: Any = None) -> Linearization:
        X, after, U, multipliers, t, h, splits = self._points(X, U, k0, dt)
        return self._first(Steps(X, after, U, multipliers, t, h, k0), splits)

    def linearize_trajectory(self, trajectory: Trajectory) -> Linearization:
        run = trajectory_of(trajectory)
        return self._first(Steps.along(run), run.splits)

    def second_order(
        self, x: Any, u: Any, z: Any, k: int = 0, dt: float | None = None, *, zeta: Any = None
    ) -> SecondOrder:
        steps, splits = self._one_step(x, u, k, dt)
        zeta = np.zeros(len(self.multiplier_names)) if zeta is None else np.asarray(zeta, float)
        H = self._second(steps, splits, np.asarray(z, float)[None], zeta[None])
        return SecondOrder(*(getattr(H, f)[0] for f in FIELDS))

    def second_order_trajectory(
        self, trajectory: Trajectory, Z: np.ndarray, zeta: np.ndarray | None = None
    ) -> SecondOrder:
        run = trajectory_of(trajectory)
        zeta = np.zeros(run.multipliers.shape) if zeta is None else np.asarray(zeta, float)
        return self._second(Steps.along(run), run.splits, np.asarray(Z, float), zeta)

    def _one_step(self, x: Any, u: Any, k: int, dt: float | None) -> tuple[Steps, Splits]:
        x, u = self.check_point(x, u)
        h = self._step_lengths(dt, 1)
        with warnings.catch_warnings():  # of a singular step derivatives raise
            warnings.simplefilter("ignore", ChartWarning)
            X, multipliers, _, splits = self._steps(x, u[None], k, h, rescue="split")
        return Steps(X[:1], X[1:], u[None], multipliers, k * h, h, k), splits

    def _first(self, steps: Steps, splits: Splits) -> Linearization:
        if not splits:
            return self._linearize_steps(steps)
        flat, rows = self._flat(steps, splits)
        lin = self._linearize_parts(flat, rows, steps.k)
        whole = Linearization(*(getattr(lin, name)[rows[:-1]] for name in "ABPCDE"))
        x, u, p = self._columns
        for k, split in splits.items():
            done, along, _ = self._chain(lin, slice(rows[k], rows[k + 1]), split)
            for name, block, columns in zip("ABPCDE", [done] * 3 + [along] * 3, [x, u, p] * 2, strict=True):
                getattr(whole, name)[k] = block[:, columns]
        return whole

    def _second(self, steps: Steps, splits: Splits, Z: np.ndarray, zeta: np.ndarray) -> SecondOrder:
        if not splits:
            return self._contract_steps(steps, Z, zeta)
        flat, rows = self._flat(steps, splits)
        lin = self._linearize_parts(flat, rows, steps.k)
        of = np.repeat(np.arange(len(steps)), np.diff(rows))
        Z, zeta, before = Z[of], zeta[of], {}
        for k, split in splits.items():  # the weight on what a part ends in is the costate of those behind it
            parts = slice(rows[k], rows[k + 1])
            before[k] = self._chain(lin, parts, split)[2]
            zeta[parts] *= self._shares(split)
            for i in range(parts.stop - 1, parts.start, -1):
                Z[i - 1] = Z[i] @ lin.A[i] + zeta[i] @ lin.C[i]
        H = self._contract_steps(flat, Z, zeta)
        whole = SecondOrder(*(getattr(H, f)[rows[:-1]] for f in FIELDS))
        x, u, p = self._columns
        pairs = dict(zip(FIELDS, ((x, x), (x, u), (u, u), (x, p), (u, p), (p, p)), strict=True))
        for k, Y in before.items():
            own = {f: getattr(H, f)[rows[k] : rows[k + 1]] for f in FIELDS}
            xt, ut, pt = (np.swapaxes(own[f], 1, 2) for f in ("xu", "xp", "up"))
            blocks = ((own["xx"], own["xu"], own["xp"]), (xt, own["uu"], own["up"]), (ut, pt, own["pp"]))
            each = np.concatenate([np.concatenate(row, axis=2) for row in blocks], axis=1)
            total = (np.swapaxes(Y, 1, 2) @ each @ Y).sum(axis=0)
            for f, (a, b) in pairs.items():
                getattr(whole, f)[k] = total[a, b]
        return whole

    @property
    def _columns(self) -> tuple[slice, slice, slice]:
        """Of errors of the state, inputs and parameters among what a step depends on."""
        n = self.ndx + self.nu
        return slice(0, self.ndx), slice(self.ndx, n), slice(n, n + len(self.parameters))

    def _flat(self, steps: Steps, splits: Splits) -> tuple[Steps, np.ndarray]:
        """Every part as a step, and the row in which each step begins (N + 1,)."""
        counts = np.ones(len(steps), int)
        for k, split in splits.items():
            counts[k] = len(split)
        rows, of = np.concatenate([[0], np.cumsum(counts)]), np.repeat(np.arange(len(steps)), counts)
        x0, x1, u, multipliers, t, h = (
            getattr(steps, name)[of] for name in ("x0", "x1", "u", "multipliers", "t", "h")
        )
        for k, split in splits.items():
            r = slice(rows[k], rows[k + 1])
            x0[r.start + 1 : r.stop], x1[r] = split.x[:-1], split.x
            by_x, by_u = self._inputs_at(split.ends)
            u[r] = by_x @ steps.x0[k] + by_u @ steps.u[k]
            multipliers[r], h[r] = split.multipliers, split.lengths
            t[r] += np.concatenate([[0.0], np.cumsum(split.lengths)[:-1]])
        return Steps(x0, x1, u, multipliers, t, h, steps.k), rows

    def _linearize_parts(self, flat: Steps, rows: np.ndarray, k0: int) -> Linearization:
        try:
            return self._linearize_steps(flat)
        except StepError as error:
            step = int(np.searchsorted(rows, error.k - k0, "right")) - 1
            text = f"step {k0 + step} was taken in parts. Of these, {error}"
            raise StepError(text, k0 + step, error.residual, error.cause) from None

    def _chain(self, lin: Linearization, rows: slice, split: Split) -> tuple[np.ndarray, ...]:
        """By what the step depends on, s = (errors, inputs, parameters): what it ends in (ndx, ns), its
        multipliers (nm, ns), and what each part depends on (m, ns, ns).
        """
        x, u, p = self._columns
        Y = np.zeros((len(split), p.stop, p.stop))
        by_x, Y[:, u, u] = self._inputs_at(split.ends)
        Y[:, u, x] = by_x[:, :, : self.ndx]  # nothing where errors are not differences of states
        Y[:, p, p] = np.eye(p.stop - p.start)
        shares = self._shares(split)
        now, along = np.eye(self.ndx, p.stop), np.zeros((shares.shape[1], p.stop))
        for y, share, A, B, P, C, D, E in zip(
            Y, shares, *(getattr(lin, name)[rows] for name in "ABPCDE"), strict=True
        ):
            y[x] = now
            now = np.concatenate([A, B, P], axis=1) @ y
            along += share[:, None] * (np.concatenate([C, D, E], axis=1) @ y)
        return now, along, Y
