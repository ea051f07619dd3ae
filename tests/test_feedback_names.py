"""Equilibria, regulators and outputs by names of quantities, in maximal coordinates and in minimal ones."""

import casadi as ca
import numpy as np
import pytest
from scipy.optimize import fsolve

import vioc
from vioc import Gravity, JointForce, Mass, MaximalVI, MidpointVI, System, coincident, models, ry, tx, tz
from vioc.control import dlqr, equilibrium, feedback, frequency_response, observability, quadratic, riccati
from vioc.control.feedback import tangent_basis

# inside: weights by name as matrices of errors, which regulators only use
from vioc.control.linear.weights import error_weights
from vioc.errors import ConstraintError, ModelError, OptimizationError

BARS = (0.4, 0.2), (1.0, 0.5), (0.8, 0.3)  # lengths and masses of crank, coupler, rocker
GUESS = {"crank": -1.5, "coupler": 1.0, "rocker": -1.7}
WEIGHTS = {"crank": 100.0, "v.crank": 1.0}


def bar(which):
    length, mass = BARS[which]
    return tx(length / 2, mass=Mass.rod(mass, length, axis=(1, 0, 0)))


def four_bar():
    """The linkage's system, and a configuration that closes it."""
    coupler = ry("coupler")[bar(1), tx(BARS[1][0], name="end")]
    crank = ry("crank")[bar(0), tx(BARS[0][0])[coupler]]
    rocker = tx(1.0)[ry("rocker")[bar(2), tx(BARS[2][0], name="tip")]]
    pin = coincident("end", "tip", "xz", name="pin")
    system = System(crank, rocker, Gravity(0, 0, -9.81), JointForce("crank", "torque"), pin)
    return system, vioc.consistent_configuration(system, GUESS, fixed="crank").q


def holding_torque(angle, guess):
    """By virtual work, dV/d(crank), from the linkage's geometry alone; and the angles."""

    def closed(crank):
        def gap(q):
            directions = np.exp(-1j * np.array([crank, crank + q[0], q[1]]))  # about y: x towards -z
            end = BARS[0][0] * directions[0] + BARS[1][0] * directions[1] - 1.0 - BARS[2][0] * directions[2]
            return end.real, end.imag

        return fsolve(gap, guess, xtol=1e-13)

    def potential(crank):
        coupler, rocker = closed(crank)
        z = -np.sin([crank, crank + coupler, rocker])
        heights = (
            0.5 * BARS[0][0] * z[0],
            BARS[0][0] * z[0] + 0.5 * BARS[1][0] * z[1],
            0.5 * BARS[2][0] * z[2],
        )
        return 9.81 * np.dot([m for _, m in BARS], heights)

    h = 1e-4
    steps = (potential(angle + k * h) for k in (-2, -1, 1, 2))
    return float(np.dot([1, -8, 8, -1], list(steps)) / (12 * h)), (angle, *closed(angle))


@pytest.fixture(scope="module")
def linkage():
    """(map, equilibrium, guess) in minimal and in maximal coordinates."""
    system, q = four_bar()
    made = []
    for f in (MidpointVI(system, 0.02), MaximalVI(system, 0.02)):
        guess = f.initial_state(q)
        made.append((f, equilibrium(f, crank=-1.7, guess=guess), guess))
    return made


@pytest.fixture(scope="module")
def pole():
    f = MaximalVI(models.load("cart_pole"), 0.02)
    return f, equilibrium(f, theta=0.0)


# -- equilibria -------------------------------------------------------------------------------------


def test_torque_that_holds_a_linkage(linkage):
    (_, minimal, _), (f, maximal, _) = linkage
    torque, angles = holding_torque(-1.7, minimal.x[1:3])
    assert maximal.u[0] == pytest.approx(torque, abs=1e-9)
    assert maximal.u[0] == pytest.approx(minimal.u[0], abs=1e-12)
    np.testing.assert_allclose(f.minimal(maximal.x, near=angles)[0], angles, atol=1e-9)
    np.testing.assert_allclose(f.difference(m_as(f, minimal), maximal.x), 0, atol=1e-9)
    assert maximal.moved < 1e-12 and maximal.iterations < 10
    np.testing.assert_allclose(np.linalg.norm(maximal.x[:21].reshape(3, 7)[:, 3:], axis=1), 1, atol=1e-15)
    assert maximal.verdict == minimal.verdict == "unstable"
    # the same rate of falling, up to the order of the two integrators
    assert maximal.modes.spectral_radius == pytest.approx(minimal.modes.spectral_radius, rel=1e-3)
    assert "crank = -1.7, " in repr(maximal) and "u.torque = 0.433005" in repr(maximal)
    assert maximal["crank"] == pytest.approx(-1.7) and abs(maximal["h.pin-x"]) < 1e-12


def m_as(f, held):
    """A state of minimal coordinates at rest in maximal ones."""
    return f.initial_state(held.x[:3])


def test_what_is_held_is_any_quantity(linkage):
    (m, minimal, a), (f, maximal, b) = linkage
    for hold in ({"u.torque": 0.2}, {"end:z": minimal["end:z"] - 0.02}):
        one, other = equilibrium(m, hold, guess=a), equilibrium(f, hold, guess=b)
        np.testing.assert_allclose(f.difference(m_as(f, one), other.x), 0, atol=1e-8)
        np.testing.assert_allclose(one.u, other.u, atol=1e-9)
        name, value = next(iter(hold.items()))
        assert one[name] == pytest.approx(value, abs=1e-10) == other[name]
    again = equilibrium(f, guess=(maximal.x, [0.0]), fixed="crank")
    assert again["crank"] == pytest.approx(-1.7, abs=1e-12) and again.u == pytest.approx(maximal.u, abs=1e-9)
    with pytest.raises(OptimizationError, match="with crank, u.torque fixed: .*moves d"):
        equilibrium(f, {"crank": -1.7, "torque": 0.0}, guess=maximal.x)


@pytest.mark.parametrize("torque, crank", [(-1.0, -0.6), (-0.5, -0.9)])
def test_a_torque_finds_its_angle_from_afar(linkage, torque, crank):
    """Up to half a radian away; from multipliers of zero it takes 14 iterations."""
    for f, *_ in linkage:
        q = vioc.consistent_configuration(f.system, {"crank": crank, "rocker": -2.0}).q
        held = equilibrium(f, torque=torque, guess=f.initial_state(q))
        expected, _ = holding_torque(held["crank"], [held["coupler"], held["rocker"]])
        assert torque == pytest.approx(expected, abs=1e-8)
        assert held.iterations < 12


def test_a_body_that_lies_on_the_floor_weighs():
    """By the smoothed contact: no residual, and derivatives of steps."""
    body = tz("z", name="body", mass=Mass(1.0, (0.01, 0.01, 0.01)))
    floor = vioc.Contact("body", radius=0.1, name="floor")
    f = MaximalVI(System(body, Gravity(0, 0, -9.81), JointForce("z", "lift"), floor), 0.01)
    settled = f.rollout(f.initial_state({"z": 0.11}), [4.0], steps=100).x[-1]
    for lift, guess in ((0.0, {"z": 0.1001}), (4.0, settled)):
        held = equilibrium(f, lift=lift, guess=guess)
        assert held["force.floor"] == pytest.approx(9.81 - lift, rel=1e-9) and 0 < held["gap.floor"] < 1e-8
    air = equilibrium(f, {"gap.floor": 0.01}, guess={"z": 0.2})
    assert air["z"] == pytest.approx(0.11, abs=1e-10) and air.u == pytest.approx([9.81], abs=1e-3)


def test_guesses_by_name(pole):
    f, upright = pole
    assert upright.verdict == "unstable" and upright.u == pytest.approx([0.0], abs=1e-12)
    for angle in (np.pi, -np.pi, 3 * np.pi):  # at the cut, and known modulo a turn
        down = equilibrium(f, {"theta": angle, "x": 0.3})
        assert down.verdict == "marginal" and down["x"] == pytest.approx(0.3, abs=1e-12)
        assert abs(down["theta"]) == pytest.approx(np.pi, abs=1e-10)
    found = equilibrium(f, force=0.0, guess={"theta": 3.0, "x": 0.7})
    assert abs(found["theta"]) == pytest.approx(np.pi, abs=1e-9)
    assert equilibrium(f, guess=upright.x, free="force").u == pytest.approx([0.0], abs=1e-12)


def test_equilibrium_of_a_late_command(pole):
    f, _ = pole
    late = feedback.DelayedMap(f)
    held = equilibrium(late, {"theta": 0.0, "x": 0.2})
    np.testing.assert_allclose(f.difference(f.initial_state({"x": 0.2}), held.x[: f.nx]), 0, atol=1e-10)
    assert late.space.error_names == (*f.space.error_names, "pending.force")
    run = late.rollout(late.join(f.state(theta=0.1)), np.arange(1.0, 6.0)[:, None])
    np.testing.assert_array_equal(run["u.force"], run.u[:, 0])  # commands, of which the last acts later
    np.testing.assert_array_equal(run["pending.force"][1:], run.u[:, 0])
    own = quadratic(late, Q=1.0, R=1.0, reference=run, u_reference=run)
    assert own.value(run) == 0 and quadratic(late, R=1.0).value(run) == pytest.approx(f.dt / 2 * 55)
    loop = dlqr(late, held, {"x": 10.0, "theta": 10.0, "pending.force": 0.1}, 1.0)
    run = loop.rollout(late.join(f.initial_state({"x": 0.25, "theta": 0.02})), 400)
    assert abs(run["x"][-1] - 0.2) < 1e-3


# -- weights ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", [0, 1])
def test_weights_by_name_are_those_of_their_derivatives(linkage, which):
    f, held, _ = linkage[which]
    J = []  # by differences, of states that retract makes
    for e in 1e-6 * np.eye(f.ndx):
        a, b = (f.rollout(f.retract(held.x, s * e), held.u, steps=1, warn=False) for s in (1, -1))
        J.append([(a[n][0] - b[n][0]) / 2e-6 for n in WEIGHTS])
    Q = np.array(J) @ np.diag(list(WEIGHTS.values())) @ np.array(J).T
    np.testing.assert_allclose(
        error_weights(f, WEIGHTS, "Q", held.x[None])[0], Q, atol=1e-6 * np.abs(Q).max()
    )
    loops = [dlqr(f, held, WEIGHTS, 1.0), dlqr(f, held, Q, 1.0)]
    reduced = [dlqr(f, held, WEIGHTS, 1.0, manifold=True), dlqr(f, held, Q, 1.0, manifold=True)]
    np.testing.assert_allclose(loops[0].K, loops[1].K, atol=1e-5 * np.abs(loops[0].K).max())
    np.testing.assert_allclose(reduced[0].K, reduced[1].K, atol=1e-5 * np.abs(reduced[0].K).max())
    assert len(reduced[0].poles) == 2
    start = equilibrium(f, crank=-1.6, guess=held.x).x
    for loop in (loops[0], reduced[0]):
        assert loop.rollout(start, 200)["crank"][-1] == pytest.approx(-1.7, abs=1e-4)


def test_names_of_errors(linkage):
    f, held, _ = linkage[1]
    names = f.space.error_names
    for name in ("phiy.tip", "dx.crank"):
        W = np.zeros(f.ndx)
        W[names.index(name)] = 2.0
        by_name = [dlqr(f, held, {name: 2.0}, 1.0, manifold=m) for m in (False, True)]
        by_place = [dlqr(f, held, W, 1.0), dlqr(f, held, W, 1.0, manifold=True)]
        for a, b in zip(by_name, by_place, strict=True):
            np.testing.assert_array_equal(a.K, b.K)
    both = error_weights(f, {"phiy.tip": 2.0, "crank": 1.0}, "Q", held.x[None])[0]
    one = error_weights(f, {"crank": 1.0}, "Q", held.x[None])[0]
    i = names.index("phiy.tip")
    assert (both - one)[i, i] == pytest.approx(2.0) and np.abs(both - one).sum() == pytest.approx(2.0)


def test_weights_along_a_trajectory():
    """Quantities whose derivatives change on the way: the Riccati sweep of J'WJ at every sample."""
    f = MidpointVI(models.load("cart_pole"), 0.02)
    run = f.rollout(f.initial_state({"theta": 0.8}), steps=30)
    weights, R = {"theta": 10.0, "v.x": 1.0, "v.theta": 2.0}, 0.1
    s = f.symbols
    y = ca.vertcat(*map(f.quantity, weights))
    J = ca.Function("J", [s.x, s.parameters], [ca.jacobian(y, s.x)])
    Q = np.array(
        [
            C.T @ np.diag(list(weights.values())) @ C
            for C in (J(x, list(f.parameters.values())).full() for x in run.x)
        ]
    )
    A, B = f.linearize_trajectory(run)
    K, _ = riccati(A, B, Q[:-1], R * np.eye(1), Q[-1])
    np.testing.assert_allclose(dlqr(f, run, weights, R).K, K, rtol=1e-9, atol=1e-10)
    curve = feedback.track_curve(f, run.x, run.u, weights, R)
    np.testing.assert_allclose(curve.K, K, rtol=1e-6, atol=1e-6)
    loop = dlqr(f, run, weights, R)
    start = f.initial_state({"theta": 0.81})
    mpc = feedback.ClosedLoop(f, feedback.LinearMPC(loop, 5)).simulate(start, 10)
    np.testing.assert_allclose(mpc.u, loop.rollout(start, 10).u, atol=1e-6)


# -- outputs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("which", [0, 1])
def test_static_gain_is_the_slope_of_equilibria(linkage, which):
    f, held, _ = linkage[which]
    names, h = ["crank", "end:z"], 1e-4
    around = [equilibrium(f, torque=held.u[0] + s * h, guess=(held.x, held.u)) for s in (1, -1)]
    slope = [(around[0][n] - around[1][n]) / (2 * h) for n in names]
    response = frequency_response(f, held, names, frequencies=[1e-5])
    np.testing.assert_allclose(response.values[0, :, 0], slope, rtol=1e-5)


def test_outputs_by_name(linkage):
    f, held, _ = linkage[1]
    assert observability(f, held, ["crank"]).rank == observability(f, held, ["dx.crank"]).rank == 2
    direct = np.eye(f.ndx)[[f.space.error_names.index("dx.crank")]]
    by_name, by_matrix = (
        frequency_response(f, held, c, frequencies=[1.0]).values for c in ("dx.crank", direct)
    )
    np.testing.assert_array_equal(by_name, by_matrix)
    # a measured state of a body is what its error is there
    np.testing.assert_allclose(frequency_response(f, held, "x.crank", frequencies=[1.0]).values, by_name)
    assert tangent_basis(f, held.x).shape == (36, 2)


# -- what is refused --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call, error, message",
    [
        (lambda f, e: dlqr(f, e, {"crnk": 1.0}, 1.0), ModelError, "Q: unknown name 'crnk'; .*'crank'"),
        (
            lambda f, e: dlqr(f, e, {"phiy.tp": 1}, 1.0),
            ModelError,
            "Q: unknown name 'phiy.tp'; .*'phiy.tip'",
        ),
        (lambda f, e: dlqr(f, e, {"u.torque": 1.0}, 1.0), ValueError, "Q: 'u.torque' belongs to a step"),
        (lambda f, e: frequency_response(f, e, "force.pin-x"), ValueError, "outputs: .* belongs to a step"),
        (lambda f, e: frequency_response(f, e, "crnk"), ModelError, "outputs: unknown name 'crnk'"),
        (lambda f, e: equilibrium(f, crnk=0.0, guess=e.x), ModelError, "unknown .*'crnk'; .*'crank'"),
        (lambda f, e: equilibrium(f, {"force.pin-x": 1.0}, guess=e.x), ValueError, "belongs to a step"),
        (lambda f, e: equilibrium(f, guess=e.x, free="crank"), ModelError, "free: unknown name 'crank'"),
        (
            lambda f, e: equilibrium(f, crank=-1.7),
            ConstraintError,
            r"h\(q\) of pin-x .*consistent_configuration",
        ),
        (
            lambda f, e: feedback.ClosedLoop(f, dlqr(f, e, WEIGHTS, 1.0), W={"crank": 1.0}),
            ModelError,
            "W: 'crank'",
        ),
    ],
)
def test_refusals(linkage, call, error, message):
    f, held, _ = linkage[1]
    with pytest.raises(error, match=message):
        call(f, held)
