"""Symbolic feedback laws and observers, for simulation in one compiled function."""

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
    rows : (k, n) -> (n, m), or (m,) for all
        Numbers of the law, such as gains, for n samples from sample k on. ValueError if the law has none.
    stored, restored
        Conversion of the law's memory to an array, and back.
    """

    key: Hashable
    expression: Callable[[ca.SX, ca.SX, ca.SX], tuple[ca.SX, ca.SX]]
    rows: Callable[[int, int], np.ndarray]
    stored: Callable[[Any], np.ndarray] = lambda memory: np.zeros(0)
    restored: Callable[[np.ndarray], Any] = lambda numbers: None


class ObserverFormula(NamedTuple):
    """Observer as a symbolic expression, with a table of its gains.

    The observer's map propagates the estimate between samples.

    Attributes
    ----------
    key, rows
        As in `LawFormula`.
    expression : (x, P, innovation, C, numbers) -> (x, P)
        Estimate after a measurement. P is empty if covariances are precomputed.
    holds : (k, estimate) -> bool
        Function that returns True if the formula agrees with the observer from sample k on.
    covariances : (k, n) -> (n, ndx, ndx)
        Covariances after the measurements of n samples, if precomputed.
    estimate : (k, x) -> Estimate
        Estimate before the measurement of sample k, if covariances are precomputed.
    ahead : (P, A, B, numbers) -> P, optional
        Covariance of the next sample, if it depends on the estimates.
    """

    key: Hashable
    expression: Callable[[ca.MX, ca.MX, ca.MX, ca.MX, ca.MX], tuple[ca.MX, ca.MX]]
    rows: Callable[[int, int], np.ndarray]
    holds: Callable[[int, Any], bool] = lambda k, estimate: True
    covariances: Callable[[int, int], np.ndarray] | None = None
    estimate: Callable[[int, np.ndarray], Estimate] | None = None
    ahead: Callable[[ca.MX, ca.MX, ca.MX, ca.MX], ca.MX] | None = None


def formula_of(part: Any) -> Any:
    """Return the symbolic formula of a law or observer.
    Return None if it has none.

    None also for derived classes, which may act differently.
    """
    return part.formula() if "formula" in vars(type(part)) else None


def clipped(u: Any, low: Any, high: Any) -> Any:
    """Return u clipped to bounds, as a symbolic expression; NaN stays NaN."""
    return ca.if_else(u < low, low, ca.if_else(u > high, high, u))
