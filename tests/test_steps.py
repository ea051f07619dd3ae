"""Step lengths: what joins what was made for two steps refuses, and unequal steps are taken as they are."""

from dataclasses import replace
from functools import partial

import casadi as ca
import numpy as np
import pytest
from support.sweep_tasks import first_state

import vioc
from vioc import GroupVI
from vioc.control import (
    ClosedLoop,
    Cost,
    LinearMPC,
    Measurement,
    NonlinearMPC,
    Problem,
    dlqr,
    dmoc,
    kalman,
    optimize,
    quadratic,
)
from vioc.control.feedback import DelayedMap, ExtendedKalmanFilter, covariance, track_curve

# inside: how steps are compared is one rule for all; derivatives that are built are counted
from vioc.control.linear.linear_system import linear_system
from vioc.dynamics.integrators import structured
from vioc.maps import SwitchedMap
from vioc.runs.steps import check_steps, lengths_of, same_steps
from vioc.sweeps import sweep
from vioc.target import write_target

RNG = np.random.default_rng(0)
OTHER = "made for steps of 0.02 s.* takes steps of 0.05 s"


@pytest.fixture(scope="module")
def f():
    pendulum = vioc.System(
        vioc.ry("theta")[vioc.tz(1.0, name="bob", mass=vioc.P("m", 1.0))],
        vioc.Gravity(0, 0, -9.81),
        vioc.JointForce("theta", "torque"),
    )
    return vioc.MidpointVI(pendulum, dt=0.05)


@pytest.fixture(scope="module")
def swing(f):
    """A rollout in unequal steps, and its lengths."""
    h = 0.02 + 0.04 * RNG.random(30)
    return f.rollout(f.initial_state({"theta": 2.0}), 0.3 * np.sin(np.arange(30.0))[:, None], dt=h), h


@pytest.fixture(scope="module")
def fast(f):
    """A solution of free duration, whose steps are not the map's."""
    cost = quadratic(f, R=1.0)
    ends = dict(initial=f.initial_state({"theta": 0.3}), final=f.initial_state())
    return dmoc.solve(f, cost, steps=20, duration=(0.6, 0.8), **ends)


class TestATrajectoryKnowsItsStep:
    def test_of_free_duration(self, f, fast):
        h = fast.duration / 20
        assert abs(h - f.dt) > 0.005  # another step than the map's
        assert fast.map.dt == pytest.approx(h, rel=1e-12)
        assert fast.stabilize(1.0, 1.0).map.dt == fast.map.dt
        assert dlqr(f, fast.trajectory, 1.0, 1.0).map.dt == fast.map.dt
        assert dlqr(f, fast.trajectory, 1.0, 1.0).map.dt == fast.map.dt
        assert linear_system(f, fast.trajectory).map.dt == fast.map.dt

    def test_of_a_refined_mesh(self, fast):
        finer = fast.refine(2)
        assert finer.map.dt == pytest.approx(finer.duration / 40, rel=1e-12)
        assert fast.map.dt / finer.map.dt > 1.5

    def test_of_a_rollout_with_another_step(self, f, tmp_path):
        x0, U = f.initial_state({"theta": 0.4}), RNG.standard_normal((10, 1))
        run, alike = f.rollout(x0, U, dt=0.02), f.with_dt(0.02).rollout(x0, U)
        assert run.map.dt == 0.02 and np.array_equal(run.x, alike.x) and np.array_equal(run.t, alike.t)
        assert f.rollout(x0, U, dt=0.05).map is f
        assert f.rollouts(x0, U, dt=0.02)[0].map.dt == 0.02
        d = DelayedMap(f)
        assert d.rollout(d.join(x0), U, dt=0.02).map.dt == d.with_dt(0.02).dt == 0.02
        path = run.save(tmp_path / "run")
        assert vioc.Trajectory.load(path, run.map).map.dt == 0.02
        with pytest.raises(ValueError, match=r"dt differ.*map.with_dt\(0.02\)"):
            vioc.Trajectory.load(path, f)

    def test_in_a_file_whose_header_says_another(self, f, fast, tmp_path):
        """Files of solutions before trajectories knew their steps."""
        run = fast.trajectory
        stale = vioc.Trajectory(f, run.t, run.x, run.u, run.multipliers)
        again = vioc.Trajectory.load(stale.save(tmp_path / "old"), f)
        assert same_steps(again.map.dt, run.map.dt)

    def test_far_from_the_origin_of_time(self, f):
        """t = 5e6 s has a rounding of 1e-9 s, which is no difference of steps."""
        k0 = 10**8
        t = (k0 + np.arange(11)) * 0.05
        assert np.ptp(np.diff(t)) > 1e-9 * 0.05
        assert (lengths_of(t, 0.05) == 0.05).all()
        run = f.rollout(f.initial_state({"theta": 0.4}), steps=10, k0=k0)
        assert (run.step_lengths == 0.05).all()
        assert dlqr(f, run, 1.0, 1.0).equal_steps

    def test_lengths_that_differ_are_told(self):
        h = np.array([0.01, 0.01, 0.0100001])
        t = np.concatenate([[0.0], np.cumsum(h)])
        np.testing.assert_array_equal(lengths_of(t, 0.01), np.diff(t))
        assert not same_steps(h, 0.01) and not same_steps(h, h[:2]) and same_steps(h, h * (1 + 1e-12))
        with pytest.raises(ValueError, match=r"law: made for steps of 0.01 to 0.0100001 s, the plant takes"):
            check_steps(h, 0.02, "law", "the plant")


class TestWhatJoinsTwoSteps:
    """Each refuses, says both steps and what to try."""

    def test_closed_loops(self, f):
        g, up = f.with_dt(0.02), f.initial_state()
        law, sensors = dlqr(g, (up, [0.0]), 1.0, 1.0), Measurement(g, "theta", 1e-4)
        with pytest.raises(ValueError, match=f"law: {OTHER}.*with_dt\\(0.02\\)"):
            ClosedLoop(f, law)
        ours = dlqr(f, (up, [0.0]), 1.0, 1.0)
        believed = kalman(g, (up, [0.0]), sensors, 1e-4)
        with pytest.raises(ValueError, match=f"observer: {OTHER}"):
            ClosedLoop(f, ours, believed)
        with pytest.raises(ValueError, match=f"law: {OTHER}"):
            ClosedLoop(f, LinearMPC(law, 5))
        with pytest.raises(ValueError, match=f"law: {OTHER}"):
            ClosedLoop(DelayedMap(f), law)
        with pytest.raises(ValueError, match=f"measurement: {OTHER}"):
            ExtendedKalmanFilter(f, sensors, 1e-4)
        with pytest.raises(ValueError, match=f"measurement: {OTHER}"):
            kalman(f, (up, [0.0]), sensors, 1e-4)
        sound = kalman(f, (up, [0.0]), Measurement(f, "theta", 1e-4), 1e-4)
        ClosedLoop(f, ours, sound)
        with pytest.raises(ValueError, match=f"the observer's measurement: {OTHER}"):
            ClosedLoop(f, ours, replace(sound, measurement=sensors))
        lighter = f.with_parameters(m=0.9)  # other parameters are what a loop is simulated for
        ClosedLoop(lighter, ours).simulate(up, 3)

    def test_the_law_of_a_solution_of_free_duration(self, f, fast):
        law = fast.stabilize(1.0, 1.0)
        with pytest.raises(ValueError, match="law: made for steps of .* the plant takes steps of 0.05 s"):
            ClosedLoop(f, law)
        run = ClosedLoop(fast.map, law).simulate(fast.x[0], 20)
        assert np.abs(run.x - fast.x).max() < 1e-6

    def test_covariances(self, f):
        g, up = f.with_dt(0.02), f.initial_state()
        run = f.rollout(up, steps=5)
        law, other = dlqr(f, (up, [0.0]), 1.0, 1.0), dlqr(g, (up, [0.0]), 1.0, 1.0)
        with pytest.raises(ValueError, match=f"law: {OTHER}"):
            covariance(run, 1.0, law=other)
        seen = kalman(g, (up, [0.0]), Measurement(g, "theta", 1e-4), 1e-4)
        with pytest.raises(ValueError, match=f"observer: {OTHER}"):
            covariance(run, 1.0, law=law, observer=seen)

    def test_regulators_and_their_ends(self, f):
        g, up = f.with_dt(0.02), f.initial_state()
        run = f.rollout(up, steps=5)
        law = dlqr(f, run, 1.0, 1.0)
        with pytest.raises(ValueError, match=f"end: {OTHER}"):
            type(law)(f, run, law.K, law.P, law.Q, law.R, law.Qf, dlqr(g, (up, [0.0]), 1.0, 1.0))
        with pytest.raises(ValueError, match="reference: made for steps of 0.05 s, the regulator's map"):
            type(law)(g, run, law.K, law.P, law.Q, law.R, law.Qf)

    def test_costs_and_guesses(self, f):
        g, x0 = f.with_dt(0.02), f.initial_state({"theta": 0.3})
        cost, theirs = quadratic(f, Q=1.0, R=1.0), quadratic(g, Q=1.0, R=1.0)
        run = g.rollout(x0, steps=5)
        with pytest.raises(ValueError, match=f"guess: {OTHER}.*with_dt"):
            Problem(f, cost, 5).solve(None, run)
        for solve in (optimize, *(partial(optimize, method=m) for m in ("shooting", "projection"))):
            with pytest.raises(ValueError, match=f"cost: {OTHER}.*build it on this map"):
                solve(f, theirs, x0=x0, steps=5)
        with pytest.raises(ValueError, match=f"cost: {OTHER}"):
            dmoc.Phase(f, 5, theirs, initial=x0)
        for what in ("reference", "u_reference"):
            with pytest.raises(ValueError, match=f"{what}: {OTHER}"):
                quadratic(f, Q=1.0, R=1.0, **{what: run})
        with pytest.raises(ValueError, match=f"guess: {OTHER}"):
            ClosedLoop(f, NonlinearMPC(Problem(f, cost, len(run)), run)).simulate(x0, 1)

    def test_plans_of_a_receding_horizon(self, f):
        """Samples are as far apart as the map's steps: a problem of other steps is none for them."""
        cost = quadratic(f, R=1.0)
        with pytest.raises(ValueError, match=f"problem: {OTHER}"):
            NonlinearMPC(Problem(f, cost, 10, dt=0.02))
        with pytest.raises(ValueError, match="problem: .* no free duration"):
            NonlinearMPC(Problem(f, cost, 10, final=f.initial_state(), duration=(0.15, 0.2)))

    def test_a_sweep_resumed_with_another_map(self, f, tmp_path):
        """What is in the store was computed with the map that was bound then."""
        points, store = [f.initial_state({"theta": a}).tolist() for a in (0.1, 0.2)], tmp_path / "sweep.jsonl"
        first = sweep(partial(first_state, f), points, workers=0, store=store)
        again = sweep(partial(first_state, f.with_dt(0.05)), points, workers=0, store=store)
        np.testing.assert_array_equal(again.values, first.values)
        for other in (f.with_dt(0.02), f.with_parameters(m=2.0), vioc.LinearTimeVI(f.system, 0.05)):
            with pytest.raises(ValueError, match="another sweep: bound differs"):
                sweep(partial(first_state, other), points, workers=0, store=store)

    def test_laws_and_filters_count_samples(self, f, swing):
        law = dlqr(f, swing[0], 1.0, 1.0)
        for use in (
            lambda: ClosedLoop(f, law),
            lambda: LinearMPC(law, 3),
            lambda: write_target("law", law, None),
        ):
            with pytest.raises(ValueError, match=r"reference: made for steps of 0.02.* to 0.0.* s.*one step"):
                use()
        with pytest.raises(ValueError, match="trajectory: made for steps of .* resample it"):
            kalman(f, swing[0], Measurement(f, "theta", 1e-4), 1e-4)
        with pytest.raises(ValueError, match="dt: made for steps of .*a delay in steps"):
            d = DelayedMap(f)
            d.track(d.join(swing[0].x[0]), np.zeros((2, 3)), np.zeros((2, 1)), np.zeros((2, 1, 3)), dt=0.02)


class TestUnequalSteps:
    def test_feedback_along_them(self, f, swing):
        """Gains from a recursion over each step's own A, B; the loop is the map's steps of those lengths."""
        run, h = swing
        law = dlqr(f, run, 2.0, 0.5)
        P, Q, R = 2.0 * np.eye(2), 2.0 * np.eye(2), np.array([[0.5]])
        for k in reversed(range(len(run))):
            A, B = f.linearize(run.x[k], run.u[k], dt=h[k])
            K = np.linalg.solve(R + B.T @ P @ B, B.T @ P @ A)
            P = Q + A.T @ P @ A - A.T @ P @ B @ K
            np.testing.assert_allclose(law.K[k], K, rtol=1e-8, atol=1e-10)
        away = law.rollout(run.x[0] + [0.05, 0.0])
        np.testing.assert_allclose(away.t, run.t, atol=1e-14)
        x = away.x[0]
        for k in range(len(run)):
            x = f.step(x, run.u[k] - law.K[k] @ (x - run.x[k]), k, h[k])
        # steps are solved to 1e-11 and the closed loop does not amplify
        np.testing.assert_allclose(away.x[-1], x, atol=1e-9)
        assert np.abs(law.rollout(run.x[0]).x - run.x).max() < 1e-10

    def test_held_behind_them_at_the_maps_own_step(self, f):
        h = np.array([0.02, 0.03, 0.04])
        run = f.rollout(f.initial_state(), steps=3, dt=h)
        longer = dlqr(f, run, 1.0, 1.0).rollout(run.x[0] + [0.01, 0], steps=5)
        np.testing.assert_allclose(np.diff(longer.t), [*h, 0.05, 0.05], rtol=1e-12)

    @pytest.mark.parametrize("method", ["projection", "multiple shooting"])
    def test_optimized(self, f, swing, method):
        """Stationary for the cost as it is summed over these very steps, by central differences."""
        run, h = swing
        cost = quadratic(f, Q={"theta": 1.0}, R=0.1, Qf={"theta": 10.0, "v.theta": 1.0})
        if method == "projection":
            best = optimize(f, cost, run, method=method, tolerance=1e-12)
        else:  # which is how "auto" begins from a curve
            best = optimize(f, cost, (run.x, run.u), dt=h, tolerance=1e-12)
            assert best.history.method[0].startswith("ms ")
        found = best.trajectory
        np.testing.assert_allclose(found.step_lengths, h, rtol=1e-12)
        assert best.converged and best.cost < cost.value(run)
        assert best.cost == pytest.approx(cost.value(f.rollout(found.x[0], found.u, dt=h)), rel=1e-9)

        follow = best.stabilize(1.0, 1.0).rollout(found.x[0])
        np.testing.assert_allclose(follow.t, found.t, atol=1e-12)
        np.testing.assert_allclose(follow.x, found.x, atol=1e-9)

        def value(k, d):
            U = found.u.copy()
            U[k] += d
            return cost.value(f.rollout(found.x[0], U, dt=h))

        # differences of step d are exact up to d^2 |g'''| / 6 + eps g / d: some 1e-7 here, the gradient of
        # the start is of order 1
        slopes = [(value(k, 1e-4) - value(k, -1e-4)) / 2e-4 for k in range(0, len(h), 5)]
        assert np.abs(slopes).max() < 1e-5

    def test_all_ways_to_say_them(self, f, swing):
        run, h = swing
        cost = quadratic(f, Q={"theta": 1.0}, R=0.1, Qf={"theta": 10.0})
        best = optimize(f, cost, run)
        for guess, more in (
            (run, {"dt": h}),
            (run.u, {"x0": run.x[0], "dt": h}),
            ((run.x, run.u), {"dt": h}),
        ):
            again = optimize(f, cost, guess, **more)
            assert again.cost == pytest.approx(best.cost, abs=1e-5)
            np.testing.assert_allclose(again.trajectory.step_lengths, h, rtol=1e-12)
        equal = optimize(f, cost, run, dt=0.03)
        np.testing.assert_allclose(equal.trajectory.step_lengths, 0.03, rtol=1e-12)
        assert abs(equal.trajectory.duration - h.sum()) <= 0.015
        short = optimize(f, cost, x0=run.x[0], steps=8, dt=0.02)
        assert short.trajectory.map.dt == 0.02

    def test_time_of_a_map_that_depends_on_it(self, swing):
        """Steps along a curve are met at the times that their lengths add up to, as in a rollout."""
        x, u, t, dt = (ca.SX.sym(n) for n in ("x", "u", "t", "dt"))
        g = vioc.CasadiMap(ca.Function("g", [x, u, t, dt], [x + dt * (u + x * ca.sin(3 * t))]), dt=0.05)
        h = swing[1]
        run = g.rollout([1.0], np.ones((len(h), 1)), dt=h)
        along = g.linearize_trajectory(run)
        points = g.derivatives.linearize(g.steps_at(run.x[:-1], run.u, dt=h))
        np.testing.assert_allclose(points.A, along.A, rtol=1e-12)
        cost = Cost(g, g.symbols.u**2, 5 * g.symbols.x**2)
        best = optimize(g, cost, run, tolerance=1e-13)  # linear-quadratic: one step, to rounding
        assert best.iterations <= 2
        tracked = g.track([1.1], run.x, run.u, np.zeros((len(h), 1, 1)), dt=h)
        np.testing.assert_allclose(tracked.x, g.rollout([1.1], run.u, dt=h).x, rtol=1e-14)

    @pytest.mark.parametrize(
        "kind",
        [
            vioc.MidpointVI,
            vioc.LinearTimeVI,
            vioc.MaximalVI,
            vioc.RungeKutta,
            lambda s, dt: vioc.Composition(vioc.MidpointVI(s, dt), 4),
        ],
        ids=["midpoint", "linear-time", "maximal", "runge-kutta", "composition"],
    )
    def test_points_and_tracks_of_every_map(self, f, kind):
        """`steps_at` and `track` with lengths are `linearize` and `rollout` of those steps."""
        g, h = kind(f.system, 0.05), np.array([0.02, 0.05, 0.03])
        run = g.rollout(g.initial_state({"theta": 0.4}), [[0.1], [0.2], [0.3]], dt=h)
        points = g.derivatives.linearize(g.steps_at(run.x[:-1], run.u, dt=h))
        for k in range(3):
            one = g.linearize(run.x[k], run.u[k], dt=h[k])
            np.testing.assert_allclose(points.A[k], one.A, rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(points.B[k], one.B, rtol=1e-9, atol=1e-12)
        K = np.zeros((3, 1, g.ndx))
        np.testing.assert_array_equal(g.track(run.x[0], run.x, run.u, K, dt=h).x, run.x)


def test_curves_have_the_step_of_their_map(f, swing):
    curve = track_curve(f, swing[0].x, swing[0].u, 1.0, 1.0)
    with pytest.raises(ValueError, match="law: made for steps of 0.05 s, the plant takes steps of 0.02 s"):
        ClosedLoop(f.with_dt(0.02), curve)


class TestTwins:
    """Maps that differ in parameters or step share what is built, whichever asks first."""

    def test_derivatives_are_built_once(self, monkeypatch):
        built = []
        make = structured.StructuredLinearization.__init__
        monkeypatch.setattr(
            structured.StructuredLinearization,
            "__init__",
            lambda self, f: (built.append(f), make(self, f))[1],
        )
        f = vioc.MidpointVI(
            vioc.System(vioc.ry("a")[vioc.tz(1.0, mass=vioc.P("m", 1.0))], vioc.Gravity(0, 0, -9.81)), 0.05
        )
        x = f.state({"a": 0.3, "p.a": 0.1})
        for m in (1.0, 2.0, 3.0):  # a sweep that never uses the parent
            f.with_parameters(m=m).linearize(x)
        f.with_dt(0.01).with_parameters(m=4.0).linearize(x)
        f.linearize(x)
        assert len(built) == 1

    def test_what_depends_on_the_step_is_shared_by_those_that_have_it(self, f):
        g = vioc.MaximalVI(f.system, 0.05)
        heavy, light, fine = g.with_parameters(m=3.0), g.with_parameters(m=0.5), g.with_dt(0.01)
        assert heavy.named is light.named is g.named
        assert fine.named is not g.named
        assert fine.with_parameters(m=2.0).named is fine.named
        x = {"theta": 0.3}, {"theta": 1.0}
        alone = vioc.MaximalVI(f.system, 0.01)
        np.testing.assert_array_equal(
            fine.rollout(fine.initial_state(*x), steps=3)["v.theta"],
            alone.rollout(alone.initial_state(*x), steps=3)["v.theta"],
        )

    def test_numbers_are_each_ones_own(self, f):
        x = f.initial_state({"theta": 0.3}, {"theta": 1.0})
        heavy, fine = f.with_parameters(m=3.0), f.with_dt(0.01)
        alone = vioc.MidpointVI(f.system, 0.05).with_parameters(m=3.0), vioc.MidpointVI(f.system, 0.01)
        for g, own in ((heavy, alone[0]), (fine, alone[1])):
            np.testing.assert_array_equal(g.linearize(x).A, own.linearize(x).A)
            np.testing.assert_array_equal(g.rollout(x, steps=5).x, own.rollout(x, steps=5).x)
            np.testing.assert_array_equal(g.rollout(x, steps=5).energy, own.rollout(x, steps=5).energy)

    def test_starts_of_another_step(self, f):
        """The authors' start of a linear-time step holds half a weight of the map's own step."""
        g = vioc.LinearTimeVI(f.system, 0.05)
        here = g.initial_state(theta=0.3, start="authors")
        fine = g.with_dt(0.01).initial_state(theta=0.3, start="authors")
        alone = vioc.LinearTimeVI(f.system, 0.01).initial_state(theta=0.3, start="authors")
        np.testing.assert_array_equal(fine, alone)
        assert np.abs(here - fine).max() > 1e-3


def hung():
    """A free body of 2 kg that hangs on a rod."""
    body = vioc.free("b", frame="body", mass=vioc.Mass(2.0, (0.1,) * 3))
    rod = vioc.DistanceConstraint("body", "nail", 1.0, name="rod")
    return vioc.System(body, vioc.tz(1.0, name="nail"), vioc.Gravity(0, 0, -9.81), rod)


@pytest.mark.parametrize("make", [vioc.MidpointVI, vioc.LinearTimeVI, GroupVI])
def test_unequal_steps_read_the_force_that_holds(make):
    """A first impulse belongs in part to the step before, also where a part of a run begins behind that."""
    f = make(hung(), 0.01)
    run = f.rollout(f.initial_state(), steps=6, dt=0.01 * np.array([1.5, 0.5, 1.5, 0.5, 1.0, 3.0]))
    assert np.abs(run["force.rod"][1:]) == pytest.approx(9.81, rel=1e-8)
    assert (run[2:5]["force.rod"] == run["force.rod"][2:5]).all()
    assert (run[2:][1:]["force.rod"] == run["force.rod"][3:]).all()


def test_phases_of_other_steps_read_the_force_that_holds():
    f = vioc.MidpointVI(hung(), 0.01)
    phases = SwitchedMap([f, f], (3, 3))
    lengths = 0.01 * np.array([1.0, 1.0, 1.5, 0.5, 1.0, 1.0])
    run = phases.rollout(f.initial_state(), steps=6, dt=lengths)
    assert np.abs(run["force.rod"][1:]) == pytest.approx(9.81, rel=1e-8)
