"""Velocity components of frames, such as ``v.hand:x``, and units of quantities.

``v.FRAME:x`` is the rate of ``FRAME:x``, ``w.FRAME:x`` the angular velocity, both in the world's axes;
``vb.FRAME:x`` and ``wb.FRAME:x`` are in the frame's own axes.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import NamedTuple

import casadi as ca

from vioc.dynamics.algebra import vectors as vec
from vioc.dynamics.description.system import System
from vioc.dynamics.kinematics import TermGraph
from vioc.maps.orientation import component

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


def quantity_unit(system: System, name: str, angles: Set[str]) -> str:
    """Return the unit of a quantity, given its name, or "" for an unknown quantity.

    Quantities are variables, rates, momenta, energies, positions and inputs. `angles` names the variables
    and rates that are angular: their units have rad for m.
    """
    kind, dot, rest = name.rpartition(".")
    base, angle = kind.rpartition(".")[2], rest in angles
    if not dot and name in system.variables:
        return "rad" if angle else "m"
    of_kind = {"v": ("m/s", "rad/s"), "p": ("kg m/s", "kg m^2/s"), "rho": ("m", "rad"), "tension": ("N", "N")}
    if base in of_kind:
        return of_kind[base][angle]
    if name in ("kinetic", "potential", "energy"):
        return "J"
    moving = velocity(name, system.frame_names)
    if moving is not None:
        return moving.unit
    if ":" in name:
        return "rad" if component(name) else "m"
    name = rest if base == "u" else name
    units = (f.input_unit(frozenset(angles)) for f in system.forces if name in f.input_names())
    return next(units, "")
