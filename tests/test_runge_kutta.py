"""Runge-Kutta maps: orders, invariants, exact derivatives, constraints, and what they share."""

from __future__ import annotations

import pickle
from dataclasses import dataclass

import casadi as ca
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from scipy.interpolate import CubicSpline
from support.mechanisms import G, everything, hold, pendulum, state_near
from support.strategies import systems

import vioc
from vioc import (
    Continuous,
    DistanceConstraint,
    Gravity,
    JointDamping,
    JointForce,
    K,
    LinearSpring,
    Mass,
    MidpointVI,
    RungeKutta,
    System,
    Tableau,
    TorsionalSpring,
    reference_solution,
    rx,
    ry,
    rz,
    tx,
    tz,
)
from vioc.components import Force

# inside: every named method is tried, off their table
from vioc.dynamics.integrators.tableau import METHODS
from vioc.errors import FileFormatError, ModelError, StepError

ORDERS = {"euler": 1, "semi-implicit-euler": 1, "heun": 2, "rk4": 4, "implicit-midpoint": 2}
GAMMA = (3 + np.sqrt(3)) / 6
CROUZEIX = Tableau([[GAMMA, 0], [1 - 2 * GAMMA, GAMMA]], [1 / 2, 1 / 2])  # two implicit stages, order 3
few = settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])


@dataclass(frozen=True, repr=False)
class Shaking(Force):
    """A force of time alone."""

    def generalized(self, k):
        return {"a": ca.sin(5 * k.t) + 0.3 * k.v("a") * k.t}


def arm():
    """A double pendulum with damping, an input and a force that depends on time."""
    return System(
        rx("a")[tz(-1.0, mass=1.0)[rx("b")[tz(-1.0, mass=0.5)]]],
        Gravity(0, 0, -9.81),
        JointDamping("a", 0.3),
        JointDamping("b", 0.2),
        JointForce("a", "torque"),
        Shaking(),
    )


def rod(mass=2.0):
    """A pendulum in Cartesian coordinates."""
    return System(
        tx("x")[tz("z", name="bob", mass=mass)],
        Gravity(0, 0, -9.81),
        DistanceConstraint("world", "bob", 1.0, name="rod"),
    )


def slope(steps, errors):
    return -np.polyfit(np.log(steps), np.log(errors), 1)[0]


# -- accuracy ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("method", "order"), [*ORDERS.items(), pytest.param(CROUZEIX, 3, id="crouzeix")])
def test_order_of_convergence(method, order):
    q, v, torque = [0.5, 1.0], [0.4, -1.0], np.array([[2.0], [-1.0], [0.5], [1.5]])
    exact = reference_solution(arm(), q, v, np.linspace(0, 1, 5), torque)  # held over quarters
    steps = 2 ** (np.arange(4, 8) if order == 4 else np.arange(6, 10))
    errors = []
    built = RungeKutta(arm(), 1.0, method)
    for n in steps:
        f = built.with_dt(1 / n)
        run = f.rollout(f.initial_state(q, v), np.repeat(torque, n // 4, axis=0))
        errors.append(np.abs(run.x[-1] - [*exact.q[-1], *exact.v[-1]]).max())
    assert slope(steps, errors) == pytest.approx(order, abs=0.2)


@pytest.mark.parametrize("method", ["rk4", "implicit-midpoint"])
def test_constrained_order(method):
    q, v = [0.6, -0.8], [0.8, 0.6]
    exact = reference_solution(rod(), q, v, [0.0, 1.0])
    steps = 2 ** np.arange(4, 8)
    errors = []
    built = RungeKutta(rod(), 1.0, method)
    for n in steps:
        f = built.with_dt(1 / n)
        run = f.rollout(f.initial_state(q, v), steps=n)
        errors.append(np.abs(run.x[-1] - [*exact.q[-1], *exact.v[-1]]).max())
    assert slope(steps, errors) == pytest.approx(ORDERS[method], abs=0.2)


def carried():
    """A pendulum under a prescribed trolley."""
    return System(Gravity(0, 0, -G), tx(K("trolley"))[ry("theta")[tz(-1.0, mass=1.0)]])


def test_moving_kinematic_variables_are_second_order_and_agree_with_the_variational_map():
    path = CubicSpline(np.linspace(0, 1, 6), [0, 0.3, 0.1, -0.4, 0.2, 0.0])
    exact = reference_solution(carried(), {"theta": 0.4}, None, [0.0, 1.0], kinematic={"trolley": path})
    p = exact.v[-1, 0] + np.cos(exact.q[-1, 0]) * -exact.v[-1, 1]  # dL/d(dtheta), m = l = 1
    steps = 2 ** np.arange(5, 10)
    rows = {"rk4": [], "heun": [], "vi": []}
    maps = {n: MidpointVI(carried(), 1.0) if n == "vi" else RungeKutta(carried(), 1.0, n) for n in rows}
    for n in steps:
        for name, errors in rows.items():
            f = maps[name].with_dt(1 / n)
            start = f.initial_state({"theta": 0.4}, {"trolley": float(path(0, 1))})
            run = f.rollout(start, f.inputs(n, rho_trolley=path))
            errors.append([abs(run["theta"][-1] - exact["theta"][-1]), abs(run["p.theta"][-1] - p)])
    for errors in rows.values():
        for column in np.transpose(errors):
            assert slope(steps, column) == pytest.approx(2, abs=0.2)


def test_a_jump_of_the_trolley_keeps_the_momentum_of_the_pendulum():
    f = RungeKutta(carried(), 1e-9)
    x = f.state({"theta": 0.4, "v.theta": 0.3, "v.trolley": 1.0})
    run = f.rollout(x, f.inputs(1, rho_trolley=-2e-9))
    assert run["v.trolley"][1] == pytest.approx(-2.0)
    assert run["v.theta"][1] == pytest.approx(0.3 + np.cos(0.4) * -3.0, rel=1e-6)
    assert run["p.theta"][1] == pytest.approx(run["p.theta"][0], abs=1e-7)


def test_a_pulled_string_reports_the_impulse_of_its_jump():
    # a bob hangs on a string whose upper end is jerked: the string gives the bob its velocity
    system = System(
        tz(K("hand"), name="hand"), tz("z", name="bob", mass=2.0), DistanceConstraint("hand", "bob", 1.0)
    )
    f = RungeKutta(system, 1e-3)
    x = f.initial_state({"hand": 0.0, "z": -1.0})
    run = f.rollout(x, f.inputs(1, rho_hand=0.002))
    np.testing.assert_allclose(run["v.z"][1], 2.0, rtol=1e-12)
    # p + ... - Dh' lambda = 0 with Dh = 2 (z - hand) = -2: the impulse m v = 4 on the bob
    np.testing.assert_allclose(run.multipliers[0], [2 * 2.0 / 2], rtol=1e-9)


def test_small_steps_of_every_method_and_of_the_variational_map_agree():
    system, x = everything(), None
    ends = []
    for f in (MidpointVI(system, 1e-4), *(RungeKutta(system, 1e-4, m) for m in METHODS)):
        x = state_near(f, 3)
        run = f.rollout(x, hold(f, x), steps=1000)
        ends.append([run[n][-1] for n in (*system.dynamic, "v.a", "v.b", "v.c", "energy")])
    first_order = [list(METHODS).index(m) + 1 for m in ("euler", "semi-implicit-euler")]
    for i, end in enumerate(ends):
        np.testing.assert_allclose(end, ends[0], atol=5e-4 if i in first_order else 1e-7)


# -- invariants --------------------------------------------------------------------------------------


def test_implicit_midpoint_keeps_quadratic_invariants():
    spring = LinearSpring("world", "bob", 3.0)  # of zero rest length: energy is quadratic
    system = System(tx("x")[tz("z", name="bob", mass=2.0)], spring)

    def drift(method):
        f = RungeKutta(system, 0.1, method)
        run = f.rollout(f.initial_state([1.0, 0.2], [-0.3, 0.8]), steps=2000)
        turning = run["x"] * run["p.z"] - run["z"] * run["p.x"]
        return np.ptp(run.energy), np.ptp(turning)

    assert max(drift("implicit-midpoint")) <= 1e-11
    assert min(drift("rk4")) > 1e-7


def test_which_methods_are_symplectic():
    f = {m: RungeKutta(vioc.models.load("n_link_pendulum", 1), 0.1, m) for m in METHODS}
    x = next(iter(f.values())).initial_state([0.5], [0.7])
    area = {m: abs(np.linalg.det(g.linearize(x).A) - 1) for m, g in f.items()}
    assert max(area["implicit-midpoint"], area["semi-implicit-euler"]) <= 1e-12
    assert min(area["euler"], area["heun"], area["rk4"]) > 1e-7


def test_constraints_drift_where_the_variational_map_keeps_them():
    q, v = [0.6, -0.8], [0.8, 0.6]
    drift = {}
    for f in (RungeKutta(rod(), 0.02), RungeKutta(rod(), 0.01), MidpointVI(rod(), 0.02)):
        run = f.rollout(f.initial_state(q, v), steps=round(10 / f.dt))
        drift[type(f).__name__, f.dt] = np.abs(run["h.rod"]).max()
    assert drift["MidpointVI", 0.02] <= 1e-12
    assert drift["RungeKutta", 0.02] > 1e-8
    assert 8 < drift["RungeKutta", 0.02] / drift["RungeKutta", 0.01] < 64  # order 4 or 5


def test_multipliers_are_the_impulses_of_the_variational_map():
    q, v = [0.6, -0.8], [0.8, 0.6]
    f, g = RungeKutta(rod(), 1e-3), MidpointVI(rod(), 1e-3)
    a, b = (m.rollout(m.initial_state(q, v), steps=100) for m in (f, g))
    exact = Continuous(rod()).forward(a.x[:, :2], a.x[:, 2:]).multipliers[:, 0]
    np.testing.assert_allclose(a["force.rod"], (exact[1:] + exact[:-1]) / 2, rtol=1e-5)
    np.testing.assert_allclose(a["lambda.rod"][1:], b["lambda.rod"][1:], rtol=2e-3)


# -- derivatives -------------------------------------------------------------------------------------


def casadi_route(f, x, u, k):
    """First and second derivatives of (x_next, multipliers) by CasADi's AD of the whole step.

    It goes through the LU factors of every stage and, of implicit ones, through the root finder; the
    equations of the stages and the chain of `StageDerivatives` take no part.
    """
    n = f.nx + f.nu + len(f.parameters)
    w, weights = ca.MX.sym("w", n), ca.MX.sym("weights", f.nx + f.nm)
    parts = [w[: f.nx], w[f.nx : f.nx + f.nu], w[f.nx + f.nu :]]
    out = ca.vertcat(*f.full_step(*parts[:2], k * f.dt, f.dt, parts[2])[:2])
    first = ca.jacobian(out, w)
    second = ca.jacobian(ca.jacobian(ca.dot(weights, out), w).T, w)
    return ca.Function("route", [w, weights], [first, second])


@few
@given(
    system=st.one_of(
        systems(max_frames=4, forced=True, parameters=True),
        systems(max_frames=5, forced=True, constrained=True, kinematic=True),
    ),
    method=st.sampled_from([*METHODS, CROUZEIX]),
    seed=st.integers(0, 2**32 - 1),
)
def test_derivatives_agree_with_casadis_of_the_whole_step(system, method, seed):
    f = RungeKutta(system, 0.02, method)
    x = state_near(f, seed)
    assume(x is not None)
    random = np.random.default_rng(seed)
    u = hold(f, x, seed)
    u[len(system.inputs) :] += 0.01 * random.normal(size=f.nk)
    try:
        lin = f.linearize(x, u, 3)
    except StepError:
        assume(False)
    z, zeta = random.normal(size=f.nx), random.normal(size=f.nm)
    point = np.concatenate([x, u, f.theta])
    first, second = (np.array(o) for o in casadi_route(f, x, u, 3)(point, np.concatenate([z, zeta])))
    ours = np.block([[lin.A, lin.B, lin.P], [lin.C, lin.D, lin.E]])
    assert np.abs(ours - first).max() <= 1e-9 * (1 + np.abs(first).max())
    H = f.second_order(x, u, z, 3, zeta=zeta)
    whole = np.block([[H.xx, H.xu, H.xp], [H.xu.T, H.uu, H.up], [H.xp.T, H.up.T, H.pp]])
    assert np.abs(whole - second).max() <= 1e-8 * (1 + np.abs(second).max())


@pytest.mark.parametrize("method", [*METHODS, pytest.param(CROUZEIX, id="crouzeix")])
def test_derivatives_agree_with_differences(method):
    f, eps = RungeKutta(everything(), 0.02, method), 1e-6
    x = state_near(f, 3)
    x[f.nq + f.nd :] = [0.3, -0.2]
    u = hold(f, x) + [0, 0.01, 0.005]
    names = list(f.parameters)
    random = np.random.default_rng(0)
    z, zeta = random.normal(size=f.nx), random.normal(size=f.nm)
    w0 = np.concatenate([x, u, f.theta])
    cuts = [f.nx, f.nx + f.nu]

    def at(w):
        a, b, theta = np.split(w, cuts)
        return f.with_parameters(**dict(zip(names, theta, strict=True))), a, b

    def step(w):
        g, a, b = at(w)
        run = g.rollout(a, b[None], k0=2)
        return np.concatenate([run.x[1], run.multipliers[0]])

    def gradient(w):
        g, a, b = at(w)
        lin = g.linearize(a, b, 2)
        return np.concatenate([z @ lin.A + zeta @ lin.C, z @ lin.B + zeta @ lin.D, z @ lin.P + zeta @ lin.E])

    def slopes(function):
        pairs = [(function(w0 + d), function(w0 - d)) for d in eps * np.eye(len(w0))]
        return np.stack([(a - b) / (2 * eps) for a, b in pairs], axis=1)

    lin, H = f.linearize(x, u, 2), f.second_order(x, u, z, 2, zeta=zeta)
    exact = np.block([[lin.A, lin.B, lin.P], [lin.C, lin.D, lin.E]])
    numeric = slopes(step)
    assert np.abs(exact - numeric).max() <= 1e-7 * (1 + np.abs(numeric).max())
    exact = np.block([[H.xx, H.xu, H.xp], [H.xu.T, H.uu, H.up], [H.xp.T, H.up.T, H.pp]])
    numeric = slopes(gradient)
    assert np.abs(exact - numeric).max() <= 1e-7 * (1 + np.abs(numeric).max())


def test_an_euler_step_has_the_derivatives_of_the_accelerations():
    f, h = RungeKutta(everything(), 0.02, "euler"), 0.02
    x = state_near(f, 3)
    x[f.nq + f.nd :] = 0.0
    u = hold(f, x)  # the kinematic variables stay, so there is no jump
    c = Continuous(everything())
    nq, nd = f.nq, f.nd
    args = x[:nq], x[nq:], u[:1]
    lin = f.linearize(x, u)
    for letter, block in (("v", lin.A[nq : nq + nd, nq : nq + nd]), ("u", lin.B[nq : nq + nd, :1])):
        exact = h * c.forward(*args, by=letter).accelerations[:nd, : block.shape[1]]
        exact += np.eye(nd) if letter == "v" else 0
        np.testing.assert_allclose(block, exact, rtol=1e-10, atol=1e-10)
    z = np.zeros(f.nx)
    z[nq : nq + nd] = [0.3, -1.0, 0.7]
    H = f.second_order(x, u, z)
    curvature = c.forward(*args, by="vv").accelerations[:nd, :nd, :nd]
    exact = h * np.tensordot(z[nq : nq + nd], curvature, 1)
    np.testing.assert_allclose(H.xx[nq : nq + nd, nq : nq + nd], exact, rtol=1e-9, atol=1e-9)


def test_along_a_trajectory_and_at_points_as_one_by_one():
    for method in METHODS:
        f = RungeKutta(arm(), 0.02, method)
        lengths = np.array([0.02, 0.01, 0.03])
        run = f.rollout([0.5, 0.3, -0.2, 0.1], [[1.0], [0.5], [-1.0]], k0=4, dt=lengths)
        lin = f.linearize_trajectory(run)
        Z = np.random.default_rng(0).normal(size=(3, 4))
        H = f.second_order_trajectory(run, Z)
        for i in range(3):
            k = run.t[i] / lengths[i]  # a step k of length h starts at k h
            one = f.linearize(run.x[i], run.u[i], k, lengths[i])
            np.testing.assert_allclose(lin.A[i], one.A, rtol=1e-11, atol=1e-13)
            two = f.second_order(run.x[i], run.u[i], Z[i], k, lengths[i])
            np.testing.assert_allclose(H.xx[i], two.xx, rtol=1e-10, atol=1e-12)
        points = f.derivatives.linearize(f.steps_at(run.x[:3], run.u, k0=2))
        np.testing.assert_allclose(points.B[1], f.linearize(run.x[1], run.u[1], 3).B, rtol=1e-12, atol=1e-15)


# -- the map -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_step_rollout_track_and_pickle_agree(method):
    f = RungeKutta(everything(), 0.02, method)
    x = state_near(f, 3)
    U = np.tile(hold(f, x), (5, 1))
    run = f.rollout(x, U, k0=3)
    y = x
    for k in range(5):
        y = f.step(y, U[k], 3 + k)
        np.testing.assert_allclose(y, run.x[k + 1], rtol=1e-13, atol=1e-13)
    tracked = f.track(x, run.x, U, np.zeros((5, f.nu, f.nx)), k0=3)
    np.testing.assert_allclose(tracked.x, run.x, rtol=1e-13, atol=1e-13)
    g = pickle.loads(pickle.dumps(f.with_parameters(m=3.0)))
    assert repr(g) == repr(f) and g.parameters["m"] == 3.0
    np.testing.assert_array_equal(g.rollout(x, U).x, f.with_parameters(m=3.0).rollout(x, U).x)


def test_names_and_quantities():
    f = RungeKutta(everything(), 0.02)
    g = MidpointVI(everything(), 0.02)
    dynamic = ["v.a", "v.b", "v.c"]
    assert f.state_names == ("a", "b", "c", "trolley", "string", *dynamic, "v.trolley", "v.string")
    assert f.input_names == g.input_names == ("torque", "rho.trolley", "rho.string")
    q = state_near(f, 3)[: f.nq]
    v = vioc.project_velocity(f.system, q, [0.3, -0.2, 0.5, 0, 0])
    for name in ("energy", "kinetic", "potential", *dynamic, "p.a", "p.b", "p.c", "tip:z", "h.string"):
        a, b = (m.rollout(m.initial_state(q, v), hold(m, q), steps=1)[name][0] for m in (f, g))
        assert a == pytest.approx(b, rel=1e-9, abs=1e-9), name
    assert f.unit("v.a") == "rad/s" and f.unit("p.a") == "kg m^2/s"
    with pytest.raises(ModelError, match=r"did you mean 'p\.a'"):
        f.quantity("p.aa")


def test_a_saved_run_belongs_to_its_method(tmp_path):
    f = RungeKutta(rod(), 0.01)
    run = f.rollout(f.initial_state([0.6, -0.8]), steps=5)
    path = run.save(tmp_path / "run.npz")
    np.testing.assert_array_equal(vioc.Trajectory.load(path, f).x, run.x)
    with pytest.raises(FileFormatError, match="heun"):
        vioc.Trajectory.load(path, RungeKutta(rod(), 0.01, "heun"))


def test_what_is_refused():
    with pytest.raises(ModelError, match="method: expected one of euler, .*got 'rk5'"):
        RungeKutta(pendulum(), 0.01, "rk5")
    with pytest.raises(ModelError, match="nothing with mass moves"):
        RungeKutta(System(tx("x", mass=1.0), ry("free")), 0.01)
    with pytest.raises(ModelError, match=r"h = .*consistent_configuration"):
        RungeKutta(rod(), 0.01).initial_state([0.6, -0.7])
    for arguments, message in (
        (([[0, 1], [0, 0]], [0.5, 0.5]), r"stage 0 depends on the later stage 1 \(A\[0, 1\] = 1\)"),
        (([[0]], [0.5]), "sum to 1, got 0.5"),
        (([[0, 0]], [1]), r"expected A \(s, s\) and b \(s,\), got \(1, 2\)"),
        (([[0]], [1], [[0, 1]]), r"expected Aq \(1, 1\)"),
        (([[np.nan]], [1]), "expected finite numbers"),
    ):
        with pytest.raises(ModelError, match=message):
            Tableau(*arguments)


def test_failures_say_why():
    twice = rod().with_components(DistanceConstraint("world", "bob", 1.0, name="again"))
    f = RungeKutta(twice, 0.01)
    with pytest.raises(StepError, match="rank 1 of 2: again follows") as caught:
        f.step(f.state(x=0.6, z=-0.8))
    assert caught.value.cause == "singular constraints"

    gimbal = System(rz("a")[ry("b")[rx("c", mass=Mass(1, (1, 1, 1)))]])
    f = RungeKutta(gimbal, 0.01)
    x = f.state({"b": np.pi / 2, "v.a": 1.0, "v.b": 1.0})
    for attempt in (f.step, f.linearize):
        with pytest.raises(StepError, match="the mass matrix is singular.*along a, c") as caught:
            attempt(x)
    assert caught.value.cause == "singular M"

    stiff = System(tx("x", mass=1.0), TorsionalSpring("x", 1e12))
    f = RungeKutta(stiff, 1.0, "rk4")
    with pytest.raises(
        StepError, match=r"step 1\d .*numbers that are not finite; try a smaller dt"
    ) as caught:
        f.rollout(f.state(x=1.0), steps=20)
    assert caught.value.cause == "not finite"

    f = RungeKutta(pendulum(), 2.0, "implicit-midpoint")
    with pytest.raises(StepError, match="a stage's equations keep a scaled residual") as caught:
        f.step(f.state({"theta": 2.0, "v.theta": 3.0}))
    assert caught.value.cause == "no convergence" and caught.value.residual > 1e-11


# -- control -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["rk4", "semi-implicit-euler", "implicit-midpoint"])
def test_control_works_on_it(method):
    f = RungeKutta(vioc.models.load("cart_pole"), 0.02, method)
    loop = vioc.control.dlqr(f, (np.zeros(4), None), {"x": 1.0, "theta": 10.0}, 1.0)
    assert np.abs(loop.poles).max() < 1
    run = loop.rollout(f.state(theta=0.3), steps=1000)
    assert np.abs(run.x[-1]).max() < 1e-3

    f = RungeKutta(pendulum(), 0.05, method)
    cost = vioc.control.quadratic(
        f, Q={"theta": 1.0}, R=1e-2, Qf={"theta": 100.0, "v.theta": 10.0}, goal={"theta": np.pi}
    )
    best = vioc.control.optimize(f, cost, x0=f.state(), steps=40)
    assert best.status == "converged" and best.iterations <= 30
    assert best.trajectory["theta"][-1] == pytest.approx(np.pi, abs=0.05)
    # the gradient of the optimum by differences of rollouts of the inputs
    U, eps = best.trajectory.u, 1e-5
    for k in (0, 20):
        d = np.zeros_like(U)
        d[k] = eps
        up, down = (cost.value(f.rollout(f.state(), U + s * d)) for s in (1, -1))
        assert abs(up - down) / (2 * eps) < 1e-4 * (1 + best.cost)


def test_implicit_midpoint_is_the_variational_rule_where_the_mass_is_constant():
    """With M constant, q is the variational midpoint rule's, and v its p over m."""
    system = System(tx("x", mass=2.0), TorsionalSpring("x", 3.0), JointForce("x", "force"))
    f, g = RungeKutta(system, 0.1, "implicit-midpoint"), MidpointVI(system, 0.1)
    U = np.sin(np.arange(50.0))[:, None]
    a, b = f.rollout(f.initial_state([0.4], [0.3]), U), g.rollout(g.initial_state([0.4], [0.3]), U)
    np.testing.assert_allclose(a["x"], b["x"], atol=1e-12)
    np.testing.assert_allclose(2.0 * a["v.x"], b["p.x"], atol=1e-11)
