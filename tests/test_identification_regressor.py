"""The linear regressor: the equations of motion again, base parameters of trees and loops, bodies."""

import casadi as ca
import numpy as np
import pytest

import vioc
from studies.random_family import mechanisms
from vioc.control import Record, base_parameters
from vioc.dynamics.continuous import Continuous
from vioc.errors import ModelError

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
    regressor = f.regressor()
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
    for physical in (True, False):
        aside = found.validate(one.part(2.5, 4.0), physical)
        assert max(aside.relative.values()) < 5e-3
    assert "combinations told" in str(found)


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


def test_messages():
    system = loop()
    f = vioc.MidpointVI(system, 0.01)
    t = np.arange(101) * 0.01
    with pytest.raises(ValueError, match="needs every configuration"):
        base_parameters(f, Record(t, {"a": np.zeros(101)}))
    with pytest.raises(ModelError, match="unknown parameter"):
        f.regressor(["rubb"])
    x, u = ca.SX.sym("x"), ca.SX.sym("u")
    free = vioc.CasadiMap(ca.Function("f", [x, u], [x + 0.1 * u]), 0.1)
    with pytest.raises(ModelError, match="no mechanism"):
        free.regressor()
