"""
Loops in maximal coordinates
============================

A ring of ten rods swings from one joint. In maximal coordinates a loop is one more constraint, and
constraints hold to rounding.
"""

import matplotlib.pyplot as plt
import numpy as np

import vioc
from vioc import Gravity, Mass, System, coincident, ry, tz

N = 10
rod = Mass(0.2, (1e-3, 1e-3, 1e-5), (0, 0, 0.1))
below = (tz(0.2, name="end"),)
for i in reversed(range(N)):
    turn = ry(f"bend-{i}", name=f"rod-{i}", mass=rod)
    below = (turn[tz(0.2)[below]] if i < N - 1 else turn[below],)
ring = System(below, Gravity(0, 0, -9.81), coincident("end", "world", axes="xz", name="closed"), name="ring")

# %%
# A regular ten-gon, turned so that it hangs askew: each rod is 36 degrees from the one before.

q = {f"bend-{i}": 2 * np.pi / N for i in range(N)} | {"bend-0": 2.0}
start = vioc.consistent_configuration(ring, q)
f = vioc.MaximalVI(ring, dt=0.005)
run = f.rollout(f.initial_state(dict(zip(start.names, start.q, strict=True))), steps=300)
print(f)

# %%
figure, panels = plt.subplots(1, 6, sharex=True, sharey=True, figsize=(10, 3), layout="constrained")
for k, axes in zip(range(0, 301, 60), panels, strict=True):
    x = np.append([run[f"rod-{i}:x"][k] for i in range(N)], run["end:x"][k])
    z = np.append([run[f"rod-{i}:z"][k] for i in range(N)], run["end:z"][k])
    axes.plot(x, z, ".-", lw=1)
    axes.plot(0, 0, "k^", ms=8)
    axes.set(title=f"{run.t[k]:.1f} s", xlabel="x (m)", aspect="equal")
panels[0].set_ylabel("z (m)")

# %%
gap = np.hypot(run["end:x"], run["end:z"]).max()
band = np.ptp(run.energy)
print(f"the ring is closed to {gap:.0e} m, the energy band is {band:.1e} of {abs(run.energy[0]):.1f} J")
assert gap < 1e-9
