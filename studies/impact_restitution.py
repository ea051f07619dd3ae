"""Restitution: a bouncing ball's closed form, Newton's cradle, random impacts with friction, an arm's hand.

Maths: docs/maths/contact_gradients.md, "Restitution".
"""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np

import vioc
from studies.harness import Claim, Report, Study, at_least, at_most
from vioc import Contact, ContactVI, Gravity, Mass, PairContact, System
from vioc.shapes import Sphere

DT, G, E = 0.01, 9.81, 0.9
DOWN = Gravity(0, 0, -G)
IMPACTS = 50
RANDOM = 12, 5_000

STUDY = Study(
    __file__,
    "restitution: 50 impacts of a ball, Newton's cradle, random impacts of arms, chains and boxes",
    impacts=Claim("impacts of a ball with e = 0.9, until 1 mm/s", at_least(IMPACTS), full_only=True),
    times=Claim("their times against the closed form", at_most(1e-6), unit="s"),
    heights=Claim("heights between them", at_most(1e-6), unit="m"),
    rest=Claim("speed of the gap at the end", at_most(1e-9), unit="m/s", full_only=True),
    cradle=Claim("five balls 1e-6 m apart: speeds after, off (0, 0, 0, 0, 1)", at_most(1e-9), unit="m/s"),
    together=Claim(
        "all touching, at once: largest off (-0.6, 0.4, 0.4, 0.4, 0.4)",
        at_most(1e-3),
        unit="m/s",
    ),
    together_energy=Claim("touching: energy after over before", at_most(1 + 1e-6)),
    random=Claim("random impacts", at_least(5_000), full_only=True),
    gained=Claim("largest energy after over before", at_most(1 + 1e-9)),
    entered=Claim("fastest that a contact closes after, over the fastest before", at_most(1e-6)),
    coned=Claim("friction beyond mu times the normal impulse, over the largest impulse", at_most(1e-6)),
    arm=Claim("7-joint arm on its hand and elbow: energy won, over that at the start", at_most(0.0)),
    arm_impacts=Claim("its impacts", at_least(2)),
    slopes=Claim("derivatives of its steps with impacts against differences, relative", at_most(1e-5)),
)


def ball(e: Any = E) -> System:
    foot = Contact.sphere("ball", 0.1, name="foot", restitution=e)
    return System(vioc.tz("z", name="ball", mass=Mass(2.0)), DOWN, foot, name="ball")


def cradle(count: int = 5) -> System:
    balls = [vioc.tx(f"x{i}", name=f"ball{i}", mass=Mass(1.0)) for i in range(count)]
    meets = [
        PairContact(f"ball{i}", Sphere(0.1), f"ball{i + 1}", Sphere(0.1), name=f"meet{i}", restitution=1.0)
        for i in range(count - 1)
    ]
    return System(*balls, *meets, name="cradle")


def arm(e: float = 0.7, mu: float = 0.3) -> System:
    """Seven joints, a ball for a hand and one for an elbow."""
    part: Any = vioc.tz(0.1, name="hand", mass=Mass.sphere(0.5, 0.05))
    for i in reversed(range(7)):
        joint = (vioc.rz, vioc.ry)[i % 2]
        length = 0.25 if i % 2 else 0.1
        link = joint(f"q{i}", name=f"link{i}", mass=Mass.rod(1.0, length, com=(0, 0, length / 2)))
        part = link[vioc.tz(length, name="elbow" if i == 3 else None)[part]]
    feet = [
        Contact.sphere(frame, 0.05, friction=mu, restitution=e, name=name)
        for frame, name in (("hand", "palm"), ("elbow", "rest"))
    ]
    return System(vioc.tz(0.5)[part], DOWN, feet, name="arm")


def box(e: float = 0.6, mu: float = 0.5) -> System:
    corners = Contact.box("box", (0.4, 0.5, 0.3), friction=mu, restitution=e, name="corner")
    return System(vioc.free("b", frame="box", mass=Mass.box(1.0, (0.4, 0.5, 0.3))), DOWN, corners, name="box")


def chain(e: float = 0.8, mu: float = 0.4, count: int = 4) -> System:
    """Planar, on feet in all its joints."""
    below: Any = None
    for i in reversed(range(count)):
        link = vioc.ry(f"q{i}", name=f"link{i}", mass=Mass.rod(1.0, 0.3, com=(0.15, 0, 0)))
        below = link[vioc.tx(0.3, name=f"end{i}")[below] if below else vioc.tx(0.3, name=f"end{i}")]
    feet = [
        Contact.sphere(f"end{i}", 0.05, friction=mu, restitution=e, name=f"foot{i}") for i in range(count)
    ]
    return System(vioc.tx("x", mass=Mass(0.1))[vioc.tz("z", mass=Mass(0.1))[below]], DOWN, feet, name="chain")


@STUDY.body
def run(report: Report) -> None:
    rng = np.random.default_rng(5)
    bounced = drop(report)
    swing(report)
    shots(report, rng)
    hand(report)
    figure, axis = plt.subplots()
    axis.plot(bounced.t, bounced["z"] - 0.1)
    axis.set(xlabel="t (s)", ylabel="height of the ball (m)")
    report.save(figure)


def impact_times(run: Any) -> np.ndarray:
    """Where parts of steps end."""
    ends = [run.t[k] + np.cumsum(s.lengths)[:-1] for k, s in run.splits.items()]
    return np.concatenate(ends) if ends else np.zeros(0)


def drop(report: Report) -> Any:
    f = ContactVI(ball(), DT)
    run = f.rollout(f.initial_state({"z": 1.1}), steps=200 if report.quick else 880)
    n = np.arange(IMPACTS)
    first = np.sqrt(2 / G)
    exact = first + 2 * first * np.concatenate([[0.0], np.cumsum(E ** n[1:])])
    found = impact_times(run)
    count = min(len(found), IMPACTS)
    speeds = np.concatenate([s.x[:-1, 1] for s in run.splits.values()]) / 2.0
    heights = speeds[:count] ** 2 / (2 * G)
    report.measure(
        times=np.abs(found[:count] - exact[:count]).max(),
        heights=np.abs(heights - E ** (2 * (n[:count] + 1))).max(),
    )
    if not report.quick:
        report.measure(impacts=len(found), rest=abs(run["gap.foot"][-1] - run["gap.foot"][-2]) / DT)
    return run


def swing(report: Report) -> None:
    f = ContactVI(cradle(), DT)
    found = {}
    for gap in (1e-6, 0.0):
        at = {f"x{i}": (0.2 + gap) * i - (0.1 if gap else 0.0) * (i == 0) for i in range(5)}
        run = f.rollout(f.initial_state(at, {"x0": 1.0}), steps=20)
        found[gap] = run.x[-1][5:], run["kinetic"][-1] / run["kinetic"][0]
    report.measure(
        cradle=np.abs(found[1e-6][0] - [0, 0, 0, 0, 1]).max(),
        together=np.abs(found[0.0][0] - np.array([-0.6, 0.4, 0.4, 0.4, 0.4])).max(),
        together_energy=found[0.0][1],
    )


def shots(report: Report, rng: np.random.Generator) -> None:
    """Impacts of random states, of a random choice of contacts, of any law."""
    count = RANDOM[0 if report.quick else 1]
    gained = entered = coned = 0.0
    makes = (arm, chain, box)[: 1 if report.quick else 3]
    maps = [ContactVI(m(), DT, impacts=law) for m in makes for law in ("newton", "poisson")]
    for f in maps:
        for _ in range(-(-count // len(maps))):
            q, v = rng.uniform(-1.2, 1.2, f.nq), rng.standard_normal(f.nd) * 3.0
            some = (rng.random(len(f.touches.all)) < 0.6).astype(float)
            x = f.initial_state(q, v)
            hit = f.bounces.impact.struck(q, x[f.nq :], 0 * some, some, some, f.theta)
            after = np.concatenate([q, hit.momenta])
            T = [0.5 * y[f.nq :] @ f.velocities(y) for y in (x, after)]
            gained = max(gained, T[1] / T[0])
            before, now = (f.bounces.closing(f, y) for y in (x, after))
            fast = np.abs(before).max()
            entered = max(entered, (-(now[some > 0])).max(initial=0.0) / fast)
            p = dict(zip(f.multiplier_names, hit.multipliers, strict=True))
            for t in f.touches.all:
                size = np.hypot(p[f"{t.name}.t1"], p[f"{t.name}.t2"])
                mu = float(np.ravel(f.touches.friction(f.theta))[0])
                coned = max(coned, (size - mu * p[t.name]) / np.abs(hit.multipliers).max())
    report.measure(gained=gained, entered=entered, coned=coned)
    if not report.quick:
        report.measure(random=count)


def hand(report: Report) -> None:
    f = ContactVI(arm(), 0.005)
    q = {"q1": 1.2, "q3": 0.6, "q5": 0.5, "q0": 0.3, "q2": 0.2}
    run = f.rollout(f.initial_state(q), steps=90 if report.quick else 300)
    ks = sorted(run.splits)
    worst = 0.0
    for k in ks[:2]:
        A, x, h = f.linearize_trajectory(run).A[k], run.x[k], 1e-6
        d = np.random.default_rng(1).standard_normal(f.nx)
        ahead, behind = (f.step(x + s * h * d, k=k) for s in (1, -1))
        difference = (ahead - behind) / (2 * h)
        worst = max(worst, np.abs(A @ d - difference).max() / np.abs(difference).max())
    report.measure(arm=run.energy[-1] / run.energy[0] - 1, arm_impacts=len(impact_times(run)), slopes=worst)


if __name__ == "__main__":
    STUDY.main()
