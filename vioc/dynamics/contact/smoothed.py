"""`SmoothedMap`: what maps with smoothed contacts and limits share, in whatever coordinates."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from vioc.dynamics.contact.crossings import Crossing, crossed_shapes, crossed_spheres, warn_crossed
from vioc.dynamics.contact.features import Features, MeetingPlaces
from vioc.dynamics.contact.look import DEEP
from vioc.dynamics.contact.polytopes import PLACES
from vioc.dynamics.contact.touch import AnyTouch, refuse_polytopes
from vioc.dynamics.description.numbers import Number, Parameter
from vioc.dynamics.description.system import System
from vioc.dynamics.terms.joint_limits import JointLimits
from vioc.errors import ConstraintError, ModelError
from vioc.maps.kernel import KernelMap
from vioc.maps.relaxed import RelaxedStep
from vioc.runs.trajectory import Trajectory

PENETRATION = 1e-6  # m or rad, of a start


def as_smoothing(value: float) -> float:
    """A smoothing, m^2/s^2, that is one."""
    if not 0 < float(value) < np.inf:
        raise ValueError(f"smoothing: expected a number > 0 (m^2/s^2), got {value!r}")
    return float(value)


class SmoothedMap(KernelMap):
    """A map of a system with contacts or limits of joints, or that may have them.

    Attributes
    ----------
    smoothing : float
        Of contacts and limits, m^2/s^2.
    """

    system: System
    smoothing: float
    frame_positions: Callable[[Any], np.ndarray]
    _relaxed: Callable[[np.ndarray, float], RelaxedStep]

    @property
    @abstractmethod
    def meetings(self) -> Sequence[AnyTouch]:
        """Its touches, in their order; the places of two polytopes stand together."""

    @property
    @abstractmethod
    def features(self) -> Features:
        """Where polytopes meet."""

    @abstractmethod
    def seen(self, x: np.ndarray, dt: float, theta: np.ndarray) -> MeetingPlaces:
        """The places of polytopes that meet in a state x (nx,), or may within dt."""

    @abstractmethod
    def smooth_gaps(self, x: np.ndarray) -> np.ndarray:
        """phi of every touch but the places of polytopes, in states (..., nx)."""

    @property
    @abstractmethod
    def frictions(self) -> np.ndarray:
        """Of every touch Coulomb's coefficient, 1 where there is none; without a gap the most it may be."""

    @cached_property
    def placed(self) -> np.ndarray:
        """Which of the touches are places of polytopes."""
        return np.array([t.placed for t in self.meetings], bool)

    @cached_property
    def additive(self) -> np.ndarray:
        """Which of the multipliers are impulses; slips are speeds, those at the end of a step."""
        own = [n != f"{t.name}.slip" for t in self.meetings for n in t.multipliers]
        return np.array([True] * (len(self.multiplier_names) - len(own)) + own, bool)

    def gaps(self, x: np.ndarray) -> np.ndarray:
        """phi of every contact and limit (..., n) in states (..., nx).

        Of two polytopes all places have the one gap, infinite where they are far apart.
        """
        smooth = self.smooth_gaps(x)
        if not self.features.pairs:
            return smooth
        found = np.empty((*x.shape[:-1], len(self.meetings)))
        own = [self.seen(s, self.dt, self.theta).gaps for s in x.reshape(-1, self.nx)]
        found[..., ~self.placed] = smooth
        found[..., self.placed] = np.repeat(own, PLACES, axis=1).reshape(*x.shape[:-1], -1)
        return found

    def _warn_crossed(self, trajectory: Trajectory) -> None:
        if self.meetings:
            warn_crossed(trajectory, self._crossings(trajectory))

    def _crossings(self, run: Trajectory) -> Iterator[Crossing]:
        """What passes through each other within a step."""
        gaps = zip((t.name for t in self.meetings), self.gaps(run.x[0]), strict=True)
        yield from crossed_spheres(self, run, dict(gaps))
        yield from crossed_shapes(self, run)

    def _relaxed_step(self) -> RelaxedStep | None:
        refuse_polytopes(self.system, "there are no equations along a trajectory of")
        return self._relaxed(self.theta, self.smoothing) if self.meetings else None


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
