"""A block and an oscillator that rub, for `ContactVI` and `MaximalVI`, and their closed forms."""

import numpy as np
import pytest

from vioc import ContactVI, JointForce, Mass, P, System, UserPotential, rz, tx, ty
from vioc.compile import find_compiler
from vioc.components import DryFriction, FloorFriction

G, SIDE, MU = 9.81, 0.2, 0.5
M, K, F = 2.0, 50.0, 3.0
BACKENDS = [
    "virtual",
    pytest.param("compiled", marks=pytest.mark.skipif(not find_compiler(), reason="no cc")),
]


def spring(k):
    """The energy of the oscillator's spring."""
    return 0.5 * K * k.q("x") ** 2


def oscillator(dt, kind=ContactVI, **options):
    """A mass on a spring that rubs on its way."""
    body = tx("x", name="b", mass=Mass(M))
    return kind(System(body, UserPotential(spring), DryFriction("x", F, name="rub")), dt, **options)


def block(dt=0.005, *more, kind=ContactVI, **options):
    """A square block on its four corners, each with a quarter of its weight."""
    body = tx("x")[ty("y")[rz("a", name="block", mass=Mass(1.0, inertia=(SIDE**2 / 6,) * 3))]]
    corners = [(i * SIDE / 2, j * SIDE / 2, 0) for i in (1, -1) for j in (1, -1)]
    rubs = [FloorFriction("block", P("load", MU * G / 4), at, name=f"c{i}") for i, at in enumerate(corners)]
    return kind(System(body, rubs, JointForce("x", "fx"), JointForce("a", "ta"), *more), dt, **options)


def decay(t, x):
    """Return where the oscillator is at t from rest at x: half waves about +-F/K until it ends within F/K."""
    half = np.pi / np.sqrt(K / M)
    while abs(x) > F / K:
        middle = F / K * np.sign(x)
        if t < half:
            return middle + (x - middle) * np.cos(np.pi * t / half)
        x, t = 2 * middle - x, t - half
    return x
