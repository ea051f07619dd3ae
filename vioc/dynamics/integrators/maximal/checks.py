"""What is checked of contact and limits: that starts are open, and what passes through within a step.

Contact and limits hold at the ends of steps only.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from vioc.dynamics.description.numbers import Number, Parameter
from vioc.dynamics.integrators.contact.crossings import (
    Crossing,
    crossed_shapes,
    crossed_spheres,
    first_crossed,
    open_from,
)
from vioc.dynamics.integrators.contact.look import DEEP
from vioc.dynamics.integrators.contact.polytopes import PLACES
from vioc.dynamics.terms.limits import JointLimits
from vioc.errors import ConstraintError, ModelError
from vioc.maps.trajectory import Trajectory

if TYPE_CHECKING:
    from vioc.dynamics.integrators.maximal.map import MaximalVI

PENETRATION = 1e-6  # m or rad, of a start


def check_apart(f: MaximalVI, X: np.ndarray, k: int) -> None:
    """Refuse to start, in states X (N, nx) at the steps from k on, where bodies overlap, or joints are beyond
    their limits; and a parameter mu <= 0.
    """
    each, mu = f.gaps(X)
    if not mu.min() > 0:
        name = f.graph.touches[int(np.unravel_index(np.argmin(mu), mu.shape)[1])].name
        raise ModelError(
            f"{f.system.name}: the coefficient of friction of {name} is {mu.min():g}, expected > 0 where it "
            "is a parameter"
        )
    accepted = np.full(each.shape[1], PENETRATION)
    for i, touch in enumerate(f.graph.touches):
        if touch.place is not None:
            accepted[i] = DEEP * f.graph.features.smaller[touch.place // PLACES]
    over = np.flatnonzero(~(each + accepted >= 0).all(axis=1))
    if not len(over):
        return
    k, gaps = k + int(over[0]), each[over[0]]
    worst = int(np.argmin(gaps + accepted))
    name = f.graph.touches[worst].name
    unit = f.unit(f"gap.{name}")
    others = int((gaps < -accepted).sum()) - 1
    more = f", and {others} more do" if others else ""
    item, side, limit = _limit_of(f, name)
    if item is not None:
        raise ConstraintError(
            f"{f.system.name}: step {k}: {item.variable!r} starts {-gaps[worst]:.3g} {unit} beyond its "
            f"{side} limit {limit:g}, expected {_value(f, item.lower):g} to {_value(f, item.upper):g} "
            f"({PENETRATION:g} {unit} beyond is accepted){more}; move the start, or the limit"
        )
    raise ConstraintError(
        f"{f.system.name}: step {k} starts in penetration: the gap of {name} is {gaps[worst]:.3g} {unit}, "
        f"expected >= 0 (-{accepted[worst]:.3g} {unit} is accepted){more}; move the bodies apart"
    )


def _limit_of(f: MaximalVI, touch: str) -> tuple[JointLimits | None, str, float]:
    """The limits that a touch belongs to, which of the two, and its value; None if it is no limit."""
    name, _, side = touch.rpartition("-")
    for n, item in zip(f.system.inequality_names, f.system.inequalities, strict=True):
        if n == name and isinstance(item, JointLimits):
            return item, side, _value(f, getattr(item, side))
    return None, "", 0.0


def _value(f: MaximalVI, number: Number) -> float:
    """A number at the map's parameters."""
    return float(number.of(f.parameters[number.name])) if isinstance(number, Parameter) else float(number)


def crossings(f: MaximalVI, run: Trajectory) -> Iterator[Crossing]:
    """Of pairs of shapes, and of limits of angles, which may leap over them."""
    names = [t.name for t in f.graph.touches]
    yield from crossed_spheres(f, run, dict(zip(names, f.gaps(run.x[0])[0], strict=True)))
    yield from crossed_shapes(f, run)
    pairs, open_at = zip(f.system.inequality_names, f.system.inequalities, strict=True), open_from(f, run)
    for name, limits in pairs:
        if not isinstance(limits, JointLimits) or limits.variable not in f.states.periods:
            continue  # a distance cannot leap: its gap is below zero on the far side
        period, q = f.states.periods[limits.variable], run[limits.variable]
        path = q[:-1] + np.remainder(np.diff(q) + period / 2, period) - period / 2
        upper, lower = path - _value(f, limits.upper), _value(f, limits.lower) - path
        for side, beyond in (("upper", upper), ("lower", lower)):
            yield from first_crossed(f"{name}-{side}", beyond > np.maximum(1e-6, open_at), beyond)
