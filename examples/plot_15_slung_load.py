"""
A quadrotor with a slung load
=============================

From rest to rest, three metres on, without swinging at the end; it flies over a ball, load and all.
"""

import vioc
from vioc import Gravity, Mass, System, WrenchInput, revolute, tx, tz
from vioc.control import ClosedLoop, dmoc, equilibrium, optimize, quadratic

body = revolute("tilt", "y", frame="body", mass=Mass(1.0, (0.02,) * 3))
rod = revolute("swing", "y")[tz(-0.6, name="load", mass=0.3)]
thrusts = [WrenchInput("body", n, (0, 0, 1.0), (0, m, 0)) for n, m in (("left", 0.2), ("right", -0.2))]
quadrotor = System(tx("x")[tz("z")[body, rod]], Gravity(0, 0, -9.81), *thrusts, name="quadrotor")
f = vioc.MidpointVI(quadrotor, dt=0.05)
goal = equilibrium(f, x=3.0, z=0.0, tilt=0.0, swing=0.0)

# %%
still = {"x": 3.0, "z": 0.0} | {n: 0.0 for n in ("tilt", "swing", "v.x", "v.z", "v.tilt", "v.swing")}
cost = quadratic(f, Q={"tilt": 1.0, "swing": 1.0}, R=0.1, u_reference=goal.u)
ball = [dmoc.obstacle(f, frame, (1.5, -0.7), 0.4, axes="xz") for frame in ("body", "load")]
bounds = {"left": (0.0, 12.0), "right": (0.0, 12.0)}
plan = optimize(f, cost, x0=f.initial_state(), steps=60, final=still, bounds=bounds, constraints=ball)
print(plan)

# %%
# The regulator about the plan brings a quadrotor back that begins elsewhere; the thrusts stay within.

law = plan.stabilize(Q={"x": 10, "z": 10, "tilt": 1, "swing": 1}, R=0.1)
flown = ClosedLoop(f, law, bounds=bounds).simulate(f.initial_state({"x": -0.2, "z": -0.1}), 60)
vioc.viz.plot_comparison({"plan": plan, "flown": flown}, "x", "swing", "u.left", bounds=bounds, targets=still)
assert abs(flown["load:x"][-1] - 3.0) < 0.05 and (plan["u.left"] < 12 + 1e-6).all()

# %%
vioc.viz.animate({"reference": plan, "flown": flown}, fps=10, marks={"goal": (3.0, 0.0, -0.6)})
