"""Discrete Kalman filters: steady, along a trajectory, and extended along what happens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from vioc.control.analysis import unstabilizable_modes
from vioc.control.feedback.measurement import Measurement
from vioc.control.linear.about import about_of, check_trajectory
from vioc.control.linear.manifold import restrict, tangent_basis
from vioc.control.linear.system import equilibrium_point, linear_system
from vioc.control.linear.weights import input_weight, state_weight
from vioc.control.regulators.riccati import steady_riccati
from vioc.control.regulators.steady import SETTLES
from vioc.errors import OptimizationError
from vioc.maps.protocol import OneStepMap
from vioc.maps.steps import check_steps
from vioc.maps.trajectory import Trajectory


class Estimate(NamedTuple):
    """What an observer believes: the state (nx,) and the covariance (ndx, ndx) of its error, or None."""

    x: np.ndarray
    P: np.ndarray | None = None


def check_sensors(measurement: Measurement, f: OneStepMap) -> None:
    """ValueError of a measurement for another step, or with other parameters, than a filter's map."""
    check_steps(measurement.map.dt, f.dt, "measurement", "the filter's map")
    for name, value in measurement.map.parameters.items():
        if (own := f.parameters.get(name, value)) != value:
            raise ValueError(
                f"measurement: parameter {name} of its map is {value:.6g}, of the filter's {own:.6g}; "
                "measurement.on(f) is the same sensors on the filter's map"
            )


def correction(P: np.ndarray, C: np.ndarray, V: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Gain L and the covariance after a measurement, by Joseph's form.

    Shapes (n, n), (ny, n), (ny, ny) -> (n, ny), (n, n).
    """
    PC = P @ C.T
    L = np.linalg.solve(C @ PC + V, PC.T).T
    keep = np.eye(len(P)) - L @ C
    return L, keep @ P @ keep.T + L @ V @ L.T


def corrected(P: np.ndarray, C: np.ndarray, V: np.ndarray, d: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The correction dx (n,) for an innovation d (ny,), and the covariance after it.

    What is not a number in d was not measured.
    """
    seen = ~np.isnan(d)
    if not seen.all():
        C, V, d = C[seen], V[np.ix_(seen, seen)], d[seen]
    L, P = correction(P, C, V)
    return L @ d, P


@dataclass(frozen=True)
class KalmanFilter:
    """A filter whose gains are known beforehand; the estimate itself goes through the map.

    Where a measurement is missing the covariance is that without it, and gains are computed from it until it
    is that of the table again.

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
    A, noise, C : (N, ndx, ndx), (N, ndx, ndx), (N+1, ny, ndx), or one of each
        What the gains come of: of the steps, their process noise, and of the measurements.
    """

    map: OneStepMap = field(repr=False)
    measurement: Measurement
    L: np.ndarray = field(repr=False)
    before: np.ndarray = field(repr=False)
    after: np.ndarray = field(repr=False)
    steady: bool
    A: np.ndarray = field(repr=False)
    noise: np.ndarray = field(repr=False)
    C: np.ndarray = field(repr=False)
    poles: np.ndarray | None = field(default=None, repr=False)
    k0: int = 0

    def start(self, x: np.ndarray, P: Any = None) -> Estimate:
        """The estimate before the first measurement; P is the filter's own."""
        return Estimate(self.map.check_state(x, "estimate"), self.before[0])

    def correct(self, k: int, estimate: Estimate, y: np.ndarray) -> Estimate:
        """The estimate at sample k after its measurement (ny,)."""
        i = self.row(k)
        d = self.measurement.innovation(estimate.x, y)
        if _same(estimate.P, self.before[i]):
            expected = self.steady or self.measurement.present(k)
            if (np.isnan(d) == ~np.broadcast_to(expected, d.shape)).all():
                dx = self.L[i] @ np.where(np.isnan(d), 0.0, d)
                return Estimate(self.map.retract(estimate.x, dx), self.after[i])
        assert estimate.P is not None
        dx, P = corrected(estimate.P, self.C[i], self.measurement.V, d)
        return Estimate(self.map.retract(estimate.x, dx), P)

    def predict(self, k: int, estimate: Estimate, u: np.ndarray) -> Estimate:
        """The estimate at sample k + 1 before its measurement, under the input of step k."""
        x, i, after = self.map.step(estimate.x, u, k), self.row(k), self.row(k + 1, last=True)
        if _same(estimate.P, self.after[i]) or i >= len(self.A):
            return Estimate(x, self.before[after])
        P = self.A[i] @ estimate.P @ self.A[i].T + self.noise[i]
        P = 0.5 * (P + P.T)
        return Estimate(x, self.before[after] if _same(P, self.before[after]) else P)

    def row(self, k: int, last: bool = False) -> int:
        """The row of the gains at sample k, with `last` the last one behind them; else ValueError there."""
        if self.steady:
            return 0
        i = min(k - self.k0, len(self.L) - 1) if last else k - self.k0
        if not 0 <= i < len(self.L):
            raise ValueError(f"gains are given for samples {self.k0} .. {self.k0 + len(self.L) - 1}, got {k}")
        return i

    def __repr__(self) -> str:
        kind = "steady" if self.steady else f"{len(self.L)} gains"
        pole = f"; largest pole {np.abs(self.poles).max():.6g}" if self.poles is not None else ""
        return f"KalmanFilter({kind}{pole}; {self.measurement!r})"


def _same(P: np.ndarray | None, table: np.ndarray) -> bool:
    """Whether a covariance is that of the table, to rounding: each entry by the variances that it is of."""
    size = np.sqrt(np.abs(np.diag(table)))  # they may be of sizes far apart, rad^2 beside kg^2 m^2/s^2
    return P is None or bool((np.abs(P - table) <= 1e-12 * np.outer(size, size)).all())


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
    check_sensors(measurement, f)
    W = state_weight(f, W, "W")
    W_u = input_weight(f, W_u, "W_u")
    if not isinstance(about, Trajectory) and not measurement.always:
        raise ValueError(
            "measurement: with rates of their own gains are not steady; give a trajectory, such as "
            "f.rollout(x, u, steps=N) of the equilibrium, or use an ExtendedKalmanFilter"
        )
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
    gains, before, after, noises = [], [], [], []
    for k in range(n):
        before.append(P)
        seen = measurement.present(run.k0 + k)
        L = np.zeros((len(P), len(seen)))
        L[:, seen], P = correction(P, C[k][seen], measurement.V[np.ix_(seen, seen)])
        gains.append(L)
        after.append(P)
        if k < n - 1:
            noises.append(Tt[k + 1] @ W @ T[k + 1] + B[k] @ W_u @ B[k].T)
            P = A[k] @ P @ A[k].T + noises[-1]
            P = 0.5 * (P + P.T)
    full, full_after = (T @ np.stack(m) @ Tt for m in (before, after))
    model = T[1:] @ A @ Tt[:-1], T[1:] @ np.stack(noises) @ Tt[1:], C @ Tt
    return KalmanFilter(f, measurement, T @ np.stack(gains), full, full_after, False, *model, k0=run.k0)


def _steady(f, about, measurement, W, W_u, on_manifold: bool) -> KalmanFilter:
    x, u = equilibrium_point(f, about)
    A, B = f.linearize(x, u)
    T = tangent_basis(f, x, idle=True) if on_manifold else np.eye(f.ndx)
    C = measurement.jacobian(x) @ T
    A, B = restrict(A, B, T)
    W = T.T @ W @ T + B @ W_u @ B.T
    try:
        _, P = steady_riccati(A.T, C.T, W, measurement.V)
        L, after = correction(P, C, measurement.V)
        poles = np.linalg.eigvals(A - A @ L @ C)
        if not np.abs(poles).max(initial=0.0) < SETTLES:
            raise np.linalg.LinAlgError(f"a pole of the filter is {np.abs(poles).max():.6g}")
    except (np.linalg.LinAlgError, ValueError) as error:
        unseen = unstabilizable_modes(A.T, C.T)
        if len(unseen):
            listed = ", ".join(f"{s:.6g}" for s in unseen)
            advice = f"the measurements do not see the modes {listed}; measure what moves in them"
        else:
            advice = "give process noise W to every mode on the unit circle"
        raise OptimizationError(f"no steady filter ({error}): {advice}") from None
    before, after, A, W = ((T @ m @ T.T)[None] for m in (P, after, A, W))
    return KalmanFilter(f, measurement, (T @ L)[None], before, after, True, A, W, (C @ T.T)[None], poles)


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
        check_sensors(self.measurement, f)
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
        d, C = self.measurement.linearized(estimate.x, y)
        assert estimate.P is not None
        dx, P = corrected(estimate.P, C, self.measurement.V, d)
        return Estimate(self.map.retract(estimate.x, dx), P)

    def predict(self, k: int, estimate: Estimate, u: np.ndarray) -> Estimate:
        """The estimate at sample k + 1 before its measurement, under the input of step k."""
        x, u = self.map.check_point(estimate.x, u)
        steps = self.map.steps_at(x[None], u[None], k)
        lin = self.map.linearize_steps(steps)
        A, B = lin.A[0], lin.B[0]
        P = A @ estimate.P @ A.T + self.W
        if self.W_u.any():
            P = P + B @ self.W_u @ B.T
        return Estimate(steps.x1[0], self._restricted(steps.x1[0], 0.5 * (P + P.T)))

    def __repr__(self) -> str:
        where = "; on the constraint manifold" * self.on_manifold
        return f"ExtendedKalmanFilter({len(self.P0)} errors of the state{where}; {self.measurement!r})"

    def _restricted(self, x: np.ndarray, P: np.ndarray) -> np.ndarray:
        if not self.on_manifold:
            return P
        T = tangent_basis(self.map, x, idle=True)
        Z = T @ T.T
        return Z @ P @ Z
