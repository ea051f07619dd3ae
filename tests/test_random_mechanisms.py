"""The family of random mechanisms, and what holds for every one of them."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest

import vioc
from vioc.models import mechanism, mechanisms


def test_the_family_is_consistent_and_the_same_in_any_order():
    found = list(mechanisms(6))
    assert {m.name.split()[0] for m in found} == {"tree", "loop"}
    for m in found:
        vioc.MidpointVI(m.system, 0.01).initial_state(m.q, m.v)  # refuses what is not consistent
    again = mechanism(5)
    assert again.system == found[5].system
    assert (again.q == found[5].q).all() and (again.v == found[5].v).all()
    (alone,) = mechanisms(1, 5)
    assert alone.name == again.name
    assert not np.array_equal(mechanism(5, seed=1).q[:2], again.q[:2])


@pytest.mark.filterwarnings("ignore::vioc.errors.ChartWarning")
def test_a_solver_that_stops_somewhere_is_no_singular_constraint():
    m = mechanism(1)
    f = vioc.LinearTimeVI(m.system, 0.05)
    x = f.initial_state(m.q, m.v)
    with pytest.raises(vioc.StepError, match="does not exist") as caught:
        f.rollout(x, steps=20, warn=False)
    assert caught.value.cause == "fold" and 0 < caught.value.length < 0.05
    with pytest.warns(vioc.errors.StepWarning):
        run = f.rollout(x, steps=20, adaptive=True)
    assert len(run) > 20 and np.abs(f.lagrangian.constraints(run.x[-1, : f.nq])).max() < 1e-9


def test_equilibria_are_looked_for_from_other_starts():
    m = mechanism(2)
    f = vioc.MidpointVI(m.system, 0.01)
    found = vioc.control.equilibrium(f, guess=f.initial_state(m.q), fixed=[f"u.{n}" for n in f.input_names])
    assert found.start > 0 and found.moved < 1e-9 and not found.u.any()
    again = vioc.control.equilibrium(f, guess=found.x, fixed=[f"u.{n}" for n in f.input_names])
    assert again.start == 0


@pytest.mark.filterwarnings("ignore::vioc.errors.ChartWarning")
@pytest.mark.parametrize("index", [pytest.param(42, marks=pytest.mark.slow), 57])
def test_a_branch_that_turns_back_in_a_chart_is_a_fold_and_its_length_is_known(index):
    """A free body's chart alone is no reason to leave open whether the step exists."""
    m = mechanism(index)
    f = vioc.MidpointVI(m.system, 0.05)
    with pytest.raises(vioc.StepError, match="does not exist") as caught:
        f.rollout(f.initial_state(m.q, m.v), steps=20, warn=False)
    error = caught.value
    assert error.cause == "fold" and 0 < error.length < 0.05
    x = error.trajectory.x[-1]
    f.with_dt(0.999 * error.length).step(x)
    with pytest.raises(vioc.StepError):
        f.with_dt(1.001 * error.length).step(x)


@pytest.mark.filterwarnings("ignore::vioc.errors.ChartWarning", "ignore::vioc.errors.StepWarning")
def test_where_no_share_of_a_step_can_be_followed_other_lengths_are_not_denied():
    """Beside a pole of its chart not the shortest share is solved, and a cut step ends in words of ours."""
    m = mechanism(38)
    f = vioc.LinearTimeVI(m.system, 0.01)
    x = f.initial_state(m.q, m.v)
    with pytest.raises(
        vioc.StepError, match="step 83 .* was not solved: .* steps of another length"
    ) as caught:
        f.rollout(x, steps=100, warn=False)
    assert caught.value.cause == "no convergence" and caught.value.length is None
    with contextlib.suppress(vioc.StepError):  # it may come through, or diverge there
        f.rollout(x, steps=100, adaptive=True)
