"""From phases to a partially separable program. docs/maths/dmoc.md."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import casadi as ca
import numpy as np

from vioc.control.dmoc.constraints import Constraint
from vioc.control.dmoc.equations import constraint_values
from vioc.control.dmoc.layout import Given, Layout
from vioc.control.dmoc.phase import Phase
from vioc.control.dmoc.separable import Block, Program

GAP, REST = 0, 1


class Transcription:
    """The program of some phases.

    Attributes
    ----------
    phases : tuple of Phase
    layouts : tuple of Layout
    program : Program
    lower, upper : (size,)
        Bounds of the unknowns.
    row_lower, row_upper : (rows,)
    """

    def __init__(
        self, phases: Sequence[Phase], jumps: Sequence[Mapping[str, Any] | None], staged: bool = False
    ):
        self.phases = tuple(phases)
        self.given = Given()
        self.layouts: list[Layout] = []
        end = 0
        for phase in phases:
            self.layouts.append(Layout(phase, end, staged))
            end = self.layouts[-1].end
        self.blocks: list[Block] = []
        for i in range(len(phases)):
            linked = self._link(i, jumps[i - 1]) if i else frozenset()
            self._phase(i, linked)
        order = self._staged_order() if staged else None
        self.program = Program(self.blocks, end, self.given.size, order)
        self.lower, self.upper = self._bounds(end)
        self.row_lower = np.empty(self.program.rows)
        self.row_upper = np.empty(self.program.rows)
        for i, block in enumerate(self.blocks):
            rows = self.program.rows_of(i)
            self.row_lower[rows], self.row_upper[rows] = block.lower, block.upper

    # -- numbers --------------------------------------------------------------------------------

    def start_time(self, i: int) -> float:
        """t of the first sample of phase i, s, where the durations before it are given.

        A step k of a map starts at k h (`OneStepMap.dt`), so the first phase starts at k0 h.
        """
        lengths = [p.length_limits[0] for p in self.phases]
        before = (p.steps * h for p, h in zip(self.phases[:i], lengths, strict=False))
        return self.phases[0].k0 * lengths[0] + sum(before)

    def given_values(self) -> np.ndarray:
        """The parameter vector p of the program."""
        numbers: dict[tuple[int, str], Any] = {}
        for i, phase in enumerate(self.phases):
            numbers[i, "theta"] = list(phase.map.parameters.values())
            numbers[i, "h"] = phase.length_limits[0]
            numbers[i, "t0"] = self.start_time(i) if i else 0.0
            numbers[i, "k"] = np.arange(phase.steps + 1) + (0 if i else phase.k0)
            numbers[i, "data"] = phase.data
        return self.given.values(numbers)

    def _bounds(self, size: int) -> tuple[np.ndarray, np.ndarray]:
        low, high = np.full(size, -np.inf), np.full(size, np.inf)
        for phase, at in zip(self.phases, self.layouts, strict=True):
            for index, pair in (
                (at.X, phase.state_limits),
                (at.U, phase.input_limits),
                (at.L, phase.multiplier_limits),
            ):
                low[index], high[index] = pair
            if at.H is not None:
                low[at.H], high[at.H] = phase.length_limits
        return low, high

    def _staged_order(self) -> np.ndarray:
        """Rows by sample, the gap first."""
        keys = [
            np.stack(np.broadcast_arrays(b.samples[:, None], b.stage, np.arange(b.rows)), -1).reshape(-1, 3)
            for b in self.blocks
        ]
        samples, stage, _ = np.concatenate(keys).T
        return np.lexsort((np.arange(len(samples)), stage, samples))

    # -- blocks ---------------------------------------------------------------------------------

    def _add(self, i: int, local: _Local, cost: Any, rows: Any, names, samples, lower, upper, stage=REST):
        shape = (len(samples), rows.numel())
        function = ca.Function("block", [local.v, local.p], [cost, rows], {"cse": True})
        self.blocks.append(
            Block(
                function,
                local.index(samples),
                local.given(samples),
                tuple(names),
                np.asarray(samples),
                np.broadcast_to(lower, shape).copy(),
                np.broadcast_to(upper, shape).copy(),
                i,
                not (isinstance(cost, type(local.v)) and cost.is_zero()),
                stage,
            )
        )

    def _phase(self, i: int, linked: frozenset[str]) -> None:
        phase, at = self.phases[i], self.layouts[i]
        if i and phase.equations.uses_time and any(p.free_duration for p in self.phases[:i]):
            raise ValueError(f"{phase!r}: its map depends on time, and an earlier phase has a free duration")
        before = self.start_time(i) / phase.length_limits[0]
        if i and phase.equations.uses_time and abs(before - round(before)) > 1e-6:
            raise ValueError(
                f"{phase!r}: its map depends on time, and it starts after {before:.6g} of its steps; "
                "choose steps so that it is a whole number"
            )
        for name, shape in (
            ("theta", (len(phase.map.parameters),)),
            ("h", (1,)),
            ("t0", (1,)),
            ("k", (phase.steps + 1, 1)),
            ("data", phase.data.shape),
        ):
            self.given.add(i, name, shape)
        self._steps(i)
        self._gaps(i)
        offset = 0 if phase.cost is None else phase.cost.reference_size
        groups: dict[tuple[str, bool], list[tuple[Constraint, int]]] = {}
        for c in phase.rows:
            key = (c.where, c.where == "path" and c.by_step(phase.map))
            groups.setdefault(key, []).append((c, offset))
            offset += c.symbols().numel()
        for (where, by_step), members in groups.items():
            self._rows(i, where, by_step, members)
        self._terminal(i)
        self._consistent_start(i, linked)
        n = phase.steps
        if phase.rate_limits and n > 1:
            self._rates(i)
        if phase.shifts:
            states = np.array(list(phase.shifts), int)
            local = _Local(ca.SX, self, i, [("first", at.X[:1, states]), ("last", at.X[-1:, states])])
            rows = local["last"] - local["first"]
            names = [f"periodic.{phase.map.state_names[s]}" for s in states]
            shift = np.array(list(phase.shifts.values()))
            self._add(i, local, ca.SX(0), rows, names, [0], shift, shift)

    def _steps(self, i: int) -> None:
        """The equations of each step, and the running cost beside them: each has less to differentiate."""
        phase, at = self.phases[i], self.layouts[i]
        eq, n = phase.equations, phase.steps
        kind = ca.SX if eq.function.is_a("SXFunction") else ca.MX
        unknowns = [("x", at.X[:-1]), ("u", at.U), ("lam", at.L), ("x1", at.W)]
        local = _Local(kind, self, i, unknowns, ["theta", "t0", "k"])
        x, u, lam, x1, h, theta = (local[s] for s in ("x", "u", "lam", "x1", "h", "theta"))
        t = local["t0"] + local["k"] * h if eq.uses_time else kind.zeros(1)
        rows = eq.function(x, u, x1, lam, t, h, theta)
        lower = np.zeros((n, rows.numel()))
        upper = lower.copy()
        loose = self._given_end_rows(phase)  # constraints at an end that is given: satisfied or not
        lower[-1, loose], upper[-1, loose] = -np.inf, np.inf
        self._add(i, local, kind(0), rows, eq.names, np.arange(n), lower, upper)
        if phase.cost is None:
            return
        ahead = phase.quadrature != "left"
        local = _Local(
            ca.SX, self, i, unknowns if ahead else unknowns[:3], ["theta", "data"] + ["data1"] * ahead
        )
        self._add(i, local, self._running(phase, local), ca.SX(0, 1), (), np.arange(n), 0.0, 0.0)

    @staticmethod
    def _running(phase: Phase, local: _Local) -> ca.SX:
        assert phase.cost is not None
        c, nm = phase.cost, len(phase.map.multiplier_names)
        width = c.reference_size
        x, u, h, theta = (local[name] for name in ("x", "u", "h", "theta"))
        lam = local["lam"] if local["lam"].numel() == nm else ca.SX.zeros(nm)
        now = local["data"][:width]

        def at(state: ca.SX, data: ca.SX) -> ca.SX:
            return c.running_at(state, u, lam, theta, h, data)

        weight = h if c.per_time else 1
        if phase.quadrature == "left":
            return weight * at(x, now)
        x1, after = local["x1"], local["data1"][:width]
        if phase.quadrature == "midpoint":
            return weight * at((x + x1) / 2, (now + after) / 2)
        return weight * (at(x, now) + at(x1, after)) / 2

    def _gaps(self, i: int) -> None:
        """x[k+1] = w[k], and equal step lengths, of a staged program."""
        phase, at = self.phases[i], self.layouts[i]
        if not at.staged:
            return
        names = [f"gap.{n}" for n in phase.map.state_names]
        unknowns = [("w", at.W), ("x1", at.X[1:])]
        if at.H is not None:
            names.append("gap.step")
            unknowns = [
                ("w", np.hstack([at.W, at.H[:-1, None]])),
                ("x1", np.hstack([at.X, at.H[:, None]])[1:]),
            ]
        local = _Local(ca.SX, self, i, unknowns, length=False)
        samples = np.arange(phase.steps)
        self._add(i, local, ca.SX(0), local["x1"] - local["w"], names, samples, 0.0, 0.0, GAP)

    def _rows(self, i: int, where: str, by_step: bool, members: list[tuple[Constraint, int]]) -> None:
        """Constraints with the same samples."""
        phase, at = self.phases[i], self.layouts[i]
        f, n = phase.map, phase.steps
        samples = {"start": np.array([0]), "end": np.array([n]), "path": np.arange(n + (not by_step))}[where]
        unknowns = [("x", at.X), ("u", at.U), ("lam", at.L)] if by_step else [("x", at.X)]
        local = _Local(ca.SX, self, i, unknowns, ["theta", "data"])
        zero = [ca.SX.zeros(f.nu), ca.SX.zeros(len(f.multiplier_names))]
        u, lam = (local["u"], local["lam"]) if by_step else zero
        if lam.numel() != len(f.multiplier_names):
            lam = zero[1]
        rows: list[ca.SX] = []
        names: list[str] = []
        lows, highs = [], []
        for c, offset in members:
            reference = c.symbols()
            g = ca.Function("g", [*f.symbols, reference], [c.expression], {"allow_free": False})
            data = local["data"][offset : offset + reference.numel()]
            rows.append(g(local["x"], u, lam, local["theta"], local["h"] if by_step else 0, data))
            names += c.row_names
            low, high = phase.row_limits(c)
            lows.append(low)
            highs.append(high)
        lower, upper = np.hstack(lows), np.hstack(highs)
        self._add(i, local, ca.SX(0), ca.vertcat(*rows), names, samples, lower, upper)

    def _terminal(self, i: int) -> None:
        phase, at = self.phases[i], self.layouts[i]
        c, f = phase.cost, phase.map
        if c is None:
            return
        local = _Local(ca.SX, self, i, [("x", at.X)], ["theta", "data"], length=False)
        zero = [ca.SX.zeros(f.nu), ca.SX.zeros(len(f.multiplier_names))]
        cost = c._terminal(local["x"], *zero, local["theta"], 0, local["data"][: c.reference_size])
        self._add(i, local, cost, ca.SX(0, 1), (), [phase.steps], 0.0, 0.0)

    def _rates(self, i: int) -> None:
        """lower h <= u[k+1] - u[k] <= upper h."""
        phase, at = self.phases[i], self.layouts[i]
        names, n = phase.map.input_names, phase.steps
        which = np.array(list(phase.rate_limits), int)
        local = _Local(ca.SX, self, i, [("u", at.U[:-1, which]), ("u1", at.U[1:, which])])
        rate = (local["u1"] - local["u"]) / local["h"]
        low, high = np.array(list(phase.rate_limits.values())).T
        labels = [f"rate.{names[j]}" for j in which]
        self._add(i, local, ca.SX(0), rate, labels, np.arange(n - 1), low, high)

    # -- ends of constrained mechanisms ---------------------------------------------------------

    def _given_end_rows(self, phase: Phase) -> list[int]:
        """Rows h(x_N) = 0 that only depend on what is given at the end."""
        _, depends = constraint_values(phase.map) if phase.multipliers else ([], [])
        given = {n for n, fixed in zip(phase.map.state_names, phase.fixed_end, strict=True) if fixed}
        names = phase.equations.names
        settled = [c for c, d in zip(phase.map.multiplier_names, depends, strict=False) if d <= given]
        return [names.index(f"h.{c}") for c in settled if f"h.{c}" in names]

    def _consistent_start(self, i: int, linked: frozenset[str]) -> None:
        """h(q_0) = 0 and Dh(q_0) p_0 = 0 where a free start leaves them open."""
        phase, at = self.phases[i], self.layouts[i]
        f = phase.map
        given = {n for n, fixed in zip(f.state_names, phase.fixed_start, strict=True) if fixed}
        given |= {f.state_names[j] for j in phase.shifts}
        before = set(self.phases[i - 1].map.multiplier_names) if i else set()
        h, depends = constraint_values(f) if phase.multipliers else ([], [])
        x, rows, names = f.symbols.x, [], []
        for name, value, states in zip(f.multiplier_names, h, depends, strict=False):
            carried = name in before and states <= linked
            if not (states <= given or carried):
                rows.append(value)
                names.append(f"initial h.{name}")
            momenta = {f"p.{s}" for s in states if f"p.{s}" in f.state_names}
            if momenta and not momenta & (given | linked):
                slopes = ca.jacobian(value, x)
                pairs = [(f.state_names.index(p[2:]), f.state_names.index(p)) for p in sorted(momenta)]
                rows.append(sum((slopes[q] * x[p] for q, p in pairs), ca.SX(0)))
                names.append(f"initial momentum across {name}")
        if not rows:
            return
        local = _Local(ca.SX, self, i, [("x", at.X)], ["theta"], length=False)
        e = ca.Function("start", [x, f.symbols.parameters], [ca.vertcat(*rows)])
        self._add(i, local, ca.SX(0), e(local["x"], local["theta"]), names, [0], 0.0, 0.0)

    # -- joints between phases ------------------------------------------------------------------

    def _link(self, i: int, jump: Mapping[str, Any] | None) -> frozenset[str]:
        """x_0 of phase i from the last state of the one before; the names that it determines."""
        before, after = self.phases[i - 1].map, self.phases[i].map
        jump = dict(jump or {})
        unknown = [n for n in jump if n not in after.state_names]
        if unknown:
            raise ValueError(f"jump into phase {i}: unknown state {unknown[0]!r}")
        values = {n: before.symbols.x[before.state_names.index(n)] for n in before.state_names}
        values = {n: jump.get(n, values.get(n)) for n in after.state_names}
        values = {n: v for n, v in values.items() if v is not None}
        x, theta = before.symbols.x, before.symbols.parameters
        target = ca.Function("jump", [x, theta], [ca.vertcat(*(ca.SX(v) for v in values.values()))])
        columns = [after.state_names.index(n) for n in values]
        unknowns = [("x", self.layouts[i - 1].X[-1:]), ("x0", self.layouts[i].X[:1, columns])]
        local = _Local(ca.SX, self, i - 1, unknowns, ["theta"], length=False)
        rows = local["x0"] - target(local["x"], local["theta"])
        names = [f"joint.{n}" for n in values]
        self._add(i, local, ca.SX(0), rows, names, [0], 0.0, 0.0)
        return frozenset(values)


class _Local:
    """The symbols of a block and where their values come from.

    Parameters
    ----------
    kind : SX or MX
    owner : Transcription
    phase : int
    unknowns : list of (name, (rows, size) int)
        Tables by sample; a table with one row serves all samples.
    data : list of str
        Sections of the parameter vector: "theta", "t0", "k", "data", "data1" (of the next sample).
    length : bool
        Whether the step length "h" is among the symbols.
    """

    def __init__(self, kind, owner: Transcription, phase: int, unknowns, data=(), length: bool = True):
        at, given = owner.layouts[phase], owner.given
        data = list(data)
        unknowns = list(unknowns)
        if length and at.H is not None:
            unknowns.append(("h", at.H[:, None]))
        elif length:
            data.append("h")
        self._unknowns = [table for _, table in unknowns]
        self._data: list[tuple[np.ndarray, int]] = []
        self._symbols = {}
        v = [kind.sym(name, table.shape[1]) for name, table in unknowns]
        p = []
        for name in data:
            index = given.index(phase, name.rstrip("1"))
            table = index[None] if index.ndim == 1 else index
            self._data.append((table, int(name.endswith("1"))))
            p.append(kind.sym(name, table.shape[1]))
        if kind is ca.MX:  # an MX function's input is one symbol
            self.v = ca.MX.sym("v", sum(s.numel() for s in v))
            self.p = ca.MX.sym("p", sum(s.numel() for s in p))
            v, p = (_split(whole, parts) for whole, parts in ((self.v, v), (self.p, p)))
        else:
            self.v, self.p = (ca.vertcat(ca.SX(0, 1), *parts) for parts in (v, p))
        for (name, _), s in zip(unknowns, v, strict=True):
            self._symbols[name] = s
        for name, s in zip(data, p, strict=True):
            self._symbols[name] = s

    def __getitem__(self, name: str) -> Any:
        return self._symbols[name]

    def index(self, samples: Any) -> np.ndarray:
        return _rows_at([(table, 0) for table in self._unknowns], samples)

    def given(self, samples: Any) -> np.ndarray:
        return _rows_at(self._data, samples)


def _split(whole: Any, parts: list[Any]) -> list[Any]:
    edges = np.concatenate([[0], np.cumsum([s.numel() for s in parts])]).astype(int)
    return [whole[a:b] for a, b in pairwise(edges)]


def _rows_at(tables: list[tuple[np.ndarray, int]], samples: Any) -> np.ndarray:
    """The tables' rows of each sample, side by side (samples, total)."""
    samples = np.asarray(samples, int)
    columns = [np.empty((len(samples), 0), int)]
    for table, ahead in tables:
        columns.append(table[(samples + ahead) if len(table) > 1 else np.zeros(len(samples), int)])
    return np.hstack(columns)
