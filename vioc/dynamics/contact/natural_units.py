"""Natural units of a mechanism, as scales of residuals of steps with contact."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import casadi as ca
import numpy as np

from vioc.dynamics.contact.touch import AnyTouch, unit_of
from vioc.dynamics.description.system import System


@dataclass(frozen=True)
class NaturalUnits:
    """Natural units of coordinates, constraints and contacts.
    The unit of angles is 1 rad; that of lengths is a characteristic length of the mechanism.

    Tolerances relative to them do not depend on the unit of length in which a model is written.

    Attributes
    ----------
    length : float
        Length of the mechanism (`masses.natural_length`), m.
    sizes : (nv,)
        Units of the coordinates whose velocities are unknown.
    rows : (rows + mismatches,)
        Units of the constraint values, then of the gaps and slips whose rates `Cone.mismatch` compares.
    """

    length: float
    sizes: np.ndarray
    rows: np.ndarray

    def speed(self, dt: float) -> float:
        """Return the natural length divided by the time dt, a speed in m/s."""
        return self.length / abs(dt)

    def extent(self, coordinates: np.ndarray) -> float:
        """Return 1 plus the largest magnitude of the coordinates (nv,) in natural units.
        Errors of the coordinates are compared with this number, which makes them relative.
        """
        return 1 + float(np.abs(coordinates / self.sizes).max(initial=0.0))


def units_of_touches(system: System, touches: Sequence[AnyTouch], length: float) -> np.ndarray:
    """Return the natural units of the residuals of contacts and joint limits.
    The residuals are speeds, those of all contact equations except complementarity. Their unit of length is
    1 rad for limits of angles, else the natural length `length`, m.
    """
    units: list[float] = []
    for touch in touches:
        y, w = ca.SX.sym("y", touch.cone.size), ca.SX.sym("w", touch.rows)
        unit = 1.0 if unit_of(system, "gap", touch.name, system.angles) == "rad" else length
        units += [unit] * touch.cone.mismatch(y, w, ca.SX(1), ca.SX(1)).numel()
    return np.array(units)
