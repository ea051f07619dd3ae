"""The kernel of `MaximalVI`: Newton's iteration on the twists, as a CasADi function."""

from __future__ import annotations

import casadi as ca

from vioc.dynamics.integrators.maximal.step import ITERATIONS, PAST, STATE, StepGraph
from vioc.dynamics.integrators.maximal.terms import POSE, TWIST

STOP = 1e-7  # correction of V, relative to its size, that leaves rounding after one quadratic step
SEED = (3.0, -3.0, 1.0)  # weights of V_k-1, V_k-2, V_k-3


def build_kernel(graph: StepGraph, nx: int, nu: int) -> ca.Function:
    """(carry, u, t, dt, parameters) -> (carry, multipliers, scaled residual).

    The carry is [x, V_k-2, V_k-3]. The residual is relative: of momenta as displacements, of constraints in
    their own units.
    """
    n, size = graph.n, TWIST * graph.n
    carry, u = ca.MX.sym("carry", nx + PAST * size), ca.MX.sym("u", nu)
    t, dt = ca.MX.sym("t"), ca.MX.sym("dt")
    theta = ca.MX.sym("theta", graph.terms.parameters.numel())
    z = [carry[STATE * i : STATE * i + STATE] for i in range(n)]
    past = [carry[STATE * n + size * k : STATE * n + size * (k + 1)] for k in range(1 + PAST)]
    before = ca.vertsplit(past[0], TWIST)

    start = [graph.arrival(i)(z[i], before[i], dt, theta) for i in range(n)]
    poses = ca.vertcat(*(s[0] for s in start))
    base = ca.vertcat(*(s[1] for s in start)) + dt * graph.still_force(poses, u, t, theta)
    G = graph.held([s[0] for s in start], theta)
    packed = [ca.vec(v) for row in G for v in row]

    # the problem has symbols of its own for what does not change in the iteration
    y, Z, fixed = ca.MX.sym("y", size), ca.MX.sym("Z", POSE * n), ca.MX.sym("base", size)
    known = [ca.MX.sym("g", p.sparsity()) for p in packed]
    last, h, w, time, numbers = (
        ca.MX.sym(name, length)
        for name, length in (("last", size), ("dt", 1), ("u", nu), ("t", 1), ("theta", theta.numel()))
    )
    inputs = [y, Z, fixed, last, w, time, h, numbers, *known]
    extent = 1 + ca.norm_inf(last)
    supply = iter(known)
    fixed_G = [[ca.reshape(next(supply), v.sparsity()) for v in row] for row in G]
    gone = graph.leave(extent * y, Z, last, fixed, w, time, h, numbers)
    F = graph.blocks(gone.D, fixed_G, gone.H, gone.slopes)
    rhs = [*gone.rest, *(-g for g in gone.values)]
    graph.weigh(F, rhs, fixed_G, gone.H, h)
    solution = graph.elimination.solve(F, rhs)
    # the multipliers are those of the corrected twist, in which they are linear
    outputs = [-ca.vertcat(*solution[:n]) / extent, ca.vertcat(ca.MX(0, 1), *solution[n:])]
    options = {
        "jacobian_function": ca.Function("identity", inputs, [ca.MX(ca.DM.eye(size)), *outputs]),
        "abstol": 1e-15,
        "abstolStep": STOP,
        "max_iter": ITERATIONS,
        "error_on_fail": False,
    }
    solve = ca.rootfinder("solve", "fast_newton", ca.Function("problem", inputs, outputs), options)

    extent = 1 + ca.norm_inf(past[0])
    seed = sum(c * v for c, v in zip(SEED, past, strict=True)) / extent
    found, multipliers = solve(seed, poses, base, past[0], u, t, dt, theta, *packed)
    V = extent * found
    error = residual_norm(graph, V, multipliers, poses, base, G, past[0], u, t, dt, theta)
    moved = [graph.carried(z[i], v, dt) for i, v in enumerate(ca.vertsplit(V, TWIST))]
    after = ca.vertcat(*moved, V, *past[:PAST])
    return ca.Function("step", [carry, u, t, dt, theta], [after, multipliers, error])


def residual_norm(graph: StepGraph, V, multipliers, Z, base, G, last, u, t, dt, theta):
    """2-norm of the balance of momenta as displacements, and of g; relative to the mechanism's size."""
    gone = graph.leave(V, Z, last, base, u, t, dt, theta)
    scaled = dt * ca.vertcat(*graph.pulled(gone.rest, G, multipliers)) / ca.DM(graph.scales)
    return ca.norm_2(ca.vertcat(scaled, *gone.values)) / (1 + ca.norm_inf(Z))
