"""The CasADi functions that a `Cost` is made of, checked when they are built."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import casadi as ca
import numpy as np

from vioc.checks import check_array
from vioc.control.linear.tangent import error_curvature, error_expansion
from vioc.maps.protocol import OneStepMap

LONG = 150_000  # operations times directions (colours) beyond which a Hessian is a loop over its columns


def described(expression: ca.SX) -> str:
    """A short expression as it is, of a long one what it depends on."""
    text = str(expression)
    if len(text) <= 60 and "@" not in text:  # @1 is CasADi's name of a shared part
        return text
    names = sorted({s.name() for s in ca.symvar(expression)})
    return f"of {', '.join(names[:8])}" + f", ... ({len(names)} in all)" * (len(names) > 8)


def reference_rows(symbol: ca.SX, values: Any) -> np.ndarray:
    """`values` as rows (samples, size of the symbol)."""
    array = np.asarray(values, float)
    if array.ndim == 1 and symbol.numel() == 1:
        array = array[:, None]
    if array.ndim != 2:
        raise ValueError(f"reference {symbol}: expected rows of {symbol.numel()}, got shape {array.shape}")
    return check_array(array, (len(array), symbol.numel()), f"reference {symbol}")


def scalar_function(name: str, args: list[ca.SX], expression: Any) -> ca.Function:
    """A cost as a function of `args`; ValueError where it is no scalar, or has other symbols."""
    expression = ca.SX(expression)
    if not expression.is_scalar():
        raise ValueError(f"{name} cost: expected a scalar, got shape {expression.shape}")
    known = {e.element_hash() for e in ca.symvar(ca.vertcat(*args))}
    free = [e.name() for e in ca.symvar(expression) if e.element_hash() not in known]
    if free:
        raise ValueError(f"{name} cost: {free[0]!r} is neither a symbol of this map nor a reference")
    return ca.Function(name, args, [ca.densify(expression)])


def derivatives(
    name: str, f: OneStepMap, args: list[ca.SX], function: ca.Function, *others: ca.SX
) -> ca.Function:
    """Gradient (column) and Hessian of a scalar function of `args` by the state's error and some of them."""
    scalar = function(*args)
    operations = function.n_instructions()
    if operations * (f.ndx + sum(o.numel() for o in others)) > LONG:
        used = [o for o in others if ca.depends_on(scalar, o)]
        gradient, d, along = error_curvature(f, scalar, *used)
        if operations * ca.jacobian_sparsity(along, d).star_coloring().size2() > LONG:
            return _by_columns(name, f, args, others, used, gradient, d, along)
    gradient, hessian = error_expansion(f, scalar, *others)
    return ca.Function(name, args, [gradient, hessian], {"cse": True})


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
    """Gradient and Hessian as a loop: `along` is the Hessian by (error, used) times d."""
    first = ca.Function("first", args, [ca.densify(gradient)], {"cse": True})
    column = ca.Function("column", [*args, d], [ca.densify(along)], {"cse": True})
    columns = column.map("columns", "serial", d.numel(), list(range(len(args))), [])
    given = [ca.MX.sym("a", a.numel()) for a in args]
    rows = [ca.DM.eye(f.ndx)]  # of what is used among all
    rows += [ca.DM.eye(o.numel()) if any(o is u for u in used) else ca.DM(o.numel(), 0) for o in others]
    E = ca.diagcat(*rows)
    H = columns(*given, ca.DM.eye(d.numel()))
    return ca.Function(name, given, [E @ first(*given), E @ H @ E.T])


def square_function(name: str, args: list[ca.SX], expression: Any, n: int) -> ca.Function:
    """A matrix (n, n) as a function of `args`; ValueError where it has another shape."""
    expression = ca.SX(expression)
    if expression.shape != (n, n):
        raise ValueError(f"convex part of the {name} cost: expected shape {(n, n)}, got {expression.shape}")
    return ca.Function("convex", args, [expression], {"cse": True})


def end_function(
    f: OneStepMap, terminal: ca.Function, convex: tuple[ca.Function, ca.Function] | None
) -> ca.Function:
    """The terminal cost by (x, parameters, reference): value, gradient, Hessian, and its convex part."""
    x, u, lam, theta, _ = f.symbols
    args = [*f.symbols, ca.SX.sym("reference", terminal.numel_in(5))]
    m = terminal(*args)
    gradient, hessian = error_expansion(f, m)
    outputs = [m, gradient, hessian, hessian if convex is None else convex[1](*args)]
    outputs = [ca.substitute(o, ca.vertcat(u, lam), 0) for o in outputs]
    return ca.Function("end", [x, theta, args[-1]], outputs, {"cse": True})
