"""Optimizers on random tasks: how often each converges from the start held, and whether its verdict is true.

The tasks (`studies.random_tasks`) are feasible by construction, and hard on purpose: joints that no input
acts on, gravity, loops, strings, limits. Every verdict "converged" is judged by the conditions of a local
optimum (`vioc.control.kkt`): it is *untrue* where they are kept worse than `ROUGH`, *checked* where within
`EXACT`. Its trajectory has to be the rollout of its inputs, too, but for what `open_loop_gap` says. What is
no trajectory, takes too long or ends in an exception is a failure of its kind.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np

import vioc
from studies.harness import Claim, Report, Study, near
from studies.random_tasks import KINDS, random_tasks
from studies.tasks import Solved, Task, judged, optimum
from vioc.control import dmoc

COUNT, OTHERS, QUICK = 300, 20, 3  # tasks: of the optimizer of stages, of the others, in quick form
LONGEST = 90.0  # s of a solve
EXACT, ROUGH = 1e-8, 1e-6  # scaled


def _descent(task: Task) -> Any:
    """Projection-operator descent, which knows no limits."""
    own = dict(x0=task.x0, method="projection", raise_on_failure=False)
    return vioc.control.optimize(task.map, task.cost, task.curve, **own)


def _dmoc(task: Task) -> Any:
    phase = dmoc.Phase(task.map, task.steps, task.cost, initial=task.x0, **task.limits)
    options = {"ipopt.max_cpu_time": 0.9 * LONGEST}
    return dmoc.Problem(phase).solve(task.curve, form="states", options=options, raise_on_failure=False)


METHODS: dict[str, tuple[str, Callable[[Task], Any]]] = {
    "stages": ("interior point on stages", optimum),
    "descent": ("projection descent", _descent),
    "dmoc": ("IPOPT on the step's equations", _dmoc),
}
FAILURES = {
    "stopped": "no step leads on, or too many of them",
    "infeasible": "said to be infeasible, which none is",
    "time": f"not done in {LONGEST:g} s",
    "error": "an exception",
}
STUDY = Study(
    __file__,
    "how often optimizers converge on random tasks from the start held, and that no verdict is untrue",
    **{f"{kind}": Claim(f"{METHODS['stages'][0]}: share converged of kind {kind!r}") for kind in KINDS},
    **{
        f"{name}_{key}": Claim(
            f"{words}: {text}", bound if name == "stages" else None, full_only=name != "stages"
        )
        for name, (words, _) in METHODS.items()
        for key, text, bound in (
            ("tasks", "tasks tried", None),
            ("converged", "share converged", None),
            ("checked", f"share converged with a KKT residual within {EXACT:g}", None),
            ("untrue", f'"converged" with one above {ROUGH:g}', near(0, 0)),
            ("departs", '"converged" with inputs whose rollout is another motion than it says', near(0, 0)),
            *((key, f"failures: {text}", None) for key, text in FAILURES.items()),
            ("iterations", "iterations where converged, median", None),
            ("seconds", "time in s where converged, median, building included", None),
        )
    },
)


@STUDY.body
def run(report: Report) -> None:
    found: dict[str, list[Solved]] = defaultdict(list)
    kinds: dict[str, list[bool]] = defaultdict(list)
    for i, t in enumerate(random_tasks(QUICK if report.quick else COUNT, smallest=report.quick)):
        for name, (_, solve) in METHODS.items():
            if name != "stages" and (report.quick or i >= OTHERS):
                continue
            if name == "descent" and t.task.limits:
                continue
            found[name].append(judged(t.task, solve, LONGEST))
        kinds[t.kind].append(found["stages"][-1].converged)
    for kind, converged in kinds.items():
        report.measure(**{kind: np.mean(converged)})
    for name, solved in found.items():
        done = [s for s in solved if s.converged]
        failures = Counter(failure(s) for s in solved if not s.converged)
        figures = {
            "tasks": len(solved),
            "converged": len(done) / len(solved),
            "checked": sum(s.kkt is not None and s.kkt.residual <= EXACT for s in done) / len(solved),
            "untrue": sum(map(untrue, solved)),
            "departs": sum(s.departs for s in solved),
            **{key: failures[key] for key in FAILURES},
            "iterations": median(s.iterations for s in done) if done else np.nan,
            "seconds": median(s.seconds for s in done) if done else np.nan,
        }
        report.measure(**{f"{name}_{key}": value for key, value in figures.items()})
    draw(report, found)


def untrue(s: Solved) -> bool:
    return s.converged and not (s.kkt is not None and s.kkt.residual <= ROUGH)


def failure(s: Solved) -> str:
    """The kind of a failure, a key of `FAILURES`."""
    if s.verdict.startswith("not done") or s.verdict == "max_time":
        return "time"
    if ":" in s.verdict:
        return "error"
    return "infeasible" if s.verdict == "infeasible" else "stopped"


def draw(report: Report, found: dict[str, list[Solved]]) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    for name, solved in found.items():
        times = sorted(s.seconds for s in solved if s.converged and not untrue(s))
        axes.step(times, (1 + np.arange(len(times))) / len(solved), where="post", label=METHODS[name][0])
    axes.set(xscale="log", ylim=(0, 1), xlabel="time (s)", ylabel="share converged")
    axes.set_title("Random tasks from the start held")
    axes.legend()
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
