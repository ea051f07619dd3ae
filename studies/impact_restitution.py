"""Restitution: a bouncing ball's closed form, Newton's cradle, random impacts with friction, an arm's hand.

Maths: docs/maths/contact_gradients.md, "Restitution".
"""

from __future__ import annotations

import time
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

import vioc
from studies import peer_mujoco
from studies.harness import Claim, Report, Study, at_least, at_most
from vioc import Contact, ContactVI, Gravity, Mass, PairContact, System
from vioc.compile import find_compiler
from vioc.shapes import Sphere

DT, G, E = 0.01, 9.81, 0.9
HAND_DT = 0.002  # s: a wrist that an impact leaves at 85 rad/s is not resolved by steps of 5 ms
DOWN = Gravity(0, 0, -G)
IMPACTS = 50
RANDOM = 12, 100_020

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
    random=Claim("random impacts", at_least(100_000), full_only=True),
    lost=Claim("impacts beside them that are not solved", at_most(20)),
    cost=Claim("time of one, states and checks included", at_most(10.0), unit="ms", full_only=True),
    gained=Claim("largest energy after over before", at_most(1 + 1e-9)),
    entered=Claim("fastest that a contact closes after, over the fastest before", at_most(1e-6)),
    coned=Claim("friction beyond mu times the normal impulse, over the largest impulse", at_most(1e-6)),
    mujoco_ball=Claim(
        "MuJoCo, ball: heights off the closed form, solref of this e, 0.1 ms", unit="m", full_only=True
    ),
    mujoco_coarse=Claim("the same with 1 ms", unit="m", full_only=True),
    mujoco_cradle=Claim("MuJoCo, cradle: speeds after, off (0, 0, 0, 0, 1)", unit="m/s", full_only=True),
    mujoco_energy=Claim("its energy after over before", full_only=True),
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
    if not report.quick:
        beside(report)
    figure, axis = plt.subplots()
    axis.plot(bounced.t, bounced["z"] - 0.1)
    axis.set(xlabel="t (s)", ylabel="height of the ball (m)")
    report.save(figure)


def drop(report: Report) -> Any:
    f = ContactVI(ball(), DT)
    run = f.rollout(f.initial_state({"z": 1.1}), steps=200 if report.quick else 880)
    n = np.arange(IMPACTS)
    first = np.sqrt(2 / G)
    exact = first + 2 * first * np.concatenate([[0.0], np.cumsum(E ** n[1:])])
    impacts = f.impacts_along(run)
    found, speeds = impacts.t, impacts.x[:, 1] / 2.0
    count = min(len(found), IMPACTS)
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


def beside(report: Report) -> None:
    """Contacts of MuJoCo are springs and dampers: solref = (-stiffness, -damping) of this restitution."""
    keys = "mujoco_ball", "mujoco_coarse", "mujoco_cradle", "mujoco_energy"
    mujoco = peer_mujoco.package()
    if mujoco is None:
        report.skip(peer_mujoco.INSTALL, *keys)
        return
    decay, stiffness = -np.log(E), 1e5  # 1/s^2: 3 mm deep at 1 m/s, as soft as 1 ms allows
    damping = 2 * np.sqrt(stiffness) * decay / np.hypot(np.pi, decay)

    def world(bodies: str, dt: float, gravity: float, damping: float) -> tuple[Any, Any]:
        own = f'solref="-{stiffness} -{damping}" solimp="0.99 0.99 0.001" condim="1"'
        text = f'<mujoco><option timestep="{dt}" gravity="0 0 -{gravity}"/><default><geom {own}/></default>'
        model = mujoco.MjModel.from_xml_string(f"{text}<worldbody>{bodies}</worldbody></mujoco>")
        return model, mujoco.MjData(model)

    dropped = (
        '<geom type="plane" size="5 5 1"/><body pos="0 0 1.1"><joint type="slide" axis="0 0 1"/>'
        '<geom type="sphere" size="0.1" mass="2"/></body>'
    )
    off = []
    for dt in (1e-4, 1e-3):
        model, data = world(dropped, dt, G, damping)
        path = np.empty((round(8.0 / dt), 2))
        for row in path:
            mujoco.mj_step(model, data)
            row[:] = data.qpos[0] + 1.0, data.qvel[0]
        tops = path[:-1, 0][(path[:-1, 1] > 0) & (path[1:, 1] <= 0)][:10]
        off.append(np.abs(tops - E ** (2 * np.arange(1, len(tops) + 1))).max())
    balls = (
        f'<body pos="{(0.2 + 1e-6) * i - 0.1 * (i == 0)} 0 0"><joint type="slide" axis="1 0 0"/>'
        '<geom type="sphere" size="0.1" mass="1"/></body>'
        for i in range(5)
    )
    model, data = world("".join(balls), 1e-4, 0.0, 0.0)
    data.qvel[0] = 1.0
    for _ in range(3000):
        mujoco.mj_step(model, data)
    v = data.qvel
    report.measure(mujoco_ball=off[0], mujoco_coarse=off[1])
    report.measure(mujoco_cradle=np.abs(v - [0, 0, 0, 0, 1]).max(), mujoco_energy=v @ v)


def shots(report: Report, rng: np.random.Generator) -> None:
    """Impacts of random states, of a random choice of contacts, of any law."""
    count = RANDOM[0 if report.quick else 1]
    gained = entered = coned = 0.0
    lost = 0
    makes = (arm, chain, box)[: 1 if report.quick else 3]
    backend = "compiled" if find_compiler() and not report.quick else "virtual"
    maps = [ContactVI(m(), DT, impacts=law, backend=backend) for m in makes for law in ("newton", "poisson")]
    each, began = -(-count // len(maps)), time.process_time()
    for f in maps:
        q, v = rng.uniform(-1.2, 1.2, (each, f.nq)), rng.standard_normal((each, f.nd)) * 3.0
        some = (rng.random((each, len(f.touches.all))) < 0.6).astype(float)
        x = np.array([f.initial_state(*row) for row in zip(q, v, strict=True)])
        hit = f.contact.impact.struck(q, x[:, f.nq :], 0 * some, some, some, 0 * some, f.theta)
        lost, good = lost + int((~hit.solved).sum()), hit.solved
        q, x, some, momenta, multipliers = (a[good] for a in (q, x, some, hit.momenta, hit.multipliers))
        after = np.hstack([q, momenta])
        T = [0.5 * np.sum(y[:, f.nq :] * f.velocities(y), axis=1) for y in (x, after)]
        gained = max(gained, (T[1] / T[0]).max())
        before, now = (f.contact.closing(f, y) for y in (x, after))
        fast = np.abs(before).max(axis=1, keepdims=True)
        entered = max(entered, (-now / fast)[some > 0].max(initial=0.0))
        p = dict(zip(f.multiplier_names, multipliers.T, strict=True))
        largest = np.abs(multipliers).max(axis=1)
        mu = np.ravel(f.touches.friction(f.theta))
        for t, own in zip(f.touches.all, mu, strict=True):
            beyond = np.hypot(p[f"{t.name}.t1"], p[f"{t.name}.t2"]) - own * p[t.name]
            coned = max(coned, (beyond[largest > 0] / largest[largest > 0]).max(initial=0.0))
    report.measure(gained=gained, entered=entered, coned=coned, lost=lost)
    if not report.quick:
        each_time = (time.process_time() - began) / (each * len(maps))
        report.measure(random=each * len(maps) - lost, cost=1e3 * each_time)


def hand(report: Report) -> None:
    f = ContactVI(arm(), HAND_DT)
    q = {"q1": 1.2, "q3": 0.6, "q5": 0.5, "q0": 0.3, "q2": 0.2}
    run = f.rollout(f.initial_state(q), steps=round((0.45 if report.quick else 1.5) / HAND_DT))
    impacts = f.impacts_along(run)
    worst = 0.0
    for k in sorted(set(impacts.k))[:2]:
        A, x, h = f.linearize_trajectory(run).A[k], run.x[k], 1e-6
        d = np.random.default_rng(1).standard_normal(f.nx)
        ahead, behind = (f.step(x + s * h * d, k=k) for s in (1, -1))
        difference = (ahead - behind) / (2 * h)
        worst = max(worst, np.abs(A @ d - difference).max() / np.abs(difference).max())
    report.measure(arm=run.energy[-1] / run.energy[0] - 1, arm_impacts=len(impacts.t), slopes=worst)


if __name__ == "__main__":
    STUDY.main()
