"""Kinematic configurations: at scale, the marionette of [S] VIII-B; in optimal control, cranes."""

from __future__ import annotations

from pathlib import Path

import casadi as ca
import numpy as np
import pytest
from scipy.integrate import solve_ivp
from scipy.interpolate import CubicSpline
from scipy.linalg import expm
from support.marionette import pulled, start, tension

from vioc import DistanceConstraint, Gravity, K, MidpointVI, System, control, models, ry, tx, tz

G = 9.81


@pytest.fixture(scope="module")
def f():
    return MidpointVI(models.load("marionette"), 0.01, forcing="left")


@pytest.fixture(scope="module")
def motion(f):
    return f.rollout(start(f), pulled(f, f.dt * np.arange(1, 301)), warn=False)


@pytest.fixture(scope="module")
def reference():
    """Samples of an independent implementation's run, by name."""
    with np.load(Path(__file__).parents[1] / "studies" / "data" / "marionette.npz") as stored:
        data = dict(stored)
    names = [str(n) for n in data["names"]]
    nd = data["p"].shape[1]
    columns = {n: data["q"][:, i] for i, n in enumerate(names)}
    columns |= {f"p.{n}": data["p"][:, i] for i, n in enumerate(names[:nd])}
    columns |= {f"v.{n}": data["v"][:, i] for i, n in enumerate(names[nd:])}
    return data["sample"], columns, data["lam"]


# -- the marionette -------------------------------------------------------------------------------


def test_state_and_input(f, reference):
    assert (f.nx, f.nu, f.nd, f.nk, f.nm) == (80, 18, 22, 18, 6)
    assert set(f.state_names) == set(reference[1])
    assert f.input_names == tuple(f"rho.{n}" for n in f.system.kinematic)
    assert f.state_names[22:40] == f.system.kinematic
    q = models.marionette_configuration()
    for name in f.system.variables:
        assert q.get(name, 0.0) == pytest.approx(reference[1][name][0], abs=1e-12)
    assert np.abs(f.lagrangian.constraints(start(f)[:40])).max() < 1e-12


def test_agrees_with_the_independent_implementation(f, reference):
    samples, columns, impulses = reference
    run = f.rollout(start(f), pulled(f, f.dt * np.arange(samples[-1])), warn=False)
    for name, values in columns.items():
        np.testing.assert_allclose(run[name][samples], values, rtol=0, atol=1e-8, err_msg=name)
    np.testing.assert_allclose(run.multipliers[: len(impulses)], impulses, rtol=0, atol=1e-8)
    one = f.step(run.x[57], run.u[57], 57)
    np.testing.assert_allclose(one, run.x[58], atol=1e-10)


def test_strings_are_kept_and_carry_the_weight(f, motion):
    for name in f.multiplier_names:
        assert np.abs(motion[f"h.{name}"]).max() <= 1e-10
        assert tension(motion, name)[1:].min() > 0
    weight = 9.8 * sum(n.frame.mass.mass for n in f.system.nodes if n.frame.mass)
    assert sum(tension(motion, n)[1:].mean() for n in f.multiplier_names) == pytest.approx(weight, rel=0.01)


def test_linearization_agrees_with_differences_of_the_step(f, motion):
    for k in (0, 137):
        w, h = np.concatenate([motion.x[k], motion.u[k]]), 1e-4
        A, B = f.linearize(motion.x[k], motion.u[k], k)
        exact = np.hstack([A, B])
        points = [w + s * h * np.eye(98) for s in (1, -1, 2, -2)]
        values = [f.steps_at(p[:, :80], p[:, 80:], k).x1 for p in points]
        slopes = (8 * (values[0] - values[1]) - (values[2] - values[3])) / (12 * h)
        np.testing.assert_allclose(exact, slopes.T, rtol=0, atol=1e-6)


def test_second_order_agrees_with_differences_of_the_linearization(f, motion):
    random, k, h = np.random.default_rng(1), 137, 1e-3
    w, z, zeta = np.concatenate([motion.x[k], motion.u[k]]), random.normal(size=80), random.normal(size=6)

    def gradient(w):
        """Of z . x_k+1 + zeta . lambda_k."""
        lin = f.linearize(w[:80], w[80:], k)
        return np.concatenate([z @ lin.A + zeta @ lin.C, z @ lin.B + zeta @ lin.D])

    H = f.second_order(w[:80], w[80:], z, k, zeta=zeta)
    whole = np.block([[H.xx, H.xu], [H.xu.T, H.uu]])
    for d in random.normal(size=(3, 98)) / np.sqrt(98):
        values = [gradient(w + s * h * d) for s in (1, -1, 2, -2)]
        slope = (8 * (values[0] - values[1]) - (values[2] - values[3])) / (12 * h)
        np.testing.assert_allclose(whole @ d, slope, rtol=0, atol=1e-6 * (1 + np.abs(slope).max()))
    along = f.second_order_trajectory(motion, np.tile(z, (300, 1)), np.tile(zeta, (300, 1)))
    np.testing.assert_allclose(along.xx[k], H.xx, atol=1e-7 * (1 + np.abs(H.xx).max()))


def test_tensor_agrees_with_differences_and_with_contractions(f, motion):
    random, k, h = np.random.default_rng(2), 137, 1e-3
    w = np.concatenate([motion.x[k], motion.u[k]])

    def first(w):
        lin = f.linearize(w[:80], w[80:], k)
        return np.block([[lin.A, lin.B], [lin.C, lin.D]])

    tensors = [m.rows(0) for m in f.derivatives.tensor(f.steps_at([w[:80]], [w[80:]], k))]
    whole = np.concatenate(
        [
            np.concatenate(
                [np.concatenate([t.xx, t.xu], 2), np.concatenate([np.swapaxes(t.xu, 1, 2), t.uu], 2)], 1
            )
            for t in tensors
        ]
    )
    for d in random.normal(size=(2, 98)) / np.sqrt(98):
        values = [first(w + s * h * d) for s in (1, -1, 2, -2)]
        slope = (8 * (values[0] - values[1]) - (values[2] - values[3])) / (12 * h)
        np.testing.assert_allclose(whole @ d, slope, rtol=0, atol=1e-6 * (1 + np.abs(slope).max()))
    z, zeta = random.normal(size=80), random.normal(size=6)
    H = f.second_order(w[:80], w[80:], z, k, zeta=zeta)
    contracted = np.tensordot(np.concatenate([z, zeta]), whole, 1)
    # rounding of sums of 86 terms and of first derivatives up to 1e2
    bound = 1e-12 * (1 + np.abs(whole).max())
    np.testing.assert_allclose(contracted, np.block([[H.xx, H.xu], [H.xu.T, H.uu]]), rtol=0, atol=bound)
    piece = f.rollout(motion.x[0], motion.u[:3], warn=False)
    along, _ = f.derivatives.tensor(piece)
    again, _ = f.derivatives.tensor(f.steps_at(piece.x[2:3], piece.u[2:], 2))
    np.testing.assert_allclose(along.xx[2], again.xx[0], rtol=0, atol=1e-9 * np.abs(again.xx).max())


def test_feedback_through_the_strings_stabilizes(f, motion):
    """The full horizon is that of the study `marionette_dlqr`."""
    weights = {n: 100.0 if n in f.system.variables else 1.0 for n in f.state_names}
    regulator = control.dlqr(f, motion, weights, 1.0)
    disturbed = start(f) + f.state({"torso_rz": 0.1})
    assert np.abs(f.lagrangian.constraints(disturbed[:40])).max() > 1e-3  # the strings do not fit,
    closed = regulator.rollout(disturbed)
    free = f.rollout(disturbed, motion.u, warn=False)
    for run in (closed, free):
        for name in f.multiplier_names:
            assert np.abs(run[f"h.{name}"][1:]).max() <= 1e-10  # from the first step on they do
    errors = [np.linalg.norm((run.x - motion.x)[-1, :40]) for run in (closed, free)]
    assert errors[0] < 0.2 * errors[1]
    assert errors[1] > 0.08


def test_gains_on_the_manifold_bring_it_back_to_rest(f):
    """From .01 rad the gains of the state take 1.05 times that; without the rates' weight it was 1.23,
    and from .1 rad no step."""
    q = models.marionette_configuration()
    held = control.feedback.equilibrium(f, guess=f.state_from_configurations(q, q))
    weights = {n: 100.0 if n in f.system.variables else 1.0 for n in f.state_names}
    plain, reduced = (control.dlqr(f, held, weights, 1.0, manifold=m) for m in (False, True))
    assert len(reduced.poles) == 2 * (f.nd - f.nm) + f.nk
    for size in (0.01, 0.1):
        errors = []
        for loop in (plain, reduced):
            run = loop.rollout(held.x + f.state({"torso_rz": size}), 60)
            errors.append(np.linalg.norm(run.x[:, : f.nq] - held.x[: f.nq], axis=1))
        # both weigh what the strings let move alike: what the impulses absorb is second order here
        assert errors[1].max() < 1.1 * size
        assert errors[1].max() < 1.05 * errors[0].max() and errors[1][-1] < 1.1 * errors[0][-1]


# -- cranes: a prescribed trolley, in optimal control ----------------------------------------------


def crane(dt):
    """A load on a rod of 1 m; where it swings does not depend on its mass."""
    load = ry("swing")[tz(-1, name="load", mass=2)]
    return MidpointVI(System(Gravity(0, 0, -G), tx(K("trolley"), name="trolley")[load]), dt)


def hoist(dt):
    """A load on a rope whose length is prescribed, too."""
    load = tx("x")[tz("z", name="load", mass=2)]
    rope = DistanceConstraint("trolley", "load", K("rope"), name="rope")
    return MidpointVI(System(Gravity(0, 0, -G), load, tx(K("trolley"), name="trolley"), rope), dt)


def acceleration(f, name):
    """Of a prescribed variable at a sample: the jump of its velocity over dt."""
    velocity = (f.quantity(f"u.rho.{name}") - f.quantity(name)) / f.symbols.dt
    return (velocity - f.quantity(f"v.{name}")) / f.symbols.dt


def least_acceleration(f, end, weight=1e8):
    """1/2 integral of the squared accelerations, and an end at rest."""
    accelerations = [acceleration(f, name) for name in f.system.kinematic]
    misses = [f.quantity(name) - end.get(name, 0.0) for name in f.state_names]
    return control.Cost(
        f, 0.5 * ca.sumsqr(ca.vertcat(*accelerations)), 0.5 * weight * ca.sumsqr(ca.vertcat(*misses))
    )


def swing_after(run, trolley, rope):
    """Swing angle at the end, from the equation of motion r th'' + 2 r' th' + g sin th + a cos th = 0."""
    place, length = (CubicSpline(run.t, values, bc_type="clamped") for values in (trolley, rope))

    def rates(t, y):
        a, r = place(t, 2), length(t)
        return [y[1], -(2 * length(t, 1) * y[1] + G * np.sin(y[0]) + a * np.cos(y[0])) / r]

    y = solve_ivp(rates, run.t[[0, -1]], [0.0, 0.0], rtol=1e-10, atol=1e-12, max_step=0.01).y[:, -1]
    return float(np.hypot(y[0], y[1] / np.sqrt(G / length(run.t[-1]))))


def test_short_moves_of_the_crane_are_the_closed_form():
    """Linear problem from rest to rest: least 1/2 integral of a^2 = 1/2 d' W^-1 d, W the Gramian."""
    T, distance = 2.0, 1e-4
    A = np.array([[0, 1, 0, 0], [0, 0, 0, 0], [0, 0, 0, 1], [0, 0, -G, 0]])
    B = np.array([[0.0], [1], [0], [-1]])
    # Van Loan: the Gramian from one exponential
    E = expm(T * np.block([[-A, B @ B.T], [np.zeros((4, 4)), A.T]]))
    W = E[4:, 4:].T @ E[:4, 4:]
    d = np.array([distance, 0, 0, 0])
    exact = 0.5 * d @ np.linalg.solve(W, d)
    errors, built = [], crane(T / 50)
    for steps in (50, 100, 200):
        f = built.with_dt(T / steps)
        cost = least_acceleration(f, {"trolley": distance}, 1e10)
        best = control.optimize(f, cost, x0=f.state(), steps=steps, tolerance=1e-16)
        errors.append(abs(best.cost / exact - 1))
    assert errors[-1] < 2e-3
    np.testing.assert_allclose(np.log2(errors[:-1]) - np.log2(errors[1:]), 2.0, atol=0.2)


def test_crane_moves_its_load_without_residual_swing():
    f, steps, distance = crane(0.02), 100, 1.0
    best = control.optimize(f, least_acceleration(f, {"trolley": distance}), x0=f.state(), steps=steps)
    assert best.converged and best.iterations <= 8
    run = best.trajectory
    assert np.abs(run["swing"]).max() > 0.1
    np.testing.assert_array_equal(run["trolley"][1:], run["u.rho.trolley"])
    held = f.rollout(run.x[-1], run.x[-1, 1:2], 150)
    assert np.abs(held["load:x"] - distance).max() < 1e-6
    # the same trolley in the equation of motion; and one that goes as smoothly without looking ahead
    s = run.t / run.t[-1]
    smooth = distance * s**3 * (10 - 15 * s + 6 * s**2)
    ones = np.ones(steps + 1)
    assert swing_after(run, run["trolley"], ones) < 2e-3
    assert swing_after(run, smooth, ones) > 0.05


def test_hoist_moves_its_load_without_residual_swing():
    f, steps = hoist(0.02), 100
    x0 = f.initial_state({"z": -1.0, "rope": 1.0})
    x0[f.state_names.index("p.z")] = rest = -G * f.dt  # half of gravity's impulse in a step, on 2 kg
    stay = f.input({"rho.rope": 1.0})
    np.testing.assert_allclose(f.step(x0, stay), x0, atol=1e-12)
    goal = {"x": 1.0, "z": -0.6, "trolley": 1.0, "rope": 0.6, "p.z": rest}
    # far from the goal its stiff weight makes Newton's Hessian indefinite
    best = control.optimize(f, least_acceleration(f, goal), np.tile(stay, (steps, 1)), x0=x0, warmup=6)
    assert best.converged and best.iterations <= 10
    run = best.trajectory
    assert np.abs(run["h.rope"]).max() <= 1e-10
    held = f.rollout(run.x[-1], run.u[-1], 150, warn=False)
    assert np.abs(held["load:x"] - 1).max() < 1e-6
    assert np.abs(held["load:z"] + 0.6).max() < 1e-6
    assert swing_after(run, run["trolley"], run["rope"]) < 2e-3
    assert swing_after(run, run["trolley"], np.ones(steps + 1)) > 0.05  # without the hoisting


@pytest.mark.parametrize("make", [crane, hoist])
def test_cost_by_prescribed_inputs_has_exact_derivatives(make):
    f, random = make(0.05), np.random.default_rng(0)
    x0 = f.state({"z": -1.0, "rope": 1.0} if f.nm else {"swing": 0.2})
    U = np.tile(x0[f.nd : f.nq], (20, 1)) + 0.02 * random.normal(size=(20, f.nu))
    run = f.rollout(x0, U, warn=False)
    for target, *point in ((f, run.x[7], run.u[7]), (least_acceleration(f, {"trolley": 0.3}, 10.0), run)):
        for check in control.check_derivatives(target, *point):
            assert check.error < 1e-6, check
