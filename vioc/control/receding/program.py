"""Quadratic program that nonlinear MPC solves at one sample.
It approximates the optimal control problem about a plan of states and inputs; see docs/maths/receding.md, (RH
1).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from vioc.checks import near_misses
from vioc.control.control_problem import Problem
from vioc.control.linear.tangent import error_jacobian
from vioc.control.problem.limits import full_names, penalty
from vioc.control.receding.stage_qp import Answer, StageQP, StageSizes
from vioc.control.shooting.rows import ConstraintRows
from vioc.control.shooting.stages import StageBlocks, Stages
from vioc.errors import OptimizationError

CONVEX = 1e-8  # smallest over largest eigenvalue of a stage's convexified exact Hessian


class Plan(NamedTuple):
    """Predicted states and inputs of an MPC, with costates and multipliers.

    Attributes
    ----------
    x, u : (n+1, nx), (n, nu)
    p : (n+1, ndx)
        Costates.
    y : (rows,)
        Multipliers of the problem's scaled constraints.
    """

    x: np.ndarray
    u: np.ndarray
    p: np.ndarray
    y: np.ndarray


class Prepared(NamedTuple):
    """Quadratic program of nonlinear MPC before the state is measured.
    It approximates the optimal control problem about a plan, which consists of predicted states and inputs.
    """

    plan: Plan
    stages: Stages
    blocks: StageBlocks
    rows: np.ndarray


class Order(NamedTuple):
    """Order of constraints in the quadratic program: simple ones, then general ones.
    The expression of a simple constraint has one term: a component of the input or of the state's deviation,
    times a constant. All other constraints are general.

    Attributes
    ----------
    simple, general : arrays of int
        Indices of simple and general constraints in the problem.
    at, factor : tuple of int, array
        Components and factors of the simple constraints.
    """

    simple: np.ndarray
    general: np.ndarray
    at: tuple[int, ...]
    factor: np.ndarray

    @staticmethod
    def of(rows: ConstraintRows) -> Order:
        f, entries = rows.map, {}
        s, q = f.symbols, f.ndx + f.nu
        for p in rows.places:
            if p.at_steps is None:
                continue
            e = p.constraint.expression / p.scale
            J = ca.sparsify(ca.simplify(error_jacobian(f, e, s.u, s.multipliers)))
            for i in range(J.size1()):
                row = J[i, :]
                columns = row.sparsity().get_col()
                if len(columns) == 1 and columns[0] < q and not ca.symvar(row):
                    entries[p.at_steps.start + i] = columns[0], float(ca.DM(row).nonzeros()[0])
        simple = np.array(sorted(entries), int)
        general = np.array([i for i in range(rows.m) if i not in entries], int)
        indices = tuple(entries[i][0] for i in simple.tolist())
        return Order(simple, general, indices, np.array([entries[i][1] for i in simple], float))

    def sides(self, low: np.ndarray, high: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Convert limits of a problem's constraints to limits of the quadratic program.
        The quadratic program has the same constraints in another order and with another scaling. The results
        are lower and upper limits (N, m).
        """
        flip, scaled = self.factor < 0, [side[:, self.simple] / self.factor for side in (low, high)]
        first = np.where(flip, *scaled[::-1]), np.where(flip, *scaled)
        lower, upper = (np.hstack([a, b[:, self.general]]) for a, b in zip(first, (low, high), strict=True))
        return lower, upper


class RecedingProgram:
    """Quadratic programs of a nonlinear MPC problem, linearized at every sample.

    Parameters
    ----------
    problem : Problem
        Problem with a given initial state and a given duration.
    soft : dict of str to float or (float, float)
        Weights of limits by name that may be exceeded: a violation e, in the unit of the quantity, costs
        linear e + 1/2 square e^2 per sample; one number is both.
    exact : bool
        Use the Lagrangian's Hessian with eigenvalues made positive in each stage, not the Gauss-Newton one.
    qp : arguments of `StageQP`

    Attributes
    ----------
    layout : StageSizes
    order : Order
    """

    def __init__(self, problem: Problem, soft: Mapping[str, Any] | None, exact: bool, **qp: Any):
        f, rows = problem.map, problem.rows
        u = problem.unknowns
        if u.map is not f or u.free_start:
            raise ValueError(
                "problem: a receding horizon has a given start and no free duration or parameters"
            )
        self.problem, self.exact = problem, exact
        self.order = Order.of(rows)
        prices = _prices(problem, soft or {})
        self.layout = StageSizes(
            problem.steps,
            f.ndx,
            f.nu,
            self.order.at,
            len(self.order.general),
            rows.m_end,
            any((p[0] >= 0).any() for p in prices),
        )
        self.qp = StageQP(self.layout, **qp)
        d, order = self.qp.data, [*self.order.simple, *self.order.general]
        size = np.concatenate([np.abs(self.order.factor), np.ones(len(self.order.general))])
        (linear, square), (d.linear_end[...], d.square_end[...]) = prices
        d.linear[...] = np.where(linear[order] >= 0, linear[order] * size, -1.0)
        d.square[...] = square[order] * size**2
        self._filled: Prepared | None = None

    def clipped(self, u: np.ndarray, step: int) -> np.ndarray:
        """Return an input clipped to its hard bounds at one step of the problem.

        The program's solution satisfies them only to a tolerance.
        """
        rows, d, n = self.problem.rows, self.qp.data, self.problem.map.ndx
        entries = np.array(self.layout.at, int)
        of_input = np.flatnonzero((entries >= n) & (d.linear[: len(entries)] < 0))
        row, factor = self.order.simple[of_input], self.order.factor[of_input]
        sides = [side[step * rows.m + row] / factor for side in (rows.lower, rows.upper)]
        u = u.copy()
        for i, a, b in zip(entries[of_input] - n, *sides, strict=True):
            u[i] = np.clip(u[i], min(a, b), max(a, b))
        return u

    def prepare(self, stages: Stages, plan: Plan) -> Prepared:
        """Return the quadratic program linearized about a plan.
        Raise OptimizationError if a step of the plan cannot be computed.
        """
        point = stages.at(plan.x, plan.u)
        if point is None:
            raise OptimizationError(f"the plan has no steps: {stages.trouble}")
        lin = stages.map.derivatives.linearize(point.steps)
        b = stages.blocks(point, lin, self.exact)
        if self.exact:
            b = _convex(stages.curved(point, lin, b, plan.p, plan.y))
        prepared = Prepared(plan, stages, b, point.rows)
        self._fill(prepared)
        return prepared

    def _fill(self, prepared: Prepared) -> None:
        b, rows, d = prepared.blocks, prepared.stages.rows, self.qp.data
        N, m = rows.steps, rows.m
        d.steps = N
        d.F[:N], d.c[:N], d.H[:N], d.g[:N] = b.F, b.c, b.H, b.g
        d.H_end[...], d.g_end[...], d.J_end[...] = b.H_end, b.g_end, b.J_end
        d.J[:N] = b.J[:, self.order.general]
        low, high = rows.lower - prepared.rows, rows.upper - prepared.rows
        d.lower_end[...], d.upper_end[...] = low[N * m :], high[N * m :]
        sides = low[: N * m].reshape(N, m), high[: N * m].reshape(N, m)
        d.lower[:N], d.upper[:N] = self.order.sides(*sides)
        self.qp.prepare()
        self._filled = prepared

    def solve(self, prepared: Prepared, x: np.ndarray, **options: Any) -> tuple[Plan, Answer]:
        """Solve the quadratic program for the measured state x; return the new plan.
        The solution of the quadratic program is returned, too.
        """
        if self._filled is not prepared:
            self._fill(prepared)
        plan, stages, f = prepared.plan, prepared.stages, prepared.stages.map
        answer = self.qp.solve(f.difference(plan.x[0], x), **options)
        X = f.retract(plan.x, answer.x)
        X[0] = x
        N, m = stages.rows.steps, stages.rows.m
        y = np.zeros((N, m))
        y[:, self.order.simple] = answer.y[:, : len(self.order.simple)] / self.order.factor
        y[:, self.order.general] = answer.y[:, len(self.order.simple) :]
        return Plan(X, plan.u + answer.u, answer.p, np.concatenate([y.ravel(), answer.y_end])), answer


def _prices(problem: Problem, soft: Mapping[str, Any]) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the linear and quadratic weights of violations of all constraints.
    A linear weight of -1 marks a hard constraint.
    """
    rows = problem.rows
    prices = [(np.full(m, -1.0), np.ones(m)) for m in (rows.m, rows.m_end)]
    known = {p.constraint.name: p for p in rows.places}
    if not isinstance(soft, Mapping):
        raise TypeError(
            f"soft: expected weights by name, such as {{{next(iter(known), 'x')!r}: 1e3}}, got {soft!r}"
        )
    for name, weight in soft.items():
        full = name if name in known else next(iter(full_names(problem.map, {name: weight}) or {}), name)
        if full not in known:
            raise ValueError(f"soft: no limit is called {name!r}; {near_misses(name, known)}")
        p = known[full]
        linear, square = penalty(name, weight)
        if (p.limits[0] == p.limits[1]).any():
            raise ValueError(f"soft: {name} is an equation; penalize it in the cost")
        for index, (lines, squares) in zip((p.at_steps, p.at_end), prices, strict=True):
            if index is not None:
                lines[index], squares[index] = linear * p.scale, square * p.scale**2
    return prices


def _convex(b: StageBlocks) -> StageBlocks:
    """Return the data of a quadratic program that is made convex.
    The eigenvalues of the Hessians in the data `b` are replaced by their magnitudes.
    """

    def positive(H: np.ndarray) -> np.ndarray:
        values, vectors = np.linalg.eigh(0.5 * (H + np.swapaxes(H, -1, -2)))
        least = CONVEX * np.abs(values).max(axis=-1, keepdims=True)
        size = np.maximum(np.abs(values), least)
        return np.einsum("...ij,...j,...kj->...ik", vectors, size, vectors)

    return replace(b, H=positive(b.H), H_end=positive(b.H_end))
