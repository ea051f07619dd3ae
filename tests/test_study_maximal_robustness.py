"""The study of tolerances and small steps in maximal coordinates, in its quick form."""

import pytest

from studies import maximal_robustness
from vioc.compile import find_compiler


@pytest.mark.study
@pytest.mark.skipif(find_compiler() is None, reason="it counts the compiled core's iterations")
def test_quick_form_holds(tmp_path):
    assert maximal_robustness.STUDY.execute(quick=True, out=tmp_path).all_hold
