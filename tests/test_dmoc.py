"""`vioc.control.dmoc`: the program, its derivatives, its optima and their multipliers."""

import pickle
from functools import cache

import casadi as ca
import numpy as np
import pytest
from support.control_maps import cart_pole, double_integrator, two_inputs
from support.dmoc_problems import effort, parametric_pendulum
from support.mechanisms import everything, state_near

import vioc
from vioc.control import Cost, dmoc, optimize, quadratic, riccati

# inside: states that the program eliminates are computed back from its unknowns
from vioc.control.dmoc.eliminated import states

# maps and costs do not change: each is built once for all tests
parametric_pendulum, effort = cache(parametric_pendulum), cache(effort)


@cache
def one_of_each():
    """The map of a mechanism with one of each, and a state of it."""
    f = vioc.MidpointVI(everything(), 0.02)
    return f, state_near(f, 1)


def lift(f, **options):
    """The pendulum from rest to rest at 1 rad in two seconds."""
    ends = {"initial": f.state(), "final": {"theta": 1.0, "p.theta": 0.0}}
    return dmoc.Problem(dmoc.Phase(f, 40, effort(f), **{**ends, **options}))


# -- the program ----------------------------------------------------------------------------------


@cache
def rich_problem():
    """Two phases with one of everything."""
    f, x = one_of_each()
    reference = ca.SX.sym("r")
    cost = Cost(
        f,
        ca.sumsqr(f.symbols.u) + (f.quantity("a") - reference) ** 2 + f.symbols.multipliers[0] ** 2,
        ca.sumsqr(f.quantity("tip:x")),
        references=[(reference, np.linspace(0, 1, 5))],
    )
    first = dmoc.Phase(
        f,
        4,
        cost,
        initial=x,
        bounds={"a": 3.0, "u.torque": (-9.0, None), "tension.string": (-1e3, None), "tip:z": 8.0},
        rate={"torque": 100.0},
        duration=(0.05, 0.1),
        quadrature="trapezoid",
    )
    second = dmoc.Phase(
        f,
        3,
        effort(f),
        final={"b": (0.0, 1.0), "v.a": 0.0},
        constraints=[dmoc.obstacle(f, "tip", (0.0, 5.0), 0.5, axes="xz")],
        quadrature="midpoint",
    )
    return dmoc.Problem([first, second], jumps=[{"p.a": 0.5 * f.quantity("p.a")}])


@pytest.mark.parametrize("make", [rich_problem, lambda: lift(parametric_pendulum(), duration=(1.0, 3.0))])
def test_derivatives_are_those_of_the_program(make):
    """Gradient, Jacobian and Hessian of the blocks against AD of the whole program."""
    for form in ("positions", "states", *(["staged"] if make is not rich_problem else [])):
        t = make().transcription(form)
        program = t.program
        assert program.grad_f.sparsity_out(1).is_dense()  # solvers read the nonzeros only
        rng = np.random.default_rng(0)
        w, p, mu = rng.uniform(0.2, 0.9, program.size), t.given_values(), rng.normal(size=program.rows)
        f, g = program.values(program.w, program.p)
        multipliers = ca.MX.sym("mu", program.rows)
        lagrangian = 0.7 * f + ca.dot(multipliers, g)
        whole = ca.Function(
            "whole",
            [program.w, program.p, multipliers],
            [ca.gradient(f, program.w), ca.jacobian(g, program.w), ca.hessian(lagrangian, program.w)[0]],
        )
        gradient, J, H = (np.asarray(ca.densify(m)) for m in whole(w, p, mu))
        ours = np.asarray(ca.densify(program.hess_lag(w, p, 0.7, mu)))
        ours = ours + np.triu(ours, 1).T
        for exact, mine in (
            (gradient, program.grad_f(w, p)[1]),
            (J, program.jac_g(w, p)[1]),
            (H, ours),
        ):
            mine = np.asarray(ca.densify(ca.DM(mine)))
            assert np.abs(mine - exact).max() <= 1e-11 * (1 + np.abs(exact).max())


def test_a_rollout_solves_the_equations():
    """Rows of a program at a rollout of the map are zero, those of other motions are not."""
    problem = rich_problem()
    phase = problem.phases[1]
    f = phase.map
    x = one_of_each()[1]
    U = np.tile(f.rest_input(x), (3, 1))
    U[:, 0] = [0.3, -0.2, 0.1]
    run = f.rollout(x, U)
    single = dmoc.Problem(dmoc.Phase(f, 3, effort(f), initial=x))
    t = single.transcription()
    w = single._start(run, t)
    g = np.asarray(t.program.values(w, t.given_values())[1]).ravel()
    assert np.abs(g).max() < 1e-9
    assert len(g) == 3 * (f.nq + f.nm)  # momenta and rates of kinematic variables are eliminated
    assert len(single.transcription("states").row_lower) == 3 * (f.nx + f.nm)
    cost = float(t.program.values(w, t.given_values())[0])
    assert cost == pytest.approx(effort(f).value(run), rel=1e-12)
    assert states(t, 0, w, t.given_values()) == pytest.approx(run.x, abs=1e-11)
    w[t.layouts[0].X[2, : f.nq]] += 1e-3
    assert np.abs(np.asarray(t.program.values(w, t.given_values())[1])).max() > 1e-4


def test_rows_are_named_for_what_they_determine():
    names = rich_problem().phases[0].equations.names
    states = rich_problem().phases[0].map.state_names
    assert set(names) == {f"dynamics.{n}" for n in states} | {"h.string"}
    assert names[3] == "h.string"


# -- optima ---------------------------------------------------------------------------------------


def test_linear_quadratic_optimum_is_riccatis():
    f = double_integrator()
    Q, R, Qf = np.diag([2.0, 0.3]), np.array([[0.7]]), np.diag([5.0, 4.0])
    x, u = f.symbols.x, f.symbols.u
    cost = Cost(f, 0.5 * (x.T @ Q @ x + u.T @ R @ u), 0.5 * x.T @ Qf @ x, per_time=False)
    x0 = np.array([1.0, -0.4])
    A, B = f.linearize(x0, np.zeros(1))
    n = 25
    K, P = riccati(np.tile(A, (n, 1, 1)), np.tile(B, (n, 1, 1)), Q, R, Qf)
    best = dmoc.solve(f, cost, steps=n, initial=x0, tolerance=1e-11)
    assert best.cost == pytest.approx(0.5 * x0 @ P[0] @ x0, rel=1e-9)
    x = x0
    for k in range(n):
        u = -K[k] @ x
        assert best.trajectory.u[k] == pytest.approx(u, abs=1e-8)
        x = A @ x + B @ u
    s = best.sensitivity()
    assert s.names == ("initial.x", "initial.v")
    assert s.cost == pytest.approx(P[0] @ x0, rel=1e-8)
    assert s.u[0][0] == pytest.approx(-K[0], abs=1e-8)  # the feedback gain of the first step
    costates = np.stack([best.multipliers["dynamics.x"], best.multipliers["dynamics.v"]], axis=1)
    expected = -np.einsum("kij,kj->ki", P[1:], best.trajectory.x[1:])
    assert np.abs(costates - expected).max() < 1e-7


@cache
def cart():
    return vioc.MidpointVI(vioc.models.load("cart_pole"), 0.04)


@pytest.mark.parametrize("solver", ["ipopt", "fatrop", "sqp"])
def test_same_optimum_as_descent(solver):
    f = cart()
    Q, Qf = {"x": 1.0, "theta": 1.0, "v.theta": 0.1}, {"theta": 3.0, "v.theta": 1.0}
    cost = quadratic(f, Q=Q, R=0.1, Qf=Qf)
    x0 = f.initial_state({"theta": 0.1})
    best = dmoc.solve(f, cost, steps=30, initial=x0, solver=solver, tolerance=1e-9)
    # started nearby: both find local optima
    other = optimize(f, cost, (best.trajectory.x, best.trajectory.u + 0.01), tolerance=1e-12)
    assert best.cost == pytest.approx(other.cost, abs=1e-6)
    assert np.abs(best.trajectory.u - other.trajectory.u).max() < 1e-4
    assert best.defect < 1e-7
    rolled = best.rollout()
    assert rolled.gap < 1e-5
    assert rolled.cost == pytest.approx(best.cost, abs=1e-6)


def test_maps_without_residual():
    """An explicit map, and one that solves an equation in its step, give the optimum of their own."""
    costs = []
    for f in (
        cart_pole(0.04),
        vioc.RungeKutta(vioc.models.load("cart_pole"), 0.04),
        vioc.RungeKutta(vioc.models.load("cart_pole"), 0.04, "implicit-midpoint"),
    ):
        x, u = f.symbols.x, f.symbols.u
        cost = Cost(f, 0.05 * ca.sumsqr(u), 30 * x[1] ** 2 + 10 * x[0] ** 2)
        best = dmoc.solve(f, cost, steps=20, initial=f.state(theta=0.6))
        assert best.rollout().gap < 1e-6
        costs.append(best.cost)
    assert costs[0] == pytest.approx(costs[1], rel=1e-7)  # both are RK4 of the same mechanism
    assert costs[2] == pytest.approx(costs[1], rel=3e-2) and abs(costs[2] - costs[1]) > 1e-8


def test_several_inputs_and_bounds_that_bind():
    f = two_inputs()
    cost = Cost(f, ca.sumsqr(f.symbols.x) + 0.1 * ca.sumsqr(f.symbols.u))
    low = np.linspace(-0.9, -0.1, 15)
    best = dmoc.solve(
        f, cost, steps=15, initial=[1.0, 1.0, 0.5], bounds={"u.u0": (low, 0.8), "x2": (-0.3, None)}
    )
    u, x = best.trajectory["u.u0"], best.trajectory["x2"]
    assert (u >= low - 1e-7).all() and (u <= 0.8 + 1e-7).all() and (x >= -0.3 - 1e-7).all()
    dual = best.multipliers["u.u0"]
    assert (dual[u < low + 1e-6] < 0).all() and (u < low + 1e-6).any()
    assert np.abs(dual[(u > low + 1e-2) & (u < 0.79)]).max() < 1e-5


# -- multipliers and sensitivities ----------------------------------------------------------------


def test_multipliers_are_derivatives_of_the_cost():
    """-mu is the derivative of the optimal cost by the limit: a bound, a row, an end, a rate."""
    f = parametric_pendulum()

    def slope(at, change):
        """Derivative of the optimal cost by one number, by central differences."""
        e = 1e-5
        ahead, behind = (lift(f, **change(at + d)).solve(tolerance=1e-10).cost for d in (e, -e))
        return (ahead - behind) / (2 * e)

    def duals(name, **options):
        return lift(f, **options).solve(tolerance=1e-10).multipliers[name]

    def row(limit):
        high = np.where(np.arange(41) == 20, limit, np.inf)
        return {"constraints": [dmoc.PathConstraint("tip", ca.sin(f.quantity("theta")), upper=high)]}

    cases = [
        ("u.torque", 2.5, lambda b: {"bounds": {"u.torque": b}}, np.abs),
        ("rate.torque", 7.0, lambda b: {"rate": {"torque": b}}, np.abs),
        ("tip", -0.55, row, np.abs),
        ("final theta", 1.0, lambda b: {"final": {"theta": b, "p.theta": 0.0}}, np.sum),
        ("initial theta", 0.1, lambda b: {"initial": {"theta": b, "p.theta": 0.0}}, np.sum),
    ]
    for name, at, change, used in cases:
        mu = used(duals(name, **change(at))).sum()
        assert abs(mu) > 1e-3
        assert slope(at, change) == pytest.approx(-mu, rel=1e-4)


@pytest.mark.parametrize("name", ["theta", "p.theta"])  # an unknown, and what is eliminated
@pytest.mark.parametrize(
    "end, bound, felt",
    [
        (0.5, 1.5, "final"),
        ((0.5, 0.8), 1.5, "final"),
        ((0.5, None), (None, 0.8), "bound"),
        ((None, 0.8), (0.5, None), "bound"),
        ((0.5, 0.8), (None, 0.8), "final"),  # where both are, the condition's
    ],
)
def test_an_end_and_a_bound_of_one_state_have_multipliers_apart(name, end, bound, felt):
    """Each is minus the derivative of the cost by its own limit at the end, by solving again."""
    f, N = parametric_pendulum(), 20
    towards = 0.0 if end == (None, 0.8) else 2.0  # to an upper limit, or to a lower one
    cost = Cost(f, 0.1 * ca.sumsqr(f.symbols.u), 100 * (f.quantity(name) - towards) ** 2)

    def solved(end, bound, last=0.0):
        low, high = bound if isinstance(bound, tuple) else (-bound, bound)
        at_end = np.arange(N + 1) == N
        sides = [side and np.where(at_end, side + last, far) for side, far in ((low, -3.0), (high, 3.0))]
        task = dict(initial=f.state(), final={name: end}, bounds={name: tuple(sides)})
        return dmoc.solve(f, cost, steps=N, tolerance=1e-10, **task)

    def moved(e):
        return tuple(side and side + e for side in end) if isinstance(end, tuple) else end + e

    best, e = solved(end, bound), 1e-4
    mine = {"final": best.multipliers[f"final {name}"].sum(), "bound": best.multipliers[name][-1]}
    assert best.multipliers[name].shape == (N + 1,) and best.multipliers[name][0] == 0.0
    other = "bound" if felt == "final" else "final"
    assert abs(mine[felt]) > 1e-2 and abs(mine[other]) < 1e-6
    if (end, bound) != ((0.5, 0.8), (None, 0.8)):  # of two limits in one place no slope is one's own
        slopes = {
            "final": (solved(moved(e), bound).cost - solved(moved(-e), bound).cost) / (2 * e),
            "bound": (solved(end, bound, e).cost - solved(end, bound, -e).cost) / (2 * e),
        }
        for which, slope in slopes.items():
            assert -slope == pytest.approx(mine[which], rel=1e-4, abs=1e-6)


def test_multipliers_of_ends_warm_both_methods():
    """The end's multiplier of dmoc is that of shooting, not the bound's too; searches from it are short."""
    f, N = cart(), 10
    cost = quadratic(f, R=1.0, Q={"theta": 1.0})
    x0, limits = f.initial_state({"theta": 0.2}), dict(bounds={"x": 5.0}, final={"x": 1.0})
    shot, nlp = (optimize(f, cost, x0=x0, steps=N, method=m, **limits) for m in ("shooting", "dmoc"))
    for name, values in shot.multipliers.items():
        np.testing.assert_allclose(nlp.multipliers[name], values, rtol=0, atol=1e-4, err_msg=name)
    assert np.abs(nlp.multipliers["x"]).max() < 1e-5 < 1.0 < abs(nlp.multipliers["final x"][0])
    warm = optimize(f, cost, nlp, method="shooting", **limits)
    assert warm.iterations < shot.iterations and warm.cost == pytest.approx(shot.cost, rel=1e-8)
    best = dmoc.solve(f, cost, shot, steps=N, initial=x0, **limits)
    again = best.problem.solve(best)
    assert again.iterations < best.iterations and again.cost == pytest.approx(shot.cost, rel=1e-7)
    assert not np.isin(["p.x", "theta"], list(best.multipliers)).any()  # that have no bound
    assert best.multipliers["initial theta"].shape == (1,)


def test_sensitivity_agrees_with_solving_again():
    f = parametric_pendulum()
    problem = lift(f, bounds={"u.torque": 2.5})
    best = problem.solve(tolerance=1e-10)
    assert np.sum(np.abs(best.trajectory.u) > 2.5 - 1e-6) > 3  # the bound is active
    s = best.sensitivity()
    assert "param.length" in s.names and "initial.theta" in s.names
    e = 1e-5
    for name in ("length", "m"):
        column = s.names.index(f"param.{name}")
        runs = [
            problem.with_parameters(**{name: f.parameters[name] + d}).solve(best, tolerance=1e-10)
            for d in (e, -e)
        ]
        assert runs[0].trajectory.map.parameters[name] == f.parameters[name] + e
        slope = (runs[0].cost - runs[1].cost) / (2 * e)
        assert slope == pytest.approx(s.cost[column], rel=1e-6)
        for field in ("x", "u"):
            ahead, behind = (getattr(r.trajectory, field) for r in runs)
            change = getattr(s, field)[0][..., column]
            assert np.abs((ahead - behind) / (2 * e) - change).max() < 1e-5 * (1 + np.abs(change).max())


def test_sensitivity_with_a_free_duration():
    f = parametric_pendulum()
    x, u = f.symbols.x, f.symbols.u
    cost = Cost(f, 1.0 + 0.01 * ca.sumsqr(u))
    phase = dmoc.Phase(
        f, 30, cost, initial=f.state(), final={"theta": 1.0, "p.theta": 0.0}, duration=(0.2, 3.0)
    )
    problem = dmoc.Problem(phase)
    best = problem.solve(tolerance=1e-10)
    s = best.sensitivity()
    column, e = s.names.index("param.m"), 1e-5
    ahead, behind = (problem.with_parameters(m=1 + d).solve(best, tolerance=1e-10) for d in (e, -e))
    assert (ahead.cost - behind.cost) / (2 * e) == pytest.approx(s.cost[column], rel=1e-6)
    assert (ahead.duration - behind.duration) / (2 * e) == pytest.approx(30 * s.length[0][column], rel=1e-5)
    assert x is f.symbols.x


# -- warm starts ----------------------------------------------------------------------------------


def test_warm_starts():
    f = parametric_pendulum()
    problem = lift(f, bounds={"u.torque": 2.5})
    cold = problem.solve()
    assert problem.solve(cold).iterations < cold.iterations / 2  # with multipliers
    assert problem.solve(cold.trajectory).cost == pytest.approx(cold.cost, abs=1e-6)
    finer = cold.refine(2)
    assert len(finer.trajectory) == 80
    assert finer.duration == pytest.approx(cold.duration)
    assert finer.trajectory.step_lengths[0] == pytest.approx(0.025)
    assert abs(finer.cost - cold.cost) < 0.01 * cold.cost
    assert finer.defect < 1e-7
    regulator = finer.stabilize(1.0, 1.0)
    assert regulator.map.dt == pytest.approx(0.025) and f.dt == 0.05
    assert regulator.rollout(f.state()).x == pytest.approx(finer.trajectory.x, abs=1e-6)


def test_refining_interpolates_data():
    f = double_integrator()
    r = ca.SX.sym("r")
    t = np.linspace(0, 1, 11)
    cost = Cost(f, (f.symbols.x[0] - r) ** 2 + 1e-3 * f.symbols.u**2, references=[(r, t**2)])
    phase = dmoc.Phase(
        f, 10, cost, initial={"x": 0.0}, bounds={"u.force": (-5 * np.ones(10), 4.0), "x": (t - 2, None)}
    )
    finer = phase.refined(2)
    assert finer.data[::2, 0] == pytest.approx(t**2)
    assert finer.data[1, 0] == pytest.approx((0.0 + 0.01) / 2)
    assert finer.input_limits[0].shape == (20, 1)
    assert finer.state_limits[0][2, 0] == pytest.approx(-1.9)
    assert dmoc.Problem(phase).solve().refine(2).converged


def test_other_initial_states_without_building_again():
    f = parametric_pendulum()
    problem = lift(f, bounds={"u.torque": 2.5})
    first = problem.solve(tolerance=1e-10)
    moved = problem.solve(first, initial={"theta": 0.05}, tolerance=1e-10)
    fresh = lift(f, bounds={"u.torque": 2.5}, initial=f.state(theta=0.05)).solve(tolerance=1e-10)
    assert moved.trajectory.x[0] == pytest.approx([0.05, 0.0])
    assert moved.cost == pytest.approx(fresh.cost, abs=1e-7)
    assert not moved.violations
    assert moved.sensitivity().cost == pytest.approx(fresh.sensitivity().cost, rel=1e-5)
    again = problem.solve(moved, initial=f.state(), tolerance=1e-10)
    assert again.cost == pytest.approx(first.cost, abs=1e-7)
    assert len(problem._solvers) == 2  # a cold one and a warm one
    with pytest.raises(ValueError, match="initial: unknown name 'p'"):
        problem.solve(initial={"p": 1.0})


def test_a_solution_pickles():
    best = lift(parametric_pendulum()).solve()
    again = pickle.loads(pickle.dumps(best))
    assert (again.trajectory.x == best.trajectory.x).all() and again.converged
    assert (again.multipliers["dynamics.theta"] == best.multipliers["dynamics.theta"]).all()
    assert again.rollout().gap < 1e-6
    for use in (again.sensitivity, again.refine):
        with pytest.raises(ValueError, match="pickled"):
            use()
