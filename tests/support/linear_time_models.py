"""Mechanisms for the tests and studies of the linear-time integrator."""

from __future__ import annotations

import numpy as np

import vioc
from support.numpy_se3 import random_pose
from vioc import Gravity, Mass, System


def random_mass(random: np.random.Generator) -> Mass:
    """A body with a full inertia and its centre off the origin."""
    second = np.diag(random.uniform(0.05, 0.5, 3))
    Q = random_pose(random)[:3, :3]
    inertia = Q @ (np.trace(second) * np.eye(3) - second) @ Q.T
    entries = tuple(inertia[[0, 1, 2, 0, 0, 1], [0, 1, 2, 1, 2, 2]])
    return Mass(random.uniform(0.5, 2), entries, tuple(0.3 * random.normal(size=3)))


def random_tree(n: int, seed: int, gravity: float = 9.81, kinds: int = 5, joint: str = "") -> System:
    """A branched tree of n joints of `kinds` kinds: revolute, prismatic, helical, spherical, universal.

    `joint` "free" makes the first one free, and the rest hangs on it.
    """
    random = np.random.default_rng(seed)
    children: list[list[int]] = [[] for _ in range(n + 1)]
    for i in range(n):
        children[random.integers(0 if joint else -1, i) if i else -1].append(i)

    def build(i: int):
        axis, mass, name = tuple(random.normal(size=3)), random_mass(random), f"q{i}"
        kind = random.integers(0, kinds)
        if joint and i == 0:
            made = vioc.free(name, mass=mass)
        elif kind == 3:
            made = vioc.spherical(name, mass=mass)
        elif kind == 4:
            made = vioc.universal(name, ("x", "y"), mass=mass)
        else:
            make = (vioc.revolute, vioc.prismatic, lambda *a, **k: vioc.helical(a[0], 0.3, a[1], **k))[kind]
            made = make(name, axis, mass=mass)
        below = tuple(build(c) for c in children[i])
        made = made[below] if below else made
        if joint and i == 0:
            return made
        T = random_pose(random)
        return vioc.se3(T[:3, 3], rotation=T[:3, :3])[(made,)]

    return System([build(i) for i in children[-1]], Gravity(0, 0, -gravity), name=f"tree_{n}")


def start_near(f, seed: int, size: float = 0.5, speed: float = 1.0) -> np.ndarray:
    """A random state of an open tree."""
    random = np.random.default_rng(seed)
    return f.initial_state(size * random.normal(size=f.nq), speed * random.normal(size=f.nq))
