"""
A closed loop on noisy encoders
===============================

A regulator, a Kalman filter and a limited motor hold a pole upright; the predicted spread is drawn beside
the run.
"""

import numpy as np

import vioc
from vioc.control import dlqr, feedback

f = vioc.MidpointVI(vioc.models.load("cart_pole"), dt=0.02)
upright = feedback.equilibrium(f, theta=0.0)
law = dlqr(f, upright, Q={"x": 10, "theta": 10, "p.x": 1, "p.theta": 1}, R=0.1)
encoders = feedback.Measurement(f, {"x": 1e-3**2, "theta": 2e-3**2})
seen = feedback.kalman(f, upright, encoders, W=1e-8, W_u={"force": 0.2**2})
print(law)
print(seen)

# %%
# The filter starts at the wrong place; the force is clipped at 8 N.

loop = feedback.ClosedLoop(f, law, seen, W=1e-9, W_u={"force": 0.2**2}, bounds={"force": 8.0})
start = upright.x + f.state(x=0.2, theta=0.15)
run = loop.simulate(start, 400, estimate=upright.x, noise=1)
axes = run.plot("x", "theta", "u.force")

# %%
# The spread that noise leaves, computed without a run, against the one of the run's second half:

still = f.rollout(upright.x, upright.u, steps=400)
spread = feedback.covariance(still, 0.0, 1e-9, W_u={"force": 0.2**2}, law=law, observer=seen)
for name in ("x", "theta"):
    print(f"{name:<6} predicted {spread.std(name)[-1]:.2e}, in the run {np.std(run[name][200:]):.2e}")
assert abs(run["theta"][200:]).max() < 6 * spread.std("theta")[-1]
