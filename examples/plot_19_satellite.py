"""
A satellite with three wheels
=============================

Attitude as a unit quaternion, momentum as physics keeps it: a regulator of the attitude lets the wheels go.
"""

import numpy as np

from vioc import GroupVI, JointForce, Mass, System, rx, ry, rz, spherical
from vioc.control import controllability, dlqr, equilibrium

size = {rx: (0.01, 0.005, 0.005), ry: (0.005, 0.01, 0.005), rz: (0.005, 0.005, 0.01)}
wheels = [turn(f"wheel{i}", mass=Mass(0.5, size[turn])) for i, turn in enumerate(size)]
bus = spherical("body", frame="bus", mass=Mass(20.0, (0.9, 0.7, 0.5)))
f = GroupVI(System(bus[tuple(wheels)], *(JointForce(f"wheel{i}", f"motor{i}") for i in range(3))), dt=0.1)

rest = equilibrium(f, guess=f.initial_state())
print(controllability(f, rest))  # half of it: the total momentum stays, and so do sums of angles
momentum = [f"p.body-w{a}" for a in "xyz"]
law = dlqr(
    f, rest, {f"body-phi{a}": 10 for a in "xyz"}, 1.0, disregard=["wheel0", "wheel1", "wheel2", *momentum]
)
run = law.rollout(f.initial_state({"body-rz": 1.0, "body-ry": -0.5, "body-rx": 0.8}), 200)
run.plot("bus:rx", "bus:ry", "bus:rz")
assert max(abs(run[f"bus:r{a}"][-1]) for a in "xyz") < 1e-6

# %%
# Without motors: turning about the middle axis of inertia it tumbles, again and again.
spin = f.initial_state(v={"body-wx": 0.01, "body-wy": 0.5, "wheel1": -0.5})
tumble = f.rollout(spin, steps=3000)
tumble.plot("v.body-wx", "v.body-wy", "v.body-wz", "energy")
assert np.ptp(tumble.energy) < 1e-3 * tumble.energy[0] and tumble["v.body-wy"].min() < -0.3
