"""CasADi functions of one stage of Newton's method on trajectories.

See docs/maths/optimal_control.md, "Stages". Matrices are stored row by row. The first argument of a function
is the carry: values from the stage before, in the order of the recursion. The first output is the carry to
the next stage. If the third output exceeds 1/2, the recursion must stop.
"""

from __future__ import annotations

from typing import NamedTuple

import casadi as ca

from vioc.control.descent.symbolic.stage import SymbolicStage
from vioc.control.stages.symbols import riccati_step
from vioc.maps.protocol import Kernel

FINITE = 1e300


class StageLayout(NamedTuple):
    """Positions of the matrices of one stage in a row vector.

    The vector contains the entries of all matrices of a stage, that is, of one step of an optimal control
    problem. It is the second output of the function that `model_stage` returns.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    starts: tuple[int, ...]

    @staticmethod
    def of(e: SymbolicStage) -> StageLayout:
        nx, nu, ns = e.nx, e.nu, e.ns
        shapes = {"A": (nx, nx), "B": (nx, nu), "g": (ns,), "K": (nu, nx), "L": (ns, ns), "H": (ns, ns)}
        starts = [0]
        for shape in shapes.values():
            starts.append(starts[-1] + shape[0] * (shape[1] if len(shape) > 1 else 1))
        return StageLayout(tuple(shapes), tuple(shapes.values()), tuple(starts))

    def part(self, first: str, last: str = "") -> slice:
        """Return the positions of a stage's matrix in its row vector, as a slice.
        With `last`, the slice contains all matrices from `first` to `last`.
        """
        i, j = self.names.index(first), self.names.index(last or first)
        return slice(self.starts[i], self.starts[j + 1])


def model_stage(e: SymbolicStage) -> ca.Function:
    """Return the CasADi function of the second-order cost model at one stage.

    A stage is one step of an optimal control problem. The stages are evaluated backward in time. The function
    computes projection gains, adjoint, Newton Hessian and minimizer. Its carry is (number of stages whose
    Hessian with respect to u is not positive definite, G, adjoint, P, p). G is the cost-to-go matrix of the
    regulator with the projection gains. P and p belong to the cost to go 1/2 x'P x + p'x of the model.
    """
    nx, ns, nz = e.nx, e.ns, e.nz
    square = nx * nx
    carry = ca.SX.sym("carry", 1 + 2 * square + 2 * nx)
    weights, shift = ca.SX.sym("weights", ns * ns), ca.SX.sym("shift", ns)
    ends = [0, 1, 1 + square, 1 + square + nx, 1 + 2 * square + nx, carry.numel()]
    count, G, adjoint, P, p = ca.vertsplit(carry, ends)
    G, P = ca.reshape(G, nx, nx), ca.reshape(P, nx, nx)
    AB = e.Y[:nx, :]
    l_s, l_z = e.gradient
    g = l_s + e.Y.T @ l_z
    regulator = riccati_step(AB, ca.reshape(weights, ns, ns), ca.SX(ns, 1), G, ca.SX(nx, 1))
    K = regulator.K
    L = e.condense(e.hessian(e.l))
    force = ca.vertcat(adjoint, ca.SX(nz - nx, 1)) + l_z
    rho = ca.SX.sym("rho", nz)
    curvature = e.condense(e.hessian(ca.dot(rho, e.r)))
    H = L + ca.substitute(curvature, rho, ca.densify(e.dual(force)))
    step = riccati_step(AB, H + e.w * ca.diag(shift), g, P, p)
    gradient = g + AB.T @ adjoint
    z = gradient[:nx] - K.T @ gradient[nx:]
    blocks = [AB[:, :nx].T, AB[:, nx:].T, g, K.T, L.T, H.T]
    # comparisons with NaN are false
    finite = ca.sum1(ca.fabs(ca.densify(ca.vertcat(ca.vec(AB), g, ca.vec(K), ca.vec(H))))) < FINITE
    sound = ca.logic_and(regulator.bad < 1, finite)
    outputs = [
        ca.vertcat(count + step.bad, ca.vec(regulator.P), z, ca.vec(step.P), step.p),
        ca.vertcat(*(ca.vec(b) for b in blocks)),
        ca.if_else(sound, 0.0, 1.0),
        _affine(AB, step.K, step.d),
    ]
    args = [carry, *e.arguments, weights, shift]
    return ca.Function("about", args, [ca.densify(o) for o in outputs], {"cse": True})


def quadratic_stage(e: SymbolicStage) -> ca.Function:
    """Return the CasADi function of one backward stage of a linear-quadratic problem.
    From the quadratic cost to go at the next sample, it computes the cost to go at the present sample.

    The carry is (P, p) of the cost to go 1/2 x'P x + p'x. The stage has the cost 1/2 (x, u)'(H + w
    diag(shift))(x, u) + g'(x, u) and the dynamics x+ = A x + B u.
    """
    nx, ns = e.nx, e.ns
    carry, row = ca.SX.sym("carry", nx * nx + nx), ca.SX.sym("row", nx * ns + ns)
    H, w, shift = ca.SX.sym("H", ns * ns), ca.SX.sym("w"), ca.SX.sym("shift", ns)
    A, B, g = ca.vertsplit(row, [0, nx * nx, nx * ns, row.numel()])
    P, p = ca.reshape(carry[: nx * nx], nx, nx), carry[nx * nx :]
    AB = ca.horzcat(by_rows(A, nx), by_rows(B, nx))
    step = riccati_step(AB, by_rows(H, ns) + w * ca.diag(shift), g, P, p)
    outputs = [ca.vertcat(ca.vec(step.P), step.p), _affine(AB, step.K, step.d), step.bad]
    return ca.Function("lq", [carry, row, H, w, shift], [ca.densify(o) for o in outputs])


def _affine(AB: ca.SX, K: ca.SX, d: ca.SX) -> ca.SX:
    """Return the affine functions of dx that are du and the next dx under feedback.

    The feedback is du = -K dx - d, and (du, dx_next) = M dx + m. The result is one column: the entries of M
    row by row, then m.
    """
    nx = AB.shape[0]
    M = ca.vertcat(-K, AB @ ca.vertcat(ca.SX.eye(nx), -K))
    return ca.vertcat(ca.vec(M.T), -d, -AB[:, nx:] @ d)


def direction_stage(e: SymbolicStage) -> ca.Function:
    """Return the CasADi function of one forward stage of a descent direction.

    From the change dx of the state it computes the change du of the input, its second output, and the change
    of the next state. It also adds the part of this stage to the slope Dg.zeta of the cost along the
    direction. The carry is (Dg.zeta, dx). The argument `row` holds the affine functions of `_affine`.
    """
    nx, nu = e.nx, e.nu
    carry, g = ca.SX.sym("carry", 1 + nx), ca.SX.sym("g", e.ns)
    row = ca.SX.sym("row", (nu + nx) * (nx + 1))
    dx = carry[1:]
    y = by_rows(row[: -(nu + nx)], nu + nx) @ dx + row[-(nu + nx) :]
    slope = carry[0] + ca.dot(g, ca.vertcat(dx, y[:nu]))
    outputs = [ca.vertcat(slope, y[nu:]), y[:nu], ca.SX(0)]
    return ca.Function("direction", [carry, row, g], [ca.densify(o) for o in outputs])


def trial_stage(e: SymbolicStage, kernel: Kernel) -> ca.Function:
    """Return the CasADi function of one step of a trial rollout under feedback.

    The function simulates the step with `kernel` and adds its running cost. The carry is (cost, x).
    """
    nx, nu = e.nx, e.nu
    x, u, _, lam, t, dt, theta, reference, w = e.arguments
    dx, du, gains = (ca.SX.sym(name, n) for name, n in (("dx", nx), ("du", nu), ("K", nu * nx)))
    carry, gamma = ca.SX.sym("carry", 1 + nx), ca.SX.sym("gamma")
    error = kernel.difference(x + gamma * dx, carry[1:])
    curve = [x, u, dx, du, gains, gamma]
    applied = u + gamma * du - by_rows(gains, nu) @ error
    feedback = ca.Function("feedback", [carry, *curve], [applied])
    cost = ca.substitute(e.l, x, carry[1:])
    after = ca.SX.sym("after", nx)
    total = ca.vertcat(carry[0] + cost, after)
    add = ca.Function("add", [carry, u, lam, after, dt, theta, reference, w], [total])

    def mx(*symbols: ca.SX) -> list[ca.MX]:
        return [ca.MX.sym("a", s.numel()) for s in symbols]

    c, *rows = mx(carry, *curve)
    grid = mx(t, dt, theta, reference, w)
    v = feedback(c, *rows)
    inline = True  # saves one level of calls
    x_next, multipliers, residual = kernel.function.call([c[1:], v, *grid[:3]], inline, False)
    outputs = [add(c, v, multipliers, x_next, *grid[1:]), v, residual, multipliers]
    return ca.Function("trial", [c, *rows, *grid], [ca.densify(o) for o in outputs])


def running_stage(e: SymbolicStage) -> ca.Function:
    """Return the CasADi function of the running cost of one step."""
    x, u, _, lam, _, dt, theta, reference, w = e.arguments
    return ca.Function("running", [x, u, lam, dt, theta, reference, w], [ca.densify(e.l)])


def curvature_stage(e: SymbolicStage) -> ca.Function:
    """Return the CasADi function of the Hessian of the running cost of one step.

    Derivatives are taken with respect to (x, u), where the multipliers are functions of x and u.
    """
    H = e.condense(e.hessian(e.l))
    return ca.Function("curvature", e.arguments, [ca.densify(H)])


def by_rows(entries: ca.SX, rows: int) -> ca.SX:
    """Return a symbolic matrix from its entries in row-major order."""
    return ca.reshape(entries, entries.numel() // rows, rows).T
