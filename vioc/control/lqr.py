"""Discrete linear-quadratic regulators about trajectories and equilibria, [S] (36), (37)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.linalg import solve_discrete_are

from vioc.checks import check_array
from vioc.control.analysis.rank import stuck_modes
from vioc.control.weights import error_names, input_weight, state_weight
from vioc.dynamics.integrators.base import OneStepMap
from vioc.dynamics.trajectory import Trajectory
from vioc.errors import OptimizationError

SETTLES = 1 - 1e-7  # poles nearer to the circle are rounding of what does not settle at all
FIXED_POINT = 1e-8  # how far an equilibrium may move in a step, relative to 1 + |x|


def riccati(A: Any, B: Any, Q: Any, R: Any, Qf: Any, S: Any = None) -> tuple[np.ndarray, np.ndarray]:
    """Gains and cost-to-go of the time-varying problem

        minimize  sum over k < N of x'Qx + u'Ru + 2 x'Su  +  x_N' Qf x_N,   x+ = A x + B u.

    Parameters
    ----------
    A, B : (N, n, n), (N, n, m)
    Q, R : (N, n, n) or (n, n); (N, m, m) or (m, m)
    Qf : (n, n)
    S : (N, n, m) or (n, m), optional
        Cross weight; default 0.

    Returns
    -------
    K : (N, m, n)
        u_k = -K_k x_k, with K = (R + B'PB)^-1 (B'PA + S'); P belongs to the next sample.
    P : (N+1, n, n)
        x_k' P_k x_k is the least cost from sample k; P_k = Q + A'PA - (A'PB + S) K, P_N = Qf.

    Raises
    ------
    ValueError
        If shapes do not fit.
    OptimizationError
        If R + B'PB is not positive definite; names k.
    """
    A, B = np.asarray(A, float), np.asarray(B, float)
    if A.ndim != 3 or B.ndim != 3 or A.shape[1] != A.shape[2] or A.shape[:2] != B.shape[:2]:
        raise ValueError(f"expected A (N, n, n) and B (N, n, m), got {A.shape} and {B.shape}")
    N, n, m = B.shape
    if m == 0:
        raise ValueError("a regulator needs at least one input, the map has none")
    blocks = [("Q", Q, (n, n)), ("R", R, (m, m)), ("S", np.zeros((n, m)) if S is None else S, (n, m))]
    full = []
    for what, value, shape in blocks:
        value = np.asarray(value, float)
        if value.shape not in (shape, (N, *shape)):
            raise ValueError(f"{what}: expected shape {shape} or {(N, *shape)}, got {value.shape}")
        full.append(np.broadcast_to(value, (N, *shape)))
    Qf = check_array(Qf, (n, n), "Qf")
    W = np.concatenate([A, B], axis=2)
    M = np.empty((N, n + m, n + m))
    M[:, :n, :n], M[:, n:, n:], M[:, :n, n:] = full
    M[:, n:, :n] = np.swapaxes(full[2], 1, 2)
    return _sweep(W, M, Qf)


def affine_riccati(A, B, Q, R, S, q, r, Qf, qf) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """`riccati` with linear terms: the problem of a Newton step.

        minimize  sum over k < N of q'x + r'u + 1/2 (x'Qx + u'Ru + 2 x'Su)  +  qf'x_N + 1/2 x_N' Qf x_N

    Parameters
    ----------
    A, B, Q, R, S : (N, n, n), (N, n, m), (N, n, n), (N, m, m), (N, n, m)
    q, r : (N, n), (N, m)
    Qf, qf : (n, n), (n,)

    Returns
    -------
    K, d : (N, m, n), (N, m)
        u_k = -K_k x_k - d_k.
    P, p : (N+1, n, n), (N+1, n)
        The cost to go is 1/2 x'Px + p'x + const.

    Raises
    ------
    OptimizationError
        If R + B'PB is not positive definite; names k.

    Notes
    -----
    The linear terms ride along as a constant state 1 between x and u, so that both problems are one
    sweep: P is bordered by p, K by d.
    """
    N, n, m = B.shape
    W = np.zeros((N, n + 1, n + 1 + m))
    W[:, :n, :n], W[:, :n, n + 1 :], W[:, n, n] = A, B, 1.0
    M = np.zeros((N, n + 1 + m, n + 1 + m))
    M[:, :n, :n], M[:, n + 1 :, n + 1 :], M[:, :n, n + 1 :] = Q, R, S
    M[:, n + 1 :, :n] = np.swapaxes(S, 1, 2)
    M[:, :n, n] = M[:, n, :n] = q
    M[:, n + 1 :, n] = M[:, n, n + 1 :] = r
    last = np.zeros((n + 1, n + 1))
    last[:n, :n], last[:n, n], last[n, :n] = Qf, qf, qf
    K, P = _sweep(W, M, last)
    return K[..., :n], K[..., n], P[:, :n, :n], P[:, :n, n]


def _sweep(W: np.ndarray, M: np.ndarray, last: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Riccati sweep for x+ = W (x, u) and the cost 1/2 (x, u)' M (x, u)."""
    N, n, nm = W.shape
    scalar = nm == n + 1
    K, P = np.empty((N, nm - n, n)), np.empty((N + 1, n, n))
    P[N] = Pk = last
    for k in range(N - 1, -1, -1):
        Wk = W[k]
        H = Wk.T.dot(Pk.dot(Wk))  # becomes the Hessian of the cost to go by (x, u)
        H += M[k]
        Hux, Huu = H[n:, :n], H[n:, n:]
        if scalar:
            g = Huu[0, 0]
            failed = not g > 0  # also where it is not a number
            Kk = Hux / g if not failed else Hux
        else:
            # numpy throughout: scipy's LAPACK has threads of its own, and the two pools stall each other
            try:
                np.linalg.cholesky(Huu)
                Kk, failed = np.linalg.solve(Huu, Hux), False
            except np.linalg.LinAlgError:
                Kk, failed = Hux, True
        if failed:
            raise OptimizationError(
                f"R + B'PB is not positive definite at k = {k} (smallest eigenvalue "
                f"{np.linalg.eigvalsh(Huu)[0] if np.isfinite(Huu).all() else np.nan:g}): "
                "the problem is not convex there; raise R, or use positive semi-definite weights"
            )
        K[k] = Kk
        Pk = H[:n, :n] - Hux.T.dot(Kk)
        Pk = 0.5 * (Pk + Pk.T)  # rounding would grow over long horizons
        P[k] = Pk
    return K, P


@dataclass(frozen=True)
class SteadyRegulator:
    """Feedback that holds an equilibrium: u = u_d - K difference(x_d, x).

    Attributes
    ----------
    map : OneStepMap
    x, u : (nx,), (nu,)
        The equilibrium.
    K, P : (nu, ndx), (ndx, ndx)
        Gain and cost-to-go.
    Q, R : (ndx, ndx), (nu, nu)
    poles : (ndx,), complex
        Eigenvalues of A - B K, all inside the unit circle.
    """

    map: OneStepMap = field(repr=False)
    x: np.ndarray
    u: np.ndarray
    K: np.ndarray
    P: np.ndarray = field(repr=False)
    Q: np.ndarray = field(repr=False)
    R: np.ndarray = field(repr=False)
    poles: np.ndarray = field(repr=False)

    def rollout(self, x0: Any, steps: int) -> Trajectory:
        """Closed loop from x0 (nx,) for `steps` steps; `u` of the result is what was applied.

        Raises
        ------
        StepError
            Where the map has no next state.
        """
        if steps < 1:
            raise ValueError(f"steps: expected at least 1, got {steps}")
        X, U, K = (np.tile(a, (steps, *(1,) * a.ndim)) for a in (self.x, self.u, self.K))
        return self.map.track(x0, X, U, K)

    def __repr__(self) -> str:
        x = ", ".join(f"{n} = {v:.4g}" for n, v in zip(self.map.state_names, self.x, strict=True))
        return (
            f"SteadyRegulator(about {x}; largest pole {np.abs(self.poles).max():.6g}; "
            f"K: {self.K.shape[0]} x {self.K.shape[1]})"
        )


@dataclass(frozen=True)
class Regulator:
    """Feedback that follows a trajectory, [S] (37): u_k = u_d[k] - K_k difference(x_d[k], x_k).

    Attributes
    ----------
    map : OneStepMap
    reference : Trajectory
        x_d, u_d over N steps.
    K, P : (N, nu, ndx), (N+1, ndx, ndx)
        Gains and cost-to-go.
    Q, R, Qf : (ndx, ndx), (nu, nu), (ndx, ndx)
    end : SteadyRegulator or None
        What takes over after N steps; see `hold`.
    """

    map: OneStepMap
    reference: Trajectory
    K: np.ndarray
    P: np.ndarray
    Q: np.ndarray
    R: np.ndarray
    Qf: np.ndarray
    end: SteadyRegulator | None = None

    def rollout(self, x0: Any, steps: int | None = None) -> Trajectory:
        """Closed loop from x0 (nx,), over the horizon or `steps` steps.

        Past the horizon the end of the reference is held, see `hold`.

        Raises
        ------
        ValueError
            If `steps` goes past the horizon and the reference does not end in an equilibrium.
        StepError
            Where the map has no next state.
        """
        n = len(self.reference)
        steps = n if steps is None else int(steps)
        if steps < 1:
            raise ValueError(f"steps: expected at least 1, got {steps}")
        X, U, K = self.reference.x[:n][:steps], self.reference.u[:steps], self.K[:steps]
        if steps > n:
            end = (self if self.end else self.hold()).end
            assert end is not None
            more = [np.tile(a, (steps - n, *(1,) * a.ndim)) for a in (end.x, end.u, end.K)]
            X, U, K = (np.concatenate(pair) for pair in zip((X, U, K), more, strict=True))
        return self.map.track(x0, X, U, K, k0=self.reference.k0)

    def hold(self, x: Any = None, u: Any = None) -> Regulator:
        """The same regulator that after its horizon holds an equilibrium with a steady-state gain.

        Parameters
        ----------
        x : (nx,), optional
            Default: the last state of the reference.
        u : (nu,), optional
            Default: solved for, from the last input of the reference.

        Raises
        ------
        ValueError
            If (x, u) is not an equilibrium.
        OptimizationError
            If it cannot be stabilized.
        """
        x = self.reference.x[-1] if x is None else self.map.check_state(x)
        if u is None:
            u = _holding_input(self.map, x, self.reference.u[-1])
        try:
            end = dlqr_steady(self.map, x, u, self.Q, self.R)
        except ValueError as error:
            raise ValueError(
                f"cannot hold the end of the reference: {error}; give the equilibrium to hold, "
                "regulator.hold(x, u)"
            ) from None
        return replace(self, end=end)

    def __repr__(self) -> str:
        end = "an equilibrium" if self.end else "nothing"
        return (
            f"Regulator({len(self.K)} gains {self.K.shape[1]} x {self.K.shape[2]} about {self.reference!r}; "
            f"then holds {end})"
        )


def dlqr(f: OneStepMap, about: Any, Q: Any, R: Any, Qf: Any = None) -> Regulator | SteadyRegulator:
    """The linear-quadratic regulator about a trajectory, [S] (36), or an equilibrium.

    It minimizes the sum of z'Qz + v'Rv, plus z_N' Qf z_N, for the deviations z = difference(x_d, x),
    v = u - u_d under the exact linearization of the map.

    Parameters
    ----------
    f : OneStepMap
    about : Trajectory, or an equilibrium
        A trajectory of the map, or (x, u), or an object with `x` (nx,) and `u` (nu,).
    Q, Qf : float, (ndx,), (ndx, ndx) or dict of str to float
        Weights >= 0 on the state's error, by state name in a dict. Qf is Q unless given.
    R : float, (nu,), (nu, nu) or dict of str to float
        Weights > 0 on the input, by input name in a dict.

    Returns
    -------
    Regulator, or for an equilibrium SteadyRegulator

    Raises
    ------
    ValueError
        Shapes, names, weights that are not (semi-)definite, not an equilibrium.
    OptimizationError
        If an equilibrium cannot be stabilized.
    """
    if not isinstance(about, Trajectory):
        if hasattr(about, "x") and hasattr(about, "u"):
            about = about.x, about.u
        if not isinstance(about, tuple) or len(about) != 2:
            raise ValueError(f"expected a trajectory or an equilibrium (x, u), got {about!r}")
        x, u = about
        if Qf is not None:
            raise ValueError("Qf: an equilibrium is held without end; give Qf with a trajectory")
        return dlqr_steady(f, x, u, Q, R)
    if about.map.state_names != f.state_names or about.map.input_names != f.input_names:
        raise ValueError(
            f"the trajectory's states {', '.join(about.map.state_names)} and inputs "
            f"{', '.join(about.map.input_names)} are not those of the map"
        )
    h = about.step_lengths
    if not np.allclose(h, f.dt, rtol=1e-9):
        if not np.allclose(h, h[0], rtol=1e-9):
            raise ValueError("the trajectory's steps are not equal; a closed loop runs at one step length")
        f = f.with_dt(float(h[0]))
    Q, R = _weights(f, Q, R)
    Qf = Q if Qf is None else state_weight(f, Qf, "Qf")
    A, B = f.linearize_trajectory(about)
    K, P = riccati(A, B, Q, R, Qf)
    return Regulator(f, about, K, P, Q, R, Qf)


def dlqr_steady(
    f: OneStepMap, x: Any, u: Any, Q: Any, R: Any, *, tolerance: float = FIXED_POINT
) -> SteadyRegulator:
    """The infinite-horizon regulator about an equilibrium f(x, u) = x.

    Parameters
    ----------
    f : OneStepMap
    x, u : (nx,), (nu,)
        `u` None is zero.
    Q, R
        As in `dlqr`.
    tolerance : float
        How far (x, u) may move in a step, relative to 1 + |x|.

    Raises
    ------
    ValueError
        If (x, u) is not an equilibrium, or a weight is wrong.
    OptimizationError
        If the Riccati equation has no stabilizing solution; names the modes that cannot be moved.
    """
    x = f.check_state(x)
    u = f.check_input(u, x)
    Q, R = _weights(f, Q, R)
    moved = np.abs(f.difference(x, f.step(x, u)))
    if not moved.max() <= tolerance * (1 + np.abs(x).max()):
        worst = int(np.argmax(moved))
        raise ValueError(
            f"(x, u) is not an equilibrium: one step moves {error_names(f)[worst]} by {moved[worst]:.3g}"
        )
    A, B = f.linearize(x, u)
    try:
        P = solve_discrete_are(A, B, Q, R)
        K = np.linalg.solve(R + B.T @ P @ B, B.T @ P @ A)
        poles = np.linalg.eigvals(A - B @ K)
        if not np.abs(poles).max() < SETTLES:
            raise np.linalg.LinAlgError(f"a closed-loop pole is {np.abs(poles).max():.6g}")
    except np.linalg.LinAlgError as error:
        stuck = stuck_modes(A, B, error_names(f))
        if stuck:
            advice = f"the inputs cannot move the eigenvalues {stuck}; add an input that acts on them"
        else:
            advice = "weigh in Q every mode on the unit circle (a drifting coordinate, an undamped swing)"
        raise OptimizationError(f"no stabilizing regulator at this equilibrium ({error}): {advice}") from None
    return SteadyRegulator(f, x, u, K, P, Q, R, poles)


def _weights(f: OneStepMap, Q: Any, R: Any) -> tuple[np.ndarray, np.ndarray]:
    if f.nu == 0:
        raise ValueError("a regulator needs at least one input, the map has none")
    return state_weight(f, Q, "Q"), input_weight(f, R, "R", definite=True)


def _holding_input(f: OneStepMap, x: np.ndarray, u: np.ndarray) -> np.ndarray:
    """The input that moves the map least at x: Gauss-Newton on difference(x, f(x, u))."""
    for _ in range(20):
        change = np.linalg.lstsq(f.linearize(x, u).B, f.difference(x, f.step(x, u)), rcond=None)[0]
        u = u - change
        if np.abs(change).max() <= 1e-12 * (1 + np.abs(u).max()):
            break
    return u
