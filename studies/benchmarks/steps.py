"""Time of a step inside a rollout, over the number of links and for mechanisms with loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import vioc
from studies.benchmarks import problems, simulators
from studies.benchmarks.harness import ABSENT, Bench, Row

LINKS = (1, 3, 10, 20, 40)
TARGETS = {1: (1.5, 0.25), 10: (12, 2.5), 40: (70, 18)}
PUBLISHED = {1: 6.4, 10: 188, 40: 15066}  # us, the reference implementation of [T] and [S]
Make = Callable[[str], tuple[vioc.MidpointVI, np.ndarray]]


def steps(bench: Bench) -> Iterator[Row]:
    links = LINKS[:3] if bench.quick else LINKS
    curves: dict[str, list[float]] = {}
    for n in links:
        row = Row(
            f"step, {n}-link pendulum",
            "us",
            _rollouts(bench, lambda backend, n=n: problems.pendulum(n, backend)),  # type: ignore[misc]
            _targets(*TARGETS.get(n, ())),
            _simulators(bench, n),
            f"reference implementation {PUBLISHED[n]:g}" if n in PUBLISHED else "",
        )
        for name, value in {**row.figures, **row.peers}.items():
            if not isinstance(value, str):
                curves.setdefault(name, []).append(value)
        yield row
    bench.curves["steps"] = {"links": list(links), "us": curves}
    yield Row(
        "step, closed chain of [T]",
        "us",
        _rollouts(bench, problems.closed_chain),
        _targets(20, 3),
        note="reference implementation 57",
    )
    yield Row(
        "step, scissor lift, 5 segments",
        "us",
        _rollouts(bench, lambda backend: problems.scissor_lift(5, backend), steps=1000),
        _targets(60, 10),
        _scissor_peers(bench),
        "reference implementation 146; MuJoCo's answers are wrong",
    )
    if bench.quick:
        return
    count = 500

    def pull(backend: str) -> Callable[[], Any]:
        f, x0, U = problems.marionette(count, backend)
        return lambda: f.rollout(x0, U, warn=False)

    yield Row(
        "step, marionette of [S]",
        "us",
        bench.each(pull, 1e6 / count),
        _targets(250, 40),
        note="reference implementation 990",
    )


def _targets(*figures: float) -> dict[str, float]:
    return dict(zip(("virtual", "compiled"), figures, strict=False))


def _rollouts(bench: Bench, make: Make, steps: int = problems.STEPS) -> dict[str, float]:
    count = 100 if bench.quick else steps

    def rollout(backend: str) -> Callable[[], Any]:
        f, x0 = make(backend)
        return lambda: f.rollout(x0, steps=count, warn=False)

    return bench.each(rollout, 1e6 / count)


def _simulators(bench: Bench, n: int) -> dict[str, float | str]:
    """A step by MuJoCo, DART, Drake, and forward dynamics by pinocchio."""
    system = vioc.models.load("n_link_pendulum", n)
    q = np.zeros(n)
    q[0] = problems.START
    count = 100 if bench.quick else problems.STEPS
    found: dict[str, float | str] = {}
    for integrator in ("Euler", "RK4"):
        name = f"MuJoCo {integrator}"
        if simulators.mujoco() is None:
            found[name] = ABSENT
            continue
        run = simulators.MujocoRollout(system, q, problems.DT, integrator)
        found[name] = bench.best(lambda run=run: run(count), 1e6 / count)  # type: ignore[misc]
    if simulators.pinocchio() is None:
        found["pinocchio ABA"] = ABSENT
    else:
        chain = simulators.PinocchioChain(system)
        found["pinocchio ABA"] = bench.best(lambda: chain.accelerations(q, 200), 1e6 / 200)
    if simulators.dart() is None:
        found["DART"] = ABSENT
    else:
        world = simulators.DartWorld(system, q, problems.DT)
        found["DART"] = bench.best(lambda: world.run(min(count, 500)), 1e6 / min(count, 500))
    if simulators.drake() is None:
        found["Drake"] = ABSENT
    else:
        plant = simulators.DrakePlant(system, q, problems.DT)
        found["Drake"] = bench.best(lambda: plant.run(min(count, 500)), 1e6 / min(count, 500))
    return found


def _scissor_peers(bench: Bench) -> dict[str, float | str]:
    from studies import peers

    system = vioc.models.scissor_lift(5)
    q = vioc.models.scissor_lift_configuration(5, problems.START)
    engines, count = peers.available(), 20 if bench.quick else 1000
    found: dict[str, float | str] = {}
    for name in (peers.ODE, peers.MUJOCO):
        if name in engines:
            runs = [engines[name](system, q, problems.DT, count, every=count) for _ in range(3)]
            found[name] = 1e6 * min(run.seconds for run in runs) / count
        else:
            found[name] = ABSENT
    return found
