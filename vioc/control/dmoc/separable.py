"""Nonlinear programs that consist of small functions.
Each function (block) has a cost and constraints and is evaluated at many places j, such as the samples of a
trajectory. The cost f of the program is the sum of all these costs, and its constraints g are all these
constraints, stacked.

    f = sum over blocks, j of l(w[I_j], p[K_j]),     g = stack over blocks, j of c(w[I_j], p[K_j])

The programs are partially separable. The derivatives of a block are generated once and mapped over the
places j where it is evaluated, so the time to build them does not grow with their number, and their sparsity
is exact. See docs/maths/dmoc.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import casadi as ca
import numpy as np
import scipy.sparse as sp


@dataclass(frozen=True)
class FunctionBlock:
    """Small function that a nonlinear program evaluates at many places (samples).
    Each place has its own variables and parameters.

    Attributes
    ----------
    function : casadi.Function
        ``(v, p) -> (cost (1,), rows (m,))``.
    index : (n, nv) int
        Indices of the unknowns of each place.
    given : (n, np) int
        Indices of the parameters of each place.
    names : tuple of m str
        Names of the constraints.
    samples : (n,) int
        Time index of each place.
    lower, upper : (n, m)
        Bounds of the constraints.
    phase : int
    has_cost : bool
    stage : int
        Order among the constraints of one sample (staged programs): 0 for the defect, 1 for the others.
    """

    function: ca.Function
    index: np.ndarray
    given: np.ndarray
    names: tuple[str, ...]
    samples: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    phase: int = 0
    has_cost: bool = False
    stage: int = 1

    def __post_init__(self) -> None:
        n = len(self.index)
        assert self.index.shape == (n, self.function.numel_in(0))
        assert self.given.shape == (n, self.function.numel_in(1))
        assert self.lower.shape == self.upper.shape == (n, self.rows) and len(self.names) == self.rows

    def __len__(self) -> int:
        """Number of places (samples) at which the block is evaluated."""
        return len(self.index)

    @property
    def rows(self) -> int:
        return self.function.numel_out(1)

    @cached_property
    def _symbols(self) -> tuple[Any, Any]:
        kind = ca.SX if self.function.is_a("SXFunction") else ca.MX
        return kind.sym("v", self.function.numel_in(0)), kind.sym("p", self.function.numel_in(1))

    @cached_property
    def cost(self) -> ca.Function:
        """CasADi function (v, p) that returns the block's cost.
        The arguments are the variables and parameters of one place.
        """
        v, p = self._symbols
        return ca.Function("cost", [v, p], [self.function(v, p)[0]])

    @cached_property
    def equations(self) -> ca.Function:
        """CasADi function (v, p) that returns the block's constraints.
        The arguments are the variables and parameters of one place.
        """
        v, p = self._symbols
        return ca.Function("rows", [v, p], [self.function(v, p)[1]])

    @cached_property
    def gradient(self) -> ca.Function:
        """CasADi function (v, p) that returns the block's cost and its gradient (nv,).
        The arguments are the variables and parameters of one place.
        """
        v, p = self._symbols
        cost = self.function(v, p)[0]
        return ca.Function("gradient", [v, p], [cost, ca.gradient(cost, v)])

    @cached_property
    def jacobian(self) -> ca.Function:
        """CasADi function (v, p) that returns the block's constraints and their Jacobian.
        The arguments are the variables and parameters of one place.
        """
        v, p = self._symbols
        rows = self.function(v, p)[1]
        return ca.Function("jacobian", [v, p], [rows, ca.jacobian(rows, v)])

    def _lagrangian(self) -> tuple[list[Any], Any]:
        v, p = self._symbols
        sigma, mu = type(v).sym("sigma"), type(v).sym("mu", self.rows)
        cost, rows = self.function(v, p)
        return [v, p, sigma, mu], sigma * cost + ca.dot(mu, rows)

    @cached_property
    def hessian(self) -> ca.Function:
        """CasADi function that returns the Hessian of the Lagrangian of the block.
        The Lagrangian at one place (sample) is sigma l + mu'c, with the cost l and the constraints c.

        The function maps (v, p, sigma, mu) to the upper triangle of the Hessian with respect to the variables
        v.
        """
        args, value = self._lagrangian()
        return ca.Function("hessian", args, [ca.triu(ca.hessian(value, args[0])[0])])

    @cached_property
    def by_given(self) -> ca.Function:
        """CasADi function of three derivatives with respect to the block's parameters p.
        They are the derivatives of the Lagrangian of the block, of its gradient with respect to the block's
        variables v, and of the constraints c.

        The arguments are (v, p, sigma, mu). The Lagrangian is sigma l + mu'c with the cost l; its derivative
        is (1, np).
        """
        args, value = self._lagrangian()
        v, p = args[:2]
        rows = self.function(v, p)[1]
        outputs = [ca.jacobian(value, p), ca.jacobian(ca.gradient(value, v), p), ca.jacobian(rows, p)]
        return ca.Function("by_given", args, outputs)

    # -- numerical values -----------------------------------------------------------------------

    def values(self, w: np.ndarray, p: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the block's costs (n,) and its m constraints (n, m) at all n places."""
        cost, rows = self.function.map(len(self))(w[self.index].T, p[self.given].T)
        return np.asarray(cost).ravel(), np.asarray(rows).T

    def slopes(self, w: np.ndarray, p: np.ndarray, size: int, given: int) -> tuple[Any, Any]:
        """Return the sparse Jacobians of the block's constraints at all places.
        The first Jacobian (n m, size) is with respect to all variables of the nonlinear program, the second
        (n m, given) with respect to all its parameters.
        """
        v, g = self._symbols
        rows = self.function(v, g)[1]
        jacobians = []
        for symbol, index, count in ((v, self.index, size), (g, self.given, given)):
            f = ca.Function("slopes", [v, g], [ca.jacobian(rows, symbol)])
            r, c = (np.array(a, int) for a in f.sparsity_out(0).get_triplet())
            numbers = np.array(f.map(len(self))(w[self.index].T, p[self.given].T).nonzeros())
            places = (np.arange(len(self))[:, None] * self.rows + r).ravel(), index[:, c].ravel()
            jacobians.append(sp.csr_matrix((numbers, places), (len(self) * self.rows, count)))
        return jacobians[0], jacobians[1]

    @cached_property
    def _given_slope(self) -> ca.Function:
        """CasADi function of the Lagrangian's gradient with respect to parameters.
        It maps (v, p, mu) to the gradient (np,) of cost + mu'c with respect to the block's parameters p at
        one place.
        """
        v, p = self._symbols
        mu = type(v).sym("mu", self.rows)
        cost, rows = self.function(v, p)
        value = cost * float(self.has_cost) + ca.dot(mu, rows)
        return ca.Function("given_slope", [v, p, mu], [ca.densify(ca.gradient(value, p))])

    def slope_by_given(self, w: np.ndarray, p: np.ndarray, mu: np.ndarray, size: int) -> np.ndarray:
        """Return the gradient (size,) of the Lagrangian with respect to the parameters.
        The parameters are all parameters of the program. The Lagrangian is that of this block: the sum of its
        costs and of mu'rows over all places, with the multipliers mu (n, m) of the constraints (rows).
        """
        total = np.zeros(size)
        if self.given.size:
            slope = self._given_slope.map(len(self))(w[self.index].T, p[self.given].T, mu.T)
            np.add.at(total, self.given.ravel(), np.asarray(slope).T.ravel())
        return total


class SeparableProgram:
    """Nonlinear program that consists of function blocks, with its derivatives.
    A block is a small function that is evaluated at many samples of a trajectory.

    Parameters
    ----------
    blocks : list of FunctionBlock
    size, given : int
        Number of unknowns and of parameters.
    order : (rows,) int, optional
        Permutation of the stacked rows: row i of the program is row ``order[i]`` of the stack.
    """

    def __init__(self, blocks: list[FunctionBlock], size: int, given: int, order: np.ndarray | None = None):
        self.blocks = blocks
        self.w, self.p = ca.MX.sym("w", size), ca.MX.sym("p", given)
        counts = [len(b) * b.rows for b in blocks]
        self._starts = np.concatenate([[0], np.cumsum(counts)])
        self.rows = int(self._starts[-1])
        self._order = np.arange(self.rows) if order is None else order
        self._place = np.argsort(self._order)  # index of each stacked row in the program

    @property
    def size(self) -> int:
        return self.w.numel()

    def rows_of(self, i: int) -> np.ndarray:
        """Return positions (n, m) of block i's constraints in the program's vector g.
        There is a row for each place at which the block is evaluated.
        """
        return self._place[self._starts[i] : self._starts[i + 1]].reshape(len(self.blocks[i]), -1)

    def _gather(self, block: FunctionBlock) -> list[ca.MX]:
        def columns(source: ca.MX, index: np.ndarray) -> ca.MX:
            return ca.reshape(source[index.ravel().tolist()], index.shape[1], len(index))

        return [columns(self.w, block.index), columns(self.p, block.given)]

    @cached_property
    def _values(self) -> tuple[ca.MX, ca.MX]:
        f, g = ca.MX(0), []
        for block in self.blocks:
            n, args = len(block), self._gather(block)
            if block.has_cost:
                f += ca.sum2(block.cost.map(n)(*args))
            if block.rows:
                g.append(ca.vec(block.equations.map(n)(*args)))
        stacked = ca.vertcat(ca.MX(0, 1), *g)
        return f, self._reordered(stacked)

    def _reordered(self, stacked: ca.MX) -> ca.MX:
        in_order = (self._order == np.arange(self.rows)).all()
        return stacked if in_order else stacked[self._order.tolist()]

    @property
    def nlp(self) -> dict[str, ca.MX]:
        """Expressions of the program for `casadi.nlpsol`: x, p, f and g."""
        f, g = self._values
        return {"x": self.w, "p": self.p, "f": f, "g": g}

    @cached_property
    def values(self) -> ca.Function:
        """CasADi function (w, p) that returns the cost f and the constraints g.
        w are the variables and p the parameters of the program.
        """
        return ca.Function("values", [self.w, self.p], list(self._values))

    @cached_property
    def grad_f(self) -> ca.Function:
        """CasADi function (w, p) that returns the cost f and its gradient.
        w are the variables and p the parameters of the program.
        """
        f, parts, targets = ca.MX(0), [], []
        for block in self.blocks:
            if block.has_cost:
                cost, out = block.gradient.map(len(block))(*self._gather(block))
                columns = np.array(block.gradient.sparsity_out(1).row(), int)
                f += ca.sum2(cost)
                parts.append(_nonzeros(out))
                targets.append(block.index[:, columns].ravel())
        total = _scatter_add(parts, targets, self.size)
        return ca.Function("grad_f", [self.w, self.p], [f, total], ["x", "p"], ["f", "grad"])

    @cached_property
    def jac_g(self) -> ca.Function:
        """CasADi function (w, p) that returns the constraints g and their Jacobian.
        w are the variables and p the parameters of the program.
        """
        parts, rows, columns, values = [], [], [], []
        for i, block in enumerate(self.blocks):
            g, J = block.jacobian.map(len(block))(*self._gather(block))
            values.append(ca.vec(g))
            row, column = (np.array(a, int) for a in block.jacobian.sparsity_out(1).get_triplet())
            parts.append(_nonzeros(J))
            rows.append(self.rows_of(i)[:, row].ravel())
            columns.append(block.index[:, column].ravel())
        r, c = _joined(rows), _joined(columns)
        order = np.lexsort((r, c))
        sparsity = ca.Sparsity.triplet(self.rows, self.size, r[order].tolist(), c[order].tolist())
        nonzeros = ca.vertcat(ca.MX(0, 1), *parts)[order.tolist()]
        g = self._reordered(ca.vertcat(ca.MX(0, 1), *values))
        return ca.Function(
            "jac_g", [self.w, self.p], [g, ca.MX(sparsity, nonzeros)], ["x", "p"], ["g", "jac"]
        )

    @cached_property
    def hess_lag(self) -> ca.Function:
        """CasADi function that returns the Hessian of the Lagrangian sigma f + mu'g.
        It maps (w, p, sigma, mu) to the upper triangle of the Hessian with respect to the variables w of the
        program.
        """
        sigma, mu = ca.MX.sym("sigma"), ca.MX.sym("mu", self.rows)
        parts, targets = [], []
        for i, block in enumerate(self.blocks):
            n = len(block)
            weights = mu[self.rows_of(i).ravel().tolist()] if block.rows else ca.MX(0, 1)
            weights = ca.reshape(weights, block.rows, n)
            scale = ca.repmat(sigma if block.has_cost else ca.MX(0), 1, n)
            H = block.hessian.map(n)(*self._gather(block), scale, weights)
            row, column = (np.array(a, int) for a in block.hessian.sparsity_out(0).get_triplet())
            a, b = block.index[:, row].ravel(), block.index[:, column].ravel()
            parts.append(_nonzeros(H))
            targets.append(np.minimum(a, b) + self.size * np.maximum(a, b))
        entries = np.unique(_joined(targets))
        places = [np.searchsorted(entries, t) for t in targets]
        nonzeros = _scatter_add(parts, places, len(entries))
        sparsity = ca.Sparsity.triplet(
            self.size, self.size, (entries % self.size).tolist(), (entries // self.size).tolist()
        )
        H = ca.MX(sparsity, nonzeros)
        names = ["x", "p", "lam_f", "lam_g"]
        return ca.Function("hess_lag", [self.w, self.p, sigma, mu], [H], names, ["hess"])


def _nonzeros(matrix: ca.MX) -> ca.MX:
    return ca.vec(matrix.nz[:]) if matrix.nnz() else ca.MX(0, 1)


def _joined(arrays: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([np.empty(0, int), *arrays])


def _scatter_add(parts: list[ca.MX], targets: list[np.ndarray], size: int) -> ca.MX:
    """Return a symbolic vector (size,) with values added at given indices.
    Entry t is the sum of the parts with target t.
    """
    target = _joined(targets)
    if not len(target):
        return ca.MX.zeros(size)
    source = ca.vertcat(*parts)
    if len(np.unique(target)) == len(target) == size:
        return source[np.argsort(target).tolist()]
    add = ca.Sparsity.triplet(size, len(target), target.tolist(), list(range(len(target))))
    return ca.densify(ca.DM(add, 1.0) @ source)  # a solver reads every entry
