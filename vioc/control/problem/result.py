"""What an optimization returns, and what it prints while it runs."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

import numpy as np

from vioc.control.problem.limits import Ball, Violation
from vioc.control.problem.status import Status
from vioc.control.regulators.lqr import Regulator, dlqr
from vioc.drawing import plots
from vioc.errors import OptimizationError, StepError, trying
from vioc.maps.given import AsTrajectory
from vioc.maps.trajectory import Trajectory
from vioc.progress import Progress

OPEN_LOOP = 1e-6  # relative to 1 + |x|: how far the rollout of the inputs may be from an iterate
OWN = 1e-9  # relative to 1 + |x|: how far a step of an iterate may end from where the map's step ends
HEADER = (
    f"{'iter':>4}  {'method':<15}  {'shift':>7}  {'cost':>14}  {'Dg.zeta':>11}  {'step':>8}  {'trials':>6}"
    f"  {'gap':>8}"
)


class Record(NamedTuple):
    """One iteration.

    Attributes
    ----------
    iteration : int
    method : str
        Whose direction was used: ``"newton"``, ``"gauss-newton"``, ``"steepest"``; with ``"ms "`` before
        it for steps of multiple shooting in symbols; ``"blend"`` keeps a part of the curvature.
    shift : float
        Of the Hessian, in units of the inputs' mean weight; 0 is Newton's own. Of shooting: the damping of
        Gauss-Newton's inputs.
    cost : float
        Before the step.
    descent : float
        Dg(xi).zeta, negative; in multiple shooting the derivative of cost + penalty |r| along the step.
    step : float
        Step length taken; 0 where none was.
    trials : int
        Trajectories, or curves, tried by the line search.
    gap : float
        How far a curve is from a trajectory, |r| in the units of the map's residual; of shooting the most
        that gaps, equations and limits leave.
    """

    iteration: int
    method: str
    shift: float
    cost: float
    descent: float
    step: float
    trials: int
    gap: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.iteration:>4}  {self.method:<15}  {self.shift:>7.1g}  {self.cost:>14.8g}  "
            f"{self.descent:>11.3e}  {self.step:>8.3g}  {self.trials:>6}  {self.gap:>8.1e}"
        )

    @property
    def note(self) -> str:
        """What progress tells of it."""
        return f"cost {self.cost:.6g}, Dg.zeta {self.descent:.1e}"


class Log:
    """The records of an optimization, shown to whoever asked for it.

    Parameters
    ----------
    title, header : str
        Of the progress, and of the lines that are printed.
    monitor : bool, callable or None
        True prints one line per record; a callable gets each.
    """

    def __init__(self, title: str, header: str, monitor: Any):
        self.header, self.monitor = header, monitor
        self.records: list[Any] = []
        self.steps = 0  # taken
        self.progress = Progress(title)

    def __call__(self, record: Any) -> None:
        if self.monitor is True and not self.records:
            print(self.header)
        self.records.append(record)
        self.steps += getattr(record, "step", 1) > 0
        self.progress.to(len(self.records), record.note)
        if self.monitor is True:
            print(record)
        elif self.monitor:
            self.monitor(record)

    def shown(self) -> AbstractContextManager[Any]:
        """While the work is done: its progress, where no lines are printed."""
        return nullcontext() if self.monitor is True else self.progress


def check_ending(tolerance: float, max_iterations: int) -> None:
    """ValueError unless both can end a search."""
    if not tolerance > 0 or max_iterations < 1:
        got = f"{tolerance} and {max_iterations}"
        raise ValueError(f"expected tolerance > 0 and max_iterations >= 1, got {got}")


class History(NamedTuple):
    """`Record`'s columns over the iterations; arrays of one length."""

    iteration: np.ndarray
    method: np.ndarray
    shift: np.ndarray
    cost: np.ndarray
    descent: np.ndarray
    step: np.ndarray
    trials: np.ndarray
    gap: np.ndarray

    @staticmethod
    def of(records: list[Record]) -> History:
        columns = zip(*records, strict=True) if records else ((),) * len(History._fields)
        return History(*(np.array(c) for c in columns))

    def plot(self, *, ax: Any = None) -> Any:
        """Plot cost and promised decrease over the iterations; returns the axes."""
        return plots().plot_convergence(self, ax=ax)


Self = TypeVar("Self", bound="Outcome")


class Outcome(AsTrajectory):
    """What any optimization returns: a trajectory with a verdict, see `Status`."""

    status: Status
    message: str

    @property
    def converged(self) -> bool:
        return self.status == Status.CONVERGED

    def raise_for_status(self: Self) -> Self:
        """This result, or `OptimizationError` (with it as ``result``) unless it converged."""
        if not self.converged:
            raise OptimizationError(self.message, self)
        return self


def finished(result: Self, interrupt: KeyboardInterrupt | None, monitor: Any, raise_on_failure: bool) -> Self:
    """The result, or the error that it is; an interrupt takes it along."""
    if monitor is True:
        print(result.message)
    if result.status == Status.INTERRUPTED and raise_on_failure:
        stop = interrupt or KeyboardInterrupt(result.message)
        stop.result = result  # type: ignore[attr-defined]
        raise stop
    return result.raise_for_status() if raise_on_failure else result


def open_loop(run: Trajectory) -> tuple[Trajectory, float]:
    """The rollout of an iterate's inputs where rounding does not separate the two, and their gap.

    A step is the same to the bit whoever takes it, so the gap is usually 0; recursions that compile it once
    more may round otherwise, which an unstable motion magnifies.
    """
    f = run.map
    try:
        with trying():
            again = f.rollout(run.x[0], run.u, k0=run.k0, dt=run.step_lengths)
    except StepError:
        return run, float("inf")
    gap = float(np.abs(f.difference(run.x, again.x)).max())
    return (again if gap <= OPEN_LOOP * (1 + np.abs(run.x).max()) else run), gap


def off_branch(run: Trajectory, near: float = OWN) -> str:
    """Which step of a motion is not the map's own step; empty where all are, to `near` relative to 1 + |x|.

    Equations of long steps have several roots, and only one of them is the step.
    """
    f = run.map
    try:
        with trying():
            ends = f.steps_at(run.x[:-1], run.u, run.k0, run.step_lengths, t=run.t[:-1]).x1
    except StepError as error:
        return str(error)
    off = np.abs(f.difference(run.x[1:], ends)).max(axis=1, initial=0)
    wrong = np.flatnonzero(~(off <= near * (1 + np.abs(run.x).max(initial=0))))
    if not wrong.size:
        return ""
    k = int(wrong[0])
    return (
        f"step {run.k0 + k} is too long for its motion, take a smaller dt: it is another root of the "
        f"equations than the map's step, which ends {off[k]:.1e} away"
    )


def judged(status: Status, run: Trajectory, gap: float) -> tuple[Status, str]:
    """The status of a search that ended with a run of that `open_loop` gap, and what is to be said of it.

    A motion that grows away from the rollout of its inputs has converged all the same, if its steps are the
    map's.
    """
    if gap <= OPEN_LOOP * (1 + np.abs(run.x).max()):
        return status, ""
    if wrong := off_branch(run):
        return (Status.ACCEPTABLE if status is Status.CONVERGED else status), wrong
    leaves = f"leaves it by {gap:.1e}" if gap < np.inf else "comes to a step that does not exist"
    return status, f"the motion is unstable: the rollout of its inputs alone {leaves}; use `stabilize`"


@dataclass(frozen=True)
class Result(Outcome):
    """An optimized trajectory; reads like it, ``best["theta"]``.

    Attributes
    ----------
    trajectory : Trajectory
        The rollout of its own x_0 and inputs; see `open_loop_gap`.
    cost : float
    status : Status
        ``"converged"``, or why not: see `Status`.
    message : str
        The verdict in words, with what to try.
    iterations : int
        Steps taken.
    history : History
    gains : (N, nu, ndx)
        Of the projection operator at the trajectory.
    open_loop_gap : float
        Largest difference between the optimizer's closed-loop iterate and the rollout of its inputs.
        If it is above 1e-6 of 1 + |x| (a strongly unstable system over a long horizon, where rounding grows),
        `trajectory` is the closed-loop iterate, as `message` says: follow it with `stabilize`, not open loop.
    slope : float
        Dg(xi).zeta there, <= 0, for the zeta of a Hessian without any shift: the method's own, or where that
        has no minimum Gauss-Newton's. What "converged" is judged by; nan where none was computed.
    multipliers : dict of str to array
        Of limits, by the name of a constraint over its samples: >= 0 at an upper limit, <= 0 at a lower one;
        minus the derivative of the optimal cost by the limit, as `vioc.control.dmoc` reports it. Shooting and
        DMOC have those of values that `initial` gives to states, too: ``initial NAME``.
    violations : list of Violation
        Samples outside of their limits: name, k, t, value, limits; the worst first.
    margin : float
        Least distance from a limit over inequalities and samples, in units of the limits' scales (half a
        range, or the larger of |limit| and the typical size of its quantity where it is one-sided): > 0 where
        the trajectory is within, infinite without inequalities.
    error : float
        What the conditions of optimality leave, scaled, by which shooting judges; nan of the other methods.
    scale : float or None
        What shooting multiplied the cost with; a search from this result does so too.
    curve : (X, U) or None
        States and inputs where shooting ended before they were a trajectory; it goes on from there where the
        result is its guess.
    obstacles : dict of str to (centre, radius, axes)
        What `obstacle` made of the constraints, by name; films and the viewer draw them.
    """

    trajectory: Trajectory
    cost: float
    status: Status
    message: str
    iterations: int
    history: History = field(repr=False)
    gains: np.ndarray = field(repr=False)
    open_loop_gap: float
    slope: float
    multipliers: dict[str, np.ndarray] = field(default_factory=dict, repr=False, kw_only=True)
    violations: list[Violation] = field(default_factory=list, repr=False, kw_only=True)
    margin: float = field(default=np.inf, kw_only=True)
    error: float = field(default=np.nan, kw_only=True)
    scale: float | None = field(default=None, kw_only=True)
    curve: tuple[np.ndarray, np.ndarray] | None = field(default=None, repr=False, kw_only=True)
    obstacles: dict[str, Ball] = field(default_factory=dict, repr=False, kw_only=True)

    @property
    def feasible(self) -> bool:
        """Whether no sample is outside of its limits (by more than the method's tolerance)."""
        return not self.violations

    def stabilize(self, Q: Any, R: Any, Qf: Any = None) -> Regulator:
        """The time-varying regulator about the trajectory; weights as in `dlqr`, Qf = Q unless given."""
        regulator = dlqr(self.trajectory.map, self.trajectory, Q, R, Qf)
        assert isinstance(regulator, Regulator)
        return regulator

    def __repr__(self) -> str:
        return f"Result({self.message}; {len(self.trajectory)} steps)"
