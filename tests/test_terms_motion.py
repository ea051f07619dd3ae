"""Motions under the terms of the vocabulary, against closed forms and solutions of fewer variables."""

from __future__ import annotations

import warnings

import casadi as ca
import numpy as np
import pytest
import scipy.integrate

from vioc import (
    DistanceConstraint,
    Gravitation,
    Gravity,
    JointForce,
    K,
    LinearDamper,
    Mass,
    MassGravity,
    MidpointVI,
    P,
    PointConstraint,
    StringConstraint,
    System,
    Trajectory,
    Wrench,
    WrenchInput,
    consistent_configuration,
    free,
    helical,
    project_velocity,
    revolute,
    rx,
    ry,
    rz,
    tx,
    ty,
    tz,
)
from vioc.components import GearConstraint, PolynomialSpring, ScrewConstraint, cam, screw
from vioc.errors import ModelError, SlackWarning

G = 9.81
BODY = Mass(1.3, (0.2, 0.3, 0.4, 0.01, -0.02, 0.03), (0.1, -0.2, 0.05))


# -- strings ---------------------------------------------------------------------------------------


def load(mass, length, *more, kind=StringConstraint):
    return System(
        tx("x")[tz("z", name="load", mass=mass)],
        Gravity(0, 0, -G),
        kind("world", "load", length, name="rope"),
        *more,
    )


@pytest.mark.parametrize("kind", [StringConstraint, DistanceConstraint])
def test_a_string_carries_the_weight_that_hangs_on_it(kind):
    f = MidpointVI(load(2.5, 1.7, kind=kind), 0.01)
    run = f.rollout(f.initial_state({"z": -1.7}), steps=20)
    np.testing.assert_allclose(run["tension.rope"][1:], 2.5 * G, rtol=1e-9)
    # p of `initial_state` is M v, as if half the impulse at t = 0 had been given
    np.testing.assert_allclose(run["tension.rope"][0], 2.5 * G / 2, rtol=1e-9)
    assert f.unit("tension.rope") == "N" and run.slack() == []
    # a rod that stands under its load is compressed as much
    if kind is DistanceConstraint:
        run = f.rollout(f.initial_state({"z": 1.7}), steps=3)
        np.testing.assert_allclose(run["tension.rope"][1:], -2.5 * G, rtol=1e-9)
        assert run.slack() == []


def test_a_string_is_pulled():
    """Length L(t) = 2 - a t^2/2 lifts the load with T = m (g + a)."""
    f, a = MidpointVI(load(2.0, K("length")), 0.01), 3.0
    t = 0.01 * np.arange(61)
    lengths = 2 - a * t**2 / 2
    x = f.initial_state({"z": -2.0, "length": 2.0})
    run = f.rollout(x, lengths[1:, None])
    np.testing.assert_allclose(run["z"], -lengths, atol=1e-10)
    np.testing.assert_allclose(run["tension.rope"][1:], 2.0 * (G + a), rtol=1e-8)


def test_the_tension_of_a_pendulum():
    """T = m v^2/L + m g cos(angle), at second order where the step starts."""
    errors = []
    built = MidpointVI(load(1.5, 0.8), 0.02)
    for h in (0.02, 0.01, 0.005):
        f = built.with_dt(h)
        run = f.rollout(f.initial_state({"x": 0.8}), steps=round(0.4 / h))
        rise = run["z"][1:-1]  # from rest at z = 0: v^2 = -2 g z, cos = -z/L
        exact = 1.5 * (-2 * G * rise / 0.8 - G * rise / 0.8)
        errors.append(np.abs(run["tension.rope"][1:] - exact).max())
    slopes = np.diff(np.log(errors)) / np.log(0.5)
    assert (np.abs(slopes - 2) < 0.2).all()


def thrown(h):
    """A pendulum too slow to pass the top: slack where cos(angle from the top) = v^2/(3 g L) - 2/3."""
    f = MidpointVI(load(1.0, 1.0), h)
    speed = np.sqrt(3.5 * G)  # between sqrt(2 g L), which stays below, and sqrt(5 g L)
    x = f.initial_state({"z": -1.0}, {"x": speed})
    return f, x, speed


def test_a_string_that_pushes_is_a_warning_with_the_time():
    f, x, speed = thrown(0.001)
    with pytest.warns(SlackWarning, match=r"the string rope pushes with .* N from t = 0\.\d+ s") as caught:
        run = f.rollout(x, steps=1000)
    assert len(caught) == 1 and caught[0].filename == __file__
    (first, *_) = run.slack()
    assert first.string == "rope" and f"t = {first.start:g} s" in str(caught[0].message)
    # energy: v^2 = v0^2 - 2 g (1 + z);  T = v^2 - g z = 0 (m = L = 1)  at z = (v0^2 - 2 g)/(3 g)
    k = np.searchsorted(run.t, first.start)
    rate = run["v.z"][k]
    assert abs(run["z"][k] - (speed**2 - 2 * G) / (3 * G)) <= abs(rate) * 0.001
    assert first.tension < -0.1 and first.end <= run.t[-1]
    pushes = run["tension.rope"] < 0
    assert not pushes[:k].any() and pushes[k]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        f.rollout(x, steps=1000, warn=False)
        f.rollout(x, steps=int(k))  # ends before
    assert [s.start for s in run.slack(tolerance=1e3)] == []


def test_slack_is_read_back_from_a_file(tmp_path):
    f, x, _ = thrown(0.01)
    with pytest.warns(SlackWarning):
        run = f.rollout(x, steps=60)
    assert Trajectory.load(run.save(tmp_path / "run.npz"), f).slack() == run.slack() != []


def test_strings_without_load_do_not_warn_of_rounding():
    system = System(tx("x")[ty("y")[tz("z", name="load", mass=1.0)]], StringConstraint("world", "load", 0.7))
    f = MidpointVI(system, 0.01)
    run = f.rollout(f.initial_state({"x": 0.2, "y": 0.3, "z": 0.6}), steps=100)
    assert np.abs(run["tension.string-constraint-1"]).max() < f.mechanism.force_rounding(0.01)


def test_several_strings_give_one_warning():
    system = System(
        tx("x")[tz("z", name="a", mass=1.0)],
        tx(5.0)[tx("x2")[tz("z2", name="b", mass=1.0)]],
        tx(5.0, name="post"),
        Gravity(0, 0, -G),
        StringConstraint("world", "a", 1.0, name="left"),
        StringConstraint("post", "b", 1.0, name="right"),
    )
    f = MidpointVI(system, 0.01)
    with pytest.warns(SlackWarning, match=r"right pushes .*\(1 more strings push later\)") as caught:
        run = f.rollout(f.initial_state({"z": -1.0, "z2": 1.0}, {"x": np.sqrt(3.5 * G)}), steps=60)
    assert len(caught) == 1
    assert [s.string for s in run.slack()][:2] == ["right", "left"]


# -- pairs -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("axis", ["z", "x", (1.0, -2.0, 0.5)])
def test_a_helical_joint_moves_alike_as_frames_and_as_one_twist(axis):
    pitch, gravity = 0.3, Gravity(1.0, 2.0, -G)
    nut = tx(0.2, name="nut", mass=BODY)
    frame, thread = screw("s", pitch, axis)[nut]
    two = MidpointVI(System(rx("tilt", mass=BODY)[frame], thread, gravity), 0.01)
    one = MidpointVI(System(rx("tilt", mass=BODY)[helical("s", pitch, axis)[nut]], gravity), 0.01)
    run = two.rollout(
        two.initial_state({"tilt": 0.2}, {"tilt": 0.5, "s-angle": 1.0, "s-travel": pitch}), steps=50
    )
    same = one.rollout(one.initial_state({"tilt": 0.2}, {"tilt": 0.5, "s": 1.0}), steps=50)
    np.testing.assert_allclose(run["s-angle"], same["s"], atol=1e-9)
    np.testing.assert_allclose(run["tilt"], same["tilt"], atol=1e-9)
    for axis in "xyz":
        np.testing.assert_allclose(run[f"nut:{axis}"], same[f"nut:{axis}"], atol=1e-9)
    np.testing.assert_allclose(run["s-travel"], pitch * run["s-angle"], atol=1e-12)


def test_a_gear_pair_is_an_equivalent_inertia():
    """q1 = r q2: the torque on wheel 1 turns I1 + I2/r^2."""
    one, two, ratio, torque = 0.3, 0.05, -0.25, 0.7
    system = System(
        rz("wheel", mass=Mass(1, (1, 1, one))),
        tx(0.5)[rz("pinion", mass=Mass(1, (1, 1, two)))],
        GearConstraint("wheel", "pinion", ratio, P("backlash", 0.1), name="mesh"),
        JointForce("wheel", "motor"),
    )
    f = MidpointVI(system, 0.01)
    run = f.rollout(f.initial_state({"wheel": 0.1}), np.full((100, 1), torque))
    rate = torque / (one + two / ratio**2)
    np.testing.assert_allclose(run["wheel"], 0.1 + rate * run.t**2 / 2, atol=1e-12)
    np.testing.assert_allclose(run["pinion"], (run["wheel"] - 0.1) / ratio, atol=1e-12)
    # the tooth's torque on the pinion accelerates it: I2 q2'' = -ratio lambda_c
    np.testing.assert_allclose(run["force.mesh"][1:], -two * rate / ratio / ratio, rtol=1e-8)


@pytest.mark.parametrize("profile", ["samples", "function"])
def test_a_cam_against_one_variable(profile):
    """(J + m f'^2) a'' + m f' f'' a'^2 + m g f' = 0 for the lift f(a)."""
    J, m = 0.02, 0.8
    angles = 2 * np.pi * np.arange(12) / 12
    given = 0.1 * np.cos(angles) + 0.02 * np.sin(2 * angles)
    lift = given if profile == "samples" else lambda a: 0.1 * ca.cos(a) + 0.02 * ca.sin(2 * a)
    system = System(
        ry("cam", mass=Mass(1, (J, J, J))),
        tz("follower", mass=m),
        Gravity(0, 0, -G),
        cam("cam", "follower", lift),
    )

    def rates(t, y):
        a, v = y
        f1 = -0.1 * np.sin(a) + 0.04 * np.cos(2 * a)
        f2 = -0.1 * np.cos(a) - 0.08 * np.sin(2 * a)
        return v, -(m * f1 * f2 * v**2 + m * G * f1) / (J + m * f1**2)

    exact = scipy.integrate.solve_ivp(rates, (0, 1), (0.3, 4.0), rtol=1e-12, atol=1e-13).y[0, -1]
    errors = []
    built = MidpointVI(system, 0.01)
    for h in (0.01, 0.005):
        f = built.with_dt(h)
        q = consistent_configuration(system, {"cam": 0.3}, fixed=["cam"]).q
        slope = -0.1 * np.sin(0.3) + 0.04 * np.cos(0.6)
        x = f.initial_state(q, {"cam": 4.0, "follower": 4.0 * slope})
        errors.append(abs(f.rollout(x, steps=round(1 / h))["cam"][-1] - exact))
    assert errors[1] < 1e-3 and abs(np.log2(errors[0] / errors[1]) - 2) < 0.2


# -- potentials and forces ---------------------------------------------------------------------------


def test_two_bodies_keep_keplers_period():
    m1, m2, gravity, distance = 3.0, 1.0, 2.0, 1.5
    bodies = [tx(f"x{i}")[ty(f"y{i}", name=f"body{i}", mass=m)] for i, m in ((1, m1), (2, m2))]
    period = 2 * np.pi * np.sqrt(distance**3 / (gravity * (m1 + m2)))
    speed, share = 2 * np.pi / period * distance, m2 / (m1 + m2)
    misses = []
    for steps in (200, 400):
        f = MidpointVI(System(bodies, Gravitation("body1", "body2", gravity)), period / steps)
        q = {"x1": -share * distance, "x2": (1 - share) * distance}
        v = {"y1": -share * speed, "y2": (1 - share) * speed}
        run = f.rollout(f.initial_state(q, v), steps=steps)
        misses.append(np.hypot(run["x2"][-1] - q["x2"], run["y2"][-1]))
        spin = sum(run[f"x{i}"] * run[f"p.y{i}"] - run[f"y{i}"] * run[f"p.x{i}"] for i in (1, 2))
        np.testing.assert_allclose(spin, spin[0], rtol=1e-10)
    assert misses[1] < 2e-3 and abs(np.log2(misses[0] / misses[1]) - 2) < 0.1


def test_duffings_spring_keeps_its_period():
    """k1 x + k3 x^3: the quarter period is an integral over the amplitude."""
    k1, k3, amplitude = 2.0, 1.5, 0.9

    def slowness(s):  # x = amplitude sin s
        x = amplitude * np.sin(s)
        return 1 / np.sqrt(k1 + k3 / 2 * (amplitude**2 + x**2))

    quarter = scipy.integrate.quad(slowness, 0, np.pi / 2, epsabs=1e-13)[0]
    f = MidpointVI(System(tx("x", mass=1.0), PolynomialSpring("x", (k1, 0.0, k3), 0.2)), quarter / 1000)
    run = f.rollout(f.initial_state({"x": 0.2 + amplitude}), steps=1000)
    assert abs(run["x"][-1] - 0.2) < 1e-6


def test_gravity_per_mass_adds_up_to_gravity():
    body = free("b", frame="body", mass=BODY)
    x = {"b-x": 0.1, "b-rz": 0.3, "b-ry": -0.2}, {"b-rx": 0.7, "b-z": 0.5}
    other = tx("far", mass=1.0)
    runs = []
    for term in (Gravity(1, -2, -G), MassGravity("body", 1, -2, -G)):
        f = MidpointVI(System(body, other, term), 0.01)
        runs.append(f.rollout(f.initial_state(*x), steps=50))
    for name in ("b-x", "b-y", "b-z", "b-rz", "b-ry", "b-rx"):
        np.testing.assert_allclose(runs[0][name], runs[1][name], atol=1e-10)
    assert runs[0]["far"][-1] > 0.1 and runs[1]["far"][-1] == 0


def test_a_hybrid_wrench_at_the_centre_is_gravity():
    body = free("b")[tx(0.0, name="centre", mass=(1.3, 0.2, 0.3, 0.4))]
    q, v = {"b-rz": 0.3, "b-ry": -0.2}, {"b-rx": 0.7, "b-z": 0.5, "b-rz": -0.4}
    one = MidpointVI(System(body, Gravity(1, -2, -G)), 0.01)
    two = MidpointVI(System(body, Wrench("centre", (1.3, -2.6, -1.3 * G), axes="hybrid")), 0.01)
    runs = [f.rollout(f.initial_state(q, v), steps=50) for f in (one, two)]
    np.testing.assert_allclose(runs[0].x[:, :6], runs[1].x[:, :6], atol=1e-9)


def test_a_damper_between_two_masses_decays():
    """v_rel' = -c/mu v_rel; a midpoint step multiplies it by (1 - a)/(1 + a), a = h c/(2 mu)."""
    c, h, m1, m2 = 0.7, 0.02, 2.0, 0.5
    system = System(
        tx("one", name="a", mass=m1), tx(1.0)[tx("two", name="b", mass=m2)], LinearDamper("a", "b", c)
    )
    f = MidpointVI(system, h)
    run = f.rollout(f.initial_state(v={"one": 0.3, "two": -0.1}), steps=60)
    a = h * c / 2 * (1 / m1 + 1 / m2)
    relative = run["v.one"] - run["v.two"]
    np.testing.assert_allclose(relative, 0.4 * ((1 - a) / (1 + a)) ** np.arange(61), rtol=1e-10)
    np.testing.assert_allclose(run["p.one"] + run["p.two"], 2 * 0.3 - 0.5 * 0.1, rtol=1e-12)


def test_units_of_wrench_inputs():
    system = System(
        free("b", frame="body", mass=BODY),
        WrenchInput("body", "thrust", (1, 0, 0)),
        WrenchInput("body", "rudder", (0, 0, 0), (0, 0, 1)),
        WrenchInput("body", "propeller", (1, 0, 0), (0.1, 0, 0)),
        JointForce("b-rz", "motor"),
        JointForce("b-x", "push"),
    )
    f = MidpointVI(system, 0.01)
    units = {name: (f.unit(name), f.unit(f"u.{name}")) for name in system.inputs}
    assert units == {
        "thrust": ("N", "N"),
        "rudder": ("N m", "N m"),
        "propeller": ("", ""),
        "motor": ("N m", "N m"),
        "push": ("N", "N"),
    }


# -- redundancy ------------------------------------------------------------------------------------


def test_redundant_pairs_are_named():
    wheels = [revolute(n, mass=Mass(1, (1, 1, 1))) for n in "abc"]
    gears = [GearConstraint(*pair, -1.5, name=f"gear-{''.join(pair)}") for pair in ("ab", "bc")]
    closing = GearConstraint("a", "c", 2.25, name="closing")
    report = consistent_configuration(System(wheels, gears, closing), {"a": 0.3})
    assert report.rank == 2 and report.redundant == ("closing",)
    wrong = GearConstraint("a", "c", 2.0, name="wrong")  # only the origin meets all three
    assert consistent_configuration(System(wheels, gears, wrong)).degrees_of_freedom == 0


def test_a_plane_that_a_planar_mechanism_never_leaves_is_redundant():
    system = System(
        rx("a", name="arm")[tz(-1.0, name="tip", mass=1.0)],
        rx("b")[tz(-1.0, name="other", mass=1.0)],
        PointConstraint("tip", "other", (1, 0, 0), "arm", name="sideways"),
        PointConstraint("tip", "other", (0, 1, 0), "arm", name="along"),
    )
    report = consistent_configuration(system, {"a": 0.2, "b": 0.2})
    assert report.redundant == ("sideways",) and report.rank == 1


def test_a_screw_and_a_gear_on_one_joint_may_lock_it():
    joint = screw("s", 0.1, mass=BODY)
    lock = ScrewConstraint("s-angle", "s-travel", 0.2, name="lock")
    report = consistent_configuration(System(joint, lock))
    assert report.degrees_of_freedom == 0 and report.redundant == ()
    assert project_velocity(System(joint, lock), None, {"s-angle": 1.0})[0] == pytest.approx(0.0)


@pytest.mark.parametrize("term", [MassGravity("tip", 0, 0, -G), Gravitation("bob", "tip")])
def test_masses_that_are_missing_are_named(term):
    system_parts = ry("q")[tz(-1.0, name="bob", mass=1.0), tz(-2.0, name="tip")]
    with pytest.raises(ModelError, match="frame 'tip' carries no mass"):
        f = MidpointVI(System(system_parts, term), 0.01)
        f.step(f.initial_state())
