"""
An arm from a URDF file
=======================

A file of a robot becomes a mechanism; inputs are put on its joints, and the arm reaches a point with
bounded torques.
"""

import casadi as ca
import matplotlib.pyplot as plt

import vioc
from vioc.control import Cost, dmoc


def link(name, mass, length):
    across = mass * length**2 / 12
    return (
        f'<link name="{name}"><inertial><origin xyz="0 0 {-length / 2}"/><mass value="{mass}"/>'
        f'<inertia ixx="{across}" iyy="{across}" izz="1e-3" ixy="0" ixz="0" iyz="0"/></inertial></link>'
    )


def joint(name, parent, child, axis, z):
    return (
        f'<joint name="{name}" type="continuous"><parent link="{parent}"/><child link="{child}"/>'
        f'<origin xyz="0 0 {z}"/><axis xyz="{axis}"/></joint>'
    )


text = (
    '<robot name="arm"><link name="base"/>'
    + link("upper", 2.0, 0.5)
    + link("lower", 1.5, 0.5)
    + link("hand", 0.3, 0.1)
    + joint("shoulder", "base", "upper", "0 1 0", 0.0)
    + joint("elbow", "upper", "lower", "0 1 0", -0.5)
    + joint("wrist", "lower", "hand", "0 1 0", -0.5)
    + "</robot>"
)
arm = vioc.read_urdf_text(text, inputs="all")
print(arm.system)

# %%
# The hand is to be at rest 0.6 m ahead and 0.4 m above the shoulder after 1.5 s.

f = vioc.MidpointVI(arm.system, dt=0.025)
still = {f"v.{name}": 0.0 for name in f.system.variables}
best = dmoc.solve(
    f,
    Cost(f, 0.5 * ca.sumsqr(f.symbols.u)),
    steps=60,
    initial=f.initial_state(),
    final=still | {"hand:x": 0.6, "hand:z": 0.4},
    bounds={"u.shoulder": 15.0, "u.elbow": 10.0, "u.wrist": 1.0, "elbow": (-2.5, 0.0), "wrist": 1.0},
)
print(best)
best.plot("u.shoulder", "u.elbow", "u.wrist")

# %%
axes = plt.figure(figsize=(5, 5), layout="constrained").add_subplot()
for k in range(0, 61, 6):
    x = [0.0, *(best[f"{name}:x"][k] for name in ("lower", "hand"))]
    z = [0.0, *(best[f"{name}:z"][k] for name in ("lower", "hand"))]
    axes.plot(x, z, ".-", color=plt.cm.viridis(k / 60))
axes.plot(0.6, 0.4, "r*", ms=12)
axes.set(xlabel="x (m)", ylabel="z (m)", aspect="equal", title="from hanging to the star")
assert abs(best["hand:x"][-1] - 0.6) < 1e-8 and abs(best["u.shoulder"]).max() < 15 + 1e-6
