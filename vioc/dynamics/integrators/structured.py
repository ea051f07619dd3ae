"""Exact first and second derivatives of a midpoint step ([S] IV-VI), for whole trajectories at once.

The Lagrangian's second (third) derivatives at the midpoint come from CasADi, mapped over the steps; the
block algebra of [S] (10)-(32) runs on stacks of matrices in LAPACK and BLAS. Everything follows from
two implicit equations and one explicit one,

    r(s, z) = 0,  h(q_k+1) = 0,  p_k+1 = P(s, z),     z = (q_k+1 dynamic, lambda_k),

where s = (x_k, u_k, parameters) is what a step depends on. Maths: docs/maths/linearization.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import casadi as ca
import numpy as np

from vioc.dynamics.evaluate import Evaluator
from vioc.dynamics.integrators.base import Linearization, SecondOrder
from vioc.dynamics.integrators.newton import singular_linearization

if TYPE_CHECKING:
    from vioc.dynamics.integrators.midpoint import MidpointVI


SINGULAR_M = 1e12  # dq/dp over dt M^-1 beyond which M_k+1 counts as singular
SINGULAR_CONSTRAINTS = 1e5  # constraint impulse per impulse beyond which Dh M^-1 Dh' does


@dataclass(frozen=True)
class FirstOrder:
    """First derivatives along N steps, with what the second order needs of them.

    Attributes
    ----------
    linearization : Linearization
    args : list of arrays
        Midpoint arguments (q_m, v, u, t, parameters).
    q0, q1, multipliers, h
    y_s : (N, 2 nq + nf + np, ns)
        Derivatives of (q_m, v, forces, parameters) by s.
    q0_s, q1_s, lam_s : (N, nq, ns), (N, nq, ns), (N, nm, ns)
    momentum_z : (N, nd, nd)
        D2 D2 L_d + D2 F+.
    saddle : (N, nd + nm, nd + nm)
        Derivative of (r, h) by z.
    """

    linearization: Linearization
    args: list[np.ndarray]
    q0: np.ndarray
    q1: np.ndarray
    multipliers: np.ndarray
    h: np.ndarray
    y_s: np.ndarray
    q0_s: np.ndarray
    q1_s: np.ndarray
    lam_s: np.ndarray
    momentum_z: np.ndarray
    saddle: np.ndarray

    def row(self, i: int) -> Linearization:
        lin = self.linearization
        return Linearization(*(getattr(lin, name)[i] for name in ("A", "B", "P", "C", "D", "E")))


class StructuredLinearization:
    """Derivatives of a `MidpointVI`'s steps."""

    def __init__(self, f: MidpointVI):
        self.f = f
        lag, g = f.lagrangian, f.lagrangian.graph
        q, v, u, theta = g.q_vector, g.v_vector, g.u_vector, g.parameters
        nd = f.nd
        K, C, M = lag.second
        F = lag.F
        blocks = [K, C, M, *(ca.jacobian(F, s) for s in (q, v, u))]
        blocks += [ca.jacobian(e, theta) for e in (lag.L_q, lag.L_v, F)]
        self._second = Evaluator(lag.function("second", blocks))

        lam, mu = ca.SX.sym("lambda", f.nm), ca.SX.sym("mu", nd)
        along = lag.Dh[:, :nd].T @ lam
        at_start = [lag.Dh, ca.jacobian(along, q), ca.jacobian(along, theta)]
        at_end = [lag.Dh, ca.jacobian(lag.h, theta)]
        options = {"cse": True}
        self._start = Evaluator(ca.Function("start", [q, lam, theta], at_start, options))
        self._end = Evaluator(ca.Function("end", [q, theta], at_end, options))

        def third() -> ca.Function:
            # a . L_q + b . L_v: by symmetry its gradient is (L_q, L_v) differentiated along (a, b)
            a, b, c = (ca.SX.sym(s, nd) for s in "abc")
            pad = ca.SX.zeros(f.nk)
            direction = ca.vertcat(a, pad, b, pad)
            y = ca.vertcat(q, v, u, theta)
            first = ca.vertcat(lag.L_q, lag.L_v)
            gradient = ca.jtimes(first, ca.vertcat(q, v), direction)
            by_theta = ca.jtimes(first, theta, direction, True) if theta.numel() else ca.SX(0, 1)
            whole = ca.vertcat(gradient, ca.SX.zeros(u.numel()), by_theta)
            force = ca.hessian(ca.dot(c, F[:nd]), y)[0] if lag.system.forces else 0.0
            return lag.function("third", [ca.jacobian(whole, y) + force], [a, b, c])

        def constraint_start() -> ca.Function:
            w = ca.vertcat(q, lam, theta)
            return ca.Function(
                "h_start", [q, lam, theta, mu], [ca.hessian(-ca.dot(along, mu), w)[0]], options
            )

        def constraint_end() -> ca.Function:
            nu = ca.SX.sym("nu", f.nm)
            w = ca.vertcat(q, theta)
            return ca.Function("h_end", [q, theta, nu], [ca.hessian(ca.dot(nu, lag.h), w)[0]], options)

        self._third = Evaluator(third)
        self._start_second = Evaluator(constraint_start)
        self._end_second = Evaluator(constraint_end)

    # -- first order ------------------------------------------------------------------------------

    def first(self, X0, X1, U, multipliers, t, h, theta, k0: int) -> FirstOrder:
        """Derivatives at N solved steps from states X0 to X1; `h` (N,) or (1,).

        Raises
        ------
        StepError
            Where M_k+1 or Dh M^-1 Dh' is singular ([S] VII).
        """
        f, a = self.f, self.f.alpha
        nq, nd, nk, nm, nx = f.nq, f.nd, f.nk, f.nm, f.nx
        nf, np_ = len(f.system.inputs), len(theta)
        n = len(U)
        ns = nx + f.nu + np_
        h = np.broadcast_to(np.asarray(h, float), (n,))
        q0, q1 = X0[:, :nq], X1[:, :nq]
        args = [(1 - a) * q0 + a * q1, (q1 - q0) / h[:, None], U[:, :nf], (t + a * h)[:, None], theta]
        K, C, M, F_q, F_v, F_u, Lq_t, Lv_t, F_t = self._second(*args)
        Dh0, bend, bend_t = self._start(q0, multipliers, theta)
        Dh1, h1_t = self._end(q1, theta)
        H = h[:, None, None]
        minus, plus = (np.asarray(s) for s in f.force_shares(H))

        # balance r and momentum P by (q_m, v), then by (q_k, q_k+1)  ([S] (10), (13))
        r_q = (H * (1 - a) * K - C + minus * F_q)[:, :nd]
        r_v = (H * (1 - a) * np.swapaxes(C, 1, 2) - M + minus * F_v)[:, :nd]
        P_q = (H * a * K + C + plus * F_q)[:, :nd]
        P_v = (H * a * np.swapaxes(C, 1, 2) + M + plus * F_v)[:, :nd]
        r_0, r_1 = (1 - a) * r_q - r_v / H - bend, a * r_q + r_v / H
        P_0, P_1 = (1 - a) * P_q - P_v / H, a * P_q + P_v / H

        # columns of s: q_d, q_k | p | v_k | forces | rho | parameters
        cq, cp = slice(0, nq), slice(nq, nq + nd)
        cf, crho, ct = slice(nx, nx + nf), slice(nx + nf, nx + nf + nk), slice(nx + nf + nk, ns)
        rhs = np.zeros((n, nd + nm, ns))
        rhs[:, :nd, cq] = r_0
        rhs[:, :nd, cp] = np.eye(nd)
        rhs[:, :nd, cf] = (minus * F_u)[:, :nd]
        rhs[:, :nd, crho] = r_1[:, :, nd:]
        rhs[:, :nd, ct] = (H * (1 - a) * Lq_t - Lv_t + minus * F_t)[:, :nd] - bend_t
        rhs[:, nd:, crho] = Dh1[:, :, nd:]
        rhs[:, nd:, ct] = h1_t

        saddle = np.zeros((n, nd + nm, nd + nm))
        saddle[:, :nd, :nd] = r_1[:, :, :nd]  # M_k+1 of [S] (8)
        saddle[:, :nd, nd:] = -np.swapaxes(Dh0[:, :, :nd], 1, 2)
        saddle[:, nd:, :nd] = Dh1[:, :, :nd]
        try:
            z_s = -np.linalg.solve(saddle, rhs)  # [S] (10)-(12), (29), (30)
        except np.linalg.LinAlgError:
            z_s = np.full(rhs.shape, np.nan)
        self._check_regular(z_s[:, :, cp], Dh0[:, :, :nd], h, saddle, k0)

        q0_s = np.zeros((n, nq, ns))
        q0_s[:, :, cq] = np.eye(nq)
        q1_s = np.zeros((n, nq, ns))
        q1_s[:, :nd] = z_s[:, :nd]
        q1_s[:, nd:, crho] = np.eye(nk)
        p_s = P_1 @ q1_s  # [S] (13)-(15)
        p_s[:, :, cq] += P_0
        p_s[:, :, cf] += (plus * F_u)[:, :nd]
        p_s[:, :, ct] += (H * a * Lq_t + Lv_t + plus * F_t)[:, :nd]
        x_s = np.concatenate([q1_s, p_s, (q1_s - q0_s)[:, nd:] / H], axis=1)
        lam_s = z_s[:, nd:]

        y_s = np.zeros((n, 2 * nq + nf + np_, ns))
        y_s[:, :nq] = (1 - a) * q0_s + a * q1_s
        y_s[:, nq : 2 * nq] = (q1_s - q0_s) / H
        y_s[:, 2 * nq : 2 * nq + nf, cf] = np.eye(nf)
        y_s[:, 2 * nq + nf :, ct] = np.eye(np_)

        by_x, by_u, by_t = slice(0, nx), slice(nx, nx + f.nu), ct
        lin = Linearization(
            *(np.ascontiguousarray(d[:, :, c]) for d in (x_s, lam_s) for c in (by_x, by_u, by_t))
        )
        return FirstOrder(lin, args, q0, q1, multipliers, h, y_s, q0_s, q1_s, lam_s, P_1[:, :, :nd], saddle)

    def _check_regular(self, z_p, Dh0, h, saddle, k0: int) -> None:
        """Raise where an impulse is amplified beyond what a regular step does ([S] VII).

        dq/dp is about dt M^-1 and Dh' dlambda/dp a projection, of size 1, so both have natural units.
        """
        f = self.f
        root = np.sqrt(f.lagrangian.mass_scale)
        q_p = np.abs(z_p[:, : f.nd] * root[:, None] * root).max(axis=(1, 2), initial=0.0) / h
        impulse = np.swapaxes(Dh0, 1, 2) @ z_p[:, f.nd :] / root[:, None] * root
        lam_p = np.abs(impulse).max(axis=(1, 2), initial=0.0)
        for size, limit, cause in (
            (q_p, SINGULAR_M, "singular M"),
            (lam_p, SINGULAR_CONSTRAINTS, "singular constraints"),
        ):
            bad = np.flatnonzero(~(size <= limit))
            if len(bad):
                i = int(bad[0])
                raise singular_linearization(f, saddle[i], k0 + i, float(size[i]), cause)

    # -- second order -----------------------------------------------------------------------------

    def second(self, first: FirstOrder, Z: np.ndarray, zeta: np.ndarray) -> SecondOrder:
        """Hessian of z . x_k+1 + zeta . lambda_k, without the third-order tensor ([S] (16)-(27), (31)).

        With (mu, nu) the adjoint of the implicit equations, the second derivatives of q_k+1 and lambda_k
        drop out of z . x_k+1 + zeta . lambda + mu . r + nu . h, and its Hessian is that of known
        functions along the first derivatives.
        """
        f, a = self.f, self.f.alpha
        nq, nd, nx = f.nq, f.nd, f.nx
        theta = first.args[4]
        H = first.h[:, None]
        minus, plus = (np.broadcast_to(np.asarray(s), H.shape) for s in f.force_shares(H))
        z_q, z_p = Z[:, :nd], Z[:, nq : nq + nd]
        weights = np.concatenate([z_q + np.einsum("nij,ni->nj", first.momentum_z, z_p), zeta], axis=1)
        adjoint = -np.linalg.solve(np.swapaxes(first.saddle, 1, 2), weights[..., None])[..., 0]
        mu, nu = adjoint[:, :nd], adjoint[:, nd:]

        wq = H * ((1 - a) * mu + a * z_p)
        inner = self._third(*first.args, wq, z_p - mu, minus * mu + plus * z_p)[0]
        result = np.swapaxes(first.y_s, 1, 2) @ inner @ first.y_s
        if f.nm:
            by_t = np.zeros((*first.q1_s.shape[:1], len(theta), result.shape[-1]))
            by_t[:, :, nx + f.nu :] = np.eye(len(theta))
            start = self._start_second(first.q0, first.multipliers, theta, mu)[0]
            w = np.concatenate([first.q0_s, first.lam_s, by_t], axis=1)
            result += np.swapaxes(w, 1, 2) @ start @ w
            end = self._end_second(first.q1, theta, nu)[0]
            w = np.concatenate([first.q1_s, by_t], axis=1)
            result += np.swapaxes(w, 1, 2) @ end @ w
        x, u, t = slice(0, nx), slice(nx, nx + f.nu), slice(nx + f.nu, None)
        pairs = ((x, x), (x, u), (u, u), (x, t), (u, t), (t, t))
        return SecondOrder(*(np.ascontiguousarray(result[:, i, j]) for i, j in pairs))
