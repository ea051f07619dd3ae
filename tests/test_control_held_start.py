"""The acrobot from a guess that hangs still, where the linearization tells nothing of how to swing."""

import numpy as np
import pytest

from studies.acrobot_swingup import BEST, DT, DURATION, QF, Q, R, problem
from vioc.control import optimize, quadratic


def test_a_terminal_weight_raised_in_stages_arrives_at_the_best_known_optimum():
    f, cost, start, goal = problem(DT)
    steps = round(DURATION / DT)
    light = quadratic(f, Q=Q, R=R, Qf={name: 1e-3 * weight for name, weight in QF.items()})
    first = optimize(f, light, (np.tile(start, (steps + 1, 1)), None))
    best = optimize(f, cost, first.trajectory)
    assert best.cost == pytest.approx(BEST, abs=1e-3)  # the implicit midpoint rule's, O(dt^2) away
    assert best.iterations < 30
    assert np.abs(best.trajectory.x[-1] - goal).max() < 0.02
