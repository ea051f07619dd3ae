"""`Parts`: derivatives of steps that are made of steps, as compositions are and steps taken in parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from vioc.maps.derivatives import Linearization, SecondOrder, Steps, columns


@dataclass(frozen=True)
class Parts:
    """Steps that were taken in parts: those parts as steps, and how they hang together.

    Attributes
    ----------
    steps : Steps
        All the parts, M; `k` is their row.
    begins : (N + 1,) int
        The row in which the parts of each step begin.
    by_x, by_u : (M, nu, nx), (M, nu, nu)
        The input of a part is ``by_x @ x_k + by_u @ u_k``.
    shares : (M, nm)
        Weights with which the parts' multipliers add up to the step's.
    starts, sizes : (M,)
        Where in the step a part starts, and how long it is, as fractions of the step.
    timed : bool
        Whether the last two parameters are the length dt and the start t, of the step and of its parts.
    """

    steps: Steps
    begins: np.ndarray
    by_x: np.ndarray
    by_u: np.ndarray
    shares: np.ndarray
    starts: np.ndarray
    sizes: np.ndarray
    timed: bool = False

    def first(self, lin: Linearization) -> Linearization:
        """Of the steps, by those of the parts."""
        several, end, along, _ = self._chain(lin)
        chained = Linearization.of(end, along, lin.B.shape[2])
        if several.all():
            return chained
        whole = lin.rows(self.begins[:-1])
        for name, block in whole.blocks.items():
            block[several] = chained.blocks[name]
        return whole

    def weights(self, lin: Linearization, Z: np.ndarray, zeta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Z and zeta of the parts, by those of the steps: on what a part ends in, the costate of the rest."""
        counts = np.diff(self.begins)
        Z, zeta = np.repeat(Z, counts, axis=0), np.repeat(zeta, counts, axis=0)
        several = np.repeat(counts > 1, counts)
        zeta[several] *= self.shares[several]
        for i in range(counts.max(initial=1) - 1, 0, -1):
            rows = self.begins[:-1][counts > i] + i
            back = Z[rows, None] @ lin.A[rows] + zeta[rows, None] @ lin.C[rows]
            Z[rows - 1] = back[:, 0]
        return Z, zeta

    def second(self, lin: Linearization, H: SecondOrder) -> SecondOrder:
        """Of the steps, by those of the parts with their `weights`."""
        several, _, _, Y = self._chain(lin)
        counts = np.diff(self.begins)
        each = np.repeat(several, counts)
        own = np.swapaxes(Y, 1, 2) @ (H if several.all() else H.rows(each)).matrix @ Y
        begins = np.cumsum(counts[several]) - counts[several]
        total = np.add.reduceat(own, begins) if len(begins) else own
        chained = SecondOrder.of(total, *lin.B.shape[1:])
        if several.all():
            return chained
        whole = H.rows(self.begins[:-1])
        for name, block in whole.blocks.items():
            block[several] = chained.blocks[name]
        return whole

    def _chain(self, lin: Linearization) -> tuple[np.ndarray, ...]:
        """Which steps have several parts (N,), and of those, by s = (errors, inputs, parameters), what they
        end in (n, ndx, ns), their multipliers (n, nm, ns), and what each of their parts depends on
        (m, ns, ns).
        """
        ndx, nu = lin.B.shape[1:]
        x, u, p = columns(ndx, nu)
        ns = ndx + nu + lin.P.shape[2]
        counts = np.diff(self.begins)
        several = counts > 1
        each = np.repeat(several, counts)
        place = np.cumsum(each) - 1
        Y = np.zeros((np.count_nonzero(each), ns, ns))
        Y[:, u, x] = self.by_x[each, :, :ndx]  # nothing where errors are not differences of states
        Y[:, u, u] = self.by_u[each]
        Y[:, p, p] = np.eye(ns - ndx - nu)
        if self.timed:
            Y[:, -2, -2], Y[:, -1, -2] = self.sizes[each], self.starts[each]
        end = np.tile(np.eye(ndx, ns), (int(np.count_nonzero(several)), 1, 1))
        along = np.zeros((len(end), lin.C.shape[1], ns))
        begins, counts = self.begins[:-1][several], counts[several]
        alike = several.all() and (counts == counts[:1]).all()
        of_step = np.concatenate([lin.A, lin.B, lin.P], axis=2)
        for i in range(counts.max(initial=0)):
            going: Any = slice(None)
            rows = own = slice(i, None, counts[0])  # views, where each step has as many parts
            if not alike:
                going = counts > i
                rows = begins[going] + i
                own = place[rows]
            Y[own, x] = end[going]
            y = Y[own]
            end[going] = of_step[rows] @ y
            if along.size and (share := self.shares[rows, :, None]).any():
                along[going] += share * (np.concatenate([lin.C[rows], lin.D[rows], lin.E[rows]], axis=2) @ y)
        return several, end, along, Y
