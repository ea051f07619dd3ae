"""Time of A, B and of the z-contracted second order of a step, along trajectories."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import vioc
from studies.benchmarks import problems, simulators
from studies.benchmarks.harness import ABSENT, Bench, Row

LINKS = (1, 3, 10, 40)
TENSORS = 20  # steps, of 5 MB each
Motion = Callable[[str], vioc.Trajectory]


def derivatives(bench: Bench) -> Iterator[Row]:
    count = 10 if bench.quick else 200
    for n in LINKS[:2] if bench.quick else LINKS:

        def motion(backend: str, n: int = n) -> vioc.Trajectory:
            f, x0 = problems.pendulum(n, backend)
            return f.rollout(x0, steps=count)

        yield Row(f"A, B, {n}-link pendulum", "us", _first(bench, motion))
        yield Row(f"second order, {n}-link pendulum", "us", _second(bench, motion))
    yield from chain(bench)
    yield from quadruped(bench)
    if bench.quick:
        return

    def pulled(backend: str) -> vioc.Trajectory:
        f, x0, U = problems.marionette(count, backend)
        return f.rollout(x0, U, warn=False)

    name = "marionette of [S]"
    targets = {"virtual": 250.0, "compiled": 80.0}
    yield Row(f"A, B, {name}", "us", _first(bench, pulled), targets, note="reference implementation 510")
    targets = {"virtual": 1200.0, "compiled": 250.0}
    note = "one costate; A, B included"
    yield Row(f"second order, {name}", "us", _second(bench, pulled), targets, note=note)
    targets = {"virtual": 15000.0, "compiled": 15000.0}
    note = "all 80 Hessians; A, B included; reference implementation 14700"
    yield Row(f"second-order tensor, {name}", "us", _tensor(bench, pulled), targets, note=note)


def chain(bench: Bench) -> Iterator[Row]:
    """A, B at generic states of a chain with a torque on each of its links."""
    n, count = (5, 10) if bench.quick else (40, 200)
    rng = np.random.default_rng(0)
    q, v = 0.5 * rng.standard_normal((2, n))

    def motion(backend: str, steps: int = count) -> vioc.Trajectory:
        f = problems.driven_chain(n, backend)
        return f.rollout(f.initial_state(q, v), np.ones((steps, n)), dt=0.1 * problems.DT)  # it whips

    peers: dict[str, float | str] = {"pinocchio": ABSENT, "MuJoCo, finite differences": ABSENT}
    system = vioc.models.load("n_link_pendulum", n)
    if simulators.pinocchio() is not None:
        model, u = simulators.PinocchioChain(system), np.ones(n)
        peers["pinocchio"] = bench.best(lambda: model.linearize(q, v, u, problems.DT), 1e6)
    if simulators.mujoco() is not None:
        run = simulators.MujocoRollout(system, q, problems.DT, "Euler", motors=True)
        peers["MuJoCo, finite differences"] = bench.best(lambda: run.linearize(v), 1e6)
    yield Row(
        f"A, B, {n}-link chain, {n} torques",
        "us",
        _first(bench, motion),
        {"virtual": 160.0, "compiled": 40.0},
        peers,
        "others: of a semi-implicit Euler step",
    )
    yield Row("the same, one step in a call", "us", _first(bench, lambda backend: motion(backend, 1)))
    name, note = f"second order, {n}-link chain, {n} torques", "one costate; A, B included"
    yield Row(name, "us", _second(bench, motion), note=note)


def quadruped(bench: Bench) -> Iterator[Row]:
    """A, B and second order of 18 degrees of freedom."""
    count = 10 if bench.quick else 200

    def motion(backend: str) -> vioc.Trajectory:
        f, x0 = problems.quadruped(backend)
        return f.rollout(x0, 0.1 * np.random.default_rng(0).standard_normal((count, f.nu)), warn=False)

    yield Row("A, B, quadruped in flight, 18 DOF", "us", _first(bench, motion))
    note = "one costate; A, B included; published of analytic second derivatives 51"
    yield Row(
        "second order, quadruped in flight", "us", _second(bench, motion), {"compiled": 51.0}, note=note
    )


def _first(bench: Bench, motion: Motion) -> dict[str, float]:
    def make(backend: str) -> Callable[[], Any]:
        run = motion(backend)
        return lambda: run.map.linearize_trajectory(run)

    return _per_step(bench, motion, make)


def _second(bench: Bench, motion: Motion) -> dict[str, float]:
    def make(backend: str) -> Callable[[], Any]:
        run = motion(backend)
        Z = np.random.default_rng(0).standard_normal((len(run), run.map.ndx))
        return lambda: run.map.second_order_trajectory(run, Z)

    return _per_step(bench, motion, make)


def _tensor(bench: Bench, motion: Motion) -> dict[str, float]:
    def make(backend: str) -> Callable[[], Any]:
        run = motion(backend)
        few = run.map.rollout(run.x[0], run.u[:TENSORS], warn=False)
        return lambda: run.map.derivatives.tensor(few)

    return bench.each(make, 1e6 / TENSORS)


def _per_step(bench: Bench, motion: Motion, make: Callable[[str], Callable[[], Any]]) -> dict[str, float]:
    return bench.each(make, 1e6 / len(motion("virtual")))
