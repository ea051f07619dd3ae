"""Steps of states that move fast: their roots, by a route of its own."""

import numpy as np
import pytest

from studies.branch import Branch
from studies.fast_steps import STUDY, cases


def test_a_wrist_that_whips_by_half_a_turn_within_a_step():
    """Half of its step has another root near the guess, where the determinant has another sign."""
    f = cases()["arm"].f
    q = [0.446, 2.749, 2.981, 0.044, 0.318, 1.595, -2.858]
    v = [5.72, -13.49, -72.71, -22.53, 84.94, 13.26, 0.43]
    x = f.initial_state(q, v)
    expected = Branch(f).follow(x, np.zeros(0), f.dt).end
    assert abs(expected[4] - q[4]) > 2.5
    assert f.step(x)[: f.nd] == pytest.approx(expected, abs=1e-9)


@pytest.mark.study
def test_quick_form_holds(tmp_path):
    assert STUDY.execute(quick=True, out=tmp_path).all_hold
