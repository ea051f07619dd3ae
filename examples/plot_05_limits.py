"""
Limits, and least time
======================

The same swing-up with 10 N at most and a short rail, by DMOC: with least effort, and as fast as can be.
"""

import casadi as ca
import numpy as np

import vioc
from vioc.control import Cost, dmoc

f = vioc.MidpointVI(vioc.models.load("cart_pole"), dt=0.04)
effort = Cost(f, 0.5 * ca.sumsqr(f.symbols.u))
task = {
    "initial": f.initial_state({"theta": np.pi}),
    "final": f.initial_state(),
    "bounds": {"u.force": 10.0, "x": 0.4},
}
gentle = dmoc.solve(f, effort, steps=60, **task)
fast = dmoc.solve(f, dmoc.minimum_time(f), gentle, steps=60, duration=(0.5, 4.0), **task)
for name, found in (("least effort", gentle), ("least time", fast)):
    force, place = abs(found["u.force"]).max(), abs(found["x"]).max()
    print(f"{name:<13} {found.duration:.3f} s, at most {force:.2f} N, {place:.2f} m")
assert fast.duration < gentle.duration and abs(fast["u.force"]).max() < 10 + 1e-6

# %%
# Least time switches between the limits.

axes = gentle.plot("theta", "x", "u.force")
axes[0].figure.axes[0].set_title("least effort")

# %%
axes = fast.plot("theta", "x", "u.force")
axes[0].figure.axes[0].set_title("least time")

# %%
# The multiplier of the limit is what a newton more would save; where it is zero, nothing:

price = fast.multipliers["u.force"]
print(f"the limit is felt at {np.mean(abs(price) > 1e-6):.0%} of the steps")
