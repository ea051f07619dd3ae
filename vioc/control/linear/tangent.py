"""Expressions of a map's symbols by the error of its state, at error zero.

Where errors are differences of states this is plain differentiation by the state. See
docs/maths/optimal_control.md, "States on a manifold".
"""

from __future__ import annotations

import casadi as ca

from vioc.maps.protocol import OneStepMap


def error_jacobian(f: OneStepMap, expression: ca.SX, *others: ca.SX) -> ca.SX:
    """Derivative of an expression by (error of the state, others); (rows, ndx + ...)."""
    moved, e = _by_error(f, expression)
    if e is None:
        return ca.jacobian(expression, ca.vertcat(f.symbols.x, *others))
    return _at_zero(ca.jacobian(moved, ca.vertcat(e, *others)), e)


def error_expansion(f: OneStepMap, scalar: ca.SX, *others: ca.SX) -> tuple[ca.SX, ca.SX]:
    """Gradient (column) and Hessian of a scalar by (error of the state, others)."""
    moved, e = _by_error(f, scalar)
    if e is None:
        hessian, gradient = ca.hessian(scalar, ca.vertcat(f.symbols.x, *others))
        return gradient, hessian
    hessian, gradient = ca.hessian(moved, ca.vertcat(e, *others))
    return _at_zero(gradient, e), _at_zero(hessian, e)


def error_curvature(f: OneStepMap, scalar: ca.SX, *others: ca.SX) -> tuple[ca.SX, ca.SX, ca.SX]:
    """Gradient, a direction d (ndx + ...,) and Hessian times d: short where the Hessian is not."""
    moved, e = _by_error(f, scalar)
    by = ca.vertcat(f.symbols.x if e is None else e, *others)
    d = ca.SX.sym("d", by.numel())
    gradient = ca.gradient(moved, by)
    along = ca.jtimes(gradient, by, d)
    if e is None:
        return gradient, d, along
    return _at_zero(gradient, e), d, _at_zero(along, e)


def _by_error(f: OneStepMap, expression: ca.SX) -> tuple[ca.SX, ca.SX | None]:
    if f.ndx == f.nx:
        return expression, None
    x, e = f.symbols.x, ca.SX.sym("e", f.ndx)
    return ca.substitute(expression, x, f.retract_expression(x, e)), e


def _at_zero(expression: ca.SX, e: ca.SX) -> ca.SX:
    return ca.substitute(expression, e, ca.SX.zeros(e.numel()))
