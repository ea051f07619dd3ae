"""Random states so fast that Newton's method can jump: is each step the root on its branch?

A step's equations have several roots where links whip around by radians within it. States of an arm, of
pendulums, of a closed chain, of a body on a spherical joint and of a free body are drawn at random. The step
of each is compared with its branch of solutions, which is followed for many states at once in the step's
length (`studies.branches`), and one by one in arclength (`studies.branch`) where this does not lead to the
step.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

import vioc
from studies.branch import Branch
from studies.branches import Branches
from studies.harness import Claim, Report, Study, at_most
from studies.impact_restitution import arm
from vioc.compile.evaluate import Evaluator
from vioc.errors import ConstraintError
from vioc.sweeps import sweep

# states of each case: the cheap ones are many, so that there are a million in all
MANY = {
    "arm": 100_000,
    "top": 100_000,
    "free body": 40_000,
    "loop": 10_000,
    "2 links": 250_000,
    "3 links": 250_000,
    "5 links": 100_000,
    "10 links": 150_000,
}
CHUNK, QUICK = 5_000, 40  # states of a task; states of a case in the quick form
# states of a case whose errors are compared with the branch, too: in the full and in the quick form
ERRORS = 300, 7
RATES = 10  # states of a loop with one configuration, whose closing takes long
SAME = 1e-8  # rad, relative to 1 + |q|: ends that differ by less are one root

STUDY = Study(
    __file__,
    "steps of fast random states beside their branches: wrong roots, and steps refused that exist",
    states=Claim("random states"),
    exist=Claim("share whose step exists"),
    wrong=Claim("steps that are another root than their branch leads to", at_most(0)),
    certified=Claim("of these, certified by the kernel alone", at_most(0)),
    apart=Claim("largest distance of the others from their root, relative to 1 + |q|", at_most(SAME)),
    errors=Claim("errors that are compared with the branch: those of the first states of each case"),
    refused=Claim("of these, though the branch leads to a step", at_most(0)),
    left=Claim("share of states that needs more than the kernel's certificate"),
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


def states(f: vioc.MidpointVI, speed: float, count: int, rng: np.random.Generator) -> np.ndarray:
    """Random states: any angles and rates, of a loop those nearest to them that keep it closed."""
    found: list[np.ndarray] = []
    while len(found) < count:
        q = rng.uniform(-np.pi, np.pi, f.nq)
        rates = speed * rng.standard_normal((RATES if f.nm else 1, f.nq))
        try:
            if f.nm:
                q = f.consistent_configuration(q).q
                rates = [vioc.project_velocity(f.system, q, v) for v in rates]
            found += [f.initial_state(q, v) for v in rates]
        except ConstraintError:  # the loop does not close near by
            continue
    return np.array(found[:count])


def compared(name: str, count: int, errors: int, rng: np.random.Generator) -> dict[str, Any]:
    """Steps of `count` random states of a case beside their branches; of errors, those of the first `errors`.

    Most branches are followed many at once. Where this does not lead to the step that the map takes, the
    branch is followed by itself in its arclength, which decides.
    """
    f, speed = cases()[name]
    X = states(f, speed, count, rng)
    ends = f.rollouts(X, steps=1, workers=1, raise_on_failure=False).x[:, 1, : f.nd]
    expected, taken = Branches(f).ends(X), np.isfinite(ends).all(axis=1)
    apart = distances(ends, expected)
    one, refused, unknown = Branch(f), 0, 0
    looked = ~taken & (np.arange(count) < errors)
    for i in np.flatnonzero((taken & ~(apart <= SAME)) | looked):
        try:
            end = one.follow(X[i], np.zeros(0), f.dt).end
        except RuntimeError:
            unknown, apart[i] = unknown + 1, 0.0
            continue
        refused += not taken[i] and end is not None
        apart[i] = np.inf if end is None else distances(ends[i : i + 1], end[None])[0]
    wrong = np.flatnonzero(taken & ~(apart <= SAME))
    kernel = Evaluator(f.kernel.function)
    error = kernel(X, np.zeros(0), np.zeros(1), np.array([f.dt]), f.theta)[2][:, 0, 0]
    certified = error <= f.kernel.tolerance
    right = apart[taken & (apart <= SAME)]
    return {
        "case": name,
        "states": count,
        "taken": int(taken.sum()),
        "wrong": len(wrong),
        "certified": int(certified[wrong].sum()),
        "apart": float(right.max(initial=0.0)),
        "errors": int(looked.sum()),
        "refused": refused,
        "left": int((~certified).sum()),
        "unknown": unknown,
    }


def distances(ends: np.ndarray, expected: np.ndarray) -> np.ndarray:
    """Largest distances of configurations (M, nd) from others, relative to 1 + |q|; infinite without one."""
    off = np.abs(ends - expected) / (1 + np.abs(expected))
    return np.where(np.isfinite(off).all(axis=1), off.max(axis=1), np.inf)


@STUDY.body
def run(report: Report) -> None:
    points = []
    for name, many in MANY.items():
        size, errors = (QUICK, ERRORS[1]) if report.quick else (CHUNK, ERRORS[0])
        for chunk in range(1 if report.quick else many // CHUNK):
            points.append({"name": name, "count": size, "errors": errors * (chunk == 0)})
    every = sweep(compared, points, seed=0, workers=0 if report.quick else None).values
    total = {key: sum(v[key] for v in every) for key in every[0] if key not in ("case", "apart")}
    report.measure(
        states=total["states"],
        exist=total["taken"] / total["states"],
        wrong=total["wrong"],
        certified=total["certified"],
        apart=max(v["apart"] for v in every),
        errors=total["errors"],
        refused=total["refused"],
        left=total["left"] / total["states"],
        unknown=total["unknown"],
    )
    draw(report, every)


def draw(report: Report, every: list[dict]) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    shares = []
    for name in MANY:
        mine = [v for v in every if v["case"] == name]
        count, taken, left = (sum(v[key] for v in mine) for key in ("states", "taken", "left"))
        shares.append(((taken + left) / count - 1, 1 - taken / count, 1 - left / count))
    followed, none, certified = 100 * np.array(shares).T
    below = np.zeros(len(MANY))
    for label, share in (
        ("certified by the kernel", certified),
        ("found by following the branch", followed),
        ("do not exist", none),
    ):
        axes.bar(list(MANY), share, bottom=below, label=label)
        below += share
    axes.set(ylabel="% of random states", title="Steps of fast states")
    axes.set_ylim(0, 118)  # room for the legend above the bars
    axes.legend(ncols=3, loc="upper center")
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
