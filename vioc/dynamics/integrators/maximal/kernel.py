"""The kernel of `MaximalVI`: Newton's iteration on the twists, as a CasADi function."""

from __future__ import annotations

import casadi as ca

from vioc.dynamics.integrators.maximal.step import ITERATIONS, PAST, STATE, Balance, StepGraph
from vioc.dynamics.integrators.maximal.terms import POSE, TWIST

STOP = 1e-7  # correction of V, relative to its size, that leaves rounding after one quadratic step
SEED = (3.0, -3.0, 1.0)  # weights of V_k-1, V_k-2, V_k-3


def build_kernel(graph: StepGraph, nx: int, nu: int) -> ca.Function:
    """(carry, u, t, dt, parameters) -> (carry, multipliers, scaled residual).

    The carry is [x, V_k-1, V_k-2, V_k-3]. The residual is relative: of momenta as displacements, of
    constraints in their own units.
    """
    n, size = graph.n, TWIST * graph.n
    carry, u = ca.MX.sym("carry", nx + PAST * size), ca.MX.sym("u", nu)
    t, dt = ca.MX.sym("t"), ca.MX.sym("dt")
    theta = ca.MX.sym("theta", graph.terms.parameters.numel())
    z = [carry[STATE * i : STATE * i + STATE] for i in range(n)]
    nu_k = carry[STATE * n : nx]
    past = [carry[nx + size * k : nx + size * (k + 1)] for k in range(PAST)]
    middle = t + 0.5 * dt

    poses = ca.vertcat(*(graph.pose(p) for p in z))
    base = graph.kicked(graph.momenta(nu_k, theta), poses, None, u, middle, dt, theta)
    G = graph.held(ca.vertsplit(poses, POSE), theta)
    packed = [ca.vec(v) for row in G for v in row]

    # the problem has symbols of its own for what does not change in the iteration
    y, Z, fixed = ca.MX.sym("y", size), ca.MX.sym("Z", POSE * n), ca.MX.sym("base", size)
    known = [ca.MX.sym("g", p.sparsity()) for p in packed]
    extent, h, w, time, numbers = (
        ca.MX.sym(name, length)
        for name, length in (("extent", 1), ("dt", 1), ("u", nu), ("t", 1), ("theta", theta.numel()))
    )
    inputs = [y, Z, fixed, extent, w, time, h, numbers, *known]
    supply = iter(known)
    fixed_G = [[ca.reshape(next(supply), v.sparsity()) for v in row] for row in G]
    gone = graph.leave(extent * y, Z, fixed, w, time, h, numbers)
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

    scale = 1 + ca.norm_inf(past[0])
    seed = sum(c * v for c, v in zip(SEED, past, strict=True)) / scale
    found, leaving = solve(seed, poses, base, scale, u, middle, dt, theta, *packed)
    V = scale * found
    gone = graph.leave(V, poses, base, u, middle, dt, theta)
    error = residual_norm(graph, gone, G, leaving, poses, dt)

    moved = [graph.carried(z[i], v, dt) for i, v in enumerate(ca.vertsplit(V, TWIST))]
    ends = ca.vertcat(*(graph.pose(p) for p in moved))
    momenta = graph.landed_momenta(V, ends, u, middle, dt, theta)
    velocities, arriving = graph.project(ends, momenta, dt, theta)
    G = graph.held(ca.vertsplit(ends, POSE), theta)
    there = graph.arrive(velocities, momenta, G, dt, theta)
    error = ca.norm_2(ca.vertcat(error, residual_norm(graph, there, G, arriving, ends, dt)))
    after = ca.vertcat(*moved, velocities, V, *past[: PAST - 1])
    return ca.Function("step", [carry, u, t, dt, theta], [after, leaving + arriving, error])


def residual_norm(graph: StepGraph, at: Balance, G, multipliers, Z, dt):
    """2-norm of the balance of momenta as displacements, and of g; relative to the mechanism's size."""
    scaled = dt * ca.vertcat(*graph.pulled(at.rest, G, multipliers)) / ca.DM(graph.scales)
    return ca.norm_2(ca.vertcat(scaled, *at.values)) / (1 + ca.norm_inf(Z))
