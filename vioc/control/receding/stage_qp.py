"""Quadratic program with one stage for each step of a receding horizon.

    minimize  sum over k < N of 1/2 z_k'H_k z_k + g_k'z_k  +  1/2 x_N'H_end x_N + g_end'x_N
    z_k = (x_k, u_k),   x_k+1 = F_k z_k + c_k,   x_0 given,
    lower <= rows(z_k) <= upper,   lower_end <= J_end x_N <= upper_end

If there is a compiler, the program is solved by `qp.c` (with `qp_data.c`, `stages/riccati.c` and
`qp_stages.c`), compiled for the program's sizes; otherwise it is condensed and solved by a solver of CasADi.
Maths: docs/maths/receding.md.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vioc.compile.compiler import find_compiler
from vioc.compile.libraries import address, load_library
from vioc.control.problem.status import Status
from vioc.control.receding.condensed import CondensedSolver
from vioc.control.stages.linear_quadratic import LinearQuadratic, costates
from vioc.control.stages.recursion import stage_source

SOURCES = ("qp_data.c", "qp_stages.c", "qp.c")
TOLERANCE, ITERATIONS = 1e-11, 50
NEAR, LOOSE = 1e-6, 1e-4  # largest relative residual of a converged, and of an acceptable solution
PROOF = 1e-6  # relative precision of the proof of infeasibility by multipliers
_VERDICTS = {0: Status.CONVERGED, 1: Status.MAX_ITERATIONS, 2: Status.NO_DESCENT, 3: Status.NOT_FINITE}


@dataclass(frozen=True)
class StageSizes:
    """Sizes of a stage-structured quadratic program.

    Attributes
    ----------
    steps, nx, nu : int
        Largest number of steps; numbers of states and inputs.
    at : tuple of int
        Indices of the components of (x, u) that have limits in every stage.
    general, end : int
        Number of other constraints of a stage, which follow those; constraints of the last state.
    soft : bool
        True if constraints may be soft.
    """

    steps: int
    nx: int
    nu: int
    at: tuple[int, ...] = ()
    general: int = 0
    end: int = 0
    soft: bool = False

    @property
    def rows(self) -> int:
        """Number of constraints of a stage."""
        return len(self.at) + self.general

    def source(self, name: str = "qp", *, single: bool = False, api: str = "") -> str:
        """Return C99 source code of a solver for quadratic programs of these sizes.

        Names begin with `name`; `api` is put before public functions.
        """
        sizes: dict[str, Any] = dict(
            N=self.steps, NX=self.nx, NU=self.nu, NB=len(self.at), NG=self.general, NE=self.end
        )
        sizes |= dict(SOFT=int(self.soft), FLOAT=int(single), NAME=name, API=api)
        defined = "".join(f"#define QP_{key} {value}\n" for key, value in sizes.items())
        data, *functions = (Path(__file__).with_name(n).read_text("utf-8") for n in SOURCES)
        return defined + "\n".join([data, stage_source(), *functions])

    @property
    def fields(self) -> list[tuple]:
        """Fields of the NumPy data type that has the layout of the solver's C struct.
        The struct contains the data of a quadratic program. An array that would be empty has one element.
        """
        N, n, q, m = self.steps, self.nx, self.nx + self.nu, max(self.rows, 1)
        e, g = max(self.end, 1), max(self.general, 1)
        sizes: dict[str, tuple[int, ...]] = dict(H=(N, q, q), g=(N, q), F=(N, n, q), c=(N, n))
        sizes |= dict(H_end=(n, n), g_end=(n,), J=(N, g, q), lower=(N, m), upper=(N, m), J_end=(e, n))
        sizes |= dict(
            lower_end=(e,), upper_end=(e,), linear=(m,), square=(m,), linear_end=(e,), square_end=(e,)
        )
        fields: list[tuple] = [(name, float, shape) for name, shape in sizes.items()]
        return [*fields, ("at", np.int32, (max(len(self.at), 1),)), ("steps", np.int32)]


class Data:
    """Data of a quadratic program, as arrays that the caller fills in.

    The module docstring defines the symbols. The columns of `lower` and `upper` (N, rows) are limits: first
    those of the components `at` of (x, u), then those of the constraints with Jacobian `J`. They are infinite
    where there is no limit. A violation e of a soft constraint costs linear e + 1/2 square e^2, with `linear`
    and `square` (rows,); the weights at the end are `linear_end` and `square_end`. A constraint with linear <
    0 is hard, which is the default.
    """

    def __init__(self, layout: StageSizes):
        self.layout, self.nx, self.nu = layout, layout.nx, layout.nu
        self.memory = np.zeros((), np.dtype(layout.fields, align=True))
        m, e, g = layout.rows, layout.end, layout.general
        a: Any = self.memory
        self.H, self.g, self.F, self.c = a["H"], a["g"], a["F"], a["c"]
        self.H_end, self.g_end, self.J, self.J_end = a["H_end"], a["g_end"], a["J"][:, :g], a["J_end"][:e]
        self.lower, self.upper = a["lower"][:, :m], a["upper"][:, :m]
        self.lower_end, self.upper_end = a["lower_end"][:e], a["upper_end"][:e]
        self.linear, self.square = a["linear"][:m], a["square"][:m]
        self.linear_end, self.square_end = a["linear_end"][:e], a["square_end"][:e]
        a["at"][: len(layout.at)] = layout.at
        a["steps"] = layout.steps
        for name in ("linear", "linear_end"):
            a[name][...] = -1.0
        for name in ("square", "square_end"):
            a[name][...] = 1.0
        for name in ("lower", "lower_end"):
            a[name][...] = -np.inf
        for name in ("upper", "upper_end"):
            a[name][...] = np.inf

    @property
    def steps(self) -> int:
        """Number N of time steps in the quadratic program.
        It is at most `layout.steps`, the number of steps for which the arrays were created.
        """
        return int(self.memory["steps"])

    @steps.setter
    def steps(self, n: int) -> None:
        self.memory["steps"] = n

    @property
    def stages(self) -> LinearQuadratic:
        """Dynamics and costs of all stages of the quadratic program, without constraints."""
        N = self.steps
        return LinearQuadratic(self.F[:N], self.H[:N], self.H_end, self.g[:N], self.g_end, self.c[:N])

    def rows(self) -> np.ndarray:
        """Return the Jacobians (N, rows, nx + nu) of the constraints at all stages."""
        N, indices = self.steps, list(self.layout.at)
        entries = np.eye(self.nx + self.nu)[indices]
        return np.concatenate([np.broadcast_to(entries, (N, *entries.shape)), self.J[:N]], axis=1)

    def limits(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return the limits of all constraints, and the weights of their violations.
        The results are lower and upper limits, and linear and quadratic weights of violations.

        Constraints are ordered by stage; those of the end follow.
        """
        N = self.steps
        sides = [
            np.concatenate([a[:N].ravel(), b])
            for a, b in ((self.lower, self.lower_end), (self.upper, self.upper_end))
        ]
        prices = [
            np.concatenate([np.tile(a, N), b])
            for a, b in ((self.linear, self.linear_end), (self.square, self.square_end))
        ]
        return sides[0], sides[1], prices[0], prices[1]


class Answer(NamedTuple):
    """Solution of a quadratic program, with multipliers and status.

    Attributes
    ----------
    x, u : (N+1, nx), (N, nu)
    y, y_end : (N, rows), (end,)
        Multipliers of constraints, >= 0 at upper limits.
    p : (N+1, nx)
        Costates of the dynamics.
    status : Status
        "infeasible" is proved by the multipliers; "max_iterations" is not.
    iterations : int
    error : float
        Relative residual of the optimality conditions (`remains`).
    """

    x: np.ndarray
    u: np.ndarray
    y: np.ndarray
    y_end: np.ndarray
    p: np.ndarray
    status: Status
    iterations: int
    error: float


class StageQP:
    """Quadratic program of fixed sizes that is solved repeatedly.

    Parameters
    ----------
    layout : StageSizes
    native : bool
        Use C, if there is a compiler.
    solver : str
        Solver of CasADi for the condensed program.
    options : dict, optional
        Options of that solver.

    Attributes
    ----------
    data : Data
        Fill in the data, call `prepare`, then `solve` for each initial state.
    """

    def __init__(
        self,
        layout: StageSizes,
        native: bool = True,
        solver: str = "daqp",
        options: dict[str, Any] | None = None,
    ):
        self.layout, self.data = layout, Data(layout)
        self.native = native and find_compiler() is not None
        self._condensed = CondensedSolver(solver, options)
        self._good = False
        if self.native:
            self._solve, size = _library(layout)
            self._state = np.zeros(size, np.uint8)
            self._views = _views(layout, self._state)

    def prepare(self) -> None:
        """Do the part of the solution that does not depend on the initial state."""
        self._good = self.native or self._condensed.prepare(self.data)

    def solve(
        self, x0: Any, max_iterations: int = ITERATIONS, tolerance: float = TOLERANCE, warm: bool = False
    ) -> Answer:
        """Return the solution of the quadratic program for the initial state x0 (nx,).

        Parameters
        ----------
        max_iterations : int
            Largest number of iterations of the interior-point method; exactly that many if `tolerance` is 0.
        tolerance : float
            Tolerance of the duality gap, relative to the cost's unit (RH 9), and of constraints and dynamics.
        warm : bool
            Begin with the last solution's multipliers of the dynamics.
        """
        x0, N, d = np.ascontiguousarray(x0, float), self.data.steps, self.data
        m = self.layout.rows
        if not self.native:
            return self._by_condensed(x0)
        code = self._solve(
            address(d.memory), address(self._state), address(x0), max_iterations, tolerance, warm
        )
        v = self._views
        y = v["y"]
        answer = Answer(
            v["x"][: N + 1].copy(),
            v["u"][:N].copy(),
            y[: N * m].reshape(N, m).copy(),
            y[N * m : N * m + self.layout.end].copy(),
            v["p"][: N + 1].copy(),
            _VERDICTS[code],
            int(v["done"][0]),
            0.0,
        )
        return self._verdict(answer, float(v["size"][0]))

    def cost(self, a: Answer) -> float:
        """Return the cost of a solution, without the penalties of soft constraints."""
        d, N = self.data, self.data.steps
        z = np.hstack([a.x[:-1], a.u])
        total = 0.5 * np.einsum("ki,kij,kj->", z, d.H[:N], z) + np.vdot(d.g[:N], z)
        return float(total + 0.5 * a.x[N] @ d.H_end @ a.x[N] + d.g_end @ a.x[N])

    def _by_condensed(self, x0: np.ndarray) -> Answer:
        d, N, n, m = self.data, self.data.steps, self.layout.nx, self.layout.rows
        if not self._good:
            none = np.zeros((N, m)), np.zeros(self.layout.end), np.zeros((N + 1, n))
            return Answer(
                np.zeros((N + 1, n)), np.zeros((N, self.layout.nu)), *none, Status.NO_DESCENT, 0, np.inf
            )
        z, end, of_rows, good = self._condensed.solve(x0)
        duals = self._spread(of_rows)
        y, y_end = duals[: N * m].reshape(N, m), duals[N * m :]
        x, u = np.vstack([z[:, :n], end]), z[:, n:].copy()
        p = adjoint(d, x, u, y, y_end)[0]
        answer = Answer(x, u, y, y_end, p, Status.CONVERGED if good else Status.MAX_ITERATIONS, 0, 0.0)
        return self._verdict(answer, float(terms(d, *self._condensed.free(x0)) + least(d)))

    def _verdict(self, answer: Answer, size: float) -> Answer:
        """Return the solution with its KKT residual and its status.
        The argument `size` is the magnitude of the cost without limits.

        The status is "infeasible" if the multipliers prove it.
        """
        answer = answer._replace(error=remains(self.data, answer, size))
        status = answer.status
        if answer.error <= LOOSE:
            status = Status.CONVERGED if answer.error <= NEAR else Status.ACCEPTABLE
        elif status is not Status.NOT_FINITE and (infeasible(self.data, answer) or self._proof(answer)):
            status = Status.INFEASIBLE
        elif status is Status.CONVERGED:
            status = Status.MAX_ITERATIONS
        return answer._replace(status=status)

    def _proof(self, answer: Answer) -> bool:
        """Return True if the quadratic program is proved to be infeasible.
        The multipliers in the proof are the constraint violations with the smallest sum of squares.

        This is used for programs solved by the interior-point method.
        """
        if not self.native or not self._condensed.prepare(self.data):
            return False
        y = self._spread(self._condensed.least(answer.x[0]))
        N, m = self.data.steps, self.layout.rows
        return infeasible(self.data, answer._replace(y=y[: N * m].reshape(N, m), y_end=y[N * m :]))

    def _spread(self, kept: np.ndarray) -> np.ndarray:
        """Return multipliers of all constraints, from those of constraints with limits.
        Constraints without a finite limit have the multiplier 0.
        """
        y = np.zeros(self.data.steps * self.layout.rows + self.layout.end)
        y[self._condensed.kept] = kept
        return y


def adjoint(
    d: Data, x: np.ndarray, u: np.ndarray, y: np.ndarray, y_end: np.ndarray, cost: bool = True
) -> tuple[np.ndarray, np.ndarray]:
    """Return costates and input gradients of a quadratic program's Lagrangian.
    Their shapes are (N+1, nx) and (N, nu). y and y_end are the multipliers of the constraints of all stages
    and of the last state.

    Without `cost`, the terms of the cost are omitted.
    """
    N = d.steps
    g, end = np.einsum("kmq,km->kq", d.rows(), y), d.J_end.T @ y_end
    if cost:
        g += d.g[:N] + np.einsum("kij,kj->ki", d.H[:N], np.hstack([x[:N], u]))
        end = end + d.g_end + d.H_end @ x[N]
    p, gradient = costates(d.F[:N], g, end)
    return p, gradient[:, d.nx :]


def row_values(d: Data, x: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Return the values of all constraints of a quadratic program in one vector.
    They are ordered by stage, and the constraints of the last state are at the end.
    """
    N, z = d.steps, np.hstack([x[:-1], u])
    parts = [z[:, list(d.layout.at)], np.einsum("kmq,kq->km", d.J[:N], z)]
    return np.concatenate([np.hstack(parts).ravel(), d.J_end @ x[-1]])


def ranges(d: Data) -> np.ndarray:
    """Return half the distance between the bounds of each input, (N, nu).
    It is 1 for inputs without bounds.
    """
    N, n, half_ranges = d.steps, d.nx, np.ones((d.steps, d.nu))
    for i, entry in enumerate(d.layout.at):
        half = (d.upper[:N, i] - d.lower[:N, i]) / 2
        if entry >= n:
            half_ranges[:, entry - n] = np.where(np.isfinite(half), half, 1.0)
    return half_ranges


def least(d: Data) -> float:
    """Return the smallest positive cost of a single input, as a scale of the cost.
    For each input and step, this is the quadratic term of the cost with the input at half its range. The
    result is 0 if no input has a quadratic cost.
    """
    costs = 0.5 * np.einsum("kii->ki", d.H[: d.steps])[:, d.nx :] * ranges(d) ** 2
    return float(np.min(costs[costs > 0], initial=np.inf)) if (costs > 0).any() else 0.0


def terms(d: Data, x: np.ndarray, u: np.ndarray) -> float:
    """Return the sum of the absolute values of all terms of the cost.
    The penalties of soft constraints are not included.
    """
    N, z = d.steps, np.hstack([x[:-1], u])
    of_stages = np.abs(np.matmul(d.H[:N], z[..., None])[..., 0]) / 2 + np.abs(d.g[:N])
    of_end = np.abs(d.H_end @ x[-1]) / 2 + np.abs(d.g_end)
    return float(np.vdot(np.abs(z), of_stages) + np.abs(x[-1]) @ of_end)


def remains(d: Data, a: Answer, size: float) -> float:
    """Return the largest relative residual of a solution's optimality conditions.

    The conditions are (RH 2) to (RH 4). Violations of constraints and dynamics, and the stationarity with
    respect to an input, are relative to the terms in them. The condition of soft constraints is relative to
    multipliers. The duality gap is relative to the cost's unit (RH 9), which includes `size`, the magnitude
    of the cost without limits.
    """
    N, n = d.steps, d.nx
    z, rows = np.hstack([a.x[:-1], a.u]), d.rows()[..., n:]
    low, high, linear, square = d.limits()
    h, y = row_values(d, a.x, a.u), np.concatenate([a.y.ravel(), a.y_end])
    step = np.einsum("kij,kj->ki", d.F[:N], z) + d.c[:N] - a.x[1:]
    parts_u = [np.einsum("kij,kj->ki", d.H[:N, n:], z), d.g[:N, n:]]
    parts_u += [np.einsum("kji,kj->ki", d.F[:N, :, n:], a.p[1:]), np.einsum("kmq,km->kq", rows, a.y)]
    forces = np.max([*map(np.abs, parts_u), np.einsum("kii->ki", d.H[:N])[:, n:] * ranges(d)], axis=0)
    by_u = np.abs(sum(parts_u)).max(axis=0, initial=0) / np.maximum(forces.max(axis=0, initial=0), 1e-300)
    beyond, soft = np.maximum(0.0, np.maximum(low - h, h - high)), linear >= 0
    excess = np.abs(y) - linear - square * beyond  # past a soft limit, the marginal penalty is the multiplier
    of_soft = np.where(soft, np.maximum(excess, beyond * np.abs(excess)), 0.0)
    outside = np.where(soft, 0.0, beyond)
    with np.errstate(invalid="ignore"):
        slack = np.where(y > 0, high - h, h - low)
        gap = np.where(y != 0, np.abs(y) * np.maximum(slack, 0.0), 0.0).sum()
    unit = size + terms(d, a.x, a.u) + np.where(soft, beyond * (linear + square * beyond / 2), 0.0).sum()
    parts = [
        np.abs(step).max(initial=0) / (1 + np.abs(a.x).max()),
        outside.max(initial=0) / (1 + np.abs(h).max(initial=0)),
        by_u.max(initial=0),
        of_soft.max(initial=0) / max(np.abs(y).max(initial=0), 1e-300),
        gap / unit if gap > 0 else 0.0,
    ]
    return float(np.max(parts))


def infeasible(d: Data, a: Answer) -> bool:
    """Return True if the multipliers prove that the hard constraints are infeasible.

    They do if the sum of constraint values times multipliers is the same for every motion from this initial
    state, and exceeds the same sum of the limits. See (RH 11).
    """
    low, high, linear, _ = d.limits()
    y = np.concatenate([a.y.ravel(), a.y_end])
    y = np.where((linear >= 0) | ((y > 0) & np.isinf(high)) | ((y < 0) & np.isinf(low)), 0.0, y)
    largest = np.abs(y).max(initial=0)
    if not 0 < largest < np.inf:
        return False
    y /= largest
    N, m = d.steps, d.layout.rows
    gradient = adjoint(d, a.x, a.u, y[: N * m].reshape(N, m), y[N * m :], cost=False)[1]
    x = np.empty_like(a.x)  # any motion from this start
    x[0] = a.x[0]
    for k in range(N):
        x[k + 1] = d.F[k] @ np.concatenate([x[k], a.u[k]]) + d.c[k]
    value = float(y @ row_values(d, x, a.u))
    most = float(
        np.where(y > 0, y * np.where(np.isinf(high), 0, high), y * np.where(np.isinf(low), 0, low)).sum()
    )
    error = float(np.abs(gradient).max(initial=0)) * (1 + np.abs(a.u).max()) * a.u.size
    return value - most > PROOF * (1 + abs(value)) + error


def _views(layout: StageSizes, memory: np.ndarray) -> dict[str, np.ndarray]:
    """Return views of the solution's arrays in the C solver's memory."""
    N, n, m = layout.steps, layout.nx, layout.nu
    rows = max(N * layout.rows + layout.end, 1)
    shapes = dict(x=(N + 1, n), u=(N, m), p=(N + 1, n), y=(rows,), size=(), apart=(), left=())
    fields = [*((name, float, shape) for name, shape in shapes.items()), ("done", np.int32)]
    kind = np.dtype(fields, align=True)
    record = memory[: kind.itemsize].view(kind)[0]
    return {name: record[name] for name in ("x", "u", "p", "y")} | {
        name: memory[: kind.itemsize].view(kind)[name] for name in ("size", "done")
    }


@lru_cache(maxsize=64)
def _library(layout: StageSizes) -> tuple[Any, int]:
    """Return the compiled C function that solves quadratic programs of these sizes.
    Also return the number of bytes of memory that the C function needs.
    """
    api = '__attribute__((visibility("default")))'
    ask = f"\n{api} long long qp_bytes(int s) {{ return s ? sizeof(qp_state) : sizeof(qp_data); }}\n"
    library = load_library([layout.source(api=api) + ask], "quadratic program of stages")
    library.qp_bytes.restype = ctypes.c_longlong
    if library.qp_bytes(0) != np.dtype(layout.fields, align=True).itemsize:
        raise TypeError("quadratic program of stages: this compiler lays out its data in another way")
    pointer = ctypes.c_void_p
    library.qp_solve.argtypes = [pointer, pointer, pointer, ctypes.c_int, ctypes.c_double, ctypes.c_int]
    return library.qp_solve, int(library.qp_bytes(1))
