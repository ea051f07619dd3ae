"""
What strings control
====================

The marionette of [S]: 22 joints, six strings, 80 states and 18 inputs. At rest, which states are out of
reach when only some of the strings move?
"""

import matplotlib.pyplot as plt

import vioc
from vioc.control import controllability, equilibrium

f = vioc.MidpointVI(vioc.models.load("marionette"), dt=0.01)
q = vioc.models.marionette_configuration()
controls = f.system.kinematic
rest = equilibrium(
    f, guess=f.state_from_configurations(q, q), fixed=[*controls, *(f"rho.{c}" for c in controls)]
)
print(f"{f.nx} states, {f.nu} inputs, {f.nm} strings")

# %%
# On the constraint manifold, without what the controls' own rates repeat:

strings = {
    "all": controls,
    "arms": [c for c in controls if "arm" in c],
    "one arm": [c for c in controls if "left_arm" in c],
}
reports = {
    name: controllability(f, rest, inputs=[f"rho.{c}" for c in chosen], steps=50)
    for name, chosen in strings.items()
}
for name, report in reports.items():
    print(f"{name:<8} {report.rank} of {report.size} directions")
assert reports["all"].complete and not reports["one arm"].complete

# %%
# How far one unit of input energy moves each direction, from the easiest to the hardest: full rank, and yet
# the last ones are hardly there.

axes = plt.figure(figsize=(7, 4), layout="constrained").add_subplot()
for name, report in reports.items():
    gains = [d.gain for d in report.directions()]
    axes.semilogy([g if g > 1e-14 else None for g in gains], ".-", label=f"{name}: rank {report.rank}")
axes.set(xlabel="direction", ylabel="reach per root of input energy (SI)")
axes.grid(alpha=0.3)
axes.legend(title="strings that move")
