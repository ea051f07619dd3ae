"""Neighbours: exported functions, python-control, Crocoddyl."""

import json

import casadi as ca
import numpy as np
import pytest
from control_maps import cart_pole, midpoint_pendulum

import vioc
from vioc.control import dlqr, optimize, quadratic, straight_line
from vioc.control.interop import load_functions, save_functions, step_functions
from vioc.errors import FileFormatError, OptimizationError


def point(f, seed=0):
    rng = np.random.default_rng(seed)
    return f.state() + 0.3 * rng.standard_normal(f.nx), 0.3 * rng.standard_normal(f.nu)


def pendulum_on_rod():
    frames = vioc.tx("x")[vioc.ty("y", name="bob", mass=vioc.Mass(1.0))]
    pin = vioc.DistanceConstraint("bob", "world", 1.0, name="rod")
    system = vioc.System(
        frames,
        vioc.Gravity(0.0, -9.8, 0.0),
        pin,
        vioc.JointForce("x", "push"),
        vioc.JointDamping("x", 0.1),
        name="rod",
    )
    return vioc.MidpointVI(system, 0.05)


def compare(f, functions, x, u, atol=1e-9):
    args = [x, u, 0.0, f.dt, list(f.parameters.values())]
    x_next, multipliers, residual = (np.array(o).ravel() for o in functions["step"](*args))
    run = f.rollout(x, u[None])
    np.testing.assert_allclose(x_next, run.x[1], atol=atol)
    np.testing.assert_allclose(multipliers, run.multipliers[0], atol=atol)
    assert residual[0] < 1e-9
    lin = f.linearize(x, u)
    for got, expected in zip(functions["linearize"](*args), (lin.A, lin.B, lin.C, lin.D), strict=True):
        np.testing.assert_allclose(np.array(got), expected, atol=100 * atol)
    if "second" in functions:
        rng = np.random.default_rng(1)
        z, zeta = rng.standard_normal(f.nx), rng.standard_normal(len(f.multiplier_names))
        H = f.second_order(x, u, z, zeta=zeta)
        for got, expected in zip(functions["second"](*args, z, zeta), H, strict=True):
            np.testing.assert_allclose(np.array(got), expected, atol=1e4 * atol)


@pytest.mark.parametrize("make", [lambda: vioc.MidpointVI(vioc.models.load("cart_pole"), 0.01), cart_pole])
def test_exported_functions_are_the_map(make, tmp_path):
    f = make()
    x, u = point(f)
    functions = step_functions(f, second_order=True)
    compare(f, functions, x, u)
    path = save_functions(f, tmp_path / "cart.json", second_order=True)
    back = load_functions(path)
    compare(f, back.functions, x, u)
    assert back.header["state_names"] == list(f.state_names)
    assert back.header["dt"] == f.dt
    alone = ca.Function.deserialize(json.loads(path.read_text())["functions"]["step"])  # without vioc
    assert alone.name_in() == ["x", "u", "t", "dt", "parameters"]


def test_export_of_constraints(tmp_path):
    f = pendulum_on_rod()
    x = f.state_from_configurations({"x": 0.6, "y": -0.8}, {"x": 0.6, "y": -0.8})
    compare(f, step_functions(f, second_order=True), x, np.array([0.4]))


def test_export_refusals(tmp_path):
    for text in ("", "{}", '{"format": "vioc-functions-1", "functions": {"step": "jk"}}', "[1]"):
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(FileFormatError, match="not exported functions of a map"):
            load_functions(tmp_path / "bad.json")


# -- python-control -------------------------------------------------------------------------------


@pytest.mark.peer
@pytest.mark.filterwarnings("ignore")
def test_gains_equal_python_controls():
    control = pytest.importorskip("control")
    from vioc.control.interop.python_control import gain_system, map_arguments, regulator, state_space

    f = cart_pole()
    eq = (np.zeros(4), None)
    Q, R = np.diag([1.0, 2.0, 0.1, 0.3]), np.array([[0.5]])
    system = state_space(f, eq)
    K, _, poles = control.dlqr(system, Q, R)
    loop = dlqr(f, eq, Q, R)
    np.testing.assert_allclose(loop.K, np.asarray(K), rtol=1e-10)
    np.testing.assert_allclose(np.sort_complex(loop.poles), np.sort_complex(np.asarray(poles)), atol=1e-10)
    assert system.state_labels == ["x", "theta", "v_x", "v_theta"]
    assert system.dt == f.dt
    # through names, in another order
    order = [2, 0, 3, 1]
    shuffled = regulator(f, eq, np.asarray(K)[:, order], states=[system.state_labels[i] for i in order])
    np.testing.assert_allclose(shuffled.K, loop.K, rtol=1e-10)
    assert np.abs(shuffled.rollout([0, 0.1, 0, 0], 2000).x[-1]).max() < 1e-3
    V = shuffled.P - (f.linearize(*eq[:1]).A - f.linearize(*eq[:1]).B @ shuffled.K).T @ shuffled.P @ (
        f.linearize(*eq[:1]).A - f.linearize(*eq[:1]).B @ shuffled.K
    )
    np.testing.assert_allclose(V, np.eye(4) + shuffled.K.T @ shuffled.K, atol=1e-6)
    # closed in python-control
    closed = control.feedback(system, gain_system(loop), sign=1)
    np.testing.assert_allclose(np.sort_complex(closed.poles()), np.sort_complex(loop.poles), atol=1e-9)
    # and back as a map
    g = vioc.CasadiMap(**map_arguments(system))
    assert g.state_names == tuple(system.state_labels)
    for got, expected in zip(g.linearize(np.zeros(4)), f.linearize(np.zeros(4)), strict=True):
        np.testing.assert_array_equal(got, expected)
    named = state_space(f, eq, outputs=["theta"])
    np.testing.assert_array_equal(named.C, [[0, 1, 0, 0]])
    with pytest.raises(ValueError, match="dt"):
        map_arguments(control.ss([[1.0]], [[1.0]], [[1.0]], [[0.0]]))
    with pytest.raises(OptimizationError, match="largest pole"):
        regulator(f, eq, -loop.K)
    with pytest.raises(ValueError, match="unknown 'phi'"):
        regulator(f, eq, loop.K, states=["x", "phi", "v.x", "v.theta"])
    with pytest.raises(ValueError, match="LTV"):
        state_space(f, f.rollout(np.zeros(4), steps=2))


# -- Crocoddyl ------------------------------------------------------------------------------------


@pytest.fixture
def crocoddyl():
    return pytest.importorskip("crocoddyl")


@pytest.mark.peer
@pytest.mark.filterwarnings("ignore")
def test_action_model_derivatives(crocoddyl):
    from vioc.control.interop.crocoddyl import ActionModel

    f = cart_pole(dt=0.05)
    reference = {"theta": np.linspace(0, 1, 11)}
    cost = quadratic(f, Q={"theta": 2.0, "x": 1.0}, R={"force": 0.3}, Qf=1.0, reference=reference)
    x, u = np.array([0.1, 0.5, -0.2, 0.3]), np.array([0.7])
    for k in (3, 10):
        model = ActionModel(f, cost, 10, k)
        data = model.createData()
        args = (x, u) if k < 10 else (x,)
        model.calc(data, *args)
        model.calcDiff(data, *args)
        e = x - [0, k / 10, 0, 0]
        if k == 3:
            expected = 0.05 * (e[1] ** 2 + 0.5 * e[0] ** 2 + 0.15 * u[0] ** 2)
            np.testing.assert_allclose(data.xnext, f.step(x, u))
            np.testing.assert_allclose(data.Fx, f.linearize(x, u).A)
            np.testing.assert_allclose(data.Lx, 0.05 * np.array([e[0], 2 * e[1], 0, 0]), atol=1e-14)
            np.testing.assert_allclose(data.Luu, [[0.05 * 0.3]])
        else:
            expected = 0.5 * e @ e
            np.testing.assert_allclose(data.Lxx, np.eye(4))
        assert data.cost == pytest.approx(expected, rel=1e-12)


@pytest.mark.peer
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_fddp_finds_the_cost_that_vioc_finds(crocoddyl):
    from vioc.control.interop.crocoddyl import shooting_problem, trajectory

    f = vioc.MidpointVI(vioc.models.load("cart_pole"), 0.01)
    x0, goal, N = f.initial_state({"theta": np.pi}), f.initial_state(), 200
    cost = quadratic(
        f,
        Q={"x": 0.1, "theta": 0.1, "v.x": 0.01, "v.theta": 0.01},
        R={"force": 0.01},
        Qf={"x": 1e3, "theta": 1e3, "v.x": 1e2, "v.theta": 1e2},
    )
    best = optimize(f, cost, (straight_line(x0, goal, N), np.zeros((N, 1))))
    solver = crocoddyl.SolverFDDP(shooting_problem(f, cost, x0, N))
    solver.th_stop = 1e-10
    assert solver.solve([x0] * (N + 1), [np.zeros(1)] * N, 300, False, 1e-9)
    assert solver.cost == pytest.approx(best.cost, abs=1e-6)
    again = trajectory(f, solver)
    assert cost.value(again) == pytest.approx(best.cost, abs=1e-6)


@pytest.mark.peer
@pytest.mark.filterwarnings("ignore")
def test_wrong_arithmetic_is_noticed(crocoddyl):
    from vioc.control.interop import crocoddyl as bridge

    f = midpoint_pendulum()
    cost = quadratic(f, Q=1.0, R=1.0)
    problem = bridge.shooting_problem(f, cost, [0.3, 0.0], 5)
    with pytest.raises(RuntimeError, match="its Pinocchio is not the one"):
        bridge._check(problem, f, quadratic(f, Q=2.0, R=1.0), np.array([0.3, 0.0]), 5)
    with pytest.raises(ValueError, match="another map|other states"):
        bridge.shooting_problem(cart_pole(), cost, np.zeros(4), 5)
