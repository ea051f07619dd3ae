"""Regulators about curves of states and inputs that need not be trajectories.

The cost may have cross terms and linear terms.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vioc.checks import check_array, check_rows
from vioc.control.linear.weights import error_weights, input_weight
from vioc.control.regulators.law import StateLaw
from vioc.control.regulators.lqr import along, end_weight
from vioc.control.regulators.riccati import riccati
from vioc.maps.protocol import OneStepMap
from vioc.runs.trajectory import Trajectory


@dataclass(frozen=True)
class Tracking:
    """Regulator about a curve: u = u_d - K z - d, with z = difference(x_d, x).
    The curve has states x_d and inputs u_d; K are gains, and d is a feedforward.

    Attributes
    ----------
    map : OneStepMap
    X, U : (N+1, nx), (N, nu)
        The curve.
    K, d : (N, nu, ndx), (N, nu)
        Gains and feedforward.
    P, p, c : (N+1, ndx, ndx), (N+1, ndx), (N+1,)
        The cost to go from sample k is z'Pz + p'z + c.
    defects : (N, ndx)
        difference(x_d[k+1], f(x_d[k], u_d[k])), zero for a trajectory.
    k0 : int
    """

    map: OneStepMap = field(repr=False)
    X: np.ndarray = field(repr=False)
    U: np.ndarray = field(repr=False)
    K: np.ndarray
    d: np.ndarray
    P: np.ndarray = field(repr=False)
    p: np.ndarray = field(repr=False)
    c: np.ndarray = field(repr=False)
    defects: np.ndarray = field(repr=False)
    k0: int = 0

    def as_law(self) -> StateLaw:
        """Return the feedback law u = u_d - d - K difference(x_d, x).
        The class `ClosedLoop` simulates it with a plant.
        """
        return StateLaw(self.map, self.X[:-1], self.U - self.d, self.K, k0=self.k0)

    def cost_to_go(self, x: Any, k: int = 0) -> float:
        """Return the cost-to-go from state x (nx,) at sample k.
        It is predicted with the linearized dynamics.
        """
        z = self.map.difference(self.X[k], self.map.check_state(x))
        return float(z @ self.P[k] @ z + self.p[k] @ z + self.c[k])

    def rollout(self, x0: Any) -> Trajectory:
        """Simulate the closed loop from x0 (nx,) along the curve."""
        return self.map.track(x0, self.X[:-1], self.U - self.d, self.K, k0=self.k0)

    def __repr__(self) -> str:
        n, worst = len(self.U), np.abs(self.defects).max(initial=0.0)
        return f"Tracking({n} gains {self.K.shape[1]} x {self.K.shape[2]}; largest defect {worst:.3g})"


def track_curve(
    f: OneStepMap,
    X: Any,
    U: Any,
    Q: Any,
    R: Any,
    Qf: Any = None,
    *,
    S: Any = None,
    q: Any = None,
    r: Any = None,
    qf: Any = None,
    k0: int = 0,
) -> Tracking:
    """Return the time-varying regulator about a curve that need not obey the dynamics.

        minimize  sum over k < N of z'Qz + v'Rv + 2 z'Sv + q'z + r'v  +  z_N' Qf z_N + qf'z_N

    for z = difference(x_d, x), v = u - u_d under the linearization at the curve.

    Parameters
    ----------
    f : OneStepMap
    X, U : (N+1, nx), (N, nu)
        The curve; its steps need not obey the map.
    Q, R, Qf
        Weights as in `dlqr`; Qf is Q unless given.
    S : (ndx, nu) or (N, ndx, nu), optional
        Cross weight.
    q, r : (ndx,) or (N, ndx); (nu,) or (N, nu), optional
    qf : (ndx,), optional
        Linear costs.
    k0 : int
        Sample of the curve's first row.

    Returns
    -------
    Tracking

    Raises
    ------
    ValueError
        Wrong shapes, names or weights.
    OptimizationError
        If the problem is not convex; names the sample.
    StepError
        If the map has no step from a point of the curve.
    """
    U = check_rows(U, "curve of inputs", f.input_names)
    N, n, m = len(U), f.ndx, f.nu
    X = check_array(X, (N + 1, f.nx), "curve of states", f.state_names)
    Q = error_weights(f, Q, "Q", X)
    Qf = end_weight(f, Q, Qf, X)
    R = input_weight(f, R, "R", definite=True)
    S = _rows(S, (n, m), N, "S")
    q, r = _rows(q, (n,), N, "q"), _rows(r, (m,), N, "r")
    qf = np.zeros(n) if qf is None else check_array(qf, (n,), "qf", f.space.error_names)

    A, B = f.derivatives.linearize(f.steps_at(X[:-1], U, k0=k0))
    ends = np.array([f.step(x, u, k0 + k) for k, (x, u) in enumerate(zip(X, U, strict=False))])
    defects = f.difference(X[1:], ends)
    # the augmented state is (z, 1): linear terms and defects become blocks of larger matrices
    A1, B1 = np.zeros((N, n + 1, n + 1)), np.zeros((N, n + 1, m))
    A1[:, :n, :n], A1[:, :n, n], A1[:, n, n], B1[:, :n] = A, defects, 1.0, B
    Q1, S1 = np.zeros((N, n + 1, n + 1)), np.zeros((N, n + 1, m))
    Q1[:, :n, :n], Q1[:, :n, n], Q1[:, n, :n] = along(Q), q / 2, q / 2
    S1[:, :n], S1[:, n] = S, r / 2
    Q1f = np.zeros((n + 1, n + 1))
    Q1f[:n, :n], Q1f[:n, n], Q1f[n, :n] = Qf, qf / 2, qf / 2
    K, P = riccati(A1, B1, Q1, R, Q1f, S1)
    return Tracking(f, X, U, K[..., :n], K[..., n], P[:, :n, :n], 2 * P[:, :n, n], P[:, n, n], defects, k0)


def _rows(value: Any, shape: tuple[int, ...], N: int, what: str) -> np.ndarray:
    """Return a cost term as an array with one entry for each of the N steps.
    The value is given once for all steps, or for each step.
    """
    if value is None:
        return np.zeros((N, *shape))
    array = np.asarray(value, float)
    if array.shape == shape:
        array = np.broadcast_to(array, (N, *shape))
    return check_array(array, (N, *shape), what)
