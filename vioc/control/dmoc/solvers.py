"""Common interface of nonlinear programming solvers.
The interface returns statuses and handles Ctrl-C.
"""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import casadi as ca
import numpy as np

from vioc.control.dmoc.scaling import Scaled, Scales
from vioc.control.dmoc.transcription import Transcription
from vioc.control.problem.result import HEADER, Iteration, Log
from vioc.control.problem.status import Status

SOLVERS = ("ipopt", "fatrop", "sqp")
PLUGINS = {"ipopt": "ipopt", "fatrop": "fatrop", "sqp": "sqpmethod"}

STATUS = {  # return statuses of IPOPT and CasADi
    "Solve_Succeeded": Status.CONVERGED,
    "Solved_To_Acceptable_Level": Status.ACCEPTABLE,
    "Feasible_Point_Found": Status.CONVERGED,
    "Infeasible_Problem_Detected": Status.INFEASIBLE,
    "Maximum_Iterations_Exceeded": Status.MAX_ITERATIONS,
    "Maximum_CpuTime_Exceeded": Status.MAX_TIME,
    "Maximum_WallTime_Exceeded": Status.MAX_TIME,
    "Invalid_Number_Detected": Status.NOT_FINITE,
    "User_Requested_Stop": Status.INTERRUPTED,
    "Restoration_Failed": Status.NO_PROGRESS,
    "Error_In_Step_Computation": Status.NO_PROGRESS,
    "Search_Direction_Becomes_Too_Small": Status.NO_PROGRESS,
    "Diverging_Iterates": Status.DIVERGING,
    "Not_Enough_Degrees_Of_Freedom": Status.OVERDETERMINED,
    "SOLVER_RET_SUCCESS": Status.CONVERGED,
    "SOLVER_RET_LIMITED": Status.MAX_ITERATIONS,
    "SOLVER_RET_INFEASIBLE": Status.INFEASIBLE,
    "SOLVER_RET_NAN": Status.NOT_FINITE,
}


@dataclass
class SolverOutcome:
    """Outcome of a nonlinear programming solver.

    Attributes
    ----------
    w : (size,)
        The solution, or the best iterate.
    mu : (rows,)
        Multipliers of the constraints.
    status : Status
    iterations : int
    seconds : float
    stats : dict
        Statistics of the solver.
    """

    w: np.ndarray
    mu: np.ndarray
    status: Status
    iterations: int
    seconds: float
    stats: dict[str, Any] = field(repr=False)

    def behind(self, first: SolverOutcome) -> SolverOutcome:
        """Return this outcome if the solver converged, else the outcome `first`.
        `first` is the outcome of an earlier solve. Iterations and seconds of both solves are summed.
        """
        best = self if self.status is Status.CONVERGED else first
        totals = self.iterations + first.iterations, self.seconds + first.seconds
        return replace(best, iterations=totals[0], seconds=totals[1])


class Watch(ca.Callback):
    """Solver callback that logs iterates, keeps the best one, and stops on Ctrl-C."""

    def __init__(self, t: Transcription, program: Scaled, tolerance: float, name: str):
        ca.Callback.__init__(self)
        self.name = name
        self._sizes = t.program.size, t.program.rows, program.given
        self._limits = t.row_lower, t.row_upper
        self._tolerance = tolerance
        self.reset(Log("dmoc", HEADER, None), Scales.ones(t))
        self.construct("watch", {})

    def get_n_in(self) -> int:
        return ca.nlpsol_n_out()

    def get_n_out(self) -> int:
        return 1

    def get_name_in(self, i: int) -> str:
        return ca.nlpsol_out(i)

    def get_sparsity_in(self, i: int) -> ca.Sparsity:
        n, m, p = self._sizes
        sizes = {"x": n, "lam_x": n, "f": 1, "g": m, "lam_g": m, "lam_p": p}
        return ca.Sparsity.dense(sizes[ca.nlpsol_out(i)], 1)

    def reset(self, log: Log, scales: Scales) -> None:
        self.log, self.stop, self._scales = log, False, scales
        self.error: BaseException | None = None
        self.best: tuple[tuple[float, float], np.ndarray, np.ndarray] | None = None

    def eval(self, arg: list[ca.DM]) -> list[int]:
        named = dict(zip(map(ca.nlpsol_out, range(len(arg))), arg, strict=True))
        g, cost = np.asarray(named["g"]).ravel(), float(named["f"]) * self._scales.cost
        low, high = (side / self._scales.rows for side in self._limits)
        amount = float(np.maximum(np.maximum(low - g, g - high), 0.0).max(initial=0.0))
        rank = (amount, 0.0) if amount > self._tolerance else (0.0, cost)
        if np.isfinite([amount, cost]).all() and (self.best is None or rank < self.best[0]):
            x, y = (np.asarray(named[n]).ravel() for n in ("x", "lam_g"))
            self.best = rank, *self._scales.back(x, y)
        try:
            known = len(self.log.records)
            self.log(Iteration(known, self.name, 0.0, cost, np.nan, 1.0 * (known > 0), 1, amount))
        except BaseException as error:  # the solver would replace it by another exception
            self.stop, self.error = True, error
        return [int(self.stop)]


def _in_units_of_the_cost(stats: dict[str, Any], of_cost: float) -> dict[str, Any]:
    """Return a solver's statistics with its costs multiplied by their unit."""
    each = stats.get("iterations") or {}
    if "obj" in each:
        stats = {**stats, "iterations": {**each, "obj": [of_cost * value for value in each["obj"]]}}
    return stats


@contextlib.contextmanager
def _interruptible(watch: Watch) -> Iterator[None]:
    """Context in which the first Ctrl-C ends a solve after its current iteration.
    A second Ctrl-C interrupts at once.
    """
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or before is signal.SIG_IGN:
        yield
        return

    def handler(number: int, frame: Any) -> None:
        if watch.stop and callable(before):
            before(number, frame)
        watch.stop = True

    signal.signal(signal.SIGINT, handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


class Solver:
    """Nonlinear programming solver of one program, for repeated solves."""

    def __init__(
        self, t: Transcription, name: str, tolerance: float, max_iterations: int, options: Mapping[str, Any]
    ):
        self.transcription = t
        self.name = name
        program = Scaled(t.program)
        self.watch = Watch(t, program, max(tolerance, 1e-8), name)
        build: Callable[..., dict[str, Any]] = {"ipopt": _ipopt, "fatrop": _fatrop, "sqp": _sqp}[name]
        settings = build(t, program, tolerance, max_iterations)
        settings["inputs_check"] = False  # limits are checked elsewhere; this check writes to stderr
        if name != "fatrop":
            settings["iteration_callback"] = self.watch
        settings.update(options)
        if "limited-memory" in (
            settings.get(n) for n in ("ipopt.hessian_approximation", "hessian_approximation")
        ):
            settings.pop("hess_lag")
        self._solve = ca.nlpsol("dmoc", PLUGINS[name], program.nlp, settings)

    def __call__(
        self,
        w: np.ndarray,
        p: np.ndarray,
        limits: tuple[np.ndarray, np.ndarray],
        mu: np.ndarray | None,
        nu: np.ndarray | None,
        log: Log,
        scales: Scales,
    ) -> SolverOutcome:
        """Solve the program from a guess w within limits; return the outcome.

        Multipliers (mu, nu) make a warm start. All arguments are in the units of the program; the solver
        uses those of `scales`.
        """
        t, watch = self.transcription, self.watch
        watch.reset(log, scales)
        of_w, of_g, of_f = scales
        args = dict(x0=w / of_w, p=Scaled.values(p, scales), lbx=limits[0] / of_w, ubx=limits[1] / of_w)
        args |= dict(lbg=t.row_lower / of_g, ubg=t.row_upper / of_g)
        if mu is not None and nu is not None:
            args |= dict(lam_g0=mu * of_g / of_f, lam_x0=nu * of_w / of_f)
        before = time.perf_counter()
        with _interruptible(watch), log.shown():
            solution = self._solve(**args)
        seconds = time.perf_counter() - before
        if watch.error is not None and not isinstance(watch.error, KeyboardInterrupt):
            raise watch.error
        stats = _in_units_of_the_cost(self._solve.stats(), of_f)
        status = self._status(stats)
        w, mu = scales.back(*(np.asarray(solution[n]).ravel() for n in ("x", "lam_g")))
        if status != Status.CONVERGED and watch.best is not None:
            _, w, mu = watch.best
        iterations = int(stats.get("iter_count", log.steps))
        return SolverOutcome(w, mu, status, iterations, seconds, stats)

    def _status(self, stats: dict[str, Any]) -> Status:
        if self.watch.stop:
            return Status.INTERRUPTED
        if stats.get("success"):
            acceptable = stats.get("return_status") == "Solved_To_Acceptable_Level"
            return Status.ACCEPTABLE if acceptable else Status.CONVERGED
        for key in ("return_status", "unified_return_status"):
            status = STATUS.get(str(stats.get(key)))
            if status not in (None, Status.CONVERGED):
                return status
        return Status.FAILED


def _ipopt(t: Transcription, program: Scaled, tolerance: float, max_iterations: int) -> dict[str, Any]:
    return {
        "print_time": False,
        "show_eval_warnings": False,
        "ipopt.print_level": 0,
        "ipopt.sb": "yes",
        "ipopt.tol": tolerance,
        "ipopt.max_iter": max_iterations,
        "ipopt.bound_relax_factor": 0.0,  # limits hold exactly, not up to 1e-8
        "grad_f": program.grad_f,
        "jac_g": program.jac_g,
        "hess_lag": program.hess_lag,
    }


def _fatrop(t: Transcription, program: Scaled, tolerance: float, max_iterations: int) -> dict[str, Any]:
    layout, phase = t.layouts[0], t.phases[0]
    n = phase.steps
    counts = np.zeros(n + 1, int)
    for block in t.blocks:
        if block.stage:
            np.add.at(counts, block.samples, block.rows)
    return {
        "expand": True,
        "print_time": False,
        "show_eval_warnings": False,
        "structure_detection": "manual",
        "N": n,
        "nx": [layout.states] * (n + 1),
        "nu": [layout.controls] * n + [layout.last],
        "ng": counts.tolist(),
        "fatrop.print_level": 0,
        "fatrop.tol": tolerance,
        "fatrop.max_iter": max_iterations,
    }


def _sqp(t: Transcription, program: Scaled, tolerance: float, max_iterations: int) -> dict[str, Any]:
    w, p, mu, sigma = program.x, program.q, ca.MX.sym("mu", t.program.rows), ca.MX.sym("sigma")
    jac_fg = ca.Function("jac_fg", [w, p], [*program.grad_f(w, p), *program.jac_g(w, p)])
    hessian = ca.triu2symm(program.hess_lag(w, p, sigma, mu))
    return {
        "jac_fg": jac_fg,
        "hess_lag": ca.Function("hess_lag", [w, p, sigma, mu], [hessian]),
        "print_time": False,
        "show_eval_warnings": False,
        "print_header": False,
        "print_iteration": False,
        "print_status": False,
        "error_on_fail": False,
        "qpsol": "qrqp",
        "qpsol_options": {"print_iter": False, "print_header": False, "error_on_fail": False},
        "tol_pr": tolerance,
        "tol_du": tolerance,
        "max_iter": max_iterations,
    }
