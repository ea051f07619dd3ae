"""Motors, friction, backlash, tables and ropes over drums against their closed forms."""

from __future__ import annotations

import casadi as ca
import numpy as np
import pytest
import scipy.interpolate

import vioc
from vioc import Gravity, Lagrangian, MidpointVI, ModelError, System, ry, tx, tz
from vioc.components import (
    Backlash,
    JointFriction,
    Motor,
    Propeller,
    TableSpring,
    TableStrut,
    TendonForce,
    capstan_rope,
    motor,
)
from vioc.maps import check_map

G = 9.81


def force(system, q, v, u=()):
    """Of the potentials and forces on every variable."""
    lag = Lagrangian(system)
    g = lag.graph
    total = ca.Function("F", [g.q_vector, g.v_vector, g.u_vector], [lag.F - lag.potential_gradient])
    return np.array(total(q, v, ca.DM(list(u))))[:, 0]


def test_a_tendon_pulls_at_all_its_joints():
    pair = vioc.System(vioc.tx("a", mass=1.0), vioc.ry("b", mass=(1.0, 0.1, 0.2, 0.1)))
    system = vioc.System(*pair.frames, TendonForce(("a", "b"), (0.5, vioc.P("c", -0.2)), "pull"))
    a, b = vioc.Continuous(system).forward([0, 0], [0, 0], [3.0]).accelerations
    assert (a, b) == (pytest.approx(1.5), pytest.approx(-0.6 / 0.2))
    assert vioc.Continuous(system, c=0.4).forward([0, 0], [0, 0], [3.0]).accelerations[1] > 0
    assert vioc.read_text(vioc.write_text(system)) == system
    for wrong, message in (
        (dict(variables=("a", "a"), coefficients=(1, 2)), "each once"),
        (dict(variables=(), coefficients=(1,)), "each once"),
        (dict(variables=("a", "b"), coefficients=(1,)), "expected 2 coefficients"),
    ):
        with pytest.raises(ModelError, match=message):
            TendonForce(**wrong, input="pull")
    with pytest.raises(ModelError, match="'nothing'"):
        vioc.System(*pair.frames, TendonForce(("a", "nothing"), (1, 2), "pull"))


def test_a_motor_spins_up_with_its_time_constant():
    k, R, n, J, inertia, volts = 0.05, 0.5, 20.0, 3e-5, 0.02, 6.0
    system = System(ry("q", mass=(1, inertia, inertia, inertia)), motor("q", "volts", k, R, rotor=J, gear=n))
    f = MidpointVI(system, 1e-3)
    assert f.unit("volts") == "V"
    run = f.rollout(f.state(), f.inputs(200, volts=volts))
    rest, time = volts / (k * n), (inertia + n**2 * J) * R / (k * n) ** 2
    bound = (f.dt / time) ** 2 / (12 * np.e)  # of the midpoint rule's decay
    np.testing.assert_allclose(run["v.q"], rest * (1 - np.exp(-run.t / time)), atol=1.05 * bound * rest)
    assert run["v.q"][-1] > 0.99 * rest


def test_the_current_keeps_below_its_limit():
    system = System(ry("q", mass=(1, 1, 1, 1)), Motor("q", "volts", 0.05, 0.5, 1.0, 10.0))
    assert force(system, 0, 0, [1e4])[0] == pytest.approx(0.05 * 10.0)
    assert force(system, 0, 0, [0.01])[0] == pytest.approx(0.05 * 0.02, rel=2e-6)
    assert force(system, 0, 100.0, [0.0])[0] == pytest.approx(-0.05 * 10 * np.tanh(1.0))


def test_friction_has_its_hump_and_stops_a_body():
    law = JointFriction("q", 2.0, 0.5, 3.0, 0.1, 1e-3)
    system = System(tx("q", mass=1.0), law)
    for v in (-1.0, -0.05, 0.03, 0.5):
        level = 2.0 + (3.0 - 2.0) * np.exp(-((v / 0.1) ** 2))
        assert force(system, 0, v)[0] == pytest.approx(-level * np.tanh(v / 1e-3) - 0.5 * v)
    # a body that slides to rest under Coulomb's friction alone: v^2/(2 a)
    f = MidpointVI(System(tx("q", mass=2.0), JointFriction("q", 3.0)), 1e-3)
    run = f.rollout(f.initial_state(None, {"q": 1.0}), steps=800)
    creeps = 0.01  # m/s, below which it is not Coulomb's any more
    assert run["q"][-1] == pytest.approx(1.0 / (2 * 1.5), abs=creeps * 0.8)
    assert abs(run["v.q"][-1]) < 1e-6


def test_play_is_slack_and_then_stiff():
    b, k, s = 0.01, 500.0, 1e-4
    system = System(tx("a", mass=1.0), tx("b", mass=1.0), Backlash("a", "b", 2.0, b, k, s))
    for x, expected in ((0.0, 0.0), (0.004, 0.0), (0.05, -k * (0.05 - b)), (-0.03, k * (0.03 - b))):
        on_a, on_b = force(system, [x + 0.4, 0.2], [0, 0])
        assert on_a == pytest.approx(expected, abs=k * s**2 / (2 * (b - 0.004)))
        assert on_b == pytest.approx(-2 * on_a)
    lag = Lagrangian(system)
    assert lag.potential_energy([0.0, 0.0]) == pytest.approx(0.0, abs=1e-15)
    assert lag.potential_energy([0.05, 0.0]) == pytest.approx(k / 2 * (0.05 - b) ** 2, rel=1e-3)


def test_a_table_is_the_natural_spline_through_it():
    at, pull = (-0.5, -0.1, 0.2, 0.4, 0.9), (-4.0, -1.0, 0.5, 0.4, 6.0)
    spline = scipy.interpolate.CubicSpline(at, pull, bc_type="natural")
    system = System(tx("q", mass=1.0), TableSpring("q", at, pull))
    lag = Lagrangian(system)
    for q in np.linspace(-0.5, 0.9, 23):
        assert force(system, q, 0)[0] == pytest.approx(-spline(q), abs=1e-12)
        assert lag.potential_energy([q]) == pytest.approx(spline.integrate(-0.5, q), abs=1e-12)
    straight = [force(system, q, 0)[0] for q in (1.0, 1.5, 2.0)]
    assert straight[2] - straight[1] == pytest.approx(straight[1] - straight[0])
    strut = System(tx("x")[tz("z", name="p", mass=1.0)], TableStrut("p", "world", at, pull))
    np.testing.assert_allclose(
        force(strut, [0.18, 0.24], [0, 0]), -spline(0.3) * np.array([0.6, 0.8]), atol=1e-12
    )


def test_a_propeller_pulls_with_the_square_of_its_speed():
    system = System(
        tz("z", name="hub")[vioc.rz("turn", name="body", mass=(1, 1, 1, 1))],
        Propeller("body", "w", (0, 0, 2), 1e-3, -1e-4, 0.1),
    )
    np.testing.assert_allclose(force(system, [0, 0], [0, 0], [200.0]), [1e-3 * 4e4, -1e-4 * 4e4], rtol=1e-6)
    np.testing.assert_allclose(force(system, [0, 0], [0, 0], [-200.0]), [-1e-3 * 4e4, 1e-4 * 4e4], rtol=1e-6)


def weights(m1, m2, mu, r=0.1, k=2e5, smoothing=1e-4, mass=1e-3):
    """Two weights on a rope over a drum: it slips where one is more than exp(mu pi) times the other."""
    drum = tz(1.0, name="drum"), tx("slip", mass=mass)
    sides = tx(r)[tz("first", name="one", mass=m1)], tx(-r)[tz("last", name="two", mass=m2)]
    rope = capstan_rope(
        "one",
        "two",
        "drum",
        "slip",
        length=2 + np.pi * r,
        stiffness=k,
        radius=r,
        friction=mu,
        axis=(0, -1, 0),
        smoothing=smoothing,
    )
    return System(*drum, *sides, Gravity(0, 0, -G), rope)


def test_a_rope_over_a_drum_slips_by_eytelweins_law():
    mu, m2 = 0.2, 1.0
    ratio = np.exp(mu * np.pi)
    for m1, slips in ((0.9 * ratio, False), (2 * ratio, True)):
        f = MidpointVI(weights(m1, m2, mu), 1e-3)
        k, pull = 2e5, m1 * G if not slips else 2 * m1 * m2 * ratio * G / (m1 + m2 * ratio)
        other = m2 * G if not slips else pull / ratio
        q = {"first": -pull / k, "last": -other / k}
        run = f.rollout(f.initial_state(q), steps=300)
        mean = (run["v.first"][-1] - run["v.first"][100]) / 0.2
        a = G * (m1 - m2 * ratio) / (m1 + m2 * ratio) if slips else 0.0
        assert mean == pytest.approx(-a, rel=0.01, abs=2e-3), (m1, mean, a)


@pytest.mark.parametrize(("length", "height"), [(1.5, 1.2), (6.0, -1.2)], ids=["clear", "slack"])
def test_a_rope_that_does_not_press_on_its_drum_does_not_rub(length, height):
    """Friction would drive the slip where the arc or the pull were negative."""
    ends = tx(-1.0)[tz(height, name="a")], tx(1.0)[tz(height, name="b")], tz(0.0, name="drum")
    sizes = {"length": length, "stiffness": 50, "radius": 0.3, "friction": 0.5, "axis": (0, -1, 0)}
    f = MidpointVI(
        System(*ends, tx("slip", mass=1.0), *capstan_rope("b", "a", "drum", "slip", **sizes)), 0.005
    )
    run = f.rollout(f.initial_state({"slip": 0.01}), steps=400)
    assert np.ptp(run.energy) <= 1e-12 * run.energy[0]  # a linear spring: the midpoint rule keeps it
    assert abs(run["slip"]).max() <= 0.01 * (1 + 1e-12) and run["slip"].min() < -0.009


def test_inputs_that_hold_where_forces_are_not_linear_in_them():
    """Hovering, and a motor that saturates, by closed forms; and a motor that is too weak."""
    m, c, w = 1.0, 1e-3, 1.0
    copter = System(
        tz("z", name="b", mass=m), Gravity(0, 0, -G), Propeller("b", "speed", (0, 0, 1), c, 0.0, w)
    )
    thrust = 2 * m * G / c  # m g = c u (u^2 + w^2)^1/2
    speed = np.sqrt((np.sqrt(w**4 + thrust**2) - w**2) / 2)
    assert Lagrangian(copter).holding({"z": 0.0}) == pytest.approx(speed, rel=1e-9)
    for mass, held in ((0.1, True), (1.0, False)):
        arm = vioc.rx("q")[vioc.ty(1.0, mass=mass)], Gravity(0, 0, -G)
        lag = Lagrangian(System(*arm, vioc.components.Motor("q", "volts", 1.0, 1.0, 1.0, 1.2)))
        if held:
            expected = 1.2 * np.arctanh(mass * G / 1.2)
            assert lag.holding({"q": 0.0}) == pytest.approx(expected, rel=1e-9)
        else:
            with pytest.raises(ModelError, match="no input balances this configuration: 'q' lacks"):
                lag.holding({"q": 0.0})


EVERY = {
    "drive": lambda: System(
        ry("shaft", mass=(1, 1, 1, 1)),
        ry("link", name="link", mass=(1, 1, 1, 1))[tx(0.5, name="tip")],
        motor("shaft", "volts", vioc.P("k", 0.05), 0.5, rotor=1e-3, gear=5.0, current_limit=3.0),
        Backlash("link", "shaft", 0.5, 0.1, vioc.P("stiff", 20.0), 0.03),
        JointFriction("link", 0.3, 0.1, vioc.P("breakaway", 0.5), 0.5, 0.3),
        TableSpring("link", (-1, 0, 1, 2), (-3, 0, 1, 7)),
        TableStrut("tip", "world", (0.1, 0.5, 0.8), (-1, 0, 3)),
        Propeller("tip", "speed", (0, 0, 1), 0.01, 0.002),
    ),
    "rope": lambda: weights(2.0, 1.0, vioc.P("mu", 0.2), k=200.0, smoothing=0.5, mass=0.5),
}


@pytest.mark.parametrize("name", EVERY)
def test_derivatives_and_text(name):
    system = EVERY[name]()
    assert vioc.read_text(vioc.write_text(system)) == system
    f = MidpointVI(system, 0.01)
    q = {"shaft": 0.5, "link": 0.3} if name == "drive" else {"first": -0.08, "last": -0.06}
    rates = {n: 0.1 * (i + 1) for i, n in enumerate(f.system.dynamic)}
    check_map(f, f.initial_state(q, rates), np.full(f.nu, 0.4))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Motor("q", "u", 0.1, 0.0), r"resistance: expected a number > 0 \(Ohm\), got 0"),
        (lambda: JointFriction("q", 1.0, smoothing=0.0), "smoothing: expected a speed > 0"),
        (lambda: Backlash("q", "q", 1.0, 0.1, 1.0), "two different variables, got 'q' twice"),
        (lambda: Backlash("q", "p", 1.0, 0.1, 1.0, 0.0), "rounding: expected a number > 0"),
        (lambda: TableSpring("q", (0, 1), (0, 1, 2)), "got 3 forces at 2 places"),
        (lambda: TableSpring("q", (0, 1, 1), (0, 1, 2)), "expected increasing places"),
        (lambda: TableSpring("q", (0, vioc.P("a", 1.0)), (0, 1)), "numbers, not parameters"),
    ],
)
def test_what_is_wrong_is_said(make, words):
    with pytest.raises(ModelError, match=words):
        make()
