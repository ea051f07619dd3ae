"""Studies of steps with contact in their quick form; derivatives against their complex steps in 80 bits."""

import dataclasses
from functools import cache

import numpy as np
import pytest

from studies import contact_gradients, impact_restitution
from studies.contact_gradients import DT, balls, box, compared, leg, tumbling
from vioc import ContactVI, MaximalVI


@cache
def tumbled_box():
    """A box's map, and steps of it on its corners."""
    f = MaximalVI(box(), DT)
    return f, tumbling(f, np.random.default_rng(7), 15)


@pytest.mark.study
@pytest.mark.parametrize("study", [contact_gradients, impact_restitution])
def test_quick_form_holds(study, tmp_path):
    assert study.STUDY.execute(quick=True, out=tmp_path).all_hold


@pytest.mark.parametrize(
    "make, Map", [(leg, MaximalVI), (leg, ContactVI), (balls, MaximalVI), (box, ContactVI)]
)
def test_derivatives_are_those_of_complex_steps(make, Map):
    f = Map(make(), DT)
    errors = compared(f, tumbling(f, np.random.default_rng(2), 6), np.random.default_rng(3))
    assert errors.states.max() < 1e-9  # rounding of gaps 1e-9 m wide
    if make is not box:  # whose corners share impulses
        assert errors.impulses.max() < 1e-9


def test_what_places_lose_by_rounding_is_kept():
    """A box on its corners, gaps of 1e-9 m: 5e-13 in the median without."""
    f, steps = tumbled_box()
    errors = compared(f, steps, np.random.default_rng(3))
    assert np.median(errors.states) < 1e-13


def test_steps_along_a_motion_are_not_solved_again(monkeypatch):
    f, steps = tumbled_box()
    steps = dataclasses.replace(steps, multipliers=steps.multipliers.copy())  # which are changed below
    lin = f.derivatives.first(steps)

    def never(*args):
        raise AssertionError("solved again")

    monkeypatch.setattr(type(f.interior), "solve", never)
    assert np.array_equal(f.derivatives.first(steps).A, lin.A)
    # what a state does not tell is: impulses that are not the step's
    steps.multipliers[:] *= 1.01
    with pytest.raises(AssertionError, match="solved again"):
        f.derivatives.first(steps)
