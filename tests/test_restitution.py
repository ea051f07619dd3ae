"""Restitution of `ContactVI`: closed forms of impacts, energy, rest, derivatives with the time of touch."""

import pickle
from functools import cache

import casadi as ca
import numpy as np
import pytest
from scipy.optimize import brentq
from support.target_folders import needs_compiler

import vioc
from vioc import Contact, ContactVI, Gravity, JointLimits, K, Mass, MaximalVI, P, System, Trajectory, tx, tz
from vioc.errors import ModelError, StepError

# inside: derivatives are asked for by steps, as optimizers do
from vioc.maps.derivatives import Steps
from vioc.shapes import HalfSpace

DT, G, E = 0.01, 9.81, 0.9


def ball(e=E):
    foot = Contact.sphere("ball", 0.1, name="foot", restitution=e)
    return System(vioc.tz("z", name="ball", mass=Mass(2.0)), Gravity(0, 0, -G), foot, name="ball")


def arm(e=0.7, mu=0.3):
    """Seven joints, a ball for a hand and one for an elbow."""
    part = vioc.tz(0.1, name="hand", mass=Mass.sphere(0.5, 0.05))
    for i in reversed(range(7)):
        joint = (vioc.rz, vioc.ry)[i % 2]
        length = 0.25 if i % 2 else 0.1
        link = joint(f"q{i}", name=f"link{i}", mass=Mass.rod(1.0, length, com=(0, 0, length / 2)))
        part = link[vioc.tz(length, name="elbow" if i == 3 else None)[part]]
    feet = [
        Contact.sphere(frame, 0.05, friction=mu, restitution=e, name=name)
        for frame, name in (("hand", "palm"), ("elbow", "rest"))
    ]
    return System(vioc.tz(0.5)[part], Gravity(0, 0, -G), feet, name="arm")


def box(e=0.6, mu=0.5):
    corners = Contact.box("box", (0.4, 0.5, 0.3), friction=mu, restitution=e, name="corner")
    return System(
        vioc.free("b", frame="box", mass=Mass.box(1.0, (0.4, 0.5, 0.3))),
        Gravity(0, 0, -G),
        corners,
        name="box",
    )


def chain(e=0.8, mu=0.4, count=4):
    """Planar, on feet in all its joints."""
    below = None
    for i in reversed(range(count)):
        link = vioc.ry(f"q{i}", name=f"link{i}", mass=Mass.rod(1.0, 0.3, com=(0.15, 0, 0)))
        below = link[vioc.tx(0.3, name=f"end{i}")[below] if below else vioc.tx(0.3, name=f"end{i}")]
    feet = [
        Contact.sphere(f"end{i}", 0.05, friction=mu, restitution=e, name=f"foot{i}") for i in range(count)
    ]
    return System(
        vioc.tx("x", mass=Mass(0.1))[vioc.tz("z", mass=Mass(0.1))[below]],
        Gravity(0, 0, -G),
        feet,
        name="chain",
    )


@cache
def bouncing(impacts, backend="virtual"):
    """A map of a chain of two links, built once for all tests."""
    return ContactVI(chain(count=2), DT, impacts=impacts, backend=backend)


def along(f, k, x, u, ds, h=1e-6):
    """A step's derivative along ds = (states, parameters) by differences."""
    d, p = ds[: f.nx], ds[f.nx :]

    def ended(s):
        g = f.with_parameters(**{n: v + s * a for (n, v), a in zip(f.parameters.items(), p, strict=True)})
        return g.step(x + s * d, u, k=k)

    return (ended(h) - ended(-h)) / (2 * h)


def test_a_ball_bounces_as_its_closed_form_and_comes_to_rest():
    f = ContactVI(ball(0.5), 0.02, slow=1e-2)
    run = f.rollout(f.initial_state({"z": 0.3}), steps=60)
    first = np.sqrt(2 * 0.2 / G)
    exact = first + 2 * first * np.concatenate([[0.0], np.cumsum(0.5 ** np.arange(1, 7))])
    assert f.impacts_along(run).t[:7] == pytest.approx(exact, abs=1e-12)
    assert np.ptp(run["z"][-5:]) < 1e-12 and 0 < run["gap.foot"][-1] < 1e-7
    assert run["force.foot"][-1] == pytest.approx(2 * G, rel=1e-6)
    # all that the ground gave is what gravity took
    gave = run.multipliers[:, 0].sum() - 2 * G * run.t[-1]
    assert gave == pytest.approx(run["p.z"][-1], abs=1e-9)


@pytest.mark.parametrize("impacts", ["newton", "poisson"])
def test_a_box_that_bounces_with_friction_gains_no_energy(impacts):
    f = ContactVI(box(), DT, impacts=impacts)
    x = f.initial_state({"b-z": 0.45, "b-ry": 0.3, "b-rx": 0.1}, {"b-x": 1.0})
    run = f.rollout(x, steps=45)
    hits = f.impacts_along(run)
    assert len(hits.k) and (run.t[hits.k] <= hits.t).all() and (hits.t <= run.t[hits.k + 1]).all()
    for k, x in zip(hits.k, hits.x, strict=True):
        assert np.isfinite(0.5 * x[f.nq :] @ f.velocities(x))
        assert run.energy[k + 1] < run.energy[k] + 1e-4
    assert run.energy[-1] < run.energy[0]
    assert min(run[f"gap.corner-{i}"].min() for i in range(1, 9)) > -1e-9


def test_a_sphere_that_bounces_with_friction_rolls_off_as_coulomb_says():
    """A sphere thrown at the ground: mu (1 + e) v across while it slips, r omega where it sticks."""
    r, mu, e = 0.1, 0.1, 0.5
    body = tx("x", name="cart", mass=Mass(1e-9))[tz("z")[vioc.ry("a", name="ball", mass=Mass.sphere(1.0, r))]]
    for law in ("newton", "poisson"):
        for speed, slips in ((2.0, True), (0.3, False)):
            foot = Contact.sphere("ball", r, friction=mu, restitution=e, name="foot")
            f = ContactVI(System(body, foot), DT, impacts=law)
            run = f.rollout(f.initial_state({"z": r + 0.005}, {"x": speed, "z": -1.0}), steps=1)
            v = f.velocities(run.x[-1])
            across = mu * (1 + e) if slips else speed * 2 / 7
            assert v == pytest.approx([speed - across, e, 2.5 * across / r], rel=1e-6)


def test_derivatives_are_those_of_flights_impacts_and_times():
    f = ContactVI(ball(P("e", 0.8)), DT)
    run = f.rollout(f.initial_state({"z": 0.5}), steps=60)
    lin, hit = f.linearize_trajectory(run), sorted(set(f.impacts_along(run).k))
    for k in hit:
        for ds in np.eye(3):
            found = np.hstack([lin.A[k], lin.P[k]]) @ ds
            assert found == pytest.approx(along(f, k, run.x[k], run.u[k], ds), rel=1e-6, abs=1e-8)
    k = hit[0]
    steps = Steps.along(run).piece(slice(k, k + 1))
    by = f.derivatives.timed.first(steps).P[0][:, -2]
    ends = [f.step(run.x[k], k=0, dt=DT + s) for s in (1e-6, -1e-6)]
    assert by == pytest.approx((ends[0] - ends[1]) / 2e-6, rel=1e-6)
    with pytest.raises(NotImplementedError, match="first derivatives only"):
        f.second_order(run.x[k], None, np.ones(2))


def test_derivatives_know_that_gaps_and_forces_depend_on_parameters_and_time():
    """The radius moves the touch, and with it when the flight behind it begins under a force of time."""
    foot = Contact.sphere("ball", P("r", 0.1), name="foot", restitution=0.8)
    wind = vioc.UserForce(lambda k: {"z": 15 * ca.sin(40 * k.t)})
    f = ContactVI(System(tz("z", name="ball", mass=Mass(2.0)), Gravity(0, 0, -G), foot, wind), 0.05)
    run = f.rollout(f.initial_state({"z": 0.3}, {"z": -1.0}), steps=16)
    lin, touched = f.linearize_trajectory(run), np.flatnonzero(run["force.foot"] > 1.0)
    assert len(touched) >= 2
    for k in map(int, touched[:2]):
        for ds in np.eye(3):
            found = np.hstack([lin.A[k], lin.P[k]]) @ ds
            assert found == pytest.approx(along(f, k, run.x[k], run.u[k], ds), rel=1e-5, abs=1e-6)


def test_impulses_of_a_rod_know_when_the_step_s_impact_is():
    """A bob on a rod that bounces: the rod's impulse, too, depends on how long the flights are."""
    rod = vioc.DistanceConstraint("bob", "hook", 1.0, name="rod")
    foot = Contact.sphere("bob", 0.05, name="foot", restitution=P("e", 0.7))
    bob = tx("x")[tz("z", name="bob", mass=1.0)]
    f = ContactVI(System(bob, tz(1.0, name="hook"), Gravity(0, 0, -G), rod, foot), 0.05)
    run = f.rollout(f.initial_state({"x": np.sin(0.4), "z": 1 - np.cos(0.4)}), steps=8)
    k = int(f.impacts_along(run).k[0])

    def impulses(s, ds):
        g, x = f.with_parameters(e=0.7 + s * ds[-1]), run.x[k] + s * ds[:-1]
        return g.steps_at(x[None], np.zeros((1, 0)), k).multipliers[0]

    lin = f.linearize_trajectory(run)
    for ds in np.eye(f.nx + 1):
        found = np.hstack([lin.C[k], lin.E[k]]) @ ds
        reference = (impulses(1e-6, ds) - impulses(-1e-6, ds)) / 2e-6
        assert found == pytest.approx(reference, rel=1e-5, abs=1e-6)
    assert np.abs(lin.C[k][0]).max() > 1


def test_flights_of_unequal_steps_are_as_long_as_each_step():
    """A ball that falls freely; a step that has another length than those behind it is not theirs."""
    f = ContactVI(ball(0.5), 0.02)
    lengths = np.array([0.01, 0.02, 0.02, 0.02, 0.03, 0.01, 0.01, 0.01])
    run = f.rollout(f.initial_state({"z": 2.0}), steps=len(lengths), dt=lengths)
    t = np.concatenate([[0.0], np.cumsum(lengths)])
    np.testing.assert_allclose(run.t, t, rtol=0, atol=1e-14)
    np.testing.assert_allclose(run["z"], 2.0 - G * t**2 / 2, rtol=0, atol=1e-12)


def test_a_flight_that_does_not_exist_behind_an_impact_says_for_how_long_the_step_does():
    """Pushed off by z^2 (`test_step_branch`): a flight from the ground has a fold at (2 / p)^(1/3)."""
    push = vioc.components.PolynomialSpring("z", (0.0, -1.0))
    foot = Contact("b", restitution=0.8, name="foot")
    f = ContactVI(System(tz("z", name="b", mass=1.0), push, foot), 1.0)
    z, p = 0.4, -4.0
    force = (z / 2) ** 2  # over the flight down, by the midpoint rule
    down = brentq(lambda h: z / h + p + h / 2 * force, 0.09, 0.11, xtol=1e-15)
    up = -0.8 * (p + down * force)
    with pytest.raises(StepError, match="with impacts") as caught:
        f.rollout([z, p], steps=1)
    assert caught.value.length == pytest.approx(down + (2 / up) ** (1 / 3), rel=1e-3)


def test_impulses_of_impacts_at_a_step_s_start_are_told():
    """Two balls that lie on the ground and move down: what each impact gives is told with its step."""
    m, e, v = np.array([2.0, 3.0]), np.array([0.5, 0.8]), np.array([3.0, 1.0])
    balls = [tz(n, name=f"ball-{n}", mass=Mass(mass)) for n, mass in zip("ab", m, strict=True)]
    feet = [Contact.sphere(f"ball-{n}", 0.1, name=n, restitution=s) for n, s in zip("ab", e, strict=True)]
    f = ContactVI(System(*balls, *feet, Gravity(0, 0, -G)), DT)
    run = f.rollout(f.initial_state({"a": 0.1, "b": 0.1}, {"a": -v[0], "b": -v[1]}), steps=1)
    assert run.multipliers[0] == pytest.approx(m * v * (1 + e), rel=1e-9)
    assert run.x[1, 2:] == pytest.approx(m * (e * v - G * DT), rel=1e-9)
    assert run.x[1, :2] == pytest.approx(0.1 + e * v * DT - G * DT**2 / 2, rel=1e-9)


@pytest.mark.parametrize("impacts", ["newton", "poisson"])
def test_derivatives_of_a_planar_chain_that_bounces_on_several_feet(impacts):
    f = bouncing(impacts)
    run = f.rollout(f.initial_state({"z": 0.4, "q0": 0.3, "q1": 0.5}, {"x": 0.5}), steps=40)
    lin, rng = f.linearize_trajectory(run), np.random.default_rng(0)
    hit = sorted(set(f.impacts_along(run).k))
    assert len(hit) > 1
    for k in hit[:3]:
        d = rng.standard_normal(f.nx)
        reference = along(f, k, run.x[k], run.u[k], d)
        assert np.abs(lin.A[k] @ d - reference).max() < 1e-5 * np.abs(reference).max()


def test_stops_bounce_and_other_contacts_hold():
    """A pendulum against an elastic stop beside a cart that stands on the ground."""
    rod = Mass.rod(1.0, 1.0, com=(0, 0, -0.5))
    stop = JointLimits("a", -0.3, 2.0, name="stop", restitution=1.0)
    cart = tz("z", name="cart", mass=Mass(1.0))
    ground = Contact.sphere("cart", 0.1, name="wheel")
    f = ContactVI(System(vioc.ry("a", mass=rod), cart, Gravity(0, 0, -G), stop, ground), 0.01)
    run = f.rollout(f.initial_state({"a": 0.9, "z": 0.1 + 1e-9}), steps=100)
    assert len(f.impacts_along(run).k) >= 1 and run["a"].min() > -0.3 - 1e-9
    assert np.abs(run["z"] - 0.1).max() < 1e-7
    assert run["a"][30:].max() > 0.88  # it comes back where it was let go


@needs_compiler
@pytest.mark.parametrize("impacts", ["newton", "poisson"])
def test_impacts_in_rows_are_those_of_numpy_and_bring_nothing_where_nothing_closes(impacts):
    f, g = (bouncing(impacts, b) for b in ("compiled", "virtual"))
    rng = np.random.default_rng(3)
    q, v = rng.uniform(-1, 1, (12, f.nq)), 3 * rng.standard_normal((12, f.nd))
    some = (rng.random((12, 2)) < 0.6).astype(float)
    x = np.array([f.initial_state(*row) for row in zip(q, v, strict=True)])
    given = q, x[:, f.nq :], 0 * some, some, some, 0 * some, f.theta
    found, known = (m.contact.impact.struck(*given) for m in (f, g))
    assert found.solved.all() and np.abs(found.momenta - known.momenta).max() < 1e-6
    T = [0.5 * np.sum(p * f.velocities(np.hstack([q, p])), axis=1) for p in (x[:, f.nq :], found.momenta)]
    assert (T[1] <= T[0] * (1 + 1e-12)).all()
    apart = (some * (f.contact.closing(f, x) < 0)).sum(axis=1) == 0
    assert apart.any() and np.abs(found.momenta - x[:, f.nq :])[apart].max() < 1e-6


def test_it_is_written_kept_and_loaded(tmp_path):
    f = ContactVI(ball(), DT, impacts="poisson", slow=0.01)
    g = pickle.loads(pickle.dumps(f))
    run = f.rollout(f.initial_state({"z": 0.3}), steps=60)
    assert g.impacts == "poisson" and g.slow == 0.01
    assert np.array_equal(g.rollout(run.x[0], steps=60).x, run.x)
    again = Trajectory.load(run.save(tmp_path / "run.npz"), f)
    assert np.array_equal(f.linearize_trajectory(again).A, f.linearize_trajectory(run).A)
    assert np.array_equal(f.steps_at(run.x[:-1], run.u).x1, run.x[1:])
    wide = f.smoothed(1e-6)
    found = wide.impacts_along(wide.rollout(run.x[0], steps=25)).t
    assert found == pytest.approx(f.impacts_along(run).t[:1], abs=1e-12)


def test_what_it_refuses():
    with pytest.raises(ModelError, match="MaximalVI has no restitution"):
        MaximalVI(ball(), DT)
    with pytest.raises(ModelError, match="an impact cannot add energy"):
        Contact.sphere("ball", 0.1, restitution=1.2)
    with pytest.raises(ValueError, match='expected "newton" or "poisson"'):
        ContactVI(ball(), DT, impacts="moreau")
    with pytest.raises(ModelError, match="kinematic variables"):
        ContactVI(
            System(
                tz(K("lift"))[tz("z", name="ball", mass=Mass(1.0))],
                Contact.sphere("ball", 0.1, restitution=E),
            ),
            DT,
        )
    assert ContactVI(ball(), DT).residual is None and ContactVI(ball(), DT).mechanism.relaxed() is None
    assert arm(0.0).inequalities[0].restitution == 0


@cache
def slotted(e, **options):
    """A slider in a slot with some play, and another that meets its stop at 0.05 m."""
    slot = JointLimits("q", 0.0, P("play", 1e-7), restitution=e, name="slot")
    stop = JointLimits("s", -1.0, 0.05, restitution=e, name="stop")
    sliders = tx("q", name="a", mass=Mass(1.0)), tx("s", name="b", mass=Mass(2.0))
    return ContactVI(System(*sliders, slot, stop), 0.01, **options)


@pytest.mark.parametrize("impacts", ["newton", "poisson"])
@pytest.mark.parametrize("backend", ["virtual", pytest.param("compiled", marks=needs_compiler)])
@pytest.mark.parametrize("play", [1e-7, 1e-9, 1e-12])
def test_what_has_no_play_does_not_bounce(play, backend, impacts):
    """Both sides of a slot are closed: none of them opens. What else is hit bounces as ever."""
    e = 0.5
    f = slotted(e, impacts=impacts, backend=backend).with_parameters(play=play)
    run = f.rollout(f.initial_state({"q": play / 2}, {"q": 1.0, "s": 1.0}), steps=10)
    assert np.abs(run["v.q"][1:]).max() < 1e-6 and (run["q"] >= 0).all() and (run["q"] <= play).all()
    np.testing.assert_allclose(run["v.s"][[1, -1]], [1.0, -e], atol=1e-7)
    np.testing.assert_allclose(run.energy[1:], np.where(run["v.s"][1:] > 0, 1.0, e**2), atol=1e-6)
    assert np.abs(f.linearize(run.x[0]).A[2, 2:]).max() < 1e-6  # its momentum is gone, whatever it was


@pytest.mark.parametrize("e", [0.0, 0.5])
def test_a_slot_without_any_play_is_named(e):
    floor, ceiling = HalfSpace(), HalfSpace(point=(0, 0, 0.2), normal=(0, 0, -1))
    sides = [
        Contact.sphere("ball", 0.1, ground=g, name=n, restitution=e)
        for g, n in ((floor, "floor"), (ceiling, "ceiling"))
    ]
    f = ContactVI(System(tz("z", name="ball", mass=Mass(2.0)), Gravity(0, 0, -G), *sides), 0.01)
    with pytest.raises(StepError, match="floor, ceiling are closed and hold each other shut, without play"):
        f.step(f.initial_state({"z": 0.1}, {"z": 1.0}))
