"""Base class of the equations that define a step of a variational integrator.

    p_k + D1 L_d(q_k, q_k+1) + F-(k) - Dh(q_k)' lambda_k = 0
    h(q_k+1) = 0
    p_k+1 = D2 L_d(q_k, q_k+1) + F+(k)

A rule defines the terms of these equations (`parts`), the derivative of the first by q_k+1, and the
constraints.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import casadi as ca
import numpy as np

from vioc.compile.evaluate import Evaluator
from vioc.dynamics.algebra.vectors import part
from vioc.dynamics.integrators.branch_equations import BranchRoot
from vioc.dynamics.integrators.following import equations
from vioc.dynamics.integrators.newton import solve_step
from vioc.dynamics.integrators.step_equations import BlockEvaluator, StepEquations

if TYPE_CHECKING:
    from vioc.dynamics.integrators.mechanical import MechanicalMap


@dataclass(frozen=True)
class StepParts:
    """Momentum balance and next momentum of a step, without constraint impulses.

    Attributes
    ----------
    balance : p_k + D1 L_d + F-
    momentum : p_k+1 = D2 L_d + F+
    """

    balance: ca.SX
    momentum: ca.SX


class VariationalRule(ABC):
    """Discrete equations of the steps of a variational integrator.

    Parameters
    ----------
    f : MechanicalMap
        Map with these steps; its copies with other parameters or step lengths have them too.

    Attributes
    ----------
    lacking : float
        Share of an input's impulse that the momentum lacks at the start of a run.
    """

    lacking: float = 0.0

    def __init__(self, f: MechanicalMap):
        self.f = f

    @abstractmethod
    def parts(self, q0: Any, q1: Any, p: Any, u: Any, t: Any, dt: Any, theta: Any) -> StepParts:
        """Return the momentum balance and the next momentum of a step as expressions ([T] (44)).
        The argument `u` has the inputs of forces only.
        """

    @abstractmethod
    def slope(self, q0: Any, q1: Any, u: Any, t: Any, dt: Any, theta: Any) -> ca.SX:
        """Return the Newton matrix (nd, nd) of a step, D2 D1 L_d + D2 F-.
        It is the derivative of the momentum balance with respect to the next configuration ([T] (22), [S]
        (8)), with the discrete Lagrangian L_d and the impulse F- of the forces at the start of the step.
        """

    @abstractmethod
    def closing(self, q0: Any, q1: Any, theta: Any) -> tuple[Any, Any]:
        """Return the constraint residuals h (nm,) at a step's end, and their Jacobian.
        The Jacobian has the derivatives with respect to q1. Here q0 and q1 are the configurations at the
        start and the end of the step.
        """

    @cached_property
    def blocks(self) -> BlockEvaluator:
        """Evaluator of residuals and Jacobian blocks of the equations of steps.
        It evaluates the equations of one step, or of many steps at once.
        """
        return BlockEvaluator(self)

    @cached_property
    def momentum(self) -> Evaluator:
        """Evaluator of the CasADi function `momentum_function`.
        This function computes the momentum at the end of a step.
        """
        return Evaluator(self.momentum_function)

    @cached_property
    def momentum_function(self) -> ca.Function:
        """CasADi function that computes the momentum p_k+1 at the end of a step.
        Its arguments and results are (q_k, q_k+1, inputs of forces, t, dt, parameters) -> p_k+1.
        """
        f = self.f
        q0, q1, u = (ca.SX.sym(n, m) for n, m in (("q0", f.nq), ("q1", f.nq), ("u", len(f.system.inputs))))
        t, dt, theta = ca.SX.sym("t"), ca.SX.sym("dt"), f.symbols.parameters
        p = self.parts(q0, q1, ca.SX.zeros(f.nd), u, t, dt, theta).momentum
        return ca.Function("momentum", [q0, q1, u, t, dt, theta], [p])

    @cached_property
    def residual(self) -> ca.Function:
        """CasADi function that computes the residual (nx + nm,) of a step.
        The residual is zero at the next state. Its arguments are (x, u, x_next, multipliers, t, dt,
        parameters) ([S] (28)).
        """
        f = self.f
        x, u, lam, theta, dt = f.symbols
        x1, t = ca.SX.sym("x_next", f.nx), ca.SX.sym("t")
        nq, nd, nf = f.nq, f.nd, len(f.system.inputs)
        q0, q1, p = part(x, 0, nq), part(x1, 0, nq), part(x, nq, nq + nd)
        parts = self.parts(q0, q1, p, part(u, 0, nf), t, dt, theta)
        rho = part(u, nf)
        rows = ca.vertcat(
            parts.balance - ca.mtimes(f.constraint(q0, theta)[1][:, :nd].T, lam),
            self.closing(q0, q1, theta)[0],
            part(q1, nd) - rho,
            part(x1, nq, nq + nd) - parts.momentum,
            part(x1, nq + nd) - (rho - part(q0, nd)) / dt,
        )
        return ca.Function("residual", [x, u, x1, lam, t, dt, theta], [rows])

    @cached_property
    def following(self) -> Evaluator:
        """Evaluator of the terms from which inverse dynamics computes the inputs.
        The function `equations` of the module `following` documents these terms.
        """
        return equations(self)


def rescued(
    f: MechanicalMap, step_equations: StepEquations, k: int, first_root: BranchRoot | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Solve step k by continuation of its branch of roots; return the next state and the multipliers.
    The continuation starts from the root `first_root`, or from length 0.
    """
    x, u, t, dt = step_equations.x, step_equations.u, step_equations.t, step_equations.dt
    f.driver.check_starts(x[None], k)
    root = solve_step(step_equations, k, t, f.tolerance, first_root)
    q0, q1 = x[: f.nq], step_equations.end(root.w, 1.0)
    args = q0, q1, u[: len(f.system.inputs)], np.array([t]), np.array([dt]), f.theta
    p = step_equations.rule.momentum(*args)[0][:, 0]
    return np.concatenate([q1, p, (q1 - q0)[f.nd :] / dt]), root.multipliers
