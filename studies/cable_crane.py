"""A load on a cable is carried over two metres and hangs still: DMOC, projection descent, feedback.

A trolley of 10 kg, driven by a force, carries 5 kg on a rope of 2 m and 0.2 kg/m in eight segments.
The cost is the force squared. DMOC asks for the end exactly; the projection-operator Newton method weighs
it. The residual swing is the load's largest distance from below the goal in the 5 s that follow, with
the force off. The disturbed runs start with the load 0.1 m off and are followed by a time-varying DLQR, which
holds the goal afterwards.
"""

from __future__ import annotations

import time

import numpy as np

import vioc
from studies.frames import poses
from studies.harness import Claim, Report, Study, at_least, at_most
from vioc.cables import Cable, Section, cable

SEGMENTS, LENGTH, DISTANCE = 8, 2.0, 2.0
DT, DURATION, AFTER = 0.02, 3.0, 5.0  # s
R = 1e-3  # of the force
END = {"trolley": 1e6, "v.trolley": 1e6, "load:x": 1e6}
SETTLE = 3.0  # s, after which the disturbed load is judged

STUDY = Study(
    __file__,
    "crane: a load on a cable moved without residual swing",
    dmoc=Claim("residual swing of the load, DMOC, force off", at_most(1e-3), unit="m"),
    descent=Claim("residual swing of the load, projection descent, force off", at_most(1e-3), unit="m"),
    naive=Claim("residual swing of a rest-to-rest cubic of the trolley", at_least(1e-2), unit="m"),
    costs=Claim("difference of the two costs, relative", at_most(1e-3)),
    feedback=Claim(
        f"disturbed by 0.1 m, DLQR: load's distance from the goal, {SETTLE:g} s after the move on",
        at_most(1e-3),
        unit="m",
    ),
    open_loop=Claim("the same disturbance without feedback", at_least(1e-2), unit="m"),
    force=Claim("largest force of the optimum", unit="N"),
    dmoc_s=Claim("time of DMOC, functions included", unit="s"),
    descent_s=Claim("time of projection descent, functions included", unit="s"),
    iterations=Claim("iterations of projection descent"),
)


def crane(driven: bool = True) -> tuple[vioc.System, Cable]:
    """With a force on the trolley, or with the trolley's place prescribed."""
    rope = cable("rope", SEGMENTS, LENGTH, Section(0.2, bending=0.05))[vioc.tz(0.0, name="load", mass=5.0)]
    trolley = vioc.tx("trolley" if driven else vioc.K("trolley"), mass=10.0)[rope.frame]
    force = vioc.JointForce("trolley", "force") if driven else ()
    return vioc.System(trolley, rope.terms, vioc.Gravity(0, 0, -9.81), force, name="crane"), rope


def swing(f: vioc.MidpointVI, x: np.ndarray) -> np.ndarray:
    """Distance of the load from below the goal from a state on, force off (N+1,)."""
    return np.abs(f.rollout(x, steps=round(AFTER / f.dt))["load:x"] - DISTANCE)


@STUDY.body
def run(report: Report) -> None:
    system, rope = crane()
    f = vioc.MidpointVI(system, DT)
    steps = round(DURATION / DT)
    rest, goal = f.initial_state(), f.initial_state({"trolley": DISTANCE})

    before = time.perf_counter()
    cost = vioc.control.quadratic(f, R=R)
    exact = vioc.control.dmoc.Problem(
        vioc.control.dmoc.Phase(f, steps, cost, initial=rest, final=goal)
    ).solve()
    report.measure(dmoc_s=time.perf_counter() - before)
    best = exact.trajectory
    moved = f.rollout(rest, best.u)  # what the inputs do, not what the transcription says
    report.measure(dmoc=swing(f, moved.x[-1]).max(), force=np.abs(best["u.force"]).max())

    before = time.perf_counter()
    weights = {**END, **{f"v.{v}": 1e4 for (v,) in rope.hinges}, **{v: 1e4 for (v,) in rope.hinges}}
    weighed = vioc.control.quadratic(f, R=R, Qf=weights, goal={"trolley": DISTANCE, "load:x": DISTANCE})
    found = vioc.control.optimize(f, weighed, x0=rest, steps=steps)
    report.measure(
        descent_s=time.perf_counter() - before,
        iterations=found.iterations,
        descent=swing(f, found.trajectory.x[-1]).max(),
        costs=abs(found.cost / exact.cost - 1),
    )

    Q = {"trolley": 100.0, "p.trolley": 0.1, **{v: 1000.0 for (v,) in rope.hinges}}
    loop = found.stabilize(Q, 1e-2).hold(goal, np.zeros(1))
    off = f.initial_state({rope.hinges[0][0]: np.arcsin(-0.1 / LENGTH)})
    total = steps + round(AFTER / DT)
    closed = loop.rollout(off, total)
    settled = steps + round(SETTLE / DT)
    U = np.concatenate([found.trajectory.u, np.zeros((total - steps, 1))])
    loose = f.rollout(off, U)
    report.measure(
        feedback=np.abs(closed["load:x"] - DISTANCE)[settled:].max(),
        open_loop=np.abs(loose["load:x"] - DISTANCE)[settled:].max(),
    )
    report.measure(naive=naive(steps))
    draw(report, moved, closed, loose)


def naive(steps: int) -> float:
    """Swing after the trolley has followed 3 s^2 - 2 s^3."""
    system, _ = crane(driven=False)
    f = vioc.MidpointVI(system, DT)
    s = np.clip(np.arange(1, steps + round(AFTER / DT) + 1) / steps, 0, 1)
    run = f.rollout(f.initial_state(), (DISTANCE * (3 * s**2 - 2 * s**3))[:, None])
    return float(np.abs(run["load:x"] - DISTANCE)[steps:].max())


def draw(report: Report, moved: vioc.Trajectory, closed: vioc.Trajectory, loose: vioc.Trajectory) -> None:
    import matplotlib.pyplot as plt

    figure, (path, place, error) = plt.subplots(1, 3, figsize=(13, 4), layout="constrained")
    poses(moved, np.linspace(0.0, DURATION, 9), ax=path)
    place.plot(moved.t, moved["trolley"], label="trolley")
    place.plot(moved.t, moved["load:x"], label="load")
    place.plot(moved.t[:-1], moved["u.force"] / 50, color="0.6", lw=0.8, label="force (50 N)")
    place.set(xlabel="t (s)", ylabel="x (m)", title="optimum")
    for run, name in ((loose, "open loop"), (closed, "DLQR")):
        error.semilogy(run.t, np.maximum(np.abs(run["load:x"] - DISTANCE), 1e-6), lw=0.8, label=name)
    error.axhline(1e-3, color="k", lw=0.8, ls=":")
    error.axvline(DURATION, color="k", lw=0.8, ls=":")
    error.set(xlabel="t (s)", ylabel="|load - goal| (m)", title="load starts 0.1 m off")
    for axes in (path, place, error):
        axes.grid(alpha=0.3)
    place.legend()
    error.legend()
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
