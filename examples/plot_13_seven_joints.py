"""
Seven joints, a point, limits
=============================

An arm of seven joints brings its tool to a point by `optimize`, with limits of torques and of an angle.
"""

import casadi as ca
import matplotlib.pyplot as plt
import numpy as np

import vioc
from vioc import Gravity, JointForce, Mass, System, ry, rz, tz
from vioc.control import Cost, optimize

masses = (4.0, 4.0, 3.0, 2.7, 1.7, 1.8, 0.3)  # kg
offsets = (0.16, 0.2, 0.2, 0.2, 0.2, 0.2, 0.08)  # m, along the arm
below = (tz(0.1, name="tool"),)
for i in reversed(range(7)):
    turn = rz if i % 2 == 0 else ry
    link = turn(f"q{i + 1}", mass=Mass(masses[i], (0.02,) * 3, (0, 0, 0.08)))
    below = (tz(offsets[i])[link[below]],)
motors = [JointForce(f"q{i + 1}", f"u{i + 1}") for i in range(7)]
arm = System(below, Gravity(0, 0, -9.81), motors, name="arm")

# %%
# The tool is to be at a point, at rest, after one second; which angles that takes is left to the optimizer.
# The guess is the start held.

f = vioc.MidpointVI(arm, dt=0.025)
goal = {"tool:x": 0.45, "tool:y": -0.35, "tool:z": 0.5}
final = goal | {f"v.{name}": 0.0 for name in arm.variables}
speeds = ca.vertcat(*(f.quantity(f"v.{name}") for name in arm.variables))
cost = Cost(f, 0.5e-3 * ca.sumsqr(f.symbols.u) + 0.5e-2 * ca.sumsqr(speeds))
start = f.initial_state({"q2": 0.3, "q4": 1.4, "q6": 0.6})
free = optimize(f, cost, x0=start, steps=40, final=final)
print(free)

# %%
# With less torque in shoulder and elbow than that takes; with an elbow that may not fold as far. A solution
# is a guess.

weak = optimize(f, cost, free, final=final, bounds={"u.u2": 21.0, "u.u4": 13.0})
stiff = optimize(f, cost, free, final=final, bounds={"q4": (0.4, 2.9)})
for name, run in (("free", free), ("weak", weak), ("stiff", stiff)):
    most = [abs(run[f"u.u{joint}"]).max() for joint in (2, 4)]
    print(
        f"{name:<5} cost {run.cost:.4f}, {most[0]:.1f} and {most[1]:.1f} N m, elbow {run['q4'].max():.2f} rad"
    )
assert abs(weak["u.u2"]).max() < 21 + 1e-6 and stiff["q4"].max() < 2.9 + 1e-6

# %%
fig, axes = plt.subplots(1, 3, figsize=(10, 3.2), layout="constrained")
for run, style, label in ((free, ":", "free"), (weak, "-", "weak"), (stiff, "--", "stiff")):
    away = np.linalg.norm([run[name] - value for name, value in goal.items()], axis=0)
    axes[0].step(run.t[:-1], run["u.u2"], f"C0{style}", where="post", label=label)
    axes[0].step(run.t[:-1], run["u.u4"], f"C1{style}", where="post")
    axes[1].plot(run.t, run["q4"], f"C1{style}")
    axes[2].plot(run.t, away, f"k{style}")
for ax, label in zip(
    axes, ("torque of shoulder, elbow (N m)", "elbow (rad)", "tool to its point (m)"), strict=True
):
    ax.set(xlabel="t (s)", ylabel=label)
axes[0].legend()

# %%
# What a limit costs, step by step: minus the derivative of the optimal cost by it, zero where it is not met.

for name, felt in weak.multipliers.items():
    if name.startswith("u."):
        print(f"{name}: its limit is felt at {np.mean(abs(felt) > 1e-6):.0%} of the steps")
assert weak.cost > free.cost and stiff.cost > free.cost
