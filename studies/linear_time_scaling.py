"""Time of a step over degrees of freedom ([L] Fig. 3): a chain of N bodies, 1 ms steps, zero gravity.

DRNEA with every root finder in the compiled core over 2000 steps; one counts as solved where the 2-norm of
its residual is at most 1e-8 N m s times the number of bodies, or at its rounding floor. A step of 100 bodies
takes more than ten times that of 10 because its motion is wilder and takes more evaluations: the growth's
bound is the count of operations, links times evaluations. The exact direction pays as a chord, which factors
it once a step, and in Newton's method, which factors it at every iterate. Beside it one evaluation
of the residual by the tree recursion of [T] (cached, as in Fig. 7 there) over one of DRNEA, both in CasADi's
virtual machine.
"""

from __future__ import annotations

import time
from typing import Any

import casadi as ca
import numpy as np

from studies.harness import Claim, Report, Study, at_least, at_most, count_ticks
from studies.linear_time_chain import chain, start
from studies.n_link_caching import Mechanics, pendulum
from vioc import LinearTimeVI
from vioc.compile import find_compiler
from vioc.dynamics.integrators.linear_time.core import SOLVERS, LinearTimeCore

DT = 1e-3  # s
COUNTS = {"chord": (10, 20, 40, 70, 100), "riqn": (10, 20, 40, 70, 100), "newton": (10, 20, 40, 70, 100)}
COUNTS |= {"dense": (10, 20, 40, 100)}
LABELS = dict(zip(SOLVERS, ("chord, O(n)", "RIQN", "exact Newton, O(n)", "dense Newton"), strict=True))
AUTHORS = {"RIQN": (13, 69, 210), "their Newton": (53, 1038, 7408), "Newton on [T]": (135, 10339, 215444)}
STEPS, REPEATS = 2000, 7

STUDY = Study(
    __file__,
    "time of a step over degrees of freedom for DRNEA's root finders",
    t10=Claim("fastest step, N = 10", unit="us", published=13, source="[L]'s C++"),
    t40=Claim("fastest step, N = 40", unit="us", published=69, source="[L]'s C++", full_only=True),
    t100=Claim("fastest step, N = 100", unit="us", published=210, source="[L]'s C++", full_only=True),
    **{
        f"unit_{n}": Claim(
            f"fastest step over one evaluation of DRNEA in CasADi's virtual machine, N = {n}, same run",
            at_most(1.0),
            full_only=n > 10,
        )
        for n in (10, 40, 100)
    },
    growth=Claim("t(100) / t(10) of the fastest at 100", full_only=True),
    growth_newton=Claim("t(100) / t(10) of the exact Newton", full_only=True),
    growth_operations=Claim(
        "t(100) / t(10) over the growth of links times evaluations, worst of the O(n) finders",
        at_most(1.2),
        full_only=True,
    ),
    newton_10=Claim("dense Newton over RIQN, N = 10", published=3.8, source="[L] 4.3"),
    newton_100=Claim("dense Newton over RIQN, N = 100", published=53, source="[L] 4.3", full_only=True),
    exact_100=Claim("exact O(n) Newton over RIQN, N = 100, time of a step", at_most(1), full_only=True),
    chord_100=Claim("exact chord over RIQN, N = 100, time of a step", at_most(1), full_only=True),
    residual_10=Claim("residual of [T] over DRNEA, N = 10", at_least(1), published=15, source="[L] 4.3"),
    residual_30=Claim("residual of [T] over DRNEA, N = 30", at_least(2), full_only=True),
)


def step_time(n: int, solver: str, steps: int = STEPS, repeats: int = REPEATS) -> tuple[float, float]:
    """Shortest processor time of a step, us, and mean residual evaluations."""
    f = LinearTimeVI(chain(n), DT, solver=solver, backend="compiled")
    core = LinearTimeCore(f, f.theta)
    x0 = f.initial_state(*start(n))
    arguments = x0, np.zeros((steps, 0)), np.zeros(steps), np.full(steps, DT)
    shortest, evaluations = np.inf, np.nan
    for _ in range(repeats):
        before = time.process_time()
        states, _, _, counts = core.rollout(*arguments, residual=1e-8 * n)
        shortest = min(shortest, time.process_time() - before)
        if len(states) < steps:
            raise RuntimeError(f"{solver}, N = {n}: step {len(states)} did not converge")
        evaluations = float(counts.mean())
    return shortest / steps * 1e6, evaluations


def residual_ratio(n: int) -> float:
    """Time of the residual of [T] by its recursion, cached, over that of DRNEA."""
    q, v = ca.SX.sym("q", n), ca.SX.sym("v", n)
    L_q, L_v = Mechanics(pendulum(n), q, v, True).first()
    tree = ca.Function("tree", [q, v], [DT / 2 * L_q - L_v])
    f = LinearTimeVI(pendulum(n), DT)
    drnea = f.graphs.slots
    one = np.random.default_rng(0).normal(size=n)
    return evaluation_time(tree, one, one) / evaluation_time(drnea, one, one + DT * one, DT, [])


def evaluation_time(function: ca.Function, *arguments: Any) -> float:
    """Shortest processor time of an evaluation, us."""
    many, times = function.map(200), []
    rows = [np.tile(np.reshape(a, (-1, 1)), (1, 200)) for a in arguments]
    for _ in range(7):
        before = time.process_time()
        many(*rows)
        times.append(time.process_time() - before)
    return min(times) / 200 * 1e6


def drnea_time(n: int) -> float:
    """Of the chain that is stepped, us."""
    q = start(n)[0]
    return evaluation_time(LinearTimeVI(chain(n), DT).graphs.slots, q, q + DT, DT, [])


@STUDY.body
def run(report: Report) -> None:
    times: dict[str, dict[int, float]] = {solver: {} for solver in COUNTS}
    single: dict[str, dict[int, float]] = {solver: {} for solver in COUNTS}  # us a link and evaluation
    if find_compiler() is None:
        print("no C compiler: the compiled core is not measured")
    else:
        for solver, counts in COUNTS.items():
            for n in (n for n in counts if n == 10 or not report.quick):
                slow = solver == "dense" and n > 40
                times[solver][n], evaluations = step_time(
                    n, solver, 50 if slow else STEPS, 3 if slow else REPEATS
                )
                single[solver][n] = times[solver][n] / evaluations / n
                time_ = f"{times[solver][n]:9.2f} us, {evaluations:.2f} evaluations"
                print(f"{LABELS[solver]:20} N = {n:3}: {time_}")
        fastest = {n: min(t[n] for t in times.values() if n in t) for n in times["riqn"]}
        report.measure(**{f"unit_{n}": fastest[n] / drnea_time(n) for n in (10, 40, 100) if n in fastest})
        report.measure(t10=fastest[10], newton_10=times["dense"][10] / times["riqn"][10])
        if not report.quick:
            riqn = times["riqn"][100]
            best = min(times, key=lambda solver: times[solver][100])
            report.measure(
                t40=fastest[40],
                t100=fastest[100],
                growth=times[best][100] / times[best][10],
                growth_newton=times["newton"][100] / times["newton"][10],
                growth_operations=max(single[s][100] / single[s][10] for s in ("chord", "riqn", "newton")),
                newton_100=times["dense"][100] / riqn,
                exact_100=times["newton"][100] / riqn,
                chord_100=times["chord"][100] / riqn,
            )
    report.measure(residual_10=residual_ratio(10))
    if not report.quick:
        report.measure(residual_30=residual_ratio(30))
    draw(report, times)


def draw(report: Report, times: dict[str, dict[int, float]]) -> None:
    """[L] Fig. 3, with the authors' C++ on a machine like this."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 4), layout="constrained")
    for (solver, values), marker in zip(times.items(), "o^sD", strict=True):
        axes.loglog(list(values), list(values.values()), marker=marker, ms=4, label=LABELS[solver])
    for (name, values), style in zip(AUTHORS.items(), ("k-", "k--", "k:"), strict=True):
        axes.loglog((10, 40, 100), values, style, lw=1, label=f"authors' C++: {name}")
    axes.set(xlabel="degrees of freedom", ylabel="time of a step (us)", title="chain, 1 ms ([L] Fig. 3)")
    count_ticks(axes, COUNTS["riqn"])
    axes.grid(alpha=0.3)
    figure.legend(*axes.get_legend_handles_labels(), loc="outside right upper", fontsize=8)
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
