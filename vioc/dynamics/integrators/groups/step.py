"""The equations of a step on the group, and the chord iteration that solves them (docs/maths/groups.md).

The unknowns are the increments w = (dr, xi); constraint impulses enter linearly and are eliminated. Factors
are those of the seed: of the exact derivative by w, or, of long trees, of the mass matrix by sweeps.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import casadi as ca
import numpy as np

from vioc.dynamics.algebra import rotations as rot
from vioc.dynamics.algebra import vectors as vec
from vioc.dynamics.algebra.sparse_lu import Saddle, SparseLU, scalars
from vioc.dynamics.algebra.vectors import part
from vioc.dynamics.integrators.chord import root
from vioc.dynamics.integrators.groups.derivatives import GroupDerivatives
from vioc.dynamics.lagrangian import OPTIONS
from vioc.errors import StepError

if TYPE_CHECKING:
    from vioc.dynamics.integrators.groups.map import GroupVI

# Correction of w relative to 1 + |r_k|: increments, unlike configurations, are found to their own rounding;
# what is left of them turns the momentum of a body whose frame is not at its centre of mass
CONVERGED = 3e-16
MANY = 40  # corrections by Newton's method, of a step that tries harder


class Middle(NamedTuple):
    """What a step is made of, as expressions (nd,), without constraints: `balance` (3), and `impulse`, which
    p gains over the step: of r, and of rotations in the axes of the middle.
    """

    balance: ca.SX
    impulse: ca.SX


class GroupStep:
    """Steps of a `GroupVI`."""

    def __init__(self, f: GroupVI):
        self.f, self.space, self.group = f, f.space, f.group

    # -- the equations ------------------------------------------------------------------------------

    def middle(self, x: Any, w: Any, u: Any, t: Any, dt: Any, theta: Any) -> Middle:
        nr, half, space = self.space.nr, dt / 2, self.space
        whole = [rot.turn(xi, 1.0) for xi in space.turns(w)]
        halves = [*map(rot.halfway, whole)]
        middles = [rot.multiply(s, h) for s, h in zip(space.quaternions(x), halves, strict=True)]
        q = ca.vertcat(x[:nr] + w[:nr] / 2, *(e for m in middles for e in m))
        L_v, L_q, F, *_ = self.group.terms(q, w / dt, u, t + half, theta)
        p = part(x, space.nq, space.nq + space.nd)
        balance = [part(p + half * (L_q + F) - L_v, 0, nr)]
        turns = (space.turns(e) for e in (w, p, L_v, L_q, F))
        for (c, *v), h, xi, pi, own, n, f in zip(whole, halves, *turns, strict=True):
            by_turn = vec.add(n, vec.scale(1 / (1 + c), vec.cross(v, n)))  # tan(|xi|/4)/|xi| xi x n
            kick = vec.add(by_turn, rot.turned(h, f))
            leaving = rot.straightened(own, xi, 1.0, 1.0)
            balance.append(vec.column(vec.sub(vec.add(pi, vec.scale(half, kick)), leaving)))
        return Middle(ca.vertcat(*balance), dt * (L_q + F))

    def end(self, x: Any, w: Any, p: Any, impulse: Any) -> tuple[ca.SX, ca.SX]:
        """q_k+1, p_k+1 (4), (5); `p` is the start's momentum less what constraints take of it."""
        nr, space = self.space.nr, self.space
        q1, p1 = [x[:nr] + w[:nr]], [part(p + impulse, 0, nr)]
        triples = (space.turns(e) for e in (w, p, impulse))
        for s, xi, pi, kick in zip(space.quaternions(x), *triples, strict=True):
            turn = rot.turn(xi, 1.0)
            q1 += rot.advanced(s, turn)
            back = rot.turned(rot.conjugate(turn), pi)
            p1.append(vec.column(vec.add(back, rot.turned(rot.conjugate(rot.halfway(turn)), kick))))
        return ca.vertcat(*q1), ca.vertcat(*p1)

    @cached_property
    def equations(self) -> tuple[ca.Function, ca.Function]:
        """(z = (w, multipliers), x, u, t, dt, parameters) -> (3) and h(q_k+1); and their derivative by z."""
        f, nd = self.f, self.space.nd
        z, (x, u, t, dt, theta) = ca.SX.sym("z", nd + f.nm), self._context()
        w, nothing = z[:nd], ca.SX(nd, 1)
        balance = self.middle(x, w, u, t, dt, theta).balance
        q1 = self.end(x, w, nothing, nothing)[0]
        h, Dh = self.group.constraint(q1, theta)[0], self.group.constraint(x[: f.nq], theta)[1]
        rows = ca.vertcat(balance - Dh.T @ part(z, nd), h) if f.nm else balance
        args = [z, x, u, t, dt, theta]
        slope = ca.densify(ca.jacobian(rows, z))
        return ca.Function("balance", args, [rows], OPTIONS), ca.Function("slope", args, [slope], OPTIONS)

    def _context(self) -> list[ca.SX]:
        """x, u, t, dt, parameters."""
        f = self.f
        sizes = ("x", f.nx), ("u", f.nu), ("t", 1), ("dt", 1), ("theta", len(f.parameters))
        return [ca.SX.sym(*each) for each in sizes]

    def residual(self) -> ca.Function:
        """(x, u, x_next, multipliers, t, dt, parameters) -> (nx + nm,): (3), quaternions' norms, h, (5)."""
        f, space = self.f, self.space
        x, u, lam, theta, dt = f.symbols
        x1, t = ca.SX.sym("x_next", f.nx), ca.SX.sym("t")
        turns: list[Any] = []
        norms: list[Any] = []
        for a, b in zip(space.quaternions(x), space.quaternions(x1), strict=True):
            sign = ca.if_else(sum(m * n for m, n in zip(a, b, strict=True)) < 0, -1.0, 1.0)
            turns += rot.spin(a, tuple(sign * e for e in b))
            norms.append(sum(e * e for e in b) - 1)
        w = ca.vertcat(x1[: space.nr] - x[: space.nr], *turns)
        step = self.middle(x, w, u, t, dt, theta)
        h, push = ca.SX(0, 1), ca.SX.zeros(space.nd)
        if f.nm:
            h = self.group.constraint(x1[: space.nq], theta)[0]
            push = self.group.constraint(x[: space.nq], theta)[1].T @ lam
        _, p1 = self.end(x, w, part(x, space.nq) - push, step.impulse)
        rows = ca.vertcat(step.balance - push, *norms, h, part(x1, space.nq) - p1)
        return ca.Function("residual", [x, u, x1, lam, t, dt, theta], [rows], OPTIONS)

    # -- their solution -----------------------------------------------------------------------------

    @cached_property
    def _chord(self) -> tuple[ca.Function, ca.Function]:
        """(x, seed, ...) -> (start y, factors), and (y, x, ..., factors) -> (g, w, impulse, multipliers,
        |g|), with w = y (1 + |r_k|), or y of rotations, and g the correction of y with opposite sign.
        """
        f, nd, nr, group = self.f, self.space.nd, self.space.nr, self.group
        x, u, t, dt, theta = context = self._context()
        seed, y = ca.SX.sym("seed", nd), ca.SX.sym("y", nd)
        size = ca.vertcat(1 + ca.fabs(x[:nr]), ca.SX.ones(nd - nr))
        ahead = self.end(x, seed / 2, ca.SX(nd, 1), ca.SX(nd, 1))[0] if group.long else None
        if ahead is not None:
            D: Any = group.swept(ahead, seed / dt, u, t + dt / 2, dt, theta)
        else:
            slope = self.equations[1](ca.vertcat(seed, ca.SX(f.nm, 1)), x, u, t, dt, theta)
            D = SparseLU(scalars(slope[:nd, :nd][group.place_of, group.place_of]))
        J0, J1 = self._constraint_slopes(x, seed, theta)
        factored = Saddle(D, J1, J0)
        factors = ca.vertcat(*factored.entries())
        factorize = ca.Function("factorize", [x, seed, u, t, dt, theta], [seed / size, factors], OPTIONS)

        numbers, w = ca.SX.sym("numbers", factors.numel()), y * size
        step = self.middle(x, w, u, t, dt, theta)
        h = group.constraint(self.end(x, w, ca.SX(nd, 1), ca.SX(nd, 1))[0], theta)[0]
        solver = factored.with_entries(ca.vertsplit(numbers))
        solved, multipliers = solver.solve(group.theirs(ca.vertsplit(-step.balance)), ca.vertsplit(-h))
        correction = group.ours(solved)
        g = -correction / size
        outputs = [g, w + correction, step.impulse, vec.column(multipliers), ca.norm_2(g)]
        args = [y, *context, numbers]
        return factorize, ca.Function("iterate", args, [*map(ca.densify, outputs)], OPTIONS)

    def _constraint_slopes(self, x: Any, w: Any, theta: Any) -> tuple[list, list]:
        """Dh where impulses act, and the derivative of h(q_k+1) by w; rows of columns in the twin's order."""
        if not self.f.nm:
            return [], []
        nd, place = self.space.nd, self.group.place_of
        Dh = self.group.constraint(x[: self.f.nq], theta)[1]
        ends = self.equations[1](ca.vertcat(w, ca.SX(self.f.nm, 1)), x, *self._nothing(theta))[nd:, :nd]
        return scalars(Dh[:, place]), scalars(ends[:, place])

    def _nothing(self, theta: Any) -> list[Any]:
        """An input, time and step, for what does not depend on them."""
        return [ca.SX(self.f.nu, 1), 0, 1, theta]

    @cached_property
    def _finish(self) -> ca.Function:
        """(x, w, impulse, multipliers, parameters) -> x_next."""
        f, nd = self.f, self.space.nd
        x, _, _, _, theta = self._context()
        w, impulse, lam = (ca.SX.sym(n, m) for n, m in (("w", nd), ("impulse", nd), ("lambda", f.nm)))
        p = part(x, self.space.nq, self.space.nq + nd)
        if f.nm:
            p = p - self.group.constraint(x[: f.nq], theta)[1].T @ lam
        q1, p1 = self.end(x, w, p, impulse)
        return ca.Function("finish", [x, w, impulse, lam, theta], [ca.vertcat(q1, p1)], OPTIONS)

    def solved(self, robust: bool = False) -> ca.Function:
        """(x, seed, u, t, dt, parameters) -> (x_next, multipliers, error); the seed is one of w.

        `robust` goes on from it by Newton's method.
        """
        args, (x_next, _, multipliers, error) = self._solution(robust)
        return ca.Function("solved_step", args, [x_next, multipliers, error])

    def _solution(self, robust: bool) -> tuple[list[ca.MX], tuple[ca.MX, ...]]:
        """Arguments of `solved`, and x_next, w, multipliers, error."""
        x, u, t, dt, theta = map(_mx, self._context())
        seed, nd = ca.MX.sym("seed", self.space.nd), self.space.nd
        if robust:
            w, impulse, multipliers, error = self._newton(x, seed, u, t, dt, theta)
        else:
            factorize, iterate = self._chord
            start, numbers = factorize(x, seed, u, t, dt, theta)
            _, w, impulse, multipliers, error = root(nd, iterate, CONVERGED)(
                start, x, u, t, dt, theta, numbers
            )
        x_next = self._finish(x, w, impulse, multipliers, theta)
        error = ca.if_else(ca.sumsqr(x_next) < ca.inf, error, ca.inf)  # not a number from half a turn on
        return [x, seed, u, t, dt, theta], (x_next, w, multipliers, error)

    def kernel(self, robust: bool = False) -> ca.Function:
        """(carry, u, t, dt, parameters) -> (carry_next, multipliers, error).

        The carry is x, w_k-1/dt and w_k-2/dt, of which the seed is extrapolated; of one that tries harder it
        is the first of them.
        """
        nx, nd = self.f.nx, self.space.nd
        carry, (_, u, t, dt, theta) = ca.MX.sym("carry", nx + 2 * nd), map(_mx, self._context())
        x, v, before = carry[:nx], carry[nx : nx + nd], carry[nx + nd :]
        seed = dt * v if robust else dt * (2 * v - before)
        args, found = self._solution(robust)
        solution = ca.Function("solution", args, [*found])
        x_next, w, multipliers, error = solution(x, seed, u, t, dt, theta)
        outputs = [ca.vertcat(x_next, w / dt, v), multipliers, error]
        return ca.Function("group_step", [carry, u, t, dt, theta], outputs)

    def _newton(self, x: Any, w: Any, u: Any, t: Any, dt: Any, theta: Any) -> tuple[Any, Any, Any, Any]:
        """w, impulse, multipliers and the last correction, by Newton's method."""
        (rows, slope), nd = self.equations, self.space.nd
        z = change = ca.vertcat(w, ca.MX(self.f.nm, 1))
        for _ in range(MANY):
            args = z, x, u, t, dt, theta
            change = -ca.solve(slope(*args), rows(*args), "qr")
            z = z + change
        own = self._context()
        own.insert(1, ca.SX.sym("w", nd))
        impulse = ca.Function("impulse", own, [self.middle(*own).impulse], OPTIONS)
        error = ca.norm_2(change[:nd]) / (1 + ca.norm_2(z[:nd]))
        return z[:nd], impulse(x, z[:nd], u, t, dt, theta), z[nd:], error

    # -- of a map, whose parameters are its own ---------------------------------------------------------

    @cached_property
    def derivatives(self) -> GroupDerivatives:
        return GroupDerivatives(self.f)

    def carry(self, f: GroupVI, x: np.ndarray, before: np.ndarray, dt: float | np.ndarray) -> np.ndarray:
        states, rates = [x, *before[::-1]][:3], []
        for earlier, later in zip(states[1:], states, strict=False):
            rates.append(f.difference(earlier, later)[..., : f.nd] / np.asarray(dt)[..., None])
        if not rates:
            v = f.velocities(x)
            rates.append(np.where(np.isfinite(v).all(axis=-1, keepdims=True), v, 0.0))
        return np.concatenate([x, *rates, *rates[-1:] * (2 - len(rates))], axis=-1)

    def rescued(self, f: GroupVI, x: np.ndarray, u: np.ndarray, k: int, t: float, dt: float):
        carry = f.carry(x, x[None][:0], dt)
        after, impulses, error = self._robust(carry, u, t, dt, f.theta)
        left = float(error)
        if left <= f.tolerance:
            return np.array(after).ravel()[: f.nx], np.array(impulses).ravel()
        raise StepError(
            f"step {k} (t = {t:.6g} s, dt = {dt:g} s) did not converge: the last correction is {left:.2g}, "
            f"at most {f.tolerance:g} expected; a body turns by less than half a turn in a step: less dt",
            k,
            left,
            "no convergence",
        )

    @cached_property
    def _robust(self) -> ca.Function:
        return self.kernel(robust=True)


def _mx(symbol: ca.SX) -> ca.MX:
    return ca.MX.sym(symbol.name() if symbol.numel() == 1 else "a", symbol.numel())
