"""Multiple shooting: its step against a dense KKT system, published optima, what it promises and refuses."""

import casadi as ca
import numpy as np
import pytest
from support.mechanisms import everything, hold, pendulum, state_near

import vioc
from vioc.control import Armijo, Cost, optimize, quadratic, straight_line

# inside: one step of the search against a dense system, which takes its programs of stages
from vioc.control.descent.shooting import Shooting
from vioc.control.descent.symbolic.stage_programs import StageArguments, StagePrograms
from vioc.errors import OptimizationError

RNG = np.random.default_rng(11)


def swing_up(name, dt=0.01):
    """The problem of a model that the reference lists: map, cost, ends, number of steps."""
    f = vioc.MidpointVI(vioc.models.load(name), dt)
    a, b = f.system.variables
    down, seconds = ({b: np.pi}, 2.0) if name == "cart_pole" else ({a: np.pi}, 3.0)
    Q = {a: 0.1, b: 0.1, f"v.{a}": 0.01, f"v.{b}": 0.01}
    Qf = {name: 1e4 * weight for name, weight in Q.items()}
    cost = quadratic(f, Q=Q, R=0.01, Qf=Qf)
    return f, cost, f.initial_state(down), f.initial_state(), round(seconds / dt)


def newton_step_of_the_whole_problem(f, cost, X, U, lam, duals, shift):
    """Newton's step on the optimality conditions, all unknowns in one dense matrix; none of vioc's own.

    Where the problem is not convex, `shift` times the step weights is added for states and inputs.
    """
    N, nx, nu, nm = len(U), f.nx, f.nu, lam.shape[1]
    xs = [ca.DM(X[0])] + [ca.SX.sym("x", nx) for _ in range(N)]
    us, ls = [ca.SX.sym("u", nu) for _ in range(N)], [ca.SX.sym("l", nm) for _ in range(N)]
    theta = ca.DM(list(f.parameters.values()))
    rows = cost.reference_rows(N)
    g = [f.residual(xs[k], us[k], xs[k + 1], ls[k], k * f.dt, f.dt, theta) for k in range(N)]
    value = sum(
        (f.dt if cost.per_time else 1.0) * cost.running_at(xs[k], us[k], ls[k], theta, f.dt, ca.DM(rows[k]))
        for k in range(N)
    )
    end = cost.terminal_at(xs[N], ca.DM.zeros(nu), ca.DM.zeros(nm), theta, 0, ca.DM(rows[N]))
    y = ca.vertcat(*xs[1:], *us, *ls)
    g, dual = ca.vertcat(*g), ca.SX.sym("dual", N * (nx + nm))
    W = ca.hessian(value + end + ca.dot(dual, g), y)[0]
    F = ca.Function("F", [y, dual], [W, ca.jacobian(g, y), ca.gradient(value + end, y), g])
    at = np.concatenate([X[1:].ravel(), U.ravel(), lam.ravel()])
    W, J, gradient, g = (m.full() for m in F(at, duals.ravel()))
    weights = np.concatenate(
        [np.full((N - 1) * nx, f.dt), np.ones(nx), np.full(N * nu, f.dt), np.zeros(N * nm)]
    )
    W = W + shift * np.diag(weights)
    kkt = np.block([[W, J.T], [J, np.zeros((len(g), len(g)))]])
    step = np.linalg.solve(kkt, -np.concatenate([gradient, g]))[:, 0]
    x, u, lam_, dual_ = np.split(step, np.cumsum([N * nx, N * nu, N * nm]))
    return x.reshape(N, nx), u.reshape(N, nu), lam_.reshape(N, nm), dual_.reshape(N, -1)


@pytest.mark.parametrize("N", [1, 4])
def test_maps_with_one_state(N):
    """Least squares for the inputs, in numpy."""
    x, u = ca.SX.sym("x"), ca.SX.sym("u", 2)
    f = vioc.CasadiMap(ca.Function("f", [x, u], [1.1 * x + 0.1 * u[0] + 0.2 * u[1]]), dt=0.1)
    best = optimize(f, quadratic(f, Q=1.0, R=1.0, Qf=1.0), (np.ones((N + 1, 1)), None))
    assert best.history.method[0].startswith("ms ")
    powers = 1.1 ** np.arange(N + 1)
    G = np.zeros((N + 1, 2 * N))
    for k in range(N):
        G[k + 1 :, 2 * k : 2 * k + 2] = powers[: N - k, None] * [0.1, 0.2]
    w = np.sqrt(np.append(np.full(N, 0.1), 1.0))
    rows = np.vstack([w[:, None] * G, np.sqrt(0.1) * np.eye(2 * N)])
    U, (twice,) = np.linalg.lstsq(rows, -np.append(w * powers, np.zeros(2 * N)))[:2]
    np.testing.assert_allclose(best.u.ravel(), U, rtol=1e-9)
    assert best.cost == pytest.approx(twice / 2, rel=1e-12)


def test_the_step_solves_the_optimality_conditions():
    f = vioc.MidpointVI(everything(), 0.05)
    N, x0 = 5, state_near(f, 3)
    U = np.tile(hold(f, x0), (N, 1))
    X = x0 + 0.02 * RNG.standard_normal((N + 1, f.nx)) * np.arange(N + 1)[:, None]  # no trajectory
    lam, duals = RNG.standard_normal((N, 1)), 1e-3 * RNG.standard_normal((N, f.nx + 1))
    target = np.linspace(0, 1, N + 1)
    cost = quadratic(
        f, Q={"a": 1, "v.c": 0.1, "lambda.string": 0.1}, R=10, Qf={"a": 10}, reference={"a": target}
    )
    programs = StagePrograms.of(f, cost)
    grid = StageArguments.of(f, cost, N).backward()
    _, gradient, hessian, _ = cost.end(X[-1], grid.parameters, cost.reference_rows(N)[N], np.ones(f.ndx))
    point, shift = [X, U, lam, duals], 3.0
    none, knobs = np.zeros(f.nx + f.nu), np.full(f.nx + f.nu, shift)
    assert (
        programs.newton(point, grid, [hessian, gradient], np.array([1.0, *none])) is None
    )  # it is not convex
    last = [hessian + shift * np.eye(f.nx), gradient]
    found = programs.newton(point, grid, last, np.array([1.0, *knobs]))
    (dX, dU, dlam, new_duals), gains, slope = found
    expected = newton_step_of_the_whole_problem(f, cost, X, U, lam, duals, shift)
    for mine, theirs in zip((dX[1:], dU, dlam, new_duals), expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=0, atol=1e-9 * np.abs(theirs).max())
    assert gains.shape == (N, f.nu, f.nx)
    # the slope is that of the running cost
    h = 1e-6
    ends = [
        programs.value(X + s * dX, U + s * dU, lam + s * dlam, StageArguments.of(f, cost, N))[0]
        for s in (h, -h)
    ]
    assert slope == pytest.approx((ends[0] - ends[1]) / (2 * h), rel=1e-6)


@pytest.mark.parametrize(
    "name, published, iterations", [("cart_pole", 0.98133, 10), ("acrobot", 2.68118, 20)]
)
def test_swing_ups_from_the_straight_line(name, published, iterations):
    f, cost, start, goal, steps = swing_up(name)
    best = optimize(f, cost, (straight_line(start, goal, steps), None))
    assert best.cost == pytest.approx(published, rel=3e-4)  # of another rule: O(dt^2) away
    assert best.iterations <= iterations
    assert -best.history.descent[-1] < 1e-6 and best.history.gap[-1] == 0
    run = best.trajectory
    np.testing.assert_array_equal(run.x[0], start)
    np.testing.assert_array_equal(run.x, f.rollout(start, run.u).x)
    assert cost.value(run) == pytest.approx(best.cost, rel=1e-12)
    again = optimize(f, cost, (straight_line(start, goal, steps), None))
    np.testing.assert_array_equal(again.trajectory.x, run.x)  # to the bit


def test_both_methods_find_the_same():
    f, cost, start, goal, steps = swing_up("cart_pole", 0.04)
    guess = straight_line(start, goal, steps), None
    found = {
        method: optimize(f, cost, guess, method=method, max_iterations=1000)
        for method in ("auto", "projection")
    }
    costs = [r.cost for r in found.values()]
    np.testing.assert_allclose(costs, costs[0], rtol=1e-6)
    assert found["auto"].history.method[0].startswith("ms ")
    assert found["projection"].history.method[0] == "newton"
    assert found["auto"].iterations < found["projection"].iterations / 4
    # a trajectory as the guess: Newton; its states and inputs are a curve
    run = found["projection"].trajectory
    assert optimize(f, cost, run).history.method[0] == "newton"
    # each stops where Newton's slope is below the tolerance of 1e-6: half of that may be left to gain
    curved = optimize(f, cost, (run.x, run.u))
    assert curved.history.method[0].startswith("ms ") and curved.cost == pytest.approx(costs[0], rel=1e-6)


def test_a_linear_quadratic_problem_takes_one_step():
    f = vioc.MidpointVI(vioc.System(vioc.tx("x", mass=2.0), vioc.JointForce("x", "push")), 0.1)
    cost = quadratic(f, Q=1.0, R=0.3, Qf=10.0, goal={"x": 1.0})
    X = RNG.standard_normal((21, 2))
    best = optimize(f, cost, (X, RNG.standard_normal((20, 1))), x0=[0.0, 1.0])
    assert best.iterations == 2 and best.history.gap[1] < 1e-9  # the second finds nothing left
    assert best.cost == pytest.approx(optimize(f, cost, x0=[0.0, 1.0], steps=20).cost, rel=1e-12)
    np.testing.assert_array_equal(best.trajectory.x[0], [0.0, 1.0])


@pytest.mark.slow
def test_constraints_kinematic_variables_and_a_cost_on_multipliers():
    f = vioc.MidpointVI(everything(), 0.02)
    x = state_near(f, 3)
    inputs = np.tile(hold(f, x), (20, 1))
    # (with R = 0.1 and a goal of 0.6 there are two optima, and a guess 1e-12 away may lead to the other)
    # (without a price of their rates the trolley and the string's end jump by a metre within one step)
    rates = {"v.trolley": 0.01, "v.string": 0.01}
    weights = dict(Q={"lambda.string": 1.0, "a": 0.1, **rates}, R=0.5, Qf={"a": 20.0, "v.a": 1.0})
    cost = quadratic(f, **weights, goal={"a": 0.4})
    run = f.rollout(x, inputs)
    curve = run.x, inputs + 0.03 * RNG.standard_normal(inputs.shape)
    # of a map of this size "auto" takes a descent where an option is one of descents alone
    found = [optimize(f, cost, guess, armijo=Armijo()) for guess in (curve, (run.x, run.u))]
    assert found[0].history.gap[0] > 1e-2
    assert found[0].history.method[0].startswith("ms ") and found[0].history.method[-1] == "newton"
    assert found[0].cost == pytest.approx(found[1].cost, rel=1e-8)
    for _ in range(4):  # a minimum over the inputs
        change = 1e-6 * RNG.standard_normal(inputs.shape)
        costs = [cost.value(f.rollout(x, found[0].trajectory.u + s * change)) for s in (1, -1)]
        assert min(costs) > found[0].cost
    h = found[0].trajectory["h.string"]
    assert np.abs(h[1:]).max() < 1e-10


def test_a_cost_that_is_not_convex_is_shifted():
    f = vioc.MidpointVI(pendulum(), 0.1)
    theta, u = f.quantity("theta"), f.symbols.u
    cost = Cost(f, -50 * ca.exp(-((theta - 1) ** 2)) + 0.1 * u**2, 5 * (theta - 1) ** 2)
    best = optimize(f, cost, (straight_line([0, 0], [-1, 0], 30), None))
    shooting = np.char.startswith(best.history.method, "ms ")
    assert best.converged and best.history.shift[shooting].max() > 0
    assert abs(best.trajectory["theta"][-1] - 1) < 0.5


def test_a_curve_outside_the_domain_of_the_cost_is_projected():
    f = vioc.MidpointVI(pendulum(), 0.1)
    theta, u = f.quantity("theta"), f.symbols.u
    cost = Cost(f, u**2 - 0.1 * ca.log(1.5 - theta), 10 * (theta - 1) ** 2)
    X = straight_line([0, 0], [2, 0], 20)
    best = optimize(f, cost, (X, None))
    assert best.converged and best.trajectory["theta"].max() < 1.5
    assert (best.history.method == "newton").all()


@pytest.mark.slow
def test_stopped_between_curves():
    f, cost, start, goal, steps = swing_up("cart_pole")
    guess = straight_line(start, goal, steps), None

    def stop(record):
        if record.iteration == 6:
            raise KeyboardInterrupt

    best = optimize(f, cost, guess, monitor=stop, raise_on_failure=False)
    assert best.status == "interrupted" and len(best.history.cost) == 7
    assert cost.value(best.trajectory) == pytest.approx(best.cost, rel=1e-12)
    np.testing.assert_array_equal(best.trajectory.x, f.rollout(start, best.trajectory.u).x)
    with pytest.raises(KeyboardInterrupt) as interrupt:
        optimize(f, cost, guess, monitor=stop)
    assert interrupt.value.result.cost == best.cost
    with pytest.raises(OptimizationError, match="max iterations after 3 iterations"):
        optimize(f, cost, guess, max_iterations=3)


def test_the_share_of_curvature_that_is_kept(capsys):
    f, cost, start, goal, steps = swing_up("acrobot", 0.02)
    best = optimize(f, cost, (straight_line(start, goal, steps), None), monitor=True, max_iterations=100)
    assert {"ms newton", "ms gauss-newton", "ms blend"} & set(best.history.method)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split()[-1] == "gap" and len({len(line) for line in lines[:-1]}) == 1


def test_no_step_where_nothing_is_finite():
    f = vioc.MidpointVI(pendulum(), 0.1)
    cost = Cost(f, ca.sqrt(f.quantity("theta") - 5) + f.symbols.u**2)
    shooting = Shooting(f, cost, StagePrograms.of(f, cost), np.zeros((4, 2)), np.zeros((3, 1)))
    assert shooting.status == "no_descent"
    shooting.iterate(5, lambda record: None)
    assert shooting.gains is None and shooting.trajectory(f) is None
