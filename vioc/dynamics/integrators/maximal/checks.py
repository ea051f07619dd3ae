"""What is checked of contact and limits: that starts are open, and what passes through within a step.

Contact and limits hold at the ends of steps only.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from vioc.dynamics.description.numbers import Number, Parameter
from vioc.dynamics.integrators.maximal.features import PLACES
from vioc.dynamics.terms.contacts import PairContact
from vioc.dynamics.terms.limits import JointLimits
from vioc.dynamics.terms.shapes import Sphere
from vioc.errors import ConstraintError, CrossingWarning, ModelError
from vioc.maps.trajectory import Trajectory

if TYPE_CHECKING:
    from vioc.dynamics.integrators.maximal.map import MaximalVI

PENETRATION = 1e-6  # m or rad, of a start
DEEP = 0.1  # of the size of boxes and hulls: they come out slowly, and no run ends with much less
TOUCHING = 1e-6  # m; or ten times what the smoothing holds open, where that is more
GRAZE = 0.01  # of the radii: what a path between samples may be off its chord


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
            accepted[i] = DEEP * f.graph.features.sizes[touch.place // PLACES]
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


class Crossing(NamedTuple):
    """Of a gap, the first step in which it is crossed, in how many, and how deep it is between."""

    name: str
    step: int
    steps: int
    depth: float


def warn_crossed(f: MaximalVI, run: Trajectory) -> None:
    """Warn (`CrossingWarning`) where spheres pass through each other, or an angle leaps over its limits."""
    found = sorted(crossings(f, run), key=lambda c: c.step)
    if not found:
        return
    first, h = found[0], run.step_lengths[found[0].step]
    more = f" ({len(found) - 1} more gaps later)" if len(found) > 1 else ""
    unit = f.unit(f"gap.{first.name}")
    warnings.warn(
        f"{first.name} is crossed within a step: the gap is open at t = {run.t[first.step]:g} s and {h:g} s "
        f"later, but {first.depth:.3g} {unit} below zero between{more}. Contact holds at the ends of steps: "
        "what moves by more than its own size in one passes through; use a smaller dt",
        CrossingWarning,
        stacklevel=4,
    )


def crossings(f: MaximalVI, run: Trajectory) -> Iterator[Crossing]:
    """Of pairs of spheres and limits of angles, by straight paths between the samples."""
    pairs = list(zip(f.system.inequality_names, f.system.inequalities, strict=True))
    wanted = [(n, item) for n, item in pairs if isinstance(item, PairContact) and _of_spheres(item)]
    places = f.frame_positions(run.x) if wanted else None
    open_at = np.maximum(TOUCHING, 10 * np.sqrt(f.smoothing) * run.step_lengths)
    gaps = f.gaps(run.x[0])[0] if wanted else None
    for name, item in wanted:
        at = [f.system.frame_index(n) for n in (item.frame1, item.frame2)]
        ends = [np.zeros((len(run.x), 3)) if i < 0 else places[:, i] for i in at]  # type: ignore[index]
        d = ends[1] - ends[0]
        apart = np.linalg.norm(d, axis=1)
        reach = apart[0] - gaps[[t.name for t in f.graph.touches].index(name)]  # type: ignore[index]
        travel = np.diff(d, axis=0)
        length = np.sum(travel**2, axis=1)
        s = np.clip(-np.sum(d[:-1] * travel, axis=1) / np.where(length > 0, length, 1.0), 0.0, 1.0)
        depth = reach - np.linalg.norm(d[:-1] + s[:, None] * travel, axis=1)
        was_open, is_open = apart[:-1] - reach > open_at, apart[1:] - reach > open_at
        behind = np.sum(d[:-1] * d[1:], axis=1) < 0
        yield from _first(name, (depth > GRAZE * reach) & ((was_open & is_open) | behind), depth)
    for name, limits in pairs:
        if not isinstance(limits, JointLimits) or limits.variable not in f.states.periods:
            continue  # a distance cannot leap: its gap is below zero on the far side
        period, q = f.states.periods[limits.variable], run[limits.variable]
        path = q[:-1] + np.remainder(np.diff(q) + period / 2, period) - period / 2
        upper, lower = path - _value(f, limits.upper), _value(f, limits.lower) - path
        for side, beyond in (("upper", upper), ("lower", lower)):
            yield from _first(f"{name}-{side}", beyond > np.maximum(1e-6, open_at), beyond)


def _of_spheres(item: PairContact) -> bool:
    """Whether two spheres about the origins of frames meet, whose paths are those of these."""
    shapes = item.shape1, item.shape2
    return all(isinstance(s, Sphere) and not any(map(float, s.center)) for s in shapes)


def _first(name: str, crossed: np.ndarray, depth: np.ndarray) -> Iterator[Crossing]:
    steps = np.flatnonzero(crossed)
    if len(steps):
        yield Crossing(name, int(steps[0]), len(steps), float(depth[steps[0]]))
