"""Equations of one step of the generalized midpoint rule.

They are [T] (19)-(22), (44)-(46), [S] (28), with L_d = dt L((1 - alpha) q_k + alpha q_k+1, (q_k+1 - q_k) /
dt). The maths is in docs/maths/midpoint.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import casadi as ca

from vioc.checks import as_value
from vioc.dynamics.algebra.articulated import ArticulatedInverse
from vioc.dynamics.algebra.vectors import part
from vioc.dynamics.integrators.chord import ChordParts, ChordRule
from vioc.errors import ModelError

if TYPE_CHECKING:
    from vioc.dynamics.integrators.mechanical import MechanicalMap

FORCING = ("symmetric", "left")


def as_alpha(alpha: float, forcing: str) -> float:
    """Return alpha as a float; raise `ModelError` if alpha or `forcing` is invalid.
    Alpha, from 0 to 1, is the point of a step at which the Lagrangian is evaluated, as a fraction of the
    step. The option `forcing` determines at which ends of a step the forces act.
    """
    alpha = as_value(alpha, "alpha")
    if not 0 <= alpha <= 1:
        raise ModelError(f"alpha: expected a number in [0, 1], got {alpha!r}")
    if forcing not in FORCING:
        raise ModelError(f"forcing: expected one of {', '.join(FORCING)}, got {forcing!r}")
    return alpha


class MidpointRule(ChordRule):
    """Equations of one step of the generalized midpoint rule.

    Parameters
    ----------
    f : MechanicalMap
    alpha, forcing
        Options of `MidpointVI`.
    kept_on_the_way : sequence of bool
        Mask of the constraints on velocities, A(q) dq = 0 over a step instead of h(q_k+1) = 0.
    """

    def __init__(self, f: MechanicalMap, alpha: float, forcing: str, kept_on_the_way: Sequence[bool] = ()):
        super().__init__(f)
        self.alpha, self.kept_on_the_way = alpha, kept_on_the_way
        self._left = forcing == "left"
        self.lacking = 0.5 if self._left else 0.0

    def force_shares(self, dt: Any) -> tuple[Any, Any]:
        """Return the factors that convert a force to its impulses in a step.
        The first factor is for the impulse at the start, the second for that at the end of the step.
        """
        return (dt, 0.0) if self._left else (dt / 2, dt / 2)

    def parts(self, q0: Any, q1: Any, p: Any, u: Any, t: Any, dt: Any, theta: Any) -> ChordParts:
        a, nd = self.alpha, self.f.nd
        L_q, L_v, F = (part(e, 0, nd) for e in self._first_order(*self._middle(q0, q1, u, t, dt, theta)))
        minus, plus = self.force_shares(dt)
        balance = p + dt * (1 - a) * L_q - L_v + minus * F
        momentum = dt * a * L_q + L_v + plus * F
        return ChordParts(balance, momentum, dt * L_q + (minus + plus) * F)

    def _middle(self, q0: Any, q1: Any, u: Any, t: Any, dt: Any, theta: Any) -> tuple:
        """Return the arguments at which a step evaluates Lagrangian and forces.
        They are (q, v, u, t, parameters) at the fraction alpha of the step.
        """
        a = self.alpha
        return (1 - a) * q0 + a * q1, (q1 - q0) / dt, u, t + a * dt, theta

    @cached_property
    def _first_order(self) -> ca.Function:
        lag = self.f.lagrangian
        return lag.function("first_order", [lag.L_q, lag.L_v, lag.F])

    def closing(self, q0: Any, q1: Any, theta: Any) -> tuple[Any, Any]:
        if any(self.kept_on_the_way):
            return self._closing(q0, q1, theta)
        return self.f.constraint(q1, theta)

    @cached_property
    def _closing(self) -> ca.Function:
        """CasADi function that computes the constraint residuals of a step.
        It is used if there are velocity constraints A(q) v = 0. A velocity constraint has the residual A(q_m)
        (q1 - q0) with q_m = (q0 + q1)/2 (docs/maths/nonholonomic.md, (2)), a holonomic constraint has the
        residual h(q1). The configurations q0 and q1 are those at the start and the end of the step.
        """
        f, theta = self.f, self.f.symbols.parameters
        q0, q1 = ca.SX.sym("q0", f.nq), ca.SX.sym("q1", f.nq)
        values, between = f.constraint(q1, theta)[0], f.constraint((q0 + q1) / 2, theta)[1]
        rows = [
            between[i, :] @ (q1 - q0) if on_the_way else values[i]
            for i, on_the_way in enumerate(self.kept_on_the_way)
        ]
        column = ca.vertcat(ca.SX(0, 1), *rows)
        return ca.Function("closing", [q0, q1, theta], [column, ca.jacobian(column, q1)])

    @cached_property
    def newton_matrix(self) -> ca.Function:
        """CasADi function that computes the Newton matrix of a step, D2 D1 L_d + D2 F-, and the mass matrix.
        It is the derivative of the momentum balance with respect to the next configuration ([T] (22), [S]
        (8)), with the discrete Lagrangian L_d and the impulse F- of the forces at the start of the step. The
        arguments are (q_m, v, u, t, parameters, dt), with the configuration q_m and the velocity v at which
        the step evaluates the Lagrangian.
        """
        lag, g, a, nd = self.f.lagrangian, self.f.lagrangian.graph, self.alpha, self.f.nd
        dt = ca.SX.sym("dt")
        K, C, M = lag.second
        minus, _ = self.force_shares(dt)
        by_q = dt * (1 - a) * K - C + minus * ca.jacobian(lag.F, g.q_vector)
        by_v = dt * (1 - a) * C.T - M + minus * ca.jacobian(lag.F, g.v_vector)
        return lag.function("newton_matrix", [(a * by_q + by_v / dt)[:nd, :nd], M[:nd, :nd]], [dt])

    def slope_and_masses(self, q0: Any, q1: Any, u: Any, t: Any, dt: Any, theta: Any) -> tuple[ca.SX, ca.SX]:
        return self.newton_matrix(*self._middle(q0, q1, u, t, dt, theta), dt)

    def of_terms(self, dt: ca.SX) -> ca.SX:
        """Return the part of a step's Newton matrix due to forces and potentials.
        Gravity is not included. The Newton matrix (nd, nd) is the derivative of the momentum balance with
        respect to the next configuration.
        """
        lag, g, a, nd = self.f.lagrangian, self.f.lagrangian.graph, self.alpha, self.f.nd
        minus, _ = self.force_shares(dt)
        by_q = -dt * (1 - a) * lag.stiffness + minus * ca.jacobian(lag.F, g.q_vector)
        by_v = minus * ca.jacobian(lag.F, g.v_vector)
        return (a * by_q + by_v / dt)[:nd, :nd]

    def inverse_of_mass(
        self, q0: Any, q1: Any, u: Any, t: Any, dt: Any, theta: Any
    ) -> tuple[ArticulatedInverse, ca.SX]:
        """Return an approximate solver of linear systems with a step's Newton matrix.
        The solver is faster than a factorization of the matrix. Return also the pivots (nd,) of the mass
        matrix.

        It uses the matrix -(M + dt^2 ...)/dt instead. The mass matrix M is the part of D2 D1 L_d that
        dominates for small dt. The terms of order dt^2 are those of springs and dampers.
        """
        f, lag, h = self.f, self.f.lagrangian, ca.SX.sym("dt")
        terms = -h * self.of_terms(h)
        links, diagonal = lag.first.links, ca.vertsplit(ca.diag(terms))
        pairs = [(i, j) for i, j in zip(*terms.sparsity().get_triplet(), strict=True) if i < j]
        couplings = {(i, j): (terms[i, j] + terms[j, i]) / 2 for i, j in pairs}
        poses = [link.pose for link in links]
        factored = ArticulatedInverse.of_masses(links, poses, f.nd, diagonal, -h, couplings)
        masses = factored
        if terms.nnz():
            masses = ArticulatedInverse.of_masses(links, poses, f.nd, [0.0] * f.nd)
        outputs = [ca.vertcat(*factored.entries()), masses.pivots]
        middle = *self._middle(q0, q1, u, t, dt, theta), dt
        numbers, pivots = lag.function("articulated", outputs, [h])(*middle)
        return factored.with_entries(ca.vertsplit(numbers)), pivots
