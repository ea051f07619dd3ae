"""The compiled core: a generated C function for each kind of body, constraint and pivot, and tables.

The same functions make the kernel of the virtual machine; here they read and write one array of doubles in
place, so that code does not grow with the mechanism and a step's time grows linearly.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import casadi as ca
import numpy as np

from vioc.dynamics.integrators.maximal.step import PAST, STATE, StepGraph
from vioc.dynamics.integrators.maximal.terms import POSE, TWIST
from vioc.dynamics.lagrangian import OPTIONS

CALL, ADD, ZERO = range(3)
PLUS, MINUS, BY_HALF_DT, BY_MINUS_HALF_DT = range(4)
TAPES = ("start", "begin", "leave", "solve", "rest", "after")


class Block(NamedTuple):
    """A matrix in the array: its place and pattern."""

    place: int
    pattern: ca.Sparsity


class Tape:
    """The tables of one end of a step, and the array that they work on.

    Parameters
    ----------
    graph : StepGraph
    nu : int
    departure : Tape, optional
        Makes this the tape of the arrival of what that one has left; they share their functions.

    Notes
    -----
    The carry of a departure is that of `kernel.build_kernel`; of an arrival, the positions, quaternions and
    momenta with which the step ends, as the departure's `after` has them.
    """

    def __init__(self, graph: StepGraph, nu: int, departure: Tape | None = None):
        self.graph, self.nu = graph, nu
        self.size = 0
        self.functions: list[ca.Function] = [] if departure is None else departure.functions
        self._known: dict[int, int] = {} if departure is None else departure._known
        self.codes: dict[str, list[int]] = {name: [] for name in TAPES}
        self.index: list[int] = []
        self._numbers: dict[str, int] = {}
        self.constants: list[tuple[int, np.ndarray]] = []  # of the array, from the start
        self._code = self.codes["start"]
        n, rows = graph.n, len(graph.names)
        more = 1 + PAST if departure is None else 1
        self.carry, self.u, self.t, self.dt, self.theta = (
            self.new(size) for size in ((STATE + TWIST * more) * n, nu, 1, 1, graph.terms.parameters.numel())
        )
        self.V, self.dV, self.left = (self.new(TWIST * n) for _ in range(3))
        self.poses, self.base, self.rest = (self.new(s * n) for s in (POSE, TWIST, TWIST))
        self.after = self.new((STATE + TWIST) * n)
        self.found, self.values = self.new(rows), self.new(rows)
        touches, sizes = graph.touches, [t.cone.size for t in graph.touches]
        self.parts = [0, *map(int, np.cumsum(sizes))]
        self.counts = [  # rows of each touch: mismatches, products, multipliers
            [t.geometry.pushed.size1_out(len(t.bodies) + i) for t in touches] for i in range(3)
        ]
        self.multipliers = self.new(rows + sum(self.counts[2]))
        self.mismatch, self.products = self.new(sum(self.counts[0])), self.new(sum(self.counts[1]))
        self.y, self.dy, self.fresh = (self.new(self.parts[-1]) for _ in range(3))
        self.gaps, self.kappa, self.speed = self.new(len(touches)), self.new(2), self.new(1)
        self._columns = ca.Sparsity.dense(TWIST * n, 1)
        self._environment = [self.u, self.t, self.theta]
        if departure is None:
            self._write_departure()
        else:
            self._write_arrival()

    def new(self, size: int) -> int:
        """A place for numbers in the array."""
        place, self.size = self.size, self.size + size
        return place

    def call(self, function: ca.Function, inputs: list[int], outputs: list[int | None]) -> list[Block]:
        """Call a kernel on places; outputs without one get one."""
        if id(function) not in self._known:
            self._known[id(function)] = len(self.functions)
            self.functions.append(function)
        blocks = []
        for i, place in enumerate(outputs):
            pattern = function.sparsity_out(i)
            blocks.append(Block(self.new(pattern.nnz()) if place is None else place, pattern))
        given = [p if function.nnz_in(i) else -1 for i, p in enumerate(inputs)]
        written = [b.place if b.pattern.nnz() else -1 for b in blocks]
        head = [CALL, self._known[id(function)], len(given), len(written)]
        self._code += [*head, *given, *written]
        return blocks

    def add(self, target: Block, source: Block, factor: int) -> None:
        """target += factor * source, whose pattern lies within the target's."""
        if not source.pattern.nnz():
            return
        at = -1
        if source.pattern != target.pattern:
            at = len(self.index)
            rows = target.pattern.size1()
            where = {
                c * rows + r: k for k, (r, c) in enumerate(zip(*target.pattern.get_triplet(), strict=True))
            }
            self.index += [where[c * rows + r] for r, c in zip(*source.pattern.get_triplet(), strict=True)]
        self._code += [ADD, source.pattern.nnz(), target.place, source.place, at, factor]

    # -- the tapes, in the order of `kernel.build_kernel` ---------------------------------------------

    def _write_departure(self) -> None:
        graph, n = self.graph, self.graph.n
        velocities = self.carry + STATE * n
        held, data, J = self._pose()
        for i in range(n):
            V = velocities + TWIST * i
            self.call(graph.inertia(i), [V, self.theta], [self.base + TWIST * i, None])
        self._kick(self.base, self.poses, None)

        self._code = self.codes["leave"]
        gone = []
        for i in range(n):
            inputs = [self.V + TWIST * i, self.poses + POSE * i, self.base + TWIST * i, self.dt, self.theta]
            gone.append(self.call(graph.departure(i), inputs, [self.rest + TWIST * i, None, None, None]))
        slopes: list[Block] = []
        if graph.coupled:
            moving = [self.poses, self.V, *self._environment]
            (force,) = self.call(graph.moving_force, moving, [None])
            self.add(Block(self.rest, self._columns), force, BY_HALF_DT)
            slopes = self.call(graph.slopes, moving, [None] * len(graph.coupled))
        H, place = [], self.values
        for g in graph.groups:
            inputs = [*(gone[i][2].place for i in g.bodies), *(gone[i][3].place for i in g.bodies), self.dt]
            H.append(self.call(g.rows.landed, [*inputs, self.theta], [place, *[None] * len(g.bodies)])[1:])
            place += len(g.names)
        slides = []
        for k, touch in enumerate(graph.touches):
            inputs = [*(gone[i][2].place for i in touch.bodies), *(gone[i][3].place for i in touch.bodies)]
            outputs = [self.gaps + k, *[None] * len(touch.bodies)]
            slides.append(self.call(touch.geometry.landed, [*inputs, self.dt, data[k]], outputs)[1:])
        self._write_solution([g[1] for g in gone], held, H, slopes, data, J, slides)

        self._code = self.codes["after"]
        ends, pushed = self.new(POSE * n), self.after + STATE * n
        for i in range(n):
            z, V = self.after + STATE * i, self.V + TWIST * i
            self.call(graph.carried, [self.carry + STATE * i, V, self.dt], [z])
            self.call(graph.pose, [z], [ends + POSE * i])
            self.call(graph.landing(i), [V, self.dt, self.theta], [pushed + TWIST * i])
        self._kick(pushed, ends, self.V)

    def _write_arrival(self) -> None:
        graph, n = self.graph, self.graph.n
        held, data, J = self._pose()
        self.base = self.carry + STATE * n
        still = self.new(TWIST)  # zeros
        D = [self.call(graph.inertia(i), [still, self.theta], [None, None])[1] for i in range(n)]
        levels, slides = [], []
        for touch, d in zip(graph.touches, data, strict=True):
            inputs = [*(self.poses + POSE * i for i in touch.bodies), self.dt, d]
            level, *N = self.call(touch.geometry.level, inputs, [None] * (1 + touch.geometry.count))
            levels.append(level.place)
            slides.append(N)

        self._code = self.codes["leave"]
        for i in range(n):
            inputs = [self.V + TWIST * i, self.base + TWIST * i, self.theta]
            self.call(graph.stopped(i), inputs, [self.rest + TWIST * i])
        H, place = [], self.values
        for g, G in zip(graph.groups, held, strict=True):
            inputs = [*(b.place for b in G), *(self.V + TWIST * i for i in g.bodies), self.dt]
            H.append(self.call(g.rows.swept, inputs, [place, *[None] * len(g.bodies)])[1:])
            place += len(g.names)
        for k, touch in enumerate(graph.touches):
            inputs = [levels[k], *(h.place for h in slides[k]), *(self.V + TWIST * i for i in touch.bodies)]
            self.call(touch.geometry.closing, inputs, [self.gaps + k])
        self._write_solution(D, held, H, [], data, J, slides)

    def _pose(self) -> tuple[list[list[Block]], list[int], list[list[Block]]]:
        """Where the carry is: G' of the groups, numbers and slopes of the touches."""
        graph = self.graph
        for i in range(graph.n):
            self.call(graph.pose, [self.carry + STATE * i], [self.poses + POSE * i])
        held = [
            self.call(
                g.rows.held, [*(self.poses + POSE * i for i in g.bodies), self.theta], [None] * len(g.bodies)
            )
            for g in graph.groups
        ]
        data = [self._data(t.data) for t in graph.touches]
        J = [
            self.call(
                t.geometry.held, [*(self.poses + POSE * i for i in t.bodies), d], [None] * t.geometry.count
            )
            for t, d in zip(graph.touches, data, strict=True)
        ]
        return held, data, J

    def _kick(self, momenta: int, poses: int, V: int | None) -> None:
        """Half a step's impulse of the forces, as `StepGraph.kicked`."""
        graph, target = self.graph, Block(momenta, self._columns)
        (still,) = self.call(graph.still_force, [poses, *self._environment], [None])
        self.add(target, still, BY_HALF_DT)
        if V is not None and graph.coupled:
            (moving,) = self.call(graph.moving_force, [poses, V, *self._environment], [None])
            self.add(target, moving, BY_HALF_DT)

    def _write_solution(
        self,
        D: list[Block],
        held: list[list[Block]],
        H: list[list[Block]],
        slopes: list[Block],
        data: list[int],
        J: list[list[Block]],
        slides: list[list[Block]],
    ) -> None:
        """Newton's direction and what is left of the equations."""
        graph, n = self.graph, self.graph.n
        H_touch = [[b.place for b in h] for h in slides]
        J_touch = [[b.place for b in j] for j in J]
        twists = [[self.V + TWIST * i for i in t.bodies] for t in graph.touches]

        self._code = self.codes["begin"]
        for k, touch in enumerate(graph.touches):
            inputs = [*J_touch[k], self.gaps + k, *twists[k], self.speed, self.kappa, data[k]]
            self.call(touch.geometry.begun, inputs, [self.fresh + self.parts[k]])

        self._code = self.codes["solve"]
        condensed, given = [], []
        for k, touch in enumerate(graph.touches):
            inputs = [*J_touch[k], *H_touch[k], self.gaps + k, *twists[k]]
            given.append([*inputs, self.y + self.parts[k], self.kappa, data[k]])
            function = touch.geometry.condensed
            condensed.append(self.call(function, given[k], [None] * function.n_out()))
        self._eliminate(D, held, H, slopes, condensed)
        for k, touch in enumerate(graph.touches):
            changes = [self.dV + TWIST * i for i in touch.bodies]
            self.call(touch.geometry.expanded, [*given[k], *changes], [self.dy + self.parts[k]])

        self._code = self.codes["rest"]
        self._code += [ZERO, TWIST * n, self.left]
        self.add(Block(self.left, self._columns), Block(self.rest, self._columns), PLUS)
        place = self.multipliers
        for g, G in zip(graph.groups, held, strict=True):
            impulses = self.call(g.rows.impulse, [*(b.place for b in G), place], [None] * len(g.bodies))
            place += len(g.names)
            for i, impulse in zip(g.bodies, impulses, strict=True):
                self.add(Block(self.left + TWIST * i, impulse.pattern), impulse, MINUS)
        ends = [self.mismatch, self.products, place]
        for k, touch in enumerate(graph.touches):
            inputs = [*J_touch[k], self.gaps + k, *twists[k], self.y + self.parts[k], self.kappa, data[k]]
            pushes = self.call(touch.geometry.pushed, inputs, [*[None] * len(touch.bodies), *ends])
            ends = [end + counts[k] for end, counts in zip(ends, self.counts, strict=True)]
            for i, push in zip(touch.bodies, pushes[: len(touch.bodies)], strict=True):
                self.add(Block(self.left + TWIST * i, push.pattern), push, PLUS)

    def _data(self, data: tuple) -> int:
        """The place of a touch's numbers."""
        if not data:
            return -1
        values = ca.densify(ca.SX(ca.vertcat(*data)))
        key = str(values)
        if key not in self._numbers:
            if values.is_constant():  # no code for plain numbers
                self._numbers[key] = self.new(values.numel())
                self.constants.append((self._numbers[key], np.array(ca.DM(values)).ravel()))
            else:
                numbers = ca.Function("data", [self.graph.terms.parameters], [values], OPTIONS)
                self._numbers[key] = self.call(numbers, [self.theta], [None])[0].place
        return self._numbers[key]

    def _eliminate(
        self,
        D: list[Block],
        held: list[list[Block]],
        H: list[list[Block]],
        slopes: list[Block],
        condensed: list[list[Block]],
    ) -> None:
        """Patterns first, as unions of what is added to each block; then the instructions."""
        graph, n, s = self.graph, self.graph.n, self.graph.structure
        parts: dict[tuple[int, int], list[tuple[Block, int]]] = {(i, i): [(d, PLUS)] for i, d in enumerate(D)}
        for pair, slope in zip(graph.coupled, slopes, strict=bool(slopes)):
            parts.setdefault(pair, []).append((slope, BY_MINUS_HALF_DT))
        rhs: list[list[tuple[Block, int]]] = []
        vector = ca.Sparsity.dense(TWIST, 1)
        for i in range(n):
            rhs.append([(Block((self.left if graph.touches else self.rest) + TWIST * i, vector), PLUS)])
        place = self.values
        for j, g in enumerate(graph.groups):
            rhs.append([(Block(place, ca.Sparsity.dense(len(g.names), 1)), MINUS)])
            for i, G, h in zip(g.bodies, held[j], H[j], strict=True):
                parts[i, n + j], parts[n + j, i] = [(G, PLUS)], [(h, PLUS)]
            if graph.weighs(g):
                inputs = [b.place for b in (*held[j], *H[j])] + [place, self.dt]
                weight = graph.weight(g, [b.pattern for b in H[j]])
                weighed = iter(self.call(weight, inputs, [None] * weight.n_out()))
                for i in g.bodies:
                    rhs[i].append((next(weighed), PLUS))
                    for k in g.bodies:
                        parts.setdefault((i, k), []).append((next(weighed), PLUS))
            place += len(g.names)
        for touch, blocks in zip(graph.touches, condensed, strict=True):
            touching = iter(blocks)
            for i in touch.bodies:
                rhs[i].append((next(touching), PLUS))
            for i, j in product(touch.bodies, repeat=2):
                parts.setdefault((i, j), []).append((next(touching), PLUS))
        rows = np.concatenate([[0], np.cumsum(graph.sizes)])
        x = [self.dV + TWIST * i for i in range(n)] + [self.found + int(r) - TWIST * n for r in rows[n:-1]]

        kept: dict[int, tuple[list[int], list[Block], Block]] = {}
        for k in s.order:
            up = [j for j in s.later[k] if (k, j) in parts]
            low = [i for i in s.later[k] if (i, k) in parts]
            size = graph.sizes[k]
            empty = ca.Sparsity(size, size)
            blocks = [self._sum(parts.get((k, k), []), empty)]
            blocks += [self._sum(parts[k, j], None) for j in up] + [self._sum(parts[i, k], None) for i in low]
            blocks.append(self._sum(rhs[k], None))
            done = graph.elimination.at_node(len(up), blocks, self._apply, _pattern)
            if not up:
                self._copy(x[k], done[0])
            columns, own, rest = done[: len(up)], done[len(up)], iter(done[len(up) + 1 :])
            kept[k] = up, columns, own
            for i in low:
                for j in up:
                    update = next(rest)
                    if update.pattern.nnz():
                        parts.setdefault((i, j), []).append((update, MINUS))
                rhs[i].append((next(rest), MINUS))
        for k in reversed(s.order):
            up, columns, own = kept[k]
            if up:
                known = [Block(x[j], ca.Sparsity.dense(graph.sizes[j], 1)) for j in up]
                self._copy(x[k], graph.elimination.returned(own, columns, known, self._apply, _pattern))

    def _apply(self, function: ca.Function, blocks: list[Block]) -> list[Block]:
        return self.call(function, [b.place for b in blocks], [None] * function.n_out())

    def _copy(self, place: int, block: Block) -> None:
        """What the last call has made, moved to where it is wanted: the call writes there itself."""
        assert self._code[-1] == block.place
        self._code[-1] = place

    def _sum(self, parts: list[tuple[Block, int]], empty: ca.Sparsity | None) -> Block:
        """One block of what is added to it; where it is one alone, that one itself."""
        if not parts:
            return Block(-1, empty)
        if len(parts) == 1 and parts[0][1] == PLUS:
            return parts[0][0]
        pattern = parts[0][0].pattern
        for block, _ in parts[1:]:
            pattern = pattern.unite(block.pattern)
        total = Block(self.new(pattern.nnz()), pattern)
        self._code += [ZERO, pattern.nnz(), total.place]
        for block, factor in parts:
            self.add(total, block, factor)
        return total


def _pattern(block: Block) -> ca.Sparsity:
    return block.pattern
