"""Derivatives of steps with contact: closed forms, switches, parameters of contacts."""

import numpy as np
import pytest

import vioc
from vioc import Contact, ContactVI, Gravity, JointLimits, Mass, MaximalVI, P, System
from vioc.errors import ModelError
from vioc.shapes import HalfSpace

DT, G = 0.01, 9.81


def ball():
    body = vioc.tz("z", name="ball", mass=Mass(2.0))
    return System(body, Gravity(0, 0, -G), Contact.sphere("ball", 0.1, name="foot"), name="ball")


@pytest.mark.parametrize("smoothing", [1e-3, 1e-8])
def test_a_landing_balls_slope_is_between_its_sides(smoothing):
    """1/2 (1 + s/sqrt(s^2 + 2 smoothing)) for the speed s that the step would have without the ground."""
    f = MaximalVI(ball(), DT).smoothed(smoothing)
    width = np.sqrt(smoothing) * DT
    for h in width * np.array([-20, -1, 0, 1, 20]):
        x = f.state({"z": 0.1 + 21 * width})
        x[9] = (h - 21 * width) / DT + 0.5 * DT * G
        s = h / DT
        exact = 0.5 * (1 + s / np.sqrt(s * s + 2 * smoothing))
        assert f.linearize(x).A[2, 2] == pytest.approx(exact, abs=1e-9)


def test_contacts_numbers_may_be_parameters():
    """Heights at which things rest, by the numbers of what they rest on."""
    size, level = P("size", 0.3), P("level", 0.05)
    mass = Mass.box(1.0, (0.3, 0.3, 0.3))
    cube = vioc.free("b", frame="box", mass=mass)
    ground = HalfSpace(point=(0.0, 0.0, level))
    feet = Contact.box("box", (size, size, size), friction=P("mu", 0.5), ground=ground, name="corner")
    f = MaximalVI(System(cube, Gravity(0, 0, -G), feet), DT)
    run = f.rollout(f.initial_state({"b-z": 0.2 + 1e-9}), steps=40)
    lin = f.linearize_trajectory(run)
    by = np.zeros((f.ndx, 3))
    for A, Pk in zip(lin.A, lin.P, strict=True):
        by = A @ by + Pk
    rise = dict(zip(f.parameters, by[2], strict=True))
    assert rise["size"] == pytest.approx(0.5, abs=1e-6)
    assert rise["level"] == pytest.approx(1.0, abs=1e-6)
    assert rise["mu"] == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize("Map", [MaximalVI, ContactVI])
def test_limits_may_be_parameters(Map):
    rod = Mass.rod(1.0, 1.0, com=(0, 0, -0.5))
    swing = System(
        vioc.ry("a", mass=rod), Gravity(0, 0, -G), JointLimits("a", P("least", -0.3), 1.0, name="stop")
    )
    f = Map(swing, DT).with_parameters(least=0.2)
    run = f.rollout(f.initial_state({"a": 0.5}), steps=200)
    assert run["a"].min() == pytest.approx(0.2, abs=1e-6)
    lin = f.linearize_trajectory(run)
    by = np.zeros((f.ndx, 1))
    for A, Pk in zip(lin.A, lin.P, strict=True):
        by = A @ by + Pk
    coordinate = by[4, 0] if Map is MaximalVI else by[0, 0]
    assert coordinate == pytest.approx(1.0, abs=1e-5)
    with pytest.raises(Exception, match=r"gap of stop-lower|lower limit 0\.2"):
        f.rollout(f.initial_state({"a": 0.1}), steps=1)


def test_sums_with_parameters_are_refused_by_what_they_are():
    with pytest.raises(ModelError, match="cannot be added"):
        Contact.box("box", (P("edge", 0.1), 0.1, 0.1), (0.05, 0.0, 0.0))
    with pytest.raises(ModelError, match="parameters only where the point is the origin"):
        HalfSpace(point=(0, 0, 1.0), normal=(0, P("tilt", 0.1), 1))
    assert HalfSpace(point=(0, 0, P("up", 0.2))).offset == P("up", 0.2)
