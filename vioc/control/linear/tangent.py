"""Derivatives of symbolic expressions with respect to the state of a map.

They are derivatives with respect to the error of the state (a tangent vector), at zero error. If errors are
differences of states, these are derivatives with respect to the state itself. See
docs/maths/optimal_control.md, "States on a manifold".
"""

from __future__ import annotations

import casadi as ca

from vioc.maps.linear_solutions import Implicit
from vioc.maps.protocol import OneStepMap


def foreign_symbols(expression: ca.SX, known: ca.SX) -> list[str]:
    """Return the names of symbols in an expression that are not among `known`."""
    hashes = {e.element_hash() for e in ca.symvar(known)}
    return [e.name() for e in ca.symvar(expression) if e.element_hash() not in hashes]


def error_jacobian(f: OneStepMap, expression: ca.SX, *others: ca.SX) -> ca.SX:
    """Return the Jacobian of an expression with respect to the state of a map.
    The first ndx columns are derivatives with respect to the error of the state (a tangent vector), the other
    columns those with respect to the variables `others`. The shape is (rows, ndx + ...).
    """
    moved, z, e = _by_error(f, expression, *others)
    lift = _lifted(f, moved)
    if lift is None:
        return _at_zero(ca.jacobian(moved, z), e)
    inner, lifted = lift
    J = ca.jacobian(lifted, z) + ca.jacobian(lifted, inner.w) @ _first(inner, z)
    return inner.lowered(J)[0]


def error_expansion(f: OneStepMap, scalar: ca.SX, *others: ca.SX) -> tuple[ca.SX, ca.SX]:
    """Return gradient and Hessian of a scalar expression.
    Derivatives are with respect to a small change of the state (a tangent vector) and the variables `others`.
    The gradient is a column vector.
    """
    moved, z, e = _by_error(f, scalar, *others)
    lift = _lifted(f, moved)
    if lift is None:
        hessian, gradient = ca.hessian(moved, z)
        return _at_zero(gradient, e), _at_zero(hessian, e)
    inner, lifted = lift
    F, n = _first(inner, z), z.numel()
    weights = ca.gradient(lifted, inner.w)
    mu = ca.SX.sym("mu", weights.numel())
    H = ca.hessian(lifted + ca.dot(mu, inner.equation()), ca.vertcat(z, inner.w))[0]
    cross = H[:n, n:] @ F
    H = ca.tril(H[:n, :n] + cross + cross.T + F.T @ (H[n:, n:] @ F))
    gradient = ca.gradient(lifted, z) + F.T @ weights
    H = ca.substitute(ca.tril2symm(H), mu, inner.adjoint(weights))
    gradient, hessian = inner.lowered(gradient, H)
    return gradient, hessian


def error_curvature(f: OneStepMap, scalar: ca.SX, *others: ca.SX) -> tuple[ca.SX, ca.SX, ca.SX]:
    """Return gradient, direction d, and Hessian times d of a scalar expression.
    The direction d (ndx + ...,) is a vector of new symbols. Derivatives are with respect to the error of the
    state (a tangent vector) and the symbols `others`. The Hessian times d is a short expression even if the
    Hessian is not.
    """
    moved, z, e = _by_error(f, scalar, *others)
    d = ca.SX.sym("d", z.numel())
    lift = _lifted(f, moved)
    if lift is None:
        gradient = ca.gradient(moved, z)
        along = ca.jtimes(gradient, z, d)
        return _at_zero(gradient, e), d, _at_zero(along, e)
    inner, lifted = lift
    F, n = _first(inner, z), z.numel()
    weights = ca.gradient(lifted, inner.w)
    mu, variables = ca.SX.sym("mu", weights.numel()), ca.vertcat(z, inner.w)
    both = ca.gradient(lifted + ca.dot(mu, inner.equation()), variables)
    along = ca.jtimes(both, variables, ca.vertcat(d, F @ d))
    along = ca.substitute(along[:n] + F.T @ along[n:], mu, inner.adjoint(weights))
    gradient, along = inner.lowered(ca.gradient(lifted, z) + F.T @ weights, along)
    return gradient, d, along


def _by_error(f: OneStepMap, expression: ca.SX, *others: ca.SX) -> tuple[ca.SX, ca.SX, ca.SX | None]:
    """Return an expression as a function of a small change e of the state.
    The second result is the vector of all variables of the function, e and `others`. The third result is the
    symbol e, which the caller sets to zero after differentiation.

    If errors are differences of states, the expression is unchanged, the variables are (x, others), and the
    third value is None.
    """
    if f.ndx == f.nx:
        return expression, ca.vertcat(f.symbols.x, *others), None
    x, e = f.symbols.x, ca.SX.sym("e", f.ndx)
    return ca.substitute(expression, x, f.space.retract_expression(x, e)), ca.vertcat(e, *others), e


def _at_zero(expression: ca.SX, e: ca.SX | None) -> ca.SX:
    return expression if e is None else ca.substitute(expression, e, ca.SX.zeros(e.numel()))


def _lifted(f: OneStepMap, expression: ca.SX) -> tuple[Implicit, ca.SX] | None:
    """Replace implicit quantities in an expression by symbols.
    An implicit quantity is the solution of linear equations, for example a velocity computed from momenta.

    Return these quantities (`Mechanism.implicit`) and the new expression, or None if the expression has no
    implicit quantities.
    """
    inner = f.mechanism.implicit if f.ndx == f.nx else None
    lifted = None if inner is None else inner.lifted(expression)
    return None if inner is None or lifted is None else (inner, lifted)


def _first(inner: Implicit, z: ca.SX) -> ca.SX:
    """Return the Jacobian of implicit quantities with respect to the variables `z`.
    An implicit quantity is the solution of linear equations, for example a velocity computed from momenta.
    """
    F = inner.first()
    return ca.horzcat(F, ca.SX(F.shape[0], z.numel() - F.shape[1]))
