"""The study of robust tracking, in its quick form."""

import pytest

from studies.robust_tracking import STUDY


@pytest.mark.study
def test_robust_tracking(tmp_path):
    report = STUDY.execute(quick=True, out=tmp_path)
    assert report.all_hold
    assert report.measured["furuta"] > report.measured["furuta_plain"]
    assert (tmp_path / "robust_tracking.png").stat().st_size > 0
