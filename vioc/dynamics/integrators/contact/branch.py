"""Certificate that a root of a step with contact is the physical solution.

The physical solution lies on the branch of the step: the roots that start at the present state and vary
continuously as the step length grows from 0. Impulses of constraints and contacts act at the start of a step.
If these impulses are given, the equations of the step have a branch of roots, as without contact. The root is
a mean velocity V. By the theorem of Newton and Kantorovich it is on the branch if the equations are nearly
linear between V and the velocities after the impulses. Otherwise the branch is followed from the velocities
of the state, with impulses that grow with the step length. Maths: docs/maths/contact.md, "Which root is the
step".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import casadi as ca
import numpy as np

from vioc.dynamics.algebra import vectors as vec
from vioc.dynamics.algebra.vectors import part
from vioc.dynamics.integrators.branch_equations import BranchRoot, Linearized
from vioc.dynamics.integrators.chord import CONTRACTION
from vioc.dynamics.integrators.newton import ONE, solve_step
from vioc.dynamics.integrators.predictor import far
from vioc.dynamics.integrators.step_equations import StepEquations
from vioc.errors import StepError

if TYPE_CHECKING:
    from vioc.dynamics.integrators.contact.contact_vi import ContactVI


def suspect(f: ContactVI, x: Any, u: Any, V: Any, balance: Any, t: Any, dt: Any, theta: Any) -> Any:
    """Return 0 if a root of a step with contact is certified, else infinity.
    A certified root is proven to be the physical solution. The root V is the mean velocity of the step, and
    `balance` is the momentum balance without impulses at V.

    The conditions are |M^-1 r| <= min(1, d.M^-1 D d / d.d) |d| / 4, and that v turns angles by at most `FAR`.
    Here M is the mass matrix, v is the velocity after the impulses, d = V - v, -D is the derivative of the
    momentum balance at v, and r is the difference between `balance` and its linearization at v. For linear
    equations r = 0.
    """
    lag, nd, nq = f.lagrangian, f.nd, f.nq
    q0, p, rho = part(x, 0, nq), part(x, nq, nq + nd), part(u, len(f.system.inputs))
    g, inverse = lag.graph, lag.mass_inverse
    numbers = ca.Function("masses", [g.q_vector, g.parameters], [ca.vertcat(*inverse.entries())])
    inverse = inverse.with_entries(ca.vertsplit(numbers(q0, theta)))

    def velocity(b: Any) -> Any:
        return vec.column(inverse.solve(ca.vertsplit(b)))

    carried = p - balance
    if nq > nd:
        rates, v_k = (rho - part(q0, nd)) / dt, part(g.v_vector, nd)
        along = lag.M[:nd, nd:] @ v_k
        carried -= ca.Function("along", [g.q_vector, v_k, g.parameters], [along])(q0, rates, theta)
    v = velocity(carried)
    w, dw = ca.SX.sym("w", nd), ca.SX.sym("by", nd)
    q1 = ca.vertcat(part(q0, 0, nd) + dt * w, rho)
    balance_at_w = f.rule.parts(q0, q1, p, part(u, 0, len(f.system.inputs)), t, dt, theta).balance
    tangent = ca.Function(
        "tangent", [w, dw, x, u, t, dt, theta], [balance_at_w, ca.jtimes(balance_at_w, w, dw)]
    )
    d, weights = V - v, f.lagrangian.mass_scale
    begin, slope = tangent(v, d, x, u, t, dt, theta)
    e, stiff = velocity(balance - begin - slope), velocity(-slope)
    square, along = ca.dot(weights * d, d), ca.dot(weights * d, stiff)
    contracts = ca.sqrt(ca.dot(weights * e, e) * square) <= CONTRACTION * ca.fmin(square, along)
    rounding = ca.norm_2(dt * e / (lag.natural_sizes[:nd] + ca.fabs(part(q0, 0, nd)))) <= f.tolerance
    turn = far(dt * v, f.turning)
    return ca.if_else(ca.logic_or(contracts, rounding), 0.0, ca.inf) + turn


class WithContact(StepEquations):
    """Equations of a step with prescribed contact impulses, for continuation.
    The continuation increases the step length from 0. If the step is shortened to a fraction of its length,
    the contact impulses (nd,) are multiplied by the same fraction.
    """

    contact, by_arclength = True, False

    def __init__(self, f: ContactVI, x: np.ndarray, u: np.ndarray, t: float, dt: float, impulses: np.ndarray):
        super().__init__(f, f.rule, x, u, t, dt)
        self.impulses = impulses

    def __call__(self, w: np.ndarray, share: float) -> Linearized:
        linearized = super().__call__(w, share)
        linearized.residual[: len(w)] += share * self.impulses
        return linearized

    def rate_by_share(self, w: np.ndarray, multipliers: np.ndarray, share: float) -> np.ndarray:
        rate = super().rate_by_share(w, multipliers, share)
        rate[: len(w)] += self.impulses
        return rate

    def failure(self, root: BranchRoot, k: int, where: str) -> None:
        return None


def check_branch(
    f: ContactVI, x: np.ndarray, u: np.ndarray, k: int, t: float, dt: float, q1: np.ndarray, lam: np.ndarray
) -> None:
    """Raise `StepError` if continuation does not lead to the root q1 of a step.
    Continuation increases the step length from 0, at state x. The root q1 (nd,) is the next dynamic
    configuration; `lam` are the impulses of the constraints.
    """
    blocks = f.rule.blocks(x, u, t, dt, f.theta, q1)
    equations = WithContact(f, x, u, t, dt, blocks.J0.T @ lam - blocks.balance)
    distance = np.inf
    try:
        root = solve_step(equations, k, t, f.tolerance)
        distance = float(np.linalg.norm(equations.size * (root.w - (q1 - x[: f.nd]) / dt)))
    except StepError:
        pass
    if not distance <= ONE:
        raise StepError(
            f"step {k} (t = {t:.6g} s, dt = {dt:g} s) does not exist: its equations with contact are solved "
            "only by roots that no branch connects to the velocities of the state. Use a smaller dt "
            "(f.with_dt, f.substeps(n)); rollout(..., adaptive=True) halves such steps, to inspect a motion",
            k,
            distance,
            "fold",
        )
