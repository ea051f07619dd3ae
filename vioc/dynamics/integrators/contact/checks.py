"""What is checked of a start: that it is open, and that friction has coefficients > 0."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vioc.dynamics.description.numbers import Number, Parameter
from vioc.dynamics.integrators.contact.look import DEEP
from vioc.dynamics.integrators.contact.polytopes import PLACES
from vioc.dynamics.terms.limits import JointLimits
from vioc.errors import ConstraintError, ModelError

if TYPE_CHECKING:
    from vioc.dynamics.integrators.contact.smoothed import SmoothedMap

PENETRATION = 1e-6  # m or rad, of a start


def check_apart(f: SmoothedMap, X: np.ndarray, k: int) -> None:
    """Refuse to start, in states X (N, nx) at the steps from k on, where bodies overlap, or joints are beyond
    their limits; and a parameter mu <= 0.
    """
    mu, each = f.frictions, f.gaps(X)
    if not mu.min() > 0:
        raise ModelError(
            f"{f.system.name}: the coefficient of friction of {f.meetings[int(np.argmin(mu))].name} is "
            f"{mu.min():g}, expected > 0 where it is a parameter"
        )
    accepted = np.full(len(f.meetings), PENETRATION)
    if f.features.pairs:
        accepted[f.placed] = DEEP * np.repeat(f.features.smaller, PLACES)
    over = np.flatnonzero(~(each + accepted >= 0).all(axis=1))
    if not len(over):
        return
    k, gaps = k + int(over[0]), each[over[0]]
    worst = int(np.argmin(gaps + accepted))
    name = f.meetings[worst].name
    unit = f.unit(f"gap.{name}")
    others = int((gaps < -accepted).sum()) - 1
    more = f", and {others} more do" if others else ""
    item, side, limit = _limit_of(f, name)
    if item is not None:
        raise ConstraintError(
            f"{f.system.name}: step {k}: {item.variable!r} starts {-gaps[worst]:.3g} {unit} beyond its "
            f"{side} limit {limit:g}, expected {value_of(f, item.lower):g} to {value_of(f, item.upper):g} "
            f"({PENETRATION:g} {unit} beyond is accepted){more}; move the start, or the limit"
        )
    raise ConstraintError(
        f"{f.system.name}: step {k} starts in penetration: the gap of {name} is {gaps[worst]:.3g} {unit}, "
        f"expected >= 0 (-{accepted[worst]:.3g} {unit} is accepted){more}; move the bodies apart"
    )


def _limit_of(f: SmoothedMap, touch: str) -> tuple[JointLimits | None, str, float]:
    """The limits that a touch belongs to, which of the two, and its value; None if it is no limit."""
    name, _, side = touch.rpartition("-")
    for n, item in zip(f.system.inequality_names, f.system.inequalities, strict=True):
        if n == name and isinstance(item, JointLimits):
            return item, side, value_of(f, getattr(item, side))
    return None, "", 0.0


def value_of(f: SmoothedMap, number: Number) -> float:
    """A number at the map's parameters."""
    return float(number.of(f.parameters[number.name])) if isinstance(number, Parameter) else float(number)
