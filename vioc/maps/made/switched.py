"""Map that switches between several maps with the same state, at given steps.

Maths: docs/maths/phases.md, whose equation (saltation) is the derivative through a contact event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import casadi as ca
import numpy as np

from vioc.checks import few
from vioc.compile.evaluate import Evaluator
from vioc.maps.derivatives import Linearization, MapDerivatives, SecondOrder, Steps
from vioc.maps.made.around import TIMES, MapAround, around, derivatives_of
from vioc.maps.made.stepwise import stepwise
from vioc.maps.mechanism import Mechanism
from vioc.maps.named import Symbols
from vioc.maps.protocol import OneStepMap
from vioc.maps.quantities import Quantities, QuantityTable
from vioc.runs.given import points_of, trajectory_of
from vioc.runs.steps import times_of
from vioc.runs.trajectory import Trajectory


class SwitchedMap(MapAround):
    """Map that switches between several maps, such as the phases of a motion.

    It is x[k+1] = f_i(x[k], u[k]), where f_i is the map of step k.

    Parameters
    ----------
    maps : sequence of OneStepMap
        Maps with the same states, inputs and parameters.
    steps : sequence of int
        Number of steps that each map takes in a row; the last one takes all further steps.
    jumps : sequence of (casadi.Function or None), optional
        Jump of the state at each switch, (x, parameters) -> start of the first step of the later map.
        Default: no jump.
    periodic : bool
        Whether the first map follows the last; then there is one more jump, into the first map.

    Notes
    -----
    Multipliers are those of all maps by name, and 0 in steps of maps that do not have them. ``run["NAME"]``
    takes each value from the map of that step (a foot that has touched down has no velocity). `quantity`, and
    so a weight, takes the expression of the map with the fewest multipliers.

    Steps are switched by their index. `derivatives.linearize_motion` describes the real motion instead, in
    which contacts close when their gap does (docs/maths/phases.md).
    """

    _identified_by = (("maps", "maps"), ("steps", "steps_of"), ("periodic", "periodic"))

    def __init__(
        self,
        maps: Sequence[OneStepMap],
        steps: Sequence[int],
        jumps: Sequence[ca.Function | None] | None = None,
        *,
        periodic: bool = False,
    ):
        self.maps, self.steps_of, self.periodic = tuple(maps), tuple(map(int, steps)), bool(periodic)
        if not self.maps or len(self.steps_of) != len(self.maps) or min(self.steps_of) < 1:
            raise ValueError(
                f"steps: expected {len(self.maps)} numbers >= 1, one for each map, got {steps!r}"
            )
        joints = len(self.maps) - (not periodic)
        self.jumps = (None,) * joints if jumps is None else tuple(jumps)
        if len(self.jumps) != joints:
            raise ValueError(f"jumps: expected {joints}, one for each joint, got {len(self.jumps)}")
        f = self.maps[0]
        for other in self.maps[1:]:
            for what in ("state_names", "input_names", "parameters", "wrap", "ndx"):
                value, other_value = getattr(f, what), getattr(other, what)
                if value != other_value:
                    raise ValueError(f"maps: {what} differ: {_text(value)} and {_text(other_value)}")
        self._around(f)
        table = QuantityTable(self._find, self._names, lambda name: self.inner.unit(name), self._rotation)
        self.quantities = Quantities(self, table, along=self._values_along)
        self.multiplier_names = tuple(dict.fromkeys(n for g in self.maps for n in g.multiplier_names))
        self._as_mechanism = self._mechanical
        count = ca.SX.sym("multipliers", len(self.multiplier_names))
        self.symbols = Symbols(f.symbols.x, f.symbols.u, count, f.symbols.parameters, f.symbols.dt)

    # -- switching --------------------------------------------------------------------------------

    def turn(self, k: int) -> tuple[int, int]:
        """Return the index of the map that takes step k, and the step's index within that map."""
        k = k % sum(self.steps_of) if self.periodic else k
        for i, n in enumerate(self.steps_of[:-1]):
            if k < n:
                return i, k
            k -= n
        return len(self.maps) - 1, k

    def _pieces(self, k0: int, n: int) -> Iterator[tuple[slice, int, bool]]:
        """Yield ranges of the steps k0 ... k0 + n - 1, each of which one map takes.
        Each range is a slice that counts from 0. It is followed by the index of its map, and by a flag that
        is True if the range begins directly after a switch.
        """
        start = 0
        while start < n:
            i, offset = self.turn(k0 + start)
            last = i == len(self.maps) - 1 and not self.periodic
            end = n if last else min(n, start + self.steps_of[i] - offset)
            first = offset == 0 and (i > 0 or (self.periodic and k0 + start > 0))
            yield slice(start, end), i, first
            start = end

    @cached_property
    def _leaps(self) -> dict[int, Evaluator]:
        """Evaluators of the state's jumps at switches between maps.
        They also evaluate the derivatives of the jumps. The key of an evaluator is the index of the map that
        takes the steps after the switch.
        """
        evaluators = {}
        for i in range(len(self.maps)):
            jump = self.jumps[i - 1] if i or self.periodic else None
            if jump is not None:
                x, theta = self.symbols.x, self.symbols.parameters
                value = jump(x, theta)
                evaluators[i] = Evaluator(
                    ca.Function("jump", [x, theta], [ca.densify(value), ca.densify(ca.jacobian(value, x))])
                )
        return evaluators

    def _landed(self, x: np.ndarray, i: int, first: bool) -> np.ndarray:
        """Return the state (nx,) from which map number i takes its next step.
        If the step is the `first` after a switch, the state x jumps as the switch prescribes.
        """
        if not first or i not in self._leaps:
            return x
        return self._leaps[i](x, self.theta)[0][:, 0]

    def _columns(self, i: int) -> list[int]:
        return [self.multiplier_names.index(n) for n in self.maps[i].multiplier_names]

    def lengths(self, dt: Any, steps: int) -> np.ndarray:
        if dt is None and len({g.dt for g in self.maps}) > 1:
            raise ValueError("dt: the maps have different steps; give the lengths, such as run.step_lengths")
        return super().lengths(dt, steps)

    # -- the state space ------------------------------------------------------------------------

    @property
    def inner(self) -> OneStepMap:  # type: ignore[override]
        """Map with the fewest constraints among those between which this map switches.
        Its named quantities exist in all of these maps.
        """
        return min(self.maps, key=_constraints)

    def initial_state(self, q: Any = None, v: Any = None, u: Any = None, **named: float) -> np.ndarray:
        """Return an initial state of the first map, from configurations and velocities."""
        return self.maps[0].initial_state(q, v, u, **named)

    def frame_positions(self, X: Any) -> np.ndarray:
        return self.inner.frame_positions(X)  # type: ignore[attr-defined]

    # -- steps ----------------------------------------------------------------------------------

    def step(self, x: Any, u: Any = None, k: int = 0, dt: float | None = None) -> np.ndarray:
        return super().step(x, u, k, self.maps[self.turn(k)[0]].dt if dt is None else dt)

    def run(
        self,
        x0: np.ndarray,
        U: np.ndarray,
        k0: int,
        lengths: np.ndarray,
        X: np.ndarray | None = None,
        K: np.ndarray | None = None,
        *,
        t: np.ndarray | None = None,
    ) -> Trajectory:
        if X is not None and self._leaps:  # feedback uses the state before the jump
            return stepwise(self, x0, U, k0, lengths, X, K, t).on_its_step()
        x, u = np.tile(x0, (len(U) + 1, 1)), np.array(U)
        multipliers = np.zeros((len(U), len(self.multiplier_names)))
        times = self.times(lengths, k0, t)
        for rows, i, first in self._pieces(k0, len(U)):
            a, b = rows.start, rows.stop
            feedback = (None, None) if X is None or K is None else (X[rows], K[rows])
            start = self._landed(x[a], i, first)
            part = self.maps[i].run(start, U[rows], k0 + a, lengths[rows], *feedback, t=times[rows])
            x[a + 1 : b + 1], u[rows] = part.x[1:], part.u
            multipliers[rows, self._columns(i)] = part.multipliers
        return Trajectory(self, times, x, u, multipliers, k0=k0).on_its_step()

    def steps_at(self, X: Any, U: Any, k0: int = 0, dt: Any = None, *, t: np.ndarray | None = None) -> Steps:
        X, U = points_of(self, X, U)
        lengths, parts = self.lengths(dt, len(U)), []
        t = self.times(lengths, k0, t)[:-1]
        for rows, i, first in self._pieces(k0, len(U)):
            start = X[rows].copy()
            start[0] = self._landed(start[0], i, first)
            part = self.maps[i].steps_at(start, U[rows], k0 + rows.start, lengths[rows], t=t[rows])
            every = np.zeros((len(part), len(self.multiplier_names)))
            every[:, self._columns(i)] = part.multipliers
            parts.append(replace(part, x0=X[rows], multipliers=every))
        if not parts:
            none = np.zeros((0, len(self.multiplier_names)))
            return replace(self.maps[0].steps_at(X, U, k0, lengths), multipliers=none)
        return Steps.joined(parts)

    def times(self, lengths: np.ndarray, k0: int, starts: np.ndarray | None = None) -> np.ndarray:
        """Return sample times (N+1,), s, of steps with the given lengths, from step k0 on.

        If the step lengths of the maps differ, step k0 begins after k0 steps of their own lengths.
        """
        if starts is None and len({g.dt for g in self.maps}) > 1 and len(lengths):
            before = sum(self.maps[self.turn(k)[0]].dt for k in range(k0))
            starts = before + np.cumsum(lengths) - lengths
        return times_of(lengths, k0, self.dt, starts)

    @property
    def depends_on_time(self) -> bool:
        return True  # the map of a step depends on its index

    def _mechanical(self) -> Mechanism:
        def review(trajectory: Trajectory) -> None:
            for part in self.parts_of(trajectory):
                part.map.mechanism.review(part)

        first, speeds = self.maps[0].mechanism, set()
        for g in self.maps:
            speeds |= {
                n for n, adds in zip(g.multiplier_names, g.mechanism.additive, strict=True) if not adds
            }
        return replace(
            around(self, review),
            strings=tuple(dict.fromkeys(n for g in self.maps for n in g.mechanism.strings)),
            additive=np.array([n not in speeds for n in self.multiplier_names], bool),
            velocity_constraints=first.velocity_constraints,
            impulse_behind=first.impulse_behind,
        )

    # -- derivatives ----------------------------------------------------------------------------

    def _by_map(self, steps: Steps) -> Iterator[tuple[np.ndarray, int, bool, Steps]]:
        """Group steps by the map that takes them, and by whether they directly follow a switch.
        Yield for each group the indices of its steps, the index of the map, a flag that is True after a
        switch, and the steps.

        The indices need not be successive.
        """
        turns = [(self.turn(int(k)), int(k)) for k in steps.k]
        keys = np.array(
            [(i, offset == 0 and (i > 0 or (self.periodic and k > 0))) for (i, offset), k in turns]
        )
        for i, first in dict.fromkeys(map(tuple, keys.tolist())):
            rows = np.flatnonzero((keys == (i, first)).all(axis=1))
            x0 = np.stack([self._landed(x, i, bool(first)) for x in steps.x0[rows]])
            x1, u = (np.ascontiguousarray(a[rows]) for a in (steps.x1, steps.u))
            multipliers = np.ascontiguousarray(steps.multipliers[rows][:, self._columns(i)])
            times = steps.t[rows], steps.h[rows], steps.k[rows]
            yield rows, i, bool(first), Steps(x0, x1, u, multipliers, *times)

    def _first(self, steps: Steps, timed: bool) -> Linearization:
        n, nm = len(steps), len(self.multiplier_names)
        columns = self.ndx, self.nu, len(self.parameters) + TIMES * timed
        whole = Linearization(*(np.zeros((n, rows, c)) for rows in (self.ndx, nm) for c in columns))
        for rows, i, first, group in self._by_map(steps):
            lin = derivatives_of(self.maps[i], timed).first(group)
            A, C = lin.A, lin.C
            if first and i in self._leaps:
                J = np.stack([self._leaps[i](x, self.theta)[1] for x in steps.x0[rows]])
                A, C = A @ J, C @ J
            whole.A[rows], whole.B[rows], whole.P[rows] = A, lin.B, lin.P
            index = np.ix_(rows, np.array(self._columns(i), int))
            whole.C[index], whole.D[index], whole.E[index] = C, lin.D, lin.E
        return whole

    def _second(self, steps: Steps, Z: np.ndarray, zeta: np.ndarray, timed: bool) -> SecondOrder:
        blocks: dict[str, np.ndarray] = {}
        for rows, i, first, group in self._by_map(steps):
            if first and i in self._leaps:
                raise NotImplementedError("a step behind a jump: its second derivatives are not known")
            weights = np.ascontiguousarray(zeta[rows][:, self._columns(i)])
            H = derivatives_of(self.maps[i], timed).second(group, Z[rows], weights)
            for name, block in H.blocks.items():
                blocks.setdefault(name, np.zeros((len(steps), *block.shape[1:])))[rows] = block
        return SecondOrder(**blocks)

    @property
    def derivatives(self) -> MapDerivatives:
        return replace(super().derivatives, moving=self._linearized)

    def _linearized(self, trajectory: Trajectory, closed: bool) -> Linearization:
        """Return the linearization of a motion, with the saltation correction at impacts.
        It is `MapDerivatives.linearize_motion` (saltation): at a switch that closes contacts, the time of the
        switch is the time at which the gap is zero, and so depends on the state. An error of the state
        therefore shifts the end of the step before the switch and the start of the step after it; the
        derivatives of the latter include this shift. With `closed`, the motion is periodic: its first step
        follows its last step.
        """
        run = trajectory_of(trajectory)
        steps = Steps.along(run)
        lin = self.derivatives.linearize(steps)
        for k in range(0 if closed else 1, len(run)):
            i, offset = self.turn(run.k0 + k)
            last = (k - 1) % len(run)
            if offset:
                continue
            before = self.maps[self.turn(run.k0 + last)[0]]
            shut = [n for n in self.maps[i].multiplier_names if n not in before.multiplier_names]
            gaps = [f"gap.{n}" for n in shut if f"gap.{n}" in before.quantities.names()]
            if gaps and self.ndx == self.nx:
                about = Steps.joined([steps.piece(slice(j, j + 1)) for j in (last, k)])
                drift = self.derivatives.timed.first(about).P[:, :, -2]  # of each step's end by its length
                lin.A[k] = saltated(self.inner, about.x1[0], lin.A[[last, k]], drift, gaps)
        return lin

    # -- names ----------------------------------------------------------------------------------

    def _find(self, name: str) -> ca.SX | None:
        if name.startswith("lambda.") or name in self.state_names:
            return None
        known = [g for g in sorted(self.maps, key=_constraints) if name in g.quantities.names()]
        if not known:
            return None
        candidates = [(g, g.quantity(name)) for g in known]
        forces = [pair for pair in candidates if ca.depends_on(ca.vec(pair[1]), pair[0].symbols.multipliers)]
        return self._in_symbols(*(forces or candidates)[-1 if forces else 0])

    def _in_symbols(self, g: OneStepMap, expression: ca.SX) -> ca.SX:
        x, u, lam, theta, dt = self.symbols
        multipliers = lam[[self.multiplier_names.index(n) for n in g.multiplier_names]]
        return ca.Function("quantity", list(g.symbols), [expression])(x, u, multipliers, theta, dt)

    def _values_along(self, run: Trajectory, name: str) -> np.ndarray:
        """Return the values of a quantity along a trajectory.
        The value in a step is computed by the map that takes this step. At a switch, the later map is used.
        If a map does not have the quantity, because it belongs to a constraint of other maps, the value is
        computed by one of these with zero multipliers; a force is then 0.
        """
        if name in self.state_names or name.startswith("u."):
            return run.evaluate(self.quantity(name))
        known = [g for g in sorted(self.maps, key=_constraints) if name in g.quantities.names()]
        parts, values = self.parts_of(run), []
        for part in parts:
            if known and name not in part.map.quantities.names():
                none = np.zeros((len(part), len(known[0].multiplier_names)))
                part = replace(part, map=known[0], multipliers=none)
            values.append(part[name])
        by_step = any(len(v) == len(part) for v, part in zip(values, parts, strict=True))
        cut = [v[: len(part)] for v, part in zip(values, parts, strict=True)]
        return np.concatenate(cut if by_step else [*cut, values[-1][-1:]])

    def parts_of(self, run: Trajectory) -> list[Trajectory]:
        """Split a trajectory into trajectories of the single maps that took its steps.

        If the state jumps at a switch, the earlier part ends, and the later part begins, with the state
        before the jump.
        """
        parts = []
        for rows, i, _ in self._pieces(run.k0, len(run)):
            part = run.part(rows.start, rows.stop)
            multipliers = np.ascontiguousarray(part.multipliers[:, self._columns(i)])
            parts.append(replace(part, map=self.maps[i], multipliers=multipliers))
        return parts

    def _rotation(self, frame: str) -> ca.SX | None:
        R = self.inner.quantities.rotation(frame)
        return None if R is None else self._in_symbols(self.inner, R)

    def _names(self) -> list[str]:
        return [n for g in self.maps for n in g.quantities.names()]

    def with_each(self, change: Callable[[OneStepMap], OneStepMap]) -> SwitchedMap:
        maps = [change(g) for g in self.maps]
        return SwitchedMap(maps, self.steps_of, self.jumps, periodic=self.periodic)

    def resampled(self, run: Trajectory, lengths: np.ndarray) -> SwitchedMap:
        """Return this map for other step `lengths`, with switches at the same times.

        Each map keeps its duration in the trajectory `run`. ValueError is raised if a switch would lie within
        a new step.
        """
        parts, ends = self.parts_of(run), run.t[0] + np.cumsum(lengths)
        counts, maps, before = [], [], 0
        for part in parts:
            count = int(np.searchsorted(ends, part.t[-1] + 1e-9 * run.duration, side="right"))
            distance = abs(ends[count - 1] - part.t[-1]) if count > before else run.duration
            if distance > 1e-9 * run.duration:
                raise ValueError(
                    f"dt: the phases join at t = {part.t[-1]:.9g} s, within a step; give lengths "
                    "(M,) of which some end there"
                )
            counts.append(count - before)
            maps.append(part.map.with_dt(float(lengths[before])))
            before = count
        first = self.turn(run.k0)[0]
        if self.periodic or run.k0:
            raise ValueError("resample: of phases only motions that begin at step 0 and are not periodic")
        return SwitchedMap(maps, counts, self.jumps[first : first + len(maps) - 1])

    def __reduce__(self):
        return _rebuilt, (self.maps, self.steps_of, self.jumps, self.periodic)

    def __repr__(self) -> str:
        turns = ", ".join(f"{n} of {g!r}" for n, g in zip(self.steps_of, self.maps, strict=True))
        return f"SwitchedMap({turns}{', again and again' if self.periodic else ''})"


def _rebuilt(maps: Any, steps: Any, jumps: Any, periodic: bool) -> SwitchedMap:
    return SwitchedMap(maps, steps, jumps, periodic=periodic)


def _constraints(g: OneStepMap) -> int:
    return len(g.multiplier_names)


def _text(value: Any) -> str:
    if isinstance(value, Mapping):  # the names may be the same
        value = tuple(f"{n} = {v:.6g}" for n, v in value.items())
    names = value if isinstance(value, (tuple, list)) else (str(value),)
    return few(tuple(map(str, names))) if names else "none"


def saltated(
    f: OneStepMap, x: np.ndarray, A: np.ndarray, drift: np.ndarray, gaps: Sequence[str]
) -> np.ndarray:
    """Return the corrected Jacobian of the first step after an impact.
    This saltation correction accounts for the time of the impact, which depends on the state. The result
    (ndx, ndx) replaces A[1].

    Parameters
    ----------
    f : OneStepMap
        Map that has the gaps as quantities of the state.
    x : (nx,)
        State between the step before the impact and the step after it.
    A : (2, ndx, ndx)
        Jacobians of the last step before and of the first step after the impact.
    drift : (2, ndx)
        Derivatives of the next states of these two steps with respect to their lengths.
    gaps : names
        Gaps that close at the impact.

    Notes
    -----
    If several gaps close there is no derivative, since it matters which one closes first. The mean of their
    closing times is used, and the remaining gaps are closed by displacements along the contact impulses.
    """
    phi = ca.vertcat(*(f.quantity(name) for name in gaps))
    slope = ca.Function("slope", [f.symbols.x, f.symbols.parameters], [ca.jacobian(phi, f.symbols.x)])
    J = np.asarray(slope(x, f.theta))
    closing = J @ drift[0]
    late = -(J / closing[:, None]).mean(axis=0)  # delay of the contact, s, by the error at x
    result = A[1] + np.outer(A[1] @ drift[0] - drift[1], late)
    if len(gaps) == 1:
        return result
    q = [i for i, name in enumerate(f.state_names) if f"p.{name}" in f.state_names]
    p = [f.state_names.index(f"p.{f.state_names[i]}") for i in q]
    inverse = A[0][np.ix_(q, p)]  # of the mass matrix, times the step length
    right_sides = J + np.outer(closing, late)
    push = np.zeros((len(x), len(gaps)))
    push[q] = inverse @ J[:, q].T
    return result - A[1] @ push @ np.linalg.solve(J @ push, right_sides)
