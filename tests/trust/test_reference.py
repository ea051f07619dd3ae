"""Published numbers as one command: the parts that other tests do not cover."""

import numpy as np
import pytest

from studies import reference_trajectories
from studies.reference_suite import CASES, order, precession, richardson


@pytest.mark.slow
def test_trajectories_of_other_implementations(tmp_path):
    report = reference_trajectories.STUDY.execute(quick=True, out=tmp_path)
    assert report.all_hold, report.table()
    assert list(tmp_path.glob("*.png"))


def test_errors_are_seen():
    t, error = reference_trajectories.three_links(0.2)
    assert len(t) == len(error) == 21 and error.max() < 1e-9
    assert reference_trajectories.errors(np.zeros((2, 3)), np.ones((5, 3))).tolist() == [1, 1]


def test_a_free_axisymmetric_body_precesses():
    case = CASES["free_body"]
    values = np.array([case.solve(case.dt / 2**i, case.end)[0] for i in range(4)])
    assert order(values) == pytest.approx(2, abs=0.1)
    assert np.abs(richardson(values) - precession(case.end)).max() < 1e-9
    assert precession(0.0) == pytest.approx((1, 0, 0, 0))
