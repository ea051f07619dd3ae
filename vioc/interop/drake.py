"""Drake systems with discrete time, made from maps; needs the package ``drake``."""

from __future__ import annotations

from typing import Any

import numpy as np

try:
    from pydrake.systems.framework import LeafSystem
except ImportError:
    raise ImportError("this needs Drake: pip install drake") from None

from vioc.maps.protocol import OneStepMap


class MapSystem(LeafSystem):
    """Drake system of a map, with an ``input`` port (nu,) and a ``state`` port (nx,).

    It is updated every dt.

    Parameters
    ----------
    f : OneStepMap
    start : (nx,), optional
        The default context's state; default: the map's own.

    Raises
    ------
    ValueError
        A wrong shape of `start`.

    Notes
    -----
    The step from time t is that of sample k = round(t / dt); its input is the port's at t, constant over the
    step. After ``Simulator.AdvanceTo(N dt)`` N steps are done. Only for floating-point numbers: gradients are
    the map's (`linearize`), not those of Drake's AutoDiff.
    """

    def __init__(self, f: OneStepMap, start: Any = None):
        LeafSystem.__init__(self)
        self.map = f
        x0 = f.check_state(f.state() if start is None else start, "start")
        state = self.DeclareDiscreteState(np.array(x0, float))
        self._input = self.DeclareVectorInputPort("input", f.nu) if f.nu else None
        self.DeclarePeriodicDiscreteUpdateEvent(f.dt, 0.0, self._update)
        self.DeclareStateOutputPort("state", state)

    def _update(self, context: Any, discrete: Any) -> None:
        f = self.map
        x = np.array(context.get_discrete_state_vector().value(), float)
        u = np.zeros(0) if self._input is None else np.array(self._input.Eval(context), float)
        discrete.set_value(f.step(x, u, round(context.get_time() / f.dt)))
