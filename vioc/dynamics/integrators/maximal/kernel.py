"""The kernel of `MaximalVI`: Newton's iteration on the twists, as a CasADi function.

Newton's directions are handed to CasADi's iteration as a preconditioned residual with the identity for its
Jacobian, so no matrix of the whole system is ever formed.
"""

from __future__ import annotations

import casadi as ca

from vioc.dynamics.integrators.maximal.equations import Assembly, Balance, Held
from vioc.dynamics.integrators.maximal.graph import StepGraph
from vioc.dynamics.integrators.maximal.space import POSE, STATE, TWIST

PAST = 3  # twists V_k-1, V_k-2, V_k-3 that a carry holds, to extrapolate
ITERATIONS = 30
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
    z, nu_k = ca.vertsplit(carry[: STATE * n], STATE), carry[STATE * n : nx]
    past = ca.vertsplit(carry[nx:], size)
    middle = t + 0.5 * dt

    E = Assembly(graph, u, middle, dt, theta)
    held = E.held(E.poses(z))
    base = E.kicked(E.momenta(nu_k), held.Z)
    packed = [ca.vec(v) for row in held.G for v in row]

    # the problem has symbols of its own for what does not change in the iteration
    names = {"y": size, "Z": POSE * n, "base": size, "extent": 1, "u": nu, "t": 1, "dt": 1}
    own = [ca.MX.sym(name, length) for name, length in (*names.items(), ("theta", theta.numel()))]
    y, own_Z, own_base, extent, *environment = own
    known = [ca.MX.sym("g", p.sparsity()) for p in packed]
    supply = iter(known)
    G = [[ca.reshape(next(supply), v.sparsity()) for v in row] for row in held.G]
    inner, at_Z = Assembly(graph, *environment), Held(own_Z, ca.vertsplit(own_Z, POSE), G, [], [], [], [])
    gone = inner.leave(extent * y, own_base, at_Z)
    dV, multipliers = inner.solved(*inner.system(gone, at_Z, gone.rest))
    # the multipliers are those of the corrected twist, in which they are linear
    outputs = [-ca.vertcat(*dV) / extent, ca.vertcat(ca.MX(0, 1), *multipliers)]
    inputs = [*own, *known]
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
    found, leaving = solve(seed, held.Z, base, scale, u, middle, dt, theta, *packed)
    V = scale * found
    error = residual_norm(E, E.leave(V, base, held), held, leaving)

    moved = E.moved(z, V)
    there = E.held(E.poses(moved), arrival=True)
    momenta = E.landed(V, there.Z)
    velocities, arriving = E.project(there, momenta)
    after = residual_norm(E, E.arrive(velocities, momenta, there), there, arriving)
    carried = ca.vertcat(*moved, velocities, V, *past[: PAST - 1])
    outputs = [carried, leaving + arriving, ca.norm_2(ca.vertcat(error, after))]
    return ca.Function("step", [carry, u, t, dt, theta], outputs)


def residual_norm(E: Assembly, at: Balance, held: Held, multipliers: ca.MX) -> ca.MX:
    """2-norm of the balance of momenta as displacements, and of g; relative to the mechanism's size."""
    left = E.left(at, held, E.by_group(multipliers))
    scaled = E.dt * ca.vertcat(*left) / ca.DM(E.graph.scales)
    return ca.norm_2(ca.vertcat(scaled, *at.values)) / (1 + ca.norm_inf(held.Z))
