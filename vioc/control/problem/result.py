"""Results of optimizations, and the records of their iterations."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from html import escape
from typing import Any, NamedTuple

import numpy as np

from vioc.checks import as_count, as_positive, near_misses
from vioc.control.problem.limits import Ball, Violation
from vioc.control.problem.sizes import Sizes
from vioc.control.problem.status import Status
from vioc.control.regulators.lqr import Regulator, dlqr
from vioc.drawing import plots
from vioc.errors import ModelError, OptimizationError, StepError, trying
from vioc.maps.made.switched import SwitchedMap
from vioc.names import meaning
from vioc.progress import Progress
from vioc.runs.columns import quantities_html
from vioc.runs.given import AsTrajectory
from vioc.runs.trajectory import Trajectory

OPEN_LOOP = 1e-6  # distance of the rollout of the inputs from an iterate, over 1 + |x|, that is accepted
OWN = 1e-9  # distance of the end of an iterate's step from the map's step, over 1 + |x|, that is accepted
HEADER = (
    f"{'iter':>4}  {'method':<15}  {'shift':>7}  {'cost':>14}  {'Dg.zeta':>11}  {'step':>8}  {'trials':>6}"
    f"  {'gap':>8}"
)


class Iteration(NamedTuple):
    """Record of one iteration of an optimizer.

    Attributes
    ----------
    iteration : int
    method : str
        Method of the direction: ``"newton"``, ``"gauss-newton"``, ``"steepest"``; with prefix ``"ms "``
        for steps of symbolic multiple shooting; ``"blend"`` uses a fraction of the exact curvature.
    shift : float
        Shift of the Hessian's diagonal, in units of the inputs' mean weight; 0 without a shift. For
        Gauss-Newton steps of shooting, it is the damping of the inputs.
    cost : float
        Cost before the step.
    descent : float
        Dg(xi).zeta, negative; in multiple shooting the derivative of cost + penalty |r| along the step.
    step : float
        Step length; 0 if no step was taken.
    trials : int
        Trajectories, or curves, tried by the line search.
    gap : float
        Distance of a curve from a trajectory: norm of the residuals r of all steps' equations, in their
        units; for shooting, the largest magnitude of all defects and constraint residuals.
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
        """Short text about the iteration for the progress display."""
        return f"cost {self.cost:.6g}, Dg.zeta {self.descent:.1e}"


class Log:
    """Log of an optimization, which prints each iteration or passes it to a callable.

    Parameters
    ----------
    title, header : str
        Title of the progress display, header of the printed lines.
    monitor : bool, callable or None
        True prints one line per record; a callable gets each.
    """

    def __init__(self, title: str, header: str, monitor: Any):
        self.header, self.monitor = header, monitor
        self.records: list[Any] = []
        self.steps = 0  # steps taken
        self.progress = Progress(title)
        self._begun = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Wall-clock time since the start of the optimization, s."""
        return time.perf_counter() - self._begun

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

    def shown(self) -> contextlib.AbstractContextManager[Any]:
        """Return a context manager that shows the progress of the optimization.
        It shows nothing if each iteration prints a line.
        """
        return contextlib.nullcontext() if self.monitor is True else self.progress


def check_ending(tolerance: float, max_iterations: int) -> None:
    """Raise ValueError unless the tolerance is > 0 and `max_iterations` is >= 1."""
    as_positive(tolerance, "tolerance")
    as_count(max_iterations, "max_iterations")


class History(NamedTuple):
    """Iterations of an optimization, as one array for each field of `Iteration`."""

    iteration: np.ndarray
    method: np.ndarray
    shift: np.ndarray
    cost: np.ndarray
    descent: np.ndarray
    step: np.ndarray
    trials: np.ndarray
    gap: np.ndarray

    @staticmethod
    def of(records: list[Iteration]) -> History:
        columns = zip(*records, strict=True) if records else ((),) * len(History._fields)
        return History(*(np.array(c) for c in columns))

    def plot(self, *, ax: Any = None) -> Any:
        """Plot cost and predicted reduction over the iterations; return the axes."""
        return plots().plot_convergence(self, ax=ax)


class NoMultiplier(ModelError, KeyError):
    """Error raised if no multiplier has the requested name."""

    __str__ = Exception.__str__  # the method of KeyError adds quotes


class Multipliers(dict[str, Any]):
    """Multipliers by name; an unknown name raises an error that lists the known ones."""

    def __missing__(self, name: str) -> Any:
        with contextlib.suppress(ModelError):
            return self[meaning(name, tuple(self))]
        raise NoMultiplier(
            f"no multiplier {name!r}: equations and what has a limit have one; {near_misses(str(name), self)}"
        )


@dataclass(frozen=True)
class PhaseResult(AsTrajectory):
    """Result of one phase of a problem, with the phase's trajectory.
    Like a trajectory, it has states `x`, inputs `u` and times `t`, and functions that expect a trajectory
    accept it.

    Attributes
    ----------
    trajectory : Trajectory
    multipliers : dict of str to array
        See `Result`.
    phase : dmoc.Phase or None
        None for methods other than DMOC, and after pickling.
    defect : float
        See `Result`.
    obstacles : dict of str to (centre, radius, axes)
        Balls of the constraints made by `obstacle`, by name.
    """

    trajectory: Trajectory
    multipliers: Multipliers = field(default_factory=Multipliers, repr=False)
    phase: Any = None
    defect: float = np.nan
    obstacles: dict[str, Ball] = field(default_factory=dict, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "phase": None}


class Rollout(NamedTuple):
    """Simulation of the map with the inputs of an optimization result.

    Attributes
    ----------
    trajectory : Trajectory
    gap : float
        Largest difference between the states of the simulation and those of the result.
    cost : float or None
        Cost of the simulation by the problem's `Cost`; None without one, and for a result that was pickled.
    feedback : bool
        True if the inputs were applied with feedback.
    """

    trajectory: Trajectory
    gap: float
    cost: float | None
    feedback: bool


@dataclass(frozen=True)
class Result(AsTrajectory):
    """Result of an optimization by any method, with the optimized trajectory.
    Like a trajectory, it has states `x`, inputs `u` and times `t`, and functions that expect a trajectory
    accept it. For example, ``best["theta"]`` has the values of the quantity `theta` at the samples.

    Attributes
    ----------
    trajectory : Trajectory
        The rollout of its first state and inputs; see `open_loop_gap`. From `vioc.control.dmoc`, it is the
        solver's solution, a rollout up to `defect`; the method `rollout` returns an exact one. Several phases
        are joined on a `SwitchedMap`; ValueError if they are `apart`.
    phases : tuple of PhaseResult
        One phase, or the phases of a `dmoc.Problem`.
    cost : float
    status : Status
        ``"converged"``, or why not: see `Status`.
    message : str
        The verdict as text, with advice.
    iterations : int
        Steps taken.
    history : History
        Empty for FATROP.
    seconds : float
        Wall-clock time of the search; for DMOC within the solver.
    problem : vioc.control.Problem or dmoc.Problem
        The solved problem. ValueError for a result that was pickled, since pickling drops it.
    multipliers : dict of str to array
        Multipliers of limits, by the name of a constraint or a bound, over its samples: >= 0 at an upper
        limit, <= 0 at a lower one; minus the derivative of the optimal cost with respect to the limit. Names
        of conditions at ends are ``initial NAME`` and ``final NAME``; DMOC also has ``dynamics.STATE`` and
        ``h.CONSTRAINT`` of the step's equations. An unknown name raises a ModelError with the known ones.
        Each of several phases has its own. Impulses of the mechanism are `trajectory.multipliers`.
    violations : list of Violation
        Samples outside of their limits: name, k, t, value, limits; the worst first.
    margin : float
        Smallest distance to a limit over inequalities and samples, in units of the limits' scales (half a
        range; one-sided the larger of |limit| and the typical size of its quantity): > 0 if
        the trajectory is within, infinite without inequalities.
    gains : (N, nu, ndx)
        Gains of the projection operator at the trajectory, or of shooting's last step; for DMOC those of
        `stabilize` with weights of 1 in units of the typical sizes of states and inputs.
    open_loop_gap : float
        Largest difference between the last iterate and the rollout of its inputs. If it is above
        1e-6 of 1 + |x| (a strongly unstable system over a long horizon, where rounding grows), `trajectory`
        is the closed-loop iterate, as `message` says: follow it with `stabilize`, not open loop.
    defect : float
        Largest residual of a step's equations, in their units, after DMOC; nan for the other methods, in
        which the map computes the steps.
    slope : float
        Dg(xi).zeta <= 0, the derivative of the cost along the direction zeta of a Hessian without shift: that
        of the method, or the Gauss-Newton Hessian if the former gives no minimum. The projection method tests
        it for convergence; nan if none was computed.
    error : float
        Scaled KKT residual, which shooting tests for convergence; nan for the other methods.
    scale : float or None
        Factor of the cost in shooting, reused by a search from this result.
    curve : (X, U) or None
        Last states and inputs of a shooting search that did not converge; shooting continues from them if the
        result is its guess.
    apart : str
        Reason why several phases are not one trajectory: they have different states, a jump leaves states
        free, or a search failed and the phases' ends differ by more than 1e-6 of the state. Empty if none.
    stages : list of Stage
        Solutions of DMOC with contact, one for each smoothing.
    stats : dict
        Statistics of DMOC's solver; empty after pickling.
    """

    phases: tuple[PhaseResult, ...]
    cost: float
    status: Status
    message: str
    iterations: int
    history: History = field(repr=False)
    seconds: float
    stated: Callable[[], Any] | None = field(repr=False)  # returns the problem
    violations: list[Violation] = field(default_factory=list, repr=False)
    margin: float = np.inf
    own_gains: np.ndarray | None = field(default=None, repr=False)
    own_gap: float | None = field(default=None, repr=False)
    slope: float = np.nan
    error: float = np.nan
    scale: float | None = None
    curve: tuple[np.ndarray, np.ndarray] | None = field(default=None, repr=False)
    joined: Trajectory | None = field(default=None, repr=False)  # trajectory of several phases
    apart: str = field(default="", repr=False)
    stages: list[Any] = field(default_factory=list, repr=False)
    stats: dict[str, Any] = field(default_factory=dict, repr=False)
    raw: Any = field(default=None, repr=False)  # vectors of DMOC's program

    def only(self) -> PhaseResult:
        """Return the result of the only phase; raise ValueError if there are several."""
        if len(self.phases) != 1:
            raise ValueError(f"the result has {len(self.phases)} phases; ask one of them: result.phases[0]")
        return self.phases[0]

    @property
    def trajectory(self) -> Trajectory:  # type: ignore[override]
        if self.apart:
            raise ValueError(self.apart)
        return self.joined or self.only().trajectory

    @property
    def problem(self) -> Any:
        if self.stated is None:
            raise ValueError("problem: a result that was pickled has left it behind; solve again")
        return self.stated()

    @property
    def multipliers(self) -> Multipliers:
        return self.only().multipliers

    @property
    def obstacles(self) -> dict[str, Ball]:
        """Balls of the obstacle constraints by name, for films and the viewer.

        With several phases, a moving obstacle rests at its first position during the phases before its own.
        """
        found: dict[str, Ball] = {}
        before = 0
        for part in self.phases:
            for name, (centre, radius, axes) in part.obstacles.items():
                if before and centre.ndim == 2:
                    centre = np.concatenate([np.repeat(centre[:1], before, axis=0), centre])
                found[name] = centre, radius, axes
            before += len(part.trajectory)
        return found

    @property
    def gains(self) -> np.ndarray:
        if self.own_gains is not None:
            return self.own_gains
        return self._follower(None, Sizes.along(self._motion(None))).K

    @property
    def open_loop_gap(self) -> float:
        return open_loop(self.trajectory)[1] if self.own_gap is None else self.own_gap

    @property
    def duration(self) -> float:
        """Duration of all phases, s."""
        return sum(p.duration for p in self.phases)

    @property
    def defect(self) -> float:
        return max(p.defect for p in self.phases)

    @property
    def converged(self) -> bool:
        return self.status == Status.CONVERGED

    @property
    def feasible(self) -> bool:
        """True if the result violates no limits.
        Violations below the tolerance of the optimization method do not count.
        """
        return not self.violations

    def raise_for_status(self) -> Result:
        """Return this result, or raise `OptimizationError` unless it converged.

        The error has the result as ``result``.
        """
        if not self.converged:
            raise OptimizationError(self.message, self)
        return self

    def _motion(self, phase: int | None) -> Trajectory:
        return self.trajectory if phase is None else self.phases[phase].trajectory

    def stabilize(self, Q: Any, R: Any, Qf: Any = None, *, phase: int | None = None) -> Regulator:
        """Return a time-varying regulator about the optimized motion, or about one phase.

        The weights are those of `dlqr`, with Qf = Q by default. The map of the regulator is the
        trajectory's, with the step length of the result (`OneStepMap.with_dt`). At switches to phases
        that close contacts, the regulator accounts for the change of touch-down times
        (`derivatives.linearize_motion`).
        """
        run = self._motion(phase)
        regulator = dlqr(run.map, run, Q, R, Qf)
        assert isinstance(regulator, Regulator)
        return regulator

    def _follower(self, phase: int | None, sizes: Sizes) -> Regulator:
        """Return a regulator about the motion with weights of 1 in typical sizes."""
        return self.stabilize(np.diag(sizes.states**-2), np.diag(sizes.inputs**-2), phase=phase)

    def rollout(self, phase: int | None = None) -> Rollout:
        """Simulate the map from the first state with the optimized inputs.
        The whole motion is simulated or, if `phase` is given, only this phase.

        The inputs are applied open loop. If an unstable motion amplifies the solver's tolerance above 1e-6 of
        the state, they are applied with the feedback of `stabilize` with weights of 1 in units of typical
        sizes, which changes the inputs as little as the tolerance. If that feedback does not exist, as for a
        plan that is not a motion, the rollout is open loop. `vioc.control.optimize` from this result gives a
        rollout that is also stationary for the cost.

        Raises
        ------
        StepError
            If a step does not exist.
        """
        run = self._motion(phase)
        again = run.map.rollout(run.x[0], run.u, k0=run.k0, dt=run.step_lengths, warn=False)
        sizes = Sizes.along(run)
        feedback = sizes.apart(run.x, again.x) > OPEN_LOOP
        if feedback:
            try:
                regulator = self._follower(phase, sizes)
            except OptimizationError:
                feedback = False
            else:
                again = regulator.map.track(run.x[0], run.x, run.u, regulator.K, k0=run.k0)
        runs = again.map.parts_of(again) if isinstance(again.map, SwitchedMap) else [again]
        costs = [] if self.stated is None else self.problem.costs
        costs = [c for c in (costs if phase is None else costs[phase : phase + 1]) if c is not None]
        known = len(costs) == len(runs)
        total = sum(c.value(r) for c, r in zip(costs, runs, strict=True)) if known else None
        return Rollout(again, _gap(run, again), total, feedback)

    def refine(self, factor: int = 2, **options: Any) -> Result:
        """Solve the problem again with `factor` times as many steps, from this result.

        The duration does not change. `options` are arguments of `solve`: that of `dmoc.Problem` for a result
        of DMOC, and otherwise that of `vioc.control.Problem`.
        """
        finer: Result = self.problem.refine(self, factor, **options)
        return finer

    def sensitivity(self) -> Any:
        """Return derivatives of the optimum with respect to parameters and initial state.

        The result is a `dmoc.Sensitivity`, which uses the equations of the steps. DMOC therefore solves the
        problem again first if the result is that of another method.

        Raises
        ------
        OptimizationError
            If the result is not an optimum, or not a regular one.
        ValueError
            If DMOC does not support the problem, or the result was pickled.
        """
        self.raise_for_status()
        return self.problem.sensitivity(self)

    def products(self, phase: int | None = None) -> dict[str, np.ndarray]:
        """Return the products (N,) of gap and impulse, m N s, by name.
        There is an array for each contact and each joint limit. The gaps are those at the end of each step.
        """
        run = self._motion(phase)
        step = run.map.mechanism.relaxed()
        names = () if step is None else step.contacts
        return {n: run[f"gap.{n}"][1:] * run[f"force.{n}"] * run.step_lengths for n in names}

    def describe(self, phase: int | None = None) -> str:
        """Return a text with the verdict of the search.
        The text also tells how far the rollout of the inputs departs from the optimized motion.

        If the phases are `apart`, the text has the reason instead; `phase` selects one of them. For contacts,
        the text has the largest product of gap and impulse, and the smoothings.

        Examples
        --------
        >>> print(best.describe())
        """
        lines = [self.message]
        if phase is None and self.apart:
            return "\n".join([*lines, self.apart, *self._way()])
        run = self._motion(phase)
        try:
            again = self.rollout(phase)
        except StepError as error:
            lines.append(f"replay by the map: {error}")
        else:
            off = np.abs(run.map.difference(run.x, again.trajectory.x)).max(axis=0)
            how = "with feedback, open loop is unstable" if again.feedback else "of the inputs, open loop"
            worst = f", most in {run.map.space.error_names[int(off.argmax())]}" if off.max() > 0 else ""
            lines.append(f"replay by the map, {how}: {off.max():.1e} from the plan{worst}")
        if products := self.products(phase):
            name = max(products, key=lambda n: np.abs(products[n]).max())
            lines.append(f"gap x impulse: at most {np.abs(products[name]).max():.1e}, of {name}")
        return "\n".join([*lines, *self._way()])

    def _way(self) -> list[str]:
        way = ", ".join(f"{s.smoothing:.0e} ({s.iterations})" for s in self.stages)
        return [f"smoothings, m^2/s^2 (iterations): {way}"] if way else []

    def _repr_html_(self) -> str:
        if not self.apart:
            return super()._repr_html_()
        each = (quantities_html(p.trajectory, f"phases[{i}]") for i, p in enumerate(self.phases))
        return f"<p>{escape(repr(self))}</p><p>{escape(self.apart)}</p>{''.join(each)}"

    def __getstate__(self) -> dict[str, Any]:
        """Return the data to pickle, without the problem and its compiled functions."""
        return {**self.__dict__, "stated": None, "raw": None, "stats": {}}

    def __repr__(self) -> str:
        return f"Result({self.message}; {', '.join(f'{len(p.trajectory)} steps' for p in self.phases)})"


def _gap(run: Trajectory, other: Trajectory) -> float:
    return float(np.abs(run.map.difference(run.x, other.x)).max())


def finished(
    result: Result, interrupt: KeyboardInterrupt | None, monitor: Any, raise_on_failure: bool
) -> Result:
    """Return the result of a search, or raise its error if `raise_on_failure`.

    If the search was interrupted, the KeyboardInterrupt has the attribute ``result``.
    """
    if monitor is True:
        print(result.message)
    if result.status == Status.INTERRUPTED and raise_on_failure:
        stop = interrupt or KeyboardInterrupt(result.message)
        stop.result = result  # type: ignore[attr-defined]
        raise stop
    return result.raise_for_status() if raise_on_failure else result


def open_loop(run: Trajectory, sizes: Sizes | None = None) -> tuple[Trajectory, float, bool]:
    """Simulate the inputs of a motion without feedback, and compare the two motions.
    Return a trajectory, the distance of the two motions, and True if this distance is too large. The
    trajectory is then the given motion; otherwise it is the simulated one.

    The distance is compared with the typical `sizes` of states, by default those of the motion. Steps are
    reproducible to the bit, so the distance is usually 0. Recursions that compile the step again may round
    differently, and an unstable motion amplifies these differences.
    """
    f = run.map
    try:
        with trying():
            again = f.rollout(run.x[0], run.u, k0=run.k0, dt=run.step_lengths)
    except StepError:
        return run, float("inf"), True
    gap = float(np.abs(f.difference(run.x, again.x)).max())
    leaves = bool(gap) and not (sizes or Sizes.along(run)).apart(run.x, again.x) <= OPEN_LOOP
    return (run if leaves else again), gap, leaves


def off_branch(run: Trajectory, near: float = OWN) -> str:
    """Return a warning if a motion contains wrong steps, else "".

    The discrete equations of long steps have several roots. A step is wrong if it ends at another root than
    the step that the map computes: their difference, relative to 1 + |x| in units of sizes, is above `near`.
    """
    f = run.map
    try:
        with trying():
            ends = f.steps_at(run.x[:-1], run.u, run.k0, run.step_lengths, t=run.t[:-1]).x1
    except StepError as error:
        return str(error)
    off = np.abs(f.difference(run.x[1:], ends)).max(axis=1, initial=0)
    wrong = np.flatnonzero(~(Sizes.along(run).each_apart(run.x[1:], ends) <= near))
    if not wrong.size:
        return ""
    k = int(wrong[0])
    return (
        f"step {run.k0 + k} is too long for its motion, take a smaller dt: it is another root of the "
        f"equations than the map's step, which ends {off[k]:.1e} away"
    )


def judged(status: Status, run: Trajectory, gap: float, leaves: bool) -> tuple[Status, str]:
    """Return the status of a search after a comparison with the inputs' rollout.
    Return also a warning, which is empty if the rollout does not depart from the optimized motion.

    `gap` and `leaves` are results of `open_loop`: the distance of the optimized motion from the rollout, and
    True if this distance is too large. A motion that departs from the rollout of its inputs is still
    converged if its steps are those of the map.
    """
    if not leaves:
        return status, ""
    if wrong := off_branch(run):
        return (Status.ACCEPTABLE if status is Status.CONVERGED else status), wrong
    how = f"leaves it by {gap:.1e}" if gap < np.inf else "comes to a step that does not exist"
    return status, f"the motion is unstable: the rollout of its inputs alone {how}; use `stabilize`"
