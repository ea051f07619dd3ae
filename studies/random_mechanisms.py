"""300 random trees and loops in steps of 1, 10 and 50 ms: which steps exist, and that each is the right root.

The mechanisms are those of `vioc.models.family`, undriven, each from its random start for a second. A run
ends where its next step does not exist. Every such step is followed by another route (`studies.branch`),
which has to see its branch of solutions fold back; so are the steps of every run that turn most, and those
that the kernel does not certify by itself, whose branch has to lead to the same end. These are held against a
hundred steps in their place, too: of 1 and 10 ms, a *wrong root* ends farther from them than they go (in the
metric of a mean mass matrix), and not where its branch leads. Right roots do so beside the pole of a chart,
where two angles turn by much and the body hardly, and some of 50 ms, as they are no approximation. "Singular
constraints" of these mechanisms would be a false verdict: their constraints are independent where they start,
and no rollout passes a singular position but by chance. Steps that the kernel leaves are mostly those of
spherical joints near the singularity of their chart.

Adaptive rollouts go on from where runs end. Equilibria: of the first 87 mechanisms, at rest where they start,
inputs at zero.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

import vioc
from studies.branch import Branch
from studies.harness import Claim, Report, Study, at_most
from vioc.control import equilibrium
from vioc.errors import OptimizationError, StepError
from vioc.models import RandomMechanism, mechanisms

COUNT, QUICK, OTHERS, AT_REST = 300, 3, 40, 87
QUICK_SIZE = 6  # variables of a mechanism in quick form, at most
STEPS = (0.001, 0.01, 0.05)  # s
DURATION = 1.0  # s
LOOKED_AT = 4  # steps of each run that are looked at because they turn most, and as many not certified
SAME = 1e-8  # rad and m, relative to 1 + |q|: ends that differ by less are one root
NEAR = 1e-3  # relative: lengths at which a branch folds that differ by less are one

STUDY = Study(
    __file__,
    "random trees and loops: steps that exist and their roots, steps that do not, equilibria",
    unshown=Claim("ends of runs that are no step whose branch folds back, by another route", at_most(0)),
    fold=Claim("lengths at which these fold against the errors' own, relative", at_most(NEAR)),
    root=Claim("steps looked at that are not shown to end where the branch leads", at_most(0)),
    apart=Claim("largest distance of these from that root, relative to 1 + |q|", at_most(SAME)),
    wrong=Claim("wrong roots among the steps of 1 and 10 ms looked at", at_most(0)),
    beside_poles=Claim("1 and 10 ms: right roots that end farther from a hundred steps than these go"),
    wrong_coarse=Claim("50 ms: steps that end farther from a hundred than these go, right roots or not"),
    farthest=Claim("1 and 10 ms: farthest end from a hundred steps, over their way"),
    farthest_coarse=Claim("50 ms: the same"),
    looked=Claim("steps looked at"),
    untaken=Claim("of these, steps without a hundred in their place, as one of them does not exist"),
    left=Claim("steps that need more than the kernel's certificate, of all", at_most(0.01), full_only=True),
    left_fine=Claim("of those of 1 and 10 ms"),
    left_coarse=Claim("of those of 50 ms"),
    fine=Claim("runs of 1 and 10 ms that come to a step that does not exist, of all"),
    coarse=Claim("runs of 50 ms, of all"),
    adaptive=Claim("runs of 1 and 10 ms that end in an error though adaptive, of all", at_most(0.01)),
    adaptive_coarse=Claim("runs of 50 ms, of all"),
    singular=Claim("verdicts of singular constraints", at_most(0)),
    runs=Claim("runs"),
    linear=Claim("LinearTimeVI, adaptive: runs of 10 ms that end in an error, of all", at_most(0.01)),
    linear_coarse=Claim("the same of 50 ms"),
    maximal=Claim("MaximalVI, without helical joints: the same of 10 ms", at_most(0.01)),
    maximal_coarse=Claim("the same of 50 ms"),
    others=Claim("runs of these two"),
    at_rest=Claim("equilibria not found", at_most(0)),
    tried=Claim("equilibria looked for"),
)


@dataclass
class Tally:
    """What came of the runs of one map class, by step length."""

    runs: Counter = field(default_factory=Counter)
    ended: Counter = field(default_factory=Counter)
    adaptive: Counter = field(default_factory=Counter)  # of these, those that end adaptively, too
    left: Counter = field(default_factory=Counter)  # steps that the kernel did not certify
    steps: Counter = field(default_factory=Counter)
    causes: Counter = field(default_factory=Counter)
    folds: list[float] = field(default_factory=list)  # shown, against the errors' own; infinite of others
    apart: list[float] = field(default_factory=list)  # ends from those of their branches
    distances: dict[float, list[float]] = field(default_factory=lambda: {dt: [] for dt in STEPS})
    wrong: Counter = field(default_factory=Counter)

    def share(self, counts: Counter, lengths: tuple[float, ...], of: Counter | None = None) -> float:
        of = self.runs if of is None else of
        return sum(counts[dt] for dt in lengths) / max(1, sum(of[dt] for dt in lengths))


def simulate(f: Any, m: RandomMechanism, lengths: tuple[float, ...], tally: Tally, look: bool) -> None:
    """The runs of a mechanism by a map."""
    names = m.system.variables
    q, v = (dict(zip(names, a, strict=True)) for a in (m.q, m.v))
    branch = Branch(f) if look else None
    for dt in lengths:
        g = f.with_dt(dt)
        x, steps = g.initial_state(q, v), round(DURATION / dt)
        tally.runs[dt] += 1
        ended = None
        try:
            run = g.rollout(x, steps=steps, warn=False)
        except StepError as error:
            run, ended = error.trajectory, error
            tally.ended[dt] += 1
            tally.causes[error.cause] += 1
            try:
                g.rollout(x, steps=steps, warn=False, adaptive=True)
            except StepError:
                tally.adaptive[dt] += 1
        if branch is None:
            continue
        left = np.flatnonzero(~certified(run))
        tally.left[dt] += len(left) + (ended is not None)
        tally.steps[dt] += len(run) + (ended is not None)
        if ended is not None:
            tally.folds.append(folds(branch, run, ended))
        for k in looked_at(run, left):
            tally.apart.append(apart(branch, run, k))
            tally.distances[dt].append(distance(run, k))
            tally.wrong[dt] += tally.distances[dt][-1] > 1 and not tally.apart[-1] <= SAME


def certified(run: vioc.Trajectory) -> np.ndarray:
    """A mask (N,) of the steps of a run that the kernel alone solves and certifies."""
    f, n = run.map, len(run)
    if not n:
        return np.zeros(0, bool)
    theta = np.tile(f.theta[:, None], (1, n))
    errors = f.kernel.function(run.x[:-1].T, run.u.T, run.t[None, :-1], run.step_lengths[None], theta)[2]
    return np.array(errors).ravel() <= f.kernel.tolerance


def folds(branch: Branch, run: vioc.Trajectory, error: StepError) -> float:
    """How far the length of a step that does not exist is from where its branch folds, relative."""
    f = run.map
    try:
        found = branch.follow(run.x[-1], np.zeros(f.nu), f.dt)
    except RuntimeError:
        return np.inf
    if found.end is not None or error.length is None:
        return np.inf
    return abs(error.length / (found.share * f.dt) - 1)


def looked_at(run: vioc.Trajectory, left: np.ndarray) -> list[int]:
    """Steps that move a variable most otherwise than the steps before them, and some that were `left`."""
    q = run.x[:, : len(run.map.system.variables)]
    turned = np.abs(np.diff(q, n=2, axis=0)).max(axis=1, initial=0.0)
    most = 1 + np.argsort(-turned)[:LOOKED_AT]
    some = left[np.argsort(-turned[np.maximum(left - 1, 0)])[:LOOKED_AT]] if len(turned) else left
    return sorted({*map(int, most[most < len(run)]), *map(int, some)})


def apart(branch: Branch, run: vioc.Trajectory, k: int) -> float:
    """How far step k ends from where its branch leads, relative to 1 + |q|; infinite where it folds."""
    f = run.map
    try:
        found = branch.follow(run.x[k], run.u[k], f.dt)
    except RuntimeError:
        return np.inf
    if found.end is None:
        return np.inf
    return float((np.abs(found.end - run.x[k + 1, : f.nd]) / (1 + np.abs(found.end))).max())


def distance(run: vioc.Trajectory, k: int) -> float:
    """How far step k ends from a hundred steps in its place, over the way that they go.

    Not a number where one of these does not exist, as where a chart is singular.
    """
    f, h = run.map, float(run.step_lengths[k])
    try:
        fine = f.rollout(run.x[k], np.repeat(run.u[k : k + 1], 100, axis=0), dt=h / 100, warn=False)
    except StepError:
        return np.nan
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
    members = mechanisms(COUNT)
    if report.quick:
        members = islice((m for m in members if len(m.system.variables) <= QUICK_SIZE), QUICK)
    own, linear, maximal = Tally(), Tally(), Tally()
    found = []
    for i, m in enumerate(members):
        f = vioc.MidpointVI(m.system, STEPS[0])
        simulate(f, m, STEPS, own, True)
        if i < AT_REST:
            found.append(rests(m, f))
        if i < OTHERS:
            simulate(vioc.LinearTimeVI(m.system, STEPS[1]), m, STEPS[1:], linear, False)
            if not any("TWIST" in repr(node.frame.transform) for node in m.system.nodes):
                simulate(vioc.MaximalVI(m.system, STEPS[1]), m, STEPS[1:], maximal, False)
    fine, middle, coarse = STEPS[:2], STEPS[1:2], STEPS[2:]
    near, far = (np.concatenate([own.distances[dt] for dt in some]) for some in (fine, coarse))
    looked = len(near) + len(far)
    near, far = (d[np.isfinite(d)] for d in (near, far))
    distances, folded, off = np.concatenate([near, far]), np.array(own.folds), np.array(own.apart)
    report.measure(
        unshown=int((~np.isfinite(folded)).sum()),
        fold=folded[np.isfinite(folded)].max(initial=0.0),
        root=int((off > SAME).sum()),
        apart=off[off <= SAME].max(initial=0.0),
        wrong=(wrong := sum(own.wrong[dt] for dt in fine)),
        beside_poles=int((near > 1).sum()) - wrong,
        wrong_coarse=int((far > 1).sum()),
        farthest=near.max(),
        farthest_coarse=far.max(),
        looked=looked,
        untaken=looked - len(distances),
        left_fine=own.share(own.left, fine, own.steps),
        left_coarse=own.share(own.left, coarse, own.steps),
        fine=own.share(own.ended, fine),
        coarse=own.share(own.ended, coarse),
        adaptive=own.share(own.adaptive, fine),
        adaptive_coarse=own.share(own.adaptive, coarse),
        singular=sum(t.causes["singular constraints"] for t in (own, linear, maximal)),
        runs=sum(own.runs.values()),
        linear=linear.share(linear.adaptive, middle),
        linear_coarse=linear.share(linear.adaptive, coarse),
        maximal=maximal.share(maximal.adaptive, middle),
        maximal_coarse=maximal.share(maximal.adaptive, coarse),
        others=sum(linear.runs.values()) + sum(maximal.runs.values()),
        at_rest=found.count(False),
        tried=len(found),
    )
    if not report.quick:
        report.measure(left=own.share(own.left, STEPS, own.steps))
    draw(report, own, distances)


def draw(report: Report, own: Tally, distances: np.ndarray) -> None:
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    places = np.arange(len(STEPS))
    labels = "come to a step that does not exist", "end though adaptive"
    for counts, offset, label in zip((own.ended, own.adaptive), (-0.2, 0.2), labels, strict=True):
        heights = [100 * counts[dt] / own.runs[dt] for dt in STEPS]
        left.bar(places + offset, heights, 0.38, label=label)
    left.set_xticks(places, [f"{1e3 * dt:g} ms" for dt in STEPS])
    left.set(title="runs", ylabel="%")
    left.legend()
    right.hist(np.log10(np.maximum(distances, 1e-8)), 40, color="C2")
    right.axvline(0.0, color="C3", label="as far as a hundred steps go")
    right.set(title="ends of steps looked at from a hundred", xlabel="log10 of the distance over the way")
    right.legend()
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
