"""`LinearTimeVI`: the linear-time variational integrator of [L] as a one-step map.

    p_k + D1 L_d(q_k, q_k+1) + F-(k) - Dh(q_k)' lambda_k = 0
    h(q_k+1) = 0
    p_k+1 = D2 L_d(q_k, q_k+1) + F+(k)

with the trapezoidal L_d of [L] (9), whose kinetic part moves every body by a constant twist in SE(3). The
maths is in docs/maths/linear_time.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import casadi as ca
import numpy as np

from vioc.checks import near_misses
from vioc.compile.evaluate import Evaluator
from vioc.compile.programs import Program
from vioc.dynamics.algebra.vectors import part
from vioc.dynamics.consistency import check_constraints
from vioc.dynamics.description.system import System
from vioc.dynamics.integrators.divisible import DivisibleMap, Steps
from vioc.dynamics.integrators.linear_time.core import SOLVERS, CoreProgram, available
from vioc.dynamics.integrators.linear_time.derivatives import StepDerivatives
from vioc.dynamics.integrators.linear_time.step import GUESSES, PAST, StepEquations, StepGraphs
from vioc.dynamics.integrators.mechanical import MechanicalMap
from vioc.dynamics.integrators.newton import dependent_constraints, solve_step
from vioc.dynamics.kinematics import as_configuration
from vioc.dynamics.lagrangian import OPTIONS
from vioc.errors import ModelError
from vioc.maps.kernel import shared
from vioc.maps.protocol import Linearization, SecondOrder

STARTS = ("legendre", "authors")


class LinearTimeVI(DivisibleMap, MechanicalMap):
    """The linear-time variational integrator of a system, as a one-step map.

    Parameters
    ----------
    system : System
    dt : float
        Time step, s, > 0.
    solver : {"chord", "riqn", "newton", "dense", "broyden"}
        How a step's equations are solved. ``"newton"`` takes the exact Newton direction at every iterate
        by the articulated-body recursion without symmetry, O(n); ``"chord"`` factors it once, at the
        seed; ``"riqn"`` is [L]'s Algorithm 3, with the articulated inertias of q_k (the compiled core adds
        Broyden's updates to both); ``"dense"`` factors
        the matrix of [L]'s Algorithm 4, O(n^3); ``"broyden"`` updates a dense inverse from step to step,
        in the compiled core only. All solve the same equations. Where a force on one variable depends on
        the velocity of another, which no tree carries, ``"dense"`` is taken.
    guess : {"extrapolated", "IG1", "IG2", "IG3"}
        Where the iteration starts: q extrapolated with degree 4 (in the compiled core with the degree that
        the last step asked for, at most 9), or [L] 3.3: q_k, explicit Euler, semi-implicit Euler with the
        acceleration of the continuous system.
    wrap : sequence of str
        Angles whose errors are taken modulo 2 pi (`difference`), for feedback.
    tolerance : float
        Largest accepted correction of q by a further iteration, relative to 1 + |q|. A correction is in
        the units of q, so the test scales with the rounding floor of the residual.
    backend : {"virtual", "compiled", "auto"}
        What runs the map's functions, see `vioc.compile.backend.Backend`. Where there is a
        compiler and no constraint, steps of the other two are taken by a compiled core that knows all
        models; its results differ from those of the virtual machine by rounding.

    Raises
    ------
    ModelError
        If an option is wrong, or the mass matrix is singular (the massless variables are named).

    Notes
    -----
    State x = [q_d, q_k, p, v_k] and input [u, rho] as of every integrator of a system; without
    kinematic variables x is [q, p]. Forces act half and half at the ends of a step, at the mean velocity
    (q_k+1 - q_k)/dt. A body may not turn by pi or more within a step. Multipliers are impulses with the
    sign of [S] (28a).
    """

    def __init__(
        self,
        system: System,
        dt: float,
        *,
        solver: str = "chord",
        guess: str = "extrapolated",
        wrap: Sequence[str] = (),
        tolerance: float = 1e-11,
        backend: str = "virtual",
    ):
        for name, value, known in (
            ("solver", solver, SOLVERS),
            ("guess", guess, (*GUESSES, "IG3")),
        ):
            if value not in known:
                raise ModelError(f"{name}: unknown {value!r}; {near_misses(str(value), known)}")
        self.solver, self.guess = solver, guess
        super().__init__(system, dt, wrap, tolerance, backend)
        if solver == "broyden" and not self._compiled:
            raise ModelError(
                'solver: "broyden" runs in the compiled core only, on open trees: expected '
                'backend="compiled", a compiler, no constraints, and no force on one variable by the '
                'velocity of another; take "chord"'
            )

    def _options(self) -> dict[str, Any]:
        return dict(
            solver=self.solver,
            guess=self.guess,
            wrap=self.wrap,
            tolerance=self._tolerance,
            backend=self.backend.name,
        )

    impulse_behind = 0.5  # what share of a step's impulses makes up for the step before

    def __reduce__(self):
        return _rebuild, (self.system, self.dt, self._options(), self.parameters)

    def identity(self) -> dict[str, Any]:
        return {**super().identity(), "solver": self.solver, "guess": self.guess}

    def _blueprint(self) -> dict[str, Any] | None:
        plain = super()._blueprint()
        return plain and {**plain, "tolerance": self._tolerance}  # the kernel stops by it

    def with_system(self, system: System) -> LinearTimeVI:
        """The same integrator, with the same options and parameters, of another system."""
        return _rebuild(system, self.dt, self._options(), self.parameters)

    def __repr__(self) -> str:
        return (
            f"LinearTimeVI({self.system.name}: nx = {self.nx}, nu = {self.nu}, {self.nm} constraints, "
            f"{sum(self.graphs.bodies.heavy)} bodies, dt = {self.dt:g} s, {self.solver}, {self.guess})"
        )

    # -- steps --------------------------------------------------------------------------------------

    @shared
    def graphs(self) -> StepGraphs:
        """The equations of a step as CasADi expressions."""
        return StepGraphs(self)

    @shared
    def _compiled(self) -> bool:
        """Whether steps are taken by the compiled core."""
        return self.backend.name != "virtual" and available(self)

    def _program(self, feedback: bool, robust: bool = False) -> Program:
        if not self._compiled:
            return super()._program(feedback, robust)
        programs = self.__dict__.setdefault("_cores", {})
        if feedback not in programs:
            programs[feedback] = CoreProgram(self, feedback)
        return programs[feedback]

    @shared
    def _kernel(self) -> ca.Function:
        return self.graphs.kernel("dense" if self.graphs.coupled else self.solver, self.guess)

    def _carry(self, x: np.ndarray, before: np.ndarray, dt: float) -> np.ndarray:
        nd = self.nd
        past = [x[:nd], *before[::-1, :nd][:PAST]]
        if len(past) == 1:
            v = self._velocity(x, self._theta)[0][:, 0]
            past.append(past[0] - dt * (v if np.isfinite(v).all() else 0.0))
        while len(past) <= PAST:
            past.append(2 * past[-1] - past[-2])
        return np.concatenate([x, *past[1:]])

    def _check_start(self, x: np.ndarray, k: int) -> None:
        """Refuse to start where constraints are dependent: multipliers would be arbitrary numbers."""
        if self.nm:
            J = self._constraint_numbers(x[: self.nq], self._theta)[1][:, : self.nd]
            error = dependent_constraints(J, self.multiplier_names, f"step {k}: Dh(q_k)", k, 0.0)
            if error is not None:
                raise error

    @shared
    def step_equations(self) -> StepEquations:
        return StepEquations(self)

    def _rescue(self, x: np.ndarray, u: np.ndarray, k: int, t: float, dt: float):
        return solve_step(self, x, u, k, t, dt)  # type: ignore[arg-type]

    @shared
    def residual(self) -> ca.Function:
        """(x, u, x_next, multipliers, t, dt, parameters) -> (nx + nm,), zero on a step ([S] (28))."""
        x, u, lam, theta, dt = self.symbols
        x1, t = ca.SX.sym("x_next", self.nx), ca.SX.sym("t")
        nq, nd, nf = self.nq, self.nd, len(self.system.inputs)
        q0, q1, p = part(x, 0, nq), part(x1, 0, nq), part(x, nq, nq + nd)
        done = self.graphs.parts(q0, q1, p, part(u, 0, nf), t, dt, theta)
        rho = part(u, nf)
        rows = ca.vertcat(
            done.balance - ca.mtimes(self._constraint(q0, theta)[1][:, :nd].T, lam),
            self._constraint(q1, theta)[0],
            part(q1, nd) - rho,
            part(x1, nq, nq + nd) - done.momentum,
            part(x1, nq + nd) - (rho - part(q0, nd)) / dt,
        )
        return ca.Function("residual", [x, u, x1, lam, t, dt, theta], [rows], OPTIONS)

    # -- starts ---------------------------------------------------------------------------------------

    def initial_state(
        self, q: Any = None, v: Any = None, u: Any = None, *, start: str = "legendre", **named: float
    ) -> np.ndarray:
        """The state of a configuration and velocity.

        Parameters
        ----------
        q, v : array (nq,) or dict by name
            Missing names are zero; q may be the report of `consistent_configuration`.
        u : (nu,), optional
            Not needed: what acts next has no part in dL/dv.
        start : {"legendre", "authors"}
            ``"legendre"`` p = dL/dv: second order. ``"authors"`` what the code of [L]'s authors does,
            p = D1 of a step at the velocity v with the whole weight of a step: first order, to compare
            numbers with.
        **named : float
            Configurations by keyword, in the place of or beside those in the dict `q`.

        Raises
        ------
        ConstraintError
            If h(q) or Dh(q) v is not zero; see `consistent_configuration`, `project_velocity`.
        """
        if start not in STARTS:
            raise ModelError(f"start: unknown {start!r}; {near_misses(str(start), STARTS)}")
        q = as_configuration(self.system, q, "configuration", named)
        v = as_configuration(self.system, v, "velocity")
        check_constraints(self.lagrangian, q, v, self.parameters)
        nd = self.nd
        authors = start == "authors"
        found = self._authors_start(q, v, self._theta, np.array([self.dt])) if authors else None
        p = (found or self._legendre(q, v, self._theta))[0][:, 0]
        return np.concatenate([q, p, v[nd:]])

    @shared
    def _legendre(self) -> Evaluator:
        lag, g = self.lagrangian, self.lagrangian.graph
        args = [g.q_vector, g.v_vector, g.parameters]
        return Evaluator(ca.Function("legendre", args, [part(lag.L_v, 0, self.nd)], OPTIONS))

    @shared
    def _authors_start(self) -> Evaluator:
        """S' dlog_hV^T G V at the body velocities V of (q, v), with half a step's weight taken off."""
        g, bodies, h = self.lagrangian.graph, self.graphs.bodies, ca.SX.sym("dt")
        places = bodies.places(ca.vertsplit(g.q_vector))
        X: list = [
            tuple(tuple(h * c for c in part_) for part_ in (link.v, link.w)) if heavy else None
            for link, heavy in zip(self.lagrangian.swept.links, bodies.heavy, strict=True)
        ]
        momentum = ca.vertcat(*bodies.gathered(places, bodies.impulses(X, h)[0])[: self.nd])
        weight = self.graphs.weight(g.q_vector, g.parameters)
        args = [g.q_vector, g.v_vector, g.parameters, h]
        return Evaluator(ca.Function("authors", args, [momentum + h / 2 * weight], OPTIONS))

    def state_from_configurations(self, q0: Any, q1: Any, u: Any = None, k: int = 0) -> np.ndarray:
        """The state at k + 1 of a step from q0 to q1, p = D2 L_d(q0, q1) + F+ ([T] V-A)."""
        q0 = as_configuration(self.system, q0, "q0")
        q1 = as_configuration(self.system, q1, "q1")
        nothing = np.zeros(self.nd)
        inputs = self.check_input(u)
        full = np.concatenate([inputs[: len(self.system.inputs)], q1[self.nd :]])
        x = np.concatenate([q0, nothing, np.zeros(self.nk)])
        p = self.step_equations(x, full, k * self.dt, self.dt, self._theta, q1[: self.nd])[5]
        return np.concatenate([q1, p, (q1 - q0)[self.nd :] / self.dt])

    # -- derivatives ------------------------------------------------------------------------------------

    @shared
    def _derivatives(self) -> StepDerivatives:
        return StepDerivatives(self)

    def _linearize_steps(self, steps: Steps) -> Linearization:
        return self._derivatives.first(steps, self._theta).linearization

    def _contract_steps(self, steps: Steps, Z: np.ndarray, zeta: np.ndarray) -> SecondOrder:
        return self._derivatives.second(self._derivatives.first(steps, self._theta), Z, zeta)


def _rebuild(system: System, dt: float, options: dict, parameters: dict) -> LinearTimeVI:
    f = LinearTimeVI(system, dt, **options)
    return f.with_parameters(**parameters) if parameters != f.parameters else f
