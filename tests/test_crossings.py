"""Shapes that are on each other's far sides one step later: a rollout says so, and of nothing else."""

from functools import cache

import numpy as np
import pytest

import vioc
from vioc import ContactVI, Mass, MaximalVI, PairContact, System
from vioc.errors import CrossingWarning
from vioc.shapes import Box, Capsule, Hull, Sphere

RNG = np.random.default_rng(7)
PLATE = Box((1.0, 1.0, 0.02), center=(0.2, 0, 0))
BULLETS = {
    "sphere": Sphere(0.03, center=(0.01, 0, 0)),
    "capsule": Capsule(0.02, 0.06),
}
SOLIDS = {"box": Box((0.05, 0.05, 0.05)), "hull": Hull(0.03 * RNG.normal(size=(9, 3)))}


@cache
def over_a_plate(kind, bullet):
    """The map of a body over a plate, built once, in steps of 10 ms."""
    body = vioc.free("b", frame="bullet", mass=Mass.box(0.1, (0.05, 0.05, 0.05)))
    return kind(System(body, PairContact("world", PLATE, "bullet", bullet, name="hit")), 0.01)


def shot(kind, bullet, speed, aside=0.0):
    """Map of a body over a plate, and its state in a fall from a height of 0.3 m."""
    f = over_a_plate(kind, bullet)
    return f, f.initial_state({"b-z": 0.3, "b-x": aside}, {"b-z": -speed, "b-ry": 3.0})


@pytest.mark.parametrize("kind", [ContactVI, MaximalVI])
@pytest.mark.parametrize("name", BULLETS)
def test_what_leaps_through_a_plate_is_told_of(kind, name):
    f, x = shot(kind, BULLETS[name], 60.0)
    with pytest.warns(CrossingWarning, match=r"hit is crossed within a step") as told:
        run = f.rollout(x, steps=1)
    assert run["bullet:z"][-1] < -0.2
    depth = float(str(told[0].message).split("but ")[1].split(" m below")[0])
    # a tenth of the half thicknesses at least, of what both have inside them at most
    assert 0.1 * 0.01 < depth < 0.01 + 0.03


@pytest.mark.parametrize("kind", [ContactVI, MaximalVI])
@pytest.mark.parametrize(
    ("speed", "aside"),
    [(60.0, 0.8), (10.0, 0.0), (0.5, 0.0)],  # beside it; onto it; slowly
)
@pytest.mark.filterwarnings("error::vioc.errors.CrossingWarning")
def test_what_does_not_is_not(kind, speed, aside):
    f, x = shot(kind, BULLETS["capsule"], speed, aside)
    run = f.rollout(x, steps=4)
    assert aside or run["bullet:z"].min() > 0


@pytest.mark.parametrize("kind", [ContactVI, MaximalVI])
@pytest.mark.parametrize("name", SOLIDS)
def test_boxes_and_hulls_leap_seldom_and_not_in_silence(kind, name, recwarn):
    """The plane that parts them is held over a step, but looked for again where they would enter."""
    f, x = shot(kind, SOLIDS[name], 60.0)
    run = f.rollout(x, steps=1)
    told = [w for w in recwarn if w.category is CrossingWarning]
    assert bool(told) == (run["bullet:z"][-1] < 0)
    assert not told or (kind, name) == (MaximalVI, "hull")


def swing(kind, dt, arm=1.2, inertia=1e-3):
    """Pendulum under a pivot at 1 m whose mass reaches the ground at 0.5857 rad."""
    arms = vioc.tz(1.0)[vioc.ry("a")[vioc.tz(-arm, name="b", mass=Mass(1.0, (inertia,) * 3))]]
    ground = vioc.Contact("b", friction=0.3, name="ground")
    return kind(System(arms, vioc.Gravity(0, 0, -9.81), ground), dt)


@pytest.mark.parametrize("kind", [ContactVI, MaximalVI])
def test_a_step_in_which_a_point_turns_through_the_ground_warns(kind):
    """A body 0.5 m above ground turns by 2 rad; its point at 0.6 m is then up to 0.1 m deep."""
    body = vioc.free("b", frame="body", mass=Mass(1.0, (0.1, 0.1, 0.1)))
    f = kind(System(body, vioc.Contact.point("body", (0, 0, -0.6), name="tip")), 0.1)
    x = f.initial_state({"b-z": 0.5, "b-ry": -1.0}, {"b-ry": 20.0})
    with pytest.warns(CrossingWarning, match=r"tip is crossed within a step.* but (0\.1|0\.09\d*) m below"):
        run = f.rollout(x, steps=1)
    assert run["gap.tip"].min() > 0.1


def test_a_pendulum_that_passes_through_the_ground_warns():
    f = swing(ContactVI, 0.2)
    with pytest.warns(CrossingWarning, match="ground is crossed within a step"):
        f.rollout(f.initial_state({"a": 1.2}, {"a": -10.0}), steps=5)


def test_a_mass_on_an_arc_through_the_ground_warns_in_maximal_coordinates():
    """The chord between its positions stays above the ground."""
    f = swing(MaximalVI, 0.1, inertia=1.0)
    with pytest.warns(CrossingWarning, match=r"ground is crossed within .* but (0\.2|0\.19\d*) m below"):
        run = f.rollout(f.initial_state({"a": 0.65}, {"a": -12.0}), steps=1)
    assert run["gap.ground"].min() > 0.01


@pytest.mark.filterwarnings("error::vioc.errors.CrossingWarning")
@pytest.mark.parametrize("kind", [ContactVI, MaximalVI])
def test_a_mass_that_stops_on_the_ground_or_swings_above_it_does_not_warn(kind):
    f = swing(kind, 0.03)
    run = f.rollout(f.initial_state({"a": 1.2}, {"a": -10.0}), steps=10)
    assert run["gap.ground"][-1] < 1e-4
    above = swing(kind, 0.05, arm=0.9)
    run = above.rollout(above.initial_state({"a": 1.2}, {"a": -9.0}), steps=10)
    assert np.abs(np.diff(run["a"])).max() > 0.4
