"""
Contact with friction
=====================

A box lands on an edge, tips over and slides to rest. In maximal coordinates contacts are complementarity
conditions of the step itself: nothing penetrates, and friction stays in its cone.
"""

import matplotlib.pyplot as plt

from vioc import Contact, Gravity, Mass, MaximalVI, System, free

box = System(
    free("b", frame="box", mass=Mass(1.0, (1 / 24,) * 3)),
    Gravity(0, 0, -9.81),
    Contact.box("box", (0.5, 0.5, 0.5), friction=0.5, name="corner"),
    name="box",
)
f = MaximalVI(box, dt=0.01)
run = f.rollout(f.initial_state({"b-z": 0.6, "b-ry": 0.3}, {"b-x": 4.0}), steps=150)

# %%
# The lowest corner and the sum of the normal forces: after the impacts they carry the weight.

corners = [f"corner-{i}" for i in range(1, 9)]
gap = min(run[f"gap.{c}"].min() for c in corners)
force = sum(run[f"force.{c}"] for c in corners)
figure, (height, push) = plt.subplots(2, 1, sharex=True, figsize=(7, 5), layout="constrained")
for c in corners:
    height.plot(run.t, run[f"gap.{c}"], lw=0.8)
height.set(ylabel="heights of the corners (m)")
push.plot(run.t[:-1], force, lw=0.8)
push.axhline(9.81, color="k", ls=":", lw=0.8)
push.set(xlabel="t (s)", ylabel="normal force (N)", ylim=(0, 100))

# %%
print(f"deepest {gap:.1e} m; at rest {force[-20:].mean():.3f} N for a weight of 9.81 N")
assert gap > -1e-6 and abs(force[-20:].mean() - 9.81) < 0.05

# %%
# Friction on the edge of its cone while it slides, inside when it sticks:

used = sum(run[f"friction.{c}"] for c in corners)
axes = plt.figure(figsize=(7, 3), layout="constrained").add_subplot()
axes.plot(run.t[:-1], 0.5 * force, label="limit, 0.5 x normal force")
axes.plot(run.t[:-1], used, label="friction")
axes.set(xlabel="t (s)", ylabel="N", ylim=(0, 50))
axes.legend()
