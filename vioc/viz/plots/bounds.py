"""Bounds and target values of quantities, drawn into plots over time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from vioc.checks import as_bounds, limits
from vioc.names import by_quantity


class Marked:
    """Bounds and target values of a run's quantities, which plots draw.

    Parameters
    ----------
    run : Trajectory
    bounds : dict or None
        As for an optimizer, see `vioc.control.optimize`.
    targets : dict of str to float or None
    """

    def __init__(self, run: Any, bounds: Mapping[str, Any] | None, targets: Mapping[str, Any] | None):
        self.run = run
        self.bounds = by_quantity(run.map, as_bounds(bounds), "bounds")
        self.targets = by_quantity(run.map, targets or {}, "targets")

    def draw(self, axes: Any, name: str, color: Any) -> None:
        """Draw the bounds and the target value of a quantity on its axes."""
        if name in self.bounds:
            value = self.bounds[name]
            sides = value if isinstance(value, (tuple, list)) else (value,)
            lengths = [len(side) for side in sides if np.ndim(side)]
            count = lengths[0] if lengths else len(self.run.t)
            for side in limits(value, count, f"bounds on {name}", number="symmetric"):
                if np.isfinite(side).any():
                    axes.plot(
                        self.run.t[:count],
                        np.where(np.isfinite(side), side, np.nan),
                        ls=":",
                        lw=1.2,
                        color=color,
                    )
        if name in self.targets:
            axes.plot(self.run.t[-1], float(self.targets[name]), "x", ms=8, mew=2, color=color, clip_on=False)
