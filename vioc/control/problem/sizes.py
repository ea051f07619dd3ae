"""Typical sizes of states and inputs, which make a search independent of units.

A size is a product of powers of a mass, a length and a time: the mass of the mechanism, the extent of
mechanism and motion, and the duration or, if the mechanism has an extent, the time of a fall by this length
where this time is shorter. The size of a momentum or input of a single variable follows from the inertia of
this variable instead of the whole mechanism's: a wrist needs less torque than a shoulder.
Quantities without a known unit have size 1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from vioc.maps.made.extended import PARAMETER, START
from vioc.maps.protocol import OneStepMap
from vioc.names import INPUTS
from vioc.runs.trajectory import Trajectory

LARGEST = 1e48  # largest unit; products of a few such units are finite numbers
POWERS = {  # powers of mass, length and time
    "": (0, 0, 0),
    "1": (0, 0, 0),
    "rad": (0, 0, 0),
    "kg": (1, 0, 0),
    "m": (0, 1, 0),
    "s": (0, 0, 1),
    "N": (1, 1, -2),
    "J": (1, 2, -2),
    "W": (1, 2, -3),
}


def powers(unit: str) -> tuple[int, int, int] | None:
    """Return the powers of mass, length and time in a unit such as ``"kg m^2/s"``.

    None if a part of the unit is not known.
    """
    total = np.zeros(3, int)
    for sign, part in zip((1, -1), unit.partition("/")[::2], strict=True):
        for token in part.strip("() ").split():
            found = re.fullmatch(r"([A-Za-z0-9]+?)(?:\^(\d+))?", token)
            if found is None or found[1] not in POWERS:
                return None
            total += sign * int(found[2] or 1) * np.array(POWERS[found[1]])
    return (int(total[0]), int(total[1]), int(total[2])) if unit else None


def as_unit(value: float) -> float:
    """Return a value as a unit: 1 if it is not positive and finite.
    The unit is between `LARGEST` and its inverse.

    The value is not rounded, so the problem in other units of mass, length and time leads to the same scaled
    problem, and to the same iterates up to rounding errors.
    """
    return float(np.clip(value, 1 / LARGEST, LARGEST)) if 0 < value < np.inf else 1.0


class Sizes:
    """Typical sizes of states and inputs, from a problem's mass, length and time.

    Parameters
    ----------
    f : OneStepMap
    X, U : (N+1, nx), (N, nu)
        The guess.
    duration : float
        Duration, s.
    known : mapping of str to value
        Values and limits of quantities, by name, that determine the length if the mechanism has none.
    single : bool
        True if sizes of single variables' momenta and inputs follow from the inertias of these variables.

    Attributes
    ----------
    time : float
        The unit of time, s.
    gravity : float
        Acceleration of gravity, m/s^2, 0 without gravity.
    extent : float
        Extent of the mechanism in the first state, m: the largest distance between its masses or radius of
        gyration.
    measured : bool
        True if the length follows from the problem; False if the problem has none and 1 m is assumed.
    """

    def __init__(
        self,
        f: OneStepMap,
        X: np.ndarray,
        U: np.ndarray,
        duration: float,
        known: Mapping[str, Any],
        single: bool = True,
    ):
        self.map = f
        body: Any = f
        while getattr(body, "inner", None) is not None:
            body = body.inner
        self._mass, self.time = 0.0, duration
        extent = self.extent = 0.0
        self._inertia: dict[str, float] = {}
        system = getattr(body, "system", None)
        if system is not None:
            self._mass = system.mass(body.parameters)
            self._inertia = _inertias(body)
            self.extent = max(_between_masses(body, X[:1]), self._gyration(body))
            extent = max(_extent(body, X), self.extent)
        inputs = (INPUTS + n for n in f.input_names)
        values = [*zip(f.state_names, X.T, strict=True), *zip(inputs, U.T, strict=True), *known.items()]
        told = [(f.unit(n), value) for n, value in values]
        constants = [n for n in f.state_names if n.startswith(PARAMETER) and powers(f.unit(n)) is None]
        self._own = {n: as_unit(_largest(*(v for m, v in values if m == n))) for n in constants}
        if not self._mass and hasattr(body, "mass_scale"):
            self._mass = float(np.max(body.mass_scale)) / (extent or 1.0) ** 2
        self._mass = self._mass or 1.0
        self.gravity = 0.0 if system is None else system.gravity(body.parameters)
        # without lengths: those implied by speeds, then by forces from rest to rest, then by a fall
        found = self._lengths(told)
        length = max(extent, found[0]) or found[1] or found[2] / 4 or self.gravity * duration**2 or 1.0
        self.measured = bool(max(extent, *found, self.gravity * duration))
        if self.gravity and self.extent:
            self.time = min(self.time, float(np.sqrt(length / self.gravity)))
        self._mass, self._length, self.time = as_unit(self._mass), as_unit(length), as_unit(self.time)
        self._shares = self._relative_inertias(body) if single else {}

    def _gyration(self, body: Any) -> float:
        """Return the largest radius of gyration of an angle, m, or 0 without angles."""
        turning = [value for name, value in self._inertia.items() if name in body.system.angles]
        return float(np.sqrt(max(turning, default=0.0) / self._mass)) if self._mass else 0.0

    def _relative_inertias(self, body: Any) -> dict[str, float]:
        """Return inertias of joint variables, relative to the inertia of the mechanism.
        The keys are the names of the momenta of these variables, and of the inputs that drive the variables.
        """
        found = dict[str, float]()
        for name, inertia in self._inertia.items():
            momentum = f"p.{name}"
            a = powers(self.map.unit(momentum)) if momentum in self.map.state_names else None
            if a is not None:
                whole = self._mass * self._length ** (2 * (a[1] - 1))
                found[momentum] = as_unit(inertia / whole)
        for force in body.system.forces if self._inertia else ():
            moved, driven = force.variable_names(), force.input_names()
            if len(moved) == len(driven) == 1 and not force.frame_names():
                found[INPUTS + driven[0]] = found.get(f"p.{moved[0]}", 1.0)
        return found

    def _lengths(self, told: Iterable[tuple[str, Any]]) -> list[float]:
        """Return three typical lengths, from given lengths, speeds and forces.
        Each follows from the largest given value of its kind. Speeds and forces are converted to lengths by
        the mass and the duration of the problem.
        """
        found = [0.0, 0.0, 0.0]
        for unit, value in told:
            of = powers(unit)
            if of is None or of[1] == 0:
                continue
            size = _largest(value)
            kind = min(2, abs(of[2]))
            length = (size / (self._mass ** of[0] * self.time ** of[2])) ** (1 / of[1])
            found[kind] = max(found[kind], length)
        return found

    def of(self, name: str) -> float:
        """Return the typical size of a quantity, 1 if its unit is not known."""
        return self.known(name) or 1.0

    def known(self, name: str) -> float | None:
        """Return the typical size of a quantity, None if its unit is not known.

        Free parameters have sizes from their values and limits. The initial value of a periodic state has the
        size of this state, with which it changes.
        """
        name = name.removeprefix(START)
        size = self.of_unit(self.map.unit(name))
        return self._own.get(name) if size is None else size * self._shares.get(name, 1.0)

    def of_unit(self, unit: str) -> float | None:
        """Return the typical size of quantities with a given SI unit.
        Return None if the unit contains symbols other than kg, m, s, rad, N, J and W.
        """
        a = powers(unit)
        return None if a is None else float(self._mass ** a[0] * self._length ** a[1] * self.time ** a[2])

    def apart(self, X: np.ndarray, other: np.ndarray) -> float:
        """Return the largest relative difference between two sequences of states (N, nx).
        States are in units of their typical sizes; differences are relative to 1 + |x|.
        """
        return float(self.each_apart(X, other).max(initial=0.0))

    def each_apart(self, X: np.ndarray, other: np.ndarray) -> np.ndarray:
        """Return the relative differences (N,) between two sequences of states (N, nx).
        States are in units of their typical sizes; differences are relative to 1 + the largest |x|.
        """
        off = np.abs(self.map.difference(X, other) / self.states).max(axis=-1, initial=0.0)
        return np.asarray(off / (1 + np.abs(X / self.of_states).max(initial=0.0)))

    @classmethod
    def along(cls, run: Trajectory) -> Sizes:
        """Return the typical sizes of states and inputs along a trajectory."""
        return cls(run.map, run.x, run.u, run.duration, {})

    @cached_property
    def states(self) -> np.ndarray:
        """Typical sizes (ndx,) of the components of errors of the state.
        Such an error is a small displacement from a state, as a tangent vector.
        """
        return np.array([self.of(name) for name in self.map.space.error_names])

    @cached_property
    def of_states(self) -> np.ndarray:
        """Typical sizes of the states (nx,)."""
        return np.array([self.of(name) for name in self.map.state_names])

    @cached_property
    def inputs(self) -> np.ndarray:
        """Typical sizes of the inputs (nu,)."""
        return np.array([self.of(INPUTS + name) for name in self.map.input_names])


def _largest(*values: Any) -> float:
    """Return the largest magnitude of all finite values, 0 if there are none."""
    each = [np.abs(np.asarray(value, float)) for value in values]  # None becomes NaN
    return max((float(a[np.isfinite(a)].max(initial=0.0)) for a in each), default=0.0)


def _inertias(body: Any) -> dict[str, float]:
    """Return typical inertias of the dynamic variables by name.
    The dict is empty if the map has no mass matrix.
    """
    lag = getattr(body, "lagrangian", None)
    if lag is None or not hasattr(lag, "mass_scale_with"):
        return {}
    values = lag.mass_scale_with(body.parameters)
    return dict(zip(body.system.dynamic, map(float, values), strict=True))


def _between_masses(body: Any, X: np.ndarray) -> float:
    """Return the largest distance of a frame with mass from the first one, m.
    The distances are those in all of the states X.
    """
    heavy = [bool(node.frame.mass) for node in body.system.nodes]
    if not (any(heavy) and hasattr(body, "frame_positions")):
        return 0.0
    at = body.frame_positions(X[:, : body.nx])[:, heavy]
    return _largest(np.linalg.norm(at - at[:, :1], axis=-1))


def _extent(body: Any, X: np.ndarray) -> float:
    """Return the extent, m, of a mechanism and its motion.
    It is the largest distance of any frame, in any of the states X, from the initial position of the first
    frame. It is 0 if the map has no frames.
    """
    if not hasattr(body, "frame_positions"):
        return 0.0
    at = body.frame_positions(X[:, : body.nx])
    away = np.linalg.norm(at - at[0, 0], axis=-1)
    return float(away[np.isfinite(away)].max(initial=0.0))
