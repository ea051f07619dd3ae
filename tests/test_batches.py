"""Rollouts side by side: to the bit what `rollout` makes of each."""

import warnings

import casadi as ca
import numpy as np
import pytest

import vioc
from vioc.compile import find_compiler

# inside: the bound on the steps of one call is lowered, as no batch of a test reaches it
from vioc.maps import driver
from vioc.models import mechanism

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C compiler")


def same(batch, f, X0, U=None, steps=None, parameters=None, **how):
    """Compare a batch with rollouts that are made one by one."""
    assert len(batch) == len(X0)
    for i, run in enumerate(batch):
        inputs = U if U is None or np.ndim(U) == 2 else U[i]
        own = {name: float(values[i]) for name, values in (parameters or {}).items()}
        g = f.with_parameters(**own) if own else f
        alone = g.rollout(X0[i], inputs, steps, warn=False, **how)
        for name in ("x", "u", "multipliers", "t"):
            np.testing.assert_array_equal(getattr(run, name), getattr(alone, name), name)
        assert run.map.dt == alone.map.dt


def springs():
    """Sliders on rails that stretched springs couple: Newton's method iterates, no angle turns."""
    a = vioc.tx("a", name="A", mass=1.0)
    b = vioc.ty(0.7)[vioc.tx("b", name="B", mass=vioc.P("m", 2.0))]
    more = [vioc.LinearSpring("A", "B", 40.0, 0.5), vioc.JointForce("a", "pull"), vioc.JointDamping("b", 0.3)]
    return vioc.System(*more, a, b)


def test_without_sines_the_same_to_the_bit():
    f = vioc.MidpointVI(springs(), 0.02, backend="compiled")
    rng = np.random.default_rng(0)
    X0, U = rng.standard_normal((19, f.nx)), rng.standard_normal((19, 30, f.nu))
    for how in (dict(), dict(dt=np.linspace(0.01, 0.03, 30), k0=3), dict(dt=0.03)):
        one = f.rollouts(X0, U, **how)
        same(one, f, X0, U, **how)
    for count in (1, 2, 8, 9):  # whatever the lanes beside it do
        np.testing.assert_array_equal(f.rollouts(X0[:count], U[:count], dt=0.03).x, one.x[:count])
    np.testing.assert_array_equal(f.rollouts(X0[2], U, dt=0.03).x[2], one.x[2])
    same(f.rollouts(X0, U[0]), f, X0, U[0])
    same(f.rollouts(X0, steps=5), f, X0, steps=5)


def test_no_steps_are_batches_too():
    f = vioc.MidpointVI(vioc.models.load("cart_pole"), 0.01, backend="compiled")
    batch = f.rollouts(np.zeros((3, 4)), np.zeros((3, 0, 1)))
    assert batch.x.shape == (3, 1, 4) and batch.u.shape == (3, 0, 1)


def test_numbers_of_every_sample_are_looked_at():
    f = vioc.MidpointVI(vioc.models.load("cart_pole"), 0.01)
    U = np.zeros((3, 4, 1))
    U[2, 1] = np.nan
    with pytest.raises(ValueError, match="inputs: expected finite numbers, got nan in entry 0 .* at step 1"):
        f.rollouts(np.zeros((3, 4)), U)
    with pytest.raises(ValueError, match="expected finite numbers"):
        f.rollouts(np.full((3, 4), np.inf), np.zeros((3, 4, 1)))


def test_parameters_of_each_sample():
    f = vioc.MidpointVI(springs(), 0.02, backend="compiled")
    rng = np.random.default_rng(1)
    X0, m = rng.standard_normal((11, f.nx)), rng.uniform(1, 3, 11)
    many = f.rollouts(X0, steps=40, parameters={"m": m})
    same(many, f, X0, steps=40, parameters={"m": m})
    for i, run in enumerate(many):
        assert run.map.parameters == {"m": m[i]}
        np.testing.assert_array_equal(run.x, f.with_parameters(m=m[i]).rollout(X0[i], steps=40).x)
    np.testing.assert_array_equal(many[3:5][1].energy, many[4].energy)
    np.testing.assert_array_equal(f.rollouts(X0[4], steps=40, parameters={"m": m}).x[4], many.x[4])
    with pytest.raises(ValueError, match="unknown parameter 'n'"):
        f.rollouts(X0, steps=4, parameters={"n": m})
    with pytest.raises(ValueError, match="got 11 initial states and 3 values of parameters 'm'"):
        f.rollouts(X0, steps=4, parameters={"m": m[:3]})
    with pytest.raises(ValueError, match="parameters 'm': expected finite"):
        f.rollouts(X0, steps=4, parameters={"m": np.where(m > 2, np.nan, m)})
    one = f.rollouts(X0, steps=4, parameters={"m": 1.5})  # one serves all
    np.testing.assert_array_equal(one.x, f.with_parameters(m=1.5).rollouts(X0, steps=4).x)
    np.testing.assert_array_equal(one.x, f.rollouts(X0, steps=4, parameters={"m": [1.5]}).x)
    with pytest.raises(ValueError, match="unknown parameter 'mm'; did you mean 'm'"):
        f.rollouts(X0, steps=4, parameters={"m": m[:3], "mm": m})
    with pytest.raises(ValueError, match="parameters: expected a dict"):
        f.rollouts(X0, steps=4, parameters=[1.0])
    with pytest.raises(ValueError, match="parameters 'm': expected numbers"):
        f.rollouts(X0, steps=4, parameters={"m": "heavy"})


def test_a_map_of_a_users_own():
    x, u, t, dt, p = (ca.SX.sym(n, m) for n, m in (("x", 2), ("u", 1), ("t", 1), ("dt", 1), ("p", 1)))
    step = x + dt * ca.vertcat(x[1], u - p * x[0] ** 3 + t)
    f = vioc.CasadiMap(
        ca.Function("f", [x, u, t, dt, p], [step]), 0.1, parameters={"k": 1.0}, backend="compiled"
    )
    rng = np.random.default_rng(0)
    X0, U, k = rng.standard_normal((10, 2)), rng.standard_normal((10, 25, 1)), rng.uniform(0, 2, 10)
    X0[6], k[6] = 30.0, -8.0  # it grows beyond all numbers
    how = dict(parameters={"k": k}, raise_on_failure=False)
    many = f.rollouts(X0, U, **how)
    assert list(many.errors) == [6]
    with pytest.raises(vioc.StepError) as alone:
        f.with_parameters(k=k[6]).rollout(X0[6], U[6])
    assert str(many.errors[6]) == f"rollout 6: {alone.value}"
    np.testing.assert_array_equal(many.errors[6].trajectory.x, alone.value.trajectory.x)
    good = [i for i in range(10) if i != 6]
    for part in (good[:6], good[6:]):  # slices hold no gap
        some = slice(part[0], part[-1] + 1)
        same(many[some], f, X0[some], U[some], parameters={"k": k[some]})


@pytest.mark.parametrize("seed", range(3))
def test_random_mechanisms_to_the_bit(seed):
    _, system, q, v = mechanism(seed, joints=(2, 4))
    f = vioc.MidpointVI(system, 0.002, backend="compiled")
    X0 = f.rollout(f.initial_state(q, v), steps=8).x  # consistent, and each another
    U = 0.1 * np.random.default_rng(seed).standard_normal((9, 12, f.nu))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        many = f.rollouts(X0, U)
        virtual = vioc.MidpointVI(system, 0.002).rollouts(X0, U)
        same(many, f, X0, U)
    for i in range(9):
        np.testing.assert_array_equal(f.steps_at(many.x[i, :-1], U[i]).x1, many.x[i, 1:])
    np.testing.assert_array_equal(many.x, virtual.x)


@pytest.mark.parametrize("pieces", [False, True])
def test_steps_that_do_not_exist(pieces, monkeypatch):
    if pieces:  # of a few steps each
        monkeypatch.setattr(driver, "LONG", 40)
    f = vioc.MidpointVI(vioc.models.load("n_link_pendulum", 5), 0.05, backend="compiled")
    rng = np.random.default_rng(2)
    X0 = np.stack(
        [f.initial_state(*(s * rng.standard_normal((2, 5)))) for s in (0.1, 2, 2, 0.1, 2, 0.1, 2, 2, 2)]
    )
    X0[5, 0] = 1e9
    how = dict(steps=25, raise_on_failure=False, workers=1)
    many = f.rollouts(X0, **how)
    assert 0 < len(many.errors) < len(X0)
    for i in range(len(X0)):
        if i not in many.errors:
            np.testing.assert_array_equal(many.x[i], f.rollout(X0[i], steps=25, warn=False).x)
            continue
        error = many.errors[i]
        with pytest.raises(vioc.StepError) as alone:
            f.rollout(X0[i], steps=25, warn=False)
        assert str(error) == f"rollout {i}: {alone.value}" and error.length == alone.value.length
        np.testing.assert_array_equal(error.trajectory.x, alone.value.trajectory.x)
        assert np.isnan(many.x[i]).all() and error.k == len(error.trajectory)
    with pytest.raises(vioc.StepError, match=f"rollout {min(many.errors)}: step"):
        f.rollouts(X0, steps=25)


def test_loops_of_constraints():
    f = vioc.MidpointVI(vioc.models.scissor_lift(2), 0.01, backend="compiled")
    x = f.initial_state(vioc.models.scissor_lift_configuration(2, 0.7))
    X0 = f.rollout(x, steps=20).x[::2]
    many = f.rollouts(X0, steps=15)
    same(many, f, X0, steps=15)
    q = many.x[..., : f.nq].reshape(-1, f.nq)
    assert max(np.abs(f.whole.constraints(row)).max() for row in q) < 1e-12


def test_a_step_with_no_form_in_vectors_is_taken_alone():
    x, u = ca.SX.sym("x"), ca.SX.sym("u")
    f = vioc.CasadiMap(ca.Function("f", [x, u], [x + 0.1 * ca.erf(x)]), 0.1, backend="compiled")
    same(f.rollouts([[0.1], [0.2]], steps=3), f, [[0.1], [0.2]], steps=3)
