"""A cable of 100 segments by the three integrators: one motion as dt -> 0, and their times a step.

A hanging cable of 10 m with some stiffness (0.5 kg/m, E I = 1e-3 N m^2), released from the shape that a
side load of 5 m/s^2 gives it. `MidpointVI` and `LinearTimeVI` solve for 100 angles, `MaximalVI` for 100
bodies with 500 rows of joints; the motion that the three are judged by is `MidpointVI`'s at a quarter of
the smallest step. `LinearTimeVI` and `MaximalVI` take potentials at q_k, which limits the hinges' stiffness
times dt^2.

The quick form has 6 segments of 0.1 m and 0.3 s, and takes no times.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import vioc
from studies.harness import Claim, Report, Study, at_most, near
from vioc.cables import Cable, Section, cable, static_equilibrium

SEGMENTS, QUICK = 100, 6
SEGMENT = 0.1  # m
DURATION, SHORT = 1.0, 0.3  # s
STEPS = (0.002, 0.001, 0.0005)  # s; LinearTimeVI is stable to about 0.006 s here
KINDS = {"midpoint": vioc.MidpointVI, "linear": vioc.LinearTimeVI, "maximal": vioc.MaximalVI}
TIMED = {"virtual": 100, "compiled": 500}  # steps


def claims() -> dict[str, Claim]:
    result = {}
    for key, kind in KINDS.items():
        name = kind.__name__
        result[f"{key}_order"] = Claim(f"order of the angles over dt, {name}", near(2, 0.2))
        result[f"{key}_error"] = Claim(f"largest error of an angle, smallest dt, {name}", unit="rad")
    for key in ("linear", "maximal"):
        name = KINDS[key].__name__
        result[f"{key}_gap"] = Claim(f"order of the gap between MidpointVI and {name}", near(2, 0.2))
    result["joints"] = Claim(
        "largest |g| of the joints over the length, MaximalVI, any sample", at_most(1e-12)
    )
    for backend in TIMED:
        for key, kind in KINDS.items():
            text = f"processor time a step, 100 segments, {kind.__name__}, {backend}"
            result[f"{key}_{backend}"] = Claim(text, unit="us", full_only=True)
    return result


STUDY = Study(__file__, "a cable of 100 segments by three integrators", **claims())


def hanging(segments: int) -> tuple[vioc.System, Cable, np.ndarray]:
    """The system, its cable, and where it starts."""
    rope = cable("rope", segments, SEGMENT * segments, Section(0.5, bending=1e-3))
    system = vioc.System(rope, vioc.Gravity(0, 0, -9.81), name=f"{segments} segments")
    return system, rope, static_equilibrium(vioc.System(rope, vioc.Gravity(5.0, 0, -9.81))).q


def angles(run: vioc.Trajectory, rope: Cable) -> np.ndarray:
    """Hinge angles at the end (segments,), rad."""
    return np.array([run[v][-1] for (v,) in rope.hinges])


def per_step(f: Any, start: np.ndarray, steps: int) -> float:
    """Least processor time of three rollouts, us a step; the first, which builds the functions, is apart."""
    x0, seconds = f.initial_state(start), []
    for _ in range(4):
        before = time.process_time()
        f.rollout(x0, steps=steps)
        seconds.append(time.process_time() - before)
    return 1e6 * min(seconds[1:]) / steps


def slope(errors: list[float]) -> float:
    return float(np.polyfit(np.log(STEPS), np.log(errors), 1)[0])


@STUDY.body
def run(report: Report) -> None:
    system, rope, start = hanging(QUICK if report.quick else SEGMENTS)
    duration = SHORT if report.quick else DURATION
    ends: dict[str, list[np.ndarray]] = {}
    runs, maps = {}, {key: kind(system, STEPS[-1]) for key, kind in KINDS.items()}
    for key, kind in KINDS.items():
        f, ends[key] = maps[key], []
        for dt in STEPS:
            x0 = kind(system, dt).initial_state(start)  # MaximalVI's start holds half an impulse of its step
            runs[key] = f.with_dt(dt).rollout(x0, steps=round(duration / dt))
            ends[key].append(angles(runs[key], rope))
        if key == "midpoint":
            g = f.with_dt(STEPS[-1] / 4)
            true = angles(g.rollout(g.initial_state(start), steps=round(duration / g.dt)), rope)
    errors = {key: [float(np.abs(e - true).max()) for e in each] for key, each in ends.items()}
    for key, sizes in errors.items():
        report.measure(**{f"{key}_order": slope(sizes), f"{key}_error": sizes[-1]})
    for key in ("linear", "maximal"):
        gaps = [float(np.abs(a - b).max()) for a, b in zip(ends["midpoint"], ends[key], strict=True)]
        report.measure(**{f"{key}_gap": slope(gaps)})
    last = runs["maximal"]
    joints = max(np.abs(last[f"h.{name}"]).max() for name in last.map.multiplier_names)
    report.measure(joints=joints / rope.length)
    times: dict[str, dict[str, float]] = {}
    if not report.quick:
        compiled = {key: kind(system, STEPS[-1], backend="compiled") for key, kind in KINDS.items()}
        for backend, these in (("virtual", maps), ("compiled", compiled)):
            times[backend] = {k: per_step(f, start, TIMED[backend]) for k, f in these.items()}
            report.measure(**{f"{key}_{backend}": value for key, value in times[backend].items()})
    draw(report, runs["midpoint"], rope, errors, times)


def draw(report: Report, run: vioc.Trajectory, rope: Cable, errors, times) -> None:
    import matplotlib.pyplot as plt

    figure, panels = plt.subplots(
        1, 3 if times else 2, figsize=(13 if times else 9, 4.2), layout="constrained"
    )
    f: Any = run.map
    index = [f.system.frame_index(name) for name in rope.nodes]
    samples = np.linspace(0, len(run), 6).astype(int)
    places = f.frame_positions(run.x[samples])[:, index]
    for k, p, color in zip(samples, places, plt.get_cmap("viridis")(np.linspace(0, 0.9, 6)), strict=True):
        panels[0].plot(p[:, 0], p[:, 2], color=color, label=f"{run.t[k]:.2g} s")
    panels[0].set(xlabel="x (m)", ylabel="z (m)", title=f"{rope.segments} segments")
    panels[0].axis("equal")
    for (key, sizes), marker in zip(errors.items(), "osx", strict=True):
        panels[1].loglog(STEPS, sizes, marker + "-", label=KINDS[key].__name__)
    guide = np.array(STEPS) ** 2 / STEPS[0] ** 2 * 2 * max(e[0] for e in errors.values())
    panels[1].loglog(STEPS, guide, "k:", lw=0.8, label="order 2")
    panels[1].set_xticks(STEPS, [f"{dt:g}" for dt in STEPS], minor=False)
    panels[1].set_xticks([], minor=True)
    panels[1].set(xlabel="dt (s)", ylabel="largest error of an angle (rad)", title=f"after {run.t[-1]:g} s")
    if times:
        for i, (backend, values) in enumerate(times.items()):
            panels[2].bar(np.arange(3) + 0.4 * i, list(values.values()), 0.38, label=backend)
        panels[2].set_xticks(np.arange(3) + 0.2, [k.__name__ for k in KINDS.values()])
        panels[2].set(yscale="log", ylabel="processor time a step (us)", title="without the first call")
    for axes in panels:
        axes.grid(alpha=0.3, which="both")
        axes.legend(fontsize="small")
    report.save(figure)
    report.frame(run, np.linspace(0.0, run.t[-1], 5))


if __name__ == "__main__":
    STUDY.main()
