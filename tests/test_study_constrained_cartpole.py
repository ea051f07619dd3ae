"""The quick form of the study of a bounded force holds what it claims."""

import pytest

from studies.constrained_cartpole import STUDY


@pytest.mark.study
def test_quick_form(tmp_path):
    report = STUDY.execute(quick=True, out=tmp_path)
    assert report.all_hold and report.pictures[0] == "constrained_cartpole.png"
