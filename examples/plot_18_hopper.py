"""
A hopper in three phases
========================

Push off, fly, land: each phase holds other contacts, and the solution is one trajectory.
"""

import numpy as np

from vioc import Contact, Gravity, JointForce, Mass, ModeVI, System, ry, tx, tz
from vioc.control import Cost, dmoc

foot = tz("r", name="foot", mass=Mass(0.1, (1e-3, 1e-3, 1e-3)))
body = tx("x")[tz("z")[ry("tilt", name="body", mass=Mass(1.0, (0.1, 0.1, 0.1)))[foot]]]
toe = Contact.point("foot", friction=0.8, name="toe")
hopper = System(body, Gravity(0, 0, -9.81), JointForce("r", "push"), JointForce("tilt", "hip"), toe)
stance = ModeVI(hopper, 0.01, held="toe")
flight, start = stance.holding(), stance.initial_state({"z": 0.45, "r": -0.45})
bounds = {"u.push": 40.0, "u.hip": 5.0, "r": (-0.6, -0.25)}


def phase(f, **options):
    effort = Cost(f, 0.01 * f.symbols.u[0] ** 2 + f.symbols.u[1] ** 2)
    return dmoc.Phase(f, 16, effort, bounds=bounds, duration=(0.1, 0.6), **options)


rest = {"x": 0.5, "tilt": 0.0, "z": 0.45, "v.x": 0.0, "v.z": 0.0}
way, weight = start + np.linspace(0, 0.5, 17)[:, None] * (np.arange(8) == 0), np.tile([-10.8, 0.0], (16, 1))
problem = dmoc.Problem([phase(stance, initial=start), phase(flight), phase(stance, final=rest)])
best = problem.solve([(way[[0] * 17], weight), (way, 0 * weight), (way[[-1] * 17], weight)])
print(best)
best.plot("z", "gap.toe", "force.toe", "u.push", bounds=bounds, targets={"z": 0.45})
assert best["gap.toe"].max() > 0.1 and abs(best["x"][-1] - 0.5) < 1e-6

# %%
best.animate(fps=20, marks={"rest": (0.5, 0, 0.45)})
