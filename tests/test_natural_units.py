"""What is small, heavy or told exactly is judged as anything else: verdicts do not depend on units."""

import warnings
from functools import cache

import numpy as np
import pytest

import vioc
from vioc import (
    Gravity,
    GroupVI,
    JointDamping,
    JointForce,
    Mass,
    MidpointVI,
    P,
    System,
    TorsionalSpring,
    ry,
    tx,
    tz,
)
from vioc.compile import find_compiler
from vioc.control import (
    Measurement,
    dlqr,
    equilibrium,
    kalman,
    modes,
    optimize,
    quadratic,
    robust_dlqr,
    straight_line,
    unstabilizable_modes,
)
from vioc.control.feedback import MovingHorizon

# inside: units in which a matrix is judged are compared, whatever it was given in
from vioc.control.linear.circle import natural_units
from vioc.errors import ConstraintError, OptimizationError
from vioc.identification import Record, design, identify

G = Gravity(0, 0, -9.81)
BACKENDS = ("virtual", *(["compiled"] if find_compiler() else []))


def arm(size, mass, *terms):
    """Two links of a length (m) and a mass (kg) that hang, the second driven."""
    rod = Mass(mass, (mass * size**2 / 12,) * 3, (0, 0, -size / 2))
    links = ry("a", mass=rod)[tz(-size)[ry("b", mass=rod)]]
    damped = (JointDamping(n, 0.05 * mass * (9.81 * size**3) ** 0.5) for n in "ab")
    return System(links, G, *damped, JointForce("b", "u"), *terms)


def test_errors_of_states_have_units():
    """Sizes, and with them verdicts of optimizers, follow from these units."""
    body = vioc.free("b", mass=Mass(1.0, (1.0, 1.0, 1.2)))
    units = {n: GroupVI(System(body), 0.01).unit(n) for n in GroupVI(System(body), 0.01).space.error_names}
    assert [units[f"b-{n}"] for n in ("x", "phix", "phiz")] == ["m", "rad", "rad"]
    f = vioc.MaximalVI(System(tx("x", mass=1.0)[ry("a")[tz(-1.0, name="bob", mass=1.0)]]), 0.01)
    kinds = {"d": "m", "phi": "rad", "dv": "m/s", "dw": "rad/s"}
    for name in f.space.error_names:
        assert f.unit(name) == kinds[name.partition(".")[0].rstrip("xyz")], name


@cache
def eigenvalues_of_an_arm():
    """Eigenvalues of the modes of two links of 1 m and 1 kg."""
    f = vioc.MidpointVI(arm(1.0, 1.0), 0.02)
    return np.sort_complex(modes(f, equilibrium(f)).eigenvalues)


@pytest.mark.parametrize(("size", "mass"), [(1.0, 1.0), (1e-3, 1e-6), (30.0, 1e6)])
def test_equilibria_of_mechanisms_of_any_size(size, mass):
    f = vioc.MidpointVI(arm(size, mass), 0.02 * size**0.5)
    still = equilibrium(f, guess={"a": 0.4, "b": -0.3, "u": 0.0}, fixed="u.u")
    np.testing.assert_allclose(still.x[:2], 0, atol=1e-8)
    found = modes(f, still)
    assert found.stability == "asymptotically stable" and (found.stays, found.drifts) == ((), 0)
    np.testing.assert_allclose(np.sort_complex(found.eigenvalues), eigenvalues_of_an_arm(), atol=1e-7)


@pytest.mark.parametrize("size", [1e-3, 1.0])
def test_what_nothing_pulls_is_told_beside_what_is_heavy_or_stiff(size):
    """A cart that drifts, a wheel that a brake stops and a spring of 1e9 N/m, beside a slow pendulum."""
    wheel = ry("wheel", mass=Mass(1.0, (size**2,) * 3))
    pole = ry("a")[tz(-size, mass=1e-3)]
    stiff = tx("x", mass=1e5)
    terms = TorsionalSpring("x", 1e9), JointDamping("wheel", 1e-2 * size**2)
    f = vioc.MidpointVI(System(tx("cart", mass=1e4), wheel, pole, stiff, G, *terms), 1e-3)
    found = modes(f, equilibrium(f))
    assert set(found.stays) == {"cart", "wheel"} and found.drifts == 1


@pytest.mark.parametrize("size", [1e-3, 1e5])
def test_inputs_reach_modes_whatever_their_units(size):
    A, B = np.array([[1.05, 0.1], [0.1, 1.05]]), np.array([[0.005], [0.1]])
    scale = np.array([1.0, size**4])
    A, B = A / scale * scale[:, None], B * scale[:, None]
    assert not len(unstabilizable_modes(A, B)) and not len(unstabilizable_modes(A, B * 1e-9))
    apart = np.block([[A, np.zeros((2, 1))], [np.zeros((1, 2)), 2.0]])
    np.testing.assert_allclose(unstabilizable_modes(apart, np.vstack([B, [[0.0]]])), [2.0])


def test_natural_units_do_not_depend_on_those_of_the_matrix():
    A = np.eye(5) + np.random.default_rng(0).standard_normal((5, 5))
    scale = 10.0 ** np.array([0, 6, -6, 3, -9])
    d, e = natural_units(A), natural_units(A * scale / scale[:, None])
    found = e * scale / d
    np.testing.assert_allclose(found, found[0], rtol=1e-6)


def test_a_filter_knows_what_it_missed_of_the_more_exact_sensor():
    """Variances of 1 m^2 beside 1e-12 rad^2: gains after a gap were those of no gap."""
    cart, pole = tx("x", mass=1.0), ry("a")[tz(-0.5, mass=1.0)]
    springs = TorsionalSpring("x", 1.0), JointDamping("x", 0.1), JointDamping("a", 0.1)
    both = vioc.MidpointVI(System(cart, pole, G, *springs), 0.02)
    alone = vioc.MidpointVI(System(pole, G, springs[2]), 0.02)
    W = {"x": 1.0, "p.x": 1.0, "a": 1e-14, "p.a": 1e-14}
    k = kalman(both, equilibrium(both), Measurement(both, {"x": 1.0, "a": 1e-12}), W)
    one = kalman(alone, equilibrium(alone), Measurement(alone, {"a": 1e-12}), {n: W[n] for n in ("a", "p.a")})
    there, here = k.start(np.zeros(4)), one.start(np.zeros(2))
    mine = [both.state_names.index(n) for n in alone.state_names]
    for i, seen in enumerate((1e-6, np.nan, 2e-6, 1e-6)):
        there, here = k.correct(i, there, np.array([0.0, seen])), one.correct(i, here, np.array([seen]))
        np.testing.assert_allclose(there.P[np.ix_(mine, mine)], here.P, rtol=1e-6)
        np.testing.assert_allclose(there.x[mine], here.x, rtol=1e-6, atol=1e-15)
        there, here = k.predict(i, there, np.zeros(0)), one.predict(i, here, np.zeros(0))


def test_a_horizon_fits_the_rough_sensor_beside_the_exact_one():
    """A search "converged" where it began: the sensor of 1e-6 rad made all slopes of the other small."""
    cart, pole = tx("x", mass=1.0), ry("a")[tz(-0.5, mass=1.0)]
    springs = TorsionalSpring("x", 100.0), JointDamping("x", 0.1), JointDamping("a", 0.1)
    both = vioc.MidpointVI(System(cart, pole, G, *springs), 0.02)
    alone = vioc.MidpointVI(System(cart, *springs[:2]), 0.02)
    noise = {"x": 1e-4, "p.x": 1e-4, "a": 1e-14, "p.a": 1e-14}
    P0 = {"x": 1e-2, "p.x": 1e-2, "a": 1e-10, "p.a": 1e-10}
    two = MovingHorizon(both, Measurement(both, {"x": 1e-4, "a": 1e-12}), 5, W=noise, P0=P0)
    mine = {n: P0[n] for n in ("x", "p.x")}
    one = MovingHorizon(alone, Measurement(alone, {"x": 1e-4}), 5, W={n: noise[n] for n in mine}, P0=mine)
    at = [both.state_names.index(n) for n in alone.state_names]
    there, here = two.start(np.zeros(4)), one.start(np.zeros(2))
    for k, (x, a) in enumerate(np.random.default_rng(1).standard_normal((8, 2)) * (0.1, 1e-6)):
        there, here = two.correct(k, there, np.array([x, a])), one.correct(k, here, np.array([x]))
        np.testing.assert_allclose(there.x[at], here.x, rtol=0, atol=1e-4)
        there, here = two.predict(k, there, np.zeros(0)), one.predict(k, here, np.zeros(0))


@cache
def three_links(size, drag=None):
    """Three links whose masses, torques and momenta are numbers `size` times as large."""
    names, lengths = ("a", "b", "c"), (0.3, 0.25, 0.2)
    frame, terms = vioc.tz(0.1), [vioc.Gravity(0, 0, -9.81)]
    for i, (n, axis, r) in enumerate(reversed(list(zip(names, "zyx", lengths, strict=True)))):
        spin = tuple(size * s for s in (2e-3, 3e-3, 2.5e-3))
        mass = vioc.Mass(size * (1.0 + i), spin, (0.05, 0.02, r / 2))
        frame = vioc.tz(r)[vioc.revolute(n, axis, frame=f"link-{n}", mass=mass)[frame]]
        terms += [vioc.JointForce(n, f"u-{n}"), vioc.JointDamping(n, size * 0.1 if drag is None else drag)]
    return vioc.MidpointVI(vioc.System(frame, *terms), 0.02), names


@pytest.mark.parametrize("size", [1e12, 1e-12])
def test_a_regulator_in_any_units(size):
    def gain(f, names, size):
        still = equilibrium(f, dict(a=0.1, b=0.4, c=-0.3))
        Q = {n: 10.0 for n in names} | {f"p.{n}": 1.0 / size**2 for n in names}
        law = dlqr(f, still, Q, {f"u-{n}": 0.05 / size**2 for n in names})
        scale = np.where([n.startswith("p.") for n in f.state_names], size, 1.0)
        return law.K * scale / size, np.asarray(law.P) * np.outer(scale, scale), np.sort(np.abs(law.poles))

    for one, other in zip(gain(*three_links(1.0), 1.0), gain(*three_links(size), size), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-8, atol=1e-8 * np.abs(one).max())


def test_what_an_experiment_tells_in_any_units():
    """Starts in small units of momentum were held by rounding's share of the largest information."""

    def std(size):
        mass, drag = vioc.P("mass", 0.8 * size), vioc.P("drag", 0.3 * size)
        forces = vioc.JointForce("x", "u"), vioc.JointDamping("x", drag), vioc.TorsionalSpring("x", size)
        f = vioc.MidpointVI(vioc.System(vioc.tx("x", mass=mass), *forces), 0.05)
        run = f.rollout(f.initial_state(x=0.2), size * np.sin(0.2 * np.arange(60))[:, None])
        plan = design(f, ["mass", "drag"], run, {"x": 1e-6}, max_iterations=0)
        return np.array([plan.std[n] / size for n in ("mass", "drag")])

    wanted = std(1.0)
    for size in (1e-8, 1e8):
        np.testing.assert_allclose(std(size), wanted, rtol=1e-5)


@cache
def drag_found(size):
    """The drag of three links and its deviation, of their size, from a record of their motion."""
    f, names = three_links(size, vioc.P("drag", 0.15 * size))
    start = f.initial_state(dict(a=0.1, b=0.4, c=-0.3))
    U = size * 3.0 * np.sin(0.2 * np.arange(80)[:, None] + np.arange(3))
    run, rng = f.with_parameters(drag=0.1 * size).rollout(start, U), np.random.default_rng(0)
    seen = {n: run[n] + 1e-3 * rng.standard_normal(81) for n in names}
    record = Record(run.t, seen, {n: run[f"u.{n}"] for n in f.input_names})
    fit = identify(f, record, "drag", noise=dict.fromkeys(names, 1e-6), tolerance=1e-8)
    assert fit.converged, fit.verdict
    return np.array([fit["drag"], fit.std["drag"]]) / size


@pytest.mark.parametrize("size", [1e-10, 1e10])
def test_identification_in_any_units(size):
    """Gaps of momenta were weighed as those of angles: 100 iterations ended far from the minimum."""
    np.testing.assert_allclose(drag_found(size), drag_found(1.0), rtol=1e-6)


def test_a_robust_regulator_in_any_units():
    """Directions of small gains were none beside those of large ones: the search "converged" 5 % off."""

    def gain(size):
        f, names = three_links(size, vioc.P("drag", 0.1 * size))
        still = equilibrium(f, dict(a=0.1, b=0.4, c=-0.3))
        of = {n: 1.0 for n in names} | {f"p.{n}": size**2 for n in names}
        Q, samples = {n: 10.0 / v for n, v in of.items()}, [{"drag": size * d} for d in (0.02, 0.5)]
        law = robust_dlqr(f, still, Q, dict.fromkeys(f.input_names, 0.05 / size**2), samples, P0=of)
        return law.K * np.where([n.startswith("p.") for n in f.state_names], size, 1.0) / size

    wanted = gain(1.0)
    for size in (1e-9, 1e9):
        np.testing.assert_allclose(gain(size), wanted, rtol=0, atol=1e-4)


@pytest.mark.parametrize("bounds", [None, (-0.08, 0.25), (-0.08, None)])
def test_a_horizon_in_small_units(bounds):
    """Gaps were softened by more than what noise makes of a small momentum: estimates were of no motion."""

    def estimates(size, m=1.0):
        cart = System(tx("q", mass=size), TorsionalSpring("q", size), JointDamping("q", 0.1 * size))
        f = vioc.MidpointVI(cart, 0.05)
        run, rng = f.rollout(f.initial_state(q=0.2 * m), steps=20), np.random.default_rng(0)
        W = {"q": 1e-6 * m**2, "p.q": 1e-6 * (size * m) ** 2}
        P0 = {n: 10 * v for n, v in W.items()}
        limits = bounds and {"q": tuple(v and v * m for v in bounds)}
        sensor = Measurement(f, {"q": 1e-4 * m**2})
        horizon = MovingHorizon(f, sensor, 5, W, P0=P0, bounds=limits, tolerance=1e-10)
        belief, found = horizon.start(run.x[0] + [0.01 * m, 0.02 * size * m]), []
        for k, y in enumerate(run["q"] + m * 1e-2 * rng.standard_normal(21)):
            belief = horizon.correct(k, belief, np.array([y]))
            found.append(belief.x / [m, size * m])
            belief = horizon.predict(k, belief, np.zeros(0))
        return np.array(found), belief.failures

    (one, failed), *others = (estimates(*units) for units in ((1.0,), (1e-5,), (1.0, 1e3), (1e3, 1e-6)))
    for other, also in others:
        assert failed == also == 0
        np.testing.assert_allclose(other, one, rtol=0, atol=1e-5)


def test_a_horizon_with_a_singular_covariance_is_quiet():
    """A variance of the prior that rounded to less than 0 had a root: "invalid value encountered"."""
    f = vioc.MidpointVI(System(tx("q", mass=1.0)), 0.02)
    deviation = np.array([0.3, -15.0])
    P0 = np.outer(deviation, deviation)
    horizon = MovingHorizon(f, Measurement(f, {"q": 1e-4}), 5, W=0.0, P0=P0)
    belief = horizon.start(np.zeros(2))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for k in range(12):
            belief = horizon.correct(k, belief, np.array([0.3 - 15.0 * 0.02 * k]))
            belief = horizon.predict(k, belief, np.zeros(0))
    assert belief.failures == 0
    np.testing.assert_allclose(belief.x, [0.3 - 15.0 * 0.02 * 12, -15.0], rtol=1e-4)


@pytest.mark.parametrize("integrator", [vioc.MidpointVI, GroupVI, vioc.MaximalVI])
@pytest.mark.parametrize("L", [1e-3, 1.0, 1e5])
def test_starts_that_close_a_distance_are_taken_in_any_unit_of_length(integrator, L):
    rng = np.random.default_rng(0)
    free = vioc.spherical("a", mass=Mass(1.0, (0.01 * L**2,) * 3, (0, 0, -0.2 * L)))
    q, pin = rng.uniform(-0.5, 0.5, 3), rng.uniform(-1, 1, 3) * L
    bare = System(free[tz(-0.4 * L, name="tip")], vioc.se3(tuple(pin), name="pin"))
    far = float(np.linalg.norm(vioc.Kinematics(bare).position("tip", q) - pin))
    f = integrator(System(*bare.frames, vioc.DistanceConstraint("tip", "pin", far)), 0.01)
    assert np.isfinite(f.initial_state(q)).all()
    with pytest.raises(ConstraintError):
        f.initial_state(q + 1e-5)


def rods(L, *more):
    """Two pendulums whose ends a rod of 1 m joins, in units of 1/L m."""
    mass = Mass(1.0, (0.02 * L * L,) * 3, (0, 0, -0.25 * L))
    left = ry("a", mass=mass)[tz(-0.5 * L, name="P")]
    right = tx(1.0 * L)[ry("b", mass=mass)[tz(-0.5 * L, name="R")]]
    rod = vioc.DistanceConstraint("P", "R", 1.0 * L, name="rod")
    return System(left, right, Gravity(0, 0, -9.81 * L), rod, *more, name="rods")


@cache
def held(L):
    """A configuration and velocity of `rods`."""
    q = vioc.consistent_configuration(rods(L), {"a": 0.5, "b": 0.5}, fixed="a").q
    return q, vioc.project_velocity(rods(L), q, {"a": 1.0})


@cache
def swung(L, limits, backend):
    """An angle of `rods` over a second."""
    stop = [vioc.JointLimits("a", -2, 2)] if limits else []
    f = vioc.MaximalVI(rods(L, *stop), 0.01, backend=backend, smoothing=1e-8 * L * L)
    return f.rollout(f.initial_state(*held(L)), steps=100)["a"]


@pytest.mark.parametrize("L", [1e-3, 1e6, 1e9])
@pytest.mark.parametrize("limits", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
def test_maximal_steps_are_taken_in_any_unit_of_length(backend, limits, L):
    """A rod's residual is in m^2; in um rounding of it was above what a step may leave."""
    run, wanted = (swung(unit, limits, backend) for unit in (L, 1.0))
    # open limits push by smoothing m / gap, 1e-8 N m on 0.1 kg m^2 over 1 s: they are in rad in every unit
    np.testing.assert_allclose(run, wanted, rtol=0, atol=5e-8 if limits else 1e-10)


@pytest.mark.parametrize("L", [1e-4, 1.0, 1e8])
@pytest.mark.parametrize("integrator", [vioc.MidpointVI, vioc.LinearTimeVI, vioc.MaximalVI])
def test_start_velocities_are_judged_in_any_unit_of_length(integrator, L):
    """A rate that violates the rod by 1e-5 of its parts is refused, one that does by rounding is taken."""
    f, (q, v) = integrator(rods(L), 0.01), held(L)
    f.initial_state(q, v)
    f.initial_state(q, v * 1e-14 + [0, 1e-15])  # noise of what rests
    with pytest.raises(ConstraintError, match="rod"):
        f.initial_state(q, v * [1, 1 + 1e-5])


@pytest.mark.parametrize("lines", [False, True])
def test_a_light_wrist_is_optimized_as_exactly_as_its_shoulder(lines):
    """Inertias of 8 and 2.5e-6 kg m^2: in units of the whole arm the wrist's gradient was none."""
    wrist = ry("wrist")[tz(-0.05, mass=1e-3)]
    inputs = JointForce("shoulder", "u-shoulder"), JointForce("wrist", "u-wrist")
    f = vioc.MidpointVI(System(ry("shoulder")[tz(-0.5, mass=30.0)[wrist]], G, *inputs), 0.02)
    inertia = np.array([7.5, 2.5e-6])
    weights = [100.0, 100.0, *4 / inertia**2]
    x0, goal = (f.initial_state({"shoulder": a, "wrist": b}) for a, b in ((-0.5, 0.3), (1.0, -1.0)))
    torque = inertia * 9.81 / [0.5, 0.05]
    cost = quadratic(f, R=np.diag(0.1 / torque**2), Qf=np.diag(weights), reference=goal)
    guess = (straight_line(x0, goal, 40), np.zeros((40, 2))) if lines else None
    best = optimize(f, cost, guess, x0=x0, steps=40, method="shooting")
    lin = f.linearize_trajectory(run := f.rollout(x0, best.u))
    expansion = cost.expand(run, lin)
    by_x, by_u = np.vstack([expansion.first[:, : f.ndx], expansion.end]), expansion.first[:, f.ndx :]
    costate, gradient, parts = by_x[-1], np.empty_like(by_u), np.empty_like(by_u)
    for k in reversed(range(40)):
        gradient[k] = by_u[k] + lin.B[k].T @ costate
        parts[k] = np.abs(by_u[k]) + np.abs(lin.B[k].T) @ np.abs(costate)
        costate = by_x[k] + lin.A[k].T @ costate
    assert (np.abs(gradient).max(axis=0) <= 1e-6 * parts.max(axis=0)).all()


def thrown(L):
    """A rod with a hinged tail and two spherical feet, in units of 1/L m."""
    rod = Mass(1.0, (0.02 * L * L,) * 3)
    tail = Mass(0.4, (5e-3 * L * L,) * 3, (0.1 * L, 0, 0))
    bend = tx(0.2 * L)[ry("bend", mass=tail)[tx(0.2 * L, name="toe")]]
    body = tx("x")[tz("z")[ry("turn", mass=rod)[tx(-0.2 * L, name="heel"), bend]]]
    feet = [vioc.Contact(n, radius=0.05 * L, friction=0.6, name=f"at-{n}") for n in ("heel", "toe")]
    return System(body, Gravity(0, 0, -9.81 * L), TorsionalSpring("bend", 2.0 * L * L), *feet)


@cache
def landed(integrator, backend, L):
    """Places of both feet of `thrown` over 0.3 s, m."""
    f = integrator(thrown(L), 0.01, smoothing=1e-8 * L * L, backend=backend)
    x0 = f.initial_state({"z": 0.35 * L, "turn": 0.4, "bend": 0.3}, {"x": 1.0 * L, "turn": 2.0})
    found = f.rollout(x0, steps=30)
    return np.stack([found["toe:x"] / L, found["toe:z"] / L, found["heel:x"] / L])


@pytest.mark.parametrize("integrator", [vioc.ContactVI, vioc.MaximalVI])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("L", [1e-3, 1e3])
def test_contact_steps_are_the_same_in_any_unit_of_length(integrator, backend, L):
    """Speeds and tolerances that were told in metres moved these feet by 3 nm in millimetres."""
    run, wanted = (landed(integrator, backend, unit) for unit in (L, 1.0))
    # rounding of positions of about 1 m, amplified over the impacts of 30 steps
    np.testing.assert_allclose(run, wanted, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "m, L, dt", [(1.0, 1.0, 1e-2), (1e-9, 1.0, 1e-6), (1e-12, 1e-3, 1e-7), (1e6, 1e3, 1.0)]
)
def test_a_falling_pendulum_is_no_equilibrium_in_any_unit(m, L, dt):
    """A step of 1 us moved a pendulum of 1 ug by less than 1e-10 rad, and its momentum by less than 1e-10."""
    S = System(ry("a")[tz(-L, mass=m)], G, JointForce("a", "u"))
    f = vioc.MidpointVI(S, dt)
    with pytest.raises(OptimizationError, match="no equilibrium near the guess with a, u.u fixed"):
        equilibrium(f, a=1.0, u=0.0)
    assert equilibrium(f, guess={"a": 0.3}, fixed="u.u")["a"] == pytest.approx(0, abs=1e-9)
    assert equilibrium(f, a=1.0).u == pytest.approx([m * 9.81 * L * np.sin(1.0)], rel=1e-9)


@pytest.mark.parametrize("period, dt", [(1.0, 1e-2), (1e4, 1e-3)])
def test_a_slow_spring_comes_to_rest_where_it_pulls_no_more(period, dt):
    """A spring of 1e4 s moves a mass by 1e-13 m in a step of 1 ms: any place was an equilibrium."""
    f = vioc.MidpointVI(System(tx("x", mass=1.0), TorsionalSpring("x", (2 * np.pi / period) ** 2)), dt)
    assert equilibrium(f, guess={"x": 0.3})["x"] == pytest.approx(0, abs=1e-9)


def test_an_arm_is_held_at_the_end_of_its_reach():
    """The derivative of the height vanishes there, and the height is 1.3 m but for rounding."""
    links = ry("a")[tz(0.6, mass=1.0)[ry("b")[tz(0.7, name="tip", mass=1.0)]]]
    f = vioc.MidpointVI(System(links, G, JointForce("a", "u"), JointForce("b", "w")), 0.01)
    held = equilibrium(f, {"tip:z": 1.3}, guess={"a": 0.1, "b": -0.05})
    assert held["tip:z"] == pytest.approx(1.3, abs=1e-9)
    assert held["a"] == pytest.approx(0, abs=1e-3) == held["b"]


def test_stiff_springs_come_to_rest():
    """Rounding errors of a place move the momentum by more than a tolerance relative to its size."""
    spring = TorsionalSpring("x", 1e4, 1.7)
    f = vioc.MidpointVI(System(tx("x", mass=1e-3), spring), 1e-2)
    assert equilibrium(f, guess={"x": 0.3})["x"] == pytest.approx(1.7, rel=1e-12)


@pytest.mark.parametrize(("length", "mass"), [(5e-7, 1.0), (5e-4, 1e-9), (5e5, 1e6)])
def test_parameters_that_rescale_a_mechanism_are_as_good_as_numbers(length, mass):
    """Steps are judged by the masses that a map has, not by those with which it was declared."""

    def cart(length, mass):
        pole = ry("theta")[tz(length, mass=mass)]
        return System(tx("x", mass=mass)[pole], Gravity(0, 0, -9.81), JointForce("x", "force"))

    dt = 0.01 * np.sqrt(length / 0.5)
    declared = MidpointVI(cart(P("length", 0.5), P("mass", 1.0)), dt)
    by_value = declared.with_parameters(length=length, mass=mass)
    by_number = MidpointVI(cart(length, mass), dt)
    x = by_number.initial_state({"theta": 0.1})
    units = np.array([length, 1.0, mass * length / dt, mass * length**2 / dt])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found, expected = (f.linearize(x) for f in (by_value, by_number))
        moved = [f.step(x) / units for f in (by_value, by_number)]
    np.testing.assert_allclose(*moved, atol=1e-9)
    scales = units / units[:, None], mass * length / dt**2 / units[:, None]
    for a, b, scale in zip(found, expected, scales, strict=True):
        np.testing.assert_allclose(a * scale, b * scale, atol=1e-6 * np.abs(b * scale).max())
