"""Exact derivatives of the midpoint step, by routes that do not share the code under test."""

from __future__ import annotations

import warnings
from dataclasses import replace
from types import SimpleNamespace

import casadi as ca
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from support.mechanisms import G, everything, hold, pendulum, state_near
from support.strategies import systems

from vioc import (
    DistanceConstraint,
    Gravity,
    JointDamping,
    JointForce,
    LinearSpring,
    LinearTimeVI,
    MidpointVI,
    System,
    models,
    rx,
    ry,
    rz,
    tx,
    ty,
    tz,
)
from vioc.control import quadratic

# inside: derivatives are asked for by steps, and trials of a local model, as optimizers do
from vioc.control.descent.local_model import LocalModel
from vioc.errors import ChartWarning, StepError
from vioc.maps.derivatives import Steps

seeds = st.integers(0, 2**32 - 1)
few = settings(max_examples=12, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])
FIELDS = ("xx", "xu", "uu", "xp", "up", "pp")


def implicit_route(f: MidpointVI, x, u, x1, lam, k=0):
    """Derivatives of (x_next, multipliers) by CasADi's own implicit function theorem.

    A Newton root finder on the residual [S] (28) is differentiated twice by CasADi; nothing of
    vioc's block algebra takes part.
    """
    nz, n = f.nx + f.nm, f.nx + f.nu + len(f.parameters)
    z, w = ca.SX.sym("z", nz), ca.SX.sym("w", n)
    xs, us, ts = (
        ca.vertsplit(w, [0, f.nx, f.nx + f.nu, n])
        if len(f.parameters)
        else (
            *ca.vertsplit(w, [0, f.nx, n]),
            ca.SX(0, 1),
        )
        if f.nu
        else (w, ca.SX(0, 1), ca.SX(0, 1))
    )
    x_next, multipliers = (z[: f.nx], z[f.nx :]) if f.nm else (z, ca.SX(0, 1))
    r = f.residual(xs, us, x_next, multipliers, k * f.dt, f.dt, ts)
    finder = ca.rootfinder("finder", "newton", {"x": z, "p": w, "g": r}, {"abstol": 1e-13})
    W = ca.MX.sym("w", n)
    Z = finder(ca.DM(np.concatenate([x1, lam])), W)
    first = ca.jacobian(Z, W)
    weights = ca.MX.sym("weights", nz)
    second = ca.hessian(ca.dot(weights, Z), W)[0]
    return ca.Function("route", [W, weights], [Z, first, second])


@few
@given(
    system=st.one_of(
        systems(max_frames=5, forced=True, parameters=True),
        systems(max_frames=6, forced=True, constrained=True, kinematic=True),
    ),
    seed=seeds,
    options=st.sampled_from([{}, {"alpha": 0.3}, {"forcing": "left"}]),
)
def test_derivatives_agree_with_casadis_implicit_functions(system, seed, options):
    f = MidpointVI(system, 0.02, **options)
    x = state_near(f, seed)
    assume(x is not None and len(f.parameters) + f.nu > 0)
    random = np.random.default_rng(seed)
    u = hold(f, x, seed)
    u[len(system.inputs) :] += 0.01 * random.normal(size=f.nk)
    try:
        run = f.rollout(x, u[None])
        lin = f.linearize(x, u)
    except StepError:
        assume(False)
    z, zeta = random.normal(size=f.nx), random.normal(size=f.nm)
    route = implicit_route(f, x, u, run.x[1], run.multipliers[0])
    point = np.concatenate([x, u, f.theta])
    _, first, second = (np.array(o) for o in route(point, np.concatenate([z, zeta])))

    ours = np.block([[lin.A, lin.B, lin.P], [lin.C, lin.D, lin.E]])
    assert np.abs(ours - first).max() <= 1e-9 * (1 + np.abs(first).max())
    H = f.second_order(x, u, z, zeta=zeta)
    whole = np.block([[H.xx, H.xu, H.xp], [H.xu.T, H.uu, H.up], [H.xp.T, H.up.T, H.pp]])
    assert np.abs(whole - second).max() <= 1e-8 * (1 + np.abs(second).max())
    np.testing.assert_allclose(whole, whole.T, atol=1e-10 * (1 + np.abs(whole).max()))

    states, multipliers = (m.rows(0) for m in f.derivatives.tensor(f.steps_at([x], [u])))
    for name in FIELDS:
        parts = (np.tensordot(w, getattr(t, name), 1) for w, t in ((z, states), (zeta, multipliers)))
        size = 1 + max(np.abs(getattr(t, name)).max(initial=0.0) for t in (states, multipliers))
        # sums of up to ten terms of that size, whose first derivatives amplify rounding
        amplified = 1 + np.abs(first).max()
        np.testing.assert_allclose(sum(parts), getattr(H, name), atol=1e-13 * size * amplified)


def test_derivatives_agree_with_differences_of_the_step():
    f = MidpointVI(everything(), 0.02)
    x = state_near(f, 3)
    u = hold(f, x) + [0, 0.01, 0.005]
    lin, eps = f.linearize(x, u, k=2), 1e-6
    for matrix, size, move in (
        (lin.A, f.nx, lambda d: (x + d, u, f)),
        (lin.B, f.nu, lambda d: (x, u + d, f)),
        (lin.P, 4, lambda d: (x, u, f.with_parameters(**dict(zip(f.parameters, f.theta + d, strict=True))))),
    ):
        for i in range(size):
            d = eps * np.eye(size)[i]
            (xp, up, fp), (xm, um, fm) = move(d), move(-d)
            slope = (fp.step(xp, up, 2) - fm.step(xm, um, 2)) / (2 * eps)
            np.testing.assert_allclose(matrix[:, i], slope, atol=1e-6 * (1 + np.abs(slope).max()))


def closed_form(q, p, u, h):
    """Step of the pendulum of [S] with its derivatives by (q, p, u), differentiated by hand.

    With m = (q + q1)/2:  q1 - q + g h^2/2 sin m = h p + h^2 u,  p1 = (q1 - q)/h - g h/2 sin m.
    """
    q1 = q
    for _ in range(50):
        q1 -= (q1 - q + G * h**2 / 2 * np.sin((q + q1) / 2) - h * p - h**2 * u) / (
            1 + G * h**2 / 4 * np.cos((q + q1) / 2)
        )
    m = (q + q1) / 2
    s, c = np.sin(m), np.cos(m)
    E = 1 / (1 + G * h**2 / 4 * c)
    d1 = np.array([(1 - G * h**2 / 4 * c) * E, h * E, h**2 * E])
    m1 = (np.array([1.0, 0, 0]) + d1) / 2
    # differentiate the first equation twice: q1'' (1 + g h^2/4 c) = g h^2/2 s m' m'
    d2 = E * G * h**2 / 2 * s * np.outer(m1, m1)
    p1 = (q1 - q) / h - G * h / 2 * s
    e1 = (d1 - np.array([1.0, 0, 0])) / h - G * h / 2 * c * m1
    e2 = d2 / h + G * h / 2 * (s * np.outer(m1, m1) - c * d2 / 2)
    return np.array([q1, p1]), np.array([d1, e1]), np.array([d2, e2])


def test_pendulum_of_the_paper_to_1e_12_and_to_its_printed_digits():
    f = MidpointVI(pendulum(), 0.1, forcing="left")
    x, u = [0.2, 0.5], [0.8]
    step, first, second = closed_form(0.2, 0.5, 0.8, 0.1)
    A, B = f.linearize(x, u)
    tensor = f.derivatives.tensor(f.steps_at([x], [u]))[0].rows(0)
    np.testing.assert_allclose(f.step(x, u), step, atol=1e-12)
    np.testing.assert_allclose(np.hstack([A, B]), first, atol=1e-12)
    whole = np.concatenate(
        [np.concatenate([tensor.xx, tensor.xu], 2), np.concatenate([tensor.xu.swapaxes(1, 2), tensor.uu], 2)],
        1,
    )
    np.testing.assert_allclose(whole, second, atol=1e-12)
    # [S] IV-A and V
    np.testing.assert_allclose(A, [[0.9533, 0.0976], [-0.9333, 0.9533]], atol=1e-4)
    np.testing.assert_allclose(B[:, 0], [0.00976, 0.09533], atol=1e-5)
    printed_q = [[1.01e-2, 5.06e-4, 5.06e-5], [5.06e-4, 2.53e-5, 2.53e-6], [5.06e-5, 2.53e-6, 2.53e-7]]
    printed_p = [[2.02e-1, 1.01e-2, 1.01e-3], [1.01e-2, 5.06e-4, 5.06e-5], [1.01e-3, 5.06e-5, 5.06e-6]]
    np.testing.assert_allclose(whole, [printed_q, printed_p], rtol=5e-3)


def test_along_a_trajectory_and_at_points_is_step_by_step():
    f = MidpointVI(everything(), 0.02)
    x = state_near(f, 3)
    U = np.tile(hold(f, x), (6, 1)) + 0.01 * np.random.default_rng(1).normal(size=(6, f.nu))
    run = f.rollout(x, U)
    lin, points = f.linearize_trajectory(run), f.derivatives.linearize(f.steps_at(run.x[:-1], run.u))
    Z = np.random.default_rng(2).normal(size=(6, f.nx))
    zeta = np.ones((6, f.nm))
    H = f.second_order_trajectory(run, Z, zeta)
    for k in range(6):
        one = f.linearize(run.x[k], run.u[k], k)
        second = f.second_order(run.x[k], run.u[k], Z[k], k, zeta=zeta[k])
        for name in "ABPCDE":
            expected = getattr(one, name)
            scale = 1 + np.abs(expected).max()
            np.testing.assert_allclose(getattr(lin, name)[k], expected, atol=1e-8 * scale)
            np.testing.assert_allclose(getattr(points, name)[k], expected, atol=1e-8 * scale)
        for name in FIELDS:
            expected = getattr(second, name)
            np.testing.assert_allclose(
                getattr(H, name)[k], expected, atol=1e-8 * (1 + np.abs(expected).max())
            )


def test_tensors_contract_to_the_second_order():
    f = MidpointVI(everything(), 0.02)
    x = state_near(f, 3)
    u = hold(f, x)
    states, multipliers = (m.rows(0) for m in f.derivatives.tensor(f.steps_at([x], [u])))
    assert states.xu.shape == (f.nx, f.nx, f.nu) and multipliers.pp.shape == (1, 4, 4)
    z, zeta = np.arange(1.0, f.nx + 1), np.array([0.7])
    H = f.second_order(x, u, z, zeta=zeta)
    for name in FIELDS:
        contracted = np.tensordot(z, getattr(states, name), 1) + np.tensordot(
            zeta, getattr(multipliers, name), 1
        )
        np.testing.assert_allclose(contracted, getattr(H, name), atol=1e-9 * (1 + np.abs(contracted).max()))


def third_derivatives(f, q0, q1, h):
    """Of L_d of the tree and gravity by (q_k, q_k+1), by CasADi's differentiation."""
    a, n = f.alpha, f.nq
    lag, g = f.lagrangian, f.lagrangian.graph
    w = ca.SX.sym("w", 2 * n)
    both = ca.vertsplit(w, [0, n, 2 * n])
    L = ca.Function("L", [g.q_vector, g.v_vector, g.parameters], [lag.T - lag.V])
    value = h * L((1 - a) * both[0] + a * both[1], (both[1] - both[0]) / h, f.theta)
    third = ca.jacobian(ca.hessian(value, w)[0], w)
    return np.array(ca.Function("third", [w], [ca.densify(third)])(np.concatenate([q0, q1]))).reshape(
        3 * (2 * n,)
    )


@few
@given(
    system=systems(max_frames=6, kinematic=True, potentials=False),
    seed=seeds,
    alpha=st.sampled_from([0.5, 0.3]),
)
def test_third_derivatives_of_the_tree(system, seed, alpha):
    f = MidpointVI(system.with_components(Gravity(1.0, -2.0, -G)), 0.1, alpha=alpha)
    triples = f._structured._tensor._triples
    random = np.random.default_rng(seed)
    q0, v, h = random.normal(size=f.nq), random.normal(size=f.nq), 0.1
    q1 = q0 + h * v
    values = triples.values(((1 - alpha) * q0 + alpha * q1)[None], v[None], np.array([h]), f.theta)[0]
    (x, e, y, f_, z, g), source = triples.places[0].T, triples.places[1]
    found = np.zeros((2 * f.nq,) * 3)
    found[x + e * f.nq, y + f_ * f.nq, z + g * f.nq] = values.ravel()[source]
    expected = third_derivatives(f, q0, q1, h)
    np.testing.assert_allclose(found, expected, atol=1e-11 * (1 + np.abs(expected).max()))


def test_tensors_along_a_trajectory_are_those_of_its_steps():
    """With unequal steps, for a map with a path of its own and for one without."""
    f = MidpointVI(everything(), 0.02)
    x = state_near(f, 3)
    U = np.tile(hold(f, x), (5, 1)) + 0.01 * np.random.default_rng(1).normal(size=(5, f.nu))
    run = f.rollout(x, U, dt=[0.02, 0.01, 0.02, 0.03, 0.02])
    for tensors in (f.derivatives.tensor(run), replace(f.derivatives, whole=None).tensor(run)):
        for i, (whole, rows) in enumerate(zip(tensors, (f.nx, f.nm), strict=True)):
            assert whole.xx.shape == (5, rows, f.nx, f.nx) and whole.pp.shape == (5, rows, 4, 4)
            for k in range(5):
                Z, zeta = np.zeros((5, f.nx)), np.zeros((5, f.nm))
                (Z, zeta)[i][k] = np.arange(1.0, rows + 1)
                along = f.second_order_trajectory(run, Z, zeta)
                for name in FIELDS:
                    contracted = np.tensordot(np.arange(1.0, rows + 1), getattr(whole, name)[k], 1)
                    expected = getattr(along, name)[k]
                    np.testing.assert_allclose(
                        contracted, expected, atol=1e-11 * (1 + np.abs(getattr(whole, name)).max())
                    )
    # many constraints' derivatives are looped over, a few come at once
    looped = MidpointVI(everything(), 0.02)
    assert f._structured._tensor._start_at_once is not None
    looped._structured._tensor.__dict__["_start_at_once"] = None
    one = f.steps_at([x], [f.rest_input(x)])
    for whole, other in zip(f.derivatives.tensor(one), looped.derivatives.tensor(one), strict=True):
        for name in FIELDS:
            a, b = getattr(whole, name), getattr(other, name)
            np.testing.assert_allclose(a, b, atol=1e-12 * (1 + np.abs(a).max(initial=0.0)))


def test_linear_terms_have_no_second_derivatives():
    """Damped joints and motors cost the second order nothing; a spring between points does."""
    damped = System(
        ry("a")[tz(-1, name="m", mass=1)],
        tx(0.5, name="wall"),
        Gravity(0, 0, -G),
        JointDamping("a", 0.3),
        JointForce("a", "u"),
    )
    assert not MidpointVI(damped, 0.1)._structured.curved
    sprung = damped.with_components(LinearSpring("m", "wall", 5.0, 0.3))
    assert MidpointVI(sprung, 0.1)._structured.curved


def test_unpacks_as_the_tuples_of_the_field():
    f = MidpointVI(pendulum(), 0.1)
    A, B = f.linearize([0.1, 0.0])
    assert A.shape == (2, 2) and B.shape == (2, 1)
    Hxx, Hxu, Huu = f.second_order([0.1, 0.0], [0.0], [1.0, 0.0])
    assert (Hxx.shape, Hxu.shape, Huu.shape) == ((2, 2), (2, 1), (1, 1))


# -- [S] VII: where the linearization does not exist ----------------------------------------------


def test_spherical_pendulum_is_singular_where_the_determinant_says():
    """det M_k+1 = 0 for theta_k + theta_k+1 = 2 n pi (mended (34)); elsewhere A exists.

    The discrete Lagrangian is even in the mean angle, so a motion through the pole at theta_k =
    -theta_k+1 meets it.
    """
    f = MidpointVI(System(Gravity(0, 0, -G), rz("phi")[rx("theta")[tz(-1, mass=1)]]), 0.01)
    matrix = f.rule.newton_matrix

    def determinant(q0, q1):
        q0, q1 = np.array(q0), np.array(q1)
        return float(ca.det(matrix((q0 + q1) / 2, (q1 - q0) / 0.01, [], 0, [], 0.01)[0]))

    h, g, r = 0.01, G, 1.0
    for phi, a, b in ((0.0, 0.3, 0.4), (0.02, 0.3, 0.4), (0.02, 1.5, 1.7)):
        expected = (
            np.sin((a + b) / 2) ** 2
            / (4 * h**2)
            * (h**2 * g * np.cos((a + b) / 2) + r * (2 + np.cos(a + b)) * phi**2 + 4 * r)
        )
        # (34) with L_d carrying its factor dt
        assert determinant([0.0, a], [phi, b]) == pytest.approx(expected, rel=1e-9)
    assert determinant([0.0, -0.2], [0.1, 0.2]) == pytest.approx(0.0, abs=1e-9)
    with pytest.raises(StepError) as caught:
        f.linearize([0.0, 0.0, 0.0, 0.0])
    assert caught.value.cause == "singular M"
    with pytest.raises(StepError):
        f.linearize([0.0, 1e-17, 0.0, 0.0])  # nearly so
    f.linearize([0.0, 0.1, 0.0, 0.0])


@pytest.mark.parametrize("rule", (MidpointVI, LinearTimeVI))
def test_of_several_steps_the_singular_one_is_named(rule):
    f = rule(System(Gravity(0, 0, -G), rz("phi")[rx("theta")[tz(-1, mass=1)]]), 0.1)
    regular = f.state({"theta": 0.5})
    x0, x1 = (np.stack([x, np.zeros(4), regular]) for x in (regular, f.step(regular)))
    none, h = np.zeros((3, 0)), np.full(3, f.dt)
    with pytest.raises(StepError, match=r"step 8 .* M_k\+1") as caught:
        f.derivatives.linearize(Steps(x0, x1, none, none, np.zeros(3), h, np.array([7, 8, 9])))
    assert caught.value.k == 8


def test_a_trial_of_a_line_search_says_nothing_of_singular_steps():
    """It is thrown away, or linearized next, which is an error; which trials there are is up to rounding."""
    f = MidpointVI(System(Gravity(0, 0, -G), rz("phi")[rx("theta")[tz(-1, mass=1)]]), 0.01)
    with pytest.warns(ChartWarning):
        run = f.rollout([0.3, 0.1, 0.0, -0.2 / f.dt], steps=3)
    cost = quadratic(f, Q=1.0)
    iterate = SimpleNamespace(map=f, run=run, gains=np.zeros((3, 0, 4)), cost=cost)
    nowhere = SimpleNamespace(dx=np.zeros((4, 4)), du=np.zeros((3, 0)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        moved, _ = LocalModel.trial(iterate, nowhere, 1.0, np.inf)
    np.testing.assert_allclose(moved.x[1], run.x[1], rtol=0, atol=1e-9)


def test_a_singular_step_says_so():
    """Through the pole from theta to -theta: any phi solves the step, and the solver's is one of them."""
    f = MidpointVI(System(Gravity(0, 0, -G), rz("phi")[rx("theta")[tz(-1, mass=1)]]), 0.01)
    h, theta = f.dt, 0.1
    # balance of theta for theta_k+1 = -theta_k, phi_k+1 = phi_k: p = -(2 theta / h) - h/2 G sin(0)
    pole = np.array([0.3, theta, 0.0, -2 * theta / h])
    with pytest.warns(ChartWarning, match="M_k.1 .* does not determine phi, which"):
        after = f.step(pole)
    np.testing.assert_allclose(after[:2], [0.3, -theta], atol=1e-12)
    with pytest.raises(StepError, match="M_k.1 .* singular"):
        f.linearize(pole)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        beside = pole + [0, 1e-3, 0, 0]
        f.linearize(beside)
        run = f.rollout(beside, steps=3)
    with pytest.warns(ChartWarning):
        through = f.rollout(pole, steps=3)
    conditions = f.conditions(through)
    assert np.isinf(conditions.mass[0]) and conditions.mass[1:].max() < 1e4
    assert "worst of 3 steps: M inf at t = 0 s; Dh M^-1 Dh' 1 at" in repr(conditions)
    # (34): M is diagonal in pure pendular motion, -(1/h) sin^2 and -(1/h) - h/4 G cos of the mean angle
    mean = (run["theta"][:-1] + run["theta"][1:]) / 2
    diagonal = (
        np.stack([np.sin(mean) ** 2 / h, 1 / h + h / 4 * G * np.cos(mean)]) / f.lagrangian.mass_scale[:, None]
    )
    expected = diagonal.max(axis=0) / diagonal.min(axis=0)
    np.testing.assert_allclose(f.conditions(run).mass, expected, rtol=1e-6)


def test_constraints_turn_by_an_angle_within_a_step():
    """Dh M^-1 Dh' of a pendulum in x, y goes with the cosine of the step's turn."""
    f = MidpointVI(System(tx("x")[ty("y", name="bob", mass=2)], DistanceConstraint("bob", "world", 1.0)), 0.1)
    run = f.rollout(f.initial_state({"x": 1.0}, {"y": np.sin(1.2) / 0.1}), steps=2)
    turns = np.diff(np.unwrap(np.arctan2(run["y"], run["x"])))
    np.testing.assert_allclose(f.conditions(run).constraints, 1 / np.cos(turns), rtol=1e-9)
    np.testing.assert_allclose(f.conditions(run).mass, 1.0, rtol=1e-12)


def test_constrained_pendulum_is_singular_only_at_a_right_angle():
    """[S] VII-B: Dh M^-1 Dh' = -(4 dt/m) q_k . q_k+1 (mended) vanishes after a quarter turn in a step."""
    system = System(tx("x")[ty("y", name="bob", mass=1)], DistanceConstraint("bob", "world", 1.0))
    f = MidpointVI(system, 0.1)
    q0, q1 = np.array([1.0, 0.0]), np.array([np.cos(1.2), np.sin(1.2)])
    D = -np.eye(2) / 0.1
    expected = 4 * q1 @ np.linalg.inv(D) @ q0
    assert expected == pytest.approx(-4 * 0.1 * (q0 @ q1))
    x0 = f.initial_state({"x": 1.0}, {"y": np.sin(1.2) / 0.1})
    run = f.rollout(x0, steps=1)
    np.testing.assert_allclose(run.x[1, :2], q1, atol=1e-12)
    A = f.linearize_trajectory(run).A[0]
    assert np.isfinite(A).all() and np.linalg.matrix_rank(A) < 4  # an artefact of the full state
    with pytest.raises(StepError, match="quarter turn") as caught:
        # beyond the right angle: no solution, of sound constraints
        f.rollout(f.initial_state({"x": 1.0}, {"y": 1.01 / 0.1}), steps=1)
    assert caught.value.cause == "fold"
    assert caught.value.length == pytest.approx(0.1 / 1.01, rel=1e-2)  # the speed is kept: a right angle then


def test_second_order_of_steps_whose_first_is_known():
    """What is kept of the first order serves the same steps and parameters alone, and is nobody else's."""
    f = MidpointVI(models.load("n_link_pendulum", 3), 0.02)
    run = f.rollout(
        f.initial_state(dict(zip(f.system.variables, (0.4, 0.0, -1.0), strict=True))), np.zeros((6, f.nu))
    )
    steps, other = (f.steps_at(run.x[i : i + 5], run.u[:5]) for i in (0, 1))
    Z, zeta = np.random.default_rng(5).standard_normal((5, f.nx)), np.zeros((5, 0))
    expected = f.derivatives.second(f.steps_at(run.x[:5], run.u[:5]), Z, zeta)
    lin = f.derivatives.linearize(steps)
    lin.A[:], lin.B[:] = np.nan, np.nan  # a caller's own
    np.testing.assert_array_equal(f.derivatives.second(steps, Z, zeta).xx, expected.xx)
    f.derivatives.linearize(other)
    np.testing.assert_array_equal(f.derivatives.second(steps, Z, zeta).xx, expected.xx)
    assert np.abs(f.derivatives.second(other, Z, zeta).xx - expected.xx).max() > 1e-6


def test_long_chains_keep_their_digits():
    """A solves r_x + r_x1 A = 0 to the rounding of its terms, however ill M_k+1 is conditioned."""
    n, rng = 40, np.random.default_rng(0)
    f = MidpointVI(models.load("n_link_pendulum", n), 1e-3)
    x = f.initial_state(*(0.5 * rng.standard_normal((2, n))))
    r, args = f.residual, [ca.DM(x), ca.DM(0, 1), ca.DM(f.step(x)), ca.DM(0, 1), 0.0, f.dt, ca.DM(0, 1)]
    by = r.jacobian()(*args, ca.DM(r.numel_out(0), 1))
    r_x, r_x1 = np.array(by[0]), np.array(by[2])
    A = f.linearize(x).A
    terms = np.abs(r_x) + np.abs(r_x1) @ np.abs(A)
    assert np.abs(r_x + r_x1 @ A).max() <= 2 * n * np.finfo(float).eps * terms.max()
