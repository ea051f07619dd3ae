"""Exact first and second derivatives of Galerkin steps along whole trajectories.

At each quadrature point of a step, momenta, forces, constraint values and constraint rates, o = (L_v, f, h,
Dh v), are functions of y = (Q, V, forces, parameters, lambda). CasADi differentiates these functions once and
twice. All other dependences are linear: y depends linearly on the arguments s = (x, u, parameters) of the
step and on its unknowns w; the equations and the results of a step depend linearly on o, w and s. The
derivatives of a step are therefore products of stacked matrices. The second derivatives use the adjoint of
the equations (docs/maths/galerkin.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import casadi as ca
import numpy as np

from vioc.compile.evaluate import Evaluator
from vioc.dynamics.algebra.vectors import part
from vioc.dynamics.consistency import directions_within
from vioc.dynamics.integrators.branch_equations import BranchEquations, BranchRoot, Linearized
from vioc.dynamics.integrators.newton import NEAR, PASSING, singular_ahead
from vioc.errors import StepError
from vioc.maps.derivatives import Linearization, SecondOrder, Steps

if TYPE_CHECKING:
    from vioc.dynamics.integrators.galerkin import GalerkinVI


class Points(NamedTuple):
    """Momenta, forces and constraint values of N steps, with derivatives.
    They are evaluated at P points of each step: the stages and, with constraints, also the end.

    Attributes
    ----------
    args : list of arrays (N P, ...)
        Arguments of the functions at each point.
    o : (N, P, no)
        Values: momenta, forces, constraint values and constraint rates.
    o_y : (N, P, no, ny)
        Derivatives of o with respect to its arguments y, such as configurations and velocities.
    o_w : (N, P, no, nw)
        Derivatives of o with respect to all unknowns w of the step equations.
    y_s : (N, P, ny, ns)
        Derivatives of y with respect to s = (state, input, parameters) at fixed unknowns.
    """

    args: list[np.ndarray]
    o: np.ndarray
    o_y: np.ndarray
    o_w: np.ndarray
    y_s: np.ndarray


class GalerkinDerivatives:
    """First and second derivatives of the steps of a Galerkin integrator with s stages.
    The unknowns of a step are w = (V_1, ..., V_s; lambda_1, ..., lambda_s; v). V are the stage velocities.
    The multipliers lambda and the velocity v at the step's end are present only with constraints.
    """

    def __init__(self, f: GalerkinVI):
        self.f, lag, g = f, f.lagrangian, f.lagrangian.graph
        nd, nm, nq, s = f.nd, f.nm, f.nq, f.stages
        self.ny = 2 * nq + len(f.system.inputs) + len(f.parameters) + nm
        self.points = s + (nm > 0)
        self.nw = s * nd + s * nm + nd * (nm > 0)
        lam = ca.SX.sym("lambda", nm)
        y = ca.vertcat(g.q_vector, g.v_vector, g.u_vector, g.parameters, lam)
        m, force = part(lag.L_v, 0, nd), part(lag.F, 0, nd)
        if nm:
            force -= lag.Dh[:, :nd].T @ lam
        K, C, M = (ca.densify(block) for block in lag.second)
        f_y = ca.jacobian(force, y)
        f_y[:, : 2 * nq] += ca.horzcat(K, C.T)[:nd, :]
        f_y[:, 2 * nq :] += ca.jacobian(lag.L_q, y[2 * nq :])[:nd, :]
        m_y = ca.horzcat(C[:nd, :], M[:nd, :], ca.jacobian(m, y[2 * nq :]))
        constraint_terms = ca.vertcat(lag.h, lag.Dh @ g.v_vector)
        o = ca.vertcat(m, force + part(lag.L_q, 0, nd), constraint_terms)
        o_y = ca.vertcat(m_y, f_y, ca.jacobian(constraint_terms, y))
        outputs = [ca.densify(e) for e in (o, o_y)]
        self._first = Evaluator(f.backend.program(lambda: lag.function("points", outputs, [lam]), "points"))
        weights = ca.SX.sym("weights", o.numel())

        def second() -> ca.Function:
            H = ca.hessian(ca.dot(weights, o), y)[0]
            return ca.Function("points_second", [*lag.state_args, lam, weights], [ca.densify(H)])

        self._second = Evaluator(f.backend.program(second, "points_second"))

    # -- unknowns -----------------------------------------------------------------------------------

    def split(self, w: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Split the unknowns w (N, nw, ...) of N steps into three arrays.
        They are the velocities at the stages (N, s, nd, ...), the multipliers (N, s, nm, ...) and the
        velocities at the ends of the steps (N, 0 or nd, ...).
        """
        f, n, more = self.f, len(w), w.shape[2:]
        a, b = f.stages * f.nd, f.stages * (f.nd + f.nm)
        return (
            w[:, :a].reshape(n, f.stages, f.nd, *more),
            w[:, a:b].reshape(n, f.stages, f.nm, *more),
            w[:, b:],
        )

    def solved(self, steps: Steps, theta: np.ndarray) -> np.ndarray:
        """Return the stage velocities and multipliers (N, nw) of solved steps.
        They are computed from the states at the start and at the end of each step by Newton's method, which
        starts from the mean velocities.

        Raises
        ------
        StepError
            If Newton's method does not converge.
        """
        f, n = self.f, len(steps)
        h = steps.h[:, None]
        w = np.zeros((n, self.nw))
        V, _, v = self.split(w)
        V[:] = ((steps.x1 - steps.x0)[:, None, : f.nd]) / h[..., None]
        v[:] = ((steps.x1 - steps.x0)[:, : f.nd])[:, : v.shape[1]] / h
        sizes = f.lagrangian.natural_sizes[: f.nd]
        scale = h / (sizes + np.abs(steps.x0[:, : f.nd]))
        last_change = np.inf
        for _ in range(30):
            points = self.at(steps, theta, w)
            residuals = self.residual(steps, points)
            try:
                correction = np.linalg.solve(self.left(steps.h, points.o_w), residuals[..., None])[..., 0]
            except np.linalg.LinAlgError:
                break
            w -= correction
            change = (np.abs(self.split(correction)[0]).max(axis=1, initial=0.0) * scale).max(initial=0.0)
            if change <= 1e-13 or (change <= 1e-9 and change >= 0.5 * last_change):
                return w
            last_change = change
        i = int(np.argmax(np.abs(residuals).max(axis=1)))
        raise StepError(
            f"step {int(steps.k[i])}: the stages of a solved step were not found again; use a smaller dt",
            int(steps.k[i]),
            float(last_change),
            "no convergence",
        )

    # -- what a step evaluates ----------------------------------------------------------------------

    def at(self, steps: Steps, theta: np.ndarray, w: np.ndarray) -> Points:
        """Return quantities at quadrature points of N steps, with derivatives.
        The quantities are momenta, forces, constraint values and constraint rates. They are evaluated at the
        unknowns w of the steps and the parameters theta.
        """
        f, rule, n, s, P = self.f, self.f.quadrature, len(steps), self.f.stages, self.points
        nq, nd, nf, nm = f.nq, f.nd, len(f.system.inputs), f.nm
        V, lam, v = self.split(w)
        h = steps.h[:, None, None]
        A = np.concatenate([rule.A, rule.b[None]])[:P]
        c = np.append(rule.c, 1.0)[:P]
        q0, rho = steps.x0[:, :nq], steps.u[:, nf:]
        Q, W, pushes = np.empty((n, P, nq)), np.empty((n, P, nq)), np.zeros((n, P, nm))
        Q[:, :, :nd] = q0[:, None, :nd] + h * (A @ V)
        Q[:, :, nd:] = q0[:, None, nd:] + c[:, None] * (rho - q0[:, nd:])[:, None]
        W[:, :s, :nd], W[:, :, nd:] = V, ((rho - q0[:, nd:]) / steps.h[:, None])[:, None]
        W[:, s:, :nd] = v.reshape(n, P - s, nd)
        pushes[:, :s] = lam
        t = steps.t[:, None] + c * steps.h[:, None]
        forces = np.repeat(steps.u[:, :nf], P, axis=0)
        args = [Q.reshape(n * P, nq), W.reshape(n * P, nq), forces, t.reshape(-1, 1), theta]
        args.append(pushes.reshape(n * P, nm))
        o, o_y = self._first(*args)
        o, o_y = o.reshape(n, P, -1), o_y.reshape(n, P, -1, self.ny)

        ns = f.nx + f.nu + len(theta)
        y_s, k = np.zeros((n, P, self.ny, ns)), np.arange(f.nk)
        y_s[:, :, np.arange(nd), np.arange(nd)] = 1.0
        of_k, of_rho = nd + k, f.nx + nf + k
        y_s[:, :, nd + k[:, None], of_k[:, None]] = (1 - c)[:, None, None]
        y_s[:, :, nd + k[:, None], of_rho[:, None]] = c[:, None, None]
        y_s[:, :, nq + nd + k, of_k] = -1 / h
        y_s[:, :, nq + nd + k, of_rho] = 1 / h
        y_s[:, :, 2 * nq + np.arange(nf), f.nx + np.arange(nf)] = 1.0
        tail = np.arange(len(theta))
        y_s[:, :, 2 * nq + nf + tail, f.nx + f.nu + tail] = 1.0

        by_V = h[..., None, None] * np.einsum("ij,niab->niajb", A, o_y[..., :nd])
        by_lam, i = np.zeros((n, P, o.shape[2], s, nm)), np.arange(s)
        by_V[:, i, :, i] += np.swapaxes(o_y[:, :s, :, nq : nq + nd], 0, 1)
        by_lam[:, i, :, i] = np.swapaxes(o_y[:, :s, :, self.ny - nm :], 0, 1)
        by_v = np.zeros((n, P, o.shape[2], v.shape[1]))
        by_v[:, s:] = o_y[:, s:, :, nq : nq + v.shape[1]]
        o_w = np.concatenate([e.reshape(n, P, o.shape[2], -1) for e in (by_V, by_lam, by_v)], axis=3)
        return Points(args, o, o_y, o_w, y_s)

    def _parts(self, o: np.ndarray) -> list[np.ndarray]:
        """Split values at quadrature points into momenta, forces, constraints and constraint rates."""
        nd, nm = self.f.nd, self.f.nm
        return np.split(o, np.cumsum([nd, nd, nm]), axis=2)

    def left(self, h: np.ndarray, o: np.ndarray) -> np.ndarray:
        """Return the left-hand sides of the step equations, from the values o at the quadrature points.

        From o (N, P, no, ...) it makes the equations (N, nw, ...): those of the stages, the constraints h at
        all points but the first, the momentum at the end, and the constraint rates there. The momentum at the
        start is not included.
        """
        rule, s, n = self.f.quadrature, self.f.stages, len(o)
        m, f, constraints, rates = self._parts(o)
        lengths = h.reshape(-1, *[1] * (o.ndim - 1))
        rows = [m[:, :s] - lengths * np.einsum("ij,nj...->ni...", rule.Ab, f[:, :s])]
        if self.f.nm:
            gained = lengths * np.einsum("j,nj...->n...", rule.b, f[:, :s])[:, None]
            rows += [constraints[:, 1:s], m[:, s:] - gained, rates[:, s:]]
        return np.concatenate([r.reshape(n, -1, *o.shape[3:]) for r in rows], axis=1)

    def weights(self, h: np.ndarray, mu: np.ndarray) -> np.ndarray:
        """Return the gradient of a weighted sum of the residuals of N steps.
        The steps have the lengths h (N,); the weights of their residuals are mu (N, nw). The method `left`
        computes the residuals as linear functions of o (N, P, no): the momenta, forces, constraint values and
        constraint rates at the quadrature points. The result (N, P, no) has the derivatives of the sum with
        respect to o.
        """
        rule, s, nd, nm, n = self.f.quadrature, self.f.stages, self.f.nd, self.f.nm, len(mu)
        gradient = np.zeros((n, self.points, 2 * (nd + nm)))
        m, f, constraints, rates = self._parts(gradient)
        of_stages, of_kept, of_end, of_along = np.split(
            mu, np.cumsum([s * nd, (s - 1) * nm, nd * (nm > 0)]), axis=1
        )
        m[:, :s] = of_stages.reshape(n, s, nd)
        f[:, :s] = -h[:, None, None] * np.einsum("ij,nia->nja", rule.Ab, m[:, :s])
        if nm:
            constraints[:, 1:s], rates[:, s], m[:, s] = of_kept.reshape(n, s - 1, nm), of_along, of_end
            f[:, :s] -= h[:, None, None] * rule.b[:, None] * of_end[:, None]
        return gradient

    def residual(self, steps: Steps, points: Points) -> np.ndarray:
        """Return the residuals (N, nw) of the equations of N steps.
        The argument `points` has the values of momenta, forces and constraints at the quadrature points.
        """
        f, residuals = self.f, self.left(steps.h, points.o)
        p, s, nd = steps.x0[:, f.nq : f.nq + f.nd], f.stages, f.nd
        residuals[:, : s * nd] -= np.tile(p, (1, s))
        if f.nm:
            residuals[:, -nd - f.nm : -f.nm] -= p
        return residuals

    # -- derivatives --------------------------------------------------------------------------------

    def _chained(self, steps: Steps, theta: np.ndarray) -> tuple[Points, np.ndarray, np.ndarray, np.ndarray]:
        """Return values at the quadrature points of solved steps, and three derivatives.
        The first (N, nw, nw) is the Jacobian of the step equations with respect to their unknowns. The second
        (N, P, ny, ns) has the total derivatives of the arguments y of the functions at the quadrature points
        with respect to s = (state, input, parameters). The third (N, nx + nm, ns) has the derivatives of the
        next state, then of the multipliers, with respect to s. The derivatives follow from the implicit
        function theorem.
        """
        f, rule = self.f, self.f.quadrature
        n, s, nq, nd, nm, P = len(steps), f.stages, f.nq, f.nd, f.nm, self.points
        h = steps.h[:, None, None]
        points = self.at(steps, theta, self.solved(steps, theta))
        momentum = np.zeros((nd, points.y_s.shape[3]))
        momentum[:, nq : nq + nd] = np.eye(nd)
        matrix, right = self.left(steps.h, points.o_w), self.left(steps.h, points.o_y @ points.y_s)
        right[:, : s * nd] -= np.tile(momentum, (s, 1))
        if nm:
            right[:, -nd - nm : -nm] -= momentum
        try:
            w_s = -np.linalg.solve(matrix, right)
        except np.linalg.LinAlgError:
            i = int(np.argmax([np.linalg.cond(S) for S in matrix]))
            raise StepError(
                f"step {int(steps.k[i])}: the stages' equations are singular; use a smaller dt",
                int(steps.k[i]),
                np.nan,
                "singular M",
            ) from None
        V_s, lam_s, v_s = self.split(w_s)
        y, A = points.y_s.copy(), np.concatenate([rule.A, rule.b[None]])[:P]
        y[:, :, :nd] += h[..., None] * np.einsum("ij,njas->nias", A, V_s)
        y[:, :s, nq : nq + nd] += V_s
        y[:, s:, nq : nq + nd] += v_s.reshape(n, P - s, nd, y.shape[3])
        y[:, :s, self.ny - nm :] += lam_s
        f_s = points.o_y[:, :s, nd : 2 * nd] @ y[:, :s]
        derivatives, k = np.zeros((n, f.nx + nm, y.shape[3])), np.arange(f.nk)
        rho = f.nx + len(f.system.inputs) + k
        derivatives[:, np.arange(nd), np.arange(nd)] = 1.0
        derivatives[:, :nd] += h * np.einsum("j,njas->nas", rule.b, V_s)
        derivatives[:, nd + k, rho] = 1.0
        derivatives[:, nq : nq + nd] = momentum + h * np.einsum("j,njas->nas", rule.b, f_s)
        derivatives[:, nq + nd + k, rho] = 1 / h[:, 0]
        derivatives[:, nq + nd + k, nd + k] = -1 / h[:, 0]
        derivatives[:, f.nx :] = h * np.einsum("j,njas->nas", rule.b, lam_s)
        return points, matrix, y, derivatives

    def first(self, steps: Steps, theta: np.ndarray) -> Linearization:
        derivatives, nx = self._chained(steps, theta)[-1], self.f.nx
        return Linearization.of(derivatives[:, :nx], derivatives[:, nx:], self.f.nu)

    def second(self, steps: Steps, theta: np.ndarray, Z: np.ndarray, zeta: np.ndarray) -> SecondOrder:
        """Return second derivatives of N steps, contracted with covectors.
        They are the Hessians of Z . x_k+1 + zeta . multipliers for each step, with respect to state, input
        and parameters. Z and zeta are the covectors, one row for each step.

        The Hessians of the functions at the quadrature points are weighted by the adjoint and multiplied from
        both sides by the first derivatives of the functions' arguments (GA 9).
        """
        f, rule = self.f, self.f.quadrature
        n, s, nq, nd, P = len(steps), f.stages, f.nq, f.nd, self.points
        points, matrix, y, _ = self._chained(steps, theta)
        factors = steps.h[:, None, None] * rule.b[:, None]
        weights = np.zeros(points.o.shape)
        weights[:, :s, nd : 2 * nd] = factors * Z[:, None, nq : nq + nd]
        direct = np.einsum("npo,npow->nw", weights, points.o_w)
        of_V, of_lam, _ = self.split(direct)
        of_V += factors * Z[:, None, :nd]
        of_lam += factors * zeta[:, None]
        mu = -np.linalg.solve(np.swapaxes(matrix, 1, 2), direct[..., None])[..., 0]
        weights += self.weights(steps.h, mu)
        H = self._second(*points.args, weights.reshape(n * P, -1))[0].reshape(n, P, self.ny, self.ny)
        whole = (np.swapaxes(y, 2, 3) @ H @ y).sum(axis=1)
        return SecondOrder.of(whole, f.ndx, f.nu)


class GalerkinEquations(BranchEquations):
    """Equations of one Galerkin step, for continuation in its length from 0.
    The unknowns are the stage velocities, the step length times the multipliers, and the velocity at the
    step's end. If the step is shortened to a share of its length, prescribed variables move by the same
    share.
    """

    def __init__(self, of: GalerkinDerivatives, x: np.ndarray, u: np.ndarray, t: float, dt: float):
        f = of.f
        self.of, self.x, self.u, self.t, self.dt = of, x, u, t, dt
        v0 = f.velocities(x)
        v0 = np.where(np.isfinite(v0), v0, 0.0)
        size = abs(dt) / (f.lagrangian.natural_sizes[: f.nd] + np.abs(x[: f.nd]))
        turns = np.where(f.turning, abs(dt), 0.0)
        self.start, self.weights, self.size, self.turns = np.zeros((4, of.nw))
        columns = self.start, self.weights, self.size, self.turns
        each = v0, np.sqrt(f.lagrangian.mass_scale), size, turns
        for column, values in zip(columns, each, strict=True):
            V, _, v = of.split(column[None])
            V[:], v[:] = values, values[: v.shape[1]]

    def _at(self, w: np.ndarray, share: float) -> tuple[Steps, Points, np.ndarray]:
        f, length = self.of.f, share * self.dt
        nf, q_k = len(f.system.inputs), self.x[f.nd : f.nq]
        u = np.concatenate([self.u[:nf], q_k + share * (self.u[nf:] - q_k)])
        one = self.x[None], self.x[None], u[None], np.zeros((1, 0))
        steps = Steps(*one, np.array([self.t]), np.array([length]), np.zeros(1, int))
        size = np.ones((1, self.of.nw))
        self.of.split(size)[1][:] = 1 / length
        return steps, self.of.at(steps, f.theta, w * size), size[0]

    def __call__(self, w: np.ndarray, share: float) -> Linearized:
        steps, points, factors = self._at(w, share)
        return Linearized(self.of.residual(steps, points)[0], self.of.left(steps.h, points.o_w)[0] * factors)

    def end(self, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the next state and the multipliers of a step.
        They are computed from the unknowns w of the step.
        """
        f, (_, points, size) = self.of.f, self._at(w, 1.0)
        V, lam, _ = (a[0] for a in self.of.split((w * size)[None]))
        rho, b = self.u[len(f.system.inputs) :], self.dt * f.quadrature.b
        q = self.x[: f.nd] + b @ V
        p = self.x[f.nq : f.nq + f.nd] + b @ points.o[0, : f.stages, f.nd : 2 * f.nd]
        return np.concatenate([q, rho, p, (rho - self.x[f.nd : f.nq]) / self.dt]), b @ lam

    def failure(self, root: BranchRoot, k: int, where: str) -> StepError | None:
        f = self.of.f
        if not np.isnan(root.error):
            if not f.nm:
                return None
            q, V = self.x[: f.nq].copy(), self.of.split(root.w[None])[0][0]
            q[: f.nd] += root.share * self.dt * f.quadrature.b @ V
            q[f.nd :] += root.share * (self.u[len(f.system.inputs) :] - q[f.nd :])
            J = directions_within(f.lagrangian, q, NEAR, **f.parameters)
            return singular_ahead(J, f.multiplier_names, root, self.dt, k, where, PASSING)
        return StepError(
            f"{where}. The equations are not finite where the solver stopped: a potential or force is not a "
            "number there, or the step leaves what numbers can hold; use a smaller dt",
            k,
            float(root.error),
            "not finite",
        )
