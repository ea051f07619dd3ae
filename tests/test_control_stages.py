"""Stages in symbols: elimination, and the same local model as numpy's."""

import pickle
from functools import cache

import casadi as ca
import numpy as np
import pytest
from support.mechanisms import everything, hold, pendulum, state_near

import vioc
from vioc.compile import find_compiler
from vioc.control import Cost, optimize, project, quadratic

# inside: the local models in symbols and in numpy are compared with each other, part by part
from vioc.control.descent import shooting
from vioc.control.descent.local_model import LocalModel
from vioc.control.descent.shooting import Shooting
from vioc.control.descent.symbolic.elimination import SymbolicLU, pivot_order
from vioc.control.descent.symbolic.recursions import Recursions
from vioc.control.descent.symbolic.stage_programs import StageArguments, StagePrograms
from vioc.control.descent.symbolic.symbolic_model import LocalModels, StageModel
from vioc.control.problem.sizes import Sizes
from vioc.control.stages.symbols import symmetric_solve
from vioc.errors import StepError

RNG = np.random.default_rng(7)


# -- elimination ----------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 5, 9])
def test_symbolic_lu(n):
    a = np.where(RNG.random((n, n)) < 0.4, RNG.standard_normal((n, n)), 0.0)
    a[np.arange(n), RNG.permutation(n)] += 3.0  # regular, with zeros on the diagonal
    pattern = ca.sparsify(ca.DM(a)).sparsity()
    symbols, b = ca.SX.sym("a", pattern), ca.SX.sym("b", n, 2)
    lu = SymbolicLU(symbols, pivot_order(a))
    f = ca.Function("f", [symbols, b], [ca.densify(lu.solve(b)), ca.densify(lu.solve_transposed(b))])
    other = a * RNG.uniform(0.8, 1.25, a.shape)  # other numbers, the same order
    rhs = RNG.standard_normal((n, 2))
    x, y = f(ca.sparsify(ca.DM(other)), rhs)
    np.testing.assert_allclose(x.full(), np.linalg.solve(other, rhs), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(y.full(), np.linalg.solve(other.T, rhs), rtol=1e-10, atol=1e-10)


def test_pivots_of_a_saddle_point_and_of_a_singular_matrix():
    saddle = np.array([[2.0, 0.5, 1.0], [0.5, 3.0, -1.0], [1.0, -1.0, 0.0]])
    rows, columns = zip(*pivot_order(saddle), strict=True)
    assert sorted(rows) == sorted(columns) == [0, 1, 2]
    with pytest.raises(np.linalg.LinAlgError):
        pivot_order(np.ones((2, 2)))


def test_symmetric_solve():
    a = RNG.standard_normal((3, 3))
    for G, definite in ((a @ a.T + np.eye(3), True), (np.diag([1.0, -2.0, 3.0]), False)):
        b = RNG.standard_normal((3, 2))
        x, pivots = symmetric_solve(ca.SX(ca.DM(G)), ca.SX(ca.DM(b)))
        np.testing.assert_allclose(G @ ca.DM(x).full(), b, atol=1e-12)
        assert (ca.DM(pivots).full() > 0).all() == definite


# -- the local model ------------------------------------------------------------------------------


@cache
def swinging():
    """The map of the pendulum, built once for all tests."""
    return vioc.MidpointVI(pendulum(), 0.1)


@cache
def one_of_each(dt=0.01):
    """The map of a mechanism with one of each, and a state of it."""
    f = vioc.MidpointVI(everything(), dt)
    return f, state_near(f, 3)


@cache
def swinging_pendulum():
    f = vioc.MidpointVI(pendulum(), 0.1, forcing="left")
    run = f.rollout([0.4, 1.0], RNG.standard_normal((30, 1)))
    rows = np.column_stack([np.linspace(0, 3, 31), np.zeros(31)])
    return run, quadratic(f, Q=[1000, 1], R=50, Qf=[1000, 1], reference=rows, per_time=False)


@cache
def cart_pole():
    f = vioc.MidpointVI(vioc.models.load("cart_pole"), 0.01)
    run = f.rollout([0.1, 3.0, 0.2, 0.3], RNG.standard_normal((60, 1)))
    return run, quadratic(f, Q={"x": 1, "v.theta": 2}, R=0.1, Qf={"theta": 10, "v.x": 5})


@cache
def with_multipliers():
    """Kinematic variables, a constraint whose multiplier costs, parameters, springs, damping."""
    f, x = one_of_each()
    run = f.rollout(x, np.tile(hold(f, x), (12, 1)))
    return run, quadratic(f, Q={"a": 1, "v.c": 0.1, "lambda.string": 0.1}, R=0.1, Qf={"a": 10, "v.b": 3})


@cache
def not_convex():
    f = swinging()
    run = f.rollout([0.4, 1.0], RNG.standard_normal((20, 1)), k0=3)
    theta = f.quantity("theta")
    return run, Cost(f, ca.cos(3 * theta) + f.symbols.u**2, ca.sin(theta) ** 2)


def close(a, b, tolerance=1e-9):
    np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * np.abs(b).max(initial=1.0))


def recursions_of(f, cost, steps, k0):
    return Recursions(StagePrograms.of(f, cost), f, cost, StageArguments.of(f, cost, steps, k0))


@pytest.mark.parametrize("weights", [False, True])
@pytest.mark.parametrize("make", [swinging_pendulum, cart_pole, with_multipliers, not_convex])
def test_the_model_of_the_stages_is_numpys(make, weights):
    run, cost = make()
    f = run.map
    weights = (np.eye(f.nx), 2 * np.eye(f.nu)) if weights else None
    shift = 0.3
    recursions = recursions_of(f, cost, len(run), run.k0)
    recursions.begin(run.x[0], weights, Sizes.along(run))
    model, plain = StageModel(f, cost, run, recursions, shift), LocalModel(f, cost, run, weights)
    assert model.sound
    assert recursions.value == pytest.approx(cost.value(run), rel=1e-12)
    close(model.lin.A, plain.lin.A)
    close(model.lin.B, plain.lin.B)
    close(model.gains, plain.gains)
    for name in ("lx", "lu", "lxx", "lxu", "luu", "weights"):
        close(getattr(model.expansion, name), getattr(plain.expansion, name))
    found = 0
    for method in ("newton", "gauss-newton", "steepest"):
        for mine, theirs in zip(model.hessian(method), plain.hessian(method), strict=True):
            close(mine, theirs)
        for shift in (0.0, 0.3, 1e3):
            mine, theirs = model.direction(method, shift), plain.direction(method, shift)
            assert (mine is None) == (theirs is None)
            if mine is not None:
                found += 1
                close(mine.dx, theirs.dx, 1e-7)
                close(mine.du, theirs.du, 1e-7)
                assert mine.slope == pytest.approx(theirs.slope, rel=1e-7)
    assert found >= 7


def test_large_maps_and_maps_without_equations_are_left_to_numpy():
    chain = vioc.MidpointVI(vioc.models.load("marionette"), 0.01)
    assert StagePrograms.of(chain, quadratic(chain, R=1.0)) is None
    f, x = one_of_each()
    cost = quadratic(f, R=1.0)
    run = f.rollout(x, np.tile(hold(f, x), (2, 1)))
    models = LocalModels(f, cost, run, None)
    assert type(models.about(run, 0.0)) is LocalModel and StagePrograms.of(f, cost) is not None
    f = swinging()
    run = f.rollout([0, 0], steps=2)
    models = LocalModels(f, quadratic(f, R=1.0), run, None)
    assert type(models.about(run, 0.0)) is StageModel

    class NoEquations(vioc.MidpointVI):
        residual = None

    g = NoEquations(pendulum(), 0.1)
    cost, other = quadratic(f, R=1.0), quadratic(g, R=1.0)
    assert StagePrograms.of(g, other) is None
    curve = np.linspace([0.2, 0.0], [0.0, 0.0], 4), None
    theirs, plain = optimize(f, cost, curve), optimize(g, other, curve)
    assert theirs.history.method[0].startswith("ms ") and not plain.history.method[0].startswith("ms ")
    assert plain.cost == pytest.approx(theirs.cost, abs=1e-6)
    assert StagePrograms.of(f, cost) is StagePrograms.of(f, cost)


def test_shooting_that_lowers_nothing_gives_up_after_a_few_line_searches():
    """A cost that is a number at the guess alone: no penalty of the gaps helps."""
    f = swinging()
    cost = Cost(f, (f.symbols.u - 1) ** 2 + 1e-30 * ca.sqrt(1e-20 - f.symbols.x[0] ** 2))
    guess, records = Shooting(f, cost, StagePrograms.of(f, cost), np.zeros((4, 2)), np.ones((3, 1))), []
    guess.iterate(50, records.append)
    assert guess.status == "line_search"
    assert [r.step for r in records] == [0.0] * (shooting.FAILURES + 1)


def test_other_parameters_use_the_same_functions():
    f, x = one_of_each()
    cost = quadratic(f, Q={"a": 1}, R=0.1, Qf={"a": 10})
    programs = StagePrograms.of(f, cost)
    for g in (f, f.with_parameters(m=3.0)):
        run = g.rollout(x, np.tile(hold(f, x), (6, 1)))
        assert StagePrograms.of(g, cost) is programs
        models = LocalModels(g, cost, run, None)
        close(models.about(run, 0.0).lin.A, g.linearize_trajectory(run).A)


def test_a_step_that_is_singular_is_named_by_the_map():
    f = vioc.MidpointVI(
        pendulum(), 2.0
    )  # M_k+1 = -(1/dt + dt g/4 cos q_m) vanishes at cos q_m = -1/(dt^2 g/4)
    q = np.arccos(-1 / (9.8 * f.dt**2 / 4))
    p = f.dt / 2 * 9.8 * np.sin(q)  # stays at q
    x = np.array([[q, p], [q, -p]])
    assert np.abs(f.residual(x[0], 0, x[1], [], 0, f.dt, f.theta)).max() <= 1e-12  # not the map's own root
    run = vioc.Trajectory(f, np.array([0.0, f.dt]), x, np.zeros((1, 1)), np.zeros((1, 0)))
    cost = quadratic(f, Q=1.0, R=1.0)
    with pytest.raises(StepError, match="singular"):
        LocalModels(f, cost, run, None).about(run, 0.0)


# -- trials and what the recursions share --------------------------------------------------------


@cache
def wrapped():
    f = vioc.MidpointVI(pendulum(), 0.1, wrap=("theta",))
    run = f.rollout([3.0, 4.0], RNG.standard_normal((30, 1)), k0=2)
    return run, quadratic(f, Q={"theta": 1}, R=0.1, Qf={"theta": 10}, goal={"theta": 2.0})


@pytest.mark.parametrize("make", [swinging_pendulum, wrapped, cart_pole, with_multipliers, not_convex])
def test_a_trial_is_the_projection_and_its_cost(make):
    run, cost = make()
    f = run.map
    recursions = recursions_of(f, cost, len(run), run.k0)
    recursions.begin(run.x[0], None, Sizes.along(run))
    model = StageModel(f, cost, run, recursions, 0.0)
    assert recursions.kernel is not None
    for method, gamma in (("gauss-newton", 0.3), ("steepest", 1e-3), ("gauss-newton", 0.01)):
        zeta = model.direction(method)
        moved, value = model.trial(zeta, gamma, np.inf)
        expected, expected_value = LocalModel.trial(model, zeta, gamma, np.inf)
        assert value == pytest.approx(expected_value, rel=1e-9)
        for name in ("t", "x", "u", "multipliers"):
            close(getattr(moved, name), getattr(expected, name))
        assert (moved.map, moved.k0) == (f, run.k0)
        assert model.trial(zeta, gamma, value * (1 - 1e-9)) is None
        again = model.trial(zeta, gamma, value)[0]
        np.testing.assert_array_equal(again.x, moved.x)
    far = type(zeta)("newton", 0.0, zeta.dx, np.full_like(zeta.du, np.inf), -1.0)
    assert model.trial(far, 1.0, np.inf) is None
    np.testing.assert_array_equal(model.trial(zeta, gamma, np.inf)[0].x, moved.x)


def swing(f, **options):
    rows = np.column_stack([np.linspace(0, 3, 31), np.zeros(31)])
    return quadratic(f, Q=[100, 1], R=5, Qf=[100, 1], reference=rows, per_time=False, **options)


def test_searches_within_searches_and_in_threads():
    """The recursions' arrays belong to one search at a time."""
    from concurrent.futures import ThreadPoolExecutor

    f = swinging()
    cost = swing(f)
    starts = np.array([[0.0, 0.0], [0.5, 0.0], [0.0, 2.0]])

    def solve(x0, **options):
        return optimize(f, cost, x0=x0, steps=30, **options).trajectory.x

    plain = [solve(x0) for x0 in starts]
    within = []
    outer = solve(starts[0], monitor=lambda record: within.append(solve(starts[record.iteration % 3])))
    np.testing.assert_array_equal(outer, plain[0])
    for i, x in enumerate(within):
        np.testing.assert_array_equal(x, plain[i % 3])
    with ThreadPoolExecutor(3) as pool:
        for x, expected in zip(pool.map(solve, np.tile(starts, (4, 1))), plain * 4, strict=True):
            np.testing.assert_array_equal(x, expected)


def test_passes_know_parameters_weights_time_and_length():
    f, x = one_of_each(0.02)
    cost = quadratic(f, Q={"a": 1}, R=0.1, Qf={"a": 10})

    def value(g, cost, steps, k0=0):
        run = g.rollout(x, np.tile(hold(f, x), (steps, 1)), k0=k0)
        recursions = recursions_of(g, cost, steps, k0)
        recursions.begin(x, None, Sizes.along(run))
        recursions.load(run)
        model = StageModel(g, cost, run, recursions, 0.0)
        zeta = model.direction("gauss-newton")
        return recursions.value, model.trial(zeta, 1e-3, np.inf)[1], cost.value(run)

    @cache
    def fresh(g, steps, k0):
        return value(g, quadratic(f, Q={"a": 1}, R=0.1, Qf={"a": 10}), steps, k0)[:2]

    heavy = f.with_parameters(m=3.0)
    for g, steps, k0 in ((f, 6, 0), (heavy, 6, 0), (f, 8, 0), (f, 6, 5), (f, 6, 0)):
        mine, moved, expected = value(g, cost, steps, k0)
        assert mine == pytest.approx(expected, rel=1e-12)
        assert (mine, moved) == fresh(g, steps, k0)
    p = swinging()
    cost = swing(p)
    gains = [
        optimize(p, cost, x0=[0, 0], steps=30, projection=w).gains[0] for w in (None, (1, 1), (9, 1), None)
    ]
    np.testing.assert_array_equal(gains[0], gains[3])
    assert len({g.tobytes() for g in gains}) == 3


def test_what_has_been_solved_pickles():
    f = swinging()
    cost = swing(f)
    best = optimize(f, cost, x0=[0, 0], steps=30)
    again = pickle.loads(pickle.dumps(cost))
    g = again.map
    np.testing.assert_array_equal(optimize(g, again, x0=[0, 0], steps=30).trajectory.x, best.trajectory.x)


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
def test_every_backend_takes_the_same_steps(tmp_path, monkeypatch):
    monkeypatch.setenv("VIOC_CACHE", str(tmp_path))
    found = []
    for backend in ("virtual", "compiled", "auto"):
        f = vioc.MidpointVI(pendulum(), 0.1, backend=backend)
        found.append(optimize(f, swing(f), x0=[0, 0], steps=30))
    for other in found[1:]:
        np.testing.assert_array_equal(other.history.cost, found[0].history.cost)
        np.testing.assert_array_equal(other.trajectory.x, found[0].trajectory.x)


def test_a_mechanism_whose_balances_have_no_entry_of_some_multiplier():
    """A rod holds a carriage on a carriage: second derivatives go along a vector with zeros by structure."""
    m = vioc.Mass(1.0, (0.1,) * 3)
    inner = vioc.tz("b", mass=m)[vioc.tx(0.3, name="E")]
    rod = vioc.DistanceConstraint("A", "E", 0.5)
    lift = vioc.System(
        vioc.tz("a", mass=m, name="A")[inner], rod, vioc.Gravity(0, 0, -9.81), vioc.JointForce("a", "u")
    )
    f = vioc.MidpointVI(lift, 0.02)
    cost = quadratic(f, R=1.0, Qf=1.0)
    x0 = f.initial_state({"a": 0.3, "b": 0.4})
    found = [optimize(f, cost, x0=x0, steps=5, method=m) for m in ("auto", "shooting")]
    assert found[0].cost == pytest.approx(found[1].cost, rel=1e-9)


@pytest.mark.parametrize("dt", [0.05, 0.1])
def test_a_search_makes_few_calls(dt, monkeypatch):
    """One call each for model, direction, retry and trial, and one for the terminal cost of each point."""
    f = vioc.MidpointVI(pendulum(), dt)
    cost = swing(f)
    optimize(f, cost, x0=[0, 0], steps=30)
    calls = []
    for name in ("model", "minimize", "direction", "attempt"):
        method = getattr(Recursions, name)
        monkeypatch.setattr(
            Recursions, name, lambda *args, _m=method, _n=name, **kw: (calls.append(_n), _m(*args, **kw))[1]
        )
    by_map = lambda *args, **kw: (calls.append("project"), project(*args, **kw))[1]  # noqa: E731
    monkeypatch.setattr("vioc.control.descent.local_model.project", by_map)
    best = optimize(f, cost, x0=[0, 0], steps=30)
    assert "project" not in calls
    assert calls.count("attempt") == best.history.trials.sum()
    assert calls.count("model") == len(best.history.cost) == best.iterations + 1
    assert calls.count("direction") <= calls.count("model") + calls.count("minimize")


def test_a_search_does_not_depend_on_the_searches_before_it():
    """Searches with one cost use the same arrays, and the extent of the first motion determines units."""
    f = vioc.MidpointVI(vioc.models.load("cart_pole"), 0.05)

    def cost():
        return quadratic(f, Q={"x": 0.1, "theta": 1.0}, R=0.1, Qf={"x": 10.0, "theta": 50.0})

    def search(cost, x):
        start = [x, 2.5, 0.0, 0.0]
        return optimize(
            f, cost, x0=start, steps=30, method="projection", max_iterations=4, raise_on_failure=False
        )

    fresh, used = search(cost(), 0.1), cost()
    search(used, 30.0)
    again = search(used, 0.1)
    assert fresh.history.shift.any()
    np.testing.assert_array_equal(again.u, fresh.u)


@pytest.mark.parametrize("make", [swinging_pendulum, cart_pole, not_convex])
def test_models_one_after_another(make):
    """Nothing of an iterate stays with the recursions when the next one comes."""
    run, cost = make()
    f = run.map
    others = [f.rollout(run.x[0], run.u + d, k0=run.k0) for d in (0.3, -0.5)]
    models = LocalModels(f, cost, run, None)
    for now in (run, *others, run):
        assert models.value(now) == pytest.approx(cost.value(now), rel=1e-12)
        model, plain = models.about(now, 0.1), LocalModel(f, cost, now, None, sizes=Sizes.along(run))
        assert type(model) is StageModel
        close(model.gains, plain.gains)
        for method in ("gauss-newton", "newton"):
            mine, theirs = model.direction(method, 0.1), plain.direction(method, 0.1)
            assert (mine is None) == (theirs is None)
            if mine is not None:
                close(mine.du, theirs.du, 1e-7)
