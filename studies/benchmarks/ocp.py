"""Optimal control at robot scale: time to the optimum beside IPOPT, FATROP and Crocoddyl, and how both scale.

The clock is the processor's, of a solve without what is built once; the median of a few. Every answer of vioc
is judged by `vioc.control.kkt`. What fails is a row like any other, its verdict in the place of a time.
"""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from studies.benchmarks import ocp_peers, robots
from studies.benchmarks.harness import ABSENT, COMPILED, Bench, Row
from studies.benchmarks.problems import driven_chain
from studies.benchmarks.robots import Make
from studies.tasks import LONGEST, Task, TooLong, at_most, judged, optimum, stated
from vioc.control import quadratic
from vioc.errors import OptimizationError

REPEATS, PATIENCE = 5, 5.0  # of one measurement at most: solves, s
STARTS, START_SPREAD = 20, 0.3  # of the arm about its own: how many, and their standard deviation in rad
ANYWHERE = 60  # starts of the arm, joints within 1 rad of 0
SAME = 1e-6  # relative: costs of two backends that are further apart are not of one problem
OTHER = 0.01  # relative: a peer's cost that is further from vioc's is of another optimum
EXPANDED = 30  # states up to which FATROP is asked: it expands a program to scalars

Problem = Callable[[Make], Task]

QUICK: dict[str, Problem] = {
    "cart-pole to 66.80261969": robots.cart_pole,
    "quadrotor through a window": robots.quadrotor_window,
}
PROBLEMS: dict[str, Problem] = {
    "7-DOF arm to a point": robots.arm,
    "UR5 to a pose": robots.ur5,
    "UR5 around a ball": robots.ur5_obstacles,
    "slung load in least time": robots.slung_load,
    **QUICK,
    "five-bar around a post": robots.five_bar,
    "acrobot swing-up": robots.swing_up,
    "quadrotor zigzag": robots.quadrotor_zigzag,
    **{f"cart with {n} rods": partial(robots.ladder, n=n) for n in range(1, 6)},
    "marionette, 10 % out of reach": robots.marionette,
    "humanoid reaches": robots.humanoid_reach,
}


def median(solve: Callable[[], Any], repeats: int) -> float:
    """Median processor time, s; fewer repeats of what takes long."""
    times: list[float] = []
    while not times or (len(times) < repeats and sum(times) < PATIENCE):
        before = time.process_time()
        solve()
        times.append(time.process_time() - before)
    return statistics.median(times)


LENGTHS, LINKS = (25, 50, 100, 200, 400), (5, 10, 20, 40)
FEW = 6  # iterations that the time of one is taken of


def ocp_scaling(bench: Bench) -> Iterator[Row]:
    """Time of an iteration over the number of steps and of links, and the exponent of its growth."""
    lengths, links = ((10, 20), (2, 4)) if bench.quick else (LENGTHS, LINKS)
    makes: tuple[tuple[str, tuple[int, ...], Callable[[int, str], Task]], ...] = (
        ("7-DOF arm, {} steps", lengths, lambda n, backend: robots.arm(Make(backend), n)),
        ("chain of {} links, 50 steps", links, chain),
    )
    for text, sizes, make in makes:
        times: dict[str, list[float]] = {backend: [] for backend in bench.backends}
        for size in sizes:
            for backend in bench.backends:
                times[backend].append(iteration(make(size, backend), 1 if bench.quick else REPEATS))
            note = ""
            if size == sizes[-1]:
                growth = {b: np.polyfit(np.log(sizes), np.log(t), 1)[0] for b, t in times.items()}
                note = "grows with the power " + ", ".join(f"{g:.2f} ({b})" for b, g in growth.items())
            figures = {backend: 1e3 * t[-1] for backend, t in times.items()}
            yield Row("iteration, " + text.format(size), "ms", figures, note=note)


def chain(links: int, backend: str, steps: int = 50) -> Task:
    """A hanging chain with a torque on each joint moves every joint by 0.3 rad in half a second."""
    f = driven_chain(links, backend)
    names = f.system.variables
    goal = dict.fromkeys(names, 0.3 / links)
    cost = quadratic(f, Q=dict.fromkeys(names, 0.1), R=0.01, Qf=dict.fromkeys(names, 10.0), goal=goal)
    return Task(f, cost, None, f.initial_state({names[0]: 0.5}), steps)


def iteration(task: Task, repeats: int) -> float:
    """Processor time of one iteration, s: that of the first few over their number."""

    def run() -> float:
        before = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            done = optimum(task, max_iterations=FEW).iterations
        return (time.process_time() - before) / max(done, 1)

    run()  # builds
    return statistics.median(run() for _ in range(repeats))


def ocp(bench: Bench) -> Iterator[Row]:
    repeats = 1 if bench.quick else REPEATS
    for name, problem in (QUICK if bench.quick else PROBLEMS).items():
        figures, notes, costs = {}, [], {}
        for backend in bench.backends:
            task = problem(Make(backend))
            solve = stated(task)
            found = judged(task, solve)  # builds
            if found.converged:
                figures[backend] = 1e3 * median(partial(solve, task), repeats)
                costs[backend] = found.cost
            notes.append(f"{backend}: {found}")
        remarks = [f"{found}"]
        if not agree(costs):
            notes.append("the backends do not agree: no time of the compiled one")
            remarks.append(notes[-1])
            figures.pop(COMPILED, None)
        peers: dict[str, float | str] = {}
        for peer, answer, seconds in beside(problem, repeats):
            peers[peer] = 1e3 * seconds if seconds else answer if isinstance(answer, str) else answer.verdict
            if not isinstance(answer, str):
                notes.append(f"{peer}: {answer.iterations} iterations, cost {answer.cost:.8g}")
                if abs(answer.cost - found.cost) > OTHER * abs(found.cost):
                    remarks.append(f"{peer}: cost {answer.cost:.3g}")
        yield Row(name, "ms", figures, {}, peers, "; ".join(notes), remark="; ".join(remarks))
        if problem is robots.arm:
            yield random_starts(bench, True)
            yield random_starts(bench, False)


def agree(costs: dict[str, float]) -> bool:
    """Whether one problem has one cost on all backends; KKT does not see a constant that is too much."""
    values = list(costs.values())
    return all(abs(v - values[0]) <= SAME * (1 + abs(values[0])) for v in values)


def random_starts(bench: Bench, near: bool) -> Row:
    """The arm from starts held at random, Crocoddyl beside: median time of one, and what became of all."""
    figures, notes, rng = {}, [], np.random.default_rng(0)
    size = (2 if bench.quick else STARTS if near else ANYWHERE, 7)
    turns = START_SPREAD * rng.standard_normal(size) if near else rng.uniform(-1, 1, size)

    def starts(task: Task) -> list[Task]:
        f = task.map
        return [task._replace(x0=f.initial_state(task.x0[:7] + q if near else q)) for q in turns]

    for backend in bench.backends:
        task = robots.arm(Make(backend))
        solve = stated(task)
        judged(task, solve)  # builds
        found = [judged(t, solve) for t in starts(task)]
        done = [s for s in found if s.converged]
        worst = max((s.kkt.residual for s in done if s.kkt), default=np.nan)
        if done:
            figures[backend] = 1e3 * statistics.median(s.seconds for s in done)
        counts = [s.iterations for s in done] or [0]
        notes.append(
            f"{backend}: {len(done)} of {len(found)} converged in {np.mean(counts):.1f} iterations, at most "
            f"{max(counts)}, KKT {worst:.0e}"
        )
    others = [asked(partial(ocp_peers.crocoddyl_arm, t), 1) for t in starts(robots.arm(Make()))]
    told = [answer for answer, _ in others if not isinstance(answer, str)]
    times = [seconds for _, seconds in others if seconds]  # of those that converged
    peer: float | str = 1e3 * statistics.median(times) if times else str(others[0][0])
    if told:
        counts = [answer.iterations for answer in told]
        notes.append(
            f"Crocoddyl FDDP: {sum(a.converged for a in told)} of {len(others)} converged in "
            f"{np.mean(counts):.1f} iterations, at most {max(counts)}"
        )
    name = f"the arm from {len(turns)} random starts" + ("" if near else ", joints within 1 rad of 0")
    remark = "; ".join(notes[len(bench.backends) - 1 :])  # of the last backend, and Crocoddyl's
    return Row(name, "ms", figures, peers={"Crocoddyl FDDP": peer}, note="; ".join(notes), remark=remark)


def beside(problem: Problem, repeats: int) -> Iterator[tuple[str, ocp_peers.Answer | str, float]]:
    """The other programs: name, answer or why there is none, and median time, s, where it converged."""
    same, rule = problem(Make()), problem(Make(variational=False))
    solvers = (("IPOPT", "ipopt"), ("FATROP", "fatrop"))[: 2 if same.map.nx <= EXPANDED else 1]
    programs: list[tuple[str, Callable[[], Any]]] = [
        (label, partial(ocp_peers.nlp, same, solver)) for label, solver in solvers
    ]
    if isinstance(rule.map, robots.ImplicitMidpoint) and rule.map.residual is not None:
        programs += [
            (f"{label}, midpoint rule", partial(ocp_peers.nlp, rule, solver)) for label, solver in solvers
        ]
    if problem is robots.arm:
        programs.append(("Crocoddyl FDDP", partial(ocp_peers.crocoddyl_arm, same)))
    for label, make in programs:
        yield label, *asked(make, repeats)


def asked(make: Callable[[], Any], repeats: int) -> tuple[ocp_peers.Answer | str, float]:
    """What another program answers, or why it does not, and its median time."""
    try:
        with at_most(3 * LONGEST):
            solve = make()
            if solve is None:
                return ABSENT, 0.0
            answer = solve()
            return answer, median(solve, repeats) if answer.converged else 0.0
    except TooLong:
        return "too long", 0.0
    except (RuntimeError, ValueError, OptimizationError) as error:
        return f"{type(error).__name__}: {str(error)[:60]}", 0.0
