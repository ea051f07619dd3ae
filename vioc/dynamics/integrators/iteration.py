"""Fixed-point and Newton iterations as CasADi functions that stop on convergence."""

from __future__ import annotations

import casadi as ca
import numpy as np

STALLED = 1e-11  # below it a correction that is not smaller than the one before is rounding
GROUPS = 5, 8  # iterations of an inner group, groups of an outer one
NEWTON = 60  # largest number of unknowns of Newton's method in symbols


def repeated(iterate: ca.Function, tolerance: float, contraction: float) -> ca.Function:
    """Return a CasADi function that repeats an iteration until it converges.
    The function `iterate` computes one iteration, (y, ...) -> (y, result, error). The returned function is
    (y, ...) -> (result, last error). The repetition stops when the error is at most `tolerance`, or when
    rounding prevents a further decrease. If the ratio of two successive errors exceeded `contraction`, except
    by rounding, the root is not certified, and the returned error is infinite.

    The iterations are nested calls in groups, which are skipped after convergence. A root finder of CasADi is
    not used, because it would factorize a matrix of ones at every iteration.
    """
    args = [ca.MX.sym("a", iterate.numel_in(i)) for i in range(iterate.n_in())]
    names = ("error", "before", "worst")
    state = [args[0], ca.MX.sym("result", iterate.numel_out(1)), *map(ca.MX.sym, names)]
    y, result, error, previous, worst = state
    context = args[1:]
    keep = ca.Function("keep", [*state, *context], state)
    y_next, outputs, correction = iterate(y, *context)
    ratio = ca.if_else(ca.logic_and(error < ca.inf, correction > STALLED), correction / error, 0.0)
    step = ca.Function(
        "once", [*state, *context], [y_next, outputs, correction, error, ca.fmax(worst, ratio)]
    )
    falls = ca.logic_or(error < 0.9 * previous, error > STALLED)
    goes = ca.logic_and(ca.logic_and(error > tolerance, falls), worst <= contraction)
    for count in GROUPS:  # number of nested calls
        either = ca.Function.if_else("either", step, keep)
        maybe = ca.Function("maybe", [*state, *context], either(goes, *state, *context))
        states = state
        for _ in range(count):
            states = maybe(*states, *context)
        step = ca.Function("group", [*state, *context], states)
    start = ca.MX(result.numel(), 1), ca.MX(np.inf), ca.MX(np.inf), ca.MX(0)
    _, result, error, _, worst = step(y, *start, *context)
    return ca.Function("repeated", args, [result, error + ca.if_else(worst > contraction, ca.inf, 0.0)])


def by_newton(iterate: ca.Function) -> ca.Function | None:
    """Return a Newton iteration that finds the fixed point of an iteration.
    It is used for steps in which the function `iterate` does not contract. The result is None if there are so
    many unknowns that compilation of the Newton matrix would take minutes.
    """
    if iterate.numel_out(0) > NEWTON:
        return None
    columns, *_ = args = iterate.sx_in()
    following, *rest = iterate(*args)
    residual = columns - following
    slope = ca.densify(ca.jacobian(residual, columns))
    equations = ca.Function("left", args, [residual, slope, *rest])
    symbols = [ca.MX.sym("a", a.numel()) for a in args]
    rows, matrix, *outputs = equations(*symbols)
    return ca.Function("newton", symbols, [symbols[0] - ca.solve(matrix, rows, "qr"), *outputs])
