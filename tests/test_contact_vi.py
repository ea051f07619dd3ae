"""Contact, friction and limits of `ContactVI`: closed forms, `MaximalVI`, its equations."""

import pickle
from functools import cache

import casadi as ca
import numpy as np
import pytest

import vioc
from vioc import (
    Contact,
    ContactVI,
    Gravity,
    JointForce,
    JointLimits,
    K,
    Mass,
    MaximalVI,
    MidpointVI,
    P,
    PairContact,
    System,
    ry,
    tx,
    tz,
)
from vioc.compile import find_compiler

# inside: roots are counted where a step looks at them, and derivatives asked for by steps
from vioc.dynamics.integrators.contact import resting
from vioc.errors import ConstraintError, CrossingWarning, ModelError, StepError
from vioc.maps.derivatives import Steps
from vioc.shapes import HalfSpace, Sphere

DT, G = 0.01, 9.81
DOWN = Gravity(0, 0, -G)
SIZE = (0.5, 0.4, 0.3)


def box(**friction):
    body = vioc.free("b", frame="box", mass=Mass.box(1.0, SIZE))
    return System(body, DOWN, Contact.box("box", SIZE, name="corner", **friction))


def leg(*more, mu=0.8):
    """A planar leg of two links with motors on a sphere for a foot, limits in its knee."""
    shank = tz(-0.4)[ry("knee", mass=Mass.rod(0.5, 0.4, com=(0, 0, -0.2)))[tz(-0.4, name="foot")]]
    thigh = ry("hip", mass=Mass.rod(0.5, 0.4, com=(0, 0, -0.2)))[shank]
    trunk = tx("x")[tz("z", name="trunk", mass=Mass(2.0))[thigh]]
    foot = Contact.sphere("foot", 0.05, friction=mu, name="sole")
    limits = JointLimits("knee", 0.1, 2.5, name="stop")
    return System(trunk, DOWN, foot, limits, JointForce("hip", "hip"), JointForce("knee", "knee"), *more)


@cache
def walking(backend="virtual", kind=ContactVI):
    """A map of the leg, built once for all tests."""
    return kind(leg(), DT, backend=backend)


@cache
def boxed(friction, cone="second-order", backend="virtual"):
    """A map of the box, built once for all tests."""
    return ContactVI(box(friction=friction, cone=cone), DT, backend=backend)


def names(f):
    return [t.name for t in f.touches.all]


@pytest.mark.parametrize("cone", ["second-order", "linear"])
def test_a_box_that_slides_stops_where_coulomb_says(cone):
    f = boxed(0.4, cone)
    run = f.rollout(f.initial_state({"b-z": 0.15 + 1e-9}, {"b-x": 2.0}), steps=100)
    assert min(run[f"gap.{n}"].min() for n in names(f)) > 0
    # friction takes mu g a step, whole but in the last; the midpoint rule loses no distance of it
    assert run["box:x"][-1] == pytest.approx(4 / (2 * 0.4 * G), abs=2 * DT**2 * G)
    assert sum(run[f"force.{n}:z"][-1] for n in names(f)) == pytest.approx(G, abs=1e-6)
    if cone == "second-order":  # of corners in the air, too
        slips = np.array([run[f"slip.{n}"] for n in names(f)])
        assert slips[:, 20] == pytest.approx(2.0 - 0.4 * G * 20.5 * DT, abs=1e-4)
        assert slips[:, -1].max() < 1e-4
    slid = run.u.shape[0] // 4
    rubbed = np.array([np.hypot(run[f"friction.{n}"][slid], 0) for n in names(f)])
    normal = np.array([run[f"force.{n}"][slid] for n in names(f)])
    assert rubbed == pytest.approx(0.4 * normal, abs=1e-4)


def test_the_motion_is_that_of_maximal_coordinates():
    """Both are of second order in free flight; landings differ by the step's length, and vanish with it."""
    off = []
    maps = boxed(0.5), MaximalVI(box(friction=0.5), DT)
    for dt in (8e-3, 4e-3):
        runs = [
            f.rollout(f.initial_state({"b-z": 0.4, "b-ry": 0.4}, {"b-x": 1.0}), steps=round(0.6 / dt))
            for f in (m.with_dt(dt) for m in maps)
        ]
        off.append(np.abs(runs[0]["box:x"] - runs[1]["box:x"]).max())
    assert max(off) < 0.02


def test_without_touching_it_is_the_midpoint_rule():
    f, q = walking(), {"z": 3.0, "hip": -0.5, "knee": 1.0}
    bare = leg()
    g = MidpointVI(System(bare.frames, *bare.potentials, *bare.forces), DT)
    U = 0.3 * np.sin(np.arange(40))[:, None] * [1.0, -1.0]
    run, free = f.rollout(f.initial_state(q), U), g.rollout(g.initial_state(q), U)
    pushed = f.barrier / 0.1 / DT * 40  # by contacts far off, over the run
    assert np.abs(run.x - free.x).max() < 100 * pushed


def test_a_leg_lands_on_its_foot_and_on_its_stop():
    f = walking()
    run = f.rollout(f.initial_state({"z": 1.0, "hip": -0.4, "knee": 0.8}), steps=80)
    assert run["gap.sole"].min() > 0 and run["gap.stop-lower"].min() > 0 and run["gap.stop-upper"].min() > 0
    assert run["force.stop-lower"].max() + run["force.stop-upper"].max() > 0.1
    # momentum: what the ground gave is what gravity did not take
    pushed = (run["force.sole:z"] * DT).sum(), (run["force.sole:x"] * DT).sum()
    assert run["p.z"][-1] - run["p.z"][0] == pytest.approx(pushed[0] - 3.0 * G * 80 * DT, abs=1e-9)
    assert run["p.x"][-1] - run["p.x"][0] == pytest.approx(pushed[1], abs=1e-9)
    assert (run["friction.sole"] <= 0.8 * run["force.sole"] + 1e-6).all()
    assert run.map.unit("gap.stop-lower") == "rad" and run.map.unit("force.sole") == "N"


def test_spheres_of_one_mechanism_meet_and_a_ground_may_move():
    """Two carts on a rail with spheres; one stands on a plate that a motor lifts."""
    carts = [tx(n, name=n + "-ball", mass=Mass(1.0)) for n in ("a", "b")]
    meet = PairContact("a-ball", Sphere(0.1), "b-ball", Sphere(0.1), name="bump")
    f = ContactVI(System(*carts, meet), DT)
    run = f.rollout(f.initial_state({"a": 0.0, "b": 0.5}, {"a": 1.0}), steps=80)
    assert run["gap.bump"].min() > 0
    assert run["p.a"][-1] + run["p.b"][-1] == pytest.approx(1.0, abs=1e-12)
    assert run["p.a"][-1] == pytest.approx(0.5, abs=20 * np.sqrt(f.smoothing))  # inelastic

    plate = tz(K("lift"), name="plate")
    ball = tz("z", name="ball", mass=Mass.sphere(1.0, 0.1))
    rest = Contact.sphere("ball", 0.1, ground=HalfSpace(frame="plate"), name="rest")
    f = ContactVI(System(plate, ball, DOWN, rest), DT)
    rho = 0.3 * (1 - np.cos(np.pi * np.arange(1, 101) / 100))
    run = f.rollout(f.initial_state({"z": 0.1 + 1e-9}), rho[:, None])
    assert np.abs(run["z"] - run["lift"] - 0.1).max() < 1e-7


def test_a_loop_with_contact():
    """A four-bar on a rail that a limit stops: constraints hold, and what meets the stop stays there."""
    loop = vioc.models.load("closed_chain")
    f0 = MidpointVI(loop, DT)
    q0 = f0.consistent_configuration({n: 0.3 for n in loop.dynamic}).q
    name = loop.dynamic[0]
    at = q0[loop.variable_index(name)]
    parts = (*loop.frames, *loop.potentials, *loop.forces, *loop.constraints)
    f = ContactVI(System(*parts, JointLimits(name, at - 0.2, at + 0.2, name="stop")), DT)
    run = f.rollout(f.initial_state(q0), steps=150)
    assert abs(run[name] - at).max() < 0.2
    assert max(np.abs(run[f"h.{n}"]).max() for n in loop.constraint_names) < 1e-9
    assert max(run["force.stop-lower"].max(), run["force.stop-upper"].max()) > 0.1


def test_relaxed_equations_vanish_on_steps_and_only_there():
    f = walking()
    run = f.rollout(f.initial_state({"z": 0.95, "hip": -0.4, "knee": 0.8}), steps=60)
    r, steps = f.mechanism.relaxed(), Steps.along(run)
    assert len(r.rows) == f.nx + len(r.unknowns) == r.function.numel_out(0)
    assert "sole: friction 2" not in r.unknowns  # across the plane nothing moves
    sole, w = run.multipliers[:, f.multiplier_names.index("sole")], np.zeros((60, len(r.unknowns)))
    part = run.multipliers[:, f.multiplier_names.index("sole.t1")] / (0.8 * sole)
    for name, values in zip(
        ("gap rate", "impulse", "friction 1", "friction left"),
        (f.gaps(run.x[1:])[:, 0] / DT, sole, part, 1 - part**2),
        strict=True,
    ):
        w[:, r.unknowns.index(f"sole: {name}")] = values
    for i in range(1, len(f.touches.all)):  # limits
        touch = f.touches.all[i].name
        w[:, r.unknowns.index(f"{touch}: gap rate")] = f.gaps(run.x[1:])[:, i] / DT
        w[:, r.unknowns.index(f"{touch}: impulse")] = run.multipliers[:, f.multiplier_names.index(touch)]
    assert (w >= r.lower).all()
    for k in range(60):
        rows = r.function(run.x[k], run.u[k], run.x[k + 1], w[k], k * DT, DT, f.theta, f.smoothing, 0)
        # a step centres products to 1e-6 of the barrier only
        off = dict(zip(r.rows, np.abs(ca.DM(rows).full())[:, 0], strict=True))
        assert all(v < (1e-6 if n in r.unknowns else 1e-9) for n, v in off.items())
        theirs = np.ravel(r.multipliers(w[k], DT, f.theta))
        np.testing.assert_allclose(theirs, run.multipliers[k], atol=1e-12, rtol=1e-4)
    guess = r.start(steps, 1e-3)
    assert guess.shape == w.shape and (guess >= r.lower).all() and np.isfinite(guess).all()
    wide = r.function(run.x[5], run.u[5], run.x[6], w[5], 5 * DT, DT, f.theta, 1e-2, 0)
    assert np.abs(ca.DM(wide).full()).max() > 1e-4


def test_wider_smoothing_is_another_map_of_the_same_programs():
    f = walking()
    g = f.smoothed(1e-2)
    assert g.smoothing == 1e-2 and f.smoothing == 1e-8 and g.built is f.built
    x = f.initial_state({"z": 0.85, "hip": -0.4, "knee": 0.8})
    runs = [h.rollout(x, steps=100) for h in (f, g, pickle.loads(pickle.dumps(g)))]
    assert (runs[1].x == runs[2].x).all()
    assert runs[1]["gap.sole"][-1] > 100 * runs[0]["gap.sole"][-1]
    with pytest.raises(ValueError, match="smoothing: expected a number > 0"):
        f.smoothed(0)


def test_what_it_refuses():
    f = walking()
    with pytest.raises(ConstraintError, match="gap of sole is -0.0"):
        f.rollout(f.initial_state({"z": 0.8, "knee": 0.2}), steps=1)
    with pytest.raises(ModelError, match="no contacts, limits of joints or dry friction; use MidpointVI"):
        ContactVI(System(tz("z", mass=Mass(1.0))), DT)
    with pytest.raises(ModelError, match="use ContactVI or MaximalVI"):
        MidpointVI(leg(), DT)
    with pytest.raises(ModelError, match="coefficient of friction of sole is 0"):
        slick = ContactVI(leg(mu=P("mu", 0.5)), DT).with_parameters(mu=0.0)
        slick.rollout(slick.initial_state({"z": 1.0, "knee": 0.5}), steps=1)
    with pytest.raises(ModelError, match="nothing moves the gap of corner"):
        still = Contact.sphere("post", 0.1, name="corner")
        ContactVI(System(tz(1.0, name="post"), tx("x", mass=Mass(1.0)), still), DT)


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
def test_compiled_steps_are_the_same():
    """Rollouts, steps apart, feedback; of round and linear cones, a loop, and in pieces."""
    for make, q in (
        (walking, {"z": 0.95, "hip": -0.4, "knee": 0.8}),
        (lambda backend: boxed(0.4, "linear", backend), {"b-z": 0.3, "b-ry": 0.4}),
    ):
        f, g = make("virtual"), make("compiled")
        x = f.initial_state(q)
        run, other = f.rollout(x, steps=60), g.rollout(x, steps=60)
        # what a step leaves is 1e-11; of impulses as much as their products are off the barrier
        assert np.abs(run.x - other.x).max() < 1e-7
        steps, apart = (h.steps_at(run.x[:-1], run.u) for h in (f, g))
        assert np.abs(steps.x1 - apart.x1).max() < 1e-8
        K = 0.1 * np.random.default_rng(0).standard_normal((60, f.nu, f.ndx))
        tracked = [h.track(x, run.x + 0.01, run.u, K) for h in (f, g)]
        assert np.abs(tracked[0].u - tracked[1].u).max(initial=0.0) < 1e-6
        A = [np.concatenate(tuple(h.linearize_trajectory(run)), axis=-1) for h in (f, g)]
        assert np.abs(A[0] - A[1]).max() < 1e-9 * np.abs(A[0]).max()
    wrapped = [ContactVI(leg(), DT, backend=b, wrap=("hip",)) for b in ("virtual", "compiled")]
    x = wrapped[0].initial_state({"z": 0.95, "hip": -0.4, "knee": 0.8})
    K, X = (
        np.full((3, 2, 8), 0.1),
        np.tile(x + 6.0 * np.array([n == "hip" for n in wrapped[0].state_names]), (3, 1)),
    )
    by = [h.track(x, X, np.zeros((3, 2)), K).u for h in wrapped]
    assert by[0][0, 0] == pytest.approx(-0.1 * (2 * np.pi - 6.0)) and np.abs(by[0] - by[1]).max() < 1e-9


@pytest.mark.parametrize("backend", ["virtual", "compiled"])
def test_random_landings_are_solved_and_lose_energy(backend):
    """Boxes that tumble, legs that fall on knee and foot: no step fails, none gains energy."""
    random = np.random.default_rng(3)
    count = 3 if backend == "virtual" else 30
    boxes = boxed(0.5, backend=backend)
    for _ in range(count):
        q = {"b-z": 0.6, **dict(zip(("b-rz", "b-ry", "b-rx"), random.uniform(-0.6, 0.6, 3), strict=True))}
        rates = random.normal(size=4) * [1, 1, 2, 2]
        v = dict(zip(("b-x", "b-y", "b-rz", "b-rx"), rates, strict=True))
        run = boxes.rollout(boxes.initial_state(q, v), steps=60, warn=False)
        assert min(run[f"gap.{n}"].min() for n in names(boxes)) > 0
        # between samples in free flight the midpoint rule's energy is off by O(dt^2)
        assert run["energy"][-1] < run["energy"][0] + 0.01


@pytest.mark.parametrize("backend", ["virtual", "compiled"])
@pytest.mark.parametrize("kind", [ContactVI, MaximalVI])
def test_a_step_is_the_same_bits_wherever_it_is_taken(kind, backend):
    """Nothing of the steps before enters, so that what a motion does next is told by its state."""
    f, random = walking(backend, kind), np.random.default_rng(7)
    x = f.initial_state({"z": 0.85, "hip": 0.4, "knee": 0.8}, {"x": 0.4, "z": -1.0})
    run = f.rollout(x, random.standard_normal((60, f.nu)), warn=False)
    assert run["force.sole"].max() > 1.0
    own = f.steps_at(run.x[:-1], run.u)
    assert np.array_equal(own.x1, run.x[1:]) and np.array_equal(own.multipliers, run.multipliers)
    assert all(np.array_equal(f.step(run.x[k], run.u[k], k=k), run.x[k + 1]) for k in (0, 1, 20, 41, 59))
    assert np.array_equal(f.rollout(run.x[25], run.u[25:], k0=25).x, run.x[25:])


@pytest.mark.parametrize("backend", [pytest.param("virtual", marks=pytest.mark.slow), "compiled"])
def test_no_step_takes_a_root_that_is_no_motion(backend, monkeypatch):
    """A loose leg whose trunk pulls it taut at a long step: other roots of its steps gain a thousandfold."""
    loose = System(*leg().frames, DOWN, Contact.sphere("foot", 0.05, friction=0.8, name="sole"))
    f, own = ContactVI(loose, 2 * DT, backend=backend), resting

    def gains():
        random = np.random.default_rng(5)
        found, ends = [], []
        for _ in range(4):
            q = {"z": 1.0, "hip": random.uniform(-1, 1), "knee": random.uniform(-2, 2)}
            v = {"hip": random.normal() * 8, "knee": random.normal() * 8, "z": -2.0}
            try:
                run = f.rollout(f.initial_state(q, v), steps=40, warn=False)
            except StepError as error:
                run = error.trajectory
                ends.append(error.cause)
            found.append(np.diff(run["energy"]).max() / run["energy"][0])
        return max(found), ends

    # a sample within an impact reads the momentum before it: not gained, and lost again
    gained, ends = gains()
    assert gained < 0.3 and "fold" in ends
    monkeypatch.setattr(own, "check_branch", lambda *_: None)
    assert gains()[0] > 100


def looked_at(monkeypatch) -> list[bool]:
    """The outcome of every root that no kernel certified, in the order of the steps: True if it passed."""
    own, passed = resting, []
    check = own.check_branch

    def noted(*arguments):
        passed.append(False)
        check(*arguments)
        passed[-1] = True

    monkeypatch.setattr(own, "check_branch", noted)
    return passed


@pytest.mark.parametrize("dt", [1e-3, 0.3, 30.0])
def test_linear_steps_with_contact_are_certified_by_how_they_are_linear(dt, monkeypatch):
    """A ball on a spring above a table that is lifted: no angle turns, however long the step."""
    passed = looked_at(monkeypatch)
    table = tx(K("slide"))[tz(K("lift"), mass=2.0)[tx("x")[tz("z", name="ball", mass=1.0)]]]
    spring = vioc.TorsionalSpring("z", 40.0, 1.0)
    f = ContactVI(System(table, DOWN, spring, Contact("ball", radius=0.1, name="toe")), dt)
    run = f.rollout(f.initial_state({"z": 1.0}), 0.1 * np.arange(12).reshape(6, 2), warn=False)
    assert len(run) == 6 and passed == []


@pytest.mark.parametrize("rates", [(8.0, 8.0), (10.0, -10.0)])
def test_steps_with_contact_that_turn_far_are_followed_like_those_without(rates, monkeypatch):
    """Two links that turn by a radian a step, one geared to a wheel, high above the ground."""
    passed = looked_at(monkeypatch)
    link = Mass(1.0, (0.08, 0.08, 0.01), (0, 0, -0.5))
    lower = ry("b", mass=link)[tz(-1.0, name="tip")]
    arm = vioc.se3((0, 0, 10.0))[ry("a", mass=link)[tz(-1.0)[lower]]]
    wheel, gear = ry("c", mass=Mass(1.0, (0.01, 0.01, 0.01))), vioc.components.GearConstraint("b", "c", 0.5)
    ground = Contact("tip", radius=0.1, name="far")
    f = ContactVI(System(arm, wheel, DOWN, gear, ground), 0.1)
    g = MidpointVI(System(arm, wheel, DOWN, gear), 0.1)
    q, v = {"a": 0.5, "b": -0.3, "c": -0.6}, {"a": rates[0], "b": rates[1], "c": 2 * rates[1]}
    run, free = (m.rollout(m.initial_state(q, v), steps=8, warn=False) for m in (f, g))
    assert passed and all(passed)
    np.testing.assert_allclose(run.x, free.x, rtol=0, atol=1e-7)  # impulses of 1e-8 / 9 m at most
    np.testing.assert_allclose(run.multipliers[:, 0], free.multipliers[:, 0], rtol=0, atol=1e-7)
    assert np.abs(free.multipliers).min() > 1e-3


def test_spheres_that_pass_through_each_other_are_told_of():
    carts = [tx(n, name=n + "-ball", mass=Mass(1.0)) for n in ("a", "b")]
    f = ContactVI(System(*carts, PairContact("a-ball", Sphere(0.1), "b-ball", Sphere(0.1), name="bump")), DT)
    with pytest.warns(CrossingWarning, match="bump is crossed within a step"):
        f.rollout(f.initial_state({"a": 0.0, "b": 0.5}, {"a": 100.0}), steps=2)


@pytest.mark.parametrize("seed", [1, 2])
def test_steps_beside_a_distance_are_the_same_in_millimetres(seed):
    def moved(L):
        rng = np.random.default_rng(seed)
        rod = vioc.Mass(1.0, (0.01 * L**2,) * 3, (0, 0, -0.2 * L))
        low = vioc.spherical("b", mass=rod)[vioc.tz(-0.4 * L, name="tip")]
        links, at = vioc.spherical("a", mass=rod)[vioc.tz(-0.4 * L)[low]], rng.uniform(-1, 1, 3)
        bare = vioc.System(links, vioc.se3(tuple(L * at), name="pin"))
        q = rng.uniform(-0.5, 0.5, 6)
        far = float(np.linalg.norm(vioc.Kinematics(bare).position("tip", q) - L * at))
        terms = vioc.DistanceConstraint("tip", "pin", far), vioc.JointLimits("a-rz", -1.0, 1.0)
        system = vioc.System(*bare.frames, vioc.Gravity(0, 0, -9.81 * L), *terms)
        f = vioc.ContactVI(system, 0.01, smoothing=1e-8 * L**2)
        return f.rollout(f.initial_state(q), steps=20).x[-1, :6]

    np.testing.assert_allclose(moved(1e3), moved(1.0), rtol=0, atol=1e-8)
