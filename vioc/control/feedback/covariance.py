"""Propagation of a state's covariance along a trajectory, also under feedback.
The feedback uses the state or a Kalman filter's estimate.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vioc.control.feedback.kalman import KalmanFilter
from vioc.control.linear.weights import input_weight, named_jacobians, state_weight
from vioc.control.regulators.law import StateLaw, as_law
from vioc.drawing import plots
from vioc.maps.made.joining import unlike
from vioc.runs.given import trajectory_of
from vioc.runs.steps import check_steps
from vioc.runs.trajectory import Trajectory


@dataclass(frozen=True)
class Covariance:
    """Covariance of the state's deviation from a trajectory at each sample.
    It is exact to first order, since it is computed from the linearized map.

    Attributes
    ----------
    trajectory : Trajectory
    P : (N+1, ndx, ndx)
        Covariance of difference(x_d, x).
    input : (N, nu, nu)
        Covariance of u - u_d due to the feedback; zero without feedback.
    estimate : (N+1, ndx, ndx) or None
        Covariance of the filter's error after each measurement.
    """

    trajectory: Trajectory
    P: np.ndarray = field(repr=False)
    input: np.ndarray = field(repr=False)
    estimate: np.ndarray | None = field(default=None, repr=False)

    def std(self, name: str) -> np.ndarray:
        """Return the standard deviation of a quantity at all samples (N+1,).
        The name is that of a quantity that depends on the state, or of a component of the state's error.

        Raises ValueError for a quantity that belongs to a step.
        """
        run = self.trajectory
        c = named_jacobians(run.map, [name], run.x, "std", "`input` has the inputs' covariance")
        variance = (c @ self.P @ np.swapaxes(c, 1, 2))[:, 0, 0]
        return np.sqrt(np.maximum(variance, 0.0))

    def plot(self, *names: str, ax: Any = None) -> Any:
        """Plot quantities of the state with bands of two standard deviations.
        Return the axes.
        """
        return plots().plot_covariance(self, *names, ax=ax)

    def __repr__(self) -> str:
        first, last = (np.sqrt(np.trace(self.P[k])) for k in (0, -1))
        return f"Covariance({len(self.P)} samples; root of the trace {first:.3g} .. {last:.3g})"


def covariance(
    trajectory: Trajectory,
    P0: Any,
    W: Any = 0.0,
    *,
    W_u: Any = 0.0,
    law: Any = None,
    observer: KalmanFilter | None = None,
) -> Covariance:
    """Propagate the covariance of the state along a trajectory, to first order.
    P0 is the covariance of the initial error, W that of the disturbance, and W_u that of the input noise.

    Parameters
    ----------
    trajectory : Trajectory
    P0, W : float, (ndx,), (ndx, ndx) or dict of str to float
        Covariances of the initial error and of the disturbance added to x[k+1].
    W_u : float, (nu,), (nu, nu) or dict of str to float
        Covariance of the inputs' noise.
    law : StateLaw, Regulator, SteadyRegulator or Tracking, optional
        Feedback about this trajectory; default: open loop.
    observer : KalmanFilter, optional
        Filter that estimates the state for the law. It starts from the trajectory's first state, so the
        first error of the estimate is that of the state.

    Returns
    -------
    Covariance

    Raises
    ------
    ValueError
        Wrong shapes, names or covariances; an observer without a law; a law or observer for another step
        length; an observer of another map.
    """
    trajectory = trajectory_of(trajectory)
    f, n, N = trajectory.map, trajectory.map.ndx, len(trajectory)
    P0, W = state_weight(f, P0, "P0"), state_weight(f, W, "W")
    W_u = input_weight(f, W_u, "W_u")
    A, B = f.linearize_trajectory(trajectory)
    K = np.zeros((N, f.nu, n))
    if law is not None:
        state_law = as_law(law)
        if not isinstance(state_law, StateLaw):
            raise TypeError(f"expected a law with gains, got {type(state_law).__name__}")
        check_steps(state_law.map.dt, trajectory.step_lengths, "law", "the trajectory")
        K = state_law.K[[state_law.row(trajectory.k0 + k) for k in range(N)]]
    noise = B @ W_u @ np.swapaxes(B, 1, 2) + W
    if observer is None:
        F, G = A - B @ K, noise
        P = _propagate(F, G, P0)
        return Covariance(trajectory, P, K @ P[:-1] @ np.swapaxes(K, 1, 2))
    if law is None:
        raise ValueError("an observer acts through a law: give the law as well")

    check_steps(observer.map.dt, trajectory.step_lengths, "observer", "the trajectory")
    if other := unlike(f, observer.map):
        raise ValueError(f"observer: its model is not the trajectory's map: {other} (trajectory, observer)")
    # joint propagation of dx and the estimate's error e after the correction: u = u_d - K (dx - e)
    C, V, I = observer.measurement.jacobian(trajectory.x), observer.measurement.V, np.eye(n)
    L = observer.L[[observer.row(trajectory.k0 + k) for k in range(N + 1)]]
    keep = I - L @ C
    F, G = np.zeros((N, 2 * n, 2 * n)), np.zeros((N, 2 * n, 2 * n))
    F[:, :n, :n], F[:, :n, n:], F[:, n:, n:] = A - B @ K, B @ K, keep[1:] @ A
    both = np.concatenate([np.broadcast_to(I, keep[1:].shape), keep[1:]], axis=1)
    G[:] = both @ noise @ np.swapaxes(both, 1, 2)
    G[:, n:, n:] += L[1:] @ V @ np.swapaxes(L[1:], 1, 2)
    first = np.vstack([I, keep[0]])
    start = first @ P0 @ first.T
    start[n:, n:] += L[0] @ V @ L[0].T
    joint = _propagate(F, G, start)
    gain = np.concatenate([-K, K], axis=2)
    inputs = gain @ joint[:-1] @ np.swapaxes(gain, 1, 2)
    return Covariance(trajectory, joint[:, :n, :n], inputs, joint[:, n:, n:])


def _propagate(F: np.ndarray, G: np.ndarray, P: np.ndarray) -> np.ndarray:
    """Return the covariances P[k+1] = F[k] P[k] F[k]' + G[k] at all samples.
    F are the matrices of the steps, and G the covariances of the noise in the steps.
    """
    result = [P]
    for Fk, Gk in zip(F, G, strict=True):
        P = Fk @ P @ Fk.T + Gk
        P = 0.5 * (P + P.T)
        result.append(P)
    return np.stack(result)
