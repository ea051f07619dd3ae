"""Mechanisms of free bodies and of spherical joints for tests of `GroupVI`, and what is measured of them."""

from functools import cache

import numpy as np
from scipy.spatial.transform import Rotation

import vioc
from vioc import GroupVI

INERTIA = np.array([1.0, 2.0, 3.0])


def body(*components):
    """A free body of 1 kg with unequal moments of inertia."""
    return vioc.System(vioc.free("b", frame="body", mass=(1.0, *INERTIA)), *components)


def branched(damping=0.1):
    """A free trunk with a spherical and two turning joints, weight and a motor."""
    limb = vioc.Mass(0.5, (0.01, 0.02, 0.015), (0.02, 0.01, -0.2))
    hand = vioc.spherical("wrist", mass=limb)
    trunk = vioc.free("trunk", "xyz", frame="trunk", mass=(3.0, 0.1, 0.2, 0.3))
    return vioc.System(
        vioc.chain(
            trunk, vioc.ry("hip", mass=limb), vioc.tz(-0.4), hand, vioc.tz(-0.3), vioc.rx("tip", mass=limb)
        ),
        vioc.Gravity(0, 0, -9.81),
        vioc.JointForce("hip", "torque"),
        vioc.JointDamping("tip", damping),
        name="branched",
    )


def spatial_momentum(f, X):
    """The angular momentum of a free body in the world's axes (K, 3), at states X (K, nx)."""
    s, pi = X[:, f.nr : f.nr + 4], X[:, -3:]
    return Rotation.from_quat(np.roll(s, -1, axis=1)).apply(pi)


def pair():
    """Two free bodies with a rod between points of them, and one of the first at a height."""

    def one(name, mass, at):
        return vioc.free(name, "xyz", frame=name, mass=(mass, 0.1, 0.2, 0.25))[
            vioc.se3(at, name=f"{name}tip")
        ]

    return vioc.System(
        one("a", 1.0, (0.3, 0.1, 0.0)),
        one("b", 2.0, (-0.2, 0.0, 0.3)),
        vioc.DistanceConstraint("atip", "btip", 0.5, name="rod"),
        name="pair",
    )


def pair_start(f):
    """A state of the pair whose rod has its length, with rates of one rigid motion, which keep it."""
    w, shift = np.array([0.5, -1.0, 0.8]), np.array([0.3, 0.1, -0.2])
    b = np.array([0.3, 0.1, 0.0]) + [0.5, 0, 0] - [-0.2, 0, 0.3]
    v = {f"a-{n}": e for n, e in zip("xyz", shift, strict=True)}
    v |= {f"b-{n}": e for n, e in zip("xyz", shift + np.cross(w, b), strict=True)}
    v |= {f"{body}-w{n}": e for body in "ab" for n, e in zip("xyz", w, strict=True)}
    return f.initial_state({f"b-{n}": e for n, e in zip("xyz", b, strict=True)}, v)


def quadrotor():
    """A free body with a propeller at the end of each of four arms."""
    hubs = [
        vioc.se3((x, y, 0.0), name=f"hub{i}")
        for i, (x, y) in enumerate([(0.2, 0), (0, 0.2), (-0.2, 0), (0, -0.2)])
    ]
    frame = vioc.free("b", "xyz", frame="body", mass=(1.0, 0.01, 0.012, 0.02))
    turns = [
        vioc.components.Propeller(f"hub{i}", f"u{i}", (0, 0, 1), 1e-5, 2e-7 * (-1) ** i) for i in range(4)
    ]
    return vioc.System(vioc.chain(frame, *[vioc.se3((0, 0, 0))[hubs]]), vioc.Gravity(0, 0, -9.81), *turns)


def slope(steps, errors):
    """The order that errors of steps of these lengths show."""
    return float(np.polyfit(np.log(steps), np.log(errors), 1)[0])


@cache
def made(mechanism, s, points="gauss"):
    """The map of a mechanism, built once for all tests; twins of it have their steps."""
    return GroupVI(mechanism(), 0.01, stages=s, points=points)


def pinned():
    """An asymmetric body with a point of its pinned to the world, and its inertia about the pin."""
    mass = vioc.Mass(1.0, (0.1, 0.2, 0.15))
    body = vioc.free("b", "xyz", frame="bob", mass=mass)[vioc.tz(0.5, name="top")]
    weight, pin = vioc.Gravity(0, 0, -9.81), vioc.coincident("top", "pivot")
    return vioc.System(vioc.se3((0, 0, 0), name="pivot"), body, weight, *pin), np.array([0.35, 0.45, 0.15])
