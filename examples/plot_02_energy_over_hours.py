"""
Energy over an hour
===================

A double pendulum for an hour of its time: the variational integrator's energy error stays where it was
after the first minute, an explicit Runge-Kutta rule's grows, although its order is twice as high.
"""

import matplotlib.pyplot as plt
import numpy as np

import vioc

system = vioc.models.load("double_pendulum")
swing = {system.variables[0]: 1.0}
maps = {
    "midpoint variational, 40 ms": vioc.MidpointVI(system, 0.04),
    "its composition of order 4, 80 ms": vioc.Composition(vioc.MidpointVI(system, 0.08), 4),
    "Runge-Kutta of order 4, 40 ms": vioc.RungeKutta(system, 0.04, method="rk4"),
}
axes = plt.figure(figsize=(7, 4), layout="constrained").add_subplot()
worst = {}
for name, f in maps.items():
    run = f.rollout(f.initial_state(swing), steps=round(3600 / f.dt))
    error = abs(run.energy / run.energy[0] - 1)
    minutes = error[: len(error) // 60 * 60].reshape(60, -1).max(axis=1)
    axes.semilogy(np.arange(1, 61), minutes, label=name)
    worst[name] = minutes
axes.set(xlabel="t (min)", ylabel="largest relative energy error of the minute")
axes.grid(alpha=0.3)
axes.legend()

# %%
# The last minute against the first:

for name, minutes in worst.items():
    print(f"{name:<35} {minutes[0]:.1e} -> {minutes[-1]:.1e}")
bounded, composed, explicit = worst.values()
assert bounded[-1] < 2 * bounded[0] and composed[-1] < 2 * composed[0] and explicit[-1] > 10 * explicit[0]
