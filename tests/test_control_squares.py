"""Gauss-Newton of costs: which squares are found, and J'WJ of them against differences of residuals."""

import pickle
from functools import cache, partial

import casadi as ca
import numpy as np
import pytest
from support.control_maps import RailedMap, midpoint_pendulum
from support.reaching import GOAL, START

import vioc
from vioc import Mass, MaximalVI, System
from vioc.compile import find_compiler
from vioc.control import Cost, quadratic

# inside: the squares that are found in an expression, and derivatives of errors, are no results
from vioc.control.costs.squares import Squares
from vioc.control.linear.tangent import error_curvature, error_expansion, error_jacobian

RNG = np.random.default_rng(7)


@cache
def seven_joints():
    """The map of the arm, built once for all tests."""
    return vioc.MidpointVI(vioc.models.seven_joint_arm(), 0.01)


@cache
def turned_body():
    """The map of a free body in maximal coordinates that three moments turn."""
    body = vioc.free("j", "xyz", frame="body", mass=Mass(1.5, (1.0, 2.0, 3.0)))
    return MaximalVI(System(body, *vioc.wrench_inputs("body", mx="t1", my="t2", mz="t3")), 0.05)


def ones(f):
    """Sizes of 1 of the variables of a Gauss-Newton Hessian."""
    return np.ones(f.ndx + f.nu)


def differences(function, point, h=1e-4):
    """Central differences of fourth order: their error is about h^4 of the fifth derivative, and eps / h."""
    columns = []
    for i in range(len(point)):
        e = h * np.eye(len(point))[i]
        values = [function(point + s * e) for s in (-2, -1, 1, 2)]
        columns.append((values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * h))
    return np.array(columns).T


def assert_gauss_newton(cost, run, residual, weights, terminal, terminal_weights):
    """Blocks of the Gauss-Newton `expand` against J'WJ of residual(x, u) and terminal(x) by differences."""
    f = cost.map
    lin = f.linearize_trajectory(run)
    e, exact = cost.expand(run, lin, ones(f)), cost.expand(run, lin)
    for name in ("lx", "lu"):
        np.testing.assert_allclose(getattr(e, name), getattr(exact, name), rtol=1e-12, atol=1e-12)
    for k in (0, len(run) - 1):
        x, u = run.x[k], run.u[k]

        def along(d, x=x, u=u):
            return residual(f.retract(x, d[: f.ndx]), u + d[f.ndx :])

        J = differences(along, np.zeros(f.ndx + f.nu))
        H = e.weights[k] * J.T @ np.diag(weights) @ J
        whole = np.block([[e.lxx[k], e.lxu[k]], [e.lxu[k].T, e.luu[k]]])
        np.testing.assert_allclose(whole, H, rtol=1e-7, atol=1e-8 * np.abs(H).max())
    J = differences(lambda d: terminal(f.retract(run.x[-1], d)), np.zeros(f.ndx))
    H = J.T @ np.diag(terminal_weights) @ J
    np.testing.assert_allclose(e.lxx[-1], H, rtol=1e-7, atol=1e-8 * np.abs(H).max())


def numbers(f, expression):
    s = f.symbols
    evaluate = ca.Function("e", [s.x, s.u, s.parameters], [expression])
    return lambda x, u=None: evaluate(x, np.zeros(f.nu) if u is None else u, f.theta).full()[:, 0]


def moved_numbers(f, expression):
    """Values of an expression of x and u, from x, u and errors by which both are moved."""
    s, d = f.symbols, ca.SX.sym("d", f.ndx + f.nu)
    there = ca.vertcat(f.space.retract_expression(s.x, d[: f.ndx]), s.u + d[f.ndx :])
    moved = ca.substitute(expression, ca.vertcat(s.x, s.u), there)
    evaluate = ca.Function("m", [s.x, s.u, d], [moved])
    return lambda x, u, d: evaluate(x, u, d).full()[:, 0]


def arm_cost(f):
    v = ca.vertcat(*(f.quantity(f"v.q{i}") for i in range(1, 8)))
    tool = ca.vertcat(*(f.quantity(f"tool:{a}") for a in "xyz"))
    cost = Cost(
        f,
        0.5e-3 * ca.sumsqr(f.symbols.u) + 0.5e-2 * ca.sumsqr(v),
        0.5e4 * ca.sumsqr(tool - ca.DM(GOAL)) + 5 * ca.sumsqr(v),
    )
    return cost, v, tool


def test_an_arm_has_its_squares_without_a_word():
    f = seven_joints()
    cost, v, tool = arm_cost(f)
    run = f.rollout(f.initial_state(START, dict.fromkeys(START, 0.7)), RNG.standard_normal((3, 7)))
    assert_gauss_newton(
        cost,
        run,
        numbers(f, ca.vertcat(f.symbols.u, v)),
        [1e-3] * 7 + [1e-2] * 7,
        numbers(f, ca.vertcat(tool, v)),
        [1e4] * 3 + [10.0] * 7,
    )
    lin = f.linearize_trajectory(run)
    model, exact = (cost.expand(run, lin, sizes).lxx[-1] for sizes in (ones(f), None))
    assert np.linalg.eigvalsh(model).min() > -1e-9 * model.max()
    assert np.linalg.eigvalsh(exact).min() < -1e2  # whose own curvature has the other sign


def test_a_free_body_by_errors_of_its_state():
    f = turned_body()
    start = f.retract(f.initial_state(), 0.4 * RNG.standard_normal(f.ndx))
    goal = f.retract(f.initial_state(), 0.4 * RNG.standard_normal(f.ndx))
    run = f.rollout(start, RNG.standard_normal((3, 3)))
    x, u = f.symbols.x, f.symbols.u
    error = f.space.difference_expression(ca.DM(goal), x)
    residual = ca.vertcat(x[0] * error[3], ca.sin(error[4]), u[0] * error[5])
    running = numbers(f, residual)
    cost = Cost(f, 2 * ca.sumsqr(residual), 5 * ca.sumsqr(error))
    assert_gauss_newton(cost, run, running, [4.0] * 3, numbers(f, error), [10.0] * f.ndx)


def test_residuals_with_multipliers_of_their_own():
    """y = W rho in the place of W r: J'WJ + sum of y_i r_i'' and what else the cost has, by differences; of a
    running residual and a terminal one, by errors, with rho = r + J dz that a step foresees.
    """
    f = turned_body()
    start = f.retract(f.initial_state(), 0.4 * RNG.standard_normal(f.ndx))
    run = f.rollout(start, RNG.standard_normal((2, 3)))
    x, u = f.symbols.x, f.symbols.u
    bent = ca.vertcat(x[0] * x[4], ca.sin(x[5]) * u[0])
    end = ca.vertcat(x[1] * x[5], ca.cos(x[4]))
    weights, last = np.array([4.0, 6.0]), np.array([1e3, 2e3])

    def squares(r, w):
        return 0.5 * ca.dot(ca.DM(w), r**2)

    cost = Cost(f, squares(bent, weights) + ca.sumsqr(u), squares(end, last) + x[0] ** 2)
    lin, n = f.linearize_trajectory(run), len(run)
    dx, du = 0.1 * RNG.standard_normal((n + 1, f.ndx)), 0.1 * RNG.standard_normal((n, 3))
    exact, convex = cost.expand(run, lin), cost.expand(run, lin, ones(f))
    along, at_end = cost.predicted(exact.slopes, lin, dx, du)
    moved = cost.expand(run, lin, predicted=(along, at_end))
    for other in (convex, moved):
        for mine, theirs in zip(exact.slopes, other.slopes, strict=True):
            for a, b in zip(mine, theirs, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12 * np.abs(b).max())
    running, terminal = numbers(f, bent), numbers(f, end)
    moved_running, moved_terminal = moved_numbers(f, bent), moved_numbers(f, end)
    for k in range(n):

        def r(d, k=k):
            return moved_running(run.x[k], run.u[k], d)

        J, z = differences(r, np.zeros(f.ndx + 3)), np.concatenate([dx[k], du[k]])
        np.testing.assert_allclose(along[k], r(0 * z) + J @ z, rtol=1e-8, atol=1e-9)
        jacobian = partial(differences, r)
        y = weights * (along[k] - r(0 * z))
        more = exact.weights[k] * differences(lambda d, j=jacobian, y=y: y @ j(d), 0 * z, 1e-3)
        H, before = (np.block([[e.lxx[k], e.lxu[k]], [e.lxu[k].T, e.luu[k]]]) for e in (moved, exact))
        np.testing.assert_allclose(H - before, more, atol=1e-6 * (1 + np.abs(more).max()))

    def r_end(d):
        return moved_terminal(run.x[-1], np.zeros(3), np.append(d, np.zeros(3)))

    zero = np.zeros(f.ndx)
    np.testing.assert_allclose(at_end, r_end(zero) + differences(r_end, zero) @ dx[-1], rtol=1e-8)
    y = last * (at_end - r_end(zero))
    more = differences(lambda d: y @ differences(r_end, d), zero, 1e-3)
    np.testing.assert_allclose(moved.lxx[-1] - exact.lxx[-1], more, atol=1e-6 * np.abs(more).max())
    for name in ("lx", "lu"):
        one, other = getattr(moved, name), getattr(exact, name)
        np.testing.assert_allclose(one, other, rtol=1e-12, atol=1e-12 * np.abs(other).max())
    new = f.rollout(run.x[0], run.u + 0.1)
    g, g_end = cost.beyond(exact.slopes, lin, new, dx, du)
    for k in range(n):

        def r(d, k=k):
            return moved_running(run.x[k], run.u[k], d)

        zero, z = np.zeros(f.ndx + 3), np.concatenate([dx[k], du[k]])
        J, there = differences(r, zero), running(new.x[k], new.u[k])
        more = exact.weights[k] * J.T @ (weights * (there - r(zero) - J @ z))
        np.testing.assert_allclose(g[k], more, rtol=1e-6, atol=1e-8 * (1 + np.abs(more).max()))
    J = differences(r_end, np.zeros(f.ndx))
    more = J.T @ (last * (terminal(new.x[-1]) - r_end(np.zeros(f.ndx)) - J @ dx[-1]))
    np.testing.assert_allclose(g_end, more, rtol=1e-6, atol=1e-8 * np.abs(more).max())
    off = [running(new.x[k], new.u[k]) - along[k] for k in range(n)]
    missed = 0.5 * (exact.weights @ np.square(off) @ weights + last @ (terminal(new.x[-1]) - at_end) ** 2)
    assert cost.misprediction_cost(exact.slopes, (along, at_end), new) == pytest.approx(
        missed, rel=1e-12, abs=0
    )
    half = cost.predicted(exact.slopes, lin, dx, du, (along + 1, at_end - 2), 0.25)
    np.testing.assert_allclose(half[0], along + 0.75, rtol=1e-12)
    np.testing.assert_allclose(half[1], at_end - 1.5, rtol=1e-12)
    linear = Cost(f, ca.sumsqr(u), x[0] ** 2)
    slopes = linear.expand(run, lin).slopes
    assert linear.beyond(slopes, lin, new, dx, du) is None
    assert linear.predicted(slopes, lin, dx, du) == (None, None)


def test_what_is_left_over_stays_positive():
    f = midpoint_pendulum()
    x, u = f.symbols.x, f.symbols.u
    cost = Cost(f, u**2 - 3 * ca.cos(x[0]) + x[1] + x[0] * u - 0.2 * x[1] ** 2, ca.cos(x[0]) + x[1] ** 2)
    run = f.rollout([2.5, 0.3], 0.1 * np.ones((3, 1)))
    e = cost.expand(run, f.linearize_trajectory(run), ones(f))
    H = np.block([[e.lxx[:-1], e.lxu], [np.swapaxes(e.lxu, 1, 2), e.luu]])
    for k in range(3):
        rest = np.array([[3 * np.cos(run.x[k, 0]), 0, 1], [0, -0.4, 0], [1, 0, 0]])
        values, vectors = np.linalg.eigh(rest)
        expected = np.diag([0, 0, 2.0]) + vectors @ np.diag(np.abs(values)) @ vectors.T
        np.testing.assert_allclose(H[k] / e.weights[k], expected, rtol=1e-12, atol=1e-12)
    assert np.linalg.eigvalsh(H).min() > 0
    np.testing.assert_allclose(e.lxx[-1], np.diag([abs(np.cos(run.x[-1, 0])), 2]), rtol=1e-12, atol=1e-12)


def test_which_squares_are_found():
    x, c = ca.SX.sym("x", 3), ca.SX.sym("c")
    a, b = ca.sin(x[0]), x[1] * x[2]

    def of(expression):
        found = Squares.of(expression, x)
        weights = ca.diag(found.W)
        entries = {str(r): str(w) for r, w in zip(found.r.nonzeros(), weights.nonzeros(), strict=True)}
        return entries, found.rest

    ways = 3 * a**2, a * 3 * a, a * (a * 3), 6 * a * a / 2, -(-3 * a**2), 2 * a**2 + a * a, 3 * (a * a)
    for expression in ways:
        entries, rest = of(expression)
        assert entries == {"sin(x_0)": "6"} and rest.is_zero(), expression
    assert of(2 * (a**2 + 3 * (b**2 - 7)))[0] == {"sin(x_0)": "4", "(x_1*x_2)": "12"}
    assert of(ca.norm_2(x) ** 2)[0] == {f"x_{i}": "2" for i in range(3)}
    entries, rest = of(a**2 - b**2 + ca.exp(x[0]))
    assert entries == {"sin(x_0)": "2"} and not rest.is_zero()
    entries, rest = of(c**2 + c * a**2)  # a weight that is data, and what is no unknown at all
    assert list(entries) == ["sin(x_0)"] and rest.is_zero()
    weight = ca.Function("w", [c], [Squares.of(c * a**2, x).W])
    assert [float(weight(value)) for value in (2, 0.5, -2)] == [4, 1, 0]


def test_forms_with_whole_weights_are_found():
    """e' W e in every way that CasADi writes it has J'WJ; W that is not semi-definite is left over."""
    x, goal = ca.SX.sym("x", 4), ca.SX.sym("goal", 3)
    e = ca.vertcat(ca.sin(x[0]) + x[1] - goal[0], 3 * (x[1] * x[2] - goal[1]), x[3] - ca.cos(x[2]))
    L = RNG.standard_normal((3, 3))
    J = ca.jacobian(e, x)
    for W in (L @ L.T, L[:, :1] @ L[:, :1].T, L @ np.diag([1, 1, -1]) @ L.T):
        definite = np.linalg.eigvalsh(W)[0] > -1e-12
        for form in (0.5 * ca.dot(e, ca.DM(W) @ e), 0.5 * e.T @ W @ e, ca.bilin(0.5 * ca.DM(W), e, e)):
            found = Squares.of(form + 3 * x[3], x)
            H = ca.jacobian(found.r, x).T @ found.W @ ca.jacobian(found.r, x)
            both = ca.Function("both", [x, goal], [H, J.T @ W @ J, ca.hessian(found.rest, x)[0]])
            got, expected, rest = (o.full() for o in both(*(RNG.standard_normal(n) for n in (4, 3))))
            if definite:
                np.testing.assert_allclose(got, expected, atol=1e-12 * np.abs(expected).max())
                assert not rest.any()
            else:
                assert np.linalg.eigvalsh(got)[0] > -1e-12 and rest.any()
    exact = Squares.of(x[0] ** 2 + x[0] * x[1] + x[1] ** 2 - x[2] * x[3], x)
    by = ca.jacobian(exact.r, x)
    expected = np.zeros((4, 4))
    expected[:2, :2] = [[2, 1], [1, 2]]
    np.testing.assert_allclose(ca.DM(by.T @ exact.W @ by).full(), expected, atol=1e-14)
    assert np.argwhere(ca.DM(ca.hessian(exact.rest, x)[0]).full()).tolist() == [[2, 3], [3, 2]]


def test_multipliers_are_chained():
    f = RailedMap()
    run = f.rollout(0.3 * RNG.standard_normal(f.nx), 0.5 * RNG.standard_normal((4, f.nu)))
    lam = f.quantity("lambda.rail")
    theta = f.quantity("theta")
    cost = Cost(f, ca.sumsqr(f.symbols.u) + 3 * (lam * ca.cos(theta)) ** 2)
    lin = f.linearize_trajectory(run)
    e = cost.expand(run, lin, ones(f))
    at, i = f.multiplier_names.index("rail"), f.state_names.index("theta")
    for k in range(len(run)):
        angle, value = run.x[k, i], run.multipliers[k, at]
        J = np.cos(angle) * np.concatenate([lin.C[k, at], lin.D[k, at]])
        J[i] -= np.sin(angle) * value
        H = 6 * np.outer(J, J)
        H[f.nx :, f.nx :] += 2 * np.eye(f.nu)
        whole = np.block([[e.lxx[k], e.lxu[k]], [e.lxu[k].T, e.luu[k]]]) / e.weights[k]
        np.testing.assert_allclose(whole, H, rtol=1e-12, atol=1e-13)
    assert e.zeta is not None and e.zeta.any()


def test_quadratic_and_its_expression_agree():
    f = vioc.MidpointVI(vioc.models.load("cart_pole"), 0.02)
    run = f.rollout(0.3 * RNG.standard_normal(4), 0.5 * RNG.standard_normal((5, 1)))
    by_name = quadratic(f, Q={"v.theta": 2, "x": 1}, R=0.1, Qf={"energy": 3}, goal={"energy": 0.4})
    v, x, energy = (f.quantity(n) for n in ("v.theta", "x", "energy"))
    written = Cost(f, v**2 + x**2 / 2 + 0.05 * ca.sumsqr(f.symbols.u), 1.5 * (energy - 0.4) * (energy - 0.4))
    again = pickle.loads(pickle.dumps(written))
    lin = f.linearize_trajectory(run)
    models = [c.expand(run, lin, ones(f)) for c in (by_name, written, again)]
    for other in models[1:]:
        for name in ("lx", "lu", "lxx", "lxu", "luu"):
            one, two = getattr(models[0], name), getattr(other, name)
            np.testing.assert_allclose(one, two, rtol=1e-12, atol=1e-12)
    exact = by_name.expand(run, lin)
    assert not np.allclose(exact.lxx[-1], models[0].lxx[-1], rtol=1e-3)


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
def test_compiled_gives_the_same():
    system = vioc.models.load("double_pendulum")
    maps = [vioc.MidpointVI(system, 0.01, backend=b) for b in ("virtual", "compiled")]
    run = maps[0].rollout(0.3 * np.ones(maps[0].nx), steps=3)
    lin = maps[0].linearize_trajectory(run)
    for sizes in (ones(maps[0]), None):
        one, two = (
            Cost(f, f.quantity("energy") ** 2, ca.cos(f.symbols.x[0])).expand(run, lin, sizes) for f in maps
        )
        for name in ("lx", "lu", "lxx", "luu"):
            a, b = getattr(one, name), getattr(two, name)
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


# -- velocities by the derivatives of M v = p ------------------------------------------------------------


def velocity_expressions(kind):
    """A map and a scalar of its velocities, whose nodes cost derivatives know."""
    f = {
        "arm": seven_joints,
        "loop": lambda: vioc.MidpointVI(vioc.models.load("closed_chain"), 0.01),
        "kinematic": driven_chain,
        "parameters": lambda: driven_chain().with_parameters(m=0.3),
    }[kind]()
    v = ca.vertcat(*(f.quantity(f"v.{name}") for name in f.system.dynamic))
    x = f.symbols.x
    return f, ca.sumsqr(v) + ca.sin(x[0]) * v[1] ** 3 + f.quantity("kinetic") * ca.exp(v[0] * x[1]), v


@cache
def driven_chain():
    m = vioc.P("m", 0.7)
    tip = vioc.ry("c", mass=Mass(m, (0.1, 0.2, 0.3), (0.1, 0.2, -0.5)))
    middle = vioc.rx("b", mass=Mass(1.0, (0.3, 0.2, 0.1), (0.0, 0.1, -0.4)))
    top = vioc.rz("a", mass=Mass(2.0, (0.1, 0.1, 0.2), (0.3, 0.0, -0.1)))
    slide = vioc.tx(vioc.K("s"))
    bodies = top[vioc.tz(-0.7)[middle[vioc.tz(-1.0)[tip]]]]
    return vioc.MidpointVI(System(slide[bodies], vioc.Gravity(0, 0, -9.81)), 0.01)


@pytest.mark.parametrize("kind", ["arm", "loop", "kinematic", "parameters"])
def test_derivatives_of_velocities_are_those_of_the_elimination(kind):
    """CasADi's own, through the elimination written out, is the other route."""
    f, scalar, v = velocity_expressions(kind)
    assert (
        f.mechanism.implicit.lifted(scalar) is not None and f.mechanism.implicit.lifted(f.symbols.x) is None
    )
    x, u, theta = f.symbols.x, f.symbols.u, f.symbols.parameters
    gradient, hessian = error_expansion(f, scalar, u)
    along_gradient, d, along = error_curvature(f, scalar, u)
    H, g = ca.hessian(scalar, ca.vertcat(x, u))
    J, K = error_jacobian(f, v, u), ca.jacobian(v, ca.vertcat(x, u))
    pairs = ca.Function(
        "pairs", [x, u, theta, d], [gradient, g, along_gradient, g, hessian, H, along, H @ d, J, K]
    )
    for _ in range(5):
        values = [0.5 * RNG.standard_normal(n) for n in (f.nx, f.nu)]
        found = [o.full() for o in pairs(*values, f.theta, RNG.standard_normal(f.nx + f.nu))]
        for one, two in zip(found[::2], found[1::2], strict=True):
            np.testing.assert_allclose(one, two, rtol=0, atol=1e-12 * np.abs(two).max())


def test_a_cost_of_velocities_knows_them_after_a_trip_through_functions():
    """Unpickled, with references, and with penalties around it: still short."""
    f = seven_joints()
    cost = arm_cost(f)[0]
    again = pickle.loads(pickle.dumps(cost))
    reference = ca.SX.sym("reference", again.reference_size)
    for c in (cost, again):
        part = c.running_squares(*c.map.symbols, reference)
        implicit = c.map.mechanism.implicit
        lifted = implicit.lifted(part.r)
        assert lifted is not None
        assert (
            ca.Function(
                "r", [c.map.symbols.x, c.map.symbols.u, c.map.mechanism.implicit.w], [lifted]
            ).n_instructions()
            < 60
        )
    run = f.rollout(f.initial_state(START), np.ones((3, 7)))
    values = []
    for g in (
        f,
        vioc.MidpointVI(vioc.models.seven_joint_arm(), 0.01),
    ):  # at the symbols of another map of the arm too
        args = [*g.symbols, reference]
        value = ca.Function("value", args, [cost.running_squares(*args).value])
        values.append(float(value(run.x[2], run.u[2], [], f.theta, f.dt, [])))
    assert values[1] == pytest.approx(values[0], rel=1e-12)
    lin = f.linearize_trajectory(run)
    for sizes in (None, ones(f)):
        one, two = (c.expand(run, lin, sizes) for c in (cost, again))
        np.testing.assert_allclose(one.lxx, two.lxx, rtol=1e-12, atol=1e-12)
