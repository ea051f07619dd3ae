"""Serial chains: that of [L] Fig. 2a, and the pendulum of several links of `vioc.models`."""

from __future__ import annotations

import numpy as np

import vioc
from vioc import Gravity, Mass, MidpointVI, System

LENGTH = 1.5  # m
GOLDEN = 0.6180339887498949


def chain(n: int, gravity: float = 0.0) -> System:
    """n bodies of 1 kg and 1 kg m^2 on revolute joints; the centre of mass half a link ahead."""
    below: tuple = ()
    for i in reversed(range(n)):
        joint = vioc.rx(f"q{i}", mass=Mass(1.0, (1.0, 1.0, 1.0), (0, 0, LENGTH / 2)))
        below = (vioc.tz(LENGTH if i else 0.0)[joint[below] if below else joint],)
    return System(below, Gravity(0, 0, -gravity), name=f"chain_{n}")


def start(n: int) -> tuple[np.ndarray, np.ndarray]:
    """q and dq (n,) spread over (-pi/2, pi/2) by the golden section."""
    i = np.arange(n)
    q, v = (np.pi * (((2 * i + k) * GOLDEN) % 1.0 - 0.5) for k in (1, 2))
    return q, v


def n_links(links: int, dt: float, **options) -> MidpointVI:
    """The map of the pendulum of several links."""
    return MidpointVI(vioc.models.load("n_link_pendulum", links), dt, **options)
