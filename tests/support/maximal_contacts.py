"""Mechanisms with contacts that tests of `MaximalVI` share."""

import numpy as np

import vioc
from vioc import Contact, Gravity, Mass, MaximalVI, PairContact, System, tx
from vioc.shapes import HalfSpace, Sphere

G, DT, EDGE, R = 9.81, 0.01, 0.5, 0.25
CUBE, BALL = Mass(1.0, (1 / 24,) * 3), Mass(1.0, (0.4 * R * R,) * 3)
CONES = ("second-order", "linear")
FLAT = HalfSpace()


def box(friction=0.5, cone=CONES[0], *more, ground=FLAT) -> System:
    corners = Contact.box("box", (EDGE,) * 3, friction=friction, cone=cone, ground=ground, name="corner")
    return System(vioc.free("b", frame="box", mass=CUBE), Gravity(0, 0, -G), corners, *more, name="box")


def ball(friction=0.5, cone=CONES[0]) -> System:
    return System(
        vioc.free("b", frame="ball", mass=BALL),
        Gravity(0, 0, -G),
        Contact.sphere("ball", R, friction=friction, cone=cone, name="foot"),
    )


def balls(count: int, friction=0.0) -> System:
    """Free balls, each of which may meet each other."""
    pairs = [(i, j) for i in range(count) for j in range(i)]
    return System(
        [vioc.free(f"b{i}", frame=f"ball{i}", mass=BALL) for i in range(count)],
        [
            PairContact(f"ball{i}", Sphere(R), f"ball{j}", Sphere(R), friction=friction, name=f"p{i}{j}")
            for i, j in pairs
        ],
    )


def chain(count: int, cone=CONES[0], backend="virtual") -> MaximalVI:
    """Balls that hang together at spherical joints."""
    below: tuple = ()
    for i in reversed(range(count)):
        joint = vioc.spherical(f"q{i}") if i else vioc.free("b")
        rest = (tx(R)[below],) if below else ()
        below = (joint[(tx(R * bool(i), name=f"ball{i}", mass=BALL)[rest],)],)
    feet = [Contact.sphere(f"ball{i}", R, friction=0.5, cone=cone, name=f"foot{i}") for i in range(count)]
    return MaximalVI(System(below, Gravity(0, 0, -G), feet, name="chain"), DT, backend=backend)


def gaps(run) -> np.ndarray:
    names = [t.name for t in run.map.graph.touches]
    return np.array([run[f"gap.{n}"] for n in names])
