"""Compiled steps with contact of boxes and hulls, in generalized coordinates."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from vioc.dynamics.contact.compiled_contact import TapeCore
from vioc.dynamics.contact.look import LOOKS, Look
from vioc.dynamics.contact.rollouts import StepByStep

if TYPE_CHECKING:
    from vioc.dynamics.integrators.contact.contact_vi import ContactVI


class PlacedProgram(StepByStep):
    """Object that computes rollouts with contact of boxes and convex hulls.
    It uses the compiled solver, and searches for the contact points in each step.

    Parameters
    ----------
    f : ContactVI
    core : TapeCore
    """

    def __init__(self, f: ContactVI, core: TapeCore):
        super().__init__(f)
        self._core = core

    def rollout(self, x, U, tracked, t, h, theta, tolerance):
        f, core, error = self._f, self._core, 0.0
        models = core.models(theta, f.barrier)
        image, offset = models[0][1], core.places(0)["places"]
        sizes = f.features.sizes
        rows: list[tuple] = []
        look: Look | None = None
        for k, u in enumerate(U):
            u = self.applied(u, x, tracked, k)
            see = partial(f.seen, dt=float(h[k]), theta=theta)
            look = Look(see, sizes, x, look.end if look and h[k] == h[k - 1] else None)
            for _ in range(LOOKS):
                image[offset : offset + look.rows.size] = look.rows.ravel()
                states, multipliers, _, errors, _ = core.rollout(
                    theta,
                    x,
                    u[None],
                    t[k : k + 1],
                    h[k : k + 1],
                    tolerance,
                    models=models,
                )
                if not len(states) or not look.deeper(states[0]):
                    break
            if not len(states):
                error = float(errors[0])
                break
            x = states[0]
            rows.append((x, multipliers[0], [errors[0]], u))
        return self.rows(rows), error
