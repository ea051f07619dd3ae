"""`TouchingMap`: what integrators in generalized coordinates with contacts share, the names of quantities."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

import casadi as ca

from vioc.dynamics.contact.touch import unit_of
from vioc.dynamics.integrators.contact.touching import Touches, Touching
from vioc.dynamics.integrators.midpoint import MidpointVI
from vioc.dynamics.lagrangian import OPTIONS
from vioc.errors import ModelError
from vioc.maps.twins import shared


class TouchingMap(MidpointVI):
    """A midpoint rule of a system with contacts or limits of joints.

    Notes
    -----
    Quantities of contacts, limits and dry friction: ``gap.NAME`` (m or rad), ``force.NAME`` (normal, N, or
    N m), ``friction.NAME`` (its size, N), ``grip.NAME`` (what friction has left, mu times the force less the
    friction, N), ``force.NAME:x`` (y, z; all of it, in the world, on the second body).
    """

    choices: ClassVar[tuple[str, ...]] = ("alpha", "forcing")
    contacts = True
    kinds: ClassVar[tuple[str, ...]] = ("gap", "force", "friction", "grip")

    @shared
    def touches(self) -> Touches:
        return Touches(self.lagrangian)

    def _check_touches(self) -> None:
        if not self.system.inequalities:
            raise ModelError(
                f"{self.system.name}: it has no contacts, limits of joints or dry friction; use MidpointVI"
            )

    @abstractmethod
    def _impulse(self, touch: Touching) -> tuple[ca.SX, list[int]]:
        """Of a contact, and along which of its normal (0) and tangents (1, 2)."""

    def quantity(self, name: str) -> ca.SX:
        kind, _, rest = name.partition(".")
        touch, _, axis = rest.partition(":")
        if kind in self.kinds:
            for known in self.touches.all:
                if known.name == touch:
                    found = self._of_touch(known, kind, axis)
                    if found is not None:
                        return found
        return super().quantity(name)

    def _of_touch(self, touch: Touching, kind: str, axis: str) -> ca.SX | None:
        (impulse, along), dt = self._impulse(touch), self.symbols.dt
        if kind not in touch.kinds if not axis else kind != "force":
            return None
        if kind == "gap":
            return self._at(touch.gap)
        if kind == "force" and not axis:
            return impulse[0] / dt
        if kind == "force":
            known = axis in ("x", "y", "z") and touch.axes.numel()
            return self._at(touch.axes)["xyz".index(axis), along] @ impulse / dt if known else None
        size = ca.sqrt(ca.sumsqr(impulse[touch.lead :]))
        return size / dt if kind == "friction" else (self._most(touch, impulse) - size) / dt

    def _most(self, touch: Touching, impulse: ca.SX) -> ca.SX:
        """What the impulse of friction may be."""
        return self._at(touch.friction) * (impulse[0] if touch.cone.gap else self.symbols.dt)

    def _at(self, expression: ca.SX) -> ca.SX:
        g = self.lagrangian.graph
        return ca.Function("at", [g.q_vector, g.parameters], [expression], OPTIONS)(*self._q_and_parameters)

    def _more_quantities(self) -> list[str]:
        touches = self.touches.all
        return [
            *super()._more_quantities(),
            *(f"{k}.{t.name}" for t in touches for k in t.kinds),
            *(f"force.{t.name}:{axis}" for t in touches if t.axes.numel() for axis in "xyz"),
        ]

    def unit(self, name: str) -> str:
        kind, _, rest = name.partition(".")
        touch = rest.partition(":")[0]
        if kind in self.kinds and touch in [t.name for t in self.touches.all]:
            return unit_of(self.system, kind, touch, self._angles)
        return super().unit(name)
