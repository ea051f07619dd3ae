"""Raibert's hopper: contact found with the motion.

`dmoc` finds contact by its homotopy. Beside it the direct form by hand for CasADi and IPOPT.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from studies import contact_peers
from studies.contact_problems import hop, hopper, raibert, standing
from studies.harness import Claim, Report, Study, at_least, at_most, near
from vioc.control import Result, dmoc

SOURCE = "optimization_dynamics, examples/comparisons/hopper.jl"
PRINTED = 26.866078758
STARTS = 20

STUDY = Study(
    __file__,
    "Raibert's hopper: the printed direct form, a periodic hop with bounded torque, 20 random starts",
    cost=Claim(
        "the printed problem: cost", at_most(1.01 * PRINTED), published=f"{PRINTED:.3f}", source=SOURCE
    ),
    iterations=Claim("its iterations, of all smoothings", at_most(300), published="110", source=SOURCE),
    seconds=Claim("its time in the solver", unit="s", published="2.6", source=SOURCE),
    peer_cost=Claim("the direct form by hand: cost, without its slack", near(17.22, 0.2)),
    peer_iterations=Claim("its iterations"),
    peer_seconds=Claim("its time in the solver", unit="s"),
    replay=Claim("replay by the map, inputs alone: farthest from the plan, relative", at_most(1e-6)),
    products=Claim("gap x impulse at the end, m N s", at_most(1e-8)),
    hop_replay=Claim(
        "a periodic hop of 50 steps, replayed: farthest from the plan", at_most(1e-6), full_only=True
    ),
    hop_iterations=Claim("its iterations", full_only=True),
    hop_flight=Claim("its share of time in the air", at_least(0.1), full_only=True),
    fine_replay=Claim("the same of 100 steps", at_most(1e-6), full_only=True),
    starts=Claim(
        f"of {STARTS} random starts of the printed problem, smoothing 1e-7, converge, %",
        at_least(90.0),
        full_only=True,
    ),
    untrue=Claim('of these, verdicts "converged" that the replay denies', at_most(0), full_only=True),
    start_iterations=Claim("their iterations, median", full_only=True),
    start_best=Claim("their costs: least", full_only=True),
    start_worst=Claim("their costs: most", full_only=True),
    peer_starts=Claim("by hand from starts like these, %", full_only=True),
    peer_best=Claim("by hand: least cost", full_only=True),
    peer_worst=Claim("by hand: most", full_only=True),
)


@STUDY.body
def run(report: Report) -> None:
    f = hopper()
    printed = dmoc.Problem(raibert(f))
    best = printed.solve(guesses(f))
    again = best.rollout(1)
    assert not again.feedback
    report.measure(
        cost=best.cost,
        iterations=best.iterations,
        seconds=best.seconds,
        replay=again.gap,
        products=max(np.abs(p).max() for p in best.products(1).values()),
    )
    peer = contact_peers.hopper()
    report.measure(
        peer_cost=peer.cost - contact_peers.PRICE * peer.slack,
        peer_iterations=peer.iterations,
        peer_seconds=peer.seconds,
    )
    if not report.quick:
        hops(report)
        starts(report, f.smoothed(1e-7))
    draw(report, best)


def guesses(f: Any, random: np.random.Generator | None = None) -> list[tuple[np.ndarray, np.ndarray]]:
    """The hopper on its foot; off by 0.1 m, rad, and inputs by a third of its weight, where at random."""
    X, U = standing(f, 20)
    if random is not None:
        X[:, : f.nq] += 0.1 * random.standard_normal((21, f.nq))
        U += 4.0 * random.standard_normal((20, 2))
    return [(X[:2], 0 * U[:1]), (X, U)]


def hops(report: Report) -> None:
    for steps, name in ((50, "hop"), (100, "fine")):
        f = hopper(1.0 / steps)
        best = dmoc.solve(f, guess=standing(f, steps), **hop(f, steps), raise_on_failure=False)
        gap = best.rollout().gap if best.converged else np.inf
        report.measure(**{f"{name}_replay": gap})
        if name == "hop":
            flight = float((best["gap.foot"] > 1e-4).mean())
            report.measure(hop_iterations=best.iterations, hop_flight=flight)


def starts(report: Report, f: Any) -> None:
    printed = dmoc.Problem(raibert(f))
    found = [
        printed.solve(guesses(f, np.random.default_rng(seed)), raise_on_failure=False)
        for seed in range(STARTS)
    ]
    said = [b for b in found if b.converged]
    good = [b for b in said if b.rollout(1).gap <= 1e-6]
    costs = [b.cost for b in good]
    report.measure(
        starts=100.0 * len(good) / STARTS,
        untrue=len(said) - len(good),
        start_iterations=float(np.median([b.iterations for b in good])),
        start_best=min(costs),
        start_worst=max(costs),
    )
    peers = [
        a for a in (contact_peers.hopper(seed) for seed in range(STARTS)) if a.converged and a.slack < 1e-4
    ]
    theirs = [a.cost - contact_peers.PRICE * a.slack for a in peers]
    report.measure(peer_starts=100.0 * len(peers) / STARTS, peer_best=min(theirs), peer_worst=max(theirs))


def draw(report: Report, best: Result) -> None:
    import matplotlib.pyplot as plt

    figure, (way, force) = plt.subplots(1, 2, figsize=(9, 4), layout="constrained")
    run = best.phases[1]
    way.plot(run["x"], run["z"], label="body")
    way.plot(run["foot:x"], run["foot:z"], label="foot")
    way.set(xlabel="x (m)", ylabel="z (m)")
    way.legend()
    force.step(run.t[:-1], run["force.foot"], where="post")
    force.set(xlabel="t (s)", ylabel="normal force (N)")
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
