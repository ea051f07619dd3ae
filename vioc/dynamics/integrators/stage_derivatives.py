"""Exact first and second derivatives of Runge-Kutta steps along trajectories.

Every stage solves R_i(y_i, w_i) = 0 with w_i = (a_i, lambda_i) and y_i = (Q_i, V_i, forces, parameters).
y_i is linear in the w_j and in the arguments of the step, s = (x, u, parameters). CasADi differentiates R
once and twice. The chain rule through the stages runs on stacked matrices: forward for the first derivatives,
backward (an adjoint) for the contracted second ones, as in [S] (31). A jump of the velocities at the step's
start is one more such equation. Maths: docs/maths/continuous.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import casadi as ca
import numpy as np

from vioc.compile.evaluate import Evaluator
from vioc.errors import StepError
from vioc.maps.derivatives import Linearization, SecondOrder, Steps, solved

if TYPE_CHECKING:
    from vioc.dynamics.integrators.runge_kutta import RungeKutta


@dataclass(frozen=True)
class SolvedRows:
    """Derivatives of the solution w of an equation R(y, w) = 0, for N steps.
    The equation is that of one Runge-Kutta stage, or of the velocity jump at a step's start. The solution w
    has accelerations or velocity jumps, and multipliers; y are the arguments of the equation.

    Attributes
    ----------
    args : list of arrays
        Arguments at which the derivatives of R are evaluated.
    y_s, w_s : (N, ny, ns), (N, nd + nm, ns)
        Derivatives of y and w by the arguments s of the step.
    R_y : (N, nd + nm, ny)
        Derivative of R by y at fixed w.
    S : (N, nd + nm, nd + nm)
        Derivative of R by w, also through y if the stage is implicit.
    """

    args: list[np.ndarray]
    y_s: np.ndarray
    w_s: np.ndarray
    R_y: np.ndarray
    S: np.ndarray


@dataclass(frozen=True)
class StageFirstOrder:
    """First derivatives of N Runge-Kutta steps, with intermediate results for second derivatives."""

    linearization: Linearization
    h: np.ndarray
    k: np.ndarray
    jump: SolvedRows | None
    stages: list[SolvedRows]


class StageDerivatives:
    """First and second derivatives of the steps of a Runge-Kutta integrator."""

    def __init__(self, f: RungeKutta):
        self.f = f
        g = f.lagrangian.graph
        R, a, lam = f.stage_rows
        y, w = ca.vertcat(g.q_vector, g.v_vector, g.u_vector, g.parameters), ca.vertcat(a, lam)
        args = [*f.lagrangian.state_args, a, lam]
        self._stage, self._stage_second = _derivatives("stage", R, y, w, args)
        R, dv, prescribed, impulse = _jump_rows(f)
        y, w = ca.vertcat(g.q_vector, prescribed, g.parameters), ca.vertcat(dv, impulse)
        args = [g.q_vector, prescribed, g.parameters, dv, impulse]
        self._jump, self._jump_second = _derivatives("jump", R, y, w, args)

    def first(self, steps: Steps, theta: np.ndarray, jump: np.ndarray, stages: np.ndarray) -> StageFirstOrder:
        """Return the first derivatives of N Runge-Kutta steps.
        They are derivatives with respect to state, input and parameters.

        Parameters
        ----------
        steps : Steps
        theta : (np,)
        jump : (N, nd + nm)
        stages : (s, N, nd + nm)
            Results of `RungeKutta.full_step`.

        Raises
        ------
        StepError
            If an equation has no derivative.
        """
        f, tab = self.f, self.f.tableau
        X, U, t, h, k = steps.x0, steps.u, steps.t, steps.h, steps.k
        nq, nd, nk, nx = f.nq, f.nd, f.nk, f.nx
        nf, np_, n = len(f.system.inputs), len(theta), len(U)
        ns = nx + f.nu + np_
        H = h[:, None, None]
        q0, v0 = X[:, :nq], X[:, nq:].copy()
        forces, rho = U[:, :nf], U[:, nf:]
        cf, crho, ct = slice(nx, nx + nf), slice(nx + nf, nx + nf + nk), slice(nx + nf + nk, ns)

        identity = np.broadcast_to(np.eye(ns), (n, ns, ns))
        q0_s, forces_s, theta_s = identity[:, :nq], identity[:, cf], identity[:, ct]
        v0_s = identity[:, nq:nx].copy()
        solved_jump = None
        mult_s = np.zeros((n, f.nm, ns))
        if nk:
            rates = (rho - q0[:, nd:]) / h[:, None]
            rates_s = (identity[:, crho] - q0_s[:, nd:]) / H
            args = [q0, rates - v0[:, nd:], theta, jump[:, :nd], jump[:, nd:]]
            y_s = np.concatenate([q0_s, rates_s - v0_s[:, nd:], theta_s], axis=1)
            R_y, S = self._jump(*args)
            solved_jump = SolvedRows(args, y_s, _solve(S, -R_y @ y_s, k), R_y, S)
            v0[:, :nd] += jump[:, :nd]
            v0[:, nd:], v0_s[:, nd:] = rates, rates_s
            v0_s[:, :nd] += solved_jump.w_s[:, :nd]
            mult_s -= solved_jump.w_s[:, nd:]

        # the same sums for values and for their derivatives
        q_next, v_next = q0_s + H * v0_s, v0_s.copy()
        solutions: list[SolvedRows] = []
        for i in range(tab.stages):
            Q, V = q0 + tab.c[i] * h[:, None] * v0, v0.copy()
            Q_s, V_s = q0_s + tab.c[i] * H * v0_s, v0_s.copy()
            for j in range(i + 1):
                Aq, A = tab.Aq[i][j] * H**2, tab.A[i][j] * H
                Q[:, :nd] += Aq[..., 0] * stages[j, :, :nd]
                V[:, :nd] += A[..., 0] * stages[j, :, :nd]
                if j < i:
                    Q_s[:, :nd] += Aq * solutions[j].w_s[:, :nd]
                    V_s[:, :nd] += A * solutions[j].w_s[:, :nd]
            w = stages[i]
            args = [Q, V, forces, (t + tab.c[i] * h)[:, None], theta, w[:, :nd], w[:, nd:]]
            R_y, S = self._stage(*args)
            S[:, :, :nd] += Aq * R_y[:, :, :nd] + A * R_y[:, :, nq : nq + nd]  # zero where explicit
            y_s = np.concatenate([Q_s, V_s, forces_s, theta_s], axis=1)
            w_s = _solve(S, -R_y @ y_s, k)
            y_s[:, :nd] += Aq * w_s[:, :nd]
            y_s[:, nq : nq + nd] += A * w_s[:, :nd]
            solutions.append(SolvedRows(args, y_s, w_s, R_y, S))
            q_next[:, :nd] += tab.bq[i] * H**2 * w_s[:, :nd]
            v_next[:, :nd] += tab.b[i] * H * w_s[:, :nd]
            mult_s -= tab.b[i] * H * w_s[:, nd:]
        if nk:
            q_next[:, nd:] = identity[:, crho]
        x_s = np.concatenate([q_next, v_next], axis=1)
        return StageFirstOrder(Linearization.of(x_s, mult_s, f.nu), h, k, solved_jump, solutions)

    def second(self, first: StageFirstOrder, Z: np.ndarray, zeta: np.ndarray) -> SecondOrder:
        """Return second derivatives of N Runge-Kutta steps, contracted with covectors.
        They are the Hessians of z . x_next + zeta . multipliers for each step, where z and zeta are rows of
        the arrays Z and `zeta` of covectors.

        No third-order tensor is formed. The stages are visited from the last to the first. The covectors z,
        zeta and the later stages determine a weight omega_i of the solution w_i of stage i. The adjoint eta_i
        solves S_i' eta_i = -omega_i, and the stage adds (y, w)_s' D^2(eta_i . R_i) (y, w)_s to the result,
        with the derivatives (y, w)_s of its arguments and solution with respect to state, input and
        parameters.
        """
        f, tab = self.f, self.f.tableau
        nq, nd, nx = f.nq, f.nd, f.nx
        h = first.h[:, None]
        z_q, z_v = Z[:, :nd], Z[:, nq : nq + nd]
        weights = [
            np.concatenate([h**2 * bq * z_q + h * b * z_v, -h * b * zeta], axis=1)
            for b, bq in zip(tab.b, tab.bq, strict=True)
        ]
        on_v0 = h * z_q + z_v
        ns = nx + f.nu + len(f.parameters)
        result = np.zeros((len(Z), ns, ns))
        for i in reversed(range(tab.stages)):
            rows = first.stages[i]
            eta = _solve(np.swapaxes(rows.S, 1, 2), -weights[i][..., None], first.k)[..., 0]
            by_y = np.einsum("nij,ni->nj", rows.R_y, eta)
            by_Q, by_V = by_y[:, :nd], by_y[:, nq : nq + nd]
            for j in range(i):
                weights[j][:, :nd] += h**2 * tab.Aq[i][j] * by_Q + h * tab.A[i][j] * by_V
            on_v0 = on_v0 + tab.c[i] * h * by_Q + by_V
            result += _congruence(rows, self._stage_second(*rows.args, eta)[0])
        if first.jump is not None:
            omega = np.concatenate([on_v0, -zeta], axis=1)
            eta = _solve(np.swapaxes(first.jump.S, 1, 2), -omega[..., None], first.k)[..., 0]
            result += _congruence(first.jump, self._jump_second(*first.jump.args, eta)[0])
        return SecondOrder.of(result, nx, f.nu)


def _derivatives(name: str, R: ca.SX, y: ca.SX, w: ca.SX, args: list[ca.SX]):
    """Return evaluators of the first and second derivatives of R(y, w).
    They are the Jacobians of R with respect to y and w, and the Hessian of eta . R with respect to (y, w),
    for weights eta.
    """

    def hessian() -> ca.Function:
        eta = ca.SX.sym("eta", R.numel())
        H = ca.hessian(ca.dot(eta, R), ca.vertcat(y, w))[0]
        return ca.Function(f"{name}_second", [*args, eta], [H])

    jacobians = [ca.jacobian(R, y), ca.jacobian(R, w)]
    return Evaluator(ca.Function(f"{name}_first", args, jacobians)), Evaluator(hessian)


def _congruence(rows: SolvedRows, H: np.ndarray) -> np.ndarray:
    y_w = np.concatenate([rows.y_s, rows.w_s], axis=1)
    return np.swapaxes(y_w, 1, 2) @ H @ y_w


def _solve(S: np.ndarray, rhs: np.ndarray, k: np.ndarray) -> np.ndarray:
    x = solved(S, rhs)
    bad = np.flatnonzero(~np.isfinite(x).all(axis=(1, 2)))
    if len(bad):
        raise StepError(
            f"step {k[bad[0]]} cannot be linearized: the mass matrix or Dh M^-1 Dh' is singular at "
            "one of its stages; the coordinates or the constraints are singular there",
            int(k[bad[0]]),
            float("nan"),
            "singular M",
        )
    return x


def _jump_rows(f: RungeKutta) -> tuple[ca.SX, ca.SX, ca.SX, ca.SX]:
    """Return the equations (nd + nm,) of a velocity jump at a step's start.
    The other results are the symbols of the jumps of dynamic and prescribed velocities, and of the constraint
    impulses.

    The jump dv due to impulses at a fixed configuration satisfies (M dv)_d = Dh_d' impulse, Dh dv = 0, for
    mass matrix M and constraint Jacobian Dh.
    """
    lag, impulse = f.lagrangian, f.continuous.multipliers
    mine, prescribed = ca.SX.sym("dv", f.nd), ca.SX.sym("dv_k", f.nk)
    full = ca.vertcat(mine, prescribed)
    balance = (lag.M @ full)[: f.nd]
    if f.nm:
        balance -= lag.Dh[:, : f.nd].T @ impulse
    return ca.vertcat(balance, lag.Dh @ full), mine, prescribed, impulse
