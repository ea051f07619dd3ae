"""A step of the linear-time integrator is a function of its state: the same bits wherever it is taken."""

import numpy as np
import pytest
from support.chain import chain, start
from support.linear_time_models import start_near
from support.mechanisms import everything, hold

from vioc import LinearTimeVI, StepError, System
from vioc.compile import find_compiler

# inside: pieces of a compiled rollout are made short, and a step's equations solved apart
from vioc.dynamics.integrators.linear_time import core
from vioc.dynamics.integrators.step_equations import StepEquations

BACKENDS = [
    "virtual",
    pytest.param("compiled", marks=pytest.mark.skipif(find_compiler() is None, reason="no cc")),
]


def open_tree() -> System:
    """Kinematic variables, springs, damping, inputs and parameters, without loops."""
    whole = everything()
    return System(*whole.frames, *whole.potentials, *whole.forces, name="open")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("solver", ["chord", "riqn", "newton"])
def test_a_step_is_the_same_bits_alone_and_in_every_rollout(backend, solver, monkeypatch):
    """Under feedback, in a batch, among independent steps, and in a rollout of many calls."""
    f = LinearTimeVI(open_tree(), 0.01, solver=solver, backend=backend, wrap="a")
    rng, n = np.random.default_rng(0), 24
    x = 0.5 * rng.normal(size=f.nx)
    U = np.tile(hold(f, x), (n, 1)) + 0.1 * rng.normal(size=(n, f.nu))
    K = 0.1 * rng.normal(size=(n, f.nu, f.nx))
    K[:, -1] = 0.0  # the trolley's place is prescribed
    closed = f.track(x, x + 0.1 * rng.normal(size=(n + 1, f.nx)), U, K)
    opened = f.rollout(x, U)
    for run in (closed, opened):
        alone = [f.step(run.x[k], run.u[k], k) for k in range(n)]
        np.testing.assert_array_equal(run.x[1:], alone)
        np.testing.assert_array_equal(f.steps_at(run.x[:-1], run.u).x1, alone)
        np.testing.assert_array_equal(f.rollout(run.x[7], run.u[7:], k0=7).x, run.x[7:])
    starts = x + 1e-3 * rng.normal(size=(11, f.nx))
    starts[4] = x
    batch = f.rollouts(starts, U)
    np.testing.assert_array_equal(batch.x[4], opened.x)
    np.testing.assert_array_equal(batch.x[7], f.rollout(starts[7], U).x)
    monkeypatch.setattr(core, "PIECE", 5)
    np.testing.assert_array_equal(f.rollout(x, U).x, opened.x)


@pytest.mark.parametrize("backend", BACKENDS)
def test_forward_and_back_under_other_lengths_leaves_no_trace(backend):
    """A map that has taken other steps before takes this one as a new map does."""
    f = LinearTimeVI(chain(6, 9.81), 0.01, backend=backend)
    x = f.initial_state(*start(6))
    fresh = f.step(x)
    f.rollout(start_near(f, 1), steps=30, dt=0.003)
    f.step(start_near(f, 2), dt=0.02)
    np.testing.assert_array_equal(f.step(x), fresh)


def followed(f, x, shares=100):
    """q_k+1 by Newton's method along the step's length in many small parts, dense."""
    equations = StepEquations(f, f.rule, x, np.zeros(0), 0.0, f.dt)
    w = equations.start
    for share in np.linspace(0, 1, shares + 1)[1:]:
        for _ in range(4):
            now = equations(w, share)
            w = w - np.linalg.solve(now.matrix, now.residual)
        assert np.abs(now.residual).max() < 1e-6
    return equations.end(w, 1.0)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("solver", ["chord", "riqn"])
def test_long_steps_of_a_whipping_chain_are_on_their_branch_or_do_not_exist(backend, solver):
    """Newton's method jumps to other roots there: against continuation in the step's length."""
    f = LinearTimeVI(chain(5, 9.81), 0.1, solver=solver, backend=backend)
    rng, taken, refused = np.random.default_rng(5), 0, 0
    for _ in range(24):
        q, v = rng.uniform(-2, 2, size=5), rng.uniform(-8, 8, size=5)
        x = f.initial_state(q, v)
        try:
            end = f.step(x)
        except StepError as error:
            refused += 1
            assert error.length is not None
            assert 0 < error.length < f.dt
            shorter = f.with_dt(0.98 * error.length)
            assert np.isfinite(shorter.step(x)).all()
        else:
            taken += 1
            assert np.abs(end[:5] - followed(f, x)).max() < 1e-8
    assert taken >= 5
    assert refused >= 5
