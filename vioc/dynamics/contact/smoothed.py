"""Base class of one-step maps with smoothed contacts and joint limits, in any coordinates."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from vioc.dynamics.contact.crossings import (
    Crossing,
    crossed_grounds,
    crossed_shapes,
    crossed_spheres,
    warn_crossed,
)
from vioc.dynamics.contact.features import Features, MeetingPlaces
from vioc.dynamics.contact.look import DEEP
from vioc.dynamics.contact.polytopes import PLACES
from vioc.dynamics.contact.touch import AnyTouch, refuse_polytopes, unit_of
from vioc.dynamics.description.numbers import Number, Parameter
from vioc.dynamics.description.system import System
from vioc.dynamics.masses import natural_length
from vioc.dynamics.terms.joint_limits import JointLimits
from vioc.errors import ConstraintError, ModelError
from vioc.maps.kernel import KernelMap
from vioc.maps.relaxed import RelaxedStep
from vioc.runs.trajectory import Trajectory

PENETRATION = 5e-6  # lengths of the mechanism or rad, accepted at the start of a step


def as_smoothing(value: float) -> float:
    """Return the smoothing parameter of contacts, m^2/s^2, as a float > 0.
    Any other value raises a ValueError.
    """
    if not 0 < float(value) < np.inf:
        raise ValueError(f"smoothing: expected a number > 0 (m^2/s^2), got {value!r}")
    return float(value)


class SmoothedMap(KernelMap):
    """Base class of one-step maps of systems with contacts and joint limits.

    Attributes
    ----------
    smoothing : float
        Smoothing of contacts and joint limits, m^2/s^2.
    """

    system: System
    smoothing: float
    frame_positions: Callable[[Any], np.ndarray]
    _relaxed: Callable[[np.ndarray, float], RelaxedStep]

    @property
    @abstractmethod
    def meetings(self) -> Sequence[AnyTouch]:
        """Contacts and joint limits of the system, in the order in which `gaps` returns their gaps.
        In this order, the contact points of one pair of polytopes follow one another.
        """

    @property
    @abstractmethod
    def features(self) -> Features:
        """Object that searches for the contact points of boxes and hulls."""

    @abstractmethod
    def seen(self, x: np.ndarray, dt: float, theta: np.ndarray) -> MeetingPlaces:
        """Return the contact points of boxes and hulls that touch in state x, or may touch within a step.
        The step has the length `dt`. The parameters of the map are `theta`.
        """

    @abstractmethod
    def smooth_gaps(self, x: np.ndarray) -> np.ndarray:
        """Return the gaps of contacts and joint limits in states x (..., nx).
        The result does not have the gaps between polytopes (boxes and hulls).
        """

    @abstractmethod
    def _motions(self, x: np.ndarray) -> np.ndarray:
        """Return, for each of N steps, the largest change of a position or an angle.
        Changes of positions are divided by the natural length of the mechanism; changes of angles are in rad.

        The steps are those of the samples x (N + 1, nx).
        """

    @abstractmethod
    def _between(self, start: np.ndarray, end: np.ndarray, shares: np.ndarray) -> np.ndarray:
        """Return states (n, nx) whose configurations are interpolated between those of two states.
        The fractions `shares` (n,) are 0 at the first state and 1 at the second.
        """

    @property
    @abstractmethod
    def frictions(self) -> np.ndarray:
        """Friction coefficients of all contacts.
        The entry of a contact without friction is 1; the entry of a dry friction component, which has no gap,
        is its largest friction force.
        """

    @cached_property
    def placed(self) -> np.ndarray:
        """Mask of contacts and joint limits: True for contact points of boxes and hulls.
        These contact points are searched for in each step.
        """
        return np.array([t.placed for t in self.meetings], bool)

    @cached_property
    def additive(self) -> np.ndarray:
        """Mask of the map's multipliers: True for impulses, False for slip speeds.
        The multipliers belong to constraints, contacts and joint limits.
        """
        impulsive = [n != f"{t.name}.slip" for t in self.meetings for n in t.multipliers]
        return np.array([True] * (len(self.multiplier_names) - len(impulsive)) + impulsive, bool)

    def gaps(self, x: np.ndarray) -> np.ndarray:
        """Return the gaps of all contacts and joint limits (..., n) in states (..., nx).

        All contact points of two polytopes have the same gap, infinite if the polytopes are far apart.
        """
        smooth = self.smooth_gaps(x)
        if not self.features.pairs:
            return smooth
        gaps = np.empty((*x.shape[:-1], len(self.meetings)))
        of_polytopes = [self.seen(s, self.dt, self.theta).gaps for s in x.reshape(-1, self.nx)]
        gaps[..., ~self.placed] = smooth
        gaps[..., self.placed] = np.repeat(of_polytopes, PLACES, axis=1).reshape(*x.shape[:-1], -1)
        return gaps

    def _warn_crossed(self, trajectory: Trajectory) -> None:
        if self.meetings:
            warn_crossed(trajectory, self._crossings(trajectory))

    def _crossings(self, run: Trajectory) -> Iterator[Crossing]:
        """Yield the pairs of bodies of a trajectory that pass through each other within a step."""
        gaps = zip((t.name for t in self.meetings), self.gaps(run.x[0]), strict=True)
        yield from crossed_spheres(self, run, dict(gaps))
        yield from crossed_shapes(self, run)
        yield from crossed_grounds(self, run, self._motions, self._between)

    def _relaxed_step(self) -> RelaxedStep | None:
        refuse_polytopes(self.system, "there are no equations along a trajectory of")
        return self._relaxed(self.theta, self.smoothing) if self.meetings else None


def check_apart(f: SmoothedMap, X: np.ndarray, k: int) -> None:
    """Raise an error if bodies overlap, or variables exceed limits, at the start of a step.

    Friction coefficients must be > 0. The starts are the states X (N, nx) of the steps from k on.
    """
    mu, each = f.frictions, f.gaps(X)
    if not mu.min() > 0:
        raise ModelError(
            f"{f.system.name}: the coefficient of friction of {f.meetings[int(np.argmin(mu))].name} is "
            f"{mu.min():g}, expected > 0 where it is a parameter"
        )
    accepted = _penetration(f.system, tuple(t.name for t in f.meetings))
    if f.features.pairs:
        accepted = accepted.copy()
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
            f"({accepted[worst]:.3g} {unit} beyond is accepted){more}; move the start, or the limit"
        )
    raise ConstraintError(
        f"{f.system.name}: step {k} starts in penetration: the gap of {name} is {gaps[worst]:.3g} {unit}, "
        f"expected >= 0 (-{accepted[worst]:.3g} {unit} is accepted){more}; move the bodies apart"
    )


@lru_cache(maxsize=32)
def _penetration(system: System, names: tuple[str, ...]) -> np.ndarray:
    """Return the largest penetration that is accepted at the start of a step, m or rad.
    The result has an entry for each of the named contacts and joint limits.
    """
    length, angles = natural_length(system), system.angles
    units = [unit_of(system, "gap", name, angles) for name in names]
    return PENETRATION * np.where(np.array(units, object) == "rad", 1.0, length)


def _limit_of(f: SmoothedMap, touch: str) -> tuple[JointLimits | None, str, float]:
    """Return the `JointLimits` component, the side and the value of a joint limit.
    The limit is given by its name `touch`; its side is "lower" or "upper". If `touch` is the name of a
    contact, the result is (None, "", 0).
    """
    name, _, side = touch.rpartition("-")
    for n, item in zip(f.system.inequality_names, f.system.inequalities, strict=True):
        if n == name and isinstance(item, JointLimits):
            return item, side, value_of(f, getattr(item, side))
    return None, "", 0.0


def value_of(f: SmoothedMap, number: Number) -> float:
    """Return the value of a number, which may be a parameter of the map."""
    return float(number.of(f.parameters[number.name])) if isinstance(number, Parameter) else float(number)
