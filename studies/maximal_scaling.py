"""Step time in maximal coordinates: pendulums, spheres on the ground, closed chains ([M] Fig. 8, 9 a).

Pendulums: links of 1 m and 1 kg on revolute or spherical joints, released from the horizontal. Spheres of
0.25 m and 1 kg on spherical joints where they touch each other, in a zigzag, fall flat on the ground from
0.75 m; also with one end higher, so that they hit it one after the other. Segments: rhombs of four links of
1 m and 1 kg, each hinged on the lowest corner of the one above. dt 0.01 s, compiled; times are of the
processor, the best of some rollouts. The unit of [M]'s argument is one body and one Newton iteration: a
body's equations, its joint's, their elimination and back-substitution. What [M] leaves open is ours: friction
0.5, the starts, the links' inertia.
"""

from __future__ import annotations

import time

import numpy as np

import vioc
from studies.harness import Claim, Report, Study, at_least, at_most
from vioc import Contact, Gravity, LinearTimeVI, Mass, MaximalVI, System, rx, ry, tx, tz

DT, STEPS = 0.01, 100
COUNTS = (10, 20, 50, 100, 200)
QUICK = (10, 20)
SPHERES, QUICK_SPHERES = (5, 10, 20, 50, 100), (5, 10)
SEGMENTS, QUICK_SEGMENTS = (1, 2, 5, 10, 20), (1, 2)
RADIUS, FRICTION, SLOPE, ZIGZAG = 0.25, 0.5, 0.05, 0.3  # m, -, rad, rad
BODY = Mass(1.0, (1 / 12, 1 / 12, 1 / 100))
FIG, FIG_B = "[M] Fig. 8 a", "[M] Fig. 8 b"

STUDY = Study(
    __file__,
    "step time in maximal coordinates: linear in the number of bodies",
    residual=Claim("largest scaled residual of any step", at_most(1e-11)),
    revolute=Claim(
        "revolute: time of a step, 200 links over 20", at_most(12), "", "linear", FIG, full_only=True
    ),
    spherical=Claim(
        "spherical: time of a step, 200 links over 20", at_most(12), "", "linear", FIG, full_only=True
    ),
    revolute_unit=Claim("revolute, 20 links: time per link and Newton iteration", None, "us"),
    revolute_unit_200=Claim("the same, 200 links", None, "us", full_only=True),
    spherical_unit=Claim("spherical, 20 links: time per link and Newton iteration", None, "us"),
    spherical_unit_200=Claim("the same, 200 links", None, "us", full_only=True),
    iterations=Claim("revolute, 20 links: iterations a step", None),
    iterations_200=Claim("the same, 200 links", None, full_only=True),
    minimal=Claim(
        "revolute, 50 links: MaximalVI's step over that of LinearTimeVI (exact chord)", None, full_only=True
    ),
    spheres=Claim(
        "spheres on the ground: time of a step, 100 spheres over 10",
        at_most(12),
        "",
        "linear",
        FIG_B,
        full_only=True,
    ),
    spheres_short=Claim("the same, 10 spheres over 5", at_most(4), "", "linear", FIG_B),
    spheres_step=Claim("10 spheres: time of a step", None, "us"),
    spheres_iterations=Claim("most iterations of any step, falling flat", at_most(40), "", "robust", FIG_B),
    spheres_entered=Claim("furthest below the ground, any chain", at_most(1e-6), "m", "none", FIG_B),
    one_by_one=Claim("spheres hitting one by one: longest chain that goes 2 s", at_least(10), "", 100, FIG_B),
    one_by_one_iterations=Claim("its mean iterations a step", None, ""),
    segments=Claim(
        "closed chain: time of a step, 20 segments over 2",
        at_most(20),
        "",
        "modest increase",
        "[M] Fig. 9 a",
        full_only=True,
    ),
    segments_step=Claim("closed chain, 2 segments: time of a step", None, "us"),
    segments_violation=Claim("closed chain: largest |g| at any step", at_most(1e-9), "m"),
)


def pendulum(n: int, spherical: bool) -> System:
    below: tuple = ()
    for i in reversed(range(n)):
        joint = vioc.spherical(f"q{i}") if spherical else rx(f"q{i}")
        rest = (tz(-1.0)[below],) if below else ()
        below = (joint[(tz(-0.5, mass=BODY), *rest)],)
    return System(below, Gravity(0, 0, -9.81), name=f"pendulum_{n}")


def best(call, repeats: int = 7) -> float:
    times = []
    for _ in range(repeats):
        before = time.process_time()
        call()
        times.append(time.process_time() - before)
    return min(times)


def measure(n: int, spherical: bool) -> tuple[float, float, float]:
    """Time of a step, s; Newton iterations a step; largest residual."""
    f = MaximalVI(pendulum(n, spherical), DT, backend="compiled")
    x = f.initial_state({"q0-rx" if spherical else "q0": np.pi / 2}, start="given")
    args = (np.empty(0), x, np.zeros((STEPS, 0)), DT * np.arange(STEPS), np.full(STEPS, DT), f.tolerance)
    _, _, _, errors, iterations = f.core.rollout(*args)
    return best(lambda: f.core.rollout(*args)) / STEPS, float(iterations.mean()), float(errors.max())


def minimal(n: int) -> float:
    """Time of a step of the linear-time integrator on the same pendulum, s."""
    f = LinearTimeVI(pendulum(n, False), DT, backend="compiled")
    x = f.initial_state({"q0": np.pi / 2})
    f.rollout(x, steps=2, warn=False)
    return best(lambda: f.rollout(x, steps=STEPS, warn=False)) / STEPS


def spheres(n: int) -> System:
    ball = Mass(1.0, (0.4 * RADIUS**2,) * 3)
    below: tuple = ()
    for i in reversed(range(n)):
        joint = vioc.spherical(f"q{i}") if i else vioc.free("b")
        rest = (tx(RADIUS)[below],) if below else ()
        below = (joint[(tx(RADIUS if i else 0.0, name=f"ball{i}", mass=ball)[rest],)],)
    options = dict(friction=FRICTION, cone="linear")  # [M]'s
    feet = [Contact.sphere(f"ball{i}", RADIUS, name=f"foot{i}", **options) for i in range(n)]
    return System(below, Gravity(0, 0, -9.81), feet, name=f"spheres_{n}")


def fall(n: int, slope: float) -> tuple[float, np.ndarray, float]:
    """Time of a step, s; iterations of each of 200 steps, as far as they go; the lowest gap."""
    f = MaximalVI(spheres(n), DT, backend="compiled")
    bends = {f"q{i}-rz": ZIGZAG * (-1) ** i for i in range(1, n)}
    x = f.initial_state({"b-z": RADIUS + 0.75, "b-ry": -slope, **bends})
    steps = 2 * STEPS
    t = DT * np.arange(steps)
    args = (np.empty(0), x, np.zeros((steps, 0)), t, np.full(steps, DT), f.tolerance)
    states, _, _, _, iterations = f.core.rollout(*args, floor=f.barrier)
    seconds = best(lambda: f.core.rollout(*args, floor=f.barrier), 3) / max(len(states), 1)
    low = states[:, 2 : 7 * n : 7].min() - RADIUS
    return seconds, iterations[: len(states)], float(low)


def segments(n: int) -> tuple[System, dict]:
    """Rhombs that hang on each other, and their angles at rest, tilted."""
    rod = Mass(1.0, (1 / 12, 1 / 12, 1 / 1000), (0, 0, -0.5))
    angle: dict[str, float] = {}
    above = 0.0
    below: tuple = ()
    pins: list = []
    for k in reversed(range(n)):
        tip = tz(-1.0, name=f"tip{k}")
        left = ry(f"l{k}", name=f"left{k}", mass=rod)[
            tz(-1.0)[ry(f"m{k}", mass=rod)[tip[below] if below else tip]]
        ]
        right = ry(f"r{k}", mass=rod)[tz(-1.0)[ry(f"s{k}", mass=rod)[tz(-1.0, name=f"end{k}")]]]
        below = (left, right)
        pins += vioc.coincident(f"tip{k}", f"end{k}", "xz", name=f"pin{k}")
    for k in range(n):
        lean, open_ = (0.3, 0.6)  # of the whole chain, of every rhomb
        angle |= {f"l{k}": lean + open_ - above, f"m{k}": -2 * open_}
        angle |= {f"r{k}": lean - open_ - above, f"s{k}": 2 * open_}
        above = lean - open_  # of the link that the next rhomb hangs on
    return System(below, pins, Gravity(0, 0, -9.81), name=f"segments_{n}"), angle


def swing(n: int) -> tuple[float, float]:
    """Time of a step, s; largest |g|."""
    system, angle = segments(n)
    f = MaximalVI(system, DT, backend="compiled")
    x = f.initial_state(angle)
    run = f.rollout(x, steps=STEPS, warn=False)
    worst = max(np.abs(run["h." + name]).max() for name in f.multiplier_names)
    t = DT * np.arange(STEPS)
    args = (np.empty(0), x, np.zeros((STEPS, 0)), t, np.full(STEPS, DT), f.tolerance)
    return best(lambda: f.core.rollout(*args), 3) / STEPS, float(worst)


def contacts(report: Report) -> dict[int, float]:
    counts = QUICK_SPHERES if report.quick else SPHERES
    flat = {n: fall(n, 0.0) for n in counts}
    tilted = {n: fall(n, SLOPE) for n in counts}
    gone = [n for n in counts if len(tilted[n][1]) == 2 * STEPS]
    if 100 in flat:
        report.measure(spheres=flat[100][0] / flat[10][0])
    report.measure(
        spheres_short=flat[10][0] / flat[5][0],
        spheres_step=1e6 * flat[10][0],
        spheres_iterations=max(r[1].max() for r in flat.values()),
        spheres_entered=max(0.0, *(-r[2] for r in (*flat.values(), *tilted.values()))),
        one_by_one=max(gone),
        one_by_one_iterations=tilted[max(gone)][1].mean(),
    )
    return {n: r[0] for n, r in flat.items()}


def closed_chains(report: Report) -> dict[int, float]:
    results = {n: swing(n) for n in (QUICK_SEGMENTS if report.quick else SEGMENTS)}
    report.measure(segments_step=1e6 * results[2][0], segments_violation=max(r[1] for r in results.values()))
    if 20 in results:
        report.measure(segments=results[20][0] / results[2][0])
    return {n: r[0] for n, r in results.items()}


@STUDY.body
def run(report: Report) -> None:
    counts = QUICK if report.quick else COUNTS
    results = {
        kind: {n: measure(n, kind == "spherical") for n in counts} for kind in ("revolute", "spherical")
    }
    report.measure(residual=max(r[2] for by in results.values() for r in by.values()))
    for kind, by in results.items():
        for n in counts:
            if n in (20, 200):
                step, iterations, _ = by[n]
                suffix = "_200" * (n == 200)
                report.measure(**{f"{kind}_unit{suffix}": 1e6 * step / n / iterations})
                if kind == "revolute":
                    report.measure(**{f"iterations{suffix}": iterations})
        if 200 in by:
            report.measure(**{kind: by[200][0] / by[20][0]})
    others = {} if report.quick else {n: minimal(n) for n in counts if n <= 50}
    if others:
        report.measure(minimal=results["revolute"][50][0] / others[50])
    draw(report, results, others, contacts(report), closed_chains(report))


def draw(report: Report, results: dict, others: dict, balls: dict, loops: dict) -> None:
    import matplotlib.pyplot as plt

    figure, ax = plt.subplots(figsize=(6, 4.2), layout="constrained")
    for kind, style in (("revolute", "C0o-"), ("spherical", "C0o--")):
        ns = sorted(results[kind])
        ax.plot(ns, [1e6 * results[kind][n][0] for n in ns], style, ms=4, label=f"MaximalVI, {kind}")
    if others:
        ax.plot(
            sorted(others),
            [1e6 * others[n] for n in sorted(others)],
            "C3s-",
            ms=4,
            label="LinearTimeVI, revolute",
        )
    ax.plot(
        sorted(balls), [1e6 * balls[n] for n in sorted(balls)], "C2^-", ms=4, label="spheres on the ground"
    )
    links = [4 * n for n in sorted(loops)]
    ax.plot(links, [1e6 * loops[n] for n in sorted(loops)], "C4d-", ms=4, label="closed chain of rhombs")
    ax.set(xlabel="bodies", ylabel="time of a step (us)", title="MaximalVI, compiled")
    ax.grid(True, alpha=0.3)
    ax.legend()
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
