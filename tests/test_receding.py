"""Receding horizons by real-time iteration: optima, limits, delays, references, late samples."""

from functools import cache

import casadi as ca
import numpy as np
import pytest
from support.control_maps import cart_pole, double_integrator, midpoint_pendulum

import vioc
from vioc.compile import find_compiler
from vioc.control import ClosedLoop, NonlinearMPC, Problem, Status, dlqr, equilibrium, optimize, quadratic
from vioc.control.dmoc import PathConstraint
from vioc.control.feedback import DelayedMap, Law, terminal_set
from vioc.models import load

NATIVE = [
    pytest.param(True, marks=pytest.mark.skipif(find_compiler() is None, reason="no C compiler")),
    False,
]


class Clock:
    """Tells seconds that calls of a law take, one after the other; in pairs, before and after."""

    def __init__(self, seconds):
        self.seconds, self.now, self.calls = list(seconds), 0.0, 0

    def __call__(self):
        self.now += self.seconds[self.calls // 2 % len(self.seconds)] if self.calls % 2 else 0.0
        self.calls += 1
        return self.now


@cache
def priced_pendulum():
    f = midpoint_pendulum()
    return f, quadratic(f, Q=1.0, R=0.1, Qf=20.0)


def pendulum_problem(n=20, **limits):
    f, cost = priced_pendulum()
    return f, Problem(f, cost, n, bounds={"u.torque": 6.0}, **limits)


@cache
def turned_pendulum():
    """A problem of 30 steps, its start and its optimum."""
    problem, x0 = pendulum_problem(30)[1], np.array([2.0, 0.0])
    return problem, x0, problem.solve(x0)


@cache
def cart_problem():
    f = cart_pole(0.02)
    Q = np.diag([2e3, 2e3, 2e-2, 2e-2])
    return f, Problem(f, quadratic(f, Q=Q, R=2e-2, Qf=Q), 40, bounds={f"u.{f.input_names[0]}": 60.0})


@cache
def blown_cart():
    """A cart-pole in a wind that depends on time."""
    gust = vioc.UserForce(lambda k: {"x": 8 * ca.sin(3 * k.t)})
    return vioc.MidpointVI(load("cart_pole").with_components(gust), 0.05)


@pytest.mark.parametrize("native", NATIVE)
def test_an_undisturbed_plan_is_followed_to_its_end(native):
    """Bellman: what is left of the optimum is the optimum of what is left, bounds included."""
    problem, x0, best = turned_pendulum()
    f = problem.map
    run = ClosedLoop(f, NonlinearMPC(problem, horizon="shrink", native=native)).simulate(x0, 30)
    assert run.memory.counts == {"converged": 30} and np.abs(best.u).max() > 5.99
    np.testing.assert_allclose(run.trajectory.u, best.u, atol=2e-6)
    with pytest.raises(ValueError, match="samples 0 .. 29, asked at 30"):
        ClosedLoop(f, NonlinearMPC(problem, horizon="shrink", native=native)).simulate(x0, 31)


def test_newton_steps_lead_to_the_problem_s_optimum():
    f, problem = pendulum_problem()
    x0 = np.array([1.0, 0.5])
    law = NonlinearMPC(problem, first=1, newton=8, native=False)
    run = ClosedLoop(f, law).simulate(x0, 1)
    assert run.trajectory.u[0] == pytest.approx(problem.solve(x0).u[0], abs=1e-7)


def test_the_exact_hessian_has_the_same_optimum():
    f, problem = pendulum_problem()
    x0 = np.array([1.0, 0.5])
    law = NonlinearMPC(problem, first=3, newton=30, hessian="exact", native=False)
    run = ClosedLoop(f, law).simulate(x0, 1)
    assert run.trajectory.u[0] == pytest.approx(problem.solve(x0).u[0], abs=1e-6)


@pytest.mark.parametrize("native", NATIVE)
def test_a_cart_is_swung_up_within_its_bound(native):
    f, problem = cart_problem()
    x0 = np.zeros(4)
    x0[1] = np.pi
    law = NonlinearMPC(problem, native=native)
    run = ClosedLoop(f, law, bounds={f"u.{f.input_names[0]}": 60}).simulate(x0, 120)
    assert not run.saturated.any() and np.abs(run.trajectory.u).max() > 59.9
    assert np.abs(run.trajectory.x[-1]).max() < 0.1 and set(run.memory.counts) <= {"converged", "acceptable"}


@pytest.mark.parametrize("native", NATIVE)
def test_soft_limits_give_way_where_hard_ones_have_no_answer(native):
    f = double_integrator()
    goal = quadratic(f, Q=1.0, R=0.1, Qf=10.0)
    limits = dict(bounds={f"u.{f.input_names[0]}": 1.0, "v": (-0.5, 0.5)})
    x0 = np.array([2.0, -0.5])
    pushed = np.array([2.0, -0.9])  # too fast at the first sample already
    hard = NonlinearMPC(Problem(f, goal, 15, **limits), native=native)
    run = ClosedLoop(f, hard).simulate(x0, 30)
    assert run.memory.counts == {"converged": 30} and run.trajectory.x[:, 1].min() > -0.5 - 1e-7
    memory = hard.apply(0, x0, hard.start())[1]
    u, memory = hard.apply(1, pushed, memory)
    assert memory.verdicts[1].status is Status.INFEASIBLE and memory.verdicts[1].fallback
    soft = NonlinearMPC(Problem(f, goal, 15, **limits), soft={"v": (50.0, 100.0)}, native=native)
    np.testing.assert_allclose(ClosedLoop(f, soft).simulate(x0, 30).trajectory.u, run.trajectory.u, atol=1e-5)
    memory = soft.apply(0, x0, soft.start())[1]
    u, memory = soft.apply(1, pushed, memory)
    assert memory.verdicts[1].status is Status.CONVERGED and u == pytest.approx(1.0, abs=1e-6)
    u, memory = soft.apply(0, pushed, soft.start())  # and at the start
    assert memory.verdicts[0].status is Status.CONVERGED and u == pytest.approx(1.0, abs=1e-6)
    assert ClosedLoop(f, hard).simulate(pushed, 30).memory.verdicts[0].status is Status.INFEASIBLE


def test_a_curved_path_is_kept_and_counted_by_name():
    """A circle in the phase plane that the free motion crosses."""
    f = double_integrator()
    x, v = f.symbols.x[0], f.symbols.x[1]
    ball = PathConstraint("clearance", (x - 1.0) ** 2 + (v + 0.9) ** 2, lower=0.09)
    goal = quadratic(f, Q=1.0, R=0.01, Qf=10.0)
    x0 = np.array([2.0, 0.0])
    free = ClosedLoop(f, NonlinearMPC(Problem(f, goal, 20))).simulate(x0, 40).trajectory.x
    law = NonlinearMPC(Problem(f, goal, 20, constraints=ball), soft={"clearance": 1e3}, newton=3)
    run = ClosedLoop(f, law).simulate(x0, 40).trajectory.x
    away = [np.min((X[:, 0] - 1.0) ** 2 + (X[:, 1] + 0.9) ** 2) for X in (free, run)]
    assert away[0] < 0.05 and away[1] > 0.09 - 1e-3 and np.abs(run[-1]).max() < 0.05


def test_inputs_under_way_are_known():
    """A plant whose input acts a step late: the plan begins where the input under way leads."""
    f, problem = pendulum_problem()
    late, x0 = DelayedMap(f), np.array([1.0, 0.0])
    run = ClosedLoop(late, NonlinearMPC(problem, delay=1)).simulate(late.join(x0, [0.0]), 30)
    ahead = f.step(x0, [0.0])
    same = ClosedLoop(f, NonlinearMPC(problem)).simulate(ahead, 29)
    np.testing.assert_allclose(run.commands[:29], same.commands, atol=1e-9)


@pytest.mark.parametrize("k0, delay", [(0, 0), (23, 0), (0, 8), (23, 3)])
def test_the_first_plan_is_the_problem_s_at_its_sample(k0, delay):
    """On a map that depends on time it begins where the loop does, and a delay later."""
    f = blown_cart()
    n, x0 = 15, f.initial_state(theta=0.3)
    wave = np.sin(0.2 * np.arange(60))
    costs = [
        quadratic(f, Q={"x": 5.0, "theta": 1.0}, R=0.01, Qf={"x": 9.0}, reference={"x": rows})
        for rows in (wave, wave[k0 + delay :][: n + 1])
    ]
    limits = {"bounds": {"u.force": np.linspace(10, 20, n)}}
    law = NonlinearMPC(Problem(f, costs[0], n, **limits), delay=delay, newton=5)
    run = ClosedLoop(f, law).simulate(x0, 1, k0=k0)
    at = k0 + delay
    x = f.rollout(x0, None, delay, k0=k0).x[-1] if delay else x0
    best = Problem(f, costs[1], n, k0=at, **limits).solve(x)
    np.testing.assert_allclose(law.begin(at, x)[0].u, best.u, rtol=0, atol=1e-9)  # the same search
    np.testing.assert_allclose(run.commands[0], best.u[0], atol=1e-6)  # of another program, to its tolerance


def test_references_move_with_the_samples():
    f, n = double_integrator(), 12
    wave = np.sin(0.2 * np.arange(60))
    goal = quadratic(f, Q={"x": 10.0}, R=1e-3, Qf={"x": 10.0}, reference={"x": wave})
    law = NonlinearMPC(Problem(f, goal, n))
    run = ClosedLoop(f, law).simulate([0.0, 2.0], 45)
    assert np.abs(run.trajectory.x[5:46, 0] - wave[5:46]).max() < 0.01
    k, x = 20, run.trajectory.x[20]
    window = quadratic(f, Q={"x": 10.0}, R=1e-3, Qf={"x": 10.0}, reference={"x": wave[k : k + n + 1]})
    assert run.trajectory.u[k] == pytest.approx(Problem(f, window, n).solve(x).u[0], abs=1e-6)
    held = ClosedLoop(f, law).simulate([0.0, 2.0], 90)  # past its end the last row goes on
    assert held.trajectory.x[-1, 0] == pytest.approx(wave[-1], abs=1e-3)


def test_horizons_change_and_ends_are_kept():
    f = double_integrator()
    rest = equilibrium(f, x=0.0)
    loop = dlqr(f, rest, 1.0, 0.1)
    goal = quadratic(f, Q=1.0 / f.dt, R=0.1 / f.dt, Qf=loop.P)
    limits = dict(bounds={f"u.{f.input_names[0]}": 2.0}, constraints=terminal_set(loop, 0.5))
    lengths = lambda k: 20 - k % 7  # noqa: E731
    law = NonlinearMPC(Problem(f, goal, 20, **limits), horizon=lengths, native=False)
    run = ClosedLoop(f, law).simulate([1.0, 0.0], 60)
    assert run.memory.counts == {"converged": 60} and np.abs(run.trajectory.x[-1]).max() < 1e-2
    with pytest.warns(RuntimeWarning, match="sample 0: there is no first plan, and there is no fallback law"):
        far = ClosedLoop(f, law).simulate([40.0, 0.0], 3)  # from where no horizon reaches the set
    assert not far.u.any() and "infeasible: 3" in repr(
        far
    )  # the state held goes on, no iterate of the search
    assert far.memory.verdicts[-1].fallback and set(far.memory.counts) == {"infeasible"}
    x = np.array([0.3, -0.1])
    value = ca.Function("set", [f.symbols.x], [terminal_set(loop, 0.5).expression])(x)
    assert float(value) == pytest.approx(x @ loop.P @ x, rel=1e-12)


def test_late_samples_are_bridged_and_counted():
    """The third program takes 2.5 samples: it is late at its own, and at the two during which it runs on."""
    f, problem = pendulum_problem()
    x0, dt = np.array([2.0, 0.0]), f.dt
    seconds = [0.01, 0.01, 2.5 * dt, 0.01]
    how = dict(deadline=0.5 * dt, native=False)
    run = ClosedLoop(f, NonlinearMPC(problem, clock=Clock(seconds), **how)).simulate(x0, 8)
    late = [v.k for v in run.memory.verdicts if v.status is Status.LATE]
    assert late == [2, 3, 4] and run.memory.counts == {"converged": 5, "late": 3}
    assert all(v.fallback == (v.k in late) for v in run.memory.verdicts)
    law = NonlinearMPC(problem, native=False)
    same = ClosedLoop(f, law).simulate(x0, 8)
    plan, x = law.begin(0, x0)[0], x0  # the same by its phases
    for k in range(8):
        plan, answer = law.feedback(law.prepare(k, plan), x)
        assert answer.status is Status.CONVERGED
        np.testing.assert_allclose(plan.u[0], same.trajectory.u[k], atol=1e-9)
        x, plan = f.step(x, plan.u[0], k), law.shifted(k + 1, plan)
    # without disturbance the plan of the second sample is the answer that is waited for, nearly
    assert np.abs(run.trajectory.x - same.trajectory.x).max() < 0.1
    rest = dlqr(f, equilibrium(f, theta=0.0), 1.0, 0.1)
    fallback = ClosedLoop(f, NonlinearMPC(problem, clock=Clock(seconds), fallback=rest, **how)).simulate(
        x0, 8
    )
    assert fallback.trajectory.u[3] == pytest.approx(np.clip(-rest.K @ fallback.trajectory.x[3], -6, 6))
    never = NonlinearMPC(problem, clock=Clock([dt]), fallback=rest, **how)
    assert ClosedLoop(f, never).simulate(x0, 5).memory.counts == {"late": 5}


def test_what_does_not_fit_is_refused():
    f, problem = pendulum_problem()
    with pytest.raises(ValueError, match="unknown name 'torqe'; did you mean"):
        NonlinearMPC(problem, soft={"torqe": 1.0})
    with pytest.raises(ValueError, match="linear >= 0 and square > 0"):
        NonlinearMPC(problem, soft={"torque": (1.0, 0.0)})
    with pytest.raises(ValueError, match="is an equation"):
        NonlinearMPC(pendulum_problem(final={"theta": 0.0})[1], soft={"final theta": 1.0})
    side = np.append(np.ones(20), 0.0)  # an equation at the last sample alone
    partly = Problem(
        f, problem.cost, 20, constraints=[PathConstraint("to rest", f.symbols.x[0], -side, side)]
    )
    with pytest.raises(ValueError, match="soft: to rest is an equation"):
        NonlinearMPC(partly, soft={"to rest": 1.0})
    with pytest.raises(TypeError, match="expected a vioc.control.Problem, got CasadiMap"):
        NonlinearMPC(f)
    for options in (
        dict(horizon=5),
        dict(delay=-1),
        dict(newton=0),
        dict(hessian="none"),
        dict(deadline=0.0),
        dict(deadline=1.1 * f.dt),
    ):
        with pytest.raises(ValueError, match="expected"):
            NonlinearMPC(problem, **options)
    with pytest.raises(
        TypeError, match="soft: expected weights by name, such as {'u.torque': 1e3}, got 'torque'"
    ):
        NonlinearMPC(problem, soft="torque")
    fast = f.with_dt(0.5 * f.dt)
    with pytest.raises(ValueError, match="fallback: made for steps of"):
        NonlinearMPC(problem, fallback=dlqr(fast, equilibrium(fast, theta=0.0), 1.0, 0.1))
    with pytest.raises(
        ValueError, match=r"'shrink': the problem has samples 0 \.\. 19, asked at 20; simulate to"
    ):
        NonlinearMPC(problem, horizon="shrink").steps(20)
    rest = dlqr(f, equilibrium(f, theta=0.0), 1.0, 0.1)
    over = ClosedLoop(f, NonlinearMPC(problem, horizon="shrink", fallback=rest)).simulate([1.0, 0.0], 22)
    np.testing.assert_allclose(over.u[20:], -over.x[20:22] @ rest.K.T, atol=1e-12)
    with pytest.raises(ValueError, match="horizon: 30 steps at sample 0; the problem has 20"):
        ClosedLoop(f, NonlinearMPC(problem, horizon=lambda k: 30)).simulate([1.0, 0.0], 1)
    assert optimize(f, problem.cost, x0=[1.0, 0.0], steps=20, bounds={"torque": 6.0}).converged


def test_the_law_that_takes_over_is_told_where_the_inputs_under_way_lead():
    """Inputs act a sample late; the problem has samples 1 to 20, and its law what acts from 21 on."""
    f, problem = pendulum_problem()
    K = dlqr(f, equilibrium(f, theta=0.0), 1.0, 0.1).K

    class Numbered(Law):
        map = f

        def __call__(self, k, x):
            return 0.01 * k - K @ x

    law = NonlinearMPC(problem.begun_at(1), horizon="shrink", delay=1, fallback=Numbered())
    x, memory, acting = np.array([0.5, 0.0]), law.start(), np.zeros(1)
    for k in range(24):
        asked, memory = law.apply(k, x, memory)
        assert (memory.plan is None) == (k + 1 > 20)
        x = f.step(x, acting)
        if k + 1 > 20:
            np.testing.assert_allclose(asked, 0.01 * (k + 1) - K @ x, rtol=1e-9)
        acting = asked


def test_a_late_plan_is_taken_when_its_program_ends_and_not_before():
    """A push behind sample 1 makes the plan of sample 2 another one; it is done 2.5 samples later."""
    f, problem = pendulum_problem()
    law = NonlinearMPC(
        problem, clock=Clock([0.01, 0.01, 2.5 * f.dt, 0.01]), deadline=0.5 * f.dt, native=False
    )
    x, memory, before, inputs, states = np.array([0.5, 0.0]), law.start(), [], [], []
    for k in range(6):
        before.append(memory)
        states.append(x)
        u, memory = law.apply(k, x, memory)
        inputs.append(u)
        x = f.step(x, u, k) + (np.array([0.3, 0.0]) if k == 1 else 0.0)
    old, coming = before[2].plan, before[3].coming
    assert np.abs(coming.u[:2] - old.u[1:3]).max() > 0.1
    for k in (2, 3, 4):
        np.testing.assert_array_equal(inputs[k], old.u[k - 2])
        assert [v.status for v in memory.verdicts][k] is Status.LATE
    assert before[4].coming is not None and before[5].coming is not None and memory.coming is None
    one = law.feedback(law.prepare(5, law.shifted(5, before[4].coming)), states[5])[0]  # begun from what came
    np.testing.assert_allclose(inputs[5], one.u[0], atol=1e-9)
