"""`GroupVI`: free rotations without charts (docs/maths/groups.md)."""

import itertools
import pickle
from functools import cache
from itertools import pairwise

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.spatial.transform import Rotation
from scipy.special import ellipj
from support.free_bodies import INERTIA, body, branched, made, pair, pair_start, quadrotor, spatial_momentum

import vioc
from vioc import GroupVI, charts
from vioc.control import equilibrium, optimize, quadratic

# inside: orders of angles that have names of their own, and poses that pictures of a run are made of
from vioc.dynamics.charts import CHARTS
from vioc.errors import ConstraintError
from vioc.maps import check_map
from vioc.viz.poses import trajectory_poses


def test_torque_free_body_against_jacobi_functions():
    f, (a, b, c) = made(body, 1), INERTIA
    w0 = np.array([0.6, 0.0, 0.9])  # L^2 > 2 E b: w3 = w30 dn, w1 = w10 cn, w2 = -.. sn
    energy, size = INERTIA @ w0**2, (INERTIA * w0) @ (INERTIA * w0)
    assert size > energy * b
    rate = np.sqrt((c - b) * (size - energy * a) / (a * b * c))
    m = (b - a) * (energy * c - size) / ((c - b) * (size - energy * a))
    errors = []
    for h in (0.04, 0.02, 0.01):
        run = f.with_dt(h).rollout(f.initial_state(v={"b-wx": 0.6, "b-wz": 0.9}), steps=round(8 / h))
        sn, cn, dn, _ = ellipj(rate * run.t, m)
        w2 = np.sqrt((energy * c - size) / (b * (c - b))) * sn
        exact = np.stack([w0[0] * cn, w2, w0[2] * dn], axis=1)
        found = run.x[:, -3:] / INERTIA
        exact[:, 1] *= np.sign(found[1, 1]) * np.sign(exact[1, 1])
        errors.append(np.abs(found - exact).max())
        L = spatial_momentum(f, run.x)
        assert np.abs(L - L[0]).max() < 1e-12 * np.linalg.norm(L[0])
        assert np.abs(np.linalg.norm(run.x[:, 3:7], axis=1) - 1).max() < 1e-14
    slopes = np.log2(np.divide(errors[:-1], errors[1:]))
    assert np.abs(slopes - 2).max() < 0.1


def test_lagrange_top_nutates_as_quadrature_says():
    """Period of nutation, 2 int dz / sqrt(P(z)), z = cos of the axis's angle to the vertical."""
    m, g, arm, across, along = 1.0, 9.81, 0.5, 0.5, 0.2
    top = vioc.System(
        vioc.spherical(
            "t", frame="top", mass=vioc.Mass(m, (across - m * arm**2,) * 2 + (along,), (0, 0, arm))
        ),
        vioc.Gravity(0, 0, -g),
    )
    spin, tilt = 20.0, 1.0
    f = GroupVI(top, 1e-3)
    x = f.initial_state({"t-ry": tilt}, {"t-wz": spin})
    run = f.rollout(x, steps=4000)
    z = 1 - 2 * (run["t-qx"] ** 2 + run["t-qy"] ** 2)
    l3, z0 = along * spin, np.cos(tilt)

    def square(z):  # (dz/dt)^2 of a start at rest but for the spin: the momentum about the vertical is l3 z0
        return 2 * m * g * arm / across * (z0 - z) * (1 - z * z) - (l3 * (z0 - z) / across) ** 2

    low = brentq(lambda z: square(z) / (z0 - z), -1 + 1e-12, z0 - 1e-9)
    mid, half = (z0 + low) / 2, (z0 - low) / 2
    period = (
        2 * quad(lambda a: half * np.sin(a) / np.sqrt(square(mid - half * np.cos(a))), 1e-9, np.pi - 1e-9)[0]
    )
    turns = np.flatnonzero((z[1:-1] >= z[:-2]) & (z[1:-1] > z[2:])) + 1
    parabola = [k + 0.5 * (z[k - 1] - z[k + 1]) / (z[k - 1] - 2 * z[k] + z[k + 1]) for k in turns]
    found = np.polyfit(np.arange(len(turns)), parabola, 1)[0] * f.dt
    assert abs(found / period - 1) < 1e-4
    assert abs(z.min() - low) < 1e-4
    s, pi = run.x[:, :4], run.x[:, 4:]
    vertical = Rotation.from_quat(np.roll(s, -1, axis=1)).apply(pi)[:, 2]
    assert np.abs(vertical - vertical[0]).max() < 1e-12 * np.linalg.norm(pi[0])
    assert np.abs(pi[:, 2] - pi[0, 2]).max() < 1e-12 * abs(pi[0, 2])
    assert np.ptp(run.energy) < 1e-4 * abs(run.energy[0])


@pytest.mark.slow
def test_keeps_the_protocol():
    f = made(branched, 1)
    rng = np.random.default_rng(0)
    x = f.retract(f.initial_state(), 0.3 * rng.standard_normal(f.ndx))
    check_map(f, x, np.array([0.4]))


@cache
def undamped_branch():
    return GroupVI(branched(damping=0.0), 0.01)


@cache
def charted_branch():
    return vioc.MidpointVI(branched(), 0.01)


def test_symplectic():
    f = undamped_branch()
    rng = np.random.default_rng(1)
    x = f.retract(f.initial_state(), 0.5 * rng.standard_normal(f.ndx))
    n = f.nd
    A = f.linearize(x, np.zeros(f.nu)).A

    def form(x):  # d(theta) in left-trivialised errors: dpi ^ phi - pi . [phi, phi]
        J = np.zeros((2 * n, 2 * n))
        J[:n, n:], J[n:, :n] = np.eye(n), -np.eye(n)
        for i in range(f.nr, n, 3):
            a, b, c = x[f.nq + i : f.nq + i + 3]
            J[i : i + 3, i : i + 3] = -np.array([[0, -c, b], [c, 0, -a], [-b, a, 0]])
        return J

    assert np.abs(A.T @ form(f.step(x)) @ A - form(x)).max() < 1e-9


@pytest.mark.parametrize("order", [4, 6])
def test_compositions_have_their_order_without_charts(order):
    """A tree that tumbles, with a motor: slopes between three steps; momentum of a body as it was."""
    ends = []
    built = vioc.Composition(undamped_branch(), order).with_dt(0.02)
    for h in (0.02, 0.01, 0.005):
        f = built.with_dt(h)
        x0 = f.initial_state(v={"trunk-wx": 2.0, "trunk-wy": 0.3, "wrist-wz": 1.0})
        ends.append(f.rollout(x0, np.tile([0.2], (round(0.2 / h), 1))).x[-1])
    gaps = [np.linalg.norm(f.difference(a, b)) for a, b in pairwise(ends)]
    assert np.log2(gaps[0] / gaps[1]) == pytest.approx(order, abs=0.3)
    alone = vioc.Composition(made(body, 1), order).with_dt(0.05)
    run = alone.rollout(alone.initial_state(v={"b-wy": 3.0, "b-wx": 0.2}), steps=400)
    momentum = spatial_momentum(alone.inner, run.x)
    assert np.abs(momentum - momentum[0]).max() < 400 * len(alone.coefficients) * 4e-16 * 6.0


def test_compositions_keep_the_protocol():
    limb = vioc.tz(-0.5)[vioc.ry("a")[vioc.tz(-0.3, mass=1.2)]]
    joint = vioc.spherical("t", mass=vioc.Mass(1.0, (0.1, 0.2, 0.15)))
    terms = vioc.Gravity(0, 0, -9.81), vioc.JointForce("a", "torque"), vioc.JointDamping("a", 0.1)
    f = vioc.Composition(GroupVI(vioc.System(joint[limb], *terms), 0.01), 4)
    x = f.retract(f.initial_state(), 0.3 * np.random.default_rng(0).standard_normal(f.ndx))
    check_map(f, x, np.array([0.4]))


def test_forces_act_alike_at_both_ends():
    """With momenta turned round, and the same inputs, a run goes back to its start."""
    f = made(quadrotor, 1)
    back = np.repeat([1.0, -1.0], [f.nq, f.nd])
    x = f.retract(f.initial_state(), np.random.default_rng(2).uniform(-1, 1, f.ndx))
    U = np.tile([300.0, 450.0, 500.0, 400.0], (20, 1))
    end = f.rollout(f.rollout(x, U).x[-1] * back, U).x[-1] * back
    assert np.abs(f.difference(x, end)).max() < 1e-11


def test_beside_charts_where_they_are_regular():
    system, errors = branched(), []
    rng = np.random.default_rng(2)
    q, v = rng.uniform(-0.4, 0.4, len(system.variables)), rng.uniform(-1, 1, len(system.variables))
    named = (dict(zip(system.variables, a, strict=True)) for a in (q, v))
    start = tuple(named)
    maps = made(branched, 1), charted_branch()
    for h in (0.01, 0.005):
        f, chart = (m.with_dt(h) for m in maps)
        U = np.full((round(0.3 / h), 1), 0.5)
        ours = f.rollout(f.initial_state(*start), U)
        theirs = chart.rollout(chart.initial_state(*start), U)
        apart = f.frame_positions(ours.x[-1]) - chart.frame_positions(theirs.x[-1])
        errors.append(np.abs(apart).max())
    assert errors[0] < 1e-3
    assert abs(np.log2(errors[0] / errors[1]) - 2) < 0.2


def test_velocities_of_frames_are_those_of_charts():
    """Of one state, so to rounding times the condition of M; behind turns of both kinds, and constrained."""
    limb = vioc.Mass(0.5, (0.01, 0.02, 0.015), (0.02, 0.01, -0.2))
    hand = vioc.spherical("wrist", frame="hand", mass=limb)[vioc.tz(-0.3, name="tip")]
    arm = vioc.tx(0.2)[vioc.ry("hip", name="thigh", mass=limb)[vioc.tz(-0.4)[hand]]]
    trunk = vioc.free("b", frame="trunk", mass=vioc.Mass(3.0, (0.1, 0.2, 0.3), (0.01, 0.02, 0.0)))[arm]
    q = {"b-rz": 0.4, "b-ry": -0.3, "b-rx": 0.5, "hip": 0.6, "wrist-rz": 0.3, "wrist-rx": -0.4, "b-z": 0.1}
    v = {"b-rz": 0.5, "b-x": 0.3, "b-rx": -0.4, "hip": -0.7, "wrist-ry": 0.6}
    bob = vioc.free("b", "xyz", frame="bob", mass=limb)[vioc.tz(0.5, name="top")]
    pinned = vioc.System(vioc.se3((0, 0, 0), name="pivot"), bob, *vioc.coincident("top", "pivot"))
    round_it = {"b-rx": 1.0, "b-ry": 0.5, "b-rz": 2.0, "b-x": -0.25, "b-y": 0.5}  # w x (0, 0, -1/2)
    for system, start in ((vioc.System(trunk), (q, v)), (pinned, ({"b-z": -0.5}, round_it))):
        charts = vioc.MidpointVI(system, 0.02)
        theirs = charts.rollout(charts.initial_state(*start), steps=1)
        for f in (GroupVI(system, 0.02), GroupVI(system, 0.02, stages=2, points="lobatto")):
            ours = f.rollout(f.initial_state(*start), steps=1)
            names = [n for n in charts.quantities.names() if n[:2] in ("v.", "w.", "vb", "wb") and ":" in n]
            assert len(names) == 12 * len(system.frame_names) and {*names} <= {*f.quantities.names()}
            for name in names:
                assert ours[name][0] == pytest.approx(theirs[name][0], abs=1e-11), name


def test_long_trees_are_solved_by_sweeps():
    """The step that they find fulfils the equations, to what rounding leaves of momenta of a few kg m^2/s."""
    mass = vioc.Mass(1.0, (0.02, 0.02, 0.01), (0, 0, -0.1))
    links = [e for i in range(5) for e in (vioc.spherical(f"q{i}", mass=mass), vioc.tz(-0.3))]
    damping = vioc.JointDamping("tip", 0.1)
    f = GroupVI(
        vioc.System(vioc.chain(*links, vioc.rx("tip", mass=mass)), vioc.Gravity(0, 0, -9.81), damping), 0.01
    )
    assert f.group.long
    rng = np.random.default_rng(3)
    start = f.initial_state(v=dict(zip(f.rates, rng.uniform(-2, 2, f.nd), strict=True)))
    run = f.rollout(start, steps=50)
    for k in range(50):
        left = f.residual(run.x[k], run.u[k], run.x[k + 1], [], run.t[k], f.dt, f.theta)
        assert np.abs(left).max() < 1e-11


def test_table_and_pickle(tmp_path):
    f = made(branched, 1)
    run = f.rollout(f.initial_state({"hip": 0.3}), steps=5)
    run.table().write(tmp_path / "run.csv")
    assert "trunk-qw" in (tmp_path / "run.csv").read_text()
    places, turned = trajectory_poses(run, np.arange(6))  # what pictures are made of
    charted = charted_branch()
    other = trajectory_poses(charted.rollout(charted.initial_state({"hip": 0.3}), steps=1), np.arange(1))
    assert np.abs(places[0] - other[0][0]).max() < 1e-14
    assert np.abs(turned[0] - other[1][0]).max() < 1e-14
    g = pickle.loads(pickle.dumps(f))
    assert (g.rollout(run.x[0], steps=5).x == run.x).all()


def test_constraints_are_kept_and_take_no_momentum():
    f = made(pair, 1)
    run = f.rollout(pair_start(f), steps=1500)
    assert np.abs(run["h.rod"]).max() < 1e-12
    p = run.x[:, f.nq :]
    linear, moments = p[:, :3] + p[:, 3:6], 0.0
    for i in range(2):
        s, pi = run.x[:, 6 + 4 * i : 10 + 4 * i], p[:, 6 + 3 * i : 9 + 3 * i]
        moments = moments + Rotation.from_quat(np.roll(s, -1, axis=1)).apply(pi)
        moments = moments + np.cross(run.x[:, 3 * i : 3 * i + 3], p[:, 3 * i : 3 * i + 3])
    for kept in (linear, moments):  # rounding of q x p, which grows with the way that the pair flies
        assert np.abs(kept - kept[0]).max() < 1e-12 * (1 + np.abs(run.x).max())
    assert np.abs(run["force.rod"][1:]).max() > 0.1
    assert np.ptp(run.energy) < 1e-3 * run.energy[0]


def test_a_pinned_body_is_a_spherical_joint():
    mass = vioc.Mass(1.0, (0.1, 0.2, 0.15))
    gravity = vioc.Gravity(0, 0, -9.81)
    tree = vioc.System(
        vioc.spherical("t", "xyz")[vioc.tz(-0.5)[vioc.tz(0.0, name="bob", mass=mass)]], gravity
    )
    pinned = vioc.System(
        vioc.se3((0, 0, 0), name="pivot"),
        vioc.free("b", "xyz", frame="bob", mass=mass)[vioc.tz(0.5, name="top")],
        gravity,
        *vioc.coincident("top", "pivot"),
    )
    errors = []
    maps = GroupVI(tree, 0.01), GroupVI(pinned, 0.01)
    for h in (0.01, 0.005):
        f, g = (m.with_dt(h) for m in maps)
        v = {"wx": 1.0, "wy": 0.5, "wz": 2.0}
        start = f.initial_state(v={f"t-{n}": e for n, e in v.items()})
        moving = {f"b-{n}": e for n, e in v.items()} | {"b-x": -0.25, "b-y": 0.5}  # w x (0, 0, -1/2)
        other = g.initial_state({"b-z": -0.5}, moving)
        ours, theirs = f.rollout(start, steps=round(1 / h)), g.rollout(other, steps=round(1 / h))
        errors.append(max(abs(ours[f"bob:{a}"][-1] - theirs[f"bob:{a}"][-1]) for a in "xyz"))
    assert errors[0] < 1e-3
    assert abs(np.log2(errors[0] / errors[1]) - 2) < 0.2


def test_a_loop_of_spherical_joints_beside_charts():
    mass = vioc.Mass(0.5, (0.01, 0.02, 0.015), (0, 0, -0.2))
    chain = [e for i in range(3) for e in (vioc.spherical(f"q{i}", "xyz", mass=mass), vioc.tz(-0.4))]
    free = vioc.System(vioc.chain(*chain, vioc.tz(0.0, name="tip")))
    q = {"q0-rx": 0.6, "q0-ry": 0.3, "q1-ry": -0.7, "q2-rx": -0.5}
    anchor = vioc.se3(tuple(vioc.Kinematics(free).position("tip", q)), name="anchor")
    gravity, pin = vioc.Gravity(0, 0, -9.81), vioc.coincident("tip", "anchor")
    loop = vioc.System(anchor, vioc.chain(*chain, vioc.tz(0.0, name="tip")), gravity, *pin, name="loop")
    errors = []
    maps = GroupVI(loop, 0.01), vioc.MidpointVI(loop, 0.01)
    for h in (0.01, 0.005):
        f, charted = (m.with_dt(h) for m in maps)
        run = f.rollout(f.initial_state(q), steps=round(0.4 / h))
        other = charted.rollout(charted.initial_state(q), steps=round(0.4 / h))
        apart = f.frame_positions(run.x[-1]) - charted.frame_positions(other.x[-1])
        errors.append(np.abs(apart).max())
        held = np.stack([run[f"h.{name}"] for name in f.multiplier_names])
        assert np.abs(held).max() < 1e-12
        forces = [(run[f"force.{n}"][-1], other[f"force.{n}"][-1]) for n in f.multiplier_names]
    assert errors[0] < 2e-3
    assert abs(np.log2(errors[0] / errors[1]) - 2) < 0.2
    assert np.abs(np.subtract(*np.transpose(forces))).max() < 0.02 * np.abs(forces).max()


@pytest.mark.slow
def test_constraints_keep_the_protocol():
    f = GroupVI(pair(), 0.01)
    check_map(f, f.rollout(pair_start(f), steps=10).x[-1], np.zeros(0))


def test_quadrotor_is_regulated_from_nose_up():
    f = made(quadrotor, 1).with_dt(0.02)
    hover = np.full(4, np.sqrt(9.81 / 4e-5))
    hover -= 0.25 / hover  # u sqrt(u^2 + 1)
    x = f.initial_state()
    assert np.abs(f.difference(x, f.step(x, hover))).max() < 1e-10
    regulator = vioc.control.dlqr(f, (x, hover), Q=np.ones(f.ndx), R=1e-4)
    start = f.retract(x, np.concatenate([[0.5, -0.5, 0.2, 1.5, 0.3, 0.5], np.zeros(6)]))  # nose up by 86 deg
    run = regulator.rollout(start, steps=500)
    assert np.abs(f.difference(x, run.x[-1])).max() < 1e-3


def test_quaternions_come_back_to_norm_one():
    f = made(body, 1)
    x = f.initial_state(v={"b-wx": 1.0})
    x[3:7] *= 1 + 1e-7
    norms = np.linalg.norm(f.rollout(x, steps=4).x[:, 3:7], axis=1)
    assert abs(norms[0] - 1) > 1e-8
    assert abs(norms[-1] - 1) < 1e-15


@pytest.mark.parametrize("order", [*CHARTS, "zxz", "xyx", "yzy"])
def test_angles_of_an_attitude_have_the_names_of_other_maps(order):
    """Angles and their rates, as of an integrator whose states they are, at random attitudes."""
    turn = dict(zip("xyz", (vioc.rx, vioc.ry, vioc.rz), strict=True))
    bus = turn[order[2]]("c", name="bus", mass=vioc.Mass(2.0, (0.5, 0.8, 1.1)))
    system = vioc.System(
        vioc.chain(vioc.tx("b-x"), vioc.tz("b-z"), turn[order[0]]("a"), turn[order[1]]("b"), bus)
    )
    f, g = vioc.MidpointVI(system, 0.01), GroupVI(system, 0.01)
    names, rng = charts(system)[0].variables, np.random.default_rng(4)
    assert set(names) | {f"v.{n}" for n in names} <= set(g.quantities.names())
    for _ in range(5):
        middle = rng.uniform(0.2, 2.9) if order[0] == order[2] else rng.uniform(-1.4, 1.4)
        angles = dict(zip(names, (rng.uniform(-3, 3), middle, rng.uniform(-3, 3)), strict=True))
        q, v = angles | {"b-x": 0.3}, {n: rng.uniform(-2, 2) for n in names} | {"b-z": 0.5}
        here, there = (m.rollout(m.initial_state(q, v), steps=1) for m in (g, f))
        for name in names:
            assert here[name][0] == pytest.approx(angles[name], abs=1e-12)
            for full in (name, f"v.{name}"):
                assert here[full][0] == pytest.approx(there[full][0], abs=1e-12)
                assert g.unit(full) == f.unit(full) == ("rad" if full == name else "rad/s")
    for name in ("b-x", "v.b-x", "p.b-x", "energy", "bus:z", "bus:rx", "v.bus:z", "w.bus:x"):
        assert g.unit(name) == f.unit(name) != ""
    spin = g.rates[-1]
    assert (g.unit(f"v.{spin}"), g.unit(f"p.{spin}"), g.unit(g.state_names[2])) == ("rad/s", "kg m^2/s", "")


def test_yaw_pitch_and_roll_of_a_floating_robot_are_those_of_maximal_coordinates():
    text = '<robot name="r"><link name="base"><inertial><mass value="2"/>'
    text += '<inertia ixx=".3" iyy=".4" izz=".5" ixy="0" ixz="0" iyz="0"/></inertial></link></robot>'
    robot = vioc.read_urdf_text(text, base="floating", gravity=(0, 0, 0))
    turned = {"base_yaw": 2.0, "base_pitch": -0.7, "base_roll": 0.4}
    v = {n: 0.3 + 0.1 * i for i, n in enumerate(turned)}
    maps = [kind(robot.system, 0.01) for kind in (GroupVI, vioc.MaximalVI, vioc.MidpointVI)]
    runs = [f.rollout(f.initial_state(turned, v), steps=20) for f in maps]
    for name in turned:
        assert runs[0][name][0] == pytest.approx(turned[name], abs=1e-12)
        for full, other in itertools.product((name, f"v.{name}"), runs[1:]):
            np.testing.assert_allclose(runs[0][full], other[full], atol=1e-3)  # of second order each
    held = equilibrium(maps[0], turned)
    assert held["base_yaw"] == pytest.approx(2.0) and held["base_roll"] == pytest.approx(0.4)


def test_momenta_of_angles_are_answered_with_those_of_the_body():
    f = made(body, 1)
    run = f.rollout(f.initial_state(), steps=2)
    with pytest.raises(ValueError, match="unknown quantity 'p.b-rz'.*b-qw.*p.b-wx"):
        run["p.b-rz"]
    assert "GroupVI" in dir(vioc)


def test_a_turn_is_periodic_though_quaternions_end_with_the_other_sign():
    mass = vioc.Mass(2.0, (0.5, 0.8, 1.1))
    spinner = vioc.spherical("b", frame="bus", mass=mass)
    f = GroupVI(vioc.System(spinner, vioc.WrenchInput("bus", "tz", (0, 0, 0), (0, 0, 1.0))), 0.05)
    N, turned = 20, f.space.error_names.index("b-phiz")

    def short(w):
        x = f.initial_state(v={"b-wz": w})
        return f.difference(x, f.step(x, [0.0]))[turned] - 2 * np.pi / N

    x = f.initial_state(v={"b-wz": brentq(short, 5.0, 8.0)})
    run = f.rollout(x, np.zeros((N, 1)))
    assert run["b-qw"][-1] == pytest.approx(-1.0)
    found = optimize(f, quadratic(f, R=1.0), run, method="dmoc", periodic=True)
    assert found.converged and found.cost < 1e-12
    assert np.abs(f.difference(found.trajectory.x[0], found.trajectory.x[-1])).max() < 1e-8


def test_refusals():
    with pytest.raises(vioc.ModelError, match="free rotation"):
        GroupVI(vioc.System(vioc.rx("a", mass=(1.0, 1.0, 1.0, 1.0))), 0.01)
    with pytest.raises(vioc.ModelError, match="b-rx"):
        GroupVI(body(vioc.JointDamping("b-rx", 0.1)), 0.01)
    with pytest.raises(vioc.ModelError, match=r"no contacts.*got floor; use ContactVI or MaximalVI$"):
        GroupVI(body(vioc.Contact.point("body", name="floor")), 0.01)
    moved = vioc.System(vioc.tx(vioc.K("rail"))[vioc.free("b", mass=(1.0, 1.0, 1.0, 1.0))])
    with pytest.raises(vioc.ModelError, match=r"no kinematic variables, got rail; use MidpointVI$"):
        GroupVI(moved, 0.01)
    with pytest.raises(ConstraintError, match="rod"):
        GroupVI(pair(), 0.01).initial_state()
    f = made(body, 1)
    with pytest.raises(ValueError, match="unit quaternions"):
        f.rollout(np.zeros(f.nx), steps=1)
    with pytest.raises(vioc.StepError, match="half a turn"):
        f.rollout(f.initial_state(v={"b-wx": 400.0}), steps=1)


def test_compositions_refuse_what_is_no_attitude():
    f = vioc.Composition(GroupVI(body(), 0.1), 4)
    with pytest.raises(ValueError, match="unit quaternions"):
        f.rollout(f.state({"b-qw": 1.0, "b-qx": 1.0}), steps=2)


def test_a_start_takes_arrays_of_rates():
    f = made(body, 1)
    n = len(f.system.variables)
    q, v = np.linspace(0.1, 0.6, n), np.linspace(-0.3, 0.2, n)
    named = (dict(zip(f.system.variables, a, strict=True)) for a in (q, v))
    assert (f.initial_state(q, v) == f.initial_state(*named)).all()
