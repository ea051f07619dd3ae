"""Loops made in one call: what they are sample by sample, where steps are hard, what they refuse."""

import warnings
from itertools import product

import casadi as ca
import numpy as np
import pytest
from support.target_folders import needs_compiler

import vioc
from vioc.control import ClosedLoop, Measurement, dlqr, equilibrium, kalman
from vioc.control.feedback import (
    ConfigurationObserver,
    DelayedMap,
    ExtendedKalmanFilter,
    ExtendedMap,
    Law,
    LimitedLaw,
    OffsetFree,
    ScheduledLaw,
    StateLaw,
    as_law,
    track_curve,
)
from vioc.errors import StepError


class Own(Law):
    """A law as a user's own one: it says nothing but what to do at a sample."""

    def __init__(self, law):
        self.law, self.map = as_law(law), as_law(law).map

    def start(self):
        return self.law.start()

    def apply(self, k, x, memory):
        return self.law.apply(k, x, memory)


@pytest.fixture(scope="module")
def cart():
    f = vioc.MidpointVI(vioc.models.load("cart_pole"), 0.02, wrap=("theta",))
    up = equilibrium(f, theta=0.0)
    return f, up, dlqr(f, up, {"x": 10.0, "theta": 100.0}, 0.1)


def pair(loop, start, steps, **options):
    """The loop made in one call, and sample by sample."""
    alone = ClosedLoop(loop.plant, Own(loop.law), loop.observer, loop.bounds, loop.W, loop.W_u, loop.hold)
    return loop.simulate(start, steps, **options), alone.simulate(start, steps, **options)


def assert_same(one, other, tolerance=1e-11):
    """Two runs of a stable loop hold the same but for rounding, which the loop forgets."""
    for name in ("estimates", "measurements", "commands"):
        a, b = getattr(one, name), getattr(other, name)
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * max(1.0, np.nanmax(np.abs(b), initial=0.0)))
    np.testing.assert_array_equal(one.saturated, other.saturated)
    a, b = one.trajectory, other.trajectory
    for name in ("x", "u", "multipliers", "t"):
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=0, atol=tolerance * 10)
    assert a.k0 == b.k0
    if other.covariances is None:
        assert one.covariances is None
    else:
        known = ~np.isnan(other.covariances).any(axis=(1, 2))
        np.testing.assert_array_equal(known, ~np.isnan(one.covariances).all(axis=(1, 2)))
        a, b = one.covariances[known], other.covariances[known]
        assert (np.abs(a - b) <= 1e-7 * np.abs(b).max(axis=(1, 2), keepdims=True)).all()
    np.testing.assert_allclose(one.belief.x, other.belief.x, rtol=0, atol=tolerance * 10)


@pytest.mark.parametrize(
    "backend, noise", [("virtual", None), ("virtual", 3), pytest.param("compiled", 3, marks=needs_compiler)]
)
def test_loops_are_what_they_are_sample_by_sample(backend, noise, cart):
    f, up, law = cart
    f = vioc.MidpointVI(f.system, f.dt, wrap=f.wrap, backend=backend)
    sensors = Measurement(f, {"x": 1e-7, "theta": 1e-7}, counts={"theta": 4096}, resolution={"x": 1e-4})
    filtered = kalman(f, up, sensors, 1e-8, W_u=1e-2)
    extended = ExtendedKalmanFilter(f, sensors, 1e-8, W_u=1e-2, P0=1e-3)
    places = [
        dlqr(f, equilibrium(f, x=x, theta=0.0), {"x": 10.0, "theta": 100.0}, 0.1) for x in (-0.3, 0, 0.5)
    ]
    scheduled = ScheduledLaw.of(places, "x")
    start = f.state(x=0.2, theta=0.3 + 2 * np.pi)
    limited = LimitedLaw(law, 100.0, bounds={"force": (-6, 5)}, before={"force": -3.0})
    plans = [law, scheduled, limited, LimitedLaw(scheduled, 100.0)]
    for plan in plans if backend == "virtual" else plans[-1:]:
        for observer in (None, filtered, extended):
            how = dict(W=1e-8, W_u=1e-2) if noise else {}
            loop = ClosedLoop(f, plan, observer, {"force": (-7.0, 4.0)}, **how)
            one, other = pair(loop, start, 60, noise=noise, estimate=up.x + 0.01)
            assert_same(one, other, 1e-9)
            assert one.saturated.any()
            if isinstance(plan, LimitedLaw):
                commands = one.commands if plan.before is None else np.vstack([plan.before, one.commands])
                assert np.abs(np.diff(commands, axis=0)).max() <= 100.0 * f.dt * (1 + 1e-12)
                np.testing.assert_allclose(one.memory.u, other.memory.u, atol=1e-8)


@pytest.mark.parametrize("noise", [None, 3])
@pytest.mark.parametrize("rates", [(1, 1), (4, 1), (4, 4), (6, 3)])
def test_loops_of_several_rates_are_what_they_are_sample_by_sample(rates, noise, cart):
    """Law and observer with longer steps than the plant: every kind of observer, and ends between samples."""
    f, up, _ = cart
    plant = f.with_dt(0.005)
    slow, seen = (plant.with_dt(0.005 * n) for n in rates)
    law = dlqr(slow, up, {"x": 10.0, "theta": 100.0}, 0.1)
    sensors = Measurement(seen, {"x": 1e-7, "theta": 1e-7}, counts={"theta": 4096})
    observers = (
        None,
        kalman(seen, up, sensors, 1e-8, W_u=1e-2),
        ExtendedKalmanFilter(seen, sensors, 1e-8, W_u=1e-2, P0=1e-3),
        ConfigurationObserver(seen, 1e-9),
    )
    plans = law, LimitedLaw(law, 100.0, bounds={"force": (-6, 5)})
    for plan, observer in product(plans, observers):
        if observer is None and rates[1] > 1:
            continue
        how = dict(W=1e-9, W_u=1e-2) if noise else {}
        loop = ClosedLoop(plant, plan, observer, {"force": (-7.0, 4.0)}, **how, hold=rates != (1, 1))
        start = plant.state(x=0.2, theta=0.2 + 2 * np.pi)
        estimate = start if observer is None else start + [0.0, 0.0, 0.01, 0.01]
        assert_same(*pair(loop, start, 12 * 10 + 5, noise=noise, estimate=estimate), 1e-9)


@pytest.mark.parametrize("noise", [None, 3])
def test_loops_with_delays_and_disturbances_are_what_they_are_sample_by_sample(cart, noise):
    """Commands that act late; disturbances of an input and a state, and a sensor's bias, in the observer."""
    f, _, law = cart
    late, start = DelayedMap(f, 2), f.state(x=0.2, theta=0.2)
    pushed = ExtendedMap(f, disturbances=["force"])
    biased = ExtendedMap(f, disturbances=["p.x"], biases=["theta"])
    loops = [
        ClosedLoop(late, dlqr(late, (np.zeros(late.nx), np.zeros(1)), 1.0, 0.1)),
        ClosedLoop(late, law, ExtendedKalmanFilter(late, Measurement(late, {"x": 1e-7}), 1e-8, P0=1e-4)),
    ]
    for seen in pushed, biased:
        sensors = Measurement(seen, {"x": 1e-7, "theta": 1e-7})
        observer = kalman(seen, (np.zeros(seen.nx), np.zeros(1)), sensors, 1e-8)
        loops.append(ClosedLoop(f, law, observer, {"force": (-7.0, 4.0)}))
    observer = kalman(
        pushed, (np.zeros(5), np.zeros(1)), Measurement(pushed, {"x": 1e-7, "theta": 1e-7}), 1e-8
    )
    loops.append(ClosedLoop(f, OffsetFree(law, pushed), observer))
    for loop in loops:
        x0 = loop.plant.join(start, 0.1 * np.ones(f.nu)) if loop.plant is late else start
        one, other = pair(loop, x0, 60, noise=noise)
        assert_same(one, other, 1e-9)
        if isinstance(loop.law, OffsetFree):
            np.testing.assert_allclose(one.memory.u, other.memory.u, rtol=0, atol=1e-8)


@pytest.mark.parametrize("kind", [kalman, ExtendedKalmanFilter])
@pytest.mark.parametrize("wraps", [(("theta",), ()), ((), ("theta",))])
def test_observers_of_loops_judge_angles_as_their_own_sensors(cart, kind, wraps):
    """Plant and observer's map wrap different angles; the first estimate is a turn away."""
    f, up, law = cart
    plant, seen = (vioc.MidpointVI(f.system, f.dt, wrap=wrap) for wrap in wraps)
    sensors = Measurement(seen, {"x": 1e-7, "theta": 1e-7})
    observer = kalman(seen, up, sensors, 1e-8) if kind is kalman else kind(seen, sensors, 1e-8, P0=1e-3)
    start = plant.state(x=0.1, theta=0.1)
    loop = ClosedLoop(plant, law, observer, {"force": (-7.0, 5.0)})
    assert_same(*pair(loop, start, 60, estimate=start + [0.0, 2 * np.pi, 0.0, 0.0]), 1e-9)


def test_loops_with_measured_configurations_take_one_sample_alone(cart, monkeypatch):
    """The first: the momentum of its estimate is given, and follows from no two configurations."""
    f, _, law = cart
    alone, correct = [], ConfigurationObserver.correct
    monkeypatch.setattr(ConfigurationObserver, "correct", lambda *a: alone.append(a[1]) or correct(*a))
    ClosedLoop(f, law, ConfigurationObserver(f)).simulate(f.state(theta=0.1), 300)
    assert alone == [0]


@pytest.mark.parametrize("forcing, alpha", [("symmetric", 0.5), ("left", 0.3)])
def test_configurations_give_the_state_of_loops_with_a_prescribed_one(forcing, alpha):
    """A pendulum below a prescribed pivot: without noise the estimate is the state itself."""
    arm = vioc.tx(vioc.K("pivot"))[vioc.ry("a")[vioc.tz(-1.0, mass=1.0)]]
    shake = vioc.JointForce("a", "torque"), vioc.JointDamping("a", 0.3)
    f = vioc.MidpointVI(
        vioc.System(arm, vioc.Gravity(0, 0, -9.81), *shake), 0.02, alpha=alpha, forcing=forcing
    )
    gains = np.zeros((1, f.nu, f.ndx))
    gains[0, 0, :2] = 3.0, 1.0
    law = StateLaw(f, f.state()[None], np.full((1, f.nu), 0.1), gains, "holds")
    start = f.initial_state({"a": 0.5}, {"a": -0.3})
    one, other = pair(ClosedLoop(f, law, ConfigurationObserver(f)), start, 100)
    assert_same(one, other, 1e-11)
    np.testing.assert_allclose(one.estimates, one.trajectory.x[:-1], rtol=0, atol=1e-11)


def test_tables_of_gains_along_a_motion_and_filters_along_it(cart):
    f, up, _ = cart
    run = dlqr(f, up, 1.0, 1.0).rollout(f.state(theta=0.4), 60)
    follow = dlqr(f, run, 1.0, 0.1)
    filtered = kalman(f, run, Measurement(f, {"theta": 1e-6, "x": 1e-6}), 1e-8, P0=1e-4)
    for observer in (None, filtered):
        assert_same(*pair(ClosedLoop(f, follow, observer), f.state(theta=0.45), 60, noise=1))
    later = track_curve(f, run.x, run.u, 1.0, 0.5, k0=7)
    again = StateLaw(f, *(a[7:27] for a in (as_law(later).X, as_law(later).U, as_law(later).K)), "repeats", 7)
    assert_same(*pair(ClosedLoop(f, again), run.x[7], 50, k0=7))
    with pytest.raises(ValueError, match="the law is given for samples 0 .. 59, asked at 60"):
        ClosedLoop(f, follow).simulate(f.state(theta=0.45), 61)
    begun_late = ClosedLoop(f, follow, filtered)  # the filter's own covariance is of another sample there
    assert_same(*pair(begun_late, run.x[20], 40, k0=20))


def test_the_plant_and_the_observer_have_parameters_of_their_own():
    bob = vioc.tz(vioc.P("height", -1.0), name="bob", mass=vioc.P("m", 1.0))
    arm = vioc.System(vioc.ry("theta")[bob], vioc.Gravity(0, 0, -9.81), vioc.JointForce("theta", "torque"))
    f = vioc.MidpointVI(arm, 0.02)
    up = equilibrium(f, theta=np.pi)
    filtered = kalman(f, up, Measurement(f, {"bob:x": 1e-6}), 1e-6)
    law = dlqr(f, up, 1.0, 0.1)
    runs = []
    for mass in (0.9, 1.2):
        loop = ClosedLoop(f.with_parameters(m=mass, height=-0.97), law, filtered)
        runs.append(pair(loop, f.state(theta=np.pi + 0.05), 200))
        assert_same(*runs[-1])
    assert np.abs(runs[0][0].trajectory.x - runs[1][0].trajectory.x).max() > 1e-3
    derived = type("Derived", (StateLaw,), {"__call__": lambda self, k, x: np.zeros(1)})
    idle = derived(f, law.x[None], law.u[None], law.K[None], "holds")
    assert not ClosedLoop(f, idle).simulate(f.state(theta=0.5), 3).commands.any()


@pytest.mark.parametrize("kind", ["constrained", "explicit"])
def test_extended_filters_have_the_map_s_derivatives(kind):
    """Along a swing: of a bob held by a rod, with its impulses, and of a Runge-Kutta step."""
    bob = vioc.tx("x")[vioc.tz("z", name="bob", mass=1.0)]
    rod = vioc.DistanceConstraint("world", "bob", 1.0, name="rod")
    rubs = [vioc.JointDamping(n, 0.5) for n in "xz"]
    system = vioc.System(bob, vioc.Gravity(0, 0, -9.81), rubs, vioc.JointForce("x", "push"), rod)
    if kind == "explicit":
        arm = vioc.ry("theta")[vioc.tz(-1.0, mass=1.0)]
        drives = vioc.JointForce("theta", "push"), vioc.JointDamping("theta", 0.5)
        f = vioc.RungeKutta(vioc.System(arm, vioc.Gravity(0, 0, -9.81), drives), 0.02)
        start, y = f.initial_state({"theta": 0.8}), Measurement(f, {"theta": 1e-4})
    else:
        f = vioc.MidpointVI(system, 0.02)
        start, y = (
            f.initial_state({"x": np.sin(0.8), "z": -np.cos(0.8)}),
            Measurement(f, {"x": 1e-4, "z": 1e-4}),
        )
    gains = np.full((1, f.nu, f.ndx), 0.1)
    law = StateLaw(f, f.state()[None], np.zeros((1, f.nu)), gains, "holds")
    observer = ExtendedKalmanFilter(f, y, 1e-6, W_u=1e-2, P0=1e-3)
    loop = ClosedLoop(f, law, observer, {f"u.{n}": 5.0 for n in f.input_names}, W_u=1e-2)
    one, other = pair(loop, start, 120, noise=5)
    assert_same(one, other, 1e-8)
    belief = observer.start(start)
    for k, (y_k, u) in enumerate(zip(one.measurements, np.clip(one.commands, -5, 5), strict=True)):
        belief = observer.correct(k, belief, y_k)
        np.testing.assert_allclose(one.covariances[k], belief.P, rtol=0, atol=1e-8 * np.abs(belief.P).max())
        belief = observer.predict(k, belief, u)
    np.testing.assert_allclose(one.belief.P, belief.P, rtol=0, atol=1e-8 * np.abs(belief.P).max())


def test_hard_steps_of_a_loop_are_the_map_s_own():
    """x+ = 1.1 x + u where |u| <= 1, and no step beyond: there the loop ends, with its motion until then."""
    x, u = ca.SX.sym("x"), ca.SX.sym("u")
    f = vioc.CasadiMap(ca.Function("f", [x, u], [1.1 * x + u + 1e-300 * ca.sqrt(1 - u * u)]), 1.0)
    law = StateLaw(f, np.zeros((1, 1)), np.zeros((1, 1)), np.full((1, 1, 1), 0.8), "holds")
    run = law.rollout([1.0], 5)
    np.testing.assert_allclose(run.x[:, 0], 0.3 ** np.arange(6), rtol=1e-14)
    far = StateLaw(f, np.zeros((1, 1)), np.zeros((1, 1)), np.full((1, 1, 1), -0.2), "holds")
    with pytest.raises(StepError) as caught:
        ClosedLoop(f, far).simulate([1.0], 20)
    k = caught.value.k
    assert 1.3 ** (k - 1) * 0.2 <= 1 < 1.3**k * 0.2
    np.testing.assert_allclose(caught.value.trajectory.x[:, 0], 1.3 ** np.arange(k + 1), rtol=1e-13)
    with pytest.raises(StepError, match=f"step {k}"):
        far.rollout([1.0], 20)


@pytest.mark.parametrize("dt", [0.1, 0.2])
def test_every_step_of_a_loop_is_the_map_s_own_however_wild(dt):
    """A double pendulum turns fast, where a sample's solver may find another end than the map."""
    arm = vioc.ry("a")[vioc.tz(-1.0, mass=1.0)[vioc.ry("b")[vioc.tz(-1.0, mass=1.0)]]]
    f = vioc.MidpointVI(vioc.System(arm, vioc.Gravity(0, 0, -9.81), vioc.JointForce("a", "u")), dt)
    law = StateLaw(f, np.zeros((1, 4)), np.zeros((1, 1)), np.full((1, 1, 4), 0.1), "holds")
    sensors = Measurement(f, {"a": 1e-6, "b": 1e-6})
    rng = np.random.default_rng(0)
    for observer in (None, ExtendedKalmanFilter(f, sensors, 1e-3)):
        for _ in range(3):
            start = f.initial_state(rng.uniform(-3, 3, 2), rng.uniform(-8, 8, 2))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    run = ClosedLoop(f, law, observer).simulate(start, 20).trajectory
                except StepError as error:
                    run = error.trajectory
                for k in range(len(run.u)):
                    alone = f.step(run.x[k], run.u[k], k)
                    np.testing.assert_allclose(run.x[k + 1], alone, rtol=0, atol=1e-6 * np.abs(run.x).max())


def test_a_law_that_asks_for_no_number_is_told_at_its_sample():
    x, u = ca.SX.sym("x"), ca.SX.sym("u")
    f = vioc.CasadiMap(ca.Function("f", [x, u], [2.0 * x + u]), 1.0)
    wild = StateLaw(f, np.zeros((1, 1)), np.zeros((1, 1)), np.full((1, 1, 1), -1e200), "holds")
    with (
        np.errstate(over="ignore"),
        pytest.raises(ValueError, match="command at sample 1: expected finite numbers, got inf"),
    ):
        ClosedLoop(f, wild).simulate([1.0], 9)
