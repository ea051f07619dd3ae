"""What editors and type checkers know of vioc's objects, attributes that are imported late among them.

`make types` checks it; it is never run.
"""

import numpy as np
from typing_extensions import assert_type

import vioc
from vioc import LinearTimeVI, MaximalVI, MidpointVI, System, Trajectory
from vioc.control import Cost, Regulator, Result

system = vioc.models.load("cart_pole")
assert_type(system, System)
assert_type(vioc.read("robot.urdf"), System)

f = MidpointVI(system, 0.01)
for g in (f, LinearTimeVI(system, 0.01), MaximalVI(system, 0.01)):
    run = g.rollout(np.zeros(4), steps=10)
    assert_type(run, Trajectory)
    assert_type(run.x, np.ndarray)
    assert_type(run["theta"], np.ndarray)
    assert_type(run.energy, np.ndarray)
    A, B = g.linearize(run.x[0])
    assert_type(A, np.ndarray)
    xx, xu, uu = g.second_order(run.x[0], None, np.ones(4))
    assert_type(xu, np.ndarray)

cost = vioc.control.quadratic(f, Q=1.0)
assert_type(cost, Cost)
best = vioc.control.optimize(f, cost, x0=np.zeros(4), steps=10)
assert_type(best, Result)
assert_type(best.trajectory, Trajectory)
assert_type(best.history.cost, np.ndarray)
assert_type(best.stabilize(1.0, 1.0), Regulator)
assert_type(vioc.control.dmoc.solve(f, cost, steps=10), Result)
