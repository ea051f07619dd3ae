"""The studies of [L] in their quick form."""

import importlib

import pytest

from vioc.compile import find_compiler

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
TIMED = ("unit_10", "faster", "residual_10")  # figures of a busy machine say nothing


@pytest.mark.study
@pytest.mark.parametrize(
    "name", ["linear_time_energy", "linear_time_scaling", "riqn_convergence", "humanoid"]
)
def test_quick_form(name, tmp_path, capsys):
    if name == "humanoid":
        pytest.importorskip("urdf_parser_py")
    study = importlib.import_module(f"studies.{name}").STUDY
    report = study.execute(quick=True, out=tmp_path)
    bad = [k for k in study.claims if report.verdict(k) in ("fails", "not measured") and k not in TIMED]
    assert not bad, report.table()
    assert report.pictures[0] == f"{name}.png"
