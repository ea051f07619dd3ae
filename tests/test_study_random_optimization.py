"""Optimizers on random mechanisms: no "converged" is untrue."""

import pytest

from studies.random_optimization import STUDY


@pytest.mark.study
@pytest.mark.filterwarnings("ignore::vioc.errors.ChartWarning")  # random mechanisms pass by such places
def test_quick_form(tmp_path):
    report = STUDY.execute(quick=True, out=tmp_path)
    assert report.all_hold and report.measured["stages_converged"] > 0
