"""Galerkin integrators: orders with everything, random trees and loops, work over precision, time over links.

References: DOP853 of scipy on pinocchio's accelerations, a rod's solved for with them (in quick form on the
continuous equations of vioc). Work and precision beside compiled explicit Runge-Kutta rules, DOP853's too.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.integrate import DOP853

import vioc
from studies.galerkin_reference import Peer
from studies.harness import Claim, Report, Study, at_least, at_most
from vioc import Tableau
from vioc.models import mechanisms

RULES = (("gauss", 2), ("gauss", 3), ("gauss", 4), ("lobatto", 3), ("lobatto", 4))
CLOSED = (("lobatto", 2), ("lobatto", 3), ("lobatto", 4))
COUNTS = {2: [80, 120, 160], 4: [40, 60, 80], 6: [20, 30, 40], 8: [12, 16, 20]}
LINKS = (10, 40, 100)
DAMPING, SPEED = 0.05, 0.3
FULL = dict(full_only=True)

STUDY = Study(
    __file__,
    "Galerkin integrators of order 2 to 8: slopes, random trees and loops, work and precision, long chains",
    slopes=Claim(
        "five rules, a driven damped tree of seven joints: slope less the order, largest", at_most(0.2)
    ),
    closed=Claim(
        "three of Lobatto's, its hands on a rod and its base moved by an input: likewise, of q", at_most(0.2)
    ),
    kept=Claim("likewise: h and Dh v at all samples, largest (m^2, m^2/s)", at_most(1e-11)),
    ends=Claim("random trees, 1 s at 10 ms: share of runs that end", at_least(0.98)),
    near=Claim("likewise, order 6: distance from DOP853 after 1 s, median", at_most(1e-6)),
    of_midpoint=Claim("likewise, the midpoint rule's: median", at_least(1e-5)),
    slope_error=Claim("likewise: A against differences of steps, largest, relative", at_most(1e-6)),
    loops_end=Claim("random loops, 0.3 s at 10 ms, Lobatto's order 4: share of runs that end", at_least(0.9)),
    loops_near=Claim("likewise: distance from DOP853 at the end, median", at_most(1e-5)),
    energy=Claim(
        "10 links, 20 s, energy error 1e-6: time over compiled Runge-Kutta 4's", at_most(0.9), **FULL
    ),
    energy_8=Claim("likewise: over compiled DOP853's rule, steps of one length", at_most(0.9), **FULL),
    motion=Claim("10 links, 20 s, trajectory error 1e-4: over Runge-Kutta 4's", at_most(0.9), **FULL),
    motion_8=Claim("likewise: over DOP853's rule", at_most(0.9), **FULL),
    far=Claim("10 links, 1000 s, energy error 1e-6: over Runge-Kutta 4's", at_most(0.3), **FULL),
    far_8=Claim("likewise: over DOP853's rule", at_most(0.3), **FULL),
    linear_40=Claim("compiled step of order 4, 40 links over four times 10", at_most(1.15), **FULL),
    linear_100=Claim("likewise, 100 links over ten times 10", at_most(1.15), **FULL),
    paced_40=Claim("likewise, dt 10 ms (10/n)^1/2, 40 links over four times 10", at_most(1.15), **FULL),
    paced_100=Claim("likewise, 100 links over ten times 10", at_most(1.15), **FULL),
    wild_100=Claim("likewise, swinging out from 0.5 rad, which takes more iterations", **FULL),
    over_midpoint=Claim("order 4 over the midpoint rule's step, 40 links", at_most(2.5), **FULL),
    over_linear=Claim("order 4 over `LinearTimeVI`'s step, 100 links", at_most(2.5), **FULL),
)


def tree(base: bool = False) -> vioc.System:
    """Two arms of three joints on a turning column, damped, with inputs; on a base that an input moves."""
    body = vioc.Mass(1.0, (0.02, 0.03, 0.01), (0.02, 0.0, -0.15))

    def arm(name: str) -> vioc.Frame:
        last = vioc.ry(f"{name}2", mass=body)[vioc.tz(-0.3, name=f"{name}hand")]
        return vioc.ry(f"{name}0", mass=body)[
            vioc.tz(-0.3)[vioc.rx(f"{name}1", mass=body)[vioc.tz(-0.3)[last]]]
        ]

    names = ["turn", *(f"{side}{i}" for side in ("left", "right") for i in range(3))]
    column = vioc.rz("turn", mass=vioc.Mass(5.0, (0.1, 0.1, 0.2)))[
        vioc.tx(0.3)[arm("left")], vioc.tx(-0.3)[arm("right")]
    ]
    return vioc.System(
        vioc.tx(vioc.K("base"))[column] if base else column,
        vioc.Gravity(0, 0, -9.81),
        *(vioc.JointDamping(name, DAMPING) for name in names),
        *(vioc.JointForce(name, f"u-{name}") for name in names),
        name="two arms on a column",
    )


def rod(system: vioc.System, q: np.ndarray) -> tuple[str, str, float]:
    """Between the hands, as long as they are apart."""
    k = vioc.Kinematics(system)
    apart = k.position("lefthand", q) - k.position("righthand", q)
    return "lefthand", "righthand", float(np.linalg.norm(apart))


def slopes(quick: bool) -> tuple[dict[str, float], dict[str, tuple[np.ndarray, np.ndarray]]]:
    """The largest |slope - order| without and with a rod and a moving base, and (steps, errors) by rule."""
    rng = np.random.default_rng(3)
    duration, q0, u = 0.5, rng.uniform(-1, 1, 7), rng.uniform(-1, 1, (2, 7))
    found, curves, kept = {}, {}, 0.0
    for what, rules in (("slopes", RULES), ("closed", CLOSED)):
        system = tree()
        tied = rod(system, q0) if what == "closed" else None
        if tied:
            system = system.with_components(vioc.DistanceConstraint(*tied))
        if quick:
            t = np.linspace(0, duration, 3)
            truth = vioc.reference_solution(system, q0, None, t, u, rtol=1e-13, atol=1e-13).q[-1]
        else:
            truth = Peer(system, tied).run(q0, duration, u, DAMPING)
        if tied:  # a base that moves evenly is one at rest
            system = tree(base=True).with_components(vioc.DistanceConstraint(*tied))
        worst = 0.0
        for points, s in rules:
            f = vioc.GalerkinVI(system, 0.05, stages=s, points=points)
            counts, errors = np.array(COUNTS[f.order]), []
            for n in counts:
                U, start = np.repeat(u, n // 2, axis=0), dict(zip(tree().variables, q0, strict=True))
                v = {"base": SPEED} if tied else None
                if tied:
                    U = np.column_stack([U, SPEED * duration * np.arange(1, n + 1) / n])
                run = f.rollout(f.initial_state(start, v), U, dt=duration / n)
                errors.append(np.abs(run.x[-1, :7] - truth).max())
                if tied:
                    kept = max(kept, rates(f, run))
            slope = -np.polyfit(np.log(counts), np.log(errors), 1)[0]
            worst = max(worst, abs(slope - f.order))
            curves[f"{points} {s}, order {f.order}" + (", rod and moving base" if tied else "")] = (
                counts,
                np.array(errors),
            )
        found[what] = float(worst)
    return {**found, "kept": kept}, curves


def rates(f: Any, run: vioc.Trajectory) -> float:
    """The largest h and Dh v along a run, v = M^-1 (p - M_k v_k) without any projection."""
    worst = 0.0
    for x in run.x:
        q, nd = x[: f.nq], f.nd
        h, Dh = (np.array(e) for e in f.constraint(q, []))
        M, v_k = f.lagrangian.mass_matrix(q), x[f.nq + nd :]
        v = np.linalg.solve(M[:nd, :nd], x[f.nq : f.nq + nd] - M[:nd, nd:] @ v_k)
        worst = max(worst, np.abs(h).max(), np.abs(Dh @ np.concatenate([v, v_k])).max())
    return float(worst)


def family(kind: str, count: int, most: int, time: float = 1.0, **options: Any) -> dict[str, float]:
    """Share of random trees or loops that ends, medians of distances and the largest error of A.
    They are `count` mechanisms of at most `most` variables.
    """
    ended, near, midpoint, off, tried, steps = 0, [], [], [], 0, round(time / 0.01)
    for name, system, q0, v0 in mechanisms(4 * count):
        if tried == count:
            break
        if not name.startswith(kind) or len(system.variables) > most:
            continue
        tried += 1
        try:
            f, plain = vioc.GalerkinVI(system, 0.01, **options), vioc.MidpointVI(system, 0.01)
            run = f.rollout(f.initial_state(q0, v0), steps=steps, warn=False)
            truth = vioc.reference_solution(system, q0, v0, [0.0, time]).q[-1]
            near.append(np.abs(run.x[-1, : f.nq] - truth).max())
            other = plain.rollout(plain.initial_state(q0, v0), steps=steps, warn=False)
            midpoint.append(np.abs(other.x[-1, : f.nq] - truth).max())
        except (vioc.StepError, ValueError) as error:
            print(f"{name}: {str(error)[:150]}")
            continue
        ended += 1
        if kind == "tree":
            x, e, u = run.x[50], 1e-6, np.zeros(f.nu)
            A = f.linearize(x, u).A
            by = [(f.step(x + e * d, u) - f.step(x - e * d, u)) / (2 * e) for d in np.eye(f.nx)]
            off.append(np.abs(A - np.stack(by, axis=1)).max() / np.abs(A).max())
    return dict(
        ends=ended / tried,
        near=float(np.median(near)),
        of_midpoint=float(np.median(midpoint)),
        slope_error=float(max(off, default=0.0)),
    )


# -- work and precision -----------------------------------------------------------------------------


def milliseconds(call: Callable[[], Any], repeats: int) -> float:
    best = np.inf
    for _ in range(repeats):
        begun = time.process_time()
        call()
        best = min(best, time.process_time() - begun)
    return 1e3 * best


def work() -> dict[str, float]:
    """Times at errors, over those of explicit rules; all in one run, one after the other."""
    system = vioc.models.load("n_link_pendulum", 10)
    x = np.zeros(10)
    x[0] = np.pi / 4  # as in the benchmarks
    rk8 = Tableau(DOP853.A, DOP853.B)
    explicit = vioc.RungeKutta(system, 0.01, "rk4", backend="compiled")
    rules = {
        "galerkin 6": (
            vioc.GalerkinVI(system, 0.01, stages=3, backend="compiled"),
            (0.1, 0.08, 0.0625, 0.05, 0.04),
        ),
        "galerkin 8": (
            vioc.GalerkinVI(system, 0.01, stages=4, backend="compiled"),
            (0.15, 0.125, 0.1, 0.08, 0.0625),
        ),
        "galerkin 12": (
            vioc.GalerkinVI(system, 0.01, stages=6, tolerance=1e-8, backend="compiled"),
            (0.2, 0.175, 0.15, 0.125, 0.11, 0.1, 0.09),
        ),
        "rk4": (explicit, (0.04, 0.02, 0.01, 0.005, 0.0025)),
        "rk8": (
            vioc.RungeKutta(system, 0.01, rk8, backend="compiled"),
            (0.16, 0.125, 0.1, 0.08, 0.0625, 0.05, 0.04),
        ),
    }
    truth = None
    found: dict[str, dict[str, list]] = {"near": {}, "far": {}}
    for where, duration, repeats in (("near", 20.0, 5), ("far", 1000.0, 1)):
        for name, (f, steps) in rules.items():
            for dt in steps if where == "near" else steps[1:]:
                n, x0 = round(duration / dt), f.initial_state(x)
                if truth is None:
                    fine = rules["galerkin 8"][0]
                    truth = fine.rollout(fine.initial_state(x), steps=1600, dt=20.0 / 1600).x[-1, :10]
                try:
                    run = f.rollout(x0, steps=n, dt=duration / n, warn=False)
                except vioc.StepError:
                    continue
                rows = slice(0, None, max(1, n // 4000))
                none = np.zeros((len(run.x[rows]) - 1, 0))
                energy = vioc.Trajectory(f, run.t[rows], run.x[rows], none, none).energy
                error = np.abs(energy / energy[0] - 1).max() if energy[0] else np.inf
                took = milliseconds(
                    lambda f=f, x0=x0, n=n, T=duration: f.rollout(x0, steps=n, dt=T / n, warn=False),
                    repeats,
                )
                off = np.abs(run.x[-1, :10] - truth).max() if where == "near" else np.nan
                found[where].setdefault(name, []).append((took, error, off))
                print(f"{where} {name} dt {dt:g} s: {took:.3g} ms, energy {error:.1e}, end {off:.1e} rad")

    def at(where: str, column: int, level: float, name: str) -> float:
        """The shortest time whose error is at most `level`, measured or between two steps."""
        rows = [r for r in found[where][name] if np.isfinite(r[column])]
        errors, times = (np.log([r[i] for r in rows]) for i in (column, 0))
        order, good = np.argsort(errors), errors <= np.log(level)
        if not good.any():
            return np.nan
        between = np.inf if good.all() else np.interp(np.log(level), errors[order], times[order])
        return float(np.exp(min(times[good].min(), between)))

    result = {}
    for name, where, column, level in (
        ("energy", "near", 1, 1e-6),
        ("motion", "near", 2, 1e-4),
        ("far", "far", 1, 1e-6),
    ):
        ours = np.nanmin([at(where, column, level, rule) for rule in rules if rule.startswith("galerkin")])
        result[name] = ours / at(where, column, level, "rk4")
        result[f"{name}_8"] = ours / at(where, column, level, "rk8")
    return result


def scaling() -> dict[str, float]:
    """Growth of a step with the chain, and its time over order 2, shortest of turns that alternate."""
    maps, times = {}, {}
    for n in LINKS:
        system = vioc.models.load("n_link_pendulum", n)
        maps[n] = vioc.GalerkinVI(system, 0.01, stages=2, backend="compiled"), 0.1
        maps[f"{n}, wild"] = maps[n][0], 0.5
        maps[f"{n}, paced"] = (
            vioc.GalerkinVI(system, 0.01 * np.sqrt(10 / n), stages=2, backend="compiled"),
            0.1,
        )
        if n == 40:
            maps["midpoint"] = vioc.MidpointVI(system, 0.01, backend="compiled"), 0.1
    maps["linear"] = vioc.LinearTimeVI(system, 0.01, backend="compiled"), 0.1
    for turn in range(6):
        for name, (f, angle) in maps.items():
            x = f.initial_state({f.system.variables[0]: angle})
            took = 1e3 * milliseconds(lambda f=f, x=x: f.rollout(x, steps=2000, warn=False), 1) / 2000
            if turn:
                times[name] = min(times.get(name, np.inf), took)
    print({name: round(t, 2) for name, t in times.items()}, "us a step")
    return dict(
        linear_40=times[40] / times[10] / 4,
        linear_100=times[100] / times[10] / 10,
        paced_40=times["40, paced"] / times["10, paced"] / 4,
        paced_100=times["100, paced"] / times["10, paced"] / 10,
        wild_100=times["100, wild"] / times["10, wild"] / 10,
        over_midpoint=times[40] / times["midpoint"],
        over_linear=times[100] / times["linear"],
    )


@STUDY.body
def run(report: Report) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        figures, curves = slopes(report.quick)
        most = 10 if report.quick else 100
        report.measure(**figures, **family("tree", 2 if report.quick else 8, most))
        closed = family("loop", 2 if report.quick else 8, most, 0.3, stages=3, points="lobatto")
        report.measure(loops_end=closed["ends"], loops_near=closed["near"])
        if not report.quick:
            report.measure(**work(), **scaling())
    draw(report, curves)


def draw(report: Report, curves: dict[str, tuple[np.ndarray, np.ndarray]]) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(6, 4.5), layout="constrained")
    for name, (counts, errors) in curves.items():
        axes.loglog(0.5 / counts, errors, "--s" if "rod" in name else "-o", label=name, markersize=4)
    axes.set(
        xlabel="step (s)", ylabel="error of q after 0.5 s (rad)", title="Two driven arms on a column, damped"
    )
    axes.grid(alpha=0.3, which="both")
    axes.legend(fontsize="small")
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
