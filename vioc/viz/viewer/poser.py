"""Browser viewer of a mechanism with a slider for every variable."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from vioc.checks import as_bounds, limits
from vioc.dynamics.consistency import consistent_configuration
from vioc.dynamics.description.system import System
from vioc.dynamics.kinematics import as_configuration
from vioc.errors import ConstraintError
from vioc.viz.scene import scene_at
from vioc.viz.viewer.player import Viewer

RANGE = 1.0  # m or, times pi, rad: range of sliders of variables without limits


class Poser(Viewer):
    """Browser viewer of a mechanism, whose configuration is set by sliders.

    Parameters
    ----------
    system : System
    q : array (nq,) or dict by name, optional
        Initial configuration; with constraints the consistent configuration nearest to it.
    bounds : dict of str to (lower, upper), optional
        Bounds of the sliders, m or rad.
    visuals, meshes
        As for `vioc.viz.view`.
    **options
        Options of `Viewer`.

    Attributes
    ----------
    q : (nq,)
    """

    def __init__(
        self,
        system: System,
        q: Any = None,
        *,
        bounds: Mapping[str, Any] | None = None,
        visuals: Any = None,
        meshes: Any = None,
        **options: Any,
    ):
        self.system = system
        self.q = as_configuration(system, q, "configuration")
        if system.constraints:
            self.q = consistent_configuration(system, self.q).q
        scene = scene_at(system, self.q, visuals=visuals, meshes=meshes)
        super().__init__({system.name: scene}, **options)
        self._drawing = next(iter(self.drawings.values()))
        self._sliders: dict[str, Any] = {}
        rotational = {
            n.frame.transform.variable.name
            for n in system.nodes
            if n.frame.transform.variable is not None and n.frame.transform.rotational
        }
        with self.server.gui.add_folder("pose"):
            for name, value in zip(system.variables, self.q, strict=True):
                far = RANGE * (np.pi if name in rotational else max(1.0, scene.extent))
                given = as_bounds(bounds).get(name, far)
                (low,), (high,) = limits(given, 1, f"bounds on {name}", number="symmetric")
                low = value - far if not np.isfinite(low) else low
                high = value + far if not np.isfinite(high) else high
                self._slide(name, min(low, value), max(high, value), value)

    def _slide(self, name: str, low: float, high: float, value: float) -> None:
        slider = self.server.gui.add_slider(name, float(low), float(high), 1e-3, float(value))
        self._sliders[name] = slider

        @slider.on_update
        def _(event: Any) -> None:
            if event.client is not None:
                self.pose({name: slider.value})

    def pose(self, values: dict[str, float]) -> bool:
        """Set some variables, and change the others to satisfy the constraints.
        Return False, and change nothing, if the constraints cannot be satisfied.

        Returns
        -------
        bool
            False if the constraints cannot be satisfied; then nothing moves.
        """
        with self._lock:
            q = self.q.copy()
            for name, value in values.items():
                q[self.system.variable_index(name)] = value
            if self.system.constraints:
                try:
                    q = consistent_configuration(self.system, q, fixed=values).q
                except ConstraintError:
                    return False
            self.q = q
            with self.server.atomic():
                self._drawing.show(0, scene_at(self.system, q))
            for name, slider in self._sliders.items():
                place = float(q[self.system.variable_index(name)])
                if name not in values and abs(slider.value - place) > 1e-6:
                    slider.value = place
            return True
