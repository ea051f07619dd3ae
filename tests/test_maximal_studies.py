"""The studies of the graph's LDU and of maximal coordinates, in their quick form."""

import pytest

from studies import double_four_bar, graph_ldu, maximal_accuracy, maximal_scaling, one_convention
from vioc.compile import find_compiler

# Times of a shared machine are no ground for a test to fail; the studies hold them to their bounds.
TIMED = {"ladder_dense", "net_dense", "crystal_dense", "revolute_unit", "spherical_unit", "spheres_short"}


@pytest.mark.study
@pytest.mark.parametrize(
    "module", [double_four_bar, graph_ldu, maximal_accuracy, maximal_scaling, one_convention]
)
def test_study(module, tmp_path):
    if find_compiler() is None and module in (graph_ldu, maximal_scaling):
        pytest.skip("it measures compiled code, and there is no C compiler")
    report = module.STUDY.execute(quick=True, out=tmp_path)
    failed = [key for key in module.STUDY.claims if report.verdict(key) in ("fails", "not measured")]
    assert set(failed) <= TIMED
    assert (tmp_path / f"{report.study.name}.png").stat().st_size > 0
