"""The study of the exoskeleton's gains in its quick form, and its mechanism by hand."""

import numpy as np
import pytest

from studies import exoskeleton_gains as study
from vioc import MidpointVI


@pytest.mark.study
def test_quick_form_holds(tmp_path):
    report = study.STUDY.execute(quick=True, out=tmp_path)
    assert report.all_hold
    assert report.measured["freedoms"] == 4
    assert report.measured["error_tuned"] > report.measured["error_original"]  # the limit has its price


def test_flexion_is_the_angle_between_the_limbs():
    system, q = study.donned()
    f = MidpointVI(system, 0.01)
    run = study.Task(f, q).run("spastic", 50.0, 5.0)
    names = "shoulder", "elbow-upper", "elbow-lower", "lower"
    at = {n: np.column_stack([run[f"{n}:{axis}"] for axis in "xyz"]) for n in names}
    upper, lower = at["elbow-upper"] - at["shoulder"], at["lower"] - at["elbow-lower"]
    cosine = np.sum(upper * lower, axis=1) / np.linalg.norm(upper, axis=1) / np.linalg.norm(lower, axis=1)
    np.testing.assert_allclose(np.cos(study.flexion(run)), cosine, atol=1e-9)
