"""`optimize` within limits, against QP and NLP solvers; its multipliers and verdicts."""

import functools
import pickle

import casadi as ca
import numpy as np
import pytest
from support.control_maps import RailedMap, double_integrator, midpoint_pendulum
from support.mechanisms import everything, state_near

import vioc
from vioc.control import Cost, dmoc, optimize, quadratic, straight_line
from vioc.control.dmoc import PathConstraint
from vioc.errors import OptimizationError

STEPS = 60
LIMIT = 10.0
EXACT = 1e-10


@functools.cache
def swing_up():
    """The cart-pole in two seconds: map, cost, start, optimum without limits."""
    f = vioc.MidpointVI(vioc.models.load("cart_pole"), 2.0 / STEPS)
    weights = {"x": 0.1, "theta": 0.1, "v.x": 0.01, "v.theta": 0.01}
    end = {"x": 1e3, "theta": 1e3, "v.x": 1e2, "v.theta": 1e2}
    cost = quadratic(f, Q=weights, R=0.01, Qf=end)
    x0 = f.initial_state({"theta": np.pi})
    free = optimize(f, cost, (straight_line(x0, np.zeros(4), STEPS), None))
    return f, cost, x0, free


@functools.cache
def swing_up_by_ipopt():
    """The same with a bounded force as an NLP on the map's residual: cost, inputs, duals of the bound."""
    f, _, x0, free = swing_up()
    X, U = ca.MX.sym("X", f.nx, STEPS + 1), ca.MX.sym("U", f.nu, STEPS)
    x, u = f.symbols[:2]
    # the cost written anew, in the states' own names
    v = [f.quantity(n) for n in ("x", "theta", "v.x", "v.theta")]
    stage = 0.05 * (v[0] ** 2 + v[1] ** 2) + 0.005 * (v[2] ** 2 + v[3] ** 2)
    end = 500 * (v[0] ** 2 + v[1] ** 2) + 50 * (v[2] ** 2 + v[3] ** 2)
    running = ca.Function("l", [x, u], [f.dt * (stage + 0.005 * ca.sumsqr(u))])
    terminal = ca.Function("m", [x], [end])
    none = ca.MX(0, 1)
    rows = [f.residual(X[:, k], U[:, k], X[:, k + 1], none, k * f.dt, f.dt, none) for k in range(STEPS)]
    total = sum(running(X[:, k], U[:, k]) for k in range(STEPS)) + terminal(X[:, STEPS])
    w = ca.veccat(X, U)
    nlp = {"x": w, "f": total, "g": ca.vertcat(*rows)}
    quiet = {"ipopt.print_level": 0, "print_time": 0, "expand": True, "ipopt.sb": "yes", "ipopt.tol": 1e-11}
    solver = ca.nlpsol("s", "ipopt", nlp, {**quiet, "ipopt.bound_relax_factor": 0})
    low, high = np.full(w.numel(), -np.inf), np.full(w.numel(), np.inf)
    low[:4] = high[:4] = x0
    low[4 * STEPS + 4 :], high[4 * STEPS + 4 :] = -LIMIT, LIMIT
    guess = np.concatenate([free.trajectory.x.ravel(), np.clip(free.trajectory.u.ravel(), -9, 9)])
    found = solver(x0=guess, lbx=low, ubx=high, lbg=0, ubg=0)
    assert solver.stats()["success"]
    tail = slice(4 * STEPS + 4, None)
    return float(found["f"]), found["x"].full()[tail, 0], found["lam_x"].full()[tail, 0]


# -- against other solvers --------------------------------------------------------------------------


def constrained_lq():
    """Cost, bounds, and the QP's optimum with its multipliers, of a double integrator."""
    f = double_integrator()
    N, x0 = 30, np.array([1.0, 0.0])
    cost = quadratic(f, Q=[1, 0.1], R=0.05, Qf=10, per_time=False)
    A, B = f.linearize(x0)
    n = 2 * (N + 1) + N
    H = np.kron(np.eye(N + 1), np.diag([1, 0.1]))
    H[-2:, -2:] = 10 * np.eye(2)
    H = np.block([[H, np.zeros((2 * N + 2, N))], [np.zeros((N, 2 * N + 2)), 0.05 * np.eye(N)]])
    G = np.zeros((2 * N, n))
    for k in range(N):
        G[2 * k : 2 * k + 2, 2 * k : 2 * k + 2] = A
        G[2 * k : 2 * k + 2, 2 * k + 2 : 2 * k + 4] = -np.eye(2)
        G[2 * k : 2 * k + 2, 2 * N + 2 + k] = B[:, 0]
    low, high = np.full(n, -np.inf), np.full(n, np.inf)
    low[:2] = high[:2] = x0
    low[3 : 2 * N + 2 : 2] = -0.65  # speed
    low[2 * N + 2 :], high[2 * N + 2 :] = -1.0, 1.5
    quiet = {"print_iter": False, "print_header": False, "print_info": False, "error_on_fail": True}
    sparse = {"h": ca.DM(H).sparsity(), "a": ca.sparsify(ca.DM(G)).sparsity()}
    qp = ca.conic("qp", "qrqp", sparse, quiet)
    found = qp(h=H, a=ca.sparsify(ca.DM(G)), lbx=low, ubx=high, lba=0, uba=0)
    duals = found["lam_x"].full()[:, 0]
    bounds = {"u.force": (-1.0, 1.5), "v": (-0.65, None)}
    solution = float(found["cost"]), found["x"].full()[-N:, 0], duals[2 * N + 2 :], duals[1 : 2 * N + 2 : 2]
    return f, cost, x0, N, bounds, solution


def test_a_linear_quadratic_problem_with_bounds_is_the_qp():
    f, cost, x0, N, bounds, (value, u, of_force, of_speed) = constrained_lq()
    best = optimize(f, cost, x0=x0, steps=N, bounds=bounds, tolerance=EXACT)
    assert best.feasible and best.margin == pytest.approx(0, abs=1e-8)
    assert best.cost == pytest.approx(value, rel=1e-8)
    np.testing.assert_allclose(best.u[:, 0], u, atol=1e-7)
    np.testing.assert_allclose(best.multipliers["u.force"], of_force, atol=1e-6)
    np.testing.assert_allclose(best.multipliers["v"][1:], of_speed[1:], atol=1e-6)
    assert np.abs(of_force).max() > 0.1 and np.abs(of_speed[1:]).max() > 0.1  # both limits matter
    wide = optimize(f, cost, x0=x0, steps=N, bounds={"u.force": 100.0}, tolerance=EXACT)
    assert wide.margin == pytest.approx(1 - np.abs(wide.u).max() / 100, rel=1e-12)


def test_swing_up_with_a_bounded_force_is_that_of_ipopt():
    f, cost, x0, free = swing_up()
    value, u, duals = swing_up_by_ipopt()
    assert np.abs(free.u).max() > 1.3 * LIMIT
    best = optimize(f, cost, free, bounds={"u.force": LIMIT}, tolerance=EXACT)
    assert best.cost == pytest.approx(value, rel=1e-8)
    np.testing.assert_allclose(best.u[:, 0], u, atol=1e-5)
    np.testing.assert_allclose(best.multipliers["u.force"], duals, atol=1e-6 * np.abs(duals).max())
    np.testing.assert_array_equal(best.x, f.rollout(x0, best.u).x)


@pytest.mark.parametrize("guess", ["held", "inputs", "line"])
def test_other_guesses_lead_to_the_same(guess):
    f, cost, x0, _ = swing_up()
    begin = {"inputs": np.zeros((STEPS, 1)), "line": (straight_line(x0, np.zeros(4), STEPS), None)}
    limits = {"bounds": {"u.force": LIMIT}, "tolerance": EXACT}
    best = optimize(f, cost, begin.get(guess), x0=x0, steps=STEPS, **limits)
    assert best.cost == pytest.approx(swing_up_by_ipopt()[0], rel=1e-7)


CASES = {
    "state": dict(bounds={"u.force": 12.0, "x": 0.6}),
    "velocity": dict(bounds={"v.x": (-2.0, 2.0)}),
    "end": dict(bounds={"u.force": 12.0}, final=np.zeros(4)),
    "range at the end": dict(bounds={"u.force": 12.0}, final={"x": (0.2, 0.3), "v.theta": 0.0}),
    "over time": dict(bounds={"u.force": (-12.0, np.linspace(14, 8, STEPS)), "theta": (-9.0, None)}),
}


@pytest.mark.parametrize("name", CASES)
def test_limits_of_all_kinds_are_those_of_dmoc(name):
    f, cost, x0, free = swing_up()
    best = optimize(f, cost, free, tolerance=EXACT, **CASES[name])
    sol = dmoc.solve(f, cost, best.trajectory, steps=STEPS, initial=x0, tolerance=1e-10, **CASES[name])
    assert best.cost == pytest.approx(sol.cost, rel=1e-6)
    assert best.cost > free.cost * (1 + 1e-4)  # the limits matter
    for limit, nu in best.multipliers.items():
        if limit in sol.multipliers:
            other = sol.multipliers[limit]
            np.testing.assert_allclose(nu[1:-1], other[1:-1], atol=1e-4 * (1e-2 + np.abs(other).max()))


def test_the_tension_of_a_string_is_bounded():
    """A limit on a multiplier of a mechanism with kinematic inputs, through the stages in symbols."""
    f = vioc.MidpointVI(everything(), 0.02)
    x0 = state_near(f, 1)
    rest = f.rollout(x0, steps=15)
    weights = {"torque": 0.1, "rho.trolley": 1e4, "rho.string": 1e5}
    goal = {"Q": {"a": 1.0, "b": 1.0}, "Qf": {"tip:x": 50.0, "b": 10.0}, "goal": {"tip:x": 0.3}}
    cost = quadratic(f, R=weights, u_reference=rest.u, **goal)
    free = optimize(f, cost, rest)
    bounds = {"tension.string": (None, 0.9 * free.trajectory["tension.string"].max())}
    best = optimize(f, cost, free, bounds=bounds, tolerance=EXACT)  # it starts outside
    assert best.feasible
    sol = dmoc.solve(f, cost, best.trajectory, steps=15, initial=x0, bounds=bounds, tolerance=1e-9)
    assert sol.cost > free.cost * (1 + 1e-6) and best.cost == pytest.approx(sol.cost, rel=1e-8)
    np.testing.assert_allclose(
        best.multipliers["tension.string"], sol.multipliers["tension.string"], rtol=1e-3, atol=1e-7
    )


def power(f, upper, **options):
    return PathConstraint("power", f.quantity("u.force") * f.quantity("v.x"), upper=upper, **options)


def test_a_path_constraint():
    f, cost, x0, free = swing_up()
    limits = [power(f, 10.0)]
    best = optimize(f, cost, free, constraints=limits, tolerance=EXACT)
    assert (best.trajectory["u.force"] * best.trajectory["v.x"][:-1]).max() == pytest.approx(10, abs=1e-4)
    sol = dmoc.solve(f, cost, best.trajectory, steps=STEPS, initial=x0, constraints=limits, tolerance=1e-10)
    assert best.cost == pytest.approx(sol.cost, rel=2e-6)
    np.testing.assert_allclose(best.multipliers["power"], sol.multipliers["power"], atol=1e-5)


def test_limits_and_costs_with_data_over_time():
    f = midpoint_pendulum()
    N = 30
    ramp = np.linspace(0, 1, N + 1)
    r = ca.SX.sym("r")
    ceiling = PathConstraint(
        "ceiling", f.quantity("theta") - r, upper=0.0, references=[(r, 0.8 * ramp + 0.1)]
    )
    cost = quadratic(f, Q={"theta": 100}, R=0.1, reference={"theta": 2 * ramp}, per_time=False)
    best = optimize(f, cost, x0=[0, 0], steps=N, constraints=[ceiling], tolerance=EXACT)
    excess = best.trajectory["theta"] - (0.8 * ramp + 0.1)
    assert excess.max() < 1e-8 and (excess > -1e-7).sum() > 10
    sol = dmoc.solve(
        f, cost, best.trajectory, steps=N, initial=[0, 0], constraints=[ceiling], tolerance=1e-10
    )
    assert best.cost == pytest.approx(sol.cost, rel=1e-7)


@pytest.mark.parametrize("name", ["u.u0", "theta", "lambda.rail", "final theta"])
def test_multipliers_are_derivatives_of_the_optimal_cost(name):
    f = RailedMap()
    name = name.replace("u0", f.input_names[0])
    cost = quadratic(f, R=1, Qf=20, goal={"theta": 1.0})
    limit = {"theta": 0.2, "lambda.rail": 0.15, "final theta": 0.9}.get(name, 0.6)

    def solve(change):
        where = {"final": {"theta": limit + change}}
        if name != "final theta":
            where = {"bounds": {name: (None, limit + change)}}
        return optimize(f, cost, x0=[0, 0], steps=12, tolerance=EXACT, **where)

    best, h = solve(0.0), 1e-4
    total = best.multipliers[name].sum()  # all samples' limits move together
    slope = (solve(h).cost - solve(-h).cost) / (2 * h)
    assert abs(slope) > 1e-3
    assert total == pytest.approx(-slope, rel=1e-4)


# -- warm starts ----------------------------------------------------------------------


def test_shooting_makes_a_result_of_dmoc_a_stationary_rollout():
    f, cost, x0, free = swing_up()
    limits = dict(bounds={"u.force": LIMIT}, final={"theta": 0.0})
    sol = dmoc.solve(f, cost, free.trajectory, steps=STEPS, initial=x0, tolerance=1e-7, **limits)
    best = optimize(f, cost, sol, tolerance=1e-10, **limits)
    assert best.converged and best.iterations < 10
    assert repr(pickle.loads(pickle.dumps(best))) == repr(best)
    assert best.cost == pytest.approx(sol.cost, rel=1e-6)
    np.testing.assert_array_equal(best.trajectory.x, f.rollout(x0, best.trajectory.u).x)
    cold = optimize(f, cost, free, tolerance=EXACT, **limits)
    assert best.cost == pytest.approx(cold.cost, rel=1e-8)
    assert best.multipliers.keys() == {"u.force", "final theta"}
    again = optimize(f, cost, best, tolerance=1e-10, **limits)
    assert again.cost == pytest.approx(best.cost, rel=1e-9)


def test_shooting_from_near_an_optimum_without_limits():
    f, cost, x0, free = swing_up()
    rough = free.trajectory.x + 1e-4 * np.sin(np.arange(STEPS + 1))[:, None]
    rough[0] = x0
    fine = dict(method="shooting", tolerance=1e-10)
    best = optimize(f, cost, (rough, free.trajectory.u), **fine)
    assert best.cost == pytest.approx(free.cost, rel=1e-9) and -best.history.descent[-1] < 1e-10
    sol = dmoc.solve(f, cost, free.trajectory, steps=STEPS, initial=x0)
    assert optimize(f, cost, sol, **fine).cost == pytest.approx(free.cost, rel=1e-9)


def test_multipliers_warm_start():
    f, cost, _, free = swing_up()
    bounds = {"u.force": LIMIT}
    best = optimize(f, cost, free, bounds=bounds)
    for multipliers in (None, best.multipliers):  # those of a result come with it
        again = optimize(f, cost, best, bounds=bounds, multipliers=multipliers)
        assert again.iterations < best.iterations and again.cost == pytest.approx(best.cost, rel=1e-7)
    with pytest.raises(ValueError, match=r"multipliers of u.force: expected shape \(60,\)"):
        optimize(f, cost, best, bounds=bounds, multipliers={"u.force": [1.0]})


# -- verdicts ---------------------------------------------------------------------------------------


def test_what_cannot_be_met_is_named():
    f = double_integrator()
    cost = quadratic(f, R=1)
    limits = dict(bounds={"u.force": 0.1}, final={"x": 5.0, "v": 0.0})
    with pytest.raises(OptimizationError, match="infeasible after .* Violated: .*final x at k = 20") as error:
        optimize(f, cost, x0=[0, 0], steps=20, **limits)
    result = error.value.result
    assert result.status == "infeasible" and not result.feasible
    names = {v.name for v in result.violations}
    assert names >= {"final x", "u.force"}
    worst = result.violations[0]
    assert worst.name == "final x" and worst.k == 20 and worst.t == pytest.approx(2.0)
    assert worst.value == pytest.approx(result.trajectory["x"][-1]) and worst.lower == worst.upper == 5.0
    assert "infeasible" in repr(result)


def test_limits_that_exclude_each_other():
    f, cost, _, free = swing_up()
    limits = [
        PathConstraint("above", f.quantity("x"), lower=0.2, where="end"),
        PathConstraint("below", f.quantity("x"), upper=0.1, where="end"),
    ]
    best = optimize(f, cost, free, constraints=limits, raise_on_failure=False)
    assert best.status == "infeasible" and best.margin < 0
    assert {v.name for v in best.violations} == {"above", "below"}


def test_an_interrupt_keeps_the_iterate():
    f, cost, _, free = swing_up()

    def stop(record):
        if record.iteration == 5:
            raise KeyboardInterrupt

    options = dict(bounds={"u.force": LIMIT}, monitor=stop)
    with pytest.raises(KeyboardInterrupt) as error:
        optimize(f, cost, free, **options)
    kept = error.value.result
    assert kept.status == "interrupted" and len(kept.history.cost) == 6
    assert kept.multipliers["u.force"].any()
    again = optimize(f, cost, free, raise_on_failure=False, **options)
    assert again.status == "interrupted" and "start again" in again.message


def test_monitor_prints_iterations_and_a_verdict(capsys):
    f = double_integrator()
    best = optimize(f, quadratic(f, Q=1, R=1), x0=[1, 0], steps=10, bounds={"u.force": 0.3}, monitor=True)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[:2] == ["iter", "method"] and lines[-1] == best.message
    assert len(lines) == len(best.history.cost) + 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(bounds={"y": 1.0}), "bounds: unknown name 'y'"),
        (dict(bounds={"u.force": (2.0, 1.0)}), "lower limit 2 > upper limit 1"),
        (dict(bounds={"u.force": np.ones(3)}), "expected a number or 10 of them"),
        (dict(bounds={"x": (None, None)}), "x: it has no limit"),
        (dict(bounds={"x": 0.5}), r"x0: x = 1 is outside of its limits \[-0.5, 0.5\]"),
        (dict(bounds={"x": 2.0}, method="projection"), "bounds: .* are 'shooting', 'dmoc'"),
        (dict(bounds={"x": 2.0}, method="sqp"), "method: expected one of 'auto', 'shooting'"),
        (
            dict(bounds={"x": 2.0}, warmup=3),
            "warmup: method 'shooting' takes none",
        ),
        (dict(bounds={"x": 2.0}, tolerance=0.0), "tolerance: expected a number > 0"),
        (dict(bounds={"x": 2.0}, x0=None), "no initial state: give x0"),
        (dict(final=[0.0]), r"final state: expected shape \(2,\)"),
    ],
)
def test_bad_options(options, message):
    f = double_integrator()
    with pytest.raises(ValueError, match=message):
        optimize(f, quadratic(f, R=1), **{"x0": [1, 0], "steps": 10, **options})


def test_bad_constraints():
    f = double_integrator()
    cost = quadratic(f, R=1)

    def solve(*constraints):
        return optimize(f, cost, x0=[0, 0], steps=10, constraints=constraints)

    x = f.quantity("x")
    with pytest.raises(ValueError, match="initial state is given"):
        solve(PathConstraint("c", x, upper=1, where="start"))
    with pytest.raises(ValueError, match="two have the name 'c'"):
        solve(PathConstraint("c", x, upper=1), PathConstraint("c", x, lower=1))
    with pytest.raises(ValueError, match="neither a symbol"):
        solve(PathConstraint("c", ca.SX.sym("other"), upper=1))
    with pytest.raises(TypeError, match="expected a PathConstraint"):
        solve(x)
    bad = Cost(f, ca.log(x - 0.5), 0)
    with pytest.raises(OptimizationError, match="running cost"):
        optimize(f, bad, x0=[0, 0], steps=10, bounds={"u.force": 1})


def test_inputs_by_their_own_names_and_a_single_constraint():
    f = vioc.MidpointVI(vioc.models.load("cart_pole"), 0.05)
    cost = vioc.control.quadratic(f, Q={"theta": 1.0}, R=0.1, Qf={"theta": 5.0})
    x0 = f.initial_state({"theta": 0.1})
    track = PathConstraint("track", f.quantity("x"), lower=-1.0, upper=1.0)
    found = [
        optimize(f, cost, x0=x0, steps=20, bounds=bounds, constraints=constraints)
        for bounds, constraints in (({"force": 5.0}, track), ({"u.force": 5.0}, [track]))
    ]
    assert found[0].cost == found[1].cost and found[0].multipliers.keys() == found[1].multipliers.keys()
    again = optimize(f, cost, found[0].trajectory, bounds={"force": 5.0}, tolerance=1e-10)
    assert abs(again.cost - found[0].cost) < 1e-4
