"""Base class of contacts, with names of their impulses and further quantities."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection
from dataclasses import dataclass

from vioc.dynamics.contact.cones import Cone
from vioc.dynamics.description.system import System
from vioc.dynamics.terms.contacts import PairContact
from vioc.errors import ModelError

SLIP = 2  # tangential directions of a contact with friction


@dataclass(frozen=True)
class AnyTouch(ABC):
    """Base class of contacts, joint limits and dry friction of a mechanism.
    It names the multipliers of a contact: normal impulse, friction impulses and slip speed.

    Attributes
    ----------
    name : str
    cone : Cone
    placed : bool
        Whether it is a contact point of two polytopes, which every step determines anew.
    """

    name: str
    cone: Cone

    @property
    @abstractmethod
    def placed(self) -> bool: ...

    @property
    @abstractmethod
    def rows(self) -> int:
        """Number of impulses: a normal impulse if there is a gap, and friction impulses."""

    @property
    def lead(self) -> int:
        """Number of normal impulses: 1 for a contact with a gap, else 0."""
        return int(self.cone.gap)

    @property
    def single(self) -> bool:
        """Flag, True if the first impulse has the name of the contact, without a suffix.
        It is False for dry friction of a point on a plane, which has two impulses with suffixes.
        """
        return self.cone.gap or self.rows == 1

    @property
    def multipliers(self) -> tuple[str, ...]:
        """Names of the multipliers: normal impulse, friction impulses, then slip speed."""
        more = (f"{self.name}.t1", f"{self.name}.t2") * (self.rows - self.lead == SLIP)
        return (self.name,) * self.single + more + (f"{self.name}.slip",) * self.cone.friction

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of quantities of the contact that can be read from a trajectory, such as gap and force."""
        kinds = ("gap",) * (self.cone.gap and not self.placed) + ("force",) * self.single
        return kinds + ("friction", "grip") * self.cone.friction


def unit_of(system: System, kind: str, touch: str, angles: Collection[str]) -> str:
    """Return the unit of a quantity of a contact or joint limit, given its kind.
    The argument `kind` is the kind of quantity, such as "gap", and `touch` the name of the contact or limit.
    Limits of variables in `angles` have angular units.
    """
    items = zip(system.inequality_names, system.inequalities, strict=True)
    turning = [n for n, item in items if not set(angles).isdisjoint(item.variable_names())]
    turns = any(touch == n or touch.startswith(f"{n}-") for n in turning)
    length = "rad" if turns else "m"
    return {"gap": length, "slip": f"{length}/s"}.get(kind, "N m" if turns else "N")


def refuse_polytopes(system: System, what: str) -> None:
    """Raise `ModelError` if the system has contacts between boxes or hulls.
    The text `what` says in the message which computation does not support them.
    """
    for name, item in zip(system.inequality_names, system.inequalities, strict=True):
        if isinstance(item, PairContact) and item.by_features:
            raise ModelError(
                f"{system.name}: {what} boxes and hulls that meet each other ({name}), because "
                "every step finds their contact points; give one of each pair as spheres or capsules"
            )
