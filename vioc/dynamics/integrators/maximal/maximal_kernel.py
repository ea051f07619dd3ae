"""CasADi function that solves a step in maximal coordinates without contact.

The unknowns are the twists of the bodies. A CasADi iteration receives the directions of Newton's method as a
preconditioned residual, whose Jacobian is the identity, so that no matrix of the whole system is formed. The
iteration starts from the twists of the state. The contraction of its corrections certifies the root. Maths:
docs/maths/maximal.md.
"""

from __future__ import annotations

import casadi as ca
import numpy as np

from vioc.dynamics.integrators.chord import CONTRACTION, TINY
from vioc.dynamics.integrators.maximal.body_equations import Assembly, BodyBalance, Held
from vioc.dynamics.integrators.maximal.body_space import POSE, STATE, TWIST
from vioc.dynamics.integrators.maximal.graph import StepGraph
from vioc.dynamics.integrators.predictor import FAR

ITERATIONS = 30
MEMORY = 3  # unknowns of the iteration that store the contraction of its corrections
AMBLE = 0.01  # lengths of the mechanism, or rad, in a step; motions slower than this do not tighten `STOP`
STOP = 1e-7  # correction of V, relative to its size, after which one more quadratic step reaches rounding


def build_kernel(graph: StepGraph, nx: int, nu: int, tolerance: float) -> ca.Function:
    """Return the CasADi function that solves one step in maximal coordinates.
    It is for mechanisms without contact. The function is (x, u, t, dt, parameters) -> (next state,
    multipliers, error of the solution).

    The error is the residual of momenta and constraints as displacements, relative to the mechanism's size.
    It is infinite if corrections above the `tolerance` do not contract as a certified root requires, or if a
    body of a mechanism with constraints turns by more than `FAR`, and constraint directions with it.
    """
    n, size, sizes = graph.n, TWIST * graph.n, ca.DM(graph.natural.sizes)
    x, u, t, dt = ca.MX.sym("x", nx), ca.MX.sym("u", nu), ca.MX.sym("t"), ca.MX.sym("dt")
    theta = ca.MX.sym("theta", graph.terms.parameters.numel())
    z, twists = ca.vertsplit(x[: STATE * n], STATE), x[STATE * n :]
    middle = t + 0.5 * dt

    E = Assembly(graph, u, middle, dt, theta)
    constants = E.held(E.poses(z))
    base = E.kicked(E.momenta(twists), constants.Z)
    packed = [ca.vec(v) for row in constants.G for v in row]

    # the problem has its own symbols for the values that are constant in the iteration
    names = {"y": size + MEMORY, "Z": POSE * n, "base": size, "fastest": 1, "u": nu, "t": 1, "dt": 1}
    symbols = [ca.MX.sym(name, length) for name, length in (*names.items(), ("theta", theta.numel()))]
    y, own_Z, own_base, fastest, *environment = symbols
    entries = [ca.MX.sym("g", p.sparsity()) for p in packed]
    supply = iter(entries)
    G = [[ca.reshape(next(supply), v.sparsity()) for v in row] for row in constants.G]
    inner, at_Z = Assembly(graph, *environment), Held(own_Z, ca.vertsplit(own_Z, POSE), G, [], [], [], [])
    departure = inner.leave(fastest * (sizes * y[:size]), own_base, at_Z)
    velocity_changes, multipliers = inner.solved(*inner.system(departure, at_Z, departure.rest))
    dV, memory = ca.vertcat(*velocity_changes), y[size:]
    least = tolerance * _extent(graph, own_Z) / environment[2]
    changes, flag = _contracting(dV, memory, np.sqrt(graph.scales), sizes, least)
    # multipliers are linear in the twists; these belong to the corrected twists
    corrections = -dV / (fastest * sizes)
    outputs = [ca.vertcat(corrections, changes), ca.vertcat(ca.MX(0, 1), *multipliers), flag]
    inputs = [*symbols, *entries]
    options = {
        "jacobian_function": ca.Function("identity", inputs, [ca.MX(ca.DM.eye(size + MEMORY)), *outputs]),
        "abstol": 1e-15,
        "abstolStep": STOP,
        "max_iter": ITERATIONS,
        "error_on_fail": False,
    }
    solve = ca.rootfinder("solve", "fast_newton", ca.Function("problem", inputs, outputs), options)

    scale = AMBLE / ca.fabs(dt) + ca.norm_inf(twists / sizes)
    start = ca.vertcat(twists / (scale * sizes), ca.MX.zeros(MEMORY))
    root, leaving, suspect = solve(start, constants.Z, base, scale, u, middle, dt, theta, *packed)
    if graph.groups:
        turns = ca.vertcat(*(ca.norm_2(w[TWIST // 2 :]) for w in ca.vertsplit(dt * twists, TWIST)))
        suspect += ca.if_else(ca.mmax(turns) <= FAR, 0.0, ca.inf)
    V = scale * (sizes * root[:size])
    error = residual_norm(E, E.leave(V, base, constants), constants, leaving)

    z_next = E.moved(z, V)
    end_constants = E.held(E.poses(z_next), arrival=True)
    momenta = E.landed(V, end_constants.Z)
    velocities, arriving = E.project(end_constants, momenta)
    end_error = residual_norm(E, E.arrive(velocities, momenta, end_constants), end_constants, arriving)
    if E.loops:
        suspect += E.undetermined(end_constants, E.by_group(arriving))
    outputs = [
        ca.vertcat(*z_next, velocities),
        leaving + arriving,
        ca.norm_2(ca.vertcat(error, end_error)) + suspect,
    ]
    return ca.Function("step", [x, u, t, dt, theta], outputs)


def _contracting(
    dV: ca.MX, memory: ca.MX, weights: np.ndarray, sizes: ca.DM, least: ca.MX
) -> tuple[ca.MX, ca.MX]:
    """Test whether the corrections of Newton's method contract fast enough.
    The last correction is dV. The vector `memory` (3,) stores the norm of the previous correction, the worst
    ratio, and the norm of the first correction, all scaled by `TINY`. The results are the old minus the new
    values of this vector, and a number: infinity if the corrections do not contract, else 0. Corrections
    below `least`, in natural units of the velocities (`sizes`), count as rounding errors.

    Two successive corrections c, c' of Newton's method estimate the rate of change of the matrix, c' / c^2.
    The ratio is the product of this rate and the first correction. If it is small, the root is the only one
    near the guess. A small ratio c' / c alone shows only that no other root is near the previous iterate,
    which may be on another branch.
    """
    last_norm, worst, first = memory[0] / TINY, memory[1] / TINY, memory[2] / TINY
    norm = ca.norm_2(ca.DM(weights) * dV)
    counts = ca.logic_and(last_norm > 0, ca.norm_2(dV / sizes) > least)
    ratio = ca.fmax(worst, ca.if_else(counts, norm * first / last_norm**2, 0.0))
    new_memory = TINY * ca.vertcat(norm, ratio, ca.if_else(last_norm > 0, first, norm))
    return memory - new_memory, ca.if_else(ratio > CONTRACTION, ca.inf, 0.0)


def _extent(graph: StepGraph, Z: ca.MX) -> ca.MX:
    return 1 + ca.norm_inf(Z / ca.DM(graph.pose_sizes))


def residual_norm(E: Assembly, balance: BodyBalance, constants: Held, multipliers: ca.MX) -> ca.MX:
    """Return the 2-norm of the residuals of a momentum balance and of constraints.
    They are those at the start or the end of a step. The residuals are converted to dimensionless
    displacements, and the norm is divided by 1 + the largest dimensionless coordinate.
    """
    residuals = E.left(balance, constants, E.by_group(multipliers))
    graph, values = E.graph, ca.vertcat(ca.MX(0, 1), *E.off(balance, bool(constants.D)))
    scaled = E.dt * ca.vertcat(*residuals) / ca.DM(graph.scales * graph.natural.sizes)
    units = ca.DM(graph.natural.rows[: values.numel()])
    return ca.norm_2(ca.vertcat(scaled, values / units)) / _extent(graph, constants.Z)
