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

CALL, ADD, ZERO, MEAN = range(4)
PLUS, MINUS, BY_DT, BY_MINUS_HALF_DT = range(4)
TAPES = ("start", "begin", "leave", "solve", "rest", "after")


class Block(NamedTuple):
    """A matrix in the array: its place and pattern."""

    place: int
    pattern: ca.Sparsity


class Tape:
    """The tables of a step, and the array that they work on.

    Parameters
    ----------
    graph : StepGraph
    nu : int
    """

    def __init__(self, graph: StepGraph, nu: int):
        self.graph, self.nu = graph, nu
        self.size = 0
        self.functions: list[ca.Function] = []
        self.codes: dict[str, list[int]] = {name: [] for name in TAPES}
        self.index: list[int] = []
        self._known: dict[int, int] = {}
        self._numbers: dict[str, int] = {}
        self._code = self.codes["start"]
        n, rows = graph.n, len(graph.names)
        self.carry, self.u, self.t, self.dt, self.theta = (
            self.new(size)
            for size in ((STATE + TWIST * (1 + PAST)) * n, nu, 1, 1, graph.terms.parameters.numel())
        )
        self.V, self.dV, self.mean, self.left = (self.new(TWIST * n) for _ in range(4))
        self.poses, self.base, self.rest, self.after = (self.new(s * n) for s in (POSE, TWIST, TWIST, STATE))
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
        self.last = self.carry + STATE * n
        self._write()

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

    def _write(self) -> None:
        graph, n = self.graph, self.graph.n
        columns = ca.Sparsity.dense(TWIST * n, 1)
        environment = [self.u, self.t, self.theta]
        for i in range(n):
            inputs = [self.carry + STATE * i, self.last + TWIST * i, self.dt, self.theta]
            self.call(graph.arrival(i), inputs, [self.poses + POSE * i, self.base + TWIST * i])
        (still,) = self.call(graph.still_force, [self.poses, *environment], [None])
        self.add(Block(self.base, columns), still, BY_DT)
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

        self._code = self.codes["leave"]
        gone = []
        for i in range(n):
            inputs = [self.V + TWIST * i, self.poses + POSE * i, self.base + TWIST * i, self.dt, self.theta]
            gone.append(self.call(graph.departure(i), inputs, [self.rest + TWIST * i, None, None, None]))
        slopes: list[Block] = []
        if graph.coupled:
            self._code += [MEAN, TWIST * n, self.mean, self.V, self.last]
            moving = [self.poses, self.mean, *environment]
            (force,) = self.call(graph.moving_force, moving, [None])
            self.add(Block(self.rest, columns), force, BY_DT)
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
        self._eliminate([g[1] for g in gone], held, H, slopes, condensed)
        for k, touch in enumerate(graph.touches):
            changes = [self.dV + TWIST * i for i in touch.bodies]
            self.call(touch.geometry.expanded, [*given[k], *changes], [self.dy + self.parts[k]])

        self._code = self.codes["rest"]
        self._code += [ZERO, TWIST * n, self.left]
        self.add(Block(self.left, columns), Block(self.rest, columns), PLUS)
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

        self._code = self.codes["after"]
        for i in range(n):
            self.call(
                graph.carried, [self.carry + STATE * i, self.V + TWIST * i, self.dt], [self.after + STATE * i]
            )

    def _data(self, data: tuple) -> int:
        """The place of a touch's numbers."""
        values = ca.densify(ca.SX(ca.vertcat(ca.SX(0, 1), *data)))
        numbers = ca.Function("data", [self.graph.terms.parameters], [values], OPTIONS)
        key = str(values)
        if key not in self._numbers:
            self._numbers[key] = self.call(numbers, [self.theta], [None])[0].place if data else -1
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
        for pair, slope in zip(graph.coupled, slopes, strict=True):
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
                weight = graph.weight(g)
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
            node = graph.elimination.node(len(up), len(low), [b.pattern for b in blocks])
            outputs: list[int | None] = [None] * node.n_out()
            if not up:
                outputs[0] = x[k]
            done = self.call(node, [b.place for b in blocks], outputs)
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
                blocks = [own, *columns, *known]
                back = graph.elimination.back(len(columns), [b.pattern for b in blocks])
                self.call(back, [b.place for b in blocks], [x[k]])

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
