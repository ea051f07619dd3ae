"""The Riccati step of one stage in symbols; the recursion of docs/maths/optimal_control.md."""

from __future__ import annotations

from typing import NamedTuple

import casadi as ca

from vioc.control.descent.symbolic.elimination import symmetric_solve


class RiccatiStep(NamedTuple):
    """What one step back gives.

    Attributes
    ----------
    P, p : (n, n), (n,)
        The cost to go from this sample.
    K, d : (m, n), (m,)
        u = -K x - d.
    bad : scalar
        0 where the Hessian by u is positive definite, else 1 (also where it is not a number).
    """

    P: ca.SX
    p: ca.SX
    K: ca.SX
    d: ca.SX
    bad: ca.SX


def riccati_step(H: ca.SX, q: ca.SX, n: int) -> RiccatiStep:
    """Minimize 1/2 (x, u)'H(x, u) + q'(x, u) over u; H and q hold the cost to go of the next sample."""
    Hxx, Hxu, Huu = H[:n, :n], H[:n, n:], H[n:, n:]
    solution, pivots = symmetric_solve(Huu, ca.horzcat(Hxu.T, q[n:]))
    K, d = solution[:, :n], solution[:, n]
    P = ca.tril2symm(ca.tril(Hxx - Hxu @ K))  # one triangle is computed: symmetric to the bit
    good = 1
    for i in range(pivots.numel()):
        good = ca.logic_and(good, pivots[i] > 0)  # false for what is not a number
    return RiccatiStep(P, q[:n] - Hxu @ d, K, d, ca.if_else(good, 0.0, 1.0))
