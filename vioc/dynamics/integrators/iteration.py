"""An iteration of a step's equations, written as calls that pass on what is done."""

from __future__ import annotations

import casadi as ca
import numpy as np

from vioc.dynamics.lagrangian import OPTIONS

STALLED = 1e-11  # below it a correction that is not smaller than the one before is rounding
GROUPS = 5, 8  # iterations: so many, so often
NEWTON = 60  # unknowns at most of a Newton method in symbols


def repeated(iterate: ca.Function, tolerance: float) -> ca.Function:
    """(y, ...) -> (result, error) of `iterate` (y, ...) -> (y, result, error), until that is rounding.

    By calls that pass on what is done, in groups that are passed over together: a root finder of CasADi
    factors a matrix of ones at every iteration.
    """
    args = [ca.MX.sym("a", iterate.numel_in(i)) for i in range(iterate.n_in())]
    state = [args[0], ca.MX.sym("result", iterate.numel_out(1)), ca.MX.sym("error"), ca.MX.sym("before")]
    y, result, error, before = state
    context = args[1:]
    keep = ca.Function("keep", [*state, *context], state)
    found = ca.Function("once", [*state, *context], [*iterate(y, *context), error])
    goes = ca.logic_and(error > tolerance, ca.logic_or(error < 0.9 * before, error > STALLED))
    for count in GROUPS:  # what was found that many times, if at all
        either = ca.Function.if_else("either", found, keep)
        maybe = ca.Function("maybe", [*state, *context], either(goes, *state, *context))
        now = state
        for _ in range(count):
            now = maybe(*now, *context)
        found = ca.Function("group", [*state, *context], now)
    start = ca.MX(result.numel(), 1), ca.MX(np.inf), ca.MX(np.inf)
    return ca.Function("repeated", args, found(y, *start, *context)[1:3])


def by_newton(iterate: ca.Function, tolerance: float) -> ca.Function | None:
    """What `repeated` makes of `iterate`, by Newton's method on what it leaves, where it does not contract.

    None where its matrix would take a compiler minutes.
    """
    if iterate.numel_out(0) > NEWTON:
        return None
    columns, *_ = args = iterate.sx_in()
    then, *rest = iterate(*args)
    left = ca.Function("left", args, [columns - then, *rest], OPTIONS)
    options = {"abstol": tolerance, "abstolStep": tolerance, "max_iter": 20, "error_on_fail": False}
    root = ca.rootfinder("newton", "fast_newton", left, options)
    given = [ca.MX.sym("a", a.numel()) for a in args]
    return ca.Function("newton", given, root(*given)[1:])
