"""The quick forms of the studies of [C] hold what they claim."""

import pytest

from studies import (
    cable_crane,
    cable_elastic,
    cable_euler,
    cable_inextensible,
    cable_integrators,
    cable_large,
    cable_modes,
    cable_shape,
    cable_statics,
    cable_winches,
)

MODULES = (
    cable_crane,
    cable_elastic,
    cable_euler,
    cable_inextensible,
    cable_integrators,
    cable_large,
    cable_modes,
    cable_shape,
    cable_statics,
    cable_winches,
)


@pytest.mark.study
@pytest.mark.parametrize("module", MODULES, ids=lambda m: m.STUDY.name)
def test_quick_form(module, tmp_path):
    report = module.STUDY.execute(quick=True, out=tmp_path)
    assert report.all_hold, report.table()
    assert report.pictures[0] == f"{module.STUDY.name}.png"
