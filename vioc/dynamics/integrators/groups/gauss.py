"""Steps of higher order on the group, by Gauss's points (docs/maths/groups.md, (7)-(11)).

Unknown are the rates V_i at the points, which make L_v there the momenta that the curve and the forces along
it lead to. The mass matrices of the points stand for the derivatives.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import casadi as ca
import numpy as np

from vioc.dynamics.algebra import rotations as rot
from vioc.dynamics.algebra import vectors as vec
from vioc.dynamics.algebra.vectors import part
from vioc.dynamics.integrators.groups.curves import Curves
from vioc.dynamics.integrators.groups.stages import StageDerivatives, StageEquations
from vioc.dynamics.integrators.iteration import by_newton, repeated
from vioc.dynamics.integrators.newton import solve_step
from vioc.dynamics.integrators.quadrature import quadrature, values
from vioc.dynamics.lagrangian import OPTIONS

if TYPE_CHECKING:
    from vioc.dynamics.integrators.groups.map import GroupVI

# The last correction over the root of their number: rates are found to rounding, since what is left of them
# turns the momentum of a body whose frame is not at its centre of mass.
CONVERGED = 3e-16


class GaussStep:
    """Steps of a `GroupVI` of several stages."""

    def __init__(self, f: GroupVI):
        self.f, self.space, self.group = f, f.space, f.group
        self.rule = quadrature(f.points, f.stages)
        self.curves = Curves(self.rule)

    @cached_property
    def derivatives(self) -> StageDerivatives:
        return StageDerivatives(self.f, self.curves)

    @cached_property
    def _places(self) -> ca.Function:
        """(x, V (nd, s), dt) -> configurations at the points (nq, s) and at the end (nq,)."""
        space, rule, s = self.space, self.rule, self.rule.stages
        x, dt, V = ca.SX.sym("x", self.f.nx), ca.SX.sym("dt"), ca.SX.sym("V", space.nd, s)
        r, rates = x[: space.nr], V[: space.nr, :]
        places, end = [ca.repmat(r, 1, s) + dt * rates @ ca.DM(rule.A).T], [r + dt * rates @ ca.DM(rule.b)]
        for i, start in zip(range(space.nr, space.nd, 3), space.quaternions(x), strict=True):
            stages, last = self.curves.path(V[i : i + 3, :], dt)
            turned = (rot.multiply(start, tuple(ca.vertsplit(c))) for c in ca.horzsplit(stages))
            places.append(ca.horzcat(*map(vec.column, turned)))
            end += rot.advanced(start, tuple(ca.vertsplit(last)))
        return ca.Function("places", [x, V, dt], [ca.vertcat(*places), ca.vertcat(*end)], OPTIONS)

    @cached_property
    def _factors(self) -> ca.Function:
        """(x, V (nd, s), dt, parameters) -> factors of the mass matrix at the points, one below the other."""
        x, V, dt = self._places.sx_in()
        theta = ca.SX.sym("theta", len(self.f.parameters))
        places = ca.horzsplit(self._places(x, V, dt)[0])
        found = [self.group.masses[0](q, theta) for q in places]
        return ca.Function("factors", [x, V, dt, theta], [ca.vertcat(*found)], OPTIONS)

    @cached_property
    def _iterate(self) -> ca.Function:
        """(V_1 ... V_s, x, u, t, dt, parameters, factors) -> V, (x_next, V), last correction of increments.

        x_next is that of the V given, so that what it keeps does not depend on how well they are solved for.
        """
        f, space, rule, s = self.f, self.space, self.rule, self.rule.stages
        nr, nd, nq, solve = space.nr, space.nd, space.nq, self.group.masses[1]
        z, x, u = ca.SX.sym("z", s * nd), ca.SX.sym("x", f.nx), ca.SX.sym("u", f.nu)
        t, dt, theta = ca.SX.sym("t"), ca.SX.sym("dt"), ca.SX.sym("theta", len(f.parameters))
        factors = ca.SX.sym("factors", self._factors.numel_out(0))
        V, p = ca.reshape(z, nd, s), part(x, nq, nq + nd)
        places, q_next = self._places(x, V, dt)
        found = [self.group.terms(places[:, i], V[:, i], u, t + c * dt, theta) for i, c in enumerate(rule.c)]
        own = ca.horzcat(*(L_v for L_v, *_ in found))
        force = ca.horzcat(*(L_q + F for _, L_q, F, *_ in found))
        there = [ca.repmat(p[:nr], 1, s) + dt * force[:nr, :] @ ca.DM(rule.Ab).T]
        ends = [p[:nr] + dt * force[:nr, :] @ ca.DM(rule.b)]
        for i in range(nr, nd, 3):
            mine = slice(i, i + 3)
            momenta, end = self.curves.momenta(V[mine, :], force[mine, :], p[mine], dt)
            there.append(momenta)
            ends.append(end)
        left = own - ca.vertcat(*there)
        numbers = ca.horzsplit(ca.reshape(factors, -1, s))
        by = ca.horzcat(*(solve(w, a) for w, a in zip(numbers, ca.horzsplit(left), strict=True)))
        x_next = ca.vertcat(q_next, *ends)
        size = ca.vertcat(1 + ca.fabs(x[:nr]), ca.SX.ones(nd - nr))
        error = ca.norm_2(ca.vec(dt * by / ca.repmat(size, 1, s)))
        after = ca.vec(V - by)
        args = [z, x, u, t, dt, theta, factors]
        return ca.Function("iterate", args, [after, ca.vertcat(x_next, after), error], OPTIONS)

    def residual(self) -> None:
        """There is none: a step has unknowns beside its end."""

    def solved(self, robust: bool = False) -> None:
        """There is none, as seeds are rates at all points."""

    def kernel(self, robust: bool = False) -> ca.Function | None:
        """(carry, u, t, dt, parameters) -> (carry_next, multipliers, error); see `repeated`, `by_newton`.

        The carry is x and the rates at the points of the step before, whose polynomial goes on as this step's
        first guess.
        """
        f, nd, s = self.f, self.space.nd, self.rule.stages
        solved = (by_newton if robust else repeated)(self._iterate, CONVERGED * float(np.sqrt(s * nd)))
        if solved is None:
            return None
        carry, u = ca.MX.sym("carry", f.nx + s * nd), ca.MX.sym("u", f.nu)
        t, dt, theta = ca.MX.sym("t"), ca.MX.sym("dt"), ca.MX.sym("theta", len(f.parameters))
        x, ahead = carry[: f.nx], ca.DM(values(self.rule.c, 1 + self.rule.c))
        guess = ca.reshape(carry[f.nx :], nd, s) @ ahead.T
        after, error = solved(ca.vec(guess), x, u, t, dt, theta, self._factors(x, guess, dt, theta))
        return ca.Function("gauss_step", [carry, u, t, dt, theta], [after, ca.MX(0, 1), error])

    def carry(self, f: GroupVI, x: np.ndarray, before: np.ndarray, dt: float | np.ndarray) -> np.ndarray:
        v = f.velocities(x)
        v = np.where(np.isfinite(v).all(axis=-1, keepdims=True), v, 0.0)
        return np.concatenate([x, *[v] * self.rule.stages], axis=-1)

    def rescued(self, f: GroupVI, x: np.ndarray, u: np.ndarray, k: int, t: float, dt: float):
        equations = StageEquations(self.derivatives, x, u, t, f.theta)
        found = solve_step(equations, k, t, dt, f.tolerance)
        return equations.end(found.z, dt), np.zeros(0)
