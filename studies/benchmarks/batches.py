"""Independent rollouts in one call, on one core and on all."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from studies.benchmarks import problems, simulators
from studies.benchmarks.harness import ABSENT, COMPILED, Bench, Row

LINKS = (1, 3, 10, 40)
THREADS = 10  # links of the batch on all cores
COMPILES = 3  # links up to which MJX compiles in a minute
FEW = 64  # states: of 4096 MJX's derivatives did not come back on two cores


def batches(bench: Bench) -> Iterator[Row]:
    """`rollouts`: samples side by side in compiled code, and threads."""
    count, steps = (8, 20) if bench.quick else (64, 500)
    for n in LINKS[:2] if bench.quick else LINKS:
        yield _row(bench, n, count, steps, 1)
        if n == THREADS and (os.cpu_count() or 1) > 1:
            yield _row(bench, n, count, steps, os.cpu_count() or 1)
    for n in LINKS[:1] if bench.quick else LINKS[:2]:
        yield _slopes(bench, n, FEW)


def _row(bench: Bench, n: int, count: int, steps: int, workers: int) -> Row:
    scale, clock = 1e6 / count / steps, time.process_time if workers == 1 else time.perf_counter
    spread = np.random.default_rng(0).standard_normal((count, 2 * n)) * 0.1 / max(1.0, n / 10) ** 2

    def batch(backend: str) -> Callable[[], Any]:
        f, x0 = problems.pendulum(n, backend)
        return lambda: f.rollouts(x0 + spread, steps=steps, workers=workers)

    def one_by_one(backend: str) -> Callable[[], Any]:
        f, x0 = problems.pendulum(n, backend)
        return lambda: [f.rollout(x, steps=steps, warn=False) for x in x0 + spread]

    figures = bench.each(batch, scale, clock)
    peers: dict[str, float | str] = dict.fromkeys(("MuJoCo Euler", "MuJoCo RK4"), ABSENT)
    if COMPILED in figures:
        peers = {"one by one": bench.best(one_by_one(COMPILED), scale, clock), **peers}
    if simulators.mujoco() is not None:
        f, x0 = problems.pendulum(n)
        X0 = x0 + spread
        for rule in ("Euler", "RK4"):
            run = simulators.MujocoRollout(f.system, x0[:n], f.dt, rule)
            ready = run.many(X0[:, :n], f.velocities(X0), steps, workers)
            peers[f"MuJoCo {rule}"] = bench.best(ready, scale, clock)
            if rule == "Euler" and workers == 1 and n <= COMPILES and simulators.mjx() is not None:
                ready = run.many_by_mjx(X0[:, :n], f.velocities(X0), steps)
                peers["MJX Euler, single precision"] = bench.best(ready, scale, clock)
    name = (
        f"{count} rollouts of {steps} steps, {n} link{'s' * (n > 1)}, {workers} thread{'s' * (workers > 1)}"
    )
    note = f"{1e6 / min(figures.values()):,.0f} steps/s"
    return Row(name, "us a step", figures, {}, peers, note)


def _slopes(bench: Bench, n: int, count: int) -> Row:
    """A step of many states with A, B."""
    scale = 1e6 / count
    spread = np.random.default_rng(0).standard_normal((count, 2 * n)) * 0.1

    def both(backend: str) -> Callable[[], Any]:
        f, x0 = problems.pendulum(n, backend)
        return lambda: f.derivatives.linearize(f.steps_at(x0 + spread, np.zeros((count, f.nu)), 0))

    peers: dict[str, float | str] = {"MJX Euler, single precision": ABSENT}
    if simulators.mjx() is not None:
        f, x0 = problems.pendulum(n)
        run = simulators.MujocoRollout(f.system, x0[:n], f.dt, "Euler")
        ready = run.slopes_by_mjx((x0 + spread)[:, :n], f.velocities(x0 + spread))
        peers["MJX Euler, single precision"] = bench.best(ready, scale, time.process_time)
    figures = bench.each(both, scale, time.process_time)
    return Row(
        f"a step of {count} states with A, B, {n} link{'s' * (n > 1)}", "us a step", figures, {}, peers
    )
