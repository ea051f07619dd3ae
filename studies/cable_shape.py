"""Shape control: a gripper bends a clamped wire into a given elastica, fast and without leaving it ringing.

A wire of 1 m, 0.1 kg/m and E I = 0.1 N m^2 lies on a plane, clamped at one end; the other is held in a
gripper whose place and angle are kinematic variables. What shapes it can rest in are the elasticas of its
length, three numbers each (docs/maths/cables.md), so that the pose that makes a target elastica is known.
It is looked for from another shape's by Gauss-Newton on the nodes, with the exact derivatives of the
equilibrium. The move between the two equilibria takes a second, at least acceleration of the gripper: DMOC
asks for the end exactly, the projection-operator Newton method weighs it. The wire's residual motion is the
largest distance of a node from its place in the target equilibrium in the 2 s that follow, with the gripper
still. The disturbed run starts in the wire's first mode, and is followed by a time-varying DLQR on the
gripper's pose.
"""

from __future__ import annotations

import time

import numpy as np
from scipy.special import ellipeinc, ellipj, ellipk

import vioc
from studies.cable_winches import cubic, effort
from studies.harness import Claim, Report, Study, at_least, at_most, near
from vioc.cables import (
    Cable,
    Section,
    StaticEquilibrium,
    cable,
    normal_modes,
    static_equilibrium,
    static_sensitivity,
)
from vioc.control import dmoc

GRIP = ("grip-x", "grip-y", "grip-turn")
START = (0.55, 2.6, -1.3)  # (k, w, u_0) of an elastica
GOAL = (0.7, 4.0, ellipk(0.7**2) - 2.0)  # symmetric about its inflection: an S
COUNTS, QUICK = (8, 16, 32), (6, 12)  # segments
SEGMENTS = 10  # of the moves; 6 in the quick form
DT, DURATION, AFTER, SETTLE = 0.01, 1.0, 2.0, 1.0  # s; the disturbed wire is judged SETTLE after the move
PUSH = 0.05  # m, of the node that moves most
R, WARMUP = 300.0, 20

STUDY = Study(
    __file__,
    "shape control: a wire is bent into a given elastica by its end",
    gap=Claim(
        "largest distance of a node from the target, best pose, 32 segments, over the length",
        at_most(1e-3),
        full_only=True,
    ),
    gap_order=Claim("its order over the number of segments", near(2, 0.2)),
    pose=Claim(
        "largest error of that pose, m or rad, 32 segments",
        at_most(1e-3),
        published="clamp of the elastica",
        source="Love 262-263",
        full_only=True,
    ),
    searched=Claim("steps of Gauss-Newton, most", at_most(20)),
    stable=Claim("least curvature of the energy in the found equilibria", at_least(0), unit="N m"),
    dmoc=Claim("residual motion, DMOC, over the length", at_most(1e-4)),
    descent=Claim("residual motion, projection descent, over the length", at_most(1e-4)),
    costs=Claim("difference of the two costs, relative", at_most(1e-2)),
    naive=Claim("residual motion where the gripper follows 3 s^2 - 2 s^3 of the time", at_least(5e-3)),
    feedback=Claim(
        f"disturbed by {PUSH:g} m, DLQR: the wire's distance from the target equilibrium, {SETTLE:g} s after "
        "the move on",
        at_most(1e-3),
        unit="m",
    ),
    open_loop=Claim("the same disturbance without feedback", at_least(3e-3), unit="m"),
    held=Claim("largest |h| of the gripper's hold, all runs", at_most(1e-10), unit="m"),
    dmoc_s=Claim("time of DMOC, functions included", unit="s"),
    descent_s=Claim("time of projection descent, functions included", unit="s"),
)


def elastica(shape: tuple[float, float, float], s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Points (n, 2), m, and tangent angles (n,) at arc lengths s of k, w, u_0; it starts along x at 0."""
    k, w, u0 = shape
    m = k * k
    (sn, cn, _, am), (sn0, cn0, _, am0) = ellipj(u0 + w * s, m), ellipj(u0, m)
    along = 2 / w * (ellipeinc(am, m) - ellipeinc(am0, m)) - s
    across = -2 * k / w * (cn - cn0)
    first = 2 * np.arcsin(k * sn0)
    turned = np.exp(-1j * first) * (along + 1j * across)
    return np.column_stack([turned.real, turned.imag]), 2 * np.arcsin(k * sn) - first


def wired(segments: int) -> tuple[vioc.System, Cable]:
    wire = cable(
        "wire",
        segments,
        1.0,
        Section(0.1, bending=0.1),
        along="x",
        hinges="z",
        start="clamped",
        damping=(0, 2e-3),
    )
    x, y, turn = map(vioc.K, GRIP)
    gripper = vioc.tx(x)[vioc.ty(y)[vioc.rz(turn, name="grip")]]
    return vioc.System(wire, gripper, wire.attach("grip", clamped=True, name="held"), name="wire"), wire


def resting(system: vioc.System, wire: Cable, shape: tuple[float, float, float]) -> StaticEquilibrium:
    """The equilibrium with the gripper where the elastica ends."""
    points, angles = elastica(shape, np.linspace(0, 1, wire.segments + 1))
    guess = wire.configuration(np.column_stack([points, 0 * angles]))
    return static_equilibrium(system, guess | dict(zip(GRIP, (*points[-1], angles[-1]), strict=True)))


def pose(equilibrium: StaticEquilibrium) -> np.ndarray:
    """Of the gripper (3,): m, m, rad."""
    return np.array([equilibrium[name] for name in GRIP])


def bend(
    wire: Cable, found: StaticEquilibrium, target: np.ndarray
) -> tuple[StaticEquilibrium, np.ndarray, int]:
    """The equilibrium whose nodes are nearest to points (segments + 1, 2), their distances, and steps."""
    k = vioc.Kinematics(found.system)

    def gap(equilibrium: StaticEquilibrium) -> np.ndarray:
        return np.array([k.position(n, equilibrium.q)[:2] for n in wire.nodes]) - target

    now = gap(found)
    for count in range(50):  # noqa: B007 - returned
        slopes = np.column_stack(list(static_sensitivity(found, GRIP).values()))
        J = np.vstack([k.position(n, found.q, 1)[:2] @ slopes for n in wire.nodes])
        step = -np.linalg.lstsq(J, now.ravel(), rcond=None)[0]
        step *= min(1.0, 0.3 / np.abs(step).max())  # m or rad: equilibria bend
        for _ in range(20):
            try:
                trial = static_equilibrium(found.system, found.q + slopes @ step)
                new = gap(trial)
                if np.linalg.norm(new) < np.linalg.norm(now):
                    break
            except vioc.errors.ConstraintError:  # out of the wire's reach
                pass
            step /= 2
        else:
            break
        found, now = trial, new
        if np.abs(step).max() < 1e-8:
            break
    return found, np.linalg.norm(now, axis=1), count


@STUDY.body
def run(report: Report) -> None:
    counts = QUICK if report.quick else COUNTS
    gaps, searched, stable, curves = [], [], [], {}
    for n in counts:
        system, wire = wired(n)
        target, angles = elastica(GOAL, np.linspace(0, 1, n + 1))
        best, distances, steps = bend(wire, resting(system, wire, START), target)
        gaps.append(distances.max())
        searched.append(steps)
        stable.append(best.stiffness)
        k = vioc.Kinematics(system)
        curves[n] = np.array([k.position(node, best.q)[:2] for node in wire.nodes])
    report.measure(
        gap_order=-np.polyfit(np.log(counts), np.log(gaps), 1)[0], searched=max(searched), stable=min(stable)
    )
    if not report.quick:
        report.measure(gap=gaps[-1], pose=np.abs(pose(best) - [*target[-1], angles[-1]]).max())
    move(report, curves)


def move(report: Report, curves: dict[int, np.ndarray]) -> None:
    """From the start's equilibrium to the goal's."""
    system, wire = wired(6 if report.quick else SEGMENTS)
    at, to = resting(system, wire, START), resting(system, wire, GOAL)
    f = vioc.MidpointVI(system, DT)
    start, goal = (f.state_from_configurations(e.q, e.q) for e in (at, to))
    steps, total = round(DURATION / DT), round((DURATION + AFTER) / DT)
    index = [system.frame_index(n) for n in wire.nodes]
    places = f.frame_positions(goal)[0, index]

    def distance(run: vioc.Trajectory) -> np.ndarray:
        return np.linalg.norm(f.frame_positions(run.x)[:, index] - places, axis=2).max(axis=1)

    still = np.tile(pose(to), (total - steps, 1))
    naive = f.rollout(start, cubic(pose(at), pose(to), steps, total))
    guess = f.rollout(start, naive.u[:steps])
    hinges = [v for (v,) in wire.hinges]
    # the hold takes two of the hinges' degrees of freedom
    final = {name: to[name] for name in (*GRIP, *hinges[:-2])}
    final |= dict.fromkeys([f"v.{name}" for name in final], 0.0)

    before = time.perf_counter()
    exact = dmoc.solve(f, effort(f, GRIP), guess, steps=steps, initial=start, final=final)
    report.measure(dmoc_s=time.perf_counter() - before)
    moved = f.rollout(start, np.concatenate([exact.trajectory.u, still]))

    before = time.perf_counter()
    weights = {name: (1e5, to[name]) for name in (*GRIP, *hinges)}
    weights |= {f"v.{name}": (1e3, 0.0) for name in weights}
    Q = {**dict.fromkeys((*GRIP, *(f"v.{g}" for g in GRIP)), 300.0), **dict.fromkeys(hinges, 1e3)}
    found = vioc.control.optimize(
        f, effort(f, GRIP, weights), guess.u, x0=start, projection=(Q, R), warmup=WARMUP
    )
    report.measure(descent_s=time.perf_counter() - before, costs=abs(found.cost / exact.cost - 1))
    descent = f.rollout(found.trajectory.x[-1], still)

    loop = found.stabilize(Q, R).hold(goal, pose(to))
    off = pushed(f, wire, at)
    closed = loop.rollout(off, total)
    loose = f.rollout(off, np.concatenate([found.trajectory.u, still]))
    late = steps + round(SETTLE / DT)
    runs = (moved, descent, closed, loose, naive)
    report.measure(
        dmoc=distance(moved)[steps:].max(),
        descent=distance(descent).max(),
        naive=distance(naive)[steps:].max(),
        feedback=distance(closed)[late:].max(),
        open_loop=distance(loose)[late:].max(),
        held=max(np.abs(r[f"h.held-{a}"]).max() for r in runs for a in "xy"),
    )
    curves_of = {"cubic": naive, "DMOC": moved, "open loop, disturbed": loose, "DLQR, disturbed": closed}
    draw(
        report,
        curves,
        f.frame_positions(moved.x)[:, index],
        moved,
        {k: distance(r) for k, r in curves_of.items()},
    )


def pushed(f: vioc.MidpointVI, wire: Cable, at: StaticEquilibrium) -> np.ndarray:
    """The state at rest with the wire displaced along its first mode, the gripper in its place."""
    k = vioc.Kinematics(f.system)
    shape = np.zeros(f.nq)
    shape[: f.nd] = normal_modes(at, 1).shapes[0]
    most = max(np.linalg.norm(k.position(n, at.q, 1) @ shape) for n in wire.nodes)
    q = vioc.consistent_configuration(f.system, at.q + PUSH / most * shape, fixed=GRIP).q
    return f.state_from_configurations(q, q)


def draw(report: Report, curves, places, moved: vioc.Trajectory, distances: dict[str, np.ndarray]) -> None:
    import matplotlib.pyplot as plt

    figure, (static, path, error) = plt.subplots(1, 3, figsize=(14, 4.4), layout="constrained")
    fine = np.linspace(0, 1, 300)
    static.plot(*elastica(START, fine)[0].T, color="0.6", lw=1, ls="--", label="start")
    static.plot(*elastica(GOAL, fine)[0].T, color="0.6", lw=4, label="target elastica")
    for n, points in curves.items():
        static.plot(*points.T, ".-", lw=0.8, ms=4, label=f"{n} segments")
    static.set(xlabel="x (m)", ylabel="y (m)", title="best equilibrium")
    samples = np.linspace(0, round(DURATION / DT), 8).astype(int)
    for i, color in zip(samples, plt.get_cmap("viridis")(np.linspace(0, 0.9, len(samples))), strict=True):
        path.plot(*places[i, :, :2].T, color=color, label=f"{moved.t[i]:.2f} s")
    path.set(xlabel="x (m)", ylabel="y (m)", title="the move, DMOC")
    for axes in (static, path):
        axes.axis("equal")
    for name, values in distances.items():
        error.semilogy(moved.t, np.maximum(values, 1e-7), lw=0.9, label=name)
    error.axhline(1e-3, color="k", lw=0.8, ls=":")
    error.axvline(DURATION, color="k", lw=0.8, ls=":")
    error.set(xlabel="t (s)", ylabel="largest distance of a node (m)", title="from the target equilibrium")
    for axes in (static, path, error):
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    report.save(figure)
    report.frame(moved, np.linspace(0.0, DURATION, 5))


if __name__ == "__main__":
    STUDY.main()
