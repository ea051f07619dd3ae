"""A bicycle hops over 1.1 m: take-off and landing are found with the motion.

Two wheels keep their distance, a rider of 10 kg pushes each along the line to it.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import numpy as np

from studies import contact_direct
from studies.contact_library import Task, bunny_hop, unbalanced
from studies.harness import Claim, Report, Study, at_least, at_most, near
from vioc.control import Result
from vioc.errors import StepError

SOURCE = "CALIPSO.jl, examples/contact_implicit"
STARTS = 20

STUDY = Study(
    __file__,
    "a rider and two wheels hop over 1.1 m; when the wheels leave the ground is found",
    cost=Claim("cost", near(372.58, 0.1), source=SOURCE),
    peer=Claim("by hand, Scholtes' relaxation in IPOPT: cost", near(372.7, 0.2)),
    iterations=Claim("iterations, of all smoothings", at_most(300)),
    peer_iterations=Claim("by hand: iterations"),
    ms=Claim("time of the solver", unit="ms"),
    peer_ms=Claim("by hand: time of the solver", unit="ms"),
    replay=Claim("replay by the map, inputs alone: farthest from the plan, relative", at_most(1e-6)),
    products=Claim("gap x impulse at the end, J s", at_most(1e-8)),
    energy=Claim("energy less the work of all impulses, relative", at_most(1e-9)),
    air=Claim("steps of 10 that end with both wheels in the air", at_least(1)),
    apart=Claim("distance of the wheels along the way, off by", at_most(1e-9), unit="m"),
    starts=Claim(
        f"of {STARTS} random starts converge, replay within 1e-6, %", at_least(80.0), full_only=True
    ),
    start_iterations=Claim("their iterations, median", full_only=True),
    start_least=Claim("their costs: least", full_only=True),
    start_worst=Claim("their costs: most over least", full_only=True),
)


@STUDY.body
def run(report: Report) -> None:
    task = bunny_hop()
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
        air=int(((best["az"] > 1e-3) & (best["bz"] > 1e-3)).sum()),
        apart=float(np.abs(np.hypot(best["ax"] - best["bx"], best["az"] - best["bz"]) - 2).max()),
    )
    if not report.quick:
        starts(report, task)
    draw(report, best)


def disturbed(task: Task, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Places off by 0.3 m, forces by 30 N."""
    Q, U = task.guess
    return Q + 0.3 * random.standard_normal(Q.shape), U + 30.0 * random.standard_normal(U.shape)


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

    figure, (way, force) = plt.subplots(2, 1, figsize=(9, 4.5), height_ratios=(1, 2), layout="constrained")
    for k in range(11):
        at = {p: (best[f"{p}x"][k], best[f"{p}z"][k]) for p in "abr"}
        for a, b in ("ab", "ar", "br"):
            way.plot(*zip(at[a], at[b], strict=True), color="gray", lw=0.8)
    for p, name in (("a", "rear"), ("b", "front"), ("r", "rider")):
        way.plot(best[f"{p}x"], best[f"{p}z"], "o", ms=4, label=name)
    way.axhline(0, color="k", lw=0.8)
    way.set(xlabel="x (m)", ylabel="z (m)", aspect="equal")
    way.legend(fontsize=8, loc="upper center", ncol=3)
    for name in ("rear", "front", "rider"):
        force.step(best.t[:-1], best[f"force.{name}"], where="post", label=name)
    force.set(xlabel="t (s)", ylabel="normal force (N)")
    force.legend(fontsize=8)
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
