"""
A Panda reaches a pose
======================

Franka's arm from a URDF: lengths, masses and limits are the robot's, inertias rough. Its limits are bounds.
"""

from scipy.spatial.transform import Rotation

import vioc
from vioc.control import optimize, pose, quadratic

PLACES = ["0 0 .333", "0 0 0", "0 -.316 0", ".0825 0 0", "-.0825 .384 0", "0 0 0", ".088 0 0"]
ROLLS, MASSES = (0, -1.570796, 1.570796, 1.570796, -1.570796, 1.570796, 1.570796), (5, 0.6, 3, 4, 1, 2, 0.7)
LOWER = (-2.8973, -1.7628, -2.8973, -3.0718, -2.8973, -0.0175, -2.8973)
UPPER = (2.8973, 1.7628, 2.8973, -0.0698, 2.8973, 3.7525, 2.8973)
JOINT = """<link name="l{0}"><inertial><mass value="{2}"/><inertia ixx=".02" iyy=".02" izz=".02" ixy="0"
ixz="0" iyz="0"/></inertial></link><joint name="q{0}" type="revolute"><parent link="l{1}"/>
<child link="l{0}"/><origin xyz="{3}" rpy="{4} 0 0"/><axis xyz="0 0 1"/>
<limit lower="{5}" upper="{6}" velocity="2.175" effort="{7}"/></joint>"""
rows = zip(range(1, 8), range(7), MASSES, PLACES, ROLLS, LOWER, UPPER, [87] * 4 + [12] * 3, strict=True)
text = '<robot name="panda"><link name="l0"/>' + "".join(JOINT.format(*row) for row in rows) + "</robot>"
robot = vioc.read_urdf_text(text, inputs="all").attached("l7", vioc.tz(0.107, name="hand"))

# %%
f = vioc.MidpointVI(robot.system, dt=0.04)
place, turn = [0.45, 0.35, 0.3], Rotation.from_euler("xyz", [180, 0, 40], degrees=True)
still = {f"v.{name}": 0.0 for name in f.system.variables}
cost = quadratic(f, Q=dict.fromkeys(still, 0.1), R=1e-3)
x0 = f.initial_state({"q2": -0.8, "q4": -2.4, "q6": 1.6, "q7": 0.8})
best = optimize(f, cost, x0=x0, steps=25, final=pose("hand", place, turn) | still, bounds=robot.bounds())
end = vioc.Kinematics(f.system).pose("hand", best.x[-1][:7])
print(best, miss := max(abs(end[:3, 3] - place).max(), abs(turn.as_matrix() - end[:3, :3]).max()), "m, rad")
best.plot("u.q2", "u.q4", "q4", "v.q1", bounds=robot.bounds())
assert miss < 1e-8 and abs(end[2, 2] + 1) < 1e-12  # the hand points down

# %%
best.animate(fps=10, marks={"place": tuple(place)})
