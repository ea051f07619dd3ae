"""`GalerkinVI`: variational integrators of order up to 16, on trees in linear time a stage.

The discrete Lagrangian is a quadrature of L along a polynomial; with V_i the velocities at its points and
f = L_q + F (docs/maths/galerkin.md):

    Q_i = q_k + h sum_j A_ij V_j,         L_v(Q_i, V_i) = p_k + h sum_j Ab_ij f_j,               (GA 4)
    q_k+1 = q_k + h sum_j b_j V_j,        p_k+1 = p_k + h sum_j b_j f_j.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import casadi as ca
import numpy as np

from vioc.dynamics.algebra import vectors as vec
from vioc.dynamics.algebra.vectors import part
from vioc.dynamics.description.system import System
from vioc.dynamics.integrators.galerkin_derivatives import GalerkinDerivatives, GalerkinEquations
from vioc.dynamics.integrators.mechanical import MechanicalMap
from vioc.dynamics.integrators.newton import solve_step
from vioc.dynamics.integrators.quadrature import POINTS, Quadrature, quadrature
from vioc.dynamics.lagrangian import OPTIONS
from vioc.errors import ModelError
from vioc.maps.derivatives import Linearization, SecondOrder, Steps
from vioc.maps.kernel import shared

# The last correction of q relative to 1 + |q_k|, over the root of how many there are: a bit above rounding.
# What it leaves of momenta, which are of one evaluation before, is no drift; 1e-12 saves a tenth of the time.
CONVERGED = 2e-14
STALLED = 1e-11  # below it a correction that is not half of the one before is rounding
GROUPS = 5, 8  # iterations: so many, so often
MOST = 8  # stages


class GalerkinVI(MechanicalMap):
    """A Galerkin variational integrator: polynomials of stage velocities, and a quadrature of the action.

    Parameters
    ----------
    system : System
        Without constraints, contacts and limits of joints.
    dt : float
        Time step, s, > 0; several times that of an order-2 rule for the same error.
    stages : int
        s, of Gauss's points 1 to 8, of Lobatto's 2 to 8.
    points : {"gauss", "lobatto"}
        Where L and the forces are sampled: inside of the step, order 2 s; or at its ends too, order 2 s - 2.
    wrap, tolerance, backend
        As for `MidpointVI`.

    Raises
    ------
    ModelError
        If an option is wrong, the system has constraints, or the mass matrix is singular (the massless
        variables are named).

    Notes
    -----
    State and input as for `MidpointVI`, x = [q_d, q_k, p, v_k], u = [forces, rho]: inputs are constant over a
    step and kinematic variables move linearly. p is the momentum of the motion itself, without the
    correction of order dt^2 that the midpoint rule's has. One Gauss point is the midpoint rule, two of
    Lobatto's are Störmer and Verlet's. Steps have no derivatives by their length, so durations are not free.

    Examples
    --------
    >>> import vioc
    >>> f = vioc.GalerkinVI(vioc.models.load("pendulum"), dt=0.1, stages=3)
    >>> f.order
    6
    """

    choices: ClassVar[tuple[str, ...]] = ("stages", "points")
    symmetric = True

    def __init__(
        self,
        system: System,
        dt: float,
        *,
        stages: int = 3,
        points: str = "gauss",
        wrap: Sequence[str] = (),
        tolerance: float = 1e-11,
        backend: str = "virtual",
    ):
        if points not in POINTS:
            raise ModelError(f"points: expected one of {', '.join(POINTS)}, got {points!r}")
        least = 2 if points == "lobatto" else 1
        if stages not in range(least, MOST + 1):
            raise ModelError(f"stages: expected {least} to {MOST} of {points}'s points, got {stages!r}")
        self.stages, self.points = int(stages), points
        self.rule: Quadrature = quadrature(points, self.stages)
        super().__init__(system, dt, wrap, tolerance, backend)
        if self.nm:
            raise ModelError(
                f"{system.name}: GalerkinVI has no constraints, got {system.constraint_names[0]}; use "
                "MidpointVI, or Composition of it for order 4 and 6"
            )

    @property
    def order(self) -> int:
        return self.rule.order

    def __repr__(self) -> str:
        return (
            f"GalerkinVI({self.system.name}: order {self.order}, {self.stages} {self.points} points, "
            f"nx = {self.nx}, nu = {self.nu}, dt = {self.dt:g} s)"
        )

    # -- one step ---------------------------------------------------------------------------------

    @shared
    def stage(self) -> ca.Function:
        """(q, v, u, t, parameters) -> L_v and f = L_q + F, of the dynamic variables (nd,)."""
        lag, nd = self.lagrangian, self.nd
        return lag.function("stage", [part(lag.L_v, 0, nd), part(lag.L_q + lag.F, 0, nd)])

    @shared
    def _masses(self) -> tuple[ca.Function, ca.Function]:
        """(q, parameters) -> factors of M; (factors, b) -> M^-1 b."""
        lag, g = self.lagrangian, self.lagrangian.graph
        inverse = lag.mass_inverse
        entries = ca.vertcat(*inverse.entries())
        w, b = ca.SX.sym("w", entries.numel()), ca.SX.sym("b", self.nd)
        solved = vec.column(inverse.with_entries(ca.vertsplit(w)).solve(ca.vertsplit(b)))
        factors = ca.Function("factors", [g.q_vector, g.parameters], [entries], OPTIONS)
        return factors, ca.Function("solve", [w, b], [solved], OPTIONS)

    @shared
    def _iterate(self) -> ca.Function:
        """(V, x, u, t, dt, parameters, factors) -> V, (x_next, V), last correction; V = (V_1, ..., V_s).

        The mass matrix at one point stands for the derivative of all stages (GA 6).
        """
        rule, nd, nq, nf, s = self.rule, self.nd, self.nq, len(self.system.inputs), self.stages
        factorize, solve = self._masses
        columns, x, u = ca.SX.sym("V", nd * s), ca.SX.sym("x", self.nx), ca.SX.sym("u", self.nu)
        t, dt, theta = ca.SX.sym("t"), ca.SX.sym("dt"), ca.SX.sym("theta", len(self.parameters))
        factors = ca.SX.sym("factors", factorize.numel_out(0))
        q0, p = part(x, 0, nq), part(x, nq, nq + nd)
        q_d, q_k, rho, forces = part(q0, 0, nd), part(q0, nd), part(u, nf), part(u, 0, nf)
        rates, V = (rho - q_k) / dt, ca.reshape(columns, nd, s)
        Q = ca.repmat(q_d, 1, s) + dt * V @ ca.DM(rule.A).T
        found = [
            self.stage(
                ca.vertcat(Q[:, i], q_k + rule.c[i] * (rho - q_k)),
                ca.vertcat(V[:, i], rates),
                forces,
                t + rule.c[i] * dt,
                theta,
            )
            for i in range(s)
        ]
        momenta, f = (ca.horzcat(*column) for column in zip(*found, strict=True))
        left = momenta - ca.repmat(p, 1, s) - dt * f @ ca.DM(rule.Ab).T
        by = ca.horzcat(*(solve(factors, left[:, i]) for i in range(s)))
        V = V - by
        q1 = ca.vertcat(q_d + dt * V @ ca.DM(rule.b), rho)
        after = ca.vertcat(q1, p + dt * f @ ca.DM(rule.b), rates, ca.vec(V))
        error = ca.norm_2(ca.vec(dt * by / ca.repmat(1 + ca.fabs(q_d), 1, s)))
        args = [columns, x, u, t, dt, theta, factors]
        return ca.Function("iterate", args, [ca.vec(V), after, error], OPTIONS)

    @shared
    def _kernel(self) -> ca.Function:
        return self._from(_repeated(self._iterate, CONVERGED * np.sqrt(self.stages * self.nd)))

    @shared
    def _robust_kernel(self) -> ca.Function:
        """By Newton's method on all stages at once, for steps so fast that (GA 6) does not contract."""
        columns, *_ = args = self._iterate.sx_in()
        then, *rest = self._iterate(*args)
        residual = ca.Function("residual", args, [columns - then, *rest], OPTIONS)
        tolerance = CONVERGED * np.sqrt(self.stages * self.nd)
        options = {"abstol": tolerance, "abstolStep": tolerance, "max_iter": 20, "error_on_fail": False}
        root = ca.rootfinder("newton", "fast_newton", residual, options)
        given = [ca.MX.sym("a", a.numel()) for a in args]
        return self._from(ca.Function("newton", given, root(*given)[1:]))

    def _from(self, solved: ca.Function) -> ca.Function:
        """The carry is x, then the stages' velocities of the step before: the polynomial through them goes on
        as this step's first guess.
        """
        rule, nd, nq, nf, s = self.rule, self.nd, self.nq, len(self.system.inputs), self.stages
        carry, u = ca.MX.sym("carry", self.nx + s * nd), ca.MX.sym("u", self.nu)
        t, dt, theta = ca.MX.sym("t"), ca.MX.sym("dt"), ca.MX.sym("theta", len(self.parameters))
        x, before = carry[: self.nx], ca.reshape(carry[self.nx :], nd, s)
        guess = before @ ca.DM(rule.values(1 + rule.c)).T
        half = ca.DM(rule.values(np.array([0.5]))) @ ca.DM(rule.A)  # of V in the middle's configuration
        middle = ca.vertcat(x[:nd] + dt * guess @ half.T, (part(x, nd, nq) + part(u, nf)) / 2)
        factors = self._masses[0](middle, theta)
        after, error = solved(ca.vec(guess), x, u, t, dt, theta, factors)
        return ca.Function("step", [carry, u, t, dt, theta], [after, ca.MX(0, 1), error])

    def carry(self, x: np.ndarray, before: np.ndarray, dt: float | np.ndarray) -> np.ndarray:
        v = self.velocities(x)
        v = np.where(np.isfinite(v).all(axis=-1, keepdims=True), v, 0.0)
        return np.concatenate([x, *[v] * self.stages], axis=-1)

    def rescued(self, x: np.ndarray, u: np.ndarray, k: int, t: float, dt: float):
        equations = GalerkinEquations(self._derivatives, x, u, t, self.theta)
        found = solve_step(equations, k, t, dt, self.tolerance)
        return equations.end(found.z, dt), found.multipliers

    # -- derivatives ------------------------------------------------------------------------------

    @shared
    def _derivatives(self) -> GalerkinDerivatives:
        return GalerkinDerivatives(self)

    def first(self, steps: Steps) -> Linearization:
        return self._derivatives.first(steps, self.theta)

    def second(self, steps: Steps, Z: np.ndarray, zeta: np.ndarray) -> SecondOrder:
        return self._derivatives.second(steps, self.theta, Z)


def _repeated(iterate: ca.Function, tolerance: float) -> ca.Function:
    """(y, ...) -> (result, error) of `iterate` (y, ...) -> (y, result, error), until that is rounding.

    By calls that pass on what is done, in groups that are passed over together: a root finder of CasADi
    factors a matrix of ones at every iteration.
    """
    args = [ca.MX.sym("a", iterate.numel_in(i)) for i in range(iterate.n_in())]
    state = [args[0], ca.MX.sym("result", iterate.numel_out(1)), ca.MX.sym("error"), ca.MX.sym("before")]
    y, result, error, before = state
    context = args[1:]
    keep = ca.Function("keep", [*state, *context], state)
    found = ca.Function("once", [*state, *context], [*iterate(y, *context), error])
    goes = ca.logic_and(error > tolerance, ca.logic_or(error < 0.5 * before, error > STALLED))
    for count in GROUPS:  # what was found that many times, if at all
        either = ca.Function.if_else("either", found, keep)
        maybe = ca.Function("maybe", [*state, *context], either(goes, *state, *context))
        now = state
        for _ in range(count):
            now = maybe(*now, *context)
        found = ca.Function("group", [*state, *context], now)
    start = ca.MX(result.numel(), 1), ca.MX(np.inf), ca.MX(np.inf)
    return ca.Function("repeated", args, found(y, *start, *context)[1:3])
