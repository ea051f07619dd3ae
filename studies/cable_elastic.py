"""[C] Fig. 5-6: an elastic cable held at both ends, 500 steps, and its constraint error.

The paper prints no parameters; ours: ten extensible segments, 1 m, 0.5 kg/m, E A = 200 N, E I = 0.01 N m^2,
held at two points 0.8 m apart, released from the shape that it takes under gravity 45 degrees from the
vertical. With the paper's bending stiffness, as in its figures, and with the one that converges. Steps are
solved to 1e-13, because |h| is what the last Newton step leaves.
"""

from __future__ import annotations

import numpy as np

import vioc
from studies.cable_inextensible import nodes
from studies.harness import Claim, Report, Study, at_least, at_most, near
from vioc.cables import Cable, Section, cable, catenary, static_equilibrium

SEGMENTS, LENGTH, SPAN = 10, 1.0, 0.8
SECTION = Section(0.5, axial=200.0, bending=0.01)
DT, STEPS = 0.01, 500  # s, of Fig. 6
TOLERANCE = 1e-13  # of a step; the default, 1e-11, leaves |h| up to 3e-14
ORDER_STEPS = (0.004, 0.002, 0.001)  # s

STUDY = Study(
    __file__,
    "elastic cable held at both ends: constraint error over 500 steps",
    error=Claim(
        "largest |h| of 500 steps over the cable's length, the paper's stiffness",
        at_most(1e-14),
        published=1e-15,
        source="[C] Fig. 6",
    ),
    error_beam=Claim("the same, the beam's stiffness", at_most(1e-14), published=1e-15, source="[C] Fig. 6"),
    drift=Claim("|h| over the last 100 steps over that of the first 100", at_most(10)),
    energy=Claim("band of the energy over its kinetic part's peak, the paper's stiffness", at_most(0.1)),
    order=Claim("order of the configuration over dt, 0.2 s", near(2, 0.2)),
    stretch=Claim("largest elongation of a segment over its length", at_least(1e-3)),
)


def held(stiffness: str) -> tuple[vioc.System, Cable, np.ndarray]:
    """The system, its cable, and where it starts."""
    rope = cable("rope", SEGMENTS, LENGTH, SECTION, along="x", extensible=True, stiffness=stiffness)
    parts = [rope, vioc.tx(SPAN, name="hook"), rope.attach("hook", name="hook")]
    g = 9.81 * np.sqrt(0.5)
    tilted = vioc.System(*parts, vioc.Gravity(g, 0, -g))
    guess = rope.configuration(catenary((0, 0, 0), (SPAN, 0, 0), LENGTH, SEGMENTS))
    start = static_equilibrium(tilted, guess).q
    return vioc.System(*parts, vioc.Gravity(0, 0, -9.81), name="elastic cable"), rope, start


def violation(run: vioc.Trajectory) -> np.ndarray:
    """Largest |h| of each sample over the length (N+1,)."""
    return np.max([np.abs(run[f"h.{n}"]) for n in run.map.multiplier_names], axis=0) / LENGTH


@STUDY.body
def run(report: Report) -> None:
    runs = {}
    for stiffness in ("paper", "beam"):
        system, rope, start = held(stiffness)
        f = vioc.MidpointVI(system, DT, tolerance=TOLERANCE)
        runs[stiffness] = f.rollout(f.initial_state(start), steps=STEPS)
    errors = {name: violation(r) for name, r in runs.items()}
    last = runs["paper"]
    report.measure(
        error=errors["paper"][1:].max(),
        error_beam=errors["beam"][1:].max(),
        drift=errors["paper"][-100:].max() / max(errors["paper"][1:101].max(), 1e-16),
        energy=np.ptp(last.energy) / last["kinetic"].max(),
        stretch=max(np.abs(last[e]).max() for e in rope.extensions) * SEGMENTS / LENGTH,
    )
    ends = []
    for dt in (*ORDER_STEPS, ORDER_STEPS[-1] / 8):
        g = f.with_dt(dt)
        ends.append(g.rollout(g.initial_state(start), steps=round(0.2 / dt)).x[-1, : g.nq])
    sizes = [np.abs(e - ends[-1]).max() for e in ends[:-1]]
    report.measure(order=np.polyfit(np.log(ORDER_STEPS), np.log(sizes), 1)[0])
    draw(report, last, rope, errors)


def draw(report: Report, run: vioc.Trajectory, rope: Cable, errors: dict[str, np.ndarray]) -> None:
    import matplotlib.pyplot as plt

    figure, (shapes, error) = plt.subplots(1, 2, figsize=(10, 4.5), layout="constrained")
    places = nodes(run, rope)
    for t, color in ((0.0, "0.6"), (1.5, "tab:blue"), (3.0, "tab:red")):
        p = places[round(t / DT)]
        shapes.plot(p[:, 0], p[:, 2], ".-", color=color, label=f"t = {t:g} s")
    shapes.set(xlabel="x (m)", ylabel="z (m)", title="[C] Fig. 5")
    shapes.axis("equal")
    for name, values in errors.items():
        error.semilogy(run.t, np.maximum(values, 1e-18), ".", ms=2, label=f"{name} stiffness")
    error.axhline(1e-14, color="k", lw=0.8, ls=":", label="claimed")
    error.set(xlabel="t (s)", ylabel="|h| / L", title="constraint error ([C] Fig. 6)")
    for axes in (shapes, error):
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    report.save(figure)
    report.frame(run, (0.0, 1.5, 3.0))


if __name__ == "__main__":
    STUDY.main()
