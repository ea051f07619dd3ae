"""A ball on a string is thrown into the cup that it hangs on: the string is taut when it helps.

The string is unilateral, `dmoc` finds when it pulls. Two places on the way are given.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np

from studies import contact_direct
from studies.contact_library import Task, ball_in_cup, unbalanced
from studies.harness import Claim, Report, Study, at_least, at_most, near
from vioc.control import Result
from vioc.errors import StepError

SOURCE = "CALIPSO.jl, examples/contact_implicit"
STARTS = 20

STUDY = Study(
    __file__,
    "a ball on a string is thrown into its cup; when the string is taut is found",
    cost=Claim("cost", near(139.746, 0.01), source=SOURCE),
    peer=Claim("by hand, Scholtes' relaxation in IPOPT: cost", near(139.746, 0.01)),
    iterations=Claim("iterations, of all smoothings", at_most(300)),
    peer_iterations=Claim("by hand: iterations"),
    ms=Claim("time of the solver", unit="ms"),
    peer_ms=Claim("by hand: time of the solver", unit="ms"),
    replay=Claim("replay by the map, inputs alone: farthest from the plan, relative", at_most(1e-6)),
    products=Claim("gap x impulse at the end, J s", at_most(1e-8)),
    energy=Claim("energy less the work of all impulses, relative", at_most(1e-9)),
    taut=Claim("steps of 20 in which the string pulls, and does not", at_least(1)),
    slack=Claim("steps in which it is slack", at_least(1)),
    starts=Claim(
        f"of {STARTS} random starts converge, replay within 1e-6, %", at_least(80.0), full_only=True
    ),
    start_iterations=Claim("their iterations, median", full_only=True),
    start_least=Claim("their costs: least", full_only=True),
    start_worst=Claim("their costs: most over least", full_only=True),
)


@STUDY.body
def run(report: Report) -> None:
    task = ball_in_cup()
    best, peer = task.solve(), contact_direct.solve(task, 1e-2)
    again = best.rollout()
    assert best.converged and not again.feedback
    report.measure(
        cost=best.cost,
        peer=peer.cost,
        iterations=best.iterations,
        peer_iterations=peer.iterations,
        ms=1e3 * best.seconds,
        peer_ms=1e3 * peer.seconds,
        replay=again.gap,
        products=max(np.abs(p).max() for p in best.products().values()),
        energy=unbalanced(task, again.trajectory),
        taut=int((best["force.string"] > 1e-4).sum()),
        slack=int((best["force.string"] <= 1e-4).sum()),
    )
    if not report.quick:
        starts(report, task)
    draw(report, best)


def disturbed(task: Task, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Places off by 0.1 m, forces of 5 N."""
    Q = task.guess[0] + 0.1 * random.standard_normal(task.guess[0].shape)
    return Q, 5.0 * random.standard_normal((task.steps, 2))


def starts(report: Report, task: Task) -> None:
    found: list[Result] = []
    for seed in range(STARTS):
        random = np.random.default_rng(seed)
        best = replace(task, guess=disturbed(task, random)).solve()
        if best.converged:
            with suppress(StepError):
                again = best.rollout()
                found += [best] * bool(again.gap <= 1e-6 and not again.feedback)
    costs = [best.cost for best in found]
    report.measure(
        starts=100.0 * len(found) / STARTS,
        start_iterations=float(np.median([best.iterations for best in found])),
        start_worst=max(costs) / min(costs),
        start_least=min(costs),
    )


def draw(report: Report, best: Result) -> None:
    import matplotlib.pyplot as plt

    figure, (way, force) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
    way.plot(best["cx"], best["cz"], ".-", label="cup")
    way.plot(best["bx"], best["bz"], "o-", ms=3, label="ball")
    for k in range(0, 21, 2):
        way.plot([best["cx"][k], best["bx"][k]], [best["cz"][k], best["bz"][k]], color="gray", lw=0.5)
    way.set(xlabel="x (m)", ylabel="z (m)", aspect="equal")
    way.legend()
    force.step(best.t[:-1], best["force.string"], where="post")
    force.set(xlabel="t (s)", ylabel="multiplier of 1 - |d|² over dt (N/m)")
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
