"""Equations of a step of the linear-time variational integrator, and their solver.

The unknown is q_k+1 of the dynamic variables; constraint impulses enter linearly and are eliminated. CasADi's
Newton iteration receives the preconditioned residual g = K^-1 r, with the residual r and the Newton matrix K.
The Jacobian of g is the identity, so that no n x n matrix is formed. If K is factored once, at q_k or at the
initial guess, the iteration is RIQN (a quasi-Newton method of [L]) or a chord iteration; if K is factored at
every iterate, it is Newton's. Since g is the correction of q, the stopping test scales with the rounding
error of the residual. The contraction of the corrections certifies the root. Maths:
docs/maths/linear_time.md.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import casadi as ca

from vioc.dynamics.algebra import vectors as vec
from vioc.dynamics.algebra.articulated import ArticulatedInverse
from vioc.dynamics.algebra.sparse_lu import Saddle, SparseLU, assembled, scalars
from vioc.dynamics.algebra.vectors import part
from vioc.dynamics.description.numbers import Parameter
from vioc.dynamics.integrators.chord import contracting, independent
from vioc.dynamics.integrators.linear_time.core import contraction
from vioc.dynamics.integrators.linear_time.drnea import Bodies
from vioc.dynamics.integrators.predictor import far, motion, predicted
from vioc.dynamics.integrators.variational import StepParts

if TYPE_CHECKING:
    from vioc.dynamics.integrators.linear_time.linear_time_vi import LinearTimeVI

ITERATIONS = 40
SHORT = 50  # variables up to which common terms are eliminated: saves a tenth of a step for 3 ms a variable


class StepGraphs:
    """Equations of a step of the linear-time integrator, as CasADi expressions.

    Parameters
    ----------
    f : LinearTimeVI
    """

    def __init__(self, f: LinearTimeVI):
        self.f = f
        self.bodies = Bodies(f.system, f.lagrangian.graph.number)

    # -- the equations ----------------------------------------------------------------------------

    @cached_property
    def slots(self) -> ca.Function:
        """CasADi function that computes two derivatives of the kinetic part of the action.
        Its arguments and results are (q_k, q_k+1, dt, parameters) -> D1 T_d, D2 T_d (nd,), the derivatives of
        the kinetic part T_d of the discrete action with respect to q_k and q_k+1. The discrete recursive
        Newton-Euler algorithm computes them.
        """
        nq, nd = self.f.nq, self.f.nd
        q0, q1, dt = ca.SX.sym("q0", nq), ca.SX.sym("q1", nq), ca.SX.sym("dt")
        first, second = self.bodies.slots(ca.vertsplit(q0), ca.vertsplit(q1), dt)
        args = [q0, q1, dt, self.f.lagrangian.graph.parameters]
        return ca.Function("slots", args, [vec.column(first[:nd]), vec.column(second[:nd])])

    @cached_property
    def weight(self) -> ca.Function:
        """CasADi function that computes the forces -dV/dq (nd,) of all potentials V.
        Its arguments are (q, parameters).
        """
        lag, g = self.f.lagrangian, self.f.lagrangian.graph
        zero_velocity = ca.SX.zeros(self.f.nq)
        all_args = lag.function("L_q", [lag.L_q])
        zeros = ca.SX.zeros(g.u_vector.numel())
        force = all_args(g.q_vector, zero_velocity, zeros, 0.0, g.parameters)
        return ca.Function("weight", [g.q_vector, g.parameters], [part(force, 0, self.f.nd)])

    @cached_property
    def force(self) -> ca.Function:
        """CasADi function that computes the generalized forces F (nd,).
        Its arguments are (q, v, u, t, parameters). Forces of potentials are not included.
        """
        lag = self.f.lagrangian
        return lag.function("force", [part(lag.F, 0, self.f.nd)])

    @cached_property
    def force_slope(self) -> ca.Function:
        """CasADi function that computes the derivative dF/dv (nd, nd) of the forces F.
        Here v are the velocities of the dynamic variables. The arguments are (q, v, u, t, parameters).
        """
        lag, nd = self.f.lagrangian, self.f.nd
        return lag.function("force_slope", [ca.jacobian(lag.F, lag.graph.v_vector)[:nd, :nd]])

    @cached_property
    def coupled(self) -> bool:
        """Flag, True if a force on one variable depends on the velocity of another variable.
        Recursions over the tree do not support such forces.
        """
        rows, columns = self.force_slope.sparsity_out(0).get_triplet()
        return list(rows) != list(columns)

    def parts(self, q0: Any, q1: Any, p: Any, u: Any, t: Any, dt: Any, theta: Any) -> StepParts:
        """Return the momentum balance and the next momentum of a step as expressions.
        The argument `u` has the inputs of forces only, without the next values of prescribed variables.
        """
        first, second = self.slots(q0, q1, dt, theta)
        v, middle = (q1 - q0) / dt, t + dt / 2
        minus = self.weight(q0, theta) + self.force(q0, v, u, middle, theta)
        plus = self.weight(q1, theta) + self.force(q1, v, u, middle, theta)
        return StepParts(p + first + dt / 2 * minus, second + dt / 2 * plus)

    @cached_property
    def newton_matrix(self) -> ca.Function:
        """CasADi function that computes the Newton matrix K (nd, nd), by [L] Algorithm 4.
        Its arguments are (q_k, q_k+1, u, t, dt, parameters) of a step. K is the negative derivative of the
        momentum balance p_k + D1 L_d + F- with respect to q_k+1. D1 L_d is the derivative of the discrete
        Lagrangian with respect to q_k, and F- the impulse of the forces at the start of the step.
        """
        f, nd = self.f, self.f.nd
        q0, q1 = ca.SX.sym("q0", f.nq), ca.SX.sym("q1", f.nq)
        u, t, dt = ca.SX.sym("u", len(f.system.inputs)), ca.SX.sym("t"), ca.SX.sym("dt")
        theta = ca.SX.sym("theta", len(f.parameters))
        bodies = self._with(theta)
        start, end = (bodies.places(ca.vertsplit(q)) for q in (q0, q1))
        rows = assembled([row[:nd] for row in bodies.jacobian(start, end, dt)])
        K = rows - self.force_slope(q0, (q1 - q0) / dt, u, t + dt / 2, theta) / 2
        return ca.Function("newton_matrix", [q0, q1, u, t, dt, theta], [K])

    def damping(self, q0: Any, q1: Any, u: Any, t: Any, dt: Any, theta: Any) -> list[Any]:
        """Return the diagonal of the part of the Newton matrix due to damping.
        Forces that depend on velocities add this part to the Newton matrix of a step.
        """
        slope = scalars(self.force_slope(q0, (q1 - q0) / dt, u, t + dt / 2, theta))
        return [vec.times(-0.5, slope[i][i]) for i in range(self.f.nd)]

    def inverse(
        self, solver: str, q0: Any, q1: Any, u: Any, t: Any, dt: Any, theta: Any
    ) -> SparseLU | ArticulatedInverse:
        """Return a solver of linear systems K dq = b with the Newton matrix K of a step.
        K is evaluated at the end configuration q1 of the step. The solver ``"riqn"``, a quasi-Newton method,
        approximates K with the inertias at the start configuration q0.
        """
        if solver == "dense":
            return SparseLU(scalars(self.newton_matrix(q0, q1, u, t, dt, theta)))
        bodies = self._with(theta)
        start = bodies.places(ca.vertsplit(q0))
        damping = self.damping(q0, q1, u, t, dt, theta)
        if solver == "riqn":
            return bodies.impulse_inverse(start, dt, damping)
        return bodies.newton_inverse(start, bodies.places(ca.vertsplit(q1)), dt, damping)

    def _with(self, theta: Any) -> Bodies:
        """Return the links of the mechanism, with the symbols theta as values of the parameters."""
        f = self.f
        names = list(f.system.parameters)
        return Bodies(f.system, lambda n: n.of(theta[names.index(n.name)]) if isinstance(n, Parameter) else n)

    # -- the kernel -------------------------------------------------------------------------------

    def kernel(self, solver: str, guess: str) -> ca.Function:
        """Return a CasADi function that solves one step.
        The arguments name the solver and the initial guess. The function is (x, u, t, dt, parameters) ->
        (x_next, multipliers, error). The error is the norm of the last correction of q; each entry is divided
        by |q_k| plus 1 rad or, if it is a length, by |q_k| plus the characteristic length of the mechanism.
        The error is infinite if the root fails a test.
        """
        f = self.f
        nx, nd, nq, nf = f.nx, f.nd, f.nq, len(f.system.inputs)
        x, u, seed = ca.SX.sym("x", nx), ca.SX.sym("u", f.nu), ca.SX.sym("seed", nd)
        t, dt, theta = ca.SX.sym("t"), ca.SX.sym("dt"), ca.SX.sym("theta", len(f.parameters))
        context = [x, u, t, dt, theta]
        q0, p = part(x, 0, nq), part(x, nq, nq + nd)
        rho, forces = part(u, nf), part(u, 0, nf)
        size = ca.DM(f.lagrangian.natural_sizes[:nd]) + ca.fabs(part(q0, 0, nd))
        J0 = scalars(f.constraint(q0, theta)[1][:, :nd])

        def factored(q1: Any) -> Saddle:
            J1 = scalars(f.constraint(q1, theta)[1][:, :nd])
            K = self.inverse(solver, q0, q1, forces, t, dt, theta)
            # solves K dq - J0' y = b, while the balance contains -J0' lambda: y = -lambda
            return Saddle(K, J1, J0)

        start = factored(ca.vertcat(seed, rho))
        reuses = solver in ("chord", "riqn")
        numbers = vec.column([*start.entries(), self._suspect(start, J0, dt)] if reuses else [])
        prepare = ca.Function("prepare", [seed, *context], [seed / size, numbers])

        y, memory, w = ca.SX.sym("y", nd), ca.SX.sym("memory"), ca.SX.sym("w", numbers.numel())
        q1 = ca.vertcat(y * size, rho)
        saddle = start.with_entries(ca.vertsplit(w)[:-1]) if reuses else factored(q1)
        step = self.parts(q0, q1, p, forces, t, dt, theta)
        h = f.constraint(q1, theta)[0]
        correction, minus = map(vec.column, saddle.solve(ca.vertsplit(step.balance), ca.vertsplit(-h)))
        multipliers = -minus
        g = -correction / size
        # The residual of the balance is K times the correction, and D22 L_d is K up to O(dt). Therefore q
        # and p below belong to the corrected iterate, and symmetries conserve their momenta to rounding.
        impulse = step.balance - ca.mtimes(_matrix(J0, nd).T, multipliers)
        q_next = part(q1, 0, nd) + correction
        x_next = ca.vertcat(q_next, rho, step.momentum + impulse, (rho - part(q0, nd)) / dt)
        changes, error = contracting(g, memory, f.tolerance, contraction(solver))
        error += w[-1] if reuses else self._suspect(saddle, J0, dt)
        z = ca.vertcat(y, memory)
        outputs = [changes, x_next, ca.densify(multipliers), error]
        problem = ca.Function("problem", [z, *context, w], outputs, {"cse": nd <= SHORT})
        identity = ca.Function("identity", [z, *context, w], [ca.SX.eye(nd + 1), *problem(z, *context, w)])
        options = {
            "jacobian_function": identity,
            "abstol": f.tolerance / 10,
            "max_iter": ITERATIONS,
            "error_on_fail": False,
        }
        solve = ca.rootfinder("solve", "fast_newton", problem, options)
        args = [ca.MX.sym(s.name() if s.numel() == 1 else "a", s.numel()) for s in context]
        begin, away, *_ = self.guess(guess)(*args)
        first, numbers = prepare(begin, *args)
        first = ca.vertcat(first, 0)
        # the guess is always corrected once: a good guess would pass the test with its biased error
        first = first - problem(first, *args, numbers)[0]
        _, x_next, multipliers, error = solve(first, *args, numbers)
        return ca.Function("step", args, [x_next, multipliers, error + away])

    def guess(self, name: str) -> ca.Function:
        """Return a CasADi function that computes the initial guess of q_k+1.
        The next configuration q_k+1 is the unknown of a step. The function is (x, u, t, dt, parameters) ->
        guess (nd,), and a number: infinity if an angle may turn by more than 1 rad in the step, else 0.
        """
        f = self.f
        if name == "predicted":
            return predicted(f)
        x, _, _, dt, _ = args = motion(f).sx_in()
        displacement, end = dt * motion(f)(*args)[0], part(x, 0, f.nd)
        return ca.Function(
            "guess", args, [end + displacement if name == "IG2" else end, far(displacement, f.turning)]
        )

    def _suspect(self, saddle: Saddle, J0: list[list[Any]], dt: Any) -> Any:
        """Return 0 if all pivots of a step's Newton matrix have the expected signs.
        Otherwise, return infinity. The argument `saddle` is the factorized Newton matrix, and `J0` is the
        constraint Jacobian Dh(q_k) at the start of the step.

        The expected signs are those at very small step lengths, where K, the negative derivative of the
        momentum balance, is M(q_k)/dt, and Dh K^-1 Dh' is dt Dh M^-1 Dh' with the mass matrix M. If a sign
        differs, a determinant may have changed sign at a length between 0 and dt.
        """
        K = saddle.D
        if isinstance(K, SparseLU):
            signs = [dt * K.pivots]
        else:
            factors, scale, _ = K.factors
            inverses = [f[0] for f, joint in zip(factors, K.joints, strict=True) if joint.row is not None]
            signs = [dt * scale * vec.column(inverses)]
        if saddle.S is not None:
            masses = self.f.lagrangian.mass_scale
            signs.append(independent(saddle.S.pivots / dt, J0, saddle.J, masses))
        each = ca.vertcat(*signs) > 0
        return ca.if_else(ca.sum1(each) == each.numel(), 0.0, ca.inf)


def _matrix(rows: list[list[Any]], columns: int) -> ca.SX:
    return ca.vertcat(ca.SX(0, columns), *(ca.horzcat(*row) for row in rows))
