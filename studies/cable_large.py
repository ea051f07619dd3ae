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
from studies.harness import Claim, Report, Study, at_least, at_most, near
from vioc.cables import Cable, Section, cable, catenary, longest_step, static_equilibrium

LINKS, LENGTH, SPAN = 34, 34.0, 20.4
TILT = np.radians(20.0)
DT, DURATION = 0.02, 30.0  # s, of the paper
QUICK = 6.0  # s, of the quick form
REPEATS = 5
FEW, DRAG = 4, (0.3, 2.0)  # links, N s/m^2 along and across them, for the power of drag

STUDY = Study(
    __file__,
    "chain of 34 links pinned at its end, 30 s",
    compiled=Claim(
        "processor time for 30 s, compiled",
        unit="s",
        published=79.91,
        source="[C] VII",
        full_only=True,
    ),
    virtual=Claim(
        "processor time for 30 s, virtual machine",
        unit="s",
        published=79.91,
        source="[C] VII",
        full_only=True,
    ),
    speedup=Claim("virtual machine over compiled, processor time", at_least(2), full_only=True),
    free_bodies=Claim(
        "as many dense factorizations of free bodies' equations (376 unknowns) over all of a compiled run",
        at_least(5),
        full_only=True,
    ),
    drag=Claim(
        f"energy that drag takes from {FEW} links, over the integral of its power along them", near(1, 1e-3)
    ),
    turning=Claim("share of it that the links' turning takes", near(0.042, 0.002)),
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
    if not report.quick:
        times = report.measured
        dense = dense_time(6 * LINKS + 5 * LINKS + 2) * steps
        report.measure(speedup=times["virtual"] / times["compiled"], free_bodies=dense / times["compiled"])
    dragged(report)
    h = max(np.abs(result[f"h.{n}"]).max() for n in system.constraint_names)
    report.measure(constraints=h / LENGTH, energy=np.ptp(result.energy) / result["kinetic"].max())
    draw(report, result, links)


def processor_time(f: vioc.MidpointVI, x0: np.ndarray, steps: int) -> float:
    """Of a rollout, s; what else the machine does is left out."""
    before = time.process_time()
    f.rollout(x0, steps=steps)
    return time.process_time() - before


def dense_time(n: int) -> float:
    """Shortest processor time of a dense factorization, s."""
    matrix, times = np.random.default_rng(0).normal(size=(n, n)), []
    for _ in range(REPEATS):
        before = time.process_time()
        np.linalg.solve(matrix, matrix[:, 0])
        times.append(time.process_time() - before)
    return min(times)


def dragged(report: Report) -> None:
    """The balance of energy of a swinging rope in drag, whose power is summed from its nodes' velocities.

    Along a rigid link velocities are linear, and their squares' integral is Simpson's.
    """
    rope = cable("drag", FEW, 2.0, Section(1.0), along="x", drag=DRAG)
    f = vioc.MidpointVI(vioc.System(rope, vioc.Gravity(0, 0, -9.81)), 0.002)
    run = f.rollout(f.initial_state({"drag-1": 0.3, "drag-3": -0.5}), steps=500)
    places = nodes(run, rope)
    v = np.gradient(places, run.t, axis=0, edge_order=2)
    links = np.diff(places, axis=1)
    t = links / np.linalg.norm(links, axis=2, keepdims=True)
    ends = v[:, :-1], (v[:, :-1] + v[:, 1:]) / 2, v[:, 1:]

    def power(at: np.ndarray) -> np.ndarray:
        along = (at * t).sum(axis=2)
        return DRAG[0] * along**2 + DRAG[1] * ((at**2).sum(axis=2) - along**2)

    first, middle, last = (power(at) for at in ends)
    length = rope.length / FEW
    whole = length * ((first + 4 * middle + last) / 6).sum(axis=1)
    taken = [np.trapezoid(p, run.t) for p in (whole, length * middle.sum(axis=1))]
    report.measure(drag=(run.energy[0] - run.energy[-1]) / taken[0], turning=1 - taken[1] / taken[0])


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
