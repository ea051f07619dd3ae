"""Moving-horizon estimation of states from recent measurements, with bounds.

The estimate is an optimal control problem on `vioc.control.shooting` whose inputs are the noise. Maths:
docs/maths/feedback.md, "Moving horizon", whose equations are numbered (MH).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any

import casadi as ca
import numpy as np

from vioc.checks import as_count, as_positive
from vioc.control.costs.cost import Cost
from vioc.control.feedback.kalman import Estimate, ExtendedKalmanFilter, corrected
from vioc.control.feedback.measurement import Measurement, root
from vioc.control.linear.manifold import tangent_basis
from vioc.control.problem.limits import PathConstraint
from vioc.control.problem.result import HEADER, Log
from vioc.control.problem.sizes import Sizes
from vioc.control.problem.status import Status
from vioc.control.shooting.barrier import Interior
from vioc.control.shooting.compiled import subproblem_of
from vioc.control.shooting.rows import ConstraintRows, collected
from vioc.control.shooting.stages import Stages
from vioc.errors import OptimizationError, StepError
from vioc.maps.derivatives import Linearization
from vioc.maps.made.noisy import NoisyMap
from vioc.maps.protocol import OneStepMap

SOFT = 1e-10  # regularization of defects and constraints, in units of typical sizes
SOFTER = 1e-6  # largest regularization over the least variance, both in units of typical sizes
# standard deviation of a sensor over the change of its reading if the state changes by typical sizes, below
# which the tolerance falls in proportion
SHARP = 1e-3
THIN = 1e-7  # entries of a root, over standard deviations, that are rounding errors of correlations
FINISHED = 1e-4  # KKT residual above which a search counts as unfinished
FREE, LIMITED = 3, 15  # iterations per sample without limits, with limits
CLOSED = 1e-2  # largest residual of an unfinished estimate, over 1 + |x|, in units of typical sizes


@dataclass(frozen=True)
class Window:
    """Estimate of a moving-horizon estimator, with the measurements of its window.

    Attributes
    ----------
    x, P : (nx,), (nx, nx)
        The estimate, and the covariance of its error if no bound is active.
    prior : pair of arrays
        State and covariance before the window's first measurement.
    Y, U : (c, ny), (c, nu) or one row less before `predict`
        Measurements and inputs of the window, the oldest first.
    X, W : (M+1, nx), (M, m)
        Estimated states and noise, from which the next search starts.
    y : (rows,)
        Multipliers of bounds.
    begun : pair of arrays
        State and covariance before the first measurement; typical sizes follow from them.
    iterations, failures, unfinished : int
        Iterations of the last sample; number of samples so far that the extended filter estimated; number of
        those whose search ran out of iterations with a KKT residual above 1e-4.
    verdict : str
        Verdict of the last sample's search.
    """

    x: np.ndarray
    P: np.ndarray
    prior: tuple[np.ndarray, np.ndarray] = field(repr=False)
    Y: np.ndarray = field(repr=False)
    U: np.ndarray = field(repr=False)
    begun: tuple[np.ndarray, np.ndarray] = field(repr=False)
    X: np.ndarray | None = field(default=None, repr=False)
    W: np.ndarray | None = field(default=None, repr=False)
    y: np.ndarray | None = field(default=None, repr=False)
    iterations: int = 0
    failures: int = 0
    unfinished: int = 0
    verdict: str = ""


@dataclass(frozen=True)
class MovingHorizon:
    """Moving-horizon estimator: the most likely states of the last `horizon` samples.

    It weights measurements, noise and prior by their covariances. It is an observer for `ClosedLoop`;
    `ExtendedMap` gives it parameters, disturbances and biases as states. If its search fails, the extended
    filter estimates the sample, and the failure is counted.

    Parameters
    ----------
    map : OneStepMap
        A map whose errors are its states.
    measurement : Measurement
    horizon : int
        Number M of samples of the window.
    W, W_u, P0 : as for `ExtendedKalmanFilter`
        Covariances; may be singular.
    bounds, constraints
        Limits on quantities of the state, as in `vioc.control.optimize`: ``{"param.friction": (0, None)}``.
    max_iterations : int, optional
        Per sample; ten times as many for the first sample. Default 3; 15 with bounds or constraints, since
        the barrier method needs more.
    tolerance : float
        KKT residual at which a search ends before `max_iterations`.
    manifold : bool
        As for `ExtendedKalmanFilter`.

    Raises
    ------
    ModelError
        For a map whose errors are not its states.
    ValueError
        Wrong shapes, names, covariances, limits, another step length of the measurement.
    """

    map: OneStepMap = field(repr=False)
    measurement: Measurement
    horizon: int = 10
    W: Any = 0.0
    W_u: Any = 0.0
    P0: Any = None
    bounds: Mapping[str, Any] | None = None
    constraints: Sequence[PathConstraint] = ()
    max_iterations: int | None = None
    tolerance: float = 1e-8
    manifold: bool = False

    def __post_init__(self) -> None:
        self.measurement.check_noisy("MovingHorizon")
        if self.max_iterations is None:
            object.__setattr__(self, "max_iterations", LIMITED if self.bounds or self.constraints else FREE)
        for name in ("horizon", "max_iterations"):
            object.__setattr__(self, name, as_count(getattr(self, name), name))
        object.__setattr__(self, "tolerance", as_positive(self.tolerance, "tolerance"))
        for name in ("W", "W_u", "P0"):
            object.__setattr__(self, name, getattr(self._filter, name))
        _ = self._rows  # check the limits

    def __reduce__(self):
        return type(self), tuple(getattr(self, f.name) for f in fields(self))

    @cached_property
    def _filter(self) -> ExtendedKalmanFilter:
        """Extended Kalman filter with the estimator's covariances, used if a search fails."""
        covariances = self.W, self.W_u, self.P0
        return ExtendedKalmanFilter(self.map, self.measurement, *covariances, self.manifold)

    @cached_property
    def _noises(self) -> tuple[np.ndarray, np.ndarray]:
        """Square roots of the covariances of process noise and input noise."""
        return slim_root(self.W), slim_root(self.W_u)

    @cached_property
    def _noisy(self) -> NoisyMap:
        return NoisyMap(self.map, max(self.map.ndx, sum(r.shape[1] for r in self._noises)))

    @cached_property
    def _rows(self) -> ConstraintRows:
        limits = collected(self._noisy, self.horizon, self.bounds, self.constraints, None)
        return ConstraintRows(self._noisy, self.horizon, limits)

    @cached_property
    def _cost(self) -> Cost:
        """Cost of the estimation problem, for the process noise and measurement residuals.
        It is the sum of 1/2 |w|^2 + 1/2 |R (y - g(x))|^2 over the samples, with the noise w; see (MH 1).

        The measurements y and their weights R are references of the cost. R is a root of V^-1 for the
        measurements that are available at a sample.
        """
        f, measure, ny = self._noisy, self.measurement, len(self.measurement.names)
        y, R = ca.SX.sym("y", ny), ca.SX.sym("R", ny, ny)
        misfit = 0.5 * ca.sumsqr(R @ (y - measure.expression))
        rows = (y, np.zeros((self.horizon + 1, ny))), (ca.vec(R), np.zeros((self.horizon + 1, ny * ny)))
        return Cost(f, 0.5 * ca.sumsqr(f.symbols.u) + misfit, misfit, references=rows, per_time=False)

    # -- observer of a closed loop --------------------------------------------------------------

    def start(self, x: np.ndarray, P: np.ndarray | None = None) -> Window:
        """Return the estimate before the first measurement."""
        estimate: Any = self._filter.start(x, P)
        first = estimate.x, estimate.P
        none = np.zeros((0, len(self.measurement.names))), np.zeros((0, self.map.nu))
        return Window(*first, first, *none, first)

    def correct(self, k: int, belief: Window, y: np.ndarray) -> Window:
        """Return the estimate at sample k after the measurement y (ny,)."""
        k, Y = as_count(k, "k", 0), np.vstack([belief.Y, self.measurement.reading(y)])
        X, W = self._guess(belief, len(Y))
        g = self._noisy.with_known(self._known(belief, X), k + 1 - len(Y))
        cost = self._cost.with_references(*self._data(X, Y))
        sizes, rows = self._sized(*belief.begun)
        stages = Stages(g, cost, rows, 0, g.lengths(None, self.horizon), sizes=sizes)
        stages.follows = False
        # the cost is scaled by its largest gradient, that of an exact sensor: other terms are then small
        readings = np.abs(self.measurement.jacobian(X[-1:])[0]) @ sizes.states
        deviations = np.sqrt(np.diag(self.measurement.V))
        exact = min(1.0, float((deviations[readings > 0] / readings[readings > 0]).min(initial=1.0)) / SHARP)
        log, full = Log("estimate", HEADER, None), len(Y) == self.horizon > 1
        try:
            with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
                subproblem = subproblem_of(stages.map)(
                    stages, self.tolerance * exact, self._soft(belief, sizes)
                )
                search = Interior(subproblem, X, W, belief.y)
                search.pause = 10**9  # always Gauss-Newton: residuals are small
                assert self.max_iterations is not None
                search.iterate(self.max_iterations * (1 if belief.X is not None else 10), log)
            failed = _failure(search)
        except (OptimizationError, StepError) as error:
            failed = str(error)
        if failed:
            estimate = self._filter.correct(k, Estimate(belief.x, belief.P), y)
            prior = self._prior_by_filter(k, belief, Y) if full else belief.prior
            X[-1] = estimate.x
            changes: dict[str, Any] = dict(
                x=estimate.x, P=estimate.P, X=X, W=W, y=None, failures=belief.failures + 1
            )
            failed = f"extended filter: {failed}"
            return replace(belief, prior=prior, Y=Y, iterations=log.steps, verdict=failed, **changes)
        iterate = search.now
        X, W, y = iterate.point.curve.x, iterate.point.curve.u, iterate.y / search.subproblem.scale
        P = self._covariances(X, Y, search.lin)
        prior = self._next_prior(belief, Y, search) if full else belief.prior
        message = f"{search.status}, error {search.error:.1e}"
        unfinished = belief.unfinished + (search.error > FINISHED)
        changes = dict(x=X[-1].copy(), P=P, X=X, W=W, y=self._shifted(y), unfinished=unfinished)
        return replace(belief, prior=prior, Y=Y, iterations=log.steps, verdict=message, **changes)

    def predict(self, k: int, belief: Window, u: np.ndarray) -> Window:
        """Return the estimate at sample k + 1, predicted from the estimate at sample k.

        u is the input of step k.
        """
        estimate: Any = self._filter.predict(k, Estimate(belief.x, belief.P), u)
        full = len(belief.Y) == self.horizon
        Y, U = belief.Y[int(full) :], np.vstack([belief.U, u])[int(full) :]
        prior = (estimate.x, estimate.P) if self.horizon == 1 else belief.prior
        return replace(belief, x=estimate.x, P=estimate.P, prior=prior, Y=Y, U=U)

    def __repr__(self) -> str:
        limits = ", ".join(p.constraint.name for p in self._rows.places)
        within = f"; within limits of {limits}" if limits else ""
        return f"MovingHorizon({self.horizon} samples{within}; {self.measurement!r})"

    # -- optimal control problem of one sample --------------------------------------------------

    @cached_property
    def _known_sizes(self) -> dict[bytes, tuple[Sizes, ConstraintRows]]:
        """Results of `_sized`, by the bytes of the arguments."""
        return {}

    def _sized(self, x: np.ndarray, P: np.ndarray) -> tuple[Sizes, ConstraintRows]:
        """Return typical sizes of states and noise, and the limits scaled by them.
        They follow from the first state, the first covariance, and the process noise of one window. With
        them, estimates do not depend on the units of the map.
        """
        key = x.tobytes() + P.tobytes()
        known = self._known_sizes.get(key)
        if known is None:
            M, m = self.horizon, self._noisy.nu
            variances = np.maximum(np.diag(P) + M * np.diag(self.W), 0.0)
            spread = dict(zip(self.map.state_names, np.sqrt(variances), strict=True))
            sizes = Sizes(self._noisy, x[None], np.zeros((1, m)), M * self.map.dt, spread)
            known = sizes, self._rows.sized(np.tile(x, (M + 1, 1)), np.zeros((M, m)), sizes)
            self._known_sizes.clear()  # only the last run's
            self._known_sizes[key] = known
        return known

    def _known(self, belief: Window, X: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return inputs, roots of noise covariances and a mask for a window's steps.
        The results are the applied inputs, the effects of the noise on inputs and on states, and a mask. The
        mask is True for the last c - 1 steps, which are steps of the map; c is the number of measurements in
        the window.

        Step 0 leads from the prior to the first state. The steps between keep the state; they exist while
        there are few measurements. See (MH 2).
        """
        M, f, m, c = self.horizon, self.map, self._noisy.nu, len(belief.Y) + 1
        U, G, S = np.zeros((M, f.nu)), np.zeros((M, f.nu, m)), np.zeros((M, f.nx, m))
        mask = np.arange(M) > M - c
        of_states, of_inputs = self._noises
        a, b = of_states.shape[1], of_states.shape[1] + of_inputs.shape[1]
        S[0, :, : f.nx] = root(belief.prior[1])
        U[mask], G[mask, :, a:b], S[mask, :, :a] = belief.U, of_inputs, of_states
        if self.manifold:
            for i in np.flatnonzero(mask):
                T = tangent_basis(self.map, X[i + 1], idle=True)
                S[i] = T @ (T.T @ S[i])
        return U, G, S, mask

    def _soft(self, belief: Window, sizes: Sizes) -> float:
        """Return the regularization of defects and constraints in the optimization.
        It is small compared with the smallest positive variance of the process noise and of the prior.
        """
        variances = np.array([np.diag(self.W), np.diag(belief.prior[1])]) / sizes.states**2
        return min(SOFT, SOFTER * float(variances[variances > 0].min(initial=np.inf)))

    def _guess(self, belief: Window, c: int) -> tuple[np.ndarray, np.ndarray]:
        """Return guesses of states and noise for a window of c measurements.
        The guess is the last estimate, shifted by one sample. Without an earlier estimate, all states equal
        the prior mean and the noise is 0.

        Step 0 leads from the prior to the first state; its noise is the difference between the two.
        """
        M, m, (x, P) = self.horizon, self._noisy.nu, belief.prior
        if belief.X is None or belief.W is None:
            return np.tile(x, (M + 1, 1)), np.zeros((M, m))
        X, W = np.vstack([belief.X[1:], belief.x]), np.vstack([belief.W[1:], np.zeros((1, m))])
        S = root(P)
        X[0], W[0] = x, 0.0
        W[0, : len(x)] = np.linalg.lstsq(S, self.map.difference(x, X[1]), rcond=1e-9)[0]
        still = slice(1, M - c + 2)
        X[still], W[1 : M - c + 1] = x + S @ W[0, : len(x)], 0.0
        return X, W

    def _data(self, X: np.ndarray, Y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the measurements in the window and the weights of their residuals.
        The arrays have one row for each sample and serve as reference values of the estimation cost.

        The weights are roots of V^-1, the inverse covariance of the measurements. Whole turns are added to
        measured angles so that they are near the guess.
        """
        ny, M, c, V = Y.shape[1], self.horizon, len(Y), self.measurement.V
        y, R = np.zeros((M + 1, ny)), np.zeros((M + 1, ny, ny))
        for i, (row, x) in enumerate(zip(Y, X[M + 1 - c :], strict=True), M + 1 - c):
            d = self.measurement.innovation(x, row)
            present = np.flatnonzero(~np.isnan(d))
            y[i, present] = (self.measurement(x) + d)[present]
            block = np.ix_(present, present)
            R[i][block] = np.linalg.inv(np.linalg.cholesky(V[block]))
        return y, np.swapaxes(R, 1, 2).reshape(M + 1, ny * ny)  # matrices in column order

    def _shifted(self, y: np.ndarray) -> np.ndarray:
        """Return the multipliers y of the constraints in the window, moved by one sample.
        The last sample's multipliers are repeated.
        """
        n = self.horizon * self._rows.m
        path = y[:n].reshape(self.horizon, self._rows.m)
        return np.concatenate([path[1:].ravel(), path[-1], y[n:]])

    def _covariances(self, X: np.ndarray, Y: np.ndarray, lin: Linearization) -> np.ndarray:
        """Return the error covariance of the estimate of the newest state in the window.

        See docs/maths/feedback.md, (MH 4).
        """
        M, c, A, B = self.horizon, len(Y), lin.A, lin.B
        C = self.measurement.jacobian(X)
        P = B[0] @ B[0].T
        for i in range(1, M + 1):
            if i > 1:
                P = A[i - 1] @ P @ A[i - 1].T + B[i - 1] @ B[i - 1].T
                P = 0.5 * (P + P.T)
            if i > M - c:
                nothing = np.where(np.isnan(Y[i - M + c - 1]), np.nan, 0.0)
                P = corrected(P, C[i], self.measurement.V, nothing)[1]
        return P

    def _next_prior(self, belief: Window, Y: np.ndarray, search: Interior) -> tuple[np.ndarray, np.ndarray]:
        """Return the prior of the next window: mean and covariance of a state.

        It follows from the prior of this window by the window's oldest measurement and oldest step,
        linearized at the solution. See (MH 3).
        """
        f, (x, P), iterate, lin = self.map, belief.prior, search.now, search.lin
        first, ends, w = iterate.point.curve.x[1], iterate.point.steps.x1[1], iterate.point.curve.u[1]
        dx0 = f.difference(first, x)
        d, C = self.measurement.linearized(first, Y[0])
        dx, P = corrected(P, C, self.measurement.V, d - C @ dx0)
        A, B = lin.A[1], lin.B[1]
        x = f.retract(ends, A @ (dx0 + dx) - B @ w)
        P = A @ P @ A.T + B @ B.T
        return x, 0.5 * (P + P.T)

    def _prior_by_filter(self, k: int, belief: Window, Y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the prior of the next window, by one step of an extended Kalman filter.

        The filter is linearized at the present prior.
        """
        first = k + 1 - len(Y)
        estimate: Any = self._filter.correct(first, Estimate(*belief.prior), Y[0])
        estimate = self._filter.predict(first, estimate, belief.U[0])
        return estimate.x, estimate.P


def slim_root(covariance: np.ndarray) -> np.ndarray:
    """Return a square root G (n, r) of a covariance of rank r: G G' is the covariance."""
    G = root(covariance)
    deviations = np.linalg.norm(G, axis=1, keepdims=True)
    size = np.abs(G / np.where(deviations > 0, deviations, 1.0)).max(axis=0, initial=0.0)
    return G[:, size > THIN]


def _failure(search: Interior) -> str:
    """Return why an interior-point search yielded no estimate, or "" if it did."""
    point, subproblem = search.now.point, search.subproblem
    if search.status in (Status.CONVERGED, Status.ACCEPTABLE):
        return ""
    violation = subproblem.merit(point, search.now.s).violation
    size = 1 + np.abs(point.curve.x / subproblem.stages.of_states).max()
    if search.status is Status.INFEASIBLE or not violation <= CLOSED * size:
        return f"{search.status} with {violation:.1e} open"
    return ""
