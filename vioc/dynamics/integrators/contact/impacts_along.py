"""Impacts of contacts with restitution within the steps of a trajectory."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from vioc.dynamics.integrators.contact.bounces import Flight
from vioc.maps.derivatives import Steps

if TYPE_CHECKING:
    from vioc.dynamics.integrators.contact.contact_vi import ContactVI


class Impacts(NamedTuple):
    """Impacts of contacts with restitution within the steps of a trajectory, in order of time.

    Attributes
    ----------
    k : (m,) int
        Index of the step of each impact.
    t : (m,)
        Time of each impact, s.
    x : (m, nx)
        State after each impact.
    """

    k: np.ndarray
    t: np.ndarray
    x: np.ndarray


def impacts_along(f: ContactVI, steps: Steps) -> Impacts:
    """Return the impacts within given steps of a map with restitution.
    Each step is computed again.
    """
    impacts: list[tuple[int, float, np.ndarray]] = []
    for row, (x, u, t, h) in enumerate(zip(steps.x0, steps.u, steps.t, steps.h, strict=True)):
        time = float(t)
        for record in f.contact.step(f, x, u, time, float(h)):
            if isinstance(record, Flight):
                x, time = record.steps.x1[0], float(record.steps.t[0] + record.steps.h[0])
            else:
                x = np.concatenate([x[: f.nq], record.momenta[0]])
                impacts.append((row, time, x))
    k, times, states = zip(*impacts, strict=True) if impacts else ((), (), ())
    return Impacts(np.array(k, int), np.array(times, float), np.reshape(states, (len(impacts), f.nx)))
