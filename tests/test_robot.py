"""Robots made of robots: joints locked, branches taken away, tools attached; limits as bounds."""

from pathlib import Path

import numpy as np
import pytest
from support.gripper_arm import TEXT

import vioc
from vioc import Lagrangian, Mass, ModelError, read_urdf_text, se3
from vioc.control import Cost, optimize

DATA = Path(__file__).parent / "data"
AT = {"ja": 0.4, "jb": -0.7, "jc": 0.2, "g1": 0.03, "g2": 0.04}


@pytest.fixture(scope="module")
def arm():
    return read_urdf_text(TEXT, inputs="all")


def mass_matrix(robot, names):
    lag = Lagrangian(robot.system)
    own = [robot.system.variables.index(n) for n in names]
    M = lag.mass_matrix({n: AT[n] for n in robot.system.variables})
    return M[np.ix_(own, own)]


def test_locked_joints_are_constants(arm):
    """What is left of the mass matrix is the block of the other variables; a mimic follows."""
    locked = arm.locked({"jb": AT["jb"]}, g1=AT["g1"])
    assert locked.system.variables == ("ja", "jc") and locked.system.inputs == ("ja", "jc")
    assert not locked.system.constraints and set(locked.limits) == {"ja", "jc"}
    assert locked.joints["jb"].type == "fixed"
    np.testing.assert_allclose(
        mass_matrix(locked, ["ja", "jc"]), mass_matrix(arm, ["ja", "jc"]), rtol=0, atol=1e-14
    )
    other = arm.locked(jc=AT["jc"])  # a slide along no axis of the frame
    np.testing.assert_allclose(
        mass_matrix(other, ["ja", "jb", "g1", "g2"]), mass_matrix(arm, ["ja", "jb", "g1", "g2"]), atol=1e-14
    )
    with pytest.raises(
        ModelError, match="gear-constraint 'mimic-g2' joins 'g2', which is removed, with 'g1'"
    ):
        arm.locked(g2=0.0)
    with pytest.raises(ModelError, match="'jd' is no joint of one variable; known are 'ja'"):
        arm.locked(jd=0.0)


def test_branches_are_taken_away(arm):
    """Without the fingers the rest is as if they had no mass."""
    bare = arm.without("g1", "g2")
    assert bare.system.variables == ("ja", "jb", "jc") and "f1" not in bare.system.frame_names
    assert set(bare.joints) == {"ja", "jb", "jc"} and set(bare.limits) == {"ja", "jb", "jc"}
    text = (
        TEXT.split('<link name="f1">')[0]
        + TEXT[TEXT.index('<joint name="ja"') : TEXT.index('<joint name="g1"')]
    )
    assert bare.system == read_urdf_text(text + "</robot>", inputs="all").system
    with pytest.raises(
        ModelError, match="gear-constraint 'mimic-g2' joins 'g1', which is removed, with 'g2'"
    ):
        arm.without("g1")
    with pytest.raises(ModelError, match="without: 'gg' is no joint"):
        arm.without("gg")


def test_a_tool_is_attached(arm):
    """Its potential energy is m g z, wherever the arm is."""
    tool = arm.attached("c", se3((0, 0, 0.2), name="tool", mass=Mass(0.7))[se3((0, 0, 0.1), name="tip")])
    assert {"tool", "tip"} <= set(tool.system.frame_names)
    q = {**AT, "g2": 0.1 - 2 * AT["g1"]}
    more = Lagrangian(tool.system).potential_energy(q) - Lagrangian(arm.system).potential_energy(q)
    z = vioc.Kinematics(tool.system).position("tool", q)[2]
    assert more == pytest.approx(0.7 * 9.81 * z, abs=1e-13)
    with pytest.raises(ModelError, match="unknown frame 'd'"):
        arm.attached("d", se3())


def test_limits_are_bounds(arm):
    bounds = arm.bounds()
    assert bounds["ja"] == (-2, 1.5) and bounds["v.jc"] == (-3, 3) and bounds["u.jb"] == (-40, 40)
    assert "u.g2" not in bounds  # a mimic has no input
    assert arm.bounds("effort", share=0.5) == {f"u.{n}": (-20, 20) for n in ("ja", "jb", "jc", "g1")}
    with pytest.raises(ModelError, match="'effort', got 'torque'"):
        arm.bounds("torque")
    small = arm.locked(g1=0.0, jc=0.0)
    f = vioc.MidpointVI(small.system, dt=0.05)
    cost = Cost(f, 1e-3 * sum(f.symbols.u[i] ** 2 for i in range(2)))
    start = f.initial_state(ja=-1.0)
    run = optimize(f, cost, x0=start, steps=12, final={"ja": 0.2, "v.ja": 0}, bounds=small.bounds(share=0.8))
    assert abs(run["v.ja"]).max() < 2.4 + 1e-6 and abs(run["u.ja"]).max() < 32 + 1e-6
