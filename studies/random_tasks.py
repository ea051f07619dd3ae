"""Random tasks of optimal control that are feasible by construction, on mechanisms of the random family.

A mechanism of 2 to 10 joints, half of the rods of its loops strings, starts at rest. A rollout of random
smooth inputs from there shows what it can do in half a second; where that ends is the goal, and every limit
holds along it. Three kinds of task take turns:

- *goal*: to come near the configuration, at a price of inputs and of the way, without limits;
- *bounded*: the same with limits of inputs and configurations, and of the tensions of strings;
- *end*: inputs as small as can be, limited, so that a point of the last body ends exactly there.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from itertools import count, islice
from typing import Any, NamedTuple

import casadi as ca
import numpy as np

import vioc
from studies.tasks import Task
from vioc.control import quadratic
from vioc.models import RandomMechanism, mechanism

SEED = 61
JOINTS, STRINGS = (2, 10), 0.5
DT, STEPS = 0.01, 50
ACCELERATION = 6.0  # rad/s^2 or m/s^2: size of what the inputs of the rollout would do to a joint alone
ROOM = 0.2  # of the limits beyond the rollout, of its range and in rad or m
INDEPENDENT = 1e-2  # least slope of the end's conditions by inputs of that size, m
KINDS = "goal", "bounded", "end"


class RandomTask(NamedTuple):
    """A task with the name of its mechanism, its kind, and a rollout that keeps all limits."""

    name: str
    kind: str
    task: Task
    shown: vioc.Trajectory


def random_tasks(number: int, *, smallest: bool = False) -> Iterator[RandomTask]:
    """The first tasks of the family; with `smallest` only those of at most 4 variables."""
    found = (random_task(i) for i in count())
    return islice((t for t in found if t and (not smallest or t.task.map.nx <= 8)), number)


def random_task(index: int) -> RandomTask | None:
    """None where the mechanism has no input, or falls to where no step leads on."""
    m = mechanism(index, seed=SEED, joints=JOINTS, strings=STRINGS)
    if not m.system.inputs:
        return None
    f, rng, kind = vioc.MidpointVI(m.system, DT), np.random.default_rng([SEED, index, 1]), KINDS[index % 3]
    x0 = f.initial_state(m.q)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            run = f.rollout(x0, _waves(rng, m, f), warn=False)
        except vioc.StepError:
            return None
    limits = {} if kind == "goal" else {"bounds": _bounds(f, run)}
    names = m.system.variables
    if kind == "end":
        held = dict(zip(names, m.q, strict=True))
        cost = quadratic(f, Q=dict.fromkeys(names, 1e-2), R=0.1, goal=held)
        limits["final"] = _end(f, run)
        if not limits["final"]:
            return None
    else:
        goal = {n: float(run[n][-1]) for n in names}
        cost = quadratic(f, Q=dict.fromkeys(names, 0.1), R=0.1, Qf=dict.fromkeys(names, 10.0), goal=goal)
    return RandomTask(m.name, kind, Task(f, cost, None, x0, STEPS, limits), run)


def _waves(rng: np.random.Generator, m: RandomMechanism, f: vioc.MidpointVI) -> np.ndarray:
    """Two sines on each input, in proportion to what its joint carries."""
    M = f.lagrangian.mass_matrix(m.q)
    t = DT * np.arange(STEPS)[:, None]
    total = np.zeros((STEPS, f.nu))
    size = np.array(
        [ACCELERATION * M[i, i] for i in (m.system.variables.index(n[2:]) for n in f.input_names)]
    )
    for _ in range(2):
        rate, phase = rng.uniform(0.5, 2.0, f.nu), rng.uniform(0, 2 * np.pi, f.nu)
        total += rng.uniform(0.3, 1.0, f.nu) * size * np.sin(2 * np.pi * rate * t + phase)
    return total


def _bounds(f: vioc.MidpointVI, run: vioc.Trajectory) -> dict[str, Any]:
    """Limits of inputs, configurations and tensions that the rollout keeps with room."""
    bounds: dict[str, Any] = {}
    for i, n in enumerate(f.input_names):
        bounds[f"u.{n}"] = (1 + ROOM) * float(np.abs(run.u[:, i]).max())
    for n in f.system.variables:
        low, high = float(run[n].min()), float(run[n].max())
        room = ROOM * (1 + high - low)
        bounds[n] = (low - room, high + room)
    for n in f.mechanism.strings:
        tension = run[f"tension.{n}"]
        bounds[f"tension.{n}"] = (float(tension.min() - ROOM * (1 + np.ptp(tension))), None)
    return bounds


def _end(f: vioc.MidpointVI, run: vioc.Trajectory) -> dict[str, float]:
    """Where the tip of the last body ends, of as many coordinates as the inputs move independently."""
    A, B = f.linearize_trajectory(run)
    tips = [n.removesuffix(":x") for n in f.quantities.names() if n.startswith("tip") and n.endswith(":x")]
    tip = max(tips, key=lambda n: int(n[3:]))
    size = np.abs(run.u).max(axis=0)
    by_x = ca.Function(
        "tip",
        [f.symbols.x],
        [ca.jacobian(ca.vertcat(*(f.quantity(f"{tip}:{a}") for a in "xyz")), f.symbols.x)],
    )
    rows, slopes = by_x(run.x[-1]).full(), []
    for k in reversed(range(len(run))):
        slopes.append(rows @ B[k] * size)
        rows = rows @ A[k]
    slope, chosen = np.hstack(slopes), list(range(3))
    while chosen and np.linalg.svd(slope[chosen], compute_uv=False)[-1] < INDEPENDENT:
        weights = np.abs(np.linalg.svd(slope[chosen])[0][:, -1])
        chosen.pop(int(np.argmax(weights)))
    return {f"{tip}:{'xyz'[i]}": float(run[f"{tip}:{'xyz'[i]}"][-1]) for i in chosen}
