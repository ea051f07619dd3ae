"""Named quantities of contacts, such as gaps and forces, as CasADi expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import casadi as ca

from vioc.dynamics.contact.touch import unit_of
from vioc.dynamics.integrators.contact.touching import Touches, Touching
from vioc.errors import ModelError
from vioc.maps.quantities import QuantityTable

if TYPE_CHECKING:
    from vioc.dynamics.integrators.mechanical import MechanicalMap

KINDS = "gap", "force", "friction", "grip"


class TouchQuantities:
    """Named quantities of the contacts, joint limits and dry friction of a map.
    For a contact NAME they are ``gap.NAME`` (m or rad); ``force.NAME``, the normal force or, for dry friction
    of a joint, the friction force (N or N m); ``force.NAME:x``, ``force.NAME:y`` and ``force.NAME:z``, the
    components in world axes of the total force on the second body (N); ``friction.NAME``, the magnitude of
    the friction force (N or N m); and ``grip.NAME``, the largest friction force minus this magnitude (N or N
    m).

    Parameters
    ----------
    f : MechanicalMap
    touches : Touches
    impulse : Touching -> column, list of int
        Impulse of a contact in the map's multipliers; its directions, normal (0) and tangents (1, 2).
    more : dict of str to (Touching -> expression or None), optional
        Further kinds of quantities.
    """

    def __init__(
        self,
        f: MechanicalMap,
        touches: Touches,
        impulse: Callable[[Touching], tuple[ca.SX, list[int]]],
        more: Mapping[str, Callable[[Touching], ca.SX | None]] | None = None,
    ):
        self._f, self._touches, self._impulse, self._more = f, touches, impulse, more or {}
        self.table = QuantityTable(self._find, self._names, self._unit)

    def _named(self, name: str) -> tuple[str, str, Touching | None]:
        """Split the name of a quantity of a contact into its kind, axis and contact.
        For example, ``force.NAME:x`` has the kind ``force`` and the axis ``x``. The third result is the
        contact with the name NAME, or None if there is no such contact.
        """
        kind, _, rest = name.partition(".")
        touch, _, axis = rest.partition(":")
        touches = self._touches.all if kind in (*KINDS, *self._more) else []
        return kind, axis, next((t for t in touches if t.name == touch), None)

    def _find(self, name: str) -> ca.SX | None:
        kind, axis, touch = self._named(name)
        if touch is None:
            return None
        if kind in self._more:
            return None if axis else self._more[kind](touch)
        if kind not in touch.kinds if not axis else kind != "force":
            return None
        (impulse, along), dt = self._impulse(touch), self._f.symbols.dt
        if kind == "gap":
            return self._at(touch.gap)
        if kind == "force" and not axis:
            return impulse[0] / dt
        if kind == "force":
            defined = axis in ("x", "y", "z") and touch.axes.numel()
            return self._at(touch.axes)["xyz".index(axis), along] @ impulse / dt if defined else None
        size = ca.sqrt(ca.sumsqr(impulse[touch.lead :]))
        return size / dt if kind == "friction" else (self.most(touch, impulse) - size) / dt

    def most(self, touch: Touching, normal: ca.SX) -> ca.SX:
        """Return the largest friction impulse that a contact can have in a step.
        It is the friction coefficient times the normal impulse, which is the first entry of `normal`. For dry
        friction it is the largest friction force times the step length.
        """
        return self.friction(touch) * (normal[0] if touch.cone.gap else self._f.symbols.dt)

    def friction(self, touch: Touching) -> ca.SX:
        """Return the friction coefficient of a contact, or the largest force of dry friction."""
        return self._at(touch.friction)

    def _at(self, expression: ca.SX) -> ca.SX:
        f, g = self._f, self._f.lagrangian.graph
        q, theta = f.symbols.x[: f.nq], f.symbols.parameters
        return ca.Function("at", [g.q_vector, g.parameters], [expression])(q, theta)

    def _names(self) -> list[str]:
        touches = self._touches.all
        return [
            *(f"{k}.{t.name}" for t in touches for k in t.kinds),
            *(f"force.{t.name}:{axis}" for t in touches if t.axes.numel() for axis in "xyz"),
            *(f"{k}.{t.name}" for k, make in self._more.items() for t in touches if make(t) is not None),
        ]

    def _unit(self, name: str) -> str | None:
        kind, _, touch = self._named(name)
        return None if touch is None else unit_of(self._f.system, kind, touch.name, self._f.system.angles)


def check_touches(f: MechanicalMap) -> None:
    """Raise `ModelError` if a map's system has no contacts, joint limits or dry friction."""
    if not f.system.inequalities:
        raise ModelError(
            f"{f.system.name}: it has no contacts, limits of joints or dry friction; use MidpointVI"
        )
