"""Bases of the constraint manifold: exact invariance, symplecticity, and the numerical range of A."""

from dataclasses import replace

import casadi as ca
import numpy as np
import pytest
from scipy.linalg import solve_discrete_are
from support.control_maps import cart_pole
from support.mechanisms import everything, hold, state_near

from vioc import (
    CasadiMap,
    DistanceConstraint,
    Gravity,
    JointDamping,
    JointForce,
    Mass,
    MaximalVI,
    MidpointVI,
    RungeKutta,
    System,
    consistent_configuration,
    control,
    models,
    project_velocity,
    ry,
    tx,
    tz,
)
from vioc import K as kinematic
from vioc.control import LinearMPC, Measurement, dlqr, equilibrium, kalman, riccati
from vioc.control.feedback import as_law, restrict, tangent_bases, tangent_basis


def moving(f, steps=12):
    """A run of the closed chain away from its equilibrium."""
    q = consistent_configuration(f.system, {n: 0.3 for n in f.system.variables}).q
    v = project_velocity(f.system, q, np.ones(f.nq))
    return f.rollout(f.initial_state(q, v), steps=steps)


@pytest.fixture(scope="module")
def chain():
    f = MidpointVI(models.load("closed_chain"), 0.01)
    return f, moving(f)


@pytest.fixture(scope="module")
def driven():
    """The closed chain with a motor."""
    system = models.load("closed_chain").with_components(JointForce("J", "motor"))
    f = MidpointVI(system, 0.01)
    return f, moving(f, 60)


def test_bases_span_what_the_map_can_do(chain):
    f, run = chain
    T = tangent_bases(f, run)
    A, _ = f.linearize_trajectory(run)
    r = 2 * (f.nd - f.nm)
    assert T.shape == (len(run) + 1, f.nx, r)
    np.testing.assert_allclose(np.swapaxes(T, 1, 2) @ T, np.tile(np.eye(r), (len(T), 1, 1)), atol=1e-14)
    for k in range(len(run)):
        # range of A: consistent configurations; kernel of A: what the basis leaves out of them
        Dh = f.lagrangian.constraint_jacobian(run.x[k + 1, : f.nq])
        assert np.abs(Dh @ A[k][: f.nq]).max() < 1e-12
        impulse = np.concatenate(
            [np.zeros((f.nq, f.nm)), f.lagrangian.constraint_jacobian(run.x[k, : f.nq]).T]
        )
        assert np.abs(A[k] @ impulse).max() < 1e-10
        assert np.abs(T[k].T @ impulse).max() < 1e-13
    # two steps and more have the rank of the basis, by singular values alone
    size = np.linalg.svd(A[5] @ A[4] @ A[3] @ A[2], compute_uv=False)
    assert size[r - 1] > 1e-2 and size[r] < 1e-10


def test_restriction_is_exact_and_symplectic(chain):
    f, run = chain
    T = tangent_bases(f, run)
    A, B = f.linearize_trajectory(run)
    Ar, Br = restrict(A, B, T)
    whole, part = np.linalg.multi_dot(A[5:1:-1]), np.linalg.multi_dot(Ar[5:1:-1])
    np.testing.assert_allclose(T[6].T @ whole @ T[2], part, atol=1e-12)
    J = np.kron([[0, 1], [-1, 0]], np.eye(f.nd))
    for k in range(len(run)):
        before, after = (t.T @ J @ t for t in (T[k], T[k + 1]))
        assert np.abs(Ar[k].T @ after @ Ar[k] - before).max() < 1e-12
    assert Br.shape == (len(run), T.shape[2], 0)


def test_nonlinear_motions_stay_in_the_space(chain):
    f, run = chain
    T = tangent_bases(f, run)
    z = np.random.default_rng(0).standard_normal(T.shape[2])
    A, B = f.linearize_trajectory(run)
    Ar, _ = restrict(A, B, T)
    expected = z
    for matrix in Ar:
        expected = matrix @ expected
    e = 1e-4

    def ends(x):
        return f.rollout(x, steps=len(run)).x[-1]

    x0 = run.x[0]
    difference = (ends(x0 + e * T[0] @ z) - ends(x0 - e * T[0] @ z)) / (2 * e)
    np.testing.assert_allclose(T[-1].T @ difference, expected, rtol=1e-5, atol=1e-5)


def test_kinematic_rates_are_idle():
    f = MidpointVI(everything(), 0.01)
    x = state_near(f, 3)
    T = tangent_basis(f, x)
    assert T.shape == (f.nx, 2 * (f.nd - f.nm) + f.nk)
    rates = [i for i, n in enumerate(f.state_names) if n in ("v.trolley", "v.string")]
    assert not T[rates].any()
    # unconstrained blocks stay themselves, and configurations do not mix with momenta
    assert not (T[: f.nq].any(axis=0) & T[f.nq :].any(axis=0)).any()
    A, _ = f.linearize(x, hold(f, x))
    assert not A[:, rates].any()


def test_velocity_maps_keep_the_rate_of_the_constraint():
    f = RungeKutta(models.load("closed_chain"), 0.001)
    q = consistent_configuration(f.system, {n: 0.3 for n in f.system.variables}).q
    x = np.concatenate([q, project_velocity(f.system, q, np.ones(f.nq))])
    T = tangent_basis(f, x)
    assert T.shape == (14, 6)

    def rate(x):
        return f.lagrangian.constraint_jacobian(x[:7]) @ x[7:]

    for t in T.T:
        assert np.abs(rate(x + 1e-5 * t) - rate(x - 1e-5 * t)).max() / 2e-5 < 1e-8


def test_without_constraints_the_basis_is_the_identity():
    np.testing.assert_array_equal(tangent_basis(cart_pole(), np.zeros(4)), np.eye(4))
    run = cart_pole().rollout(np.zeros(4), steps=3)
    assert tangent_bases(cart_pole(), run).shape == (4, 4, 4)


def test_reduced_regulator_is_the_full_one_with_the_weights_of_the_next_sample(driven):
    """Second route: the full gain ends in A, so on the manifold it solves a problem with other weights."""
    f, run = driven
    T = tangent_bases(f, run)
    A, B = f.linearize_trajectory(run)
    Q, R = np.diag(np.linspace(1, 5, f.nx)), 0.1 * np.eye(1)
    full = dlqr(f, run, Q, R, Q)
    Ar, Br = restrict(A, B, T)
    # sample k pays for the state after it: Q[k+1] falls on (z, v), and nothing is left at the end
    AT = A @ T[:-1]
    Qr, S = np.swapaxes(AT, 1, 2) @ Q @ AT, np.swapaxes(AT, 1, 2) @ Q @ B
    Rr = R + np.swapaxes(B, 1, 2) @ Q @ B
    K, P = riccati(Ar, Br, Qr, Rr, np.zeros((T.shape[2],) * 2), S)
    np.testing.assert_allclose(full.K @ T[:-1], K, rtol=1e-7, atol=1e-9 * np.abs(K).max())
    np.testing.assert_allclose(full.K, K @ np.swapaxes(T[:-1], 1, 2) + _off(full.K, T), atol=1e-12)
    z = T[0].T @ full.P[0] @ T[0] - T[0].T @ Q @ T[0]
    np.testing.assert_allclose(P[0], z, rtol=1e-7, atol=1e-9 * np.abs(z).max())


def _off(K, T):
    """What of a gain acts on errors off the manifold."""
    return K - K @ T[:-1] @ np.swapaxes(T[:-1], 1, 2)


def test_reduced_regulator_stabilizes_and_ignores_the_constraint_impulse(driven):
    f, run = driven
    loop = dlqr(f, run, 10.0, 0.01, manifold=True)
    impulse = np.concatenate([np.zeros((f.nq, f.nm)), f.lagrangian.constraint_jacobian(run.x[7, : f.nq]).T])
    assert np.abs(loop.K[7] @ impulse).max() < 1e-10 * np.abs(loop.K[7]).max()
    T = tangent_basis(f, run.x[0])
    start = run.x[0] + T @ (1e-3 * np.ones(T.shape[1]))
    u, errors = loop.rollout(start).u, []
    for U in (u, run.u):
        errors.append(np.linalg.norm(tangent_basis(f, run.x[-1]).T @ (f.rollout(start, U).x[-1] - run.x[-1])))
    assert errors[0] < errors[1]
    assert loop.K.shape == (60, 1, 14) and np.isfinite(loop.K).all()


# -- what no step reads: rates of prescribed configurations ----------------------------------------


def test_an_end_is_held_on_the_manifold(driven):
    """By scipy's Riccati equation in the reduced coordinates."""
    f, _ = driven
    rest = equilibrium(f, guess=f.initial_state(consistent_configuration(f.system, {}).q))
    loop = dlqr(f, f.rollout(rest.x, rest.u, steps=3), 10.0, 0.01, manifold=True)
    held = loop.hold(rest)
    T = tangent_basis(f, rest.x, idle=True)
    A, B = restrict(*f.linearize(rest.x, rest.u), T)
    P = solve_discrete_are(A, B, 10 * np.eye(len(A)), 0.01 * np.eye(1))
    K = np.linalg.solve(0.01 * np.eye(1) + B.T @ P @ B, B.T @ P @ A) @ T.T
    np.testing.assert_allclose(held.end.K, K, rtol=0, atol=1e-8 * np.abs(K).max())
    assert held.manifold and held.end.manifold
    assert np.abs(dlqr(f, rest, 10.0, 0.01).K - K).max() > 1e-2 * np.abs(K).max()
    away = f.step(rest.x, rest.u + 0.1)
    for law in (held, held.end):
        mpc, own = LinearMPC(law, 4), as_law(law)
        for k in (0, 1, 4):  # the same across the end
            np.testing.assert_allclose(mpc(k, away), own(k, away), rtol=1e-8)


def crane():
    """A load on a rod below a prescribed trolley, about a swinging motion; no constraint."""
    load = ry("swing")[tz(-1, name="load", mass=2)]
    f = MidpointVI(System(Gravity(0, 0, -9.81), tx(kinematic("c"), name="trolley")[load]), 0.05)
    return f, f.rollout(f.state({"swing": 0.3}), np.linspace(0, 0.2, 12)[:, None], warn=False)


def test_predictive_control_without_bounds_is_the_reduced_regulator(driven):
    """Also off the manifold, whose directions the regulator does not feed back."""
    f, run = driven
    regulator = dlqr(f, run, 10.0, 0.01, manifold=True)
    ahead = LinearMPC(regulator, 4, bounds={f"u.{n}": 1e9 for n in f.input_names})
    rng = np.random.default_rng(3)
    for k in (0, 2):
        x = f.retract(run.x[k], 1e-3 * rng.standard_normal(f.ndx))
        expected = regulator.as_law()(run.k0 + k, x)
        np.testing.assert_allclose(ahead.plan(run.k0 + k, x).u[0], expected, rtol=1e-7, atol=1e-9)


def test_a_motion_that_rests_is_periodic():
    """Gains and cost to go are those of the equilibrium, with constraints and without."""
    for f, run in (crane(), hoist()):
        x, u = run.x[0], f.rest_input(run.x[0])
        if np.abs(f.difference(x, f.step(x, u))).max() > 1e-12:
            x, u = f.state(), f.input()
        steady = dlqr(f, (x, u), 2.0, 0.3, manifold=True)
        loop = dlqr(f, f.rollout(x, u, steps=4), 2.0, 0.3, "periodic", manifold=True)
        for K, P in zip(loop.K, loop.P, strict=False):
            np.testing.assert_allclose(K, steady.K, rtol=0, atol=1e-7 * np.abs(steady.K).max())
            np.testing.assert_allclose(P, steady.P, rtol=0, atol=1e-7 * np.abs(steady.P).max())


def hoist():
    """A load on a rope of prescribed length below a prescribed trolley, about a lift."""
    load = tx("x")[tz("z", name="load", mass=2)]
    rope = DistanceConstraint("trolley", "load", kinematic("rope"), name="rope")
    trolley = tx(kinematic("c"), name="trolley")
    f = MidpointVI(System(Gravity(0, 0, -9.81), load, trolley, rope, JointDamping("x", 0.5)), 0.05)
    place = {"z": -1.0, "rope": 1.0}
    x0 = f.state_from_configurations(place, place)
    U = np.column_stack([np.linspace(0, 0.2, 12), np.linspace(1.0, 0.8, 12)])
    return f, f.rollout(x0, U, warn=False)


def shifted_riccati(f, run, Q, R, rates):
    """Gains on (q, p): the weight of a rate (rho - q)/h after a step is one of the step's own q and rho."""
    T = tangent_bases(f, run)
    A, B = restrict(*f.linearize_trajectory(run), T)
    h, start = f.dt, len(f.system.inputs)
    E = np.zeros((f.nk, f.nx))  # the prescribed configurations in the state
    E[np.arange(f.nk), f.nd + np.arange(f.nk)] = 1.0
    D = np.zeros((f.nk, f.nu))
    D[np.arange(f.nk), start + np.arange(f.nk)] = 1 / h
    P, gains = T[-1].T @ Q @ T[-1], []
    for k in reversed(range(len(run))):
        C = -E @ T[k] / h
        G = R + B[k].T @ P @ B[k] + D.T @ rates @ D
        L = B[k].T @ P @ A[k] + D.T @ rates @ C
        gains.append(np.linalg.solve(G, L))
        P = T[k].T @ Q @ T[k] + A[k].T @ P @ A[k] + C.T @ rates @ C - L.T @ gains[-1]
    return np.array(gains[::-1]) @ np.swapaxes(T[:-1], 1, 2)


@pytest.mark.parametrize("make", [crane, hoist])
def test_weights_on_rates_are_weights_on_the_inputs_that_make_them(make):
    f, run = make()
    states = {n: 10.0 for n in (*f.system.variables, *(f"p.{n}" for n in f.system.dynamic))}
    Q, R = np.diag([states.get(n, 0.0) for n in f.state_names]), 0.1 * np.eye(f.nu)
    found = []
    for weight in (0.0, 1.0, 1e4):
        loop = dlqr(f, run, states | {f"v.{n}": weight for n in f.system.kinematic}, 0.1, manifold=True)
        expected = shifted_riccati(f, run, Q, R, weight * np.eye(f.nk))
        np.testing.assert_allclose(loop.K, expected, rtol=0, atol=1e-9 * np.abs(expected).max())
        found.append(loop.K)
    # a heavy weight holds the inputs where the prescribed configurations are
    assert np.abs(found[2] - found[0]).max() > 0.1 * np.abs(found[0]).max()
    T = tangent_bases(f, run)[:-1]
    np.testing.assert_allclose(found[2] @ T, -np.eye(f.nx)[f.nd : f.nq] @ T, atol=0.1)


def test_without_constraints_the_manifold_changes_nothing():
    """Gains, cost and cross weight, of a motion and of an equilibrium, and the filter of a measured rate."""
    f, run = crane()
    random = np.random.default_rng(0)
    root = random.normal(size=(f.nx + 1, f.nx + 1))
    W = root @ root.T
    Q, S, R = W[:-1, :-1], W[:-1, -1:], W[-1:, -1:]
    for about in (run, (f.state(), f.input())):
        plain, reduced = (dlqr(f, about, Q, R, S=S, manifold=m) for m in (False, True))
        np.testing.assert_allclose(reduced.K, plain.K, rtol=0, atol=1e-9 * np.abs(plain.K).max())
        np.testing.assert_allclose(reduced.P, plain.P, rtol=0, atol=1e-9 * np.abs(plain.P).max())
        assert np.abs(plain.K[..., -1]).max() > 1e-4  # S feeds the rate back
    largest = [np.sort(np.abs(loop.poles)) for loop in (plain, reduced)]
    np.testing.assert_allclose(*largest, atol=1e-6)
    blind = dlqr(f, (f.state(), f.input()), Q, R, manifold=True)
    assert len(blind.poles) == f.nx - 1 and not blind.K[:, -1].any()
    y = Measurement(f, {"v.c": 1e-3})
    for on in (kalman(f, run, y, 1.0, manifold=True), kalman(f, run, y, 1.0)):
        assert np.abs(on.L[1:, :3]).max() > 1e-3
    np.testing.assert_allclose(on.L, kalman(f, run, y, 1.0, manifold=True).L, atol=1e-12)


def test_outputs_that_are_rates_respond():
    f, run = hoist()
    still = run.x[0], f.input({"rho.rope": 1.0})
    on, off = (
        control.frequency_response(f, still, ("v.c", "x"), frequencies=[0.1, 1.0], manifold=m).values
        for m in (True, False)
    )
    np.testing.assert_allclose(on, off, atol=1e-9 * np.abs(off).max())
    # of (rho_k - rho_k-1)/h
    rate = np.abs(np.exp(2j * np.pi * f.dt * np.array([0.1, 1.0])) - 1) / f.dt
    np.testing.assert_allclose(np.abs(on[:, 0, 0]), rate, rtol=1e-9)
    with pytest.raises(ValueError, match="'v.c' depends on what no step reads .* manifold=False"):
        control.observability(f, still, ["x", "v.c"])
    assert control.observability(f, still, ["x"]).rank == control.observability(f, run, "x").rank


def test_a_direction_without_inertia_is_idle():
    """Point masses on a line: how fast the line spins about itself acts on nothing, and may be weighed."""
    rod = ry("a", name="rod", mass=Mass(1.0, (0.1, 0.1, 0.0)))
    f = MaximalVI(System(rod, Gravity(0, 0, -9.81), JointForce("a", "torque")), 0.05)
    x = f.initial_state({"a": 0.3})
    T, whole = tangent_basis(f, x), tangent_basis(f, x, idle=True)
    np.testing.assert_allclose(whole[:, : T.shape[1]], T, atol=1e-12)
    (idle,) = whole[:, T.shape[1] :].T
    assert abs(idle[f.space.error_names.index("dwz.rod")]) == pytest.approx(1.0, abs=1e-9)
    lin = f.linearize(x)
    assert np.abs(lin.A @ idle).max() < 1e-9 and np.abs(lin.C @ idle).max() < 1e-9


def test_errors_say_what_is_wrong(chain):
    f, run = chain
    with pytest.raises(ValueError, match=r"expected shape \(14,\)"):
        tangent_basis(f, np.zeros(3))
    A, B = f.linearize_trajectory(run)
    with pytest.raises(ValueError, match=r"bases \(N\+1, n, r\), got"):
        restrict(A, B, np.zeros((3, 14, 6)))
    broken = run.x.copy()
    broken[4, : f.nq] = 0.0  # a singular configuration
    with pytest.raises(ValueError, match="sample 4: .* constraints become dependent"):
        tangent_bases(f, replace(run, x=broken))


def test_a_multiplier_without_a_constraint_is_no_condition():
    x, u = ca.SX.sym("x", 2), ca.SX.sym("u")
    f = CasadiMap(ca.Function("f", [x, u], [x + u]), dt=0.1)
    f.multiplier_names = ("tension",)
    np.testing.assert_array_equal(tangent_basis(f, np.zeros(2)), np.eye(2))
