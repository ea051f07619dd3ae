"""Runge-Kutta methods for the continuous equations of motion of a mechanism.

They serve for comparison with variational integrators. The accelerations are those of [T] (29), with
constraints (36); the state is q and dq. Constraints act on the accelerations only, so the configuration
drifts off them. Maths: docs/maths/continuous.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import casadi as ca
import numpy as np

from vioc.compile.evaluate import Evaluator
from vioc.dynamics.algebra.vectors import part
from vioc.dynamics.continuous import Continuous
from vioc.dynamics.description.system import System
from vioc.dynamics.integrators.mechanical import MechanicalMap
from vioc.dynamics.integrators.stage_derivatives import StageDerivatives, StageFirstOrder
from vioc.dynamics.integrators.tableau import METHODS, Tableau
from vioc.errors import ConstraintError, ModelError, StepError
from vioc.maps.derivatives import MapDerivatives, Steps
from vioc.maps.explicit import ExplicitMap
from vioc.maps.twins import own, shared

# `Continuous.independence` below which rounding may change accelerations by more than one part in 64
DETERMINED = 64 * np.finfo(float).eps


class RungeKutta(ExplicitMap, MechanicalMap):
    """Runge-Kutta integrator of a mechanism, as a one-step map.
    It integrates accelerations; its states have velocities instead of momenta.

    Parameters
    ----------
    system : System
    dt : float
        Time step, s, > 0.
    method : str or Tableau
        ``"rk4"`` (order 4), ``"heun"`` (2), ``"implicit-midpoint"`` (2), ``"euler"`` (1),
        ``"semi-implicit-euler"`` (1, symplectic where forces do not depend on velocities), or
        coefficients of your own.
    wrap : sequence of str
        Angles whose errors are taken modulo 2 pi (`difference`), for feedback.
    tolerance : float
        Largest accepted residual of a stage's equations, as an error of q relative to |q| + 1 rad, or + the
        length of the mechanism. It matters for implicit methods and for constraints.
    backend : {"virtual", "compiled", "auto"}
        Evaluator of the map's functions; see `Backend`.

    Raises
    ------
    ModelError
        If the method is unknown, or the mass matrix is singular (the massless variables are named).

    Notes
    -----
    The state is x = [q_d, q_k, v_d, v_k], with names ``theta``, ``v.theta``, ``v.trolley``. The input is
    [u, rho] as for every integrator of a mechanism, constant over the step. Kinematic variables move linearly
    within a step, so their velocity jumps where a step begins. The dynamic velocities jump too, so that the
    momentum of the dynamic variables does not (`docs/maths/continuous.md`).

    Quantities are those of `MidpointVI`, and ``p.NAME`` = dL/dv. The multipliers ``lambda.NAME`` are the
    impulses of a step with the sign of [S], so ``force.NAME`` is the weighted mean of the stages' lambda_c of
    [T] (36a).
    """

    conjugate = "v"
    choices = ("method",)

    def __init__(
        self,
        system: System,
        dt: float,
        method: str | Tableau = "rk4",
        *,
        wrap: Sequence[str] = (),
        tolerance: float = 1e-11,
        backend: str = "virtual",
    ):
        if not isinstance(method, Tableau) and method not in METHODS:
            raise ModelError(f"method: expected one of {', '.join(METHODS)}, or a Tableau; got {method!r}")
        self.method = method
        self.tableau = method if isinstance(method, Tableau) else METHODS[method]
        super().__init__(system, dt, wrap, tolerance, backend, takes=("slips",))
        self.continuous = Continuous(self.lagrangian)
        A, b = np.array(self.tableau.A, float), np.array(self.tableau.b, float)
        self.symmetric = bool(np.allclose(A + A[::-1, ::-1], b, rtol=0, atol=1e-14))

    def __repr__(self) -> str:
        method = self.method if isinstance(self.method, str) else f"{self.tableau.stages} stages"
        return (
            f"RungeKutta({self.system.name}: {method}, nx = {self.nx}, nu = {self.nu}, "
            f"{self.nm} constraints, dt = {self.dt:g} s)"
        )

    # -- one step ---------------------------------------------------------------------------------

    @shared
    def _acceleration(self) -> ca.Function:
        """CasADi function that computes the accelerations at one stage of a step.
        The rates of prescribed variables are constant. The arguments and results are (q, v, u, t, parameters)
        -> accelerations (nd,), multipliers lambda_c of the constraints, norm of the residual.

        The residual is that of the linear equations after their solution, which is not small if their matrix
        is singular. The residual times dt^2 estimates an error of q, as in `_defect`.
        """
        lag, c, nd = self.lagrangian, self.continuous, self.nd
        zeros = ca.SX.zeros(self.nq)
        bias = c.balance(zeros, ca.SX.zeros(self.nm))[:nd]
        rate, J = c.constraint_acceleration(zeros), lag.Dh[:, :nd]
        a, multipliers = c.saddle_solution(-bias, -rate)
        rows = ca.vertcat(lag.M[:nd, :nd] @ a - J.T @ multipliers + bias, J @ a + rate)
        return lag.function("acceleration", [ca.densify(a), ca.densify(multipliers), self._size_of(rows)])

    def _size_of(self, rows: ca.SX) -> ca.SX:
        """Return the norm of the residual of a stage, or infinity near singularities.
        Near singular constraints, the accelerations depend on rounding errors of q and v. They may thus be
        wrong although the residual is small.
        """
        size = _norm(rows / self._row_scale)
        determined = ca.mmin(self.continuous.independence) > DETERMINED if self.nm else 1
        return ca.if_else(determined, size, ca.inf)

    @property
    def _row_scale(self) -> ca.SX:
        """Scales by which the residuals of a stage's equations are divided.

        A scale, divided by dt^2, is the change of the residual due to a unit error of q. Errors of q are
        relative to its natural size + |q|.
        """
        lag, nd = self.lagrangian, self.nd
        size = ca.DM(lag.natural_sizes) + ca.fabs(lag.graph.q_vector)
        masses = ca.DM(lag.mass_scale) * size[:nd]
        return ca.vertcat(masses, ca.fabs(lag.Dh[:, :nd]) @ size[:nd])

    @shared
    def stage_rows(self) -> tuple[ca.SX, ca.SX, ca.SX]:
        """Equations of a stage, with its accelerations and multipliers as unknowns.
        Equations, accelerations and multipliers are expressions with the shapes (nd + nm,), (nd,) and (nm,).
        """
        c, a = self.continuous, ca.SX.sym("a", self.nd)
        full = ca.vertcat(a, ca.SX.zeros(self.nk))
        balance = c.balance(full, c.multipliers)[: self.nd]
        return ca.vertcat(balance, c.constraint_acceleration(full)), a, c.multipliers

    @shared
    def _jump(self) -> ca.Function:
        """CasADi function that computes the velocity jump at the start of a step.
        The dynamic velocities v_d jump when the velocities v_k of prescribed variables jump. The arguments
        and results are (q, jump of v_k, parameters) -> jump of v_d, impulse of the constraints.
        """
        lag, g, nd = self.lagrangian, self.lagrangian.graph, self.nd
        dv_k = ca.SX.sym("dv_k", self.nk)
        dv, impulse = self.continuous.saddle_solution(-lag.M[:nd, nd:] @ dv_k, -lag.Dh[:, nd:] @ dv_k)
        return ca.Function("jump", [g.q_vector, dv_k, g.parameters], [dv, impulse])

    @shared
    def _defect(self) -> ca.Function:
        """CasADi function that computes the residual norm of the equations of a stage.
        The arguments and results are (q, v, u, t, parameters, a, lambda_c) -> norm, for accelerations a and
        multipliers lambda_c of the constraints. The norm times dt^2 estimates the resulting error of the
        configuration q.
        """
        rows, a, multipliers = self.stage_rows
        return self.lagrangian.function("defect", [self._size_of(rows)], [a, multipliers])

    @shared
    def _implicit_stage(self) -> ca.Function:
        """CasADi function that solves an implicit stage by Newton's method.
        Its arguments and results are (seed, q, v, u, t, parameters, alpha, beta, scale) ->
        scale (a, lambda_c). The accelerations a and multipliers lambda_c solve the stage's equations at
        q + alpha a, v + beta a. The unknowns are multiplied by `scale`, and `seed` is their initial guess.
        With scale = dt^2 they have the size of configurations. Newton's method converges quadratically: after
        a last correction below 1e-9 only rounding errors remain.
        """
        rows, a, multipliers = self.stage_rows
        g, nd = self.lagrangian.graph, self.nd
        y = ca.SX.sym("y", nd + self.nm)
        alpha, beta, scale = (ca.SX.sym(n) for n in ("alpha", "beta", "scale"))
        w = y / scale
        move = ca.vertcat(part(w, 0, nd), ca.SX.zeros(self.nk))
        stage = self.lagrangian.function("stage", [rows], [a, multipliers])
        q, v = g.q_vector + alpha * move, g.v_vector + beta * move
        context = self.lagrangian.state_args
        residual = stage(q, v, *context[2:], part(w, 0, nd), part(w, nd))
        problem = ca.Function("problem", [y, *context, alpha, beta, scale], [residual])
        options = {"abstol": 0.0, "abstolStep": 1e-9, "max_iter": 30, "error_on_fail": False}
        return ca.rootfinder("implicit_stage", "fast_newton", problem, options)

    @shared
    def full_step(self) -> ca.Function:
        """CasADi function that computes one step, with the velocity jump and all stages.
        Its arguments and results are (x, u, t, dt, parameters) -> x_next, multipliers, error, jump, stages.
        `jump` (nd + nm,) has the jump of v_d at the start of the step and the impulse of the constraints.
        `stages` (nd + nm, stages) has the accelerations and multipliers (a_i, lambda_i) of every stage as
        columns.
        """
        tab, nq, nd, nk, nm = self.tableau, self.nq, self.nd, self.nk, self.nm
        nf = len(self.system.inputs)
        x, u, t, dt = ca.MX.sym("x", self.nx), ca.MX.sym("u", self.nu), ca.MX.sym("t"), ca.MX.sym("dt")
        theta = ca.MX.sym("theta", len(self.parameters))
        q0, v0, rho, forces = part(x, 0, nq), part(x, nq), part(u, nf), part(u, 0, nf)
        jump = ca.MX.zeros(nd + nm, 1)
        if nk:
            rates = (rho - part(q0, nd)) / dt
            jump = ca.vertcat(*self._jump(q0, rates - part(v0, nd), theta))
            v0 = ca.vertcat(part(v0, 0, nd) + part(jump, 0, nd), rates)

        zeros = ca.MX.zeros(nk, 1)
        a: list[ca.MX] = []
        lam: list[ca.MX] = []

        def total(weights: Any, items: list[ca.MX], size: int) -> ca.MX:
            terms = (w * item for w, item in zip(weights, items, strict=False) if w)
            return sum(terms, ca.MX.zeros(size, 1))

        error = ca.MX(0)
        for i in range(tab.stages):
            q = q0 + tab.c[i] * dt * v0 + dt**2 * ca.vertcat(total(tab.Aq[i], a, nd), zeros)
            v = v0 + dt * ca.vertcat(total(tab.A[i], a, nd), zeros)
            context = [forces, t + tab.c[i] * dt, theta]
            ai, li, defect = self._acceleration(q, v, *context)
            if tab.implicit(i):
                alpha, beta = dt**2 * tab.Aq[i][i], dt * tab.A[i][i]
                seed = dt**2 * ca.vertcat(ai, li)
                w = self._implicit_stage(seed, q, v, *context, alpha, beta, dt**2) / dt**2
                ai, li = part(w, 0, nd), part(w, nd)
                q, v = q + alpha * ca.vertcat(ai, zeros), v + beta * ca.vertcat(ai, zeros)
                defect = self._defect(q, v, *context, ai, li)
            error += dt**2 * defect
            a.append(ai)
            lam.append(li)
        q1 = q0 + dt * v0 + dt**2 * ca.vertcat(total(tab.bq, a, nd), zeros)
        if nk:
            q1 = ca.vertcat(part(q1, 0, nd), rho)  # without rounding
        v1 = v0 + dt * ca.vertcat(total(tab.b, a, nd), zeros)
        multipliers = -dt * total(tab.b, lam, nm) - part(jump, nd)
        stages = ca.horzcat(*(ca.vertcat(*pair) for pair in zip(a, lam, strict=True)))
        outputs = [ca.vertcat(q1, v1), multipliers, error, jump, stages]
        return ca.Function("full_step", [x, u, t, dt, theta], outputs)

    @shared
    def explicit(self) -> ca.Function:
        args = self.full_step.mx_in()
        return ca.Function("step", args, self.full_step(*args)[:3])

    def _refused(self, x: np.ndarray, u: np.ndarray, k: int, t: float, dt: float):
        """Raise a `StepError` that explains why a Runge-Kutta step cannot be taken.
        There is no second, more robust solver for Runge-Kutta steps.
        """
        x_next, _, error, *_ = self._full_step_numbers(x, u, np.array([t]), np.array([dt]), self.theta)
        residual = float(error[0, 0])
        where = f"step {k} (t = {t:.6g} s, dt = {dt:g} s)"
        tab, v = self.tableau, x[self.nq : self.nq + self.nd]
        try:  # positions of the stages, estimated from velocities
            for c in sorted({0.0, *map(float, tab.c), 1.0}):
                q = x[: self.nq].copy()
                q[: self.nd] += c * dt * v
                self.continuous.check_regular(q, **self.parameters)
        except ConstraintError as reason:
            raise StepError(f"{where}: {reason}", k, residual, "singular constraints") from None
        except ModelError as reason:
            raise StepError(f"{where}: {reason}", k, residual, "singular M") from None
        if residual == np.inf:
            places = x[: self.nq] + dt * np.outer([0.0, *map(float, tab.c), 1.0], x[self.nq :])
            weakest = np.argmin(self._independence(places, self.theta)[0][..., 0].min(axis=0))
            text = (
                f"a stage is so near a singular position of {self.multiplier_names[weakest]} that rounding "
                "decides where the motion goes; choose dt so that no step ends and no stage lies there"
            )
            raise StepError(f"{where}: {text}", k, residual, "singular constraints")
        if np.isfinite(x_next).all():
            cause, what = "no convergence", f"a stage's equations keep a scaled residual of {residual:.2g}"
        else:
            cause, what = "not finite", "the step returned numbers that are not finite"
        raise StepError(f"{where}: {what}; try a smaller dt, or check the state", k, residual, cause)

    @shared
    def _independence(self) -> Evaluator:
        g = self.lagrangian.graph
        of_constraints = self.continuous.independence
        return Evaluator(ca.Function("independence", [g.q_vector, g.parameters], [of_constraints]))

    @shared
    def _full_step_numbers(self) -> Evaluator:
        return Evaluator(self.full_step)

    # -- derivatives ------------------------------------------------------------------------------

    @shared
    def _derivatives(self) -> StageDerivatives:
        return StageDerivatives(self)

    def _stages_at(self, steps: Steps) -> StageFirstOrder:
        t, h, theta = steps.t[:, None], steps.h[:, None], self.theta
        x_next, _, error, jump, stages = self._full_step_numbers(steps.x0, steps.u, t, h, theta)
        good = (error[:, 0, 0] <= self.tolerance) & np.isfinite(x_next).all(axis=(1, 2))
        if not good.all():
            i = int(np.argmin(good))
            self._refused(steps.x0[i], steps.u[i], int(steps.k[i]), float(t[i, 0]), float(h[i, 0]))
        return self._derivatives.first(steps, theta, jump[..., 0], np.moveaxis(stages, 2, 0))

    @own
    def derivatives(self) -> MapDerivatives:
        return MapDerivatives(
            self,
            lambda steps: self._stages_at(steps).linearization,
            lambda steps, Z, zeta: self._derivatives.second(self._stages_at(steps), Z, zeta),
            self.with_times,
        )


def _norm(rows: ca.SX) -> ca.SX:
    """Return the 2-norm of a vector, smoothed at zero so that it is differentiable.
    If an entry is NaN, the result is NaN.
    """
    return ca.sqrt(ca.sumsqr(rows) + 1e-60)
