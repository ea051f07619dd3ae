"""Galerkin variational integrators of high order, up to order 16.

On trees of bodies the work per stage is linear in the number of bodies. The discrete Lagrangian is a
quadrature of L along a polynomial. With the velocities V_i at its points and f = L_q + F
(docs/maths/galerkin.md):

    Q_i = q_k + h sum_j A_ij V_j,         L_v(Q_i, V_i) = p_k + h sum_j Ab_ij f_j,               (GA 4)
    q_k+1 = q_k + h sum_j b_j V_j,        p_k+1 = p_k + h sum_j b_j f_j.

With constraints f contains their impulses, h(Q_i) = 0, and the velocity of p_k+1 is tangent to the
constraints (GA 10), (GA 11).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import casadi as ca
import numpy as np

from vioc.checks import as_count
from vioc.compile.lanes import laned, prelude
from vioc.compile.native import signature
from vioc.dynamics.algebra import vectors as vec
from vioc.dynamics.algebra.vectors import part
from vioc.dynamics.description.system import System
from vioc.dynamics.integrators.chord import CONTRACTION, CONTRACTION_OF_MASS
from vioc.dynamics.integrators.galerkin_derivatives import GalerkinDerivatives, GalerkinEquations
from vioc.dynamics.integrators.iteration import GROUPS, STALLED, by_newton, repeated
from vioc.dynamics.integrators.mechanical import MechanicalMap
from vioc.dynamics.integrators.newton import solve_step
from vioc.dynamics.integrators.predictor import FAR, far, motion
from vioc.dynamics.integrators.quadrature import POINTS, Quadrature, quadrature
from vioc.errors import ModelError
from vioc.maps.derivatives import MapDerivatives
from vioc.maps.kernel import KernelPrograms, StepSolver
from vioc.maps.twins import own, shared

# Number of corrections that are not accelerated: differences of the first ones contain nonlinear terms.
FIRST = 2
# Fused products and sums save nine tenths of the time; the iteration differs from the virtual machine's
# anyway.
FUSED = '#pragma GCC optimize("fp-contract=fast")'
# Limit of the last correction: its 2-norm, relative to its natural unit + |q_k|, over the root of its length
# and over the tolerance. With the default tolerance it is a bit above rounding, so the momenta, which belong
# to the evaluation before that correction, do not drift.
CONVERGED = 2e-3
ROUNDING = 2e-14
MOST = 8  # stages


class GalerkinVI(MechanicalMap):
    """Variational integrator of high order, by polynomials and quadrature within each step.
    Polynomials interpolate the velocities at the stages, and a quadrature rule approximates the action (a
    Galerkin method).

    Parameters
    ----------
    system : System
        Mechanism without contacts and joint limits of joints. Holonomic constraints need Lobatto's points.
    dt : float
        Time step, s, > 0; several times that of an order-2 rule for the same error.
    stages : int
        s, the number of points in a step: 1 to 8 of Gauss, 2 to 8 of Lobatto.
    points : {"gauss", "lobatto"}
        Points where L and the forces are sampled: inside the step, of order 2 s; or at its ends too, of
        order 2 s - 2.
    wrap, backend
        See `MidpointVI`.
    tolerance : float
        Largest accepted last correction of a step, relative to |q| + 1 rad, or + the length of the mechanism.
        Steps are iterated to 1/500 of it, or to rounding. With a larger tolerance steps are cheaper, and each
        adds an error to momenta and energy.

    Raises
    ------
    ModelError
        If an option is wrong, the points cannot fulfil the constraints, or the mass matrix is singular
        (the massless variables are named).

    Notes
    -----
    State and input are those of `MidpointVI`, x = [q_d, q_k, p, v_k], u = [forces, rho]: inputs are constant
    over a step and kinematic variables move linearly. p is the momentum of the motion itself; the momentum of
    the midpoint rule differs from it by O(dt^2). One Gauss point is the midpoint rule, two Lobatto points are
    the Störmer-Verlet method, with constraints RATTLE. Constraints and their rates hold at every sample;
    multipliers are the impulses of a whole step. Steps have no derivatives by their length, so durations are
    not free.
    Only ``backend="compiled"`` runs hand-written C code (galerkin.c); ``"auto"`` runs generated C, whose
    rollouts have the bits of the virtual machine.

    Examples
    --------
    >>> import vioc
    >>> f = vioc.GalerkinVI(vioc.models.load("pendulum"), dt=0.1, stages=3)
    >>> f.order
    6
    """

    choices: ClassVar[tuple[str, ...]] = ("stages", "points")
    symmetric = True

    def __init__(
        self,
        system: System,
        dt: float,
        *,
        stages: int = 3,
        points: str = "gauss",
        wrap: Sequence[str] = (),
        tolerance: float = 1e-11,
        backend: str = "virtual",
    ):
        if points not in POINTS:
            raise ModelError(f"points: expected one of {', '.join(POINTS)}, got {points!r}")
        least = 2 if points == "lobatto" else 1
        if as_count(stages, "stages") not in range(least, MOST + 1):
            raise ModelError(f"stages: expected {least} to {MOST} of {points}'s points, got {stages!r}")
        self.stages, self.points = int(stages), points
        self.quadrature: Quadrature = quadrature(points, self.stages)
        super().__init__(system, dt, wrap, tolerance, backend)
        self.backend = self.backend.knowing(tolerance=self.tolerance)  # a part of the kernel
        if self.nm and points != "lobatto":
            raise ModelError(
                f"{system.name}: points within a step do not keep {system.constraint_names[0]} at its ends; "
                'use GalerkinVI(..., points="lobatto"), whose order is 2 s - 2'
            )

    @property
    def order(self) -> int:
        return self.quadrature.order

    def __repr__(self) -> str:
        return (
            f"GalerkinVI({self.system.name}: order {self.order}, {self.stages} {self.points} points, "
            f"nx = {self.nx}, nu = {self.nu}, dt = {self.dt:g} s)"
        )

    # -- one step ---------------------------------------------------------------------------------

    @shared
    def stage(self) -> ca.Function:
        """CasADi function that evaluates the mechanism at a quadrature point of a step.
        Its arguments and results are (q, v, u, t, parameters, lambda) -> momentum L_v, generalized forces
        f = L_q + F - Dh' lambda, constraint values h, the first two of the dynamic variables. L is the
        Lagrangian, with derivatives L_q and L_v; F are the forces, and Dh is the Jacobian of h.
        """
        lag, nd = self.lagrangian, self.nd
        lam, f = ca.SX.sym("lambda", self.nm), part(lag.L_q + lag.F, 0, nd)
        if self.nm:
            f -= lag.Dh[:, :nd].T @ lam
        return lag.function("stage", [part(lag.L_v, 0, nd), f, ca.densify(lag.h)], [lam])

    @shared
    def _masses(self) -> tuple[ca.Function, ca.Function, ca.Function]:
        """Three CasADi functions: factorization of the mass matrix M, and two solvers.
        The first is (q, parameters) -> factors. The second is (factors, a, y) -> x = M^-1 (a - Dh' y), for
        given multipliers y and the constraint Jacobian Dh. The third is (factors, a, b) -> y, the multipliers
        with which the solution x of M x + Dh' y = a also satisfies Dh x = b.
        """
        lag, g, nd = self.lagrangian, self.lagrangian.graph, self.nd
        entries = ca.vertcat(*lag.saddle.entries())
        w, a, y = ca.SX.sym("w", entries.numel()), ca.SX.sym("a", nd), ca.SX.sym("y", self.nm)
        saddle = lag.saddle.with_entries(ca.vertsplit(w))
        x = vec.column(saddle.D.solve(ca.vertsplit(a)))
        for i, column in enumerate(saddle.Y):
            x += y[i] * vec.column(column)
        multipliers = saddle.solve(ca.vertsplit(a), ca.vertsplit(y) if self.nm else [])[1]
        return (
            ca.Function("factors", [g.q_vector, g.parameters], [entries]),
            ca.Function("solve", [w, a, y], [x]),
            ca.Function("pushes", [w, a, y], [vec.column(multipliers)]),
        )

    @property
    def _converged(self) -> float:
        """Tolerance of the iteration that solves a step.
        The iteration stops if the norm of its correction is smaller than this tolerance.
        """
        return max(CONVERGED * self.tolerance, ROUNDING) * float(np.sqrt(self.stages * self.nd))

    @property
    def _unknowns(self) -> int:
        """Number of unknowns of a step with s stages.
        The unknowns are the velocities at all stages, and the multipliers at all stages but the last.
        """
        return self.stages * self.nd + (self.stages - 1) * self.nm

    @shared
    def _iterate(self) -> ca.Function:
        """CasADi function that computes one simplified Newton iteration for a step.
        Its arguments and results are (z, x, u, t, dt, parameters, factors) -> new z, (x_next, new z, lambda),
        last correction. The unknowns z are the velocities V_1 to V_s and the multipliers lambda_1 to
        lambda_s-1 at the stages. The momenta in x_next contain only the impulses of the multipliers in the
        argument z. The third part of the second result, lambda, has these multipliers.

        The mass matrix and the constraint Jacobian at one point of the step approximate the derivatives at
        all stages (GA 6), (GA 12).
        """
        nd, nq, nf, nm, s = self.nd, self.nq, len(self.system.inputs), self.nm, self.stages
        rule = self.quadrature
        factorize, solve, pushes = self._masses
        z, x, u = ca.SX.sym("z", self._unknowns), ca.SX.sym("x", self.nx), ca.SX.sym("u", self.nu)
        t, dt, theta = ca.SX.sym("t"), ca.SX.sym("dt"), ca.SX.sym("theta", len(self.parameters))
        factors = ca.SX.sym("factors", factorize.numel_out(0))
        q0, p = part(x, 0, nq), part(x, nq, nq + nd)
        q_d, q_k, rho, forces = part(q0, 0, nd), part(q0, nd), part(u, nf), part(u, 0, nf)
        rates, V = (rho - q_k) / dt, ca.reshape(z[: s * nd], nd, s)
        lam = ca.reshape(z[s * nd :], nm, s - 1)
        Q = ca.repmat(q_d, 1, s) + dt * V @ ca.DM(rule.A).T
        stages = [
            self.stage(
                ca.vertcat(Q[:, i], q_k + rule.c[i] * (rho - q_k)),
                ca.vertcat(V[:, i], rates),
                forces,
                t + rule.c[i] * dt,
                theta,
                lam[:, i] if i < s - 1 else ca.SX.zeros(nm),
            )
            for i in range(s)
        ]
        momenta, f, h = (ca.horzcat(*column) for column in zip(*stages, strict=True))
        residual, Ab = momenta - ca.repmat(p, 1, s) - dt * f @ ca.DM(rule.Ab).T, rule.Ab[:, :-1]
        impulses = ca.SX.zeros(nm, s)  # from corrections of lambda
        if nm:
            weighted = residual @ ca.DM(rule.A).T
            y = ca.horzcat(*(pushes(factors, weighted[:, i], h[:, i] / dt) for i in range(1, s)))
            impulses = y @ ca.DM(Ab @ np.linalg.inv(rule.A[1:] @ Ab)).T
            lam = lam - y @ ca.DM(np.linalg.inv(rule.A[1:] @ Ab)).T / dt
        correction = ca.horzcat(*(solve(factors, residual[:, i], impulses[:, i]) for i in range(s)))
        V = V - correction
        q1 = ca.vertcat(q_d + dt * V @ ca.DM(rule.b), rho)
        z_next = ca.vertcat(ca.vec(V), ca.vec(lam))
        outputs = ca.vertcat(q1, p + dt * f @ ca.DM(rule.b), rates, z_next, part(z, s * nd))
        sizes = ca.DM(self.lagrangian.natural_sizes[:nd]) + ca.fabs(q_d)
        error = ca.norm_2(ca.vec(dt * correction / ca.repmat(sizes, 1, s)))
        args = [z, x, u, t, dt, theta, factors]
        return ca.Function("iterate", args, [z_next, outputs, error])

    @shared
    def _kernel(self) -> ca.Function:
        return self._from(repeated(self._iterate, self._converged, CONTRACTION_OF_MASS))

    @shared
    def _programs(self) -> KernelPrograms:
        # backend="auto" runs generated code, which has the bits of the virtual machine
        kernels = lambda: self._kernel, lambda: self._robust_kernel
        return KernelPrograms(self, *kernels, written=self._source)

    @own
    def step_solver(self) -> StepSolver:
        return self._programs.solver(self._rescued, **self._checks)

    def _source(self, feedback: bool) -> str | None:
        if self.nm:
            return None
        factors, solve, _ = self._masses
        most = int(np.prod(GROUPS))
        numbers = dict(CONVERGED=self._converged, STALLED=STALLED, MOST=most, CONTRACTION=CONTRACTION_OF_MASS)
        numbers |= dict(FAR=FAR, SPACING=self.quadrature.spacing)
        return source(self, feedback, motion(self), self.stage, factors, solve, **numbers)

    @shared
    def _robust_kernel(self) -> ca.Function | None:
        """Solver of steps by Newton's method, or None.
        It is used for steps in which the simplified Newton iteration (GA 6) diverges. The solver is None if a
        step has many unknowns; the method `_rescued` then solves the step numerically.
        """
        iterate = by_newton(self._iterate)
        return None if iterate is None else self._from(repeated(iterate, self._converged, CONTRACTION))

    def _from(self, solved: ca.Function) -> ca.Function:
        """Return a CasADi function that computes one step.
        The given function `solved` solves the equations of the stages of a step.

        The function is (x, u, t, dt, parameters) -> x_next, impulse, error. The initial guess extrapolates
        the velocities with the acceleration at the step's start, and uses the multipliers at the start for
        all stages.
        """
        nd, nq, nf, s, nm = self.nd, self.nq, len(self.system.inputs), self.stages, self.nm
        rule = self.quadrature
        x, u = ca.MX.sym("x", self.nx), ca.MX.sym("u", self.nu)
        t, dt, theta = ca.MX.sym("t"), ca.MX.sym("dt"), ca.MX.sym("theta", len(self.parameters))
        v, a, lam, _ = motion(self)(x, u, t, dt, theta)
        guess = ca.repmat(v, 1, s) + dt * a @ ca.DM(rule.c).T
        half = dt / 2 * (v + dt / 4 * a)  # displacement to the middle of the step
        middle = ca.vertcat(x[:nd] + half, (part(x, nd, nq) + part(u, nf)) / 2)
        factors = self._masses[0](middle, theta)
        z = ca.vertcat(ca.vec(guess), ca.repmat(lam, s - 1, 1))
        outputs, error = solved(z, x, u, t, dt, theta, factors)
        error += far(
            rule.spacing * dt * (ca.fabs(v) + dt / 2 * ca.fabs(a)), self.turning
        )  # between the points that the polynomials interpolate
        x_next, impulse = outputs[: self.nx], ca.MX(0, 1)
        if nm:
            p, impulse = ca.vertsplit(self._end(x_next, theta), [0, nd, nd + nm])
            # from the multipliers in p: the last ones may differ if the velocities were right at once
            impulse += dt * ca.reshape(outputs[self.nx + self._unknowns :], nm, s - 1) @ ca.DM(rule.b[:-1])
            x_next = ca.vertcat(x_next[:nq], p, x_next[nq + nd :])
        return ca.Function("step", [x, u, t, dt, theta], [x_next, impulse, error])

    @shared
    def _end(self) -> ca.Function:
        """CasADi function that projects the final momentum onto constraints.
        The velocity of the projected momentum at the end of a step is tangent to the constraints.

        Its arguments and results are (x_next, parameters) -> p_k+1, the momentum with tangent velocity, and
        the impulse that projects it (GA 11).
        """
        x, theta, nd, nq = self.symbols.x, self.symbols.parameters, self.nd, self.nq
        impulse = vec.part(self._tangent_velocity, nd)
        momentum_change = self.constraint(vec.part(x, 0, nq), theta)[1][:, :nd].T @ impulse
        return ca.Function("end", [x, theta], [ca.vertcat(x[nq : nq + nd] - momentum_change, impulse)])

    def _rescued(self, x: np.ndarray, u: np.ndarray, k: int, t: float, dt: float):
        self.driver.check_starts(x[None], k)
        equations = GalerkinEquations(self._derivatives, x, u, t, dt)
        return equations.end(solve_step(equations, k, t, self.tolerance).w)

    # -- derivatives ------------------------------------------------------------------------------

    @shared
    def _derivatives(self) -> GalerkinDerivatives:
        return GalerkinDerivatives(self)

    @own
    def derivatives(self) -> MapDerivatives:
        return MapDerivatives(
            self,
            lambda steps: self._derivatives.first(steps, self.theta),
            lambda steps, Z, zeta: self._derivatives.second(steps, self.theta, Z, zeta),
            self.with_times,
        )


def source(
    f: GalerkinVI,
    feedback: bool,
    motion: ca.Function,
    stage: ca.Function,
    factors: ca.Function,
    solve: ca.Function,
    **numbers: float,
) -> str | None:
    """Return C code of a Galerkin step, which evaluates all its stages at once.
    The result is None if a force or potential has an operation without a vectorized form.

    Parameters
    ----------
    feedback : bool
        Whether the code has the arguments of a `KernelPrograms` with feedback.
    motion : casadi.Function
        (x, u, t, dt, parameters) -> velocities and accelerations at the step's start.
    stage : casadi.Function
        (q, v, forces, t, parameters, none) -> L_v, f. The argument `none` is empty, since there are no
        multipliers.
    factors, solve : casadi.Function
        (q, parameters) -> factors of the mass matrix M; (factors, b, none) -> M^-1 b.
    **numbers
        CONVERGED, STALLED, MOST, CONTRACTION, FAR, SPACING.
    """
    s, nd, rule = f.stages, f.nd, f.quadrature
    lanes = 1 << max(1, (s - 1).bit_length())
    functions: list[str] = []
    args = motion.sx_in()
    motion = ca.Function("motion", args, motion(*args)[:2])
    for name, function in (("motion", motion), ("stage", stage), ("factors", factors), ("solve", solve)):
        text = laned(function, name)
        if text is None:
            return None
        functions.append(text)
    width = factors.numel_out(0)

    def column(values: np.ndarray) -> str:
        padded = [*values, *[0.0] * (lanes - s)]
        return "{" + ", ".join(repr(float(v)) for v in padded) + "}"

    def table(name: str, matrix: np.ndarray) -> str:
        return f"static const lanes {name}[] = {{{', '.join(column(c) for c in matrix.T)}}};"

    nf, parameters = len(f.system.inputs), len(f.parameters)
    sizes = dict(ND=nd, NQ=f.nq, NX=f.nx, NF=nf, NP=parameters, S=s, NW=width, FIRST=FIRST)
    sizes |= dict(NU=f.nu)
    vectors = (
        f.nx + f.nu + 2 + 2 * nd + 2 * f.nq + nf + parameters + 2 + width + (6 + 2 * numbers["MOST"]) * nd
    )
    ones, input_sizes = np.ones(s), [f.nu, f.nx, f.nu * f.nx] if feedback else [f.nu]
    angles = [n in f.wrap for n in f.state_names]
    wrapped, turning = (", ".join(str(int(w)) for w in each) for each in (angles, f.turning))
    natural = ", ".join(repr(float(a)) for a in f.lagrangian.natural_sizes[:nd])
    return "\n".join(
        [
            FUSED,
            prelude(lanes),
            signature(
                [f.nx, *input_sizes, 1, 1, parameters],
                [f.nx, 0, 1, *[f.nu] * feedback],
                (vectors + 1) * lanes,
            ),
            *(f"#define {name} {value}" for name, value in {**sizes, **numbers}.items()),
            *(table(n, m) for n, m in (("A", rule.A), ("AB", rule.Ab))),
            *(
                f"static const lanes {n} = {column(v)};"
                for n, v in (("B", rule.b), ("C", rule.c), ("PRESENT", ones))
            ),
            *functions,
            f"#define FEEDBACK {int(feedback)}",
            f"static const int WRAP[] = {{{wrapped}}}, TURNING[] = {{{turning}}};",
            f"static const double SIZES[] = {{{natural}}};",
            Path(__file__).with_name("galerkin.c").read_text("utf-8"),
        ]
    )
