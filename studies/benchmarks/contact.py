"""Time of a step with contact: boxes dropped as in `studies.heap`, and a walking quadruped.

A step of one engine is not worth a step of another: notes say how deep the boxes stand in the floor at the
end, where rigid ones would touch it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import vioc
from studies import heap, quadruped_learning, quadruped_mujoco, quadruped_robot
from studies.benchmarks import contact_peers, simulators
from studies.benchmarks.harness import ABSENT, COMPILED, Bench, Row

SECONDS = 2.0


def contact(bench: Bench) -> Iterator[Row]:
    for n in (1,) if bench.quick else (1, 5, 10):
        yield _boxes(bench, n)
    if not bench.quick:
        yield from _walking(bench)


def _boxes(bench: Bench, n: int) -> Row:
    """n boxes fall, tumble and come to rest, all pairs free to meet."""
    steps = round((0.5 if bench.quick else SECONDS) / heap.DT)
    start = heap.start(n)
    notes = []

    def fall(backend: str) -> Callable[[], Any]:
        f = heap.heap(n, backend)
        x = f.initial_state(start)
        last = f.rollout(x, steps=steps, warn=False).x[-1]
        if backend == bench.backends[-1]:
            notes.append(f"vioc {depth(heap.places(last[None], n)[0]):.0e}")
        return lambda: f.rollout(x, steps=steps, warn=False)

    figures = bench.each(fall, 1e6 / steps)
    x = heap.heap(n, "virtual").initial_state(start)
    poses = x[: heap.STATE * n].reshape(n, heap.STATE)
    peers: dict[str, float | str] = {}
    for name, make in contact_peers.ENGINES.items():
        engine = make(poses)
        if engine is None:
            peers[name] = ABSENT
            continue
        peers[name] = bench.best(lambda engine=engine: engine(steps), 1e6 / steps)  # type: ignore[misc]
        notes.append(f"{name} {depth(engine(steps)):.0e}")
    text = "penetration at the end, m: " + ", ".join(notes)
    return Row(
        f"step, {n} box{'es' * (n > 1)} dropped", "us", figures, {}, peers, text, "studies/heap.py:heap"
    )


def depth(places: np.ndarray) -> float:
    """How far the lowest centre is nearer to the floor than half an edge, m; 0 where none is."""
    return max(0.0, heap.EDGE / 2 - float(places[:, 2].min()))


def _walking(bench: Bench, count: int = 2000, dt: float = 1e-3) -> Iterator[Row]:
    """A quadruped with 12 servos on its feet, a trot of 2 s, if its description is installed."""
    path = quadruped_robot.description()
    if path is None:
        return
    gait = quadruped_learning.Gait(frequency=2.0, swing=0.2, lift=0.4)
    angles, rates = gait.references(dt * np.arange(count))
    robot = quadruped_robot.Quadruped(path, dt)
    U, start = robot.inputs(angles, rates), robot.standing(angles[0])
    found: dict[str, float | str] = {"MuJoCo": ABSENT}
    if simulators.mujoco() is not None:
        run = quadruped_mujoco.Servoed(path, dt, start["base_z"], angles, rates)
        found["MuJoCo"] = bench.best(run, 1e6 / count)
    for cone in ("linear", "second-order"):
        system = robot.on_feet(cone)

        def walk(backend: str, system: vioc.System = system) -> Callable[[], Any]:
            f = vioc.ContactVI(system, dt, backend=backend)
            x0, own = f.initial_state(start), U if backend == COMPILED else U[:200]
            return lambda: [f.rollout(x0, own, warn=False) for _ in range(count // len(own))]

        f = vioc.MaximalVI(system, dt, backend=bench.backends[-1])
        x0 = f.initial_state(start, None, U[0])
        peers = {
            "MaximalVI": bench.best(lambda f=f, x0=x0: f.rollout(x0, U, warn=False), 1e6 / count),
            **found,
        }
        figures = bench.each(walk, 1e6 / count)
        times = 1e6 * dt / figures[bench.backends[-1]]
        yield Row(
            f"step, walking quadruped, {cone} cone",
            "us",
            figures,
            {COMPILED: 1e6 * dt / 60},
            peers,
            f"{times:.0f} times real time",
            "studies/quadruped_robot.py:Quadruped",
        )
