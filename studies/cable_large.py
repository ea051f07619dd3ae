"""[C] Fig. 7: a planar chain of 34 revolute links with its end pinned, 30 s.

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
from studies.harness import Claim, Report, Study, at_most
from vioc.dynamics.cables.cable import Cable, cable
from vioc.dynamics.cables.modes import longest_step
from vioc.dynamics.cables.section import Section
from vioc.dynamics.cables.shapes import catenary
from vioc.dynamics.cables.statics import static_equilibrium

LINKS, LENGTH, SPAN = 34, 34.0, 20.4
TILT = np.radians(20.0)
DT, DURATION = 0.02, 30.0  # s, of the paper
QUICK = 6.0  # s, of the quick form
REPEATS = 5

STUDY = Study(
    __file__,
    "chain of 34 links pinned at its end, 30 s",
    compiled=Claim(
        "processor time for 30 s, compiled",
        at_most(0.3),
        unit="s",
        published=79.91,
        source="[C] VII",
        full_only=True,
    ),
    virtual=Claim(
        "processor time for 30 s, virtual machine",
        at_most(2.0),
        unit="s",
        published=79.91,
        source="[C] VII",
        full_only=True,
    ),
    build_compiled=Claim("first call compiled, functions and code included", unit="s", full_only=True),
    build_virtual=Claim("first call in the virtual machine, functions included", unit="s"),
    constraints=Claim("largest |h| of any step over the chain's length", at_most(1e-14)),
    step=Claim("the paper's step over the longest stable one about rest", at_most(1)),
    energy=Claim("band of the energy over its kinetic part's peak", at_most(1e-2)),
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
    steps = round((QUICK if report.quick else DURATION) / DT)
    for backend in ("virtual",) if report.quick else ("virtual", "compiled"):
        f = vioc.MidpointVI(system, DT, backend=backend)
        x0 = f.initial_state(start)
        before = time.perf_counter()
        result = f.rollout(x0, steps=steps)
        report.measure(**{f"build_{backend}": time.perf_counter() - before})
        if not report.quick:
            report.measure(**{backend: min(processor_time(f, x0, steps) for _ in range(REPEATS))})
    h = max(np.abs(result[f"h.{n}"]).max() for n in system.constraint_names)
    report.measure(constraints=h / LENGTH, energy=np.ptp(result.energy) / result["kinetic"].max())
    draw(report, result, links)


def processor_time(f: vioc.MidpointVI, x0: np.ndarray, steps: int) -> float:
    """Of a rollout, s; what else the machine does is left out."""
    before = time.process_time()
    f.rollout(x0, steps=steps)
    return time.process_time() - before


def draw(report: Report, run: vioc.Trajectory, links: Cable) -> None:
    import matplotlib.pyplot as plt

    figure, (shapes, energy) = plt.subplots(1, 2, figsize=(10, 4.5), layout="constrained")
    places = nodes(run, links)
    times = np.linspace(0.0, 6.0, 7)
    for t, color in zip(times, plt.get_cmap("viridis")(times / 6.5), strict=True):
        p = places[round(t / DT)]
        shapes.plot(p[:, 0], p[:, 2], color=color, label=f"{t:g} s")
    shapes.set(xlabel="x (m)", ylabel="z (m)", title=f"{LINKS} links, end pinned")
    shapes.axis("equal")
    shapes.legend(fontsize="small")
    energy.plot(run.t, run["kinetic"], color="0.6", lw=0.6, label="kinetic")
    energy.plot(run.t, run.energy - run.energy[0], color="tab:blue", lw=0.8, label="energy - its start")
    energy.set(xlabel="t (s)", ylabel="energy (J)", title=f"dt = {DT:g} s")
    energy.set_ylim(top=1.3 * run["kinetic"].max())
    energy.legend(loc="upper center", ncols=2, fontsize="small")
    for axes in (shapes, energy):
        axes.grid(alpha=0.3)
    report.save(figure)
    report.frame(run, np.linspace(0.0, 2.0, 5), title=f"{LINKS} links, end pinned")


if __name__ == "__main__":
    STUDY.main()
