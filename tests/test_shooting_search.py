"""Trials of the interior point on stages that are refused, or have no steps, and what is done about it."""

import numpy as np
import pytest

from benchmarks import robots
from benchmarks.ocp import START_SPREAD
from studies.random_tasks import random_task
from studies.tasks import judged, optimum


def test_corrections_go_on_while_they_help():
    """A start of the arm whose steps run along a curved residual: 58 iterations with one correction."""
    task = robots.arm(robots.Make())
    offset = START_SPREAD * np.random.default_rng(0).standard_normal((20, 7))[12]
    found = judged(task._replace(x0=task.x0 + np.append(offset, np.zeros(7))), optimum)
    assert found.converged and found.kkt.residual < 1e-8
    assert found.iterations <= 40


@pytest.mark.slow
def test_steps_near_a_dead_point_are_not_all_an_eighth():
    """A loop whose first trials have no steps without all means; no search ended in 300 iterations."""
    found = judged(random_task(213).task, optimum)
    assert found.converged and found.kkt.residual < 1e-8
    assert found.iterations <= 100
