"""Free starts, durations and parameters: what the core leaves open beside the motion, by other means."""

from __future__ import annotations

import pickle
from dataclasses import replace

import casadi as ca
import numpy as np
import pytest
from support import reaching
from support.mechanisms import rested

import vioc
from vioc import Gravity, JointForce, P, System, ry, tz
from vioc.control import Cost, Problem, dmoc, kkt, optimize, quadratic
from vioc.control.dmoc import PathConstraint

# inside: calls of the search on its stages are watched, and unknowns laid out without a solve
from vioc.control.shooting.stages import Stages
from vioc.control.shooting.unknowns import Unknowns
from vioc.models import load

TOLERANCE = 1e-8
EPS = np.finfo(float).eps


def slider():
    """Exact steps of a point of mass m under a force."""
    x, u, t, dt = ca.SX.sym("x", 2), ca.SX.sym("u"), ca.SX.sym("t"), ca.SX.sym("dt")
    m = ca.SX.sym("m")
    after = ca.vertcat(x[0] + dt * x[1] + dt**2 / 2 * u / m, x[1] + dt * u / m)
    return vioc.CasadiMap(
        ca.Function("slider", [x, u, t, dt, m], [after]), 0.1,
        state_names=("x", "v"), input_names=("force",), parameters={"mass": 1.0},
    )  # fmt: skip


def lifter():
    """Two rods, a counterweight of free mass at a free distance behind the shoulder."""
    behind = tz(P("reach", 0.2))[tz(0.0, mass=P("counterweight", 0.5))]
    shoulder = ry("shoulder")[tz(-0.5, mass=1.0)[ry("elbow")[tz(-0.4, mass=0.8)]], behind]
    return System(shoulder, Gravity(0, 0, -9.81), JointForce("shoulder", "a"), JointForce("elbow", "b"))


# -- durations ------------------------------------------------------------------------------------


def test_least_time_in_a_formula():
    """From rest to rest over d with at most the force F: T = 2 sqrt(m d / F), half of it each way."""
    f, d, F = slider(), 0.7, 1.5
    problem = dict(x0=[0.0, 0.0], steps=20, final=[d, 0.0], bounds={"u.force": F}, duration=(0.2, 5.0))
    best = optimize(f, dmoc.minimum_time(f), **problem)
    T = 2 * np.sqrt(d / F)
    assert best.duration == pytest.approx(T, rel=TOLERANCE)
    assert best.cost == pytest.approx(T, rel=TOLERANCE)
    np.testing.assert_allclose(best.u[:, 0], np.repeat([F, -F], 10), rtol=0, atol=1e-6)
    np.testing.assert_allclose(best.step_lengths, T / 20, rtol=TOLERANCE)
    assert best.map.dt == best.step_lengths[0] and type(best.map) is vioc.CasadiMap
    assert best.gains.shape == (20, 1, 2) and best.x.shape == (21, 2)
    assert best.violations == [] and abs(best.multipliers["duration"][0]) < 1e-6
    found = kkt(f, dmoc.minimum_time(f), best.trajectory, best.multipliers, **{
        name: value for name, value in problem.items() if name not in ("x0", "steps")
    })  # fmt: skip
    assert found.residual <= TOLERANCE


def test_a_duration_at_its_limit_costs_its_multiplier():
    f, costs = slider(), []
    cost = Cost(f, 0.5 * f.symbols.u**2)  # slower is cheaper
    for high in (1.99, 2.0, 2.01):
        best = optimize(f, cost, x0=[0.0, 0.0], steps=10, final=[1.0, 0.0], duration=(0.5, high))
        assert best.duration == pytest.approx(high, abs=1e-7)
        costs.append(best.cost)
        if high == 2.0:
            felt = best.multipliers["duration"][0]
    assert -(costs[2] - costs[0]) / 0.02 == pytest.approx(felt, rel=1e-3)
    assert felt > 1


def test_steps_keep_their_proportions():
    """dt says them; the end is as exact as the steps, whatever their lengths."""
    f, shares = slider(), np.linspace(1.0, 3.0, 16)
    cost = Cost(f, 1.0 + 0.5 * f.symbols.u**2)
    task = dict(x0=[0.0, 0.0], steps=16, final=[1.0, 0.0], duration=(0.5, 4.0))
    best = optimize(f, cost, dt=0.1 * shares, **task)
    np.testing.assert_allclose(best.step_lengths / best.step_lengths[0], shares, rtol=1e-12)
    assert best.t[0] == 0.0 and best.t[-1] == pytest.approx(best.step_lengths.sum(), rel=1e-14)
    found = kkt(f, cost, best.trajectory, best.multipliers, final=[1.0, 0.0], duration=(0.5, 4.0))
    assert found.residual <= TOLERANCE
    given = optimize(f, cost, x0=[0.0, 0.0], steps=16, final=[1.0, 0.0], dt=best.step_lengths)
    assert given.cost == pytest.approx(best.cost, rel=TOLERANCE)


def test_free_durations_of_maps_of_time_begin_where_it_is_known():
    x, u, t, h = (ca.SX.sym(n) for n in "xuth")
    formula = ca.Function("f", [x, u, t, h], [x + h * (u + 5 * ca.sin(3 * t))])
    f = vioc.CasadiMap(formula, dt=0.04, state_names=["s"], input_names=["a"])
    cost, lengths = quadratic(f, Q=1.0, R=0.1, Qf=3.0), 0.04 * np.array([1.5, 1.0, 0.5])
    with pytest.raises(ValueError, match="k0: where 5 unequal steps of a free duration end"):
        Problem(f, cost, 3, dt=lengths, k0=5, duration=(0.1, 0.2))
    for given in ({"dt": lengths}, {"k0": 5}, {"dt": lengths, "k0": 5, "duration": 0.12}):
        Problem(f, cost, 3, **{"duration": (0.1, 0.2), **given}).solve(np.ones(1))


def test_no_trial_has_a_duration_outside_of_its_limits(monkeypatch):
    """Not even on the way: limits of constants of the motion are not elastic."""
    f, seen, at, followed = slider(), [], Stages.at, Stages.followed

    def see(of):
        return lambda self, X, *args, **more: (seen.append(X[:, 2]), of(self, X, *args, **more))[1]

    monkeypatch.setattr(Stages, "at", see(at))
    monkeypatch.setattr(Stages, "followed", see(followed))
    task = dict(x0=[0.0, 0.0], steps=8, final=[0.1, 0.0], bounds={"u.force": 50.0}, duration=(0.5, 0.6))
    best = optimize(f, Cost(f, 1e3 + 0 * f.symbols.u), **task)
    T = np.array(seen)
    assert best.duration == pytest.approx(0.5, abs=1e-8) and len(T) > 5
    assert (T > 0.5).all() and (T < 0.6).all() and (T[:, :1] == T).all()


def test_a_duration_that_is_given():
    f = slider()
    cost = Cost(f, 0.5 * f.symbols.u**2)
    one = optimize(f, cost, x0=[0.0, 0.0], steps=10, final=[1.0, 0.0], duration=2.0)
    other = optimize(f, cost, x0=[0.0, 0.0], steps=10, final=[1.0, 0.0], dt=0.2, method="shooting")
    assert one.duration == pytest.approx(2.0) and one.cost == pytest.approx(other.cost, rel=1e-12)


def test_time_matters_to_maps_that_depend_on_it():
    """A push that fades: steps start at other times where the duration is another."""
    x, u, t, dt = ca.SX.sym("x"), ca.SX.sym("u"), ca.SX.sym("t"), ca.SX.sym("dt")
    f = vioc.CasadiMap(ca.Function("f", [x, u, t, dt], [x + dt * u * ca.exp(-t) + dt * ca.sin(2 * t)]), 0.1)
    cost = Cost(f, 0.3 + f.symbols.u**2)
    task = dict(final=[1.5], duration=(0.3, 6.0))
    best = optimize(f, cost, x0=[0.0], steps=12, **task)
    assert kkt(f, cost, best.trajectory, best.multipliers, **task).residual <= TOLERANCE
    assert 0.4 < best.duration < 5.9
    nlp = dmoc.solve(f, cost, best, steps=12, initial=[0.0], tolerance=1e-10, **task)
    assert best.cost == pytest.approx(nlp.cost, rel=TOLERANCE)
    assert best.duration == pytest.approx(nlp.duration, rel=1e-6)


def test_a_swing_up_in_least_time():
    """Inputs that cost nothing are weighed by their limits: no slower than with a price."""
    f = vioc.MidpointVI(load("cart_pole"), 0.03)
    task = dict(bounds={"u.force": 12.0}, final=f.initial_state(), duration=(0.5, 4.0))
    best = optimize(f, dmoc.minimum_time(f), x0=f.initial_state(theta=np.pi), steps=40, **task)
    assert best.iterations <= 100
    found = kkt(f, dmoc.minimum_time(f), best.trajectory, best.multipliers, **task)
    assert found.residual <= TOLERANCE


@pytest.mark.slow
def test_an_arm_in_least_time():
    """Seven joints with limited torques to a point at rest: from the start held, as IPOPT from there on."""
    f, most = vioc.MidpointVI(vioc.models.seven_joint_arm(), 1.0 / 40), np.array([20.0, 40, 20, 20, 10, 5, 3])
    cost = Cost(f, 1.0 + 1e-3 * ca.sumsqr(f.symbols.u / ca.DM(most)))
    rest = {f"v.q{i + 1}": 0.0 for i in range(7)}
    task = dict(
        bounds={f"u.u{i + 1}": float(m) for i, m in enumerate(most)},
        final=dict(zip(("tool:x", "tool:y", "tool:z"), reaching.GOAL, strict=True)) | rest,
        duration=(0.1, 2.0),
    )
    x0 = f.initial_state(reaching.START)
    best = optimize(f, cost, x0=x0, steps=40, tolerance=1e-11, **task)
    assert best.iterations <= 80 and 0.26 < best.duration < 0.28
    assert np.mean(np.abs(best.u) > 0.99 * most) > 0.8
    assert kkt(f, cost, best.trajectory, best.multipliers, **task).residual <= TOLERANCE
    nlp = dmoc.solve(f, cost, best, steps=40, initial=x0, tolerance=1e-10, **task)
    assert best.cost <= nlp.cost * (1 + TOLERANCE)


# -- starts ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def swing():
    f = vioc.MidpointVI(load("cart_pole"), 0.03)
    return f, Cost(f, 0.05 * ca.sumsqr(f.symbols.u) + 0.1 * f.quantity("x") ** 2)


def test_a_start_on_a_line(swing):
    """The cart anywhere, the pole hanging, one speed given and one within limits: as IPOPT has it."""
    f, cost = swing
    task = dict(
        initial={"x": (-1.0, 1.0), "theta": np.pi, "v.x": 0.0, "v.theta": (-0.3, 0.3)},
        final=f.initial_state(),
        bounds={"u.force": 15.0, "x": (-1.2, 1.2)},
    )
    best = optimize(f, cost, steps=60, **task)
    nlp = dmoc.solve(f, cost, best, steps=60, tolerance=1e-10, **task)
    assert best.cost == pytest.approx(nlp.cost, rel=TOLERANCE)
    np.testing.assert_allclose(best.x, nlp.x, rtol=0, atol=1e-6)
    assert best["theta"][0] == np.pi and abs(best["v.x"][0]) < 1e-8
    assert best["v.theta"][0] == pytest.approx(0.3, abs=1e-6)
    for name in ("theta", "v.x", "v.theta"):
        theirs = nlp.multipliers[f"initial {name}"]
        np.testing.assert_allclose(best.multipliers[f"initial {name}"], theirs, rtol=0, atol=1e-5)
    assert kkt(f, cost, best.trajectory, best.multipliers, **task).residual <= TOLERANCE
    again = optimize(f, cost, best, steps=60, **task)
    assert again.iterations < best.iterations and again.cost == pytest.approx(best.cost, rel=TOLERANCE)


def test_limits_along_the_path_hold_at_a_free_start():
    f = slider()
    cost = Cost(f, (f.quantity("x") - 2.0) ** 2 + 0.01 * f.symbols.u**2)
    task = dict(initial={"v": 0.0}, final={"x": 0.5}, bounds={"x": (None, 1.0)})
    best = optimize(f, cost, steps=10, **task)
    assert best["x"][0] == pytest.approx(1.0, abs=1e-6)
    assert best.multipliers["x"][0] > 0.1
    assert kkt(f, cost, best.trajectory, best.multipliers, **task).residual <= TOLERANCE


def test_a_start_that_alone_is_not_optimal():
    """All other conditions of optimality hold at the guess."""
    f, w = slider(), ca.SX.sym("w")
    cost = Cost(f, w * (f.quantity("x") - 2.0) ** 2 + f.symbols.u**2, references=[(w, np.eye(1, 6)[0])])
    best = optimize(f, cost, x0=[0.0, 0.0], steps=5, initial={"v": 0.0}, method="shooting")
    assert best["x"][0] == pytest.approx(2.0, abs=1e-7)


def test_conditions_at_the_start_are_constraints():
    """Anywhere on a circle, at rest: the point of it that is nearest to where the motion ends."""
    f = vioc.MidpointVI(lifter(), 0.05)
    x, y = f.quantity("shoulder"), f.quantity("elbow")
    circle = PathConstraint("circle", (x - 0.2) ** 2 + y**2, 0.04, 0.04, "start")
    cost = Cost(f, 0.1 * ca.sumsqr(f.symbols.u))
    task = dict(
        initial={"v.shoulder": 0.0, "v.elbow": 0.0}, final=rested(f, shoulder=0.9), constraints=[circle]
    )
    best = optimize(f, cost, x0=f.initial_state(shoulder=0.3, elbow=0.1), steps=12, **task)
    assert (best["shoulder"][0] - 0.2) ** 2 + best["elbow"][0] ** 2 == pytest.approx(0.04, abs=1e-8)
    nlp = dmoc.solve(f, cost, best, steps=12, tolerance=1e-10, **task)
    assert best.cost == pytest.approx(nlp.cost, rel=TOLERANCE)
    with pytest.raises(ValueError, match="circle: the initial state is given.*initial="):
        optimize(f, cost, x0=f.initial_state(), steps=12, constraints=[circle])


@pytest.mark.parametrize("duration", [None, (0.5, 3.0)])
def test_periodic_motions(duration):
    f, N = vioc.MidpointVI(load("acrobot"), 0.02), 40
    r, turn = ca.SX.sym("r", 2), np.arange(N + 1) / N * 2 * np.pi
    data = np.stack([0.15 * np.sin(turn), -0.3 * np.sin(turn)], axis=1)
    off = ca.vertcat(f.quantity("q1"), f.quantity("q2")) - r
    cost = Cost(f, 0.02 * ca.sumsqr(f.symbols.u) + ca.sumsqr(off), references=[(r, data)])
    task = dict(initial={}, periodic=True, bounds={"q1": 1.0, "q2": 1.5})
    task |= {} if duration is None else {"duration": duration}
    best = optimize(f, cost, steps=N, **task)
    nlp = dmoc.solve(f, cost, best, steps=N, tolerance=1e-10, **task)
    assert best.cost == pytest.approx(nlp.cost, abs=TOLERANCE)  # limits leave a tenth of 1e-9 each
    np.testing.assert_allclose(best.x[0], best.x[-1], rtol=0, atol=1e-8)
    assert np.abs(best.x[0]).max() > 0.01
    told = task | {"periodic": dict.fromkeys(f.state_names, 0.0)}
    assert kkt(f, cost, best.trajectory, best.multipliers, **told).residual <= TOLERANCE
    other = Problem(f, cost, N, **task).with_cost(cost.with_references(0.5 * data)).solve(guess=best)
    assert other.converged and other.cost < best.cost


@pytest.mark.parametrize("mass", [1.0, 1e-2, 1e-4])
def test_periodic_motions_of_links_of_any_mass(mass):
    """A light link has a small momentum, whose first and last values are equal like those of a heavy link."""
    links = ry("q1")[tz(-1.0, mass=1.0), tz(-1.0)[ry("q2")[tz(-0.5, mass=mass)]]]
    torques = vioc.JointForce("q1", "u1"), vioc.JointForce("q2", "u2")
    f, N = vioc.MidpointVI(System(links, vioc.Gravity(0, 0, -9.81), *torques), 0.02), 40
    r, turn = ca.SX.sym("r", 2), np.arange(N + 1) / N * 2 * np.pi
    off = ca.vertcat(f.quantity("q1"), f.quantity("q2")) - r
    effort = 1e-3 * (f.symbols.u[0] ** 2 + f.symbols.u[1] ** 2 / mass)
    wave = np.stack([0.15 * np.sin(turn), -0.3 * np.sin(turn)], axis=1)
    best = optimize(
        f, Cost(f, effort + ca.sumsqr(off), references=[(r, wave)]), steps=N, initial={}, periodic=True
    )
    assert (np.abs(best.x[-1] - best.x[0]) <= 1e-5 * np.abs(best.x).max(axis=0)).all()


@pytest.mark.slow
def test_a_closed_chain_from_where_it_likes():
    """Loops and the momenta across them are kept at the start."""
    f = vioc.MidpointVI(load("closed_chain"), 0.02)
    x0 = f.initial_state(f.consistent_configuration({n: 0.2 for n in f.mechanism.coordinates}))
    cost = Cost(f, 0.5 * (f.quantity("v.J") - 0.5) ** 2 + (f.quantity("J") - 0.1) ** 2)
    task = dict(initial={"J": (-0.3, 0.3)})
    best = optimize(f, cost, x0=x0, steps=40, **task)
    assert max(abs(best[f"h.{n}"][0]) for n in f.multiplier_names) < 1e-8
    nlp = dmoc.solve(f, cost, best, steps=40, tolerance=1e-11, **task)
    assert best.cost == pytest.approx(nlp.cost, rel=TOLERANCE)
    assert kkt(f, cost, best.trajectory, best.multipliers, **task).residual <= TOLERANCE


# -- parameters -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [vioc.MidpointVI, vioc.LinearTimeVI])
def test_a_counterweight_is_chosen(kind):
    """Where the optimal cost of maps with given parameters is least, by DMOC's sensitivities."""
    f = kind(lifter(), 0.02)
    price = 3 * f.quantity("param.counterweight") ** 2
    cost = Cost(f, ca.sumsqr(f.symbols.u) + price)
    task = dict(final=rested(f, shoulder=1.5, elbow=0.6), bounds={"u.a": 12.0, "u.b": 12.0})
    x0 = f.initial_state({"shoulder": 0.3})
    limits = {"counterweight": (0.0, 4.0), "param.reach": (0.05, 0.4)}
    best = optimize(f, cost, x0=x0, steps=50, parameters=limits, **task)
    found = best.map.parameters
    assert found["reach"] == pytest.approx(0.4, abs=1e-8) and 0.1 < found["counterweight"] < 3.9
    nlp = dmoc.solve(best.map, cost, best, steps=50, initial=x0, tolerance=1e-11, **task)
    assert best.cost == pytest.approx(nlp.cost, rel=TOLERANCE)
    found = nlp.sensitivity()
    slopes = dict(zip(found.names, found.cost, strict=True))
    assert abs(slopes["param.counterweight"]) < 1e-5
    assert slopes["param.reach"] == pytest.approx(-best.multipliers["param.reach"][0], rel=1e-6)
    told = {"counterweight": (0.0, 4.0), "reach": (0.05, 0.4)}
    checked = kkt(f, cost, best.trajectory, best.multipliers, parameters=told, **task)
    assert checked.residual <= TOLERANCE


def test_mass_and_time_at_once():
    """T^2 = 4 m d / F: the lightest mass, and the time that goes with it; what is found is read and kept."""
    f, problem = slider(), dict(final=[0.5, 0.0], bounds={"u.force": 2.0})
    cost = dmoc.minimum_time(f)
    best = optimize(
        f, cost, x0=[0.0, 0.0], steps=16, duration=(0.1, 9.0), parameters={"mass": (0.4, 3)}, **problem
    )
    assert best.map.parameters["mass"] == pytest.approx(0.4, abs=1e-7)
    assert best.duration == pytest.approx(2 * np.sqrt(0.4 * 0.5 / 2.0), rel=1e-7)
    again = pickle.loads(pickle.dumps(best))
    assert again.map.parameters == best.map.parameters
    np.testing.assert_array_equal(again.trajectory.x, best.x)
    run = best.map.rollout(best.x[0], best.u)
    np.testing.assert_allclose(run.x, best.x, rtol=0, atol=1e-12)
    early = optimize(
        f, cost, x0=[0.0, 0.0], steps=16, duration=(0.1, 9.0), parameters={"mass": (0.4, 3)},
        max_iterations=6, raise_on_failure=False, **problem,
    )  # fmt: skip
    assert not early.converged and early.curve[0].shape == (17, 2)
    on = optimize(f, cost, early, steps=16, duration=(0.1, 9.0), parameters={"mass": (0.4, 3)}, **problem)
    assert on.duration == pytest.approx(best.duration, rel=1e-7)


# -- what is differentiated -----------------------------------------------------------------------


@pytest.mark.parametrize("per_time", [True, False])
def test_costs_with_constants_of_the_motion(per_time):
    """Values, gradients and Hessians by the duration, parameters and all else, against differences."""
    f, N = vioc.MidpointVI(lifter(), 0.05), 4
    s, m = f.symbols, f.quantity("param.counterweight")
    reference = ca.SX.sym("reference")
    running = 0.3 * ca.sumsqr(s.u) + (f.quantity("v.elbow") - reference) ** 2 * m + 2 * m**2
    running += ca.sin(s.x[0]) * s.dt + 0.7
    cost = Cost(
        f, running, f.quantity("shoulder") ** 2 * m + m, references=[(reference, np.arange(N + 1.0))],
        per_time=per_time,
    )  # fmt: skip
    u = Unknowns(f, N, {}, (0.1, 2.0), {"counterweight": (0, 2)}, ["shoulder"], None)
    g, stage, rng = u.map, u.cost(cost), np.random.default_rng(3)
    X = u.joined(0.4 * rng.standard_normal((N + 1, f.nx)), np.array([0.7, 0.9, 0.1]))
    U = rng.standard_normal((N, f.nu))

    def at(dx, du):
        t = np.arange(N + 1) / N
        return vioc.Trajectory(g, t, X + dx, U + du, np.zeros((N, 0)))

    def gradient(dx, du):
        e = stage.expand(at(dx, du), None)
        return e.lx, e.lu

    zero = np.zeros(X.shape), np.zeros(U.shape)
    assert stage.value(at(*zero)) == pytest.approx(cost.value(u.run(at(*zero))), rel=1e-14)
    e = stage.expand(at(*zero), None)
    for seed in range(3):
        d = np.random.default_rng(seed)
        dx, du, h = d.standard_normal(X.shape), d.standard_normal(U.shape), 1e-6
        values = [stage.value(at(w * dx, w * du)) for w in (h, -h)]
        slope = np.vdot(e.lx, dx) + np.vdot(e.lu, du)
        assert (values[0] - values[1]) / (2 * h) == pytest.approx(slope, rel=1e-7)
        (a, b), (c, k) = gradient(h * dx, h * du), gradient(-h * dx, -h * du)
        by_x = np.einsum("kij,kj->ki", e.lxx, dx)
        by_x[:-1] += np.einsum("kij,kj->ki", e.lxu, du)
        np.testing.assert_allclose((a - c) / (2 * h), by_x, rtol=0, atol=1e-7 * (1 + np.abs(by_x).max()))
        by_u = np.einsum("kji,kj->ki", e.lxu, dx[:-1]) + np.einsum("kij,kj->ki", e.luu, du)
        np.testing.assert_allclose((b - k) / (2 * h), by_u, rtol=0, atol=1e-7 * (1 + np.abs(by_u).max()))
    some = stage.expand(at(*zero), None, np.ones(g.ndx + g.nu))
    whole = np.concatenate(
        [
            np.concatenate([some.lxx[:-1], some.lxu], axis=2),
            np.concatenate([np.swapaxes(some.lxu, 1, 2), some.luu], axis=2),
        ],
        axis=1,
    )
    least = np.linalg.eigvalsh(whole)
    assert (least[:, 0] >= -100 * EPS * least[:, -1]).all()
    place = g.state_names.index("param.counterweight")
    assert (whole[:, place, place] >= 3.9 * (0.7 / N if per_time else 1.0)).all()  # of 2 m^2 alone


# -- refusals -------------------------------------------------------------------------------------


def test_what_cannot_be_done_is_refused_by_name():
    f = slider()
    cost, x0 = Cost(f, f.symbols.u**2), np.zeros(2)

    def refused(words, **problem):
        with pytest.raises((ValueError, NotImplementedError), match=words):
            optimize(f, problem.pop("cost", cost), steps=5, **({"x0": x0} | problem))

    refused("duration: lower limit 2 > upper limit 1", duration=(2, 1))
    refused("duration: expected a time > 0", duration=(-1, 1))
    for extreme in (1e-320, 1e-158, 1e200):
        refused("duration: expected a time whose square", duration=extreme)
    refused("parameters: unknown name 'weight'", parameters={"weight": (1, 2)})
    refused("periodic: unknown name 'y'", periodic=["y"])
    refused("initial: unknown name 'y'", initial={"y": 1.0})
    refused(
        "duration: method 'projection' takes none.*'shooting', 'dmoc'", duration=(1, 2), method="projection"
    )
    refused("parameters: method 'projection' takes none", parameters={"mass": (1, 2)}, method="projection")
    refused(
        "cost: it is the duration, which is given.*make it free", cost=dmoc.minimum_time(f), method="shooting"
    )
    refused("no initial state", x0=None)
    m = vioc.MaximalVI(load("pendulum"), 0.05)
    with pytest.raises(ValueError, match="periodic: errors of MaximalVI are no states"):
        optimize(m, quadratic(m, R=1.0), x0=m.initial_state(), steps=5, periodic=True)

    class Silent(vioc.CasadiMap):  # tells no equations
        explicit, residual = property(lambda self: None), property(lambda self: None)

    with pytest.raises(NotImplementedError, match="Silent tells no equations.*lengths"):
        silent = object.__new__(Silent)
        silent.__dict__.update(f.__dict__)
        silent.derivatives.timed.first(f.steps_at(np.zeros((1, 2)), np.zeros((1, 1))))


def test_the_front_says_the_same_to_dmoc(swing):
    f, _ = swing
    timed = Cost(f, 1.0 + 0.02 * ca.sumsqr(f.symbols.u))
    task = dict(
        initial={"x": (-1.0, 1.0), "theta": np.pi, "p.x": 0.0, "p.theta": 0.0}, final=f.initial_state(),
        duration=(0.5, 4.0), bounds={"u.force": 15.0},
    )  # fmt: skip
    best = optimize(f, timed, steps=60, **task)
    nlp = optimize(f, timed, best, steps=60, method="dmoc", **task)
    assert nlp.converged and nlp.cost == pytest.approx(best.cost, rel=1e-7)
    assert nlp.duration == pytest.approx(best.duration, rel=1e-6)
    assert replace(best, cost=0.0).duration == best.duration


@pytest.mark.parametrize(("steps", "iterations"), [(20, 100), pytest.param(40, 250, marks=pytest.mark.slow)])
def test_least_time_of_seven_joints(steps, iterations):
    """The duration alone as the cost: along singular arcs the Hessian is less than its least shift was, by
    which searches crawled for 300 iterations.
    """
    f = vioc.MidpointVI(vioc.models.seven_joint_arm(), 0.01)
    x0, names = f.initial_state(reaching.START), f.system.variables
    to = dict(zip(names, x0[:7] + (0.5, -0.4, 0.3, 0.6, -0.3, 0.4, 0.2), strict=True))
    limits = {f"u.{name}": 15.0 for name in f.input_names}
    end = to | {f"v.{name}": 0.0 for name in names}
    how = dict(final=end, bounds=limits, duration=(0.05, 4.0))
    fast = optimize(f, dmoc.minimum_time(f), steps=steps, x0=x0, **how)
    assert np.mean(np.abs(fast.u) > 14.99) > 0.8  # all the torque there is
    assert fast.iterations < iterations
