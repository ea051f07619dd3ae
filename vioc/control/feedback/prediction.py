"""The regulator's problem over a horizon in coordinates where its cost is a sum of squares."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from vioc.control.regulators.lqr import Regulator, SteadyRegulator
from vioc.control.regulators.riccati import riccati


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


class Prediction(NamedTuple):
    """Deviations over n steps from z_0, in the coordinates d of which the cost is z_0'Pz_0 + |d|^2.

    v_j = -K_j z_j + L_j^-T d_j with K the regulator's gains over the horizon and L L' = R + B'PB: d = 0 is
    the regulator, and the closed loop keeps the matrices small where the map is unstable.

    Attributes
    ----------
    v, z : (n, nu, n nu), (n, ndx, n nu)
        v_j and z_j+1 by d.
    v0, z0 : (n, nu, ndx), (n, ndx, ndx)
        v_j and z_j+1 by z_0.
    P : (ndx, ndx)
    """

    v: np.ndarray
    z: np.ndarray
    v0: np.ndarray
    z0: np.ndarray
    P: np.ndarray


def predict(A: np.ndarray, B: np.ndarray, Q: Any, R: Any, P: np.ndarray, S: Any) -> Prediction:
    """The prediction for x+ = A x + B u, (n, ndx, ndx) and (n, ndx, nu), with the cost to go P at the end."""
    n, nz, nu = B.shape
    K, values = riccati(A, B, Q, R, P, S)
    v, z = np.zeros((n, nu, n * nu)), np.zeros((n, nz, n * nu))
    v0, z0 = np.zeros((n, nu, nz)), np.zeros((n, nz, nz))
    by_d, by_start = np.zeros((nz, n * nu)), np.eye(nz)
    for j in range(n):
        L = np.linalg.cholesky(R + B[j].T @ values[j + 1] @ B[j])
        v[j], v0[j] = -K[j] @ by_d, -K[j] @ by_start
        v[j][:, j * nu : (j + 1) * nu] += np.linalg.inv(L).T
        by_d, by_start = A[j] @ by_d + B[j] @ v[j], A[j] @ by_start + B[j] @ v0[j]
        z[j], z0[j] = by_d, by_start
    return Prediction(v, z, v0, z0, values[0])
