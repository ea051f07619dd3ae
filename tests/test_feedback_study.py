"""The study of output feedback, in its quick form."""

import pytest

from studies.observer_cartpole import STUDY


@pytest.mark.study
def test_observer_cartpole(tmp_path):
    report = STUDY.execute(quick=True, out=tmp_path)
    assert report.all_hold
    figures = report.measured
    # a filter asks for a small part of the force that differences of encoders ask for
    assert figures["filter_effort"] < 0.1 * figures["raw_effort"]
    assert figures["delay_unknown"] > 10 * figures["delay_known"]
    assert figures["wall_regulator"] > 100 * figures["wall_horizon"]
    assert (tmp_path / "observer_cartpole.png").stat().st_size > 0
