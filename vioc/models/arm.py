"""Model of a robot arm with seven joints, its dimensions and masses."""

from __future__ import annotations

from collections.abc import Sequence

from vioc.dynamics.description.frame import Frame, ry, rz, tz
from vioc.dynamics.description.inertia import Mass
from vioc.dynamics.description.numbers import Number
from vioc.dynamics.description.system import System
from vioc.dynamics.terms.forces import JointForce
from vioc.dynamics.terms.potentials import Gravity

AXES = "zyzyzyz"
OFFSETS = (0.15, 0.2, 0.2, 0.2, 0.2, 0.15, 0.1)  # m, of each joint from the previous one
MASSES = (4.0, 4.0, 3.0, 3.0, 2.0, 1.0, 1.0)  # kg
INERTIAS = (0.03, 0.03, 0.02, 0.02, 0.01, 0.004, 0.002)  # kg m^2, about each axis
CENTRE = (0.0, 0.0, 0.08)  # m, centre of mass of each link
TOOL = 0.12  # m, from the last joint


def seven_joint_arm(masses: Sequence[Number] = MASSES) -> System:
    """Return a robot arm with seven joints, each with a torque input.
    The joints turn about the axes z y z y z y z.

    Parameters
    ----------
    masses : sequence of 7
        Masses of the links, kg; `vioc.P` makes one a parameter.

    Returns
    -------
    System
        A system with variables ``q1`` to ``q7`` and inputs ``u1`` to ``u7``; all zero is upright. The last
        frame is ``tool``.
    """
    below: tuple[Frame, ...] = (tz(TOOL, name="tool"),)
    for i in reversed(range(7)):
        turn = {"z": rz, "y": ry}[AXES[i]]
        mass = Mass(masses[i], (INERTIAS[i],) * 3, CENTRE)
        below = (tz(OFFSETS[i])[turn(f"q{i + 1}", mass=mass)[below]],)
    motors = [JointForce(f"q{i + 1}", f"u{i + 1}") for i in range(7)]
    return System(below, Gravity(0.0, 0.0, -9.81), motors, name="arm")
