"""Boxes and hulls that meet each other in generalized coordinates: closed forms, `MaximalVI`, derivatives."""

from functools import cache

import numpy as np
import pytest

import vioc
from vioc import Contact, ContactVI, Gravity, JointDamping, K, Mass, MaximalVI, PairContact, System
from vioc.compile import find_compiler

# inside: the number of places and the depth that counts as entered have no public name
from vioc.dynamics.contact.look import ENTERED
from vioc.dynamics.contact.polytopes import PLACES
from vioc.errors import ConstraintError, ModelError
from vioc.shapes import Box, Hull, Sphere

DOWN = Gravity(0, 0, -9.81)
NEEDS_COMPILER = pytest.mark.skipif(find_compiler() is None, reason="needs a compiler")
EDGE = 0.2
CRATE = Box((EDGE,) * 3)
TABLE = Box((4.0, 4.0, 0.2), center=(0, 0, -0.1))


def crate(name="crate", mass=1.0):
    return vioc.free(name[0], frame=name, mass=Mass.box(mass, CRATE.size))


def pushed(run, pair):
    """The normal force of all places of a pair, N."""
    return sum(run[f"force.{pair}-{i + 1}"] for i in range(PLACES))


@cache
def on_table(dt, friction=0.4, shape=CRATE, **options):
    pair = PairContact("world", TABLE, "crate", shape, friction=friction, name="on")
    return ContactVI(System(crate(), DOWN, pair), dt, **options)


def test_a_box_slides_as_far_as_coulomb_says():
    mu, v, dt = 0.4, 1.0, 0.01
    f = on_table(dt, mu)
    run = f.rollout(f.initial_state({"c-z": EDGE / 2 + 1e-9}, {"c-x": v}), steps=80)
    way = v**2 / (2 * mu * 9.81)
    assert run["crate:x"][-1] == pytest.approx(way, abs=mu * 9.81 * dt**2)  # it stops within a step
    assert np.abs([run["crate:y"][-1], run["crate:ry"][-1], run["crate:rz"][-1]]).max() < 1e-7
    assert pushed(run, "on")[40] == pytest.approx(9.81, rel=1e-6)
    assert run.energy[-1] == pytest.approx(9.81 * EDGE / 2, abs=1e-2)  # -g dt/2 at rest: 1.2e-3 J


@cache
def on_block():
    pair = PairContact("world", Box((EDGE,) * 3, center=(0, 0, -EDGE / 2)), "crate", CRATE, friction=0.9)
    return ContactVI(System(crate(), DOWN, pair), 0.01)


@pytest.mark.parametrize(("offset", "falls"), [(0.09, False), (0.11, True)])
def test_a_box_tips_over_the_edge_of_another_where_its_middle_is_beyond(offset, falls):
    f = on_block()
    run = f.rollout(f.initial_state({"c-z": EDGE / 2 + 1e-9, "c-x": offset}), steps=35)
    assert (abs(run["crate:ry"][-1]) > 0.2) == falls
    if not falls:
        assert np.abs(run["crate:x"] - offset).max() < 1e-6


def test_what_stands_on_a_box_that_an_input_moves_goes_with_it():
    """Up to mu g: then it is left behind, and pulled along with mu g."""
    mu, dt, steps = 0.5, 0.01, 40
    sled = vioc.tx(K("s"), name="sled")
    pair = PairContact("sled", TABLE, "crate", CRATE, friction=mu, name="on")
    f = ContactVI(System(sled, crate(), DOWN, pair), dt)
    for a in (0.9 * mu * 9.81, 1.5 * mu * 9.81):
        s = 0.5 * a * (dt * np.arange(1, steps + 1)) ** 2
        run = f.rollout(f.initial_state({"c-z": EDGE / 2 + 1e-9}), U=s[:, None])
        way = 0.5 * min(a, mu * 9.81) * (dt * steps) ** 2
        # a step more or less of the largest speed
        assert run["crate:x"][-1] == pytest.approx(way, abs=1.5 * dt * a * dt * steps)


def tumbling(kind, dt):
    boxes = {"under": Box((0.4, 0.4, 0.3)), "crate": CRATE}
    bodies = [vioc.free(n[0], frame=n, mass=Mass.box(1.0, s.size)) for n, s in boxes.items()]
    ground = [Contact.on(n, s, friction=0.5, name=f"g-{n}") for n, s in boxes.items()]
    return kind(System(bodies, DOWN, ground, PairContact.among(boxes, friction=0.5, name="p-")), dt)


START = {"u-z": 0.15 + 1e-9, "c-z": 0.53, "c-x": 0.1, "c-ry": 0.4, "c-rx": 0.5}


@pytest.mark.slow
def test_boxes_tumble_as_in_maximal_coordinates():
    """Impacts are of first order in dt in both: what is between them halves with it."""
    apart = []
    for dt in (0.004, 0.001):
        ends = []
        for kind in (MaximalVI, ContactVI):
            f = tumbling(kind, dt)
            run = f.rollout(f.initial_state(START), steps=round(0.4 / dt))
            assert min(run["energy"][0] - run["energy"]) > -1e-2
            ends.append([run[f"crate:{a}"][-1] for a in ("x", "y", "z", "rx", "ry", "rz")])
        apart.append(np.abs(np.subtract(*ends)).max())
    assert apart[1] < 0.5 * apart[0] and apart[0] < 0.05


def test_boxes_tumble_to_rest_without_gaining_energy_or_entering():
    f = tumbling(ContactVI, 0.01)
    run = f.rollout(f.initial_state(START), steps=60)
    assert np.diff(run.energy).max() < 1e-3 * (run.energy[0] - run.energy[-1])
    deepest = f.gaps(run.x).min()
    assert deepest > -ENTERED * f.touches.polytopes.features.sizes[0]
    assert pushed(run, "p-under-crate")[-1] == pytest.approx(9.81, rel=1e-3)
    floor = sum(run[f"force.g-under-{i + 1}"][-1] for i in range(8))
    assert floor == pytest.approx(2 * 9.81, rel=1e-3)


REST, BEGIN = (0.0, 0.35, 0.2, -0.7, 0.0, 0.35, 0.0), {"q1": 0.6, "q3": -1.2, "q5": 0.6}


def arm_on_a_crate(kind, dt, **options):
    """Seven joints on springs, whose hand is a box that they press onto a box on the floor."""
    below = vioc.tz(-0.15, name="hand", mass=Mass.box(0.5, (0.1,) * 3))
    for i in reversed(range(7)):
        rod = (vioc.rz, vioc.ry)[i % 2](f"q{i}", name=f"link{i}", mass=Mass.rod(1.0, 0.2, com=(0, 0, -0.1)))
        below = rod[vioc.tz(-0.2)[below] if i < 6 else below]
    springs = [
        vioc.UserPotential(lambda k, i=i, rest=rest: 100.0 * (k.q(f"q{i}") - rest) ** 2)
        for i, rest in enumerate(REST)
    ]
    touches = [
        PairContact("world", TABLE, "crate", CRATE, friction=0.6, name="floor"),
        PairContact("crate", CRATE, "hand", Box((0.1,) * 3), friction=0.6, name="touch"),
    ]
    damping = [JointDamping(f"q{i}", 2.0) for i in range(7)]
    f = kind(System(vioc.tz(1.48)[below], crate(), DOWN, springs, damping, touches), dt, **options)
    x = f.initial_state({**BEGIN, "c-z": EDGE / 2 + 1e-7, "c-x": 0.08})
    return f.rollout(x, steps=round(3.0 / dt))


@pytest.mark.slow
def test_an_arm_presses_its_box_onto_another_as_in_maximal_coordinates():
    """Where it sticks depends on how it slid before, within the way of a step, 0.3 m/s times 5 ms."""
    theirs, ours = (arm_on_a_crate(kind, 0.005) for kind in (MaximalVI, ContactVI))
    for run in (theirs, ours):
        assert abs(run["hand:z"][-1] - run["hand:z"][-200]) < 1e-6  # at rest
    for name in ("hand:x", "hand:y", "hand:z", "crate:x", "crate:y", "crate:z"):
        assert ours[name][-1] == pytest.approx(theirs[name][-1], abs=1.5e-3), name
    for pair in ("touch", "floor"):
        assert pushed(ours, pair)[-1] == pytest.approx(pushed(theirs, pair)[-1], rel=5e-3)


LEVER, HEIGHT, TORQUE = 0.5, 0.3, 3.0  # m, m, N m


def pressed():
    """Angle and force of a lever whose box lies with its lower far edge on the table."""
    far, low, weight = LEVER + 0.05, 0.05, 9.81 * (1.0 * LEVER / 2 + 0.5 * LEVER)
    a = np.arcsin(HEIGHT / np.hypot(far, low)) - np.arctan2(low, far)
    return a, (TORQUE + weight * np.cos(a)) / (far * np.cos(a) - low * np.sin(a))


def test_a_lever_presses_its_box_as_its_moments_say():
    hand = vioc.tx(LEVER, name="hand", mass=Mass.box(0.5, (0.1,) * 3))
    rod = Mass.rod(1.0, LEVER, com=(LEVER / 2, 0, 0), axis=(1, 0, 0))
    system = System(
        vioc.tz(HEIGHT)[vioc.ry("a", name="lever", mass=rod)[hand]],
        DOWN,
        vioc.JointForce("a", "torque"),
        JointDamping("a", 1.0),
        PairContact("world", TABLE, "hand", Box((0.1,) * 3), name="on"),
    )
    f = ContactVI(system, 0.005)
    run = f.rollout(f.initial_state({"a": 0.3}), U=np.full((300, 1), TORQUE))
    angle, force = pressed()
    assert run["a"][-1] == pytest.approx(angle, abs=1e-7)  # it hovers by smoothing m dt/impulse, 1e-9 m
    assert pushed(run, "on")[-1] == pytest.approx(force, rel=1e-6)


@pytest.mark.peer
def test_mujoco_presses_a_box_as_hard():
    """As far as it is soft: solref of 2 ms is as stiff as steps of 1 ms let it be."""
    mujoco = pytest.importorskip("mujoco")
    model = mujoco.MjModel.from_xml_string(
        f'''<mujoco><option timestep="1e-3" gravity="0 0 -9.81"/><worldbody>
        <geom type="box" size="2 2 0.1" pos="0 0 -0.1" friction="1e-6" solref="2e-3 1"/>
        <body pos="0 0 {HEIGHT}"><joint type="hinge" axis="0 1 0" damping="1"/>
        <inertial mass="1.5" pos="{(0.5 * LEVER + 0.25 * 2 * LEVER) / 1.5} 0 0" diaginertia="1e-3 0.1 0.1"/>
        <geom type="box" size="0.05 0.05 0.05" pos="{LEVER} 0 0" friction="1e-6" solref="2e-3 1"/>
        </body></worldbody></mujoco>'''
    )
    data = mujoco.MjData(model)
    data.qpos[0], data.qfrc_applied[0] = 0.3, TORQUE
    mujoco.mj_step(model, data, 3000)
    force, one = 0.0, np.zeros(6)
    for i in range(data.ncon):
        mujoco.mj_contactForce(model, data, i, one)
        force += one[0]
    angle, exact = pressed()
    assert data.qpos[0] == pytest.approx(angle, abs=1e-3)
    assert force == pytest.approx(exact, rel=1e-2)


@NEEDS_COMPILER
def test_compiled_steps_are_those_of_numpy():
    runs = []
    for backend in ("virtual", "compiled"):
        f = on_table(0.01, backend=backend)
        x = f.initial_state({"c-z": 0.15, "c-rx": 0.3, "c-ry": 0.2}, {"c-x": 1.0})
        runs.append(f.rollout(x, steps=60))
    np.testing.assert_allclose(runs[0].x, runs[1].x, atol=1e-8)
    np.testing.assert_allclose(f.step(runs[1].x[30]), runs[1].x[31], atol=1e-9)


def test_derivatives_of_corners_over_faces_are_exact():
    f = on_table(0.01).smoothed(1e-4)
    x = f.initial_state({"c-z": EDGE / 2 + 1e-3, "c-rz": 0.3}, {"c-x": 0.3, "c-z": -0.2, "c-ry": 0.1})
    A, size = f.linearize(x, np.zeros(0)).A, 1e-6
    steps = np.eye(f.ndx) * size
    ends = [f.difference(f.step(f.retract(x, -d)), f.step(f.retract(x, d))) / (2 * size) for d in steps]
    error = np.abs(A - np.transpose(ends)).max()
    assert error < 1e-5 * np.abs(A).max()  # of differences: it falls with the square of their size
    z = np.random.default_rng(1).normal(size=f.nx)
    H = f.second_order(x, np.zeros(0), z).xx
    rows = [(f.linearize(x + d, np.zeros(0)).A - f.linearize(x - d, np.zeros(0)).A).T @ z for d in steps]
    np.testing.assert_allclose(H, np.array(rows) / (2 * size), atol=1e-4 * np.abs(H).max())


def test_hulls_fall_on_boxes_off_their_frames_origin():
    hull = Hull(0.1 * np.random.default_rng(7).normal(size=(14, 3)) + [0, 0, 0.3])
    body = vioc.free("b", frame="stone", mass=Mass.sphere(1.0, 0.15, com=(0, 0, 0.3)))
    f = ContactVI(
        System(body, DOWN, PairContact("world", TABLE, "stone", hull, friction=0.6, name="t")), 0.01
    )
    run = f.rollout(f.initial_state({"b-z": 0.2}), steps=200)
    assert np.diff(run.energy).max() < 1e-3
    assert f.gaps(run.x).min() > -1e-4
    assert pushed(run, "t")[-1] == pytest.approx(9.81, rel=0.05)


def test_what_polytopes_cannot_do_is_said_by_name():
    f = on_table(0.01)
    with pytest.raises(ConstraintError, match=r"the gap of on-1 is -0\.05"):
        f.rollout(f.initial_state({"c-z": 0.05}), steps=1)
    with pytest.raises(ModelError, match=r"along a trajectory of boxes and hulls .*\(on\)"):
        _ = f.mechanism.relaxed()
    system = System(crate(), DOWN, PairContact("world", TABLE, "crate", CRATE, name="on"))
    with pytest.raises(ModelError, match=r"ModeVI has no boxes and hulls .*\(on\)"):
        vioc.ModeVI(system, 0.01, held=["on"])
    ball = PairContact("world", TABLE, "crate", Sphere(0.05), restitution=0.5, name="ball")
    with pytest.raises(ModelError, match=r"restitution goes without boxes and hulls .*\(on\)"):
        ContactVI(system.with_components(ball), 0.01)
    with pytest.raises(ModelError, match="unknown quantity 'gap.on-1'"):
        f.quantity("gap.on-1")
