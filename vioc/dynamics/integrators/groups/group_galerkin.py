"""Steps of order 4 and higher for mechanisms with rotations as unit quaternions.

The unknowns are the rates V_i of the configuration at the quadrature points of a step (docs/maths/groups.md,
(7)-(11)). At the solution, the momentum L_v at each point equals the momentum that forces produce along the
curve. As in `GalerkinVI`, mass matrices approximate the derivatives in the iteration, and constraints are
enforced.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import casadi as ca
import numpy as np

from vioc.dynamics.algebra import rotations as rot
from vioc.dynamics.algebra import vectors as vec
from vioc.dynamics.algebra.vectors import part
from vioc.dynamics.integrators.chord import CONTRACTION_OF_MASS
from vioc.dynamics.integrators.groups.curves import curves_of
from vioc.dynamics.integrators.groups.group_stages import GroupStageDerivatives, StageEquations
from vioc.dynamics.integrators.iteration import repeated
from vioc.dynamics.integrators.newton import solve_step
from vioc.dynamics.integrators.predictor import far

if TYPE_CHECKING:
    from vioc.dynamics.integrators.groups.group_vi import GroupVI

# Last correction over the root of the number of rates. Rates are solved to rounding, since their errors
# rotate the momentum of a body whose frame is not at its centre of mass.
CONVERGED = 3e-16


class GalerkinStep:
    """Solver of steps with several stages, for rotations as unit quaternions, on SO(3)^n x R^m."""

    def __init__(self, f: GroupVI):
        self.f, self.space, self.group = f, f.space, f.group
        self.curves = curves_of(f.points, f.stages)
        self.rule = self.curves.rule

    @cached_property
    def derivatives(self) -> GroupStageDerivatives:
        return GroupStageDerivatives(self.f, self.curves)

    @cached_property
    def _places(self) -> ca.Function:
        """CasADi function that computes the configurations along a step.
        Its arguments and results are (x, V (nd, s), dt) -> configurations at the s quadrature points (nq, s)
        and at the end (nq,) of the step. V are the rates of the configuration at the quadrature points.
        """
        space, rule, s = self.space, self.rule, self.rule.stages
        x, dt, V = ca.SX.sym("x", self.f.nx), ca.SX.sym("dt"), ca.SX.sym("V", space.nd, s)
        r, rates = x[: space.nr], V[: space.nr, :]
        places, end = [ca.repmat(r, 1, s) + dt * rates @ ca.DM(rule.A).T], [r + dt * rates @ ca.DM(rule.b)]
        for i, start in zip(range(space.nr, space.nd, 3), space.attitudes(x), strict=True):
            stages, end_turn = self.curves.path(V[i : i + 3, :], dt)
            rotations = (rot.multiply(start, tuple(ca.vertsplit(c))) for c in ca.horzsplit(stages))
            places.append(ca.horzcat(*map(vec.column, rotations)))
            end += rot.advanced(start, tuple(ca.vertsplit(end_turn)))
        return ca.Function("places", [x, V, dt], [ca.vertcat(*places), ca.vertcat(*end)])

    @cached_property
    def _factors(self) -> ca.Function:
        """CasADi function that factorizes the mass matrix for a step.
        Its arguments and results are (x, V (nd, s), dt, parameters) -> stacked factors, with the rates V of
        the configuration at the s quadrature points. The mass matrix is factorized at these points or, with
        constraints, only in the middle of the step.
        """
        x, V, dt = self._places.sx_in()
        theta = ca.SX.sym("theta", len(self.f.parameters))
        places = ca.horzsplit(self._places(x, V, dt)[0])
        if self.f.nm:  # the middle is the end of a half step at the mean rates of the first half
            s, rule = self.rule.stages, self.rule
            first = 2 * V @ (ca.DM(rule.values(np.array([0.5]))) @ ca.DM(rule.A)).T
            places = [self._places(x, ca.repmat(first, 1, s), dt / 2)[1]]
        factors = [self.group.masses[0](q, theta) for q in places]
        return ca.Function("factors", [x, V, dt, theta], [ca.vertcat(*factors)])

    @property
    def _unknowns(self) -> int:
        """Number of unknowns of a step with several stages.
        The unknowns are the rates of the configuration at all stages, and the multipliers at all stages but
        the last.
        """
        return self.rule.stages * self.space.nd + (self.rule.stages - 1) * self.f.nm

    @cached_property
    def _iterate(self) -> ca.Function:
        """CasADi function that computes one iteration of the solver of a step.
        Its arguments and results are (z, x, u, t, dt, parameters, factors) -> new z, (x_next, z), error. The
        unknowns z are the rates V_1 to V_s of the configuration and the multipliers lambda_1 to lambda_s-1 at
        the stages. The error is the correction of the increments of the configuration.

        The next state x_next is computed from the argument z and not from the new z. Its conserved quantities
        therefore do not depend on the error of z. It contains only the impulses of the multipliers in the
        argument z.
        """
        f, space, rule, s = self.f, self.space, self.rule, self.rule.stages
        nr, nd, nq, nm = space.nr, space.nd, space.nq, f.nm
        z, x, u = ca.SX.sym("z", self._unknowns), ca.SX.sym("x", f.nx), ca.SX.sym("u", f.nu)
        t, dt, theta = ca.SX.sym("t"), ca.SX.sym("dt"), ca.SX.sym("theta", len(f.parameters))
        factors = ca.SX.sym("factors", self._factors.numel_out(0))
        V, p = ca.reshape(z[: s * nd], nd, s), part(x, nq, nq + nd)
        lam = ca.reshape(z[s * nd :], nm, s - 1)
        places, q_next = self._places(x, V, dt)
        outputs = [
            self.group.terms(places[:, i], V[:, i], u, t + c * dt, theta) for i, c in enumerate(rule.c)
        ]
        stage_momenta = ca.horzcat(*(L_v for L_v, *_ in outputs))
        force = ca.horzcat(*(L_q + F for _, L_q, F, *_ in outputs))
        h = ca.SX(nm, s)
        if nm:
            closed = [self.group.constraint(places[:, i], theta) for i in range(s)]
            h = ca.horzcat(*(each for each, _ in closed))
            pushed = [Dh.T @ lam[:, i] for i, (_, Dh) in enumerate(closed[:-1])]
            force -= ca.horzcat(*pushed, ca.SX.zeros(nd))
        required = [ca.repmat(p[:nr], 1, s) + dt * force[:nr, :] @ ca.DM(rule.Ab).T]
        ends = [p[:nr] + dt * force[:nr, :] @ ca.DM(rule.b)]
        for i in range(nr, nd, 3):
            mine = slice(i, i + 3)
            momenta, end = self.curves.momenta(V[mine, :], force[mine, :], p[mine], dt)
            required.append(momenta)
            ends.append(end)
        correction, changes = self._corrections(stage_momenta - ca.vertcat(*required), h, factors, dt)
        x_next = ca.vertcat(q_next, *ends)
        size = ca.DM(self.f.group.natural_sizes) + ca.vertcat(ca.fabs(x[:nr]), ca.SX(nd - nr, 1))
        error = ca.norm_2(ca.vec(dt * correction / ca.repmat(size, 1, s)))
        z_next = ca.vertcat(ca.vec(V - correction), ca.vec(lam - changes))
        args = [z, x, u, t, dt, theta, factors]
        outputs = ca.vertcat(x_next, z_next, part(z, s * nd))
        return ca.Function("iterate", args, [z_next, outputs, error])

    def _corrections(self, residual: Any, h: Any, factors: Any, dt: Any) -> tuple[Any, Any]:
        """Return the corrections of one iteration of a step with s stages.
        They are corrections of the rates (nd, s) of the configuration and of the multipliers (nm, s - 1). The
        argument `residual` is the residual of the momentum equations, h is the residual of the constraints,
        and `factors` is the factorized mass matrix.

        Multipliers are eliminated by equation (GA 12) of docs/maths/galerkin.md.
        """
        _, solve, pushes = self.group.masses
        s, nm, rule = self.rule.stages, self.f.nm, self.rule
        columns = ca.horzsplit(residual)
        if not nm:
            numbers, none = ca.horzsplit(ca.reshape(factors, -1, s)), ca.SX(0, 1)
            corrections = [solve(w, a, none) for w, a in zip(numbers, columns, strict=True)]
            return ca.horzcat(*corrections), ca.SX(0, s - 1)
        Ab = rule.Ab[:, :-1]
        inverse = np.linalg.inv(rule.A[1:] @ Ab)
        weighted = residual @ ca.DM(rule.A).T
        y = ca.horzcat(*(pushes(factors, weighted[:, i], h[:, i] / dt) for i in range(1, s)))
        impulses = ca.horzsplit(y @ ca.DM(Ab @ inverse).T)
        corrections = [solve(factors, a, b) for a, b in zip(columns, impulses, strict=True)]
        return ca.horzcat(*corrections), y @ ca.DM(inverse).T / dt

    def residual(self) -> None:
        """Return None, because the residual is not a function of the two states alone.
        The equations of a step with several stages contain further unknowns: the rates of the configuration
        at the stages.
        """

    def kernel(self, robust: bool = False) -> ca.Function | None:
        """Return the CasADi function that solves one step, or None if `robust` is True.
        The function is (x, u, t, dt, parameters) -> (next state, multipliers, error of the solution). The
        initial guess of the rates of the configuration at the stages extrapolates these rates from the start
        of the step, by the accelerations there. The initial guess of the multipliers is their value at the
        start. The robust solver is the method `rescued`.
        """
        if robust:
            return None
        f, rule, nd, nm, s = self.f, self.rule, self.space.nd, self.f.nm, self.rule.stages
        solved = repeated(self._iterate, CONVERGED * float(np.sqrt(s * nd)), CONTRACTION_OF_MASS)
        x, u = ca.MX.sym("x", f.nx), ca.MX.sym("u", f.nu)
        t, dt, theta = ca.MX.sym("t"), ca.MX.sym("dt"), ca.MX.sym("theta", len(f.parameters))
        v, a, lam = self.group.motion(x[: f.nq], x[f.nq :], u, t, theta)
        V = ca.repmat(v, 1, s) + dt * a @ ca.DM(rule.c).T
        guess = ca.vertcat(ca.vec(V), ca.repmat(lam, s - 1, 1))
        solution, error = solved(guess, x, u, t, dt, theta, self._factors(x, V, dt, theta))
        error += far(rule.spacing * dt * (ca.fabs(v) + dt / 2 * ca.fabs(a)), f.turning)
        x_next, impulse = solution[: f.nx], ca.MX(0, 1)
        if nm:
            p, impulse = self.group.settled(solution[: f.nq], solution[f.nq : f.nx], theta)
            n = f.nx + self._unknowns  # index of the multipliers in p, as in `GalerkinVI`
            impulse += dt * ca.reshape(solution[n:], nm, s - 1) @ ca.DM(rule.b[:-1])
            x_next = ca.vertcat(solution[: f.nq], p)
        return ca.Function("stages_step", [x, u, t, dt, theta], [x_next, impulse, error])

    def rescued(self, f: GroupVI, x: np.ndarray, u: np.ndarray, k: int, t: float, dt: float):
        """Solve a step by continuation in its length, and return next state and multipliers."""
        equations = StageEquations(self.derivatives, f, x, u, t, dt)
        return equations.end(solve_step(equations, k, t, f.tolerance).w)
