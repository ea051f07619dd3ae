"""Derivatives of steps by their length and start, against differences of steps."""

from functools import cache

import casadi as ca
import numpy as np
import pytest
from support.marionette import pulled, start
from support.mechanisms import everything, state_near

import vioc
from vioc import Composition, LinearTimeVI, MaximalVI, MidpointVI
from vioc.control import dlqr, join, optimize, quadratic
from vioc.control.feedback import DelayedMap, ExtendedMap
from vioc.maps import SwitchedMap

# inside: maps with noise, and the suite's check of derivatives by times
from vioc.maps.made.noisy import NoisyMap
from vioc.maps.suite import Case, derivatives_by_times
from vioc.models import load

DT = 0.02


def shaken(system, name, size=1.0):
    """A system that something shakes in time."""
    return system.with_components(vioc.UserForce(lambda k: {name: size * ca.sin(7 * k.t) * (1 + k.q(name))}))


@cache
def cart_pole(**options):
    f = MidpointVI(shaken(load("cart_pole"), "x"), DT, **options)
    return f, f.initial_state({"theta": 0.3}, {"x": 0.2, "theta": 1.0})


@cache
def of_everything(kind):
    """Kinematic variables, a string, springs, damping, parameters."""
    f = kind(shaken(everything(), "c"), DT)
    return f, state_near(MidpointVI(everything(), DT), 3)


def loop(kind):
    f = kind(load("closed_chain"), DT)
    guess = {"J": -0.62, "H": 1.35, "K": 0.1, "M": -1.34, "A": 0.04, "C": 1.28, "E": 0.93}
    return f, f.initial_state(vioc.consistent_configuration(f.system, guess))


def marionette():
    f = MidpointVI(load("marionette"), 0.01, forcing="left")
    run = f.rollout(start(f), pulled(f, f.dt * np.arange(1, 31)), warn=False)
    return f, run.x[-1], run.u[-1]


@cache
def free_body():
    """A satellite with a driven arm."""
    arm = vioc.tx(0.5)[vioc.ry("turn")[vioc.tz(0.4, mass=vioc.Mass(0.5, (0.1, 0.1, 0.02)))]]
    hull = vioc.free("b", frame="hull", mass=vioc.Mass(1.5, (0.1, 0.2, 0.25), (0.0, 0.1, 0.0)))[arm]
    system = vioc.System(hull, vioc.Gravity(0, 0, -9.8), vioc.JointForce("turn", "torque"))
    f = MaximalVI(system, DT)
    return f, moving(f), [2.0]


def moving(f):
    rng = np.random.default_rng(0)
    q, v = (
        {n: 0.3 * e for n, e in zip(f.mechanism.coordinates, rng.standard_normal(20), strict=False)}
        for _ in "qv"
    )
    return f.initial_state(q, v)


def slider_crank():
    system = vioc.System(
        vioc.rx("a")[vioc.tz(-1, mass=1)[vioc.rx("b")[vioc.tz(-1, name="tip", mass=1)]]],
        vioc.ty(1.0, name="post"),
        vioc.coincident("tip", "post", axes="y", name="slot"),
        vioc.Gravity(0, 0, -9.8),
    )
    f = MaximalVI(system, DT)
    q = vioc.consistent_configuration(system, {"a": 0.3, "b": 1.2}).q
    return f, f.initial_state(q)


def delayed():
    f, x, u = free_body()
    return DelayedMap(f), np.concatenate([x, u]), [1.0]


CASES = {
    "cart-pole": cart_pole,
    "cart-pole, off the middle": lambda: cart_pole(alpha=0.3),
    "cart-pole, forces at the start": lambda: cart_pole(forcing="left"),
    "cart-pole, fourth order": lambda: (Composition(cart_pole()[0], 4), cart_pole()[1]),
    "cart-pole, compiled": lambda: cart_pole(backend="compiled"),
    "one of each": lambda: of_everything(MidpointVI),
    "one of each, linear-time": lambda: of_everything(LinearTimeVI),
    "one of each, fourth order": lambda: (
        Composition(of_everything(MidpointVI)[0], 4),
        of_everything(MidpointVI)[1],
    ),
    "cart-pole, in three substeps": lambda: (cart_pole()[0].substeps(3), cart_pole()[1]),
    "one of each, in two substeps": lambda: (
        of_everything(MidpointVI)[0].substeps(2),
        of_everything(MidpointVI)[1],
    ),
    "loops": lambda: loop(MidpointVI),
    "loops, linear-time": lambda: loop(LinearTimeVI),
    "marionette": marionette,
    "free body": free_body,
    "slider-crank of free bodies": slider_crank,
    "delayed": delayed,
}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n == "marionette" else ()) for n in CASES]
)
def test_against_differences(name):
    f, x, *u = CASES[name]()
    u = np.asarray(u[0]) if u else f.rest_input(x) + 5e-3 * np.arange(1, f.nu + 1)
    derivatives_by_times(Case(f, x, u, solved=1e-10, pickles=False))


def test_by_length_and_start_of_a_formula():
    """x + dt sin(t + dt) u, by hand; and what does not ask for the time does not change with it."""
    x, u, t, dt = (ca.SX.sym(n) for n in ("x", "u", "t", "dt"))
    f = vioc.CasadiMap(ca.Function("f", [x, u, t, dt], [x + dt * ca.sin(t + dt) * u]), 0.1)
    steps = f.steps_at([[0.3], [0.4]], [[2.0], [1.0]], 5, [0.1, 0.2])
    h, s, c, w = steps.h, np.sin(steps.t + steps.h), np.cos(steps.t + steps.h), steps.u[:, 0]
    timed = f.derivatives.timed
    lin, H = timed.first(steps), timed.second(steps, np.full((2, 1), 3.0), np.zeros((2, 0)))
    np.testing.assert_allclose(lin.P[:, 0], np.stack([(s + h * c) * w, h * c * w], axis=1), rtol=1e-14)
    np.testing.assert_allclose(H.up[:, 0], 3 * np.stack([s + h * c, h * c], axis=1), rtol=1e-14)
    pp = np.array([[2 * c - h * s, c - h * s], [c - h * s, -h * s]]) * w
    np.testing.assert_allclose(H.pp, 3 * np.moveaxis(pp, 2, 0), rtol=1e-13)
    still = vioc.CasadiMap(ca.Function("f", [x, u], [x + u]), 0.1)
    assert not still.derivatives.timed.first(still.steps_at([[0.3]], [[2.0]])).P.any()


KINDS = (
    MidpointVI,
    vioc.RungeKutta,
    vioc.GalerkinVI,
    lambda s, h: Composition(MidpointVI(s, h)),
    LinearTimeVI,
)


@pytest.mark.parametrize("kind", KINDS)
def test_turns_of_steps_of_other_lengths_begin_when_they_do(kind):
    """An impulse that is an integral of time alone, against the map that does not switch."""
    mass = vioc.System(
        vioc.tx("q", mass=1.0), vioc.UserForce(lambda k: {"q": ca.sin(7 * k.t)}), vioc.JointForce("q", "u")
    )
    f = kind(mass, 0.02)
    lengths, U = np.repeat([0.02, 0.05, 0.02], [10, 10, 5]), np.zeros((25, 1))
    plain = f.rollout(f.initial_state(), U, dt=lengths)
    switched = SwitchedMap([f, f.with_dt(0.05)], [10, 10], periodic=True)
    run = switched.rollout(f.initial_state(), U, dt=lengths)
    bound = 1000 * f.tolerance
    np.testing.assert_allclose(run.x, plain.x, rtol=0, atol=bound)
    exact = (1 - np.cos(7 * lengths.sum())) / 7
    assert run.x[-1, 1] == pytest.approx(exact, abs=(7 * 0.05) ** 2 / 24 / 7 * 2)  # of the midpoint rule
    again = switched.rollout(plain.x[12], U[12:], k0=12, dt=lengths[12:])
    np.testing.assert_allclose(again.x, plain.x[12:], rtol=0, atol=bound)
    np.testing.assert_allclose(again.t, plain.t[12:], rtol=0, atol=1e-12)
    one = switched.step(plain.x[10], np.zeros(1), 10)
    np.testing.assert_allclose(one, plain.x[11], rtol=0, atol=bound)


def test_turns_of_one_step_length_begin_after_as_many_steps_of_the_map():
    """Steps of unequal lengths from step k0 on: at k0 times the map's own step, as without turns."""
    mass = vioc.System(vioc.tx("q", mass=1.0), vioc.UserForce(lambda k: {"q": ca.sin(7 * k.t)}))
    f = MidpointVI(mass, 0.02)
    switched, lengths, U = SwitchedMap([f, f], [10, 10]), np.array([0.02, 0.05, 0.03]), np.zeros((3, 0))
    plain = f.rollout(f.initial_state(), U, k0=9, dt=lengths)
    run = switched.rollout(f.initial_state(), U, k0=9, dt=lengths)
    assert run.t[0] == pytest.approx(9 * 0.02, abs=1e-15)
    np.testing.assert_allclose(run.t, plain.t, rtol=0, atol=1e-15)
    np.testing.assert_allclose(run.x, plain.x, rtol=0, atol=1000 * f.tolerance)
    assert np.abs(f.rollout(f.initial_state(), U, dt=lengths).x - plain.x).max() > 1e-2
    steps = switched.steps_at(run.x[:-1], U, 9, lengths)
    np.testing.assert_allclose(steps.x1, plain.x[1:], rtol=0, atol=1000 * f.tolerance)


def test_maps_that_go_step_by_step_begin_at_their_own_k0():
    f, x0 = cart_pole()
    lengths, U, k0 = np.array([0.01, 0.03, 0.03, 0.05, 0.02]), np.zeros((5, f.nu)), 50
    plain = f.rollout(x0, U, k0=k0, dt=lengths)
    quiet = (U, np.zeros((5, f.nu, 1)), np.zeros((5, f.nx, 1)), np.ones(5, bool))
    noisy = NoisyMap(f, 1, quiet, k0=k0)
    run = noisy.rollout(x0, np.zeros((5, 1)), dt=lengths)
    np.testing.assert_allclose(run.x, plain.x, rtol=0, atol=1000 * f.tolerance)
    bound = 1e6 * f.tolerance
    np.testing.assert_allclose(
        noisy.linearize_trajectory(run).A, f.linearize_trajectory(plain).A, rtol=bound, atol=bound
    )
    pushed = vioc.control.feedback.ExtendedMap(f, disturbances=["p.x"])
    run = pushed.rollout(pushed.join(x0), U, k0=k0, dt=lengths)
    np.testing.assert_allclose(run.x[:, : f.nx], plain.x, rtol=0, atol=1000 * f.tolerance)


def test_runs_of_time_are_joined_where_their_times_meet():
    f, x0 = cart_pole()
    first = f.rollout(x0, steps=10)
    late = f.with_dt(0.05).rollout(first.x[-1], steps=4, k0=10)
    with pytest.raises(ValueError, match=r"begins at 0.5 s, here it would at 0.2, .* depends on time"):
        join(first, late)


def test_a_piece_of_a_run_of_unequal_steps_is_followed_when_it_was():
    """What follows it begins at its time, or is refused where it counts steps."""
    f, x0 = cart_pole()
    run = f.rollout(x0, np.zeros((30, f.nu)), dt=np.repeat([0.01, 0.005, 0.015], 10))
    piece = run[10:20]
    assert not np.isclose(piece.t[0], 10 * piece.map.dt)
    regulator = dlqr(f, piece, 1.0, 1.0)
    again = regulator.rollout(piece.x[0])
    np.testing.assert_allclose(again.x, piece.x, rtol=0, atol=1e3 * f.tolerance)
    np.testing.assert_allclose(again.t, piece.t, rtol=0, atol=1e-14)
    message = r"begins at t = 0.1 s, step 10 of steps of 0.005 s at 0.05 s, .* depends on time"
    with pytest.raises(ValueError, match="reference: it " + message):
        regulator.as_law()
    cost = quadratic(piece.map, Q=1.0, R=1.0, Qf=1.0)
    with pytest.raises(ValueError, match="guess: it " + message):
        optimize(piece.map, cost, piece, method="shooting")


def test_a_map_that_tells_no_equations_says_so():
    box = vioc.free("b", frame="box", mass=vioc.Mass(1.0, (0.1, 0.1, 0.1)))
    ground = vioc.Contact("box", radius=0.1)
    f = MaximalVI(vioc.System(box, vioc.Gravity(0, 0, -9.8), ground), DT)
    steps = f.steps_at(f.initial_state({"b-z": 1.0})[None], np.zeros((1, 0)))
    with pytest.raises(NotImplementedError, match="MaximalVI tells no equations .* `explicit` or `residual`"):
        f.derivatives.timed.first(steps)


def test_equations_without_those_of_the_multipliers_determine_no_step():
    """A bob on a string, whose equations of motion are told and whose constraint is not."""

    class Half(vioc.MidpointVI):
        @property
        def residual(self):
            args = super().residual.sx_in()
            return ca.Function("half", args, [super().residual(*args)[: self.nx]])

    bob = vioc.tx("x")[vioc.tz("z", name="bob", mass=1.0)]
    system = vioc.System(bob, vioc.Gravity(0, 0, -9.8), vioc.DistanceConstraint("bob", "world", 1.0))
    whole, half = (kind(system, DT) for kind in (vioc.MidpointVI, Half))
    x0 = whole.initial_state({"x": 0.6, "z": -0.8})
    steps = whole.steps_at(x0[None], np.zeros((1, 0)))
    assert whole.derivatives.timed.first(steps).P.shape[-1] == 2
    with pytest.raises(NotImplementedError, match="Half tells no equations that determine its steps"):
        half.derivatives.timed.first(steps)


@pytest.mark.parametrize("around", [lambda f: f, DelayedMap])
def test_a_free_duration_without_derivatives_by_lengths_is_refused_when_built(around):
    f = around(vioc.GalerkinVI(vioc.models.load("pendulum"), 0.1))
    ExtendedMap(f)  # nothing is asked of its steps' lengths
    with pytest.raises(NotImplementedError, match="GalerkinVI tells no equations .* give the duration"):
        ExtendedMap(f, steps=10)
