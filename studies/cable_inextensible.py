"""[C] Fig. 4: an inextensible cable of ten segments with revolute joints, from rest, at 0, 2 and 4 s.

The paper prints no numbers for it; here the cable is 10 m long, 0.1 kg/m, and starts stretched out level. A
chain without stiffness is chaotic once its end has whipped, so order is measured before.
"""

from __future__ import annotations

import numpy as np

import vioc
from studies.harness import Claim, Report, Study, at_most, near
from vioc.cables import Cable, Section, cable

SEGMENTS, LENGTH = 10, 10.0
DT, DURATION = 0.005, 4.0  # s
STEPS = (0.008, 0.004, 0.002)  # s
EARLY = 0.4  # s, before the whip

STUDY = Study(
    __file__,
    "inextensible cable of ten segments that falls from level",
    segments=Claim(
        "largest change of a segment's length over its length, any sample",
        at_most(1e-14),
        published="implicit in the coordinates",
        source="[C] III",
    ),
    order=Claim("order of the far end's path over dt, first 0.4 s", near(2, 0.2)),
    band=Claim("largest change of the energy over 4 s over m g L, dt 0.005 s", at_most(1e-3)),
    half=Claim("the same at half the step", at_most(3e-4)),
    end=Claim("largest energy change before the whip (0.4 s) over m g L", at_most(1e-5)),
)


def falling() -> tuple[vioc.System, Cable]:
    rope = cable("rope", SEGMENTS, LENGTH, Section(0.1), along="x")
    return vioc.System(rope, vioc.Gravity(0, 0, -9.81), name="falling cable"), rope


def nodes(run: vioc.Trajectory, rope: Cable) -> np.ndarray:
    """Positions of the nodes (N+1, segments + 1, 3), m."""
    index = [run.map.system.frame_index(name) for name in rope.nodes]
    return run.map.frame_positions(run.x)[:, index]


@STUDY.body
def run(report: Report) -> None:
    system, rope = falling()
    weight = 0.1 * LENGTH * 9.81 * LENGTH
    runs = {}
    f = vioc.MidpointVI(system, DT)
    for dt in (DT, DT / 2):
        runs[dt] = f.with_dt(dt).rollout(f.initial_state(), steps=round(DURATION / dt))
    places = nodes(runs[DT], rope)
    lengths = np.linalg.norm(np.diff(places, axis=1), axis=2)
    change = {dt: np.abs(r.energy - r.energy[0]) / weight for dt, r in runs.items()}
    report.measure(
        segments=np.abs(lengths / (LENGTH / SEGMENTS) - 1).max(),
        band=change[DT].max(),
        half=change[DT / 2].max(),
        end=change[DT][: round(EARLY / DT)].max(),
    )
    ends = []
    for dt in (*STEPS, STEPS[-1] / 8):
        early = f.with_dt(dt).rollout(f.initial_state(), steps=round(EARLY / dt))
        ends.append(nodes(early, rope)[-1, -1])
    errors = [np.linalg.norm(e - ends[-1]) for e in ends[:-1]]
    report.measure(order=np.polyfit(np.log(STEPS), np.log(errors), 1)[0])
    draw(report, runs, places, change)


def draw(report: Report, runs, places: np.ndarray, change) -> None:
    import matplotlib.pyplot as plt

    figure, (shapes, energy) = plt.subplots(1, 2, figsize=(10, 4.5), layout="constrained")
    for t, color in ((0.0, "0.6"), (2.0, "tab:blue"), (4.0, "tab:red")):
        p = places[round(t / DT)]
        shapes.plot(p[:, 0], p[:, 2], ".-", color=color, label=f"t = {t:g} s")
    shapes.set(xlabel="x (m)", ylabel="z (m)", title="[C] Fig. 4")
    shapes.axis("equal")
    for dt, values in change.items():
        energy.plot(runs[dt].t, values, lw=0.8, label=f"dt = {dt:g} s")
    energy.set(xlabel="t (s)", ylabel="|energy - its start| / (m g L)", title="energy")
    for axes in (shapes, energy):
        axes.grid(alpha=0.3)
        axes.legend()
    report.save(figure)
    report.frame(runs[DT], (0.0, 0.8, 1.6, 2.4, 3.2, 4.0))


if __name__ == "__main__":
    STUDY.main()
