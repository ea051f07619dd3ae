"""`VariationalMap`: what the variational rules in generalized coordinates share.

    p_k + D1 L_d(q_k, q_k+1) + F-(k) - Dh(q_k)' lambda_k = 0
    h(q_k+1) = 0
    p_k+1 = D2 L_d(q_k, q_k+1) + F+(k)

A rule is its `parts`, the slope of its balance, and a kernel that solves it.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import casadi as ca
import numpy as np

from vioc.compile.evaluate import Evaluator
from vioc.dynamics.algebra.vectors import part
from vioc.dynamics.integrators.conditions import StepConditions, conditions
from vioc.dynamics.integrators.following import equations, inverse_dynamics
from vioc.dynamics.integrators.mechanical import MechanicalMap
from vioc.dynamics.integrators.newton import PASSING, BranchRoot, solve_step
from vioc.dynamics.integrators.step_equations import BlockEvaluator, StepEquations
from vioc.dynamics.kinematics import as_configuration
from vioc.dynamics.lagrangian import OPTIONS
from vioc.maps.derivatives import Steps
from vioc.maps.given import trajectory_of
from vioc.maps.trajectory import Trajectory
from vioc.maps.twins import shared


@dataclass(frozen=True)
class StepParts:
    """What one step is made of, as expressions (nd,), without the constraint impulse.

    Attributes
    ----------
    balance : p_k + D1 L_d + F-
    momentum : p_k+1 = D2 L_d + F+
    """

    balance: ca.SX
    momentum: ca.SX


class VariationalMap(MechanicalMap):
    """A variational rule as a one-step map; see the module's text.

    Attributes
    ----------
    impulse_behind : float
        What share of a step's impulses makes up for the step before.
    """

    impulse_behind: float = 0.5

    @abstractmethod
    def parts(self, q0: Any, q1: Any, p: Any, u: Any, t: Any, dt: Any, theta: Any) -> StepParts:
        """The step's equations ([T] (44)) on symbols; `u` without rho."""

    @abstractmethod
    def slope(self, q0: Any, q1: Any, u: Any, t: Any, dt: Any, theta: Any) -> ca.SX:
        """D2 D1 L_d + D2 F- (nd, nd) of the dynamic variables ([T] (22), [S] (8)), dense."""

    def closing(self, q0: Any, q1: Any, theta: Any) -> tuple[Any, Any]:
        """What constraints make zero at a step's end, (nm,), and its derivative by q1: h and Dh there."""
        return self.constraint(q1, theta)

    # -- steps --------------------------------------------------------------------------------------

    @shared
    def step_blocks(self) -> BlockEvaluator:
        """Residuals and Jacobian blocks of steps at numbers."""
        return BlockEvaluator(self)

    def advice_on_singular(self, q: np.ndarray) -> str:
        """What to do where a step ends near the configuration q, in which constraints are dependent."""
        return PASSING

    def _rescued(self, x: np.ndarray, u: np.ndarray, k: int, t: float, dt: float):
        self.driver.check_starts(x[None], k)
        nf, equations = len(self.system.inputs), StepEquations(self, x, u, t, dt)
        found = solve_step(equations, k, t, self.tolerance, self._begun(x, u, t, dt))
        q0, q1 = x[: self.nq], equations.end(found.w, 1.0)
        p = self._momentum(q0, q1, u[:nf], np.array([t]), np.array([dt]), self.theta)[0][:, 0]
        return np.concatenate([q1, p, (q1 - q0)[self.nd :] / dt]), found.multipliers

    def _begun(self, x: np.ndarray, u: np.ndarray, t: float, dt: float) -> BranchRoot | None:
        """The last root on a step's branch that the kernel has found, if it says so."""
        return None

    @shared
    def _momentum(self) -> Evaluator:
        """(q_k, q_k+1, forces' inputs, t, dt, parameters) -> p_k+1."""
        q0, q1, u = (
            ca.SX.sym(n, m) for n, m in (("q0", self.nq), ("q1", self.nq), ("u", len(self.system.inputs)))
        )
        t, dt, theta = ca.SX.sym("t"), ca.SX.sym("dt"), self.symbols.parameters
        p = self.parts(q0, q1, ca.SX.zeros(self.nd), u, t, dt, theta).momentum
        return Evaluator(ca.Function("momentum", [q0, q1, u, t, dt, theta], [p], OPTIONS))

    @shared
    def residual(self) -> ca.Function:
        """(x, u, x_next, multipliers, t, dt, parameters) -> (nx + nm,), zero on a step ([S] (28))."""
        x, u, lam, theta, dt = self.symbols
        x1, t = ca.SX.sym("x_next", self.nx), ca.SX.sym("t")
        nq, nd, nf = self.nq, self.nd, len(self.system.inputs)
        q0, q1, p = part(x, 0, nq), part(x1, 0, nq), part(x, nq, nq + nd)
        done = self.parts(q0, q1, p, part(u, 0, nf), t, dt, theta)
        rho = part(u, nf)
        rows = ca.vertcat(
            done.balance - ca.mtimes(self.constraint(q0, theta)[1][:, :nd].T, lam),
            self.closing(q0, q1, theta)[0],
            part(q1, nd) - rho,
            part(x1, nq, nq + nd) - done.momentum,
            part(x1, nq + nd) - (rho - part(q0, nd)) / dt,
        )
        return ca.Function("residual", [x, u, x1, lam, t, dt, theta], [rows], OPTIONS)

    # -- starts -------------------------------------------------------------------------------------

    @property
    def configurations(self) -> tuple[str, ...]:
        return self.system.variables

    def state_from_configurations(self, q0: Any, q1: Any, u: Any = None, k: int = 0) -> np.ndarray:
        """The state at k + 1 of a step from q0 to q1, p = D2 L_d(q0, q1) + F+ ([T] V-A)."""
        q0 = as_configuration(self.system, q0, "q0")
        q1 = as_configuration(self.system, q1, "q1")
        forces, h = self.check_input(u)[: len(self.system.inputs)], self.dt
        p = self._momentum(q0, q1, forces, np.array([k * h]), np.array([h]), self.theta)[0][:, 0]
        return np.concatenate([q1, p, (q1 - q0)[self.nd :] / h])

    def inverse_dynamics(self, q: Any, x0: Any = None, k: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """(x0, U): a start and inputs (N, nu) whose steps pass through configurations q (N+1, nq) exactly.

        Parameters
        ----------
        q : (N+1, nq)
            In the order of ``system.variables``, a sample per step; constraints hold in every row.
        x0 : (nx,), optional
            The start's momentum. By default it follows from the motion, so that inputs are as even as can be:
            where half of each force acts at either end of a step, one that the motion does not have
            starts inputs that alternate.
        k : int
            Number of the first step.

        Raises
        ------
        ModelError
            If no input makes that motion: sample, variable and the force that is missing are named. Forces
            must be linear in the inputs.
        """
        return inverse_dynamics(self, q, x0, k, self._following)

    @shared
    def _following(self) -> Evaluator:
        return equations(self)

    # -- how well steps are determined --------------------------------------------------------------

    def conditions(self, trajectory: Trajectory) -> StepConditions:
        """Condition numbers of M_k+1 and Dh M^-1 Dh' of every step ([S] VII), infinite where it is singular.

        A step warns of a singular M_k+1 by itself (`ChartWarning`); this tells how near a motion comes.
        """
        return conditions(self, Steps.along(trajectory_of(trajectory)), self.theta)
