"""
A parameter study
=================

A regulator designed for one pole runs on others, of other mass and length; each point of the grid is a task.
"""

import functools

import numpy as np

import vioc
from vioc import Gravity, JointForce, P, System, ry, tx, tz
from vioc.control import dlqr
from vioc.sweeps import grid, sweep

system = System(
    tx("x", mass=1.0)[ry("theta")[tz(P("length", 0.5), name="pole", mass=P("mass", 0.3))]],
    Gravity(0, 0, -9.81),
    JointForce("x", "force"),
)
f = vioc.MidpointVI(system, dt=0.02)
law = dlqr(f, (f.initial_state(), None), Q={"x": 10, "theta": 10, "p.x": 1, "p.theta": 1}, R=0.1)


def largest_pole(f, K, mass, length):
    A, B = f.with_parameters(mass=mass, length=length).linearize(f.initial_state())
    return {"pole": float(abs(np.linalg.eigvals(A - B @ K)).max())}


points = grid(mass=[0.05 * i for i in range(1, 21)], length=[0.25 + 0.05 * i for i in range(16)])
found = sweep(functools.partial(largest_pole, f, law.K), points, workers=0)
found.table()  # also .write("poles.csv"), .to_pandas()

# %%
# ``workers=0`` runs here; without it there is a process per core. Below 1 the loop is stable.

found.plot("mass", "length", value="pole")
stable = np.mean([value["pole"] < 1 for value in found.values])
assert 0.1 < stable < 1.0
