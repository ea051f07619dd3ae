"""Free bodies without charts at order 4 to 8: slopes, a million long steps, random bodies and trees, times.

References: Jacobi's functions, and scipy's DOP853 on the textbook's equations of a top and of a quadrotor
that tumbles under its propellers. Momenta as in `free_bodies`, at ten times its steps.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import vioc
from studies.energy import total_drift
from studies.free_bodies import (
    ACROSS,
    ALONG,
    ARM,
    FASTEST,
    INERTIA,
    MASS,
    ROTORS,
    ROUNDS,
    SPIN,
    G,
    at_rest,
    backend,
    change,
    momentum,
    parts,
    quadrotor_system,
    random_mass,
    random_tree,
    spatial,
    turns,
)
from studies.free_bodies_exact import apart, hung_flight, quadrotor_flight, torque_free
from studies.harness import Claim, Report, Study, at_least, at_most, near
from vioc import GroupVI
from vioc.errors import StepError

STEPS, QUICK = 1_000_000, 5_000
BODY_DT, TOP_DT, QUADROTOR_DT = 0.1, 0.01, 0.02  # s, of two stages
HUBS = np.array([[0.2, 0, 0], [0, 0.2, 0], [-0.2, 0, 0], [0, -0.2, 0]])
FRAME, THRUST, DRAG = np.array([0.01, 0.012, 0.02]), 1e-5, 2e-7
INPUTS = np.array([[600.0, 450, 300, 500], [300, 700, 200, 400], [-200, 300, 500, 100], [400, 400, 450, 500]])
HELD = 0.2  # s, each input
TOP_TRUTH = hung_flight(MASS * G, ARM, np.array([ACROSS, ACROSS, ALONG]))
QUADROTOR_TRUTH = quadrotor_flight(1.0, FRAME, HUBS, THRUST, DRAG, G)
PINNED_TRUTH = hung_flight(G, -0.5, np.array([0.35, 0.45, 0.15]))

STUDY = Study(
    __file__,
    "free bodies without charts at order 4 to 8: slopes, 1e6 steps, random bodies and trees, times",
    body=Claim(
        "torque-free body, 2 to 4 stages, against Jacobi's functions: slope less the order, largest",
        at_most(0.2),
    ),
    top=Claim("Lagrange's top, 2 to 4 stages, against DOP853 on Euler's equations: likewise", at_most(0.2)),
    quadrotor=Claim(
        "quadrotor tumbling under its propellers, against DOP853 on Newton's and Euler's: likewise",
        at_most(0.2),
    ),
    pinned=Claim(
        "a free body with a point pinned, Lobatto's 2 to 4 points, against DOP853 on Euler's: likewise",
        at_most(0.2),
    ),
    pinned_kept=Claim("likewise: the pin at all samples, largest (m)", at_most(1e-12)),
    long_body=Claim(f"torque-free body, order 4, dt 100 ms: {ROUNDS}", at_most(1e-12)),
    long_body_band=Claim("likewise: band of the energy, over the energy", at_most(1e-7)),
    long_body_drift=Claim("likewise: |drift| / band", at_most(1e-3), full_only=True),
    long_top=Claim(f"Lagrange's top, order 4, dt 10 ms: vertical {ROUNDS}", at_most(1e-12)),
    long_top_spin=Claim("likewise: momentum about its axis", at_most(1e-12)),
    long_top_band=Claim("likewise: band of the energy, over the energy", at_most(1e-5)),
    long_top_drift=Claim("likewise: |drift| / band", at_most(1e-3), full_only=True),
    long_quadrotor=Claim(f"quadrotor with four rotors coasting, order 4, dt 20 ms: {ROUNDS}", at_most(1e-12)),
    long_quadrotor_band=Claim("likewise: band of the energy, over the energy", at_most(1e-7)),
    long_quadrotor_drift=Claim("likewise: |drift| / band", at_most(1e-3), full_only=True),
    long_quadrotor_poles=Claim("likewise: samples nearer than 0.01 to the zyx chart's singularity"),
    bodies=Claim(
        "random bodies, order 4, 10 s at 20 ms: share of runs that end, momentum to 1e-12 of its parts",
        at_least(1.0),
    ),
    trees=Claim("random floating trees with spherical joints: likewise", at_least(1.0)),
    loops=Claim(
        "random floating loops of spherical joints, Lobatto's order 4, 1 s at 20 ms: share of runs that end, "
        "closed to 1e-11 m",
        at_least(0.9),
    ),
    trees_order=Claim("likewise: order of the energy's band, median", near(4, 0.2)),
    trees_slopes=Claim("likewise: A against differences on the manifold, largest, relative", at_most(1e-7)),
    step_4=Claim("quadrotor's compiled step of order 4 over the midpoint rule's: processor time"),
    step_6=Claim("likewise, order 6"),
    step_composed=Claim("likewise, order 4 by composition"),
)


def slope(steps: Any, errors: list[float]) -> float:
    return float(np.polyfit(np.log(steps), np.log(errors), 1)[0])


# -- orders -----------------------------------------------------------------------------------------------


def body_system() -> vioc.System:
    return vioc.System(vioc.free("b", frame="body", mass=(1.0, *INERTIA)), name="body")


def top_system() -> vioc.System:
    mass = vioc.Mass(MASS, (ACROSS - MASS * ARM**2,) * 2 + (ALONG,), (0, 0, ARM))
    return vioc.System(vioc.spherical("t", frame="top", mass=mass), vioc.Gravity(0, 0, -G), name="top")


def propelled_system() -> vioc.System:
    hubs = [vioc.se3(tuple(place.tolist()), name=f"hub{i}") for i, place in enumerate(HUBS)]
    frame = vioc.free("b", "xyz", frame="body", mass=(1.0, *FRAME))
    turning = [
        vioc.components.Propeller(f"hub{i}", f"u{i}", (0, 0, 1), THRUST, DRAG * (-1) ** i) for i in range(4)
    ]
    weight = vioc.Gravity(0, 0, -G)
    return vioc.System(vioc.chain(frame, *[vioc.se3((0, 0, 0))[hubs]]), weight, *turning, name="quadrotor")


def body_errors(s: int, steps: tuple[float, ...]) -> list[float]:
    errors, made = [], GroupVI(body_system(), steps[0], stages=s)
    for h in steps:
        f = made.with_dt(h)
        run = f.rollout(f.initial_state(v=dict(zip(f.rates[3:], SPIN, strict=True))), steps=round(8 / h))
        found, (exact, _) = run.x[:, -3:] / INERTIA, torque_free(run.t, INERTIA, SPIN)
        exact[:, 1] *= np.sign(found[1, 1] * exact[1, 1])
        errors.append(float(np.abs(found - exact).max()))
    return errors


def top_errors(s: int, steps: tuple[float, ...]) -> list[float]:
    errors, still, inertia = [], np.zeros(3), TOP_TRUTH.inertia
    made = GroupVI(top_system(), steps[0], stages=s)
    for h in steps:
        f = made.with_dt(h)
        w = np.array([0.5, 0.0, 20.0])
        x = f.initial_state({"t-ry": 1.0}, dict(zip(f.rates, w, strict=True)))
        end = f.rollout(x, steps=round(1 / h)).x[-1]
        truth = TOP_TRUTH.after(np.concatenate([still, x[:4], still, w]), 1.0)
        errors.append(apart(np.concatenate([still, end[:4], still, end[4:] / inertia]), truth))
    return errors


def quadrotor_errors(s: int, steps: tuple[float, ...]) -> list[float]:
    errors, made = [], GroupVI(propelled_system(), steps[0], stages=s)
    for h in steps:
        f = made.with_dt(h)
        x = f.initial_state({"b-ry": 1.5}, dict(zip(f.rates, (0.5, -1.0, 2.0, 3.0, 5.0, 2.0), strict=True)))
        y = np.concatenate([x[:7], f.velocities(x)])
        end = f.rollout(x, np.repeat(INPUTS, round(HELD / h), axis=0)).x[-1]
        for u in INPUTS:
            y = QUADROTOR_TRUTH.after(y, HELD, u)
        errors.append(apart(np.concatenate([end[:7], f.velocities(end)]), y))
    return errors


def pinned_errors(s: int, steps: tuple[float, ...]) -> tuple[list[float], float]:
    """Errors, and how far the pin is off at most."""
    mass = vioc.Mass(1.0, (0.1, 0.2, 0.15))
    body = vioc.free("b", "xyz", frame="bob", mass=mass)[vioc.tz(0.5, name="top")]
    weight, pin = vioc.Gravity(0, 0, -G), vioc.coincident("top", "pivot")
    system = vioc.System(vioc.se3((0, 0, 0), name="pivot"), body, weight, *pin, name="pinned")
    w, still, errors, off = np.array([1.0, 0.5, 2.0]), np.zeros(3), [], 0.0
    made = GroupVI(system, steps[0], stages=s, points="lobatto")
    for h in steps:
        f = made.with_dt(h)
        moving = {"b-wx": w[0], "b-wy": w[1], "b-wz": w[2], "b-x": -0.25, "b-y": 0.5}  # w x (0, 0, -1/2)
        x = f.initial_state({"b-z": -0.5}, moving)
        run = f.rollout(x, steps=round(1 / h))
        end = np.concatenate([still, run.x[-1, 3:7], still, f.velocities(run.x[-1])[3:]])
        errors.append(apart(end, PINNED_TRUTH.after(np.concatenate([still, x[3:7], still, w]), 1.0)))
        off = max(off, *(float(np.abs(run[f"h.{name}"]).max()) for name in f.multiplier_names))
    return errors, off


def orders(report: Report) -> dict[str, dict[int, tuple[tuple[float, ...], list[float]]]]:
    """Steps and errors of each body by stages."""
    tasks = {
        "body": (body_errors, {2: (0.2, 0.1, 0.05), 3: (0.4, 0.2, 0.1), 4: (0.8, 0.4, 0.2)}),
        "top": (top_errors, {2: (0.02, 0.01, 0.005), 3: (0.04, 0.02, 0.01), 4: (0.1, 0.05, 0.025)}),
        "quadrotor": (
            quadrotor_errors,
            {2: (0.02, 0.01, 0.005), 3: (0.04, 0.02, 0.01), 4: (0.1, 0.05, 0.04)},
        ),
    }
    found: dict[str, dict[int, tuple[tuple[float, ...], list[float]]]] = {}
    for name, (errors, lengths) in tasks.items():
        found[name] = {s: (steps, errors(s, steps)) for s, steps in lengths.items()}
        off = [abs(slope(*one) - 2 * s) for s, one in found[name].items()]
        report.measure(**{name: max(off)})
    off, kept = [], []
    for s, steps in {2: (0.01, 0.005, 0.0025), 3: (0.04, 0.02, 0.01), 4: (0.1, 0.05, 0.04)}.items():
        errors, pin = pinned_errors(s, steps)
        off.append(abs(slope(steps, errors) - (2 * s - 2)))
        kept.append(pin)
    report.measure(pinned=max(off), pinned_kept=max(kept))
    return found


# -- many steps -------------------------------------------------------------------------------------------


def bands(report: Report, name: str, run: vioc.Trajectory) -> None:
    band = np.ptp(run.energy)
    report.measure(**{f"{name}_band": band / abs(run.energy[0])})
    if not report.quick:
        report.measure(**{f"{name}_drift": abs(total_drift(run.t, run.energy)) / band})


def long_runs(report: Report) -> None:
    steps = QUICK if report.quick else STEPS
    f = GroupVI(body_system(), BODY_DT, stages=2, backend=backend())
    run = f.rollout(f.initial_state(v=dict(zip(f.rates[3:], SPIN, strict=True))), steps=steps)
    report.measure(long_body=change(spatial(run, "b-")))
    bands(report, "long_body", run)

    f = GroupVI(top_system(), TOP_DT, stages=2, backend=backend())
    run = f.rollout(f.initial_state({"t-ry": 1.0}, {"t-wx": 0.5, "t-wz": 20.0}), steps=steps)
    pi = momentum(run, "t-")
    vertical, size = turns(run, "t-").apply(pi)[:, 2], float(np.linalg.norm(pi[0]))
    report.measure(long_top=change(vertical, size), long_top_spin=change(pi[:, 2], size))
    bands(report, "long_top", run)

    f = GroupVI(quadrotor_system(), QUADROTOR_DT, stages=2, backend=backend())
    run = f.rollout(coasting(f), steps=steps)
    middle = turns(run, "b-").as_matrix()[:, 2, 0]  # -sin of the middle angle of z, y, x
    report.measure(
        long_quadrotor=change(spatial(run, "b-")),
        long_quadrotor_poles=np.count_nonzero(np.sqrt(1 - np.minimum(middle**2, 1)) < 0.01),
    )
    bands(report, "long_quadrotor", run)


def coasting(f: Any) -> np.ndarray:
    rates = {"b-wx": 3.0, "b-wy": 5.0, "b-wz": 2.0} | {f"rotor{i}": w for i, w in enumerate(ROTORS)}
    return at_rest(f, f.initial_state(v=rates))


# -- random families --------------------------------------------------------------------------------------


def floats(system: vioc.System, seed: int, duration: float, quick: bool) -> tuple[bool, float, float]:
    """Whether runs end with the momentum of their start, the order of the energy's band, and how far A is
    from differences: of all columns, or along three random directions.
    """
    rng = np.random.default_rng([21, seed])
    q, v = rng.uniform(-3, 3, len(system.variables)), 2.0 * rng.standard_normal(len(system.variables))
    named = [dict(zip(system.variables, values, strict=True)) for values in (q, v)]
    f, found = GroupVI(system, 0.02, stages=2), []
    x = at_rest(f, f.initial_state(*named), FASTEST)
    for h in (0.02, 0.01):
        try:
            run = f.with_dt(h).rollout(x, steps=round(duration / h))
        except StepError:
            return False, np.nan, np.nan
        found.append((np.ptp(run.energy), change(spatial(run, "b-"), parts(f, x))))
    end, A, e = f.step(x), f.linearize(x).A, 1e-3
    along = rng.standard_normal((3, f.ndx)) / np.sqrt(f.ndx) if quick else np.eye(f.ndx)

    def off(d: np.ndarray) -> np.ndarray:
        return f.difference(end, f.step(f.retract(x, d)))

    by = [(8 * (off(e * d) - off(-e * d)) - (off(2 * e * d) - off(-2 * e * d))) / (12 * e) for d in along]
    wanted = A @ along.T if quick else A
    apart = float(np.abs(wanted - np.transpose(by)).max() / np.abs(wanted).max())
    kept = all(changed <= 1e-12 for _, changed in found)
    return kept, float(np.log2(found[0][0] / found[1][0])), apart


def random_loop(seed: int) -> tuple[vioc.System, dict[str, float]]:
    """A floating body with a chain of two to four spherical joints whose end is pinned to it, and a
    configuration in which it is.
    """
    rng = np.random.default_rng([22, seed])
    links: list[vioc.Frame] = []
    for i in range(2 + seed % 3):
        links.append(vioc.se3(tuple(rng.uniform(-0.4, 0.4, 3).tolist())))
        links.append(vioc.spherical(f"q{i}", "xyz", mass=random_mass(rng)))
    chain = vioc.chain(*links, vioc.se3(tuple(rng.uniform(-0.4, 0.4, 3).tolist()), name="tip"))
    root = vioc.free("b", "xyz", frame="root", mass=random_mass(rng))
    q = {f"q{i}-r{a}": float(rng.uniform(-1, 1)) for i in range(2 + seed % 3) for a in "xyz"}
    where = vioc.Kinematics(vioc.System(root[chain])).position("tip", q)
    anchor = vioc.se3(tuple(where.tolist()), name="anchor")
    pin, weight = vioc.coincident("tip", "anchor"), vioc.Gravity(0, 0, -G)
    return vioc.System(root[anchor, chain], weight, *pin, name=f"loop {seed}"), q


def closes(seed: int) -> bool:
    """Whether a loop that is thrown as if it were rigid runs to the end with its pin."""
    system, q = random_loop(seed)
    f = GroupVI(system, 0.02, stages=3, points="lobatto")
    spin = dict(zip("xyz", np.random.default_rng([23, seed]).uniform(-3, 3, 3), strict=True))
    try:
        run = f.rollout(f.initial_state(q, {f"b-w{a}": w for a, w in spin.items()}), steps=50)
    except StepError:
        return False
    return max(float(np.abs(run[f"h.{name}"]).max()) for name in f.multiplier_names) <= 1e-11


def families(report: Report) -> None:
    quick = report.quick
    count, duration = (1, 1.0) if quick else (24, 10.0)
    alone = [floats(random_tree(seed, 0), seed, duration, quick) for seed in range(count)]
    trees = [floats(random_tree(seed, 2 + seed % 4), seed, duration, quick) for seed in range(count)]
    report.measure(
        bodies=np.mean([kept for kept, *_ in alone]),
        trees=np.mean([kept for kept, *_ in trees]),
        loops=np.mean([closes(seed) for seed in range(min(count, 12))]),
        trees_order=np.nanmedian([order for _, order, _ in trees]),
        trees_slopes=np.max([off for *_, off in (*alone, *trees)]),
    )


# -- what a step costs ------------------------------------------------------------------------------------


def times(report: Report) -> None:
    """Shortest of some turns, in which all are taken one after the other."""
    system, count = quadrotor_system(), 500 if report.quick else 5000
    plain = GroupVI(system, 2e-3, backend=backend())
    maps: dict[str, Any] = {
        "midpoint": plain,
        "step_4": GroupVI(system, 2e-3, stages=2, backend=backend()),
        "step_6": GroupVI(system, 2e-3, stages=3, backend=backend()),
        "step_composed": vioc.Composition(plain, 4),
    }
    best = dict.fromkeys(maps, np.inf)
    for turn in range(8):
        for name, f in maps.items():
            x = coasting(plain)
            before = time.process_time()
            f.rollout(x, steps=count, warn=False)
            if turn:
                best[name] = min(best[name], time.process_time() - before)
    report.measure(**{name: best[name] / best["midpoint"] for name in maps if name != "midpoint"})


@STUDY.body
def run(report: Report) -> None:
    found = orders(report)
    long_runs(report)
    families(report)
    times(report)
    draw(report, found)


def draw(report: Report, found: dict) -> None:
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(1, 3, figsize=(11, 3.8), layout="constrained")
    for axes, (name, rules) in zip(panels, found.items(), strict=True):
        for s, (steps, errors) in rules.items():
            axes.loglog(steps, errors, "o-", label=f"{s} stages, slope {slope(steps, errors):.2f}")
        axes.set(xlabel="dt (s)", title=name)
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    panels[0].set_ylabel("error")
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
