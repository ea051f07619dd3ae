"""Moving horizons, missing and rounded measurements, disturbances as states, targets, unequal steps."""

import pickle
from dataclasses import replace
from functools import cache
from itertools import product

import casadi as ca
import numpy as np
import pytest
from scipy.optimize import lsq_linear
from scipy.stats import chi2
from support.control_maps import double_integrator, midpoint_pendulum

import vioc
from vioc import CasadiMap
from vioc.control import (
    ClosedLoop,
    LinearMPC,
    Measurement,
    NonlinearMPC,
    Problem,
    dlqr,
    equilibrium,
    kalman,
    quadratic,
)

# inside: solves of a moving horizon are made to fail now and then
from vioc.control.feedback import (
    ConfigurationObserver,
    DelayedMap,
    ExtendedKalmanFilter,
    ExtendedMap,
    Law,
    MovingHorizon,
    OffsetFree,
    ScheduledLaw,
    as_law,
    covariance,
    moving_horizon,
    track_curve,
)
from vioc.errors import ModelError, StepError

W, W_U, P0 = np.diag([0.01, 0.05]), 0.02, np.diag([1.0, 2.0])
EXACT = dict(tolerance=1e-12, max_iterations=10)


def walked(observer, Y, U, x0=(0.3, -0.2)):
    """The beliefs after each measurement."""
    belief, found = observer.start(np.array(x0)), []
    for k, y in enumerate(Y):
        belief = observer.correct(k, belief, y)
        found.append(belief)
        belief = observer.predict(k, belief, U[k])
    return found


def data(count, ny=1, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((count, ny)), rng.standard_normal((count, 1))


# -- what sensors give ----------------------------------------------------------------------------


def test_encoders_count():
    """Noise of half a count says nothing; rounding has the variance q^2 / 12, which a filter is told."""
    f = midpoint_pendulum()
    q = 2 * np.pi / 4096
    y = Measurement(f, "theta", counts={"theta": 4096})
    assert y.V[0, 0] == pytest.approx(q**2 / 12, rel=1e-14)
    angles = np.random.default_rng(1).uniform(-3, 3, 4000)
    seen = np.array([y.sample(np.array([a, 0.0]), None)[0] for a in angles])
    np.testing.assert_allclose(seen / q, np.round(seen / q), atol=1e-9)
    # 4000 errors, uniform: their variance scatters by sqrt(4/5 / 4000) = 1.4 %
    assert np.var(seen - angles) == pytest.approx(q**2 / 12, rel=0.06)
    both = Measurement(f, {"theta": 1e-4, "p.theta": 0.0}, resolution={"p.theta": 0.1})
    np.testing.assert_allclose(np.diag(both.V), [1e-4, 0.01 / 12], rtol=1e-14)
    again = pickle.loads(pickle.dumps(both))
    np.testing.assert_array_equal(again.V, both.V)
    np.testing.assert_array_equal(again.resolution, both.resolution)
    with pytest.raises(ValueError, match="counts, resolution: expected numbers > 0"):
        Measurement(f, "theta", counts={"theta": 0})
    cart = vioc.MidpointVI(vioc.models.load("cart_pole"), 0.02)
    with pytest.raises(ValueError, match="counts: they are per turn, and 'x' is in m; give resolution="):
        Measurement(cart, ("x", "theta"), counts={"x": 4096})
    with pytest.raises(ModelError, match="wrap: 'x' is in m; only angles"):
        vioc.MidpointVI(cart.system, cart.dt, wrap=("x",))
    with pytest.raises(ModelError, match="counts: unknown name 'phi'"):
        Measurement(f, "theta", counts={"phi": 4096})


def test_rates_of_their_own():
    f = double_integrator()
    y = Measurement(f, {"x": 0.1, "v": 0.2}, every={"v": (3, 1)})
    here = [~np.isnan(y.sample(np.zeros(2), None, k)) for k in range(6)]
    np.testing.assert_array_equal(np.array(here)[:, 1], [False, True, False, False, True, False])
    assert np.array(here)[:, 0].all() and not y.always
    for bad in (0, (2, -1), 1.5):
        with pytest.raises(ValueError, match="every: of v expected n >= 1"):
            Measurement(f, {"x": 0.1, "v": 0.2}, every={"v": bad})
    with pytest.raises(ValueError, match="gains are not steady"):
        kalman(f, (np.zeros(2), np.zeros(1)), y, W)


def test_what_is_not_measured_is_left_out():
    """A filter of known gains, with rates by plan and a sample lost by chance, is the extended filter."""
    f, N = double_integrator(), 14
    y = Measurement(f, {"x": 0.1, "v": 0.2}, every={"v": (3, 1)})
    Y, U = data(N, 2)
    Y[~np.array([y.present(k) for k in range(N)])] = np.nan
    lost = Y.copy()
    lost[5:7] = np.nan
    table = kalman(f, f.rollout([0.3, -0.2], U), y, W, W_u=W_U, P0=P0)
    extended = ExtendedKalmanFilter(f, y, W, W_U, P0)
    for given in (Y, lost):
        for one, other in zip(walked(table, given, U), walked(extended, given, U), strict=True):
            np.testing.assert_allclose(one.x, other.x, rtol=1e-10, atol=1e-12)
            np.testing.assert_allclose(one.P, other.P, rtol=1e-9)
    # a steady filter forgets what it missed
    all_of_it = Measurement(f, {"x": 0.1, "v": 0.2})
    steady = kalman(f, (np.zeros(2), np.zeros(1)), all_of_it, W)
    Y, U = data(60, 2)
    Y[3] = np.nan
    found = walked(steady, Y, U)
    assert np.trace(found[3].P) > 1.2 * np.trace(steady.after[0])
    np.testing.assert_array_equal(found[-1].P, steady.after[0])


def test_configurations_that_are_missing_are_predicted():
    f = vioc.MidpointVI(vioc.models.load("cart_pole"), 0.02)
    run = f.rollout(f.state(theta=0.3), 0.5 * np.ones((8, 1)))
    Y = run.x[:-1, : f.nq].copy()
    Y[4] = np.nan
    for belief, x in zip(walked(ConfigurationObserver(f), Y, run.u, run.x[0]), run.x[:-1], strict=True):
        np.testing.assert_allclose(belief.x, x, atol=1e-9)


# -- moving horizon -------------------------------------------------------------------------------


def test_without_bounds_a_linear_horizon_is_the_kalman_filter():
    f = double_integrator()
    y = Measurement(f, {"x": 0.2})
    Y, U = data(16)
    Y[[6, 7, 12]] = np.nan
    extended = walked(ExtendedKalmanFilter(f, y, W, W_U, P0), Y, U)
    for samples in (1, 5):
        horizon = MovingHorizon(f, y, samples, W, W_U, P0, **EXACT)
        for one, other in zip(walked(horizon, Y, U), extended, strict=True):
            np.testing.assert_allclose(one.x, other.x, rtol=0, atol=1e-10)
            np.testing.assert_allclose(one.P, other.P, rtol=0, atol=1e-10)
            assert one.verdict.startswith("converged") and not one.failures
    # noise on the input alone: a singular covariance, which nothing inverts
    quiet = dict(W=0.0, W_u=W_U, P0=np.diag([0.0, 2.0]))
    extended = walked(ExtendedKalmanFilter(f, y, **quiet), Y, U)
    for one, other in zip(walked(MovingHorizon(f, y, 4, **quiet, **EXACT), Y, U), extended, strict=True):
        np.testing.assert_allclose(one.x, other.x, rtol=0, atol=1e-10)


def test_a_horizon_takes_angles_modulo_a_turn():
    """A pendulum goes round and round, seen by an encoder of one turn and by one that counts turns."""
    arm = vioc.ry("theta")[vioc.tz(-1.0, mass=1.0)]
    f = vioc.MidpointVI(vioc.System(arm, vioc.Gravity(0, 0, -9.81), vioc.JointForce("theta", "u")), 0.05)
    run = f.rollout(f.initial_state({"theta": 2.5}, {"theta": 8.0}), 0.1 * np.ones((24, 1)))
    assert run["theta"][-1] > 2.5 + 2 * np.pi
    Y = run["theta"][:-1, None] + 1e-3 * np.random.default_rng(0).standard_normal((24, 1))
    W, first = np.diag([1e-8, 1e-6]), run.x[0] + [0.01, 0.1]
    for samples in (1, 4):
        turns, one = (
            MovingHorizon(f, Measurement(f, {"theta": 1e-6}, wrap=wrap), samples, W, P0=1e-2)
            for wrap in ((), ("theta",))
        )
        told = (Y + np.pi) % (2 * np.pi) - np.pi
        assert np.abs(told - Y).max() > 6
        known, found = walked(turns, Y, run.u, first), walked(one, told, run.u, first)
        for a, b, x in zip(known, found, run.x[:-1], strict=True):
            np.testing.assert_allclose(b.x, a.x, rtol=0, atol=1e-9)
            np.testing.assert_allclose(b.P, a.P, rtol=1e-6)
            assert not b.failures and abs(b.x[0] - x[0]) < 0.05


def test_exact_sensors_of_one_quantity_give_the_limit_of_accurate_ones():
    """Their common covariance is singular; a zero of the plant on the unit circle is named instead."""
    f = vioc.MidpointVI(vioc.System(vioc.tx("x", name="m", mass=1.0), vioc.JointForce("x", "u")), 0.01)
    rest = equilibrium(f)
    exact, near = (kalman(f, rest, Measurement(f, {"x": r, "m:x": r}), W=1e-6) for r in (0.0, 1e-18))
    np.testing.assert_allclose(np.sort(exact.poles), np.sort(near.poles), atol=1e-9)
    with pytest.raises(vioc.errors.OptimizationError, match="zeros of the system on the unit circle"):
        kalman(f, rest, Measurement(f, {"x": 0.0}), W=0.0, W_u=1e-4)


def test_bounds_of_a_horizon_by_another_solver():
    """All states at once as bounded least squares (scipy), before the window is full."""
    f, N, low = double_integrator(), 6, -0.1
    y = Measurement(f, {"x": 0.2})
    Y, U = data(N, seed=3)
    Y, x0 = Y - 2.0, np.array([0.3, -0.2])
    bounded = MovingHorizon(f, y, N, W, P0=P0, bounds={"v": (low, None)}, tolerance=1e-10, max_iterations=30)
    belief = walked(bounded, Y, U)[-1]
    A, B = f.linearize(x0)
    rows, right = [], []

    def add(block, value, covariance):
        root = np.linalg.inv(np.linalg.cholesky(covariance))
        rows.append(root @ block)
        right.append(root @ value)

    I = np.eye(2 * N).reshape(N, 2, -1)
    add(I[0], x0, P0)
    for k in range(N):
        add(I[k][:1], Y[k], y.V)
        if k < N - 1:
            add(I[k + 1] - A @ I[k], B @ U[k], W)
    least = np.tile([-np.inf, low], N)
    peer = lsq_linear(np.vstack(rows), np.concatenate(right), (least, np.inf), method="bvls", tol=1e-14)
    free = np.linalg.lstsq(np.vstack(rows), np.concatenate(right), rcond=None)[0]
    assert (free[1::2] < low).any()  # the bound matters
    np.testing.assert_allclose(belief.X[1:].ravel(), peer.x, atol=1e-6)
    assert belief.verdict.startswith("converged")
    # what each bound pushes with is the misfit's slope there; the next search begins with those of one on
    push = (np.vstack(rows).T @ (np.vstack(rows) @ peer.x - np.concatenate(right)))[1::2]
    assert (push > 0.1).any()
    np.testing.assert_allclose(np.abs(belief.y), [*push[:-1], push[-2], push[-1]], atol=1e-5)


def test_a_window_goes_on_from_the_one_before():
    """One step of Gauss-Newton a sample is off by the square of the news: 3e-3 of a swing of radians."""
    f, N = midpoint_pendulum(), 25
    run = f.rollout([2.0, 0.0], np.sin(np.arange(N))[:, None])
    Y = run.x[:-1, :1] + 0.1 * np.random.default_rng(0).standard_normal((N, 1))
    noise = dict(W=np.diag([1e-3, 1e-2]), P0=np.diag([0.3, 0.3]))
    solved = MovingHorizon(f, Measurement(f, {"theta": 1e-2}), 6, **noise, tolerance=1e-12, max_iterations=30)
    hasty = replace(solved, max_iterations=1)
    pairs = zip(*(walked(o, Y, run.u, (1.5, 0.5)) for o in (solved, hasty)), strict=True)
    off = [np.abs(a.x - b.x).max() for a, b in pairs]
    assert max(off) < 5e-3  # 1e-2 from an arrival on the other side of the prior
    assert max(off) > 1e-4  # one step does not solve it


def test_a_search_that_fails_is_the_filters_sample_and_counted(monkeypatch):
    f = double_integrator()
    y = Measurement(f, {"x": 0.2})
    Y, U = data(12)
    plain = walked(ExtendedKalmanFilter(f, y, W, P0=P0), Y, U)
    iterate, calls = moving_horizon.Interior.iterate, []

    def sometimes(search, most, log):
        calls.append(most)
        if len(calls) in (4, 9):
            raise StepError("no step", 0, np.nan, "a test")
        iterate(search, most, log)

    monkeypatch.setattr(moving_horizon.Interior, "iterate", sometimes)
    found = walked(MovingHorizon(f, y, 5, W, P0=P0, **EXACT), Y, U)
    assert [b.failures for b in found] == [0] * 3 + [1] * 5 + [2] * 4
    assert found[3].verdict == "extended filter: no step" and found[4].verdict.startswith("converged")
    for one, other in zip(found, plain, strict=True):
        np.testing.assert_allclose(one.x, other.x, rtol=0, atol=1e-10)


def test_horizon_of_a_mechanism_with_a_bounded_parameter():
    """A pendulum's mass from its angle under a known torque; the bound holds on the way."""
    rod = vioc.ry("theta")[vioc.tz(-1.0, mass=vioc.P("m", 1.0))]
    system = vioc.System(rod, vioc.Gravity(0, 0, -9.81), vioc.JointForce("theta", "torque"))
    f = vioc.MidpointVI(system, 0.05)
    truth = f.with_parameters(m=1.4)
    g = ExtendedMap(f, parameters=["m"])
    y = Measurement(g, "theta", counts={"theta": 65536})
    names = {"theta": 1e-12, "p.theta": 1e-12}
    options = dict(W=names, P0={"theta": 1e-4, "p.theta": 1e-4, "param.m": 0.25})
    run = truth.rollout(f.state(theta=0.4), 2 * np.sin(0.3 * np.arange(25))[:, None])
    Y = np.array([y.sample(np.append(x, 0.0), None) for x in run.x[:-1]])
    bounded = MovingHorizon(g, y, 8, bounds={"param.m": (0.5, 1.45)}, **options)
    found = walked(bounded, Y, run.u, g.join(f.state(theta=0.4)))
    masses = np.array([b.x[-1] for b in found])
    assert (masses <= 1.45 + 1e-6).all() and abs(masses[-1] - 1.4) < 0.02
    assert not found[-1].failures and "param.m" in repr(bounded)
    hasty = walked(replace(bounded, max_iterations=1), Y[:6], run.u, g.join(f.state(theta=0.4)))
    assert bounded.max_iterations == 15 and 0 < hasty[-1].unfinished <= 6
    with pytest.raises(ModelError, match="its errors .* are not its states"):
        MovingHorizon(vioc.MaximalVI(system, 0.05), Measurement(vioc.MaximalVI(system, 0.05), "theta"))
    with pytest.raises(ValueError, match="horizon: expected a whole number >= 1, got 0"):
        MovingHorizon(g, y, 0)


def test_filters_are_consistent():
    """NEES of a linear plant, averaged over seeded runs, within its chi-square bounds of 99.9 %."""
    f, runs, N = double_integrator(), 40, 20
    y = Measurement(f, {"x": 0.2})
    law = as_law(dlqr(f, f.rollout(np.zeros(2), steps=N), 0.0, 1.0))
    rng = np.random.default_rng(8)
    observer = ExtendedKalmanFilter(f, y, W, W_U, P0)
    total = 0.0
    for _ in range(runs):
        x0 = np.linalg.cholesky(P0) @ rng.standard_normal(2)
        run = ClosedLoop(f, law, observer, W=W, W_u=W_U).simulate(x0, N, estimate=np.zeros(2), noise=rng)
        e = run.errors[-1]
        total += e @ np.linalg.solve(run.covariances[-1], e)
    assert chi2.ppf(5e-4, 2 * runs) < total < chi2.ppf(1 - 5e-4, 2 * runs)


# -- disturbances ---------------------------------------------------------------------------------


def linear_plant():
    """A mass on a spring."""
    x, u = ca.SX.sym("x", 2), ca.SX.sym("u")
    step = ca.vertcat(x[0] + 0.1 * x[1], x[1] + 0.1 * (u - 2 * x[0] - 0.3 * x[1]))
    names = dict(state_names=("x", "v"), input_names=("force",))
    return CasadiMap(ca.Function("spring", [x, u], [step]), dt=0.1, **names)


@pytest.mark.parametrize("kind", ["kalman", "extended", "horizon"])
def test_disturbance_and_bias_are_found_and_leave_no_error(kind):
    """A pushed input and a sensor's bias, by every observer: both found, the target kept."""
    f = linear_plant()
    g = ExtendedMap(f, disturbances=["force"], biases=["v"])
    assert g.state_names == ("x", "v", "disturbance.force", "bias.v")
    y = Measurement(g, {"x": 1e-6, "v": 1e-6})
    walk = {"x": 1e-8, "v": 1e-8, "disturbance.force": 1e-4, "bias.v": 1e-5}
    rest = equilibrium(f, x=0.5)
    if kind == "kalman":
        observer = kalman(g, (g.join(rest.x), rest.u), y, walk)
    else:
        make = ExtendedKalmanFilter if kind == "extended" else MovingHorizon
        observer = make(g, y, W=walk, P0=1.0)
    plant = ExtendedMap(f, disturbances=["force"], biases=["v"])
    start = plant.join([0.0, 0.0], {"disturbance.force": 0.7, "bias.v": 0.2})
    regulator = dlqr(f, rest, 1.0, 0.1)
    loops = [ClosedLoop(plant, law, observer) for law in (regulator, OffsetFree(regulator, g))]
    plain, free = (
        loop.simulate(start, steps, estimate=g.join([0.0, 0.0]))
        for loop, steps in zip(loops, (40, 100), strict=True)
    )
    assert abs(plain["x"][-1] - 0.5) > 0.05
    assert abs(free["x"][-1] - 0.5) < 1e-6
    np.testing.assert_allclose(free.belief.x[2:], [0.7, 0.2], atol=1e-6)


def test_a_target_that_is_solved_for():
    """A force on the state, a parameter: the point where both rest, by the equations of the plant."""
    f = linear_plant()
    g = ExtendedMap(f, disturbances=["v"])  # d per second: 0.1 d a step
    rest = equilibrium(f, x=0.5)
    law = OffsetFree(dlqr(f, rest, 1.0, 0.1), g, hold="x")
    _, target = law.apply(0, np.array([0.5, 0.0, 0.4]), law.start())
    np.testing.assert_allclose([*target.x, *target.u], [0.5, 0.0, 2 * 0.5 - 0.4], atol=1e-12)
    with pytest.raises(ValueError, match="hold: among disturbance.v is more than disturbances of inputs"):
        OffsetFree(dlqr(f, rest, 1.0, 0.1), g)
    with pytest.raises(NotImplementedError, match="has a memory"):
        law(0, np.zeros(3))
    along = dlqr(f, f.rollout(rest.x, rest.u, steps=5), 1.0, 0.1)
    with pytest.raises(ValueError, match="hold: of a law that holds one point"):
        OffsetFree(along, g, hold="x")
    with pytest.raises(TypeError, match="expected a regulator with gains, and the ExtendedMap"):
        OffsetFree(along, f)
    with pytest.raises(ValueError, match="regulator: made for steps of 0.1 s"):
        OffsetFree(along, ExtendedMap(double_integrator(0.2).with_dt(0.2), disturbances=["force"]))


# -- unequal steps --------------------------------------------------------------------------------


class Own(Law):
    """A law of a user's, with a map."""

    def __init__(self, f):
        self.map = f

    def __call__(self, k, x):
        return np.zeros(self.map.nu)


@cache
def laws(dt):
    f = STEPS[dt]
    rest = np.zeros(2), np.zeros(1)
    run = f.rollout(*rest, steps=40)
    g = ExtendedMap(f, disturbances=["force"])
    return {
        "steady": dlqr(f, rest, 1.0, 1.0),
        "along": dlqr(f, run, 1.0, 1.0),
        "curve": track_curve(f, run.x, run.u, 1.0, 1.0),
        "offset-free": OffsetFree(dlqr(f, rest, 1.0, 1.0), g),
        "linear horizon": LinearMPC(dlqr(f, rest, 1.0, 1.0), 3, bounds={"force": 5.0}),
        "nonlinear horizon": NonlinearMPC(Problem(f, quadratic(f, Q=1.0, R=1.0), 3)),
        "scheduled": ScheduledLaw.of([dlqr(f, ([x, 0.0], [0.0]), 1.0, 1.0) for x in (0.0, 1.0)], "x"),
        "own": Own(f),
    }


@cache
def observers(dt):
    f = STEPS[dt]
    rest = np.zeros(2), np.zeros(1)
    y = Measurement(f, {"x": 0.1})
    g = ExtendedMap(f, disturbances=["force"])
    return {
        "none": None,
        "steady": kalman(f, rest, y, W),
        "along": kalman(f, f.rollout(*rest, steps=40), y, W),
        "extended": ExtendedKalmanFilter(f, y, W, P0=P0),
        "disturbances": ExtendedKalmanFilter(g, Measurement(g, {"x": 0.1}), 0.1),
        "horizon": MovingHorizon(f, y, 3, W, P0=P0),
    }


def plants(f):
    return {"itself": f, "another": linear_plant_like(f), "late": DelayedMap(f)}


def linear_plant_like(f):
    """The same states and step, another motion."""
    x, u = f.symbols.x, f.symbols.u
    names = dict(state_names=f.state_names, input_names=f.input_names)
    return CasadiMap(ca.Function("other", [x, u], [0.9 * f.function(x, u)]), dt=f.dt, **names)


STEPS = {0.02: double_integrator(0.02), 0.1: double_integrator(0.1), 0.15: double_integrator(0.15)}


@pytest.mark.parametrize(("of_law", "of_observer"), list(product(STEPS, STEPS)))
def test_unequal_steps_raise_or_are_held(of_law, of_observer):
    """Every law, plant and observer, at every pair of step lengths: a plant of 0.02 s."""
    all_laws, all_observers = laws(of_law), observers(of_observer)
    for (name, law), (seen, observer), (what, plant) in product(
        all_laws.items(), all_observers.items(), plants(STEPS[0.02]).items()
    ):
        if name == "offset-free" and seen != "disturbances":
            continue
        if plant.nx > 2 and observer is not None:
            continue  # it sees the command under way
        at = 0.02 if observer is None else of_observer
        n, m = round(of_law / 0.02), round(at / 0.02)
        held = abs(n * 0.02 - of_law) < 1e-9 and abs(m * 0.02 - at) < 1e-9 and n % m == 0
        case = f"{name}, {seen}, {plant}"
        if n == m == 1:
            assert len(ClosedLoop(plant, law, observer).simulate(np.zeros(plant.nx), 2)) == 2, case
            continue
        with pytest.raises(ValueError, match="made for steps of|is asked every"):
            ClosedLoop(plant, law, observer)
        if not held:
            with pytest.raises(ValueError, match="whole multiple"):
                ClosedLoop(plant, law, observer, hold=True)
            continue
        if what == "another" and not (name == "steady" or seen == "none"):
            continue  # runs with all pairs of a law and an observer are those of the plant itself
        x0 = np.concatenate([[1.0, 0.5], np.zeros(plant.nx - 2)])
        run = ClosedLoop(plant, law, observer, hold=True).simulate(x0, 2 * n, estimate=None)
        for start in (0, n):
            assert (run.commands[start : start + n] == run.commands[start]).all(), case
        assert np.isfinite(run.estimates[::m]).all(), case
        assert np.isnan(run.estimates).any(axis=1).sum() == (2 * n - 2 * n // m), case


def test_a_held_law_is_that_of_its_own_step():
    """Five short steps of a linear plant are a long one: the loops agree where both sample."""
    short, long = STEPS[0.02], STEPS[0.1]
    law = dlqr(long, (np.zeros(2), np.zeros(1)), 1.0, 1.0)
    y = Measurement(long, {"x": 0.1})
    observer = ExtendedKalmanFilter(long, y, W, P0=P0)
    x0, told = np.array([1.0, 0.5]), np.zeros(2)
    slow = ClosedLoop(long, law, observer).simulate(x0, 6, estimate=told)
    fast = ClosedLoop(short, law, observer, hold=True).simulate(x0, 30, estimate=told)
    np.testing.assert_allclose(fast.trajectory.x[::5], slow.trajectory.x, atol=1e-12)
    np.testing.assert_allclose(fast.estimates[::5], slow.estimates, atol=1e-12)
    with pytest.raises(ValueError, match="k0: the law is asked every 5 steps"):
        ClosedLoop(short, law, observer, hold=True).simulate(x0, 5, k0=3)
    with pytest.raises(ValueError, match="or say hold=True, which samples it every 5 steps"):
        ClosedLoop(short, law, observer)


def test_a_covariance_asks_for_gains_of_its_own_samples():
    f = vioc.MidpointVI(vioc.models.load("cart_pole"), 0.02)
    up = equilibrium(f, theta=0.0)
    law = dlqr(f, up, 1.0, 1.0)
    late, early = (f.rollout(up.x, up.u, steps=20, k0=k0) for k0 in (10, 0))
    measured = Measurement(f, {"x": 1e-6, "theta": 4e-6})
    observer = kalman(f, late, measured, 1e-9, P0=1.0)
    assert covariance(late, 1.0, 1e-9, law=law, observer=observer).std("theta").shape == (21,)
    with pytest.raises(ValueError, match="samples 10 .. 30, got 0"):
        covariance(early, 1.0, 1e-9, law=law, observer=observer)


@pytest.mark.parametrize("samples", [1, 4, 7])
def test_a_moving_horizon_of_exact_data_has_nothing_to_search(samples):
    """The curve found before, one sample on, is the answer: while the window fills, and after."""
    f = vioc.MidpointVI(vioc.models.load("cart_pole"), 0.02)
    sensors = Measurement(f, {"x": 1e-6, "theta": 1e-6})
    run = f.rollout(f.initial_state({"theta": 0.3}, {"x": 0.2}), 0.5 * np.sin(np.arange(16.0))[:, None])
    observer = MovingHorizon(f, sensors, horizon=samples, W=1e-8, P0=1e-4)
    belief = observer.start(run.x[0])
    np.testing.assert_array_equal(belief.x, run.x[0])
    np.testing.assert_array_equal(belief.P, 1e-4 * np.eye(4))
    for k in range(16):
        belief = observer.correct(k, belief, sensors(run.x[k]))
        assert belief.iterations == 0, k
        np.testing.assert_allclose(belief.x, run.x[k], rtol=0, atol=1e-12)
        belief = observer.predict(k, belief, run.u[k])


@pytest.mark.parametrize("bounds", [None, {"x": (-1.0, None)}])
def test_estimates_of_a_moving_horizon_travel_to_other_processes(bounds):
    f = STEPS[0.1]
    observer = MovingHorizon(f, Measurement(f, {"x": 0.1}), 3, W, P0=P0, bounds=bounds)
    belief = observer.correct(0, observer.start(np.zeros(2)), np.array([0.1]))
    other, there = pickle.loads(pickle.dumps((observer, belief)))
    for k in range(1, 5):
        belief = observer.correct(k, observer.predict(k - 1, belief, np.zeros(1)), np.array([0.1 * k]))
        there = other.correct(k, other.predict(k - 1, there, np.zeros(1)), np.array([0.1 * k]))
        assert (there.x == belief.x).all()
