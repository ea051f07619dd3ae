"""`MidpointVI`: the generalized midpoint variational integrator ([T] (19)-(22), (44)-(46), [S] (28)).

    p_k + D1 L_d(q_k, q_k+1) + F-(k) - Dh(q_k)' lambda_k = 0
    h(q_k+1) = 0
    p_k+1 = D2 L_d(q_k, q_k+1) + F+(k)

with L_d = dt L((1 - alpha) q_k + alpha q_k+1, (q_k+1 - q_k) / dt). The maths is in
docs/maths/midpoint.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

from vioc.dynamics.consistency import check_constraints
from vioc.dynamics.description.system import System
from vioc.dynamics.evaluate import Evaluator
from vioc.dynamics.integrators.base import Linearization, SecondOrder
from vioc.dynamics.integrators.mechanical import MechanicalMap
from vioc.dynamics.integrators.newton import StepEquations, dependent_constraints, solve_step
from vioc.dynamics.integrators.structured import StructuredLinearization
from vioc.dynamics.kinematics import as_configuration
from vioc.dynamics.lagrangian import OPTIONS
from vioc.dynamics.sparse_lu import SaddleLU, scalars
from vioc.dynamics.trajectory import Trajectory
from vioc.dynamics.vectors import part
from vioc.errors import ModelError

FORCING = ("symmetric", "left")


class StepParts(NamedTuple):
    """What one step is made of, as expressions of q_k, q_k+1, p_k, u, t, dt, parameters.

    Attributes
    ----------
    balance : (nd,)
        p_k + D1 L_d + F-, without the constraint impulse.
    momentum : (nd,)
        p_k+1 = D2 L_d + F+.
    """

    balance: ca.SX
    momentum: ca.SX


class MidpointVI(MechanicalMap):
    """The midpoint variational integrator of a system, as a one-step map.

    Parameters
    ----------
    system : System
    dt : float
        Time step, s, > 0.
    alpha : float
        Where in the step the Lagrangian is sampled, in [0, 1]; 1/2 is second order.
    forcing : "symmetric" or "left"
        How a force is split over a step's ends: half and half (second order, [T] IV-E), or all at the
        start (first order; [S] II-A, whose printed numbers it gives).
    wrap : sequence of str
        Angles whose errors are taken modulo 2 pi (`difference`), for feedback.
    tolerance : float
        Largest accepted residual of a step, as an error of q relative to 1 + |q|.

    Raises
    ------
    ModelError
        If an option is wrong, or the mass matrix is singular (the massless variables are named).

    Notes
    -----
    State x = [q_d, q_k, p, v_k]: dynamic and kinematic configurations, discrete momenta, rates of the
    kinematic configurations; names ``theta``, ``p.theta``, ``v.trolley``. Input [u, rho] with rho the
    next values of the kinematic configurations (``rho.trolley``). Without kinematic variables x is
    [q, p]. Multipliers are impulses with the sign of [S] (28a).
    """

    def __init__(
        self,
        system: System,
        dt: float,
        *,
        alpha: float = 0.5,
        forcing: str = "symmetric",
        wrap: Sequence[str] = (),
        tolerance: float = 1e-11,
    ):
        if not 0 <= alpha <= 1:
            raise ModelError(f"alpha: expected a number in [0, 1], got {alpha!r}")
        if forcing not in FORCING:
            raise ModelError(f"forcing: expected one of {', '.join(FORCING)}, got {forcing!r}")
        self.alpha = float(alpha)
        self.forcing = forcing
        super().__init__(system, dt, wrap, tolerance)

    def __reduce__(self):
        options = dict(alpha=self.alpha, forcing=self.forcing, wrap=self.wrap, tolerance=self._tolerance)
        return _rebuild, (self.system, self.dt, options, self.parameters)

    def identity(self) -> dict[str, Any]:
        return {**super().identity(), "alpha": self.alpha, "forcing": self.forcing}

    def with_system(self, system: System) -> MidpointVI:
        """The same integrator, with the same options and parameters, of another system."""
        options = dict(alpha=self.alpha, forcing=self.forcing, wrap=self.wrap, tolerance=self._tolerance)
        return _rebuild(system, self.dt, options, self.parameters)

    def __repr__(self) -> str:
        return (
            f"MidpointVI({self.system.name}: nx = {self.nx}, nu = {self.nu}, "
            f"{self.nm} constraints, dt = {self.dt:g} s, alpha = {self.alpha:g}, {self.forcing} forcing)"
        )

    # -- the equations of a step ------------------------------------------------------------------

    def force_shares(self, dt: Any) -> tuple[Any, Any]:
        """F- and F+ as multiples of F at the sample."""
        return (dt / 2, dt / 2) if self.forcing == "symmetric" else (dt, 0.0)

    def parts(self, q0: Any, q1: Any, p: Any, u: Any, t: Any, dt: Any, theta: Any) -> StepParts:
        """The step's equations ([T] (44)) on symbols; `u` without rho."""
        a, nd = self.alpha, self.nd
        args = ((1 - a) * q0 + a * q1, (q1 - q0) / dt, u, t + a * dt, theta)
        L_q, L_v, F = self._first_order(*args)
        minus, plus = self.force_shares(dt)
        L_q, L_v, F = (part(e, 0, nd) for e in (L_q, L_v, F))
        balance = p + dt * (1 - a) * L_q - L_v + minus * F
        momentum = dt * a * L_q + L_v + plus * F
        return StepParts(balance, momentum)

    @cached_property
    def _first_order(self) -> ca.Function:
        lag = self.lagrangian
        return lag.function("first_order", [lag.L_q, lag.L_v, lag.F])

    @cached_property
    def _newton_matrix(self) -> ca.Function:
        """D2 D1 L_d + D2 F- for dynamic q ([T] (22), [S] (8)) at (q_m, v, u, t, parameters, dt)."""
        lag, g, a, nd = self.lagrangian, self.lagrangian.graph, self.alpha, self.nd
        dt = ca.SX.sym("dt")
        K, C, M = lag.second
        minus, _ = self.force_shares(dt)
        by_q = dt * (1 - a) * K - C + minus * ca.jacobian(lag.F, g.q_vector)
        by_v = dt * (1 - a) * C.T - M + minus * ca.jacobian(lag.F, g.v_vector)
        return lag.function("newton_matrix", [(a * by_q + by_v / dt)[:nd, :nd]], [dt])

    @cached_property
    def _kernel(self) -> ca.Function:
        """One step: a seed, one factorization there, chord iterations, one last correction.

        The carry is [x, q_k-1, q_k-2] (dynamic parts). The seed extrapolates q quadratically, so the
        matrix factored there is nearly that of the solution, and the chord converges almost as fast as
        Newton. Constraint impulses enter linearly and are eliminated: the unknown is q alone, and the
        stopping test is in units of q, which scales with the rounding floor of the residual.
        """
        nx, nd, nq, nf = self.nx, self.nd, self.nq, len(self.system.inputs)
        carry = ca.SX.sym("carry", nx + 2 * nd)
        u, t, dt = ca.SX.sym("u", self.nu), ca.SX.sym("t"), ca.SX.sym("dt")
        theta, z = ca.SX.sym("theta", len(self.parameters)), ca.SX.sym("z", nd)
        q0, p = part(carry, 0, nq), part(carry, nq, nq + nd)
        before, earlier = part(carry, nx, nx + nd), part(carry, nx + nd)
        rho, forces = part(u, nf), part(u, 0, nf)

        seed = 3 * part(q0, 0, nd) - 3 * before + earlier
        q_seed = ca.vertcat(seed, rho)
        a = self.alpha
        middle = ((1 - a) * q0 + a * q_seed, (q_seed - q0) / dt, forces, t + a * dt, theta, dt)
        D = scalars(self._newton_matrix(*middle))
        J0, J1 = (scalars(self._constraint(q, theta)[1][:, :nd]) for q in (q0, q_seed))
        shape = SaddleLU(D, J1, J0)
        factors = ca.vertcat(*shape.entries())
        context = [carry, u, t, dt, theta]
        factorize = ca.Function("factorize", context, [seed, factors], OPTIONS)

        w = ca.SX.sym("w", factors.numel())
        solver = shape.with_entries(ca.vertsplit(w))

        def correction(q_next: ca.SX) -> tuple[list, list]:
            full = ca.vertcat(q_next, rho)
            balance = self.parts(q0, full, p, forces, t, dt, theta).balance
            h = self._constraint(full, theta)[0]
            return solver.solve(ca.vertsplit(-balance), ca.vertsplit(-h))

        def column(items: list) -> ca.SX:
            return ca.vertcat(ca.SX(0, 1), *items)

        g = -column(correction(z)[0])
        problem = ca.Function("correction", [z, *context, w], [g], OPTIONS)
        # Newton on an equation that is already multiplied by the inverse: its Jacobian is taken as 1
        identity = ca.Function("identity", [z, *context, w], [ca.SX.eye(nd), g], OPTIONS)
        solve = ca.rootfinder(
            "solve",
            "fast_newton",
            problem,
            {"jacobian_function": identity, "abstol": 1e-12, "max_iter": 25, "error_on_fail": False},
        )

        step, multipliers = correction(z)
        q1 = ca.vertcat(z + column(step), rho)
        lam = column(multipliers)
        done = self.parts(q0, q1, p, forces, t, dt, theta)
        h1 = self._constraint(q1, theta)[0]
        residual = done.balance - self._constraint(q0, theta)[1][:, :nd].T @ lam
        error = _scaled_norm(residual, h1, solver.D.pivots, solver.J, q1)
        rates = (rho - part(q0, nd)) / dt
        x_next = ca.vertcat(q1, done.momentum, rates)
        after = ca.vertcat(x_next, part(q0, 0, nd), before)
        finish = ca.Function("finish", [z, *context, w], [after, ca.densify(lam), error], OPTIONS)

        args = [
            ca.MX.sym(s.name() if s.is_symbolic() and s.numel() == 1 else "a", s.numel()) for s in context
        ]
        start, numbers = factorize(*args)
        return ca.Function("step", args, list(finish(solve(start, *args, numbers), *args, numbers)))

    def _carry(self, x: np.ndarray, before: np.ndarray | None, dt: float) -> np.ndarray:
        nd = self.nd
        q = x[:nd]
        if before is not None and len(before):
            one = before[-1][:nd]
            two = before[-2][:nd] if len(before) > 1 else 2 * one - q
        else:
            v = self._velocity(x, self._theta)[0][:, 0]
            v = v if np.isfinite(v).all() else np.zeros(nd)
            one, two = q - dt * v, q - 2 * dt * v
        return np.concatenate([x, one, two])

    def _check_start(self, x: np.ndarray, k: int) -> None:
        """Refuse to start where constraints are dependent: multipliers would be arbitrary numbers."""
        if self.nm:
            q = x[: self.nq]
            J = self._constraint_numbers(q, self._theta)[1][:, : self.nd]
            error = dependent_constraints(J, self.multiplier_names, f"step {k}: Dh(q_k)", k, 0.0)
            if error is not None:
                raise error

    @cached_property
    def step_equations(self) -> StepEquations:
        return StepEquations(self)

    def _rescue(self, x: np.ndarray, u: np.ndarray, k: int, t: float, dt: float):
        return solve_step(self, x, u, k, t, dt)

    @cached_property
    def residual(self) -> ca.Function:
        """(x, u, x_next, multipliers, t, dt, parameters) -> (nx + nm,), zero on a step ([S] (28))."""
        x, u, lam, theta, dt = self.symbols
        x1, t = ca.SX.sym("x_next", self.nx), ca.SX.sym("t")
        nq, nd, nf = self.nq, self.nd, len(self.system.inputs)
        q0, q1, p = part(x, 0, nq), part(x1, 0, nq), part(x, nq, nq + nd)
        done = self.parts(q0, q1, p, part(u, 0, nf), t, dt, theta)
        balance = done.balance - self._constraint(q0, theta)[1][:, :nd].T @ lam
        rho = part(u, nf)
        rates = (rho - part(q0, nd)) / dt
        rows = ca.vertcat(
            balance,
            self._constraint(q1, theta)[0],
            part(q1, nd) - rho,
            part(x1, nq, nq + nd) - done.momentum,
            part(x1, nq + nd) - rates,
        )
        return ca.Function("residual", [x, u, x1, lam, t, dt, theta], [rows], OPTIONS)

    # -- starts -----------------------------------------------------------------------------------

    def initial_state(self, q: Any = None, v: Any = None, u: Any = None) -> np.ndarray:
        """The state of a configuration and velocity, p = dL/dv by the Legendre transform.

        Second order with symmetric forcing. With left forcing p lacks half an input impulse, which is
        taken off here with the force at (q, v, u).

        Parameters
        ----------
        q, v : array (nq,) or dict by name
            Missing names are zero; q may be the report of `consistent_configuration`.
        u : array or None
            Input at the start; matters for left forcing only.

        Raises
        ------
        ConstraintError
            If h(q) or Dh(q) v is not zero; see `consistent_configuration`, `project_velocity`.
        """
        q = as_configuration(self.system, q, "configuration")
        v = as_configuration(self.system, v, "velocity")
        check_constraints(self.lagrangian, q, v, self.parameters)
        nd, nf = self.nd, len(self.system.inputs)
        forces = self.check_input(u)[:nf]
        _, L_v, F = self._first_order_numbers(q, v, forces, np.zeros(1), self._theta)
        p = L_v[:nd, 0]
        if self.forcing == "left":
            p = p - self.dt / 2 * F[:nd, 0]
        return np.concatenate([q, p, v[nd:]])

    def state_from_configurations(self, q0: Any, q1: Any, u: Any = None, k: int = 0) -> np.ndarray:
        """The state at k + 1 of a step from q0 to q1, p = D2 L_d(q0, q1) + F+ ([T] V-A)."""
        q0 = as_configuration(self.system, q0, "q0")
        q1 = as_configuration(self.system, q1, "q1")
        nd, nf, a, h = self.nd, len(self.system.inputs), self.alpha, self.dt
        v = (q1 - q0) / h
        t = np.array([(k + a) * h])
        forces = self.check_input(u)[:nf]
        middle = (1 - a) * q0 + a * q1
        L_q, L_v, F = self._first_order_numbers(middle, v, forces, t, self._theta)
        _, plus = self.force_shares(h)
        p = (h * a * L_q + L_v + plus * F)[:nd, 0]
        return np.concatenate([q1, p, v[nd:]])

    @cached_property
    def _first_order_numbers(self) -> Evaluator:
        return Evaluator(self._first_order)

    # -- derivatives ------------------------------------------------------------------------------

    @cached_property
    def _structured(self) -> StructuredLinearization:
        return StructuredLinearization(self)

    def linearize(self, x: Any, u: Any = None, k: int = 0, dt: float | None = None) -> Linearization:
        x = self.check_state(x)
        u = self.check_input(u, x)
        h = self._step_lengths(dt, 1)
        X, multipliers, _ = self._steps(x, u[None], k, h)
        t = k * h
        return self._structured.first(X[:1], X[1:], u[None], multipliers, t, h, self._theta, k).row(0)

    def linearize_points(self, X: Any, U: Any, *, k0: int = 0) -> Linearization:
        X, U = np.asarray(X, float), np.asarray(U, float)
        h = self._step_lengths(None, 1)
        solved = [self._steps(x, u[None], k0 + i, h) for i, (x, u) in enumerate(zip(X, U, strict=True))]
        X1 = np.stack([s[0][1] for s in solved])
        multipliers = np.stack([s[1][0] for s in solved])
        t = (k0 + np.arange(len(U))) * self.dt
        return self._structured.first(X, X1, U, multipliers, t, h, self._theta, k0).linearization

    def linearize_trajectory(self, trajectory: Trajectory) -> Linearization:
        return self._structured.first(*self._along(trajectory)).linearization

    def second_order(
        self, x: Any, u: Any, z: Any, k: int = 0, dt: float | None = None, *, zeta: Any = None
    ) -> SecondOrder:
        x = self.check_state(x)
        u = self.check_input(u, x)
        h = self._step_lengths(dt, 1)
        X, multipliers, _ = self._steps(x, u[None], k, h)
        t = k * h
        first = self._structured.first(X[:1], X[1:], u[None], multipliers, t, h, self._theta, k)
        zeta = np.zeros(self.nm) if zeta is None else np.asarray(zeta, float)
        H = self._structured.second(first, np.asarray(z, float)[None], zeta[None])
        return SecondOrder(*(getattr(H, f)[0] for f in ("xx", "xu", "uu", "xp", "up", "pp")))

    def second_order_trajectory(
        self, trajectory: Trajectory, Z: np.ndarray, zeta: np.ndarray | None = None
    ) -> SecondOrder:
        first = self._structured.first(*self._along(trajectory))
        if zeta is None:
            zeta = np.zeros((len(trajectory), self.nm))
        return self._structured.second(first, np.asarray(Z, float), zeta)

    def _along(self, trajectory: Trajectory) -> tuple:
        x, t, h = trajectory.x, trajectory.t[:-1], trajectory.step_lengths
        u, multipliers = trajectory.u, trajectory.multipliers
        return x[:-1], x[1:], u, multipliers, t, h, self._theta, trajectory.k0


def _scaled_norm(residual: ca.SX, h: ca.SX, pivots: list, rows: list[list], q: ca.SX) -> ca.SX:
    """Norm of the residual in units of 1 + |q|; a NaN anywhere stays one (unlike in norm_inf)."""
    size = 1 + ca.fabs(q)
    terms = [residual[i] / (pivot * size[i]) for i, pivot in enumerate(pivots)]
    for c, row in enumerate(rows):
        scale = sum((ca.fabs(e) * size[j] for j, e in enumerate(row)), ca.SX(0))
        terms.append(h[c] / scale)
    return ca.norm_2(ca.vertcat(*terms))


def _rebuild(system: System, dt: float, options: dict, parameters: dict) -> MidpointVI:
    f = MidpointVI(system, dt, **options)
    return f.with_parameters(**parameters) if parameters != f.parameters else f
