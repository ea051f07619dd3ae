"""Covariance steering: feedback of least cost with limits on standard deviations.

Maths: docs/maths/robust.md#covariance-steering.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vioc.checks import as_positive, as_value, limits
from vioc.control.feedback.covariance import Covariance, covariance
from vioc.control.feedback.kalman import KalmanFilter, kalman
from vioc.control.feedback.measurement import Measurement
from vioc.control.linear.about import check_trajectory
from vioc.control.linear.weights import error_weights, input_weight, named_jacobians, state_weight
from vioc.control.problem.limits import full_names
from vioc.control.regulators.law import StateLaw
from vioc.control.regulators.lqr import Regulator, along, end_weight
from vioc.control.regulators.variances import (
    Steered,
    Unreachable,
    VarianceLimits,
    VarianceMultipliers,
    VarianceProblem,
)
from vioc.errors import OptimizationError
from vioc.maps.protocol import OneStepMap
from vioc.names import INPUTS, by_quantity
from vioc.runs.given import trajectory_of
from vioc.runs.trajectory import Trajectory

SHARE = 1e-2  # share of the proof of infeasibility above which a limit is named


@dataclass(frozen=True)
class SteeredCovariance:
    """Feedback of least cost that keeps standard deviations within limits.
    The standard deviations are those of states and inputs along a trajectory.

    Attributes
    ----------
    regulator : Regulator
        Regulator whose P is the cost-to-go with the multipliers as additional weights.
    spread : Covariance
        Covariance along the trajectory under this feedback, with the filter if there is one.
    cost : float
        Expected sum of z'Qz + v'Rv + z_N'Qf z_N.
    gap : float
        The smallest possible cost is at least cost - gap.
    prices : dict of str to float
        For each active limit by name, the decrease of the cost per relative increase of the allowed variance,
        to first order, summed over the samples.
    observer : KalmanFilter or None
        Filter whose estimate the law uses; part of the design.
    iterations : int
    """

    regulator: Regulator
    spread: Covariance = field(repr=False)
    cost: float
    gap: float
    prices: dict[str, float]
    observer: KalmanFilter | None = field(default=None, repr=False)
    iterations: int = 0

    def as_law(self) -> StateLaw:
        """Return the feedback law for a `ClosedLoop`.
        If the design has a Kalman filter, the loop also needs it, see `observer`.
        """
        return self.regulator.as_law()

    def std(self, name: str) -> np.ndarray:
        """Return the standard deviation of a quantity at all samples (N+1,).
        The name is that of a quantity that depends on the state, or of a component of the state's error.
        """
        return self.spread.std(name)

    def plot(self, *names: str, ax: Any = None) -> Any:
        """Plot quantities of the state with bands of two standard deviations.
        Return the axes.
        """
        return self.spread.plot(*names, ax=ax)

    def __repr__(self) -> str:
        bind = ", ".join(self.prices) or "none"
        return (
            f"SteeredCovariance({len(self.regulator.K)} gains; cost {self.cost:.6g}, at most {self.gap:.2g} "
            f"above the least; limits that bind: {bind})"
        )


def steer_covariance(
    trajectory: Trajectory,
    P0: Any,
    W: Any = 0.0,
    *,
    W_u: Any = 0.0,
    final: Any = None,
    bounds: Mapping[str, Any] | None = None,
    sigmas: float = 3.0,
    Q: Any = 0.0,
    R: Any = 1.0,
    Qf: Any = None,
    measurement: Measurement | None = None,
    tolerance: float = 1e-6,
) -> SteeredCovariance:
    """Find feedback gains of least expected cost under limits on standard deviations.

        minimize  E sum over k < N of z'Qz + v'Rv  +  z_N' Qf z_N     over  v_k = -K_k z_k
        subject to  P_N <= final,  |y_d - bound| >= sigmas (y'P_k y)^(1/2)

    for the deviations z = difference(x_d, x), v = u - u_d of the linearization along the trajectory, under
    process noise.

    Parameters
    ----------
    trajectory : Trajectory
    P0, W, W_u : as in `covariance`
        Covariances of the first error, of the disturbance added to x[k+1] and of the inputs' noise.
    final : dict of str to float, or (ndx, ndx)
        Largest final standard deviations of quantities or errors of the state by name; or a positive definite
        upper bound of the final covariance P_N (final - P_N >= 0).
    bounds : dict of str to float or (low, high), optional
        Limits on inputs (``u.NAME``) and quantities of the state at every sample, as in `optimize`. Values
        on the trajectory keep a distance of `sigmas` standard deviations from them.
    sigmas : float
        Number of standard deviations; 0.27 % of Gaussian deviations exceed 3.
    Q, R, Qf
        Weights as in `dlqr`, Q by default 0; Qf is Q unless given.
    measurement : Measurement, optional
        Measurement of the state. The Kalman filter for it is part of the result, and limits are on the
        state itself, not on its estimate.
    tolerance : float
        Relative distance of the cost from the least one.

    Returns
    -------
    SteeredCovariance

    Raises
    ------
    ModelError
        Unknown names.
    ValueError
        Wrong shapes, names or covariances; a trajectory that violates a bound itself.
    OptimizationError
        If a lower bound proves that no gains satisfy the limits. The message names the limits that exclude
        each other, and the least value that is possible for each. Also if this is undecided.
    """
    trajectory = trajectory_of(trajectory)
    if not isinstance(trajectory, Trajectory):
        raise TypeError(
            f"trajectory: expected one, such as f.rollout(x0, u, steps=N) from an equilibrium, got "
            f"{type(trajectory).__name__}"
        )
    f = check_trajectory(trajectory.map, trajectory)
    P0, W, W_u = state_weight(f, P0, "P0"), state_weight(f, W, "W"), input_weight(f, W_u, "W_u")
    R = input_weight(f, R, "R", definite=True)
    Q = error_weights(f, Q, "Q", trajectory.x)
    Qf = end_weight(f, Q, Qf, trajectory.x)
    if final is None and not bounds:
        raise ValueError("steer_covariance: give final standard deviations or bounds; dlqr is without limits")
    tolerance = as_positive(tolerance, "tolerance")
    if not sigmas > 0:
        raise ValueError(f"sigmas: expected standard deviations > 0, got {sigmas!r}")
    A, B = f.linearize_trajectory(trajectory)
    N, n = len(A), f.ndx
    noise = B @ W_u @ np.swapaxes(B, 1, 2) + W
    observer, unseen, start = None, np.zeros((N + 1, n, n)), P0
    if measurement is not None:
        # the innovations drive the estimate; the covariance of its error is added
        observer = kalman(f, trajectory, measurement, W, W_u=W_u, P0=P0)
        unseen, noise = observer.after, (observer.before - observer.after)[1:]
        start = P0 - unseen[0]
    rows = _VarianceRows(f, trajectory, unseen, P0)
    if isinstance(final, Mapping):
        rows.end(final)
    elif final is not None:
        rows.whole(state_weight(f, final, "final"))
    rows.path(bounds, sigmas)
    running = np.broadcast_to(along(Q), (N, n, n))
    problem = VarianceProblem(A, B, noise, start, running, R, Qf, rows.limits())
    try:
        design = problem.solve(tolerance)
    except Unreachable as verdict:
        raise OptimizationError(rows.unreachable(problem, verdict)) from None
    regulator = Regulator(f, trajectory, design.K, design.Pi, Q, R, Qf)
    law = StateLaw(f, trajectory.x[:-1], trajectory.u, design.K, k0=trajectory.k0)
    spread = covariance(trajectory, P0, W, W_u=W_u, law=law, observer=observer)
    cost = design.cost + float(np.sum(running * unseen[:-1]) + np.sum(Qf * unseen[-1]))
    return SteeredCovariance(
        regulator, spread, cost, design.gap, rows.prices(design), observer, design.iterations
    )


class _VarianceRows:
    """Converter of limits on standard deviations to limits on variances.

    Each limit is scaled to unit variance, after the variance of the filter's error is subtracted.
    """

    def __init__(self, f: OneStepMap, trajectory: Trajectory, unseen: np.ndarray, P0: np.ndarray):
        self.map, self.trajectory, self.unseen, self.P0 = f, trajectory, unseen, P0
        # name, sample, coefficients of the state's error or the input, largest standard deviation
        self.states: list[tuple[str, int, np.ndarray, float]] = []
        self.inputs: list[tuple[str, int, np.ndarray, float]] = []
        self.matrix: np.ndarray | None = None

    def end(self, final: Mapping[str, float]) -> None:
        f, N = self.map, len(self.trajectory)
        named = by_quantity(f, final, "final", f.space.error_names)
        J = named_jacobians(f, tuple(named), self.trajectory.x[-1:], "final", "give its bound instead")[0]
        for (name, value), row in zip(named.items(), J, strict=True):
            std = as_value(value, f"final: standard deviation of {name}")
            if not std > 0:
                raise ValueError(f"final: expected a standard deviation > 0 of {name!r}, got {value!r}")
            self._state(f"{name} at the end", N, row, std)

    def whole(self, final: np.ndarray) -> None:
        difference = final - self.unseen[-1]
        values, vectors = np.linalg.eigh(difference)
        if not values[0] > 0:
            name = self.map.space.error_names[int(np.argmax(np.abs(vectors[:, 0])))]
            if self.unseen.any():
                raise OptimizationError(
                    "final: after the last measurement the filter's own error exceeds it, along "
                    f"{name!r} by {-values[0]:.3g}; measure better, or allow more"
                )
            raise ValueError(
                f"final: expected a positive definite matrix, got eigenvalue {values[0]:.3g} along {name!r}; "
                'name standard deviations instead, {"NAME": 0.01}'
            )
        self.matrix = (vectors / np.sqrt(values)) @ vectors.T

    def path(self, bounds: Mapping[str, Any] | None, sigmas: float) -> None:
        f, run, N = self.map, self.trajectory, len(self.trajectory)
        for name, value in (full_names(f, bounds) or {}).items():
            inputs = name.startswith(INPUTS) and name[len(INPUTS) :] in f.input_names
            count = N if inputs else N + 1
            low, high = limits(value, count, f"bounds on {name}", number="symmetric")
            J = np.zeros((0, 0))
            if inputs:
                i = f.input_names.index(name[len(INPUTS) :])
                y = run.u[:, i]
            else:
                J = named_jacobians(f, [name], run.x, "bounds", "bound quantities of the state")[:, 0]
                y = run[name]
            margin = np.minimum(high - y, y - low)
            if not (margin > 0).all():
                worst = int(np.argmin(margin))
                raise ValueError(
                    f"bounds on {name}: the trajectory itself is at {y[worst]:.6g} at k = {worst}, the "
                    f"limits are {low[worst]:.6g} and {high[worst]:.6g}; deviations need room: bound the "
                    "trajectory more tightly"
                )
            for k in np.flatnonzero(np.isfinite(margin)).tolist():
                std = float(margin[k] / sigmas)
                if inputs:
                    self.inputs.append((f"{name} at k = {k}", k, np.eye(f.nu)[i], std))
                elif k > 0:
                    self._state(f"{name} at k = {k}", k, J[k], std)
                elif J[0] @ self.P0 @ J[0] > std**2:
                    raise OptimizationError(
                        f"{name} starts with a standard deviation of {np.sqrt(J[0] @ self.P0 @ J[0]):.4g}, "
                        f"at most {std:.4g} is allowed there; widen its bound or lower P0"
                    )

    def _state(self, name: str, k: int, row: np.ndarray, std: float) -> None:
        unseen = float(row @ self.unseen[k] @ row)
        if not unseen < std**2:
            raise OptimizationError(
                f"{name}: after its measurement the filter's error alone has a standard deviation of "
                f"{np.sqrt(unseen):.4g}, at most {std:.4g} is asked; measure better, or allow more"
            )
        self.states.append((name, k, row, float(np.sqrt(std**2 - unseen))))

    def limits(self) -> VarianceLimits:
        def stacked(rows: list, width: int) -> tuple[np.ndarray, np.ndarray]:
            scaled = np.array([row / std for _, _, row, std in rows]).reshape(len(rows), width)
            return scaled, np.array([k for _, k, _, _ in rows], int)

        return VarianceLimits(
            *stacked(self.states, self.map.ndx), *stacked(self.inputs, self.map.nu), self.matrix
        )

    def prices(self, design: Steered) -> dict[str, float]:
        """Return the multipliers of active limits by name, summed over the samples."""
        names = [name for name, *_ in (*self.states, *self.inputs)]
        mu, least = design.multipliers.mu, 10 * design.gap
        prices: dict[str, float] = {}
        for name, value in zip(names, mu, strict=True):
            if value > least:
                short = name.split(" at k")[0]
                prices[short] = prices.get(short, 0.0) + float(value)
        if np.trace(design.multipliers.L) > least:
            prices["final"] = float(np.trace(design.multipliers.L))
        return prices

    def unreachable(self, problem: VarianceProblem, verdict: Unreachable) -> str:
        """Return the error text for limits that cannot be satisfied together.
        It also gives the smallest standard deviation that is possible for each limit alone.
        """
        named = [*self.states, *self.inputs]
        (mu, L), total = verdict.multipliers, verdict.multipliers.total
        shares: dict[str, list[int]] = {}
        for i, (name, *_) in enumerate(named):
            shares.setdefault(name.split(" at k")[0], []).append(i)
        texts = []
        for group in shares.values():
            if mu[group].sum() <= SHARE * total:
                continue
            worst = group[int(np.argmax(mu[group]))]
            name, _, _, std = named[worst]
            unit = VarianceMultipliers(np.eye(len(mu))[worst], np.zeros_like(L))
            least = np.sqrt(max(problem.least(unit), 0.0)) * std
            count = int((mu[group] > SHARE * mu[worst]).sum())
            more = f" and {count - 1} more samples" * (count > 1)
            texts.append(f"{name}{more} (at most {std:.4g}, alone at least {least:.4g})")
        if np.trace(L) > SHARE * total:
            texts.append("final (a matrix)")
        scale = np.sqrt(verdict.ratio)
        return (
            f"no gains keep these standard deviations together: {'; '.join(texts)}. Whatever the gains, a "
            f"mean of the variances over their limits is at least {verdict.ratio:.4g}: {scale:.4g} times "
            "these deviations is a lower bound of what can be kept, and may still be too little. Allow more "
            "than that, lower P0, W or W_u, or give more inputs"
        )
