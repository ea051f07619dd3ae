"""The quick forms of the studies of [C] hold what they claim."""

import pytest

from studies import (
    cable_crane,
    cable_elastic,
    cable_euler,
    cable_inextensible,
    cable_large,
    cable_modes,
    cable_statics,
)

MODULES = (
    cable_crane,
    cable_elastic,
    cable_euler,
    cable_inextensible,
    pytest.param(cable_large, marks=pytest.mark.slow),
    pytest.param(cable_modes, marks=pytest.mark.slow),
    cable_statics,
)


@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.STUDY.name)
def test_quick_form(module, tmp_path):
    report = module.STUDY.execute(quick=True, out=tmp_path)
    assert report.all_hold, report.table()
    assert report.pictures == [f"{module.STUDY.name}.png"]
