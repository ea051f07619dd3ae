"""Discrete Kalman filters: steady, along a trajectory, and extended along what happens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import solve_discrete_are

from vioc.control.analysis import unstabilizable_modes
from vioc.control.feedback.measurement import Measurement
from vioc.control.linear.about import about_of, check_trajectory
from vioc.control.linear.manifold import restrict, tangent_basis
from vioc.control.linear.system import linear_system
from vioc.control.linear.weights import input_weight, state_weight
from vioc.control.regulators.steady import SETTLES
from vioc.errors import OptimizationError
from vioc.maps.protocol import OneStepMap
from vioc.maps.steps import check_steps
from vioc.maps.trajectory import Trajectory


class Estimate(NamedTuple):
    """What an observer believes: the state (nx,) and the covariance (ndx, ndx) of its error, or None."""

    x: np.ndarray
    P: np.ndarray | None = None


def correction(P: np.ndarray, C: np.ndarray, V: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Gain L and the covariance after a measurement, by Joseph's form.

    Shapes (n, n), (ny, n), (ny, ny) -> (n, ny), (n, n).
    """
    PC = P @ C.T
    L = np.linalg.solve(C @ PC + V, PC.T).T
    keep = np.eye(len(P)) - L @ C
    return L, keep @ P @ keep.T + L @ V @ L.T


@dataclass(frozen=True)
class KalmanFilter:
    """A filter whose gains are known beforehand; the estimate itself goes through the map.

    Attributes
    ----------
    map : OneStepMap
    measurement : Measurement
    L : (N+1, ndx, ny), or (1, ndx, ny) if steady
        x^ <- retract(x^, L[k] (y - g(x^))). The predictor gain of other texts is A L.
    before, after : like L, (ndx, ndx)
        Covariances of the error before and after the measurement.
    steady : bool
    poles : (r,), complex, or None
        Eigenvalues of A (I - L C) if steady.
    k0 : int
        Sample of the first gain.
    """

    map: OneStepMap = field(repr=False)
    measurement: Measurement
    L: np.ndarray = field(repr=False)
    before: np.ndarray = field(repr=False)
    after: np.ndarray = field(repr=False)
    steady: bool = False
    poles: np.ndarray | None = field(default=None, repr=False)
    k0: int = 0

    def start(self, x: np.ndarray, P: Any = None) -> Estimate:
        """The estimate before the first measurement; P is the filter's own."""
        return Estimate(self.map.check_state(x, "estimate"), self.before[0])

    def correct(self, k: int, estimate: Estimate, y: np.ndarray) -> Estimate:
        """The estimate at sample k after its measurement (ny,)."""
        i = 0 if self.steady else k - self.k0
        if not 0 <= i < len(self.L):
            raise ValueError(f"gains are given for samples {self.k0} .. {self.k0 + len(self.L) - 1}, got {k}")
        dx = self.L[i] @ self.measurement.innovation(estimate.x, y)
        return Estimate(self.map.retract(estimate.x, dx), self.after[i])

    def predict(self, k: int, estimate: Estimate, u: np.ndarray) -> Estimate:
        """The estimate at sample k + 1 before its measurement, under the input of step k."""
        i = 0 if self.steady else min(k + 1 - self.k0, len(self.L) - 1)
        return Estimate(self.map.step(estimate.x, u, k), self.before[i])

    def __repr__(self) -> str:
        kind = "steady" if self.steady else f"{len(self.L)} gains"
        pole = f"; largest pole {np.abs(self.poles).max():.6g}" if self.poles is not None else ""
        return f"KalmanFilter({kind}{pole}; {self.measurement!r})"


def kalman(
    f: OneStepMap,
    about: Any,
    measurement: Measurement,
    W: Any = 0.0,
    *,
    W_u: Any = 0.0,
    P0: Any = None,
    on_manifold: bool = False,
) -> KalmanFilter:
    """The Kalman filter about an equilibrium (steady) or along a trajectory (time-varying).

    Parameters
    ----------
    f : OneStepMap
    about : as in `dlqr`
        A trajectory's step is the filter's.
    measurement : Measurement
        Of this map, with its step; its V is the covariance of y.
    W : float, (ndx,), (ndx, ndx) or dict of str to float
        Covariance of the process noise, an error added to x[k+1]; by state name in a dict.
    W_u : float, (nu,), (nu, nu) or dict of str to float
        Covariance of a noise that is added to the input.
    P0 : like W, optional
        Covariance of the first estimate, for a trajectory; default W.
    on_manifold : bool
        Keep errors and corrections on the tangent space of the constraints (`tangent_bases`), with the
        idle directions, which a measurement may see.

    Returns
    -------
    KalmanFilter

    Raises
    ------
    ValueError
        Shapes, names, covariances.
    OptimizationError
        If there is no steady filter: a mode that does not decay is not seen, or not excited.
    """
    about = about_of(f, about)
    if isinstance(about, Trajectory):
        f = check_trajectory(f, about)
        check_steps(
            about.step_lengths, f.dt, "trajectory", "a filter", "resample it: a filter counts samples"
        )
    if not isinstance(measurement, Measurement):
        raise TypeError(
            f"measurement: expected a Measurement, such as Measurement(f, {{'x': 1e-4}}), got {measurement!r}"
        )
    check_steps(measurement.map.dt, f.dt, "measurement", "the filter's map")
    W = state_weight(f, W, "W")
    W_u = input_weight(f, W_u, "W_u")
    if isinstance(about, Trajectory):
        P0 = W if P0 is None else state_weight(f, P0, "P0")
        return _along(f, about, measurement, W, W_u, P0, on_manifold)
    if P0 is not None:
        raise ValueError("P0: a steady filter has forgotten its start; give P0 with a trajectory")
    return _steady(f, about, measurement, W, W_u, on_manifold)


def _along(f, run: Trajectory, measurement, W, W_u, P, on_manifold: bool) -> KalmanFilter:
    system = linear_system(f, run, on_manifold, idle=True)
    A, B, T, n = system.A, system.B, system.T, len(run) + 1
    Tt = np.swapaxes(T, 1, 2)
    C, P = measurement.jacobian(run.x) @ T, Tt[0] @ P @ T[0]
    gains, before, after = [], [], []
    for k in range(n):
        before.append(P)
        L, P = correction(P, C[k], measurement.V)
        gains.append(L)
        after.append(P)
        if k < n - 1:
            P = A[k] @ P @ A[k].T + Tt[k + 1] @ W @ T[k + 1] + B[k] @ W_u @ B[k].T
            P = 0.5 * (P + P.T)
    full, full_after = (T @ np.stack(m) @ Tt for m in (before, after))
    return KalmanFilter(f, measurement, T @ np.stack(gains), full, full_after, k0=run.k0)


def _steady(f, about, measurement, W, W_u, on_manifold: bool) -> KalmanFilter:
    x, u = about
    A, B = f.linearize(x, u)
    T = tangent_basis(f, x, idle=True) if on_manifold else np.eye(f.ndx)
    C = measurement.jacobian(x) @ T
    A, B = restrict(A, B, T)
    W = T.T @ W @ T + B @ W_u @ B.T
    try:
        P = solve_discrete_are(A.T, C.T, W, measurement.V)
        L, after = correction(P, C, measurement.V)
        poles = np.linalg.eigvals(A - A @ L @ C)
        if not np.abs(poles).max(initial=0.0) < SETTLES:
            raise np.linalg.LinAlgError(f"a pole of the filter is {np.abs(poles).max():.6g}")
    except np.linalg.LinAlgError as error:
        unseen = unstabilizable_modes(A.T, C.T)
        if len(unseen):
            listed = ", ".join(f"{s:.6g}" for s in unseen)
            advice = f"the measurements do not see the modes {listed}; measure what moves in them"
        else:
            advice = "give process noise W to every mode on the unit circle"
        raise OptimizationError(f"no steady filter ({error}): {advice}") from None
    before, after = ((T @ m @ T.T)[None] for m in (P, after))
    return KalmanFilter(f, measurement, (T @ L)[None], before, after, steady=True, poles=poles)


@dataclass(frozen=True)
class ExtendedKalmanFilter:
    """The filter that is linearized at its own estimate, step by step; takes whatever path the plant does.

    Attributes
    ----------
    map : OneStepMap
    measurement : Measurement
    W, W_u, P0
        Covariances, as for `kalman`; matrices once made.
    on_manifold : bool
    """

    map: OneStepMap = field(repr=False)
    measurement: Measurement
    W: Any = 0.0
    W_u: Any = 0.0
    P0: Any = None
    on_manifold: bool = False

    def __post_init__(self) -> None:
        f, P0 = self.map, self.W if self.P0 is None else self.P0
        check_steps(self.measurement.map.dt, f.dt, "measurement", "the filter's map")
        for key, value, weight in (
            ("W", self.W, state_weight),
            ("W_u", self.W_u, input_weight),
            ("P0", P0, state_weight),
        ):
            object.__setattr__(self, key, weight(f, value, key))

    def start(self, x: np.ndarray, P: np.ndarray | None = None) -> Estimate:
        """The estimate before the first measurement."""
        x = self.map.check_state(x, "estimate")
        return Estimate(x, self._restricted(x, self.P0 if P is None else P))

    def correct(self, k: int, estimate: Estimate, y: np.ndarray) -> Estimate:
        """The estimate at sample k after its measurement (ny,)."""
        C = self.measurement.jacobian(estimate.x)
        assert estimate.P is not None
        L, P = correction(estimate.P, C, self.measurement.V)
        x = self.map.retract(estimate.x, L @ self.measurement.innovation(estimate.x, y))
        return Estimate(x, P)

    def predict(self, k: int, estimate: Estimate, u: np.ndarray) -> Estimate:
        """The estimate at sample k + 1 before its measurement, under the input of step k."""
        A, B = self.map.linearize(estimate.x, u, k)
        x = self.map.step(estimate.x, u, k)
        P = A @ estimate.P @ A.T + self.W + B @ self.W_u @ B.T
        return Estimate(x, self._restricted(x, 0.5 * (P + P.T)))

    def __repr__(self) -> str:
        where = "; on the constraint manifold" * self.on_manifold
        return f"ExtendedKalmanFilter({len(self.P0)} errors of the state{where}; {self.measurement!r})"

    def _restricted(self, x: np.ndarray, P: np.ndarray) -> np.ndarray:
        if not self.on_manifold:
            return P
        T = tangent_basis(self.map, x, idle=True)
        Z = T @ T.T
        return Z @ P @ Z
