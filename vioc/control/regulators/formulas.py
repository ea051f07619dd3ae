"""Symbolic laws and observers, which `sampling` combines to one function."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import casadi as ca
import numpy as np


class Estimate(NamedTuple):
    """Estimate of an observer: state (nx,) and covariance (ndx, ndx) or None."""

    x: np.ndarray
    P: np.ndarray | None = None


class LawFormula(NamedTuple):
    """Symbolic law.

    Attributes
    ----------
    key : hashable
        Identity of its expression among those of other laws, whatever their numbers.
    expression : (x, memory, numbers) -> (u, memory)
    rows : (k, n) -> (n, m), or (m,) for all
        The numbers of n samples from k on. ValueError if the law has none.
    stored, restored
        Conversion of a memory of the law to numbers, and back.
    """

    key: Hashable
    expression: Callable[[ca.SX, ca.SX, ca.SX], tuple[ca.SX, ca.SX]]
    rows: Callable[[int, int], np.ndarray]
    stored: Callable[[Any], np.ndarray] = lambda memory: np.zeros(0)
    restored: Callable[[np.ndarray], Any] = lambda numbers: None


class ObserverFormula(NamedTuple):
    """Symbolic observer, whose estimate is propagated by its map between samples.

    Attributes
    ----------
    key, rows
        As in `LawFormula`.
    expression : (x, P, innovation, C, numbers) -> (x, P)
        The estimate after a measurement. P has no entries if covariances are precomputed.
    holds : (k, estimate) -> bool
        True if the formula agrees with the observer from sample k on.
    covariances : (k, n) -> (n, ndx, ndx)
        After the measurements of n samples, if precomputed.
    estimate : (k, x) -> Estimate
        Before the measurement of sample k, if precomputed.
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
    """Return the formula of a law or observer; None for classes derived from it.

    A derived class may act differently.
    """
    return part.formula() if "formula" in vars(type(part)) else None


def clipped(u: Any, low: Any, high: Any) -> Any:
    """Return u clipped to bounds, in symbols; NaN stays NaN."""
    return ca.if_else(u < low, low, ca.if_else(u > high, high, u))
