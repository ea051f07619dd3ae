"""
A five-bar around a post
========================

Two legs meet in a pin, a closed loop; its point goes from left to right with bounded torques, around a post.
"""

import vioc
from vioc import JointForce, Mass, coincident, revolute, se3, tz
from vioc.control import dmoc, optimize, quadratic


def leg(side, x):
    lower = revolute(f"{side}2", "y", mass=Mass(0.4, (2e-3,) * 3, (0, 0, 0.25)))
    upper = revolute(f"{side}1", "y", mass=Mass(0.6, (4e-3,) * 3, (0, 0, 0.15)))
    return se3((x, 0, 0))[upper[tz(0.3)[lower[tz(0.5, name=f"tip-{side}")]]]]


pin = coincident("tip-l", "tip-r", axes="xz", name="pin")
motors = JointForce("l1", "left"), JointForce("r1", "right")
system = vioc.System(leg("l", -0.1), leg("r", 0.1), vioc.Gravity(0, 0, -9.81), *pin, *motors, name="five_bar")
f = vioc.MidpointVI(system, dt=0.02)
left = vioc.consistent_configuration(system, {"l1": -1.0, "l2": 0.9, "r1": 0.1, "r2": -0.6}).q
right = vioc.consistent_configuration(system, {"l1": -0.1, "l2": 0.6, "r1": 1.0, "r2": -0.9}).q

# %%
goal = dict(zip(system.variables, right, strict=True))
cost = quadratic(f, Q=dict.fromkeys(goal, 0.1), R=0.01, Qf=dict.fromkeys(goal, 10.0), goal=goal)
post = dmoc.obstacle(f, "tip-l", (0.0, 0.72), 0.12, axes="xz", name="post")
bounds = {"left": 8.0, "right": 8.0}
best = optimize(f, cost, x0=f.initial_state(left), steps=50, bounds=bounds, constraints=[post])
print(best)
best.plot("l1", "r1", "u.left", "u.right", bounds=bounds, targets={"l1": goal["l1"], "r1": goal["r1"]})
assert best.feasible and abs(best["tip-l:x"] - best["tip-r:x"]).max() < 1e-9

# %%
best.animate(fps=10)  # with the post
