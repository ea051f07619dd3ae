"""What a solve returns: trajectories, multipliers by name, and what is violated where."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from vioc.control.dmoc import eliminated
from vioc.control.dmoc.dependence import dependent
from vioc.control.dmoc.homotopy import Stage, reached
from vioc.control.dmoc.named import Duals, Raw, defect, duals, violations
from vioc.control.dmoc.phase import Phase, leap
from vioc.control.dmoc.sensitivity import Sensitivity, sensitivity
from vioc.control.dmoc.standing import too_close
from vioc.control.problem.limits import Ball, Violation, obstacles_among
from vioc.control.problem.result import OPEN_LOOP, History, Outcome, off_branch
from vioc.control.problem.status import Status, verdict
from vioc.control.regulators.lqr import Regulator, dlqr
from vioc.errors import OptimizationError, StepError
from vioc.maps.columns import quantities_html
from vioc.maps.given import AsTrajectory
from vioc.maps.joining import join
from vioc.maps.switched import SwitchedMap
from vioc.maps.trajectory import Trajectory

if TYPE_CHECKING:
    from vioc.control.dmoc.problem import Problem
    from vioc.control.dmoc.solvers import Found


MEET = 1e-6  # relative to 1 + |x|: phases that end and begin nearer than this are one motion
SAME = 1e-7  # relative to 1 + |x|: steps that end so near each other are one root, to IPOPT's tolerance


class Rollout(NamedTuple):
    """A solution as a rollout of its map.

    Attributes
    ----------
    trajectory : Trajectory
    gap : float
        Largest difference of its states from the solution's.
    cost : float or None
        By the phase's `Cost`; None without one.
    feedback : bool
        Whether the inputs were applied with feedback.
    """

    trajectory: Trajectory
    gap: float
    cost: float | None
    feedback: bool


class _Motion(AsTrajectory):
    @property
    def multipliers(self) -> np.ndarray:
        """Constraint impulses of the mechanism (N, nm); those of the optimum are `duals`."""
        return self.trajectory.multipliers


@dataclass(frozen=True)
class PhaseSolution(_Motion):
    """One phase of a solution; reads like its trajectory.

    Attributes
    ----------
    phase : Phase
        None in a solution that was pickled.
    trajectory : Trajectory
        The samples as the solver found them, a rollout of the map up to `defect`.
    duals : dict of str to array
        Multipliers by the name of a constraint, a bound or an equation, over its samples: >= 0 at an upper
        limit, <= 0 at a lower one; minus the derivative of the optimal cost by the limit. Conditions at ends
        are ``initial NAME`` and ``final NAME``; ``dynamics.STATE`` and ``h.CONSTRAINT`` are those of a
        step's equations. An unknown name raises a ModelError with those known.
    defect : float
        Largest residual of the step's equations, in their units.
    """

    phase: Phase
    trajectory: Trajectory
    duals: Duals = field(repr=False)
    defect: float

    @property
    def obstacles(self) -> dict[str, Ball]:
        """What `obstacle` made of its constraints, by name; none in a solution that was pickled."""
        return {} if self.phase is None else obstacles_among(self.phase.constraints)


@dataclass(frozen=True)
class Solution(_Motion, Outcome):
    """The outcome of `Problem.solve`; with one phase it reads like its trajectory, ``best["theta"]``.

    Attributes
    ----------
    problem : Problem
    phases : tuple of PhaseSolution
    cost : float
    status : Status
        ``"converged"``, ``"acceptable"``, ``"infeasible"``, ``"max_iterations"``, ``"max_time"``,
        ``"not_finite"``, ``"interrupted"``, ``"no_progress"``, ``"diverging"``, ``"overdetermined"``,
        ``"failed"``.
    message : str
        The verdict in words, with what to try.
    iterations : int
    history : History
        Empty of FATROP's.
    seconds : float
        Wall-clock time within the solver.
    violations : list of Violation
        The worst first; empty for a solution.
    stats : dict
        The solver's own.
    raw : Raw or None
        The vectors of the program; None in a solution that was pickled.
    joined : Trajectory or None
        All phases one behind the other, of a `SwitchedMap`; None of one phase, and where they are `apart`.
    apart : str
        Why several phases are no one trajectory: other states, a jump that leaves some free, or ends of an
        unsuccessful search that do not meet within 1e-6 of the state. Empty where they are.
    stages : list of Stage
        Of maps with contact: the smoothings on the way to their own.
    """

    problem: Problem = field(repr=False)
    phases: tuple[PhaseSolution, ...]
    cost: float
    status: Status
    message: str
    iterations: int
    history: History = field(repr=False)
    seconds: float
    violations: list[Violation] = field(repr=False)
    stats: dict[str, Any] = field(repr=False)
    raw: Any = field(repr=False, default=None)
    joined: Trajectory | None = field(repr=False, default=None)
    apart: str = field(repr=False, default="")
    stages: list[Stage] = field(repr=False, default_factory=list)

    def only(self) -> PhaseSolution:
        """The only phase. ValueError where there are several."""
        if len(self.phases) != 1:
            raise ValueError(
                f"the solution has {len(self.phases)} phases; ask one of them: solution.phases[0]"
            )
        return self.phases[0]

    @property
    def trajectory(self) -> Trajectory:  # type: ignore[override]
        """Of all phases, one behind the other.

        Raises
        ------
        ValueError
            Where they are `apart`.
        """
        if self.apart:
            raise ValueError(self.apart)
        return self.joined or self.only().trajectory

    @property
    def duals(self) -> Duals:
        """Of the only phase, see `PhaseSolution`."""
        return self.only().duals

    @property
    def obstacles(self) -> dict[str, Ball]:
        """Of all phases, see `PhaseSolution`, where they are one motion; films and the viewer draw them."""
        found: dict[str, Ball] = {}
        before = 0
        for part in self.phases:
            if part.phase is not None:
                found |= obstacles_among(part.phase.constraints, before)
            before += len(part.trajectory)
        return found

    @property
    def duration(self) -> float:
        """Of all phases, s."""
        return sum(p.duration for p in self.phases)

    @property
    def defect(self) -> float:
        """Largest residual of a step's equations in any phase."""
        return max(p.defect for p in self.phases)

    def rollout(self, phase: int | None = None) -> Rollout:
        """The motion, or one phase, as a rollout of its map: exactly the motion that its inputs give.

        The inputs are rolled out open loop. Where an unstable motion makes the solver's tolerance grow
        beyond 1e-6 of the state, they are applied with the feedback of `stabilize(1, 1)`; the inputs then
        change by as little. About a plan that is no motion there may be no such feedback: then it stays open
        loop. `vioc.control.polish` makes one that is stationary for the cost, too.

        Raises
        ------
        StepError
            Where the map has no next state.
        """
        run = self._motion(phase)
        again = run.map.rollout(run.x[0], run.u, k0=run.k0, dt=run.step_lengths, warn=False)
        feedback = _gap(run, again) > OPEN_LOOP * (1 + np.abs(run.x).max())
        if feedback:
            try:
                regulator = self.stabilize(1.0, 1.0, phase=phase)
            except OptimizationError:
                feedback = False
            else:
                again = regulator.map.track(run.x[0], run.x, run.u, regulator.K, k0=run.k0)
        runs = again.map.parts_of(again) if isinstance(again.map, SwitchedMap) else [again]
        parts = self.phases if phase is None else self.phases[phase : phase + 1]
        costs = [p.phase.cost for p in parts if p.phase is not None and p.phase.cost is not None]
        known = len(costs) == len(runs)
        total = sum(c.value(r) for c, r in zip(costs, runs, strict=True)) if known else None
        return Rollout(again, _gap(run, again), total, feedback)

    def _motion(self, phase: int | None) -> Trajectory:
        return self.trajectory if phase is None else self.phases[phase].trajectory

    def describe(self, phase: int | None = None) -> str:
        """How it ended, and how near the plan is to what the map makes of its inputs; text.

        Of phases that are `apart` why they are; each can be asked for. Of contacts the largest product of gap
        and impulse, and the smoothings on the way.

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
            worst = f", most in {run.map.error_names[int(off.argmax())]}" if off.max() > 0 else ""
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

    def products(self, phase: int | None = None) -> dict[str, np.ndarray]:
        """Of each contact and limit, the gap at the end of each step times its impulse (N,), m N s."""
        run = self._motion(phase)
        names = () if run.map.relaxed is None else run.map.relaxed.contacts
        return {n: run[f"gap.{n}"][1:] * run[f"force.{n}"] * run.step_lengths for n in names}

    def stabilize(self, Q: Any, R: Any, Qf: Any = None, *, phase: int | None = None) -> Regulator:
        """The time-varying regulator about the motion, or one phase of it; weights as in `vioc.control.dlqr`,
        Qf = Q unless given.

        Its map is the trajectory's, which has the step length of the solution (`OneStepMap.with_dt`). Through
        joints where contacts close it reckons with when they do (`SwitchedMap.linearize_motion`).
        """
        run = self._motion(phase)
        regulator = dlqr(run.map, run, Q, R, Qf)
        assert isinstance(regulator, Regulator)
        return regulator

    def refine(self, factor: int = 2, **options: Any) -> Solution:
        """The same problem with `factor` times as many steps, solved from this solution.

        `options` are those of `Problem.solve`.
        """
        if self.problem is None:
            raise ValueError("refine: a solution that was pickled has left its problem behind")
        return self.problem.refined(factor).solve(self, **options)

    def sensitivity(self) -> Sensitivity:
        """Derivatives of the optimum by the declared parameters and the given initial state.

        Raises
        ------
        OptimizationError
            If it is not an optimum, or not a regular one.
        """
        self.raise_for_status()
        if self.raw is None:
            raise ValueError(
                "sensitivity: a solution that was pickled has left its program behind; solve again"
            )
        r = self.raw
        return sensitivity(r.transcription, r.w, r.mu, r.nu, r.p, (r.lower, r.upper))

    def __reduce__(self):
        """Trajectories and multipliers travel; the program and its compiled functions do not."""
        parts = tuple(PhaseSolution(None, q.trajectory, q.duals, q.defect) for q in self.phases)  # type: ignore[arg-type]
        ended = self.status, self.message, self.iterations, self.history
        fields = self.cost, *ended, self.seconds, self.violations
        return Solution, (None, parts, *fields, {}, None, self.joined, self.apart, self.stages)

    def __repr__(self) -> str:
        return f"Solution({self.message}; {', '.join(f'{len(p.trajectory)} steps' for p in self.phases)})"


def _gap(run: Trajectory, other: Trajectory) -> float:
    return float(np.abs(run.map.difference(run.x, other.x)).max())


def solution(
    problem: Problem, raw: Raw, outcome: Found, history: History, stages: Sequence[Stage] = ()
) -> Solution:
    """Name everything that the vectors hold."""
    status, iterations = outcome.status, outcome.iterations
    t = raw.transcription
    cost, g = (np.asarray(v).ravel() for v in t.program.values(raw.w, raw.p))
    maps = problem.maps
    gone = eliminated.multipliers(t, raw.w, raw.p, raw.mu)
    phases: list[PhaseSolution] = []
    times: list[np.ndarray] = []
    for i, (phase, at) in enumerate(zip(t.phases, t.layouts, strict=True)):
        h = raw.w[at.H[0]] if at.H is not None else phase.length_limits[0]
        start = times[-1][-1] if times else phase.k0 * h
        k0 = round(start / h)  # whole where the map depends on time
        time = start + h * np.arange(phase.steps + 1)
        times.append(time)
        x, u = eliminated.states(t, i, raw.w, raw.p), raw.w[at.U]
        each = phase.equations.multipliers.map(phase.steps)
        multipliers = np.asarray(each(raw.w[at.L].T, h, phase.map.theta)).T
        if not phase.equations.implicit and maps[i].multiplier_names:
            multipliers = _step_multipliers(maps[i], x, u, k0, h)
        run = Trajectory(maps[i], time, x, u, multipliers, k0=k0).on_its_step()
        phases.append(PhaseSolution(phase, run, duals(raw, i, gone[i]), defect(t, i, g)))
    found = violations(raw, g, times)
    far = ""
    if status == Status.CONVERGED:
        far = next(filter(None, (off_branch(part.trajectory, SAME) for part in phases)), "")
        status = Status.ACCEPTABLE if far else status
    together = dependent(raw, g) if status == Status.NO_PROGRESS else []
    advice = far or status.advice
    if together:
        more = f" and {len(together) - 5} more" if len(together) > 5 else ""
        advice = (
            f"constraints depend on each other there: {', '.join(together[:5])}{more}. Leave out one of them "
            "(what the others imply, or prevent), loosen a limit, or start from another guess"
        )
    if stages and outcome.status != Status.CONVERGED:
        least, own = reached(list(stages)), t.own_smoothing
        wider = f"contacts are solved at a smoothing of {least:.2g} m^2/s^2 only, the map's is {own:.2g}"
        close = too_close(t, stages[-1].smoothing)
        advice = (
            f"{wider if least < np.inf else 'no contacts were solved at any smoothing'}; {close or advice}"
        )
    message = verdict(status, f"{iterations} iterations", float(cost[0]), advice, found=found)
    ended = status, message, iterations, history, outcome.seconds, found, outcome.stats, raw
    whole = joined(problem.jumps, [part.trajectory for part in phases])
    return Solution(problem, tuple(phases), float(cost[0]), *ended, *whole, list(stages))


def joined(jumps: Sequence[Any], runs: list[Trajectory]) -> tuple[Trajectory | None, str]:
    """The phases as one trajectory, None where there is one or they are none; and why they are none."""
    if len(runs) == 1:
        return None, ""
    ask = "so they are no one trajectory; ask one of them: solution.phases[0]"
    if len({(run.map.state_names, run.map.input_names) for run in runs}) > 1:
        return None, f"the phases have other states or inputs, {ask}"
    if any(v is None for jump in jumps for v in (jump or {}).values()):
        return None, f"a jump leaves states free, {ask}"
    leaps, whole = [], runs[:1]
    for i, (run, jump) in enumerate(zip(runs[1:], jumps, strict=False), 1):
        f, end = whole[-1].map, whole[-1].x[-1]
        leaps.append(leap(f, jump))
        after = end if leaps[-1] is None else np.asarray(leaps[-1](end, f.theta)).ravel()
        off = np.abs(f.difference(after, run.x[0]))
        if not off.max(initial=0.0) <= MEET * (1 + np.abs(after).max(initial=0.0)):
            name = f.error_names[int(off.argmax())]
            return None, f"phase {i} begins {off.max():.2g} off where phase {i - 1} ends, in {name}, {ask}"
        whole.append(replace(run, x=np.vstack([after, run.x[1:]])))
    try:
        return join(*whole, jumps=leaps), ""
    except ValueError as error:  # their steps are counted otherwise, and a map depends on them
        return None, f"{error}, {ask}"


def _step_multipliers(f: Any, x: np.ndarray, u: np.ndarray, k0: int, h: float) -> np.ndarray:
    steps = [f.rollout(x[k], u[k : k + 1], k0=k0 + k, dt=h, warn=False) for k in range(len(u))]
    return np.concatenate([s.multipliers for s in steps])
