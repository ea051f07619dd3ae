"""Random trees and loops from two starts: tasks as they are said to be, judges that see what is wrong."""

from pathlib import Path

import numpy as np
import pytest

import vioc
from studies import two_starts
from studies.two_starts import STUDY, promise, search
from studies.two_starts_family import JOINTS, REACH, task
from vioc.control import optimize, quadratic

DATA = Path(__file__).parent / "data"


@pytest.mark.parametrize("index", [3, 4, pytest.param(7, marks=pytest.mark.slow)])
def test_a_task_is_the_same_each_time_and_begins_and_ends_on_its_constraints(index):
    made, again = task(index), task(index)
    f, lag = made.map, made.map.lagrangian
    np.testing.assert_array_equal(made.x0, again.x0)
    assert made.steps == again.steps and made.cost.value(f.rollout(made.x0, steps=made.steps, warn=False)) > 0
    assert JOINTS[0] <= f.nq <= JOINTS[1] and 1 <= f.nu <= f.nq
    assert made.loop == bool(f.multiplier_names) == bool(index % 2)
    for x in (made.x0, made.goal):  # h in m, or m^2 of lengths below REACH
        assert np.abs(lag.constraints(x[: f.nq])).max(initial=0.0) <= 1e-11 * REACH
    assert not made.goal[f.nq :].any()
    places = vioc.Kinematics(f.system)
    tips = [n for n in f.system.frame_names if n.startswith("tip")]
    assert all(np.linalg.norm(places.position(n, np.zeros(f.nq))) <= REACH * (1 + 1e-12) for n in tips)


def test_what_the_gradient_promises_is_what_a_linear_task_loses():
    cart = vioc.System(vioc.tx("x", mass=2.0), vioc.JointForce("x", "force"), vioc.JointDamping("x", 0.3))
    f = vioc.MidpointVI(cart, 0.05)
    cost = quadratic(f, Q={"x": 1.0}, R=0.1, Qf={"x": 10.0, "p.x": 1.0}, goal={"x": 1.0})
    run = f.rollout(f.initial_state({"x": -0.5}, {"x": 0.2}), np.full((20, 1), 0.7))
    promised, slope, du = promise(cost, run)
    best = f.rollout(run.x[0], run.u + du)
    lost = 1 - cost.value(best) / cost.value(run)
    assert slope > 1e-3 and promised == pytest.approx(lost, rel=1e-10)
    assert cost.value(best) == pytest.approx(optimize(f, cost, run, method="shooting").cost, rel=1e-12)


def test_a_motion_that_is_no_optimum_is_untrue_where_it_is_said_to_be_one(monkeypatch):
    made = task(5, most=4)
    best = optimize(made.map, made.cost, x0=made.x0, steps=made.steps)
    assert not (found := search(made, "zero")).failure and found.promised <= 1e-12

    class Said:
        converged, status, message, iterations, open_loop_gap = True, "converged", "", 1, 0.0
        trajectory = made.map.rollout(made.x0, 0.9 * best.u, warn=False)
        cost = made.cost.value(trajectory)

    monkeypatch.setattr(two_starts, "optimize", lambda *args, **options: Said)
    told = search(made, "zero")
    assert told.untrue and told.failure == "untrue" and not told.departs


@pytest.mark.study
def test_quick_form(tmp_path):
    report = STUDY.execute(quick=True, out=tmp_path)
    assert report.all_hold and report.measured["searches"] == 8
    assert report.measured["tree_zero"] > 0 and report.measured["loop_line"] > 0


def test_a_search_stays_at_an_optimum_whose_steps_are_below_the_rounding_of_its_cost():
    """Rounding in a sensitive motion is 1e-13 of its cost, and the last steps promise 1e-17 of it.

    A search that asks the cost to fall then takes no whole step any more, and ends without a verdict.
    """
    sensitive = task(11)
    curve = np.loadtxt(DATA / "sensitive_optimum.csv", delimiter=",")
    inputs = curve[:-1, sensitive.map.nx :]
    best = optimize(
        sensitive.map,
        sensitive.cost,
        sensitive.map.rollout(sensitive.x0, inputs),
        method="shooting",
        max_iterations=20,  # so few are not divided among several searches
        raise_on_failure=False,
    )
    assert best.status in ("converged", "acceptable"), best.message
