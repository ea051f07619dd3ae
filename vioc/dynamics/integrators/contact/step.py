"""The equations of a step with contact in generalized coordinates, as expressions and at numbers.

    p_k + D1 L_d + F- - Dh(q_k)' lambda + N(q_k)' gamma + T(q_k)' tau = 0,    q_k+1 = q_k + dt V
    h(q_k+1) = 0,    0 <= phi(q_k+1)/dt perp gamma >= 0,    tau dissipates most with |tau| <= mu gamma
    p_k+1 = D2 L_d + F+

docs/maths/contact.md, "In generalized coordinates".
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import casadi as ca
import numpy as np

from vioc.compile.evaluate import Evaluator
from vioc.dynamics.algebra.vectors import part
from vioc.dynamics.integrators.contact.cones import Variables
from vioc.dynamics.integrators.contact.interior import ContactStep, End, InteriorPoint, Problem, Step
from vioc.dynamics.lagrangian import OPTIONS

if TYPE_CHECKING:
    from vioc.dynamics.integrators.contact.map import ContactVI
    from vioc.dynamics.integrators.midpoint import MidpointParts


class Balance(NamedTuple):
    """A step from x with the mean velocity V, without impulses of constraints and contacts.

    Attributes
    ----------
    parts : MidpointParts
    q1 : (nq,)
    rates : (nq,)
        Mean rates over the step.
    h, gaps : columns
        Constraints and gaps at its end, the latter over dt.
    Dh0, Dh1, slopes : matrices
        Of h at both ends, and of the gaps at the end, by the dynamic variables.
    J : list of (rows, nd)
        Slopes of each touch's gap and slip at the start.
    speeds : list of columns
        Of each touch, (phi(q_k+1)/dt, slip).
    """

    parts: MidpointParts
    q1: Any
    rates: Any
    h: Any
    gaps: Any
    Dh0: Any
    Dh1: Any
    slopes: Any
    J: list[Any]
    speeds: list[Any]


def balance(f: ContactVI, x: Any, u: Any, V: Any, t: Any, dt: Any, theta: Any) -> Balance:
    nq, nd, nf = f.nq, f.nd, len(f.system.inputs)
    q0, p, rho, forces = part(x, 0, nq), part(x, nq, nq + nd), part(u, nf), part(u, 0, nf)
    q1 = ca.vertcat(part(q0, 0, nd) + dt * V, rho)
    rates = ca.vertcat(V, (rho - part(q0, nd)) / dt)
    parts = f.parts(q0, q1, p, forces, t, dt, theta)
    h1, Dh1 = f.constraint(q1, theta)
    Dh0 = f.constraint(q0, theta)[1]
    phi, slopes = f.touches.gaps(q1, theta)
    J = f.touches.rows(f.touches.held(q0, theta))
    speeds = [ca.vertcat(a, own[1:, :] @ rates) for a, own in zip(ca.vertsplit(phi / dt), J, strict=True)]
    cut = [own[:, :nd] for own in J]
    return Balance(parts, q1, rates, h1, phi / dt, Dh0[:, :nd], Dh1[:, :nd], slopes[:, :nd], cut, speeds)


class Departure(End):
    """Residuals and Newton's directions of a map's step, for mean velocities V of its dynamic variables."""

    def __init__(self, f: ContactVI):
        touches = f.touches.all
        self.rows, self.variables = f.nm, Variables([t.cone for t in touches])
        parts = self.variables.parts
        nd, nf = f.nd, len(f.system.inputs)
        sizes = {"V": nd, "lambda": self.rows, "y": int(parts[-1]), "x": f.nx, "u": f.nu}
        V, lam, y, x, u = (ca.SX.sym(name, size) for name, size in sizes.items())
        t, dt, theta = ca.SX.sym("t"), ca.SX.sym("dt"), f.symbols.parameters
        goal, dV, speed = ca.SX.sym("goal", 2), ca.SX.sym("dV", nd), ca.SX.sym("speed")
        at = balance(f, x, u, V, t, dt, theta)
        mu = ca.vertsplit(f.touches.friction(theta))
        own = ca.vertsplit(y, parts.tolist())
        each = list(zip(touches, own, at.speeds, at.J, ca.vertsplit(at.slopes), mu, strict=True))

        left = at.parts.balance - at.Dh0.T @ lam
        momentum = part(x, f.nq, f.nq + nd) + at.parts.impulse - at.Dh0.T @ lam
        M = -dt * f.slope(part(x, 0, f.nq), at.q1, part(u, 0, nf), t, dt, theta)
        rhs, dy, mismatch, products, impulses, fresh = [], [], [], [], [], []
        for touch, z, w, J, H, m in each:
            cone, dw = touch.cone, ca.SX.sym("dw", w.numel())
            left, momentum = (a + J.T @ cone.impulse(z) for a in (left, momentum))
            direction = cone.direction(z, w, dw, goal[0], m, goal[1])
            change = ca.jacobian(cone.impulse(z), z) @ direction
            still = ca.SX.zeros(w.numel())
            K = ca.vertcat(H, J[1:, :])
            M = M - J.T @ (ca.substitute(ca.jacobian(change, dw), dw, still) @ K)
            rhs.append(J.T @ ca.substitute(change, dw, still))
            dy.append(ca.substitute(direction, dw, ca.densify(K @ dV)))
            mismatch.append(cone.mismatch(z, w, m, goal[1]))
            products.append(cone.products(z))
            impulses.append(cone.multipliers(z))
            fresh.append(cone.begin(w, speed, goal[0], m))
        matrix = ca.vertcat(ca.horzcat(M, at.Dh0.T), ca.horzcat(at.Dh1, ca.SX(self.rows, self.rows)))
        right = ca.vertcat(left + sum(rhs, ca.SX(nd, 1)), -at.h / dt)
        point = [V, lam, y, x, u, t, dt, theta]

        def function(name: str, more: list, *results: Any) -> Evaluator:
            def build() -> ca.Function:
                return ca.Function(name, [*point, *more], [ca.densify(ca.SX(r)) for r in results], OPTIONS)

            return Evaluator(build)

        stack = ca.vertcat
        self.newton = function("newton", [goal], matrix, right)
        self.expand = function("expand", [goal, dV], stack(*dy))
        self.residuals = function("residuals", [goal], left, at.h, stack(*mismatch), stack(*products))
        self.begin = function("begin", [speed, goal], stack(*fresh))
        self.multipliers = function("multipliers", [], stack(*impulses))
        self.gaps = function("gaps", [], at.gaps)
        self.after = function("after", [], stack(at.q1, momentum, at.rates[nd:]))


class OneEnd(ContactStep):
    """Steps of a map, whose contacts have one end a step."""

    def __init__(self, f: ContactVI):
        self._f = f

    @cached_property
    def end(self) -> Departure:
        return Departure(self._f)

    def problem(self, x, u, t: float, dt: float, theta, V: np.ndarray) -> Problem:
        given = x, u, np.array([t]), np.array([dt]), theta
        return Problem(self.end, given, V, dt, 1 + float(np.abs(x[: self._f.nq]).max()))

    def solve(self, solver: InteriorPoint, x, u, t: float, dt: float, theta, seeds) -> Step:
        V = self._f.velocities(x) if seeds is None else seeds[0].V
        problem = self.problem(x, u, t, dt, theta, V)
        found = solver.solve_end(problem, None if seeds is None else seeds[0])
        after = self.end.after(found.V, found.lam, found.y, *problem.given)[0][:, 0]
        return Step((found,), after, found.multipliers)
