"""Regions of attraction: closed forms, an independent grid, and seeds."""

import pickle

import casadi as ca
import numpy as np
import pytest
from support.control_maps import cart_pole, midpoint_pendulum, two_inputs

import vioc
from vioc import CasadiMap, GroupVI
from vioc.control import (
    ClosedLoop,
    Measurement,
    SteadyRegulator,
    dlqr,
    kalman,
    lyapunov_level,
    region_of_attraction,
)
from vioc.control.feedback import DelayedMap, Law, LimitedLaw, StateLaw
from vioc.errors import OptimizationError

# inside: results are the same where their stored form is, to the bit
from vioc.sweeps.store import dumps


def cubic():
    """x+ = x/2 + x^3 without feedback: V = x^2 decreases for |x| < 2^(-1/2), and only there."""
    x, u = ca.SX.sym("x", 2), ca.SX.sym("u")
    f = CasadiMap(ca.Function("f", [x, u], [0.5 * x + x**3]), dt=0.1, state_names=("a", "b"))
    zero = np.zeros((1, 2))
    return SteadyRegulator(
        f, np.zeros(2), np.zeros(1), zero, np.eye(2), np.eye(2), np.eye(1), np.full(2, 0.5)
    )


def test_level_in_closed_form():
    # |F|^2 - |x|^2 >= 0 first on an axis: x^2 = 1/2
    found = lyapunov_level(cubic(), samples=500, directions=20)
    assert found.upper == pytest.approx(0.5, rel=5e-3)
    assert found.level == pytest.approx(0.99 * found.upper)
    assert found.certificate == "sampling"
    assert found.violating_volume == pytest.approx(-np.log(0.05) / 500)
    assert found.reach == pytest.approx({"a": found.level**0.5, "b": found.level**0.5})
    boundary = found.ellipse("a", "b")
    np.testing.assert_allclose((boundary**2).sum(axis=1), found.level)


def test_monte_carlo_in_closed_form():
    # caught is |a| < 2^(-1/2) and |b| < 2^(-1/2): half of the square of half-width 1
    caught = region_of_attraction(cubic(), {"a": 1.0, "b": (-1.0, 1.0)}, samples=800, steps=200, seed=3)
    expected = (np.abs(caught.starts) < 0.5**0.5).all(axis=1)
    np.testing.assert_array_equal(caught.caught, expected)
    low, high = caught.interval
    assert low < 0.5 < high
    # Wilson's interval contains p exactly where the normal test does not reject p
    for p in (low, high):
        assert abs(caught.fraction - p) / np.sqrt(p * (1 - p) / 800) == pytest.approx(1.96, abs=1e-3)
    np.testing.assert_array_equal(caught["a"], caught.starts[:, 0])
    assert "of 800 starts caught" in repr(caught)


def test_level_against_a_grid():
    f = midpoint_pendulum()
    loop = dlqr(f, ([np.pi, 0], None), 1.0, 1.0)
    found = lyapunov_level(loop, samples=500, directions=30)
    angle = np.linspace(0, np.pi, 91)  # V is even
    L = np.linalg.cholesky(loop.P)
    least = np.inf
    for a in angle:
        ray = np.linalg.solve(L.T, [np.cos(a), np.sin(a)])
        r = np.linspace(6.0, 12, 121)
        errors = r[:, None] * ray
        after = f.steps_at(loop.x + errors, loop.u - errors @ loop.K.T).x1 - loop.x
        grown = np.einsum("ra,ab,rb->r", after, loop.P, after) >= r * r
        least = min([least, *r[grown][:1] ** 2])
    assert found.upper <= least * (1 + 1e-9)
    assert found.upper == pytest.approx(least, rel=0.02)
    z = found.violation
    after = f.step(loop.x + z, loop.u - loop.K @ z) - loop.x
    assert after @ loop.P @ after >= z @ loop.P @ z
    assert z @ loop.P @ z == pytest.approx(found.upper, rel=1e-9)
    rng = np.random.default_rng(0)
    errors = np.array([found.draw_error(rng) for _ in range(2000)])
    values = np.einsum("ka,ab,kb->k", errors, loop.P, errors) / found.level
    assert values.max() <= 1
    assert values.mean() == pytest.approx(0.5, abs=0.03)  # E r^2 of a disc


def test_starts_inside_the_level_are_caught():
    f = cart_pole(dt=0.02)
    loop = dlqr(f, (np.zeros(4), None), 1.0, 1.0)
    level = lyapunov_level(loop, directions=30, samples=500)
    caught = region_of_attraction(loop, level.draw_error, samples=60, steps=1500)
    assert caught.fraction == 1.0


def test_the_same_to_the_bit(tmp_path):
    loop = cubic()
    here = region_of_attraction(loop, {"a": 1.0}, samples=60, steps=20, batch=20, seed=4)
    box = dict(samples=60, steps=20, batch=20, seed=4)
    processes = region_of_attraction(loop, {"a": 1.0}, workers=1, store=tmp_path / "runs.jsonl", **box)
    assert dumps(here.starts) == dumps(processes.starts)
    assert dumps(here.distances) == dumps(processes.distances)
    more = region_of_attraction(loop, {"a": 1.0}, samples=70, steps=20, batch=20, seed=4)
    np.testing.assert_array_equal(more.starts[:60], here.starts)
    assert len(more.starts) == 70  # the last batch is a smaller one


class Drifting:
    """A free body without feedback; at rest it stays as it is."""

    def __init__(self):
        body = vioc.spherical("body", mass=vioc.Mass(1.0, (0.1, 0.2, 0.25)))
        self.map = GroupVI(vioc.System(body), 0.1)
        self.x = self.map.initial_state()

    def rollout(self, x0, steps):
        return self.map.rollout(x0, steps=steps)


def test_goals_of_errors_that_are_no_states():
    loop = Drifting()

    def turned(rng):
        return loop.map.retract(loop.x, np.r_[rng.uniform(-0.2, 0.2, 3), np.zeros(3)])

    goal = {"body-phix": 0.1, "body-phiz": 0.15}
    caught = region_of_attraction(loop, turned, goal=goal, samples=40, steps=2)
    turns = np.array([loop.map.difference(loop.x, x)[[0, 2]] for x in caught.starts])
    np.testing.assert_array_equal(caught.caught, (np.abs(turns) < [0.1, 0.15]).all(axis=1))
    assert 0 < caught.fraction < 1
    with pytest.raises(ValueError, match="goal: unknown name 'body-qx'"):
        region_of_attraction(loop, turned, goal={"body-qx": 0.1})


def limited(a=1.25):
    """x+ = a x + u, u = -a x within [-1, 2]: caught is -2/(a - 1) < x < 1/(a - 1), as by any other law."""
    x, u = ca.SX.sym("x"), ca.SX.sym("u")
    f = CasadiMap(ca.Function("f", [x, u], [a * x + u]), dt=0.1, state_names=("a",), input_names=("u",))
    return f, StateLaw(f, np.zeros((1, 1)), np.zeros((1, 1)), np.full((1, 1, 1), a), "holds")


def test_regions_of_loops_with_bounds_rates_and_filters_in_closed_form():
    f, law = limited()
    seen = kalman(f, ([0.0], None), Measurement(f, {"a": 1e-8}), 1.0)
    box = dict(samples=120, steps=100, seed=2)
    for loop in (
        ClosedLoop(f, law, bounds={"u": (-1.0, 2.0)}),
        LimitedLaw(law, 1e9, bounds={"u": (-1.0, 2.0)}),
        ClosedLoop(f, LimitedLaw(law, 1e9, bounds={"u": (-1.0, None)}), bounds={"u": (None, 2.0)}),
        ClosedLoop(f, law, seen, bounds={"u": (-1.0, 2.0)}),
    ):
        caught = region_of_attraction(loop, {"a": 12.0}, **box)
        np.testing.assert_array_equal(caught.caught, (caught["a"] < 4.0) & (caught["a"] > -8.0))
    # an observer that errs believes itself on the other side, and pushes the wrong way until it knows better
    told = region_of_attraction(
        ClosedLoop(f, law, kalman(f, ([0.0], None), Measurement(f, {"a": 1.0}), 1e-6), {"u": (-1.0, 2.0)}),
        {"a": 12.0},
        estimate=[-20.0],
        **box,
    )
    assert 0 < told.fraction < caught.fraction
    free = region_of_attraction(law, {"a": 12.0}, **box)
    assert free.fraction == 1.0 and free.center == [0.0]
    # u may change by 0.1 a sample: what moves away faster than that is lost
    slow = region_of_attraction(
        ClosedLoop(f, LimitedLaw(law, 1.0, bounds={"u": (-1, 2)})), {"a": 12.0}, **box
    )
    assert slow.fraction <= caught.fraction
    ends = StateLaw(f, np.zeros((100, 1)), np.zeros((100, 1)), np.full((100, 1, 1), 1.25))
    with pytest.raises(ValueError, match="has no state to which it regulates; give it, target="):
        region_of_attraction(ClosedLoop(f, ends), {"a": 1.0})
    assert region_of_attraction(ClosedLoop(f, ends), {"a": 1.0}, target=[0.0], **box).fraction == 1.0
    late = DelayedMap(f)
    loop = ClosedLoop(late, dlqr(late, (np.zeros(2), None), 1.0, 1.0), bounds={"u": (-1.0, 2.0)})
    assert region_of_attraction(loop, {"a": 0.5}, samples=20, steps=100).fraction == 1.0
    with pytest.raises(TypeError, match="expected a regulator, a ClosedLoop, a law of a map"):
        region_of_attraction(Law(), {"a": 1.0})
    sent = pickle.loads(pickle.dumps(ClosedLoop(f, law, seen, {"u": (-1.0, 2.0)})))  # as to another process
    np.testing.assert_array_equal(region_of_attraction(sent, {"a": 12.0}, **box).caught, caught.caught)


def test_refusals():
    loop = cubic()
    with pytest.raises(ValueError, match="region: unknown name 'c'"):
        region_of_attraction(loop, {"c": 1.0})
    with pytest.raises(ValueError, match="expected low <= high for 'a'"):
        region_of_attraction(loop, {"a": (1.0, -1.0)})
    with pytest.raises(ValueError, match="region of 'a': expected a number .* got None"):
        region_of_attraction(loop, {"a": None})
    with pytest.raises(ValueError, match="estimate: SteadyRegulator has no observer; leave out the estimate"):
        region_of_attraction(loop, {"a": 1.0}, estimate=loop.x)
    with pytest.raises(ValueError, match="goal: unknown name"):
        region_of_attraction(loop, {"a": 1.0}, goal={"c": 1.0})
    with pytest.raises(ValueError, match="goal: expected errors > 0"):
        region_of_attraction(loop, {"a": 1.0}, goal=0.0)
    with pytest.raises(OptimizationError, match="penalize every state"):
        lyapunov_level(
            SteadyRegulator(loop.map, loop.x, loop.u, loop.K, np.diag([1.0, 0]), loop.Q, loop.R, loop.poles)
        )
    unstable = two_inputs()
    wild = SteadyRegulator(
        unstable, np.zeros(3), np.zeros(2), np.full((2, 3), -5.0), np.eye(3), np.eye(3), np.eye(2), np.ones(3)
    )
    with pytest.raises(OptimizationError, match="arbitrarily near"):
        lyapunov_level(wild, directions=5)
    pinned = vioc.System(
        vioc.tx("x")[vioc.ty("y", name="bob", mass=vioc.Mass(1.0))],
        vioc.Gravity(0.0, -9.8, 0.0),
        vioc.DistanceConstraint("bob", "world", 1.0),
        vioc.JointForce("x", "push"),
    )
    f = vioc.MidpointVI(pinned, 0.05)
    held = SteadyRegulator(
        f, f.state(y=-1.0), np.zeros(1), np.zeros((1, 4)), np.eye(4), np.eye(4), np.eye(1), np.ones(4)
    )
    with pytest.raises(ValueError, match="errors of a constrained map"):
        lyapunov_level(held)
    with pytest.raises(ValueError, match=r"region: an initial state violates .*: h = .*; give a function of"):
        region_of_attraction(held, {"x": 0.5}, samples=3, steps=2)
    swung = region_of_attraction(
        held, lambda rng: np.r_[np.sin(a := rng.uniform(-1, 1)), -np.cos(a), 0, 0], samples=3, steps=2
    )
    assert len(swung.starts) == 3
    with pytest.raises(TypeError, match="SteadyRegulator.*got ClosedLoop without u, K, P"):
        lyapunov_level(ClosedLoop(loop.map, loop))


def test_counts_and_goals_are_numbers():
    for name, value in (
        ("steps", 1.5),
        ("steps", "3"),
        ("samples", np.inf),
        ("samples", 1j),
        ("batch", True),
    ):
        with pytest.raises(ValueError, match=f"{name}: expected a whole number >= 1"):
            region_of_attraction(cubic(), {"a": 0.1}, **{"samples": 3, "steps": 3, name: value})
    for goal in ({}, np.inf, True, "1", 1j):
        with pytest.raises(ValueError, match="goal: expected"):
            region_of_attraction(cubic(), {"a": 0.1}, samples=3, steps=3, goal=goal)
