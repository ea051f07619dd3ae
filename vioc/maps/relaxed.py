"""A step with contact as smooth equations and bounds, for programs that have steps as constraints."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import casadi as ca
import numpy as np

from vioc.maps.derivatives import Steps


@dataclass(frozen=True)
class RelaxedStep:
    """The equations of a map's step with contact at any smoothing, with its cones' variables as unknowns.

    Every product of a gap's velocity and its impulse, and of friction, equals a barrier that is proportional
    to the smoothing: a homotopy in it leads from contacts that are felt from afar to the map's own step.

    Attributes
    ----------
    function : casadi.Function
        (x, u, x_next, w, t, dt, parameters, smoothing) -> rows, zero on the step of the map that has that
        smoothing (m^2/s^2).
    rows, unknowns : tuple of str
        Names of the rows, nx + nw of them, and of w.
    lower, upper : (nw,)
        Bounds of w: what is in its cone.
    multipliers : casadi.Function
        (w, dt) -> the map's multipliers (nm,).
    start : callable
        (Steps, smoothing) -> w (N, nw), within its bounds: a guess along states and inputs that need be no
        steps, near the central path of that smoothing.
    """

    function: ca.Function
    rows: tuple[str, ...]
    unknowns: tuple[str, ...]
    lower: np.ndarray
    upper: np.ndarray
    multipliers: ca.Function
    start: Callable[[Steps, float], np.ndarray]
