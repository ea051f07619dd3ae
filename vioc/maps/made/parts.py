"""Derivatives of steps that each consist of several successive steps of another map."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vioc.maps.derivatives import Linearization, SecondOrder, Steps, columns


@dataclass(frozen=True)
class Parts:
    """Data of steps that consist of m successive steps (parts) of another map.

    Attributes
    ----------
    steps : Steps
        All N m parts; the m parts of one step are adjacent, and their `k` is the index of this step.
    by_x, by_u : (m, nu, nx), (m, nu, nu)
        Matrices of inputs: the input of part i is ``by_x[i] @ x_k + by_u[i] @ u_k``, with the step's state
        and input.
    shares : (m, nm)
        Weights of the parts' multipliers in the multipliers of the step.
    starts, sizes : (m,)
        Start and length of each part as fractions of the step.
    timed : bool
        Whether the last two parameters are the length dt and the start t, of the step and of its parts.
    """

    steps: Steps
    by_x: np.ndarray
    by_u: np.ndarray
    shares: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray
    timed: bool = False

    @property
    def count(self) -> int:
        """Number m of parts of each step; a part is one step of another map."""
        return len(self.sizes)

    def first(self, lin: Linearization) -> Linearization:
        """Return the first derivatives of whole steps, given those of their successive parts."""
        end, along, _ = self._chain(lin)
        return Linearization.of(end, along, lin.B.shape[2])

    def weights(self, lin: Linearization, Z: np.ndarray, zeta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the weights of the next state and of the multipliers of each part of a step.
        Second derivatives of parts with these weights give those of whole steps by the chain rule. The
        results of whole steps have the weights Z (next states) and `zeta` (multipliers).

        At the end of a part, its weights of the state are the costate of the remaining parts.
        """
        m, N = self.count, len(Z)
        Z = np.repeat(Z, m, axis=0)
        zeta = np.repeat(zeta, m, axis=0) * np.tile(self.shares, (N, 1))
        for i in range(m - 1, 0, -1):
            rows = slice(i, None, m)
            Z[i - 1 :: m] = (Z[rows, None] @ lin.A[rows] + zeta[rows, None] @ lin.C[rows])[:, 0]
        return Z, zeta

    def second(self, lin: Linearization, H: SecondOrder) -> SecondOrder:
        """Return the second derivatives of whole steps, given those of their successive parts.

        The latter are contracted with the `weights`.
        """
        _, _, Y = self._chain(lin)
        terms = np.swapaxes(Y, 1, 2) @ H.matrix @ Y
        return SecondOrder.of(terms.reshape(-1, self.count, *terms.shape[1:]).sum(axis=1), *lin.B.shape[1:])

    def _chain(self, lin: Linearization) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return first derivatives of whole steps, by the chain rule over their parts.
        The three results are the Jacobians of the next states (N, ndx, ns), of the multipliers (N, nm, ns),
        and of the arguments of each part (N m, ns, ns). They are with respect to the ns arguments of the
        whole step: the state error, the inputs and the parameters.
        """
        ndx, nu = lin.B.shape[1:]
        x, u, p = columns(ndx, nu)
        m, ns = self.count, ndx + nu + lin.P.shape[2]
        N = len(lin.A) // m
        Y = np.zeros((N * m, ns, ns))
        Y[:, u, x] = np.tile(self.by_x[:, :, :ndx], (N, 1, 1))  # 0 if errors are not differences of states
        Y[:, u, u] = np.tile(self.by_u, (N, 1, 1))
        Y[:, p, p] = np.eye(ns - ndx - nu)
        if self.timed:
            Y[:, -2, -2], Y[:, -1, -2] = np.tile(self.sizes, N), np.tile(self.starts, N)
        end = np.tile(np.eye(ndx, ns), (N, 1, 1))
        along = np.zeros((N, lin.C.shape[1], ns))
        of_step = np.concatenate([lin.A, lin.B, lin.P], axis=2)
        of_impulse = np.concatenate([lin.C, lin.D, lin.E], axis=2)
        for i in range(m):
            rows = slice(i, None, m)
            Y[rows, x] = end
            end = of_step[rows] @ Y[rows]
            along += self.shares[i, :, None] * (of_impulse[rows] @ Y[rows])
        return end, along, Y
