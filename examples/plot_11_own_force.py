"""
A force of your own: three magnets
==================================

A pendulum over three magnets is a classic of sensitive dependence. The magnets are a potential of ten
lines, written with CasADi; derivatives, energies and compiled code follow.
"""

import casadi as ca
import matplotlib.pyplot as plt
import numpy as np

import vioc
from vioc import Gravity, JointDamping, System, UserPotential, rx, ry, tz

PLACES = 0.3 * np.array([[np.cos(a), np.sin(a)] for a in np.radians([90, 210, 330])])


def magnet(k, frame, x, y, strength):
    """The energy of a magnet under the bob, J."""
    d = k.position(frame) - ca.vertcat(x, y, -1.2)
    return -strength / ca.sqrt(ca.dot(d, d))


pendulum = System(
    rx("a")[ry("b")[tz(-1.0, name="bob", mass=1.0)]],
    Gravity(0, 0, -9.81),
    [UserPotential(magnet, ("bob", x, y, 0.6)) for x, y in PLACES],
    JointDamping("a", 0.8),
    JointDamping("b", 0.8),
    name="magnets",
)
f = vioc.MidpointVI(pendulum, dt=0.05)

# %%
# Release it from a grid of places, all at once over the cores, and see over which magnet it ends.

side = np.linspace(-0.6, 0.6, 50)
starts = np.array([f.initial_state({"a": a, "b": b}) for a in side for b in side])
batch = f.rollouts(starts, steps=200)
bob = f.frame_positions(batch.x[:, -1])[:, -1, :2]
nearest = np.argmin(np.linalg.norm(bob[:, None] - PLACES, axis=2), axis=1).reshape(50, 50)

axes = plt.figure(figsize=(5.5, 5), layout="constrained").add_subplot()
axes.pcolormesh(
    side, side, nearest, cmap=plt.matplotlib.colors.ListedColormap(["#4477aa", "#ee6677", "#ccbb44"])
)
axes.set(
    xlabel="b at the start (rad)",
    ylabel="a at the start (rad)",
    aspect="equal",
    title="the magnet where it ends",
)
assert set(nearest.ravel()) == {0, 1, 2}
