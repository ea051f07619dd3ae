"""`vioc.control.dmoc`: what it says of wrong input, infeasible problems and solves that stop."""

import os
import pickle
import signal
import threading

import casadi as ca
import numpy as np
import pytest
from support.control_maps import double_integrator
from support.dmoc_problems import effort
from support.mechanisms import pendulum

import vioc
from vioc import OneStepMap
from vioc.control import Cost, Status, dmoc, quadratic

# inside: results are made of raw ends of a solver, which a solve gives only by chance
from vioc.control.dmoc.solution import joined, solution
from vioc.control.dmoc.solvers import SolverOutcome
from vioc.control.problem.result import HEADER
from vioc.errors import OptimizationError


def cart():
    return vioc.MidpointVI(vioc.models.load("cart_pole"), 0.05)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(bounds={"u.force": (3, 1)}), r"bounds on u.force: lower limit 3 > upper limit 1 at k = 0"),
        (dict(bounds={"u.force": ([0, 0, 2, 0, 0], 1)}), r"lower limit 2 > upper limit 1 at k = 2"),
        (dict(bounds={"u.force": ([0, 0], [1, 1])}), r"expected a number or 5 of them as lower limit"),
        (dict(bounds={"u.force": -1.0}), r"means \[-b, b\]"),
        (dict(bounds={"u.force": (np.nan, 1)}), "lower limit is not a number at k = 0"),
        (dict(bounds={"force": 1, "u.force": 1}), "'force' and 'u.force' are the same quantity"),
        (dict(bounds={"tehta": 1}), "bounds: unknown name 'tehta'; did you mean 'theta'"),
        (dict(bounds={"v.theta": (2, 1)}), "bounds on v.theta: lower limit 2 > upper limit 1"),
        (dict(initial=[0, 0, 0]), r"initial state: expected shape \(4,\) in the order x, theta"),
        (dict(initial={"thet": 1.0}), "initial: unknown name 'thet'"),
        (dict(final={"u.force": 1.0}), "may depend on the state only"),
        (
            dict(initial={"theta": np.pi}, bounds={"theta": 1.0}),
            r"initial theta: .* outside of its bounds \[-1, 1\]",
        ),
        (dict(periodic=["thet"]), "periodic: unknown name 'thet'; did you mean 'theta'"),
        (dict(rate={"fore": 1}), "rate: unknown name 'fore'; did you mean 'force'"),
        (dict(duration=-1.0), "duration: expected a time > 0"),
        (dict(duration=(2.0, 1.0)), "duration: lower limit 2 > upper limit 1"),
        (dict(steps=0), "steps: expected a whole number >= 1"),
        (dict(quadrature="simpson"), "quadrature: expected one of left, midpoint, trapezoid"),
        (dict(solver="ipot"), "solver: unknown 'ipot'; did you mean 'ipopt'"),
        (dict(solver="fatrop", rate={"force": 1.0}), "FATROP takes one chain of steps, no rate limits"),
        (dict(tolerance=0.0), "tolerance: expected a number > 0"),
        (dict(guess=[None, None]), "guess: got 2 for 1 phases"),
        (dict(guess=(np.zeros((4, 4)), None)), r"guess of states: expected shape \(6, 4\)"),
    ],
)
def test_wrong_input(options, message):
    f = cart()
    with pytest.raises(ValueError, match=message):
        dmoc.solve(f, effort(f), **{"steps": 5, **options})


def test_wrong_constraints():
    f, x = cart(), ca.SX.sym("foreign")
    wrong = [
        (dmoc.PathConstraint("alien", x, upper=1.0), "'foreign' is neither a symbol of this map"),
        (dmoc.PathConstraint("empty", f.symbols.x[0]), "constraint empty: it has no limit"),
        (dmoc.PathConstraint("late", f.symbols.u[0], upper=1.0, where="end"), "may depend on the state only"),
    ]
    for constraint, message in wrong:
        with pytest.raises(ValueError, match=message):
            dmoc.Phase(f, 5, constraints=[constraint])
    with pytest.raises(ValueError, match="two have the name 'a'"):
        dmoc.Phase(f, 5, constraints=[dmoc.PathConstraint("a", f.symbols.x[0], 0.0)] * 2)
    with pytest.raises(ValueError, match="where is one of"):
        dmoc.PathConstraint("a", f.symbols.x[0], 0.0, where="middle")
    with pytest.raises(ValueError, match="radius: expected a number > 0"):
        dmoc.obstacle(f, "pole", (0.0, 0.0), -1.0, axes="xz")
    with pytest.raises(ValueError, match="centre of 2 numbers"):
        dmoc.obstacle(f, "pole", (0.0, 0.0, 0.0), 1.0, axes="xz")


def test_wrong_phases_and_costs():
    f, g = cart(), double_integrator()
    with pytest.raises(TypeError, match="expected a Cost"):
        dmoc.Phase(f, 5, cost=ca.sumsqr(f.symbols.u))
    with pytest.raises(ValueError, match="built on a map with other states"):
        dmoc.Phase(f, 5, effort(g))
    with pytest.raises(TypeError, match="expected a Phase"):
        dmoc.Problem([f])
    with pytest.raises(ValueError, match="jumps: expected 0, one for each joint, or 1 of a periodic motion"):
        dmoc.Problem(dmoc.Phase(f, 5), jumps=[None, None])
    with pytest.raises(ValueError, match="unknown name 'a'"):
        dmoc.Problem([dmoc.Phase(f, 5), dmoc.Phase(f, 5)], jumps=[{"a": 0.0}]).solve()
    with pytest.raises(ValueError, match="unknown parameter 'a'"):
        dmoc.Problem(dmoc.Phase(f, 5)).with_parameters(a=1.0)
    with pytest.raises(ValueError, match="factor: expected a whole number"):
        dmoc.Problem(dmoc.Phase(f, 5)).refined(1.5)


def test_time_of_later_phases():
    x, u, t = ca.SX.sym("x"), ca.SX.sym("u"), ca.SX.sym("t")
    f = vioc.CasadiMap(ca.Function("f", [x, u, t], [x + 0.1 * ca.sin(t) + u]), 0.1)
    with pytest.raises(ValueError, match="an earlier phase has a free duration"):
        dmoc.Problem([dmoc.Phase(f, 5, duration=(0.1, 1.0)), dmoc.Phase(f, 5)]).solve()
    with pytest.raises(ValueError, match=r"it starts after 2\.5 of its steps"):
        dmoc.Problem([dmoc.Phase(f, 5, duration=0.25), dmoc.Phase(f, 5)]).solve()
    parts = [dmoc.Phase(f, 5, effort(f), initial=[0.0]), dmoc.Phase(f, 5, effort(f), final=[1.0])]
    two = dmoc.Problem(parts).solve()
    one = dmoc.solve(f, effort(f), steps=10, initial=[0.0], final=[1.0])
    assert two.cost == pytest.approx(one.cost, rel=1e-8)
    assert two.rollout(1).gap < 1e-9
    g = f.with_dt(0.05)
    parts[1] = dmoc.Phase(g, 10, effort(g), final=[1.0])
    found = dmoc.Problem(parts).solve()  # steps are counted from 0 s in either's lengths
    assert found.converged and "begins at step 10, here it would at 5" in found.apart


def test_phases_of_a_search_that_ends_early_need_not_meet():
    f = vioc.MidpointVI(pendulum(), 0.05)
    end = {"theta": 1.0, "p.theta": 0.0}
    parts = [dmoc.Phase(f, 12, effort(f), initial=f.state()), dmoc.Phase(f, 18, effort(f), final=end)]
    best = dmoc.Problem(parts).solve(max_iterations=2, raise_on_failure=False)
    one, two = best.phases
    off = abs(one.x[-1] - two.x[0])
    assert best.status == "max_iterations" and off.max() > 1e-5 and best.violations
    for said in (best, pickle.loads(pickle.dumps(best))):
        assert f"phase 1 begins {off.max():.2g} off where phase 0 ends, in p.theta" in said.apart
        assert said.joined is None and said.apart in said.describe()
        shown = said._repr_html_()
        assert said.apart in shown and "phases[1]" in shown and "max iterations" in shown
        with pytest.raises(ValueError, match="no one trajectory; ask one of them"):
            _ = said["theta"]
    assert "replay" in best.describe(0)
    with pytest.raises(OptimizationError, match="max iterations"):
        best.raise_for_status()
    done = dmoc.Problem(parts).solve()
    assert done.apart == "" and len(done) == 30 and "theta" in done._repr_html_()


@pytest.mark.parametrize("jump", [None, {"v": 0.5}])
@pytest.mark.parametrize("off", [0.9e-6, 1.1e-6])
def test_phases_that_nearly_meet_are_one(off, jump):
    f = double_integrator()
    one = f.rollout([0.0, 0.0], np.ones((3, 1)))
    after = one.x[-1] if jump is None else np.array([one["x"][-1], 0.5])
    two = f.rollout(after + [off * (1 + after.max()), 0.0], np.zeros((2, 1)))
    run, apart = joined([jump], [one, two])
    assert (run is None) == bool(apart) == (off > 1e-6)
    if run is not None:
        np.testing.assert_array_equal(run.x, [*one.x, *two.x[1:]])


def test_a_map_without_equations():
    class Opaque(OneStepMap):
        """Keeps nothing of the protocol but its names."""

        nx = ndx = nu = 1
        state_names, input_names, multiplier_names, parameters = ("x",), ("u",), (), {}

    Opaque.__abstractmethods__ = frozenset()
    with pytest.raises(ValueError, match="Opaque: DMOC needs .* `residual` or `explicit`, got neither"):
        dmoc.Phase(Opaque(), 5)


def test_infeasible_problems_name_what_is_violated():
    f = cart()
    with pytest.raises(OptimizationError, match="infeasible after .* Violated: .* at k = ") as caught:
        dmoc.solve(
            f, effort(f), steps=10, initial=f.state(theta=np.pi), final=f.state(), bounds={"u.force": 1.0}
        )
    best = caught.value.result
    assert best.status == "infeasible" and not best.converged
    worst = best.violations[0]
    assert worst.amount > 1e-3
    alike = [v.amount for v in best.violations if v.name == worst.name]  # of one unit
    assert len(alike) > 1 and worst.amount == max(alike)
    assert worst.t == pytest.approx(0.05 * worst.k)
    assert (worst.lower, worst.upper) == (0.0, 0.0) and worst.name.startswith("dynamics.")
    assert np.isfinite(best.trajectory.x).all()
    with pytest.raises(OptimizationError):
        best.sensitivity()


def test_contradictory_constraints_name_them():
    """A constraint of the user's is reported with its own bound."""
    f = double_integrator()
    wall = dmoc.PathConstraint("wall", f.symbols.x[0] - f.symbols.x[1] ** 2, upper=-1.0)
    found = dmoc.solve(
        f,
        effort(f),
        steps=4,
        initial=f.state(x=1.0),
        final=f.state(x=1.0),
        bounds={"u.force": 0.1},
        constraints=[wall],
        raise_on_failure=False,
    )
    assert found.status == "infeasible"
    walls = [v for v in found.violations if v.name == "wall"]
    assert walls and walls[0].upper == -1.0 and walls[0].value > -1.0
    assert "limits [-inf, -1]" in str(walls[0])


def test_a_solver_without_progress_names_what_depends_on_each_other():
    """Not only that something does: an end that is given, and asked for again by a constraint."""
    f = double_integrator()

    def verdict(*constraints):
        task = dict(initial=f.state(), final={"x": 1.0}, constraints=constraints)
        best = dmoc.solve(f, effort(f), steps=6, raise_on_failure=False, **task)
        raw = best.raw
        ended = SolverOutcome(raw.w, raw.mu, Status.NO_PROGRESS, 3, 0.0, {})
        return solution(best.problem, raw, ended, best.history).message

    again = dmoc.PathConstraint("again", f.symbols.x[0], lower=1.0, upper=1.0, where="end")
    speed = dmoc.PathConstraint("speed", f.symbols.x[1], lower=1.0, upper=1.0, where="end")
    text = verdict(again, speed)
    assert "depend on each other there: again at k = 6, x at k = 6. Leave out" in text
    assert "independent there" in verdict(speed)


def test_cost_that_is_not_a_number():
    f = vioc.MidpointVI(pendulum(), 0.05)
    with pytest.raises(OptimizationError, match="the cost is not finite at the guess, at k = 0"):
        dmoc.solve(f, Cost(f, ca.log(f.symbols.x[0])), steps=10, initial=f.state())
    never = dmoc.PathConstraint("root", ca.sqrt(f.symbols.x[0] - 1.0), upper=1.0)
    with pytest.raises(OptimizationError, match="root is not finite at the guess"):
        dmoc.solve(f, effort(f), steps=10, initial=f.state(), constraints=[never])


def test_cost_that_stops_being_a_number(capfd):
    """The square root of an angle that falls below zero: a verdict, no flood of warnings."""
    f = vioc.MidpointVI(pendulum(), 0.05)
    cost = Cost(f, ca.sqrt(f.symbols.x[0]) + 1e-6 * f.symbols.u**2)
    found = dmoc.solve(f, cost, steps=10, initial=f.state(theta=0.1), raise_on_failure=False)
    assert not found.converged and found.message
    assert np.isfinite(found.trajectory.x).all()
    assert capfd.readouterr().out == ""


def test_iterations_run_out():
    f = cart()
    problem = dmoc.Problem(dmoc.Phase(f, 40, effort(f), initial=f.state(theta=np.pi), final=f.state()))
    with pytest.raises(OptimizationError, match="max iterations after 3 iterations") as caught:
        problem.solve(max_iterations=3)
    cold = problem.solve()
    assert problem.solve(caught.value.result.trajectory).cost == pytest.approx(cold.cost, rel=1e-6)


def test_where_ctrl_c_is_ignored_it_stays_ignored():
    """As in a job in the background: a Ctrl-C on the terminal is not meant for it."""
    f = double_integrator()
    problem = dmoc.Problem(dmoc.Phase(f, 10, effort(f), initial=[1.0, 0.0], final=[0.0, 0.0]))
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert problem.solve(monitor=lambda *_: signal.raise_signal(signal.SIGINT)).converged
    finally:
        signal.signal(signal.SIGINT, before)


def test_interrupted(ctrl_c):
    f = cart()
    problem = dmoc.Problem(dmoc.Phase(f, 40, effort(f), initial=f.state(theta=np.pi), final=f.state()))
    seen = []

    def press(record):
        seen.append(record.gap)
        if record.iteration == 3:
            os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt, match="interrupted after 3 iterations") as caught:
        problem.solve(monitor=press)
    best = caught.value.result
    assert signal.getsignal(signal.SIGINT) is before
    assert best.status == "interrupted"
    assert best.violations[0].amount > 0
    least = problem.solve(max_iterations=int(np.argmin(seen)), raise_on_failure=False)
    np.testing.assert_allclose(best.trajectory.x, least.trajectory.x, rtol=0, atol=1e-9)
    kept = problem.solve(monitor=press, raise_on_failure=False)
    assert kept.status == "interrupted"
    assert problem.solve(kept).converged


@pytest.mark.parametrize("solver", ["ipopt", "sqp"])
@pytest.mark.parametrize("error", [KeyboardInterrupt(), ZeroDivisionError("of the monitor")])
def test_what_a_monitor_raises_arrives(solver, error):
    f = cart()
    problem = dmoc.Problem(dmoc.Phase(f, 10, effort(f), initial=f.state(x=1.0), final=f.state()))

    def refuse(record):
        raise error

    with pytest.raises(type(error)) as caught:
        problem.solve(solver=solver, monitor=refuse)
    if isinstance(error, KeyboardInterrupt):
        assert caught.value.result.status == "interrupted"
    else:
        assert caught.value is error
    assert problem.solve(solver=solver).converged


def test_ctrl_c_in_a_solver_without_a_monitor_keeps_what_it_found(ctrl_c):
    f = cart()
    problem = dmoc.Problem(dmoc.Phase(f, 40, effort(f), initial=f.state(theta=np.pi), final=f.state()))
    whole = problem.solve(solver="fatrop")  # it has no callback: it ends before Ctrl-C is heard
    solver = next(iter(problem._solvers.values()))
    solve = solver._solve

    class Pressed:
        stats = solve.stats

        def __call__(self, **args):
            found = solve(**args)
            signal.raise_signal(signal.SIGINT)
            return found

    solver._solve = Pressed()
    with pytest.raises(KeyboardInterrupt) as caught:
        problem.solve(solver="fatrop")
    assert caught.value.result.status == "interrupted"
    assert caught.value.result.cost == whole.cost


def test_works_in_a_thread():
    f = double_integrator()
    results = []
    thread = threading.Thread(
        target=lambda: results.append(dmoc.solve(f, effort(f), steps=5, initial=[0, 0], final=[1, 0]))
    )
    thread.start()
    thread.join()
    assert results[0].converged


def test_monitor_prints_a_line_per_iteration(capsys):
    f = double_integrator()
    best = dmoc.solve(f, effort(f), steps=5, initial=[0, 0], final=[1, 0], monitor=True)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == [*HEADER.split()]
    assert len(lines) == best.iterations + 3
    assert lines[-1] == best.message and lines[-1].startswith("converged after")


def test_options_reach_the_solver():
    f = double_integrator()
    problem = dmoc.Problem(dmoc.Phase(f, 5, effort(f), initial=[0, 0], final=[1, 0]))
    exact = problem.solve()
    for solver, options in (
        ("ipopt", {"ipopt.hessian_approximation": "limited-memory"}),
        ("sqp", {"hessian_approximation": "limited-memory"}),
    ):
        assert problem.solve(solver=solver, options=options).cost == pytest.approx(exact.cost, rel=1e-6)
    with pytest.raises(RuntimeError, match="no_such"):
        problem.solve(options={"no_such_option": 1})


def test_what_is_printed():
    f = vioc.MidpointVI(pendulum(), 0.05)
    phase = dmoc.Phase(
        f, 10, quadratic(f, R=1.0, Qf={"theta": 1.0}), initial=f.state(theta=1.0), duration=(0.1, 1.0)
    )
    best = dmoc.Problem(phase).solve()
    assert repr(phase) == "Phase(MidpointVI: 10 steps, 0.1 to 1 s)"
    assert repr(best).startswith("Result(converged after")
    assert "initial.theta" in repr(best.sensitivity())


def test_trajectories_of_solutions_are_like_any_other(tmp_path):
    f = vioc.MidpointVI(pendulum(), 0.05)
    best = dmoc.solve(f, effort(f), steps=10, initial=f.state(), final=f.state(theta=0.5))
    again = pickle.loads(pickle.dumps(best.trajectory))
    assert (again.x == best.trajectory.x).all()
    loaded = vioc.Trajectory.load(best.trajectory.save(tmp_path / "best"), f)
    assert (loaded.u == best.trajectory.u).all()
    regulator = best.stabilize(1.0, 1.0)
    run = regulator.rollout(f.state(theta=0.05))
    assert run["theta"][-1] == pytest.approx(0.5, abs=0.05)


def test_an_end_that_asks_too_much_is_infeasible_and_writes_nothing_else(capfd):
    """Place, momentum and speed at once, after two steps: more equations than unknowns."""
    f = vioc.MidpointVI(vioc.models.load("pendulum"), 0.05)
    cost = vioc.control.quadratic(f, R=1.0)
    end = {"theta": 0.0, "p.theta": 0.0, "v.theta": 1.0}
    with pytest.raises(vioc.OptimizationError, match=r"infeasible.*final v.theta at k = 2"):
        vioc.control.optimize(f, cost, x0=[0.5, 0.0], steps=2, method="dmoc", final=end)
    assert "".join(capfd.readouterr()) == ""
