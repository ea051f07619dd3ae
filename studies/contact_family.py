"""100 random mechanisms that fall onto a floor and against stops: which runs end, and what contact leaves.

Trees and loops of `vioc.models.family` with a floor 0.15 m below the lowest of their bodies' tips, which
are spheres with friction, and stops at joints of one variable, 0.8 rad or m from the start. Undriven, for a
second, in steps of 1 and 10 ms, by `ContactVI`; where they have maximal coordinates, by `MaximalVI` beside.

A contact only takes energy. A sample within an impact reads the momentum before it, so the energy above the
start's is told of samples whose next step has no impulse larger than twice the weight's.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import numpy as np

import vioc
from studies.harness import Claim, Report, Study, at_least, at_most
from vioc.errors import StepError
from vioc.models import RandomMechanism, mechanisms

COUNT, QUICK = 100, 3
STEPS = (0.001, 0.01)  # s
DURATION, SOON = 1.0, 0.4  # s, the latter in quick form: what falls touches after 0.2 s
QUICK_SIZE = 8  # variables of a mechanism in quick form, at most
RADIUS, BELOW, ROOM = 0.05, 0.15, 0.8
FRICTION = 0.6
G = 9.81

STUDY = Study(
    __file__,
    "random trees and loops in contact: runs that end, gaps, friction, energy",
    ended=Claim("runs that end in an error, of all", at_most(0.01)),
    runs=Claim("runs"),
    touching=Claim("runs in which something touches, of all", at_least(0.5)),
    gap=Claim("least gap", at_least(-1e-9), "m, rad"),
    cone=Claim("largest friction over mu times normal force, less 1", at_most(1e-6)),
    product=Claim("largest gap times impulse of a step", at_most(1e-8), "m N s"),
    loops=Claim("largest violation of a loop", at_most(1e-8), "m"),
    gained=Claim("largest energy above that at the start, of what the run moves", at_most(0.05)),
    maximal=Claim("the same trees and loops by MaximalVI: runs that end in an error, of all"),
    others=Claim("of these runs"),
    faster=Claim("MaximalVI's time over ContactVI's, both in numpy"),
)


@dataclass
class Tally:
    """What came of the runs of one map class."""

    runs: int = 0
    ended: int = 0
    seconds: float = 0.0
    causes: Counter = field(default_factory=Counter)


def on_floor(m: RandomMechanism) -> vioc.System:
    """The mechanism with spheres at its tips, a floor below, and stops."""
    kinematics = vioc.Kinematics(m.system)
    tips = [n for n in m.system.frame_names if n.startswith("tip")]
    level = min(kinematics.position(tip, m.q)[2] for tip in tips) - RADIUS - BELOW
    floor = vioc.shapes.HalfSpace((0, 0, float(level)))
    spheres = [
        vioc.Contact.sphere(tip, RADIUS, ground=floor, friction=FRICTION, name=f"on-{tip}") for tip in tips
    ]
    stops = [
        vioc.JointLimits(n, float(q - ROOM), float(q + ROOM), name=f"stop-{n}")
        for n, q in zip(m.system.variables, m.q, strict=True)
        if "-" not in n
    ]
    return m.system.with_components(*spheres, *stops)


def simulate(f: Any, m: RandomMechanism, tally: Tally, duration: float) -> list[vioc.Trajectory]:
    """The runs of a mechanism by a map, as far as they go."""
    names, found = m.system.variables, []
    q, v = (dict(zip(names, a, strict=True)) for a in (m.q, m.v))
    for dt in STEPS:
        g = f.with_dt(dt)
        x = g.initial_state(q, v)
        tally.runs += 1
        before = time.process_time()
        try:
            run = g.rollout(x, steps=round(duration / dt), warn=False)
        except StepError as error:
            run = error.trajectory
            tally.ended += 1
            tally.causes[error.cause] += 1
        tally.seconds += time.process_time() - before
        found.append(run)
    return found


@dataclass(frozen=True)
class Looked:
    """Of a run of `ContactVI`; see the claims."""

    touches: bool
    gap: float
    cone: float
    product: float
    loops: float
    gained: float


def look(run: vioc.Trajectory) -> Looked:
    f = run.map
    names = [t.name for t in f.touches.all]
    at = [f.multiplier_names.index(n) for n in names]
    impulses, gaps = run.multipliers[:, at], f.gaps(run.x)
    rubbing = [n for n, t in zip(names, f.touches.all, strict=True) if t.cone.friction]
    excess = [run[f"friction.{n}"] / (FRICTION * run[f"force.{n}"]) - 1 for n in rubbing if len(run)] or [
        np.array([-1.0])
    ]
    energy = run["energy"]
    quiet = impulses.max(axis=1) < 2 * f.mass * G * f.dt
    moved = np.ptp(energy) + np.ptp(run["kinetic"])
    products = gaps[1:] * impulses
    loops = [np.abs(run[f"h.{n}"]).max() for n in f.system.constraint_names]
    return Looked(
        bool((impulses.max(axis=0) > 10 * np.sqrt(f.smoothing) * f.mass).any()),
        float(gaps.min()),
        float(np.max(excess)),
        float(products.max(initial=0.0)),
        max(loops, default=0.0),
        float((energy[:-1][quiet] - energy[0]).max(initial=0.0) / moved),
    )


@STUDY.body
def run(report: Report) -> None:
    members, duration = mechanisms(COUNT), DURATION
    if report.quick:
        small = (m for m in members if len(m.system.variables) <= QUICK_SIZE)
        members, duration = islice(small, QUICK), SOON
    own, maximal, beside = Tally(), Tally(), 0.0
    looked = []
    for m in members:
        system = on_floor(m)
        before = own.seconds
        looked += [look(r) for r in simulate(vioc.ContactVI(system, STEPS[0]), m, own, duration) if len(r)]
        if not report.quick and not any("TWIST" in repr(node.frame.transform) for node in m.system.nodes):
            simulate(vioc.MaximalVI(system, STEPS[0]), m, maximal, duration)
            beside += own.seconds - before
    report.measure(
        ended=own.ended / own.runs,
        runs=own.runs,
        touching=np.mean([r.touches for r in looked]),
        gap=min(r.gap for r in looked),
        cone=max(r.cone for r in looked),
        product=max(r.product for r in looked),
        loops=max(r.loops for r in looked),
        gained=max(r.gained for r in looked),
        maximal=maximal.ended / max(1, maximal.runs),
        others=maximal.runs,
        faster=maximal.seconds / max(beside, 1e-9),
    )
    draw(report, looked)


def draw(report: Report, looked: list[Looked]) -> None:
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    left.hist(np.log10([max(r.product, 1e-14) for r in looked]), 30)
    left.set(title="largest gap times impulse of each run", xlabel="log10, m N s", ylabel="runs")
    right.hist([1e3 * r.gained for r in looked], 30, color="C2")
    right.set(title="most energy above the start's, of what moves", xlabel="per mille", ylabel="runs")
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
