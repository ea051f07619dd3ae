"""The studies of DMOC in their quick form, what they are made of, and DMOC on their problems."""

import importlib
from dataclasses import replace

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import vioc
from studies import contact_gait, contact_library, contact_nosbench, contact_reach, scissor_gripper
from studies import dmoc_convergence as convergence
from vioc.control import dmoc
from vioc.errors import OptimizationError


@pytest.mark.study
@pytest.mark.parametrize("name", ["dmoc_convergence", "swingups", "closed_loop_mechanisms", "arm_reaching"])
def test_quick_form_holds(name, tmp_path):
    report = importlib.import_module(f"studies.{name}").STUDY.execute(quick=True, out=tmp_path)
    assert report.all_hold
    assert (tmp_path / f"{name}.png").stat().st_size > 0


def test_cycloid_time_is_that_of_a_bead_on_the_cycloid():
    """Roll a bead down the curve itself: ds/dt = sqrt(2 g depth), arc length by the curve's own formula."""
    x, z = convergence.DROP[0], -convergence.DROP[1]
    s = np.linspace(0.1, 6, 200001)
    best = s[np.argmin(np.abs((s - np.sin(s)) * z - (1 - np.cos(s)) * x))]
    R = x / (best - np.sin(best))
    parameter = np.linspace(0, best, 4001)
    middle = (parameter[1:] + parameter[:-1]) / 2
    arc = 2 * R * np.sin(middle / 2) * np.diff(parameter)
    time = np.sum(arc / np.sqrt(2 * convergence.G * R * (1 - np.cos(middle))))
    assert convergence.cycloid_time() == pytest.approx(time, rel=1e-4)


def test_hamilton_jacobi_by_simulation():
    """The feedback u = -V'/2 = y^3 - sqrt(y^6 + y^2) from y = 1: its cost is the first integral."""

    def rhs(t, y):
        u = y[0] ** 3 - np.sqrt(y[0] ** 6 + y[0] ** 2)
        return [u - y[0] ** 3, y[0] ** 2 + u**2]

    down = solve_ivp(rhs, (0, 40), [1.0, 0.0], rtol=1e-11, atol=1e-13).y[1, -1]
    # from 0 to 1.5 the same backwards in time: y' = -y^3 + u with u = y^3 + sqrt(y^6 + y^2)
    up = solve_ivp(
        lambda t, y: [
            -np.sqrt(y[0] ** 6 + y[0] ** 2),
            y[0] ** 2 + (y[0] ** 3 + np.sqrt(y[0] ** 6 + y[0] ** 2)) ** 2,
        ],
        (0, 40),
        [1.5, 0.0],
        rtol=1e-11,
        atol=1e-13,
    ).y[1, -1]
    assert convergence.hamilton_jacobi() == pytest.approx(down + up, rel=1e-8)
    assert convergence.hamilton_jacobi() == pytest.approx(6.7241, abs=5e-5)


def test_the_reach_of_an_acrobot_is_that_of_its_own_steps():
    f = contact_nosbench.acrobot().map
    run = f.rollout(f.initial_state(), 3.0 * np.sin(0.4 * np.arange(30))[:, None])
    a, b, p = run["a"], run["b"], run["p.a"]
    assert 0.05 < np.abs(b).max() < np.pi / 2 - 0.1  # moves, and keeps off its stops
    after = [contact_reach.step(*row) for row in zip(a[:-1], p[:-1], b[:-1], b[1:], strict=True)]
    np.testing.assert_allclose(after, np.c_[a, p][1:], atol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("task", [contact_nosbench.acrobot, contact_gait.gait])
def test_an_acrobot_and_a_gait_through_contact(task):
    best = task().solve()
    assert best.converged
    replay = best.rollout()
    assert replay.gap <= 1e-6 and not replay.feedback
    assert max(np.abs(p).max() for p in best.products().values()) <= 1e-8


def test_tongs_find_their_grip():
    """A loop, four contacts, sides of a stone that tilt, no guess: against statics and the map's steps."""
    f = scissor_gripper.tongs(scissor_gripper.PLAN)
    best = dmoc.solve(f, **scissor_gripper.grasp(f))
    again = best.rollout()
    assert best.converged and again.gap < 1e-9 and not again.feedback
    assert max(np.abs(product).max() for product in best.products().values()) <= 1e-8
    hangs = slice(23, 26)
    assert np.abs(best["h"] - scissor_gripper.raised())[hangs].max() < 1e-4
    weight = best["force.tip1"] * scissor_gripper.MU + best["force.tip2"] * scissor_gripper.MU
    np.testing.assert_allclose(weight[hangs], scissor_gripper.WEIGHT, rtol=0.01)  # no more than it needs


def test_a_plan_that_is_no_motion_is_described(monkeypatch):
    """Its replay is far off; where no regulator about it exists either, the text says what inputs do."""

    def none(*args):
        raise OptimizationError("the problem is not convex there")

    f = scissor_gripper.tongs(scissor_gripper.PLAN)
    arguments = scissor_gripper.grasp(f) | {"smoothing": f.smoothing}
    best = dmoc.solve(f, **arguments, max_iterations=3, raise_on_failure=False)
    assert not best.converged
    # inside: a regulator that fails is put where the result makes one
    monkeypatch.setattr("vioc.control.problem.result.dlqr", none)
    assert "of the inputs, open loop" in best.describe()
    assert not best.rollout().feedback


@pytest.mark.parametrize(("most", "status"), [(1.01, "converged"), (1.1, "acceptable")])
def test_a_free_duration_whose_steps_become_too_long_is_no_motion(most, status):
    """Longer hops cost less: the duration ends at its limit. Steps of 0.22 s have solutions no map takes."""
    task = contact_library.bunny_hop()
    whole = task.steps * task.map.dt
    best = replace(task, more={"duration": (0.9 * whole, most * whole)}).solve()
    assert best.duration == pytest.approx(most * whole, rel=1e-6) and best.status == status
    if best.converged:
        again = best.rollout()
        assert again.gap < 1e-6 and not again.feedback
    else:
        with pytest.raises(vioc.StepError, match="does not exist"):
            best.rollout()
