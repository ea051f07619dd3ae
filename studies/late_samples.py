"""Nonlinear MPC whose solver is late at random: the loop goes on, by the last plan or a law, and counts.

The cart-pole of `mpc_cartpole`, swung up and held at 50 Hz. A sample's program takes an exponentially
distributed time; what takes longer than a tenth of a sample is late there, and what takes longer than a
sample keeps the solver busy at the next ones. Pushes past a hard limit of the cart make programs without an
answer.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from studies.harness import Claim, Report, Study, at_least, at_most
from studies.mpc_cartpole import BOUND, DT, HANGING, SETTLED, Q, R, cart, problem, rk4
from vioc.control import ClosedLoop, NonlinearMPC, Problem, Status, dlqr, equilibrium, quadratic

DEADLINE = 0.1 * DT  # s
SHARES = (0.0, 0.1, 0.3, 0.5, 0.7)  # of programs that take longer than it
STEPS, SEEDS = 150, 12
NOISE = 1e-4  # variance of what disturbs every state at every sample
WALL = 0.5  # m, to either side of the cart
PUSH = 2.5e-3  # variance, likewise, at the wall

STUDY = Study(
    __file__,
    "nonlinear MPC whose solver is late at random, or whose programs have no answer",
    counted=Claim("late samples counted against those drawn, all runs: difference", at_most(0)),
    stopped=Claim("loops that stopped", at_most(0)),
    none=Claim("no sample late: share of runs that settle", at_least(1.0)),
    third=Claim("a third of programs late: share of runs that settle, the last plan goes on", at_least(0.9)),
    late=Claim("likewise: share of samples without an answer of their own"),
    most=Claim("seven in ten late: share that settles", full_only=True),
    most_late=Claim("likewise: share of samples without an answer of their own", full_only=True),
    law=Claim("a third late, held upright by a regulator meanwhile: share that stays", at_least(1.0)),
    refused=Claim("pushed past a hard wall: samples without an answer", at_least(1)),
    named=Claim('of these, proved "infeasible"', at_least(1)),
    went=Claim("likewise: samples taken", at_least(100)),
    soft=Claim("the same with a soft wall: samples without an answer", at_most(0)),
)


class Clock:
    """Two calls a program: what passes between them is drawn."""

    def __init__(self, share: float, seed: int):
        self.rng, self.now, self.calls = np.random.default_rng(seed), 0.0, 0
        self.mean = -DEADLINE / np.log(share) if share else 0.0
        self.drawn: list[float] = []

    def __call__(self) -> float:
        if self.calls % 2:
            self.drawn.append(float(self.rng.exponential(self.mean)) if self.mean else 0.0)
            self.now += self.drawn[-1]
        self.calls += 1
        return self.now

    @property
    def late(self) -> int:
        """Samples that have no answer of their own: those of late programs, and those they keep busy."""
        k, count = 0, 0
        for seconds in self.drawn:
            taken = 1 if seconds <= DEADLINE else max(1, int(np.ceil(seconds / DT)))
            missed = 0 if seconds <= DEADLINE else min(taken, STEPS - k)
            k, count = k + taken, count + missed
        return count


@STUDY.body
def run(report: Report) -> None:
    f = cart(rk4)
    stated, seeds = problem(f), 1 if report.quick else SEEDS
    upright = dlqr(f, equilibrium(f, x=0.0, theta=0.0), Q * DT, R * DT)
    wrong = stopped = 0
    shares = (0.0, 0.3) if report.quick else SHARES
    table: dict[float, tuple[float, float]] = {}
    drawn: dict[float, Any] = {}
    for share in shares:
        settled, missed = 0, 0
        for seed in range(seeds):
            clock = Clock(share, seed)
            law = NonlinearMPC(stated, deadline=DEADLINE, clock=clock)
            loop = ClosedLoop(f, law, bounds={"force": BOUND}, W=NOISE)
            found = loop.simulate(HANGING, STEPS, noise=seed)
            stopped += len(found) < STEPS
            count = found.memory.counts.get(Status.LATE, 0)
            wrong += abs(count - clock.late)
            missed += count
            settled += bool(np.abs(found["theta"][-25:]).max() < 4 * SETTLED)
        table[share], drawn[share] = (settled / seeds, missed / seeds / STEPS), found
    report.measure(counted=wrong, none=table[0.0][0], third=table[0.3][0], late=table[0.3][1])
    if not report.quick:
        report.measure(most=table[0.7][0], most_late=table[0.7][1])
    stays = 0
    for seed in range(seeds):
        law = NonlinearMPC(stated, deadline=DEADLINE, clock=Clock(0.3, seed), fallback=upright)
        found = ClosedLoop(f, law, bounds={"force": BOUND}, W=NOISE).simulate(np.zeros(4), STEPS, noise=seed)
        stays += bool(np.abs(found["theta"]).max() < 0.5)
    report.measure(law=stays / seeds)
    refused, named, went = pushed(f, {})
    report.measure(refused=refused, named=named, went=went, stopped=stopped, soft=pushed(f, {"x": 1e4})[0])
    draw(report, table, drawn)


def pushed(f: Any, soft: dict[str, float]) -> tuple[int, int, int]:
    """Upright near a wall, pushed at random: samples without an answer, those proved infeasible, all."""
    cost = quadratic(f, Q=Q, R=R, Qf=Q, goal={"x": 0.9 * WALL})
    bounds = {"u.force": BOUND, "x": (-WALL, WALL)}
    law = NonlinearMPC(Problem(f, cost, 20, bounds=bounds), soft=soft)
    start = np.array([0.9 * WALL, 0.0, 0.0, 0.0])
    loop = ClosedLoop(f, law, bounds={"force": BOUND}, W={"x": 0.0, "theta": 0.0, "v": PUSH, "w": 0.0})
    found = loop.simulate(start, 100, noise=0)
    counts = found.memory.counts
    none = sum(v.fallback for v in found.memory.verdicts)
    return none, counts.get(Status.INFEASIBLE, 0), len(found)


def draw(report: Report, table: dict[float, tuple[float, float]], drawn: dict[float, Any]) -> None:
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    for share, found in drawn.items():
        left.plot(found.trajectory.t, found["theta"], lw=1, label=f"{100 * share:.0f} % of programs late")
    left.set(xlabel="t (s)", ylabel="theta (rad)", title="Swing-up, one seed")
    shares = list(table)
    right.plot(shares, [table[s][0] for s in shares], "o-", label="runs that settle")
    right.plot(shares, [table[s][1] for s in shares], "s--", label="samples without an answer")
    right.set(xlabel="share of programs that are late", ylabel="share", title="The last plan goes on")
    for axes in (left, right):
        axes.grid(alpha=0.3)
        axes.legend()
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
