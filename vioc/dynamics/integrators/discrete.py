"""Variational integrator of a discrete Lagrangian that the user writes.

    p_k = -D1 L_d - F-,    p_k+1 = D2 L_d + F+

L_d(q_k, q_k+1, dt), F- and F+ are any CasADi expressions. Steps, constraints and first and second derivatives
follow from them ([T] (44), [S] (10)-(32), which hold for every L_d).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, ClassVar

import casadi as ca

from vioc.compile.backend import Backend
from vioc.dynamics.algebra.vectors import part
from vioc.dynamics.description.system import System
from vioc.dynamics.integrators.chord import ChordParts, ChordRule, ChordSolver, masses
from vioc.dynamics.integrators.mechanical import MechanicalMap
from vioc.dynamics.integrators.step_derivatives import StepDerivatives
from vioc.errors import ModelError
from vioc.maps.derivatives import MapDerivatives
from vioc.maps.kernel import StepSolver
from vioc.maps.twins import own, shared


@dataclass(frozen=True)
class DiscreteStep:
    """CasADi symbols of the variables of one step, from which a user builds a discrete Lagrangian.

    Attributes
    ----------
    q0, q1 : (nq,)
        Configurations at the ends of the step, kinematic ones after the dynamic ones.
    u : (number of forces' inputs,)
    t, dt : scalar
        Start and length of the step, s.
    parameters : (np,)
    """

    q0: ca.SX
    q1: ca.SX
    u: ca.SX
    t: ca.SX
    dt: ca.SX
    parameters: ca.SX
    _L: ca.Function
    _F: ca.Function

    def L(self, q: Any, v: Any) -> ca.SX:
        """Return the Lagrangian T - V, in J, at a configuration and velocity (nq,)."""
        return self._L(q, v, self.u, self.t, self.parameters)

    def F(self, q: Any, v: Any, t: Any = None) -> ca.SX:
        """Return the generalized forces (nq,) at time t, by default mid-step."""
        return self._F(q, v, self.u, self.t + self.dt / 2 if t is None else t, self.parameters)


class DiscreteRule(ChordRule):
    """Equations of a variational step with a discrete Lagrangian that the user writes."""

    def __init__(self, f: MechanicalMap, discrete: Callable[[DiscreteStep], Any]):
        super().__init__(f)
        self._discrete = discrete

    @cached_property
    def slots(self) -> ca.Function:
        """CasADi function that computes two derivatives of a user's discrete Lagrangian.
        Its arguments and results are (q0, q1, u, t, dt, parameters) -> D1 L_d + F-, D2 L_d + F+, and the
        derivative of the first result with respect to q1, all of the dynamic variables. q0 and q1 are the
        configurations at the start and the end of a step. D1 and D2 are derivatives of the discrete
        Lagrangian L_d with respect to q0 and q1; F- and F+ are the impulses of forces at the start and the
        end.
        """
        f = self.f
        lag, nq, nd = f.lagrangian, f.nq, f.nd
        q0, q1, u = (ca.SX.sym(n, m) for n, m in (("q0", nq), ("q1", nq), ("u", len(f.system.inputs))))
        t, dt, theta = ca.SX.sym("t"), ca.SX.sym("dt"), ca.SX.sym("theta", len(f.parameters))
        functions = (lag.function(name, [e]) for name, e in (("L", lag.L), ("F", lag.F)))
        step = DiscreteStep(q0, q1, u, t, dt, theta, *functions)
        results = self._discrete(step)
        L_d, *impulses = results if isinstance(results, (tuple, list)) else (results,)
        if not impulses:
            impulses = [dt / 2 * step.F((q0 + q1) / 2, (q1 - q0) / dt)] * 2
        shapes = [ca.SX(e).shape for e in (L_d, *impulses)]
        if shapes != [(1, 1), (nq, 1), (nq, 1)]:
            raise ModelError(
                f"discrete: expected L_d, or L_d, F-, F+ of shapes (1, 1), ({nq}, 1), ({nq}, 1), got {shapes}"
            )
        if ca.depends_on(ca.SX(L_d), ca.vertcat(u, t)):
            raise ModelError("discrete: L_d depends on inputs or time; what they do is a force, of F- and F+")
        slots = [
            part(ca.gradient(L_d, q) + impulse, 0, nd) for q, impulse in zip((q0, q1), impulses, strict=True)
        ]
        slope = ca.densify(ca.jacobian(slots[0], q1)[:, :nd])
        return ca.Function("slots", [q0, q1, u, t, dt, theta], [*map(ca.densify, slots), slope])

    def parts(self, q0: Any, q1: Any, p: Any, u: Any, t: Any, dt: Any, theta: Any) -> ChordParts:
        minus, plus, _ = self.slots(q0, q1, u, t, dt, theta)
        return ChordParts(p + minus, plus, minus + plus)

    def closing(self, q0: Any, q1: Any, theta: Any) -> tuple[Any, Any]:
        return self.f.constraint(q1, theta)

    def slope_and_masses(self, q0: Any, q1: Any, u: Any, t: Any, dt: Any, theta: Any) -> tuple[ca.SX, ca.SX]:
        return self.slots(q0, q1, u, t, dt, theta)[2], masses(self.f)((q0 + q1) / 2, theta)


class DiscreteLagrangianVI(MechanicalMap):
    """Variational integrator of a discrete Lagrangian that the user writes.

    Parameters
    ----------
    system : System
    dt : float
        Time step, s, > 0.
    discrete : callable
        Function of a `DiscreteStep` that returns L_d, J s; or L_d, F- and F+, the impulses (nq,) at the
        step's start and end. By default each impulse is half of dt F in the middle of the step.
    wrap, tolerance, backend
        See `MidpointVI`.

    Raises
    ------
    ModelError
        If the value of `discrete` is none of these, L_d depends on inputs or time, or the mass matrix is
        singular.

    Notes
    -----
    State and input are those of `MidpointVI`. A function defined in a module can be pickled, a lambda cannot.
    """

    choices: ClassVar[tuple[str, ...]] = ("discrete",)

    def __init__(
        self,
        system: System,
        dt: float,
        discrete: Callable[[DiscreteStep], Any],
        *,
        wrap: Sequence[str] = (),
        tolerance: float = 1e-11,
        backend: str = "virtual",
    ):
        self.discrete = discrete
        super().__init__(system, dt, wrap, tolerance, backend)
        self.backend = Backend(backend)  # the function's name does not identify its content
        self._impulse_behind = 0.5
        _ = self.rule.slots  # reports an unsuitable discrete Lagrangian now

    def __repr__(self) -> str:
        sizes = f"nx = {self.nx}, nu = {self.nu}"
        return (
            f"DiscreteLagrangianVI({self.system.name}: {_named(self.discrete)}, {sizes}, "
            f"{self.nm} constraints, dt = {self.dt:g} s)"
        )

    @shared
    def rule(self) -> DiscreteRule:
        """Discrete equations of a step, which the solver and the derivatives use."""
        return DiscreteRule(self, self.discrete)

    @shared
    def chord(self) -> ChordSolver:
        """Solver of the discrete equations of a step, by simplified Newton iteration."""
        return ChordSolver(self.rule)

    @own
    def step_solver(self) -> StepSolver:
        return self.chord.programs.solver(partial(self.chord.rescued, self), **self._checks)

    @shared
    def _derivatives(self) -> StepDerivatives:
        return StepDerivatives(self.rule)

    @own
    def derivatives(self) -> MapDerivatives:
        return self._derivatives.of_map(self)


def _named(function: Callable) -> str:
    return getattr(function, "__name__", type(function).__name__)
