"""What a regulator was designed about, sample by sample."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from vioc.control.regulators.lqr import Regulator, SteadyRegulator


class Reference(NamedTuple):
    """The reference of a regulator and its linearization by sample, the states one row longer.

    Attributes
    ----------
    A, B : (M, ndx, ndx), (M, ndx, nu)
    X, U : (M+1, nx), (M, nu)
    P : (M+1, ndx, ndx)
        Cost to go.
    k0 : int
        Sample of the first row.
    after : str
        Whether it "ends", the last row of each "holds" for good, or all "repeats".
    """

    A: np.ndarray
    B: np.ndarray
    X: np.ndarray
    U: np.ndarray
    P: np.ndarray
    k0: int
    after: str

    def window(self, k: int, horizon: int) -> tuple[np.ndarray, np.ndarray]:
        """Rows of the samples k .. k + n, and of the n steps between; n < horizon near an end.

        Raises ValueError outside of the reference.
        """
        i, last = k - self.k0, len(self.U)
        if i < 0 or (i >= last and self.after == "ends"):
            raise ValueError(f"the reference has samples {self.k0} .. {self.k0 + last - 1}, asked at {k}")
        samples = i + np.arange(horizon + 1)
        if self.after == "repeats":
            return samples % last, samples[:-1] % last
        samples = np.minimum(samples, last) if self.after == "holds" else samples[samples <= last]
        return samples, np.minimum(samples[:-1], last - 1)


def reference(regulator: Regulator | SteadyRegulator) -> Reference:
    """What a regulator was designed about; an equilibrium is held for good. ValueError for unequal steps."""
    f = regulator.map
    if isinstance(regulator, SteadyRegulator):
        A, B = f.linearize(regulator.x, regulator.u)
        X, P = np.tile(regulator.x, (2, 1)), np.tile(regulator.P, (2, 1, 1))
        return Reference(A[None], B[None], X, regulator.u[None], P, 0, "holds")
    run, end = regulator.reference, regulator.end
    after = regulator.as_law().after
    A, B = f.linearize_trajectory(run)
    X, U, P = run.x, run.u, regulator.P
    if end is not None:
        a, b = f.linearize(end.x, end.u)
        pairs = ((A, a), (B, b), (X[:-1], end.x), (U, end.u), (P[:-1], end.P))
        A, B, X, U, P = (np.concatenate([rows, last[None]]) for rows, last in pairs)
        X, P = np.concatenate([X, X[-1:]]), np.concatenate([P, P[-1:]])
    return Reference(A, B, X, U, P, run.k0, after)
