"""Feet told to stand closer to the ground than contacts of a wide smoothing let them: a search names them."""

import re

import numpy as np
import pytest

from vioc import Contact, ContactVI, Gravity, JointForce, Mass, MaximalVI, System, tx, tz
from vioc.control import Cost, dmoc

FEET = ("front", "back")


def table(room, kind=ContactVI, final=None, start=1e-8, **options):
    """A sled on two feet, pushed along by 0.2 m while both stand."""
    feet = [
        Contact.point("sled", (i * 0.2, 0, 0), friction=0.6, name=n)
        for i, n in zip((1, -1), FEET, strict=True)
    ]
    body = tx("x")[tz("z", name="sled", mass=Mass(1.0, inertia=(0.1, 0.1, 0.1)))]
    f = kind(System(body, Gravity(0, 0, -9.81), feet, JointForce("x", "push")), 0.04)
    bounds = {f"gap.{n}": (None, room) for n in FEET} if final is None else {}
    given = dict(initial=f.initial_state({"z": start}), final=final or {"x": 0.2}, bounds=bounds)
    cost = Cost(f, f.symbols.u[0] ** 2)
    wide = dict(smoothing=0.2) | options
    return dmoc.solve(f, cost, steps=10, raise_on_failure=False, **given, **wide)


@pytest.mark.parametrize(
    ("kind", "final", "where"),
    [
        (ContactVI, None, "sample 1"),
        pytest.param(MaximalVI, None, "sample 1", marks=pytest.mark.slow),
        (ContactVI, {"x": 0.2, "sled:z": (0, 1e-6)}, "sample 10"),  # a height is a gap
        (ContactVI, {"x": 0.2, "z": (0, 1e-6)}, "sample 10"),  # and so is a state
    ],
)
def test_feet_that_would_throw_off_what_they_carry_are_named(kind, final, where):
    best = table(1e-6, kind, final)
    assert not best.converged
    said = (
        rf"gaps of front, back are limited to at most 1e-06 m at {where}, .* push with 1.9 times the weight"
    )
    assert re.search(said, best.message), best.message


def test_with_the_room_that_is_asked_for_it_converges():
    for room, smoothing in ((1e-4, 1e-3), (1e-6, 1e-5)):  # (n - 1)/10 s^2/m of the smoothing
        assert table(room, smoothing=smoothing).converged


def test_other_failures_are_not_laid_on_feet():
    for how in ({}, {"start": 0.0, "smoothing": 1e-8}):  # where nothing gives, and a start has no room
        best = table(0.2, final={"x": 0.2, "z": -0.1}, **how)  # below the ground
        assert not best.converged and "told to be" not in best.message


def test_gaps_that_cannot_become_smaller_stop_nothing_that_falls():
    """A mass falls by 0.2 m and rests for a step. With a gap of at least 0, only its weight can stop it."""
    ball = tz("z", name="ball", mass=Mass(1.0))
    f = ContactVI(System(ball, Gravity(0, 0, -9.81), Contact.point("ball", name="sole")), 0.02)
    cost = Cost(f, 0.0 * f.symbols.x[0])
    given = dict(steps=12, duration=(0.1, 0.4), initial=f.initial_state({"z": 0.2}), raise_on_failure=False)
    free, landed = np.full(11, np.inf), np.ones(2)
    for low in (0.0, -1e-4):
        limits = np.r_[-free, low * landed], np.r_[free, 1e-4 * landed]
        best = dmoc.solve(f, cost, bounds={"z": limits}, **given)
        assert best.converged == (low < 0)
        said = "gaps of sole are limited to at least 0 m at sample 11, .* so nothing can land"
        assert best.converged or re.search(said, best.message), best.message
