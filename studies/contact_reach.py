"""How near to upright an acrobot whose elbow stops at a quarter turn comes, whatever its torque.

Torque and stop act on the elbow alone, so any sequence of elbow angles within the limits is allowed, and
what is left of a step of the midpoint rule is that of shoulder angle and its momentum. Dynamic programming
over (elbow, shoulder, momentum) finds the least distance after so many steps; grids add to it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.ndimage import map_coordinates

G, H, DAMPING, STOP = 9.81, 0.05, 0.5, np.pi / 2
FAR, FAST = np.pi + 1, 18.0  # of the grid: rad, N m s
ELBOWS, ITERATIONS = 9, 6
SHARE = 5.0  # N m s that count as 1 rad


def nearest(size: int, steps: int) -> np.ndarray:
    """Least distance, rad, of the end from upright with a straight elbow, after 1 ... `steps` steps (steps,).

    From hanging at rest, on `size` x `size` shoulder angles and momenta, by nine elbow angles.
    """
    elbows = np.linspace(-STOP, STOP, ELBOWS)
    a, p = np.meshgrid(*(np.linspace(-s, s, size) for s in (FAR, FAST)), indexing="ij")
    middle, scale = (size - 1) / 2, np.array([FAR, FAST])[:, None, None]

    def places(b: float, b1: float) -> np.ndarray:
        return (middle * (1 + np.stack(step(a, p, b, b1)) / scale)).astype(np.float32)

    after = [[places(b, b1) for b1 in elbows] for b in elbows]
    least = np.full((ELBOWS, size, size), 1e3, np.float32)
    least[ELBOWS // 2] = np.hypot(np.abs(a) - np.pi, p / SHARE)
    found = np.empty(steps)
    for n in range(steps):
        each = [
            [map_coordinates(v, at, order=1, mode="nearest") for v, at in zip(least, row, strict=True)]
            for row in after
        ]
        least = np.array([np.min(row, axis=0) for row in each])
        found[n] = least[ELBOWS // 2, size // 2, size // 2]
    return found


def step(a: Any, p: Any, b: float, b1: float) -> tuple[Any, Any]:
    """Shoulder angle and momentum after a step in which the elbow goes from b to b1."""
    bend, turn = (b + b1) / 2, b1 - b
    inertia, coupling = 5 / 3 + np.cos(bend), 1 / 3 + np.cos(bend) / 2
    d = (H * p - coupling * turn) / inertia
    for _ in range(ITERATIONS):
        middle = a + d / 2
        push = -G * H * (1.5 * np.sin(middle) + 0.5 * np.sin(middle + bend)) - DAMPING * d
        slope = -G * H * (0.75 * np.cos(middle) + 0.25 * np.cos(middle + bend)) - DAMPING
        d = d - ((inertia * d + coupling * turn) / H - p - push / 2) / (inertia / H - slope / 2)
    middle = a + d / 2
    push = -G * H * (1.5 * np.sin(middle) + 0.5 * np.sin(middle + bend)) - DAMPING * d
    return a + d, p + push
