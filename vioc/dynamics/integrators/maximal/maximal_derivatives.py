"""Derivatives of steps in maximal coordinates, by the implicit function theorem."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import casadi as ca
import numpy as np

from vioc.compile.evaluate import Evaluator
from vioc.dynamics.algebra import rotations as rot
from vioc.dynamics.contact.implicit import First, Normals, along, check_solved, solved, solved_back
from vioc.dynamics.contact.polytopes import NUMBERS
from vioc.dynamics.integrators.maximal import body_space as space
from vioc.dynamics.integrators.maximal.body_equations import Assembly, BodyBalance, Held
from vioc.dynamics.integrators.maximal.body_space import STATE, TWIST
from vioc.maps.derivatives import Linearization, SecondOrder, Steps

if TYPE_CHECKING:
    from vioc.dynamics.contact.interior import Step as ContactStep
    from vioc.dynamics.integrators.maximal.maximal_vi import MaximalVI


POLISH = 3  # Newton steps
SAME = 1e-4  # accepted error of the sums of both ends' impulses, relative to the largest impulse


class MaximalDerivatives:
    """First and second derivatives of the steps of a map in maximal coordinates.

    Parameters
    ----------
    f : MaximalVI
    """

    def __init__(self, f: MaximalVI):
        self.f = f
        self.sizes = f.ndx, f.nu, len(f.parameters)

    @cached_property
    def equations(self) -> tuple:
        """CasADi symbols and expressions of the equations of a step.
        The results are a tuple of the symbols (x, x_next, u, w, n, t, dt, theta, places), then the symbol e
        of an error of the state x, the equations R at the start and S at the end of the step, the error X of
        the next state, and guesses of the contact impulses. R determines w = (V, multipliers) at the start;
        then S determines n = (velocities, multipliers) at the end.

        An error phi of a rotation is added as the quaternion (1 - |phi|^2/8, phi/2). Two rotations are
        compared by phi = 2 v, with the vector part v of the quaternion between them. Both agree with exp and
        log of the quaternions up to errors of third order, so that two derivatives at zero are exact.
        """
        f, graph = self.f, self.f.graph
        n, split = graph.n, STATE * graph.n
        x, x1, e = ca.SX.sym("x", f.nx), ca.SX.sym("x1", f.nx), ca.SX.sym("e", f.ndx)
        u, theta = f.symbols.u, f.symbols.parameters
        size = TWIST * n + len(f.multiplier_names)
        w, m = ca.SX.sym("w", size), ca.SX.sym("n", size)
        t, dt = ca.SX.sym("t"), ca.SX.sym("dt")
        places = ca.SX.sym("places", NUMBERS * len(graph.places))
        (V, lam), (nu, mu) = ((a[: TWIST * n], a[TWIST * n :]) for a in (w, m))
        state = f.space.retract_expression(x, e)
        z = ca.vertsplit(state[:split], STATE)
        E = Assembly(graph, u, t + 0.5 * dt, dt, theta, None, places)
        start = E.held(E.poses(z))
        leaving = E.leave(V, E.kicked(E.momenta(state[split:]), start.Z), start)
        R = self._stacked(E, leaving, start, lam)
        end = E.held(leaving.next, arrival=True)
        arriving = E.arrive(nu, E.landed(V, end.Z), end)
        S = self._stacked(E, arriving, end, mu)
        guesses = E.impulses(leaving, start, f.barrier), E.impulses(arriving, end, f.barrier)

        rows: list[Any] = []
        for i, v in enumerate(ca.vertsplit(V, TWIST)):
            q = rot.multiply(tuple(ca.vertsplit(z[i][3:])), rot.turn((v[3], v[4], v[5]), dt))
            goal = tuple(ca.vertsplit(x1[STATE * i + 3 : STATE * i + STATE]))
            rotation = rot.multiply(rot.conjugate(goal), q)
            rows += [z[i][:3] + dt * v[:3] - x1[STATE * i : STATE * i + 3], *(2 * c for c in rotation[1:])]
        X = ca.vertcat(*rows, nu - x1[split:])
        return (x, x1, u, w, m, t, dt, theta, places), e, R, S, X, guesses

    def _stacked(self, E: Assembly, balance: BodyBalance, constants: Held, multipliers: ca.SX) -> ca.SX:
        """Return the residuals of momentum balances, constraints and contact laws.
        They are stacked in one vector.
        """
        graph = self.f.graph
        parts = E.on.split(multipliers, [len(graph.names), *(len(t.multipliers) for t in graph.touches)])
        pushes, laws = E.lawful(balance, constants, parts[1:], self.f.barrier)
        residuals = E.left(balance, constants, E.by_group(parts[0]), pushes)
        return ca.vertcat(*(-r for r in residuals), *balance.values, *laws)

    @cached_property
    def residual(self) -> ca.Function:
        """CasADi function that computes the residual of a step.
        The residual is zero for a solved step. The arguments are (x, u, x_next, multipliers, t, dt,
        parameters).
        """
        (x, x1, u, w, _, t, dt, theta, _), e, R, *_ = self.equations
        graph, total = self.f.graph, self.f.symbols.multipliers
        cut = STATE * graph.n
        starts, goals = (ca.vertsplit(a[:cut], STATE) for a in (x, x1))
        V = ca.vertcat(*(graph.between(a, b, dt) for a, b in zip(starts, goals, strict=True)))
        E = Assembly(graph, u, t + 0.5 * dt, dt, theta)
        end = E.held(E.poses(goals), arrival=True)
        velocities, arriving = E.project(end, E.landed(V, end.Z))
        values = ca.vertcat(V, total - arriving)
        (R,) = ca.substitute([R], [e, w], [ca.SX.zeros(e.numel()), values])
        norms = [ca.sumsqr(z[3:]) - 1 for z in goals]
        equations = ca.vertcat(*norms, R, x1[cut:] - velocities)
        return ca.Function("residual", [x, u, x1, total, t, dt, theta], [ca.densify(equations)])

    @cached_property
    def _first(self) -> Evaluator:
        args, e, R, S, X, _ = self.equations
        w, m = args[3:5]
        y = ca.vertcat(e, args[2], args[7])
        pairs = [(R, y), (R, w), (S, y), (S, w), (S, m), (X, y), (X, w), (X, m)]
        outputs = [ca.substitute(ca.jacobian(r, v), e, ca.SX.zeros(e.numel())) for r, v in pairs]
        outputs = [ca.densify(o) for o in outputs]
        return Evaluator(self.f.backend.prepare(ca.Function("first", list(args), outputs)))

    @cached_property
    def _second(self) -> Evaluator:
        args, e, R, S, X, _ = self.equations
        w, m = args[3:5]
        adjoints = [ca.SX.sym(name, a.numel()) for name, a in (("r", R), ("s", S), ("z", X))]
        whole = ca.vertcat(e, args[2], args[7], w, m)
        r, s, weight = adjoints
        scalar = ca.dot(weight, X) - ca.dot(r, R) - ca.dot(s, S)  # multipliers are unknowns: no curvature
        H = ca.substitute(ca.hessian(scalar, whole)[0], e, ca.SX.zeros(e.numel()))
        function = ca.Function("second", [*args, *adjoints], [ca.densify(H)])
        return Evaluator(self.f.backend.prepare(function))

    @cached_property
    def _ends(self) -> Evaluator:
        """Evaluator of the equations at the start and at the end of a step, and of their Jacobians."""
        args, e, R, S, *_ = self.equations
        w, m = args[3:5]
        if not self.f.graph.touches:  # the equations are linear in the multipliers
            w, m = (a[TWIST * self.f.graph.n :] for a in (w, m))
        zeros = ca.SX.zeros(e.numel())
        outputs = [
            ca.densify(ca.substitute(o, e, zeros)) for o in (R, ca.jacobian(R, w), S, ca.jacobian(S, m))
        ]
        return Evaluator(self.f.backend.prepare(ca.Function("ends", list(args), outputs)))

    @cached_property
    def _guesses(self) -> Evaluator:
        """Evaluator of the contact impulses that satisfy the contact laws at given velocities."""
        args, e, *_, guesses = self.equations
        outputs = [ca.densify(ca.substitute(o, e, ca.SX.zeros(e.numel()))) for o in guesses]
        return Evaluator(ca.Function("guesses", list(args), outputs))

    def _unknowns(self, steps: Steps, theta: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return velocities and multipliers of solved steps, and their contact points.
        The first array (N, nw) has, for each step, the velocities during the step and the multipliers at its
        start. The second array (N, nw) has the velocities and the multipliers at the end of each step. The
        third has data of the contact points.
        """
        f, split = self.f, STATE * self.f.graph.n
        t, dt = steps.t[:, None], steps.h[:, None]
        V = space.between(f.graph.n, steps.x0, steps.x1, dt)
        none, size = np.zeros((len(V), len(f.multiplier_names))), V.shape[1]
        w, m = np.hstack([V, none]), np.hstack([steps.x1[:, split:], none])
        if f.graph.places:  # contact points are known only inside the step: solve it again
            solutions = [self._solved_anew(steps, i, theta) for i in range(len(V))]
            for i, step in enumerate(solutions):
                w[i], m[i] = step.ends[0].unknowns, step.ends[-1].unknowns
            return w, m, np.stack([step.held for step in solutions])
        places = np.empty((len(V), 0))
        if not f.graph.touches:
            R, R_lam, S, S_mu = self._ends(steps.x0, steps.x1, steps.u, w, m, t, dt, theta, places)
            for unknown, r, slope in ((w, R, R_lam), (m, S, S_mu)):
                unknown[:, size:] = -(np.linalg.pinv(slope) @ r)[..., 0]
            return w, m, places
        contact_rows = slice(size + len(f.graph.names), None)
        leaving, arriving = self._guesses(steps.x0, steps.x1, steps.u, w, m, t, dt, theta, places)
        w[:, contact_rows], m[:, contact_rows] = leaving[..., 0], arriving[..., 0]
        self._polish(steps, w, m, theta)
        # the impulses of both ends must agree with those that the step reports
        impulses, normal = f.step_multipliers(w[:, size:], m[:, size:]), f.additive
        deviation = np.abs(impulses - steps.multipliers)[:, normal].max(axis=1)
        largest = np.abs(steps.multipliers[:, normal]).max(axis=1)
        bad = np.flatnonzero(~(deviation <= SAME * (largest + f.barrier)))
        for i in map(int, bad):
            solution = self._solved_anew(steps, i, theta)
            w[i], m[i] = solution.ends[0].unknowns, solution.ends[-1].unknowns
        return w, m, places

    @cached_property
    def _normals(self) -> Normals:
        graph = self.f.graph
        linear = (TWIST * np.arange(graph.n)[:, None] + np.arange(3)).ravel()
        return Normals(TWIST * graph.n + len(graph.names), graph.touches, linear)

    def _solved_anew(self, steps: Steps, i: int, theta: np.ndarray) -> ContactStep:
        return self.f.interior.solve(steps.x0[i], steps.u[i], float(steps.t[i]), float(steps.h[i]), theta)

    def _polish(self, steps: Steps, w: np.ndarray, m: np.ndarray, theta: np.ndarray) -> None:
        """Improve the unknowns of solved steps by Newton's method, in place.
        The unknowns are w at the start and m at the end of each step. The improvement is necessary because
        twists computed from states have rounding errors, and because complementarity products differ slightly
        from the barrier parameter.
        """
        t, dt = steps.t[:, None], steps.h[:, None]
        x0 = space.split(self.f.graph.n, steps.x0)[0].reshape(len(w), -1)
        for _ in range(POLISH):
            R, R_w, S, S_m = self._ends(
                steps.x0, steps.x1, steps.u, w, m, t, dt, theta, np.empty((len(w), 0))
            )
            R, S = (self._normals.unrounded(r[..., 0], J, x0, w, dt) for r, J in ((R, R_w), (S, S_m)))
            w -= solved(R_w, R[..., None])[..., 0]
            m -= solved(S_m, S[..., None])[..., 0]

    def first(self, steps: Steps, theta: np.ndarray) -> First:
        """Return the first derivatives of N solved steps.
        They are derivatives with respect to state, input and parameters.
        """
        f, n = self.f, self.f.graph.n
        X0, X1, U, t, dt = steps.x0, steps.x1, steps.u, steps.t[:, None], steps.h[:, None]
        with np.errstate(all="ignore"):  # steps with NaN are solved again
            w, m, places = self._unknowns(steps, theta)
        arguments = (X0, X1, U, w, m, t, dt, theta, places)
        R_y, R_w, S_y, S_w, S_m, X_y, X_w, X_m = self._first(*arguments)
        R_w, S_m = (self._normals.sharp(J, own, f.barrier) for J, own in ((R_w, w), (S_m, m)))
        leaving = -solved(R_w, R_y)
        arriving = -solved(S_m, S_y + S_w @ leaving)
        both = np.concatenate([leaving, arriving], axis=1)
        check_solved(both, steps)
        whole = X_y + X_w @ leaving + X_m @ arriving
        first = np.where(f.additive[:, None], leaving[:, TWIST * n :], 0.0)
        impulses = first + arriving[:, TWIST * n :]
        lin = Linearization.of(whole, impulses, f.nu)
        return First(arguments, both, [R_w, S_w, S_m, X_w, X_m], lin)

    def second(self, first: First, Z: np.ndarray, zeta: np.ndarray) -> SecondOrder:
        """Return second derivatives of N steps, contracted with covectors.
        They are derivatives with respect to state, input and parameters. Z has the covectors of the next
        states, and zeta those of the multipliers, one row for each step.
        """
        R_w, S_w, S_m, X_w, X_m = first.slopes
        n = TWIST * self.f.graph.n
        leaving, arriving = (np.einsum("nij,ni->nj", X, Z) for X in (X_w, X_m))
        leaving[:, n:] += np.where(self.f.additive, zeta, 0.0)
        arriving[:, n:] += zeta
        s = solved_back(S_m, arriving)
        r = solved_back(R_w, leaving - np.einsum("nij,ni->nj", S_w, s))
        H = self._second(*first.arguments, r, s, Z)[0]
        return SecondOrder.of(along(H, first.solved), self.f.ndx, self.f.nu)
