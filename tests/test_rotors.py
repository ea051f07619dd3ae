"""Rotor inertia against the mechanism that it stands for: a rotor of its own, geared to the joint."""

import numpy as np
import pytest

import vioc
from vioc import Contact, Gravity, JointForce, Mass, ModelError, P, System, rx, ry, rz, tz
from vioc.components import GearConstraint, RotorInertia
from vioc.maps import check_map

ANGLES, RATES = {"a": 0.5, "b": 0.3}, {"a": 1.0, "b": -1.0}


def arm(*more):
    lower = ry("b")[tz(-0.5, mass=Mass(1.0, (0.01, 0.02, 0.02)))]
    upper = rx("a")[tz(-1.0, mass=Mass(1.0, (0.1, 0.2, 0.3)))[lower]]
    return System(upper, Gravity(0, 0, -9.81), JointForce("b", "u"), *more)


def rotors():
    return arm(RotorInertia("a", 0.7), RotorInertia("b", P("J", 0.4)))


def geared(J=0.4):
    """On the world, where nothing carries them along."""
    wheel = [rz(f"r{n}", mass=Mass(1e-30, (i, i, 2 * i))) for n, i in (("a", 0.35), ("b", J / 2))]
    return arm(wheel, [GearConstraint(f"r{n}", n, 1.0) for n in "ab"])


@pytest.mark.parametrize("integrator", [vioc.MidpointVI, vioc.RungeKutta])
def test_moves_like_a_geared_rotor(integrator):
    f, g = integrator(rotors(), 0.02), integrator(geared(), 0.02)
    U = np.sin(0.1 * np.arange(60))[:, None]
    run = f.rollout(f.initial_state(ANGLES, RATES), U)
    twin = {**ANGLES, "ra": 0.5, "rb": 0.3}, {**RATES, "ra": 1.0, "rb": -1.0}
    other = g.rollout(g.initial_state(*twin), U)
    for name in ("a", "b", "energy"):
        np.testing.assert_allclose(run[name], other[name], rtol=0, atol=1e-11)


def test_keeps_the_protocol_and_follows_its_parameter():
    f = vioc.MidpointVI(rotors(), 0.02)
    check_map(f, f.initial_state(ANGLES, RATES), np.array([0.3]))
    heavy = f.with_parameters(J=2.0)
    g = vioc.MidpointVI(geared(2.0), 0.02)
    twin = g.initial_state({**ANGLES, "ra": 0.5, "rb": 0.3})
    run, other = heavy.rollout(heavy.initial_state(ANGLES), steps=20), g.rollout(twin, steps=20)
    np.testing.assert_allclose(run["b"], other["b"], rtol=0, atol=1e-11)
    M = vioc.Lagrangian(rotors()).mass_matrix(ANGLES) - vioc.Lagrangian(arm()).mass_matrix(ANGLES)
    np.testing.assert_allclose(M, np.diag([0.7, 0.4]), rtol=0, atol=1e-14)


def test_what_cannot_have_one_says_so():
    for integrator in (vioc.LinearTimeVI, vioc.MaximalVI):
        with pytest.raises(ModelError, match="rotor-inertia; use MidpointVI"):
            integrator(rotors(), 0.02)
    with pytest.raises(ModelError, match="unknown configuration variable 'c'"):
        arm(RotorInertia("c", 1.0))
    assert vioc.read_text(vioc.write_text(rotors())) == rotors()


def test_a_ball_that_bounces_keeps_its_rotor():
    """Half of gravity's acceleration before and after the bounce: back at its height in time."""
    contact = Contact.sphere("ball", 0.1, friction=0.0, restitution=1.0)
    ball = System(tz("z", name="ball", mass=1.0), Gravity(0, 0, -9.81), RotorInertia("z", 1.0), contact)
    f = vioc.ContactVI(ball, 0.01)
    back = 2 * np.sqrt(2 * 0.4 / (9.81 / 2))
    run = f.rollout(f.initial_state(z=0.5), steps=int(np.ceil(back / 0.01)))
    k = len(run) - 1
    expected = 0.5 - 0.5 * 9.81 / 2 * (run.t[k] - back) ** 2
    assert run["z"][k] == pytest.approx(expected, abs=1e-3)
    assert run["z"].min() > 0.1 - 1e-6 and run["z"].min() < 0.15
