"""
A Furuta pendulum, from its encoders
====================================

The arm is driven, the pole stands up; angles are measured with noise, a filter makes momenta of them.
"""

import vioc
from vioc import Gravity, JointDamping, JointForce, Mass, rx, rz, tx, tz
from vioc.control import Measurement, dlqr, feedback, kalman

pole = rx("pole")[tz(0.065, mass=Mass.rod(0.024, 0.129)), tz(0.129, name="tip")]
arm = rz("arm", mass=Mass(0.095, (1e-7, 6e-5, 6e-5)))[tx(0.085)[pole]]
system = vioc.System(arm, Gravity(0, 0, -9.81), JointForce("arm", "torque"), JointDamping("arm", 2e-4))
f = vioc.MidpointVI(system, dt=0.005)
upright = feedback.equilibrium(f, arm=0.0, pole=0.0)

# %%
law = dlqr(f, upright, Q={"arm": 5, "pole": 20, "v.arm": 0.05, "v.pole": 0.1}, R=2e3)
see = Measurement(f, {"arm": 1e-6, "pole": 1e-6})
observer = kalman(f, upright, see, W=1e-10, W_u=1e-6)
loop = feedback.ClosedLoop(f, law, observer, bounds={"torque": 0.05})
run = loop.simulate(f.initial_state({"arm": 0.5, "pole": 0.2}), 400, noise=1)
print(run)
run.plot("arm", "pole", "u.torque", bounds={"torque": 0.05}, targets={"arm": 0.0, "pole": 0.0})
assert abs(run["pole"][-100:]).max() < 0.05 and abs(run["arm"][-1]) < 0.1

# %%
run.animate(fps=10, view="3d", marks={"upright": (0.085, 0.0, 0.129)})
