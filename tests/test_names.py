"""A name means one thing: an arm whose inputs have the names of its joints, as ``read_urdf(inputs="all")``
makes them, wherever names are taken."""

import casadi as ca
import numpy as np
import pytest

import vioc
from vioc import Gravity, JointForce, P, System, read_text, ry, tx, tz, write_text
from vioc.control import (
    analysis,
    controllability,
    dlqr,
    dmoc,
    equilibrium,
    feedback,
    frequency_response,
    optimize,
    quadratic,
    region_of_attraction,
)

# inside: the rule of names is one function, which is tried on lists of names
from vioc.dynamics.starts import start
from vioc.errors import ModelError
from vioc.names import by_name, by_quantity, meaning, quantity_name

JOINTS, TORQUES = ("shoulder", "elbow"), ("u.shoulder", "u.elbow")
URDF = """<robot name="arm"><link name="base"/>{}{}</robot>"""
LINK = """
<link name="{name}"><inertial><origin xyz="0 0 -0.25"/><mass value="{mass}"/>
  <inertia ixx="0.02" iyy="0.02" izz="0.001" ixy="0" ixz="0" iyz="0"/></inertial></link>
<joint name="{joint}" type="revolute"><parent link="{parent}"/><child link="{name}"/>
  <origin xyz="0 0 {z}"/><axis xyz="0 1 0"/>
  <limit lower="-1" upper="1" effort="50" velocity="5"/></joint>
"""


@pytest.fixture(scope="module")
def arm():
    text = URDF.format(
        LINK.format(name="upper", joint="shoulder", parent="base", mass=2.0, z=0.0),
        LINK.format(name="lower", joint="elbow", parent="upper", mass=1.0, z=-0.5),
    )
    return vioc.MidpointVI(vioc.read_urdf_text(text, inputs="all").system, 0.02)


@pytest.fixture(scope="module")
def slider():
    """One input with a name of its own, and one with that of a parameter."""
    cart = tx("x", name="cart", mass=1.0)[ry("theta")[tz(P("m", 0.5), name="pole", mass=0.3)]]
    return vioc.MidpointVI(
        System(cart, Gravity(0, 0, -9.81), JointForce("x", "force"), JointForce("theta", "m")), 0.02
    )


def gravity_torques(f, q):
    """dV/dq: what holds the arm at q."""
    s = f.symbols
    slope = ca.Function("dV", [s.x], [ca.jacobian(f.quantity("potential"), s.x[:2])])
    return slope(np.concatenate([q, [0, 0]])).full()[0]


# -- the rule ----------------------------------------------------------------------------------------


def test_the_full_name_is_the_quantity_and_a_short_one_needs_to_be_the_only_one(arm, slider):
    known = ("x", "p.x", "u.x", "u.force", "u.m", "param.m", "u.rho.s")
    assert meaning("x", known) == "x" and meaning("u.x", known) == "u.x"
    assert meaning("force", known) == "u.force" and meaning("rho.s", known) == "u.rho.s"
    with pytest.raises(ModelError, match="bounds: 'm' is short for 'u.m', 'param.m'; write the one"):
        meaning("m", known, "bounds")
    with pytest.raises(ModelError, match="unknown quantity 'forc'; did you mean 'u.force'"):
        meaning("forc", known)
    for name in ("x", "u.x"):  # of inputs alone the short name is the input's
        assert meaning(name, ("x", "y"), prefix="u.") == "x"
    assert quantity_name(slider, "force") == "u.force"
    with pytest.raises(ModelError, match="Q: 'force' is short for 'd.force', 'u.force'"):
        quantity_name(slider, "force", "Q", more=("d.force",))  # an error's entry of that name
    with pytest.raises(ModelError, match="'m' is short for 'u.m', 'param.m'"):
        slider.quantity("m")
    for take in (by_name, lambda v, k, w: by_quantity(slider, v, w)):
        with pytest.raises(ModelError, match="Q: 'force' and 'u.force' are the same quantity"):
            take({"force": 1, "u.force": 2}, known, "Q")
    assert set(arm.state_names) | set(TORQUES) | {"energy", "v.elbow"} <= set(arm.quantities.names())
    for f in (arm, slider, vioc.Composition(slider), feedback.DelayedMap(slider)):
        for name in f.quantities.names():
            assert f.quantity(name).numel() == 1, name
    late = feedback.DelayedMap(slider)
    with pytest.raises(ModelError, match="'force' is short for 'pending.force', 'u.force'"):
        late.quantity("force")


def test_quantities_of_a_run_and_inputs_by_name(arm, slider):
    U = arm.inputs(3, {"u.shoulder": 1.0, "elbow": [1, 2, 3]})
    np.testing.assert_array_equal(U, arm.inputs(3, shoulder=1.0, elbow=[1, 2, 3]))
    run = arm.rollout(arm.initial_state(shoulder=0.3), U)
    np.testing.assert_array_equal(run["shoulder"], run.x[:, 0])
    np.testing.assert_array_equal(run["u.shoulder"], run.u[:, 0])
    np.testing.assert_array_equal(arm.input({"u.elbow": 2.0}), arm.input(elbow=2.0))
    np.testing.assert_array_equal(arm.input(elbow=2.0), [0, 2])
    np.testing.assert_array_equal(arm.state(elbow=2.0), [0, 2, 0, 0])
    with pytest.raises(ModelError, match=r"state: unknown name 'u.elbow'"):
        arm.state({"u.elbow": 2.0})
    push = slider.rollout(slider.initial_state(), slider.inputs(3, force=1.0))
    np.testing.assert_array_equal(push["force"], push["u.force"])
    batch = slider.rollouts(np.stack([slider.initial_state()] * 2), push.u)
    np.testing.assert_array_equal(batch["force"], batch["u.force"])


def test_starts_of_the_command_line(arm, slider):
    found = start(arm, [("shoulder", 0.5), ("u.shoulder", 3.0), ("v.elbow", 1.0)])
    np.testing.assert_array_equal(found.u, [3.0, 0.0])
    assert found.x[0] == 0.5
    assert start(slider, [("force", 2.0)]).u[0] == 2.0
    with pytest.raises(ModelError, match="--set: 'u.force' is given twice"):
        start(slider, [("force", 2.0), ("u.force", 1.0)])


# -- equilibria ----------------------------------------------------------------------------------------


def test_what_is_held_are_the_joints_not_their_torques(arm):
    held = equilibrium(arm, shoulder=0.5, elbow=0.8)
    np.testing.assert_allclose(held.x, [0.5, 0.8, 0, 0], atol=1e-15)
    np.testing.assert_allclose(held.u, gravity_torques(arm, held.x[:2]), rtol=1e-9)
    assert "shoulder = 0.5" in repr(held) and "u.shoulder = " in repr(held)
    torques = dict(zip(TORQUES, held.u, strict=True))
    back = equilibrium(arm, torques, guess={"shoulder": 0.52, "elbow": 0.78})
    np.testing.assert_allclose(back.x[:2], [0.5, 0.8], atol=1e-8)
    np.testing.assert_array_equal(back.u, held.u)
    mixed = equilibrium(arm, {"shoulder": 0.5, "u.elbow": held.u[1]}, guess={"elbow": 0.7})
    np.testing.assert_allclose(mixed.x[:2], [0.5, 0.8], atol=1e-8)
    assert mixed.u[1] == held.u[1]


@pytest.mark.parametrize("guess", [{"shoulder": 0.5, "elbow": 0.8}, np.array([0.5, 0.8, 0.0, 0.0])])
def test_free_torques_leave_the_joints_where_they_are(arm, guess):
    held = equilibrium(arm, guess=guess, free=TORQUES)
    assert held.x[0] == 0.5 and held.x[1] == 0.8
    np.testing.assert_allclose(held.u, gravity_torques(arm, [0.5, 0.8]), rtol=1e-9)
    joints = equilibrium(arm, guess={"shoulder": 0.1, "elbow": 0.2}, free=JOINTS)
    np.testing.assert_array_equal(joints.u, [0, 0])
    np.testing.assert_allclose(joints.x[:2], 0, atol=1e-9)
    fixed = equilibrium(arm, guess=(joints.x, [0.1, 0.2]), fixed=TORQUES)
    np.testing.assert_array_equal(fixed.u, [0.1, 0.2])
    hangs = equilibrium(arm, guess={"shoulder": 0.5}, free=["elbow", "u.shoulder"])
    assert hangs.x[0] == 0.5 and hangs.u[1] == 0.0
    assert hangs.x[1] == pytest.approx(-0.5, abs=1e-9)


def test_maximal_coordinates_tell_them_apart_too(arm):
    f = vioc.MaximalVI(arm.system, 0.02)
    held = equilibrium(f, shoulder=0.5, elbow=0.8, guess=f.initial_state({"shoulder": 0.5, "elbow": 0.8}))
    np.testing.assert_allclose(held.u, gravity_torques(arm, [0.5, 0.8]), rtol=1e-6)
    assert held["shoulder"] == pytest.approx(0.5, abs=1e-12)


# -- weights, bounds, ends -----------------------------------------------------------------------------


def test_weights_of_joints_and_of_torques(arm, slider):
    weights = {"shoulder": 3.0, "u.elbow": 2.0}
    cost = quadratic(arm, Q={"shoulder": 3.0}, R={"shoulder": 1.0, "u.elbow": 2.0}, goal={"shoulder": 0.2})
    run = arm.rollout(arm.initial_state(shoulder=0.3), [[0.5, 1.0]])
    assert cost.value(run) == pytest.approx(0.02 * 0.5 * (3 * 0.01 + 0.25 + 2 * 1.0))
    assert quadratic(arm, Q=weights).value(run) == pytest.approx(0.02 * 0.5 * (3 * 0.09 + 2.0))
    short, full = (quadratic(slider, Q={n: 3.0}, goal={m: 0.5}) for n, m in (("force", "u.force"),) * 2)
    push = slider.rollout(slider.initial_state(), slider.inputs(4, force=1.0))
    assert short.value(push) == full.value(push) == pytest.approx(0.08 * 1.5 * 0.25)
    upright = equilibrium(arm, shoulder=0.5, elbow=0.8)
    loops = [
        dlqr(arm, upright, {"shoulder": 9.0, "p.elbow": 1.0}, R)
        for R in ({"shoulder": 1.0, "elbow": 2.0}, {"u.elbow": 2.0, "u.shoulder": 1.0}, [1.0, 2.0])
    ]
    for loop in loops:
        np.testing.assert_array_equal(loop.K, loops[-1].K)
    np.testing.assert_array_equal(loops[0].Q, np.diag([9.0, 0, 0, 1.0]))


def test_bounds_and_ends(arm, slider):
    cost = quadratic(arm, R=0.1, Qf={"shoulder": 100.0, "elbow": 100.0}, goal={"shoulder": 0.3})
    x0, steps = arm.initial_state(), 5
    best = optimize(arm, cost, x0=x0, steps=steps, bounds={"u.shoulder": 0.1})
    shoulder, elbow = np.abs(best.trajectory.u).max(axis=0)
    assert shoulder == pytest.approx(0.1, abs=1e-7) and shoulder < elbow
    phase = dmoc.Phase(
        arm,
        4,
        initial=x0,
        bounds={"shoulder": 0.4, "u.shoulder": 9.0},
        final={"elbow": 0.1},
        rate={"elbow": 8.0},
    )
    assert phase.bounds == {"shoulder": 0.4, "u.shoulder": 9.0}
    assert phase.state_limits[1][1, 0] == 0.4 and (phase.input_limits[1][:, 0] == 9.0).all()
    assert np.isinf(phase.input_limits[1][:, 1]).all() and phase.rate_limits == {1: (-8.0, 8.0)}
    one, other = (dmoc.Phase(slider, 4, bounds={n: 2.0}) for n in ("force", "u.force"))
    assert one.bounds == other.bounds == {"u.force": 2.0}
    with pytest.raises(ModelError, match="bounds: 'm' is short for 'u.m', 'param.m'"):
        dmoc.Phase(slider, 4, bounds={"m": 1.0})
    pushed = quadratic(slider, R=0.1, Qf={"x": 100.0}, goal={"x": 0.2})
    start = slider.initial_state()
    runs = [
        optimize(slider, pushed, np.zeros((5, 2)), x0=start, bounds={n: 2.0}).trajectory
        for n in ("force", "u.force")
    ]
    np.testing.assert_array_equal(runs[0].u, runs[1].u)
    assert np.abs(runs[0].u[:, 0]).max() == pytest.approx(2.0, abs=1e-3)


def test_actuators_noise_and_sensors(arm):
    held = equilibrium(arm, shoulder=0.1, elbow=0.2)
    loop = dlqr(arm, held, 1.0, 1.0)
    closed = feedback.ClosedLoop(arm, loop, bounds={"u.shoulder": 1.0}, W_u={"elbow": 4.0})
    with pytest.raises(ModelError, match="names of inputs .*, got 'shoulder'; the input is 'u.shoulder'"):
        feedback.ClosedLoop(arm, loop, bounds={"shoulder": 1.0})  # the joint, as in bounds of optimizers
    low, high = closed._actuators()
    np.testing.assert_array_equal([low, high], [[-1, -np.inf], [1, np.inf]])
    np.testing.assert_array_equal(closed._noise()[1], np.diag([0.0, 2.0]))
    sensor = feedback.Measurement(arm, {"shoulder": 1e-4})
    assert sensor.names == ("shoulder",) and sensor(held.x) == [held.x[0]]
    with pytest.raises(ValueError, match="u.shoulder: a measurement is of the state"):
        feedback.Measurement(arm, "u.shoulder")
    spread = feedback.covariance(
        arm.rollout(held.x, held.u, steps=3), {"shoulder": 4.0}, W_u={"u.elbow": 0.0}
    )
    assert spread.std("shoulder")[0] == 2.0


def test_responses_and_reports(arm):
    held = equilibrium(arm, shoulder=0.1, elbow=0.2)
    all_pairs = frequency_response(arm, held, JOINTS, frequencies=[1.0])
    one = frequency_response(arm, held, "shoulder", inputs="u.elbow", frequencies=[1.0])
    np.testing.assert_array_equal(one.values[0, 0], all_pairs.values[0, :1, 1])
    for name in ("elbow", "u.elbow"):
        np.testing.assert_array_equal(all_pairs.of("shoulder", name), one.of())
    assert all_pairs.pair("elbow", "u.shoulder") == ("elbow", "shoulder")
    np.testing.assert_allclose(
        all_pairs.singular_values(input_scales={"u.elbow": 2.0, "shoulder": 3.0}),
        all_pairs.singular_values(input_scales=[3.0, 2.0]),
    )
    for inputs in ("elbow", "u.elbow"):
        assert controllability(arm, held, inputs=inputs).rank == 4
    assert analysis.observability(arm, held, "shoulder").rank == 4
    loop = dlqr(arm, held, 1.0, 1.0)
    region = region_of_attraction(loop, {"shoulder": 0.1}, samples=2, steps=5, goal={"shoulder": 1.0})
    assert np.ptp(region["shoulder"]) > 0 == np.ptp(region["elbow"])


def test_plots_name_what_they_show(arm, slider):
    import matplotlib.pyplot as plt

    push = slider.rollout(slider.initial_state(), slider.inputs(4, force=1.0))
    (axes,) = push.plot("force")
    assert axes.get_ylabel() == "u.force (N)"
    run = arm.rollout(arm.initial_state(), arm.inputs(4, shoulder=1.0))
    (joint,), (torque,) = run.plot("shoulder"), run.plot("u.shoulder")
    np.testing.assert_array_equal(joint.lines[0].get_ydata(), run.x[:, 0])
    np.testing.assert_array_equal(torque.lines[0].get_ydata()[:-1], run.u[:, 0])
    with pytest.raises(ModelError, match="'m' is short for"):
        push.plot("m")
    plt.close("all")


def test_punctuation_in_names(tmp_path):
    """What a name may not hold is refused, and what it may comes back from files and as a quantity."""
    for wrong in '"(). :\\\t\x07':
        with pytest.raises(ModelError, match="double quotes, round brackets"):
            tx(f"a{wrong}b")
    odd = "'[]{}<>`$%&*/,;#|?-"
    bodies = tx(f"x{odd}", mass=1.0)[ry(f"a{odd}")[tz(P(f"l{odd}", 0.5), name=f"tip{odd}", mass=0.3)]]
    system = System(bodies, Gravity(0, 0, -9.81), JointForce(f"x{odd}", f"f{odd}"))
    assert read_text(write_text(system)) == system
    f = vioc.MidpointVI(system, 0.01)
    run = f.rollout(f.initial_state({f"a{odd}": 0.3}), steps=3)
    for suffix in ("npz", "csv"):
        run.save(tmp_path / f"run.{suffix}")
        again = vioc.Trajectory.load(tmp_path / f"run.{suffix}", f)
        for name in (f"a{odd}", f"u.f{odd}", f"tip{odd}:z", f"param.l{odd}"):
            np.testing.assert_array_equal(again[name], run[name])
