"""Equations of a midpoint step on SO(3)^n x R^m, and their simplified Newton (chord) iteration.

The unknowns are the increments w = (dr, xi); constraint impulses enter linearly and are eliminated. The
iteration uses the factors at the initial guess: those of the exact derivative by w or, for long trees, those
of the mass matrix from recursions over the tree. Equation numbers refer to docs/maths/groups.md.
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
from vioc.dynamics.integrators.branch_equations import BranchEquations, BranchRoot, Linearized
from vioc.dynamics.integrators.chord import (
    CONTRACTION,
    CONTRACTION_OF_MASS,
    contracting,
    memory_at_first,
    root,
    signs,
)
from vioc.dynamics.integrators.continuation import Context, Mean, Root, left_by, with_continuation
from vioc.dynamics.integrators.groups.group_derivatives import GroupDerivatives
from vioc.dynamics.integrators.newton import PASSING, singular_ahead, solve_step
from vioc.dynamics.integrators.predictor import far
from vioc.errors import StepError

if TYPE_CHECKING:
    from vioc.dynamics.integrators.groups.group_vi import GroupVI

# Correction of w relative to 1 + |r_k|. Increments, unlike configurations, are solved to their own rounding:
# their errors rotate the momentum of a body whose frame is not at its centre of mass
CONVERGED = 3e-16


class Middle(NamedTuple):
    """Momentum balance of a midpoint step, and the impulse of all forces in it.
    The shape is (nd,) for each. The impulses of constraints are not included.

    The field `balance` is the momentum balance, equation (3) of docs/maths/groups.md. The field `impulse` is
    the change of the momenta p over the step. Its components for rotations are in the axes of the body's
    attitude in the middle of the step.
    """

    balance: ca.SX
    impulse: ca.SX


class GroupStep:
    """Solver of midpoint steps with rotations as unit quaternions, on SO(3)^n x R^m."""

    def __init__(self, f: GroupVI):
        self.f, self.space, self.group = f, f.space, f.group

    # -- the equations ------------------------------------------------------------------------------

    def middle(self, x: Any, w: Any, u: Any, t: Any, dt: Any, theta: Any) -> Middle:
        nr, half, space = self.space.nr, dt / 2, self.space
        whole = [rot.turn(xi, 1.0) for xi in space.turns(w)]
        halves = [*map(rot.halfway, whole)]
        middles = [rot.multiply(s, h) for s, h in zip(space.attitudes(x), halves, strict=True)]
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
        """Return the configuration and the momentum at the end of a step.
        They follow from the increments w of the configuration by equations (4) and (5) of
        docs/maths/groups.md. The argument p is the momentum at the start minus the constraint impulses, and
        `impulse` is the impulse of the forces.
        """
        nr, space = self.space.nr, self.space
        q1, p1 = [x[:nr] + w[:nr]], [part(p + impulse, 0, nr)]
        triples = (space.turns(e) for e in (w, p, impulse))
        for s, xi, pi, kick in zip(space.attitudes(x), *triples, strict=True):
            turn = rot.turn(xi, 1.0)
            q1 += rot.advanced(s, turn)
            back = rot.turned(rot.conjugate(turn), pi)
            p1.append(vec.column(vec.add(back, rot.turned(rot.conjugate(rot.halfway(turn)), kick))))
        return ca.vertcat(*q1), ca.vertcat(*p1)

    @cached_property
    def equations(self) -> tuple[ca.Function, ca.Function]:
        """CasADi functions that compute the equations of a step and their Jacobian.
        The arguments of both functions are (z, x, u, t, dt, parameters). The unknowns z are the increments w
        of the configuration, then the multipliers. The equations are the momentum balance (equation (3) of
        docs/maths/groups.md) and the constraints h(q_k+1) = 0.
        """
        f, nd = self.f, self.space.nd
        z, (x, u, t, dt, theta) = ca.SX.sym("z", nd + f.nm), self._context()
        w, nothing = z[:nd], ca.SX(nd, 1)
        balance = self.middle(x, w, u, t, dt, theta).balance
        q1 = self.end(x, w, nothing, nothing)[0]
        h, Dh = self.group.constraint(q1, theta)[0], self.group.constraint(x[: f.nq], theta)[1]
        rows = ca.vertcat(balance - Dh.T @ part(z, nd), h) if f.nm else balance
        args = [z, x, u, t, dt, theta]
        slope = ca.densify(ca.jacobian(rows, z))
        return ca.Function("balance", args, [rows]), ca.Function("slope", args, [slope])

    def _context(self) -> list[ca.SX]:
        """Return new CasADi symbols of a step's state, input, time, step length and parameters."""
        f = self.f
        sizes = ("x", f.nx), ("u", f.nu), ("t", 1), ("dt", 1), ("theta", len(f.parameters))
        return [ca.SX.sym(*each) for each in sizes]

    @cached_property
    def impulse(self) -> ca.Function:
        """CasADi function that computes the impulse (nd,) of all forces over a step.
        Its arguments are (x, w, u, t, dt, parameters), with the increments w of the configuration in the
        step.
        """
        args = self._context()
        args.insert(1, ca.SX.sym("w", self.space.nd))
        return ca.Function("impulse", args, [self.middle(*args).impulse])

    def residual(self) -> ca.Function:
        """Return the CasADi function that computes the residual (nx + nm,) of a step.
        Its arguments are (x, u, x_next, multipliers, t, dt, parameters). The residual contains the momentum
        balance, the norms of the quaternions, the constraints h, and the equation of the next momentum
        (equations (3) and (5) of docs/maths/groups.md).
        """
        f, space = self.f, self.space
        x, u, lam, theta, dt = f.symbols
        x1, t = ca.SX.sym("x_next", f.nx), ca.SX.sym("t")
        turns: list[Any] = []
        norms: list[Any] = []
        for a, b in zip(space.attitudes(x), space.attitudes(x1), strict=True):
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
        return ca.Function("residual", [x, u, x1, lam, t, dt, theta], [rows])

    # -- their solution -----------------------------------------------------------------------------

    @cached_property
    def _chord(self) -> tuple[ca.Function, ca.Function]:
        """Two CasADi functions for the simplified Newton (chord) iteration of a step.
        The first function factorizes the Newton matrix: (x, guess, ...) -> (initial y, factors, suspect).
        `suspect` is infinite if the matrix is suspect, else 0. The second function computes one correction:
        (z, x, ..., factors) -> (g, w, impulse, multipliers, error).

        The unknowns z are y and the memory of `chord.contracting`. The increments w of the configuration are
        y (1 + |r_k|) for the coordinates r, and y for rotations. g is the correction of y with opposite sign.
        """
        f, nd, nr, group = self.f, self.space.nd, self.space.nr, self.group
        x, u, t, dt, theta = context = self._context()
        guess, y, memory = ca.SX.sym("guess", nd), ca.SX.sym("y", nd), ca.SX.sym("memory")
        size = ca.DM(f.group.natural_sizes) + ca.vertcat(ca.fabs(x[:nr]), ca.SX(nd - nr, 1))
        ahead = self.end(x, guess / 2, ca.SX(nd, 1), ca.SX(nd, 1))[0] if group.long else None
        if ahead is not None:
            D: Any = group.swept(ahead, guess / dt, u, t + dt / 2, dt, theta)
        else:
            slope = self.equations[1](ca.vertcat(guess, ca.SX(f.nm, 1)), x, u, t, dt, theta)
            D = SparseLU(scalars(slope[:nd, :nd][group.place_of, group.place_of]))
        J0, J1 = self._constraint_slopes(x, guess, theta)
        factored = Saddle(D, J1, J0)
        factors = ca.vertcat(*factored.entries())
        suspect = signs(factored, J0, dt, self.f.mass_scale[group.place_of])
        args = [x, guess, u, t, dt, theta]
        factorize = ca.Function("factorize", args, [guess / size, factors, suspect])

        numbers, w = ca.SX.sym("numbers", factors.numel()), y * size
        step = self.middle(x, w, u, t, dt, theta)
        h = group.constraint(self.end(x, w, ca.SX(nd, 1), ca.SX(nd, 1))[0], theta)[0]
        solver = factored.with_entries(ca.vertsplit(numbers))
        solved, multipliers = solver.solve(group.theirs(ca.vertsplit(-step.balance)), ca.vertsplit(-h))
        correction = group.ours(solved)
        g = -correction / size
        contraction = CONTRACTION_OF_MASS if group.long else CONTRACTION
        changes, error = contracting(g, memory, f.tolerance, contraction)
        outputs = [changes, w + correction, step.impulse, vec.column(multipliers), error]
        args = [ca.vertcat(y, memory), *context, numbers]
        return factorize, ca.Function("iterate", args, [*map(ca.densify, outputs)])

    def _constraint_slopes(self, x: Any, w: Any, theta: Any) -> tuple[list, list]:
        """Return the constraint Jacobians at the start and at the end of a step.

        They are Dh(q_k), and the derivative of h(q_k+1) by the increments w, as lists of rows with columns in
        the order of the auxiliary mechanism's variables.
        """
        if not self.f.nm:
            return [], []
        nd, place = self.space.nd, self.group.place_of
        Dh = self.group.constraint(x[: self.f.nq], theta)[1]
        ends = self.equations[1](ca.vertcat(w, ca.SX(self.f.nm, 1)), x, *self._placeholders(theta))[nd:, :nd]
        return scalars(Dh[:, place]), scalars(ends[:, place])

    def _placeholders(self, theta: Any) -> list[Any]:
        """Return arguments (u, t, dt, parameters) for a function that ignores u, t and dt.
        Constants replace u, t and dt.
        """
        return [ca.SX(self.f.nu, 1), 0, 1, theta]

    @cached_property
    def finish(self) -> ca.Function:
        """CasADi function that computes the state at the end of a step.
        Its arguments are (x, w, impulse, multipliers, parameters), with the increments w of the configuration
        and the impulse of the forces.
        """
        f, nd = self.f, self.space.nd
        x, _, _, _, theta = self._context()
        w, impulse, lam = (ca.SX.sym(n, m) for n, m in (("w", nd), ("impulse", nd), ("lambda", f.nm)))
        p = part(x, self.space.nq, self.space.nq + nd)
        if f.nm:
            p = p - self.group.constraint(x[: f.nq], theta)[1].T @ lam
        q1, p1 = self.end(x, w, p, impulse)
        return ca.Function("finish", [x, w, impulse, lam, theta], [ca.vertcat(q1, p1)])

    def kernel(self, robust: bool = False) -> ca.Function | None:
        """Return the CasADi function that solves one step, or None if `robust` is True.
        The function is (x, u, t, dt, parameters) -> (next state, multipliers, error of the solution). The
        robust solver is the method `rescued`.
        """
        if robust:
            return None
        nd, f = self.space.nd, self.f
        factorize, iterate = self._chord
        iteration = root(nd + 1, iterate, nd, CONVERGED)
        args = Context(*map(_mx, self._context()))

        def nearby_root(guess: ca.MX, args: Context) -> Root:
            start, numbers, suspect = factorize(args.x, guess, *args[1:])
            solution = iteration(ca.vertcat(start, memory_at_first(suspect)), *args, numbers)
            _, w, impulse, multipliers, error = solution
            x_next = self.finish(args.x, w, impulse, multipliers, args.theta)
            error = ca.if_else(ca.sumsqr(x_next) < ca.inf, error, ca.inf)  # NaN from half a turn on
            return Root(w, x_next, multipliers, error + suspect)

        def begin(args: Context) -> tuple[ca.MX, ca.MX]:
            velocities = self._begins(*args)[0]
            return velocities, self._guess(*args)[0] / args.dt - velocities

        def solve(args: Context, w: ca.MX, last: Mean, share: ca.MX) -> Root:
            dt, length = args.dt, share * args.dt
            solution = nearby_root(length * w, args._replace(dt=length))
            away = far(ca.fabs(solution.w - last.share * dt * last.w), f.turning)
            return solution._replace(w=solution.w / length, error=solution.error + away)

        guess, away = self._guess(*args)
        _, x_next, multipliers, error = nearby_root(guess, args)
        whole = ca.Function("whole", list(args), [x_next, multipliers, error + away])
        return with_continuation(whole, begin, solve, list(f.turning), f.tolerance)

    @cached_property
    def _begins(self) -> ca.Function:
        """CasADi function that computes rates and accelerations at the start of a step.
        Its results have the shapes (nd,). Its arguments are (x, u, t, dt, parameters).
        """
        x, u, t, dt, theta = self._context()
        nq = self.space.nq
        v, a, _ = self.group.motion(x[:nq], part(x, nq), u, t, theta)
        return ca.Function("begins", [x, u, t, dt, theta], [v, a])

    @cached_property
    def _guess(self) -> ca.Function:
        """CasADi function that guesses the increments of the configuration in a step.
        Its arguments and results are (x, u, t, dt, parameters) -> dt v + dt^2/2 dv/dt (nd,), and a number:
        infinity if an angle may turn by more than 1 rad, else 0. v and dv/dt are the rates and accelerations
        of the configuration at the start of the step.
        """
        x, u, t, dt, theta = self._context()
        v, a = self._begins(x, u, t, dt, theta)
        by_v, by_a = dt * v, dt**2 / 2 * a
        away = far(ca.fabs(by_v) + ca.fabs(by_a), self.f.turning)
        return ca.Function("guess", [x, u, t, dt, theta], [by_v + by_a, away])

    # -- methods of a map with its parameters -----------------------------------------------------------

    @cached_property
    def derivatives(self) -> GroupDerivatives:
        return GroupDerivatives(self.f)

    def rescued(self, f: GroupVI, x: np.ndarray, u: np.ndarray, k: int, t: float, dt: float):
        """Solve a step by continuation in its length, and return next state and multipliers."""
        equations = IncrementEquations(self, f, x, u, t, dt)
        solution = solve_step(equations, k, t, f.tolerance, None if f.nm else left_by(f, x, u, t, dt))
        return equations.end(solution)


class IncrementEquations(BranchEquations):
    """Equations of one midpoint step on SO(3)^n x R^m, for continuation in its length.
    The unknowns are the mean rates w = (dr, xi) / dt in the step of length dt: dr are the increments of the
    coordinates that belong to no rotation, and xi are the rotation vectors of the attitude changes.
    """

    def __init__(self, of: GroupStep, f: GroupVI, x: np.ndarray, u: np.ndarray, t: float, dt: float):
        self.of, self.f, self.x, self.u, self.t, self.dt = of, f, x, u, t, dt
        v = f.velocities(x)
        self.start, self.weights = np.where(np.isfinite(v), v, 0.0), np.sqrt(f.mass_scale)
        sizes = f.group.natural_sizes.copy()
        sizes[: of.space.nr] += np.abs(x[: of.space.nr])
        self.size = abs(dt) / sizes
        self.turns = np.where(f.turning, abs(dt), 0.0)
        self.off = np.zeros(f.nm)
        if f.nm:
            self.off = np.ravel(of.group.constraint(x[: f.nq], f.theta)[0])

    def _args(self, w: np.ndarray, share: float) -> tuple:
        length = share * self.dt
        z = np.concatenate([length * w, np.zeros(self.f.nm)])
        return z, self.x, self.u, self.t, length, self.f.theta

    def __call__(self, w: np.ndarray, share: float) -> Linearized:
        nd, length = self.f.nd, share * self.dt
        args = self._args(w, share)
        residual, matrix = (np.array(e(*args)) for e in self.of.equations)
        residual = residual[:, 0].copy()
        matrix = matrix.copy()
        matrix[:nd, :nd] *= length
        residual[nd:] = (residual[nd:] - (1 - share) * self.off) / length
        return Linearized(residual, matrix)

    def end(self, solution: BranchRoot) -> tuple[np.ndarray, np.ndarray]:
        """Return the next state and the multipliers of a step.
        They are computed from `solution`, the root of the step's equations.
        """
        f, (_, *rest) = self.f, self._args(solution.w, 1.0)
        w = self.dt * solution.w
        impulse = self.of.impulse(self.x, w, *rest[1:])
        x_next = self.of.finish(self.x, w, impulse, solution.multipliers, f.theta)
        return np.ravel(x_next), solution.multipliers

    def failure(self, root: BranchRoot, k: int, where: str) -> StepError | None:
        if not np.isnan(root.error):
            J = np.zeros((0, self.f.nd)) if root.share == 0 else self(root.w, root.share).matrix
            J, names = J[self.f.nd :, : self.f.nd], self.f.multiplier_names
            return singular_ahead(J, names, root, self.dt, k, where, PASSING)
        return StepError(
            f"{where}. The equations are not finite where the solver stopped: a potential or force is not a "
            "number there, or a body turns by half a turn in the step; use a smaller dt",
            k,
            float(root.error),
            "not finite",
        )


def _mx(symbol: ca.SX) -> ca.MX:
    return ca.MX.sym(symbol.name() if symbol.numel() == 1 else "a", symbol.numel())
