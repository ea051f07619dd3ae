"""The compiled core: a generated C function for each kind of body, constraint and pivot, and tables.

The same functions make the kernel of the virtual machine; here they read and write one array of doubles in
place, so that code does not grow with the mechanism and a step's time grows linearly.
"""

from __future__ import annotations

import ctypes
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import casadi as ca
import numpy as np

from vioc.dynamics.compile.libraries import load_library
from vioc.dynamics.compile.native import EXPORT
from vioc.dynamics.compile.programs import CHUNK, Program
from vioc.dynamics.integrators.maximal.kernel import STOP
from vioc.dynamics.integrators.maximal.step import ITERATIONS, PAST, STATE, StepGraph
from vioc.dynamics.integrators.maximal.terms import POSE, TWIST

if TYPE_CHECKING:
    from vioc.dynamics.integrators.maximal.map import MaximalVI

CALL, ADD, ZERO, MEAN = range(4)
PLUS, MINUS, BY_DT, BY_MINUS_HALF_DT = range(4)
TAPES = ("start", "leave", "solve", "rest")
Long, Double = ctypes.c_longlong, ctypes.c_double


class _Model(ctypes.Structure):
    _fields_ = (
        ("kernels", ctypes.c_void_p),
        *((f"{kind}_{name}", ctypes.c_void_p) for kind in ("tape", "end") for name in TAPES),
        *((name, ctypes.c_void_p) for name in ("index", "image")),
        *((name, Long) for name in ("size", "n_arg", "n_res", "n_iw", "n_w", "bodies", "nu", "rows")),
        *((name, Long) for name in ("carry", "u", "t", "dt")),
        *((name, Long) for name in ("V", "dV", "multipliers", "rest", "poses", "after")),
        *((name, ctypes.c_void_p) for name in ("values", "scales")),
        ("stop", Double),
        ("limit", Long),
    )


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
        self._code = self.codes["start"]
        n, rows = graph.n, len(graph.names)
        self.carry, self.u, self.t, self.dt, self.theta = (
            self.new(size)
            for size in ((STATE + TWIST * (1 + PAST)) * n, nu, 1, 1, graph.terms.parameters.numel())
        )
        self.V, self.dV, self.mean = (self.new(TWIST * n) for _ in range(3))
        self.poses, self.base, self.rest, self.after = (self.new(s * n) for s in (POSE, TWIST, TWIST, STATE))
        self.multipliers, self.values = self.new(rows), self.new(rows)
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

        self._code = self.codes["solve"]
        self._eliminate([g[1] for g in gone], held, H, slopes)

        self._code = self.codes["rest"]
        place = self.multipliers
        for g, G in zip(graph.groups, held, strict=True):
            impulses = self.call(g.rows.impulse, [*(b.place for b in G), place], [None] * len(g.bodies))
            place += len(g.names)
            for i, impulse in zip(g.bodies, impulses, strict=True):
                self.add(Block(self.rest + TWIST * i, impulse.pattern), impulse, MINUS)
        for i in range(n):
            self.call(
                graph.carried, [self.carry + STATE * i, self.V + TWIST * i, self.dt], [self.after + STATE * i]
            )

    def _eliminate(
        self, D: list[Block], held: list[list[Block]], H: list[list[Block]], slopes: list[Block]
    ) -> None:
        """Patterns first, as unions of what is added to each block; then the instructions."""
        graph, n, s = self.graph, self.graph.n, self.graph.structure
        parts: dict[tuple[int, int], list[tuple[Block, int]]] = {(i, i): [(d, PLUS)] for i, d in enumerate(D)}
        for pair, slope in zip(graph.coupled, slopes, strict=True):
            parts.setdefault(pair, []).append((slope, BY_MINUS_HALF_DT))
        rhs: list[list[tuple[Block, int]]] = []
        vector = ca.Sparsity.dense(TWIST, 1)
        for i in range(n):
            rhs.append([(Block(self.rest + TWIST * i, vector), PLUS)])
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
        rows = np.concatenate([[0], np.cumsum(graph.sizes)])
        x = [self.dV + TWIST * i for i in range(n)] + [
            self.multipliers + int(r) - TWIST * n for r in rows[n:-1]
        ]

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


@lru_cache(maxsize=1)
def _driver() -> ctypes.CDLL:
    library = load_library([Path(__file__).with_name("tape.c")], "maximal")
    pointer = ctypes.c_void_p
    library.vioc_maximal_rollout.argtypes = [pointer, Long, *[pointer] * 6, Double, *[pointer] * 5]
    library.vioc_maximal_rollout.restype = Long
    return library


class Core:
    """A tape with its kernels compiled."""

    def __init__(self, f: MaximalVI):
        self.tape = tape = Tape(f.graph, f.nu)
        generator = ca.CodeGenerator("kernels", {"casadi_int": "long long"})
        for i, function in enumerate(tape.functions):
            args = [ca.SX.sym("a", function.sparsity_in(k)) for k in range(function.n_in())]
            generator.add(ca.Function(f"kernel{i}", args, function.call(args), {"cse": True}))
        library = load_library([EXPORT + generator.dump()], f"MaximalVI of {f.system.name}")
        needs = np.zeros(4, int)
        pointers = []
        for i in range(len(tape.functions)):
            work = [Long() for _ in range(4)]
            getattr(library, f"kernel{i}_work")(*(ctypes.byref(w) for w in work))
            needs = np.maximum(needs, [w.value for w in work])
            pointers.append(ctypes.cast(getattr(library, f"kernel{i}"), ctypes.c_void_p).value)
        # kept: the structure points into these
        self._arrays: dict[str, Any] = {
            name: np.array([*code, -1], np.int64) for name, code in tape.codes.items()
        }
        self._arrays["kernels"] = np.array(pointers, np.uint64)
        self._arrays["index"] = np.array([*tape.index, 0], np.int64)
        self._arrays["values"] = tape.values + np.arange(len(f.multiplier_names), dtype=np.int64)
        self._arrays["scales"] = np.ascontiguousarray(f.graph.scales)
        self._places = {
            name: getattr(tape, name)
            for name in ("size", "carry", "u", "t", "dt", "V", "dV", "multipliers", "rest", "poses", "after")
        }
        self._places |= dict(zip(("n_arg", "n_res", "n_iw", "n_w"), map(int, needs), strict=True))
        self._places |= dict(
            bodies=f.graph.n, nu=f.nu, rows=len(f.multiplier_names), stop=STOP, limit=ITERATIONS
        )

    def model(self, theta: np.ndarray) -> tuple[_Model, np.ndarray]:
        """The structure at parameters, and the image that it points into."""
        image = np.zeros(self.tape.size + 1)
        image[self.tape.theta : self.tape.theta + len(theta)] = theta
        model = _Model(**self._places, image=image.ctypes.data)
        for name in ("kernels", "index", "values", "scales"):
            setattr(model, name, self._arrays[name].ctypes.data)
        for name in TAPES:
            array = self._arrays[name]
            setattr(model, f"tape_{name}", array.ctypes.data)
            setattr(model, f"end_{name}", array.ctypes.data + 8 * (len(array) - 1))
        return model, image

    def rollout(self, theta, carry, U, t, h, tolerance, goal=None, gains=None):
        """Steps as far as they converge: states, multipliers, inputs, errors, iterations, by rows."""
        n, nx = len(U), len(carry) - PAST * TWIST * self._places["bodies"]
        model, image = self.model(theta)
        given = [None if a is None else np.ascontiguousarray(a, float) for a in (carry, U, goal, gains, t, h)]
        states, multipliers = np.empty((n, nx)), np.empty((n, self._places["rows"]))
        applied, errors, iterations = np.empty((n, self._places["nu"])), np.empty(n), np.zeros(n, np.int64)
        done = _driver().vioc_maximal_rollout(
            ctypes.byref(model),
            n,
            *(None if a is None else a.ctypes.data for a in given),
            tolerance,
            *(a.ctypes.data for a in (states, multipliers, applied, errors, iterations)),
        )
        del image
        if done < 0:
            raise MemoryError("no memory for the workspace of a rollout")
        return states[:done], multipliers[:done], applied[:done], errors[: done + 1], iterations[: done + 1]


class CoreProgram(Program):
    """A map's rollouts by the compiled core."""

    def __init__(self, f: MaximalVI, core: Core, feedback: bool):
        self._core, self._feedback = core, feedback
        nu, nx = f.nu, f.nx
        carry = (nx + PAST * TWIST * f.graph.n, 1)
        u = ((nu, 1), (nx, 1), (nu, f.ndx)) if feedback else ((nu, 1),)
        self.shapes_in = (carry, *u, (1, 1), (1, 1), (len(f.parameters), 1))
        applied = ((nu, 1),) if feedback else ()
        self.shapes_out = (carry, (len(f.multiplier_names), 1), (1, 1), *applied)

    def __call__(self, args):
        raise NotImplementedError("the compiled core makes rollouts")

    def map(self, args, count):
        raise NotImplementedError("the compiled core makes rollouts")

    def accumulate(self, carry, rows, count, keep, tolerance, first=CHUNK):
        *given, t, h, theta = rows
        t, h = (np.broadcast_to(np.ravel(a), (count,)) for a in (t, h))
        U, *feedback = (np.broadcast_to(a, (count, a.shape[-1])) for a in given)
        found = self._core.rollout(theta, carry, U, t, h, tolerance, *feedback)
        states, multipliers, applied, errors, _ = found
        done = len(states)
        outputs = [states, multipliers, errors[:done, None], *([applied] if self._feedback else [])]
        return outputs, done, float(errors[done]) if done < count else 0.0
