"""Any map and cost of vioc as Crocoddyl action models, so that its solvers run on them.

    problem = shooting_problem(f, cost, x0, steps)
    solver = crocoddyl.SolverFDDP(problem)
    solver.solve(xs, us)

Needs the package ``crocoddyl`` with the Pinocchio that it was built for. Its 3.2 wheels want pin 4.0.0: with
pin 4.1.0 they load and their numbers are wrong, so `shooting_problem` compares a sum of costs first.
"""

from __future__ import annotations

from typing import Any

import numpy as np

try:
    import crocoddyl
except ImportError:
    raise ImportError(
        "this needs Crocoddyl: pip install crocoddyl 'pin==4.0.0' 'libpinocchio==4.0.0'"
    ) from None

from vioc.control.costs.cost import Cost
from vioc.errors import StepError
from vioc.maps.protocol import OneStepMap
from vioc.maps.trajectory import Trajectory


class ActionModel(crocoddyl.ActionModelAbstract):
    """One step of a map with its running cost, or the last state with its terminal cost.

    Parameters
    ----------
    f : OneStepMap
    cost : Cost
        On `f`; its references are those of sample `k` of a horizon of `steps`.
    steps : int
        N.
    k : int
        0 .. N - 1 a running model, N the terminal one.

    Notes
    -----
    Derivatives are exact: first ones of the step, second ones of the cost (that of multipliers included).
    The curvature of the step is not Crocoddyl's business. A step without a solution gives numbers that are
    not finite, from which its line search turns back.
    """

    def __init__(self, f: OneStepMap, cost: Cost, steps: int, k: int):
        if f.ndx != f.nx:
            raise ValueError(f"errors must be differences of states, got ndx = {f.ndx}, nx = {f.nx}")
        self.is_terminal = k == steps
        super().__init__(crocoddyl.StateVector(f.nx), 0 if self.is_terminal else f.nu, 0)
        self.map, self.cost, self.k = f, cost, k
        self._reference = np.ascontiguousarray(cost.reference_rows(steps)[k])
        self._theta = np.array(list(f.parameters.values()), float)
        self._dt = np.full(1, f.dt)
        self._weight = 1.0 if self.is_terminal or not cost.per_time else f.dt

    def calc(self, data: Any, x: np.ndarray, u: np.ndarray | None = None) -> None:
        """Next state and cost."""
        x = np.array(x, float)
        if self.is_terminal or u is None:
            data.xnext, data.cost = (
                x,
                self._last(x, self.cost.terminal)[0].item() if self.is_terminal else 0.0,
            )
            return
        u = np.array(u, float)
        multipliers = self._step(data, x, u)
        args = [x, u, multipliers, self._theta, self._dt, self._reference]
        data.cost = self._weight * self.cost.running(*args)[0].item()

    def calcDiff(self, data: Any, x: np.ndarray, u: np.ndarray | None = None) -> None:
        """Derivatives of both, at the point of the last `calc`."""
        x = np.array(x, float)
        if self.is_terminal or u is None:
            data.Fx = np.eye(self.map.nx)
            if self.is_terminal:
                first, second = self._last(x, self.cost.terminal_derivatives)
                data.Lx, data.Lxx = first[:, 0], second
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
        return run.multipliers[0]

    def _last(self, x: np.ndarray, function: Any) -> list[np.ndarray]:
        f = self.map
        zeros = np.zeros(f.nu), np.zeros(len(f.multiplier_names))
        return function(x, *zeros, self._theta, np.zeros(1), self._reference)


def shooting_problem(f: OneStepMap, cost: Cost, x0: Any, steps: int) -> Any:
    """The problem of `vioc.control.optimize` as a ``crocoddyl.ShootingProblem``.

    Parameters
    ----------
    f : OneStepMap
    cost : Cost
        On `f`.
    x0 : (nx,)
    steps : int

    Raises
    ------
    ValueError
        Shapes; a cost of another map.
    RuntimeError
        If Crocoddyl's own arithmetic fails its check, as with a Pinocchio that it was not built for.

    Notes
    -----
    Crocoddyl holds models weakly through Python: keep the problem, which keeps them.
    """
    cost.check_map(f)
    x0 = f.check_state(x0, "x0")
    models = [ActionModel(f, cost, steps, k) for k in range(steps + 1)]
    problem = crocoddyl.ShootingProblem(x0, models[:-1], models[-1])
    _check(problem, f, cost, x0, steps)
    return problem


def trajectory(f: OneStepMap, solver: Any) -> Trajectory:
    """The rollout of a solver's inputs on the map itself."""
    return f.rollout(np.array(solver.problem.x0), np.array([np.array(u) for u in solver.us]))


def _check(problem: Any, f: OneStepMap, cost: Cost, x0: np.ndarray, steps: int) -> None:
    U = np.tile(f.rest_input(x0), (steps, 1))
    run = f.rollout(x0, U, warn=False)
    theirs, ours = float(problem.calc(list(run.x), list(U))), cost.value(run)
    if not abs(theirs - ours) <= 1e-9 * (1 + abs(ours)):
        raise RuntimeError(
            f"Crocoddyl sums the cost of a rollout to {theirs:.9g}, vioc to {ours:.9g}: its Pinocchio is not "
            "the one that it was built for; pip install 'pin==4.0.0' 'libpinocchio==4.0.0'"
        )
