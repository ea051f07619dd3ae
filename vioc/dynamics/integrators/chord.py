"""One step of the midpoint rule as a CasADi function: seed, one factorization there, a chord iteration.

The unknown is q_k+1 alone: constraint impulses enter linearly and are eliminated. Each iteration
evaluates the residual, the correction that the factors make of it, and, since both share all work, the
momentum and the impulses that follow; so that the last evaluation, whose correction is below the
tolerance, is also the step's result. Maths and operation counts: docs/maths/midpoint.md, "Solving".
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import casadi as ca

from vioc.compile.many import source
from vioc.dynamics.algebra import vectors as vec
from vioc.dynamics.algebra.articulated import ArticulatedInverse
from vioc.dynamics.algebra.sparse_lu import Saddle, SparseLU, scalars
from vioc.dynamics.algebra.vectors import part
from vioc.dynamics.integrators.variational import StepParts, VariationalMap
from vioc.dynamics.lagrangian import OPTIONS
from vioc.maps.kernel import shared

if TYPE_CHECKING:
    from vioc.dynamics.integrators.midpoint import MidpointVI

# Correction of q relative to 1 + |q_k|, for up to ten variables and in proportion for more: a little above
# rounding, and what it leaves is no drift; 1e-12 would save one step in twenty.
CONVERGED = 3e-14
ITERATIONS = 20
PIVOT = 1e-9  # of D2 D1 L_d, relative to a typical diagonal of M/|dt|: below it a step is looked at
SLOW = 1e-4  # correction below which as many were on the way; farther off, Newton's method may go elsewhere
EXTRAPOLATION = (3.0, -3.0, 1.0)  # q_k+1 from q_k, q_k-1, q_k-2


@dataclass(frozen=True)
class ChordParts(StepParts):
    """With `impulse` (nd,), D1 L_d + D2 L_d + F- + F+: what p_k+1 - p_k is but for constraints. It holds no
    difference of large numbers, as `momentum` does, and makes cyclic momenta constant to rounding.
    """

    impulse: ca.SX


class StepFunctions(NamedTuple):
    """A step in functions of SX.

    Attributes
    ----------
    begin : (x, dt, parameters) -> carry
        Of a first step.
    seed : carry -> seed
    factorize : (x, seed, u, t, dt, parameters) -> y, factors, whether singular
    iterate : (y, x, seed, u, t, dt, parameters, factors) -> g, x_next, multipliers, |g|
        For y = y - g until no entry of g is above `converged`.
    check : (q_next, parameters) -> error
        What is added to |g|.
    converged : float
    """

    begin: ca.Function
    seed: ca.Function
    factorize: ca.Function
    iterate: ca.Function
    check: ca.Function
    converged: float


class ChordMap(VariationalMap):
    """A variational rule whose unknown is q_k+1, with the kernel that this module makes of its `parts`."""

    past = len(EXTRAPOLATION) - 1

    @abstractmethod
    def parts(self, q0: Any, q1: Any, p: Any, u: Any, t: Any, dt: Any, theta: Any) -> ChordParts: ...

    @shared
    def step_functions(self) -> StepFunctions:
        """A step in functions of SX."""
        return step_functions(self)

    @shared
    def solved_step(self) -> ca.Function:
        """(x, seed, u, t, dt, parameters) -> (x_next, multipliers, error); see the function."""
        return solved_step(self, False)

    @shared
    def robust_step(self) -> ca.Function:
        """The same, which tries harder."""
        return solved_step(self, False, continued=True)

    @shared
    def _kernel(self) -> ca.Function:
        return extrapolated_step(self, self.solved_step)

    @shared
    def _robust_kernel(self) -> ca.Function:
        return extrapolated_step(self, self.robust_step)


def solved_step(f: ChordMap, articulated: bool, continued: bool = False) -> ca.Function:
    """(x, seed, u, t, dt, parameters) -> (x_next, multipliers, error).

    `seed` (nd,) is a guess of the dynamic configurations; `error` the last correction of q relative to
    1 + |q_k|. `articulated` solves with the mass matrix, by O(n) recursions, in the place of the exact
    D2 D1 L_d: more iterations of less work. `continued` goes on with new factors at each iteration, where
    the chord came near but was too slow to arrive: the same numbers where it did arrive.
    """
    nd = f.nd
    factorize, iterate = _chord(f, articulated)
    context = [ca.MX.sym(s.name() if s.numel() == 1 else "a", s.numel()) for s in factorize.sx_in()]
    start, numbers, singular = factorize(*context)
    found = root(nd, iterate)(start, *context, numbers)
    if continued:
        x, _, *rest = context
        y, seed = ca.MX.sym("y", nd), ca.MX.sym("seed", nd)
        size = 1 + ca.fabs(x[:nd])
        exact = ca.Function(
            "exact", [y, x, seed, *rest], iterate.call([y, x, seed, *rest, factorize(x, y * size, *rest)[1]])
        )
        chord = [ca.MX.sym("found", o.numel()) for o in found]
        go_on = ca.Function("newton", [*context, *chord], root(nd, exact)(chord[0], *context))
        keep = ca.Function("keep", [*context, *chord], chord)
        slow = ca.logic_and(found[-1] > f.tolerance, found[-1] < SLOW)
        found = ca.Function.if_else("either", go_on, keep)(slow, *context, *found)
    _, x_next, multipliers, error = found
    return ca.Function("solved_step", context, [x_next, multipliers, error + singular])


def _chord(f: ChordMap, articulated: bool) -> tuple[ca.Function, ca.Function]:
    """(x, seed, ...) -> (start y, factors, whether singular) and (y, x, seed, ..., factors) -> (g, x_next,
    multipliers, |g|), with q = y (1 + |q_k|) and g the correction with opposite sign.
    """
    nd, nq, nf = f.nd, f.nq, len(f.system.inputs)
    x, seed, u = ca.SX.sym("x", f.nx), ca.SX.sym("seed", nd), ca.SX.sym("u", f.nu)
    t, dt, theta = ca.SX.sym("t"), ca.SX.sym("dt"), ca.SX.sym("theta", len(f.parameters))
    context = [x, seed, u, t, dt, theta]
    q0, p = part(x, 0, nq), part(x, nq, nq + nd)
    rho, forces = part(u, nf), part(u, 0, nf)
    size = 1 + ca.fabs(part(q0, 0, nd))

    q_seed = ca.vertcat(seed, rho)
    ends = q0, q_seed, forces, t, dt, theta
    D = _articulated(cast("MidpointVI", f), *ends) if articulated else SparseLU(scalars(f.slope(*ends)))
    slopes = f.constraint(q0, theta)[1], f.closing(q0, q_seed, theta)[1]
    J0, J1 = (scalars(J[:, :nd]) for J in slopes)
    factored = Saddle(D, J1, J0)
    factors = ca.vertcat(*factored.entries())
    # a pivot that vanishes beside a typical M/|dt| (stages of compositions go back): `rescued` finds out
    # whether the step is singular
    flag = ca.SX(0)
    if isinstance(D, SparseLU):
        small = ca.fabs(D.pivots * dt) < PIVOT * f.lagrangian.mass_scale
        flag = ca.if_else(ca.sum1(small) > 0, ca.inf, 0.0)
    factorize = ca.Function("factorize", context, [seed / size, factors, flag], OPTIONS)

    # Newton on q/size, with a residual that is multiplied by the inverse: its Jacobian is taken as 1
    y, w = ca.SX.sym("y", nd), ca.SX.sym("w", factors.numel())
    q1 = ca.vertcat(y * size, rho)
    step = f.parts(q0, q1, p, forces, t, dt, theta)
    h = f.closing(q0, q1, theta)[0]
    solver = factored.with_entries(ca.vertsplit(w))
    correction, multipliers = (
        vec.column(items) for items in solver.solve(ca.vertsplit(-step.balance), ca.vertsplit(-h))
    )
    g = -correction / size
    momentum = p + step.impulse - f.constraint(q0, theta)[1][:, :nd].T @ multipliers
    q_next = ca.vertcat(part(q1, 0, nd) + correction, rho)
    x_next = ca.vertcat(q_next, momentum, (rho - part(q0, nd)) / dt)
    outputs = [g, x_next, ca.densify(multipliers), ca.norm_2(g)]
    iterate = ca.Function("iterate", [y, *context, w], outputs, OPTIONS)
    return factorize, iterate


def root(nd: int, residual: ca.Function, converged: float = CONVERGED) -> ca.Function:
    """y = y - g(y), ..., of `residual` (y, ...) -> (g, outputs): (y, ...) -> (y, outputs)."""
    plain = residual.is_a("SXFunction")  # then without a call within a call
    args, eye = (residual.sx_in(), ca.SX.eye(nd)) if plain else (residual.mx_in(), ca.MX.eye(nd))
    options = {
        "jacobian_function": ca.Function("identity", args, [eye, *residual.call(args)]),
        "abstol": _converged(nd, converged),
        "abstolStep": _converged(nd, converged),
        "max_iter": ITERATIONS,
        "error_on_fail": False,
    }
    return ca.rootfinder("solve", "fast_newton", residual, options)


def extrapolated_step(f: ChordMap, solved: ca.Function) -> ca.Function:
    """The kernel: `solved_step` with a carry [x, q_k-1, q_k-2] (dynamic parts) that makes the seed."""
    nx, nd, past, guess = f.nx, f.nd, len(EXTRAPOLATION) - 1, _extrapolation(f)
    c = ca.MX.sym("carry", nx + past * nd)
    _, _, *rest = solved.mx_in()
    x_next, multipliers, error = solved(c[:nx], guess(c), *rest)
    after = ca.vertcat(x_next, c[:nd], c[nx : nx + (past - 1) * nd])
    return ca.Function("step", [c, *rest], [after, multipliers, error])


def _extrapolation(f: ChordMap) -> ca.Function:
    """carry -> seed."""
    nx, nd, past = f.nx, f.nd, len(EXTRAPOLATION) - 1
    carry = ca.SX.sym("carry", nx + past * nd)
    q = [part(carry, 0, nd), *(part(carry, nx + i * nd, nx + (i + 1) * nd) for i in range(past))]
    return ca.Function(
        "seed", [carry], [sum(c * qi for c, qi in zip(EXTRAPOLATION, q, strict=True))], OPTIONS
    )


def step_functions(f: ChordMap, articulated: bool = False, check: ca.Function | None = None) -> StepFunctions:
    """What `extrapolated_step` is made of, of SX alone, for machines that take many samples at once.

    `check` (q_k+1, parameters) -> what is added to the error.
    """
    x, theta, dt = f.symbols.x, f.symbols.parameters, ca.SX.sym("dt")
    v = vec.column(f.quantity(f"v.{name}") for name in f.system.dynamic)
    past = [part(x, 0, f.nd) - i * dt * v for i in range(1, f.past + 1)]
    factorize, iterate = _chord(f, articulated)
    return StepFunctions(
        ca.Function("begin", [x, dt, theta], [ca.vertcat(x, *past)], OPTIONS),
        _extrapolation(f),
        factorize,
        iterate,
        check or ca.Function("check", [part(x, 0, f.nq), theta], [ca.SX(0)], OPTIONS),
        _converged(f.nd),
    )


def lanes(f: ChordMap, functions: StepFunctions, doubt: float) -> str | None:
    """C of `extrapolated_step` of many samples side by side (chord.c); None where it has no such form.

    A step is looked at if its end is more than `doubt` off where the step before would have led.
    """
    nd, past = f.nd, f.past
    _, seed, factorize, iterate, check, converged = functions
    return source(
        {"seed": seed, "factorize": factorize, "iterate": iterate, "check": check},
        Path(__file__).with_name("chord.c").read_text("utf-8"),
        **dict(NC=f.nx + past * nd, NX=f.nx, NU=f.nu, NP=len(f.parameters), NM=f.nm, ND=nd, PAST=past),
        **dict(NWORK=3 * nd + factorize.numel_out(1), MOST=ITERATIONS, CONVERGED=converged, DOUBT=doubt),
    )


def _converged(nd: int, of_ten: float = CONVERGED) -> float:
    return of_ten * max(1, nd / 10)


def _articulated(f: MidpointVI, q0: Any, q1: Any, u: Any, t: Any, dt: Any, theta: Any) -> ArticulatedInverse:
    """Solver with -(M + dt^2 ...)/dt, the part of D2 D1 L_d that is not small with dt."""
    lag, h, a = f.lagrangian, ca.SX.sym("dt"), f.alpha
    rest = ca.diag(f.newton_matrix_of_terms(h))
    links, diagonal = lag.first.links, ca.vertsplit(-h * rest)
    factored = ArticulatedInverse.of_masses(links, [link.pose for link in links], f.nd, diagonal, -h)
    numbers = lag.function("articulated", [ca.vertcat(*factored.entries())], [h])
    middle = (1 - a) * q0 + a * q1, (q1 - q0) / dt, u, t + a * dt, theta, dt
    return factored.with_entries(ca.vertsplit(numbers(*middle)))
