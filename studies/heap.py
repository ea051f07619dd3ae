"""Boxes dropped as a heap come to rest and stay: 50 of them for 100 s, all pairs free to meet.

Crates of 0.2 m and 1 kg fall in layers of nine, tilted and off their places at random, and tumble over each
other. Between them 1225 pairs may meet in 9800 places; steps are of those that are near. Creep is what the
smoothing leaves of Coulomb's law at rest: kappa / (mu gamma) where a place is about to slip, else hardly any.
MuJoCo does the same drop where it is installed, with its elliptic cone and at its default softness.
"""

from __future__ import annotations

import time

import numpy as np

import vioc
from studies.harness import Claim, Report, Study, at_least, at_most
from vioc import Contact, Gravity, Mass, MaximalVI, PairContact, System
from vioc.compile import find_compiler
from vioc.dynamics.integrators.maximal.body_space import STATE, TWIST
from vioc.shapes import Box

EDGE, FRICTION, DT, SIDE = 0.2, 0.5, 0.01, 3  # m, -, s, boxes a layer each way
SPACING, HEIGHT, LIFT = 0.37, 0.35, 0.25  # m, between boxes, layers, and of the lowest
SHIFT, TILT = 0.02, 0.3  # m, rad
REST = 10.0  # s, from which on drift is counted
PIECE = 100  # steps

STUDY = Study(
    __file__,
    "a heap of boxes at rest without drift",
    completed=Claim("share of the steps that are done", at_least(1)),
    speed=Claim("largest speed at the end", at_most(1e-6), unit="m/s"),
    drift=Claim("farthest a box moves once it has come to rest", at_most(1e-8), unit="m"),
    rate=Claim("the same over the time", at_most(1e-10), unit="m/s"),
    depth=Claim("deepest any two enter each other, in the fall", at_most(1e-4), unit="m"),
    depth_rest=Claim("the same at rest", at_most(1e-6), unit="m"),
    gained=Claim("largest gain of energy of a step, over all that is lost", at_most(1e-3)),
    fall=Claim("time of a step until it rests", unit="ms"),
    still=Claim("time of a step at rest", unit="ms"),
    mujoco_drift=Claim("MuJoCo: farthest a box moves", unit="m"),
    mujoco_depth=Claim("MuJoCo: deepest at rest", unit="m"),
    mujoco_step=Claim("MuJoCo: time of a step", unit="ms"),
)


def heap(n: int, backend: str | None = None) -> MaximalVI:
    names, crate = [f"box{i}" for i in range(n)], Box((EDGE,) * 3)
    mass = Mass.box(1.0, crate.size)
    system = System(
        [vioc.free(f"b{i}", frame=name, mass=mass) for i, name in enumerate(names)],
        Gravity(0, 0, -9.81),
        [Contact.on(name, crate, friction=FRICTION, name=f"floor-{name}") for name in names],
        PairContact.among({name: crate for name in names}, friction=FRICTION),
        name=f"heap of {n}",
    )
    if backend is None:
        backend = "virtual" if find_compiler() is None else "compiled"
    return MaximalVI(system, DT, backend=backend)


def start(n: int) -> dict[str, float]:
    rng, q = np.random.default_rng(1), {}
    for i in range(n):
        layer, k = divmod(i, SIDE * SIDE)
        x, y = np.array(divmod(k, SIDE)) * SPACING + rng.uniform(-SHIFT, SHIFT, 2)
        q |= {f"b{i}-x": x, f"b{i}-y": y, f"b{i}-z": LIFT + HEIGHT * layer}
        q |= {f"b{i}-r{c}": a for c, a in zip("xyz", rng.uniform(-TILT, TILT, 3), strict=True)}
    return q


def drop(f: MaximalVI, x: np.ndarray, seconds: float):
    """States by pieces, energies, depths, and times of a step of each piece."""
    states, energies, depths, times = [x], [], [], []
    for _ in range(round(seconds / DT / PIECE)):
        before = time.process_time()
        run = f.rollout(states[-1], steps=PIECE, warn=False)
        times.append((time.process_time() - before) / PIECE)
        states.append(run.x[-1])
        energies.append(run.energy)
        own = [f.gaps(x).min() for x in (run.x if len(times) * PIECE * DT <= REST else run.x[-1:])]
        depths.append(max(0.0, -min(own)))
    return np.array(states), np.array(energies), np.array(depths), np.array(times)


def places(states: np.ndarray, n: int) -> np.ndarray:
    """Positions (pieces, n, 3), m."""
    return states[:, : STATE * n].reshape(len(states), n, STATE)[..., :3]


@STUDY.body
def run(report: Report) -> None:
    n, seconds, rest = (10, 3.0, 2.0) if report.quick else (50, 100.0, REST)
    f = heap(n)
    x = f.initial_state(start(n))
    states, energies, depths, times = drop(f, x, seconds)
    settled = round(rest / DT / PIECE)
    P = places(states, n)
    drift = np.linalg.norm(P[settled:] - P[settled], axis=2)
    lost = energies[0, 0] - energies[-1, -1]
    report.measure(
        completed=(len(states) - 1) * PIECE * DT / seconds,
        speed=np.abs(states[-1, STATE * n :].reshape(n, TWIST)[:, :3]).max(),
        drift=drift.max(),
        rate=drift[-1].max() / (seconds - rest),
        depth=depths.max(),
        depth_rest=depths[settled:].max(),
        gained=max(np.diff(e).max() for e in energies) / lost,
        fall=1e3 * times[:settled].mean(),
        still=1e3 * times[settled:].mean(),
    )
    beside = mujoco_heap(n, f, x, seconds, rest)
    keys = ("mujoco_drift", "mujoco_depth", "mujoco_step")
    if beside is None:
        report.skip("mujoco", *keys)
    else:
        report.measure(**dict(zip(keys, beside, strict=True)))
    draw(report, f, states, energies, drift)


def mujoco_heap(n: int, f: MaximalVI, x: np.ndarray, seconds: float, rest: float):
    """Drift (m), depth at the end (m), and time of a step (ms) of the same drop; None without MuJoCo."""
    try:
        import mujoco
    except ImportError:
        return None
    model = mujoco.MjModel.from_xml_string(mjcf(x[: STATE * n].reshape(n, STATE)))
    data = mujoco.MjData(model)
    before, settled = time.process_time(), None
    for k in range(round(seconds / DT)):
        mujoco.mj_step(model, data)
        if k == round(rest / DT) - 1:
            settled = data.qpos.reshape(n, STATE)[:, :3].copy()
    spent = time.process_time() - before
    drift = np.linalg.norm(data.qpos.reshape(n, STATE)[:, :3] - settled, axis=1).max()
    depth = max((-c.dist for c in data.contact), default=0.0)
    return drift, depth, 1e3 * spent / round(seconds / DT)


def mjcf(poses: np.ndarray) -> str:
    """Boxes at these places and quaternions (n, 7) as MuJoCo's XML."""
    half = " ".join([str(EDGE / 2)] * 3)
    friction = f'friction="{FRICTION} 0 0" condim="3"'
    bodies = "".join(
        f'<body pos="{p[0]} {p[1]} {p[2]}" quat="{p[3]} {p[4]} {p[5]} {p[6]}"><freejoint/>'
        f'<geom type="box" size="{half}" mass="1" {friction}/></body>'
        for p in poses
    )
    return (
        f'<mujoco><option timestep="{DT}" cone="elliptic"/><worldbody>'
        f'<geom type="plane" size="9 9 1" {friction}/>{bodies}</worldbody></mujoco>'
    )


def draw(report: Report, f: MaximalVI, states: np.ndarray, energies: np.ndarray, drift: np.ndarray) -> None:
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    left.plot(DT * np.arange(energies[:, :-1].size), energies[:, :-1].ravel())
    left.set(xlabel="t (s)", ylabel="energy (J)", title=f.system.name, xscale="symlog")
    seconds = PIECE * DT * np.arange(len(states))
    right.semilogy(seconds[-len(drift) :], np.maximum(drift.max(axis=1), 1e-16), label="farthest")
    right.semilogy(seconds[-len(drift) :], np.maximum(drift.mean(axis=1), 1e-16), label="mean")
    right.set(xlabel="t (s)", ylabel="moved since it rests (m)")
    right.legend()
    report.save(figure)


if __name__ == "__main__":
    STUDY.main()
