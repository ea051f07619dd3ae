"""The problems of the group ocp, and what other programs are told of them."""

from __future__ import annotations

import numpy as np
import pytest

import vioc
from studies.benchmarks import ocp, ocp_peers, robots
from studies.benchmarks.robots import Make
from studies.tasks import Solved, at_most, judged
from vioc.control import dmoc, kkt

SLOW = ("marionette", "humanoid")  # to build


@pytest.mark.parametrize("name", [n for n in ocp.PROBLEMS if not n.startswith(SLOW)])
@pytest.mark.parametrize("variational", [True, False])
def test_a_problem_is_well_posed(name, variational):
    task = ocp.PROBLEMS[name](Make(variational=variational))
    phase = dmoc.Phase(task.map, task.steps, task.cost, initial=task.x0, **task.limits)  # names, shapes
    X, U = task.curve
    assert X.shape == (task.steps + 1, task.map.nx) and U.shape == (task.steps, task.map.nu)
    np.testing.assert_array_equal(X[0], task.x0)
    low, high = phase.state_limits
    assert (low[0] <= task.x0).all() and (task.x0 <= high[0]).all()


@pytest.mark.parametrize("solver", ["ipopt", "fatrop"])
def test_the_published_optimum_of_the_cart_pole(solver):
    answer = ocp_peers.nlp(robots.cart_pole(Make()), solver)()
    assert answer.converged and answer.cost == pytest.approx(66.80261969456, abs=1e-7)


def test_small_and_large_programs_are_the_same(monkeypatch):
    task = robots.five_bar(Make(), 40)  # steps of 0.05 s leave it other roots than the map's
    small = ocp_peers.nlp(task, "ipopt")()
    monkeypatch.setattr(ocp_peers, "SMALL", 0)
    large = ocp_peers.nlp(task, "ipopt")()
    assert small.converged and large.converged
    assert small.cost == pytest.approx(large.cost, rel=1e-5)  # limits relaxed by 1e-8, or not


def test_the_equations_of_the_midpoint_rule_are_those_of_its_steps():
    f = robots.arm(Make(variational=False), 10).map
    rng = np.random.default_rng(0)
    x, u = rng.standard_normal(f.nx), rng.standard_normal(f.nu)
    after = f.step(x, u)
    rows = f.residual(x, u, after, [], 0.0, f.dt, [])
    assert np.abs(rows).max() < 1e-10
    assert np.abs(f.residual(x, u, after + 1e-3, [], 0.0, f.dt, [])).max() > 1e-5


def test_least_time_has_one_length_of_steps():
    task = robots.slung_load(Make(), 10)
    U = np.tile([6.0, 6.5, 0.0], (10, 1))
    U[0, 2] = -0.5
    run = task.map.rollout(task.x0, U)
    np.testing.assert_allclose(run["T"][1:], 1.5)
    system_x = run.x[-1, :-1]
    rule = vioc.RungeKutta(robots.slung_system(), 0.15, "rk4")
    np.testing.assert_allclose(system_x, rule.rollout(task.x0[:-1], U[:, :2]).x[-1], atol=1e-12)


def test_a_quaternion_keeps_its_length():
    """Of the zigzag's own equations: turning at 3 rad/s for a second, the rule is of order 4."""
    task = robots.quadrotor_zigzag(Make())
    x = task.x0.copy()
    x[10:] = 1.0, 2.0, -2.0
    run = task.map.rollout(x, np.full((20, 4), robots.HOVER))
    assert np.abs(np.linalg.norm(run.x[:, 3:7], axis=1) - 1).max() < 1e-4


def test_verdicts():
    task = robots.five_bar(Make(), 10)
    assert judged(task, lambda t: 1 / 0).verdict.startswith("ZeroDivisionError")

    def endless(t):
        while True:
            pass

    assert judged(task, endless, 0.05).verdict == "not done in 0.05 s"
    assert not Solved(1.0, "infeasible").converged
    with at_most(10.0):
        pass


def test_backends_that_do_not_agree_are_seen():
    assert ocp.agree({"virtual": 0.8933615, "compiled": 0.8933615}) and ocp.agree({})
    assert not ocp.agree({"virtual": 0.8933615, "compiled": 0.9133615})


def test_a_converged_answer_is_checked():
    task = robots.five_bar(Make())
    phase = dmoc.Phase(task.map, task.steps, task.cost, initial=task.x0, **task.limits)
    best = dmoc.Problem(phase).solve(task.curve)
    found = judged(task, lambda t: best)
    assert found.converged and found.kkt.residual < 1e-7
    checked = kkt(task.map, task.cost, best.trajectory, best.multipliers, **task.limits)
    assert found.kkt.residual == checked.residual


@pytest.mark.peer
def test_the_ur5_of_its_makers():
    pytest.importorskip("pinocchio")
    loaders = pytest.importorskip("example_robot_data")
    robot = loaders.load("ur5")
    import pinocchio

    rng = np.random.default_rng(0)
    ours = vioc.Kinematics(vioc.read_urdf_text(robots.ur5_urdf()).system)
    for _ in range(3):
        q = rng.uniform(-1, 1, 6)
        pinocchio.framesForwardKinematics(robot.model, robot.data, q)
        theirs = robot.data.oMf[robot.model.getFrameId("ee_link")].translation
        np.testing.assert_allclose(ours.position("tool", q), theirs, atol=1e-3)
