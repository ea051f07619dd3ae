"""Neighbours: exported functions, python-control, ROS 2, Drake, Crocoddyl."""

import csv
import json

import casadi as ca
import numpy as np
import pytest
from support.control_maps import cart_pole, midpoint_pendulum

import vioc
from vioc.control import dlqr, optimize, quadratic, straight_line
from vioc.errors import FileFormatError, OptimizationError
from vioc.interop import (
    joint_trajectory,
    load_functions,
    save_functions,
    save_joint_trajectory,
    step_functions,
)


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


def test_maps_without_such_functions_are_told():
    ball = vioc.System(
        vioc.tz("z", name="ball", mass=1.0), vioc.Contact.point("ball"), vioc.JointForce("z", "push")
    )
    touching = vioc.ContactVI(ball, 0.01)
    assert touching.residual is not None
    with pytest.raises(ValueError, match="ContactVI finds contacts as it goes, .* export the ModeVI of each"):
        step_functions(touching)
    modes = vioc.ModeVI(ball, 0.01, held=["contact-1"])
    x = modes.initial_state()
    x_next, _, left = step_functions(modes)["step"](x, 0.3, 0.0, 0.01, [])
    assert abs(np.array(x_next).ravel() - modes.step(x, [0.3])).max() < 1e-14 and float(left) < 1e-12
    for f, told in (
        (vioc.MaximalVI(ball, 0.01), "ndx = 12, nx = 13"),
        (vioc.GalerkinVI(vioc.models.load("pendulum"), 0.01), "no residual"),
    ):
        with pytest.raises(ValueError, match=told):
            step_functions(f)


# -- python-control -------------------------------------------------------------------------------


@pytest.mark.peer
@pytest.mark.filterwarnings("ignore")
def test_gains_equal_python_controls():
    control = pytest.importorskip("control")
    from vioc.interop.python_control import gain_system, map_arguments, regulator, state_space

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


@pytest.mark.peer
@pytest.mark.filterwarnings("ignore")
def test_a_map_is_a_nonlinear_system_of_python_control():
    control = pytest.importorskip("control")
    # inside: two wrappers are made by themselves, which the exports make within whole problems
    from vioc.interop.python_control import nonlinear_system, state_space

    f = vioc.MidpointVI(vioc.models.load("cart_pole"), dt=0.01)
    x0, U = f.state(theta=0.3), np.sin(np.arange(51.0))[:, None]
    system = nonlinear_system(f, ["theta", "energy"])
    got = control.input_output_response(system, f.dt * np.arange(51), U.T, x0)
    run = f.rollout(x0, U[:50])
    np.testing.assert_allclose(got.states.T, run.x, atol=1e-10)
    np.testing.assert_allclose(got.outputs, [run["theta"], run.energy], atol=1e-10)
    assert system.input_labels == ["force"] and system.state_labels[-1] == "p_theta" and system.dt == f.dt
    # its linearization, by their differences, is ours
    there = nonlinear_system(f).linearize(f.state(), [0.0])
    np.testing.assert_allclose(there.A, state_space(f, (f.state(), None)).A, atol=1e-5)
    with pytest.raises(ValueError, match="quantities of the state"):
        nonlinear_system(f, ["u.force"])


# -- ROS 2 ----------------------------------------------------------------------------------------


def moving_cart():
    f = vioc.MidpointVI(vioc.models.load("cart_pole"), dt=0.01)
    return f.rollout(f.state(theta=0.3), np.arange(120.0)[:, None])


def test_a_joint_trajectory_is_plain_data(tmp_path):
    run = moving_cart()
    efforts = {"theta": "force", "x": "force"}
    message = joint_trajectory(run, ["theta", "x"], efforts=efforts, frame="rail")
    assert json.loads(json.dumps(message)) == message and message["joint_names"] == ["theta", "x"]
    point = message["points"][101]
    assert point["time_from_start"] == {"sec": 1, "nanosec": 10_000_000}
    assert point["positions"] == [run["theta"][101], run["x"][101]] and point["effort"] == [101.0, 101.0]
    assert point["velocities"] == [run["v.theta"][101], run["v.x"][101]]
    assert message["points"][-1]["effort"] == [119.0, 119.0]  # held to the end
    with save_joint_trajectory(message, tmp_path / "run.csv").open() as file:
        table = list(csv.reader(file))
    assert table[0] == ["time", *(f"{a}/{b}" for a in ("positions", "velocities", "effort") for b in efforts)]
    assert table[102][0] == "1010000000" and float(table[102][1]) == run["theta"][101]
    for joints in ([], ["x", "x"]):
        with pytest.raises(ValueError, match="different joints"):
            joint_trajectory(run, joints)
    with pytest.raises(ValueError, match="differs in x"):
        joint_trajectory(run, ["theta", "x"], efforts={"theta": "force"})
    with pytest.raises(ValueError, match="thata"):
        joint_trajectory(run, ["thata"])


@pytest.mark.peer
@pytest.mark.filterwarnings("ignore")
def test_a_joint_trajectory_is_a_message_of_ros():
    stores = pytest.importorskip("rosbags.typesys")
    store = stores.get_typestore(stores.Stores.ROS2_HUMBLE)

    def made(kind, **fields):
        return store.types[kind](**fields)

    run = moving_cart()
    message = joint_trajectory(run, ["theta", "x"])
    stamp = made("builtin_interfaces/msg/Time", **message["header"]["stamp"])
    header = made("std_msgs/msg/Header", stamp=stamp, frame_id="rail")
    points = []
    for point in message["points"]:
        arrays = {k: np.array(v, float) for k, v in point.items() if k != "time_from_start"}
        since = made("builtin_interfaces/msg/Duration", **point["time_from_start"])
        points.append(made("trajectory_msgs/msg/JointTrajectoryPoint", **arrays, time_from_start=since))
    kind = "trajectory_msgs/msg/JointTrajectory"
    whole = made(kind, header=header, joint_names=message["joint_names"], points=points)
    back = store.deserialize_cdr(store.serialize_cdr(whole, kind), kind)
    assert back.joint_names == ["theta", "x"] and back.points[101].time_from_start.nanosec == 10_000_000
    np.testing.assert_array_equal([p.positions[0] for p in back.points], run["theta"])


# -- Drake ----------------------------------------------------------------------------------------


@pytest.mark.peer
@pytest.mark.filterwarnings("ignore")
def test_a_map_is_a_system_of_drake():
    drake = pytest.importorskip("pydrake.all")
    from vioc.interop.drake import MapSystem

    f = vioc.MidpointVI(vioc.models.load("cart_pole"), dt=0.01)
    loop, x0 = dlqr(f, (f.state(), None), 1.0, 1.0), f.state(theta=0.2)
    builder = drake.DiagramBuilder()
    plant = builder.AddSystem(MapSystem(f, x0))
    gain = builder.AddSystem(drake.MatrixGain(-loop.K))
    builder.Connect(plant.GetOutputPort("state"), gain.get_input_port())
    builder.Connect(gain.get_output_port(), plant.GetInputPort("input"))
    log = drake.LogVectorOutput(plant.GetOutputPort("state"), builder, f.dt)
    simulator = drake.Simulator(builder.Build())
    simulator.AdvanceTo(100 * f.dt)
    found = log.FindLog(simulator.get_context()).data().T
    np.testing.assert_allclose(found, loop.rollout(x0, 100).x[: len(found)], atol=1e-9)
    assert len(found) == 101
    with pytest.raises(ValueError, match="start"):
        MapSystem(f, np.zeros(3))


# -- Crocoddyl ------------------------------------------------------------------------------------


@pytest.fixture
def crocoddyl():
    return pytest.importorskip("crocoddyl")


@pytest.mark.peer
@pytest.mark.filterwarnings("ignore")
def test_action_model_derivatives(crocoddyl):
    from vioc.interop.crocoddyl import ActionModel

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
@pytest.mark.filterwarnings("ignore")
def test_limits_are_the_models_constraints(crocoddyl):
    """g and h, what depends on a constraint's force included, against differences."""
    from vioc.control.dmoc import PathConstraint
    from vioc.interop.crocoddyl import shooting_problem

    bob = vioc.tx("x")[vioc.tz("z", name="bob", mass=vioc.Mass(1.0))]
    rod = vioc.DistanceConstraint("world", "bob", 1.0, name="rod")
    f = vioc.MidpointVI(
        vioc.System(bob, vioc.Gravity(0, 0, -9.81), rod, vioc.JointForce("x", "push")), dt=0.05
    )
    x0 = f.initial_state({"x": 0.6, "z": -0.8})
    pace = PathConstraint("pace", f.quantity("x") + f.quantity("u.push"), 0.5, 0.5)
    problem = shooting_problem(
        f,
        quadratic(f, Q=1.0, R=1.0),
        x0,
        4,
        bounds={"push": 2.0, "z": (None, -0.1), "force.rod": 30.0},
        constraints=pace,
        final={"x": 0.2},
    )
    models = [*problem.runningModels, problem.terminalModel]
    assert [(m.ng, m.nh) for m in models] == [(2, 1), (3, 1), (3, 1), (3, 1), (1, 1)]
    assert models[1].u_lb == [-2.0] and models[1].u_ub == [2.0] and models[-1].ng_T == models[-1].nh_T == 1
    run = f.rollout(x0, np.full((2, 1), 0.3))
    x, u = run.x[1], np.array([0.4])

    def rows(model, x, *u):
        data = model.createData()
        model.calc(data, x, *u)
        return np.r_[data.g, data.h]

    step = f.rollout(x, u[None])
    expected = [u[0], x[1], step["force.rod"][0], x[0] + u[0] - 0.5]
    np.testing.assert_allclose(np.sort(rows(models[1], x, u)), np.sort(expected), atol=1e-9)
    np.testing.assert_allclose(rows(models[-1], x), [x[1], x[0] - 0.2])
    for model, at in ((models[1], np.r_[x, u]), (models[-1], x)):
        data, split = model.createData(), lambda z: (z[: f.nx], *([z[f.nx :]] if len(z) > f.nx else []))
        model.calc(data, *split(at))
        model.calcDiff(data, *split(at))
        parts = [(data.Gx, data.Gu), (data.Hx, data.Hu)]  # single columns come as vectors
        J = np.vstack([np.hstack([np.reshape(B, (m, -1)) for B in row])[:, : len(at)]
                       for row, m in zip(parts, (model.ng, model.nh), strict=True)])  # fmt: skip
        size = 1e-5  # error of central differences about size^2, and rounding 1e-11 / size
        near = [
            (rows(model, *split(at + e)) - rows(model, *split(at - e))) / (2 * size)
            for e in size * np.eye(len(at))
        ]
        np.testing.assert_allclose(J, np.transpose(near), atol=1e-5 * (1 + np.abs(J).max()))


@pytest.mark.peer
@pytest.mark.filterwarnings("ignore")
def test_solvers_of_constrained_problems_find_what_vioc_finds(crocoddyl):
    """mim_solvers' SQP with limits and an end; Crocoddyl's Box solver with bounds of inputs alone."""
    from vioc.interop.crocoddyl import shooting_problem

    f, N = cart_pole(dt=0.05), 20
    cost = quadratic(f, Q=0.1, R={"force": 1.0}, Qf=10.0)
    x0 = f.initial_state({"theta": 0.3})
    start = [x0] * (N + 1), [np.zeros(1)] * N
    box = {"bounds": {"force": 1.5}}
    best = optimize(f, cost, x0=x0, steps=N, **box)
    solver = crocoddyl.SolverBoxFDDP(shooting_problem(f, cost, x0, N, **box))
    solver.th_stop = 1e-9
    assert solver.solve(*start, 100, False, 1e-9)
    assert np.abs(solver.us).max() == pytest.approx(1.5) == np.abs(best.trajectory["u.force"]).max()
    assert solver.cost == pytest.approx(best.cost, rel=1e-6)

    mim = pytest.importorskip("mim_solvers")
    limits = {"bounds": {"force": 10.0, "x": (-0.05, 0.42)}, "final": {"x": 0.1, "theta": 0.0}}
    best = optimize(f, cost, x0=x0, steps=N, **limits)
    sqp = mim.SolverCSQP(shooting_problem(f, cost, x0, N, **limits, equations="g"))
    sqp.termination_tolerance, sqp.eps_abs, sqp.eps_rel, sqp.max_qp_iters = 1e-6, 1e-9, 0.0, 20000
    assert sqp.solve(*start, 100, False)
    assert sqp.cost == pytest.approx(best.cost, rel=1e-4)
    np.testing.assert_allclose(np.array(sqp.xs), best.trajectory.x, atol=1e-3)


@pytest.mark.peer
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_fddp_finds_the_cost_that_vioc_finds(crocoddyl):
    from vioc.interop.crocoddyl import shooting_problem, trajectory

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
    from vioc.interop import crocoddyl as bridge

    f = midpoint_pendulum()
    cost = quadratic(f, Q=1.0, R=1.0)
    problem = bridge.shooting_problem(f, cost, [0.3, 0.0], 5)
    with pytest.raises(RuntimeError, match="its Pinocchio is not the one"):
        bridge._check(problem, f, quadratic(f, Q=2.0, R=1.0), np.array([0.3, 0.0]), 5)
    with pytest.raises(ValueError, match="another map|other states"):
        bridge.shooting_problem(cart_pole(), cost, np.zeros(4), 5)
