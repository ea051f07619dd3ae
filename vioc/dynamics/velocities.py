"""Names of the velocity components of frames, such as ``v.hand:x``, and their values.

``v.FRAME:x`` is the rate of ``FRAME:x``, ``w.FRAME:x`` the angular velocity, both in the world's axes;
``vb.FRAME:x`` and ``wb.FRAME:x`` are in the frame's own axes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import casadi as ca

from vioc.dynamics.algebra import vectors as vec
from vioc.dynamics.kinematics import TermGraph

UNITS = {"v": "m/s", "w": "rad/s", "vb": "m/s", "wb": "rad/s"}


class Velocity(NamedTuple):
    """One velocity component of a frame, linear or angular, with the name ``KIND.FRAME:AXIS``."""

    kind: str
    frame: str
    axis: int

    def of(self, k: TermGraph) -> ca.SX:
        """Return the expression of this velocity component in the symbolic kinematics `k`."""
        twist = k.body_velocity(self.frame)
        part = twist[:3] if self.kind[0] == "v" else twist[3:]
        if len(self.kind) == 1:
            part = vec.matrix(k.node_pose(k.system.frame_index(self.frame))[0]) @ part
        return part[self.axis]

    @property
    def unit(self) -> str:
        return UNITS[self.kind]


def velocity(name: str, frames: Iterable[str]) -> Velocity | None:
    """Parse the name of a frame's velocity component, such as ``v.hand:x``.
    Return None if the name is not that of a velocity component.
    """
    kind, _, rest = name.partition(".")
    frame, _, axis = rest.rpartition(":")
    valid = kind in UNITS and frame in frames and len(axis) == 1 and axis in "xyz"
    return Velocity(kind, frame, "xyz".index(axis)) if valid else None


def velocity_names(frames: Iterable[str]) -> list[str]:
    return [f"{kind}.{frame}:{axis}" for frame in frames for kind in UNITS for axis in "xyz"]
