"""Compositions: orders, what they keep, exact derivatives, and what is refused."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, replace
from fractions import Fraction

import casadi as ca
import numpy as np
import pytest
from scipy.interpolate import CubicSpline
from scipy.linalg import block_diag, null_space
from support.control_maps import midpoint_pendulum
from support.mechanisms import everything, hold, pendulum, state_near

import vioc
from vioc import (
    CasadiMap,
    Composition,
    DistanceConstraint,
    Gravity,
    JointDamping,
    JointForce,
    K,
    MidpointVI,
    RungeKutta,
    System,
    Trajectory,
    reference_solution,
    rx,
    ry,
    tx,
    tz,
)
from vioc.compile import find_compiler
from vioc.components import Force

# inside: coefficients of the methods by name, and the order that they have by formula
from vioc.dynamics.integrators.composition_coefficients import DEFAULTS, METHODS, order_of
from vioc.errors import ModelError, StepError

FIELDS = ("xx", "xu", "uu", "xp", "up", "pp")
BLOCKS = "ABPCDE"


@dataclass(frozen=True, repr=False)
class Shaking(Force):
    """A force of time and place."""

    def generalized(self, k):
        return {"a": ca.sin(5 * k.t) * ca.cos(k.q("a"))}


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


def rod():
    """A pendulum in Cartesian coordinates."""
    return System(
        tx("x")[tz("z", name="bob", mass=2.0)],
        Gravity(0, 0, -9.81),
        DistanceConstraint("world", "bob", 1.0, name="rod"),
    )


def carried():
    """A pendulum under a prescribed trolley."""
    return System(Gravity(0, 0, -9.81), tx(K("trolley"))[ry("theta")[tz(-1.0, mass=1.0)]])


def slope(steps, errors):
    return -np.polyfit(np.log(steps), np.log(errors), 1)[0]


# -- coefficients --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", METHODS)
def test_named_coefficients_have_the_order_of_their_name(name):
    g = METHODS[name]
    assert order_of(g) == int(name.split("-")[-2] if name[-1] == "7" else name.split("-")[-1])
    assert sum(g) == pytest.approx(1, abs=1e-15) and g == g[::-1]
    assert g[0] > 0  # stage 1's multiplier is divided by it


def test_order_conditions_on_exact_numbers():
    assert order_of([1]) == 2
    assert order_of([float(Fraction(1, 3))] * 3) == 2
    # fifth powers that vanish alone do not make order 6
    a = METHODS["suzuki-4"]
    assert order_of(a) == 4


# -- accuracy ------------------------------------------------------------------------------------------

SLOPES = {"suzuki-4-7": (4, 0.2), "mclachlan-4": (4, 0.2), "kahan-li-6": (6, 0.3), DEFAULTS[6]: (6, 0.3)}


@pytest.mark.parametrize("method", SLOPES)
def test_order_with_damping_inputs_and_forces_of_time(method):
    q, v, torque = [0.5, 1.0], [0.4, -1.0], np.array([[2.0], [-1.0]])
    exact = reference_solution(arm(), q, v, np.linspace(0, 1, 3), torque, rtol=1e-13, atol=1e-13)
    base = MidpointVI(arm(), 0.1)
    f = Composition(base, method)
    steps, errors = np.array([16, 20, 24, 32]), []
    for n in steps:
        run = f.rollout(f.initial_state(q, v), np.repeat(torque, n // 2, axis=0), dt=1 / n)
        found = [run[name][-1] for name in ("a", "b", "v.a", "v.b")]
        errors.append(np.abs(np.array(found) - [*exact.q[-1], *exact.v[-1]]).max())
    order, spread = SLOPES[method]
    assert slope(steps, errors) == pytest.approx(order, abs=spread)


@pytest.mark.parametrize("order", [4, 6])
def test_order_with_a_constraint(order):
    q, v = [0.6, -0.8], [0.8, 0.6]
    exact = reference_solution(rod(), q, v, [0.0, 1.0], rtol=1e-13, atol=1e-13)
    f = Composition(MidpointVI(rod(), 0.1), order)
    steps = np.array([16, 24, 32, 48])
    rows = []
    for n in steps:
        run = f.rollout(f.initial_state(q, v), steps=n, dt=1 / n)
        x, z, vx, vz = (run[name][-1] for name in ("x", "z", "v.x", "v.z"))
        rows.append([np.abs([x, z] - exact.q[-1]).max(), np.abs([vx, vz] - exact.v[-1]).max()])
        assert np.abs(run["h.rod"]).max() < 1e-13
    for errors in np.transpose(rows):
        assert slope(steps, errors) == pytest.approx(order, abs=0.2 if order == 4 else 0.3)


def test_multipliers_are_those_of_the_base_and_second_order():
    q, v = [0.6, -0.8], [0.8, 0.6]
    base = MidpointVI(rod(), 0.1)
    exact = reference_solution(rod(), q, v, [0.0, 0.5], rtol=1e-13, atol=1e-13)
    z = exact.q[-1, 1]
    speed = np.sum(exact.v[-1] ** 2)
    tension = 2.0 * (speed - 9.81 * z)  # centripetal and weight along the rod
    steps, errors = np.array([20, 40, 80]), []
    for n in steps:
        run = Composition(base).rollout(base.initial_state(q, v), steps=n + 1, dt=0.5 / n)
        errors.append(abs(run["tension.rod"][n] - tension))
    assert slope(steps, errors) == pytest.approx(2, abs=0.2)
    # half of it at the start, as for the base
    first = 2.0 * (1.0 + 9.81 * 0.8)
    assert run["tension.rod"][0] == pytest.approx(first / 2, rel=0.02)


@pytest.mark.parametrize("order", [4, 6])
def test_order_with_a_trolley_that_moves_evenly(order):
    start = {"theta": 0.4}
    f = Composition(MidpointVI(carried(), 0.1), order)
    x0 = f.initial_state(start, {"trolley": 0.7})
    spline = CubicSpline([0, 0.5, 1.0], [0, 0.35, 0.7])
    exact = reference_solution(
        carried(), start, {"trolley": 0.7}, [0, 1.0], kinematic={"trolley": spline}, rtol=1e-13, atol=1e-13
    )
    steps, errors = np.array([6, 8, 12, 16]), []
    for n in steps:
        run = f.rollout(x0, 0.7 * np.arange(1, n + 1)[:, None] / n, dt=1 / n)
        errors.append(abs(run["theta"][-1] - exact["theta"][-1]))
        np.testing.assert_allclose(run["trolley"], 0.7 * run.t, rtol=0, atol=1e-14)
        np.testing.assert_allclose(run["v.trolley"], 0.7, rtol=1e-12)
    assert slope(steps, errors) == pytest.approx(order, abs=0.3)


def test_of_implicit_midpoint_and_of_a_map_of_ones_own():
    system = pendulum()
    exact = reference_solution(system, [2.0], [0.5], [0.0, 1.0], np.array([[0.3]]))
    steps, errors = np.array([8, 12, 16, 24]), []
    f = Composition(RungeKutta(system, 1.0, "implicit-midpoint"))
    for n in steps:
        run = f.with_dt(1 / n).rollout(f.initial_state([2.0], [0.5]), np.full((n, 1), 0.3))
        errors.append(abs(run["theta"][-1] - exact["theta"][-1]))
    assert slope(steps, errors) == pytest.approx(4, abs=0.2)

    x, u, t, dt = (ca.SX.sym(name, size) for name, size in (("x", 2), ("u", 1), ("t", 1), ("dt", 1)))
    half = x[1] + dt / 2 * (u - ca.sin(x[0]))
    q = x[0] + dt * half  # kick, drift, kick
    leapfrog = ca.Function("leapfrog", [x, u, t, dt], [ca.vertcat(q, half + dt / 2 * (u - ca.sin(q)))])
    f = Composition(CasadiMap(leapfrog, 0.1), 6)
    ends = [f.rollout([2.0, 0.5], np.full((n, 1), 0.3), dt=1 / n).x[-1] for n in (4, 8, 256)]
    ratio = np.abs(ends[0] - ends[2]).max() / np.abs(ends[1] - ends[2]).max()
    assert np.log2(ratio) == pytest.approx(6, abs=0.5)


# -- what is kept --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("order", "lengths"), [(4, (0.05, 0.025)), (6, (0.04, 0.03))])
def test_symplectic_momentum_and_energy(order, lengths):
    system = vioc.models.load("cart_pole")
    f = Composition(MidpointVI(system, 0.05), order)
    run = f.rollout(f.initial_state({"theta": 2.0}, {"x": 0.3}), steps=2000)
    J = np.kron([[0, 1], [-1, 0]], np.eye(2))
    A = f.linearize(run.x[700]).A
    assert np.abs(A.T @ J @ A - J).max() < 1e-12
    assert np.ptp(run["p.x"]) < 1e-10
    if order == 4:  # at order 6 the band is as narrow as what the base's solver leaves
        assert abs(run.energy[-500:].mean() - run.energy[:500].mean()) < 0.02 * np.ptp(run.energy)
    x0 = f.initial_state({"theta": 1.14}, {"x": 0.3})
    bands = [np.ptp(f.rollout(x0, steps=round(24 / dt), dt=dt).energy) for dt in lengths]
    slope = np.log(bands[0] / bands[1]) / np.log(lengths[0] / lengths[1])
    assert slope == pytest.approx(order, abs=0.3)


def test_symplectic_on_the_tangent_space_of_a_constraint():
    f = Composition(MidpointVI(rod(), 0.05), 6)
    run = f.rollout(f.initial_state([0.6, -0.8], [0.8, 0.6]), steps=40)
    A = f.linearize(run.x[30]).A
    Z = block_diag(null_space(f.inner.lagrangian.constraint_jacobian(run.x[30, :2])), np.eye(2))
    J = np.kron([[0, 1], [-1, 0]], np.eye(2))
    assert np.abs(Z.T @ (A.T @ J @ A - J) @ Z).max() < 1e-12


# -- the protocol --------------------------------------------------------------------------------------


def numeric(function, point, size=2e-4):
    """Central differences of order 4."""
    columns = []
    for e in np.eye(len(point)) * size:
        a, b = function(point + e) - function(point - e), function(point + 2 * e) - function(point - 2 * e)
        columns.append((8 * a - b) / (12 * size))
    return np.stack(columns, axis=-1)


@pytest.fixture(scope="module")
def full():
    """A composition with kinematic variables, a string, springs, damping and parameters; a point of it."""
    f = Composition(MidpointVI(everything(), 0.04), 4)
    x = state_near(f.inner, 3)
    u = hold(f.inner, x)
    u[len(f.system.inputs) :] += 0.01
    return f, x, u


def test_derivatives_agree_with_finite_differences(full):
    f, x, u = full
    nx, nu = f.nx, f.nu

    def outputs(s, order=0):
        g = f.with_parameters(**dict(zip(f.parameters, s[nx + nu :], strict=True)))
        if order:
            lin = g.linearize(s[:nx], s[nx : nx + nu], k=3)
            return np.block([[lin.A, lin.B, lin.P], [lin.C, lin.D, lin.E]])
        run = g.rollout(s[:nx], s[None, nx : nx + nu], k0=3, warn=False)
        return np.concatenate([run.x[1], run.multipliers[0]])

    s = np.concatenate([x, u, f.theta])
    first = outputs(s, 1)
    np.testing.assert_allclose(first, numeric(outputs, s), rtol=1e-7, atol=1e-7)
    random = np.random.default_rng(1)
    z, zeta = random.standard_normal(nx), random.standard_normal(len(f.multiplier_names))
    H = f.second_order(x, u, z, k=3, zeta=zeta)
    exact = np.block([[H.xx, H.xu, H.xp], [H.xu.T, H.uu, H.up], [H.xp.T, H.up.T, H.pp]])
    approximate = numeric(lambda s: np.concatenate([z, zeta]) @ outputs(s, 1), s)
    np.testing.assert_allclose(exact, approximate, rtol=1e-6, atol=1e-6 * np.abs(exact).max())
    assert np.abs(exact - exact.T).max() <= 1e-12 * np.abs(exact).max()


def test_along_a_trajectory_at_points_and_by_single_steps(full):
    f, x, u = full
    U = np.tile(u, (6, 1))
    U[:, len(f.system.inputs) :] += 0.005 * np.arange(6)[:, None]
    run = f.rollout(x, U, warn=False)
    whole, points = f.linearize_trajectory(run), f.derivatives.linearize(f.steps_at(run.x[:-1], U))
    Z = np.random.default_rng(0).standard_normal((6, f.ndx))
    zeta = np.random.default_rng(1).standard_normal((6, len(f.multiplier_names)))
    second = f.second_order_trajectory(run, Z, zeta)
    for k in (0, 4):
        one = f.linearize(run.x[k], U[k], k)
        two = f.second_order(run.x[k], U[k], Z[k], k, zeta=zeta[k])
        for name in BLOCKS:
            for many in (whole, points):
                np.testing.assert_allclose(getattr(many, name)[k], getattr(one, name), rtol=1e-8, atol=1e-9)
        for name in FIELDS:
            np.testing.assert_allclose(getattr(second, name)[k], getattr(two, name), rtol=1e-7, atol=1e-7)
        np.testing.assert_allclose(f.step(run.x[k], U[k], k), run.x[k + 1], rtol=0, atol=1e-10)


def test_unequal_steps_time_and_tracking():
    f = Composition(MidpointVI(arm(), 0.1), 6)
    x0 = f.initial_state([0.5, 1.0], [0.4, -1.0])
    lengths = np.array([0.1, 0.02, 0.07, 0.11, 0.03])
    run = f.rollout(x0, steps=5, dt=lengths)
    exact = reference_solution(arm(), [0.5, 1.0], [0.4, -1.0], [0.0, lengths.sum()], np.zeros((1, 1)))
    assert np.abs(run.x[-1, :2] - exact.q[-1]).max() < 1e-6
    product = np.linalg.multi_dot(f.linearize_trajectory(run).A[::-1])
    approximate = numeric(lambda x: f.rollout(x, steps=5, dt=lengths).x[-1], x0)
    np.testing.assert_allclose(product, approximate, rtol=1e-7, atol=1e-8)
    target = f.rollout(x0, np.full((20, 1), 0.5))
    K = np.tile([[3.0, 0.5, 1.0, 0.2]], (20, 1, 1))
    loop = f.track(x0 + [0.1, 0, 0, 0], target.x, target.u, K)
    u = target.u - np.einsum("kij,kj->ki", K, f.difference(target.x[:-1], loop.x[:-1]))
    np.testing.assert_allclose(loop.u, u, atol=1e-12)
    np.testing.assert_allclose(f.rollout(x0 + [0.1, 0, 0, 0], loop.u).x, loop.x, atol=1e-10)


def test_a_rollout_longer_than_a_piece_and_a_rerun():
    f = Composition(MidpointVI(pendulum(), 0.02))
    x0 = f.initial_state({"theta": 2.5})
    run = f.rollout(x0, steps=1500)
    x = x0
    for k in range(1500):
        x = f.step(x, None, k) if k > 1490 else run.x[k + 1]
    np.testing.assert_allclose(x, run.x[-1], atol=1e-9)
    assert (f.rollout(x0, steps=1500).x == run.x).all()


@pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
def test_compiled_rollouts_are_the_same(tmp_path, monkeypatch):
    monkeypatch.setenv("VIOC_CACHE", str(tmp_path))
    runs = []
    for backend in ("virtual", "compiled"):
        base = MidpointVI(carried(), 0.05, backend=backend)
        f = Composition(base)
        x0 = f.initial_state({"theta": 0.4})
        runs += [f.rollout(x0, f.inputs(100, {"rho.trolley": 0.0})), base.rollout(x0, steps=100)]
    np.testing.assert_allclose(runs[0].x, runs[2].x, rtol=0, atol=1e-12)
    assert np.abs(runs[2].x - runs[3].x).max() > 1e-6  # not the base's own code from the cache


def test_a_step_too_long_for_the_kernel_is_solved_by_the_base():
    f = Composition(MidpointVI(pendulum(), 0.1), 4)
    x = f.state({"theta": 3.0, "p.theta": 14.0})
    run = f.rollout(x, steps=3, dt=0.45)
    assert np.isfinite(run.x).all()
    stages = [f.inner]
    now = run.x[0]
    for g in f.coefficients:
        now = stages[0].step_solver.rescued(now, np.zeros(1), 0, 0.0, g * 0.45)[0]
    np.testing.assert_allclose(run.x[1], now, atol=1e-9)


def test_a_step_without_a_solution_names_its_stage():
    f = Composition(MidpointVI(rod(), 0.1))
    with pytest.raises(StepError, match=r"step 0, stage \d of 7 .* dt = ") as caught:
        f.rollout(f.state({"x": 0.6, "z": -0.8, "p.x": 300.0}), steps=2)
    assert caught.value.k == 0


def test_it_is_a_map_like_its_base(tmp_path):
    base = MidpointVI(pendulum(), 0.1, wrap=("theta",))
    f = Composition(base, "yoshida-4")
    assert repr(f).startswith("Composition(order 4, 3 stages, of MidpointVI(")
    assert f.wrap == ("theta",) and f.unit("theta") == "rad" and f.system is base.system
    x = f.initial_state({"theta": 1.0})
    run = f.rollout(x, steps=5)
    copy = pickle.loads(pickle.dumps(f))
    assert (copy.rollout(x, steps=5).x == run.x).all()
    assert f.frame_positions(run.x).shape == base.frame_positions(run.x).shape
    loaded = Trajectory.load(run.save(tmp_path / "run"), f)
    assert (loaded.x == run.x).all() and loaded["energy"].shape == (6,)
    with pytest.raises(Exception, match="composition"):
        Trajectory.load(tmp_path / "run.npz", Composition(base, "suzuki-4"))
    with pytest.raises(AttributeError, match="'Composition' object has no attribute 'parts'"):
        f.parts  # noqa: B018


def test_optimization_runs_on_a_composition():
    f = Composition(MidpointVI(pendulum(), 0.2), 4)
    cost = vioc.control.quadratic(
        f, Q={"theta": 1.0}, R={"torque": 0.1}, Qf={"theta": 100.0, "v.theta": 10.0}
    )
    best = vioc.control.optimize(f, cost, x0=f.initial_state({"theta": 1.0}), steps=10)
    assert abs(best.trajectory["theta"][-1]) < 0.05
    np.testing.assert_allclose(
        f.rollout(best.trajectory.x[0], best.trajectory.u).x, best.trajectory.x, atol=1e-8
    )


# -- what is refused -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "base",
    [
        lambda: MidpointVI(pendulum(), 0.1, alpha=0.4),
        lambda: MidpointVI(pendulum(), 0.1, forcing="left"),
        lambda: RungeKutta(pendulum(), 0.1, "rk4"),
        lambda: RungeKutta(pendulum(), 0.1, "semi-implicit-euler"),
        midpoint_pendulum,  # its step length is built in
    ],
)
def test_maps_that_are_not_symmetric_are_refused(base):
    with pytest.raises(ModelError, match="not symmetric: a step by -dt"):
        Composition(base())


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (5, "expected an order \\(4, 6\\)"),
        ("yosida-4", "yoshida-4"),
        ([0.5, 0.6], "which sum to 1.1"),
        ([0.2, 0.8], "alike in both directions"),
        ([0.5, 0.0, 0.5], "not zero"),
        ([np.nan], "expected an order"),
        (None, "expected an order"),
    ],
)
def test_methods_that_are_refused(method, message):
    with pytest.raises(ModelError, match=message):
        Composition(MidpointVI(pendulum(), 0.1), method)


def test_what_is_not_a_map_is_refused():
    with pytest.raises(TypeError, match="expected a one-step map of vioc, got System"):
        Composition(pendulum())


def test_stages_that_go_back_need_no_rescue(monkeypatch):
    """Their pivots have the other sign, which is no singular step that has to be looked at again."""
    f = vioc.Composition(vioc.MidpointVI(vioc.models.load("cart_pole"), 0.02), 4)
    assert min(f.coefficients) < 0
    solver = replace(f.step_solver, rescued=lambda *args: pytest.fail("the kernel did not solve a stage"))
    monkeypatch.setattr(f, "step_solver", solver)
    assert f.rollout(f.initial_state({"theta": 0.3}), steps=20).x.shape == (21, 4)
