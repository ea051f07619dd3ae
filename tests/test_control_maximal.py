"""Optimal control on maps whose errors are not differences of states: `MaximalVI` and its quaternions."""

from functools import cache
from itertools import pairwise

import casadi as ca
import numpy as np
import pytest
from support.control_maps import cart_pole

import vioc
from vioc import Gravity, JointForce, Mass, MaximalVI, MidpointVI, System, ry, tx, tz
from vioc.control import Cost, check_derivatives, dlqr, feedback, optimize, quadratic, riccati, straight_line

# inside: weights by name as matrices of errors, which costs only use
from vioc.control.linear.weights import error_weights
from vioc.errors import ModelError

WEIGHTS = {"x": 0.1, "th": 0.1, "vx.cart": 0.01, "wy.pole": 0.01}  # entries of the state are quick to derive
END = {name: 100 * w for name, w in WEIGHTS.items()}
MINIMAL = {"x": 0.1, "th": 0.1, "v.x": 0.01, "v.th": 0.01}


def system():
    """A cart with a pole, upright at th = 0."""
    pole = ry("th", name="pole", mass=Mass(0.3, (0.01, 0.01, 0.001), (0, 0, 0.5)))
    cart = tx("x", name="cart", mass=Mass(1.0, (0.1, 0.1, 0.1)))
    return System(cart[pole], Gravity(0, 0, -9.81), JointForce("x", "force"))


@pytest.fixture(scope="module")
def moving():
    f = MaximalVI(system(), 0.04)
    u = 2 * np.random.default_rng(0).standard_normal((12, 1))
    return f, f.rollout(f.initial_state({"th": 0.7}, {"x": 0.3}), u)


@pytest.fixture(scope="module")
def costs(moving):
    return make_costs(*moving)


def make_costs(f, run):
    """One by quantities, multipliers among them, one by the whole state and references."""
    Q = np.diag(np.linspace(1, 2, f.ndx))
    Q[3, 15] = Q[15, 3] = 0.5
    still = np.tile(f.initial_state({"x": 0.1, "th": 0.3}), (len(run) + 1, 1))
    pull = f.multiplier_names[0]
    return [
        quadratic(
            f, Q={**WEIGHTS, f"force.{pull}": 1e-3}, R=0.01, Qf={"v.th": 1.0, "x": 2.0}, goal={"x": 0.2}
        ),
        quadratic(f, Q=Q, R=0.01, Qf=3.0, reference=still),
    ]


def test_derivatives_along_a_trajectory(moving, costs):
    _, run = moving
    for cost in costs:
        for check in check_derivatives(cost, run):
            assert check.error < 1e-7, str(check)
            assert np.isnan(check.slope) or check.slope > 1.5, str(check)


def test_gradient_and_hessian_at_one_sample_by_differences(moving, costs):
    """By the cost's values alone, at states moved by `retract`."""
    f, run = moving
    e, cost = 1e-4, costs[1]
    expansion = cost.expand(run, f.linearize_trajectory(run))
    for k, i, j in ((0, 4, 4), (5, 3, 15), (12, 10, 9), (12, 5, 3)):

        def value(a, b, k=k, i=i, j=j):
            x, dx = run.x.copy(), np.zeros(f.ndx)
            dx[i] += a
            dx[j] += b
            x[k] = f.retract(x[k], dx)
            return cost.value(vioc.Trajectory(f, run.t, x, run.u, run.multipliers))

        slope = (value(e, 0) - value(-e, 0)) / (2 * e)
        curve = (value(e, e) - value(e, -e) - value(-e, e) + value(-e, -e)) / (4 * e * e)
        assert expansion.lx[k, i] == pytest.approx(slope, abs=1e-8)
        assert expansion.lxx[k, i, j] == pytest.approx(curve, abs=2e-6)


def test_long_hessians_by_columns_are_the_same(moving, costs, monkeypatch):
    f, run = moving
    lin = f.linearize_trajectory(run)
    for whole, again in zip(costs, make_costs(f, run), strict=True):
        direct = whole.expand(run, lin)
        monkeypatch.setattr("vioc.control.costs.functions.LONG", 0)
        columns = again.expand(run, lin)
        for a, b in ((getattr(e, n) for e in (direct, columns)) for n in ("lxx", "lxu", "luu")):
            np.testing.assert_allclose(a, b, rtol=0, atol=1e-12 * (1 + np.abs(b).max(initial=0.0)))
        monkeypatch.undo()


def test_weights_of_the_whole_state_are_of_the_difference(moving):
    f, run = moving
    rng = np.random.default_rng(1)
    L = rng.standard_normal((f.ndx, f.ndx))
    X = f.retract(run.x, 0.3 * rng.standard_normal((len(run) + 1, f.ndx)))
    cost = quadratic(f, Q=L @ L.T, Qf=2.0, reference=X)
    d = f.difference(X, run.x)
    expected = 0.04 * 0.5 * np.sum((d[:-1] @ L) ** 2) + d[-1] @ d[-1]
    assert cost.value(run) == pytest.approx(expected, rel=1e-12)
    # near the reference the Hessian is the weight
    at = quadratic(f, Q=L @ L.T, Qf=2.0, reference=run.x, per_time=False)
    lxx = at.expand(run, f.linearize_trajectory(run)).lxx
    np.testing.assert_allclose(lxx[3], L @ L.T, atol=1e-9)


def test_quantities_follow_reference_states(moving):
    f, run = moving
    still = np.tile(f.initial_state({"x": 0.1, "th": 0.3}), (len(run) + 1, 1))
    cost = quadratic(f, Q={"th": 2.0, "x": 1.0}, reference=still, per_time=False)
    expected = 0.5 * np.sum(2 * (run["th"] - 0.3)[:-1] ** 2 + (run["x"] - 0.1)[:-1] ** 2)
    assert cost.value(run) == pytest.approx(expected, rel=1e-12)


def test_the_optimum_is_that_of_minimal_coordinates_as_dt_goes_to_zero():
    gaps, maps = [], [(MidpointVI(system(), 0.02), MINIMAL), (MaximalVI(system(), 0.02), WEIGHTS)]
    for dt in (0.02, 0.01):
        found = []
        for built, weights in maps:
            f = built.with_dt(dt)
            cost = quadratic(f, Q=weights, R=0.01, Qf={n: 100 * w for n, w in weights.items()})
            line = straight_line(f.initial_state({"th": 0.3}), f.initial_state(), round(0.8 / dt), f)
            found.append(optimize(f, cost, (line, None), method="projection"))
        a, b = found
        gaps.append([abs(a.cost - b.cost) / a.cost, np.abs(a.trajectory["th"] - b.trajectory["th"]).max()])
    assert b.history.method[-1] == "newton" and abs(b.history.descent[-1]) < 1e-6
    assert b.history.shift[-1] == 0
    ratios = np.divide(*gaps)
    assert gaps[1][0] < 5e-3
    np.testing.assert_allclose(ratios, 4, atol=0.6)  # of second order, with the same inputs


def test_angles_known_modulo_a_turn_take_the_short_way():
    """A pendulum that swings up to pi, where the quantity's values jump to -pi."""
    rod = ry("a", name="rod", mass=Mass(1.0, (1 / 12, 1 / 12, 0.001), (0, 0, -0.5)))
    f = MaximalVI(System(rod, Gravity(0, 0, -9.81), JointForce("a", "torque")), 0.05)
    ends = dict(Q={"a": 1.0}, R=0.1, Qf={"a": 100.0, "wy.rod": 10.0}, goal={"a": np.pi}, wrap="a")
    up = [optimize(f, quadratic(f, **ends), x0=f.initial_state({"a": a}), steps=50) for a in (-3.0, 3.0)]
    assert up[0].cost == pytest.approx(up[1].cost, rel=1e-6)  # by symmetry
    assert abs(abs(up[0].trajectory["a"][-1]) - np.pi) < 1e-2
    for other, told in (("b", "wrap: unknown name 'b'"), ("z.rod", "wrap: 'z.rod' has no weight")):
        with pytest.raises(ValueError, match=told):
            quadratic(f, **{**ends, "wrap": ("a", other)})


def three_link_loop():
    """Uniform rods and a ground link of 1 m, with a motor at the first crank."""

    def rod(length):  # of 1 kg/m
        J = length**3 / 12
        return Mass(length, (J, J, 0.0), (0, 0, length / 2))

    a, b, c = 1.0, np.sqrt(0.5), 1.0
    second = tz(a)[ry("b", mass=rod(b))[tz(b, name="tip")]]
    return System(
        ry("a", mass=rod(a))[second],
        tx(1.0)[ry("c", mass=rod(c))[tz(c, name="top")]],
        vioc.coincident("tip", "top", "xz", name="pin"),
        Gravity(0, 0, -9.81),
        JointForce("a", "motor"),
        name="three-link loop",
    )


def test_loops_are_nothing_special():
    """A three-link loop with a motor: one degree of freedom, two directions of its tangent space."""
    found = []
    motor = three_link_loop()
    start = vioc.consistent_configuration(motor, {"a": 0.6, "b": 1.2, "c": 0.4}, fixed="a").q
    for kind in (MidpointVI, MaximalVI):
        f = kind(motor, 0.02)
        cost = quadratic(f, Q={"a": 1.0}, R=0.01, Qf={"a": 20.0}, goal={"a": 0.9})
        found.append(optimize(f, cost, x0=f.initial_state(start), steps=20))
    a, b = (best.trajectory for best in found)
    assert found[1].cost == pytest.approx(found[0].cost, rel=0.05)
    assert np.abs(a["a"] - b["a"]).max() < 0.01
    assert feedback.tangent_bases(f, b).shape == (21, f.ndx, 2)


def test_projection_of_a_line_of_states(moving):
    f, _ = moving
    start, goal = f.initial_state({"th": 0.2}), f.initial_state()
    line = straight_line(start, goal, 25, f)
    np.testing.assert_allclose(np.linalg.norm(line[:, 10:14], axis=1), 1.0, atol=1e-15)
    np.testing.assert_allclose(f.difference(line[-1], goal), 0, atol=1e-15)
    firm = {n: 30 * w for n, w in WEIGHTS.items()}  # one minimum: the pole stays up
    cost = quadratic(f, Q=firm, R=0.01, Qf={n: 30 * w for n, w in END.items()})
    best = optimize(f, cost, (line, None))
    again = optimize(f, cost, (line, None), method="projection", direction="gauss-newton")
    assert again.cost == pytest.approx(best.cost, rel=1e-6)


# -- a free body turns about a principal axis -----------------------------------------------------------

INERTIA, ANGLE, SECONDS, WEIGHT = (1.0, 2.0, 3.0), 2.0, 2.0, 500.0


@cache
def turned():
    body = vioc.free("j", "xyz", frame="body", mass=Mass(1.5, INERTIA))
    return MaximalVI(System(body, *vioc.wrench_inputs("body", mx="t1", my="t2", mz="t3")), 0.1)


def turn(dt):
    """The least effort that turns a body by ANGLE about its second axis, at rest before and after."""
    f = turned().with_dt(dt)
    start = f.retract(f.initial_state(), [0, 0, 0, 0.4, -0.7, 0.9, *np.zeros(6)])
    goal = f.retract(start, [0, 0, 0, 0, ANGLE, 0, *np.zeros(6)])
    cost = quadratic(f, Qf=WEIGHT, R=1.0, reference=goal)
    guess = np.tile([0.3, 0.0, -0.2], (round(SECONDS / dt), 1))  # off the axis
    return optimize(f, cost, guess, x0=start, tolerance=1e-10), goal


def test_turn_about_a_principal_axis_is_that_of_the_double_integrator():
    """Closed form: 1/2 d'(1/W + G)^-1 d with the Gramian G of J th'' = tau, d = (ANGLE, 0)."""
    J, T = INERTIA[1], SECONDS
    gramian = np.array([[T**3 / 3, T**2 / 2], [T**2 / 2, T]]) / J**2
    pull = np.linalg.solve(np.eye(2) / WEIGHT + gramian, [ANGLE, 0.0])
    exact = 0.5 * ANGLE * pull[0]
    assert exact == pytest.approx(6 * J**2 * ANGLE**2 / T**3, rel=0.05)  # what W = infinity makes of it
    errors = []
    for dt in (0.1, 0.05, 0.025):
        best, goal = turn(dt)
        run, f = best.trajectory, best.trajectory.map
        t = run.t[:-1]
        torque = (pull[0] * (T - t) + pull[1]) / J
        assert np.abs(run.u[:, [0, 2]]).max() < 1e-4
        assert np.abs(run.u[:, 1] - torque).max() < 3 * dt * np.abs(torque).max()
        assert np.abs(f.difference(run.x[-1], goal)).max() < 0.05
        np.testing.assert_allclose(np.linalg.norm(run.x[:, 3:7], axis=1), 1, atol=1e-12)
        errors.append(best.cost - exact)
    assert abs(errors[-1]) < 1e-3 * exact
    first = [2 * fine - coarse for coarse, fine in pairwise(errors)]
    assert abs(4 * first[1] - first[0]) / 3 < 1e-4 * exact  # errors are c1 dt + c2 dt^2: Richardson's limit


# -- feedback ------------------------------------------------------------------------------------------


def test_regulator_is_that_of_minimal_coordinates():
    """By other coordinates: the same weights on quantities, poles to O(dt^2), inputs to O(dt)."""
    weights, gaps = {"x": 10.0, "th": 100.0, "v.x": 1.0, "v.th": 1.0}, []
    maps = MidpointVI(system(), 0.01), MaximalVI(system(), 0.01)
    for dt in (0.01, 0.005):
        m, f = (built.with_dt(dt) for built in maps)
        y = ca.vertcat(*(m.quantity(n) for n in weights))
        J = ca.Function("J", [m.symbols.x], [ca.jacobian(y, m.symbols.x)])(m.initial_state()).full()
        own = dlqr(m, (m.initial_state(), [0.0]), J.T @ np.diag(list(weights.values())) @ J, 0.01 / dt)
        loop = dlqr(f, (f.initial_state(), [0.0]), weights, 0.01 / dt)
        a, b = (np.sort_complex(np.log(np.sort_complex(r.poles)[-4:]) / dt) for r in (own, loop))
        gaps.append(np.abs(a - b).max())
        assert np.sort(np.abs(loop.poles))[-5] < 1e-6  # directions off the constraints, and what is not seen
        x, z = f.initial_state({"x": 0.02, "th": 0.01}), m.initial_state({"x": 0.02, "th": 0.01})
        u = [r.rollout(s, 1).u[0, 0] for r, s in ((loop, x), (own, z))]
        assert u[0] == pytest.approx(u[1], rel=10 * dt)
        reduced = dlqr(
            f,
            (f.initial_state(), [0.0]),
            error_weights(f, weights, "Q", f.initial_state()[None])[0],
            0.01 / dt,
            manifold=True,
        )
        np.testing.assert_allclose(
            np.sort(np.abs(reduced.poles)), np.sort(np.abs(loop.poles))[-4:], rtol=1e-6
        )
        caught = loop.rollout(f.initial_state({"x": 0.3, "th": 0.4}), round(6 / dt))
        assert abs(caught["th"][-1]) < 1e-3
    assert gaps[0] / gaps[1] == pytest.approx(4, abs=1)


def test_bases_hold_what_the_map_can_do(moving):
    f, run = moving
    T = feedback.tangent_bases(f, run)
    A, B = f.linearize_trajectory(run)
    assert T.shape == (13, f.ndx, 4)
    reduced, _ = feedback.restrict(A, B, T)
    whole, part = np.linalg.multi_dot(A[9:2:-1]), np.linalg.multi_dot(reduced[9:2:-1])
    np.testing.assert_allclose(T[10].T @ whole @ T[3], part, atol=1e-10)
    q, v = f.minimal(run.x[4])
    moved = f.initial_state(q + [0.0, 1e-6], v)  # a motion of the joints stays in the space
    dx = f.difference(f.initial_state(q, v), moved)[:12] / 1e-6
    np.testing.assert_allclose(T[4][:12] @ (T[4][:12].T @ dx), dx, atol=1e-5)
    assert "4 of 4 directions" in str(vioc.control.controllability(f, run))


def test_optimum_is_stabilized_and_held(moving):
    f, _ = moving
    line = straight_line(f.initial_state({"th": 0.5}), f.initial_state(), 50, f)
    best = optimize(f, quadratic(f, Q=WEIGHTS, R=0.01, Qf=END), (line, None))
    loop = best.stabilize({"x": 10, "th": 100, "v.x": 1, "v.th": 1}, 0.1)
    start = f.initial_state({"th": 0.6, "x": 0.1})
    ends = [abs(r["th"][-1]) for r in (loop.rollout(start), f.rollout(start, best.trajectory.u))]
    assert ends[0] < 0.05 < ends[1]
    assert abs(loop.hold(f.initial_state(), [0.0]).rollout(start, 200)["x"][-1]) < 1e-2


# -- what is refused -------------------------------------------------------------------------------------


def test_refusals(moving):
    f, run = moving
    with pytest.raises(ValueError, match=r"Q: a weight on the whole state needs .*'x.cart' has no value"):
        quadratic(f, Q=1.0, R=1.0)
    with pytest.raises(ValueError, match=r"Q: expected shape \(24,\)"):
        quadratic(f, Q=np.ones(26), reference=run.x)
    with pytest.raises(ModelError, match="Q: unknown name 'theta'"):
        dlqr(f, (f.initial_state(), [0.0]), {"theta": 1.0}, 1.0)
    with pytest.raises(ValueError, match=r"Q: 'u.force' belongs to a step"):
        dlqr(f, (f.initial_state(), [0.0]), {"u.force": 1.0}, 1.0)

    class Silent(type(cart_pole())):
        ndx = 3

    other = cart_pole()
    other.__class__ = Silent
    other.ndx = 3
    with pytest.raises(ValueError, match="define retract_expression"):
        Cost(other, ca.sumsqr(other.symbols.x)).expand(other.rollout(np.zeros(4), steps=2), None)


def test_steady_costs_and_covariances_are_those_of_their_recursions():
    """Of maximal coordinates, whose A is singular and far from normal, an ordered pencil has no digits."""
    arm = vioc.ry("a", name="up", mass=(1.0, 0.1, 0.1, 0.1))[
        vioc.tz(-0.5)[vioc.ry("b", name="low", mass=(0.7, 0.05, 0.05, 0.05))]
    ]
    parts = vioc.Gravity(0, 0, -9.81), vioc.JointForce("a", "one"), vioc.JointForce("b", "two")
    f = vioc.MaximalVI(vioc.System(arm, *parts), 0.05)
    x, u = f.initial_state(), np.zeros(2)
    A, B = f.linearize(x, u)
    loop = dlqr(f, (x, u), 1.0, 1.0)
    _, P = riccati(
        np.tile(A, (1000, 1, 1)), np.tile(B, (1000, 1, 1)), np.eye(f.ndx), np.eye(2), np.eye(f.ndx)
    )
    np.testing.assert_allclose(loop.P, P[0], rtol=0, atol=1e-8 * np.abs(P[0]).max())
    sensors = feedback.Measurement(f, {"a": 1e-4, "b": 1e-4})
    filtered = feedback.kalman(f, (x, u), sensors, 1e-6)
    C, before = sensors.jacobian(x), np.eye(f.ndx)
    for _ in range(1000):
        L = before @ C.T @ np.linalg.inv(C @ before @ C.T + sensors.V)
        before = A @ (before - L @ C @ before) @ A.T + 1e-6 * np.eye(f.ndx)
    np.testing.assert_allclose(filtered.before[0], before, rtol=0, atol=1e-8 * np.abs(before).max())
    moving = f.initial_state({"a": 0.3}, {"a": 1.0})
    with pytest.raises(ValueError, match="is not an equilibrium"):
        feedback.kalman(f, (moving, u), sensors, 1e-6)
