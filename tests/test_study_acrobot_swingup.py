"""The quick form of the acrobot study holds what it claims."""

import pytest

from studies.acrobot_swingup import BEST, STUDY


@pytest.mark.study
def test_quick_form(tmp_path):
    report = STUDY.execute(quick=True, out=tmp_path)
    assert report.all_hold and report.pictures == ["acrobot_swingup.png"]
    assert abs(report.measured["cost"] - BEST) < 1e-3
