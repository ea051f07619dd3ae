"""Solutions of linear equations, such as velocities, and implicit derivatives.

The unknowns w of a map solve G(x, w) = 0 at the state x. An example are the velocities v in M(q) v = p. The
derivatives of w, and of a weighted sum of its entries, are

    G(x, w) = 0,   K = D_w G symmetric,     D w = F = -K^-1 G_x,
    weights . w'' = T' (mu . G)'' T,        T = [1; F],   mu = -K^-1 weights.

`Implicit.values` is the solution as a CasADi expression, an elimination written out. `Implicit.lifted`
replaces it by the symbols w in other expressions, which can then be differentiated by the formulas above.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import casadi as ca

SHORT = 100  # largest number of operations for which direct differentiation is as short
NODES = 100_000  # nodes of an expression that are searched for the quantities


@dataclass(frozen=True)
class Equations:
    """Linear equations G(x, parameters, w) = 0 for unknowns w, as CasADi symbols.

    Attributes
    ----------
    x, parameters, w : SX
    G : SX (n,)
    solve : callable
        Function that returns K^-1 B for B (n, m), in the same symbols, with the Jacobian K of G by w.
    """

    x: ca.SX
    parameters: ca.SX
    w: ca.SX
    G: ca.SX
    solve: Callable[[ca.SX], ca.SX]


class Implicit:
    """Solution w of linear equations G(x, w) = 0 at a state x, such as velocities.

    Parameters
    ----------
    x, parameters : SX
        Symbols of a map.
    values : callable
        Returns the solution w (n,) in these symbols; every call returns the same CasADi nodes.
    has_values : callable
        Returns whether `values` was called; before that no expression contains the solution.
    equations : callable
        Returns the equations; called when they are needed.
    """

    def __init__(
        self,
        x: ca.SX,
        parameters: ca.SX,
        values: Callable[[], ca.SX],
        has_values: Callable[[], bool],
        equations: Callable[[], Equations],
    ):
        self.x, self.parameters = x, parameters
        self._values, self._has_values, self._equations = values, has_values, equations

    @cached_property
    def values(self) -> ca.SX:
        """Unknowns w (n,), such as velocities, as an expression in the state and the parameters.
        The expression is the solution of the linear equations G(x, w) = 0."""
        return self._values()

    @cached_property
    def w(self) -> ca.SX:
        """CasADi symbols (n,) of the unknowns w of the linear equations G(x, w) = 0.
        In long expressions, these symbols replace the solution of the equations."""
        return ca.SX.sym("w", self.values.numel())

    def extended(
        self, x: ca.SX, parameters: ca.SX, more: Callable[[ca.SX], ca.SX], rest: list[int]
    ) -> Implicit:
        """Return the unknowns w as those of a map with a longer state x.
        The longer state is this map's state, followed by the components that `more` returns for the
        parameters of this map. These components replace some parameters. The others, with the indices `rest`,
        are the `parameters` of the map with the longer state.
        """

        def equations() -> Equations:
            e = self._equations()
            return Equations(
                ca.vertcat(e.x, more(e.parameters)), entries(e.parameters, rest), e.w, e.G, e.solve
            )

        return Implicit(x, parameters, lambda: self.values, self._has_values, equations)

    def values_at(self, x: ca.SX, parameters: ca.SX) -> ca.SX:
        """Return the quantities w (n,), such as velocities, for a given state x and `parameters`.
        The quantities are the solution of the linear equations G(x, w) = 0, as a CasADi expression.
        """
        if ca.is_equal(x, self.x) and ca.is_equal(parameters, self.parameters):
            return self.values
        return self._function(x, parameters)

    @cached_property
    def _function(self) -> ca.Function:
        return ca.Function("w", [self.x, self.parameters], [self.values])

    @cached_property
    def _long(self) -> bool:
        return self._function.n_instructions() > SHORT

    def lifted(self, expression: ca.SX, short: bool = False) -> ca.SX | None:
        """Replace the solution of G(x, w) = 0 in an expression by the symbols w.
        Return the new expression, or None if the expression does not contain the solution. Unless `short` is
        True, the result is also None if the solution has at most `SHORT` operations.
        """
        if not (self._has_values() and (short or self._long)):
            return None
        pairs = zip(self.values.nonzeros(), self.w.nonzeros(), strict=True)
        done = {v.element_hash(): w for v, w in pairs if v.n_dep()}
        entries = expression.nonzeros()
        pending = list(reversed(entries))
        while pending:
            e = pending[-1]
            key = e.element_hash()
            if key in done:
                pending.pop()
                continue
            deps = [e.dep(i) for i in range(e.n_dep())]
            missing = [d for d in deps if d.element_hash() not in done]
            if missing and len(done) < NODES:
                pending += missing
                continue
            pending.pop()
            new = [done.get(d.element_hash(), d) for d in deps]
            if all(a.element_hash() == b.element_hash() for a, b in zip(new, deps, strict=True)):
                done[key] = e
                continue
            if len(deps) > 2:
                return None  # call of a function
            done[key] = ca.SX.unary(e.op(), *new) if len(new) == 1 else ca.SX.binary(e.op(), *new)
        replaced = [done[e.element_hash()] for e in entries]
        same = all(a.element_hash() == b.element_hash() for a, b in zip(replaced, entries, strict=True))
        return None if same else ca.SX(expression.sparsity(), ca.vertcat(*replaced))

    def lowered(self, *expressions: ca.SX) -> list[ca.SX]:
        """Replace the symbols w in expressions by the solution of the linear equations G(x, w) = 0."""
        return ca.substitute(list(expressions), [self.w], [self.values])

    @cached_property
    def _derivatives(self) -> ca.Function:
        """CasADi function (x, parameters, w, weights) -> G, F, mu for the unknowns w.
        G is the residual of the equations G(x, w) = 0, F = dw/dx is the derivative of their solution, and mu
        are the adjoint variables for the sum of w with the given weights.
        """
        e = self._equations()
        weights = ca.SX.sym("weights", e.w.numel())
        outputs = [e.G, -e.solve(ca.jacobian(e.G, e.x)), -e.solve(weights)]
        return ca.Function("implicit", [e.x, e.parameters, e.w, weights], outputs)

    def equation(self) -> ca.SX:
        """Return the residual G (n,) of the linear equations G(x, w) = 0 for the unknowns w.
        It is an expression in the state x, the parameters and the symbols w."""
        return self._derivatives(self.x, self.parameters, self.w, 0)[0]

    def first(self) -> ca.SX:
        """Return the derivative (n, nx) of the unknowns w (n,) with respect to the state x (nx,).
        The unknowns, such as velocities, solve the linear equations G(x, w) = 0.
        """
        return self._derivatives(self.x, self.parameters, self.w, 0)[1]

    def adjoint(self, weights: ca.SX) -> ca.SX:
        """Return the adjoint variables (n,) of the linear equations G(x, w) = 0 for the unknowns w.
        They belong to the weighted sum of the unknowns with the given `weights` (n,)."""
        return self._derivatives(self.x, self.parameters, self.w, weights)[2]


def entries(column: ca.SX, indices: list[int]) -> ca.SX:
    """Return a CasADi column vector of those entries of `column` that have the given `indices`."""
    return ca.vertcat(ca.SX(0, 1), *(column[i] for i in indices))
