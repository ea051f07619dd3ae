"""Discrete-time Kalman filters: steady, along a trajectory, and extended."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import casadi as ca
import numpy as np

from vioc.checks import as_count, as_names
from vioc.control.feedback.measurement import Measurement
from vioc.control.linear.about import about_of, check_trajectory
from vioc.control.linear.linear_system import LinearSystem, linear_system
from vioc.control.linear.manifold import tangent_basis
from vioc.control.linear.weights import input_weight, named_jacobians, state_weight
from vioc.control.regulators.formulas import Estimate, Measured, ObserverFormula
from vioc.control.regulators.steady import FILTER, stabilized, unseen_left_out
from vioc.maps.protocol import OneStepMap
from vioc.runs.given import point_of
from vioc.runs.steps import check_steps
from vioc.runs.trajectory import Trajectory


def check_sensors(measurement: Measurement, f: OneStepMap) -> None:
    """Raise ValueError unless a measurement can be used by a filter of the map f.
    The map of the measurement must have the step length and the parameters of f.
    """
    check_steps(measurement.map.dt, f.dt, "measurement", "the filter's map")
    for name, value in measurement.map.parameters.items():
        if (expected := f.parameters.get(name, value)) != value:
            raise ValueError(
                f"measurement: parameter {name} of its map is {value:.6g}, of the filter's {expected:.6g}; "
                "measurement.on(f) is the same sensors on the filter's map"
            )


def correction(P: np.ndarray, C: np.ndarray, V: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the Kalman gain and the error covariance after a measurement.
    P is the covariance before it, C the Jacobian of the measurement, and V the noise covariance.

    Shapes (n, n), (ny, n), (ny, ny) -> (n, ny), (n, n).
    """
    PC, S = P @ C.T, C @ P @ C.T + V
    if (np.diag(V) > 0).all():
        L = np.linalg.solve(S, PC.T).T
    else:  # exact sensors may add no information
        size = np.sqrt(np.diag(S))
        size[size == 0] = 1.0
        L = PC / size @ np.linalg.pinv(S / np.outer(size, size), hermitian=True) / size
    keep = np.eye(len(P)) - L @ C
    return L, keep @ P @ keep.T + L @ V @ L.T


def corrected(P: np.ndarray, C: np.ndarray, V: np.ndarray, d: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the state's correction (n,) and error covariance after a measurement.
    P is the error covariance before the measurement. d (ny,) is the innovation: measured minus expected
    values, NaN where a value is missing.
    """
    present = ~np.isnan(d)
    if not present.all():
        C, V, d = C[present], V[np.ix_(present, present)], d[present]
    L, P = correction(P, C, V)
    return L @ d, P


@dataclass(frozen=True)
class KalmanFilter:
    """Kalman filter with precomputed gains; the nonlinear map predicts its estimates.

    After a missing measurement, the covariance and gains are computed online until the covariance agrees with
    the table again.

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
        Eigenvalues of A (I - L C) if steady; without those of disregarded modes.
    k0 : int
        Sample of the first gain.
    A, noise, C : (N, ndx, ndx), (N, ndx, ndx), (N+1, ny, ndx), or one of each
        Linear model: A and process noise of the steps, and C of the measurements.
    disregarded : tuple of str
        Quantities whose estimates may drift: `before` and `after` contain only the part of their errors that
        is correlated with the other errors.
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
    disregarded: tuple[str, ...] = ()

    def start(self, x: np.ndarray, P: Any = None) -> Estimate:
        """Return the estimate with state x before the first measurement.
        Its covariance is the precomputed covariance of the filter; the argument P is ignored.
        """
        return Estimate(self.map.check_state(x, "estimate"), self.before[0])

    def correct(self, k: int, estimate: Estimate, y: np.ndarray) -> Estimate:
        """Return the estimate at sample k after the measurement y (ny,)."""
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
        """Return the estimate at sample k + 1, predicted from the estimate at sample k.

        u is the input of step k.
        """
        x, i, after = self.map.step(estimate.x, u, k), self.row(k), self.row(k + 1, last=True)
        if _same(estimate.P, self.after[i]) or i >= len(self.A):
            return Estimate(x, self.before[after])
        P = self.A[i] @ estimate.P @ self.A[i].T + self.noise[i]
        P = 0.5 * (P + P.T)
        return Estimate(x, self.before[after] if _same(P, self.before[after]) else P)

    def formula(self) -> ObserverFormula | None:
        """Return the filter as symbolic expressions.
        Return None if some quantity is not measured at every sample.
        """
        ny = self.L.shape[2]
        if not self.measurement.always:
            return None

        def expression(x: ca.MX, memory: ca.MX, measured: Measured, numbers: ca.MX) -> tuple:
            return x + ca.reshape(numbers, ny, self.map.ndx).T @ measured.innovation, memory

        def rows(k: int, n: int) -> np.ndarray:
            indices = [0] if self.steady else [self.row(i) for i in range(k, k + n)]
            gains = self.L[indices].reshape(len(indices), -1)
            return gains[0] if self.steady else gains

        return ObserverFormula(
            "filter",
            expression,
            rows,
            stored=lambda estimate: np.zeros(0),
            restored=lambda k, x, memory: Estimate(x, self.before[self.row(k, last=True)]),
            ahead=lambda memory, *_: memory,
            covariances=lambda k, memories: self.after[[self.row(k + i) for i in range(len(memories))]],
            holds=lambda k, estimate: _same(estimate.P, self.before[self.row(k)]),
        )

    def row(self, k: int, last: bool = False) -> int:
        """Return the index of the filter gain for sample k.
        Raise ValueError if there is none. If `last` is True, the last gain is also used for all later
        samples.
        """
        k = as_count(k, "k", 0)
        if self.steady:
            return 0
        i = min(k - self.k0, len(self.L) - 1) if last else k - self.k0
        if not 0 <= i < len(self.L):
            raise ValueError(f"gains are given for samples {self.k0} .. {self.k0 + len(self.L) - 1}, got {k}")
        return i

    def __repr__(self) -> str:
        kind = "steady" if self.steady else f"{len(self.L)} gains"
        pole = f"; largest pole {np.abs(self.poles).max():.6g}" if self.poles is not None else ""
        pole += f"; disregards {', '.join(self.disregarded)}" * bool(self.disregarded)
        return f"KalmanFilter({kind}{pole}; {self.measurement!r})"


def _same(P: np.ndarray | None, table: np.ndarray) -> bool:
    """Return True if a covariance P is None or equal to the precomputed covariance.
    The precomputed covariance is `table`. Differences that are rounding errors are ignored.

    Each element is compared relative to the standard deviations of its two errors.
    """
    size = np.sqrt(np.abs(np.diag(table)))  # variances may differ by orders, rad^2 beside kg^2 m^2/s^2
    return P is None or bool((np.abs(P - table) <= 1e-12 * np.outer(size, size)).all())


def kalman(
    f: OneStepMap,
    about: Any,
    measurement: Measurement,
    W: Any = 0.0,
    *,
    W_u: Any = 0.0,
    P0: Any = None,
    manifold: bool = False,
    disregard: str | Iterable[str] = (),
) -> KalmanFilter:
    """Return a Kalman filter about an equilibrium (steady) or along a trajectory.

    Parameters
    ----------
    f : OneStepMap
    about : as in `dlqr`
        Along a trajectory, the filter has the trajectory's step length.
    measurement : Measurement
        Measurement of this map, with its step length; its V is the covariance of y, 0 for exact sensors.
    W : float, (ndx,), (ndx, ndx) or dict of str to float
        Covariance of the process noise, which is added to x[k+1] as an error; by state name in a dict.
    W_u : float, (nu,), (nu, nu) or dict of str to float
        Covariance of the noise added to the input.
    P0 : like W, optional
        Covariance of the first estimate, for a trajectory; default W.
    manifold : bool
        True to restrict errors and corrections to the tangent spaces of the constraints (`tangent_bases`).
        Idle directions are kept, since a measurement may depend on them.
    disregard : names, optional
        About an equilibrium: errors or quantities of the state whose estimates may drift, since no sensor
        measures them and they do not settle, such as the position of a robot whose speed alone is measured
        (the error without this argument names them). Other estimates are not affected.

    Returns
    -------
    KalmanFilter

    Raises
    ------
    ValueError
        Wrong shapes, names, covariances.
    OptimizationError
        If there is no steady filter. The message names the modes that do not decay and that measurements do
        not show or noise does not excite, or hardly so.
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
        if as_names(disregard, "disregard"):
            raise ValueError(
                "disregard: along a trajectory nothing has to settle; give it with an equilibrium"
            )
        return _along(f, about, measurement, W, W_u, P0, manifold)
    if P0 is not None:
        raise ValueError("P0: a steady filter has forgotten its start; give P0 with a trajectory")
    return _steady(
        linear_system(f, about, manifold, idle=True), measurement, W, W_u, as_names(disregard, "disregard")
    )


def _along(f, run: Trajectory, measurement, W, W_u, P, manifold: bool) -> KalmanFilter:
    system = linear_system(f, run, manifold, idle=True)
    A, B, T, n = system.A, system.B, system.T, len(run) + 1
    Tt = np.swapaxes(T, 1, 2)
    C, P = measurement.jacobian(run.x) @ T, Tt[0] @ P @ T[0]
    gains, before, after, noises = [], [], [], []
    for k in range(n):
        before.append(P)
        present = measurement.present(run.k0 + k)
        L = np.zeros((len(P), len(present)))
        L[:, present], P = correction(P, C[k][present], measurement.V[np.ix_(present, present)])
        gains.append(L)
        after.append(P)
        if k < n - 1:
            noises.append(Tt[k + 1] @ W @ T[k + 1] + B[k] @ W_u @ B[k].T)
            P = A[k] @ P @ A[k].T + noises[-1]
            P = 0.5 * (P + P.T)
    full, full_after = (T @ np.stack(m) @ Tt for m in (before, after))
    model = T[1:] @ A @ Tt[:-1], T[1:] @ np.stack(noises) @ Tt[1:], C @ Tt
    return KalmanFilter(f, measurement, T @ np.stack(gains), full, full_after, False, *model, k0=run.k0)


def _steady(system: LinearSystem, measurement: Measurement, W, W_u, disregard) -> KalmanFilter:
    f, x, A, B, T = system.map, system.x[0], system.A[0], system.B[0], system.T[0]
    C, E, X = measurement.jacobian(x) @ T, np.eye(T.shape[1]), None
    W = T.T @ W @ T + B @ W_u @ B.T
    if disregard:
        named = named_jacobians(f, disregard, x[None], "disregard", "name errors or quantities of the state")
        E, X = unseen_left_out(A, C, named[0] @ T, disregard, f.space.error_names, T)
    a, c, w, V = E.T @ A @ E, C @ E, E.T @ W @ E, measurement.V
    args = a.T, c.T, w, V, np.zeros(c.T.shape), f.space.error_names, T @ E, FILTER
    _, P, poles = stabilized(*args, named=bool(disregard))
    L, after = correction(P, c, V)
    if X is None:
        before = P
    else:
        # errors are z = E y + X e; D = cov(e, y) estimates e from y (maths/feedback.md)
        n, m = E.shape[1], X.shape[1]
        F, kept = X.T @ A @ X, a @ (np.eye(n) - L @ c)
        forcing = X.T @ A @ E @ after @ a.T + X.T @ W @ E
        D = np.linalg.solve(np.eye(n * m) - np.kron(F, kept), forcing.ravel()).reshape(m, n)
        basis, correlation = E + X @ D @ np.linalg.pinv(P, hermitian=True), D @ (np.eye(n) - L @ c).T
        gain = np.linalg.lstsq(c @ P @ c.T + V, c @ D.T, rcond=None)[0].T
        L, before = E @ L + X @ gain, basis @ P @ basis.T
        basis = E + X @ correlation @ np.linalg.pinv(after, hermitian=True)
        after = basis @ after @ basis.T
    before, after, A, W = ((T @ M @ T.T)[None] for M in (before, after, A, W))
    steady = before, after, True, A, W, (C @ T.T)[None], poles
    return KalmanFilter(f, measurement, (T @ L)[None], *steady, disregarded=disregard)


@dataclass(frozen=True)
class ExtendedKalmanFilter:
    """Extended Kalman filter, linearized at its own estimate at every step.

    Attributes
    ----------
    map : OneStepMap
    measurement : Measurement
    W, W_u, P0
        Covariances, as for `kalman`; matrices after construction.
    manifold : bool
    """

    map: OneStepMap = field(repr=False)
    measurement: Measurement
    W: Any = 0.0
    W_u: Any = 0.0
    P0: Any = None
    manifold: bool = False

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
        """Return the estimate before the first measurement."""
        x = self.map.check_state(x, "estimate")
        return Estimate(x, self._restricted(x, self.P0 if P is None else P))

    def correct(self, k: int, estimate: Estimate, y: np.ndarray) -> Estimate:
        """Return the estimate at sample k after the measurement y (ny,)."""
        d, C = self.measurement.linearized(estimate.x, y)
        assert estimate.P is not None
        dx, P = corrected(estimate.P, C, self.measurement.V, d)
        return Estimate(self.map.retract(estimate.x, dx), P)

    def predict(self, k: int, estimate: Estimate, u: np.ndarray) -> Estimate:
        """Return the estimate at sample k + 1, predicted from the estimate at sample k.

        u is the input of step k.
        """
        x, u = point_of(self.map, estimate.x, u)
        steps = self.map.steps_at(x[None], u[None], k)
        lin = self.map.derivatives.linearize(steps)
        A, B = lin.A[0], lin.B[0]
        P = A @ estimate.P @ A.T + self.W
        if self.W_u.any():
            P = P + B @ self.W_u @ B.T
        return Estimate(steps.x1[0], self._restricted(steps.x1[0], 0.5 * (P + P.T)))

    def formula(self) -> ObserverFormula | None:
        """Return the filter as symbolic expressions, or None if it cannot be expressed.

        A filter with `manifold` cannot be expressed, nor one with a quantity that is not measured at every
        sample.
        """
        n, ny, nu = self.map.ndx, len(self.measurement.names), self.map.nu
        if self.manifold or not self.measurement.always:
            return None
        numbers = np.concatenate([np.ravel(m) for m in (self.measurement.V, self.W, self.W_u)])

        def noises(numbers: ca.MX) -> list[ca.MX]:
            parts = ca.vertsplit(numbers, np.cumsum([0, ny * ny, n * n, nu * nu]).tolist())
            return [ca.reshape(a, m, m) for a, m in zip(parts, (ny, n, nu), strict=True)]

        def expression(x: ca.MX, memory: ca.MX, measured: Measured, numbers: ca.MX) -> tuple:
            P, C = ca.reshape(memory, n, n), measured.C
            V, PC = noises(numbers)[0], P @ C.T
            L = ca.solve(C @ PC + V, PC.T).T
            keep = ca.MX.eye(n) - L @ C
            return x + L @ measured.innovation, ca.vec(keep @ P @ keep.T + L @ V @ L.T)

        def ahead(memory: ca.MX, u: ca.MX, linearized: Callable[[], tuple], numbers: ca.MX) -> ca.MX:
            (A, B), (_, W, W_u), P = linearized(), noises(numbers), ca.reshape(memory, n, n)
            P = A @ P @ A.T + W + B @ W_u @ B.T
            return ca.vec((P + P.T) / 2)

        return ObserverFormula(
            "extended",
            expression,
            lambda k, count: numbers,
            stored=lambda estimate: estimate.P.reshape(-1),
            restored=lambda k, x, memory: Estimate(x, memory.reshape(n, n)),
            ahead=ahead,
            covariances=lambda k, memories: memories.reshape(-1, n, n),
            linearizes=True,
        )

    def __repr__(self) -> str:
        where = "; on the constraint manifold" * self.manifold
        return f"ExtendedKalmanFilter({len(self.P0)} errors of the state{where}; {self.measurement!r})"

    def _restricted(self, x: np.ndarray, P: np.ndarray) -> np.ndarray:
        if not self.manifold:
            return P
        T = tangent_basis(self.map, x, idle=True)
        Z = T @ T.T
        return Z @ P @ Z
