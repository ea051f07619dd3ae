"""Crocoddyl action models made from maps, costs and limits.

    problem = shooting_problem(f, cost, x0, steps)
    solver = crocoddyl.SolverFDDP(problem)
    solver.solve(xs, us)

Limits are the models' constraints, lower <= g <= upper and h = 0. Of Crocoddyl's own solvers, those for boxes
support bounds of inputs, and SolverIntro supports h = 0. The solver SolverCSQP of mim_solvers supports every
g; with ``equations="g"``, h = 0 is stated as 0 <= g <= 0.

Needs the package ``crocoddyl`` with the Pinocchio that it was built for. Its 3.2 wheels need pin 4.0.0: with
pin 4.1.0 they load but compute wrong numbers, so `shooting_problem` first compares the cost of a
rollout that Crocoddyl computes with that of vioc.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import casadi as ca
import numpy as np

try:
    import crocoddyl
except ImportError:
    raise ImportError(
        "this needs Crocoddyl: pip install crocoddyl 'pin==4.0.0' 'libpinocchio==4.0.0'"
    ) from None

from vioc.control.costs.cost import Cost
from vioc.control.problem.limits import PathConstraint
from vioc.control.shooting.rows import collected
from vioc.errors import StepError
from vioc.maps.protocol import OneStepMap
from vioc.runs.trajectory import Trajectory


class ActionModel(crocoddyl.ActionModelAbstract):
    """Crocoddyl action model of one step with its running cost, or of the final cost.

    Parameters
    ----------
    f : OneStepMap
    cost : Cost
        On `f`; its references are those of sample `k` of a horizon of `steps`.
    steps : int
        N.
    k : int
        0 .. N - 1 a running model, N the terminal one.
    constraints : list of PathConstraint
        On `f`; those of this sample become g and h, in their order.
    equations : {"h", "g"}
        If lower = upper: h = 0, or g in a range of zero width.

    Notes
    -----
    Derivatives are exact: first ones of the step and of limits, also through multipliers; second ones of the
    cost. Crocoddyl does not use second derivatives of step and limits. A step without a solution gives
    values that are not finite, so that its line search shortens the step.
    """

    def __init__(
        self,
        f: OneStepMap,
        cost: Cost,
        steps: int,
        k: int,
        constraints: Sequence[PathConstraint] = (),
        equations: str = "h",
    ):
        if f.ndx != f.nx:
            raise ValueError(f"errors must be differences of states, got ndx = {f.ndx}, nx = {f.nx}")
        if equations not in ("h", "g"):
            raise ValueError(f'equations: expected "h" or "g", got {equations!r}')
        self.is_terminal = k == steps
        self.limits = SampleLimits(f, constraints, steps, k, equations)
        ng, nh = self.limits.ng, self.limits.nh
        at_end = (ng, nh) if self.is_terminal else (0, 0)
        nu = 0 if self.is_terminal else f.nu
        super().__init__(crocoddyl.StateVector(f.nx), nu, 0, ng, nh, *at_end)
        self.g_lb, self.g_ub = self.limits.lower, self.limits.upper
        if not self.is_terminal:
            self.u_lb, self.u_ub = self.limits.inputs
        self.map, self.cost, self.k = f, cost, k
        self._reference = np.ascontiguousarray(cost.reference_rows(steps)[k])
        self._theta = np.array(list(f.parameters.values()), float)
        self._dt = np.full(1, f.dt)
        self._weight = 1.0 if self.is_terminal or not cost.per_time else f.dt

    def calc(self, data: Any, x: np.ndarray, u: np.ndarray | None = None) -> None:
        """Compute the next state and the cost."""
        x = np.array(x, float)
        if self.is_terminal or u is None:
            data.xnext, data.cost = (
                x,
                self._last(x, self.cost.terminal)[0].item() if self.is_terminal else 0.0,
            )
            if self.is_terminal:
                data.g, data.h = self.limits.values(*self._end(x))
            return
        u = np.array(u, float)
        multipliers = self._step(data, x, u)
        args = [x, u, multipliers, self._theta, self._dt, self._reference]
        data.cost = self._weight * self.cost.running(*args)[0].item()
        data.g, data.h = self.limits.values(*args[:-1])

    def calcDiff(self, data: Any, x: np.ndarray, u: np.ndarray | None = None) -> None:
        """Compute the derivatives of the next state and of the cost at (x, u)."""
        x = np.array(x, float)
        if self.is_terminal or u is None:
            data.Fx = np.eye(self.map.nx)
            if self.is_terminal:
                first, second = self._last(x, self.cost.terminal_derivatives)
                data.Lx, data.Lxx = first[:, 0], second
                G, H = self.limits.jacobians(*self._end(x))
                data.Gx, data.Hx = G[:, : self.map.nx], H[:, : self.map.nx]
            return
        u, f = np.array(u, float), self.map
        lin = f.linearize(x, u, self.k)
        impulses = f.rollout(x, u[None], k0=self.k, warn=False).multipliers[0] if f.multiplier_names else []
        args = [x, u, np.array(impulses), self._theta, self._dt, self._reference]
        first, second = (self._weight * d for d in self.cost.running_derivatives(*args))
        first = first[:, 0]
        n, m = f.nx, f.nu
        if len(f.multiplier_names):
            T = np.vstack([np.eye(n + m), np.hstack([lin.C, lin.D])])
            zeta = first[n + m :]
            xx, xu, uu = f.second_order(x, u, np.zeros(n), self.k, zeta=zeta)
            first, second = T.T @ first, T.T @ second @ T + np.block([[xx, xu], [xu.T, uu]])
        G, H = self.limits.jacobians(*args[:-1])
        if len(f.multiplier_names):
            G, H = G @ T, H @ T
        data.Gx, data.Gu, data.Hx, data.Hu = G[:, :n], G[:, n:], H[:, :n], H[:, n:]
        data.Fx, data.Fu = lin.A, lin.B
        data.Lx, data.Lu = first[:n], first[n:]
        data.Lxx, data.Lxu, data.Luu = second[:n, :n], second[:n, n:], second[n:, n:]

    def _step(self, data: Any, x: np.ndarray, u: np.ndarray) -> np.ndarray:
        f = self.map
        try:
            run = f.track(x, x[None], u[None], np.zeros((1, f.nu, f.ndx)), k0=self.k)
        except (StepError, ValueError):
            data.xnext = np.full(f.nx, np.nan)
            return np.full(len(f.multiplier_names), np.nan)
        data.xnext = run.x[1]
        multipliers: np.ndarray = run.multipliers[0]
        return multipliers

    def _end(self, x: np.ndarray) -> list[np.ndarray]:
        zeros = np.zeros(self.map.nu), np.zeros(len(self.map.multiplier_names))
        return [x, *zeros, self._theta, np.zeros(1)]

    def _last(self, x: np.ndarray, function: Any) -> list[np.ndarray]:
        values: list[np.ndarray] = function(*self._end(x), self._reference)
        return values


class SampleLimits:
    """Constraints of an optimal control problem at one sample time.
    They are inequalities lower <= g <= upper and equations h = 0.

    Attributes
    ----------
    ng, nh : int
    lower, upper : (ng,)
    inputs : pair of (nu,)
        Bounds of single inputs; infinite without a bound.
    """

    def __init__(
        self, f: OneStepMap, constraints: Sequence[PathConstraint], steps: int, k: int, equations: str
    ):
        args, u = list(f.symbols), f.symbols.u
        g, h, sides = [ca.SX(0, 1)], [ca.SX(0, 1)], []
        self.inputs = np.full(f.nu, -np.inf), np.full(f.nu, np.inf)
        for c in constraints:
            if (k < steps) if c.where == "end" else (k == steps and c.by_step(f)):
                continue
            expression = c.expression
            if c.references:
                expression = ca.substitute(expression, c.symbols(), ca.DM(c.data(steps)[k]))
            if k == 0 and not ca.depends_on(expression, ca.vertcat(u, f.symbols.multipliers)):
                continue  # the first state is given
            low, high = (side[0 if c.where == "end" else k] for side in c.limits(f, steps))
            if low == high and equations == "h":
                h.append(expression - low)
            elif np.isfinite(low) or np.isfinite(high):
                g.append(expression)
                sides += [(low, high)] * expression.numel()
            if c.where == "path" and expression.is_symbolic() and k < steps:
                for i in range(f.nu):
                    if ca.is_equal(expression, u[i]):
                        self.inputs[0][i], self.inputs[1][i] = low, high
        both = [ca.densify(ca.vertcat(*rows)) for rows in (g, h)]
        z = ca.vertcat(*args[:3])
        first = [ca.densify(ca.jacobian(rows, z)) for rows in both]
        self._values, self._first = ca.Function("limits", args, both), ca.Function("slopes", args, first)
        self.ng, self.nh = (rows.numel() for rows in both)
        self.lower, self.upper = np.array(sides).reshape(-1, 2).T.copy()

    def values(self, *args: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the values of g and h in constraints lower <= g <= upper and h = 0.
        The arguments are those of one sample time: the state, the input, the multipliers, the parameters and
        the step length.
        """
        g, h = self._values(*args)
        return g.full()[:, 0], h.full()[:, 0]

    def jacobians(self, *args: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the Jacobians of g and h in constraints lower <= g <= upper and h = 0.
        The derivatives are with respect to state x, input u and multipliers at one sample time.
        """
        G, H = self._first(*args)
        return G.full(), H.full()


def shooting_problem(
    f: OneStepMap,
    cost: Cost,
    x0: Any,
    steps: int,
    *,
    bounds: Mapping[str, Any] | None = None,
    constraints: Sequence[PathConstraint] | PathConstraint | None = None,
    final: Any = None,
    equations: str = "h",
) -> Any:
    """Convert a problem of `vioc.control.optimize` to a ``crocoddyl.ShootingProblem``.

    Parameters
    ----------
    f : OneStepMap
    cost : Cost
        On `f`.
    x0 : (nx,)
    steps : int
    bounds, constraints, final
        As in `vioc.control.optimize`.
    equations : {"h", "g"}
        For equal lower and upper limits: h = 0, or g in a range of zero width, for mim_solvers.

    Raises
    ------
    ValueError
        Wrong shapes; a cost of another map; limits that `optimize` would refuse.
    RuntimeError
        If Crocoddyl's own arithmetic fails its check, as with a Pinocchio that it was not built for.

    Notes
    -----
    Crocoddyl has only weak references to Python models: keep the problem, which keeps them.
    """
    cost.check_map(f)
    x0 = f.check_state(x0, "x0")
    limits = collected(f, steps, bounds, constraints, final)
    models = [ActionModel(f, cost, steps, k, limits, equations) for k in range(steps + 1)]
    problem = crocoddyl.ShootingProblem(x0, models[:-1], models[-1])
    _check(problem, f, cost, x0, steps)
    return problem


def trajectory(f: OneStepMap, solver: Any) -> Trajectory:
    """Return the rollout of the map `f` with the inputs that a Crocoddyl solver found."""
    return f.rollout(np.array(solver.problem.x0), np.array([np.array(u) for u in solver.us]))


def _check(problem: Any, f: OneStepMap, cost: Cost, x0: np.ndarray, steps: int) -> None:
    U = np.tile(f.rest_input(x0), (steps, 1))
    run = f.rollout(x0, U, warn=False)
    total, value = float(problem.calc(list(run.x), list(U))), cost.value(run)
    if not abs(total - value) <= 1e-9 * (1 + abs(value)):
        raise RuntimeError(
            f"Crocoddyl sums the cost of a rollout to {total:.9g}, vioc to {value:.9g}: its Pinocchio is not "
            "the one that it was built for; pip install 'pin==4.0.0' 'libpinocchio==4.0.0'"
        )
