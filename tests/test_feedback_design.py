"""Equilibria, regulators with cross terms, tracking of curves: closed forms, python-control, scipy."""

from dataclasses import replace

import casadi as ca
import numpy as np
import pytest
from scipy.optimize import minimize
from support.control_maps import cart_pole, double_integrator, midpoint_pendulum, two_inputs
from support.mechanisms import everything, pendulum, state_near

import vioc
from vioc import CasadiMap, MidpointVI, RungeKutta, models
from vioc.control import (
    LinearMPC,
    controllability,
    dlqr,
    equilibrium,
    frequency_response,
    lyapunov_level,
    modes,
    verified_level,
)
from vioc.control.feedback import DelayedMap, StateLaw, as_law, track_curve
from vioc.errors import ModelError, OptimizationError

RNG = np.random.default_rng(4)


# -- equilibria -----------------------------------------------------------------------------------


@pytest.mark.parametrize("forcing", ["symmetric", "left"])
def test_torque_that_holds_a_pendulum(forcing):
    f = MidpointVI(pendulum(), 0.1, forcing=forcing)
    eq = equilibrium(f, theta=np.pi / 4)
    torque = 9.8 * np.sin(np.pi / 4)
    assert eq.u == pytest.approx([torque], rel=1e-12)
    # half an input impulse is missing in p with left forcing
    assert eq.x == pytest.approx([np.pi / 4, 0.0 if forcing == "symmetric" else -0.05 * torque], abs=1e-12)
    assert eq.moved < 1e-12
    assert eq["theta"] == eq.x[0] and eq["u.torque"] == eq.u[0]
    assert eq["potential"] == pytest.approx(-9.8 * np.cos(np.pi / 4), rel=1e-10)


def test_stability_of_the_two_positions_of_a_pole():
    f = MidpointVI(models.load("cart_pole"), 0.01)
    up, down = equilibrium(f, theta=0.0), equilibrium(f, {"force": 0.0}, guess={"theta": 3.0, "x": 0.7})
    assert (up.verdict, down.verdict) == ("unstable", "marginal")
    assert down.x == pytest.approx([0.7, np.pi, 0, 0], abs=1e-10)
    rate = np.sqrt((1 + 0.3) * 9.81 / (1.0 * 0.5))  # cart free: (m + M) g / (M l)
    assert np.log(up.modes.spectral_radius) / f.dt == pytest.approx(rate, rel=1e-3)
    assert "unstable" in repr(up) and "theta = 0" in repr(up)
    loop = dlqr(f, up, 1.0, 1.0)
    assert np.abs(loop.poles).max() < 1


def test_equilibria_with_constraints_on_two_kinds_of_map():
    f = MidpointVI(models.load("closed_chain"), 0.01)
    guess = {n: 0.3 for n in f.system.variables}
    eq = equilibrium(f, guess=guess)
    assert np.abs(f.lagrangian.constraints(eq.x[:7])).max() < 1e-10
    # a continuous map at rest there stays at rest: not of our step's equations
    g = RungeKutta(f.system, 0.01)
    x = np.concatenate([eq.x[:7], np.zeros(7)])
    assert np.abs(g.step(x) - x).max() < 1e-10
    again = equilibrium(g, guess=x)
    np.testing.assert_allclose(again.x, x, atol=1e-8)
    # multipliers carry the weight: forces times dt
    np.testing.assert_allclose(eq.multipliers, again.multipliers, rtol=1e-6, atol=1e-10)


def test_a_held_string_carries_a_hanging_chain():
    f = MidpointVI(everything(), 0.01)
    x = state_near(f, 3)
    eq = equilibrium(f, {"torque": 0.0}, guess=x, fixed=f.system.kinematic)
    assert eq.verdict == "asymptotically stable" and eq.moved < 1e-11
    np.testing.assert_array_equal(eq.x[f.nd : f.nq], x[f.nd : f.nq])
    np.testing.assert_allclose(eq.u[1:], eq.x[f.nd : f.nq], atol=1e-12)
    assert eq["tension.string"] != 0 and abs(eq["h.string"]) < 1e-12
    left = f.rollout(eq.x, eq.u, steps=50, warn=False)
    assert np.abs(left.x[-1] - eq.x).max() < 1e-8


def test_only_what_is_free_changes():
    f = two_inputs()
    eq = equilibrium(f, guess={"x0": 0.2, "x1": 0.1, "x2": 0.8}, free=("u0", "u1", "x1"))
    assert (eq.x[0], eq.x[2]) == (0.2, 0.8)
    assert np.abs(f.step(eq.x, eq.u) - eq.x).max() < 1e-12


def test_no_equilibrium_says_what_moves():
    f = MidpointVI(models.load("cart_pole"), 0.01)
    with pytest.raises(OptimizationError, match="with theta fixed: the best found moves .*p.theta by"):
        equilibrium(f, theta=0.5)
    with pytest.raises(ModelError, match="hold: unknown name 'thta'; did you mean 'theta'"):
        equilibrium(f, thta=0.5)
    with pytest.raises(ValueError, match="expected finite"):
        equilibrium(f, theta=np.nan)
    x, u = ca.SX.sym("x"), ca.SX.sym("u")
    drift = CasadiMap(ca.Function("f", [x, u], [x + 1 + 0 * u]), dt=1.0)
    with pytest.raises(OptimizationError, match="moves x0 by 1 in a step"):
        equilibrium(drift)


def test_other_starts_are_moved_by_each_coordinate_alone():
    """Two alike that stay alike from a start where they are, and rest apart only."""
    x, u = ca.SX.sym("x", 2), ca.SX.sym("u")
    rate = ca.vertcat((x[0] - x[1]) ** 2 - 4, x[0] + x[1])
    found = equilibrium(CasadiMap(ca.Function("f", [x, u], [x + rate + 0 * u]), dt=1.0))
    assert found.start > 0 and np.sort(found.x) == pytest.approx([-1, 1], abs=1e-9)


# -- regulators -----------------------------------------------------------------------------------


@pytest.mark.peer
@pytest.mark.parametrize("make", [cart_pole, double_integrator])
def test_gains_equal_python_controls(make):
    control = pytest.importorskip("control")
    f = make()
    eq = equilibrium(f, {n: 0.0 for n in f.state_names})
    A, B = f.linearize(eq.x, eq.u)
    L = RNG.standard_normal((f.nx + 1, f.nx + 1))
    H = L @ L.T + np.eye(f.nx + 1)
    Q, R, S = H[:-1, :-1], H[-1:, -1:], H[:-1, -1:]
    K, P, poles = control.dlqr(A, B, Q, R, S)
    ours = dlqr(f, eq, Q, R, S=S)
    assert np.abs(ours.K - K).max() <= 1e-10 * np.abs(K).max()
    assert np.abs(ours.P - P).max() <= 1e-10 * np.abs(P).max()
    np.testing.assert_allclose(np.sort_complex(ours.poles), np.sort_complex(poles), rtol=1e-8)
    K, P, poles = control.dlqr(A, B, Q, R)
    gain, cost, roots = dlqr(f, (eq.x, eq.u), Q, R)  # unpacks alike
    assert np.abs(gain - K).max() <= 1e-10 * np.abs(K).max()
    assert np.abs(cost - P).max() <= 1e-10 * np.abs(P).max()
    np.testing.assert_allclose(np.sort_complex(roots), np.sort_complex(poles), rtol=1e-8)


def test_a_cross_term_shifts_the_input():
    # x'Qx + u'Ru + 2x'Su = x'(Q - S R^-1 S')x + w'Rw with u = w - R^-1 S'x
    f = double_integrator()
    run = f.rollout([1.0, 0.0], np.ones((30, 1)))
    Q, R, S = np.diag([3.0, 2.0]), np.array([[0.5]]), np.array([[0.3], [-0.2]])
    ours = dlqr(f, run, Q, R, np.eye(2), S=S)
    shift = np.linalg.solve(R, S.T)
    A, B = f.linearize(np.zeros(2))
    shifted = CasadiMap(
        ca.Function("f", [x := ca.SX.sym("x", 2), u := ca.SX.sym("u")], [(A - B @ shift) @ x + B @ u]), dt=0.1
    )
    other = dlqr(shifted, shifted.rollout([0.0, 0.0], np.zeros((30, 1))), Q - S @ shift, R, np.eye(2))
    np.testing.assert_allclose(ours.K, other.K + shift, rtol=1e-10)
    np.testing.assert_allclose(ours.P, other.P, rtol=1e-10, atol=1e-12)


def test_a_regulator_of_a_trajectory_unpacks():
    f = cart_pole()
    loop = dlqr(f, f.rollout([0.1, 0.2, 0, 0], steps=20), 1.0, 0.1)
    K, P, poles = loop
    assert K is loop.K and P is loop.P
    A, B = f.linearize_trajectory(loop.reference)
    whole = np.linalg.multi_dot([a - b @ k for a, b, k in zip(A, B, K, strict=True)][::-1])
    np.testing.assert_allclose(np.sort_complex(poles), np.sort_complex(np.linalg.eigvals(whole)), rtol=1e-9)


def swing(f, period=20):
    """A motion of the pendulum that a torque drives around and that closes; found by Newton's method."""
    U, x = 1.5 * np.sin(2 * np.pi * np.arange(period) / period)[:, None], np.zeros(2)
    for _ in range(10):
        run = f.rollout(x, U)
        A = np.linalg.multi_dot(list(f.linearize_trajectory(run).A[::-1]))
        x = x - np.linalg.solve(A - np.eye(2), run.x[-1] - x)
    return f.rollout(x, U)


def test_periodic_motions_are_followed_for_good():
    f = MidpointVI(pendulum(), 0.05)
    run = swing(f)
    Q, R, S = np.diag([3.0, 0.5]), np.array([[0.2]]), np.array([[0.05], [0.02]])
    loop = dlqr(f, run, Q, R, "periodic", S=S)
    K, P, poles = loop
    np.testing.assert_allclose(P[0], P[-1], rtol=1e-10)
    assert np.abs(poles).max() < 1 and loop.periodic and "again and again" in repr(loop)
    # the limit of a long horizon, whatever its end weighs
    many = f.rollout(run.x[0], np.tile(run.u, (12, 1)))
    np.testing.assert_allclose(K, dlqr(f, many, Q, R, 0.0, S=S).K[: len(run)], rtol=1e-6)
    long = loop.rollout(run.x[0] + [0.3, 0.1], 30 * len(run))
    np.testing.assert_allclose(long.x[-1], run.x[0], atol=1e-7)
    law = as_law(loop)
    np.testing.assert_array_equal(law(len(run) + 3, [0.1, 0.2]), law(3, [0.1, 0.2]))
    assert "again and again" in repr(law)
    mpc = LinearMPC(loop, 6, S=S)
    x = run.x[2] + [0.05, -0.02]
    np.testing.assert_allclose(mpc(len(run) + 2, x), law(2, x), atol=1e-8)


def test_what_is_refused_as_a_periodic_motion():
    f = MidpointVI(pendulum(), 0.05)
    with pytest.raises(ValueError, match="not periodic: .*theta ends"):
        dlqr(f, f.rollout([0.5, 0.0], steps=5), 1.0, 1.0, "periodic")
    x, u = ca.SX.sym("x", 2), ca.SX.sym("u")
    drift = CasadiMap(ca.Function("f", [x, u], [ca.vertcat(0.5 * x[0] + u, x[1])]), dt=0.1)
    with pytest.raises(OptimizationError, match="a Floquet multiplier is 1"):
        dlqr(drift, drift.rollout([0.0, 0.0], steps=4), 1.0, 1.0, "periodic")


def test_what_is_refused_about_a_point():
    f = cart_pole()
    with pytest.raises(ValueError, match="give Qf with a trajectory"):
        dlqr(f, (np.zeros(4), np.zeros(1)), 1.0, 1.0, Qf=1.0)
    with pytest.raises(ValueError, match="is not an equilibrium"):
        dlqr(f, (np.array([0, 0.1, 0, 0]), np.zeros(1)), 1.0, 1.0)
    with pytest.raises(OptimizationError, match="no stabilizing regulator"):
        dlqr(f, (np.zeros(4), np.zeros(1)), 0.0, 1.0, S=np.ones((4, 1)))


# -- curves ---------------------------------------------------------------------------------------


def test_tracking_is_the_minimum_of_its_cost():
    """A linear map and a curve that is no trajectory: against scipy on the inputs."""
    f, N = double_integrator(), 12
    X = RNG.standard_normal((N + 1, 2))
    U = RNG.standard_normal((N, 1))
    Q, R, Qf = np.diag([2.0, 0.5]), np.array([[0.3]]), np.diag([5.0, 1.0])
    S, q, r, qf = np.array([[0.1], [0.2]]), RNG.standard_normal((N, 2)), np.array([0.4]), np.array([1.0, -2])
    plan = track_curve(f, X, U, Q, R, Qf, S=S, q=q, r=r, qf=qf)
    x0 = np.array([0.7, -0.4])

    def cost(u):
        x = f.rollout(x0, u.reshape(N, 1)).x
        z, v = x - X, u.reshape(N, 1) - U
        total = sum(
            z[k] @ Q @ z[k] + v[k] @ R @ v[k] + 2 * z[k] @ S @ v[k] + q[k] @ z[k] + r @ v[k] for k in range(N)
        )
        return total + z[N] @ Qf @ z[N] + qf @ z[N]

    best = minimize(cost, np.zeros(N), method="BFGS", jac="3-point", options={"gtol": 1e-9})
    run = plan.rollout(x0)
    np.testing.assert_allclose(run.u[:, 0], best.x, atol=1e-6)
    assert plan.cost_to_go(x0) == pytest.approx(cost(run.u.ravel()), rel=1e-10)
    assert plan.cost_to_go(run.x[5], 5) < plan.cost_to_go(run.x[5] + [0.3, 0], 5) + 10
    assert np.abs(plan.defects).max() > 0.1 and "largest defect" in repr(plan)


def test_tracking_of_a_trajectory_is_its_regulator():
    f = midpoint_pendulum()
    run = f.rollout([1.0, 0.0], 0.3 * np.ones((25, 1)))
    plan, loop = track_curve(f, run.x, run.u, 2.0, 0.1), dlqr(f, run, 2.0, 0.1)
    np.testing.assert_allclose(plan.K, loop.K, rtol=1e-12)
    assert np.abs(plan.d).max() < 1e-12
    np.testing.assert_allclose(plan.rollout([0.8, 0.1]).x, loop.rollout([0.8, 0.1]).x, atol=1e-12)
    law = plan.as_law()
    np.testing.assert_allclose(law(3, [0.8, 0.1]), as_law(loop)(3, np.array([0.8, 0.1])), atol=1e-12)
    with pytest.raises(ValueError, match="samples 0 .. 24, asked at 25"):
        law(25, [0.0, 0.0])
    with pytest.raises(ValueError, match="expected shape"):
        track_curve(f, run.x[:-1], run.u, 1.0, 1.0)


def test_laws_hold_an_equilibrium_and_wrap_angles():
    f = midpoint_pendulum(wrap=("theta",))
    eq = equilibrium(f, theta=np.pi)
    law = as_law(dlqr(f, eq, 1.0, 1.0))
    assert isinstance(law, StateLaw) and "steady" in repr(law)
    np.testing.assert_allclose(law(7, eq.x + [0.1, 0]), law(0, eq.x + [0.1 - 4 * np.pi, 0]), atol=1e-12)
    run = f.rollout(eq.x, eq.u, steps=5)
    held = as_law(dlqr(f, run, 1.0, 1.0).hold())
    np.testing.assert_allclose(held(5, eq.x + 0.1), held(99, eq.x + 0.1))
    np.testing.assert_allclose(held(99, eq.x + 0.1), law(0, eq.x + 0.1), rtol=1e-9)
    with pytest.raises(TypeError, match="expected a regulator or a law, got float"):
        as_law(1.0)


def test_a_map_that_depends_on_time_has_no_verdict_at_a_point():
    """Mathieu's pendulum: a torque -1.4 sin(10 t) a throws it out of the place where it is at rest."""
    joint = vioc.ry("a")[vioc.tz(-0.5, mass=vioc.Mass(0.3, (0.01,) * 3))]
    parts = joint, vioc.Gravity(0, 0, -9.81), vioc.JointForce("a", "hip"), vioc.JointDamping("a", 0.05)
    shaken = vioc.UserForce(lambda k: {"a": -1.4 * ca.sin(10 * k.t) * k.q("a")}, ())
    for make in (lambda s: MidpointVI(s, 0.02), lambda s: RungeKutta(s, 0.02, "heun")):
        still, f = make(vioc.System(*parts)), make(vioc.System(*parts, shaken))
        assert equilibrium(still, a=0.0).verdict == "asymptotically stable"
        up = equilibrium(f, a=0.0)
        assert up.verdict.startswith("undecided, as the map depends on time")
        law = replace(dlqr(still, (up.x, up.u), [0.01, 0.001], 10.0), map=f)
        for level in (verified_level, lyapunov_level):
            with pytest.raises(ValueError, match="depend on time"):
                level(law)
        answers = (lambda f, up: frequency_response(f, up, ["a"])), (lambda f, up: dlqr(f, up, 1.0, 1.0))
        for design in (modes, controllability, *answers):
            with pytest.raises(ValueError, match="about a state: steps of .* depend on time"):
                design(f, up)
        assert "eigenvalue" not in repr(up)
    shifted = DelayedMap(f)
    assert shifted.depends_on_time and not DelayedMap(still).depends_on_time
