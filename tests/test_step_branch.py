"""A step is a function of its state: which root it is, where there is none, and that nothing else enters."""

import pickle
import warnings
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from support.chain import n_links

import vioc
from vioc import GalerkinVI, GroupVI, MidpointVI, StepError, System, tx
from vioc.compile import find_compiler
from vioc.components import PolynomialSpring

# inside: both first guesses of a step are tried on the same states
from vioc.dynamics.integrators.predictor import predicted
from vioc.errors import StepWarning
from vioc.maps import SwitchedMap, check_map
from vioc.models import mechanism

BACKENDS = ("virtual", "compiled") if find_compiler() else ("virtual",)


def pushed(dt: float = 1.0, **options) -> MidpointVI:
    """F = x^2 on 1 kg: from x = 0 a step of h ends in z with h z^2 / 8 - z / h + p = 0."""
    return MidpointVI(System(tx("x", mass=1.0), PolynomialSpring("x", (0.0, -1.0))), dt, **options)


# -- which root ----------------------------------------


def test_the_root_is_the_one_that_leads_from_the_state():
    """Of two roots, the one that goes to the start as the step gets short; up to the fold at p = 2."""
    f = pushed()
    for p in (-40.0, -3.0, 0.0, 0.1, 1.0, 1.9, 1.99, 1.999):
        end = f.step([0.0, p])[0]
        assert end == pytest.approx(4 - np.sqrt(16 - 8 * p), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("make", [MidpointVI, lambda s, dt: GalerkinVI(s, dt, stages=1)])
@pytest.mark.parametrize("p", [2.05, 3.0, 20.0, 1e4])
def test_where_a_step_does_not_exist_the_error_has_the_length_that_does(make, p):
    """The roots of h z^2 / 8 - z / h + p meet at h^3 = 2 / p."""
    f = make(pushed().system, 1.0)
    fold = (2 / p) ** (1 / 3)
    with pytest.raises(StepError, match="does not exist: .* steps up to") as caught:
        f.rollout([0.0, p], steps=3, k0=4)
    error = caught.value
    assert error.cause == "fold" and error.k == 4 and len(error.trajectory) == 0
    assert fold * (1 - 1e-3) <= error.length <= fold
    f.with_dt(0.99 * fold).step([0.0, p])
    with pytest.raises(StepError):
        f.with_dt(1.01 * fold).step([0.0, p])
    again = pickle.loads(pickle.dumps(error))
    assert again.length == error.length and again.cause == "fold"


@pytest.mark.parametrize("angle", [0.0, 2 * np.pi, 1e-15])
def test_a_pendulum_that_stands_upright_has_steps_up_to_where_other_motions_begin(angle):
    """At rest its branch does not turn back: at h = 2 / omega the branches of falling cross it."""
    pendulum = vioc.ry("a")[vioc.tz(1.0, mass=1.0)]
    f = MidpointVI(System(pendulum, vioc.Gravity(0, 0, -9.81)), 0.65)
    with pytest.raises(StepError, match="does not exist") as caught:
        f.step([angle, 0.0])
    assert caught.value.cause == "fold"
    assert caught.value.length == pytest.approx(2 / np.sqrt(9.81), rel=2e-3)
    f.with_dt(0.99 * caught.value.length).step([angle, 0.0])


def test_linear_systems_take_steps_of_any_length_by_the_kernel(monkeypatch):
    """An oscillator's step has one root, which the first correction finds: no branch needs to be followed."""
    for unit in (1e-3, 1.0, 1e3):  # metres, and what 0.5 m is in km and mm
        for dt in (1e-3, 0.01, 1.0, 1e3):
            f = MidpointVI(System(tx("x", mass=1.0), vioc.TorsionalSpring("x", 4000.0, 0.0)), dt)
            solver = replace(f.step_solver, rescued=lambda *args: pytest.fail("the kernel left the step"))
            monkeypatch.setattr(f, "step_solver", solver)
            run = f.rollout(f.initial_state({"x": 0.5 * unit}), steps=20)
            turn = 2 * np.arctan(np.sqrt(4000.0) * dt / 2)  # the closed form of the midpoint rule
            expected = 0.5 * unit * np.cos(turn * np.arange(21))
            assert run["x"] == pytest.approx(expected, abs=1e-10 * unit)


def followed(f: MidpointVI, x: np.ndarray, increments: int = 50) -> np.ndarray | None:
    """q_k+1 by another route: the branch from length 0 in equal increments of the length; None at a fold."""
    balance = f.residual
    w, before, sign = f.velocities(x), None, 0.0
    nd = f.nd

    def equations(rate: np.ndarray, h: float) -> tuple[np.ndarray, np.ndarray]:
        rates = rate[:, None] + 1e-6 * np.hstack([np.zeros((nd, 1)), np.eye(nd), -np.eye(nd)])
        after = np.vstack([x[:nd, None] + h * rates, np.zeros((f.nx - nd, 2 * nd + 1))])
        rows = np.array(balance(x, [], after, [], 0.0, h, f.theta))[:nd]  # a column for each rate
        return rows[:, 0], (rows[:, 1 : nd + 1] - rows[:, nd + 1 :]) / 2e-6

    for i in range(1, increments + 1):
        h = f.dt * i / increments
        guess = w if before is None else 2 * w - before
        r = guess.copy()
        for _ in range(12):
            rows, slope = equations(r, h)
            step = np.linalg.solve(slope, -rows)
            r = r + step
            if np.abs(h * step).max() < 1e-12:
                break
        now = np.sign(np.linalg.det(slope))
        sign = sign or now
        if not (np.abs(h * step).max() < 1e-9 and now == sign and np.abs(h * (r - guess)).max() < 0.3):
            return None
        w, before = r, w
    return x[:nd] + f.dt * w


@pytest.mark.parametrize(("links", "turns"), [(2, 0.3), (2, 1.5), (3, 0.6)])
def test_no_step_is_a_root_of_another_branch(links, turns):
    """Random states whose links turn by radians within a step, where Newton's method can jump."""
    f = n_links(links, 0.05)
    rng = np.random.default_rng(links)
    exist = 0
    for _ in range(14):
        q, v = rng.uniform(-np.pi, np.pi, links), turns / f.dt * rng.standard_normal(links)
        x = f.initial_state(q, v)
        expected = followed(f, x)
        try:
            end = f.step(x)
        except StepError as error:
            assert expected is None, (q, v)
            assert 0 < error.length < f.dt
            f.with_dt(0.98 * error.length).step(x)
            continue
        assert expected is not None, (q, v)
        assert np.abs(end[:links] - expected).max() < 1e-6, (q, v)
        exist += 1
    assert exist > 5


def test_a_predictor_beside_another_root_is_not_certified():
    """A double pendulum whose branch folds at a third of the step, with another root next to the guess."""
    f = n_links(2, 0.05)
    rng = np.random.default_rng(5)
    folded = 0
    for _ in range(15):
        q = rng.uniform(-np.pi, np.pi, 2)
        x = f.initial_state(q, np.array([1.4, -2.8]) * rng.uniform(0.8, 1.2, 2) / f.dt)
        try:
            f.step(x)
        except StepError as error:
            folded += 1
            assert followed(f, x) is None
            assert 0 < error.length < f.dt
    assert folded


# -- nothing of the past, of the caller, or of the backend ----------------------------------------


def spinning() -> System:
    axes = vioc.rz("b-rz")[
        vioc.ry("b-ry")[vioc.rx("b-rx", name="body", mass=vioc.Mass(1.0, (0.1, 0.2, 0.3)))]
    ]
    return System(tx("x")[vioc.ty("y")[vioc.tz("z")[axes]]], vioc.Gravity(0, 0, -9.81))


@cache
def chain(backend: str = "virtual") -> MidpointVI:
    """The map of a closed chain, built once for all tests."""
    return MidpointVI(vioc.models.load("closed_chain"), 0.02, backend=backend)


@cache
def cases(backend: str) -> list[tuple]:
    """Maps and states to start from, built once for all tests."""
    loop = chain(backend).with_dt(0.01)
    fit = loop.consistent_configuration(dict(J=-0.6, H=1.3, M=-1.3), fixed=["J"])
    found = [(loop, loop.initial_state(fit.q))]
    for f in (
        n_links(5, 0.02, backend=backend),
        n_links(18, 0.01, backend=backend),  # solved by sweeps
        GalerkinVI(vioc.models.load("n_link_pendulum", 3), 0.03, backend=backend),
        vioc.Composition(n_links(3, 0.03, backend=backend), 4),
        vioc.RungeKutta(vioc.models.load("n_link_pendulum", 3), 0.01, "rk4", backend=backend),
    ):
        found.append((f, f.initial_state({n: 0.8 - 0.1 * i for i, n in enumerate(f.system.variables)})))
    for stages in (1, 2):
        f = GroupVI(spinning(), 0.02, stages=stages, backend=backend)
        found.append((f, f.initial_state({}, {"b-wx": 2.0, "b-wy": 5.0, "b-wz": 0.3})))
    return found


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_step_has_the_same_bits_wherever_it_is_taken(backend):
    for f, x0 in cases(backend):
        run = f.rollout(x0, steps=24)
        for k in (0, 1, 5, 23):
            np.testing.assert_array_equal(f.step(run.x[k], run.u[k], k), run.x[k + 1], repr(f))
        steps = f.steps_at(run.x[:-1], run.u)
        np.testing.assert_array_equal(steps.x1, run.x[1:], repr(f))
        np.testing.assert_array_equal(steps.multipliers, run.multipliers)
        later = f.rollout(run.x[9], steps=15, k0=9)
        np.testing.assert_array_equal(later.x, run.x[9:], repr(f))
        batch = f.rollouts(run.x[:3], steps=10, workers=2)
        for i in range(3):
            np.testing.assert_array_equal(batch.x[i], f.rollout(run.x[i], steps=10).x, repr(f))
        none = np.zeros((24, f.nu, f.ndx))
        np.testing.assert_array_equal(f.track(x0, run.x, run.u, none).x, run.x, repr(f))


@pytest.mark.skipif(len(BACKENDS) < 2, reason="no C compiler")
def test_virtual_and_compiled_steps_have_the_same_bits():
    for (f, x0), (g, y0) in zip(cases("virtual"), cases("compiled"), strict=True):
        if isinstance(f, GalerkinVI):
            continue  # compiled, its iteration is accelerated: docs/maths/galerkin.md
        np.testing.assert_array_equal(f.rollout(x0, steps=40).x, g.rollout(y0, steps=40).x, repr(f))


# -- substeps ----------------------------------------


def test_substeps_are_the_steps_of_a_shorter_map():
    f = MidpointVI(vioc.models.load("cart_pole"), 0.04)
    g, x0 = f.substeps(4), f.initial_state({"theta": 0.5})
    U = np.random.default_rng(0).normal(size=(30, 1))
    run = g.rollout(x0, U)
    fine = f.with_dt(0.01).rollout(x0, np.repeat(U, 4, axis=0))
    np.testing.assert_array_equal(run.x, fine.x[::4])
    assert (run.t == 0.04 * np.arange(31)).all() and g.dt == 0.04
    assert g.state_names == f.state_names and run["theta"].shape == (31,)
    np.testing.assert_array_equal(g.steps_at(run.x[:-1], U).t, run.t[:-1])
    twice = f.substeps(2).substeps(2)
    np.testing.assert_array_equal(twice.rollout(x0, U).x, run.x)
    with pytest.raises(ValueError, match="substeps: expected a number of steps >= 1, got 0"):
        f.substeps(0)


@pytest.mark.parametrize("which", ["cart", "loop", "crane", "galerkin", "group"])
def test_substeps_keep_the_protocol(which):
    if which == "cart":
        f = MidpointVI(vioc.models.load("cart_pole"), 0.04)
        check_map(f.substeps(3), f.initial_state({"theta": 0.4}))
    elif which == "loop":
        f = chain()
        fit = f.consistent_configuration(dict(J=-0.6, H=1.3, M=-1.3), fixed=["J"])
        check_map(f.substeps(2), f.with_dt(0.01).rollout(f.initial_state(fit.q), steps=3).x[-1])
    elif which == "crane":  # a variable that is prescribed moves linearly over the whole step
        pole = tx(vioc.K("x"))[vioc.ry("theta")[vioc.tz(-0.5, name="bob", mass=1.0)]]
        f = MidpointVI(System(pole, vioc.Gravity(0, 0, -9.81)), 0.04)
        check_map(f.substeps(3), f.initial_state({"theta": 0.4, "x": 0.1}))
    elif which == "galerkin":
        f = GalerkinVI(vioc.models.load("cart_pole"), 0.04, stages=2)
        x = f.initial_state({"theta": 0.4})
        found = f.substeps(2).linearize(x, [0.3])
        steps = [f.linearize(a, [0.3], dt=0.02) for a in (x, f.step(x, [0.3], dt=0.02))]
        np.testing.assert_allclose(found.A, steps[1].A @ steps[0].A, rtol=0, atol=1e-12)
        np.testing.assert_allclose(found.B, steps[1].A @ steps[0].B + steps[1].B, rtol=0, atol=1e-12)
    else:
        f = GroupVI(spinning(), 0.04)
        check_map(f.substeps(2), f.initial_state({}, {"b-wx": 2.0, "b-wy": 1.0}))


@pytest.mark.parametrize("n", [2, 3])
def test_kernels_of_substeps_take_the_steps_of_rollouts(n):
    f = chain()
    f, x0 = f.substeps(n), f.initial_state(f.consistent_configuration(dict(J=-0.6, H=1.3, M=-1.3)).q)
    run, kernel = f.rollout(x0, steps=5), f.kernel
    for k in range(5):
        x1, multipliers, error = kernel.function(run.x[k], run.u[k], run.t[k], 0.02, f.theta)
        np.testing.assert_allclose(np.ravel(x1), run.x[k + 1], rtol=0, atol=1e-12)
        np.testing.assert_allclose(np.ravel(multipliers), run.multipliers[k], rtol=1e-9)
        assert float(error) <= kernel.tolerance


def test_slips_of_substeps_are_those_at_their_end():
    """Impulses add up; the speed of a puck that slides is that of the last substep."""
    puck = tx("x")[vioc.tz("z", name="puck", mass=1.0)]
    touch = vioc.Contact("puck", radius=0.1, friction=0.3, name="floor")
    f = vioc.ContactVI(System(puck, vioc.Gravity(0, 0, -9.81), touch), 0.03)
    g, x0 = f.substeps(3), f.initial_state({"z": 0.1001}, {"x": 1.0})
    run, fine = g.rollout(x0, steps=8), f.with_dt(0.01).rollout(x0, steps=24)
    assert not g.mechanism.additive.all() and g.kernel is None
    for name in ("lambda.floor", "lambda.floor.slip"):
        parts = fine[name].reshape(8, 3)
        expected = parts[:, -1] if name.endswith("slip") else parts.sum(axis=1)
        np.testing.assert_allclose(run[name], expected, rtol=1e-12)
    assert np.ptp(run["lambda.floor.slip"]) > 0.3
    along = [f.linearize(fine.x[i], dt=0.01) for i in (9, 10, 11)]
    found, through = g.linearize(run.x[3]), np.eye(f.nx)
    slopes = np.zeros_like(found.C)
    for part in along:
        slopes = np.where(f.mechanism.additive[:, None], slopes, 0.0) + part.C @ through
        through = part.A @ through
    np.testing.assert_allclose(found.C, slopes, rtol=1e-9, atol=1e-9 * np.abs(slopes).max())
    np.testing.assert_allclose(found.A, through, rtol=0, atol=1e-9 * np.abs(through).max())


def test_substeps_are_optimized_and_stabilized_as_any_map():
    f = MidpointVI(vioc.models.load("cart_pole"), 0.06).substeps(3)
    x0 = f.initial_state({"theta": 0.5})
    cost = vioc.control.quadratic(f, Q={"theta": 1.0, "x": 0.1}, R=0.1, Qf={"theta": 100.0})
    best = vioc.control.optimize(f, cost, x0=x0, steps=25)
    assert best.converged
    np.testing.assert_allclose(f.rollout(x0, best.u).x, best.trajectory.x, rtol=0, atol=1e-9)
    law = vioc.control.dlqr(f, vioc.control.equilibrium(f, theta=0.0), 1.0, 1.0)
    assert np.abs(law.poles).max() < 1


def test_a_substep_that_does_not_exist_says_so_of_the_whole_step():
    g = pushed(2.0).substeps(2)
    with pytest.raises(StepError, match="one of its 2 substeps") as caught:
        g.rollout([0.0, 3.0], steps=4)
    assert caught.value.k == 0 and len(caught.value.trajectory) == 0
    assert caught.value.length == pytest.approx(2 * (2 / 3) ** (1 / 3), rel=1e-2)


# -- to look at a motion ----------------------------------------


def test_adaptive_rollouts_cut_what_does_not_exist_and_say_so():
    """A force x^2 on a body that is thrown at it, up to where it goes to infinity in a finite time."""
    f = pushed(0.5)
    with pytest.raises(StepError) as caught:
        f.rollout([0.0, 4.0], steps=3)
    k = caught.value.k
    with pytest.warns(StepWarning, match="were cut"):
        run = f.rollout([0.0, 4.0], steps=k + 1, adaptive=True)
    assert len(run) > k + 1 and run.t[-1] == pytest.approx(0.5 * (k + 1), abs=1e-12)
    np.testing.assert_array_equal(run.x[: k + 1], caught.value.trajectory.x)
    h = run.step_lengths
    assert h.min() <= caught.value.length and h.max() == 0.5
    A = f.linearize_trajectory(run).A  # of steps of these lengths
    for i in (k, len(run) - 1):
        np.testing.assert_allclose(A[i], f.linearize(run.x[i], dt=float(h[i])).A, rtol=1e-12)


def test_adaptive_rollouts_of_steps_that_exist_are_plain_ones():
    f = n_links(3, 0.01)
    x0 = f.initial_state({"link-0": 0.5})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run = f.rollout(x0, steps=50, adaptive=True)
    np.testing.assert_array_equal(run.x, f.rollout(x0, steps=50).x)
    assert run.map.dt == f.dt and len(run) == 50


def test_adaptive_rollouts_have_a_budget():
    """x'' = x^2 goes to infinity at a finite time, which no number of steps passes."""
    with pytest.raises(StepError, match="Cutting steps found no motion"):
        pushed(0.5).rollout([0.0, 4.0], steps=100, adaptive=True)


def test_adaptive_rollouts_end_at_a_1024th_of_a_step_and_say_which_step():
    with pytest.raises(StepError, match=r"it took \d+ cuts until t = ") as caught:
        pushed(0.5).rollout([0.0, 4.0], steps=100, k0=7, adaptive=True)
    error = caught.value
    run = error.trajectory
    assert run.step_lengths.min() == 0.5 / 1024 and run.k0 == 7
    assert error.k == 7 + int((run.t[-1] - run.t[0]) / 0.5)


def test_behind_a_step_that_is_cut_each_step_is_that_of_its_number():
    """Pushed by x^2 until the cut, and by nothing from then on: a straight line, at the speed it has."""
    push, free = pushed(0.5), MidpointVI(System(tx("x", mass=1.0)), 0.5)
    with pytest.raises(StepError) as caught:
        push.rollout([0.0, 4.0], steps=3)
    k = caught.value.k
    assert k > 0  # steps behind it are not those of minus its number
    with pytest.warns(StepWarning, match="were cut"):
        run = SwitchedMap([push, free], [k + 1, 3]).rollout([0.0, 4.0], steps=k + 4, adaptive=True)
    left = run.t >= 0.5 * (k + 1) - 1e-12
    assert left.sum() == 4 and run.t[left][0] == pytest.approx(0.5 * (k + 1))
    x, p = run.x[left].T
    np.testing.assert_allclose(p, p[0], rtol=1e-12)
    np.testing.assert_allclose(x, x[0] + p[0] * (run.t[left] - run.t[left][0]), rtol=1e-12)


def test_what_is_prescribed_moves_linearly_over_steps_that_are_cut():
    system = System(tx("x", mass=1.0), tx(vioc.K("s"), mass=1.0), PolynomialSpring("x", (0.0, -1.0)))
    f = MidpointVI(system, 0.5)
    ends = np.array([0.1, 0.4, 0.2, -0.3])
    whole = f.rollout(f.initial_state({}, {"x": 3.0}), ends[:1, None]).x[-1]
    assert whole[f.state_names.index("s")] == 0.1
    with pytest.warns(StepWarning, match="were cut"):
        run = f.rollout(f.initial_state({}, {"x": 4.0}), ends[:3, None], adaptive=True)
    assert len(run) > 3
    expected = np.interp(run.t, 0.5 * np.arange(4), [0.0, *ends[:3]])
    np.testing.assert_allclose(run["s"], expected, rtol=0, atol=1e-14)


# -- energy from nowhere ----------------------------------------


def test_a_rollout_that_diverges_has_its_own_verdict():
    f = MidpointVI(vioc.models.load("acrobot"), 0.05)
    with pytest.raises(StepError, match=r"diverged at t = .*its energy went from 8\.298 J") as caught:
        f.rollout(f.initial_state({"q1": 1.0, "q2": 0.5}), steps=600)
    error = caught.value
    assert error.cause == "diverged" and 100 < error.k == len(error.trajectory) < 600
    fine = f.with_dt(0.005).rollout(f.initial_state({"q1": 1.0, "q2": 0.5}), steps=6000)
    assert np.ptp(fine.energy) < 1.0  # J: what the motion is


@pytest.mark.parametrize("seeds", [(5, 7), pytest.param(range(3, 8), marks=pytest.mark.slow)])
def test_random_mechanisms_end_by_folds_alone(seeds):
    """Whatever ends a run of a random mechanism is a step that does not exist, and a shorter one does."""
    ended = 0
    for seed in seeds:
        found = mechanism(seed)
        f = MidpointVI(found.system, 0.05)
        try:
            f.rollout(f.initial_state(found.q, found.v), steps=20, warn=False)
        except StepError as error:
            ended += 1
            assert error.cause == "fold" and 0 < error.length < 0.05
            f.with_dt(0.97 * error.length).step(error.trajectory.x[-1])
    assert ended


def falling(mass: float, dt: float) -> MidpointVI:
    """Two rods of a mass each, 1 m long, that hang from each other."""

    def rod(variable: str, *frames):
        body = vioc.Mass(mass, (mass / 12, mass / 12, 0.0), (0, 0, -0.5))
        return vioc.ry(variable, mass=body)[frames]

    return MidpointVI(System(rod("a", vioc.tz(-1.0)[rod("b")]), vioc.Gravity(0, 0, -9.81)), dt)


def test_divergence_is_found_at_the_same_step_whatever_the_unit_of_mass():
    ends = []
    for mass in (1e-9, 1.0, 1e9):
        f = falling(mass, 0.05)
        with pytest.raises(StepError) as caught:
            f.rollout(f.initial_state({"a": 2.5, "b": 1.0}), steps=600)
        ends.append((caught.value.cause, caught.value.k))
    assert ends[0][0] == "diverged" and ends == [ends[0]] * 3


@pytest.mark.parametrize(
    ("dt", "stiffness", "found"), [(0.01, 1e6, [1, 1]), (1e3, 1e12, [1, None]), (0.01, 1e-6, [None, 1])]
)
def test_noise_of_what_rests_far_away_is_no_energy_from_nowhere(dt, stiffness, found):
    """At 1000 km a step is solved to tolerance times that, and so are positions, and momenta by dt."""
    spring = vioc.TorsionalSpring("x", stiffness, 1e6)
    f = MidpointVI(System(tx("x", mass=1.0), spring), dt)
    run = f.rollout(f.initial_state({"x": 1e6}), steps=10)
    least = 1e6 * f.tolerance
    off = np.r_[0.0, np.ones(10)]
    for by, k in zip(([least, 0.0], [0.0, least / dt]), found, strict=True):
        near, far = (replace(run, x=run.x + size * np.outer(off, by)) for size in (0.3, 100.0))
        assert f.mechanism.diverged(near, True) is None
        assert (f.mechanism.diverged(far, True) or [None])[0] == k  # None: the other allows more


def test_work_of_forces_explains_energy_and_what_is_prescribed_is_not_judged():
    f = MidpointVI(System(tx("x", mass=1.0), vioc.JointForce("x", "force")), 0.1)
    run = f.rollout(f.initial_state(), f.inputs(40, force=100.0))
    assert run.energy[-1] > 1e4 and f.mechanism.diverged(run, True) is None
    still = replace(run, u=0 * run.u)
    assert f.mechanism.diverged(still, True)[0] == 1
    g = MidpointVI(System(tx(vioc.K("s"), mass=1.0)[tx("x", mass=1.0)]), 0.1)
    carried = g.rollout(g.initial_state(), np.arange(40.0)[:, None] ** 2)
    assert np.ptp(carried.energy) > 100 and g.mechanism.diverged(carried, True) is None


def test_only_motions_that_grow_are_looked_at_where_nothing_failed():
    f = MidpointVI(System(tx("x", mass=1.0)), 0.1)
    run = f.rollout(f.initial_state({}, {"x": 1.0}), steps=8)
    for since, grown, expected in ((5, 1.7, None), (5, 1.8, 5), (4, 1.8, None)):
        v = np.where(np.arange(9) < since, 1.0, grown)  # 3 times the kinetic energy of the first half
        moved = np.concatenate([[0.0], np.cumsum(0.1 * v[1:])])
        faster = replace(run, x=np.column_stack([moved, v]))
        found = f.mechanism.diverged(faster, False)
        assert (found and found[0]) == expected


@pytest.mark.parametrize("backend", BACKENDS)
def test_kernels_follow_no_branch_from_the_end_of_a_failed_step(backend):
    """A rollout computes steps behind a failed one, too: each would cost as much as a step that fails."""
    f = pushed(0.5, backend=backend)
    with pytest.raises(StepError) as caught:
        f.rollout([0.0, 4.0], steps=3)
    x, u = caught.value.trajectory.x[-1], np.zeros(0)
    end, error = f.driver.attempt(x, u, 0.0, f.dt)
    assert 1 < error < 2  # 2 less the share of the step that exists
    assert 2 - error == pytest.approx(caught.value.length / f.dt, rel=1e-3)
    assert np.isnan(end[-1])
    assert f.driver.attempt(end, u, 0.0, f.dt)[1] == np.inf


def test_an_error_of_a_map_that_tells_no_motion_is_of_the_whole_step_too(monkeypatch):
    f = MidpointVI(vioc.models.load("cart_pole"), 0.04)

    def broken(*arguments, **options):
        raise StepError("no more", 20, 0.0, "no convergence")

    monkeypatch.setattr(f, "run", broken)
    with pytest.raises(StepError, match="step 5, one of its 4 substeps: no more") as caught:
        f.substeps(4).rollout(f.initial_state(), steps=3, k0=5)
    assert caught.value.k == 5 and caught.value.trajectory is None and caught.value.length is None


def test_angles_turn_a_step_s_equations_only_where_their_sines_matter():
    """Not the spin of a round wheel, which may be many turns a step, nor that of a shaft on a spring."""
    square, round_ = vioc.Mass(1.0, (0.1, 0.3, 0.2)), vioc.Mass(1.0, (0.1, 0.2, 0.1))
    wheels = [
        vioc.tz(-1.0, name=n, mass=0.5)[vioc.ry(f"spin-{n}", mass=m)]
        for n, m in (("round", round_), ("lopsided", vioc.Mass(1.0, (0.1, 0.2, 0.1), com=(0.05, 0, 0))))
    ]
    shaft = vioc.ry("shaft", mass=square)
    parts = vioc.Gravity(0, 0, -9.81), vioc.TorsionalSpring("shaft", 3.0)
    f = MidpointVI(System(vioc.ry("arm")[wheels[0], wheels[1]], shaft, *parts), 0.05)
    found = dict(zip(f.system.dynamic, f.turning, strict=True))
    assert found == {"arm": True, "spin-round": False, "spin-lopsided": True, "shaft": False}


@pytest.mark.parametrize("stiff", [False, True])
def test_first_guesses_of_slow_steps_are_off_by_the_cube_of_their_length(stiff):
    """A pendulum on a cart that is driven: velocities, accelerations and what is prescribed enter."""
    cart = tx(vioc.K("s"), mass=1.0)[vioc.ry("a")[vioc.tz(-1.0, mass=1.0)]]
    f = MidpointVI(System(cart, vioc.Gravity(0, 0, -9.81), vioc.JointDamping("a", 0.5)), 0.01)
    x0 = f.initial_state({"a": 0.7, "s": 0.2}, {"a": 1.5, "s": 2.0})
    off = []
    for h in (4e-3, 2e-3, 1e-3):
        target = np.array([0.2 + 2.0 * h])
        ahead, suspect, _ = predicted(f, stiff)(x0, target, 0.0, h, f.theta)
        assert float(suspect) == 0.0
        off.append(abs(float(ahead) - f.step(x0, target, dt=h)[0]))
    assert 2.8 < np.log2(off[0] / off[1]) < 3.2 and 2.9 < np.log2(off[1] / off[2]) < 3.1
