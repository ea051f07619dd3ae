"""The linear regressor: the equations of motion again, base parameters of trees and loops, bodies."""

from functools import cache

import casadi as ca
import numpy as np
import pytest

import vioc
from vioc import Continuous, Gravitation, MassGravity
from vioc.cables import LineDrag, MassDamping
from vioc.errors import ModelError
from vioc.identification import Record, base_parameters
from vioc.models import mechanisms

G = 9.81


@pytest.mark.parametrize("number", [0, 3, 5])
def test_the_regressor_is_the_equations_of_motion(number):
    (m,) = mechanisms(1, number, joints=(2, 5))
    dynamics, rng = Continuous(m.system), np.random.default_rng(number)
    f = vioc.MidpointVI(m.system, 0.01)
    n, nu = len(m.system.variables), len(m.system.inputs)
    q, v, a = (
        m.q + 0.1 * rng.standard_normal((5, n)),
        rng.standard_normal((5, n)),
        rng.standard_normal((5, n)),
    )
    u = rng.standard_normal((5, nu))
    regressor = f.mechanism.regressor()
    Y, rest, _ = regressor(q, v, a, u, np.zeros(5))
    lag = dynamics.lagrangian
    balance = dynamics.balance(dynamics.a_vector, ca.SX.zeros(dynamics.nm))
    wanted = ca.Function("balance", [*lag.state_args, dynamics.a_vector], [balance])
    for k in range(5):
        expected = np.array(wanted(q[k], v[k], u[k], 0.0, [], a[k])).ravel()
        found = Y[k] @ regressor.start + rest[k]
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10 * max(np.abs(expected).max(), 1.0))


def loop(damping=0.3):
    """A four-bar linkage with offset bodies."""
    body = vioc.Mass(0.8, (0.02, 0.01, 0.015), (0.0, 0.03, -0.25))
    coupler = vioc.rx("b", mass=vioc.Mass(0.5, (0.01, 0.01, 0.005), (0.0, -0.02, -0.3)))[
        vioc.tz(-0.6, name="end")
    ]
    left = vioc.rx("a", mass=body)[vioc.tz(-0.5)[coupler]]
    right = vioc.ty(0.5)[
        vioc.rx("c", mass=vioc.Mass(0.6, (0.02, 0.02, 0.01), (0.0, 0.0, -0.3)))[vioc.tz(-0.7, name="tip")]
    ]
    closed = [vioc.PointConstraint("end", "tip", axis) for axis in ((0, 1, 0), (0, 0, 1))]
    rubs = vioc.JointDamping("a", vioc.P("rub", damping))
    return vioc.System(left, right, vioc.Gravity(0, 0, -G), closed, rubs, vioc.JointForce("a", "u"))


def test_base_parameters_of_a_loop():
    system = loop()
    f = vioc.MidpointVI(system, 0.01)
    q = f.consistent_configuration({"a": 0.3, "b": 0.4, "c": 0.2}).q
    t = np.arange(801) * 0.005
    drive = lambda s: np.sin(3.1 * s) + np.sin(7.3 * s + 1)  # noqa: E731
    truth = vioc.reference_solution(system, q, np.zeros(3), t, {"u": drive}, rtol=1e-10, atol=1e-10)
    rng = np.random.default_rng(0)
    noisy = {n: truth[n] + 1e-4 * rng.standard_normal(len(t)) for n in system.variables}
    one = Record(t, noisy, {"u": drive})
    found = base_parameters(vioc.MidpointVI(loop(0.1), 0.01), one.part(0.0, 2.5), "rub")
    assert len(found.values) < 12 and all(found.bodies.values()) and found.apart < 3
    assert found.linear["rub"] == pytest.approx(0.3, rel=0.02)
    exact = found.base @ f.mechanism.regressor(["rub"]).start
    assert np.abs((found.values - exact) / found.std).max() < 4
    assert found.unclear == 1 and "noise hides 1 of 10 combinations" in str(found)
    for physical in (True, False):  # the noise of this part alone makes 4e-3
        aside = found.validate(one.part(2.5, 4.0), physical)
        assert max(aside.relative.values()) < 6e-3
    assert "identifiable combinations" in str(found)


def test_base_parameters_of_a_pendulum_are_named():
    """m c and the inertia about the axis: three of ten, and the friction."""
    arm = vioc.rx("theta", name="arm", mass=vioc.Mass(0.7, (0.05, 0.02, 0.04), (0.0, 0.1, -0.4)))
    rubs = vioc.JointDamping("theta", vioc.P("rub", 0.2))
    system = vioc.System(arm, vioc.Gravity(0, 0, -G), rubs, vioc.JointForce("theta", "u"))
    t = np.arange(301) * 0.01
    drive = lambda s: 2.5 * np.sin(2.1 * s)  # noqa: E731
    truth = vioc.reference_solution(system, [0.5], [0.0], t, {"u": drive}, rtol=1e-10, atol=1e-10)
    f = vioc.MidpointVI(system, 0.01)
    found = base_parameters(f, Record(t, {"theta": truth["theta"]}, {"u": drive}), ["rub"])
    assert found.names == ("arm.my", "arm.mz", "arm.Jxx", "rub")
    np.testing.assert_allclose(found.values, [0.07, -0.28, 0.05 + 0.7 * (0.1**2 + 0.4**2), 0.2], rtol=2e-3)
    aside = found.validate(Record(t, {"theta": truth["theta"]}, {"u": drive}))
    assert aside.relative["theta"] < 1e-3


def test_the_physical_set_and_the_deviations_are_by_the_textbook():
    """Moments of the bodies found are theirs by the parallel axis theorem; residuals count N - p of N."""
    body = vioc.Mass(1.3, (0.05, 0.04, 0.03), (0.15, -0.1, 0.2))
    arm = vioc.rz("yaw", name="base", mass=(1.0, 0.1, 0.1, 0.1))[vioc.rx("roll", name="arm", mass=body)]
    torques = [vioc.JointForce(n, f"{n}-motor") for n in ("yaw", "roll")]
    system = vioc.System(arm, vioc.Gravity(0, 0, -G), torques)
    t = np.arange(401) * 0.01
    drive = {"yaw-motor": lambda s: np.sin(3.1 * s), "roll-motor": lambda s: 2 * np.cos(2.3 * s)}
    truth = vioc.reference_solution(system, [0.2, 0.4], [0.0, 0.0], t, drive, rtol=1e-10, atol=1e-10)
    rng = np.random.default_rng(1)
    noisy = {n: truth[n] + 1e-5 * rng.standard_normal(len(t)) for n in system.variables}
    f = vioc.MidpointVI(system, 0.01)
    found = base_parameters(f, Record(t, noisy, drive))
    moments = []
    for m, *rest in found.numbers.values():
        c, (xx, yy, zz, xy, xz, yz) = np.array(rest[:3]), rest[3:]
        J = np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]]) + m * (c @ c * np.eye(3) - np.outer(c, c))
        moments += [m, *m * c, J[0, 0], J[1, 1], J[2, 2], J[0, 1], J[0, 2], J[1, 2]]
    np.testing.assert_allclose(found.physical, moments, rtol=0, atol=1e-10)
    np.testing.assert_allclose(found.base @ moments, found.values, rtol=0, atol=5 * found.std.max())

    pendulum = vioc.rx("theta", name="arm", mass=vioc.Mass(0.7, (0.05, 0.02, 0.04), (0.0, 0.1, -0.4)))
    system = vioc.System(pendulum, vioc.Gravity(0, 0, -G), vioc.JointForce("theta", "u"))
    t = np.arange(26) * 0.02
    push = {"u": lambda s: 5 * np.sin(9 * s)}
    truth = vioc.reference_solution(system, [0.5], [0.0], t, push, rtol=1e-10, atol=1e-10)
    short = Record(t, {"theta": truth["theta"] + 1e-4 * rng.standard_normal(len(t))}, push)
    few = base_parameters(vioc.MidpointVI(system, 0.02), short, knots=0.1)
    left = few.validate(short, physical=False)
    left = left.measured - left.predicted
    assert left.size < 30
    expected = np.sqrt((left**2).sum() / (left.size - len(few.values)))
    assert few.deviations["theta"] == pytest.approx(expected, rel=1e-9)


def driven_arm(*parts, base=None):
    """An arm about y with friction 0.3: J 0.35, m x 0.6, m z -0.12."""
    body = vioc.Mass(1.2, (0.05, 0.035, 0.05), (0.5, 0.0, -0.1))
    arm = vioc.ry("a", name="arm", mass=body)
    rubs = vioc.JointDamping("a", vioc.P("c", 0.3))
    return vioc.System(base[arm] if base else arm, vioc.Gravity(0, 0, -G), rubs, *parts)


def differences(run, name, h):
    """Positions, velocities, accelerations inside of a run."""
    y = run[name]
    return y[1:-1], (y[2:] - y[:-2]) / (2 * h), (y[2:] - 2 * y[1:-1] + y[:-2]) / h**2


def between(run, name):
    u = run[f"u.{name}"]
    return (u[1:] + u[:-1]) / 2


@cache
def moved_arm(*parts):
    """The map of the arm with these forces, and how it moves by its inputs for ten seconds."""
    f = vioc.MidpointVI(driven_arm(*parts), 0.005)
    drives = {n: DRIVES[n] for n in f.input_names}
    return f, f.rollout(f.initial_state(), f.inputs(2000, **drives))


SECOND = vioc.JointForce("a", "u2")
MOTOR = vioc.JointForce("a", "u1", gain=vioc.P("gain", 2.0))
SWAY = vioc.UserForce(lambda k, size: {"a": size * ca.sin(4 * k.t)}, args=(vioc.P("size", 1.5),))
DRIVES = {
    "u1": lambda t: 2 * np.sin(2 * t) + 1.5 * np.sin(5.1 * t),
    "u2": lambda t: 1.2 * np.cos(3 * t) + 0.8 * np.sin(7 * t),
}


@pytest.mark.parametrize("force, name", [(MOTOR, "gain"), (SWAY, "size")])
def test_gains_of_inputs_and_of_time_are_told(force, name):
    """Against least squares of the pendulum's equation, by differences of the run."""
    f, run = moved_arm(force, SECOND)
    h = f.dt
    found = base_parameters(f, run, ["c", name])
    assert found.names == ("arm.mx", "arm.mz", "arm.Jyy", "c", name)
    q, v, a = differences(run, "a", h)
    given = between(run, "u1") if name == "gain" else np.sin(4 * run.t[1:-1])
    W = np.stack([-G * np.cos(q), -G * np.sin(q), a, v, -given], axis=1)
    by_hand = np.linalg.lstsq(W, between(run, "u2"), rcond=None)[0]
    np.testing.assert_allclose(found.values, by_hand, rtol=0, atol=2e-3)
    np.testing.assert_allclose(found.values[:3], [0.6, -0.12, 0.05 * 0.7 + 1.2 * 0.26], rtol=0, atol=2e-3)
    assert found.linear[name] == pytest.approx(by_hand[4], abs=2e-3) and found.apart < 3
    assert found.validate(run).relative["a"] < 0.02


def test_what_inputs_made_is_by_the_gain_found():
    """2 u1 + u2 on the one row that there is; the error is that of what is fitted."""
    f, run = moved_arm(MOTOR, SECOND)
    found = base_parameters(f, run, ["c", "gain"])
    known = base_parameters(f, run, ["c"]).validate(run)
    for physical in (True, False):
        torques = found.validate(run, physical)
        np.testing.assert_allclose(torques.measured, known.measured, rtol=0, atol=0.02)
        np.testing.assert_allclose(torques.predicted, known.predicted, rtol=0, atol=0.02)
        assert torques.relative["a"] < 0.01


def coupled_arms():
    """Two links, the first with a motor of gain 2, and a record by inverse dynamics."""
    lower = vioc.tx(0.4)[vioc.ry("b", name="lower", mass=vioc.Mass(0.8, (0.03, 0.03, 0.03), (0.3, 0, 0.1)))]
    upper = vioc.ry("a", name="upper", mass=vioc.Mass(1.3, (0.05, 0.05, 0.03), (0.2, 0, -0.1)))[lower]
    motors = vioc.JointForce("a", "ua", vioc.P("gain", 2.0)), vioc.JointForce("b", "ub")
    system = vioc.System(upper, vioc.Gravity(0, 0, -G), motors, vioc.JointDamping("a", vioc.P("c", 0.3)))
    t, w = np.arange(1001) * 0.01, np.array([[1.3, 2.1], [0.7, 3.1]])
    q, v, a = (sum(g(np.outer(t, r)) * r**k for r in w) for g, k in ((np.sin, 0), (np.cos, 1), (np.sin, 2)))
    u = Continuous(system).inverse(q, v, -a) / [2.0, 1.0]
    return system, Record(t, {"a": q[:, 0], "b": q[:, 1]}, {"ua": u[:, 0], "ub": u[:, 1]})


def test_rows_of_an_estimated_gain_are_compared():
    """The first joint has no other force than that of its motor."""
    system, one = coupled_arms()
    f = vioc.MidpointVI(system, 0.01)
    found = base_parameters(f, one, ["c", "gain"])
    assert found.linear["gain"] == pytest.approx(2.0, abs=1e-4)
    # noise of that input would make it too small, which no deviation tells
    assert found.biased == ("a",) and "unknown gain alone drives a: its noise" in str(found)
    assert not base_parameters(f, one, "c").biased
    for physical in (True, False):
        aside = found.validate(one, physical)
        assert set(aside.relative) == {"a", "b"} and max(aside.relative.values()) < 1e-3
        inside = (one.t >= aside.t[0]) & (one.t <= aside.t[-1])
        np.testing.assert_allclose(aside.measured[:, 0], 2 * one.inputs["ua"][inside], rtol=1e-3, atol=0)


def test_axes_of_their_own_need_a_force_of_known_size():
    """All of the first one's numbers could be 0; with its gain known both are told."""
    arms = [vioc.ry(n, mass=vioc.Mass(0.8, (0.03, 0.03, 0.03), (0.1, 0, -0.3))) for n in "ab"]
    motors = vioc.JointForce("a", "ua", vioc.P("gain", 2.0)), vioc.JointForce("b", "ub")
    system = vioc.System(*arms, vioc.Gravity(0, 0, -G), motors)
    f, t = vioc.MidpointVI(system, 0.01), np.arange(601) * 0.01
    q, a = np.stack([np.sin(2 * t), np.sin(3 * t)], 1), -np.stack([4 * np.sin(2 * t), 9 * np.sin(3 * t)], 1)
    u = Continuous(system).inverse(q, 0 * q, a) / [2.0, 1.0]
    one = Record(t, {"a": q[:, 0], "b": q[:, 1]}, {"ua": u[:, 0], "ub": u[:, 1]})
    with pytest.raises(ValueError, match="force of known size on a, got none"):
        base_parameters(f, one, "gain")
    assert max(base_parameters(f, one).validate(one).relative.values()) < 1e-3


def test_the_gain_of_an_input_that_rests_is_not_told():
    f, _ = moved_arm(MOTOR, SECOND)
    run = f.rollout(f.initial_state(), f.inputs(1000, u2=DRIVES["u2"]))
    found = base_parameters(f, run, ["c", "gain"])
    assert found.names == ("arm.mx", "arm.mz", "arm.Jyy", "c")
    np.testing.assert_allclose(found.values[3], 0.3, rtol=0, atol=2e-3)


def test_base_parameters_on_a_base_that_is_moved():
    """The equation of the arm alone is fitted, by its own input: against least squares by differences."""
    h = 0.002
    f = vioc.MidpointVI(driven_arm(vioc.JointForce("a", "u"), base=vioc.tx(vioc.K("s"))), h)
    signals = {"rho_s": lambda t: 0.2 * np.sin(3 * t), "u": lambda t: 1.5 * np.sin(2 * t) + np.cos(5 * t)}
    run = f.rollout(f.initial_state({}, {"s": 0.6}), f.inputs(2500, **signals))
    found = base_parameters(f, run, ["c"])
    (q, v, a), (_, _, s2) = differences(run, "a", h), differences(run, "s", h)
    W = np.stack([s2 * np.cos(q) - G * np.sin(q), -s2 * np.sin(q) - G * np.cos(q), a, v], axis=1)
    by_hand = np.linalg.lstsq(W, between(run, "u"), rcond=None)[0]
    assert found.names == ("arm.mx", "arm.mz", "arm.Jyy", "c") and tuple(found.deviations) == ("a",)
    np.testing.assert_allclose(found.values, by_hand[[1, 0, 2, 3]], rtol=0, atol=1e-3)
    for physical in (True, False):
        assert found.validate(run, physical).relative["a"] < 0.01
    columns = np.zeros((7, 2))
    with pytest.raises(ValueError, match=r"u: expected shape \(7, 1\) in the order u, got \(7, 2\)"):
        found.regressor(columns, columns, columns, columns, np.zeros(7))
    with pytest.raises(ValueError, match=r"a: expected shape \(7, 2\) in the order a, s, got \(7, 1\)"):
        found.regressor(columns, columns, columns[:, :1], columns[:, :1], np.zeros(7))


def test_a_base_of_constant_rate_tells_no_first_moments_without_gravity():
    """J a + c v = u is all that there is: what the base would tell if it shook is not looked for."""
    arm = vioc.ry("a", name="arm", mass=vioc.Mass(1.2, (0.05, 0.035, 0.05), (0.5, 0.0, -0.1)))
    system = vioc.System(
        vioc.tx(vioc.K("s"))[arm], vioc.JointDamping("a", vioc.P("c", 0.3)), vioc.JointForce("a", "u2")
    )
    f = vioc.MidpointVI(system, 0.005)
    run = f.rollout(f.initial_state({}, {"s": 0.6}), f.inputs(1000, rho_s=lambda t: 0.6 * t, u2=DRIVES["u2"]))
    found = base_parameters(f, run, ["c"])
    assert found.names == ("arm.Jyy", "c")
    np.testing.assert_allclose(found.values, [0.035 + 1.2 * 0.26, 0.3], rtol=0, atol=1e-3)


def test_weights_of_single_bodies_are_in_their_numbers():
    """m l^2 + J, m c: against the equations themselves, whatever mass the model has."""

    @cache
    def arm(mass):
        bob = vioc.tz(-0.4, name="bob", mass=vioc.Mass(mass, (0.02, 0.01, 0.01)))
        upper = vioc.rx("a", mass=vioc.Mass(0.5, (0.01, 0.01, 0.01), (0.0, 0.0, -0.2)))[bob]
        floats = vioc.Gravity(0, 0, 1.5), MassGravity("bob", 0, 0, -G)
        return vioc.MidpointVI(vioc.System(upper, *floats, vioc.JointForce("a", "u")), 0.01)

    t = np.arange(1001) * 0.005
    q = np.sin(2.1 * t) + 0.5 * np.sin(3.7 * t)
    a = -(2.1**2) * np.sin(2.1 * t) - 0.5 * 3.7**2 * np.sin(3.7 * t)
    pull = 0.4 * 0.7 * (G - 1.5) - 0.2 * 0.5 * 1.5
    u = (0.02 + 0.7 * 0.16 + 0.01 + 0.5 * 0.04) * a + pull * np.sin(q)
    one = Record(t, {"a": q}, {"u": u})
    for mass in (0.7, 0.9):
        found = base_parameters(arm(mass), one)
        exact = found.base @ arm(0.7).mechanism.regressor().start
        np.testing.assert_allclose(found.values, exact, rtol=0, atol=1e-6)
        assert found.validate(one).relative["a"] < 1e-4
    full = np.zeros((1, 1))
    Y, rest, _ = arm(0.7).mechanism.regressor()(full + 1.0, full, full, full, np.zeros(1))
    assert Y[0] @ arm(0.7).mechanism.regressor().start + rest[0] == pytest.approx(pull * np.sin(1.0))


@pytest.mark.parametrize(
    "term",
    [
        MassDamping("world", "arm", 2.0),
        Gravitation("arm", "far", 1.0),
        LineDrag("world", "arm", 1.0, (0, 0, 1), 0.1),
    ],
)
def test_forces_of_the_numbers_of_bodies_are_refused(term):
    far = vioc.tx(3.0, name="far", mass=1.0)
    system = vioc.System(*driven_arm().frames, far, term, vioc.JointForce("a", "u"))
    with pytest.raises(ModelError, match=f"{term.label()} depends on inertias of bodies"):
        vioc.MidpointVI(system, 0.01).mechanism.regressor()


def test_messages():
    system = loop()
    f = vioc.MidpointVI(system, 0.01)
    t = np.arange(101) * 0.01
    with pytest.raises(ValueError, match="needs every configuration"):
        base_parameters(f, Record(t, {"a": np.zeros(101)}))
    with pytest.raises(ModelError, match="unknown parameter"):
        f.mechanism.regressor(["rubb"])
    body = vioc.rx("a", mass=vioc.Mass(vioc.P("mass", 1.0), (0.1, 0.1, 0.1)))
    with pytest.raises(ModelError, match="no force depends on the parameter 'mass'"):
        base_parameters(
            vioc.MidpointVI(vioc.System(body, vioc.JointForce("a", "u")), 0.01),
            Record(t, {"a": np.sin(t)}, {"u": np.sin(t)}),
            "mass",
        )
    x, u = ca.SX.sym("x"), ca.SX.sym("u")
    free = vioc.CasadiMap(ca.Function("f", [x, u], [x + 0.1 * u]), 0.1)
    with pytest.raises(ModelError, match="no mechanism"):
        free.mechanism.regressor()
    motor = vioc.MidpointVI(driven_arm(MOTOR), 0.01)
    with pytest.raises(ValueError, match="force of known size"):
        base_parameters(motor, motor.rollout(motor.initial_state(), motor.inputs(200, u1=1.0)), ["c", "gain"])


def in_units(kg, m, closed, friction=0.0):
    """A carriage with an arm, or a crank that pushes a slider; a kilogram is `kg`, a metre `m` units."""

    def body(mass, com):
        inertia = (0.01, 0.02, 0.015)
        return vioc.Mass(mass * kg, tuple(i * kg * m**2 for i in inertia), tuple(c * m for c in com))

    def system(heavy, rub, slip):
        rod = vioc.ry("b", name="rod", mass=body(0.5 * heavy, (0.2, 0.0, 0.0)))
        terms = (
            vioc.Gravity(0, 0, -G * m),
            vioc.JointDamping("x", vioc.P("slip", slip * kg)),
            vioc.JointDamping("b", vioc.P("rub", rub * kg * m**2)),
        )
        if not closed:
            cart = vioc.tx("x", name="cart", mass=body(0.8, (0.0, 0.0, 0.0)))
            return vioc.System(cart[vioc.tz(0.1 * m)[rod]], *terms, vioc.JointForce("x", "u", gain=kg * m))
        crank = vioc.ry("a", name="crank", mass=body(0.4 * heavy, (0.1, 0.0, 0.02)))
        slide = vioc.tx("x", name="slide", mass=body(0.8, (0.0, 0.0, 0.0)))
        pins = [vioc.PointConstraint("pin", "slide", axis) for axis in ((1, 0, 0), (0, 0, 1))]
        chain = crank[vioc.tx(0.3 * m)[rod[vioc.tx(0.7 * m, name="pin")]]]
        return vioc.System(chain, slide, pins, *terms, vioc.JointForce("a", "u", gain=kg * m**2))

    f, true = (vioc.MidpointVI(system(*n), 0.005) for n in ((1.0, friction, friction), (0.8, 0.03, 0.4)))
    lean = -np.arcsin(3 / 7 * np.sin(0.4))
    shut = {"a": 0.4, "b": lean - 0.4, "x": m * (0.3 * np.cos(0.4) + 0.7 * np.cos(lean))}
    x0 = true.initial_state(shut if closed else {"b": -0.6})
    run = true.rollout(x0, true.inputs(800, u=lambda t: 2 * np.sin(4 * t) + np.sin(9 * t)))
    noise = 2e-5 * np.random.default_rng(0).standard_normal((len(run.t), len(true.system.variables)))
    size = [m if n == "x" else 1.0 for n in true.system.variables]
    measured = {n: run[n] + s * e for n, s, e in zip(true.system.variables, size, noise.T, strict=True)}
    found = base_parameters(f, Record(run.t, measured, {"u": run["u.u"]}), ["rub", "slip"], knots=0.05)
    return found, [found.linear["rub"] / (kg * m**2), found.linear["slip"] / kg]


@pytest.mark.parametrize("closed", [False, True])
def test_base_parameters_do_not_depend_on_units(closed):
    """Values, physical numbers, deviations, the verdict: in mg and micrometres, t and km."""
    wanted, friction = in_units(1.0, 1.0, closed)
    # the linkage moves too fast for these knots, with errors up to nine deviations
    assert wanted.apart < 3 and ("doubt: splines" in str(wanted)) == ("doubt" in str(wanted)) == closed
    np.testing.assert_allclose(friction, [0.03, 0.4], rtol=0.2)
    for kg, m in ((1e6, 1e6), (1e-3, 1e-3), (1.0, 1e3)):
        found, again = in_units(kg, m, closed)
        parts, again_parts = ([n.split()[::3] for n in b.names] for b in (wanted, found))
        assert again_parts == parts
        np.testing.assert_allclose(again, friction, rtol=1e-6)
        np.testing.assert_allclose(found.values / found.std, wanted.values / wanted.std, rtol=1e-5, atol=1e-5)
        assert found.apart == pytest.approx(wanted.apart, rel=1e-3)
        assert found.smoothed == pytest.approx(wanted.smoothed, rel=1e-3)
        units = kg * np.array([1.0, *[m / kg] * 3, *[m**2] * 6])
        for name, numbers in wanted.numbers.items():
            numbers = numbers * units
            sizes = np.repeat([numbers[0], m, kg * m**2], [1, 3, 6])
            np.testing.assert_allclose(found.numbers[name] / sizes, numbers / sizes, rtol=0, atol=1e-5)


@pytest.fixture(scope="module")
def fall():
    f = vioc.MidpointVI(vioc.models.load("pendulum"), 0.01)
    return f, f.rollout(f.initial_state(theta=0.3), steps=100)


@pytest.mark.parametrize("knots", [-1, 0, np.inf, np.nan, True, "1", None])
def test_knots_are_a_time(fall, knots):
    f, run = fall
    with pytest.raises(ValueError, match="knots: expected a number"):
        base_parameters(f, Record.of(run), knots=knots)
    with pytest.raises(ValueError, match="101 samples determine no spline .* take a larger knots="):
        base_parameters(f, Record.of(run), knots=f.dt)


@cache
def two_joints(kind, error=1.0):
    """The map of a cart with a pole, or of two links of which some have motors."""
    if kind == "cart-pole":
        cart = vioc.tx("a", name="cart", mass=error)[
            vioc.ry("b")[vioc.tz(-0.5, name="bob", mass=0.5 / error)]
        ]
        parts, driven = [cart], ("a",)
    else:
        links = [vioc.Mass(m * error, (0.02, 0.02, 0.02), (0.0, 0.0, -0.2)) for m in (1.0, 0.5)]
        parts = [vioc.ry("a", name="upper", mass=links[0])[vioc.tz(-0.5)[vioc.ry("b", mass=links[1])]]]
        driven = ("a", "b") if kind == "arm" else ("a",)
    rubs = [vioc.JointDamping(n, vioc.P(f"c{n}", 0.2 * error)) for n in driven]
    terms = vioc.Gravity(0, 0, -G), *rubs, *[vioc.JointForce(n, f"u{n}") for n in driven]
    return vioc.MidpointVI(vioc.System(*parts, *terms), 0.01)


@cache
def two_joints_driven(kind, fast):
    """Times, torques, and the true motion of two joints."""
    t = np.arange(801) * 0.01
    drive = {
        "ua": lambda t: np.sin(4 * fast * t) + np.sin(1.7 * t),
        "ub": lambda t: 0.5 * np.sin(3 * fast * t),
    }
    system = two_joints(kind).system
    drive = {n: drive[n] for n in system.inputs}
    return t, drive, vioc.reference_solution(system, [0.0, 0.3], [0.0, 0.0], t, drive, rtol=1e-9, atol=1e-9)


def seen(kind, noise, knots, seed=0, fast=1.0):
    """Return estimates from a noisy record of two joints, and the truth."""
    t, drive, y = two_joints_driven(kind, fast)
    rng = np.random.default_rng(seed)
    noisy = {n: y[n] + noise * rng.standard_normal(len(t)) for n in "ab"}
    f, names = two_joints(kind, 1.2), [f"c{n[1]}" for n in drive]
    found = base_parameters(f, Record(t, noisy, drive), names, knots=knots)
    return found, found.base @ two_joints(kind).mechanism.regressor(names).start


@pytest.mark.parametrize("kind", ["cart-pole", "one motor", "arm"])
def test_joints_without_a_force_and_noise_of_the_motion(kind):
    """All numbers zero fit an equation without a force; noise of accelerations makes inertias too small."""
    for noise, knots in ((0.0, 0.05), (1e-5, 0.05), (1e-4, 0.05), (1e-3, 0.1)):
        found, exact = seen(kind, noise, knots)
        assert len(exact) == (5 if kind == "cart-pole" else 6 + len(found.linear))
        assert np.abs((found.values - exact) / found.std).max() < 4 or "doubt: splines" in str(found)
        np.testing.assert_allclose(found.values, exact, rtol=0, atol=0.06 * np.abs(exact).max())


def test_deviations_are_those_of_repeated_records():
    """The spread of the estimates, and their mean, from records with other noise."""
    runs = [seen("cart-pole", 2e-4, 0.06, seed) for seed in range(12)]
    values, std = np.array([r[0].values for r in runs]), np.mean([r[0].std for r in runs], axis=0)
    spread = values.std(axis=0, ddof=1)
    assert np.all(spread < 2 * std) and np.all(std < 4 * spread)
    assert np.abs((values.mean(axis=0) - runs[0][1]) / std).max() < 4 / np.sqrt(12)


def test_doubts_of_knots_too_long_and_of_noise():
    found, exact = seen("arm", 1e-4, 0.2, fast=4.0)
    assert np.abs((found.values - exact) / found.std).max() > 4 and found.smoothed > 1
    assert "doubt: splines with knots every 0.2 s smooth the motion" in str(found)
    found, exact = seen("cart-pole", 3e-3, 0.05)
    assert found.unclear and "they stay at the model's values; record larger motions" in str(found)
    assert np.abs((found.values - exact) / found.std).max() < 4


def test_rounding_of_times_does_not_decide_on_samples():
    """At 3 and 7 times the speed the ends of knots are samples but for rounding."""

    def friction(second):
        mass = vioc.Mass(0.8, (0.01, 0.02, 0.015), (0, 0, -0.3))
        rubs = vioc.JointDamping("a", vioc.P("c", 0.1 / second))
        system = vioc.System(
            vioc.ry("a", mass=mass), vioc.Gravity(0, 0, -G / second**2), rubs, vioc.JointForce("a", "u")
        )
        f, t = vioc.MidpointVI(system, 0.005 * second), np.arange(401) * 0.005 * second
        run = f.rollout(f.initial_state({"a": 0.4}), 2 * np.sin(4 * t[:-1, None] / second) / second**2)
        noise = 1e-4 * np.random.default_rng(0).standard_normal(401)
        one = Record(t, {"a": run["a"] + noise}, {"u": run["u.u"]})
        return base_parameters(f, one, "c", knots=0.05 * second).values[-1] * second

    for second in (3.0, 7.0, 1e3):
        assert friction(second) == pytest.approx(friction(1.0), rel=1e-6)
