"""
A cable plucked
===============

A slack cable between two hooks: its rest position is the minimum of the potential energy, its modes and
the longest step follow from there. Then one segment is plucked.
"""

import matplotlib.pyplot as plt
import numpy as np

import vioc

rope = vioc.cables.Section(0.1)  # kg/m, no stiffness
line = vioc.cables.cable("line", 24, 1.3, rope, along="x")
system = vioc.System(line, vioc.tx(1.0, name="hook"), line.attach("hook"), vioc.Gravity(0, 0, -9.81))
hanging = vioc.cables.static_equilibrium(
    system, line.configuration(vioc.cables.catenary((0, 0, 0), (1, 0, 0), 1.3, 24))
)
print(hanging)
print("frequencies (Hz):", vioc.cables.normal_modes(hanging, 4).frequency.round(2))
print(f"longest step {1e3 * vioc.cables.longest_step(hanging):.1f} ms")

# %%
# A push on one segment, made consistent with the held end. The displacement from rest runs along the cable
# as two waves, which the hooks turn back:

f = vioc.MidpointVI(system, dt=0.002)
q = [hanging[name] for name in system.variables]
v = vioc.project_velocity(system, q, {"line-6": 4.0, "line-7": -8.0, "line-8": 4.0})
run = f.rollout(f.initial_state(q, v), steps=300)

axes = plt.figure(figsize=(7, 4), layout="constrained").add_subplot()
along = np.arange(25) * 1.3 / 24
z = np.stack([run[f"line-{i}:z"] for i in range(25)], axis=1)
image = axes.pcolormesh(along, run.t, 1e3 * (z - z[0]), cmap="RdBu", vmin=-3, vmax=3, shading="gouraud")
axes.set(xlabel="place on the cable (m)", ylabel="t (s)")
axes.figure.colorbar(image, label="height over the rest (mm)")

# %%
held = max(abs(run[f"h.{name}"]).max() for name in f.multiplier_names)
print(f"the end is held to {held:.0e} m, the energy band is {np.ptp(run.energy):.1e} J")
assert held < 1e-10
