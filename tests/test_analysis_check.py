"""`check_derivatives` of expressions and functions: right ones pass, wrong and kinked ones show."""

import casadi as ca
import numpy as np
import pytest
from support.control_maps import RailedMap, cart_pole

from vioc.control import check_derivatives


@pytest.fixture(scope="module")
def run():
    f = cart_pole()
    return f.rollout([0, 0.3, 0, 0], np.sin(np.arange(30))[:, None])


def test_path_and_terminal_constraints(run):
    s = run.map.symbols
    path = ca.vertcat(ca.sin(s.x[1]) * s.u[0] - 1, s.x[0] ** 3)
    checks = check_derivatives(path, run)
    assert [c.name for c in checks] == [f"expression[{i}], {o}" for i in (0, 1) for o in ("first", "second")]
    assert max(c.error for c in checks) < 1e-6
    assert checks[0].slope == pytest.approx(2, abs=0.1)
    terminal = check_derivatives(run.map.quantity("theta") ** 3, run)
    assert [c.name for c in terminal] == ["expression, first", "expression, second"]
    multipliers = RailedMap()
    rail = check_derivatives(
        multipliers.quantity("lambda.rail") ** 2, multipliers.rollout([0.4, 0.1], steps=4)
    )
    assert max(c.error for c in rail) < 1e-6


def test_a_kink_shows(run):
    theta = run.map.quantity("theta")
    kinked = check_derivatives(ca.fabs(theta - float(run.x[12, 1])), run)
    assert max(c.error for c in kinked) > 0.1
    assert min(c.slope for c in kinked) < 0.5


def test_a_wrong_jacobian_of_a_users_own_function_shows():
    x = ca.SX.sym("x", 2)
    value = ca.sin(x[0]) * x[1]
    wrong = ca.horzcat(x[1] * ca.cos(x[0]) + 0.01, ca.sin(x[0]))
    options = {
        "custom_jacobian": ca.Function("jac_g", [x, ca.SX.sym("out")], [wrong]),
        "jac_penalty": 0,
        "enable_forward": False,
        "enable_reverse": False,
        "never_inline": True,
    }
    good, bad = (check_derivatives(ca.Function("g", [x], [value], o), [[0.3, 0.4]]) for o in ({}, options))
    assert good[0].error < 1e-9
    assert bad[0].error > 1e-4
    assert abs(bad[0].slope) < 0.1


def test_functions_of_several_inputs():
    x, y = ca.SX.sym("x", 2), ca.SX.sym("y", 2, 2)
    g = ca.Function("g", [x, y], [y @ x, ca.det(y)], ["x", "y"], ["moved", "volume"])
    checks = check_derivatives(g, [np.array([0.2, 0.3]), np.array([[1.0, 2.0], [0.5, 4.0]])])
    assert {c.name.split(",")[0] for c in checks} == {"moved[0]", "moved[1]", "volume"}
    assert max(c.error for c in checks) < 1e-8
    with pytest.raises(ValueError, match="g takes 2 inputs, got 1"):
        check_derivatives(g, [np.zeros(2)])
    with pytest.raises(ValueError, match=r"input y: expected shape \(2, 2\)"):
        check_derivatives(g, [np.zeros(2), np.zeros(3)])


def test_refusals(run):
    with pytest.raises(ValueError, match="'z' is not one of the map's"):
        check_derivatives(ca.SX.sym("z"), run)
    with pytest.raises(TypeError, match="an expression is checked along a Trajectory, got ndarray"):
        check_derivatives(run.map.symbols.x[0], np.zeros(4))
    with pytest.raises(TypeError, match="expected a map, a Cost"):
        check_derivatives("theta", run)
