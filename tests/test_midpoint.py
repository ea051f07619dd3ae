"""The midpoint integrator: closed forms, an independent implementation, order, conservation."""

from __future__ import annotations

import itertools
import pickle
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from scipy.optimize import brentq
from scipy.special import ellipj, ellipk
from support.mechanisms import G, everything, hold, pendulum, reference, state_near
from support.strategies import systems

from vioc import (
    Gravity,
    JointDamping,
    JointForce,
    Mass,
    MidpointVI,
    PointConstraint,
    System,
    rx,
    ry,
    rz,
    tx,
    ty,
    tz,
)
from vioc.components import Force, variable
from vioc.errors import ConstraintError, ModelError, RedundancyWarning, StepError

seeds = st.integers(0, 2**32 - 1)


@cache
def whole() -> MidpointVI:
    """A map of a system with one of each, built once for all tests."""
    return MidpointVI(everything(), 0.02)


FLOOR = 1e-11  # of a difference relative to the value, below which rounding would be measured
few = settings(max_examples=4, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much])


# -- against what is known in closed form ---------------------------------------------------------


def test_step_of_the_pendulum_is_the_closed_form():
    """[S] II-A: q = 0.2, p = 0.5, u = 0.8, dt = 0.1."""
    f = MidpointVI(pendulum(), 0.1, forcing="left")
    q, p, u, h = 0.2, 0.5, 0.8, 0.1
    q1 = brentq(lambda z: p - (z - q) / h - G * h / 2 * np.sin((z + q) / 2) + u * h, -1, 1, xtol=1e-16)
    p1 = (q1 - q) / h - G * h / 2 * np.sin((q1 + q) / 2)
    np.testing.assert_allclose(f.step([q, p], [u]), [q1, p1], atol=1e-12)
    np.testing.assert_allclose(f.step([q, p], [u]), [0.2471, 0.3627], atol=5e-5)  # as printed


def test_pendulum_converges_to_the_elliptic_solution():
    """Multibody benchmark A01: horizontal at rest, g = 9.81, at t = 10 s; order 2."""
    system = System(Gravity(0, 0, -9.81), rx("phi")[tz(-1, mass=1)])
    k2, w = 0.5, np.sqrt(9.81)
    sn = ellipj(ellipk(k2) - w * 10.0, k2)[0]
    exact = 2 * np.arcsin(np.sqrt(k2) * sn)
    assert np.sin(exact) == pytest.approx(0.2750874626, abs=1e-9)
    steps = 1000 * 2 ** np.arange(4)
    errors = []
    f = MidpointVI(system, 10.0)
    for n in steps:
        errors.append(abs(f.with_dt(10.0 / n).rollout(f.state(phi=np.pi / 2), steps=int(n)).x[-1, 0] - exact))
    slope = np.polyfit(np.log(10.0 / steps), np.log(errors), 1)[0]
    assert slope == pytest.approx(2.0, abs=0.05)


def test_three_links_agree_with_the_independent_implementation():
    system, data = reference("pendulum_n3")
    f = MidpointVI(system, 0.01, forcing="left")
    run = f.rollout(np.concatenate([data["q"][0], data["p"][0]]), steps=100)
    assert f.system.variables == tuple(data["names"])
    assert np.abs(run.x[:, :3] - data["q"][:101]).max() <= 1e-8
    assert np.abs(run.x[:, 3:] - data["p"][:101]).max() <= 1e-8


def test_closed_chain_agrees_with_the_independent_implementation():
    system, data = reference("closed_chain_undamped")
    f = MidpointVI(system, 0.01)
    start = f.state_from_configurations(data["q"][0], data["q"][0])
    np.testing.assert_allclose(start[7:], data["p"][0], atol=1e-12)
    run = f.rollout(start, steps=100)
    assert np.abs(run.x[:, :7] - data["q"][:101]).max() <= 1e-8
    assert np.abs(run.x[:, 7:] - data["p"][:101]).max() <= 1e-8
    # its normals turn with the frame, so only the size of each joint's impulse compares
    for pair in (slice(0, 2), slice(2, 4)):
        sizes = [np.linalg.norm(a[:100, pair], axis=1) for a in (run.multipliers, data["lam"])]
        np.testing.assert_allclose(*sizes, atol=1e-7)
    for name in f.multiplier_names:
        assert np.abs(run[f"h.{name}"]).max() <= 1e-10


def test_kinematic_variables_are_prescribed():
    f = whole()
    assert f.state_names == ("a", "b", "c", "trolley", "string", "p.a", "p.b", "p.c", "v.trolley", "v.string")
    assert f.input_names == ("torque", "rho.trolley", "rho.string")
    x = state_near(f, 3)
    run = f.rollout(x, np.tile(hold(f, x) + [0, 0.01, 0.02], (3, 1)))
    np.testing.assert_array_equal(run["trolley"][1:], run["u.rho.trolley"])
    np.testing.assert_allclose(run["v.string"][1], 0.02 / 0.02, atol=1e-12)
    assert np.abs(run["h.string"]).max() <= 1e-10


# -- what a variational integrator promises, on random trees ---------------------------------------


def final_states(system, seed, horizon, powers, u=None, speed=0.6):
    """(f, final state) at dt = horizon / 2^k, from one state, which does not depend on dt."""
    result = []
    built = MidpointVI(system, horizon)
    x0 = state_near(built, seed, speed=speed)
    assume(x0 is not None)
    for k in powers:
        f = built.with_dt(horizon / 2**k)
        U = np.tile(hold(f, x0, seed), (2**k, 1))
        try:
            result.append((f, f.rollout(x0, U).x[-1]))
        except StepError:
            assume(False)
    return result


def differences(values):
    return [np.linalg.norm(a - b) for a, b in itertools.pairwise(values)]


def order_of(values):
    """Order of convergence from consecutive halvings of dt, by regression."""
    errors = differences(values)
    return -np.polyfit(np.arange(len(errors)), np.log2(errors), 1)[0]


@few
@given(system=systems(max_frames=6, forced=True), seed=seeds)
def test_second_order_with_damping_and_inputs(system, seed):
    runs = final_states(system, seed, 0.16, range(4, 9))
    n = runs[0][0].nd
    values = [x for _, x in runs]
    for part in ([x[:n] for x in values], [x[n:] for x in values]):
        assume(min(differences(part)) > FLOOR * (1 + np.abs(part[-1]).max()))
        assert order_of(part) == pytest.approx(2.0, abs=0.2)


@few
@given(system=systems(max_frames=6, forced=True, constrained=True), seed=seeds)
def test_second_order_with_constraints_in_projected_momentum(system, seed):
    runs = final_states(system, seed, 0.08, range(4, 9), speed=0.3)
    q, p = [], []
    for g, x in runs:
        J = g.lagrangian.constraint_jacobian(x[: g.nq])
        assume(np.linalg.svd(J)[1][-1] > 0.1)  # away from singular positions
        M = g.lagrangian.mass_matrix(x[: g.nq])
        Y = np.linalg.solve(M, J.T)
        q.append(x[: g.nq])
        p.append(x[g.nq :] - J.T @ np.linalg.solve(J @ Y, Y.T @ x[g.nq :]))
    for part in (q, p):
        assume(min(differences(part)) > FLOOR * (1 + np.abs(part[-1]).max()))
        assert order_of(part) == pytest.approx(2.0, abs=0.2)


@few
@given(system=systems(max_frames=6), seed=seeds)
def test_symplectic(system, seed):
    f = MidpointVI(system, 0.02)
    A = f.linearize(state_near(f, seed)).A
    J = np.block([[np.zeros((f.nd, f.nd)), np.eye(f.nd)], [-np.eye(f.nd), np.zeros((f.nd, f.nd))]])
    assert np.abs(A.T @ J @ A - J).max() <= 1e-9 * max(1.0, np.abs(A).max() ** 2)


@few
@given(system=systems(max_frames=6, constrained=True), seed=seeds)
def test_symplectic_on_the_constraint_manifold(system, seed):
    f = MidpointVI(system, 0.02)
    x = state_near(f, seed)
    assume(x is not None)
    try:
        A = f.linearize(x).A
    except StepError:
        assume(False)
    n = f.nd
    Dh = f.lagrangian.constraint_jacobian(x[:n])
    kernel = np.linalg.svd(Dh)[2][f.nm :].T
    tangent = np.block([[kernel, np.zeros((n, n))], [np.zeros((n, kernel.shape[1])), np.eye(n)]])
    J = np.block([[np.zeros((n, n)), np.eye(n)], [-np.eye(n), np.zeros((n, n))]])
    W = tangent.T @ (A.T @ J @ A - J) @ tangent
    assert np.abs(W).max() <= 1e-9 * max(1.0, np.abs(A).max() ** 2)


@few
@given(system=systems(max_frames=5, potentials=False), seed=seeds)
def test_momenta_of_cyclic_coordinates(system, seed):
    """A tree that floats along three axes, and one that turns about a fixed axis: L ignores where."""
    body = Mass(1, (1, 1, 1))
    floating = System(tx("X")[ty("Y")[tz("Z", mass=body)[system.frames]]])
    turning = System(rz("turn", mass=body)[system.frames])
    for whole, cyclic in ((floating, ("p.X", "p.Y", "p.Z")), (turning, ("p.turn",))):
        f = MidpointVI(whole, 0.01)
        run = f.rollout(state_near(f, seed), steps=300)
        for name in cyclic:
            assert np.abs(run[name] - run[name][0]).max() <= 1e-10 * (1 + np.abs(run[name][0]))


def test_energy_band_shrinks_with_the_square_of_dt_and_does_not_drift():
    bands = []
    f = MidpointVI(pendulum(), 0.02)
    for h in (0.04, 0.02, 0.01):
        e = f.with_dt(h).rollout(f.state(theta=np.pi / 2), steps=int(2000 / h)).energy
        bands.append(e.max() - e.min())
        slope = np.polyfit(np.arange(len(e)), e, 1)[0] * len(e)
        assert abs(slope) < 1e-3 * bands[-1]
    np.testing.assert_allclose(np.log2(np.array(bands[:-1]) / bands[1:]), 2.0, atol=0.05)


def test_generalized_midpoint_is_first_order_off_one_half():
    for alpha, order in ((0.5, 2.0), (0.3, 1.0), (1.0, 1.0)):
        ends = []
        f = MidpointVI(pendulum(), 1.0, alpha=alpha)
        for k in range(8, 13):
            ends.append(f.with_dt(1.0 / 2**k).rollout(f.state(theta=1.0), steps=2**k).x[-1])
        assert order_of(ends) == pytest.approx(order, abs=0.1)


def test_left_forcing_is_first_order():
    system = System(Gravity(0, 0, -G), rx("a")[tz(-1, mass=1)], JointDamping("a", 0.5), JointForce("a", "u"))
    for forcing, order in (("symmetric", 2.0), ("left", 1.0)):
        ends = []
        built = MidpointVI(system, 1.0, forcing=forcing)
        for k in range(5, 10):
            f = built.with_dt(1.0 / 2**k)
            x0 = f.initial_state({"a": 1.0}, {"a": 0.5}, [2.0])
            ends.append(f.rollout(x0, [2.0], 2**k).x[-1])
        assert order_of(ends) == pytest.approx(order, abs=0.1)


# -- the machinery ----------------------------------------------------------------------------------


def test_step_and_rollout_agree_and_chunks_do_not_show():
    f = MidpointVI(pendulum(), 0.01)
    run = f.rollout([1.0, 0.2], steps=2100)
    x = run.x[0]
    for k in range(50):
        x = f.step(x, None, k)
    np.testing.assert_allclose(x, run.x[50], atol=1e-11)
    ends = f.rollout(run.x[990], steps=20, k0=990).x
    np.testing.assert_allclose(ends, run.x[990:1011], atol=1e-11)
    np.testing.assert_array_equal(run.x, f.rollout([1.0, 0.2], steps=2100).x)  # to the bit


def test_non_uniform_steps():
    f = MidpointVI(pendulum(), 0.01)
    lengths = 0.01 * (1 + 0.5 * np.sin(np.arange(30)))
    run = f.rollout([1.0, 0.2], steps=30, dt=lengths)
    x = run.x[0]
    for k, h in enumerate(lengths):
        x = f.step(x, None, k, dt=h)
    np.testing.assert_allclose(x, run.x[-1], atol=1e-11)
    np.testing.assert_allclose(np.diff(run.t), lengths)


def test_time_of_a_step_is_the_same_everywhere():
    """A force that depends on time sees t = k dt in step, rollout, derivatives and the fallback."""
    system = System(tx("x", mass=1), Kick("x"))
    f = MidpointVI(system, 0.1)
    x = f.state()
    for dt in (0.1, 0.3):
        end = f.step(x, None, 5, dt)
        np.testing.assert_allclose(end[1], dt * 5.5 * dt, atol=1e-12)
        np.testing.assert_allclose(f.rollout(x, steps=1, k0=5, dt=dt).x[1], end, atol=1e-12)
        np.testing.assert_allclose(f.step_solver.rescued(x, np.zeros(0), 5, 5 * dt, dt)[0], end, atol=1e-12)
    lengths = np.array([0.1, 0.3, 0.2])
    run = f.rollout(x, steps=3, dt=lengths)
    np.testing.assert_allclose(np.diff(run["p.x"]), lengths * (run.t[:-1] + lengths / 2), atol=1e-12)


@dataclass(frozen=True)
class Kick(Force):
    """F = t."""

    variable: str = variable()

    def generalized(self, k):
        return {self.variable: k.t}


@few
@given(system=systems(max_frames=6, constrained=True, forced=True), seed=seeds)
def test_globalized_solver_agrees_with_the_rollout(system, seed):
    f = MidpointVI(system, 0.02)
    x = state_near(f, seed)
    assume(x is not None)
    u = hold(f, x, seed)
    try:
        fast = f.rollout(x, u[None])
    except StepError:
        assume(False)
    slow, multipliers = f.step_solver.rescued(x, u, 0, 0.0, f.dt)
    scale = 1 + np.abs(fast.x).max()
    assert np.abs(slow - fast.x[1]).max() <= 1e-8 * scale
    assert f.residual(x, u, slow, multipliers, 0.0, f.dt, f.theta).full().max() <= 1e-8 * scale


def test_track_is_feedback_about_the_reference():
    f = MidpointVI(pendulum(), 0.05, wrap=["theta"])
    run = f.rollout([0.1, 0.0], steps=40)
    K = np.random.default_rng(0).normal(size=(40, 1, 2))
    start = [0.3 + 2 * np.pi, 0.1]
    tracked = f.track(start, run.x, run.u, K)
    x = np.array(start)
    for k in range(40):
        u = run.u[k] - K[k] @ f.difference(run.x[k], x)
        np.testing.assert_allclose(u, tracked.u[k], atol=1e-9)
        x = f.step(x, u, k)
    np.testing.assert_allclose(x, tracked.x[-1], atol=1e-9)
    assert abs(f.difference(run.x[0], np.array(start))[0] - 0.2) < 1e-12


def test_pickle_and_parameters():
    f = MidpointVI(everything(), 0.02, alpha=0.4).with_parameters(m=3.0)
    g = pickle.loads(pickle.dumps(f))
    x = state_near(f, 3)
    assert g.parameters["m"] == 3.0 and g.alpha == 0.4
    np.testing.assert_array_equal(f.step(x, hold(f, x)), g.step(x, hold(f, x)))
    assert not np.allclose(f.step(x, hold(f, x)), f.with_parameters(m=1.0).step(x, hold(f, x)))
    with pytest.raises(ModelError, match="unknown parameter 'mm'"):
        f.with_parameters(mm=1.0)


def test_named_quantities():
    f = whole()
    x = state_near(f, 3)
    run = f.rollout(x, np.tile(hold(f, x), (4, 1)))
    q = run.x[:, : f.nq]
    v = np.stack([run[f"v.{n}"] for n in f.system.variables], axis=1)
    for k in range(5):
        T, V = f.lagrangian.kinetic_energy(q[k], v[k]), f.lagrangian.potential_energy(q[k])
        assert run["energy"][k] == pytest.approx(T + V, rel=1e-10)
        rates = f.lagrangian.constraint_jacobian(q[k]) @ v[k]
        assert np.abs(rates).max() < 1e-9  # velocities are tangent to the constraints
    places = f.frame_positions(run.x)
    tip = f.system.frame_index("tip")
    np.testing.assert_allclose(places[:, tip, 2], run["tip:z"])
    np.testing.assert_allclose(run["force.string"], -run["lambda.string"] / 0.02)
    assert run["param.m"][0] == 2.0
    assert (f.unit("a"), f.unit("trolley"), f.unit("p.a"), f.unit("u.torque")) == (
        "rad",
        "m",
        "kg m^2/s",
        "N m",
    )
    with pytest.raises(ModelError, match="did you mean 'v.a'|known are"):
        f.quantity("v.aa")


# -- failures --------------------------------------------------------------------------------------


def spherical_pendulum():
    """theta from the downward vertical, phi about it: singular where theta = 0 ([S] VII-A)."""
    return System(Gravity(0, 0, -G), rz("phi")[rx("theta")[tz(-1, mass=1)]])


def test_singular_mass_matrix_of_a_chart_is_named():
    f = MidpointVI(spherical_pendulum(), 0.01)
    with pytest.raises(StepError, match="singular") as caught:
        f.step(f.state(phi=0.3, theta=0.0) + [0, 0, 0.1, 0])
    assert caught.value.cause == "singular M" and "phi" in str(caught.value)
    f.step(f.state(phi=0.3, theta=0.5) + [0, 0, 0.1, 0])  # and not elsewhere


def test_redundant_constraints_are_named():
    system = System(
        tx("x", mass=1)[ty("y", name="p", mass=1)],
        PointConstraint("p", "world", (1, 0, 0), name="one"),
        PointConstraint("p", "world", (2, 0, 0), name="two"),
    )
    with pytest.warns(RedundancyWarning, match="imply it: two"):
        f = MidpointVI(system, 0.01)
    assert f.redundant == ("two",) and f.multiplier_names == ("one",)
    f = MidpointVI(system, 0.01, redundant=())
    with pytest.raises(StepError, match="two follows from the other constraints") as caught:
        f.step(f.state())
    assert caught.value.cause == "singular constraints" and caught.value.k == 0


def test_rescue_continues_the_rollout(monkeypatch):
    """A step that the compiled rollout reports as bad is solved again and the run goes on."""
    f = MidpointVI(pendulum(), 0.01)
    expected = f.rollout([1.0, 0.0], steps=30).x
    g = MidpointVI(pendulum(), 0.01, tolerance=1e-18)  # nothing passes: every step is rescued
    calls = []

    def counted(x, u, k, t, dt):
        calls.append(k)
        return f.step_solver.rescued(x, u, k, t, dt)

    monkeypatch.setattr(g, "step_solver", replace(g.step_solver, rescued=counted))
    np.testing.assert_allclose(g.rollout([1.0, 0.0], steps=30).x, expected, atol=1e-10)
    assert calls and calls == sorted(set(calls))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda f: f.step([np.nan, 0.0]), "finite numbers, got nan in entry 0 \\(theta\\)"),
        (lambda f: f.step([0.0]), r"expected shape \(2,\) in the order theta, p.theta, got \(1,\)"),
        (lambda f: f.step([0.0, 0.0], [1.0, 2.0]), r"input: expected shape \(1,\)"),
        (lambda f: f.step([0.0, 0.0], dt=0.0), "dt: expected step lengths > 0, got 0"),
        (lambda f: f.step([0.0, 0.0], dt=-1.0), "dt: expected step lengths > 0"),
        (lambda f: f.rollout([0.0, 0.0]), "needs inputs U"),
        (lambda f: f.rollout([0.0, 0.0], np.zeros((3, 2))), r"inputs: expected shape \(N, 1\)"),
        (lambda f: f.rollout([0.0, 0.0], steps=0), "a whole number >= 1"),
        (lambda f: f.rollout([0.0, 0.0], [[0.0], [np.inf]]), "at step 1"),
        (lambda f: f.state(thta=1.0), "unknown name 'thta'"),
        (lambda f: MidpointVI(f.system, 0.0), "dt: expected"),
        (lambda f: MidpointVI(f.system, np.nan), "dt: expected"),
        (lambda f: MidpointVI(f.system, 0.1, alpha=2), "alpha"),
        (lambda f: MidpointVI(f.system, 0.1, forcing="right"), "forcing"),
        (lambda f: MidpointVI(f.system, 0.1, wrap=["x"]), "wrap: unknown state 'x'"),
    ],
)
def test_bad_input_has_its_own_error(call, message):
    with pytest.raises(ValueError, match=message):
        call(MidpointVI(pendulum(), 0.1))


def test_singular_mass_matrix_is_refused_at_build():
    with pytest.raises(ModelError, match="mass matrix is singular: nothing with mass moves with b"):
        MidpointVI(System(tx("a", mass=1)[ry("b")[tx(1.0)]]), 0.1)


def test_inconsistent_start_is_refused():
    f = whole()
    with pytest.raises(ConstraintError, match="violates string"):
        f.initial_state({"a": 0.1})
