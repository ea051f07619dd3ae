"""A double pendulum with geared motors and dry friction, and a Furuta pendulum, from noisy encoders.

The double pendulum is the one of dfki-ric-underactuated-lab/double_pendulum (C.1, model 1.0): two links,
two rotors behind gears of 6, viscous friction and Coulomb's as atan(100 w). Its equations are written out
here and integrated by scipy's DOP853 to 1e-10, with torques held for 2 ms; encoders err by 1 mrad at 500 Hz.
The model has twelve numbers, of which ten combinations are told; searches begin up to 30 % off. The Furuta
pendulum is that of `mhe_furuta`, its equations written out likewise, with encoders of 4096 counts a turn.

Beside: scipy's `least_squares` with differences, single shooting on the printed equations by CasADi's
Runge-Kutta steps of 1 ms: the same two records, starts, weights, free numbers and length of steps.
"""

from __future__ import annotations

import time
from typing import Any

import casadi as ca
import numpy as np
from scipy.integrate import solve_ivp
from scipy.optimize import least_squares

import vioc
from studies import mhe_furuta
from studies.harness import Claim, Report, Study, at_least, at_most
from vioc.errors import StepError
from vioc.identification import Record, identify

DT, STEP = 0.002, 0.001  # s: of samples, and of many searches
FINE, FINEST = 0.0005, 0.00025  # s, of steps that friction and the noise let be
NOISE = 1e-3  # rad
GEAR, GRAVITY = 6.0, 9.81
PUBLISHED = {
    "m1": 0.5234602302,
    "m2": 0.6255677234,
    "l1": 0.2,
    "r1": 0.2,
    "r2": 0.2556930544,
    "I1": 0.0318871996,
    "I2": 0.0508698481,
    "b1": 0.001,
    "b2": 0.001,
    "cf1": 0.16,
    "cf2": 0.12,
    "Ir": 6.287203963e-5,
}
OFF = 0.3  # of the starts, relative
LONG, SHORT = 10.0, 3.0  # s, of a record
STARTS, NEAR = 10, 0.01
FURUTA = {"mass": 0.08 * 1.07, "coulomb": 0.015 * 0.9, "viscous": 1e-3 * 1.1, "gain": 1.05}

STUDY = Study(
    __file__,
    "a double pendulum's ten numbers and a Furuta pendulum's four from noisy encoders",
    worst=Claim(
        "the ten that are told, masses known, steps of 0.25 ms: worst relative error",
        at_most(0.01),
        full_only=True,
        published="28 % and 10 % (an estimation example)",
    ),
    combined=Claim(
        "all twelve at once: worst error of the ten combinations told", at_most(0.01), full_only=True
    ),
    lost=Claim("directions that are not told, of twelve numbers", at_most(2)),
    named=Claim("numbers that are in them, by name, of the six m, r, I", at_least(6)),
    told=Claim("worst error of what is told: geometry, friction, rotor", at_most(0.02)),
    covered=Claim("errors of the ten over their deviations, worst", at_most(5.0), full_only=True),
    coarse=Claim("steps of 2 ms instead: worst error of the ten", full_only=True),
    doubted=Claim("steps of 2 ms: the report doubts them", at_least(1), full_only=True),
    aside=Claim(
        "record kept aside: rms of the prediction over the encoder's noise", at_most(1.2), full_only=True
    ),
    bodies=Claim("bodies found that are none", at_most(0)),
    seconds=Claim("time of the search, 10 numbers, 2 records of 10 s", unit="s", full_only=True),
    multiple=Claim(
        f"of {STARTS} starts 30 % off, ten within 1 % by multiple shooting", at_least(9), full_only=True
    ),
    single=Claim("the same by single shooting", full_only=True),
    peer=Claim("the same by scipy's least_squares with differences", full_only=True),
    own_seconds=Claim("time of a start, mean: multiple shooting", unit="s", full_only=True),
    single_seconds=Claim("single shooting", unit="s", full_only=True),
    peer_seconds=Claim("least_squares", unit="s", full_only=True),
    furuta=Claim("Furuta, 10 s of encoders: worst relative error of the four", at_most(0.01)),
    furuta_seconds=Claim("Furuta: processor time of the search", at_most(2.0), unit="s", full_only=True),
)


# -- the double pendulum ---------------------------------------------------------------------------


def rubs(k: Any, b1: Any, b2: Any, cf1: Any, cf2: Any) -> dict[str, Any]:
    """Viscous friction, and Coulomb's as printed."""
    pairs = ("q1", b1, cf1), ("q2", b2, cf2)
    return {q: -b * k.v(q) - c * ca.atan(100 * k.v(q)) for q, b, c in pairs}


def own_numbers(p: dict[str, float]) -> dict[str, float]:
    """The model's: moments about centres of mass in the place of those about joints."""
    about = {f"J{i}": p[f"I{i}"] - p[f"m{i}"] * p[f"r{i}"] ** 2 for i in "12"}
    return {n: v for n, v in p.items() if n[0] != "I" or n == "Ir"} | about


def double_pendulum(p: dict[str, float]) -> vioc.System:
    """Angles from hanging, q2 relative; the second motor's rotor turns by -6 q2 on the first link."""
    P = {n: vioc.P(n, v) for n, v in own_numbers(p).items()}
    rotor, J1, J2 = P["Ir"], P["J1"], P["J2"]
    link2 = vioc.ry("q2", mass=vioc.Mass(P["m2"], (J2, J2, 0.0), (0.0, 0.0, -1 * P["r2"])))
    link1 = vioc.ry("q1", mass=vioc.Mass(P["m1"], (J1, J1, 0.0), (0.0, 0.0, -1 * P["r1"])))[
        vioc.tz(0.0, name="rotor1", mass=vioc.Mass(0.0, (rotor * GEAR**2,) * 3)),
        vioc.ry("rotor2", mass=vioc.Mass(0.0, (rotor,) * 3)),
        vioc.tz(-1 * P["l1"])[link2],
    ]
    return vioc.System(
        link1,
        vioc.Gravity(0, 0, -GRAVITY),
        vioc.components.GearConstraint("rotor2", "q2", -GEAR),
        vioc.JointForce("q1", "u1"),
        vioc.JointForce("q2", "u2"),
        vioc.UserForce(rubs, (), tuple(P[n] for n in ("b1", "b2", "cf1", "cf2"))),
        name="double_pendulum",
    )


def printed(x: Any, u: Any, p: dict[str, Any]) -> Any:
    """(dq, dw) of the published equations."""
    q1, q2, w1, w2 = ca.vertsplit(x)
    c2, a = ca.cos(q2), p["l1"] * p["m2"] * p["r2"] * ca.sin(q2)
    geared, m2l1 = GEAR**2 * p["Ir"], p["m2"] * p["l1"]
    M12 = p["I2"] + m2l1 * p["r2"] * c2 - GEAR * p["Ir"]
    M11 = p["I1"] + p["I2"] + m2l1 * p["l1"] + 2 * m2l1 * p["r2"] * c2 + geared + p["Ir"]
    M22 = p["I2"] + geared
    pull = p["m2"] * p["r2"] * ca.sin(q1 + q2)
    g1 = (p["m1"] * p["r1"] + m2l1) * ca.sin(q1) + pull
    f1, f2 = (p[f"b{i}"] * w + p[f"cf{i}"] * ca.atan(100 * w) for i, w in (("1", w1), ("2", w2)))
    r1 = u[0] + 2 * w2 * a * w1 + w2 * a * w2 - GRAVITY * g1 - f1
    r2 = u[1] - w1 * a * w1 - GRAVITY * pull - f2
    det = M11 * M22 - M12**2
    return ca.vertcat(w1, w2, (M22 * r1 - M12 * r2) / det, (M11 * r2 - M12 * r1) / det)


def simulated(dx: Any, x: Any, u: Any, start: Any, U: np.ndarray, quick: bool) -> np.ndarray:
    """(N+1, nx): dx(x, u) by scipy's DOP853, with inputs that are held from sample to sample.

    In quick form by CasADi's Runge-Kutta steps of 0.1 ms, whose error is below a thousandth of the encoders'.
    """
    if quick:
        model = {"x": x, "p": u, "ode": dx}
        sample = ca.integrator("sample", "rk", model, 0.0, DT, {"number_of_finite_elements": 20})
        a, b = ca.MX.sym("a", x.numel()), ca.MX.sym("b", u.numel())
        run = ca.Function("step", [a, b], [sample(x0=a, p=b)["xf"]]).mapaccum("run", len(U))
        return np.vstack([start, np.array(run(start, U.T)).T])
    rate, rows = ca.Function("rate", [x, u], [dx]), [np.asarray(start, float)]
    for held in U:
        part = solve_ivp(
            lambda t, x, held=held: rate(x, held).full()[:, 0],
            (0, DT),
            rows[-1],
            method="DOP853",
            rtol=1e-10,
            atol=1e-12,
            first_step=DT / 4,
        )
        rows.append(part.y[:, -1])
    return np.array(rows)


def drive(seed: int, duration: float) -> np.ndarray:
    """Torques (N, 2): seven sines each."""
    rng, t = np.random.default_rng([19, seed]), (np.arange(round(duration / DT)) + 0.5) * DT
    rows = []
    for most in (3.0, 1.5):  # N m
        parts = [
            rng.normal() * np.sin(2 * np.pi * f * t + rng.uniform(0, 2 * np.pi))
            for f in (0.3, 0.7, 1.1, 1.7, 2.3, 3.1, 5.0)
        ]
        rows.append(most * sum(parts) / np.abs(sum(parts)).max())
    return np.array(rows).T


def record(seed: int, duration: float, quick: bool = False) -> Record:
    """From hanging at rest."""
    U, x, u = drive(seed, duration), ca.SX.sym("x", 4), ca.SX.sym("u", 2)
    q = simulated(printed(x, u, PUBLISHED), x, u, np.zeros(4), U, quick)[:, :2]
    y = q + NOISE * np.random.default_rng([7, seed]).standard_normal(q.shape)
    t = np.arange(len(q)) * DT
    return Record(t, {"q1": y[:, 0], "q2": y[:, 1]}, {"u1": U[:, 0], "u2": U[:, 1]}, name=f"record {seed}")


def started(seed: int, known: tuple[str, ...] = ()) -> dict[str, float]:
    """The model's numbers, each up to 30 % off."""
    rng, true = np.random.default_rng([3, seed]), own_numbers(PUBLISHED)
    return {n: v * (1 if n in known else 1 + rng.uniform(-OFF, OFF)) for n, v in true.items()}


def ten(p: dict[str, float]) -> dict[str, float]:
    """What torques and angles tell of the model's numbers."""
    I1, I2 = (p[f"J{i}"] + p[f"m{i}"] * p[f"r{i}"] ** 2 for i in "12")
    found = {"I1 + m2 l1^2": I1 + p["m2"] * p["l1"] ** 2, "I2": I2, "m2 r2": p["m2"] * p["r2"]}
    found["m1 r1 + m2 l1"] = p["m1"] * p["r1"] + p["m2"] * p["l1"]
    return found | {n: p[n] for n in ("l1", "Ir", "b1", "b2", "cf1", "cf2")}


def worst(found: dict[str, float], true: dict[str, float]) -> float:
    return max(abs(found[n] / v - 1) for n, v in true.items() if n in found)


# -- the Furuta pendulum ---------------------------------------------------------------------------


def furuta_rates(x: Any, u: Any, mass: Any, coulomb: Any, viscous: Any, gain: Any) -> Any:
    """Arm and pole (0 is upright) by Lagrange's equations of a turning rod with a rod at its end."""
    (reach, arm), (length, _) = mhe_furuta.ARM, mhe_furuta.POLE
    a, w = x[2], x[3]
    s, c = ca.sin(x[1]), ca.cos(x[1])
    turns = mhe_furuta.GEAR * mhe_furuta.CONSTANT
    M22, across = mass * length**2 / 3, 0.5 * mass * reach * length
    M11 = mhe_furuta.GEAR**2 * mhe_furuta.ROTOR + arm * reach**2 / 3 + mass * reach**2 + M22 * s**2
    M12 = -across * c
    torque = turns / mhe_furuta.RESISTANCE * (gain * u[0] - turns * a)
    torque -= coulomb * ca.tanh(a / mhe_furuta.SMOOTH) + viscous * a
    r1 = torque - 2 * M22 * s * c * w * a - across * s * w**2
    r2 = M22 * s * c * a**2 + mass * GRAVITY * length / 2 * s - mhe_furuta.BEARING * w
    det = M11 * M22 - M12**2
    return ca.vertcat(a, w, (M22 * r1 - M12 * r2) / det, (M11 * r2 - M12 * r1) / det)


def furuta(report: Report) -> Any:
    """Four numbers, each of the model off by 5 to 10 %, from encoders."""
    duration = LONG if not report.quick else 4.0
    t = np.arange(round(duration / DT) + 1) * DT
    U = sum(a * np.sin(2 * np.pi * f * t[:-1] + i) for i, (a, f) in enumerate([(3, 0.3), (2, 0.9), (2, 2.1)]))
    x, u, start = ca.SX.sym("x", 4), ca.SX.sym("u", 1), np.array([0.0, np.pi + 0.3, 0.0, 0.0])
    X = simulated(furuta_rates(x, u, *FURUTA.values()), x, u, start, U[:, None], report.quick)
    count = 2 * np.pi / mhe_furuta.COUNTS
    y = count * np.round(X[:, :2] / count)
    one = Record(t, {"arm": y[:, 0], "pole": y[:, 1]}, {"voltage": U})
    f = vioc.MidpointVI(mhe_furuta.furuta(), DT, wrap=("pole",))
    began = time.process_time()
    found = identify(f, one, list(FURUTA))
    report.measure(furuta=worst(found.values, FURUTA))
    if not report.quick:
        report.measure(furuta_seconds=time.process_time() - began)
    return found


# -- the peer --------------------------------------------------------------------------------------


def by_hand(records: list[Record], start: dict[str, float]) -> dict[str, float]:
    """Single shooting by scipy: starts of records and numbers free, Jacobian by differences."""
    names = [n for n in start if n not in ("m1", "m2")]
    x, u, p = ca.SX.sym("x", 4), ca.SX.sym("u", 2), ca.SX.sym("p", len(names))
    own = {**start, **dict(zip(names, ca.vertsplit(p), strict=True))}
    about = {f"I{i}": own[f"J{i}"] + own[f"m{i}"] * own[f"r{i}"] ** 2 for i in "12"}
    model = {"x": x, "p": ca.vertcat(u, p), "ode": printed(x, u, own | about)}
    sample = ca.integrator("sample", "rk", model, 0.0, DT, {"number_of_finite_elements": round(DT / STEP)})
    a, b = ca.MX.sym("a", 4), ca.MX.sym("b", 2 + len(names))
    step = ca.Function("step", [a, b], [sample(x0=a, p=b)["xf"]])
    runs = [step.mapaccum("run", len(one) - 1) for one in records]
    U = [np.array([one.inputs["u1"], one.inputs["u2"]]) for one in records]
    y = [np.array([one.measured["q1"], one.measured["q2"]]) for one in records]
    scale, first = np.array([abs(start[n]) for n in names]), 4 * len(records)

    def errors(z: np.ndarray) -> np.ndarray:
        found = []
        for i, (run, held, seen) in enumerate(zip(runs, U, y, strict=True)):
            numbers = np.tile((z[first:] * scale)[:, None], (1, held.shape[1]))
            X = np.array(run(z[4 * i : 4 * i + 4], np.vstack([held, numbers])))
            found.append((np.hstack([z[4 * i : 4 * i + 2, None], X[:2]]) - seen).ravel() / NOISE)
        return np.nan_to_num(np.concatenate(found), nan=1e6, posinf=1e6, neginf=-1e6)

    begin = np.concatenate([np.zeros(first), np.ones(len(names))])
    result = least_squares(errors, begin, x_scale="jac", max_nfev=100)
    return {**start, **dict(zip(names, result.x[first:] * scale, strict=True))}


# -- the study -------------------------------------------------------------------------------------


@STUDY.body
def run(report: Report) -> None:
    true = own_numbers(PUBLISHED)
    f = vioc.MidpointVI(double_pendulum(PUBLISHED), DT, backend="virtual" if report.quick else "compiled")
    records = [record(0, SHORT, True)] if report.quick else [record(seed, LONG) for seed in range(2)]
    step = STEP if report.quick else FINE
    noise = {"q1": NOISE**2, "q2": NOISE**2}
    every = identify(f, records, list(true), values=started(0), noise=noise, dt=step)
    parts = {n for d in every.unidentifiable for n in d.parts}
    report.measure(
        lost=len(every.unidentifiable),
        named=len(parts & {"m1", "r1", "J1", "m2", "r2", "J2"}),
        told=worst({n: every[n] for n in ("l1", "Ir", "cf1", "cf2")}, true),
        bodies=sum(not fine for fine in every.bodies.values()),
    )
    found_furuta = furuta(report)
    if not report.quick:
        masses = "m1", "m2"
        free, start = [n for n in true if n not in masses], started(0, masses)
        found = identify(f, records, free, values=start, noise=noise, dt=FINEST)
        rough = identify(f, records, free, values=start, noise=noise)
        aside = found.validate(record(5, LONG))[0]
        report.measure(
            combined=worst(ten(every.map.parameters), ten(true)),
            worst=worst(found.values, true),
            covered=max(abs(found[n] - true[n]) / found.std[n] for n in free),
            coarse=worst(rough.values, true),
            doubted=any("half the step" in d for d in rough.doubts),
            aside=max(aside.rms.values()) / NOISE,
            seconds=found.seconds,
        )
        starts(report, f, records, free, true)
    draw(report, every, found_furuta)


def starts(report: Report, f: Any, records: list[Record], free: list[str], true: dict[str, float]) -> None:
    """How often each search ends within 1 %, from ten starts; steps of 1 ms."""
    noise, methods = dict.fromkeys(("q1", "q2"), NOISE**2), ("multiple", "shooting", "peer")
    reached, times = dict.fromkeys(methods, 0), dict.fromkeys(methods, 0.0)
    for seed in range(STARTS):
        start = started(seed, ("m1", "m2"))
        for method in methods:
            began, values = time.perf_counter(), start
            try:
                if method == "peer":
                    values = by_hand(records, start)
                else:
                    found = identify(f, records, free, values=start, noise=noise, dt=STEP, method=method)
                    values = {**start, **found.values}
            except StepError as error:
                print(f"{method}, start {seed}: {error}")
            times[method] += (time.perf_counter() - began) / STARTS
            off = worst(ten(values), ten(true))
            print(f"{method}, start {seed}: {off:.2%}")
            reached[method] += off < NEAR
    report.measure(
        multiple=reached["multiple"],
        single=reached["shooting"],
        peer=reached["peer"],
        own_seconds=times["multiple"],
        single_seconds=times["shooting"],
        peer_seconds=times["peer"],
    )


def draw(report: Report, every: Any, found: Any) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 4, figsize=(16, 6), layout="constrained", sharex="col")
    every.fits[0].plot(ax=axes[:, :2])
    found.fits[0].plot(ax=axes[:, 2:])
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
