"""The swing-ups by IPOPT (implicit midpoint rule, CasADi) and by Crocoddyl's FDDP, where installed."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

import vioc
from benchmarks import simulators
from benchmarks.problems import DT, EFFORT, FINAL, RUNNING, SwingUp
from vioc.dynamics.continuous import Continuous


class Answer(NamedTuple):
    """What a solver returned."""

    cost: float
    iterations: int
    converged: bool


def ipopt(swing: SwingUp) -> Callable[[], Answer]:
    """Simultaneous states and inputs: q1 - q0 = dt v_m, M a + ... = F at the midpoint; expanded."""
    system = vioc.models.load(swing.model)
    c = Continuous(system)
    lag = c.lagrangian
    n, N, nu = lag.nq, swing.steps, len(system.inputs)
    a = ca.SX.sym("a", n)
    balance = lag.function("balance", [c.balance(a, ca.SX(0, 1))], [a])
    X, U = ca.MX.sym("x", 2 * n, N + 1), ca.MX.sym("u", nu, N)
    x0, x1, u = ca.SX.sym("x0", 2 * n), ca.SX.sym("x1", 2 * n), ca.SX.sym("u", nu)
    middle, rate = (x0 + x1) / 2, (x1 - x0) / DT
    rows = ca.vertcat(
        (x1 - x0)[:n] - DT * middle[n:], DT * balance(middle[:n], middle[n:], u, 0.0, ca.SX(0, 1), rate[n:])
    )
    defect = ca.Function("defect", [x0, u, x1], [rows]).map(N)
    weights, final = np.repeat(RUNNING, n), np.repeat(FINAL, n)
    running = ca.sum1(ca.mtimes(ca.DM(weights).T, X[:, :-1] ** 2).T) + EFFORT * ca.sumsqr(U)
    cost = DT / 2 * running + ca.dot(ca.DM(final), X[:, -1] ** 2) / 2
    start = np.concatenate([swing.hanging, np.zeros(n)])
    equations = ca.vertcat(X[:, 0] - start, ca.vec(defect(X[:, :-1], U, X[:, 1:])))
    # stage after stage, which keeps the band of the KKT matrix narrow
    stacked = ca.vertcat(ca.vec(ca.vertcat(X[:, :-1], U)), X[:, -1])
    z = ca.MX.sym("z", stacked.numel())
    stages = ca.reshape(z[: (2 * n + nu) * N], 2 * n + nu, N)
    parts = ca.horzcat(stages[: 2 * n, :], z[-2 * n :]), stages[2 * n :, :]
    f, g = ca.Function("problem", [X, U], [cost, equations])(*parts)
    quiet = {"print_time": False, "ipopt.print_level": 0, "ipopt.sb": "yes", "expand": True}
    solver = ca.nlpsol("solver", "ipopt", {"x": z, "f": f, "g": g}, quiet)
    line = np.linspace(start, np.zeros(2 * n), N + 1).T
    guess = np.concatenate([np.vstack([line[:, :-1], np.zeros((nu, N))]).ravel("F"), line[:, -1]])

    def solve() -> Answer:
        found = solver(x0=guess, lbg=0, ubg=0)
        stats = solver.stats()
        return Answer(float(found["f"]), int(stats["iter_count"]), bool(stats["success"]))

    return solve


def crocoddyl(swing: SwingUp) -> Callable[[], Answer] | None:
    """FDDP on a semi-implicit Euler step with pinocchio's derivatives; None where not installed."""
    try:
        package = importlib.import_module("crocoddyl")
    except ImportError:
        return None
    if simulators.pinocchio() is None:
        return None
    system = vioc.models.load(swing.model)
    bare = vioc.System(*system.frames, *system.potentials, name=system.name)
    model = simulators.PinocchioChain(bare).model
    n = model.nv
    driven = system.variables.index(system.forces[0].variable)  # type: ignore[attr-defined]
    state = package.StateMultibody(model)
    select = np.zeros((n, 1))
    select[driven] = 1.0

    class OneJoint(package.ActuationModelAbstract):  # type: ignore[name-defined]
        """The input is the force on one joint."""

        def __init__(self) -> None:
            package.ActuationModelAbstract.__init__(self, state, 1)

        def calc(self, data: Any, x: Any, u: Any = None) -> None:
            if u is not None:
                data.tau = select @ u

        def calcDiff(self, data: Any, x: Any, u: Any = None) -> None:
            data.dtau_du = select

    actuation = OneJoint()

    def costs(weights: tuple[float, float], effort: float) -> Any:
        total = package.CostModelSum(state, 1)
        activation = package.ActivationModelWeightedQuad(np.repeat(weights, n))
        goal = package.ResidualModelState(state, np.zeros(2 * n), 1)
        total.addCost("state", package.CostModelResidual(state, activation, goal), 1.0)
        if effort:
            control = package.CostModelResidual(state, package.ResidualModelControl(state, 1))
            total.addCost("control", control, effort)
        return total

    def action(weights: tuple[float, float], effort: float, dt: float) -> Any:
        dynamics = package.DifferentialActionModelFreeFwdDynamics(state, actuation, costs(weights, effort))
        return package.IntegratedActionModelEuler(dynamics, dt)

    start = np.concatenate([swing.hanging, np.zeros(n)])
    running, terminal = action(RUNNING, EFFORT, DT), action(FINAL, 0.0, 0.0)
    problem = package.ShootingProblem(start, [running] * swing.steps, terminal)
    line = list(np.linspace(start, np.zeros(2 * n), swing.steps + 1))
    inputs = [np.zeros(1)] * swing.steps

    def solve() -> Answer:
        solver = package.SolverFDDP(problem)
        done = solver.solve(line, inputs, 1000, False)
        return Answer(float(solver.cost), int(solver.iter), bool(done))

    return solve
