"""The acrobot from a guess that hangs still, where the linearization tells nothing of how to swing."""

import numpy as np
import pytest

import vioc
from vioc.control import optimize, quadratic

DURATION, DT = 3.0, 0.01  # s
Q = {"q1": 0.1, "q2": 0.1, "v.q1": 0.01, "v.q2": 0.01}
QF = {"q1": 1e3, "q2": 1e3, "v.q1": 1e2, "v.q2": 1e2}
R = {"torque": 0.01}
BEST = 2.68118


def test_a_terminal_weight_raised_in_stages_arrives_at_the_best_known_optimum():
    f = vioc.MidpointVI(vioc.models.load("acrobot"), DT)
    cost, start, goal = quadratic(f, Q=Q, R=R, Qf=QF), f.initial_state({"q1": np.pi}), f.initial_state()
    steps = round(DURATION / DT)
    light = quadratic(f, Q=Q, R=R, Qf={name: 1e-3 * weight for name, weight in QF.items()})
    first = optimize(f, light, (np.tile(start, (steps + 1, 1)), None))
    best = optimize(f, cost, first.trajectory)
    assert best.cost == pytest.approx(BEST, abs=1e-3)  # the implicit midpoint rule's, O(dt^2) away
    assert best.iterations < 30
    assert np.abs(best.trajectory.x[-1] - goal).max() < 0.02
