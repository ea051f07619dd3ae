"""Impacts at a configuration: laws of restitution with friction, energy never rises.

With the momenta b = M v before and the masks of contacts that are closed,

    M v0 = b + P0         constraints, and closed contacts that are not in the impact, hold
    M vc = M v0 + Pc      0 <= N vc perp gamma_c >= 0, friction by vc                        compression
    M ve = M v0 + Pe      0 <= N ve + e min(N v0, 0) perp gamma_e >= 0, friction by ve      Newton
    M ve = M vc + N' e gamma_c + Pe,  0 <= N ve perp gamma_e >= 0,                           Poisson
                          |tau_e| <= mu (e gamma_c + gamma_e)
    v+ = vc + s (ve - vc) with the largest s <= 1 for which T(v+) <= T(v0)

docs/maths/contact_gradients.md, "Restitution".
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import casadi as ca
import numpy as np

from vioc.compile.evaluate import Evaluator
from vioc.dynamics.algebra.vectors import part
from vioc.dynamics.integrators.contact.cones import Variables
from vioc.dynamics.integrators.contact.interior import End, InteriorPoint, Problem, Solution
from vioc.dynamics.integrators.contact.step import condensed
from vioc.dynamics.lagrangian import OPTIONS
from vioc.errors import StepError

if TYPE_CHECKING:
    from vioc.dynamics.integrators.contact.map import ContactVI

SHARP, RUBBED = (1e-14, 1e-12), (1e-10, 1e-8, 1e-6)  # m^2/s^2, smoothing of impacts, tried in this order
AWAY = 1e3  # m/s or rad/s, added to gaps that are open
STAGES = 3


class Struck(NamedTuple):
    """What an impact leads to.

    Attributes
    ----------
    momenta : (nd,)
    multipliers : (nm,)
    solution : tuple
        What its derivatives are taken at.
    """

    momenta: np.ndarray
    multipliers: np.ndarray
    solution: tuple


class ImpactEnd(End):
    """A stage of an impact: velocities V, impulses, cones; given (q, b, offsets, preloads, parameters)."""

    def __init__(self, f: ContactVI):
        touches, nd, count = f.touches.all, f.nd, len(f.touches.all)
        self.rows = len(f.system.constraints)
        goal, speed, dV = ca.SX.sym("goal", 2), ca.SX.sym("speed"), ca.SX.sym("dV", nd)
        q, b, offset, preload = (
            ca.SX.sym(n, size) for n, size in (("q", f.nq), ("b", nd), ("offset", count), ("preload", count))
        )
        theta, V, lam = f.symbols.parameters, ca.SX.sym("V", nd), ca.SX.sym("lambda", self.rows)
        cones = [t.cone.preloaded(preload[i]) for i, t in enumerate(touches)]
        self.variables = Variables(cones)
        own = self.variables.parts.tolist()
        y = ca.SX.sym("y", own[-1])
        M, J, Dh = mechanics(f, q, theta)
        mu, ys = ca.vertsplit(f.touches.friction(theta)), ca.vertsplit(y, own)
        speeds = [gap_and_slip(j, V, offset[i]) for i, j in enumerate(J)]
        each = list(zip(cones, ys, speeds, J, mu, strict=True))
        left = b - M @ V - Dh.T @ lam
        for i, (cone, z, _, j, _) in enumerate(each):
            left = left + j.T @ cone.impulse(z) + j[0, :].T * preload[i]
        found = [condensed(cone, z, w, j, j[0, :], m, goal) for cone, z, w, j, m in each]
        matrix, right = M, left
        for c in found:
            matrix, right = matrix + c.matrix, right + c.right
        zero = ca.SX(self.rows, self.rows)
        whole = ca.vertcat(ca.horzcat(matrix, Dh.T), ca.horzcat(Dh, zero))
        mismatch = [cone.mismatch(z, w, m, goal[1]) for cone, z, w, _, m in each]
        given = [V, lam, y, q, b, offset, preload, theta]

        def function(name: str, more: list, *outputs: Any) -> Evaluator:
            dense = [ca.densify(ca.SX(o)) for o in outputs]
            return Evaluator(ca.Function(name, [*given, *more], dense, OPTIONS))

        stack = ca.vertcat
        self.newton = function("newton", [goal], whole, stack(right, -Dh @ V))
        self.expand = function("expand", [goal, dV], stack(*(c.expand(dV) for c in found)))
        products = (cone.products(z) for cone, z, *_ in each)
        self.residuals = function("residuals", [goal], left, Dh @ V, stack(*mismatch), stack(*products))
        fresh = (cone.begin(w, speed, goal[0], m) for cone, _, w, _, m in each)
        self.begin = function("begin", [speed, goal], stack(*fresh))
        self.multipliers = function("multipliers", [], stack(*(c.multipliers(z) for c, z, *_ in each)))
        self.gaps = function("gaps", [], stack(*(w[0] for w in speeds)))


def mechanics(f: ContactVI, q: Any, theta: Any) -> tuple[Any, list[Any], Any]:
    """M, J of each touch, Dh at configurations, by the dynamic variables."""
    lag, nd = f.lagrangian, f.nd
    g = lag.graph
    M = ca.Function("M", [g.q_vector, g.parameters], [lag.M], OPTIONS)(q, theta)[:nd, :nd]
    J = [row[:, :nd] for row in f.touches.rows(f.touches.held(q, theta))]
    return M, J, f.constraint(q, theta)[1][:, :nd]


def gap_and_slip(J: Any, V: Any, offset: Any) -> Any:
    return ca.vertcat(J[0, :] @ V + offset, J[1:, :] @ V)


class Impact:
    """The impacts of a map with restitution.

    Parameters
    ----------
    f : ContactVI
    restitution : SX (n,)
        Coefficients of all its touches, in its parameters.
    """

    def __init__(self, f: ContactVI, restitution: ca.SX):
        self._f, self._restitution = f, restitution
        scales, rubs = f.lagrangian.mass_scale, any(t.cone.friction for t in f.touches.all)
        self._solvers = {
            level * f.mass: InteriorPoint(f.ends, scales, f.mass, level * f.mass, 1e-11, polish=True)
            for level in (RUBBED if rubs else SHARP)
        }

    @cached_property
    def _end(self) -> ImpactEnd:
        return ImpactEnd(self._f)

    @cached_property
    def _numbers(self) -> Evaluator:
        """(q, b, parameters) -> M^-1 b, N; and coefficients."""
        f = self._f
        q, b, theta = ca.SX.sym("q", f.nq), ca.SX.sym("b", f.nd), f.symbols.parameters
        M, J, _ = mechanics(f, q, theta)
        N = ca.vertcat(*(j[0, :] for j in J))
        outputs = [ca.densify(ca.SX(o)) for o in (M, N, self._restitution)]
        return Evaluator(ca.Function("numbers", [q, b, theta], outputs, OPTIONS))

    def struck(self, q, b, others, closed, struck, theta) -> Struck:
        """At a configuration, of momenta b.

        Masks (n,), 0 or 1: closed contacts that are not in the impact, those and these, these.
        """
        error = np.inf
        for kappa, solver in self._solvers.items():
            z, error = self._stages(solver, q, b, others, closed, struck, theta)
            if error <= 1e-9:
                given = q, b, others, closed, struck, np.array([kappa]), theta, z
                momenta, multipliers = (a[:, 0] for a in self._results(*given))
                return Struck(momenta, multipliers, given)
        names = ", ".join(t.name for t, on in zip(self._f.touches.all, struck, strict=True) if on)
        raise StepError(
            f"an impact of {names} was not solved: residual {error:.2g}", 0, error, "no convergence"
        )

    def _stages(self, solver, q, b, others, closed, struck, theta) -> tuple[np.ndarray, float]:
        """Unknowns of all stages, and the largest error."""
        M, N, e = self._numbers(q, b, theta)
        e = e[:, 0] * struck
        found: list[Solution] = []
        none = np.zeros(len(e))

        def solve(b: np.ndarray, offset: np.ndarray, preload: np.ndarray, guess: np.ndarray) -> Solution:
            size = 1 + float(np.abs(guess).max(initial=0.0))
            with np.errstate(all="ignore"):
                given = q, b, offset, preload, theta
                found.append(solver.solve_end(Problem(self._end, given, guess, 1.0, size)))
            return found[-1]

        first = solve(b, AWAY * (1 - others), none, np.linalg.solve(M, b))
        second = solve(M @ first.V, AWAY * (1 - closed), none, first.V)
        if self._f.impacts == "newton":
            before = np.minimum(N @ first.V, 0.0)
            solve(M @ first.V, AWAY * (1 - closed) + e * before, none, first.V)
        else:
            solve(M @ second.V, AWAY * (1 - closed), e * second.impulses[self._places], second.V)
        return np.concatenate([s.unknowns for s in found]), max(s.error for s in found)

    def derivatives(self, solution: tuple) -> np.ndarray:
        """Of (momenta, multipliers), by (q, momenta before, parameters)."""
        G_y, G_z, X_y, X_z = self._slopes(*solution)
        scale = 1 / np.abs(G_z).max(axis=1, keepdims=True)
        return X_y - X_z @ np.linalg.solve(scale * G_z, scale * G_y)

    @cached_property
    def _places(self) -> np.ndarray:
        """Of normal impulses among those of the touches."""
        sizes = [len(t.multipliers) for t in self._f.touches.all]
        return np.cumsum([0, *sizes[:-1]])

    @cached_property
    def _symbols(self) -> tuple[list[Any], Any, Any]:
        """(q, b, others, closed, struck, kappa, parameters, z), G, X."""
        f, kappa, law = self._f, ca.SX.sym("kappa"), self._f.impacts
        touches, nd, nm, n = f.touches.all, f.nd, len(f.system.constraints), len(f.touches.all)
        q, b, theta = ca.SX.sym("q", f.nq), ca.SX.sym("b", nd), f.symbols.parameters
        others, closed, struck = (ca.SX.sym(name, n) for name in ("others", "closed", "struck"))
        size = nd + len(f.multiplier_names)
        z = ca.SX.sym("z", STAGES * size)
        M, J, Dh = mechanics(f, q, theta)
        mu, e = ca.vertsplit(f.touches.friction(theta)), self._restitution * struck
        Vs, lams, ps = [], [], []
        for own in ca.vertsplit(z, size):
            Vs.append(part(own, 0, nd))
            lams.append(part(own, nd, nd + nm))
            ps.append(part(own, nd + nm))
        none, none_n = AWAY * (1 - closed), ca.SX.zeros(n)
        N = ca.vertcat(*(j[0, :] for j in J))
        gammas = ps[1][self._places.tolist()]
        last = (
            (M @ Vs[0], none + e * ca.fmin(N @ Vs[0], 0), none_n)
            if law == "newton"
            else (M @ Vs[1], none, e * gammas)
        )
        stages = [(b, AWAY * (1 - others), none_n), (M @ Vs[0], none, none_n), last]
        G, ends = [], []
        for V, lam, p, (before, offset, preload) in zip(Vs, lams, ps, stages, strict=True):
            left, laws, place, total = before - M @ V - Dh.T @ lam, [], 0, []
            for i, (touch, j, m) in enumerate(zip(touches, J, mu, strict=True)):
                own, w = part(p, place, place + len(touch.multipliers)), gap_and_slip(j, V, offset[i])
                place += len(touch.multipliers)
                loaded = ca.vertcat(own[0] + preload[i], part(own, 1))
                left = left + j.T @ loaded[: j.shape[0]]
                law_rows = touch.cone.law(loaded, w, kappa, m)
                laws.append(ca.vertcat(w[0] * own[0] - kappa, part(law_rows, 1)))
                total.append(loaded)
            G += [left, Dh @ V, *laws]
            ends.append(ca.vertcat(lam, *total))
        d = Vs[2] - Vs[1]
        slack = 0.5 * (ca.dot(Vs[0], M @ Vs[0]) - ca.dot(Vs[1], M @ Vs[1]))
        half, a = 0.5 * ca.dot(d, M @ d), ca.dot(Vs[1], M @ d)
        root = 2 * slack / (a + ca.sqrt(ca.fmax(a * a + 4 * half * slack, 0) + 1e-300))
        s = ca.if_else(half + a <= slack * (1 + 1e-12), 1.0, root)
        change = ends[2] - ends[1] if law == "newton" else ends[2]
        slips = np.array([name.endswith(".slip") for name in f.multiplier_names])
        sums = ends[0] + ends[1] + s * change
        kept = [ends[2][i] if slip else sums[i] for i, slip in enumerate(slips)]
        X = ca.vertcat(M @ (Vs[1] + s * d), *kept)
        return [q, b, others, closed, struck, kappa, theta, z], ca.vertcat(*G), X

    @cached_property
    def _results(self) -> Evaluator:
        args, _, X = self._symbols
        return Evaluator(ca.Function("struck", args, [X[: self._f.nd], X[self._f.nd :]], OPTIONS))

    @cached_property
    def _slopes(self) -> Evaluator:
        args, G, X = self._symbols
        y = ca.vertcat(args[0], args[1], args[6])
        outputs = [ca.densify(ca.jacobian(r, v)) for r in (G, X) for v in (y, args[-1])]
        return Evaluator(ca.Function("slopes", args, outputs, OPTIONS))
