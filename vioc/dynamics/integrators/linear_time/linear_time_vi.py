"""Variational integrator whose steps take time O(n) for n bodies, as a one-step map.

    p_k + D1 L_d(q_k, q_k+1) + F-(k) - Dh(q_k)' lambda_k = 0
    h(q_k+1) = 0
    p_k+1 = D2 L_d(q_k, q_k+1) + F+(k)

with the trapezoidal L_d of [L] (9), whose kinetic part moves every body by a constant twist in SE(3). Maths:
docs/maths/linear_time.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import casadi as ca
import numpy as np

from vioc.checks import near_misses
from vioc.compile.evaluate import Evaluator
from vioc.compile.programs import Program
from vioc.dynamics.description.system import System
from vioc.dynamics.integrators.linear_time.core import GUESSES, SOLVERS, LinearTimeProgram, available
from vioc.dynamics.integrators.linear_time.linear_time_step import StepGraphs
from vioc.dynamics.integrators.mechanical import MechanicalMap
from vioc.dynamics.integrators.step_derivatives import StepDerivatives
from vioc.dynamics.integrators.step_equations import StepEquations
from vioc.dynamics.integrators.variational import StepParts, VariationalRule, rescued
from vioc.dynamics.terms.drives import refuse_rotors
from vioc.errors import ModelError
from vioc.maps.derivatives import MapDerivatives
from vioc.maps.kernel import KernelPrograms, StepSolver
from vioc.maps.twins import own, shared

STARTS = ("legendre", "authors")


class LinearTimeRule(VariationalRule):
    """Discrete equations of a step of the linear-time variational integrator."""

    f: LinearTimeVI

    def parts(self, q0: Any, q1: Any, p: Any, u: Any, t: Any, dt: Any, theta: Any) -> StepParts:
        return self.f.graphs.parts(q0, q1, p, u, t, dt, theta)

    def slope(self, q0: Any, q1: Any, u: Any, t: Any, dt: Any, theta: Any) -> ca.SX:
        return -ca.densify(self.f.graphs.newton_matrix(q0, q1, u, t, dt, theta))

    def closing(self, q0: Any, q1: Any, theta: Any) -> tuple[Any, Any]:
        return self.f.constraint(q1, theta)


class LinearTimeVI(MechanicalMap):
    """Variational integrator whose steps take time linear in the number of bodies.

    Parameters
    ----------
    system : System
    dt : float
        Time step, s, > 0.
    solver : {"chord", "riqn", "newton", "dense"}
        Solver of the equations of a step. ``"newton"`` computes the exact Newton direction at every iterate
        by the articulated-body recursion without symmetry, O(n); ``"chord"`` factors it once, at the initial
        guess; ``"riqn"`` is Algorithm 3 of [L], with the articulated inertias of q_k (the compiled core adds
        Broyden's updates to both); ``"dense"`` factors the matrix of [L]'s Algorithm 4, O(n^3). All solve
        the same equations. If a force on one variable depends on the velocity of another, ``"dense"`` is
        used, since recursions over the tree exclude such forces.
    guess : {"predicted", "IG1", "IG2"}
        Initial guess of q_k+1. ``"predicted"``: q_k + dt v + dt^2/2 a, with v and a of the continuous system
        at the state ([L] 3.3's IG3 uses the velocity of half a step before); ``"IG1"``: q_k; ``"IG2"``:
        explicit Euler, q_k + dt v.
    wrap : sequence of str
        Angles whose errors are taken modulo 2 pi (`difference`), for feedback.
    tolerance : float
        Largest accepted correction of q by a further iteration, relative to |q| + 1 rad, or + the length of
        the mechanism. A correction has the units of q, so that the test scales with the rounding floor of the
        residual.
    backend : {"virtual", "compiled", "auto"}
        Backend of the map's functions, see `vioc.compile.backend.Backend`. With a compiler and without
        constraints, ``"compiled"`` and ``"auto"`` take steps by a compiled core, one library for all models.
        Its results differ from those of the virtual machine by rounding.

    Raises
    ------
    ModelError
        If an option is wrong, or the mass matrix is singular (the massless variables are named).

    Notes
    -----
    State x = [q_d, q_k, p, v_k] and input [u, rho] are those of `MidpointVI`; without kinematic variables x
    is [q, p]. One half of a force acts at each end of a step, at the mean velocity (q_k+1 - q_k)/dt. No body
    may turn by pi or more within a step. Multipliers are impulses with the sign of [S] (28a).
    """

    choices = ("solver", "guess")

    def __init__(
        self,
        system: System,
        dt: float,
        *,
        solver: str = "chord",
        guess: str = "predicted",
        wrap: Sequence[str] = (),
        tolerance: float = 1e-11,
        backend: str = "virtual",
    ):
        for name, value, choices in (("solver", solver, SOLVERS), ("guess", guess, GUESSES)):
            if value not in choices:
                raise ModelError(f"{name}: unknown {value!r}; {near_misses(str(value), choices)}")
        self.solver, self.guess = solver, guess
        super().__init__(system, dt, wrap, tolerance, backend)
        self.backend = self.backend.knowing(tolerance=self.tolerance)  # the kernel depends on it
        self._impulse_behind = 0.5
        refuse_rotors(system, "LinearTimeVI")

    def __repr__(self) -> str:
        return (
            f"LinearTimeVI({self.system.name}: nx = {self.nx}, nu = {self.nu}, {self.nm} constraints, "
            f"{sum(self.graphs.bodies.heavy)} bodies, dt = {self.dt:g} s, {self.solver}, {self.guess})"
        )

    # -- steps --------------------------------------------------------------------------------------

    @shared
    def graphs(self) -> StepGraphs:
        """Discrete equations of a step as CasADi expressions."""
        return StepGraphs(self)

    @shared
    def _compiled(self) -> bool:
        """Flag, True if compiled C code computes the steps."""
        return available(self)

    @shared
    def _programs(self) -> KernelPrograms:
        return KernelPrograms(self, lambda: self._kernel)

    @shared
    def _cores(self) -> tuple[Program, Program]:
        return LinearTimeProgram(self, False), LinearTimeProgram(self, True)

    @own
    def step_solver(self) -> StepSolver:
        compiled = {"program": lambda feedback: self._cores[feedback]} if self._compiled else {}
        return self._programs.solver(self._rescued, **self._checks, **compiled)

    @shared
    def _kernel(self) -> ca.Function:
        return self.graphs.kernel("dense" if self.graphs.coupled else self.solver, self.guess)

    def _rescued(self, x: np.ndarray, u: np.ndarray, k: int, t: float, dt: float):
        return rescued(self, StepEquations(self, self.rule, x, u, t, dt), k)

    @shared
    def rule(self) -> LinearTimeRule:
        """Discrete equations of a step, which continuation and the derivatives use."""
        return LinearTimeRule(self)

    # -- starts ---------------------------------------------------------------------------------------

    def initial_state(  # type: ignore[override]
        self, q: Any = None, v: Any = None, u: Any = None, *, start: str = "legendre", **named: float
    ) -> np.ndarray:
        """Return the state with a given configuration and velocity.
        The state contains configurations and momenta.

        Parameters
        ----------
        q, v, u, **named
            See `MechanicalMap.initial_state`.
        start : {"legendre", "authors"}
            ``"legendre"``: p = dL/dv, second order. ``"authors"``: as in the code of [L]'s authors, p = D1 of
            a step at the velocity v with the whole weight of a step, first order, for comparison.

        Raises
        ------
        ConstraintError
            If h(q) or Dh(q) v is not zero; see `consistent_configuration`, `project_velocity`.
        """
        if start not in STARTS:
            raise ModelError(f"start: unknown {start!r}; {near_misses(str(start), STARTS)}")
        if start == "legendre":
            return super().initial_state(q, v, u, **named)
        q, v = self._consistent(q, v, named)
        p = self._authors_start(q, v, self.theta, np.array([self.dt]))[0][:, 0]
        return np.concatenate([q, p, v[self.nd :]])

    @shared
    def _authors_start(self) -> Evaluator:
        """Evaluator of the initial momentum as the authors of [L] define it.
        It is used with ``start="authors"``, and is a first-order approximation of the momentum dL/dv.

        It is a function of (q, v, parameters, dt): S' dlog_hV^T G V at the body velocities V of (q, v), plus
        half a step's impulse of -dV/dq.
        """
        g, bodies, h = self.lagrangian.graph, self.graphs.bodies, ca.SX.sym("dt")
        places = bodies.places(ca.vertsplit(g.q_vector))
        X: list = [
            tuple(tuple(h * c for c in part_) for part_ in (link.v, link.w)) if heavy else None
            for link, heavy in zip(self.lagrangian.first.links, bodies.heavy, strict=True)
        ]
        momentum = ca.vertcat(*bodies.gathered(places, bodies.impulses(X, h)[0])[: self.nd])
        weight = self.graphs.weight(g.q_vector, g.parameters)
        args = [g.q_vector, g.v_vector, g.parameters, h]
        return Evaluator(ca.Function("authors", args, [momentum + h / 2 * weight]))

    # -- derivatives ------------------------------------------------------------------------------------

    @shared
    def _derivatives(self) -> StepDerivatives:
        return StepDerivatives(self.rule)

    @own
    def derivatives(self) -> MapDerivatives:
        return self._derivatives.of_map(self)
