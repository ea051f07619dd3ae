"""[C] Fig. 7: a planar chain of 34 revolute links with its end pinned, 30 s; and 100 segments in O(n).

The paper prints counts, the step and the time, no lengths or masses: here links of 1 m and 1 kg, ends 20.4 m
apart, released from the shape under gravity 20 degrees from the vertical. In free bodies it would be 204
coordinates and 172 constraints. The longest stable step about rest goes with the square root of the link's
length: 0.045 s here, and 0.014 s with links of 0.1 m, which the paper's step could not take.
"""

from __future__ import annotations

import time

import numpy as np

import vioc
from studies.cable_inextensible import nodes
from studies.harness import Claim, Report, Study, at_most, near
from vioc.dynamics.cables.cable import Cable, cable
from vioc.dynamics.cables.modes import longest_step
from vioc.dynamics.cables.section import Section
from vioc.dynamics.cables.shapes import catenary
from vioc.dynamics.cables.statics import static_equilibrium

LINKS, LENGTH, SPAN = 34, 34.0, 20.4
TILT = np.radians(20.0)
DT, DURATION = 0.02, 30.0  # s, of the paper
REPEATS = 5
SEGMENTS = 100
STEPS = (0.002, 0.001, 0.0005)  # s; LinearTimeVI takes potentials at q_k and is stable to about 0.006 s
STRETCHED = 1.0  # s

STUDY = Study(
    __file__,
    "chain of 34 links pinned at its end; 100 segments by two integrators",
    compiled=Claim(
        "time for 30 s, compiled", at_most(0.3), unit="s", published=79.91, source="[C] VII", full_only=True
    ),
    virtual=Claim(
        "time for 30 s, virtual machine", at_most(2.0), unit="s", published=79.91, source="[C] VII"
    ),
    build_compiled=Claim("first call compiled, functions and code included", unit="s", full_only=True),
    build_virtual=Claim("first call in the virtual machine, functions included", unit="s"),
    constraints=Claim("largest |h| of 1500 steps over the chain's length", at_most(1e-14)),
    step=Claim("the paper's step over the longest stable one about rest", at_most(1)),
    energy=Claim("band of the energy over its kinetic part's peak", at_most(1e-2)),
    agree=Claim(
        "order over dt at which MidpointVI and LinearTimeVI agree, 100 segments, 1 s",
        near(2, 0.2),
        full_only=True,
    ),
    midpoint_us=Claim("time a step, 100 segments, MidpointVI, virtual machine", unit="us", full_only=True),
    linear_us=Claim("time a step, 100 segments, LinearTimeVI, virtual machine", unit="us", full_only=True),
    midpoint_c_us=Claim("time a step, 100 segments, MidpointVI, compiled", unit="us", full_only=True),
    linear_c_us=Claim("time a step, 100 segments, LinearTimeVI, compiled", unit="us", full_only=True),
)


def chain() -> tuple[vioc.System, Cable, np.ndarray]:
    """The system, its cable, and where it starts."""
    links = cable("link", LINKS, LENGTH, Section(1.0), along="x")
    parts = [links, vioc.tx(SPAN, name="pin"), links.attach("pin", name="pin")]
    tilted = vioc.System(*parts, vioc.Gravity(9.81 * np.sin(TILT), 0, -9.81 * np.cos(TILT)))
    guess = links.configuration(catenary((0, 0, 0), (SPAN, 0, 0), LENGTH, LINKS))
    return (
        vioc.System(*parts, vioc.Gravity(0, 0, -9.81), name="pinned chain"),
        links,
        static_equilibrium(tilted, guess).q,
    )


@STUDY.body
def run(report: Report) -> None:
    system, links, start = chain()
    report.measure(step=DT / longest_step(static_equilibrium(system, start)))
    for backend in ("virtual", "compiled"):
        if backend == "compiled" and report.quick:
            continue
        f = vioc.MidpointVI(system, DT, backend=backend)
        x0, seconds = f.initial_state(start), []
        for _ in range(REPEATS + 1):
            before = time.perf_counter()
            result = f.rollout(x0, steps=round(DURATION / DT))
            seconds.append(time.perf_counter() - before)
        report.measure(**{f"build_{backend}": seconds[0], backend: min(seconds[1:])})
    h = max(np.abs(result[f"h.{n}"]).max() for n in system.constraint_names)
    report.measure(constraints=h / LENGTH, energy=np.ptp(result.energy) / result["kinetic"].max())
    if not report.quick:
        two_integrators(report)
    draw(report, result, links)


def two_integrators(report: Report) -> None:
    """A hanging cable of 100 segments with some stiffness, released from the shape of a side load."""
    rope = cable("rope", SEGMENTS, 10.0, Section(0.5, bending=1e-3))
    system = vioc.System(rope, vioc.Gravity(0, 0, -9.81), name="100 segments")
    start = static_equilibrium(vioc.System(rope, vioc.Gravity(5.0, 0, -9.81))).q
    kinds = {"midpoint": vioc.MidpointVI, "linear": vioc.LinearTimeVI}
    ends: dict[str, list[np.ndarray]] = {}
    for name, kind in kinds.items():
        for backend, key, steps in (("virtual", f"{name}_us", 100), ("compiled", f"{name}_c_us", 1000)):
            f, seconds = kind(system, STEPS[-1], backend=backend), []
            for _ in range(3):  # the first builds the functions
                before = time.perf_counter()
                f.rollout(f.initial_state(start), steps=steps)
                seconds.append(time.perf_counter() - before)
            report.measure(**{key: 1e6 * min(seconds) / steps})
        runs = [f.with_dt(dt).rollout(f.initial_state(start), steps=round(STRETCHED / dt)) for dt in STEPS]
        ends[name] = [run.x[-1, : f.nq] for run in runs]
    gaps = [np.abs(a - b).max() for a, b in zip(*ends.values(), strict=True)]
    report.measure(agree=np.polyfit(np.log(STEPS), np.log(gaps), 1)[0])


def draw(report: Report, run: vioc.Trajectory, links: Cable) -> None:
    import matplotlib.pyplot as plt

    figure, (shapes, energy) = plt.subplots(1, 2, figsize=(10, 4.5), layout="constrained")
    places = nodes(run, links)
    times = np.linspace(0.0, 6.0, 7)
    for t, color in zip(times, plt.get_cmap("viridis")(times / 6.5), strict=True):
        p = places[round(t / DT)]
        shapes.plot(p[:, 0], p[:, 2], color=color, label=f"{t:g} s")
    shapes.set(xlabel="x [m]", ylabel="z [m]", title=f"{LINKS} links, end pinned")
    shapes.axis("equal")
    shapes.legend(fontsize="small")
    energy.plot(run.t, run["kinetic"], color="0.6", lw=0.6, label="kinetic")
    energy.plot(run.t, run.energy - run.energy[0], color="tab:blue", lw=0.8, label="energy - its start")
    energy.set(xlabel="t [s]", ylabel="[J]", title=f"dt = {DT:g} s")
    energy.legend()
    for axes in (shapes, energy):
        axes.grid(alpha=0.3)
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
