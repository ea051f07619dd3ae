"""Static shapes against closed forms, and the Bari beam against its published values.

The catenary: nodes of the inextensible chain against the curve. The elastica: a clamped beam with a
transverse load P at its end, P L^2 / E I = 1 ... 10 (elliptic integrals; Mattiasson 1981 has the
numbers). The Bari beam: E I = m = L = 1, masses at the nodes, clamped, end force 1.5 sin^2 t (-1, +1) until
t = pi; its published values are those of 40 segments.
"""

from __future__ import annotations

from typing import Any

import casadi as ca
import numpy as np
from scipy.special import ellipeinc, ellipkinc

import vioc
from studies.harness import Claim, Report, Study, at_most, near
from vioc.cables import Cable, Section, cable, catenary, static_equilibrium

MATTIASSON = {
    1.0: (0.30172, 0.05643),
    2.0: (0.49346, 0.16064),
    5.0: (0.71379, 0.38763),
    10.0: (0.81061, 0.55500),
}
BARI = {"theta_1": -0.005792366591285007, "theta_40": -0.1767201761075488, "rate_1": 0.03747362681329794}
BARI_STEPS = (0.004, 0.002, 0.001, 0.0005)  # s

STUDY = Study(
    __file__,
    "catenary, elastica and the Bari beam",
    catenary=Claim(
        "largest distance of a node from the catenary, 40 segments, over the length",
        at_most(1e-3),
        full_only=True,
    ),
    catenary_order=Claim("order over the number of segments", near(2, 0.2)),
    elastica_closed=Claim(
        "closed form of the elastica against the published table", at_most(1e-5), source="Mattiasson 1981"
    ),
    elastica=Claim(
        "end of the bent cantilever, 40 segments, worst load, over the length", at_most(1e-3), full_only=True
    ),
    elastica_order=Claim("order over the number of segments, worst of the loads", near(2, 0.2)),
    paper=Claim(
        "the same end with the paper's stiffness, 40 segments", source="[C] (16)-(19)", full_only=True
    ),
    planes=Claim(
        "deflections of a strip, E I = 1 and 4, under one small load across both, their ratio",
        near(4, 1e-4),
        published="4",
    ),
    strip_order=Claim(
        "order of the smaller over the number of segments", near(2, 0.2), source="P L^3 / 3 E I"
    ),
    twist=Claim(
        "turn of its last segment about its axis under a small weight beside it, over that of a shaft",
        near(1, 1e-4),
        source="M (L - l/2) / G J",
    ),
    bari_1=Claim(
        "theta_1 of the Bari beam at 5 s, Richardson over dt, difference from the published",
        at_most(2e-7),
        unit="rad",
        published=BARI["theta_1"],
        source="beam problem, 40 segments",
        full_only=True,
    ),
    bari_40=Claim(
        "theta_40, likewise",
        at_most(2e-7),
        unit="rad",
        published=BARI["theta_40"],
        source="beam problem, 40 segments",
        full_only=True,
    ),
    bari_rate=Claim(
        "rate of theta_1, likewise",
        at_most(1e-5),
        unit="rad/s",
        published=BARI["rate_1"],
        source="beam problem, 40 segments",
        full_only=True,
    ),
    bari_dt=Claim("order of theta_40 over dt", near(2, 0.2)),
    bari_n=Claim("order of theta at the end over the number of segments", near(2, 0.3), full_only=True),
    bari_limit=Claim("theta at the end of the continuous beam, extrapolated", unit="rad", full_only=True),
)


def places(system: vioc.System, rope: Cable, q: np.ndarray) -> np.ndarray:
    """Positions of the nodes (segments + 1, 3), m."""
    f = vioc.MidpointVI(system, 0.01)
    index = [system.frame_index(name) for name in rope.nodes]
    return f.frame_positions(f.initial_state(q))[0, index]


def order(counts: list[int], errors: list[float]) -> float:
    return float(-np.polyfit(np.log(counts), np.log(errors), 1)[0])


def hanging(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Nodes of a chain of 1.5 m between (0, 0) and (1, 0.2) m, and of the catenary."""
    rope = cable("rope", n, 1.5, Section(1.0), along="x")
    hook = vioc.tx(1.0)[vioc.tz(0.2, name="hook")]
    system = vioc.System(rope, hook, rope.attach("hook"), vioc.Gravity(0, 0, -9.81))
    x = np.linspace(0.0, 1.0, n + 1)  # a parabola to start from
    guess = rope.configuration(np.column_stack([x, 0 * x, 0.2 * x - x * (1 - x)]))
    found = places(system, rope, static_equilibrium(system, guess).q)
    return found, catenary((0, 0, 0), (1.0, 0, 0.2), 1.5, n)


def bent(n: int, load: float, stiffness: str = "beam") -> np.ndarray:
    """Nodes of the cantilever of length and stiffness 1 under an end load, along z."""
    rope = cable("beam", n, 1.0, Section(1.0, bending=1.0), along="x", start="clamped", stiffness=stiffness)
    rope = rope[vioc.tx(0.0, name="end", mass=1.0)]
    system = vioc.System(rope, vioc.MassGravity("end", 0, 0, load))
    return places(system, rope, static_equilibrium(system).q)


def strip(n: int) -> tuple[float, float, float]:
    """Deflections along y and z under a small load across both, and the turn by a weight beside the end.

    The last segment turns by what a shaft does at its middle: a hinge at the clamp is half a segment.
    """
    section, small = Section(1.0, bending=(4.0, 1.0), torsion=2.0, polar=0.1), 1e-5
    rope = cable("strip", n, 1.0, section, along="x", hinges="zyx", start="clamped")
    loaded = rope[vioc.tx(0.0, name="end", mass=1.0)]
    system = vioc.System(loaded, vioc.MassGravity("end", 0, small, small))
    end = places(system, rope, static_equilibrium(system).q)[-1]
    beside = rope[vioc.ty(1.0, name="beside", mass=1.0)]
    found = static_equilibrium(vioc.System(beside, vioc.MassGravity("beside", 0, 0, small)))
    turn = sum(found[names[2]] for names in rope.hinges)
    return end[1] / small, end[2] / small, turn / (small * (1 - 0.5 / n) / 2.0)


def elastica(load: float) -> tuple[float, float]:
    """(deflection, shortening) of the end: sqrt(P) = F(pi/2) - F(phi), modulus p, sin phi = 1/(p sqrt 2)."""
    low, high = 0.5 + 1e-15, 1 - 1e-15
    for _ in range(200):
        m = (low + high) / 2
        phi = np.arcsin(1 / np.sqrt(2 * m))
        length = ellipkinc(np.pi / 2, m) - ellipkinc(phi, m)
        low, high = (m, high) if length < np.sqrt(load) else (low, m)
    turned = ellipeinc(np.pi / 2, m) - ellipeinc(phi, m)
    return 1 - 2 * turned / np.sqrt(load), 1 - np.sqrt(2 * (2 * m - 1) / load)


def end_force(k: Any, frame: str) -> dict[str, Any]:
    """1.5 sin^2 t (-1, +1) in x and y on a frame until t = pi."""
    size = ca.if_else(k.t <= np.pi, 1.5 * ca.sin(k.t) ** 2, 0.0)
    forces = ca.jtimes(k.position(frame), k.q_vector, ca.vertcat(-size, size, 0.0), True)
    return dict(zip(k.system.variables, ca.vertsplit(forces), strict=True))


def bari(n: int, steps: tuple[float, ...]) -> np.ndarray:
    """theta of the first and the last segment, and the first one's rate, at 5 s, a row for each step."""
    rope = cable(
        "b", n, 1.0, Section(1.0, bending=1.0), along="x", hinges="z", start="clamped", masses="nodes"
    )
    system = vioc.System(rope, vioc.UserForce(end_force, args=(rope.nodes[-1],)))
    f, rows = vioc.MidpointVI(system, steps[0]), []
    for dt in steps:
        g = f.with_dt(dt)
        run = g.rollout(g.initial_state(), steps=round(5.0 / dt))
        angles = [run[v][-1] for (v,) in rope.hinges]
        rows.append([angles[0], sum(angles), run["v." + rope.hinges[0][0]][-1]])
    return np.array(rows)


@STUDY.body
def run(report: Report) -> None:
    counts = [5, 10, 20] if report.quick else [10, 20, 40]
    shapes = {n: hanging(n) for n in counts}
    errors = [float(np.linalg.norm(a - b, axis=1).max() / 1.5) for a, b in shapes.values()]
    report.measure(catenary_order=order(counts, errors))

    closed = {load: elastica(load) for load in MATTIASSON}
    table = max(np.abs(np.subtract(closed[p], MATTIASSON[p])).max() for p in MATTIASSON)
    worst, slopes, beams = 0.0, [], {}
    for load, (down, short) in closed.items():
        true = np.array([1 - short, 0.0, down])
        beams[load] = [bent(n, load) for n in counts]
        gaps = [float(np.linalg.norm(b[-1] - true)) for b in beams[load]]
        worst = max(worst, gaps[-1])
        slopes.append(order(counts, gaps))
    report.measure(elastica_closed=table, elastica_order=max(slopes, key=lambda s: abs(s - 2)))
    if not report.quick:
        down, short = closed[2.0]
        stiff = np.linalg.norm(bent(40, 2.0, "paper")[-1] - [1 - short, 0.0, down])
        report.measure(catenary=errors[-1], elastica=worst, paper=stiff)
    strips = np.array([strip(n) for n in counts])
    report.measure(
        planes=strips[-1, 1] / strips[-1, 0],
        strip_order=order(counts, list(np.abs(strips[:, 0] * 12 - 1))),
        twist=strips[-1, 2],
    )
    bari_beam(report)
    draw(report, shapes, beams, closed)


def bari_beam(report: Report) -> None:
    """In quick form with ten segments, for the order over dt alone."""
    values = bari(10 if report.quick else 40, BARI_STEPS)
    steps = np.diff(values, axis=0)
    report.measure(bari_dt=np.log2(np.abs(steps[-2] / steps[-1]))[1])
    if report.quick:
        return
    limit = (4 * values[-1] - values[-2]) / 3
    report.measure(
        bari_1=abs(limit[0] - BARI["theta_1"]),
        bari_40=abs(limit[1] - BARI["theta_40"]),
        bari_rate=abs(limit[2] - BARI["rate_1"]),
    )
    ends = [bari(n, BARI_STEPS[:1])[0, 1] for n in (10, 20)] + [values[0, 1]]
    gaps = np.diff(ends)
    report.measure(bari_n=np.log2(abs(gaps[0] / gaps[1])), bari_limit=ends[-1] + gaps[-1] / 3)


def draw(report: Report, shapes, beams, closed) -> None:
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.5), layout="constrained")
    left.plot(*hanging_curve(), color="0.6", lw=3, label="catenary")
    for n in (min(shapes), max(shapes)):
        left.plot(shapes[n][0][:, 0], shapes[n][0][:, 2], ".-", lw=0.8, ms=4, label=f"{n} segments")
    left.set(xlabel="x (m)", ylabel="z (m)", title="hanging between two points")
    for load, (coarse, _, fine) in beams.items():
        (line,) = right.plot(fine[:, 0], fine[:, 2], lw=1, label=f"$P L^2/EI$ = {load:g}")
        right.plot(coarse[:, 0], coarse[:, 2], ".", color=line.get_color(), ms=4)
        right.plot(1 - closed[load][1], closed[load][0], "k+", ms=10)
    right.set(xlabel="x / L", ylabel="z / L", title="bent cantilever (+: exact end)")
    for axes in (left, right):
        axes.axis("equal")
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    report.save(figure)


def hanging_curve() -> tuple[np.ndarray, np.ndarray]:
    points = catenary((0, 0, 0), (1.0, 0, 0.2), 1.5, 200)
    return points[:, 0], points[:, 2]


if __name__ == "__main__":
    STUDY.main()
