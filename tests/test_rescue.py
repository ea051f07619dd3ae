"""Steps that cannot be taken whole: in parts, with derivatives of what was done, and said in the result."""

import pickle

import casadi as ca
import numpy as np
import pytest
from mechanisms import everything, hold, state_near

import vioc
from studies.random_family import mechanism
from vioc import CasadiMap, LinearTimeVI, MaximalVI, MidpointVI, StepError
from vioc.control import feedback, join, quadratic
from vioc.control.descent.local_model import LocalModel
from vioc.control.descent.symbolic.symbolic_model import LocalModels, StageModel
from vioc.dynamics.integrators import divisible
from vioc.maps.switched import SwitchedMap

KINDS = [MidpointVI, LinearTimeVI, MaximalVI]
DT, STEPS, LINKS = 0.05, 60, 5


def whip(kind, more=()):
    """Rods that swing over, and a start from which no integrator takes all steps of this length whole."""
    f = kind(vioc.models.load("n_link_pendulum", LINKS).with_components(*more), DT)
    rng = np.random.default_rng(2)
    q, v = (dict(zip(f.system.variables, 2 * rng.standard_normal(LINKS), strict=True)) for _ in "qv")
    return f, f.initial_state(q, v)


@pytest.fixture(scope="module", params=KINDS, ids=lambda kind: kind.__name__)
def run(request):
    f, x = whip(request.param)
    return f.rollout(x, steps=STEPS)


def test_a_run_with_steps_in_parts_goes_to_its_end_and_says_so(run):
    f, x = run.map, run.x[0]
    with pytest.raises(StepError, match="was not solved") as caught:
        f.rollout(x, steps=STEPS, rescue=True)
    until = caught.value.trajectory
    assert 0 < len(until) == caught.value.k < STEPS and until.map is f
    assert len(until.t) == len(until.x) == len(until) + 1
    first = min(run.splits)
    assert np.array_equal(until.x[: first + 1], run.x[: first + 1])

    parts = sorted({len(split) for split in run.splits.values()})
    assert f"{len(run.splits)} steps taken in {parts[0]}" in repr(run)
    for k, split in run.splits.items():
        assert split.lengths.sum() == pytest.approx(DT, rel=1e-14) and len(split) >= 2
        assert np.array_equal(split.x[-1], run.x[k + 1])
    # what is lost of 28 J of kinetic energy, on average; roots that are no motion multiply it
    assert np.abs(run.energy - run.energy[0]).max() < 28


def test_runs_with_steps_in_parts_are_joined_and_taken_by_phases(run):
    half = STEPS // 2
    whole = join(run[:half], run[half:])
    phased = SwitchedMap([run.map, run.map], [half, STEPS - half]).rollout(run.x[0], steps=STEPS)
    for other in (whole, phased):
        assert other.splits.keys() == run.splits.keys()
        for k, split in run.splits.items():
            np.testing.assert_array_equal(other.splits[k].lengths, split.lengths)
    np.testing.assert_array_equal(whole.x, run.x)


def test_no_step_is_far_from_the_motion(run):
    """Against a hundredth of the step, from states of the run: no farther than a third of the way."""
    f = run.map
    for k in sorted({*run.splits, *range(0, len(run), 4)}):
        fine = f.rollout(run.x[k], steps=100, dt=DT / 100, rescue=True)
        way = sum(f._moved(a, b) for a, b in zip(fine.x[:-1], fine.x[1:], strict=True))
        assert f._moved(run.x[k + 1], fine.x[-1]) < 0.35 * way, k


def test_the_same_steps_alone_in_batches_and_tracked(run):
    f, k = run.map, min(run.splits)
    assert np.array_equal(f.step(run.x[k], k=k), f.rollout(run.x[k], steps=1, k0=k).x[1])
    batch = f.rollouts(run.x[:2], steps=STEPS, workers=1)
    assert "with steps taken in parts" in repr(batch)
    assert list(batch[0].splits) == list(run.splits) and np.array_equal(batch.x[0], run.x)
    none = np.zeros((STEPS, 0, f.ndx))
    tracked = f.track(run.x[0], run.x, run.u, none)
    assert list(tracked.splits) == list(run.splits) and np.array_equal(tracked.x, run.x)
    with pytest.raises(StepError) as caught:
        f.track(run.x[0], run.x, run.u, none, rescue=False)
    assert len(caught.value.trajectory) == caught.value.k
    failed = f.rollouts(run.x[:1], steps=STEPS, workers=1, raise_on_failure=False, rescue=True)
    assert len(failed.errors[0].trajectory) == failed.errors[0].k > 0
    with pytest.raises(ValueError, match="rescue: expected"):
        f.rollout(run.x[0], steps=1, rescue="splits")


def test_splits_are_kept_by_slices_files_and_pickles(run, tmp_path):
    again = vioc.Trajectory.load(run.save(tmp_path / "whip"), run.map)
    copies = [again, pickle.loads(pickle.dumps(run))]
    first = min(run.splits)
    piece = run.part(first, len(run))
    assert next(iter(piece.splits)) == 0 and piece.k0 == first
    for copy in copies:
        assert list(copy.splits) == list(run.splits)
        for k, split in run.splits.items():
            assert all(np.array_equal(a, b) for a, b in zip(split, copy.splits[k], strict=True))
    A = run.map.linearize_trajectory(run).A
    assert np.array_equal(again.map.linearize_trajectory(again).A, A)
    assert np.array_equal(run.map.linearize_trajectory(piece).A, A[first:])


def differences(function, size, step):
    """Derivative of a function of an error vector at zero, by central differences of order 4."""
    columns = []
    for e in step * np.eye(size):
        near, far = function(e) - function(-e), function(2 * e) - function(-2 * e)
        columns.append((8 * near - far) / (12 * step))
    return np.stack(columns, axis=-1)


def test_derivatives_of_a_step_in_parts_of_rods(run):
    """In the errors of the map, against differences of what rollouts do."""
    f, k = run.map, min(run.splits)
    x, rng = run.x[k], np.random.default_rng(0)
    z, d = rng.standard_normal((2, f.ndx))

    def end(e):
        return f.difference(run.x[k + 1], f.rollout(f.retract(x, e), steps=1, k0=k).x[1])

    # of many errors along some directions, which take part of all of them
    D = np.linalg.qr(rng.standard_normal((f.ndx, min(f.ndx, 12))))[0]
    A = differences(lambda c: end(D @ c), D.shape[1], 1e-4)
    lin = f.linearize_trajectory(run)
    points = f.linearize_points(run.x[k : k + 2], run.u[:2], k0=k)
    for found in (lin.A[k], f.linearize(x, k=k).A, points.A[0]):
        assert np.abs(found @ D - A).max() < 1e-7 * np.abs(A).max()
    assert np.array_equal(lin.A[k + 1], f.linearize_trajectory(run.part(k + 1, k + 2)).A[0])

    Z = np.zeros((len(run), f.ndx))
    Z[k] = z
    H = f.second_order_trajectory(run, Z).xx
    assert not H[k + 1].any()
    step = 1e-3
    along = [z @ end(a * step * d) for a in (-2, -1, 0, 1, 2)]
    second = np.dot((-1, 16, -30, 16, -1), along) / (12 * step**2)
    tensor = f.second_order_tensor_trajectory(run.part(k - 1, k + 1))[0].xx[1]
    for found in (H[k], f.second_order(x, None, z, k).xx, np.tensordot(z, tensor, 1)):
        assert d @ found @ d == pytest.approx(second, rel=1e-5)


@pytest.fixture(scope="module", params=[(MidpointVI, 0.5), (LinearTimeVI, 0.3)], ids=["midpoint", "linear"])
def rich(request):
    """A step in parts of a mechanism with one of each, and a force that depends on time."""
    system = everything().with_components(vioc.UserForce(lambda k: {"c": ca.sin(7 * k.t) * k.q("b")}))
    kind, dt = request.param
    f = kind(system, dt)
    x, k = state_near(f, 1, speed=6.0), 3
    u = hold(f, x, 1) + [0.0, 0.1, 0.05]
    return f.rollout(x, u[None], k0=k, warn=False)


def test_parts_are_steps_of_their_own(rich):
    f, split, (u,) = rich.map, rich.splits[0], rich.u
    start, ends = rich.x[0, f.nd : f.nq], split.ends[:, None]
    rho = (1 - ends) * start + ends * u[1:]
    U = np.hstack([np.full((len(split), 1), u[0]), rho])
    k0 = rich.k0 if len(set(split.lengths)) > 1 else rich.k0 * len(split)  # where equal steps count from 0
    fine = f.rollout(rich.x[0], U, k0=k0, dt=split.lengths, warn=False, rescue=True)
    assert fine.t[0] == rich.t[0]
    np.testing.assert_allclose(split.x, fine.x[1:], rtol=0, atol=1e-9)
    np.testing.assert_allclose(rich.multipliers[0], fine.multipliers.sum(axis=0), rtol=1e-9)


@pytest.mark.slow
def test_all_derivatives_of_a_step_in_parts(rich):
    """By state, input and parameters, of state and impulses: prescribed motions, a string, time."""
    f, k, x, u = rich.map, rich.k0, rich.x[0], rich.u[0]
    names, rng = list(f.parameters), np.random.default_rng(3)
    z, zeta = rng.standard_normal(f.nx), rng.standard_normal(f.nm)

    def at(e):
        dx, du, dp = np.split(e, np.cumsum([f.nx, f.nu]))
        values = {n: f.parameters[n] + d for n, d in zip(names, dp, strict=True)}
        return f.with_parameters(**values), x + dx, u + du

    def step(e):
        g, y, w = at(e)
        moved = g.rollout(y, w[None], k0=k, warn=False)
        assert np.array_equal(moved.splits[0].lengths, rich.splits[0].lengths)
        return np.concatenate([moved.x[1], moved.multipliers[0]])

    def gradient(e):
        g, y, w = at(e)
        lin = g.linearize(y, w, k)
        return z @ np.hstack([lin.A, lin.B, lin.P]) + zeta @ np.hstack([lin.C, lin.D, lin.E])

    count = f.nx + f.nu + len(names)
    lin = f.linearize_trajectory(rich)
    found = np.block([[lin.A[0], lin.B[0], lin.P[0]], [lin.C[0], lin.D[0], lin.E[0]]])
    expected = differences(step, count, 1e-4)
    assert np.abs(found - expected).max() < 1e-7 * np.abs(expected).max()
    H = f.second_order(x, u, z, k, zeta=zeta)
    found = np.block([[H.xx, H.xu, H.xp], [H.xu.T, H.uu, H.up], [H.xp.T, H.up.T, H.pp]])
    expected = differences(gradient, count, 1e-4)
    assert np.abs(found - expected).max() < 1e-7 * np.abs(expected).max()


def test_derivatives_by_the_length_and_the_start_of_a_step_in_parts(rich):
    """Parts stay the same shares of a step, and start with it."""
    f, k, x, u, n = rich.map, rich.k0, rich.x[0], rich.u[0], rich.map.nx + rich.map.nu + len(rich.map.theta)
    rng = np.random.default_rng(3)
    z, zeta = rng.standard_normal((1, f.nx)), rng.standard_normal((1, f.nm))
    shares = rich.splits[0].lengths / f.dt

    def at(e):
        g = f.with_dt(f.dt + e[1] / k)  # where steps of several lengths start
        two = g.steps_at([x, x], [u, u], k, [f.dt + e[0], 0.9 * f.dt]).piece(slice(1))
        np.testing.assert_allclose(two.splits[0].lengths, shares * two.h, rtol=1e-14)
        return g, two

    def step(e):
        _, one = at(e)
        return np.concatenate([one.x1[0], one.multipliers[0]])

    def gradient(e):
        g, one = at(e)
        lin = g.first_with_times(one).rows(0)
        return z[0] @ np.hstack([lin.A, lin.B, lin.P]) + zeta[0] @ np.hstack([lin.C, lin.D, lin.E])

    _, one = at(np.zeros(2))
    lin = f.first_with_times(one).rows(0)
    found, expected = np.vstack([lin.P, lin.E])[:, -2:], differences(step, 2, 1e-4)
    assert np.abs(found - expected).max(axis=0) == pytest.approx(0, abs=1e-7 * np.abs(expected).max())
    H = f.second_with_times(one, z, zeta).rows(0).matrix
    expected = differences(gradient, 2, 1e-4)
    assert H.shape == (n + 2, n + 2)
    np.testing.assert_allclose(H, H.T, rtol=0, atol=1e-12 * np.abs(H).max())
    assert np.abs(H[:, -2:] - expected).max() < 1e-7 * np.abs(expected).max()
    np.testing.assert_allclose(
        H[:n, :n], f.second(one, z, zeta).rows(0).matrix, rtol=0, atol=1e-12 * np.abs(H).max()
    )


@pytest.fixture(scope="module")
def driven():
    """The rods with a torque at the first, and a cost."""
    f, x = whip(MidpointVI, [vioc.JointForce("link-0", "torque")])
    cost = quadratic(f, R={"torque": 0.1}, Q={"link-0": 1.0}, Qf={"link-4": 1.0})
    U = 0.5 * np.sin(np.arange(20))[:, None]
    run = f.rollout(x, U)
    assert run.splits
    return run, cost


def test_optimizers_see_the_map_that_was_rolled_out(driven):
    """The slope of the cost along a direction is that of rollouts; the passes of whole steps are not used."""
    run, cost = driven
    f = run.map
    calm = f.rollout(f.initial_state(), run.u)
    models = LocalModels(f, cost, calm, None)
    assert isinstance(models.about(calm, 0.0), StageModel) and not calm.splits
    model = models.about(run, 0.0)
    assert isinstance(model, LocalModel) and not isinstance(model, StageModel)
    direction = model.direction("gauss-newton")

    def value(s):
        moved = f.rollout(run.x[0], run.u + s * (direction.du))
        assert list(moved.splits) == list(run.splits)
        return cost.value(moved)

    e = model.expansion
    A, B = model.lin
    dx = np.zeros((len(run) + 1, f.nx))
    for k in range(len(run)):
        dx[k + 1] = A[k] @ dx[k] + B[k] @ direction.du[k]
    slope = np.vdot(e.lx, dx) + np.vdot(e.lu, direction.du)
    h = 1e-4
    ahead = 8 * (value(h) - value(-h)) - (value(2 * h) - value(-2 * h))
    assert slope == pytest.approx(ahead / (12 * h), rel=1e-6)


def test_closed_loops_and_delays_keep_splits(driven):
    run, _ = driven
    f, x, steps = run.map, run.x[0], len(run)
    regulator = vioc.control.dlqr(f, run, 1.0, 1.0)
    assert list(regulator.rollout(x).splits) == list(run.splits)
    loop = feedback.ClosedLoop(f, regulator).simulate(x, steps).trajectory
    assert loop.splits and set(loop.splits) <= set(range(steps))
    assert np.array_equal(loop.splits[min(loop.splits)].x[-1], loop.x[min(loop.splits) + 1])

    late = feedback.DelayedMap(f)
    U = np.vstack([run.u[1:], run.u[-1:]])
    delayed = late.rollout(np.concatenate([x, run.u[0]]), U)
    assert list(delayed.splits) == list(run.splits)
    A = late.linearize_trajectory(delayed).A[:, : f.nx, : f.nx]
    assert np.array_equal(A, f.linearize_trajectory(run).A)
    tracked = late.track(delayed.x[0], delayed.x, U, np.zeros((steps, 1, late.ndx)))
    assert tracked.splits


def test_a_closed_loop_that_ends_has_its_motion():
    x = ca.SX.sym("x")
    f = CasadiMap(ca.Function("f", [x, ca.SX(0, 1)], [ca.sqrt(x) - 0.5]), 0.1)
    with pytest.raises(StepError, match="not finite") as caught:
        f.rollout([0.5], steps=9)  # a map of one's own has no parts
    until = caught.value.trajectory
    assert len(until) == caught.value.k and len(until) > 0 and (until.x[-1] < 0)
    assert np.array_equal(pickle.loads(pickle.dumps(caught.value)).trajectory.x, until.x)
    with pytest.raises(StepError) as first:
        f.rollout([-1.0], steps=9)
    assert len(first.value.trajectory) == 0 and first.value.trajectory.x.shape == (1, 1)


def test_a_singular_position_is_no_matter_of_the_step():
    """Two rods stretched out between fixed points: the constraint has no gradient there."""
    system = vioc.System(
        vioc.tx("x")[vioc.tz("z", name="bob", mass=1.0)],
        vioc.Gravity(0, 0, -9.8),
        vioc.DistanceConstraint("world", "bob", 1e-9, name="rod"),
    )
    f = MidpointVI(system, 0.01)
    with pytest.raises(StepError, match="vanishes") as caught:
        f.rollout(f.state(), steps=3)
    assert caught.value.cause == "singular constraints" and len(caught.value.trajectory) == 0


@pytest.mark.parametrize("kind", [MidpointVI, LinearTimeVI])
def test_forces_of_unequal_steps_and_of_parts(kind, monkeypatch):
    """An impulse is half of the step before and half of its own: a weight at rest pulls m g throughout."""
    rod = vioc.System(
        vioc.tx("x")[vioc.tz("z", name="bob", mass=2.0)],
        vioc.Gravity(0, 0, -9.8),
        vioc.DistanceConstraint("world", "bob", 1.0, name="rod"),
    )
    f = kind(rod, 0.01)
    lengths = np.array([0.01, 0.01, 0.03, 0.03, 0.005, 0.02])
    run = f.rollout(f.initial_state({"z": -1.0}), steps=len(lengths), dt=lengths)
    np.testing.assert_allclose(run["tension.rod"][1:], 19.6, rtol=1e-9)

    def third(carry, X, h, multipliers):
        return (np.arange(X.shape[-2] - 1) == 2) & (X.shape[-2] == 7)

    monkeypatch.setattr(divisible, "AGREED", np.nan)  # what is in doubt is taken in parts
    monkeypatch.setattr(divisible, "SMALLEST", 0.5)
    monkeypatch.setattr(f, "_doubts", third)
    with pytest.warns(vioc.errors.StepWarning):  # nothing agrees with anything
        run = f.rollout(f.initial_state({"z": -1.0}), steps=6)
    assert list(run.splits) == [2] and len(run.splits[2]) == 2
    np.testing.assert_allclose(run["tension.rod"][1:], 19.6, rtol=1e-9)


@pytest.mark.parametrize("rule", [{"alpha": 0.0}, {"forcing": "left"}])
def test_states_that_depend_on_the_step_are_of_whole_steps(rule):
    """[C] Fig. 3: a pendulum at dt = 0.2 s swings on; taken in parts with alpha = 0 it went over the top."""
    system = vioc.System(vioc.Gravity(0, 0, -9.81), vioc.ry("theta")[vioc.tz(-1, mass=1)])
    f = vioc.MidpointVI(system, 0.2, **rule)
    run = f.rollout(f.state_from_configurations([2.0], [1.9]), steps=50)
    assert not run.splits and np.abs(run["theta"]).max() < 2.2


def test_parts_end_where_their_halves_do():
    """Parts each accepted by itself led to where the next step ended 1.2 ways from the motion."""
    m = mechanism(256)
    f = MidpointVI(m.system, 0.01)
    q, v = (dict(zip(m.system.variables, a, strict=True)) for a in (m.q, m.v))
    run = f.rollout(f.initial_state(q, v), steps=68, warn=False)
    root = np.sqrt(f.lagrangian.mass_scale)
    assert run.splits
    for k in range(min(run.splits), len(run)):
        fine = f.rollout(run.x[k], np.repeat(run.u[k : k + 1], 100, axis=0), dt=f.dt / 100, warn=False)
        way = np.linalg.norm(np.diff(fine.x[:, : f.nd], axis=0) * root, axis=1).sum()
        assert np.linalg.norm((run.x[k + 1] - fine.x[-1])[: f.nd] * root) < 0.8 * way


def test_a_step_that_is_far_too_long_says_so():
    """Two seconds a step of a pole that falls: parts of 1/64 end elsewhere still, and energy grew."""
    f = MidpointVI(vioc.models.load("cart_pole"), 2.0)
    with pytest.warns(vioc.errors.StepWarning, match="far too long"):
        f.rollout(f.initial_state({"theta": 0.3}), steps=5)
    g = f.with_dt(0.05)
    g.rollout(g.initial_state({"theta": 0.3}), steps=100)


MANY = 40  # rows, more than a thread's share


def many(kind, hard, backend="virtual"):
    """A map, states of a run that is slow enough, and the row of the state `hard` among them."""
    f = kind(vioc.models.load("n_link_pendulum", LINKS), DT, backend=backend)
    slow = f.rollout(f.initial_state({"link-0": 1.0}), steps=MANY, dt=0.01)
    X, row = slow.x[:-1].copy(), 29
    X[row] = hard
    return f, X, row


@pytest.mark.parametrize("backend", ["virtual", "compiled"])
def test_steps_from_many_states_are_taken_at_once_but_the_hard_ones(run, backend, monkeypatch):
    f, X, row = many(type(run.map), run.x[min(run.splits)], backend)
    U = np.zeros((MANY, 0))
    each = [f.rollout(x, steps=1, k0=7 + i) for i, x in enumerate(X)]
    assert each[row].splits and not any(run.splits for i, run in enumerate(each) if i != row)
    alone, tried = f._steps, []

    def counted(x, *rest, rescue, **options):
        if rescue:  # no part of a step
            tried.append(x)
        return alone(x, *rest, rescue=rescue, **options)

    monkeypatch.setattr(f, "_steps", counted)
    found = []
    for count in (1, 1, 2, 3):  # threads: the first call builds what they share
        monkeypatch.setenv("VIOC_WORKERS", str(count))
        tried.clear()
        steps = f.steps_at(X, U, 7)
        assert np.array_equal(tried, X[row : row + 1])
        found.append(steps.x1)
    assert list(steps.splits) == [row]
    assert np.array_equal(steps.splits[row].x, each[row].splits[0].x)
    np.testing.assert_allclose(steps.x1, [run.x[1] for run in each], rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(steps.multipliers, [run.multipliers[0] for run in each], rtol=1e-7, atol=1e-9)
    for other in found:
        assert np.array_equal(other, found[0])


def test_a_row_without_a_step_is_told_without_effort(run, monkeypatch):
    f, X, row = many(type(run.map), run.x[0])
    X[row, -6:] *= 1e3  # momenta, or velocities
    U = np.zeros((MANY, 0))
    monkeypatch.setattr(f, "rescued", None)
    monkeypatch.setattr(f, "_settled", None)
    with pytest.raises(StepError) as caught:
        f.steps_at(X, U, 7, rescue=False)
    assert caught.value.k == 7 + row and caught.value.cause == "no convergence"
    X[row] = X[0]
    assert np.isfinite(f.steps_at(X, U, 7, rescue=False).x1).all()
    with pytest.raises(ValueError, match="rescue: expected"):
        f.steps_at(X, U, rescue="splits")


def test_a_row_that_is_not_finite_is_told():
    f, X, row = many(MidpointVI, np.nan)
    with pytest.raises(StepError) as caught:
        f.steps_at(X, np.zeros((MANY, 0)), rescue=False)
    assert caught.value.k == row


def test_a_row_where_constraints_are_dependent_is_told():
    """A bob in the center of its rod, among others that hang."""
    rod = vioc.DistanceConstraint("world", "bob", 1.0, name="rod")
    bob = vioc.tx("x")[vioc.tz("z", name="bob", mass=1.0)]
    f = MidpointVI(vioc.System(bob, vioc.Gravity(0, 0, -9.8), rod), 0.01)
    X = np.tile(f.initial_state({"z": -1.0}), (MANY, 1))
    U = np.zeros((MANY, 0))
    np.testing.assert_allclose(f.steps_at(X, U).x1, np.tile(f.step(X[0]), (MANY, 1)), rtol=0, atol=1e-13)
    X[31, :2] = 0.0
    with pytest.raises(StepError, match="step 33: .* the gradient of rod vanishes") as caught:
        f.steps_at(X, U, 2)
    assert caught.value.cause == "singular constraints" and caught.value.k == 33
