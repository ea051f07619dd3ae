"""Results, runs of loops, batches and reports of equilibria where a trajectory or a state is taken."""

import casadi as ca
import numpy as np
import pytest

import vioc
from vioc import control, models
from vioc.control import (
    Problem,
    analysis,
    controllability,
    dlqr,
    dmoc,
    equilibrium,
    feedback,
    observability,
    optimize,
    quadratic,
    straight_line,
)

# inside: what is taken for a trajectory, a state or a label is decided by one function each
from vioc.runs.given import state_of, trajectory_of

N = 10


@pytest.fixture(scope="module")
def f():
    return vioc.MidpointVI(models.load("cart_pole"), 0.05)


@pytest.fixture(scope="module")
def cost(f):
    return quadratic(f, Q=1.0, R=1.0, Qf=10.0)


@pytest.fixture(scope="module")
def upright(f):
    return equilibrium(f, x=0.0, theta=0.0)


@pytest.fixture(scope="module")
def pushed(f):
    """An equilibrium that needs an input: a pole that a torque keeps from falling."""
    from vioc import Gravity, JointForce, System, ry, tz

    g = vioc.MidpointVI(
        System(ry("theta")[tz(0.5, mass=1.0)], Gravity(0, 0, -9.81), JointForce("theta", "torque")), 0.02
    )
    return equilibrium(g, theta=0.4)


@pytest.fixture(scope="module")
def motions(f, cost, upright):
    """The kinds of results, each with its trajectory."""
    x0 = f.initial_state({"theta": 0.1, "x": 0.05})
    best = optimize(f, cost, x0=x0, steps=N)
    law = dlqr(f, upright, 1.0, 1.0)
    kinds = {
        "result": best,
        "limited": optimize(f, cost, best, bounds={"force": 50.0}),
        "projected": optimize(f, cost, best, method="projection"),
        "solution": dmoc.solve(
            f, cost, steps=N, initial=x0, final=upright, guess=best, bounds={"force": 1e3}
        ),
        "loop": feedback.ClosedLoop(f, law).simulate(x0, N),
        "batch": f.rollouts(x0, best.u),
    }
    kinds["phase"] = kinds["solution"].phases[0]
    return kinds


KINDS = "result", "limited", "projected", "solution", "phase", "loop", "batch"


@pytest.mark.parametrize("kind", KINDS)
def test_designs_and_analyses_about_what_has_a_trajectory(f, cost, motions, kind):
    given = motions[kind]
    run = given.trajectory
    assert isinstance(run, vioc.Trajectory) and (trajectory_of(given) is run or kind == "batch")
    for design in (
        lambda about: dlqr(f, about, 1.0, 1.0).K,
        lambda about: dlqr(f, about, 1.0, 1.0, S=0.1 * np.ones((4, 1))).K,
        lambda about: feedback.kalman(f, about, feedback.Measurement(f, ("x", "theta")), 0.1).L,
        lambda about: feedback.covariance(about, 0.1, W=0.01).P,
        lambda about: controllability(f, about).gramian,
        lambda about: observability(f, about, "x").gramian,
        lambda about: np.array([controllability(f, about).rank]),
        lambda about: f.linearize_trajectory(about).A,
        lambda about: f.second_order_trajectory(about, np.ones((N, 4))).xx,
        lambda about: feedback.tangent_bases(f, about),
        lambda about: np.array([cost.value(about)]),
        lambda about: quadratic(f, Q=1.0, R=1.0, reference=about, u_reference=about).reference_rows(N),
        lambda about: np.array([c.exact for c in control.check_derivatives(cost, about)]),
        lambda about: np.concatenate(
            [line.get_ydata() for axes in np.ravel(vioc.viz.plot_trajectory(about)) for line in axes.lines]
        ),
    ):
        np.testing.assert_array_equal(design(given), design(run))


@pytest.mark.parametrize("kind", ["limited", "loop", "phase", "batch"])
def test_guesses_that_have_a_trajectory(f, cost, motions, kind):
    given, run = motions[kind], motions[kind].trajectory
    for solve in (
        lambda guess: optimize(f, cost, guess).u,
        lambda guess: optimize(f, cost, guess, method="projection").u,
        lambda guess: optimize(f, cost, guess, bounds={"force": 50.0}, multipliers={}).u,
    ):
        np.testing.assert_array_equal(solve(given), solve(run))
    start = dmoc.Problem(dmoc.Phase(f, N, cost, initial=run.x[0]))
    form = start.transcription("states")
    np.testing.assert_array_equal(start._start(given, form)[0], start._start(run, form)[0])
    problem = Problem(f, cost, N, bounds={"force": 50.0})
    plans = [feedback.NonlinearMPC(problem, guess).begin(0, run.x[0])[0] for guess in (given, run)]
    np.testing.assert_allclose(plans[0].u, plans[1].u, atol=1e-5)  # a result warms the search


def test_pictures_of_what_has_a_trajectory(f, motions, tmp_path):
    import matplotlib.pyplot as plt

    from vioc.viz.scene import labelled

    vioc.viz.animate(motions["loop"], tmp_path / "loop.gif", fps=4)
    assert (tmp_path / "loop.gif").stat().st_size > 0
    many = f.rollouts(np.stack([f.initial_state({"theta": a}) for a in (0.1, 0.2)]), steps=N)
    assert list(labelled(many)) == ["run 1", "run 2"]
    assert list(labelled([motions["loop"], many[0]])) == ["run 1", "run 2"]
    vioc.viz.plot_phase({"a": motions["loop"], "b": motions["solution"]}, "x", "theta")
    with pytest.raises(ValueError, match=r"got a batch of 2; take one, batch\[i\]"):
        controllability(f, many)
    plt.close("all")


def test_results_read_like_their_trajectory(motions, tmp_path):
    for kind in ("result", "limited", "solution", "phase", "loop"):
        given, run = motions[kind], motions[kind].trajectory
        assert len(given) == len(run) == N and bool(given) and given.map is run.map and given.k0 == run.k0
        for name in ("t", "x", "u", "energy", "step_lengths"):
            np.testing.assert_array_equal(getattr(given, name), getattr(run, name))
        np.testing.assert_array_equal(given["theta"], run["theta"])
        np.testing.assert_array_equal(given.evaluate(ca.sumsqr(run.map.symbols.x)), (run.x**2).sum(axis=1))
        again = vioc.Trajectory.load(given.save(tmp_path / kind), run.map)
        np.testing.assert_array_equal(again.x, run.x)
        assert given.slack() == []


def test_equilibria_where_a_state_is_taken(f, upright, motions):
    x, law = upright.x, dlqr(f, upright, 1.0, 1.0)
    for given in (upright, law):
        np.testing.assert_array_equal(f.check_state(given), x)
        np.testing.assert_array_equal(law.rollout(given, 3).x, law.rollout(x, 3).x)
        np.testing.assert_array_equal(straight_line(given, x + 1, 4, f), straight_line(x, x + 1, 4, f))
        np.testing.assert_array_equal(straight_line(x + 1, given, 4), straight_line(x + 1, x, 4))
        assert equilibrium(f, guess=given).moved <= 1e-12
        problem = dmoc.Phase(f, 3, initial=given, final=given)
        assert problem.fixed_start.all() and problem.fixed_end.all()
        np.testing.assert_array_equal(
            analysis.modes(f, given).eigenvalues, analysis.modes(f, upright).eigenvalues
        )
    follow = motions["result"].stabilize(1.0, 1.0)
    held, by_hand = follow.hold(upright), follow.hold(upright.x, upright.u)
    np.testing.assert_array_equal(held.end.K, by_hand.end.K)
    np.testing.assert_array_equal(held.end.u, upright.u)
    loop = feedback.ClosedLoop(f, law).simulate(upright, 3, estimate=upright)
    np.testing.assert_array_equal(loop.x, np.tile(x, (4, 1)))


def test_an_equilibrium_brings_its_input(pushed):
    """Without it a linearization would be about another point: a wrong number without a word."""
    g, x, u = pushed.map, pushed.x, pushed.u
    assert abs(u[0]) > 1
    np.testing.assert_array_equal(g.step(pushed), g.step(x, u))
    np.testing.assert_array_equal(g.linearize(pushed).A, g.linearize(x, u).A)
    np.testing.assert_array_equal(g.step(pushed, [0.0]), g.step(x, [0.0]))
    np.testing.assert_array_equal(g.rollout(pushed, steps=3).u, np.tile(u, (3, 1)))
    np.testing.assert_array_equal(g.rollout(pushed, np.zeros((3, 1))).u, np.zeros((3, 1)))
    np.testing.assert_array_equal(g.rollouts(pushed, steps=3).u, np.tile(u, (1, 3, 1)))
    assert equilibrium(g, guess=pushed).u == pytest.approx(u, abs=1e-12)
    for other in (vioc.LinearTimeVI, vioc.RungeKutta):
        h = other(g.system, g.dt) if other is vioc.LinearTimeVI else other(g.system, g.dt, method="rk4")
        held = equilibrium(h, theta=0.4)
        np.testing.assert_array_equal(h.linearize(held).A, h.linearize(held.x, held.u).A)


def test_what_is_no_single_state_is_refused(f, upright, motions, pushed):
    for given in (motions["result"], motions["loop"], motions["batch"]):
        with pytest.raises(
            ValueError, match=r"expected one state, got .*; give one of them, such as run.x\[0\]"
        ):
            f.check_state(given)
    with pytest.raises(ValueError, match="it is of a map with the states theta, p.theta, not x, theta"):
        f.check_state(pushed)
    with pytest.raises(ValueError, match="the steps of a rollout|rollout needs inputs U"):
        f.rollout(upright)
    assert state_of(3.0) == 3.0
