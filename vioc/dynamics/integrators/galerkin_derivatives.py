"""Exact first and second derivatives of Galerkin steps, for whole trajectories at once.

A stage's values m_i = L_v and f_i depend on y_i = (Q_i, V_i, forces, parameters), which is linear in what a
step depends on, s = (x, u, parameters), and in the stages' velocities V. CasADi differentiates (m, f) once
and twice; the rest runs on stacks of matrices, the second order by the adjoint of the stages' equations
(docs/maths/galerkin.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import casadi as ca
import numpy as np

from vioc.compile.evaluate import Evaluator
from vioc.dynamics.algebra.vectors import part
from vioc.dynamics.integrators.newton import Equations, Iterate, Solution
from vioc.dynamics.lagrangian import OPTIONS
from vioc.errors import StepError
from vioc.maps.derivatives import Linearization, SecondOrder, Steps

if TYPE_CHECKING:
    from vioc.dynamics.integrators.galerkin import GalerkinVI


class Stages(NamedTuple):
    """N steps at stage velocities V: stacks over steps, then stages.

    Attributes
    ----------
    args : list of arrays (N s, ...)
        What stages are evaluated at.
    m, f : (N, s, nd)
    m_y, f_y : (N, s, nd, ny)
        By y = (Q, V, forces, parameters).
    y_s : (N, s, ny, ns)
        At fixed V.
    S : (N, s nd, s nd)
        Of the stages' equations, by V.
    """

    args: list[np.ndarray]
    m: np.ndarray
    f: np.ndarray
    m_y: np.ndarray
    f_y: np.ndarray
    y_s: np.ndarray
    S: np.ndarray


class GalerkinDerivatives:
    """Derivatives of the steps of a `GalerkinVI`."""

    def __init__(self, f: GalerkinVI):
        self.f, lag, g = f, f.lagrangian, f.lagrangian.graph
        nd, ny = f.nd, 2 * f.nq + len(f.system.inputs) + len(f.parameters)
        y = ca.vertcat(g.q_vector, g.v_vector, g.u_vector, g.parameters)
        m, force = part(lag.L_v, 0, nd), part(lag.L_q + lag.F, 0, nd)
        K, C, M = (ca.densify(block) for block in lag.second)
        rest = ca.jacobian(lag.F, y)[:nd, :]
        rest[:, : 2 * f.nq] += ca.horzcat(K, C.T)[:nd, :]
        rest[:, 2 * f.nq :] += ca.jacobian(lag.L_q, y[2 * f.nq :])[:nd, :]
        m_y = ca.horzcat(C[:nd, :], M[:nd, :], ca.jacobian(m, y[2 * f.nq :]))
        outputs = [ca.densify(e) for e in (m, force, m_y, rest)]
        self._first = Evaluator(f.backend.program(lambda: lag.function("stages", outputs), "stages"))
        mu, nu = ca.SX.sym("mu", nd), ca.SX.sym("nu", nd)

        def second() -> ca.Function:
            H = ca.hessian(ca.dot(mu, m) + ca.dot(nu, force), y)[0]
            return ca.Function("stages_second", [*lag.state_args, mu, nu], [ca.densify(H)], OPTIONS)

        self._second, self.ny = Evaluator(f.backend.program(second, "stages_second")), ny

    def solved(self, steps: Steps, theta: np.ndarray) -> np.ndarray:
        """Stage velocities (N, s, nd) of solved steps: Newton's method from the polynomial of slopes.

        Raises
        ------
        StepError
            Where it does not end.
        """
        f, n, s = self.f, len(steps), self.f.stages
        h = steps.h[:, None, None]
        V = np.broadcast_to(((steps.x1 - steps.x0)[:, None, : f.nd]) / h, (n, s, f.nd)).copy()
        scale = h[..., 0] / (1 + np.abs(steps.x0[:, : f.nd]).max(axis=1, initial=0.0))[:, None]
        last = np.inf
        for _ in range(30):
            at = self.at(steps, theta, V)
            left = self.residual(steps, at)
            try:
                by = np.linalg.solve(at.S, left.reshape(n, -1, 1)).reshape(V.shape)
            except np.linalg.LinAlgError:
                break
            V -= by
            moved = (np.abs(by).max(axis=(1, 2), initial=0.0) * scale[:, 0]).max(initial=0.0)
            if moved <= 1e-13 or (moved <= 1e-9 and moved >= 0.5 * last):
                return V
            last = moved
        i = int(np.argmax(np.abs(left).max(axis=(1, 2))))
        raise StepError(
            f"step {int(steps.k[i])}: the stages of a solved step were not found again; use a smaller dt",
            int(steps.k[i]),
            float(last),
            "no convergence",
        )

    def at(self, steps: Steps, theta: np.ndarray, V: np.ndarray) -> Stages:
        """Values and derivatives of the stages."""
        f, rule, n, s = self.f, self.f.rule, len(steps), self.f.stages
        nq, nd, nf = f.nq, f.nd, len(f.system.inputs)
        h = steps.h[:, None, None]
        q0, rho = steps.x0[:, :nq], steps.u[:, nf:]
        Q, W = np.empty((n, s, nq)), np.empty((n, s, nq))
        Q[:, :, :nd] = q0[:, None, :nd] + h * (rule.A @ V)
        Q[:, :, nd:] = q0[:, None, nd:] + rule.c[:, None] * (rho - q0[:, nd:])[:, None]
        W[:, :, :nd], W[:, :, nd:] = V, ((rho - q0[:, nd:]) / steps.h[:, None])[:, None]
        t = steps.t[:, None] + rule.c * steps.h[:, None]
        forces = np.repeat(steps.u[:, :nf], s, axis=0)
        args = [Q.reshape(n * s, nq), W.reshape(n * s, nq), forces, t.reshape(-1, 1), theta]
        m, force, m_y, f_y = self._first(*args)
        m, force = m.reshape(n, s, nd), force.reshape(n, s, nd)
        m_y, f_y = m_y.reshape(n, s, nd, -1), f_y.reshape(n, s, nd, -1)

        ns = f.nx + f.nu + len(theta)
        y_s, k = np.zeros((n, s, self.ny, ns)), np.arange(f.nk)
        y_s[:, :, np.arange(nd), np.arange(nd)] = 1.0
        of_k, of_rho = nd + k, f.nx + nf + k
        y_s[:, :, nd + k[:, None], of_k[:, None]] = (1 - rule.c)[:, None, None]
        y_s[:, :, nd + k[:, None], of_rho[:, None]] = rule.c[:, None, None]
        y_s[:, :, nq + nd + k, of_k] = -1 / h
        y_s[:, :, nq + nd + k, of_rho] = 1 / h
        y_s[:, :, 2 * nq + np.arange(nf), f.nx + np.arange(nf)] = 1.0
        tail = np.arange(len(theta))
        y_s[:, :, 2 * nq + nf + tail, f.nx + f.nu + tail] = 1.0

        by_m, by_f = (self._by_velocities(e, h) for e in (m_y, f_y))  # (N, s, nd, s, nd)
        S = by_m - h[..., None, None] * np.einsum("il,nlajb->niajb", rule.Ab, by_f)
        return Stages(args, m, force, m_y, f_y, y_s, S.reshape(n, s * nd, s * nd))

    def _by_velocities(self, e_y: np.ndarray, h: np.ndarray) -> np.ndarray:
        """Derivatives of stages' values by all V, (N, s, nd, s, nd)."""
        nq, nd, rule = self.f.nq, self.f.nd, self.f.rule
        found = h[..., None, None] * np.einsum("ij,niab->niajb", rule.A, e_y[..., :nd])
        i = np.arange(self.f.stages)
        found[:, i, :, i] += np.swapaxes(e_y[..., nq : nq + nd], 0, 1)
        return found

    def residual(self, steps: Steps, at: Stages) -> np.ndarray:
        """What the stages' equations leave (N, s, nd)."""
        f = self.f
        p = steps.x0[:, None, f.nq : f.nq + f.nd]
        return at.m - p - steps.h[:, None, None] * (f.rule.Ab @ at.f)

    def _chained(self, steps: Steps, theta: np.ndarray) -> tuple[Stages, np.ndarray, np.ndarray]:
        """The stages, all of y by s (N, s, ny, ns) with V(s), and the derivative of x_next (N, nx, ns)."""
        f, rule = self.f, self.f.rule
        n, s, nq, nd = len(steps), f.stages, f.nq, f.nd
        h = steps.h[:, None, None]
        at = self.at(steps, theta, self.solved(steps, theta))
        momentum = np.zeros((nd, at.y_s.shape[3]))
        momentum[:, nq : nq + nd] = np.eye(nd)
        f_s = at.f_y @ at.y_s
        right = at.m_y @ at.y_s - momentum - h[..., None] * np.einsum("ij,njas->nias", rule.Ab, f_s)
        try:
            V_s = -np.linalg.solve(at.S, right.reshape(n, s * nd, -1)).reshape(n, s, nd, -1)
        except np.linalg.LinAlgError:
            i = int(np.argmax([np.linalg.cond(S) for S in at.S]))
            raise StepError(
                f"step {int(steps.k[i])}: the stages' equations are singular; use a smaller dt",
                int(steps.k[i]),
                np.nan,
                "singular M",
            ) from None
        y = at.y_s.copy()
        y[:, :, :nd] += h[..., None] * np.einsum("ij,njas->nias", rule.A, V_s)
        y[:, :, nq : nq + nd] += V_s
        f_s = at.f_y @ y
        after, k = np.zeros((n, f.nx, y.shape[3])), np.arange(f.nk)
        rho = f.nx + len(f.system.inputs) + k
        after[:, np.arange(nd), np.arange(nd)] = 1.0
        after[:, :nd] += h * np.einsum("j,njas->nas", rule.b, V_s)
        after[:, nd + k, rho] = 1.0
        after[:, nq : nq + nd] = momentum + h * np.einsum("j,njas->nas", rule.b, f_s)
        after[:, nq + nd + k, rho] = 1 / h[:, 0]
        after[:, nq + nd + k, nd + k] = -1 / h[:, 0]
        return at, y, after

    def first(self, steps: Steps, theta: np.ndarray) -> Linearization:
        after = self._chained(steps, theta)[2]
        return Linearization.of(after, np.zeros((len(steps), 0, after.shape[2])), self.f.nu)

    def second(self, steps: Steps, theta: np.ndarray, Z: np.ndarray) -> SecondOrder:
        """Hessian of Z . x_k+1: along dy/ds, that of mu . m + nu . f with the adjoint (GA 8)."""
        f, rule = self.f, self.f.rule
        n, s, nq, nd = len(steps), f.stages, f.nq, f.nd
        at, y, _ = self._chained(steps, theta)
        h = steps.h[:, None, None]
        of_f = h * rule.b[:, None] * Z[:, None, nq : nq + nd]  # (N, s, nd): weights of f in Z . x_next
        direct = np.einsum("nia,niajb->njb", of_f, self._by_velocities(at.f_y, h))
        direct += h * rule.b[:, None] * Z[:, None, :nd]
        mu = -np.linalg.solve(np.swapaxes(at.S, 1, 2), direct.reshape(n, s * nd, 1)).reshape(n, s, nd)
        nu = of_f - h * np.einsum("ij,nia->nja", rule.Ab, mu)
        H = self._second(*at.args, mu.reshape(n * s, nd), nu.reshape(n * s, nd))[0]
        H = H.reshape(n, s, self.ny, self.ny)
        whole = (np.swapaxes(y, 2, 3) @ H @ y).sum(axis=1)
        return SecondOrder.of(whole, f.ndx, f.nu)


class GalerkinEquations(Equations):
    """The equations of the step of a `GalerkinVI` from x under u at time t, for h V (s nd,)."""

    def __init__(self, of: GalerkinDerivatives, x: np.ndarray, u: np.ndarray, t: float, theta: np.ndarray):
        self.of, self.x, self.u, self.t, self.theta = of, x, u, t, theta
        self.start = np.zeros(of.f.stages * of.f.nd)

    def _at(self, z: np.ndarray, dt: float) -> tuple[Steps, Stages]:
        one = self.x[None], self.x[None], self.u[None], np.zeros((1, 0))
        steps = Steps(*one, np.array([self.t]), np.array([dt]), np.zeros(1, int))
        return steps, self.of.at(steps, self.theta, z.reshape(1, self.of.f.stages, -1) / dt)

    def __call__(self, z: np.ndarray, dt: float) -> Iterate:
        steps, at = self._at(z, dt)
        f, matrix = self.of.f, at.S[0] / dt
        size = np.tile(1 + np.abs(self.x[: f.nd]), f.stages)
        scale = np.abs(np.diag(matrix)) * size
        scale = np.where(scale > 0, scale, np.abs(matrix) @ size + 1e-300)
        return Iterate(self.of.residual(steps, at).ravel(), matrix, scale)

    def end(self, z: np.ndarray, dt: float) -> np.ndarray:
        """x_k+1."""
        f, (_, at) = self.of.f, self._at(z, dt)
        V, rho = z.reshape(f.stages, -1) / dt, self.u[len(f.system.inputs) :]
        q = self.x[: f.nd] + dt * f.rule.b @ V
        p = self.x[f.nq : f.nq + f.nd] + dt * f.rule.b @ at.f[0]
        return np.concatenate([q, rho, p, (rho - self.x[f.nd : f.nq]) / dt])

    def failure(self, found: Solution, k: int, dt: float, where: str) -> StepError | None:
        if np.isfinite(found.error):
            return None
        return StepError(
            f"{where}. The equations are not finite where the solver stopped: a potential or force is not a "
            "number there, or the step leaves what numbers can hold; use a smaller dt",
            k,
            float(found.error),
            "not finite",
        )
