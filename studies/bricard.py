"""Bricard's mechanism: one degree of freedom against the count of its constraints, and other redundant loops.

Five rods of 1 m and 1 kg along the edges of a cube, joined by six revolute joints, fall under gravity, as in
IFToMM's library of benchmarks of multibody dynamics. The loop's five constraints have rank four everywhere
on the motion: docs/maths/midpoint.md, "Redundant constraints". Beside it the same motion in one coordinate,
by scipy, and a family of arms of seven joints whose hands are held by more rods than they need.
"""

from __future__ import annotations

import warnings
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from scipy.integrate import solve_ivp

import vioc
from studies.harness import Claim, Report, Study, at_least, at_most, near
from vioc import (
    DistanceConstraint,
    Gravity,
    JointForce,
    Mass,
    MidpointVI,
    System,
    coincident,
    rx,
    ry,
    rz,
    tx,
    ty,
    tz,
)
from vioc.errors import RedundancyWarning

G = 9.81
STEPS = (0.02, 0.01, 0.005)
SECONDS = 10.0
FAMILY = 50

STUDY = Study(
    __file__,
    "Bricard's mechanism for 10 s: a redundant loop, forces of least norm, derivatives; arms on doubled rods",
    left_out=Claim("constraints left out, of five", near(1.0, 0.0)),
    kept=Claim("10 s: largest |h| of all five constraints", at_most(1e-12), unit="m"),
    band=Claim("band of the energy, steps of 0.01 s, over the potential energy's swing", at_most(1e-3)),
    shrinks=Claim("order at which the band shrinks", near(2.0, 0.1)),
    drift=Claim("mean energy of the last period less the first, over the band", at_most(0.05)),
    motion=Claim("order against the same motion in one coordinate, DOP853", near(2.0, 0.15)),
    least=Claim("forces of all constraints against the least-norm solution, relative", at_most(1e-9)),
    slopes=Claim(
        "A against differences of steps from the constraint manifold, relative, worst of 20", at_most(1e-7)
    ),
    choice=Claim("the motion with another constraint left out, after 1 s", at_most(1e-9), unit="rad"),
    family=Claim(
        f"arms of seven joints held by doubled rods, of {FAMILY}: move as those held by one", at_least(1.0)
    ),
)


@STUDY.body
def run(report: Report) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RedundancyWarning)
        f = MidpointVI(bricard(), 0.01)
    runs = [(g := f.with_dt(h)).rollout(g.initial_state(), steps=round(SECONDS / h)) for h in STEPS]
    bands = [np.ptp(r.energy) for r in runs]
    r = runs[1]
    slopes = np.log2(np.array(bands[:-1]) / bands[1:])
    period = period_of(r)
    report.measure(
        left_out=len(f.redundant),
        kept=max(np.abs(r[f"h.{n}"]).max() for n in f.system.constraint_names),
        band=bands[1] / np.ptp(r["potential"]),
        shrinks=slopes[np.argmax(np.abs(slopes - 2))],
        drift=abs(r.energy[-period:].mean() - r.energy[:period].mean()) / bands[1],
        least=least_norm(f, r),
        slopes=max(difference(f, x) for x in r.x[5::50][:20]),
        choice=other_choice(f),
    )
    exact = in_one_coordinate(f)
    errors = [abs(s["q1"][round(1.0 / h)] - exact) for s, h in zip(runs, STEPS, strict=True)]
    orders = np.log2(np.array(errors[:-1]) / errors[1:])
    report.measure(
        motion=orders[np.argmax(np.abs(orders - 2))],
        family=arms(2 if report.quick else FAMILY),
    )
    draw(report, r, f)


def bricard() -> System:
    """Joints at the corners of a cube, about the edge that neither rod lies along; one edge is the ground."""
    turns, edges = (ry, rz, rx, ry, rz), ((1, 0, 0), (0, -1, 0), (0, 0, 1), (-1, 0, 0), (0, 1, 0))
    tree = tx(0.5, name="end-axis")
    for i in reversed(range(5)):
        axis = int(np.argmax(np.abs(edges[i])))
        moments = tuple(0.0 if j == axis else 1 / 12 for j in range(3))
        mass = Mass(1.0, com=tuple(0.5 * e for e in edges[i]), inertia=moments)
        far = (tx, ty, tz)[axis](
            float(edges[i][axis]), **({"name": "end"} if i == 4 else {"name": f"rod{i}"})
        )
        tree = turns[i](f"q{i + 1}", mass=mass)[far[tree]]
    ground = tz(1.0, name="pin")[tx(0.5, name="pin-axis")]
    closed = coincident("end", "pin", name="point"), coincident("end-axis", "pin-axis", "yz", name="axis")
    return System(tree, ground, Gravity(0, -G, 0), closed, JointForce("q1", "torque"), name="bricard")


def period_of(r: vioc.Trajectory) -> int:
    """Samples from one turning point of q1 at the start's side to the next."""
    rate = r["v.q1"]
    turns = np.flatnonzero((rate[:-1] < 0) & (rate[1:] >= 0))
    return int(turns[0]) if len(turns) else len(r) // 4


def least_norm(f: MidpointVI, r: vioc.Trajectory) -> float:
    forces = np.array([r[f"force.{n}"] for n in f.system.constraint_names]).T
    worst = 0.0
    for k in range(1, len(r), 37):
        q = r.x[k, : f.nq]
        alone = -f.lagrangian.constraint_jacobian(q).T @ r.multipliers[k] / f.dt
        exact = np.linalg.pinv(f.whole.constraint_jacobian(q).T, rcond=1e-8) @ alone
        worst = max(worst, np.abs(forces[k] - exact).max() / np.abs(exact).max())
    return worst


def difference(f: MidpointVI, x: np.ndarray) -> float:
    """A along the constraint manifold, and B, against central differences of steps from points of it."""
    free, u = np.linalg.svd(f.whole.constraint_jacobian(x[: f.nq]))[2][-1], np.array([0.7])
    ends = []
    for e in (1e-5, -1e-5):
        q = f.consistent_configuration(x[: f.nq] + e * free).q
        ends.append(np.concatenate([q, x[f.nq :] + e]))  # and the momenta with it
    A, B = f.linearize(x, u)
    pairs = (
        (f.step(ends[0], u) - f.step(ends[1], u), A @ (ends[0] - ends[1])),
        (f.step(x, u + 1e-3) - f.step(x, u - 1e-3), B[:, 0] * 2e-3),
    )
    return max(float(np.abs(found - exact).max() / np.abs(exact).max()) for found, exact in pairs)


def other_choice(f: MidpointVI) -> float:
    g = MidpointVI(f.system, f.dt, redundant="point-x")
    one, other = (m.rollout(m.initial_state(), steps=round(1 / f.dt)) for m in (f, g))
    return float(np.abs(one.x - other.x)[:, : f.nq].max())


def in_one_coordinate(f: MidpointVI) -> float:
    """q1 after 1 s: m(s) ds^2/2 + V(s) along the curve h = 0 by its length s, in scipy."""
    lag = f.whole

    def flow(t: float, y: np.ndarray) -> np.ndarray:
        q, rate = y[: f.nq], y[f.nq]
        tangent = along(q)
        d = 1e-5
        mass = tangent @ lag.mass_matrix(q) @ tangent
        sides = []
        for e in (d, -d):
            p = f.consistent_configuration(q + e * tangent).q
            t_p = along(p)
            sides.append((t_p @ lag.mass_matrix(p) @ t_p, lag.potential_energy(p)))
        dmass, dV = ((a - b) / (2 * d) for a, b in zip(*sides, strict=True))
        return np.concatenate([tangent * rate, [-(0.5 * dmass * rate**2 + dV) / mass]])

    def along(q: np.ndarray) -> np.ndarray:
        tangent = np.linalg.svd(lag.constraint_jacobian(q))[2][-1]
        return tangent * np.sign(tangent[0])

    start = np.concatenate([np.zeros(f.nq), [0.0]])
    return float(solve_ivp(flow, (0, 1.0), start, "DOP853", rtol=1e-9, atol=1e-10).y[0, -1])


def arms(count: int) -> float:
    """Share of random arms with the hand on two to four rods that move as on one, in equal parts."""
    good = 0
    for seed in range(count):
        rng = np.random.default_rng(seed)
        extra = int(rng.integers(1, 4))
        lengths, axes = rng.uniform(0.2, 0.4, 7), rng.integers(0, 3, 7)
        tree: Any = tz(-lengths[-1], name="hand")
        for i in reversed(range(7)):
            below = tz(-lengths[i - 1])[tree] if i < 6 else tree
            tree = (rx, ry, rz)[axes[i]](f"q{i + 1}", mass=(1.0, 0.02, 0.03, 0.01))[below]
        anchor = rng.uniform(-0.3, 0.3, 3)
        post = tx(float(anchor[0]))[ty(float(anchor[1]))[tz(float(anchor[2] - 1.0), name="post")]]
        systems = [
            System(
                tree,
                post,
                Gravity(0, 0, -G),
                [DistanceConstraint("hand", "post", 0.8, name=f"rod{i}") for i in range(n)],
            )
            for n in (1, 1 + extra)
        ]
        one, more = (
            MidpointVI(systems[0], 0.005),
            MidpointVI(systems[1], 0.005, redundant=[f"rod{i}" for i in range(1, 1 + extra)]),
        )
        try:
            start = one.consistent_configuration(rng.uniform(-0.5, 0.5, 7)).q
            a, b = (m.rollout(m.initial_state(start), steps=60) for m in (one, more))
        except (vioc.errors.ConstraintError, vioc.StepError):
            continue
        share = a["tension.rod0"] / (1 + extra)
        same = np.abs(a.x - b.x).max() < 1e-9
        good += same and all(np.allclose(b[f"tension.rod{i}"], share, rtol=1e-8) for i in range(1 + extra))
    return good / count


def draw(report: Report, r: vioc.Trajectory, f: MidpointVI) -> None:
    figure, (angle, energy, forces) = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    for n in f.system.variables:
        angle.plot(r.t, r[n], label=n)
    angle.set(xlabel="t (s)", ylabel="angle (rad)", title="Joints")
    energy.plot(r.t, r.energy - r.energy[0])
    energy.set(xlabel="t (s)", ylabel="J", title="Energy less that of the start")
    for n in f.system.constraint_names:
        forces.plot(r.t[:-1], r[f"force.{n}"], label=n)
    forces.set(xlabel="t (s)", ylabel="N", title="Forces of all constraints, least norm", xlim=(0, 3))
    for ax in (angle, energy, forces):
        ax.grid(alpha=0.3)
    angle.legend()
    forces.legend()
    report.save(figure)
    report.frame(r, np.linspace(0.0, 2.0, 6), title="Bricard's mechanism")


if __name__ == "__main__":
    STUDY.main()
