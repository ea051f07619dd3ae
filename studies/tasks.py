"""A problem of optimal control with a given start, and what becomes of it: solved in limited time, judged."""

from __future__ import annotations

import signal
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

import vioc
from vioc import OneStepMap
from vioc.control import Cost, Kkt, Problem, kkt
from vioc.errors import OptimizationError
from vioc.runs.given import inputs_of

LONGEST = 60.0  # s of processor time of one solve
AGAIN = 5.0  # s behind which it is stopped again, where a solver took the stop for its own
SAME = 1e-9  # relative to 1 + |x|: rollouts that differ by less are one motion


class Task(NamedTuple):
    """An optimal-control problem with a given start.

    Attributes
    ----------
    map : OneStepMap
    cost : Cost
    guess : (X, U), Trajectory or None
        None is the start held.
    x0 : (nx,)
    steps : int
    limits : dict
        `bounds`, `constraints` and `final` of `vioc.control.optimize`.
    options : dict
        Of `vioc.control.Problem.solve`.
    """

    map: OneStepMap
    cost: Cost
    guess: Any
    x0: np.ndarray
    steps: int
    limits: dict[str, Any] = {}  # noqa: RUF012 - not changed
    options: dict[str, Any] = {}  # noqa: RUF012

    @property
    def curve(self) -> tuple[np.ndarray, np.ndarray]:
        """The guess as states and inputs."""
        f, guess = self.map, self.guess
        if guess is None:
            return np.tile(self.x0, (self.steps + 1, 1)), inputs_of(f, None, self.steps, self.x0)
        if isinstance(guess, vioc.Trajectory):
            return guess.x, guess.u
        X, U = guess
        return X, inputs_of(f, U, self.steps, self.x0)


class Solved(NamedTuple):
    """What became of a task.

    Attributes
    ----------
    seconds : float
        Processor time.
    verdict : str
        ``"converged"``, another status, or why there is no answer (``"ValueError: ..."``).
    cost : float
    iterations : int
    kkt : Kkt or None
        Of what converged.
    departs : bool
        Whether the rollout of what converged is another motion than the result says.
    """

    seconds: float
    verdict: str
    cost: float = np.nan
    iterations: int = 0
    kkt: Kkt | None = None
    departs: bool = False

    @property
    def converged(self) -> bool:
        return self.verdict == "converged"

    def __str__(self) -> str:
        if not self.iterations:
            return self.verdict
        checked = "" if self.kkt is None else f", KKT {self.kkt.residual:.0e}"
        return f"{self.verdict}, {self.iterations} iterations, cost {self.cost:.8g}{checked}"


class TooLong(BaseException):
    """The time that one solve is given is over; no `except Exception` on the way catches it."""


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Raise `TooLong` after that much processor time; where the system has no such timer it may run on."""
    if not hasattr(signal, "setitimer"):
        yield
        return

    over = False

    def stop(number: int, frame: Any) -> None:
        nonlocal over
        over = True
        raise TooLong

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds, AGAIN)
    try:
        yield
    except Exception as error:  # compiled code in between may have turned the stop into an error of its own
        if over:
            raise TooLong from error
        raise
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


def stated(task: Task) -> Callable[..., Any]:
    """Solves this task, and others of its map, cost and limits, by the optimizer of stages: what is built is
    built once.
    """
    problem = Problem(task.map, task.cost, task.steps, **task.limits)

    def solve(task: Task, **options: Any) -> Any:
        told = {"max_iterations": 300, "raise_on_failure": False, **task.options, **options}
        return problem.solve(task.x0, task.guess, **told)

    return solve


def optimum(task: Task, **options: Any) -> Any:
    """The task as vioc's optimizer of stages is told it, once."""
    return stated(task)(task, **options)


def judged(task: Task, solve: Callable[[Task], Any], longest: float = LONGEST) -> Solved:
    """The task solved once, and checked where it is said to be."""
    before = time.process_time()
    try:
        with at_most(longest), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = solve(task)
    except TooLong:
        return Solved(time.process_time() - before, f"not done in {longest:g} s")
    except (OptimizationError, vioc.StepError, np.linalg.LinAlgError, ArithmeticError, RuntimeError) as error:
        return Solved(time.process_time() - before, f"{type(error).__name__}: {str(error)[:60]}")
    seconds = time.process_time() - before
    verdict = Solved(seconds, str(found.status), found.cost, found.iterations)
    if not verdict.converged:
        return verdict
    multipliers = getattr(found, "multipliers", None)
    checked = kkt(task.map, task.cost, found.trajectory, multipliers, **task.limits)
    return verdict._replace(kkt=checked, departs=departs(found))


def departs(found: Any) -> bool:
    """True if the rollout of a result's inputs leaves its trajectory farther than `open_loop_gap` says."""
    run, said = found.trajectory, getattr(found, "open_loop_gap", 0.0)
    f = run.map
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            again = f.rollout(run.x[0], run.u, k0=run.k0, dt=run.step_lengths)
    except vioc.StepError:
        return said < np.inf
    return bool(np.abs(f.difference(run.x, again.x)).max() > said + SAME * (1 + np.abs(run.x).max()))
