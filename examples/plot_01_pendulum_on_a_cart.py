"""
A pendulum on a cart
====================

Describe a mechanism as a tree of frames, make a one-step map of it, and look at a motion by name.
"""

import matplotlib.pyplot as plt
import numpy as np

import vioc
from vioc import Gravity, JointForce, System, ry, tx, tz

system = System(
    tx("x", name="cart", mass=1.0)[ry("theta")[tz(0.5, name="pole", mass=0.3)]],
    Gravity(0, 0, -9.81),
    JointForce("x", "force"),
    name="cart_pole",
)
print(system)

# %%
# The map's state is configuration and momentum; a start is made by name. Zero is upright.

f = vioc.MidpointVI(system, dt=0.01)
fall = f.rollout(f.initial_state({"theta": 0.3}), steps=500)
fall.plot("x", "theta")

# %%
# Nothing pushes, so energy stays in its band and the momentum along the rail does not change at all.

print(f"energy band {np.ptp(fall.energy):.1e} J, momentum {np.ptp(fall['p.x']):.1e} kg m/s")
assert np.ptp(fall.energy) < 1e-3 and np.ptp(fall["p.x"]) < 1e-12

# %%
# The pole's path in space: ``FRAME:x`` is the world position of a named frame.

axes = plt.figure(figsize=(5, 4), layout="constrained").add_subplot()
axes.plot(fall["pole:x"], fall["pole:z"], lw=0.8)
axes.set(xlabel="x (m)", ylabel="z (m)", aspect="equal", title="where the pole's mass goes in 5 s")
