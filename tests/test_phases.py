"""Motions whose contacts are known beforehand: modes, touch-down, one trajectory, feedback through it."""

import pickle
import warnings

import casadi as ca
import numpy as np
import pytest
from scipy.optimize import brentq, fsolve

import vioc
from vioc import (
    Contact,
    ContactVI,
    Gravity,
    JointForce,
    JointLimits,
    Mass,
    ModelError,
    ModeVI,
    System,
    Trajectory,
    ry,
    tx,
    ty,
    tz,
)
from vioc.control import Cost, controllability, dlqr, dmoc, floquet, join
from vioc.errors import SlackWarning
from vioc.maps import SwitchedMap, check_map

G = 9.81


@pytest.fixture(scope="module")
def hopper():
    """A body on a leg with a round foot: 4 variables, 2 motors."""
    foot = tz("r", name="foot", mass=Mass(0.1, (1e-3, 1e-3, 1e-3)))
    body = tx("x")[tz("z")[ry("tilt", name="body", mass=Mass(1.0, (0.1, 0.1, 0.1)))[foot]]]
    toe = Contact.sphere("foot", 0.05, friction=0.8, name="toe")
    forces = JointForce("r", "push"), JointForce("tilt", "hip")
    return System(body, Gravity(0, 0, -G), *forces, toe, JointLimits("r", -0.8, -0.2, name="leg"))


@pytest.fixture(scope="module")
def stance(hopper):
    return ModeVI(hopper, 0.01, "toe")


@pytest.fixture(scope="module")
def hop(stance):
    """Stands, hops half a metre, stands."""
    flight = stance.holding()

    def phase(f, **options):
        u = f.symbols.u
        cost = Cost(f, f.symbols.dt * (0.01 * u[0] ** 2 + u[1] ** 2))
        bounds = {"u.push": 40.0, "u.hip": 5.0, "r": (-0.6, -0.25)}
        return dmoc.Phase(f, 16, cost, bounds=bounds, duration=(0.1, 0.6), **options)

    rest = {"x": 0.5, "tilt": 0.0, "z": 0.5, "v.x": 0.0, "v.z": 0.0}
    start = stance.initial_state({"z": 0.5, "r": -0.45})
    phases = [phase(stance, initial=start), phase(flight), phase(stance, final=rest)]
    places = np.linspace(0, 0.5, 17)[:, None] * np.eye(8)[0] + start
    U = np.tile([-1.1 * G, 0.0], (16, 1))
    guess = [(places * 0 + start, U), (places, 0 * U), (places * 0 + places[-1], U)]
    return dmoc.Problem(phases).solve(guess)


# -- one mode ------------------------------------------------------------------------------------------


def test_modes_keep_the_protocol(stance):
    x = stance.initial_state({"z": 0.55, "r": -0.5})
    run = stance.rollout(x, np.tile([-1.1 * G, 0.3], (5, 1)))
    check_map(stance, run.x[-1], run.u[0])
    assert stance.multiplier_names == ("toe", "toe.t1")  # across the plane nothing moves
    assert set(stance.mechanism.limits()) == {"force.toe", "grip.toe", "gap.leg-lower", "gap.leg-upper"}
    assert stance.unit("gap.toe") == "m" and stance.unit("grip.toe") == "N"


def test_a_touch_is_inelastic_and_its_impulse_the_step_s():
    """A point falls: at the joint it has m v, and m v + m g dt/2 is what stops it, exactly."""
    m, v, h = 2.0, 3.0, 0.01
    system = System(tz("z", name="b", mass=m), Gravity(0, 0, -G), Contact.point("b", name="c"))
    f = ModeVI(system, h, "c")
    run = f.rollout([0.0, -m * v], steps=3)
    assert run["lambda.c"] == pytest.approx([m * v + m * G * h / 2, m * G * h, m * G * h], rel=1e-12)
    assert np.abs(run["z"]).max() < 1e-15 and np.abs(run["v.z"]).max() < 1e-12


def test_what_sticks_rolls():
    """A wheel under a torque rolls: x = radius angle, acceleration and friction in closed form."""
    m, inertia, radius, torque = 3.0, 0.05, 0.2, 0.7
    hub = ry("turn", name="wheel", mass=Mass(m, (inertia,) * 3))
    rim = Contact.sphere("wheel", radius, friction=1.0, name="rim")
    system = System(tx("x")[tz("z")[hub]], Gravity(0, 0, -G), JointForce("turn", "torque"), rim)
    f, g = ModeVI(system, 0.02, "rim"), ContactVI(system, 0.02, smoothing=1e-12)
    start = f.initial_state({"z": radius})
    run = f.rollout(start, np.tile(torque, (50, 1)))
    rate = torque * radius / (inertia + m * radius**2)
    assert run["x"][-1] == pytest.approx(rate / 2, rel=1e-12)
    assert run["x"] == pytest.approx(radius * run["turn"], abs=1e-14)
    # the first impulse is half of one: the start's momentum has none
    assert run["force.rim:x"][1:] == pytest.approx(m * rate, rel=1e-9)
    assert run["friction.rim"][0] == pytest.approx(m * rate / 2, rel=1e-9)
    assert run["grip.rim"][1:] == pytest.approx(m * G - m * rate, rel=1e-9)
    # with contact that finds out by itself it is the same motion, but for the smoothing
    free = g.rollout(start + 1e-9 * np.eye(6)[1], np.tile(torque, (50, 1)))
    assert np.abs(free.x - run.x).max() < 1e-6
    assert free["grip.rim"][1:] == pytest.approx(run["grip.rim"][1:], abs=1e-4)
    slides = f.holding(sliding="rim").rollout(start, np.tile(torque, (50, 1)))
    assert abs(slides["x"][-1]) < 1e-15 and slides["turn"][-1] == pytest.approx(torque / inertia / 2)


def test_cones_as_limits():
    """What is inside the polygon, or the circle, is >= 0, and what is outside is not."""
    for cone, most in (("linear", 1 / np.sqrt(2)), ("second-order", 1.0)):
        free = tx("x")[ry("a", name="b", mass=Mass(1.0, (1.0, 1.0, 1.0)))]
        ball = Contact.point("b", (0.1, 0.2, 0.3), friction=0.5, cone=cone, name="c")
        system = System(ty("y")[tz("z")[free]], Gravity(0, 0, -G), ball)
        f = ModeVI(system, 0.01, "c")
        assert f.multiplier_names == ("c", "c.t1", "c.t2")
        value = ca.Function("grip", list(f.symbols), [f.mechanism.limits()["grip.c"]])
        for size in (0.99, 1.01):
            along = 0.5 * size * most * np.array([np.cos(np.pi / 4), np.sin(np.pi / 4)])
            rows = value(np.zeros(f.nx), [], [1.0, *along], [], 0.01).full()
            assert (rows.min() >= 0) == (size < 1)


def test_a_mode_that_contact_would_leave_warns():
    """A block that is pulled up at 1 s, and one that is let go under the ground."""
    system = System(
        tz("z", name="b", mass=1.0), Gravity(0, 0, -G), JointForce("z", "lift"), Contact.point("b", name="c")
    )
    f = ModeVI(system, 0.1, "c")
    lift = np.linspace(0, 2 * G, 21)[:-1]
    with pytest.warns(SlackWarning, match=r"force.c is -\S+ from t = 1.1 s on, expected >= 0: contact would"):
        f.rollout(f.initial_state(), lift)
    with pytest.warns(SlackWarning, match=r"gap.c is -0.5 from t = 0 s on"):
        SwitchedMap([f.holding(), f], [5, 5]).rollout([-0.5, 0.0], np.zeros(5))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        f.rollout(f.initial_state(), lift[:10])


def test_wrong_modes(hopper, stance):
    with pytest.raises(ModelError, match="unknown contact 'tow'; did you mean 'toe'"):
        ModeVI(hopper, 0.01, "tow")
    with pytest.raises(ModelError, match="toe: held and sliding"):
        ModeVI(hopper, 0.01, "toe", sliding="toe")
    with pytest.raises(ModelError, match="no contacts, limits of joints or dry friction; use MidpointVI"):
        ModeVI(System(tz("z", mass=1.0)), 0.01)
    with pytest.raises(ValueError, match="jumps: expected 1, one for each joint, or 2 of a periodic motion"):
        dmoc.Problem([dmoc.Phase(stance, 3), dmoc.Phase(stance, 3)], jumps=[None] * 3)
    with pytest.raises(ValueError, match="maps: state_names differ"):
        other = ModeVI(System(tz("z", name="b", mass=1.0), Contact.point("b", name="toe")), 0.01, "toe")
        SwitchedMap([stance, other], [1, 1])


# -- phases --------------------------------------------------------------------------------------------


def test_a_hop_keeps_what_contact_allows(hop):
    assert hop.status == "converged"
    for part in hop.phases:
        assert part["gap.toe"].min() > -1e-7 and part["force.toe"].min() > -1e-5
        assert part["gap.leg-lower"].min() > -1e-7
    assert np.abs(hop.phases[1].multipliers["gap.toe"][[0, -1]]).max() < 1e-15  # there the neighbours hold it
    for part in (hop.phases[0], hop.phases[2]):
        assert part["grip.toe"].min() > -1e-5
        assert np.abs(part["gap.toe"]).max() < 1e-12
        # the foot rolls where it stands
        assert np.ptp(part["foot:x"] - 0.05 * part["tilt"]) < 1e-5
    assert hop.phases[1]["gap.toe"].max() > 0.02
    assert {"gap.toe", "gap.leg-upper", "h.toe.t1"} <= {n for p in hop.phases for n in p.multipliers}


def test_the_hop_is_one_trajectory(hop, stance, tmp_path):
    run = hop.trajectory
    assert run.x.shape == (49, 8) and run["force.toe"].shape == (48,) and run["gap.toe"].shape == (49,)
    assert (run["force.toe"][16:32] == 0).all() and run["force.toe"][32] > 0
    first = hop.phases[2].trajectory
    assert run["v.z"][32] == pytest.approx(first["v.z"][0]) != pytest.approx(hop.phases[1]["v.z"][-1])
    again = hop.rollout()
    assert again.gap < 1e-6 and again.cost == pytest.approx(hop.cost, rel=1e-6)
    assert pickle.loads(pickle.dumps(hop))["force.toe"] == pytest.approx(run["force.toe"])
    loaded = Trajectory.load(run.save(tmp_path / "hop"), run.map)
    assert np.array_equal(loaded["force.toe"], run["force.toe"])
    assert run.plot("gap.toe", "force.toe") is not None
    check_map(SwitchedMap([stance, stance.holding()], [3, 2], periodic=True), run.x[3], run.u[3])


def test_jumps_of_switched_maps(stance):
    x = stance.symbols.x
    back = ca.Function("jump", [x, stance.symbols.parameters], [ca.vertcat(x[:5], -0.5 * x[5], x[6:])])
    flight = stance.holding()
    f = SwitchedMap([flight, flight], [2, 2], [back])
    start = f.state(z=1.0, r=-0.5, **{"p.z": -1.0})
    run = f.rollout(start, steps=4)
    bounced = run.x[2] * np.where(np.arange(8) == 5, -0.5, 1)
    assert run.x[3] == pytest.approx(flight.step(bounced, k=2))
    eps = 1e-6 * np.eye(8)[5]
    A = f.linearize_trajectory(run).A
    slope = (f.step(run.x[2] + eps, k=2) - f.step(run.x[2] - eps, k=2)) / 2e-6
    assert A[2] @ np.eye(8)[5] == pytest.approx(slope, abs=1e-8)
    K = np.full((4, 2, 8), 0.1)
    assert f.track(start, run.x, run.u, K).x == pytest.approx(run.x, abs=1e-12)


def test_a_jump_that_bends_and_has_parameters():
    """A spring that is met in the second turn: the step by itself, and its slope by differences."""
    k, parts = 5.0, [(), (vioc.TorsionalSpring("x", 5.0),)]
    free, spring = (vioc.MidpointVI(System(tx("x", mass=vioc.P("m", 2.0)), *p), 0.1) for p in parts)
    x, theta = spring.symbols.x, spring.symbols.parameters
    jump = ca.Function("jump", [x, theta], [ca.vertcat(ca.sin(x[0]), theta[0] * x[1] * x[0] ** 2)])
    f = SwitchedMap([free, spring], [1, 4], [jump])
    start, m = np.array([0.7, 0.9]), 2.0
    assert f.step(start) == pytest.approx([0.7 + 0.1 * 0.9 / m, 0.9])
    place, p = np.sin(0.7), m * 0.9 * 0.7**2
    middle = (place + 0.05 * p / m) / (1 + k * 0.05**2 / m)  # where the midpoint rule has the spring pull
    assert f.step(start, k=1) == pytest.approx([2 * middle - place, p - 0.1 * k * middle], rel=1e-10)
    eps = 1e-6 * np.eye(2)
    slope = np.stack([(f.step(start + e, k=1) - f.step(start - e, k=1)) / 2e-6 for e in eps], axis=1)
    np.testing.assert_allclose(f.linearize(start, k=1).A, slope, atol=1e-8)


def test_a_motion_that_ends_before_the_last_turn_is_resampled_with_the_jumps_that_it_has():
    """A puck without forces, turned about at each of two joints: the places are those of lines."""
    f = vioc.MidpointVI(System(tx("x", mass=1.0)), 0.1)
    x = f.symbols.x
    turns = [ca.Function("turn", [x, f.symbols.parameters], [ca.vertcat(x[0], s * x[1])]) for s in (-0.5, 3)]
    g = SwitchedMap([f, f, f], [2, 4, 3], turns)
    run = g.rollout([0.0, 1.0], steps=5)
    fine = g.resampled(run, np.full(10, 0.05))
    assert fine.steps_of == (4, 6) and fine.jumps == tuple(turns[:1])
    again = fine.rollout(run.x[0], steps=10)
    places = [0.0, 0.1, 0.2, 0.15, 0.1, 0.05]
    np.testing.assert_allclose(run["x"], places, atol=1e-12)
    np.testing.assert_allclose(again["x"][::2], places, atol=1e-12)
    with pytest.raises(ValueError, match="the phases join at t = 0.2 s, within a step"):
        g.resampled(run, np.array([0.15, 0.15, 0.1, 0.1]))


def test_maps_whose_parameters_have_other_values_are_told_by_these():
    heavy, light = (vioc.MidpointVI(System(tx("x", mass=vioc.P("m", m))), 0.1) for m in (3.0, 2.0))
    with pytest.raises(ValueError, match="maps: parameters differ: m = 3 and m = 2$"):
        SwitchedMap([heavy, light], [1, 1])


def test_a_step_of_a_later_turn_that_does_not_exist_has_its_own_number():
    """x'' = x^2 in one turn of two, counted on from the first step that is asked for."""
    push = vioc.components.PolynomialSpring("x", (0.0, -1.0))
    free, pushed = (vioc.MidpointVI(System(tx("x", mass=1.0), *more), 1.0) for more in ((), (push,)))
    f = SwitchedMap([free, pushed], [5, 9])
    for k0 in (0, 3, 7):
        with pytest.raises(vioc.StepError) as caught:
            f.rollout([0.0, 3.0], steps=8, k0=k0)
        assert caught.value.k == max(5, k0)


def test_every_listed_quantity_of_phases_is_known_along_the_run(hopper):
    """Of a constraint that a phase has not: how far its state is off it, and no force."""
    trolley = tx("x", mass=1.0)[tz("z", name="bob", mass=1.0)]
    drop = vioc.MidpointVI(System(trolley, Gravity(0, 0, -G)), 0.01)
    held = vioc.MidpointVI(
        drop.system.with_components(vioc.PointOnPlane("bob", "world", (0, 0, 1), name="rail")), 0.01
    )
    a = held.rollout(held.initial_state({"x": 0.1}, {"x": 1.0}), steps=5)
    b = drop.rollout(a.x[-1], steps=6, k0=5)
    run = join(a, b)
    for name in run.map.quantities.names():
        assert len(run[name]) in (11, 12)
    np.testing.assert_allclose(run["h.rail"], run["z"], atol=1e-15)
    np.testing.assert_array_equal(run["force.rail"], np.r_[a["force.rail"], np.zeros(6)])
    assert (a["force.rail"] != 0).all()
    stance = ModeVI(hopper, 0.01, "toe")
    run = SwitchedMap([stance, stance.holding()], (2, 2)).rollout(
        stance.initial_state({"r": -0.4, "z": 0.45}), steps=4, warn=False
    )
    assert {len(run[name]) for name in run.map.quantities.names()} == {4, 5}


def test_saltation_is_the_derivative_of_a_touch_that_comes_when_it_does(hop):
    """Two steps about a touch-down, their lengths moved by what closes the gap between them."""
    run, k = hop.trajectory, 32
    flight, stance = hop.phases[1].trajectory.map, hop.phases[2].trajectory.map
    h1, h2 = run.step_lengths[k - 1 : k + 1]
    u1, u2 = run.u[k - 1 : k + 1]
    gap = run.map.state_names.index("z")

    def landed(x):
        def height(late):
            y = flight.step(x, u1, dt=h1 + late)
            return y[gap] + np.cos(y[2]) * y[3] - 0.05

        late = brentq(height, -0.2 * h1, 0.2 * h1, xtol=1e-14)
        return stance.step(flight.step(x, u1, dt=h1 + late), u2, dt=h2 - late)

    eps, eye = 1e-5, np.eye(8)
    exact = np.array(
        [(landed(run.x[k - 1] + eps * e) - landed(run.x[k - 1] - eps * e)) / (2 * eps) for e in eye]
    )
    A = run.map.derivatives.linearize_motion(run).A
    assert A[k] @ A[k - 1] == pytest.approx(exact.T, abs=1e-4 * np.abs(exact).max())
    timed = run.map.linearize_trajectory(run).A[k] @ A[k - 1]
    assert np.abs(timed - exact.T).max() > np.abs(exact).max()  # a foot pulled to the ground within a step


def test_saltation_of_feet_that_land_together():
    """Exact for errors that keep them together; for others no foot is pulled down within a step."""
    legs = [tz(n, name=f"foot-{n}", mass=0.5) for n in "ab"]
    springs = [JointForce(n, n) for n in "ab"]
    feet = [Contact.point(f"foot-{n}", name=n.upper()) for n in "ab"]
    system = System(tz("z", name="body", mass=4.0)[legs], Gravity(0, 0, -G), springs, feet)
    flight, h = ModeVI(system, 0.01), 0.01
    stance = flight.holding("A", "B")
    f = SwitchedMap([flight, stance], [1, 1])
    before = np.array([0.5, -0.5, -0.5, -10.0, -1.0, -1.0])
    above = -flight.step(before)[0] - flight.step(before)[1]
    run = f.rollout(before + above * np.eye(6)[0], steps=2)
    assert np.abs(run["gap.A"][1:]).max() < 1e-15 and (run["force.A"][1] > 100) and run["force.A"][0] == 0

    def landed(x):
        late = brentq(lambda t: flight.step(x, dt=h + t)[:2].sum(), -h / 2, h / 2, xtol=1e-15)
        return stance.step(flight.step(x, dt=h + late), dt=h - late)

    A = f.derivatives.linearize_motion(run).A
    timed = f.linearize_trajectory(run).A
    for direction in ([1, 0, 0, 0, 0, 0], [0, 1, 1, 0, 0, 0], [0, 0, 0, 1, 0, 0], [0, 0, 0, 0, 1, 1]):
        d = 1e-5 * np.array(direction, float)
        exact = (landed(run.x[0] + d) - landed(run.x[0] - d)) / 2e-5
        assert A[1] @ A[0] @ direction == pytest.approx(exact, abs=1e-5 * (1 + np.abs(exact).max()))
    apart = np.array([0, 1.0, -1, 0, 0, 0])
    assert np.abs(A[1] @ A[0] @ apart).max() < 5 < np.abs(timed[1] @ timed[0] @ apart).max()


def test_feedback_through_the_touch(hop):
    loop = hop.stabilize({"x": 1.0, "z": 100.0, "tilt": 100.0, "r": 10.0}, 0.1)
    run, noise = hop.trajectory, np.random.default_rng(0)
    ends = []
    for _ in range(10):
        start = run.x[0] + 1e-3 * noise.standard_normal(8) * [1, 0, 1, 0, 1, 1, 1, 1]
        end = loop.rollout(start).x[-1] - run.x[-1]
        ends.append(np.abs(end[2]))
    assert max(ends) < 2e-3
    np.testing.assert_array_equal(dlqr(run.map, run, loop.Q, loop.R).K, loop.K)


def test_a_periodic_motion_of_two_phases(hopper):
    """Hopping on the spot: the last state is the first, through both phases, at the least effort."""
    stance = ModeVI(hopper, 0.02, "toe")
    flight = stance.holding()
    parts = []
    for f, n in ((stance, 12), (flight, 12)):
        cost = Cost(f, f.symbols.dt * ca.sumsqr(f.symbols.u))
        bounds = {"r": (-0.6, -0.25), "tilt": (0, 0), "x": (0, 0), "u.push": 60.0}
        end = {"z": (0.58, None)} if f is flight else {}
        parts.append(dmoc.Phase(f, n, cost, bounds=bounds, initial=end, duration=(0.15, 0.5)))
    guess = stance.initial_state({"z": 0.55, "r": -0.5})
    pair = np.tile(guess, (13, 1)), np.tile([-1.1 * G, 0.0], (12, 1))
    best = dmoc.Problem(parts, jumps=[None, None]).solve([pair, pair])
    run = best.trajectory
    assert run.x[-1] == pytest.approx(run.x[0], abs=1e-7)
    assert (
        run["gap.toe"][12:].max() > 0.01 and best.phases[0]["force.toe"][0] > best.phases[0]["force.toe"][1]
    )


@pytest.mark.filterwarnings("ignore::vioc.errors.SlackWarning")  # of a mode, not of real ground
def test_multipliers_do_not_know_where_a_period_begins():
    """A hopper's orbit, begun in flight and at the touch; against differences of the map of its returns."""
    parts = (
        vioc.tz("z", name="body", mass=1.0)[vioc.tz("r", name="foot", mass=0.5)],
        vioc.Gravity(0, 0, -9.81),
    )
    spring = vioc.UserPotential(lambda q: 200.0 * (q.q("r") + 0.5) ** 2), vioc.JointDamping("r", 1.0)
    toe = vioc.Contact.point("foot", friction=0.0, name="toe")
    hopper = vioc.System(*parts, vioc.JointForce("r", "push"), *spring, toe)
    stance_steps, flight_steps, dt = 40, 60, 0.004
    stance = ModeVI(hopper, dt, sliding="toe")
    flight, push = stance.holding(), np.r_[np.full(20, 24.6151202), np.zeros(20)]

    def fly(x, last):
        for _ in range(flight_steps - 1):
            x = flight.step(x, [0.0], dt=last[0])
        return flight.step(x, [0.0], dt=last[1])

    def stand(x, first):
        x = stance.step(x, [push[0]], dt=first)
        for u in push[1:]:
            x = stance.step(x, [u], dt=dt)
        return x

    def off(w):  # z, p.z, p.r at release, and the step in flight
        start = np.array([w[0], -w[0], w[1], w[2]])
        touch = fly(start, (w[3], w[3]))
        end = stand(touch, dt)
        return np.array([10 * (touch[0] + touch[1]), end[0] - w[0], end[2] - w[1], end[3] - w[2]])

    w = fsolve(off, [0.43636429, 1.48203272, -0.06011399, 0.00310053], xtol=1e-14)
    start, h = np.array([w[0], -w[0], w[1], w[2]]), w[3]

    def returned(x):
        """As it is: the foot lands when its gap closes."""
        for _ in range(flight_steps - 1):
            x = flight.step(x, [0.0], dt=h)
        last = brentq(lambda s: flight.step(x, [0.0], dt=s)[:2].sum(), 0.5 * h, 1.5 * h, xtol=1e-15)
        return stand(flight.step(x, [0.0], dt=last), dt + h - last)

    e = 1e-6 * np.eye(4)
    truth = np.array([(returned(start + s) - returned(start - s)) / 2e-6 for s in e]).T
    expected = np.sort_complex(np.linalg.eigvals(truth))
    lengths, U = (
        np.r_[np.full(flight_steps, h), np.full(stance_steps, dt)],
        np.r_[np.zeros(flight_steps), push],
    )
    maps, counts = [flight.with_dt(h), stance], [flight_steps, stance_steps]
    from_flight = SwitchedMap(maps, counts, periodic=True)
    run = from_flight.rollout(start, U[:, None], dt=lengths)
    turn = np.roll(np.arange(len(U)), -flight_steps)
    from_touch = SwitchedMap(maps[::-1], counts[::-1], periodic=True)
    other = from_touch.rollout(run.x[flight_steps], U[turn, None], dt=lengths[turn])
    for f, orbit in ((from_flight, run), (from_touch, other)):
        found = floquet(f, orbit)
        np.testing.assert_allclose(np.sort_complex(found.eigenvalues), expected, rtol=0, atol=1e-5)
        assert found.stability == "unstable"
        with pytest.raises(ValueError, match="no one constraint manifold"):
            dlqr(f, orbit, 1.0, 1.0, Qf="periodic", manifold=True)
    flying = run[: flight_steps - 5]
    assert controllability(from_flight, flying).rank == controllability(flight.with_dt(h), flying).rank == 2
