"""Detection of squared residuals in a cost, for Gauss-Newton Hessians.

    l = phi(r) + rest,   phi convex,   second derivatives  J' W J + (those of rest),  W = phi''

For 1/2 r' W r this is the Gauss-Newton matrix. The neglected term, sum of (W r)_i r_i'', may have either sign
and is not informative far from the goal. See docs/maths/optimal_control.md, "Gauss-Newton".
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import casadi as ca
import numpy as np

SAME = 4  # depth to which two expressions are compared
ROUNDING = 1e-12  # rounding of the eigenvalues of a form whose diagonal entries are scaled to 1
VISITS = 100_000  # number of terms of a sum that are examined; the others are added to `rest` unchanged


@dataclass(frozen=True)
class Squares:
    """Scalar expression, split into phi(r) and other terms.
    phi is a convex function of the residuals r, such as a weighted sum of their squares.

    Attributes
    ----------
    value : SX
        The scalar.
    r : SX (n,)
        Residuals.
    W : SX (n, n)
        Second derivative of phi with respect to the residuals, symmetric, positive semi-definite.
    rest : SX
        value - phi(r), without terms that have no second derivatives.
    """

    value: ca.SX
    r: ca.SX
    W: ca.SX
    rest: ca.SX

    @staticmethod
    def nothing() -> Squares:
        return Squares(ca.SX(0), ca.SX(0, 1), ca.SX(0, 0), ca.SX(0))

    @staticmethod
    def convex(value: ca.SX, r: ca.SX, W: Any) -> Squares:
        """Return a cost phi(r) in split form, without other terms.
        phi is a convex function of the residuals r, `value` is the expression of phi(r), and W the Hessian of
        phi with respect to r.

        The caller must ensure W >= 0.
        """
        return Squares(ca.SX(value), ca.vec(r), ca.sparsify(ca.SX(W)), ca.SX(0))

    @staticmethod
    def of(expression: Any, x: ca.SX) -> Squares:
        """Split a scalar expression into weighted squares of residuals and other terms.
        The residuals depend on the symbols `x`. The weights do not depend on these symbols.

        The search passes through sums, differences, and products with factors that do not depend on `x`. It
        finds c sq(r), c r r and c r^2 / d, also if r is a sum, and e' W e with a constant matrix W that is
        positive semi-definite. If a factor c is not constant, its sign is unknown: the residual then has
        weight 0 at values with c < 0.
        """
        if isinstance(expression, Squares):
            return expression
        value = ca.SX(expression)
        if not value.is_scalar():
            return Squares(value, ca.SX(0, 1), ca.SX(0, 0), value)
        walk = _Walk(x)
        walk.through(value)
        forms = walk.forms()
        r = ca.vertcat(ca.SX(0, 1), *walk.residuals, *(z for z, _ in forms))
        weights = [ca.SX(w) for w in walk.weights] + [ca.sparsify(ca.SX(C)) for _, C in forms]
        rest = ca.SX(0)
        for term in walk.rest:
            rest = rest + term
        return Squares(value, r, ca.diagcat(*weights) if weights else ca.SX(0, 0), rest)

    @staticmethod
    def without(expression: ca.SX, x: ca.SX) -> ca.SX:
        """Return the part of a sum that does not depend on the symbols `x`."""
        walk = _Walk(x)
        walk.through(expression)
        return sum(walk.free, ca.SX(0))

    def __add__(self, other: Squares) -> Squares:
        return Squares(
            self.value + other.value,
            ca.vertcat(self.r, other.r),
            ca.diagcat(self.W, other.W),
            self.rest + other.rest,
        )


class _Walk:
    """Traversal of a sum that separates squares of residuals from the other terms."""

    def __init__(self, x: ca.SX):
        self._symbols = x
        self.residuals: list[ca.SX] = []
        self.weights: list[ca.SX] = []  # factors of 1/2 r^2
        self.rest: list[ca.SX] = []
        self.free: list[ca.SX] = []  # terms independent of `x`
        self._known: dict[int, int] = {}
        self._products: list[tuple[float, ca.SX, ca.SX]] = []

    def through(self, value: ca.SX) -> None:
        """Visit every term of an expression, through nested sums."""
        pending, visits = [(value, ca.SX(1))], 0
        while pending:
            e, c = pending.pop()
            visits += 1
            if visits > VISITS:
                self.rest.append(c * e)
            elif e.is_op(ca.OP_ADD):
                pending += [(e.dep(1), c), (e.dep(0), c)]
            elif e.is_op(ca.OP_SUB):
                pending += [(e.dep(1), -c), (e.dep(0), c)]
            elif inner := self._multiple(e, c):
                pending.append(inner)
            elif e.is_op(ca.OP_SQ) or (e.is_op(ca.OP_MUL) and _same(e.dep(0), e.dep(1))):
                self._square(e.dep(0), c, e, pending)
            elif e.is_op(ca.OP_MUL):
                self._product(e, c, pending)
            elif self._depends(e):
                self.rest.append(c * e)
            else:
                self.free.append(c * e)

    def _multiple(self, e: ca.SX, c: Any) -> tuple[ca.SX, Any] | None:
        """Return operand and factor of a negation, doubling or division.
        Return None for any other expression, and if the divisor depends on `x`.

        The factor is that of the expression times c.
        """
        if e.is_op(ca.OP_NEG):
            return e.dep(0), -c
        if e.is_op(ca.OP_TWICE):
            return e.dep(0), 2 * c
        if e.is_op(ca.OP_DIV) and not self._depends(e.dep(1)):
            return e.dep(0), c / e.dep(1)
        return None

    def _product(self, e: ca.SX, c: ca.SX, pending: list) -> None:
        """Store a term c e of a sum, where e is a product, by its kind.

        The kinds are squares of residuals, products of two different factors, and other terms. Factors that
        do not depend on the variables of the residuals become the weight.
        """
        factors, varying = [e], []
        while factors:
            a = factors.pop()
            if a.is_op(ca.OP_MUL):
                factors += [a.dep(1), a.dep(0)]
            elif inner := self._multiple(a, c):
                factors.append(inner[0])
                c = inner[1]
            elif self._depends(a):
                varying.append(a)
            else:
                c = c * a
        if len(varying) == 1:
            pending.append((varying[0], c))
        elif len(varying) == 2 and _same(*varying):
            self._square(varying[0], c, ca.SX(varying[0] * varying[1]), pending)
        elif len(varying) == 2 and c.is_constant():
            self._products.append((float(c), *varying))
        else:
            total = c
            for a in varying:
                total = total * a
            (self.rest if varying else self.free).append(total)

    def _square(self, r: ca.SX, c: ca.SX, square: ca.SX, pending: list) -> None:
        if r.is_op(ca.OP_SQRT) and _sum_of_squares(r.dep(0)):  # |e|^2, written as the square of a root
            pending.append((r.dep(0), c))
        elif not self._depends(r):
            self.free.append(c * square)
        elif c.is_constant():
            if float(c) > 0:
                self._add(r, 2 * c)
            elif float(c) < 0:
                self.rest.append(c * square)
        else:
            self._add(r, ca.if_else(c > 0, 2 * c, 0))

    def _add(self, r: ca.SX, weight: ca.SX) -> None:
        index = self._known.setdefault(r.element_hash(), len(self.residuals))
        if index < len(self.residuals):
            self.weights[index] = self.weights[index] + weight
        else:
            self.residuals.append(r)
            self.weights.append(weight)

    # -- sums of products of linear combinations ---------------------------------------------------

    def forms(self) -> list[tuple[ca.SX, np.ndarray]]:
        """Return the positive semi-definite quadratic forms in the traversed sum.

        A form 1/2 z'Cz combines products of different factors, and squares, of the same expressions z. Each
        is returned as the pair (z, C). Products that are not part of such a form are added to `rest`.
        """
        atoms: dict[int, ca.SX] = {}
        products = [(c, self._linear(a, atoms), self._linear(b, atoms)) for c, a, b in self._products]
        groups = _joined([{*a, *b} for _, a, b in products])
        squares = {
            i: self._linear(r, atoms)
            for i, (r, w) in enumerate(zip(self.residuals, self.weights, strict=True))
            if groups and w.is_constant()
        }
        forms, indices = [], set()
        for group in groups:
            pairs = [p for p in products if group & {*p[1], *p[2]}]
            near = [i for i, a in squares.items() if a and a.keys() <= group]
            place = {key: i for i, key in enumerate(sorted(group))}
            C = np.zeros((len(group), len(group)))
            for c, a, b in (*pairs, *((0.5 * float(self.weights[i]), squares[i], squares[i]) for i in near)):
                for (k, x), (m, y) in product(a.items(), b.items()):
                    C[place[k], place[m]] += c * x * y
                    C[place[m], place[k]] += c * x * y
            if _semidefinite(C):
                forms.append((ca.vertcat(*(atoms[key] for key in sorted(group))), C))
                indices |= {*near}
            else:
                kept = [p for p, q in zip(self._products, products, strict=True) if group & {*q[1], *q[2]}]
                self.rest += [c * a * b for c, a, b in kept]
        for i in sorted(indices, reverse=True):
            del self.residuals[i], self.weights[i]
        return forms

    def _linear(self, e: ca.SX, atoms: dict[int, ca.SX]) -> dict[int, float]:
        """Write an expression as a linear combination of simpler expressions.

        The result is a dict of the coefficients, by the hashes of the simpler expressions. These expressions
        are added to the dict `atoms`. Terms that do not depend on the variables are omitted.
        """
        total: dict[int, float] = {}
        pending = [(e, 1.0)]
        while pending:
            a, c = pending.pop()
            if a.is_op(ca.OP_ADD):
                pending += [(a.dep(1), c), (a.dep(0), c)]
            elif a.is_op(ca.OP_SUB):
                pending += [(a.dep(1), -c), (a.dep(0), c)]
            elif a.is_op(ca.OP_NEG):
                pending.append((a.dep(0), -c))
            elif a.is_op(ca.OP_TWICE):
                pending.append((a.dep(0), 2 * c))
            elif a.is_op(ca.OP_MUL) and a.dep(0).is_constant():
                pending.append((a.dep(1), c * float(a.dep(0))))
            elif a.is_op(ca.OP_MUL) and a.dep(1).is_constant():
                pending.append((a.dep(0), c * float(a.dep(1))))
            elif a.is_op(ca.OP_DIV) and a.dep(1).is_constant():
                pending.append((a.dep(0), c / float(a.dep(1))))
            elif self._depends(a):
                key = a.element_hash()
                atoms[key] = a
                total[key] = total.get(key, 0.0) + c
        return total

    def _depends(self, e: ca.SX) -> bool:
        return not e.is_constant() and bool(ca.depends_on(e, self._symbols))


def _joined(sets: list[set[int]]) -> list[set[int]]:
    """Merge sets that have common elements, and return the merged sets."""
    groups: list[set[int]] = []
    for s in sets:
        separate = [g for g in groups if not g & s]
        groups = [*separate, s.union(*(g for g in groups if g & s))]
    return groups


def _semidefinite(C: np.ndarray) -> bool:
    """Return whether a symmetric matrix is positive semi-definite but for rounding.
    The answer does not depend on the units of the variables, since the diagonal is scaled to 1.
    """
    diagonal = np.diag(C)
    if (diagonal < 0).any() or C[diagonal == 0].any():
        return False
    size = np.sqrt(np.where(diagonal > 0, diagonal, 1.0))
    return bool(np.linalg.eigvalsh(C / np.outer(size, size))[0] >= -ROUNDING * len(C))


def _same(a: ca.SX, b: ca.SX) -> bool:
    return ca.is_equal(a, b, SAME)


def _sum_of_squares(e: ca.SX) -> bool:
    return e.is_op(ca.OP_ADD) or e.is_op(ca.OP_SQ)
