"""`GroupVI` of several stages: order 2 s and 2 s - 2 without charts, constraints (docs/maths/groups.md)."""

import pickle

import casadi as ca
import numpy as np
import pytest
from scipy.linalg import null_space
from scipy.spatial.transform import Rotation
from support.free_bodies import body, branched, made, pair, pair_start, quadrotor, slope

import vioc
from vioc import GroupVI
from vioc.compile import find_compiler
from vioc.control import dlqr, optimize, quadratic

# inside: curves on the group are tried by themselves, as a step uses them
from vioc.dynamics.integrators.groups.curves import Curves, Path
from vioc.dynamics.integrators.quadrature import quadrature
from vioc.errors import ModelError
from vioc.maps import check_map

EPS = np.finfo(float).eps


def moved(f, seed, size=0.5):
    rng = np.random.default_rng(seed)
    return f.retract(f.initial_state(), size * rng.standard_normal(f.ndx))


@pytest.mark.parametrize(("points", "s"), [pytest.param("gauss", 3, marks=pytest.mark.slow), ("lobatto", 3)])
def test_keeps_the_protocol(points, s):
    f = made(branched, s, points)
    check_map(f, moved(f, 0, 0.3), np.array([0.4]))


@pytest.mark.parametrize("s", [2, 3, pytest.param(4, marks=pytest.mark.slow)])
def test_constraints_keep_the_protocol(s):
    f = made(pair, s, "lobatto").with_dt(0.02)
    check_map(f, f.rollout(pair_start(f), steps=10).x[-1], np.zeros(0))


def test_constraints_are_kept_and_take_no_momentum():
    f = made(pair, 3, "lobatto").with_dt(0.05)
    run = f.rollout(pair_start(f), steps=1000)
    assert np.abs(run["h.rod"]).max() < 1e-12
    p = run.x[:, f.nq :]
    linear, moments = p[:, :3] + p[:, 3:6], 0.0
    for i in range(2):
        s, pi = run.x[:, 6 + 4 * i : 10 + 4 * i], p[:, 6 + 3 * i : 9 + 3 * i]
        moments = moments + Rotation.from_quat(np.roll(s, -1, axis=1)).apply(pi)
        moments = moments + np.cross(run.x[:, 3 * i : 3 * i + 3], p[:, 3 * i : 3 * i + 3])
    for kept in (linear, moments):
        assert np.abs(kept - kept[0]).max() < 1e-12 * (1 + np.abs(run.x).max())
    assert np.ptp(run.energy) < 1e-5 * run.energy[0]
    late, early = run["force.rod"][500:1000], run["force.rod"][:500]  # of the whole step at the start, too
    assert np.abs(early[0] - early[1]) < 0.1 * np.abs(early[0])
    assert np.abs(late).max() > 0.1


def test_constrained_steps_by_every_means():
    f = made(pair, 3, "lobatto").with_dt(0.1)
    x = f.rollout(pair_start(f), steps=3).x[-1]
    plain, (numbers, impulse) = f.rollout(x, steps=1), f.step_solver.rescued(x, np.zeros(0), 0, 0.0, f.dt)
    assert np.abs(f.difference(plain.x[1], numbers)).max() < 1e-11
    assert plain.multipliers[0] == pytest.approx(impulse, abs=1e-11)


def test_a_step_is_symplectic_along_constraints():
    """The form of two variations of starts on the constraints, before and after."""
    f = made(pair, 3, "lobatto").with_dt(0.1)
    x = f.rollout(pair_start(f), steps=3).x[-1]
    y, A, n = f.step(x), f.linearize(x).A, f.nd

    def tangent(x):
        """Variations that keep h and momenta of rates along it, through nearby consistent states."""
        h, Dh = f._constraint_numbers(x[: f.nq], f.theta)
        rows = []
        for d in np.eye(2 * n):
            e = 1e-6
            sides = [f.retract(x, sign * e * d) for sign in (1, -1)]
            values = []
            for side in sides:
                h, Dh = f._constraint_numbers(side[: f.nq], f.theta)
                values.append(np.concatenate([h.ravel(), Dh @ across(side)]))
            rows.append((values[0] - values[1]) / (2 * e))
        return null_space(np.transpose(rows), rcond=1e-6)

    def across(x):
        """Rates of momenta by the mass matrix alone."""
        columns = [f.group.terms(x[: f.nq], e, [], 0, f.theta)[0] for e in np.eye(n)]
        M = np.array([np.array(c).ravel() for c in columns]).T
        return np.linalg.solve(M, x[f.nq :])

    T = tangent(x)
    assert T.shape == (2 * n, 2 * n - 2)
    gap = T.T @ (A.T @ form(f, y) @ A - form(f, x)) @ T
    assert np.abs(gap).max() < 1e-8  # of the differences that find T
    assert np.abs(T.T @ form(f, x) @ T).max() > 0.1


def form(f, x):
    """The symplectic form in left-trivialised errors: dpi ^ phi - pi . [phi, phi]."""
    n = f.nd
    J = np.kron([[0, 1], [-1, 0]], np.eye(n))
    for i in range(f.nr, n, 3):
        a, b, c = x[f.nq + i : f.nq + i + 3]
        J[i : i + 3, i : i + 3] = -np.array([[0, -c, b], [c, 0, -a], [-b, a, 0]])
    return J


def test_parameters_are_differentiated():
    rod = vioc.tz(-0.5)[vioc.ry("a")[vioc.tz(-0.3, mass=vioc.P("m", 1.2))]]
    joint = vioc.spherical("t", mass=vioc.Mass(1.0, (0.1, 0.2, 0.15)))
    terms = vioc.Gravity(0, 0, -9.81), vioc.JointForce("a", "u"), vioc.JointDamping("a", 0.2)
    f = GroupVI(vioc.System(joint[rod], *terms), 0.02, stages=2)
    check_map(f, moved(f, 7), np.array([0.3]))


def test_derivatives_of_steps_of_more_than_half_a_turn():
    """Rates are found again from those of both ends, not from the shorter turn between these."""
    f = GroupVI(vioc.System(vioc.free("b", mass=(1.0, 1.0, 1.4, 1.8))), 1.0, stages=2)
    x, e = f.initial_state(v={"b-wx": 3.9, "b-wy": 0.3}), 1e-5
    assert f.difference(x, f.step(x))[3] < -2  # the other way round is shorter
    by = [f.difference(f.step(f.retract(x, -e * d)), f.step(f.retract(x, e * d))) for d in np.eye(f.ndx)]
    assert np.abs(f.linearize(x).A - np.transpose(by) / (2 * e)).max() < 1e-7
    none = f.steps_at(np.zeros((0, f.nx)), np.zeros((0, 0)))
    assert f.derivatives.linearize(none).A.shape == (0, f.ndx, f.ndx)


def test_derivatives_on_the_manifold_against_differences():
    """A, B and the second order in errors, by central differences of the step and of A, B."""
    f = made(quadrotor, 2).with_dt(0.02)
    x, u, e = moved(f, 3), np.array([400.0, 500.0, 450.0, 300.0]), 1e-3
    lin, end = f.linearize(x, u), f.step(x, u)

    def along(g, d):
        return (8 * (g(e * d) - g(-e * d)) - (g(2 * e * d) - g(-2 * e * d))) / (12 * e)

    A = [along(lambda d: f.difference(end, f.step(f.retract(x, d), u)), d) for d in np.eye(f.ndx)]
    B = [along(lambda d: f.difference(end, f.step(x, u + 100 * d)), d) / 100 for d in np.eye(f.nu)]
    assert np.abs(lin.A - np.transpose(A)).max() < 1e-9 * (1 + np.abs(lin.A).max())
    assert np.abs(lin.B - np.transpose(B)).max() < 1e-11
    z = np.random.default_rng(4).standard_normal(f.ndx)
    H = f.second_order(x, u, z)

    def gradient(d):
        """z in the tangent space of the end there, times A and B there, which lead to that space."""
        there = f.step(x, u + 100 * d)
        J = [along(lambda c: f.difference(end, f.retract(there, c)), c) for c in np.eye(f.ndx)]
        return z @ np.transpose(J) @ f.linearize(x, u + 100 * d).matrix

    way = np.array([0.5, -0.7, 1.0, 0.3])  # in the space of inputs, of all of them
    mixed = along(gradient, way) / 100
    assert (
        np.abs(way @ np.hstack([H.xu.T, H.uu]) - mixed).max() < 1e-10
    )  # differences of differences: eps / e^2


@pytest.mark.parametrize(
    ("points", "s", "order"),
    [("gauss", s, 2 * s) for s in (2, 3)] + [("lobatto", s, 2 * s - 2) for s in (2, 3)],
)
def test_symplectic_and_undone_by_a_step_back(points, s, order):
    f = GroupVI(branched(damping=0.0), 0.03 if order > 2 else 0.01, stages=s, points=points)
    assert f.order == order
    x = moved(f, 1)
    A = f.linearize(x, np.zeros(f.nu)).A
    assert np.abs(A.T @ form(f, f.step(x)) @ A - form(f, x)).max() < 1e-12
    back = np.repeat([1.0, -1.0], [f.nq, f.nd])
    U = np.full((10, 1), 0.4)
    there = f.rollout(x, U)
    end = f.rollout(there.x[-1] * back, U).x[-1] * back
    assert np.abs(f.difference(x, end)).max() < 1e-10


@pytest.mark.parametrize("s", [3, 4])
def test_lobattos_points_have_their_order(s):
    """A tree that tumbles with a motor and a damper, beside Gauss's of a higher order."""
    ends, steps = [], (0.02, 0.01, 0.005)
    start, U = {"trunk-wx": 2.0, "trunk-wy": 0.3, "wrist-wz": 1.0}, np.array([[0.2]])
    f = made(branched, 4).with_dt(0.005)
    truth = f.rollout(f.initial_state(v=start), np.repeat(U, 40, axis=0)).x[-1]
    for h in steps:
        f = made(branched, s, "lobatto").with_dt(h)
        end = f.rollout(f.initial_state(v=start), np.repeat(U, round(0.2 / h), axis=0)).x[-1]
        ends.append(np.linalg.norm(f.difference(truth, end)))
    assert slope(steps, ends) == pytest.approx(2 * s - 2, abs=0.2), ends


def test_one_point_is_cayleys_map():
    """1 + h w/4 over 1 - h w/4, a turn of 4 atan(h |w|/4); momenta turn with it, whatever the rates."""
    curves, h, w = Curves(quadrature("gauss", 1)), 0.3, np.array([1.0, -2.0, 0.5])
    end = np.array(curves.path(w, h)[1]).ravel()
    angle = 4 * np.arctan(h * np.linalg.norm(w) / 4)
    assert end == pytest.approx(
        np.concatenate([[np.cos(angle / 2)], np.sin(angle / 2) * w / np.linalg.norm(w)])
    )
    many, pi = Curves(quadrature("gauss", 4)), np.array([0.3, 2.0, -1.0])
    rates = np.random.default_rng(0).standard_normal((3, 4)) * 4
    R = Rotation.from_quat(np.roll(np.array(many.path(rates, h)[1]).ravel(), -1))
    arrived = np.array(many.momenta(rates, np.zeros((3, 4)), pi, h)[1]).ravel()
    assert np.abs(R.apply(arrived) - pi).max() < 10 * EPS * np.linalg.norm(pi)


def test_polynomials_keep_their_length_at_the_end_alone():
    rule, rates = quadrature("gauss", 3), np.random.default_rng(1).standard_normal((3, 3)) * 3
    stages, end = Path(rule, ca.DM(rates), 0.3).ends
    norms = [float(sum(e * e for e in s)) for s in (*stages, end)]
    assert norms[-1] == pytest.approx(1, abs=10 * EPS)
    assert max(abs(n - 1) for n in norms[:-1]) > 1e-6


@pytest.mark.skipif(find_compiler() is None, reason="no compiler")
def test_compiled_code_does_the_same():
    f, g = made(branched, 2).with_dt(0.02), GroupVI(branched(), 0.02, stages=2, backend="compiled")
    x, U = moved(f, 5), np.full((20, 1), 0.3)
    gaps = f.difference(f.rollout(x, U).x, g.rollout(x, U).x)
    assert np.abs(gaps).max() < 1e-10
    for a, b in zip(f.linearize(x, U[0]), g.linearize(x, U[0]), strict=True):
        assert np.abs(a - b).max() < 1e-10
    f = made(pair, 3, "lobatto").with_dt(0.05)
    g = GroupVI(pair(), 0.05, stages=3, points="lobatto", backend="compiled")
    ours, theirs = (h.rollout(pair_start(h), steps=20) for h in (f, g))
    assert np.abs(f.difference(ours.x, theirs.x)).max() < 1e-10
    assert np.abs(ours.multipliers - theirs.multipliers).max() < 1e-10


def test_regulator_and_optimizer_run_unchanged():
    f = made(quadrotor, 2).with_dt(0.05)
    hover = np.full(4, np.sqrt(9.81 / 4e-5))
    hover -= 0.25 / hover  # u sqrt(u^2 + 1)
    x = f.initial_state()
    assert np.abs(f.difference(x, f.step(x, hover))).max() < 1e-10
    regulator = dlqr(f, (x, hover), Q=np.ones(f.ndx), R=1e-4)
    start = f.retract(x, np.concatenate([[0.5, -0.5, 0.2, 1.5, 0.3, 0.5], np.zeros(6)]))  # nose up by 86 deg
    run = regulator.rollout(start, steps=200)
    assert np.abs(f.difference(x, run.x[-1])).max() < 1e-3
    n = 30
    cost = quadratic(
        f, Q=np.ones(f.ndx), R=1e-4, Qf=10 * np.ones(f.ndx), reference=x, u_reference=hover, per_time=False
    )
    guess = regulator.rollout(start, steps=n)
    best = optimize(f, cost, guess)
    assert best.converged
    assert np.abs(f.difference(best.trajectory.x[-1], f.rollout(start, best.trajectory.u).x[-1])).max() < 1e-9


def test_stages_are_in_what_the_map_says_of_itself():
    f, g = GroupVI(body(), 0.1), GroupVI(body(), 0.1, stages=2)
    assert f.identity() != g.identity()
    assert f.backend.identity != g.backend.identity
    assert (f.order, g.order) == (2, 4)
    other = GroupVI(body(), 0.1, stages=2, points="lobatto")
    assert other.identity() != g.identity()
    assert other.backend.identity != g.backend.identity
    again = pickle.loads(pickle.dumps(g))
    assert again.stages == 2
    x = g.initial_state(v={"b-wx": 1.0, "b-wy": 2.0})
    assert (again.step(x) == g.step(x)).all()


def test_refusals():
    for wrong in (0, 9, 1.5):
        with pytest.raises(ModelError, match="stages: expected 1 to 8"):
            GroupVI(body(), 0.1, stages=wrong)
    with pytest.raises(ModelError, match="rod.*lobatto"):
        GroupVI(pair(), 0.1, stages=2)
    for wrong in ({"points": "radau", "stages": 2}, {"points": "lobatto"}):
        with pytest.raises(ModelError, match="points: expected one of gauss, lobatto"):
            GroupVI(body(), 0.1, **wrong)
    with pytest.raises(ModelError, match="cannot be composed"):
        vioc.Composition(GroupVI(body(), 0.1, stages=2), 4)
