"""The projection-operator Newton method: its derivatives, its rate, its fallbacks, its failures."""

import pickle
from dataclasses import replace

import casadi as ca
import numpy as np
import pytest
from support.control_maps import (
    RailedMap,
    cart_pole,
    double_integrator,
    midpoint_pendulum,
    swing_up_references,
    two_inputs,
)

from vioc import CasadiMap, Trajectory
from vioc.control import Armijo, Cost, optimize, project, projection_gains, quadratic, riccati, straight_line

# inside: the quadratic model of an iterate is held against differences; only results are public
from vioc.control.descent.local_model import LocalModel
from vioc.errors import OptimizationError

RNG = np.random.default_rng(3)
STEPS = 100


def swing_up(f):
    """The cost of [S] VIII-A."""
    weights = {"theta": 1000, "p.theta": 1}
    return quadratic(f, Q=weights, R=50, Qf=weights, reference=swing_up_references(STEPS), per_time=False)


def identity(f):
    return np.eye(f.ndx), np.eye(f.nu)


# -- the projection operator ----------------------------------------------------------------------


def test_projection():
    f = midpoint_pendulum()
    X, U = straight_line([0, 0], [np.pi, 0], 40), RNG.standard_normal((40, 1))
    K = projection_gains(f, X, U)
    run = project(f, X, U, K)
    np.testing.assert_allclose(run.u, U - np.einsum("kux,kx->ku", K, run.x[:-1] - X[:-1]), atol=1e-12)
    np.testing.assert_array_equal(f.rollout(run.x[0], run.u).x, run.x)
    again = project(f, run.x, run.u, K)  # P(P(xi)) = P(xi)
    np.testing.assert_allclose(again.x, run.x, atol=1e-12)
    stiff = project(f, X, U, projection_gains(f, X, U, Q={"theta": 1e4}, R=0.01))
    assert np.abs(stiff["theta"] - X[:, 0]).max() < 0.2 < np.abs(run["theta"] - X[:, 0]).max()


def test_straight_line():
    X = straight_line([0, 1], [4, 3], 4)
    np.testing.assert_allclose(X, [[0, 1], [1, 1.5], [2, 2], [3, 2.5], [4, 3]], atol=1e-14)
    with pytest.raises(ValueError, match="xf: expected shape"):
        straight_line([0, 1], [4], 4)
    with pytest.raises(ValueError, match="steps: expected a whole number >= 1"):
        straight_line([0, 1], [4, 3], 0)


def blocks(model, method):
    """The model's Hessian as xx (N+1, ndx, ndx), xu (N, ndx, nu), uu (N, nu, nu)."""
    H, end = model.hessian(method)
    n = len(end)
    return np.concatenate([H[:, :n, :n], end[None]]), H[:, :n, n:], H[:, n:, n:]


@pytest.mark.parametrize("make", [midpoint_pendulum, cart_pole, two_inputs, RailedMap])
def test_model_is_the_second_order_expansion_of_the_projected_cost(make):
    """d/dg and d2/dg2 of g(P(xi + gamma zeta)) are Dg.zeta and <zeta, H zeta>, at any iterate."""
    f = make()
    N = 15
    run = f.rollout(0.3 * RNG.standard_normal(f.nx), RNG.standard_normal((N, f.nu)))
    extra = 0.5 * f.quantity("lambda.rail") ** 2 if f.multiplier_names else 0
    x, u = f.symbols.x, f.symbols.u
    running = ca.cos(x[0]) + x[1] ** 2 * u[0] + 0.3 * ca.sumsqr(u) + extra
    cost = Cost(f, running, 3 * ca.sin(x[0]) + ca.sumsqr(x), per_time=False)
    model = LocalModel(f, cost, run, identity(f))
    du = RNG.standard_normal((N, f.nu))
    dx = np.zeros((N + 1, f.ndx))
    for k in range(N):
        dx[k + 1] = model.lin.A[k] @ dx[k] + model.lin.B[k] @ du[k]

    def g(s):
        return cost.value(project(f, run.x + s * dx, run.u + s * du, model.gains, run.x[0]))

    def differences(h):  # fourth order, so that rounding and truncation are both small
        values = np.array([g(s * h) for s in (-2, -1, 0, 1, 2)])
        return values @ [1, -8, 0, 8, -1] / (12 * h), values @ [-1, 16, -30, 16, -1] / (12 * h * h)

    first, second = differences(1e-3)
    xx, xu, uu = blocks(model, "newton")
    form = (
        np.einsum("ka,kab,kb", dx, xx, dx)
        + 2 * np.einsum("ka,kab,kb", dx[:-1], xu, du)
        + np.einsum("ka,kab,kb", du, uu, du)
    )
    slope = np.vdot(model.expansion.lx, dx) + np.vdot(model.expansion.lu, du)
    assert slope == pytest.approx(first, rel=1e-7)
    assert form == pytest.approx(second, rel=1e-6)
    np.testing.assert_allclose(xx, np.swapaxes(xx, 1, 2), rtol=1e-9, atol=1e-9)
    # the part that Gauss-Newton leaves out is not small here, so that the check above means something
    gx, gxu, gu = blocks(model, "gauss-newton")
    rest = np.einsum("ka,kab,kb", dx, xx - gx, dx) + np.einsum("ka,kab,kb", du, uu - gu, du)
    rest += 2 * np.einsum("ka,kab,kb", dx[:-1], xu - gxu, du)
    assert abs(rest) > 1e-5 * abs(form)


def test_direction_minimizes_the_model():
    f = two_inputs()
    run = f.rollout([0.1, 0.2, -0.1], 0.1 * RNG.standard_normal((10, 2)))
    model = LocalModel(f, quadratic(f, Q=1, R=1, Qf=3, goal={"x0": 1}), run, identity(f))
    for method in ("newton", "gauss-newton", "steepest"):
        zeta = model.direction(method)
        xx, xu, uu = blocks(model, method)
        e = model.expansion
        # stationary: the gradient of the model by any tangent trajectory vanishes
        gx = e.lx + np.einsum("kab,kb->ka", xx, zeta.dx)
        gx[:-1] += np.einsum("kau,ku->ka", xu, zeta.du)
        gu = e.lu + np.einsum("kau,ka->ku", xu, zeta.dx[:-1]) + np.einsum("kuv,kv->ku", uu, zeta.du)
        z = gx[-1]
        for k in range(9, -1, -1):
            assert np.abs(gu[k] + model.lin.B[k].T @ z).max() < 1e-12
            z = gx[k] + model.lin.A[k].T @ z
        assert zeta.slope < 0
        np.testing.assert_allclose(
            zeta.dx[1:],
            np.einsum("kab,kb->ka", model.lin.A, zeta.dx[:-1])
            + np.einsum("kau,ku->ka", model.lin.B, zeta.du),
            atol=1e-13,
        )


# -- solutions ------------------------------------------------------------------------------------


def test_a_linear_quadratic_problem_takes_one_step():
    f = double_integrator()
    N, x0 = 50, np.array([1.0, -0.5])
    cost = quadratic(f, Q=[1, 0.1], R=0.2, Qf=10, per_time=False)
    A, B = f.linearize(x0)
    _, P = riccati(np.tile(A, (N, 1, 1)), np.tile(B, (N, 1, 1)), np.diag([1, 0.1]), [[0.2]], 10 * np.eye(2))
    for method, warmup in (("newton", 0), ("newton", 4), ("gauss-newton", 0)):
        best = optimize(f, cost, x0=x0, steps=N, direction=method, warmup=warmup)
        assert best.iterations == 1
        assert best.cost == pytest.approx(0.5 * x0 @ P[0] @ x0, rel=1e-12)


def test_pendulum_of_the_paper():
    f = midpoint_pendulum()
    cost = swing_up(f)
    best = optimize(f, cost, x0=[0, 0], steps=STEPS)
    assert best.status == "converged"
    assert best.iterations <= 15  # [S] Fig. 3: 14
    assert best.cost == pytest.approx(13297.37889, rel=1e-9)
    assert cost.value(best.trajectory) == pytest.approx(best.cost, rel=1e-12)
    assert best.open_loop_gap < 1e-9
    np.testing.assert_array_equal(best.trajectory.x, f.rollout([0, 0], best.trajectory.u).x)
    assert (best.history.method == "newton").all()
    assert best.history.shift.max() > 1 and best.history.shift[-1] < 1e-2
    # with the projection and the warm-up that [S] seems to use, it converges to the same
    plain = optimize(f, cost, x0=[0, 0], steps=STEPS, warmup=4, projection=(1, 1))
    assert (plain.history.method[:4] == "gauss-newton").all()
    assert plain.cost == pytest.approx(best.cost, rel=1e-9)
    # the squared Newton decrement falls as d, d^2, d^4 once the shift is gone
    polished = optimize(f, cost, best.trajectory, tolerance=1e-20)
    d = -polished.history.descent
    assert d[-1] < 1e-15 and d[-1] < 1e-6 * d[0]
    loop = best.stabilize({"theta": 10, "p.theta": 1}, 1)
    assert np.abs(loop.rollout([1, 1]).x[-1] - best.trajectory.x[-1]).max() < 1e-3


def test_newton_converges_quadratically_and_gauss_newton_linearly():
    f = midpoint_pendulum()
    cost = swing_up(f)
    best = optimize(f, cost, x0=[0, 0], steps=STEPS, tolerance=1e-12)
    X, U = best.trajectory.x, best.trajectory.u
    sizes = np.array([0.03, 0.1, 0.3])
    for method, order in (("newton", 4), ("gauss-newton", 2)):
        # the squared decrement one step from a distance eps: eps^4, or eps^2 where convergence is linear
        after = []
        for eps in sizes:
            guess = project(f, X, U + eps * np.sin(np.arange(STEPS))[:, None], best.gains)
            run = optimize(
                f, cost, guess, direction=method, tolerance=1e-16, max_iterations=1, raise_on_failure=False
            )
            after.append(-run.history.descent[1])
        slope = np.polyfit(np.log(sizes), np.log(after), 1)[0]
        assert slope == pytest.approx(order, abs=0.1)


def test_methods_agree():
    f = midpoint_pendulum()
    cost = quadratic(f, Q=1, R=1, Qf=20, goal={"theta": 1.0})
    costs = [
        optimize(f, cost, x0=[0, 0], steps=30, direction=m, tolerance=1e-10, max_iterations=5000).cost
        for m in ("newton", "gauss-newton", "steepest")
    ]
    np.testing.assert_allclose(costs, costs[0], rtol=1e-8)


def test_cart_pole_swing_up():
    f = cart_pole()
    Q, Qf = [0.1, 0.1, 0.01, 0.01], [1e3, 1e3, 1e2, 1e2]
    cost = quadratic(f, Q=Q, R=0.01, Qf=Qf)
    start = np.array([0, np.pi, 0, 0])
    guess = straight_line(start, np.zeros(4), 200), None
    best = optimize(f, cost, guess)
    assert best.cost == pytest.approx(0.98133, abs=3e-3)  # of the implicit midpoint rule: O(dt^2) away
    assert np.array_equal(best.trajectory.x[0], start)


def test_a_cost_on_multipliers():
    f = RailedMap()
    cost = quadratic(f, Q={"lambda.rail": 1}, R=1, Qf=20, goal={"theta": 1.0})
    best = optimize(f, cost, x0=[0, 0], steps=30)
    assert best.iterations < 12
    assert (best.history.method[-2:] == "newton").all()


# -- guesses --------------------------------------------------------------------------------------


def test_guesses():
    f, twin = midpoint_pendulum(), midpoint_pendulum()
    cost = quadratic(f, Q=1, R=1, Qf=20, goal={"theta": 1.0})
    X = straight_line([0, 0], [1, 0], 30)
    U = np.zeros((30, 1))

    def solve(*args, **options):
        return optimize(f, cost, *args, tolerance=1e-10, **options)

    best = solve(x0=[0, 0], steps=30)
    run = f.rollout([0, 0], U)
    for again in (
        solve(run),
        solve(twin.rollout([0, 0], U)),
        solve((X, U)),
        solve((X, None)),
        solve(U, x0=[0, 0]),
        solve(f.rollout([0.3, 0], U), x0=[0, 0]),
        solve((X, U), projection=({"theta": 5}, 0.1)),
    ):
        assert again.cost == pytest.approx(best.cost, rel=1e-9)
    assert solve(best.trajectory).iterations == 0


def test_time_index_of_a_guess_is_kept():
    f = midpoint_pendulum()
    guess = f.rollout([0, 0], steps=20, k0=7)
    best = optimize(f, quadratic(f, Q=1, R=1, Qf=20, goal={"theta": 0.2}), guess)
    assert best.trajectory.k0 == 7
    np.testing.assert_array_equal(best.trajectory.t, guess.t)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (dict(method="sqp"), "expected one of 'auto'"),
        (dict(tolerance=0), "tolerance: expected a number > 0"),
        (dict(steps=None), "steps: give their number with x0"),
        (dict(x0=None), "no initial state: give x0 and steps"),
        (dict(x0=[0, np.nan]), "p.theta"),
        (dict(guess=(np.zeros((31, 3)), None)), r"guess of states: expected shape \(N, 2\)"),
        (dict(guess=(np.zeros((31, 2)), np.zeros((31, 1)))), "31 rows for steps=30"),
        (dict(armijo=Armijo(beta=1.0)), "armijo"),
        (
            dict(armijo=type("OwnRule", (Armijo,), {})()),
            "armijo: expected a vioc.control.Armijo.*got OwnRule",
        ),
        (dict(armijo=lambda: True), "armijo: expected a vioc.control.Armijo.*got function"),
        (dict(projection=(1, 0)), "projection R"),
    ],
)
def test_refused(options, message):
    f = midpoint_pendulum()
    with pytest.raises(ValueError, match=message):
        optimize(f, quadratic(f, Q=1, R=1), **{"x0": [0, 0], "steps": 30, **options})


@pytest.mark.parametrize("method", ["auto", "shooting", "dmoc"])
def test_a_guess_of_other_steps_is_resampled(method):
    """The optimum at a step of 0.2 s is a guess at 0.1 s, over the same time or stretched to more."""
    f = midpoint_pendulum()
    cost = quadratic(f, Q=1, R=1, Qf=10)
    coarse = f.with_dt(0.2).rollout([0.5, 0], np.full((10, 1), 0.1))
    found = optimize(f, cost, coarse, method=method)
    assert len(found.trajectory) == 20 and found.trajectory.map.dt == 0.1
    longer = optimize(f, cost, coarse, steps=25, method=method)
    assert longer.trajectory.duration == pytest.approx(2.5)
    for one in (found, longer):
        own = optimize(f, cost, x0=coarse.x[0], steps=len(one.trajectory), method="shooting")
        assert one.cost == pytest.approx(own.cost, rel=1e-6)


# -- fallbacks and failures -----------------------------------------------------------------------


def test_newton_is_shifted_where_it_has_no_minimum():
    f = midpoint_pendulum()
    early = optimize(f, swing_up(f), x0=[0, 0], steps=STEPS, max_iterations=4, raise_on_failure=False)
    model = LocalModel(f, swing_up(f), early.trajectory, identity(f))
    assert model.direction("newton") is None
    assert model.direction("newton", shift=100.0).slope < 0
    assert model.direction("gauss-newton").slope < 0
    # a longer shift is a shorter step
    sizes = [np.abs(model.direction("newton", s).du).max() for s in (100.0, 1e4, 1e6)]
    assert sizes[0] > sizes[1] > sizes[2]


def test_from_many_guesses():
    """With Gauss-Newton as the only fallback half of these creep at costs near 9.56e4."""
    f = midpoint_pendulum()
    for seed in range(6):
        torques = np.random.default_rng(seed).standard_normal((STEPS, 1))
        best = optimize(f, swing_up(f), f.rollout([0, 0], torques))
        assert best.cost == pytest.approx(13297.37889, rel=1e-9)
        assert best.iterations < 60


def test_a_cost_that_is_not_convex():
    f = double_integrator()
    x, u = f.symbols.x, f.symbols.u
    cost = Cost(
        f, 1 - ca.exp(-5 * (x[0] - 1) ** 2) + 0.05 * u**2, (x[0] - 1) ** 4 - 0.5 * x[1] ** 2 + x[1] ** 4
    )
    best = optimize(f, cost, x0=[-1, 0], steps=30)
    assert best.converged
    assert np.all(np.diff(best.history.cost) <= 0)


def test_no_weight_on_the_input_falls_back_to_steepest():
    f = double_integrator()
    cost = quadratic(f, Qf={"x": 1.0})  # no R: u_{N-1} moves x_N by dt^2/2, earlier ones are free
    run = f.rollout([1.0, 0.0], steps=3)
    steepest = LocalModel(f, cost, run, identity(f)).direction("steepest")
    assert steepest.slope < 0
    best = optimize(f, cost, run, raise_on_failure=False, max_iterations=2000)
    assert best.cost < 1e-4


def test_trials_that_leave_the_domain_are_rejected():
    f = double_integrator()
    x, u = f.symbols.x, f.symbols.u
    wall = -0.1 * ca.log(1.2 - x[0])
    cost = Cost(f, 0.01 * u**2 + wall, 50 * (x[0] - 1.3) ** 2 + wall)
    best = optimize(f, cost, x0=[0, 0], steps=40)
    assert best.converged and best.trajectory["x"].max() < 1.2
    assert best.history.trials.max() > 1


def test_a_cost_that_is_not_finite_at_the_guess():
    f = midpoint_pendulum()
    cost = Cost(f, ca.log(f.quantity("theta") - 1))
    with pytest.raises(OptimizationError, match="running cost is nan at k = 0"):
        optimize(f, cost, x0=[0, 0], steps=5)


def test_running_out_of_iterations_keeps_the_best():
    f = midpoint_pendulum()
    with pytest.raises(
        OptimizationError, match=r"max iterations after 3 iterations .* better guess"
    ) as error:
        optimize(f, swing_up(f), x0=[0, 0], steps=STEPS, max_iterations=3)
    best = error.value.result
    assert best.status == "max_iterations" and best.iterations == 3
    assert best.cost < best.history.cost[0]
    assert optimize(f, swing_up(f), best.trajectory).converged


def test_a_wrong_gradient_stops_the_line_search():
    f = midpoint_pendulum()

    class Wrong(Cost):
        def expand(self, trajectory, lin):
            e = super().expand(trajectory, lin)
            return replace(e, first=-e.first, end=-e.end)

    cost = Wrong(f, f.symbols.u**2, (f.quantity("theta") - 1) ** 2)
    best = optimize(f, cost, x0=[0, 0], steps=10, method="projection", raise_on_failure=False)
    assert best.status == "line_search" and "check_derivatives" in best.message


def test_a_guess_of_one_step():
    f = midpoint_pendulum()
    run = f.rollout([0, 0], [[2.0]])
    cost = quadratic(f, Q=1.0, R=1.0, reference=run, u_reference=run)
    best = optimize(f, cost, f.rollout([0, 0], steps=1), method="projection")
    assert best.u == pytest.approx(run.u, rel=1e-12)


def test_a_step_lowers_the_cost_by_the_share_that_armijo_asks_for():
    """Steepest descent overshoots: its full steps lower the cost at times, but by less than that."""
    f = midpoint_pendulum()
    share = 0.4
    options = dict(x0=[0, 0], steps=STEPS, max_iterations=30, raise_on_failure=False)
    best = optimize(
        f,
        swing_up(f),
        method="projection",
        direction="steepest",
        armijo=Armijo(alpha=share, beta=0.5),
        **options,
    )
    h = best.history
    after = np.append(h.cost[1:], best.cost)
    taken = h.step > 0
    assert (after <= h.cost + share * h.step * h.descent)[taken].all()
    assert ((h.step < 1) & taken).any()


def test_a_rollout_that_leaves_the_iterate_is_not_returned():
    """Where the inputs alone lead elsewhere the closed loop's iterate is the result, and the gap says so."""

    class Drifting(CasadiMap):
        """Rolls out to a thousandth of what it is at the end, beside it; closed loops are exact."""

        def rollout(self, *args, **options):
            run = super().rollout(*args, **options)
            x = run.x.copy()
            x[-1] += 1e-3
            return Trajectory(self, run.t, x, run.u, run.multipliers, k0=run.k0)

    x, u = ca.SX.sym("x"), ca.SX.sym("u")
    f = Drifting(ca.Function("f", [x, u], [2 * x + u]), dt=1.0)
    cost = quadratic(f, Q=1.0, R=1.0, per_time=False)
    best = optimize(f, cost, (np.ones((6, 1)), None), method="projection")
    assert best.open_loop_gap == pytest.approx(1e-3, rel=1e-6)
    run = best.trajectory
    np.testing.assert_allclose(run.x[1:], 2 * run.x[:-1] + run.u, rtol=0, atol=1e-12)


def test_at_the_rounding_floor():
    f = midpoint_pendulum()
    x = f.symbols.x
    cost = Cost(f, 1e12 + f.symbols.u**2, (x[0] - 1) ** 2, per_time=False)
    best = optimize(f, cost, x0=[0, 0], steps=10, tolerance=1e-40)
    assert best.converged and "to rounding" in best.message


def test_interrupted(capsys):
    f = midpoint_pendulum()

    def stop(record):
        if record.iteration == 5:
            raise KeyboardInterrupt

    options = dict(x0=[0, 0], steps=STEPS, monitor=stop)
    best = optimize(f, swing_up(f), raise_on_failure=False, **options)
    assert best.status == "interrupted" and best.iterations >= 5
    assert best.cost < best.history.cost[-1]  # the step that was just taken is kept
    assert swing_up(f).value(best.trajectory) == pytest.approx(best.cost, rel=1e-12)
    with pytest.raises(KeyboardInterrupt) as interrupt:
        optimize(f, swing_up(f), **options)
    assert interrupt.value.result.cost == best.cost
    with pytest.raises(OptimizationError):
        best.raise_for_status()


def test_monitor_and_pickling(capsys):
    f = midpoint_pendulum()
    best = optimize(f, swing_up(f), x0=[0, 0], steps=STEPS, monitor=True)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["iter", "method", "shift", "cost", "Dg.zeta", "step", "trials", "gap"]
    assert len(lines) == best.iterations + 3
    assert len({len(line) for line in lines[:-1]}) == 1
    assert lines[-1].startswith("converged after")
    again = pickle.loads(pickle.dumps(best))
    np.testing.assert_array_equal(again.trajectory.x, best.trajectory.x)
    assert repr(best).startswith("Result(converged")
