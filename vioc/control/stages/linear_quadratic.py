"""Data of a linear-quadratic optimal control problem."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class LinearQuadratic:
    """Linear-quadratic optimal control problem of N stages.

    With z_k = (x_k, u_k) of q = n + m entries:

        minimize  sum over k < N of g_k'z_k + 1/2 z_k'H_k z_k  +  g_end'x_N + 1/2 x_N' H_end x_N
        subject to  x_k+1 = F_k z_k + c_k

    Attributes
    ----------
    F, H : (N, n, q), (N, q, q)
    H_end : (n, n)
    g, g_end, c : (N, q), (n,), (N, n)
    """

    F: np.ndarray
    H: np.ndarray
    H_end: np.ndarray
    g: np.ndarray
    g_end: np.ndarray
    c: np.ndarray


def joined(xx: np.ndarray, xu: np.ndarray, uu: np.ndarray) -> np.ndarray:
    """Return the symmetric block matrix [[xx, xu], [xu', uu]], e.g. a Hessian.
    x are the states and u the inputs.

    Stacks of blocks give a stack of matrices.
    """
    n, q = xx.shape[-1], xx.shape[-1] + uu.shape[-1]
    H = np.empty((*np.broadcast_shapes(xx.shape[:-2], xu.shape[:-2], uu.shape[:-2]), q, q))
    H[..., :n, :n], H[..., :n, n:], H[..., n:, n:] = xx, xu, uu
    H[..., n:, :n] = np.swapaxes(xu, -1, -2)
    return H


def costates(
    F: Any, g: np.ndarray, end: np.ndarray, gains: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return the costates p (N+1, n) and gradients r = g + F'p (N, q) of all stages.

    The dynamics are x+ = F z with z = (x, u). The costates obey the adjoint recursion p_N = end, p_k = r_x of
    stage k, in which p is p_k+1. With gains K of a feedback u = -K x they obey the adjoint recursion of the
    closed loop instead, p_k = r_x - K' r_u. Both are the same where r_u = 0, but along an unstable motion
    rounding errors grow in the former only.

    Parameters
    ----------
    F, g : (N, n, q), (N, q)
        Dynamics matrices, and derivatives of the stage costs with respect to z.
    end : (n,)
        Derivative of the final cost with respect to the last state.
    gains : (N, q - n, n), optional
    """
    N, n = len(g), len(end)
    p, r = np.empty((N + 1, n)), g.copy()
    p[N] = end
    for k in range(N - 1, -1, -1):
        r[k] += F[k].T.dot(p[k + 1])
        p[k] = r[k, :n] if gains is None else r[k, :n] - r[k, n:].dot(gains[k])
    return p, r
