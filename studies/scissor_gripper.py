"""Scissor tongs grasp a stone on the floor by friction and lift it: a closed loop with contact.

Two links from a hoist carry two bars that cross in a pin, the tips press the stone. What hangs closes the
tongs: statics (`normal`) says which torque or friction they need to hold it; the steps are asked the same.
Then `dmoc` finds closing, grip and lift, told only how high the stone shall be and that torque costs.
"""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

import casadi as ca
import numpy as np

import vioc
from studies.harness import Claim, Report, Study, at_least, at_most, near
from vioc import Contact, ContactVI, Gravity, K, Mass, P, System, UserForce
from vioc.compile import find_compiler
from vioc.control import Cost, Result, dmoc
from vioc.errors import StepError
from vioc.shapes import HalfSpace

G, MU, WEIGHT = 9.81, 0.6, 9.81
LINK, UPPER, LOWER, TIP = 0.1, 0.1, 0.2, 0.01  # m: of the links, of the bars above and below the pin; radius
LINK_MASS, BAR_MASS = 0.05, 0.2
STONE = (0.18, 0.1, 0.12)  # m
CLOSED = (STONE[0] / 2 + TIP) * UPPER / LOWER  # m, of the knees from the middle
OPEN = 0.055
DT, RISE, CLOSE, LIFT, HOLD = 0.01, 0.05, 0.5, 2.0, 0.5  # s, m
STEPS, PLAN, WIDE = 30, 0.05, 1e-2  # of the plan: steps, their length (s), where its search begins (m^2/s^2)
STARTS = 20

STUDY = Study(
    __file__,
    "scissor tongs, a closed loop, grasp and lift a stone by friction, also as dmoc finds; against statics",
    torque=Claim("least torque that lifts the stone, over that of statics", near(1.0, 0.05)),
    friction=Claim("least friction with which no torque is needed, over that of statics", near(1.0, 0.02)),
    press=Claim("force of a tip while the stone hangs, over that of statics", near(1.0, 1e-3)),
    lifted=Claim("the stone rises with the hoist, off by", at_most(1e-4), unit="m"),
    dropped=Claim("with 0.9 of that friction it rises by", at_most(0.5 * RISE), unit="m"),
    loop=Claim("opening of the pin along the way", at_most(1e-10), unit="m"),
    gap=Claim("least gap of tips and floor", at_least(0.0), unit="m"),
    products=Claim("gap x impulse, m N s", at_most(1e-8)),
    equal=Claim("numpy against C: farthest apart", at_most(1e-9), full_only=True),
    pace=Claim("steps a second in C"),
    plan_iterations=Claim("found by dmoc, from open tongs without a guess: iterations", at_most(300)),
    plan_ms=Claim("found: time of the solver", unit="ms"),
    plan_torque=Claim("found: torque while the stone hangs, over the least of statics", near(1.0, 0.01)),
    plan_height=Claim("found: the stone while it hangs, off by", at_most(1e-4), unit="m"),
    plan_replay=Claim("found: replay by the map, inputs alone, farthest from the plan", at_most(1e-6)),
    plan_products=Claim("found: gap x impulse, m N s", at_most(1e-8)),
    plan_loop=Claim("found: opening of the pin along the way", at_most(1e-9), unit="m"),
    starts=Claim(
        f"of {STARTS} random starts converge, replay within 1e-6, %", at_least(90.0), full_only=True
    ),
    start_iterations=Claim("their iterations, median", full_only=True),
    start_worst=Claim("their costs: most over least", full_only=True),
)


def spread(k: Any) -> dict[str, Any]:
    return {"l1": -k.u("squeeze"), "l2": k.u("squeeze")}


def tongs(dt: float = DT, **options: Any) -> ContactVI:
    """A hoist whose height is given, links l1, l2, bars b1, b2 in a pin, a stone (x, h, a) of 1 kg."""
    arms = []
    for i in (1, 2):
        rod = Mass.rod(BAR_MASS, UPPER + LOWER, com=(0, 0, -(UPPER + LOWER) / 2))
        ends = [vioc.tz(-UPPER, name=f"pin{i}"), vioc.tz(-UPPER - LOWER, name=f"tip{i}")]
        link = vioc.ry(f"l{i}", mass=Mass.rod(LINK_MASS, LINK, com=(0, 0, -LINK / 2)))
        arms.append(link[vioc.tz(-LINK)[vioc.ry(f"b{i}", mass=rod)[ends]]])
    stone = vioc.ry("a", name="stone", mass=Mass.box(WEIGHT / G, STONE))
    # a bar that hangs from the left crosses to the right
    sides = [HalfSpace(point=(s * STONE[0] / 2, 0, 0), normal=(s, 0, 0), frame="stone") for s in (1, -1)]
    corners = [(s * STONE[0] / 2, 0, -STONE[2] / 2) for s in (1, -1)]
    return ContactVI(
        System(
            vioc.tz(K("z"), name="hoist")[arms],
            vioc.tx("x")[vioc.tz("h")[stone]],
            Gravity(0, 0, -G),
            *vioc.coincident("pin1", "pin2", "xz", name="pin"),
            [
                Contact.sphere(f"tip{i}", TIP, ground=side, friction=P("mu", MU), name=f"tip{i}")
                for i, side in enumerate(sides, 1)
            ],
            [Contact.point("stone", at, friction=0.5, name=f"corner{i}") for i, at in enumerate(corners)],
            [vioc.JointDamping(n, 0.02) for n in ("b1", "b2")],
            UserForce(spread, inputs=("squeeze",)),
            name="tongs",
        ),
        dt,
        **options,
    )


def pose(knees: float = OPEN) -> dict[str, float]:
    """The tongs about the stone, their knees so far from the middle."""
    link, bar = np.arcsin(knees / LINK), np.arcsin(knees / UPPER)
    drop, middle = LINK * np.cos(link) + (UPPER + LOWER) * np.cos(bar), STONE[2] / 2
    angles = {"l1": link, "b1": -bar - link, "l2": -link, "b2": bar + link}
    return {"z": middle + drop, **angles, "x": 0.0, "h": middle, "a": 0.0}


def normal(torque: float) -> float:
    """Force of each tip on a stone that hangs, N, by virtual work of opening the knees by dw.

    The tips move out by (LOWER/UPPER) dw; by their rolling on the stone its friction acts r dbeta lower.
    """
    link, bar = np.arcsin(CLOSED / LINK), np.arcsin(CLOSED / UPPER)
    turn = 1 / (LINK * np.cos(link)), 1 / (UPPER * np.cos(bar))  # of links and bars, rad/m
    knee = LINK * np.sin(link) * turn[0]
    rises = [knee / 2, knee + (UPPER + LOWER) / 2 * np.sin(bar) * turn[1]]
    tip = knee + (UPPER + LOWER) * np.sin(bar) * turn[1] - TIP * turn[1]
    own = 2 * G * (LINK_MASS * rises[0] + BAR_MASS * rises[1])
    return float((2 * torque * turn[0] + WEIGHT * tip + own) / (2 * LOWER / UPPER))


def lift(f: ContactVI, torque: float, closing: float = 0.5) -> vioc.Trajectory:
    """The tongs close by a torque, then by another the hoist goes up, and holds."""
    low, high = pose()["z"], pose(CLOSED)["z"]
    t = DT * np.arange(1, round((CLOSE + LIFT + HOLD) / DT) + 1)
    s = np.clip((t - CLOSE) / LIFT, 0, 1)
    z = np.interp(t, [0, 0.6 * CLOSE], [low, high]) + RISE * s**3 * (10 - 15 * s + 6 * s * s)
    # from one torque to the other while the stone begins to hang
    squeeze = np.interp(t, [CLOSE + 0.5 * LIFT, CLOSE + LIFT], [closing, torque])
    x = f.initial_state(pose())
    x[f.state_names.index("p.h")] = -0.5 * f.dt * WEIGHT
    return f.rollout(x, np.column_stack([squeeze, z]))


def raised() -> np.ndarray:
    """How high the plan shall have the stone at its samples, m: on the floor, up, and there."""
    s = np.clip((np.arange(STEPS + 1) / STEPS - 0.35) / 0.35, 0, 1)
    return pose()["h"] + RISE * s**3 * (10 - 15 * s + 6 * s * s)


def grasp(f: ContactVI) -> dict[str, Any]:
    """From open tongs to a stone that hangs, by little torque and a slow hoist; nothing says what touches."""
    x, wanted = f.initial_state(pose()), ca.SX.sym("wanted")
    x[f.state_names.index("p.h")] = -0.5 * f.dt * WEIGHT
    miss = ((f.quantity("h") - wanted) / 0.005) ** 2
    effort = (f.symbols.u[0] / 0.5) ** 2 + 0.1 * (f.quantity("v.z") / 0.1) ** 2
    known = [(wanted, raised()[:, None])]
    cost = Cost(f, effort + miss, f.dt * miss, references=known)
    return dict(cost=cost, steps=STEPS, initial=x, bounds={"u.squeeze": 3.0, "v.z": 1.0}, smoothing=WIDE)


def least(holds: Any, low: float, high: float) -> float:
    for _ in range(12):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def risen(run: vioc.Trajectory) -> float:
    """How far the stone follows the hoist, which goes up by RISE, m."""
    return float(run["h"][-1] - run["h"][round(CLOSE / DT)])


@STUDY.body
def run(report: Report) -> None:
    f = tongs(backend="compiled" if find_compiler() else "virtual")
    held = lift(f, 0.5)
    begin = time.perf_counter()
    held = lift(f, 0.5)
    pace = len(held.u) / (time.perf_counter() - begin)
    needs = WEIGHT / 2 / MU, WEIGHT / 2 / normal(0.0)
    torque = (needs[0] - normal(0.0)) / (normal(1.0) - normal(0.0))
    numpy = lift(tongs(), 0.5) if not report.quick else held
    found = least(lambda u: risen(lift(f, u)) > 0.9 * RISE, 0.5 * torque, 2 * torque)
    slick = least(lambda mu: risen(lift(f.with_parameters(mu=mu), 0.0)) > 0.9 * RISE, 0.5, 1.0)
    names = [t.name for t in f.touches.all]
    report.measure(
        torque=found / torque,
        friction=slick / needs[1],
        press=held["force.tip1"][-1] / normal(0.5),
        lifted=abs(risen(held) - RISE),
        dropped=risen(lift(f.with_parameters(mu=0.9 * needs[1]), 0.0)),
        loop=opened(held),
        gap=min(held[f"gap.{n}"].min() for n in names),
        products=max((held[f"gap.{n}"][1:] * held[f"force.{n}"]).max() for n in names) * DT,
        pace=pace,
    )
    if not report.quick:
        report.measure(equal=float(np.abs(numpy.x - held.x).max()))
    found = planned(report, torque)
    draw(report, held, lift(f.with_parameters(mu=0.9 * needs[1]), 0.0), found)


def opened(run: Any) -> float:
    """How far the pin opens, m."""
    return float(np.hypot(run["pin1:x"] - run["pin2:x"], run["pin1:z"] - run["pin2:z"]).max())


def planned(report: Report, torque: float) -> Result:
    """The grip that `dmoc` finds, against the torque of statics."""
    f = tongs(PLAN)
    best = dmoc.solve(f, **grasp(f))
    again = best.rollout()
    assert best.converged and not again.feedback
    hangs = slice(round(0.75 * STEPS), round(0.87 * STEPS))  # before the end lets go
    report.measure(
        plan_iterations=best.iterations,
        plan_ms=1e3 * best.seconds,
        plan_torque=float(np.median(best["u.squeeze"][hangs])) / torque,
        plan_height=float(np.abs(best["h"] - raised())[hangs].max()),
        plan_replay=again.gap,
        plan_products=max(np.abs(p).max() for p in best.products().values()),
        plan_loop=opened(best),
    )
    if not report.quick:
        starts(report, f)
    return best


def starts(report: Report, f: ContactVI) -> None:
    """From guesses whose configurations are off by 0.05 rad and m, their torques by 0.3 N m."""
    found: list[Result] = []
    for seed in range(STARTS):
        random = np.random.default_rng(seed)
        x, moved = f.initial_state(pose()), 0.05 * random.standard_normal((STEPS + 1, f.nq))
        X = np.tile(x, (STEPS + 1, 1))
        X[:, : f.nq] += moved
        U = np.column_stack([0.3 * random.standard_normal(STEPS), X[1:, f.state_names.index("z")]])
        best = dmoc.solve(f, guess=(X, U), raise_on_failure=False, **grasp(f))
        if best.converged:
            with suppress(StepError):
                again = best.rollout()
                found += [best] * bool(again.gap <= 1e-6 and not again.feedback)
    costs = [best.cost for best in found]
    report.measure(
        starts=100.0 * len(found) / STARTS,
        start_iterations=float(np.median([best.iterations for best in found])),
        start_worst=max(costs) / min(costs),
    )


def draw(report: Report, held: vioc.Trajectory, lost: vioc.Trajectory, found: Result) -> None:
    import matplotlib.pyplot as plt

    figure, (way, force, plan) = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    corner = np.array([[1, 1], [1, -1], [-1, -1], [-1, 1], [1, 1]]) * [STONE[0] / 2, STONE[2] / 2]
    for k, shade in ((0, 0.3), (len(held.u), 1.0)):
        way.plot(*(corner + [held["x"][k], held["h"][k]]).T, color="tab:brown", alpha=shade)
        for i, s in ((1, -1), (2, 1)):
            knee = held["l1"][k] if i == 1 else held["l2"][k]
            top = np.array([0, held["z"][k]])
            bend = top + LINK * np.array([-np.sin(knee), -np.cos(knee)])
            tip = np.array([held[f"tip{i}:x"][k], held[f"tip{i}:z"][k]])
            way.plot(*np.array([top, bend, tip]).T, "o-", ms=3, color="tab:blue", alpha=shade)
            assert s * knee < 0
    way.axhline(0, color="k", lw=0.8)
    way.set(xlabel="x (m)", ylabel="z (m)", aspect="equal")
    for motion, label in ((held, "0.5 N m"), (lost, "no torque, 0.9 of the friction that needs")):
        force.plot(motion.t, motion["h"] - motion["h"][0], label=label)
    force.set(xlabel="t (s)", ylabel="the stone above its place (m)")
    force.legend(fontsize=8)
    plan.step(found.t[:-1], found["u.squeeze"], where="post", label="torque (N m)")
    plan.plot(found.t, 10 * (found["h"] - found["h"][0]), label="the stone above its place (dm)")
    plan.step(found.t[:-1], found["force.tip1"] / 10, where="post", label="force of a tip (10 N)")
    plan.set(xlabel="t (s)", ylim=(-0.05, 1.35), title="found by dmoc")
    plan.legend(fontsize=8, loc="upper left")
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
