"""Contact, friction and limits of `MaximalVI`: closed forms, and the complementarity problem in numpy."""

import pickle
from itertools import product

import numpy as np
import pytest
from support.maximal_contacts import BALL, CONES, CUBE, DT, EDGE, G, R, ball, balls, box, gaps

import vioc
from vioc import (
    Contact,
    Gravity,
    JointLimits,
    LinearTimeVI,
    Mass,
    MaximalVI,
    MidpointVI,
    PairContact,
    RungeKutta,
    System,
    ry,
    se3,
    tz,
)

# inside: the program of one body's step is looked at as it is written
from vioc.dynamics.integrators.maximal.body_tape import BodyTape
from vioc.errors import ConstraintError, ModelError, StepError
from vioc.shapes import HalfSpace, Sphere

# -- the box, and closed forms -----------------------------------------------------------------


@pytest.mark.parametrize("cone", CONES)
def test_box_at_rest_reads_at_rest(cone):
    """The state is that of the body in contact too, and a standing one a fixed point of the step."""
    f = MaximalVI(box(cone=cone), DT)
    run = f.rollout(f.initial_state({"b-z": EDGE / 2 + 2.5e-10}), steps=30)  # where four corners hover
    assert np.abs(run["v.b-z"][3:]).max() < 1e-11
    assert np.ptp(run.energy[3:]) < 1e-11 and run["kinetic"][3:].max() < 1e-20
    assert run["force.corner-1:z"] == pytest.approx(np.full(30, G / 4), rel=1e-2)
    fall = f.rollout(f.initial_state({"b-z": EDGE / 2 + 0.4}), steps=28)
    assert fall["v.b-z"] == pytest.approx(-G * fall.t, abs=4e-7)  # but for kappa over the gap


@pytest.mark.parametrize("cone", CONES)
def test_dropped_box_never_enters_the_ground_and_rests_on_it(cone):
    f = MaximalVI(box(cone=cone), DT)
    run = f.rollout(f.initial_state({"b-z": EDGE / 2 + 0.4}), steps=60)
    low = gaps(run).min(axis=0)
    assert low.min() > 0  # the issue asks for -1e-6
    assert low[-1] < 5e-8  # and for 5e-5
    weight = sum(run[f"force.corner-{i}:z"][-1] for i in range(1, 9))
    assert weight == pytest.approx(G, rel=1e-6)
    fall = np.flatnonzero(low < 1e-6)[0]
    assert fall * DT == pytest.approx(np.sqrt(2 * 0.4 / G), abs=DT)


def test_hovering_is_what_the_smoothing_says():
    for smoothing in (1e-8, 1e-4):
        f = MaximalVI(ball(), DT, smoothing=smoothing)
        run = f.rollout(f.initial_state({"b-z": R + smoothing / G}), steps=50)
        assert run["gap.foot"][-1] == pytest.approx(smoothing / G, rel=1e-4)


def test_the_push_of_a_wide_gap():
    """The law that docs/maths/contact.md has for the end of a step, at gaps between hovering and far."""
    smoothing = 1e-4
    f = MaximalVI(ball(), DT, smoothing=smoothing)
    fastest = 50 * np.sqrt(BALL.inertia[0] / BALL.mass) / DT  # lengths of the mechanism per step
    for gap in (1e-5, 1e-4, 3e-4, 1e-3, 3e-3):
        x = f.initial_state({"b-z": R + gap}, {"b-z": G * DT})  # it is there again after a step or two
        step = f.interior.solve(x, np.zeros(0), 0.0, DT, f.theta)
        s, speed = (step.x[2] - R) / DT, step.x[9]
        wide = s**5 / smoothing**2
        law = 0.5 * smoothing / (s + wide / (1 + wide / fastest) + speed)
        assert step.ends[1].impulses[0] == pytest.approx(law, rel=1e-5)


@pytest.mark.parametrize("cone", CONES)
def test_sliding_box_stops_where_coulomb_says(cone):
    mu, v, dt = 0.6, 2.0, 0.005
    f = MaximalVI(box(mu, cone), dt)
    x = f.initial_state({"b-z": EDGE / 2 + 1e-9}, {"b-x": v})
    run = f.rollout(x, steps=90)
    stop = v**2 / (2 * mu * G)
    assert run["box:x"][-1] == pytest.approx(stop, abs=mu * G * dt**2)  # of the step in which it stops
    assert run["v.b-x"][:60] == pytest.approx(v - mu * G * run.t[:60], abs=1e-4)
    assert run["friction.corner-1"][10] > 0.05 * mu * G  # one of four below
    total = sum(run[f"force.corner-{i}:x"][10] for i in range(1, 9))
    assert total == pytest.approx(-mu * G, rel=1e-5)
    assert np.ptp(run["box:x"][-20:]) < 1e-5
    late = f.initial_state({"b-z": EDGE / 2 + 1e-9}, {"b-x": v}, start="given")
    assert f.rollout(late, steps=80)["box:x"][-1] == pytest.approx(stop - v * dt / 2, rel=1e-4)  # first order


def test_linear_cone_is_too_weak_off_its_directions_and_more_directions_repair_it():
    stops = {}
    for directions in (4, 16):
        corners = Contact.box("box", (EDGE,) * 3, friction=0.3, directions=directions, cone="linear")
        f = MaximalVI(System(vioc.free("b", frame="box", mass=CUBE), Gravity(0, 0, -G), corners), DT)
        angle = np.pi / directions  # between two directions
        v = np.array([np.cos(angle), np.sin(angle)])
        x = f.initial_state({"b-z": EDGE / 2 + 1e-9}, {"b-x": v[0], "b-y": v[1]})
        run = f.rollout(x, steps=55)
        stops[directions] = np.hypot(run["box:x"][-1], run["box:y"][-1])
    round_one = 1 / (2 * 0.3 * G)
    assert stops[4] == pytest.approx(round_one / np.cos(np.pi / 4), rel=0.015)
    assert stops[16] == pytest.approx(round_one / np.cos(np.pi / 16), rel=0.015)


@pytest.mark.parametrize("degrees", [20.0, 45.0])
def test_thrown_box_stops_where_coulomb_says_in_any_direction(degrees):
    mu, v = 0.4, 2.0
    corners = Contact.box("box", (EDGE,) * 3, friction=mu)
    f = MaximalVI(System(vioc.free("b", frame="box", mass=CUBE), Gravity(0, 0, -G), corners), DT)
    along = np.array([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))])
    x = f.initial_state({"b-z": EDGE / 2 + 1e-9}, {"b-x": v * along[0], "b-y": v * along[1]})
    run = f.rollout(x, steps=60)
    path = np.column_stack([run["box:x"], run["box:y"]])
    assert path[-1] @ along == pytest.approx(v**2 / (2 * mu * G), abs=mu * G * DT**2)  # 0.5097 m
    assert np.abs(path @ [-along[1], along[0]]).max() < 1e-6


@pytest.mark.parametrize("cone", [pytest.param("linear", marks=pytest.mark.slow), "second-order"])
def test_incline_sticks_and_slips_at_one_percent_of_its_angle(cone):
    angle = 0.3
    ground = HalfSpace(normal=(-np.sin(angle), 0, np.cos(angle)))
    travel = {}
    for factor in (0.99, 1.01):
        f = MaximalVI(box(factor * np.tan(angle), cone, ground=ground), DT, smoothing=1e-11)
        up = (EDGE / 2 + 1e-8) * np.array([-np.sin(angle), 0, np.cos(angle)])
        x = f.initial_state({"b-x": up[0], "b-z": up[2], "b-ry": -angle})
        run = f.rollout(x, steps=60)
        travel[factor] = -(run["box:x"][-1] - run["box:x"][0]) / np.cos(angle)
    slip = 0.5 * G * (np.sin(angle) - 0.99 * np.tan(angle) * np.cos(angle)) * 0.6**2
    assert travel[0.99] == pytest.approx(slip, rel=0.02)
    assert abs(travel[1.01]) < 3e-6


@pytest.mark.parametrize("cone", CONES)
def test_sliding_ball_ends_rolling(cone):
    f = MaximalVI(ball(0.2, cone), 0.002)
    run = f.rollout(f.initial_state({"b-z": R + 1e-9}, {"b-x": 1.4}), steps=150)
    assert run["vx.ball"][-1] == pytest.approx(1.0, rel=1e-4)  # 5/7 of it
    assert run["wy.ball"][-1] * R == pytest.approx(1.0, rel=1e-4)
    assert run["slip.foot"][10] == pytest.approx(run["vx.ball"][10] - R * run["wy.ball"][10], rel=1e-5)


def test_colliding_balls_keep_momentum_and_do_not_bounce():
    f = MaximalVI(balls(2, friction=0.4), DT)
    q = {"b0-x": -0.6, "b1-x": 0.0, "b1-y": 0.2, "b1-z": 0.1}
    run = f.rollout(f.initial_state(q, {"b0-x": 2.0, "b1-rz": 3.0}), steps=60)
    for axis, what in product("xyz", ("momentum", "angular")):
        assert np.ptp(run[f"{what}:{axis}"]) < 1e-12
    assert run["gap.p10"].min() > 0
    assert run.energy[-1] < 0.99 * run.energy[0]
    hit = int(np.argmax(run["force.p10"]))
    assert run["force.p10"][hit] > 10
    assert run["gap.p10"][hit + 1] < 1e-6


@pytest.mark.parametrize(
    ("speed", "aside", "through"), [(150.0, 0.0, True), (150.0, 0.8, False), (5.0, 0.0, False)]
)
def test_spheres_that_pass_through_each_other_are_told_of(speed, aside, through, recwarn):
    """A gap of 1 mm to 2 m on both sides of a body: what is tested at the ends of steps only."""
    f = MaximalVI(balls(2), DT)
    x = f.initial_state({"b0-x": -0.75, "b0-y": aside}, {"b0-x": speed})
    run = f.rollout(x, steps=3)
    told = [str(w.message) for w in recwarn if w.category is vioc.errors.CrossingWarning]
    assert bool(told) == through
    if through:
        assert run["gap.p10"].min() > 0  # nothing else shows it
        assert "p10 is crossed within a step" in told[0] and "0.5 m below zero" in told[0]
    f.rollout(x, steps=3, warn=False)
    assert len(told) == len([w for w in recwarn if w.category is vioc.errors.CrossingWarning])


def test_spheres_that_slide_around_each_other_do_not_cross(recwarn):
    f = MaximalVI(balls(2), DT, smoothing=1e-6)
    x = f.initial_state({"b0-x": -2 * R - 1e-4, "b0-y": 0.05}, {"b0-x": 3.0, "b0-y": 1.0})
    run = f.rollout(x, steps=40)
    assert run["force.p10"].max() > 1
    assert not [w for w in recwarn if w.category is vioc.errors.CrossingWarning]


def test_angle_that_leaps_over_its_limits_is_told_of():
    stop = JointLimits("a", -3.0, 3.0, name="stop")
    f = MaximalVI(System(ry("a", mass=CUBE), stop), 0.1)
    with pytest.warns(vioc.errors.CrossingWarning, match="stop-upper is crossed within a step"):
        f.rollout(f.initial_state({"a": 2.8}, {"a": 9.0}), steps=1)


def test_code_does_not_grow_with_pairs():
    """Eight spheres have 28 pairs and a matrix that is full: the functions are those of four."""
    tapes = [BodyTape(MaximalVI(balls(n, friction=0.3), DT).graph, 0) for n in (4, 8)]
    few, many = ([g.n_instructions() for g in tape.functions] for tape in tapes)
    assert len(few) == len(many)
    assert sum(many) < 1.01 * sum(few)


def test_limited_pendulum_stops_at_its_limits():
    rod = Mass(1.0, (1 / 12, 1 / 12, 0.01), (0, 0, -0.5))
    system = System(ry("a", mass=rod), Gravity(0, 0, -G), JointLimits("a", 0.3, 1.0, name="stop"))
    f = MaximalVI(system, DT)
    run = f.rollout(f.initial_state({"a": 0.9}, {"a": 3.0}), steps=100)
    assert 0.3 < run["a"].min() < 0.3 + 1e-6
    assert 1.0 - 1e-6 < run["a"].max() < 1.0
    assert run["force.stop-lower"][-1] == pytest.approx(G * 0.5 * np.sin(0.3), rel=1e-6)  # N m
    assert f.unit("gap.stop-lower") == "rad"
    assert f.unit("force.stop-lower") == "N m"


def test_capsule_and_point_rest_on_a_half_space_of_another_frame():
    shapes = Contact.capsule("rod", 0.1, 0.8, axis=(1, 0, 0), friction=0.3, ground=HalfSpace(frame="floor"))
    floor = se3((0, 0, 1.0), name="floor")
    f = MaximalVI(
        System(floor, vioc.free("b", frame="rod", mass=CUBE), Gravity(0, 0, -G), shapes, name="rod"), DT
    )
    run = f.rollout(f.initial_state({"b-z": 1.3, "b-ry": 0.2}), steps=100)
    assert run["rod:z"][-1] == pytest.approx(1.1, abs=1e-6)
    assert f.multiplier_names == (
        *("contact-1", "contact-1.t1", "contact-1.t2", "contact-1.slip"),
        *("contact-2", "contact-2.t1", "contact-2.t2", "contact-2.slip"),
    )
    tip = System(vioc.free("b", frame="p", mass=CUBE), Contact.point("p", (0, 0, -0.2), name="tip"))
    g = MaximalVI(tip, DT)
    assert g.rollout(g.initial_state({"b-z": 0.5}), steps=1)["gap.tip"][0] == pytest.approx(0.3)


def test_pile_of_balls_in_a_pit():
    walls = [HalfSpace(normal=n, point=(0, 0, -0.5)) for n in ((1, 0, 1), (-1, 0, 1), (0, 1, 1), (0, -1, 1))]
    count = 2
    base = balls(count, friction=0.3)
    feet = [Contact.sphere(f"ball{i}", R, friction=0.3, ground=w) for i in range(count) for w in walls]
    f = MaximalVI(base.with_components(Gravity(0, 0, -G), feet), DT)
    q = {f"b{i}-{a}": v * i for i in range(count) for a, v in (("x", 0.3), ("y", -0.2), ("z", 0.4))}
    run = f.rollout(f.initial_state(q), steps=150)
    assert gaps(run).min() > 0
    assert np.abs(run.x[-1, 7 * count :]).max() < 0.05  # at rest, but for slow rolling
    total = sum(run[f"force.contact-{i + 1}:z"][-1] for i in range(4 * count))
    assert total == pytest.approx(count * G, rel=0.02)


# -- derivatives ------------------------------------------------------------------------------------------


def _differences(call, f, x, u, h):
    columns = []
    for e in np.eye(f.ndx):
        columns.append((call(f.retract(x, h * e), u) - call(f.retract(x, -h * e), u)) / (2 * h))
    for e in np.eye(f.nu):
        columns.append((call(x, u + h * e) - call(x, u - h * e)) / (2 * h))
    return np.stack(columns, axis=-1)


@pytest.mark.parametrize("cone", CONES)
def test_derivatives_are_those_of_the_smoothed_step(cone):
    push = vioc.WrenchInput("box", "push", (1.0, 0.3, 0), axes="hybrid")
    f = MaximalVI(box(0.5, cone, push), DT, smoothing=1e-4)
    x = f.initial_state({"b-z": 0.27, "b-ry": 0.05}, {"b-x": 0.4})
    run = f.rollout(x, np.full((6, 1), 3.0))
    x, u = run.x[-1], np.array([3.0])
    lin = f.linearize(x, u)
    x1 = f.step(x, u)
    one = _differences(lambda a, b: f.difference(x1, f.step(a, b)), f, x, u, 1e-6)
    two = _differences(lambda a, b: f.difference(x1, f.step(a, b)), f, x, u, 2e-6)
    limit = one + (one - two) / 3
    whole = np.hstack([lin.A, lin.B])
    assert np.abs(whole - limit).max() < 1e-6 * np.abs(whole).max()
    z = np.linspace(-1, 1, f.ndx)

    def pulled(a, b):
        """z' d(error of the next state) by an input, which needs no transport."""
        return z[f.ndx // 2 :] @ f.linearize(a, b).B[f.ndx // 2 :]

    z[: f.ndx // 2] = 0
    H = f.second_order(x, u, z)
    mixed = _differences(pulled, f, x, u, 1e-6)[0]
    exact = np.concatenate([H.xu[:, 0], H.uu[0]])
    assert np.abs(mixed - exact).max() < 1e-4 * np.abs(exact).max()


def test_derivatives_of_a_resting_box_hold_it():
    f = MaximalVI(box(), DT)
    x = f.rollout(f.initial_state({"b-z": EDGE / 2 + 1e-8}), steps=50).x[-1]
    A, _ = f.linearize(x)
    assert np.abs(A[6:, 6:]).max() < 1e-3  # velocities are taken from it


# -- descriptions and errors ------------------------------------------------------------------------------


def test_components_are_written_read_printed_and_pickled():
    rail, core = JointLimits("b-x", -1.0, 1.0, name="rail"), Contact.sphere("box", 0.1, cone="linear")
    system = box().with_components(rail, core)
    text = vioc.write_text(system)
    assert '(CONTACT "box" (0.0 0.0 1.0) 0.0 (-0.25 -0.25 -0.25) 0.0 0.5 4 "second-order" "world"' in text
    assert vioc.read_text(text) == system
    assert pickle.loads(pickle.dumps(system)) == system
    assert system.inequality_names[-2:] == ("rail", "contact-9")
    assert "10 contacts and limits" in str(system)
    pair = balls(2)
    assert vioc.read_text(vioc.write_text(pair)) == pair
    f = pickle.loads(pickle.dumps(MaximalVI(system, DT, smoothing=1e-6)))
    assert f.smoothing == 1e-6
    assert f.kernel is None
    assert "8 contacts and limits" in repr(MaximalVI(box(), DT))


def test_friction_may_be_a_parameter():
    f = MaximalVI(box(vioc.P("mu", 0.3)), DT)
    x = f.initial_state({"b-z": EDGE / 2 + 1e-9}, {"b-x": 1.0})
    ends = [g.rollout(x, steps=40)["box:x"][-1] for g in (f, f.with_parameters(mu=0.6))]
    assert ends[0] == pytest.approx(2 * ends[1], rel=0.01)
    with pytest.raises(ModelError, match=r"friction of corner-1 is -0.1, expected > 0"):
        f.trying(mu=-0.1).step(x)
    with pytest.raises(ModelError, match=r"contact 'corner-1': friction: expected at least 0, got -0.1"):
        f.with_parameters(mu=-0.1)
    slope = f.linearize(x).P[6, 0]  # of v_x by mu, sliding
    assert slope == pytest.approx(-G * DT, rel=1e-4)


def test_bad_descriptions_are_refused():
    with pytest.raises(ModelError, match="friction: expected at least 0, got -0.1"):
        Contact.point("a", friction=-0.1)
    for directions in (3, 5, 2, 4.5):
        with pytest.raises(ModelError, match="even number of directions"):
            Contact("a", directions=directions)
    with pytest.raises(ModelError, match="expected one of second-order, linear"):
        Contact("a", cone="round")
    with pytest.raises(ModelError, match="lower < upper, got 1 and -1"):
        JointLimits("a", 1.0, -1.0)
    with pytest.raises(ModelError, match="zero vector"):
        HalfSpace(normal=(0, 0, 0))
    with pytest.raises(ModelError, match="box: size"):
        Contact.box("a", (1, 1, 0))
    with pytest.raises(ModelError, match="capsule: length"):
        Contact.capsule("a", 0.1, 0.0)
    with pytest.raises(ModelError, match="two radii"):
        PairContact("a", Sphere(0.0), "b", Sphere(0.0))


def test_bad_systems_are_refused():
    arm = ry("a", name="upper", mass=CUBE)[tz(1.0)[ry("b", name="lower", mass=CUBE)]]
    with pytest.raises(ModelError, match="a revolute joint connects their bodies"):
        MaximalVI(System(arm, PairContact("upper", Sphere(R), "lower", Sphere(R))), DT)
    with pytest.raises(ModelError, match="plane's frame 'upper' moves"):
        MaximalVI(System(arm, Contact.point("lower", ground=HalfSpace(frame="upper"))), DT)
    with pytest.raises(ModelError, match="'world' does not move"):
        MaximalVI(System(arm, Contact.point("world")), DT)
    for kind in (MidpointVI, LinearTimeVI, RungeKutta):
        with pytest.raises(ModelError, match="corner-1; use ContactVI or MaximalVI"):
            kind(box(), DT)
    with pytest.raises(ValueError, match="smoothing: expected a number > 0"):
        MaximalVI(box(), DT, smoothing=0.0)


@pytest.mark.parametrize(("lower", "upper", "which"), [(0.0, 4.0, "upper: 4"), (-90.0, 1.0, "lower: -90")])
def test_limits_of_angles_beyond_half_a_turn_are_refused(lower, upper, which):
    stop = JointLimits("a", lower, upper, name="stop")
    with pytest.raises(
        ModelError, match=rf"joint-limits 'stop': {which} rad is outside \(-pi, pi\].*radians\?"
    ):
        MaximalVI(System(ry("a", mass=CUBE), stop), DT)
    MaximalVI(System(vioc.tx("a", mass=CUBE), stop), DT)  # m


def test_start_beyond_a_limit_is_told_by_its_variable():
    stop = JointLimits("a", -1.0, 0.8, name="stop")
    for start, what in (
        (1.2, "0.4 rad beyond its upper limit 0.8"),
        (-1.5, "0.5 rad beyond its lower limit -1"),
    ):
        f = MaximalVI(System(ry("a", mass=CUBE), stop), DT)
        with pytest.raises(ConstraintError, match=f"'a' starts {what}, expected -1 to 0.8"):
            f.rollout(f.initial_state({"a": start}), steps=1)


def test_bad_starts_and_steps_are_refused():
    f = MaximalVI(box(), DT)
    with pytest.raises(ConstraintError, match=r"penetration: the gap of corner-1 is -0.05 m.* 3 more"):
        f.rollout(f.initial_state({"b-z": 0.2}), steps=5)
    f.step(f.initial_state({"b-z": EDGE / 2 - 5e-7}))  # rounding of a start is accepted
    x = f.initial_state({"b-z": 1.0})
    x[-1] = 350.0
    with pytest.raises(StepError, match="turns by 3.5 rad within a step") as caught:
        f.rollout(x, steps=5)
    assert caught.value.k == 0
    assert caught.value.cause == "no convergence"
