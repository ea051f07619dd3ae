"""Exact first and second derivatives of steps on the group by Gauss's points, for many steps at once.

At a point are evaluated o = (L_v, f), functions of y = (errors of the configuration, rates, inputs,
parameters); along a rotation's curve its turns and momenta (`Curves.errors`), the same for every mechanism.
CasADi differentiates these once and twice; the rest runs on stacks of matrices, with the rates V of the
points as unknowns, of

    g = L_v - m(s, V, f) = 0,    D_s V = -g_V^-1 g_s,                                                     (11)

and the second order by the adjoint of g (docs/maths/groups.md).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, NoReturn

import casadi as ca
import numpy as np

from vioc.compile.evaluate import Evaluator
from vioc.dynamics.algebra import rotations as rot
from vioc.dynamics.integrators.groups.curves import Curves
from vioc.dynamics.integrators.newton import Equations, Iterate, Solution
from vioc.dynamics.lagrangian import OPTIONS
from vioc.errors import StepError
from vioc.maps.derivatives import Linearization, SecondOrder, Steps

if TYPE_CHECKING:
    from vioc.dynamics.integrators.groups.map import GroupVI

FOUND = 1e-8  # how near to where a step led the rates that are found again must lead, relative


class Along(NamedTuple):
    """N steps at rates V of their s points, P = s + 1 with the end.

    Attributes
    ----------
    points, curves : list of arrays
        Arguments of what is evaluated at points (N s, ...) and along curves (N nb, ...).
    q, p : (N, nq), (N, nd)
        The end.
    left : (N, s nd)
        g.
    y_V, y_s : (N, s, ny, s nd), (N, s, ny, ns)
        All that points depend on, by the rates and at fixed rates.
    o_y : (N, s, 2 nd, ny)
    m_V, m_f, m_s : (N, P, nd, s nd), (N, P, nd, s nd), (N, P, nd, ns)
        Momenta that points must have, and at the end, by rates, f and s.
    e_V, e_s : (N, nd, s nd), (N, nd, ns)
        Errors of the configuration at the end.
    """

    points: list[np.ndarray]
    curves: list[np.ndarray]
    q: np.ndarray
    p: np.ndarray
    left: np.ndarray
    y_V: np.ndarray
    y_s: np.ndarray
    o_y: np.ndarray
    m_V: np.ndarray
    m_f: np.ndarray
    m_s: np.ndarray
    e_V: np.ndarray
    e_s: np.ndarray

    def chained(self, by_y: np.ndarray, by: np.ndarray, nd: int) -> np.ndarray:
        """Slopes (N, P, nd, n) of momenta: `by` of their own, and of f, which y moves by `by_y`."""
        n, s = by_y.shape[:2]
        f = (self.o_y[:, :, nd:] @ by_y).reshape(n, 1, s * nd, by_y.shape[3])
        return by + self.m_f @ f


class StageDerivatives:
    """Derivatives of the steps of a `GroupVI` of several stages.

    s = (errors of the state, inputs, parameters), ns of them.
    """

    def __init__(self, f: GroupVI, curves: Curves):
        self.f, self.space, self.rule, s = f, f.space, curves.rule, curves.rule.stages
        nd, nq, nu = f.nd, f.nq, f.nu
        self.ny, self.ns = 2 * nd + nu + len(f.parameters), f.ndx + nu + len(f.parameters)
        self._path, self._momenta = (
            Evaluator(_by_columns(curves.path)),
            Evaluator(_by_columns(curves.momenta)),
        )
        self._slopes, self._curvature = Evaluator(curves.slopes), Evaluator(curves.curvature)
        self._velocity = Evaluator(f.group.velocity)
        q, error, v, u = (ca.SX.sym(n, m) for n, m in (("q", nq), ("e", nd), ("v", nd), ("u", nu)))
        t, theta, nothing = ca.SX.sym("t"), ca.SX.sym("theta", len(f.parameters)), ca.SX.zeros(nd)
        there = f.retract_expression(ca.vertcat(q, nothing), ca.vertcat(error, nothing))[:nq]
        L_v, L_q, F, *_ = f.group.terms(there, v, u, t, theta)
        o, y, args = ca.vertcat(L_v, L_q + F), ca.vertcat(error, v, u, theta), [q, v, u, t, theta]
        weights = ca.SX.sym("weights", 2 * nd)

        def first() -> ca.Function:
            found = ca.substitute([o, ca.jacobian(o, y)], [error], [nothing])
            return ca.Function("points", args, [*map(ca.densify, found)], OPTIONS)

        def second() -> ca.Function:
            H = ca.substitute(ca.hessian(ca.dot(weights, o), y)[0], error, nothing)
            return ca.Function("points_second", [*args, weights], [ca.densify(H)], OPTIONS)

        self._first = Evaluator(f.backend.program(first, "points"))
        self._second = Evaluator(f.backend.program(second, "points_second"))
        self._turns = np.arange(f.nr, nd).reshape(-1, 3)  # of rotations among the degrees of freedom
        self.size = s * nd

    # -- rates of solved steps ------------------------------------------------------------------------

    def solved(self, steps: Steps, theta: np.ndarray) -> Along:
        """Steps along their rates, by Newton's method from those of their ends.

        Raises
        ------
        StepError
            Where it does not end, or leads elsewhere than the step.
        """
        f, c = self.f, self.rule.c[:, None]
        v0, v1 = (self._velocity(x[:, : f.nq], x[:, f.nq :], theta)[0] for x in (steps.x0, steps.x1))
        V = (v0.reshape(-1, 1, f.nd) * (1 - c) + v1.reshape(-1, 1, f.nd) * c).reshape(-1, self.size)
        scale = steps.h / (1 + np.abs(steps.x0[:, : f.nr]).max(axis=1, initial=0.0))
        last = np.inf
        for _ in range(30):
            at = self.at(steps, theta, V)
            try:
                by = np.linalg.solve(self.slope(at), at.left[..., None])[..., 0]
            except np.linalg.LinAlgError:
                break
            V = V - by
            moved = (np.abs(by).max(axis=1, initial=0.0) * scale).max(initial=0.0)
            if moved <= 1e-13 or (moved <= 1e-9 and moved >= 0.5 * last):
                self._check(steps, at)
                return at
            last = moved
        self._fail(steps, int(np.argmax(np.abs(at.left).max(axis=1))), float(last))

    def _check(self, steps: Steps, at: Along) -> None:
        """Equations may have other roots, which lead elsewhere."""
        x1 = np.concatenate([at.q, at.p], axis=1)
        off = np.abs(self.f.difference(steps.x1, x1)).max(axis=1) / (1 + np.abs(steps.x1).max(axis=1))
        worst = int(np.argmax(off))
        if not off[worst] <= FOUND:
            self._fail(steps, worst, float(off[worst]))

    def _fail(self, steps: Steps, i: int, left: float) -> NoReturn:
        raise StepError(
            f"step {int(steps.k[i])}: the rates at the points of a solved step were not found again; use a "
            "smaller dt",
            int(steps.k[i]),
            left,
            "no convergence",
        )

    # -- what a step evaluates ------------------------------------------------------------------------

    def at(self, steps: Steps, theta: np.ndarray, V: np.ndarray) -> Along:
        """Steps along rates V (N, s nd)."""
        f, rule, n, s = self.f, self.rule, len(steps), self.rule.stages
        nr, nd, nq, nb, nu, ns = f.nr, f.nd, f.nq, self.space.nb, f.nu, self.ns
        V, h = V.reshape(n, s, nd), steps.h[:, None, None]
        weights, pushes = (np.concatenate([a, rule.b[None]]) for a in (rule.A, rule.Ab))  # (P, s)
        r0, s0, p0 = self.space.split(steps.x0)
        lengths = np.repeat(steps.h, nb)[:, None]
        rates = np.swapaxes(V[:, :, self._turns], 1, 2).reshape(n * nb, 3 * s)
        path = np.concatenate([e.reshape(n * nb, -1) for e in self._path(rates, lengths)], axis=1)
        path = path.reshape(n, nb, s + 1, 4)
        r = r0[:, None] + h * (weights @ V[:, :, :nr])
        attitudes = np.swapaxes(rot.product(s0[:, :, None], path), 1, 2).reshape(n, s + 1, 4 * nb)
        q = np.concatenate([r, attitudes], axis=2)
        times = (steps.t[:, None] + rule.c * steps.h[:, None]).reshape(-1, 1)
        inputs = np.repeat(steps.u, s, axis=0)
        points = [q[:, :s].reshape(n * s, nq), V.reshape(n * s, nd), inputs, times, theta]
        o, o_y = self._first(*points)
        o, o_y = o.reshape(n, s, 2 * nd), o_y.reshape(n, s, 2 * nd, self.ny)

        force = o[:, :, nd:]
        torques = np.swapaxes(force[:, :, self._turns], 1, 2).reshape(n * nb, 3 * s)
        pi = p0[:, self._turns].reshape(n * nb, 3)
        curves = [np.concatenate([np.zeros_like(pi), pi, rates, torques], axis=1), lengths]
        curves.append(path.reshape(n * nb, -1))
        of_turns, of_momenta = (e.reshape(n, nb, s + 1, 3, -1) for e in self._slopes(*curves))
        found = [e.reshape(n, nb, -1, 3) for e in self._momenta(rates, torques, pi, lengths)]
        m = np.empty((n, s + 1, nd))
        m[:, :, :nr] = p0[:, None, :nr] + h * (pushes @ force[:, :, :nr])
        m[:, :, nr:] = np.swapaxes(np.concatenate(found, axis=2), 1, 2).reshape(n, s + 1, 3 * nb)

        k, turns = np.arange(nr), self._turns
        q_V, m_V, m_f = np.zeros((3, n, s + 1, nd, s, nd))
        q_s, m_s = np.zeros((2, n, s + 1, nd, ns))
        q_V[:, :, k, :, k], m_f[:, :, k, :, k] = h * weights, h * pushes
        q_s[:, :, k, k] = m_s[:, :, k, nd + k] = 1.0
        for b, mine in enumerate(turns):
            of_q, of_m = (np.split(e[:, b], [3, 6, 6 + 3 * s], axis=-1) for e in (of_turns, of_momenta))
            q_s[:, :, mine[:, None], mine] = of_q[0]
            m_s[:, :, mine[:, None], nd + mine] = of_m[1]
            for j in range(s):
                each = slice(3 * j, 3 * j + 3)
                q_V[:, :, mine[:, None], j, mine] = of_q[2][..., each]
                m_V[:, :, mine[:, None], j, mine] = of_m[2][..., each]
                m_f[:, :, mine[:, None], j, mine] = of_m[3][..., each]
        q_V, m_V, m_f = (e.reshape(n, s + 1, nd, s * nd) for e in (q_V, m_V, m_f))
        y_V, y_s, i = np.zeros((n, s, self.ny, s * nd)), np.zeros((n, s, self.ny, ns)), np.arange(nd)
        y_V[:, :, :nd], y_s[:, :, :nd] = q_V[:, :s], q_s[:, :s]
        for j in range(s):
            y_V[:, j, nd + i, j * nd + i] = 1.0
        rest = np.arange(nu + len(theta))
        y_s[:, :, 2 * nd + rest, 2 * nd + rest] = 1.0
        left = (o[:, :, :nd] - m[:, :s]).reshape(n, -1)
        return Along(
            points, curves, q[:, s], m[:, s], left, y_V, y_s, o_y, m_V, m_f, m_s, q_V[:, s], q_s[:, s]
        )

    def slope(self, at: Along) -> np.ndarray:
        """g_V (N, s nd, s nd)."""
        return self._balance(at, at.y_V, at.chained(at.y_V, at.m_V, self.f.nd))

    def _balance(self, at: Along, by_y: np.ndarray, momenta: np.ndarray) -> np.ndarray:
        n, s, nd = len(at.left), self.rule.stages, self.f.nd
        return (at.o_y[:, :, :nd] @ by_y - momenta[:, :s]).reshape(n, s * nd, -1)

    # -- derivatives ------------------------------------------------------------------------------------

    def first(self, steps: Steps, theta: np.ndarray) -> Linearization:
        *_, end = self._chained(steps, theta) if len(steps) else [np.zeros((0, self.f.ndx, self.ns))]
        return Linearization.of(end, np.zeros((len(steps), 0, self.ns)), self.f.nu)

    def _chained(self, steps: Steps, theta: np.ndarray):
        """Steps along their rates, g_V, the rates, y and f by s, and errors at the end by s (N, ndx, ns)."""
        s, nd = self.rule.stages, self.f.nd
        at = self.solved(steps, theta)
        by_V, by_s = at.chained(at.y_V, at.m_V, nd), at.chained(at.y_s, at.m_s, nd)
        matrix = self._balance(at, at.y_V, by_V)
        V_s = -np.linalg.solve(matrix, self._balance(at, at.y_s, by_s))
        y = at.y_s + at.y_V @ V_s[:, None]
        end = np.concatenate([at.e_s + at.e_V @ V_s, by_s[:, s] + by_V[:, s] @ V_s], axis=1)
        return at, matrix, by_V, V_s, y, end

    def second(self, steps: Steps, theta: np.ndarray, Z: np.ndarray, zeta: np.ndarray) -> SecondOrder:
        """Hessian of Z . x_k+1: those of points and curves by the adjoint's weights, along s."""
        f, n, s, nd, nb, ns = self.f, len(steps), self.rule.stages, self.f.nd, self.space.nb, self.ns
        if not n:
            return SecondOrder.of(np.zeros((0, ns, ns)), f.ndx, f.nu)
        at, matrix, by_V, V_s, y, _ = self._chained(steps, theta)
        z_q, z_p = Z[:, None, :nd], Z[:, None, nd:]
        direct = z_q @ at.e_V + z_p @ by_V[:, s]
        mu = -np.linalg.solve(np.swapaxes(matrix, 1, 2), np.swapaxes(direct, 1, 2))[..., 0]
        of_m = np.concatenate([-mu.reshape(n, s, nd), z_p], axis=1)  # weights of momenta (N, P, nd)
        of_f = np.einsum("npa,npaw->nw", of_m, at.m_f).reshape(n, s, nd)
        of_o = np.concatenate([mu.reshape(n, s, nd), of_f], axis=2)
        H = self._second(*at.points, of_o.reshape(n * s, -1))[0].reshape(n, s, self.ny, self.ny)
        whole = (np.swapaxes(y, 2, 3) @ H @ y).sum(axis=1)

        of_q = np.concatenate([np.einsum("nso,nsoa->nsa", of_o, at.o_y[..., :nd]), z_q], axis=1)
        by_force = (at.o_y[:, :, nd:] @ y)[:, :, self._turns]  # (N, s, nb, 3, ns)
        by_rate = V_s.reshape(n, s, nd, ns)[:, :, self._turns]
        eye = np.broadcast_to(np.eye(ns), (n, ns, ns))
        start = np.stack([eye[:, self._turns], eye[:, nd + self._turns]], axis=2)  # (N, nb, 2, 3, ns)
        along = [np.swapaxes(e, 1, 2).reshape(n, nb, 3 * s, ns) for e in (by_rate, by_force)]
        curve = np.concatenate([start.reshape(n, nb, 6, ns), *along], axis=2)
        weights = [np.swapaxes(w[:, :, self._turns], 1, 2).reshape(n * nb, -1) for w in (of_q, of_m)]
        bends = self._curvature(*at.curves, np.concatenate(weights, axis=1))[0]
        bends = bends.reshape(n, nb, 6 + 6 * s, 6 + 6 * s)
        whole += (np.swapaxes(curve, 2, 3) @ bends @ curve).sum(axis=1)
        return SecondOrder.of((whole + np.swapaxes(whole, 1, 2)) / 2, f.ndx, f.nu)


class StageEquations(Equations):
    """The equations of the step of a `GroupVI` of several stages from x under u at time t, for h V."""

    def __init__(self, of: StageDerivatives, x: np.ndarray, u: np.ndarray, t: float, theta: np.ndarray):
        self.of, self.x, self.u, self.t, self.theta = of, x, u, t, theta
        self.start = np.zeros(of.size)

    def _at(self, z: np.ndarray, dt: float) -> Along:
        one = self.x[None], self.x[None], self.u[None], np.zeros((1, 0))
        steps = Steps(*one, np.array([self.t]), np.array([dt]), np.zeros(1, int))
        return self.of.at(steps, self.theta, z[None] / dt)

    def __call__(self, z: np.ndarray, dt: float) -> Iterate:
        f, at = self.of.f, self._at(z, dt)
        matrix = self.of.slope(at)[0] / dt
        size = np.tile(
            np.concatenate([1 + np.abs(self.x[: f.nr]), np.ones(f.nd - f.nr)]), self.of.rule.stages
        )
        scale = np.abs(np.diag(matrix)) * size
        return Iterate(at.left[0], matrix, np.where(scale > 0, scale, np.abs(matrix) @ size + 1e-300))

    def end(self, z: np.ndarray, dt: float) -> np.ndarray:
        """x_k+1."""
        at = self._at(z, dt)
        return np.concatenate([at.q[0], at.p[0]])

    def failure(self, found: Solution, k: int, dt: float, where: str) -> StepError | None:
        if np.isfinite(found.error):
            return None
        return StepError(
            f"{where}. The equations are not finite where the solver stopped: a potential or force is not a "
            "number there, or a body turns too far in the step; use a smaller dt",
            k,
            float(found.error),
            "not finite",
        )


def _by_columns(function: ca.Function) -> ca.Function:
    """The same function of columns, as rows of arrays are."""
    args = [ca.SX.sym("a", function.numel_in(i)) for i in range(function.n_in())]
    given = [ca.reshape(a, *function.size_in(i)) for i, a in enumerate(args)]
    return ca.Function(function.name(), args, [ca.vec(o) for o in function.call(given)], OPTIONS)
