"""
Swing up, then balance
======================

Newton's method on trajectories finds the force that swings a pole up from the straight line between
hanging and upright. A time-varying regulator follows it from a start that is off, and a steady one holds
it afterwards.
"""

import matplotlib.pyplot as plt
import numpy as np

import vioc
from vioc.control import optimize, quadratic, straight_line

f = vioc.MidpointVI(vioc.models.load("cart_pole"), dt=0.02)
hanging, upright = f.initial_state({"theta": np.pi}), f.initial_state()
cost = quadratic(f, R={"force": 0.1}, Qf={"x": 1e3, "theta": 1e3, "v.x": 1e2, "v.theta": 1e2})
best = optimize(f, cost, (straight_line(hanging, upright, 125), np.zeros((125, 1))))
print(best)
best.history.plot()

# %%
# The start is 10 cm and 17 degrees off.

follow = best.stabilize(Q={"x": 100, "theta": 100, "p.x": 1, "p.theta": 1}, R=1.0).hold(upright)
start = f.initial_state({"x": 0.1, "theta": np.pi + 0.3})
run = follow.rollout(start, steps=250)
blind = f.rollout(start, np.vstack([best.trajectory.u, np.zeros((125, 1))]))
axes = vioc.viz.plot_comparison({"inputs alone": blind, "feedback": run}, "theta")
assert abs(run["theta"][-1]) < 1e-3 < abs(blind["theta"][-1])

# %%
# The motion, as snapshots that fade from the past to the present:

axes = plt.figure(figsize=(7, 3.5), layout="constrained").add_subplot()
for k in range(0, 126, 5):
    shade = str(0.85 - 0.85 * k / 126)
    axes.plot([run["x"][k], run["pole:x"][k]], [0, run["pole:z"][k]], color=shade, lw=1)
    axes.plot(run["pole:x"][k], run["pole:z"][k], "o", color=shade, ms=4)
axes.set(xlabel="x (m)", ylabel="z (m)", aspect="equal")
