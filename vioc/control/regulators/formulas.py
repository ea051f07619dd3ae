"""Symbolic feedback laws and observers, for simulation in one CasADi function."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import casadi as ca
import numpy as np


class Estimate(NamedTuple):
    """Estimate of an observer: state (nx,) and its covariance (ndx, ndx) or None."""

    x: np.ndarray
    P: np.ndarray | None = None


class LawFormula(NamedTuple):
    """Feedback law as a symbolic expression, with a table of its gains.

    Attributes
    ----------
    key : hashable
        Identifier of the expression: laws with equal keys differ in their numbers only.
    expression : (x, memory, numbers) -> (u, memory)
    rows : (k, n) -> (n, m) or (m,)
        Function that returns numbers of the law, such as gains, for n samples from sample k on; one vector
        (m,) if they are constant. Raises ValueError if the law has none.
    stored, restored
        Conversion of the law's memory to an array, and back.
    """

    key: Hashable
    expression: Callable[[ca.SX, ca.SX, ca.SX], tuple[ca.SX, ca.SX]]
    rows: Callable[[int, int], np.ndarray]
    stored: Callable[[Any], np.ndarray] = lambda memory: np.zeros(0)
    restored: Callable[[np.ndarray], Any] = lambda numbers: None


class Measured(NamedTuple):
    """Symbols of one measurement, from which an observer computes its estimate.

    Attributes
    ----------
    y, innovation : (ny,)
        The measurement, and its difference from the expected measurement, with angles in [-pi, pi].
    C : (ny, nx)
        Jacobian of the expected measurement by the state.
    t_before, dt, parameters
        Time of the sample before, step length and parameters of the observer's map.
    """

    y: ca.MX
    innovation: ca.MX
    C: ca.MX
    t_before: ca.MX
    dt: ca.MX
    parameters: ca.MX


class ObserverFormula(NamedTuple):
    """Observer as a symbolic expression, with a table of its gains.

    The observer keeps its estimate x and a vector that is called its memory, such as a covariance.

    Attributes
    ----------
    key, rows
        As in `LawFormula`.
    expression : (x, memory, Measured, numbers) -> (x, memory)
        Estimate and memory after a measurement.
    stored : estimate -> memory
        Memory of the observer's estimate, as an array.
    restored : (k, x, memory) -> estimate
        The observer's estimate before the measurement of sample k.
    ahead : (memory, u, linearized, numbers) -> memory
        Memory before the next measurement. ``linearized()`` returns A and B of the step between.
    covariances : (k, memories) -> n covariances (ndx, ndx), or None
        Covariances after the measurements of n samples from sample k on, given the memories (n, m) after
        these measurements.
    holds : (k, estimate) -> bool
        Function that returns True if the formula agrees with the observer from sample k on.
    predicts : bool
        True if the observer's map predicts the next estimate, False if the next measurement replaces it.
    linearizes : bool
        True if `ahead` needs A and B.
    """

    key: Hashable
    expression: Callable[[ca.MX, ca.MX, Measured, ca.MX], tuple[ca.MX, ca.MX]]
    rows: Callable[[int, int], np.ndarray]
    stored: Callable[[Any], np.ndarray]
    restored: Callable[[int, np.ndarray, np.ndarray], Any]
    ahead: Callable[[ca.MX, ca.MX, Callable[[], tuple[ca.MX, ca.MX]], ca.MX], ca.MX]
    covariances: Callable[[int, np.ndarray], np.ndarray | None]
    holds: Callable[[int, Any], bool] = lambda k, estimate: True
    predicts: bool = True
    linearizes: bool = False


def formula_of(part: Any) -> Any:
    """Return the symbolic formula of a law or observer, or None if it is missing.

    The class of `part` itself must define `formula`: None is returned for a derived class that inherits it,
    since the derived class may act differently.
    """
    return part.formula() if "formula" in vars(type(part)) else None


def clipped(u: Any, low: Any, high: Any) -> Any:
    """Return u clipped to bounds, as a symbolic expression; NaN stays NaN."""
    return ca.if_else(u < low, low, ca.if_else(u > high, high, u))
