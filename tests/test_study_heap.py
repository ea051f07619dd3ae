"""The study of a heap of boxes, in its quick form."""

import pytest

from studies import heap
from vioc.compile import find_compiler


@pytest.mark.study
@pytest.mark.skipif(find_compiler() is None, reason="all pairs of ten boxes need the compiled core")
def test_quick_form_holds(tmp_path):
    assert heap.STUDY.execute(quick=True, out=tmp_path).all_hold
