"""Transcription of an optimal control problem to a nonlinear program.

See docs/maths/dmoc.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import casadi as ca
import numpy as np

from vioc.control.dmoc.layout import Given, PhaseLayout
from vioc.control.dmoc.phase import Phase
from vioc.control.dmoc.separable import FunctionBlock, SeparableProgram
from vioc.control.dmoc.stencil import SampleSymbols, Stencil
from vioc.control.problem.consistent import holonomic_constraints, loose_start
from vioc.control.problem.limits import PathConstraint

GAP, REST = 0, 1
PULL = 10.0  # acceleration; in SI that of weights


class Transcription:
    """Nonlinear program of a problem with one or several phases.

    Parameters
    ----------
    phases : sequence of Phase
    jumps : sequence of (dict or None)
        See `Problem`; with as many jumps as phases, the last one is from the last phase to the first.
    form : {"auto", "positions", "states", "staged"}
        "positions" eliminates states that the equations give, "states" does not; "auto" eliminates them if
        the phase's cost does not use them, "staged" is the form of FATROP.

    Attributes
    ----------
    phases : tuple of Phase
    layouts : tuple of PhaseLayout
    program : SeparableProgram
    lower, upper : (size,)
        Bounds of the unknowns.
    row_lower, row_upper : (rows,)
    step_names : list of tuple of str
        Names of the equations of a step, by phase.
    """

    def __init__(
        self, phases: Sequence[Phase], jumps: Sequence[Mapping[str, Any] | None], form: str = "auto"
    ):
        self.phases = tuple(phases)
        self.form = form
        self.given = Given()
        self.layouts: list[PhaseLayout] = []
        self._step_rows: list[list[int]] = []
        end = 0
        for i, phase in enumerate(phases):
            eq = phase.equations
            positions = form == "positions" or (form == "auto" and not phase.costs_eliminated)
            eliminated, solved = (eq.eliminated, eq.solved_rows) if positions else ((), ())
            self.layouts.append(PhaseLayout(phase, end, form == "staged", eliminated))
            self._step_rows.append([r for r in range(len(eq.names)) if r not in solved])
            end = self.layouts[-1].end
            self._parameters(i)
        self.step_names = [
            tuple(p.equations.names[r] for r in rows) for p, rows in zip(phases, self._step_rows, strict=True)
        ]
        self.blocks: list[FunctionBlock] = []
        self.next_blocks: dict[int, FunctionBlock] = {}  # used by the module `eliminated`
        for i in range(len(phases)):
            # a periodic problem also links the first phase to the last one
            linked = self._link(i, jumps[i - 1]) if i or len(jumps) == len(phases) else frozenset()
            self._phase(i, linked)
        order = self._staged_order() if form == "staged" else None
        self.program = SeparableProgram(self.blocks, end, self.given.size, order)
        self.lower, self.upper = self._bounds(end)
        self.row_lower = np.empty(self.program.rows)
        self.row_upper = np.empty(self.program.rows)
        for i, block in enumerate(self.blocks):
            rows = self.program.rows_of(i)
            self.row_lower[rows], self.row_upper[rows] = block.lower, block.upper

    # -- numerical values -----------------------------------------------------------------------

    def start_time(self, i: int) -> float:
        """Return the time of the first sample of phase i, s.

        The earlier phases must have given durations. Step k of a map with step length h (`OneStepMap.dt`)
        starts at k h, so the first phase starts at k0 h.
        """
        lengths = [p.length_limits[0] for p in self.phases]
        before = (p.steps * h for p, h in zip(self.phases[:i], lengths, strict=False))
        return self.phases[0].k0 * lengths[0] + sum(before)

    def given_values(self, smoothing: float = 0.0, pull: float = PULL) -> np.ndarray:
        """Return the parameter vector p of the nonlinear program.
        The contacts of each phase have the smoothing `smoothing`, m^2/s^2, or that of the phase's map if this
        is larger. With more smoothing, bodies at rest hover above the ground; the height under the typical
        acceleration of gravity `pull`, m/s^2, is the offset that is added to the gaps.
        """
        numbers: dict[tuple[int, str], Any] = {}
        for i, phase in enumerate(self.phases):
            numbers[i, "theta"] = phase.map.theta
            numbers[i, "h"] = phase.length_limits[0]
            numbers[i, "t0"] = self.start_time(i) if i else 0.0
            numbers[i, "k"] = np.arange(phase.steps + 1) + (0 if i else phase.k0)
            numbers[i, "data"] = phase.data
            numbers[i, "contacts"] = self.contacts(i, smoothing, pull)
            numbers[i, "delta"] = np.zeros((phase.steps, len(self.layouts[i].eliminated)))
        return self.given.values(numbers)

    def contacts(self, i: int, least: float = 0.0, pull: float = PULL) -> np.ndarray:
        """Return the smoothing of a phase's contacts, and the offset added to their gaps.
        The array is (2,), or (0,) without contacts.

        The smoothing is the larger of the map's own smoothing and `least`, m^2/s^2. If it is the map's own,
        the offset (give) is 0. Otherwise the offset is the height at which bodies hover under the typical
        acceleration of gravity `pull`, m/s^2.
        """
        step = self.phases[i].equations.relaxed
        if step is None:
            return np.zeros(0)
        smoothing = max(least, step.smoothing)
        return np.array([smoothing, (smoothing - step.smoothing) / pull])

    @property
    def own_smoothing(self) -> float | None:
        """Smallest contact smoothing of all maps; None without contact."""
        smoothings = [s for i in range(len(self.phases)) for s in self.contacts(i)[:1]]
        return min(smoothings, default=None)

    def unknowns_of(self, i: int) -> list[tuple[tuple[str, ...], np.ndarray, np.ndarray]]:
        """Return names, indices and masks of the variables of phase i.
        There are three such tuples: for states, for inputs, and for constraint multipliers with variables of
        contacts. The indices have a row for each sample; a mask is False where a state is eliminated from the
        program.
        """
        phase, layout = self.phases[i], self.layouts[i]
        f = phase.map
        inputs, others = np.ones(layout.U.shape, bool), np.ones(layout.L.shape, bool)
        return [
            (f.state_names, layout.X, layout.unknown),
            (tuple(f"u.{n}" for n in f.input_names), layout.U, inputs),
            (phase.equations.unknowns, layout.L, others),
        ]

    def names(self) -> tuple[list[str], list[str]]:
        """Return the names of all variables and of all constraints, each with its sample."""
        unknowns, rows = [""] * self.program.size, [""] * self.program.rows
        for p, (phase, layout) in enumerate(zip(self.phases, self.layouts, strict=True)):
            inner = tuple(f"implicit.{j}" for j in range(phase.quantities))
            kinds = [kind[:2] for kind in self.unknowns_of(p)]
            for labels, index in ((phase.map.state_names, layout.W), *kinds, (inner, layout.V)):
                for (k, j), i in np.ndenumerate(index):
                    if i >= 0:
                        unknowns[i] = f"{labels[j]} at k = {k + (index is layout.W)}"
            if layout.H is not None:
                for i in layout.H:
                    unknowns[i] = "duration"
        for b, block in enumerate(self.blocks):
            for (k, j), i in np.ndenumerate(self.program.rows_of(b)):
                rows[i] = f"{block.names[j]} at k = {block.samples[k]}"
        return unknowns, rows

    def _parameters(self, i: int) -> None:
        phase = self.phases[i]
        for name, shape in (
            ("theta", (len(phase.map.parameters),)),
            ("h", (1,)),
            ("t0", (1,)),
            ("k", (phase.steps + 1, 1)),
            ("data", phase.data.shape),
            ("contacts", self.contacts(i).shape),
            ("delta", (phase.steps, len(self.layouts[i].eliminated))),  # always 0; used for derivatives
        ):
            self.given.add(i, name, shape)

    def _bounds(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        low, high = np.full(size, -np.inf), np.full(size, np.inf)
        for i, (phase, layout) in enumerate(zip(self.phases, self.layouts, strict=True)):
            pairs = phase.state_limits, phase.input_limits, phase.unknown_limits
            for (_, index, known), pair in zip(self.unknowns_of(i), pairs, strict=True):
                low[index[known]], high[index[known]] = (side[known] for side in pair)
            if layout.H is not None:
                low[layout.H], high[layout.H] = phase.length_limits
        return low, high

    def _staged_order(self) -> np.ndarray:
        """Return the order of the constraints for the solver FATROP.
        They are sorted by sample. The constraints of each sample begin with those on the next state.
        """
        keys = [
            np.stack(np.broadcast_arrays(b.samples[:, None], b.stage, np.arange(b.rows)), -1).reshape(-1, 3)
            for b in self.blocks
        ]
        samples, stage, _ = np.concatenate(keys).T
        return np.lexsort((np.arange(len(samples)), stage, samples))

    # -- blocks ---------------------------------------------------------------------------------

    def _add(
        self,
        i: int,
        build: Callable[[Stencil, SampleSymbols], tuple[Any, Any]],
        samples: Any,
        names: Sequence[str] = (),
        lower: Any = 0.0,
        upper: Any = 0.0,
        stage: int = REST,
        kind: Any = ca.SX,
    ) -> None:
        """Add a function to the nonlinear program, for a cost and constraints.
        The program evaluates this function at the given samples of phase i.

        `build` is called with the stencil and the symbols of the sample, and returns the cost and the
        constraints. If they need eliminated components of the state, the first sample is a separate block.
        """
        samples = np.asarray(samples)
        lower, upper = (np.broadcast_to(side, (len(samples), len(names))) for side in (lower, upper))

        def make(sample: int | None) -> tuple[Stencil, ca.Function, bool] | None:
            stencil = Stencil(self, kind, sample)
            cost, rows = build(stencil, stencil.node(i))
            costs = not cost.is_zero()
            return (stencil, stencil.function(cost, rows), costs) if costs or rows.numel() else None

        general = make(None)
        if general is None:
            return
        early = samples + general[0].reach < 0
        for which, parts in ((early, make(0) if early.any() else None), (~early, general)):
            if parts is not None and which.any():
                stencil, function, costs = parts
                places, limits = samples[which], (lower[which].copy(), upper[which].copy())
                index, given = stencil.index(places), stencil.given_index(places)
                self.blocks.append(
                    FunctionBlock(function, index, given, tuple(names), places, *limits, i, costs, stage)
                )

    def _phase(self, i: int, linked: frozenset[str]) -> None:
        phase = self.phases[i]
        if i and phase.equations.uses_time and any(p.free_duration for p in self.phases[:i]):
            raise ValueError(f"{phase!r}: its map depends on time, and an earlier phase has a free duration")
        before = self.start_time(i) / phase.length_limits[0]
        if i and phase.equations.uses_time and abs(before - round(before)) > 1e-6:
            raise ValueError(
                f"{phase!r}: its map depends on time, and it starts after {before:.6g} of its steps; "
                "choose steps so that it is a whole number"
            )
        self._steps(i)
        self._gaps(i)
        self._quantities(i)
        offset = 0 if phase.cost is None else phase.cost.reference_size
        groups: dict[tuple[str, bool], list[tuple[PathConstraint, int]]] = {}
        for c in phase.rows:
            key = (c.where, c.where == "path" and c.by_step(phase.map))
            groups.setdefault(key, []).append((c, offset))
            offset += c.symbols().numel()
        for (where, by_step), members in groups.items():
            self._rows(i, where, by_step, members)
        self._state_limits(i)
        self._terminal(i)
        self._consistent_start(i, linked)
        n = phase.steps
        if phase.rate_limits and n > 1:
            self._rates(i)
        if phase.shifts:
            self._periodic(i)

    def _periodic(self, i: int) -> None:
        """Add the constraints on periodic states.
        The last value equals the first one, plus a prescribed shift.

        If a state with quaternions is periodic as a whole and without shift, the error between its last and
        first value must be 0 instead, since q and -q are the same attitude. The first quaternions must then
        have norm 1, which steps preserve.
        """
        phase, n = self.phases[i], self.phases[i].steps
        f, states, shift = phase.map, list(phase.shifts), np.array(list(phase.shifts.values()))
        names, units = [f"periodic.{f.state_names[s]}" for s in states], list[int]()
        errors = bool(f.space.quaternions) and len(states) == f.nx and not shift.any()
        if errors:
            units = [j for j in f.space.quaternions if not phase.fixed_start[j : j + 4].all()]
            names = [f"periodic.{name}" for name in f.space.error_names]
            names += [f"unit.{f.state_names[j]}" for j in units]
            shift = np.zeros(len(names))

        def rows(stencil: Stencil, node: SampleSymbols) -> tuple[Any, Any]:
            first, last = stencil.fixed(i, 0).x, stencil.fixed(i, n).x
            if not errors:
                return ca.SX(0), last[states] - first[states]
            norms = [ca.sumsqr(first[j : j + 4]) - 1 for j in units]
            return ca.SX(0), ca.vertcat(f.space.difference_expression(first, last), *norms)

        self._add(i, rows, [0], names, shift, shift)

    def _steps(self, i: int) -> None:
        """Add the step equations of a phase, and its running cost, to the program.
        The equations and the cost are separate functions of the program, so that fewer derivatives are
        needed.
        """
        phase, layout = self.phases[i], self.layouts[i]
        eq, n = phase.equations, phase.steps
        which, names = self._step_rows[i], self.step_names[i]

        def after(stencil: Stencil, node: SampleSymbols) -> Any:
            return node.w if layout.staged else stencil.node(i, 1).x

        def rows(stencil: Stencil, node: SampleSymbols) -> tuple[Any, Any]:
            args = node.x, node.u, after(stencil, node), node.unknowns, node.t, node.h, node.theta
            return stencil.kind(0), eq.residual(*args, node.contacts)[which]

        def cost(stencil: Stencil, node: SampleSymbols) -> tuple[Any, Any]:
            x1 = None if phase.quadrature == "left" else after(stencil, node)
            return self._running(i, stencil, node, x1), ca.SX(0, 1)

        lower = np.zeros((n, len(names)))
        upper = lower.copy()
        loose = self._given_end_rows(i)  # no unknown can change constraints on a given end
        lower[-1, loose], upper[-1, loose] = -np.inf, np.inf
        kind = ca.SX if eq.function.is_a("SXFunction") else ca.MX
        self._add(i, rows, np.arange(n), names, lower, upper, kind=kind)
        if phase.cost is not None:
            self._add(i, cost, np.arange(n))

    def _running(self, i: int, stencil: Stencil, node: SampleSymbols, x1: Any) -> ca.SX:
        phase = self.phases[i]
        assert phase.cost is not None
        c = phase.cost
        width = c.reference_size
        x, u, lam, h, theta = node.x, node.u, node.multipliers, node.h, node.theta
        now = node.data[:width]

        def running_cost(state: ca.SX, data: ca.SX, place: SampleSymbols) -> ca.SX:
            lifts = c.lifts[0] and phase.quadrature != "midpoint"
            return c.running_at(state, u, lam, theta, h, data, *[place.quantities] * lifts)

        weight = h if c.per_time else 1
        if phase.quadrature == "left":
            return weight * running_cost(x, now, node)
        after = stencil.node(i, 1)
        later = after.data[:width]
        if phase.quadrature == "midpoint":
            return weight * running_cost((x + x1) / 2, (now + later) / 2, node)
        return weight * (running_cost(x, now, node) + running_cost(x1, later, after)) / 2

    def _gaps(self, i: int) -> None:
        """Add constraints that connect successive steps, for the solver FATROP.
        They are x[k+1] = w[k], where w[k] is the state at the end of step k, and x[k+1] that at the start of
        the next step. If step lengths are free, other constraints make them equal.
        """
        phase, layout = self.phases[i], self.layouts[i]
        if not layout.staged:
            return

        def rows(stencil: Stencil, node: SampleSymbols) -> tuple[Any, Any]:
            after = stencil.node(i, 1)
            gap = after.x - node.w
            return ca.SX(0), gap if layout.H is None else ca.vertcat(gap, after.h - node.h)

        names = [f"gap.{n}" for n in phase.map.state_names] + ["gap.step"] * (layout.H is not None)
        self._add(i, rows, np.arange(phase.steps), names, stage=GAP)

    def _quantities(self, i: int) -> None:
        """Add the equations of those velocities that are variables of the program.
        These linear equations determine the velocities from the state.
        """
        phase, inner = self.phases[i], self.phases[i].map.mechanism.implicit
        samples = np.flatnonzero((self.layouts[i].V >= 0).any(axis=1))
        if inner is None or not len(samples):
            return

        def rows(stencil: Stencil, node: SampleSymbols) -> tuple[Any, Any]:
            return ca.SX(0), phase.implicit_rows(node.x, node.theta, node.quantities)

        self._add(i, rows, samples, [f"implicit.{j}" for j in range(phase.quantities)])

    def _rows(self, i: int, where: str, by_step: bool, members: list[tuple[PathConstraint, int]]) -> None:
        """Add the constraints `members` of phase i to the nonlinear program.
        All of them hold at the same samples.
        """
        phase = self.phases[i]
        f, n = phase.map, phase.steps
        samples = {"start": np.array([0]), "end": np.array([n]), "path": np.arange(n + (not by_step))}[where]

        def rows(stencil: Stencil, node: SampleSymbols) -> tuple[Any, Any]:
            u, lam, h = ca.SX.zeros(f.nu), ca.SX.zeros(len(f.multiplier_names)), ca.SX(0)
            if by_step:
                u, lam, h = node.u, node.multipliers, node.h
            terms = []
            for c, offset in members:
                reference = c.symbols()
                lifted = None if where == "start" else phase.lifted(c)
                inner = f.mechanism.implicit.w if f.mechanism.implicit and lifted is not None else ca.SX(0, 1)
                expression = c.expression if lifted is None else lifted
                g = ca.Function("g", [*f.symbols, reference, inner], [expression], {"allow_free": False})
                data = node.data[offset : offset + reference.numel()]
                extra = node.quantities if inner.numel() else inner
                terms.append(g(node.x, u, lam, node.theta, h, data, extra))
            return ca.SX(0), ca.vertcat(*terms)

        limits = [phase.row_limits(c) for c, _ in members]
        lower, upper = (np.hstack(sides) for sides in zip(*limits, strict=True))
        self._add(i, rows, samples, [name for c, _ in members for name in c.row_names], lower, upper)

    def _state_limits(self, i: int) -> None:
        """Add constraints for the limits of states that the program does not contain.
        These states are eliminated from the nonlinear program. The limits include values that are prescribed
        at the end of the phase.
        """
        phase, layout = self.phases[i], self.layouts[i]
        low, high = phase.state_limits
        groups: dict[tuple[int, ...], list[int]] = {}
        for j in layout.eliminated:
            limited = np.isfinite(low[:, j]) | np.isfinite(high[:, j])
            limited[0] = False
            groups.setdefault(tuple(np.flatnonzero(limited)), []).append(j)
        for samples, columns in groups.items():
            if samples:
                names, which = [phase.map.state_names[j] for j in columns], np.ix_(samples, columns)
                rows = partial(_entries, columns)
                self._add(i, rows, samples, names, low[which], high[which])

    def _terminal(self, i: int) -> None:
        phase = self.phases[i]
        c, f = phase.cost, phase.map
        if c is None:
            return
        zero = ca.SX.zeros(f.nu), ca.SX.zeros(len(f.multiplier_names))

        def cost(stencil: Stencil, node: SampleSymbols) -> tuple[Any, Any]:
            data = node.data[: c.reference_size]
            extra = [node.quantities] * c.lifts[1]
            return c.terminal_at(node.x, *zero, node.theta, 0, data, *extra), ca.SX(0, 1)

        self._add(i, cost, [phase.steps])

    def _rates(self, i: int) -> None:
        """Add the limits of the inputs' rates to the nonlinear program.
        The rate in step k is (u[k+1] - u[k]) / h, with the step length h.
        """
        phase = self.phases[i]
        names, n = phase.map.input_names, phase.steps
        which = list(phase.rate_limits)

        def rows(stencil: Stencil, node: SampleSymbols) -> tuple[Any, Any]:
            return ca.SX(0), (stencil.node(i, 1).u[which] - node.u[which]) / node.h

        low, high = np.array(list(phase.rate_limits.values())).T
        self._add(i, rows, np.arange(n - 1), [f"rate.{names[j]}" for j in which], low, high)

    # -- ends of constrained mechanisms ---------------------------------------------------------

    def _given_end_rows(self, i: int) -> list[int]:
        """Return the indices of equations h(x_N) = 0 that a given final state determines.
        h are the holonomic constraints, and the equations belong to the last step.
        """
        phase = self.phases[i]
        constraints = holonomic_constraints(phase.map) if phase.unknowns else []
        given = {n for n, fixed in zip(phase.map.state_names, phase.fixed_end, strict=True) if fixed}
        names = self.step_names[i]
        settled = [f"h.{c.name}" for c in constraints if c.states <= given]
        return [names.index(row) for row in settled if row in names]

    def _consistent_start(self, i: int, linked: frozenset[str]) -> None:
        """Add the holonomic constraints on a partly free initial state.
        They are h(q_0) = 0 for the initial configuration q_0 and Dh(q_0) p_0 = 0 for the initial momentum
        p_0, with the constraint function h and its Jacobian Dh. Constraints that the given states already
        imply are omitted.
        """
        phase = self.phases[i]
        f = phase.map
        given = {n for n, fixed in zip(f.state_names, phase.fixed_start, strict=True) if fixed}
        given |= {f.state_names[j] for j in phase.shifts}
        before = frozenset(self.phases[i - 1].map.multiplier_names) if i or linked else frozenset()
        rows = loose_start(f, given, linked=linked, before=before) if phase.unknowns else {}
        if rows:
            e = ca.Function("start", [f.symbols.x, f.symbols.parameters], [ca.vertcat(*rows.values())])
            self._add(i, lambda stencil, node: (ca.SX(0), e(node.x, node.theta)), [0], [*rows])

    # -- joints between phases ------------------------------------------------------------------

    def _link(self, i: int, jump: Mapping[str, Any] | None) -> frozenset[str]:
        """Add the equations that connect the first state of phase i to the previous phase.
        The first state equals the last state of the previous phase, after a jump if there is one. The names
        of the states in these equations are returned.

        The phase before the first one is the last one.
        """
        before, after = self.phases[i - 1].map, self.phases[i].map
        jump = dict(jump or {})
        values = {n: before.symbols.x[before.state_names.index(n)] for n in before.state_names}
        values = {n: jump.get(n, values.get(n)) for n in after.state_names}
        values = {n: v for n, v in values.items() if v is not None}
        x, theta = before.symbols.x, before.symbols.parameters
        target = ca.Function("jump", [x, theta], [ca.vertcat(*(ca.SX(v) for v in values.values()))])
        columns = [after.state_names.index(n) for n in values]

        def rows(stencil: Stencil, node: SampleSymbols) -> tuple[Any, Any]:
            end = stencil.fixed(last, self.phases[last].steps)
            return ca.SX(0), stencil.fixed(i, 0).x[columns] - target(end.x, end.theta)

        last = (i - 1) % len(self.phases)
        self._add(last, rows, [0], [f"joint.{n}" for n in values])
        return frozenset(values)


def _entries(columns: list[int], stencil: Stencil, node: SampleSymbols) -> tuple[Any, Any]:
    return ca.SX(0), node.x[columns]
