"""The swing-ups by IPOPT (implicit midpoint rule, CasADi) and by Crocoddyl's FDDP, where installed."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

import vioc
from studies import arm_reaching
from studies.benchmarks import simulators
from studies.benchmarks.problems import DT, EFFORT, FINAL, RUNNING, SwingUp
from studies.benchmarks.robots import Make, swing_up
from studies.tasks import Task
from vioc.control import dmoc
from vioc.models.arm import TOOL


class Answer(NamedTuple):
    """What a solver returned.

    Attributes
    ----------
    cost : float
    iterations : int
    converged : bool
    verdict : str
        The solver's own word.
    """

    cost: float
    iterations: int
    converged: bool
    verdict: str = ""


def ipopt(swing: SwingUp) -> Callable[[], Answer]:
    """A swing-up by IPOPT on the implicit midpoint rule."""
    return nlp(swing_up(Make(variational=False), swing), "ipopt")


SMALL = 60_000  # instructions of the equations of all steps up to which a program is expanded
LONGEST = 60.0  # s that a solver is given, where it can be told


def nlp(task: Task, solver: str) -> Callable[[], Answer]:
    """The task on its map's own equations, states and inputs as unknowns: IPOPT or FATROP through CasADi.

    Small programs are expanded to scalars, stage after stage; large ones, whose derivatives would take
    minutes to build so, are `vioc.control.dmoc`'s, which maps the derivatives of one stage.
    """
    phase = dmoc.Phase(task.map, task.steps, task.cost, initial=task.x0, **task.limits)
    function = phase.equations.function
    if not function.is_a("SXFunction") or task.steps * function.n_instructions() > SMALL:
        return _mapped(phase, task, solver)
    return _expanded(phase, task, solver)


def _mapped(phase: dmoc.Phase, task: Task, solver: str) -> Callable[[], Answer]:
    problem = dmoc.Problem(phase)
    options = {"ipopt.max_cpu_time": LONGEST} if solver == "ipopt" else {}

    def solve() -> Answer:
        found = problem.solve(
            task.curve, solver=solver, form="states", options=options, raise_on_failure=False, **ENOUGH
        )
        return Answer(found.cost, found.iterations, found.converged, str(found.status))

    return solve


ENOUGH: dict[str, Any] = {"tolerance": 1e-8, "max_iterations": 1000}


def _expanded(phase: dmoc.Phase, task: Task, solver: str) -> Callable[[], Answer]:
    f, n = task.map, task.steps
    args = x, u, lam, _, _ = f.symbols
    equations = phase.equations
    size, controls = f.nx, f.nu + phase.unknowns
    y = ca.SX.sym("y", size)
    data, k = ca.SX.sym("data", phase.data.shape[1]), ca.SX.sym("k")
    known = {"theta": f.theta, "dt": f.dt}

    def at_numbers(expression: ca.SX) -> ca.SX:
        return ca.substitute(
            expression, ca.vertcat(args.parameters, args.dt), ca.DM([*known["theta"], known["dt"]])
        )

    lam_used = lam if phase.unknowns else ca.SX(0, 1)
    width = task.cost.reference_size
    rows = equations.function(x, u, y, lam_used, k * args.dt, args.dt, args.parameters)
    weight = f.dt if task.cost.per_time else 1.0
    running = weight * task.cost.running_at(*args, data[:width])
    path = []
    place = width
    for c in phase.rows:
        own = c.symbols()
        symbols, place = data[place : place + own.numel()], place + own.numel()
        path.append((c, ca.substitute(c.expression, own, symbols) if own.numel() else c.expression))
    inside = [x, u, lam_used, y, data, k]

    def function(expression: ca.SX) -> ca.Function:
        return ca.Function("part", inside, [at_numbers(expression)], {"allow_free": False})

    step, price = function(rows), function(running)
    last = function(task.cost.terminal_at(*args, data[:width]))
    limited = [(c, function(e), phase.row_limits(c)) for c, e in path]
    staged = solver == "fatrop"  # whose gaps are explicit: the next state is an input, too
    X, U = task.curve
    low_x, high_x = phase.state_limits
    low_u, high_u = (np.hstack([a, b]) for a, b in zip(phase.input_limits, phase.unknown_limits, strict=True))
    z, z0, low, high, g, low_g, high_g = [], [], [], [], [], [], []
    total: Any = 0.0
    states = [ca.SX.sym(f"x{i}", size) for i in range(n + 1)]
    for i, state in enumerate(states):
        end = i == n
        v = ca.SX.sym(f"u{i}", 0 if end else controls)
        after = ca.SX.sym(f"y{i}", size) if staged and not end else states[min(i + 1, n)]
        extra = after if staged and not end else ca.SX(0, 1)
        z += [state, v, extra]
        nothing = np.zeros(phase.unknowns)
        z0 += [X[i], *([] if end else [U[i], nothing]), *([X[i + 1]] if extra.numel() else [])]
        free = np.full(extra.numel(), np.inf)
        # FATROP wants equations for what is given, not limits that are equal
        given = (low_x[i] == high_x[i]) & staged
        low += [np.where(given, -np.inf, low_x[i]), *([] if end else [low_u[i]]), -free]
        high += [np.where(given, np.inf, high_x[i]), *([] if end else [high_u[i]]), free]
        inputs = ca.SX.zeros(controls) if end else v
        where = state, inputs[: f.nu], inputs[f.nu :], after, phase.data[i], i
        if end:
            total += last(*where)
        else:
            total += price(*where)
            equation = step(*where)
            blocks = [states[i + 1] - after, equation] if staged else [equation]
            for b in blocks:
                g.append(b)
                low_g.append(np.zeros(b.numel()))
                high_g.append(np.zeros(b.numel()))
        if given.any():
            g.append(state[np.flatnonzero(given).tolist()])
            low_g.append(low_x[i][given])
            high_g.append(low_x[i][given])
        for c, value, (a, b) in limited:
            s = 0 if c.where != "path" else i
            if (c.where == "end" and not end) or s >= len(a) or (c.where == "path" and i == 0 and len(a) > n):
                continue
            if np.isfinite(a[s]).any() or np.isfinite(b[s]).any():
                g.append(value(*where))
                low_g.append(a[s])
                high_g.append(b[s])
    bounds = {
        name: np.concatenate(v) for name, v in (("lbx", low), ("ubx", high), ("lbg", low_g), ("ubg", high_g))
    }
    options: dict[str, Any] = {"print_time": False, "show_eval_warnings": False, f"{solver}.print_level": 0}
    if solver == "ipopt":
        options |= {"ipopt.sb": "yes", "ipopt.max_cpu_time": LONGEST, "ipopt.max_iter": 1000}
    else:
        equal = (bounds["lbg"] == bounds["ubg"]).tolist()
        options |= {"structure_detection": "auto", "equality": equal, "fatrop.max_iter": 1000}
    program = {"x": ca.vertcat(*z), "f": total, "g": ca.vertcat(*g)}
    solved = ca.nlpsol("solver", solver, program, options)
    guess = np.concatenate(z0)

    def solve() -> Answer:
        found = solved(x0=guess, **bounds)
        stats = solved.stats()
        word = stats.get("return_status") or stats.get("unified_return_status")
        word = word if isinstance(word, str) else f"not converged (status {word})"  # FATROP has numbers
        return Answer(float(found["f"]), int(stats["iter_count"]), bool(stats["success"]), word)

    return solve


def crocoddyl_arm(task: Task) -> Callable[[], Answer] | None:
    """FDDP on the 7-DOF arm, semi-implicit Euler, from the start held."""
    try:
        package = importlib.import_module("crocoddyl")
    except ImportError:
        return None
    pin = simulators.pinocchio()
    if pin is None:
        return None
    system = task.map.system
    assert system is not None
    model = simulators.PinocchioChain(vioc.System(*system.frames, *system.potentials, name=system.name)).model
    n, last = model.nv, model.njoints - 1
    tool = pin.Frame("tool", last, pin.SE3(np.eye(3), np.array([0.0, 0.0, TOOL])), pin.FrameType.OP_FRAME)
    frame = model.addFrame(tool)
    state = package.StateMultibody(model)
    actuation = package.ActuationModelFull(state)
    speeds = package.ActivationModelWeightedQuad(np.repeat([0.0, 1.0], n))

    def action(effort: float, speed: float, goal: float, dt: float) -> Any:
        costs = package.CostModelSum(state, n)
        rate = package.ResidualModelState(state, np.zeros(2 * n), n)
        costs.addCost("speed", package.CostModelResidual(state, speeds, rate), speed)
        if effort:
            control = package.ResidualModelControl(state, n)
            costs.addCost("effort", package.CostModelResidual(state, control), effort)
        if goal:
            reach = package.ResidualModelFrameTranslation(state, frame, np.array(arm_reaching.GOAL), n)
            costs.addCost("goal", package.CostModelResidual(state, reach), goal)
        dynamics = package.DifferentialActionModelFreeFwdDynamics(state, actuation, costs)
        return package.IntegratedActionModelEuler(dynamics, dt)

    start = np.concatenate([task.x0[:n], np.zeros(n)])
    running, terminal = action(1e-3, 1e-2, 0.0, task.map.dt), action(0.0, 10.0, 1e4, 0.0)
    problem = package.ShootingProblem(start, [running] * task.steps, terminal)
    problem.nthreads = 1  # as everything here; its own default is what it was built with

    def solve() -> Answer:
        solver = package.SolverFDDP(problem)
        done = solver.solve([start] * (task.steps + 1), [np.zeros(n)] * task.steps, 1000, False)
        return Answer(float(solver.cost), int(solver.iter), bool(done))

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
    problem.nthreads = 1  # as everything here; its own default is what it was built with
    line = list(np.linspace(start, np.zeros(2 * n), swing.steps + 1))
    inputs = [np.zeros(1)] * swing.steps

    def solve() -> Answer:
        solver = package.SolverFDDP(problem)
        done = solver.solve(line, inputs, 1000, False)
        return Answer(float(solver.cost), int(solver.iter), bool(done))

    return solve
