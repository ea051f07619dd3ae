"""CasADi functions of a cost and its derivatives, checked when they are built."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from vioc.checks import check_array
from vioc.compile.evaluate import Evaluator
from vioc.control.costs.squares import Squares
from vioc.control.linear.tangent import error_curvature, error_expansion, error_jacobian, foreign_symbols
from vioc.control.linear.weights import absolute
from vioc.maps.protocol import OneStepMap

LONG = 150_000  # operations times directions (colours) above which a Hessian is a loop over its columns
COMPILED = 40_000  # operations above which compiling takes longer than all uncompiled evaluations


def described(expression: ca.SX) -> str:
    """Return an expression as text; for a long one only the names of its symbols."""
    text = str(expression)
    if len(text) <= 60 and "@" not in text:  # @1 is CasADi's name of a shared part
        return text
    names = sorted({s.name() for s in ca.symvar(expression)})
    return f"of {', '.join(names[:8])}" + f", ... ({len(names)} in all)" * (len(names) > 8)


def reference_rows(symbol: ca.SX, values: Any) -> np.ndarray:
    """Return the values of a reference over time, with a row for each sample.
    The number of columns is the number of entries of `symbol`, which stands for the reference in the cost.
    """
    array = np.asarray(values, float)
    if array.ndim == 1 and symbol.numel() == 1:
        array = array[:, None]
    if array.ndim != 2:
        raise ValueError(f"reference {symbol}: expected rows of {symbol.numel()}, got shape {array.shape}")
    return check_array(array, (len(array), symbol.numel()), f"reference {symbol}")


def scalar_function(name: str, args: list[ca.SX], expression: Any) -> ca.Function:
    """Return a cost expression as a CasADi function.

    Raises ValueError if the cost is not scalar or contains symbols other than `args`.
    """
    expression = ca.SX(expression)
    if not expression.is_scalar():
        raise ValueError(f"{name} cost: expected a scalar, got shape {expression.shape}")
    if free := foreign_symbols(expression, ca.vertcat(*args)):
        raise ValueError(f"{name} cost: {free[0]!r} is neither a symbol of this map nor a reference")
    return ca.Function(name, args, [ca.densify(expression)])


def derivatives(name: str, f: OneStepMap, args: list[ca.SX], scalar: ca.SX, *others: ca.SX) -> ca.Function:
    """Return a CasADi function for gradient and Hessian of a scalar expression.
    Derivatives are taken with respect to the error of the state and the symbols `others`. The gradient is a
    column, and `args` are the arguments of the function.
    """
    operations = ca.Function("scalar", args, [scalar]).n_instructions()
    if operations * (f.ndx + sum(o.numel() for o in others)) > LONG:
        used = [o for o in others if ca.depends_on(scalar, o)]
        gradient, d, along = error_curvature(f, scalar, *used)
        if operations * ca.jacobian_sparsity(along, d).star_coloring().size2() > LONG:
            return _by_columns(name, f, args, others, used, gradient, d, along)
    gradient, hessian = error_expansion(f, scalar, *others)
    return ca.Function(name, args, [gradient, hessian])


def _by_columns(
    name: str,
    f: OneStepMap,
    args: list[ca.SX],
    others: Sequence[ca.SX],
    used: Sequence[ca.SX],
    gradient: ca.SX,
    d: ca.SX,
    along: ca.SX,
) -> ca.Function:
    """Return a function that computes a gradient, and the Hessian column by column.

    `along` is the product of the Hessian and a direction d of the variables (error of the state, `used`).
    """
    first = ca.Function("first", args, [ca.densify(gradient)])
    column = ca.Function("column", [*args, d], [ca.densify(along)])
    columns = column.map("columns", "serial", d.numel(), list(range(len(args))), [])
    given = [ca.MX.sym("a", a.numel()) for a in args]
    rows = [ca.DM.eye(f.ndx)]  # selects the used variables among all
    rows += [ca.DM.eye(o.numel()) if any(o is u for u in used) else ca.DM(o.numel(), 0) for o in others]
    E = ca.diagcat(*rows)
    H = columns(*given, ca.DM.eye(d.numel()))
    return ca.Function(name, given, [E @ first(*given), E @ H @ E.T])


class Slopes(NamedTuple):
    """Nonlinear residuals of a cost, with their Jacobian and weight matrix.

    Attributes
    ----------
    r : (..., n, 1)
    J : (..., n, q)
        Derivative of r with respect to the error of the state and, for a running cost, input and multipliers.
    W : (..., n, n)
        Second derivative of the cost with respect to the residuals.
    """

    r: np.ndarray
    J: np.ndarray
    W: np.ndarray

    def predicted(self, dz: np.ndarray) -> np.ndarray:
        """Return the linear prediction r + J dz (..., n) of residuals after a step dz.
        r are the residuals before the step, and J is their Jacobian.
        """
        rho: np.ndarray = self.r + self.J @ dz[..., None]
        return rho[..., 0]

    def misprediction_cost(self, rho: np.ndarray, r: np.ndarray) -> np.ndarray:
        """Return the cost 1/2 e'We (...) of the errors e of predicted residuals.

        The errors are e = r - rho, with the actual nonlinear residuals r (..., n, 1) of the cost and their
        linear prediction rho (..., n). W is the weight matrix of the residuals.
        """
        error = r[..., 0] - rho
        cost: np.ndarray = 0.5 * np.einsum("...i,...ij,...j->...", error, self.W, error)
        return cost

    def beyond(self, dz: np.ndarray, r: np.ndarray) -> np.ndarray:
        """Return J'We (..., q), a correction of the gradient for prediction errors e.

        The error e = r1 - r - J dz is the actual value r1 (..., n, 1) of the cost's nonlinear residuals after
        the step dz, the argument `r`, minus their linear prediction. J is the Jacobian of these residuals,
        and W their weight matrix.
        """
        error = r - self.r - self.J @ dz[..., None]
        g: np.ndarray = np.swapaxes(self.J, -1, -2) @ (self.W @ error)
        return g[..., 0]


class Bent(NamedTuple):
    """CasADi functions of a cost's nonlinear residuals, for the exact Hessian.
    They return residuals, Jacobian and weights, and the gradient and exact Hessian of the cost.

    The residuals r have multipliers y = W rho, where rho is the prediction of r for the step that led to the
    iterate; at convergence rho = r.

    Attributes
    ----------
    second : Evaluator
        Function of a cost's arguments and rho (n,). It returns the gradient (q, 1), the exact Hessian (q, q)
        with W rho instead of W r, and r, J, W of `Slopes`.
    slopes : Evaluator
        Function that returns r, J, W.
    values : Evaluator
        Function that returns r (n, 1).
    """

    second: Evaluator
    slopes: Evaluator
    values: Evaluator


class CostPart:
    """Running or terminal cost, with the functions of its value and derivatives.
    The functions are built when first used.

    Parameters
    ----------
    name : str
    f : OneStepMap
    args : list of SX
        ``*f.symbols, reference``.
    what : SX, float or Squares
    others : SX
        Variables of the derivatives besides the error of the state: inputs, multipliers.

    Raises
    ------
    ValueError
        As `scalar_function`.

    Attributes
    ----------
    function : casadi.Function
        The cost as a function of `args`.
    lifted : casadi.Function
        value, r, W and rest of `Squares` as functions of `args` and, if used, `Mechanism.implicit`.
    """

    def __init__(self, name: str, f: OneStepMap, args: list[ca.SX], what: Any, *others: ca.SX):
        self._name, self._map, self._args, self._others = name, f, args, others
        self._structure = s = Squares.of(what, ca.vertcat(f.symbols.x, *others))
        self.function = scalar_function(name, args, s.value)
        parts = [s.value, s.r, s.W, s.rest]
        w, sizes = ca.SX(0, 1), [0, *np.cumsum([p.nnz() for p in parts]).tolist()]
        inner = f.mechanism.implicit
        lifted = inner and inner.lifted(ca.vertcat(*(p.nz[:] for p in parts)))
        if lifted is not None and inner is not None:
            w, split = inner.w, ca.vertsplit(lifted, sizes)
            parts = [ca.SX(p.sparsity(), e) for p, e in zip(parts, split, strict=True)]
        self.lifted = ca.Function(name, [*args, w], parts)

    def expression(self, *args: Any) -> Any:
        """Return the cost as an expression of CasADi symbols `args`.
        The symbols stand for state, input, multipliers, parameters, step length and references.

        The quantities `Mechanism.implicit` may be a further argument.
        """
        function = self.function if len(args) == len(self._args) else self.in_quantities
        assert function is not None
        return function(*args)

    @cached_property
    def in_quantities(self) -> ca.Function | None:
        """CasADi function of the cost with implicit quantities as further arguments.
        Implicit quantities (`Mechanism.implicit`) solve linear equations; velocities that follow from momenta
        are an example. The value is None if the cost has none.
        """
        inner = self._map.mechanism.implicit
        value = None if inner is None else inner.lifted(self._structure.value, short=True)
        if inner is None or value is None:
            return None
        return ca.Function(self._name, [*self._args, inner.w], [value])

    def squares(self, *args: Any) -> Squares:
        """Return the cost as `Squares`, for CasADi symbols `args`.

        The symbols stand for state, input, multipliers, parameters, step length and references. The cost is
        split into phi(r) and other terms, with a convex function phi of residuals r, e.g. a weighted sum of
        squares.
        """
        return at_arguments(self._map, self.lifted, args)

    def _evaluator(self, function: ca.Function) -> Evaluator:
        long = function.n_instructions() > COMPILED
        return Evaluator(function if long else self._map.backend.prepare(function))

    @cached_property
    def value(self) -> Evaluator:
        """Function that evaluates the cost; its result is an array of shape (1, 1)."""
        return self._evaluator(self.function)

    @cached_property
    def exact(self) -> Evaluator:
        """Function that evaluates the cost's gradient (n, 1) and exact Hessian (n, n).
        The n variables are the error of the state and, for a running cost, the input and the multipliers.
        """
        value = self._structure.value
        return self._evaluator(derivatives("exact", self._map, self._args, value, *self._others))

    def gauss_newton(
        self, sizes: np.ndarray, *args: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, Slopes | None]:
        """Return gradient, Gauss-Newton Hessian and nonlinear residuals of the cost.

        The shapes of gradient and Hessian are (..., n, 1) and (..., n, n). The Hessian is J'WJ plus the
        Hessian of the remaining terms of the cost, with the eigenvalues of the latter replaced by their
        magnitudes. These are the eigenvalues in units of the variables' typical sizes (n,). The nonlinear
        residuals are None if all residuals are linear.
        """
        evaluate, indices, constant = self._gauss_newton
        gradient, H, rest, *slopes = evaluate(*args)
        if constant is not None:
            H[..., indices[:, None], indices] += absolute(constant, sizes[indices])
        elif len(indices):
            known = np.isfinite(rest).all(axis=(-2, -1), keepdims=True)
            positive = absolute(np.where(known, rest, 0.0), sizes[indices])
            H[..., indices[:, None], indices] += np.where(known, positive, np.nan)
        return gradient, H, Slopes(*slopes) if slopes else None

    def second(
        self, rho: np.ndarray | None, *args: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, Slopes | None]:
        """Return gradient, exact Hessian and nonlinear residuals of the cost.

        The shapes of gradient and Hessian are (..., n, 1) and (..., n, n). If predicted residuals rho are
        given, the Hessian contains their multipliers W rho instead of the multipliers W r of the actual
        residuals.
        """
        if self.bent is None or rho is None:
            gradient, H = self.exact(*args)
            return gradient, H, None if self.bent is None else Slopes(*self.bent.slopes(*args))
        gradient, H, *slopes = self.bent.second(*args, rho)
        return gradient, H, Slopes(*slopes)

    @cached_property
    def _inner(self) -> ca.SX:
        return ca.vertcat(self._map.symbols.x, *self._others)

    @cached_property
    def _curved(self) -> tuple[list[int], list[ca.SX]]:
        """Indices of the cost's nonlinear residuals, and a list [r, J, W].

        The expressions r are these residuals, J is their Jacobian with respect to (error of the state,
        `others`), and W their weight matrix; all are dense. The list is empty if all residuals are linear.
        """
        s, inner = self._structure, self._inner
        J = error_jacobian(self._map, s.r, *self._others)
        rows = [i for i in range(s.r.numel()) if ca.depends_on(J[i, :], inner)]
        rows = [i for i in rows if not ca.depends_on(s.W[i, :], inner)]  # with variable W, phi' is unknown
        return rows, [ca.densify(e) for e in (s.r[rows], J[rows, :], s.W[rows, rows])] if rows else []

    @cached_property
    def bent(self) -> Bent | None:
        """CasADi functions of the cost's nonlinear residuals, or None if there are none.

        These residuals are nonlinear functions of the error of the state and of `others`.
        """
        f, s, (rows, slopes) = self._map, self._structure, self._curved
        if not rows:
            return None
        r, _, W = slopes
        rho, m = (ca.SX.sym(name, r.numel()) for name in ("rho", "m"))
        if ca.depends_on(s.W, self._inner):  # second derivatives of the other residuals are unknown too
            gradient, H = error_expansion(f, s.value, *self._others)
            H += error_expansion(f, ca.dot(m, r), *self._others)[1]
            H = ca.substitute(H, m, W @ (rho - r))
        else:
            others = ca.vertcat(*(0 if i in rows else s.r[i] for i in range(s.r.numel())))
            H = error_expansion(f, s.rest + ca.dot(m, r), *self._others)[1]
            H = ca.substitute(H, m, W @ rho + s.W[rows, :] @ others) + squares_hessian(f, s, *self._others)
            gradient = error_jacobian(f, s.value, *self._others).T
        return Bent(
            self._rows("second", [gradient, H, *slopes], rho),
            self._rows("slopes", slopes),
            self._rows("residuals", [r]),
        )

    def _rows(self, name: str, outputs: Sequence[ca.SX], *more: ca.SX) -> Evaluator:
        outputs = [ca.densify(e) for e in outputs]
        return self._evaluator(ca.Function(name, [*self._args, *more], outputs))

    @cached_property
    def _gauss_newton(self) -> tuple[Evaluator, np.ndarray, np.ndarray | None]:
        """Function for gradient and Gauss-Newton Hessian, indices and a constant part.

        The function returns the gradient, the matrix J'WJ of the residuals with their Jacobian J and weight
        W, and the Hessian of those terms of the cost that are not squares of residuals. This last Hessian is
        restricted to the variables on which it depends; the second item has the indices of these variables.
        If this Hessian is constant, it is the third item, and the function returns an empty matrix for it.
        """
        f, others, structure = self._map, self._others, self._structure
        gradient = error_jacobian(f, structure.value, *others).T
        squares = squares_hessian(f, structure, *others)
        hessian = ca.simplify(error_expansion(f, structure.rest, *others)[1])
        indices = np.unique(hessian.sparsity().get_triplet()[0]).astype(int)
        block, constant = hessian[indices.tolist(), indices.tolist()], None
        if not ca.symvar(hessian) and len(indices):
            block, constant = ca.SX(0, 0), ca.DM(block).full()
        return self._rows("gauss_newton", [gradient, squares, block, *self._curved[1]]), indices, constant


def at_arguments(f: OneStepMap, lifted: ca.Function, args: Sequence[Any]) -> Squares:
    """Return a cost as `Squares`, for CasADi symbols `args`.

    The symbols stand for state, input, multipliers, parameters, step length and references. The cost is split
    into phi(r) and other terms, with a convex function phi of residuals r, e.g. a weighted sum of squares.
    `lifted` is the attribute of `CostPart`. With the map's own symbols, the result contains the same
    expression nodes as `Mechanism.implicit`.
    """
    w = ca.SX(0, 1)
    if lifted.numel_in(len(args)) and f.mechanism.implicit is not None:
        w = f.mechanism.implicit.values_at(args[0], args[3])
    return Squares(*lifted(*args, w))


def squares_hessian(f: OneStepMap, structure: Squares, *others: ca.SX) -> ca.SX:
    """Return the Gauss-Newton Hessian J'WJ of a cost, as an expression.

    J is the Jacobian of the residuals with respect to (error of the state, `others`), and W their weight
    matrix.
    """
    n = f.ndx + sum(o.numel() for o in others)
    if not structure.r.numel():
        return ca.SX(n, n)
    J = error_jacobian(f, structure.r, *others)
    return ca.tril2symm(ca.tril(J.T @ (structure.W @ J)))


def end_function(f: OneStepMap, part: CostPart) -> ca.Function:
    """Return a CasADi function for the terminal cost and its derivatives.

    Inputs: x, parameters, reference. Outputs: value, gradient, Hessian, J'WJ, Hessian of the remainder.
    """
    x, u, lam, theta, _ = f.symbols
    args = [*f.symbols, ca.SX.sym("reference", part.function.numel_in(5))]
    structure = part.squares(*args)
    m = structure.value
    gradient, hessian = error_expansion(f, m)
    rest = error_expansion(f, structure.rest)[1]
    outputs = [m, gradient, hessian, squares_hessian(f, structure), rest]
    outputs = [ca.substitute(o, ca.vertcat(u, lam), 0) for o in outputs]
    return ca.Function("end", [x, theta, args[-1]], outputs)
