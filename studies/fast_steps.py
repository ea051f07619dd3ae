"""Random states so fast that Newton's method can jump: each step is the root on its branch, or there is none.

A step's equations have several roots where links whip around by radians within it. States of an arm, of
pendulums, of a closed chain, of a body on a spherical joint and of a free body are drawn at random; the step
of each is held against its branch of solutions, followed in its arclength (`studies.branch`).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

import vioc
from studies.branch import Branch
from studies.harness import Claim, Report, Study, at_most
from studies.impact_restitution import arm
from vioc.errors import ConstraintError, StepError

COUNT, QUICK = 2000, 7  # states of each case
SAME = 1e-8  # rad, relative to 1 + |q|: ends that differ by less are one root

STUDY = Study(
    __file__,
    "steps of fast random states: no wrong root, and no step refused that exists",
    states=Claim("random states"),
    exist=Claim("share whose step exists"),
    wrong=Claim("steps that are another root than their branch leads to", at_most(0)),
    certified=Claim("of these, certified by the kernel alone", at_most(0)),
    refused=Claim("errors, though the branch leads to a step", at_most(0)),
    apart=Claim("largest distance of the others from their root, relative to 1 + |q|", at_most(SAME)),
    left=Claim("share that needs more than the kernel's certificate"),
    unknown=Claim("states whose branch could not be followed", at_most(0)),
)


class Case(NamedTuple):
    """A map, and the standard deviation of its states' rates, rad/s and m/s."""

    f: vioc.MidpointVI
    speed: float


def cases() -> dict[str, Case]:
    limbs = vioc.System(*arm().frames, vioc.Gravity(0, 0, -9.81), name="arm")
    body = vioc.Mass(1.0, (0.05, 0.1, 0.12), (0.1, 0.0, 0.2))
    top = vioc.System(vioc.spherical("b", frame="b", mass=body), vioc.Gravity(0, 0, -9.81), name="top")
    flying = vioc.System(vioc.free("b", frame="b", mass=body), vioc.Gravity(0, 0, -9.81), name="free body")
    found = {
        "arm": Case(vioc.MidpointVI(limbs, 0.005), 30.0),
        "top": Case(vioc.MidpointVI(top, 0.05), 20.0),
        "free body": Case(vioc.MidpointVI(flying, 0.05), 40.0),
        "loop": Case(vioc.MidpointVI(vioc.models.load("closed_chain"), 0.02), 60.0),
    }
    for links, speed in ((2, 30.0), (3, 12.0), (5, 20.0), (10, 8.0)):
        pendulum = vioc.models.load("n_link_pendulum", links)
        found[f"{links} links"] = Case(vioc.MidpointVI(pendulum, 0.05), speed)
    return found


class Outcome(NamedTuple):
    """The outcome of the step from one state: what the branch says, and what the map does.

    Attributes
    ----------
    exists : bool or None
        Whether the branch leads to a step; None where it could not be followed.
    found : bool
        Whether the map has a step.
    certified : bool
        Whether its kernel certified one.
    apart : float
        How far this is from the branch's; infinite where only one of them is a step.
    """

    exists: bool | None
    found: bool
    certified: bool
    apart: float


def state(f: vioc.MidpointVI, speed: float, rng: np.random.Generator) -> np.ndarray:
    """A random state: any angles and rates, of a loop those nearest to them that keep it closed."""
    while True:
        q, v = rng.uniform(-np.pi, np.pi, f.nq), speed * rng.standard_normal(f.nq)
        try:
            if f.nm:
                q = f.consistent_configuration(q).q
                v = vioc.project_velocity(f.system, q, v)
            return f.initial_state(q, v)
        except ConstraintError:  # the loop does not close near by
            continue


def outcome(f: vioc.MidpointVI, branch: Branch, x: np.ndarray) -> Outcome:
    certified = float(f.kernel.function(x, [], 0.0, f.dt, f.theta)[2]) <= f.kernel.tolerance
    try:
        end = f.step(x)[: f.nd]
    except StepError:
        end = None
    try:
        expected = branch.follow(x, np.zeros(0), f.dt).end
    except RuntimeError:
        return Outcome(None, end is not None, certified, np.nan)
    apart = 0.0 if end is None and expected is None else np.inf
    if end is not None and expected is not None:
        apart = float((np.abs(end - expected) / (1 + np.abs(expected))).max())
    return Outcome(expected is not None, end is not None, certified, apart)


@STUDY.body
def run(report: Report) -> None:
    found: dict[str, list[Outcome]] = {}
    for i, (name, (f, speed)) in enumerate(cases().items()):
        branch, rng = Branch(f), np.random.default_rng(i)
        found[name] = []
        for _ in range(QUICK if report.quick else COUNT):
            found[name].append(outcome(f, branch, state(f, speed, rng)))
    every = [o for each in found.values() for o in each]
    wrong = [o for o in every if o.exists is not None and o.found and not o.apart <= SAME]
    right = [o.apart for o in every if o.exists and o.apart <= SAME]
    report.measure(
        states=len(every),
        exist=np.mean([bool(o.exists) for o in every]),
        wrong=len(wrong),
        certified=sum(o.certified for o in wrong),
        refused=sum(bool(o.exists) and not o.found for o in every),
        apart=max(right),
        left=np.mean([not o.certified for o in every]),
        unknown=sum(o.exists is None for o in every),
    )
    draw(report, found)


def draw(report: Report, found: dict[str, list[Outcome]]) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    below = np.zeros(len(found))
    for label, chosen in (
        ("certified by the kernel", lambda o: o.certified),
        ("found by following the branch", lambda o: o.found and not o.certified),
        ("do not exist", lambda o: not o.found),
    ):
        shares = np.array([100 * np.mean([chosen(o) for o in each]) for each in found.values()])
        axes.bar(list(found), shares, bottom=below, label=label)
        below += shares
    axes.set(ylabel="% of random states", title="Steps of fast states")
    axes.set_ylim(0, 118)  # room for the legend above the bars
    axes.legend(ncols=3, loc="upper center")
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
