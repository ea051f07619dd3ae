"""Backward step of the Riccati recursion in CasADi symbols.

See docs/maths/optimal_control.md.
"""

from __future__ import annotations

from typing import NamedTuple

import casadi as ca


class RiccatiStep(NamedTuple):
    """Cost to go and feedback law after one backward step of the Riccati recursion.

    Attributes
    ----------
    P, p : (n, n), (n,)
        Cost to go from this sample, 1/2 x'P x + p'x.
    K, d : (m, n), (m,)
        Law u = -K x - d.
    bad : scalar
        0 if the Hessian with respect to u is positive definite; 1 if it is not, or is not finite.
    """

    P: ca.SX
    p: ca.SX
    K: ca.SX
    d: ca.SX
    bad: ca.SX


def riccati_step(F: ca.SX, H: ca.SX, g: ca.SX, P: ca.SX, p: ca.SX) -> RiccatiStep:
    """Return cost to go and feedback law after one backward step of the recursion.
    A stage has the dynamics x+ = F z, with z = (x, u), and the cost 1/2 z'H z + g'z. The cost to go from the
    next state is 1/2 x+'P x+ + p'x+. The input minimizes the sum of both costs.
    """
    n = F.shape[0]
    H, g = H + F.T @ (P @ F), g + F.T @ p
    Hxx, Hxu, Huu = H[:n, :n], H[:n, n:], H[n:, n:]
    solution, pivots = symmetric_solve(Huu, ca.horzcat(Hxu.T, g[n:]))
    K, d = solution[:, :n], solution[:, n]
    P = ca.tril2symm(ca.tril(Hxx - Hxu @ K))  # compute one triangle: exactly symmetric
    good = 1
    for i in range(pivots.numel()):
        good = ca.logic_and(good, pivots[i] > 0)  # false for NaN
    return RiccatiStep(P, g[:n] - Hxu @ d, K, d, ca.if_else(good, 0.0, 1.0))


def symmetric_solve(G: ca.SX, b: ca.SX) -> tuple[ca.SX, ca.SX]:
    """Solve G x = b for x, with a symmetric matrix G; return x and the pivots of G.

    The pivots are the diagonal of D in G = L D L'. G is positive definite if all pivots are > 0.
    """
    D, upper, order = ca.ldl(ca.densify(G), False)
    return ca.ldl_solve(b, D, upper, order), D
