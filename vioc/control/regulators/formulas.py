"""Laws and observers in symbols: what `sampling` makes one function of a sample of."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, NamedTuple

import casadi as ca
import numpy as np


class Estimate(NamedTuple):
    """What an observer believes: the state (nx,) and the covariance (ndx, ndx) of its error, or None."""

    x: np.ndarray
    P: np.ndarray | None = None


class LawFormula(NamedTuple):
    """A law in symbols.

    Attributes
    ----------
    key : hashable
        Tells its expression from those of other laws, whatever their numbers.
    expression : (x, memory, numbers) -> (u, memory)
    rows : (k, n) -> (n, m), or (m,) for all
        The numbers of n samples from k on. ValueError where the law has none.
    stored, restored
        A memory of the law as numbers, and back.
    """

    key: Hashable
    expression: Callable[[ca.SX, ca.SX, ca.SX], tuple[ca.SX, ca.SX]]
    rows: Callable[[int, int], np.ndarray]
    stored: Callable[[Any], np.ndarray] = lambda memory: np.zeros(0)
    restored: Callable[[np.ndarray], Any] = lambda numbers: None


class ObserverFormula(NamedTuple):
    """An observer in symbols, whose estimate goes through its map from sample to sample.

    Attributes
    ----------
    key, rows
        As of a `LawFormula`.
    expression : (x, P, innovation, C, numbers) -> (x, P)
        The estimate after a measurement. P has no entries where covariances are known beforehand.
    holds : (k, estimate) -> bool
        Whether the formula is what the observer would do from sample k on.
    covariances : (k, n) -> (n, ndx, ndx)
        After the measurements of n samples, where they are known.
    estimate : (k, x) -> Estimate
        Before the measurement of sample k, likewise.
    ahead : (P, A, B, numbers) -> P, optional
        From sample to sample, where covariances follow from the estimates.
    """

    key: Hashable
    expression: Callable[[ca.MX, ca.MX, ca.MX, ca.MX, ca.MX], tuple[ca.MX, ca.MX]]
    rows: Callable[[int, int], np.ndarray]
    holds: Callable[[int, Any], bool] = lambda k, estimate: True
    covariances: Callable[[int, int], np.ndarray] | None = None
    estimate: Callable[[int, np.ndarray], Estimate] | None = None
    ahead: Callable[[ca.MX, ca.MX, ca.MX, ca.MX], ca.MX] | None = None


def formula_of(part: Any) -> Any:
    """The formula of a law or an observer; None of a class derived from theirs, which may do otherwise."""
    return part.formula() if "formula" in vars(type(part)) else None


def clipped(u: Any, low: Any, high: Any) -> Any:
    """u between bounds, in symbols; what is no number stays none."""
    return ca.if_else(u < low, low, ca.if_else(u > high, high, u))
