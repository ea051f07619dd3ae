"""The marionette's trajectory optimization: few iterations, a true verdict, quadratic convergence."""

import pytest

from studies.marionette_optimization import STUDY


@pytest.mark.study
def test_the_study_holds_what_it_claims(tmp_path):
    report = STUDY.execute(quick=True, out=tmp_path)
    assert report.all_hold and report.pictures == ["marionette_optimization.png"]
