"""`GroupVI` of several stages on the bodies of its studies: their closed forms, random trees and loops."""

import numpy as np
import pytest
from scipy.spatial.transform import Rotation
from support.free_bodies import INERTIA, body, made, pinned, quadrotor, slope, spatial_momentum

import vioc
from studies.free_bodies import random_tree
from studies.free_bodies_exact import apart, hung_flight, quadrotor_flight, torque_free
from studies.free_bodies_orders import random_loop
from vioc import GroupVI
from vioc.errors import StepError

EPS = np.finfo(float).eps


@pytest.mark.parametrize(("s", "steps"), [(2, (0.2, 0.1, 0.05)), (3, (0.4, 0.2, 0.1)), (4, (0.8, 0.4, 0.2))])
def test_torque_free_body_against_jacobi_functions(s, steps):
    spin, errors = np.array([0.6, 0.0, 0.9]), []
    for h in steps:
        f = made(body, s).with_dt(h)
        run = f.rollout(f.initial_state(v={"b-wx": 0.6, "b-wz": 0.9}), steps=round(8 / h))
        exact, _ = torque_free(run.t, INERTIA, spin)
        found = run.x[:, -3:] / INERTIA
        exact[:, 1] *= np.sign(found[1, 1] * exact[1, 1])
        errors.append(np.abs(found - exact).max())
        L = spatial_momentum(f, run.x)
        assert np.abs(L - L[0]).max() < 100 * EPS * np.linalg.norm(L[0])
        assert np.abs(np.linalg.norm(run.x[:, 3:7], axis=1) - 1).max() < 1e-14
    assert slope(steps, errors) == pytest.approx(2 * s, abs=0.2), errors
    assert errors[-1] > 1e-12


@pytest.mark.parametrize("s", [2, 3])
def test_lagrange_top_against_eulers_equations(s):
    m, g, arm, across, along = 1.0, 9.81, 0.5, 0.5, 0.2
    mass = vioc.Mass(m, (across - m * arm**2,) * 2 + (along,), (0, 0, arm))
    top = vioc.System(vioc.spherical("t", frame="top", mass=mass), vioc.Gravity(0, 0, -g))
    w0, errors, steps = (0.5, 0.0, 20.0), [], {2: (0.02, 0.01, 0.005), 3: (0.04, 0.02, 0.01)}[s]
    inertia, still = np.array([across, across, along]), np.zeros(3)
    built = GroupVI(top, 0.01, stages=s)
    tilt = built.initial_state({"t-ry": 1.0})[:4]
    truth = hung_flight(m * g, arm, inertia).after(np.concatenate([still, tilt, still, w0]), 1.0)
    for h in steps:
        f = built.with_dt(h)
        x = f.initial_state({"t-ry": 1.0}, dict(zip(f.rates, w0, strict=True)))
        run = f.rollout(x, steps=round(1 / h))
        end = run.x[-1]
        errors.append(apart(np.concatenate([still, end[:4], still, end[4:] / inertia]), truth))
        spatial = Rotation.from_quat(np.roll(run.x[:, :4], -1, axis=1)).apply(run.x[:, 4:])
        assert np.abs(spatial[:, 2] - spatial[0, 2]).max() < 1e-13 * np.linalg.norm(spatial[0])
    assert slope(steps, errors) == pytest.approx(2 * s, abs=0.2), errors
    assert errors[-1] > 1e-11


@pytest.mark.parametrize("s", [2, 3])
def test_tumbling_quadrotor_with_forcing_against_newton_and_euler(s):
    hubs = np.array([[0.2, 0, 0], [0, 0.2, 0], [-0.2, 0, 0], [0, -0.2, 0]])
    truth = quadrotor_flight(1.0, np.array([0.01, 0.012, 0.02]), hubs, 1e-5, 2e-7, 9.81)
    U = np.array([[600.0, 450, 300, 500], [300, 700, 200, 400], [-200, 300, 500, 100], [400, 400, 450, 500]])
    errors, steps = [], {2: (0.02, 0.01, 0.005), 3: (0.04, 0.02, 0.01)}[s]
    for h in steps:
        f = made(quadrotor, s).with_dt(h)
        x = f.initial_state({"b-ry": 1.5}, dict(zip(f.rates, (0.5, -1.0, 2.0, 3.0, 5.0, 2.0), strict=True)))
        y = np.concatenate([x[:7], f.velocities(x)])
        run = f.rollout(x, np.repeat(U, round(0.2 / h), axis=0))
        for u in U:
            y = truth.after(y, 0.2, u)
        errors.append(apart(np.concatenate([run.x[-1, :7], f.velocities(run.x[-1])]), y))
    assert slope(steps, errors) == pytest.approx(2 * s, abs=0.2), errors
    assert errors[-1] > 1e-11


@pytest.mark.parametrize("s", [2, 3, 4])
def test_a_pinned_body_against_eulers_equations(s):
    """Order 2 s - 2 of attitudes and rates by DOP853; the pin and its rate at every sample."""
    system, inertia = pinned()
    w0, still, errors = np.array([1.0, 0.5, 2.0]), np.zeros(3), []
    truth = hung_flight(9.81, -0.5, inertia)
    steps = {2: (0.01, 0.005, 0.0025), 3: (0.04, 0.02, 0.01), 4: (0.1, 0.05, 0.04)}[s]
    built = GroupVI(system, 0.01, stages=s, points="lobatto")
    for h in steps:
        f = built.with_dt(h)
        moving = dict(zip(("b-wx", "b-wy", "b-wz"), w0, strict=True)) | {"b-x": -0.25, "b-y": 0.5}
        x = f.initial_state({"b-z": -0.5}, moving)  # w x (0, 0, -1/2)
        run = f.rollout(x, steps=round(1 / h))
        end, v = run.x[-1], f.velocities(run.x)
        y = truth.after(np.concatenate([still, x[3:7], still, w0]), 1.0)
        errors.append(apart(np.concatenate([still, end[3:7], still, v[-1, 3:]]), y))
        assert np.abs(np.stack([run[f"h.{name}"] for name in f.multiplier_names])).max() < 1e-12
        for k in range(0, len(run.x), 5):  # momenta are M v of rates along the pin
            p = np.array(f.group.terms(run.x[k, : f.nq], v[k], [], 0, f.theta)[0]).ravel()
            assert np.abs(p - run.x[k, f.nq :]).max() < 1e-11
    assert slope(steps, errors) == pytest.approx(2 * s - 2, abs=0.2), errors
    assert errors[-1] > 1e-12


def dead_point(dt: float):
    """A loop that passes a dead point behind 14 steps of 0.02 s, in steps of dt: its map, and a start."""
    system, q = random_loop(3)
    f = GroupVI(system, dt, stages=3, points="lobatto")
    spin = np.random.default_rng([23, 3]).uniform(-3, 3, 3)
    return f, f.initial_state(q, {f"b-w{a}": w for a, w in zip("xyz", spin, strict=True)})


def test_where_a_loop_passes_a_dead_point_too_fast_a_step_does_not_exist():
    f, start = dead_point(0.04)
    with pytest.raises(StepError, match="does not exist") as caught:
        f.rollout(start, steps=8)
    run, length = caught.value.trajectory, caught.value.length
    assert caught.value.cause == "fold" and 0 < length < 0.04 and len(run) == caught.value.k
    f.step(run.x[-1], dt=0.99 * length)


@pytest.mark.slow
def test_a_branch_that_bends_sharply_is_no_fold():
    """In steps of 0.02 s velocities grow to seven times theirs at the dead point, on one branch all the way.

    Newton's corrections end at rounding there, near 1e-12, which is not to be taken for a fold.
    """
    f, start = dead_point(0.02)
    run = f.rollout(start, steps=14)
    shares = np.linspace(0.5, 1.0, 200)
    ends = np.array([f.step(run.x[11], dt=share * f.dt) for share in shares])
    moves = np.diff(ends[:, : f.nq], axis=0)
    bends, lengths = (np.linalg.norm(a, axis=1) for a in (np.diff(moves, axis=0), moves))
    assert (bends < 0.2 * lengths[1:]).all()
    fine = f.with_dt(0.0025).rollout(start, steps=14 * 8)  # shorter steps pass the dead point at their speed
    assert np.abs(f.difference(fine.x[: 8 * 11 + 1 : 8], run.x[:12])).max() < 0.02
    assert np.ptp(fine.energy) < 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("s", [2, 3])
def test_random_floating_trees_keep_momentum(s):
    for seed in range(4):
        system = random_tree(seed, 2 + seed % 4)
        f = GroupVI(system, 0.02, stages=s)
        rng = np.random.default_rng(seed)
        x = f.retract(f.initial_state(), np.concatenate([rng.uniform(-2, 2, f.nd), np.zeros(f.nd)]))
        v = rng.uniform(-3, 3, f.nd)
        x[f.nq :] = np.array(f.group.terms(x[: f.nq], v, np.zeros(f.nu), 0, f.theta)[0]).ravel()
        run = f.rollout(x, steps=200)
        i = f.rates.index("b-wx")
        k = f.state_names.index("b-qw")
        turn = Rotation.from_quat(np.roll(run.x[:, k : k + 4], -1, axis=1))
        places = [f.state_names.index(f"b-{a}") for a in "xyz"]
        moments = [f.state_names.index(f"p.b-{a}") for a in "xyz"]
        p = run.x[:, moments]
        L = turn.apply(run.x[:, f.nq + i : f.nq + i + 3]) + np.cross(run.x[:, places], p)
        size = 1 + np.abs(run.x).max() * np.abs(p).max() + np.abs(L).max()
        assert np.abs(p - p[0]).max() < 1e-12 * size
        assert np.abs(L - L[0]).max() < 1e-12 * size


def test_steps_that_turn_too_far_for_the_iteration_are_solved_by_newtons_method():
    """A radian a step; the kernel's own error says that it gave up, and the step has no such error."""
    f = GroupVI(random_tree(0, 0), 0.2, stages=3)
    x = f.initial_state(v={"b-wx": 4.0, "b-wy": -3.0, "b-wz": 2.0})
    assert not float(f._kernel(x, np.zeros(0), 0, f.dt, f.theta)[2]) <= f.tolerance
    run = f.rollout(x, steps=1)
    fine = f.with_dt(0.01).rollout(x, steps=20)
    assert np.abs(f.difference(fine.x[-1], run.x[-1])).max() < 0.05
    A, e = f.linearize(x).A, 1e-5
    for d in np.random.default_rng(0).normal(size=(3, f.ndx)):  # each mixes all columns
        by = f.difference(f.step(f.retract(x, -e * d)), f.step(f.retract(x, e * d)))
        assert np.abs(A @ d - by / (2 * e)).max() < 1e-5 * np.abs(A).max()


@pytest.mark.slow
def test_a_step_without_solution_is_told_of():
    f = GroupVI(random_tree(0, 0), 1.0, stages=2)
    with pytest.raises(StepError, match="dt"):
        f.rollout(f.initial_state(v={"b-wx": 300.0, "b-wy": 400.0}), steps=5)
