"""Robust tracking: covariances steered, one gain for many mechanisms, tubes that are proven.

A 7-DOF arm under noise of its torques ends where it is asked with the standard deviations that are asked,
which Monte Carlo on the nonlinear map confirms, and so do random mechanisms, or it is proven that they
cannot. One gain holds a Furuta pendulum, and the arm, of masses and lengths that are not known, beside the
plain regulator on samples that neither was made for. A cart-pole does not leave its tube, in 1e5 samples.
"""

from __future__ import annotations

import time
from typing import Any

import casadi as ca
import numpy as np

import vioc
from studies import arm_reaching
from studies.harness import Claim, Report, Study, at_least, at_most, near
from vioc.compile.evaluate import Evaluator
from vioc.control import (
    dlqr,
    draw_parameters,
    feedback,
    lyapunov_level,
    robust_dlqr,
    verified_level,
    verified_tube,
)
from vioc.errors import OptimizationError, StepError
from vioc.models import mechanisms
from vioc.models.arm import MASSES

STEPS, DT = 40, 0.02  # of the arm, s
START, END = 0.03, 0.006  # rad, standard deviations at the start and asked at the end
NOISE = np.array([1.0, 1.0, 0.5, 0.5, 0.1, 0.1, 0.02])  # N m, of each torque at each step
GOAL = {"q1": 0.4, "q2": 0.8, "q4": -0.9, "q6": 0.5}  # rad
RUNS = 1000
FAMILY, QUICK, QUICK_SIZE = 100, 2, 8  # random mechanisms; in quick form, and their variables at most
SHRINK = 0.7  # of the deviations that they would have without feedback
MADE, FRESH, FEW = 40, 200, 50  # samples of parameters; fresh ones in quick form
FURUTA = {"bob": (0.02, 0.08), "length": (0.1, 0.3), "friction": (0.0, 0.003), "turned": (0.5e-3, 4e-3)}
SEEN = ("phi", "theta", "v.phi", "v.theta")
LINKS = {"forearm": (0.5, 4.0), "payload": (0.2, 5.0)}  # kg
TUBE, SAMPLES = 0.05, 100_000  # level of the starts

STUDY = Study(
    __file__,
    "covariance steering, one gain for many mechanisms, and tubes that are proven",
    reached=Claim("arm: largest final deviation of a joint over what was asked", at_most(1.0)),
    gap=Claim("its cost above the least that is possible, relative, at most", at_most(1e-6)),
    sampled=Claim(
        f"{RUNS} runs of the nonlinear map: deviation over what was predicted, the worst joint",
        near(1.0, 0.12),
        full_only=True,
    ),
    dearer=Claim("plain dlqr, scaled until it reaches them too: its cost over the least", at_least(1.0)),
    seconds=Claim("time of the design", unit="s"),
    verdicts=Claim("random mechanisms with inputs: share kept or proven unreachable", at_least(0.9)),
    kept=Claim("of them kept"),
    unreachable=Claim("of them proven unreachable"),
    untrue=Claim("kept, but not by a covariance that is propagated by itself", at_most(0)),
    furuta=Claim(f"Furuta, {FRESH} fresh samples: stable with the gain of {MADE} others", at_least(0.97)),
    furuta_plain=Claim("likewise with plain dlqr of the nominal one"),
    furuta_cost=Claim("mean cost where both are stable, plain over robust", at_least(1.0)),
    arm=Claim(f"arm, {FRESH} fresh masses: stable", at_least(0.97), full_only=True),
    arm_plain=Claim("likewise with plain dlqr", full_only=True),
    arm_cost=Claim("mean cost where both are stable, plain over robust", at_least(1.0), full_only=True),
    left=Claim("cart-pole: samples that leave their tube", at_most(0)),
    filled=Claim("the farthest sample at the end, over the tube's radius there", at_least(0.1)),
    level=Claim("balanced: proven reach of theta", unit="rad"),
    level_sampled=Claim("likewise by samples, no proof (lyapunov_level)", unit="rad", full_only=True),
)


@STUDY.body
def run(report: Report) -> None:
    steered = arm_steered(report)
    family(report)
    assessed = furuta(report)
    if not report.quick:
        arm_held(report)
    tube = cart_pole(report)
    draw(report, steered, assessed, tube)


def arm_steered(report: Report) -> feedback.SteeredCovariance:
    f = vioc.MidpointVI(vioc.models.seven_joint_arm(), DT)
    there = feedback.equilibrium(f, guess=f.state(GOAL), fixed=f.state_names)
    motion = dlqr(f, there, arm_reaching.weights(f), 0.01).rollout(f.initial_state(arm_reaching.START), STEPS)
    joints = [f"q{i}" for i in range(1, 8)]
    P0 = dict.fromkeys(joints, START**2)
    room = dict(final=dict.fromkeys(joints, END), W_u=NOISE**2, R=1.0)
    before = time.perf_counter()
    found = feedback.steer_covariance(motion, P0, **room)
    report.measure(seconds=time.perf_counter() - before)
    report.measure(
        reached=max(found.std(q)[-1] for q in joints) / END,
        gap=found.gap / found.cost,
        dearer=plain(found, P0),
    )
    if not report.quick:
        rng = np.random.default_rng(0)
        starts = np.zeros((RUNS, f.nx))
        starts[:, :7] = START * rng.standard_normal((RUNS, 7))
        noise = NOISE * rng.standard_normal((RUNS, STEPS, f.nu))
        K = found.regulator.K
        ends = [
            f.track(motion.x[0] + x, motion.x, motion.u + w, K).x[-1]
            for x, w in zip(starts, noise, strict=True)
        ]
        ratios = (np.array(ends) - motion.x[-1])[:, :7].std(axis=0) / [found.std(q)[-1] for q in joints]
        report.measure(sampled=ratios[np.abs(ratios - 1).argmax()])
    return found


def plain(found: feedback.SteeredCovariance, P0: Any) -> float:
    """Cost of the regulator with one weight on the joints at the end that is just large enough."""
    run = found.regulator.reference
    f = found.regulator.map

    def spread(weight: float) -> tuple[float, float]:
        law = dlqr(f, run, 0.0, 1.0, Qf={f"q{i}": weight for i in range(1, 8)})
        spread = feedback.covariance(run, P0, W_u=NOISE**2, law=law)
        return max(spread.std(f"q{i}")[-1] for i in range(1, 8)), float(np.einsum("kii->", spread.input))

    low, high = 1.0, 1e12
    for _ in range(30):
        middle = np.sqrt(low * high)
        low, high = (low, middle) if spread(middle)[0] <= END else (middle, high)
    return spread(high)[1] / found.cost


def family(report: Report) -> None:
    """Random mechanisms that fall from their starts, with feedback through the inputs that they have."""
    count = QUICK if report.quick else FAMILY
    kept = unreachable = untrue = asked = 0
    for _, system, q0, v0 in mechanisms(3 * count):
        if asked == count:
            break
        if report.quick and len(system.variables) > QUICK_SIZE:
            continue
        f = vioc.MidpointVI(system, 0.005)
        if f.nu == 0:
            continue
        try:
            run = f.rollout(f.initial_state(q0, v0), steps=20, warn=False)
        except StepError:
            continue
        asked += 1
        loose = feedback.covariance(run, 1e-6, W_u=1e-4)
        goal = {n: SHRINK * loose.std(n)[-1] for n in system.variables}
        try:
            found = feedback.steer_covariance(run, 1e-6, W_u=1e-4, final=goal)
        except OptimizationError as error:
            unreachable += "no gains keep" in str(error)
            continue
        kept += 1
        spread = feedback.covariance(run, 1e-6, W_u=1e-4, law=found)
        untrue += any(spread.std(n)[-1] > (1 + 1e-9) * most for n, most in goal.items())
    report.measure(
        verdicts=(kept + unreachable) / asked,
        kept=kept / asked,
        unreachable=unreachable / asked,
        untrue=untrue,
    )


def furuta(report: Report) -> dict[str, Any]:
    bob = vioc.tz(vioc.P("length", 0.2), mass=vioc.P("bob", 0.04))
    turned = vioc.Mass(0.1, (2e-3, 2e-3, vioc.P("turned", 1e-3)))  # it turns about z alone
    pendulum = vioc.tx(0.2)[vioc.rx("theta")[bob]]
    system = vioc.System(
        vioc.rz("phi", mass=turned)[pendulum],
        vioc.Gravity(0, 0, -9.81),
        vioc.JointForce("phi", "torque"),
        vioc.JointDamping("theta", vioc.P("friction", 1e-3)),
    )
    f = vioc.MidpointVI(system, 0.01)
    weights = {"phi": 1.0, "theta": 10.0, "v.phi": 0.01, "v.theta": 0.01}
    starts, count = {"phi": 0.01, "theta": 0.01}, FEW if report.quick else FRESH
    found, assessed = held(f, (f.initial_state(), None), weights, 100.0, FURUTA, SEEN, starts, count)
    report.measure(**{f"furuta{key}": value for key, value in assessed.items()})
    return found


def arm_held(report: Report) -> None:
    masses = [*MASSES]
    masses[4], masses[6] = vioc.P("forearm", masses[4]), vioc.P("payload", masses[6])
    f = vioc.MidpointVI(vioc.models.seven_joint_arm(masses), DT)
    x = f.initial_state(arm_reaching.START)
    held_by = feedback.equilibrium(f, guess=x, fixed=f.state_names)
    q, v = [f"q{i}" for i in range(1, 8)], [f"v.q{i}" for i in range(1, 8)]
    weights = dict.fromkeys(q, 1000.0) | dict.fromkeys(v, 1.0)
    starts = dict.fromkeys(q, 0.01)
    _, assessed = held(f, (x, held_by.u), weights, 0.01, LINKS, (*q, *v), starts, FRESH)
    report.measure(**{f"arm{key}": value for key, value in assessed.items()})


def held(
    f: Any, about: Any, Q: Any, R: float, spread: Any, outputs: tuple[str, ...], P0: Any, count: int
) -> tuple[dict[str, Any], dict[str, float]]:
    """One gain for samples, and the nominal regulator on the same outputs, on fresh ones."""
    gain = robust_dlqr(f, about, Q, R, draw_parameters(spread, MADE, seed=1), outputs=outputs, P0=P0)
    nominal = robust_dlqr(f, about, Q, R, [f], outputs=outputs, P0=P0)
    fresh = draw_parameters(spread, count, seed=2)
    own, other = gain.assess(fresh), gain.assess(fresh, nominal.K)
    both = own.stable & other.stable
    figures = {
        "": own.stable.mean(),
        "_plain": other.stable.mean(),
        "_cost": other.costs[both].mean() / own.costs[both].mean(),
    }
    return {"robust": own, "plain dlqr": other}, figures


def cart_pole(report: Report) -> dict[str, Any]:
    """Explicit, of the same model: RungeKutta."""
    f = vioc.RungeKutta(vioc.models.load("cart_pole"), DT)
    weights = [1.0, 10.0, 0.1, 1.0]
    balanced = dlqr(f, (f.initial_state(), None), weights, 1.0)
    motion = balanced.rollout(f.state(theta=0.5), 20 if report.quick else 100)
    regulator = dlqr(f, motion, weights, 1.0)
    tube = verified_tube(regulator, TUBE, cells=1 if report.quick else 2)
    count = 2000 if report.quick else SAMPLES
    x, u = f.symbols.x, f.symbols.u
    step = Evaluator(ca.Function("step", [x, u], [f.explicit(x, u, 0, f.dt, f.theta)[0]]))
    X, values = tube.draw(count, np.random.default_rng(3)), []
    for k in range(len(motion)):
        values.append(tube.value(k, X))
        X = step(X, motion.u[k] - f.difference(motion.x[k], X) @ regulator.K[k].T)[0][..., 0]
    values.append(tube.value(len(motion), X))
    outside = np.max(values, axis=0) > 1 + 1e-12
    report.measure(left=outside.sum(), filled=np.sqrt(values[-1].max()))
    proven = verified_level(balanced, cells=1 if report.quick else 3)
    report.measure(level=proven.reach("theta")[0])
    if not report.quick:
        report.measure(level_sampled=lyapunov_level(balanced, samples=5000, directions=50).reach["theta"])
    return {"t": motion.t, "theta": motion["theta"], "tube": tube, "values": values}


def draw(report: Report, steered: Any, assessed: dict[str, Any], tube: dict[str, Any]) -> None:
    import matplotlib.pyplot as plt

    figure, (spread, poles, around) = plt.subplots(1, 3, figsize=(15, 4.6), layout="constrained")
    t = steered.spread.trajectory.t
    for i in range(1, 8):
        spread.semilogy(t, steered.std(f"q{i}"), label=f"q{i}")
    spread.axhline(END, color="k", ls="--", lw=1, label="asked at the end")
    spread.set(xlabel="t (s)", ylabel="standard deviation (rad)", title="An arm steered")
    for name, found in assessed.items():
        poles.plot(np.sort(found.radii), label=f"{name}: {found.stable.sum()} stable")
    poles.axhline(1.0, color="k", lw=1)
    poles.set(xlabel="fresh samples, sorted", ylabel="largest pole", title="Furuta, one gain")
    low, high = (tube["theta"] + s * tube["tube"].reach("theta") for s in (-1, 1))
    around.fill_between(tube["t"], low, high, alpha=0.3, label="proven")
    around.plot(tube["t"], tube["theta"], label="reference")
    around.set(xlabel="t (s)", ylabel="theta (rad)", title="A tube about a cart-pole's motion")
    for axes in figure.axes:
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
