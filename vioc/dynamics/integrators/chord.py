"""CasADi solver of one variational step by simplified Newton (chord) iteration.

The function `solved_step` returns the complete solver: the chord iteration, and continuation in the step
length (`continuation.py`) for steps whose root the chord iteration does not certify. The iteration begins at
a predicted configuration, where a matrix is factorized once. The only unknown is the next configuration
q_k+1, because constraint impulses enter linearly and are eliminated. Each iteration evaluates the residual,
its correction by the factors, and the momentum and the impulses that follow; these computations share all
work. The last evaluation, whose correction is below the tolerance, is therefore also the result of the step.
The contraction of the corrections certifies the root. Maths and operation counts: docs/maths/midpoint.md,
"The solver" and "Which root is the step".
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import casadi as ca
import numpy as np

from vioc.compile.many import source
from vioc.dynamics.algebra import vectors as vec
from vioc.dynamics.algebra.articulated import ArticulatedInverse
from vioc.dynamics.algebra.sparse_lu import Saddle, SparseLU, scalars
from vioc.dynamics.algebra.vectors import part
from vioc.dynamics.integrators.continuation import PATIENCE, Context, Mean, Root, left_by, with_continuation
from vioc.dynamics.integrators.newton import CHANGE, SHORTEST
from vioc.dynamics.integrators.predictor import far, motion, predicted
from vioc.dynamics.integrators.step_equations import StepEquations
from vioc.dynamics.integrators.variational import StepParts, VariationalRule, rescued
from vioc.dynamics.lagrangian import LONG
from vioc.maps.kernel import KernelPrograms

if TYPE_CHECKING:
    from vioc.dynamics.integrators.mechanical import MechanicalMap

# Largest accepted correction of q relative to its natural unit + |q_k|, for up to ten variables, and in
# proportion for more. It is a little above rounding and causes no drift. 1e-12 would save one step in twenty.
CONVERGED = 3e-14
ITERATIONS = 20
PIVOT = 1e-9  # of -dt D2 D1 L_d, relative to a typical diagonal of M: a smaller pivot makes the root suspect
# Largest ratio of a correction to the one before with which the root is certified: with the exact matrix by
# the theorem of Newton and Kantorovich, with the mass matrix as a contraction. That of `branch_equations` is
# half of this one, for the reason given there.
CONTRACTION, CONTRACTION_OF_MASS = 0.25, 0.5
# Squared sine of the angle between axes of joints, measured by inertias, above which they are far apart
ALIGNED = 0.3
# Limits below which a step goes to `ChordSolver.rescued`, which decides whether constraints are dependent:
# pivots of Dh M^-1 Dh' over the gradients' lengths, and one gradient's length over that at the step's other
# end
DEPENDENT, VANISHING = 1e-8, 1e-6
# Scale of the memory of `contracting`, an unknown of the root finder beside y. The root finder stops when the
# changes of all unknowns are small; those of the memory always are.
TINY = 2.0**-300


Inverse = Callable[..., tuple[ArticulatedInverse, ca.SX]]


@dataclass(frozen=True)
class ChordParts(StepParts):
    """Momentum balance of a step, momentum at its end, and impulse of all forces.
    They are CasADi expressions. The impulses of constraints are not included.

    The field `impulse` (nd,) = D1 L_d + D2 L_d + F- + F+ is p_k+1 - p_k without the constraint impulses.
    Unlike the field `momentum`, it is not a difference of large numbers. The momenta of cyclic coordinates
    are therefore constant up to rounding errors.
    """

    impulse: ca.SX


class StepFunctions(NamedTuple):
    """CasADi functions with which one step is solved.
    They compute the first guess of the next configuration, factorize the Newton matrix, compute one
    correction, and test the solution.

    Attributes
    ----------
    predict : (x, u, t, dt, parameters) -> guess, far, pivots
        First guess (nd,) of the next dynamic configuration, a number: `far` is infinite if the guess is far
        from x, else 0, and the pivots (nd,) of the mass matrix at x.
    factorize : (x, guess, u, t, dt, parameters, last root, pivots) -> y, factors, suspect
        First value of the unknown y, a scaled configuration, and factors of the Newton matrix at the guess.
        `suspect` is infinite if the matrices at the guess do not certify the path from the last root, a
        configuration (nd,), to the guess; else it is 0. The argument `pivots` (nd,) are those of the mass
        matrix of the last root, or at x.
    iterate : (z, x, guess, u, t, dt, parameters, factors) -> g, x_next, multipliers, error
        One iteration z = z - g with z = (y, memory) and memory 0 at first. It is repeated until every entry
        of g is at most `converged`. The error is infinite if the norm of a correction exceeded `contraction`
        times the norm of the previous correction.
    check : (x, q_next, parameters) -> term added to the error
    converged, contraction : float
    """

    predict: ca.Function
    factorize: ca.Function
    iterate: ca.Function
    check: ca.Function
    converged: float
    contraction: float


class ChordRule(VariationalRule):
    """Equations of a variational step whose only unknown is the next configuration.
    The constraint impulses are eliminated. This is possible because the equations are linear in them.
    """

    @abstractmethod
    def parts(self, q0: Any, q1: Any, p: Any, u: Any, t: Any, dt: Any, theta: Any) -> ChordParts: ...

    @abstractmethod
    def slope_and_masses(self, q0: Any, q1: Any, u: Any, t: Any, dt: Any, theta: Any) -> tuple[ca.SX, ca.SX]:
        """Return the Newton matrix (nd, nd) of a step, and the mass matrix (nd, nd) within the step."""

    def slope(self, q0: Any, q1: Any, u: Any, t: Any, dt: Any, theta: Any) -> ca.SX:
        return self.slope_and_masses(q0, q1, u, t, dt, theta)[0]


class ChordSolver:
    """Solver for the steps of a variational integrator, by simplified Newton iteration.
    One factorized matrix is used in all iterations of a step.

    Parameters
    ----------
    rule : ChordRule
    inverse : callable, optional
        (q_k, q_k+1, forces' inputs, t, dt, parameters) -> solver with a matrix that approximates D2 D1 L_d,
        and the pivots (nd,) of the mass matrix. The robust kernel uses the exact D2 D1 L_d instead.
    check : (q_k+1, parameters) -> term added to the error, optional
    """

    def __init__(self, rule: ChordRule, inverse: Inverse | None = None, check: ca.Function | None = None):
        self.rule, self._inverse, self._check = rule, inverse, check
        self.programs = KernelPrograms(rule.f, lambda: self.kernel, lambda: self._robust, self._lanes)

    @cached_property
    def kernel(self) -> ca.Function:
        """CasADi function that solves one step by simplified Newton iteration.
        Its arguments and results are (x, u, t, dt, parameters) -> next state, multipliers, error of the
        solution.
        """
        return self._checked(solved_step(self.rule, self._inverse))

    @cached_property
    def _robust(self) -> ca.Function | None:
        """Solver with the exact Newton matrix, or None.
        It is used for steps that the method `kernel`, with an approximate matrix, rejects. Both solvers
        accept a root only if it passes the certificate that it is on the branch of roots that starts at the
        present state. The value is None if `kernel` already has the exact matrix.
        """
        return None if self._inverse is None else self._checked(solved_step(self.rule))

    def _checked(self, step: ca.Function) -> ca.Function:
        if self._check is None:
            return step
        args = step.mx_in()
        x_next, multipliers, error = step(*args)
        penalty = self._check(x_next[: self.rule.f.nq], args[-1])
        return ca.Function("checked_step", args, [x_next, multipliers, error + penalty])

    @cached_property
    def step_functions(self) -> StepFunctions:
        """CasADi functions with which one step is solved.
        They compute the first guess of the next configuration, factorize the Newton matrix, compute one
        correction, and test the solution.
        """
        return step_functions(self.rule, self._inverse, self._check)

    def _lanes(self) -> str | None:
        return lanes(self.rule.f, self.step_functions)

    def rescued(
        self, f: MechanicalMap, x: np.ndarray, u: np.ndarray, k: int, t: float, dt: float, **more: Any
    ) -> tuple[np.ndarray, np.ndarray]:
        """Solve a step by continuation of its branch of roots; return next state and multipliers.
        The CasADi function `kernel`, which has failed before, contains a faster continuation. Without
        constraints, this method starts at the last root that the faster continuation has found, if any.
        Otherwise, and always with constraints, it starts at length 0. Further arguments `more` are passed to
        `StepEquations`.
        """
        # With constraints the branch may pass a singular position. This is accepted only along a line through
        # two roots, so the continuation begins at length 0.
        first_root = None if f.nm else left_by(f, x, u, t, dt)
        return rescued(f, StepEquations(f, self.rule, x, u, t, dt, **more), k, first_root)


def solved_step(rule: ChordRule, inverse: Inverse | None = None) -> ca.Function:
    """Return a CasADi function that solves one step and tests the root.
    The test is whether the root is on the branch of roots that starts at the present state and varies
    continuously as the step length grows from 0. Its bounds are estimated (docs/maths/midpoint.md).

    The function is (x, u, t, dt, parameters) -> (x_next, multipliers, error). `error` is the last correction
    of q relative to its natural unit + |q_k|. If the root is not certified, the error is infinite, not a
    number, or 2 minus the fraction of the step length that continuation reached (`with_continuation`). By
    default, linear systems are solved with the exact matrix D2 D1 L_d. The argument `inverse` solves them
    with the mass matrix instead, by O(n) recursions: more iterations are necessary, but each takes less work.
    """
    f = rule.f
    factorize, iterate, _ = _chord(rule, inverse)
    iteration, predict, nd, nf = root(f.nd + 1, iterate, f.nd), predicted(f, stiff=True), f.nd, f.nu - f.nk
    args, pivots_at = Context(*(ca.MX.sym("a", s.numel()) for s in predict.sx_in())), mass_pivots(f)

    def nearby_root(guess: ca.MX, last: ca.MX, pivots: ca.MX, args: Context) -> tuple[ca.MX, ca.MX, ca.MX]:
        start, numbers, suspect = factorize(args.x, guess, *args[1:], last, pivots)
        outputs = iteration(ca.vertcat(start, memory_at_first(suspect)), args.x, guess, *args[1:], numbers)
        return outputs[1], outputs[2], outputs[3] + suspect

    def displacement(x_next: ca.MX, x: ca.MX) -> ca.MX:
        return part(x_next, 0, nd) - part(x, 0, nd)

    def begin(args: Context) -> tuple[ca.MX, ca.MX]:
        velocities = motion(f)(*args)[0]
        return velocities, (predict(*args)[0] - part(args.x, 0, nd)) / args.dt - velocities

    def prescribed(args: Context, share: ca.MX) -> ca.MX:
        q_k = part(args.x, nd, f.nq)
        return (1 - share) * q_k + share * part(args.u, nf)

    def solve(args: Context, w: ca.MX, last: Mean, share: ca.MX) -> Root:
        u = ca.vertcat(part(args.u, 0, nf), prescribed(args, share)) if f.nk else args.u
        length, q0 = share * args.dt, part(args.x, 0, nd)
        before = last.share * args.dt * last.w
        # Masses in the middle of the last root, and halfway to the middle of the guess, where a singular mass
        # matrix is seen that lies between two configurations with equal pivots.
        halfway = (before + length * w) / 2, (last.share + share) / 2
        (first, _), (pivots, diagonal) = (
            pivots_at(ca.vertcat(q0 + way / 2, prescribed(args, part_of_way / 2)), args.theta)
            for way, part_of_way in ((before, last.share), halfway)
        )
        args = args._replace(u=u, dt=length)
        x_next, multipliers, error = nearby_root(q0 + length * w, q0 + before, pivots, args)
        error += near_singular_masses(pivots, first, diagonal, f.poles)
        way = displacement(x_next, args.x)
        error += far(ca.fabs(way - before), f.turning)
        return Root(way / length, x_next, multipliers, error)

    guess, away, pivots = predict(*args)
    x_next, multipliers, error = nearby_root(guess, part(args.x, 0, nd), pivots, args)
    away += far(ca.fabs(displacement(x_next, args.x)), f.turning)
    whole = ca.Function("whole", list(args), [x_next, multipliers, error + away])
    shortest = PATIENCE if f.nm else SHORTEST
    return with_continuation(whole, begin, solve, f.turning, f.tolerance, shortest)


def _chord(rule: ChordRule, inverse: Inverse | None) -> tuple[ca.Function, ca.Function, float]:
    """Return two CasADi functions for a simplified Newton (chord) iteration.
    The first function factorizes the Newton matrix, the second computes one correction. The third result is a
    number: the largest accepted ratio of the norms of successive corrections.

    The unknown y is the configuration q divided by its natural size + |q_k|. The iteration returns the
    negative correction of y.
    """
    f = rule.f
    nd, nq, nf = f.nd, f.nq, len(f.system.inputs)
    x, guess, u = ca.SX.sym("x", f.nx), ca.SX.sym("guess", nd), ca.SX.sym("u", f.nu)
    t, dt, theta = ca.SX.sym("t"), ca.SX.sym("dt"), ca.SX.sym("theta", len(f.parameters))
    context = [x, guess, u, t, dt, theta]
    q0, p = part(x, 0, nq), part(x, nq, nq + nd)
    rho, forces = part(u, nf), part(u, 0, nf)
    size = ca.DM(f.lagrangian.natural_sizes[:nd]) + ca.fabs(part(q0, 0, nd))

    q_guess = ca.vertcat(guess, rho)
    ends = q0, q_guess, forces, t, dt, theta
    D: Any
    if inverse is None:
        slope, M = rule.slope_and_masses(*ends)
        D = SparseLU(scalars(slope))
        long = f.lagrangian.depths >= LONG
        pivots, diagonal = mass_pivots(f)((q0 + q_guess) / 2, theta) if long else (pivots_of(M), ca.diag(M))
    else:
        (D, pivots), diagonal = inverse(*ends), ca.SX(nd, 1)
    slopes = f.constraint(q0, theta)[1], rule.closing(q0, q_guess, theta)[1]
    J0, J1 = (scalars(J[:, :nd]) for J in slopes)
    factored = Saddle(D, J1, J0)
    factors = ca.vertcat(*factored.entries())
    last, pivots_before = ca.SX.sym("last", nd), ca.SX.sym("pivots", nd)
    suspect = near_singular_masses(pivots, pivots_before, diagonal, f.poles)
    suspect += signs(factored, J0, dt, f.lagrangian.mass_scale)
    if isinstance(D, SparseLU):
        suspect += near_pole(D, guess - last, f)
    factorize = ca.Function("factorize", [*context, last, pivots_before], [guess / size, factors, suspect])

    # g is minus the chord correction of y = q/size. `root` finds its zero by y <- y - g, that is with the
    # identity as the Jacobian of g.
    y, memory, w = ca.SX.sym("y", nd), ca.SX.sym("memory"), ca.SX.sym("w", factors.numel())
    q1 = ca.vertcat(y * size, rho)
    step = rule.parts(q0, q1, p, forces, t, dt, theta)
    h = rule.closing(q0, q1, theta)[0]
    solver = factored.with_entries(ca.vertsplit(w))
    correction, multipliers = (
        vec.column(items) for items in solver.solve(ca.vertsplit(-step.balance), ca.vertsplit(-h))
    )
    g = -correction / size
    momentum = p + step.impulse - f.constraint(q0, theta)[1][:, :nd].T @ multipliers
    q_next = ca.vertcat(part(q1, 0, nd) + correction, rho)
    x_next = ca.vertcat(q_next, momentum, (rho - part(q0, nd)) / dt)
    contraction = CONTRACTION if inverse is None else CONTRACTION_OF_MASS
    changes, error = contracting(g, memory, f.tolerance, contraction)
    outputs = [changes, x_next, ca.densify(multipliers), error]
    iterate = ca.Function("iterate", [ca.vertcat(y, memory), *context, w], outputs)
    return factorize, iterate, contraction


def signs(factored: Saddle, J0: list[list[Any]], dt: Any, masses: np.ndarray) -> ca.SX:
    """Return 0 if all pivots of a step's Newton matrix have the expected signs.
    Otherwise, return infinity. The argument `factored` is the factorized Newton matrix, `J0` is the
    constraint Jacobian Dh(q_k) at the start of the step, dt is the step length, and `masses` are typical
    masses of the dynamic variables.

    The expected signs are those at very small step lengths. In this limit -dt D is the mass matrix M and
    S/-dt is Dh M^-1 Dh', where D is the derivative of the momentum balance and S its Schur complement. Both
    have positive pivots; dt is negative in some stages of compositions. If a sign differs, the determinant
    may have been zero at a length between 0 and dt.
    """
    sound = [] if factored.S is None else [independent(factored.S.pivots / -dt, J0, factored.J, masses)]
    if isinstance(factored.D, SparseLU):
        sound.append(-dt * factored.D.pivots > PIVOT * masses)
    holds = ca.vertcat(*sound) if sound else ca.SX.ones(1)
    return ca.if_else(ca.sum1(holds) == holds.numel(), 0.0, ca.inf)


def masses(f: MechanicalMap) -> ca.Function:
    """Return the CasADi function (q, parameters) -> mass matrix (nd, nd) of the dynamic variables."""
    lag, nd = f.lagrangian, f.nd
    return ca.Function("masses", [lag.graph.q_vector, lag.graph.parameters], [lag.M[:nd, :nd]])


def mass_pivots(f: MechanicalMap) -> ca.Function:
    """Return the CasADi function (q, parameters) -> pivots, diagonal, each (nd,), of the mass matrix.
    Variables are eliminated from the last to the first. For long trees, recursions compute the pivots in
    O(n), and the diagonal is 0, that is not known.
    """
    lag, nd = f.lagrangian, f.nd
    if lag.depths >= LONG:
        links = lag.first.links
        inverse = ArticulatedInverse.of_masses(links, [link.pose for link in links], nd, [0.0] * nd)
        outputs = [inverse.pivots, ca.SX(nd, 1)]
        return ca.Function("mass_pivots", [lag.graph.q_vector, lag.graph.parameters], outputs)
    q, theta = (ca.SX.sym(n, m) for n, m in (("q", f.nq), ("theta", len(f.parameters))))
    M = masses(f)(q, theta)
    return ca.Function("mass_pivots", [q, theta], [pivots_of(M), ca.diag(M)])


def pivots_of(M: ca.SX) -> ca.SX:
    """Return the pivots (n,) of a symmetric matrix (n, n), eliminated from the last variable to the first."""
    n, pivots = M.shape[0], []
    a = [[M[i, j] for j in range(i, n)] for i in range(n)]  # the upper triangle, as rows from the diagonal
    for k in reversed(range(n)):
        pivots.append(a[k][0])
        for i in range(k):
            if a[i][k - i].is_zero():
                continue
            share = a[i][k - i] / a[k][0]
            for j in range(i, k):
                a[i][j - i] -= share * a[j][k - j]
    return vec.column(pivots[::-1])


def near_singular_masses(pivots: Any, before: Any, diagonal: Any, poles: list[int]) -> Any:
    """Return infinity if the mass matrix is nearly singular at some length of a step, else 0.
    The arguments are the `pivots` (nd,) of the mass matrix and its `diagonal` in the middle of the guessed
    step, and the pivots `before`, in the middle of the last root of a continuation or at the start of the
    step. A diagonal of zeros stands for one that is not known. The first Euler angles of free rotations,
    `poles`, are left to the function `near_pole`.

    Where axes of joints align, the mass matrix may be singular: the ratio of a pivot to its diagonal entry is
    the squared sine of the angle between the axes, measured by the inertias. If this ratio is small and
    changes by more than a factor of 3/2, the branch of roots may fold within a small part of the step,
    although the matrix at the end of the step is regular and corrections contract.
    """
    tested = [i for i in range(before.numel()) if i not in poles]
    if not tested:
        return 0.0
    now, then = pivots[tested], before[tested]
    steady = ca.logic_and(now <= (1 + CHANGE) * then, then <= (1 + CHANGE) * now)  # false for NaN
    apart = ca.logic_and(now > 0, ca.fmin(now, then) > ALIGNED * diagonal[tested])
    apart = ca.logic_and(apart, diagonal[tested] > 0)
    return ca.if_else(ca.sum1(ca.logic_or(steady, apart)) == len(tested), 0.0, ca.inf)


def near_pole(D: SparseLU, way: ca.SX, f: MechanicalMap) -> Any:
    """Return infinity if Euler angles may become singular during a step, else 0.
    Three Euler angles are singular (at a pole) where the axes of the first and the last angle coincide. D is
    the factorized Newton matrix at the initial guess of the configuration at the step's end. `way` (nd,) is
    the displacement of the dynamic variables to this guess, from the start of the step or from the last root
    of a continuation.

    The determinant of the Newton matrix is zero at a pole and positive on both sides. Neither its sign nor
    the corrections therefore reveal a pole on the path to the guess. The test uses the angle between the two
    axes: the ratio of the first angle's pivot to its diagonal entry is the squared sine of this angle,
    measured by the inertias. The angle between the axes changes by no more than the Euler angles do.
    """
    if not f.poles:
        return 0.0
    reach = ca.mmax(ca.fabs(way[[i for i, turns in enumerate(f.turning) if turns]])) ** 2
    clear = [D.pivots[i] / D.diagonal[i] > reach for i in f.poles]
    return ca.if_else(ca.sum1(ca.vertcat(*clear)) == len(clear), 0.0, ca.inf)


def independent(
    pivots: ca.SX, J0: list[list[Any]], J1: list[list[Any]], masses: np.ndarray | list[float]
) -> ca.SX:
    """Return flags that are all true if the constraint gradients are independent.
    The arguments `J0` and `J1` are the constraint Jacobians Dh(q_k) and Dh(q_k+1) at the start and at the end
    of a step. `pivots` are the pivots of the matrix J1 M^-1 J0' with the mass matrix M, and `masses` are
    typical masses of the variables.

    Each constraint has two flags. The first tests its pivot. The second tests whether its gradient is very
    short at one end of the step relative to the other end, as a gradient that vanishes at one end is. Lengths
    of gradients are in units of typical masses.
    """

    def lengths(J: list[list[Any]]) -> ca.SX:
        return vec.column(sum((e * e / m for e, m in zip(row, masses, strict=True)), 0.0) for row in J)

    a, b = lengths(J0), lengths(J1)
    return ca.vertcat(pivots > DEPENDENT * ca.sqrt(a * b), ca.fmin(a, b) > VANISHING**2 * ca.fmax(a, b))


def contracting(g: Any, memory: Any, rounding: Any, most: float) -> tuple[Any, Any]:
    """Limit the correction of a simplified Newton (chord) iteration.
    The iteration has failed if the norm of its correction g exceeds both `rounding` and `most` times the norm
    of the previous correction, which `memory` stores. It has also failed if g is not a number. The first
    result is a vector: the correction, which is zero after a failure, and the old minus the new value of
    `memory`. The second result is the norm of the correction, which is infinite after a failure.

    The value of `memory` is the norm times `TINY`. It is 0 before the first iteration and negative after a
    failure.
    """
    size = ca.norm_2(g)
    exceeds = size > ca.fmax(rounding, most / TINY * memory)
    bad = ca.logic_or(ca.logic_or(memory < 0, ca.logic_not(size < ca.inf)), ca.logic_and(memory > 0, exceeds))
    of_memory = memory - TINY * ca.if_else(bad, -1.0, size)
    return ca.vertcat(ca.if_else(bad, 0.0, g), of_memory), ca.if_else(bad, ca.inf, size)


def memory_at_first(suspect: Any) -> Any:
    """Return the initial value of the argument `memory` of the function `contracting`.
    This argument stores the norm of the last correction of a simplified Newton (chord) iteration. If
    `suspect` is positive, a test of the Newton matrix has failed. The returned value is then negative, so
    that `contracting` stops the iteration at once.
    """
    return ca.if_else(suspect > 0, -TINY, 0.0)


def root(n: int, residual: ca.Function, nd: int, converged: float = CONVERGED) -> ca.Function:
    """Return a CasADi root finder that repeats y = y - g(y) until g is small.
    The function `residual` is (y (n,), ...) -> (g (n,), outputs), and the root finder (y, ...) ->
    (y, outputs). The iteration stops when every entry of g is at most `converged`. If there are more than ten
    variables (nd > 10), this tolerance is larger in proportion to nd.
    """
    plain = residual.is_a("SXFunction")  # an SX function is not called within another call
    args, eye = (residual.sx_in(), ca.SX.eye(n)) if plain else (residual.mx_in(), ca.MX.eye(n))
    options = {
        "jacobian_function": ca.Function("identity", args, [eye, *residual.call(args)]),
        "abstol": _converged(nd, converged),
        "abstolStep": _converged(nd, converged),
        "max_iter": ITERATIONS,
        "error_on_fail": False,
    }
    return ca.rootfinder("solve", "fast_newton", residual, options)


def step_functions(rule: ChordRule, inverse: Inverse | None, check: ca.Function | None) -> StepFunctions:
    """Return the CasADi functions that solve one step without continuation.
    They are used to solve steps from many pairs of state and input in parallel, and have the CasADi type SX.
    `check` is an additional test of the solution, (q_k+1, parameters) -> term added to the error, or None.
    """
    f = rule.f
    x, theta, q1 = f.symbols.x, f.symbols.parameters, ca.SX.sym("q_next", f.nq)
    factorize, iterate, contraction = _chord(rule, inverse)
    penalty = far(ca.fabs(part(q1, 0, f.nd) - part(x, 0, f.nd)), f.turning)
    penalty = ca.SX(penalty) + (0 if check is None else check(q1, theta))
    tested = ca.Function("check", [x, q1, theta], [penalty])
    return StepFunctions(predicted(f, stiff=True), factorize, iterate, tested, _converged(f.nd), contraction)


def lanes(f: MechanicalMap, functions: StepFunctions) -> str | None:
    """Return C code that solves one step for many pairs of state and input in parallel, or None.
    The code computes several pairs at once in SIMD lanes. The result is None if one of the `functions` has an
    operation without a vectorized form. The file chord.c contains the iteration loop.
    """
    nd = f.nd
    predict, factorize, iterate, check, converged, _ = functions
    return source(
        {"predict": predict, "factorize": factorize, "iterate": iterate, "check": check},
        Path(__file__).with_name("chord.c").read_text("utf-8"),
        **dict(NX=f.nx, NU=f.nu, NP=len(f.parameters), NM=f.nm, ND=nd),
        **dict(NWORK=4 * nd + 2 + factorize.numel_out(1), MOST=ITERATIONS, CONVERGED=converged),
    )


def _converged(nd: int, of_ten: float = CONVERGED) -> float:
    return of_ten * max(1, nd / 10)
