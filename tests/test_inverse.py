"""Inverse kinematics: random reachable poses of an arm within its limits."""

import numpy as np
import pytest
from support.gripper_arm import TEXT

import vioc
from vioc import ModelError, chain, read_urdf_text, ry, tz

SEVEN = {f"q{i}": (-2.6, 2.6) for i in range(1, 8)}


@pytest.fixture(scope="module")
def seven():
    return vioc.Kinematics(vioc.models.seven_joint_arm())


def poses(kinematics, frame, q):
    return np.array([kinematics.pose(frame, one) for one in q])


def test_random_poses_are_all_reached(seven):
    rng = np.random.default_rng(0)
    T = poses(seven, "tool", rng.uniform(-2.6, 2.6, (100, 7)))
    found = seven.inverse({"tool": T}, bounds=dict(zip(seven.system.variables, SEVEN.values(), strict=True)))
    assert found.converged.all() and (np.abs(found.q) <= 2.6).all()
    np.testing.assert_allclose(poses(seven, "tool", found.q), T, rtol=0, atol=2e-10)
    assert found.attempts.max() <= 50 and str(found).startswith("100 of 100 targets reached")
    again = seven.inverse({"tool": T}, bounds=dict(zip(seven.system.variables, SEVEN.values(), strict=True)))
    np.testing.assert_array_equal(again.q, found.q)


def test_the_nearest_from_a_guess(seven):
    """Quadratic convergence: one attempt from 0.1 rad away."""
    rng = np.random.default_rng(1)
    q = rng.uniform(-1.5, 1.5, 7)
    found = seven.inverse({"tool": seven.pose("tool", q)}, q + 0.1, tries=1)
    assert found.converged and found.q.shape == (7,) and np.abs(found.q - q).max() < 0.5
    assert found[seven.system.variables[2]] == found.q[2]
    held = seven.inverse({"tool": seven.position("tool", q)}, q + 0.1, fixed=[seven.system.variables[0]])
    assert held.converged and held.q[0] == q[0] + 0.1


def test_all_solutions_of_two_links():
    """A planar arm reaches a point in two ways, q2 = -+ acos((r^2 - a^2 - b^2) / 2ab)."""
    plane = vioc.Kinematics(
        vioc.System(chain(ry("a", mass=1.0), tz(1.0), ry("b", mass=1.0), tz(0.7, name="tip")))
    )
    point = plane.position("tip", [0.4, 0.9])
    found = plane.inverses({"tip": point}, 40, bounds={"a": (-3.2, 3.2)})
    bend = np.arccos((point @ point - 1 - 0.7**2) / (2 * 0.7))
    np.testing.assert_allclose(sorted(found[:, 1]), [-bend, bend], rtol=0, atol=1e-9)
    one = plane.inverses({"tip": point}, 40, bounds={"b": (0, 3)})
    np.testing.assert_allclose(one, [[0.4, 0.9]], rtol=0, atol=1e-9)


def test_misspelt_limits_are_refused():
    arm = vioc.System(ry("elbow", mass=1.0)[tz(1.0, name="tip")], vioc.JointForce("elbow", "motor"))
    kinematics = vioc.Kinematics(arm)
    target = {"tip": kinematics.pose("tip", [0.4])}
    with pytest.raises(ModelError, match="bounds: 'elbw' is no variable; did you mean 'elbow'"):
        kinematics.inverse(target, bounds={"elbw": (-1, 1)})
    others = {"v.elbow": 2.0, "u.motor": 3.0, "motor": 3.0}  # a robot's other limits
    assert kinematics.inverse(target, bounds={"elbow": (0, 1), **others}).converged


def test_out_of_reach_says_so(seven):
    found = seven.inverse({"tool": [5.0, 0, 0]}, tries=3)
    assert not found.converged and found.attempts == 3 and found.error > 3
    with pytest.raises(
        ModelError, match=r"'tool': expected a pose \(4, 4\), a position \(3,\), or N of them"
    ):
        seven.inverse({"tool": [1, 2]})
    with pytest.raises(ModelError, match="expected rotation matrices"):
        seven.inverse({"tool": 2 * np.eye(4)})
    with pytest.raises(ModelError, match="unknown frame 'tol'"):
        seven.inverse({"tol": [1, 2, 3]})
    with pytest.raises(ValueError, match="bounds on .*: lower limit 1 > upper limit 0"):
        seven.inverse({"tool": [1, 2, 3]}, bounds={seven.system.variables[0]: (1, 0)})


def test_constraints_hold_there():
    """Two fingers that mimic one another, one of them at a point."""
    hand = read_urdf_text(TEXT)
    kinematics = vioc.Kinematics(hand.system)
    q = np.array([0.3, -0.4, 0.2, 0.05, 0.0])
    q[4] = 0.1 - 2 * q[3]
    found = kinematics.inverse({"f2": kinematics.position("f2", q)}, bounds=hand.bounds("position"))
    assert found.converged and found["g2"] == pytest.approx(0.1 - 2 * found["g1"], abs=1e-10)
    np.testing.assert_allclose(kinematics.position("f2", found.q), kinematics.position("f2", q), atol=2e-10)


def test_what_is_fixed_is_fixed_for_seeds_that_are_drawn():
    links = vioc.rz("a")[vioc.tx(1.0)[vioc.rz("b")[vioc.tx(1.0)[vioc.rz("c")[vioc.tx(0.5, name="hand")]]]]]
    k = vioc.Kinematics(vioc.System(links))
    found = k.inverses({"hand": np.array([1.2, 0.6, 0.0])}, 20, fixed=["c"])
    assert len(found) == 2 and (found[:, 2] == 0).all()
    found = k.inverses({"hand": np.array([1.2, 0.6, 0.0])}, 20, fixed=["c"], guess={"c": 0.4})
    assert len(found) == 2 and (found[:, 2] == 0.4).all()
