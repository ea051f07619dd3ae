"""
A Panda reaches
===============

Franka's arm from its URDF: lengths, masses and limits are the robot's, inertias rough. The limits are bounds.
"""

import numpy as np

import vioc
from vioc.control import optimize, quadratic

ORIGINS = ["0 0 .333", "0 0 0", "0 -.316 0", ".0825 0 0", "-.0825 .384 0", "0 0 0", ".088 0 0"]
TURNS, MASSES = (0, -1, 1, 1, -1, 1, 1), (5.0, 0.65, 3.2, 3.6, 1.2, 1.7, 0.74)  # quarter turns about x; kg
LOWER, UPPER = (-2.9, -1.76, -2.9, -3.07, -2.9, -0.02, -2.9), (2.9, 1.76, 2.9, -0.07, 2.9, 3.75, 2.9)
text = '<robot name="panda"><link name="l0"/>'
for i in range(7):
    inertia = 'ixx=".02" iyy=".02" izz=".02" ixy="0" ixz="0" iyz="0"'
    text += (
        f'<link name="l{i + 1}"><inertial><mass value="{MASSES[i]}"/><inertia {inertia}/></inertial></link>'
    )
    text += f'<joint name="q{i + 1}" type="revolute"><parent link="l{i}"/><child link="l{i + 1}"/>'
    text += f'<origin xyz="{ORIGINS[i]}" rpy="{TURNS[i] * np.pi / 2} 0 0"/><axis xyz="0 0 1"/><limit lower="'
    text += f'{LOWER[i]}" upper="{UPPER[i]}" velocity="2.2" effort="{87 if i < 4 else 12}"/></joint>'
text += '<link name="flange"/><joint name="end" type="fixed"><parent link="l7"/><child link="flange"/>'
robot = vioc.read_urdf_text(text + '<origin xyz="0 0 .107"/></joint></robot>', inputs="all")

# %%
f = vioc.MidpointVI(robot.system, dt=0.04)
ready = {"q2": -0.8, "q4": -2.4, "q6": 1.6, "q7": 0.8}
place = {"flange:x": 0.45, "flange:y": 0.35, "flange:z": 0.3}
still = {f"v.{name}": 0.0 for name in f.system.variables}
cost = quadratic(f, Q={f"v.{n}": 0.1 for n in f.system.variables}, R=1e-3)
best = optimize(f, cost, x0=f.initial_state(ready), steps=25, final=place | still, bounds=robot.bounds())
print(best)
best.plot("u.q2", "u.q4", "q4", "v.q1", limits=robot.bounds())
assert best.feasible and abs(best["flange:y"][-1] - 0.35) < 1e-6

# %%
best.animate(fps=10, marks={"place": tuple(place.values())})
