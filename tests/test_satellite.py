"""A satellite with wheels: names of turns and rates, what prints, what is let go."""

import numpy as np
import pytest

import vioc
from vioc import GroupVI, JointForce, Mass, rx, ry, rz
from vioc.control import dlqr, equilibrium, modes
from vioc.errors import ModelError, OptimizationError

WEIGHTS = {f"body-phi{a}": 10.0 for a in "xyz"}


@pytest.fixture(scope="module")
def f():
    size = {rx: (0.01, 0.005, 0.005), ry: (0.005, 0.01, 0.005), rz: (0.005, 0.005, 0.01)}
    wheels = [turn(f"wheel{i}", mass=Mass(0.5, size[turn])) for i, turn in enumerate(size)]
    bus = vioc.spherical("body", frame="bus", mass=Mass(20.0, (0.9, 0.7, 0.5)))
    motors = (JointForce(f"wheel{i}", f"motor{i}") for i in range(3))
    return GroupVI(vioc.System(bus[tuple(wheels)], *motors), dt=0.1)


def test_a_turn_and_a_rate_have_names_of_their_own(f):
    assert f.space.error_names[3:6] == ("body-phix", "body-phiy", "body-phiz")
    x = f.retract(f.initial_state(), 1e-7 * np.eye(12)[4])  # a turn about y
    np.testing.assert_allclose(x[3:7], [1, 0, 0.5e-7, 0], rtol=0, atol=1e-14)
    with pytest.raises(ModelError, match="body-wx"):  # neither a turn nor, without v., a rate
        dlqr(f, (f.initial_state(), None), {"body-wx": 1.0}, 1.0)


def test_starts_take_angles_or_quaternions(f):
    by_angles = f.initial_state({"body-rz": 1.0})
    by_quaternion = f.state({"body-qw": np.cos(0.5), "body-qz": np.sin(0.5)})
    np.testing.assert_allclose(by_angles, by_quaternion, rtol=0, atol=1e-15)


def test_equilibria_print_attitudes_and_inputs(f):
    text = repr(equilibrium(f, guess=f.initial_state()))
    assert "body-qw = 1, body-qx = 0" in text and "u.motor2 = 0" in text and "p.body" not in text
    many = vioc.MidpointVI(
        vioc.System(*(vioc.tx(f"x{i}", mass=1.0) for i in range(10)), JointForce("x3", "push")), 0.01
    )
    text = repr(equilibrium(many))
    assert "8 more, u.push = 0;" in text


def test_drifts_are_told_as_such(f):
    found = modes(f, equilibrium(f, guess=f.initial_state()))
    assert found.stays == (*(f"wheel{i}" for i in range(3)), *WEIGHTS) and found.drifts == 6
    assert "12 eigenvalues 1 are not listed" in str(found) and "6 of which drift at steady rates" in str(
        found
    )
    cart = vioc.MidpointVI(
        vioc.System(vioc.tx("x", mass=1.0)[vioc.ry("a")[vioc.tz(-0.5, mass=0.3)]], vioc.Gravity(0, 0, -9.81)),
        0.01,
    )
    found = modes(cart, equilibrium(cart, x=0.0, a=0.0))
    assert (found.stays, found.drifts) == (("x",), 1)
    assert str(found).count("marginal") == 2  # the swing, and the verdict
    held = vioc.MidpointVI(
        vioc.System(vioc.tx("x", mass=1.0), vioc.TorsionalSpring("x", 1e-4), vioc.Gravity(0, 0, -9.81)), 0.01
    )
    found = modes(held, equilibrium(held))
    assert (found.stays, found.drifts) == ((), 0) and abs(found[0].frequency * 2 * np.pi - 0.01) < 1e-6


def test_wheels_turn_the_bus_whatever_momentum_it_has(f):
    rest = equilibrium(f, guess=f.initial_state())
    with pytest.raises(OptimizationError, match="p.body-wx.*disregard"):
        dlqr(f, rest, WEIGHTS, 1.0)
    gone = ["wheel0", "wheel1", "wheel2", *(f"p.body-w{a}" for a in "xyz")]
    law = dlqr(f, rest, WEIGHTS, 1.0, disregard=gone)
    run = law.rollout(f.initial_state({"body-rz": 0.5}, {"body-wx": 0.05, "body-wy": 0.02}), 600)
    assert max(abs(run[f"bus:r{a}"][-1]) for a in "xyz") < 1e-6
    np.testing.assert_allclose(abs(run["v.body-wx"][-1]), 0, atol=1e-6)


def test_equilibria_of_attitudes_begin_at_none_and_are_refused_by_name():
    """Quaternions were zeros without a guess, and other starts had the wrong shape."""
    hinge = vioc.ry("a")[vioc.tz(-0.2, mass=vioc.Mass(0.1, (1e-3,) * 3))]
    pendulum = vioc.spherical("s")[vioc.tz(-0.3, mass=vioc.Mass(1.0, (0.01,) * 3))[hinge]]
    g = GroupVI(vioc.System(pendulum, vioc.Gravity(0, 0, -9.81)), 0.01)
    np.testing.assert_allclose(equilibrium(g).x, [0, 1, 0, 0, 0, 0, 0, 0, 0], atol=1e-9)
    with pytest.raises(OptimizationError, match="no equilibrium near the guess with a fixed"):
        equilibrium(g, a=1.0)
