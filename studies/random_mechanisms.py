"""300 random trees and loops in steps of 1, 10 and 50 ms: which runs end, why, and which steps are no motion.

The mechanisms are those of `studies.random_family`, undriven, each from its random start for a second. A
run ends where a step has no solution by any means, in parts or, to compare, whole (`rescue=True`). Of every
run the steps that turn most, and those in parts, are held against a hundred steps in their place: a *wrong
root* ends farther from them than they go (in the metric of a mean mass matrix). "Singular constraints" of
these mechanisms would be a false verdict: their constraints are independent where they start, and no
rollout passes a singular position but by chance.

Equilibria: of the first 87 mechanisms, at rest where they start, inputs at zero.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np

import vioc
from studies.harness import Claim, Report, Study, at_most
from studies.random_family import RandomMechanism, mechanisms
from vioc.control import equilibrium
from vioc.errors import OptimizationError, StepError

COUNT, QUICK, OTHERS, AT_REST = 300, 4, 40, 87
STEPS = (0.001, 0.01, 0.05)  # s
DURATION = 1.0  # s
LOOKED_AT = 4  # steps of each run that are held against a hundred
CAUSES = ("no convergence", "singular constraints", "singular M", "not finite")

STUDY = Study(
    __file__,
    "random trees and loops: runs that end, roots that are no motion, equilibria",
    fine=Claim("runs of 1 and 10 ms that end in an error, of all", at_most(0.01)),
    coarse=Claim("runs of 50 ms that end in an error, of all"),
    wrong=Claim("wrong roots among the steps of 1 and 10 ms looked at", at_most(0)),
    wrong_coarse=Claim("wrong roots among those of 50 ms", at_most(0), full_only=True),
    farthest=Claim("1 and 10 ms: farthest end from a hundred steps, over their way", at_most(1)),
    farthest_coarse=Claim("50 ms: the same"),
    singular=Claim("verdicts of singular constraints, in parts and whole", at_most(0)),
    runs=Claim("runs"),
    looked=Claim("steps looked at"),
    split_fine=Claim("steps of 1 and 10 ms taken in parts, of all"),
    split_coarse=Claim("steps of 50 ms taken in parts, of all"),
    whole_fine=Claim("the same runs in whole steps alone: of 1 and 10 ms that end in an error"),
    whole_coarse=Claim("of 50 ms"),
    **{f"whole_{c.replace(' ', '_')}": Claim(f"of these: {c}, runs") for c in CAUSES},
    linear=Claim("LinearTimeVI: runs of 10 and 50 ms that end in an error, of all", at_most(0.01)),
    maximal=Claim("MaximalVI, without helical joints: the same", at_most(0.01)),
    others=Claim("runs of these two"),
    at_rest=Claim("equilibria not found", at_most(0)),
    tried=Claim("equilibria looked for"),
)


@dataclass
class Tally:
    """What came of the runs of one map class, by step length."""

    runs: Counter = field(default_factory=Counter)
    ended: Counter = field(default_factory=Counter)
    whole: Counter = field(default_factory=Counter)  # by (dt, cause)
    split: Counter = field(default_factory=Counter)
    steps: Counter = field(default_factory=Counter)
    causes: Counter = field(default_factory=Counter)  # of runs that end though in parts
    distances: dict[float, list[float]] = field(default_factory=lambda: {dt: [] for dt in STEPS})

    def share(self, counts: Counter, lengths: tuple[float, ...], of: Counter | None = None) -> float:
        of = self.runs if of is None else of
        return sum(counts[dt] for dt in lengths) / max(1, sum(of[dt] for dt in lengths))


def simulate(f, m: RandomMechanism, lengths: tuple[float, ...], tally: Tally, look: bool) -> None:
    """The runs of a mechanism by a map."""
    names = m.system.variables
    q, v = (dict(zip(names, a, strict=True)) for a in (m.q, m.v))
    for dt in lengths:
        g = f.with_dt(dt)
        x, steps = g.initial_state(q, v), round(DURATION / dt)
        tally.runs[dt] += 1
        try:
            run = g.rollout(x, steps=steps, warn=False)
        except StepError as error:
            run = error.trajectory
            tally.ended[dt] += 1
            tally.causes[error.cause] += 1
        tally.split[dt] += len(run.splits)
        tally.steps[dt] += len(run)
        if look:
            tally.distances[dt] += [distance(run, k) for k in doubtful(run)]
            try:
                g.rollout(x, steps=steps, warn=False, rescue=True)
            except StepError as error:
                tally.whole[dt, error.cause] += 1


def doubtful(run: vioc.Trajectory) -> list[int]:
    """The steps in parts, and those that move a variable most otherwise than the steps before them."""
    q = run.x[:, : len(run.map.system.variables)]
    turned = np.abs(np.diff(q, n=2, axis=0)).max(axis=1, initial=0.0)
    most = 1 + np.argsort(-turned)[:LOOKED_AT]
    return sorted({*map(int, most[most < len(run)]), *run.splits})


def distance(run: vioc.Trajectory, k: int) -> float:
    """How far step k ends from a hundred steps in its place, over the way that they go."""
    f, h = run.map, float(run.step_lengths[k])
    fine = f.rollout(run.x[k], np.repeat(run.u[k : k + 1], 100, axis=0), dt=h / 100, warn=False)
    root = np.sqrt(f.lagrangian.mass_scale)
    way = np.linalg.norm(np.diff(fine.x[:, : f.nd], axis=0) * root, axis=1).sum()
    return float(np.linalg.norm((run.x[k + 1] - fine.x[-1])[: f.nd] * root) / way)


def rests(m: RandomMechanism, f: vioc.MidpointVI) -> bool:
    """Whether an equilibrium is found from the start, without inputs."""
    try:
        equilibrium(f, guess=f.initial_state(m.q), fixed=[f"u.{n}" for n in f.input_names])
    except OptimizationError:
        return False
    return True


@STUDY.body
def run(report: Report) -> None:
    count = QUICK if report.quick else COUNT
    own, linear, maximal = Tally(), Tally(), Tally()
    found = []
    for i, m in enumerate(mechanisms(count)):
        f = vioc.MidpointVI(m.system, STEPS[0])
        simulate(f, m, STEPS, own, True)
        if i < AT_REST:
            found.append(rests(m, f))
        if i < OTHERS:
            simulate(vioc.LinearTimeVI(m.system, STEPS[1]), m, STEPS[1:], linear, False)
            if not any("TWIST" in repr(node.frame.transform) for node in m.system.nodes):
                simulate(vioc.MaximalVI(m.system, STEPS[1]), m, STEPS[1:], maximal, False)
    fine, coarse = STEPS[:2], STEPS[2:]
    by_length, by_cause = Counter(), Counter()
    for (dt, cause), runs in own.whole.items():
        by_length[dt] += runs
        by_cause[cause] += runs
    near, far = (np.concatenate([own.distances[dt] for dt in some]) for some in (fine, coarse))
    distances = np.concatenate([near, far])
    report.measure(
        fine=own.share(own.ended, fine),
        coarse=own.share(own.ended, coarse),
        wrong=int((near > 1).sum()),
        farthest=near.max(),
        farthest_coarse=far.max(),
        singular=own.causes["singular constraints"] + by_cause["singular constraints"],
        runs=sum(own.runs.values()),
        looked=len(distances),
        split_fine=own.share(own.split, fine, own.steps),
        split_coarse=own.share(own.split, coarse, own.steps),
        whole_fine=own.share(by_length, fine),
        whole_coarse=own.share(by_length, coarse),
        **{f"whole_{c.replace(' ', '_')}": by_cause[c] for c in CAUSES},
        linear=linear.share(linear.ended, STEPS[1:]),
        maximal=maximal.share(maximal.ended, STEPS[1:]),
        others=sum(linear.runs.values()) + sum(maximal.runs.values()),
        at_rest=found.count(False),
        tried=len(found),
    )
    if not report.quick:
        report.measure(wrong_coarse=int((far > 1).sum()))
    draw(report, own, by_length, distances)


def draw(report: Report, own: Tally, whole: Counter, distances: np.ndarray) -> None:
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    places = np.arange(len(STEPS))
    for counts, offset, label in ((whole, -0.2, "whole steps alone"), (own.ended, 0.2, "in parts")):
        heights = [100 * counts[dt] / own.runs[dt] for dt in STEPS]
        left.bar(places + offset, heights, 0.38, label=label)
    left.set_xticks(places, [f"{1e3 * dt:g} ms" for dt in STEPS])
    left.set(title="runs that end in an error", ylabel="%")
    left.legend()
    right.hist(np.log10(np.maximum(distances, 1e-8)), 40, color="C2")
    right.axvline(0.0, color="C3", label="a wrong root")
    right.set(title="ends of doubtful steps from a hundred", xlabel="log10 of the distance over the way")
    right.legend()
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
