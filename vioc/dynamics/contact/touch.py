"""What a touch is in any coordinates: its name, its cone, the names of its impulses and quantities."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass

from vioc.dynamics.contact.cones import Cone
from vioc.dynamics.description.system import System
from vioc.dynamics.terms.contacts import PairContact
from vioc.errors import ModelError

SLIP = 2  # tangential directions of a touch with friction


@dataclass(frozen=True)
class AnyTouch(ABC):
    """One gap of the mechanism, or what rubs without one: its name, and those of its impulses and quantities.

    Attributes
    ----------
    name : str
    cone : Cone
    placed : bool
        Whether it is a place of two polytopes, whose numbers every step finds.
    """

    name: str
    cone: Cone

    @property
    @abstractmethod
    def placed(self) -> bool: ...

    @property
    @abstractmethod
    def rows(self) -> int:
        """Impulses: the normal one where there is a gap, and those of friction."""

    @property
    def lead(self) -> int:
        """Rows before those of the slip."""
        return int(self.cone.gap)

    @property
    def single(self) -> bool:
        """Whether one of its impulses has its own name: all but friction of a point with a given load."""
        return self.cone.gap or self.rows == 1

    @property
    def multipliers(self) -> tuple[str, ...]:
        """Names of its impulses: normal, or a joint's friction; two of friction, and the slip's speed."""
        more = (f"{self.name}.t1", f"{self.name}.t2") * (self.rows - self.lead == SLIP)
        return (self.name,) * self.single + more + (f"{self.name}.slip",) * self.cone.friction

    @property
    def kinds(self) -> tuple[str, ...]:
        """Of its quantities."""
        kinds = ("gap",) * (self.cone.gap and not self.placed) + ("force",) * self.single
        return kinds + ("friction", "grip") * self.cone.friction


def unit_of(system: System, kind: str, touch: str, angles: Collection[str]) -> str:
    """Of a touch's quantity: of lengths, but where it is of variables that are `angles`."""
    items = zip(system.inequality_names, system.inequalities, strict=True)
    turning = [n for n, item in items if not set(angles).isdisjoint(item.variable_names())]
    turns = any(touch == n or touch.startswith(f"{n}-") for n in turning)
    length = "rad" if turns else "m"
    return {"gap": length, "slip": f"{length}/s"}.get(kind, "N m" if turns else "N")


def refuse_polytopes(system: System, what: str) -> None:
    """Raise `ModelError` where boxes or hulls meet each other."""
    for name, item in zip(system.inequality_names, system.inequalities, strict=True):
        if isinstance(item, PairContact) and item.by_features:
            raise ModelError(
                f"{system.name}: {what} boxes and hulls that meet each other ({name}), as the places are "
                "found in every step; give one of each pair as spheres or capsules"
            )
