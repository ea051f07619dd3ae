"""The equations of a step of `LinearTimeVI`, and the kernel that solves them in CasADi.

The unknown is q_k+1 of the dynamic variables; constraint impulses enter linearly and are eliminated. A
preconditioned residual g = K^-1 r is handed to CasADi's Newton iteration with the identity for its
Jacobian, so no n x n matrix is ever formed: with K factored once, at q_k or at the seed, that is RIQN or a
chord iteration, with K factored at every iterate it is Newton's. g is the correction of q, and so the
stopping test scales with what rounding leaves of the residual. Maths: docs/maths/linear_time.md.
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
from vioc.dynamics.integrators.linear_time.drnea import Bodies
from vioc.dynamics.integrators.variational import StepParts
from vioc.dynamics.lagrangian import OPTIONS

if TYPE_CHECKING:
    from vioc.dynamics.integrators.linear_time.map import LinearTimeVI

ITERATIONS = 40
SHORT = 50  # variables up to which common terms are sought: a tenth of a step's operations, 3 ms a variable
PAST = 4  # configurations before q_k that a carry holds
GUESSES = {  # seeds as weights of q_k, q_k-1, ...
    "IG1": (1.0,),
    "IG2": (2.0, -1.0),
    "extrapolated": (5.0, -10.0, 10.0, -5.0, 1.0),
}


class StepGraphs:
    """Expressions and functions of a map's step.

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
        """(q_k, q_k+1, dt, parameters) -> D1 T_d, D2 T_d (nd,), by DRNEA."""
        nq, nd = self.f.nq, self.f.nd
        q0, q1, dt = ca.SX.sym("q0", nq), ca.SX.sym("q1", nq), ca.SX.sym("dt")
        first, second = self.bodies.slots(ca.vertsplit(q0), ca.vertsplit(q1), dt)
        args = [q0, q1, dt, self.f.lagrangian.graph.parameters]
        return ca.Function("slots", args, [vec.column(first[:nd]), vec.column(second[:nd])])

    @cached_property
    def weight(self) -> ca.Function:
        """(q, parameters) -> -dV/dq (nd,)."""
        lag, g = self.f.lagrangian, self.f.lagrangian.graph
        still = ca.SX.zeros(self.f.nq)
        all_args = lag.function("L_q", [lag.L_q])
        zeros = ca.SX.zeros(g.u_vector.numel())
        force = all_args(g.q_vector, still, zeros, 0.0, g.parameters)
        return ca.Function("weight", [g.q_vector, g.parameters], [part(force, 0, self.f.nd)], OPTIONS)

    @cached_property
    def force(self) -> ca.Function:
        """(q, v, u, t, parameters) -> F (nd,)."""
        lag = self.f.lagrangian
        return lag.function("force", [part(lag.F, 0, self.f.nd)])

    @cached_property
    def force_slope(self) -> ca.Function:
        """The same arguments -> dF/dv by the dynamic velocities (nd, nd)."""
        lag, nd = self.f.lagrangian, self.f.nd
        return lag.function("force_slope", [ca.jacobian(lag.F, lag.graph.v_vector)[:nd, :nd]])

    @cached_property
    def coupled(self) -> bool:
        """Whether a force on one variable depends on the velocity of another: no tree carries that."""
        rows, columns = self.force_slope.sparsity_out(0).get_triplet()
        return list(rows) != list(columns)

    def parts(self, q0: Any, q1: Any, p: Any, u: Any, t: Any, dt: Any, theta: Any) -> StepParts:
        """The step's equations on symbols; `u` without rho."""
        first, second = self.slots(q0, q1, dt, theta)
        v, middle = (q1 - q0) / dt, t + dt / 2
        minus = self.weight(q0, theta) + self.force(q0, v, u, middle, theta)
        plus = self.weight(q1, theta) + self.force(q1, v, u, middle, theta)
        return StepParts(p + first + dt / 2 * minus, second + dt / 2 * plus)

    @cached_property
    def newton_matrix(self) -> ca.Function:
        """(q_k, q_k+1, u, t, dt, parameters) -> K = -D2(p_k + D1 L_d + F-), (nd, nd) ([L] Algorithm 4)."""
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
        """The diagonal that velocity-dependent forces add to K."""
        slope = scalars(self.force_slope(q0, (q1 - q0) / dt, u, t + dt / 2, theta))
        return [vec.times(-0.5, slope[i][i]) for i in range(self.f.nd)]

    def inverse(
        self, solver: str, q0: Any, q1: Any, u: Any, t: Any, dt: Any, theta: Any
    ) -> SparseLU | ArticulatedInverse:
        """Solver of K dq = b, at the seed or iterate q1, or with the inertias of q0 for RIQN."""
        if solver == "dense":
            return SparseLU(scalars(self.newton_matrix(q0, q1, u, t, dt, theta)))
        bodies = self._with(theta)
        start = bodies.places(ca.vertsplit(q0))
        damping = self.damping(q0, q1, u, t, dt, theta)
        if solver == "riqn":
            return bodies.impulse_inverse(start, dt, damping)
        return bodies.newton_inverse(start, bodies.places(ca.vertsplit(q1)), dt, damping)

    def _with(self, theta: Any) -> Bodies:
        """The bodies with their parameters written in `theta`."""
        f = self.f
        names = list(f.system.parameters)
        return Bodies(f.system, lambda n: n.of(theta[names.index(n.name)]) if isinstance(n, Parameter) else n)

    # -- the kernel -------------------------------------------------------------------------------

    def kernel(self, solver: str, guess: str) -> ca.Function:
        """(carry, u, t, dt, parameters) -> (carry, multipliers, last correction of q relative to 1 + |q|).

        The carry is [x, q_k-1, ..., q_k-4] (dynamic parts).
        """
        f = self.f
        nx, nd, nq, nf = f.nx, f.nd, f.nq, len(f.system.inputs)
        carry, u = ca.SX.sym("carry", nx + PAST * nd), ca.SX.sym("u", f.nu)
        t, dt, theta = ca.SX.sym("t"), ca.SX.sym("dt"), ca.SX.sym("theta", len(f.parameters))
        context = [carry, u, t, dt, theta]
        q0, p = part(carry, 0, nq), part(carry, nq, nq + nd)
        rho, forces = part(u, nf), part(u, 0, nf)
        size = 1 + ca.fabs(part(q0, 0, nd))
        seed = self._seed(guess, carry, forces, t, dt, theta)
        J0 = scalars(f.constraint(q0, theta)[1][:, :nd])

        def factored(q1: Any) -> Saddle:
            J1 = scalars(f.constraint(q1, theta)[1][:, :nd])
            K = self.inverse(solver, q0, q1, forces, t, dt, theta)
            # K dq - J0' y = b here, where the balance loses J0' lambda: y = -lambda
            return Saddle(K, J1, J0)

        start = factored(ca.vertcat(seed, rho))
        once = solver in ("chord", "riqn")
        numbers = vec.column(start.entries() if once else [])
        prepare = ca.Function("prepare", context, [seed / size, numbers])

        y, w = ca.SX.sym("y", nd), ca.SX.sym("w", numbers.numel())
        q1 = ca.vertcat(y * size, rho)
        saddle = start.with_entries(ca.vertsplit(w)) if once else factored(q1)
        step = self.parts(q0, q1, p, forces, t, dt, theta)
        h = f.constraint(q1, theta)[0]
        correction, minus = map(vec.column, saddle.solve(ca.vertsplit(step.balance), ca.vertsplit(-h)))
        multipliers = -minus
        g = -correction / size
        # What is left of the balance is K times the correction, and D22 L_d is K but for O(dt): so both q and
        # p below are those of the corrected iterate, and symmetries keep their momenta to rounding.
        rest = step.balance - ca.mtimes(_matrix(J0, nd).T, multipliers)
        q_next = part(q1, 0, nd) + correction
        x_next = ca.vertcat(q_next, rho, step.momentum + rest, (rho - part(q0, nd)) / dt)
        past = part(carry, nx, nx + (PAST - 1) * nd)
        after = ca.vertcat(x_next, part(q0, 0, nd), past)
        outputs = [g, after, ca.densify(multipliers), ca.norm_2(g)]
        problem = ca.Function("problem", [y, *context, w], outputs, OPTIONS if nd <= SHORT else {})
        identity = ca.Function("identity", [y, *context, w], [ca.SX.eye(nd), *problem(y, *context, w)])
        options = {
            "jacobian_function": identity,
            "abstol": f.tolerance / 10,
            "max_iter": ITERATIONS,
            "error_on_fail": False,
        }
        solve = ca.rootfinder("solve", "fast_newton", problem, options)
        args = [ca.MX.sym(s.name() if s.numel() == 1 else "a", s.numel()) for s in context]
        first, numbers = prepare(*args)
        # a seed is always corrected once: a good one would pass the test and leave its own, biased, error
        first = first - problem(first, *args, numbers)[0]
        return ca.Function("step", args, list(solve(first, *args, numbers)[1:]))

    def _seed(self, guess: str, carry: ca.SX, u: Any, t: Any, dt: Any, theta: Any) -> ca.SX:
        f = self.f
        nx, nd, nq = f.nx, f.nd, f.nq
        q = [part(carry, 0, nd), *(part(carry, nx + i * nd, nx + (i + 1) * nd) for i in range(PAST))]
        if guess != "IG3":
            return sum(c * qi for c, qi in zip(GUESSES[guess], q, strict=False))
        q0 = part(carry, 0, nq)
        v = ca.vertcat((q[0] - q[1]) / dt, part(carry, nq + nd, nx))
        return q[0] + dt * (part(v, 0, nd) + dt * self.acceleration(q0, v, u, t, theta))

    @cached_property
    def acceleration(self) -> ca.Function:
        """(q, v, u, t, parameters) -> M^-1 (-C + Q) of the open tree (nd,), in O(n)."""
        lag, g, nd = self.f.lagrangian, self.f.lagrangian.graph, self.f.nd
        bias = ca.jtimes(lag.L_v, g.q_vector, g.v_vector) - lag.L_q - lag.F
        inverse = self.bodies.impulse_inverse(self.bodies.places(ca.vertsplit(g.q_vector)), 1.0, [0.0] * nd)
        return lag.function("acceleration", [vec.column(inverse.solve(ca.vertsplit(-bias)[:nd]))])


def _matrix(rows: list[list[Any]], columns: int) -> ca.SX:
    return ca.vertcat(ca.SX(0, columns), *(ca.horzcat(*row) for row in rows))
