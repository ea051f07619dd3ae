"""Regulators with cross and linear terms, about curves that need not be trajectories."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from vioc.checks import check_array, check_rows
from vioc.control.about import about_of, check_trajectory
from vioc.control.feedback.law import StateLaw
from vioc.control.feedback.manifold import restrict, tangent_bases, tangent_basis
from vioc.control.lqr import (
    FIXED_POINT,
    Regulator,
    SteadyRegulator,
    along,
    refuse_disregard,
    state_costs,
)
from vioc.control.riccati import riccati
from vioc.control.steady import steady_gain
from vioc.control.weights import error_names, error_weights, input_weight
from vioc.maps.protocol import OneStepMap
from vioc.maps.trajectory import Trajectory


@dataclass(frozen=True)
class Tracking:
    """The regulator about a curve: u = u_d - K z - d with z = difference(x_d, x).

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
        """The law without its costs, for a `ClosedLoop`."""
        return StateLaw(self.map, self.X[:-1], self.U - self.d, self.K, k0=self.k0)

    def cost_to_go(self, x: Any, k: int = 0) -> float:
        """What the linear model promises from state x (nx,) at the k-th sample of the curve."""
        z = self.map.difference(self.X[k], self.map.check_state(x))
        return float(z @ self.P[k] @ z + self.p[k] @ z + self.c[k])

    def rollout(self, x0: Any) -> Trajectory:
        """The closed loop from x0 (nx,) over the curve's N steps."""
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
    """The time-varying regulator about a curve, with cross and linear terms.

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
        Shapes, names, weights.
    OptimizationError
        If the problem is not convex; names the sample.
    StepError
        If the map has no step from a point of the curve.
    """
    U = check_rows(U, "curve of inputs", f.input_names)
    N, n, m = len(U), f.ndx, f.nu
    X = check_array(X, (N + 1, f.nx), "curve of states", f.state_names)
    Q, Qf = state_costs(f, Q, Qf, X)
    R = input_weight(f, R, "R", definite=True)
    S = _rows(S, (n, m), N, "S")
    q, r = _rows(q, (n,), N, "q"), _rows(r, (m,), N, "r")
    qf = np.zeros(n) if qf is None else check_array(qf, (n,), "qf", error_names(f))

    A, B = f.linearize_points(X[:-1], U, k0=k0)
    ends = np.array([f.step(x, u, k0 + k) for k, (x, u) in enumerate(zip(X, U, strict=False))])
    defects = f.difference(X[1:], ends)
    # the state (z, 1): linear terms and defects are entries of larger matrices
    A1, B1 = np.zeros((N, n + 1, n + 1)), np.zeros((N, n + 1, m))
    A1[:, :n, :n], A1[:, :n, n], A1[:, n, n], B1[:, :n] = A, defects, 1.0, B
    Q1, S1 = np.zeros((N, n + 1, n + 1)), np.zeros((N, n + 1, m))
    Q1[:, :n, :n], Q1[:, :n, n], Q1[:, n, :n] = along(Q), q / 2, q / 2
    S1[:, :n], S1[:, n] = S, r / 2
    Q1f = np.zeros((n + 1, n + 1))
    Q1f[:n, :n], Q1f[:n, n], Q1f[n, :n] = Qf, qf / 2, qf / 2
    K, P = riccati(A1, B1, Q1, R, Q1f, S1)
    return Tracking(f, X, U, K[..., :n], K[..., n], P[:, :n, :n], 2 * P[:, :n, n], P[:, n, n], defects, k0)


def regulator(
    f: OneStepMap,
    about: Any,
    Q: Any,
    R: Any,
    Qf: Any = None,
    *,
    S: Any = None,
    on_manifold: bool = False,
    disregard: str | Iterable[str] = (),
) -> Regulator | SteadyRegulator:
    """`dlqr` with a cross weight, on the tangent space of the constraints if asked.

    Parameters
    ----------
    f : OneStepMap
    about : as in `dlqr`
    Q, R, Qf
        As in `dlqr`.
    S : (ndx, nu), optional
        Cross weight: the cost has 2 z'Sv.
    on_manifold : bool
        Weigh and feed back only what constraints let move, without the momentum that their next impulse
        absorbs: gains K_red T' (`tangent_bases` with the idle directions, whose weights fall on the inputs
        that write them: a weight on ``v.NAME`` is one on the change of ``rho.NAME``). `P` is then
        T P_red T', and `poles` are the r of the reduced loop (a 0 for each idle direction is left out,
        unless S feeds it back).

    Returns
    -------
    Regulator, or for an equilibrium SteadyRegulator

    Raises
    ------
    ValueError, OptimizationError
        As `dlqr`.
    """
    R = input_weight(f, R, "R", definite=True)
    S = np.zeros((f.ndx, f.nu)) if S is None else check_array(S, (f.ndx, f.nu), "S", f.input_names)
    about = about_of(f, about)
    if isinstance(about, Trajectory):
        refuse_disregard(disregard)
        f = check_trajectory(f, about)
        Q, Qf = state_costs(f, Q, Qf, about.x)
        n = len(about)
        T = tangent_bases(f, about, idle=True) if on_manifold else np.tile(np.eye(f.ndx), (n + 1, 1, 1))
        Tt = np.swapaxes(T, 1, 2)
        lin = f.linearize_trajectory(about)
        A, B = restrict(lin.A, lin.B, T)
        K, P = riccati(A, B, Tt[:-1] @ along(Q) @ T[:-1], R, Tt[-1] @ Qf @ T[-1], Tt[:-1] @ S)
        return Regulator(f, about, K @ Tt[:-1], T @ P @ Tt, Q, R, Qf)
    if Qf is not None:
        raise ValueError("Qf: an equilibrium is held without end; give Qf with a trajectory")
    x, u = about
    Q = error_weights(f, Q, "Q", x[None]).reshape(f.ndx, f.ndx)
    return _steady(f, x, u, Q, R, S, on_manifold, disregard)


def _steady(f, x, u, Q, R, S, on_manifold: bool, disregard: Any) -> SteadyRegulator:
    u = f.check_input(u, x)
    moved = np.abs(f.difference(x, f.step(x, u))).max()
    if not moved <= FIXED_POINT * (1 + np.abs(x).max()):
        raise ValueError(f"(x, u) is not an equilibrium: one step moves it by {moved:.3g}; see equilibrium()")
    T, r = np.eye(f.ndx), f.ndx
    if on_manifold:
        T, r = tangent_basis(f, x, idle=True), tangent_basis(f, x).shape[1]
    lin = f.linearize(x, u)
    A, B = restrict(lin.A, lin.B, T)
    reduced = slice(None) if (S.T @ T[:, r:]).any() else slice(r)  # what is idle is at 0
    found = steady_gain(f, x, A, B, T.T @ Q @ T, R, T.T @ S, T=T, disregard=disregard, counted=reduced)
    K, P = found.K @ T.T, T @ found.P @ T.T
    Q = T @ found.Q @ T.T if found.disregarded else Q
    return SteadyRegulator(f, x, u, K, P, Q, R, found.poles, found.disregarded)


def _rows(value: Any, shape: tuple[int, ...], N: int, what: str) -> np.ndarray:
    """A term given once or for every step, for every step."""
    if value is None:
        return np.zeros((N, *shape))
    array = np.asarray(value, float)
    if array.shape == shape:
        array = np.broadcast_to(array, (N, *shape))
    return check_array(array, (N, *shape), what)
