"""Random trees and loops brought to a posture, from two starts: how often the default optimizer converges.

Every task of `studies.two_starts_family` is solved twice by `vioc.control.optimize` as it comes, each time in
30 s of processor time and without a compiler: from the motion without inputs, and from a straight line of
states between start and goal. Every verdict is judged from outside:

- "converged" *departs* where the rollout of its inputs is another motion than the result says, by more than
  rounding and the `open_loop_gap` that it states. It is *untrue* where the adjoint gradient of the cost
  along that rollout promises more than `PROMISED` of the cost to one step of Gauss and Newton.
- What does not converge is counted by its verdict. It is *refuted* where a task without limits, at a cost
  that is never negative, is called infeasible or unbounded; where no step is said to lower the cost and that
  step lowers it by more than `PROMISED`; and where a step is said not to exist to which its branch of
  solutions leads (`studies.branch`).
"""

from __future__ import annotations

import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from statistics import median
from typing import Any, NamedTuple

import numpy as np

import vioc
from studies.branch import Branch
from studies.harness import Claim, Report, Study, at_least, at_most
from studies.tasks import TooLong, departs
from studies.tasks import at_most as within
from studies.two_starts_family import LEFT_OUT, PostureTask, tasks
from vioc.control import Cost, Status, optimize, straight_line
from vioc.errors import OptimizationError, StepError

COUNT, QUICK, SMALLEST = 100, 4, 4  # tasks: in full, in quick form, and the most joints of the latter
LONGEST = 30.0  # s of processor time of a search
PROMISED = 1e-6  # of the cost
TREES, LOOPS = 0.90, 0.85  # shares that are to converge
STARTS: dict[str, Callable[[PostureTask], dict[str, Any]]] = {
    "zero": lambda t: dict(x0=t.x0, steps=t.steps),
    "line": lambda t: dict(
        guess=(straight_line(t.x0, t.goal, t.steps, t.map), np.zeros((t.steps, t.map.nu)))
    ),
}
FAILURES = {
    "time": f"not done in {LONGEST:g} s",
    "error": "an exception",
    "untrue": '"converged", untrue or departing',
    **{s.value: f'"{s}"' for s in (Status.ACCEPTABLE, Status.MAX_ITERATIONS, Status.LINE_SEARCH)},
    **{s.value: f'"{s}"' for s in (Status.NO_DESCENT, Status.NO_PROGRESS, Status.INFEASIBLE)},
    "other": "another verdict",
}
NEVER = Status.INFEASIBLE, Status.OVERDETERMINED, Status.DIVERGING  # of tasks without limits, at costs >= 0
STOPPED = Status.LINE_SEARCH, Status.NO_DESCENT  # said of all steps

STUDY = Study(
    __file__,
    "random trees and loops to a posture, from no inputs and from a line: what converges, and truly",
    trees=Claim("trees: share of searches that converge, truly", at_least(TREES), full_only=True),
    loops=Claim("loops: the same", at_least(LOOPS), full_only=True),
    **{f"{kind}_{start}": Claim(f"{kind}s, from {words}: the same") for kind in ("tree", "loop")
       for start, words in (("zero", "no inputs"), ("line", "a line"))},
    departs=Claim('"converged" with inputs whose rollout is another motion than it says', at_most(0)),
    untrue=Claim(f'"converged" where the gradient promises more than {PROMISED:g} of the cost', at_most(0)),
    promised=Claim("what it promises of the cost at most, where converged"),
    slope=Claim("gradient there over the largest sum of its parts, 99 of 100 below"),
    unstable=Claim("of what converged, motions that the rollout of their inputs leaves, as they say"),
    refuted=Claim("verdicts other than converged that are refuted", at_most(0)),
    searches=Claim("searches"),
    **{f"failed_{key}": Claim(f"failures: {text}") for key, text in FAILURES.items()},
    iterations=Claim("iterations where converged, median"),
    seconds=Claim("time in s where converged, median, building included"),
    **{f"left_{i}": Claim(f"mechanisms drawn again: {text}") for i, text in enumerate(LEFT_OUT.values())},
)  # fmt: skip


class Search(NamedTuple):
    """The outcome of a task from one start.

    Attributes
    ----------
    task, start : str
        The name of the task, and a key of `STARTS`.
    verdict : str
        A `Status`, "time" or "error".
    said : str
        The message.
    seconds : float
        Processor time.
    cost : float
    iterations : int
    gap : float
        The `open_loop_gap` that it states.
    departs, refuted : bool
    promised, slope : float
        Of what converged, along the rollout of its inputs: see `promise`.
    """

    task: str
    start: str
    verdict: str
    said: str
    seconds: float
    cost: float = np.nan
    iterations: int = 0
    gap: float = np.nan
    departs: bool = False
    refuted: bool = False
    promised: float = np.nan
    slope: float = np.nan

    @property
    def untrue(self) -> bool:
        return self.verdict == Status.CONVERGED and not self.promised <= PROMISED

    @property
    def failure(self) -> str:
        """A key of `FAILURES`; empty where it converged, truly."""
        if self.verdict != Status.CONVERGED:
            return self.verdict if self.verdict in FAILURES else "other"
        return "untrue" if self.untrue or self.departs else ""

    def __str__(self) -> str:
        found = f"{self.iterations} iterations, cost {self.cost:.8g}, gap {self.gap:.1e}, "
        found += f"promised {self.promised:.1e}, slope {self.slope:.1e}"
        marks = " DEPARTS" * self.departs + " UNTRUE" * self.untrue + " REFUTED" * self.refuted
        said = "" if self.verdict == Status.CONVERGED else f": {self.said}"
        return f"{self.task} {self.start}: {self.verdict}{marks}, {self.seconds:.1f} s, {found}{said}"


@STUDY.body
def run(report: Report) -> None:
    left_out: Counter[str] = Counter()
    size = dict(most=SMALLEST) if report.quick else {}
    made = tasks(QUICK if report.quick else COUNT, left_out, **size)
    searches = list(searched(made))
    report.measure(**{f"left_{i}": left_out[key] for i, key in enumerate(LEFT_OUT)})
    figures(report, searches)
    draw(report, searches)


def searched(made: Iterable[PostureTask]) -> Iterator[Search]:
    """Every task from every start."""
    for task in made:
        for start in STARTS:
            yield search(task, start)


def search(task: PostureTask, start: str) -> Search:
    """A task from one start, judged."""
    own = dict(task=task.name, start=start)
    before = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with within(LONGEST):
                best = optimize(task.map, task.cost, raise_on_failure=False, **STARTS[start](task))
        except TooLong:
            return Search(**own, verdict="time", said="", seconds=time.process_time() - before)
        except (OptimizationError, StepError, ArithmeticError, RuntimeError, ValueError) as error:
            said, gone = f"{type(error).__name__}: {error}", time.process_time() - before
            wrong = isinstance(error, StepError) and exists(task.map, error)
            return Search(**own, verdict="error", said=said, seconds=gone, refuted=wrong)
        seconds = time.process_time() - before
        if seconds > LONGEST:  # a solver within took the stop for its own
            return Search(**own, verdict="time", said=best.message, seconds=seconds)
        found = dict(cost=best.cost, iterations=best.iterations, gap=best.open_loop_gap, seconds=seconds)
        told = Search(**own, verdict=str(best.status), said=best.message, **found)
        along = default_rollout(best)
        if best.converged:
            promised, slope, _ = promise(task.cost, along or best.trajectory)
            return told._replace(departs=departs(best), promised=promised, slope=slope)
        lowers = best.status in STOPPED and along is not None and lowered(task, along)
        return told._replace(refuted=best.status in NEVER or lowers)


def default_rollout(best: Any) -> vioc.Trajectory | None:
    """The rollout of the inputs; None where it comes to a step that does not exist."""
    said = best.trajectory
    try:
        return said.map.rollout(said.x[0], said.u, warn=False)
    except StepError:
        return None


def promise(cost: Cost, run: vioc.Trajectory) -> tuple[float, float, np.ndarray]:
    """The decrease that the gradient of the cost promises along a motion, and the step that has it.

    Returns
    -------
    promised : float
        The decrease that the model of Gauss and Newton has along its step, over the cost.
    slope : float
        The largest entry of the adjoint gradient over the largest sum of what entries of its input are of.
    du : (N, nu)
        The step, of the inputs alone.
    """
    f, n = run.map, len(run)
    lin = f.linearize_trajectory(run)
    e, nx = cost.expand(run, lin), f.ndx
    lx, lu = np.vstack([e.first[:, :nx], e.end]), e.first[:, nx:]
    lxx = np.concatenate([e.second[:, :nx, :nx], e.end_second[None]])
    lxu, luu = e.second[:, :nx, nx:], e.second[:, nx:, nx:]
    costate, p, P = lx[-1], lx[-1], lxx[-1]
    gradient, parts, gains = np.empty((n, f.nu)), np.empty((n, f.nu)), []
    promised = 0.0
    for k in reversed(range(n)):
        A, B = lin.A[k], lin.B[k]
        gradient[k] = lu[k] + B.T @ costate
        parts[k] = np.abs(lu[k]) + np.abs(B.T) @ np.abs(costate)
        costate = lx[k] + A.T @ costate
        force, coupled = lu[k] + B.T @ p, lxu[k].T + B.T @ P @ A
        solved = np.linalg.solve(luu[k] + B.T @ P @ B, np.column_stack([force, coupled]))
        promised += 0.5 * float(force @ solved[:, 0])
        gains.append(solved)
        p = lx[k] + A.T @ p - coupled.T @ solved[:, 0]
        P = lxx[k] + A.T @ P @ A - coupled.T @ solved[:, 1:]
        P = (P + P.T) / 2
    dx, du = np.zeros(f.ndx), np.empty((n, f.nu))
    for k, solved in enumerate(reversed(gains)):
        du[k] = -solved[:, 0] - solved[:, 1:] @ dx
        dx = lin.A[k] @ dx + lin.B[k] @ du[k]
    slope = float((np.abs(gradient).max(axis=0) / np.maximum(parts.max(axis=0), np.finfo(float).tiny)).max())
    return promised / cost.value(run), slope, du


def lowered(task: PostureTask, run: vioc.Trajectory) -> bool:
    """True if a part of that step, halved up to 30 times, lowers the cost by more than `PROMISED`."""
    f, now = task.map, task.cost.value(run)
    _, _, du = promise(task.cost, run)
    for j in range(30):
        try:
            trial = f.rollout(task.x0, run.u + 0.5**j * du, warn=False)
        except StepError:
            continue
        if task.cost.value(trial) < (1 - PROMISED) * now:
            return True
    return False


def exists(f: vioc.MidpointVI, error: StepError) -> bool:
    """True if the step at which a rollout is said to end has a solution on its branch."""
    if error.trajectory is None or error.cause != "fold":
        return False
    x, u = error.trajectory.x[-1], np.zeros(f.nu)  # the rollout that begins a search has no inputs
    try:
        return Branch(f).follow(x, u, f.dt).end is not None
    except RuntimeError:
        return False


def figures(report: Report, searches: list[Search]) -> None:
    def share(prefix: str, start: str = "") -> float:
        own = [s for s in searches if s.task.startswith(prefix) and s.start.startswith(start)]
        return float(np.mean([not s.failure for s in own])) if own else np.nan

    done = [s for s in searches if not s.failure]
    said = [s for s in searches if s.verdict == Status.CONVERGED]
    failures = Counter(s.failure for s in searches)
    if not report.quick:
        report.measure(trees=share("tree"), loops=share("loop"))
    report.measure(
        **{f"{kind}_{start}": share(kind, start) for kind in ("tree", "loop") for start in STARTS},
        departs=sum(s.departs for s in searches),
        untrue=sum(s.untrue for s in searches),
        promised=max((s.promised for s in said), default=np.nan),
        slope=np.quantile([s.slope for s in said], 0.99) if said else np.nan,
        unstable=sum(s.gap > 0 for s in said),
        refuted=sum(s.refuted for s in searches),
        searches=len(searches),
        **{f"failed_{key}": failures[key] for key in FAILURES},
        iterations=median(s.iterations for s in done) if done else np.nan,
        seconds=median(s.seconds for s in done) if done else np.nan,
    )


def draw(report: Report, searches: list[Search]) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for kind in ("tree", "loop"):
        for start, style in zip(STARTS, ("-", "--"), strict=True):
            own = [s for s in searches if s.task.startswith(kind) and s.start == start]
            times = sorted(s.seconds for s in own if not s.failure)
            shares = (1 + np.arange(len(times))) / max(len(own), 1)
            color = "C0" if kind == "tree" else "C1"
            axes.step(times, shares, style, color=color, where="post", label=f"{kind}s, {start}")
    axes.set(xscale="log", ylim=(0, 1), xlabel="processor time (s)", ylabel="share converged, truly")
    axes.set_title("Random trees and loops to a posture")
    axes.legend()
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
