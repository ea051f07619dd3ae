"""`MaximalVI`: bodies, joints, conversions, derivatives; against closed forms and other integrators."""

import pickle
from functools import cache

import casadi as ca
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from scipy.integrate import solve_ivp
from scipy.spatial.transform import Rotation
from support.strategies import systems

import vioc
from vioc import (
    Gravity,
    JointDamping,
    JointForce,
    Mass,
    MaximalVI,
    MidpointVI,
    System,
    rx,
    ry,
    rz,
    se3,
    tx,
    ty,
    tz,
)
from vioc.compile import find_compiler
from vioc.control import Cost, dmoc

# inside: quaternions as arrays, and the split of a state into positions and turns
from vioc.dynamics.algebra import rotations as rot
from vioc.dynamics.integrators.maximal.body_space import split
from vioc.errors import ConstraintError, ModelError, StepError

ASYMMETRIC = Mass(1.5, (0.2, 0.35, 0.5))


def body(mass=ASYMMETRIC) -> System:
    return System(vioc.free("b", frame="body", mass=mass), name="body")


def arm() -> System:
    """Two bodies on an offset, skewed chain, damped, driven and sprung."""
    lower = rx("b", name="lower")[tz(-0.3, name="end", mass=Mass(0.7, (0.02, 0.03, 0.02), (0.1, 0, 0)))]
    upper = ry("a", name="upper", mass=Mass(1.0, (0.1, 0.2, 0.15), (0.05, 0.02, -0.4)))[
        tz(-0.8)[rz(0.4)[lower]]
    ]
    return System(
        tx(0.2)[upper],
        Gravity(0.3, 0, -9.81),
        JointDamping("b", 0.1),
        JointForce("a", "torque"),
        vioc.TorsionalSpring("b", 2.0, 0.1),
        vioc.LinearSpring("end", "world", 3.0, 0.5),
        vioc.LinearDamper("end", "upper", 0.2),
        vioc.Wrench("end", (0.3, 0, 0.1), (0, 0.2, 0.1), "hybrid"),
        name="arm",
    )


def four_bar() -> System:
    rod = Mass(1.0, (1 / 12, 1 / 12, 1 / 120), (0, 0, 0.5))
    coupler = ry("b", mass=Mass(1.0, (1 / 12, 1 / 12, 1 / 120), (0, 0, 0.5)))[tz(1.0, name="tip")]
    return System(
        ry("a", mass=rod)[tz(1.0)[coupler]],
        tx(1.2)[ry("c", mass=rod)[tz(1.0, name="top")]],
        vioc.coincident("tip", "top", "xz", name="pin"),
        Gravity(0, 0, -9.81),
        name="four-bar",
    )


@cache
def map_of(make, kind=MaximalVI, backend="virtual"):
    """The map of a mechanism, dt = 0.01 s; those of other steps by `with_dt` share what is built for it."""
    return kind(make(), 0.01, backend=backend)


def four_bar_state(f: MaximalVI) -> np.ndarray:
    q = vioc.consistent_configuration(f.system, {"a": 0.2, "b": 1.0, "c": 0.5}, fixed="a").q
    return f.initial_state(q, vioc.project_velocity(f.system, q, {"a": 1.0}))


def test_forces_of_all_rates_drive_bodies_as_they_drive_joints():
    lower = rx("b", name="lower")[tz(-0.3, name="end", mass=Mass(0.7, (0.02, 0.03, 0.02), (0.1, 0, 0)))]
    upper = ry("a", name="upper", mass=Mass(1.0, (0.1, 0.2, 0.15), (0.05, 0.02, -0.4)))
    system = System(
        upper[tz(-0.8)[rz(0.4)[lower]]],
        vioc.components.Propeller("end", "speed", (1, 2, 0.5), 0.3, 0.05),
        vioc.cables.MassDamping("upper", "end", 0.7),
        vioc.cables.LineDrag("upper", "end", 0.4, (0, 0, 1), 0.5, 0.2),
    )
    q, v, apart = np.array([0.4, -0.7]), np.array([1.0, -2.0]), []
    maps = MidpointVI(system, 4e-3), MaximalVI(system, 4e-3)
    for dt in (4e-3, 2e-3):
        ends = []
        for f in (m.with_dt(dt) for m in maps):
            run = f.rollout(f.initial_state(q, v), np.full((round(0.4 / dt), 1), 2.0))
            ends.append(np.array([run["a"][-1], run["b"][-1]]))
        apart.append(ends[0] - ends[1])
    np.testing.assert_allclose(apart[0] / apart[1], 4.0, rtol=0.05)  # both of order two
    assert np.abs(apart[1]).max() < 1e-4


# -- bodies --------------------------------------------------------------------------------------------


def spin(J, w) -> list:
    """Euler's equations of a free body, w' = J^-1 (J w x w)."""
    (a, b, c), (x, y, z) = J, w
    return [(b - c) * y * z / a, (c - a) * z * x / b, (a - b) * x * y / c]


@pytest.mark.parametrize("dt", [0.01, 0.1])
def test_free_body_keeps_its_momentum_in_the_world(dt):
    f = map_of(body).with_dt(dt)
    x = f.initial_state(v={"b-rx": 0.5, "b-ry": 2.0, "b-rz": -1.0, "b-x": 0.3})
    run = f.rollout(x, steps=2000)
    for axis in "xyz":
        for what in ("momentum", "angular"):
            assert np.ptp(run[f"{what}:{axis}"]) < 1e-10
    norms = np.linalg.norm(split(len(f.bodies), run.x)[1], axis=-1)
    assert np.abs(norms - 1).max() < 1e-14


def test_free_body_flips_about_its_intermediate_axis_like_eulers_equations():
    J, w0 = np.array([0.2, 0.35, 0.5]), np.array([0.01, 3.0, 0.0])
    exact = solve_ivp(lambda t, w: spin(J, w), (0, 6), w0, rtol=1e-10, atol=1e-12, dense_output=True)
    errors = []
    built = map_of(body)
    for dt in (0.02, 0.01):
        f = built.with_dt(dt)
        run = f.rollout(f.initial_state(v={"b-ry": 3.0, "b-rx": 0.01}), steps=round(6 / dt))
        errors.append(np.abs(run.x[:, -3:] - exact.sol(run.t).T).max())
    assert run["wy.body"].min() < -2.7  # it flips
    assert errors[1] < 0.01
    assert errors[0] / errors[1] == pytest.approx(4, rel=0.15)


def test_heavy_top_of_the_benchmark_in_the_limit():
    published = np.array([-0.70827915, 0.43878109, 0.54572840, 0.08939975])
    top = System(
        vioc.spherical("s", mass=Mass(15.0, (0.234375, 0.46875, 0.234375), (0, 1, 0))), Gravity(0, 0, -9.81)
    )
    ends = []
    built = MaximalVI(top, 2e-4)
    for dt in (2e-4, 1e-4, 5e-5):
        f = built.with_dt(dt)
        x = f.initial_state(v={"s-ry": 150.0, "s-rx": 0.0, "s-rz": -4.61538})
        ends.append(f.rollout(x, steps=round(0.2 / dt), warn=False).x[-1, 3:7])
    ends = [q * np.sign(q @ published) for q in ends]
    errors = [np.abs(q - published).max() for q in ends]
    assert np.log2(errors[0] / errors[1]) == pytest.approx(2, abs=0.2)
    limit = ends[2] + (ends[2] - ends[1]) / 3
    assert np.abs(limit - published).max() < 2e-6


@pytest.mark.parametrize("rate", [9.0, 9.2, 25.0, 31.0])
def test_fast_spin_is_that_of_the_start(rate):
    """A spin about a principal axis turns by its rate, up to half a turn in a step."""
    f = map_of(body).with_dt(0.1)
    run = f.rollout(f.initial_state(v={"b-rx": rate}), steps=7)
    turned = np.remainder(np.diff(run["b-rx"]), 2 * np.pi)
    assert turned == pytest.approx(np.full(7, 0.1 * rate), abs=1e-13)
    assert run["v.b-rx"] == pytest.approx(np.full(8, rate), abs=1e-12)


def test_fast_start_needs_no_small_step_to_be_second_order():
    """About a general axis, from 9.3 rad/s at dt = 0.1: the error is of second order from the start."""
    J, w0 = np.array([0.2, 0.35, 0.5]), np.array([8.0, 3.0, 3.6])
    exact = solve_ivp(lambda t, w: spin(J, w), (0, 0.4), w0, rtol=1e-10, atol=1e-12)
    errors = []
    built = map_of(body)
    for dt in (0.1, 0.05, 0.025):
        f = built.with_dt(dt)
        x = f.initial_state()
        x[-3:] = w0
        errors.append(np.abs(f.rollout(x, steps=round(0.4 / dt)).x[-1, -3:] - exact.y[:, -1]).max())
    assert np.log2(errors[1] / errors[2]) == pytest.approx(2, abs=0.25)
    assert errors[0] < 0.1 * np.linalg.norm(w0)


def test_unequal_steps_keep_order_and_momentum():
    """Free fall is exact whatever the steps; a spin keeps its rate where the step length changes."""
    f = MaximalVI(System(vioc.free("b", frame="body", mass=ASYMMETRIC), Gravity(0, 0, -9.81)), 0.01)
    lengths = np.array([0.01] * 5 + [0.005] * 7 + [0.02] * 4)
    x0 = f.initial_state({"b-z": 2.0}, {"b-x": 0.7, "b-z": 1.0, "b-ry": 3.0})
    run = f.rollout(x0, steps=len(lengths), dt=lengths)
    assert run["b-z"] == pytest.approx(2.0 + run.t - 0.5 * 9.81 * run.t**2, abs=1e-13)
    assert run["v.b-z"] == pytest.approx(1.0 - 9.81 * run.t, abs=1e-12)
    assert run["b-ry"] == pytest.approx(3.0 * run.t, abs=1e-12)
    backend = "virtual" if find_compiler() is None else "compiled"
    again = MaximalVI(f.system, 0.01, backend=backend).rollout(x0, steps=len(lengths), dt=lengths)
    assert np.abs(again.x - run.x).max() < 1e-12


def test_what_holds_still_reads_still():
    """A hanging chain under a held torque: the state is a fixed point, its velocity and energy the body's."""
    rod = Mass(1.0, (0.1, 0.1, 0.01), (0, 0, -0.5))
    system = System(
        ry("a", mass=rod)[tz(-1.0)[ry("b", mass=rod)]], Gravity(0, 0, -9.81), JointForce("a", "torque")
    )
    f = MaximalVI(system, 0.02)
    angle = 0.4  # a hangs aside by its torque, b straight down
    u = [9.81 * np.sin(angle) * 1.5]
    x = f.initial_state({"a": angle, "b": -angle})
    run = f.rollout(x, np.tile(u, (50, 1)))
    assert np.abs(run.x - x).max() < 1e-11
    assert np.abs(run["v.a"]).max() < 1e-11 and np.ptp(run.energy) < 1e-10
    assert run["kinetic"].max() < 1e-20


def test_start_and_order():
    errors = {"legendre": [], "given": []}
    q, v = {"a": 0.4, "b": -0.7}, {"a": 0.3, "b": 1.0}
    fine = map_of(arm, MidpointVI).with_dt(2.5e-4)
    exact = fine.rollout(fine.initial_state(q, v), steps=2000).x[-1, :2]
    built = map_of(arm)
    for start, found in errors.items():
        for dt in (0.02, 0.01, 0.005):
            f = built.with_dt(dt)
            end = f.rollout(f.initial_state(q, v, start=start), steps=round(0.5 / dt)).x[-1]
            found.append(np.abs(f.minimal(end)[0] - exact).max())
    slopes = {s: np.polyfit(np.log([4, 2, 1]), np.log(e), 1)[0] for s, e in errors.items()}
    assert slopes["legendre"] == pytest.approx(2, abs=0.2)
    assert slopes["given"] == pytest.approx(1, abs=0.2)


def test_energy_band_shrinks_with_the_square_of_dt():
    system = System(
        ry("a", mass=Mass(1.0, (0.1, 0.2, 0.15), (0.05, 0.02, -0.4)))[
            tz(-0.8)[rx("b", mass=Mass(0.7, (0.02, 0.03, 0.02), (0, 0.1, -0.3)))]
        ],
        Gravity(0, 0, -9.81),
    )
    bands = []
    built = MaximalVI(system, 0.02)
    for dt in (0.02, 0.01):
        f = built.with_dt(dt)
        energy = f.rollout(f.initial_state({"a": 1.0, "b": 0.5}), steps=round(10 / dt)).energy
        bands.append(np.ptp(energy))
        assert energy[0] == pytest.approx(energy.mean(), abs=bands[-1])
    assert bands[0] / bands[1] == pytest.approx(4, rel=0.25)


# -- joints --------------------------------------------------------------------------------------------

JOINTS = {
    "fixed orientation": lambda m: vioc.Joint((vioc.chain(tx("j-1"), ty("j-2"), tz("j-3", mass=m)),), 3),
    "prismatic": lambda m: vioc.prismatic("j", (1, 2, 2), mass=m),
    "planar sliding": lambda m: vioc.Joint((vioc.chain(tx("j-1"), tz("j-2", mass=m)),), 2),
    "revolute": lambda m: vioc.revolute("j", (1, 0.5, 2), mass=m),
    "cylindrical": lambda m: vioc.cylindrical("j", "y", mass=m),
    "planar": lambda m: vioc.planar("j", (0.3, 1, 0.2), mass=m),
    "universal": lambda m: vioc.universal("j", "xy", mass=m),
    "spherical": lambda m: vioc.spherical("j", mass=m),
    "floating": lambda m: vioc.free("j", "xyz", mass=m),
    "1 directions, 2 axes": lambda m: vioc.Joint((vioc.chain(tz("j-1"), rx("j-2"), rz("j-3", mass=m)),), 3),
}


@pytest.mark.parametrize("kind", JOINTS)
def test_each_joint_keeps_its_constraints_and_moves_as_in_minimal_coordinates(kind):
    mass = Mass(1.2, (0.1, 0.15, 0.12, 0.01, 0.02, -0.01), (0.1, -0.2, 0.3))
    base = ry("base", mass=Mass(2.0, (0.3, 0.3, 0.3), (0.1, 0, -0.2)))
    joint = se3((0.3, 0.2, -0.5), rotation=rot_matrix((0.3, -0.4, 0.2)))[JOINTS[kind](mass)]
    system = System(base[joint], Gravity(0.5, 0.2, -9.81))
    f, g = MaximalVI(system, 0.002), MidpointVI(system, 0.002)
    assert f.graph.bodies[1].joint.kind == kind
    random = np.random.default_rng(1)
    q, v = 0.4 * random.normal(size=(2, len(system.variables)))
    x = f.initial_state(q, v)
    assert np.abs(f.minimal(x)[0] - q).max() < 1e-12
    assert np.abs(f.minimal(x)[1] - v).max() < 1e-10
    run, other = f.rollout(x, steps=100), g.rollout(g.initial_state(q, v), steps=100)
    for name in f.multiplier_names:
        assert np.abs(run["h." + name]).max() < 1e-11
    for i, name in enumerate(system.variables):
        assert np.abs(run[name] - other.x[:, i]).max() < 2e-4
    assert run.energy[0] == pytest.approx(other.energy[0], abs=1e-9)
    assert np.abs(f.frame_positions(x)[0] - g.frame_positions(g.initial_state(q, v))[0])[-1].max() < 1e-12


def rot_matrix(phi) -> np.ndarray:
    q = rot.exponential(np.array(phi, float))
    return np.array(rot.matrix(tuple(q)))


def test_quaternions():
    random = np.random.default_rng(0)
    phi = random.normal(size=(20, 3))
    q = rot.exponential(phi)
    assert np.abs(rot.logarithm(q) - phi).max() < 1e-14
    matrices = np.array([rot.matrix(tuple(row)) for row in q])
    assert np.abs(matrices - Rotation.from_rotvec(phi).as_matrix()).max() < 1e-14
    assert np.abs(np.abs(np.sum(rot.from_matrix(matrices) * q, axis=1)) - 1).max() < 1e-14
    products = rot.product(q[:10], q[10:])
    assert (
        np.abs(np.array([rot.matrix(tuple(r)) for r in products]) - matrices[:10] @ matrices[10:]).max()
        < 1e-14
    )
    assert rot.logarithm(np.array([-1.0, 0, 0, 0])) == pytest.approx([0, 0, 0])


# -- mechanisms ------------------------------------------------------------------------------------------


def test_every_term_agrees_with_the_midpoint_rule_in_the_limit():
    q, v = {"a": 0.4, "b": -0.7}, {"a": 0.3, "b": 1.0}
    U = np.full((100, 1), 0.7)
    gaps = []
    maps = map_of(arm), map_of(arm, MidpointVI)
    for dt in (0.01, 0.005):
        f, g = (m.with_dt(dt) for m in maps)
        steps = round(0.5 / dt)
        run = f.rollout(f.initial_state(q, v, u=U[0]), U[:steps])
        other = g.rollout(g.initial_state(q, v), U[:steps])
        gaps.append(max(np.abs(run[n] - other[n]).max() for n in "ab"))
    assert gaps[1] < 3e-4
    assert gaps[0] / gaps[1] == pytest.approx(4, rel=0.05)


@settings(max_examples=7, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
@given(systems(max_frames=6, forced=True, vocabulary=True, parameters=True), st.integers(0, 10**6))
def test_random_trees_agree_with_the_midpoint_rule(system, seed):
    """Branched trees of all transforms, constant poses, full inertias and parameters; all forces."""
    # random constraints are met by no configuration in general, and random dampers have no length at times
    forces = [force for force in system.forces if not isinstance(force, vioc.LinearDamper)]
    system = System(*system.frames, *system.potentials, *forces)
    random = np.random.default_rng(seed)
    q, v = random.normal(scale=0.5, size=(2, len(system.variables)))
    u, gaps = random.normal(size=len(system.inputs)), []
    # two masses that attract each other and nearly meet have no motion that steps of this length follow
    for pull in (p for p in system.potentials if isinstance(p, vioc.Gravitation)):
        alone = MidpointVI(System(*system.frames, pull), 1e-3)
        assume(abs(alone.rollout(alone.initial_state(q), steps=1, warn=False)["potential"][0]) < 10)
    try:
        maximal = MaximalVI(system, 2e-3)
    except ModelError as error:
        assume("turns and travels" not in str(error) and "by the parameter" not in str(error))
        raise
    minimal = MidpointVI(system, 2e-3)
    for dt in (2e-3, 1e-3):
        f, g, U = maximal.with_dt(dt), minimal.with_dt(dt), np.tile(u, (round(0.02 / dt), 1))
        run = f.rollout(f.initial_state(q, v, u=U[0]), U, warn=False)
        other = g.rollout(g.initial_state(q, v), U, warn=False)
        gaps.append(np.abs(f.minimal(run.x[-1], near=other.x[-1, : g.nq])[0] - other.x[-1, : g.nq]).max())
    assert gaps[1] < 1e-4
    assert gaps[1] < gaps[0] / 2.5 or gaps[1] < 1e-9
    assert run["potential"][0] == pytest.approx(other["potential"][0], abs=1e-9)


def test_closed_loop():
    gaps, forces, bands = [], [], []
    maps = map_of(four_bar), map_of(four_bar, MidpointVI)
    for dt in (0.01, 0.005):
        f, g = (m.with_dt(dt) for m in maps)
        x = four_bar_state(f)
        q, v = f.minimal(x)
        steps = round(1 / dt)
        run, other = f.rollout(x, steps=steps), g.rollout(g.initial_state(q, v), steps=steps)
        assert max(np.abs(run["h." + name]).max() for name in f.multiplier_names) < 1e-11
        gaps.append(np.abs(run["a"] - other["a"]).max())
        force = other["force.pin-x"]  # at t_k; in maximal coordinates the mean of a step
        forces.append(np.abs(run["force.pin-x"][:-1] - (force[1:] + force[:-1]) / 2)[10:].max())
        bands.append(np.ptp(run.energy))
    assert gaps[1] < 1e-3
    for figures in (gaps, forces, bands):
        assert figures[0] / figures[1] == pytest.approx(4, rel=0.2)


def test_constraints_between_variables_and_distances():
    system = System(
        ry("a", mass=Mass(1, (0.1, 0.1, 0.1), (0, 0, -0.5))),
        tx(1.0)[ry("b", name="other", mass=Mass(1, (0.1, 0.1, 0.1), (0, 0, -0.4)))[tz(-0.7, name="end")]],
        tx(1.5)[vioc.free("c", frame="bob", mass=Mass(0.5, (0.01, 0.01, 0.01)))],
        vioc.components.GearConstraint("a", "b", -2.0),
        vioc.DistanceConstraint("end", "bob", 0.6, name="rod"),
        Gravity(0, 0, -9.81),
    )
    start = vioc.consistent_configuration(system, {"b": 0.3, "c-x": 0.2, "c-z": -1.2}, fixed="b")
    f, g = MaximalVI(system, 0.005), MidpointVI(system, 0.005)
    run, other = f.rollout(f.initial_state(start), steps=100), g.rollout(g.initial_state(start), steps=100)
    assert np.abs(run["a"] + 2 * run["b"]).max() < 1e-11
    assert np.abs(run["h.rod"]).max() < 1e-11
    assert np.abs(run["b"] - other["b"]).max() < 1e-3


def test_point_masses_and_massless_frames():
    """No inertia of its own about any axis: the joint's equations are added to the body's."""
    f, g = (map_of(point_masses, kind).with_dt(0.005) for kind in (MaximalVI, MidpointVI))
    q = {"a": 1.0, "b": -0.5}
    run, other = f.rollout(f.initial_state(q), steps=200), g.rollout(g.initial_state(q), steps=200)
    assert max(np.abs(run[n] - other[n]).max() for n in "ab") < 1e-3
    x, u = run.x[50], np.zeros(0)
    assert np.isfinite(f.linearize(x, u).A).all()


def user_potential(k):
    return 2.0 * ca.sin(k.q("a")) + 0.3 * k.position("tip")[2] ** 2


def user_force(k):
    return {"a": -0.2 * k.v("a") ** 3 + k.u("push") * ca.cos(k.q("b")), "b": 0.1 * ca.sin(k.t)}


def user_constraint(k):
    return k.position("tip")[0] - 0.3


def test_terms_of_a_users_own():
    lower = tz(-1.0)[ry("b", mass=Mass(0.5, (0.05, 0.05, 0.05), (0, 0, -0.4)))[tz(-0.8, name="tip")]]
    system = System(
        ry("a", mass=Mass(1.0, (0.1, 0.1, 0.1), (0, 0, -0.5)))[lower],
        Gravity(0, 0, -9.81),
        vioc.UserPotential(user_potential),
        vioc.UserForce(user_force, ("push",)),
        vioc.UserConstraint(user_constraint, name="wall"),
    )
    q = vioc.consistent_configuration(system, {"a": 0.5, "b": -0.7}, fixed="a")
    v = vioc.project_velocity(system, q.q, {"a": 1.0})
    gaps = []
    maps = MaximalVI(system, 0.01), MidpointVI(system, 0.01)
    for dt in (0.01, 0.005):
        f, g = (m.with_dt(dt) for m in maps)
        U = np.ones((round(0.3 / dt), 1))
        run, other = f.rollout(f.initial_state(q, v, U[0]), U), g.rollout(g.initial_state(q, v), U)
        assert np.abs(run["h.wall"]).max() < 1e-11
        gaps.append(np.abs(run["a"] - other["a"]).max())
    assert gaps[1] < 1e-3
    assert gaps[0] / gaps[1] == pytest.approx(4, rel=0.3)


def test_parameters_and_pickling():
    system = System(
        ry("a", mass=Mass(vioc.P("m", 1.0), (0.1, 0.1, 0.1), (0, 0, -0.5)))[
            tz(vioc.P("l", -1.0))[ry("b", mass=Mass(0.5, (0.1, 0.1, 0.1)))]
        ],
        Gravity(0, 0, -9.81),
    )
    f = MaximalVI(system, 0.01)
    x = f.initial_state({"a": 0.5})
    other = f.with_parameters(m=2.0)
    assert np.abs(other.step(x) - f.step(x)).max() > 1e-4
    P = f.linearize(x).P
    h = 1e-6
    plus, minus = (f.with_parameters(m=1 + d).step(x) for d in (h, -h))
    assert np.abs(P[:, 0] - f.difference(minus, plus) / (2 * h)).max() < 1e-7
    twin = pickle.loads(pickle.dumps(other))
    assert (twin.step(x) == other.step(x)).all()


def test_urdf(tmp_path):
    text = """<robot name="two"><link name="base"/>
    <link name="one"><inertial><origin xyz="0 0 -0.5"/><mass value="1"/>
    <inertia ixx="0.1" iyy="0.1" izz="0.02" ixy="0" ixz="0" iyz="0"/></inertial></link>
    <link name="two"><inertial><origin xyz="0 0 -0.3"/><mass value="0.5"/>
    <inertia ixx="0.05" iyy="0.05" izz="0.01" ixy="0" ixz="0" iyz="0"/></inertial></link>
    <joint name="j1" type="continuous"><parent link="base"/><child link="one"/><axis xyz="0 1 0"/></joint>
    <joint name="j2" type="continuous"><parent link="one"/><child link="two"/>
    <origin xyz="0 0 -1" rpy="0.2 0 0.3"/>    <axis xyz="1 0 0"/></joint></robot>"""
    model = vioc.read_urdf_text(text)
    system = getattr(model, "system", model)
    f, g = MaximalVI(system, 0.005), MidpointVI(system, 0.005)
    q = {system.variables[0]: 0.5, system.variables[1]: -0.4}
    run, other = f.rollout(f.initial_state(q), steps=100), g.rollout(g.initial_state(q), steps=100)
    assert f.bodies == ("one", "two")
    assert max(np.abs(run[n] - other[n]).max() for n in system.variables) < 1e-3


# -- the map -----------------------------------------------------------------------------------------------


def numerical(f, x, u, h=1e-6):
    """A, B by central differences of the step in error coordinates."""
    x1 = f.step(x, u)
    columns = [
        (f.difference(x1, f.step(f.retract(x, h * e), u)) - f.difference(x1, f.step(f.retract(x, -h * e), u)))
        / (2 * h)
        for e in np.eye(f.ndx)
    ]
    inputs = [
        (f.difference(x1, f.step(x, u + h * e)) - f.difference(x1, f.step(x, u - h * e))) / (2 * h)
        for e in np.eye(f.nu)
    ]
    return np.array(columns).T, np.array(inputs).reshape(f.nu, f.ndx).T


@pytest.mark.parametrize("case", ["arm", "loop", "body"])
def test_linearization(case):
    f = map_of({"arm": arm, "loop": four_bar, "body": body}[case]).with_dt(0.02)
    if case == "loop":
        x = four_bar_state(f)
    else:
        random = np.random.default_rng(0)
        x = f.initial_state(*(0.5 * random.normal(size=(2, len(f.system.variables)))))
    u = np.full(f.nu, 0.3)
    x = f.step(x, u)
    A, B = f.linearize(x, u)
    A1, B1 = numerical(f, x, u)
    assert A.shape == (f.ndx, f.ndx) and f.ndx == 12 * len(f.bodies)
    assert np.abs(A - A1).max() < 1e-7 * max(1, np.abs(A).max())
    assert np.abs(B - B1).max(initial=0) < 1e-7


@pytest.mark.parametrize("case", ["arm", "loop", "body"])
def test_second_order(case):
    f = map_of({"arm": arm, "loop": four_bar, "body": body}[case]).with_dt(0.05)
    random = np.random.default_rng(2)
    if case == "loop":
        x = four_bar_state(f)
    else:
        x = f.initial_state(*(0.5 * random.normal(size=(2, len(f.system.variables)))))
    u = np.full(f.nu, 0.3)
    z, zeta = random.normal(size=f.ndx), random.normal(size=len(f.multiplier_names))
    H = f.second_order(x, u, z, zeta=zeta)
    x1, h = f.step(x, u), 2e-4

    def value(e, w):
        run = f.rollout(f.retract(x, e), (u + w)[None])
        return z @ f.difference(x1, run.x[1]) + zeta @ run.multipliers[0]

    for _ in range(3):
        d, w = random.normal(size=f.ndx), random.normal(size=f.nu)
        second = (value(h * d, h * w) - 2 * value(0 * d, 0 * w) + value(-h * d, -h * w)) / h**2
        exact = d @ H.xx @ d + 2 * d @ H.xu @ w + w @ H.uu @ w
        assert exact == pytest.approx(second, rel=2e-5, abs=2e-5 * np.abs(H.xx).max())
    assert np.abs(H.xx - H.xx.T).max() < 1e-9 * np.abs(H.xx).max()


def test_second_derivatives_do_not_depend_on_the_axes_of_the_world():
    terms = vioc.JointForce("q", "u"), vioc.TorsionalSpring("q", 3.0), vioc.JointDamping("q", 2.0)

    def by_turns(R):
        body = vioc.Mass(1.3, (0.03, 0.04, 0.05), (0.1, 0.2, -0.3))
        f = vioc.MaximalVI(vioc.System(vioc.se3(rotation=R)[vioc.rx("q", name="b", mass=body)], *terms), 0.01)
        x, z = f.initial_state(dict(q=0.3), dict(q=0.5)), np.zeros(12)
        z[6:9] = R @ [0, 1, 0]
        return f.second_order(x, np.ones(f.nu), z).xx[3:6, 3:6]  # by turns about the body's axes

    R = Rotation.from_rotvec([0.3, -0.9, 0.5]).as_matrix()
    here, there = by_turns(np.eye(3)), by_turns(R)
    np.testing.assert_allclose(there, here, rtol=0, atol=1e-12 * np.abs(here).max())


def test_a_is_symplectic_for_a_free_body():
    """In canonical coordinates (dx, phi, p), p = M V."""
    f = map_of(body).with_dt(0.1)
    x = f.initial_state(v={"b-rx": 0.5, "b-ry": 2.0, "b-rz": -1.0})
    A = f.linearize(x).A
    assert np.linalg.det(A) != 0

    def form(state):
        """omega(d1, d2) of the momenta: dx ^ dp + phi ^ dpi - pi . (phi1 x phi2)."""
        J = np.array([0.2, 0.35, 0.5])
        W = np.zeros((12, 12))
        W[0:3, 6:9], W[3:6, 9:12] = 1.5 * np.eye(3), np.diag(J)
        W = W - W.T
        p = J * state[-3:]
        W[3:6, 3:6] = np.array([[0, p[2], -p[1]], [-p[2], 0, p[0]], [p[1], -p[0], 0]])
        return W

    assert np.abs(A.T @ form(f.step(x)) @ A - form(x)).max() < 1e-8


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 10**6))
def test_difference_inverts_retract(seed):
    f = map_of(arm)
    random = np.random.default_rng(seed)
    x = f.initial_state(random.normal(size=2), random.normal(size=2))
    dx = np.clip(random.normal(size=f.ndx), -1.8, 1.8)  # angles under pi
    assert np.abs(f.difference(x, f.retract(x, dx)) - dx).max() < 1e-12
    stacked = f.retract(x, np.stack([dx, 0 * dx]))
    assert np.abs(f.difference(np.stack([x, x]), stacked)[1]).max() < 1e-14


def test_tracking_uses_rotation_errors():
    f = map_of(arm)
    x = f.initial_state({"a": 0.5, "b": 0.2})
    U = np.zeros((5, 1))
    run = f.rollout(x, U)
    start = f.retract(x, 1e-3 * np.random.default_rng(0).normal(size=f.ndx))
    K = np.random.default_rng(1).normal(size=(5, 1, f.ndx))
    tracked = f.track(start, run.x, U, K)
    expected = [-K[k] @ f.difference(run.x[k], tracked.x[k]) for k in range(5)]
    assert np.abs(tracked.u - expected).max() < 1e-10
    # a quaternion and its negative are the same orientation
    flipped = run.x.copy()
    flipped[:, 3:7] *= -1
    again = f.track(start, flipped, U, K)
    assert np.abs(again.u - tracked.u).max() < 1e-9


def test_lqr_balances_a_pendulum_in_error_coordinates():
    pole = ry("a", mass=Mass(1.0, (0.1, 0.1, 0.1), (0, 0, 0.5)))
    f = MaximalVI(System(pole, Gravity(0, 0, -9.81), JointForce("a", "torque")), 0.02)
    x0 = f.initial_state()
    K = vioc.control.dlqr(f, (x0, np.zeros(1)), np.eye(f.ndx), np.eye(1)).K
    N = 400
    run = f.track(f.initial_state({"a": 0.4}), np.tile(x0, (N, 1)), np.zeros((N, 1)), np.tile(K, (N, 1, 1)))
    assert K.shape == (1, 12)
    assert abs(run["a"][0]) == pytest.approx(0.4) and abs(run["a"][-1]) < 1e-6


def test_newton_descent_in_error_coordinates():
    """Swing half up: exact A, B and second order, and a cost differentiated through the retraction."""
    pole = ry("a", mass=Mass(1.0, (0.1, 0.1, 0.1), (0, 0, -0.5)))
    f = MaximalVI(System(pole, Gravity(0, 0, -9.81), JointForce("a", "torque")), 0.05)
    N = 20
    x0, U = f.initial_state(), np.zeros((N, 1))

    def cost(run):
        return 0.5e-2 * np.sum(run.u**2) + 50 * np.sum((run["a"][-1:] - 1.2) ** 2 + (run["v.a"][-1:]) ** 2)

    x, e = f.symbols.x, ca.SX.sym("e", f.ndx)
    m = 50 * (f.quantity("a") - 1.2) ** 2 + 50 * f.quantity("v.a") ** 2
    m = ca.substitute(m, x, f.space.retract_expression(x, e))
    H, g = ca.hessian(m, e)
    end = ca.Function("end", [x, e], [g, H])
    costs = []
    for _ in range(12):
        run = f.rollout(x0, U)
        costs.append(cost(run))
        lin = f.linearize_trajectory(run)
        g, H = (np.array(v) for v in end(run.x[-1], np.zeros(f.ndx)))
        p, Z = g[:, 0], np.empty((N, f.ndx))
        for k in reversed(range(N)):
            Z[k] = p
            p = lin.A[k].T @ p
        second = f.second_order_trajectory(run, Z)
        P, r = H, g[:, 0]
        Ks, ks = np.empty((N, 1, f.ndx)), np.empty((N, 1))
        for k in reversed(range(N)):
            A, B = lin.A[k], lin.B[k]
            Quu = 1e-2 * np.eye(1) + B.T @ P @ B + second.uu[k]
            Qux = B.T @ P @ A + second.xu[k].T
            Ks[k], ks[k] = np.linalg.solve(Quu, Qux), np.linalg.solve(Quu, 1e-2 * run.u[k] + B.T @ r)
            P, r = A.T @ P @ A + second.xx[k] - Qux.T @ Ks[k], A.T @ r - Qux.T @ ks[k]
        step = 1.0
        while step > 1e-3:
            trial = f.track(x0, run.x, U - step * ks, Ks)
            if cost(trial) < costs[-1]:
                break
            step /= 2
        if costs[-1] - cost(trial) < 1e-12:
            break
        U = trial.u
    assert costs[-1] < 1e-2 * costs[0]
    assert len(costs) < 12  # quadratic convergence


def test_rescue_agrees_with_the_kernel():
    f = map_of(four_bar)
    x = four_bar_state(f)
    run = f.rollout(x, steps=1)
    x1, lam = f.step_solver.rescued(x, np.zeros(0), 0, 0.0, 0.01)
    assert np.abs(x1 - run.x[1]).max() < 1e-12
    assert np.abs(lam - run.multipliers[0]).max() < 1e-10


@pytest.mark.parametrize("backend", ["virtual", "compiled"])
def test_a_step_is_the_same_bits_wherever_it_is_taken(backend):
    f = map_of(four_bar, MaximalVI, backend)
    run = f.rollout(four_bar_state(f), steps=120)
    own = f.steps_at(run.x[:-1], run.u)
    assert np.array_equal(own.x1, run.x[1:]) and np.array_equal(own.multipliers, run.multipliers)
    assert all(np.array_equal(f.step(run.x[k], k=k), run.x[k + 1]) for k in (0, 1, 2, 50, 119))
    assert np.array_equal(f.rollout(run.x[60], steps=60, k0=60).x, run.x[60:])


def test_roots_far_from_the_state_are_not_the_step():
    """A whip of three links from random fast states: a step ends where many short ones lead, or raises."""
    rod = Mass(1.0, (0.1, 0.1, 0.01), (0, 0, -0.5))
    links = ry("a", mass=rod)[tz(-1.0)[ry("b", mass=rod)[tz(-1.0)[ry("c", mass=rod)]]]]
    f, rng = MaximalVI(System(links, Gravity(0, 0, -9.81)), 0.05), np.random.default_rng(3)
    fine, taken, refused = f.with_dt(0.05 / 50), 0, 0
    for _ in range(20):
        x = f.initial_state(rng.uniform(-3, 3, 3), 15 * rng.standard_normal(3))
        try:
            end = f.step(x)
        except StepError as error:
            assert 0 < error.length < 0.05 and f.step(x, dt=0.99 * error.length).shape == x.shape
            refused += 1
            continue
        taken += 1
        near = fine.rollout(x, steps=50, warn=False).x[-1]
        moved = np.linalg.norm(f.difference(x, near)[: f.ndx // 2])
        assert np.linalg.norm(f.difference(near, end)[: f.ndx // 2]) < moved
    assert taken > 10 and refused > 2


def test_failures_say_why():
    f = map_of(body).with_dt(0.1)
    with pytest.raises(ConstraintError, match="turns by pi or more"):
        f.initial_state(v={"b-rx": 31.5})
    assert f.step(f.initial_state(v={"b-rx": 31.0})).shape == (13,)  # 3.1 rad
    g = MaximalVI(
        System(
            vioc.free("b", frame="b", mass=ASYMMETRIC),
            vioc.WrenchInput("b", "m", (0, 0, 0), (0, 0, 1)),
        ),
        0.1,
    )
    with pytest.raises(StepError, match="step 0 .* does not exist.* a body turns by 18 rad .*pi") as caught:
        g.step(g.initial_state(), [1e4])
    assert caught.value.cause == "fold"
    # half a turn at the mean rate 1e4 N m / 0.5 kg m^2 times half the length
    assert caught.value.length == pytest.approx(np.sqrt(2 * 0.5 * np.pi / 1e4), rel=1e-3)
    with pytest.raises(ValueError, match="unit quaternions"):
        f.step(2 * f.initial_state())
    with pytest.raises(ConstraintError, match="pin"):
        map_of(four_bar).initial_state({"a": 0.3})
    with pytest.raises(ModelError, match="start"):
        f.initial_state(start="legendary")
    with pytest.raises(ConstraintError, match="spin about an axis"):
        MaximalVI(System(vioc.free("b", mass=1.0)), 0.01).initial_state()
    three = vioc.coincident("tip", "top", "y", name="extra")
    redundant = MaximalVI(four_bar().with_components(three), 0.01)
    q = vioc.consistent_configuration(four_bar(), {"a": 0.2, "b": 1.0, "c": 0.5}, fixed="a").q
    with pytest.raises(StepError, match="extra-y") as caught:
        redundant.step(redundant.initial_state(q, start="given"))
    assert caught.value.cause == "singular constraints"


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: System(ry(vioc.K("a"), mass=ASYMMETRIC), rx("b", mass=ASYMMETRIC)), "kinematic"),
        (lambda: System(ry("a")[rx("b", mass=ASYMMETRIC), rz("c", mass=ASYMMETRIC)]), "2 joints below"),
        (lambda: System(ry("a", mass=ASYMMETRIC)[rx("b")]), "has no mass"),
        (lambda: System(vioc.helical("s", 0.1, mass=ASYMMETRIC)), "turns and travels"),
        (lambda: System(ry("a")[tz(1.0)[rx("b", mass=ASYMMETRIC)]]), "do not meet"),
        (lambda: System(ry("a")[ry("b", mass=ASYMMETRIC)]), "not independent"),
        (lambda: System(ry("a")[tx("s")[rz("b", mass=ASYMMETRIC)]]), "slides between"),
        (lambda: System(rx(vioc.P("tilt", 0.2))[ry("a", mass=ASYMMETRIC)]), "parameter 'tilt'"),
    ],
)
def test_systems_without_maximal_coordinates(make, text):
    with pytest.raises(ModelError, match=text):
        MaximalVI(make(), 0.01)


def test_quantities_and_units():
    f = map_of(arm)
    run = f.rollout(f.initial_state({"a": 0.3}), steps=3)
    assert run["end:z"].shape == (4,) and f.unit("end:z") == "m"
    assert f.unit("a") == "rad" and f.unit("v.a") == "rad/s" and f.unit("energy") == "J"
    assert f.unit("u.torque") == "N m" and f.unit("x.upper") == "m" and f.unit("angular:x") == "kg m^2/s"
    assert run["kinetic"] + run["potential"] == pytest.approx(run.energy)
    with pytest.raises(ModelError, match="unknown quantity"):
        run["enrgy"]
    assert "2 bodies" in repr(f)


# -- the compiled core ---------------------------------------------------------------------------------------


def thin_rod() -> System:
    """No inertia about its axis, and an arrival whose constraints have fewer entries than a departure's."""
    return System(ry("a", mass=Mass(1.0, (0.1, 0.1, 0.0), (0, 0, -0.5))), Gravity(0, 0, -9.81))


def point_masses() -> System:
    return System(
        ry("a")[tz(-1.0, mass=1.0)[ry("b")[tz(-1.0, mass=0.5)]]], Gravity(0, 0, -9.81), JointDamping("b", 0.1)
    )


@pytest.mark.skipif(find_compiler() is None, reason="there is no C compiler")
@pytest.mark.parametrize("make", [arm, four_bar, point_masses, thin_rod])
def test_compiled_core_agrees_with_the_virtual_machine(make):
    f, g = map_of(make), map_of(make, MaximalVI, "compiled")
    if make is four_bar:
        x = four_bar_state(f)
    else:
        x = f.initial_state(0.3 * np.ones(len(f.system.variables)), 0.2 * np.ones(len(f.system.variables)))
    U = np.random.default_rng(0).normal(size=(60, f.nu))
    one, two = f.rollout(x, U), g.rollout(x, U)
    assert np.abs(one.x - two.x).max() < 1e-9
    assert np.abs(one.multipliers - two.multipliers).max(initial=0) < 1e-8
    K = 0.1 * np.random.default_rng(1).normal(size=(60, f.nu, f.ndx))
    one, two = f.track(x, one.x[::-1], U, K), g.track(x, one.x[::-1], U, K)
    assert np.abs(one.u - two.u).max(initial=0) < 1e-7
    assert (g.rollout(x, U).x == g.rollout(x, U).x).all()


@pytest.mark.skipif(find_compiler() is None, reason="there is no C compiler")
def test_compiled_core_hands_hard_steps_on():
    push = vioc.WrenchInput("b", "m", (0, 0, 0), (0, 0, 1))
    g = MaximalVI(System(vioc.free("b", frame="b", mass=ASYMMETRIC), push), 0.1, backend="compiled")
    with pytest.raises(StepError, match="step 2 "):
        g.rollout(g.initial_state(), [[0.0], [0.1], [1e9], [0.0]])


def test_twins_start_and_report_by_their_own_step_and_parameters():
    def make(m):
        return System(ry("a", name="link", mass=Mass(m, (0.1, 0.1, 0.1), (0, 0, -0.5))), Gravity(0, 0, -9.81))

    f = MaximalVI(make(vioc.P("m", 1.0)), 0.01)
    assert f.rollout(f.initial_state({"a": 0.5}), steps=2)["v.a"].shape == (3,)  # built for the first map
    fresh = {"dt": MaximalVI(make(1.0), 0.002), "m": MaximalVI(make(3.0), 0.01)}
    for g, alone in ((f.with_dt(0.002), fresh["dt"]), (f.with_parameters(m=3.0), fresh["m"])):
        x, y = (h.initial_state({"a": 0.5}, {"a": 1.0}) for h in (g, alone))
        assert np.abs(x - y).max() < 1e-14
        mine, other = g.rollout(x, steps=5), alone.rollout(y, steps=5)
        assert np.abs(mine["v.a"] - other["v.a"]).max() < 1e-11
        assert np.abs(mine.energy - other.energy).max() < 1e-11


# -- the equations as functions ----------------------------------------------------------------------------


@pytest.mark.parametrize("make", [arm, four_bar])
def test_residual_vanishes_along_rollouts_and_determines_the_step(make):
    f = map_of(make)
    x = four_bar_state(f) if make is four_bar else f.initial_state({"a": 0.4, "b": -0.7}, {"b": 1.0})
    run = f.rollout(x, np.full((10, f.nu), 0.3))
    x, u, x1, lam, *rest = f.residual.sx_in()
    r = f.residual(x, u, x1, lam, *rest)
    assert r.shape == (f.nx + len(f.multiplier_names), 1)
    slope = ca.Function("slope", [x, u, x1, lam, *rest], [ca.jacobian(r, ca.vertcat(x1, lam))])
    for k in range(10):
        args = run.x[k], run.u[k], run.x[k + 1], run.multipliers[k], run.t[k], 0.01, []
        assert np.abs(np.array(f.residual(*args))).max() < 1e-12
        assert np.linalg.cond(np.array(slope(*args))) < 1e6


def test_dmoc_on_maximal_coordinates_agrees_with_its_rollout():
    rod = Mass(1.0, (1 / 12, 1 / 12, 0.01), (0, 0, -0.5))
    f = MaximalVI(System(ry("a", mass=rod), Gravity(0, 0, -9.81), JointForce("a", "torque")), 0.05)
    effort = Cost(f, 0.5 * ca.sumsqr(f.symbols.u))
    best = dmoc.solve(f, effort, steps=20, initial=f.initial_state(), final={"a": 0.5, "v.a": 0.0})
    run = f.rollout(f.initial_state(), best.trajectory.u)
    assert run["a"][-1] == pytest.approx(0.5, abs=1e-8)
    assert np.abs(run["a"] - best["a"]).max() < 1e-8
