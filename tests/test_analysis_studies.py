"""The studies of controllability and of regions of attraction, in their quick form."""

import pytest

from studies import marionette_controllability, region_of_attraction


@pytest.mark.study
@pytest.mark.parametrize("study", [marionette_controllability, region_of_attraction])
def test_claims_hold(study, tmp_path, capsys):
    report = study.STUDY.execute(quick=True, out=tmp_path)
    assert report.all_hold, capsys.readouterr().out
    assert (tmp_path / f"{report.study.name}.png").stat().st_size > 0
