"""Exact derivatives of steps with several stages on SO(3)^n x R^m.

They are first and second derivatives. At each point of a step, momenta, forces, constraint values and
constraint rates, o = (L_v, f, h, Dh v), are evaluated as functions of y = (errors of the configuration,
rates, inputs, parameters, multipliers). For each rotation, rotation errors and momenta along its curve
(`Curves.errors`) are evaluated; these functions are the same for every mechanism. CasADi differentiates all
functions once and twice; numpy combines the derivatives of many steps. The unknowns w are the rates V at the
points and, with constraints, the multipliers and the velocity at the end. With the momenta m that forces
produce, the equations are

    g = (L_v - m(s, w, f), h, ...) = 0,    D_s w = -g_w^-1 g_s,                                           (11)

Second derivatives use the adjoint of g (docs/maths/groups.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, NoReturn

import casadi as ca
import numpy as np

from vioc.compile.evaluate import Evaluator
from vioc.dynamics.algebra import rotations as rot
from vioc.dynamics.integrators.branch_equations import BranchEquations, BranchRoot, Linearized
from vioc.dynamics.integrators.groups.curves import Curves
from vioc.errors import StepError
from vioc.maps.derivatives import Linearization, SecondOrder, Steps, solved

if TYPE_CHECKING:
    from vioc.dynamics.integrators.groups.group_vi import GroupVI

FOUND = 1e-8  # largest relative difference between a step's end and the end from recomputed rates


class Along(NamedTuple):
    """Values and derivatives of the equations of N steps, evaluated at given unknowns.
    The unknowns of a step with s stages are w = (V; lambda, v): the rates V of the configuration and the
    multipliers lambda at the stages, and the rates v at the end of the step. Without constraints, only V is
    unknown. There are P = s + 1 points: the stages and the end. At K of these points (without constraints,
    the stages only), o has the momenta, forces, constraint values and constraint rates as functions of y,
    their arguments. In derivatives, s are the state, input and parameters.

    Attributes
    ----------
    points, curves : list of arrays
        Arguments of the functions at points (N K, ...) and along curves (N nb, ...).
    q, p, impulse : (N, nq), (N, nd), (N, nm)
        Configurations and momenta at the end, and multipliers.
    left : (N, nw)
        Residual g.
    o_y : (N, K, no, ny)
        Derivatives of o with respect to y.
    y_w, y_s : (N, K, ny, nw), (N, K, ny, ns)
        Derivatives of y with respect to the unknowns, and with respect to s at fixed unknowns.
    m_w, m_f, m_s : (N, P, nd, nw), (N, P, nd, s nd), (N, P, nd, ns)
        Derivatives of the required momenta, those that forces f produce, with respect to unknowns, f and s.
    e_w, e_s : (N, nd, nw), (N, nd, ns)
        Derivatives of the errors of the configuration at the end.
    """

    points: list[np.ndarray]
    curves: list[np.ndarray]
    q: np.ndarray
    p: np.ndarray
    impulse: np.ndarray
    left: np.ndarray
    o_y: np.ndarray
    y_w: np.ndarray
    y_s: np.ndarray
    m_w: np.ndarray
    m_f: np.ndarray
    m_s: np.ndarray
    e_w: np.ndarray
    e_s: np.ndarray


class GroupStageDerivatives:
    """First and second derivatives of steps with several stages on SO(3)^n x R^m.
    They are derivatives with respect to s = (displacement of the state, inputs, parameters), with ns
    components, where the displacement is a small change of the state at the start of a step.
    """

    def __init__(self, f: GroupVI, curves: Curves):
        self.f, self.space, self.rule, s = f, f.space, curves.rule, curves.rule.stages
        nd, nq, nu, nm = f.nd, f.nq, f.nu, f.nm
        self.ny, self.ns = 2 * nd + nu + len(f.parameters) + nm, f.ndx + nu + len(f.parameters)
        self.points, self.nw = s + (nm > 0), s * (nd + nm) + nd * (nm > 0)
        self._path, self._momenta = (Evaluator(_by_columns(e)) for e in (curves.path, curves.momenta))
        self._slopes, self._curvature = Evaluator(lambda: curves.slopes), Evaluator(lambda: curves.curvature)
        self._velocity = Evaluator(f.group.velocity)
        names = ("q", nq), ("e", nd), ("v", nd), ("u", nu), ("t", 1), ("lambda", nm)
        q, error, v, u, t, lam = (ca.SX.sym(*each) for each in names)
        theta, nothing = ca.SX.sym("theta", len(f.parameters)), ca.SX.zeros(nd)
        q_moved = f.space.retract_expression(ca.vertcat(q, nothing), ca.vertcat(error, nothing))[:nq]
        L_v, L_q, F, *_ = f.group.terms(q_moved, v, u, t, theta)
        o = [L_v, L_q + F]
        if nm:
            h, Dh = f.group.constraint(q_moved, theta)
            o = [L_v, L_q + F - Dh.T @ lam, h, Dh @ v]
        values, y = ca.vertcat(*o), ca.vertcat(error, v, u, theta, lam)
        args, weights = [q, v, u, t, theta, lam], ca.SX.sym("weights", values.numel())

        def first() -> ca.Function:
            outputs = ca.substitute([values, ca.jacobian(values, y)], [error], [nothing])
            return ca.Function("points", args, [*map(ca.densify, outputs)])

        def second() -> ca.Function:
            H = ca.substitute(ca.hessian(ca.dot(weights, values), y)[0], error, nothing)
            return ca.Function("points_second", [*args, weights], [ca.densify(H)])

        self._first = Evaluator(f.backend.program(first, "points"))
        self._second = Evaluator(f.backend.program(second, "points_second"))
        self._turns = np.arange(f.nr, nd).reshape(-1, 3)  # indices of rotations among the degrees of freedom

    def split(self, w: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Split unknowns w (N, nw) into rates at the stages, multipliers and rates at the end.
        Their shapes are V (N, s, nd), lambda (N, s, nm), v (N, 0 or 1, nd).
        """
        n, s, nd, nm = len(w), self.rule.stages, self.f.nd, self.f.nm
        V, lam, v = np.split(w, [s * nd, s * (nd + nm)], axis=1)
        return V.reshape(n, s, nd), lam.reshape(n, s, nm), v.reshape(n, self.points - s, nd)

    # -- unknowns of solved steps ---------------------------------------------------------------------

    def solved(self, steps: Steps, theta: np.ndarray) -> Along:
        """Return the equations of solved steps at their roots, with derivatives.
        The unknown rates of the configuration at the stages are computed by Newton's method, from the states
        at the start and at the end of each step. The initial guess interpolates the rates at both ends of a
        step.

        Raises
        ------
        StepError
            If the iteration does not converge, or its end disagrees with that of the step.
        """
        f, n, c = self.f, len(steps), self.rule.c[:, None]
        ends = (self._velocity(x[:, : f.nq], x[:, f.nq :], theta)[0] for x in (steps.x0, steps.x1))
        v0, v1 = (v.reshape(n, 1, f.nd) for v in ends)
        w = np.zeros((n, self.nw))
        V, _, v = self.split(w)
        V[:], v[:] = v0 * (1 - c) + v1 * c, v1
        scale = steps.h[:, None] / _sizes(f, steps.x0)
        last_change = np.inf
        for _ in range(30):
            values = self.at(steps, theta, w)
            try:
                correction = np.linalg.solve(self.slope(values), values.left[..., None])[..., 0]
            except np.linalg.LinAlgError:
                break
            w = w - correction
            change = (np.abs(self.split(correction)[0]).max(axis=1, initial=0.0) * scale).max(initial=0.0)
            if change <= 1e-13 or (change <= 1e-9 and change >= 0.5 * last_change):
                self._check(steps, values)
                return values
            last_change = change
        self._fail(steps, int(np.argmax(np.abs(values.left).max(axis=1))), float(last_change))

    def _check(self, steps: Steps, values: Along) -> None:
        """Raise `StepError` if the computed stage rates do not lead to the end state of a step."""
        x1 = np.concatenate([values.q, values.p], axis=1)
        errors = np.abs(self.f.difference(steps.x1, x1)).max(axis=1) / (1 + np.abs(steps.x1).max(axis=1))
        worst = int(np.argmax(errors))
        if not errors[worst] <= FOUND:
            self._fail(steps, worst, float(errors[worst]))

    def _fail(self, steps: Steps, i: int, error: float) -> NoReturn:
        raise StepError(
            f"step {int(steps.k[i])}: the rates at the points of a solved step were not found again; use a "
            "smaller dt",
            int(steps.k[i]),
            error,
            "no convergence",
        )

    # -- values of a step -----------------------------------------------------------------------------

    def at(self, steps: Steps, theta: np.ndarray, w: np.ndarray) -> Along:
        """Return values and derivatives of the equations of N steps at unknowns w (N, nw)."""
        f, rule, n, s, K = self.f, self.rule, len(steps), self.rule.stages, self.points
        nr, nd, nb, nm, ns, nw = f.nr, f.nd, self.space.nb, f.nm, self.ns, self.nw
        (V, lam, v), h = self.split(w), steps.h[:, None, None]
        weights, pushes = (np.concatenate([a, rule.b[None]]) for a in (rule.A, rule.Ab))  # (P, s)
        r0, s0, p0 = self.space.split(steps.x0)
        lengths = np.repeat(steps.h, nb)[:, None]
        rates = self._of_rotations(V)
        path = np.concatenate([e.reshape(n * nb, -1) for e in self._path(rates, lengths)], axis=1)
        path = path.reshape(n, nb, s + 1, 4)
        r = r0[:, None] + h * (weights @ V[:, :, :nr])
        attitudes = np.swapaxes(rot.product(s0[:, :, None], path), 1, 2).reshape(n, s + 1, 4 * nb)
        q = np.concatenate([r, attitudes], axis=2)
        times = steps.t[:, None] + np.append(rule.c, 1.0)[:K] * steps.h[:, None]
        inputs = np.repeat(steps.u, K, axis=0)
        multipliers = np.concatenate([lam, np.zeros((n, K - s, nm))], axis=1)
        points = [q[:, :K].reshape(n * K, -1), np.concatenate([V, v], axis=1).reshape(n * K, nd), inputs]
        points += [times.reshape(-1, 1), theta, multipliers.reshape(n * K, nm)]
        o, o_y = self._first(*points)
        o, o_y = o.reshape(n, K, 2 * (nd + nm)), o_y.reshape(n, K, 2 * (nd + nm), self.ny)

        force = o[:, :s, nd : 2 * nd]
        torques, pi = self._of_rotations(force), p0[:, self._turns].reshape(n * nb, 3)
        curves = [np.concatenate([np.zeros_like(pi), pi, rates, torques], axis=1), lengths]
        curves.append(path.reshape(n * nb, -1))
        of_turns, of_momenta = (e.reshape(n, nb, s + 1, 3, -1) for e in self._slopes(*curves))
        momenta = [e.reshape(n, nb, -1, 3) for e in self._momenta(rates, torques, pi, lengths)]
        m = np.empty((n, s + 1, nd))
        m[:, :, :nr] = p0[:, None, :nr] + h * (pushes @ force[:, :, :nr])
        m[:, :, nr:] = np.swapaxes(np.concatenate(momenta, axis=2), 1, 2).reshape(n, s + 1, 3 * nb)

        k = np.arange(nr)
        q_V, m_V, m_f = np.zeros((3, n, s + 1, nd, s, nd))
        q_s, m_s = np.zeros((2, n, s + 1, nd, ns))
        q_V[:, :, k, :, k], m_f[:, :, k, :, k] = h * weights, h * pushes
        q_s[:, :, k, k] = m_s[:, :, k, nd + k] = 1.0
        for b, mine in enumerate(self._turns):
            of_q, of_m = (np.split(e[:, b], [3, 6, 6 + 3 * s], axis=-1) for e in (of_turns, of_momenta))
            q_s[:, :, mine[:, None], mine] = of_q[0]
            m_s[:, :, mine[:, None], nd + mine] = of_m[1]
            for j in range(s):
                each = slice(3 * j, 3 * j + 3)
                q_V[:, :, mine[:, None], j, mine] = of_q[2][..., each]
                m_V[:, :, mine[:, None], j, mine] = of_m[2][..., each]
                m_f[:, :, mine[:, None], j, mine] = of_m[3][..., each]
        q_w, m_w = np.zeros((2, n, s + 1, nd, nw))
        q_w[..., : s * nd], m_w[..., : s * nd] = (e.reshape(n, s + 1, nd, s * nd) for e in (q_V, m_V))
        y_w, y_s = np.zeros((n, K, self.ny, nw)), np.zeros((n, K, self.ny, ns))
        i, of_lam = np.arange(nd), np.arange(nm)
        y_w[:, :, :nd], y_s[:, :, :nd] = q_w[:, :K], q_s[:, :K]
        for j in range(s):
            y_w[:, j, nd + i, j * nd + i] = 1.0
            y_w[:, j, self.ny - nm + of_lam, s * nd + j * nm + of_lam] = 1.0
        y_w[:, s:, nd + i, nw - nd + i] = 1.0
        columns = np.arange(f.nu + len(theta))
        y_s[:, :, 2 * nd + columns, 2 * nd + columns] = 1.0
        end, impulse = q[:, s], steps.h[:, None] * np.einsum("j,njl->nl", rule.b, lam)
        residuals, m_f = self._equations(o, m), m_f.reshape(n, s + 1, nd, s * nd)
        e_w, e_s = q_w[:, s], q_s[:, s]
        return Along(points, curves, end, m[:, s], impulse, residuals, o_y, y_w, y_s, m_w, m_f, m_s, e_w, e_s)

    def _of_rotations(self, rows: np.ndarray) -> np.ndarray:
        """Return the rotational components of arrays (N, s, nd) of N steps.
        The result (N nb, 3 s) has one row for each step and rotation.
        """
        return np.swapaxes(rows[:, :, self._turns], 1, 2).reshape(-1, 3 * rows.shape[1])

    def _equations(self, o: np.ndarray, m: np.ndarray) -> np.ndarray:
        """Return the residuals (N, nw, ...) of the equations of N steps.
        The array o (N, K, no, ...) has the momenta, forces, constraint values and constraint rates at the
        quadrature points. The array m (N, P, nd, ...) has the momenta that follow from the forces, at the
        quadrature points and at the end of the step.

        The residuals are, in this order: the differences of the momenta in o and m at the stages; the
        constraint values h at all points except the first; the difference of the momenta at the end; and the
        constraint rates Dh v at the end.
        """
        s, nd, nm, n = self.rule.stages, self.f.nd, self.f.nm, len(o)
        L_v, _, constraints, rates = np.split(o, np.cumsum([nd, nd, nm]), axis=2)
        rows = [L_v[:, :s] - m[:, :s]]
        if nm:
            rows += [constraints[:, 1:s], L_v[:, s:] - m[:, s:], rates[:, s:]]
        return np.concatenate([e.reshape(n, -1, *o.shape[3:]) for e in rows], axis=1)

    def _momenta_by(self, values: Along, by_y: np.ndarray, direct: np.ndarray) -> np.ndarray:
        """Return the total derivatives (N, P, nd, n) of the momenta along N steps.
        The momenta are those that forces and torques produce at P points of a step: the quadrature points and
        the end. They are differentiated with respect to n variables. The result is the sum of `direct`, the
        derivatives at constant forces, and of the derivatives through the forces. The latter follow from
        `by_y` (N, K, ny, n), the derivatives of the arguments y of the forces.
        """
        n, s, nd = len(direct), self.rule.stages, self.f.nd
        return direct + values.m_f @ (values.o_y[:, :s, nd : 2 * nd] @ by_y[:, :s]).reshape(n, 1, s * nd, -1)

    def slope(self, values: Along) -> np.ndarray:
        """Return the Jacobian (N, nw, nw) of the equations of N steps.
        Its columns are the derivatives with respect to the unknown rates and multipliers.
        """
        return self._equations(values.o_y @ values.y_w, self._momenta_by(values, values.y_w, values.m_w))

    # -- derivatives ------------------------------------------------------------------------------------

    def first(self, steps: Steps, theta: np.ndarray) -> Linearization:
        f, n, s, nd, nm = self.f, len(steps), self.rule.stages, self.f.nd, self.f.nm
        if not n:
            return Linearization.of(np.zeros((0, f.ndx, self.ns)), np.zeros((0, nm, self.ns)), f.nu)
        values, *_, w_s, y = self._chained(steps, theta)
        momenta = self._momenta_by(values, y, values.m_s + values.m_w @ w_s[:, None])[:, s]
        lam = w_s[:, s * nd : s * (nd + nm)].reshape(n, s, nm, self.ns)
        impulses = steps.h[:, None, None] * np.einsum("j,njls->nls", self.rule.b, lam)
        return Linearization.of(
            np.concatenate([values.e_s + values.e_w @ w_s, momenta], axis=1), impulses, f.nu
        )

    def _chained(self, steps: Steps, theta: np.ndarray):
        """Return values and derivatives of the equations of solved steps.
        The results are the values; the Jacobians g_w of the equations and m_w of the required momenta with
        respect to the unknowns w, the rates and multipliers; and the derivatives of w and of the arguments y
        at the points with respect to the step's arguments s. The derivatives of w follow from the implicit
        function theorem.
        """
        values = self.solved(steps, theta)
        m_w, m_s = (
            self._momenta_by(values, values.y_w, values.m_w),
            self._momenta_by(values, values.y_s, values.m_s),
        )
        matrix = self._equations(values.o_y @ values.y_w, m_w)
        w_s = -solved(matrix, self._equations(values.o_y @ values.y_s, m_s))
        return values, matrix, m_w, w_s, values.y_s + values.y_w @ w_s[:, None]

    def second(self, steps: Steps, theta: np.ndarray, Z: np.ndarray, zeta: np.ndarray) -> SecondOrder:
        """Return second derivatives of N steps, contracted with covectors.
        They are the Hessians of Z . x_k+1 + zeta . multipliers for each step, with respect to state, input
        and parameters. Z and zeta are the covectors, one row for each step.

        They are sums of the Hessians of points and curves, weighted by the adjoint.
        """
        f, n, s, nd, nb, ns = self.f, len(steps), self.rule.stages, self.f.nd, self.space.nb, self.ns
        if not n:
            return SecondOrder.of(np.zeros((0, ns, ns)), f.ndx, f.nu)
        values, matrix, m_w, w_s, y = self._chained(steps, theta)
        z_q, z_p, nm, K = Z[:, None, :nd], Z[:, None, nd:], f.nm, self.points
        direct = z_q @ values.e_w + z_p @ m_w[:, s]
        factors = steps.h[:, None, None] * self.rule.b[:, None] * zeta[:, None]
        direct[:, 0, s * nd : s * (nd + nm)] += factors.reshape(n, s * nm)
        mu = -solved(np.swapaxes(matrix, 1, 2), np.swapaxes(direct, 1, 2))[..., 0]
        stages, constraint_weights, end, along = np.split(
            mu, np.cumsum([s * nd, (s - 1) * nm, nd * (nm > 0)]), axis=1
        )
        stages = stages.reshape(n, s, nd)
        of_m = np.concatenate([-stages, z_p], axis=1)  # weights of the momenta (N, P, nd)
        of_o = np.zeros((n, K, 2 * (nd + nm)))
        of_o[:, :s, :nd] = stages
        if nm:
            of_m[:, s] -= end
            of_o[:, s, :nd], of_o[:, s, 2 * nd + nm :] = end, along
            of_o[:, 1:s, 2 * nd : 2 * nd + nm] = constraint_weights.reshape(n, s - 1, nm)
        of_o[:, :s, nd : 2 * nd] = np.einsum("npa,npaw->nw", of_m, values.m_f).reshape(n, s, nd)
        H = self._second(*values.points, of_o.reshape(n * K, -1))[0].reshape(n, K, self.ny, self.ny)
        whole = (np.swapaxes(y, 2, 3) @ H @ y).sum(axis=1)

        of_q = np.zeros((n, s + 1, nd))
        of_q[:, :K] = np.einsum("nko,nkoa->nka", of_o, values.o_y[..., :nd])
        of_q[:, s] += Z[:, :nd]
        by_force = (values.o_y[:, :s, nd : 2 * nd] @ y[:, :s])[:, :, self._turns]  # (N, s, nb, 3, ns)
        by_rate = w_s[:, : s * nd].reshape(n, s, nd, ns)[:, :, self._turns]
        eye = np.broadcast_to(np.eye(ns), (n, ns, ns))
        start = np.stack([eye[:, self._turns], eye[:, nd + self._turns]], axis=2)  # (N, nb, 2, 3, ns)
        rows = [np.swapaxes(e, 1, 2).reshape(n, nb, 3 * s, ns) for e in (by_rate, by_force)]
        curve = np.concatenate([start.reshape(n, nb, 6, ns), *rows], axis=2)
        weights = np.concatenate([self._of_rotations(of_q), self._of_rotations(of_m)], axis=1)
        bends = self._curvature(*values.curves, weights)[0].reshape(n, nb, 6 + 6 * s, 6 + 6 * s)
        whole += (np.swapaxes(curve, 2, 3) @ bends @ curve).sum(axis=1)
        return SecondOrder.of((whole + np.swapaxes(whole, 1, 2)) / 2, f.ndx, f.nu)


class StageEquations(BranchEquations):
    """Equations of one step with several stages, for continuation in its length.
    The unknowns are the rates of the configuration at the stages, the step length times the multipliers, and
    the rates of the configuration at the end.
    """

    def __init__(
        self, of: GroupStageDerivatives, f: GroupVI, x: np.ndarray, u: np.ndarray, t: float, dt: float
    ):
        self.of, self.f, self.x, self.u, self.t, self.dt = of, f, x, u, t, dt
        v0, size = f.velocities(x), abs(dt) / _sizes(f, x[None])[0]
        self.start, self.weights, self.size, self.turns = np.zeros((4, of.nw))
        columns = self.start, self.weights, self.size, self.turns
        turns = np.where(f.turning, abs(dt), 0.0)
        values = np.where(np.isfinite(v0), v0, 0.0), np.sqrt(f.mass_scale), size, turns
        for column, each in zip(columns, values, strict=True):
            V, _, v = of.split(column[None])
            V[:], v[:] = each, each

    def _at(self, w: np.ndarray, share: float) -> tuple[Along, np.ndarray]:
        """Return values and derivatives of the equations of a shortened step.
        The step is shortened to the fraction `share` of its length. The second result has one factor for each
        entry of w. The products of the entries and the factors are the unknowns of the equations.
        """
        length = share * self.dt
        one = self.x[None], self.x[None], self.u[None], np.zeros((1, self.f.nm))
        steps = Steps(*one, np.array([self.t]), np.array([length]), np.zeros(1, int))
        size = np.ones((1, self.of.nw))
        self.of.split(size)[1][:] = 1 / length
        return self.of.at(steps, self.f.theta, w * size), size[0]

    def __call__(self, w: np.ndarray, share: float) -> Linearized:
        values, factors = self._at(w, share)
        return Linearized(values.left[0], self.of.slope(values)[0] * factors)

    def end(self, w: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the next state and the multipliers of a step.
        They are computed from the unknowns w of the step.
        """
        values, _ = self._at(w, 1.0)
        return np.concatenate([values.q[0], values.p[0]]), values.impulse[0]

    def failure(self, root: BranchRoot, k: int, where: str) -> StepError | None:
        if not np.isnan(root.error):
            return None
        return StepError(
            f"{where}. The equations are not finite where the solver stopped: a potential or force is not a "
            "number there, or a body turns too far in the step; use a smaller dt",
            k,
            float(root.error),
            "not finite",
        )


def _by_columns(function: ca.Function) -> ca.Function:
    """Return a CasADi function whose matrix arguments and results are vectors.
    It computes the same as the given function; each vector has the entries of a matrix column by column.
    """
    args = [ca.SX.sym("a", function.numel_in(i)) for i in range(function.n_in())]
    matrices = [ca.reshape(a, *function.size_in(i)) for i, a in enumerate(args)]
    return ca.Function(function.name(), args, [ca.vec(o) for o in function.call(matrices)])


def _sizes(f: GroupVI, X: np.ndarray) -> np.ndarray:
    """Return typical magnitudes (N, nd) of the coordinates in states X (N, nx).
    Small displacements of the coordinates are divided by these magnitudes.
    """
    sizes = np.tile(f.group.natural_sizes, (len(X), 1))
    sizes[:, : f.nr] += np.abs(X[:, : f.nr])
    return sizes
